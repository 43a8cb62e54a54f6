//! A step as it is written: the event after it, and what the store must check in the same write.
//!
//! The store knows keys, registers and slots but no policy. So the policy is applied here, for both cases: what to
//! write, and what to write instead if another event has changed the subject meanwhile.

use super::claim::{NewEvent, Payload};
use super::event::{DoneReason, Event, EventState, EventStep, InvalidStepError, Outcome, Receipt};
use super::id::{EventId, Key};
use super::identity::key;
use super::limits;
use super::notification::NotificationTarget;
use super::retry::Jitter;
use super::source::{AttemptBudget, BudgetScope, InDoubtPolicy, OnUnhealthy, Route, WhenBusy};
use super::time::Timestamp;
use std::sync::Arc;

/// One write to one event: revision n-1 is replaced by n.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The event after the step.
    pub event: Event,
    /// The time for which the step was computed; every time in `event` is written as the store's clock + (time - now).
    pub now: Timestamp,
    /// Written instead when the event is no longer its subject's current one.
    pub if_superseded: Option<Event>,
    /// What the write does to the event's position in its queue and register.
    pub place: QueuePositionUpdate,
    /// The record of the attempt that this step ends.
    pub attempt: Option<AttemptRecord>,
    /// What happens to the stored response.
    pub receipt: ReceiptUpdate,
    /// The body of the delivery that re-armed it, or had it published again.
    pub payload: Option<Payload>,
    /// What happens to headers that were kept only to be passed on, if this write ends the event.
    pub passed: TransientHeadersUpdate,
    /// What becomes of the waiting events of its subject, if this write makes it the current one.
    pub when_busy: WhenBusy,
    /// The budget that this write must have room in, if it begins an attempt.
    pub budget: Option<BudgetCheck>,
    /// Where the attempt is no longer counted, if this write ends it before its action began.
    pub refund: Option<Key>,
    /// Written instead when the subject has already deployed what the event resolved to.
    pub if_deployed: Option<Event>,
    /// Written instead of that, with the record of the attempt, when the registry may only lag behind: it is asked again.
    pub if_unmoved: Option<Box<(Event, AttemptRecord)>>,
    /// Whether the subject's last good event is deployed again, if this write ends the event as unhealthy.
    pub on_unhealthy: OnUnhealthy,
    /// Who is told about it, if this write ends the event.
    pub notify: Arc<[NotificationTarget]>,
}

/// The budget in which an attempt must have room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetCheck {
    /// Where its attempts are counted.
    pub key: Key,
    /// Its limits.
    pub budget: AttemptBudget,
    /// The attempt is counted, but begins in any case: an operator asked for it, or what runs is not healthy.
    pub exempt: bool,
}

/// What a write that ends an event does to the headers that were kept only to be passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransientHeadersUpdate {
    /// They are removed.
    Drop,
    /// There are none: the writer has seen the payload, and the store need not look.
    None,
}

/// The change of an event's position in its group's queue and in its register, as part of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePositionUpdate {
    /// Nothing.
    Unchanged,
    /// It moves to the end of its group's queue.
    MoveToEnd,
    /// The same, and it becomes its subject's current event: an operator's replay.
    BecomeCurrent,
    /// Nothing, but it must still be its subject's current event: otherwise nothing is written.
    RequireCurrent,
}

/// What a write does to the stored response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceiptUpdate {
    /// Nothing.
    Unchanged,
    /// An attempt has ended: this is its response, if it has one. The response of an earlier attempt is removed.
    Replace(Option<Receipt>),
}

impl ReceiptUpdate {
    /// The response that it writes, if it writes one.
    pub fn written(&self) -> Option<&Receipt> {
        match self {
            Self::Replace(receipt) => receipt.as_ref(),
            Self::Unchanged => None,
        }
    }
}

/// The record of an ended attempt, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptRecord {
    /// The life it belongs to.
    pub life: u32,
    /// Its number in that life.
    pub attempt: u32,
    /// When it began, by the store's clock.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The outcome's name.
    pub outcome: String,
    /// The reason, as a sentence.
    pub why: String,
    /// Its output, head and tail.
    pub output: Vec<u8>,
}

/// A placeholder for the event that the register names, which the store fills in.
const CURRENT_EVENT: EventId = EventId([0; 16]);

