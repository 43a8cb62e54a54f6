//! `/api/polled`: what all nodes know of the tags that sources poll.

use super::openapi::StoreDown;
use super::{AdminState, unavailable};
use crate::config::{Config, PollPlan};
use crate::decide::id::Key;
use crate::decide::image_reference::ManifestDigest;
use crate::decide::poll_schedule::PollState;
use crate::decide::time::Timestamp;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// A source that polls a tag.
pub(super) struct PolledSource {
    name: Arc<str>,
    plan: PollPlan,
    key: Key,
}

/// The polled tags of the config.
#[derive(Serialize, ToSchema)]
pub(super) struct PolledTagList {
    polled: Vec<PolledTag>,
}

/// A polled tag.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "source": "app", "digest": "sha256:0de0…", "since": "2026-02-07T15:20:41.000000Z",
    "acted_on": null, "acts_at": "2026-02-08T15:20:41.000000Z", "asked_at": "2026-02-07T15:20:41.000000Z",
    "next_at": "2026-02-07T15:25:50.000000Z", "failures": 0,
}))]
struct PolledTag {
    source: String,
    /// What the tag points to, as the registry last said; null if it has never said so, or has no such tag.
    #[schema(required)]
    digest: Option<String>,
    /// Since when, as seen by the nodes.
    #[schema(required, value_type = Option<String>)]
    since: Option<Timestamp>,
    /// The digest that an event was last made for.
    #[schema(required)]
    acted_on: Option<String>,
    /// When an event is made for `digest`, if it has none yet: with `min_age`, when it is old enough.
    #[schema(required, value_type = Option<String>)]
    acts_at: Option<Timestamp>,
    /// When the registry was last asked.
    #[schema(required, value_type = Option<String>)]
    asked_at: Option<Timestamp>,
    /// When it is asked next; null before the first question.
    #[schema(required, value_type = Option<String>)]
    next_at: Option<Timestamp>,
    /// Questions in a row that it did not answer.
    failures: u32,
}

/// The sources of a config that poll a tag.
pub(super) fn sources(config: &Config) -> Arc<[PolledSource]> {
    let polled = config.sources.iter().filter_map(|source| {
        let plan = config.polls.get(&source.name)?;
        Some(PolledSource { name: source.name.clone(), plan: plan.clone(), key: plan.state_key(&source.scope) })
    });
    polled.collect()
}

impl PolledTag {
    fn new(source: &PolledSource, of: Option<&PollState>) -> Self {
        let text = |digest: &ManifestDigest| digest.as_str().to_owned();
        Self {
            source: source.name.to_string(),
            digest: of.and_then(|state| state.current.as_ref()).map(text),
            since: of.filter(|state| state.current.is_some()).map(|state| state.changed_at),
            acted_on: of.and_then(|state| state.acted_on.as_ref()).map(text),
            acts_at: of.and_then(|state| state.pending(&source.plan.policy)).map(|(_, at)| at),
            asked_at: of.and_then(|state| state.asked_at),
            next_at: of.map(|state| state.next_at),
            failures: of.map_or(0, |state| state.failures),
        }
    }
}

/// Shows what the registries last said about the tags that sources poll.
#[utoipa::path(
    get,
    path = "/api/polled",
    operation_id = "polled",
    responses((status = 200, description = "All nodes share this.", body = PolledTagList), StoreDown)
)]
pub(super) async fn polled(State(state): State<AdminState>) -> Result<Json<PolledTagList>, Response> {
    let mut polled = Vec::new();
    for source in &*state.polled {
        let known = state.store.state(source.key).await.map_err(|error| unavailable(&error))?;
        let known = known.as_deref().and_then(PollState::from_json);
        polled.push(PolledTag::new(source, known.as_ref()));
    }
    Ok(Json(PolledTagList { polled }))
}
