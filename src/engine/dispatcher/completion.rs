//! Waits for events to end. Only those that wait for an event are woken when it ends.

use super::Dispatcher;
use crate::decide::event::Event;
use crate::decide::id::EventId;
use crate::store::ChangeHint;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

/// The waiters, by event.
#[derive(Default)]
pub(super) struct CompletionWaiters(Mutex<HashMap<EventId, watch::Sender<Option<Event>>>>);

impl CompletionWaiters {
    fn all(&self) -> MutexGuard<'_, HashMap<EventId, watch::Sender<Option<Event>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this event from now on.
    pub(super) fn wait(&self, id: EventId) -> CompletionWaiter<'_> {
        let heard = self.all().entry(id).or_default().subscribe();
        CompletionWaiter { ends: self, id, heard }
    }

    /// Wakes those that wait for this event, if it has ended.
    pub(super) fn tell(&self, event: &Event) {
        if event.state.ended().is_some()
            && let Some(waiting) = self.all().get(&event.id)
        {
            waiting.send_replace(Some(event.clone()));
        }
    }
}

/// One waiter; removed on drop.
pub(super) struct CompletionWaiter<'a> {
    ends: &'a CompletionWaiters,
    id: EventId,
    heard: watch::Receiver<Option<Event>>,
}

impl CompletionWaiter<'_> {
    /// The event, once this node has ended it.
    pub(super) async fn ended(&mut self) -> Event {
        loop {
            // The sender lives as long as a waiter does.
            if self.heard.changed().await.is_ok()
                && let Some(event) = self.heard.borrow().clone()
            {
                return event;
            }
        }
    }
}

impl Drop for CompletionWaiter<'_> {
    fn drop(&mut self) {
        let mut all = self.ends.all();
        if all.get(&self.id).is_some_and(|waiting| waiting.receiver_count() <= 1) {
            all.remove(&self.id);
        }
    }
}

impl Dispatcher {
    /// Wakes the lanes for which other nodes report work.
    pub(super) async fn listen(self, mut hints: Receiver<ChangeHint>) {
        while let Some(hint) = self.0.stopping.run_until_cancelled(hints.recv()).await {
            match hint {
                Ok(ChangeHint::Due { source, route }) => {
                    self.lane(&source, &route).into_iter().for_each(|lane| lane.wake_all());
                }
                Ok(ChangeHint::Ended(_)) => {}
                Ok(ChangeHint::Missed) | Err(RecvError::Lagged(_)) => self.lanes().for_each(|lane| lane.wake_all()),
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// Waits for a hint of another node that this event may have ended; for ever where there are no hints.
pub(super) async fn may_be_over(hints: &mut Option<Receiver<ChangeHint>>, id: EventId) {
    while let Some(heard) = hints {
        match heard.recv().await {
            Ok(ChangeHint::Ended(ended)) if ended != id => {}
            Ok(ChangeHint::Due { .. }) => {}
            Ok(ChangeHint::Ended(_) | ChangeHint::Missed) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => *hints = None,
        }
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::event::{DoneReason, EventState};
    use crate::decide::time::Timestamp;
    use crate::store::conformance::making;

    #[tokio::test]
    async fn only_waiters_of_an_event_are_woken_by_its_end_and_none_is_left_in_the_map() {
        let ends = CompletionWaiters::default();
        let running = making().made(Timestamp(0)).event;
        let other = Event { id: making().id(), ..running.clone() };
        let over = |event: &Event| Event {
            state: EventState::Done { how: DoneReason::Acted, at: Timestamp(1) },
            ..event.clone()
        };
        ends.tell(&over(&running));
        let (mut one, mut two, waits) = (ends.wait(running.id), ends.wait(running.id), ends.wait(other.id));
        ends.tell(&running);
        assert!(!one.heard.has_changed().unwrap(), "it has not ended, and an end before the wait does not count");
        ends.tell(&over(&running));
        assert_eq!((one.ended().await.id, two.ended().await.id), (running.id, running.id));
        assert!(!waits.heard.has_changed().unwrap(), "its own event has not ended");
        drop((one, two));
        assert_eq!(ends.all().len(), 1);
        drop(waits);
        assert!(ends.all().is_empty());
    }
}
