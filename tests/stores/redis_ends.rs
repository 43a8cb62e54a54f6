//! Finding an event on Redis by the last digits of its id: without reading every id, also in a store of an earlier
//! version.

use crate::redis::open;
use crate::redis_server::Server;
use hookonce::decide::id::EventId;
use hookonce::decide::source::{Keep, Retention};
use hookonce::decide::time::Duration;
use hookonce::store::conformance::making;
use hookonce::store::redis::RedisStore;
use hookonce::store::{Inspect, RetentionPolicies, Store, StoreBackend};
use std::sync::Arc;
use std::time::Instant;

/// More than one page of ids.
const EVENTS: usize = 6_000;
/// How long the index may take to be built.
const PATIENCE: Duration = Duration::from_mins(1);

/// Claims this many events that end at once.
async fn filled(store: &RedisStore) -> Vec<EventId> {
    let mut ids = Vec::new();
    for from in (0..EVENTS).step_by(500) {
        let made = (from..from + 500).map(|n| making().delivery(&format!("delivery {n}")).recorded().made(store.now()));
        let made: Vec<_> = made.map(Arc::new).collect();
        ids.extend(made.iter().map(|new| new.event.id));
        store.claim(made).await.unwrap();
    }
    ids
}

fn count(server: &Server, name: &str) -> usize {
    ::redis::cmd("ZCARD").arg(format!("{{a}}:{name}")).query(&mut server.client()).unwrap()
}

/// How often a sorted set was read during the lookup, and what was found.
async fn look(server: &Server, store: &RedisStore, end: &str) -> (usize, Vec<EventId>) {
    server.order(&["CONFIG", "RESETSTAT"]);
    let found = store.find_by_name(end.to_owned(), 2).await.unwrap();
    let stats: String = ::redis::cmd("INFO").arg("commandstats").query(&mut server.client()).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_zrange:calls=")).unwrap_or("0,");
    (line.split(',').next().unwrap().parse().unwrap(), found.iter().map(|event| event.id).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_found_by_its_last_digits_without_reading_every_id() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    let ids = filled(&store).await;
    for (place, digits) in [(0, 12), (7, 13), (EVENTS - 1, 11), (EVENTS / 2, 20)] {
        let text = ids[place].to_string();
        let (reads, found) = look(&server, &store, &text[text.len() - digits..]).await;
        assert_eq!(found, [ids[place]], "{text} by {digits} digits");
        assert!(reads <= 2, "{reads} reads for {digits} digits: by delivery id, and by the end");
    }
    let (reads, found) = look(&server, &store, "0000000000000").await;
    assert!(reads <= 2 && found.is_empty(), "{reads} reads, {found:?}");
    // Few digits: the newest matches.
    let text = ids[EVENTS - 1].to_string();
    let alike = ids.iter().filter(|id| id.to_string().ends_with(&text[35..])).copied();
    let newest: Vec<_> = { alike.collect::<std::collections::BTreeSet<_>>().into_iter().rev().take(2).collect() };
    assert_eq!(look(&server, &store, &text[35..]).await.1, newest);

    let gone = Retention { keys: Keep::For(Duration::ZERO), body: Duration::ZERO };
    let keeps = Arc::new(RetentionPolicies { sources: [("source".into(), gone)].into() });
    store.forget(keeps, 100).await.unwrap();
    assert!(count(&server, "all") < EVENTS);
    assert_eq!(count(&server, "ends"), count(&server, "all"), "removed events are not found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_store_of_an_earlier_version_events_are_found_by_their_last_digits_before_and_after_the_index_is_built() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    let ids = filled(&store).await;
    let text = ids[3].to_string();
    let end = &text[text.len() - 8..];
    // Without the index, as 0.1.0 leaves it; and with more entries than events, of some that 0.1.0 has removed.
    for stale in [0, EVENTS + 1] {
        let mut pipeline = ::redis::pipe();
        pipeline.cmd("DEL").arg("{a}:ends");
        for n in 0..stale {
            pipeline.cmd("ZADD").arg("{a}:ends").arg(0).arg(format!("{n:016}"));
        }
        pipeline.exec(&mut server.client()).unwrap();
        let (_, found) = look(&server, &store, end).await;
        assert_eq!(found, [ids[3]], "with {stale} stale entries");
        let next = open(&server.url("a")).await.unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let (reads, found) = look(&server, &next, end).await;
            assert_eq!(found, [ids[3]], "with {stale} stale entries");
            if reads <= 2 && count(&server, "ends") == EVENTS {
                break;
            }
            // The index is being built: that reads the ids, too, and once more when the last of them is there.
            assert!(Instant::now() < until, "the index is not built, or not used: {reads} reads");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
