//! Conditional writes. Most batches check what they expect as they write, in one round trip: a unique constraint or a
//! version that does not fit fails the whole transaction. Then, and where a batch expects more than it writes: lock and
//! read, decide here, write and commit, in two.
//!
//! ```text
//! begin · keys inserted tentatively · registers · slots · events locked · keys read back
//!    └─▶ settle (batch_writes.rs) ─▶ the writes, and removal of refused tentative rows · commit
//! ```
//!
//! Locks are taken in one order everywhere: keys, registers, slots, events, each sorted. A free key is locked by
//! inserting it: other transactions that want it wait for our commit.

use super::batch_writes::{BatchWrites, EventWrites, ReceiptWrite};
use super::dictionaries::PgDictionaries;
use super::error::PgCommitStage;
use super::pool::{PgConn, PgError, PgParam, PgQuery, ask};
use super::rows::{PgBytes32, PgEventWrite, PgRawCell, PgUuid, column, counter, small, text};
use super::{batch_writes, dictionaries, queries, retention, rows};
use crate::decide::event::Receipt;
use crate::decide::id::{EventId, Key};
use crate::decide::ledger::KeyOwner;
use crate::decide::transition::AttemptRecord;
use crate::store::copy::{CopyLockCheck, MARK, UnversionedCopyData};
use crate::store::optimistic::{ConditionalWrite, ExpectedVersion, RecordId, RecordVersion};
use crate::store::{ChangeHint, DuplicateSighting, StoreError, copy, row};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tokio_postgres::error::SqlState;

pub(super) const BEGIN: &str = "begin";
pub(super) const COMMIT: &str = "commit";
pub(super) const ROLLBACK: &str = "rollback";

/// Inserts keys in the order of the arrays, which are sorted.
macro_rules! put_keys {
    ($then:literal) => {
        concat!(
            "insert into {schema}.keys (key, event, identity, alias, id_digest) \
             select * from unnest($1::bytea[], $2::uuid[], $3::text[], $4::boolean[], $5::bytea[]) ",
            $then
        )
    };
}
const TRY_KEYS: &str = put_keys!("on conflict do nothing returning key");
const PUT_KEYS: &str = put_keys!("");
const LOOK_KEYS: &str = "select key, event from {schema}.keys where key = any($1)";
const DROP_KEYS: &str = "delete from {schema}.keys where key = any($1)";

/// The placeholder in a register or slot until it is set or removed again: no version of ours is negative.
const TRY_REGISTERS: &str = "insert into {schema}.registers (key, version, value, strict, event) \
     select key, -1, '', false, '00000000-0000-0000-0000-000000000000' from unnest($1::bytea[]) as r (key) \
     on conflict do nothing returning key";
const LOCK_REGISTERS: &str =
    "select key, version from {schema}.registers where key = any($1) order by key for no key update";
const PUT_REGISTERS: &str = "insert into {schema}.registers (key, version, value, ord, strict, event, note) \
     select * from unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::boolean[], $6::uuid[], $7::text[]) \
     on conflict (key) do update set version = excluded.version, value = excluded.value, ord = excluded.ord, \
     strict = excluded.strict, event = excluded.event, note = excluded.note";
const DROP_REGISTERS: &str = "delete from {schema}.registers where key = any($1)";

const TRY_SLOTS: &str = "insert into {schema}.slots (grp, version, event) \
     select grp, -1, '00000000-0000-0000-0000-000000000000' from unnest($1::bytea[]) as s (grp) \
     on conflict do nothing returning grp";
const LOCK_SLOTS: &str = "select grp, version from {schema}.slots where grp = any($1) order by grp for no key update";
const PUT_SLOTS: &str = "insert into {schema}.slots (grp, version, event) \
     select * from unnest($1::bytea[], $2::bigint[], $3::uuid[]) \
     on conflict (grp) do update set version = excluded.version, event = excluded.event";
const DROP_SLOTS: &str = "delete from {schema}.slots where grp = any($1)";

