//! A shorter `keep` removes what was kept under a longer one, on every store.

use crate::server_refusals::{RECORDS, node, on};
use crate::support::{House, Sent};
use crate::{postgres, redis};
use std::time::{Duration, Instant};

const MANY: usize = 60;
/// A node sweeps when it starts: this long after the first delivery it has certainly done so.
const STARTS_WITHIN: Duration = Duration::from_secs(6);

fn delivery(n: usize) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#))
}

/// How many events the next call removes, by its response.
async fn forgotten(house: &House) -> u64 {
    let answer = house.ask("POST", "/api/forget").await;
    answer.json()["forgotten"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
}

/// More than one batch of the sweep has expired when the node starts: a request to forget beside the sweep leaves
/// nothing.
async fn check_beside_the_sweep(url: &str) {
    const MANY: usize = 1_300;
    let kept = |keep: &str| RECORDS.replacen("per =", &format!("keep = \"{keep}\"\nkeep_body = \"0s\"\nper ="), 1);
    let mut house = node(&kept("30d"), url);
    let all: Vec<_> = (0..MANY).map(delivery).collect();
    for some in all.chunks(100) {
        for answer in futures_util::future::join_all(some.iter().map(|one| house.deliver("/in", one))).await {
            assert_eq!(answer.word(), "accepted", "{answer:?}");
        }
    }
    assert!(house.stop().success());
    house.configure(&kept("1s"));
    tokio::time::sleep(Duration::from_millis(1_100)).await; // they have expired
    let serve = on(&house, url, &["serve"]);
    house.try_start_by(serve).unwrap();
    let first = forgotten(&house).await;
    let left = house.ask("GET", "/api/events?limit=1").await.json();
    println!("{}: {first} of {MANY} forgotten beside the sweep", url.split(':').next().unwrap());
    assert_eq!(left["events"].as_array().map(Vec::len), Some(0), "{first} forgotten, and left: {left}");
    assert_eq!(forgotten(&house).await, 0);
    assert!(first <= MANY as u64);
}

async fn check(url: &str) {
    let kept = |keep: u64| RECORDS.replacen("per =", &format!("keep = \"{keep}s\"\nkeep_body = \"0s\"\nper ="), 1);
    let mut house = node(&kept(30 * 24 * 3600), url);
    let all: Vec<_> = (0..MANY).map(delivery).collect();
    let begun = Instant::now();
    for answer in futures_util::future::join_all(all.iter().map(|one| house.deliver("/in", one))).await {
        assert_eq!(answer.word(), "accepted", "{answer:?}");
    }
    let ended = Instant::now();
    assert_eq!(forgotten(&house).await, 0);
    assert_eq!(house.deliver("/in", &all[0]).await.word(), "duplicate");
    assert!(house.stop().success());

    let shorter = (begun.elapsed() + STARTS_WITHIN).as_secs();
    house.configure(&kept(shorter));
    let serve = on(&house, url, &["serve"]);
    house.try_start_by(serve).unwrap();
    assert_eq!(forgotten(&house).await, 0, "nothing has expired yet");
    tokio::time::sleep_until((ended + Duration::from_millis(shorter * 1_000 + 100)).into()).await;
    let (first, then) = (forgotten(&house).await, forgotten(&house).await);
    let kind = url.split(':').next().unwrap();
    println!("{kind}: keep shortened from 30d to {shorter}s: {first} of {MANY} forgotten, then {then}");
    assert_eq!((first, then), (MANY as u64, 0));
    assert_eq!(house.deliver("/in", &all[0]).await.word(), "accepted", "it is new again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shortening_keep_takes_effect_on_sqlite() {
    check("sqlite:hookonce.db").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shortening_keep_takes_effect_on_postgres() {
    let server = postgres::Server::start().await;
    check(&server.url(&server.database().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shortening_keep_takes_effect_on_redis() {
    let server = redis::Server::start();
    check(&server.url("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_beside_the_sweep_leaves_nothing_on_sqlite() {
    check_beside_the_sweep("sqlite:hookonce.db").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_beside_the_sweep_leaves_nothing_on_postgres() {
    let server = postgres::Server::start().await;
    check_beside_the_sweep(&server.url(&server.database().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_beside_the_sweep_leaves_nothing_on_redis() {
    let server = redis::Server::start();
    check_beside_the_sweep(&server.url("a")).await;
}
