//! A store that many nodes write at once.
//!
//! The rules are the ledger's, run over a [`draft`](mod@draft): copies of the cells they ask for. What they come to is
//! written only if every cell they read is still as it was read; otherwise it is drafted anew. So a backend knows no
//! rule at all: it is a [`Shelf`] that reads cells and swaps them.
//!
//! ```text
//! claim, advance, … ─▶ read cells ─▶ draft (ledger.rs) ─missing─▶ read those too
//!                          ▲               │
//!                          └─ changed ── write ─▶ answer
//! ```
//!
//! What only looks, such as a repeat of something done, writes nothing and is answered from what was read.

mod cell;
pub mod draft;
mod effect;
mod last_seen;
mod sweep;
#[cfg(test)]
mod tests;

pub use cell::{Cell, Found, PARKED_READ, Seen, Slot, TURNS_AT_ONCE, Version};
pub use effect::Swapped;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) use last_seen::{Begins, begin};

use super::clock::Clock;
use super::ledger::{self, Held, Ledger as _, Register, Row};
use super::{
    Advance, Answer, Census, Declared, Due, Effected, Forgotten, Hint, Imported, Keeps, Listing, Look, Moment, Note,
    Page, Place, Placing, Probe, Removal, Sighting, SourceCount, SourceRetention, Started, Starts, Store, StoreError,
    Stored, Story, SweepError, SweepPace, quarantine::Quarantined,
};
use crate::decide::change::{Change, Tried};
use crate::decide::claim::{Claim, New, Payload};
use crate::decide::event::{Event, Receipt};
use crate::decide::expiry::Expiry;
use crate::decide::fence::{FoundStore, KnownStore};
use crate::decide::id::{EventId, Key, Turn};
use crate::decide::recipe::Recipe;
use crate::decide::statement::Bound;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::{Duration, Timestamp};
use crate::telemetry::{self, Level};
use draft::{Blank, Copies, Draft};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// Batches in flight: while one waits for its commit, another is drafted.
const BATCHES_AT_ONCE: usize = 4;

/// One write, all of it or nothing, if every cell is still as it was seen.
#[derive(Clone, Debug, Default)]
pub struct Swap {
    /// What must still be so.
    pub seen: Vec<(Cell, Seen)>,
    /// What is then written, in this order.
    pub ops: Vec<Op>,
}

/// A write to one thing.
#[derive(Clone, Debug)]
pub enum Op {
    /// Writes an event: a new one with its body, if that is to be kept, or what changes by itself of one that was so.
    Put {
        /// As it was.
        was: Option<Box<Row>>,
        /// As it is now.
        row: Box<Row>,
        /// Its version.
        version: Version,
        /// The body of a new one.
        payload: Option<Payload>,
    },
    /// Removes an event with its keys, body, attempts, receipt and sightings. Without a row only keys are left of it.
    Remove(EventId, Option<Box<Row>>),
    /// Gives a key that nobody holds to an event.
    Hold(Key, Held),
    /// Writes an imported key.
    SetImported(Key),
    /// Sets a register.
    SetRegister(Key, Register, Version),
    /// Removes one.
    RemoveRegister(Key),
    /// Gives a slot to somebody; or gives it to its holder anew, because its queue has changed.
    SetSlot(Key, EventId, Version),
    /// Frees one.
    FreeSlot(Key),
    /// Replaces an event's body, and with it what else never changes by itself: delivery id, fields and digests.
    SetPayload(Box<Event>, Payload),
    /// Keeps an answer in place of an earlier one; with none, the earlier one goes.
    SetReceipt(EventId, Option<Receipt>),
    /// Removes the headers that were only kept to be passed on: those whose kept name says so
    /// ([`goes_at_the_end`](crate::decide::claim::goes_at_the_end)). The body may be gone.
    Shed(EventId),
    /// Keeps what an attempt came to.
    SetTried(EventId, Tried),
    /// Removes an event's body, receipt and output.
    RemoveBody(Box<Row>),
    /// Writes how many duplicates of an event there were, and the first few of them.
    SetSightings(EventId, u64, Vec<Sighting>),
}

/// What was read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Every cell that was asked for, and others that lie near.
    pub cells: Vec<(Cell, Found)>,
    /// The first of the turns that are now ours: taken after the cells were read.
    pub turn: Turn,
    /// The store's clock, taken before.
    pub now: Timestamp,
}

