//! The store: keys, registers, slots and events. It holds no policy: what `decide` worked out is written here, all of
//! it or nothing, and is durable when the call returns.
//!
//! | trait | for | implemented |
//! |---|---|---|
//! | [`StoreBackend`] | the engine: clock, payloads, notes, health | by each store |
//! | [`Store`] | the engine: what the rules decide | by memory and SQLite over a [`Ledger`](crate::decide::ledger::Ledger); for PostgreSQL and Redis by [`optimistic`] |
//! | [`Administer`] | operators: what the rules decide | the same |
//! | [`Inspect`] | operators and set-up: what is read, and what no rule decides | by each store |
//!
//! A new store begins by making the suite `conformance` pass (a feature). A store that decides one event after another,
//! such as memory and SQLite, implements all four traits. A store that many nodes write at once implements
//! [`optimistic::VersionedBackend`] in place of [`Store`] and [`Administer`].

pub mod batch;
mod batch_queue;
#[cfg(feature = "durable-store")]
mod body_packer;
pub mod clock;
pub mod clock_monitor;
pub(crate) mod completion;
#[cfg(feature = "durable-store")]
pub(crate) mod compression;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod copy;
#[cfg(any(feature = "layer", feature = "node"))]
pub(crate) mod event_id;
pub mod inspect;
pub mod memory;
pub mod open;
pub mod optimistic;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod retention;
#[cfg(feature = "durable-store")]
pub(crate) mod row;
pub mod schema;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod start_due;
pub mod status_text;
pub mod subjects;
pub mod url;

pub use crate::decide::expiry_clock::StoreTimes;
pub use crate::decide::ledger::{
    AdvanceResult, ForgetCounts, ImportCounts, KnownDuplicate, RegisterEditError, RemovalResult, RetentionPolicies,
};
pub use batch_queue::BatchStart;
pub use inspect::{Administer, EventCounts, EventPage, EventQuery, Inspect, SourceEventCounts};
pub use open::open;
pub use retention::{SourceCount, SourceRetention};
pub use retention::{SweepError, SweepPace, SweepPause};
pub use sql::{SqlPermit, SqlPermitFuture};
pub use start_due::{StartDueRequest, StartDueResult};

use crate::decide::claim::{ClaimResult, MatchedBy, NewEvent, Payload};
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::{Event, EventState, Outcome, Receipt};
use crate::decide::expiry_clock::ExpiryStatus;
use crate::decide::id::{EventId, Key};
use crate::decide::ledger::SubjectRegister;
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::Timestamp;
use crate::decide::transition::{AttemptRecord, Transition};
use clock::StoreClock;
use inspect::QuarantinedMessage;
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// The future of a store call. Boxed, because stores are chosen at run time.
pub type StoreFuture<'a, T, E = StoreError> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// The part of a store that the engine needs and that involves no rule: clock, payloads, receipts, notes, hints and
/// health. Each store implements it directly.
pub trait StoreBackend: Send + Sync + 'static {
    /// The store's clock.
    fn clock(&self) -> &StoreClock;

    /// The store's time, for leases and ordering. It never runs backwards.
    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// When a lease written to end at `until` really ends, by the store's clock: later than `until` for a while after
    /// the server's clock was set forward, so that its holder can renew it.
    fn lease_end(&self, until: Timestamp) -> Timestamp {
        self.clock().lease_end(until)
    }

    /// Has a lease written to end at `until` expired?
    fn is_lease_over(&self, until: Timestamp) -> bool {
        self.lease_end(until) <= self.now()
    }

    /// This machine's wall clock, which may be set at any time. The age of a signature is measured by it.
    fn wall_time(&self) -> Timestamp {
        self.clock().wall_time()
    }

    /// The time by which events expire, for claims, lookups and the sweep alike, and the clock jump it is waiting on,
    /// if any.
    fn expiry(&self) -> ExpiryStatus {
        self.clock().expiry()
    }

    /// Headers and body, checked against the event's digest.
    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>>;

    /// The stored response of an event.
    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>>;

    /// Starts due events, many in one write: those that can start by their own row alone. Nodes that call it at the
    /// same time get different events. A store that only one node writes can use [`StartDueRequest::by_steps`].
    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult>;

    /// Records sightings of duplicates. Not durable: written with the next batch.
    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()>;

    /// Puts a message that can never become an event into quarantine. Durable when it returns; repeating it for the
    /// same message and source changes nothing.
    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()>;

    /// The retention of each source, as last written by the nodes that have the source, sorted by name.
    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>>;

    /// Replaces the retention of these sources. Rows of other sources stay.
    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()>;

    /// The pace of the sweep.
    fn sweep_pace(&self) -> SweepPace {
        SweepPace::default()
    }

    /// Waits for a permit to run a SQL statement; the number of permits is small.
    fn sql_permit(&self) -> SqlPermitFuture<'_> {
        SqlPermit::anywhere()
    }

    /// Checks whether the store can be written. Leaves its contents unchanged.
    fn probe(&self, _: WriteProbe) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Holds the reason once the store has stopped for good. Most stores never do.
    fn failed(&self) -> watch::Receiver<Option<ErrorMessage>> {
        watch::Sender::new(None).subscribe()
    }

    /// Hints about the writes of other nodes, where the store has them. A hint may be missed: only reading the store is
    /// certain.
    fn hints(&self) -> Option<broadcast::Receiver<ChangeHint>> {
        None
    }

    /// Sends a hint to the other nodes, where the store has hints. It may be lost.
    fn send_hint(&self, _: ChangeHint) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The part of a store that the engine needs and that the rules decide. A store that one node writes implements it over
