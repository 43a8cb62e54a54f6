//! The result of a delivery, and the observer that logs, counts and records it. Nothing else on the walk writes a log
//! line or a metric of a delivery.

use super::handover::HandoverResult;
use crate::decide::claim::{MatchedBy, NewEvent};
use crate::decide::delivery::{Delivery, DeliveryRejection};
use crate::decide::event::Event;
use crate::decide::field::FieldLocation;
use crate::decide::handshake::{HandshakeMethod, HandshakeProof};
use crate::decide::id::EventId;
use crate::decide::response;
use crate::decide::response::HttpResponse;
use crate::decide::response::problem_json;
use crate::decide::source::{ApiStyle, Source};
use crate::decide::time::{Duration, Timestamp};
use crate::decide::trace_context;
use crate::decide::trace_context::TraceContext;
use crate::observe::delivery_log::{DeliveryRecord, DeliveryVerdict};
use crate::observe::log::{self, TokenBucket};
use crate::observe::metrics::{Metrics, PollCounter};
use crate::observe::trace_span::TraceSpan;
use crate::store::StoreError;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tracing::field::display;
use tracing::{info, warn};

/// The reason of a handshake: it is no delivery.
const HANDSHAKE: &str = "handshake";

/// The reason of a refusal that is only counted.
const LIMITED: &str = "limited";

/// The result of one delivery. Its response, log line, metrics and delivery record are made from this.
#[derive(Debug)]
pub(crate) struct Received {
    /// The response to its sender.
    pub(crate) response: HttpResponse,
    /// The verdict.
    pub(crate) verdict: DeliveryVerdict,
    /// The events that it created or repeats.
    pub(crate) events: Vec<EventId>,
    /// When it arrived, by the store's clock.
    at: Timestamp,
    /// Bytes of its body.
    bytes: usize,
    /// Its path, if no source has that path.
    path: Option<String>,
    /// The sender's delivery id.
    delivery_id: Option<Arc<str>>,
    /// The event that the response is about.
    event: Option<EventId>,
    /// The identity by which it is a duplicate.
    matched_by: Option<MatchedBy>,
    /// The reason why there is no event, as one word.
    reason: Option<&'static str>,
    /// Further detail about the reason: the name of its member (a field, or a detail), and its value.
    detail: Option<(&'static str, String)>,
    /// The place of the element that is the reason.
    element: Option<String>,
    /// The reason as a sentence, for the operator, not for the sender.
    why: Option<String>,
    /// The address of its client.
    from: Option<IpAddr>,
    /// How it is logged.
    log_line: LogLine,
}

/// How a result is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogLine {
    /// Not at all: claimed events have log lines of their own.
    None,
    /// Always: a secret proves who sent it.
    Always,
    /// Only while there are few such lines: anyone can cause it.
    Limited,
}

impl LogLine {
    /// For what no signature and no token proves. A secret path, a stream or a registry does.
    fn unproven(source: &Source) -> Self {
        if source.has_public_path() { Self::Limited } else { Self::Always }
    }

    /// For a delivery that has passed the verification of its source, if it has any.
    fn verified(source: &Source) -> Self {
        if source.verify.is_none() { Self::unproven(source) } else { Self::Always }
    }
}

/// The result of one event of a delivery.
#[derive(Debug)]
pub(super) struct ReceivedEvent {
    pub(super) event: Option<EventId>,
    pub(super) response: HttpResponse,
    pub(super) verdict: DeliveryVerdict,
    pub(super) matched_by: Option<MatchedBy>,
}

impl ReceivedEvent {
    pub(super) fn new(verdict: DeliveryVerdict, event: Option<EventId>, response: HttpResponse) -> Self {
        Self { event, response, verdict, matched_by: None }
    }

    /// An event that could not be claimed: its sender is to retry.
    pub(super) fn unavailable(source: &Source) -> Self {
        let response = match source.api_style {
            ApiStyle::Webhook => response::unavailable(),
            ApiStyle::Api => problem_json::unavailable(),
        };
        Self::new(DeliveryVerdict::Unavailable, None, response)
    }

    pub(super) fn matched_by(self, same: &MatchedBy) -> Self {
        Self { matched_by: Some(same.clone()), ..self }
    }

    /// The reason why there is no event, as one word.
    fn reason(&self) -> Option<&'static str> {
        match self.verdict {
            DeliveryVerdict::Refused => Some("key_reused"),
            DeliveryVerdict::Unavailable => Some("unavailable"),
            _ => None,
        }
    }
}

