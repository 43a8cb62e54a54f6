//! The port for people and their tools: look at events, replay, forget, watch. Its own port; on loopback by default.
//!
//! Who may is decided at the door (`auth.rs`). What can be asked, and what is answered, stands in `openapi.json`.
pub(crate) mod auth;
pub(crate) mod bulk_replay;
pub(crate) mod dashboard;
pub(crate) mod deliveries;
pub(crate) mod info;
pub(crate) mod orphans;
pub(crate) mod overview;
pub(crate) mod query;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod tail;
pub(crate) mod view;
pub(crate) mod wrong_token;

pub(crate) use query::LIST_MAX;

use crate::config::{AdminConfig, Config, StoreAddress, view as configured};
use crate::decide::claim::Payload;
use crate::decide::event::{self, Event, EventStep, QueueState};
use crate::decide::id::EventId;
use crate::decide::limits;
use crate::decide::response;
use crate::decide::source::Source;
use crate::decide::time::Timestamp;
use crate::engine::dispatcher::Dispatcher;
use crate::ingress::readiness::Readiness;
use crate::ingress::request_body::BodiesInFlight;
use crate::observe::metrics::StoreOp;
use crate::store::retention::NodeTopology;
use crate::store::status_text::has_route;
use crate::store::{AdvanceResult, EventDetails, EventPage, EventQuery, RemovalResult, Store, StoreError, StoredValue};
use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use orphans::OrphanCountCache;
use overview::EventCountCache;
use query::{EventNameParam, QueryParams};
use serde_json::{Value, json};
use session::AdminSessions;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use wrong_token::TokenThrottle;

/// Events listed where one name means several.
pub(crate) const NAMESAKES_MAX: usize = 10;

/// Events an event took the place of, as they are told.
const SUPERSEDES_MAX: usize = 16;

/// What the admin port needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AdminState {
    /// Where events are.
    pub store: Arc<dyn Store>,
    /// Who acts on them.
    pub dispatcher: Dispatcher,
    /// Who may ask.
    pub admin: Arc<AdminConfig>,
    /// Whether the node is well.
    pub health: Readiness,
    /// The port is about to close, later than the node begins to drain: who watches sees what still runs end.
    pub closing: CancellationToken,
    sources: Arc<[Arc<Source>]>,
    shown: Arc<Value>,
    store_kind: &'static str,
    flight: Arc<BodiesInFlight>,
    sessions: Arc<AdminSessions>,
    refusals: Arc<TokenThrottle>,
    listeners: Arc<Semaphore>,
    counted: Arc<EventCountCache>,
    orphans: Arc<OrphanCountCache>,
    nodes: NodeTopology,
    peers: reqwest::Client,
    started: tokio::time::Instant,
    started_at: Timestamp,
    since: Arc<Mutex<Timestamp>>,
}

impl AdminState {
    /// A desk for this config, whose webhooks arrive at `ingest` and whose people at `admin`.
    pub(crate) fn new(
        config: &Config,
        (ingest, admin): (Option<SocketAddr>, SocketAddr),
        dispatcher: Dispatcher,
        health: Readiness,
        flight: Arc<BodiesInFlight>,
    ) -> Self {
        let mut configured = config.admin.clone();
        configured.listen = admin;
        let tokens = config.admin.tokens.iter();
        let peers = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
        Self {
            admin: Arc::new(configured),
            sources: config.sources.clone().into(),
            shown: Arc::new(info::sources(config, &dispatcher.node().0, ingest)),
            store_kind: match config.store {
                StoreAddress::Memory => "memory",
                StoreAddress::Sqlite(_) => "sqlite",
                StoreAddress::Postgres(_) => "postgres",
                StoreAddress::Redis(_) => "redis",
            },
            flight,
            closing: CancellationToken::new(),
            sessions: Arc::new(AdminSessions::new(tokens.map(|token| (token.secret.expose(), token.may)))),
            refusals: Arc::default(),
            listeners: Arc::new(Semaphore::new(limits::LISTENERS_MAX)),
            counted: Arc::default(),
            orphans: Arc::default(),
            nodes: NodeTopology::of(&config.store),
            peers: peers.unwrap_or_default(),
            started: tokio::time::Instant::now(),
            started_at: health.store.now(),
            since: Arc::new(Mutex::new(health.store.now())),
            store: health.store.clone(),
            dispatcher,
            health,
        }
    }

