//! A draft: the ledger's rules run over copies of cells, and what they would write.
//!
//! Inputs are drafted one after another; each sees what those before it would write, and what it saw is noted, so
//! that it is written only where it is still so.

use super::{Cell, Found, Op, Reading, Seen, Slot, Swap, Version};
use crate::decide::change::Tried;
use crate::decide::claim::Payload;
use crate::decide::event::{Cause, Event, Receipt, State};
use crate::decide::id::{EventId, Key, Turn};
use crate::decide::time::Timestamp;
use crate::store::ledger::{self, Held, Ledger, Register, Row};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Cells as they were read.
#[derive(Debug, Default)]
pub struct Copies {
    cells: HashMap<Cell, Found>,
    now: Timestamp,
    turn: u64,
}

impl Copies {
    /// Adds what was read. The last reading's turns count: they were taken after every slot was read.
    pub fn add(&mut self, reading: Reading) {
        self.cells.extend(reading.cells);
        self.now = self.now.max(reading.now);
        self.turn = reading.turn.0;
    }

    /// The store's clock.
    pub fn now(&self) -> Timestamp {
        self.now
    }
}

/// Why a rule could not go on.
#[derive(Clone, Copy, Debug)]
pub enum Blank {
    /// This was not read yet.
    Unread(Cell),
    /// The part of a group's queue that was read is used up by this very batch.
    QueueUnread,
}

/// The rules' view of the copies.
pub struct Draft<'c> {
    copies: &'c Copies,
    /// What inputs before this one would write.
    before: Written,
    /// What this one would.
    own: Written,
    seen: BTreeMap<Cell, Seen>,
    ops: Vec<Op>,
    leans: bool,
    turn: u64,
}

#[derive(Default)]
struct Written {
    cells: HashMap<Cell, Found>,
    gone: HashSet<EventId>,
}

type Drawn<T> = Result<T, Blank>;

impl<'c> Draft<'c> {
    /// An empty draft over these.
    pub fn over(copies: &'c Copies) -> Self {
        Self {
            copies,
            before: Written::default(),
            own: Written::default(),
            seen: BTreeMap::new(),
            ops: Vec::new(),
            leans: false,
            turn: copies.turn,
        }
    }

    /// Ends this input: what it would write, and whether that rests on what others of the draft would.
    pub fn keep(&mut self) -> (Swap, bool) {
        let own = std::mem::take(&mut self.own);
        self.before.cells.extend(own.cells);
        self.before.gone.extend(own.gone);
        let swap =
            Swap { seen: std::mem::take(&mut self.seen).into_iter().collect(), ops: std::mem::take(&mut self.ops) };
        (swap, std::mem::take(&mut self.leans))
    }

    /// Drops what this input would write.
    pub fn drop_item(&mut self) {
        self.own = Written::default();
        self.seen.clear();
        self.ops.clear();
        self.leans = false;
    }

    /// What a cell holds, as far as this draft has come. What is seen for the first time is noted.
    fn look(&mut self, cell: Cell) -> Drawn<Found> {
        if let Some(found) = self.own.cells.get(&cell) {
            return Ok(found.clone());
        }
        let drafted = self.before.cells.get(&cell);
        self.leans |= drafted.is_some();
        let found = match drafted {
            Some(found) => found.clone(),
            None => self.copies.cells.get(&cell).cloned().ok_or(Blank::Unread(cell))?,
        };
        let holder = match &found {
            Found::Key(held) => Some(held.event),
            _ => None,
        };
        let was_freed = holder.is_some_and(|event| self.before.gone.contains(&event));
        self.leans |= was_freed;
        let found = if was_freed { Found::Nothing } else { found };
        if !matches!(cell, Cell::Imported(_)) {
            self.seen.entry(cell).or_insert(Seen::of(&found));
        }
        if holder.is_some_and(|event| self.own.gone.contains(&event)) {
            return Ok(Found::Nothing);
        }
        Ok(found)
    }

    fn write(&mut self, cell: Cell, found: Found, op: Op) {
        self.own.cells.insert(cell, found);
        self.ops.push(op);
    }

    fn put(&mut self, row: &Row, payload: Option<&Payload>) -> Drawn<()> {
        let was = self.row(row.event.id)?;
        self.queue(was.as_ref(), row)?;
        let version = new_version();
        let (was, now) = (was.map(Box::new), Box::new(row.clone()));
        let op = Op::Put { was, row: now.clone(), version, payload: payload.cloned() };
        self.write(Cell::Event(row.event.id), Found::Event(now, version), op);
        Ok(())
    }

    /// Keeps a group's queue as it becomes. Who lines up or leaves writes the slot too: whoever is about to free it or
    /// to hand it on must notice.
    fn queue(&mut self, was: Option<&Row>, row: &Row) -> Drawn<()> {
        let (left, joined) = (was.and_then(|row| ledger::parking(&row.event)), ledger::parking(&row.event));
        let Some((group, ..)) = left.or(joined).filter(|_| left != joined) else { return Ok(()) };
        let Found::Slot(mut slot, _) = self.look(Cell::Slot(group))? else { return Ok(()) };
        slot.parked.retain(|(_, id)| *id != row.event.id);
        if let Some((_, turn, id)) = joined {
            let place = slot.parked.partition_point(|before| *before < (turn, id));
            if place < slot.parked.len() || !slot.more {
                slot.parked.insert(place, (turn, id));
            }
        }
        let (holder, version) = (slot.holder, new_version());
        self.write(Cell::Slot(group), Found::Slot(slot, version), Op::SetSlot(group, holder, version));
        Ok(())
    }

