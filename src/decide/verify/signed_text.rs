//! The text that a signature is made over: fixed texts, and parts of the delivery.
//!
//! A signature proves only the joined text. If that could be split into other parts, someone could move bytes from one
//! part to another and keep the signature: the end of a time to the beginning of the body, for example. So a template is
//! accepted only if every text has one split:
//!
//! - Before the body, each part ends where it must: because its shape says so, or at a literal that cannot occur in it
//!   earlier. A time of exactly 10 or 13 digits and a UUID have a fixed length. An RFC 3339 time has a fixed length up to
//!   its seconds, then a fraction of digits, then `Z` or an offset of fixed length: none is the beginning of another.
//!   An id before an RFC 3339 time has no colon: the next colon is the time's own, 13 bytes after its beginning.
//! - After the body, each part begins where it must, for the same reasons read backwards: none of these shapes is the end
//!   of another. Digits and UUIDs have a fixed length; an RFC 3339 time has one `T`, ten bytes after its beginning.
//! - What is left between is the body.
//!
//! A template without a body must have an id: such a signature is for a value that is used once, and says nothing about
//! what is sent with it. The id is then what is left between.

use crate::decide::nearest_name::nearest;
use crate::decide::time::Timestamp;
use std::fmt;

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
    /// The public URL of the source, as the config has it.
    Url,
    /// The same with some escapes decoded: see [`SignedUrl`].
    DecodedUrl,
}

/// The public URL of a source, as its sender signs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedUrl {
    written: String,
    decoded: String,
}

/// The characters whose escapes `HubSpot` decodes in a URL before it signs it.
const DECODED: &str = ":/@&=+$`\",;><?";

impl SignedUrl {
    /// This URL.
    pub fn new(written: String) -> Self {
        let mut decoded = String::with_capacity(written.len());
        let mut rest = written.as_str();
        while let Some((before, after)) = rest.split_once('%') {
            decoded.push_str(before);
            let known = DECODED.chars().find(|c| {
                after.get(..2).is_some_and(|digits| digits.eq_ignore_ascii_case(&format!("{:02X}", u32::from(*c))))
            });
            decoded.push(known.unwrap_or('%'));
            rest = if known.is_some() { &after[2..] } else { after };
        }
        decoded.push_str(rest);
        Self { written, decoded }
    }

    /// It as it is, and with the escapes decoded.
    pub(super) fn texts(&self) -> (&str, &str) {
        (&self.written, &self.decoded)
    }

    /// Its query, as it is written.
    pub(super) fn query(&self) -> &str {
        self.written.split_once('?').map_or("", |(_, query)| query)
    }
}

/// The shape of a time as the sender writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampFormat {
    /// Seconds since 1970: 10 digits.
    Seconds,
    /// Milliseconds since 1970: 13 digits.
    Milliseconds,
    /// RFC 3339, such as `2026-11-18T08:30:00Z`.
    Rfc3339,
}

/// What is signed, such as `{timestamp}.{body}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedText {
    pieces: Vec<SignedPiece>,
    id_shape: IdShape,
}

/// The shape that an id must have, because nothing else says where it ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum IdShape {
    Any,
    /// An RFC 3339 time follows it.
    WithoutColon,
    Uuid,
}

impl IdShape {
    fn fits(self, id: &str) -> bool {
        match self {
            Self::Any => true,
            Self::WithoutColon => !id.contains(':'),
            Self::Uuid => is_uuid(id),
        }
    }
}

/// The parts of a delivery that a signed text is made of.
#[derive(Clone, Copy)]
pub(super) struct SignedParts<'p> {
    pub(super) id: &'p str,
    pub(super) timestamp: &'p str,
    pub(super) url: &'p str,
    pub(super) decoded_url: &'p str,
    pub(super) body: &'p [u8],
}

const PLACEHOLDERS: [&str; 6] = ["id", "timestamp", "body", "url", "decoded_url", "method"];

impl SignedPiece {
    /// Whether a sender's value stands here. The URL is the config's.
    fn is_variable(&self) -> bool {
        matches!(self, Self::Id | Self::Timestamp | Self::Body)
    }

    fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "id" => Self::Id,
            "timestamp" => Self::Timestamp,
            "body" => Self::Body,
            "url" => Self::Url,
            "decoded_url" => Self::DecodedUrl,
            // A delivery is always a POST.
            "method" => Self::Literal("POST".into()),
            _ => {
                let all = PLACEHOLDERS.map(|name| format!("`{{{name}}}`")).join(", ");
                let meant = nearest(name, PLACEHOLDERS);
                let hint = meant.map(|meant| format!("; did you mean `{{{meant}}}`?")).unwrap_or_default();
                return Err(format!("`{{{name}}}` is not one of {all}{hint}"));
            }
        })
    }
}

