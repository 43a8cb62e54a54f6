//! The ledger over SQLite: single rows, read and written inside the writer's transaction.

use super::duplicate_notes::DuplicateTally;
use super::fresh_index::{FreshKeys, IndexChange, KeyPrefix, event_id, indexed_name};
use super::last_write::LastWriteMark;
use crate::decide::claim::{MatchedBy, Payload};
use crate::decide::event::{Event, EventState, EventStep, Receipt};
use crate::decide::id::{DeliveryIdDigest, Digest, EventId, Key, QueueTurn};
use crate::decide::ledger;
use crate::decide::ledger::{EventRow, KeyOwner, Ledger, SubjectRegister, SweepLedger};
use crate::decide::limits;
use crate::decide::source::Route;
use crate::decide::time::Timestamp;
use crate::decide::transition::AttemptRecord;
use crate::store::body_packer::BodyPacker;
use crate::store::row::{ColumnRewritten, DamageRecorded, DecodedRow, EVENT_COLUMNS, EventCell, RowToWrite, columns};
use crate::store::{DuplicateSighting, StoreTimes, row};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Params, Result, params, params_from_iter};
use std::iter;
use std::sync::LazyLock;
use tracing::error;

/// The rows, in one transaction at one time.
pub(super) struct SqliteLedger<'t> {
    /// The writing connection.
    pub(super) db: &'t Connection,
    /// The time of the transaction.
    pub(super) at: StoreTimes,
    /// The last turn that was taken.
    pub(super) turns: &'t mut u64,
    /// The note of the last write.
    pub(super) mark: &'t mut LastWriteMark,
    /// The keys that are not in the index yet.
    pub(super) fresh: FreshKeys<'t>,
    /// Packs bodies; `None` for readers.
    pub(super) packer: Option<&'t mut BodyPacker>,
}

