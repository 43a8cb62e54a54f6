//! An event's life: its four states and every rule that leads from one to the next.
//!
//! ```text
//!               ┌────────────── Settle(failed), HandBack, Expire ──────────────┐
//!               ▼                                                              │
//!   claim ─▶ waiting ──────────────── Start ───────────────────────────▶ running ◀─┐ Renew, CallOff, Accept, Orphan
//!     │       │ ▲ ▲                                                     │   │      └─┘
//!     │       │ │ └── Rearm, Resume, PublishAgain (a repeat), ──────┐   │   │
//!     │       │ │     Replay (a person)                             │   │   │
//!     │       │ └──── SetAside, Rejoin (its route is gone, is back) │   │   │
//!     │       │                                                     │   │   │
//!     │       └─ Supersede, Cancel, Damage ─▶ done or dead ─────────┘   │   │
//!     └──────── nothing to do: recorded ────▶ done ◀── Settle(delivered)┘   │
//!                                             dead ◀── Settle, Expire, …  ──┘
//! ```
//!
//! `after` is the only way from one state to another. It owns no clock and no register: whether an event is still
//! its subject's current one is asked by the store, in the write itself (see `transition.rs`).

pub use super::blocks::SucceededBlocks;

use super::action_kind::ActionKind;
use super::field::Fields;
use super::id::{Digest, EventId, Key, Node, QueueTurn, Revision};
use super::limits;
use super::republish::RepublishState;
use super::retry::{self, Jitter};
use super::source::{InDoubtPolicy, Route, TimeoutAccounting};
use super::time::{Duration, Timestamp};
use std::fmt;
use std::sync::Arc;

/// What happened, and is to be acted on once: the hot row. Body, receipt and output live elsewhere.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Its name, and what sinks get as idempotency key.
    pub id: EventId,
    /// How many writes made it what it is.
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
    /// Where it stands.
    pub state: EventState,
    /// Which life this is: 1, and one more for each replay.
    pub life: u32,
    /// Attempts begun in this life.
    pub attempt: u32,
    /// Attempts of this life whose outcome nobody told.
    pub doubts: u32,
    /// Which blocks of its command have succeeded in this life.
    pub blocks: SucceededBlocks,
    /// Whether the queue still owes it a first attempt.
    pub queue_state: QueueState,
    /// Who tries it again when it fails.
    pub retrier: Retrier,
    /// The group it must not overlap with.
    pub group: Option<Key>,
    /// Its place in that group's queue.
    pub turn: QueueTurn,
    /// The change it stands for.
    pub change: Option<SubjectChange>,
    /// The messages of this life that were published after the first one, if there are any.
    pub published_again: Option<RepublishState>,
    /// Digest of the body.
    pub body_digest: Digest,
    /// Digest of all that never changes by itself; see [`Event::immutable_digest`].
    pub digest: Digest,
}

/// What a subject was changed to, in whose order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubjectChange {
    /// The register: one per `change.of`.
    pub subject: Key,
    /// What it was changed to: the digest of `change.to`.
    pub value: Digest,
    /// Where it stands in the sender's order.
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
    /// It is over, and somebody should look.
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
    /// It may have acted, and nobody knows.
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

/// Who tries an event again when it fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retrier {
    /// The sender, which waits for the end (`respond = "done"`) and has not been told 202.
    Sender,
    /// A node: the sender was told 202, and does not come again.
    Node,
}

/// What an attempt came to. Not a `Result`: an unknown is an answer.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It acted.
    Delivered(Option<Receipt>),
    /// It did not act, and may later.
    Failed {
        /// In a sentence.
        why: String,
        /// The receiver asked for this much time.
        retry_after: Option<Duration>,
        /// What the receiver answered.
        receipt: Option<Receipt>,
    },
    /// It never will.
    Rejected {
        /// In a sentence.
        why: String,
        /// What the receiver answered.
        receipt: Option<Receipt>,
    },
    /// It may have acted, and its end was lost: a crash, a lost lease, a drain, a connection that broke after sending.
    /// Counted as a doubt.
    Unknown {
        /// In a sentence.
        why: String,
    },
    /// It may have acted, and our own timeout ended it. Counted against `attempts`.
    TimedOut {
        /// In a sentence.
        why: String,
        /// The receiver said that it acted, but the rest of its answer did not come in time.
        answered: Option<Receipt>,
    },
}

impl Outcome {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Delivered(_) => "delivered",
            Self::Failed { .. } => "failed",
            Self::Rejected { .. } => "rejected",
            Self::Unknown { .. } | Self::TimedOut { .. } => "unknown",
        }
    }

    /// The sentence behind it, where there is one.
    pub fn why(&self) -> &str {
        match self {
            Self::Delivered(_) => "",
            Self::Failed { why, .. }
            | Self::Rejected { why, .. }
            | Self::Unknown { why }
            | Self::TimedOut { why, .. } => why,
        }
    }

    /// What was answered, if anything was.
    pub fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Delivered(receipt) | Self::Failed { receipt, .. } | Self::Rejected { receipt, .. } => {
                receipt.as_ref()
            }
            Self::Unknown { .. } | Self::TimedOut { .. } => None,
        }
    }
}

