//! An optimistic transaction: the ledger's rules run over copies of records, collecting what they would write.
//!
//! Inputs are processed one after another. Each sees what those before it would write, and the versions it read are
//! noted, so that it is written only if they still hold.

use super::{ConditionalWrite, ExpectedVersion, GroupSlot, ReadBatch, Record, RecordId, RecordVersion, RecordWrite};
use crate::decide::claim::Payload;
use crate::decide::event::{DeathCause, Event, EventState, Receipt};
use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::ledger::{self, EventRow, KeyOwner, Ledger, SubjectRegister};
use crate::decide::time::Timestamp;
use crate::decide::transition::AttemptRecord;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Records as they were read.
#[derive(Debug, Default)]
pub struct ReadSet {
    cells: HashMap<RecordId, Record>,
    now: Timestamp,
    turn: u64,
}

impl ReadSet {
    /// Adds records. The turns of the last read count: they were taken after every slot was read.
    pub fn add(&mut self, reading: ReadBatch) {
        self.cells.extend(reading.cells);
        self.now = self.now.max(reading.now);
        self.turn = reading.turn.0;
    }

    /// This record; and if it is one of several notifications of an event that was read, the others, too: whoever reads
    /// one of them reads them all.
    pub fn with_siblings(&self, cell: RecordId) -> Vec<RecordId> {
        let siblings = self.cells.values().find_map(|found| match (found, cell) {
            (Record::Event(row, _), RecordId::Event(id)) if row.event.notifications.contains(&id) => {
                Some(&row.event.notifications)
            }
            _ => None,
        });
        let siblings = siblings.into_iter().flatten().map(|id| RecordId::Event(*id));
        siblings.filter(|other| *other != cell && !self.cells.contains_key(other)).chain([cell]).collect()
    }

    /// The store's clock.
    pub fn now(&self) -> Timestamp {
        self.now
    }
}

/// A record that a rule needs and that was not read yet: the caller reads it, and runs the rule again.
#[derive(Clone, Copy, Debug)]
pub enum NeedsRead {
    /// This record was not read yet.
    Unread(RecordId),
    /// The part of a group's queue that was read is used up by this very batch.
    QueueUnread,
}

/// An optimistic transaction: a [`Ledger`] over copies of records that collects what was read and what to write.
pub struct OptimisticTxn<'c> {
    copies: &'c ReadSet,
    /// What the inputs before this one would write.
    before: PendingWrites,
    /// What this input would write.
    own: PendingWrites,
    seen: BTreeMap<RecordId, ExpectedVersion>,
    ops: Vec<RecordWrite>,
    leans: bool,
    turn: u64,
}

#[derive(Default)]
struct PendingWrites {
    cells: HashMap<RecordId, Record>,
    gone: HashSet<EventId>,
}

type TxnResult<T> = Result<T, NeedsRead>;

impl<'c> OptimisticTxn<'c> {
    /// An empty transaction over these copies.
    pub fn over(copies: &'c ReadSet) -> Self {
        Self {
            copies,
            before: PendingWrites::default(),
            own: PendingWrites::default(),
            seen: BTreeMap::new(),
            ops: Vec::new(),
            leans: false,
            turn: copies.turn,
        }
    }

    /// Ends this input: returns what it would write, and whether that depends on other inputs of the batch.
    pub fn finish_input(&mut self) -> (ConditionalWrite, bool) {
        let own = std::mem::take(&mut self.own);
        self.before.cells.extend(own.cells);
        self.before.gone.extend(own.gone);
        let swap = ConditionalWrite {
            seen: std::mem::take(&mut self.seen).into_iter().collect(),
            ops: std::mem::take(&mut self.ops),
        };
        (swap, std::mem::take(&mut self.leans))
    }

    /// Drops what this input would write.
    pub fn drop_item(&mut self) {
        self.own = PendingWrites::default();
        self.seen.clear();
        self.ops.clear();
        self.leans = false;
    }

