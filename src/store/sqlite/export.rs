//! Copying from and into an SQLite file. The caller holds the file's lock.

use super::SqliteStore;
use super::duplicate_notes::DuplicateTally;
use super::queries;
use super::rows::{SqliteLedger, id_digest, register};
use super::writer::marks;
use crate::decide::claim::MatchedBy;
use crate::decide::event::EventStep;
use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{EventRow, KeyOwner, Ledger as _, SubjectRegister};
use crate::decide::limits;
use crate::decide::source::Route;
use crate::decide::time::Timestamp;
use crate::store::copy::copy_lock;
use crate::store::copy::copy_lock::{CopyRole, MARK};
use crate::store::copy::{
    self, CompleteEvent, CopyCursor, CopyEntry, CopyRegisterCas, CopyStore, ExportPage, ExportStore, PageContinuation,
};
use crate::store::row;
use crate::store::row::{DecodedRow, columns};
use crate::store::{StoreBackend, StoreFuture, StoredValue};
use rusqlite::Result;
use rusqlite::{Connection, OptionalExtension, Params};

/// Every write is durable when it is answered, and there is one writer: [`settled`](ExportStore::settled) has nothing
/// to wait for.
impl ExportStore for SqliteStore {
    fn export(&self, from: CopyCursor, limit: usize) -> StoreFuture<'_, ExportPage> {
        self.read(move |db| export(db, from, limit))
    }

    fn entries(&self) -> StoreFuture<'_, u64> {
        self.read(|db| {
            let sql = "select (select count(*) from events) + (select count(*) from registers) \
                       + (select count(*) from slots) + (select count(*) from imported)";
            db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
        })
    }
}

impl CopyStore for SqliteStore {
    fn fill(&self, entries: Vec<CopyEntry>, notes: Vec<CopyRegisterCas>) -> StoreFuture<'_, bool> {
        let bytes = |entry: &CopyEntry| if let CopyEntry::Event(whole) = entry { whole.bytes() } else { 0 };
        self.ask(entries.len(), entries.iter().map(bytes).sum(), move |rows| fill(rows, &entries, &notes))
    }

    fn noted(&self, key: Key) -> StoreFuture<'_, Option<SubjectRegister>> {
        self.read(move |db| noted(db, key))
    }

    fn clear_recipes(&self, mark: SubjectRegister) -> StoreFuture<'_, bool> {
        self.ask(1, 0, move |rows| {
            if noted(rows.db, MARK)?.as_ref() != Some(&mark) {
                return Ok(false);
            }
            remember(rows, &[])?;
            rows.db.execute("delete from retention", []).map(|_| true)
        })
    }

    /// Nothing to do: opening the file continues after the highest turn in it.
    fn pass_turns(&self, _: QueueTurn) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>> {
        self.read(|db| match queries::read(db)? {
            Some(seen) => Ok(Some(seen)),
            None => Ok(Some(marks(db)?.0).filter(|newest| *newest > Timestamp::default())),
        })
    }

    fn set_last_seen(&self, time: Timestamp) -> StoreFuture<'_, ()> {
        self.ask(1, 0, move |rows| queries::write(rows.db, time))
    }

    /// The file's lock excludes running nodes. A killed node may have left a receiver at work.
    fn in_use(&self) -> StoreFuture<'_, Option<String>> {
        let now = StoreBackend::now(self);
        self.read(move |db| Ok(leased_until(db, now)?.map(copy::under_a_lease)))
    }

    fn now(&self) -> Timestamp {
        StoreBackend::now(self)
    }

    fn clock_follows_events(&self) -> bool {
        true
    }

    fn open_events(&self) -> StoreFuture<'_, u64> {
        self.read(|db| {
            db.query_row("select count(*) from events where ended_at is null", [], |row| row.get::<_, i64>(0))
                .map(i64::unsigned_abs)
        })
    }
}

/// When the last lease ends of actions that outlive their node.
fn leased_until(db: &Connection, now: Timestamp) -> Result<Option<Timestamp>> {
    let sql = concat!("select ", columns!(), " from events where state = 'running' and wake_at > ?1");
    let until = all(db, sql, [now.0], |row| {
        let (DecodedRow::Whole(EventRow { event, .. }) | DecodedRow::Damaged(EventRow { event, .. }, _)) =
            row::read(row);
        let ends_with_its_node = event.transition(EventStep::Orphan, &Route::default(), now).is_ok();
        Ok(event.state.wake_at().filter(|_| !ends_with_its_node))
    })?;
    Ok(until.into_iter().flatten().max())
}

