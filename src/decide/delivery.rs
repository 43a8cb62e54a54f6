//! A delivery as it was received. Nothing here has been verified yet.

use super::time::Timestamp;
use super::verify::KeyRequest;
use bytes::Bytes;
use std::sync::Arc;

/// One delivery: the request as it was received.
#[derive(Clone, Debug)]
pub struct Delivery<'d> {
    /// The path, without the query.
    pub path: &'d str,
    /// What follows the `?`, undecoded; empty if there is no query.
    pub query: &'d str,
    /// Headers as they came, names in lower case, repeated ones repeated.
    pub headers: &'d [HeaderRef<'d>],
    /// The body as it came.
    pub body: &'d Bytes,
    /// When it arrived, by the store's clock.
    pub at: Timestamp,
    /// The same by this machine's wall clock: the age of a signature is measured with it.
    pub wall: Timestamp,
}

/// A header's name in lower case, and its value.
pub type HeaderRef<'d> = (&'d str, &'d [u8]);

/// Borrows each header of a list, for [`Delivery::headers`].
pub fn borrow_headers(headers: &[(String, Vec<u8>)]) -> Vec<HeaderRef<'_>> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}

/// The result of looking up a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderLookup<'d> {
    /// It is not there.
    Missing,
    /// It is there once.
    One(&'d [u8]),
    /// It occurs more than once. Which one counts is ambiguous, so none does.
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

/// Why a delivery is rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeliveryRejection {
    /// No signature, a wrong one, or an old one. The response never says which.
    BadSignature,
    /// The sender's key is not at hand: whether the signature is right is not known yet.
    KeyUnavailable(Box<KeyRequest>),
    /// The source has no secret yet: its sender is to bring it by a handshake.
    SecretMissing,
    /// `require` is false.
    Forbidden,
    /// The body cannot be read; says what is wrong with it.
    Malformed(String),
    /// The headers say that the body is no JSON, and this source reads JSON.
    ContentType,
    /// The headers say that the body is neither JSON nor a form, and this source reads JSON, also as a value of a form.
    NeitherJsonNorForm,
    /// The headers say that the body is no form, and this source reads forms.
    NoForm,
    /// A field that an identity, the order, the group or a parameter needs is missing.
    MissingField(Arc<str>),
    /// A field is longer than the limit.
    FieldTooLong(Arc<str>),
    /// The order is neither an integer nor a time, or is too far in the future.
    BadOrder(Arc<str>),
    /// A client of an API sent no `Idempotency-Key`.
    KeyMissing,
    /// The `Idempotency-Key` cannot be read; says what is wrong with it.
    KeyMalformed(&'static str),
    /// It has more elements than one delivery may have.
    TooManyElements,
    /// One of its elements is rejected, and with it the whole delivery.
    InElement {
        /// The place of the element, such as `body.events.3`.
        place: String,
        /// Why it is rejected.
        rejection: Box<DeliveryRejection>,
    },
    /// The sender's header names one kind of event, but the body does not have its shape; a sentence that says so.
    KindMismatch(String),
}

impl DeliveryRejection {
    /// The reason as it is logged and returned.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadSignature => "bad_signature",
            Self::KeyUnavailable(_) => "key_unavailable",
            Self::SecretMissing => "secret_missing",
            Self::Forbidden => "forbidden",
            Self::Malformed(_) => "malformed",
            Self::ContentType | Self::NeitherJsonNorForm | Self::NoForm => "content_type",
            Self::MissingField(_) => "missing_field",
            Self::FieldTooLong(_) => "field_too_long",
            Self::BadOrder(_) => "bad_order",
            Self::KeyMissing => "key_missing",
            Self::KeyMalformed(_) => "key_malformed",
            Self::KindMismatch(_) => "kind_mismatch",
            Self::TooManyElements => "too_many_elements",
            Self::InElement { rejection, .. } => rejection.reason(),
        }
    }

    /// The place of the element that is rejected, if it is an element.
    pub fn element(&self) -> Option<&str> {
        match self {
            Self::InElement { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Further detail: the name of its member, and its value.
    pub fn detail(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Malformed(what) | Self::KindMismatch(what) => Some(("detail", what)),
            Self::MissingField(name) | Self::FieldTooLong(name) | Self::BadOrder(name) => Some(("field", name)),
            Self::KeyMalformed(what) => Some(("detail", what)),
            Self::Forbidden => Some(("detail", "`require` is not true of it")),
            Self::ContentType => Some(("detail", "send JSON as application/json, in UTF-8")),
            Self::NeitherJsonNorForm => {
                let detail = "send JSON as application/json, or a form as application/x-www-form-urlencoded, in UTF-8";
                Some(("detail", detail))
            }
            Self::TooManyElements => Some(("detail", "a delivery may have at most 1000 elements")),
            Self::InElement { rejection, .. } => rejection.detail(),
            Self::NoForm => Some((
                "detail",
                "send it as application/x-www-form-urlencoded, in UTF-8; multipart/form-data is not read",
            )),
            Self::BadSignature | Self::KeyUnavailable(_) | Self::SecretMissing | Self::KeyMissing => None,
        }
    }
}