impl fmt::Display for SignedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            SignedPiece::Literal(text) => f.write_str(text),
            SignedPiece::Id => f.write_str("{id}"),
            SignedPiece::Timestamp => f.write_str("{timestamp}"),
            SignedPiece::Body => f.write_str("{body}"),
            SignedPiece::Url => f.write_str("{url}"),
            SignedPiece::DecodedUrl => f.write_str("{decoded_url}"),
        })
    }
}

impl SignedText {
    /// The body alone.
    pub fn body() -> Self {
        Self { pieces: vec![SignedPiece::Body], id_shape: IdShape::Any }
    }

    /// Parses what is signed. `time` is the shape of the timestamp, if it is known. An error is a sentence.
    pub fn parse(text: &str, time: Option<TimestampFormat>) -> Result<Self, String> {
        let pieces = parse_pieces(text)?;
        let places = |wanted: &SignedPiece| {
            let all = pieces.iter().enumerate().filter(|(_, piece)| *piece == wanted);
            all.map(|(at, _)| at).collect::<Vec<_>>()
        };
        // What is left when all other parts have been cut off.
        let body = match (&places(&SignedPiece::Body)[..], &places(&SignedPiece::Id)[..]) {
            (&[body], _) => body,
            (&[], &[id]) => id,
            (&[], _) => return Err("without `{body}` a signature would say nothing about what was sent".into()),
            _ => return Err("`{body}` is there twice".into()),
        };
        let beside = |at: usize| pieces.get(at + 1).is_some_and(SignedPiece::is_variable);
        // A literal between two parts tells where the first one ends, unless it is behind the body.
        let needs_shape = |at: usize| at != body && (at > body || beside(at));
        for (at, _) in
            pieces.iter().enumerate().filter(|(at, piece)| **piece == SignedPiece::Timestamp && needs_shape(*at))
        {
            if time.is_none() {
                let last = if pieces[body] == SignedPiece::Id { "`{id}`" } else { "`{body}`" };
                let place = if at > body {
                    format!("`{{timestamp}}` follows {last}")
                } else {
                    "two placeholders are side by side".to_owned()
                };
                return Err(format!(
                    "{place}: a byte could move from one to the other unnoticed, unless `timestamp_format` says how long the time is"
                ));
            }
        }
        // Times have digits, so that one of unknown length ends nowhere.
        let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let runs_on = pieces.windows(2).any(
            |pair| matches!(pair, [SignedPiece::Timestamp, SignedPiece::Literal(next)] if time.is_none() && digit(next)),
        );
        if runs_on {
            return Err(
                "the text after `{timestamp}` begins with a digit, so nothing tells where the time ends, unless \
                        `timestamp_format` says how long it is"
                    .to_owned(),
            );
        }
        let id_shape = |at: usize| match pieces.get(at + 1) {
            _ if !needs_shape(at) => IdShape::Any,
            Some(SignedPiece::Timestamp) if at < body && time == Some(TimestampFormat::Rfc3339) => {
                IdShape::WithoutColon
            }
            _ => IdShape::Uuid,
        };
        let ids = pieces.iter().enumerate().filter(|(_, piece)| **piece == SignedPiece::Id);
        let id_shape = ids.map(|(at, _)| id_shape(at)).max().unwrap_or(IdShape::Any);
        Ok(Self { pieces, id_shape })
    }

    /// Whether this is part of it.
    pub fn has(&self, piece: &SignedPiece) -> bool {
        self.pieces.contains(piece)
    }

    /// Whether the URL is part of it, in either form.
    pub fn has_url(&self) -> bool {
        self.has(&SignedPiece::Url) || self.has(&SignedPiece::DecodedUrl)
    }

    /// The index of this part among the pieces of a message, if it is part of it.
    pub(super) fn index_of(&self, piece: &SignedPiece) -> Option<usize> {
        self.pieces.iter().position(|one| one == piece)
    }