    /// What waits for a route that is not configured says so at once, and not only when it is due.
    fn mark_suspended(&self, story: &mut EventDetails) {
        let waits = matches!(story.event.state, event::EventState::Waiting { .. });
        if waits && !has_route(&self.sources, &story.event) {
            story.event.queue_state = QueueState::Suspended;
        }
    }
}

/// The routes of the admin port. What is added to it is closed as the rest is: see [`auth`].
pub(crate) fn router(desk: AdminState) -> Router {
    let guarded = Router::new()
        .route("/api/openapi.json", get(info::openapi))
        .route("/api/overview", get(overview::overview))
        .route("/api/events", get(list))
        .route("/api/events/{event}", get(show).delete(remove))
        .route("/api/events/{event}/body", get(body))
        .route("/api/events/{event}/headers", get(headers))
        .route("/api/events/{event}/replay", post(replay))
        .route("/api/events/{event}/cancel", post(cancel))
        .route("/api/replay", post(bulk_replay::replay))
        .route("/api/forget", post(forget))
        .route("/api/sources", get(info::configured))
        .route("/api/sources/{source}/events", delete(orphans::forget_source))
        .route("/api/explain", post(info::explain))
        .route("/api/turned-away", get(deliveries::turned_away))
        .route("/api/deliveries", get(deliveries::deliveries))
        .route("/api/live", get(stream::live))
        .route("/api/quarantine", get(quarantined))
        .route("/api/tail", get(tail))
        .route("/metrics", get(info::metrics))
        // Not for a method that there is not: it is wrong whoever asks.
        .route_layer(from_fn_with_state(desk.clone(), auth::authorize));
    Router::new()
        .route("/healthz", get(|| async { plain(&response::healthy()) }))
        .route("/readyz", get(|State(desk): State<AdminState>| async move { plain(&desk.health.ready().await) }))
        .route("/api/session", get(auth::session))
        .route("/login", post(auth::login))
        .route("/logout", post(auth::logout))
        .merge(guarded)
        .merge(crate::admin::dashboard::router())
        .method_not_allowed_fallback(|| async { refuse(StatusCode::METHOD_NOT_ALLOWED, "method") })
        .fallback(not_found)
        .layer(from_fn(auth::security_headers))
        .with_state(desk)
}

/// Where nothing is: people get a page that says so.
async fn not_found(request: Request) -> Response {
    crate::admin::dashboard::nowhere(&request).unwrap_or_else(|| refuse(StatusCode::NOT_FOUND, "unknown_path"))
}

fn plain(reply: &response::HttpResponse) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], reply.body.clone()).into_response()
}

fn refuse(status: StatusCode, reason: &str) -> Response {
    (status, Json(json!({ "status": "refused", "reason": reason }))).into_response()
}

fn unavailable(error: &StoreError) -> Response {
    unavailable_response(&error.to_string())
}

fn unavailable_response(why: &str) -> Response {
    let body = Json(json!({ "status": "unavailable", "reason": why }));
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], body).into_response()
}

async fn list(State(desk): State<AdminState>, asked: QueryParams) -> Result<Response, Response> {
    let listing = asked.page()?;
    let begun = tokio::time::Instant::now();
    let page = desk.store.page(listing).await;
    desk.dispatcher.meter().store_call(StoreOp::Look, begun.elapsed(), page.is_ok());
    let EventPage { events, next } = page.map_err(|error| unavailable(&error))?;
    Ok(Json(json!({ "events": events.iter().map(view::event).collect::<Vec<_>>(), "next": next })).into_response())
}

