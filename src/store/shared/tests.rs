//! The draft against the contract, on a shelf in memory; and beside others who write at the worst moment.

use super::{Cell, Found, Op, PARKED_READ, Reading, Seen, Shared, Shelf, Slot, Swap, Version};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::{Claim, New, Payload};
use crate::decide::event::{Blocks, Event, Outcome, Receipt, State, Step};
use crate::decide::id::{EventId, Node};
use crate::decide::recipe::Recipe;
use crate::decide::retry::Jitter;
use crate::decide::source::{Keep, Kept, Route};
use crate::decide::time::{Duration, Timestamp};
use crate::store::clock::Clock;
use crate::store::contract::{self, Fresh, making};
use crate::store::ledger::{Ledger, Swept};
use crate::store::memory::{Books, Memory};
use crate::store::quarantine::Quarantined;
use crate::store::{
    Advance, Answer, Census, Due, Forgotten, Keeps, Listing, Look, Note, Page, SourceCount, SourceRetention, Started,
    Starts, Store, Stored, Story, sweep,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

mod queue;

/// The books of a memory store as a shelf.
struct Board {
    memory: Memory,
    versions: Mutex<HashMap<Cell, Version>>,
    dawdles: AtomicUsize,
    fails_after: AtomicUsize,
    seen: Mutex<Option<Timestamp>>,
}

impl Board {
    fn new(clock: Clock, dawdles: usize) -> Self {
        Self {
            memory: Memory::new(clock),
            versions: Mutex::default(),
            dawdles: AtomicUsize::new(dawdles),
            fails_after: AtomicUsize::new(usize::MAX),
            seen: Mutex::default(),
        }
    }

    fn versions(&self) -> MutexGuard<'_, HashMap<Cell, Version>> {
        self.versions.lock().expect("nobody panics")
    }

    fn find(&self, books: &mut Books, cell: Cell) -> Found {
        let version = self.versions().get(&cell).copied().unwrap_or(Version(0));
        let found = match cell {
            Cell::Key(key) => books.held(&key).map(|held| held.map(Found::Key)),
            Cell::Imported(key) => books.is_imported(&key).map(|is| is.then_some(Found::Imported)),
            Cell::Register(subject) => books.register(&subject).map(|r| r.map(|r| Found::Register(r, version))),
            Cell::Slot(group) => books.slot(&group).map(|holder| {
                let queue = books.queue(&group);
                let (parked, more) = (queue.iter().take(PARKED_READ).copied().collect(), queue.len() > PARKED_READ);
                holder.map(|holder| Found::Slot(Slot { holder, parked, more }, version))
            }),
            Cell::Event(id) => books.row(id).map(|row| row.map(|row| Found::Event(Box::new(row), version))),
        };
        found.unwrap_or_else(|never| match never {}).unwrap_or(Found::Nothing)
    }

    fn apply(&self, books: &mut Books, op: Op) {
        let written = match op {
            Op::Put { was, row, version, payload } => {
                self.versions().insert(Cell::Event(row.event.id), version);
                if was.is_some() { books.update(&row) } else { books.insert(&row, payload.as_ref()) }
            }
            Op::Remove(id, _) => books.remove(id),
            Op::Hold(key, held) => books.hold(&key, &held),
            Op::SetImported(key) => books.set_imported(&key).map(|_| ()),
            Op::SetRegister(subject, register, version) => {
                self.versions().insert(Cell::Register(subject), version);
                books.set_register(&subject, &register)
            }
            Op::RemoveRegister(subject) => books.remove_register(&subject),
            Op::SetSlot(group, holder, version) => {
                self.versions().insert(Cell::Slot(group), version);
                books.set_slot(&group, Some(holder))
            }
            Op::FreeSlot(group) => books.set_slot(&group, None),
            Op::SetPayload(event, payload) => books.set_payload(&event, &payload),
            Op::SetReceipt(id, receipt) => books.set_receipt(id, receipt.as_ref()),
            Op::SetTried(id, tried) => books.set_tried(id, &tried),
            Op::RemoveBody(row) => {
                books.remove_body(row.event.id);
                Ok(())
            }
            Op::Shed(id) => books.shed(id),
            Op::SetSightings(id, count, seen) => {
                books.set_sightings(id, count, seen);
                Ok(())
            }
        };
        written.unwrap_or_else(|never| match never {});
    }
}

