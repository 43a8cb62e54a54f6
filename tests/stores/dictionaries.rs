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
use hookonce::store::postgres::PostgresStore;
use hookonce::store::retention::forget_source;
use hookonce::store::schema::postgres as migrations;
use hookonce::store::{Administer, RemovalResult, Store, StoreBackend, StoredValue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::Client;

const DAY: Duration = Duration::from_hours(24);
const KEEP_BODY: Duration = Duration::from_hours(7 * 24);

/// A body that is like the others, and cannot be packed without one of them.
fn body(n: usize) -> Vec<u8> {
    let word = |i: u32| format!("{:08x}", i.wrapping_mul(2_654_435_761));
    format!("{n:08} {}", (0..400).map(word).collect::<String>()).into_bytes()
}

async fn claim(node: &PostgresStore, n: usize, waits: bool) -> EventId {
    let new = making().carrying(body(n));
    let new = if waits { new } else { new.recorded() };
    match node.claim(vec![new.made(node.now()).into()]).await.unwrap().remove(0) {
        ClaimResult::New { event, .. } => event.id,
        other => panic!("{other:?}"),
    }
}

async fn check(node: &PostgresStore, each: &[(usize, EventId)]) {
    for (n, id) in each {
        let StoredValue::Whole(payload) = node.payload(*id).await.unwrap() else { panic!("{n}") };
        assert_eq!(&*payload.body, body(*n), "{n}");
    }
}

async fn sweep(node: &PostgresStore) {
    let kept = Retention { keys: Keep::For(DAY * 365), body: KEEP_BODY };
    let keeps = RetentionPolicies { sources: [("source".into(), kept)].into() };
    node.forget(Arc::new(keeps), 1_000).await.unwrap();
}

/// How many dictionaries there are, those in use, their copies, and the bodies that need one.
async fn dictionaries(db: &Client) -> [i64; 4] {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_whole_after_migrating_down_and_up_again() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let node = open(&server, &database, clock.clone()).await;
    let mut each = Vec::new();
    for n in 0..90 {
        each.push((n, claim(&node, n, true).await));
    }
    let mut db = server.client(&database).await;
    assert_eq!(dictionaries(&db).await, [1, 1, 1, 81]);
    drop(node);
    migrations::down(&mut db, &migrations::SchemaName::default(), 8).await.unwrap();
    let plain = "select count(*) from hookonce.payloads where length(body) > 1000";
    assert_eq!(db.query_one(plain, &[]).await.unwrap().get::<_, i64>(0), 90);
    let node = open(&server, &database, clock).await;
    check(&node, &each).await;
}
