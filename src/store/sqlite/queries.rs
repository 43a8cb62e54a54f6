//! Reads concurrent with the writer: a few read-only connections, each query in one snapshot of what is committed.

use super::fresh_index::{FreshMirror, event_id, indexed_name};
use super::lock::DatabaseLock;
use super::open;
use super::writer::{SqliteCommitStage, classify};
use crate::decide::claim::{MatchedBy, Payload};
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::{Event, EventState, Receipt};
use crate::decide::id::{Digest, EventId};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::decide::transition::AttemptRecord;
use crate::store::inspect::QuarantinedMessage;
use crate::store::row::{CellValue, DamageRecorded, DecodedRow, columns};
use crate::store::{
    DueEvents, DueQuery, DuplicateSighting, EventDetails, SourceCount, SourceRetention, StoreError, StoredValue,
    compression, row,
};
use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Params, Result, params};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tracing::error;

/// Maximum number of concurrent reads; the others wait.
const READERS: usize = 4;

/// The read-only connections, opened when they are first needed.
pub(super) struct ReaderPool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    free: Semaphore,
    /// Released when the last connection is closed, even one still in use when the store is closed.
    _lock: Option<Arc<DatabaseLock>>,
}

impl ReaderPool {
    pub(super) fn new(path: PathBuf, lock: Option<Arc<DatabaseLock>>) -> Self {
        Self { path, idle: Mutex::default(), free: Semaphore::new(READERS), _lock: lock }
    }

    /// Runs a query on one of them, on a blocking thread.
    pub(super) async fn ask<T: Send + 'static>(
        self: Arc<Self>,
        look: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, StoreError> {
        let readers = self.clone();
        let _free = self.free.acquire().await.map_err(|_| StoreError::Down("the store is closed".into()))?;
        let looked = tokio::task::spawn_blocking(move || {
            let db = match readers.idle().pop() {
                Some(db) => db,
                None => open::reader(&readers.path).map_err(|error| StoreError::Down(ErrorMessage::of(error)))?,
            };
            let found = look(&db).map_err(|error| classify(error, SqliteCommitStage::Before));
            readers.give_back(db);
            found
        });
        looked
            .await
            .unwrap_or_else(|error| Err(StoreError::down(format!("a read task failed: {error}")).caused_by(error)))
    }

