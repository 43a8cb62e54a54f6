//! A node whose config lacks a source keeps that source's events as long as the nodes that have the source promised,
//! reports how many there are, and removes them when an operator says so.

use crate::server_refusals::{RECORDS, node, on};
use crate::support::{Answer, House, PATIENCE, Sent, until};
use crate::{postgres, redis};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A config with the source `s`, and another that keeps its events for this long.
fn with_other(keep: &str) -> String {
    format!(
        r#"{RECORDS}
[source.other]
path = "/other"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
[source.other.once]
keep = "{keep}"
keep_body = "{keep}"
"#
    )
}

fn delivery(n: usize) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#))
}

async fn accept(house: &House, path: &str, many: usize) {
    for n in 0..many {
        let answer = house.deliver(path, &delivery(n)).await;
        assert_eq!(answer.word(), "accepted", "{answer:?}");
    }
}

/// Restarts the node with this config.
fn restart(house: &mut House, url: &str, config: &str) {
    assert!(house.stop().success());
    house.configure(config);
    let serve = on(house, url, &["serve"]);
    house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start: {said}"));
}

async fn get(house: &House, path: &str) -> Value {
    let answer = house.ask("GET", path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn forgotten(house: &House) -> (u64, u64) {
    let told = house.ask("POST", "/api/forget").await.json();
    (told["forgotten"].as_u64().unwrap(), told["bodies"].as_u64().unwrap())
}

/// Checks that events expire by the `keep` in the store: the default would be 30 days.
async fn check_kept_as_promised(url: &str) {
    let mut house = node(&with_other("1s"), url);
    accept(&house, "/other", 3).await;
    accept(&house, "/in", 1).await;
    restart(&mut house, url, RECORDS);
    let begun = Instant::now();
    let mut events = 0;
    // The node's own sweep may be first: what is left shows it.
    while events < 3 && !get(&house, "/api/events?source=other").await["events"].as_array().unwrap().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "it is not removed");
        events += forgotten(&house).await.0;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let left = get(&house, "/api/events").await;
    assert_eq!(left["events"].as_array().map(Vec::len), Some(1), "{left}");
    assert_eq!(house.deliver("/in", &delivery(0)).await.word(), "duplicate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_a_node_lacks_is_forgotten_by_the_keep_in_the_store_on_sqlite() {
    check_kept_as_promised("sqlite:hookonce.db").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_a_node_lacks_is_forgotten_by_the_keep_in_the_store_on_postgres() {
    let server = postgres::Server::start().await;
    check_kept_as_promised(&server.url(&server.database().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_a_node_lacks_is_forgotten_by_the_keep_in_the_store_on_redis() {
    let server = redis::Server::start();
    check_kept_as_promised(&server.url("a")).await;
}

/// An age of forty days, in microseconds.
const AGE: i64 = 40 * 86_400 * 1_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacks_a_source_removes_nothing_of_it_early_or_without_a_stored_keep() {
    let server = postgres::Server::start().await;
    let database = server.database().await;
    let (url, client) = (server.url(&database), server.client(&database).await);
    for stands in [true, false] {
        let mut house = node(&with_other("365d"), &url);
        if stands {
            accept(&house, "/other", 3).await;
        } else {
            // As in a store that the first release wrote.
            assert_eq!(client.execute("delete from retention", &[]).await.unwrap(), 2);
        }
        let age = "update events set keep_from = keep_from - $1, ended_at = ended_at - $1";
        assert_eq!(client.execute(age, &[&AGE]).await.unwrap(), 3);
        restart(&mut house, &url, RECORDS);
        assert_eq!(forgotten(&house).await, (0, 0));
        restart(&mut house, &url, &with_other("365d"));
        for n in 0..3 {
            assert_eq!(house.deliver("/other", &delivery(n)).await.word(), "duplicate", "{n}");
        }
    }
}

async fn end_source(house: &House, name: &str) -> Answer {
    house.ask("DELETE", &format!("/api/sources/{name}/events")).await
}

/// The events of a source that no node has are shown, and an operator removes them.
async fn check_ended_by_a_person(url: &str, shared: bool) {
    let waits = with_other("365d").replace("[source.other.once]", "[[source.other.route]]\nrun = { steps = [\"true\"] }\nretry = { first = \"1h\", attempts = 9 }\n[source.other.once]");
    let fails = waits.replace("\"true\"", "\"false\"");
    let mut house = node(&fails, url);
    assert_eq!(get(&house, "/api/overview").await["orphaned"], json!([]));
    assert_eq!(house.deliver("/other", &delivery(0)).await.status, 202);
    let begun = Instant::now();
    while get(&house, "/api/events?source=other").await["events"][0]["attempt"] != 1 {
        assert!(begun.elapsed() < PATIENCE, "it is not tried");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let had = end_source(&house, "other").await;
    assert_eq!((had.status, had.json()["reason"].as_str()), (409, Some("a running node has this source")));
    restart(&mut house, url, RECORDS);
    if shared {
        let had = end_source(&house, "other").await;
        assert_eq!(had.status, 409, "a node recorded a moment ago that it has it: {had:?}");
        assert_eq!(get(&house, "/api/overview").await["orphaned"], json!([]));
        return;
    }
    let orphaned = get(&house, "/api/overview").await["orphaned"].clone();
    assert_eq!((&orphaned[0]["source"], &orphaned[0]["events"]), (&json!("other"), &json!(1)), "{orphaned}");
    assert_eq!((&orphaned[0]["keep"], &orphaned[0]["keep_body"]), (&json!("365d"), &json!("365d")), "{orphaned}");
    let metrics = house.metrics().await;
    assert!(metrics.lines().any(|line| line == "hookonce_orphaned_events 1"), "{metrics}");
    let ended = end_source(&house, "other").await;
    assert_eq!(ended.json(), json!({ "source": "other", "forgotten": 1, "ended": 1, "running": 0 }));
    until("it to be logged", || house.log().contains("forgot    source=other events=1 ended=1")).await;
    assert_eq!(end_source(&house, "other").await.status, 404);
    assert_eq!(get(&house, "/api/overview").await["orphaned"], json!([]));
    restart(&mut house, url, &waits);
    assert_eq!(house.deliver("/other", &delivery(0)).await.word(), "accepted", "it is new again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_source_that_no_node_has_are_counted_and_removed_by_an_operator() {
    check_ended_by_a_person("sqlite:hookonce.db", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_another_node_may_have_is_not_ended() {
    let server = redis::Server::start();
    check_ended_by_a_person(&server.url("a"), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_sweep_is_reported_and_counted_and_so_is_what_the_next_one_removes() {
    let mut server = redis::Server::start();
    let kept = RECORDS.replacen("per =", "keep = \"1s\"\nkeep_body = \"0s\"\nper =", 1);
    let house = node(&kept, &server.url("a"));
    accept(&house, "/in", 5).await;
    server.kill();
    assert_eq!(house.ask("POST", "/api/forget").await.status, 503);
    let sweep = get(&house, "/api/overview").await["sweep"].clone();
    assert!(sweep["failures"].as_u64().is_some_and(|times| times > 0), "{sweep}");
    assert!(sweep["failed"]["why"].as_str().is_some_and(|why| why.contains("out of reach")), "{sweep}");
    until("it to be logged", || house.log().contains("WARN sweep")).await;
    server.run();
    let begun = Instant::now();
    let sweep = loop {
        // The node's own sweep may be first.
        house.ask("POST", "/api/forget").await;
        let sweep = get(&house, "/api/overview").await["sweep"].clone();
        if sweep["events"] == 5 {
            break sweep;
        }
        assert!(begun.elapsed() < PATIENCE, "they are not removed: {sweep}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(sweep["freed"]["at"].is_string() && sweep["finished_at"].is_string(), "{sweep}");
    let metrics = house.metrics().await;
    assert!(metrics.lines().any(|line| line == "hookonce_forgotten_events_total 5"), "{metrics}");
    assert!(metrics.lines().any(|line| line.starts_with("hookonce_sweep_failures_total ") && !line.ends_with(" 0")));
    until("it to be logged", || house.log().contains("INFO forgot    events=")).await;
}
