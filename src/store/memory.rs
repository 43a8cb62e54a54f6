//! The in-memory store: for tests, for trying out, and as the plainest implementation of the rules. Its contents end
//! with its process.

use super::clock::StoreClock;
use super::inspect::QuarantinedMessage;
use super::{
    Administer, AdvanceResult, DueEvents, DueQuery, DuplicateLookup, DuplicateNote, DuplicateSighting, EventDetails,
    EventQuery, ForgetCounts, ImportCounts, Inspect, KnownDuplicate, RegisterEditResult, RemovalResult,
    RetentionPolicies, SourceCount, SourceRetention, StartDueRequest, StartDueResult, Store, StoreBackend, StoreError,
    StoreFuture, StoreTimes, StoredValue, SweepError,
};
use crate::decide::claim::{ClaimResult, NewEvent, Payload};
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{Digest, EventId, Key, QueueTurn};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{self, EventRow, KeyOwner, Ledger, RegisterEdit, SubjectRegister, SweepLedger, parking};
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::decide::transition::{AttemptRecord, Transition};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A store in this process's memory.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    books: Arc<Mutex<MemoryTables>>,
    pub(super) clock: StoreClock,
}

/// The tables of the memory store.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryTables {
    rows: BTreeMap<EventId, EventRow>,
    keys: HashMap<Key, KeyOwner>,
    keys_of: HashMap<EventId, Vec<Key>>,
    imported: HashSet<Key>,
    registers: HashMap<Key, SubjectRegister>,
    slots: HashMap<Key, EventId>,
    parked: BTreeSet<(Key, QueueTurn, EventId)>,
    wakes: BTreeSet<(Timestamp, EventId)>,
    payloads: HashMap<EventId, Payload>,
    receipts: HashMap<EventId, Receipt>,
    tried: HashMap<EventId, Vec<AttemptRecord>>,
    sightings: HashMap<EventId, (u64, Vec<DuplicateSighting>)>,
    turns: u64,
    recipes: Vec<IdentityRecipe>,
    retention: BTreeMap<Arc<str>, SourceRetention>,
    quarantine: VecDeque<QuarantinedMessage>,
}

impl MemoryStore {
    /// An empty store on this clock.
    pub fn new(clock: StoreClock) -> Self {
        Self { books: Arc::default(), clock }
    }

    pub(super) fn books(&self) -> MutexGuard<'_, MemoryTables> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one operation on the tables at the current time.
    fn with<T>(
        &self,
        act: impl FnOnce(&mut MemoryTables, StoreTimes) -> Result<T, Infallible>,
    ) -> Result<T, StoreError> {
        let mut books = self.books();
        let at = self.clock.moment();
        act(&mut books, at).map_err(|never| match never {})
    }
}

fn answer<'a, T: Send + 'a>(value: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl StoreBackend for MemoryStore {
    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        let books = self.books();
        answer(Ok(match (books.payloads.get(&id), books.rows.get(&id)) {
            (Some(payload), Some(row)) if Digest::of(&payload.body) == row.event.body_digest => {
                StoredValue::Whole(payload.clone())
            }
            (Some(_), _) => StoredValue::Damaged,
            (None, _) => StoredValue::Forgotten,
        }))
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        answer(Ok(self.books().receipts.get(&id).cloned()))
    }

    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        let mut books = self.books();
        for DuplicateNote { event, sighting } in notes {
            if books.rows.contains_key(&event) {
                let (count, seen) = books.sightings.entry(event).or_default();
                *count += 1;
                if seen.len() < limits::SIGHTINGS_MAX {
                    seen.push(sighting);
                }
            }
        }
        answer(Ok(()))
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        answer(Ok(self.books().retention.values().cloned().collect()))
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        self.books().retention.extend(rows.into_iter().map(|row| (row.source.clone(), row)));
        answer(Ok(()))
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        let mut books = self.books();
        let same = |known: &QuarantinedMessage| known.source == message.source && known.message == message.message;
        if !books.quarantine.iter().any(same) {
            books.quarantine.push_front(message);
            books.quarantine.truncate(limits::QUARANTINE_MAX);
        }
        answer(Ok(()))
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        Box::pin(starts.by_steps(self))
    }
}

