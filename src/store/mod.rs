//! The store: keys, registers, slots and events, and no policy. What `decide` worked out is written here, all of it
//! or nothing, and is durable when the call returns.
//!
//! | trait | for | implemented |
//! |---|---|---|
//! | [`StoreBackend`] | the engine: clock, payloads, notes, health | by each store |
//! | [`Store`] | the engine: what the rules decide | by memory and SQLite over a [`ledger::Ledger`]; for PostgreSQL and Redis by [`optimistic`] |
//! | [`Administer`] | operators: what the rules decide | the same |
//! | [`Inspect`] | operators and set-up: what is read, and what no rule decides | by each store |
//!
//! A new store begins by making [`conformance`] green. One that decides one event after another, such as memory and
//! SQLite, implements all four; one that many nodes write at once implements [`optimistic::VersionedBackend`] in place
//! of the two that the rules decide.

pub mod batch;
pub mod clock;
pub mod clock_monitor;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) mod compression;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod copy;
pub mod inspect;
pub mod memory;
pub mod open;
pub mod optimistic;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod retention;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) mod row;
pub mod schema;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod start_due;
pub mod status_text;
pub mod url;

pub use crate::decide::expiry_clock::ClockSnapshot;
pub use crate::decide::ledger::{
    self, AdvanceResult, ForgetCounts, ImportCounts, KnownDuplicate, RemovalResult, RetentionPolicies,
};
pub use inspect::{Administer, EventCounts, EventPage, EventQuery, Inspect};
pub use open::open;
pub use retention::{SourceCount, SourceRetention};
pub use retention::{SweepError, SweepPace};
pub use sql::{SqlPermit, SqlPermitFuture};
pub use start_due::{StartDueRequest, StartDueResult};

use crate::decide::claim::{Claim, MatchedBy, NewEvent, Payload};
use crate::decide::event::{Event, EventState, Outcome, Receipt};
use crate::decide::expiry_clock::ExpiryStatus;
use crate::decide::id::EventId;
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

/// What a store answers, later. Stores are chosen at run time, so the future is boxed.
pub type StoreFuture<'a, T, E = StoreError> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// What a store does for the engine without deciding anything: its clock, payloads, receipts, notes, hints and health.
/// Each store implements it directly.
pub trait StoreBackend: Send + Sync + 'static {
    /// The store's clock.
    fn clock(&self) -> &StoreClock;

    /// The store's time, for leases and for the order of things: it never runs backwards.
    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// The end, by the store's clock, of a lease that was written as ending then: later, for a while after a server's
    /// clock was set forward, so that its holder can renew it.
    fn lease_end(&self, until: Timestamp) -> Timestamp {
        self.clock().lease_end(until)
    }

    /// Is a lease over that was written as ending then?
    fn is_lease_over(&self, until: Timestamp) -> bool {
        self.lease_end(until) <= self.now()
    }

    /// The time of this machine's wall clock, wherever it was set: the age of a signature is measured by it.
    fn wall_time(&self) -> Timestamp {
        self.clock().wall_time()
    }

    /// The time by which events expire, for claims, look-ups and the sweep alike, and what it waits for.
    fn expiry(&self) -> ExpiryStatus {
        self.clock().expiry()
    }

    /// Headers and body, compared with the event's digest.
    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>>;

    /// The kept answer.
    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>>;

    /// Starts what is due, many events in one write: those whose own row decides that they start. Nodes that do the
    /// same at the same time get other events. A store that one node writes can do it
    /// [by steps](StartDueRequest::by_steps).
    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult>;

    /// Notes sightings of duplicates. Not durable: written with the next batch.
    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()>;

    /// Lays a message that can never become an event into quarantine. Durable when it returns; the same message of the
    /// same source again changes nothing.
    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()>;

    /// How long each source's events are kept, as the nodes that have the source wrote it, in the order of the names.
    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>>;

    /// Writes this for these sources, in place of what was there. Rows of other sources stay.
    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()>;

    /// The pace of the sweep.
    fn sweep_pace(&self) -> SweepPace {
        SweepPace::default()
    }

    /// Waits for a permit to run a statement: there are few.
    fn sql_permit(&self) -> SqlPermitFuture<'_> {
        SqlPermit::anywhere()
    }

    /// Finds out whether the store can be written. What it keeps is the same afterwards.
    fn probe(&self, _: WriteProbe) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Holds a sentence once the store has stopped for good. Most never do.
    fn failed(&self) -> watch::Receiver<Option<String>> {
        watch::Sender::new(None).subscribe()
    }

    /// What other nodes write, where the store can tell. A hint may be missed: only a look at the store is certain.
    fn hints(&self) -> Option<broadcast::Receiver<ChangeHint>> {
        None
    }
}

