//! Reading records: one pipelined round trip, without locks. Related records come along: the event that owns a key, a
//! register's event, the first event parked behind a slot.

use super::pool::{PgConn, PgError, PgQuery, ask};
use super::rows::{self, PgBytes32, PgRawCell, PgUuid};
use crate::decide::claim::MatchedBy;
use crate::decide::id::{DeliveryIdDigest, Digest, EventId, Key, QueueTurn};
use crate::decide::ledger::{KeyOwner, SubjectRegister};
use crate::decide::store_clock::{AgreedClock, LeaseExtension};
use crate::decide::time::{Duration, Timestamp};
use crate::store::StoreError;
use crate::store::clock::{ClockRequestTime, StoreClock};
use crate::store::optimistic::{GroupSlot, PARKED_READ, ReadBatch, Record, RecordId, RecordVersion, TURNS_AT_ONCE};
use crate::store::row::columns;
use std::collections::HashSet;
use tokio_postgres::{Error, Row};

/// The server's clock, and the nodes' agreement on the store's clock.
macro_rules! clock {
    () => {
        "select (extract(epoch from clock_timestamp()) * 1000000)::bigint, c.ahead, c.reached, c.held_last, c.held_by, \
         c.held_until from (select 1) as one left join {schema}.store_clock c on c.id = 1"
    };
}
pub(super) const CLOCK: &str = clock!();

/// Joins the event of another row, after that row's own columns.
macro_rules! with_event {
    ($of:literal) => {
        concat!(
            " left join lateral (select ",
            columns!(),
            ", version from {schema}.events where id = ",
            $of,
            ") e on true"
        )
    };
}

/// No event, in the place of one.
macro_rules! without_event {
    () => {
        concat!(" left join (select ", columns!(), ", version from {schema}.events) e on false")
    };
}

/// What most batches need, in one statement and one snapshot: keys with the events that own them, which of these keys
/// are imported, events, and last the clock with a block of turns. The sequence of turns counts in steps of
/// [`TURNS_AT_ONCE`]; a block is taken after all records were read, so an event parked later has a later turn.
const RECORDS: &str = concat!(
    "select 1::smallint as kind, k.key, k.event, k.identity, k.alias, k.id_digest, null::bigint, null::bigint, \
     null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, e.* from {schema}.keys k",
    with_event!("k.event"),
    " where k.key = any($1) union all \
     select 2::smallint, i.key, null::uuid, null::text, null::boolean, null::bytea, null::bigint, null::bigint, \
     null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, e.* from {schema}.imported i",
    without_event!(),
    " where i.key = any($2) union all \
     select 3::smallint, null::bytea, null::uuid, null::text, null::boolean, null::bytea, null::bigint, null::bigint, \
     null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, ",
    columns!(),
    ", version from {schema}.events where id = any($3) union all \
     select 0::smallint, null::bytea, null::uuid, null::text, null::boolean, null::bytea, c.*, \
     case when $4 then nextval('{schema}.turns') end, e.* from (",
    clock!(),
    ") c",
    without_event!()
);
const REGISTERS: &str = concat!(
    "select r.key, r.version, r.value, r.ord, r.strict, r.event, r.note, e.* from {schema}.registers r",
    with_event!("r.event"),
    " where r.key = any($1)"
);
const SLOTS: &str = concat!(
    "select s.grp, s.version, s.event, p.turns, p.ids, e.* from {schema}.slots s cross join lateral (\
     select coalesce(array_agg(q.turn order by q.turn, q.id), '{}') as turns, \
     coalesce(array_agg(q.id order by q.turn, q.id), '{}') as ids from (\
     select turn, id from {schema}.events where grp = s.grp and state = 'waiting' and wake_at is null and passed <> 1 \
     order by turn, id limit $2) q) p",
    with_event!("p.ids[1]"),
    " where s.grp = any($1)"
);

/// The places of the clock, of the block of turns and of the event in the rows of [`RECORDS`].
const CLOCK_AT: usize = 6;
const TURN_AT: usize = 12;
const EVENT_AT: usize = 13;

/// The kind of record in a row.
#[derive(Clone, Copy)]
enum ReadRowKind {
    Clock,
    Key,
    Imported,
    Register,
    Slot,
    Event,
}

impl ReadRowKind {
    /// The kind of this row of [`RECORDS`].
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(match row.try_get::<_, i16>(0)? {
            0 => Self::Clock,
            1 => Self::Key,
            2 => Self::Imported,
            _ => Self::Event,
        })
    }
}