impl Store for MemoryStore {
    fn claim(&self, batch: Vec<Arc<NewEvent>>) -> StoreFuture<'_, Vec<ClaimResult>> {
        answer(self.with(|books, at| batch.iter().map(|new| ledger::claim(books, new, at)).collect()))
    }

    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>> {
        answer(self.with(|books, at| changes.iter().map(|one| ledger::advance(books, one, at.now)).collect()))
    }

    fn get(&self, id: EventId) -> StoreFuture<'_, Option<Event>> {
        answer(Ok(self.books().rows.get(&id).map(|row| row.event.clone())))
    }

    fn find_duplicate(&self, new: &NewEvent, needs: DuplicateLookup) -> StoreFuture<'_, Option<KnownDuplicate>> {
        answer(self.with(|books, at| {
            let mut found = ledger::find_duplicate(books, new, at)?;
            if let Some(found) = found.as_mut().filter(|found| needs.receipt_of(&found.event)) {
                found.receipt = books.receipts.get(&found.event.id).cloned();
            }
            Ok(found)
        }))
    }

    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        answer(self.with(|books, StoreTimes { now, .. }| {
            let wakes = books.wakes.iter().map(|(at, id)| (*at, &books.rows[id].event));
            let mut wakes = wakes.filter(|(_, event)| look.finds(event)).peekable();
            let mut due = DueEvents::default();
            while let Some((_, event)) = wakes.next_if(|(at, _)| *at <= now && due.events.len() < limit) {
                due.events.push(event.clone());
            }
            due.next = wakes.peek().map(|(at, _)| *at);
            Ok(due)
        }))
    }

    fn state(&self, key: Key) -> StoreFuture<'_, Option<Arc<str>>> {
        answer(self.with(|books, _| ledger::state_of(books, &key)))
    }

    fn swap_state(&self, key: Key, was: Option<Arc<str>>, is: Option<Arc<str>>) -> StoreFuture<'_, bool> {
        answer(self.with(|books, _| ledger::swap_state(books, &key, was.as_deref(), is.as_deref())))
    }

    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError> {
        let forgotten = self.with(|books, at| ledger::forget(books, &keeps, limit, at.expiry));
        Box::pin(std::future::ready(forgotten.map_err(Into::into)))
    }

    fn would_forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, u64> {
        let by = self.clock.jumped();
        answer(self.with(|books, _| ledger::would_forget(books, &keeps, limit, by)))
    }
}

impl Administer for MemoryStore {
    fn remove_all(&self, ids: Vec<EventId>) -> StoreFuture<'_, Vec<RemovalResult>> {
        answer(self.with(|books, at| ids.into_iter().map(|id| ledger::remove(books, id, at.now)).collect()))
    }

    fn import(&self, keys: Vec<Key>) -> StoreFuture<'_, ImportCounts> {
        answer(self.with(|books, _| ledger::import(books, &keys)))
    }

    fn preview_claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<ClaimResult>> {
        let books = self.books().clone();
        let at = self.clock.moment();
        let claims = new.iter().map(|one| ledger::claim(&mut books.clone(), one, at));
        answer(Ok(claims.map(|claim| claim.unwrap_or_else(|never| match never {})).collect()))
    }

    fn edit_register(&self, subject: Key, edit: RegisterEdit) -> StoreFuture<'_, RegisterEditResult> {
        answer(self.with(|books, at| ledger::edit_register(books, &subject, &edit, at.now)))
    }

    fn confirm_time(&self) -> StoreFuture<'_, ()> {
        self.clock.confirm();
        answer(Ok(()))
    }
}

