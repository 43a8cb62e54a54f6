//! What a claim would come to now, beside whoever writes: the ledger's own rules over rows that nobody writes.

use super::cells::{self, Found, columns};
use super::rows::Rows;
use crate::decide::change::Tried;
use crate::decide::claim::{Claim, New, Payload};
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key, Turn};
use crate::decide::time::Timestamp;
use crate::store::ledger::{self, Held, Ledger, Of, Register, Row};
use rusqlite::{Connection, OptionalExtension as _};

type Result<T> = std::result::Result<T, rusqlite::Error>;

/// Claims each of these as if it were alone, in one snapshot, and leaves everything as it is.
pub(super) fn foresee(db: &Connection, new: Vec<New>, now: Timestamp) -> Result<Vec<Claim>> {
    let snapshot = db.unchecked_transaction()?;
    let mut turns = 0;
    let mut glance = Glance(Rows { db: &snapshot, now, turns: &mut turns });
    new.into_iter().map(|one| ledger::claim(&mut glance, one, now)).collect()
}

/// Reads like the writer; what it is told to write is dropped.
struct Glance<'t>(Rows<'t>);

impl Ledger for Glance<'_> {
    type Error = rusqlite::Error;

    fn row(&mut self, id: EventId) -> Result<Option<Row>> {
        let sql = concat!("select ", columns!(), " from events where id = ?1");
        let found = self.0.db.prepare_cached(sql)?.query_row([id.0], |row| Ok(cells::read(row))).optional()?;
        // The writer would bury what is damaged; to whoever only looks it is dead already.
        Ok(found.map(|(Found::Whole(row) | Found::Damaged(row, _))| row))
    }

    fn held(&mut self, key: &Key) -> Result<Option<Held>> {
        self.0.held(key)
    }

    fn register(&mut self, subject: &Key) -> Result<Option<Register>> {
        self.0.register(subject)
    }

    fn slot(&mut self, group: &Key) -> Result<Option<EventId>> {
        self.0.slot(group)
    }

    fn parked(&mut self, _: &Key) -> Result<Option<Row>> {
        Ok(None) // who is next matters only to who hands a slot on
    }

    fn next_turn(&mut self) -> Turn {
        self.0.next_turn()
    }

    fn forgettable(&mut self, of: Of<'_>, before: Timestamp, limit: usize) -> Result<Vec<EventId>> {
        self.0.forgettable(of, before, limit)
    }

    fn insert(&mut self, _: &Row, _: Option<&Payload>) -> Result<()> {
        Ok(())
    }

    fn update(&mut self, _: &Row) -> Result<()> {
        Ok(())
    }

    fn remove(&mut self, _: EventId) -> Result<()> {
        Ok(())
    }

    fn hold(&mut self, _: &Key, _: &Held) -> Result<()> {
        Ok(())
    }

    fn set_register(&mut self, _: &Key, _: &Register) -> Result<()> {
        Ok(())
    }

    fn set_slot(&mut self, _: &Key, _: Option<EventId>) -> Result<()> {
        Ok(())
    }

    fn set_payload(&mut self, _: &Event, _: &Payload) -> Result<()> {
        Ok(())
    }

    fn set_receipt(&mut self, _: EventId, _: Option<&Receipt>) -> Result<()> {
        Ok(())
    }

    fn set_tried(&mut self, _: EventId, _: &Tried) -> Result<()> {
        Ok(())
    }

    fn remove_bodies(&mut self, _: Of<'_>, _: Timestamp, _: usize) -> Result<u64> {
        Ok(0)
    }
}
