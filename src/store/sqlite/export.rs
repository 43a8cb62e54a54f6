//! Reading all of a store, to move it.

use super::Sqlite;
use super::read;
use super::rows::id_digest;
use crate::decide::claim::Same;
use crate::decide::id::{EventId, Key};
use crate::decide::limits;
use crate::decide::recipe::Recipe;
use crate::store::cells::{self, Found, columns};
use crate::store::copy::{Cursor, Entry, Exported, Source, Whole};
use crate::store::ledger::{Held, Register, Row};
use crate::store::quarantine::Quarantined;
use crate::store::{Answer, Store, Stored};
use rusqlite::{Connection, Params};

type Result<T> = std::result::Result<T, rusqlite::Error>;

impl Source for Sqlite {
    fn export(&self, from: Cursor, limit: usize) -> Answer<'_, Exported> {
        self.look(move |db| export(db, from, limit))
    }

    fn entries(&self) -> Answer<'_, u64> {
        self.look(|db| {
            let sql = "select (select count(*) from events) + (select count(*) from registers) \
                       + (select count(*) from slots) + (select count(*) from imported)";
            db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
        })
    }

    fn recipes(&self) -> Answer<'_, Vec<Recipe>> {
        Store::recipes(self)
    }

    fn quarantined(&self, limit: usize) -> Answer<'_, Vec<Quarantined>> {
        Store::quarantined(self, limit)
    }
}

fn export(db: &Connection, from: Cursor, limit: usize) -> Result<Exported> {
    let room = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut is_cut = false;
    let entries = match from {
        Cursor::Events(after) => {
            let sql = concat!("select ", columns!(), " from events where id > ?1 order by id limit ?2");
            let rows = all(db, sql, (after.map_or([0; 16], |id| id.0), room), |row| {
                Ok(match cells::read(row) {
                    Found::Whole(row) | Found::Damaged(row, _) => row,
                })
            })?;
            let (mut entries, mut bytes) = (Vec::new(), 0);
            for row in rows {
                if bytes >= limits::BATCH_BYTES_MAX {
                    is_cut = true;
                    break;
                }
                let whole = whole(db, row)?;
                bytes += whole.bytes();
                entries.push(Entry::Event(Box::new(whole)));
            }
            entries
        }
        Cursor::Registers(after) => {
            let sql = "select key, value, ord, strict, event from registers where key > ?1 order by key limit ?2";
            all(db, sql, (name(after), room), |row| {
                let register = Register {
                    value: crate::decide::id::Digest(row.get(1)?),
                    order: row.get(2)?,
                    strict: row.get(3)?,
                    event: EventId(row.get(4)?),
                };
                Ok(Entry::Register(Key(row.get(0)?), register))
            })?
        }
        Cursor::Slots(after) => {
            let sql = "select grp, event from slots where grp > ?1 order by grp limit ?2";
            all(db, sql, (name(after), room), |row| Ok(Entry::Slot(Key(row.get(0)?), EventId(row.get(1)?))))?
        }
        Cursor::Imported(after) => {
            let sql = "select key from imported where key > ?1 order by key limit ?2";
            all(db, sql, (name(after), room), |row| Ok(Entry::Imported(Key(row.get(0)?))))?
        }
    };
    let next = match entries.last().filter(|_| is_cut || entries.len() == limit) {
        Some(Entry::Event(whole)) => Some(Cursor::Events(Some(whole.row.event.id))),
        Some(Entry::Register(key, _)) => Some(Cursor::Registers(Some(*key))),
        Some(Entry::Slot(group, _)) => Some(Cursor::Slots(Some(*group))),
        Some(Entry::Imported(key)) => Some(Cursor::Imported(Some(*key))),
        None => match from {
            Cursor::Events(_) => Some(Cursor::Registers(None)),
            Cursor::Registers(_) => Some(Cursor::Slots(None)),
            Cursor::Slots(_) => Some(Cursor::Imported(None)),
            Cursor::Imported(_) => None,
        },
    };
    Ok(Exported { entries, next })
}

/// Before all others, if there is none.
fn name(after: Option<Key>) -> Vec<u8> {
    after.map_or(Vec::new(), |key| key.0.to_vec())
}

fn whole(db: &Connection, row: Row) -> Result<Whole> {
    let id = row.event.id;
    let keys = "select key, identity, alias, id_digest from keys where event = ?1 order by key";
    let keys = all(db, keys, [id.0], |row| {
        let same = Same::parse(&row.get::<_, String>(1)?);
        Ok((Key(row.get(0)?), Held { event: id, same, alias: row.get(2)?, id_digest: id_digest(row, 3) }))
    })?;
    let payload = match read::payload(db, id)? {
        Stored::Whole(payload) => Some(payload),
        Stored::Damaged | Stored::Forgotten => None,
    };
    let story = read::story(db, id)?;
    let (receipt, tried, duplicates, sightings) =
        story.map_or_else(Default::default, |story| (story.receipt, story.attempts, story.duplicates, story.sightings));
    Ok(Whole { row, keys, payload, receipt, tried, duplicates, sightings })
}

fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&rusqlite::Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    db.prepare_cached(sql)?.query_map(params, read)?.collect()
}