impl Inspect for MemoryStore {
    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>> {
        let books = self.books();
        let wanted = books.rows.values().rev().map(|row| &row.event).filter(|event| listing.finds(event));
        answer(Ok(wanted.take(listing.limit).cloned().collect()))
    }

    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>> {
        let books = self.books();
        answer(Ok(books.rows.get(&id).map(|row| {
            let keys = books.keys_of.get(&id).into_iter().flatten();
            let mut identities: Vec<_> =
                keys.filter_map(|key| books.keys.get(key)).flat_map(KeyOwner::identities).collect();
            identities.sort();
            identities.dedup();
            let (duplicates, sightings) = books.sightings.get(&id).cloned().unwrap_or_default();
            EventDetails {
                event: row.event.clone(),
                identities,
                sightings,
                duplicates,
                attempts: books.tried.get(&id).cloned().unwrap_or_default(),
                receipt: books.receipts.get(&id).cloned(),
                has_body: books.payloads.contains_key(&id),
                behind: parking(&row.event).and_then(|(group, ..)| books.slots.get(&group).copied()),
            }
        })))
    }

    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        let books = self.books();
        let suffix = name.to_ascii_lowercase();
        let named = books.rows.values().rev().map(|row| &row.event).filter(|event| {
            event.delivery_id.as_deref() == Some(&name)
                || (!suffix.is_empty() && event.id.to_string().ends_with(&suffix))
        });
        answer(Ok(named.take(limit).cloned().collect()))
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>> {
        let mut counts = BTreeMap::<Arc<str>, u64>::new();
        for row in self.books().rows.values().filter(|row| !known.contains(&row.event.source)) {
            *counts.entry(row.event.source.clone()).or_default() += 1;
        }
        let count = |(source, events)| SourceCount { source, events, capped: false };
        answer(Ok(counts.into_iter().take(limits::OTHER_SOURCES_MAX).map(count).collect()))
    }

    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>> {
        answer(Ok(self.books().recipes.clone()))
    }

    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()> {
        self.books().recipes = recipes;
        answer(Ok(()))
    }

    fn registers(&self, after: Option<Key>, limit: usize) -> StoreFuture<'_, Vec<(Key, SubjectRegister)>> {
        let books = self.books();
        let later =
            books.registers.iter().filter(|(key, row)| after.is_none_or(|last| **key > last) && !row.is_state());
        let mut registers: Vec<_> = later.map(|(key, register)| (*key, register.clone())).collect();
        registers.sort_unstable_by_key(|(key, _)| *key);
        registers.truncate(limit);
        answer(Ok(registers))
    }

    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>> {
        answer(Ok(self.books().quarantine.iter().take(limit).cloned().collect()))
    }
}

impl MemoryTables {
    /// Indexes an event by when it wakes and where it is parked.
    fn index(&mut self, event: &Event) {
        if let Some(at) = event.state.wake_at() {
            self.wakes.insert((at, event.id));
        }
        if let Some(place) = parking(event) {
            self.parked.insert(place);
        }
    }

    fn unindex(&mut self, event: &Event) {
        if let Some(at) = event.state.wake_at() {
            self.wakes.remove(&(at, event.id));
        }
        if let Some(place) = parking(event) {
            self.parked.remove(&place);
        }
    }

    /// The events parked in this group, in the order of their turns.
    #[cfg(test)]
    pub(super) fn queue(&self, group: &Key) -> Vec<(QueueTurn, EventId)> {
        let of_group = self.parked.iter().filter(|(of, ..)| of == group);
        of_group.map(|(_, turn, id)| (*turn, *id)).collect()
    }

    /// Sets how many duplicates an event had, and the first few of them.
    #[cfg(test)]
    pub(super) fn set_sightings(&mut self, id: EventId, count: u64, seen: Vec<DuplicateSighting>) {
        self.sightings.insert(id, (count, seen));
    }

    /// Events that ended before then and still have their body.
    pub(super) fn old_bodies(&self, source: &str, before: Timestamp, limit: usize) -> Vec<EventId> {
        self.of(source, limit, |books, row| {
            row.event.state.ended().is_some_and(|at| at <= before) && books.payloads.contains_key(&row.event.id)
        })
    }

    /// Removes an event's body, receipt and output.
    pub(super) fn remove_body(&mut self, id: EventId) {
        self.payloads.remove(&id);
        self.receipts.remove(&id);
        for tried in self.tried.get_mut(&id).into_iter().flatten() {
            tried.output.clear();
        }
    }

    fn of(&self, source: &str, limit: usize, wanted: impl Fn(&Self, &EventRow) -> bool) -> Vec<EventId> {
        let rows = self.rows.values().filter(|row| *row.event.source == *source).filter(|row| wanted(self, row));
        rows.take(limit).map(|row| row.event.id).collect()
    }
}

impl Ledger for MemoryTables {
    type Error = Infallible;

    fn row(&mut self, id: EventId) -> Result<Option<EventRow>, Infallible> {
        Ok(self.rows.get(&id).cloned())
    }

    fn insert(&mut self, row: &EventRow, payload: Option<&Payload>) -> Result<(), Infallible> {
        if let Some(payload) = payload {
            self.payloads.insert(row.event.id, payload.clone());
        }
        self.update(row)
    }

