//! The JSON documents of the admin API about events and deliveries. The CLI prints the same. They contain no bodies or
//! secrets.

use super::openapi::{
    CauseWord, DoneWord, FieldScalar, OkWord, OutcomeWord, RefusedWord, StateWord, UnavailableWord, VerdictWord,
    WaitingForWord,
};
use crate::action::OutputChunk;
use crate::decide::claim::MatchedBy;
use crate::decide::event::{DoneReason, Event, EventState, Origin, QueueState, Receipt};
use crate::decide::expiry_clock::PendingClockJump;
use crate::decide::field::FieldValue as Field;
use crate::decide::id::EventId;
use crate::decide::source::Source;
use crate::decide::time::Timestamp;
use crate::decide::transition::AttemptRecord;
use crate::observe::delivery_log::DeliveryRecord;
use crate::store::inspect::QuarantinedMessage;
use crate::store::status_text::status_text;
use crate::store::subjects;
use crate::store::{DuplicateSighting, EventDetails, EventQuery, ForgetCounts, Inspect, StoreError, StoredValue};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Maximum number of superseded events that are listed.
const SUPERSEDES_MAX: usize = 16;

/// The request was refused, and nothing was done.
#[derive(Serialize, ToSchema)]
pub(super) struct RefusalView {
    status: RefusedWord,
    /// A code, or a sentence.
    reason: String,
    /// `several_events`: the events that the name may mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    events: Option<Vec<EventView>>,
    /// What to do: of `cross_site` for a proxy in front, of a handshake for its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hint: Option<String>,
}

impl RefusalView {
    pub(super) fn new(reason: &str) -> Self {
        Self { status: "refused".into(), reason: reason.to_owned(), events: None, hint: None }
    }

    pub(super) fn hint(self, hint: &str) -> Self {
        Self { hint: Some(hint.to_owned()), ..self }
    }

    pub(super) fn events(self, events: &[Event]) -> Self {
        Self { events: Some(events.iter().map(event).collect()), ..self }
    }
}

/// The store does not respond, or the node is at a limit; try again.
#[derive(Serialize, ToSchema)]
pub(super) struct UnavailableView {
    status: UnavailableWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
}

impl UnavailableView {
    pub(super) fn new(reason: &str) -> Self {
        Self { status: "unavailable".into(), reason: Some(reason.to_owned()) }
    }
}

/// Success without further content.
#[derive(Serialize, ToSchema)]
pub(super) struct OkView {
    status: OkWord,
}

impl OkView {
    pub(super) fn new() -> Self {
        Self { status: "ok".into() }
    }
}

/// A message of a stream that never became an event. Nothing in it was verified.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuarantinedMessageView {
    /// The source that rejected it.
    source: String,
    /// The message's identity: its stream, its sequence number and when the stream stored it.
    message: String,
    subject: String,
    /// When it was quarantined.
    at: Timestamp,
    /// Why.
    why: String,
    /// Its full length.
    bytes: u64,
    /// Its first bytes; invalid UTF-8 is replaced.
    head: String,
}

/// One message in quarantine.
pub(crate) fn quarantined(message: &QuarantinedMessage) -> QuarantinedMessageView {
    QuarantinedMessageView {
        source: message.source.to_string(),
        message: message.message.clone(),
        subject: message.subject.clone(),
        at: message.at,
        why: message.why.clone(),
        bytes: message.bytes,
        head: String::from_utf8_lossy(&message.head).into_owned(),
    }
}

/// The result of forgetting.
#[derive(Serialize, ToSchema, Default)]
pub(crate) struct ForgottenView {
    /// Events with their keys.
    forgotten: u64,
    /// Bodies with receipts and output.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    bodies: Option<u64>,
    /// The event that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    event: Option<EventId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    waiting: Option<ClockWaitingView>,
}

