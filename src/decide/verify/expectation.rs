//! Which part of a signature was expected where, and what is there instead. Nothing here says what the right signature
//! would be, and no value of a delivery is repeated.

use super::described::{DescribedSignature, SignatureEncoding, SignatureKeys, TimestampLocation, named_entry};
use super::public_key::PublicKeyAlgorithm;
use super::signed_text::{SignedPiece, TimestampFormat};
use super::{VerificationScheme, text_at};
use crate::decide::delivery::{Delivery, HeaderLookup};
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp, duration_text};
use std::borrow::Cow;

/// Everything is in its place.
pub(super) const ANOTHER_SIGNATURE: &str = "a signature of other bytes, or with another secret";

/// The same, where the sender has the only key that signs.
pub(super) const ANOTHER_KEY: &str = "a signature of other bytes, or with another key";

/// The value of a header with a signature, or what is there instead.
pub(super) fn header_found<'d>(delivery: &Delivery<'d>, name: &str) -> Result<&'d str, String> {
    header_within(delivery, name, limits::SIGNATURE_BYTES_MAX)
}

/// The value of a header that may have so many bytes, or what is there instead.
pub(super) fn header_within<'d>(delivery: &Delivery<'d>, name: &str, most: usize) -> Result<&'d str, String> {
    match delivery.header(name) {
        HeaderLookup::Missing => Err("no such header".to_owned()),
        HeaderLookup::Several => Err("the header more than once".to_owned()),
        HeaderLookup::One([]) => Err("an empty header".to_owned()),
        HeaderLookup::One(value) if value.len() > most => Err(format!("a header of more than {most} bytes")),
        HeaderLookup::One(value) => std::str::from_utf8(value).map_err(|_| "a header that is not text".to_owned()),
    }
}

/// How far off the time of a delivery is, and how far off it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeDifference {
    /// It is so old.
    Old(Duration, Duration),
    /// It is so far in the future.
    Ahead(Duration, Duration),
}

impl VerificationScheme {
    /// What a rejected delivery has instead of what was expected, such as "a time that is 2h ago, at most 5m".
    pub fn difference(&self, delivery: &Delivery<'_>) -> Option<String> {
        self.scheme.found(delivery)
    }

    /// How far off the time of a delivery is, if it is further off than it may be.
    pub fn time_difference(&self, delivery: &Delivery<'_>) -> Option<TimeDifference> {
        let (time, most) = (self.scheme.time(delivery)?, self.scheme.tolerance()?);
        let (late, early) = (delivery.wall.since(time), time.since(delivery.wall));
        match (late > most, early > most) {
            (true, _) => Some(TimeDifference::Old(late, most)),
            (_, true) => Some(TimeDifference::Ahead(early, most)),
            _ => None,
        }
    }
}

/// How far off a time is, if it is further off than it may be.
pub(super) fn age_found(time: Timestamp, wall: Timestamp, tolerance: Duration) -> Option<String> {
    let (late, early) = (wall.since(time), time.since(wall));
    let most = duration_text(tolerance);
    // Whole seconds: more would only be noise.
    let shown = |off: Duration| duration_text(Duration::from_secs(off.as_secs()));
    match (late > tolerance, early > tolerance) {
        (true, _) => Some(format!("a time that is {} ago, at most {most}", shown(late))),
        (_, true) => Some(format!("a time that is {} ahead, at most {most}", shown(early))),
        _ => None,
    }
}

