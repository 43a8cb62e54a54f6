//! Copying a shared store: entries are written as conditional writes.

use super::copy_lock::MARK;
use super::{CompleteEvent, CopyEntry, CopyRegisterCas, CopyRole, CopyStore, ExportStore, under_a_lease};
use crate::decide::id::{Key, QueueTurn};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::SubjectRegister;
use crate::decide::time::Timestamp;
use crate::store::inspect::QuarantinedMessage;
use crate::store::optimistic::{
    ConditionalWrite, ExpectedVersion, Record, RecordId, RecordVersion, RecordWrite, TURNS_AT_ONCE, VersionedBackend,
    txn,
};
use crate::store::{DueQuery, EventQuery, Inspect, SourceRetention, StoreBackend, StoreError, StoreFuture};

/// A shared store that can be copied.
pub trait ExportBackend: VersionedBackend + ExportStore + Inspect {
    /// A sentence about connected nodes, if the server can tell.
    fn connected(&self) -> StoreFuture<'_, Option<String>>;
    /// Writes what is not a versioned record, atomically, if the copy's mark still has this version. Returns whether it
    /// had.
    fn fill_beside(&self, beside: UnversionedCopyData, mark: RecordVersion) -> StoreFuture<'_, bool>;
}

/// The data of a copy besides versioned records.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct UnversionedCopyData {
    /// Recipes, replacing all that are there.
    pub recipes: Option<Vec<IdentityRecipe>>,
    /// Retention, replacing all that is there.
    pub retention: Option<Vec<SourceRetention>>,
    /// Messages in quarantine, added to those that are there.
    pub quarantined: Vec<QuarantinedMessage>,
}

impl UnversionedCopyData {
    /// Splits it into writes of limited size: a message may have several kilobytes.
    fn pieces(self) -> impl Iterator<Item = Self> {
        let Self { recipes, retention, quarantined } = self;
        let first = Self { recipes, retention, quarantined: Vec::new() };
        let messages: Vec<_> = quarantined.chunks(QUARANTINED_AT_ONCE).map(<[_]>::to_vec).collect();
        let messages = messages.into_iter().map(|quarantined| Self { quarantined, ..Self::default() });
        Some(first).filter(|first| *first != Self::default()).into_iter().chain(messages)
    }
}

/// Quarantined messages per write.
const QUARANTINED_AT_ONCE: usize = 64;
/// How many expired leases, of killed nodes, are skipped to find one that has not expired.
const LEASES_READ: usize = 10_000;

impl<S: ExportBackend> CopyStore for S {
    fn fill(&self, entries: Vec<CopyEntry>, notes: Vec<CopyRegisterCas>) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let Some(note) = note(self, notes).await? else { return Ok(false) };
            let (swaps, beside) = written(entries, note);
            for some in beside.pieces() {
                let mark = swaps.last().and_then(mark_in);
                let mark = mark.ok_or_else(|| StoreError::Broken("a page of a copy has no mark".into()))?;
                if !self.fill_beside(some, mark).await? {
                    return Ok(false);
                }
            }
            Ok(self.fill(swaps).await?.last() == Some(&true))
        })
    }

    fn noted(&self, key: Key) -> StoreFuture<'_, Option<SubjectRegister>> {
        Box::pin(async move { Ok(register(self, key).await?.0) })
    }

    fn clear_recipes(&self, mark: SubjectRegister) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let (register, seen) = register(self, MARK).await?;
            let ExpectedVersion::Version(version) = seen else { return Ok(false) };
            let nothing =
                UnversionedCopyData { recipes: Some(Vec::new()), retention: Some(Vec::new()), quarantined: Vec::new() };
            Ok(register == Some(mark) && self.fill_beside(nothing, version).await?)
        })
    }

    /// Takes turns in steps, because a store hands out only a limited number at once.
    fn pass_turns(&self, QueueTurn(highest): QueueTurn) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut next = self.read(Vec::new(), 1).await?.turn.0;
            while next <= highest {
                let apart = usize::try_from(highest - next).unwrap_or(usize::MAX).clamp(1, TURNS_AT_ONCE);
                next = self.read(Vec::new(), apart).await?.turn.0;
            }
            Ok(())
        })
    }

    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            if let Some(seen) = VersionedBackend::last_seen(self).await? {
                return Ok(Some(seen));
            }
            let newest = self.list(EventQuery { limit: 1, ..EventQuery::default() }).await?;
            Ok(newest.first().map(|event| event.received_at))
        })
    }

    fn set_last_seen(&self, time: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let was = VersionedBackend::last_seen(self).await?;
            VersionedBackend::set_last_seen(self, was, time).await
        })
    }

    /// An unexpired lease belongs to a working node, or to one killed a moment ago: its action may still run.
    fn in_use(&self) -> StoreFuture<'_, Option<String>> {
        Box::pin(async move {
            if let Some(who) = self.connected().await? {
                return Ok(Some(who));
            }
            let leases = self.due_or_damaged(DueQuery::Leases, LEASES_READ).await?.next;
            let now = StoreBackend::now(self);
            let held = leases.filter(|until| *until > now);
            Ok(held.map(under_a_lease))
        })
    }

    fn now(&self) -> Timestamp {
        StoreBackend::now(self)
    }

    fn clock_follows_events(&self) -> bool {
        false
    }

    fn open_events(&self) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let census = self.counts().await?;
            Ok(census.waiting + census.running)
        })
    }
}

