//! Sources that the store holds events of and no node has: how many events, how long they are kept, and ending them.

use super::{AdminState, refuse, unavailable};
use crate::decide::source::Keep;
use crate::decide::time::Duration;
use crate::decide::time::duration_text;
use crate::store::retention::{self, ForgetSourceCounts, NodeTopology, OrphanedSource};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tracing::info;

/// How long a count stands: it changes only when a config does.
const COUNT_STANDS: Duration = Duration::from_secs(10);
/// How long the store may take to count.
const COUNT_TIME: Duration = Duration::from_secs(2);

/// The last count of orphaned events; `None` inside where the store did not answer.
#[derive(Default)]
pub(crate) struct OrphanCountCache(Mutex<Option<(Instant, OrphanCounts)>>);

type OrphanCounts = Option<Arc<[OrphanedSource]>>;

impl OrphanCountCache {
    /// The sources that no node has, counted now or a moment ago.
    pub(super) async fn now(&self, desk: &AdminState) -> OrphanCounts {
        let mut last = self.0.lock().await;
        if let Some((_, counted)) = last.as_ref().filter(|(at, _)| at.elapsed() < COUNT_STANDS) {
            return counted.clone();
        }
        let keeps = desk.dispatcher.keeps();
        let counted = timeout(COUNT_TIME, retention::orphaned(&*desk.store, &keeps, desk.nodes)).await;
        let counted: OrphanCounts = counted.ok().and_then(Result::ok).map(Into::into);
        *last = Some((Instant::now(), counted.clone()));
        counted
    }

    async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

/// How many events these are together.
pub(super) fn total(orphaned: &[OrphanedSource]) -> u64 {
    orphaned.iter().map(|one| one.count.events).sum()
}

/// One of them, as the overview shows it.
pub(super) fn shown(one: &OrphanedSource) -> Value {
    let keep = one.retention.as_ref().map(|row| match row.kept.keys {
        Keep::For(length) => duration_text(length),
        Keep::Forever => "forever".to_owned(),
    });
    json!({
        "source": &*one.count.source,
        "events": one.count.events,
        "capped": one.count.capped,
        "keep": keep,
        "keep_body": one.retention.as_ref().map(|row| duration_text(row.kept.body)),
        "seen_at": one.retention.as_ref().map(|row| row.seen_at),
    })
}

/// Ends and forgets all events of a source that no node has, because a person says so.
pub(super) async fn forget_source(
    State(desk): State<AdminState>,
    Path(source): Path<String>,
) -> Result<Response, Response> {
    let own = desk.dispatcher.keeps().sources.contains_key(source.as_str());
    let had = own || desk.nodes == NodeTopology::Many && runs_elsewhere(&desk, &source).await?;
    if had {
        return Err(refuse(StatusCode::CONFLICT, SOURCE_IN_USE));
    }
    let forgotten = retention::forget_source(&*desk.store, &source).await.map_err(|error| unavailable(&error))?;
    if forgotten == ForgetSourceCounts::default() {
        return Err(refuse(StatusCode::NOT_FOUND, "unknown_source"));
    }
    desk.orphans.forget().await;
    let ForgetSourceCounts { events, ended, .. } = forgotten;
    info!(target: "hookonce", source, events, ended, "forgot");
    Ok(Json(document(&source, forgotten)).into_response())
}

async fn runs_elsewhere(desk: &AdminState, source: &str) -> Result<bool, Response> {
    retention::is_elsewhere(&*desk.store, source).await.map_err(|error| unavailable(&error))
}

/// Why the events of a source are not forgotten all at once.
pub(crate) const SOURCE_IN_USE: &str = "a running node has this source";

/// What came of it, for the person who asked.
pub(crate) fn document(source: &str, forgotten: ForgetSourceCounts) -> Value {
    let ForgetSourceCounts { events, ended, running } = forgotten;
    json!({ "source": source, "forgotten": events, "ended": ended, "running": running })
}
