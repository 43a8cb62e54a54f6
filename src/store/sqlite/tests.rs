//! Tests of internals: which index a query uses, and a database that cannot grow.

use super::list::OLDEST_OPEN;
use super::queries::{COUNT_OF_SOURCE, SOURCES};
use super::rows::{FORGETTABLE, INDEXED_KEY, OLD_BODIES, PARKED};
use super::{SqliteAccess, SqliteStore, queries};
use crate::decide::claim::{ClaimResult, DuplicateTarget, MatchedBy};
use crate::decide::event::EventStep;
use crate::decide::ledger::RetentionPolicies;
use crate::decide::source::{Keep, Retention, Route};
use crate::decide::time::Duration;
use crate::store::batch::Batcher;
use crate::store::conformance::making;
use crate::store::{AdvanceResult, DuplicateLookup, Store, StoreBackend, StoreError, StoredValue};
use rusqlite::{Connection, StatementStatus};
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteAccess::Node).unwrap()
}

fn check_plan(db: &Connection, sql: &str, index: &str) {
    let mut plan = db.prepare(&format!("explain query plan {sql}")).unwrap();
    let count = plan.parameter_count();
    let lines: Vec<String> =
        plan.query_map(rusqlite::params_from_iter(vec![1; count]), |row| row.get(3)).unwrap().flatten().collect();
    let plan = lines.join("\n");
    assert!(plan.contains(index), "{sql}\n{plan}");
    assert!(lines.iter().all(|line| line != "SCAN events") && !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
}

#[tokio::test]
async fn every_query_on_the_hot_path_uses_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("a.db"));
    let db = super::open::reader(&dir.path().join("a.db")).unwrap();
    check_plan(&db, FORGETTABLE, "events_keep (source=? AND body=? AND keep_from<?)");
    check_plan(&db, OLD_BODIES, "events_keep (source=? AND body=? AND keep_from<?)");
    check_plan(&db, OLD_BODIES, "events_body (source=? AND ended_at<?)");
    check_plan(&db, PARKED, "events_parked");
    check_plan(&db, SOURCES, "events_source");
    check_plan(&db, COUNT_OF_SOURCE, "events_source");
    check_plan(&db, queries::DUE_ON_ROUTE, "events_due");
    // The events of other receivers are not scanned.
    check_plan(&db, queries::DUE_AT_RECEIVER, "events_due_part (source=? AND route=? AND part=?");
    check_plan(&db, queries::NEXT_RECEIVER, "events_due_part (source=? AND route=? AND part>? AND part<?");
    check_plan(&db, queries::ROUTES_IN_USE, "events_due");
    check_plan(&db, OLDEST_OPEN, "events_open");
    check_plan(&db, queries::ENDING_IN_BYTES, "COVERING INDEX events_source");
    check_plan(&db, "update events set wake_at = 1 where state = 'running' and wake_at > 1", "events_due");
    drop(store);
}

#[tokio::test]
async fn a_statement_on_the_hot_path_is_parsed_once_whatever_its_parameters_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("a.db"));
    let db = super::open::reader(&dir.path().join("a.db")).unwrap();
    for sql in [INDEXED_KEY, PARKED, queries::DUE_ON_ROUTE, queries::DUE_AT_RECEIVER] {
        let mut statement = db.prepare(sql).unwrap();
        for value in 0..10 {
            let parameters = vec![value; statement.parameter_count()];
            assert!(!statement.exists(rusqlite::params_from_iter(parameters)).unwrap());
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{sql}");
    }
    drop(store);
}

#[tokio::test]
async fn a_body_is_kept_from_the_end_of_its_event_also_where_the_event_is_kept_from_earlier_or_later() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("a.db"));
    let new = making().source("source").carrying(vec![b'a'; 10]).recorded().made(store.now());
    let id = new.event.id;
    store.claim(vec![new.into()]).await.unwrap();
    let day = Duration::from_hours(24);
    let kept = Retention { keys: Keep::Forever, body: day * 7 };
    let policies = Arc::new(RetentionPolicies { sources: [("source".into(), kept)].into() });
    let now = store.now();
    let forget = async |ended: u32, keep_from: Option<u32>| {
        let at = |days: u32| now.0 - i64::try_from((day * days).as_micros()).unwrap();
        let times = (at(ended), keep_from.map(at));
        let set = store.ask(1, 0, move |rows| {
            let sql = "update events set ended_at = ?2, keep_from = ?3 where id = ?1";
            rows.db.execute(sql, (id.0, times.0, times.1))
        });
        set.await.unwrap();
        store.forget(policies.clone(), 10).await.unwrap().bodies
    };
    for keep_from in [None, Some(0), Some(6), Some(10)] {
        assert_eq!(forget(6, keep_from).await, 0, "{keep_from:?}");
    }
    assert_eq!(forget(8, Some(0)).await, 1, "kept from later");
    assert_eq!(forget(8, Some(8)).await, 0, "it is gone");
}

