//! Keys: 32 bytes that two deliveries share exactly when they are the same event.
//!
//! A key is SHA-256 over a version, the scope, the kind of identity, the number of parts, and for each part its name,
//! type, length and bytes. Nothing is joined with a separator, so no byte can move unnoticed from one part to the next.

use crate::decide::delivery::Delivery;
use crate::decide::event::{Event, Origin};
use crate::decide::field::{FieldValue, StoredFields};
use crate::decide::id::{Digest, EventId, Key};
use aws_lc_rs::digest::{Context, SHA256};
use std::sync::Arc;

/// The version of the key's layout. Another version makes every old event new, so to change it, keys of both versions
/// must be looked up for as long as `keep`.
const VERSION: u8 = 1;

/// One part of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyPart<'a> {
    /// The field's name, or the name of a part that is not a field.
    pub name: &'a str,
    /// Distinguishes the number 5 from the text "5".
    pub kind: KeyPartType,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// The type of one part of a key, as it enters the digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum KeyPartType {
    /// Text.
    Text = 1,
    /// A number, as it was written.
    Number = 2,
    /// True or false.
    Bool = 3,
    /// Bytes, such as a digest.
    Bytes = 4,
}

impl<'a> KeyPart<'a> {
    /// A declared field's value.
    pub fn field(name: &'a str, value: &'a FieldValue) -> Self {
        let (kind, bytes) = match value {
            FieldValue::Text(text) => (KeyPartType::Text, text.as_bytes()),
            FieldValue::Number(raw) => (KeyPartType::Number, raw.as_bytes()),
            FieldValue::Bool(true) => (KeyPartType::Bool, &b"true"[..]),
            FieldValue::Bool(false) => (KeyPartType::Bool, &b"false"[..]),
        };
        Self { name, kind, bytes }
    }

    /// A text that is not a field.
    pub fn text(name: &'a str, text: &'a str) -> Self {
        Self { name, kind: KeyPartType::Text, bytes: text.as_bytes() }
    }

    /// Bytes that are not a field.
    pub fn bytes(name: &'a str, bytes: &'a [u8]) -> Self {
        Self { name, kind: KeyPartType::Bytes, bytes }
    }
}

/// The key of this kind of identity, made from these parts, in this scope.
pub fn key(scope: &str, kind: &str, parts: &[KeyPart<'_>]) -> Key {
    key_of(scope, kind, parts.iter().copied())
}

/// The same, of parts that are in no list. They are counted before they are hashed.
pub(in crate::decide) fn key_of<'p>(scope: &str, kind: &str, parts: impl Iterator<Item = KeyPart<'p>> + Clone) -> Key {
    Key(hash(scope, kind, parts).0)
}

/// The key of a delivery id that was imported: made from the id alone, since the body was not kept.
pub fn imported_delivery(scope: &str, id: &str) -> Key {
    key(scope, "imported delivery", &[KeyPart::text("id", id)])
}

