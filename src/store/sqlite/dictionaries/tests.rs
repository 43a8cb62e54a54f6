//! Tests of the rows: what is kept of a dictionary, and how long.

use super::super::{SqliteAccess, SqliteStore};
use crate::decide::id::EventId;
use crate::decide::ledger::RetentionPolicies;
use crate::decide::source::{Keep, Retention};
use crate::decide::time::{Duration, Timestamp};
use crate::store::clock::StoreClock;
use crate::store::conformance::making;
use crate::store::retention::forget_source;
use crate::store::schema::sqlite as migrations;
use crate::store::{Administer, RemovalResult, Store, StoreBackend, StoreError, StoredValue};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DAY: Duration = Duration::from_hours(24);
const KEEP_BODY: Duration = Duration::from_hours(7 * 24);

/// A store of its own, in which time passes only when it is told to.
struct Fresh {
    store: Option<SqliteStore>,
    clock: StoreClock,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

/// A body that is like the others of its kind, and cannot be packed without one of them.
fn body(kind: u32, n: usize) -> Vec<u8> {
    let word = |i: u32| format!("{:08x}", i.wrapping_mul(2_654_435_761).wrapping_add(kind * 77_777));
    format!("{n:08} {}", (0..400).map(word).collect::<String>()).into_bytes()
}

impl Fresh {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let clock = StoreClock::manual(Timestamp(1_750_000_000_000_000));
        let path = dir.path().join("a.db");
        let mut fresh = Self { store: None, clock, path, _dir: dir };
        fresh.reopen();
        fresh
    }

    fn reopen(&mut self) {
        self.store = None;
        let store = SqliteStore::open_by(&self.path, SqliteAccess::Node, Some(self.clock.clone()));
        self.store = Some(store.expect("it opens"));
    }

    fn store(&self) -> &SqliteStore {
        self.store.as_ref().expect("it is open")
    }

    /// Claims an event that waits, or one that is recorded and so over.
    async fn claim(&self, waits: bool, source: &str, body: Vec<u8>) -> EventId {
        let new = making().source(source).carrying(body);
        let new = if waits { new } else { new.recorded() };
        let id = new.id();
        self.store().claim(vec![new.made(self.store().now()).into()]).await.expect("a claim");
        id
    }

    async fn claim_alike(&self, many: usize, waits: bool) -> Vec<EventId> {
        let mut ids = Vec::new();
        for n in 0..many {
            ids.push(self.claim(waits, "source", body(1, n)).await);
        }
        ids
    }

    async fn check(&self, ids: &[EventId], expected: impl Fn(usize) -> Vec<u8>) {
        for (n, id) in ids.iter().enumerate() {
            let StoredValue::Whole(payload) = self.store().payload(*id).await.expect("it reads") else { panic!("{n}") };
            assert_eq!(&*payload.body, expected(n), "{n}");
        }
    }

    async fn sweep(&self) {
        let kept = Retention { keys: Keep::For(DAY * 365), body: KEEP_BODY };
        let keeps = RetentionPolicies { sources: [("source".into(), kept)].into() };
        self.store().forget(Arc::new(keeps), 1_000).await.expect("a sweep");
    }

    async fn count(&self, sql: &'static str) -> i64 {
        self.store().read(move |db| db.query_row(sql, [], |row| row.get(0))).await.expect("a count")
    }

    /// How many dictionaries there are, those in use, their copies, and the bodies that need one.
    async fn dictionaries(&self) -> (i64, i64, i64, i64) {
        (
            self.count("select count(*) from dictionaries").await,
            self.count("select count(*) from dictionaries where retired = 0").await,
            self.count("select count(*) from dictionary_copies").await,
            self.count("select count(*) from payloads where dictionary is not null").await,
        )
    }

    /// Whether the body of the first event, which is the dictionary, is anywhere.
    async fn is_kept(&self, of: &[u8]) -> bool {
        let of = of.to_vec();
        let sql = "select exists (select 1 from dictionaries where bytes = ?1) or \
                   exists (select 1 from dictionary_copies where bytes = ?1) or \
                   exists (select 1 from payloads where body = ?1)";
        self.store().read(move |db| db.query_row(sql, [of], |row| row.get(0))).await.expect("an answer")
    }

    fn edit(&self, sql: &'static str) {
        let db = Connection::open(&self.path).expect("it opens");
        db.execute_batch(&format!("pragma foreign_keys = off; {sql}")).expect("an edit");
    }
}

