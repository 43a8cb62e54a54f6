//! Responses of the layer itself: a kept response, or a problem. gRPC clients get gRPC statuses.

use super::leased_attempt::EndedEventWithReceipt;
use super::once_body::OnceBody;
use crate::decide::delivery::DeliveryRejection;
use crate::decide::event::{Event, Receipt};
use crate::decide::outcome::kept_headers;
use crate::decide::response::problem_json;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body;
use serde_json::json;

/// Set on every response that belongs to an event: its id.
pub(super) const EVENT: HeaderName = HeaderName::from_static("hookonce-event");
/// Set on a kept response that is returned again.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Set if a response is not kept: why.
pub(super) const RECEIPT: HeaderName = HeaderName::from_static("hookonce-receipt");
/// Prefix of trailers among the headers of a receipt: no header name can begin with it.
const TRAILER: &str = ":trailer:";
/// `Retry-After` in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");
/// The URL of the documentation of each problem `type`.
const PROBLEMS: &str = "https://docs.rs/hookonce/latest/hookonce/layer/index.html#";

/// The protocol of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestProtocol {
    Http,
    Grpc,
}

impl RequestProtocol {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let grpc =
            headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        if grpc { Self::Grpc } else { Self::Http }
    }
}

/// Why the layer rejects a request. The names are those of the sections that document them.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum OnceRejection {
    MissingKey(String),
    Malformed(String),
    TooLarge(usize),
    OtherBody(Event),
    Running(Event),
    Failed(Event),
    NotKept(Event, &'static str),
    Unavailable,
}

impl OnceRejection {
    pub(super) fn refused(refusal: &DeliveryRejection) -> Self {
        let what = refusal.detail().map(|(_, what)| what).unwrap_or_default();
        match refusal {
            DeliveryRejection::MissingField(name) => {
                Self::MissingKey(format!("`{name}` identifies the request; send it"))
            }
            DeliveryRejection::FieldTooLong(name) => Self::Malformed(format!("`{name}` is too long")),
            DeliveryRejection::ContentType | DeliveryRejection::NeitherJsonNorForm => {
                Self::Malformed("the body is not JSON".into())
            }
            refusal => Self::Malformed(if what.is_empty() { refusal.reason().to_owned() } else { what.to_owned() }),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::MissingKey(_) => "missing-key",
            Self::Malformed(_) => "malformed",
            Self::TooLarge(_) => "too-large",
            Self::OtherBody(_) => "other-body",
            Self::Running(_) => "running",
            Self::Failed(_) => "failed",
            Self::NotKept(..) => "not-kept",
            Self::Unavailable => "unavailable",
        }
    }

    /// The HTTP status, the gRPC code and a title.
    fn status(&self) -> (StatusCode, u8, &'static str) {
        match self {
            Self::MissingKey(_) => (StatusCode::BAD_REQUEST, 3, "The idempotency key is missing"),
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, 3, "The request cannot be read"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, 8, "The body is too large"),
            Self::OtherBody(_) => (StatusCode::UNPROCESSABLE_ENTITY, 9, "The key was used with another body"),
            Self::Running(_) => (StatusCode::CONFLICT, 10, "The first request under this key is still running"),
            Self::Failed(_) => (StatusCode::BAD_GATEWAY, 10, "The request under this key failed"),
            Self::NotKept(..) => (StatusCode::OK, 6, "It was done, but its response is not kept"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, 14, "The store is out of reach"),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::MissingKey(what) | Self::Malformed(what) => what.clone(),
            Self::TooLarge(most) => format!("at most {most} bytes are read"),
            Self::OtherBody(_) => "send the same body again, or a new key for this one".into(),
            Self::Running(_) => "repeat the request later with the same key to get its response".into(),
            Self::Failed(_) => "nothing was kept: the same request with the same key runs again".into(),
            Self::NotKept(_, why) => match *why {
                "too_large" => "the first response was too large to keep".into(),
                _ => "the first response has expired".into(),
            },
            Self::Unavailable => "nothing was done; try again later".into(),
        }
    }

    fn event(&self) -> Option<&Event> {
        match self {
            Self::OtherBody(event) | Self::Running(event) | Self::Failed(event) | Self::NotKept(event, _) => {
                Some(event)
            }
            Self::MissingKey(_) | Self::Malformed(_) | Self::TooLarge(_) | Self::Unavailable => None,
        }
    }

    pub(super) fn response<B: Body>(&self, speaks: RequestProtocol) -> Response<OnceBody<B>> {
        let (status, code, title) = self.status();
        let mut response = match speaks {
            RequestProtocol::Http => Response::new(OnceBody::whole(self.json(status, title), None)),
            RequestProtocol::Grpc => Response::new(OnceBody::whole(Bytes::new(), None)),
        };
        let headers = response.headers_mut();
        match speaks {
            RequestProtocol::Http => {
                let kind = if status.is_success() { "application/json" } else { problem_json::MEDIA_TYPE };
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            RequestProtocol::Grpc => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                headers.insert("grpc-status", HeaderValue::from(u16::from(code)));
                headers.insert("grpc-message", HeaderValue::from_static(title));
            }
        }
        if matches!(self, Self::Running(_) | Self::Unavailable) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if let Self::NotKept(_, why) = self {
            headers.insert(RECEIPT, HeaderValue::from_static(why));
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        if let Some(event) = self.event() {
            stamp(headers, event);
        }
        if speaks == RequestProtocol::Http {
            *response.status_mut() = status;
        }
        response
    }

    fn json(&self, status: StatusCode, title: &str) -> Bytes {
        if let Self::NotKept(event, _) = self {
            let same = json!({"status": "duplicate", "event": event.id, "state": "done", "isDuplicate": true});
            return same.to_string().into();
        }
        let kind = format!("{PROBLEMS}{}", self.name());
        let mut problem = problem_json::members(&kind, title, status.as_u16(), Some(&self.detail()));
        if let Some(event) = self.event() {
            problem["event"] = json!(event.id);
        }
        problem.to_string().into()
    }
}

