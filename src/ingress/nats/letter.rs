//! From a message to what a delivery is made of: the headers it carries, where it stands, and the body, taken out of
//! its envelope. Nothing here is believed.

use crate::decide::envelope::{self, EnvelopeFormat};
use crate::decide::limits;
use crate::decide::message;
use async_nats::jetstream::Message;
use bytes::Bytes;

/// A message, opened.
pub(super) struct StreamMessage {
    /// Names in lower case; among them where the message stands.
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// What was sent in the first place.
    pub(super) body: Bytes,
}

impl StreamMessage {
    /// Opens a message; an error says why that will never be possible.
    pub(super) fn open(message: &Message, envelope: EnvelopeFormat, body_max: usize) -> Result<Self, String> {
        let info = message.info().map_err(|error| format!("it is no message of a stream: {error}"))?;
        let mut headers = carried(message)?;
        let body = match envelope {
            EnvelopeFormat::Raw => message.payload.clone(),
            EnvelopeFormat::Patchwork => {
                let opened = envelope::open_patchwork(&message.payload)?;
                let inside = [
                    (envelope::DELIVERY_HEADER, opened.delivery_id.as_str()),
                    (envelope::KIND_HEADER, opened.event.as_str()),
                    ("content-type", "application/json"),
                ];
                headers.retain(|(name, _)| inside.iter().all(|(inside, _)| inside != name));
                headers.extend(inside.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())));
                opened.body
            }
        };
        if body.len() > body_max {
            return Err(format!("its body has {} bytes, and at most {body_max} are taken (body_max)", body.len()));
        }
        let stored = info.published.unix_timestamp_nanos();
        headers.extend(message::headers(info.stream, stored, info.stream_sequence));
        Ok(Self { headers, body })
    }
}

/// What people and the quarantine call a message: its stream, its number there, and when it was stored.
pub(super) fn name(message: &Message) -> String {
    match message.info() {
        Ok(info) => format!("{}:{}@{}", info.stream, info.stream_sequence, info.published.unix_timestamp_nanos()),
        Err(_) => "unknown".into(),
    }
}

/// The headers of a message, no more than a request may have.
fn carried(message: &Message) -> Result<Vec<(String, Vec<u8>)>, String> {
    let all = message.headers.iter().flat_map(|headers| headers.iter());
    let headers: Vec<_> = all
        .flat_map(|(name, values)| {
            let name = name.to_string().to_ascii_lowercase();
            values.iter().map(move |value| (name.clone(), value.as_str().as_bytes().to_vec()))
        })
        .collect();
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > limits::HEADERS_MAX || bytes > limits::HEADER_BYTES_MAX {
        return Err(format!("it has {} headers with {bytes} bytes: more than a delivery may have", headers.len()));
    }
    Ok(headers)
}
