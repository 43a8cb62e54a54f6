//! `/api/live`: a live stream of server-sent events.
//!
//! A client that falls behind gets a `missed` event and is disconnected: its page is outdated, and it can load it
//! again. `hookonce tail` has no page to load again, so with `tail=1` the client stays connected.

use super::openapi::{self, BadRequest, TooManyStreams, params, query, text, word};
use super::query::{QueryParams, QueryRejection};
use super::remote_output::RemoteNews;
use super::{AdminState, remote_output, unavailable_response, view};
use crate::action::OutputChunk;
use crate::decide::event::{Event, EventState};
use crate::decide::id::{EventId, Revision};
use crate::decide::limits;
use crate::observe::delivery_log::{DeliveryRecord, DeliveryVerdict};
use crate::store::status_text::status_text;
use crate::store::{ChangeHint, EventDetails, EventQuery};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response, sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use serde_json::json;
use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::broadcast::{Receiver, channel, error::RecvError};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

/// How long a client waits before it reconnects.
const RETRY: Duration = Duration::from_secs(2);
/// Messages per second with `few=1`.
const FEW: u32 = 40;
/// The second of [`FEW`]; also the least time between two `more` events.
const PACE: Duration = Duration::from_secs(1);
/// The delay between a write of another node and `more`: due events have started by then.
const MOMENT: Duration = Duration::from_millis(250);
/// How many events are remembered as events of the requested source, because output names only its event.
const KNOWN_MAX: usize = 4096;

/// The mode of a stream: what it leaves out, and how it treats a slow client.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum SseMode {
    /// For a page that can reload: `missed` ends the stream.
    #[default]
    Page,
    /// For a terminal: a waiting or dead event has `why`, an accepted delivery shows only as its event, writes of other
    /// nodes cause no `more`, and `missed` does not end the stream.
    Tail,
}

/// The query of a stream.
#[derive(Default)]
struct SseQuery {
    source: Option<String>,
    event: Option<EventId>,
    no_output: bool,
    few: bool,
    mode: SseMode,
}

impl SseQuery {
    fn parse(mut params: QueryParams) -> Result<Self, QueryRejection> {
        let query = Self {
            source: params.text("source")?,
            event: params.parsed("event", |text| text.parse().ok())?,
            no_output: params.word("output", &["0", "1"])? == Some("0"),
            few: params.flag("few")?,
            mode: if params.flag("tail")? { SseMode::Tail } else { SseMode::Page },
        };
        params.finish()?;
        Ok(query)
    }
}

params!(
    /// What to follow.
    StreamParams,
    [
        query("source", "Only of this source; the output of its events, too.", text()),
        query("event", "Only of this event.", openapi::event_id()),
        query("output", "0: without output.", word(&["0", "1"]).default(Some("1".into()))),
        query("few", "At most 40 messages a second, and `more` in place of the rest.", word(&["1"])),
        query(
            "tail",
            "The stream that `hookonce tail` prints: an event that waits or is dead says `why`, an accepted delivery \
             shows only as its event, other nodes cause no `more`, and `missed` does not end the stream.",
            word(&["1"])
        ),
    ]
);

/// Streams what happens on this node, as it happens.
///
/// Server-sent events, from now on, until the node stops or the client falls behind. Kinds:
/// - `state`: an event, each time this node writes one. With `event`, also when another node of the store has moved it.
/// - `delivery`: `{at, node, source, path, verdict, status, reason, why, delivery, bytes, event, same}` for each delivery
///   to this node: accepted, duplicate, stale, ignored, refused, unavailable.
/// - `output`: `{event, text}`: what a command of this node writes. With `event`, the first of them has `so_far: true` and
///   all that its attempt wrote before; and what a command of another node of the store writes comes, too, once a second:
///   at most the last 32 KiB of it.
/// - `missed`: `{missed}`: this client fell behind, and the stream ends after it: read what is on the page again and
///   reconnect. Also sent first to a client that reconnects with `Last-Event-ID`.
/// - `more`: `{}`: another node wrote something to the store that they share, at most once a second; or, with `few=1`,
///   more happened in this second than was sent. The stream continues: load the page's data again.
///
/// `id` is a time of the store in microseconds; `retry` is 2 s.
#[utoipa::path(
    get,
    path = "/api/live",
    operation_id = "live",
    params(StreamParams),
    responses(
        (status = 200, description = "The stream.", body = String, content_type = "text/event-stream"),
        BadRequest, TooManyStreams
    )
)]
pub(super) async fn live(
    State(state): State<AdminState>,
    headers: HeaderMap,
    params: QueryParams,
) -> Result<Response, Response> {
    open(state, &headers, SseQuery::parse(params)?).await
}

