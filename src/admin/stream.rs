//! What happens, as it happens: server-sent events. Who reads too slowly is told so and let go: what they show is old,
//! and they know where to read it anew.

use super::query::QueryParams;
use super::{AdminState, unavailable_response, view};
use crate::action::OutputChunk;
use crate::decide::event::Event;
use crate::decide::id::EventId;
use crate::observe::delivery_log::DeliveryRecord;
use crate::store::{ChangeHint, EventQuery};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response, sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{Receiver, channel, error::RecvError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a reader waits before it comes back.
const RETRY: Duration = Duration::from_secs(2);
/// Messages in a second for who wants few.
const FEW: u32 = 40;
/// That second.
const PACE: Duration = Duration::from_secs(1);
/// How long after other nodes wrote something the reader hears of it: what became due has begun by then.
const MOMENT: Duration = Duration::from_millis(250);
/// Events of a source that are known to be its own, so that their output is.
const KNOWN_MAX: usize = 4096;

/// What who would be one too many is told.
pub(super) const TOO_MANY: &str = "too many look on already";

/// Follows what happens.
pub(super) async fn live(
    State(desk): State<AdminState>,
    headers: HeaderMap,
    mut asked: QueryParams,
) -> Result<Response, Response> {
    let (source, event) = (asked.text("source")?, asked.parsed("event", |text| text.parse::<EventId>().ok())?);
    let output = asked.word("output", &["0", "1"])? != Some("0");
    let few = asked.word("few", &["1"])?.map(|_| StreamRateLimit::default());
    asked.finish()?;
    let Ok(place) = desk.listeners.clone().try_acquire_owned() else {
        return Err(unavailable_response(TOO_MANY));
    };
    let (news, heard) = (desk.dispatcher.state_changes(), desk.dispatcher.meter().subscribe());
    let others = PeerChanges { hints: desk.store.hints(), ..PeerChanges::default() };
    let (so_far, chunks) = match event.filter(|_| output) {
        Some(event) => desk.dispatcher.output_of(event),
        None => (None, desk.dispatcher.output()),
    };
    let mut wanted = LiveFilter { source, event, output, known: HashSet::new() };
    // What runs already writes output too.
    if let (Some(source), true) = (&wanted.source, output) {
        let (source, state) = (Some(source.clone()), Some("running".to_owned()));
        let running = EventQuery { source, state, limit: crate::admin::LIST_MAX, ..EventQuery::default() };
        let running = desk.store.list(running).await.unwrap_or_default();
        wanted.known.extend(running.iter().map(|event| event.id));
    }
    let closing = desk.closing.clone();
    let came_back = headers.contains_key("last-event-id");
    let next = if came_back { StreamPhase::Missed } else { StreamPhase::Start };
    let ears =
        EventStream { desk, news, so_far, chunks, heard, others, closing, wanted, next, pace: few, _place: place };
    Ok(streamed(follow(ears)))
}

/// A stream, which a proxy between must pass on as it comes: nginx would gather it first.
pub(super) fn streamed(news: impl Stream<Item = Result<sse::Event, Infallible>> + Send + 'static) -> Response {
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    (unbuffered, Sse::new(news).keep_alive(KeepAlive::default())).into_response()
}

/// What a reader wants to hear.
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

    fn heard(&self, heard: &DeliveryRecord) -> bool {
        self.source.as_deref().is_none_or(|source| heard.source.as_deref() == Some(source))
            && self.event.is_none_or(|wanted| heard.event == Some(wanted))
    }

    fn chunk(&self, chunk: &OutputChunk) -> bool {
        self.output
            && (self.source.is_none() || self.known.contains(&chunk.event))
            && self.event.is_none_or(|wanted| wanted == chunk.event)
    }

    /// May it be about what is wanted?
    fn hint(&self, hint: &ChangeHint) -> bool {
        match hint {
            ChangeHint::Due { source, .. } => self.source.as_deref().is_none_or(|wanted| *wanted == **source),
            ChangeHint::Ended(event) => self.event.is_none_or(|wanted| wanted == *event),
            ChangeHint::Missed => true,
        }
    }
}

/// What is said next, before anything is heard.
enum StreamPhase {
    /// How long to wait before coming back.
    Start,
    /// That something was missed.
    Missed,
    /// What happens.
    News,
    /// Nothing more.
    End,
}

struct EventStream {
    desk: AdminState,
    news: Receiver<Event>,
    /// What the event's attempt had written before; told first.
    so_far: Option<Vec<u8>>,
    chunks: Receiver<OutputChunk>,
    heard: Receiver<DeliveryRecord>,
    others: PeerChanges,
    closing: CancellationToken,
    wanted: LiveFilter,
    next: StreamPhase,
    pace: Option<StreamRateLimit>,
    _place: OwnedSemaphorePermit,
}

/// How much was told in this second, to who wants only so much of it. Whoever looks at numbers that are read once a
/// second anyway does not cost a busy node a message for each delivery.
#[derive(Default)]
struct StreamRateLimit {
    since: Option<Instant>,
    told: u32,
}

