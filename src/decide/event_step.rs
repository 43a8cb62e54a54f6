//! The steps of an event's life: everything that moves an event from one state to another.
//!
//! ```text
//!              ┌──────── Settle (failed), HandBack, Expire, Park ─────────┐
//!              ▼                                                          │
//!   claim ─▶ waiting ───────────────────── Start ───────────────────▶ running
//!    │ │       │ ▲                                                    ▲   │
//!    │ └───────│─│───────────── Start, in the same write ─────────────┘   │
//!    │         │ └──── Rearm, Resume, PublishAgain, Replay ────┐          │
//!    │         │                                               │          │
//!    │         └─ Supersede, Record, Cancel, Damage ─▶ done or dead ◀─────┘ Settle, Expire, Supersede, Cancel, Damage
//!    │                                                    ▲  └─┘ Supersede, Damage
//!    └──────── nothing to do: recorded ───────────────────┘
//!
//!   still waiting: Park, Unpark (its group's slot is another's, is its own), Suspend, Unsuspend (its route is gone, is
//!                  back), Debounce, WaitForBudget, Accept
//!   still running: Renew, Resolve, Deploy, Accept, CancelRemote, Orphan
//! ```
//!
//! `Event::apply` is the only function that does so. It has no clock and no register: whether an event is still its
//! subject's current one, and whether its group's slot is free, is found out by the ledger, in the write itself.

use super::action_kind::ActionKind;
use super::event::{DeathCause, DoneReason, Event, EventState, QueueState, RetryOwner, SubjectChange, SucceededBlocks};
use super::id::{EventId, NodeId, QueueTurn};
use super::limits;
use super::outcome::Outcome;
use super::retry::{self, Jitter};
use super::source::{Debounce, InDoubtPolicy, Route, TimeoutAccounting, WhenBusy};
use super::time::{Duration, Timestamp};
use std::fmt;
use std::sync::Arc;

/// One step of an event's life.
#[derive(Clone, PartialEq, Debug)]
pub enum EventStep {
    /// A node begins an attempt.
    Start {
        /// How long it may act before it must renew.
        lasts: Duration,
        /// Which node.
        by: NodeId,
        /// As what kind of action.
        action: ActionKind,
    },
    /// The node is still acting, and its lease is prolonged.
    Renew {
        /// How much longer.
        lasts: Duration,
        /// The blocks that have succeeded so far.
        blocks: SucceededBlocks,
    },
    /// The node has looked up what the registry's tag points to, and begins the action. Its lease is prolonged.
    Resolve {
        /// The digest.
        digest: Arc<str>,
        /// How much longer.
        lasts: Duration,
    },
    /// The action has succeeded, and the health of what it deployed is checked from now on. If the node crashes, only
    /// the check is repeated. Its lease is prolonged.
    Deploy {
        /// The blocks that have succeeded.
        blocks: SucceededBlocks,
        /// How much longer.
        lasts: Duration,
    },
    /// The node stops before the attempt's first step: nothing has happened. Or it stops while the health of what the
    /// attempt deployed is checked: that is checked again.
    HandBack,
    /// The attempt has ended.
    Settle {
        /// With this outcome.
        outcome: Outcome,
        /// The blocks that have succeeded so far.
        blocks: SucceededBlocks,
        /// Randomises the delay of the next attempt.
        jitter: Jitter,
    },
    /// The lease expired: the same as an unknown outcome, unless an operator has cancelled the event.
    Expire {
        /// Randomises the delay of the next attempt.
        jitter: Jitter,
    },
    /// Its node, the only one there was, has exited. Where its action ended with the node, so does the lease.
    Orphan,
    /// Another event is its subject's current one.
    Supersede {
        /// That event.
        by: EventId,
    },
    /// A repeat of a dead event gives it another attempt.
    Rearm,
    /// A repeat takes a dead event over, whatever it died of, where its sender is the retrier. It is the same life, and
    /// so the same idempotency key. A gateway does this only to an event in doubt, under `respond = "done"` and
    /// `in_doubt = "retry"`: otherwise `hold` would mean nothing.
    Resume,
    /// A sender that waits for the end gets a 202 instead: from now on a node retries the event.
    Accept,
    /// A repeat of an event that was already published has it published once more, under a message id of its own. The
    /// worker, which knows the result of the first message, decides. No new life and no new turn.
    PublishAgain,
    /// An operator gives it another life.
    Replay,
    /// An operator ends it.
    Cancel,
    /// An operator ends it while another node runs it. That node loses its lease, and no other node gets the event or
    /// its slot before the lease would have ended.
    CancelRemote,
    /// The stored bytes are not those that were received. An event whose row cannot be read counts as dead of this as
    /// soon as it is read; this step writes it.
    Damage,
    /// There is nothing to do on its route any more: it is only recorded.
    Record,
    /// Another event holds its group's slot: it waits until the slot is handed to it. If it was about to start, it does
    /// not.
    Park,
    /// Its group's slot is handed to it: it is due.
    Unpark,
    /// Its route is gone; a node looks again later.
    Suspend {
        /// How much later.
        lasts: Duration,
    },
    /// Its route is back.
    Unsuspend,
    /// It waits for the end of a burst, which began with the first of its events.
    Debounce {
        /// How long ago the burst began.
        ago: Duration,
        /// How much longer it waits, unless another event of its subject replaces it first.
        lasts: Duration,
    },
    /// Its route's budget is used up for now.
    WaitForBudget {
        /// For how long.
        lasts: Duration,
    },
    /// Its route's budget is used up, and it is not to wait.
    DropOverBudget,
}