const LOCK_EVENTS: &str = "select id, version from {schema}.events where id = any($1) order by id for no key update";
/// The row is deleted first: recording a duplicate locks it.
const DROP_EVENTS: &str = "delete from {schema}.events where id = any($1)";
const DROP_BESIDE: &str = "with a as (delete from {schema}.keys where event = any($1)), \
     b as (delete from {schema}.payloads where event = any($1)), c as (delete from {schema}.receipts where event = any($1)), \
     d as (delete from {schema}.attempts where event = any($1)), e as (delete from {schema}.output where event = any($1)), \
     f as (delete from {schema}.sightings where event = any($1)) delete from {schema}.duplicates where event = any($1)";
/// Before a body takes the place of another: nothing is left of that, nor of how it was packed.
const DROP_PAYLOADS: &str = "delete from {schema}.payloads where event = any($1)";
const DROP_BODIES: &str = "with a as (delete from {schema}.payloads where event = any($1)), \
     b as (delete from {schema}.receipts where event = any($1)), c as (delete from {schema}.output where event = any($1)) \
     update {schema}.events set body = false where id = any($1)";
const PUT_RECEIPTS: &str = "insert into {schema}.receipts (event, status, headers, body, cut, digest) \
     select * from unnest($1::uuid[], $2::integer[], $3::text[], $4::bytea[], $5::boolean[], $6::bytea[]) \
     on conflict (event) do update set status = excluded.status, headers = excluded.headers, body = excluded.body, \
     cut = excluded.cut, digest = excluded.digest";
const DROP_RECEIPTS: &str = "delete from {schema}.receipts where event = any($1)";
/// The names of transient headers begin with `>`.
const SHED: &str = "update {schema}.payloads p set headers = s.kept, headers_digest = sha256(convert_to(s.kept, 'UTF8')) from (\
     select q.event, coalesce((select json_agg(h.value order by h.ordinality)::text \
     from json_array_elements(q.headers::json) with ordinality h where left(h.value ->> 0, 1) <> '>'), '[]') as kept \
     from {schema}.payloads q where q.event = any($1) and q.headers like '%\">%') s where p.event = s.event";
const PUT_IMPORTED: &str =
    "insert into {schema}.imported (key) select * from unnest($1::bytea[]) on conflict do nothing";

/// Which writes were applied, and hints for other nodes.
pub(super) type WriteResult = (Vec<bool>, Vec<ChangeHint>);

/// Applies these, each wholly or not at all. `Err` if nothing was written, or if that is unknown.
pub(super) async fn write(
    link: &mut PgConn,
    swaps: &[ConditionalWrite],
    heeds: CopyLockCheck,
    dictionaries: &PgDictionaries,
) -> Result<WriteResult, StoreError> {
    let first = batch_writes::first_seen(swaps);
    if let Some(written) = write_at_once(link, swaps, &first, heeds, dictionaries).await? {
        return Ok(written);
    }
    match lock(link, swaps, &first).await {
        Ok(locked) => finish(link, swaps, locked, heeds, dictionaries).await,
        Err(failed) if failed.is_contention() => refuse_all(link, swaps).await,
        Err(failed) => Err(failed.classify(PgCommitStage::Before)),
    }
}

/// A conflict: nothing is written, and the whole batch is prepared again.
async fn refuse_all(link: &mut PgConn, swaps: &[ConditionalWrite]) -> Result<WriteResult, StoreError> {
    link.query_all(&[ask!(ROLLBACK)]).await.map_err(|failed| failed.classify(PgCommitStage::Before))?;
    Ok((vec![false; swaps.len()], Vec::new()))
}

