//! Draining a port.

use crate::wire::{LONG, Port, Setting, announce, eventually, post};
use hookonce::internals::ingress::ConnectionLimits;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_drain_finishes_requests_in_progress_and_accepts_nothing_new() {
    let port = Port::open(Setting::default()).await;
    let mut idle = port.connect().await;
    idle.send(post("/", 1)).await;
    assert_eq!(idle.answer().await.map(|a| a.status), Some(200));
    let mut waiting = port.connect().await;
    waiting.send(post("/hold", 1)).await;
    let mut sending = port.connect().await;
    sending.send(announce("/", 10)).await;
    sending.send("b").await;
    eventually("the requests have begun", || port.requests().len() == 2 && port.seen.flight.used() == 2).await;

    port.drain.cancel();
    idle.ended().await;
    assert!(TcpStream::connect(port.addr).await.is_err(), "the port is still open");
    sending.send("123456789").await;
    port.seen.release.add_permits(1);
    for client in [&mut waiting, &mut sending] {
        let answer = client.answer().await.expect("an answer");
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
        client.ended().await;
    }
    assert!(port.close().await < LONG);
}

#[tokio::test]
async fn a_drain_ends_although_a_request_does_not() {
    let limits = ConnectionLimits { drain_time: 300 * MS, ..ConnectionLimits::default() };
    let port = Port::open(Setting { limits, ..Setting::default() }).await;
    let seen = Arc::clone(&port.seen);
    let mut stuck = port.connect().await;
    stuck.send(post("/hold", 7)).await;
    let mut head = port.connect().await;
    head.send("POST / HTTP/1.1\r\n").await;
    eventually("the request is with the handler", || port.requests().len() == 1).await;
    let took = port.close().await;
    assert!((250 * MS..LONG).contains(&took), "{took:?}");
    assert!(stuck.answer().await.is_none() && head.answer().await.is_none());
    assert_eq!(seen.flight.used(), 0);
}

#[tokio::test]
async fn a_drain_without_requests_is_at_once() {
    let port = Port::open(Setting::default()).await;
    let silent = port.connect().await;
    assert_eq!(port.ask(post("/", 1)).await.map(|a| a.status), Some(200));
    let took = port.close().await;
    assert!(took < ConnectionLimits::default().drain_time / 2, "{took:?}");
    drop(silent);
}
