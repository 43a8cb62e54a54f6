//! An attempt of this process under a lease that is renewed while the work runs, and settled with its outcome. If it is
//! dropped unsettled, by a panic or because the caller is gone, it is settled as failed in the background.

use super::acquire::{OnceEngine, ScopeRules, failed};
use crate::decide::event::{Event, EventStep, Outcome, Receipt, SucceededBlocks};
use crate::decide::retry::Jitter;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::{AttemptRecord, Transition};
use crate::lease::{BootInstant, Lease, boottime, margin};
use crate::observe::log;
use crate::store::{AdvanceResult, StoreError};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::warn;

/// The delay before an unresponsive store is tried again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long writing a result is retried.
const OFFER_MAX: Duration = Duration::from_hours(1);

/// An ended event and its kept response.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct EndedEvent {
    pub(super) event: Event,
    pub(super) receipt: Option<Receipt>,
}

/// An attempt of this process.
pub(super) struct LeasedAttempt(Option<LeasedAttemptState>);

struct LeasedAttemptState {
    engine: Arc<OnceEngine>,
    rules: Arc<ScopeRules>,
    event: Event,
    lease: Lease,
    started_at: Timestamp,
    tell: watch::Sender<Option<Arc<EndedEvent>>>,
}

/// The result of a renewal.
enum LayerLeaseRenewal {
    Renewed(Box<Event>),
    Lost,
}

impl LeasedAttempt {
    /// An attempt at this event by this process; `sent` is when its write was sent.
    pub(super) fn new(engine: Arc<OnceEngine>, rules: Arc<ScopeRules>, event: Event, sent: BootInstant) -> Self {
        let (tell, heard) = watch::channel(None);
        engine.running().insert(event.id, heard);
        let lease = Lease::until(deadline(sent, rules.route.lease));
        let started_at = engine.store.now();
        Self(Some(LeasedAttemptState { engine, rules, event, lease, started_at, tell }))
    }

    pub(super) fn event(&self) -> &Event {
        &self.attempt().event
    }

    fn attempt(&self) -> &LeasedAttemptState {
        self.0.as_ref().expect("an attempt is there until it is settled")
    }

    /// Runs the work and renews the lease meanwhile. `None`: the lease was lost, and with it the result.
    pub(super) async fn act<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let attempt = self.0.as_mut().expect("an attempt is there until it is settled");
        let third = attempt.rules.route.lease / 3;
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                _ = attempt.lease.ended() => return None,
                () = tokio::time::sleep(third) => {}
            }
            let mut done = None;
            let renewed = {
                let mut renewal = pin!(attempt.renew());
                // The work continues during the renewal and may end before it. A store that does not respond is waited
                // for only as long as the lease lasts.
                loop {
                    tokio::select! {
                        renewed = &mut renewal => break Some(renewed),
                        _ = attempt.lease.ended() => break None,
                        ended = &mut work, if done.is_none() => done = Some(ended),
                    }
                }
            };
            match renewed {
                Some(LayerLeaseRenewal::Renewed(event)) => attempt.event = *event,
                Some(LayerLeaseRenewal::Lost) => return None,
                None => return done,
            }
            if done.is_some() {
                return done;
            }
        }
    }

    /// Writes the outcome. Retries while the lease lasts; after that it continues in the background, and the caller
    /// gets an error. `Ok(None)`: another process was first.
    pub(super) async fn settle(mut self, outcome: Outcome) -> Result<Option<Arc<EndedEvent>>, StoreError> {
        let attempt = self.0.take().expect("an attempt is settled once");
        let Some(change) = attempt.change(&outcome) else { return Ok(None) };
        loop {
            match attempt.offer(&change, &outcome).await {
                Err(StoreError::Down(why)) if attempt.lease.term().over().is_some() => {
                    tokio::spawn(attempt.insist(change, outcome));
                    return Err(StoreError::Down(why));
                }
                Err(StoreError::Down(_) | StoreError::Unsure(_)) => tokio::time::sleep(ASK_AGAIN).await,
                settled => return settled,
            }
        }
    }
}

impl Drop for LeasedAttempt {
    fn drop(&mut self) {
        let Some(attempt) = self.0.take() else { return };
        let outcome = failed("it ended without an answer", None);
        // Outside of a runtime, the lease simply expires.
        if let (Ok(runtime), Some(change)) = (tokio::runtime::Handle::try_current(), attempt.change(&outcome)) {
            runtime.spawn(attempt.insist(change, outcome));
        }
    }
}

