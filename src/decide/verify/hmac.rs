//! Verifies any HMAC that the config can describe: which header, which hash, over what.

use super::signature::{MatchedSecret, SourceSecrets};
use super::{check_timestamp, seconds, signature};
use crate::decide::delivery::Delivery;
use crate::decide::delivery::DeliveryRejection;
use crate::decide::field::FieldLocation;
use crate::decide::json_walk::JsonScalar;
use crate::decide::limits;
use crate::decide::nearest_name::nearest;
use crate::decide::time::{Duration, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// An HMAC as described in the config.
#[derive(Clone, Debug)]
pub struct HmacScheme {
    /// The keys.
    pub secrets: SourceSecrets,
    /// The header with the signature, in lower case.
    pub header: String,
    /// The text before the signature.
    pub prefix: String,
    /// The hash.
    pub hash: HmacHash,
    /// How it is written.
    pub encoding: SignatureEncoding,
    /// What is signed; see [`parse_over`].
    pub over: Vec<SignedPiece>,
    /// Where `{timestamp}` is: in a header or in the body.
    pub timestamp: Option<FieldLocation>,
    /// Where `{id}` is: in a header or in the body.
    pub id: Option<FieldLocation>,
    /// How old or new the timestamp may be.
    pub tolerance: Duration,
}

/// A hash for HMAC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HmacHash {
    /// SHA-1, which some senders still use.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// How a signature is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureEncoding {
    /// Hexadecimal, either case.
    Hex,
    /// Base64, with padding.
    Base64,
}

/// A part of what is signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SignedPiece {
    /// Fixed bytes.
    Literal(String),
    /// The sender's delivery id.
    Id,
    /// The sender's time.
    Timestamp,
    /// The body.
    Body,
}

/// Parses what is signed, such as `{timestamp}.{body}`. An error is a sentence.
pub fn parse_over(text: &str) -> Result<Vec<SignedPiece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or_else(|| format!("`{{{after}` has no `}}`"))?;
        if !before.is_empty() {
            pieces.push(SignedPiece::Literal(before.into()));
        }
        pieces.push(match name {
            "id" => SignedPiece::Id,
            "timestamp" => SignedPiece::Timestamp,
            "body" => SignedPiece::Body,
            _ => {
                let meant = nearest(name, ["id", "timestamp", "body"]);
                let hint = meant.map(|meant| format!("; did you mean `{{{meant}}}`?")).unwrap_or_default();
                return Err(format!("`{{{name}}}` is not one of `{{id}}`, `{{timestamp}}`, `{{body}}`{hint}"));
            }
        });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(SignedPiece::Literal(rest.into()));
    }
    let placeholder = |piece: &SignedPiece| !matches!(piece, SignedPiece::Literal(_));
    if pieces.windows(2).any(|pair| pair.iter().all(placeholder)) {
        return Err("two placeholders are side by side: a byte could move from one to the other unnoticed".into());
    }
    if pieces.iter().skip_while(|piece| **piece != SignedPiece::Body).skip(1).any(placeholder) {
        return Err("`{body}` must be the last placeholder: what follows it could be part of the body".into());
    }
    match pieces.iter().filter(|piece| **piece == SignedPiece::Body).count() {
        1 => Ok(pieces),
        _ => Err("without `{body}` a signature would say nothing about what was sent".into()),
    }
}

impl HmacHash {
    /// The length of a signature, in bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Its display name.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
        }
    }
}

impl SignatureEncoding {
    fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => hex::decode(text).ok(),
            Self::Base64 => STANDARD.decode(text).ok(),
        }
    }

    fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => hex::encode(bytes),
            Self::Base64 => STANDARD.encode(bytes),
        }
    }
}

impl HmacScheme {
    /// The secret that the delivery was signed with.
    pub(super) fn verify(&self, delivery: &Delivery<'_>) -> Result<MatchedSecret, DeliveryRejection> {
        let theirs = self.signatures(signature(delivery, &self.header)?)?;
        let stamp = match &self.timestamp {
            Some(place) => text_at(place, delivery)?,
            None => Cow::Borrowed(""),
        };
        if self.timestamp.is_some() {
            check_timestamp(parse_time(&stamp).ok_or(DeliveryRejection::BadSignature)?, delivery.wall, self.tolerance)?;
        }
        let id = match &self.id {
            Some(place) if self.over.contains(&SignedPiece::Id) => text_at(place, delivery)?,
            _ => Cow::Borrowed(""),
        };
        let message = self.message(&id, &stamp, delivery.body).ok_or(DeliveryRejection::BadSignature)?;
        self.secrets.verify_signature(self.hash, &message, &theirs)
    }

