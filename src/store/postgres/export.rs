//! Reading a whole store, to copy it: a page of events in two round trips, with all that belongs to them.

use super::dictionaries::PgDictionaries;
use super::pool::{PgConn, PgResult, ask};
use super::queries;
use super::queries::{kept, payloads, recipes, tried, unpacked};
use super::retention;
use super::rows::{self, PgRawCell, PgUuid};
use crate::decide::claim::MatchedBy;
use crate::decide::id::{DeliveryIdDigest, Digest, EventId, Key};
use crate::decide::ledger::{KeyOwner, SubjectRegister};
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::store::copy::copy_lock::is_own;
use crate::store::copy::{CompleteEvent, CopyCursor, CopyEntry, ExportPage, PageContinuation};
use crate::store::row::columns;
use crate::store::{DuplicateSighting, StoredValue};
use std::collections::BTreeMap;
use tokio_postgres::Row;

const EVENTS: &str = concat!("select ", columns!(), ", version from {schema}.events where id = any($1) order by id");
/// The size of each event of a page with all that belongs to it. Lengths are read without reading the values.
const SIZES: &str = "select e.id, coalesce((select coalesce(p.unpacked, octet_length(p.body)) from {schema}.payloads p \
     where p.event = e.id), 0) + coalesce((select octet_length(r.body)::bigint from {schema}.receipts r \
     where r.event = e.id), 0) + coalesce((select sum(octet_length(o.bytes))::bigint from {schema}.output o \
     where o.event = e.id), 0) from (select id from {schema}.events where id > $1 order by id limit $2) e order by e.id";
const KEYS: &str =
    "select event, key, identity, alias, id_digest from {schema}.keys where event = any($1) order by key";
const PAYLOADS: &str = concat!(
    "select p.event, p.headers, p.headers_digest, p.body, p.unpacked, e.body_digest, p.packed, p.dictionary from ",
    payloads!("event = any($1)"),
    " join {schema}.events e on e.id = p.event"
);
const RECEIPTS: &str = "select event, status, headers, body, cut, digest from {schema}.receipts where event = any($1)";
const ATTEMPTS: &str = "select a.event, a.life, a.attempt, a.started_at, a.ended_at, a.outcome, a.why, \
     coalesce(o.bytes, '') from {schema}.attempts a left join {schema}.output o on o.id = a.id \
     where a.event = any($1) order by a.id";
const DUPLICATES: &str = "select event, count from {schema}.duplicates where event = any($1)";
const SIGHTINGS: &str =
    "select event, at, delivery_id, identity from {schema}.sightings where event = any($1) order by event, n";
const REGISTERS: &str = "select key, value, ord, strict, event, note from {schema}.registers \
     where key > $1 order by key limit $2";
const SLOTS: &str = "select grp, event from {schema}.slots where grp > $1 order by grp limit $2";
const IMPORTED: &str = "select key from {schema}.imported where key > $1 order by key limit $2";
/// Counted if that is quick, else the server's last estimate.
const ENTRIES: &str = "select case when c.reltuples > 1000000 then c.reltuples::bigint \
     else (select count(*) from {schema}.events) end + (select count(*) from {schema}.slots) + \
     (select count(*) from (select from {schema}.registers limit 1000000) r) + \
     (select count(*) from (select from {schema}.imported limit 1000000) i) \
     from pg_catalog.pg_class c where c.oid = '{schema}.events'::regclass";

/// The approximate number of entries.
pub(super) async fn entries(link: &mut PgConn) -> PgResult<u64> {
    let rows = link.query_all(&[ask!(ENTRIES)]).await?.remove(0);
    Ok(rows.first().map(|row| row.try_get::<_, i64>(0)).transpose()?.map_or(0, i64::unsigned_abs))
}

