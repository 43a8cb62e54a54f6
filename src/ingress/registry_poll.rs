//! A tag of a container registry as a source: each new digest takes the same walk as any delivery.
//!
//! ```text
//! state in the store ─▶ next_step ─┬▶ wait
//!   ▲  one node holds it           ├▶ ask the registry ─────────────────▶ what it said ─▶ state
//!   └──────────────────────────────└▶ act ─▶ Gateway::receive_delivery ─▶ acted on it ──▶ state
//! ```
//!
//! All nodes share one state (`decide/poll_schedule.rs`), which is replaced only by a node that has read it. A node that
//! asks or acts holds it for a short time; if it dies, another node does the same again. The claim makes that harmless:
//! the delivery has the same bytes. A node that was held up, and acts on what is old by then, is stale: `seen_at` is the
//! order of the changes.

use super::http::CurrentIngest;
use crate::config::{Config, PollPlan};
use crate::decide::field::StoredFields;
use crate::decide::id::Key;
use crate::decide::image_reference::ManifestDigest;
use crate::decide::limits::{POLL_LEASE, POLL_LOOK};
use crate::decide::poll_schedule::{PollResult, PollState, PollStep};
use crate::decide::source::Source;
use crate::decide::time::{Duration, Timestamp, duration_text};
use crate::engine::dispatcher::jitter;
use crate::engine::gateway::DeliveryClient;
use crate::observe::log;
use crate::observe::metrics::PollCounter;
use crate::registry::{LookupError, LookupFailure, LookupPlan, RegistryClients, RegistryLookup};
use crate::store::{Store, StoreError};
use serde_json::json;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The delay after another node was faster, or the store did not respond.
const AGAIN: Duration = Duration::from_millis(500);

/// What the pollers of a node need.
#[derive(Clone)]
pub(crate) struct PollContext {
    /// The sources and the gateway that handles deliveries, as configured now.
    pub port: CurrentIngest,
    /// The store, with the state that all nodes share.
    pub store: Arc<dyn Store>,
    /// The node is about to stop, or polls this tag no more.
    pub draining: CancellationToken,
}

/// A tag to poll.
pub(crate) struct PollIntake {
    /// The name of its source.
    pub source: Arc<str>,
    /// Which tag, and how often.
    pub plan: PollPlan,
    /// Where the state is.
    pub key: Key,
    lookup: RegistryLookup,
}

impl PollIntake {
    /// Every tag of the config. An error is a sentence.
    pub(crate) fn all(config: &Config) -> Result<Vec<Self>, String> {
        let mut registries = RegistryClients::default();
        let sources = config.sources.iter().filter_map(|source| Some((source, config.polls.get(&source.name)?)));
        let one = |(source, plan): (&Arc<Source>, &PollPlan)| {
            let lookup = registries.lookup(&plan.question);
            let lookup = lookup.map_err(|cannot| format!("source {}: {cannot}", source.name))?;
            let (source, key) = (source.name.clone(), plan.state_key(&source.scope));
            Ok(Self { source, plan: plan.clone(), key, lookup })
        };
        sources.map(one).collect()
    }

    /// Polls the tag until the node drains.
    pub(crate) fn start(self, context: PollContext) -> JoinHandle<()> {
        let Self { source, plan, key, lookup } = self;
        tokio::spawn(RegistryPoller { source, plan, lookup, key, context, failing: None }.run())
    }
}

/// Polls one tag.
struct RegistryPoller {
    source: Arc<str>,
    plan: PollPlan,
    lookup: RegistryLookup,
    /// Where the state is.
    key: Key,
    context: PollContext,
    /// Why the last question of this node failed.
    failing: Option<String>,
}

