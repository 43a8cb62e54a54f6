//! The version of a NATS server, and what depends on it.

use async_nats::Client;
use std::fmt;

/// The oldest server that works. Debian 12 has it.
const OLDEST: (u32, u32) = (2, 9);
/// The first server whose consumers filter by several subjects, and that can be told to sync before it acknowledges.
const SEVERAL_FILTERS: (u32, u32) = (2, 10);

/// What a server says of itself when a client connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatsServerVersion(String);

impl NatsServerVersion {
    /// Of the server that this client is connected to.
    pub fn of(client: &Client) -> Self {
        Self(client.server_info().version)
    }

    /// A sentence, if it is older than the oldest that works.
    pub fn too_old(&self) -> Option<String> {
        let (major, minor) = OLDEST;
        self.before(OLDEST).then(|| format!("the server is nats-server {self}, and {major}.{minor} or newer is needed"))
    }

    /// A consumer can filter by more than one subject. An older server ignores such a filter and hands out everything.
    pub fn filters_by_several_subjects(&self) -> bool {
        !self.before(SEVERAL_FILTERS)
    }

    /// Its config knows `sync_interval: always`.
    pub fn can_sync_always(&self) -> bool {
        !self.before(SEVERAL_FILTERS)
    }

    /// A version that cannot be read is taken for a new one.
    fn before(&self, wanted: (u32, u32)) -> bool {
        let mut parts = self.0.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
        matches!((parts.next(), parts.next()), (Some(Some(major)), Some(Some(minor))) if (major, minor) < wanted)
    }
}

impl fmt::Display for NatsServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let is = |text: &str| {
            let version = NatsServerVersion(text.to_owned());
            (version.too_old().is_some(), version.filters_by_several_subjects())
        };
        assert_eq!(is("2.8.4"), (true, false));
        assert_eq!(is("1.4.1"), (true, false));
        assert_eq!(is("2.9.10"), (false, false));
        assert_eq!(is("2.10.0-beta.1"), (false, true));
        assert_eq!(is("v2.15.1"), (false, true));
        assert_eq!(is("3.0.0"), (false, true));
        assert_eq!(is("devel"), (false, true));
    }
}