impl Received {
    fn new(response: HttpResponse, verdict: DeliveryVerdict, at: Timestamp) -> Self {
        Self {
            response,
            verdict,
            events: Vec::new(),
            at,
            bytes: 0,
            path: None,
            delivery_id: None,
            event: None,
            matched_by: None,
            reason: None,
            detail: None,
            element: None,
            why: None,
            from: None,
            log_line: LogLine::None,
        }
    }

    /// The same, from a client with this address.
    #[must_use]
    pub(crate) fn from(self, address: Option<IpAddr>) -> Self {
        Self { from: address, ..self }
    }

    /// A refused request of an address that has had too many: it is counted, and neither explained nor remembered.
    pub(crate) fn limited(at: Timestamp, wait: Duration) -> Self {
        let response = response::limited(wait);
        Self { reason: Some(LIMITED), ..Self::new(response, DeliveryVerdict::Refused, at) }
    }

    /// Whether nothing proves who sent it.
    pub(crate) fn is_unproven(&self) -> bool {
        self.verdict == DeliveryVerdict::Refused && matches!(self.reason, Some("bad_signature" | LIMITED))
    }

    fn is_limited(&self) -> bool {
        self.reason == Some(LIMITED)
    }

    /// A request that was rejected before it was judged. `path`: set if no source has it.
    pub(crate) fn not_judged(
        at: Timestamp,
        path: Option<&str>,
        delivery_id: Option<&str>,
        (response, reason): (HttpResponse, Option<&'static str>),
        why: String,
    ) -> Self {
        let verdict = if response.status == 503 { DeliveryVerdict::Unavailable } else { DeliveryVerdict::Refused };
        Self {
            path: path.map(str::to_owned),
            delivery_id: delivery_id.map(Arc::from),
            reason,
            why: Some(why),
            log_line: LogLine::Limited,
            ..Self::new(response, verdict, at)
        }
    }

    /// A delivery that is not verified, or cannot be read.
    pub(super) fn refused(source: &Source, delivery: &Delivery<'_>, rejection: &DeliveryRejection) -> Self {
        let response = match source.api_style {
            ApiStyle::Webhook => response::refused(rejection),
            ApiStyle::Api => problem_json::refused(rejection),
        };
        let verdict = match rejection {
            DeliveryRejection::KeyUnavailable(_) | DeliveryRejection::SecretMissing => DeliveryVerdict::Unavailable,
            _ => DeliveryVerdict::Refused,
        };
        let why = match rejection {
            DeliveryRejection::BadSignature if source.signs_for_anyone(delivery.body) => {
                "the body is a text that a handshake signs for anyone who asks".to_owned()
            }
            DeliveryRejection::BadSignature => source.verify.rejection_reason(delivery),
            DeliveryRejection::KeyUnavailable(_) => {
                "the sender's key is not at hand, and cannot be fetched now".to_owned()
            }
            DeliveryRejection::SecretMissing => source.verify.lacks_secret().unwrap_or_default(),
            _ => String::new(),
        };
        Self {
            bytes: delivery.body.len(),
            delivery_id: delivery_id(source, delivery),
            reason: Some(rejection.reason()),
            detail: rejection.detail().map(|(what, detail)| (what, detail.to_owned())),
            element: rejection.element().map(str::to_owned),
            why: Some(why).filter(|why| !why.is_empty()),
            log_line: LogLine::Limited,
            ..Self::new(response, verdict, delivery.at)
        }
    }

    /// A delivery that is verified, but that a filter excludes.
    pub(super) fn ignored(source: &Source, delivery: &Delivery<'_>, why: String) -> Self {
        let response = if source.verify.is_none() { response::ignored_unverified() } else { response::ignored(&why) };
        let response = response::with_accepted_status(source, response);
        Self {
            bytes: delivery.body.len(),
            delivery_id: delivery_id(source, delivery),
            reason: Some(response::FILTERED),
            why: Some(why),
            log_line: LogLine::verified(source),
            ..Self::new(response, DeliveryVerdict::Ignored, delivery.at)
        }
    }

    /// A handshake that was answered.
    pub(super) fn handshake(
        source: &Source,
        delivery: &Delivery<'_>,
        method: HandshakeMethod,
        (response, proof): (HttpResponse, HandshakeProof),
    ) -> Self {
        let log_line = match proof {
            HandshakeProof::Secret => LogLine::Always,
            HandshakeProof::None => LogLine::unproven(source),
        };
        Self {
            bytes: delivery.body.len(),
            reason: Some(HANDSHAKE),
            why: Some(format!("a handshake of the sender ({}) was answered", method.word())),
            log_line,
            ..Self::new(response, DeliveryVerdict::Ignored, delivery.at)
        }
    }

    /// The same handshake, with what became of the value that it brought. If it was not taken, the sender is not told
    /// that it was.
    pub(super) fn handed_over(self, source: &Source, result: HandoverResult) -> Self {
        let refusal = |response, verdict, why| Self { why: Some(why), ..Self::new(response, verdict, self.at) };
        let unauthorized = || response::refused(&DeliveryRejection::BadSignature);
        let brought = "a handshake of the sender brought";
        let received = match result {
            HandoverResult::Kept => {
                let why = format!("{brought} a value; `hookonce handshake {}` shows it once", source.name);
                return Self { why: Some(why), ..self };
            }
            HandoverResult::Written(file) => {
                let why = format!("{brought} the secret, which is in {} now", file.display());
                return Self { why: Some(why), log_line: LogLine::Always, ..self };
            }
            HandoverResult::Unawaited => {
                let why =
                    format!("{brought} a secret that nobody waited for; `hookonce handshake {}` waits", source.name);
                refusal(unauthorized(), DeliveryVerdict::Refused, why)
            }
            HandoverResult::SecretExists(file) => {
                let why = format!("{brought} a secret, but there is one in {} already", file.display());
                refusal(unauthorized(), DeliveryVerdict::Refused, why)
            }
            HandoverResult::Failed(why) => {
                refusal(response::unavailable(), DeliveryVerdict::Unavailable, format!("{brought} a secret: {why}"))
            }
        };
        Self { bytes: self.bytes, reason: self.reason, log_line: self.log_line, ..received }
    }

    /// A delivery of `bytes` bytes that created or repeats these events. Its verdict is the first error, else a new
    /// event, else the first: the same as in its response.
    pub(super) fn claimed(
        source: &Source,
        (at, bytes): (Timestamp, usize),
        delivery_id: Option<Arc<str>>,
        mut all: Vec<ReceivedEvent>,
    ) -> Self {
        let events: Vec<_> = all.iter().filter_map(|one| one.event).collect();
        let first = |verdict| all.iter().position(|one: &ReceivedEvent| one.verdict == verdict);
        let told = first(DeliveryVerdict::Unavailable).or_else(|| first(DeliveryVerdict::Accepted)).unwrap_or(0);
        let responses = all.iter_mut().map(|one| std::mem::replace(&mut one.response, response::healthy())).collect();
        let response = match source.fields.each() {
            Some(_) => response::combine_elements(responses, &events),
            None => response::combine_responses(responses, &events),
        };
        let response = response::with_accepted_status(source, response);
        let told = all.swap_remove(told);
        Self {
            events,
            bytes,
            delivery_id,
            event: told.event,
            reason: told.reason(),
            matched_by: told.matched_by,
            ..Self::new(response, told.verdict, at)
        }
    }

    /// The reason for the refusal and its detail.
    pub(crate) fn refusal(&self) -> String {
        let detail = self.detail.as_ref().map(|(_, detail)| &**detail);
        self.reason.into_iter().chain(detail).collect::<Vec<_>>().join(": ")
    }

    fn record(&self, source: Option<&Source>) -> DeliveryRecord {
        let why = match &self.detail {
            Some(("field", name)) => Some(format!("the field `{name}`")),
            Some((_, detail)) => Some(detail.clone()),
            None => self.why.clone(),
        };
        let why = match (&self.element, why) {
            (Some(element), Some(why)) => Some(format!("{element}: {why}")),
            (_, why) => why,
        };
        DeliveryRecord {
            path: self.path.clone(),
            status: self.response.status,
            event: self.event,
            same: self.matched_by.as_ref().map(|same| same.word().to_owned()),
            reason: self.reason.map(str::to_owned),
            why,
            delivery: self.delivery_id.as_deref().map(str::to_owned),
            bytes: self.bytes,
            from: self.from,
            ..DeliveryRecord::new(source.map(|source| source.name.clone()), self.verdict, self.at)
        }
    }
}

/// The sender's delivery id of a delivery without an event, if it is in a header.
fn delivery_id(source: &Source, delivery: &Delivery<'_>) -> Option<Arc<str>> {
    match &source.delivery.as_ref()?.at {
        FieldLocation::Header(name) => delivery.text(name).map(Arc::from),
        _ => None,
    }
}

/// The observer of deliveries: logs, counts and records each result. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DeliveryObserver {
    metrics: Arc<Metrics>,
    limits: Arc<Mutex<HashMap<&'static str, LineLimit>>>,
}

