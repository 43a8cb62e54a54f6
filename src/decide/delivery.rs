//! One arrival, as it came. Nothing here has been believed yet.

use super::time::Timestamp;
use bytes::Bytes;

/// One arrival: the bytes as they came.
#[derive(Clone, Debug)]
pub struct Delivery<'d> {
    /// The path, without the query.
    pub path: &'d str,
    /// What stands behind the `?`, undecoded; empty if nothing does.
    pub query: &'d str,
    /// Headers as they came, names in lower case, repeated ones repeated.
    pub headers: &'d [(String, Vec<u8>)],
    /// The body as it came.
    pub body: &'d Bytes,
    /// When it arrived, by the store's clock.
    pub at: Timestamp,
    /// The same by this machine's clock on the wall, wherever that was set: the age of a signature is measured by it.
    pub wall: Timestamp,
}

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderLookup<'d> {
    /// It is not there.
    Missing,
    /// It is there once.
    One(&'d [u8]),
    /// It is there more than once: which one counts is anybody's guess, so none does.
    Several,
}

impl<'d> Delivery<'d> {
    /// The header of this name (in lower case).
    pub fn header(&self, name: &str) -> HeaderLookup<'d> {
        let mut found = HeaderLookup::Missing;
        for (_, value) in self.headers.iter().filter(|(n, _)| n == name) {
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
