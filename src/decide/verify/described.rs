//! Verifies any signature that the config can describe: where it is, how it is written, over what.

use super::expectation::header_found;
use super::public_key::{PublicKeyAlgorithm, PublicKeys};
use super::scheme::{Scheme, SignedContent};
use super::signature::{HmacHash, MatchedKey, SignedMessage, SourceSecrets, is_secret_key};
use super::signed_text::{SignedParts, SignedPiece, SignedText, SignedUrl, TimestampFormat, parse_any_time};
use super::{check_timestamp, credential, text_at};
use crate::decide::delivery::{Delivery, DeliveryRejection, HeaderLookup};
use crate::decide::field::FieldLocation;
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;
use std::sync::Arc;

/// How far a sender's clock may be off, if the config does not say.
pub const DEFAULT_TOLERANCE: Duration = Duration::from_mins(5);

/// The decoder of secrets. People who copy them lose the `=` at the end, so padding is optional.
const BASE64_SECRET: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Base64 for URLs, which is mostly written without padding.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A signature as described in the config.
#[derive(Clone, Debug)]
pub struct DescribedSignature {
    /// The keys, and the algorithm they are for.
    pub keys: SignatureKeys,
    /// The headers with the signature, in lower case. One is enough; those that are there count.
    pub headers: Vec<String>,
    /// Where the one signature is, if it is not in a header.
    pub at: Option<FieldLocation>,
    /// The entries of the header, such as those of `t=…,v1=…`; `None`: one signature alone, or several with a prefix each,
    /// separated by commas.
    pub entries: Option<SignatureEntries>,
    /// Whether a header may have several signatures.
    pub several: bool,
    /// The text before the signature.
    pub prefix: String,
    /// How the signature is written.
    pub encoding: SignatureEncoding,
    /// What is signed.
    pub over: SignedText,
    /// The public URL of the source, where it is signed.
    pub url: Option<SignedUrl>,
    /// Where `{timestamp}` is.
    pub timestamp: Option<TimestampLocation>,
    /// The shape of the timestamp; `None`: seconds, milliseconds or RFC 3339.
    pub timestamp_format: Option<TimestampFormat>,
    /// Where `{id}` is: in a header or in the body.
    pub id: Option<FieldLocation>,
    /// How old or new the timestamp may be.
    pub tolerance: Duration,
}

/// The keys of a described signature.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SignatureKeys {
    /// HMAC with a shared secret.
    Hmac {
        /// The hash.
        hash: HmacHash,
        /// The secrets, decoded.
        secrets: SourceSecrets,
        /// How senders hand them out.
        encoding: SecretEncoding,
    },
    /// The sender's public keys.
    Public(PublicKeys),
}

/// A header with several named entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignatureEntries {
    /// The name of those with a signature.
    pub signature: String,
    /// What separates entries.
    pub separator: char,
}

/// Where a timestamp is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimestampLocation {
    /// An entry of this name in the header with the signature.
    Entry(String),
    /// Elsewhere in the delivery.
    At(FieldLocation),
}

/// How a signature is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureEncoding {
    /// Hexadecimal, either case.
    Hex,
    /// Base64, with padding.
    Base64,
    /// Base64 for URLs; padding is optional.
    Base64Url,
}

/// How a secret is written where the sender shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretEncoding {
    /// The text itself is the key.
    Text,
    /// The key is in base64.
    Base64,
    /// The key is in base64 for URLs.
    Base64Url,
    /// The key is in hex.
    Hex,
}

impl SignatureEncoding {
    /// Its display name.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Base64 => "base64",
            Self::Base64Url => "base64url",
        }
    }

    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => hex::decode(text).ok(),
            Self::Base64 => STANDARD.decode(text).ok(),
            Self::Base64Url => BASE64_URL.decode(text).ok(),
        }
    }

    pub(in crate::decide) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => hex::encode(bytes),
            Self::Base64 => STANDARD.encode(bytes),
            Self::Base64Url => BASE64_URL.encode(bytes),
        }
    }
}

