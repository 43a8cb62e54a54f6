//! The error responses for clients of an HTTP API: `application/problem+json` (RFC 9457). Their `type` links to our
//! page about it, which every node serves.

use super::{EVENT_HEADER, HttpResponse, RETRY_AFTER, ResponseHeader, status_of};
use crate::decide::delivery::DeliveryRejection;
use crate::decide::event::{DeathCause, Event};
use crate::decide::id::EventId;
use serde_json::{Value, json};

/// The path of the page, in the repository and on the port where requests arrive.
pub const PAGE_PATH: &str = "/docs/problems.md";
/// The media type of a problem.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";
/// The page itself.
pub const PAGE: &str = include_str!("../../../docs/problems.md");

/// The request is not verified, or cannot be read.
pub fn refused(refusal: &DeliveryRejection) -> HttpResponse {
    if matches!(refusal, DeliveryRejection::KeyUnavailable(_) | DeliveryRejection::SecretMissing) {
        return unavailable();
    }
    let (anchor, title) = match refusal {
        DeliveryRejection::KeyMissing => ("key-missing", "Idempotency-Key is missing"),
        DeliveryRejection::KeyMalformed(_) => ("key-malformed", "Idempotency-Key is malformed"),
        DeliveryRejection::BadSignature | DeliveryRejection::KeyUnavailable(_) | DeliveryRejection::SecretMissing => {
            ("not-authenticated", "The request is not authenticated")
        }
        DeliveryRejection::Forbidden => ("not-allowed", "The request is not allowed"),
        DeliveryRejection::ContentType | DeliveryRejection::NeitherJsonNorForm | DeliveryRejection::NoForm => {
            ("type-of-body", "The body is of a type that is not taken here")
        }
        DeliveryRejection::Malformed(_) | DeliveryRejection::TooManyElements | DeliveryRejection::InElement { .. } => {
            ("malformed", "The request cannot be read")
        }
        DeliveryRejection::MissingField(_)
        | DeliveryRejection::FieldTooLong(_)
        | DeliveryRejection::BadOrder(_)
        | DeliveryRejection::KindMismatch(_) => ("field", "A value in the request is missing or cannot be used"),
    };
    let detail = match refusal {
        DeliveryRejection::KeyMissing => {
            Some("send one, such as Idempotency-Key: \"8e03978e-40d5-43dd-bc93-6894a57f9324\"")
        }
        _ => refusal.detail().map(|(_, detail)| detail),
    };
    problem(status_of(refusal), "refused", anchor, title, detail, None)
}

/// The request that first used this key is still being processed.
pub fn request_in_progress(event: &Event) -> HttpResponse {
    let detail = "the first request with this key has not been answered yet; send the same request again later";
    let title = "A request is outstanding for this Idempotency-Key";
    again_later(problem(409, "duplicate", "key-in-use", title, Some(detail), Some(event.id)))
}

/// The key was used with another body.
pub fn reused(event: &Event) -> HttpResponse {
    let detail = "another request was sent with this key; a new request needs a new one";
    problem(422, "refused", "key-reused", "Idempotency-Key is already used", Some(detail), Some(event.id))
}

/// The upstream service gave no response, and the event is dead.
pub fn no_upstream_response(event: &Event, cause: DeathCause) -> HttpResponse {
    let (status, detail) = match cause {
        DeathCause::InDoubt => (504, "it is unknown whether it was done; it is not retried automatically"),
        DeathCause::Failed | DeathCause::Rejected => {
            (502, "nothing was done; the same request with the same key is tried again")
        }
        DeathCause::Damaged | DeathCause::Cancelled | DeathCause::OverBudget | DeathCause::Unhealthy => {
            (502, "it was given up, and is not retried automatically")
        }
    };
    problem(status, "dead", "not-answered", "The service behind did not answer", Some(detail), Some(event.id))
}

