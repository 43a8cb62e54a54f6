//! The optimistic transaction against the conformance suite, on a backend in memory; and with others writing at the
//! worst moment.
pub(crate) mod queue;
pub(crate) mod together;

use super::{
    ConditionalWrite, ExpectedVersion, GroupSlot, PARKED_READ, ReadBatch, Record, RecordId, RecordVersion, RecordWrite,
    VersionedBackend,
};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::{ClaimResult, NewEvent, Payload};
use crate::decide::event::{Event, EventState, EventStep, Outcome, Receipt, SucceededBlocks};
use crate::decide::id::{EventId, Key, NodeId};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{Ledger, SubjectRegister, SweepLedger};
use crate::decide::retry::Jitter;
use crate::decide::source::{Keep, Retention, Route};
use crate::decide::time::{Duration, Timestamp};
use crate::store::clock::StoreClock;
use crate::store::conformance;
use crate::store::conformance::{StoreUnderTest, making};
use crate::store::inspect::QuarantinedMessage;
use crate::store::memory::{MemoryStore, MemoryTables};
use crate::store::{
    AdvanceResult, DueEvents, DueQuery, DuplicateNote, EventCounts, EventDetails, EventPage, EventQuery, ForgetCounts,
    Inspect, RetentionPolicies, SourceCount, SourceRetention, StartDueRequest, StartDueResult, Store, StoreBackend,
    StoreFuture, StoredValue, retention,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The tables of a memory store as a versioned backend.
struct MemoryBackend {
    memory: MemoryStore,
    versions: Mutex<HashMap<RecordId, RecordVersion>>,
    dawdles: AtomicUsize,
    fails_after: AtomicUsize,
    loses_after: AtomicUsize,
    writes: AtomicUsize,
    seen: Mutex<Option<Timestamp>>,
}

impl MemoryBackend {
    fn new(clock: StoreClock, dawdles: usize) -> Self {
        Self {
            memory: MemoryStore::new(clock),
            versions: Mutex::default(),
            dawdles: AtomicUsize::new(dawdles),
            fails_after: AtomicUsize::new(usize::MAX),
            loses_after: AtomicUsize::new(usize::MAX),
            writes: AtomicUsize::new(0),
            seen: Mutex::default(),
        }
    }

    fn versions(&self) -> MutexGuard<'_, HashMap<RecordId, RecordVersion>> {
        self.versions.lock().expect("not poisoned")
    }

    fn find(&self, books: &mut MemoryTables, cell: RecordId) -> Record {
        let version = self.versions().get(&cell).copied().unwrap_or(RecordVersion(0));
        let found = match cell {
            RecordId::Key(key) => books.key_owner(&key).map(|held| held.map(Record::Key)),
            RecordId::Imported(key) => books.is_imported(&key).map(|is| is.then_some(Record::Imported)),
            RecordId::Register(subject) => books.register(&subject).map(|r| r.map(|r| Record::Register(r, version))),
            RecordId::Slot(group) => books.slot(&group).map(|holder| {
                let queue = books.queue(&group);
                let (parked, more) = (queue.iter().take(PARKED_READ).copied().collect(), queue.len() > PARKED_READ);
                holder.map(|holder| Record::Slot(GroupSlot { holder, parked, more }, version))
            }),
            RecordId::Event(id) => books.row(id).map(|row| row.map(|row| Record::Event(Box::new(row), version))),
        };
        found.unwrap_or_else(|never| match never {}).unwrap_or(Record::Nothing)
    }

    fn apply(&self, books: &mut MemoryTables, op: RecordWrite) {
        let written = match op {
            RecordWrite::Put { was, row, version, payload } => {
                self.versions().insert(RecordId::Event(row.event.id), version);
                if was.is_some() { books.update(&row) } else { books.insert(&row, payload.as_ref()) }
            }
            RecordWrite::Remove(id, _) => books.remove(id),
            RecordWrite::Hold(key, held) => books.set_key_owner(&key, &held),
            RecordWrite::SetImported(key) => books.set_imported(&key).map(|_| ()),
            RecordWrite::SetRegister(subject, register, version) => {
                self.versions().insert(RecordId::Register(subject), version);
                books.set_register(&subject, &register)
            }
            RecordWrite::RemoveRegister(subject) => books.remove_register(&subject),
            RecordWrite::SetSlot(group, holder, version) => {
                self.versions().insert(RecordId::Slot(group), version);
                books.set_slot(&group, Some(holder))
            }
            RecordWrite::FreeSlot(group) => books.set_slot(&group, None),
            RecordWrite::SetPayload(event, payload) => books.set_payload(&event, &payload),
            RecordWrite::SetReceipt(id, receipt) => books.set_receipt(id, receipt.as_ref()),
            RecordWrite::SetTried(id, tried) => books.add_attempt(id, &tried),
            RecordWrite::RemoveBody(row) => {
                books.remove_body(row.event.id);
                Ok(())
            }
            RecordWrite::Shed(id) => books.drop_transient_headers(id),
            RecordWrite::SetSightings(id, count, seen) => {
                books.set_sightings(id, count, seen);
                Ok(())
            }
        };
        written.unwrap_or_else(|never| match never {});
    }
}