impl DescribedSignature {
    /// What a genuine delivery has: "header x-signature with the entries t and v1 (hex, 64 digits) over {body}".
    pub(super) fn expected_words(&self) -> String {
        let place = match &self.at {
            Some(place) => place.to_string(),
            None => format!("header {}", self.headers.join(" or ")),
        };
        let entries = match (&self.entries, &self.timestamp) {
            (Some(entries), Some(TimestampLocation::Entry(time))) => {
                format!(" with the entries {time} and {}", entries.signature)
            }
            (Some(entries), _) => format!(" with an entry {}", entries.signature),
            (None, _) => String::new(),
        };
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("{} and ", self.prefix) };
        let shape = match (&self.keys, self.encoding) {
            (SignatureKeys::Hmac { hash, .. }, SignatureEncoding::Hex) => format!("hex, {} digits", 2 * hash.bytes()),
            (SignatureKeys::Hmac { hash, .. }, SignatureEncoding::Base64) => {
                format!("base64, {} characters", 4 * hash.bytes().div_ceil(3))
            }
            (SignatureKeys::Hmac { hash, .. }, SignatureEncoding::Base64Url) => {
                format!("base64url, {} characters", (4 * hash.bytes()).div_ceil(3))
            }
            (SignatureKeys::Public(keys), encoding) => {
                format!("{}, {}", encoding.words(), keys.algorithm().words())
            }
        };
        let time = match (&self.timestamp, self.timestamp_format) {
            (Some(TimestampLocation::At(place)), format) => format!(", the time in {place}{}", time_shape(format)),
            _ => String::new(),
        };
        let id = match self.id.as_ref().filter(|_| self.over.has(&SignedPiece::Id)) {
            Some(place) => format!(", the id in {place}"),
            None => String::new(),
        };
        format!("{place}{entries} ({prefix}{shape}) over {}{time}{id}", self.over)
    }

    /// The first thing that is not as it should be.
    pub(super) fn found_words(&self, delivery: &Delivery<'_>) -> String {
        let unfit = match self.keys {
            SignatureKeys::Hmac { .. } => ANOTHER_SIGNATURE,
            SignatureKeys::Public(_) => ANOTHER_KEY,
        };
        self.difference(delivery).unwrap_or_else(|| unfit.to_owned())
    }

    fn difference(&self, delivery: &Delivery<'_>) -> Option<String> {
        let mut headers = Vec::new();
        if let Some(place) = &self.at {
            let Ok(signatures) = self.signature_at(place, delivery) else { return Some("nothing there".to_owned()) };
            if let Some(found) = self.form_difference(&signatures) {
                return Some(found);
            }
        } else {
            for name in self.headers.iter().filter(|name| delivery.header(name) != HeaderLookup::Missing) {
                match header_found(delivery, name) {
                    Ok(header) => headers.push(header),
                    Err(found) => return Some(found),
                }
            }
            if headers.is_empty() {
                return Some("no such header".to_owned());
            }
            if let Some(found) = self.signature_difference(&headers) {
                return Some(found);
            }
        }
        let Ok(stamp) = self.stamp(delivery, &headers) else { return Some(self.no_time()) };
        if self.timestamp.is_some() {
            let Ok(time) = self.parse_stamp(&stamp) else {
                return Some(format!("a time of another form{}", time_shape(self.timestamp_format)));
            };
            if let Some(found) = age_found(time, delivery.wall, self.tolerance) {
                return Some(found);
            }
        }
        let id = match self.id.as_ref().filter(|_| self.over.has(&SignedPiece::Id)) {
            None => Cow::Borrowed(""),
            Some(place) => match text_at(place, delivery) {
                Ok(id) => id,
                Err(_) => return Some(format!("no id in {place}")),
            },
        };
        if !self.is_at_url(delivery) {
            return Some("a query that is not that of the signed URL".to_owned());
        }
        let fits = self.message(&id, &stamp, delivery.body).is_some();
        (!fits).then(|| "an id or a time of another form".to_owned())
    }

    /// What is wrong with the signatures in these headers, by their form.
    fn signature_difference(&self, headers: &[&str]) -> Option<String> {
        let Ok(decoded) = self.signatures(headers) else {
            let many = format!("more than {} entries", limits::SIGNATURES_MAX);
            return Some(if self.several { many } else { "more than one signature, or many entries".to_owned() });
        };
        let named = |name: &str, separator: char| {
            headers.iter().flat_map(|header| header.split(separator)).any(|entry| named_entry(entry, name).is_some())
        };
        if let Some(entries) = &self.entries
            && !named(&entries.signature, entries.separator)
        {
            return Some(format!("no entry {}", entries.signature));
        }
        self.form_difference(&decoded)
    }

    /// What is wrong with these signatures, as far as they could be decoded.
    fn form_difference(&self, decoded: &[Vec<u8>]) -> Option<String> {
        if decoded.is_empty() {
            let encoding = self.encoding.words();
            let prefix = if self.prefix.is_empty() { String::new() } else { format!("{} and ", self.prefix) };
            return Some(format!("no signature of the form {prefix}{encoding}"));
        }
        let length = match &self.keys {
            SignatureKeys::Hmac { hash, .. } => hash.bytes(),
            SignatureKeys::Public(keys) if keys.algorithm() == PublicKeyAlgorithm::Ed25519 => 64,
            SignatureKeys::Public(_) => return None, // its length varies
        };
        let whole = decoded.iter().any(|signature| signature.len() == length);
        (!whole).then(|| "a signature of another length".to_owned())
    }

    fn no_time(&self) -> String {
        match &self.timestamp {
            Some(TimestampLocation::Entry(name)) => format!("no entry {name}, or more than one"),
            Some(TimestampLocation::At(place)) => format!("no time in {place}"),
            None => "no time".to_owned(),
        }
    }
}

/// The shape of a time, after a blank.
fn time_shape(format: Option<TimestampFormat>) -> &'static str {
    match format {
        Some(TimestampFormat::Seconds) => " (seconds)",
        Some(TimestampFormat::Milliseconds) => " (milliseconds)",
        Some(TimestampFormat::Rfc3339) => " (RFC 3339)",
        None => "",
    }
}
