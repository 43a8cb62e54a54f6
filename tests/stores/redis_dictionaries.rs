//! Dictionaries of bodies on Redis, where several nodes choose, use and remove them at once.

use crate::START;
use crate::redis_server::Server;
use ::redis::{Connection, Value};
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::id::EventId;
use hookonce::decide::ledger::RetentionPolicies;
use hookonce::decide::source::{Keep, Retention};
use hookonce::decide::time::Duration;
use hookonce::internals::cli::migrate;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::copy;
use hookonce::store::open::{StoreUrl, open_to_copy};
use hookonce::store::redis::{RedisAccess, RedisOpenOptions, RedisStore};
use hookonce::store::retention::forget_source;
use hookonce::store::{Administer, RemovalResult, Store, StoreBackend, StoredValue};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const DAY: Duration = Duration::from_hours(24);
const KEEP_BODY: Duration = Duration::from_hours(7 * 24);

/// What no other body contains.
fn secret(n: usize) -> String {
    format!("only-in-{n:08}-{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A body that is like the others, and cannot be packed without one of them.
fn body(n: usize) -> Vec<u8> {
    let word = |i: u32| format!("{:08x}", i.wrapping_mul(2_654_435_761));
    let half = |from: u32| (from..from + 200).map(word).collect::<String>();
    format!("{} {} {}", half(0), secret(n), half(200)).into_bytes()
}

async fn open(server: &Server, clock: &StoreClock) -> RedisStore {
    let options = RedisOpenOptions { clock: clock.clone(), access: RedisAccess::Node };
    RedisStore::open(&server.url("a"), options).await.unwrap()
}

/// Claims an event that waits, or one that is recorded and so over.
async fn claim(node: &RedisStore, n: usize, waits: bool) -> EventId {
    let new = making().carrying(body(n));
    let new = if waits { new } else { new.recorded() };
    match node.claim(vec![new.made(node.now()).into()]).await.unwrap().remove(0) {
        ClaimResult::New { event, .. } => event.id,
        other => panic!("{other:?}"),
    }
}

async fn claim_all(node: &RedisStore, range: std::ops::Range<usize>, waits: bool) -> Vec<(usize, EventId)> {
    let mut each = Vec::new();
    for n in range {
        each.push((n, claim(node, n, waits).await));
    }
    each
}

async fn check(node: &impl StoreBackend, each: &[(usize, EventId)]) {
    for (n, id) in each {
        let StoredValue::Whole(payload) = node.payload(*id).await.unwrap() else { panic!("{n}") };
        assert_eq!(&*payload.body, body(*n), "{n}");
    }
}

async fn sweep(node: &RedisStore) {
    let kept = Retention { keys: Keep::For(DAY * 365), body: KEEP_BODY };
    let keeps = RetentionPolicies { sources: [("source".into(), kept)].into() };
    node.forget(Arc::new(keeps), 1_000).await.unwrap();
}

/// The name of a key: its kind, and what follows.
fn name(kind: &str, whose: &[u8]) -> Vec<u8> {
    [b"{a}", kind.as_bytes(), whose].concat()
}

fn get<T: ::redis::FromRedisValue>(db: &mut Connection, words: &[&[u8]]) -> T {
    let mut command = ::redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query(db).unwrap()
}

fn keys_of(db: &mut Connection, kind: &str) -> Vec<Vec<u8>> {
    let all: Vec<Vec<u8>> = get(db, &[b"KEYS", b"*"]);
    all.into_iter().filter(|key| key.starts_with(&name(kind, b""))).collect()
}

/// The names of all dictionaries, and of those in use.
fn dictionaries(db: &mut Connection) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let all: Vec<Vec<u8>> = get(db, &[b"HKEYS", &name(":dictionaries", b"")]);
    let mut in_use = |id: &Vec<u8>| {
        let state: Vec<u8> = get(db, &[b"GETRANGE", &name("l", id), b"0", b"0"]);
        state == b"u"
    };
    let used = all.iter().filter(|id| in_use(id)).cloned().collect();
    (all, used)
}

/// How many dictionaries there are, those in use, and the bodies that need one; counted by what is stored, and compared
/// with what the store counts.
fn counts(db: &mut Connection) -> [usize; 3] {
    let (all, used) = dictionaries(db);
    for kind in ["c", "d", "l"] {
        assert_eq!(keys_of(db, kind).len(), all.len(), "{kind}");
    }
    assert_eq!(keys_of(db, "u").len(), used.len());
    let counted: Vec<(Vec<u8>, usize)> = get(db, &[b"HGETALL", &name(":dictionary_bodies", b"")]);
    assert_eq!(counted.len(), all.len());
    let mut needed = 0;
    for (id, count) in counted {
        let mut packed = 0;
        for key in keys_of(db, "b") {
            let head: Vec<u8> = get(db, &[b"GETRANGE", &key, b"0", b"8"]);
            packed += usize::from(head == [&[4], &id[..]].concat());
        }
        assert_eq!(packed, count);
        needed += packed;
    }
    [all.len(), used.len(), needed]
}

/// Everything that is stored: names, values, members.
fn everything(db: &mut Connection) -> Vec<u8> {
    fn add(all: &mut Vec<u8>, value: Value) {
        match value {
            Value::BulkString(bytes) => all.extend(bytes),
            Value::Array(values) | Value::Set(values) => values.into_iter().for_each(|value| add(all, value)),
            Value::Map(pairs) => pairs.into_iter().flat_map(|(a, b)| [a, b]).for_each(|value| add(all, value)),
            other => all.extend(format!("{other:?}").into_bytes()),
        }
        all.push(b'\n');
    }
    let mut all = Vec::new();
    for key in get::<Vec<Vec<u8>>>(db, &[b"KEYS", b"*"]) {
        let kind: String = get(db, &[b"TYPE", &key]);
        let words: &[&[u8]] = match &*kind {
            "string" => &[b"GET", &key],
            "hash" => &[b"HGETALL", &key],
            "list" => &[b"LRANGE", &key, b"0", b"-1"],
            "set" => &[b"SMEMBERS", &key],
            "zset" => &[b"ZRANGE", &key, b"0", b"-1"],
            other => panic!("{other}"),
        };
        add(&mut all, Value::BulkString(key.clone()));
        add(&mut all, get(db, words));
    }
    all
}

fn is_in(all: &[u8], text: &str) -> bool {
    all.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The event whose body is the dictionary in use, of these.
fn origin_of(db: &mut Connection, each: &mut Vec<(usize, EventId)>) -> (usize, EventId) {
    let (_, used) = dictionaries(db);
    let copy: Vec<u8> = get(db, &[b"GET", &name("d", &used[0])]);
    let at = each.iter().position(|(n, _)| is_in(&copy, &secret(*n))).expect("it is one of these");
    each.remove(at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alike_bodies_take_a_fraction_of_their_memory_on_redis_and_are_read_whole() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let node = open(&server, &clock).await;
    let each = claim_all(&node, 0..300, true).await;
    let mut db = server.client();
    assert_eq!(counts(&mut db), [1, 1, 291]);
    let mut memory = |id: EventId| -> usize { get(&mut db, &[b"MEMORY", b"USAGE", &name("b", &id.0)]) };
    let (alone, packed) = (memory(each[0].1), memory(each[200].1));
    assert!(packed * 5 < alone, "{packed} and {alone} bytes");
    let list = keys_of(&mut db, "l").remove(0);
    let list: usize = get(&mut db, &[b"MEMORY", b"USAGE", &list]);
    assert!(list < 291 * 32 + 200, "{list}");
    check(&node, &each).await;
    check(&open(&server, &clock).await, &each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_on_redis_share_the_dictionary_that_one_of_them_chose() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let (one, two) = (open(&server, &clock).await, open(&server, &clock).await);
    let mut db = server.client();
    // Both are in a trial; the first that ends it wins, and the other learns of it.
    let mut each = Vec::new();
    for n in 0..12 {
        each.push((n, claim(&one, n, true).await));
        each.push((n + 100, claim(&two, n + 100, true).await));
    }
    assert_eq!(counts(&mut db)[..2], [1, 1]);
    let [.., needed] = counts(&mut db);
    each.push((12, claim(&one, 12, true).await));
    each.push((112, claim(&two, 112, true).await));
    each.push((200, claim(&open(&server, &clock).await, 200, true).await));
    assert_eq!(counts(&mut db), [1, 1, needed + 3]);
    check(&one, &each).await;
    check(&two, &each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_whole_while_one_copy_of_their_dictionary_on_redis_is_and_damaged_once_none_is() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let node = open(&server, &clock).await;
    let mut each = claim_all(&node, 0..12, true).await;
    let mut db = server.client();
    let [first, second] = ["d", "c"].map(|kind| keys_of(&mut db, kind).remove(0));
    // The name of its digest stays: only the bytes are damaged.
    let _: i64 = get(&mut db, &[b"SETRANGE", &first, b"100", b"rot"]);
    let fresh = open(&server, &clock).await;
    check(&fresh, &each).await;
    each.extend(claim_all(&fresh, 12..14, true).await);
    assert_eq!(counts(&mut db)[2], 3, "a new node packs with no dictionary that is damaged");
    let _: i64 = get(&mut db, &[b"DEL", &first]);
    check(&open(&server, &clock).await, &each).await;
    each.extend(claim_all(&node, 14..15, true).await);
    let _: i64 = get(&mut db, &[b"SETRANGE", &second, b"100", b"rot"]);
    let fresh = open(&server, &clock).await;
    each.extend(claim_all(&fresh, 15..60, true).await);
    check(&fresh, &each[..9]).await;
    for (_, id) in &each[9..12] {
        assert_eq!(fresh.payload(*id).await.unwrap(), StoredValue::Damaged);
    }
    check(&open(&server, &clock).await, &each[12..]).await;
    let (all, used) = dictionaries(&mut db);
    assert_eq!((all.len(), used.len()), (2, 1), "another body is chosen");
    // Bodies that stay damaged hold nothing.
    clock.advance(KEEP_BODY * 2);
    sweep(&fresh).await;
    assert_eq!(counts(&mut db), [0, 0, 0]);
    check(&fresh, &each[12..]).await;
    assert_eq!(fresh.payload(each[10].1).await.unwrap(), StoredValue::Damaged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_written_without_the_dictionary_that_another_node_has_retired_on_redis() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let (one, two) = (open(&server, &clock).await, open(&server, &clock).await);
    let mut each = claim_all(&one, 0..12, true).await;
    let mut db = server.client();
    assert_eq!(counts(&mut db), [1, 1, 3]);
    // The first node remembers it, and packs a batch with it.
    two.remove_dictionaries("source".into()).await.unwrap();
    assert_eq!(counts(&mut db), [0, 0, 0]);
    let batch: Vec<_> = (12..20).map(|n| (n, making().carrying(body(n)))).collect();
    let ids: Vec<_> = batch.iter().map(|(n, new)| (*n, new.id())).collect();
    let claims = one.claim(batch.into_iter().map(|(_, new)| new.made(START).into()).collect()).await.unwrap();
    assert!(claims.iter().all(|claim| matches!(claim, ClaimResult::New { .. })), "{claims:?}");
    each.extend(ids);
    assert_eq!(counts(&mut db)[2], 0);
    check(&two, &each).await;
    check(&one, &each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forgotten_on_redis_is_in_no_dictionary_and_the_bodies_that_needed_it_are_whole() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let (node, other) = (open(&server, &clock).await, open(&server, &clock).await);
    let mut each = claim_all(&node, 0..400, false).await;
    let mut db = server.client();
    assert_eq!(counts(&mut db), [1, 1, 391]);
    let (n, origin) = origin_of(&mut db, &mut each);
    assert!(is_in(&everything(&mut db), &secret(n)));
    assert_eq!(other.remove(origin).await.unwrap(), RemovalResult::Removed);
    assert!(!is_in(&everything(&mut db), &secret(n)));
    assert_eq!(counts(&mut db), [0, 0, 0]);
    check(&node, &each).await;
    check(&other, &each).await;
    // An event whose body is no dictionary goes without a trace, too; its dictionary stays.
    each.extend(claim_all(&node, 400..500, false).await);
    let [1, 1, needed] = counts(&mut db) else { panic!("{:?}", counts(&mut db)) };
    let (n, last) = each.pop().unwrap();
    assert_eq!(other.remove(last).await.unwrap(), RemovalResult::Removed);
    assert!(!is_in(&everything(&mut db), &secret(n)));
    assert_eq!(counts(&mut db), [1, 1, needed - 1]);
    forget_source(&other, "source").await.unwrap();
    assert_eq!(counts(&mut db), [0, 0, 0]);
    let left = everything(&mut db);
    assert!(each.iter().all(|(n, _)| !is_in(&left, &secret(*n))));
    assert!(!is_in(&left, "9e3779b1"), "a word that all bodies contain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dictionaries_on_redis_age_with_their_bodies_and_go_with_the_last_of_them() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let node = open(&server, &clock).await;
    let mut db = server.client();
    claim_all(&node, 0..10, false).await;
    let waiting = claim_all(&node, 10..160, true).await;
    assert_eq!(counts(&mut db), [1, 1, 151]);
    clock.advance(KEEP_BODY);
    sweep(&node).await;
    assert_eq!(counts(&mut db), [1, 0, 150]);
    clock.advance(KEEP_BODY);
    sweep(&node).await;
    assert_eq!(counts(&mut db), [0, 0, 0]);
    check(&node, &waiting).await;
    // One whose bodies are all gone goes with the sweep that removes the last.
    claim_all(&node, 200..300, false).await;
    let [1, 1, _] = counts(&mut db) else { panic!("{:?}", counts(&mut db)) };
    clock.advance(KEEP_BODY);
    sweep(&node).await;
    assert_eq!(counts(&mut db), [0, 0, 0]);
    for kind in [":dictionaries", ":dictionary_bodies"] {
        assert_eq!(get::<i64>(&mut db, &[b"EXISTS", &name(kind, b"")]), 0);
    }
    check(&node, &waiting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dictionaries_of_a_source_on_redis_and_the_events_that_each_names_are_limited() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let node = open(&server, &clock).await;
    let mut db = server.client();
    let mut each = claim_all(&node, 0..20, true).await;
    assert_eq!(counts(&mut db), [1, 1, 11]);
    let list = keys_of(&mut db, "l").remove(0);
    // As if so many events had been forgotten.
    let _: i64 = get(&mut db, &[b"APPEND", &list, &vec![7; 16 * ((1 << 16) + 12)]]);
    sweep(&node).await;
    assert_eq!(counts(&mut db), [1, 0, 11]);
    let id = dictionaries(&mut db).0.remove(0);
    let origin: Vec<u8> = get(&mut db, &[b"HGET", &name(":dictionaries", b""), &id]);
    for n in 1..8_u64 {
        let _: i64 = get(&mut db, &[b"HSET", &name(":dictionaries", b""), &n.to_be_bytes(), &origin]);
    }
    each.extend(claim_all(&node, 20..60, true).await);
    assert_eq!(dictionaries(&mut db).1.len(), 0, "there are eight already");
    check(&node, &each).await;
    clock.advance(KEEP_BODY * 2);
    sweep(&node).await;
    assert_eq!(counts(&mut db), [0, 0, 0]);
    check(&node, &each).await;
    // The node rests after its trial; another one begins its own.
    claim_all(&open(&server, &clock).await, 60..80, true).await;
    assert_eq!(counts(&mut db)[..2], [1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_body_is_whole_while_nodes_claim_and_their_dictionaries_are_forgotten_on_redis() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let (one, two, third) = (open(&server, &clock).await, open(&server, &clock).await, open(&server, &clock).await);
    let done = AtomicBool::new(false);
    let claims = async |node: &RedisStore, from: usize| {
        let mut each = Vec::new();
        for n in (from..from + 400).step_by(4) {
            let (a, b, c, d) = tokio::join!(
                claim(node, n, false),
                claim(node, n + 1, true),
                claim(node, n + 2, false),
                claim(node, n + 3, false),
            );
            each.extend([(n, a), (n + 1, b), (n + 2, c), (n + 3, d)]);
        }
        each
    };
    let forget = async {
        let mut rounds = 0;
        while !done.load(Ordering::Relaxed) {
            let mut db = server.client();
            let before = dictionaries(&mut db).0.len();
            rounds += before;
            if before > 0 {
                third.remove_dictionaries("source".into()).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
        rounds
    };
    let claimed = async {
        let (a, b) = tokio::join!(claims(&one, 0), claims(&two, 1_000));
        done.store(true, Ordering::Relaxed);
        [a, b].concat()
    };
    let (each, rounds) = tokio::join!(claimed, forget);
    assert!(rounds > 2, "{rounds}");
    check(&one, &each).await;
    check(&third, &each).await;
    counts(&mut server.client());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_from_redis_and_into_it_brings_bodies_that_are_packed_with_dictionaries() {
    let (server, target) = (Server::start(), Server::start());
    let clock = StoreClock::manual(START);
    let node = open(&server, &clock).await;
    let mut each = claim_all(&node, 0..12, true).await;
    // More than one page of a copy: the trial ends with the first.
    for from in (12..1_212).step_by(100) {
        let batch: Vec<_> = (from..from + 100).map(|n| (n, making().carrying(body(n)))).collect();
        each.extend(batch.iter().map(|(n, new)| (*n, new.id())));
        node.claim(batch.into_iter().map(|(_, new)| new.made(START).into()).collect()).await.unwrap();
    }
    assert_eq!(counts(&mut server.client()), [1, 1, 1_203]);
    drop(node);
    let address = |server: &Server| StoreUrl::parse(&server.url("a"), Path::new("")).unwrap();
    let from = open_to_copy(&address(&server), copy::CopySide::Source).await.unwrap();
    let to = open_to_copy(&address(&target), copy::CopySide::Target).await.unwrap();
    copy::copy(&*from, &*to, |_| {}).await.unwrap();
    drop((from, to));
    let [1, 1, needed] = counts(&mut target.client()) else { panic!("{:?}", counts(&mut target.client())) };
    assert!(needed > 0, "{needed}");
    check(&open(&target, &clock).await, &each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_migrate_down_no_body_on_redis_needs_a_dictionary() {
    let server = Server::start();
    let clock = StoreClock::manual(START);
    let node = open(&server, &clock).await;
    let each = claim_all(&node, 0..100, true).await;
    let Ok(StoreUrl::Redis(url)) = StoreUrl::parse(&server.url("a"), Path::new("")) else { panic!() };
    let mut db = server.client();
    let refused = async |to| migrate::redis::down(&url, to, &mut Vec::new()).await.unwrap_err().to_string();
    assert!(refused(8).await.contains("has no schema"));
    assert!(refused(7).await.contains("a node is running"));
    assert_eq!(counts(&mut db), [1, 1, 91]);
    drop(node);
    let mut out = Vec::new();
    while let Err(error) = migrate::redis::down(&url, 7, &mut out).await {
        assert!(error.to_string().contains("a node is running"), "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(out, b"every body is compressed as 0.1.0 reads it; dictionaries removed: 1\n");
    assert_eq!(counts(&mut db), [0, 0, 0]);
    for key in keys_of(&mut db, "b") {
        let head: Vec<u8> = get(&mut db, &[b"GETRANGE", &key, b"0", b"0"]);
        assert_eq!(head, [3], "as the first release begins a payload");
    }
    check(&open(&server, &clock).await, &each).await;
}