    /// Runs a query on an idle connection on this thread: for queries shorter than a switch of threads. `None` if all
    /// are busy.
    pub(super) fn at_once<T>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T>,
    ) -> Option<std::result::Result<T, StoreError>> {
        let _free = self.free.try_acquire().ok()?;
        let idle = self.idle().pop();
        let db = match idle.map_or_else(|| open::reader(&self.path), Ok) {
            Ok(db) => db,
            Err(error) => return Some(Err(StoreError::Down(ErrorMessage::of(error)))),
        };
        let found = look(&db).map_err(|error| classify(error, SqliteCommitStage::Before));
        self.give_back(db);
        Some(found)
    }

    /// Returns a connection to the pool. One still in a snapshot would return old data, and is closed.
    fn give_back(&self, db: Connection) {
        if db.is_autocommit() {
            self.idle().push(db);
        }
    }

    /// Closes the idle connections.
    pub(super) fn close(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Due events, and the ids of events found that cannot be read.
pub(super) struct DueScan {
    pub(super) due: DueEvents,
    pub(super) damaged: Vec<EventId>,
}

pub(super) fn get(db: &Connection, id: EventId) -> Result<Option<Event>> {
    let sql = concat!("select ", columns!(), " from events where id = ?1");
    db.prepare_cached(sql)?.query_row([id.0], |row| Ok(row::read(row).event())).optional()
}

macro_rules! due {
    ($which:literal) => {
        due!("", $which)
    };
    ($by:literal, $which:literal) => {
        concat!(
            "select ",
            columns!(),
            " from events ",
            $by,
            "where wake_at is not null and ",
            $which,
            " order by wake_at, id limit ?1"
        )
    };
}

pub(super) const DUE_ON_ROUTE: &str = due!("state = ?2 and source = ?3 and route = ?4");
pub(super) const DUE_AT_RECEIVER: &str =
    due!("indexed by events_due_part ", "state = 'waiting' and source = ?2 and route = ?3 and part = ?4");
/// The first receiver in a range that has waiting events.
pub(super) const NEXT_RECEIVER: &str = "select min(part) from events indexed by events_due_part \
     where wake_at is not null and state = 'waiting' and source = ?1 and route = ?2 and part between ?3 and ?4";
pub(super) const DUE_LEASES: &str = due!("state = 'running'");
pub(super) const ROUTES_IN_USE: &str =
    "select distinct state, source, route from events where wake_at is not null and state <> 'running'";

/// The due events of a query, and those that cannot be read.
pub(super) fn due(db: &Connection, look: &DueQuery, limit: usize, now: Timestamp) -> Result<DueScan> {
    let mut looked = DueScan { due: DueEvents::default(), damaged: Vec::new() };
    let room = limit_cell(limit.saturating_add(1));
    match look {
        DueQuery::Route(source, route) => {
            let rows = &mut db.prepare_cached(DUE_ON_ROUTE)?;
            gather(rows.query(params![room, "waiting", source, route])?, limit, now, &mut looked)?;
        }
        DueQuery::Receiver(source, route, parts) => {
            let (mut from, mut next) = (i64::from(*parts.start()), db.prepare_cached(NEXT_RECEIVER)?);
            let part = |row: &rusqlite::Row<'_>| Ok(row.get_ref(0)?.as_i64().ok());
            while let Some(part) = next.query_row(params![source, route, from, parts.end()], part)? {
                let rows = &mut db.prepare_cached(DUE_AT_RECEIVER)?;
                gather(rows.query(params![room, source, route, part])?, limit, now, &mut looked)?;
                from = part.saturating_add(1);
            }
            first_of(&mut looked.due, limit);
        }
        DueQuery::Leases => gather(db.prepare_cached(DUE_LEASES)?.query([room])?, limit, now, &mut looked)?,
        DueQuery::Orphans(known) => {
            // An unknown state means an unreadable row: it belongs to no route either.
            let strays = |state: &str, source: &str, route: &str| {
                state != "waiting" || !known.iter().any(|(s, r)| **s == *source && **r == *route)
            };
            let mut routes = db.prepare_cached(ROUTES_IN_USE)?;
            let routes = routes.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            for (state, source, route) in routes.collect::<Result<Vec<(String, String, String)>>>()? {
                if strays(&state, &source, &route) {
                    let rows = &mut db.prepare_cached(DUE_ON_ROUTE)?;
                    gather(rows.query(params![room, state, source, route])?, limit, now, &mut looked)?;
                }
            }
            first_of(&mut looked.due, limit);
        }
    }
    Ok(looked)
}

/// Takes the due events from rows ordered by time, and the time of the first that is not due.
fn gather(mut rows: rusqlite::Rows<'_>, limit: usize, now: Timestamp, looked: &mut DueScan) -> Result<()> {
    let mut left = limit;
    while let Some(row) = rows.next()? {
        let at = row.get("wake_at").map(Timestamp).unwrap_or_default(); // damaged: due now
        if at > now || left == 0 {
            looked.due.next = Some(looked.due.next.map_or(at, |next| next.min(at)));
            break;
        }
        left -= 1;
        match row::read(row) {
            DecodedRow::Whole(row) => looked.due.events.push(row.event),
            DecodedRow::Damaged(row, DamageRecorded::No) => looked.damaged.push(row.event.id),
            DecodedRow::Damaged(_, DamageRecorded::Yes) => {}
        }
    }
    Ok(())
}

/// Keeps the first `limit` of events taken from several lists.
fn first_of(due: &mut DueEvents, limit: usize) {
    due.events.sort_by_key(|event| (event.state.wake_at(), event.id));
    if let Some(left_over) = due.events.get(limit) {
        due.next = [due.next, left_over.state.wake_at()].into_iter().flatten().min();
        due.events.truncate(limit);
    }
}

/// A payload with the dictionary of its body, and with the copy of that.
const PAYLOAD: &str = "select p.body, (select body_digest from events where id = p.event), p.unpacked, p.dictionary, d.bytes, \
    p.headers, p.headers_digest from payloads p left join dictionaries d on d.id = p.dictionary where p.event = ?1";
const PAYLOAD_BY_COPY: &str = "select p.body, (select body_digest from events where id = p.event), p.unpacked, p.dictionary, \
    d.bytes, p.headers, p.headers_digest from payloads p join dictionary_copies d on d.id = p.dictionary where p.event = ?1";

/// The payload. A body on an unreadable page counts as damaged: other events are still served.
pub(super) fn payload(db: &Connection, id: EventId) -> Result<StoredValue<Payload>> {
    let read = |row: &rusqlite::Row<'_>| {
        let text = row.get_ref(5)?.as_str().unwrap_or_default();
        let whole = row.get(6).map(Digest).ok() == Some(Digest::of(text.as_bytes()));
        Ok(match (row::headers(text), stored_body(row)) {
            (Some(headers), Some(body)) if whole => Some(Payload { headers, body: body.into() }),
            _ => None,
        })
    };
    from_either_copy(db, id, read)
}

