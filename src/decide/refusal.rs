//! Why a delivery is not believed or cannot be read, in the words of the answer. A refusal leaves no trace in the
//! store.

use std::sync::Arc;

/// Why a delivery is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
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
