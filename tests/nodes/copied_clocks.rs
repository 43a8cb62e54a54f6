//! Stores that are copied while clocks are or were wrong, and while a lease has not expired.

use crate::cluster::Receiver;
use crate::faketime::{Dial, wrong_clock};
use crate::server_refusals::{RECORDS, on};
use crate::support::{House, PATIENCE, Sent, until};
use crate::{postgres, redis};
use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};

const AHEAD: &str = "+31d";
/// Number of events that have ended when the store is copied.
const MANY: usize = 5;
const SQLITE: &str = "sqlite:hookonce.db";

fn delivery(n: usize) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#))
}

/// Starts a node on this store, with a clock that is off by this.
fn start(house: &mut House, url: &str, clock: &str) {
    let mut serve = on(house, url, &["serve"]);
    wrong_clock(&mut serve, clock);
    house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start on {url}: {said}"));
}

/// Copies, with a clock that is off by this.
async fn copy(house: &House, from: &str, to: &str, clock: &str) -> Output {
    let mut command = on(house, from, &["migrate", "copy", "--from", "env:SOURCE", "--to", "env:TARGET"]);
    command.env("SOURCE", from).env("TARGET", to);
    wrong_clock(&mut command, clock);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Copies a store and starts a node on the copy, all with a clock that is a month ahead.
async fn check_a_copy_under_a_wrong_clock_forgets_nothing(to: &str) {
    let mut house = House::empty(&RECORDS.replacen("per =", "keep = \"30d\"\nper =", 1));
    start(&mut house, SQLITE, "+0");
    for n in 0..MANY {
        assert_eq!(house.deliver("/in", &delivery(n)).await.word(), "accepted");
    }
    assert!(house.stop().success());
    // An event of this wrong time proves nothing about the time.
    start(&mut house, SQLITE, AHEAD);
    assert_eq!(house.deliver("/in", &delivery(MANY)).await.word(), "accepted");
    assert!(house.stop().success());

    let copied = copy(&house, SQLITE, to, AHEAD).await;
    assert!(copied.status.success(), "{copied:?}");
    for _ in 0..2 {
        start(&mut house, to, AHEAD);
        for n in 0..=MANY {
            let answer = house.deliver("/in", &delivery(n)).await;
            assert_eq!(answer.word(), "duplicate", "k{n} on {to}: {answer:?}\n{}", house.log());
        }
        assert!(house.stop().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_copied_under_a_wrong_clock_into_a_file_forgets_nothing() {
    check_a_copy_under_a_wrong_clock_forgets_nothing("sqlite:copy.db").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_copied_under_a_wrong_clock_into_postgres_forgets_nothing() {
    let dial = Dial::new();
    dial.set(AHEAD);
    let server = postgres::Server::start_by(&dial.wrap(&postgres::program("postgres")), &[]).await;
    check_a_copy_under_a_wrong_clock_forgets_nothing(&server.url(&server.database().await)).await;
}

/// A route that fails until the file `go` exists.
fn retried() -> String {
    format!(
        "{RECORDS}[[source.s.route]]\nname = \"r\"\nretry = {{ attempts = 1000, first = \"1s\", longest = \"1s\" }}\n\
         run = {{ steps = ['test -e go && echo $HOOKONCE_FIELD_KEY >> runs'] }}\n"
    )
}

fn waits(house: &House, url: &str) -> bool {
    let listed = on(house, url, &["list", "--state", "waiting", "--json"]).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    listed["events"].as_array().is_some_and(|events| !events.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_clock_was_ahead_is_not_copied_to_a_server_while_something_waits() {
    let server = redis::Server::start();
    let mut house = House::empty(&retried());
    start(&mut house, SQLITE, AHEAD);
    assert_eq!(house.deliver("/in", &delivery(0)).await.word(), "accepted");
    until("it to wait for its next attempt", || waits(&house, SQLITE)).await;
    assert!(house.stop().success());

    let refused = copy(&house, SQLITE, &server.url("a"), "+0").await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for words in ["the clock of the target is 3", "1 events of the source wait or run", "hookonce cancel"] {
        assert!(said.contains(words), "no {words} in {said}");
    }

    // A file continues from its own time, also with the right clock: what waits is retried within its backoff.
    let copied = copy(&house, SQLITE, "sqlite:copy.db", "+0").await;
    assert!(copied.status.success(), "{copied:?}");
    start(&mut house, "sqlite:copy.db", "+0");
    std::fs::write(house.path("go"), "").unwrap();
    until("it to run", || house.lines("runs") == ["k0"]).await;
    until("nothing to wait", || !waits(&house, "sqlite:copy.db")).await;
    assert!(house.stop().success());

    // Then nothing waits, and the store can be copied.
    let copied = copy(&house, "sqlite:copy.db", &server.url("a"), "+0").await;
    assert!(copied.status.success(), "{copied:?}");
    start(&mut house, &server.url("a"), "+0");
    assert_eq!(house.deliver("/in", &delivery(0)).await.word(), "duplicate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_not_copied_while_a_receiver_may_still_work_for_a_node_that_was_killed() {
    let receiver = Receiver::start(Duration::from_mins(1)).await;
    let route =
        format!("[[source.s.route]]\nname = \"r\"\nlease = \"8s\"\nforward = {{ url = \"{}\" }}\n", receiver.url);
    let mut house = House::empty(&format!("{RECORDS}{route}"));
    start(&mut house, SQLITE, "+0");
    assert_eq!(house.deliver("/in", &delivery(0)).await.word(), "accepted");
    until("it to run", || house.log().contains("running")).await;
    house.kill();
    let begun = Instant::now();
    let mut refused = 0;
    loop {
        let copied = copy(&house, SQLITE, "sqlite:copy.db", "+0").await;
        if copied.status.success() {
            break;
        }
        let said = String::from_utf8_lossy(&copied.stderr);
        assert_eq!(copied.status.code(), Some(2), "{said}");
        assert!(said.contains("the source is in use: an event runs under a lease until"), "{said}");
        assert!(begun.elapsed() < PATIENCE, "{said}");
        refused += 1;
    }
    assert!(refused > 0, "it was copied {:?} after the crash", begun.elapsed());
}