/// The body alone.
pub(super) fn body(db: &Connection, id: EventId) -> Result<StoredValue<Vec<u8>>> {
    from_either_copy(db, id, |row| Ok(stored_body(row)))
}

/// Reads a row of [`PAYLOAD`]; if that is not as it was written, again with the copy of its dictionary. Each statement is a
/// snapshot of its own: a body and what it is packed with are always read together. Where the copy is not needed any more, the
/// body was packed without its dictionary in between: then it is read once more.
fn from_either_copy<T>(
    db: &Connection,
    id: EventId,
    read: impl Fn(&rusqlite::Row<'_>) -> Result<Option<T>>,
) -> Result<StoredValue<T>> {
    let (mut is_there, mut unreadable) = (false, None);
    for sql in [PAYLOAD, PAYLOAD_BY_COPY, PAYLOAD] {
        match db.prepare_cached(sql)?.query_row([id.0], &read).optional() {
            Ok(Some(Some(whole))) => return Ok(StoredValue::Whole(whole)),
            Ok(Some(None)) => is_there = true,
            Ok(None) if sql == PAYLOAD => return Ok(StoredValue::Forgotten),
            Ok(None) => {}
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
                unreadable = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = &unreadable {
        damaged(id, &format!("its body cannot be read: {error}"));
    }
    Ok(if is_there || unreadable.is_some() { StoredValue::Damaged } else { StoredValue::Forgotten })
}

/// The body in a row of [`PAYLOAD`], if its digest is that of its event.
fn stored_body(row: &rusqlite::Row<'_>) -> Option<Vec<u8>> {
    let bytes = row.get_ref(0).ok()?.as_blob().unwrap_or_default();
    let unpacked = row.get_ref(2).ok()?.as_i64_or_null().ok()?;
    let body = match row.get_ref(3).ok()?.as_i64_or_null().ok()? {
        Some(_) => compression::unpack_with(bytes, unpacked, Some(row.get_ref(4).ok()?.as_blob().ok()?)),
        None => compression::unpack(bytes, unpacked),
    };
    let digest = row.get(1).map(Digest).ok();
    body.filter(|body| digest == Some(Digest::of(body)))
}

fn damaged(id: EventId, why: &str) {
    error!(target: "hookonce", event = %id, why, "damaged");
}

/// The receipt; `None` if it is not as it was stored.
pub(super) fn receipt(db: &Connection, id: EventId) -> Result<Option<Receipt>> {
    let sql = "select status, headers, body, cut, digest from receipts where event = ?1";
    let read = |row: &rusqlite::Row<'_>| {
        let text = row.get_ref(1)?.as_str().unwrap_or_default();
        let body = row.get_ref(2)?.as_blob().unwrap_or_default();
        let (Ok(status), Ok(cut), Some(headers)) = (row.get(0), row.get(3), row::headers(text)) else {
            return Ok(None);
        };
        let whole = row.get(4).map(Digest).ok() == Some(row::receipt_digest(status, cut, text, body));
        Ok(whole.then(|| Receipt { status, headers, body: body.to_vec(), truncated: cut }))
    };
    let found = db.prepare_cached(sql)?.query_row([id.0], read).optional()?;
    if let Some(None) = found {
        damaged(id, "its receipt cannot be read");
    }
    Ok(found.flatten())
}

pub(super) fn recipes(db: &Connection) -> Result<Vec<IdentityRecipe>> {
    let mut rows = db.prepare_cached("select scope, once, since from scopes order by scope")?;
    rows.query_map([], |row| {
        Ok(IdentityRecipe {
            scope: row.get(0)?,
            once: row.get(1)?,
            since: row.get::<_, Option<i64>>(2)?.map(Timestamp),
        })
    })?
    .collect()
}

/// Digits of the short id shown to users.
const SHORT_ID: usize = 8;
/// The ids that end so. Both scan every id, in the narrowest index that has them all.
pub(super) const ENDING_IN_BYTES: &str = "select id from events indexed by events_source where substr(id, 13) = ?1";
const ENDING_IN_DIGITS: &str = "select id from events indexed by events_source where hex(id) like '%' || ?1";

/// How many events are read to find those of a delivery id: the newest whose names are alike in the index.
const NAMESAKES_READ: usize = 1_000;

/// The events with this delivery id, or whose id ends with this: for that, all ids are scanned.
pub(super) fn named(db: &Connection, name: &str, mirror: Option<&FreshMirror>, limit: usize) -> Result<Vec<Event>> {
    let mut found = Vec::new();
    for id in indexed(db, indexed_name(name), mirror)? {
        found.extend(get(db, id)?.filter(|event| event.delivery_id.as_deref() == Some(name)));
        if found.len() == limit {
            break;
        }
    }
    for id in ending(db, &name.to_ascii_lowercase(), limit)? {
        if found.iter().all(|event| event.id != id) {
            found.extend(get(db, id)?);
        }
    }
    found.sort_by_key(|event| std::cmp::Reverse(event.id));
    found.truncate(limit);
    Ok(found)
}

/// The newest events that may have this name: those that are not merged yet, and those of the index, asked in this order.
fn indexed(db: &Connection, name: &[u8], mirror: Option<&FreshMirror>) -> Result<Vec<EventId>> {
    let most = limit_cell(NAMESAKES_READ);
    let ids = |sql: &str| -> Result<Vec<EventId>> {
        let mut rows = db.prepare_cached(sql)?;
        let ids = rows.query_map(params![name, most], |row| Ok(event_id(row.get_ref(0)?)))?;
        ids.filter_map(Result::transpose).collect()
    };
    let mut found = match mirror {
        Some(mirror) => mirror.named(name, NAMESAKES_READ),
        None => ids("select event from fresh_names where name = ?1 and not gone order by event desc limit ?2")?,
    };
    found.extend(ids("select event from name_index where name = ?1 order by event desc limit ?2")?);
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.dedup();
    found.truncate(NAMESAKES_READ);
    Ok(found)
}

/// The newest ids with this suffix, as users write them.
fn ending(db: &Connection, suffix: &str, limit: usize) -> Result<Vec<EventId>> {
    let digits: String = suffix.chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || digits.len() > 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(Vec::new());
    }
    if let Ok(id) = suffix.parse::<EventId>() {
        return Ok(Vec::from([id]));
    }
    let last_bytes = digits.len().checked_sub(SHORT_ID).and_then(|at| u32::from_str_radix(&digits[at..], 16).ok());
    let (sql, end): (_, &dyn rusqlite::ToSql) = match &last_bytes {
        Some(last) => (ENDING_IN_BYTES, &last.to_be_bytes()),
        None => (ENDING_IN_DIGITS, &digits),
    };
    let mut ids = db.prepare_cached(sql)?;
    let mut ids = ids.query_map([end], |row| row.get(0).map(EventId))?.collect::<Result<Vec<_>>>()?;
    ids.sort_unstable_by(|a, b| b.cmp(a));
    Ok(ids.into_iter().filter(|id| id.to_string().ends_with(suffix)).take(limit).collect())
}

pub(super) fn story(db: &Connection, id: EventId) -> Result<Option<EventDetails>> {
    let snapshot = db.unchecked_transaction()?;
    let Some(event) = get(&snapshot, id)? else { return Ok(None) };
    let identities = "select identity from keys where event = ?1 and not alias union all \
                      select 'delivery' from keys where event = ?1 and not alias and id_digest is not null";
    let mut identities = several(&snapshot, identities, id, |row| Ok(MatchedBy::parse(row.get_ref(0)?.as_str()?)))?;
    identities.sort();
    identities.dedup();
    let sightings = "select at, delivery_id, identity from sightings where event = ?1 order by n";
    let sightings = several(&snapshot, sightings, id, |row| {
        let same = MatchedBy::parse(row.get_ref(2)?.as_str()?);
        Ok(DuplicateSighting { at: Timestamp(row.get(0)?), delivery_id: row.get(1)?, same })
    })?;
    let duplicates = several(&snapshot, "select count from duplicates where event = ?1", id, |row| row.get(0))?;
    let body = several(&snapshot, "select 1 from payloads where event = ?1", id, |_| Ok(()))?;
    let group = event.group.filter(|_| event.state == EventState::Waiting { due: None });
    let holder = "select event from slots where grp = ?1";
    let behind = match group {
        Some(group) => snapshot.prepare_cached(holder)?.query_row([group.0], |row| row.get(0)).optional()?,
        None => None,
    };
    Ok(Some(EventDetails {
        event,
        behind: behind.map(EventId),
        identities,
        sightings,
        duplicates: duplicates.first().map_or(0, |count: &i64| count.unsigned_abs()),
        attempts: attempts(&snapshot, id)?,
        receipt: receipt(&snapshot, id)?,
        has_body: !body.is_empty(),
    }))
}

fn attempts(db: &Connection, id: EventId) -> Result<Vec<AttemptRecord>> {
    let sql = "select a.life, a.attempt, a.started_at, a.ended_at, a.outcome, a.why, coalesce(o.bytes, x'') \
               from attempts a left join output o on o.id = a.id where a.event = ?1 order by a.id";
    several(db, sql, id, |row| {
        Ok(AttemptRecord {
            life: row.get(0)?,
            attempt: row.get(1)?,
            started_at: Timestamp(row.get(2)?),
            ended_at: Timestamp(row.get(3)?),
            outcome: row.get(4)?,
            why: row.get(5)?,
            output: row.get(6)?,
        })
    })
}

/// The rows related to an event. An unreadable one is left out: they are only displayed.
fn several<T>(
    db: &Connection,
    sql: &str,
    id: EventId,
    read: impl Fn(&rusqlite::Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut rows = db.prepare_cached(sql)?;
    let mut rows = rows.query([id.0])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.extend(read(row).ok());
    }
    Ok(all)
}

pub(super) fn events(db: &Connection, sql: &str, params: impl Params) -> Result<Vec<Event>> {
    db.prepare_cached(sql)?.query_map(params, |row| Ok(row::read(row).event()))?.collect()
}

pub(super) fn limit_cell(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl row::StoredRow for rusqlite::Row<'_> {
    fn cell(&self, place: usize) -> CellValue<'_> {
        match self.get_ref(place) {
            Ok(ValueRef::Null) => CellValue::Null,
            Ok(ValueRef::Integer(number)) => CellValue::Number(number),
            Ok(cell @ ValueRef::Text(_)) => cell.as_str().map_or(CellValue::Other, CellValue::Text),
            Ok(ValueRef::Blob(bytes)) => CellValue::Bytes(bytes),
            Ok(ValueRef::Real(_)) | Err(_) => CellValue::Other,
        }
    }
}

