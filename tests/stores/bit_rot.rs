//! What bit rot does to SQLite: nothing panics, and nothing wrong is returned.

use crate::START;
use crate::random_history::folder;
use crate::seed::{self, Random};
use crate::sqlite::{claim, claim_kind, new, node};
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::Payload;
use hookonce::decide::event::{DeathCause, Event, EventState, EventStep, Outcome, QueueState, SucceededBlocks};
use hookonce::decide::id::{Digest, EventId, NodeId};
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::Route;
use hookonce::decide::time::Duration;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{AdvanceResult, DueQuery, EventQuery, Inspect, Store, StoreBackend, StoreError, StoredValue};
use rusqlite::Connection;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

#[tokio::test]
async fn an_event_whose_row_is_unreadable_is_dead_of_damaged_and_hands_its_slot_on() {
    for (broken, hurt) in [
        "state = 'odd'",
        "fields = '{'",
        "cause = 'acted'",
        "body_digest = x'00'",
        "revision = -1",
        "grp = x'00'",
        "subject = x'00'",
        "passed = 9",
        "ended_at = 7",
        "source = cast(x'ff' as text), state = 'odd'",
    ]
    .into_iter()
    .zip(1..)
    {
        let dir = folder();
        let path = dir.path().join("a.db");
        let store = node(&path);
        let first = new(&store, making().delivery("d1").group("g")).await.id;
        let second = new(&store, making().delivery("d2").group("g")).await.id;
        Connection::open(&path)
            .unwrap()
            .execute(&format!("update events set {broken} where id = ?1"), [first.0])
            .unwrap();
        let damaged = |event: Event| matches!(event.state, EventState::Dead { cause: DeathCause::Damaged, .. });
        assert!(damaged(store.get(first).await.unwrap().unwrap()), "{broken}");
        if hurt % 2 == 0 {
            assert_eq!(claim_kind(&claim(&store, making().delivery("d1")).await), "duplicate", "{broken}");
        }
        let _ = super::due(&store, 10).await.unwrap();
        let due: Vec<EventId> = super::due(&store, 10)
            .await
            .unwrap()
            .into_iter()
            .flat_map(|due| due.events)
            .map(|event| event.id)
            .collect();
        assert_eq!(due, [second], "{broken}");
        assert!(damaged(store.get(first).await.unwrap().unwrap()), "{broken}");
        let dead = EventQuery { state: Some("dead".into()), limit: 10, ..EventQuery::default() };
        assert_eq!(store.list(dead).await.unwrap().len(), 1, "{broken}");
        assert_eq!(claim_kind(&claim(&store, making().delivery("d1")).await), "duplicate", "{broken}");
        assert_eq!(store.counts().await.unwrap().dead, 1, "{broken}");
    }
}

/// Changes an event as a flipped bit may: without a look at the types of its columns.
fn change_untyped(path: &Path, id: EventId, assigned: &str) {
    const AS_IT_IS: [&str; 2] = [") strict", "received_at   integer not null"];
    const UNTYPED: [&str; 2] = [") /*no*/", "received_at   integer /*no*/"];
    let schema = |from: [&str; 2], to: [&str; 2]| {
        let db = Connection::open(path).unwrap();
        db.execute_batch("pragma writable_schema = on").unwrap();
        let sql = "update sqlite_schema set sql = replace(replace(sql, ?1, ?2), ?3, ?4) where name = 'events'";
        assert_eq!(db.execute(sql, [from[0], to[0], from[1], to[1]]).unwrap(), 1);
    };
    schema(AS_IT_IS, UNTYPED);
    Connection::open(path).unwrap().execute(&format!("update events set {assigned} where id = ?1"), [id.0]).unwrap();
    schema(UNTYPED, AS_IT_IS);
}

/// SQLite refuses to write a row with such a cell, not even to end its event.
#[tokio::test]
async fn an_event_with_a_cell_of_another_type_is_dead_of_damaged_and_hands_its_slot_on() {
    for other in
        ["received_at = 1.5", "received_at = null", "turn = 'x'", "life = x'00'", "fields = x'7b7d'", "grp = 7"]
    {
        let dir = folder();
        let path = dir.path().join("a.db");
        let store = node(&path);
        let first = new(&store, making().delivery("d1").group("g")).await.id;
        let second = new(&store, making().delivery("d2").group("g")).await.id;
        change_untyped(&path, first, other);
        let _ = super::due(&store, 10).await.unwrap();
        let due = super::due(&store, 10).await.unwrap();
        let due: Vec<EventId> = due.into_iter().flat_map(|due| due.events).map(|event| event.id).collect();
        assert_eq!(due, [second], "{other}");
        let state = Connection::open(&path).unwrap().query_row(
            "select state || ' ' || cause from events where id = ?1",
            [first.0],
            |row| row.get::<_, String>(0),
        );
        assert_eq!(state.unwrap(), "dead damaged", "{other}");
    }
}

