//! Failures of the server while nodes run, or wait to start.

use crate::cluster::{Receiver, ends_when_quiet};
use crate::postgres::Server;
use crate::server_refusals::{RECORDS, insist, node, on};
use crate::support::{House, PATIENCE, Sent, until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

fn delivery(n: usize) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#))
}

/// A database that belongs to the role `app`: its URL and its name.
async fn of_app(server: &Server) -> (String, String) {
    let (database, db) = (server.database().await, server.client("postgres").await);
    db.batch_execute(&format!("create role app login; alter database {database} owner to app")).await.unwrap();
    server.client(&database).await.batch_execute("grant all on schema public to app").await.unwrap();
    (server.url_of("app", &database), database)
}

#[test]
fn a_node_that_waits_for_its_store_can_be_stopped() {
    for url in ["postgres://u@127.0.0.1:1/d", "redis://127.0.0.1:1"] {
        let house = House::empty(RECORDS);
        let mut serve = on(&house, url, &["serve"]);
        let mut child = serve.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("again_in=")), "it waits");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let told = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if told.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("{url}: it does not stop");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{url}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_rights_are_waited_for_and_nothing_acts_twice() {
    let server = Server::start().await;
    let (url, database) = of_app(&server).await;
    let receiver = Receiver::start(Duration::from_secs(1)).await;
    let route = format!("[[source.s.route]]\nlease = \"60s\"\nforward = {{ url = \"{}\" }}\n", receiver.url);
    let house = node(&format!("{RECORDS}{route}"), &url);
    assert_eq!(house.deliver("/in", &delivery(0)).await.word(), "accepted");
    until("it to run", || house.log().contains("running")).await;

    let db = server.client(&database).await;
    db.batch_execute("revoke all on events, keys from app").await.unwrap();
    until("the receiver to have acted", || receiver.counted() == (1, 1)).await;
    assert_eq!(house.deliver("/in", &delivery(1)).await.status, 503);
    until("the log to say why", || house.log().contains("permission denied")).await;
    db.batch_execute("grant all on events, keys to app").await.unwrap();
    let back = Instant::now();
    assert_eq!(insist(&house, &delivery(1)).await, "accepted");
    assert_eq!(ends_when_quiet(&url).await, BTreeMap::from([("acted".to_owned(), 2)]));
    assert_eq!(receiver.counted(), (2, 2), "no result was lost");
    println!(
        "rights revoked for a while: all done {:?} after they were granted again, two events in two calls",
        back.elapsed()
    );
    assert!(back.elapsed() < Duration::from_secs(30), "{:?}", back.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_store_does_not_fill_the_log() {
    const MANY: usize = 500;
    let mut server = Server::start().await;
    let url = server.url(&server.database().await);
    let house = node(RECORDS, &url);
    server.crash();
    let all: Vec<_> = (0..MANY).map(delivery).collect();
    for answer in futures_util::future::join_all(all.iter().map(|one| house.deliver("/in", one))).await {
        assert_eq!(answer.status, 503, "{answer:?}");
    }
    let lines = || house.log().lines().filter(|line| line.contains(" store ")).count();
    until("the log to say it", || lines() > 0).await;
    println!("{MANY} deliveries answered 503, {} log lines", lines());
    assert!(lines() < 20, "{}", house.log());
    assert!(server.start_again().await);
    assert_eq!(insist(&house, &all[0]).await, "accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_two_connections_rejects_no_delivery() {
    const MANY: usize = 400;
    let server = Server::start().await;
    let (url, _) = of_app(&server).await;
    let db = server.client("postgres").await;
    db.batch_execute("alter role app connection limit 2").await.unwrap();
    let house = node(RECORDS, &url);
    let all: Vec<_> = (0..MANY).map(delivery).collect();
    for answer in futures_util::future::join_all(all.iter().map(|one| house.deliver("/in", one))).await {
        assert_eq!(answer.word(), "accepted", "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_events_are_found_by_polling_where_notify_is_not_allowed() {
    const MANY: usize = 50;
    let server = Server::start().await;
    let (url, database) = of_app(&server).await;
    let db = server.client(&database).await;
    db.batch_execute("revoke execute on function pg_notify from public").await.unwrap();
    let receiver = Receiver::start(Duration::ZERO).await;
    let route = format!("[[source.s.route]]\nforward = {{ url = \"{}\" }}\n", receiver.url);
    let [ingest, _work] = ["ingest", "work"].map(|half| {
        let mut house = House::empty(&format!("{RECORDS}{route}"));
        let serve = on(&house, &url, &["serve", "--only", half]);
        house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start: {said}"));
        house
    });
    for n in 0..MANY {
        assert_eq!(ingest.deliver("/in", &delivery(n)).await.word(), "accepted");
    }
    let sent = Instant::now();
    assert_eq!(ends_when_quiet(&url).await, BTreeMap::from([("acted".to_owned(), MANY)]));
    println!("NOTIFY not allowed: {MANY} events done {:?} after the last was accepted", sent.elapsed());
    assert_eq!(receiver.counted(), (MANY, MANY as u64));
}