#[tokio::test]
async fn an_event_is_forgotten_whatever_is_in_its_damaged_cell_for_the_body() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("a.db"));
    let (day, now) = (Duration::from_hours(24), store.now());
    let kept = Retention { keys: Keep::For(day), body: day };
    let policies = Arc::new(RetentionPolicies { sources: [("source".into(), kept)].into() });
    for body in [0, 1, 7] {
        let new = making().source("source").recorded().made(now);
        let (id, before) = (new.event.id, now.0 - i64::try_from((day * 2).as_micros()).unwrap());
        store.claim(vec![new.into()]).await.unwrap();
        let set = store.ask(1, 0, move |rows| {
            let sql = "update events set body = ?2, ended_at = ?3, keep_from = ?3 where id = ?1";
            rows.db.execute(sql, (id.0, body, before))
        });
        set.await.unwrap();
        assert_eq!(store.forget(policies.clone(), 10).await.unwrap().events, 1, "{body}");
    }
}

async fn page_limit(store: &SqliteStore, more: Option<i64>) {
    let set = store.ask(1, 0, move |rows| {
        let pages: i64 = rows.db.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let limit = more.map_or(1 << 30, |more| pages + more);
        rows.db.pragma_update_and_check(None, "max_page_count", limit, |row| row.get::<_, i64>(0))
    });
    set.await.unwrap();
}

/// Bytes that do not compress.
fn unpackable(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed + 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(next).collect()
}

#[tokio::test]
async fn a_full_database_is_down_writes_nothing_and_works_again_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let store = open(&path);
    page_limit(&store, Some(64)).await;
    let (mut acked, mut refused) = (Vec::new(), Vec::new());
    for n in 0..60 {
        let one = making().delivery(&format!("d{n}")).carrying(unpackable(n, 10_000));
        let (id, now) = (one.id(), store.now());
        match store.claim(vec![one.made(now).into()]).await {
            Ok(_) => acked.push(id),
            Err(StoreError::Down(_)) => refused.push(id),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(!acked.is_empty() && refused.len() > 10, "{} {}", acked.len(), refused.len());
    for id in &refused {
        assert_eq!(store.get(*id).await.unwrap(), None);
        assert_eq!(store.payload(*id).await.unwrap(), StoredValue::Forgotten);
    }
    page_limit(&store, None).await;
    store
        .claim(vec![making().delivery("after").carrying(unpackable(0, 100_000)).made(store.now()).into()])
        .await
        .unwrap();
    assert!(store.failed().borrow().is_none());
    drop(store);
    let store = open(&path);
    for id in &acked {
        assert!(matches!(store.payload(*id).await.unwrap(), StoredValue::Whole(_)));
    }
}

#[tokio::test]
async fn a_writer_that_panics_stops_the_store_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("a.db"));
    let mut failed = store.failed();
    let answer: Result<(), _> = store.ask(1, 0, |_| panic!("our own bug")).await;
    assert!(matches!(answer, Err(StoreError::Unsure(_))), "{answer:?}");
    failed.wait_for(Option::is_some).await.unwrap();
    let after = store.claim(vec![making().made(store.now()).into()]).await;
    assert!(matches!(after, Err(StoreError::Broken(_))), "{after:?}");
}

#[tokio::test]
async fn an_error_in_one_task_rolls_back_its_whole_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("a.db"));
    let answer: Result<(), _> = store
        .ask(1, 0, |rows| {
            rows.db.execute("insert into scopes values ('a', 'b')", [])?;
            rows.db.execute_batch("insert into nowhere values (1)")
        })
        .await;
    assert!(matches!(answer, Err(StoreError::Broken(_))), "{answer:?}");
    drop(store);
    let store = open(&dir.path().join("a.db"));
    let left = store.read(|db| db.query_row("select count(*) from scopes", [], |row| row.get::<_, i64>(0)));
    assert_eq!(left.await.unwrap(), 0);
}

#[tokio::test]
async fn a_duplicate_is_answered_while_the_writer_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("a.db"));
    let first = making().delivery("d1").made(store.now());
    store.claim(vec![first.clone().into()]).await.unwrap();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let busy = store.ask(1, 0, move |_| Ok(wait.recv().is_ok()));
    let told =
        store.find_duplicate(&making().delivery("d1").made(store.now()), DuplicateLookup::Standing).await.unwrap();
    let told = told.expect("the lookup does not wait for the writer");
    assert_eq!((told.event.id, told.same, told.target), (first.event.id, MatchedBy::Delivery, DuplicateTarget::Direct));
    assert_eq!(
        store.find_duplicate(&first, DuplicateLookup::Standing).await.unwrap(),
        None,
        "an event is no duplicate of itself"
    );
    go_on.send(()).unwrap();
    assert!(busy.await.unwrap());
}

#[tokio::test]
async fn a_claim_and_a_transition_that_are_queued_together_are_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&dir.path().join("a.db")));
    let batch = Batcher::start(store.clone(), Arc::default());
    let first = making().delivery("first").made(store.now());
    let claimed = batch.claim(first.into(), Box::new(|_| {})).await.unwrap();
    let ClaimResult::New { event, .. } = claimed else { panic!("{claimed:?}") };
    let change = event.transition(EventStep::Cancel, &Route::default(), store.now()).unwrap();
    let before = store.commits();
    let second = making().delivery("second").made(store.now());
    let (claimed, advanced) = tokio::join!(batch.claim(second.into(), Box::new(|_| {})), batch.advance(change));
    assert!(matches!(claimed, Ok(ClaimResult::New { .. })), "{claimed:?}");
    assert!(matches!(advanced, Ok(AdvanceResult::Written { .. })), "{advanced:?}");
    assert_eq!(store.commits(), before + 1);
}