#[tokio::test]
async fn a_key_that_lost_its_event_is_freed_and_can_be_claimed_again() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let store = node(&path);
    let event = new(&store, making().delivery("d1")).await.id;
    Connection::open(&path).unwrap().execute("delete from events where id = ?1", [event.0]).unwrap();
    assert_eq!(claim_kind(&claim(&store, making().delivery("d1")).await), "new");
    assert_eq!(claim_kind(&claim(&store, making().delivery("d1")).await), "duplicate");
}

/// Makes every call to a store whose file may be corrupt: it may fail, but never panic, and never return a wrong body.
async fn ask_everything(path: &Path, known: &[(EventId, Payload, Event)]) -> (u32, u32, u32) {
    let (mut whole, mut damaged, mut refused) = (0, 0, 0);
    let Ok(store) = SqliteStore::open_by(path, SqliteAccess::Node, Some(StoreClock::manual(START))) else {
        return (0, 0, 1);
    };
    for (id, payload, event) in known {
        match store.payload(*id).await {
            Ok(StoredValue::Whole(found)) => {
                whole += 1;
                assert!(found == *payload, "a wrong body");
            }
            Ok(StoredValue::Damaged | StoredValue::Forgotten) => damaged += 1,
            Err(_) => refused += 1,
        }
        if let Ok(Some(found)) = store.get(*id).await {
            let acts = found.state.ended().is_none() && found.immutable_digest() == found.digest;
            assert!(!acts || found.fields == event.fields && found.route == event.route, "it would run something else");
        }
        let _ = store.receipt(*id).await;
        let _ = store.details(*id).await;
    }
    let _ = super::due(&store, 100).await;
    let _ = store.list(EventQuery { limit: 100, ..EventQuery::default() }).await;
    let _ = store.find_by_name("d1".into(), 5).await;
    let _ = store.find_by_name("00".into(), 5).await;
    for n in 0..8 {
        let _ =
            store.claim(vec![making().delivery(&format!("d{n}")).change("s", "A", Some(n)).made(START).into()]).await;
        let _ =
            store.claim(vec![making().delivery(&format!("x{n}")).group("g").carrying("y").made(START).into()]).await;
    }
    let _ = store.forget(Arc::default(), 100).await;
    let panicked = store.failed().borrow().as_ref().is_some_and(|why| why.contains("panicked"));
    assert!(!panicked);
    (whole, damaged, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_never_panic_and_never_give_a_wrong_body() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let mut known = Vec::new();
    {
        let store = SqliteStore::open_by(&path, SqliteAccess::Node, Some(StoreClock::manual(START))).unwrap();
        for n in 0..24_usize {
            // Repetitive bodies are stored compressed, digests as they are: both may rot.
            let body: Vec<u8> = match n % 4 {
                0 => (0..n * 500).map(|byte| (byte * 7 + n).to_be_bytes()[7]).collect(),
                _ => (0..n * 16).flat_map(|part| Digest::of(&[n, part].map(usize::to_be_bytes).concat()).0).collect(),
            };
            let mut one = making().delivery(&format!("d{n}")).carrying(body);
            if n % 3 == 0 {
                one = one.group("g").change("s", &format!("v{n}"), None);
            }
            let payload = one.payload().clone();
            let event = new(&store, one).await;
            known.push((event.id, payload, event));
        }
    }
    let original = std::fs::read(&path).unwrap();
    let hurt = dir.path().join("hurt.db");
    let mut sums = (0, 0, 0);
    let mut random = Random::new(seed::given_or(1));
    for round in 0..400 {
        let mut bytes = original.clone();
        let byte = random.index(bytes.len());
        bytes[byte] ^= 1 << (round % 8);
        for beside in ["hurt.db-wal", "hurt.db-shm", "hurt.db.lock"] {
            let _ = std::fs::remove_file(dir.path().join(beside));
        }
        std::fs::write(&hurt, bytes).unwrap();
        println!("round {round}: bit {} of byte {byte}", round % 8); // shown if the test fails
        let (whole, damaged, refused) = ask_everything(&hurt, &known).await;
        sums = (sums.0 + whole, sums.1 + damaged, sums.2 + refused);
    }
    println!("whole, damaged, refused: {sums:?}");
    assert!(sums.0 > 1_000 && sums.1 > 50, "{sums:?}");
}

/// Overwrites the first page of the keys.
fn spoil_keys(path: &Path) {
    spoil(path, "keys");
}

/// Overwrites the first page of this table.
fn spoil(path: &Path, table: &str) {
    let root: u32 = Connection::open(path)
        .unwrap()
        .query_row("select rootpage from sqlite_schema where name = ?1", [table], |row| row.get(0))
        .unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xA5; 4_096], u64::from(root - 1) * 4_096).unwrap();
}

