//! The responses to senders, all of them, without anything that reveals a secret.
pub(crate) mod mark_duplicates;
pub mod problem_json;

use super::claim::MatchedBy;
use super::delivery::DeliveryRejection;
use super::event::{DeathCause, DoneReason, Event, EventState, Outcome, Receipt};
use super::id::EventId;
use super::limits;
use super::source::{AcceptedStatus, ApiStyle, ResponseMode, Source};
use super::time::{Duration, Timestamp};
use std::borrow::Cow;

/// A response, ready to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<ResponseHeader>,
    /// The body.
    pub body: Vec<u8>,
    /// The status word, for the log.
    pub word: &'static str,
}

/// A header's name, in lower case, and its value.
pub type ResponseHeader = (Cow<'static, str>, Cow<'static, str>);

/// The header that names the event of a response.
pub(crate) const EVENT_HEADER: &str = "hookonce-event";
/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";
/// Room for the body of most responses.
const BODY_BYTES: usize = 160;

/// The value of a member of a response in JSON.
#[derive(Clone, Copy)]
enum Member<'m> {
    Text(&'m str),
    Event(EventId),
    Events(&'m [EventId]),
    Number(usize),
    True,
}

impl Member<'_> {
    fn write(self, body: &mut Vec<u8>) {
        match self {
            Self::Text(text) => serde_json::to_writer(body, text).expect("a list of bytes takes everything"),
            Self::Event(event) => {
                body.push(b'"');
                body.extend_from_slice(event.text(&mut EventId::text_buffer()).as_bytes());
                body.push(b'"');
            }
            Self::Events(events) => {
                body.push(b'[');
                for (index, event) in events.iter().enumerate() {
                    if index > 0 {
                        body.push(b',');
                    }
                    Self::Event(*event).write(body);
                }
                body.push(b']');
            }
            Self::Number(number) => body.extend_from_slice(number.to_string().as_bytes()),
            Self::True => body.extend_from_slice(b"true"),
        }
    }
}

impl<'m> From<&'m str> for Member<'m> {
    fn from(text: &'m str) -> Self {
        Self::Text(text)
    }
}

/// Headers about framing or connections. hyper writes its own; a stored response may contain others.
pub const HOP_HEADERS: [&str; 9] = [
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "date",
];

/// The `Retry-After` of a response, in seconds.
pub(super) const RETRY_AFTER: &str = "5";
/// The reason of every delivery that is ignored, where the log has more.
pub const FILTERED: &str = "filtered";

impl HttpResponse {
    /// A JSON response. Its members keep this order, with the status word first: people read it too.
    fn json(status: u16, word: &'static str, members: &[(&str, Member<'_>)]) -> Self {
        let mut body = Vec::with_capacity(BODY_BYTES);
        let mut begin = b'{';
        for (name, value) in [("status", Member::Text(word))].iter().chain(members) {
            body.extend_from_slice(&[begin, b'"']);
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(b"\":");
            value.write(&mut body);
            begin = b',';
        }
        body.push(b'}');
        let mut headers = Vec::with_capacity(4);
        headers.push(("content-type".into(), JSON.into()));
        Self { status, headers, body, word }
    }

    fn of(mut self, event: EventId) -> Self {
        self.headers.push((EVENT_HEADER.into(), event.to_string().into()));
        self
    }

    fn retry_after(mut self) -> Self {
        self.headers.push(("retry-after".into(), RETRY_AFTER.into()));
        self
    }

    /// A stored response; a truncated one is not returned as if it were complete.
    fn from_receipt(word: &'static str, event: &Event, receipt: &Receipt) -> Self {
        if receipt.truncated {
            let members = [("event", Member::Event(event.id)), ("receipt", "not whole".into())];
            return Self::json(receipt.status, word, &members).of(event.id);
        }
        let headers = receipt.headers.iter().map(|(name, value)| (name.clone().into(), value.clone().into())).collect();
        Self { status: receipt.status, headers, body: receipt.body.clone(), word }.of(event.id)
    }
}

