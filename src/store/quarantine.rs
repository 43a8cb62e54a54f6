//! Messages of a stream that can never become an event, kept where a person can look at them.
//!
//! Whoever sends over HTTP is told when it is refused; a message has nobody to tell. So it is laid here, without keys
//! and whether it is believed or not, before the stream is told to deliver it no more. There is room for so many
//! ([`limits::QUARANTINE_MAX`]): the oldest make way.

use crate::decide::limits;
use crate::decide::time::Timestamp;
use bytes::Bytes;
use std::sync::Arc;

/// One such message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuarantinedMessage {
    /// The source that could not take it.
    pub source: Arc<str>,
    /// The message: its stream, its number there and when it was stored. A source lays the same one here once.
    pub message: String,
    /// Its subject.
    pub subject: String,
    /// When it was laid here, by the store's clock.
    pub at: Timestamp,
    /// Why.
    pub why: String,
    /// How long it was.
    pub bytes: u64,
    /// Its beginning: at most [`limits::QUARANTINE_BODY_BYTES_MAX`]. Nothing in it was verified.
    pub head: Bytes,
}

/// The beginning of a message, as much as is kept.
pub fn head(body: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&body[..body.len().min(limits::QUARANTINE_BODY_BYTES_MAX)])
}
