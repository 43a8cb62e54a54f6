//! One arrival, as it came. Nothing here has been believed yet.

use super::time::Timestamp;
use bytes::Bytes;
use std::sync::Arc;

/// One arrival: the bytes as they came.
#[derive(Clone, Debug)]
pub struct Delivery<'d> {
    /// The path, without the query.
    pub path: &'d str,
    /// What stands behind the `?`, undecoded; empty if nothing does.
    pub query: &'d str,
    /// Headers as they came, names in lower case, repeated ones repeated.
    pub headers: &'d [HeaderRef<'d>],
    /// The body as it came.
    pub body: &'d Bytes,
    /// When it arrived, by the store's clock.
    pub at: Timestamp,
    /// The same by this machine's clock on the wall, wherever that was set: the age of a signature is measured by it.
    pub wall: Timestamp,
}

/// A header's name in lower case, and its value.
pub type HeaderRef<'d> = (&'d str, &'d [u8]);

/// Borrows each header of a list, for [`Delivery::headers`].
pub fn borrow_headers(headers: &[(String, Vec<u8>)]) -> Vec<HeaderRef<'_>> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderLookup<'d> {
    /// It is not there.
    Missing,
    /// It is there once.
    One(&'d [u8]),
    /// It is there more than once: which one counts is anybody's guess, so none does.
    Several,
}

impl<'d> Delivery<'d> {
    /// The header of this name (in lower case).
    pub fn header(&self, name: &str) -> HeaderLookup<'d> {
        let mut found = HeaderLookup::Missing;
        for (_, value) in self.headers.iter().filter(|(n, _)| *n == name) {
            found = match found {
                HeaderLookup::Missing => HeaderLookup::One(value),
                _ => return HeaderLookup::Several,
            };
        }
        found
    }

    /// The header as text, if it is there once, is not empty, and is visible ASCII.
    pub fn text(&self, name: &str) -> Option<&'d str> {
        match self.header(name) {
            HeaderLookup::One(value) if !value.is_empty() && value.iter().all(|b| (0x20..0x7f).contains(b)) => {
                std::str::from_utf8(value).ok()
            }
            _ => None,
        }
    }
}

/// Why a delivery is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeliveryRejection {
    /// No signature, a bad one, or an old one. Never says which.
    BadSignature,
    /// `require` is false.
    Forbidden,
    /// The body cannot be read. What is wrong with it, in words.
    Malformed(String),
    /// The body is of a type this source does not take.
    ContentType,
    /// A field that an identity, the order, the group or a parameter needs is not there.
    MissingField(Arc<str>),
    /// A field is longer than a field may be.
    FieldTooLong(Arc<str>),
    /// The order is neither an integer nor a time, or lies too far ahead.
    BadOrder(Arc<str>),
    /// A client of an API sent no `Idempotency-Key`.
    KeyMissing,
    /// Its `Idempotency-Key` cannot be read. What is wrong with it, in words.
    KeyMalformed(&'static str),
    /// The sender's header names one kind of event, and the body does not have its shape. In a sentence.
    KindMismatch(String),
}

impl DeliveryRejection {
    /// The word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadSignature => "bad_signature",
            Self::Forbidden => "forbidden",
            Self::Malformed(_) => "malformed",
            Self::ContentType => "content_type",
            Self::MissingField(_) => "missing_field",
            Self::FieldTooLong(_) => "field_too_long",
            Self::BadOrder(_) => "bad_order",
            Self::KeyMissing => "key_missing",
            Self::KeyMalformed(_) => "key_malformed",
            Self::KindMismatch(_) => "kind_mismatch",
        }
    }

    /// What more there is to say about it, and what that is.
    pub fn detail(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Malformed(what) | Self::KindMismatch(what) => Some(("detail", what)),
            Self::MissingField(name) | Self::FieldTooLong(name) | Self::BadOrder(name) => Some(("field", name)),
            Self::KeyMalformed(what) => Some(("detail", what)),
            Self::Forbidden => Some(("detail", "`require` is not true of it")),
            Self::ContentType => Some(("detail", "send it with Content-Type: application/json")),
            Self::BadSignature | Self::KeyMissing => None,
        }
    }
}
