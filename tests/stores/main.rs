//! Every store against the conformance suite and against memory; SQLite with disk faults; PostgreSQL and Redis with
//! many nodes.
#![cfg_attr(feature = "durable-store", expect(clippy::unwrap_used, reason = "tests and their helpers may panic"))]

use hookonce::decide::time::Timestamp;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance;
use hookonce::store::conformance::StoreUnderTest;
use hookonce::store::memory::MemoryStore;
use hookonce::store::{DueEvents, DueQuery, Store, StoreError};
use std::sync::Arc;

#[cfg(feature = "sqlite")]
mod bit_rot;
#[cfg(feature = "postgres")]
mod contention;
#[cfg(all(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod copy_under_load;
#[cfg(feature = "postgres")]
#[path = "../support/cutter.rs"]
mod cutter;
#[cfg(feature = "postgres")]
mod dictionaries;
mod dictionary_versions;
#[cfg(feature = "sqlite")]
#[path = "../support/disk.rs"]
mod disk;
#[cfg(all(feature = "layer", feature = "sqlite", feature = "postgres", feature = "redis"))]
mod error_cause;
#[cfg(feature = "postgres")]
#[path = "../support/failing_pooler.rs"]
mod failing_pooler;
#[cfg(feature = "postgres")]
mod failover;
#[cfg(all(feature = "node", feature = "postgres"))]
mod indexes;
#[cfg(feature = "postgres")]
mod lost_commits;
#[cfg(all(feature = "node", feature = "sqlite", feature = "postgres"))]
mod migrate_down;
#[cfg(feature = "sqlite")]
#[path = "../support/mounted.rs"]
mod mounted;
#[cfg(feature = "postgres")]
mod pgbouncer;
#[cfg(feature = "postgres")]
mod pooler;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_refusals;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres_server;
#[cfg(feature = "sqlite")]
mod random_history;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_dictionaries;
#[cfg(feature = "redis")]
mod redis_ends;
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(feature = "redis")]
mod redis_many;
#[cfg(feature = "redis")]
#[path = "../support/redis.rs"]
mod redis_server;
#[cfg(feature = "redis")]
mod redis_sweep;
#[cfg(feature = "durable-store")]
#[path = "../support/seed.rs"]
mod seed;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_merges;
#[cfg(feature = "sqlite")]
mod sqlite_open;
#[cfg(feature = "sqlite")]
mod sqlite_sweep;
#[cfg(feature = "postgres")]
mod start_due;
#[cfg(feature = "postgres")]
mod statements;

/// All due events: waiting ones, then expired leases.
async fn due(store: &dyn Store, limit: usize) -> Result<[DueEvents; 2], StoreError> {
    Ok([store.due(DueQuery::Orphans(Arc::new([])), limit).await?, store.due(DueQuery::Leases, limit).await?])
}

const START: Timestamp = Timestamp(1_750_000_000_000_000);

#[tokio::test]
async fn memory_passes_the_conformance_suite() {
    conformance::run(async || {
        let clock = StoreClock::manual(START);
        StoreUnderTest::by(MemoryStore::new(clock.clone()), &clock)
    })
    .await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_passes_the_conformance_suite() {
    use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
    let dir = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicU32::new(0);
    conformance::run(async || {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = dir.path().join(format!("{n}.db"));
        let clock = StoreClock::manual(START);
        let store = SqliteStore::open_by(&path, SqliteAccess::Node, Some(clock.clone())).unwrap();
        let fresh = StoreUnderTest::by(store, &clock);
        fresh.running(hookonce::decide::sql_template::SqlDialect::Sqlite).spoiled_by(
            move |id: hookonce::decide::id::EventId| {
                let db = rusqlite::Connection::open(&path).unwrap();
                db.execute("update payloads set body = cast('As it came' as blob) where event = ?1", [id.0]).unwrap();
            },
        )
    })
    .await;
}
