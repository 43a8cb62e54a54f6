//! An event: its four states, what it remembers of its life, and the questions that its row alone can answer. The steps
//! between the states are in `event_step.rs`.

pub use super::event_step::{EventStep, InvalidStepError};
pub use super::outcome::{Outcome, Receipt};

use super::action_kind::ActionKind;
use super::field::StoredFields;
use super::id::{Digest, EventId, Key, NodeId, QueueTurn, Revision};
use super::notification::NotificationKind;
use super::republish::RepublishState;
use super::time::Timestamp;
use std::sync::Arc;

/// The hot row of something that happened and is to be acted on once. Body, receipt and output have rows of their own.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Its id, from which its idempotency key is made.
    pub id: EventId,
    /// The number of its last write; every write names the revision that it replaces.
    pub revision: Revision,
    /// The source it came through, by name.
    pub source: Arc<str>,
    /// The route it takes, by name. What runs is that route as it is configured now.
    pub route: Arc<str>,
    /// Which of its route's receivers it is for; 0 where there is only one.
    pub part: u16,
    /// The sender's id of the delivery that created it.
    pub delivery_id: Option<Arc<str>>,
    /// The declared fields that were present.
    pub fields: StoredFields,
    /// When it was claimed.
    pub received_at: Timestamp,
    /// Its state.
    pub state: EventState,
    /// Which life this is: 1, and one more for each replay.
    pub life: u32,
    /// Attempts begun in this life.
    pub attempt: u32,
    /// Attempts of this life whose outcome is unknown.
    pub doubts: u32,
    /// Attempts of this life that ended before their action began, because the registry did not say what to deploy.
    pub failed_lookups: u32,
    /// Which blocks of its command have succeeded in this life.
    pub blocks: SucceededBlocks,
    /// Its position in its group's queue, as far as its first attempt is concerned.
    pub queue_state: QueueState,
    /// Which side tries it again when it fails.
    pub retrier: RetryOwner,
    /// The group whose events must not overlap.
    pub group: Option<Key>,
    /// Its place in that group's queue.
    pub turn: QueueTurn,
    /// The change of a subject that it is, if it is one.
    pub change: Option<SubjectChange>,
    /// The messages of this life that were published after the first one, if there are any.
    pub published_again: Option<RepublishState>,
    /// When the first event of the burst arrived that this one ended, where its route debounces.
    pub burst_since: Option<Timestamp>,
    /// The digest that the registry's tag pointed to when the last attempt looked it up.
    pub resolved: Option<Arc<str>>,
    /// What made it, if it was no delivery.
    pub origin: Option<Origin>,
    /// The notifications of its ends, the oldest first.
    pub notifications: Vec<EventId>,
    /// Digest of the body.
    pub body_digest: Digest,
    /// Digest of everything that never changes; see [`Event::immutable_digest`].
    pub digest: Digest,
}

/// What made an event that no delivery made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// A deploy turned out to be unhealthy, and the last good one is deployed again.
    Rollback {
        /// The event that was unhealthy.
        from: EventId,
        /// The event that was last good: its fields, its digest and its body are used.
        to: EventId,
    },
    /// An event has ended, and people are told.
    Notification {
        /// The event that ended.
        of: EventId,
        /// What they are told about it.
        kind: NotificationKind,
    },
}

/// The blocks of a `run` action that have succeeded, as bits. One more bit says that the whole action has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SucceededBlocks(pub u64);

/// The bit of the whole action.
const ACTED: usize = 63;

impl SucceededBlocks {
    /// Whether the whole action has succeeded, and only its health is still to be checked.
    pub fn acted(self) -> bool {
        self.has(ACTED)
    }

    /// These blocks, and the whole action.
    #[must_use]
    pub fn with_acted(self) -> Self {
        self.with(ACTED)
    }

    /// Whether this block has succeeded.
    pub fn has(self, block: usize) -> bool {
        self.0 >> block & 1 == 1
    }

    /// These blocks and this one.
    #[must_use]
    pub fn with(self, block: usize) -> Self {
        Self(self.0 | 1 << block)
    }
}

/// The change of a subject: to which value, and where in the sender's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubjectChange {
    /// The subject's register: one per `change.of`.
    pub subject: Key,
    /// What it was changed to: the digest of `change.to`.
    pub value: Digest,
    /// Its place in the sender's order.
    pub order: Option<i64>,
}