/// Streams what `hookonce tail` prints. Use /api/live?tail=1 instead.
///
/// The path that `hookonce tail` of version 0.1.0 asks for.
#[utoipa::path(
    get,
    path = "/api/tail",
    operation_id = "tail",
    responses(
        (status = 200, description = "The stream.", body = String, content_type = "text/event-stream"),
        TooManyStreams
    )
)]
pub(super) async fn tail(State(state): State<AdminState>, headers: HeaderMap) -> Result<Response, Response> {
    open(state, &headers, SseQuery { mode: SseMode::Tail, ..SseQuery::default() }).await
}

async fn open(state: AdminState, headers: &HeaderMap, query: SseQuery) -> Result<Response, Response> {
    let Ok(permit) = state.listeners.clone().try_acquire_owned() else {
        let limit = limits::LISTENERS_MAX;
        return Err(unavailable_response(&format!("too many live streams are open (limit {limit})")));
    };
    let SseQuery { source, event, no_output, few, mode } = query;
    let (changes, deliveries) = (state.dispatcher.state_changes(), state.metrics.subscribe());
    let hints = if mode == SseMode::Page { state.store.hints() } else { None };
    let (so_far, output) = match event.filter(|_| !no_output) {
        Some(event) => state.dispatcher.output_of(event),
        None => (None, state.dispatcher.output()),
    };
    let mut filter = LiveFilter { source, event, output: !no_output, known: HashSet::new() };
    // Events that are already running write output, too.
    if let (Some(source), true) = (&filter.source, filter.output) {
        let running = EventQuery {
            source: Some(source.clone()),
            state: Some("running".to_owned()),
            limit: crate::admin::LIST_MAX,
            ..EventQuery::default()
        };
        let running = state.store.list(running).await.unwrap_or_default();
        filter.known.extend(running.iter().map(|event| event.id));
    }
    let reconnected = headers.contains_key("last-event-id");
    let remote = event.filter(|_| !no_output).map(|event| remote_output::follow(&state, event));
    let stream = EventStream {
        changes,
        so_far,
        output,
        remote,
        sent: None,
        deliveries,
        peers: PeerChanges { hints, ..PeerChanges::default() },
        filter,
        mode,
        phase: match mode {
            SseMode::Page if reconnected => SsePhase::Missed,
            SseMode::Page => SsePhase::Start,
            SseMode::Tail => SsePhase::Events,
        },
        rate_limit: few.then(StreamRateLimit::default),
        state,
        _permit: permit,
    };
    // nginx would buffer the stream without this header.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((unbuffered, Sse::new(messages(stream)).keep_alive(KeepAlive::default())).into_response())
}

/// Which events, deliveries and output one client of the live stream is sent.
struct LiveFilter {
    source: Option<String>,
    event: Option<EventId>,
    output: bool,
    known: HashSet<EventId>,
}

impl LiveFilter {
    fn state(&mut self, event: &Event) -> bool {
        let of_source = self.source.as_deref().is_none_or(|source| *source == *event.source);
        if of_source && self.source.is_some() && self.output {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            self.known.insert(event.id);
        }
        of_source && self.event.is_none_or(|wanted| wanted == event.id)
    }

    fn delivery(&self, delivery: &DeliveryRecord, mode: SseMode) -> bool {
        // The terminal shows the new event itself.
        (mode == SseMode::Page || delivery.verdict != DeliveryVerdict::Accepted)
            && self.source.as_deref().is_none_or(|source| delivery.source.as_deref() == Some(source))
            && self.event.is_none_or(|wanted| delivery.event == Some(wanted))
    }

    fn chunk(&self, chunk: &OutputChunk) -> bool {
        self.output
            && (self.source.is_none() || self.known.contains(&chunk.event))
            && self.event.is_none_or(|wanted| wanted == chunk.event)
    }

    /// Whether a hint may concern a requested event.
    fn hint(&self, hint: &ChangeHint) -> bool {
        match hint {
            ChangeHint::Due { source, .. } => self.source.as_deref().is_none_or(|wanted| *wanted == **source),
            ChangeHint::Ended(event) => self.event.is_none_or(|wanted| wanted == *event),
            ChangeHint::Watched(_) => false,
            ChangeHint::Missed => true,
        }
    }
}

