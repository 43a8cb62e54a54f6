//! The PostgreSQL store compared with plain inserts of the same rows on the same server, in turns: `cargo test
//! --release --bench postgres -- --ignored --nocapture`.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "these only print figures")]

#[path = "../tests/support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each bench uses a part of it")]
mod server;

#[path = "support/closed_loop.rs"]
mod closed_loop;

use closed_loop::Kind;
use hookonce::decide::claim::{ClaimResult, NewEvent};
use hookonce::store::Store;
use hookonce::store::batch::Batcher;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
use server::Server;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;
use tokio_postgres::Client;

/// Batches in flight.
const IN_FLIGHT: usize = 8;
const ROUNDS: usize = 5;

/// Two keys each, as a delivery id and named fields make them, and a registry's body of 10 KB, each a little different.
fn batch(store: &dyn Store, from: usize, size: usize) -> Vec<Arc<NewEvent>> {
    let body = include_str!("../tests/payloads/ghcr_latest.json");
    let one = |n: usize| {
        let made = making().delivery(&format!("72d3162e-cc78-11e3-81ab-{n:012}")).named(&n.to_string());
        made.recorded().carrying(format!("{{\"n\":{n},{}", &body[1..])).made(store.now())
    };
    (from..from + size).map(|n| one(n).into()).collect()
}

/// The same rows, written without checking whether they are new.
struct Plain {
    ids: Vec<String>,
    deliveries: Vec<String>,
    fields: Vec<String>,
    digests: Vec<Vec<u8>>,
    seals: Vec<Vec<u8>>,
    at: Vec<i64>,
    keys: Vec<Vec<u8>>,
    holders: Vec<String>,
    identities: Vec<String>,
    headers: Vec<String>,
    bodies: Vec<Vec<u8>>,
    lengths: Vec<i64>,
}

impl Plain {
    fn of(new: &[Arc<NewEvent>]) -> Self {
        let ids: Vec<_> = new.iter().map(|new| new.event.id.to_string()).collect();
        let keys = new.iter().flat_map(|new| &new.keys);
        Self {
            deliveries: new.iter().map(|new| new.event.delivery_id.as_deref().unwrap().to_owned()).collect(),
            fields: new.iter().map(|new| new.event.fields.to_json()).collect(),
            digests: new.iter().map(|new| new.event.body_digest.0.to_vec()).collect(),
            seals: new.iter().map(|new| new.event.digest.0.to_vec()).collect(),
            at: new.iter().map(|new| new.event.received_at.0).collect(),
            keys: keys.clone().map(|identity| identity.key.0.to_vec()).collect(),
            holders: ids.iter().flat_map(|id| [id.clone(), id.clone()]).collect(),
            identities: keys.map(|identity| identity.matched_by.word().to_owned()).collect(),
            headers: new.iter().map(|new| serde_json::to_string(&new.payload.headers).unwrap()).collect(),
            bodies: new.iter().map(|new| lz4_flex::block::compress(&new.payload.body)).collect(),
            lengths: new.iter().map(|new| i64::try_from(new.payload.body.len()).unwrap()).collect(),
            ids,
        }
    }

    async fn write(&self, db: &Client, [keys, events, payloads]: &[tokio_postgres::Statement; 3]) {
        let (begin, one, two, three, commit) = tokio::join!(
            biased;
            db.batch_execute("begin"),
            async { db.execute(keys, &[&self.keys, &self.holders, &self.identities]).await },
            async { db.execute(events, &[&self.ids, &self.deliveries, &self.fields, &self.digests, &self.seals, &self.at]).await },
            async { db.execute(payloads, &[&self.ids, &self.headers, &self.digests, &self.bodies, &self.lengths]).await },
            db.batch_execute("commit"),
        );
        begin.and(one).and(two).and(three).and(commit.map(|()| 0)).unwrap();
    }
}

const KEYS: &str = "insert into keys (key, event, identity, alias) \
    select key, id::uuid, identity, false from unnest($1::bytea[], $2::text[], $3::text[]) as r (key, id, identity)";
const EVENTS: &str = "insert into events (id, revision, version, source, route, part, delivery_id, fields, state, cause, \
    received_at, ended_at, keep_from, life, attempt, doubts, blocks_done, passed, turn, body, body_digest, digest) \
    select id::uuid, 1, 1, 'source', '1', 0, delivery, fields::json, 'done', 'recorded', at, at, at, 1, 0, 0, 0, 0, 1, \
    true, digest, seal from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::bigint[]) \
    as r (id, delivery, fields, digest, seal, at)";
const PAYLOADS: &str = "insert into payloads (event, headers, headers_digest, body, unpacked) \
    select id::uuid, headers, digest, body, length from unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], \
    $5::bigint[]) as r (id, headers, digest, body, length)";

fn shares(mut batches: Vec<Vec<Arc<NewEvent>>>) -> Vec<Vec<Vec<Arc<NewEvent>>>> {
    let each = batches.len().div_ceil(IN_FLIGHT);
    std::iter::from_fn(|| (!batches.is_empty()).then(|| batches.split_off(batches.len().saturating_sub(each))))
        .collect()
}