/// Writes the batch as if every record were as expected, in one round trip; `None` if one was not, or if that cannot be
/// told so.
async fn write_at_once(
    link: &mut PgConn,
    swaps: &[ConditionalWrite],
    first: &BTreeMap<RecordId, ExpectedVersion>,
    heeds: CopyLockCheck,
    dictionaries: &PgDictionaries,
) -> Result<Option<WriteResult>, StoreError> {
    let mut actual = first.iter().map(|(cell, seen)| (*cell, *seen)).collect();
    let (written, effect) = batch_writes::settle(swaps, &mut actual);
    if !batch_writes::only_adds(swaps, first) && !batch_writes::checks_itself(first, &effect) {
        return Ok(None);
    }
    let mut asks = vec![ask!(BEGIN)];
    put_checked(&effect, &batch_writes::expected_events(first), heeds, &mut asks);
    put_beside(&effect, dictionaries, &mut asks);
    asks.push(ask!(COMMIT));
    match link.query_all(&asks).await {
        Ok(_) => Ok(Some((written, effect.hints()))),
        Err(failed) if failed.is_contention() || has_changed(&failed) || doubts(&failed, &asks, dictionaries) => {
            link.query_all(&[ask!(ROLLBACK)]).await.map_err(|failed| failed.classify(PgCommitStage::Before))?;
            Ok(None)
        }
        Err(failed) => Err(not_committed(failed)),
    }
}

/// Writes keys and events, in the order of their locks, and checks the versions of these events and the mark.
fn put_checked<'s>(
    effect: &'s BatchWrites<'s>,
    expected: &[(EventId, RecordVersion)],
    heeds: CopyLockCheck,
    asks: &mut Vec<PgQuery<'s>>,
) {
    let (new, changed) = rows_of(effect);
    // The last statement that locks `events` checks the mark: see `heed`.
    let mark = |is_last: bool| (is_last && heeds == CopyLockCheck::Mark).then_some(PgBytes32(MARK.0));
    let keys = || effect.keys.iter().map(|(key, held)| (*key, *held)).collect::<Vec<_>>();
    if !new.is_empty() {
        asks.push(rows::claim_events(key_params(&keys()), &new, mark(expected.is_empty())));
    } else if !effect.keys.is_empty() {
        asks.push(PgQuery { sql: PUT_KEYS, params: key_params(&keys()) });
    }
    if !expected.is_empty() {
        asks.push(rows::update_expected_events(&changed, expected, mark(true)));
    } else if new.is_empty() && heeds == CopyLockCheck::Mark {
        asks.push(heed());
    }
}

/// The actual records, locked until the transaction ends, and which of them are only tentative.
#[derive(Default)]
pub(super) struct LockedRecords {
    pub(super) actual: HashMap<RecordId, ExpectedVersion>,
    keys: BTreeMap<Key, EventId>,
    registers: BTreeSet<Key>,
    slots: BTreeSet<Key>,
}

/// The kind of record in a row of the first round trip.
#[derive(Clone, Copy)]
enum LockRowKind {
    Nothing,
    TriedKey,
    TriedRegister,
    Register,
    TriedSlot,
    Slot,
    Event,
    Key,
}

