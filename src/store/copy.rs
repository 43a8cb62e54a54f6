//! Moving a store: everything that one holds is written into another, and compared.
//!
//! While it is under way the target is marked: no node starts on it, and one that runs there already writes nothing. What
//! is there already is left as it is, so that a copy that was interrupted is simply made again. Afterwards all of it is
//! read back and compared with the source, entry by entry, as far as the target can hold it.

use super::ledger::{Held, Register, Row};
use super::quarantine::Quarantined;
use super::shared::{Cell, Found, Op, Seen, Shelf, Swap, TURNS_AT_ONCE, draft};
use super::{Listing, Sighting, StoreError, Stored};
use crate::decide::change::Tried;
use crate::decide::claim::Payload;
use crate::decide::event::Receipt;
use crate::decide::id::{Digest, EventId, Key};
use crate::decide::key::{self, Part};
use crate::decide::limits;
use crate::decide::recipe::Recipe;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// One thing that a store holds, with all that belongs to it.
#[derive(Clone, PartialEq, Debug)]
pub enum Entry {
    /// An event.
    Event(Box<Whole>),
    /// What a subject was last changed to.
    Register(Key, Register),
    /// Who holds a group's slot.
    Slot(Key, EventId),
    /// A key that was imported.
    Imported(Key),
}

/// An event with all that belongs to it.
#[derive(Clone, PartialEq, Debug)]
pub struct Whole {
    /// Its row.
    pub row: Row,
    /// Its keys, in their order.
    pub keys: Vec<(Key, Held)>,
    /// Headers and body, while they are kept.
    pub payload: Option<Payload>,
    /// The kept answer.
    pub receipt: Option<Receipt>,
    /// Attempts that ended.
    pub tried: Vec<Tried>,
    /// How many duplicates there were.
    pub duplicates: u64,
    /// The first few of them.
    pub sightings: Vec<Sighting>,
}

/// Where reading goes on: after this one of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cursor {
    /// Among events.
    Events(Option<EventId>),
    /// Among registers.
    Registers(Option<Key>),
    /// Among slots.
    Slots(Option<Key>),
    /// Among imported keys.
    Imported(Option<Key>),
}

/// Some entries, and where the next ones are.
#[derive(Clone, Debug)]
pub struct Exported {
    /// In the order of their kind and name.
    pub entries: Vec<Entry>,
    /// `None`: that was all.
    pub next: Option<Cursor>,
}

/// A store that can be read to its end, by somebody who alone may write it.
pub trait Source: Send + Sync {
    /// Up to `limit` entries from there on, and no more after [`limits::BATCH_BYTES_MAX`] of bodies.
    fn export(&self, from: Cursor, limit: usize) -> super::Answer<'_, Exported>;
    /// How many entries there are.
    fn entries(&self) -> super::Answer<'_, u64>;
    /// What each scope's identities were made of.
    fn recipes(&self) -> super::Answer<'_, Vec<Recipe>>;
    /// Messages that lie in quarantine, the newest first: at most `limit`.
    fn quarantined(&self, limit: usize) -> super::Answer<'_, Vec<Quarantined>>;
}

/// What was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Events.
    pub events: u64,
    /// Their keys.
    pub keys: u64,
    /// Registers, slots and imported keys.
    pub others: u64,
    /// Entries that were there already, from a copy that was interrupted.
    pub before: u64,
    /// Of everything, the same on both sides.
    pub digest: Option<Digest>,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Entries so far.
    pub done: u64,
    /// Of so many.
    pub of: u64,
}

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Writing.
    Copies,
    /// Reading back.
    Compares,
}

/// Why a store was not moved.
#[derive(Clone, Debug)]
pub enum CannotCopy {
    /// The target is somebody's.
    NotEmpty,
    /// The target holds an unfinished copy of another store.
    Other,
    /// What was read back is not what was written: this entry, as people name it.
    Differs(String),
    /// One of them did not answer.
    Store(StoreError),
}