    /// Parses `v1=…,v1=…`: an entry with another prefix, or with an invalid encoding, is skipped.
    fn signatures(&self, header: &str) -> Result<Vec<Vec<u8>>, DeliveryRejection> {
        let separator = if self.prefix.contains(',') { '\0' } else { ',' };
        if header.split(separator).count() > limits::SIGNATURES_MAX {
            return Err(DeliveryRejection::BadSignature);
        }
        let ours = header.split(separator).filter_map(|entry| entry.trim().strip_prefix(self.prefix.as_str()));
        Ok(ours.filter_map(|text| self.encoding.decode(text)).collect())
    }

    /// The signed message; `None` when a part of it is missing, or when a byte could move unnoticed from the id or the
    /// time to the next part.
    fn message<'m>(&'m self, id: &'m str, stamp: &'m str, body: &'m [u8]) -> Option<Vec<&'m [u8]>> {
        // The separator must first occur after the part, even where it overlaps itself as `--` does in `8---5`: then
        // the signed text splits into its parts in only one way.
        let moves = |part: &str, next: &str| format!("{part}{next}").find(next) != Some(part.len());
        let unclear = self.over.windows(2).any(|pair| match pair {
            [SignedPiece::Id, SignedPiece::Literal(next)] => moves(id, next),
            [SignedPiece::Timestamp, SignedPiece::Literal(next)] => moves(stamp, next),
            _ => false,
        });
        let part = |piece: &'m SignedPiece| match piece {
            SignedPiece::Literal(text) => Some(text.as_bytes()),
            SignedPiece::Id => Some(id.as_bytes()).filter(|id| !id.is_empty()),
            SignedPiece::Timestamp => Some(stamp.as_bytes()).filter(|stamp| !stamp.is_empty()),
            SignedPiece::Body => Some(body),
        };
        if unclear { None } else { self.over.iter().map(part).collect() }
    }

    /// The headers that are signed with the body.
    pub(super) fn signed_headers(&self) -> Vec<&str> {
        let places = [(&self.timestamp, SignedPiece::Timestamp), (&self.id, SignedPiece::Id)];
        let signed = places.into_iter().filter(|(_, piece)| self.over.contains(piece));
        signed
            .filter_map(|(place, _)| if let Some(FieldLocation::Header(name)) = place { Some(&**name) } else { None })
            .collect()
    }

    /// Is neither an id nor a time signed with the body?
    pub(super) fn signs_only_the_body(&self) -> bool {
        !self.over.iter().any(|piece| matches!(piece, SignedPiece::Id | SignedPiece::Timestamp))
    }

    /// Where in the body the time is, if there.
    pub(super) fn time_in_body(&self) -> Option<&[String]> {
        match &self.timestamp {
            Some(FieldLocation::Body(path)) => Some(path),
            _ => None,
        }
    }

    /// Whether a time outside of the body is signed.
    pub(super) fn signs_time(&self) -> bool {
        let outside = self.timestamp.as_ref().is_some_and(|place| !matches!(place, FieldLocation::Body(_)));
        outside && self.over.contains(&SignedPiece::Timestamp)
    }

    /// That time, as it was signed.
    pub(super) fn signed_time<'d>(&self, delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
        let place = self.timestamp.as_ref().filter(|_| self.signs_time())?;
        text_at(place, delivery).ok()
    }

    /// The headers that a sender would set.
    pub(super) fn sign(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        let mut put = |place: &Option<FieldLocation>, value: String| match place {
            Some(FieldLocation::Header(name)) => {
                headers.push((name.clone(), value.clone()));
                value
            }
            Some(FieldLocation::Body(_)) => in_body(place.as_ref(), body).unwrap_or(value),
            _ => value,
        };
        let id = put(&self.id, id.to_owned());
        let stamp = put(&self.timestamp, seconds(at));
        let mac = self.message(&id, &stamp, body).and_then(|message| self.secrets.sign(self.hash, &message));
        headers.extend(
            mac.map(|mac| (self.header.clone(), format!("{}{}", self.prefix, self.encoding.encode(mac.as_ref())))),
        );
        headers
    }
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

/// The value at this location, before anything is verified. Whatever is wrong with it, the error is the same.
fn text_at<'d>(place: &FieldLocation, delivery: &'d Delivery<'_>) -> Result<Cow<'d, str>, DeliveryRejection> {
    match place.read(delivery, delivery.body) {
        Ok(Some(JsonScalar::Text(text))) => Ok(text),
        Ok(Some(JsonScalar::Number(raw))) => Ok(Cow::Borrowed(raw)),
        _ => Err(DeliveryRejection::BadSignature),
    }
}

/// Parses seconds or milliseconds since 1970, distinguished by their size, or RFC 3339.
fn parse_time(text: &str) -> Option<Timestamp> {
    /// As seconds this is the year 5138, as milliseconds it is 1973.
    const MILLISECONDS_FROM: i64 = 100_000_000_000;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Timestamp::parse(text);
    }
    let number: i64 = text.parse().ok()?;
    number.checked_mul(if number < MILLISECONDS_FROM { 1_000_000 } else { 1_000 }).map(Timestamp)
}
