//! Copies from one file into another: interrupted, changed on the way, and given up.

use super::*;
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::{ClaimResult, MatchedBy};
use crate::decide::event::{EventStep, Outcome, Receipt, SucceededBlocks};
use crate::decide::id::NodeId;
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::limits;
use crate::decide::retry::Jitter;
use crate::decide::source::Route;
use crate::store::clock::StoreClock;
use crate::store::conformance;
use crate::store::conformance::making;
use crate::store::inspect::QuarantinedMessage;
use crate::store::sqlite::{SqliteAccess, SqliteOpenError, SqliteStore};
use crate::store::{
    Administer, AdvanceResult, DueQuery, DuplicateNote, DuplicateSighting, Inspect, Store, StoreBackend,
};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const START: Timestamp = Timestamp(1_750_000_000_000_000);

/// Events in the source that [`fill_file`] makes.
const EVENTS: u64 = 600;

fn open(path: &Path, access: SqliteAccess) -> std::result::Result<SqliteStore, SqliteOpenError> {
    SqliteStore::open_by(path, access, Some(StoreClock::manual(START)))
}

/// A store with at least one entry of every kind.
async fn fill_file(path: &Path) {
    let store = open(path, SqliteAccess::Node).expect("it opens");
    let event = |n: usize| {
        let mut one = making().delivery(&format!("d{n}")).body(format!("body {n}").repeat(1 + n % 400));
        if n.is_multiple_of(3) {
            let subject = format!("s{}", n % 5);
            one = one.change(&subject, &format!("v{n}"), i64::try_from(n).ok()).group(&subject);
        }
        one.made(START)
    };
    store
        .claim((0..usize::try_from(EVENTS).expect("few")).map(|n| event(n).into()).collect())
        .await
        .expect("it claims");
    let due = store.due(DueQuery::Orphans(Arc::new([])), 50).await.expect("it reads").events;
    for event in due {
        let start =
            EventStep::Start { lasts: Duration::from_secs(30), by: NodeId("n".into()), action: ActionKind::Run };
        let change = event.transition(start, &Route::default(), START).expect("it starts");
        let AdvanceResult::Written { event, .. } = store.advance(vec![change]).await.expect("it writes").remove(0)
        else {
            panic!("lost")
        };
        let receipt = Receipt { status: 201, headers: Vec::new(), body: b"made".to_vec(), truncated: false };
        let settle = EventStep::Settle {
            outcome: Outcome::Delivered(Some(receipt)),
            blocks: SucceededBlocks(1),
            jitter: Jitter(0),
        };
        let change = event.transition(settle, &Route::default(), START).expect("it settles");
        store.advance(vec![change]).await.expect("it writes");
        let sighting = DuplicateSighting { at: START, delivery_id: Some("again".into()), same: MatchedBy::Delivery };
        store.note_duplicates(vec![DuplicateNote { event: event.id, sighting }; 20]).await.expect("it notes");
    }
    store.import(vec![conformance::imported("a"), conformance::imported("b")]).await.expect("it imports");
    let recipe = |scope: &str, since| IdentityRecipe { scope: scope.into(), once: "o".into(), since };
    store.set_recipes(vec![recipe("s", None), recipe("t", Some(START))]).await.expect("it remembers");
    for n in 0..3 {
        let (source, head) = ("q".into(), Bytes::from_static(b"head"));
        let (message, subject, why) = (format!("m{n}"), "x".into(), "odd".into());
        let message = QuarantinedMessage { source, message, subject, at: START, why, bytes: 4, head };
        store.quarantine(message).await.expect("it is quarantined");
    }
}

/// Two paths in one folder, the first with a store in it.
async fn two() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let (a, b) = (dir.path().join("a.db"), dir.path().join("b.db"));
    fill_file(&a).await;
    (dir, a, b)
}

fn to_copy(path: &Path) -> SqliteStore {
    open(path, SqliteAccess::Copy).expect("it opens to be copied")
}

/// Opening this store must be refused, with this text.
fn check_refused(path: &Path, access: SqliteAccess, words: &str) {
    let why = open(path, access).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(why.contains(words), "{access:?} {}: {why:?}", path.display());
}

