//! A store that many nodes write at once.
//!
//! The rules are the ledger's, run over a [`txn`](mod@txn): copies of the cells they ask for. What they come to is
//! written only if every cell they read is still as it was read; otherwise it is drafted anew. So a backend knows no
//! rule at all: it is a [`VersionedBackend`] that reads cells and swaps them.
//!
//! ```text
//! claim, advance, … ─▶ read cells ─▶ txn.rs (the rules) ─missing─▶ read those too
//!                          ▲               │
//!                          └─ changed ── write ─▶ answer
//! ```
//!
//! What only looks, such as a repeat of something done, writes nothing and is answered from what was read.
pub(crate) mod record;
pub(crate) mod shelf;
pub(crate) mod sql;
pub(crate) mod sweep;
#[cfg(test)]
pub(crate) mod tests;
pub mod txn;

pub use record::{ExpectedVersion, PARKED_READ, Record, RecordId, RecordVersion, Slot, TURNS_AT_ONCE};
pub use shelf::{ConditionalWrite, ReadBatch, RecordWrite, VersionedBackend};
pub use sql::SqlWriteOutcome;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) use sweep::{ClockAccess, begin};

use super::inspect::QuarantinedMessage;
use super::ledger::{self, Ledger as _};
use super::{
    AdvanceResult, ChangeHint, ClockSnapshot, DeclaredFields, DueEvents, DueQuery, DuplicateNote, EventCounts,
    EventDetails, EventPage, EventQuery, ForgetCounts, ImportCounts, RemovalResult, RetentionPolicies, SourceCount,
    SourceRetention, SqlOutcome, SqlPermit, SqlPermitFuture, StartDueRequest, StartDueResult, Store, StoreError,
    StoreFuture, StoredValue, SweepError, SweepPace, WriteProbe,
};
use crate::decide::claim::{Claim, NewEvent, Payload};
use crate::decide::data_loss::{KnownStore, ObservedStore};
use crate::decide::event::{Event, Receipt};
use crate::decide::expiry_clock::ExpiryStatus;
use crate::decide::id::{EventId, Key};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::Transition;
use crate::observe::log;
use crate::observe::log::LogLevel;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{broadcast, watch};
use txn::{NotReadError, OptimisticTxn, ReadSet};

/// Batches in flight: while one waits for its commit, another is drafted.
const BATCHES_AT_ONCE: usize = 4;

/// The store made of a shelf.
#[derive(Debug)]
pub struct OptimisticStore<S>(pub S);

/// How often something is drafted anew because others wrote first, before whoever asked is told to ask again.
const TRIES: u32 = 16;
/// Readings for one draft: each follows a key to its event, an event to its register, and so on.
const READINGS: usize = 8;
/// The wait after the third try; it doubles.
const BACK_OFF: Duration = Duration::from_millis(1);
/// The longest.
const BACK_OFF_MAX: Duration = Duration::from_millis(50);

/// One input's draft: what to answer, and what to write first.
struct PreparedWrite<T> {
    answer: T,
    swap: ConditionalWrite,
    /// It read what another draft of the same batch is about to write: it holds only if that is written.
    depends_on_batch: bool,
}

impl<S: VersionedBackend> OptimisticStore<S> {
    /// The times that count when the store's clock shows this.
    fn at(&self, now: Timestamp) -> ClockSnapshot {
        ClockSnapshot { now, expiry: self.0.clock().expiry().time }
    }