/// a [`Ledger`](crate::decide::ledger::Ledger); a store that many nodes write gets it through [`optimistic::VersionedBackend`].
pub trait Store: StoreBackend {
    /// Claims these events as if one after another, each wholly or not at all. Durable when it returns, and idempotent
    /// by event id: after a lost response the same claim can be made again.
    fn claim(&self, batch: Vec<Arc<NewEvent>>) -> StoreFuture<'_, Vec<ClaimResult>>;

    /// Writes these transitions: each is a compare-and-swap of revision n-1 for n, and may lose.
    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>>;

    /// Claims these events and writes these transitions, in one commit. What meets conflicting writes is left undecided,
    /// so that neither kind holds up the other; on an error the same holds as for [`Self::claim`] and [`Self::advance`].
    /// Only for stores that [share commits](Self::shares_commits).
    fn claim_and_advance(
        &self,
        claims: Vec<Arc<NewEvent>>,
        changes: Arc<Vec<Transition>>,
    ) -> StoreFuture<'_, (Vec<ClaimResult>, Vec<Option<AdvanceResult>>)> {
        Box::pin(async move {
            let advances = self.advance(Arc::unwrap_or_clone(changes)).await?;
            Ok((self.claim(claims).await?, advances.into_iter().map(Some).collect()))
        })
    }

    /// Writes one transition, then runs a SQL statement, in one transaction of their own: both or neither. Only for
    /// stores that are databases; the config rejects `sql` with any other.
    fn advance_with_sql<'a>(
        &'a self,
        _: Transition,
        _: BoundStatement,
        _: &'a SqlPermit,
    ) -> StoreFuture<'a, SqlOutcome> {
        let why = "this store runs no statements".to_owned();
        Box::pin(std::future::ready(Ok(SqlOutcome::Refused(Outcome::Rejected { why, receipt: None }))))
    }

    /// The event's row, without payload or history.
    fn get(&self, id: EventId) -> StoreFuture<'_, Option<Event>>;

    /// The result of claiming this duplicate now, if that claim would write nothing. It is a read, so that the claim is
    /// not needed. `None` means that only a claim can tell; always returning it is correct.
    fn find_duplicate(&self, _new: &NewEvent, _needs: DuplicateLookup) -> StoreFuture<'_, Option<KnownDuplicate>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Events that need attention now, oldest first. One route's backlog never hides another's.
    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents>;

    /// The state under this key: a text that a node keeps for all nodes, such as the position of a catch-up.
    fn state(&self, key: Key) -> StoreFuture<'_, Option<Arc<str>>>;

    /// Replaces the state under this key, if it is still `was`; `None` means that there is none. Returns whether it was.
    fn swap_state(&self, key: Key, was: Option<Arc<str>>, is: Option<Arc<str>>) -> StoreFuture<'_, bool>;

    /// Deletes expired events of these sources, at most `limit` at a time. A count of zero means that nothing was left,
    /// even while other nodes sweep the same events.
    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError>;

    /// How many events, up to `limit`, the sweep would delete if the pending clock jump counted now.
    fn would_forget(&self, _: Arc<RetentionPolicies>, _limit: usize) -> StoreFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// Reads the clock of the store's server, if it has one, and exchanges with the other nodes what was seen of it.
    /// Each node calls this once a second.
    fn look_at_clock(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How many batches may be in progress at once, of each kind where they do not [share
    /// commits](Self::shares_commits). One for a store that writes one after another anyway: the next batch forms
    /// meanwhile.
    fn batches_at_once(&self) -> usize {
        1
    }

    /// When a batch starts beside others.
    fn batch_start(&self) -> BatchStart {
        BatchStart::WhenMoreWait
    }

    /// Whether a commit of claims and transitions together costs less than one of each.
    fn shares_commits(&self) -> bool {
        false
    }
}

/// How to check whether a store can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteProbe {
    /// By asking only whether its writer in this process answers; never over the network.
    Alive,
    /// By reading, where that is enough and cheap.
    Look,
    /// By writing as much as a body of usual size takes, then undoing it. Used after a write has failed.
    Write,
}