/// A store that fails after a number of fills, or runs a step before it is first read.
struct FaultyCopyStore<'s> {
    store: &'s SqliteStore,
    fills: AtomicUsize,
    before: Mutex<Option<InterleavedStep<'s>>>,
    /// Run the step before the mark is removed instead.
    at_the_end: bool,
}

type InterleavedStep<'s> = Box<dyn Future<Output = ()> + Send + 's>;

impl<'s> FaultyCopyStore<'s> {
    fn after(fills: usize, store: &'s SqliteStore) -> Self {
        Self { store, fills: AtomicUsize::new(fills), before: Mutex::default(), at_the_end: false }
    }

    /// Runs this step before the store is first read.
    fn before_it_is_read(store: &'s SqliteStore, happens: impl Future<Output = ()> + Send + 's) -> Self {
        Self { before: Mutex::new(Some(Box::new(happens))), ..Self::after(usize::MAX, store) }
    }

    /// Runs this step before the store's mark is removed.
    fn before_its_end(store: &'s SqliteStore, happens: impl Future<Output = ()> + Send + 's) -> Self {
        Self { at_the_end: true, ..Self::before_it_is_read(store, happens) }
    }

    async fn let_happen(&self) {
        let happens = self.before.lock().expect("not poisoned").take();
        if let Some(happens) = happens {
            Box::into_pin(happens).await;
        }
    }
}

impl ExportStore for FaultyCopyStore<'_> {
    fn export(&self, from: CopyCursor, limit: usize) -> StoreFuture<'_, ExportPage> {
        Box::pin(async move {
            if !self.at_the_end {
                self.let_happen().await;
            }
            self.store.export(from, limit).await
        })
    }

    fn entries(&self) -> StoreFuture<'_, u64> {
        self.store.entries()
    }
}

impl CopyStore for FaultyCopyStore<'_> {
    fn fill(&self, entries: Vec<CopyEntry>, notes: Vec<CopyRegisterCas>) -> StoreFuture<'_, bool> {
        if self.fills.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Box::pin(std::future::ready(Err(StoreError::Down("told to fail".into()))));
        }
        let is_end = notes.iter().any(|note| note.key == MARK && note.is.is_none());
        Box::pin(async move {
            if self.at_the_end && is_end {
                self.let_happen().await;
            }
            self.store.fill(entries, notes).await
        })
    }

    fn noted(&self, key: Key) -> StoreFuture<'_, Option<SubjectRegister>> {
        self.store.noted(key)
    }

    fn clear_recipes(&self, mark: SubjectRegister) -> StoreFuture<'_, bool> {
        self.store.clear_recipes(mark)
    }

    fn pass_turns(&self, highest: QueueTurn) -> StoreFuture<'_, ()> {
        self.store.pass_turns(highest)
    }

    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>> {
        self.store.last_seen()
    }

    fn set_last_seen(&self, time: Timestamp) -> StoreFuture<'_, ()> {
        self.store.set_last_seen(time)
    }

    fn in_use(&self) -> StoreFuture<'_, Option<String>> {
        self.store.in_use()
    }

    fn now(&self) -> Timestamp {
        CopyStore::now(self.store)
    }

    fn clock_follows_events(&self) -> bool {
        self.store.clock_follows_events()
    }

    fn open_events(&self) -> StoreFuture<'_, u64> {
        self.store.open_events()
    }
}

