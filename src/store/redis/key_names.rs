//! What everything is called in the database.
//!
//! All of a store lies under one hash tag, so that it is in one slot of a cluster: a group or a queue may span sources,
//! and a script may only touch one slot.

use crate::decide::event::Event;
use crate::decide::id::{Digest, EventId, Key};

/// The names of one store.
#[derive(Clone, Debug)]
pub(super) struct RedisKeyNames {
    tag: Vec<u8>,
}

/// What there is one of per key or event.
#[derive(Clone, Copy)]
pub(super) enum RedisKeyKind {
    /// A key's holder.
    Key = b'k' as isize,
    /// A register.
    Register = b'r' as isize,
    /// A group's slot.
    Slot = b's' as isize,
    /// Who is parked in a group, by turn.
    Parked = b'p' as isize,
    /// An event's row.
    Event = b'e' as isize,
    /// Its keys, one after another.
    KeysOf = b'm' as isize,
    /// Its headers, while some of them are there only to be passed on.
    Passed = b'h' as isize,
    /// Its headers and body.
    Payload = b'b' as isize,
    /// Its kept answer.
    Receipt = b'a' as isize,
    /// Its attempts.
    Attempts = b't' as isize,
    /// Their output.
    Output = b'o' as isize,
    /// Duplicates of it.
    Sightings = b'n' as isize,
    /// What waits on one route for one receiver, by its time.
    Due = b'w' as isize,
    /// What of one source may be forgotten, by since when.
    Keep = b'f' as isize,
    /// What of one source is over and has its body, by since when.
    Bodies = b'y' as isize,
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

    /// Something there is one of per key, event, source or route.
    pub(super) fn of(&self, kind: RedisKeyKind, whose: &[u8]) -> Vec<u8> {
        self.name(&[&[kind as u8], whose])
    }

    pub(super) fn key(&self, kind: RedisKeyKind, key: &Key) -> Vec<u8> {
        self.of(kind, &key.0)
    }

    pub(super) fn event(&self, kind: RedisKeyKind, id: EventId) -> Vec<u8> {
        self.of(kind, &id.0)
    }

    /// What a key's name begins with.
    pub(super) fn key_prefix(&self) -> Vec<u8> {
        self.of(RedisKeyKind::Key, &[])
    }

    /// Something there is one of per store.
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

    /// Every receiver's queue that something waits in; of routes that a node knows, also those where nothing does.
    pub(super) fn routes(&self) -> Vec<u8> {
        self.one("routes")
    }

    /// Every source that something is kept of; of those that a node knows, also where nothing is.
    pub(super) fn sources(&self) -> Vec<u8> {
        self.one("sources")
    }

    /// Every id.
    pub(super) fn all(&self) -> Vec<u8> {
        self.one("all")
    }

    /// The same, each with its bytes in reverse.
    pub(super) fn ends(&self) -> Vec<u8> {
        self.one("ends")
    }

    /// The ids of what is not over.
    pub(super) fn open(&self) -> Vec<u8> {
        self.one("open")
    }

    /// The ids of what is dead.
    pub(super) fn dead(&self) -> Vec<u8> {
        self.one("dead")
    }

    /// What runs, by the end of its lease.
    pub(super) fn leases(&self) -> Vec<u8> {
        self.one("leases")
    }

    /// Delivery ids and whose they are.
    pub(super) fn deliveries(&self) -> Vec<u8> {
        self.one("deliveries")
    }

    /// What identities are made of.
    pub(super) fn scopes(&self) -> Vec<u8> {
        self.one("scopes")
    }

    /// How long each source's events are kept.
    pub(super) fn retention(&self) -> Vec<u8> {
        self.one("retention")
    }

    /// The names of messages in quarantine, the newest last.
    pub(super) fn quarantine(&self) -> Vec<u8> {
        self.one("quarantine")
    }

    /// What they were.
    pub(super) fn quarantined(&self) -> Vec<u8> {
        self.one("quarantined")
    }

    /// Who has written, by what they counted then.
    pub(super) fn writers(&self) -> Vec<u8> {
        self.one("writers")
    }

    /// What time the store has last seen.
    pub(super) fn last_seen(&self) -> Vec<u8> {
        self.one("last_seen")
    }

    /// What the nodes have agreed on of the store's clock.
    pub(super) fn store_clock(&self) -> Vec<u8> {
        self.one("store_clock")
    }

    /// What is written to see whether everything may be written.
    pub(super) fn probe(&self) -> Vec<u8> {
        self.one("probe")
    }
}

/// A route as bytes.
pub(super) fn route(source: &str, route: &str) -> Vec<u8> {
    of_source(source, route)
}

/// A message that a source could not take, as bytes.
pub(super) fn message(source: &str, message: &str) -> Vec<u8> {
    of_source(source, message)
}

/// The length of the source's name stands before both, so that no two are the same.
fn of_source(source: &str, name: &str) -> Vec<u8> {
    let length = u32::try_from(source.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), source.as_bytes(), name.as_bytes()].concat()
}

/// The route that these bytes stand for.
pub(super) fn parse_route(bytes: &[u8]) -> Option<(&str, &str)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (source, route) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some((std::str::from_utf8(source).ok()?, std::str::from_utf8(route).ok()?))
}

/// One receiver's queue of a route as bytes.
pub(super) fn queue(event: &Event) -> Vec<u8> {
    queue_of(event.part, &event.source, &event.route)
}

/// The same by its receiver, source and route.
pub(super) fn queue_of(part: u16, source: &str, name: &str) -> Vec<u8> {
    [&part.to_be_bytes()[..], &route(source, name)].concat()
}

/// The receiver and the route that these bytes stand for.
pub(super) fn parse_queue(bytes: &[u8]) -> Option<(u16, &str, &str)> {
    let (part, rest) = bytes.split_first_chunk::<2>()?;
    parse_route(rest).map(|(source, route)| (u16::from_be_bytes(*part), source, route))
}

/// What the entries of one delivery id begin with: of one length, so that no id is the beginning of another.
pub(super) fn delivery(id: &str) -> [u8; 16] {
    let mut begin = [0; 16];
    begin.copy_from_slice(&Digest::of(id.as_bytes()).0[..16]);
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_routes_have_one_name_and_every_name_comes_back() {
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
    fn everything_lies_under_one_tag() {
        let names = RedisKeyNames::new("a.b");
        for name in
            [names.epoch(), names.event(RedisKeyKind::Event, EventId([b'}'; 16])), names.of(RedisKeyKind::Due, b"{x}")]
        {
            assert!(name.starts_with(b"{a.b}"), "{name:?}");
        }
    }
}