pub(super) async fn lock(
    link: &mut PgConn,
    swaps: &[ConditionalWrite],
    first: &BTreeMap<RecordId, ExpectedVersion>,
) -> Result<LockedRecords, PgError> {
    let held = batch_writes::held(swaps);
    let names = |pick: fn(&RecordId) -> Option<Key>| {
        first.keys().filter_map(pick).map(|key| PgBytes32(key.0)).collect::<Vec<_>>()
    };
    let empty = |cell: RecordId| first.get(&cell) == Some(&ExpectedVersion::Absent);
    let keys = names(|cell| if let RecordId::Key(key) = cell { Some(*key) } else { None });
    let registers = names(|cell| if let RecordId::Register(key) = cell { Some(*key) } else { None });
    let slots = names(|cell| if let RecordId::Slot(key) = cell { Some(*key) } else { None });
    let events: Vec<_> =
        first.keys().filter_map(|cell| if let RecordId::Event(id) = cell { Some(PgUuid(*id)) } else { None }).collect();
    let new_registers: Vec<_> = registers.iter().copied().filter(|key| empty(RecordId::Register(Key(key.0)))).collect();
    let new_slots: Vec<_> = slots.iter().copied().filter(|key| empty(RecordId::Slot(Key(key.0)))).collect();
    let tried: BTreeMap<&Key, &KeyOwner> =
        held.iter().filter(|(key, _)| empty(RecordId::Key(**key))).map(|(k, h)| (k, *h)).collect();

    let mut asks = vec![(LockRowKind::Nothing, ask!(BEGIN))];
    if !tried.is_empty() {
        asks.push((LockRowKind::TriedKey, put_keys(TRY_KEYS, tried.iter().map(|(key, held)| (**key, *held)))));
    }
    let mut with = |tells, sql, names: Vec<PgBytes32>| {
        if !names.is_empty() {
            asks.push((tells, ask!(sql, names)));
        }
    };
    with(LockRowKind::TriedRegister, TRY_REGISTERS, new_registers);
    with(LockRowKind::Register, LOCK_REGISTERS, registers);
    with(LockRowKind::TriedSlot, TRY_SLOTS, new_slots);
    with(LockRowKind::Slot, LOCK_SLOTS, slots);
    if !events.is_empty() {
        asks.push((LockRowKind::Event, ask!(LOCK_EVENTS, events)));
    }
    if !keys.is_empty() {
        asks.push((LockRowKind::Key, ask!(LOOK_KEYS, keys)));
    }
    let (tells, asks): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
    let answers = link.query_all(&asks).await?;

    let mut locked = LockedRecords::default();
    // Records not reported below are empty; but an empty register or slot that is not ours cannot be relied on.
    let lasting = |cell: &&RecordId| matches!(cell, RecordId::Key(_) | RecordId::Event(_));
    locked.actual = first.keys().filter(lasting).map(|cell| (*cell, ExpectedVersion::Absent)).collect();
    for (tells, rows) in tells.into_iter().zip(answers) {
        for row in rows {
            locked.hear(tells, &row, &tried)?;
        }
    }
    Ok(locked)
}

impl LockedRecords {
    fn hear(
        &mut self,
        tells: LockRowKind,
        row: &tokio_postgres::Row,
        tried: &BTreeMap<&Key, &KeyOwner>,
    ) -> Result<(), PgError> {
        let key = || row.try_get::<_, PgRawCell<'_>>(0).map(|raw| Key(raw.array()));
        let version =
            || row.try_get::<_, i64>(1).map(|number| ExpectedVersion::Version(RecordVersion(number.cast_unsigned())));
        match tells {
            LockRowKind::Nothing => {}
            LockRowKind::TriedKey => {
                let key = key()?;
                let by = tried.get(&key).map_or(EventId([0; 16]), |held| held.event);
                self.keys.insert(key, by);
            }
            LockRowKind::TriedRegister => {
                self.registers.insert(key()?);
            }
            LockRowKind::TriedSlot => {
                self.slots.insert(key()?);
            }
            LockRowKind::Register => {
                let key = key()?;
                let seen = if self.registers.contains(&key) { ExpectedVersion::Absent } else { version()? };
                self.actual.insert(RecordId::Register(key), seen);
            }
            LockRowKind::Slot => {
                let key = key()?;
                let seen = if self.slots.contains(&key) { ExpectedVersion::Absent } else { version()? };
                self.actual.insert(RecordId::Slot(key), seen);
            }
            LockRowKind::Event => {
                let PgUuid(id) = row.try_get(0)?;
                self.actual.insert(RecordId::Event(id), version()?);
            }
            LockRowKind::Key => {
                let (key, PgUuid(event)) = (key()?, row.try_get(1)?);
                if !self.keys.contains_key(&key) {
                    self.actual.insert(RecordId::Key(key), ExpectedVersion::Holder(event));
                }
            }
        }
        Ok(())
    }
}

async fn finish(
    link: &mut PgConn,
    swaps: &[ConditionalWrite],
    mut locked: LockedRecords,
    heeds: CopyLockCheck,
    dictionaries: &PgDictionaries,
) -> Result<WriteResult, StoreError> {
    let (written, effect) = batch_writes::settle(swaps, &mut locked.actual);
    if !written.contains(&true) {
        return refuse_all(link, swaps).await;
    }
    let mut asks = Vec::new();
    drop_events(&effect, &mut asks);
    put_cells(&effect, &locked, &mut asks);
    put_events(&effect, dictionaries, &mut asks);
    commit(&mut asks, heeds);
    match link.query_all(&asks).await {
        Ok(_) => Ok((written, effect.hints())),
        Err(failed) if failed.is_contention() || doubts(&failed, &asks, dictionaries) => refuse_all(link, swaps).await,
        Err(failed) => Err(not_committed(failed)),
    }
}

