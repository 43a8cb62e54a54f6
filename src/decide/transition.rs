//! A step as it is written: the event after it, and what the store must look at in the same write.
//!
//! The store knows keys, registers and slots but no policy. So the policy is worked out here, for both cases: what
//! to write, and what to write instead if another event has changed the subject meanwhile.

use super::claim::{NewEvent, Payload};
use super::event::{DoneReason, Event, EventState, EventStep, InvalidStepError, Outcome, Receipt};
use super::id::EventId;
use super::source::{InDoubtPolicy, Route};
use super::time::Timestamp;

/// One write to one event: revision n-1 is swapped for n.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The event after the step.
    pub event: Event,
    /// The time the step was worked out for; every time in `event` is written as the store's clock + (time - now).
    pub now: Timestamp,
    /// Written instead when the event is no longer its subject's current one.
    pub if_superseded: Option<Event>,
    /// What the write does to the event's place.
    pub place: QueueUpdate,
    /// What the attempt came to.
    pub attempt: Option<AttemptRecord>,
    /// What becomes of the kept answer.
    pub receipt: ReceiptUpdate,
    /// The body of the delivery that re-armed it, or had it published again.
    pub payload: Option<Payload>,
    /// What becomes of headers that were only kept to be passed on, if this write ends the event.
    pub passed: TransientHeaders,
}

/// What a write that ends an event does to the headers that were only kept to be passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransientHeaders {
    /// They go.
    Drop,
    /// There are none: the writer has seen the body, and the store need not look.
    None,
}

/// What a write does to an event's place in its group's queue and in its register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueUpdate {
    /// Nothing.
    Unchanged,
    /// It goes to the end of its group's queue.
    MoveToEnd,
    /// The same, and it becomes its subject's current event: a person's replay.
    BecomeCurrent,
    /// Nothing, but it must still be its subject's current event: else nothing is written.
    RequireCurrent,
}

/// What a write does to the answer that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceiptUpdate {
    /// Nothing.
    Unchanged,
    /// An attempt came to its end: this is its answer, if it has one. What an earlier one was answered goes.
    Replace(Option<Receipt>),
}

/// What an attempt came to, for people.
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
    /// The outcome's word.
    pub outcome: String,
    /// The sentence behind it.
    pub why: String,
    /// What it wrote, head and tail.
    pub output: Vec<u8>,
}

/// A placeholder for the event that the register names: the store fills it in.
const CURRENT_EVENT: EventId = EventId([0; 16]);

impl Event {
    /// This step, ready to be written.
    pub fn transition(&self, step: EventStep, route: &Route, now: Timestamp) -> Result<Transition, InvalidStepError> {
        let place = match step {
            EventStep::Rearm | EventStep::Resume => QueueUpdate::MoveToEnd,
            EventStep::Replay => QueueUpdate::BecomeCurrent,
            EventStep::PublishAgain => QueueUpdate::RequireCurrent,
            _ => QueueUpdate::Unchanged,
        };
        let asks = match &step {
            EventStep::Start { .. } | EventStep::Unsuspend => !self.owed_first_attempt(),
            EventStep::Settle { outcome, .. } => !matches!(outcome, Outcome::Delivered(_)),
            EventStep::Expire { .. } | EventStep::Rearm | EventStep::Resume => true,
            _ => false,
        };
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
        let event = self.after(step, route, now)?;
        let overtaken = match (asks, self.change) {
            (true, Some(_)) => Some(self.after(EventStep::Supersede { by: CURRENT_EVENT }, route, now)?),
            _ => None,
        };
        Ok(Transition {
            event,
            now,
            if_superseded: overtaken,
            place,
            attempt,
            receipt,
            payload: None,
            passed: TransientHeaders::Drop,
        })
    }

    /// A start that the event's own row decides: the event is owed its first attempt or is no change of a subject, so no
    /// register is read, and it is due, so it has its group's slot. `None`: this needs an ordinary step.
    pub fn start_alone(&self, start: &EventStep, route: &Route, now: Timestamp) -> Option<Transition> {
        let change = self.transition(start.clone(), route, now).ok()?;
        (matches!(start, EventStep::Start { .. }) && change.if_superseded.is_none()).then_some(change)
    }

    /// What is known of an attempt whose lease ran out: when it was last heard of, and no more.
    fn lost_attempt_record(&self, route: &Route, until: Timestamp, now: Timestamp) -> AttemptRecord {
        let why = match route.in_doubt {
            _ if self.is_called_off() => "it was cancelled while a node was at it",
            InDoubtPolicy::Never => "its lease ran out: nothing was written",
            InDoubtPolicy::Retry | InDoubtPolicy::Hold => "its lease ran out: it may have acted",
        };
        let outcome = Outcome::Unknown { why: why.into() };
        AttemptRecord {
            life: self.life,
            attempt: self.attempt,
            started_at: until - route.lease,
            ended_at: now,
            outcome: outcome.word().into(),
            why: outcome.why().into(),
            output: Vec::new(),
        }
    }

    /// A repeat's re-arming, with the body that has just arrived, if that takes the same way and changes the same thing
    /// to the same: under a signed id a sender may send anything, and an event never runs another one's body. Overtaken, it ends with
    /// the body it had.
    pub fn rearm(&self, arriving: &NewEvent, route: &Route, now: Timestamp) -> Result<Transition, InvalidStepError> {
        self.transition_with_payload(EventStep::Rearm, arriving, route, now)
    }

    /// The same for one that is in doubt. What it called gets the same idempotency key again.
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

    /// Does this take the same way, and change the same thing to the same?
    pub(super) fn has_same_route_and_change(&self, arriving: &NewEvent) -> bool {
        let what = |event: &Self| {
            let change = event.change.map(|change| (change.subject, change.value));
            (event.source.clone(), event.route.clone(), event.part, event.group, change)
        };
        what(self) == what(&arriving.event)
    }
}

impl Transition {
    /// The event goes on with the body that has just arrived.
    pub(super) fn take(&mut self, arriving: &NewEvent) {
        self.event.fields = arriving.event.fields.clone();
        self.event.body_digest = arriving.event.body_digest;
        self.event.digest = self.event.immutable_digest();
        self.payload = Some(arriving.payload.clone());
    }

    /// What is written at the store's time, given the subject's current event (`None`: no register).
    pub fn resolve(&self, current: Option<EventId>, at: Timestamp) -> Event {
        let mut event = match (&self.if_superseded, current) {
            (Some(overtaken), Some(current)) if current != self.event.id => {
                let mut event = overtaken.clone();
                if let EventState::Done { how: DoneReason::Superseded { by }, .. } = &mut event.state {
                    *by = current;
                }
                event
            }
            _ => self.event.clone(),
        };
        event.state = event.state.shifted(self.now, at);
        event.restore_first_end_time(at);
        event
    }
}
