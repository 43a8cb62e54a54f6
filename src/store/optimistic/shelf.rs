//! What a backend of a store that many nodes write must be able to do: read cells, and swap them.

use super::{ExpectedVersion, Record, RecordId, RecordVersion, SqlWriteOutcome, sql};
use crate::decide::claim::Payload;
use crate::decide::data_loss::{KnownStore, ObservedStore};
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::sql_template::BoundStatement;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::Timestamp;
use crate::decide::transition::AttemptRecord;
use crate::store::clock::StoreClock;
use crate::store::inspect::QuarantinedMessage;
use crate::store::ledger::{EventRow, KeyOwner, Register};
use crate::store::{
    ChangeHint, DeclaredFields, DueEvents, DueQuery, DuplicateNote, DuplicateSighting, EventCounts, EventDetails,
    EventPage, EventQuery, SourceCount, SourceRetention, SqlPermit, SqlPermitFuture, StartDueRequest, StartDueResult,
    StoreFuture, StoredValue, SweepPace, WriteProbe,
};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// One write, all of it or nothing, if every cell is still as it was seen.
#[derive(Clone, Debug, Default)]
pub struct ConditionalWrite {
    /// What must still be so.
    pub seen: Vec<(RecordId, ExpectedVersion)>,
    /// What is then written, in this order.
    pub ops: Vec<RecordWrite>,
}

/// A write to one thing.
#[derive(Clone, Debug)]
pub enum RecordWrite {
    /// Writes an event: a new one with its body, if that is to be kept, or what changes by itself of one that was so.
    Put {
        /// As it was.
        was: Option<Box<EventRow>>,
        /// As it is now.
        row: Box<EventRow>,
        /// Its version.
        version: RecordVersion,
        /// The body of a new one.
        payload: Option<Payload>,
    },
    /// Removes an event with its keys, body, attempts, receipt and sightings. Without a row only keys are left of it.
    Remove(EventId, Option<Box<EventRow>>),
    /// Gives a key that nobody holds to an event.
    Hold(Key, KeyOwner),
    /// Writes an imported key.
    SetImported(Key),
    /// Sets a register.
    SetRegister(Key, Register, RecordVersion),
    /// Removes one.
    RemoveRegister(Key),
    /// Gives a slot to somebody; or gives it to its holder anew, because its queue has changed.
    SetSlot(Key, EventId, RecordVersion),
    /// Frees one.
    FreeSlot(Key),
    /// Replaces an event's body, and with it what else never changes by itself: delivery id, fields and digests.
    SetPayload(Box<Event>, Payload),
    /// Keeps an answer in place of an earlier one; with none, the earlier one goes.
    SetReceipt(EventId, Option<Receipt>),
    /// Removes the headers that were only kept to be passed on: those whose kept name says so
    /// ([`goes_at_the_end`](crate::decide::claim::is_transient_header)). The body may be gone.
    Shed(EventId),
    /// Keeps what an attempt came to.
    SetTried(EventId, AttemptRecord),
    /// Removes an event's body, receipt and output.
    RemoveBody(Box<EventRow>),
    /// Writes how many duplicates of an event there were, and the first few of them.
    SetSightings(EventId, u64, Vec<DuplicateSighting>),
}

/// What was read.
#[derive(Clone, Debug)]
pub struct ReadBatch {
    /// Every cell that was asked for, and others that lie near.
    pub cells: Vec<(RecordId, Record)>,
    /// The first of the turns that are now ours: taken after the cells were read.
    pub turn: QueueTurn,
    /// The store's clock, taken before.
    pub now: Timestamp,
}