    /// The bytes that are signed; `None` when a part is missing, or when it could be split in another way. The time has
    /// been checked to have its shape, if that is known.
    pub(super) fn message<'m>(
        &'m self,
        parts: SignedParts<'m>,
        time: Option<TimestampFormat>,
    ) -> Option<Vec<&'m [u8]>> {
        if !self.id_shape.fits(parts.id) {
            return None;
        }
        // The separator must first occur after the part, even where it overlaps itself as `--` does in `8---5`: then
        // the signed text splits into its parts in only one way.
        let moves = |part: &str, next: &str| format!("{part}{next}").find(next) != Some(part.len());
        let any_length = self.id_shape != IdShape::Uuid;
        let unclear = self.pieces.windows(2).any(|pair| match pair {
            [SignedPiece::Id, SignedPiece::Literal(next)] => any_length && moves(parts.id, next),
            [SignedPiece::Id, SignedPiece::Url] => any_length && moves(parts.id, parts.url),
            [SignedPiece::Id, SignedPiece::DecodedUrl] => any_length && moves(parts.id, parts.decoded_url),
            [SignedPiece::Timestamp, SignedPiece::Literal(next)] => time.is_none() && moves(parts.timestamp, next),
            [SignedPiece::Timestamp, SignedPiece::Url] => time.is_none() && moves(parts.timestamp, parts.url),
            [SignedPiece::Timestamp, SignedPiece::DecodedUrl] => {
                time.is_none() && moves(parts.timestamp, parts.decoded_url)
            }
            _ => false,
        });
        let part = |piece: &'m SignedPiece| match piece {
            SignedPiece::Literal(text) => Some(text.as_bytes()),
            SignedPiece::Id => Some(parts.id.as_bytes()).filter(|id| !id.is_empty()),
            SignedPiece::Timestamp => Some(parts.timestamp.as_bytes()).filter(|stamp| !stamp.is_empty()),
            SignedPiece::Url => Some(parts.url.as_bytes()).filter(|url| !url.is_empty()),
            SignedPiece::DecodedUrl => Some(parts.decoded_url.as_bytes()).filter(|url| !url.is_empty()),
            SignedPiece::Body => Some(parts.body),
        };
        if unclear { None } else { self.pieces.iter().map(part).collect() }
    }
}

fn parse_pieces(text: &str) -> Result<Vec<SignedPiece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut literal = String::new();
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or_else(|| format!("`{{{after}` has no `}}`"))?;
        literal.push_str(before);
        match SignedPiece::parse(name)? {
            SignedPiece::Literal(text) => literal.push_str(&text),
            piece => {
                if !literal.is_empty() {
                    pieces.push(SignedPiece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(piece);
            }
        }
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(SignedPiece::Literal(literal));
    }
    Ok(pieces)
}

impl TimestampFormat {
    /// The time in a text of exactly this shape.
    pub(super) fn parse(self, text: &str) -> Option<Timestamp> {
        let digits = |count: usize, unit: i64| {
            let number = (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)?;
            number.parse::<i64>().ok()?.checked_mul(unit).map(Timestamp)
        };
        match self {
            Self::Seconds => digits(10, 1_000_000),
            Self::Milliseconds => digits(13, 1_000),
            Self::Rfc3339 => is_rfc3339(text).then(|| Timestamp::parse(text)).flatten(),
        }
    }

    /// This time as a sender writes it.
    pub(super) fn write(self, at: Timestamp) -> String {
        match self {
            Self::Seconds => at.0.div_euclid(1_000_000).to_string(),
            Self::Milliseconds => at.0.div_euclid(1_000).to_string(),
            Self::Rfc3339 => at.to_string(),
        }
    }
}

/// Parses seconds or milliseconds since 1970, distinguished by their size, or RFC 3339.
pub(super) fn parse_any_time(text: &str) -> Option<Timestamp> {
    /// As seconds this is the year 5138, as milliseconds it is 1973.
    const MILLISECONDS_FROM: i64 = 100_000_000_000;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Timestamp::parse(text);
    }
    let number: i64 = text.parse().ok()?;
    number.checked_mul(if number < MILLISECONDS_FROM { 1_000_000 } else { 1_000 }).map(Timestamp)
}

/// Whether this is `2026-11-18T08:30:00`, a fraction of digits if any, and `Z` or an offset such as `+01:00`.
fn is_rfc3339(text: &str) -> bool {
    let shaped = |text: &str, shape: &str| {
        text.len() == shape.len()
            && text
                .bytes()
                .zip(shape.bytes())
                .all(|(byte, shape)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape })
    };
    let Some((time, rest)) = text.split_at_checked(19) else { return false };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    shaped(time, "0000-00-00T00:00:00") && ["Z", "+00:00", "-00:00"].iter().any(|shape| shaped(zone, shape))
}

/// Whether this is a UUID in its usual form.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| if matches!(at, 8 | 13 | 18 | 23) { byte == b'-' } else { byte.is_ascii_hexdigit() })
}
