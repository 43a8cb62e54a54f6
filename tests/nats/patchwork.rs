//! Patchwork's setup, from a signed delivery at the edge to a worker's effect, and every edge case they name.

use super::server::{Nats, until_async};
use super::support::{House, until};
use super::{IN, LONG, edge, message, push, worker};
use std::time::Duration;

const LINES: &str = r#"run = { steps = ["echo \"$HOOKONCE_FIELD_N\" >> lines"] }"#;

/// A server, an edge and a worker.
async fn row(once: &str, route: &str) -> (Nats, House, House) {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let edge = House::new(&edge(&nats.url(), "", ""));
    let config = worker(&nats.url(), "", route);
    let worker = House::new(&config.replace("[[source.hooks.route]]", &format!("{once}\n[[source.hooks.route]]")));
    (nats, edge, worker)
}

async fn settled(nats: &Nats) {
    until_async("all to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_delivery_is_acted_on_once() {
    let (nats, edge, worker) = row("", LINES).await;
    let sent = push("d-1", 1);
    edge.deliver(IN, &sent).await;
    assert_eq!(edge.deliver(IN, &sent).await.word(), "duplicate", "at the edge");
    until("the line", || worker.lines("lines") == ["1"]).await;
    // And once more, bypassing the edge.
    nats.put("github.push", &message(&sent), &sent.body).await;
    until("the repeat", || worker.log().contains("duplicate")).await;
    settled(&nats).await;
    worker.quiet().await;
    assert_eq!(worker.lines("lines"), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_duplicates_are_acted_on_once() {
    let (nats, _edge, worker) = row("", LINES).await;
    let copies = 40;
    let sent = push("d-1", 1);
    let (headers, client) = (message(&sent), nats.jetstream().await);
    let puts = (0..copies).map(|_| {
        let mut map = async_nats::HeaderMap::new();
        for (name, value) in &headers {
            map.append(name.as_str(), value.as_str());
        }
        let (client, body) = (client.clone(), sent.body.clone());
        async move { client.publish_with_headers("github.push", map, body.into()).await.unwrap().await.unwrap() }
    });
    futures_util::future::join_all(puts).await;
    settled(&nats).await;
    until("the line", || !worker.lines("lines").is_empty()).await;
    worker.quiet().await;
    println!("concurrent duplicates: N = {copies}, effects {}", worker.lines("lines").len());
    assert_eq!(worker.lines("lines"), ["1"]);
    assert_eq!(worker.sql("select count(*) from events"), ["1"]);
    until("the repeats to be noted", || worker.sql("select count from duplicates") == [(copies - 1).to_string()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_record_is_acted_on_again_on_purpose() {
    let (nats, _edge, worker) = row("once = { keep = \"300ms\", keep_body = \"300ms\" }", LINES).await;
    let sent = push("d-1", 1);
    nats.put("github.push", &message(&sent), &sent.body).await;
    until("the line", || worker.lines("lines") == ["1"]).await;
    worker.quiet().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    nats.put("github.push", &message(&sent), &sent.body).await;
    until("the second line", || worker.lines("lines") == ["1", "1"]).await;
    settled(&nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_action_does_not_block_its_redelivery() {
    let fails = "run = { steps = [\"echo tried >> lines; test -e go\"] }\nrearm_after = \"0s\"";
    let (nats, _edge, worker) = row("", fails).await;
    let sent = push("d-1", 1);
    nats.put("github.push", &message(&sent), &sent.body).await;
    until("it to be dead", || worker.count("dead") == 1).await;
    std::fs::write(worker.path("go"), "").unwrap();
    // The same delivery id re-arms a dead event from 5 s after it died.
    tokio::time::sleep(Duration::from_millis(5200)).await;
    nats.put("github.push", &message(&sent), &sent.body).await;
    until("it to be done", || worker.count("done") == 1).await;
    assert_eq!(worker.lines("lines"), ["tried", "tried"]);
    settled(&nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_continues_after_its_schema_went_down_and_up() {
    let (_nats, edge, mut worker) = row("", LINES).await;
    edge.deliver(IN, &push("d-1", 1)).await;
    until("the line", || worker.lines("lines") == ["1"]).await;
    worker.stop();
    for args in [&["migrate", "down", "--to", "4", "--yes"][..], &["migrate", "up"]] {
        let said = worker.command(args).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && text.contains("quarantine"), "{args:?}: {text}");
    }
    worker.start();
    edge.deliver(IN, &push("d-2", 2)).await;
    until("the line", || worker.lines("lines") == ["1", "2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_keys_and_bodies_are_removed_after_their_retention() {
    let (nats, _edge, worker) = row("once = { keep = \"200ms\", keep_body = \"200ms\" }", LINES).await;
    for n in 1..=20 {
        let sent = push(&format!("d-{n}"), n);
        nats.put("github.push", &message(&sent), &sent.body).await;
    }
    until("every line", || worker.lines("lines").len() == 20).await;
    worker.quiet().await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let forgotten = worker.ask("POST", "/api/forget").await.json();
    assert_eq!(forgotten["forgotten"], 20, "{forgotten}");
    for table in ["events", "keys", "payloads"] {
        assert_eq!(worker.sql(&format!("select count(*) from {table}")), ["0"], "{table}");
    }
    settled(&nats).await;
}
