//! Events: list, show, replay, cancel and forget them; and the messages that never became one.

use super::openapi::{
    self, BadRequest, BodyGone, Conflict, StoreDown, UnknownEvent, event_example, params, query, word,
};
use super::query::{EventNameParam, LIST_MAX, LIST_USUAL, QueryParams};
use super::view::{self, EventDetailsView, EventView, ForgottenView, MASKED, QuarantinedMessageView, RefusalView};
use super::{AdminState, NAMESAKES_MAX, refuse, unavailable};
use crate::config::once_view;
use crate::decide::claim::Payload;
use crate::decide::event::{Event, EventStep};
use crate::decide::id::EventId;
use crate::observe::metrics::StoreOp;
use crate::store::{AdvanceResult, EventPage, RemovalResult, StoreError, StoredValue};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// One page of events.
#[derive(Serialize, ToSchema)]
pub(super) struct EventList {
    /// Newest first; a roll-back or a notification is beside the event that made it.
    events: Vec<EventView>,
    /// Pass it as `before` to continue; null: there are no more. A page may be short, or empty, and still have a next:
    /// a search without an index scans 20,000 events at a time.
    #[schema(required)]
    next: Option<EventId>,
}

params!(
    /// Which events, and where the page begins.
    EventListParams,
    [
        super::query::event_filter_params(),
        vec![
            query(
                "before",
                "Only older ones: `next` of the page before. New events do not shift what follows.",
                openapi::event_id()
            ),
            openapi::limit(LIST_USUAL, LIST_MAX),
        ],
    ]
    .concat()
);

/// Lists events, newest first.
#[utoipa::path(
    get,
    path = "/api/events",
    operation_id = "events",
    params(EventListParams),
    responses(
        (status = 200, description = "One page.", body = EventList,
         example = json!({ "events": [event_example()], "next": null })),
        BadRequest, StoreDown
    )
)]
pub(super) async fn list(State(state): State<AdminState>, params: QueryParams) -> Result<Json<EventList>, Response> {
    let query = params.page()?;
    let begun = tokio::time::Instant::now();
    let page = state.store.page(query).await;
    state.metrics.store_call(StoreOp::Look, begun.elapsed(), page.is_ok());
    let EventPage { events, next } = page.map_err(|error| unavailable(&error))?;
    Ok(Json(EventList { events: events.iter().map(view::event).collect(), next }))
}

/// The messages in quarantine.
#[derive(Serialize, ToSchema)]
pub(super) struct QuarantinedMessageList {
    /// Newest first, at most 500.
    messages: Vec<QuarantinedMessageView>,
}

/// Lists messages of streams that never became an event, newest first.
#[utoipa::path(
    get,
    path = "/api/quarantine",
    operation_id = "quarantine",
    responses(
        (status = 200, description = "Messages that were read from a stream and rejected.", body = QuarantinedMessageList,
         example = json!({ "messages": [{
            "source": "builds", "message": "BUILDS 17 2026-02-07T15:20:40Z", "subject": "builds.done",
            "at": "2026-02-07T15:20:41.000000Z", "why": "bad_signature", "bytes": 12, "head": "{\"ok\": false",
         }] })),
        StoreDown
    )
)]
pub(super) async fn quarantine(State(state): State<AdminState>) -> Result<Json<QuarantinedMessageList>, Response> {
    let messages = state.store.quarantined(LIST_MAX).await.map_err(|error| unavailable(&error))?;
    Ok(Json(QuarantinedMessageList { messages: messages.iter().map(view::quarantined).collect() }))
}

/// The single event with this name, or the refusal.
pub(super) async fn find_event(state: &AdminState, name: String) -> Result<Event, Response> {
    let mut events = state.store.resolve(name, NAMESAKES_MAX).await.map_err(|error| unavailable(&error))?;
    if events.len() > 1 {
        let refusal = RefusalView::new("several_events").events(&events);
        return Err((StatusCode::CONFLICT, Json(refusal)).into_response());
    }
    events.pop().ok_or_else(unknown_event)
}