/// The phase of a stream, which decides what it sends next.
enum SsePhase {
    /// The reconnection delay.
    Start,
    /// `missed`, because the client was connected before.
    Missed,
    /// The events.
    Events,
    /// Nothing: the stream is over.
    End,
}

/// One client's subscription to the events of this node.
struct EventStream {
    state: AdminState,
    changes: Receiver<Event>,
    /// What the requested event's attempt has written before the client connected; sent first.
    so_far: Option<Vec<u8>>,
    output: Receiver<OutputChunk>,
    /// What other nodes do with the requested event.
    remote: Option<mpsc::Receiver<RemoteNews>>,
    /// The revision of the requested event that was last sent.
    sent: Option<Revision>,
    deliveries: Receiver<DeliveryRecord>,
    peers: PeerChanges,
    filter: LiveFilter,
    mode: SseMode,
    phase: SsePhase,
    rate_limit: Option<StreamRateLimit>,
    _permit: OwnedSemaphorePermit,
}

/// The messages sent in this second to a client that asked for few. A page that loads its numbers once a second does
/// not cost a busy node a message for each delivery.
#[derive(Default)]
struct StreamRateLimit {
    since: Option<Instant>,
    sent: u32,
}

impl StreamRateLimit {
    /// Counts a message.
    fn count(&mut self) {
        if self.since.is_none_or(|since| since.elapsed() >= PACE) {
            (self.since, self.sent) = (Some(Instant::now()), 0);
        }
        self.sent += 1;
    }

    /// Until when nothing more may be sent.
    fn paused_until(&self) -> Option<Instant> {
        self.since.filter(|since| self.sent >= FEW && since.elapsed() < PACE).map(|since| since + PACE)
    }
}

/// Writes of other nodes, if the store reports them: not what they wrote, only that there is a reason to load again.
#[derive(Default)]
struct PeerChanges {
    /// The store's hints; `None` while `more` is due.
    hints: Option<Receiver<ChangeHint>>,
    /// When `more` is due.
    due: Option<Instant>,
    /// When `more` was last sent.
    sent: Option<Instant>,
}

impl PeerChanges {
    /// Waits until `more` is due; for ever if the store reports nothing.
    async fn changed(&mut self, filter: &LiveFilter) {
        if self.due.is_none() {
            self.hint(filter).await;
            self.hints = None;
            let soon = Instant::now() + MOMENT;
            self.due = Some(self.sent.map_or(soon, |sent| soon.max(sent + PACE)));
        }
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
    }

    async fn hint(&mut self, filter: &LiveFilter) {
        while let Some(hints) = &mut self.hints {
            match hints.recv().await {
                Ok(hint) if !filter.hint(&hint) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => self.hints = None,
            }
        }
        std::future::pending::<()>().await;
    }
}

/// The next news of the requested event from other nodes; waits for ever where there are none.
async fn remote_news(remote: &mut Option<mpsc::Receiver<RemoteNews>>) -> RemoteNews {
    if let Some(news) = remote
        && let Some(news) = news.recv().await
    {
        return news;
    }
    *remote = None;
    std::future::pending().await
}

fn messages(stream: EventStream) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    unfold(stream, |mut stream| async move {
        let message = match stream.phase {
            SsePhase::End => return None,
            SsePhase::Start => sse::Event::default().retry(RETRY).comment("from now on"),
            SsePhase::Missed => stream.message("missed", &json!({ "missed": 0 })).retry(RETRY),
            SsePhase::Events => {
                let closing = stream.state.closing.clone();
                tokio::select! {
                    // Pending messages are sent before the port closes.
                    biased;
                    message = stream.next() => message?,
                    () = closing.cancelled() => return None,
                }
            }
        };
        if !matches!(stream.phase, SsePhase::End) {
            stream.phase = SsePhase::Events;
        }
        Some((Ok(message), stream))
    })
}