impl Event {
    /// This step, ready to be written.
    pub fn transition(&self, step: EventStep, route: &Route, now: Timestamp) -> Result<Transition, InvalidStepError> {
        let place = match step {
            EventStep::Rearm | EventStep::Resume if self.has_queue_as_subject() => QueuePositionUpdate::BecomeCurrent,
            EventStep::Rearm | EventStep::Resume => QueuePositionUpdate::MoveToEnd,
            EventStep::Replay => QueuePositionUpdate::BecomeCurrent,
            EventStep::PublishAgain if !self.has_queue_as_subject() => QueuePositionUpdate::RequireCurrent,
            _ => QueuePositionUpdate::Unchanged,
        };
        let asks = match &step {
            EventStep::Start { .. } => !self.owed_first_attempt() || route.when_busy.replaces(),
            EventStep::Unsuspend => !self.owed_first_attempt(),
            EventStep::Settle { outcome: Outcome::Delivered(_) | Outcome::Unhealthy { .. }, .. } => false,
            EventStep::Settle { .. } | EventStep::Expire { .. } => true,
            EventStep::Rearm | EventStep::Resume => !self.has_queue_as_subject(),
            _ => false,
        };
        // What is published again stands for itself, whatever is newer in its queue.
        let asks = asks && !(self.published_again.is_some() && self.has_queue_as_subject());
        let budget = match &step {
            // To check its health again costs nothing.
            EventStep::Start { .. } if !self.blocks.acted() => route.budget.map(|budget| self.budget_check(budget)),
            _ => None,
        };
        // An attempt that ends before its action began has cost nothing.
        let refund = match &step {
            EventStep::Resolve { .. } | EventStep::Settle { outcome: Outcome::Unresolved { .. }, .. } => {
                route.budget.map(|budget| self.budget_check(budget).key)
            }
            _ => None,
        };
        // An operator's replay always runs.
        let looks = matches!(step, EventStep::Resolve { .. }) && self.life == 1;
        let receipt = match &step {
            EventStep::Settle { outcome, .. } => ReceiptUpdate::Replace(outcome.receipt().cloned()),
            EventStep::Expire { .. } => ReceiptUpdate::Replace(None),
            _ => ReceiptUpdate::Unchanged,
        };
        let attempt = match (&step, &self.state) {
            (EventStep::Expire { .. }, EventState::Running { until, .. }) => {
                Some(self.lost_attempt_record(route, *until, now))
            }
            _ => None,
        };
        let if_unmoved = if looks { self.asked_again(route, now)?.map(Box::new) } else { None };
        let event = self.after(step, route, now)?;
        let overtaken = match (asks, self.change) {
            (true, Some(_)) => Some(self.after(EventStep::Supersede { by: CURRENT_EVENT }, route, now)?),
            _ => None,
        };
        let if_deployed = if looks {
            let ended = self.after(EventStep::Supersede { by: CURRENT_EVENT }, route, now)?;
            Some(Self { resolved: event.resolved.clone(), ..ended })
        } else {
            None
        };
        Ok(Transition {
            event,
            now,
            if_superseded: overtaken,
            place,
            attempt,
            receipt,
            payload: None,
            passed: TransientHeadersUpdate::Drop,
            when_busy: route.when_busy,
            budget,
            refund,
            if_deployed,
            if_unmoved,
            on_unhealthy: route.on_unhealthy,
            notify: route.notify.clone(),
        })
    }

    /// The budget in which its next attempt must have room.
    fn budget_check(&self, budget: AttemptBudget) -> BudgetCheck {
        let key = key::budget(&self.source, &self.route, self.group.filter(|_| budget.per == BudgetScope::Group));
        let is_replay = self.life > 1 && self.attempt == 0;
        BudgetCheck { key, budget, exempt: is_replay || self.is_rollback() }
    }

    /// A start that depends only on the event's own row: the event is owed its first attempt or is no change of a
    /// subject, so no register is read; it is due and in its group's queue, so it has the slot; its route has no budget;
    /// and it is neither a roll-back, which may be outdated, nor a summary, which gets its count as it starts. `None`:
    /// this needs an ordinary step.
    pub fn start_alone(&self, start: &EventStep, route: &Route, now: Timestamp) -> Option<Transition> {
        let change = self.transition(start.clone(), route, now).ok()?;
        let is_complete = !self.is_summary() || self.attempt > 0;
        let alone = change.if_superseded.is_none() && change.budget.is_none() && !self.queue_state.is_aside();
        let alone = alone && is_complete && !self.is_rollback();
        (matches!(start, EventStep::Start { .. }) && alone).then_some(change)
    }

    /// The record of an attempt whose lease expired. Nothing is known of it except when its lease was last renewed.
    fn lost_attempt_record(&self, route: &Route, until: Timestamp, now: Timestamp) -> AttemptRecord {
        let why = match route.in_doubt {
            _ if self.is_called_off() => "it was cancelled while a node was running it",
            _ if self.blocks.acted() => "its lease ran out while the health of what it deployed was checked",
            InDoubtPolicy::Never => "its lease ran out: nothing was written",
            InDoubtPolicy::Retry | InDoubtPolicy::Hold => "its lease ran out: it may have acted",
        };
        self.attempt_record(&Outcome::Unknown { why: why.into() }, until - route.lease, now)
    }

