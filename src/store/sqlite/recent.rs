//! Recently seen keys: a hint whether to ask a reader before the writer. A new delivery goes straight to the writer; a
//! duplicate of one of the last few thousand is looked up by a reader.
//!
//! It is only a hint: a hit decides nothing, and a miss goes to the writer, which knows.

use crate::decide::claim::IdentityKey;
use crate::decide::id::Key;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of remembered keys, each in its only possible place: 256 KiB.
const PLACES: usize = 32 << 10;

/// Prefixes of keys. Keys are digests, so collisions hardly occur.
pub(super) struct RecentKeys(Box<[AtomicU64]>);

impl Default for RecentKeys {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl RecentKeys {
    /// Remembers keys that were brought to be claimed.
    pub(super) fn put(&self, keys: &[IdentityKey]) {
        for IdentityKey { key, .. } in keys {
            let (place, begins) = self.place(key);
            place.store(begins, Ordering::Relaxed);
        }
    }

    /// Is one of these keys remembered?
    pub(super) fn has_any(&self, keys: &[IdentityKey]) -> bool {
        keys.iter().any(|IdentityKey { key, .. }| {
            let (place, begins) = self.place(key);
            place.load(Ordering::Relaxed) == begins
        })
    }

    fn place(&self, key: &Key) -> (&AtomicU64, u64) {
        let begins = key.0.first_chunk().map_or(0, |eight| u64::from_be_bytes(*eight));
        let at = usize::try_from(begins % PLACES as u64).unwrap_or(0);
        (&self.0[at], begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::claim::MatchedBy;

    fn key(n: u64) -> IdentityKey {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&n.to_be_bytes());
        IdentityKey::new(MatchedBy::Body, Key(key))
    }

    #[test]
    fn a_key_is_remembered_until_another_takes_its_place() {
        let recent = RecentKeys::default();
        let places = PLACES as u64;
        assert!(!recent.has_any(&[key(5)]));
        recent.put(&[key(5), key(6)]);
        assert!(recent.has_any(&[key(1), key(6)]) && recent.has_any(&[key(5)]));
        recent.put(&[key(5 + places)]);
        assert!(!recent.has_any(&[key(5)]) && recent.has_any(&[key(5 + places)]));
    }
}