impl SqliteLedger<'_> {
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.db.prepare_cached(sql)?.execute(params)
    }

    pub(super) fn find<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.db.prepare_cached(sql)?.query_row(params, read).optional()
    }

    /// Updates these columns of an existing event.
    fn rewrite(&self, sql: &str, when: ColumnRewritten, row: RowToWrite<'_>) -> Result<()> {
        let id = EventCell::Bytes(&row.event.id.0);
        self.execute(sql, params_from_iter(iter::once(id).chain(row.cells(row::rewritten(when))))).map(drop)
    }

    fn ids(&self, sql: &str, params: impl Params) -> Result<Vec<EventId>> {
        let mut rows = self.db.prepare_cached(sql)?;
        rows.query_map(params, |row| row.get(0).map(EventId))?.collect()
    }

    /// Ends an event that cannot be read, as soon as it is found. Its group may be what is damaged, so the slot is
    /// looked up by its holder.
    fn bury(&mut self, mut row: EventRow) -> Result<EventRow> {
        error!(target: "hookonce", event = %row.event.id, why = "its row cannot be read; it is ended as dead", "damaged");
        self.replace_cells_of_other_types(row.event.id)?;
        let slot = self.find("select grp from slots where event = ?1", [row.event.id.0], |slot| slot.get(0))?;
        row.event.group = slot.map(Key).or(row.event.group);
        ledger::end_damaged(self, row, self.at.now)
    }

    /// Replaces the cells of an event that do not have the type of their column: SQLite writes no row with such a cell, not
    /// even to change another one.
    fn replace_cells_of_other_types(&self, id: EventId) -> Result<()> {
        let sql = "select name, lower(type), \"notnull\" from pragma_table_xinfo('events') where pk = 0 and hidden = 0";
        let mut columns = self.db.prepare(sql)?;
        let assigned = columns.query_map([], |column| {
            let (name, kind): (String, String) = (column.get(0)?, column.get(1)?);
            let (null, other) = match (column.get(2)?, kind.as_str()) {
                (false, _) => ("null", "null"),
                (true, "text") => ("", "''"),
                (true, "blob") => ("", "x''"),
                (true, _) => ("", "0"),
            };
            Ok(format!(
                "\"{name}\" = case when typeof(\"{name}\") in ('{kind}', '{null}') then \"{name}\" else {other} end"
            ))
        });
        let assigned = assigned?.collect::<Result<Vec<_>>>()?.join(", ");
        self.db.execute(&format!("update events set {assigned} where id = ?1"), [id.0]).map(drop)
    }

    fn sound(&mut self, found: DecodedRow) -> Result<EventRow> {
        match found {
            DecodedRow::Whole(row) | DecodedRow::Damaged(row, DamageRecorded::Yes) => Ok(row),
            DecodedRow::Damaged(row, DamageRecorded::No) => self.bury(row),
        }
    }

    /// Ends the leases of actions that ended with the previous node. Returns how many it ended, and how many are left
    /// to expire by the clock.
    pub(super) fn end_leases(&mut self) -> Result<(usize, usize)> {
        let leased = self.ids("select id from events where state = 'running' and wake_at > ?1", [self.at.now.0])?;
        let (mut ended, mut left) = (0, 0);
        for id in leased {
            let Some(EventRow { event, .. }) = self.row(id)? else { continue };
            // What follows is decided when the expired lease is found, by the route at that time.
            match event.transition(EventStep::Orphan, &Route::default(), self.at.now) {
                Ok(change) => {
                    ledger::advance(self, &change, self.at.now)?;
                    ended += 1;
                }
                Err(_) => left += usize::from(matches!(event.state, EventState::Running { .. })),
            }
        }
        Ok((ended, left))
    }

    /// Frees the slots of events that have ended or are gone: there are none unless a row was damaged. Returns how
    /// many.
    pub(super) fn free_slots(&mut self) -> Result<usize> {
        let mut slots = self.db.prepare(
            "select slots.grp from slots left join events on events.id = slots.event \
             where events.id is null or events.ended_at is not null",
        )?;
        let groups = slots.query_map([], |row| row.get(0).map(Key))?.collect::<Result<Vec<_>>>()?;
        for group in &groups {
            ledger::hand_slot_on(self, group, self.at.now)?;
        }
        Ok(groups.len())
    }

    /// Records duplicates. Their event may have been deleted meanwhile.
    pub(super) fn note(&mut self, event: EventId, seen: &DuplicateTally) -> Result<()> {
        let count = self.find(
            "insert into duplicates (event, count) select id, ?2 from events where id = ?1
             on conflict (event) do update set count = count + ?2 returning count",
            params![event.0, i64::try_from(seen.count).unwrap_or(i64::MAX)],
            |row| row.get::<_, i64>(0),
        )?;
        let Some(count) = count.and_then(|count| u64::try_from(count).ok()) else { return Ok(()) };
        let room = limits::SIGHTINGS_MAX as u64;
        for (n, DuplicateSighting { at, delivery_id, same }) in
            (count.saturating_sub(seen.count) + 1..=room).zip(&seen.first)
        {
            self.execute(
                "insert or replace into sightings (event, n, at, delivery_id, identity) values (?1, ?2, ?3, ?4, ?5)",
                params![event.0, i64::try_from(n).unwrap_or(i64::MAX), at.0, delivery_id.as_deref(), same.word()],
            )?;
        }
        Ok(())
    }
}