impl SecretEncoding {
    /// The key in a secret. An error is a sentence, and never shows the secret.
    pub(super) fn decode(self, secret: &[u8]) -> Result<Vec<u8>, String> {
        let (decoded, what) = match self {
            Self::Text => return Ok(secret.to_vec()),
            Self::Base64 => (BASE64_SECRET.decode(secret).ok(), "base64"),
            Self::Base64Url => (BASE64_URL.decode(secret).ok(), "base64url"),
            Self::Hex => (hex::decode(secret).ok(), "hex"),
        };
        let key = decoded.ok_or_else(|| format!("the secret is not {what}"))?;
        if is_secret_key(&key) {
            Ok(key)
        } else {
            Err("the secret is not a key: it is empty, or of NUL bytes, which everyone has".into())
        }
    }
}

impl SignatureKeys {
    /// HMAC with these secrets, as senders hand them out. An error is a sentence.
    pub fn hmac(hash: HmacHash, secrets: &[Vec<u8>], encoding: SecretEncoding) -> Result<Self, String> {
        let decoded = secrets.iter().map(|secret| encoding.decode(secret)).collect::<Result<_, _>>()?;
        Ok(Self::Hmac { hash, secrets: SourceSecrets::new(decoded), encoding })
    }

    fn with_secrets(&self, secrets: &[Vec<u8>]) -> Result<Self, String> {
        match self {
            Self::Hmac { hash, encoding, .. } => Self::hmac(*hash, secrets, *encoding),
            Self::Public(keys) => PublicKeys::new(keys.algorithm(), secrets).map(Self::Public),
        }
    }

    fn verify(&self, message: SignedMessage<'_>, signatures: &[Vec<u8>]) -> Result<MatchedKey, DeliveryRejection> {
        match self {
            Self::Hmac { hash, secrets, .. } => secrets.verify_message(*hash, message, signatures),
            Self::Public(keys) => keys.verify_signature(message.pieces, signatures),
        }
    }
}

impl DescribedSignature {
    /// An HMAC-SHA256 of the body in this header, in hex, with these secrets as they are.
    pub fn hmac(header: &str, secrets: SourceSecrets) -> Self {
        Self {
            keys: SignatureKeys::Hmac { hash: HmacHash::Sha256, secrets, encoding: SecretEncoding::Text },
            headers: vec![header.to_ascii_lowercase()],
            at: None,
            entries: None,
            several: true,
            prefix: String::new(),
            encoding: SignatureEncoding::Hex,
            over: SignedText::body(),
            url: None,
            timestamp: None,
            timestamp_format: None,
            id: None,
            tolerance: DEFAULT_TOLERANCE,
        }
    }