/// A hint that another node wrote something. It may be late, duplicated or lost.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum ChangeHint {
    /// An event of this source is waiting on this route.
    Due {
        /// The source.
        source: Arc<str>,
        /// The route.
        route: Arc<str>,
    },
    /// This event has ended.
    Ended(EventId),
    /// A client watches the output of this event.
    Watched(EventId),
    /// There were too many changes for a hint.
    Missed,
}

/// The result of writing a transition together with a SQL statement.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum SqlOutcome {
    /// Both are written, or the compare-and-swap was lost and neither is.
    Advanced(AdvanceResult),
    /// The statement conflicted with other transactions, for this reason; an immediate retry may succeed. Neither is
    /// written.
    Again(String),
    /// The statement could not run and neither is written. This is the attempt's outcome.
    Refused(Outcome),
}

/// The result of editing a register: as it is now, `None` once it is removed.
pub type RegisterEditResult = Result<Option<SubjectRegister>, RegisterEditError>;

/// The result of a store call.
#[cfg(feature = "redis")]
type StoreResult<T> = Result<T, StoreError>;

/// Why a store call failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was written; it may work later.
    Down(ErrorMessage),
    /// It may have been written. Making the same claim again, or reading the event, will tell.
    Unsure(ErrorMessage),
    /// Continuing would do harm.
    Broken(ErrorMessage),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(why) => write!(f, "the store is out of reach: {why}"),
            Self::Unsure(why) => write!(f, "the store did not confirm the write: {why}"),
            Self::Broken(why) => write!(f, "the store is broken: {why}"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Down(why) | Self::Unsure(why) | Self::Broken(why) => why.source(),
        }
    }
}

impl StoreError {
    /// [`StoreError::Down`] for this reason.
    pub fn down(why: impl Into<ErrorMessage>) -> Self {
        Self::Down(why.into())
    }

    /// [`StoreError::Unsure`] for this reason.
    pub fn unsure(why: impl Into<ErrorMessage>) -> Self {
        Self::Unsure(why.into())
    }

    /// [`StoreError::Broken`] for this reason.
    pub fn broken(why: impl Into<ErrorMessage>) -> Self {
        Self::Broken(why.into())
    }

    /// The same with this error behind it.
    #[must_use]
    pub fn caused_by(self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        match self {
            Self::Down(why) => Self::Down(why.caused_by(cause)),
            Self::Unsure(why) => Self::Unsure(why.caused_by(cause)),
            Self::Broken(why) => Self::Broken(why.caused_by(cause)),
        }
    }
}

/// Why a store could not be opened, in sentences for operators.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreOpenError {
    /// It may work later: the server does not respond, or is too busy.
    Temporary(ErrorMessage),
    /// An operator must do something first.
    Permanent(ErrorMessage),
}

impl fmt::Display for StoreOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Temporary(why) | Self::Permanent(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StoreOpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Temporary(why) | Self::Permanent(why) => why.source(),
        }
    }
}

impl StoreOpenError {
    /// [`StoreOpenError::Temporary`] for this reason.
    pub fn temporary(why: impl Into<ErrorMessage>) -> Self {
        Self::Temporary(why.into())
    }

    /// [`StoreOpenError::Permanent`] for this reason.
    pub fn permanent(why: impl Into<ErrorMessage>) -> Self {
        Self::Permanent(why.into())
    }

