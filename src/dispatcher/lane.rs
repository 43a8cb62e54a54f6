//! A route at work, and its queues: one for each of its receivers, so that one that is slow or down holds nobody else.

use crate::action::{Action, Ready};
use crate::decide::source::{Makes, Route, Source};
use crate::store::Look;
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A route at work: what is done on it, and how often at once.
pub struct Lane {
    /// The source it belongs to.
    pub source: Arc<Source>,
    /// Its rules.
    pub route: Arc<Route>,
    /// What is done; `None`: events are only recorded.
    pub(super) action: Option<Arc<dyn Action>>,
    queues: Vec<Queue>,
}

/// The events of a lane that are for one receiver.
pub(super) struct Queue {
    part: u16,
    pub(super) permits: Arc<Semaphore>,
    pub(super) wake: Notify,
}

impl Lane {
    /// A lane for this route.
    pub fn new(source: Arc<Source>, route: Arc<Route>, action: Option<Arc<dyn Action>>) -> Self {
        let parts = match route.makes {
            Makes::Record => 1,
            Makes::Actions(count) => count.max(1),
        };
        let queue = |part| {
            let own = action.as_ref().and_then(|action| action.at_once(part));
            let permits = Arc::new(Semaphore::new(own.unwrap_or(route.at_once)));
            Queue { part, permits, wake: Notify::new() }
        };
        let queues = (0..parts).map(queue).collect();
        Self { source, route, action, queues }
    }

    /// A lane on which this node never acts: others do.
    pub fn closed(source: Arc<Source>, route: Arc<Route>) -> Self {
        let queue = Queue { part: 0, permits: Arc::new(Semaphore::new(0)), wake: Notify::new() };
        Self { source, route, action: None, queues: vec![queue] }
    }

    /// How many queues it has.
    pub(super) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// The queue of this number.
    pub(super) fn queue(&self, number: usize) -> &Queue {
        &self.queues[number.min(self.queues.len() - 1)]
    }

    /// Where an event for this receiver waits: with the last, if there is no such receiver any more.
    pub(super) fn queue_of(&self, part: u16) -> &Queue {
        self.queue(part.into())
    }

    /// A free place for an event for this receiver, if there is one and the receiver is not left alone.
    pub(super) fn permit(&self, part: u16) -> Option<OwnedSemaphorePermit> {
        let permit = self.queue_of(part).permits.clone().try_acquire_owned().ok()?;
        (!matches!(self.ready(part), Ready::In(_))).then_some(permit)
    }

    /// Whether an attempt for this receiver may begin: whoever asks begins one, if it may.
    pub(super) fn ready(&self, part: u16) -> Ready {
        self.action.as_ref().map_or(Ready::Now, |action| action.ready(part))
    }

    /// Where the events of a queue are found.
    pub(super) fn look(&self, queue: &Queue) -> Look {
        let (source, route) = (self.source.name.clone(), self.route.name.clone());
        if self.queues.len() == 1 {
            return Look::Route(source, route);
        }
        let last = usize::from(queue.part) + 1 == self.queues.len();
        Look::Receiver(source, route, queue.part..=if last { u16::MAX } else { queue.part })
    }

    /// Somebody may have work to do.
    pub(super) fn wake_all(&self) {
        self.queues.iter().for_each(|queue| queue.wake.notify_one());
    }
}