impl From<StoreError> for CannotCopy {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for CannotCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmpty => f.write_str(
                "the target already holds events of its own; stop the nodes that run on it, and give an empty one: \
                     a store is moved only into a store that nobody has used",
            ),
            Self::Other => f.write_str(
                "the target holds an unfinished copy of another store; finish that one, or begin with an empty target",
            ),
            Self::Differs(what) => write!(
                f,
                "{what} is not the same in both stores; the target stays marked. Did a node write to one of them \
                 meanwhile? Stop it, and begin again with an empty target"
            ),
            Self::Store(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for CannotCopy {}

/// Entries read and written in one go.
const PAGE: usize = 256;

/// The register that marks an unfinished copy. No subject of a source has this key: it is no key of any scope.
pub(super) const MARK: Key = Key(*b"hookonce: an unfinished copy    ");

/// Whether a write heeds the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heeds {
    /// It is refused where the store is marked.
    Mark,
    /// It is written all the same: it is the copy's own.
    Nothing,
}

/// What a write that heeds the mark is told.
pub(super) fn under_way() -> StoreError {
    StoreError::Down("another store is being moved into it; nothing else is written until that is finished".into())
}

/// Whether this store is the target of a copy that did not finish.
pub async fn is_unfinished(shelf: &dyn Shelf) -> Result<bool, StoreError> {
    Ok(!matches!(found(&read(shelf, vec![Cell::Register(MARK)]).await?, Cell::Register(MARK)), Found::Nothing))
}

/// Copies all of it. `name` says which source it is, so that only its own copy is gone on with.
pub async fn copy(
    from: &dyn Source,
    name: &str,
    to: &dyn Shelf,
    mut tell: impl FnMut(Progress),
) -> Result<Copied, CannotCopy> {
    mark(to, Digest::of(name.as_bytes())).await?;
    let of = from.entries().await?;
    let mut copied = Copied::default();
    let (mut done, mut turn) = (0, 0);
    let mut cursor = Some(Cursor::Events(None));
    while let Some(at) = cursor {
        let Exported { entries, next } = page(from, at, to).await?;
        for entry in &entries {
            copied.count(entry);
            if let Entry::Event(whole) = entry {
                turn = turn.max(whole.row.event.turn.0);
            }
        }
        done += entries.len() as u64;
        let written = to.fill(entries.iter().map(swap).collect()).await?;
        copied.before += written.iter().filter(|written| !**written).count() as u64;
        tell(Progress { stage: Stage::Copies, done, of });
        cursor = next;
    }
    pass_turns(to, turn).await?;
    to.remember(from.recipes().await?).await?;
    for message in from.quarantined(limits::QUARANTINE_MAX).await?.into_iter().rev() {
        to.quarantine(message).await?;
    }
    copied.digest = Some(compare(from, to, of, &mut tell).await?);
    count(to, copied.events).await?;
    unmark(to).await?;
    Ok(copied)
}

async fn unmark(to: &dyn Shelf) -> Result<(), StoreError> {
    let seen = Seen::of(&found(&read(to, vec![Cell::Register(MARK)]).await?, Cell::Register(MARK)));
    let swap = Swap { seen: vec![(Cell::Register(MARK), seen)], ops: vec![Op::RemoveRegister(MARK)] };
    to.fill(vec![swap]).await.map(drop)
}

/// Some entries, as the target can hold them.
async fn page(from: &dyn Source, at: Cursor, to: &dyn Shelf) -> Result<Exported, StoreError> {
    let mut page = from.export(at, PAGE).await?;
    for entry in &mut page.entries {
        entry.fit(to);
    }
    Ok(page)
}

/// Turns go on after this one, the highest that was copied. They are taken in steps: a store gives only so many at once.
async fn pass_turns(to: &dyn Shelf, highest: u64) -> Result<(), StoreError> {
    let mut next = to.read(Vec::new(), 1).await?.turn.0;
    while next <= highest {
        let apart = usize::try_from(highest - next).unwrap_or(usize::MAX).clamp(1, TURNS_AT_ONCE);
        next = to.read(Vec::new(), apart).await?.turn.0;
    }
    Ok(())
}

/// Marks the target, if it is empty or marked by the same copy. A node may run on it: what it writes until it sees the
/// mark is waited for.
async fn mark(to: &dyn Shelf, name: Digest) -> Result<(), CannotCopy> {
    match found(&read(to, vec![Cell::Register(MARK)]).await?, Cell::Register(MARK)) {
        Found::Register(register, _) if register.value == name => return Ok(()),
        Found::Register(..) => return Err(CannotCopy::Other),
        _ => {}
    }
    if !is_empty(to).await? {
        return Err(CannotCopy::NotEmpty);
    }
    let register = Register { value: name, order: None, strict: false, event: EventId([0; 16]) };
    let ops = vec![Op::SetRegister(MARK, register, draft::new_version())];
    match to.fill(vec![Swap { seen: vec![(Cell::Register(MARK), Seen::Absent)], ops }]).await?.first() {
        Some(true) => {}
        _ => return Err(CannotCopy::Other),
    }
    to.settled().await?;
    if !is_empty(to).await? {
        unmark(to).await?;
        return Err(CannotCopy::NotEmpty);
    }
    Ok(())
}

async fn is_empty(to: &dyn Shelf) -> Result<bool, StoreError> {
    Ok(to.list(Listing { limit: 1, ..Listing::default() }).await?.is_empty())
}

/// One entry, written if it is not there.
fn swap(entry: &Entry) -> Swap {
    let (cell, ops) = match entry {
        Entry::Event(whole) => {
            let Whole { row, keys, payload, receipt, tried, duplicates, sightings } = &**whole;
            let id = row.event.id;
            let row = Box::new(row.clone());
            let put = Op::Put { was: None, row, version: draft::new_version(), payload: payload.clone() };
            let mut ops = vec![put];
            ops.extend(keys.iter().map(|(key, held)| Op::Hold(*key, held.clone())));
            ops.extend(receipt.iter().map(|receipt| Op::SetReceipt(id, Some(receipt.clone()))));
            ops.extend(tried.iter().map(|tried| Op::SetTried(id, tried.clone())));
            if *duplicates > 0 {
                ops.push(Op::SetSightings(id, *duplicates, sightings.clone()));
            }
            (Cell::Event(id), ops)
        }
        Entry::Register(key, register) => {
            (Cell::Register(*key), vec![Op::SetRegister(*key, *register, draft::new_version())])
        }
        Entry::Slot(group, holder) => (Cell::Slot(*group), vec![Op::SetSlot(*group, *holder, draft::new_version())]),
        Entry::Imported(key) => return Swap { seen: Vec::new(), ops: vec![Op::SetImported(*key)] },
    };
    Swap { seen: vec![(cell, Seen::Absent)], ops }
}

/// Reads everything again on both sides, and gives the digest of it.
async fn compare(
    from: &dyn Source,
    to: &dyn Shelf,
    of: u64,
    tell: &mut impl FnMut(Progress),
) -> Result<Digest, CannotCopy> {
    let (mut digest, mut done) = (Digest::of(b""), 0);
    let mut cursor = Some(Cursor::Events(None));
    while let Some(at) = cursor {
        let Exported { entries, next } = page(from, at, to).await?;
        let cells = entries.iter().flat_map(cells).collect();
        let there = read(to, cells).await?;
        for entry in &entries {
            if read_back(to, entry, &there).await?.as_ref() != Some(entry) {
                return Err(CannotCopy::Differs(entry.name()));
            }
            digest = entry.digest_after(digest);
        }
        done += entries.len() as u64;
        tell(Progress { stage: Stage::Compares, done, of });
        cursor = next;
    }
    Ok(digest)
}

/// The target holds these events, and no other.
async fn count(to: &dyn Shelf, events: u64) -> Result<(), CannotCopy> {
    let (mut before, mut counted) = (None, 0);
    loop {
        let page = to.list(Listing { before, limit: PAGE, ..Listing::default() }).await?;
        counted += page.len() as u64;
        before = page.last().map(|event| event.id);
        if page.len() < PAGE {
            break;
        }
    }
    if counted == events { Ok(()) } else { Err(CannotCopy::Differs(format!("the number of events ({counted})"))) }
}

fn cells(entry: &Entry) -> Vec<Cell> {
    match entry {
        Entry::Event(whole) => {
            let keys = whole.keys.iter().map(|(key, _)| Cell::Key(*key));
            [Cell::Event(whole.row.event.id)].into_iter().chain(keys).collect()
        }
        Entry::Register(key, _) => vec![Cell::Register(*key)],
        Entry::Slot(group, _) => vec![Cell::Slot(*group)],
        Entry::Imported(key) => vec![Cell::Imported(*key)],
    }
}

/// The same entry as the target has it.
async fn read_back(to: &dyn Shelf, entry: &Entry, there: &There) -> Result<Option<Entry>, StoreError> {
    Ok(match entry {
        Entry::Event(whole) => {
            let id = whole.row.event.id;
            let Found::Event(row, _) = found(there, Cell::Event(id)) else { return Ok(None) };
            let held = whole.keys.iter().filter_map(|(key, _)| match found(there, Cell::Key(*key)) {
                Found::Key(held) => Some((*key, held)),
                _ => None,
            });
            let payload = match to.payload(id).await? {
                Stored::Whole(payload) => Some(payload),
                Stored::Damaged | Stored::Forgotten => None,
            };
            let Some(story) = to.story(id).await? else { return Ok(None) };
            Some(Entry::Event(Box::new(Whole {
                row: *row,
                keys: held.collect(),
                payload,
                receipt: story.receipt,
                tried: story.attempts,
                duplicates: story.duplicates,
                sightings: story.sightings,
            })))
        }
        Entry::Register(key, _) => match found(there, Cell::Register(*key)) {
            Found::Register(register, _) => Some(Entry::Register(*key, register)),
            _ => None,
        },
        Entry::Slot(group, _) => match found(there, Cell::Slot(*group)) {
            Found::Slot(slot, _) => Some(Entry::Slot(*group, slot.holder)),
            _ => None,
        },
        Entry::Imported(key) => (found(there, Cell::Imported(*key)) == Found::Imported).then_some(entry.clone()),
    })
}

/// Cells as they were read.
type There = HashMap<Cell, Found>;

async fn read(shelf: &dyn Shelf, cells: Vec<Cell>) -> Result<There, StoreError> {
    Ok(shelf.read(cells, 0).await?.cells.into_iter().collect())
}

fn found(there: &There, cell: Cell) -> Found {
    there.get(&cell).cloned().unwrap_or(Found::Nothing)
}

impl Copied {
    fn count(&mut self, entry: &Entry) {
        match entry {
            Entry::Event(whole) => {
                self.events += 1;
                self.keys += whole.keys.len() as u64;
            }
            Entry::Register(..) | Entry::Slot(..) | Entry::Imported(_) => self.others += 1,
        }
    }
}

impl Whole {
    /// The bytes of what can be large.
    pub fn bytes(&self) -> usize {
        let (body, answer) = (self.payload.as_ref().map(|p| p.body.len()), self.receipt.as_ref().map(|r| r.body.len()));
        let outputs: usize = self.tried.iter().map(|tried| tried.output.len()).sum();
        body.unwrap_or(0) + answer.unwrap_or(0) + outputs
    }
}

impl Entry {
    /// Brings what is only for people into a form that the target can hold.
    fn fit(&mut self, to: &dyn Shelf) {
        let Self::Event(whole) = self else { return };
        let fit = |text: &mut Option<Arc<str>>| *text = text.as_deref().map(|text| to.text(text).into());
        fit(&mut whole.row.event.delivery_id);
        whole.sightings.iter_mut().for_each(|seen| fit(&mut seen.delivery_id));
        for Tried { outcome, why, .. } in &mut whole.tried {
            *outcome = to.text(outcome).into_owned();
            *why = to.text(why).into_owned();
        }
    }

    /// As people name it.
    fn name(&self) -> String {
        match self {
            Self::Event(whole) => format!("event {}", whole.row.event.id),
            Self::Register(key, _) => format!("register {key:?}"),
            Self::Slot(group, _) => format!("slot {group:?}"),
            Self::Imported(key) => format!("imported key {key:?}"),
        }
    }

    /// The digest of everything up to this one.
    fn digest_after(&self, before: Digest) -> Digest {
        let body = match self {
            Self::Event(whole) => whole.payload.as_ref().map(|payload| Digest::of(&payload.body)),
            Self::Register(..) | Self::Slot(..) | Self::Imported(_) => None,
        };
        let own = format!("{self:?}");
        key::value(&[
            Part::bytes("before", &before.0),
            Part::text("own", &own),
            Part::bytes("body", body.as_ref().map_or(&[], |digest| &digest.0)),
        ])
    }
}
