//! An event: its four states, what it remembers of its life, and the questions that its row alone can answer. How it gets
//! from one state to the next is in `event_step.rs`.

pub use super::event_step::{EventStep, InvalidStepError};
pub use super::outcome::{Outcome, Receipt};

use super::action_kind::ActionKind;
use super::field::Fields;
use super::id::{Digest, EventId, Key, Node, QueueTurn, Revision};
use super::republish::RepublishState;
use super::time::Timestamp;
use std::sync::Arc;

/// The hot row of what happened and is to be acted on once. Body, receipt and output have rows of their own.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Its id, from which its idempotency key is made.
    pub id: EventId,
    /// The number of its last write: every write names the one it replaces.
    pub revision: Revision,
    /// The source it came through, by name.
    pub source: Arc<str>,
    /// The route it takes, by name: what runs is that route as configured now.
    pub route: Arc<str>,
    /// Which of its route's receivers it is for; 0 where there is one.
    pub part: u16,
    /// The sender's id of the delivery that made it.
    pub delivery_id: Option<Arc<str>>,
    /// The declared fields that were there.
    pub fields: Fields,
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
    /// Which blocks of its command have succeeded in this life.
    pub blocks: SucceededBlocks,
    /// Whether the queue still owes it a first attempt.
    pub queue_state: QueueState,
    /// Which side tries it again when it fails.
    pub retrier: Retrier,
    /// The group it must not overlap with.
    pub group: Option<Key>,
    /// Its place in that group's queue.
    pub turn: QueueTurn,
    /// The change of a subject that it is, if it is one.
    pub change: Option<SubjectChange>,
    /// The messages of this life that were published after the first one, if there are any.
    pub published_again: Option<RepublishState>,
    /// Digest of the body.
    pub body_digest: Digest,
    /// Digest of all that never changes by itself; see [`Event::immutable_digest`].
    pub digest: Digest,
}

/// The blocks of a command that have succeeded, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SucceededBlocks(pub u64);

impl SucceededBlocks {
    /// Has this block succeeded?
    pub fn has(self, block: usize) -> bool {
        self.0 >> block & 1 == 1
    }

    /// These, and this one.
    #[must_use]
    pub fn with(self, block: usize) -> Self {
        Self(self.0 | 1 << block)
    }
}

/// What a subject was changed to, in whose order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubjectChange {
    /// The register: one per `change.of`.
    pub subject: Key,
    /// What it was changed to: the digest of `change.to`.
    pub value: Digest,
    /// Its place in the sender's order.
    pub order: Option<i64>,
}

/// The four states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventState {
    /// To be started when due; with no time, parked until its group's slot is handed to it.
    Waiting {
        /// When it may start.
        due: Option<Timestamp>,
    },
    /// One node alone may act on it.
    Running {
        /// Until when, by the store's clock.
        until: Timestamp,
        /// Which node.
        by: Node,
        /// What the attempt was begun as; `None` where a version wrote it that did not say so.
        action: Option<ActionKind>,
    },
    /// It is over, and well.
    Done {
        /// In what way.
        how: DoneReason,
        /// Since when.
        at: Timestamp,
    },
    /// It is over and did not succeed: a dead letter.
    Dead {
        /// Why.
        cause: DeathCause,
        /// Since when.
        at: Timestamp,
    },
}

/// In what way an event was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DoneReason {
    /// Its action said so.
    Acted,
    /// It has no action: it was only written down.
    Recorded,
    /// Another event changed its subject before it could be tried again.
    Superseded {
        /// That event.
        by: EventId,
    },
}

/// Why an event is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeathCause {
    /// It failed as often as it may.
    Failed,
    /// It never will succeed.
    Rejected,
    /// It may have acted; its outcome is unknown.
    InDoubt,
    /// What is stored is not what was received.
    Damaged,
    /// A person ended it.
    Cancelled,
}