/// The limit of the log lines with one word that anyone can cause: when there are too many, the rest are only counted.
struct LineLimit {
    bucket: TokenBucket,
    unlogged: u64,
}

impl LineLimit {
    fn new(now: Instant) -> Self {
        Self { bucket: TokenBucket::full(now), unlogged: 0 }
    }

    /// How many were not logged before the one that is now; `None`: this one is not logged, either.
    fn next(&mut self, now: Instant) -> Option<u64> {
        if self.bucket.take(now) {
            return Some(std::mem::take(&mut self.unlogged));
        }
        self.unlogged += 1;
        None
    }
}

#[expect(clippy::unused_self, reason = "all that is observed goes through one observer")]
impl DeliveryObserver {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, limits: Arc::default() }
    }

    /// Calls `log`, with the number of lines of this word that were not logged before this one, if any. A limited line
    /// is only counted if there are too many of its word: those of another word take nothing from it.
    fn log(&self, line: LogLine, word: &'static str, log: impl FnOnce(Option<u64>)) {
        match line {
            LogLine::None => {}
            LogLine::Always => log(None),
            LogLine::Limited => {
                let now = Instant::now();
                let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
                let next = limits.entry(word).or_insert_with(|| LineLimit::new(now)).next(now);
                drop(limits);
                if let Some(unlogged) = next {
                    log(Some(unlogged).filter(|unlogged| *unlogged > 0));
                }
            }
        }
    }

    /// Begins the span of a delivery.
    pub(super) fn begin(&self, source: &Source, delivery: &Delivery<'_>) -> TraceSpan {
        let mut span = TraceSpan::begin("receive", delivery.text(trace_context::PARENT).and_then(TraceContext::parse));
        span.tell("source", &source.name);
        span
    }

    /// Ends the span of a delivery, and observes its result.
    pub(super) fn finish(&self, source: &Source, received: Received, mut span: TraceSpan) -> Received {
        match received.reason {
            Some(reason) if received.verdict == DeliveryVerdict::Refused && received.event.is_none() => {
                span.failed(reason);
            }
            _ => span.tell("verdict", received.verdict.word()),
        }
        self.delivery(Some(source), &received);
        received
    }

    /// Logs, counts and records the result of a delivery. State changes of its events were logged when they were
    /// written.
    pub(crate) fn delivery(&self, source: Option<&Source>, received: &Received) {
        if received.is_limited() {
            return self.limited(source, received);
        }
        self.log_delivery(source, received);
        match source {
            Some(source) => {
                self.metrics.delivery(&source.name, received.verdict, received.at, || received.record(Some(source)));
            }
            None => self.metrics.turned_away(received.record(None)),
        }
    }

    /// Counts a refusal of an address that has had too many. One line in a while says so for all of them.
    fn limited(&self, source: Option<&Source>, received: &Received) {
        let from = received.from.map(display);
        let name = source.map(|source| &*source.name);
        if let Some(name) = name {
            self.metrics.limited(name, received.at);
        }
        let line =
            format!("{} {}", name.unwrap_or_default(), received.from.map(|from| from.to_string()).unwrap_or_default());
        log::rate_limited(LIMITED, &line, |times| warn!(target: "hookonce", source = name, from, times, "limited"));
    }

    /// Records how long the response to a request took.
    pub(super) fn responded(&self, source: &Source, took: Duration) {
        self.metrics.ingest(&source.name, took);
    }

    /// Counts a question to a registry that a source polls.
    pub(crate) fn polled(&self, source: &str, result: PollCounter) {
        self.metrics.polled(source, result);
    }

    /// Counts the secret that verified a delivery.
    pub(super) fn verified(&self, source: &Source, secret: usize) {
        self.metrics.secret_used(&source.name, secret);
    }

    /// Counts a delivery id that recently came with another body, if the signature does not cover the id.
    pub(super) fn check_id_conflict(&self, source: &Source, new: &NewEvent) {
        let signed = source.delivery.as_ref().is_some_and(|id| id.signed);
        if let (Some(id), false) = (&new.event.delivery_id, signed) {
            self.metrics.check_id_conflict(&source.name, id, &new.event.body_digest);
        }
    }

    /// Logs a repeat when it is seen: its response may wait for the end of its event.
    pub(super) fn repeat(&self, source: &Source, event: &Event, same: &MatchedBy, arriving: &NewEvent, now: Timestamp) {
        // An id that is not signed is bound to its body: the same id with another body is another key.
        let signed = source.delivery.as_ref().is_some_and(|id| id.signed);
        let conflicts = signed && *same == MatchedBy::Delivery && event.body_digest != arriving.event.body_digest;
        if conflicts {
            self.metrics.conflict(&event.source);
        }
        self.log(LogLine::verified(source), "duplicate", |unlogged| {
            info!(
                target: "hookonce",
                event = %event.id,
                delivery = id_of(arriving),
                same = same.word(),
                of = event.state.word(),
                age_seconds = now.since(event.received_at).as_secs_f64(),
                body = conflicts.then_some("another"),
                unlogged,
                "duplicate"
            );
        });
    }

    /// Counts a repeat that does not change its event.
    pub(super) fn repeat_reported(&self, source: &Source, same: &MatchedBy) {
        self.metrics.duplicate(&source.name, same);
    }

    /// Logs and counts a repeat of what was imported.
    pub(super) fn imported(&self, source: &Source, arriving: &NewEvent, same: &MatchedBy) {
        let (name, delivery, of) = (&*source.name, id_of(arriving), "imported");
        self.log(LogLine::verified(source), "duplicate", |unlogged| {
            info!(target: "hookonce", source = name, delivery, same = same.word(), of, unlogged, "duplicate");
        });
        self.metrics.duplicate(&source.name, same);
    }

    /// Logs a delivery whose subject has been changed by something newer.
    pub(super) fn stale(&self, source: &Source, arriving: &NewEvent, of: EventId) {
        let (name, delivery) = (&*source.name, id_of(arriving));
        self.log(LogLine::verified(source), "stale", |unlogged| {
            info!(target: "hookonce", source = name, event = %of, delivery, unlogged, "stale");
        });
    }

    /// Logs and counts an event that a redelivery has published again.
    pub(super) fn published_again(&self, event: &Event, arriving: &NewEvent) {
        let (delivery, message_id) = (id_of(arriving), event.idempotency_key());
        info!(target: "hookonce", event = %event.id, delivery, message_id, "publishing again");
        self.metrics.published_again(&event.source);
    }

    /// Logs that a node retries an event from now on, because its sender got a 202.
    pub(super) fn accepted(&self, event: &Event) {
        let why = "the sender got a 202 and does not retry it any more: a node does";
        info!(target: "hookonce", event = %event.id, why, "accepted");
    }

    /// Logs a delivery that was refused or ignored.
    fn log_delivery(&self, source: Option<&Source>, received: &Received) {
        let source = source.map(|source| &*source.name);
        let (delivery, path, why) =
            (received.delivery_id.as_deref(), received.path.as_deref(), received.why.as_deref());
        let (status, reason) = (received.response.status, received.reason);
        let named = |name| received.detail.as_ref().filter(|(what, _)| *what == name).map(|(_, value)| &**value);
        let (field, detail, element) = (named("field"), named("detail"), received.element.as_deref());
        let (line, from) = (received.log_line, received.from.map(display));
        match received.verdict {
            DeliveryVerdict::Ignored if reason == Some(HANDSHAKE) => self.log(line, "handshake", |unlogged| {
                info!(target: "hookonce", source, status, why, from, unlogged, "handshake");
            }),
            DeliveryVerdict::Ignored => self.log(line, "ignored", |unlogged| {
                let delivery = delivery.unwrap_or_default();
                info!(target: "hookonce", source, delivery, why, from, unlogged, "ignored");
            }),
            DeliveryVerdict::Unavailable => self.log(line, "unavailable", |unlogged| {
                warn!(target: "hookonce", source, path, delivery, status, reason, field, detail, why, from, unlogged, "unavailable");
            }),
            _ => self.log(line, "refused", |unlogged| {
                warn!(target: "hookonce", source, path, delivery, status, reason, element, field, detail, why, from, unlogged, "refused");
            }),
        }
    }

    /// Logs that the store did not respond.
    pub(super) fn store_failed(&self, error: &StoreError) {
        log::store_error(error);
    }
}

fn id_of(new: &NewEvent) -> &str {
    new.event.delivery_id.as_deref().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_consists_of_its_reason_and_detail() {
        let refused = |reason, detail: Option<&str>| {
            let response = response::rejected_before_judging(422, reason);
            let received = Received::new(response, DeliveryVerdict::Refused, Timestamp(0));
            let detail = detail.map(|detail| ("field", detail.to_owned()));
            Received { reason: Some(reason), detail, ..received }.refusal()
        };
        assert_eq!(refused("missing_field", Some("delivery")), "missing_field: delivery");
        assert_eq!(refused("bad_signature", None), "bad_signature");
    }
}