impl StoreBackend for MemoryBackend {
    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        self.memory.payload(id)
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        self.memory.receipt(id)
    }

    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        self.memory.start_due(starts)
    }

    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        self.memory.note_duplicates(notes)
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        self.memory.retention()
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        self.memory.set_retention(rows)
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        self.memory.quarantine(message)
    }

    fn clock(&self) -> &StoreClock {
        &self.memory.clock
    }
}

impl VersionedBackend for MemoryBackend {
    fn read(&self, cells: Vec<RecordId>, turns: usize) -> StoreFuture<'_, ReadBatch> {
        let mut books = self.memory.books();
        let cells = cells.into_iter().map(|cell| (cell, self.find(&mut books, cell))).collect();
        let turn = books.next_turn();
        (1..turns).for_each(|_| {
            books.next_turn();
        });
        let reading = ReadBatch { cells, turn, now: self.memory.now() };
        Box::pin(async move {
            // Let others write between this read and the write that depends on it.
            for _ in 0..self.dawdles.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            Ok(reading)
        })
    }

    fn shares_commits(&self) -> bool {
        true
    }

    fn write(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>> {
        Box::pin(async move {
            self.writes.fetch_add(1, Ordering::Relaxed);
            if self.fails_after.fetch_sub(1, Ordering::Relaxed) == 0 {
                return Err(crate::store::StoreError::Down("told to fail".into()));
            }
            let mut books = self.memory.books();
            let mut written = Vec::new();
            for swap in swaps {
                let holds =
                    swap.seen.iter().all(|(cell, seen)| ExpectedVersion::of(&self.find(&mut books, *cell)) == *seen);
                if holds {
                    swap.ops.into_iter().for_each(|op| self.apply(&mut books, op));
                }
                written.push(holds);
            }
            if self.loses_after.fetch_sub(1, Ordering::Relaxed) == 0 {
                return Err(crate::store::StoreError::Unsure("told to lose the response".into()));
            }
            Ok(written)
        })
    }

    fn forgettable<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> StoreFuture<'a, Vec<EventId>> {
        Box::pin(async move {
            let found = self.memory.books().forgettable(source, before, limit);
            Ok(found.unwrap_or_else(|never| match never {}))
        })
    }

    fn with_old_bodies<'a>(
        &'a self,
        source: &'a str,
        before: Timestamp,
        limit: usize,
    ) -> StoreFuture<'a, Vec<EventId>> {
        Box::pin(async move { Ok(self.memory.books().old_bodies(source, before, limit)) })
    }

    fn due_or_damaged(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        self.memory.due(look, limit)
    }

    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(std::future::ready(Ok(*self.seen.lock().unwrap())))
    }

    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> StoreFuture<'_, ()> {
        let mut seen = self.seen.lock().unwrap();
        if *seen == was {
            *seen = Some(time);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Inspect for MemoryBackend {
    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>> {
        self.memory.list(listing)
    }

    fn page(&self, listing: EventQuery) -> StoreFuture<'_, EventPage> {
        self.memory.page(listing)
    }

    fn counts(&self) -> StoreFuture<'_, EventCounts> {
        self.memory.counts()
    }

    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>> {
        self.memory.details(id)
    }

    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        self.memory.find_by_name(name, limit)
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>> {
        self.memory.other_sources(known)
    }

    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>> {
        self.memory.recipes()
    }

    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()> {
        self.memory.set_recipes(recipes)
    }

    fn registers(&self, after: Option<Key>, limit: usize) -> StoreFuture<'_, Vec<(Key, SubjectRegister)>> {
        self.memory.registers(after, limit)
    }

    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>> {
        self.memory.quarantined(limit)
    }
}

