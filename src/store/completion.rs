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

    /// Waits for an event to end, until a time, beginning with a look at the store: see [`CompletionWaiter::wait`].
    pub(crate) async fn wait(
        &self,
        store: &dyn Store,
        id: EventId,
        until: Instant,
        next_look: impl Fn(&Event) -> Option<Duration>,
    ) -> Result<Completion<T>, StoreError> {
        self.register(store, id).wait(None, until, next_look).await
    }

    /// Registers a wait. An end that this process writes from now on is told to it.
    pub(crate) fn register<'a>(&'a self, store: &'a dyn Store, id: EventId) -> CompletionWaiter<'a, T> {
        let mut waiter = CompletionWaiter { waiters: self, store, hints: store.hints(), id, told: None };
        waiter.subscribe();
        waiter
    }

    /// Whether a wait for this event is registered.
    pub(crate) fn is_awaited(&self, id: EventId) -> bool {
        self.all().contains_key(&id)
    }
}

/// One wait for an event, registered before it begins.
pub(crate) struct CompletionWaiter<'a, T: Clone> {
    waiters: &'a CompletionWaiters<T>,
    store: &'a dyn Store,
    hints: Option<Receiver<ChangeHint>>,
    id: EventId,
    /// `None` only while it is registered again or dropped.
    told: Option<watch::Receiver<Option<T>>>,
}

impl<T: Clone> CompletionWaiter<'_, T> {
    /// Waits for the event to end, until a time. `known`: the event as it was written or read after this wait was
    /// registered; without it the store is asked first. `next_look` says after what time the store is asked again;
    /// `None`: an event like this is not waited for. A store that is down meanwhile is asked again: this process may be
    /// told of the end.
    pub(crate) async fn wait(
        mut self,
        known: Option<&Event>,
        until: Instant,
        next_look: impl Fn(&Event) -> Option<Duration>,
    ) -> Result<Completion<T>, StoreError> {
        let mut known = known.and_then(&next_look);
        loop {
            let look = match known.take() {
                Some(look) => look,
                None => match self.look(until, &next_look).await? {
                    WaitStep::Over(completion) => return Ok(completion),
                    WaitStep::AskAgain => continue,
                    WaitStep::AskIn(look) => look,
                },
            };
            let Self { hints, told, id, .. } = &mut self;
            tokio::select! {
                told = end_told(told) => match told {
                    Some(end) => return Ok(Completion::Told(end)),
                    None => self.subscribe(),
                },
                () = may_be_over(hints, *id) => {}
                () = tokio::time::sleep_until(until.min(Instant::now() + look)) => {}
            }
        }
    }

    /// Asks the store for the event, unless its end is told first.
    async fn look(
        &mut self,
        until: Instant,
        next_look: impl Fn(&Event) -> Option<Duration>,
    ) -> Result<WaitStep<T>, StoreError> {
        let looked = tokio::select! {
            told = end_told(&mut self.told) => {
                if told.is_none() {
                    self.subscribe(); // before the store is asked again: an end after that is told
                }
                return Ok(told.map_or(WaitStep::AskAgain, |end| WaitStep::Over(Completion::Told(end))));
            }
            looked = self.store.get(self.id) => looked,
            () = tokio::time::sleep_until(until.max(Instant::now() + LOOK_TIME)) => {
                Err(StoreError::down("it did not respond in time"))
            }
        };
        let is_late = Instant::now() >= until;
        match looked {
            Err(error @ StoreError::Broken(_)) => Err(error),
            Err(error) if is_late => Err(error),
            Err(_) => Ok(WaitStep::AskIn(JOIN_LOOK)),
            Ok(event) => match event.as_ref().and_then(next_look) {
                Some(look) if !is_late => Ok(WaitStep::AskIn(look)),
                _ => Ok(WaitStep::Over(Completion::Stored(event.map(Box::new)))),
            },
        }
    }

    fn subscribe(&mut self) {
        let mut all = self.waiters.all();
        self.told = Some(all.entry(self.id).or_insert_with(|| watch::Sender::new(None)).subscribe());
    }
}

/// What a look at the store led to.
enum WaitStep<T> {
    /// The wait is over.
    Over(Completion<T>),
    /// The store is asked again at once.
    AskAgain,
    /// The store is asked again after this time.
    AskIn(Duration),
}

/// The end; `None`: this process will not end the event.
async fn end_told<T: Clone>(told: &mut Option<watch::Receiver<Option<T>>>) -> Option<T> {
    told.as_mut()?.wait_for(Option::is_some).await.ok()?.clone()
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
    async fn a_wait_for_an_event_that_was_just_written_is_told_of_its_end_without_a_look_at_the_store() {
        let store = MemoryStore::new(StoreClock::manual(Timestamp(1)));
        let id = claimed(&store, "one").await;
        let event = store.get(id).await.expect("memory answers").expect("it was claimed");
        let ends = CompletionWaiters::default();
        let elsewhere = MemoryStore::new(StoreClock::manual(Timestamp(1))); // a look there finds nothing
        let (until, hour) = (Instant::now() + Duration::from_hours(1), |_: &Event| Some(Duration::from_hours(1)));
        let (early, late) = (ends.register(&elsewhere, id), ends.register(&elsewhere, id));
        assert!(ends.is_awaited(id));
        let mut late = Box::pin(late.wait(Some(&event), until, hour));
        assert!((&mut late).now_or_never().is_none());
        ends.tell(id, || "the end");
        assert_eq!(late.await.expect("nothing is asked"), Completion::Told("the end"));
        let early = early.wait(Some(&event), until, hour).await;
        assert_eq!(early.expect("nothing is asked"), Completion::Told("the end"), "told before the wait began");
        assert!(!ends.is_awaited(id));
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
