//! Starts many due events of a queue in one write.

use super::lane::{AttemptPermit, ReceiverQueue};
use super::{Dispatcher, Lane, LeasedEvent, StartEvidence, log_and_pause};
use crate::action::boottime;
use crate::decide::event::EventStep;
use crate::decide::id::EventId;
use crate::decide::time::Duration;
use crate::observe::log::StateDetails;
use crate::observe::metrics::StoreOp;
use crate::store::{StartDueRequest, StartDueResult, StoreError};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Whether a queue is known to have more due events that can be started together than this node can start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BacklogHint {
    Yes,
    No,
}

/// Number of writes that start events without a query, after a query that found a backlog. A query also finds events
/// that need a step of their own, so it must not be far away.
pub(super) const STARTS_WITHOUT_LOOK: u32 = 4;

/// How long a queue rests if all due events that it found were locked by other nodes. A node that was stopped in the
/// middle of a write may hold them for seconds.
pub(super) const HELD_ELSEWHERE: Duration = Duration::from_millis(50);

impl Dispatcher {
    /// Starts more events of a queue with a backlog, without another query.
    pub(super) async fn start_more(
        &self,
        lane: &Arc<Lane>,
        queue: &ReceiverQueue,
        first: OwnedSemaphorePermit,
    ) -> (Duration, BacklogHint) {
        let (mut permit, mut spots, mut pause) = (Some(first), Vec::new(), Duration::ZERO);
        while let Some(permit) = permit.take().or_else(|| queue.permits.clone().try_acquire_owned().ok()) {
            match lane.spot(permit, queue.part) {
                Ok(spot) => spots.push(spot),
                Err(rest) => {
                    pause = rest;
                    break;
                }
            }
        }
        let wanted = spots.len();
        let Some(step) = self.start_step(lane) else { return (pause, BacklogHint::No) };
        match self.start_together(lane, queue, step, spots).await {
            Ok(started) => {
                (pause, if started == wanted && pause.is_zero() { BacklogHint::Yes } else { BacklogHint::No })
            }
            Err(error) => (log_and_pause(&error), BacklogHint::No),
        }
    }

    /// The step with which this node starts an event on this lane; `None`: the lane has no action.
    pub(super) fn start_step(&self, lane: &Lane) -> Option<EventStep> {
        lane.action_kind().map(|action| EventStep::Start { lasts: lane.route.lease, by: self.0.node.clone(), action })
    }

    /// Starts as many of a queue's due events as there are permits, in one write; returns how many. Events that the
    /// query found may be another node's by now: then the next ones are started.
    pub(super) async fn start_together(
        &self,
        lane: &Arc<Lane>,
        queue: &ReceiverQueue,
        step: EventStep,
        spots: Vec<AttemptPermit>,
    ) -> Result<usize, StoreError> {
        if spots.is_empty() {
            return Ok(0);
        }
        let (source, route, limit) = (lane.source.name.clone(), lane.route.clone(), spots.len());
        let (sent, asked) = (boottime(), tokio::time::Instant::now());
        let starts = StartDueRequest { source, route, part: queue.part, step: step.clone(), limit };
        let started = self.0.store.start_due(starts).await;
        self.0.metrics.store_call(StoreOp::Advance, asked.elapsed(), started.is_ok());
        let StartDueResult { events, mut payloads, unsure } = started?;
        let (mut spots, many) = (spots.into_iter(), events.len());
        for (event, spot) in events.into_iter().zip(spots.by_ref()) {
            self.publish_state(&event, StateDetails::default());
            let payload = payloads.remove(&event.id);
            let lane = lane.clone();
            self.act(LeasedEvent { event, lane, payload, sent, known: StartEvidence::Answered, spot });
        }
        for (was, spot) in unsure.into_iter().zip(spots) {
            let (this, lane, step) = (self.clone(), lane.clone(), step.clone());
            self.0.tasks.spawn(async move {
                if let Some((event, known)) = this.begin(&was, step, true).await {
                    this.attempt(LeasedEvent { event, lane, payload: None, sent, known, spot }).await;
                }
            });
        }
        Ok(many)
    }
}

/// Records that this node may have started an event. The reaper leaves the event alone meanwhile: nothing has begun, so
/// there is no doubt about it, however long the store was unreachable.
pub(super) struct UnconfirmedStart<'a> {
    dispatcher: &'a Dispatcher,
    event: EventId,
}

impl<'a> UnconfirmedStart<'a> {
    pub(super) fn note(dispatcher: &'a Dispatcher, event: EventId) -> Self {
        dispatcher.0.unsure_starts().insert(event);
        Self { dispatcher, event }
    }
}

impl Drop for UnconfirmedStart<'_> {
    fn drop(&mut self) {
        self.dispatcher.0.unsure_starts().remove(&self.event);
    }
}
