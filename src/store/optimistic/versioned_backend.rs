//! What a backend of a store that many nodes write must be able to do: read cells, and swap them.

use super::{ExpectedVersion, Record, RecordId, RecordVersion, SqlWriteOutcome, sql};
use crate::decide::claim::Payload;
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::sql_template::BoundStatement;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::Timestamp;
use crate::decide::transition::AttemptRecord;
use crate::store::ledger::{EventRow, KeyOwner, Register};
use crate::store::{DueEvents, DueQuery, DuplicateSighting, StoreBackend, StoreFuture};

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

/// A store reduced to records with versions, for many nodes to read and write at once. Each is a
/// [`Store`](crate::store::Store) and can be [administered](crate::store::Administer): the rules run over what it reads.
pub trait VersionedBackend: StoreBackend {
    /// Reads these cells, then takes so many turns, at most `TURNS_AT_ONCE`. Each cell is whole; together they need not be of one moment.
    fn read(&self, cells: Vec<RecordId>, turns: usize) -> StoreFuture<'_, ReadBatch>;

    /// Writes these, as if one after another: each all or not at all. Says which were written; durable when it returns.
    fn write(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>>;

    /// The same for whoever moves another store into this one: until that is finished, everybody else's are refused.
    fn fill(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>> {
        self.write(swaps)
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

    /// See [`Store::due`](crate::store::Store::due). What cannot be read is among it, as dead of `damaged`.
    fn due_or_damaged(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents>;

    /// What time the store has last seen and believed, as a node wrote it down.
    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>>;

    /// Writes it down, if it is still as it was.
    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> StoreFuture<'_, ()>;

    /// Writes down what the nodes agree on of the store's clock, if that is still as it was.
    fn agree_on_clock(&self, _was: AgreedClock, _is: AgreedClock) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