fn many(path: &Path) -> SqliteStore {
    let store = node(path);
    for n in 0..2_000 {
        drop(
            store.claim(vec![making().delivery(&format!("d{n}")).carrying(vec![b'x'; 3_000]).made(store.now()).into()]),
        );
    }
    store
}

#[tokio::test]
async fn a_database_that_becomes_corrupt_while_open_stops_the_store_for_good() {
    let dir = folder();
    let path = dir.path().join("a.db");
    drop(many(&path));
    let store = node(&path);
    // A write by another connection makes the store read its pages again.
    let other = Connection::open(&path).unwrap();
    other.pragma_update_and_check(None, "wal_checkpoint", "truncate", |_| Ok(())).unwrap();
    spoil_keys(&path);
    other.pragma_update(None, "user_version", 7).unwrap();
    let mut failed = store.failed();
    let answer = store.claim(vec![making().delivery("d1").made(store.now()).into()]).await;
    assert!(matches!(answer, Err(StoreError::Broken(_))), "{answer:?}");
    failed.wait_for(Option::is_some).await.unwrap();
    let answer = store.get(making().id()).await;
    assert!(matches!(answer, Err(StoreError::Broken(_))), "{answer:?}");
    drop(store);
    assert!(dir.path().join("a.db-check").exists(), "the next node checks all of it");
}

fn refusal(path: &Path) -> String {
    match SqliteStore::open(path, SqliteAccess::Node) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_database_with_broken_pages_is_not_opened_since_repeats_would_act_again() {
    let dir = folder();
    let path = dir.path().join("a.db");
    drop(many(&path));
    spoil_keys(&path);
    let before = std::fs::read(&path).unwrap();
    let said = refusal(&path);
    assert!(said.contains("a.db is corrupt") && said.contains("restore a backup"), "{said}");
    assert!(std::fs::read(&path).unwrap() == before, "it is left unchanged");
}

/// What they hold is also in `keys` and `events`.
#[tokio::test]
async fn a_database_whose_indexes_of_keys_and_names_have_broken_pages_is_mended_and_knows_every_key() {
    for table in ["key_index", "name_index", "fresh_keys", "fresh_names"] {
        let dir = folder();
        let path = dir.path().join("a.db");
        drop(many(&path));
        spoil(&path, table);
        std::fs::write(dir.path().join("a.db-check"), "").unwrap();
        let store = node(&path);
        assert!(!dir.path().join("a.db-check").exists());
        for n in (0..2_000).step_by(97) {
            let delivery = format!("d{n}");
            assert_eq!(claim_kind(&claim(&store, making().delivery(&delivery)).await), "duplicate", "{table} {n}");
            let found = store.find_by_name(delivery.clone(), 9).await.unwrap();
            let has = |event: &Event| event.delivery_id.as_deref() == Some(&delivery);
            assert_eq!(found.iter().filter(|event| has(event)).count(), 1, "{table} {n}");
        }
        drop(store);
        let db = Connection::open(&path).unwrap();
        let said: String = db.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(said, "ok", "{table}");
    }
}

/// A restore that left the WAL of the previous database: SQLite takes its pages for those of the copy.
#[tokio::test]
async fn a_copy_beside_the_wal_of_another_database_is_refused_and_left_as_it_is() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let store = many(&path);
    new(&store, making().delivery("last of the copy")).await;
    drop(store);
    let copy = std::fs::read(&path).unwrap();
    let store = many(&path);
    let wal = dir.path().join("a.db-wal");
    // The WAL starts again once it was moved into the database: only then does it lack what came before. Just after that
    // it has hardly a page that the copy lacks.
    let (mut later, mut rounds, mut in_round) = (0, Vec::new(), 0);
    while later < 400 || rounds.len() < 2 || in_round < 20 {
        new(&store, making().delivery(&format!("later {later}")).carrying(vec![b'y'; 9_000])).await;
        let mut head = [0; 16];
        std::fs::File::open(&wal).unwrap().read_exact(&mut head).unwrap();
        if rounds.last().is_none_or(|last| *last != head[12..]) {
            rounds.push(head[12..].to_vec());
            in_round = 0;
        }
        in_round += 1;
        later += 1;
        assert!(later < 20_000, "the WAL was never restarted");
    }
    let log = std::fs::read(&wal).unwrap();
    drop(store);
    std::fs::remove_file(dir.path().join("a.db.lock")).unwrap();
    std::fs::write(&path, &copy).unwrap();
    std::fs::write(&wal, &log).unwrap();
    let said = refusal(&path);
    assert!(said.contains("a.db-wal, "), "{said}");
    assert!(std::fs::read(&path).unwrap() == copy && std::fs::read(&wal).unwrap() == log);
    for beside in ["a.db-wal", "a.db-shm", "a.db.lock"] {
        std::fs::remove_file(dir.path().join(beside)).unwrap_or_default();
    }
    let store = node(&path);
    assert_eq!(claim_kind(&claim(&store, making().delivery("last of the copy")).await), "duplicate");
}