    /// The same with this error behind it.
    #[must_use]
    pub fn caused_by(self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        match self {
            Self::Temporary(why) => Self::Temporary(why.caused_by(cause)),
            Self::Permanent(why) => Self::Permanent(why.caused_by(cause)),
        }
    }
}

/// A stored value, which may have expired or been damaged since it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredValue<T> {
    /// As it was written.
    Whole(T),
    /// Not as it was written.
    Damaged,
    /// No longer kept.
    Forgotten,
}

/// How much a duplicate lookup must return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DuplicateLookup {
    /// The state of its event.
    Standing,
    /// The state, and the stored response if the event has ended.
    Receipt,
}

impl DuplicateLookup {
    /// Is this event's stored response needed? An event that has not ended may have one too, from a failed attempt.
    fn receipt_of(self, event: &Event) -> bool {
        self == Self::Receipt && event.state.ended().is_some()
    }
}

/// Which due events to look for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DueQuery {
    /// Waiting events of this source and route.
    Route(Arc<str>, Arc<str>),
    /// The same, for these receivers of the route only, so that a receiver that is down does not hide the others'
    /// events.
    Receiver(Arc<str>, Arc<str>, RangeInclusive<u16>),
    /// Running events whose lease has expired.
    Leases,
    /// Waiting events of any source and route but these.
    Orphans(Arc<[(Arc<str>, Arc<str>)]>),
}

impl DueQuery {
    /// Does this event match, apart from being due?
    pub fn finds(&self, event: &Event) -> bool {
        let waits = matches!(event.state, EventState::Waiting { .. });
        match self {
            Self::Route(source, route) => waits && event.source == *source && event.route == *route,
            Self::Receiver(source, route, parts) => {
                waits && event.source == *source && event.route == *route && parts.contains(&event.part)
            }
            Self::Leases => matches!(event.state, EventState::Running { .. }),
            Self::Orphans(known) => waits && !known.iter().any(|(s, r)| event.source == *s && event.route == *r),
        }
    }
}

/// The result of a [`DueQuery`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DueEvents {
    /// The due events, the longest waiting first.
    pub events: Vec<Event>,
    /// When the next event after these is due, if any.
    pub next: Option<Timestamp>,
}

/// All that the store knows of one event, for the API and the command line.
#[derive(Clone, PartialEq, Debug)]
pub struct EventDetails {
    /// The event.
    pub event: Event,
    /// Its identities.
    pub identities: Vec<MatchedBy>,
    /// The first few duplicates of it.
    pub sightings: Vec<DuplicateSighting>,
    /// How many duplicates there were.
    pub duplicates: u64,
    /// Attempts that ended.
    pub attempts: Vec<AttemptRecord>,
    /// The stored response.
    pub receipt: Option<Receipt>,
    /// Whether its body is still stored.
    pub has_body: bool,
    /// The event that holds its group's slot, while this one is parked.
    pub behind: Option<EventId>,
}

/// One duplicate that was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DuplicateSighting {
    /// When.
    pub at: Timestamp,
    /// The sender's id of it.
    pub delivery_id: Option<Arc<str>>,
    /// Which identity matched.
    pub same: MatchedBy,
}

/// A duplicate to be recorded with its event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DuplicateNote {
    /// The event.
    pub event: EventId,
    /// The duplicate.
    pub sighting: DuplicateSighting,
}

impl DuplicateNote {
    /// Records that `arriving` is a duplicate of this event.
    pub(crate) fn new(event: &Event, same: &MatchedBy, arriving: &NewEvent, at: Timestamp) -> Self {
        let delivery_id = arriving.event.delivery_id.clone();
        Self { event: event.id, sighting: DuplicateSighting { at, delivery_id, same: same.clone() } }
    }
}

/// The declared fields of one source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredFields {
    /// The source's name.
    pub source: Arc<str>,
    /// Its fields, each with whether an identity uses it.
    pub fields: Vec<(String, bool)>,
}

/// Is this the name of a built-in column of `events`?
#[cfg(feature = "node")]
pub(crate) fn is_event_column(name: &str) -> bool {
    #[cfg(feature = "durable-store")]
    return name == "body" || row::EVENT_COLUMNS.iter().any(|column| column.name == name);
    #[cfg(not(feature = "durable-store"))]
    {
        let _ = name;
        false
    }
}
