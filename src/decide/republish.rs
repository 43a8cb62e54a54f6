//! Republishing: when the sender redelivers what was already published, the node publishes it again, under a message id
//! of its own. The worker behind the stream knows the result of the first message and decides: if it is done there, the
//! new message is a duplicate; if it is dead there, it gets another attempt.
//!
//! Republishing is a step of its own. There is no new life and no new turn, the register stays as it is, and the event
//! is kept from its first end.

use super::claim::NewEvent;
use super::event::{DeathCause, DoneReason, Event, EventState, EventStep, InvalidStepError};
use super::limits;
use super::source::Route;
use super::time::Timestamp;
use super::transition::Transition;

/// How often and when an event was published again in this life. Counted separately in each life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepublishState {
    /// The number of further messages in this life: the number of the last one.
    pub times: u32,
    /// When the last of them ended, or the first message if there is no other yet.
    pub last_at: Timestamp,
    /// When the event first ended: its retention counts from then, however often it is published again.
    pub first_ended_at: Timestamp,
    /// Attempts of this life that belong to earlier messages: each message has as many attempts as the route allows.
    pub attempts_before: u32,
}

impl Event {
    /// The transition of a repeat that has the event published again, with the body and the signature that have just
    /// arrived: the stored ones may have expired. It must be the same delivery that was published: the worker
    /// identifies it by its id and its body.
    pub fn publish_again(
        &self,
        arriving: &NewEvent,
        route: &Route,
        now: Timestamp,
    ) -> Result<Transition, InvalidStepError> {
        if !self.is_redelivered_by(arriving) {
            return Err(InvalidStepError);
        }
        let mut change = self.transition(EventStep::PublishAgain, route, now)?;
        change.take(arriving);
        Ok(change)
    }

    /// Whether this is a redelivery of the delivery that was published. Another delivery that only repeats the event
    /// (an alias, other bytes under a signed id) would be something new to the worker.
    pub(super) fn is_redelivered_by(&self, arriving: &NewEvent) -> bool {
        let what = |event: &Self| (event.delivery_id.clone(), event.body_digest);
        self.delivery_id.is_some() && what(self) == what(&arriving.event) && self.has_same_route_and_change(arriving)
    }

    /// The state of the message to be published now, of an event that ended at `ended`.
    pub(super) fn next_message(&self, ended: Timestamp) -> RepublishState {
        let first = RepublishState { times: 0, last_at: ended, first_ended_at: ended, attempts_before: 0 };
        let before = self.published_again.unwrap_or(first);
        RepublishState { times: before.times + 1, attempts_before: self.attempt, ..before }
    }

    /// Whether it was published in this life and a repeat may have it published once more. An event whose further
    /// message failed, or may not have arrived, was published all the same: the next repeat has another one published.
    pub(super) fn may_publish_again(&self) -> bool {
        if self.published_again.is_some_and(|again| again.times >= limits::PUBLISHED_AGAIN_MAX) {
            return false;
        }
        match &self.state {
            EventState::Done { how, .. } => *how == DoneReason::Acted,
            EventState::Dead { cause, .. } => {
                self.published_again.is_some() && (cause.rearmable() || *cause == DeathCause::InDoubt)
            }
            EventState::Waiting { .. } | EventState::Running { .. } => false,
        }
    }

    /// Whether it has acted in this life: on a route that publishes, a message is in the stream.
    pub(super) fn was_published(&self) -> bool {
        self.published_again.is_some() || matches!(self.state, EventState::Done { how: DoneReason::Acted, .. })
    }

    /// The state of an event that ends without another attempt: superseded, or with nothing left to do. If it was
    /// published before, it has acted, even if it is not published once more.
    pub(super) fn done_without(&self, how: DoneReason, now: Timestamp) -> EventState {
        let how = if self.published_again.is_some() { DoneReason::Acted } else { how };
        EventState::Done { how, at: now }
    }

    /// Sets the end of an event that was published again back to its first end; `now` becomes the end of its last
    /// message.
    pub(super) fn restore_first_end_time(&mut self, now: Timestamp) {
        let Some(again) = &mut self.published_again else { return };
        if let EventState::Done { at, .. } | EventState::Dead { at, .. } = &mut self.state {
            again.last_at = now;
            *at = again.first_ended_at;
        }
    }

    /// Since when it has been idle: its end, or the end of the last message that was published again.
    pub fn idle_since(&self) -> Option<Timestamp> {
        let ended = self.state.ended()?;
        Some(self.published_again.map_or(ended, |again| again.last_at))
    }

    /// The idempotency key that receivers get: `<id>`, after a replay `<id>.<life>`, so that they do not drop it as a
    /// duplicate. The nth republished message adds `.r<n>`.
    pub fn idempotency_key(&self) -> String {
        let mut key = self.id.to_string();
        if self.life > 1 {
            key = format!("{key}.{}", self.life);
        }
        match self.published_again {
            Some(RepublishState { times, .. }) => format!("{key}.r{times}"),
            None => key,
        }
    }
}