fn unknown_event() -> Response {
    refuse(StatusCode::NOT_FOUND, "unknown_event")
}

/// All that the store knows of one event, and its identities by the current config.
#[derive(Serialize, ToSchema)]
pub(super) struct EventWithIdentitiesView {
    #[serde(flatten)]
    details: EventDetailsView,
    /// The identities as sentences, by the current config.
    identities_in_words: Vec<IdentityView>,
}

/// An identity as a sentence.
#[derive(Serialize, ToSchema)]
struct IdentityView {
    /// One of identities.
    same: String,
    /// What it is made of.
    words: String,
}

/// Shows all that the store knows of one event.
#[utoipa::path(
    get,
    path = "/api/events/{event}",
    operation_id = "event",
    params(EventNameParam),
    responses(
        (status = 200, description = "The event.", body = EventWithIdentitiesView, example = json!({
            "event": "019c3fa9-c01e-7a11-8c2e-4f6b3fa9c01e", "source": "ghcr", "route": "jamiec_ts",
            "delivery": "f168a0a0-0440-11f1-9b3f-a185afe7eea8", "fields": { "package": "jamiec_ts", "tag": "latest" },
            "state": "dead", "received_at": "2026-02-07T15:20:40.500000Z", "life": 1, "attempt": 1, "doubts": 0,
            "cause": "failed", "ended_at": "2026-02-07T15:20:41.329000Z",
            "why": "it failed because step 1 of block 1 exited with 1", "behind": null,
            "identities": ["delivery", "change"], "duplicates": 1,
            "deliveries": [{
                "at": "2026-02-07T15:20:42.000000Z", "delivery": "f27359e0-0440-11f1-9d36-2b1c4d5e6f70",
                "same": "change",
            }],
            "attempts": [{
                "life": 1, "attempt": 1, "started_at": "2026-02-07T15:20:40.501000Z",
                "ended_at": "2026-02-07T15:20:41.329000Z", "outcome": "failed",
                "why": "step 1 of block 1 exited with 1", "output": "\u{1b}[31mno such image\u{1b}[0m\n",
            }],
            "has_body": true, "supersedes": [], "rolled_back_by": null,
            "identities_in_words": [
                { "same": "delivery", "words": "the delivery id (header.x-github-delivery) with the body's digest" },
                { "same": "change", "words": "a change of package + tag to version_id + sha, ordered by updated_at" },
            ],
        })),
        BadRequest, UnknownEvent, Conflict, StoreDown
    )
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    EventNameParam(name): EventNameParam,
) -> Result<Json<EventWithIdentitiesView>, Response> {
    let event = find_event(&state, name).await?;
    let details = state.store.details(event.id).await.map_err(|error| unavailable(&error))?;
    let mut details = details.ok_or_else(unknown_event)?;
    state.mark_suspended(&mut details);
    let source = state.sources.iter().find(|source| source.name == event.source);
    let texts = source.map(|source| once_view::identities(source)).unwrap_or_default();
    let in_words = |same: &str| texts.iter().find(|(word, _)| word == same).map_or(same, |(_, text)| text).to_owned();
    let identities = view::identities(&details);
    let identity = |word: &str| IdentityView { same: word.to_owned(), words: in_words(word) };
    let identities_in_words = identities.iter().map(|matched| identity(matched.word())).collect();
    let details = view::event_details(&*state.store, &details).await.map_err(|error| unavailable(&error))?;
    Ok(Json(EventWithIdentitiesView { details, identities_in_words }))
}

/// Headers and body of the single event with this name, or the refusal.
async fn payload(state: &AdminState, name: String) -> Result<(Event, Payload), Response> {
    let event = find_event(state, name).await?;
    match state.store.payload(event.id).await {
        Ok(StoredValue::Whole(payload)) => Ok((event, payload)),
        Ok(StoredValue::Forgotten) => Err(refuse(StatusCode::GONE, "its body is no longer kept")),
        Ok(StoredValue::Damaged) => Err(refuse(StatusCode::CONFLICT, "its body is damaged")),
        Err(error) => Err(unavailable(&error)),
    }
}