/// The delivery is not verified, or cannot be read.
pub fn refused(refusal: &DeliveryRejection) -> HttpResponse {
    if matches!(refusal, DeliveryRejection::KeyUnavailable(_) | DeliveryRejection::SecretMissing) {
        return unavailable();
    }
    let reason = [("reason", refusal.reason())];
    let place = refusal.element().map(|place| ("element", place));
    let said = reason.into_iter().chain(refusal.detail()).chain(place);
    let said: Vec<_> = said.map(|(name, text)| (name, text.into())).collect();
    HttpResponse::json(status_of(refusal), "refused", &said)
}

pub(super) fn status_of(refusal: &DeliveryRejection) -> u16 {
    match refusal {
        DeliveryRejection::Malformed(_) | DeliveryRejection::KeyMissing | DeliveryRejection::KeyMalformed(_) => 400,
        DeliveryRejection::BadSignature => 401,
        DeliveryRejection::KeyUnavailable(_) | DeliveryRejection::SecretMissing => 503,
        DeliveryRejection::Forbidden => 403,
        DeliveryRejection::TooManyElements => 413,
        DeliveryRejection::ContentType | DeliveryRejection::NeitherJsonNorForm | DeliveryRejection::NoForm => 415,
        DeliveryRejection::InElement { rejection, .. } => status_of(rejection),
        DeliveryRejection::MissingField(_)
        | DeliveryRejection::FieldTooLong(_)
        | DeliveryRejection::BadOrder(_)
        | DeliveryRejection::KindMismatch(_) => 422,
    }
}

/// The request was rejected before it was judged: unknown path, wrong method, too slow, too large, too many headers.
pub fn rejected_before_judging(status: u16, reason: &str) -> HttpResponse {
    HttpResponse::json(status, "refused", &[("reason", reason.into())])
}

/// Too many requests of the client's address were refused, and this one is, too.
pub fn limited(wait: Duration) -> HttpResponse {
    let mut response = rejected_before_judging(429, "limited");
    response.headers.push(("retry-after".into(), wait.as_secs().saturating_add(1).to_string().into()));
    response
}

/// The node is alive, or ready.
pub fn healthy() -> HttpResponse {
    HttpResponse::json(200, "ok", &[])
}

/// A page for people.
pub fn page(text: &str) -> HttpResponse {
    let headers = vec![("content-type".into(), "text/markdown; charset=utf-8".into())];
    HttpResponse { status: 200, headers, body: text.into(), word: "ok" }
}

/// The store is down, too much is under way, or the node is about to stop.
pub fn unavailable() -> HttpResponse {
    HttpResponse::json(503, "unavailable", &[]).retry_after()
}

/// The node is not ready, with a reason that reveals nothing about where its store is.
pub fn not_ready(reason: &str) -> HttpResponse {
    HttpResponse::json(503, "unavailable", &[("reason", reason.into())]).retry_after()
}

/// The delivery is verified, but not wanted.
pub fn ignored(reason: &str) -> HttpResponse {
    HttpResponse::json(200, "ignored", &[("reason", reason.into())])
}

/// The delivery is not wanted, and nothing proves its sender: a stranger learns neither the expression nor the values that
/// it compares, which may be a secret. The log has the whole reason.
pub fn ignored_unverified() -> HttpResponse {
    ignored(FILTERED)
}

/// Its subject has been changed by something newer.
pub fn stale(of: EventId) -> HttpResponse {
    HttpResponse::json(200, "stale", &[("event", Member::Event(of))]).of(of)
}

/// The event is durable.
pub fn accepted(event: EventId) -> HttpResponse {
    HttpResponse::json(202, "accepted", &[("event", Member::Event(event))]).of(event)
}

