//! Previews of claims, concurrent with the writer: the ledger's own rules over a read-only snapshot.

use super::fresh_index::{FreshKeys, FreshMirror};
use super::last_write::LastWriteMark;
use super::rows::{PARKED, SqliteLedger};
use crate::decide::claim::{ClaimResult, IdentityKey, NewEvent, Payload};
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::ledger::{self, EventRow, KeyOwner, Ledger, SubjectRegister};
use crate::decide::transition::AttemptRecord;
use crate::store::row;
use crate::store::row::{DecodedRow, columns};
use crate::store::{DuplicateLookup, KnownDuplicate, StoreTimes};
use rusqlite::Result;
use rusqlite::{Connection, OptionalExtension as _};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Claims each of these as if it were alone, in one snapshot, and writes nothing.
pub(super) fn foresee(
    db: &Connection,
    new: &[NewEvent],
    mirror: Option<&FreshMirror>,
    at: StoreTimes,
) -> Result<Vec<ClaimResult>> {
    let fresh: Vec<_> = new.iter().map(|one| fresh_keys(mirror, one)).collect(); // before the snapshot
    in_snapshot(db, || {
        let (mut turns, mut mark) = (0, LastWriteMark::none());
        let claim =
            |(one, fresh)| ledger::claim(&mut ReadOnlyLedger::new(db, at, &mut turns, &mut mark, fresh), one, at);
        new.iter().zip(fresh).map(claim).collect()
    })
}

/// The duplicate that a claim would find, in one snapshot.
pub(super) fn recall(
    db: &Connection,
    new: &NewEvent,
    needs: DuplicateLookup,
    mirror: Option<&FreshMirror>,
    at: StoreTimes,
) -> Result<Option<KnownDuplicate>> {
    let fresh = fresh_keys(mirror, new); // before the snapshot
    in_snapshot(db, || {
        let (mut turns, mut mark) = (0, LastWriteMark::none());
        let mut ledger = ReadOnlyLedger::new(db, at, &mut turns, &mut mark, fresh);
        let mut found = ledger::find_duplicate(&mut ledger, new, at)?;
        if let Some(found) = found.as_mut().filter(|found| needs.receipt_of(&found.event)) {
            found.receipt = crate::store::sqlite::queries::receipt(db, found.event.id)?;
        }
        Ok(found)
    })
}

/// What may have the keys of this delivery and is not in the index yet.
fn fresh_keys(mirror: Option<&FreshMirror>, new: &NewEvent) -> FreshKeys<'static> {
    let keys = new.keys.iter().chain(&new.former_keys).map(|identity| &identity.key);
    mirror.map_or(FreshKeys::Table, |mirror| FreshKeys::Candidates(mirror.candidates(keys)))
}

/// Runs all reads in one snapshot, and so takes the locks once, not for each.
fn in_snapshot<T>(db: &Connection, read: impl FnOnce() -> Result<T>) -> Result<T> {
    db.prepare_cached("begin")?.execute([])?;
    let found = read();
    db.prepare_cached("rollback")?.execute([])?;
    found
}

/// A ledger that reads like the writer's. It remembers only those writes that a claim may read again.
struct ReadOnlyLedger<'t> {
    rows: SqliteLedger<'t>,
    gone: HashSet<EventId>,
    slots: HashMap<Key, Option<EventId>>,
}

impl<'t> ReadOnlyLedger<'t> {
    fn new(
        db: &'t Connection,
        at: StoreTimes,
        turns: &'t mut u64,
        mark: &'t mut LastWriteMark,
        fresh: FreshKeys<'t>,
    ) -> Self {
        Self {
            rows: SqliteLedger { db, at, turns, mark, fresh, packer: None },
            gone: HashSet::new(),
            slots: HashMap::new(),
        }
    }
}

impl Ledger for ReadOnlyLedger<'_> {
    type Error = rusqlite::Error;

    fn row(&mut self, id: EventId) -> Result<Option<EventRow>> {
        if self.gone.contains(&id) {
            return Ok(None);
        }
        let sql = concat!("select ", columns!(), " from events where id = ?1");
        let found = self.rows.db.prepare_cached(sql)?.query_row([id.0], |row| Ok(row::read(row))).optional()?;
        // The writer would end a damaged event; for a reader it is dead already.
        Ok(found.map(|(DecodedRow::Whole(row) | DecodedRow::Damaged(row, _))| row))
    }

    fn key_owner(&mut self, key: &Key) -> Result<Option<KeyOwner>> {
        let held = self.rows.key_owner(key)?;
        Ok(held.filter(|held| !self.gone.contains(&held.event)))
    }

    fn is_imported(&mut self, key: &Key) -> Result<bool> {
        self.rows.is_imported(key)
    }

    fn set_imported(&mut self, _: &Key) -> Result<bool> {
        Ok(true)
    }

    fn register(&mut self, subject: &Key) -> Result<Option<SubjectRegister>> {
        self.rows.register(subject)
    }

    fn slot(&mut self, group: &Key) -> Result<Option<EventId>> {
        match self.slots.get(group) {
            Some(holder) => Ok(*holder),
            None => self.rows.slot(group),
        }
    }

    fn parked(&mut self, group: &Key) -> Result<Option<EventRow>> {
        let found = self.rows.db.prepare_cached(PARKED)?.query_row([group.0], |row| Ok(row::read(row))).optional()?;
        Ok(found.map(|(DecodedRow::Whole(row) | DecodedRow::Damaged(row, _))| row))
    }

    fn next_turn(&mut self) -> QueueTurn {
        self.rows.next_turn()
    }

    fn insert(&mut self, _: &EventRow, _: Option<&Payload>) -> Result<()> {
        Ok(())
    }

    fn update(&mut self, _: &EventRow) -> Result<()> {
        Ok(())
    }

    fn remove(&mut self, id: EventId) -> Result<()> {
        self.gone.insert(id);
        Ok(())
    }

    fn set_key_owner(&mut self, _: &Key, _: &KeyOwner) -> Result<()> {
        Ok(())
    }

    fn set_register(&mut self, _: &Key, _: &SubjectRegister) -> Result<()> {
        Ok(())
    }

    fn remove_register(&mut self, _: &Key) -> Result<()> {
        Ok(())
    }

    fn set_slot(&mut self, group: &Key, event: Option<EventId>) -> Result<()> {
        self.slots.insert(*group, event);
        Ok(())
    }

    fn set_payload(&mut self, _: &Event, _: &Payload) -> Result<()> {
        Ok(())
    }

    fn set_receipt(&mut self, _: EventId, _: Option<&Receipt>) -> Result<()> {
        Ok(())
    }

    fn drop_transient_headers(&mut self, _: EventId) -> Result<()> {
        Ok(())
    }

    fn add_attempt(&mut self, _: EventId, _: &AttemptRecord) -> Result<()> {
        Ok(())
    }
}

/// Number of remembered keys, each in its only possible place: 256 KiB.
const PLACES: usize = 32 << 10;

/// Recently seen keys: a hint whether to ask a reader before the writer. A new delivery goes straight to the writer; a
/// duplicate of one of the last few thousand is looked up by a reader.
///
/// It is only a hint: a hit decides nothing, and a miss goes to the writer, which knows.
///
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