    fn update(&mut self, row: &EventRow) -> Result<(), Infallible> {
        if let Some(old) = self.rows.insert(row.event.id, row.clone()) {
            self.unindex(&old.event);
        }
        self.index(&row.event);
        Ok(())
    }

    fn remove(&mut self, id: EventId) -> Result<(), Infallible> {
        if let Some(row) = self.rows.remove(&id) {
            self.unindex(&row.event);
        }
        for key in self.keys_of.remove(&id).unwrap_or_default() {
            self.keys.remove(&key);
        }
        self.payloads.remove(&id);
        self.receipts.remove(&id);
        self.tried.remove(&id);
        self.sightings.remove(&id);
        Ok(())
    }

    fn key_owner(&mut self, key: &Key) -> Result<Option<KeyOwner>, Infallible> {
        Ok(self.keys.get(key).cloned())
    }

    fn set_key_owner(&mut self, key: &Key, held: &KeyOwner) -> Result<(), Infallible> {
        if !self.keys.contains_key(key) {
            self.keys.insert(*key, held.clone());
            self.keys_of.entry(held.event).or_default().push(*key);
        }
        Ok(())
    }

    fn is_imported(&mut self, key: &Key) -> Result<bool, Infallible> {
        Ok(self.imported.contains(key))
    }

    fn set_imported(&mut self, key: &Key) -> Result<bool, Infallible> {
        Ok(self.imported.insert(*key))
    }

    fn register(&mut self, subject: &Key) -> Result<Option<SubjectRegister>, Infallible> {
        Ok(self.registers.get(subject).cloned())
    }

    fn set_register(&mut self, subject: &Key, register: &SubjectRegister) -> Result<(), Infallible> {
        self.registers.insert(*subject, register.clone());
        Ok(())
    }

    fn remove_register(&mut self, subject: &Key) -> Result<(), Infallible> {
        self.registers.remove(subject);
        Ok(())
    }

    fn slot(&mut self, group: &Key) -> Result<Option<EventId>, Infallible> {
        Ok(self.slots.get(group).copied())
    }

    fn set_slot(&mut self, group: &Key, event: Option<EventId>) -> Result<(), Infallible> {
        match event {
            Some(event) => self.slots.insert(*group, event),
            None => self.slots.remove(group),
        };
        Ok(())
    }

    fn parked(&mut self, group: &Key) -> Result<Option<EventRow>, Infallible> {
        let first = (*group, QueueTurn::default(), EventId([0; 16]));
        let next = self.parked.range(first..).next().filter(|(of, ..)| of == group);
        Ok(next.map(|(_, _, id)| self.rows[id].clone()))
    }

    fn next_turn(&mut self) -> QueueTurn {
        self.turns += 1;
        QueueTurn(self.turns)
    }

    fn set_payload(&mut self, event: &Event, payload: &Payload) -> Result<(), Infallible> {
        self.payloads.insert(event.id, payload.clone());
        Ok(())
    }

    fn set_receipt(&mut self, id: EventId, receipt: Option<&Receipt>) -> Result<(), Infallible> {
        match receipt {
            Some(receipt) => self.receipts.insert(id, receipt.clone()),
            None => self.receipts.remove(&id),
        };
        Ok(())
    }

    fn drop_transient_headers(&mut self, id: EventId) -> Result<(), Infallible> {
        if let Some(payload) = self.payloads.get_mut(&id) {
            payload.drop_transient_headers();
        }
        Ok(())
    }

    fn add_attempt(&mut self, id: EventId, tried: &AttemptRecord) -> Result<(), Infallible> {
        self.tried.entry(id).or_default().push(tried.clone());
        Ok(())
    }
}

impl SweepLedger for MemoryTables {
    fn forgettable(&mut self, source: &str, before: Timestamp, limit: usize) -> Result<Vec<EventId>, Infallible> {
        Ok(self.of(source, limit, |books, row| {
            let newest = row.event.change.is_some_and(|change| {
                let register = books.registers.get(&change.subject);
                change.order.is_some() && register.is_some_and(|register| register.order == change.order)
            });
            row.keep_from.is_some_and(|from| from <= before) && !newest
        }))
    }

    fn remove_bodies(&mut self, source: &str, before: Timestamp, limit: usize) -> Result<u64, Infallible> {
        let old = self.old_bodies(source, before, limit);
        for id in &old {
            self.remove_body(*id);
        }
        Ok(old.len() as u64)
    }
}
