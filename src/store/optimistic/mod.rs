//! Optimistic concurrency, for a store that many nodes write at once.
//!
//! The rules are the ledger's, run over an [`OptimisticTxn`]: copies of the records they ask for. The result is written
//! only if every record is still as it was read; otherwise the rules run again. So a backend knows no rule at all: it
//! is a [`VersionedBackend`] that reads and conditionally writes records, and gets [`Store`] and [`Administer`] from
//! here.
//!
//! ```text
//! claim, advance, … ─▶ read records ─▶ txn.rs (the rules) ─missing─▶ read those too
//!                          ▲               │
//!                          └─ changed ── write ─▶ answer
//! ```
//!
//! What only reads, such as a duplicate of a done event, writes nothing and is answered from what was read.
pub(crate) mod record;
pub(crate) mod sql;
pub(crate) mod sweep;
#[cfg(test)]
pub(crate) mod tests;
pub mod txn;
pub(crate) mod versioned_backend;

pub use record::{ExpectedVersion, GroupSlot, PARKED_READ, Record, RecordId, RecordVersion, TURNS_AT_ONCE};
pub use sql::SqlWriteOutcome;
#[cfg(feature = "shared-store")]
pub(super) use sweep::{ClockAccess, begin};
pub use versioned_backend::{ConditionalWrite, ReadBatch, RecordWrite, VersionedBackend};

use super::{
    Administer, AdvanceResult, BatchStart, DueEvents, DueQuery, ForgetCounts, ImportCounts, RegisterEditResult,
    RemovalResult, RetentionPolicies, SqlOutcome, SqlPermit, Store, StoreError, StoreFuture, StoreTimes, SweepError,
};
use crate::decide::claim::{ClaimResult, NewEvent};
use crate::decide::event::Event;
use crate::decide::id::{EventId, Key};
use crate::decide::ledger::{self, Ledger as _, RegisterEdit};
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::Transition;
use std::collections::BTreeSet;
use std::sync::Arc;
use tracing::error;
use txn::{NeedsRead, OptimisticTxn, ReadSet};

/// Batches in flight: while one waits for its commit, another is prepared.
const BATCHES_AT_ONCE: usize = 4;

/// Runs the rules over a backend.
struct OptimisticRunner<'b, B>(&'b B);

/// How often an input is prepared again because of conflicting writes, before the caller is told to retry.
const TRIES: u32 = 16;
/// Reads for one batch: each follows a key to its event, an event to its register, and so on. In a batch whose inputs
/// share keys these chains add up; what is not decided after the last read is left for the next round.
const READINGS: usize = 8;
/// Reads for a batch of which nothing is decided yet: one event may replace several that have expired, each with a
/// register and a group of its own. Every read adds records, so this ends.
const READINGS_MAX: usize = 64;
/// The wait after the third try; it doubles.
const BACK_OFF: Duration = Duration::from_millis(1);
/// The longest wait.
const BACK_OFF_MAX: Duration = Duration::from_millis(50);

/// The result of one input, and what must be written first.
struct PreparedWrite<T> {
    answer: T,
    swap: ConditionalWrite,
    /// It read what another input of the same batch is about to write: it holds only if that is written.
    depends_on_batch: bool,
}

