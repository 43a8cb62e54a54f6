//! A store that nodes share, as one that can be copied: what is written goes through its swaps.

use super::mark::MARK;
use super::{CopyMark, CopyStore, Cursor, Entry, Exported, Note, Whole, under_a_lease};
use crate::decide::id::{Key, Turn};
use crate::decide::recipe::Recipe;
use crate::decide::time::Timestamp;
use crate::store::ledger::Register;
use crate::store::quarantine::Quarantined;
use crate::store::shared::{Cell, Found, Op, Seen, Shelf, Swap, TURNS_AT_ONCE, Version, draft};
use crate::store::{Answer, Listing, Look, SourceRetention, StoreError};
use std::borrow::Cow;

/// A shelf that can be read to its end.
pub trait ExportShelf: Shelf {
    /// See [`CopyStore::export`].
    fn export(&self, from: Cursor, limit: usize) -> Answer<'_, Exported>;
    /// See [`CopyStore::entries`].
    fn entries(&self) -> Answer<'_, u64>;
    /// A sentence about the nodes that are connected, where the server can tell.
    fn connected(&self) -> Answer<'_, Option<String>>;
    /// Writes what is no cell, all of it or nothing, where the mark of a copy still has this version. Says whether it had.
    fn fill_beside(&self, beside: Beside, mark: Version) -> Answer<'_, bool>;
}

/// What a copy writes that is no cell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Beside {
    /// Recipes, in place of all that are there.
    pub recipes: Option<Vec<Recipe>>,
    /// How long sources' events are kept, in place of all that is known of it.
    pub retention: Option<Vec<SourceRetention>>,
    /// Messages in quarantine, beside those that lie there.
    pub quarantined: Vec<Quarantined>,
}

impl Beside {
    /// The same in writes that are not too large: a message may be of several kilobytes.
    fn pieces(self) -> impl Iterator<Item = Self> {
        let Self { recipes, retention, quarantined } = self;
        let first = Self { recipes, retention, quarantined: Vec::new() };
        let messages: Vec<_> = quarantined.chunks(QUARANTINED_AT_ONCE).map(<[_]>::to_vec).collect();
        let messages = messages.into_iter().map(|quarantined| Self { quarantined, ..Self::default() });
        Some(first).filter(|first| *first != Self::default()).into_iter().chain(messages)
    }
}

/// Messages of the quarantine in one write.
const QUARANTINED_AT_ONCE: usize = 64;
/// Leases that are over, of nodes that were killed, passed over to find one that is not.
const LEASES_READ: usize = 10_000;

impl<S: ExportShelf> CopyStore for S {
    fn export(&self, from: Cursor, limit: usize) -> Answer<'_, Exported> {
        ExportShelf::export(self, from, limit)
    }

    fn entries(&self) -> Answer<'_, u64> {
        ExportShelf::entries(self)
    }

    fn fill(&self, entries: Vec<Entry>, notes: Vec<Note>) -> Answer<'_, bool> {
        Box::pin(async move {
            let Some(note) = note(self, notes).await? else { return Ok(false) };
            let (swaps, beside) = written(entries, note);
            for some in beside.pieces() {
                let mark = swaps.last().and_then(mark_in);
                let mark = mark.ok_or_else(|| StoreError::Broken("a page of a copy without its mark".into()))?;
                if !self.fill_beside(some, mark).await? {
                    return Ok(false);
                }
            }
            Ok(self.fill(swaps).await?.last() == Some(&true))
        })
    }

    fn noted(&self, key: Key) -> Answer<'_, Option<Register>> {
        Box::pin(async move { Ok(register(self, key).await?.0) })
    }

    fn clear_recipes(&self, mark: Register) -> Answer<'_, bool> {
        Box::pin(async move {
            let (register, seen) = register(self, MARK).await?;
            let Seen::Version(version) = seen else { return Ok(false) };
            let nothing = Beside { recipes: Some(Vec::new()), retention: Some(Vec::new()), quarantined: Vec::new() };
            Ok(register == Some(mark) && self.fill_beside(nothing, version).await?)
        })
    }

    fn settled(&self) -> Answer<'_, ()> {
        Shelf::settled(self)
    }

    /// Turns are taken in steps: a store gives only so many at once.
    fn pass_turns(&self, Turn(highest): Turn) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut next = self.read(Vec::new(), 1).await?.turn.0;
            while next <= highest {
                let apart = usize::try_from(highest - next).unwrap_or(usize::MAX).clamp(1, TURNS_AT_ONCE);
                next = self.read(Vec::new(), apart).await?.turn.0;
            }
            Ok(())
        })
    }

    fn last_seen(&self) -> Answer<'_, Option<Timestamp>> {
        Box::pin(async move {
            if let Some(seen) = Shelf::last_seen(self).await? {
                return Ok(Some(seen));
            }
            let newest = self.list(Listing { limit: 1, ..Listing::default() }).await?;
            Ok(newest.first().map(|event| event.received_at))
        })
    }

    fn set_last_seen(&self, time: Timestamp) -> Answer<'_, ()> {
        Box::pin(async move {
            let was = Shelf::last_seen(self).await?;
            Shelf::set_last_seen(self, was, time).await
        })
    }

    /// A lease that is not over is a node's that works, or was killed a moment ago: what it does may still go on.
    fn in_use(&self) -> Answer<'_, Option<String>> {
        Box::pin(async move {
            if let Some(who) = self.connected().await? {
                return Ok(Some(who));
            }
            let leases = self.due(Look::Leases, LEASES_READ).await?.next;
            let now = Shelf::clock(self).now();
            let held = leases.filter(|until| *until > now);
            Ok(held.map(under_a_lease))
        })
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Shelf::text(self, text)
    }

    fn now(&self) -> Timestamp {
        Shelf::clock(self).now()
    }

    fn clock_follows_events(&self) -> bool {
        false
    }

    fn open_events(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let census = self.census().await?;
            Ok(census.waiting + census.running)
        })
    }
}

