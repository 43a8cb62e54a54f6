//! Catches up with senders that do not redeliver by themselves: at the start, after an outage and on a schedule, a node
//! lists the deliveries of a source's hook and asks the sender for those that were missed.
//!
//! The rules are in `decide/catch_up`. What is asked for arrives at the webhook port and is verified as always: nothing
//! here makes an event. How far the catch-up is stands in the store, with the lease of the node that goes on alone.
pub(crate) mod app_token;
mod attempt_list;
pub(crate) mod catch_up_plan;
pub(crate) mod error;
pub(crate) mod hook_api;

pub(crate) use app_token::AppKey;
pub(crate) use catch_up_plan::{CatchUpPlan, HookApiCredentials, HookApiSecret, SenderHook};
pub(crate) use error::{HookApiError, HookApiFailure};
pub(crate) use hook_api::{HookApi, HookListing};

use crate::decide::catch_up::{
    CatchUpResult, CatchUpState, CatchUpStep, CatchUpSummary, ListedAttempt, MissedDelivery,
};
use crate::decide::id::Key;
use crate::decide::limits::{CATCH_UP_AFTER_OUTAGE, LOOK_EVERY};
use crate::decide::source::Source;
use crate::decide::time::{Duration, Timestamp};
use crate::engine::dispatcher::jitter;
use crate::observe::delivery_log::DeliveryVerdict;
use crate::observe::log;
use crate::observe::metrics::{Metrics, SourceCounter};
use crate::store::batch::LastWriteStatus;
use crate::store::retention::NodeTopology;
use crate::store::{Inspect, StoreError};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The shortest rest between two looks at a state that says to wait.
const REST_MIN: Duration = Duration::from_millis(5);
/// Events under one delivery id that are looked at: a route may make several of one delivery.
const NAMESAKES_MAX: usize = 16;

/// What the catch-ups of a node use.
#[derive(Clone)]
pub(crate) struct CatchUpContext {
    /// Where the states and the events are.
    pub(crate) store: Arc<dyn Inspect>,
    /// This process, as no other is called.
    pub(crate) node: String,
    /// Whether other nodes may use the same store.
    pub(crate) nodes: NodeTopology,
    /// The counters of deliveries, which show that some got 503.
    pub(crate) metrics: Arc<Metrics>,
    /// Whether the store's last write failed.
    pub(crate) last_write: LastWriteStatus,
    /// The node is about to stop, or is configured anew.
    pub(crate) draining: CancellationToken,
}

/// The catch-ups of a node, by the keys of their states. Each ends with what it knows of outages.
pub(crate) type RunningCatchUps = HashMap<Key, JoinHandle<OutageMonitor>>;

/// Starts the catch-up of each of these sources. What `former` knows of outages is known to those that follow.
pub(crate) fn start(
    apis: Vec<HookApi>,
    context: &CatchUpContext,
    mut former: HashMap<Key, OutageMonitor>,
) -> RunningCatchUps {
    let one = |api: HookApi| {
        let key = api.plan().state_key(api.source());
        let outages = former.remove(&key).unwrap_or_else(|| OutageMonitor::new(context, api.source()));
        let own = SourceCatchUp { api, key, outages, context: context.clone() };
        (key, tokio::spawn(own.run()))
    };
    apis.into_iter().map(one).collect()
}

/// The catch-up of one source on this node.
struct SourceCatchUp {
    api: HookApi,
    key: Key,
    outages: OutageMonitor,
    context: CatchUpContext,
}

