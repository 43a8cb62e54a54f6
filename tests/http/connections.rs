//! The limits of a connection.

use crate::wire::{Client, LONG, Port, Setting, announce, eventually, post};
use hookonce::internals::ingress::{ConnectionLimits, raise_file_limit, serve};
use hookonce::internals::observe::{LogFormat, Logger};
use std::fs::File;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const MS: Duration = Duration::from_millis(1);

fn with(limits: ConnectionLimits) -> Setting {
    Setting { limits, ..Setting::default() }
}

#[tokio::test]
async fn a_connection_that_sends_nothing_is_closed_after_the_time_for_headers() {
    let port = Port::open(with(ConnectionLimits { header_time: 200 * MS, ..ConnectionLimits::default() })).await;
    let took = port.connect().await.ended().await;
    assert!((150 * MS..LONG).contains(&took), "{took:?}");
}

#[tokio::test]
async fn headers_that_never_end_are_cut_off_however_steadily_they_come() {
    let port = Port::open(with(ConnectionLimits { header_time: 300 * MS, ..ConnectionLimits::default() })).await;
    let mut client = port.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: test\r\n").await;
    let start = Instant::now();
    while timeout(20 * MS, client.ended()).await.is_err() {
        client.send("x-a: b\r\n").await;
        assert!(start.elapsed() < LONG, "it is not cut off");
    }
    assert!(start.elapsed() > 250 * MS, "{:?}", start.elapsed());
    assert_eq!(port.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn between_two_requests_the_idle_timeout_counts_and_not_the_header_timeout() {
    let limits = ConnectionLimits { header_time: 300 * MS, idle_time: 6000 * MS, ..ConnectionLimits::default() };
    let port = Port::open(with(limits)).await;
    let mut client = port.connect().await;
    for _ in 0..2 {
        client.send(post("/", 3)).await;
        assert_eq!(client.answer().await.map(|a| a.status), Some(200));
        sleep(600 * MS).await;
    }
    let took = client.ended().await;
    assert!((600 * MS..LONG).contains(&took), "{took:?}");
}

#[tokio::test]
async fn the_second_request_of_a_connection_has_no_more_time_for_its_headers_than_the_first() {
    let limits = ConnectionLimits { header_time: 200 * MS, idle_time: LONG, ..ConnectionLimits::default() };
    let port = Port::open(with(limits)).await;
    let mut client = port.connect().await;
    client.send(post("/", 3)).await;
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    client.send("POST / HT").await;
    let took = client.ended().await;
    assert!((150 * MS..LONG).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_handler_may_take_longer_than_any_timeout_of_its_connection() {
    let limits = ConnectionLimits { header_time: 300 * MS, idle_time: 300 * MS, ..ConnectionLimits::default() };
    let port = Port::open(with(limits)).await;
    let mut client = port.connect().await;
    client.send(post("/hold", 3)).await;
    sleep(700 * MS).await;
    port.seen.release.add_permits(1);
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn too_many_or_too_long_headers_are_answered_431_and_the_client_sees_it() {
    let limits = ConnectionLimits { headers: 20, header_bytes: 16 << 10, ..ConnectionLimits::default() };
    let port = Port::open(with(limits)).await;
    let request = |headers: &str| format!("POST / HTTP/1.1\r\nhost: test\r\n{headers}content-length: 0\r\n\r\n");
    let check = async |headers: &str, wanted: u16| {
        let answer = port.ask(request(headers)).await;
        assert_eq!(answer.map(|a| a.status), Some(wanted), "{} bytes of headers", headers.len());
    };
    check(&"x-a: b\r\n".repeat(18), 200).await;
    check(&"x-a: b\r\n".repeat(19), 431).await;
    check(&"x-a: b\r\n".repeat(1000), 431).await;
    check(&format!("x-a: {}\r\n", "b".repeat(15 << 10)), 200).await;
    check(&format!("x-a: {}\r\n", "b".repeat(16 << 10)), 431).await;
    assert_eq!(port.requests().len(), 2);
    // Far more than was read when the response was sent: the response must not be lost in a reset.
    let mut client = port.connect().await;
    let long = request(&format!("x-a: {}\r\n", "b".repeat(8 << 20)));
    client.stream.write_all(long.as_bytes()).await.expect("no reset while it sends");
    assert_eq!(client.answer().await.map(|a| a.status), Some(431));
}

#[tokio::test]
async fn the_default_limits_allow_what_senders_send() {
    let port = Port::open(Setting::default()).await;
    let headers = format!("x-a: {}\r\n", "v".repeat(400)).repeat(126);
    let answer = port.ask(format!("POST / HTTP/1.1\r\nhost: t\r\n{headers}content-length: 0\r\n\r\n")).await;
    assert_eq!(answer.map(|a| a.status), Some(200));
    let answer = port.ask(format!("POST /{} HTTP/1.1\r\nhost: t\r\n\r\n", "p".repeat(70 << 10))).await;
    assert_eq!(answer.map(|a| a.status), Some(431));
}

#[tokio::test]
async fn a_connection_above_the_limit_waits_and_is_served_when_another_closes() {
    let port = Port::open(with(ConnectionLimits { connections: 3, ..ConnectionLimits::default() })).await;
    let mut held = Vec::new();
    for n in 1..=3 {
        let mut client = port.connect().await;
        client.send(post("/hold", 1)).await;
        eventually("the request is with the handler", || port.requests().len() == n).await;
        held.push(client);
    }
    let mut fourth = port.connect().await;
    fourth.send(post("/", 1)).await;
    assert!(
        timeout(200 * MS, fourth.answer()).await.is_err(),
        "a fourth connection was served at the same time as three others"
    );
    drop(held.pop());
    assert_eq!(fourth.answer().await.map(|a| a.status), Some(200));
    drop(fourth);
    for _ in 0..20 {
        assert_eq!(port.ask(post("/", 1)).await.map(|a| a.status), Some(200));
    }
}

/// A connection that has got its response and is kept open.
async fn kept(port: &Port) -> Client {
    let mut client = port.connect().await;
    client.send(post("/", 1)).await;
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    client
}

#[tokio::test]
async fn at_the_limit_the_longest_idle_connection_is_closed_for_a_new_one() {
    let port = Port::open(with(ConnectionLimits { connections: 3, ..ConnectionLimits::default() })).await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        idle.push(kept(&port).await);
    }
    // The first is used again: now the second is idle longest.
    idle[0].send(post("/", 1)).await;
    assert_eq!(idle[0].answer().await.map(|a| a.status), Some(200));
    let mut newcomer = kept(&port).await;
    idle[1].ended().await;
    for still in [0, 2] {
        idle[still].send(post("/", 1)).await;
        assert_eq!(idle[still].answer().await.map(|a| a.status), Some(200), "{still}");
    }
    newcomer.send(post("/", 1)).await;
    assert_eq!(newcomer.answer().await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn a_connection_with_a_request_in_progress_is_never_closed_for_another() {
    let port = Port::open(with(ConnectionLimits { connections: 3, ..ConnectionLimits::default() })).await;
    let mut idle = kept(&port).await;
    let (mut waiting, mut sending) = (port.connect().await, port.connect().await);
    waiting.send(post("/hold", 1)).await;
    sending.send(announce("/", 2)).await;
    sending.send("b").await;
    eventually("both requests have begun", || port.requests().len() == 2 && port.seen.flight.used() == 2).await;
    for _ in 0..20 {
        assert_eq!(port.ask(post("/", 1)).await.map(|a| a.status), Some(200));
    }
    idle.ended().await;
    sending.send("b").await;
    port.seen.release.add_permits(1);
    assert_eq!(waiting.answer().await.map(|a| a.status), Some(200));
    assert_eq!(sending.answer().await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn where_none_is_idle_the_oldest_that_has_not_sent_its_request_is_closed() {
    let port =
        Port::open(with(ConnectionLimits { connections: 3, header_time: LONG, ..ConnectionLimits::default() })).await;
    let mut silent = port.connect().await;
    tokio::task::yield_now().await;
    let mut heads = Vec::new();
    for _ in 0..2 {
        let mut client = port.connect().await;
        client.send("POST / HTTP/1.1\r\nx-a: ").await;
        sleep(20 * MS).await;
        heads.push(client);
    }
    assert_eq!(port.ask(post("/", 1)).await.map(|a| a.status), Some(200));
    silent.ended().await;
    let mut last = port.connect().await;
    last.send("P").await;
    assert_eq!(port.ask(post("/", 1)).await.map(|a| a.status), Some(200));
    heads[0].ended().await;
    heads[1].send("b\r\n\r\n").await;
    assert_eq!(heads[1].answer().await.map(|a| a.status), Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_unfinished_heads_are_cut_off_when_they_take_too_much_memory_together() {
    let port = Port::open(with(ConnectionLimits { header_time: LONG, ..ConnectionLimits::default() })).await;
    let half = format!("POST / HTTP/1.1\r\nhost: t\r\nx-a: {}", "b".repeat(60 << 10));
    let mut heads = Vec::new();
    // 60 KiB each: 273 of them are 16 MiB.
    for _ in 0..330 {
        let mut client = port.connect().await;
        client.send(&half).await;
        heads.push(client);
    }
    let mut last: Vec<_> = heads.iter_mut().rev().take(100).collect();
    let start = Instant::now();
    let mut cut = 0;
    while cut < 50 && start.elapsed() < LONG {
        let mut open = Vec::new();
        for client in last {
            if timeout(20 * MS, client.ended()).await.is_err() {
                open.push(client);
            }
        }
        last = open;
        cut = 100 - last.len();
    }
    assert!((50..=62).contains(&cut), "{cut}");
    assert_eq!(port.ask(post("/", 100)).await.map(|a| a.status), Some(200), "a short head is accepted");
    // Closed connections release their memory.
    drop(heads);
    let answer = async || {
        let head = format!("{half}\r\ncontent-length: 0\r\n\r\n");
        port.ask(head).await.map(|a| a.status)
    };
    let start = Instant::now();
    while answer().await != Some(200) {
        assert!(start.elapsed() < LONG, "long heads are not accepted again");
    }
}

#[tokio::test]
async fn a_waiting_connection_replaces_the_first_that_becomes_idle() {
    let port = Port::open(with(ConnectionLimits { connections: 1, ..ConnectionLimits::default() })).await;
    let mut busy = port.connect().await;
    busy.send(post("/hold", 1)).await;
    eventually("the request is with the handler", || port.requests().len() == 1).await;
    let mut next = port.connect().await;
    next.send(post("/", 1)).await;
    assert!(timeout(100 * MS, next.answer()).await.is_err(), "served at the same time as the only one allowed");
    port.seen.release.add_permits(1);
    assert_eq!(busy.answer().await.map(|a| a.status), Some(200));
    assert_eq!(next.answer().await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn a_connection_that_released_its_buffers_accepts_requests_again() {
    let port = Port::open(Setting::default()).await;
    let mut client = kept(&port).await;
    for _ in 0..2 {
        sleep(1200 * MS).await; // longer than a quiet connection keeps its buffers
        client.send("POST /next HTTP/1.1\r\nhost: t\r\nconte").await;
        sleep(20 * MS).await;
        client.send("nt-length: 0\r\n\r\n").await;
        assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    }
    // Sent after a request, before its response.
    client.send([post("/hold", 1), b"POST /late HTTP/1.1\r\nhost: t\r\n".to_vec()].concat()).await;
    eventually("it is with the handler", || port.requests().len() == 4).await;
    port.seen.release.add_permits(1);
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    sleep(1200 * MS).await;
    client.send("content-length: 0\r\n\r\n").await;
    assert_eq!(client.answer().await.map(|a| a.body).as_deref(), Some("\"POST /late\""));
}

#[tokio::test]
async fn a_client_that_reads_nothing_of_its_response_is_disconnected() {
    let port =
        Port::open(with(ConnectionLimits { connections: 1, idle_time: 300 * MS, ..ConnectionLimits::default() })).await;
    let mut deaf = port.connect().await;
    deaf.send(post("/big", 1)).await;
    eventually("the request is with the handler", || port.requests().len() == 1).await;
    assert_eq!(port.ask(post("/", 1)).await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn a_response_that_is_read_too_slowly_is_given_up() {
    let limits =
        ConnectionLimits { idle_time: 500 * MS, answer_bytes_per_second: 50 << 20, ..ConnectionLimits::default() };
    let port = Port::open(with(limits)).await;
    let mut client = port.connect().await;
    client.send(post("/big", 1)).await;
    // A tenth of the rate, without ever stopping.
    let (mut all, mut scrap) = (0, vec![0; 256 << 10]);
    while let Ok(read @ 1..) = timeout(LONG, client.stream.read(&mut scrap)).await.expect("bytes or an end") {
        all += read;
        sleep(50 * MS).await;
    }
    assert!(all < crate::wire::BIG, "it got all of it");
}

#[tokio::test]
async fn where_nothing_else_is_idle_a_new_connection_replaces_one_whose_response_is_not_read() {
    let port = Port::open(with(ConnectionLimits { connections: 2, ..ConnectionLimits::default() })).await;
    let (mut busy, mut deaf) = (port.connect().await, port.connect().await);
    busy.send(post("/hold", 1)).await;
    deaf.send(post("/big", 1)).await;
    eventually("both requests are with the handler", || port.requests().len() == 2).await;
    let answer = timeout(LONG, port.ask(post("/", 1))).await.expect("a response before the idle time");
    assert_eq!(answer.map(|a| a.status), Some(200));
    port.seen.release.add_permits(1);
    assert_eq!(busy.answer().await.map(|a| a.status), Some(200));
}

#[tokio::test]
async fn a_slow_reader_gets_all_of_a_large_response() {
    let port = Port::open(with(ConnectionLimits {
        header_time: 300 * MS,
        idle_time: 3000 * MS,
        ..ConnectionLimits::default()
    }))
    .await;
    let mut client = port.connect().await;
    client.send(post("/big", 1)).await;
    // A byte of the next request during the response must not start the header timeout.
    client.send("P").await;
    let mut left = crate::wire::BIG;
    let mut scrap = vec![0; 2 << 20];
    while left > 0 {
        let read = timeout(LONG, client.stream.read(&mut scrap)).await;
        let read = read.expect("bytes or an end").expect("no reset");
        assert!(read > 0, "cut with {left} bytes to come");
        left = left.saturating_sub(read);
        sleep(50 * MS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_slow_sockets_do_not_block_a_legitimate_request() {
    let slow_sockets = if std::env::var_os("HOOKONCE_FULL").is_some() { 9000 } else { 2000 };
    let allowed = raise_file_limit(2 * slow_sockets).expect("a limit of open files");
    assert!(allowed > 2 * slow_sockets as u64 + 500, "this system allows a process only {allowed} open files");
    let port = Port::open(Setting::default()).await;
    let mut slow = Vec::new();
    for n in 0..slow_sockets {
        let mut client = port.connect().await;
        match n % 3 {
            0 => client.send("POST / HTTP/1.1\r\nx-a: ").await,
            1 => client.send(announce("/", 1 << 20)).await,
            _ => {}
        }
        slow.push(client);
    }
    let mut kept = port.connect().await;
    for _ in 0..500 {
        kept.send(post("/kept", 100)).await;
        assert_eq!(kept.answer().await.map(|a| a.status), Some(200));
        assert_eq!(port.ask(post("/new", 100)).await.map(|a| a.status), Some(200));
    }
    assert_eq!(port.requests().len(), 1000);
    drop(slow);
    port.close().await;
}

#[tokio::test]
async fn an_axum_router_is_a_handler() {
    use axum::{Router, body::Body, routing::get};
    use tower::ServiceExt as _;
    let router: Router = Router::new().route("/healthz", get(async || "fine"));
    let handler = move |request: http::Request<hyper::body::Incoming>| {
        let answer = router.clone().oneshot(request.map(Body::new));
        async move { answer.await.unwrap_or_else(|never| match never {}) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let drain = CancellationToken::new();
    let served = tokio::spawn(serve(listener, handler, ConnectionLimits::default(), drain.clone()));
    let answer = reqwest::get(format!("http://{addr}/healthz")).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (200, "fine"));
    drain.cancel();
    timeout(LONG, served).await.expect("the port closes").unwrap();
}

/// The limit of open files is per process, so this test runs in one of its own.
#[test]
fn without_file_descriptors_a_port_keeps_running_and_recovers() {
    let run = Command::new("sh")
        .args(["-c", r#"ulimit -n 64; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "connections::out_of_files", "--ignored", "--nocapture"])
        .output()
        .expect("sh is installed");
    let said = String::from_utf8_lossy(&run.stdout);
    let logged = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && said.contains("1 passed"), "{said}\n{logged}");
    // It fails every 50 ms for 300 ms, and logs that once; twice if all this took longer than a second.
    let complaints = logged.matches("cannot accept a connection").count();
    assert!((1..=2).contains(&complaints), "{logged}");
}

#[tokio::test]
#[ignore = "runs in a process of its own, started by the test above"]
async fn out_of_files() {
    Logger::start(LogFormat::Text, Box::new(std::io::stderr()));
    let port = Port::open(Setting::default()).await;
    let mut idle = kept(&port).await;
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
        assert!(files.len() < 100, "the limit of open files is not in force");
    }
    // One descriptor for the client, none for the server's end: that of the idle connection is used.
    files.pop();
    assert_eq!(port.ask(post("/", 1)).await.map(|a| a.status), Some(200));
    idle.ended().await;
    drop(idle);
    // The server's end of the last connection is closed a moment after the client's.
    let ends = Instant::now() + 500 * MS;
    while Instant::now() < ends {
        files.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        sleep(10 * MS).await;
    }
    files.pop();
    let mut client = port.connect().await;
    client.send(post("/", 1)).await;
    assert!(timeout(300 * MS, client.answer()).await.is_err(), "served without a descriptor");
    files.clear();
    assert_eq!(client.answer().await.map(|a| a.status), Some(200));
    assert!(TcpStream::connect(port.addr).await.is_ok());
    port.close().await;
}