/// Has the batch failed because of its dictionaries? Then it wrote nothing, and is packed again without them.
pub(super) fn doubts(failed: &PgError, asks: &[PgQuery<'_>], dictionaries: &PgDictionaries) -> bool {
    let doubts = rows::use_dictionaries(asks) && dictionaries::is_unusable(failed);
    if doubts {
        dictionaries.doubt(failed);
    }
    doubts
}

fn put_keys<'s>(sql: &'static str, keys: impl Iterator<Item = (Key, &'s KeyOwner)>) -> PgQuery<'s> {
    PgQuery { sql, params: key_params(&keys.collect::<Vec<_>>()) }
}

fn key_params<'s>(rows: &[(Key, &'s KeyOwner)]) -> Vec<PgParam<'s>> {
    vec![
        column(rows, |(key, _)| PgBytes32(key.0)),
        column(rows, |(_, held)| PgUuid(held.event)),
        column(rows, |(_, held)| held.same.word()),
        column(rows, |(_, held)| held.alias),
        column(rows, |(_, held)| held.id_digest.map(|digest| digest.0.to_vec())),
    ]
}

pub(super) fn drop_events<'s>(effect: &BatchWrites<'s>, asks: &mut Vec<PgQuery<'s>>) {
    let gone: Vec<PgUuid> = effect.events.iter().filter(|(_, fate)| fate.gone).map(|(id, _)| PgUuid(*id)).collect();
    if !gone.is_empty() {
        asks.push(ask!(DROP_EVENTS, gone.clone()));
        asks.push(ask!(DROP_BESIDE, gone));
    }
}

/// Writes keys, registers, slots and imported keys; removes tentative rows that are not to stay.
pub(super) fn put_cells<'s>(effect: &BatchWrites<'s>, locked: &LockedRecords, asks: &mut Vec<PgQuery<'s>>) {
    let stays = |key: &Key, by: &EventId| effect.keys.get(key).is_some_and(|held| held.event == *by);
    let refused: Vec<_> =
        locked.keys.iter().filter(|(key, by)| !stays(key, by)).map(|(key, _)| PgBytes32(key.0)).collect();
    // The tentative keys of an event that is removed and added again went with it.
    let lasts = |id: &EventId| effect.events.get(id).is_none_or(|fate| !fate.gone);
    let there = |key: &Key, held: &KeyOwner| locked.keys.get(key) == Some(&held.event) && lasts(&held.event);
    let missing: Vec<_> =
        effect.keys.iter().filter(|(key, held)| !there(key, held)).map(|(key, held)| (*key, *held)).collect();
    let gone = |tried: &BTreeSet<Key>, set: &dyn Fn(&Key) -> bool, freed: Vec<Key>| -> Vec<PgBytes32> {
        tried.iter().filter(|key| !set(key)).copied().chain(freed).map(|key| PgBytes32(key.0)).collect()
    };
    let freed = effect.registers.iter().filter(|(_, set)| set.is_none()).map(|(key, _)| *key).collect();
    let no_registers = gone(&locked.registers, &|key| effect.registers.contains_key(key), freed);
    let freed = effect.slots.iter().filter(|(_, set)| set.is_none()).map(|(key, _)| *key).collect();
    let no_slots = gone(&locked.slots, &|key| effect.slots.contains_key(key), freed);
    for (sql, names) in [(DROP_KEYS, refused), (DROP_REGISTERS, no_registers), (DROP_SLOTS, no_slots)] {
        if !names.is_empty() {
            asks.push(ask!(sql, names));
        }
    }
    if !missing.is_empty() {
        asks.push(put_keys(PUT_KEYS, missing.into_iter()));
    }
    let registers: Vec<_> =
        effect.registers.iter().filter_map(|(key, set)| Some((PgBytes32(key.0), (*set)?))).collect();
    if !registers.is_empty() {
        let params = vec![
            column(&registers, |(key, _)| *key),
            column(&registers, |(_, (_, version))| counter(version.0)),
            column(&registers, |(_, (register, _))| PgBytes32(register.value.0)),
            column(&registers, |(_, (register, _))| register.order),
            column(&registers, |(_, (register, _))| register.strict),
            column(&registers, |(_, (register, _))| PgUuid(register.event)),
            column(&registers, |(_, (register, _))| register.note.as_deref().map(text)),
        ];
        asks.push(PgQuery { sql: PUT_REGISTERS, params });
    }
    let slots: Vec<_> = effect.slots.iter().filter_map(|(key, set)| Some((PgBytes32(key.0), (*set)?))).collect();
    if !slots.is_empty() {
        let params = vec![
            column(&slots, |(key, _)| *key),
            column(&slots, |(_, (_, version))| counter(version.0)),
            column(&slots, |(_, (event, _))| PgUuid(*event)),
        ];
        asks.push(PgQuery { sql: PUT_SLOTS, params });
    }
    if !effect.imported.is_empty() {
        asks.push(ask!(PUT_IMPORTED, effect.imported.iter().map(|key| PgBytes32(key.0)).collect::<Vec<_>>()));
    }
}

