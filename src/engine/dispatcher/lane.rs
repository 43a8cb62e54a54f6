//! A lane runs the events of one route. It has one queue per receiver, so that a slow or unreachable receiver delays no
//! other.

use super::lane_table::QueuePermits;
use crate::action::health_check::HealthCheck;
use crate::action::{Action, CircuitAdmission};
use crate::decide::action_kind::ActionKind;
use crate::decide::source::{Fanout, Intake, Route, Source};
use crate::decide::time::Duration;
use crate::registry::RegistryLookup;
use crate::store::DueQuery;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A route with its action and its concurrency limits.
pub struct Lane {
    /// The source it belongs to.
    pub source: Arc<Source>,
    /// Its policies.
    pub route: Arc<Route>,
    /// Its action; `None`: events are only recorded.
    pub(super) action: Option<Arc<dyn Action>>,
    /// The registry that is asked before the action begins, if any.
    pub(super) lookup: Option<RegistryLookup>,
    /// How the health of what the action deployed is checked, if it is.
    pub(super) health: Option<HealthCheck>,
    queues: Vec<ReceiverQueue>,
}

/// The queue of a lane's events for one receiver.
pub(super) struct ReceiverQueue {
    pub(super) part: u16,
    at_once: u32,
    pub(super) permits: Arc<Semaphore>,
    pub(super) wake: Notify,
    /// Whether there may be due events that the last look did not start.
    is_behind: AtomicBool,
}

/// How long a queue with a backlog waits, at least and at most, for attempts to end, so that the next write starts
/// several.
const GATHER_MIN: Duration = Duration::from_millis(10);
const GATHER_MAX: Duration = Duration::from_millis(100);

impl ReceiverQueue {
    fn new(part: u16, at_once: usize) -> Self {
        let permits = Arc::new(Semaphore::new(at_once));
        let at_once = u32::try_from(at_once).unwrap_or(u32::MAX);
        Self { part, at_once, permits, wake: Notify::new(), is_behind: AtomicBool::new(true) }
    }

    /// A look at the store begins.
    pub(super) fn begin_look(&self) {
        self.is_behind.store(true, Ordering::SeqCst);
    }

    /// The last look has started all that was due. What becomes due later wakes the queue itself.
    pub(super) fn caught_up(&self) {
        self.is_behind.store(false, Ordering::SeqCst);
    }

    /// An attempt has ended. Wakes the queue if it is behind: there is a permit, and its receiver may be healthy again.
    pub(super) fn attempt_ended(&self) {
        if self.is_behind.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Waits a moment until a quarter of the attempts may begin. Where attempts end one by one, a query and a write for
    /// each would cost more than they are worth. The moment is twice what the last write took: the more nodes share a
    /// database, the longer each write takes, and the more events each write must start for all nodes together to be as
    /// fast as one.
    pub(super) async fn wait_for_permits(&self, took: Duration) {
        let many = self.permits.acquire_many(self.at_once / 4);
        // The permits are only waited for: dropped here, they are free again.
        tokio::time::timeout((took * 2).clamp(GATHER_MIN, GATHER_MAX), many).await.map(drop).unwrap_or_default();
    }
}

/// A permit for one attempt. It may include the permit to probe a receiver whose circuit is open: only one attempt has
/// that one, and if it does not begin after all, the next one gets it.
pub struct AttemptPermit {
    _permit: OwnedSemaphorePermit,
    probe: Option<(Arc<dyn Action>, u16)>,
}

impl AttemptPermit {
    /// A permit for an attempt at this receiver that begins now; otherwise how long its circuit stays open.
    fn now(action: Option<&Arc<dyn Action>>, permit: OwnedSemaphorePermit, part: u16) -> Result<Self, Duration> {
        let leave = match action.map(|action| (action, action.ready(part))) {
            None | Some((_, CircuitAdmission::Now)) => None,
            Some((action, CircuitAdmission::Probe)) => Some((action.clone(), part)),
            Some((_, CircuitAdmission::In(rest))) => return Err(rest),
        };
        Ok(Self { _permit: permit, probe: leave })
    }

    /// The attempt begins: from now on its action reports the receiver's health.
    pub(super) fn begin(&mut self) {
        self.probe = None;
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        if let Some((action, part)) = self.probe.take() {
            action.release_probe(part);
        }
    }
}

impl Lane {
    /// A lane for this route.
    pub fn new(source: Arc<Source>, route: Arc<Route>, action: Option<Arc<dyn Action>>) -> Self {
        let parts = match route.fanout {
            Fanout::Record => 1,
            Fanout::Actions(count) => count.max(1),
        };
        let queue = |part| {
            let own = action.as_ref().and_then(|action| action.concurrency_limit(part));
            ReceiverQueue::new(part, own.unwrap_or(route.max_concurrency))
        };
        let queues = (0..parts).map(queue).collect();
        Self { source, route, action, lookup: None, health: None, queues }
    }

    /// Takes the permits of these names: attempts that began under an earlier config count.
    pub(super) fn share_permits(&mut self, all: &mut QueuePermits) {
        for queue in &mut self.queues {
            let at_once = usize::try_from(queue.at_once).unwrap_or(usize::MAX);
            queue.permits = all.resized(&self.source.name, &self.route.name, queue.part, at_once);
        }
    }

