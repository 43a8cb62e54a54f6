//! Events as people and their tools see them: JSON in the words of the design. Bodies and secrets are not in it.

use crate::action::OutputChunk;
use crate::decide::claim::MatchedBy;
use crate::decide::event::{DoneReason, Event, EventState};
use crate::decide::expiry_clock::PendingClockJump;
use crate::decide::field::{FieldLocation, FieldValue as Field};
use crate::decide::id::EventId;
use crate::decide::source::Source;
use crate::decide::time::Timestamp;
use crate::observe::delivery_log::DeliveryRecord;
use crate::store::inspect::QuarantinedMessage;
use crate::store::status_text::status_text;
use crate::store::{DuplicateSighting, EventDetails, ForgetCounts, Inspect, StoreError, StoredValue};
use serde::Serialize;
use serde_json::{Value, json};

/// One message in quarantine. Nothing in it was verified, and it may hold anything: what cannot be read is replaced.
pub(crate) fn quarantined(message: &QuarantinedMessage) -> Value {
    json!({
        "source": &*message.source,
        "message": message.message,
        "subject": message.subject,
        "at": message.at,
        "why": message.why,
        "bytes": message.bytes,
        "head": String::from_utf8_lossy(&message.head),
    })
}

/// What a sweep forgot, and what it waits for.
pub(crate) fn forgotten(ForgetCounts { events, bodies }: ForgetCounts, store: &dyn Inspect) -> Value {
    let mut shown = json!({ "forgotten": events, "bodies": bodies });
    if let Some(waiting) = store.expiry().waiting {
        shown["waiting"] = self::waiting(&waiting);
    }
    shown
}

/// A jump of the clock that expiry waits for.
pub(crate) fn waiting(waiting: &PendingClockJump) -> Value {
    json!({ "since": waiting.since, "jump": waiting.jump.as_secs(), "left": waiting.left.as_secs() })
}

/// One event.
pub(crate) fn event(event: &Event) -> Value {
    let fields: Value = event.fields.iter().map(|(name, value)| (name.to_owned(), field(value))).collect();
    let mut shown = json!({
        "event": event.id,
        "source": &*event.source,
        "route": &*event.route,
        "delivery": event.delivery_id.as_deref(),
        "fields": fields,
        "state": event.state.word(),
        "received_at": event.received_at,
        "life": event.life,
        "attempt": event.attempt,
        "doubts": event.doubts,
    });
    match &event.state {
        EventState::Waiting { due } => shown["due"] = json!(due),
        EventState::Running { until, by, .. } => {
            (shown["until"], shown["node"]) = (json!(until), json!(by.to_string()));
        }
        EventState::Done { how, at } => {
            (shown["how"], shown["ended_at"]) = (how.word().into(), json!(at));
            if let DoneReason::Superseded { by } = how {
                shown["superseded_by"] = json!(by);
            }
        }
        EventState::Dead { cause, at } => (shown["cause"], shown["ended_at"]) = (cause.word().into(), json!(at)),
    }
    if let Some(again) = &event.published_again {
        shown["published_again"] =
            json!({ "times": again.times, "last_at": again.last_at, "message": event.idempotency_key() });
    }
    shown
}

/// The integers up to which a number of JavaScript, and of many a reader of JSON, is exact.
const EXACT_MAX: i64 = (1 << 53) - 1;

/// A number that a usual reader of JSON would give back in another spelling is shown as text: it is an id, not an
/// amount.
fn field(value: &Field) -> Value {
    match value {
        Field::Text(text) => (**text).into(),
        Field::Bool(flag) => (*flag).into(),
        Field::Number(raw) => exact(raw).unwrap_or_else(|| (**raw).into()),
    }
}

/// The number whose usual spelling this is, and no other's.
fn exact(raw: &str) -> Option<Value> {
    let read = serde_json::from_str::<Value>(raw).ok().filter(|number| *number.to_string() == *raw)?;
    let exact = match read.as_i64() {
        Some(whole) => (-EXACT_MAX..=EXACT_MAX).contains(&whole),
        // Exponents, and a fraction of nothing, are written by each in its own way.
        None => read.is_f64() && !raw.contains('e') && !raw.ends_with(".0"),
    };
    exact.then_some(read)
}