/// The copy mark, if this file is part of a copy. A file without our tables has none.
pub(super) fn mark_in(db: &Connection) -> Result<Option<CopyRole>> {
    let ours = "select 1 from sqlite_schema where type = 'table' and name = 'registers'";
    match db.query_row(ours, [], |_| Ok(())).optional()? {
        Some(()) => Ok(noted(db, MARK)?.map(|register| CopyRole::of(&register))),
        None => Ok(None),
    }
}

/// A register of the copy itself. It has no note, a column that the first release's file lacks.
fn noted(db: &Connection, key: Key) -> Result<Option<SubjectRegister>> {
    let sql = "select key, value, ord, strict, event, null from registers where key = ?1";
    db.prepare_cached(sql)?.query_row([key.0], register).optional()
}

/// Writes the missing entries, and updates the registers, in the writer's transaction.
fn fill(rows: &mut SqliteLedger<'_>, entries: &[CopyEntry], notes: &[CopyRegisterCas]) -> Result<bool> {
    for CopyRegisterCas { key, was, .. } in notes {
        if rows.register(key)? != *was {
            return Ok(false);
        }
    }
    let (mut recipes, mut kept) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            CopyEntry::Event(whole) => put_event(rows, whole)?,
            CopyEntry::Register(key, register) => {
                if rows.register(key)?.is_none() {
                    rows.set_register(key, register)?;
                }
            }
            CopyEntry::Slot(group, holder) => {
                if rows.slot(group)?.is_none() {
                    rows.set_slot(group, Some(*holder))?;
                }
            }
            CopyEntry::Imported(key) => rows.set_imported(key).map(drop)?,
            CopyEntry::Recipe(recipe) => recipes.push(recipe.clone()),
            CopyEntry::Retention(row) => kept.push(row.clone()),
            CopyEntry::Quarantined(message) => queries::lay(rows.db, message)?,
        }
    }
    if !recipes.is_empty() {
        remember(rows, &recipes)?;
    }
    queries::retain(rows.db, &kept)?;
    for CopyRegisterCas { key, was: _, is } in notes {
        match is {
            Some(register) => rows.set_register(key, register)?,
            None => rows.remove_register(key)?,
        }
    }
    Ok(true)
}

fn put_event(rows: &mut SqliteLedger<'_>, whole: &CompleteEvent) -> Result<()> {
    let CompleteEvent { row, keys, payload, receipt, tried, duplicates, sightings } = whole;
    let id = row.event.id;
    if rows.find("select 1 from events where id = ?1", [id.0], |_| Ok(()))?.is_some() {
        return Ok(());
    }
    rows.insert(row, payload.as_ref())?;
    for (key, held) in keys {
        rows.set_key_owner(key, held)?;
    }
    if let Some(receipt) = receipt {
        rows.set_receipt(id, Some(receipt))?;
    }
    for tried in tried {
        rows.add_attempt(id, tried)?;
    }
    if *duplicates > 0 {
        rows.note(id, &DuplicateTally { count: *duplicates, first: sightings.clone() })?;
    }
    Ok(())
}

/// Replaces all recipes.
pub(super) fn remember(rows: &mut SqliteLedger<'_>, recipes: &[IdentityRecipe]) -> Result<()> {
    rows.db.prepare_cached("delete from scopes")?.execute([])?;
    let insert = "insert or replace into scopes (scope, once, since) values (?1, ?2, ?3)";
    let mut insert = rows.db.prepare_cached(insert)?;
    let mut put =
        |IdentityRecipe { scope, once, since }: &IdentityRecipe| insert.execute((scope, once, since.map(|at| at.0)));
    recipes.iter().try_for_each(|recipe| put(recipe).map(drop))
}

