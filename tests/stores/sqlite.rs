//! SQLite as a store: commits, notes of duplicates, full disks, and field columns.

use crate::disk::Disk;
use crate::random_history::folder;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{ClaimResult, MatchedBy};
use hookonce::decide::event::{Event, EventStep};
use hookonce::decide::id::NodeId;
use hookonce::decide::source::Route;
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::internals::cli::migrate::{self, DataLossConsent};
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::{TestEventBuilder, making};
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{
    DeclaredFields, DuplicateNote, DuplicateSighting, EventQuery, Inspect, Store, StoreBackend, StoreError, StoredValue,
};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn node(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteAccess::Node).unwrap()
}

pub(crate) async fn claim(store: &SqliteStore, one: TestEventBuilder) -> ClaimResult {
    let new = one.made(store.now());
    store.claim(vec![new.into()]).await.unwrap().remove(0)
}

pub(crate) async fn new(store: &SqliteStore, one: TestEventBuilder) -> Event {
    match claim(store, one).await {
        ClaimResult::New { event, .. } => *event,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn start(store: &SqliteStore, event: &Event) {
    start_as(store, event, ActionKind::Run).await;
}

async fn start_as(store: &SqliteStore, event: &Event, action: ActionKind) {
    let step = EventStep::Start { lasts: Duration::from_hours(1), by: NodeId("node".into()), action };
    let change = event.transition(step, &Route::default(), store.now()).unwrap();
    store.advance(vec![change]).await.unwrap();
}

pub(crate) fn claim_kind(claim: &ClaimResult) -> &'static str {
    match claim {
        ClaimResult::New { .. } => "new",
        ClaimResult::Duplicate { .. } => "duplicate",
        ClaimResult::Imported { .. } => "imported",
        ClaimResult::Stale { .. } => "stale",
        ClaimResult::Undecided => "again",
    }
}

fn of_source(fields: &[(String, bool)]) -> Vec<DeclaredFields> {
    vec![DeclaredFields { source: "source".into(), fields: fields.to_vec() }]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_counts_as_down_and_works_again_without_a_restart() {
    let Some(disk) = Disk::mount("size=2m") else { return };
    let path = disk.0.path().join("a.db");
    let store = node(&path);
    std::fs::write(disk.0.path().join("ballast"), vec![0; 600 << 10]).unwrap();
    let (mut acked, mut refused) = (Vec::new(), Vec::new());
    for n in 0..150 {
        let one = making().delivery(&format!("d{n}")).carrying(vec![b'x'; 10_000]);
        let id = one.id();
        match store.claim(vec![one.made(store.now()).into()]).await {
            Ok(_) => acked.push(id),
            Err(StoreError::Down(_)) => refused.push(id),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(acked.len() > 10 && refused.len() > 10, "{} {}", acked.len(), refused.len());
    assert_eq!(store.get(refused[0]).await.unwrap(), None);
    assert!(store.get(acked[0]).await.unwrap().is_some(), "reading still works");
    std::fs::remove_file(disk.0.path().join("ballast")).unwrap();
    acked.push(new(&store, making().delivery("after").carrying("body")).await.id);
    drop(store);
    let store = node(&path);
    for id in acked {
        assert!(matches!(store.payload(id).await.unwrap(), StoredValue::Whole(_)));
    }
    for id in refused {
        assert_eq!(store.get(id).await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_claims_share_a_commit_and_duplicates_need_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(node(&dir.path().join("a.db")));
    let batch = (0..64).map(|n| making().delivery(&format!("b{n}")).made(store.now()).into()).collect();
    store.claim(batch).await.unwrap();
    assert_eq!(store.commits(), 1);
    let answers: Vec<_> =
        (0..200).map(|n| store.claim(vec![making().delivery(&format!("d{n}")).made(store.now()).into()])).collect();
    for answer in answers {
        assert!(matches!(answer.await.unwrap()[0], ClaimResult::New { .. }));
    }
    let commits = store.commits() - 1;
    assert!(commits < 100, "{commits} commits for 200 claims that were there at once");

    let watcher = Connection::open(dir.path().join("a.db")).unwrap();
    let version = || watcher.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0)).unwrap();
    let (before, commits) = (version(), store.commits());
    for n in 0..50 {
        assert!(matches!(claim(&store, making().delivery(&format!("d{n}"))).await, ClaimResult::Duplicate { .. }));
    }
    assert_eq!((version(), store.commits()), (before, commits));
}

#[tokio::test]
async fn a_claim_whose_future_is_dropped_is_still_made() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let store = node(&path);
    let one = making().delivery("d1");
    drop(store.claim(vec![one.clone().made(store.now()).into()]));
    drop(store);
    assert!(node(&path).get(one.id()).await.unwrap().is_some());
}

#[tokio::test]
async fn notes_are_written_a_second_later_or_when_the_store_is_closed() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let store = node(&path);
    let event = new(&store, making().delivery("d1")).await.id;
    let sighting = DuplicateSighting { at: store.now(), delivery_id: Some("d1".into()), same: MatchedBy::Delivery };
    let note = vec![DuplicateNote { event, sighting }];
    let commits = store.commits();
    let begun = std::time::Instant::now();
    store.note_duplicates(note.clone()).await.unwrap();
    while store.commits() == commits {
        assert!(begun.elapsed() < Duration::from_mins(2), "it is not written");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "it was not delayed: {:?}", begun.elapsed());
    assert_eq!(store.commits(), commits + 1);
    assert_eq!(store.details(event).await.unwrap().unwrap().duplicates, 1);
    store.note_duplicates(note).await.unwrap();
    drop(store);
    assert_eq!(node(&path).details(event).await.unwrap().unwrap().duplicates, 2);
}

#[tokio::test]
async fn actions_that_ended_with_their_node_expire_at_once_and_the_others_by_the_clock() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let clock = StoreClock::manual(StoreClock::wall(Timestamp(0)).now());
    let open = |access| SqliteStore::open_by(&path, access, Some(clock.clone())).unwrap();
    let store = open(SqliteAccess::Node);
    let mut begun = Vec::new();
    for action in ActionKind::ALL {
        let event = new(&store, making().delivery(action.word())).await;
        start_as(&store, &event, action).await;
        begun.push(event.id);
    }
    let old = new(&store, making().delivery("old")).await;
    start(&store, &old).await;
    drop(store);
    let db = Connection::open(&path).unwrap();
    // As the first release wrote it.
    db.execute("update events set action_kind = null where id = ?1", [old.id.0]).unwrap();
    drop(db);
    let tool = open(SqliteAccess::Tool);
    assert!(super::due(&tool, 10).await.unwrap().iter().all(|due| due.events.is_empty()), "a tool leaves leases alone");
    drop(tool);
    let store = open(SqliteAccess::Node);
    let due = async || -> Vec<Event> {
        super::due(&store, 10).await.unwrap().into_iter().flat_map(|due| due.events).collect()
    };
    let ended: Vec<_> = due().await.iter().map(|event| event.delivery_id.clone().unwrap().to_string()).collect();
    assert_eq!(ended, ["run", "sql", "layer"]);
    for event in due().await {
        let expired = EventStep::Expire { jitter: hookonce::decide::retry::Jitter(0) };
        assert!(event.after(expired, &Route::default(), store.now()).is_ok());
    }
    clock.advance(Duration::from_hours(1));
    assert_eq!(due().await.len(), 6, "the others expire by the clock");
}

#[tokio::test]
async fn the_clock_starts_at_the_latest_time_in_the_store() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let ahead = StoreClock::manual(StoreClock::wall(Timestamp(0)).now() + Duration::from_hours(7 * 24));
    let store = SqliteStore::open_by(&path, SqliteAccess::Node, Some(ahead.clone())).unwrap();
    new(&store, making().delivery("d1").recorded()).await;
    drop(store);
    assert!(node(&path).now() >= ahead.now());
}