#[tokio::test]
async fn bodies_like_an_earlier_one_of_their_source_take_a_tenth_and_are_read_whole() {
    let mut fresh = Fresh::new();
    let ids = fresh.claim_alike(20, true).await;
    let other = fresh.claim(true, "another", body(1, 0)).await;
    assert_eq!(fresh.dictionaries().await, (1, 1, 1, 11));
    let largest = "select max(length(body)) from payloads where dictionary is not null";
    assert!(fresh.count(largest).await < 320, "{}", fresh.count(largest).await);
    fresh.check(&ids, |n| body(1, n)).await;
    fresh.reopen();
    fresh.check(&ids, |n| body(1, n)).await;
    fresh.check(&[other], |_| body(1, 0)).await;
    fresh.claim(true, "source", body(1, 99)).await;
    assert_eq!(fresh.dictionaries().await, (1, 1, 1, 12), "the dictionary is used by the next process");
}

#[tokio::test]
async fn what_is_forgotten_is_in_no_dictionary_and_the_bodies_that_needed_it_are_whole() {
    let fresh = Fresh::new();
    let ids = fresh.claim_alike(200, false).await;
    assert!(fresh.is_kept(&body(1, 0)).await);
    assert_eq!(fresh.store().remove(ids[0]).await.expect("it is removed"), RemovalResult::Removed);
    assert!(!fresh.is_kept(&body(1, 0)).await);
    assert_eq!(fresh.dictionaries().await, (0, 0, 0, 0));
    fresh.check(&ids[1..], |n| body(1, n + 1)).await;
    fresh.claim_alike(20, false).await;
    assert_eq!(fresh.dictionaries().await, (1, 1, 1, 11), "a body of another event became one");
}

/// SQLite writes no row with a cell of another type, and says so as of any other rule that a row breaks.
#[tokio::test]
async fn a_payload_that_cannot_be_written_as_it_is_keeps_no_dictionary_and_counts_as_damaged() {
    let fresh = Fresh::new();
    let ids = fresh.claim_alike(20, false).await;
    fresh.edit(
        "create trigger refuse before update of dictionary on payloads \
         when new.event = (select max(event) from payloads) and length(new.headers_digest) > 0 \
         begin select raise(abort, 'refused'); end",
    );
    assert_eq!(fresh.store().remove(ids[0]).await.expect("it is removed"), RemovalResult::Removed);
    assert_eq!(fresh.dictionaries().await, (0, 0, 0, 0));
    fresh.check(&ids[1..19], |n| body(1, n + 1)).await;
    assert_eq!(fresh.store().payload(ids[19]).await.expect("it reads"), StoredValue::Damaged);
}

#[tokio::test]
async fn a_source_that_is_forgotten_leaves_no_dictionary() {
    let fresh = Fresh::new();
    fresh.claim_alike(20, false).await;
    for n in 0..20 {
        fresh.claim(false, "another", body(2, n)).await;
    }
    fresh.clock.advance(KEEP_BODY);
    fresh.sweep().await;
    let more = fresh.claim_alike(20, true).await;
    assert_eq!(fresh.dictionaries().await, (2, 2, 2, 22));
    forget_source(fresh.store(), "source").await.expect("it is forgotten");
    assert_eq!(fresh.dictionaries().await, (1, 1, 1, 11));
    assert!(!fresh.is_kept(&body(1, 0)).await);
    assert_eq!(fresh.store().payload(more[3]).await.expect("it reads"), StoredValue::Forgotten);
}

#[tokio::test]
async fn a_dictionary_outlives_the_retention_of_its_body_by_one_more_and_what_still_needs_it_is_packed_anew() {
    let fresh = Fresh::new();
    let over = fresh.claim_alike(10, false).await;
    let waiting = fresh.claim_alike(150, true).await;
    assert_eq!(fresh.dictionaries().await, (1, 1, 1, 151));
    fresh.clock.advance(KEEP_BODY.saturating_sub(Duration::from_secs(1)));
    fresh.sweep().await;
    assert_eq!(fresh.dictionaries().await, (1, 1, 1, 151));
    fresh.clock.advance(Duration::from_secs(1));
    fresh.sweep().await;
    assert_eq!(fresh.store().payload(over[9]).await.expect("it reads"), StoredValue::Forgotten);
    assert_eq!(fresh.dictionaries().await, (1, 0, 1, 150), "no more bodies are packed with it");
    fresh.claim(true, "source", body(1, 99)).await;
    assert_eq!(fresh.dictionaries().await, (1, 0, 1, 150));
    fresh.clock.advance(KEEP_BODY);
    fresh.sweep().await;
    assert_eq!(fresh.dictionaries().await, (0, 0, 0, 0));
    fresh.check(&waiting, |n| body(1, n)).await;
}

#[tokio::test]
async fn a_dictionary_that_no_body_needs_any_more_goes_with_the_next_sweep() {
    let fresh = Fresh::new();
    fresh.claim_alike(20, false).await;
    fresh.clock.advance(KEEP_BODY);
    fresh.sweep().await;
    assert_eq!(fresh.dictionaries().await, (0, 0, 0, 0));
}