async fn quarantined(State(desk): State<AdminState>) -> Response {
    match desk.store.quarantined(LIST_MAX).await {
        Ok(messages) => {
            let messages: Vec<_> = messages.iter().map(view::quarantined).collect();
            Json(json!({ "messages": messages })).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

/// The one event of this name, or why not.
async fn find_event(desk: &AdminState, name: String) -> Result<Event, Response> {
    let mut events = desk.store.resolve(name, NAMESAKES_MAX).await.map_err(|error| unavailable(&error))?;
    if events.len() > 1 {
        let events: Vec<_> = events.iter().map(view::event).collect();
        let body = json!({ "status": "refused", "reason": "several_events", "events": events });
        return Err((StatusCode::CONFLICT, Json(body)).into_response());
    }
    events.pop().ok_or_else(|| refuse(StatusCode::NOT_FOUND, "unknown_event"))
}

async fn show(State(desk): State<AdminState>, EventNameParam(name): EventNameParam) -> Result<Response, Response> {
    let event = find_event(&desk, name).await?;
    let story = desk.store.details(event.id).await.map_err(|error| unavailable(&error))?;
    let mut story = story.ok_or_else(|| refuse(StatusCode::NOT_FOUND, "unknown_event"))?;
    desk.mark_suspended(&mut story);
    let mut told = view::event_details(&*desk.store, &story).await.map_err(|error| unavailable(&error))?;
    told["supersedes"] = supersedes(&*desk.store, event.id).await.map_err(|error| unavailable(&error))?;
    let source = desk.sources.iter().find(|source| source.name == event.source);
    let words = source.map(|source| configured::identities(source)).unwrap_or_default();
    let same = |word: &str| words.iter().find(|(same, _)| same == word).map_or(word, |(_, words)| words).to_owned();
    let words = told["identities"].as_array().into_iter().flatten().filter_map(Value::as_str);
    told["identities_in_words"] = words.map(|word| json!({ "same": word, "words": same(word) })).collect();
    Ok(Json(told).into_response())
}

/// The events that this one took the place of.
pub(crate) async fn supersedes(store: &dyn Store, id: EventId) -> Result<Value, StoreError> {
    let before = EventQuery { superseded_by: Some(id), limit: SUPERSEDES_MAX, ..EventQuery::default() };
    Ok(store.page(before).await?.events.iter().map(|event| json!(event.id)).collect())
}

/// Headers and body of the one event of this name, or why not.
async fn payload(desk: &AdminState, name: String) -> Result<(Event, Payload), Response> {
    let event = find_event(desk, name).await?;
    match desk.store.payload(event.id).await {
        Ok(StoredValue::Whole(payload)) => Ok((event, payload)),
        Ok(StoredValue::Forgotten) => Err(refuse(StatusCode::GONE, "its body is no longer kept")),
        Ok(StoredValue::Damaged) => Err(refuse(StatusCode::CONFLICT, "its body is damaged")),
        Err(error) => Err(unavailable(&error)),
    }
}

/// A body is somebody else's text, and never anything but text.
async fn body(State(desk): State<AdminState>, EventNameParam(name): EventNameParam) -> Result<Response, Response> {
    let (_, payload) = payload(&desk, name).await?;
    // Copied: as it is, it would count among the bodies in flight until a slow reader has it.
    let body = payload.body.to_vec();
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// The headers that are kept. What no field is read from was kept to be passed on, and is nobody's to see.
async fn headers(State(desk): State<AdminState>, EventNameParam(name): EventNameParam) -> Result<Response, Response> {
    let (event, payload) = payload(&desk, name).await?;
    let source = desk.sources.iter().find(|source| source.name == event.source);
    let kept = payload.headers.iter().map(|(name, value)| {
        let value = if view::is_header_visible(name, source.map(|source| &**source)) { value } else { view::MASKED };
        json!({ "name": name, "value": value })
    });
    Ok(Json(json!({ "headers": kept.collect::<Vec<_>>() })).into_response())
}

async fn replay(State(desk): State<AdminState>, EventNameParam(name): EventNameParam) -> Result<Response, Response> {
    let event = find_event(&desk, name).await?;
    match replay_event(&desk, &event).await {
        Ok(event) => Ok(Json(view::event(&event)).into_response()),
        Err(Ok((status, reason))) => Err(refuse(status, &reason)),
        Err(Err(error)) => Err(unavailable(&error)),
    }
}

/// Gives an event another life; or says why not, or that the store does not.
async fn replay_event(desk: &AdminState, event: &Event) -> Result<Event, Result<(StatusCode, String), StoreError>> {
    let not = |status, why: &str| Err(Ok((status, why.to_owned())));
    match desk.store.payload(event.id).await.map_err(Err)? {
        StoredValue::Whole(_) => {}
        StoredValue::Forgotten => return not(StatusCode::GONE, "its body is no longer kept"),
        StoredValue::Damaged => return not(StatusCode::CONFLICT, "its body is damaged"),
    }
    match desk.dispatcher.step(event, EventStep::Replay).await.map_err(Err)? {
        Some(AdvanceResult::Written { event, .. }) => Ok(*event),
        Some(AdvanceResult::Lost) => not(StatusCode::CONFLICT, "it changed meanwhile"),
        None => not(StatusCode::CONFLICT, &format!("it is {}", event.state.word())),
    }
}

async fn cancel(State(desk): State<AdminState>, EventNameParam(name): EventNameParam) -> Result<Response, Response> {
    let event = find_event(&desk, name).await?;
    Ok(match desk.dispatcher.cancel(&event).await {
        Ok(Some(AdvanceResult::Written { event, .. })) if event.is_called_off() => {
            (StatusCode::ACCEPTED, Json(view::event(&event))).into_response()
        }
        Ok(Some(AdvanceResult::Written { event, .. })) if !event.is_cancelled() => {
            refuse(StatusCode::CONFLICT, &format!("it is {}", event.state.word()))
        }
        came => advance_response(&event, came),
    })
}

/// What came of a step, for who asked for it.
fn advance_response(event: &Event, advance: Result<Option<AdvanceResult>, StoreError>) -> Response {
    match advance {
        Ok(Some(AdvanceResult::Written { event, .. })) => Json(view::event(&event)).into_response(),
        Ok(Some(AdvanceResult::Lost)) => refuse(StatusCode::CONFLICT, "it changed meanwhile"),
        Ok(None) => refuse(StatusCode::CONFLICT, &format!("it is {}", event.state.word())),
        Err(error) => unavailable(&error),
    }
}

/// Forgets one event with its keys, because a person says so.
async fn remove(State(desk): State<AdminState>, EventNameParam(name): EventNameParam) -> Result<Response, Response> {
    let event = find_event(&desk, name).await?;
    match desk.store.remove(event.id).await {
        Ok(RemovalResult::Removed) => Ok(Json(json!({ "forgotten": 1, "event": event.id })).into_response()),
        Ok(RemovalResult::NotOver) => Err(refuse(StatusCode::CONFLICT, &format!("it is {}", event.state.word()))),
        Ok(RemovalResult::Unknown) => Err(refuse(StatusCode::NOT_FOUND, "unknown_event")),
        Err(error) => Err(unavailable(&error)),
    }
}

/// The cron endpoint: frees the space of what may be forgotten. Never needed for correctness, safe to call twice.
/// With `now=1` it is a person's word that the clock is right.
async fn forget(State(desk): State<AdminState>, mut asked: QueryParams) -> Result<Response, Response> {
    let clock_is_right = asked.flag("now")?;
    asked.finish()?;
    if clock_is_right {
        desk.store.confirm_time().await.map_err(|error| unavailable(&error))?;
    }
    let swept = desk.dispatcher.forget_now().await.map_err(|error| unavailable(&error))?;
    Ok(Json(view::forgotten(swept, &*desk.store)).into_response())
}

/// Changes of state, deliveries that made no event, and output of commands, as they happen.
async fn tail(State(desk): State<AdminState>) -> Response {
    match desk.listeners.clone().try_acquire_owned() {
        Ok(place) => stream::streamed(tail::news(desk, place)),
        Err(_) => unavailable_response(stream::TOO_MANY),
    }
}