impl StreamRateLimit {
    /// Counts one that is told.
    fn tell(&mut self) {
        if self.since.is_none_or(|since| since.elapsed() >= PACE) {
            (self.since, self.told) = (Some(Instant::now()), 0);
        }
        self.told += 1;
    }

    /// Until when nothing more is told.
    fn rest(&self) -> Option<Instant> {
        self.since.filter(|since| self.told >= FEW && since.elapsed() < PACE).map(|since| since + PACE)
    }
}

/// What other nodes write, where the store tells: not what it is, only that there is a reason to read again.
#[derive(Default)]
struct PeerChanges {
    /// Nobody, while there is something to tell.
    hints: Option<Receiver<ChangeHint>>,
    /// When to tell it.
    due: Option<Instant>,
    /// When that was done last.
    told: Option<Instant>,
}

impl PeerChanges {
    /// Waits until it is to be told that others wrote something; for ever where nobody says so.
    async fn changed(&mut self, wanted: &LiveFilter) {
        if self.due.is_none() {
            self.hint(wanted).await;
            self.hints = None;
            let soon = Instant::now() + MOMENT;
            self.due = Some(self.told.map_or(soon, |told| soon.max(told + PACE)));
        }
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
    }

    async fn hint(&mut self, wanted: &LiveFilter) {
        while let Some(hints) = &mut self.hints {
            match hints.recv().await {
                Ok(hint) if !wanted.hint(&hint) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => self.hints = None,
            }
        }
        std::future::pending::<()>().await;
    }
}

fn follow(ears: EventStream) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    unfold(ears, |mut ears| async move {
        let said = match ears.next {
            StreamPhase::End => return None,
            StreamPhase::Start => sse::Event::default().retry(RETRY).comment("from now on"),
            StreamPhase::Missed => ears.say("missed", &json!({ "missed": 0 })).retry(RETRY),
            StreamPhase::News => {
                let closing = ears.closing.clone();
                tokio::select! {
                    // What has happened is told before the port closes.
                    biased;
                    said = ears.next_event() => said?,
                    () = closing.cancelled() => return None,
                }
            }
        };
        if !matches!(ears.next, StreamPhase::End) {
            ears.next = StreamPhase::News;
        }
        Some((Ok(said), ears))
    })
}

impl EventStream {
    /// The next that is wanted; `None`: nobody tells any more.
    async fn next_event(&mut self) -> Option<sse::Event> {
        if let (Some(text), Some(event)) = (self.so_far.take(), self.wanted.event) {
            let mut told = view::chunk(&OutputChunk { event, bytes: text.into() });
            told["so_far"] = true.into();
            return Some(self.say("output", &told));
        }
        if let Some(until) = self.pace.as_ref().and_then(StreamRateLimit::rest) {
            return Some(self.pause(until).await);
        }
        loop {
            let missed = tokio::select! {
                heard = self.news.recv() => match heard {
                    Ok(event) if self.wanted.state(&event) => return Some(self.say("state", &view::event(&event))),
                    Ok(_) => continue,
                    Err(error) => error,
                },
                heard = self.heard.recv() => match heard {
                    Ok(heard) if self.wanted.heard(&heard) => {
                        let node = self.desk.dispatcher.node().to_string();
                        return Some(self.say("delivery", &view::delivery(&heard, &node)));
                    }
                    Ok(_) => continue,
                    Err(error) => error,
                },
                chunk = self.chunks.recv() => match chunk {
                    Ok(chunk) if self.wanted.chunk(&chunk) => return Some(self.say("output", &view::chunk(&chunk))),
                    Ok(_) => continue,
                    Err(error) => error,
                },
                () = self.others.changed(&self.wanted) => return Some(self.more()),
            };
            match missed {
                RecvError::Closed => return None,
                RecvError::Lagged(missed) => {
                    self.next = StreamPhase::End;
                    return Some(self.say("missed", &json!({ "missed": missed })));
                }
            }
        }
    }

    /// Listens to nobody until then: what nobody hears is not even put into words.
    async fn pause(&mut self, until: Instant) -> sse::Event {
        (self.news, self.heard, self.others.hints) = (channel(1).1, channel(1).1, None);
        tokio::time::sleep_until(until).await;
        (self.news, self.heard) = (self.desk.dispatcher.state_changes(), self.desk.dispatcher.meter().subscribe());
        self.pace = Some(StreamRateLimit::default());
        self.more()
    }

    /// That there is something to read again. What is written from now on is another reason.
    fn more(&mut self) -> sse::Event {
        self.others = PeerChanges { hints: self.desk.store.hints(), due: None, told: Some(Instant::now()) };
        self.say("more", &json!({}))
    }

    fn say(&mut self, kind: &str, data: &Value) -> sse::Event {
        if let Some(pace) = &mut self.pace {
            pace.tell();
        }
        view::sse_event(kind, data).id(self.desk.store.now().0.to_string())
    }
}
