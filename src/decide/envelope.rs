//! Wraps a delivery into one message, in the format that existing workers expect.
//!
//! `patchwork`: a JSON object with `delivery_id`, `event`, `action` and `repo_full_name` (the last two left out when
//! empty), and the body itself as `payload`. The body is inserted byte for byte, with the white space around it, so
//! that its signature, carried beside it, still matches. Other writers may have re-serialised it, and then nothing
//! about it can be verified.

use super::form;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// How a message carries a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EnvelopeFormat {
    /// The body is the message.
    #[default]
    Raw,
    /// The JSON object that Patchwork's workers expect.
    Patchwork,
}

/// A delivery taken out of its envelope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnwrappedDelivery {
    /// The sender's delivery id.
    pub delivery_id: String,
    /// The kind of event.
    pub event: String,
    /// The body.
    pub body: Bytes,
}

/// The header that carries the delivery id of Patchwork's envelope, in lower case.
pub const DELIVERY_HEADER: &str = "x-github-delivery";
/// The header that carries its kind of event.
pub const KIND_HEADER: &str = crate::decide::github_kind::HEADER;

/// The beginning of an envelope without white space of its own. A writer that puts none after the first member name
/// puts none anywhere, so white space around the payload belongs to the body.
const DENSE: &[u8] = br#"{"delivery_id":""#;

#[derive(Serialize, Deserialize)]
struct PatchworkEnvelope<'e> {
    #[serde(default)]
    delivery_id: String,
    #[serde(default)]
    event: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    action: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    repo_full_name: String,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    payload: Option<&'e RawValue>,
}

/// The members of a body that are repeated on its envelope.
#[derive(Default, Deserialize)]
struct PatchworkSummary {
    #[serde(default)]
    action: Value,
    #[serde(default)]
    repository: Value,
}

/// The bytes of a body that an envelope carries: the body itself, or the JSON inside a form. An error is a sentence.
pub fn inside(body: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let json = form::payload(body).map_err(|why| format!("it cannot be put into an envelope: {why}"))?;
    Ok(json.unwrap_or(Cow::Borrowed(body)))
}