impl Shelf for Board {
    fn read(&self, cells: Vec<Cell>, turns: usize) -> Answer<'_, Reading> {
        let mut books = self.memory.books();
        let cells = cells.into_iter().map(|cell| (cell, self.find(&mut books, cell))).collect();
        let turn = books.next_turn();
        (1..turns).for_each(|_| {
            books.next_turn();
        });
        let reading = Reading { cells, turn, now: self.memory.now() };
        Box::pin(async move {
            // Others write between what is read here and what is written because of it.
            for _ in 0..self.dawdles.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            Ok(reading)
        })
    }

    fn write(&self, swaps: Vec<Swap>) -> Answer<'_, Vec<bool>> {
        Box::pin(async move {
            if self.fails_after.fetch_sub(1, Ordering::Relaxed) == 0 {
                return Err(crate::store::StoreError::Down("it was told to".into()));
            }
            let mut books = self.memory.books();
            let mut written = Vec::new();
            for swap in swaps {
                let holds = swap.seen.iter().all(|(cell, seen)| Seen::of(&self.find(&mut books, *cell)) == *seen);
                if holds {
                    swap.ops.into_iter().for_each(|op| self.apply(&mut books, op));
                }
                written.push(holds);
            }
            Ok(written)
        })
    }

    fn forgettable<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> Answer<'a, Vec<EventId>> {
        Box::pin(async move {
            let found = self.memory.books().forgettable(source, before, limit);
            Ok(found.unwrap_or_else(|never| match never {}))
        })
    }

    fn with_old_bodies<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> Answer<'a, Vec<EventId>> {
        Box::pin(async move { Ok(self.memory.books().old_bodies(source, before, limit)) })
    }

    fn payload(&self, id: EventId) -> Answer<'_, Stored<Payload>> {
        self.memory.payload(id)
    }
    fn receipt(&self, id: EventId) -> Answer<'_, Option<Receipt>> {
        self.memory.receipt(id)
    }
    fn due(&self, look: Look, limit: usize) -> Answer<'_, Due> {
        self.memory.due(look, limit)
    }
    fn start_due(&self, starts: Starts) -> Answer<'_, Started> {
        self.memory.start_due(starts)
    }
    fn list(&self, listing: Listing) -> Answer<'_, Vec<Event>> {
        self.memory.list(listing)
    }
    fn page(&self, listing: Listing) -> Answer<'_, Page> {
        self.memory.page(listing)
    }
    fn census(&self) -> Answer<'_, Census> {
        self.memory.census()
    }
    fn story(&self, id: EventId) -> Answer<'_, Option<Story>> {
        self.memory.story(id)
    }
    fn named(&self, name: String, limit: usize) -> Answer<'_, Vec<Event>> {
        self.memory.named(name, limit)
    }
    fn note(&self, notes: Vec<Note>) -> Answer<'_, ()> {
        self.memory.note(notes)
    }
    fn retention(&self) -> Answer<'_, Vec<SourceRetention>> {
        self.memory.retention()
    }
    fn retain(&self, rows: Vec<SourceRetention>) -> Answer<'_, ()> {
        self.memory.retain(rows)
    }
    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> Answer<'_, Vec<SourceCount>> {
        self.memory.other_sources(known)
    }
    fn recipes(&self) -> Answer<'_, Vec<Recipe>> {
        self.memory.recipes()
    }
    fn remember(&self, recipes: Vec<Recipe>) -> Answer<'_, ()> {
        self.memory.remember(recipes)
    }
    fn quarantine(&self, message: Quarantined) -> Answer<'_, ()> {
        self.memory.quarantine(message)
    }
    fn quarantined(&self, limit: usize) -> Answer<'_, Vec<Quarantined>> {
        self.memory.quarantined(limit)
    }
    fn clock(&self) -> &Clock {
        &self.memory.clock
    }
    fn last_seen(&self) -> Answer<'_, Option<Timestamp>> {
        Box::pin(std::future::ready(Ok(*self.seen.lock().unwrap())))
    }
    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> Answer<'_, ()> {
        let mut seen = self.seen.lock().unwrap();
        if *seen == was {
            *seen = Some(time);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

const START: Timestamp = Timestamp(1_750_000_000_000_000);

#[tokio::test]
async fn a_draft_keeps_the_contract() {
    contract::run(async || {
        let clock = Clock::manual(START);
        Fresh::by(Shared(Board::new(clock.clone(), 0)), &clock)
    })
    .await;
}

/// Claims and acts, as one of many nodes: everything collides with everything.
async fn node(store: Arc<Shared<Board>>, mut seed: u64) -> Vec<(New, Claim)> {
    let mut roll = |sides: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 33) % sides
    };
    let mut claims = Vec::new();
    for _ in 0..60 {
        let batch: Vec<New> = (0..=roll(8))
            .map(|_| {
                let mut one = making().delivery(&format!("d{}", roll(300))).named(&format!("h{}", roll(300)));
                if roll(2) == 0 {
                    let subject = format!("s{}", roll(3));
                    one = one.change(&subject, &format!("v{}", roll(4)), None).group(&subject);
                } else if roll(3) == 0 {
                    one = one.group(&format!("g{}", roll(2)));
                }
                one.made(store.now())
            })
            .collect();
        let mut open = batch;
        while !open.is_empty() {
            let answers = store.claim(open.clone()).await.expect("it claims");
            let answered: Vec<_> = open.into_iter().zip(answers).collect();
            open = answered.iter().filter(|(_, claim)| *claim == Claim::Again).map(|(new, _)| new.clone()).collect();
            claims.extend(answered.into_iter().filter(|(_, claim)| *claim != Claim::Again));
        }
        act(&store).await;
    }
    claims
}