/// A store reduced to cells, for many to read and write at once.
pub trait Shelf: Send + Sync + 'static {
    /// Reads these cells, then takes so many turns, at most [`TURNS_AT_ONCE`]. Each cell is whole; together they need not be of one moment.
    fn read(&self, cells: Vec<Cell>, turns: usize) -> Answer<'_, Reading>;

    /// Writes these, as if one after another: each all or not at all. Says which were written; durable when it returns.
    fn write(&self, swaps: Vec<Swap>) -> Answer<'_, Vec<bool>>;

    /// Waits for a place to run a statement: see [`Store::place`].
    fn place(&self) -> Placing<'_> {
        Place::anywhere()
    }

    /// The same for whoever moves another store into this one: until that is finished, everybody else's are refused.
    fn fill(&self, swaps: Vec<Swap>) -> Answer<'_, Vec<bool>> {
        self.write(swaps)
    }

    /// Waits until every write that may not have seen what is written by now is over.
    fn settled(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// This text as it comes back from here.
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text.into()
    }

    /// Writes one swap, then runs a statement, and commits both; see [`Store::effect`].
    fn write_with<'a>(&'a self, _: Swap, _: &'a Bound) -> Answer<'a, Swapped> {
        Box::pin(std::future::ready(Ok(Swapped::Refused(effect::no_statements()))))
    }

    /// Up to `limit` events of this source that may be forgotten since before then. What carries its register's
    /// order is passed over: it would stand at the front for ever.
    fn forgettable<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> Answer<'a, Vec<EventId>>;

    /// Up to `limit` events of this source that ended before then and still have their body.
    fn with_old_bodies<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> Answer<'a, Vec<EventId>>;

    /// How many of these are freed in one write, where so many are to be freed: few, where everything else waits for it.
    fn swept_at_once(&self, _many: usize) -> usize {
        usize::MAX
    }

    /// See [`Store::sweep_pace`].
    fn sweep_pace(&self) -> SweepPace {
        SweepPace::default()
    }

    /// See [`Store::payload`].
    fn payload(&self, id: EventId) -> Answer<'_, Stored<Payload>>;
    /// See [`Store::receipt`].
    fn receipt(&self, id: EventId) -> Answer<'_, Option<Receipt>>;
    /// See [`Store::due`]. What cannot be read is among it, as dead of `damaged`.
    fn due(&self, look: Look, limit: usize) -> Answer<'_, Due>;
    /// See [`Store::start_due`].
    fn start_due(&self, starts: Starts) -> Answer<'_, Started>;
    /// See [`Store::list`].
    fn list(&self, listing: Listing) -> Answer<'_, Vec<Event>>;
    /// See [`Store::page`].
    fn page(&self, listing: Listing) -> Answer<'_, Page>;
    /// See [`Store::census`].
    fn census(&self) -> Answer<'_, Census>;
    /// See [`Store::story`].
    fn story(&self, id: EventId) -> Answer<'_, Option<Story>>;
    /// See [`Store::named`].
    fn named(&self, name: String, limit: usize) -> Answer<'_, Vec<Event>>;
    /// See [`Store::note`].
    fn note(&self, notes: Vec<Note>) -> Answer<'_, ()>;
    /// See [`Store::retention`].
    fn retention(&self) -> Answer<'_, Vec<SourceRetention>>;
    /// See [`Store::retain`].
    fn retain(&self, rows: Vec<SourceRetention>) -> Answer<'_, ()>;
    /// See [`Store::other_sources`].
    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> Answer<'_, Vec<SourceCount>>;
    /// See [`Store::recipes`].
    fn recipes(&self) -> Answer<'_, Vec<Recipe>>;
    /// See [`Store::remember`].
    fn remember(&self, recipes: Vec<Recipe>) -> Answer<'_, ()>;
    /// See [`Store::quarantine`].
    fn quarantine(&self, message: Quarantined) -> Answer<'_, ()>;
    /// See [`Store::quarantined`].
    fn quarantined(&self, limit: usize) -> Answer<'_, Vec<Quarantined>>;
    /// See [`Store::declare`].
    fn declare(&self, _: Vec<Declared>) -> Answer<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// See [`Store::probe`].
    fn probe(&self, _: Probe) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// See [`Store::failed`].
    fn failed(&self) -> watch::Receiver<Option<String>> {
        watch::Sender::new(None).subscribe()
    }
    /// See [`Store::known`].
    fn known(&self) -> Answer<'_, Option<KnownStore>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// See [`Store::begin_fence`].
    fn begin_fence(&self, _: Vec<KnownStore>) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// See [`Store::found`].
    fn found(&self, _: Option<KnownStore>) -> Answer<'_, Option<FoundStore>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// Its clocks.
    fn clock(&self) -> &Clock;
    /// What time the store has last seen and believed, as a node wrote it down.
    fn last_seen(&self) -> Answer<'_, Option<Timestamp>>;
    /// Writes it down, if it is still as it was.
    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> Answer<'_, ()>;
    /// Writes down what the nodes agree on of the store's clock, if that is still as it was.
    fn agree_on_clock(&self, _was: AgreedClock, _is: AgreedClock) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// See [`Store::hints`].
    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        None
    }
}