impl RegistryPoller {
    async fn run(mut self) {
        let draining = self.context.draining.clone();
        while !draining.is_cancelled() {
            let wait = self.step().await.unwrap_or_else(|error| {
                log::store_warning(&error);
                AGAIN
            });
            draining.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
    }

    /// Does what is due, if no other node does it. Returns how long there is nothing to do.
    async fn step(&mut self) -> Result<Duration, StoreError> {
        let was = self.context.store.state(self.key).await?;
        let now = self.context.store.now();
        let Some(state) = was.as_deref().and_then(PollState::from_json) else {
            let new = PollState::new(&self.plan.policy, now, jitter());
            self.replace(was, &new).await?;
            return Ok(Duration::ZERO);
        };
        let step = state.next_step(&self.plan.policy, now);
        if let PollStep::Wait(until) = step {
            return Ok(until.since(now).min(POLL_LOOK));
        }
        let held = state.clone().held(now + self.plan.question.timeout + POLL_LEASE);
        if !self.replace(was, &held).await? {
            return Ok(AGAIN);
        }
        let next = match step {
            PollStep::Act(digest) => self.act(&state, digest).await,
            PollStep::Ask | PollStep::Wait(_) => Some(self.ask(state).await),
        };
        // Otherwise it stays held for a while, and is tried again.
        let Some(next) = next else { return Ok(AGAIN) };
        let written = self.replace(Some(held.to_json().into()), &next).await?;
        Ok(if written { Duration::ZERO } else { AGAIN })
    }

    /// Replaces the state, unless another node has done so. Returns whether it did.
    async fn replace(&self, was: Option<Arc<str>>, is: &PollState) -> Result<bool, StoreError> {
        self.context.store.swap_state(self.key, was, Some(is.to_json().into())).await
    }

    /// Asks the registry; returns the state after that. A node that stops gives the question back.
    async fn ask(&mut self, state: PollState) -> PollState {
        let no_fields = StoredFields::default();
        let asked = self.lookup.resolve(&no_fields);
        let Some(found) = self.context.draining.run_until_cancelled(asked).await else { return state };
        let now = self.context.store.now();
        let (result, why) = match found {
            Ok(digest) => (PollResult::Digest(digest), None),
            Err(error) => self.failed(error),
        };
        let before = state.current.clone();
        let is_failure = why.is_some();
        let next = state.after(&self.plan.policy, result, now, jitter());
        let count = match (&next.current, is_failure) {
            (Some(_), false) if next.current == before => PollCounter::Same,
            (Some(_), false) => PollCounter::New,
            (None, _) if next.failures == 0 => PollCounter::Missing,
            _ => PollCounter::Failed,
        };
        self.context.port.get().gateway.observer().polled(&self.source, count);
        self.log(count, why, &next, now);
        next
    }

    /// What a failed question means, and why it failed.
    fn failed(&self, error: LookupError) -> (PollResult, Option<String>) {
        let LookupError { kind, why } = error;
        let LookupPlan { registry, image, tag, .. } = &self.plan.question;
        match kind {
            LookupFailure::NotFound => {
                let why = format!("the registry {} has no {image}:{tag}", registry.address);
                (PollResult::NotFound, Some(why))
            }
            LookupFailure::Unavailable { retry_after } | LookupFailure::RateLimited { retry_after } => {
                (PollResult::Failed { retry_after }, Some(why))
            }
            LookupFailure::Denied
            | LookupFailure::Malformed
            | LookupFailure::Credentials
            | LookupFailure::Reference => (PollResult::Failed { retry_after: None }, Some(why)),
        }
    }

    /// Logs a new digest, and each failure once until it is over.
    fn log(&mut self, count: PollCounter, why: Option<String>, next: &PollState, now: Timestamp) {
        let source = &*self.source;
        let was_failing = self.failing.is_some();
        if let Some(why) = why {
            if self.failing.as_ref() != Some(&why) {
                let wait = duration_text(whole_seconds(next.next_at.since(now)));
                warn!(target: "hookonce", source, why, wait, "poll");
            }
            self.failing = Some(why);
            return;
        }
        self.failing = None;
        if count == PollCounter::New || was_failing {
            let digest = next.current.as_ref().map(ManifestDigest::as_str);
            let pending = next.pending(&self.plan.policy).map(|(_, old_enough)| old_enough.since(now));
            let wait = pending.filter(|wait| !wait.is_zero()).map(|wait| duration_text(whole_seconds(wait)));
            info!(target: "hookonce", source, digest, wait, "polled");
        }
    }

    /// Makes a delivery of a new digest; returns the state after that, or `None` if it could not be stored.
    async fn act(&self, state: &PollState, digest: ManifestDigest) -> Option<PollState> {
        let LookupPlan { registry, image, tag, .. } = &self.plan.question;
        let body = json!({
            "registry": registry.address.to_string(),
            "image": image.to_string(),
            "tag": tag.to_string(),
            "digest": digest.as_str(),
            "seen_at": state.changed_at,
        });
        let headers = [("content-type", b"application/json".as_slice())];
        let port = self.context.port.get();
        let source = port.sources.named(&self.source)?;
        let path = (source.path.shown(), "");
        let body = body.to_string().into();
        let received = port.gateway.receive_delivery(source, path, &headers, body, DeliveryClient::default()).await;
        (received.response.status < 500).then(|| state.clone().acted(digest))
    }
}

/// A time without its fraction of a second; at least one second.
fn whole_seconds(length: Duration) -> Duration {
    Duration::from_secs(length.as_secs().max(1))
}