const START: Timestamp = Timestamp(1_750_000_000_000_000);

#[tokio::test]
async fn an_optimistic_store_passes_the_conformance_suite() {
    conformance::run(async || {
        let clock = StoreClock::manual(START);
        StoreUnderTest::by(MemoryBackend::new(clock.clone(), 0), &clock)
    })
    .await;
}

/// Claims and acts as one of many nodes; everything conflicts with everything.
async fn node(store: Arc<MemoryBackend>, mut seed: u64) -> Vec<(Arc<NewEvent>, ClaimResult)> {
    let mut roll = |sides: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 33) % sides
    };
    let mut claims = Vec::new();
    for _ in 0..60 {
        let batch: Vec<Arc<NewEvent>> = (0..=roll(8))
            .map(|_| {
                let mut one = making().delivery(&format!("d{}", roll(300))).named(&format!("h{}", roll(300)));
                if roll(2) == 0 {
                    let subject = format!("s{}", roll(3));
                    one = one.change(&subject, &format!("v{}", roll(4)), None).group(&subject);
                } else if roll(3) == 0 {
                    one = one.group(&format!("g{}", roll(2)));
                }
                one.made(store.now()).into()
            })
            .collect();
        let mut open = batch;
        while !open.is_empty() {
            let answers = if roll(2) == 0 {
                store.claim(open.clone()).await.expect("it claims")
            } else {
                let due = store.due(DueQuery::Orphans(Arc::new([])), 3).await.expect("it reads").events;
                let cancelled =
                    |event: &Event| event.transition(EventStep::Cancel, &Route::default(), store.now()).ok();
                let changes = Arc::new(due.iter().filter_map(cancelled).collect());
                store.claim_and_advance(open.clone(), changes).await.expect("it claims").0
            };
            let answered: Vec<_> = open.into_iter().zip(answers).collect();
            open = answered
                .iter()
                .filter(|(_, claim)| *claim == ClaimResult::Undecided)
                .map(|(new, _)| new.clone())
                .collect();
            claims.extend(answered.into_iter().filter(|(_, claim)| *claim != ClaimResult::Undecided));
        }
        act(&store).await;
    }
    claims
}

/// One attempt of each due event that no other node has started.
async fn act(store: &MemoryBackend) {
    let step = async |event: &Event, step| {
        let change = event.transition(step, &Route::default(), store.now()).expect("it is possible");
        match store.advance(vec![change]).await.expect("it writes").remove(0) {
            AdvanceResult::Written { event, .. } => Some(*event),
            AdvanceResult::Lost => None,
        }
    };
    let due = store.due(DueQuery::Orphans(Arc::new([])), 20).await.expect("it reads").events;
    for event in due {
        let lasts = Duration::from_secs(30);
        let started = step(&event, EventStep::Start { lasts, by: NodeId("n".into()), action: ActionKind::Run }).await;
        if let Some(event) = started.filter(|event| matches!(event.state, EventState::Running { .. })) {
            let outcome = Outcome::Delivered(None);
            step(&event, EventStep::Settle { outcome, blocks: SucceededBlocks(0), jitter: Jitter(0) })
                .await
                .expect("it holds it");
        }
    }
}

