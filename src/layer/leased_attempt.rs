//! An attempt of this process under a lease that is renewed while the work runs, and settled with its outcome. If it is
//! dropped unsettled, by a panic or because the caller is gone, it is settled as failed in the background.

use super::acquire::{OnceEngine, ScopeRules, failed};
use crate::decide::event::{Event, EventStep, Outcome, Receipt, SucceededBlocks};
use crate::decide::id::{EventId, Revision};
use crate::decide::retry::Jitter;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::{AttemptRecord, Transition};
use crate::lease::renewal::{self, ASK_AGAIN, AtLeaseEnd, LeaseRenewer, LeasedWorkResult, SharedSucceededBlocks};
use crate::lease::{BootInstant, Lease, boottime, deadline};
use crate::observe::log;
use crate::observe::trace_span::TraceSpan;
use crate::store::{AdvanceResult, StoreError};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

/// How long writing a result is retried while the store is unavailable.
const OFFER_MAX: Duration = Duration::from_hours(1);

/// An event that has ended, and its receipt.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct EndedEventWithReceipt {
    pub(super) event: Event,
    pub(super) receipt: Option<Receipt>,
}

/// An attempt whose lease this process holds; dropped unfinished, it is written as failed.
pub(super) struct LeasedAttempt(Option<LeasedAttemptState>);

struct LeasedAttemptState {
    engine: Arc<OnceEngine>,
    rules: Arc<ScopeRules>,
    event: Event,
    lease: Lease,
    started_at: Timestamp,
    /// The span of the work, once it has begun.
    span: Option<TraceSpan>,
    /// The key of this attempt in [`OnceEngine::running`].
    registered: (EventId, Revision),
}

impl LeasedAttempt {
    /// An attempt at this event by this process; `sent` is when its write was sent.
    pub(super) fn new(engine: Arc<OnceEngine>, rules: Arc<ScopeRules>, event: Event, sent: BootInstant) -> Self {
        let registered = (event.id, event.revision);
        engine.running().insert(registered);
        let lease = Lease::until(deadline(sent, rules.route.lease));
        let started_at = engine.store.now();
        Self(Some(LeasedAttemptState { engine, rules, event, lease, started_at, span: None, registered }))
    }

    pub(super) fn event(&self) -> &Event {
        &self.attempt().event
    }

    fn attempt(&self) -> &LeasedAttemptState {
        self.0.as_ref().expect("an attempt is there until it is settled")
    }

    /// Runs the work, renewing the lease meanwhile. `None` if the lease was lost, and with it the result.
    pub(super) async fn act<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let attempt = self.0.as_mut().expect("an attempt is there until it is settled");
        let LeasedAttemptState { engine, rules, event, lease, span, .. } = attempt;
        let span = span.insert(begin_span(event, engine));
        let (store, batch, node) = (&*engine.store, engine.batch(), &engine.node);
        let blocks = SharedSucceededBlocks::default();
        let renewer = LeaseRenewer { store, batch, node, route: &rules.route, lease, blocks: &blocks };
        match renewer.act(event, pin!(span.run(work)), AtLeaseEnd::Drop).await {
            LeasedWorkResult::Done(done) => Some(done),
            LeasedWorkResult::PastLease => None,
            LeasedWorkResult::Lost { .. } => {
                renewal::log_lost(event);
                None
            }
        }
    }

    /// Writes the outcome. Retries while the lease lasts; after that it continues in the background, and the caller
    /// gets an error. `Ok(None)`: another process was first.
    pub(super) async fn settle(mut self, outcome: Outcome) -> Result<Option<Arc<EndedEventWithReceipt>>, StoreError> {
        let mut attempt = self.0.take().expect("an attempt is settled once");
        if let Some(span) = &mut attempt.span {
            span.settled(&outcome);
        }
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
        let outcome = failed("it ended without a response", None);
        // Outside of a runtime, the lease simply expires.
        if let (Ok(runtime), Some(change)) = (tokio::runtime::Handle::try_current(), attempt.change(&outcome)) {
            runtime.spawn(attempt.insist(change, outcome));
        }
    }
}

impl LeasedAttemptState {
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
    async fn offer(
        &self,
        change: &Transition,
        outcome: &Outcome,
    ) -> Result<Option<Arc<EndedEventWithReceipt>>, StoreError> {
        let written = match self.engine.batch().advance(change.clone()).await {
            Ok(AdvanceResult::Written { event, .. }) => *event,
            Ok(AdvanceResult::Lost) => {
                renewal::log_lost(&self.event);
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
        let ended = Arc::new(EndedEventWithReceipt { event: written, receipt: outcome.receipt().cloned() });
        self.engine.ends.tell(self.event.id, || ended.clone());
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
}

impl Drop for LeasedAttemptState {
    /// Unregisters this attempt. Requests that still wait for it look at the store.
    fn drop(&mut self) {
        self.engine.running().remove(&self.registered);
        self.engine.ends.release(self.event.id);
    }
}

/// The span of an attempt, within the one of its request.
fn begin_span(event: &Event, engine: &OnceEngine) -> TraceSpan {
    let mut span = TraceSpan::begin("attempt", None);
    if span.is_enabled() {
        span.tell("event", &event.id.to_string());
        span.tell("source", &event.source);
        span.tell("attempt", &event.attempt.to_string());
        span.tell("node", &engine.node.0);
    }
    span
}

fn trouble(error: &StoreError) {
    log::store_error(error);
}
