//! The versioned records of a store: their ids, contents, and expected versions.

use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::ledger::{EventRow, KeyOwner, SubjectRegister};

/// The id of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RecordId {
    /// The owner of this key.
    Key(Key),
    /// Whether this key was imported.
    Imported(Key),
    /// What this subject was last changed to.
    Register(Key),
    /// The holder of this group's slot, and the events parked behind it.
    Slot(Key),
    /// An event's row.
    Event(EventId),
}

/// The version of a record, new with every write, so that a rewritten record is never taken for the one that was read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RecordVersion(pub u64);

/// The content of a record.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// Nothing.
    Nothing,
    /// A key's owner.
    Key(KeyOwner),
    /// The key was imported.
    Imported,
    /// A register.
    Register(SubjectRegister, RecordVersion),
    /// A slot.
    Slot(GroupSlot, RecordVersion),
    /// An event.
    Event(Box<EventRow>, RecordVersion),
}

/// A group's slot and the head of its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSlot {
    /// The event that holds it.
    pub holder: EventId,
    /// The first events parked behind it, in the order of their turns.
    pub parked: Vec<(QueueTurn, EventId)>,
    /// Whether more are parked.
    pub more: bool,
}

/// How many of a group's parked events are read with its slot.
pub const PARKED_READ: usize = 8;
/// Maximum number of turns taken at once.
pub const TURNS_AT_ONCE: usize = 16_384;

/// The expected state of a record, on which a conditional write depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpectedVersion {
    /// Empty.
    Absent,
    /// A key owned by this event.
    Holder(EventId),
    /// A register, slot or event of this version.
    Version(RecordVersion),
}

impl ExpectedVersion {
    /// The expectation that matches this record.
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