    /// Runs a rule over every input, as if one after another, and writes what it comes to. `None`: others wrote first
    /// each time.
    async fn run<I: Sync, T: Send>(
        &self,
        inputs: &[I],
        begins_with: impl Fn(&I) -> Vec<RecordId> + Send + Sync,
        rule: impl Fn(&mut OptimisticTxn<'_>, &I, Timestamp) -> Result<T, NotReadError> + Send + Sync,
    ) -> Result<Vec<Option<T>>, StoreError> {
        let mut answers: Vec<Option<T>> = inputs.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..inputs.len()).collect();
        let mut wrote = false;
        for tries in 0..TRIES {
            if open.is_empty() {
                break;
            }
            sql::back_off(tries).await;
            let drafts = self.draft(inputs, &open, &begins_with, &rule).await;
            let drafts = drafts.map_err(|error| after_writing(error, wrote))?;
            let (mut swaps, mut waits, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
            for (place, drafted) in open.iter().copied().zip(drafts) {
                match drafted {
                    None => undecided.push(place),
                    Some(PreparedWrite { answer, swap, depends_on_batch: leans }) if leans || !swap.ops.is_empty() => {
                        swaps.push(swap);
                        waits.push((place, answer));
                    }
                    Some(PreparedWrite { answer, .. }) => answers[place] = Some(answer),
                }
            }
            let written = if swaps.is_empty() { Ok(Vec::new()) } else { self.0.write(swaps).await };
            let written = written.map_err(|error| after_writing(error, wrote))?;
            wrote |= written.contains(&true);
            for ((place, answer), written) in waits.into_iter().zip(written) {
                if written {
                    answers[place] = Some(answer);
                } else {
                    undecided.push(place);
                }
            }
            undecided.sort_unstable();
            open = undecided;
        }
        Ok(answers)
    }

    /// Drafts these inputs, and reads what their rules ask for until nothing is missing. `None`: it must be drafted
    /// again, after the others are written.
    async fn draft<I: Sync, T: Send>(
        &self,
        inputs: &[I],
        open: &[usize],
        begins_with: &(impl Fn(&I) -> Vec<RecordId> + Send + Sync),
        rule: &(impl Fn(&mut OptimisticTxn<'_>, &I, Timestamp) -> Result<T, NotReadError> + Send + Sync),
    ) -> Result<Vec<Option<PreparedWrite<T>>>, StoreError> {
        let mut missing: BTreeSet<RecordId> = open.iter().flat_map(|place| begins_with(&inputs[*place])).collect();
        let mut copies = ReadSet::default();
        for _ in 0..READINGS {
            let reading = self.0.read(std::mem::take(&mut missing).into_iter().collect(), open.len()).await?;
            copies.add(reading);
            let mut draft = OptimisticTxn::over(&copies);
            let mut drafts = Vec::with_capacity(open.len());
            for place in open {
                let result = rule(&mut draft, &inputs[*place], copies.now());
                drafts.push(match result {
                    Ok(answer) => {
                        let (swap, leans) = draft.finish_input();
                        Some(PreparedWrite { answer, swap, depends_on_batch: leans })
                    }
                    Err(blank) => {
                        draft.drop_item();
                        missing.extend(match blank {
                            NotReadError::Unread(cell) => Some(cell),
                            NotReadError::QueueUnread => None,
                        });
                        None
                    }
                });
            }
            if missing.is_empty() {
                return Ok(drafts);
            }
        }
        Err(StoreError::Down("its rows change faster than they can be read".into()))
    }

    /// The same for one input; it is asked again until it is decided, within reason.
    async fn run_one<T: Send>(
        &self,
        begins_with: Vec<RecordId>,
        rule: impl Fn(&mut OptimisticTxn<'_>, Timestamp) -> Result<T, NotReadError> + Send + Sync,
    ) -> Result<T, StoreError> {
        let mut answers = self.run(&[()], |()| begins_with.clone(), |draft, (), now| rule(draft, now)).await?;
        answers.pop().flatten().ok_or_else(contended)
    }
}

/// What an error means for a batch of which a part may already be written: one that was out of reach the second time has
/// written what it wrote the first time.
fn after_writing(error: StoreError, wrote: bool) -> StoreError {
    match error {
        StoreError::Down(why) if wrote => StoreError::Unsure(why),
        error => error,
    }
}

/// Nothing of it was written, but others of its batch may have been.
fn contended() -> StoreError {
    StoreError::Unsure("others wrote to the same rows each time".into())
}

fn cells_of(event: &Event) -> Vec<RecordId> {
    let register = event.change.map(|change| RecordId::Register(change.subject));
    [RecordId::Event(event.id)].into_iter().chain(register).chain(event.group.map(RecordId::Slot)).collect()
}

fn cells_to_claim(new: &NewEvent) -> Vec<RecordId> {
    let keys = new.keys.iter().chain(&new.former_keys).map(|identity| RecordId::Key(identity.key));
    let imported = new.imported.iter().map(|imported| RecordId::Imported(imported.key));
    cells_of(&new.event).into_iter().chain(keys).chain(imported).collect()
}

impl<S: VersionedBackend> Store for OptimisticStore<S> {
    fn claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<Claim>> {
        Box::pin(async move {
            let claims = self
                .run(&new, cells_to_claim, |draft, one, now| ledger::claim(draft, one.clone(), self.at(now)))
                .await?;
            self.agree_on_clock().await;
            Ok(claims.into_iter().map(|claim| claim.unwrap_or(Claim::Undecided)).collect())
        })
    }

    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>> {
        Box::pin(async move {
            let begins_with = |change: &Transition| cells_of(&change.event);
            let written =
                self.run(&changes, begins_with, |draft, change, now| ledger::advance(draft, change, now)).await?;
            written.into_iter().map(|advance| advance.ok_or_else(contended)).collect()
        })
    }

    fn sql_permit(&self) -> SqlPermitFuture<'_> {
        self.0.place()
    }

    fn advance_with_sql<'a>(
        &'a self,
        change: Transition,
        statement: BoundStatement,
        _: &'a SqlPermit,
    ) -> StoreFuture<'a, SqlOutcome> {
        Box::pin(self.effect_of(change, statement))
    }

    fn get(&self, id: EventId) -> StoreFuture<'_, Option<Event>> {
        Box::pin(async move {
            let cells = self.0.read(vec![RecordId::Event(id)], 0).await?.cells;
            Ok(cells.into_iter().find_map(|(_, found)| match found {
                Record::Event(row, _) if row.event.id == id => Some(row.event),
                _ => None,
            }))
        })
    }

    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        self.0.payload(id)
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        self.0.receipt(id)
    }

    /// What comes up and cannot be read is ended, so that it does not come up again.
    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        Box::pin(async move {
            self.write_clock().await;
            let mut due = self.0.due(look, limit).await?;
            let is_over = |event: &mut Event| event.state.ended().is_some();
            for Event { id, .. } in due.events.extract_if(.., is_over) {
                log::log(LogLevel::Error, "damaged", &[("event", &*id.short()), ("why", CANNOT_BE_READ)]);
                let bury = |draft: &mut OptimisticTxn<'_>, now| match draft.row(id)? {
                    Some(row) => ledger::end_damaged(draft, row, now).map(drop),
                    None => Ok(()),
                };
                self.run_one(vec![RecordId::Event(id)], bury).await?;
            }
            Ok(due)
        })
    }

    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        self.0.start_due(starts)
    }

    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>> {
        self.0.list(listing)
    }

    fn page(&self, listing: EventQuery) -> StoreFuture<'_, EventPage> {
        self.0.page(listing)
    }

    fn counts(&self) -> StoreFuture<'_, EventCounts> {
        self.0.census()
    }

    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>> {
        self.0.story(id)
    }

    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        self.0.named(name, limit)
    }

    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        self.0.note(notes)
    }

    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError> {
        Box::pin(async move {
            self.write_clock().await;
            self.sweep(&keeps, limit).await
        })
    }

    fn sweep_pace(&self) -> SweepPace {
        self.0.sweep_pace()
    }

    fn remove(&self, id: EventId) -> StoreFuture<'_, RemovalResult> {
        Box::pin(self.run_one(vec![RecordId::Event(id)], move |draft, now| ledger::remove(draft, id, now)))
    }

    fn remove_all(&self, ids: Vec<EventId>) -> StoreFuture<'_, Vec<RemovalResult>> {
        Box::pin(async move {
            let mut removals = Vec::with_capacity(ids.len());
            for some in ids.chunks(self.0.swept_at_once(ids.len())) {
                let cells = |id: &EventId| vec![RecordId::Event(*id)];
                let gone = self.run(some, cells, |draft, id, now| ledger::remove(draft, *id, now)).await?;
                removals.extend(gone);
            }
            removals.into_iter().map(|removal| removal.ok_or_else(contended)).collect()
        })
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        self.0.retention()
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        self.0.retain(rows)
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>> {
        self.0.other_sources(known)
    }

    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>> {
        self.0.recipes()
    }

    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()> {
        self.0.remember(recipes)
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        self.0.quarantine(message)
    }

    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>> {
        self.0.quarantined(limit)
    }

    fn import(&self, keys: Vec<Key>) -> StoreFuture<'_, ImportCounts> {
        Box::pin(async move {
            let mut imported = ImportCounts::default();
            for some in keys.chunks(IMPORT_BATCH) {
                let cells = some.iter().map(|key| RecordId::Imported(*key)).collect();
                let more = self.run_one(cells, |draft, _| ledger::import(draft, some)).await?;
                imported.new += more.new;
                imported.known += more.known;
            }
            Ok(imported)
        })
    }

    fn preview_claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<Claim>> {
        Box::pin(async move {
            let mut claims = Vec::new();
            for one in new {
                let begins_with = |one: &NewEvent| cells_to_claim(one);
                let rule = |draft: &mut OptimisticTxn<'_>, one: &NewEvent, now| {
                    ledger::claim(draft, one.clone(), self.at(now))
                };
                let drafts = self.draft(&[one], &[0], &begins_with, &rule).await?;
                let drafted = drafts.into_iter().next().flatten();
                claims.push(drafted.map_or(Claim::Undecided, |drafted| drafted.answer));
            }
            Ok(claims)
        })
    }

    fn declare(&self, declared: Vec<DeclaredFields>) -> StoreFuture<'_, Vec<String>> {
        self.0.declare(declared)
    }

    fn batches_at_once(&self) -> usize {
        BATCHES_AT_ONCE
    }

    fn probe(&self, probe: WriteProbe) -> StoreFuture<'_, ()> {
        self.0.probe(probe)
    }

    fn failed(&self) -> watch::Receiver<Option<String>> {
        self.0.failed()
    }

    fn known(&self) -> StoreFuture<'_, Option<KnownStore>> {
        self.0.known()
    }

    fn begin_fence(&self, known: Vec<KnownStore>) -> StoreFuture<'_, ()> {
        self.0.begin_fence(known)
    }

    fn compare_history(&self, known: Option<KnownStore>) -> StoreFuture<'_, Option<ObservedStore>> {
        self.0.found(known)
    }

    fn now(&self) -> Timestamp {
        self.0.clock().now()
    }

    fn lease_end(&self, until: Timestamp) -> Timestamp {
        self.0.clock().lease_end(until)
    }

    fn look_at_clock(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.ask_clock())
    }

    fn wall_time(&self) -> Timestamp {
        self.0.clock().wall_time()
    }

    fn expiry(&self) -> ExpiryStatus {
        self.0.clock().expiry()
    }

    fn confirm_time(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.confirm())
    }

    fn would_forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, u64> {
        Box::pin(async move { self.count_forgettable(&keeps, limit, self.0.clock().jumped()).await })
    }

    fn hints(&self) -> Option<broadcast::Receiver<ChangeHint>> {
        self.0.hints()
    }
}

/// What is said of an event whose row is not what was written.
const CANNOT_BE_READ: &str = "its row cannot be read; it ends dead";
/// Keys imported in one write.
const IMPORT_BATCH: usize = 1_000;
