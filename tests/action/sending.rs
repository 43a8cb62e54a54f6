//! What a receiver gets besides the body, and over which connection.

use super::forward::{TIMEOUT, to};
use super::receiver::{Do, Fixture, status, write};
use super::*;
use bytes::Bytes;
use hookonce::decide::delivery::{Delivery, borrow_headers};
use hookonce::decide::verify::VerificationScheme;
use hookonce::internals::action::plan::{Http2Mode, ReceiverHeaderValue, ReceiverPlan, SigningKey};
use http_body_util::{BodyExt, Full};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const KEY: &[u8] = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn field(name: &str) -> FieldTemplate {
    FieldTemplate(vec![FieldTemplatePart::Field(name.into())])
}

fn at(fixture: &Fixture) -> ReceiverPlan {
    ReceiverPlan::new((&*fixture.url()).into(), TIMEOUT)
}

/// Header lines and body of a request.
fn parts(request: &[u8]) -> (Vec<(String, String)>, Vec<u8>) {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(request[..end].to_vec()).unwrap();
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    (head.lines().filter_map(pair).collect(), request[end + 4..].to_vec())
}

/// The values of this header in the last request.
fn last(fixture: &Fixture, name: &str) -> Vec<String> {
    let (headers, _) = parts(fixture.requests().last().unwrap());
    headers.into_iter().filter(|(n, _)| n == name).map(|(_, value)| value).collect()
}

#[tokio::test]
async fn chosen_headers_of_the_sender_are_passed_on_and_others_are_not() {
    let fixture = Fixture::serve(vec![status("200 OK", "")]).await;
    let pass = vec!["x-github-event".to_owned(), "x-token".to_owned(), "x-absent".to_owned()];
    let mut bench = Bench::body("{}");
    bench.payload.headers = vec![("x-github-event".into(), "push".into()), ("x-field".into(), "no".into())];
    bench.payload.push_transient_header("x-token", "one".into());
    bench.payload.push_transient_header("x-token", "two".into());
    bench.payload.push_transient_header("x-other", "another receiver's".into());
    assert_eq!(bench.act(&*to(ReceiverPlan { pass, ..at(&fixture) })).await.word(), "delivered");
    assert_eq!(last(&fixture, "x-github-event"), ["push"]);
    assert_eq!(last(&fixture, "x-token"), ["one", "two"]);
    for absent in ["x-field", "x-absent", "x-other"] {
        assert!(last(&fixture, absent).is_empty(), "{absent}");
    }
}

#[tokio::test]
async fn a_header_is_set_from_a_field_or_from_a_secret_and_one_that_cannot_be_is_never_sent() {
    let fixture = Fixture::serve(vec![status("200 OK", "")]).await;
    let set = vec![
        ("x-repo".to_owned(), ReceiverHeaderValue::Template(field("repo"))),
        ("authorization".to_owned(), ReceiverHeaderValue::Secret("Bearer canary".into())),
    ];
    assert!(!format!("{set:?}").contains("canary"));
    let action = to(ReceiverPlan { set, ..at(&fixture) });
    let with = |repo: &str| Bench::with([("repo", repo.to_owned())]);
    assert_eq!(with("octo/cat é").act(&*action).await.word(), "delivered");
    assert_eq!(last(&fixture, "authorization"), ["Bearer canary"]);
    assert_eq!(last(&fixture, "x-repo"), ["octo/cat é"]);
    for (bench, why) in [
        (with("a\r\nx-evil: 1"), "the value for `x-repo` is not allowed in a header"),
        (with("a\0"), "the value for `x-repo` is not allowed in a header"),
        (Bench::new(), "the field `repo` is missing"),
    ] {
        let outcome = bench.act(&*action).await;
        assert_eq!((outcome.word(), outcome.why()), ("rejected", why));
    }
    assert_eq!(fixture.requests().len(), 1);
}

