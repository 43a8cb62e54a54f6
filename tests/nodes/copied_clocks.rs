//! Stores that are copied while clocks are wrong, or were.

use crate::faketime::{Dial, wrong_clock};
use crate::house::{House, Sent};
use crate::postgres;
use crate::wrong::{RECORDS, on};
use std::process::Output;

const AHEAD: &str = "+31d";
/// Events that are over when the store is copied.
const MANY: usize = 5;
const SQLITE: &str = "sqlite:hookonce.db";

fn delivery(n: usize) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#))
}

/// Starts a node of this house on this store, by a clock that is wrong by this.
fn start(house: &mut House, url: &str, clock: &str) {
    let mut serve = on(house, url, &["serve"]);
    wrong_clock(&mut serve, clock);
    house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start on {url}: {said}"));
}

/// Copies by a clock that is wrong by this.
async fn copy(house: &House, from: &str, to: &str, clock: &str) -> Output {
    let mut command = on(house, from, &["migrate", "copy", "--from", "env:SOURCE", "--to", "env:TARGET"]);
    command.env("SOURCE", from).env("TARGET", to);
    wrong_clock(&mut command, clock);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Copies a store and starts a node on the copy, all of it under a clock that is a month ahead.
async fn check_a_copy_under_a_wrong_clock_forgets_nothing(to: &str) {
    let mut house = House::empty(&RECORDS.replacen("per =", "keep = \"30d\"\nper =", 1));
    start(&mut house, SQLITE, "+0");
    for n in 0..MANY {
        assert_eq!(house.deliver("/in", &delivery(n)).await.word(), "accepted");
    }
    assert!(house.stop().success());
    // Of this time there is an event, which proves nothing.
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
