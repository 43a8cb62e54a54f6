//! Newtypes for ids that must not be mixed up: of events, nodes and revisions, and the 32 bytes of a digest.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// An event's id: a `UUIDv7`, created with the claim. It defines no order: `turn` does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub [u8; 16]);

impl EventId {
    /// Room for [`EventId::text`].
    pub(crate) const fn text_buffer() -> [u8; 36] {
        [0; 36]
    }

    /// Its text, written into this buffer.
    pub(crate) fn text(self, buffer: &mut [u8; 36]) -> &str {
        uuid::Uuid::from_bytes(self.0).hyphenated().encode_lower(buffer)
    }

    /// The last eight hex digits, as shown to people.
    pub fn short(self) -> String {
        hex::encode(&self.0[12..])
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&uuid::Uuid::from_bytes(self.0), f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for EventId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        uuid::Uuid::try_parse(text).map(|id| Self(id.into_bytes()))
    }
}

impl serde::Serialize for EventId {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// The id of a running process. It is new at each start, so that no node takes an old lease for its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub Arc<str>);

impl NodeId {
    /// No node: the owner of the lease of an event that was cancelled remotely, which is left to expire.
    pub fn unowned() -> Self {
        Self("nobody".into())
    }

    /// Whether no node owns it.
    pub fn is_nobody(&self) -> bool {
        *self.0 == *"nobody"
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Counts the writes to one event. Every write names the revision that it replaces: it is the fencing token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision a claim writes.
    pub const FIRST: Self = Self(1);

    /// The revision that replaces this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The first bytes of the digest of a delivery id: enough to compare two ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryIdDigest(pub [u8; 8]);

impl DeliveryIdDigest {
    /// The digest of this delivery id.
    pub fn of(delivery_id: &str) -> Self {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&Digest::of(delivery_id.as_bytes()).0[..8]);
        Self(bytes)
    }
}

/// A number that orders a group's queue. The store assigns it at claim, re-arm and replay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct QueueTurn(pub u64);

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// SHA-256 of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).into()
    }
}

impl From<aws_lc_rs::digest::Digest> for Digest {
    /// A digest that must be a SHA-256.
    fn from(digest: aws_lc_rs::digest::Digest) -> Self {
        let mut out = [0; 32];
        out.copy_from_slice(digest.as_ref());
        Self(out)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// The identity that two deliveries of the same event share, as 32 bytes. Made only in `key.rs`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// The key before this one, in the order of keys; `None` before the first.
    pub fn predecessor(self) -> Option<Self> {
        let last = self.0.iter().rposition(|byte| *byte > 0)?;
        let mut bytes = self.0;
        bytes[last] -= 1;
        bytes[last + 1..].fill(u8::MAX);
        Some(Self(bytes))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}
