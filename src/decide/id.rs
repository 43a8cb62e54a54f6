//! Names that must not be mixed up: of events, nodes and revisions, and the 32 bytes of a digest.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// An event's name: a `UUIDv7`, made when it is claimed. It orders nothing: `turn` does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub [u8; 16]);

impl EventId {
    /// The last eight digits, as people see them.
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

/// One running process. Its name is new at each start, so that nobody takes an old lease for their own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node(pub Arc<str>);

impl Node {
    /// Nobody: the lease of an event that was called off is left to run out.
    pub fn unowned() -> Self {
        Self("nobody".into())
    }

    /// Is it nobody?
    pub fn is_nobody(&self) -> bool {
        *self.0 == *"nobody"
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Counts the writes to one event. Every write names the revision it replaces: that is the fence.
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

/// The first bytes of the digest of a delivery id: enough to tell whether two ids are the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryIdDigest(pub [u8; 8]);

impl DeliveryIdDigest {
    /// Of this delivery id.
    pub fn of(delivery_id: &str) -> Self {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&Digest::of(delivery_id.as_bytes()).0[..8]);
        Self(bytes)
    }
}

/// The place in a group's queue. The store gives it, at claim, re-arm and replay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct QueueTurn(pub u64);

/// SHA-256 of something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// SHA-256 of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut out = [0; 32];
        out.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref());
        Self(out)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// What makes two deliveries the same event, as 32 bytes. Made in `key.rs` and nowhere else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}