/// Shows an event's body, unchanged.
#[utoipa::path(
    get,
    path = "/api/events/{event}/body",
    operation_id = "body",
    params(EventNameParam),
    responses(
        (status = 200, description = "Always text/plain, never sniffed; bytes that are not UTF-8 are as they came.",
         body = String, example = "{\"action\":\"published\"}"),
        BadRequest, UnknownEvent, Conflict, BodyGone, StoreDown
    )
)]
pub(super) async fn body(
    State(state): State<AdminState>,
    EventNameParam(name): EventNameParam,
) -> Result<Response, Response> {
    let (_, payload) = payload(&state, name).await?;
    // Copied: a shared body would count as in flight until a slow client has read it.
    let body = payload.body.to_vec();
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// The headers that are stored with an event's body.
#[derive(Serialize, ToSchema)]
pub(super) struct HeaderList {
    headers: Vec<HeaderView>,
}

/// A stored header.
#[derive(Serialize, ToSchema)]
struct HeaderView {
    name: String,
    /// `•••` unless a field is read from it.
    value: String,
}

/// Shows the headers that are stored with an event's body.
#[utoipa::path(
    get,
    path = "/api/events/{event}/headers",
    operation_id = "headers",
    params(EventNameParam),
    responses(
        (status = 200, description = "Masked, unless a field is read from them.", body = HeaderList,
         example = json!({ "headers": [
            { "name": "content-type", "value": "application/json" }, { "name": "x-api-key", "value": MASKED },
         ] })),
        BadRequest, UnknownEvent, Conflict, BodyGone, StoreDown
    )
)]
pub(super) async fn headers(
    State(state): State<AdminState>,
    EventNameParam(name): EventNameParam,
) -> Result<Json<HeaderList>, Response> {
    let (event, payload) = payload(&state, name).await?;
    let source = state.sources.iter().find(|source| source.name == event.source);
    let kept = payload.headers.iter().map(|(name, value)| {
        let visible = view::is_header_visible(name, source.map(|source| &**source));
        HeaderView { name: name.clone(), value: if visible { value.clone() } else { MASKED.to_owned() } }
    });
    Ok(Json(HeaderList { headers: kept.collect() }))
}

/// Replays one event: it runs again, in another life, with its original body.
#[utoipa::path(
    post,
    path = "/api/events/{event}/replay",
    operation_id = "replayEvent",
    params(EventNameParam),
    responses(
        (status = 200, description = "The event as it is now.", body = EventView, example = json!(event_example())),
        BadRequest, UnknownEvent, Conflict, BodyGone, StoreDown
    )
)]
pub(super) async fn replay(
    State(state): State<AdminState>,
    EventNameParam(name): EventNameParam,
) -> Result<Json<EventView>, Response> {
    let event = find_event(&state, name).await?;
    match replay_event(&state, &event).await {
        Ok(event) => Ok(Json(view::event(&event))),
        Err(Ok((status, reason))) => Err(refuse(status, &reason)),
        Err(Err(error)) => Err(unavailable(&error)),
    }
}

/// Starts another life of an event; or returns a refusal, or the store's error.
pub(super) async fn replay_event(
    state: &AdminState,
    event: &Event,
) -> Result<Event, Result<(StatusCode, String), StoreError>> {
    let not = |status, why: &str| Err(Ok((status, why.to_owned())));
    match state.store.payload(event.id).await.map_err(Err)? {
        StoredValue::Whole(_) => {}
        // Its body is that of the last good event.
        StoredValue::Forgotten if event.is_rollback() => {}
        StoredValue::Forgotten => return not(StatusCode::GONE, "its body is no longer kept"),
        StoredValue::Damaged => return not(StatusCode::CONFLICT, "its body is damaged"),
    }
    match state.dispatcher.step(event, EventStep::Replay).await.map_err(Err)? {
        Some(AdvanceResult::Written { event, .. }) => Ok(*event),
        Some(AdvanceResult::Lost) => not(StatusCode::CONFLICT, "it changed meanwhile"),
        None => not(StatusCode::CONFLICT, &format!("it is {}", event.state.word())),
    }
}