impl ToSql for EventCell<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Number(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Inserts a new event.
static INSERT_EVENT: LazyLock<String> = LazyLock::new(|| {
    let values: Vec<_> = (1..=EVENT_COLUMNS.len() + 1).map(|place| format!("?{place}")).collect();
    format!("insert into events ({}, body) values ({})", columns!(), values.join(", "))
});
/// Updates what a step changes.
static UPDATE_EVENT: LazyLock<String> =
    LazyLock::new(|| format!("update events set {} where id = ?1", assigned(ColumnRewritten::Step)));
/// Updates what a new body changes.
static REPLACE_BODY: LazyLock<String> =
    LazyLock::new(|| format!("update events set {}, body = 1 where id = ?1", assigned(ColumnRewritten::Body)));

/// Assigns these columns the parameters from the second on.
fn assigned(when: ColumnRewritten) -> String {
    let columns = row::rewritten(when).zip(2..).map(|(column, place)| format!("{} = ?{place}", column.name));
    columns.collect::<Vec<_>>().join(", ")
}

/// Skips events that carry their register's order: they would stay at the front for ever.
macro_rules! forgettable {
    ($body:literal) => {
        concat!(
            "select id from (select id from events where source = ?1 and body ",
            $body,
            " and keep_from <= ?2 and (ord is null or not exists \
               (select 1 from registers where registers.key = events.subject and registers.ord = events.ord)) \
             order by keep_from limit ?3)"
        )
    };
}
/// The last part is for damaged cells.
pub(super) const FORGETTABLE: &str = concat!(
    forgettable!("= 0"),
    " union all ",
    forgettable!("= 1"),
    " union all select id from (select id from events where source = ?1 and body > 1 and keep_from <= ?2 limit ?3) limit ?3"
);
/// Most bodies are kept from the same time as their events. Those that are not have an index of their own. An event that was
/// dead when its subject's next one took its place may end again later than it is kept from.
pub(super) const OLD_BODIES: &str = "select id from (select id from events \
    where source = ?1 and body = 1 and keep_from <= ?2 and ended_at <= ?2 order by keep_from limit ?3) \
    union all select id from (select id from events where source = ?1 and body = 1 and keep_from is not ended_at \
        and ended_at <= ?2 and (keep_from is null or keep_from > ?2) order by ended_at limit ?3) \
    limit ?3";
pub(super) const PARKED: &str = concat!(
    "select ",
    columns!(),
    " from events where grp = ?1 and state = 'waiting' and wake_at is null order by turn, id limit 1"
);

/// The key of an event, if it still has it.
const KEY_OF_EVENT: &str = "select event, identity, alias, id_digest from keys where event = ?2 and key = ?1";
/// The key of the event that the index names. An entry whose event is gone finds nothing.
pub(super) const INDEXED_KEY: &str = "select keys.event, identity, alias, id_digest from key_index \
    join keys on keys.event = key_index.event and keys.key = ?1 where key_index.key = ?2";

/// A key's owner in these columns: event, identity, alias, `id_digest`.
fn key_owner(row: &rusqlite::Row<'_>) -> Result<Option<KeyOwner>> {
    let Some(event) = event_id(row.get_ref(0)?) else { return Ok(None) }; // it is no longer of that event
    let same = MatchedBy::parse(row.get_ref(1)?.as_str().unwrap_or_default()); // for display only
    let alias = row.get_ref(2)?.as_i64().is_ok_and(|alias| alias != 0); // for display only
    Ok(Some(KeyOwner { event, same, alias, id_digest: id_digest(row, 3) }))
}

/// The delivery id's digest in this column; a damaged one is ignored.
pub(super) fn id_digest(row: &rusqlite::Row<'_>, column: usize) -> Option<DeliveryIdDigest> {
    let bytes = row.get_ref(column).ok()?.as_blob().ok()?;
    bytes.try_into().ok().map(DeliveryIdDigest)
}

/// A register in these columns: key, value, ord, strict, event, note. A damaged note is ignored.
pub(super) fn register(row: &rusqlite::Row<'_>) -> Result<SubjectRegister> {
    Ok(SubjectRegister {
        value: Digest(row.get(1)?),
        order: row.get(2)?,
        strict: row.get(3)?,
        event: EventId(row.get(4)?),
        note: row.get_ref(5)?.as_str().ok().map(Into::into),
    })
}

fn limit_cell(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl Ledger for SqliteLedger<'_> {
    type Error = rusqlite::Error;

    fn row(&mut self, id: EventId) -> Result<Option<EventRow>> {
        let sql = concat!("select ", columns!(), " from events where id = ?1");
        let found = self.find(sql, [id.0], |row| Ok(row::read(row)))?;
        found.map(|found| self.sound(found)).transpose()
    }

    fn insert(&mut self, row: &EventRow, payload: Option<&Payload>) -> Result<()> {
        let event = &row.event;
        self.mark.written(event.id, event.revision);
        if let FreshKeys::Writer(index) = &mut self.fresh {
            index.forget_free();
        }
        let body = EventCell::Number(payload.is_some().into());
        self.execute(&INSERT_EVENT, params_from_iter(RowToWrite::from(row).cells(EVENT_COLUMNS).chain([body])))?;
        if let Some(name) = &event.delivery_id {
            self.index_name(indexed_name(name), event.id, IndexChange::Added)?;
        }
        match payload {
            Some(payload) => self.write_payload(event, payload),
            None => Ok(()),
        }
    }

    fn update(&mut self, row: &EventRow) -> Result<()> {
        self.mark.written(row.event.id, row.event.revision);
        self.rewrite(&UPDATE_EVENT, ColumnRewritten::Step, row.into())
    }

    fn remove(&mut self, id: EventId) -> Result<()> {
        self.remove_index_entries(id)?;
        for sql in [
            "delete from keys where event = ?1",
            "delete from payloads where event = ?1",
            "delete from receipts where event = ?1",
            "delete from attempts where event = ?1",
            "delete from output where event = ?1",
            "delete from sightings where event = ?1",
            "delete from duplicates where event = ?1",
            "delete from events where id = ?1",
        ] {
            self.execute(sql, [id.0])?;
        }
        self.mark.removed(id);
        Ok(())
    }

    fn key_owner(&mut self, key: &Key) -> Result<Option<KeyOwner>> {
        let prefix = KeyPrefix::of(key);
        let fresh = self.fresh.candidate(self.db, prefix)?;
        let mut owner = match fresh {
            Some(event) => self.find(KEY_OF_EVENT, params![key.0, event.0], key_owner)?.flatten(),
            None => None,
        };
        if owner.is_none() {
            owner = self.find(INDEXED_KEY, params![key.0, prefix.0], key_owner)?.flatten();
        }
        if let (None, FreshKeys::Writer(index)) = (&owner, &mut self.fresh) {
            index.found_free(key);
        }
        Ok(owner)
    }

    fn set_key_owner(&mut self, key: &Key, held: &KeyOwner) -> Result<()> {
        // A claim has just looked up its keys: they are not looked up again.
        let is_free = match &mut self.fresh {
            FreshKeys::Writer(index) => index.take_free(key),
            FreshKeys::Candidates(_) | FreshKeys::Table => false,
        };
        if !is_free && self.key_owner(key)?.is_some() {
            return Ok(());
        }
        if let FreshKeys::Writer(index) = &mut self.fresh {
            index.take_free(key);
        }
        self.execute(
            // Where its entry in the index was lost, the event may have it already.
            "insert or ignore into keys (key, event, identity, alias, id_digest) values (?1, ?2, ?3, ?4, ?5)",
            params![key.0, held.event.0, held.same.word(), held.alias, held.id_digest.map(|digest| digest.0)],
        )?;
        match &mut self.fresh {
            FreshKeys::Writer(index) => index.key(self.db, key, held.event, IndexChange::Added),
            FreshKeys::Candidates(_) | FreshKeys::Table => Ok(()),
        }
    }

    fn is_imported(&mut self, key: &Key) -> Result<bool> {
        if matches!(&self.fresh, FreshKeys::Writer(index) if !index.has_imports) {
            return Ok(false);
        }
        Ok(self.find("select 1 from imported where key = ?1", [key.0], |_| Ok(()))?.is_some())
    }

    fn set_imported(&mut self, key: &Key) -> Result<bool> {
        if let FreshKeys::Writer(index) = &mut self.fresh {
            index.has_imports = true;
        }
        Ok(self.execute("insert into imported (key) values (?1) on conflict do nothing", [key.0])? > 0)
    }

    fn register(&mut self, subject: &Key) -> Result<Option<SubjectRegister>> {
        let sql = "select key, value, ord, strict, event, note from registers where key = ?1";
        self.find(sql, [subject.0], register)
    }

    fn set_register(&mut self, subject: &Key, register: &SubjectRegister) -> Result<()> {
        self.execute(
            "insert or replace into registers (key, value, ord, strict, event, note) values (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                subject.0,
                register.value.0,
                register.order,
                register.strict,
                register.event.0,
                register.note.as_deref()
            ],
        )?;
        Ok(())
    }

    fn remove_register(&mut self, subject: &Key) -> Result<()> {
        self.execute("delete from registers where key = ?1", [subject.0]).map(drop)
    }

    fn slot(&mut self, group: &Key) -> Result<Option<EventId>> {
        self.find("select event from slots where grp = ?1", [group.0], |row| row.get(0).map(EventId))
    }

    fn set_slot(&mut self, group: &Key, event: Option<EventId>) -> Result<()> {
        match event {
            Some(event) => {
                self.execute("insert or replace into slots (grp, event) values (?1, ?2)", (group.0, event.0))?
            }
            None => self.execute("delete from slots where grp = ?1", [group.0])?,
        };
        Ok(())
    }

    fn parked(&mut self, group: &Key) -> Result<Option<EventRow>> {
        loop {
            match self.find(PARKED, [group.0], |row| Ok(row::read(row)))? {
                Some(DecodedRow::Whole(row)) => return Ok(Some(row)),
                Some(DecodedRow::Damaged(row, _)) => self.bury(row)?, // no longer parked
                None => return Ok(None),
            };
        }
    }

    fn next_turn(&mut self) -> QueueTurn {
        *self.turns += 1;
        QueueTurn(*self.turns)
    }

    fn set_payload(&mut self, event: &Event, payload: &Payload) -> Result<()> {
        let before = self.delivery_id(event.id)?;
        if before.as_deref() != event.delivery_id.as_deref() {
            let names = [(before.as_deref(), IndexChange::Gone), (event.delivery_id.as_deref(), IndexChange::Added)];
            for (name, change) in names {
                name.map_or(Ok(()), |name| self.index_name(indexed_name(name), event.id, change))?;
            }
        }
        self.rewrite(&REPLACE_BODY, ColumnRewritten::Body, RowToWrite { event, keep_from: None })?;
        self.write_payload(event, payload)
    }

    fn set_receipt(&mut self, id: EventId, receipt: Option<&Receipt>) -> Result<()> {
        let Some(Receipt { status, headers, body, truncated: cut }) = receipt else {
            return self.execute("delete from receipts where event = ?1", [id.0]).map(drop);
        };
        let headers = row::headers_cell(headers);
        let digest = row::receipt_digest(*status, *cut, &headers, body);
        self.execute(
            "insert or replace into receipts (event, status, headers, body, cut, digest) \
             values (?1, ?2, ?3, ?4, ?5, ?6)",
            params![id.0, status, headers, body, cut, digest.0],
        )?;
        Ok(())
    }

    fn drop_transient_headers(&mut self, id: EventId) -> Result<()> {
        self.shed_headers(id)
    }

    fn add_attempt(&mut self, id: EventId, tried: &AttemptRecord) -> Result<()> {
        let AttemptRecord { life, attempt, started_at, ended_at, outcome, why, output } = tried;
        self.execute(
            "insert into attempts (event, life, attempt, started_at, ended_at, outcome, why) \
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![id.0, life, attempt, started_at.0, ended_at.0, outcome, why],
        )?;
        if !output.is_empty() {
            self.execute(
                "insert into output (id, event, life, attempt, bytes) values (?1, ?2, ?3, ?4, ?5)",
                params![self.db.last_insert_rowid(), id.0, life, attempt, output],
            )?;
        }
        Ok(())
    }
}

