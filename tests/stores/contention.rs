//! Contention on one PostgreSQL: claims of the same keys, lost responses, and callers that give up.

use crate::START;
use crate::cutter::Cutter;
use crate::postgres::open;
use crate::postgres_server::Server;
use crate::seed::{self, Random};
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{ClaimResult, DuplicateTarget, MatchedBy, NewEvent};
use hookonce::decide::event::{EventStep, Outcome, SucceededBlocks};
use hookonce::decide::id::{EventId, Key, NodeId};
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::{Keep, Retention, Route};
use hookonce::decide::time::Duration;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::{TestEventBuilder, making};
use hookonce::store::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
use hookonce::store::{AdvanceResult, Inspect, RetentionPolicies, Store, StoreBackend, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio_postgres::Client;

/// All claims and their results.
#[derive(Default)]
struct Told {
    made: HashMap<EventId, (HashSet<Key>, Option<Key>)>,
    new: HashSet<EventId>,
    duplicates: Vec<(EventId, EventId, MatchedBy, bool)>,
    claims: u64,
    again: u64,
    stale: u64,
}

impl Told {
    fn made(&mut self, new: &NewEvent) {
        let keys = new.keys.iter().map(|identity| identity.key).collect();
        self.made.insert(new.event.id, (keys, new.event.change.map(|change| change.subject)));
    }

    fn hear(&mut self, id: EventId, claim: ClaimResult) {
        self.claims += 1;
        match claim {
            ClaimResult::New { event, .. } => {
                assert_eq!(event.id, id);
                self.new.insert(id);
            }
            ClaimResult::Duplicate { event, same, target: stands, .. } => {
                self.duplicates.push((id, event.id, same, stands == DuplicateTarget::ViaSuccessor));
            }
            ClaimResult::Stale { .. } => self.stale += 1,
            ClaimResult::Undecided => self.again += 1,
            ClaimResult::Imported { .. } => panic!("nothing was imported"),
        }
    }

    /// Checks that every duplicate names an event that was reported as new and shares the identity that it names.
    fn check_duplicates(&self) {
        for (id, of, same, instead) in &self.duplicates {
            assert!(self.new.contains(of), "{id} is a duplicate of {of}, which was not claimed");
            let ((keys, subject), (theirs, their_subject)) = (&self.made[id], &self.made[of]);
            let shares = match same {
                MatchedBy::Change => subject.is_some() && subject == their_subject,
                // A key may have been left as an alias by a third event.
                _ if *instead || their_subject.is_some() => true,
                _ => !keys.is_disjoint(theirs),
            };
            assert!(shares, "{id} is a duplicate of {of} through {same:?}, but they share nothing");
        }
    }
}

/// Checks what must be true of the tables at any time.
async fn check_tables(db: &Client, told: &Told) {
    let count = async |sql: &str| db.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let orphans = "select count(*) from keys k left join events e on e.id = k.event where e.id is null";
    assert_eq!(count(orphans).await, 0, "keys without an event");
    for beside in ["payloads", "receipts", "attempts", "output", "sightings", "duplicates"] {
        let sql = format!("select count(*) from {beside} b left join events e on e.id = b.event where e.id is null");
        assert_eq!(count(&sql).await, 0, "{beside} without an event");
    }
    let tentative =
        "select (select count(*) from registers where version < 0) + (select count(*) from slots where version < 0)";
    assert_eq!(count(tentative).await, 0, "tentative rows were left");
    let slots = "select count(*) from slots s left join events e on e.id = s.event where e.id is null or e.ended_at is not null";
    assert_eq!(count(slots).await, 0, "slots of ended events");
    let stuck = "select count(*) from events e where e.state = 'waiting' and e.wake_at is null and e.passed <> 1 \
                 and not exists (select 1 from slots s where s.grp = e.grp)";
    assert_eq!(count(stuck).await, 0, "parked without a slot holder");

    let mut held: HashMap<EventId, HashSet<Key>> = HashMap::new();
    for row in db.query("select key, replace(event::text, '-', '') from keys", &[]).await.unwrap() {
        let id = EventId(hex::decode(row.get::<_, &str>(1)).unwrap().try_into().unwrap());
        held.entry(id).or_default().insert(Key(row.get::<_, &[u8]>(0).try_into().unwrap()));
    }
    let mut there = 0;
    for row in db.query("select replace(id::text, '-', '') from events", &[]).await.unwrap() {
        let id = EventId(hex::decode(row.get::<_, &str>(0)).unwrap().try_into().unwrap());
        let (keys, _) = &told.made[&id];
        assert!(told.new.contains(&id), "{id} exists, but was not reported as new");
        assert!(keys.is_subset(held.get(&id).unwrap_or(&HashSet::new())), "{id} lacks a key");
        there += 1;
    }
    println!("{there} events at the end, {} keys", held.values().map(HashSet::len).sum::<usize>());
}

fn any(dice: &mut Random, keys: usize, subjects: usize) -> TestEventBuilder {
    let mut made = making();
    let kinds = 1 + dice.index(7);
    let mut text = || format!("k{}", dice.index(keys));
    if kinds & 1 != 0 {
        made = made.delivery(&text());
    }
    if kinds & 2 != 0 {
        made = made.named(&text());
    }
    if kinds & 4 != 0 {
        made = made.body(text());
    }
    if dice.index(2) == 0 {
        let order = [None, None, Some(1), Some(2)][dice.index(4)];
        made = made.change(&format!("s{}", dice.index(subjects)), ["A", "B", "C"][dice.index(3)], order);
    }
    if dice.index(3) == 0 {
        made = made.group(&format!("g{}", dice.index(subjects)));
    }
    if dice.index(3) == 0 {
        made = made.recorded();
    }
    made.kept(Retention { keys: Keep::For(Duration::from_millis(200)), body: Duration::ZERO })
}

async fn claimer(store: Arc<dyn Inspect>, told: Arc<Mutex<Told>>, mut dice: Random, batches: usize, keys: usize) {
    for n in 0..batches {
        let size = [1, 8, 64][n % 3];
        let batch: Vec<Arc<NewEvent>> = (0..size).map(|_| any(&mut dice, keys, 20).made(store.now()).into()).collect();
        for new in &batch {
            told.lock().unwrap().made(new);
        }
        let ids: Vec<_> = batch.iter().map(|new| new.event.id).collect();
        // Every other batch has transitions, too, as the batcher makes it.
        let claims = if dice.index(2) == 0 {
            store.claim(batch).await
        } else {
            let there: Vec<EventId> = told.lock().unwrap().new.iter().copied().take(1_000).collect();
            let mut changes = Vec::new();
            for _ in 0..there.len().min(8) {
                if let Some(event) = store.get(there[dice.index(there.len())]).await.unwrap() {
                    let step = [EventStep::Cancel, EventStep::Replay][dice.index(2)].clone();
                    changes.extend(event.transition(step, &Route::default(), store.now()).ok());
                }
            }
            store.claim_and_advance(batch, Arc::new(changes)).await.map(|(claims, _)| claims)
        };
        let claims = claims.unwrap_or_else(|error| panic!("a claim failed: {error}"));
        for (id, claim) in ids.into_iter().zip(claims) {
            told.lock().unwrap().hear(id, claim);
        }
    }
}

/// Starts, ends, replays, removes and expires random events, until all is claimed.
async fn mover(store: Arc<dyn Inspect>, told: Arc<Mutex<Told>>, mut dice: Random, over: Arc<AtomicBool>) -> (u64, u64) {
    let (mut moved, mut contended, mut seen) = (0, 0, HashMap::new());
    while !over.load(Ordering::Relaxed) {
        let ids: Vec<EventId> = told.lock().unwrap().new.iter().copied().collect();
        if ids.is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        let mut changes = Vec::new();
        for _ in 0..30 {
            let id = ids[dice.index(ids.len())];
            let outcome = match dice.index(3) {
                0 => Outcome::Delivered(None),
                1 => Outcome::Rejected { why: "no".into(), receipt: None },
                _ => Outcome::Unknown { why: "who knows".into() },
            };
            let step = match dice.index(8) {
                0..3 => {
                    EventStep::Start { lasts: Duration::from_mins(1), by: NodeId("n".into()), action: ActionKind::Run }
                }
                3..6 => EventStep::Settle { outcome, blocks: SucceededBlocks(0), jitter: Jitter(0) },
                6 => EventStep::Replay,
                _ => EventStep::Cancel,
            };
            let event = seen.get(&id).cloned();
            let Some(event) = (if event.is_some() { event } else { store.get(id).await.unwrap() }) else { continue };
            changes.extend(event.transition(step, &Route::default(), store.now()).ok());
        }
        match store.advance(changes).await {
            Ok(advances) => {
                for advance in advances {
                    if let AdvanceResult::Written { event, .. } = advance {
                        moved += 1;
                        seen.insert(event.id, *event);
                    }
                }
            }
            Err(StoreError::Unsure(_)) => contended += 1,
            Err(error) => panic!("a change failed: {error}"),
        }
        if seen.len() > 100 || dice.index(4) == 0 {
            seen.clear();
        }
        if dice.index(3) == 0 {
            store.remove(ids[dice.index(ids.len())]).await.unwrap();
        }
        let kept = Retention { keys: Keep::For(Duration::from_millis(100)), body: Duration::ZERO };
        let keeps = Arc::new(RetentionPolicies { sources: [("source".into(), kept)].into() });
        store.forget(keeps, 50).await.unwrap();
    }
    (moved, contended)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_claims_of_the_same_keys_leave_every_event_with_all_of_its_keys() {
    let full = std::env::var_os("HOOKONCE_FULL").is_some();
    let server = Server::start().await;
    let mut random = Random::new(seed::given_or(1));
    for (keys, batches) in if full { [(170, 1_500), (1_000, 1_500)] } else { [(170, 36), (1_000, 24)] } {
        let database = server.database().await;
        let (told, over) = (Arc::new(Mutex::new(Told::default())), Arc::new(AtomicBool::new(false)));
        let mut claimers = tokio::task::JoinSet::new();
        let mut movers = tokio::task::JoinSet::new();
        // Two nodes, each with connections of its own.
        for _ in 0..2 {
            let store: Arc<dyn Inspect> = Arc::new(open(&server, &database, StoreClock::server()).await);
            for _ in 0..4 {
                claimers.spawn(claimer(store.clone(), told.clone(), random.split(), batches, keys));
            }
            movers.spawn(mover(store.clone(), told.clone(), random.split(), over.clone()));
        }
        claimers.join_all().await;
        over.store(true, Ordering::Relaxed);
        let moved = movers.join_all().await;
        let told = std::mem::take(&mut *told.lock().unwrap());
        println!(
            "{} claims of {} keys: {} new, {} duplicates, {} stale, {} again; moved, contended: {moved:?}",
            told.claims,
            keys * 3,
            told.new.len(),
            told.duplicates.len(),
            told.stale,
            told.again
        );
        assert!(told.new.len() > 50 && told.duplicates.len() > 50);
        told.check_duplicates();
        check_tables(&server.client(&database).await, &told).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_response_is_lost_is_claimed_again_as_the_same_event() {
    let rounds = if std::env::var_os("HOOKONCE_FULL").is_some() { 1_000 } else { 40 };
    let server = Server::start().await;
    let database = server.database().await;
    let proxy = Cutter::before(server.port).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", proxy.port);
    let options = PostgresOpenOptions { clock: StoreClock::manual(START), schema: SchemaMode::Auto };
    let store = PostgresStore::open(&url, options).await.unwrap();
    for n in 0..rounds {
        let mut made = making().delivery(&format!("d{n}")).body(format!("b{n}"));
        if n % 2 == 0 {
            made = made.change(&format!("s{n}"), "A", None).group("g"); // the write path with locks
        }
        let new = made.made(store.now());
        proxy.armed.store(true, Ordering::SeqCst);
        let lost = store.claim(vec![new.clone().into()]).await;
        assert!(matches!(lost, Err(StoreError::Unsure(_))), "{lost:?}");
        let again = store.claim(vec![new.clone().into()]).await.unwrap().remove(0);
        assert!(matches!(&again, ClaimResult::New { event, .. } if event.id == new.event.id), "{again:?}");
    }
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), rounds);
    let db = server.client(&database).await;
    let row = db.query_one("select (select count(*) from events), (select count(*) from keys)", &[]).await.unwrap();
    let rounds = i64::try_from(rounds).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (rounds, 2 * rounds));
    println!("{rounds} responses to a commit were cut: {rounds} events");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_dropped_half_way_poisons_no_connection() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&server, &database, StoreClock::server()).await;
    let (mut given_up, mut answered) = (0, 0);
    for n in 0..300_u64 {
        let one = making().delivery(&format!("x{n}")).change(&format!("s{}", n % 7), "A", None).made(store.now());
        let patience = std::time::Duration::from_micros(n * 97 % 6_000);
        match tokio::time::timeout(patience, store.claim(vec![one.into()])).await {
            Ok(answer) => {
                answer.unwrap();
                answered += 1;
            }
            Err(_) => given_up += 1,
        }
        if n % 3 == 0 {
            // The next claim gets its own event, and no other.
            let own = making().delivery(&format!("own{n}"));
            let id = own.id();
            let claim = store.claim(vec![own.made(store.now()).into()]).await.unwrap().remove(0);
            assert!(matches!(&claim, ClaimResult::New { event, .. } if event.id == id), "{claim:?}");
            assert_eq!(store.get(id).await.unwrap().unwrap().id, id);
        }
    }
    println!("{given_up} given up, {answered} answered");
    assert!(given_up > 20);
    let db = server.client(&database).await;
    let left = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    for _ in 0..1200 {
        if db.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("a transaction was left open");
}