impl EventStream {
    /// The next message; `None` when the node has stopped.
    async fn next(&mut self) -> Option<sse::Event> {
        if let (Some(text), Some(event)) = (self.so_far.take(), self.filter.event) {
            let mut chunk = view::chunk(&OutputChunk { event, bytes: text.into() });
            chunk.so_far = true;
            return Some(self.message("output", &chunk));
        }
        if let Some(until) = self.rate_limit.as_ref().and_then(StreamRateLimit::paused_until) {
            return Some(self.pause(until).await);
        }
        loop {
            let missed = tokio::select! {
                change = self.changes.recv() => match change {
                    Ok(event) if self.filter.state(&event) && self.is_news(&event) => {
                        let event = self.state_change(event).await;
                        return Some(self.message("state", &event));
                    }
                    Ok(_) => continue,
                    Err(error) => error,
                },
                delivery = self.deliveries.recv() => match delivery {
                    Ok(delivery) if self.filter.delivery(&delivery, self.mode) => {
                        let node = self.state.dispatcher.node().to_string();
                        return Some(self.message("delivery", &view::delivery(&delivery, &node)));
                    }
                    Ok(_) => continue,
                    Err(error) => error,
                },
                chunk = self.output.recv() => match chunk {
                    Ok(chunk) if self.filter.chunk(&chunk) => {
                        return Some(self.message("output", &view::chunk(&chunk)));
                    }
                    Ok(_) => continue,
                    Err(error) => error,
                },
                news = remote_news(&mut self.remote) => match news {
                    RemoteNews::Output(chunk, so_far) => {
                        let mut chunk = view::chunk(&chunk);
                        chunk.so_far = so_far;
                        return Some(self.message("output", &chunk));
                    }
                    RemoteNews::State(event) if self.is_news(&event) => {
                        let event = self.state_change(*event).await;
                        return Some(self.message("state", &event));
                    }
                    RemoteNews::State(_) => continue,
                },
                () = self.peers.changed(&self.filter) => return Some(self.more()),
            };
            match missed {
                RecvError::Closed => return None,
                RecvError::Lagged(missed) => {
                    if self.mode == SseMode::Page {
                        self.phase = SsePhase::End;
                    }
                    return Some(self.message("missed", &json!({ "missed": missed })));
                }
            }
        }
    }

    /// Whether the client has not been sent this revision of the requested event. This node's own writes and those found
    /// in the store may be the same.
    fn is_news(&mut self, event: &Event) -> bool {
        let is_news = self.filter.event.is_none() || self.sent.is_none_or(|sent| event.revision > sent);
        if is_news && self.filter.event.is_some() {
            self.sent = Some(event.revision);
        }
        is_news
    }

    /// An event; for a terminal with the reason why it waits or is dead, as far as the store knows it.
    async fn state_change(&self, event: Event) -> StateChange {
        let mut change = StateChange { event: view::event(&event), why: None };
        if self.mode == SseMode::Tail
            && matches!(event.state, EventState::Waiting { .. } | EventState::Dead { .. })
            && let Ok(Some(details)) = self.state.store.details(event.id).await
        {
            let mut details = at_event(event, details);
            self.state.mark_suspended(&mut details);
            change.why = Some(status_text(&details, self.state.store.now()));
        }
        change
    }

    /// Unsubscribes until then, so that no messages are prepared for a client that must not get them.
    async fn pause(&mut self, until: Instant) -> sse::Event {
        (self.changes, self.deliveries, self.peers.hints) = (channel(1).1, channel(1).1, None);
        tokio::time::sleep_until(until).await;
        self.changes = self.state.dispatcher.state_changes();
        self.deliveries = self.state.metrics.subscribe();
        self.rate_limit = Some(StreamRateLimit::default());
        self.more()
    }

    /// `more`: there is something to load again. Later writes cause another one.
    fn more(&mut self) -> sse::Event {
        let hints = if self.mode == SseMode::Page { self.state.store.hints() } else { None };
        self.peers = PeerChanges { hints, due: None, sent: Some(Instant::now()) };
        self.message("more", &json!({}))
    }

    fn message(&mut self, kind: &str, data: &impl Serialize) -> sse::Event {
        if let Some(rate_limit) = &mut self.rate_limit {
            rate_limit.count();
        }
        let id = self.state.store.now().0.to_string();
        let data = serde_json::to_string(data).expect("a view has only members that JSON can hold");
        sse::Event::default().event(kind).data(data).id(id)
    }
}

/// An event that this node wrote.
#[derive(Serialize)]
struct StateChange {
    #[serde(flatten)]
    event: view::EventView,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The details at this revision of the event: it may have moved on since.
fn at_event(event: Event, details: EventDetails) -> EventDetails {
    let mut attempts = details.attempts;
    attempts.retain(|attempt| (attempt.life, attempt.attempt) <= (event.life, event.attempt));
    EventDetails { event, attempts, ..details }
}