/// What the action answered; kept, and given again to duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The HTTP status.
    pub status: u16,
    /// Headers that may be given again.
    pub headers: Vec<(String, String)>,
    /// The body, up to the limit.
    pub body: Vec<u8>,
    /// The body was longer than the limit and is not whole.
    pub truncated: bool,
}

impl Receipt {
    /// Does it say that the receiver acted?
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// What is to happen to an event next.
#[derive(Clone, PartialEq, Debug)]
pub enum EventStep {
    /// A node begins an attempt.
    Start {
        /// How long it may act before it must renew.
        lasts: Duration,
        /// Which node.
        by: Node,
        /// As what kind of action.
        action: ActionKind,
    },
    /// The node is still at it.
    Renew {
        /// How much longer.
        lasts: Duration,
        /// The blocks that have succeeded so far.
        blocks: SucceededBlocks,
    },
    /// The node stops before the attempt's first step: nothing has happened.
    HandBack,
    /// The attempt came to something.
    Settle {
        /// To what.
        outcome: Outcome,
        /// The blocks that have succeeded so far.
        blocks: SucceededBlocks,
        /// Spreads the next attempt.
        jitter: Jitter,
    },
    /// The lease ran out: the same as an unknown outcome, unless a person has called it off.
    Expire {
        /// Spreads the next attempt.
        jitter: Jitter,
    },
    /// Its node, the only one there was, has ended. Where its action ended with it, so does the lease.
    Orphan,
    /// Another event is its subject's current one.
    Supersede {
        /// That event.
        by: EventId,
    },
    /// A repeat of a dead event gives it another attempt.
    Rearm,
    /// Where whoever asks is the retrier, the next to ask takes it over, whatever it died of: the same life, and so the
    /// same idempotency key. A gateway does this only to what is in doubt, under `respond = "done"` and
    /// `in_doubt = "retry"`: else `hold` would mean nothing.
    Resume,
    /// A sender that waits for the end is told 202 instead: from now on a node tries it again.
    Accept,
    /// A repeat of an event that was already published has it published once more, under a message id of its own: the
    /// worker, which knows what became of it, decides. No new life and no new turn.
    PublishAgain,
    /// A person gives it another life.
    Replay,
    /// A person ends it.
    Cancel,
    /// A person ends it while another node is at it: that node loses its lease, and nobody else gets anything of the
    /// event's before the lease would have been over.
    CancelRemote,
    /// What is stored is not what was received.
    Damage,
    /// There is nothing to do on its route any more: it is only recorded.
    Record,
    /// Its route is gone; look again later.
    Suspend {
        /// How much later.
        lasts: Duration,
    },
    /// Its route is back.
    Unsuspend,
}

/// A step that the state does not allow: nothing is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidStepError;

impl fmt::Display for InvalidStepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the event's state does not allow this step")
    }
}