#[tokio::test]
async fn a_signed_request_passes_our_own_verifier_and_a_changed_byte_does_not() {
    let fixture = Fixture::serve(vec![status("200 OK", "")]).await;
    let sign = Some(SigningKey(KEY.to_vec()));
    assert!(!format!("{sign:?}").contains("MfKQ"));
    let action = to(ReceiverPlan { sign, ..at(&fixture) });
    let mut bench = Bench::body(&b"n=1\0\xff"[..]);
    bench.payload.headers = vec![("content-type".into(), "application/x-www-form-urlencoded".into())];
    let scheme = VerificationScheme::standard_webhooks(&[KEY.to_vec()], Duration::from_secs(5)).unwrap();
    let mut ids = Vec::new();
    for life in [1, 2] {
        bench.event.life = life;
        assert_eq!(bench.act(&*action).await.word(), "delivered");
        let (headers, body) = parts(fixture.requests().last().unwrap());
        let headers: Vec<_> = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        let believed = |body: Vec<u8>, at| {
            let body = Bytes::from(body);
            let delivery =
                Delivery { path: "/in", query: "", headers: &borrow_headers(&headers), body: &body, at, wall: at };
            scheme.verify(&delivery).is_ok()
        };
        assert!(believed(body.clone(), bench.at));
        assert!(!believed(body.clone(), bench.at + Duration::from_secs(10)), "the time is signed");
        assert!(!believed([&body[..body.len() - 1], b"x"].concat(), bench.at));
        ids.extend(last(&fixture, "webhook-id"));
        assert_eq!(
            last(&fixture, "content-type"),
            ["application/x-www-form-urlencoded"],
            "a signature does not change the content type"
        );
    }
    assert_eq!(ids, [bench.event.id.to_string(), format!("{}_2", bench.event.id)]);
}

#[tokio::test]
async fn a_trace_continues_under_a_span_of_each_attempt_and_otherwise_begins_with_the_event() {
    let fixture = Fixture::serve(vec![status("200 OK", "")]).await;
    let action = to(at(&fixture));
    let mut bench = Bench::body("{}");
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    bench.payload.headers = vec![header("traceparent", parent), header("tracestate", "congo=1,rojo=2")];
    let mut spans = vec!["00f067aa0ba902b7".to_owned()];
    for _ in 0..2 {
        assert_eq!(bench.act(&*action).await.word(), "delivered");
        let sent = last(&fixture, "traceparent").remove(0);
        let (beginning, rest) = sent.split_at(36);
        assert_eq!((beginning, &rest[16..]), (&parent[..36], "-00"), "{sent}");
        assert!(!spans.contains(&rest[..16].to_owned()), "{sent}");
        spans.push(rest[..16].to_owned());
        assert_eq!(last(&fixture, "tracestate"), ["congo=1,rojo=2"]);
    }
    bench.payload.headers = vec![header("traceparent", "00-nonsense"), header("tracestate", "congo=1")];
    assert_eq!(bench.act(&*action).await.word(), "delivered");
    let own = format!("00-{}-", hex::encode(bench.event.id.0));
    assert!(last(&fixture, "traceparent")[0].starts_with(&own));
    assert!(last(&fixture, "tracestate").is_empty());
}

#[tokio::test]
async fn a_receipt_keeps_the_configured_headers_and_no_cookie() {
    let headers = "Content-Type: text/plain\r\nX-Upload: 7\r\nSet-Cookie: a=b\r\nX-Other: 1\r\n";
    let fixture = Fixture::serve(vec![status("200 OK", headers)]).await;
    let receipt_headers = vec!["x-upload".to_owned(), "content-type".to_owned()];
    let outcome = Bench::body("{}").act(&*to(ReceiverPlan { receipt_headers, ..at(&fixture) })).await;
    let kept: Vec<_> = outcome.receipt().unwrap().headers.iter().map(|(n, v)| format!("{n}: {v}")).collect();
    assert_eq!(kept, ["content-type: text/plain", "x-upload: 7"]);
}