/// The last-seen time; `None` in a store of the first release, and where only a reader opens one.
pub(super) fn read(db: &Connection) -> Result<Option<Timestamp>> {
    db.query_row("select at from last_seen", [], |row| row.get(0).map(Timestamp)).optional()
}

/// Writes the last-seen time.
pub(super) fn write(db: &Connection, time: Timestamp) -> Result<()> {
    let sql = "insert into last_seen (id, at) values (1, ?1) on conflict (id) do update set at = excluded.at";
    db.prepare_cached(sql)?.execute([time.0]).map(drop)
}

/// Adds a message to quarantine, and evicts the oldest.
pub(super) fn lay(db: &Connection, one: &QuarantinedMessage) -> Result<()> {
    let bytes = i64::try_from(one.bytes).unwrap_or(i64::MAX);
    db.prepare_cached(
        "insert into quarantine (message, source, subject, at, why, bytes, head)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7) on conflict do nothing",
    )?
    .execute(params![one.message, &*one.source, one.subject, one.at.0, one.why, bytes, &one.head[..]])?;
    db.prepare_cached("delete from quarantine where n <= (select max(n) from quarantine) - ?1")?
        .execute([number(limits::QUARANTINE_MAX)])?;
    Ok(())
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The newest quarantined messages.
pub(super) fn newest(db: &Connection, limit: usize) -> Result<Vec<QuarantinedMessage>> {
    let sql = "select source, message, subject, at, why, bytes, head from quarantine order by n desc limit ?1";
    let one = |row: &rusqlite::Row<'_>| {
        Ok(QuarantinedMessage {
            source: row.get::<_, String>(0)?.into(),
            message: row.get(1)?,
            subject: row.get(2)?,
            at: Timestamp(row.get(3)?),
            why: row.get(4)?,
            bytes: row.get::<_, i64>(5)?.unsigned_abs(),
            head: Bytes::from(row.get::<_, Vec<u8>>(6)?),
        })
    };
    db.prepare_cached(sql)?.query_map([number(limit)], one)?.collect()
}