async fn claimed(store: &Arc<PostgresStore>, batches: Vec<Vec<Arc<NewEvent>>>) -> f64 {
    let total: usize = batches.iter().map(Vec::len).sum();
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for share in shares(batches) {
        let store = store.clone();
        tasks.spawn(async move {
            for batch in share {
                assert!(store.claim(batch).await.unwrap().iter().all(|claim| matches!(claim, ClaimResult::New { .. })));
            }
        });
    }
    tasks.join_all().await;
    total as f64 / begun.elapsed().as_secs_f64()
}

async fn inserted(server: &Server, database: &str, batches: Vec<Vec<Arc<NewEvent>>>) -> f64 {
    let total: usize = batches.iter().map(Vec::len).sum();
    let mut ready = Vec::new();
    for share in shares(batches) {
        let db = server.client(database).await;
        let statements =
            [db.prepare(KEYS).await.unwrap(), db.prepare(EVENTS).await.unwrap(), db.prepare(PAYLOADS).await.unwrap()];
        ready.push((db, statements, share.iter().map(|batch| Plain::of(batch)).collect::<Vec<_>>()));
    }
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for (db, statements, share) in ready {
        tasks.spawn(async move {
            for rows in share {
                rows.write(&db, &statements).await;
            }
        });
    }
    tasks.join_all().await;
    total as f64 / begun.elapsed().as_secs_f64()
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn claims_beside_plain_inserts() {
    let server = Server::start().await;
    for (size, batches) in [(64, 80), (256, 32)] {
        let (mut ours, mut plain, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let database = server.database().await;
        let options = PostgresOpenOptions { clock: StoreClock::server(), schema: SchemaMode::Auto };
        let store = Arc::new(PostgresStore::open(&server.url(&database), options).await.unwrap());
        // A warm-up round: connections, statements, pages.
        let all = |round: usize, half: usize| -> Vec<Vec<Arc<NewEvent>>> {
            let from = (round * 2 + half) * batches * size;
            (0..batches).map(|n| batch(&*store, from + n * size, size)).collect()
        };
        claimed(&store, all(0, 0)).await;
        inserted(&server, &database, all(0, 1)).await;
        for round in 1..=ROUNDS {
            let one = claimed(&store, all(round, 0)).await;
            let other = inserted(&server, &database, all(round, 1)).await;
            println!("{size:>3} per batch, {IN_FLIGHT} in flight: {one:>6.0} claims/s, {other:>6.0} plain inserts/s");
            ours.push(one);
            plain.push(other);
            ratios.push(one / other);
        }
        println!(
            "{size:>3} per batch: {:.0} claims/s, {:.0} plain inserts/s, ratio {:.2}",
            middle(ours),
            middle(plain),
            middle(ratios)
        );
    }
}

/// What `MANY` (8,000) requests cost through the batcher, `TURNS` (3) times each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn requests_through_the_batcher() {
    let number = |name: &str, default: usize| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (many, turns) = (number("MANY", 8_000), number("TURNS", 3));
    let server = Server::start_with(&["max_wal_size=8GB", "checkpoint_timeout=1h"]).await;
    let postmaster = std::fs::read_to_string(server.dir.path().join("data/postmaster.pid")).unwrap();
    let postmaster = postmaster.lines().next().unwrap();
    let servers = || closed_loop::processor_time_of_children(postmaster);
    let database = server.database().await;
    let db = server.client(&database).await;
    let options = PostgresOpenOptions { clock: StoreClock::server(), schema: SchemaMode::Auto };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&server.url(&database), options).await.unwrap());
    let batch = Batcher::start(store.clone(), Arc::default());
    let wal = async || {
        let row = db.query_one("select wal_bytes::float8, wal_records, wal_sync from pg_stat_wal", &[]).await.unwrap();
        [row.get::<_, f64>(0), row.get::<_, i64>(1) as f64, row.get::<_, i64>(2) as f64]
    };
    let mut from = 0;
    for turn in 0..=turns {
        for kind in [Kind::Recorded, Kind::WithBody, Kind::Acted] {
            let many = if turn == 0 { many / 10 } else { many };
            let before = wal().await;
            let cost = closed_loop::run(&store, &batch, kind, from, many, servers).await;
            from += many;
            tokio::time::sleep(std::time::Duration::from_secs(2)).await; // the server counts its WAL late
            let [bytes, records, syncs]: [f64; 3] =
                std::iter::zip(before, wal().await).map(|(was, is)| is - was).collect::<Vec<_>>().try_into().unwrap();
            println!(
                "{kind:?}: {:.0}/s, {:.0} + {:.0} us, p50 {:.1} p99 {:.1} ms, {:.0} bytes in {:.1} records of WAL, {:.1} \
                 requests per sync",
                cost.per_second,
                cost.ours,
                cost.servers,
                cost.p50_ms,
                cost.p99_ms,
                bytes / many as f64,
                records / many as f64,
                many as f64 / syncs
            );
        }
    }
    let hot = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'events'";
    let row = db.query_one(hot, &[]).await.unwrap();
    println!("events: {} updates, {} of them HOT", row.get::<_, i64>(0), row.get::<_, i64>(1));
}
