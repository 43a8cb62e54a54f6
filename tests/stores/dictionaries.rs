//! Dictionaries of bodies on PostgreSQL, where several nodes choose, use and remove them at once.

use crate::START;
use crate::postgres::open;
use crate::postgres_server::Server;
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::id::EventId;
use hookonce::decide::ledger::RetentionPolicies;
use hookonce::decide::source::{Keep, Retention};
use hookonce::decide::time::Duration;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::copy::{CopyCursor, CopyEntry, ExportStore};
use hookonce::store::postgres::PostgresStore;
use hookonce::store::retention::forget_source;
use hookonce::store::{Administer, RemovalResult, Store, StoreBackend, StoreError, StoredValue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tokio_postgres::Client;

const DAY: Duration = Duration::from_hours(24);
const KEEP_BODY: Duration = Duration::from_hours(7 * 24);

/// A body that is like the others, and cannot be packed without one of them.
pub(crate) fn body(n: usize) -> Vec<u8> {
    let word = |i: u32| format!("{:08x}", i.wrapping_mul(2_654_435_761));
    format!("{n:08} {}", (0..400).map(word).collect::<String>()).into_bytes()
}

pub(crate) async fn claim(node: &PostgresStore, n: usize, waits: bool) -> EventId {
    let new = making().carrying(body(n));
    let new = if waits { new } else { new.recorded() };
    match node.claim(vec![new.made(node.now()).into()]).await.unwrap().remove(0) {
        ClaimResult::New { event, .. } => event.id,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn check(node: &PostgresStore, each: &[(usize, EventId)]) {
    for (n, id) in each {
        let StoredValue::Whole(payload) = node.payload(*id).await.unwrap() else { panic!("{n}") };
        assert_eq!(&*payload.body, body(*n), "{n}");
    }
}

pub(crate) async fn sweep(node: &PostgresStore) {
    let kept = Retention { keys: Keep::For(DAY * 365), body: KEEP_BODY };
    let keeps = RetentionPolicies { sources: [("source".into(), kept)].into() };
    node.forget(Arc::new(keeps), 1_000).await.unwrap();
}

/// How many dictionaries there are, those in use, their copies, and the bodies that need one.
pub(crate) async fn dictionaries(db: &Client) -> [i64; 4] {
    let sql = "select (select count(*) from hookonce.dictionaries), \
               (select count(*) from hookonce.dictionaries where not retired), \
               (select count(*) from hookonce.dictionary_copies), \
               (select count(*) from hookonce.payloads where dictionary is not null)";
    let row = db.query_one(sql, &[]).await.unwrap();
    [0, 1, 2, 3].map(|place| row.get(place))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_the_dictionary_that_one_of_them_chose() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let (one, two) = (open(&server, &database, clock.clone()).await, open(&server, &database, clock.clone()).await);
    let db = server.client(&database).await;
    let mut each = Vec::new();
    for n in 0..12 {
        each.push((n, claim(&one, n, true).await));
    }
    assert_eq!(dictionaries(&db).await, [1, 1, 1, 3]);
    each.push((12, claim(&two, 12, true).await));
    assert_eq!(dictionaries(&db).await, [1, 1, 1, 4]);
    check(&one, &each).await;
    check(&two, &each).await;
    // Another node retires it: what this one knows is out of date.
    db.batch_execute("update hookonce.dictionaries set retired = true").await.unwrap();
    each.push((13, claim(&one, 13, true).await));
    assert_eq!(dictionaries(&db).await, [1, 0, 1, 4]);
    check(&two, &each).await;
    let refused = db.batch_execute("delete from hookonce.dictionaries").await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("foreign key"), "{refused}");
    db.batch_execute("update hookonce.dictionaries set bytes = '' where true").await.unwrap();
    check(&one, &each).await;
    db.batch_execute("update hookonce.dictionary_copies set bytes = '' where true").await.unwrap();
    let third = open(&server, &database, clock).await;
    check(&third, &each[..9]).await;
    for (_, id) in &each[9..13] {
        assert_eq!(third.payload(*id).await.unwrap(), StoredValue::Damaged);
    }
    check(&third, &each[13..]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dictionaries_age_with_their_bodies_and_go_with_what_is_forgotten() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let node = open(&server, &database, clock.clone()).await;
    let db = server.client(&database).await;
    let mut waiting = Vec::new();
    for n in 0..10 {
        claim(&node, n, false).await;
    }
    for n in 10..160 {
        waiting.push((n, claim(&node, n, true).await));
    }
    assert_eq!(dictionaries(&db).await, [1, 1, 1, 151]);
    clock.advance(KEEP_BODY);
    sweep(&node).await;
    assert_eq!(dictionaries(&db).await, [1, 0, 1, 150]);
    clock.advance(KEEP_BODY);
    sweep(&node).await;
    assert_eq!(dictionaries(&db).await, [0, 0, 0, 0]);
    check(&node, &waiting).await;
    let mut over = Vec::new();
    for n in 0..20 {
        over.push((n, claim(&node, n, false).await));
    }
    let [many, in_use, ..] = dictionaries(&db).await;
    assert_eq!((many, in_use), (1, 1));
    let of: Vec<u8> = db.query_one("select uuid_send(event) from hookonce.dictionaries", &[]).await.unwrap().get(0);
    let at = over.iter().position(|(_, id)| of == id.0).expect("it is one of these");
    let (_, origin) = over.remove(at);
    assert_eq!(node.remove(origin).await.unwrap(), RemovalResult::Removed);
    assert_eq!(dictionaries(&db).await, [0, 0, 0, 0]);
    check(&node, &over).await;
    for n in 0..20 {
        claim(&node, n, true).await;
    }
    assert_eq!(dictionaries(&db).await[..3], [1, 1, 1]);
    forget_source(&node, "source").await.unwrap();
    assert_eq!(dictionaries(&db).await, [0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_body_is_whole_while_nodes_claim_and_their_dictionaries_are_forgotten() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let (one, two) = (open(&server, &database, clock.clone()).await, open(&server, &database, clock.clone()).await);
    let third = open(&server, &database, clock).await;
    let db = server.client(&database).await;
    let done = AtomicBool::new(false);
    let claims = async |node: &PostgresStore, from: usize| {
        let mut each = Vec::new();
        for n in from..from + 150 {
            each.push((n, claim(node, n, false).await));
        }
        each
    };
    let forget = async {
        let mut forgotten = Vec::new();
        while !done.load(Ordering::Relaxed) {
            for row in db.query("select uuid_send(event) from hookonce.dictionaries", &[]).await.unwrap() {
                let id = EventId(row.get::<_, Vec<u8>>(0).try_into().unwrap());
                third.remove(id).await.unwrap();
                let left = "select count(*) from hookonce.dictionaries where event = encode($1, 'hex')::uuid";
                let left: i64 = db.query_one(left, &[&&id.0[..]]).await.unwrap().get(0);
                assert_eq!(left, 0);
                forgotten.push(id);
            }
            tokio::task::yield_now().await;
        }
        forgotten
    };
    let claimed = async {
        let (a, b) = tokio::join!(claims(&one, 0), claims(&two, 1_000));
        done.store(true, Ordering::Relaxed);
        [a, b].concat()
    };
    let (each, forgotten) = tokio::join!(claimed, forget);
    assert!(forgotten.len() > 2, "{}", forgotten.len());
    let left: Vec<_> = each.into_iter().filter(|(_, id)| !forgotten.contains(id)).collect();
    check(&one, &left).await;
    check(&third, &left).await;
}

/// The event whose body is the only dictionary.
async fn origin(db: &Client) -> EventId {
    let sql = "select uuid_send(event) from hookonce.dictionaries";
    EventId(db.query_one(sql, &[]).await.unwrap().get::<_, Vec<u8>>(0).try_into().unwrap())
}

/// Claims events until one of their bodies is the dictionary and others need it.
async fn filled(node: &PostgresStore, to: usize) -> Vec<(usize, EventId)> {
    let mut each = Vec::new();
    for n in 0..to {
        each.push((n, claim(node, n, false).await));
    }
    each
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_needs_a_dictionary_takes_a_fraction_and_is_no_body_to_earlier_versions() {
    let server = Server::start().await;
    let database = server.database().await;
    let node = open(&server, &database, StoreClock::manual(START)).await;
    let each = filled(&node, 40).await;
    let db = server.client(&database).await;
    let sizes = "select max(octet_length(packed)), min(octet_length(body)), count(*) filter (where body is null) \
                 from hookonce.payloads";
    let row = db.query_one(sizes, &[]).await.unwrap();
    let (packed, plain, many): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
    assert!(packed * 10 < plain, "{packed} {plain}");
    assert_eq!((many, dictionaries(&db).await), (31, [1, 1, 1, 31]));
    check(&node, &each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_store_takes_bodies_whole_whose_dictionary_it_did_not_know() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let node = open(&server, &database, clock.clone()).await;
    let each = filled(&node, 40).await;
    let page = open(&server, &database, clock).await.export(CopyCursor::Events(None), 100).await.unwrap();
    let mut bodies = Vec::new();
    for entry in page.entries {
        let CopyEntry::Event(event) = entry else { panic!("{entry:?}") };
        bodies.push((event.row.event.id, event.payload.expect("it has a body").body.to_vec()));
    }
    assert_eq!(bodies, each.iter().map(|(n, id)| (*id, body(*n))).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_forgotten_body_is_left_and_the_others_are_whole() {
    let server = Server::start().await;
    let database = server.database().await;
    let node = open(&server, &database, StoreClock::manual(START)).await;
    let mut each = filled(&node, 200).await;
    let db = server.client(&database).await;
    let forgotten = origin(&db).await;
    let bytes = body(each.iter().find(|(_, id)| *id == forgotten).unwrap().0);
    let has = "select count(*) from (select bytes from hookonce.dictionaries \
               union all select bytes from hookonce.dictionary_copies union all select body from hookonce.payloads \
               union all select packed from hookonce.payloads) all_bytes where position($1::bytea in bytes) > 0";
    let has = async || db.query_one(has, &[&&bytes[..9]]).await.unwrap().get::<_, i64>(0);
    assert_eq!(has().await, 3);
    assert_eq!(node.remove(forgotten).await.unwrap(), RemovalResult::Removed);
    assert_eq!((has().await, dictionaries(&db).await), (0, [0, 0, 0, 0]));
    each.retain(|(_, id)| *id != forgotten);
    check(&node, &each).await;
}

/// Locks the dictionaries in use as a batch does, for as long as a commit may take.
async fn use_like_a_batch(db: Client, done: &AtomicBool, used: &AtomicUsize) {
    let held = "select id from hookonce.dictionaries where not retired for key share";
    while !done.load(Ordering::Relaxed) {
        db.batch_execute("begin").await.unwrap();
        used.fetch_add(db.query(held, &[]).await.unwrap().len(), Ordering::Relaxed);
        db.batch_execute("select pg_sleep(0.01); commit").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dictionary_that_many_use_all_the_time_is_removed_soon() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let (one, two) = (open(&server, &database, clock.clone()).await, open(&server, &database, clock).await);
    let db = server.client(&database).await;
    let mut each = filled(&one, 30).await;
    let forgotten = origin(&db).await;
    let (done, used) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut lockers = Vec::new();
    for _ in 0..16 {
        lockers.push(use_like_a_batch(server.client(&database).await, &done, &used));
    }
    let claims = async {
        let mut claimed = Vec::new();
        for n in 1_000.. {
            if done.load(Ordering::Relaxed) {
                break;
            }
            claimed.push((n, claim(&one, n, false).await));
        }
        claimed
    };
    let remove = async {
        while used.load(Ordering::Relaxed) < 64 {
            tokio::task::yield_now().await;
        }
        let began = Instant::now();
        let removed = two.remove(forgotten).await;
        done.store(true, Ordering::Relaxed);
        (removed, began.elapsed())
    };
    let (claimed, (removed, took), _) = tokio::join!(claims, remove, futures_util::future::join_all(lockers));
    assert_eq!(removed.unwrap(), RemovalResult::Removed);
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    println!("removed after {took:?}, used {} times", used.into_inner());
    let left = "select count(*) from hookonce.dictionaries where event = encode($1, 'hex')::uuid";
    assert_eq!(db.query_one(left, &[&&forgotten.0[..]]).await.unwrap().get::<_, i64>(0), 0);
    each.retain(|(_, id)| *id != forgotten);
    check(&two, &[each, claimed].concat()).await;
}

/// A transaction that has locked the dictionary, and brings the body of this event, which needs it.
async fn late_batch(db: &Client, id: EventId) {
    db.batch_execute(&format!(
        "create temp table late as select * from hookonce.payloads where event = '{id}'; \
         delete from hookonce.payloads where event = '{id}'"
    ))
    .await
    .unwrap();
    db.batch_execute(
        "begin; select 1 from hookonce.dictionaries where not retired for key share; \
         insert into hookonce.payloads (event, headers, headers_digest, body, unpacked, packed, dictionary) \
         select event, headers, headers_digest, body, unpacked, packed, dictionary from late",
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_committed_after_its_dictionary_was_retired_is_packed_anew_before_that_goes() {
    let server = Server::start().await;
    let database = server.database().await;
    let node = Arc::new(open(&server, &database, StoreClock::manual(START)).await);
    let (db, late) = (server.client(&database).await, server.client(&database).await);
    let mut each = filled(&node, 20).await;
    let (forgotten, kept) = (origin(&db).await, each[19].1);
    late_batch(&late, kept).await;
    let removal = tokio::spawn({
        let node = node.clone();
        async move { node.remove(forgotten).await }
    });
    while dictionaries(&db).await != [1, 0, 1, 0] {
        assert!(!removal.is_finished());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert!(!removal.is_finished(), "the batch may still commit");
    late.batch_execute("commit").await.unwrap();
    assert_eq!(removal.await.unwrap().unwrap(), RemovalResult::Removed);
    assert_eq!(dictionaries(&db).await, [0, 0, 0, 0]);
    each.retain(|(_, id)| *id != forgotten);
    check(&node, &each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_transaction_has_locked_is_not_reported_as_forgotten() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let node = open(&server, &database, clock.clone()).await;
    let (db, late) = (server.client(&database).await, server.client(&database).await);
    let each = filled(&node, 20).await;
    let forgotten = origin(&db).await;
    late.batch_execute("begin; select 1 from hookonce.dictionaries for key share").await.unwrap();
    let refused = node.remove(forgotten).await;
    assert!(matches!(&refused, Err(StoreError::Down(why)) if why.contains("try again")), "{refused:?}");
    assert!(node.get(forgotten).await.unwrap().is_some());
    check(&node, &each).await;
    // The sweep does not wait for it, either.
    clock.advance(KEEP_BODY * 2);
    sweep(&node).await;
    assert_eq!(dictionaries(&db).await, [1, 0, 1, 0]);
    late.batch_execute("commit").await.unwrap();
    sweep(&node).await;
    assert_eq!(dictionaries(&db).await, [0, 0, 0, 0]);
    assert_eq!(node.remove(forgotten).await.unwrap(), RemovalResult::Removed);
}

/// Stops the server, overwrites the first page of this table, and starts it again.
async fn spoil(server: &mut Server, database: &str, table: &str) {
    let db = server.client(database).await;
    let path = format!("select pg_relation_filepath('hookonce.{table}')");
    let path: String = db.query_one(&path, &[]).await.unwrap().get(0);
    db.batch_execute("checkpoint").await.unwrap();
    server.crash();
    let path = server.dir.path().join("data").join(path);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..8_192].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
    assert!(server.start_again().await, "{}", server.log());
    let read = server.client(database).await.query(&format!("select * from hookonce.{table}"), &[]).await;
    assert!(read.unwrap_err().as_db_error().unwrap().message().contains("invalid page"));
}

/// Claims on a node whose connections may be gone.
async fn claim_after_crash(node: &PostgresStore, n: usize) -> EventId {
    let new = Arc::new(making().carrying(body(n)).made(node.now()));
    let until = Instant::now() + std::time::Duration::from_secs(30);
    loop {
        match node.claim(vec![new.clone()]).await {
            Ok(claims) => assert!(!matches!(claims[0], ClaimResult::Undecided), "{claims:?}"),
            Err(error) => {
                assert!(Instant::now() < until && !error.to_string().contains("invalid page"), "{error}");
                continue;
            }
        }
        return new.event.id;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_dictionaries_refuse_no_claim_and_the_copy_is_used_while_it_can_be_read() {
    let mut server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let node = open(&server, &database, clock.clone()).await;
    let mut each = filled(&node, 20).await;
    spoil(&mut server, &database, "dictionaries").await;
    each.push((20, claim_after_crash(&node, 20).await));
    let fresh = open(&server, &database, clock.clone()).await;
    for n in 21..50 {
        each.push((n, claim_after_crash(if n % 2 == 0 { &node } else { &fresh }, n).await));
    }
    check(&fresh, &each).await;
    spoil(&mut server, &database, "dictionary_copies").await;
    each.push((50, claim_after_crash(&node, 50).await));
    let fresh = open(&server, &database, clock).await;
    for n in 51..60 {
        each.push((n, claim_after_crash(&fresh, n).await));
    }
    for (n, id) in &each {
        let needs = (9..20).contains(n);
        let found = fresh.payload(*id).await.unwrap();
        assert_eq!(matches!(found, StoredValue::Damaged), needs, "{n}");
    }
}