/// The key of a change that was imported, made from what the older system knew of it.
pub fn imported_change(scope: &str, parts: &[KeyPart<'_>]) -> Key {
    key(scope, "imported change", parts)
}

/// The digest of the value that a subject is changed to.
pub fn value(parts: &[KeyPart<'_>]) -> Digest {
    hash("", "value", parts.iter().copied())
}

fn hash<'p>(scope: &str, kind: &str, parts: impl Iterator<Item = KeyPart<'p>> + Clone) -> Digest {
    let mut to = GatheredHash::new();
    to.update(&[VERSION]);
    to.update_with_length(scope.as_bytes());
    to.update_with_length(kind.as_bytes());
    to.update(&(parts.clone().count() as u64).to_be_bytes());
    for part in parts {
        to.update_with_length(part.name.as_bytes());
        to.update(&[part.kind as u8]);
        to.update_with_length(part.bytes);
    }
    to.finish()
}

/// Room for the bytes of most keys, and of what most events' digests are made of.
const GATHERED_BYTES: usize = 768;

/// A SHA-256 of many small pieces, which are gathered first: most keys are hashed at once.
struct GatheredHash {
    gathered: [u8; GATHERED_BYTES],
    filled: usize,
    begun: Option<Context>,
}

impl GatheredHash {
    fn new() -> Self {
        Self { gathered: [0; GATHERED_BYTES], filled: 0, begun: None }
    }

    fn update_with_length(&mut self, bytes: &[u8]) {
        self.update(&(bytes.len() as u64).to_be_bytes());
        self.update(bytes);
    }

    fn update(&mut self, bytes: &[u8]) {
        if bytes.len() > GATHERED_BYTES - self.filled {
            let begun = self.begun.get_or_insert_with(|| Context::new(&SHA256));
            begun.update(&self.gathered[..self.filled]);
            self.filled = 0;
            if bytes.len() > GATHERED_BYTES {
                return begun.update(bytes);
            }
        }
        self.gathered[self.filled..][..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    fn finish(self) -> Digest {
        let rest = &self.gathered[..self.filled];
        match self.begun {
            None => Digest::of(rest),
            Some(mut begun) => {
                begun.update(rest);
                begun.finish().into()
            }
        }
    }
}

/// Room for the parts of most events' digests.
const SEALED_PARTS: usize = 20;

/// The digest of everything in an event that never changes.
pub(in crate::decide) fn seal(event: &Event) -> Digest {
    let received = event.received_at.0.to_be_bytes();
    let part = event.part.to_be_bytes();
    let mut parts = Vec::with_capacity(SEALED_PARTS);
    parts.extend([
        KeyPart::bytes("id", &event.id.0),
        KeyPart::text("route", &event.route),
        KeyPart::bytes("part", &part),
        KeyPart::bytes("received_at", &received),
        KeyPart::bytes("body", &event.body_digest.0),
    ]);
    if let Some(group) = &event.group {
        parts.push(KeyPart::bytes("group", &group.0));
    }
    if let Some(change) = &event.change {
        parts.push(KeyPart::bytes("subject", &change.subject.0));
        parts.push(KeyPart::bytes("value", &change.value.0));
    }
    if let Some(Origin::Rollback { from, to }) = &event.origin {
        parts.push(KeyPart::bytes("rollback from", &from.0));
        parts.push(KeyPart::bytes("rollback to", &to.0));
    }
    if let Some(Origin::Notification { of, kind }) = &event.origin {
        parts.push(KeyPart::bytes("notification of", &of.0));
        parts.push(KeyPart::text("notification", kind.word()));
    }
    parts.extend(event.fields.iter().map(|(name, value)| KeyPart::field(name, value)));
    hash(&event.source, "event", parts.iter().copied())
}

/// The id of an event that another one makes at its end. It is the same each time, so that it is made once; its first
/// bytes are those of the other's, so that both are listed together.
pub(in crate::decide) fn follow_up(of: &Event, kind: &str) -> EventId {
    follow_up_id(of, kind, None)
}

/// The id of the notification of this kind to the target that has this route: the same each time, too.
pub(in crate::decide) fn notification(of: &Event, kind: &str, route: &str) -> EventId {
    follow_up_id(of, "notification", Some([KeyPart::text("kind", kind), KeyPart::text("route", route)]))
}

fn follow_up_id(of: &Event, kind: &str, more: Option<[KeyPart<'_>; 2]>) -> EventId {
    let life = of.life.to_be_bytes();
    let parts = [KeyPart::bytes("id", &of.id.0), KeyPart::bytes("life", &life)];
    let digest = hash(&of.source, kind, parts.into_iter().chain(more.into_iter().flatten()));
    let mut id = [0; 16];
    id.copy_from_slice(&digest.0[..16]);
    id[..6].copy_from_slice(&of.id.0[..6]);
    // The version and the variant of a UUIDv7.
    (id[6], id[8]) = (0x70 | id[6] & 0x0f, 0x80 | id[8] & 0x3f);
    EventId(id)
}

/// Where the notifications to a target are counted: the target's name, and the level of the config that it is on.
pub fn notification_target(source: &str, route: &str, name: &str) -> Key {
    key(source, "notification target", &[KeyPart::text("route", route), KeyPart::text("name", name)])
}

/// Where the attempts of a route, or of one of its groups, are counted.
pub(in crate::decide) fn budget(source: &str, route: &str, group: Option<Key>) -> Key {
    let group = group.as_ref().map(|group| KeyPart::bytes("group", &group.0));
    let parts: Vec<_> = [KeyPart::text("route", route)].into_iter().chain(group).collect();
    key(source, "budget", &parts)
}

/// Where it is kept what all nodes know of a tag that a source polls.
pub fn polled(scope: &str, registry: &str, image: &str, tag: &str) -> Key {
    let parts = [("registry", registry), ("image", image), ("tag", tag)].map(|(name, text)| KeyPart::text(name, text));
    key(scope, "polled", &parts)
}

/// The parts of these fields, or the first name that is missing.
pub fn parts<'a>(names: impl Iterator<Item = &'a str>, fields: &'a StoredFields) -> Result<Vec<KeyPart<'a>>, &'a str> {
    names.map(|name| fields.get(name).map(|value| KeyPart::field(name, value)).ok_or(name)).collect()
}

/// The stream's name.
const STREAM: &str = ":stream";
/// When the stream stored the message, in nanoseconds since 1970.
const STORED: &str = ":stored";
/// The message's sequence number in the stream.
const SEQUENCE: &str = ":sequence";

/// The headers that carry a message's position in its stream.
pub fn stream_headers(stream: &str, stored: i128, sequence: u64) -> [(String, Vec<u8>); 3] {
    let header = |name: &str, value: String| (name.to_owned(), value.into_bytes());
    [header(STREAM, stream.to_owned()), header(STORED, stored.to_string()), header(SEQUENCE, sequence.to_string())]
}

/// The parts that identify a message; `None` if the delivery is not from a stream.
pub(in crate::decide) fn stream_position<'d>(delivery: &Delivery<'d>) -> Option<Vec<KeyPart<'d>>> {
    let part = |name: &'static str| Some(KeyPart::text(&name[1..], delivery.text(name)?));
    [STREAM, STORED, SEQUENCE].into_iter().map(part).collect()
}

/// The display name of a message: `GITHUB:42`. `None` if the delivery is not from a stream.
pub(in crate::decide) fn message_name(delivery: &Delivery<'_>) -> Option<Arc<str>> {
    Some(format!("{}:{}", delivery.text(STREAM)?, delivery.text(SEQUENCE)?).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::seed::cases(64))]

        /// However long the pieces are, the digest is that of all of them together.
        #[test]
        fn pieces_that_are_gathered_have_the_same_digest(
            lengths in prop::collection::vec(0..2 * GATHERED_BYTES, 0..12),
        ) {
            let (mut hash, mut all) = (GatheredHash::new(), Vec::new());
            for (n, length) in lengths.into_iter().enumerate() {
                let piece: Vec<u8> = (0..=250).cycle().skip(n).take(length).collect();
                hash.update(&piece);
                all.extend_from_slice(&piece);
            }
            prop_assert_eq!(hash.finish(), Digest::of(&all));
        }
    }
}