impl<B: VersionedBackend> OptimisticRunner<'_, B> {
    /// The clock snapshot when the store's clock shows `now`.
    fn at(&self, now: Timestamp) -> StoreTimes {
        StoreTimes { now, expiry: self.0.clock().expiry().time }
    }

    /// Runs a rule over every input, as if one after another, and writes the results. `None` for an input that met
    /// conflicting writes each time.
    async fn run<I: Sync, T: Send>(
        &self,
        inputs: &[I],
        begins_with: impl Fn(&I) -> Vec<RecordId> + Send + Sync,
        rule: impl Fn(&mut OptimisticTxn<'_>, &I, Timestamp) -> Result<T, NeedsRead> + Send + Sync,
    ) -> Result<Vec<Option<T>>, StoreError> {
        self.run_up_to(TRIES, inputs, begins_with, rule).await
    }

    /// The same with a limit on how often an input is prepared.
    async fn run_up_to<I: Sync, T: Send>(
        &self,
        tries_max: u32,
        inputs: &[I],
        begins_with: impl Fn(&I) -> Vec<RecordId> + Send + Sync,
        rule: impl Fn(&mut OptimisticTxn<'_>, &I, Timestamp) -> Result<T, NeedsRead> + Send + Sync,
    ) -> Result<Vec<Option<T>>, StoreError> {
        let mut answers: Vec<Option<T>> = inputs.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..inputs.len()).collect();
        let mut wrote = false;
        for tries in 0..tries_max {
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

    /// Runs the rules over these inputs, reading what they ask for until nothing is missing, or until enough was read.
    /// `None` for an input that must be prepared again after the others are written: what it needs follows from them.
    async fn draft<I: Sync, T: Send>(
        &self,
        inputs: &[I],
        open: &[usize],
        begins_with: &(impl Fn(&I) -> Vec<RecordId> + Send + Sync),
        rule: &(impl Fn(&mut OptimisticTxn<'_>, &I, Timestamp) -> Result<T, NeedsRead> + Send + Sync),
    ) -> Result<Vec<Option<PreparedWrite<T>>>, StoreError> {
        let mut missing: BTreeSet<RecordId> = open.iter().flat_map(|place| begins_with(&inputs[*place])).collect();
        let mut copies = ReadSet::default();
        let mut readings = 0;
        loop {
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
                            NeedsRead::Unread(cell) => copies.with_siblings(cell),
                            NeedsRead::QueueUnread => Vec::new(),
                        });
                        None
                    }
                });
            }
            readings += 1;
            if missing.is_empty() || (readings >= READINGS && drafts.iter().any(Option::is_some)) {
                return Ok(drafts);
            }
            if readings >= READINGS_MAX {
                return Err(StoreError::Down("the rows change faster than they can be read".into()));
            }
        }
    }

    /// The same for one input, retried within reason until it is decided.
    async fn run_one<T: Send>(
        &self,
        begins_with: Vec<RecordId>,
        rule: impl Fn(&mut OptimisticTxn<'_>, Timestamp) -> Result<T, NeedsRead> + Send + Sync,
    ) -> Result<T, StoreError> {
        let mut answers = self.run(&[()], |()| begins_with.clone(), |draft, (), now| rule(draft, now)).await?;
        answers.pop().flatten().ok_or_else(contended)
    }
}

/// The error for a batch that may be partly written: if the store is unreachable in a later round, what an earlier
/// round wrote stays written.
fn after_writing(error: StoreError, wrote: bool) -> StoreError {
    match error {
        StoreError::Down(why) if wrote => StoreError::Unsure(why),
        error => error,
    }
}

/// Nothing of this input was written, but other inputs of its batch may have been.
fn contended() -> StoreError {
    StoreError::Unsure("conflicting writes to the same rows, too many times in a row".into())
}

fn cells_of(event: &Event) -> Vec<RecordId> {
    let register = event.change.map(|change| RecordId::Register(change.subject));
    [RecordId::Event(event.id)].into_iter().chain(register).chain(event.group.map(RecordId::Slot)).collect()
}

fn cells_to_advance(change: &Transition) -> Vec<RecordId> {
    let budget = change.budget.map(|check| RecordId::Register(check.key));
    let (counts, notifications) = ledger::notification_records(change);
    let notifications = notifications.into_iter().map(RecordId::Event);
    let told = counts.into_iter().map(RecordId::Register).chain(notifications);
    cells_of(&change.event).into_iter().chain(budget).chain(told).collect()
}

fn cells_to_claim(new: &NewEvent) -> Vec<RecordId> {
    let keys = new.keys.iter().chain(&new.former_keys).map(|identity| RecordId::Key(identity.key));
    let imported = new.imported.iter().map(|imported| RecordId::Imported(imported.key));
    cells_of(&new.event).into_iter().chain(keys).chain(imported).collect()
}

/// A claim or a transition of a batch that has both.
enum BatchInput<'i> {
    Change(&'i Transition),
    Claim(&'i NewEvent),
}

/// Its result.
enum BatchAnswer {
    Change(AdvanceResult),
    Claim(ClaimResult),
}

impl BatchInput<'_> {
    fn cells(&self) -> Vec<RecordId> {
        match self {
            Self::Change(change) => cells_to_advance(change),
            Self::Claim(new) => cells_to_claim(new),
        }
    }

    fn run(&self, draft: &mut OptimisticTxn<'_>, at: StoreTimes) -> Result<BatchAnswer, NeedsRead> {
        Ok(match self {
            Self::Change(change) => BatchAnswer::Change(ledger::advance(draft, change, at.now)?),
            Self::Claim(new) => BatchAnswer::Claim(ledger::claim(draft, new, at)?),
        })
    }
}

