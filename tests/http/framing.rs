//! Request framing: bytes of one request must never be read as another.

use crate::wire::{Port, Setting, post};
use hookonce::internals::ingress::BodyLimits;
use std::time::Duration;

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let port = Port::open(Setting::default()).await;
    let mut client = port.connect().await;
    let all: Vec<u8> = (0..50).flat_map(|n| post(&format!("/{n}"), n * 100)).collect();
    client.send(all).await;
    for n in 0..50 {
        let answer = client.answer().await.expect("an answer");
        assert_eq!((answer.status, answer.body), (200, format!("\"POST /{n}\"")));
    }
    let wanted: Vec<_> = (0..50).map(|n| format!("POST /{n} {}", n * 100)).collect();
    assert_eq!(port.requests(), wanted);
}

/// Sends the bytes, waits until the connection has ended, and returns the requests that the handler got.
async fn seen(bytes: &str) -> Vec<String> {
    let body = BodyLimits { behind: Duration::from_millis(300), ..BodyLimits::default() };
    let limits = hookonce::internals::ingress::ConnectionLimits {
        header_time: Duration::from_secs(1),
        idle_time: Duration::from_millis(500),
        ..Default::default()
    };
    let port = Port::open(Setting { limits, body, ..Setting::default() }).await;
    let mut client = port.connect().await;
    client.send(bytes).await;
    client.ended().await;
    drop(client);
    let requests = port.requests();
    port.close().await;
    requests
}

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: t\r\n\r\n";

#[tokio::test]
async fn ambiguous_framing_never_makes_a_second_request() {
    let length = HIDDEN.len();
    let chunk = format!("{length:x}\r\n{HIDDEN}\r\n0\r\n\r\n");
    let cases: &[(&str, String)] = &[
        // Two lengths, one of which would hide a request.
        ("content-length: 4\r\ntransfer-encoding: chunked", format!("0\r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked\r\ncontent-length: 4", format!("0\r\n\r\n{HIDDEN}")),
        ("content-length: 0\r\ntransfer-encoding: chunked", chunk.clone()),
        ("content-length: 0\r\ncontent-length: 5", HIDDEN.to_owned()),
        ("content-length: 5\r\ncontent-length: 0", HIDDEN.to_owned()),
        ("content-length: 0, 5", HIDDEN.to_owned()),
        ("content-length: +0", HIDDEN.to_owned()),
        ("content-length: -1", HIDDEN.to_owned()),
        ("content-length: 0x0", HIDDEN.to_owned()),
        ("content-length: ", HIDDEN.to_owned()),
        ("content-length: 99999999999999999999999", HIDDEN.to_owned()),
        ("content-length : 0", HIDDEN.to_owned()),
        ("content-length\t: 0", HIDDEN.to_owned()),
        // Encodings that are not, or not only, chunked.
        ("transfer-encoding: identity", chunk.clone()),
        ("transfer-encoding: xchunked", chunk.clone()),
        ("transfer-encoding: chunked, identity", chunk.clone()),
        ("transfer-encoding: chunked\r\ntransfer-encoding: identity", chunk.clone()),
        ("transfer-encoding:\x0bchunked", chunk.clone()),
        ("transfer-encoding : chunked", chunk.clone()),
        // Folded lines, wrong line ends, and bytes that other parsers take for line ends.
        ("x-a: b\r\n content-length: 0", HIDDEN.to_owned()),
        ("x-a: b\r\n\ttransfer-encoding: chunked\r\ncontent-length: 0", HIDDEN.to_owned()),
        ("transfer-encoding:\r\n chunked", chunk.clone()),
        ("x-a: b\rcontent-length: 0", HIDDEN.to_owned()),
        ("x-a: b\0\r\ncontent-length: 0", HIDDEN.to_owned()),
        // Chunks of ambiguous size.
        ("transfer-encoding: chunked", format!("0x0\r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!("-1\r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!(" \r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!("\r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!("ffffffffffffffffff\r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!("1\r\nab\r\n0\r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!("1\na\r\n0\r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!("0;x=\n\r\n\r\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!("0\n\n{HIDDEN}")),
        ("transfer-encoding: chunked", format!("g\r\n\r\n{HIDDEN}")),
    ];
    let results = cases
        .iter()
        .map(async |(headers, rest)| seen(&format!("POST /open HTTP/1.1\r\nhost: t\r\n{headers}\r\n\r\n{rest}")).await);
    let results = futures_util::future::join_all(results).await;
    for ((headers, rest), requests) in cases.iter().zip(results) {
        let second = requests.iter().any(|r| r.contains("/hidden"));
        assert!(!second && requests.len() <= 1, "{headers:?} {rest:?}: {requests:?}");
    }
}

#[tokio::test]
async fn a_malformed_request_line_reaches_no_handler() {
    for line in [
        "POST /open HTTP/1.1 x",
        "POST  /open HTTP/1.1",
        "POST /open HTTP/9.9",
        "POST /o pen HTTP/1.1",
        "\0",
        "GET /open",
    ] {
        assert_eq!(
            seen(&format!("{line}\r\nhost: t\r\ncontent-length: 0\r\n\r\n")).await,
            Vec::<String>::new(),
            "{line:?}"
        );
    }
    assert_eq!(seen("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, Vec::<String>::new());
}

#[tokio::test]
async fn lines_that_end_in_a_bare_line_feed_make_one_request_at_most() {
    let hidden = HIDDEN.replace("\r\n", "\n");
    let requests = seen(&format!("POST /open HTTP/1.1\nhost: t\ncontent-length: {}\n\n{hidden}", hidden.len())).await;
    assert!(requests.len() <= 1 && !requests.iter().any(|r| r.contains("/hidden")), "{requests:?}");
}

#[tokio::test]
async fn a_chunked_body_hides_nothing_and_the_next_request_is_found() {
    let chunks = format!("{:x};note=1\r\n{HIDDEN}\r\n0\r\nx-trailer: 1\r\n\r\n", HIDDEN.len());
    let first = format!("POST /open HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
    let requests = seen(&format!("{first}GET /next HTTP/1.1\r\nhost: t\r\n\r\n")).await;
    assert_eq!(requests, [format!("POST /open {}", HIDDEN.len()), "GET /next 0".to_owned()]);
}