impl SourceCatchUp {
    async fn run(mut self) -> OutageMonitor {
        let draining = self.context.draining.clone();
        while let Some(done) = draining.run_until_cancelled(self.step()).await {
            let rest = done.unwrap_or_else(|error| {
                self.outages.seen();
                log::store_warning(&error);
                LOOK_EVERY
            });
            if draining.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                break;
            }
        }
        self.outages
    }

    /// Does what is to be done now; returns how long to rest.
    async fn step(&mut self) -> Result<Duration, StoreError> {
        let kept = self.context.store.state(self.key).await?;
        let (state, now) = (CatchUpState::read(kept.as_deref()), self.context.store.now());
        if let Some(over) = self.outages.over(&self.context, self.api.source()) {
            // No other node can use the store, so that a lease in it is that of a process which is gone.
            let is_gone = over == OutageEnd::Start && self.context.nodes == NodeTopology::One;
            let state = if is_gone { state.released() } else { state };
            if self.swap(kept, &state.requested(now)).await? {
                self.outages.settled();
            }
            return Ok(Duration::ZERO);
        }
        let step = state.next_step(&self.api.plan().policy, &self.context.node, now);
        if let CatchUpStep::Wait(until) = step {
            return Ok(until.since(now).clamp(REST_MIN, LOOK_EVERY));
        }
        if state.is_held_by(&self.context.node, now) {
            let result = self.perform(step).await?;
            self.settle(&result).await?;
        } else {
            self.swap(kept, &state.taken_by(&self.context.node, now)).await?;
        }
        Ok(Duration::ZERO)
    }

    async fn swap(&self, was: Option<Arc<str>>, is: &CatchUpState) -> Result<bool, StoreError> {
        self.context.store.swap_state(self.key, was, Some(is.text().into())).await
    }

    async fn perform(&self, step: CatchUpStep) -> Result<CatchUpResult, StoreError> {
        if let CatchUpStep::Redeliver(missed) = &step
            && has_delivery(&*self.context.store, &self.api.source().name, &missed.delivery).await?
        {
            return Ok(CatchUpResult::Had);
        }
        let source = &*self.api.source().name;
        let (result, failed) = perform(&self.api, &step, self.context.store.wall_time()).await;
        if let Some(error) = failed {
            let (why, delivery) = (error.to_string(), missed(&step).map(|missed| &*missed.delivery));
            log::rate_limited("catch_up", &format!("{source} {why}"), |times| {
                warn!(target: "hookonce", source, delivery, why, times, "catch_up");
            });
        }
        Ok(result)
    }

    /// Writes a result. Another node may have asked for a catch-up meanwhile; the result counts as long as this one holds
    /// the lease.
    async fn settle(&self, result: &CatchUpResult) -> Result<(), StoreError> {
        let (source, policy) = (self.api.source(), &self.api.plan().policy);
        let matters = |attempt: &ListedAttempt| may_matter(&self.api, attempt);
        loop {
            let kept = self.context.store.state(self.key).await?;
            let (state, now) = (CatchUpState::read(kept.as_deref()), self.context.store.now());
            if !state.is_held_by(&self.context.node, now) {
                return Ok(());
            }
            let before = state.last().copied();
            let state = state.after(policy, result.clone(), matters, now, jitter());
            if self.swap(kept, &state).await? {
                if *result == CatchUpResult::Asked {
                    self.context.metrics.asked_again(&source.name);
                }
                if let Some(last) = state.last().filter(|last| before.as_ref() != Some(last)) {
                    self.context.metrics.caught_up(&source.name, last.ended_at);
                    log_end(source, last);
                }
                return Ok(());
            }
        }
    }
}

/// Makes the request of a step; a failure is also a result. `now` is the wall clock's time.
pub(crate) async fn perform(
    api: &HookApi,
    step: &CatchUpStep,
    now: Timestamp,
) -> (CatchUpResult, Option<HookApiError>) {
    let done = match step {
        CatchUpStep::List { cursor, etag } => {
            let listed = api.list(cursor.as_deref(), etag.as_deref(), now).await;
            listed.map(|listing| match listing {
                HookListing::Page(page) => CatchUpResult::Listed(page),
                HookListing::Unchanged => CatchUpResult::Unchanged,
            })
        }
        CatchUpStep::Redeliver(missed) => api.redeliver(missed.attempt, now).await.map(|()| CatchUpResult::Asked),
        CatchUpStep::Wait(_) => return (CatchUpResult::Had, None),
    };
    match done {
        Ok(result) => (result, None),
        Err(error) => {
            let result = match (error.kind, missed(step)) {
                (HookApiFailure::Refused, Some(_)) => CatchUpResult::NotAgain,
                (HookApiFailure::Refused, None) => CatchUpResult::PositionLost,
                (HookApiFailure::Unavailable { retry_after }, _) => CatchUpResult::Failed { retry_after },
                (HookApiFailure::Denied | HookApiFailure::Malformed, _) => CatchUpResult::Failed { retry_after: None },
            };
            (result, Some(error))
        }
    }
}

