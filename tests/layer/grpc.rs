//! A unary call through the layer: gRPC reports its status in the trailers, so these must survive.

use super::Kind;
use axum::http::uri::PathAndQuery;
use bytes::{Buf as _, BufMut as _, Bytes};
use hookonce::Once;
use hyper::body::Body as HttpBody;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};
use tower::Service;

/// A codec for messages of plain bytes.
#[derive(Clone, Copy, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Counts its calls; the message selects its result.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl UnaryService<Bytes> for Counter {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;
    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let call = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        ready(match &*request.into_inner() {
            b"unavailable" => Err(Status::unavailable("come again")),
            b"not found" => Err(Status::with_details(Code::NotFound, "never", "which one".into())),
            _ => Ok(Response::new(format!("call {call}").into())),
        })
    }
}

#[derive(Clone, Default)]
struct Counting(Counter);

impl NamedService for Counting {
    const NAME: &'static str = "test.Counting";
}

impl<B> Service<axum::http::Request<B>> for Counting
where
    B: HttpBody + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    type Response = axum::http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: axum::http::Request<B>) -> Self::Future {
        let counter = self.0.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Plain).unary(counter, request).await) })
    }
}

async fn call(channel: &Channel, key: Option<&str>, message: &str) -> Result<(String, bool), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(Bytes::from(message.to_owned()));
    if let Some(key) = key {
        request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
    }
    let answer = grpc.unary(request, PathAndQuery::from_static("/test.Counting/Count"), Plain).await?;
    let replayed = answer.metadata().contains_key("idempotent-replayed");
    Ok((String::from_utf8(answer.into_inner().to_vec()).unwrap(), replayed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unary_call_acts_once_and_its_status_survives() {
    let place = Kind::Memory.fresh().await;
    let counting = Counting::default();
    let calls = counting.0.0.clone();
    let once = Once::new(place.store.clone());
    let port = std::net::SocketAddr::from(([127, 0, 0, 1], crate::support::free_port()));
    tokio::spawn(Server::builder().layer(once).add_service(counting).serve(port));
    let channel = tokio::time::timeout(super::PATIENCE, async {
        loop {
            if let Ok(channel) = Channel::from_shared(format!("http://{port}")).unwrap().connect().await {
                return channel;
            }
        }
    });
    let channel = channel.await.unwrap();
    assert_eq!(call(&channel, Some("k"), "a").await.unwrap(), ("call 1".into(), false));
    assert_eq!(call(&channel, Some("k"), "a").await.unwrap(), ("call 1".into(), true));
    let other = call(&channel, Some("k"), "b").await.unwrap_err();
    assert_eq!(other.code(), Code::FailedPrecondition);
    assert_eq!(call(&channel, None, "a").await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    for calls_then in [2, 3] {
        let failed = call(&channel, Some("f"), "unavailable").await.unwrap_err();
        assert_eq!((failed.code(), failed.message()), (Code::Unavailable, "come again"));
        assert_eq!(calls.load(Ordering::SeqCst), calls_then, "a failure runs again");
    }
    for _ in 0..2 {
        let answer = call(&channel, Some("n"), "not found").await.unwrap_err();
        assert_eq!((answer.code(), answer.message()), (Code::NotFound, "never"));
        assert_eq!(answer.details(), b"which one", "the error has the same details as the first time");
        assert_eq!(calls.load(Ordering::SeqCst), 4, "a response is kept");
    }
}