fn export(db: &Connection, from: CopyCursor, limit: usize) -> Result<ExportPage> {
    let room = i64::try_from(limit).unwrap_or(i64::MAX);
    let more = |read: usize| if read == limit { PageContinuation::Maybe } else { PageContinuation::No };
    let (entries, more) = match from {
        CopyCursor::Events(after) => return export_events(db, from, after, room),
        CopyCursor::Registers(after) => {
            let sql = "select key, value, ord, strict, event, note from registers where key > ?1 order by key limit ?2";
            let mut entries =
                all(db, sql, (name(after), room), |row| Ok(CopyEntry::Register(Key(row.get(0)?), register(row)?)))?;
            let more = more(entries.len());
            let last = entries.last().cloned();
            entries.retain(|entry| !matches!(entry, CopyEntry::Register(key, _) if copy_lock::is_own(key)));
            // A page with only the copy's own registers would look like the last one.
            if let (PageContinuation::Maybe, Some(CopyEntry::Register(last, _)), true) =
                (more, last, entries.is_empty())
            {
                return export(db, CopyCursor::Registers(Some(last)), limit);
            }
            (entries, more)
        }
        CopyCursor::Slots(after) => {
            let sql = "select grp, event from slots where grp > ?1 order by grp limit ?2";
            let one = |row: &rusqlite::Row<'_>| Ok(CopyEntry::Slot(Key(row.get(0)?), EventId(row.get(1)?)));
            let entries = all(db, sql, (name(after), room), one)?;
            let more = more(entries.len());
            (entries, more)
        }
        CopyCursor::Imported(after) => {
            let sql = "select key from imported where key > ?1 order by key limit ?2";
            let entries = all(db, sql, (name(after), room), |row| Ok(CopyEntry::Imported(Key(row.get(0)?))))?;
            let more = more(entries.len());
            (entries, more)
        }
        CopyCursor::Recipes => {
            (queries::recipes(db)?.into_iter().map(CopyEntry::Recipe).collect(), PageContinuation::No)
        }
        CopyCursor::Retention => {
            (queries::retention(db)?.into_iter().map(CopyEntry::Retention).collect(), PageContinuation::No)
        }
        CopyCursor::Quarantine => {
            let newest = queries::newest(db, limits::QUARANTINE_MAX)?.into_iter().rev();
            (newest.map(|one| CopyEntry::Quarantined(Box::new(one))).collect(), PageContinuation::No)
        }
    };
    Ok(ExportPage::page(from, entries, more))
}

/// Events with all that belongs to them, up to the byte limit.
fn export_events(db: &Connection, from: CopyCursor, after: Option<EventId>, room: i64) -> Result<ExportPage> {
    let sql = concat!("select ", columns!(), " from events where id > ?1 order by id limit ?2");
    let rows = all(db, sql, (after.map_or(Vec::new(), |id| id.0.to_vec()), room), |row| {
        Ok(match row::read(row) {
            DecodedRow::Whole(row) | DecodedRow::Damaged(row, _) => row,
        })
    })?;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let full = i64::try_from(rows.len()) == Ok(room);
    let mut more = if full { PageContinuation::Maybe } else { PageContinuation::No };
    for row in rows {
        if bytes >= limits::BATCH_BYTES_MAX {
            more = PageContinuation::Maybe;
            break;
        }
        let whole = whole(db, row)?;
        bytes += whole.bytes();
        entries.push(CopyEntry::Event(Box::new(whole)));
    }
    Ok(ExportPage::page(from, entries, more))
}

/// The lower bound of the keys after this one.
fn name(after: Option<Key>) -> Vec<u8> {
    after.map_or(Vec::new(), |key| key.0.to_vec())
}

fn whole(db: &Connection, row: EventRow) -> Result<CompleteEvent> {
    let id = row.event.id;
    let keys = "select key, identity, alias, id_digest from keys where event = ?1 order by key";
    let keys = all(db, keys, [id.0], |row| {
        // The rest of a key that can be read is for display only.
        let Some(key) = row.get_ref(0)?.as_blob().ok().and_then(|key| key.try_into().ok()) else { return Ok(None) };
        let same = MatchedBy::parse(row.get_ref(1)?.as_str().unwrap_or_default());
        let alias = row.get_ref(2)?.as_i64().is_ok_and(|alias| alias != 0);
        Ok(Some((Key(key), KeyOwner { event: id, same, alias, id_digest: id_digest(row, 3) })))
    })?;
    let keys = keys.into_iter().flatten().collect();
    let payload = match queries::payload(db, id)? {
        StoredValue::Whole(payload) => Some(payload),
        StoredValue::Damaged | StoredValue::Forgotten => None,
    };
    let story = queries::story(db, id)?;
    let (receipt, tried, duplicates, sightings) =
        story.map_or_else(Default::default, |story| (story.receipt, story.attempts, story.duplicates, story.sightings));
    Ok(CompleteEvent { row, keys, payload, receipt, tried, duplicates, sightings })
}

fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&rusqlite::Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    db.prepare_cached(sql)?.query_map(params, read)?.collect()
}