/// Whether a route of the API's source could want this attempt's delivery.
pub(crate) fn may_matter(api: &HookApi, attempt: &ListedAttempt) -> bool {
    attempt.may_matter(api.source(), api.plan().hook.kind_header())
}

fn missed(step: &CatchUpStep) -> Option<&MissedDelivery> {
    match step {
        CatchUpStep::Redeliver(missed) => Some(missed),
        CatchUpStep::Wait(_) | CatchUpStep::List { .. } => None,
    }
}

/// Whether the store has an event of this delivery. A delivery that was a duplicate leaves no event of its own: it is
/// asked for once more, is a duplicate again, and has then succeeded at its sender.
pub(crate) async fn has_delivery(store: &dyn Inspect, source: &str, delivery: &str) -> Result<bool, StoreError> {
    let events = store.find_by_name(delivery.to_owned(), NAMESAKES_MAX).await?;
    Ok(events.iter().any(|event| *event.source == *source && event.delivery_id.as_deref() == Some(delivery)))
}

fn log_end(source: &Source, last: &CatchUpSummary) {
    let (counts, took_ms) = (last.counts, log::millis(last.ended_at.since(last.began_at)));
    let given_up = Some(counts.given_up).filter(|many| *many > 0);
    let source = &*source.name;
    info!(
        target: "hookonce",
        source,
        listed = counts.listed,
        asked = counts.asked,
        had = counts.had,
        given_up,
        took_ms,
        "catch_up"
    );
}

/// Why a catch-up is due at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OutageEnd {
    /// The node has started.
    Start,
    /// The store can be used again, or senders no longer get 503.
    Recovered,
}

/// Notices that the node could not accept deliveries, and when that is over.
pub(crate) struct OutageMonitor {
    /// The node has just started.
    is_new: bool,
    /// Deliveries of the source that got 503 so far.
    unavailable: u64,
    write_failed: bool,
    last_sign: Option<Instant>,
}

impl OutageMonitor {
    fn new(context: &CatchUpContext, source: &Source) -> Self {
        let unavailable = unavailable(&context.metrics, source);
        Self { is_new: true, unavailable, write_failed: context.last_write.failed(), last_sign: None }
    }

    /// Notes that the store did not respond.
    fn seen(&mut self) {
        self.last_sign = Some(Instant::now());
    }

    /// Whether an outage is over. A write that failed is a sign once: without deliveries no other write follows.
    fn over(&mut self, context: &CatchUpContext, source: &Source) -> Option<OutageEnd> {
        let (unavailable, failed) = (unavailable(&context.metrics, source), context.last_write.failed());
        if unavailable != self.unavailable || (failed && !self.write_failed) {
            self.seen();
        }
        (self.unavailable, self.write_failed) = (unavailable, failed);
        if self.is_new {
            return Some(OutageEnd::Start);
        }
        self.last_sign.filter(|at| at.elapsed() >= CATCH_UP_AFTER_OUTAGE).map(|_| OutageEnd::Recovered)
    }

    /// Notes that the catch-up is asked for.
    fn settled(&mut self) {
        (self.is_new, self.last_sign) = (false, None);
    }
}

fn unavailable(metrics: &Metrics, source: &Source) -> u64 {
    metrics.source(&source.name).count(SourceCounter::Delivery(DeliveryVerdict::Unavailable))
}