impl SubjectChange {
    /// The change that each event of a queue is where `when_busy = "replace"` and its source names no subject: the
    /// queue is the subject, and every event is another value of it.
    pub fn of_queue(queue: Key, event: EventId) -> Self {
        Self { subject: queue, value: Digest::of(&event.0), order: None }
    }
}

/// The four states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventState {
    /// To be started when due. Without a time it is parked until its group's slot is handed to it.
    Waiting {
        /// When it may start.
        due: Option<Timestamp>,
    },
    /// One node alone may act on it.
    Running {
        /// Until when, by the store's clock.
        until: Timestamp,
        /// Which node.
        by: NodeId,
        /// The kind of action that the attempt was started as; `None` if an older version wrote the row.
        action: Option<ActionKind>,
    },
    /// Ended successfully.
    Done {
        /// In which way.
        how: DoneReason,
        /// Since when.
        at: Timestamp,
    },
    /// Ended without success: a dead letter.
    Dead {
        /// Why.
        cause: DeathCause,
        /// Since when.
        at: Timestamp,
    },
}

/// The reason why an event is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DoneReason {
    /// Its action succeeded.
    Acted,
    /// It has no action: it was only recorded.
    Recorded,
    /// Another event changed its subject before it could be tried again.
    Superseded {
        /// That event.
        by: EventId,
    },
}

/// The reason why an event is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeathCause {
    /// It failed as often as it may.
    Failed,
    /// It was rejected: another attempt would not succeed.
    Rejected,
    /// It may have acted; its outcome is unknown.
    InDoubt,
    /// The stored bytes are not those that were received.
    Damaged,
    /// An operator cancelled it.
    Cancelled,
    /// Its route had no budget left for it.
    OverBudget,
    /// It acted, and what it deployed is not healthy.
    Unhealthy,
}

/// Where an event is in its group's queue, as far as its first attempt is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueState {
    /// It is in the queue.
    Queued,
    /// Its route is gone: it waits without its slot, and other events pass it.
    Suspended,
    /// Its route is back, or its budget has room again. It is in the queue again, but other events may have overtaken
    /// it.
    Requeued,
    /// It waits for the end of a burst, without its slot.
    Debouncing,
    /// It waits for its route's budget, without its slot.
    OverBudget,
}

impl QueueState {
    /// Whether a waiting event in this state holds no place in its group's queue.
    pub fn is_aside(self) -> bool {
        matches!(self, Self::Suspended | Self::Debouncing | Self::OverBudget)
    }

    /// The state of an event that starts: others may have passed one that waited for its budget.
    pub(super) fn at_start(self) -> Self {
        match self {
            Self::Debouncing => Self::Queued,
            Self::OverBudget => Self::Requeued,
            Self::Queued | Self::Suspended | Self::Requeued => self,
        }
    }
}

/// The side that must retry an event that failed: its sender or a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryOwner {
    /// The sender, which waits for the end (`respond = "done"`) and has not got a 202.
    Sender,
    /// A node: the sender got a 202 and does not send it again.
    Node,
}

impl EventState {
    /// The state's name.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Running { .. } => "running",
            Self::Done { .. } => "done",
            Self::Dead { .. } => "dead",
        }
    }

    /// When it ended, if it has.
    pub fn ended(&self) -> Option<Timestamp> {
        match self {
            Self::Done { at, .. } | Self::Dead { at, .. } => Some(*at),
            Self::Waiting { .. } | Self::Running { .. } => None,
        }
    }

    /// When a node must look at it: when it is due, or when its lease ends.
    pub fn wake_at(&self) -> Option<Timestamp> {
        match self {
            Self::Waiting { due } => *due,
            Self::Running { until, .. } => Some(*until),
            Self::Done { .. } | Self::Dead { .. } => None,
        }
    }

    /// The same state on a clock that shows `theirs` when ours shows `ours`.
    #[must_use]
    pub fn shifted(self, ours: Timestamp, theirs: Timestamp) -> Self {
        match self {
            Self::Waiting { due } => Self::Waiting { due: due.map(|t| t.shifted(ours, theirs)) },
            Self::Running { until, by, action } => Self::Running { until: until.shifted(ours, theirs), by, action },
            Self::Done { how, at } => Self::Done { how, at: at.shifted(ours, theirs) },
            Self::Dead { cause, at } => Self::Dead { cause, at: at.shifted(ours, theirs) },
        }
    }
}

impl DoneReason {
    /// The reason's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Acted => "acted",
            Self::Recorded => "recorded",
            Self::Superseded { .. } => "superseded",
        }
    }
}