/// The response to a sender that waited for the end, when the event has ended. Never 2xx for a dead event.
pub fn ended(speaks: ApiStyle, event: &Event, receipt: Option<&Receipt>) -> HttpResponse {
    match (&event.state, receipt) {
        (EventState::Done { how: DoneReason::Acted, .. }, Some(receipt)) => {
            HttpResponse::from_receipt("done", event, receipt)
        }
        (EventState::Dead { cause: DeathCause::Failed | DeathCause::Rejected, .. }, Some(receipt))
            if !receipt.is_success() =>
        {
            HttpResponse::from_receipt("dead", event, receipt)
        }
        (EventState::Dead { cause, .. }, _) if speaks == ApiStyle::Api => {
            problem_json::no_upstream_response(event, *cause)
        }
        (EventState::Dead { cause, .. }, _) => {
            let status = if *cause == DeathCause::InDoubt { 504 } else { 502 };
            HttpResponse::json(status, "dead", &[("event", Member::Event(event.id)), ("cause", cause.word().into())])
                .of(event.id)
        }
        (EventState::Done { how, .. }, _) => {
            HttpResponse::json(200, "done", &[("event", Member::Event(event.id)), ("how", how.word().into())])
                .of(event.id)
        }
        (EventState::Waiting { .. } | EventState::Running { .. }, _) => unfinished(event),
    }
}

/// The response to a sender that waited for the end, when its time is up.
pub fn unfinished(event: &Event) -> HttpResponse {
    let members = [("event", Member::Event(event.id)), ("state", event.state.word().into())];
    HttpResponse::json(202, "accepted", &members).of(event.id).retry_after()
}

/// The response to a repeat: the state of its event.
pub fn duplicate(event: &Event, same: &MatchedBy) -> HttpResponse {
    let status = if event.state.ended().is_some() { 200 } else { 202 };
    HttpResponse::json(status, "duplicate", &duplicate_members(event, same)).of(event.id)
}

/// The response to a repeat of a superseded event whose successor is dead. Nothing is left to do for this event, so its
/// sender need not retry; the dead one is for an operator.
pub fn superseded(event: &Event, same: &MatchedBy) -> HttpResponse {
    let mut members = duplicate_members(event, same);
    members.push(("how", "superseded".into()));
    HttpResponse::json(200, "duplicate", &members).of(event.id)
}

/// The response to a repeat of what was done before this store existed: there is no event.
pub fn imported() -> HttpResponse {
    HttpResponse::json(200, "duplicate", &[("state", "done".into()), ("isDuplicate", Member::True)])
}

/// The response to a repeat that waited for its event, when its time is up.
fn still_running(event: &Event, same: &MatchedBy) -> HttpResponse {
    HttpResponse::json(409, "duplicate", &duplicate_members(event, same)).of(event.id).retry_after()
}

/// The outcome of an attempt whose sender may wait for the response. Where it waits, a response that broke off is none,
/// so the receiver must be asked again, under the same key; one that is merely too long to be stored was complete.
/// Where it does not wait, the status is enough.
pub fn outcome_for_waiting_sender(outcome: Outcome, respond: ResponseMode) -> Outcome {
    match (outcome, respond) {
        (Outcome::Delivered(Some(receipt)), ResponseMode::WhenDone { .. })
            if receipt.truncated && receipt.body.len() < limits::RECEIPT_BYTES_MAX =>
        {
            Outcome::Unknown { why: format!("the receiver answered {}, and its answer broke off", receipt.status) }
        }
        (Outcome::TimedOut { answered: Some(receipt), .. }, ResponseMode::Accepted) => {
            Outcome::Delivered(Some(receipt))
        }
        (outcome, _) => outcome,
    }
}

/// Whether a repeat waited for its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepeatTiming {
    /// Its event had ended when it came.
    AfterEnd,
    /// It waited, and gets the same response as the others.
    WhileRunning,
}

/// The response to a repeat whose sender waits for the end: the first response, as long as it is stored. A failure is
/// returned only to those that waited for it, unless the source keeps failures.
pub fn repeat_response(
    source: &Source,
    event: &Event,
    receipt: Option<&Receipt>,
    same: &MatchedBy,
    came: RepeatTiming,
    now: Timestamp,
) -> HttpResponse {
    let Some(ended) = event.state.ended() else {
        return match source.api_style {
            ApiStyle::Webhook => still_running(event, same),
            ApiStyle::Api => problem_json::request_in_progress(event),
        };
    };
    let kept = came == RepeatTiming::WhileRunning || now < ended + source.once.keep_body;
    match (&event.state, receipt) {
        (EventState::Done { how: DoneReason::Acted, .. }, Some(receipt)) if kept => {
            replayed(source, HttpResponse::from_receipt("duplicate", event, receipt))
        }
        // The first response was made here, without a receiver: a client of an API gets the same again.
        (EventState::Done { .. }, None) if kept && source.api_style == ApiStyle::Api => {
            replayed(source, self::ended(source.api_style, event, None))
        }
        (EventState::Dead { .. }, _) if came == RepeatTiming::WhileRunning => {
            self::ended(source.api_style, event, receipt)
        }
        // A sender that waits for the end takes 2xx for success, whatever the body says.
        (EventState::Dead { .. }, _) => {
            let receipt = receipt.filter(|_| kept);
            let reply = self::ended(source.api_style, event, receipt);
            let given_again = receipt.is_some() || (kept && source.once.keep_failures);
            if given_again { replayed(source, reply) } else { reply }
        }
        _ => duplicate(event, same),
    }
}

