//! The names of all keys in the database.
//!
//! All keys of a store have one hash tag, so that they are in one slot of a cluster: a group or a queue may span
//! sources, and a script may only touch one slot.

use super::codec::dictionary_name;
use crate::decide::event::Event;
use crate::decide::id::{Digest, EventId, Key};
use crate::store::compression::DictionaryId;

/// The key names of one store.
#[derive(Clone, Debug)]
pub(super) struct RedisKeyNames {
    tag: Vec<u8>,
}

/// The kinds of keys that exist once per key, event, source or route.
#[derive(Clone, Copy)]
pub(super) enum RedisKeyKind {
    /// The owner of a key.
    Key = b'k' as isize,
    /// A register.
    Register = b'r' as isize,
    /// A group's slot.
    Slot = b's' as isize,
    /// The events parked in a group, by turn.
    Parked = b'p' as isize,
    /// An event's row.
    Event = b'e' as isize,
    /// Its keys, concatenated.
    KeysOf = b'm' as isize,
    /// Its headers, while it has transient ones.
    Passed = b'h' as isize,
    /// Its headers and body.
    Payload = b'b' as isize,
    /// Its stored response.
    Receipt = b'a' as isize,
    /// Its attempts.
    Attempts = b't' as isize,
    /// Their output.
    Output = b'o' as isize,
    /// Duplicates of it.
    Sightings = b'n' as isize,
    /// Events waiting on one route for one receiver, by due time.
    Due = b'w' as isize,
    /// Events of one source that may be forgotten, by since when.
    Keep = b'f' as isize,
    /// Ended events of one source that have their body, by when they ended.
    Bodies = b'y' as isize,
    /// A dictionary of bodies, preceded by its digest, which begins with its name.
    Dictionary = b'd' as isize,
    /// The second copy of it.
    DictionaryCopy = b'c' as isize,
    /// Whether it is in use, and the events whose bodies were packed with it, concatenated.
    PackedWith = b'l' as isize,
    /// The name of the dictionary that one source uses.
    InUse = b'u' as isize,
}

impl RedisKeyNames {
    pub(super) fn new(prefix: &str) -> Self {
        Self { tag: format!("{{{prefix}}}").into_bytes() }
    }

    fn name(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut name = self.tag.clone();
        for part in parts {
            name.extend_from_slice(part);
        }
        name
    }

    /// The name of a key of this kind.
    pub(super) fn of(&self, kind: RedisKeyKind, whose: &[u8]) -> Vec<u8> {
        self.name(&[&[kind as u8], whose])
    }

    pub(super) fn key(&self, kind: RedisKeyKind, key: &Key) -> Vec<u8> {
        self.of(kind, &key.0)
    }

    pub(super) fn event(&self, kind: RedisKeyKind, id: EventId) -> Vec<u8> {
        self.of(kind, &id.0)
    }

    pub(super) fn dictionary(&self, kind: RedisKeyKind, id: DictionaryId) -> Vec<u8> {
        self.of(kind, &dictionary_name(id))
    }

    /// The prefix of the names of keys.
    pub(super) fn key_prefix(&self) -> Vec<u8> {
        self.of(RedisKeyKind::Key, &[])
    }

    /// The name of a key that exists once per store.
    pub(super) fn one(&self, what: &str) -> Vec<u8> {
        self.name(&[b":", what.as_bytes()])
    }

    pub(super) fn epoch(&self) -> Vec<u8> {
        self.one("epoch")
    }

    pub(super) fn count(&self) -> Vec<u8> {
        self.one("count")
    }

    pub(super) fn turn(&self) -> Vec<u8> {
        self.one("turn")
    }

    pub(super) fn hints(&self) -> Vec<u8> {
        self.one("hints")
    }

    /// Every imported key.
    pub(super) fn imported(&self) -> Vec<u8> {
        self.one("imported")
    }

    /// Every receiver's queue with waiting events; of known routes, also empty ones.
    pub(super) fn routes(&self) -> Vec<u8> {
        self.one("routes")
    }

    /// Every source with events; of known sources, also those without.
    pub(super) fn sources(&self) -> Vec<u8> {
        self.one("sources")
    }

    /// The ids of all events.
    pub(super) fn all(&self) -> Vec<u8> {
        self.one("all")
    }

    /// The same, each with its bytes reversed.
    pub(super) fn ends(&self) -> Vec<u8> {
        self.one("ends")
    }

    /// The ids of events that have not ended.
    pub(super) fn open(&self) -> Vec<u8> {
        self.one("open")
    }

