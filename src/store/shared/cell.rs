//! The cells of a store: what there is one of, what it holds, and what of that must still be so.

use crate::decide::id::{EventId, Key, Turn};
use crate::store::ledger::{Held, Register, Row};

/// One thing a store holds, by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cell {
    /// Who holds this key.
    Key(Key),
    /// Whether this key was imported.
    Imported(Key),
    /// What this subject was last changed to.
    Register(Key),
    /// Who holds this group's slot, and who is parked behind it.
    Slot(Key),
    /// An event's row.
    Event(EventId),
}

/// Made anew by every write to a cell, so that nobody takes what was written again for what was read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Version(pub u64);

/// What a cell holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A key's holder.
    Key(Held),
    /// The key was imported.
    Imported,
    /// A register.
    Register(Register, Version),
    /// A slot.
    Slot(Slot, Version),
    /// An event.
    Event(Box<Row>, Version),
}

/// A group's slot and the head of its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Who holds it.
    pub holder: EventId,
    /// The first that are parked behind it, in the order of their turns.
    pub parked: Vec<(Turn, EventId)>,
    /// Whether there are more.
    pub more: bool,
}

/// How many of a group's parked events are read with its slot.
pub const PARKED_READ: usize = 8;
/// Turns that can be taken at once.
pub const TURNS_AT_ONCE: usize = 16_384;

/// What a cell must still be when something is written because of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Empty.
    Absent,
    /// A key of this event.
    Holder(EventId),
    /// A register, slot or event of this version.
    Version(Version),
}

impl Seen {
    /// What stands for this.
    pub fn of(found: &Found) -> Self {
        match found {
            Found::Nothing | Found::Imported => Self::Absent,
            Found::Key(held) => Self::Holder(held.event),
            Found::Register(_, version) | Found::Slot(_, version) | Found::Event(_, version) => Self::Version(*version),
        }
    }
}
