//! The port for people and their tools: look at events, replay, forget, watch. Its own port; on loopback by default.
//!
//! Who may: where tokens are set, a bearer of one of them. Without tokens only loopback is allowed by the config, and
//! then `Host` must be a loopback name and `Origin`, if there is one, must be this port: a web page that somebody
//! happens to have open is not a person.

pub mod shown;

use super::ingest::Health;
use crate::config::{Admin, May};
use crate::decide::answer;
use crate::decide::event::{Event, Step};
use crate::decide::id::Digest;
use crate::dispatcher::Dispatcher;
use crate::store::{Advance, Listing, Removal, Store, StoreError, Stored};
use axum::Json;
use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

/// Events listed in one answer, unless asked for fewer.
pub const LIST_MAX: usize = 500;
/// Events listed where one name means several.
pub const NAMESAKES_MAX: usize = 10;
/// Batches forgotten in one call of the cron endpoint.
pub const FORGET_BATCHES_MAX: usize = 200;

/// What the admin port needs.
#[derive(Clone)]
pub struct Desk {
    /// Where events are.
    pub store: Arc<dyn Store>,
    /// Who acts on them.
    pub dispatcher: Dispatcher,
    /// Who may ask.
    pub admin: Arc<Admin>,
    /// Whether the node is well.
    pub health: Health,
}

/// The routes of the admin port.
pub fn router(desk: Desk) -> Router {
    let guarded = Router::new()
        .route("/api/events", get(list))
        .route("/api/events/{event}", get(show).delete(remove))
        .route("/api/events/{event}/replay", post(replay))
        .route("/api/events/{event}/cancel", post(cancel))
        .route("/api/forget", post(forget))
        .route("/api/quarantine", get(quarantined))
        .route("/api/tail", get(tail))
        .layer(from_fn_with_state(desk.clone(), admit));
    Router::new()
        .route("/healthz", get(|| async { plain(&answer::fine()) }))
        .route("/readyz", get(|State(desk): State<Desk>| async move { plain(&desk.health.ready().await) }))
        .merge(guarded)
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "unknown_path") })
        .with_state(desk)
}

fn plain(reply: &answer::Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], reply.body.clone()).into_response()
}

fn refuse(status: StatusCode, reason: &str) -> Response {
    (status, Json(json!({ "status": "refused", "reason": reason }))).into_response()
}

/// Lets through who may do what they ask.
async fn admit(State(desk): State<Desk>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if desk.admin.tokens.is_empty() {
        if !from_here(headers, desk.admin.listen.port()) {
            return refuse(StatusCode::FORBIDDEN, "host_or_origin");
        }
        return next.run(request).await;
    }
    let Some(may) = bearer(headers).and_then(|token| rights(&desk.admin, token)) else {
        return refuse(StatusCode::UNAUTHORIZED, "bad_token");
    };
    let forgets = request.uri().path() == "/api/forget";
    let reads = request.method() == axum::http::Method::GET;
    let allowed = match may {
        May::All => true,
        May::Read => reads,
        May::Forget => forgets,
    };
    if allowed { next.run(request).await } else { refuse(StatusCode::FORBIDDEN, "not_allowed") }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// What this token may do. Digests are compared, so that neither length nor beginning tells anything.
fn rights(admin: &Admin, token: &str) -> Option<May> {
    let given = Digest::of(token.as_bytes());
    let same =
        |secret: &[u8]| aws_lc_rs::constant_time::verify_slices_are_equal(&given.0, &Digest::of(secret).0).is_ok();
    admin.tokens.iter().find(|token| same(token.secret.expose())).map(|token| token.may)
}

/// The request names this machine, and does not come from somebody's page.
fn from_here(headers: &HeaderMap, port: u16) -> bool {
    let here = |authority: &str| {
        let name = authority.strip_suffix(&format!(":{port}")).unwrap_or(authority);
        matches!(name, "localhost" | "127.0.0.1" | "[::1]")
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or(""));
    host.is_some_and(here)
        && origin.is_none_or(|origin| {
            origin.strip_prefix("http://").is_some_and(|rest| rest.ends_with(&format!(":{port}")) && here(rest))
        })
}

fn unavailable(error: &StoreError) -> Response {
    let body = Json(json!({ "status": "unavailable", "reason": error.to_string() }));
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], body).into_response()
}