impl DeathCause {
    /// The cause's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::InDoubt => "in_doubt",
            Self::Damaged => "damaged",
            Self::Cancelled => "cancelled",
            Self::OverBudget => "over_budget",
            Self::Unhealthy => "unhealthy",
        }
    }

    /// All causes.
    pub const ALL: [Self; 7] = [
        Self::Failed,
        Self::Rejected,
        Self::InDoubt,
        Self::Damaged,
        Self::Cancelled,
        Self::OverBudget,
        Self::Unhealthy,
    ];

    /// The cause with this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.word() == word)
    }

    /// Whether a repeat re-arms it. An event in doubt or damaged is left to an operator: otherwise `hold` would mean
    /// nothing.
    pub fn rearmable(self) -> bool {
        matches!(self, Self::Failed | Self::Rejected)
    }
}

impl Event {
    /// The step by which an operator cancels it from a process that does not run it. `is_over` says whether a lease
    /// that ends at the given time is over.
    pub fn cancelled_from_outside(&self, is_over: impl Fn(Timestamp) -> bool) -> EventStep {
        match self.state {
            EventState::Running { until, .. } if !is_over(until) => EventStep::CancelRemote,
            _ => EventStep::Cancel,
        }
    }

    /// Whether an operator cancelled it while a node was running it.
    pub fn is_called_off(&self) -> bool {
        matches!(&self.state, EventState::Running { by, .. } if by.is_nobody())
    }

    /// Whether it deploys its subject's last good event again.
    pub fn is_rollback(&self) -> bool {
        matches!(self.origin, Some(Origin::Rollback { .. }))
    }

    /// The id of the event that deploys its subject's last good event again, if this one ends as unhealthy.
    pub fn rollback_id(&self) -> EventId {
        crate::decide::identity::key::follow_up(self, "rollback")
    }

    /// Whether it ended without success.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, EventState::Dead { .. })
    }

    /// Whether an operator cancelled it.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.state, EventState::Dead { cause: DeathCause::Cancelled, .. })
    }

    /// Whether the only write between this event and `current` was the one for the sender's 202. Then the node that
    /// runs it continues: no other node has it.
    pub fn was_only_accepted(&self, current: &Self) -> bool {
        (self.retrier, current.retrier) == (RetryOwner::Sender, RetryOwner::Node)
            && current.revision == self.revision.next()
    }

    /// Whether this node is running it.
    pub fn is_running_on(&self, node: &NodeId) -> bool {
        matches!(&self.state, EventState::Running { by, .. } if by == node)
    }

    /// Whether it needs its group's slot, to run or to wait for its turn.
    pub fn wants_slot(&self) -> bool {
        match self.state {
            EventState::Waiting { .. } => !self.queue_state.is_aside(),
            EventState::Running { .. } => true,
            EventState::Done { .. } | EventState::Dead { .. } => false,
        }
    }

    /// Whether its first attempt is still owed to it. Unless its route says `when_busy = "replace"`, that one always
    /// runs, in its turn. After it, or once others have passed it, the event must still be its subject's current one.
    pub fn owed_first_attempt(&self) -> bool {
        self.attempt == 0 && matches!(self.queue_state, QueueState::Queued | QueueState::Debouncing)
    }

    /// Whether it takes the same route as another event, to the same receiver.
    pub(super) fn has_route_of(&self, other: &Self) -> bool {
        (&self.source, &self.route, self.part) == (&other.source, &other.route, other.part)
    }

    /// Whether the subject that it changes is only its queue ([`SubjectChange::of_queue`]).
    pub fn has_queue_as_subject(&self) -> bool {
        self.change.is_some_and(|change| change.value == Digest::of(&self.id.0))
    }

    /// The change that its source names; `None` where the subject is only its queue.
    pub fn explicit_change(&self) -> Option<SubjectChange> {
        self.change.filter(|_| !self.has_queue_as_subject())
    }

    /// Whether its counters are consistent. No step leads to inconsistent counters: a bit was flipped in the store.
    pub fn has_consistent_counts(&self) -> bool {
        let counts = (self.blocks, self.doubts, self.failed_lookups);
        self.attempt > 0 || counts == (SucceededBlocks::default(), 0, 0)
    }

    /// The digest of everything that never changes. It is compared with `digest` before acting: a flipped bit in the
    /// store must not run the wrong thing.
    pub fn immutable_digest(&self) -> Digest {
        crate::decide::identity::key::seal(self)
    }
}
