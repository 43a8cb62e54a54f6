//! Waiting for an event to end, for the dispatcher and the layer. An end of this process is told to those who wait for
//! that event, and wakes no others; an end of another process is found in the store, sooner where the store has hints.

use super::{ChangeHint, Store, StoreError};
use crate::decide::event::Event;
use crate::decide::id::EventId;
use crate::decide::time::Duration;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often the store is asked for an event that another process may end.
pub(crate) const JOIN_LOOK: Duration = Duration::from_millis(250);

/// How long a look at the store may take at least, also where the time is up.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// The waits of this process, by event. `T` is what is told of an end.
pub(crate) struct CompletionWaiters<T>(Mutex<WaitersByEvent<T>>);

type WaitersByEvent<T> = HashMap<EventId, watch::Sender<Option<T>>>;

/// Why a wait is over.
#[derive(PartialEq, Debug)]
pub(crate) enum Completion<T> {
    /// This process ended the event.
    Told(T),
    /// The event as it is in the store: it is not waited for any more, or the time is up. `None`: it is gone.
    Stored(Option<Box<Event>>),
}

impl<T> Default for CompletionWaiters<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> CompletionWaiters<T> {
    fn all(&self) -> MutexGuard<'_, WaitersByEvent<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait for this event that this process has ended it. The end is in the store by then.
    pub(crate) fn tell(&self, id: EventId, end: impl FnOnce() -> T) {
        if let Some(waiting) = self.all().remove(&id) {
            waiting.send_replace(Some(end()));
        }
    }

    /// Lets those who wait for this event look at the store: this process will not end it.
    pub(crate) fn release(&self, id: EventId) {
        self.all().remove(&id);
    }

    /// Waits for an event to end, until a time. `next_look` says after what time the store is asked again; `None`: an
    /// event like this is not waited for. A store that is down meanwhile is asked again: this process may be told of the end.
    pub(crate) async fn wait(
        &self,
        store: &dyn Store,
        id: EventId,
        until: Instant,
        next_look: impl Fn(&Event) -> Option<Duration>,
    ) -> Result<Completion<T>, StoreError> {
        let mut hints = store.hints();
        loop {
            // Before the store is asked: an end after that is told.
            let mut waiter = self.register(id);
            let looked = tokio::select! {
                told = waiter.told() => match told {
                    Some(end) => return Ok(Completion::Told(end)),
                    None => continue,
                },
                looked = store.get(id) => looked,
                () = tokio::time::sleep_until(until.max(Instant::now() + LOOK_TIME)) => {
                    Err(StoreError::down("it did not respond in time"))
                }
            };
            let now = Instant::now();
            let look = match looked {
                Err(error @ StoreError::Broken(_)) => return Err(error),
                Err(error) if now >= until => return Err(error),
                Err(_) => JOIN_LOOK,
                Ok(event) => match event.as_ref().and_then(&next_look) {
                    Some(look) if now < until => look,
                    _ => return Ok(Completion::Stored(event.map(Box::new))),
                },
            };
            tokio::select! {
                told = waiter.told() => if let Some(end) = told { return Ok(Completion::Told(end)) },
                () = may_be_over(&mut hints, id) => {}
                () = tokio::time::sleep_until(until.min(now + look)) => {}
            }
        }
    }

    fn register(&self, id: EventId) -> CompletionWaiter<'_, T> {
        let told = self.all().entry(id).or_insert_with(|| watch::Sender::new(None)).subscribe();
        CompletionWaiter { waiters: self, id, told: Some(told) }
    }
}

/// One wait.
struct CompletionWaiter<'a, T: Clone> {
    waiters: &'a CompletionWaiters<T>,
    id: EventId,
    /// `None` only while it is dropped.
    told: Option<watch::Receiver<Option<T>>>,
}

impl<T: Clone> CompletionWaiter<'_, T> {
    /// The end; `None`: this process will not end the event.
    async fn told(&mut self) -> Option<T> {
        self.told.as_mut()?.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl<T: Clone> Drop for CompletionWaiter<'_, T> {
    fn drop(&mut self) {
        // Under the lock: of several that are dropped at once, one is the last.
        let mut all = self.waiters.all();
        self.told = None;
        if all.get(&self.id).is_some_and(|waiting| waiting.receiver_count() == 0) {
            all.remove(&self.id);
        }
    }
}

/// Waits until another process may have ended this event; for ever where the store has no hints.
async fn may_be_over(hints: &mut Option<Receiver<ChangeHint>>, id: EventId) {
    while let Some(heard) = hints {
        match heard.recv().await {
            Ok(ChangeHint::Ended(ended)) if ended != id => {}
            Ok(ChangeHint::Due { .. } | ChangeHint::Watched(_)) => {}
            Ok(ChangeHint::Ended(_) | ChangeHint::Missed) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => *hints = None,
        }
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::claim::ClaimResult;
    use crate::decide::time::Timestamp;
    use crate::store::StoreBackend as _;
    use crate::store::clock::StoreClock;
    use crate::store::conformance::making;
    use crate::store::memory::MemoryStore;
    use futures_util::FutureExt as _;

    async fn claimed(store: &MemoryStore, delivery: &str) -> EventId {
        let new = making().delivery(delivery).made(store.now());
        match store.claim(vec![new.into()]).await.expect("memory answers").remove(0) {
            ClaimResult::New { event, .. } => event.id,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn only_who_waits_for_an_event_is_told_of_its_end_and_no_wait_is_left_behind() {
        let store = MemoryStore::new(StoreClock::manual(Timestamp(1)));
        let (one, other) = (claimed(&store, "one").await, claimed(&store, "other").await);
        let ends = CompletionWaiters::default();
        let (until, hour) = (Instant::now() + Duration::from_hours(1), |_: &Event| Some(Duration::from_hours(1)));
        ends.tell(one, || "before");
        let mut waits: Vec<_> =
            [one, one, other].map(|id| Box::pin(ends.wait(&store, id, until, hour))).into_iter().collect();
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()), "an end before the wait is none");
        ends.tell(one, || "the end");
        for wait in waits.drain(..2) {
            assert_eq!(wait.await.expect("memory answers"), Completion::Told("the end"));
        }
        let mut other = waits.remove(0);
        assert!((&mut other).now_or_never().is_none(), "its own is not over");
        assert_eq!(ends.all().len(), 1);
        drop(other);
        assert!(ends.all().is_empty());
    }

    #[tokio::test]
    async fn a_wait_looks_at_the_store_when_this_process_gives_an_event_up_and_when_the_time_is_up() {
        let store = MemoryStore::new(StoreClock::manual(Timestamp(1)));
        let id = claimed(&store, "one").await;
        let ends = CompletionWaiters::<()>::default();
        let looks = std::cell::Cell::new(0);
        let next_look = |_: &Event| {
            looks.set(looks.get() + 1);
            (looks.get() < 3).then_some(Duration::from_hours(1))
        };
        let mut wait = Box::pin(ends.wait(&store, id, Instant::now() + Duration::from_hours(1), next_look));
        for looked in 1..3 {
            assert!((&mut wait).now_or_never().is_none());
            assert_eq!(looks.get(), looked);
            ends.release(id);
        }
        assert!(matches!(wait.await, Ok(Completion::Stored(Some(event))) if event.id == id), "it is not waited for");
        let late = ends.wait(&store, id, Instant::now(), |_: &Event| Some(Duration::from_hours(1))).await;
        assert!(matches!(late, Ok(Completion::Stored(Some(event))) if event.id == id));
        assert!(ends.all().is_empty());
    }
}
