//! The limits of a body, and of all bodies together.

use crate::bare_handler::bare;
use crate::wire::{LONG, Port, Setting, announce, eventually, post};
use bytes::Bytes;
use hookonce::internals::ingress::ConnectionLimits;
use hookonce::internals::ingress::no_body;
use hookonce::internals::ingress::{BodiesInFlight, BodyError, BodyLimits, read};
use http_body_util::Full;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const MS: Duration = Duration::from_millis(1);

fn small() -> Setting {
    Setting { body: BodyLimits { bytes: 1000, ..BodyLimits::default() }, ..Setting::default() }
}

/// At least 1,000 bytes per second, and never more than 300 ms behind.
fn paced() -> Setting {
    Setting {
        body: BodyLimits { bytes_per_second: 1000, behind: 300 * MS, ..BodyLimits::default() },
        ..Setting::default()
    }
}

fn chunked(path: &str, chunks: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{chunks}")
}

#[tokio::test]
async fn a_body_whose_announced_length_is_too_large_is_refused_before_a_byte_is_sent() {
    let port = Port::open(small()).await;
    assert_eq!(port.ask(post("/", 1000)).await.map(|a| a.status), Some(200));
    let answer = port.ask(announce("/", 1001)).await.expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (413, r#"{"status":"refused","reason":"too_large"}"#));
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
    let answer = port.ask(announce("/", usize::MAX >> 1)).await.expect("an answer");
    assert_eq!(answer.status, 413);
    assert_eq!(port.requests(), ["POST / 1000"]);
}

#[tokio::test]
async fn a_body_that_becomes_too_large_is_refused() {
    let port = Port::open(small()).await;
    let chunk = format!("fa\r\n{}\r\n", "b".repeat(250));
    let end = "0\r\n\r\n";
    assert_eq!(port.ask(chunked("/", &format!("{}{end}", chunk.repeat(4)))).await.map(|a| a.status), Some(200));
    assert_eq!(port.ask(chunked("/", &format!("{}1\r\nb\r\n", chunk.repeat(4)))).await.map(|a| a.status), Some(413));
    assert_eq!(port.ask(chunked("/", &chunk.repeat(400))).await.map(|a| a.status), Some(413));
    assert_eq!(port.requests(), ["POST / 1000"]);
    assert_eq!(port.seen.flight.used(), 0);
}

#[tokio::test]
async fn a_client_that_keeps_sending_after_a_413_gets_it_and_then_eof() {
    let limits = ConnectionLimits { linger_time: LONG, ..ConnectionLimits::default() };
    let port = Port::open(Setting { limits, ..small() }).await;
    let mut client = port.connect().await;
    // Closing a socket with unread bytes resets the connection, and most clients then report the reset, not the
    // response.
    client.stream.write_all(&post("/", 8 << 20)).await.expect("no reset while it sends");
    assert_eq!(client.answer().await.map(|a| a.status), Some(413));
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).await.expect("an end, not a reset");
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_client_that_never_stops_sending_after_a_413_is_cut_off() {
    let limits = ConnectionLimits { linger_time: 200 * MS, connections: 1, ..ConnectionLimits::default() };
    let port = Port::open(Setting { limits, ..small() }).await;
    let mut endless = port.connect().await;
    endless.send(announce("/", 1 << 40)).await;
    assert_eq!(endless.answer().await.map(|a| a.status), Some(413));
    let next = port.ask(post("/", 1));
    let flood = async {
        loop {
            endless.send(vec![b'b'; 64 << 10]).await;
            tokio::task::yield_now().await;
        }
    };
    let answer = tokio::select! { answer = next => answer, () = flood => unreachable!("it has no end") };
    assert_eq!(answer.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn a_body_that_stalls_is_given_up_after_the_time_it_may_be_behind() {
    let port = Port::open(paced()).await;
    for sent in [0, 1, 100, 100_000] {
        let mut client = port.connect().await;
        client.send(announce("/", 200_000)).await;
        client.send(vec![b'b'; sent]).await;
        let start = Instant::now();
        let answer = client.answer().await.expect("an answer");
        assert_eq!((answer.status, answer.body.as_str()), (408, r#"{"status":"refused","reason":"too_slow"}"#));
        assert!((250 * MS..LONG).contains(&start.elapsed()), "{:?} after {sent} bytes", start.elapsed());
        client.ended().await;
    }
    assert_eq!(port.seen.flight.used(), 0);
}

#[tokio::test]
async fn a_body_slower_than_the_rate_is_given_up_although_it_never_stalls() {
    let port = Port::open(paced()).await;
    let mut client = port.connect().await;
    client.send(announce("/", 100_000)).await;
    let start = Instant::now();
    // 1 byte each 20 ms is 50 a second, a twentieth of the rate.
    while timeout(20 * MS, client.ended()).await.is_err() {
        client.send("b").await;
        assert!(start.elapsed() < LONG, "it is not given up");
    }
    assert!(start.elapsed() > 250 * MS, "{:?}", start.elapsed());
    assert_eq!(port.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_slow_body_that_keeps_the_rate_is_accepted() {
    let body = BodyLimits { behind: 2000 * MS, ..paced().body };
    let port = Port::open(Setting { body, ..Setting::default() }).await;
    let mut client = port.connect().await;
    client.send(announce("/", 10_000)).await;
    let start = Instant::now();
    // Twice the rate, and more than twice as long as a stall may be.
    for n in 1..=100 {
        client.send([b'b'; 100]).await;
        tokio::time::sleep_until(start + 50 * MS * n).await;
    }
    assert!(start.elapsed() > 4900 * MS);
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    assert_eq!(port.requests(), ["POST / 10000"]);
}

#[tokio::test]
async fn a_body_over_the_shared_budget_is_answered_503_at_once_and_accepted_when_others_are_done() {
    let port = Port::open(Setting { in_flight: Some(1000), ..Setting::default() }).await;
    let mut held = Vec::new();
    for n in 1..=2 {
        let mut client = port.connect().await;
        client.send(post("/hold", 450)).await;
        eventually("the body is with the handler", || port.requests().len() == n).await;
        held.push(client);
    }
    assert_eq!(port.seen.flight.used(), 900);
    let answer = port.ask(announce("/", 101)).await.expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (503, r#"{"status":"unavailable"}"#));
    assert!(answer.head.contains("retry-after: 5") && answer.head.contains("connection: close"), "{}", answer.head);
    let chunks = format!("96\r\n{}\r\n", "b".repeat(150));
    assert_eq!(port.ask(chunked("/", &chunks)).await.map(|a| a.status), Some(503));
    assert_eq!(port.ask(post("/", 100)).await.map(|a| a.status), Some(200));
    port.seen.release.add_permits(2);
    for client in &mut held {
        assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    }
    eventually("all of the budget is free again", || port.seen.flight.used() == 0).await;
    assert_eq!(port.ask(post("/", 1000)).await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn an_announced_length_takes_nothing_of_the_shared_budget() {
    let port = Port::open(Setting { in_flight: Some(1000), ..Setting::default() }).await;
    let mut announcing = port.connect().await;
    announcing.send(announce("/", 900)).await;
    announcing.send("b").await;
    eventually("its first byte is counted", || port.seen.flight.used() == 1).await;
    assert_eq!(port.ask(post("/", 900)).await.map(|a| a.status), Some(200));
    announcing.send([b'b'; 899]).await;
    assert_eq!(announcing.answer().await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn a_body_larger_than_the_shared_budget_is_accepted_while_it_is_alone() {
    let port = Port::open(Setting { in_flight: Some(1000), ..Setting::default() }).await;
    let mut large = port.connect().await;
    large.send(post("/hold", 5000)).await;
    eventually("the body is with the handler", || port.requests().len() == 1).await;
    assert_eq!(port.seen.flight.used(), 5000);
    assert_eq!(port.ask(announce("/", 1)).await.map(|a| a.status), Some(503));
    port.seen.release.add_permits(1);
    assert_eq!(large.answer().await.map(|a| a.status), Some(200));
    eventually("all of the budget is free again", || port.seen.flight.used() == 0).await;
    assert_eq!(port.ask(post("/", 1)).await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn bytes_count_against_the_budget_until_their_last_clone_is_dropped() {
    let flight = Arc::new(BodiesInFlight::new(10));
    let take = |text: &'static str| read(Full::new(Bytes::from(text)), BodyLimits::default(), &flight);
    let first = take("12345678").await.expect("it fits the budget");
    let slice = first.slice(2..4);
    assert_eq!(take("123").await, Err(BodyError::Busy));
    drop(first);
    assert_eq!((take("123").await, &slice[..]), (Err(BodyError::Busy), &b"34"[..]));
    drop(slice);
    assert_eq!(take("123").await.as_deref(), Ok(&b"123"[..]));
    assert_eq!((take("").await.as_deref(), flight.used()), (Ok(&b""[..]), 0));
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_100_or_413() {
    let port = Port::open(small()).await;
    let asking = |n| format!("POST / HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {n}\r\n\r\n");
    let mut client = port.connect().await;
    client.send(asking(5)).await;
    assert_eq!(client.answer().await.map(|a| a.status), Some(100));
    client.send("bytes").await;
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    assert_eq!(port.ask(asking(5000)).await.map(|a| a.status), Some(413));
}

#[tokio::test]
async fn a_client_that_disconnects_anywhere_leaves_nothing_behind() {
    // One connection: each is served only when the one before has left nothing behind.
    let limits = ConnectionLimits { connections: 1, ..ConnectionLimits::default() };
    let port = Port::open(Setting { limits, in_flight: Some(500), ..Setting::default() }).await;
    let whole = post("/", 400);
    let chunks = chunked("/", &format!("c8\r\n{0}\r\nc8\r\n{0}\r\n0\r\n\r\n", "b".repeat(200))).into_bytes();
    for request in [whole, chunks] {
        for cut in (0..20).map(|n| n * request.len() / 20) {
            let mut client = port.connect().await;
            client.send(&request[..cut]).await;
            drop(client);
        }
    }
    assert_eq!(port.ask(post("/", 500)).await.map(|a| a.status), Some(200));
    assert_eq!(port.requests(), ["POST / 500"]);
    assert!(port.close().await < LONG, "a connection was left over");
}

#[tokio::test]
async fn a_client_that_disconnects_while_it_waits_frees_its_part_of_the_budget() {
    let port = Port::open(Setting { in_flight: Some(500), ..Setting::default() }).await;
    let mut client = port.connect().await;
    client.send(post("/hold", 500)).await;
    eventually("the body is with the handler", || port.seen.flight.used() == 500).await;
    drop(client);
    eventually("all of the budget is free again", || port.seen.flight.used() == 0).await;
}

#[tokio::test]
async fn a_wrong_content_length_never_makes_a_body() {
    let port = Port::open(paced()).await;
    // More announced than sent, then silence, then an end.
    assert_eq!(port.ask([announce("/", 10), b"12345".to_vec()].concat()).await.map(|a| a.status), Some(408));
    let mut client = port.connect().await;
    client.send([announce("/", 10), b"12345".to_vec()].concat()).await;
    drop(client);
    // More sent than announced: the rest is not a request.
    let mut client = port.connect().await;
    client.send([announce("/", 5), b"1234567890\r\n\r\n".to_vec()].concat()).await;
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    assert_eq!(client.answer().await.map(|a| a.status), Some(400));
    client.ended().await;
    drop(client);
    let seen = Arc::clone(&port.seen);
    port.close().await;
    assert_eq!(*seen.requests.lock().unwrap(), ["POST / 5"]);
}

#[test]
fn every_body_error_has_its_text_and_status() {
    let check = |error: BodyError, words: &str, status: u16| {
        let reply = no_body(error);
        assert_eq!((error.to_string().as_str(), reply.status), (words, status));
        assert!(reply.headers.contains(&("connection".into(), "close".into())), "{error}");
    };
    check(BodyError::TooLarge, "the body is too large", 413);
    check(BodyError::TooSlow, "the body came too slowly", 408);
    check(BodyError::Displaced, "memory for bodies was short, and this one was the slowest", 408);
    check(BodyError::Busy, "too many bodies at once", 503);
    check(BodyError::Broken, "the body broke off", 400);
}

#[tokio::test]
async fn the_bare_handler_has_the_same_limits() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/any", listener.local_addr().unwrap());
    let (drain, flight) = (CancellationToken::new(), Arc::new(BodiesInFlight::new(1000)));
    let handler = {
        let flight = Arc::clone(&flight);
        move |request| bare(request, Arc::clone(&flight))
    };
    let served = tokio::spawn(hookonce::internals::ingress::serve(
        listener,
        handler,
        ConnectionLimits::default(),
        drain.clone(),
    ));
    let client = reqwest::Client::new();
    let send = async |n| client.post(&url).body(vec![b'b'; n]).send().await.unwrap().status().as_u16();
    assert_eq!(send(0).await, 200);
    assert_eq!(send(2000).await, 200);
    assert_eq!(send((25 << 20) + 1).await, 413);
    drain.cancel();
    timeout(LONG, served).await.expect("the port closes").unwrap();
    assert_eq!(flight.used(), 0);
}

/// Complete within 300 ms, plus a second for each 100,000 bytes; stalls are not limited.
fn whole() -> BodyLimits {
    BodyLimits {
        bytes_per_second: 1,
        behind: LONG,
        whole_time: 300 * MS,
        whole_bytes_per_second: 100_000,
        ..BodyLimits::default()
    }
}

#[tokio::test]
async fn a_slow_body_is_given_up_whatever_length_it_announces() {
    let port = Port::open(Setting { body: whole(), ..Setting::default() }).await;
    for head in [announce("/", 10 << 20), chunked("/", "").into_bytes()] {
        let mut client = port.connect().await;
        client.send(&head).await;
        let start = Instant::now();
        // 5,000 bytes per second: a twentieth of the rate.
        while timeout(20 * MS, client.ended()).await.is_err() {
            client.send(format!("64\r\n{}\r\n", "b".repeat(100))).await;
            assert!(start.elapsed() < LONG, "it is not given up");
        }
        assert!(start.elapsed() > 250 * MS, "{:?}", start.elapsed());
    }
    assert_eq!(port.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn the_time_for_a_complete_body_grows_with_what_has_arrived() {
    let port = Port::open(Setting { body: whole(), ..Setting::default() }).await;
    let mut client = port.connect().await;
    client.send(announce("/", 400_000)).await;
    let start = Instant::now();
    client.send(vec![b'b'; 399_000]).await;
    tokio::time::sleep_until(start + 1000 * MS).await;
    client.send(vec![b'b'; 1000]).await;
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
}

const KIB: usize = 1 << 10;

#[tokio::test]
async fn when_the_budget_is_short_the_slowest_large_body_is_displaced_and_not_the_new_one() {
    let port = Port::open(Setting { in_flight: Some(1000 * KIB), ..Setting::default() }).await;
    let mut slow = port.connect().await;
    slow.send(chunked("/slow", &format!("{:x}\r\n{}\r\n", 600 * KIB, "b".repeat(600 * KIB)))).await;
    eventually("it has arrived", || port.seen.flight.used() == 600 * KIB).await;
    // Its first bytes came fast, and no longer count.
    tokio::time::sleep(1100 * MS).await;
    assert_eq!(port.ask(post("/", 500 * KIB)).await.map(|a| a.status), Some(200));
    let answer = slow.answer().await.expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (408, r#"{"status":"refused","reason":"too_slow"}"#));
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
    assert_eq!(port.requests(), [format!("POST / {}", 500 * KIB)]);
    eventually("all room is free again", || port.seen.flight.used() == 0).await;
}

#[tokio::test]
async fn large_bodies_leave_a_share_of_the_room_to_small_ones() {
    let port = Port::open(Setting { in_flight: Some(1000 * KIB), ..Setting::default() }).await;
    let mut held = port.connect().await;
    held.send(post("/hold", 740 * KIB)).await;
    eventually("the body is with the handler", || port.requests().len() == 1).await;
    assert_eq!(port.ask(announce("/", 100 * KIB)).await.map(|a| a.status), Some(503));
    let mut small = Vec::new();
    for n in 2..=5 {
        let mut client = port.connect().await;
        client.send(post("/hold", 60 * KIB)).await;
        eventually("a small one is taken", || port.requests().len() == n).await;
        small.push(client);
    }
    port.seen.release.add_permits(5);
    for client in std::iter::once(&mut held).chain(&mut small) {
        assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    }
}