/// What the engine asks of a store and the rules decide. A store that one node writes implements it over a
/// [ledger](ledger::Ledger); one that many nodes write has it through [`optimistic::VersionedBackend`].
pub trait Store: StoreBackend {
    /// Claims each of these, as if one after another: all of one event or nothing of it. Durable when it returns,
    /// and idempotent by event id, so that after a lost answer the same claim is simply made again.
    fn claim(&self, batch: Vec<Arc<NewEvent>>) -> StoreFuture<'_, Vec<Claim>>;

    /// Writes these changes: each swaps revision n-1 for n, or is lost.
    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>>;

    /// Writes one change and runs a statement, in this order and in one transaction of their own: both or neither. For
    /// stores that are databases; the config lets no other come here.
    fn advance_with_sql<'a>(
        &'a self,
        _: Transition,
        _: BoundStatement,
        _: &'a SqlPermit,
    ) -> StoreFuture<'a, SqlOutcome> {
        let why = "this store runs no statements".to_owned();
        Box::pin(std::future::ready(Ok(SqlOutcome::Refused(Outcome::Rejected { why, receipt: None }))))
    }

    /// The hot row alone.
    fn get(&self, id: EventId) -> StoreFuture<'_, Option<Event>>;

    /// What a repeat would be told if it were claimed now, where that claim would write nothing. Read beside the
    /// claims, which are spared it. `None`: only a claim can tell, and a store that always says so is right.
    fn find_duplicate(&self, _new: &NewEvent, _needs: DuplicateLookup) -> StoreFuture<'_, Option<KnownDuplicate>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// What must be looked at now, oldest first. One route's backlog never hides another's.
    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents>;

    /// Frees the space of what may be forgotten of these sources, a little at a time: at most `limit` events. Nothing
    /// freed means that nothing was left, also beside others who forget the same.
    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError>;

    /// How many events the sweep would forget if a jump of the clock that is waited for counted now: at most `limit`.
    fn would_forget(&self, _: Arc<RetentionPolicies>, _limit: usize) -> StoreFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// Reads the clock of the store's server, where it has one, writes down what the nodes should know of it, and reads
    /// what other nodes wrote. Each node does so once a second.
    fn look_at_clock(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How many batches of claims, and as many of changes, it takes at once. A store that writes one after another
    /// anyway takes one: the next forms meanwhile.
    fn batches_at_once(&self) -> usize {
        1
    }
}

/// How it is found out whether a store can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteProbe {
    /// By looking, where that tells and costs nothing.
    Look,
    /// By writing as much as a body of usual size takes, and taking it back: after a write has failed.
    Write,
}

/// Something that another node has written. It may come late, twice or not at all.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum ChangeHint {
    /// An event of this source waits on this route.
    Due {
        /// The source.
        source: Arc<str>,
        /// The route.
        route: Arc<str>,
    },
    /// This event is over.
    Ended(EventId),
    /// More than fits into a hint.
    Missed,
}

/// What came of a change with a statement.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum SqlOutcome {
    /// Both are written, or somebody else wrote first and neither is.
    Advanced(AdvanceResult),
    /// Others got in the way of the statement, in these words; it may work at once. Neither is written.
    Again(String),
    /// The statement could not run, and neither is written: this is what the attempt came to.
    Refused(Outcome),
}