/// Cancels one event, and ends its command if it runs.
#[utoipa::path(
    post,
    path = "/api/events/{event}/cancel",
    operation_id = "cancelEvent",
    params(EventNameParam),
    responses(
        (status = 200, description = "The event as it is now.", body = EventView, example = json!(event_example())),
        (status = 202, description = "Another node runs it, and ends it before its lease is over.", body = EventView),
        BadRequest, UnknownEvent, Conflict, StoreDown
    )
)]
pub(super) async fn cancel(
    State(state): State<AdminState>,
    EventNameParam(name): EventNameParam,
) -> Result<(StatusCode, Json<EventView>), Response> {
    let event = find_event(&state, name).await?;
    match state.dispatcher.cancel(&event).await {
        Ok(Some(AdvanceResult::Written { event, .. })) if event.is_called_off() => {
            Ok((StatusCode::ACCEPTED, Json(view::event(&event))))
        }
        Ok(Some(AdvanceResult::Written { event, .. })) if event.is_cancelled() => {
            Ok((StatusCode::OK, Json(view::event(&event))))
        }
        Ok(Some(AdvanceResult::Written { event, .. })) => Err(wrong_state(&event)),
        Ok(Some(AdvanceResult::Lost)) => Err(refuse(StatusCode::CONFLICT, "it changed meanwhile")),
        Ok(None) => Err(wrong_state(&event)),
        Err(error) => Err(unavailable(&error)),
    }
}

fn wrong_state(event: &Event) -> Response {
    refuse(StatusCode::CONFLICT, &format!("it is {}", event.state.word()))
}

/// Forgets one event with its keys: the same delivery then acts again.
#[utoipa::path(
    delete,
    path = "/api/events/{event}",
    operation_id = "forgetEvent",
    params(EventNameParam),
    responses(
        (status = 200, description = "The event is gone.", body = ForgottenView,
         example = json!({ "forgotten": 1, "event": "019c3fa9-c01e-7a11-8c2e-4f6b3fa9c01e" })),
        BadRequest, UnknownEvent, Conflict, StoreDown
    )
)]
pub(super) async fn remove(
    State(state): State<AdminState>,
    EventNameParam(name): EventNameParam,
) -> Result<Json<ForgottenView>, Response> {
    let event = find_event(&state, name).await?;
    match state.store.remove(event.id).await {
        Ok(RemovalResult::Removed) => Ok(Json(view::forgotten_event(event.id))),
        Ok(RemovalResult::NotOver) => Err(wrong_state(&event)),
        Ok(RemovalResult::Unknown) => Err(unknown_event()),
        Err(error) => Err(unavailable(&error)),
    }
}

params!(
    /// Whether the clock is right.
    ForgetParams,
    [query("now", "The operator confirms that the clock is right: what it has jumped counts at once.", word(&["1"]))]
);

/// Deletes what has passed its retention. For cron; never needed for correctness, and safe to call twice.
#[utoipa::path(
    post,
    path = "/api/forget",
    operation_id = "forget",
    params(ForgetParams),
    responses(
        (status = 200, description = "How much was deleted.", body = ForgottenView,
         example = json!({ "forgotten": 120, "bodies": 7 })),
        BadRequest, StoreDown
    )
)]
pub(super) async fn forget(
    State(state): State<AdminState>,
    mut params: QueryParams,
) -> Result<Json<ForgottenView>, Response> {
    let clock_is_right = params.flag("now")?;
    params.finish()?;
    if clock_is_right {
        state.store.confirm_time().await.map_err(|error| unavailable(&error))?;
    }
    let swept = state.dispatcher.forget_now().await.map_err(|error| unavailable(&error))?;
    Ok(Json(view::forgotten(swept, &*state.store)))
}
