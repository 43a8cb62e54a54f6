//! Shares the output of this node's attempts with clients of other nodes: while one of them says that an event is
//! watched, the last part of its output is written to the store once a second.
//!
//! Nothing is written while no client watches. What was written is removed when the attempt ends or the last client is
//! gone; of a node that crashed, by the node that finds its lease expired. If the store does not respond then, it is
//! removed together with its event.

use super::Dispatcher;
use crate::decide::id::{EventId, Key};
use crate::decide::limits;
use crate::decide::shared_output::SharedOutput;
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::{Duration, Instant};

/// How often an attempt that has written nothing more, or has ended, is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often a store that did not respond is asked to remove what was shared.
const REMOVALS: u32 = 3;

/// The events whose output is shared, and until when.
#[derive(Default)]
pub(super) struct SharedEvents(Mutex<BTreeMap<EventId, Instant>>);

impl SharedEvents {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<EventId, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client watches this event; returns whether none did before. Beyond the limit it is not noted.
    fn watch(&self, event: EventId) -> bool {
        let mut all = self.lock();
        if !all.contains_key(&event) && all.len() >= limits::OUTPUT_SHARED_EVENTS_MAX {
            return false;
        }
        all.insert(event, Instant::now() + limits::OUTPUT_WATCH_LASTS).is_none()
    }

    fn is_watched(&self, event: EventId) -> bool {
        self.lock().get(&event).is_some_and(|until| Instant::now() < *until)
    }
}

impl Dispatcher {
    /// A client of another node watches this event: its output is shared for a while, if this node runs it.
    pub(super) fn share_output(&self, event: EventId) {
        if self.0.writing().contains_key(&event) && self.0.shared.watch(event) {
            self.0.tasks.spawn(self.clone().publish_output(event));
        }
    }

    async fn publish_output(self, event: EventId) {
        let (key, mut written, mut shared) = (SharedOutput::key(event), None, None);
        while let Some(now) = self.output_to_share(event) {
            let is_new = shared.as_ref() != Some(&now);
            // An error leaves what was shared before; the next look tries again.
            if is_new && replace(&*self.0.store, key, &mut written, Some(now.to_state().into())).await {
                shared = Some(now);
            }
            self.pause(event).await;
        }
        self.0.shared.lock().remove(&event);
        for _ in 0..REMOVALS {
            if replace(&*self.0.store, key, &mut written, None).await {
                return;
            }
            tokio::time::sleep(limits::OUTPUT_SHARED_EVERY).await;
        }
    }

    /// The output so far, while this node runs the event and a client watches.
    fn output_to_share(&self, event: EventId) -> Option<SharedOutput> {
        let output = self.0.writing().get(&event).cloned();
        output.filter(|_| self.0.shared.is_watched(event)).map(|output| output.shared())
    }

    /// Waits until output may be shared again, or until the attempt has ended.
    async fn pause(&self, event: EventId) {
        let until = Instant::now() + limits::OUTPUT_SHARED_EVERY;
        while Instant::now() < until && self.0.writing().contains_key(&event) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Removes what a node that is gone has shared of this event.
    pub(super) async fn unshare_output(&self, event: EventId) {
        if self.0.store.hints().is_none() {
            return; // nothing is shared in a store that only one node uses
        }
        let key = SharedOutput::key(event);
        if let Ok(Some(left)) = self.0.store.state(key).await {
            // If that fails, it is removed with its event.
            self.0.store.swap_state(key, Some(left), None).await.ok();
        }
    }
}

/// Replaces a state, whatever it is by now; `was` is what it was last known to be. Returns whether it is replaced.
async fn replace(store: &dyn Store, key: Key, was: &mut Option<Arc<str>>, is: Option<Arc<str>>) -> bool {
    for _ in 0..2 {
        match store.swap_state(key, was.clone(), is.clone()).await {
            Ok(true) => {
                *was = is;
                return true;
            }
            Ok(false) => match store.state(key).await {
                Ok(found) => *was = found,
                Err(_) => return false,
            },
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_events_are_shared_at_once_and_a_repeat_is_not_new() {
        let shared = SharedEvents::default();
        let event = |n: usize| EventId([u8::try_from(n).expect("few"); 16]);
        for n in 0..limits::OUTPUT_SHARED_EVENTS_MAX {
            assert!(shared.watch(event(n)));
            assert!(!shared.watch(event(n)), "it is shared already");
        }
        let more = event(limits::OUTPUT_SHARED_EVENTS_MAX);
        assert!(!shared.watch(more) && !shared.is_watched(more));
        assert!(shared.is_watched(event(0)));
    }
}