/// Every row of every table, as text, without what is not copied.
fn dump(path: &Path) -> Vec<String> {
    let db = rusqlite::Connection::open(path).expect("it opens");
    let names = |sql: &str, of: &str| -> Vec<String> {
        let mut rows = db.prepare(sql).expect("it is SQL");
        let rows = rows.query_map([of], |row| row.get(0)).expect("it reads");
        rows.collect::<std::result::Result<_, _>>().expect("names")
    };
    let tables = names("select name from sqlite_schema where type = ?1 and name not like 'sqlite_%'", "table");
    let mut all = Vec::new();
    // How much of an index is merged belongs to the file, too.
    let indexed = |of: &str, column: &str| {
        let sql = format!(
            "select ?1 || ' ' || quote({column}) || ' ' || quote(event) from (select {column}, event from {of}_index \
             union select {column}, event from fresh_{of}s where not gone)"
        );
        names(&sql, of)
    };
    all.extend([indexed("key", "key"), indexed("name", "name")].concat());
    let merged = ["key_index", "name_index", "fresh_keys", "fresh_names", "schema_migrations"];
    for table in tables.iter().filter(|table| !merged.contains(&table.as_str())) {
        // Row numbers and generated columns belong to the file.
        let columns = names("select name from pragma_table_info(?1)", table);
        let columns: Vec<_> = columns.iter().filter(|column| !["n", "id"].contains(&&***column)).collect();
        let columns =
            columns.iter().map(|column| format!("quote(\"{column}\")")).collect::<Vec<_>>().join(" || ' ' || ");
        let which = if table == "registers" { "where substr(key, 1, 10) <> cast('hookonce: ' as blob)" } else { "" };
        let sql = format!("select ?1 || ' ' || {columns} from {table} {which}");
        all.extend(names(&sql, table));
    }
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_every_table_is_copied_and_the_source_is_retired() {
    let (_dir, a, b) = two().await;
    let mut stages = Vec::new();
    let (from, to) = (to_copy(&a), to_copy(&b));
    let copied = copy(&from, &to, |progress| {
        assert!(progress.done <= progress.of);
        if stages.last() != Some(&progress.stage) {
            stages.push(progress.stage);
        }
    });
    let CopyReport { source, target, resumed } = copied.await.expect("it is copied");
    assert_eq!(source, target);
    assert_eq!((source.events, source.registers, source.slots, source.imported), (EVENTS, 5, 5, 2), "{source:?}");
    assert_eq!((source.recipes, source.quarantined, source.duplicates, resumed), (2, 3, 50 * 20, false), "{source:?}");
    assert_eq!(stages, [CopyStage::Copies, CopyStage::Compares]);
    drop((from, to));
    assert_eq!(dump(&a), dump(&b));
    check_refused(&a, SqliteAccess::Node, "was copied into another store on 2025");
    check_refused(&a, SqliteAccess::Tool, "hookonce migrate reopen");
    assert!(open(&a, SqliteAccess::Read).is_ok(), "it may be read");
    let there = open(&b, SqliteAccess::Node).expect("a node starts on the target");
    let before = there.list(crate::store::EventQuery { limit: 10_000, ..Default::default() }).await.expect("it reads");
    let ClaimResult::New { event, .. } =
        there.claim(vec![making().made(START).into()]).await.expect("it claims").remove(0)
    else {
        panic!("it is new")
    };
    assert!(before.iter().all(|one| one.turn < event.turn || one.state.ended().is_some()), "turns go on");
    drop(there);
    let again = copy(&to_copy(&a), &to_copy(&b), |_| {}).await;
    assert!(matches!(again, Err(CopyError::Source(CopyRole::Retired { .. }))), "{again:?}");
    let other = tempfile::tempdir().expect("a folder");
    let c = other.path().join("c.db");
    fill_file(&c).await;
    let full = copy(&to_copy(&c), &to_copy(&b), |_| {}).await;
    assert!(matches!(full, Err(CopyError::NotEmpty)), "{full:?}");
    assert!(open(&c, SqliteAccess::Node).is_ok(), "a source that was not copied is unchanged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_copy_resumes_anywhere_and_until_then_no_node_can_use_the_target() {
    let (_dir, a, b) = two().await;
    let whole = dump(&a);
    // One fill after another fails, in the target and then in the source.
    let mut interrupted = 0;
    loop {
        let (from, to) = (to_copy(&a), to_copy(&b));
        let marked = mark_on(&to).await.expect("it reads").is_some();
        let fills = if marked { 1 } else { interrupted };
        let cut = copy(&from, &FaultyCopyStore::after(fills, &to), |_| {}).await;
        drop((from, to));
        match cut {
            Ok(copied) => {
                assert!(copied.resumed && interrupted > 4, "{interrupted}");
                break;
            }
            Err(CopyError::Store(CopySide::Target, StoreError::Down(_))) => interrupted += 1,
            Err(other) => panic!("{other}"),
        }
        if marked {
            check_refused(&b, SqliteAccess::Node, "unfinished copy");
            check_refused(&b, SqliteAccess::Read, "unfinished copy");
        }
        assert!(interrupted < 50, "it never ends");
    }
    assert_eq!(dump(&b), whole);
    assert!(open(&b, SqliteAccess::Node).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_killed_at_its_last_write_leaves_neither_store_usable_and_can_be_finished() {
    let (_dir, a, b) = two().await;
    // The source is retired, and the target not yet unmarked.
    let (from, to) = (to_copy(&a), to_copy(&b));
    let mut fills = 3;
    loop {
        let cut = copy(&from, &FaultyCopyStore::after(fills, &to), |_| {}).await;
        assert!(matches!(cut, Err(CopyError::Store(CopySide::Target, _))), "{cut:?}");
        if matches!(mark_on(&from).await.expect("it reads"), Some(CopyRole::Retired { .. })) {
            break;
        }
        fills = if fills == 3 { 1 } else { fills };
        // One page each time, and the very last write at the end.
    }
    drop((from, to));
    check_refused(&a, SqliteAccess::Node, "was copied");
    check_refused(&b, SqliteAccess::Node, "unfinished copy");
    copy(&to_copy(&a), &to_copy(&b), |_| {}).await.expect("it is finished");
    check_refused(&a, SqliteAccess::Node, "was copied");
    assert!(open(&b, SqliteAccess::Node).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_copy_accepts_only_its_own_source() {
    let (dir, a, b) = two().await;
    let c = dir.path().join("c.db");
    fill_file(&c).await;
    let cut = copy(&to_copy(&a), &FaultyCopyStore::after(4, &to_copy(&b)), |_| {}).await;
    assert!(matches!(cut, Err(CopyError::Store(..))), "{cut:?}");
    assert!(open(&a, SqliteAccess::Node).is_ok(), "a failed copy leaves its source unchanged");
    let other = copy(&to_copy(&c), &to_copy(&b), |_| {}).await;
    assert!(matches!(other, Err(CopyError::Target(CopyRole::Target { .. }))), "{other:?}");
    let from_it = copy(&to_copy(&b), &to_copy(&dir.path().join("d.db")), |_| {}).await;
    assert!(matches!(from_it, Err(CopyError::Source(CopyRole::Target { .. }))), "{from_it:?}");
    let given_up = reopen(&to_copy(&b)).await;
    assert!(matches!(given_up, Err(CopyError::Source(CopyRole::Target { .. }))), "{given_up:?}");
    let same = to_copy(&a);
    assert!(matches!(copy(&same, &same, |_| {}).await, Err(CopyError::Same)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_changed_since_a_copy_was_interrupted_is_noticed() {
    let (_dir, a, b) = two().await;
    let cut = copy(&to_copy(&a), &FaultyCopyStore::after(4, &to_copy(&b)), |_| {}).await;
    assert!(matches!(cut, Err(CopyError::Store(..))), "{cut:?}");
    let db = rusqlite::Connection::open(&a).expect("it opens");
    db.execute("update events set revision = revision + 1 where id = (select min(id) from events)", []).expect("SQL");
    drop(db);
    let differs = copy(&to_copy(&a), &to_copy(&b), |_| {}).await;
    assert!(matches!(&differs, Err(CopyError::Differs(what)) if what.starts_with("event ")), "{differs:?}");
    check_refused(&b, SqliteAccess::Node, "unfinished copy");
    assert!(open(&a, SqliteAccess::Node).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extra_entries_in_the_target_are_noticed() {
    let (_dir, a, b) = two().await;
    let (from, to) = (to_copy(&a), to_copy(&b));
    let copied = copy(&from, &to, |progress| {
        if progress.stage == CopyStage::Copies && progress.done >= EVENTS {
            let db = rusqlite::Connection::open(&b).expect("it opens");
            let alone = "insert or ignore into keys (key, event, identity, alias) \
                         select zeroblob(32), min(id), 'body', 0 from events";
            db.execute(alone, []).expect("SQL");
        }
    });
    let differs = copied.await;
    assert!(matches!(&differs, Err(CopyError::Differs(what)) if what.starts_with("event ")), "{differs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_event_is_copied_as_dead() {
    let (_dir, a, b) = two().await;
    let db = rusqlite::Connection::open(&a).expect("it opens");
    db.execute("update events set fields = '{' where id = (select min(id) from events)", []).expect("SQL");
    db.execute("update events set state = 'wating' where id = (select max(id) from events)", []).expect("SQL");
    drop(db);
    let copied = copy(&to_copy(&a), &to_copy(&b), |_| {}).await.expect("it is copied");
    assert_eq!(copied.target.events, EVENTS);
    let db = rusqlite::Connection::open(&b).expect("it opens");
    let damaged = "select count(*) from events where state = 'dead' and cause = 'damaged'";
    assert_eq!(db.query_row(damaged, [], |row| row.get::<_, i64>(0)).expect("it reads"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_store_is_usable_again_only_after_reopen() {
    let (_dir, a, b) = two().await;
    copy(&to_copy(&a), &to_copy(&b), |_| {}).await.expect("it is copied");
    check_refused(&a, SqliteAccess::Node, "was copied");
    let mark = reopen(&to_copy(&a)).await.expect("it is reopened");
    assert!(matches!(mark, Some(CopyRole::Retired { .. })), "{mark:?}");
    assert!(matches!(reopen(&to_copy(&a)).await, Ok(None)));
    assert!(open(&a, SqliteAccess::Node).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_ends_at_the_byte_limit_of_a_batch() {
    let dir = tempfile::tempdir().expect("a folder");
    let (a, b) = (dir.path().join("a.db"), dir.path().join("b.db"));
    let store = open(&a, SqliteAccess::Node).expect("it opens");
    for n in 0..10_u8 {
        let one = making().body(vec![n; limits::BATCH_BYTES_MAX / 3 + 1]);
        store.claim(vec![one.made(START).into()]).await.expect("it claims");
    }
    drop(store);
    let mut pages = Vec::new();
    let (from, to) = (to_copy(&a), to_copy(&b));
    let copied = copy(&from, &to, |progress| pages.push((progress.stage, progress.done)));
    assert_eq!(copied.await.expect("it is copied").source.events, 10);
    pages.retain(|(stage, _)| *stage == CopyStage::Copies);
    pages.dedup();
    assert_eq!(pages.iter().map(|(_, done)| *done).collect::<Vec<_>>(), [3, 6, 9, 10]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_seen_time_is_copied_whatever_the_clock_shows() {
    let (_dir, a, b) = two().await;
    let later = START + Duration::from_hours(31 * 24);
    let open = |path, access| SqliteStore::open_by(path, access, Some(StoreClock::doubted(later))).expect("it opens");
    copy(&open(&a, SqliteAccess::Copy), &open(&b, SqliteAccess::Copy), |_| {}).await.expect("it is copied");
    for path in [&a, &b] {
        let store = open(path, SqliteAccess::Copy);
        assert_eq!(CopyStore::last_seen(&store).await.expect("it reads"), Some(START), "{}", path.display());
    }
    let expiry = open(&b, SqliteAccess::Node).expiry();
    assert!(expiry.waiting.is_some() && expiry.time.0 == START, "{expiry:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_copy_does_not_reopen_a_source_whose_target_is_in_use() {
    let (_dir, a, b) = two().await;
    let (from, to) = (to_copy(&a), to_copy(&b));
    // The first copy has retired the source. Before its last write a second copy begins, and reads the target only when
    // the first has finished and a node has written there.
    let finish = async {
        let place = to.noted(PLACE).await.expect("it reads");
        let mark = to.noted(MARK).await.expect("it reads");
        let notes = vec![
            CopyRegisterCas { key: MARK, was: mark, is: None },
            CopyRegisterCas { key: PLACE, was: place, is: None },
        ];
        assert!(to.fill(Vec::new(), notes).await.expect("it writes"));
        to.claim(vec![making().delivery("new").made(START).into()]).await.expect("it claims");
    };
    let second = async {
        let second = copy(&from, &FaultyCopyStore::before_it_is_read(&to, finish), |_| {}).await;
        assert!(matches!(second, Err(CopyError::Overtaken)), "{second:?}");
    };
    let first = copy(&from, &FaultyCopyStore::before_its_end(&to, second), |_| {}).await;
    assert!(matches!(first, Err(CopyError::Overtaken)), "the other copy made its last write: {first:?}");
    let mark = mark_on(&from).await.expect("it reads");
    assert!(matches!(mark, Some(CopyRole::Retired { .. })), "{mark:?}");
    drop((from, to));
    check_refused(&a, SqliteAccess::Node, "was copied into another store");
    assert!(open(&b, SqliteAccess::Node).is_ok());
}