#[tokio::test]
async fn a_missing_database_is_not_silently_created_again() {
    let dir = folder();
    let (path, lock) = (dir.path().join("a.db"), dir.path().join("a.db.lock"));
    drop(node(&path));
    std::fs::remove_file(&path).unwrap();
    let store = node(&path); // nothing was written to it
    new(&store, making().delivery("d1")).await;
    drop(store);
    std::fs::remove_file(&path).unwrap();
    let said = refusal(&path);
    assert!(said.contains("a.db is gone") && said.contains("remove ") && said.contains("a.db.lock"), "{said}");
    assert!(!path.exists());
    std::fs::remove_file(lock).unwrap();
    assert_eq!(claim_kind(&claim(&node(&path), making().delivery("d1")).await), "new");
}

/// The child process of the next test: claims until the disk does not confirm a write.
#[tokio::test]
#[ignore = "run by the next test, with a disk that fails"]
async fn claims_on_a_disk_that_fails() {
    let path = std::env::var("HOOKONCE_TEST_STORE").unwrap();
    let store = node(Path::new(&path));
    for n in 0..100 {
        let claimed = store.claim(vec![making().delivery(&format!("d{n}")).made(store.now()).into()]).await;
        match claimed {
            Ok(_) => std::fs::write(Path::new(&path).with_extension("acked"), (n + 1).to_string()).unwrap(),
            Err(StoreError::Unsure(_)) => break,
            Err(other) => panic!("{other}"),
        }
    }
    let why = store.failed().borrow().clone();
    assert!(why.is_some(), "the store reports that it stopped");
    let after = store.claim(vec![making().delivery("after").made(store.now()).into()]).await;
    assert!(matches!(after, Err(StoreError::Broken(_))), "{after:?}");
}

#[tokio::test]
async fn a_failed_sync_is_unsure_and_stops_the_store_and_confirmed_claims_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let child = std::process::Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"])
        .args(["-e", "inject=fsync,fdatasync:error=EIO:when=20"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "bit_rot::claims_on_a_disk_that_fails"])
        .env("HOOKONCE_TEST_STORE", &path)
        .output();
    let Ok(child) = child else {
        println!("skipped: strace, which makes the disk fail, is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    let acked: u32 = std::fs::read_to_string(path.with_extension("acked")).unwrap().parse().unwrap();
    let store = node(&path);
    for n in 0..acked {
        assert_eq!(store.find_by_name(format!("d{n}"), 2).await.unwrap().len(), 1, "{n}");
    }
    assert!(acked > 5 && store.find_by_name("after".into(), 1).await.unwrap().is_empty());
}

/// What happens to waiting events when a bit of one row was flipped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    /// The file is not opened.
    Refused,
    /// All have acted, or are dead of `damaged`.
    Over,
    /// One waits, and nothing wakes it.
    Waits,
    /// One waits for a time that was never set.
    Postponed,
    /// One would end without having acted.
    Skipped,
    /// One is missing.
    Gone,
}