/// Wraps a body as Patchwork's workers expect it; of a form, the JSON in it. An error is a sentence. Nothing is wrapped
/// that [`open_patchwork`] would not return byte for byte.
pub fn patchwork(delivery_id: &str, event: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let json = inside(body)?;
    let no_json = |_| "the body is no JSON, and cannot be put into an envelope".to_owned();
    let payload: &RawValue = serde_json::from_slice(&json).map_err(no_json)?;
    let unfit = |why| format!("no worker could take it: {why}");
    fits(delivery_id, event, payload.get()).map_err(unfit)?;
    let about: PatchworkSummary = serde_json::from_str(payload.get()).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
    let wrapped = PatchworkEnvelope {
        delivery_id: delivery_id.to_owned(),
        event: event.to_owned(),
        action: text(&about.action),
        repo_full_name: text(&about.repository["full_name"]),
        payload: None,
    };
    let mut wrapped =
        serde_json::to_vec(&wrapped).map_err(|error| format!("cannot be put into an envelope: {error}"))?;
    wrapped.pop(); // its closing brace
    Ok([&wrapped, &br#","payload":"#[..], &json, b"}"].concat())
}

/// Whether these can make up a delivery. An error says what is wrong with the envelope.
fn fits(delivery_id: &str, event: &str, payload: &str) -> Result<(), String> {
    for (name, value) in [("delivery_id", delivery_id), ("event", event)] {
        if value.is_empty() {
            return Err(format!("the envelope has no {name}"));
        }
        if value.bytes().any(|byte| !(0x20..0x7f).contains(&byte)) {
            return Err(format!("the envelope's {name} cannot be a header"));
        }
    }
    if payload == "null" {
        return Err("the envelope has no payload".into());
    }
    Ok(())
}

/// Takes a body out of Patchwork's envelope. An error says what is wrong with the envelope.
pub fn open_patchwork(message: &Bytes) -> Result<UnwrappedDelivery, String> {
    let found: PatchworkEnvelope<'_> =
        serde_json::from_slice(message).map_err(|error| format!("the envelope cannot be read: {error}"))?;
    let payload = found.payload.ok_or("the envelope has no payload")?.get();
    fits(&found.delivery_id, &found.event, payload)?;
    Ok(UnwrappedDelivery { body: body(message, payload), delivery_id: found.delivery_id, event: found.event })
}

/// The payload, as a slice of its message.
fn body(message: &Bytes, payload: &str) -> Bytes {
    if !message.starts_with(DENSE) {
        return message.slice_ref(payload.as_bytes());
    }
    let at = payload.as_ptr().addr() - message.as_ptr().addr();
    let (before, after) = (&message[..at], &message[at + payload.len()..]);
    message.slice(before.trim_ascii_end().len()..message.len() - after.trim_ascii_start().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_comes_out_byte_for_byte() {
        let body =
            br#"{ "action":"opened" ,"repository":{"full_name":" octocat/x "},"n":9007199254740993, "u":"<\u00e4>"}"#;
        let wrapped = patchwork("d-1", "pull_request", body).unwrap();
        let text = String::from_utf8(wrapped.clone()).unwrap();
        let expected =
            r#"{"delivery_id":"d-1","event":"pull_request","action":"opened","repo_full_name":"octocat/x","payload":"#;
        assert!(text.starts_with(expected), "{text}");
        let opened = open_patchwork(&wrapped.into()).unwrap();
        assert_eq!((opened.delivery_id.as_str(), opened.event.as_str()), ("d-1", "pull_request"));
        assert_eq!(opened.body, &body[..]);
    }

    #[test]
    fn white_space_around_the_body_is_part_of_it() {
        for body in ["{}\n", " {}", "\r\n\t[1] \n"] {
            let wrapped = patchwork("d", "push", body.as_bytes()).unwrap();
            let parsed: Value = serde_json::from_slice(&wrapped).unwrap();
            assert_eq!(parsed["payload"], serde_json::from_str::<Value>(body).unwrap());
            assert_eq!(open_patchwork(&wrapped.into()).unwrap().body, body.as_bytes(), "{body:?}");
        }
    }

    #[test]
    fn white_space_of_the_envelope_itself_is_not() {
        for envelope in [
            "{\"delivery_id\": \"d\", \"event\": \"push\", \"payload\": {}}",
            "{\n  \"delivery_id\": \"d\",\n  \"event\": \"push\",\n  \"payload\": {}\n}\n",
            "{\"payload\" : {} ,\"delivery_id\":\"d\",\"event\":\"push\"}",
            "{\"delivery_id\":\"d\",\"payload\":{},\"event\":\"push\"}",
        ] {
            assert_eq!(open_patchwork(&envelope.to_owned().into()).unwrap().body, "{}", "{envelope}");
        }
    }

    #[test]
    fn nothing_is_wrapped_that_cannot_be_unwrapped() {
        let refused = |id, event, body: &str| patchwork(id, event, body.as_bytes()).unwrap_err();
        assert!(refused("", "push", "{}").contains("no delivery_id"));
        assert!(refused("d", "", "{}").contains("no event"));
        assert!(refused("d", "a\nb", "{}").contains("event cannot be a header"));
        assert!(refused("d", "push", " null\n").contains("no payload"));
        assert!(refused("d", "push", "{} {}").contains("no JSON"));
    }

    #[test]
    fn what_is_empty_is_left_out_and_a_form_gives_its_payload() {
        let text = |body: &str| String::from_utf8(patchwork("d", "push", body.as_bytes()).unwrap()).unwrap();
        assert_eq!(text("{}"), r#"{"delivery_id":"d","event":"push","payload":{}}"#);
        assert_eq!(text("payload=%7B%7D"), r#"{"delivery_id":"d","event":"push","payload":{}}"#);
        for body in ["no json", "other=1", "other=1&payload=%7B%7D", "payload=%7B%7D&a=1", "payload=%7", "payload="] {
            assert!(patchwork("d", "push", body.as_bytes()).is_err(), "{body}");
        }
    }

    fn check(message: &str, expected: &str) {
        let why = open_patchwork(&Bytes::from(message.to_owned())).unwrap_err();
        assert!(why.contains(expected), "{message}: {why}");
    }

    #[test]
    fn a_malformed_envelope_says_what_is_wrong_with_it() {
        check("", "cannot be read");
        check("[]", "cannot be read");
        check(r#"{"delivery_id":"d","event":"push"}"#, "no payload");
        check(r#"{"delivery_id":"d","event":"push","payload":null}"#, "no payload");
        check(r#"{"delivery_id":"","event":"push","payload":{}}"#, "no delivery_id");
        check(r#"{"event":"push","payload":{}}"#, "no delivery_id");
        check(r#"{"delivery_id":"d","payload":{}}"#, "no event");
        check("{\"delivery_id\":\"a\\nb\",\"event\":\"push\",\"payload\":{}}", "cannot be a header");
    }
}
