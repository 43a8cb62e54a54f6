//! Tests of the index that is made behind the claims: whatever is merged at the moment, each key and each name is found.

use super::{IdleMerge, MergeSizes};
use crate::decide::claim::ClaimResult;
use crate::decide::id::EventId;
use crate::store::conformance::making;
use crate::store::sqlite::{SqliteAccess, SqliteStore};
use crate::store::{Administer, DuplicateLookup, Inspect, RemovalResult, Store, StoreBackend};
use std::path::Path;

fn merged_at() -> u64 {
    MergeSizes::current().merged_at()
}

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
    let all = 4 * usize::try_from(merged_at()).expect("a small number");
    while ids.len() < all {
        let from = ids.len();
        ids.extend(claim(&store, from..from + 7).await);
        check_found(&store, &path, &ids).await;
        let fresh = rows(&store, "fresh_keys").await;
        assert!(
            u64::try_from(fresh).is_ok_and(|fresh| fresh <= MergeSizes::current().fresh_rows_max),
            "{fresh} rows are fresh"
        );
        if from % 5 == 0 {
            drop(store);
            store = open(&path, SqliteAccess::Node);
            check_found(&store, &path, &ids).await;
        }
    }
    assert!(rows(&store, "key_index").await > 0, "something was merged");
    merged(&store).await;
    assert!(rows(&store, "fresh_keys").await < i64::try_from(merged_at()).expect("a small number"));
    check_found(&store, &path, &ids).await;
}

#[tokio::test]
async fn what_is_removed_leaves_the_indexes_too_and_can_be_claimed_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.db");
    let store = open(&path, SqliteAccess::Node);
    let all = 3 * usize::try_from(merged_at()).expect("a small number");
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
    claim(&store, all..all + 2 * usize::try_from(merged_at()).expect("a small number")).await;
    merged(&store).await;
    for (table, most) in [("key_index", 3 * merged_at()), ("name_index", 3 * merged_at())] {
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
    let long = |begin: &str| format!("{begin}{}", "ä".repeat(70));
    let mut ids = Vec::new();
    for begin in ["one", "two"] {
        let new = making().delivery(&long(begin)).recorded().made(store.now());
        ids.push(new.event.id);
        store.claim(vec![new.into()]).await.expect("it is claimed");
    }
    for (begin, id) in ["one", "two"].into_iter().zip(ids) {
        let found = store.find_by_name(long(begin), 3).await.expect("it reads");
        assert_eq!(found.iter().map(|event| event.id).collect::<Vec<_>>(), [id], "names that end alike");
    }
    assert_eq!(store.find_by_name(long("three"), 3).await.expect("it reads"), []);
}

/// Runs these statements in the writer's next transaction.
async fn run(store: &SqliteStore, sql: &'static str) {
    store.ask(1, 0, move |rows| rows.db.execute_batch(sql)).await.expect("it is done");
}

async fn total_changes(store: &SqliteStore) -> u64 {
    store.ask(1, 0, |rows| Ok(rows.db.total_changes())).await.expect("it answers")
}

/// Lets every merge of more than two keys fail, as on a full disk.
const FAIL: &str = "create temp trigger fails before insert on main.key_index when (select count(*) from key_index) > 2 \
    begin select raise(abort, 'no room'); end";

#[tokio::test]
async fn no_claim_fails_because_merging_does_and_merging_pauses() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.db");
    let store = open(&path, SqliteAccess::Node);
    run(&store, FAIL).await;
    let all = 6 * usize::try_from(merged_at()).expect("a small number");
    let ids = claim(&store, 0..all).await;
    assert!(store.failed().borrow().is_none());
    check_found(&store, &path, &ids).await;
    let (before, began) = (total_changes(&store).await, std::time::Instant::now());
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    let tried = total_changes(&store).await - before;
    let most = 40 * (began.elapsed().as_secs() + 2);
    assert!(tried <= most, "{tried} entries were tried in {:?}", began.elapsed());
    run(&store, "drop trigger fails").await;
    drop(store);
    let store = open(&path, SqliteAccess::Node);
    merged(&store).await;
    assert!(rows(&store, "key_index").await > i64::try_from(all / 2).expect("a small number"));
    check_found(&store, &path, &ids).await;
}

#[tokio::test]
async fn a_damaged_fresh_row_loses_no_key_when_it_is_merged() {
    for damage in [
        "update fresh_keys set key = x'00' where n = 2",
        "update fresh_keys set key = zeroblob(16) where n = 2",
        "update fresh_keys set event = x'00' where n in (1, 3)",
        "update fresh_keys set gone = 1 where n = 2",
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.db");
        let store = open(&path, SqliteAccess::Node);
        let few = usize::try_from(merged_at() / 2).expect("a small number");
        let mut ids = claim(&store, 0..few).await;
        let hurt = store.ask(1, 0, move |rows| rows.db.execute_batch(damage)).await;
        hurt.expect("it is damaged");
        ids.extend(claim(&store, few..8 * few).await);
        merged(&store).await;
        check_found(&store, &path, &ids).await;
        drop(store);
        check_found(&open(&path, SqliteAccess::Node), &path, &ids).await;
    }
}

#[tokio::test]
async fn a_damaged_entry_is_made_again_when_the_file_is_opened() {
    for damage in [
        "update fresh_keys set key = x'00' where n = (select max(n) from fresh_keys)",
        "update fresh_keys set gone = 1 where n = (select max(n) from fresh_keys)",
        "update fresh_keys set key = zeroblob(16) where n = (select max(n) from fresh_keys)",
        "update fresh_names set event = x'00' where n = (select max(n) from fresh_names)",
        "update key_index set key = zeroblob(16) where key = (select max(key) from key_index)",
        "delete from key_index; delete from name_index",
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.db");
        let store = open(&path, SqliteAccess::Node);
        let ids = claim(&store, 0..3 * usize::try_from(merged_at()).expect("a small number")).await;
        merged(&store).await;
        drop(store);
        rusqlite::Connection::open(&path).expect("it opens").execute_batch(damage).expect("it is damaged");
        let store = open(&path, SqliteAccess::Node);
        check_found(&store, &path, &ids).await;
    }
}

#[tokio::test]
async fn an_event_with_a_damaged_key_can_be_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.db");
    let store = open(&path, SqliteAccess::Node);
    let ids = claim(&store, 0..2).await;
    let hurt = store.ask(1, 0, |rows| {
        rows.db.execute_batch("update keys set key = x'00' where event = (select min(event) from keys)")
    });
    hurt.await.expect("it is damaged");
    let removed = store.remove_all(ids.clone()).await.expect("they are removed");
    assert_eq!(removed, [RemovalResult::Removed, RemovalResult::Removed]);
    assert!(store.failed().borrow().is_none());
}