#[tokio::test]
async fn a_receiver_has_its_own_limit_of_attempts_at_once() {
    let one = ReceiverPlan { at_once: Some(3), ..ReceiverPlan::new("http://a/".into(), TIMEOUT) };
    let two = ReceiverPlan::new("http://b/".into(), TIMEOUT);
    let action = build_action(ActionPlan::Forward(vec![one, two]), &environment(&[], &[])).unwrap();
    assert_eq!([0, 1, 2].map(|part| action.concurrency_limit(part)), [Some(3), None, None]);
}

/// A receiver that speaks only HTTP/2 without TLS: its URL, its requests, and the number of its connections.
async fn prior() -> (String, Arc<Mutex<Vec<(http::Version, Bytes)>>>, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let (seen, connections) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicUsize>::default());
    let (noted, counted) = (seen.clone(), connections.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let noted = noted.clone();
            let answer = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let noted = noted.clone();
                async move {
                    let version = request.version();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let resets = body == "reset";
                    noted.lock().unwrap().push((version, body));
                    // The stream of a service that fails is reset; its connection stays open.
                    if resets { Err("told to") } else { Ok(http::Response::new(Full::new(Bytes::from("two")))) }
                }
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            let executor = hyper_util::rt::TokioExecutor::new();
            tokio::spawn(hyper::server::conn::http2::Builder::new(executor).serve_connection(io, answer));
        }
    });
    (url, seen, connections)
}

#[tokio::test]
async fn with_prior_knowledge_http_2_is_spoken_without_tls_over_one_connection() {
    let (url, seen, connections) = prior().await;
    let action = to(ReceiverPlan { http2: Http2Mode::Prior, ..ReceiverPlan::new((&*url).into(), TIMEOUT) });
    let body = Bytes::from((0..=255).cycle().take(300_000).collect::<Vec<u8>>());
    let benches: Vec<_> = (0..8).map(|_| Bench::body(body.clone())).collect();
    assert_eq!(benches[0].act(&*action).await.word(), "delivered");
    let outcomes = futures_util::future::join_all(benches.iter().map(|bench| bench.act(&*action))).await;
    assert!(outcomes.iter().all(|outcome| outcome.receipt().unwrap().body == b"two"), "{outcomes:?}");
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|(version, got)| *version == http::Version::HTTP_2 && *got == body));
    assert_eq!((seen.len(), connections.load(Ordering::SeqCst)), (9, 1));
}

#[tokio::test]
async fn a_stream_reset_after_the_request_was_read_is_in_doubt_and_not_resent() {
    let (url, seen, connections) = prior().await;
    let action = to(ReceiverPlan { http2: Http2Mode::Prior, ..ReceiverPlan::new((&*url).into(), TIMEOUT) });
    let outcome = Bench::body("reset").act(&*action).await;
    assert_eq!((outcome.word(), seen.lock().unwrap().len()), ("unknown", 1), "{outcome:?}");
    assert_eq!(Bench::body("{}").act(&*action).await.word(), "delivered");
    assert_eq!((seen.lock().unwrap().len(), connections.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test]
async fn a_connection_is_reused() {
    // It responds to the first request of a connection, and closes a second connection at its first request.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                }
            });
        }
    });
    let action = to(ReceiverPlan::new((&*url).into(), TIMEOUT));
    for _ in 0..10 {
        assert_eq!(Bench::new().act(&*action).await.word(), "delivered");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_chunked_response_is_assembled_and_the_timeout_covers_all_of_it() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
    let fixture = Fixture::serve(vec![vec![write(chunked)], vec![write(&chunked[..60]), Do::Hang]]).await;
    let action = to(at(&fixture));
    let outcome = Bench::body("1").act(&*action).await;
    assert_eq!((&*outcome.receipt().unwrap().body, outcome.receipt().unwrap().truncated), (&b"onetwo"[..], false));
    let begun = Instant::now();
    let outcome = Bench::body("2").act(&*action).await;
    let cut = matches!(&outcome, Outcome::TimedOut { answered: Some(receipt), .. } if receipt.truncated);
    assert!(cut && begun.elapsed() < TIMEOUT * 3, "{outcome:?}");
}