#[tokio::test]
async fn concurrent_nodes_share_no_key_strand_no_event_and_return_events_that_exist() {
    for seed in 1..=20_u64 {
        let store =
            Arc::new(MemoryBackend::new(StoreClock::manual(START), 1 + usize::try_from(seed % 3).expect("small")));
        let nodes = (0..6).map(|n| tokio::spawn(node(store.clone(), seed * 1_000 + n)));
        let mut claims = Vec::new();
        for node in nodes.collect::<Vec<_>>() {
            claims.extend(node.await.expect("no node panics"));
        }
        // What is left in the queues must drain: no event stays parked behind a free slot.
        for _ in 0..2_000 {
            act(&store).await;
        }
        let events = store.list(EventQuery { limit: 100_000, ..EventQuery::default() }).await.expect("it reads");
        let left: Vec<_> = events.iter().filter(|event| event.state.ended().is_none()).collect();
        assert!(left.is_empty(), "seed {seed}: {} still wait: {left:?}", left.len());
        let ids: HashSet<EventId> = events.iter().map(|event| event.id).collect();
        let mut holders = HashMap::new();
        for (new, claim) in &claims {
            match claim {
                ClaimResult::New { event, .. } => {
                    assert!(ids.contains(&event.id));
                    for identity in &new.keys {
                        let other = holders.insert(identity.key, event.id);
                        assert_eq!(other, None, "seed {seed}: two events hold one key");
                    }
                }
                ClaimResult::Duplicate { event, .. } => {
                    assert!(ids.contains(&event.id), "seed {seed}: a duplicate of no event");
                }
                other => panic!("{other:?}"),
            }
        }
        let mut books = store.memory.books();
        for (key, event) in holders {
            let held = books.key_owner(&key).unwrap_or_else(|never| match never {});
            assert_eq!(held.map(|held| held.event), Some(event), "seed {seed}: a key lost its event");
        }
    }
}

#[tokio::test]
async fn what_a_sweep_has_deleted_before_it_fails_is_counted() {
    let clock = StoreClock::manual(START);
    let store = MemoryBackend::new(clock.clone(), 0);
    for source in ["a", "b"] {
        let one = |n| making().source(source).delivery(&format!("{source}{n}")).recorded().made(START);
        store.claim((0..3).map(|n| one(n).into()).collect()).await.expect("it claims");
    }
    let day = Duration::from_hours(24);
    clock.advance(2 * day);
    let kept = Retention { keys: Keep::For(day), body: 365 * day };
    let keeps = Arc::new(RetentionPolicies { sources: [("a".into(), kept), ("b".into(), kept)].into() });
    // The events of each source are deleted in one write. The second one fails.
    store.fails_after.store(1, Ordering::Relaxed);
    let failed = retention::sweep_all(&store, &keeps, retention::SweepCompany::None).await.expect_err("told to fail");
    let left = store.list(EventQuery { limit: 10, ..EventQuery::default() }).await.expect("it reads");
    assert_eq!((failed.freed, left.len()), (ForgetCounts { events: 3, bodies: 0 }, 3));
    assert!(failed.to_string().ends_with("; 3 events and 0 bodies were forgotten before that"), "{failed}");
}

/// Each of its keys leads to another event, which is found only once the one before it is known to have expired.
#[tokio::test]
async fn an_event_that_replaces_many_expired_ones_is_claimed_however_often_it_must_read() {
    let clock = StoreClock::manual(START);
    let store = MemoryBackend::new(clock.clone(), 0);
    let expired = (0..20).map(|n| {
        let subject = format!("s{n}");
        let one = making().delivery(&format!("d{n}")).change(&subject, "v", None).group(&subject);
        Arc::new(one.recorded().made(START))
    });
    let expired: Vec<_> = expired.collect();
    store.claim(expired.clone()).await.expect("it claims");
    for one in &expired {
        // Another change lets the first one expire.
        let subject = one.event.change.expect("it has one").subject;
        let mut next = making().delivery(&format!("{}", one.event.id)).change("s", "w", None).recorded().made(START);
        next.event.change.as_mut().expect("it has one").subject = subject;
        store.claim(vec![next.into()]).await.expect("it claims");
    }
    clock.advance(Duration::from_hours(24 * 1_000));
    let mut one = making().delivery("new").made(store.now());
    one.keys.extend(expired.iter().flat_map(|one| one.keys.clone()));
    let claims = store.claim(vec![one.into()]).await.expect("it claims");
    assert!(matches!(claims[..], [ClaimResult::New { .. }]), "{claims:?}");
}