    /// The event as it waits to ask the registry again, which may lag behind its own webhook, and the record of the attempt
    /// that ends with that. `None` if it was asked often enough.
    fn asked_again(&self, route: &Route, now: Timestamp) -> Result<Option<(Self, AttemptRecord)>, InvalidStepError> {
        let EventState::Running { until, .. } = self.state else { return Err(InvalidStepError) };
        if self.failed_lookups >= limits::UNMOVED_LOOKUPS {
            return Ok(None);
        }
        let why = "the registry still has what is deployed already; it may lag behind its own webhook".to_owned();
        let outcome = Outcome::Unresolved { why, retry_after: Some(route.retry.first.min(limits::UNMOVED_WAIT)) };
        let record = self.attempt_record(&outcome, until - route.lease, now);
        let settle = EventStep::Settle { outcome, blocks: self.blocks, jitter: Jitter(0) };
        Ok(Some((self.after(settle, route, now)?, record)))
    }

    /// The record of its running attempt, of which there is no output.
    fn attempt_record(&self, outcome: &Outcome, started_at: Timestamp, ended_at: Timestamp) -> AttemptRecord {
        AttemptRecord {
            life: self.life,
            attempt: self.attempt,
            started_at,
            ended_at,
            outcome: outcome.word().into(),
            why: outcome.why().into(),
            output: Vec::new(),
        }
    }

    /// The transition of a repeat that re-arms the event, with the body that has just arrived, if that has the same
    /// route and changes the same subject to the same value: under a signed id a sender may send anything, and an event
    /// never runs another one's body. If it is superseded instead, it ends with the body it had.
    pub fn rearm(&self, arriving: &NewEvent, route: &Route, now: Timestamp) -> Result<Transition, InvalidStepError> {
        self.transition_with_payload(EventStep::Rearm, arriving, route, now)
    }

    /// The same for an event in doubt. Its receiver gets the same idempotency key again.
    pub fn resume(&self, arriving: &NewEvent, route: &Route, now: Timestamp) -> Result<Transition, InvalidStepError> {
        self.transition_with_payload(EventStep::Resume, arriving, route, now)
    }

    fn transition_with_payload(
        &self,
        step: EventStep,
        arriving: &NewEvent,
        route: &Route,
        now: Timestamp,
    ) -> Result<Transition, InvalidStepError> {
        let mut change = self.transition(step, route, now)?;
        if self.has_same_route_and_change(arriving) {
            change.take(arriving);
        }
        Ok(change)
    }

    /// Whether the arriving event has the same route and changes the same subject to the same value.
    pub(super) fn has_same_route_and_change(&self, arriving: &NewEvent) -> bool {
        let what = |event: &Self| {
            let change = event.explicit_change().map(|change| (change.subject, change.value));
            (event.source.clone(), event.route.clone(), event.part, event.group, change)
        };
        what(self) == what(&arriving.event)
    }
}

impl Transition {
    /// Continues the event with the body that has just arrived.
    pub(super) fn take(&mut self, arriving: &NewEvent) {
        self.event.fields = arriving.event.fields.clone();
        self.event.body_digest = arriving.event.body_digest;
        self.event.digest = self.event.immutable_digest();
        self.payload = Some(arriving.payload.clone());
    }

    /// The event to write at the store's time `at`, given the subject's current event (`None`: no register).
    pub fn resolve(&self, current: Option<EventId>, at: Timestamp) -> Event {
        match (&self.if_superseded, current) {
            (Some(overtaken), Some(current)) if current != self.event.id => {
                self.at_store_time(overtaken.clone(), Some(current), at)
            }
            _ => self.at_store_time(self.event.clone(), None, at),
        }
    }

    /// The event to write at the store's time `at` if what it resolved to was deployed by that event; `None` where it
    /// runs all the same.
    pub fn if_deployed_by(&self, by: EventId, at: Timestamp) -> Option<Event> {
        self.if_deployed.clone().map(|event| self.at_store_time(event, Some(by), at))
    }

    /// The event to write at the store's time `at`, and the record of its attempt, if the registry is asked again; `None`
    /// where it is not.
    pub fn if_asked_again(&self, at: Timestamp) -> Option<(Event, &AttemptRecord)> {
        let (event, record) = self.if_unmoved.as_deref()?;
        Some((self.at_store_time(event.clone(), None, at), record))
    }

    fn at_store_time(&self, mut event: Event, superseded_by: Option<EventId>, at: Timestamp) -> Event {
        if let (EventState::Done { how: DoneReason::Superseded { by }, .. }, Some(other)) =
            (&mut event.state, superseded_by)
        {
            *by = other;
        }
        event.state = event.state.shifted(self.now, at);
        event.restore_first_end_time(at);
        event
    }
}