/// New events, and existing ones that have changed.
fn rows_of<'s>(effect: &'s BatchWrites<'s>) -> (Vec<PgEventWrite<'s>>, Vec<PgEventWrite<'s>>) {
    let rows = effect.events.values().filter_map(|fate| fate.row.map(|(row, version)| (row, version, fate)));
    rows.partition(|(_, _, fate)| fate.new)
}

/// Writes events and their related rows.
pub(super) fn put_events<'s>(effect: &'s BatchWrites<'s>, dictionaries: &PgDictionaries, asks: &mut Vec<PgQuery<'s>>) {
    let (new, changed) = rows_of(effect);
    if !new.is_empty() {
        asks.push(rows::insert_events(&new));
    }
    if !changed.is_empty() {
        asks.push(rows::update_events(&changed));
    }
    put_beside(effect, dictionaries, asks);
}

/// Writes the rows that are related to events.
fn put_beside<'s>(effect: &'s BatchWrites<'s>, dictionaries: &PgDictionaries, asks: &mut Vec<PgQuery<'s>>) {
    let of = |pick: fn(&EventWrites<'s>) -> bool| {
        effect.events.iter().filter(|(_, fate)| pick(fate)).map(|(id, _)| PgUuid(*id)).collect::<Vec<_>>()
    };
    let bare = of(|fate| fate.bare);
    if !bare.is_empty() {
        asks.push(ask!(DROP_BODIES, bare));
    }
    let fixed: Vec<_> = effect.events.values().filter_map(|fate| fate.fixed).collect();
    if !fixed.is_empty() {
        asks.push(rows::replace_bodies(&fixed));
        asks.push(ask!(DROP_PAYLOADS, fixed.iter().map(|event| PgUuid(event.id)).collect::<Vec<_>>()));
    }
    if effect.events.values().any(|fate| fate.payload.is_some()) {
        let event = |fate: &EventWrites<'s>| fate.fixed.or(fate.row.map(|(row, _)| &row.event));
        let payloads = effect.events.values().filter_map(|fate| Some((event(fate)?, fate.payload?)));
        asks.push(rows::put_payloads(payloads, dictionaries));
    }
    let shed: Vec<_> = effect.events.iter().filter(|(_, fate)| fate.shed).map(|(id, _)| PgUuid(*id)).collect();
    if !shed.is_empty() {
        asks.push(ask!(SHED, shed));
    }
    let unanswered = of(|fate| fate.receipt == ReceiptWrite::Gone && !fate.bare);
    if !unanswered.is_empty() {
        asks.push(ask!(DROP_RECEIPTS, unanswered));
    }
    put_receipts(effect, asks);
    put_attempts(effect, asks);
    put_sightings(effect, asks);
}

