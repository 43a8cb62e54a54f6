//! `forward`: the event's body, as it came, to its receiver. One request, one answer, one class:
//!
//! | what happened | outcome |
//! |---|---|
//! | 2xx, also with an answer that breaks off | delivered |
//! | 408, 425, 429, 5xx | failed; `Retry-After` is honoured |
//! | any other 3xx, 4xx | rejected: nothing is followed |
//! | not connected: name, route, refused, TLS | failed: not a byte of the request has left |
//! | reset, closed, out of time, no HTTP, before there was a status | unknown: it may have acted |
//!
//! A request that found its kept connection closed, before any of it was written, is sent again on a new one by the
//! client. One of which a byte was written never is.

use super::plan::Receiver;
use super::{Acting, Action, Attempt, CannotAct, spoken};
use crate::decide::event::{Event, Outcome, Receipt};
use crate::decide::limits::RECEIPT_BYTES_MAX;
use crate::decide::time::Duration;
use crate::lease::Lease;
use jiff::fmt::rfc2822;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, redirect};
use std::error::Error;
use tokio::time::{Instant, timeout_at};

/// To connect: name, TCP and TLS.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// A kept connection is not used again after this: shorter than the 5 s after which Node.js closes it, since a request
/// that crosses with the closing is in doubt.
const IDLE_TIME: Duration = Duration::from_secs(4);
/// What of an answer's headers may be given again to duplicates.
const KEPT_HEADERS: [&str; 6] =
    ["content-type", "content-language", "location", "retry-after", "x-request-id", "x-correlation-id"];

/// The action `forward`.
pub(super) struct Forward {
    receivers: Vec<To>,
}

struct To {
    receiver: Receiver,
    client: Client,
}

impl Forward {
    pub(super) fn new(receivers: Vec<Receiver>) -> Result<Self, CannotAct> {
        let to = |receiver: Receiver| match client(&receiver) {
            Ok(client) => Ok(To { receiver, client }),
            Err(error) => Err(CannotAct(format!("cannot forward by HTTP: {}", cause(&error)))),
        };
        Ok(Self { receivers: receivers.into_iter().map(to).collect::<Result<_, _>>()? })
    }

    async fn forward(&self, attempt: Attempt<'_>) -> Outcome {
        let Attempt { event, payload, lease, .. } = attempt;
        let Some(To { receiver, client }) = self.receivers.get(usize::from(event.part)) else {
            let why = format!("its route has no receiver {} any more", event.part + 1);
            return Outcome::Rejected { why, receipt: None };
        };
        let content_type = payload.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| &**value);
        let headers = headers(event, content_type);
        let until = Instant::now() + receiver.timeout;
        let request = client.post(&receiver.url).headers(headers).body(payload.body.clone());
        let answer = tokio::select! {
            biased;
            over = lease.ended() => {
                return Outcome::Unknown { why: format!("{} before the receiver answered", over.why()) };
            }
            answer = timeout_at(until, request.send()) => answer,
        };
        match answer {
            Ok(Ok(response)) => answered(response, until, lease).await,
            Ok(Err(error)) => not_answered(&error),
            Err(_) => Outcome::Unknown { why: format!("no answer within {}", spoken(receiver.timeout)) },
        }
    }
}

impl Action for Forward {
    fn act<'a>(&'a self, attempt: Attempt<'a>) -> Acting<'a> {
        Box::pin(self.forward(attempt))
    }
}

/// To connect takes at most half of the receiver's time: so a connection that never came (failed) is told from an
/// answer that never came (unknown).
fn client(to: &Receiver) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .user_agent(concat!("hookonce/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIME.min(to.timeout / 2))
        .pool_idle_timeout(IDLE_TIME);
    // A machine without certificates can still forward to its neighbour.
    if to.url.starts_with("http://") { builder.tls_certs_only([]).build() } else { builder.build() }
}

/// Nothing of the delivery's own headers goes on but the type of its body.
fn headers(event: &Event, content_type: Option<&str>) -> HeaderMap {
    let all = [
        (CONTENT_TYPE, content_type.map(str::to_owned)),
        (HeaderName::from_static("idempotency-key"), Some(event.idempotency_key())),
        (HeaderName::from_static("hookonce-event"), Some(event.id.to_string())),
        (HeaderName::from_static("hookonce-attempt"), Some(event.attempt.to_string())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value?).ok()?))).collect()
}

async fn answered(response: Response, until: Instant, lease: &Lease) -> Outcome {
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let receipt = Some(receipt(response, until, lease).await);
    let why = format!("the receiver answered {}", status.as_u16());
    match status.as_u16() {
        200..=299 => Outcome::Delivered(receipt),
        408 | 425 | 429 | 500..=599 => Outcome::Failed { why, retry_after, receipt },
        300..=499 => Outcome::Rejected { why, receipt },
        _ => Outcome::Unknown { why: format!("{why}, which means nothing") },
    }
}

/// The URL is left out: it may carry a secret.
fn not_answered(error: &reqwest::Error) -> Outcome {
    let cause = cause(error);
    if error.is_builder() {
        Outcome::Rejected { why: format!("the receiver's URL is none: {cause}"), receipt: None }
    } else if error.is_connect() {
        Outcome::Failed { why: format!("not connected: {cause}"), retry_after: None, receipt: None }
    } else {
        Outcome::Unknown { why: format!("sent, but not answered: {cause}") }
    }
}

/// The innermost cause: those around it only say that there is one.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if cause.is::<reqwest::Error>() { "it could not be built".into() } else { cause.to_string() }
}

/// The status is known by now, so whatever ends the reading only cuts the body.
async fn receipt(mut response: Response, until: Instant, lease: &Lease) -> Receipt {
    let headers = kept(response.headers());
    let status = response.status();
    let mut body = Vec::new();
    let reading = timeout_at(until, read(&mut response, &mut body));
    let whole = tokio::select! {
        whole = reading => whole.unwrap_or(false),
        _ = lease.ended() => false,
    };
    Receipt { status: StatusCode::as_u16(&status), headers, body, cut: !whole }
}

/// Whether the body was read to its end.
async fn read(response: &mut Response, body: &mut Vec<u8>) -> bool {
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = RECEIPT_BYTES_MAX - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    return false;
                }
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |name: &str, value: &HeaderValue| Some((name.to_owned(), value.to_str().ok()?.to_owned()));
    KEPT_HEADERS
        .iter()
        .flat_map(|name| headers.get_all(*name).iter().filter_map(move |value| text(name, value)))
        .collect()
}

/// Seconds, or a date: which counts from the receiver's own `Date`, since our clock may differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(RETRY_AFTER)?;
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text| rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let wait = date(after)?.duration_since(date(text(DATE)?)?);
    Some(Duration::try_from(wait).unwrap_or_default())
}