/// One page.
pub(super) async fn export(
    link: &mut PgConn,
    from: CopyCursor,
    limit: usize,
    dictionaries: &PgDictionaries,
) -> PgResult<ExportPage> {
    let room = i64::try_from(limit).unwrap_or(i64::MAX);
    let after = |key: Option<Key>| key.map_or(Vec::new(), |key| key.0.to_vec());
    let more = |read: usize| if read == limit { PageContinuation::Maybe } else { PageContinuation::No };
    match from {
        CopyCursor::Events(last) => events(link, from, last, room, dictionaries).await,
        CopyCursor::Registers(mut last) => loop {
            let rows = link.query_all(&[ask!(REGISTERS, after(last), room)]).await?.remove(0);
            let more = more(rows.len());
            let mut entries = Vec::new();
            for row in &rows {
                let key = key(row, 0)?;
                if !is_own(&key) {
                    entries.push(CopyEntry::Register(key, register(row)?));
                }
                last = Some(key);
            }
            // A page with only the copy's own registers would look like the last one.
            if more == PageContinuation::No || !entries.is_empty() {
                return Ok(ExportPage::page(from, entries, more));
            }
        },
        CopyCursor::Slots(last) => {
            let rows = link.query_all(&[ask!(SLOTS, after(last), room)]).await?.remove(0);
            let one = |row: &Row| Ok(CopyEntry::Slot(key(row, 0)?, row.try_get::<_, PgUuid>(1)?.0));
            let entries = rows.iter().map(one).collect::<PgResult<Vec<_>>>()?;
            Ok(ExportPage::page(from, entries, more(rows.len())))
        }
        CopyCursor::Imported(last) => {
            let rows = link.query_all(&[ask!(IMPORTED, after(last), room)]).await?.remove(0);
            let entries = rows.iter().map(|row| Ok(CopyEntry::Imported(key(row, 0)?))).collect::<PgResult<Vec<_>>>()?;
            Ok(ExportPage::page(from, entries, more(rows.len())))
        }
        CopyCursor::Recipes => {
            let entries = recipes(link).await?.into_iter().map(CopyEntry::Recipe);
            Ok(ExportPage::page(from, entries.collect(), PageContinuation::No))
        }
        CopyCursor::Retention => {
            let entries = retention::retention(link).await?.into_iter().map(CopyEntry::Retention);
            Ok(ExportPage::page(from, entries.collect(), PageContinuation::No))
        }
        CopyCursor::Quarantine => {
            let newest = queries::newest(link, limits::QUARANTINE_MAX).await?.into_iter().rev();
            let entries = newest.map(|one| CopyEntry::Quarantined(Box::new(one)));
            Ok(ExportPage::page(from, entries.collect(), PageContinuation::No))
        }
    }
}

