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
pub(super) const CLOCK: &str = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint, c.ahead, c.reached, \
     c.held_last, c.held_by, c.held_until from (select 1) as one left join {schema}.store_clock c on c.id = 1";
/// A block of turns, taken after all records were read: an event parked later has a later turn. The sequence counts in
/// steps of [`TURNS_AT_ONCE`].
const TURNS: &str = "select nextval('{schema}.turns')";

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

const KEYS: &str = concat!(
    "select k.key, k.event, k.identity, k.alias, k.id_digest, e.* from {schema}.keys k",
    with_event!("k.event"),
    " where k.key = any($1)"
);
const IMPORTED: &str = "select key from {schema}.imported where key = any($1)";
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
const EVENTS: &str = concat!("select ", columns!(), ", version from {schema}.events where id = any($1)");

/// The kind of record in the rows of a query.
#[derive(Clone, Copy)]
enum ReadRowKind {
    Clock,
    Keys,
    Imported,
    Registers,
    Slots,
    Events,
    Turns,
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
    let mut asks: Vec<(ReadRowKind, PgQuery<'_>)> = vec![(ReadRowKind::Clock, ask!(CLOCK))];
    for (tells, sql, names) in [
        (ReadRowKind::Keys, KEYS, keys),
        (ReadRowKind::Imported, IMPORTED, imported),
        (ReadRowKind::Registers, REGISTERS, registers),
    ] {
        if !names.is_empty() {
            asks.push((tells, ask!(sql, names)));
        }
    }
    if !slots.is_empty() {
        asks.push((ReadRowKind::Slots, ask!(SLOTS, slots, i64::try_from(PARKED_READ + 1).unwrap_or(i64::MAX))));
    }
    if !events.is_empty() {
        asks.push((ReadRowKind::Events, ask!(EVENTS, events)));
    }
    if turns > 0 {
        asks.push((ReadRowKind::Turns, ask!(TURNS)));
    }
    let (tells, asks): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
    let asked = StoreClock::asks();
    let answers = link.query_all(&asks).await?;
    let mut reading =
        ReadBatch { cells: Vec::with_capacity(cells.len()), turn: QueueTurn(0), now: Timestamp::default() };
    for (tells, rows) in tells.into_iter().zip(answers) {
        for row in rows {
            match tells {
                ReadRowKind::Clock => reading.now = told(clock, asked, &row)?,
                _ => hear(tells, &row, &mut reading)?,
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

/// The store's clock after a response to [`CLOCK`].
pub(super) fn told(clock: &StoreClock, asked: ClockRequestTime, row: &Row) -> Result<Timestamp, Error> {
    let number = |place| row.try_get::<_, Option<i64>>(place);
    let length = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or_default());
    let held = match (number(3)?, number(4)?, number(5)?) {
        (Some(last), Some(by), Some(until)) => {
            Some(LeaseExtension { last: Timestamp(last), by: length(by), until: Timestamp(until) })
        }
        _ => None,
    };
    let (ahead, reached) = (number(1)?.map(length).unwrap_or_default(), number(2)?.map(Timestamp).unwrap_or_default());
    let agreed = AgreedClock { ahead, reached, held };
    Ok(clock.observe_server_time(asked, Timestamp(row.try_get(0)?), agreed))
}

fn hear(tells: ReadRowKind, row: &Row, reading: &mut ReadBatch) -> Result<(), Error> {
    let key = || row.try_get::<_, PgRawCell<'_>>(0).map(|raw| Key(raw.array()));
    let (found, behind) = match tells {
        ReadRowKind::Clock => return Ok(()),
        ReadRowKind::Turns => {
            reading.turn = QueueTurn(row.try_get::<_, i64>(0)?.unsigned_abs());
            return Ok(());
        }
        ReadRowKind::Keys => {
            let PgUuid(event) = row.try_get(1)?;
            let id_digest =
                row.try_get::<_, Option<&[u8]>>(4)?.and_then(|bytes| bytes.try_into().ok()).map(DeliveryIdDigest);
            let held = KeyOwner { event, same: MatchedBy::parse(row.try_get(2)?), alias: row.try_get(3)?, id_digest };
            (Some((RecordId::Key(key()?), Record::Key(held))), 5)
        }
        ReadRowKind::Imported => (Some((RecordId::Imported(key()?), Record::Imported)), usize::MAX),
        ReadRowKind::Registers => {
            let PgUuid(event) = row.try_get(5)?;
            let value = Digest(row.try_get::<_, PgRawCell<'_>>(2)?.array());
            let note = row.try_get::<_, Option<&str>>(6)?.map(Into::into);
            let register = SubjectRegister { value, order: row.try_get(3)?, strict: row.try_get(4)?, event, note };
            (Some((RecordId::Register(key()?), Record::Register(register, version(row)?))), 7)
        }
        ReadRowKind::Slots => (Some((RecordId::Slot(key()?), Record::Slot(slot(row)?, version(row)?))), 5),
        ReadRowKind::Events => (None, 0),
    };
    reading.cells.extend(found);
    if behind < row.len()
        && let Some((row, version)) = rows::event(row, behind)
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