/// The result of a sweep, and the clock jump it waits on.
pub(crate) fn forgotten(ForgetCounts { events, bodies }: ForgetCounts, store: &dyn Inspect) -> ForgottenView {
    let waiting = store.expiry().waiting.as_ref().map(waiting);
    ForgottenView { forgotten: events, bodies: Some(bodies), event: None, waiting }
}

/// One event that was forgotten.
pub(crate) fn forgotten_event(event: EventId) -> ForgottenView {
    ForgottenView { forgotten: 1, event: Some(event), ..ForgottenView::default() }
}

/// A clock jump that expiry waits on: it counts once it has lasted for ten minutes. Left out, or null, while there is
/// none.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClockWaitingView {
    /// What the clock showed when the jump was first seen.
    since: Timestamp,
    /// Seconds by which it is ahead of the time used for expiry.
    jump: u64,
    /// Seconds that it still has to last.
    left: u64,
    /// Events that it would forget, at most 10000; null: the store did not respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    #[expect(clippy::option_option, reason = "left out, null, or a value")]
    pub(super) would_forget: Option<Option<u64>>,
}

/// A clock jump that expiry waits on.
pub(crate) fn waiting(jump: &PendingClockJump) -> ClockWaitingView {
    ClockWaitingView { since: jump.since, jump: jump.jump.as_secs(), left: jump.left.as_secs(), would_forget: None }
}

/// An event, which is acted on once.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventView {
    /// Its id. The dashboard shows the last eight digits.
    event: EventId,
    source: String,
    route: String,
    /// The sender's id of the delivery that made it.
    #[schema(required)]
    delivery: Option<String>,
    /// The declared fields that were present. A number that JSON readers would round is a string.
    #[schema(value_type = BTreeMap<String, FieldScalar>)]
    fields: Map<String, Value>,
    state: StateWord,
    /// When it was claimed, by the store's clock.
    received_at: Timestamp,
    /// 1, and one more for each replay.
    life: u32,
    /// Attempts begun in this life.
    attempt: u32,
    /// Attempts of this life with an unknown outcome.
    doubts: u32,
    /// waiting: when it may start; null: it is parked until its group's slot is handed to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Timestamp>)]
    #[expect(clippy::option_option, reason = "left out, null, or a value")]
    due: Option<Option<Timestamp>>,
    /// What the registry's tag pointed to when the last attempt looked it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    digest: Option<String>,
    /// waiting: for what, other than its time: its route's budget, the end of a burst, its group's slot, or its route, which
    /// is not configured. Left out where there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    waiting_for: Option<WaitingForWord>,
    /// running: the end of its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    until: Option<Timestamp>,
    /// running: the node that acts on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    node: Option<String>,
    /// done: in what way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    how: Option<DoneWord>,
    /// dead: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cause: Option<CauseWord>,
    /// done or dead: since when. For an event that was published again: its first end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ended_at: Option<Timestamp>,
    /// done, superseded: the event that superseded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    superseded_by: Option<EventId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    published_again: Option<PublishedAgainView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rollback: Option<RollbackView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    notification: Option<NotificationView>,
    /// The notifications of its ends, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notifications: Vec<EventId>,
}

/// A roll-back: no delivery made this event.
#[derive(Serialize, ToSchema)]
struct RollbackView {
    /// The event whose deploy was not healthy.
    from: EventId,
    /// The last good event, which is deployed again.
    to: EventId,
}

/// A notification: it tells people about the end of another event.
#[derive(Serialize, ToSchema)]
struct NotificationView {
    /// The event that ended.
    of: EventId,
    /// What is told: dead, rollback, done, or summary: that there were more than may be sent.
    on: String,
}

/// The messages of this life that were published after the first one, because its delivery was repeated.
#[derive(Serialize, ToSchema)]
struct PublishedAgainView {
    /// How many.
    times: u32,
    /// When the last of its messages was published, counting the first.
    last_at: Timestamp,
    /// The message id of the last one.
    message: String,
}