async fn list(State(desk): State<Desk>, Query(asked): Query<HashMap<String, String>>) -> Response {
    let mut listing = Listing { limit: 100, ..Listing::default() };
    for (name, value) in asked {
        let understood = match name.as_str() {
            "source" => listing.source.replace(value).is_none(),
            "route" => listing.route.replace(value).is_none(),
            "state" => {
                ["waiting", "running", "done", "dead"].contains(&&*value) && listing.state.replace(value).is_none()
            }
            "before" => value.parse().map(|id| listing.before = Some(id)).is_ok(),
            "limit" => value.parse().map(|limit: usize| listing.limit = limit.clamp(1, LIST_MAX)).is_ok(),
            _ => false,
        };
        if !understood {
            return refuse(StatusCode::BAD_REQUEST, &format!("{name} is not understood"));
        }
    }
    match desk.store.list(listing).await {
        Ok(events) => {
            let next = events.last().map(|event| event.id);
            Json(json!({ "events": events.iter().map(shown::event).collect::<Vec<_>>(), "next": next })).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

async fn quarantined(State(desk): State<Desk>) -> Response {
    match desk.store.quarantined(LIST_MAX).await {
        Ok(messages) => {
            let messages: Vec<_> = messages.iter().map(shown::quarantined).collect();
            Json(json!({ "messages": messages })).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

/// The one event of this name, or why not.
async fn named(desk: &Desk, name: String) -> Result<Event, Response> {
    let mut events = desk.store.named(name, NAMESAKES_MAX).await.map_err(|error| unavailable(&error))?;
    if events.len() > 1 {
        let events: Vec<_> = events.iter().map(shown::event).collect();
        let body = json!({ "status": "refused", "reason": "several_events", "events": events });
        return Err((StatusCode::CONFLICT, Json(body)).into_response());
    }
    events.pop().ok_or_else(|| refuse(StatusCode::NOT_FOUND, "unknown_event"))
}

async fn show(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Response, Response> {
    let event = named(&desk, name).await?;
    match desk.store.story(event.id).await {
        Ok(Some(story)) => {
            let whole = shown::whole(&*desk.store, &story).await.map_err(|error| unavailable(&error))?;
            Ok(Json(whole).into_response())
        }
        Ok(None) => Err(refuse(StatusCode::NOT_FOUND, "unknown_event")),
        Err(error) => Err(unavailable(&error)),
    }
}

async fn replay(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Response, Response> {
    let event = named(&desk, name).await?;
    match desk.store.payload(event.id).await {
        Ok(Stored::Whole(_)) => Ok(step(&desk, &event, Step::Replay).await),
        Ok(Stored::Forgotten) => Err(refuse(StatusCode::GONE, "its body is no longer kept")),
        Ok(Stored::Damaged) => Err(refuse(StatusCode::CONFLICT, "its body is damaged")),
        Err(error) => Err(unavailable(&error)),
    }
}

async fn cancel(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Response, Response> {
    let event = named(&desk, name).await?;
    Ok(written(&event, desk.dispatcher.cancel(&event).await))
}

async fn step(desk: &Desk, event: &Event, step: Step) -> Response {
    written(event, desk.dispatcher.step(event, step).await)
}

/// What came of a step, for who asked for it.
fn written(event: &Event, advance: Result<Option<Advance>, StoreError>) -> Response {
    match advance {
        Ok(Some(Advance::Written { event, .. })) => Json(shown::event(&event)).into_response(),
        Ok(Some(Advance::Lost)) => refuse(StatusCode::CONFLICT, "it changed meanwhile"),
        Ok(None) => refuse(StatusCode::CONFLICT, &format!("it is {}", event.state.word())),
        Err(error) => unavailable(&error),
    }
}

/// Forgets one event with its keys, because a person says so.
async fn remove(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Response, Response> {
    let event = named(&desk, name).await?;
    match desk.store.remove(event.id).await {
        Ok(Removal::Removed) => Ok(Json(json!({ "forgotten": 1, "event": event.id })).into_response()),
        Ok(Removal::NotOver) => Err(refuse(StatusCode::CONFLICT, &format!("it is {}", event.state.word()))),
        Ok(Removal::Unknown) => Err(refuse(StatusCode::NOT_FOUND, "unknown_event")),
        Err(error) => Err(unavailable(&error)),
    }
}

/// The cron endpoint: frees the space of what may be forgotten. Never needed for correctness, safe to call twice.
async fn forget(State(desk): State<Desk>) -> Response {
    let (mut events, mut bodies) = (0, 0);
    for _ in 0..FORGET_BATCHES_MAX {
        match desk.store.forget(desk.dispatcher.keeps(), crate::decide::limits::FORGET_BATCH).await {
            Ok(forgotten) => {
                events += forgotten.events;
                bodies += forgotten.bodies;
                if forgotten == crate::store::Forgotten::default() {
                    break;
                }
            }
            Err(error) => return unavailable(&error),
        }
    }
    Json(json!({ "forgotten": events, "bodies": bodies })).into_response()
}

/// Changes of state and output of commands, as they happen.
async fn tail(State(desk): State<Desk>) -> Response {
    let draining = desk.health.draining.clone();
    let news = shown::news(desk.dispatcher.news(), desk.dispatcher.output(), draining);
    Sse::new(news).keep_alive(KeepAlive::default()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: Option<&str>, origin: Option<&str>, expected: bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().expect("a header"));
            }
        }
        assert_eq!(from_here(&headers, 3143), expected, "{host:?} {origin:?}");
    }

    #[test]
    fn only_this_machine_by_its_loopback_names_and_its_own_pages_are_let_in() {
        for host in ["127.0.0.1:3143", "localhost:3143", "localhost", "[::1]:3143"] {
            check(Some(host), None, true);
            check(Some(host), Some("http://localhost:3143"), true);
            check(Some(host), Some("http://127.0.0.1:3143"), true);
        }
        let strange = ["evil.example:3143", "evil.example", "127.0.0.1.evil.example:3143", "localhost:80", ""];
        for host in strange {
            check(Some(host), None, false);
        }
        check(None, None, false);
        for origin in
            ["https://evil.example", "http://localhost", "http://localhost:80", "null", "", "http://evil.example:3143"]
        {
            check(Some("localhost:3143"), Some(origin), false);
        }
    }
}