/// Adds the event's id to a response.
pub(super) fn stamp(headers: &mut HeaderMap, event: &Event) {
    let id = HeaderValue::try_from(event.id.to_string()).expect("an id is made of digits and dashes");
    headers.insert(EVENT, id);
}

/// The kept response.
pub(super) fn replayed<B: Body>(ended: &EndedEventWithReceipt, speaks: RequestProtocol) -> Response<OnceBody<B>> {
    match &ended.receipt {
        Some(receipt) if !receipt.truncated => {
            let mut response = given(receipt, &ended.event);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            response
        }
        Some(_) => OnceRejection::NotKept(ended.event.clone(), "too_large").response(speaks),
        None => OnceRejection::NotKept(ended.event.clone(), "forgotten").response(speaks),
    }
}

/// The failure of the attempt that was waited for.
pub(super) fn joined<B: Body>(ended: &EndedEventWithReceipt, speaks: RequestProtocol) -> Response<OnceBody<B>> {
    match &ended.receipt {
        Some(receipt) if !receipt.truncated => given(receipt, &ended.event),
        _ => OnceRejection::Failed(ended.event.clone()).response(speaks),
    }
}

fn given<B: Body>(receipt: &Receipt, event: &Event) -> Response<OnceBody<B>> {
    let (mut headers, mut trailers) = (HeaderMap::new(), HeaderMap::new());
    for (name, value) in &receipt.headers {
        let (to, name) = match name.strip_prefix(TRAILER) {
            Some(name) => (&mut trailers, name),
            None => (&mut headers, name.as_str()),
        };
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            to.append(name, value);
        }
    }
    stamp(&mut headers, event);
    let body = Bytes::copy_from_slice(&receipt.body);
    let mut response = Response::new(OnceBody::whole(body, (!trailers.is_empty()).then_some(trailers)));
    *response.status_mut() = StatusCode::from_u16(receipt.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// The receipt of a response: its status, the kept headers, its body and its trailers.
pub(super) fn receipt(
    status: StatusCode,
    headers: &HeaderMap,
    also: &[HeaderName],
    whole: Option<(&Bytes, Option<&HeaderMap>)>,
) -> Receipt {
    let mut all = kept_headers(raw(headers), |name| also.iter().any(|also| also == name));
    // All trailers are kept.
    let trailers = whole.and_then(|(_, trailers)| trailers).map(|trailers| kept_headers(raw(trailers), |_| true));
    all.extend(trailers.into_iter().flatten().map(|(name, value)| (format!("{TRAILER}{name}"), value)));
    let body = whole.map(|(body, _)| body.to_vec()).unwrap_or_default();
    Receipt { status: status.as_u16(), headers: all, body, truncated: whole.is_none() }
}

fn raw(headers: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// Whether a gRPC response is a failure. gRPC responds with 200 and its own code in the trailers, or in the headers if
/// there is no body. Equivalent to 5xx: cancelled, unknown, deadline exceeded, resource exhausted, aborted, internal,
/// unavailable, data loss.
pub(super) fn grpc_failed(headers: &HeaderMap, trailers: Option<&HeaderMap>) -> bool {
    let said = headers.get("grpc-status").or_else(|| trailers?.get("grpc-status"));
    let code = said.and_then(|code| code.to_str().ok()).and_then(|code| code.parse::<u8>().ok());
    matches!(code, Some(1 | 2 | 4 | 8 | 10 | 13 | 14 | 15))
}
