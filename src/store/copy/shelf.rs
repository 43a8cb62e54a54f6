//! A store that nodes share, as one that can be copied: what is written goes through its swaps.

use super::mark::MARK;
use super::{CopyMark, CopyStore, Cursor, Entry, Exported, Note, Whole};
use crate::decide::id::{Key, Turn};
use crate::decide::time::Timestamp;
use crate::store::ledger::Register;
use crate::store::shared::{Cell, Found, Op, Seen, Shelf, Swap, TURNS_AT_ONCE, draft};
use crate::store::{Answer, Listing, Look, StoreError};
use std::borrow::Cow;

/// A shelf that can be read to its end.
pub trait ExportShelf: Shelf {
    /// See [`CopyStore::export`].
    fn export(&self, from: Cursor, limit: usize) -> Answer<'_, Exported>;
    /// See [`CopyStore::entries`].
    fn entries(&self) -> Answer<'_, u64>;
    /// A sentence about the nodes that are connected, where the server can tell.
    fn connected(&self) -> Answer<'_, Option<String>>;
    /// Removes what it knows of how long sources' events are kept.
    fn clear_retention(&self) -> Answer<'_, ()>;
}

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
            let (mut swaps, mut recipes, mut kept) = (Vec::new(), Vec::new(), Vec::new());
            for entry in entries {
                match swap(entry) {
                    Filled::Swap(swap) => swaps.push(swap),
                    Filled::Recipe(recipe) => recipes.push(recipe),
                    Filled::Retention(row) => kept.push(row),
                    Filled::Quarantined(message) => self.quarantine(*message).await?,
                }
            }
            if !recipes.is_empty() {
                self.remember(recipes).await?;
            }
            if !kept.is_empty() {
                self.retain(kept).await?;
            }
            match note(self, notes).await? {
                Some(note) => swaps.push(note),
                None => return Ok(false),
            }
            let written = self.fill(swaps).await?;
            Ok(written.last() == Some(&true))
        })
    }

    fn noted(&self, key: Key) -> Answer<'_, Option<Register>> {
        Box::pin(async move { Ok(register(self, key).await?.0) })
    }

    fn clear_recipes(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.remember(Vec::new()).await?;
            self.clear_retention().await
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
            Ok(held.map(|until| {
                format!("an event runs under a lease until {until}; after a crash, wait until that has passed")
            }))
        })
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Shelf::text(self, text)
    }

    fn now(&self) -> Timestamp {
        Shelf::clock(self).now()
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
        swap.ops.extend(match is {
            Some(register) => Some(Op::SetRegister(key, register, draft::new_version())),
            None => was.map(|_| Op::RemoveRegister(key)),
        });
    }
    Ok(Some(swap))
}

/// How an entry is written.
enum Filled {
    Swap(Swap),
    Recipe(crate::decide::recipe::Recipe),
    Retention(crate::store::SourceRetention),
    Quarantined(Box<crate::store::quarantine::Quarantined>),
}

/// One entry, written if it is not there.
fn swap(entry: Entry) -> Filled {
    let (cell, ops) = match entry {
        Entry::Event(whole) => {
            let Whole { row, keys, payload, receipt, tried, duplicates, sightings } = *whole;
            let id = row.event.id;
            let mut ops = vec![Op::Put { was: None, row: Box::new(row), version: draft::new_version(), payload }];
            ops.extend(keys.into_iter().map(|(key, held)| Op::Hold(key, held)));
            ops.extend(receipt.map(|receipt| Op::SetReceipt(id, Some(receipt))));
            ops.extend(tried.into_iter().map(|tried| Op::SetTried(id, tried)));
            if duplicates > 0 {
                ops.push(Op::SetSightings(id, duplicates, sightings));
            }
            (Cell::Event(id), ops)
        }
        Entry::Register(key, register) => {
            (Cell::Register(key), vec![Op::SetRegister(key, register, draft::new_version())])
        }
        Entry::Slot(group, holder) => (Cell::Slot(group), vec![Op::SetSlot(group, holder, draft::new_version())]),
        Entry::Imported(key) => return Filled::Swap(Swap { seen: Vec::new(), ops: vec![Op::SetImported(key)] }),
        Entry::Recipe(recipe) => return Filled::Recipe(recipe),
        Entry::Retention(row) => return Filled::Retention(row),
        Entry::Quarantined(message) => return Filled::Quarantined(message),
    };
    Filled::Swap(Swap { seen: vec![(cell, Seen::Absent)], ops })
}