impl std::error::Error for InvalidStepError {}

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

    /// When somebody must look at it: it is due, or its lease ends.
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
    /// The event after this step, at its next revision, or [`InvalidStepError`].
    pub fn after(&self, step: EventStep, route: &Route, now: Timestamp) -> Result<Self, InvalidStepError> {
        let mut next = Self { revision: self.revision.next(), ..self.clone() };
        match (step, &self.state) {
            (EventStep::Start { lasts, by, action }, EventState::Waiting { due: Some(_) })
                if self.queue_state != QueueState::Suspended =>
            {
                next.attempt += 1;
                next.state = EventState::Running { until: now + lasts, by, action: Some(action) };
            }
            (EventStep::Renew { lasts, blocks }, EventState::Running { by, action, .. }) => {
                next.blocks = blocks;
                next.state = EventState::Running { until: now + lasts, by: by.clone(), action: *action };
            }
            (EventStep::HandBack, EventState::Running { .. }) => {
                // It is handed back before its first step: a life without an attempt has no blocks that succeeded.
                next.attempt -= 1;
                if next.attempt == 0 {
                    next.blocks = SucceededBlocks::default();
                }
                next.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Settle { outcome, blocks, jitter }, EventState::Running { .. }) => {
                next.blocks = blocks;
                next.settle(&outcome, jitter, route, now);
            }
            (EventStep::Expire { .. }, EventState::Running { until, by, .. }) if *until <= now && by.is_nobody() => {
                next.state = EventState::Dead { cause: DeathCause::Cancelled, at: now };
            }
            (EventStep::Expire { jitter }, EventState::Running { until, .. }) if *until <= now => {
                next.settle(&Outcome::Unknown { why: String::new() }, jitter, route, now);
            }
            (EventStep::Orphan, EventState::Running { until, by, action: Some(action) })
                if *until > now && action.ends_with_its_node() =>
            {
                next.state = EventState::Running { until: now, by: by.clone(), action: Some(*action) };
            }
            (
                EventStep::Supersede { by },
                EventState::Waiting { .. } | EventState::Running { .. } | EventState::Dead { .. },
            ) => {
                next.state = self.done_without(DoneReason::Superseded { by }, now);
            }
            (step @ (EventStep::Rearm | EventStep::Resume), EventState::Dead { cause, .. })
                if step == EventStep::Resume || cause.rearmable() =>
            {
                next.queue_state = QueueState::Queued;
                next.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Accept, EventState::Waiting { .. } | EventState::Running { .. })
                if self.retrier == Retrier::Sender =>
            {
                next.retrier = Retrier::Node;
            }
            (EventStep::PublishAgain, EventState::Done { at, .. } | EventState::Dead { at, .. })
                if self.may_publish_again() =>
            {
                next.published_again = Some(self.next_message(*at));
                (next.doubts, next.queue_state) = (0, QueueState::Queued);
                next.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Replay, EventState::Done { .. } | EventState::Dead { .. }) => {
                next.life += 1;
                next.published_again = None;
                (next.attempt, next.doubts, next.blocks, next.queue_state) =
                    (0, 0, SucceededBlocks::default(), QueueState::Queued);
                next.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Cancel, EventState::Waiting { .. } | EventState::Running { .. }) => {
                next.state = EventState::Dead { cause: DeathCause::Cancelled, at: now };
            }
            (EventStep::CancelRemote, EventState::Running { until, action, .. }) => {
                next.state = EventState::Running { until: *until, by: Node::unowned(), action: *action };
            }
            (EventStep::Damage, EventState::Waiting { .. } | EventState::Running { .. }) => {
                next.state = EventState::Dead { cause: DeathCause::Damaged, at: now };
            }
            (EventStep::Record, EventState::Waiting { due: Some(_) }) if self.queue_state != QueueState::Suspended => {
                next.state = self.done_without(DoneReason::Recorded, now);
            }
            (EventStep::Suspend { lasts }, EventState::Waiting { due: Some(_) }) => {
                next.queue_state = QueueState::Suspended;
                next.state = EventState::Waiting { due: Some(now + lasts) };
            }
            (EventStep::Unsuspend, EventState::Waiting { .. }) if self.queue_state == QueueState::Suspended => {
                next.queue_state = QueueState::Requeued;
                next.state = EventState::Waiting { due: Some(now) };
            }
            _ => return Err(InvalidStepError),
        }
        next.restore_first_end_time(now);
        Ok(next)
    }

    /// `attempts` limits what failed and what our own timeout ended. What was lost is counted apart, so that a crash is
    /// followed by another attempt even with `attempts = 1`, and a payload that kills its node still ends.
    fn settle(&mut self, outcome: &Outcome, jitter: Jitter, route: &Route, now: Timestamp) {
        let dead = |cause| EventState::Dead { cause, at: now };
        let again = |count| EventState::Waiting { due: Some(now + retry::delay(&route.retry, count, jitter)) };
        let before = self.published_again.map_or(0, |again| again.attempts_before);
        let failures = self.attempt.saturating_sub(before + self.doubts);
        let (attempts, doubts_max) = (route.attempts(self.retrier), route.doubts_max(self.retrier));
        self.state = match outcome {
            Outcome::Delivered(_) => EventState::Done { how: DoneReason::Acted, at: now },
            Outcome::Rejected { .. } => dead(DeathCause::Rejected),
            Outcome::Failed { .. } if failures >= attempts => dead(DeathCause::Failed),
            Outcome::Failed { retry_after, .. } => {
                let wait = retry::delay(&route.retry, failures, jitter);
                let asked = retry_after.unwrap_or_default().min(limits::RETRY_AFTER_MAX);
                EventState::Waiting { due: Some(now + wait.max(asked)) }
            }
            Outcome::TimedOut { .. } if route.timeouts == TimeoutAccounting::Attempts => {
                let last = route.in_doubt == InDoubtPolicy::Hold || failures >= attempts;
                if last { dead(route.in_doubt.cause()) } else { again(failures) }
            }
            Outcome::Unknown { .. } | Outcome::TimedOut { .. } => {
                self.doubts += 1;
                if self.doubts < doubts_max { again(self.doubts) } else { dead(route.in_doubt.cause()) }
            }
        };
    }

    /// The same new event, claimed by a node that begins at once: one write less than claiming and starting it.
    #[must_use]
    pub fn start_at_claim(mut self, lasts: Duration, by: Node, action: ActionKind) -> Self {
        self.attempt = 1;
        self.state = EventState::Running { until: self.received_at + lasts, by, action: Some(action) };
        self
    }

    /// How a person ends it from outside of whoever may be at it; `is_over` knows whether a lease until then is over.
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

    /// Is all that was written since that the sender was told 202? Then whoever runs it goes on: nobody else has it.
    pub fn was_only_accepted(&self, stands: &Self) -> bool {
        (self.retrier, stands.retrier) == (Retrier::Sender, Retrier::Node) && stands.revision == self.revision.next()
    }

    /// Its node, while it runs.
    pub fn is_running_on(&self, node: &Node) -> bool {
        matches!(&self.state, EventState::Running { by, .. } if by == node)
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
