//! The same random history gives the same results in every store. There are few keys, subjects and groups, so that
//! everything collides.

use super::due;
use crate::seed::{self, Random};
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{ClaimResult, DuplicateTarget, ImportedKeyValidity, MatchedBy, NewEvent};
use hookonce::decide::event::{Event, EventStep, Outcome, Receipt, SucceededBlocks};
use hookonce::decide::id::{EventId, NodeId, QueueTurn};
use hookonce::decide::retry::{Jitter, RetryPolicy};
use hookonce::decide::source::{InDoubtPolicy, Keep, Retention, Route};
use hookonce::decide::time::Duration;
use hookonce::decide::transition::AttemptRecord;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::{TestEventBuilder, imported, making};
use hookonce::store::memory::MemoryStore;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{
    Administer, AdvanceResult, DueEvents, DuplicateNote, DuplicateSighting, EventDetails, EventQuery, Inspect,
    RemovalResult, RetentionPolicies, StartDueRequest, Store, StoreBackend,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const STEPS: usize = 300;
pub(crate) const SEEDS: u64 = 40;

/// Whether turns are equal numbers, or only in the same order.
#[derive(Clone, Copy, PartialEq)]
enum Turns {
    Same,
    InOrder,
}

fn plain_event(mut event: Event, turns: Turns) -> Event {
    if turns == Turns::InOrder {
        event.turn = QueueTurn(0);
    }
    event
}

fn plain_events(events: Vec<Event>, turns: Turns) -> Vec<Event> {
    events.into_iter().map(|event| plain_event(event, turns)).collect()
}

fn plain_claim(claim: ClaimResult, turns: Turns) -> ClaimResult {
    if turns == Turns::InOrder { without_turn(claim) } else { claim }
}

fn plain_advance(advance: AdvanceResult, turns: Turns) -> AdvanceResult {
    match advance {
        AdvanceResult::Written { event, now } => {
            AdvanceResult::Written { event: Box::new(plain_event(*event, turns)), now }
        }
        AdvanceResult::Lost => AdvanceResult::Lost,
    }
}

fn same<T>(value: T, _: Turns) -> T {
    value
}

/// Whether SQLite is closed and reopened on the way. Then only the order of turns is comparable.
#[derive(Clone, Copy, PartialEq)]
enum Reopens {
    Never,
    Sometimes,
}

struct All {
    dice: Random,
    reopens: Reopens,
    path: PathBuf,
    clock: StoreClock,
    memory: MemoryStore,
    sqlite: Option<SqliteStore>,
    /// Stores that many nodes share. Only the order of their turns is comparable.
    shared: Vec<Box<dyn Inspect>>,
    ids: Vec<EventId>,
    made: Vec<NewEvent>,
    seen: Vec<Event>,
    answers: BTreeMap<&'static str, u32>,
}

/// Only a claim that is written has a turn.
fn without_turn(mut claim: ClaimResult) -> ClaimResult {
    if let ClaimResult::New { event, .. } | ClaimResult::Duplicate { event, .. } = &mut claim {
        event.turn = QueueTurn(0);
    }
    claim
}

impl All {
    fn sqlite(&self) -> &SqliteStore {
        self.sqlite.as_ref().unwrap()
    }

    /// Makes the same call on every store but memory, and compares the results.
    async fn ask_all<T: Clone + PartialEq + std::fmt::Debug>(
        &self,
        ours: T,
        ask: impl AsyncFn(&dyn Inspect) -> T,
        plain: impl Fn(T, Turns) -> T,
    ) {
        let theirs = ask(self.sqlite()).await;
        let turns = if self.reopens == Reopens::Sometimes { Turns::InOrder } else { Turns::Same };
        assert_eq!(plain(ours.clone(), turns), plain(theirs, turns), "SQLite");
        for (place, store) in self.shared.iter().enumerate() {
            let theirs = ask(&**store).await;
            assert_eq!(plain(ours.clone(), Turns::InOrder), plain(theirs, Turns::InOrder), "shared store {place}");
        }
    }

    fn count(&mut self, answer: &'static str) {
        *self.answers.entry(answer).or_default() += 1;
    }

    fn making(&mut self) -> TestEventBuilder {
        let dice = &mut self.dice;
        let mut made = making().source(["a", "b"][dice.index(2)]);
        let id = ["d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"][dice.index(8)];
        let body = dice.one(&["b1", "b2", "b3", "b4", "b5", "b6"]);
        let how = dice.index(8);
        made = match how {
            0 | 1 => made.unsigned(id, body),
            2 => made.unsigned_alone(id, body),
            3..7 => made.delivery(id),
            _ => made,
        };
        made = match dice.index(3) {
            _ if how < 3 => made,
            0 => made.body(dice.one(&["b1", "b2", "b3", "b4", "b5", "b6"])),
            1 => made.carrying("carried"),
            _ => made,
        };
        if dice.index(4) == 0 {
            made = made.named(["n1", "n2", "n3"][dice.index(3)]);
        }
        if dice.index(8) == 0 {
            made = made.known_as(
                dice.one(&["i1", "i2"]),
                dice.one(&[ImportedKeyValidity::Always, ImportedKeyValidity::WhileRegisterEmpty]),
            );
        }
        let group = ["g1", "g2"][dice.index(2)];
        if dice.index(2) == 0 {
            let order = dice.one(&[None, Some(1), Some(2), Some(3), Some(3), Some(4)]);
            made = made.change(["s1", "s2", "s3"][dice.index(3)], ["A", "B", "C"][dice.index(3)], order);
        }
        if dice.index(2) == 0 {
            made = made.group(group);
        }
        if dice.index(5) == 0 {
            made = made.recorded();
        }
        made.kept(self.kept())
    }

    fn kept(&mut self) -> Retention {
        let keys = self.dice.one(&[Keep::For(DAY), Keep::For(3 * DAY), Keep::Forever]);
        Retention { keys, body: self.dice.one(&[Duration::ZERO, DAY / 2, 2 * DAY]) }
    }

    async fn claim(&mut self) {
        let mut batch = Vec::new();
        for _ in 0..=self.dice.index(3) {
            let again = self.dice.index(10) == 0 && !self.made.is_empty();
            let new = if again { self.dice.one(&self.made) } else { self.making().made(self.clock.now()) };
            self.made.push(new.clone());
            batch.push(new);
        }
        let foreseen = self.sqlite().preview_claim(vec![batch[0].clone()]).await.unwrap();
        let batch: Vec<_> = batch.into_iter().map(Arc::new).collect();
        let ours = self.memory.claim(batch.clone()).await.unwrap();
        assert_eq!(foreseen.into_iter().map(without_turn).next(), ours.first().cloned().map(without_turn));
        let plain =
            |claims: Vec<ClaimResult>, turns| claims.into_iter().map(|claim| plain_claim(claim, turns)).collect();
        self.ask_all(ours.clone(), async |store| store.claim(batch.clone()).await.unwrap(), plain).await;
        for claim in ours {
            let (word, event) = match claim {
                ClaimResult::New { event, .. } => ("new", Some(event)),
                ClaimResult::Duplicate { target: DuplicateTarget::ViaSuccessor, event, .. } => ("instead", Some(event)),
                ClaimResult::Duplicate { event, .. } => ("duplicate", Some(event)),
                ClaimResult::Imported { .. } => ("imported", None),
                ClaimResult::Stale { .. } => ("stale", None),
                ClaimResult::Undecided => ("again", None),
            };
            self.count(word);
            if let Some(event) = event {
                self.ids.push(event.id);
                self.seen.push(*event);
            }
        }
    }

    fn step(&mut self) -> EventStep {
        let dice = &mut self.dice;
        let blocks = SucceededBlocks(dice.index(4) as u64);
        let jitter = Jitter(u32::try_from(dice.index(1 << 20)).unwrap() << 12);
        let receipt = Some(Receipt { status: 418, headers: vec![], body: vec![b'x'; dice.index(9)], truncated: false });
        let outcome = match dice.index(4) {
            0 => Outcome::Delivered(receipt),
            1 => Outcome::Failed { why: "no".into(), retry_after: None, receipt: None },
            2 => Outcome::Rejected { why: "never".into(), receipt },
            _ => Outcome::Unknown { why: "who knows".into() },
        };
        match dice.index(16) {
            0..5 => {
                EventStep::Start { lasts: Duration::from_secs(30), by: NodeId("n".into()), action: ActionKind::Run }
            }
            5..9 => EventStep::Settle { outcome, blocks, jitter },
            9 => EventStep::Renew { lasts: Duration::from_secs(30), blocks },
            10 => EventStep::HandBack,
            11 => EventStep::Expire { jitter },
            12 => dice.one(&[EventStep::Rearm, EventStep::Resume, EventStep::PublishAgain]),
            13 => EventStep::Replay,
            14 => dice.one(&[EventStep::Cancel, EventStep::Damage]),
            _ => dice.one(&[EventStep::Suspend { lasts: DAY }, EventStep::Unsuspend]),
        }
    }

    async fn advance(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let id = self.dice.one(&self.ids);
        let now = self.memory.get(id).await.unwrap();
        let plain = |event: Option<Event>, turns| event.map(|event| plain_event(event, turns));
        self.ask_all(now.clone(), async |store| store.get(id).await.unwrap(), plain).await;
        let slept = self.dice.index(8) == 0; // a node that was paused writes over an old revision
        let Some(event) = (if slept { Some(self.dice.one(&self.seen)) } else { now }) else { return };
        let route = Route {
            retry: RetryPolicy { attempts: 2, first: Duration::from_secs(10), longest: Duration::from_mins(1) },
            in_doubt: self.dice.one(&[InDoubtPolicy::Retry, InDoubtPolicy::Hold, InDoubtPolicy::Never]),
            ..Route::default()
        };
        let step = self.step();
        let settles = matches!(step, EventStep::Settle { .. } | EventStep::Expire { .. });
        let rearms = matches!(step, EventStep::Rearm | EventStep::PublishAgain);
        let Ok(mut change) = event.transition(step, &route, self.clock.now()) else { return self.count("impossible") };
        if settles {
            change.attempt = Some(AttemptRecord {
                life: event.life,
                attempt: event.attempt,
                started_at: event.received_at,
                ended_at: self.clock.now(),
                outcome: "failed".into(),
                why: "no".into(),
                output: self.dice.one(&["", "output"]).into(),
            });
        }
        if rearms && self.dice.index(2) == 0 {
            let arriving = making().carrying(self.dice.one(&["x", "y"])).made(self.clock.now());
            change.event.body_digest = arriving.event.body_digest;
            change.event.digest = change.event.immutable_digest();
            change.payload = Some(arriving.payload);
        }
        let ours = self.memory.advance(vec![change.clone()]).await.unwrap().remove(0);
        let advance = async |store: &dyn Inspect| store.advance(vec![change.clone()]).await.unwrap().remove(0);
        self.ask_all(ours.clone(), advance, plain_advance).await;
        match ours {
            AdvanceResult::Written { event, .. } => {
                self.count(if event.state.ended().is_some() { "ended" } else { "went on" });
                self.seen.push(*event);
            }
            AdvanceResult::Lost => self.count("lost"),
        }
    }

    async fn start_due(&mut self) {
        let starts = StartDueRequest {
            source: self.dice.one(&["a", "b"]).into(),
            route: Arc::default(),
            part: 0,
            step: EventStep::Start { lasts: Duration::from_secs(30), by: NodeId("n".into()), action: ActionKind::Run },
            limit: 1 + self.dice.index(5),
        };
        let ours = self.memory.start_due(starts.clone()).await.unwrap().events;
        let start = async |store: &dyn Inspect| store.start_due(starts.clone()).await.unwrap().events;
        self.ask_all(ours.clone(), start, plain_events).await;
        for event in ours {
            self.count("started together");
            self.seen.push(event);
        }
    }

    async fn forget(&mut self) {
        let sources = [("a".into(), self.kept()), ("b".into(), self.kept())];
        let sources = sources.into_iter().take(1 + self.dice.index(2)).collect();
        let keeps = Arc::new(RetentionPolicies { sources });
        let ours = self.memory.forget(keeps.clone(), 10_000).await.unwrap();
        self.ask_all(ours, async |store| store.forget(keeps.clone(), 10_000).await.unwrap(), same).await;
        for _ in 0..ours.events {
            self.count("forgotten");
        }
    }

    async fn remove(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let id = self.dice.one(&self.ids);
        let ours = self.memory.remove(id).await.unwrap();
        self.ask_all(ours, async |store| store.remove(id).await.unwrap(), same).await;
        if ours == RemovalResult::Removed {
            self.count("removed");
        }
    }

    async fn look(&mut self) {
        let limit = self.dice.index(20);
        let ours = due(&self.memory, limit).await.unwrap();
        let plain =
            |all: [DueEvents; 2], turns| all.map(|due| DueEvents { events: plain_events(due.events, turns), ..due });
        self.ask_all(ours, async |store| due(store, limit).await.unwrap(), plain).await;
        let listing = EventQuery {
            source: self.dice.one(&[None, Some("a".to_owned())]),
            state: self.dice.one(&[None, Some("waiting"), Some("done"), Some("dead")]).map(str::to_owned),
            before: if self.ids.is_empty() { None } else { Some(self.dice.one(&self.ids)) },
            limit: self.dice.index(40),
            route: None,
            ..EventQuery::default()
        };
        let ours = self.memory.list(listing.clone()).await.unwrap();
        self.ask_all(ours, async |store| store.list(listing.clone()).await.unwrap(), plain_events).await;
        if self.ids.is_empty() {
            return;
        }
        let id = self.dice.one(&self.ids);
        let plain = |story: Option<EventDetails>, _| {
            story.map(|mut story| {
                // Notes are written with the next write: all stores have the same ones, but not yet at the same time.
                (story.sightings, story.duplicates) = (Vec::new(), 0);
                story.event.turn = QueueTurn(0);
                story
            })
        };
        let ours = self.memory.details(id).await.unwrap();
        self.ask_all(ours, async |store| store.details(id).await.unwrap(), plain).await;
        let ours = self.memory.payload(id).await.unwrap();
        self.ask_all(ours, async |store| store.payload(id).await.unwrap(), same).await;
        let name = if self.dice.index(2) == 0 { id.short() } else { "d1".into() };
        let ours = self.memory.find_by_name(name.clone(), 5).await.unwrap();
        self.ask_all(ours, async |store| store.find_by_name(name.clone(), 5).await.unwrap(), plain_events).await;
    }

    async fn note(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let sighting = DuplicateSighting { at: self.clock.now(), delivery_id: None, same: MatchedBy::Body };
        let note = vec![DuplicateNote { event: self.dice.one(&self.ids), sighting }];
        self.memory.note_duplicates(note.clone()).await.unwrap();
        self.ask_all((), async |store| store.note_duplicates(note.clone()).await.unwrap(), same).await;
    }

    async fn import(&mut self) {
        let keys = vec![imported(self.dice.one(&["i1", "i2", "i3"]))];
        let ours = self.memory.import(keys.clone()).await.unwrap();
        self.ask_all(ours, async |store| store.import(keys.clone()).await.unwrap(), same).await;
    }

    fn open(&mut self) {
        drop(self.sqlite.take());
        self.sqlite = Some(SqliteStore::open_by(&self.path, SqliteAccess::Tool, Some(self.clock.clone())).unwrap());
    }

    async fn live(&mut self) {
        for _ in 0..STEPS {
            match self.dice.index(32) {
                0..10 => self.claim().await,
                10..22 => self.advance().await,
                22..24 => self.start_due().await,
                24 => self.forget().await,
                25..27 => self.look().await,
                27 => self.note().await,
                29 => self.import().await,
                28 if self.dice.index(4) == 0 => self.remove().await,
                28 if self.reopens == Reopens::Sometimes => self.open(),
                _ => {
                    let length = [1, 1_000_000, 31_000_000, 3_600_000_000, 30_000_000_000][self.dice.index(5)];
                    self.clock.advance(Duration::from_micros(length));
                }
            }
        }
    }
}

const DAY: Duration = Duration::from_hours(24);

/// A folder in memory if possible: these tests sync thousands of times.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Runs these histories, each in new stores, and returns how often each result came.
pub(crate) async fn live_all(
    seeds: std::ops::RangeInclusive<u64>,
    shared: impl AsyncFn(StoreClock) -> Vec<Box<dyn Inspect>>,
) -> BTreeMap<&'static str, u32> {
    let dir = folder();
    let mut answers = BTreeMap::new();
    for seed in seed::given_or_all(seeds) {
        println!("{}", seed::repeat(seed));
        let clock = StoreClock::manual(crate::START);
        let mut all = All {
            dice: Random::new(seed),
            reopens: if seed % 2 == 0 { Reopens::Never } else { Reopens::Sometimes },
            path: dir.path().join(format!("{seed}.db")),
            memory: MemoryStore::new(clock.clone()),
            shared: shared(clock.clone()).await,
            clock,
            sqlite: None,
            ids: Vec::new(),
            made: Vec::new(),
            seen: Vec::new(),
            answers: BTreeMap::default(),
        };
        all.open();
        all.live().await;
        for (word, count) in all.answers {
            *answers.entry(word).or_insert(0) += count;
        }
    }
    println!("{answers:?}");
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_same_history_gives_the_same_results_in_memory_and_in_sqlite() {
    let answers = live_all(1..=SEEDS, async |_| Vec::new()).await;
    if seed::given().is_some() {
        return; // one history need not contain everything
    }
    for word in [
        "new",
        "duplicate",
        "instead",
        "imported",
        "stale",
        "ended",
        "went on",
        "lost",
        "forgotten",
        "removed",
        "started together",
    ] {
        assert!(answers.get(word).is_some_and(|count| *count > 20), "the histories cover too little: {answers:?}");
    }
}

/// Fewer histories: every step waits for a disk.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_history_gives_the_same_results_in_every_store() {
    let server = crate::postgres_server::Server::start().await;
    let seeds = if std::env::var_os("HOOKONCE_FULL").is_some() { SEEDS } else { 4 };
    let answers = live_all(1..=seeds, async |clock| {
        let database = server.database().await;
        let store: Box<dyn Inspect> = Box::new(crate::postgres::open(&server, &database, clock).await);
        vec![store]
    })
    .await;
    assert!(
        seed::given().is_some()
            || ["new", "duplicate", "stale", "ended", "lost"].iter().all(|word| answers.contains_key(word)),
        "{answers:?}"
    );
}
