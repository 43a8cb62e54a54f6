//! What a stream says of its message, beside the message's own headers: where it stands there, and since when.
//!
//! It travels with the headers, under names that no header can have: neither a sender over HTTP nor a publisher can
//! write a `:`. The time is the one at which the stream took the message: a stream that is deleted and made anew counts
//! from 1 again, but never hands out the same number at the same nanosecond.

use super::delivery::Delivery;
use super::identity::key::KeyPart;
use std::sync::Arc;

/// The stream's name.
const STREAM: &str = ":stream";
/// When the stream took it, in nanoseconds since 1970.
const STORED: &str = ":stored";
/// Its number there.
const SEQUENCE: &str = ":sequence";

/// The headers that say where a message stands.
pub fn headers(stream: &str, stored: i128, sequence: u64) -> [(String, Vec<u8>); 3] {
    let header = |name: &str, value: String| (name.to_owned(), value.into_bytes());
    [header(STREAM, stream.to_owned()), header(STORED, stored.to_string()), header(SEQUENCE, sequence.to_string())]
}

/// What makes two deliveries the same message; none for what came another way.
pub(super) fn parts<'d>(delivery: &Delivery<'d>) -> Option<Vec<KeyPart<'d>>> {
    let part = |name: &'static str| Some(KeyPart::text(&name[1..], delivery.text(name)?));
    [STREAM, STORED, SEQUENCE].into_iter().map(part).collect()
}

/// A message as people call it: `GITHUB:42`. None for what came another way.
pub(super) fn name(delivery: &Delivery<'_>) -> Option<Arc<str>> {
    Some(format!("{}:{}", delivery.text(STREAM)?, delivery.text(SEQUENCE)?).into())
}