/// What a store brings, or why it does not.
#[cfg(feature = "redis")]
type StoreResult<T> = Result<T, StoreError>;

/// Why a store did not answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was written; it may work later.
    Down(String),
    /// It may have been written: the same claim, or a look at the event, tells.
    Unsure(String),
    /// Going on would do harm.
    Broken(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(why) => write!(f, "the store is out of reach: {why}"),
            Self::Unsure(why) => write!(f, "the store did not say whether it wrote: {why}"),
            Self::Broken(why) => write!(f, "the store is broken: {why}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// Why a store could not be opened, in sentences for people.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreOpenError {
    /// It may work later: nothing answers, or it is too busy.
    Temporary(String),
    /// Somebody must do something first.
    Permanent(String),
}

impl fmt::Display for StoreOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Temporary(why) | Self::Permanent(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StoreOpenError {}

/// Something that was stored and may not be there any more, or not as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredValue<T> {
    /// As it was written.
    Whole(T),
    /// Not as it was written.
    Damaged,
    /// No longer kept.
    Forgotten,
}

/// What a repeat is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DuplicateLookup {
    /// How things stand with its event.
    Standing,
    /// That, and the kept answer of one that is over.
    Receipt,
}

impl DuplicateLookup {
    /// Is the kept answer of this event needed? One that goes on may have an answer too, of a try that failed.
    fn receipt_of(self, event: &Event) -> bool {
        self == Self::Receipt && event.state.ended().is_some()
    }
}

/// Where to look for what is due.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DueQuery {
    /// Among the waiting events of this source and route.
    Route(Arc<str>, Arc<str>),
    /// The same, but only what is for these of the route's receivers: one that is down does not hide the others'.
    Receiver(Arc<str>, Arc<str>, RangeInclusive<u16>),
    /// Among the running ones, for leases that have ended.
    Leases,
    /// Among the waiting ones of any other source and route than these.
    Orphans(Arc<[(Arc<str>, Arc<str>)]>),
}

impl DueQuery {
    /// Is this event looked for here?
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

/// What must be looked at now.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DueEvents {
    /// These, the one that waits longest first.
    pub events: Vec<Event>,
    /// When the next one after these will be, if any.
    pub next: Option<Timestamp>,
}

/// All that is known of one event, for people.
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
    /// The kept answer.
    pub receipt: Option<Receipt>,
    /// Whether its body is still there.
    pub has_body: bool,
    /// Who holds its group's slot, while it is parked.
    pub behind: Option<EventId>,
}

/// A duplicate that was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DuplicateSighting {
    /// When.
    pub at: Timestamp,
    /// The sender's id of it.
    pub delivery_id: Option<Arc<str>>,
    /// Which identity matched.
    pub same: MatchedBy,
}

/// Something to be noted beside an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DuplicateNote {
    /// The event.
    pub event: EventId,
    /// A duplicate of it.
    pub sighting: DuplicateSighting,
}

impl DuplicateNote {
    /// A note that `arriving` repeats this event.
    pub(crate) fn new(event: &Event, same: &MatchedBy, arriving: &NewEvent, at: Timestamp) -> Self {
        let delivery_id = arriving.event.delivery_id.clone();
        Self { event: event.id, sighting: DuplicateSighting { at, delivery_id, same: same.clone() } }
    }
}

/// The fields of one source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredFields {
    /// The source's name.
    pub source: Arc<str>,
    /// Its fields, and whether an identity is made of them.
    pub fields: Vec<(String, bool)>,
}

/// Is this the name of a column that the table of events has of its own?
#[cfg(feature = "node")]
pub(crate) fn is_event_column(name: &str) -> bool {
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    return name == "body" || row::EVENT_COLUMNS.iter().any(|column| column.name == name);
    #[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "redis")))]
    {
        let _ = name;
        false
    }
}