fn key(row: &Row, place: usize) -> PgResult<Key> {
    Ok(row.try_get::<_, PgRawCell<'_>>(place).map(|raw| Key(raw.array()))?)
}

fn register(row: &Row) -> PgResult<SubjectRegister> {
    Ok(SubjectRegister {
        value: Digest(row.try_get::<_, PgRawCell<'_>>(1)?.array()),
        order: row.try_get(2)?,
        strict: row.try_get(3)?,
        event: row.try_get::<_, PgUuid>(4)?.0,
        note: row.try_get::<_, Option<&str>>(5)?.map(Into::into),
    })
}

/// Events with all that belongs to them, up to the byte limit.
async fn events(
    link: &mut PgConn,
    from: CopyCursor,
    last: Option<EventId>,
    room: i64,
    dictionaries: &PgDictionaries,
) -> PgResult<ExportPage> {
    let last = last.unwrap_or(EventId([0; 16])); // no event has this id
    let sizes = link.query_all(&[ask!(SIZES, PgUuid(last), room)]).await?.remove(0);
    let (mut ids, mut bytes) = (Vec::new(), 0);
    let mut more = if i64::try_from(sizes.len()) == Ok(room) { PageContinuation::Maybe } else { PageContinuation::No };
    for row in &sizes {
        if bytes >= limits::BATCH_BYTES_MAX {
            more = PageContinuation::Maybe;
            break;
        }
        ids.push(row.try_get::<_, PgUuid>(0)?);
        bytes = bytes.saturating_add(usize::try_from(row.try_get::<_, i64>(1)?).unwrap_or_default());
    }
    if ids.is_empty() {
        return Ok(ExportPage::page(from, Vec::new(), PageContinuation::No));
    }
    let entries = wholes(link, &ids, dictionaries).await?.into_values().map(|whole| CopyEntry::Event(Box::new(whole)));
    Ok(ExportPage::page(from, entries.collect(), more))
}

async fn wholes(
    link: &mut PgConn,
    ids: &[PgUuid],
    dictionaries: &PgDictionaries,
) -> PgResult<BTreeMap<EventId, CompleteEvent>> {
    let all = [EVENTS, KEYS, PAYLOADS, RECEIPTS, ATTEMPTS, DUPLICATES, SIGHTINGS];
    let answers = link.query_all(&all.map(|sql| ask!(sql, ids.to_vec()))).await?;
    let [events, keys, payloads, receipts, attempts, duplicates, sightings] = &answers[..] else {
        return Ok(BTreeMap::new());
    };
    let mut wholes = BTreeMap::new();
    for row in events.iter().filter_map(|row| rows::event(row, 0)).map(|(row, _)| row) {
        let (id, keys, tried, sightings) = (row.event.id, Vec::new(), Vec::new(), Vec::new());
        let whole = CompleteEvent { row, keys, payload: None, receipt: None, tried, duplicates: 0, sightings };
        wholes.insert(id, whole);
    }
    let mut each = |rows: &[Row], add: &dyn Fn(&mut CompleteEvent, &Row) -> PgResult<()>| {
        rows.iter().try_for_each(|row| match wholes.get_mut(&row.try_get::<_, PgUuid>(0)?.0) {
            Some(whole) => add(whole, row),
            None => Ok(()),
        })
    };
    each(keys, &|whole, row| {
        let id_digest =
            row.try_get::<_, Option<&[u8]>>(4)?.and_then(|bytes| bytes.try_into().ok()).map(DeliveryIdDigest);
        let (event, same, alias) = (whole.row.event.id, MatchedBy::parse(row.try_get(2)?), row.try_get(3)?);
        whole.keys.push((key(row, 1)?, KeyOwner { event, same, alias, id_digest }));
        Ok(())
    })?;
    each(receipts, &|whole, row| {
        whole.receipt = kept(whole.row.event.id, Some(row), 1)?;
        Ok(())
    })?;
    each(attempts, &|whole, row| {
        whole.tried.push(tried(row, 1)?);
        Ok(())
    })?;
    each(duplicates, &|whole, row| {
        whole.duplicates = row.try_get::<_, i64>(1)?.unsigned_abs();
        Ok(())
    })?;
    each(sightings, &|whole, row| {
        let delivery_id = row.try_get::<_, Option<&str>>(2)?.map(Into::into);
        let same = MatchedBy::parse(row.try_get(3)?);
        whole.sightings.push(DuplicateSighting { at: Timestamp(row.try_get(1)?), delivery_id, same });
        Ok(())
    })?;
    let mut alone = Vec::new();
    for row in payloads {
        let PgUuid(id) = row.try_get(0)?;
        match (unpacked(row, 1, dictionaries)?, wholes.get_mut(&id)) {
            (StoredValue::Whole(payload), Some(whole)) => whole.payload = Some(payload),
            (StoredValue::Damaged, Some(_)) => alone.push(id),
            _ => {}
        }
    }
    // Most of these are packed with a dictionary that is not known here, until the first was read together with it.
    for id in alone {
        let found = queries::payload(link, id, dictionaries).await?;
        if let (StoredValue::Whole(payload), Some(whole)) = (found, wholes.get_mut(&id)) {
            whole.payload = Some(payload);
        }
    }
    Ok(wholes)
}