/// One event.
pub(crate) fn event(event: &Event) -> EventView {
    let mut shown = EventView {
        event: event.id,
        source: event.source.to_string(),
        route: event.route.to_string(),
        delivery: event.delivery_id.as_deref().map(str::to_owned),
        fields: event.fields.iter().map(|(name, value)| (name.to_owned(), field(value))).collect(),
        state: event.state.word().into(),
        received_at: event.received_at,
        life: event.life,
        attempt: event.attempt,
        doubts: event.doubts,
        digest: event.resolved.as_deref().map(str::to_owned),
        due: None,
        waiting_for: waiting_for(event).map(Into::into),
        until: None,
        node: None,
        how: None,
        cause: None,
        ended_at: event.state.ended(),
        superseded_by: None,
        published_again: event.published_again.as_ref().map(|again| PublishedAgainView {
            times: again.times,
            last_at: again.last_at,
            message: event.idempotency_key(),
        }),
        rollback: match event.origin {
            Some(Origin::Rollback { from, to }) => Some(RollbackView { from, to }),
            _ => None,
        },
        notification: match event.origin {
            Some(Origin::Notification { of, kind }) => Some(NotificationView { of, on: kind.word().to_owned() }),
            _ => None,
        },
        notifications: event.notifications.clone(),
    };
    match &event.state {
        EventState::Waiting { due } => shown.due = Some(*due),
        EventState::Running { until, by, .. } => {
            (shown.until, shown.node) = (Some(*until), Some(by.to_string()));
        }
        EventState::Done { how, .. } => {
            shown.how = Some(how.word().into());
            if let DoneReason::Superseded { by } = how {
                shown.superseded_by = Some(*by);
            }
        }
        EventState::Dead { cause, .. } => shown.cause = Some(cause.word().into()),
    }
    shown
}

/// What an event may wait for, other than its time.
pub(super) const WAITING_FOR: [&str; 4] = ["budget", "burst", "group", "route"];

fn waiting_for(event: &Event) -> Option<&'static str> {
    let EventState::Waiting { due } = event.state else { return None };
    match event.queue_state {
        QueueState::OverBudget => Some("budget"),
        QueueState::Debouncing => Some("burst"),
        QueueState::Suspended => Some("route"),
        QueueState::Queued | QueueState::Requeued => due.is_none().then_some("group"),
    }
}

/// The largest integer that is exact as a number in JavaScript and in many JSON readers.
const EXACT_MAX: i64 = (1 << 53) - 1;

/// A field's value. A number that a usual JSON reader would print in another spelling is text: it is an id, not an
/// amount.
pub(super) fn field(value: &Field) -> Value {
    match value {
        Field::Text(text) => (**text).into(),
        Field::Bool(flag) => (*flag).into(),
        Field::Number(raw) => exact(raw).unwrap_or_else(|| (**raw).into()),
    }
}

/// The number, if JSON readers print it exactly like this.
fn exact(raw: &str) -> Option<Value> {
    let read = serde_json::from_str::<Value>(raw).ok().filter(|number| *number.to_string() == *raw)?;
    let exact = match read.as_i64() {
        Some(whole) => (-EXACT_MAX..=EXACT_MAX).contains(&whole),
        // Exponents, and a fraction of zero, are printed differently by each.
        None => read.is_f64() && !raw.contains('e') && !raw.ends_with(".0"),
    };
    exact.then_some(read)
}

/// All that the store knows of one event.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventDetailsView {
    #[serde(flatten)]
    event: EventView,
    /// Why it is in its state, in one sentence.
    why: String,
    /// The event that holds its group's slot, while it is parked.
    #[schema(required)]
    behind: Option<EventId>,
    /// Which identities it is known by: delivery, message, body, time+body (the signed time and the body), change, or
    /// the names of fields joined by +.
    identities: Vec<String>,
    /// How many duplicates there were.
    duplicates: u64,
    /// The first 16 duplicates, oldest first.
    deliveries: Vec<SightingView>,
    /// Attempts that ended, oldest first.
    attempts: Vec<AttemptView>,
    /// Whether its body is still stored: without it there is no replay.
    has_body: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    receipt: Option<ReceiptView>,
    /// The headers that are stored until it ends, to be passed on. Their values are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<BTreeMap<String, String>>)]
    headers: Option<Map<String, Value>>,
    /// Events that this one superseded; the newest 16.
    supersedes: Vec<EventId>,
    /// dead, unhealthy: the event that deploys the last good one again; null: it is not rolled back.
    #[schema(required)]
    rolled_back_by: Option<RolledBackByView>,
}