/// Does what a node would do with due events.
async fn live(store: &SqliteStore) -> Result<Fate, StoreError> {
    let known: Arc<[(Arc<str>, Arc<str>)]> = Arc::new([("source".into(), "1".into())]);
    for _ in 0..3 {
        for look in [DueQuery::Orphans(known.clone()), DueQuery::Route("source".into(), "1".into()), DueQuery::Leases] {
            for event in store.due(look, 10).await?.events {
                let seal = event.immutable_digest() == event.digest;
                if seal && event.blocks.0 != 0 {
                    return Ok(Fate::Skipped);
                }
                let start = EventStep::Start {
                    lasts: Duration::from_mins(1),
                    by: NodeId("node".into()),
                    action: ActionKind::Run,
                };
                let end = EventStep::Settle {
                    outcome: Outcome::Delivered(None),
                    blocks: SucceededBlocks(0),
                    jitter: Jitter(0),
                };
                let steps = match (seal, event.queue_state) {
                    (false, _) => vec![EventStep::Damage],
                    (true, QueueState::Suspended) => vec![EventStep::Unsuspend, start, end],
                    (true, _) => vec![start, end],
                };
                let mut event = event;
                for step in steps {
                    let Ok(change) = event.transition(step, &Route::default(), store.now()) else { break };
                    match store.advance(vec![change]).await?.remove(0) {
                        AdvanceResult::Written { event: next, .. } => event = *next,
                        AdvanceResult::Lost => break,
                    }
                }
            }
        }
    }
    let all = store.list(EventQuery { limit: 10, ..EventQuery::default() }).await?;
    let open: Vec<_> = all.iter().filter(|event| event.state.ended().is_none()).collect();
    Ok(match open.first() {
        Some(event) if event.state.wake_at().is_some_and(|at| at > store.now()) => Fate::Postponed,
        Some(_) => Fate::Waits,
        None if all.len() < 3 => Fate::Gone,
        None => Fate::Over,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bit_flipped_in_a_waiting_events_row_neither_postpones_nor_loses_any() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let store = SqliteStore::open_by(&path, SqliteAccess::Node, Some(StoreClock::manual(START))).unwrap();
    for n in 0..3 {
        new(&store, making().delivery(&format!("d{n}")).fields("{\"tag\":\"latest\"}")).await;
    }
    drop(store);
    let root: u16 = Connection::open(&path)
        .unwrap()
        .query_row("select rootpage from sqlite_schema where name = 'events'", [], |row| row.get(0))
        .unwrap();
    let root = usize::from(root);
    let original = std::fs::read(&path).unwrap();
    let page = (root - 1) * 4_096..root * 4_096;
    let bytes = page.filter(|at| original[*at] != 0);
    let mut bits: Vec<_> = bytes.flat_map(|at| (0..8).map(move |bit| (at, bit))).collect();
    if std::env::var_os("HOOKONCE_FULL").is_none() {
        Random::new(seed::any()).shuffle(&mut bits);
        bits.truncate(600);
    }
    let hurt = dir.path().join("hurt.db");
    let mut fates = std::collections::BTreeMap::new();
    for (at, bit) in bits {
        let mut bytes = original.clone();
        bytes[at] ^= 1 << bit;
        for beside in ["hurt.db-wal", "hurt.db-shm", "hurt.db.lock"] {
            let _ = std::fs::remove_file(dir.path().join(beside));
        }
        std::fs::write(&hurt, bytes).unwrap();
        let now = START + Duration::from_mins(1);
        let fate = match SqliteStore::open_by(&hurt, SqliteAccess::Node, Some(StoreClock::manual(now))) {
            Ok(store) => live(&store).await.unwrap_or(Fate::Refused),
            Err(_) => Fate::Refused,
        };
        if fate > Fate::Over {
            println!("bit {bit} of byte {} of page {root}: {fate:?}", at % 4_096);
        }
        *fates.entry(fate).or_insert(0) += 1;
    }
    println!("{fates:?}");
    assert!(fates.keys().all(|fate| *fate <= Fate::Over), "{fates:?}");
}