/// Whether a group's queue still owes an event its first attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueState {
    /// It is in the queue.
    Queued,
    /// Its route is gone: it waits without its slot, and others pass it.
    Suspended,
    /// Its route came back. It is in the queue again, but what passed it may have overtaken it.
    Requeued,
}

/// The side that tries an event again when it fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retrier {
    /// The sender, which waits for the end (`respond = "done"`) and has not been answered 202.
    Sender,
    /// A node: the sender was answered 202, and does not send it again.
    Node,
}

impl EventState {
    /// The state's own word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Running { .. } => "running",
            Self::Done { .. } => "done",
            Self::Dead { .. } => "dead",
        }
    }

    /// Since when it is over, if it is.
    pub fn ended(&self) -> Option<Timestamp> {
        match self {
            Self::Done { at, .. } | Self::Dead { at, .. } => Some(*at),
            Self::Waiting { .. } | Self::Running { .. } => None,
        }
    }

    /// When a node must look at it: it is due, or its lease ends.
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
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Acted => "acted",
            Self::Recorded => "recorded",
            Self::Superseded { .. } => "superseded",
        }
    }
}

impl DeathCause {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::InDoubt => "in_doubt",
            Self::Damaged => "damaged",
            Self::Cancelled => "cancelled",
        }
    }

    /// Each of them.
    pub const ALL: [Self; 5] = [Self::Failed, Self::Rejected, Self::InDoubt, Self::Damaged, Self::Cancelled];

    /// The cause of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.word() == word)
    }

    /// May a repeat bring it back? What is in doubt or damaged is left to a person: else `hold` would mean nothing.
    pub fn rearmable(self) -> bool {
        matches!(self, Self::Failed | Self::Rejected)
    }
}

impl Event {
    /// The step by which a person cancels it from a process that does not run it; `is_over` says whether a lease until then
    /// is over.
    pub fn cancelled_from_outside(&self, is_over: impl Fn(Timestamp) -> bool) -> EventStep {
        match self.state {
            EventState::Running { until, .. } if !is_over(until) => EventStep::CancelRemote,
            _ => EventStep::Cancel,
        }
    }

    /// Has a person ended it while a node was at it?
    pub fn is_called_off(&self) -> bool {
        matches!(&self.state, EventState::Running { by, .. } if by.is_nobody())
    }

    /// Is it over, and not done?
    pub fn is_dead(&self) -> bool {
        matches!(self.state, EventState::Dead { .. })
    }

    /// Has a person ended it?
    pub fn is_cancelled(&self) -> bool {
        matches!(self.state, EventState::Dead { cause: DeathCause::Cancelled, .. })
    }

    /// Was the only write since then, which led to `current`, that the sender was answered 202? Then the node that runs it
    /// goes on: no other has it.
    pub fn was_only_accepted(&self, current: &Self) -> bool {
        (self.retrier, current.retrier) == (Retrier::Sender, Retrier::Node) && current.revision == self.revision.next()
    }

    /// Its node, while it runs.
    pub fn is_running_on(&self, node: &Node) -> bool {
        matches!(&self.state, EventState::Running { by, .. } if by == node)
    }

    /// Does it need its group's slot, to run or to wait for its turn?
    pub fn wants_slot(&self) -> bool {
        self.state.ended().is_none() && self.queue_state != QueueState::Suspended
    }

    /// Is its first attempt still owed to it? That one always runs, in its turn. After it, or once others have passed it,
    /// the event must still be its subject's current one.
    pub fn owed_first_attempt(&self) -> bool {
        self.attempt == 0 && self.queue_state == QueueState::Queued
    }

    /// Whether its counts fit each other. No step leads to an event whose counts do not: a bit of it was flipped.
    pub fn has_consistent_counts(&self) -> bool {
        self.attempt > 0 || (self.blocks == SucceededBlocks::default() && self.doubts == 0)
    }

    /// The digest of what never changes by itself. Compared with `digest` before acting: a flipped bit in the store
    /// must not run the wrong thing.
    pub fn immutable_digest(&self) -> Digest {
        crate::decide::identity::key::seal(self)
    }
}
