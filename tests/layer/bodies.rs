//! Bodies that are too large, responses that are too large to keep, and a service on plain hyper.

use super::{Client, Kind, Service, behind, serve};
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::IntoResponse;
use axum::routing::post;
use hookonce::{Once, json};
use hookonce::{OnceBody, RequestAttempt};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::Response;
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower::Layer as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_refused_before_anything_happens() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let client = behind(&service, Once::new(place.store.clone()).body_max(1000)).await;
    assert_eq!(client.post("k", &"x".repeat(1000)).await.status, 200);
    let large = client.post("l", &"x".repeat(1001)).await;
    assert_eq!((large.status, &*large.problem()), (413, "too-large"));
    assert_eq!(service.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_any_size_passes_without_a_key_if_none_is_required() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let once = Once::new(place.store.clone()).optional().body_max(1000);
    let large = async |client: &Client| {
        client.send(client.http.post(format!("{}/act", client.url)).body("x".repeat(1001))).await
    };
    let client = behind(&service, once.clone()).await;
    let passed = large(&client).await;
    assert_eq!((passed.status, passed.body.len()), (200, "call 1 of nobody: ".len() + 1001));
    assert_eq!(client.post("k", &"x".repeat(1001)).await.problem(), "too-large");
    // If the key may be in the body, the body is read, or refused.
    let client = behind(&service, once.per(json("id"))).await;
    assert_eq!(large(&client).await.problem(), "too-large");
    assert_eq!(service.calls(), 1);
}

/// Responds with as many chunks of 64 KiB as requested.
async fn stream(pieces: String) -> impl IntoResponse {
    let pieces =
        (0..pieces.parse().unwrap()).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; 64 << 10]))));
    Body::new(StreamBody::new(futures_util::stream::iter(pieces)))
}

async fn streams(once: Once) -> Client {
    serve(Router::new().route("/act", post(stream)).layer(once)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_too_large_to_keep_is_streamed_and_marked_and_not_repeated() {
    for kind in super::STORES {
        let place = kind.fresh().await;
        let client = streams(Once::new(place.store.clone())).await;
        let first = client.post("large", "64").await;
        assert_eq!((first.status, first.body.len()), (200, 64 * (64 << 10)), "{kind:?}");
        assert_eq!(first.header("hookonce-receipt"), Some("too_large"));
        let again = client.post("large", "64").await;
        assert_eq!((again.status, again.header("hookonce-receipt")), (200, Some("too_large")));
        assert!(again.replayed() && again.body.contains("\"status\":\"duplicate\""), "{:?}", again.body.len());
        let first = client.post("fits", "16").await;
        assert_eq!((first.body.len(), first.header("hookonce-receipt")), (1 << 20, None));
        let again = client.post("fits", "16").await;
        assert!(again.replayed() && again.body == first.body, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_breaks_off_is_not_kept() {
    let place = Kind::Memory.fresh().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let act = move || async move {
        let error = (counted.fetch_add(1, Ordering::SeqCst) == 0).then_some(Err(std::io::Error::other("gone")));
        let pieces = [Ok(Frame::data(Bytes::from_static(b"half")))].into_iter().chain(error);
        Body::new(StreamBody::new(futures_util::stream::iter(pieces)))
    };
    let client = serve(Router::new().route("/act", post(act)).layer(Once::new(place.store.clone()))).await;
    let broken = client.http.post(format!("{}/act", client.url)).header("idempotency-key", "k").send().await;
    let whole = match broken {
        Ok(response) => response.text().await.is_ok(),
        Err(_) => false,
    };
    assert!(!whole, "the caller sees it break off, as without the layer");
    let said = client.post("k", "").await;
    assert_eq!((said.replayed(), &*said.body, calls.load(Ordering::SeqCst)), (false, "half", 2));
}

/// Without axum: a function behind the layer, on hyper's own connection. It passes on its attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_on_plain_hyper_acts_once_and_knows_its_attempt() {
    async fn act(request: Request<OnceBody<Incoming>>) -> Result<Response<Full<Bytes>>, Infallible> {
        let attempt = request.extensions().get::<RequestAttempt>().unwrap().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let said = format!("{}.{} of {} bytes", attempt.idempotency_key, attempt.number, body.len());
        Ok(Response::new(Full::from(said)))
    }
    let place = Kind::Memory.fresh().await;
    let once = Once::new(place.store.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client { url: format!("http://{}", listener.local_addr().unwrap()), http: reqwest::Client::new() };
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = once.layer(tower::service_fn(act));
            let builder = Builder::new(TokioExecutor::new());
            tokio::spawn(async move {
                builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await.ok();
            });
        }
    });
    let first = client.post("k", "four").await;
    assert_eq!(first.body, format!("{}.1 of 4 bytes", first.header("hookonce-event").unwrap()));
    let again = client.post("k", "four").await;
    assert!(again.replayed() && again.body == first.body);
}