#[tokio::test]
async fn bodies_are_whole_while_one_copy_of_their_dictionary_is_and_damaged_once_none_is() {
    let mut fresh = Fresh::new();
    let ids = fresh.claim_alike(20, true).await;
    fresh.edit("update dictionaries set bytes = zeroblob(length(bytes))");
    fresh.check(&ids, |n| body(1, n)).await;
    fresh.reopen();
    let later = fresh.claim(true, "source", body(1, 50)).await;
    assert_eq!(fresh.dictionaries().await, (1, 1, 1, 12), "the copy is used to pack, too");
    fresh.edit("update dictionaries set bytes = (select bytes from dictionary_copies)");
    fresh.edit("update dictionary_copies set bytes = zeroblob(length(bytes))");
    fresh.check(&ids, |n| body(1, n)).await;
    fresh.edit("update dictionaries set bytes = zeroblob(length(bytes))");
    fresh.check(&ids[..9], |n| body(1, n)).await;
    for id in ids[9..].iter().chain([&later]) {
        assert_eq!(fresh.store().payload(*id).await.expect("it reads"), StoredValue::Damaged);
    }
    fresh.reopen();
    let after = fresh.claim(true, "source", body(1, 51)).await;
    fresh.check(&[after], |_| body(1, 51)).await;
    fresh.edit("delete from dictionaries");
    assert_eq!(fresh.store().payload(later).await.expect("it reads"), StoredValue::Damaged);
    assert_eq!(fresh.store().remove(ids[0]).await.expect("no error"), RemovalResult::NotOver);
    fresh.check(&[after], |_| body(1, 51)).await;
}

#[tokio::test]
async fn a_dictionary_that_was_rolled_back_is_not_used() {
    let fresh = Fresh::new();
    fresh.claim_alike(8, true).await;
    let failed = making().source("source").carrying(body(1, 8)).made(fresh.store().now());
    let answer = fresh.store().ask(1, 0, move |rows| {
        let at = rows.at;
        crate::decide::ledger::claim(rows, &failed, at)?;
        let inside: i64 = rows.db.query_row("select count(*) from dictionaries", [], |row| row.get(0))?;
        assert_eq!(inside, 1);
        rows.db.execute("insert into dictionaries select * from dictionaries", []) // not twice
    });
    assert!(matches!(answer.await, Err(StoreError::Down(_))));
    assert_eq!(fresh.dictionaries().await, (0, 0, 0, 0));
    let ids = fresh.claim_alike(30, true).await;
    fresh.check(&ids, |n| body(1, n)).await;
}

#[tokio::test]
async fn no_dictionary_is_removed_while_a_body_refers_to_it() {
    let fresh = Fresh::new();
    fresh.claim_alike(20, true).await;
    let removed = fresh.store().ask(1, 0, |rows| rows.db.execute("delete from dictionaries", []));
    let refused = removed.await.expect_err("SQLite refuses it");
    assert!(refused.to_string().contains("FOREIGN KEY"), "{refused}");
    assert_eq!(fresh.dictionaries().await, (1, 1, 1, 11));
}

#[tokio::test]
async fn earlier_versions_read_every_body_after_migrating_down() {
    let mut fresh = Fresh::new();
    let ids = fresh.claim_alike(20, true).await;
    fresh.store = None;
    let mut db = Connection::open(&fresh.path).expect("it opens");
    migrations::down(&mut db, 9).expect("down");
    let plain = |n: usize| -> Vec<u8> {
        let sql = "select body, unpacked from payloads where event = ?1";
        let (bytes, unpacked): (Vec<u8>, Option<i64>) =
            db.query_row(sql, [ids[n].0], |row| Ok((row.get(0)?, row.get(1)?))).expect("a row");
        crate::store::compression::unpack(&bytes, unpacked).expect("a body")
    };
    assert!((0..20).all(|n| plain(n) == body(1, n)));
    drop(db);
    fresh.reopen();
    fresh.check(&ids, |n| body(1, n)).await;
}

#[tokio::test]
async fn each_question_about_dictionaries_has_its_index() {
    let fresh = Fresh::new();
    let plan = |path: &Path, sql: &str| {
        let db = Connection::open(path).expect("it opens");
        let mut plan = db.prepare(&format!("explain query plan {sql}")).expect("a plan");
        let lines = plan.query_map([], |row| row.get::<_, String>(3)).expect("lines");
        lines.flatten().collect::<Vec<_>>().join("\n")
    };
    for (sql, index) in [
        ("select event from payloads where dictionary = 1 limit 64", "payloads_dictionary"),
        ("select id from dictionaries where event = x''", "dictionaries_event"),
        (
            "select id from dictionaries where source = '' and retired = 0 order by arrived desc limit 1",
            "dictionaries_source",
        ),
    ] {
        let plan = plan(&fresh.path, sql);
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
    }
}
