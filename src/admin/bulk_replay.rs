//! Replay of all events that match. They are counted first: the count identifies the set, and only that set is
//! replayed.

use super::events::replay_event;
use super::openapi::{self, BadRequest, SetChanged, StoreDown, params, query, text, word};
use super::query::QueryParams;
use super::{AdminState, refuse, unavailable, unavailable_response};
use crate::decide::event::Event;
use crate::decide::id::{Digest, EventId};
use crate::decide::limits;
use crate::store::{EventQuery, StoreError};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

/// Maximum number of pages read for one set.
const PAGES_MAX: usize = 200;
/// Maximum number of refusals listed.
const REFUSALS_MAX: usize = 100;

/// The result of a bulk replay.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum BulkReplayView {
    /// With `dry=1`: the size of the set.
    Counted {
        /// How many ended events match.
        count: usize,
        /// There are more; one call replays at most this many.
        capped: bool,
        /// Identifies this set; pass it to replay the set.
        guard: String,
    },
    /// Without: what was replayed.
    Replayed {
        /// How many events are replayed.
        replayed: usize,
        /// Events that are not, and why; at most 100.
        refused: Vec<ReplayRefusal>,
    },
}

/// An event that was not replayed.
#[derive(Serialize, ToSchema)]
pub(super) struct ReplayRefusal {
    event: EventId,
    reason: String,
}

params!(
    /// Which events, and the guard of their count.
    BulkReplayParams,
    [
        super::query::event_filter_params(),
        vec![
            query("dry", "Only count.", word(&["1"])),
            query(
                "guard",
                "From the count: another set is refused (409, reason `changed`). Required without `dry`.",
                text()
            ),
            openapi::limit(limits::REPLAY_MAX, limits::REPLAY_MAX),
        ],
    ]
    .concat()
);

/// Replays all events that match and are over, the oldest first; or counts them.
#[utoipa::path(
    post,
    path = "/api/replay",
    operation_id = "replay",
    params(BulkReplayParams),
    responses(
        (status = 200, description = "With `dry=1` the count, else the result.", body = BulkReplayView,
         example = json!({ "count": 12, "capped": false, "guard": "9f86d081884c7d65" })),
        BadRequest, SetChanged, StoreDown
    )
)]
pub(super) async fn replay(
    State(state): State<AdminState>,
    mut params: QueryParams,
) -> Result<Json<BulkReplayView>, Response> {
    let filter = params.filter()?;
    let (dry, guard) = (params.flag("dry")?, params.text("guard")?);
    let limit = params.limit(limits::REPLAY_MAX, limits::REPLAY_MAX)?;
    params.finish()?;
    if matches!(filter.state.as_deref(), Some("waiting" | "running")) {
        return Err(refuse(StatusCode::BAD_REQUEST, "only done or dead events can be replayed"));
    }
    if !dry && guard.is_none() {
        return Err(refuse(StatusCode::BAD_REQUEST, "guard is missing: count with dry=1 first"));
    }
    let (events, capped) = matching_events(&state, filter, limit).await.map_err(|error| unavailable(&error))?;
    let names: Vec<u8> = events.iter().flat_map(|event| event.id.0).collect();
    let guarded = hex::encode(&Digest::of(&names).0[..8]);
    if dry {
        return Ok(Json(BulkReplayView::Counted { count: events.len(), capped, guard: guarded }));
    }
    if guard.as_deref() != Some(&guarded) {
        return Err(refuse(StatusCode::CONFLICT, "changed"));
    }
    let (mut replayed, mut refused) = (0, Vec::new());
    // The oldest first, so that of several changes of one subject the newest is again the last.
    for event in events.iter().rev() {
        match replay_event(&state, event).await {
            Ok(_) => replayed += 1,
            Err(Ok((_, reason))) if refused.len() < REFUSALS_MAX => {
                refused.push(ReplayRefusal { event: event.id, reason });
            }
            Err(Ok(_)) => {}
            Err(Err(error)) => {
                return Err(unavailable_response(&format!("{error}; {replayed} events were replayed before that")));
            }
        }
    }
    Ok(Json(BulkReplayView::Replayed { replayed, refused }))
}

/// The ended events that match, newest first, and whether there are more.
async fn matching_events(
    state: &AdminState,
    filter: EventQuery,
    limit: usize,
) -> Result<(Vec<Event>, bool), StoreError> {
    let mut listing = EventQuery { limit: crate::admin::LIST_MAX, ..filter };
    let mut events = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = state.store.page(listing.clone()).await?;
        events.extend(page.events.into_iter().filter(|event| event.state.ended().is_some()));
        if events.len() > limit {
            events.truncate(limit);
            return Ok((events, true));
        }
        if page.next.is_none() {
            return Ok((events, false));
        }
        listing.before = page.next;
    }
    Ok((events, true))
}
