//! Publishing again: the sender delivers once more what was already published, and so does the node, under a message id
//! of its own. The worker behind the stream knows what became of the first message, and decides: done there, it is a
//! duplicate; dead there, it gets another attempt.
//!
//! It is a step of its own in an event's life. There is no new life and no new turn, the register stays as it is, and the
//! event is kept from its first end.

use super::claim::NewEvent;
use super::event::{DeathCause, DoneReason, Event, EventState, EventStep, InvalidStepError};
use super::limits;
use super::source::Route;
use super::time::Timestamp;
use super::transition::Transition;

/// How an event whose message was already published is published again, because the sender delivered it again.
/// Counted anew in each life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepublishState {
    /// How many further messages there are of this life: the number of the last one.
    pub times: u32,
    /// When the last of them, or before that the first message, came to its end.
    pub last_at: Timestamp,
    /// When the event first ended: it is kept from then, however often it is published again.
    pub first_ended_at: Timestamp,
    /// Attempts of this life that were for earlier messages: each message has as many as the route allows.
    pub attempts_before: u32,
}

impl Event {
    /// A repeat's publishing it again, with the body and the signature that have just arrived: those it had may be
    /// forgotten by now. It must be the very delivery that was published: the worker knows it by its id and its body.
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

    /// Is this the delivery it was published with, arriving again? Another one that only repeats it (an alias, another
    /// spelling under a signed id) would be something new to the worker.
    pub(super) fn is_redelivered_by(&self, arriving: &NewEvent) -> bool {
        let what = |event: &Self| (event.delivery_id.clone(), event.body_digest);
        self.delivery_id.is_some() && what(self) == what(&arriving.event) && self.has_same_route_and_change(arriving)
    }

    /// What is known of the message that is to be published now, of an event that is over since `ended`.
    pub(super) fn next_message(&self, ended: Timestamp) -> RepublishState {
        let first = RepublishState { times: 0, last_at: ended, first_ended_at: ended, attempts_before: 0 };
        let before = self.published_again.unwrap_or(first);
        RepublishState { times: before.times + 1, attempts_before: self.attempt, ..before }
    }

    /// Has it been published in this life, and may a repeat have it published once more? An event whose further message
    /// failed, or may not have arrived, was published all the same: the next repeat has another one published.
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

    /// Has it acted in this life? On a route that publishes: a message of it is in the stream.
    pub(super) fn was_published(&self) -> bool {
        self.published_again.is_some() || matches!(self.state, EventState::Done { how: DoneReason::Acted, .. })
    }

    /// Over without another attempt: superseded, or with nothing to do any more. What was published before acted, and
    /// still has where it is not published once more.
    pub(super) fn done_without(&self, how: DoneReason, now: Timestamp) -> EventState {
        let how = if self.published_again.is_some() { DoneReason::Acted } else { how };
        EventState::Done { how, at: now }
    }

    /// An event that was published again and is over, since `now`, ended when it first did.
    pub(super) fn restore_first_end_time(&mut self, now: Timestamp) {
        let Some(again) = &mut self.published_again else { return };
        if let EventState::Done { at, .. } | EventState::Dead { at, .. } = &mut self.state {
            again.last_at = now;
            *at = again.first_ended_at;
        }
    }

    /// Since when nothing happens to it any more: its end, or that of the last message that was published again.
    pub fn idle_since(&self) -> Option<Timestamp> {
        let ended = self.state.ended()?;
        Some(self.published_again.map_or(ended, |again| again.last_at))
    }

    /// What sinks get as idempotency key: `<id>`, after a replay `<id>.<life>`, so that they do not swallow it. The nth
    /// time that it is published again adds `.r<n>`.
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
