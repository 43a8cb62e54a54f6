//! The store: keys, registers, slots and events, and no policy. What `decide` worked out is written here, all of it
//! or nothing, and is durable when the call returns.
//!
//! A new store begins by making `conformance` green. One that decides one event after another, such as memory and
//! SQLite, only has to be a [`ledger::Ledger`]; one that many nodes write at once, only a [`optimistic::VersionedBackend`].

pub mod batch;
pub mod clock;
pub mod clock_monitor;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) mod compression;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod copy;
pub mod inspect;
pub mod ledger;
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
mod sought;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod start_due;
pub mod status_text;
pub mod url;

pub use inspect::{EventCounts, EventPage, EventQuery};
pub use open::open;
pub use retention::{RetentionPolicies, SourceCount, SourceRetention};
pub use retention::{SweepError, SweepPace};
pub use sql::{SqlPermit, SqlPermitFuture};
pub use start_due::{StartDueRequest, StartDueResult};

use crate::decide::claim::{Claim, MatchRelation, MatchedBy, NewEvent, Payload};
use crate::decide::data_loss::{KnownStore, ObservedStore};
use crate::decide::event::{Event, EventState, Outcome, Receipt};
use crate::decide::expiry_clock::{ExpiryStatus, ExpiryTime};
use crate::decide::id::{EventId, Key};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::Timestamp;
use crate::decide::transition::{AttemptRecord, Transition};
use inspect::QuarantinedMessage;
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// What a store answers, later. Stores are chosen at run time, so the future is boxed.
pub type StoreFuture<'a, T, E = StoreError> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Where events are kept.
pub trait Store: Send + Sync + 'static {
    /// Claims each of these, as if one after another: all of one event or nothing of it. Durable when it returns,
    /// and idempotent by event id, so that after a lost answer the same claim is simply made again.
    fn claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<Claim>>;

    /// Writes these changes: each swaps revision n-1 for n, or is lost.
    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>>;

    /// Waits for a place to run a statement: there are few.
    fn sql_permit(&self) -> SqlPermitFuture<'_> {
        SqlPermit::anywhere()
    }

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

    /// Headers and body, compared with the event's digest.
    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>>;

    /// The kept answer.
    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>>;

    /// What a repeat would be told if it were claimed now, where that claim would write nothing. Read beside the
    /// claims, which are spared it. `None`: only a claim can tell, and a store that always says so is right.
    fn find_duplicate(&self, _new: &NewEvent, _needs: DuplicateLookup) -> StoreFuture<'_, Option<KnownDuplicate>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// What must be looked at now, oldest first. One route's backlog never hides another's.
    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents>;

    /// Starts what is due, many events in one write: those whose own row decides that they start. Others who do the
    /// same at the same time get other events.
    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        Box::pin(starts.by_steps(self))
    }

    /// Events for people, newest first.
    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>>;

    /// The same, a page at a time, looking through a bounded number of events. Unless a store knows better, it lists
    /// by what it can and the rest is looked for here.
    fn page(&self, listing: EventQuery) -> StoreFuture<'_, EventPage> {
        Box::pin(listing.page(self))
    }

    /// How many events there are.
    fn counts(&self) -> StoreFuture<'_, EventCounts> {
        EventCounts::listed(self)
    }

    /// All that is known of one event, for people.
    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>>;

    /// The events of this name: an id, a suffix of one, or a delivery id. At most `limit`.
    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>>;

    /// The events that a person means by this name. A whole id means its event alone, whatever senders call theirs.
    fn resolve(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        Box::pin(async move {
            let whole = match name.parse() {
                Ok(id) => self.get(id).await?,
                Err(_) => None,
            };
            match whole {
                Some(event) => Ok(vec![event]),
                None => self.find_by_name(name, limit).await,
            }
        })
    }

    /// Notes sightings of duplicates. Not durable: written with the next batch.
    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()>;

    /// Frees the space of what may be forgotten of these sources, a little at a time: at most `limit` events. Nothing
    /// freed means that nothing was left, also beside others who forget the same.
    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError>;

    /// How fast it is swept.
    fn sweep_pace(&self) -> SweepPace {
        SweepPace::default()
    }

    /// Forgets one event now, with all its keys, because a person says so: the same delivery then acts again. Only
    /// what is over can be forgotten; a register whose current event it was goes with it.
    fn remove(&self, id: EventId) -> StoreFuture<'_, RemovalResult>;

    /// The same for several, each for itself.
    fn remove_all(&self, ids: Vec<EventId>) -> StoreFuture<'_, Vec<RemovalResult>> {
        Box::pin(async move {
            let mut removals = Vec::with_capacity(ids.len());
            for id in ids {
                removals.push(self.remove(id).await?);
            }
            Ok(removals)
        })
    }

    /// How long each source's events are kept, as the nodes that have the source wrote it, in the order of the names.
    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>>;

    /// Writes this for these sources, in place of what was there. Rows of other sources stay.
    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()>;

    /// How many events there are of each source but these, in the order of the names. At most
    /// [`OTHER_SOURCES_MAX`](crate::decide::limits::OTHER_SOURCES_MAX) sources.
    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>>;

    /// What each scope's identities were made of, when a node last said so.
    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>>;

    /// Remembers these instead.
    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()>;

    /// Remembers for ever that these were done before there was this store. Doing it again changes nothing.
    fn import(&self, keys: Vec<Key>) -> StoreFuture<'_, ImportCounts>;

    /// What each of these would come to if it were claimed now, alone. Writes nothing.
    fn preview_claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<Claim>>;

    /// Lays a message that can never become an event into quarantine. Durable when it returns; the same message of the
    /// same source again changes nothing.
    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()>;

    /// What lies there, the newest first: at most `limit`.
    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>>;

    /// Makes the fields that sources declare columns by their name, in stores that have columns. Says which of them
    /// cannot be.
    fn declare(&self, _: Vec<DeclaredFields>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Finds out whether it can be written. What it keeps is the same afterwards.
    fn probe(&self, _: WriteProbe) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How many batches of claims, and as many of changes, it takes at once. One that writes one after another
    /// anyway takes one: the next forms meanwhile.
    fn batches_at_once(&self) -> usize {
        1
    }

    /// Holds a sentence once the store has stopped for good. Most never do.
    fn failed(&self) -> watch::Receiver<Option<String>> {
        watch::Sender::new(None).subscribe()
    }

    /// What this process knows of the store's history, for its state file. It may leave a mark in the store first.
    /// `None`: it has written nothing yet, or the store needs no fence.
    fn known(&self) -> StoreFuture<'_, Option<KnownStore>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Begins to guard against lost data: compares the store with what earlier processes knew of it, and leaves a first
    /// mark in it. From then on a server that lacks any of this is not used.
    fn begin_fence(&self, _: Vec<KnownStore>) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What the store holds of what is known of it; with nothing known, how far its history goes. `None`: the store
    /// needs no fence.
    fn compare_history(&self, _: Option<KnownStore>) -> StoreFuture<'_, Option<ObservedStore>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The store's clock, for leases and for the order of things: it never runs backwards.
    fn now(&self) -> Timestamp;

    /// When a lease ends, by the store's clock, that was written as ending then: later, for a while after a server's clock
    /// was set forward, so that whoever holds it can renew it.
    fn lease_end(&self, until: Timestamp) -> Timestamp {
        until
    }

    /// Is a lease over that was written as ending then?
    fn is_lease_over(&self, until: Timestamp) -> bool {
        self.lease_end(until) <= self.now()
    }

    /// Looks at the clock of the store's server, where it has one, writes down what the nodes should know of it, and hears
    /// what others wrote. Each node does so once a second.
    fn look_at_clock(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What this machine's clock on the wall shows, wherever it was set: the age of a signature is measured by it.
    fn wall_time(&self) -> Timestamp {
        self.now()
    }

    /// The time by which events expire, for claims, look-ups and the sweep alike, and what it waits for.
    fn expiry(&self) -> ExpiryStatus {
        ExpiryStatus { time: ExpiryTime(self.now()), waiting: None }
    }

    /// Takes the clock for right as it is, because a person says so: what it has jumped counts from now on.
    fn confirm_time(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How many events the sweep would forget if a jump of the clock that is waited for counted now: at most `limit`.
    fn would_forget(&self, _: Arc<RetentionPolicies>, _limit: usize) -> StoreFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// What other nodes write, where the store can tell. Who hears nothing still looks: that is the truth.
    fn hints(&self) -> Option<broadcast::Receiver<ChangeHint>> {
        None
    }
}

/// The times that count at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockSnapshot {
    /// The store's clock.
    pub now: Timestamp,
    /// The time by which events expire.
    pub expiry: ExpiryTime,
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

/// What came of a change.
#[derive(Clone, PartialEq, Debug)]
pub enum AdvanceResult {
    /// It is written.
    Written {
        /// As it was written: it may have been parked, or superseded instead.
        event: Box<Event>,
        /// The store's clock.
        now: Timestamp,
    },
    /// Somebody else wrote first.
    Lost,
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

/// What a repeat is told: what [`Claim::Duplicate`] has, and the kept answer.
#[derive(Clone, PartialEq, Debug)]
pub struct KnownDuplicate {
    /// The event; it is not dead, unless it stands in the place of another.
    pub event: Box<Event>,
    /// Which identity matched.
    pub same: MatchedBy,
    /// Whether that event is the one that matched, and whether it is still its subject's current one.
    pub stands: MatchRelation,
    /// Its kept answer, where it is needed and there is one.
    pub receipt: Option<Receipt>,
    /// The store's clock.
    pub now: Timestamp,
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

/// The fields of one source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredFields {
    /// The source's name.
    pub source: Arc<str>,
    /// Its fields, and whether an identity is made of them.
    pub fields: Vec<(String, bool)>,
}

/// How much was imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportCounts {
    /// Keys that were not there.
    pub new: u64,
    /// Keys that were.
    pub known: u64,
}

/// What came of removing one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovalResult {
    /// It is gone, and so are its keys.
    Removed,
    /// It waits or runs, and stays.
    NotOver,
    /// There is no such event.
    Unknown,
}

/// How much was forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForgetCounts {
    /// Events with their keys.
    pub events: u64,
    /// Bodies with receipts and output.
    pub bodies: u64,
}