/// A step that the event's state does not allow: nothing is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidStepError;

impl fmt::Display for InvalidStepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the event's state does not allow this step")
    }
}

impl std::error::Error for InvalidStepError {}

impl Event {
    /// The event after this step, at its next revision, or [`InvalidStepError`].
    pub fn after(&self, step: EventStep, route: &Route, now: Timestamp) -> Result<Self, InvalidStepError> {
        let mut next = Self { revision: self.revision.next(), ..self.clone() };
        next.apply(step, route, now)?;
        Ok(next)
    }

    /// Applies a step within the write that is being made. Where the state does not allow it, nothing is changed.
    fn apply(&mut self, step: EventStep, route: &Route, now: Timestamp) -> Result<(), InvalidStepError> {
        match (step, self.state.clone()) {
            (EventStep::Start { lasts, by, action }, EventState::Waiting { due: Some(_) })
                if self.queue_state != QueueState::Suspended =>
            {
                self.queue_state = self.queue_state.at_start();
                self.attempt += 1;
                self.state = EventState::Running { until: now + lasts, by, action: Some(action) };
            }
            (EventStep::Renew { lasts, blocks }, EventState::Running { by, action, .. }) => {
                self.blocks = blocks;
                self.state = EventState::Running { until: now + lasts, by, action };
            }
            (EventStep::Resolve { digest, lasts }, EventState::Running { by, action, .. }) => {
                // What succeeded with another digest must be done again.
                if self.resolved.as_ref().is_some_and(|was| *was != digest) {
                    self.blocks = SucceededBlocks::default();
                }
                self.resolved = Some(digest);
                self.state = EventState::Running { until: now + lasts, by, action };
            }
            (EventStep::Deploy { blocks, lasts }, EventState::Running { by, action, .. }) => {
                self.blocks = blocks.with_acted();
                self.state = EventState::Running { until: now + lasts, by, action };
            }
            (EventStep::HandBack, EventState::Running { .. }) => {
                if !self.blocks.acted() {
                    self.take_attempt_back();
                }
                self.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Settle { outcome, blocks, jitter }, EventState::Running { .. }) => {
                self.blocks = blocks;
                self.settle(&outcome, jitter, route, now);
            }
            (EventStep::Expire { .. }, EventState::Running { until, by, .. }) if until <= now && by.is_nobody() => {
                self.state = EventState::Dead { cause: DeathCause::Cancelled, at: now };
            }
            (EventStep::Expire { jitter }, EventState::Running { until, .. }) if until <= now => {
                self.settle(&Outcome::Unknown { why: String::new() }, jitter, route, now);
            }
            (EventStep::Orphan, EventState::Running { until, by, action: Some(action) })
                if until > now && action.ends_with_its_node() =>
            {
                self.state = EventState::Running { until: now, by, action: Some(action) };
            }
            (
                EventStep::Supersede { by },
                EventState::Waiting { .. } | EventState::Running { .. } | EventState::Dead { .. },
            ) => {
                self.state = self.done_without(DoneReason::Superseded { by }, now);
            }
            (step @ (EventStep::Rearm | EventStep::Resume), EventState::Dead { cause, .. })
                if step == EventStep::Resume || cause.rearmable() =>
            {
                (self.queue_state, self.burst_since) = (QueueState::Queued, None);
                self.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Accept, EventState::Waiting { .. } | EventState::Running { .. })
                if self.retrier == RetryOwner::Sender =>
            {
                self.retrier = RetryOwner::Node;
            }
            (EventStep::PublishAgain, EventState::Done { at, .. } | EventState::Dead { at, .. })
                if self.may_publish_again() =>
            {
                self.published_again = Some(self.next_message(at));
                (self.doubts, self.queue_state) = (0, QueueState::Queued);
                self.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Replay, EventState::Done { .. } | EventState::Dead { .. }) => {
                self.life += 1;
                (self.published_again, self.burst_since) = (None, None);
                (self.attempt, self.doubts, self.failed_lookups) = (0, 0, 0);
                (self.blocks, self.queue_state) = (SucceededBlocks::default(), QueueState::Queued);
                self.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Cancel, EventState::Waiting { .. } | EventState::Running { .. }) => {
                self.state = EventState::Dead { cause: DeathCause::Cancelled, at: now };
            }
            (EventStep::CancelRemote, EventState::Running { until, action, .. }) => {
                self.state = EventState::Running { until, by: NodeId::unowned(), action };
            }
            (
                EventStep::Damage,
                EventState::Waiting { .. }
                | EventState::Running { .. }
                | EventState::Dead { cause: DeathCause::Damaged, .. },
            ) => {
                self.state = EventState::Dead { cause: DeathCause::Damaged, at: now };
            }
            (EventStep::Record, EventState::Waiting { due: Some(_) }) if self.queue_state != QueueState::Suspended => {
                self.state = self.done_without(DoneReason::Recorded, now);
            }
            (step, state) => self.apply_queue_step(step, state, now)?,
        }
        self.restore_first_end_time(now);
        Ok(())
    }

