//! Orphaned sources: the store has events of them, and no node has them configured. How many events, how long they are
//! kept, and how to forget them all.

use super::openapi::{BadRequest, SourceInUse, StoreDown, UnknownSource};
use super::{AdminState, refuse, unavailable};
use crate::decide::source::Keep;
use crate::decide::time::{Duration, Timestamp, duration_text};
use crate::store::retention::{self, ForgetSourceCounts, NodeTopology, OrphanedSource};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tracing::info;
use utoipa::ToSchema;

/// How long a count is reused: it changes only with a config.
const COUNT_STANDS: Duration = Duration::from_secs(10);
/// How long the store may take to count.
const COUNT_TIME: Duration = Duration::from_secs(2);

/// The last count of orphaned events; `None` inside where the store did not answer.
#[derive(Default)]
pub(crate) struct OrphanCountCache(Mutex<Option<(Instant, OrphanCounts)>>);

type OrphanCounts = Option<Arc<[OrphanedSource]>>;

impl OrphanCountCache {
    /// The orphaned sources, counted now or a moment ago.
    pub(super) async fn now(&self, state: &AdminState) -> OrphanCounts {
        let mut last = self.0.lock().await;
        if let Some((_, counted)) = last.as_ref().filter(|(at, _)| at.elapsed() < COUNT_STANDS) {
            return counted.clone();
        }
        let keeps = state.dispatcher.keeps();
        let counted = timeout(COUNT_TIME, retention::orphaned(&*state.store, &keeps, state.nodes)).await;
        let counted: OrphanCounts = counted.ok().and_then(Result::ok).map(Into::into);
        *last = Some((Instant::now(), counted.clone()));
        counted
    }

    async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

/// The total number of events.
pub(super) fn total(orphaned: &[OrphanedSource]) -> u64 {
    orphaned.iter().map(|one| one.count.events).sum()
}

/// A source with events in the store that no node has configured.
#[derive(Serialize, ToSchema)]
pub(super) struct OrphanView {
    /// Its name.
    source: String,
    /// How many events it has in the store.
    events: u64,
    /// The count is a lower bound.
    capped: bool,
    /// Their retention, as written by a node that had the source: a duration, or `forever`. null: no node wrote one,
    /// and they are not forgotten.
    /// they are not forgotten.
    #[schema(required)]
    keep: Option<String>,
    /// How long their bodies are kept.
    #[schema(required)]
    keep_body: Option<String>,
    /// When a node that had the source last wrote this.
    #[schema(required)]
    seen_at: Option<Timestamp>,
}

/// An orphaned source, as the overview shows it.
pub(super) fn shown(one: &OrphanedSource) -> OrphanView {
    let keep = one.retention.as_ref().map(|row| match row.kept.keys {
        Keep::For(length) => duration_text(length),
        Keep::Forever => "forever".to_owned(),
    });
    OrphanView {
        source: one.count.source.to_string(),
        events: one.count.events,
        capped: one.count.capped,
        keep,
        keep_body: one.retention.as_ref().map(|row| duration_text(row.kept.body)),
        seen_at: one.retention.as_ref().map(|row| row.seen_at),
    }
}

/// The result of forgetting a source.
#[derive(Serialize, ToSchema)]
pub(crate) struct ForgottenSourceView {
    source: String,
    /// Deleted events, with their keys.
    forgotten: u64,
    /// How many of these were waiting, and ended without acting.
    ended: u64,
    /// Events that remain, because an attempt runs or its lease has not ended.
    running: u64,
}

/// Forgets all events of a source that no node has, with their keys.
///
/// Those that wait end without acting; those that run are cancelled and stay until their lease has ended.
#[utoipa::path(
    delete,
    path = "/api/sources/{source}/events",
    operation_id = "forgetSource",
    params(("source" = String, Path, description = "The source's name.", min_length = 1, example = "old")),
    responses(
        (status = 200, description = "The result.", body = ForgottenSourceView,
         example = json!({ "source": "old", "forgotten": 1200, "ended": 3, "running": 0 })),
        BadRequest, UnknownSource, SourceInUse, StoreDown
    )
)]
pub(super) async fn forget_source(
    State(state): State<AdminState>,
    Path(source): Path<String>,
) -> Result<Json<ForgottenSourceView>, Response> {
    let own = state.dispatcher.keeps().sources.contains_key(source.as_str());
    let had = own || state.nodes == NodeTopology::Many && runs_elsewhere(&state, &source).await?;
    if had {
        return Err(refuse(StatusCode::CONFLICT, SOURCE_IN_USE));
    }
    let forgotten = retention::forget_source(&*state.store, &source).await.map_err(|error| unavailable(&error))?;
    if forgotten == ForgetSourceCounts::default() {
        return Err(refuse(StatusCode::NOT_FOUND, "unknown_source"));
    }
    state.orphans.forget().await;
    let ForgetSourceCounts { events, ended, .. } = forgotten;
    info!(target: "hookonce", source, events, ended, "forgot");
    Ok(Json(document(&source, forgotten)))
}

async fn runs_elsewhere(state: &AdminState, source: &str) -> Result<bool, Response> {
    retention::is_elsewhere(&*state.store, source).await.map_err(|error| unavailable(&error))
}

/// Why the events of a source cannot be forgotten all at once.
pub(crate) const SOURCE_IN_USE: &str = "a running node has this source";

/// The response about a forgotten source.
pub(crate) fn document(source: &str, forgotten: ForgetSourceCounts) -> ForgottenSourceView {
    let ForgetSourceCounts { events, ended, running } = forgotten;
    ForgottenSourceView { source: source.to_owned(), forgotten: events, ended, running }
}