/// The store made of a shelf.
#[derive(Debug)]
pub struct Shared<S>(pub S);

/// How often something is drafted anew because others wrote first, before whoever asked is told to ask again.
const TRIES: u32 = 16;
/// Readings for one draft: each follows a key to its event, an event to its register, and so on.
const READINGS: usize = 8;
/// The wait after the third try; it doubles.
const BACK_OFF: Duration = Duration::from_millis(1);
/// The longest.
const BACK_OFF_MAX: Duration = Duration::from_millis(50);

/// One input's draft: what to answer, and what to write first.
struct Drafted<T> {
    answer: T,
    swap: Swap,
    /// It read what another draft of the same batch is about to write: it holds only if that is written.
    leans: bool,
}

impl<S: Shelf> Shared<S> {
    /// The times that count when the store's clock shows this.
    fn at(&self, now: Timestamp) -> Moment {
        Moment { now, expiry: self.0.clock().expiry().time }
    }

    /// Runs a rule over every input, as if one after another, and writes what it comes to. `None`: others wrote first
    /// each time.
    async fn run<I: Sync, T: Send>(
        &self,
        inputs: &[I],
        begins_with: impl Fn(&I) -> Vec<Cell> + Send + Sync,
        rule: impl Fn(&mut Draft<'_>, &I, Timestamp) -> Result<T, Blank> + Send + Sync,
    ) -> Result<Vec<Option<T>>, StoreError> {
        let mut answers: Vec<Option<T>> = inputs.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..inputs.len()).collect();
        let mut wrote = false;
        for tries in 0..TRIES {
            if open.is_empty() {
                break;
            }
            effect::back_off(tries).await;
            let drafts = self.draft(inputs, &open, &begins_with, &rule).await;
            let drafts = drafts.map_err(|error| after_writing(error, wrote))?;
            let (mut swaps, mut waits, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
            for (place, drafted) in open.iter().copied().zip(drafts) {
                match drafted {
                    None => undecided.push(place),
                    Some(Drafted { answer, swap, leans }) if leans || !swap.ops.is_empty() => {
                        swaps.push(swap);
                        waits.push((place, answer));
                    }
                    Some(Drafted { answer, .. }) => answers[place] = Some(answer),
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
        begins_with: &(impl Fn(&I) -> Vec<Cell> + Send + Sync),
        rule: &(impl Fn(&mut Draft<'_>, &I, Timestamp) -> Result<T, Blank> + Send + Sync),
    ) -> Result<Vec<Option<Drafted<T>>>, StoreError> {
        let mut missing: BTreeSet<Cell> = open.iter().flat_map(|place| begins_with(&inputs[*place])).collect();
        let mut copies = Copies::default();
        for _ in 0..READINGS {
            let reading = self.0.read(std::mem::take(&mut missing).into_iter().collect(), open.len()).await?;
            copies.add(reading);
            let mut draft = Draft::over(&copies);
            let mut drafts = Vec::with_capacity(open.len());
            for place in open {
                let result = rule(&mut draft, &inputs[*place], copies.now());
                drafts.push(match result {
                    Ok(answer) => {
                        let (swap, leans) = draft.keep();
                        Some(Drafted { answer, swap, leans })
                    }
                    Err(blank) => {
                        draft.drop_item();
                        missing.extend(match blank {
                            Blank::Unread(cell) => Some(cell),
                            Blank::QueueUnread => None,
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
        begins_with: Vec<Cell>,
        rule: impl Fn(&mut Draft<'_>, Timestamp) -> Result<T, Blank> + Send + Sync,
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

fn cells_of(event: &Event) -> Vec<Cell> {
    let register = event.change.map(|change| Cell::Register(change.subject));
    [Cell::Event(event.id)].into_iter().chain(register).chain(event.group.map(Cell::Slot)).collect()
}

fn cells_to_claim(new: &New) -> Vec<Cell> {
    let keys = new.keys.iter().chain(&new.former).map(|identity| Cell::Key(identity.key));
    let imported = new.imported.iter().map(|imported| Cell::Imported(imported.key));
    cells_of(&new.event).into_iter().chain(keys).chain(imported).collect()
}

impl<S: Shelf> Store for Shared<S> {
    fn claim(&self, new: Vec<New>) -> Answer<'_, Vec<Claim>> {
        Box::pin(async move {
            let claims = self
                .run(&new, cells_to_claim, |draft, one, now| ledger::claim(draft, one.clone(), self.at(now)))
                .await?;
            self.agree_on_clock().await;
            Ok(claims.into_iter().map(|claim| claim.unwrap_or(Claim::Again)).collect())
        })
    }

    fn advance(&self, changes: Vec<Change>) -> Answer<'_, Vec<Advance>> {
        Box::pin(async move {
            let begins_with = |change: &Change| cells_of(&change.event);
            let written =
                self.run(&changes, begins_with, |draft, change, now| ledger::advance(draft, change, now)).await?;
            written.into_iter().map(|advance| advance.ok_or_else(contended)).collect()
        })
    }

    fn place(&self) -> Placing<'_> {
        self.0.place()
    }

    fn effect<'a>(&'a self, change: Change, statement: Bound, _: &'a Place) -> Answer<'a, Effected> {
        Box::pin(self.effect_of(change, statement))
    }

    fn get(&self, id: EventId) -> Answer<'_, Option<Event>> {
        Box::pin(async move {
            let cells = self.0.read(vec![Cell::Event(id)], 0).await?.cells;
            Ok(cells.into_iter().find_map(|(_, found)| match found {
                Found::Event(row, _) if row.event.id == id => Some(row.event),
                _ => None,
            }))
        })
    }

    fn payload(&self, id: EventId) -> Answer<'_, Stored<Payload>> {
        self.0.payload(id)
    }

    fn receipt(&self, id: EventId) -> Answer<'_, Option<Receipt>> {
        self.0.receipt(id)
    }

    /// What comes up and cannot be read is ended, so that it does not come up again.
    fn due(&self, look: Look, limit: usize) -> Answer<'_, Due> {
        Box::pin(async move {
            self.write_clock().await;
            let mut due = self.0.due(look, limit).await?;
            let is_over = |event: &mut Event| event.state.ended().is_some();
            for Event { id, .. } in due.events.extract_if(.., is_over) {
                telemetry::say(Level::Error, "damaged", &[("event", &*id.short()), ("why", CANNOT_BE_READ)]);
                let bury = |draft: &mut Draft<'_>, now| match draft.row(id)? {
                    Some(row) => ledger::bury(draft, row, now).map(drop),
                    None => Ok(()),
                };
                self.run_one(vec![Cell::Event(id)], bury).await?;
            }
            Ok(due)
        })
    }

    fn start_due(&self, starts: Starts) -> Answer<'_, Started> {
        self.0.start_due(starts)
    }

    fn list(&self, listing: Listing) -> Answer<'_, Vec<Event>> {
        self.0.list(listing)
    }

    fn page(&self, listing: Listing) -> Answer<'_, Page> {
        self.0.page(listing)
    }

    fn census(&self) -> Answer<'_, Census> {
        self.0.census()
    }

    fn story(&self, id: EventId) -> Answer<'_, Option<Story>> {
        self.0.story(id)
    }

    fn named(&self, name: String, limit: usize) -> Answer<'_, Vec<Event>> {
        self.0.named(name, limit)
    }

    fn note(&self, notes: Vec<Note>) -> Answer<'_, ()> {
        self.0.note(notes)
    }

    fn forget(&self, keeps: Arc<Keeps>, limit: usize) -> Answer<'_, Forgotten, SweepError> {
        Box::pin(async move {
            self.write_clock().await;
            self.sweep(&keeps, limit).await
        })
    }