/// A store reduced to cells, for many to read and write at once.
pub trait VersionedBackend: Send + Sync + 'static {
    /// Reads these cells, then takes so many turns, at most `TURNS_AT_ONCE`. Each cell is whole; together they need not be of one moment.
    fn read(&self, cells: Vec<RecordId>, turns: usize) -> StoreFuture<'_, ReadBatch>;

    /// Writes these, as if one after another: each all or not at all. Says which were written; durable when it returns.
    fn write(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>>;

    /// Waits for a place to run a statement: see [`Store::sql_permit`](crate::store::Store::sql_permit).
    fn place(&self) -> SqlPermitFuture<'_> {
        SqlPermit::anywhere()
    }

    /// The same for whoever moves another store into this one: until that is finished, everybody else's are refused.
    fn fill(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>> {
        self.write(swaps)
    }

    /// Waits until every write that may not have seen what is written by now is over.
    fn settled(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// This text as it comes back from here.
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text.into()
    }

    /// Writes one swap, then runs a statement, and commits both; see [`Store::advance_with_sql`](crate::store::Store::advance_with_sql).
    fn write_with<'a>(&'a self, _: ConditionalWrite, _: &'a BoundStatement) -> StoreFuture<'a, SqlWriteOutcome> {
        Box::pin(std::future::ready(Ok(SqlWriteOutcome::Refused(sql::no_statements()))))
    }

    /// Up to `limit` events of this source that may be forgotten since before then. What carries its register's
    /// order is passed over: it would stand at the front for ever.
    fn forgettable<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> StoreFuture<'a, Vec<EventId>>;

    /// Up to `limit` events of this source that ended before then and still have their body.
    fn with_old_bodies<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize)
    -> StoreFuture<'a, Vec<EventId>>;

    /// How many of these are freed in one write, where so many are to be freed: few, where everything else waits for it.
    fn swept_at_once(&self, _many: usize) -> usize {
        usize::MAX
    }

    /// See [`Store::sweep_pace`](crate::store::Store::sweep_pace).
    fn sweep_pace(&self) -> SweepPace {
        SweepPace::default()
    }

    /// See [`Store::payload`](crate::store::Store::payload).
    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>>;
    /// See [`Store::receipt`](crate::store::Store::receipt).
    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>>;
    /// See [`Store::due`](crate::store::Store::due). What cannot be read is among it, as dead of `damaged`.
    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents>;
    /// See [`Store::start_due`](crate::store::Store::start_due).
    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult>;
    /// See [`Store::list`](crate::store::Store::list).
    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>>;
    /// See [`Store::page`](crate::store::Store::page).
    fn page(&self, listing: EventQuery) -> StoreFuture<'_, EventPage>;
    /// See [`Store::counts`](crate::store::Store::counts).
    fn census(&self) -> StoreFuture<'_, EventCounts>;
    /// See [`Store::details`](crate::store::Store::details).
    fn story(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>>;
    /// See [`Store::find_by_name`](crate::store::Store::find_by_name).
    fn named(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>>;
    /// See [`Store::note_duplicates`](crate::store::Store::note_duplicates).
    fn note(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()>;
    /// See [`Store::retention`](crate::store::Store::retention).
    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>>;
    /// See [`Store::set_retention`](crate::store::Store::set_retention).
    fn retain(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()>;
    /// See [`Store::other_sources`](crate::store::Store::other_sources).
    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>>;
    /// See [`Store::recipes`](crate::store::Store::recipes).
    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>>;
    /// See [`Store::set_recipes`](crate::store::Store::set_recipes).
    fn remember(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()>;
    /// See [`Store::quarantine`](crate::store::Store::quarantine).
    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()>;
    /// See [`Store::quarantined`](crate::store::Store::quarantined).
    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>>;
    /// See [`Store::declare`](crate::store::Store::declare).
    fn declare(&self, _: Vec<DeclaredFields>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// See [`Store::probe`](crate::store::Store::probe).
    fn probe(&self, _: WriteProbe) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// See [`Store::failed`](crate::store::Store::failed).
    fn failed(&self) -> watch::Receiver<Option<String>> {
        watch::Sender::new(None).subscribe()
    }
    /// See [`Store::known`](crate::store::Store::known).
    fn known(&self) -> StoreFuture<'_, Option<KnownStore>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// See [`Store::begin_fence`](crate::store::Store::begin_fence).
    fn begin_fence(&self, _: Vec<KnownStore>) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// See [`Store::compare_history`](crate::store::Store::compare_history).
    fn found(&self, _: Option<KnownStore>) -> StoreFuture<'_, Option<ObservedStore>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// Its clocks.
    fn clock(&self) -> &StoreClock;
    /// What time the store has last seen and believed, as a node wrote it down.
    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>>;
    /// Writes it down, if it is still as it was.
    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> StoreFuture<'_, ()>;
    /// Writes down what the nodes agree on of the store's clock, if that is still as it was.
    fn agree_on_clock(&self, _was: AgreedClock, _is: AgreedClock) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// See [`Store::hints`](crate::store::Store::hints).
    fn hints(&self) -> Option<broadcast::Receiver<ChangeHint>> {
        None
    }
}