/// The roll-back of an event.
#[derive(Serialize, ToSchema)]
struct RolledBackByView {
    event: EventId,
    state: StateWord,
    /// done: in what way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    how: Option<DoneWord>,
    /// dead: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cause: Option<CauseWord>,
}

/// A duplicate that was received.
#[derive(Serialize, ToSchema)]
struct SightingView {
    /// When.
    at: Timestamp,
    /// The sender's id of it.
    #[schema(required)]
    delivery: Option<String>,
    /// Which identity matched.
    same: String,
}

/// An attempt that ended.
#[derive(Serialize, ToSchema)]
struct AttemptView {
    life: u32,
    attempt: u32,
    /// When it began.
    started_at: Timestamp,
    /// When it ended.
    ended_at: Timestamp,
    outcome: OutcomeWord,
    /// The reason as a sentence; may be empty.
    why: String,
    /// The command's output, with its colours; at most 1 MiB, the head and the tail.
    output: String,
}

/// The action's response, while it is stored.
#[derive(Serialize, ToSchema)]
struct ReceiptView {
    /// The HTTP status.
    status: u16,
    /// Names and values.
    #[schema(value_type = Vec<Vec<String>>)]
    headers: Vec<(String, String)>,
    body: String,
    /// It was longer than 1 MiB.
    cut: bool,
}

/// All that the store knows of one event, with the names of its transient headers.
pub(crate) async fn event_details(store: &dyn Inspect, details: &EventDetails) -> Result<EventDetailsView, StoreError> {
    let mut headers = None;
    if details.event.state.ended().is_none()
        && details.has_body
        && let StoredValue::Whole(payload) = store.payload(details.event.id).await?
    {
        let masked = payload.transient_header_names().map(|name| (name.to_owned(), Value::from(MASKED)));
        headers = Some(masked.collect());
    }
    let superseded =
        EventQuery { superseded_by: Some(details.event.id), limit: SUPERSEDES_MAX, ..EventQuery::default() };
    let superseded = store.page(superseded).await?.events;
    let rollback = subjects::rollback(store, &details.event).await?;
    let rollback = rollback.map(|rollback| event(&rollback));
    let sighting = |seen: &DuplicateSighting| SightingView {
        at: seen.at,
        delivery: seen.delivery_id.as_deref().map(str::to_owned),
        same: seen.same.word().to_owned(),
    };
    let attempt = |record: &AttemptRecord| AttemptView {
        life: record.life,
        attempt: record.attempt,
        started_at: record.started_at,
        ended_at: record.ended_at,
        outcome: record.outcome.clone().into(),
        why: record.why.clone(),
        output: String::from_utf8_lossy(&record.output).into_owned(),
    };
    let receipt = |receipt: &Receipt| ReceiptView {
        status: receipt.status,
        headers: receipt.headers.clone(),
        body: String::from_utf8_lossy(&receipt.body).into_owned(),
        cut: receipt.truncated,
    };
    Ok(EventDetailsView {
        event: event(&details.event),
        why: status_text(details, store.now()),
        behind: details.behind,
        identities: identities(details).iter().map(|identity| identity.word().to_owned()).collect(),
        duplicates: details.duplicates,
        deliveries: details.sightings.iter().map(sighting).collect(),
        attempts: details.attempts.iter().map(attempt).collect(),
        has_body: details.has_body,
        receipt: details.receipt.as_ref().map(receipt),
        headers,
        supersedes: superseded.iter().map(|event| event.id).collect(),
        rolled_back_by: rollback.map(|EventView { event, state, how, cause, .. }| RolledBackByView {
            event,
            state,
            how,
            cause,
        }),
    })
}

