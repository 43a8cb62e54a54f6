//! The cells of a store: what there is one of, what it holds, and what of that must still be so.

use crate::decide::id::{EventId, Key, QueueTurn};
use crate::store::ledger::{EventRow, KeyOwner, Register};

/// One thing a store holds, by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RecordId {
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
pub struct RecordVersion(pub u64);

/// What a cell holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// Nothing.
    Nothing,
    /// A key's holder.
    Key(KeyOwner),
    /// The key was imported.
    Imported,
    /// A register.
    Register(Register, RecordVersion),
    /// A slot.
    Slot(Slot, RecordVersion),
    /// An event.
    Event(Box<EventRow>, RecordVersion),
}

/// A group's slot and the head of its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Who holds it.
    pub holder: EventId,
    /// The first that are parked behind it, in the order of their turns.
    pub parked: Vec<(QueueTurn, EventId)>,
    /// Whether there are more.
    pub more: bool,
}

/// How many of a group's parked events are read with its slot.
pub const PARKED_READ: usize = 8;
/// Turns that can be taken at once.
pub const TURNS_AT_ONCE: usize = 16_384;

/// What a cell must still be when something is written because of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpectedVersion {
    /// Empty.
    Absent,
    /// A key of this event.
    Holder(EventId),
    /// A register, slot or event of this version.
    Version(RecordVersion),
}

impl ExpectedVersion {
    /// What stands for this.
    pub fn of(found: &Record) -> Self {
        match found {
            Record::Nothing | Record::Imported => Self::Absent,
            Record::Key(held) => Self::Holder(held.event),
            Record::Register(_, version) | Record::Slot(_, version) | Record::Event(_, version) => {
                Self::Version(*version)
            }
        }
    }
}
