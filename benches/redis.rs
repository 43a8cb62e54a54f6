//! Figures of the Redis store alone, against its own server on this disk: `cargo test --release --bench redis --
//! --ignored --nocapture`.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "these only print figures")]

#[path = "../tests/support/redis.rs"]
mod server;

#[path = "support/closed_loop.rs"]
mod closed_loop;

use closed_loop::Kind;
use hookonce::decide::claim::NewEvent;
use hookonce::decide::id::Digest;
use hookonce::decide::source::Retention;
use hookonce::decide::time::Duration;
use hookonce::store::batch::Batcher;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::redis::{RedisAccess, RedisOpenOptions, RedisStore};
use hookonce::store::{Store, StoreBackend};
use server::Server;
use std::sync::Arc;
use std::time::Instant;

/// The size of a registry's delivery, as measured.
const BODY: usize = 10_361;
const TASKS: usize = 8;
const BATCH: usize = 64;

/// Bytes that compress to about a third, like a webhook's JSON.
fn body(seed: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(BODY + 96);
    for part in 0_usize.. {
        if body.len() >= BODY {
            break;
        }
        body.extend_from_slice(&Digest::of(&[seed.to_be_bytes(), part.to_be_bytes()].concat()).0);
        body.extend_from_slice(br#","url":"https://api.example.org/repos/owner/name/packages","id":""#);
    }
    body.truncate(BODY);
    body
}

async fn open(server: &Server) -> RedisStore {
    let options = RedisOpenOptions { clock: StoreClock::server(), access: RedisAccess::Node };
    RedisStore::open(&server.url("bench"), options).await.unwrap()
}

/// Two keys each, as a delivery id and a body make them.
fn batch(store: &RedisStore, from: usize, body_of: Option<fn(usize) -> Vec<u8>>) -> Vec<Arc<NewEvent>> {
    let one = |n: usize| {
        let made = making().delivery(&format!("72d3162e-cc78-11e3-81ab-{n:012}")).named(&n.to_string());
        let made = match body_of {
            Some(body) => made.carrying(body(n)).recorded(),
            None => made.recorded().kept(Retention { body: Duration::ZERO, ..Retention::default() }),
        };
        made.made(store.now())
    };
    (from..from + BATCH).map(|n| one(n).into()).collect()
}

async fn claims(store: &Arc<RedisStore>, each: usize, body: Option<fn(usize) -> Vec<u8>>, from: usize) -> f64 {
    let mut prepared = Vec::new();
    for task in 0..TASKS {
        prepared.push((0..each).map(|n| batch(store, from + (task * each + n) * BATCH, body)).collect::<Vec<_>>());
    }
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for batches in prepared {
        let store = store.clone();
        tasks.spawn(async move {
            for batch in batches {
                store.claim(batch).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    (TASKS * each * BATCH) as f64 / begun.elapsed().as_secs_f64()
}

async fn plain_sets(server: &Server, each: usize) -> f64 {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let mut prepared = Vec::new();
    for task in 0..TASKS {
        let pipe = |n: usize| {
            let mut pipe = redis::pipe();
            for place in 0..BATCH {
                let key = (task * each + n) * BATCH + place;
                pipe.cmd("SET").arg(format!("plain{key:024}")).arg(body(key)).ignore();
            }
            pipe
        };
        prepared.push((0..each).map(pipe).collect::<Vec<_>>());
    }
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for pipes in prepared {
        let mut line = client.get_multiplexed_async_connection().await.unwrap();
        tasks.spawn(async move {
            for pipe in pipes {
                pipe.exec_async(&mut line).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    (TASKS * each * BATCH) as f64 / begun.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn claims_per_second() {
    for round in 0..3 {
        let server = Server::inside(tempfile::tempdir_in(".").unwrap(), &server::redis(), &[]);
        let plain = plain_sets(&server, 20).await;
        server.order(&["FLUSHALL"]);
        let store = Arc::new(open(&server).await);
        let new = claims(&store, 20, Some(body), 0).await;
        let again = claims(&store, 20, Some(body), 0).await;
        let bare = claims(&store, 20, None, 1 << 30).await;
        println!(
            "round {round}, {TASKS} x {BATCH}: {new:>6.0} new/s with 10 KB, {bare:>6.0} new/s without a body, \
             {again:>6.0} duplicates/s; plain SET of the same bytes {plain:>6.0}/s ({:.2} of it)",
            new / plain
        );
    }
}

fn memory(server: &Server) -> f64 {
    let info: String = redis::cmd("INFO").arg("memory").query(&mut server.client()).unwrap();
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures; MANY is how many events"]
async fn bytes_per_kept_key() {
    let many: usize = std::env::var("MANY").map_or(100_000, |many| many.parse().unwrap());
    let server = Server::inside(tempfile::tempdir_in(".").unwrap(), &server::redis(), &[]);
    let store = Arc::new(open(&server).await);
    let before = memory(&server);
    let each = many / 10 / TASKS / BATCH;
    for n in 0..10 {
        let rate = claims(&store, each, None, n * TASKS * each * BATCH).await;
        println!("{:>8} events: {rate:>6.0} new/s", (n + 1) * TASKS * each * BATCH);
    }
    let events = (10 * TASKS * each * BATCH) as f64;
    let bytes = (memory(&server) - before) / events;
    println!("{bytes:.0} bytes of memory per event without a body, {:.0} per key", bytes / 2.0);
}

/// A registry's deliveries of pushes: those of one storm, each with a time, an id and a digest of its own.
fn push(n: usize) -> Vec<u8> {
    let storm = include_str!("../tests/payloads/storm_tags.jsonl");
    let line = storm.lines().nth(n % 5).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let digest = hex::encode(Digest::of(&n.to_be_bytes()).0);
    let own = format!("{{\"version\":{{\"id\":{},\"name\":\"sha256:{digest}\"}},", 10_452_243 + 7 * n);
    line["body"].as_str().unwrap().replacen('{', &own, 1).into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures; MANY is how many events"]
async fn bytes_per_kept_body() {
    let many: usize = std::env::var("MANY").map_or(20_000, |many| many.parse().unwrap());
    let server = Server::inside(tempfile::tempdir_in(".").unwrap(), &server::redis(), &[]);
    let store = Arc::new(open(&server).await);
    let mut client = server.client();
    let mut usage = |name: &[u8]| -> f64 { redis::cmd("MEMORY").arg("USAGE").arg(name).query(&mut client).unwrap() };
    let first = batch(&store, 0, Some(push));
    store.claim(first.clone()).await.unwrap();
    let of = |new: &NewEvent| [b"{bench}b", &new.event.id.0[..]].concat();
    let alone = first.iter().map(|new| usage(&of(new))).sum::<f64>() / BATCH as f64;
    let (before, mut packed) = (memory(&server), 0.0);
    for from in (BATCH..many).step_by(BATCH) {
        let next = batch(&store, from, Some(push));
        store.claim(next.clone()).await.unwrap();
        packed = next.iter().map(|new| usage(&of(new))).sum::<f64>() / BATCH as f64;
    }
    let events = (many.div_ceil(BATCH) - 1) as f64 * BATCH as f64;
    let lists: Vec<Vec<u8>> = redis::cmd("KEYS").arg("{bench}l*").query(&mut server.client()).unwrap();
    let lists: f64 = lists.iter().map(|list| usage(list)).sum();
    println!("bodies of {} bytes: {alone:.0} bytes of memory each alone, {packed:.0} with a dictionary", push(0).len());
    println!(
        "its list: {:.1} bytes per event; all of an event: {:.0}",
        lists / events,
        (memory(&server) - before) / events
    );
}

/// What `MANY` (16,000) requests cost through the batcher, `TURNS` (3) times each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn requests_through_the_batcher() {
    let number = |name: &str, default: usize| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (many, turns) = (number("MANY", 16_000), number("TURNS", 3));
    let server = Server::inside(tempfile::tempdir_in(".").unwrap(), &server::redis(), &[]);
    let store: Arc<dyn Store> = Arc::new(open(&server).await);
    let batch = Batcher::start(store.clone(), Arc::default());
    let info: String = redis::cmd("INFO").arg("server").query(&mut server.client()).unwrap();
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().to_owned();
    let mut from = 0;
    for turn in 0..=turns {
        for kind in [Kind::Recorded, Kind::WithBody, Kind::Acted] {
            let many = if turn == 0 { many / 10 } else { many };
            let cost = closed_loop::run(&store, &batch, kind, from, many, || closed_loop::processor_time(&pid)).await;
            from += many;
            println!(
                "{kind:?}: {:.0}/s, {:.0} + {:.0} us, p50 {:.1} p99 {:.1} ms",
                cost.per_second, cost.ours, cost.servers, cost.p50_ms, cost.p99_ms
            );
        }
    }
}