/// One attempt of each that is due, as far as nobody else was faster.
async fn act(store: &Shared<Board>) {
    let step = async |event: &Event, step| {
        let change = event.change(step, &Route::default(), store.now()).expect("it is possible");
        match store.advance(vec![change]).await.expect("it writes").remove(0) {
            Advance::Written { event, .. } => Some(*event),
            Advance::Lost => None,
        }
    };
    let due = store.due(Look::Strays(Arc::new([])), 20).await.expect("it reads").events;
    for event in due {
        let lasts = Duration::from_secs(30);
        let started = step(&event, Step::Start { lasts, by: Node("n".into()), action: ActionKind::Run }).await;
        if let Some(event) = started.filter(|event| matches!(event.state, State::Running { .. })) {
            let outcome = Outcome::Delivered(None);
            step(&event, Step::Settle { outcome, blocks: Blocks(0), jitter: Jitter(0) }).await.expect("it holds it");
        }
    }
}

#[tokio::test]
async fn nodes_that_write_at_once_share_no_key_strand_nobody_and_answer_with_what_is_there() {
    for seed in 1..=20_u64 {
        let store = Arc::new(Shared(Board::new(Clock::manual(START), 1 + usize::try_from(seed % 3).expect("small"))));
        let nodes = (0..6).map(|n| tokio::spawn(node(store.clone(), seed * 1_000 + n)));
        let mut claims = Vec::new();
        for node in nodes.collect::<Vec<_>>() {
            claims.extend(node.await.expect("no node panics"));
        }
        // What is left in the queues runs out by itself: nobody is parked behind a slot that is free.
        for _ in 0..2_000 {
            act(&store).await;
        }
        let events = store.list(Listing { limit: 100_000, ..Listing::default() }).await.expect("it reads");
        let left: Vec<_> = events.iter().filter(|event| event.state.ended().is_none()).collect();
        assert!(left.is_empty(), "seed {seed}: {} still wait: {left:?}", left.len());
        let ids: HashSet<EventId> = events.iter().map(|event| event.id).collect();
        let mut holders = HashMap::new();
        for (new, claim) in &claims {
            match claim {
                Claim::New { event, .. } => {
                    assert!(ids.contains(&event.id));
                    for identity in &new.keys {
                        let other = holders.insert(identity.key, event.id);
                        assert_eq!(other, None, "seed {seed}: two events hold one key");
                    }
                }
                Claim::Duplicate { event, .. } => assert!(ids.contains(&event.id), "seed {seed}: of nobody"),
                other => panic!("{other:?}"),
            }
        }
        let mut books = store.0.memory.books();
        for (key, event) in holders {
            let held = books.held(&key).unwrap_or_else(|never| match never {});
            assert_eq!(held.map(|held| held.event), Some(event), "seed {seed}: a key lost its event");
        }
    }
}

#[tokio::test]
async fn what_a_sweep_has_freed_before_it_fails_is_counted() {
    let clock = Clock::manual(START);
    let store = Shared(Board::new(clock.clone(), 0));
    for source in ["a", "b"] {
        let one = |n| making().source(source).delivery(&format!("{source}{n}")).recorded().made(START);
        store.claim((0..3).map(one).collect()).await.expect("it claims");
    }
    let day = Duration::from_hours(24);
    clock.advance(2 * day);
    let kept = Kept { keys: Keep::For(day), body: 365 * day };
    let keeps = Arc::new(Keeps { sources: [("a".into(), kept), ("b".into(), kept)].into() });
    // The events of each source go in one write. The second one fails.
    store.0.fails_after.store(1, Ordering::Relaxed);
    let failed = sweep::everything(&store, &keeps).await.expect_err("it was told to");
    let left = store.list(Listing { limit: 10, ..Listing::default() }).await.expect("it reads");
    assert_eq!((failed.freed, left.len()), (Forgotten { events: 3, bodies: 0 }, 3));
    assert!(failed.to_string().ends_with("; 3 events and 0 bodies had been forgotten before that"), "{failed}");
}