pub(super) fn retention(db: &Connection) -> Result<Vec<SourceRetention>> {
    let mut rows = db.prepare_cached("select source, keep, keep_body, seen_at from retention order by source")?;
    let row = |row: &rusqlite::Row<'_>| {
        let source = row.get_ref(0)?.as_str()?;
        Ok(SourceRetention::of_numbers(source, (row.get(1)?, row.get(2)?, row.get(3)?)))
    };
    rows.query_map([], row)?.collect()
}

pub(super) fn retain(db: &Connection, rows: &[SourceRetention]) -> Result<()> {
    let sql = "insert or replace into retention (source, keep, keep_body, seen_at) values (?1, ?2, ?3, ?4)";
    let mut insert = db.prepare_cached(sql)?;
    rows.iter().try_for_each(|row| {
        let (keep, body, seen_at) = row.numbers();
        insert.execute((&*row.source, keep, body, seen_at)).map(drop)
    })
}

/// The names of all sources, one index seek each, without reading the entries in between.
pub(super) const SOURCES: &str = "with recursive names (name) as (select min(source) from events \
    union all select (select min(source) from events where source > name) from names where name is not null) \
    select name from names where name is not null";
pub(super) const COUNT_OF_SOURCE: &str = "select count(*) from (select 1 from events where source = ?1 limit ?2)";

pub(super) fn other_sources(db: &Connection, known: &BTreeSet<Arc<str>>) -> Result<Vec<SourceCount>> {
    let snapshot = db.unchecked_transaction()?;
    let (mut names, mut count) = (snapshot.prepare_cached(SOURCES)?, snapshot.prepare_cached(COUNT_OF_SOURCE)?);
    let names = names.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>>>()?;
    let others = names.into_iter().filter(|name| !known.contains(name.as_str())).take(limits::OTHER_SOURCES_MAX);
    let counted = others.map(|source| {
        let events =
            count.query_row((&*source, limit_cell(limits::OTHER_EVENTS_MAX + 1)), |row| row.get::<_, i64>(0))?;
        Ok(SourceCount::up_to(&source, events.unsigned_abs(), limits::OTHER_EVENTS_MAX))
    });
    counted.collect()
}