    /// Applies a step that changes only how the event waits.
    fn apply_queue_step(&mut self, step: EventStep, state: EventState, now: Timestamp) -> Result<(), InvalidStepError> {
        match (step, state) {
            (EventStep::Park, EventState::Waiting { .. } | EventState::Running { .. }) if self.wants_slot() => {
                self.take_attempt_back();
                self.state = EventState::Waiting { due: None };
            }
            (EventStep::Unpark, EventState::Waiting { due: None }) => {
                self.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Suspend { lasts }, EventState::Waiting { due: Some(_) }) => {
                (self.queue_state, self.burst_since) = (QueueState::Suspended, None);
                self.state = EventState::Waiting { due: Some(now + lasts) };
            }
            (EventStep::Unsuspend, EventState::Waiting { .. }) if self.queue_state == QueueState::Suspended => {
                self.queue_state = QueueState::Requeued;
                self.state = EventState::Waiting { due: Some(now) };
            }
            (EventStep::Debounce { ago, lasts }, EventState::Waiting { due: Some(_) }) if self.owed_first_attempt() => {
                (self.queue_state, self.burst_since) = (QueueState::Debouncing, Some(now - ago));
                self.state = EventState::Waiting { due: Some(now + lasts) };
            }
            (EventStep::WaitForBudget { lasts }, EventState::Waiting { due: Some(_) })
                if self.queue_state != QueueState::Suspended =>
            {
                self.queue_state = QueueState::OverBudget;
                self.state = EventState::Waiting { due: Some(now + lasts) };
            }
            (EventStep::DropOverBudget, EventState::Waiting { due: Some(_) }) => {
                self.state = EventState::Dead { cause: DeathCause::OverBudget, at: now };
            }
            _ => return Err(InvalidStepError),
        }
        Ok(())
    }

    /// Takes back the running attempt, if there is one: it has not taken its first step. A life without an attempt has
    /// no succeeded blocks.
    fn take_attempt_back(&mut self) {
        let EventState::Running { .. } = self.state else { return };
        self.attempt -= 1;
        if self.attempt == 0 {
            self.blocks = SucceededBlocks::default();
        }
    }

