//! Replaying all events that match. They are counted first: the count names the very set, and only that set is
//! replayed.

use super::query::QueryParams;
use super::{AdminState, refuse, replay_event, unavailable_response};
use crate::decide::event::Event;
use crate::decide::id::Digest;
use crate::decide::limits;
use crate::store::{EventQuery, StoreError};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Pages looked through for one set.
const PAGES_MAX: usize = 200;
/// Refusals that are told one by one.
const TOLD_MAX: usize = 100;

/// Replays a set of events, or counts it.
pub(super) async fn replay(State(desk): State<AdminState>, mut asked: QueryParams) -> Result<Response, Response> {
    let filter = asked.filter()?;
    let (dry, guard) = (asked.flag("dry")?, asked.text("guard")?);
    let limit = asked.limit(limits::REPLAY_MAX, limits::REPLAY_MAX)?;
    asked.finish()?;
    if matches!(filter.state.as_deref(), Some("waiting" | "running")) {
        return Err(refuse(StatusCode::BAD_REQUEST, "only what is done or dead can be replayed"));
    }
    if !dry && guard.is_none() {
        return Err(refuse(StatusCode::BAD_REQUEST, "guard is missing: count with dry=1 first"));
    }
    let (events, capped) =
        matching_events(&desk, filter, limit).await.map_err(|error| unavailable_response(&error.to_string()))?;
    let names: Vec<u8> = events.iter().flat_map(|event| event.id.0).collect();
    let guarded = hex::encode(&Digest::of(&names).0[..8]);
    if dry {
        return Ok(Json(json!({ "count": events.len(), "capped": capped, "guard": guarded })).into_response());
    }
    if guard.as_deref() != Some(&guarded) {
        return Err(refuse(StatusCode::CONFLICT, "changed"));
    }
    let (mut replayed, mut refused) = (0, Vec::new());
    // The oldest first: of several changes of one subject the last is the newest again.
    for event in events.iter().rev() {
        match replay_event(&desk, event).await {
            Ok(_) => replayed += 1,
            Err(Ok((_, reason))) if refused.len() < TOLD_MAX => {
                refused.push(json!({ "event": event.id, "reason": reason }));
            }
            Err(Ok(_)) => {}
            Err(Err(error)) => {
                return Err(unavailable_response(&format!("{error}; {replayed} were replayed before that")));
            }
        }
    }
    Ok(Json(json!({ "replayed": replayed, "refused": refused })).into_response())
}

/// The events that match and are over, newest first, and whether there are more.
async fn matching_events(
    desk: &AdminState,
    filter: EventQuery,
    limit: usize,
) -> Result<(Vec<Event>, bool), StoreError> {
    let mut listing = EventQuery { limit: crate::admin::LIST_MAX, ..filter };
    let mut events = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = desk.store.page(listing.clone()).await?;
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