fn put_receipts<'s>(effect: &'s BatchWrites<'s>, asks: &mut Vec<PgQuery<'s>>) {
    let answers = effect.events.iter().filter_map(|(id, fate)| {
        let ReceiptWrite::As(receipt) = fate.receipt else { return None };
        Some((*id, receipt, row::headers_cell(&receipt.headers)))
    });
    let answers: Vec<_> = answers.collect();
    if answers.is_empty() {
        return;
    }
    let digest = |(_, receipt, headers): &(EventId, &'s Receipt, String)| {
        PgBytes32(row::receipt_digest(receipt.status, receipt.truncated, headers, &receipt.body).0)
    };
    let params = vec![
        column(&answers, |(id, ..)| PgUuid(*id)),
        column(&answers, |(_, receipt, _)| i32::from(receipt.status)),
        column(&answers, |(.., headers)| headers.clone()),
        column(&answers, |(_, receipt, _)| &receipt.body[..]),
        column(&answers, |(_, receipt, _)| receipt.truncated),
        column(&answers, digest),
    ];
    asks.push(PgQuery { sql: PUT_RECEIPTS, params });
}

const PUT_ATTEMPTS: &str = "with t as materialized (\
     select nextval(pg_get_serial_sequence('{schema}.attempts', 'id')) as id, * from unnest($1::uuid[], $2::integer[], \
     $3::integer[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::bytea[]) \
     as t (event, life, attempt, started_at, ended_at, outcome, why, bytes)), \
     a as (insert into {schema}.attempts (id, event, life, attempt, started_at, ended_at, outcome, why) \
     overriding system value select id, event, life, attempt, started_at, ended_at, outcome, why from t) \
     insert into {schema}.output (id, event, life, attempt, bytes) select id, event, life, attempt, bytes from t \
     where bytes <> ''";
const PUT_DUPLICATES: &str = "insert into {schema}.duplicates (event, count) select * from unnest($1::uuid[], $2::bigint[]) \
     on conflict (event) do update set count = excluded.count";
const PUT_SIGHTINGS: &str = "insert into {schema}.sightings (event, n, at, delivery_id, identity) \
     select * from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::text[]) on conflict do nothing";