/// The store's mark, if it is part of a copy.
pub async fn mark_of(shelf: &dyn VersionedBackend) -> Result<Option<CopyRole>, StoreError> {
    Ok(register(shelf, MARK).await?.0.map(|register| CopyRole::of(&register)))
}

async fn register(
    shelf: &(impl VersionedBackend + ?Sized),
    key: Key,
) -> Result<(Option<SubjectRegister>, ExpectedVersion), StoreError> {
    let cells = shelf.read(vec![RecordId::Register(key)], 0).await?.cells;
    let found = cells.into_iter().find(|(cell, _)| *cell == RecordId::Register(key)).map(|(_, found)| found);
    Ok(match found {
        Some(Record::Register(register, version)) => (Some(register), ExpectedVersion::Version(version)),
        _ => (None, ExpectedVersion::Absent),
    })
}

/// All of these register updates as one conditional write; `None` if one of them no longer matches.
async fn note(
    shelf: &impl VersionedBackend,
    notes: Vec<CopyRegisterCas>,
) -> Result<Option<ConditionalWrite>, StoreError> {
    let mut swap = ConditionalWrite::default();
    for CopyRegisterCas { key, was, is } in notes {
        let (register, seen) = register(shelf, key).await?;
        if register != was {
            return Ok(None);
        }
        swap.seen.push((RecordId::Register(key), seen));
        if is == was {
            continue;
        }
        swap.ops.extend(match is {
            Some(register) => Some(RecordWrite::SetRegister(key, register, txn::new_version())),
            None => was.map(|_| RecordWrite::RemoveRegister(key)),
        });
    }
    Ok(Some(swap))
}

/// The version of the mark that this write expects.
fn mark_in(swap: &ConditionalWrite) -> Option<RecordVersion> {
    swap.seen.iter().find_map(|(cell, seen)| match (cell, seen) {
        (RecordId::Register(MARK), ExpectedVersion::Version(version)) => Some(*version),
        _ => None,
    })
}

/// The writes of one page: its entries, each if it is not there, and its register updates last. No entry is written
/// unless the registers are as expected: another copy may have finished, and nodes may use the store.
fn written(entries: Vec<CopyEntry>, note: ConditionalWrite) -> (Vec<ConditionalWrite>, UnversionedCopyData) {
    let (mut swaps, mut beside) = (Vec::new(), UnversionedCopyData::default());
    for entry in entries {
        let (cell, ops) = match entry {
            CopyEntry::Event(whole) => (Some(RecordId::Event(whole.row.event.id)), event(*whole)),
            CopyEntry::Register(key, register) => {
                (Some(RecordId::Register(key)), vec![RecordWrite::SetRegister(key, register, txn::new_version())])
            }
            CopyEntry::Slot(group, holder) => {
                (Some(RecordId::Slot(group)), vec![RecordWrite::SetSlot(group, holder, txn::new_version())])
            }
            CopyEntry::Imported(key) => (None, vec![RecordWrite::SetImported(key)]),
            CopyEntry::Recipe(recipe) => {
                beside.recipes.get_or_insert_default().push(recipe);
                continue;
            }
            CopyEntry::Retention(row) => {
                beside.retention.get_or_insert_default().push(row);
                continue;
            }
            CopyEntry::Quarantined(message) => {
                beside.quarantined.push(*message);
                continue;
            }
        };
        let seen =
            cell.map(|cell| (cell, ExpectedVersion::Absent)).into_iter().chain(note.seen.iter().copied()).collect();
        swaps.push(ConditionalWrite { seen, ops });
    }
    swaps.push(note);
    (swaps, beside)
}

fn event(
    CompleteEvent { row, keys, payload, receipt, tried, duplicates, sightings }: CompleteEvent,
) -> Vec<RecordWrite> {
    let id = row.event.id;
    let mut ops = vec![RecordWrite::Put { was: None, row: Box::new(row), version: txn::new_version(), payload }];
    ops.extend(keys.into_iter().map(|(key, held)| RecordWrite::Hold(key, held)));
    ops.extend(receipt.map(|receipt| RecordWrite::SetReceipt(id, Some(receipt))));
    ops.extend(tried.into_iter().map(|tried| RecordWrite::SetTried(id, tried)));
    if duplicates > 0 {
        ops.push(RecordWrite::SetSightings(id, duplicates, sightings));
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::id::EventId;

    #[test]
    fn no_entry_of_a_page_is_written_if_its_mark_or_position_has_changed() {
        let (mark, place) = (ExpectedVersion::Version(RecordVersion(7)), ExpectedVersion::Absent);
        let seen = vec![(RecordId::Register(MARK), mark), (RecordId::Register(Key([1; 32])), place)];
        let note = ConditionalWrite { seen: seen.clone(), ops: Vec::new() };
        let (group, key) = (Key([2; 32]), Key([3; 32]));
        let entries = vec![CopyEntry::Slot(group, EventId([4; 16])), CopyEntry::Imported(key)];
        let (swaps, beside) = written(entries, note);
        assert_eq!((swaps.len(), beside), (3, UnversionedCopyData::default()));
        for swap in &swaps {
            assert!(swap.seen.ends_with(&seen), "{swap:?}");
            assert_eq!(mark_in(swap), Some(RecordVersion(7)));
        }
        assert_eq!(swaps[0].seen[0], (RecordId::Slot(group), ExpectedVersion::Absent));
    }
}
