//! What a deploy needs around its action: the digest that the registry's tag points to, written before the action begins.

use super::{AttemptPermit, Dispatcher, Lane, log_and_pause};
use crate::action::{Attempt, Lease, boottime};
use crate::decide::event::{Event, EventStep, Outcome};
use crate::lease::deadline;
use crate::lease::renewal::{self, ASK_AGAIN};
use crate::observe::log::StateDetails;
use crate::store::{AdvanceResult, StoreError};
use tracing::info;

/// What becomes of a step that the store does not accept, because it does not respond, until the lease is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtStoreFailure {
    /// Nothing has happened yet: the attempt is abandoned.
    Abandon,
}

impl Dispatcher {
    /// Runs the attempt: finds out what to deploy, where its route asks a registry, then acts. Returns the event as it
    /// then is, and the outcome. `None`: the attempt is over, and nothing is left to write.
    pub(super) async fn deploy(
        &self,
        lane: &Lane,
        attempt: Attempt<'_>,
        spot: &mut AttemptPermit,
    ) -> Option<(Event, Outcome)> {
        let event = match self.resolve_digest(lane, attempt).await? {
            Ok(event) => event,
            Err(ended) => return Some(*ended),
        };
        attempt.blocks.set(event.blocks);
        let digest = event.resolved.clone().filter(|_| lane.lookup.is_some());
        spot.begin();
        self.act_leased(lane, Attempt { event: &event, digest: digest.as_deref(), ..attempt }).await
    }

    /// Asks the route's registry, if it has one, what the tag of the event's image points to now, renews the lease
    /// meanwhile, and writes the digest beside the event. Returns the event as it then is, or with the outcome of an
    /// attempt that ends before its action begins. `None`: the attempt is over. Nothing has happened then, or what the
    /// event would deploy is deployed already.
    async fn resolve_digest(&self, lane: &Lane, attempt: Attempt<'_>) -> Option<Result<Event, Box<(Event, Outcome)>>> {
        let Some(lookup) = &lane.lookup else { return Some(Ok(attempt.event.clone())) };
        let asked = async {
            tokio::select! {
                found = lookup.resolve(&attempt.event.fields) => Some(found),
                _ = attempt.lease.ended() => None,
                () = self.0.stopping.cancelled() => None,
            }
        };
        let (event, found) = self.leased(lane, attempt, Box::pin(asked)).await?;
        let digest = match found.flatten() {
            Some(Ok(digest)) => digest,
            Some(Err(error)) => return Some(Err(Box::new((event, error.outcome())))),
            None => {
                self.abandon(&event, attempt.lease).await;
                return None;
            }
        };
        info!(target: "hookonce", event = %event.id, digest = digest.as_str(), "resolved");
        let step = EventStep::Resolve { digest: digest.as_str().into(), lasts: lane.route.lease };
        self.go_on_with(lane, &event, attempt.lease, &step, AtStoreFailure::Abandon).await.map(Ok)
    }

    /// Writes a step after which the attempt goes on under a longer lease. Returns the event as it was written. `None`:
    /// the attempt is over.
    async fn go_on_with(
        &self,
        lane: &Lane,
        event: &Event,
        lease: &Lease,
        step: &EventStep,
        at_failure: AtStoreFailure,
    ) -> Option<Event> {
        let mut event = event.clone();
        loop {
            let sent = boottime();
            let change = event.transition(step.clone(), &lane.route, self.0.store.now()).ok()?;
            let written = match self.0.batch.advance(change).await {
                Ok(AdvanceResult::Written { event, .. }) => Some(*event),
                Ok(AdvanceResult::Lost) => {
                    let Some(stands) = renewal::accepted(&*self.0.store, &event).await else {
                        self.lost(&event);
                        return None;
                    };
                    event = stands;
                    continue;
                }
                // If the commit did not succeed, the event is unchanged.
                Err(StoreError::Unsure(_)) => {
                    let stands = renewal::look_up(&*self.0.store, event.id).await?;
                    (stands.revision != event.revision).then_some(stands)
                }
                Err(StoreError::Broken(_)) => return None,
                Err(error @ StoreError::Down(_)) => {
                    log_and_pause(&error);
                    None
                }
            };
            match written {
                Some(is) if is.is_running_on(&self.0.node) && is.attempt == event.attempt && is.life == event.life => {
                    lease.extend(deadline(sent, lane.route.lease));
                    return Some(is);
                }
                Some(is) => {
                    self.publish_state(&is, StateDetails::default());
                    self.wake(&is);
                    return None;
                }
                None if at_failure == AtStoreFailure::Abandon && lease.term().over().is_some() => {
                    self.abandon(&event, lease).await;
                    return None;
                }
                None => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }
}