/// Writes the records of attempts.
pub(super) fn put_attempts<'s>(effect: &'s BatchWrites<'s>, asks: &mut Vec<PgQuery<'s>>) {
    let tried = effect.events.iter().flat_map(|(id, fate)| fate.tried.iter().map(|tried| (*id, *tried)));
    let tried: Vec<(EventId, &'s AttemptRecord)> = tried.collect();
    if tried.is_empty() {
        return;
    }
    let params = vec![
        column(&tried, |(id, _)| PgUuid(*id)),
        column(&tried, |(_, tried)| small(tried.life)),
        column(&tried, |(_, tried)| small(tried.attempt)),
        column(&tried, |(_, tried)| tried.started_at.0),
        column(&tried, |(_, tried)| tried.ended_at.0),
        column(&tried, |(_, tried)| text(&tried.outcome)),
        column(&tried, |(_, tried)| text(&tried.why)),
        column(&tried, |(_, tried)| &tried.output[..]),
    ];
    asks.push(PgQuery { sql: PUT_ATTEMPTS, params });
}

/// Writes how many duplicates there were, and the first few.
pub(super) fn put_sightings<'s>(effect: &'s BatchWrites<'s>, asks: &mut Vec<PgQuery<'s>>) {
    let counts: Vec<_> = effect.events.iter().filter_map(|(id, fate)| Some((*id, fate.seen?.0))).collect();
    if counts.is_empty() {
        return;
    }
    let params = vec![column(&counts, |(id, _)| PgUuid(*id)), column(&counts, |(_, count)| counter(*count))];
    asks.push(PgQuery { sql: PUT_DUPLICATES, params });
    let numbered = |(id, fate): (&EventId, &EventWrites<'s>)| {
        let (id, seen) = (*id, fate.seen.map_or(&[][..], |(_, seen)| seen));
        (1..).zip(seen).map(move |(n, seen)| (id, n, seen))
    };
    let seen: Vec<(EventId, u32, &'s DuplicateSighting)> = effect.events.iter().flat_map(numbered).collect();
    let params = vec![
        column(&seen, |(id, ..)| PgUuid(*id)),
        column(&seen, |(_, n, _)| small(*n)),
        column(&seen, |(.., seen)| seen.at.0),
        column(&seen, |(.., seen)| seen.delivery_id.as_deref().map(text)),
        column(&seen, |(.., seen)| seen.same.word()),
    ];
    asks.push(PgQuery { sql: PUT_SIGHTINGS, params });
}

/// Fails, by a division by zero, if this store is part of a copy. Run last, when our locks are held: the transaction
/// that marks the store waits for those locks, and then sees what we wrote. A statement that writes events may run it
/// itself: PostgreSQL locks all tables of a statement before it takes the snapshot in which the mark is looked for.
const HEED: &str = "select 1 / (case when exists (select from {schema}.registers where key = $1) then 0 else 1 end)";
/// Fails if the copy's mark no longer has this version; otherwise locks it until the transaction ends.
const HOLD: &str = "select 1 / count(*) from (select from {schema}.registers where key = $1 and version = $2 \
     for no key update) held";
/// Conflicts with every transaction that writes to `events`.
const WAIT_FOR_WRITERS: &str = "lock table {schema}.events in share row exclusive mode";

/// Ends a transaction, with or without checking the mark.
pub(super) fn commit(asks: &mut Vec<PgQuery<'_>>, heeds: CopyLockCheck) {
    match heeds {
        CopyLockCheck::Mark => asks.push(heed()),
        CopyLockCheck::Nothing => {}
    }
    asks.push(ask!(COMMIT));
}

/// The same check in a transaction that continues with the user's statement.
pub(super) fn heed<'a>() -> PgQuery<'a> {
    ask!(HEED, PgBytes32(MARK.0))
}

/// The error for a write that was sent together with its commit: it was not written, or may have been.
pub(super) fn not_committed(failed: PgError) -> StoreError {
    refused(&failed).unwrap_or_else(|| failed.classify(PgCommitStage::Commit))
}

/// Has an event another version than expected?
fn has_changed(failed: &PgError) -> bool {
    let changed = SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION;
    matches!(failed, PgError::Said(error) if error.code() == Some(&changed))
}

/// The error if the check of the mark failed.
pub(super) fn refused(failed: &PgError) -> Option<StoreError> {
    let heeded = matches!(failed, PgError::Said(error) if error.code() == Some(&SqlState::DIVISION_BY_ZERO));
    heeded.then(copy::under_way)
}

/// Writes what is not a versioned record, if the mark still has this version. Returns whether it had.
pub(super) async fn fill_beside(
    link: &mut PgConn,
    beside: &UnversionedCopyData,
    mark: RecordVersion,
) -> Result<bool, PgError> {
    let mut asks = vec![ask!("begin"), ask!(HOLD, PgBytes32(MARK.0), counter(mark.0))];
    if let Some(recipes) = &beside.recipes {
        asks.extend(queries::to_remember(recipes));
    }
    if let Some(rows) = &beside.retention {
        asks.extend([retention::clear(), retention::to_retain(rows)]);
    }
    if !beside.quarantined.is_empty() {
        asks.extend(queries::to_lay(&beside.quarantined));
    }
    asks.push(ask!(COMMIT));
    match link.query_all(&asks).await {
        Ok(_) => Ok(true),
        Err(failed) if refused(&failed).is_some() => {
            link.query_all(&[ask!(ROLLBACK)]).await?;
            Ok(false)
        }
        Err(failed) => Err(failed),
    }
}

/// Waits for every write in progress.
pub(super) async fn settled(link: &mut PgConn) -> Result<(), PgError> {
    link.query_all(&[ask!("begin"), ask!(WAIT_FOR_WRITERS), ask!(COMMIT)]).await.map(drop)
}
