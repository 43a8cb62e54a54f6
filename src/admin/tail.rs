//! What `hookonce tail` reads: states, with why an event waits or is dead, output, and deliveries that made no event. A
//! slow reader misses some and stays.

use super::{AdminState, view};
use crate::action::OutputChunk;
use crate::decide::event::{Event, EventState};
use crate::observe::delivery_log::{DeliveryRecord, DeliveryVerdict};
use crate::store::EventDetails;
use crate::store::status_text::status_text;
use axum::response::sse;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{Receiver, error::RecvError};

struct TailStream {
    desk: AdminState,
    news: Receiver<Event>,
    output: Receiver<OutputChunk>,
    heard: Receiver<DeliveryRecord>,
    _place: OwnedSemaphorePermit,
}

/// All of it as server-sent events, until the port closes.
pub(super) fn news(
    desk: AdminState,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    let (news, output) = (desk.dispatcher.state_changes(), desk.dispatcher.output());
    let heard = desk.dispatcher.meter().subscribe();
    let ears = TailStream { desk, news, output, heard, _place: place };
    unfold(ears, |mut ears| async move {
        let closing = ears.desk.closing.clone();
        tokio::select! {
            // What has happened is told before the port closes.
            biased;
            said = ears.next() => said.map(|said| (Ok(said), ears)),
            () = closing.cancelled() => None,
        }
    })
}

impl TailStream {
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            let missed = tokio::select! {
                heard = self.news.recv() => match heard {
                    Ok(event) => return Some(view::sse_event("state", &self.explained(event).await)),
                    Err(missed) => missed,
                },
                heard = self.output.recv() => match heard {
                    Ok(chunk) => return Some(view::sse_event("output", &view::chunk(&chunk))),
                    Err(missed) => missed,
                },
                heard = self.heard.recv() => match heard {
                    // The event itself tells that it is new.
                    Ok(DeliveryRecord { verdict: DeliveryVerdict::Accepted, .. }) => continue,
                    Ok(heard) => {
                        let node = self.desk.dispatcher.node().to_string();
                        return Some(view::sse_event("delivery", &view::delivery(&heard, &node)));
                    }
                    Err(missed) => missed,
                },
            };
            return match missed {
                RecvError::Lagged(missed) => Some(view::sse_event("missed", &json!({ "missed": missed }))),
                RecvError::Closed => None,
            };
        }
    }

    /// An event, and why it waits or is dead. Left out where the store does not tell.
    async fn explained(&self, event: Event) -> Value {
        let mut told = view::event(&event);
        if matches!(event.state, EventState::Waiting { .. } | EventState::Dead { .. })
            && let Ok(Some(story)) = self.desk.store.details(event.id).await
        {
            let mut story = at_event(event, story);
            self.desk.mark_suspended(&mut story);
            told["why"] = status_text(&story, self.desk.store.now()).into();
        }
        told
    }
}

/// The story as it was when the event stood so: meanwhile it may have gone on.
fn at_event(event: Event, story: EventDetails) -> EventDetails {
    let mut attempts = story.attempts;
    attempts.retain(|tried| (tried.life, tried.attempt) <= (event.life, event.attempt));
    EventDetails { event, attempts, ..story }
}