    /// The current content of a record within this transaction. On the first read its version is noted.
    fn look(&mut self, cell: RecordId) -> TxnResult<Record> {
        if let Some(found) = self.own.cells.get(&cell) {
            return Ok(found.clone());
        }
        let drafted = self.before.cells.get(&cell);
        self.leans |= drafted.is_some();
        let found = match drafted {
            Some(found) => found.clone(),
            None => self.copies.cells.get(&cell).cloned().ok_or(NeedsRead::Unread(cell))?,
        };
        let holder = match &found {
            Record::Key(held) => Some(held.event),
            _ => None,
        };
        let was_freed = holder.is_some_and(|event| self.before.gone.contains(&event));
        self.leans |= was_freed;
        let found = if was_freed { Record::Nothing } else { found };
        if !matches!(cell, RecordId::Imported(_)) {
            self.seen.entry(cell).or_insert(ExpectedVersion::of(&found));
        }
        if holder.is_some_and(|event| self.own.gone.contains(&event)) {
            return Ok(Record::Nothing);
        }
        Ok(found)
    }

    fn write(&mut self, cell: RecordId, found: Record, op: RecordWrite) {
        self.own.cells.insert(cell, found);
        self.ops.push(op);
    }

    fn put(&mut self, row: &EventRow, payload: Option<&Payload>) -> TxnResult<()> {
        let was = self.row(row.event.id)?;
        self.queue(was.as_ref(), row)?;
        let version = new_version();
        let (was, now) = (was.map(Box::new), Box::new(row.clone()));
        let op = RecordWrite::Put { was, row: now.clone(), version, payload: payload.cloned() };
        self.write(RecordId::Event(row.event.id), Record::Event(now, version), op);
        Ok(())
    }

    /// Updates a group's queue. An event that joins or leaves it also rewrites the slot, so that a concurrent write
    /// that frees the slot or hands it on conflicts.
    fn queue(&mut self, was: Option<&EventRow>, row: &EventRow) -> TxnResult<()> {
        let (left, joined) = (was.and_then(|row| ledger::parking(&row.event)), ledger::parking(&row.event));
        let Some((group, ..)) = left.or(joined).filter(|_| left != joined) else { return Ok(()) };
        let Record::Slot(mut slot, _) = self.look(RecordId::Slot(group))? else { return Ok(()) };
        slot.parked.retain(|(_, id)| *id != row.event.id);
        if let Some((_, turn, id)) = joined {
            let place = slot.parked.partition_point(|before| *before < (turn, id));
            if place < slot.parked.len() || !slot.more {
                slot.parked.insert(place, (turn, id));
            }
        }
        let (holder, version) = (slot.holder, new_version());
        self.write(RecordId::Slot(group), Record::Slot(slot, version), RecordWrite::SetSlot(group, holder, version));
        Ok(())
    }

    /// Removes an event's body if it ended before then; returns whether it did.
    pub fn remove_body(&mut self, id: EventId, before: Timestamp) -> TxnResult<bool> {
        let row = self.row(id)?.filter(|row| row.event.state.ended().is_some_and(|at| at <= before));
        Ok(match row {
            Some(row) => {
                self.ops.push(RecordWrite::RemoveBody(Box::new(row)));
                true
            }
            None => false,
        })
    }
}