/// Reads these records, then takes turns.
pub(super) async fn read(
    link: &mut PgConn,
    cells: &[RecordId],
    turns: usize,
    clock: &StoreClock,
) -> Result<ReadBatch, PgError> {
    let (mut keys, mut imported, mut registers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut slots, mut events) = (Vec::new(), Vec::new());
    for cell in cells {
        match cell {
            RecordId::Key(key) => keys.push(PgBytes32(key.0)),
            RecordId::Imported(key) => imported.push(PgBytes32(key.0)),
            RecordId::Register(key) => registers.push(PgBytes32(key.0)),
            RecordId::Slot(key) => slots.push(PgBytes32(key.0)),
            RecordId::Event(id) => events.push(PgUuid(*id)),
        }
    }
    // The statement with the turns comes last.
    let mut asks: Vec<PgQuery<'_>> = Vec::with_capacity(3);
    let mut kinds = Vec::with_capacity(2);
    if !registers.is_empty() {
        kinds.push(ReadRowKind::Register);
        asks.push(ask!(REGISTERS, registers));
    }
    if !slots.is_empty() {
        kinds.push(ReadRowKind::Slot);
        asks.push(ask!(SLOTS, slots, i64::try_from(PARKED_READ + 1).unwrap_or(i64::MAX)));
    }
    asks.push(ask!(RECORDS, keys, imported, events, turns > 0));
    let asked = StoreClock::asks();
    let answers = link.query_all(&asks).await?;
    let mut reading =
        ReadBatch { cells: Vec::with_capacity(cells.len()), turn: QueueTurn(0), now: Timestamp::default() };
    let mut kinds = kinds.into_iter();
    for rows in answers {
        let kind = kinds.next();
        for row in rows {
            match kind.map_or_else(|| ReadRowKind::of(&row), Ok)? {
                ReadRowKind::Clock => {
                    reading.now = told(clock, asked, &row, CLOCK_AT)?;
                    reading.turn = QueueTurn(row.try_get::<_, Option<i64>>(TURN_AT)?.unwrap_or(0).unsigned_abs());
                }
                kind => hear(kind, &row, &mut reading)?,
            }
        }
    }
    let found: HashSet<RecordId> = reading.cells.iter().map(|(cell, _)| *cell).collect();
    let empty = cells.iter().filter(|cell| !found.contains(cell));
    reading.cells.extend(empty.map(|cell| (*cell, Record::Nothing)));
    Ok(reading)
}

/// Refuses more turns at once than a block has.
pub(super) fn fits(turns: usize) -> Result<(), StoreError> {
    if turns <= TURNS_AT_ONCE {
        return Ok(());
    }
    Err(StoreError::down(format!("{turns} events at once are too many (limit {TURNS_AT_ONCE})")))
}

/// The store's clock after a response to [`CLOCK`], which begins at this column.
pub(super) fn told(clock: &StoreClock, asked: ClockRequestTime, row: &Row, from: usize) -> Result<Timestamp, Error> {
    let number = |place: usize| row.try_get::<_, Option<i64>>(from + place);
    let length = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or_default());
    let held = match (number(3)?, number(4)?, number(5)?) {
        (Some(last), Some(by), Some(until)) => {
            Some(LeaseExtension { last: Timestamp(last), by: length(by), until: Timestamp(until) })
        }
        _ => None,
    };
    let (ahead, reached) = (number(1)?.map(length).unwrap_or_default(), number(2)?.map(Timestamp).unwrap_or_default());
    let agreed = AgreedClock { ahead, reached, held };
    Ok(clock.observe_server_time(asked, Timestamp(row.try_get(from)?), agreed))
}

fn hear(kind: ReadRowKind, row: &Row, reading: &mut ReadBatch) -> Result<(), Error> {
    let key = |place: usize| row.try_get::<_, PgRawCell<'_>>(place).map(|raw| Key(raw.array()));
    let (found, event_at) = match kind {
        ReadRowKind::Clock => return Ok(()),
        ReadRowKind::Key => {
            let PgUuid(event) = row.try_get(2)?;
            let id_digest =
                row.try_get::<_, Option<&[u8]>>(5)?.and_then(|bytes| bytes.try_into().ok()).map(DeliveryIdDigest);
            let held = KeyOwner { event, same: MatchedBy::parse(row.try_get(3)?), alias: row.try_get(4)?, id_digest };
            (Some((RecordId::Key(key(1)?), Record::Key(held))), Some(EVENT_AT))
        }
        ReadRowKind::Imported => (Some((RecordId::Imported(key(1)?), Record::Imported)), None),
        ReadRowKind::Register => {
            let PgUuid(event) = row.try_get(5)?;
            let value = Digest(row.try_get::<_, PgRawCell<'_>>(2)?.array());
            let note = row.try_get::<_, Option<&str>>(6)?.map(Into::into);
            let register = SubjectRegister { value, order: row.try_get(3)?, strict: row.try_get(4)?, event, note };
            (Some((RecordId::Register(key(0)?), Record::Register(register, version(row)?))), Some(7))
        }
        ReadRowKind::Slot => (Some((RecordId::Slot(key(0)?), Record::Slot(slot(row)?, version(row)?))), Some(5)),
        ReadRowKind::Event => (None, Some(EVENT_AT)),
    };
    reading.cells.extend(found);
    if let Some(at) = event_at
        && let Some((row, version)) = rows::event(row, at)
    {
        reading.cells.push((RecordId::Event(row.event.id), Record::Event(Box::new(row), version)));
    }
    Ok(())
}

fn version(row: &Row) -> Result<RecordVersion, Error> {
    row.try_get::<_, i64>(1).map(|number| RecordVersion(number.cast_unsigned()))
}

fn slot(row: &Row) -> Result<GroupSlot, Error> {
    let PgUuid(holder) = row.try_get(2)?;
    let (turns, ids): (Vec<i64>, Vec<PgUuid>) = (row.try_get(3)?, row.try_get(4)?);
    let mut parked: Vec<(QueueTurn, EventId)> =
        turns.into_iter().zip(ids).map(|(turn, PgUuid(id))| (QueueTurn(turn.unsigned_abs()), id)).collect();
    let more = parked.len() > PARKED_READ;
    parked.truncate(PARKED_READ);
    Ok(GroupSlot { holder, parked, more })
}