/// The mark that this store has, if it is part of a copy.
pub async fn mark_of(shelf: &dyn Shelf) -> Result<Option<CopyMark>, StoreError> {
    Ok(register(shelf, MARK).await?.0.map(|register| CopyMark::of(&register)))
}

async fn register(shelf: &(impl Shelf + ?Sized), key: Key) -> Result<(Option<Register>, Seen), StoreError> {
    let cells = shelf.read(vec![Cell::Register(key)], 0).await?.cells;
    let found = cells.into_iter().find(|(cell, _)| *cell == Cell::Register(key)).map(|(_, found)| found);
    Ok(match found {
        Some(Found::Register(register, version)) => (Some(register), Seen::Version(version)),
        _ => (None, Seen::Absent),
    })
}

/// All of these notes as one swap; `None` where one of them does not read as it did.
async fn note(shelf: &impl Shelf, notes: Vec<Note>) -> Result<Option<Swap>, StoreError> {
    let mut swap = Swap::default();
    for Note { key, was, is } in notes {
        let (register, seen) = register(shelf, key).await?;
        if register != was {
            return Ok(None);
        }
        swap.seen.push((Cell::Register(key), seen));
        if is == was {
            continue;
        }
        swap.ops.extend(match is {
            Some(register) => Some(Op::SetRegister(key, register, draft::new_version())),
            None => was.map(|_| Op::RemoveRegister(key)),
        });
    }
    Ok(Some(swap))
}

/// The version of the mark that this swap has seen.
fn mark_in(swap: &Swap) -> Option<Version> {
    swap.seen.iter().find_map(|(cell, seen)| match (cell, seen) {
        (Cell::Register(MARK), Seen::Version(version)) => Some(*version),
        _ => None,
    })
}

/// How a page is written: its entries, each if it is not there, and its notes last. No entry is written unless the notes
/// read as they did: another copy may have finished, and nodes may use the store.
fn written(entries: Vec<Entry>, note: Swap) -> (Vec<Swap>, Beside) {
    let (mut swaps, mut beside) = (Vec::new(), Beside::default());
    for entry in entries {
        let (cell, ops) = match entry {
            Entry::Event(whole) => (Some(Cell::Event(whole.row.event.id)), event(*whole)),
            Entry::Register(key, register) => {
                (Some(Cell::Register(key)), vec![Op::SetRegister(key, register, draft::new_version())])
            }
            Entry::Slot(group, holder) => {
                (Some(Cell::Slot(group)), vec![Op::SetSlot(group, holder, draft::new_version())])
            }
            Entry::Imported(key) => (None, vec![Op::SetImported(key)]),
            Entry::Recipe(recipe) => {
                beside.recipes.get_or_insert_default().push(recipe);
                continue;
            }
            Entry::Retention(row) => {
                beside.retention.get_or_insert_default().push(row);
                continue;
            }
            Entry::Quarantined(message) => {
                beside.quarantined.push(*message);
                continue;
            }
        };
        let seen = cell.map(|cell| (cell, Seen::Absent)).into_iter().chain(note.seen.iter().copied()).collect();
        swaps.push(Swap { seen, ops });
    }
    swaps.push(note);
    (swaps, beside)
}

fn event(Whole { row, keys, payload, receipt, tried, duplicates, sightings }: Whole) -> Vec<Op> {
    let id = row.event.id;
    let mut ops = vec![Op::Put { was: None, row: Box::new(row), version: draft::new_version(), payload }];
    ops.extend(keys.into_iter().map(|(key, held)| Op::Hold(key, held)));
    ops.extend(receipt.map(|receipt| Op::SetReceipt(id, Some(receipt))));
    ops.extend(tried.into_iter().map(|tried| Op::SetTried(id, tried)));
    if duplicates > 0 {
        ops.push(Op::SetSightings(id, duplicates, sightings));
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::id::EventId;

    #[test]
    fn no_entry_of_a_page_is_written_where_its_mark_or_its_place_is_another() {
        let (mark, place) = (Seen::Version(Version(7)), Seen::Absent);
        let seen = vec![(Cell::Register(MARK), mark), (Cell::Register(Key([1; 32])), place)];
        let note = Swap { seen: seen.clone(), ops: Vec::new() };
        let (group, key) = (Key([2; 32]), Key([3; 32]));
        let entries = vec![Entry::Slot(group, EventId([4; 16])), Entry::Imported(key)];
        let (swaps, beside) = written(entries, note);
        assert_eq!((swaps.len(), beside), (3, Beside::default()));
        for swap in &swaps {
            assert!(swap.seen.ends_with(&seen), "{swap:?}");
            assert_eq!(mark_in(swap), Some(Version(7)));
        }
        assert_eq!(swaps[0].seen[0], (Cell::Slot(group), Seen::Absent));
    }
}
