//! What a claim would come to now, beside whoever writes: the ledger's own rules over rows that nobody writes.

use super::mark::Mark;
use super::rows::{PARKED, Rows};
use crate::decide::change::Tried;
use crate::decide::claim::{Claim, New, Payload};
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key, Turn};
use crate::store::cells::{self, Found, columns};
use crate::store::ledger::{self, Held, Ledger, Register, Row};
use crate::store::{Moment, Needs, Recalled};
use rusqlite::{Connection, OptionalExtension as _};
use std::collections::{HashMap, HashSet};

type Result<T> = std::result::Result<T, rusqlite::Error>;

/// Claims each of these as if it were alone, in one snapshot, and leaves everything as it is.
pub(super) fn foresee(db: &Connection, new: Vec<New>, at: Moment) -> Result<Vec<Claim>> {
    in_snapshot(db, || {
        let (mut turns, mut mark) = (0, Mark::none());
        let claim = |one| ledger::claim(&mut Glance::new(db, at, &mut turns, &mut mark), one, at);
        new.into_iter().map(claim).collect()
    })
}

/// What a repeat is told, in one snapshot.
pub(super) fn recall(db: &Connection, new: &New, needs: Needs, at: Moment) -> Result<Option<Recalled>> {
    in_snapshot(db, || {
        let (mut turns, mut mark) = (0, Mark::none());
        let mut found = ledger::recall(&mut Glance::new(db, at, &mut turns, &mut mark), new, at)?;
        if let Some(found) = found.as_mut().filter(|found| needs.receipt_of(&found.event)) {
            found.receipt = super::read::receipt(db, found.event.id)?;
        }
        Ok(found)
    })
}

/// All that is read meanwhile is read as it stood at the first of it; the locks are taken once, not for each.
fn in_snapshot<T>(db: &Connection, read: impl FnOnce() -> Result<T>) -> Result<T> {
    db.prepare_cached("begin")?.execute([])?;
    let found = read();
    db.prepare_cached("rollback")?.execute([])?;
    found
}

/// Reads like the writer. Of what it is told to write it remembers what a claim may read again; the rest is dropped.
struct Glance<'t> {
    rows: Rows<'t>,
    gone: HashSet<EventId>,
    slots: HashMap<Key, Option<EventId>>,
}

impl<'t> Glance<'t> {
    fn new(db: &'t Connection, at: Moment, turns: &'t mut u64, mark: &'t mut Mark) -> Self {
        Self { rows: Rows { db, at, turns, mark }, gone: HashSet::new(), slots: HashMap::new() }
    }
}

impl Ledger for Glance<'_> {
    type Error = rusqlite::Error;

    fn row(&mut self, id: EventId) -> Result<Option<Row>> {
        if self.gone.contains(&id) {
            return Ok(None);
        }
        let sql = concat!("select ", columns!(), " from events where id = ?1");
        let found = self.rows.db.prepare_cached(sql)?.query_row([id.0], |row| Ok(cells::read(row))).optional()?;
        // The writer would bury what is damaged; to whoever only looks it is dead already.
        Ok(found.map(|(Found::Whole(row) | Found::Damaged(row, _))| row))
    }

    fn held(&mut self, key: &Key) -> Result<Option<Held>> {
        let held = self.rows.held(key)?;
        Ok(held.filter(|held| !self.gone.contains(&held.event)))
    }

    fn is_imported(&mut self, key: &Key) -> Result<bool> {
        self.rows.is_imported(key)
    }

    fn set_imported(&mut self, _: &Key) -> Result<bool> {
        Ok(true)
    }

    fn register(&mut self, subject: &Key) -> Result<Option<Register>> {
        self.rows.register(subject)
    }

    fn slot(&mut self, group: &Key) -> Result<Option<EventId>> {
        match self.slots.get(group) {
            Some(holder) => Ok(*holder),
            None => self.rows.slot(group),
        }
    }

    fn parked(&mut self, group: &Key) -> Result<Option<Row>> {
        let found = self.rows.db.prepare_cached(PARKED)?.query_row([group.0], |row| Ok(cells::read(row))).optional()?;
        Ok(found.map(|(Found::Whole(row) | Found::Damaged(row, _))| row))
    }

    fn next_turn(&mut self) -> Turn {
        self.rows.next_turn()
    }

    fn insert(&mut self, _: &Row, _: Option<&Payload>) -> Result<()> {
        Ok(())
    }

    fn update(&mut self, _: &Row) -> Result<()> {
        Ok(())
    }

    fn remove(&mut self, id: EventId) -> Result<()> {
        self.gone.insert(id);
        Ok(())
    }

    fn hold(&mut self, _: &Key, _: &Held) -> Result<()> {
        Ok(())
    }

    fn set_register(&mut self, _: &Key, _: &Register) -> Result<()> {
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

    fn shed(&mut self, _: EventId) -> Result<()> {
        Ok(())
    }

    fn set_tried(&mut self, _: EventId, _: &Tried) -> Result<()> {
        Ok(())
    }
}