    /// Removes an event's body if it ended before then; says whether it did.
    pub fn remove_body(&mut self, id: EventId, before: Timestamp) -> Drawn<bool> {
        let row = self.row(id)?.filter(|row| row.event.state.ended().is_some_and(|at| at <= before));
        Ok(match row {
            Some(row) => {
                self.ops.push(Op::RemoveBody(Box::new(row)));
                true
            }
            None => false,
        })
    }
}

impl Ledger for Draft<'_> {
    type Error = Blank;

    fn row(&mut self, id: EventId) -> Drawn<Option<Row>> {
        Ok(match self.look(Cell::Event(id))? {
            Found::Event(row, _) => Some(*row),
            _ => None,
        })
    }

    fn insert(&mut self, row: &Row, payload: Option<&Payload>) -> Drawn<()> {
        self.put(row, payload)
    }

    fn update(&mut self, row: &Row) -> Drawn<()> {
        self.put(row, None)
    }

    fn remove(&mut self, id: EventId) -> Drawn<()> {
        let row = self.row(id)?.map(Box::new);
        self.own.gone.insert(id);
        self.write(Cell::Event(id), Found::Nothing, Op::Remove(id, row));
        Ok(())
    }

    fn held(&mut self, key: &Key) -> Drawn<Option<Held>> {
        Ok(match self.look(Cell::Key(*key))? {
            Found::Key(held) => Some(held),
            _ => None,
        })
    }

    fn hold(&mut self, key: &Key, held: &Held) -> Drawn<()> {
        if self.held(key)?.is_none() {
            self.write(Cell::Key(*key), Found::Key(held.clone()), Op::Hold(*key, held.clone()));
        }
        Ok(())
    }

    fn is_imported(&mut self, key: &Key) -> Drawn<bool> {
        Ok(self.look(Cell::Imported(*key))? == Found::Imported)
    }

    fn set_imported(&mut self, key: &Key) -> Drawn<bool> {
        let new = !self.is_imported(key)?;
        if new {
            self.write(Cell::Imported(*key), Found::Imported, Op::SetImported(*key));
        }
        Ok(new)
    }

    fn register(&mut self, subject: &Key) -> Drawn<Option<Register>> {
        Ok(match self.look(Cell::Register(*subject))? {
            Found::Register(register, _) => Some(register),
            _ => None,
        })
    }

    fn set_register(&mut self, subject: &Key, register: &Register) -> Drawn<()> {
        let version = new_version();
        let op = Op::SetRegister(*subject, *register, version);
        self.write(Cell::Register(*subject), Found::Register(*register, version), op);
        Ok(())
    }

    fn remove_register(&mut self, subject: &Key) -> Drawn<()> {
        self.write(Cell::Register(*subject), Found::Nothing, Op::RemoveRegister(*subject));
        Ok(())
    }

    fn slot(&mut self, group: &Key) -> Drawn<Option<EventId>> {
        Ok(match self.look(Cell::Slot(*group))? {
            Found::Slot(slot, _) => Some(slot.holder),
            _ => None,
        })
    }

    fn set_slot(&mut self, group: &Key, event: Option<EventId>) -> Drawn<()> {
        let was = self.look(Cell::Slot(*group))?;
        let Some(holder) = event else {
            self.write(Cell::Slot(*group), Found::Nothing, Op::FreeSlot(*group));
            return Ok(());
        };
        let (parked, more) = match was {
            Found::Slot(slot, _) => (slot.parked, slot.more),
            _ => (Vec::new(), false),
        };
        let version = new_version();
        let found = Found::Slot(Slot { holder, parked, more }, version);
        self.write(Cell::Slot(*group), found, Op::SetSlot(*group, holder, version));
        Ok(())
    }

    /// A row may be newer than the queue that names it: who has left since, or is gone, is passed over. One that cannot
    /// be read has its turn all the same, and is ended when it comes up.
    fn parked(&mut self, group: &Key) -> Drawn<Option<Row>> {
        let Found::Slot(Slot { parked, more, .. }, _) = self.look(Cell::Slot(*group))? else { return Ok(None) };
        for (turn, id) in parked {
            let waits = |row: &Row| {
                let is_damaged = matches!(row.event.state, State::Dead { cause: Cause::Damaged, .. });
                is_damaged || ledger::parking(&row.event) == Some((*group, turn, id))
            };
            if let Some(row) = self.row(id)?.filter(waits) {
                return Ok(Some(row));
            }
        }
        if more { Err(Blank::QueueUnread) } else { Ok(None) }
    }

    fn next_turn(&mut self) -> Turn {
        self.turn += 1;
        Turn(self.turn - 1)
    }

    fn set_payload(&mut self, event: &Event, payload: &Payload) -> Drawn<()> {
        self.ops.push(Op::SetPayload(Box::new(event.clone()), payload.clone()));
        Ok(())
    }

    fn set_receipt(&mut self, id: EventId, receipt: Option<&Receipt>) -> Drawn<()> {
        self.ops.push(Op::SetReceipt(id, receipt.cloned()));
        Ok(())
    }

    fn shed(&mut self, id: EventId) -> Drawn<()> {
        self.ops.push(Op::Shed(id));
        Ok(())
    }

    fn set_tried(&mut self, id: EventId, tried: &Tried) -> Drawn<()> {
        self.ops.push(Op::SetTried(id, tried.clone()));
        Ok(())
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system gives random bytes");
    u64::from_be_bytes(bytes)
}

/// A version nobody has used: 63 bits, so that every store can keep it as a number.
pub(in crate::store) fn new_version() -> Version {
    Version(random() >> 1)
}

/// A number from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "any number near will do")]
pub(super) fn chance() -> f64 {
    random() as f64 / u64::MAX as f64
}