/// All that is known of one, and in one sentence why it stands where it stands now.
pub(crate) fn event_story(story: &EventDetails, now: Timestamp) -> Value {
    let mut shown = event(&story.event);
    shown["why"] = status_text(story, now).into();
    shown["behind"] = json!(story.behind);
    shown["identities"] = identities(story).iter().map(MatchedBy::word).collect();
    shown["duplicates"] = story.duplicates.into();
    let sighting = |seen: &DuplicateSighting| json!({ "at": seen.at, "delivery": seen.delivery_id.as_deref(), "same": seen.same.word() });
    shown["deliveries"] = story.sightings.iter().map(sighting).collect();
    let tried = |tried: &crate::decide::transition::AttemptRecord| {
        json!({
            "life": tried.life,
            "attempt": tried.attempt,
            "started_at": tried.started_at,
            "ended_at": tried.ended_at,
            "outcome": tried.outcome,
            "why": tried.why,
            "output": String::from_utf8_lossy(&tried.output),
        })
    };
    shown["attempts"] = story.attempts.iter().map(tried).collect();
    shown["has_body"] = story.has_body.into();
    if let Some(receipt) = &story.receipt {
        shown["receipt"] = json!({
            "status": receipt.status,
            "headers": receipt.headers,
            "body": String::from_utf8_lossy(&receipt.body),
            "cut": receipt.truncated,
        });
    }
    shown
}

/// The same, with the headers that are kept until it ends, to be passed on: by name. What they say is not shown.
pub(crate) async fn event_details(store: &dyn Inspect, story_of: &EventDetails) -> Result<Value, StoreError> {
    let mut shown = event_story(story_of, store.now());
    if story_of.event.state.ended().is_none()
        && story_of.has_body
        && let StoredValue::Whole(payload) = store.payload(story_of.event.id).await?
    {
        let concealed = payload.transient_header_names().map(|name| (name.to_owned(), Value::from(MASKED)));
        shown["headers"] = concealed.collect();
    }
    Ok(shown)
}

/// What stands in place of what is nobody's to see.
pub(crate) const MASKED: &str = "•••";

/// May the value of this kept header be shown? Only if it is needed to read the body, or if a field is read from it
/// anyway; what proves who somebody is, never.
pub(crate) fn is_header_visible(name: &str, source: Option<&Source>) -> bool {
    let secret = ["authorization", "proxy-authorization", "cookie", "set-cookie"].contains(&name)
        || source.is_some_and(|source| source.verify.signature_headers().contains(&name));
    let read = |source: &Source| source.fields.iter().any(|field| field.at == FieldLocation::Header(name.into()));
    !secret && (matches!(name, "content-type" | "traceparent") || source.is_some_and(read))
}

/// A delivery and what became of it. Its body is not kept.
#[derive(Serialize)]
pub(crate) struct DeliveryView {
    /// When it arrived, by the store's clock.
    at: Timestamp,
    /// The node that received it.
    node: String,
    /// null: no source has that path.
    source: Option<String>,
    /// Its path without the query; only where there is no source.
    path: Option<String>,
    verdict: &'static str,
    /// The HTTP status of the response.
    status: u16,
    /// A word: bad_signature, missing_field, …; ignored: filtered; empty for a duplicate or a stale delivery.
    reason: String,
    /// The reason as a sentence.
    why: Option<String>,
    /// The sender's id of the delivery.
    delivery: Option<String>,
    /// The length of its body; 0 also where it was not read.
    bytes: usize,
    /// The event that it made or repeats, or the newer change of its subject.
    event: Option<EventId>,
    /// The identity by which it is a duplicate.
    same: Option<String>,
}

/// A delivery, whatever became of it.
pub(crate) fn delivery(record: &DeliveryRecord, node: &str) -> DeliveryView {
    DeliveryView {
        at: record.at,
        node: node.to_owned(),
        source: record.source.as_deref().map(str::to_owned),
        path: record.path.clone(),
        verdict: record.verdict.word(),
        status: record.status,
        reason: record.reason.clone().unwrap_or_default(),
        why: record.why.clone(),
        delivery: record.delivery.clone(),
        bytes: record.bytes,
        event: record.event,
        same: record.same.clone(),
    }
}

/// A piece of output.
pub(crate) fn chunk(chunk: &OutputChunk) -> Value {
    json!({ "event": chunk.event, "text": String::from_utf8_lossy(&chunk.bytes) })
}

/// Its keys' identities, and the change it stands for, which has a register instead of a key.
fn identities(story: &EventDetails) -> Vec<MatchedBy> {
    let change = story.event.change.map(|_| MatchedBy::Change).filter(|change| !story.identities.contains(change));
    story.identities.iter().cloned().chain(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_readers_would_spell_otherwise_is_text() {
        for same in ["0", "-7", "9007199254740991", "-9007199254740991", "1.5", "-0.25", "123456.789"] {
            let shown = field(&Field::Number(same.into()));
            assert!(shown.is_number() && *shown.to_string() == *same, "{same} is {shown}");
        }
        let other = ["9007199254740992", "9007199254740993", "-9007199254740992", "12345678901234567890"];
        for other in other.into_iter().chain(["1.0", "1.50", "-0", "1e2", "1E2", "1e21", "0.1000000000000000055"]) {
            assert_eq!(field(&Field::Number(other.into())), json!(other));
        }
    }
}
