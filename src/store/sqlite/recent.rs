//! Which keys were brought of late: whether it is worth asking a reader before the writer. A new delivery goes to the
//! writer at once; what repeats one of the last few thousand is looked up beside it.
//!
//! A hint and no more. What is found here decides nothing, and what is not found is asked of the writer, who knows.

use crate::decide::claim::IdentityKey;
use crate::decide::id::Key;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that are remembered, each in the only place it can have: 256 KiB.
const PLACES: usize = 32 << 10;

/// The beginnings of keys. They are digests, so two that begin alike are as good as none.
pub(super) struct RecentKeys(Box<[AtomicU64]>);

impl Default for RecentKeys {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl RecentKeys {
    /// These were brought to be claimed.
    pub(super) fn put(&self, keys: &[IdentityKey]) {
        for IdentityKey { key, .. } in keys {
            let (place, begins) = self.place(key);
            place.store(begins, Ordering::Relaxed);
        }
    }

    /// Was one of these?
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
    fn what_was_brought_is_known_until_another_takes_its_place() {
        let recent = RecentKeys::default();
        let places = PLACES as u64;
        assert!(!recent.has_any(&[key(5)]));
        recent.put(&[key(5), key(6)]);
        assert!(recent.has_any(&[key(1), key(6)]) && recent.has_any(&[key(5)]));
        recent.put(&[key(5 + places)]);
        assert!(!recent.has_any(&[key(5)]) && recent.has_any(&[key(5 + places)]));
    }
}