    /// The header with the signature, if it is there: once, not empty, not too long.
    pub(super) fn header<'d>(&self, delivery: &Delivery<'d>) -> Result<Vec<&'d str>, DeliveryRejection> {
        let here = self.headers.iter().filter(|name| delivery.header(name) != HeaderLookup::Missing);
        let values: Vec<_> = here.map(|name| credential(delivery, name)).collect::<Result<_, _>>()?;
        if values.is_empty() { Err(DeliveryRejection::BadSignature) } else { Ok(values) }
    }

    /// What separates the entries of a header, or its signatures; `None`: it has one signature, whole.
    pub(super) fn separator(&self) -> Option<char> {
        match &self.entries {
            Some(entries) => Some(entries.separator),
            // Only a prefix says where each of several signatures begins.
            None if self.several => Some(',').filter(|comma| !self.prefix.is_empty() && !self.prefix.contains(*comma)),
            None => None,
        }
    }

    /// The signatures in these headers. An entry with another name or prefix, or with an invalid encoding, is skipped.
    pub(super) fn signatures(&self, headers: &[&str]) -> Result<Vec<Vec<u8>>, DeliveryRejection> {
        let separator = self.separator();
        let all: Vec<_> = headers.iter().flat_map(|header| header.split(|c| separator == Some(c))).collect();
        if all.len() > limits::SIGNATURES_MAX {
            return Err(DeliveryRejection::BadSignature);
        }
        let ours = all.into_iter().filter_map(|entry| match &self.entries {
            Some(entries) => named_entry(entry, &entries.signature),
            None => Some(entry.trim()),
        });
        let ours: Vec<_> = ours.collect();
        if !self.several && ours.len() > headers.len() {
            return Err(DeliveryRejection::BadSignature);
        }
        let ours = ours.into_iter().filter_map(|text| text.strip_prefix(self.prefix.as_str()));
        Ok(ours.filter_map(|text| self.encoding.decode(text)).collect())
    }

    /// The signature at the place that is no header.
    pub(super) fn signature_at(
        &self,
        place: &FieldLocation,
        delivery: &Delivery<'_>,
    ) -> Result<Vec<Vec<u8>>, DeliveryRejection> {
        let text = text_at(place, delivery)?;
        let written = text.strip_prefix(self.prefix.as_str()).filter(|_| text.len() <= limits::SIGNATURE_BYTES_MAX);
        Ok(written.and_then(|text| self.encoding.decode(text)).into_iter().collect())
    }

    /// The timestamp as it is written; empty if there is none to read.
    pub(super) fn stamp<'d>(
        &self,
        delivery: &'d Delivery<'_>,
        headers: &[&'d str],
    ) -> Result<Cow<'d, str>, DeliveryRejection> {
        match &self.timestamp {
            None => Ok(Cow::Borrowed("")),
            Some(TimestampLocation::At(place)) => text_at(place, delivery),
            Some(TimestampLocation::Entry(name)) => {
                let separator = self.entries.as_ref().map_or(',', |entries| entries.separator);
                let entries = headers.iter().flat_map(|header| header.split(separator));
                let mut found = entries.filter_map(|entry| named_entry(entry, name));
                // Two times would leave open which one was signed.
                match (found.next(), found.next()) {
                    (Some(stamp), None) => Ok(Cow::Borrowed(stamp)),
                    _ => Err(DeliveryRejection::BadSignature),
                }
            }
        }
    }

    pub(super) fn parse_stamp(&self, stamp: &str) -> Result<Timestamp, DeliveryRejection> {
        let time = match self.timestamp_format {
            Some(format) => format.parse(stamp),
            None => parse_any_time(stamp),
        };
        time.ok_or(DeliveryRejection::BadSignature)
    }

    /// Whether the delivery came to the URL that was signed. Its host and path are the source's own, so the query is
    /// compared: the sender signs it, and nothing else may be in it.
    pub(super) fn is_at_url(&self, delivery: &Delivery<'_>) -> bool {
        let Some(url) = self.url.as_ref().filter(|_| self.over.has_url()) else { return true };
        url.query() == delivery.query
    }

    pub(super) fn message<'m>(&'m self, id: &'m str, timestamp: &'m str, body: &'m [u8]) -> Option<Vec<&'m [u8]>> {
        let (url, decoded_url) = self.url.as_ref().map_or(("", ""), SignedUrl::texts);
        self.over.message(SignedParts { id, timestamp, url, decoded_url, body }, self.timestamp_format)
    }

    fn time_place(&self) -> Option<&FieldLocation> {
        match &self.timestamp {
            Some(TimestampLocation::At(place)) => Some(place),
            Some(TimestampLocation::Entry(_)) | None => None,
        }
    }

    /// The value of the header that a sender would set.
    fn written(&self, stamp: &str, signature: &[u8]) -> String {
        let signature = format!("{}{}", self.prefix, self.encoding.encode(signature));
        let Some(SignatureEntries { signature: name, separator }) = &self.entries else { return signature };
        match &self.timestamp {
            Some(TimestampLocation::Entry(time)) => format!("{time}={stamp}{separator}{name}={signature}"),
            Some(TimestampLocation::At(_)) | None => format!("{name}={signature}"),
        }
    }

    /// The headers with which a genuine sender would send this body, with the signature that `sign` makes of the parts of
    /// a message.
    fn signed_headers_by(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        sign: impl Fn(&[&[u8]]) -> Option<Vec<u8>>,
    ) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        let mut put = |place: Option<&FieldLocation>, value: String| match place {
            Some(FieldLocation::Header(name)) => {
                headers.push((name.clone(), value.clone()));
                value
            }
            Some(at) if at.is_in_body() => in_body(place, body).unwrap_or(value),
            _ => value,
        };
        let id = put(self.id.as_ref(), id.to_owned());
        let format = self.timestamp_format.unwrap_or(TimestampFormat::Seconds);
        let stamp = put(self.time_place(), format.write(at));
        let signature = self.message(&id, &stamp, body).and_then(|message| sign(&message));
        let first = self.headers.first().zip(signature);
        headers.extend(first.map(|(header, signature)| (header.clone(), self.written(&stamp, &signature))));
        headers
    }
}

