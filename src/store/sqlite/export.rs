//! The file as a store that can be copied: read to its end, or filled. Whoever does it has the file's lock.

use super::Sqlite;
use super::last_seen;
use super::notes::Seen;
use super::quarantine;
use super::read;
use super::retention;
use super::rows::{Rows, id_digest};
use super::writer::marks;
use crate::decide::claim::Same;
use crate::decide::event::Step;
use crate::decide::id::{Digest, EventId, Key, Turn};
use crate::decide::limits;
use crate::decide::recipe::Recipe;
use crate::decide::source::Route;
use crate::decide::time::Timestamp;
use crate::store::cells::{self, Found, columns};
use crate::store::copy::mark::{self, CopyMark, MARK};
use crate::store::copy::{self, CopyStore, Cursor, Entry, Exported, More, Note, Whole};
use crate::store::ledger::{Held, Ledger as _, Register, Row};
use crate::store::{Answer, Store, Stored};
use rusqlite::{Connection, OptionalExtension, Params};
use std::borrow::Cow;

type Result<T> = std::result::Result<T, rusqlite::Error>;

impl CopyStore for Sqlite {
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

    fn fill(&self, entries: Vec<Entry>, notes: Vec<Note>) -> Answer<'_, bool> {
        let bytes = |entry: &Entry| if let Entry::Event(whole) = entry { whole.bytes() } else { 0 };
        self.ask(entries.len(), entries.iter().map(bytes).sum(), move |rows| fill(rows, entries, &notes))
    }

    fn noted(&self, key: Key) -> Answer<'_, Option<Register>> {
        self.look(move |db| noted(db, key))
    }

    fn clear_recipes(&self, mark: Register) -> Answer<'_, bool> {
        self.ask(1, 0, move |rows| {
            if noted(rows.db, MARK)? != Some(mark) {
                return Ok(false);
            }
            remember(rows, &[])?;
            rows.db.execute("delete from retention", []).map(|_| true)
        })
    }

    /// There is one writer, and it is ours.
    fn settled(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whoever opens the file goes on after the highest turn in it.
    fn pass_turns(&self, _: Turn) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn last_seen(&self) -> Answer<'_, Option<Timestamp>> {
        self.look(|db| match last_seen::read(db)? {
            Some(seen) => Ok(Some(seen)),
            None => Ok(Some(marks(db)?.0).filter(|newest| *newest > Timestamp::default())),
        })
    }

    fn set_last_seen(&self, time: Timestamp) -> Answer<'_, ()> {
        self.ask(1, 0, move |rows| last_seen::write(rows.db, time))
    }

    /// The lock tells of a node, before anything else. One that was killed may have left a receiver at work.
    fn in_use(&self) -> Answer<'_, Option<String>> {
        let now = Store::now(self);
        self.look(move |db| Ok(leased_until(db, now)?.map(copy::under_a_lease)))
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text.into()
    }

    fn now(&self) -> Timestamp {
        Store::now(self)
    }

    fn clock_follows_events(&self) -> bool {
        true
    }

    fn open_events(&self) -> Answer<'_, u64> {
        self.look(|db| {
            db.query_row("select count(*) from events where ended_at is null", [], |row| row.get::<_, i64>(0))
                .map(i64::unsigned_abs)
        })
    }
}

/// When the last lease ends of those that go on without their node.
fn leased_until(db: &Connection, now: Timestamp) -> Result<Option<Timestamp>> {
    let sql = concat!("select ", columns!(), " from events where state = 'running' and wake_at > ?1");
    let until = all(db, sql, [now.0], |row| {
        let (Found::Whole(Row { event, .. }) | Found::Damaged(Row { event, .. }, _)) = cells::read(row);
        let ends_with_its_node = event.change(Step::Orphan, &Route::default(), now).is_ok();
        Ok(event.state.wake_at().filter(|_| !ends_with_its_node))
    })?;
    Ok(until.into_iter().flatten().max())
}

/// The mark of a copy, if this file is part of one. A file without our tables is not.
pub(super) fn mark_in(db: &Connection) -> Result<Option<CopyMark>> {
    let ours = "select 1 from sqlite_schema where type = 'table' and name = 'registers'";
    match db.query_row(ours, [], |_| Ok(())).optional()? {
        Some(()) => Ok(noted(db, MARK)?.map(|register| CopyMark::of(&register))),
        None => Ok(None),
    }
}

fn noted(db: &Connection, key: Key) -> Result<Option<Register>> {
    let sql = "select value, ord, strict, event from registers where key = ?1";
    db.prepare_cached(sql)?.query_row([key.0], |row| register(row, 0)).optional()
}

fn register(row: &rusqlite::Row<'_>, from: usize) -> Result<Register> {
    Ok(Register {
        value: Digest(row.get(from)?),
        order: row.get(from + 1)?,
        strict: row.get(from + 2)?,
        event: EventId(row.get(from + 3)?),
    })
}