    /// Applies an attempt's outcome. `attempts` limits failures and our own timeouts. Lost attempts are counted
    /// separately, so that a crash is followed by another attempt even with `attempts = 1`, and a payload that kills
    /// its node still ends. So are attempts that ended before their action began: a registry that lags behind its own
    /// webhook is asked again even with `attempts = 1`.
    fn settle(&mut self, outcome: &Outcome, jitter: Jitter, route: &Route, now: Timestamp) {
        let dead = |cause| EventState::Dead { cause, at: now };
        let again = |count| EventState::Waiting { due: Some(now + retry::delay(&route.retry, count, jitter)) };
        let later = |count, asked: Option<Duration>| {
            let asked = asked.unwrap_or_default().min(limits::RETRY_AFTER_MAX);
            EventState::Waiting { due: Some(now + retry::delay(&route.retry, count, jitter).max(asked)) }
        };
        let before = self.published_again.map_or(0, |again| again.attempts_before);
        let failures = self.attempt.saturating_sub(before + self.doubts + self.failed_lookups);
        let (attempts, doubts_max) = (route.attempts(self.retrier), route.doubts_max(self.retrier));
        self.state = match outcome {
            Outcome::Delivered(_) => EventState::Done { how: DoneReason::Acted, at: now },
            Outcome::Rejected { .. } => dead(DeathCause::Rejected),
            Outcome::Unhealthy { .. } => dead(DeathCause::Unhealthy),
            Outcome::Failed { .. } if failures >= attempts => dead(DeathCause::Failed),
            Outcome::Failed { retry_after, .. } => later(failures, *retry_after),
            Outcome::Unresolved { retry_after, .. } => {
                self.failed_lookups += 1;
                let lookups_max = attempts.max(limits::FAILED_LOOKUPS_MIN);
                let last = self.failed_lookups >= lookups_max;
                if last { dead(DeathCause::Failed) } else { later(self.failed_lookups, *retry_after) }
            }
            Outcome::TimedOut { .. } if route.timeouts == TimeoutAccounting::Attempts => {
                let last = route.in_doubt == InDoubtPolicy::Hold || failures >= attempts;
                if last { dead(route.in_doubt.cause()) } else { again(failures) }
            }
            Outcome::Unknown { .. } | Outcome::TimedOut { .. } => {
                self.doubts += 1;
                // An action that has succeeded leaves no doubt: only its health is checked again.
                let doubts_max = if self.blocks.acted() { doubts_max.max(limits::DOUBTS_MIN) } else { doubts_max };
                if self.doubts < doubts_max { again(self.doubts) } else { dead(route.in_doubt.cause()) }
            }
        };
    }

    /// The new event as its claim writes it: by the store's clock, at the end of its group's queue.
    pub(super) fn at_claim(mut self, turn: QueueTurn, now: Timestamp) -> Self {
        self.state = self.state.shifted(self.received_at, now);
        self.turn = turn;
        self
    }

    /// Starts a new event in the write that claims it, which saves a second write. An event with nothing to do stays
    /// recorded.
    pub fn start_at_claim(&mut self, lasts: Duration, by: NodeId, action: ActionKind) {
        let now = self.received_at;
        self.apply(EventStep::Start { lasts, by, action }, &Route::default(), now).ok();
    }

    /// Parks the event in the write that is being made: another event holds its group's slot.
    pub(super) fn park(mut self, now: Timestamp) -> Self {
        self.apply(EventStep::Park, &Route::default(), now).expect("an event that wants its slot can wait for it");
        self
    }

    /// The event ended as superseded by the claim or replay of `by`. Only one that waits ends at once, and only if it is
    /// not owed its first attempt, or if `by` takes the same route and replaces what waits there; any other ends when it
    /// comes up.
    pub fn supersede(&self, by: &Self, when_busy: WhenBusy, now: Timestamp) -> Option<Self> {
        let waits = matches!(self.state, EventState::Waiting { .. });
        let ends = waits && (!self.owed_first_attempt() || (when_busy.replaces() && self.has_route_of(by)));
        if ends { self.after(EventStep::Supersede { by: by.id }, &Route::default(), now).ok() } else { None }
    }

    /// The new event as it waits for the end of its burst, in the write that claims it. `since` is the beginning of the
    /// burst, if it is not the first of it.
    pub(super) fn debounced(mut self, debounce: Debounce, since: Option<Timestamp>, now: Timestamp) -> Self {
        let ago = since.map_or(Duration::ZERO, |since| now.since(since));
        let lasts = debounce.quiet.min(debounce.max.saturating_sub(ago));
        self.apply(EventStep::Debounce { ago, lasts }, &Route::default(), now).ok();
        self
    }

    /// The event with its subject's order as a repeat has moved it forward. The revision stays: the node that runs the
    /// event must not lose its next write to a repeat.
    pub(super) fn with_order(mut self, order: Option<i64>) -> Self {
        self.change = self.change.map(|change| SubjectChange { order, ..change });
        self
    }
}
