//! The backend of a store that many nodes write: it reads records and writes them conditionally.

use super::{ExpectedVersion, Record, RecordId, RecordVersion, SqlWriteOutcome, sql};
use crate::decide::claim::Payload;
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::ledger::{EventRow, KeyOwner, SubjectRegister};
use crate::decide::sql_template::BoundStatement;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::Timestamp;
use crate::decide::transition::AttemptRecord;
use crate::store::{BatchStart, DueEvents, DueQuery, DuplicateSighting, RetentionPolicies, StoreBackend, StoreFuture};
use std::sync::Arc;

/// One atomic write, applied only if every record is still as expected.
#[derive(Clone, Debug, Default)]
pub struct ConditionalWrite {
    /// The expected versions.
    pub seen: Vec<(RecordId, ExpectedVersion)>,
    /// What is written then, in this order.
    pub ops: Vec<RecordWrite>,
}

/// A write to one record.
#[derive(Clone, Debug)]
pub enum RecordWrite {
    /// Writes an event: a new one with its body, if that is to be kept, or the changed columns of an existing one.
    Put {
        /// The row before.
        was: Option<Box<EventRow>>,
        /// The row after.
        row: Box<EventRow>,
        /// Its new version.
        version: RecordVersion,
        /// The body of a new event.
        payload: Option<Payload>,
    },
    /// Removes an event with its keys, body, attempts, receipt and sightings. Without a row, only its keys are left.
    Remove(EventId, Option<Box<EventRow>>),
    /// Gives a free key to an event.
    Hold(Key, KeyOwner),
    /// Adds an imported key.
    SetImported(Key),
    /// Sets a register.
    SetRegister(Key, SubjectRegister, RecordVersion),
    /// Removes a register.
    RemoveRegister(Key),
    /// Gives a slot to an event; or rewrites it for its holder because its queue has changed.
    SetSlot(Key, EventId, RecordVersion),
    /// Frees a slot.
    FreeSlot(Key),
    /// Replaces an event's body, and with it what is otherwise never rewritten: delivery id, fields and digests.
    SetPayload(Box<Event>, Payload),
    /// Replaces the stored response; with `None`, removes it.
    SetReceipt(EventId, Option<Receipt>),
    /// Removes the transient headers, by their stored names
    /// ([`is_transient_header`](crate::decide::claim::is_transient_header)). The body may be gone.
    Shed(EventId),
    /// Adds the record of an ended attempt.
    SetTried(EventId, AttemptRecord),
    /// Removes an event's body, receipt and output.
    RemoveBody(Box<EventRow>),
    /// Sets how many duplicates an event had, and the first few of them.
    SetSightings(EventId, u64, Vec<DuplicateSighting>),
}

/// The result of a read.
#[derive(Clone, Debug)]
pub struct ReadBatch {
    /// Every requested record, and perhaps related ones.
    pub cells: Vec<(RecordId, Record)>,
    /// The first of the turns that were taken, after the records were read.
    pub turn: QueueTurn,
    /// The store's clock, read before.
    pub now: Timestamp,
}

/// A store reduced to versioned records, which many nodes read and write at once. Each is a
/// [`Store`](crate::store::Store) and [`Administer`](crate::store::Administer): the rules run over what it reads.
pub trait VersionedBackend: StoreBackend {
    /// Reads these records, then takes `turns` turns, at most `TURNS_AT_ONCE`. Each record is consistent; together they
    /// need not be of one moment.
    fn read(&self, cells: Vec<RecordId>, turns: usize) -> StoreFuture<'_, ReadBatch>;

    /// Applies these as if one after another, each wholly or not at all. Returns which were written; durable when it
    /// returns.
    fn write(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>>;

    /// The same for the copy that fills this store: until it is finished, all other writes are refused.
    fn fill(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>> {
        self.write(swaps)
    }

    /// Applies one conditional write, then runs a statement, and commits both; see
    /// [`Store::advance_with_sql`](crate::store::Store::advance_with_sql).
    fn write_with<'a>(&'a self, _: ConditionalWrite, _: &'a BoundStatement) -> StoreFuture<'a, SqlWriteOutcome> {
        Box::pin(std::future::ready(Ok(SqlWriteOutcome::Refused(sql::no_statements()))))
    }

    /// Up to `limit` events of this source that could be forgotten before then. An event that carries its register's
    /// order is skipped: it would stay at the front for ever.
    fn forgettable<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> StoreFuture<'a, Vec<EventId>>;

    /// Up to `limit` events of this source that ended before then and still have their body.
    fn with_old_bodies<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize)
    -> StoreFuture<'a, Vec<EventId>>;

    /// See [`Store::batch_start`](crate::store::Store::batch_start).
    fn batch_start(&self) -> BatchStart {
        BatchStart::WhenMoreWait
    }

    /// See [`Store::shares_commits`](crate::store::Store::shares_commits).
    fn shares_commits(&self) -> bool {
        false
    }

    /// How many of `many` deletions go into one write: few, where everything else waits for it.
    fn swept_at_once(&self, _many: usize) -> usize {
        usize::MAX
    }

    /// Removes what is kept of old bodies to compress others, in stores that keep such: what is older than these policies
    /// permit, and what no body needs any more.
    fn sweep_dictionaries(&self, _: Arc<RetentionPolicies>) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes what is kept of the bodies of these events to compress others. The others stay.
    fn remove_dictionaries_of_events(&self, _: Vec<EventId>) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The same for all bodies of a source.
    fn remove_dictionaries_of_source(&self, _: String) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// See [`Store::due`](crate::store::Store::due). Includes unreadable events, as dead of `damaged`.
    fn due_or_damaged(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents>;

    /// The last time that the store has seen and accepted, as written by a node.
    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>>;

    /// Writes the last-seen time, if it is still `was`.
    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> StoreFuture<'_, ()>;

    /// Writes the nodes' agreement on the store's clock, if it is still `_was`.
    fn agree_on_clock(&self, _was: AgreedClock, _is: AgreedClock) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