impl LeasedAttemptState {
    /// Renews the lease until the store responds or the lease is over.
    async fn renew(&self) -> LayerLeaseRenewal {
        let lasts = self.rules.route.lease;
        loop {
            let sent = boottime();
            let step = EventStep::Renew { lasts, blocks: SucceededBlocks::default() };
            let Ok(change) = self.event.transition(step, &self.rules.route, self.engine.store.now()) else {
                return LayerLeaseRenewal::Lost;
            };
            match self.engine.batch().advance(change).await {
                Ok(AdvanceResult::Written { event, .. }) => {
                    self.lease.extend(deadline(sent, lasts));
                    return LayerLeaseRenewal::Renewed(event);
                }
                Ok(AdvanceResult::Lost) => {
                    self.lost();
                    return LayerLeaseRenewal::Lost;
                }
                Err(StoreError::Unsure(_)) => match self.engine.store.get(self.event.id).await {
                    Ok(Some(event)) if self.is_mine(&event) => return LayerLeaseRenewal::Renewed(Box::new(event)),
                    Ok(_) => return LayerLeaseRenewal::Lost,
                    Err(_) => {}
                },
                Err(error) => trouble(&error),
            }
            if self.lease.term().over().is_some() {
                return LayerLeaseRenewal::Renewed(Box::new(self.event.clone()));
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    fn change(&self, outcome: &Outcome) -> Option<Transition> {
        let now = self.engine.store.now();
        let step =
            EventStep::Settle { outcome: outcome.clone(), blocks: SucceededBlocks::default(), jitter: Jitter(0) };
        let mut change = self.event.transition(step, &self.rules.route, now).ok()?;
        change.attempt = Some(AttemptRecord {
            life: self.event.life,
            attempt: self.event.attempt,
            started_at: self.started_at,
            ended_at: now,
            outcome: outcome.word().into(),
            why: outcome.why().into(),
            output: Vec::new(),
        });
        Some(change)
    }

    /// Writes the result once; notifies local waiters.
    async fn offer(&self, change: &Transition, outcome: &Outcome) -> Result<Option<Arc<EndedEvent>>, StoreError> {
        let written = match self.engine.batch().advance(change.clone()).await {
            Ok(AdvanceResult::Written { event, .. }) => *event,
            Ok(AdvanceResult::Lost) => {
                self.lost();
                return Ok(None);
            }
            Err(StoreError::Unsure(why)) => match self.engine.store.get(self.event.id).await? {
                Some(event) if event.revision == self.event.revision => return Err(StoreError::Unsure(why)),
                Some(event) if event.revision == change.event.revision && event.state.ended().is_some() => event,
                _ => return Ok(None),
            },
            Err(error) => {
                trouble(&error);
                return Err(error);
            }
        };
        let ended = Arc::new(EndedEvent { event: written, receipt: outcome.receipt().cloned() });
        self.tell.send_replace(Some(ended.clone()));
        Ok(Some(ended))
    }

    async fn insist(self, change: Transition, outcome: Outcome) {
        let until = boottime() + OFFER_MAX;
        while let Err(StoreError::Down(_) | StoreError::Unsure(_)) = self.offer(&change, &outcome).await {
            if until.passed() {
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    fn is_mine(&self, event: &Event) -> bool {
        event.is_running_on(&self.engine.node) && (event.life, event.attempt) == (self.event.life, self.event.attempt)
    }

    /// Another process wrote first: this attempt's outcome is discarded.
    fn lost(&self) {
        let event = &self.event;
        warn!(target: "hookonce", event = %event.id, source = &*event.source, attempt = event.attempt, "lost");
    }
}

impl Drop for LeasedAttemptState {
    /// Unregisters this attempt, unless a later attempt of the same event has replaced it.
    fn drop(&mut self) {
        let mut running = self.engine.running();
        let mine = self.tell.subscribe();
        if running.get(&self.event.id).is_some_and(|heard| heard.same_channel(&mine)) {
            running.remove(&self.event.id);
        }
    }
}

/// The deadline of the work: counted from before the write was sent, never from the response.
fn deadline(sent: BootInstant, lease: Duration) -> BootInstant {
    sent + lease.saturating_sub(margin(lease))
}

fn trouble(error: &StoreError) {
    log::store_error(error);
}
