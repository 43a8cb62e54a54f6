//! Failures: killed servers and workers, a duplicate window that is over, streams created anew. Tests print how often
//! each happened, and count effects by event id, as an idempotent receiver would.

use super::server::{Nats, until_async};
use super::support::{House, until};
use super::{IN, LONG, edge, full, message, push, worker};
use std::collections::BTreeMap;
use std::time::Duration;

/// An idempotent receiver: it gets a line for each attempt, and lines of the same event count once.
const SINK: &str = r#"run = { steps = ["echo \"$HOOKONCE_EVENT $HOOKONCE_FIELD_N\" >> effects"] }
in_doubt = "retry"
retry = { attempts = 5, first = "100ms", longest = "1s" }"#;

/// For each number, the events that had an effect.
fn effects(houses: &[&House]) -> BTreeMap<u64, Vec<String>> {
    let mut effects: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in houses.iter().flat_map(|house| house.lines("effects")) {
        let (event, n) = line.split_once(' ').unwrap();
        let events = effects.entry(n.parse().unwrap()).or_default();
        if !events.contains(&event.to_owned()) {
            events.push(event.to_owned());
        }
    }
    effects
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_server_killed_and_restarted_under_load_loses_nothing_and_doubles_nothing() {
    // It must not lose what it acknowledged, so that only our own losses are counted.
    let mut nats = Nats::synced();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(5)).await;
    let tries = r#"retry = { attempts = 100, first = "100ms", longest = "500ms" }"#;
    let edge = House::new(&edge(&nats.url(), r#", timeout = "2s""#, tries));
    let worker = House::new(&worker(&nats.url(), "", SINK));
    let (kills, each) = if full() { (20, 50) } else { (3, 20) };
    let total = kills * each;
    let mut n = 0;
    for _ in 0..kills {
        for i in 0..each {
            n += 1;
            assert_eq!(edge.deliver(IN, &push(&format!("d-{n}"), n)).await.status, 202);
            if i == each / 2 {
                nats.kill();
            }
        }
        assert!(nats.up());
    }
    edge.quiet().await;
    until("every effect", || effects(&[&worker]).len() as u64 == total).await;
    worker.quiet().await;
    let doubled = effects(&[&worker]).values().filter(|events| events.len() > 1).count();
    println!("nats-server killed: {kills} times, N = {total}, lost 0, doubled {doubled}");
    assert_eq!(doubled, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_between_effect_and_ack_has_one_effect_per_event() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(1)).await;
    let mut worker = House::new(&worker(&nats.url(), r#", ack = "done""#, &format!("lease = \"1s\"\n{SINK}")));
    let kills: u64 = if full() { 50 } else { 5 };
    for n in 1..=kills {
        let sent = push(&format!("d-{n}"), n);
        nats.put("github.push", &message(&sent), &sent.body).await;
        until("the effect", || effects(&[&worker]).contains_key(&n)).await;
        worker.kill();
        worker.start();
    }
    until_async("all to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    worker.quiet().await;
    let effects = effects(&[&worker]);
    let doubled = effects.values().filter(|events| events.len() > 1).count();
    let (lost, raw) = (kills - effects.len() as u64, worker.lines("effects").len());
    println!("workers killed between effect and ack: N = {kills}, raw calls {raw}, lost {lost}, doubled {doubled}");
    assert_eq!((effects.len() as u64, doubled), (kills, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_after_the_duplicate_window_is_stored_twice_and_acted_on_once() {
    let nats = Nats::start();
    nats.stream("GITHUB", Duration::from_millis(200)).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let worker = House::new(&worker(&nats.url(), "", SINK));
    let sent = push("d-1", 1);
    let mut headers = message(&sent);
    headers.push(("Nats-Msg-Id".into(), "one-id".into()));
    nats.put("github.push", &headers, &sent.body).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    nats.put("github.push", &headers, &sent.body).await;
    assert_eq!(nats.count("GITHUB").await, 2, "the window is over: the stream has it twice");
    until_async("both to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    worker.quiet().await;
    assert_eq!(worker.sql("select count(*) from events"), ["1"]);
    assert_eq!(worker.lines("effects").len(), 1);
    until("the duplicate in the log", || worker.log().contains("duplicate")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_deleted_and_created_anew_reuses_sequence_numbers_and_nothing_counts_as_a_duplicate() {
    let nats = Nats::start();
    let config = worker(&nats.url(), r#", create = true, subjects = ["github.>"]"#, SINK);
    // Only the message itself identifies it: there is no carried id.
    let config = config.replace(r#"{ scheme = "carried", of = "github", secret = { env = "SECRET" } }"#, r#""none""#);
    let worker = House::new(&config);
    until("the stream to be read", || worker.log().contains("taking")).await;
    let rounds = 3;
    for round in 0..rounds {
        for n in 1..=3 {
            let sequence = nats.put("github.push", &[], &push("", 10 * round + n).body).await;
            assert_eq!(sequence, n, "sequence numbers start again");
        }
        until("its effects", || effects(&[&worker]).len() as u64 == 3 * (round + 1)).await;
        let taking = worker.log().matches("taking").count();
        nats.jetstream().await.delete_stream("GITHUB").await.unwrap();
        until("the stream to be created anew", || worker.log().matches("taking").count() > taking).await;
    }
    println!("streams created anew: N = {rounds}, effects {}", effects(&[&worker]).len());
    assert_eq!(worker.sql("select count(*) from events"), [(3 * rounds).to_string()]);
}

/// Three workers that share one consumer, and this store if given. The stream has `copies` messages of each delivery,
/// and hands each message to one worker.
async fn three_workers_share(store: Option<&str>, copies: usize) {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let store = store.map(|url| format!("store = \"{url}\"\n")).unwrap_or_default();
    let house = || House::new(&format!("{store}{}", worker(&nats.url(), "", SINK)));
    let houses = [house(), house(), house()];
    let all: Vec<_> = houses.iter().collect();
    let shares = || houses.iter().map(|house| house.lines("effects").len()).collect::<Vec<_>>();
    let (mut total, fewest): (u64, u64) = (0, if full() { 3000 } else { 150 });
    // A worker that a busy machine holds up gets one of those that follow.
    while total < fewest || shares().contains(&0) {
        assert!(total < fewest + 1000, "a worker gets no message: {:?}", shares());
        total += 1;
        let sent = push(&format!("d-{total}"), total);
        for _ in 0..copies {
            nats.put("github.push", &message(&sent), &sent.body).await;
        }
        if total >= fewest {
            until("every effect", || effects(&all).len() as u64 == total).await;
        }
    }
    until_async("all to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    let shares = shares();
    let doubled = effects(&all).values().filter(|events| events.len() > 1).count();
    println!("three workers: N = {total}, copies {copies}, shares {shares:?}, doubled {doubled}");
    assert_eq!(doubled, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_three_workers_gets_messages_and_no_message_goes_to_two() {
    three_workers_share(None, 1).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn three_workers_on_one_postgresql_act_once_whichever_gets_the_copy() {
    let server = super::postgres::Server::start().await;
    let database = server.database().await;
    three_workers_share(Some(&server.url(&database)), 3).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn three_workers_on_one_redis_act_once_whichever_gets_the_copy() {
    let server = super::redis::Server::start();
    three_workers_share(Some(&server.url("hooks")), 3).await;
}

/// Only nodes that receive (`--only ingest`) read from a stream; nodes that work act on its events.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn one_node_reads_from_the_stream_and_another_acts() {
    let (nats, server) = (Nats::start(), super::redis::Server::start());
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let config = format!("store = \"{}\"\n{}", server.url("hooks"), worker(&nats.url(), "", SINK));
    let [takes, acts] = ["ingest", "work"].map(|half| {
        let mut house = House::empty(&config);
        house.try_start_by(house.command(&["serve", "--only", half])).unwrap();
        house
    });
    let bad = push("forged", 9).with("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)));
    for sent in [push("d-1", 1), bad] {
        nats.put("github.push", &message(&sent), &sent.body).await;
    }
    until("the effect", || effects(&[&acts]).contains_key(&1)).await;
    until_async("both to be answered", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    assert!(takes.lines("effects").is_empty());
    assert!(takes.log().contains("taking") && !acts.log().contains("taking"));
    let aside = acts.ask("GET", "/api/quarantine").await.json();
    assert_eq!(aside["messages"][0]["why"], "bad_signature", "{aside}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_logged_with_the_reason_and_not_at_every_try() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tries = r#"retry = { attempts = 3, first = "100ms", longest = "100ms" }"#;
    let house = House::new(&edge(&format!("nats://127.0.0.1:{port}"), r#", timeout = "2s""#, tries));
    house.deliver(IN, &push("d-1", 1)).await;
    // Meanwhile the client has tried to connect about five times.
    until("the event to be dead", || house.count("dead") == 1).await;
    until("its death in the log", || house.log().contains(" dead ")).await;
    let log = house.log();
    let said: Vec<_> = log.lines().filter(|line| line.contains("client error") && line.contains(" nats ")).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains(&format!("127.0.0.1:{port}: Connection refused")), "{log}");
    assert!(log.contains("not connected to ") && log.matches("Connection refused").count() > 1, "{log}");
}