impl<B: VersionedBackend> Store for B {
    fn claim(&self, batch: Vec<Arc<NewEvent>>) -> StoreFuture<'_, Vec<ClaimResult>> {
        Box::pin(async move {
            let rules = OptimisticRunner(self);
            let claims = rules
                .run(&batch, |one| cells_to_claim(one), |draft, one, now| ledger::claim(draft, one, rules.at(now)))
                .await?;
            rules.agree_on_clock().await;
            Ok(claims.into_iter().map(|claim| claim.unwrap_or(ClaimResult::Undecided)).collect())
        })
    }

    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>> {
        Box::pin(async move {
            let written = OptimisticRunner(self)
                .run(&changes, cells_to_advance, |draft, change, now| ledger::advance(draft, change, now))
                .await?;
            written.into_iter().map(|advance| advance.ok_or_else(contended)).collect()
        })
    }

    fn claim_and_advance(
        &self,
        claims: Vec<Arc<NewEvent>>,
        changes: Arc<Vec<Transition>>,
    ) -> StoreFuture<'_, (Vec<ClaimResult>, Vec<Option<AdvanceResult>>)> {
        Box::pin(async move {
            let rules = OptimisticRunner(self);
            // What ends comes first: it frees slots, and claims find the newest state of what they repeat.
            let inputs: Vec<BatchInput<'_>> =
                changes.iter().map(BatchInput::Change).chain(claims.iter().map(|new| BatchInput::Claim(new))).collect();
            let rule = |draft: &mut OptimisticTxn<'_>, input: &BatchInput<'_>, now| input.run(draft, rules.at(now));
            let mut answers = rules.run_up_to(1, &inputs, BatchInput::cells, rule).await?.into_iter();
            rules.agree_on_clock().await;
            let advances = answers.by_ref().take(changes.len()).map(|answer| match answer {
                Some(BatchAnswer::Change(advance)) => Some(advance),
                Some(BatchAnswer::Claim(_)) | None => None,
            });
            let advances = advances.collect();
            let claims = answers.map(|answer| match answer {
                Some(BatchAnswer::Claim(claim)) => claim,
                Some(BatchAnswer::Change(_)) | None => ClaimResult::Undecided,
            });
            Ok((claims.collect(), advances))
        })
    }

    fn advance_with_sql<'a>(
        &'a self,
        change: Transition,
        statement: BoundStatement,
        _: &'a SqlPermit,
    ) -> StoreFuture<'a, SqlOutcome> {
        Box::pin(async move { OptimisticRunner(self).advance_with_sql(change, statement).await })
    }

    fn state(&self, key: Key) -> StoreFuture<'_, Option<Arc<str>>> {
        Box::pin(async move {
            let rule = |draft: &mut OptimisticTxn<'_>, _| ledger::state_of(draft, &key);
            OptimisticRunner(self).run_one(vec![RecordId::Register(key)], rule).await
        })
    }

    fn swap_state(&self, key: Key, was: Option<Arc<str>>, is: Option<Arc<str>>) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let swap =
                |draft: &mut OptimisticTxn<'_>, _| ledger::swap_state(draft, &key, was.as_deref(), is.as_deref());
            OptimisticRunner(self).run_one(vec![RecordId::Register(key)], swap).await
        })
    }

    fn get(&self, id: EventId) -> StoreFuture<'_, Option<Event>> {
        Box::pin(async move {
            let cells = self.read(vec![RecordId::Event(id)], 0).await?.cells;
            Ok(cells.into_iter().find_map(|(_, found)| match found {
                Record::Event(row, _) if row.event.id == id => Some(row.event),
                _ => None,
            }))
        })
    }

    /// Due events that cannot be read are ended, so that they do not come up again.
    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        Box::pin(async move {
            let rules = OptimisticRunner(self);
            rules.write_clock().await;
            let mut due = self.due_or_damaged(look, limit).await?;
            let is_over = |event: &mut Event| event.state.ended().is_some();
            for Event { id, .. } in due.events.extract_if(.., is_over) {
                error!(target: "hookonce", event = %id, why = CANNOT_BE_READ, "damaged");
                let bury = |draft: &mut OptimisticTxn<'_>, now| match draft.row(id)? {
                    Some(row) => ledger::end_damaged(draft, row, now).map(drop),
                    None => Ok(()),
                };
                rules.run_one(vec![RecordId::Event(id)], bury).await?;
            }
            Ok(due)
        })
    }

    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError> {
        Box::pin(async move {
            let rules = OptimisticRunner(self);
            rules.write_clock().await;
            let freed = rules.sweep(&keeps, limit).await?;
            if !freed.fills(limit) {
                self.sweep_dictionaries(keeps).await.map_err(|error| SweepError { freed, error })?;
            }
            Ok(freed)
        })
    }

    fn batches_at_once(&self) -> usize {
        BATCHES_AT_ONCE
    }

    fn batch_start(&self) -> BatchStart {
        VersionedBackend::batch_start(self)
    }

    fn shares_commits(&self) -> bool {
        VersionedBackend::shares_commits(self)
    }

    fn look_at_clock(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { OptimisticRunner(self).ask_clock().await })
    }

    fn would_forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, u64> {
        Box::pin(async move { OptimisticRunner(self).count_forgettable(&keeps, limit, self.clock().jumped()).await })
    }
}

