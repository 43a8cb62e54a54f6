//! Kills a process whose SQLite store merges in the sizes of a release: no key is lost between a fresh table and its index.

use crate::random_history::folder;
use crate::seed::{self, Random};
use crate::sqlite::node;
use hookonce::decide::claim::ClaimResult;
use hookonce::store::Store;
use hookonce::store::StoreBackend;
use hookonce::store::conformance::making;
use hookonce::store::sqlite::SqliteStore;
use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BATCH: usize = 64;
/// Enough for a merge to begin while no one writes.
const BURST: usize = 36 * BATCH;

async fn claims(store: &SqliteStore, from: usize) -> Vec<ClaimResult> {
    let one = |n: usize| {
        let mut new = making().delivery(&format!("delivery-{n:08}")).recorded().made(store.now());
        // Each process counts the ids of its events from 1.
        new.event.id.0[8..12].copy_from_slice(&std::process::id().to_be_bytes());
        new.event.digest = new.event.immutable_digest();
        new.into()
    };
    store.claim((from..from + BATCH).map(one).collect()).await.unwrap()
}

fn acked(path: &Path) -> usize {
    std::fs::read_to_string(path.with_extension("acked")).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The child process of the next test: claims in bursts, and lets the store merge between them, until it is killed.
#[tokio::test]
#[ignore = "run by the next test, and killed"]
async fn claims_in_bursts() {
    let path = std::env::var("HOOKONCE_TEST_STORE").unwrap();
    let path = Path::new(&path);
    let store = node(path);
    let mut n = acked(path);
    loop {
        let end = n + BURST;
        while n < end {
            claims(&store, n).await;
            n += BATCH;
            let next = path.with_extension("next");
            std::fs::write(&next, n.to_string()).unwrap();
            std::fs::rename(next, path.with_extension("acked")).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(250)).await; // long enough for it to merge
    }
}

fn count(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn kills_while_merging_in_the_sizes_of_a_release_lose_no_key() {
    let rounds = if std::env::var_os("HOOKONCE_FULL").is_some() { 100 } else { 3 };
    let mut random = Random::new(seed::any());
    let dir = folder();
    let path = dir.path().join("a.db");
    let mut merged = 0;
    for _ in 0..rounds {
        let (before, began) = (acked(&path), Instant::now());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "sqlite_merges::claims_in_bursts"])
            .env("HOOKONCE_TEST_STORE", &path)
            .env("HOOKONCE_TEST_RELEASED_MERGES", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while acked(&path) < before + BURST && began.elapsed() < Duration::from_mins(1) {
            assert!(child.try_wait().unwrap().is_none(), "it claims until it is killed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(random.millis(0, 400)).await;
        child.kill().unwrap();
        child.wait().unwrap();

        let known = acked(&path);
        assert!(known >= before + BURST, "only {known} were claimed");
        let db = Connection::open(&path).unwrap();
        let lost = "select count(*) from keys where not exists (select 1 from key_index \
                    where key_index.key = substr(keys.key, 1, 16) and key_index.event = keys.event) \
                    and (substr(key, 1, 16), event) not in (select key, event from fresh_keys where not gone)";
        assert_eq!(count(&db, lost), 0, "every key is in the index or in the fresh table");
        assert_eq!(count(&db, "select count(*) - count(distinct delivery_id) from events"), 0);
        merged = merged.max(count(&db, "select count(*) from name_index"));
        drop(db);
        let store = node(&path);
        for from in (0..known).step_by(7 * BATCH) {
            for claim in claims(&store, from / BATCH * BATCH).await {
                assert!(matches!(claim, ClaimResult::Duplicate { .. }), "{claim:?}");
            }
        }
        // What was committed and not acknowledged is claimed again by the child.
        for claim in claims(&store, known).await {
            assert!(matches!(claim, ClaimResult::Duplicate { .. } | ClaimResult::New { .. }), "{claim:?}");
        }
    }
    assert!(merged > 0, "something was merged");
}