/// The identities of an event's keys, and its change, which has a register instead of a key.
pub(super) fn identities(details: &EventDetails) -> Vec<MatchedBy> {
    let change = details.event.change.map(|_| MatchedBy::Change).filter(|change| !details.identities.contains(change));
    details.identities.iter().cloned().chain(change).collect()
}

/// Shown in place of a value that must not be seen.
pub(crate) const MASKED: &str = "•••";

/// Whether the value of this kept header may be shown: only if it is needed to read the body, or if a field is read from
/// it anyway. Credentials and signatures never.
pub(crate) fn is_header_visible(name: &str, source: Option<&Source>) -> bool {
    let secret = ["authorization", "proxy-authorization", "cookie", "set-cookie"].contains(&name)
        || source.is_some_and(|source| source.verify.signature_headers().iter().any(|secret| secret == name));
    let read = |source: &Source| source.fields.reads_header(name);
    !secret && (matches!(name, "content-type" | "traceparent") || source.is_some_and(read))
}

/// A delivery and its verdict. Its body is not stored.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryView {
    /// When it arrived, by the store's clock.
    at: Timestamp,
    /// The node that received it.
    node: String,
    /// null: no source has that path.
    #[schema(required)]
    source: Option<String>,
    /// Its path without the query; only where there is no source.
    #[schema(required)]
    path: Option<String>,
    verdict: VerdictWord,
    /// The HTTP status of the response.
    status: u16,
    /// A word: `bad_signature`, `missing_field`, …; ignored: filtered; empty for a duplicate or a stale delivery.
    reason: String,
    /// The reason as a sentence.
    #[schema(required)]
    why: Option<String>,
    /// The sender's id of the delivery.
    #[schema(required)]
    delivery: Option<String>,
    /// The length of its body; 0 also where it was not read.
    bytes: usize,
    /// The address of its client; null: it did not come over HTTP.
    #[schema(required)]
    from: Option<String>,
    /// The event that it duplicates, or the newer change of its subject.
    #[schema(required)]
    event: Option<EventId>,
    /// The identity by which it is a duplicate.
    #[schema(required)]
    same: Option<String>,
}

/// A delivery with any verdict.
pub(crate) fn delivery(record: &DeliveryRecord, node: &str) -> DeliveryView {
    DeliveryView {
        at: record.at,
        node: node.to_owned(),
        source: record.source.as_deref().map(str::to_owned),
        path: record.path.clone(),
        verdict: record.verdict.word().into(),
        status: record.status,
        reason: record.reason.clone().unwrap_or_default(),
        why: record.why.clone(),
        delivery: record.delivery.clone(),
        bytes: record.bytes,
        from: record.from.map(|from| from.to_string()),
        event: record.event,
        same: record.same.clone(),
    }
}

/// A piece of a command's output.
#[derive(Serialize)]
pub(super) struct ChunkView {
    event: EventId,
    text: String,
    /// All that the attempt wrote before the client connected.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) so_far: bool,
}

/// A piece of a command's output.
pub(super) fn chunk(chunk: &OutputChunk) -> ChunkView {
    ChunkView { event: chunk.event, text: String::from_utf8_lossy(&chunk.bytes).into_owned(), so_far: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_json_readers_would_print_differently_is_text() {
        for same in ["0", "-7", "9007199254740991", "-9007199254740991", "1.5", "-0.25", "123456.789"] {
            let shown = field(&Field::Number(same.into()));
            assert!(shown.is_number() && *shown.to_string() == *same, "{same} is {shown}");
        }
        let other = ["9007199254740992", "9007199254740993", "-9007199254740992", "12345678901234567890"];
        for other in other.into_iter().chain(["1.0", "1.50", "-0", "1e2", "1E2", "1e21", "0.1000000000000000055"]) {
            assert_eq!(field(&Field::Number(other.into())), Value::from(other));
        }
    }
}
