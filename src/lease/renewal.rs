//! Runs work under a lease, which is renewed meanwhile. The attempts of the dispatcher and of the layer use this loop.

use super::{Lease, boottime, deadline};
use crate::decide::event::{Event, EventStep, RetryOwner, SucceededBlocks};
use crate::decide::id::{EventId, NodeId};
use crate::decide::source::Route;
use crate::decide::time::Duration;
use crate::observe::log;
use crate::store::batch::Batcher;
use crate::store::{AdvanceResult, Store, StoreError};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tracing::warn;

/// The delay before a store that did not respond is asked again.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(250);

/// The blocks of an attempt that have succeeded. Each is written with a renewal while the next one runs.
#[derive(Debug, Default)]
pub struct SharedSucceededBlocks {
    blocks: AtomicU64,
    notify: Notify,
}

impl SharedSucceededBlocks {
    /// Starts with the blocks of earlier attempts.
    pub fn new(blocks: SucceededBlocks) -> Self {
        Self { blocks: AtomicU64::new(blocks.0), notify: Notify::new() }
    }

    /// The blocks that have succeeded so far.
    pub fn blocks(&self) -> SucceededBlocks {
        SucceededBlocks(self.blocks.load(Ordering::Acquire))
    }

    /// Replaces the blocks by those that were written.
    pub(crate) fn set(&self, blocks: SucceededBlocks) {
        self.blocks.store(blocks.0, Ordering::Release);
    }

    /// Adds a block.
    pub fn mark_done(&self, block: usize) {
        self.blocks.fetch_or(SucceededBlocks::default().with(block).0, Ordering::AcqRel);
        self.notify.notify_one();
    }

    /// Waits for the next success, or returns at once if there was one since the last call. For one waiter.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }
}

/// Renews the lease of one attempt.
#[derive(Clone, Copy)]
pub(crate) struct LeaseRenewer<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) batch: &'a Batcher,
    /// The node that holds the event.
    pub(crate) node: &'a NodeId,
    pub(crate) route: &'a Route,
    pub(crate) lease: &'a Lease,
    pub(crate) blocks: &'a SharedSucceededBlocks,
}

/// The result of a renewal.
pub(crate) enum LeaseRenewal {
    /// The event is still this attempt's.
    Renewed(Box<Event>),
    /// Another node, or an operator, wrote the event.
    Lost,
}

/// What happens to work that is still running when its lease ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtLeaseEnd {
    /// It is dropped at once.
    Drop,
    /// It ends by itself; it is dropped if it has not done so after this time.
    Wait(Duration),
}

/// The result of work under a lease.
pub(crate) enum LeasedWorkResult<T> {
    /// Its result.
    Done(T),
    /// It was still running after its lease, and is to be dropped.
    PastLease,
    /// The lease was lost, and the result with it. `ended`: the work has ended.
    Lost { ended: bool },
}

impl LeaseRenewer<'_> {
    /// Waits for this work, and renews the lease meanwhile: at each third of it, and when a block has succeeded.
    /// `event` is always the event as it was last written.
    pub(crate) async fn act<F: Future + ?Sized>(
        &self,
        event: &mut Event,
        mut work: Pin<&mut F>,
        at_end: AtLeaseEnd,
    ) -> LeasedWorkResult<F::Output> {
        loop {
            tokio::select! {
                biased;
                done = &mut work => return LeasedWorkResult::Done(done),
                () = self.past_lease(at_end) => return LeasedWorkResult::PastLease,
                () = tokio::time::sleep(self.route.lease / 3), if self.lease.term().over().is_none() => {}
                () = self.blocks.changed() => {}
            }
            let mut done = None;
            let mut renewal = Box::pin(self.renew(event));
            // The work continues while the store is asked, and may end before it responds.
            let renewed = loop {
                tokio::select! {
                    renewed = &mut renewal => break Some(renewed),
                    _ = self.lease.ended(), if at_end == AtLeaseEnd::Drop => break None,
                    ended = &mut work, if done.is_none() => done = Some(ended),
                }
            };
            drop(renewal);
            match renewed {
                Some(LeaseRenewal::Renewed(renewed)) => *event = *renewed,
                Some(LeaseRenewal::Lost) => return LeasedWorkResult::Lost { ended: done.is_some() },
                None => return done.map_or(LeasedWorkResult::PastLease, LeasedWorkResult::Done),
            }
            if let Some(done) = done {
                return LeasedWorkResult::Done(done);
            }
        }
    }

    /// Waits until the lease has ended and the work under it must have ended, too.
    async fn past_lease(&self, at_end: AtLeaseEnd) {
        self.lease.ended().await;
        if let AtLeaseEnd::Wait(time) = at_end {
            tokio::time::sleep(time).await;
        }
    }

    /// Renews the lease: asks until the store responds, or the lease is over.
    pub(crate) async fn renew(&self, event: &Event) -> LeaseRenewal {
        let lasts = self.route.lease;
        let mut event = event.clone();
        loop {
            let sent = boottime();
            let step = EventStep::Renew { lasts, blocks: self.blocks.blocks() };
            let Ok(change) = event.transition(step, self.route, self.store.now()) else { return LeaseRenewal::Lost };
            match self.batch.advance(change).await {
                Ok(AdvanceResult::Written { event, .. }) => {
                    self.lease.extend(deadline(sent, lasts));
                    return LeaseRenewal::Renewed(event);
                }
                Ok(AdvanceResult::Lost) => match accepted(self.store, &event).await {
                    Some(stands) => {
                        event = stands;
                        continue;
                    }
                    None => return LeaseRenewal::Lost,
                },
                Err(StoreError::Unsure(_)) => match current_if_ours(self.store, self.node, &event).await {
                    Some(stands) => return LeaseRenewal::Renewed(Box::new(stands)),
                    None => return LeaseRenewal::Lost,
                },
                Err(error) => log::store_error(&error),
            }
            if self.lease.term().over().is_some() {
                return LeaseRenewal::Renewed(Box::new(event));
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// The event as it is now, if the only write since then recorded its sender's 202: its attempt continues.
pub(crate) async fn accepted(store: &dyn Store, event: &Event) -> Option<Event> {
    if event.retrier == RetryOwner::Node {
        return None;
    }
    look_up(store, event.id).await.filter(|stands| event.was_only_accepted(stands))
}

/// The event as it is now, if the same attempt of this node still holds it.
pub(crate) async fn current_if_ours(store: &dyn Store, node: &NodeId, event: &Event) -> Option<Event> {
    let holds = |now: &Event| now.is_running_on(node) && (now.life, now.attempt) == (event.life, event.attempt);
    look_up(store, event.id).await.filter(holds)
}

/// The event as it is now, as soon as the store responds.
pub(crate) async fn look_up(store: &dyn Store, id: EventId) -> Option<Event> {
    loop {
        match store.get(id).await {
            Ok(stands) => return stands,
            Err(StoreError::Broken(_)) => return None,
            Err(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
    }
}

/// Logs that another node wrote first: the result of this attempt is not the event's.
pub(crate) fn log_lost(event: &Event) {
    warn!(target: "hookonce", event = %event.id, source = &*event.source, attempt = event.attempt, "lost");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_success_is_reported_even_to_a_later_waiter() {
        let done = SharedSucceededBlocks::new(SucceededBlocks(0b1));
        done.mark_done(63);
        done.changed().await;
        assert_eq!(done.blocks(), SucceededBlocks(1 << 63 | 1));
    }
}