fn replayed(source: &Source, mut reply: HttpResponse) -> HttpResponse {
    reply.headers.push(("idempotent-replayed".into(), "true".into()));
    if source.mark_duplicates {
        reply.body = mark_duplicates::mark_duplicate(&reply.body).unwrap_or(reply.body);
    }
    reply
}

fn duplicate_members<'m>(event: &'m Event, same: &'m MatchedBy) -> Vec<(&'static str, Member<'m>)> {
    let mut members = vec![("event", Member::Event(event.id)), ("state", event.state.word().into())];
    if let EventState::Dead { cause, .. } = &event.state {
        members.push(("cause", cause.word().into()));
    }
    members.extend([("same", same.word().into()), ("isDuplicate", Member::True)]);
    members
}

/// This response with the status that the source's sender wants: for an event that is durable and has not ended that
/// status, and if it is 204, then for every success.
pub fn with_accepted_status(source: &Source, mut reply: HttpResponse) -> HttpResponse {
    match (source.respond, source.accepted_status) {
        (ResponseMode::Accepted, AcceptedStatus::NoContent) if (200..300).contains(&reply.status) => {
            reply.status = AcceptedStatus::NoContent.code();
            reply.headers.retain(|(name, _)| name != "content-type");
            reply.body.clear();
        }
        (ResponseMode::Accepted, status) if reply.status == AcceptedStatus::Accepted.code() => {
            reply.status = status.code();
        }
        _ => {}
    }
    reply
}

/// One response for the elements of one delivery: the first error, else how many are new and how many were known. It is
/// a success only if each of them is.
pub fn combine_elements(mut replies: Vec<HttpResponse>, events: &[EventId]) -> HttpResponse {
    if let Some(at) = replies.iter().position(|reply| reply.status >= 400) {
        return replies.swap_remove(at);
    }
    let count = |word: &str| replies.iter().filter(|reply| reply.word == word).count();
    let (new, stale) = (count("accepted"), count("stale"));
    let mut members: Vec<(&str, Member<'_>)> =
        vec![("new", Member::Number(new)), ("duplicate", Member::Number(replies.len() - new - stale))];
    if stale > 0 {
        members.push(("stale", Member::Number(stale)));
    }
    if events.len() <= limits::ELEMENTS_NAMED_MAX {
        members.push(("events", Member::Events(events)));
    }
    let reply = if new > 0 {
        HttpResponse::json(202, "accepted", &members)
    } else {
        members.push(("isDuplicate", Member::True));
        HttpResponse::json(200, "duplicate", &members)
    };
    match events {
        [only] => reply.of(*only),
        _ => reply,
    }
}

/// One response for the several events of one delivery: the first error, else the new events, else the duplicates.
pub fn combine_responses(mut replies: Vec<HttpResponse>, events: &[EventId]) -> HttpResponse {
    if replies.len() == 1 {
        return replies.remove(0);
    }
    let wrong = replies.iter().position(|reply| reply.status >= 400);
    let new = replies.iter().any(|reply| reply.word == "accepted");
    match wrong {
        Some(at) => replies.swap_remove(at),
        None if new => HttpResponse::json(202, "accepted", &[("events", Member::Events(events))]),
        None => {
            HttpResponse::json(200, "duplicate", &[("events", Member::Events(events)), ("isDuplicate", Member::True)])
        }
    }
}