#[tokio::test]
async fn declared_fields_are_columns_by_their_name() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let store = node(&path);
    let event = new(&store, making().delivery("d1")).await;
    let fields: Vec<_> =
        [("tag", true), ("size", false), ("draft", false), ("state", true), ("Tag", false), ("o'n\"e", false)]
            .map(|(name, identity)| (name.to_owned(), identity))
            .into();
    assert_eq!(store.declare(of_source(&fields)).await.unwrap(), ["state", "Tag", "o'n\"e"]);
    assert_eq!(store.declare(of_source(&fields[..3])).await.unwrap(), [""; 0]);
    let db = Connection::open(&path).unwrap();
    let row = db.query_row("select delivery_id, tag, size, draft, state from events", [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
    });
    let expected = ("d1".to_owned(), "latest".to_owned(), 9_007_199_254_740_993_i64, false, "waiting".to_owned());
    assert_eq!(row.unwrap(), expected);
    let plan = "explain query plan select id from events where tag = 'latest'";
    let plan: String = db.query_row(plan, [], |row| row.get(3)).unwrap();
    assert!(plan.contains("events_field_tag"), "{plan}");
    start(&store, &event).await;
    new(&store, making().delivery("d2")).await;
    drop(store);
    assert_eq!(node(&path).list(EventQuery { limit: 10, ..EventQuery::default() }).await.unwrap().len(), 2);
}

#[tokio::test]
async fn up_down_and_up_again_leaves_the_same_schema_even_with_declared_fields() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let schema = || {
        let db = Connection::open(&path).unwrap();
        let mut rows = db.prepare("select type, name, sql from sqlite_schema order by 1, 2").unwrap();
        let one = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let all =
            rows.query_map([], one).unwrap().collect::<Result<Vec<(String, String, Option<String>)>, _>>().unwrap();
        // A column that a migration adds comes after the declared ones, if these existed before.
        let columns = "select group_concat(name || ' ' || type || ' ' || \"notnull\" || ' ' || hidden) \
             from (select * from pragma_table_xinfo('events') order by name)";
        let columns: Option<String> = db.query_row(columns, [], |row| row.get(0)).unwrap();
        let in_order =
            |(kind, name, sql)| if name == "events" { (kind, name, columns.clone()) } else { (kind, name, sql) };
        all.into_iter().map(in_order).collect::<Vec<_>>()
    };
    drop(node(&path));
    let plain = schema();
    for to in [2, 1, 0] {
        let store = node(&path);
        store.declare(of_source(&[("tag".into(), true), ("size".into(), false)])).await.unwrap();
        let event = new(&store, making().delivery("d1").carrying("body")).await;
        start(&store, &event).await;
        drop(store);
        let declared = schema();
        migrate::down(&path, to, DataLossConsent::Given, &mut Vec::new()).unwrap();
        migrate::up(&path, None, &mut Vec::new()).unwrap();
        if to > 0 {
            assert_eq!(schema(), declared, "{to}");
            let store = node(&path);
            assert_eq!(claim_kind(&claim(&store, making().delivery("d1")).await), "duplicate");
            let body = store.payload(event.id).await.unwrap();
            assert!(matches!((to, body), (2, StoredValue::Whole(_)) | (1, StoredValue::Forgotten)));
            drop(store);
            migrate::down(&path, 0, DataLossConsent::Given, &mut Vec::new()).unwrap();
            migrate::up(&path, None, &mut Vec::new()).unwrap();
        }
        assert_eq!(schema(), plain, "{to}");
    }
}