impl Scheme for DescribedSignature {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        let headers = if self.at.is_none() { self.header(delivery)? } else { Vec::new() };
        let theirs = match &self.at {
            Some(place) => self.signature_at(place, delivery)?,
            None => self.signatures(&headers)?,
        };
        let stamp = self.stamp(delivery, &headers)?;
        if self.timestamp.is_some() {
            check_timestamp(self.parse_stamp(&stamp)?, delivery.wall, self.tolerance)?;
        }
        let id = match &self.id {
            Some(place) if self.over.has(&SignedPiece::Id) => text_at(place, delivery)?,
            _ => Cow::Borrowed(""),
        };
        if !self.is_at_url(delivery) {
            return Err(DeliveryRejection::BadSignature);
        }
        let pieces = self.message(&id, &stamp, delivery.body).ok_or(DeliveryRejection::BadSignature)?;
        let message = SignedMessage { pieces: &pieces, body: self.over.index_of(&SignedPiece::Body) };
        self.keys.verify(message, &theirs).map(Some)
    }

    fn proof(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let SignatureKeys::Hmac { hash, secrets, .. } = &self.keys else { return Vec::new() };
        self.signed_headers_by(id, at, body, |message| Some(secrets.sign(*hash, message)?.as_ref().to_vec()))
    }

    fn proof_by(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        sign: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Vec<(String, String)> {
        self.signed_headers_by(id, at, body, |message| sign(&message.concat()))
    }

    fn private_key(&self) -> Option<PublicKeyAlgorithm> {
        match &self.keys {
            SignatureKeys::Hmac { .. } => None,
            SignatureKeys::Public(keys) => Some(keys.algorithm()),
        }
    }

    fn covers(&self) -> SignedContent {
        if let (false, Some(id)) = (self.over.has(&SignedPiece::Body), &self.id) {
            return SignedContent::Nonce(id.clone());
        }
        match (self.over.has(&SignedPiece::Id), self.over.has(&SignedPiece::Timestamp)) {
            (true, true) => SignedContent::IdTimeAndBody,
            (true, false) => SignedContent::IdAndBody,
            (false, true) => SignedContent::TimeAndBody,
            (false, false) => SignedContent::Body,
        }
    }

    fn words(&self) -> String {
        let header = match &self.at {
            Some(place) => format!("`{place}`"),
            None => self.headers.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or "),
        };
        match &self.keys {
            SignatureKeys::Hmac { hash, .. } => format!("an HMAC signature ({}) in {header}", hash.words()),
            SignatureKeys::Public(keys) => format!("a signature ({}) in {header}", keys.algorithm().words()),
        }
    }

    fn expected(&self) -> Option<String> {
        Some(self.expected_words())
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        Some(self.found_words(delivery))
    }

    fn time(&self, delivery: &Delivery<'_>) -> Option<Timestamp> {
        self.timestamp.as_ref()?;
        let headers: Vec<_> = self.headers.iter().filter_map(|name| header_found(delivery, name).ok()).collect();
        self.parse_stamp(&self.stamp(delivery, &headers).ok()?).ok()
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        let headers = self.headers.iter().map(|name| FieldLocation::Header(name.clone()));
        headers.chain(self.at.clone()).collect()
    }

    fn signature_in_body(&self, body: &[u8]) -> Option<(Vec<String>, String)> {
        let SignatureKeys::Hmac { hash, secrets, .. } = &self.keys else { return None };
        let path = self.at.as_ref()?.body_path()?;
        let id = in_body(self.id.as_ref(), body).unwrap_or_default();
        let stamp = in_body(self.time_place(), body).unwrap_or_default();
        let mac = self.message(&id, &stamp, body).and_then(|message| secrets.sign(*hash, &message))?;
        Some((path.to_vec(), self.written(&stamp, mac.as_ref())))
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        match &self.keys {
            SignatureKeys::Hmac { secrets, .. } => Some(secrets),
            SignatureKeys::Public(_) => None,
        }
    }

    fn has_key(&self) -> bool {
        match &self.keys {
            SignatureKeys::Hmac { secrets, .. } => secrets.any(),
            SignatureKeys::Public(keys) => keys.any(),
        }
    }

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Ok(Arc::new(Self { keys: self.keys.with_secrets(&secrets)?, ..self.clone() }))
    }

    fn ignoring_age(&self) -> Option<Arc<dyn Scheme>> {
        Some(Arc::new(Self { tolerance: Duration::MAX, ..self.clone() }))
    }

    fn tolerance(&self) -> Option<Duration> {
        self.timestamp.is_some().then_some(self.tolerance)
    }

    fn signed_headers(&self) -> Vec<&str> {
        let places = [(self.time_place(), SignedPiece::Timestamp), (self.id.as_ref(), SignedPiece::Id)];
        let signed = places.into_iter().filter(|(_, piece)| self.over.has(piece));
        signed
            .filter_map(|(place, _)| if let Some(FieldLocation::Header(name)) = place { Some(&**name) } else { None })
            .collect()
    }

    fn signed_time<'d>(&self, delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
        if !self.signs_time() {
            return None;
        }
        // Only an entry is in these headers; elsewhere the time is read without them.
        let headers = self.header(delivery).unwrap_or_default();
        self.stamp(delivery, &headers).ok()
    }

    fn signs_time(&self) -> bool {
        let outside = match &self.timestamp {
            Some(TimestampLocation::At(place)) => !place.is_in_body(),
            Some(TimestampLocation::Entry(_)) => true,
            None => false,
        };
        outside && self.over.has(&SignedPiece::Timestamp)
    }

    fn time_in_body(&self, at: Timestamp) -> Option<(&[String], String)> {
        let path = self.time_place()?.body_path()?;
        Some((path, self.timestamp_format.unwrap_or(TimestampFormat::Seconds).write(at)))
    }

    fn is_described(&self) -> bool {
        true
    }
}

/// The value of `v1=…`, if the entry has this name. Blanks around it are not part of the name.
pub(super) fn named_entry<'e>(entry: &'e str, name: &str) -> Option<&'e str> {
    let (key, value) = entry.split_once('=')?;
    (key.trim() == name).then_some(value)
}

/// The value that a sender has already written into the body.
fn in_body(place: Option<&FieldLocation>, body: &[u8]) -> Option<String> {
    let body = bytes::Bytes::copy_from_slice(body);
    let delivery = Delivery {
        path: "",
        query: "",
        headers: &[],
        body: &body,
        at: Timestamp::default(),
        wall: Timestamp::default(),
    };
    text_at(place?, &delivery).ok().map(Cow::into_owned)
}