    /// The ids of dead events.
    pub(super) fn dead(&self) -> Vec<u8> {
        self.one("dead")
    }

    /// Running events, by the end of their lease.
    pub(super) fn leases(&self) -> Vec<u8> {
        self.one("leases")
    }

    /// Delivery ids with their events.
    pub(super) fn deliveries(&self) -> Vec<u8> {
        self.one("deliveries")
    }

    /// The recipes of identities.
    pub(super) fn scopes(&self) -> Vec<u8> {
        self.one("scopes")
    }

    /// The retention of each source.
    pub(super) fn retention(&self) -> Vec<u8> {
        self.one("retention")
    }

    /// The names of quarantined messages, newest last.
    pub(super) fn quarantine(&self) -> Vec<u8> {
        self.one("quarantine")
    }

    /// Their contents.
    pub(super) fn quarantined(&self) -> Vec<u8> {
        self.one("quarantined")
    }

    /// The writers, by the count of their last write.
    pub(super) fn writers(&self) -> Vec<u8> {
        self.one("writers")
    }

    /// Every dictionary of bodies: whose body it was.
    pub(super) fn dictionaries(&self) -> Vec<u8> {
        self.one("dictionaries")
    }

    /// How many bodies need each of them.
    pub(super) fn dictionary_bodies(&self) -> Vec<u8> {
        self.one("dictionary_bodies")
    }

    /// The last-seen time.
    pub(super) fn last_seen(&self) -> Vec<u8> {
        self.one("last_seen")
    }

    /// The nodes' agreement on the store's clock.
    pub(super) fn store_clock(&self) -> Vec<u8> {
        self.one("store_clock")
    }

    /// Written to check the permissions.
    pub(super) fn probe(&self) -> Vec<u8> {
        self.one("probe")
    }
}

/// A route as bytes.
pub(super) fn route(source: &str, route: &str) -> Vec<u8> {
    of_source(source, route)
}

/// A quarantined message of a source, as bytes.
pub(super) fn message(source: &str, message: &str) -> Vec<u8> {
    of_source(source, message)
}

/// The source's name is preceded by its length, so that no two results are the same.
fn of_source(source: &str, name: &str) -> Vec<u8> {
    let length = u32::try_from(source.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), source.as_bytes(), name.as_bytes()].concat()
}

/// Decodes a route.
pub(super) fn parse_route(bytes: &[u8]) -> Option<(&str, &str)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (source, route) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some((std::str::from_utf8(source).ok()?, std::str::from_utf8(route).ok()?))
}

/// A receiver's queue on a route, as bytes.
pub(super) fn queue(event: &Event) -> Vec<u8> {
    queue_of(event.part, &event.source, &event.route)
}

/// The same by receiver, source and route.
pub(super) fn queue_of(part: u16, source: &str, name: &str) -> Vec<u8> {
    [&part.to_be_bytes()[..], &route(source, name)].concat()
}

/// Decodes a queue: receiver, source and route.
pub(super) fn parse_queue(bytes: &[u8]) -> Option<(u16, &str, &str)> {
    let (part, rest) = bytes.split_first_chunk::<2>()?;
    parse_route(rest).map(|(source, route)| (u16::from_be_bytes(*part), source, route))
}

/// The prefix of the entries of one delivery id: of fixed length, so that no id is a prefix of another.
pub(super) fn delivery(id: &str) -> [u8; 16] {
    let mut begin = [0; 16];
    begin.copy_from_slice(&Digest::of(id.as_bytes()).0[..16]);
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_routes_share_a_name_and_every_name_survives_a_round_trip() {
        let routes = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("ä\0", "ö")];
        let names: std::collections::HashSet<_> = routes.iter().map(|(s, r)| route(s, r)).collect();
        assert_eq!(names.len(), routes.len());
        for (s, r) in routes {
            assert_eq!(parse_route(&route(s, r)), Some((s, r)));
        }
        for odd in [&b""[..], b"abc", &[0, 0, 0, 9, b'a']] {
            assert_eq!(parse_route(odd), None);
        }
    }

    #[test]
    fn all_names_have_one_hash_tag() {
        let names = RedisKeyNames::new("a.b");
        for name in
            [names.epoch(), names.event(RedisKeyKind::Event, EventId([b'}'; 16])), names.of(RedisKeyKind::Due, b"{x}")]
        {
            assert!(name.starts_with(b"{a.b}"), "{name:?}");
        }
    }
}