impl<B: VersionedBackend> Administer for B {
    fn remove_all(&self, ids: Vec<EventId>) -> StoreFuture<'_, Vec<RemovalResult>> {
        Box::pin(async move {
            let mut removals = Vec::with_capacity(ids.len());
            self.remove_dictionaries_of_events(ids.clone()).await?;
            for some in ids.chunks(self.swept_at_once(ids.len())) {
                let cells = |id: &EventId| vec![RecordId::Event(*id)];
                let gone =
                    OptimisticRunner(self).run(some, cells, |draft, id, now| ledger::remove(draft, *id, now)).await?;
                removals.extend(gone);
            }
            // Another node may just have chosen the body of one of them. Of an event that is gone no node can.
            self.remove_dictionaries_of_events(ids).await?;
            removals.into_iter().map(|removal| removal.ok_or_else(contended)).collect()
        })
    }

    fn remove_dictionaries(&self, source: String) -> StoreFuture<'_, ()> {
        self.remove_dictionaries_of_source(source)
    }

    fn import(&self, keys: Vec<Key>) -> StoreFuture<'_, ImportCounts> {
        Box::pin(async move {
            let mut imported = ImportCounts::default();
            for some in keys.chunks(IMPORT_BATCH) {
                let cells = some.iter().map(|key| RecordId::Imported(*key)).collect();
                let more = OptimisticRunner(self).run_one(cells, |draft, _| ledger::import(draft, some)).await?;
                imported.new += more.new;
                imported.known += more.known;
            }
            Ok(imported)
        })
    }

    fn preview_claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<ClaimResult>> {
        Box::pin(async move {
            let (rules, mut claims) = (OptimisticRunner(self), Vec::new());
            for one in new {
                let begins_with = |one: &NewEvent| cells_to_claim(one);
                let rule =
                    |draft: &mut OptimisticTxn<'_>, one: &NewEvent, now| ledger::claim(draft, one, rules.at(now));
                let drafts = rules.draft(&[one], &[0], &begins_with, &rule).await?;
                let drafted = drafts.into_iter().next().flatten();
                claims.push(drafted.map_or(ClaimResult::Undecided, |drafted| drafted.answer));
            }
            Ok(claims)
        })
    }

    fn edit_register(&self, subject: Key, edit: RegisterEdit) -> StoreFuture<'_, RegisterEditResult> {
        Box::pin(async move {
            let rule = |draft: &mut OptimisticTxn<'_>, now| ledger::edit_register(draft, &subject, &edit, now);
            OptimisticRunner(self).run_one(vec![RecordId::Register(subject)], rule).await
        })
    }

    fn confirm_time(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { OptimisticRunner(self).confirm().await })
    }
}

/// The log text for an event whose row is damaged.
const CANNOT_BE_READ: &str = "its row cannot be read; it is ended as dead";
/// Keys imported in one write.
const IMPORT_BATCH: usize = 1_000;
