//! Tests of the index that is made behind the claims: whatever is merged at the moment, each key and each name is found.

use super::{FRESH_ROWS_MAX, IdleMerge, MERGED_AT};
use crate::decide::claim::ClaimResult;
use crate::decide::id::EventId;
use crate::store::conformance::making;
use crate::store::sqlite::{SqliteAccess, SqliteStore};
use crate::store::{Administer, DuplicateLookup, Inspect, RemovalResult, Store, StoreBackend};
use std::path::Path;

fn open(path: &Path, access: SqliteAccess) -> SqliteStore {
    SqliteStore::open(path, access).expect("it opens")
}

fn delivery(n: usize) -> String {
    format!("delivery-{n}")
}

/// Claims these deliveries, each in a transaction of its own.
async fn claim(store: &SqliteStore, numbers: impl Iterator<Item = usize>) -> Vec<EventId> {
    let mut ids = Vec::new();
    for n in numbers {
        let new = making().delivery(&delivery(n)).recorded().made(store.now());
        ids.push(new.event.id);
        let claimed = store.claim(vec![new.into()]).await.expect("it is claimed");
        assert!(matches!(claimed[..], [ClaimResult::New { .. }]), "{n}: {claimed:?}");
    }
    ids
}

/// Each of these events is found by its key and by its names, in this process and in another.
async fn check_found(store: &SqliteStore, path: &Path, ids: &[EventId]) {
    let other = open(path, SqliteAccess::Read);
    for (n, id) in ids.iter().enumerate() {
        let again = || making().delivery(&delivery(n)).recorded().made(store.now());
        let known = store.find_duplicate(&again(), DuplicateLookup::Standing).await.expect("it reads");
        assert!(known.is_none_or(|known| known.event.id == *id), "{n}, by a reader");
        for store in [store, &other] {
            let claims = store.preview_claim(vec![again()]).await.expect("it reads");
            let [ClaimResult::Duplicate { event, .. }] = &claims[..] else { panic!("{n}: {claims:?}") };
            assert_eq!(event.id, *id, "{n}");
            for name in [delivery(n), id.short(), id.to_string()] {
                let found = store.find_by_name(name.clone(), 3).await.expect("it reads");
                assert_eq!(found.iter().map(|event| event.id).collect::<Vec<_>>(), [*id], "{name}");
            }
        }
    }
    let claims =
        store.claim((0..ids.len()).map(|n| making().delivery(&delivery(n)).made(store.now()).into()).collect());
    for claim in claims.await.expect("they are answered") {
        assert!(matches!(claim, ClaimResult::Duplicate { .. }), "{claim:?}");
    }
}

async fn rows(store: &SqliteStore, table: &'static str) -> i64 {
    let count = format!("select count(*) from {table}");
    store.read(move |db| db.query_row(&count, [], |row| row.get(0))).await.expect("it reads")
}

/// Waits until nothing is left to merge while no one writes.
async fn merged(store: &SqliteStore) {
    loop {
        let left = store.ask(0, 0, |rows| {
            Ok(matches!(&rows.fresh, super::FreshKeys::Writer(index) if index.idle_merge() != IdleMerge::Nothing))
        });
        if !left.await.expect("it answers") {
            return;
        }
        // The writer merges only while it has no job.
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    }
}

#[tokio::test]
async fn every_key_and_name_is_found_at_each_stage_of_a_merge_and_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.db");
    let mut store = open(&path, SqliteAccess::Node);
    let mut ids = Vec::new();
    let all = 4 * usize::try_from(MERGED_AT).expect("a small number");
    while ids.len() < all {
        let from = ids.len();
        ids.extend(claim(&store, from..from + 7).await);
        check_found(&store, &path, &ids).await;
        let fresh = rows(&store, "fresh_keys").await;
        assert!(u64::try_from(fresh).is_ok_and(|fresh| fresh <= FRESH_ROWS_MAX), "{fresh} rows are fresh");
        if from % 5 == 0 {
            drop(store);
            store = open(&path, SqliteAccess::Node);
            check_found(&store, &path, &ids).await;
        }
    }
    assert!(rows(&store, "key_index").await > 0, "something was merged");
    merged(&store).await;
    assert!(rows(&store, "fresh_keys").await < i64::try_from(MERGED_AT).expect("a small number"));
    check_found(&store, &path, &ids).await;
}

#[tokio::test]
async fn what_is_removed_leaves_the_indexes_too_and_can_be_claimed_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.db");
    let store = open(&path, SqliteAccess::Node);
    let all = 3 * usize::try_from(MERGED_AT).expect("a small number");
    let mut ids = claim(&store, 0..all).await;
    let removed = store.remove_all(ids.clone()).await.expect("they are removed");
    assert!(removed.iter().all(|one| *one == RemovalResult::Removed));
    for (n, id) in ids.iter().enumerate() {
        for name in [delivery(n), id.short()] {
            assert_eq!(store.find_by_name(name, 3).await.expect("it reads"), []);
        }
    }
    ids = claim(&store, 0..all).await;
    check_found(&store, &path, &ids).await;
    store.remove_all(ids).await.expect("they are removed");
    // What is left in the fresh tables is too little to be merged; it goes with what comes next.
    claim(&store, all..all + 2 * usize::try_from(MERGED_AT).expect("a small number")).await;
    merged(&store).await;
    for (table, most) in [("key_index", 3 * MERGED_AT), ("name_index", 6 * MERGED_AT)] {
        let left = rows(&store, table).await;
        assert!(u64::try_from(left).is_ok_and(|left| left <= most), "{left} rows are left in {table}");
    }
}

#[tokio::test]
async fn what_is_rolled_back_is_not_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.db");
    let store = open(&path, SqliteAccess::Node);
    let new = making().delivery(&delivery(0)).recorded().made(store.now());
    let failing = new.clone();
    let failed = store.ask(1, 0, move |rows| {
        let at = rows.at;
        crate::decide::ledger::claim(rows, &failing, at)?;
        // As on a full disk: the claim before it is rolled back with it.
        rows.db.execute_batch("insert or rollback into schema_migrations values (1, '', '', 1, 1)")
    });
    failed.await.expect_err("it is rolled back");
    let again = making().delivery(&delivery(0)).recorded().made(store.now());
    let known = store.find_duplicate(&again, DuplicateLookup::Standing).await.expect("it reads");
    assert_eq!(known, None);
    let claims = store.preview_claim(vec![again]).await.expect("it reads");
    assert!(matches!(claims[..], [ClaimResult::New { .. }]), "{claims:?}");
}

#[tokio::test]
async fn an_event_with_another_delivery_id_is_found_by_it_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.db");
    let store = open(&path, SqliteAccess::Node);
    let long = |end: &str| format!("{}{end}", "ä".repeat(70));
    let mut ids = Vec::new();
    for end in ["one", "two"] {
        let new = making().delivery(&long(end)).recorded().made(store.now());
        ids.push(new.event.id);
        store.claim(vec![new.into()]).await.expect("it is claimed");
    }
    for (end, id) in ["one", "two"].into_iter().zip(ids) {
        let found = store.find_by_name(long(end), 3).await.expect("it reads");
        assert_eq!(found.iter().map(|event| event.id).collect::<Vec<_>>(), [id], "names that begin alike");
    }
    assert_eq!(store.find_by_name(long("three"), 3).await.expect("it reads"), []);
}