/// Writes what is not there yet, and notes how far that is, in the writer's transaction.
fn fill(rows: &mut Rows<'_>, entries: Vec<Entry>, notes: &[Note]) -> Result<bool> {
    for Note { key, was, .. } in notes {
        if rows.register(key)? != *was {
            return Ok(false);
        }
    }
    let (mut recipes, mut kept) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Event(whole) => put_event(rows, &whole)?,
            Entry::Register(key, register) => {
                if rows.register(&key)?.is_none() {
                    rows.set_register(&key, &register)?;
                }
            }
            Entry::Slot(group, holder) => {
                if rows.slot(&group)?.is_none() {
                    rows.set_slot(&group, Some(holder))?;
                }
            }
            Entry::Imported(key) => rows.set_imported(&key).map(drop)?,
            Entry::Recipe(recipe) => recipes.push(recipe),
            Entry::Retention(row) => kept.push(row),
            Entry::Quarantined(message) => quarantine::lay(rows.db, &message)?,
        }
    }
    if !recipes.is_empty() {
        remember(rows, &recipes)?;
    }
    retention::retain(rows.db, &kept)?;
    for Note { key, was: _, is } in notes {
        match is {
            Some(register) => rows.set_register(key, register)?,
            None => rows.remove_register(key)?,
        }
    }
    Ok(true)
}

fn put_event(rows: &mut Rows<'_>, whole: &Whole) -> Result<()> {
    let Whole { row, keys, payload, receipt, tried, duplicates, sightings } = whole;
    let id = row.event.id;
    if rows.find("select 1 from events where id = ?1", [id.0], |_| Ok(()))?.is_some() {
        return Ok(());
    }
    rows.insert(row, payload.as_ref())?;
    for (key, held) in keys {
        rows.hold(key, held)?;
    }
    if let Some(receipt) = receipt {
        rows.set_receipt(id, Some(receipt))?;
    }
    for tried in tried {
        rows.set_tried(id, tried)?;
    }
    if *duplicates > 0 {
        rows.note(id, &Seen { count: *duplicates, first: sightings.clone() })?;
    }
    Ok(())
}

/// Remembers these recipes in place of the earlier ones.
pub(super) fn remember(rows: &mut Rows<'_>, recipes: &[Recipe]) -> Result<()> {
    rows.db.prepare_cached("delete from scopes")?.execute([])?;
    let insert = "insert or replace into scopes (scope, once, since) values (?1, ?2, ?3)";
    let mut insert = rows.db.prepare_cached(insert)?;
    let mut put = |Recipe { scope, once, since }: &Recipe| insert.execute((scope, once, since.map(|at| at.0)));
    recipes.iter().try_for_each(|recipe| put(recipe).map(drop))
}

fn export(db: &Connection, from: Cursor, limit: usize) -> Result<Exported> {
    let room = i64::try_from(limit).unwrap_or(i64::MAX);
    let more = |read: usize| if read == limit { More::Maybe } else { More::No };
    let (entries, more) = match from {
        Cursor::Events(after) => return export_events(db, from, after, room),
        Cursor::Registers(after) => {
            let sql = "select key, value, ord, strict, event from registers where key > ?1 order by key limit ?2";
            let mut entries =
                all(db, sql, (name(after), room), |row| Ok(Entry::Register(Key(row.get(0)?), register(row, 1)?)))?;
            let more = more(entries.len());
            let last = entries.last().cloned();
            entries.retain(|entry| !matches!(entry, Entry::Register(key, _) if mark::is_own(key)));
            // A page of nothing but our own would look like the last one.
            if let (More::Maybe, Some(Entry::Register(last, _)), true) = (more, last, entries.is_empty()) {
                return export(db, Cursor::Registers(Some(last)), limit);
            }
            (entries, more)
        }
        Cursor::Slots(after) => {
            let sql = "select grp, event from slots where grp > ?1 order by grp limit ?2";
            let one = |row: &rusqlite::Row<'_>| Ok(Entry::Slot(Key(row.get(0)?), EventId(row.get(1)?)));
            let entries = all(db, sql, (name(after), room), one)?;
            let more = more(entries.len());
            (entries, more)
        }
        Cursor::Imported(after) => {
            let sql = "select key from imported where key > ?1 order by key limit ?2";
            let entries = all(db, sql, (name(after), room), |row| Ok(Entry::Imported(Key(row.get(0)?))))?;
            let more = more(entries.len());
            (entries, more)
        }
        Cursor::Recipes => (read::recipes(db)?.into_iter().map(Entry::Recipe).collect(), More::No),
        Cursor::Retention => (retention::retention(db)?.into_iter().map(Entry::Retention).collect(), More::No),
        Cursor::Quarantine => {
            let newest = quarantine::newest(db, limits::QUARANTINE_MAX)?.into_iter().rev();
            (newest.map(|one| Entry::Quarantined(Box::new(one))).collect(), More::No)
        }
    };
    Ok(Exported::page(from, entries, more))
}

/// Events with all that belongs to them, until there are enough bytes of bodies.
fn export_events(db: &Connection, from: Cursor, after: Option<EventId>, room: i64) -> Result<Exported> {
    let sql = concat!("select ", columns!(), " from events where id > ?1 order by id limit ?2");
    let rows = all(db, sql, (after.map_or(Vec::new(), |id| id.0.to_vec()), room), |row| {
        Ok(match cells::read(row) {
            Found::Whole(row) | Found::Damaged(row, _) => row,
        })
    })?;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let full = i64::try_from(rows.len()) == Ok(room);
    let mut more = if full { More::Maybe } else { More::No };
    for row in rows {
        if bytes >= limits::BATCH_BYTES_MAX {
            more = More::Maybe;
            break;
        }
        let whole = whole(db, row)?;
        bytes += whole.bytes();
        entries.push(Entry::Event(Box::new(whole)));
    }
    Ok(Exported::page(from, entries, more))
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