impl SweepLedger for SqliteLedger<'_> {
    fn forgettable(&mut self, source: &str, before: Timestamp, limit: usize) -> Result<Vec<EventId>> {
        self.ids(FORGETTABLE, (source, before.0, limit_cell(limit)))
    }

    fn remove_bodies(&mut self, source: &str, before: Timestamp, limit: usize) -> Result<u64> {
        let ids = self.ids(OLD_BODIES, (source, before.0, limit_cell(limit)))?;
        for id in &ids {
            for sql in [
                "delete from payloads where event = ?1",
                "delete from receipts where event = ?1",
                "delete from output where event = ?1",
                "update events set body = 0 where id = ?1",
            ] {
                self.execute(sql, [id.0])?;
            }
        }
        Ok(ids.len() as u64)
    }
}

impl SqliteLedger<'_> {
    fn index_name(&mut self, name: &[u8], event: EventId, change: IndexChange) -> Result<()> {
        match &mut self.fresh {
            FreshKeys::Writer(index) => index.name(self.db, name, event, change),
            FreshKeys::Candidates(_) | FreshKeys::Table => Ok(()),
        }
    }

    /// Lets what is in the indexes of an event be removed from them. The entry of a key that cannot be read stays: it
    /// finds nothing.
    fn remove_index_entries(&mut self, id: EventId) -> Result<()> {
        let FreshKeys::Writer(index) = &mut self.fresh else { return Ok(()) };
        let mut keys = self.db.prepare_cached("select key from keys where event = ?1")?;
        let mut keys = keys.query([id.0])?;
        while let Some(row) = keys.next()? {
            let key = row.get_ref(0)?.as_blob().ok().and_then(|key| key.try_into().ok());
            if let Some(key) = key.map(Key) {
                index.key(self.db, &key, id, IndexChange::Gone)?;
            }
        }
        let name = self.delivery_id(id)?;
        name.map_or(Ok(()), |name| self.index_name(indexed_name(&name), id, IndexChange::Gone))
    }

    /// The delivery id of an event; `None` also where it is damaged.
    fn delivery_id(&self, id: EventId) -> Result<Option<String>> {
        let found = self.find("select delivery_id from events where id = ?1", [id.0], |row| Ok(row.get(0).ok()))?;
        Ok(found.flatten())
    }

    /// Removes the transient headers.
    pub(super) fn shed_headers(&self, id: EventId) -> Result<()> {
        let cell = self.find("select headers from payloads where event = ?1", [id.0], |row| {
            Ok(row::shed(row.get_ref(0)?.as_str().unwrap_or_default()))
        });
        match cell {
            Ok(Some(Some(headers))) => self.write_headers(id, &headers),
            // A payload on an unreadable page must not keep its event from ending.
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseCorrupt) => Err(error),
            _ => Ok(()),
        }
    }

    /// Overwrites the old bytes with zeros.
    fn write_headers(&self, id: EventId, headers: &str) -> Result<()> {
        let overwrite = |on: bool| self.db.pragma_update_and_check(None, "secure_delete", on, |_| Ok(()));
        overwrite(true)?;
        let written = self.execute(
            "update payloads set headers = ?2, headers_digest = ?3 where event = ?1",
            params![id.0, headers, Digest::of(headers.as_bytes()).0],
        );
        overwrite(false)?;
        written.map(drop)
    }

    fn write_payload(&mut self, event: &Event, payload: &Payload) -> Result<()> {
        let headers = row::headers_cell(&payload.headers);
        let packed = self.pack(event, &payload.body)?;
        let dictionary = packed.dictionary().map(|dictionary| dictionary.0);
        self.execute(
            "insert or replace into payloads (event, headers, headers_digest, body, unpacked, dictionary) \
             values (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                event.id.0,
                headers,
                Digest::of(headers.as_bytes()).0,
                packed.bytes(),
                packed.unpacked(),
                dictionary
            ],
        )?;
        Ok(())
    }
}