    fn sweep_pace(&self) -> SweepPace {
        self.0.sweep_pace()
    }

    fn remove(&self, id: EventId) -> Answer<'_, Removal> {
        Box::pin(self.run_one(vec![Cell::Event(id)], move |draft, now| ledger::remove(draft, id, now)))
    }

    fn remove_all(&self, ids: Vec<EventId>) -> Answer<'_, Vec<Removal>> {
        Box::pin(async move {
            let mut removals = Vec::with_capacity(ids.len());
            for some in ids.chunks(self.0.swept_at_once(ids.len())) {
                let cells = |id: &EventId| vec![Cell::Event(*id)];
                let gone = self.run(some, cells, |draft, id, now| ledger::remove(draft, *id, now)).await?;
                removals.extend(gone);
            }
            removals.into_iter().map(|removal| removal.ok_or_else(contended)).collect()
        })
    }

    fn retention(&self) -> Answer<'_, Vec<SourceRetention>> {
        self.0.retention()
    }

    fn retain(&self, rows: Vec<SourceRetention>) -> Answer<'_, ()> {
        self.0.retain(rows)
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> Answer<'_, Vec<SourceCount>> {
        self.0.other_sources(known)
    }

    fn recipes(&self) -> Answer<'_, Vec<Recipe>> {
        self.0.recipes()
    }

    fn remember(&self, recipes: Vec<Recipe>) -> Answer<'_, ()> {
        self.0.remember(recipes)
    }

    fn quarantine(&self, message: Quarantined) -> Answer<'_, ()> {
        self.0.quarantine(message)
    }

    fn quarantined(&self, limit: usize) -> Answer<'_, Vec<Quarantined>> {
        self.0.quarantined(limit)
    }

    fn import(&self, keys: Vec<Key>) -> Answer<'_, Imported> {
        Box::pin(async move {
            let mut imported = Imported::default();
            for some in keys.chunks(IMPORT_BATCH) {
                let cells = some.iter().map(|key| Cell::Imported(*key)).collect();
                let more = self.run_one(cells, |draft, _| ledger::import(draft, some)).await?;
                imported.new += more.new;
                imported.known += more.known;
            }
            Ok(imported)
        })
    }

    fn foresee(&self, new: Vec<New>) -> Answer<'_, Vec<Claim>> {
        Box::pin(async move {
            let mut claims = Vec::new();
            for one in new {
                let begins_with = |one: &New| cells_to_claim(one);
                let rule = |draft: &mut Draft<'_>, one: &New, now| ledger::claim(draft, one.clone(), self.at(now));
                let drafts = self.draft(&[one], &[0], &begins_with, &rule).await?;
                let drafted = drafts.into_iter().next().flatten();
                claims.push(drafted.map_or(Claim::Again, |drafted| drafted.answer));
            }
            Ok(claims)
        })
    }

    fn declare(&self, declared: Vec<Declared>) -> Answer<'_, Vec<String>> {
        self.0.declare(declared)
    }

    fn batches_at_once(&self) -> usize {
        BATCHES_AT_ONCE
    }

    fn probe(&self, probe: Probe) -> Answer<'_, ()> {
        self.0.probe(probe)
    }

    fn failed(&self) -> watch::Receiver<Option<String>> {
        self.0.failed()
    }

    fn known(&self) -> Answer<'_, Option<KnownStore>> {
        self.0.known()
    }

    fn begin_fence(&self, known: Vec<KnownStore>) -> Answer<'_, ()> {
        self.0.begin_fence(known)
    }

    fn found(&self, known: Option<KnownStore>) -> Answer<'_, Option<FoundStore>> {
        self.0.found(known)
    }

    fn now(&self) -> Timestamp {
        self.0.clock().now()
    }

    fn lease_end(&self, until: Timestamp) -> Timestamp {
        self.0.clock().lease_end(until)
    }

    fn look_at_clock(&self) -> Answer<'_, ()> {
        Box::pin(self.ask_clock())
    }

    fn wall_time(&self) -> Timestamp {
        self.0.clock().wall_time()
    }

    fn expiry(&self) -> Expiry {
        self.0.clock().expiry()
    }

    fn confirm_time(&self) -> Answer<'_, ()> {
        Box::pin(self.confirm())
    }

    fn would_forget(&self, keeps: Arc<Keeps>, limit: usize) -> Answer<'_, u64> {
        Box::pin(async move { self.count_forgettable(&keeps, limit, self.0.clock().jumped()).await })
    }

    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        self.0.hints()
    }
}

/// What is said of an event whose row is not what was written.
const CANNOT_BE_READ: &str = "its row cannot be read; it ends dead";
/// Keys imported in one write.
const IMPORT_BATCH: usize = 1_000;