impl Ledger for OptimisticTxn<'_> {
    type Error = NeedsRead;

    fn row(&mut self, id: EventId) -> TxnResult<Option<EventRow>> {
        Ok(match self.look(RecordId::Event(id))? {
            Record::Event(row, _) => Some(*row),
            _ => None,
        })
    }

    fn insert(&mut self, row: &EventRow, payload: Option<&Payload>) -> TxnResult<()> {
        self.put(row, payload)
    }

    fn update(&mut self, row: &EventRow) -> TxnResult<()> {
        self.put(row, None)
    }

    fn remove(&mut self, id: EventId) -> TxnResult<()> {
        let row = self.row(id)?.map(Box::new);
        self.own.gone.insert(id);
        self.write(RecordId::Event(id), Record::Nothing, RecordWrite::Remove(id, row));
        Ok(())
    }

    fn key_owner(&mut self, key: &Key) -> TxnResult<Option<KeyOwner>> {
        Ok(match self.look(RecordId::Key(*key))? {
            Record::Key(held) => Some(held),
            _ => None,
        })
    }

    fn set_key_owner(&mut self, key: &Key, held: &KeyOwner) -> TxnResult<()> {
        if self.key_owner(key)?.is_none() {
            self.write(RecordId::Key(*key), Record::Key(held.clone()), RecordWrite::Hold(*key, held.clone()));
        }
        Ok(())
    }

    fn is_imported(&mut self, key: &Key) -> TxnResult<bool> {
        Ok(self.look(RecordId::Imported(*key))? == Record::Imported)
    }

    fn set_imported(&mut self, key: &Key) -> TxnResult<bool> {
        let new = !self.is_imported(key)?;
        if new {
            self.write(RecordId::Imported(*key), Record::Imported, RecordWrite::SetImported(*key));
        }
        Ok(new)
    }

    fn register(&mut self, subject: &Key) -> TxnResult<Option<SubjectRegister>> {
        Ok(match self.look(RecordId::Register(*subject))? {
            Record::Register(register, _) => Some(register),
            _ => None,
        })
    }

    fn set_register(&mut self, subject: &Key, register: &SubjectRegister) -> TxnResult<()> {
        let version = new_version();
        let op = RecordWrite::SetRegister(*subject, register.clone(), version);
        self.write(RecordId::Register(*subject), Record::Register(register.clone(), version), op);
        Ok(())
    }

    fn remove_register(&mut self, subject: &Key) -> TxnResult<()> {
        self.write(RecordId::Register(*subject), Record::Nothing, RecordWrite::RemoveRegister(*subject));
        Ok(())
    }

    fn slot(&mut self, group: &Key) -> TxnResult<Option<EventId>> {
        Ok(match self.look(RecordId::Slot(*group))? {
            Record::Slot(slot, _) => Some(slot.holder),
            _ => None,
        })
    }

    fn set_slot(&mut self, group: &Key, event: Option<EventId>) -> TxnResult<()> {
        let was = self.look(RecordId::Slot(*group))?;
        let Some(holder) = event else {
            self.write(RecordId::Slot(*group), Record::Nothing, RecordWrite::FreeSlot(*group));
            return Ok(());
        };
        let (parked, more) = match was {
            Record::Slot(slot, _) => (slot.parked, slot.more),
            _ => (Vec::new(), false),
        };
        let version = new_version();
        let found = Record::Slot(GroupSlot { holder, parked, more }, version);
        self.write(RecordId::Slot(*group), found, RecordWrite::SetSlot(*group, holder, version));
        Ok(())
    }

    /// A row may be newer than the queue that names it: an event that has left since, or is gone, is skipped. One that
    /// cannot be read counts as parked, as the queue says: it gets its turn, and is ended then.
    fn parked(&mut self, group: &Key) -> TxnResult<Option<EventRow>> {
        let Record::Slot(GroupSlot { parked, more, .. }, _) = self.look(RecordId::Slot(*group))? else {
            return Ok(None);
        };
        for (turn, id) in parked {
            let Some(mut row) = self.row(id)? else { continue };
            if let EventState::Dead { cause: DeathCause::Damaged, .. } = row.event.state {
                row.event.state = EventState::Waiting { due: None };
                return Ok(Some(row));
            }
            if ledger::parking(&row.event) == Some((*group, turn, id)) {
                return Ok(Some(row));
            }
        }
        if more { Err(NeedsRead::QueueUnread) } else { Ok(None) }
    }

    fn next_turn(&mut self) -> QueueTurn {
        self.turn += 1;
        QueueTurn(self.turn - 1)
    }

    fn set_payload(&mut self, event: &Event, payload: &Payload) -> TxnResult<()> {
        self.ops.push(RecordWrite::SetPayload(Box::new(event.clone()), payload.clone()));
        Ok(())
    }

    fn set_receipt(&mut self, id: EventId, receipt: Option<&Receipt>) -> TxnResult<()> {
        self.ops.push(RecordWrite::SetReceipt(id, receipt.cloned()));
        Ok(())
    }

    fn drop_transient_headers(&mut self, id: EventId) -> TxnResult<()> {
        self.ops.push(RecordWrite::Shed(id));
        Ok(())
    }

    fn add_attempt(&mut self, id: EventId, tried: &AttemptRecord) -> TxnResult<()> {
        self.ops.push(RecordWrite::SetTried(id, tried.clone()));
        Ok(())
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system gives random bytes");
    u64::from_be_bytes(bytes)
}

/// A new random version: 63 bits, so that every store can keep it as a number.
pub(in crate::store) fn new_version() -> RecordVersion {
    RecordVersion(random() >> 1)
}

/// A number from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "precision does not matter")]
pub(super) fn chance() -> f64 {
    random() as f64 / u64::MAX as f64
}
