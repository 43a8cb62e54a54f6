//! Figures of the SQLite store alone: `cargo test --release --bench store -- --ignored --nocapture`.
#![cfg(feature = "sqlite")]
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "these only print figures")]

use hookonce::decide::claim::NewEvent;
use hookonce::decide::time::Duration;
use hookonce::store::conformance::making;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{DuplicateLookup, Store, StoreBackend};
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Instant;

/// The size of a registry's delivery, as measured.
const BODY: usize = 10_361;

/// Two keys each, as a delivery id and a body make them.
fn batch(store: &SqliteStore, from: usize, size: usize, body: &[u8]) -> Vec<Arc<NewEvent>> {
    let one = |n: usize| {
        let made = making().delivery(&format!("72d3162e-cc78-11e3-81ab-{n:012}")).named(&n.to_string());
        let made = if body.is_empty() { made.recorded().kept(without_body()) } else { made.recorded() };
        made.carrying(bytes::Bytes::copy_from_slice(body)).made(store.now())
    };
    (from..from + size).map(|n| one(n).into()).collect()
}

fn without_body() -> hookonce::decide::source::Retention {
    hookonce::decide::source::Retention { body: Duration::ZERO, ..Default::default() }
}

async fn rate(store: &SqliteStore, total: usize, size: usize, body: &[u8], from: usize) -> f64 {
    let batches: Vec<_> = (0..total / size).map(|n| batch(store, from + n * size, size, body)).collect();
    let begun = Instant::now();
    for batch in batches {
        store.claim(batch).await.unwrap();
    }
    (total / size * size) as f64 / begun.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn claims_per_second() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let body = vec![b'x'; BODY];
    for round in 0..3 {
        for (size, total) in [(1, 3_000), (64, 30_000), (512, 60_000)] {
            for (name, body) in [("no body", &[][..]), ("10 KB body", &body)] {
                let total = if body.is_empty() { total } else { total / 3 };
                let path = dir.path().join(format!("{round}-{size}-{name}.db"));
                let store = SqliteStore::open(&path, SqliteAccess::Node).unwrap();
                let new = rate(&store, total, size, body, 0).await;
                let again = rate(&store, total, size, body, 0).await;
                println!("round {round}, {size:>3} per batch, {name:>10}: {new:>7.0} new/s, {again:>7.0} duplicates/s");
            }
        }
    }
}

/// One claim each, from 32 tasks that wait for the result: batches form automatically.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn claims_from_many_at_once() {
    let dir = tempfile::tempdir_in(".").unwrap();
    for (name, body) in [("no body", &[][..]), ("10 KB body", &[b'x'; BODY])] {
        let store = Arc::new(SqliteStore::open(&dir.path().join(format!("{name}.db")), SqliteAccess::Node).unwrap());
        let mut each: Vec<Vec<Vec<Arc<NewEvent>>>> = Vec::new();
        for task in 0..32 {
            each.push((0..500).map(|n| batch(&store, task * 500 + n, 1, body)).collect());
        }
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for claims in each {
            let store = store.clone();
            tasks.spawn(async move {
                for claim in claims {
                    store.claim(claim).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        let rate = 16_000.0 / begun.elapsed().as_secs_f64();
        println!("32 at once, {name:>10}: {rate:>7.0} new/s in {} commits", store.commits());
    }
}

/// The latency of one batch while others are written before and after it; includes WAL checkpoints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn how_long_a_batch_waits() {
    let dir = tempfile::tempdir_in(".").unwrap();
    for (name, body) in [("no body", &[][..]), ("10 KB body", &[b'x'; BODY])] {
        let store = SqliteStore::open(&dir.path().join(format!("{name}.db")), SqliteAccess::Node).unwrap();
        let batches: Vec<_> = (0..1_000).map(|n| batch(&store, n * 32, 32, body)).collect();
        let mut waits = Vec::new();
        for batch in batches {
            let begun = Instant::now();
            store.claim(batch).await.unwrap();
            waits.push(begun.elapsed());
        }
        waits.sort();
        println!("{name:>10}, 32 per batch: p50 {:?}, p99 {:?}, longest {:?}", waits[500], waits[990], waits[999]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures; MANY is how many events"]
async fn many_events() {
    let many: usize = std::env::var("MANY").map_or(200_000, |many| many.parse().unwrap());
    let dir = tempfile::tempdir_in(".").unwrap();
    let path = dir.path().join("a.db");
    let store = SqliteStore::open(&path, SqliteAccess::Node).unwrap();
    let slice = many / 10;
    for n in 0..10 {
        let rate = rate(&store, slice, 512, &[], n * slice).await;
        println!("{:>8} events: {rate:>7.0} new/s", (n + 1) * slice);
    }
    drop(store);
    let db = Connection::open(&path).unwrap();
    let mut sizes = db.prepare("select name, sum(pgsize) from dbstat group by name order by 2 desc").unwrap();
    let sizes = sizes.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, f64>(1)?))).unwrap();
    for (name, bytes) in sizes.flatten().filter(|(_, bytes)| *bytes > 1e6) {
        println!("{name:>20}: {:>6.1} bytes per event", bytes / many as f64);
    }
}

/// The cost of looking up a duplicate with its stored response, without a claim: run it with `RECALLS` under callgrind
/// to count instructions.
#[tokio::test]
#[ignore = "prints figures; RECALLS is how many"]
async fn recalls_per_second() {
    let recalls: usize = std::env::var("RECALLS").map_or(200_000, |many| many.parse().unwrap());
    let dir = tempfile::tempdir_in(".").unwrap();
    let store = SqliteStore::open(&dir.path().join("a.db"), SqliteAccess::Node).unwrap();
    let new = batch(&store, 0, 1_000, &[]);
    store.claim(new).await.unwrap();
    let again = batch(&store, 0, 1_000, &[]);
    for needs in [DuplicateLookup::Standing, DuplicateLookup::Receipt] {
        let begun = Instant::now();
        for n in 0..recalls {
            assert!(store.find_duplicate(&again[n % 1_000], needs).await.unwrap().is_some());
        }
        let each = begun.elapsed().as_secs_f64() * 1e6 / recalls as f64;
        println!("{recalls} recalls, {needs:?}: {each:.1} µs each");
    }
}
