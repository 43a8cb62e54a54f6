//! Turns a response into HTTP that cannot be misread. Its content is decided elsewhere.

use super::request_body::BodyError;
use crate::decide::response;
use crate::decide::response::{HOP_HEADERS, HttpResponse};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use std::borrow::Cow;

/// The names and values of most responses, which need not be checked again.
static EVENT: HeaderName = HeaderName::from_static(response::EVENT_HEADER);
static JSON: HeaderValue = HeaderValue::from_static(response::JSON);

/// A response as HTTP. A header that is invalid, or that would change the framing, is left out; of `connection` only
/// `close` is supported. A status that is not valid for a response becomes 500.
pub fn response(reply: HttpResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() = match StatusCode::from_u16(reply.status) {
        Ok(status) if (200..600).contains(&reply.status) => status,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let headers = response.headers_mut();
    for (name, value) in reply.headers {
        let (Some(name), Some(value)) = (header_name(&name), header_value(value)) else { continue };
        let dropped = HOP_HEADERS.contains(&name.as_str())
            || (name == header::CONNECTION && !value.as_bytes().eq_ignore_ascii_case(b"close"));
        if name == header::CONTENT_TYPE {
            headers.insert(name, value);
        } else if !dropped {
            headers.append(name, value);
        }
    }
    response
}

fn header_name(name: &str) -> Option<HeaderName> {
    match name {
        "content-type" => Some(header::CONTENT_TYPE),
        response::EVENT_HEADER => Some(EVENT.clone()),
        other => HeaderName::try_from(other).ok(),
    }
}

fn header_value(value: Cow<'static, str>) -> Option<HeaderValue> {
    match value {
        Cow::Borrowed(response::JSON) => Some(JSON.clone()),
        Cow::Borrowed(text) => HeaderValue::try_from(text).ok(),
        Cow::Owned(text) => HeaderValue::try_from(text).ok(),
    }
}

/// The response to a body that did not arrive; it closes the connection, since the rest of the body is still on it.
pub fn no_body(error: BodyError) -> HttpResponse {
    let status = match error {
        BodyError::TooLarge => 413,
        BodyError::TooSlow | BodyError::Displaced => 408,
        BodyError::Broken => 400,
        BodyError::Busy => 503,
    };
    let mut reply = match error.reason() {
        Some(reason) => response::rejected_before_judging(status, reason),
        None => response::unavailable(),
    };
    reply.headers.push(("connection".into(), "close".into()));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, given: &[(&str, &str)], wanted_status: u16, wanted: &[(&str, &str)]) {
        let headers = given.iter().map(|(n, v)| ((*n).to_owned().into(), (*v).to_owned().into())).collect();
        let response = response(HttpResponse { status, headers, body: b"{}".to_vec(), word: "test" });
        let found: Vec<_> =
            response.headers().iter().map(|(n, v)| (n.as_str(), v.to_str().expect("visible ASCII"))).collect();
        assert_eq!((response.status().as_u16(), found.as_slice()), (wanted_status, wanted), "{status} {given:?}");
    }

    #[test]
    fn a_response_has_one_content_type() {
        check(202, &[], 202, &[]);
        check(200, &[("Content-Type", "text/plain")], 200, &[("content-type", "text/plain")]);
        let both = [("content-type", "text/plain"), ("content-type", "application/json")];
        check(200, &both, 200, &[("content-type", "application/json")]);
        check(202, &[("Hookonce-Event", "3fa9c01e")], 202, &[("hookonce-event", "3fa9c01e")]);
        check(200, &[("x-a", "1"), ("x-a", "2")], 200, &[("x-a", "1"), ("x-a", "2")]);
    }

    #[test]
    fn a_stored_response_cannot_change_the_framing() {
        check(200, &[("Content-Length", "900"), ("transfer-encoding", "chunked"), ("upgrade", "h2c")], 200, &[]);
        check(200, &[("connection", "keep-alive, x-secret"), ("keep-alive", "timeout=9")], 200, &[]);
        check(200, &[("connection", "Close")], 200, &[("connection", "Close")]);
    }

    #[test]
    fn an_invalid_header_is_left_out() {
        check(200, &[("x-a", "1\r\nset-cookie: a=b"), ("x b", "1"), ("", "1"), ("x-nul", "\0")], 200, &[]);
    }

    #[test]
    fn an_invalid_status_becomes_500() {
        for status in [0, 99, 100, 101, 103, 199, 600, 999, u16::MAX] {
            check(status, &[], 500, &[]);
        }
        check(599, &[], 599, &[]);
    }
}