/// A request that was rejected before it was judged, as a problem.
pub fn turned_away(reply: HttpResponse) -> HttpResponse {
    let (anchor, title) = match reply.status {
        401 => ("not-authenticated", "The request is not authenticated"),
        405 => ("method", "This method is not taken here"),
        408 => ("too-slow", "The body came too slowly"),
        403 => ("forbidden", "The request is not permitted"),
        413 => ("too-large", "The body is too large"),
        429 => ("limited", "Too many requests were refused"),
        503 => return with_headers(unavailable(), reply),
        _ => ("malformed", "The request cannot be read"),
    };
    with_headers(problem(reply.status, "refused", anchor, title, None, None), reply)
}

/// Adds the other response's headers about the connection and about allowed methods.
fn with_headers(mut problem: HttpResponse, other: HttpResponse) -> HttpResponse {
    let said = |name: &str| matches!(name, "content-type" | "retry-after");
    problem.headers.extend(other.headers.into_iter().filter(|(name, _)| !said(name)));
    problem
}

/// The store is down, too much is under way, or the node is about to stop.
pub fn unavailable() -> HttpResponse {
    let detail = "nothing was done; send the same request again later";
    again_later(problem(503, "unavailable", "unavailable", "Not available now", Some(detail), None))
}

fn problem(
    status: u16,
    word: &'static str,
    anchor: &str,
    title: &str,
    detail: Option<&str>,
    event: Option<EventId>,
) -> HttpResponse {
    let body = members(&format!("{PAGE_PATH}#{anchor}"), title, status, detail);
    let mut headers: Vec<ResponseHeader> = vec![("content-type".into(), MEDIA_TYPE.into())];
    headers.extend(event.map(|event| (EVENT_HEADER.into(), event.to_string().into())));
    HttpResponse { status, headers, body: body.to_string().into_bytes(), word }
}

/// The members of a problem.
pub(crate) fn members(kind: &str, title: &str, status: u16, detail: Option<&str>) -> Value {
    let mut body = json!({ "type": kind, "title": title, "status": status });
    if let Some(detail) = detail {
        body["detail"] = detail.into();
    }
    body
}

fn again_later(mut reply: HttpResponse) -> HttpResponse {
    reply.headers.push(("retry-after".into(), RETRY_AFTER.into()));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The anchors that GitHub and others make from headings.
    fn anchors() -> Vec<String> {
        let headings = PAGE.lines().filter_map(|line| line.strip_prefix("## "));
        headings.map(|heading| heading.to_lowercase().replace(' ', "-")).collect()
    }

    #[test]
    fn every_type_leads_to_a_heading_of_the_page() {
        let refusals = [
            DeliveryRejection::KeyMissing,
            DeliveryRejection::KeyMalformed("x"),
            DeliveryRejection::BadSignature,
            DeliveryRejection::Forbidden,
            DeliveryRejection::ContentType,
            DeliveryRejection::NeitherJsonNorForm,
            DeliveryRejection::NoForm,
            DeliveryRejection::Malformed("x".into()),
            DeliveryRejection::MissingField("x".into()),
            DeliveryRejection::FieldTooLong("x".into()),
            DeliveryRejection::BadOrder("x".into()),
            DeliveryRejection::KindMismatch("another".into()),
        ];
        let away = [400, 401, 405, 408, 413, 503]
            .map(|status| turned_away(crate::decide::response::rejected_before_judging(status, "x")));
        let replies = refusals.iter().map(refused).chain([unavailable()]).chain(away);
        for reply in replies {
            let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("a problem is JSON");
            let anchor = body["type"].as_str().and_then(|to| to.strip_prefix("/docs/problems.md#")).unwrap_or_default();
            assert!(anchors().iter().any(|heading| heading == anchor), "{body}");
            assert_eq!(body["status"], reply.status);
        }
        for anchor in ["key-in-use", "key-reused", "not-answered"] {
            assert!(anchors().iter().any(|heading| heading == anchor), "{anchor}");
        }
    }
}
