//! What a deploy needs around its action.
//!
//! ```text
//! registry ─▶ Resolve ─▶ action ─▶ Deploy ─▶ health check ─▶ Settle
//!             digest     begins    has succeeded: from now on, only the check is repeated after a crash
//! ```

use super::{AttemptPermit, Dispatcher, Lane, log_and_pause};
use crate::action::health_check::HealthVerdict;
use crate::action::{Attempt, Lease, boottime};
use crate::decide::action_kind::ActionKind;
use crate::decide::event::{Event, EventStep, Origin, Outcome};
use crate::decide::source::OnUnhealthy;
use crate::decide::transition::ReceiptUpdate;
use crate::lease::deadline;
use crate::lease::renewal::{self, ASK_AGAIN};
use crate::observe::log::StateDetails;
use crate::store::{AdvanceResult, StoreError};
use tracing::{info, warn};

/// What becomes of a step that the store does not accept, because it does not respond, until the lease is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtStoreFailure {
    /// Nothing has happened yet: the attempt is abandoned.
    Abandon,
    /// The action has succeeded: it is written again and again.
    Persist,
}

/// Whether the body of the last good event is still kept, for a roll-back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RollbackBody {
    /// It is; or this is no roll-back.
    Kept,
    /// It is not: a command can do without it, a receiver cannot.
    Forgotten,
}

impl Dispatcher {
    /// Runs the attempt: finds out what to deploy, where its route asks a registry, then acts, then checks the health of
    /// the result, where its route does. Returns the event as it then is, and the outcome. `None`: the attempt is over,
    /// and nothing is left to write.
    pub(super) async fn deploy(
        &self,
        lane: &Lane,
        attempt: Attempt<'_>,
        body: RollbackBody,
        spot: &mut AttemptPermit,
    ) -> Option<(Event, Outcome)> {
        log_rollback(attempt.event);
        if attempt.event.blocks.acted() {
            return self.check_health(lane, attempt, Outcome::Delivered(None)).await;
        }
        if body == RollbackBody::Forgotten && lane.action_kind() != Some(ActionKind::Run) {
            let why = "the body of the last good event is no longer kept".to_owned();
            return Some((attempt.event.clone(), Outcome::Rejected { why, receipt: None }));
        }
        let event = match self.resolve_digest(lane, attempt).await? {
            Ok(event) => event,
            Err(ended) => return Some(*ended),
        };
        attempt.blocks.set(event.blocks);
        spot.begin();
        let digest = deployed_digest(lane, &event);
        let (event, outcome) = self.act_leased(lane, Attempt { event: &event, digest, ..attempt }).await?;
        let ends = !matches!(outcome, Outcome::Delivered(_)) || lane.health.is_none();
        if ends {
            return Some((event, outcome));
        }
        let step = EventStep::Deploy { blocks: attempt.blocks.blocks(), lasts: lane.route.lease };
        let event = self.go_on_with(lane, &event, attempt.lease, &step, AtStoreFailure::Persist).await?;
        info!(target: "hookonce", event = %event.id, source = &*event.source, "deployed");
        attempt.blocks.set(event.blocks);
        self.check_health(lane, Attempt { event: &event, ..attempt }, outcome).await
    }

    /// Checks the health of what the attempt deployed, and renews the lease meanwhile. `acted` is the outcome of the
    /// action itself.
    async fn check_health(&self, lane: &Lane, attempt: Attempt<'_>, acted: Outcome) -> Option<(Event, Outcome)> {
        // Its route had a health check when it acted.
        let Some(health) = &lane.health else { return Some((attempt.event.clone(), acted)) };
        let attempt = Attempt { digest: deployed_digest(lane, attempt.event), ..attempt };
        let checked = async {
            tokio::select! {
                verdict = health.check(attempt) => verdict,
                () = self.0.stopping.cancelled() => {
                    HealthVerdict::Interrupted("the node stopped; the health of what it deployed is checked again".into())
                }
            }
        };
        let (event, verdict) = self.leased(lane, attempt, Box::pin(checked)).await?;
        let outcome = match verdict {
            Some(HealthVerdict::Healthy) => acted,
            Some(HealthVerdict::Unhealthy(why)) => Outcome::Unhealthy { why, receipt: acted.receipt().cloned() },
            Some(HealthVerdict::Interrupted(why)) => Outcome::Unknown { why },
            None => Outcome::Unknown { why: "the health check did not end with its lease, and was abandoned".into() },
        };
        Some((event, outcome))
    }

    /// Reports what follows an unhealthy deploy: the roll-back, or why there is none yet.
    pub(super) async fn report_rollback(&self, lane: &Lane, event: &Event) {
        if lane.route.on_unhealthy == OnUnhealthy::Hold || event.is_rollback() {
            return;
        }
        match self.0.store.get(event.rollback_id()).await {
            Ok(Some(rollback)) => {
                self.publish_state(&rollback, StateDetails::default());
                self.wake(&rollback);
            }
            Ok(None) => {
                let why = "not rolled back: no other event of its subject was good, its digest is not known, or a newer one comes next";
                warn!(target: "hookonce", event = %event.id, why, "rollback");
            }
            Err(error) => drop(log_and_pause(&error)),
        }
    }

    /// Asks the route's registry, if it has one, what the tag of the event's image points to now, renews the lease
    /// meanwhile, and writes the digest beside the event. Returns the event as it then is, or with the outcome of an
    /// attempt that ends before its action begins. `None`: the attempt is over. Nothing has happened then, or what the
    /// event would deploy is deployed already, and the registry may be asked again.
    async fn resolve_digest(&self, lane: &Lane, attempt: Attempt<'_>) -> Option<Result<Event, Box<(Event, Outcome)>>> {
        let Some(lookup) = lane.lookup.as_ref().filter(|_| !attempt.event.is_rollback()) else {
            return Some(Ok(attempt.event.clone()));
        };
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
                self.abandon(lane, &event, attempt.lease).await;
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
                Ok(AdvanceResult::Written { event, now }) => Some((*event, now)),
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
                    (stands.revision != event.revision).then(|| (stands, self.0.store.now()))
                }
                Err(StoreError::Broken(_)) => return None,
                Err(error @ StoreError::Down(_)) => {
                    log_and_pause(&error);
                    None
                }
            };
            match written {
                Some((is, _))
                    if is.is_running_on(&self.0.node) && is.attempt == event.attempt && is.life == event.life =>
                {
                    lease.extend(deadline(sent, lane.route.lease));
                    return Some(is);
                }
                Some((is, now)) => {
                    let ended = AdvanceResult::Written { event: Box::new(is), now };
                    self.report_advance(&ended, None, ReceiptUpdate::Unchanged, StateDetails::default());
                    return None;
                }
                None if at_failure == AtStoreFailure::Abandon && lease.term().over().is_some() => {
                    self.abandon(lane, &event, lease).await;
                    return None;
                }
                None => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }
}

/// Logs that a roll-back begins. It may have been made by the end of another event than the unhealthy one.
fn log_rollback(event: &Event) {
    if let Some(Origin::Rollback { from, to }) = event.origin
        && (event.life, event.attempt) == (1, 1)
    {
        warn!(target: "hookonce", event = %event.id, bad = %from, good = %to, "rollback");
    }
}

/// The digest that an attempt deploys: what it resolved to, or what the last good event did.
fn deployed_digest<'e>(lane: &Lane, event: &'e Event) -> Option<&'e str> {
    event.resolved.as_deref().filter(|_| lane.has_digests() || event.is_rollback())
}