    /// The same lane, which asks a registry before its action begins.
    #[must_use]
    pub(crate) fn asking(self, lookup: Option<RegistryLookup>) -> Self {
        Self { lookup, ..self }
    }

    /// The same lane, which checks the health of what its action deployed.
    #[must_use]
    pub(crate) fn checking(self, health: Option<HealthCheck>) -> Self {
        Self { health, ..self }
    }

    /// Whether its events have the digest of an image: its route asks a registry for it, or its source has.
    pub(super) fn has_digests(&self) -> bool {
        self.lookup.is_some() || matches!(self.source.intake, Intake::Poll { .. })
    }

    /// A lane on which this node never acts: other nodes do.
    pub fn closed(source: Arc<Source>, route: Arc<Route>) -> Self {
        let queues = vec![ReceiverQueue::new(0, 0)];
        Self { source, route, action: None, lookup: None, health: None, queues }
    }

    /// The kind of action of its attempts; `None`: events are only recorded.
    pub fn action_kind(&self) -> Option<ActionKind> {
        self.action.as_ref().map(|action| action.kind())
    }

    /// The number of its queues.
    pub(super) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// The queue with this number.
    pub(super) fn queue(&self, number: usize) -> &ReceiverQueue {
        &self.queues[number.min(self.queues.len() - 1)]
    }

    /// The queue of an event for this receiver: the last queue, if the receiver no longer exists.
    pub(super) fn queue_of(&self, part: u16) -> &ReceiverQueue {
        self.queue(part.into())
    }

    /// A free permit for an event that may turn out not to be new, if there is one and its receiver is healthy. A
    /// receiver whose circuit is open is probed by the queue, with an event that exists.
    pub(super) fn free_spot(&self, part: u16) -> Option<AttemptPermit> {
        if self.action.as_ref().is_some_and(|action| !action.is_healthy(part)) {
            return None;
        }
        let permit = self.queue_of(part).permits.clone().try_acquire_owned().ok()?;
        Some(AttemptPermit { _permit: permit, probe: None })
    }

    /// A permit for an attempt at this receiver that begins now; otherwise how long its circuit stays open.
    pub(super) fn spot(&self, permit: OwnedSemaphorePermit, part: u16) -> Result<AttemptPermit, Duration> {
        AttemptPermit::now(self.action.as_ref(), permit, part)
    }

    /// The query that finds the events of a queue.
    pub(super) fn look(&self, queue: &ReceiverQueue) -> DueQuery {
        let (source, route) = (self.source.name.clone(), self.route.name.clone());
        if self.queues.len() == 1 {
            return DueQuery::Route(source, route);
        }
        let last = usize::from(queue.part) + 1 == self.queues.len();
        DueQuery::Receiver(source, route, queue.part..=if last { u16::MAX } else { queue.part })
    }

    /// Wakes all queues: one of them may have work to do.
    pub(super) fn wake_all(&self) {
        self.queues.iter().for_each(|queue| queue.wake.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{ActionFuture, Attempt};
    use crate::decide::circuit_breaker::{CircuitBreaker, ReceiverHealth};
    use futures_util::FutureExt as _;
    use std::sync::Mutex;

    const NOW: Duration = Duration::from_secs(100);

    /// An action whose receiver failed too often, and may be probed now.
    struct RecoveringReceiver(Mutex<CircuitBreaker>);

    impl Action for RecoveringReceiver {
        fn act<'a>(&'a self, _: Attempt<'a>) -> ActionFuture<'a> {
            unreachable!("no attempt runs in this test")
        }

        fn kind(&self) -> ActionKind {
            ActionKind::Forward
        }

        fn ready(&self, _: u16) -> CircuitAdmission {
            self.0.lock().unwrap().try_acquire(NOW, Duration::from_secs(30))
        }

        fn release_probe(&self, _: u16) {
            self.0.lock().unwrap().on_result(ReceiverHealth::Unknown, NOW);
        }
    }

    #[test]
    fn the_permit_to_probe_a_receiver_is_released_unless_an_attempt_begins() {
        let mut breaker = CircuitBreaker::default();
        for _ in 0..crate::decide::limits::BREAKER_FAILURES {
            breaker.on_result(ReceiverHealth::Down, Duration::ZERO);
        }
        let action: Arc<dyn Action> = Arc::new(RecoveringReceiver(Mutex::new(breaker)));
        let permits = Arc::new(Semaphore::new(2));
        let spot = || AttemptPermit::now(Some(&action), permits.clone().try_acquire_owned().unwrap(), 0).ok();
        let first = spot().expect("one attempt may probe");
        assert!(spot().is_none(), "only one attempt may probe");
        drop(first);
        let mut second = spot().expect("the receiver was not probed");
        second.begin();
        drop(second);
        assert!(spot().is_none(), "it is being probed");
    }

    #[test]
    fn the_end_of_an_attempt_wakes_only_a_queue_that_may_have_left_due_events() {
        let queue = ReceiverQueue::new(0, 1);
        let wakes = || {
            queue.attempt_ended();
            queue.wake.notified().now_or_never().is_some()
        };
        assert!(wakes(), "it has not looked yet");
        queue.caught_up();
        assert!(!wakes());
        queue.begin_look();
        assert!(wakes(), "it is not known yet what the look finds");
    }
}
