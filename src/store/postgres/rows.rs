//! Cells of our rows as PostgreSQL has them, and columns of many rows as arrays.

use super::batch_writes::EventWrites;
use super::pool::{PgParam, PgQuery, ask};
use crate::decide::event::Event;
use crate::decide::id::{Digest, EventId};
use crate::store::compression::CompressedBody;
use crate::store::ledger::EventRow;
use crate::store::optimistic::RecordVersion;
use crate::store::row;
use crate::store::row::{CellValue, StateColumns, StoredRow};
use bytes::{BufMut, BytesMut};
use std::borrow::Cow;
use std::error::Error;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// An event's id as a `uuid`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PgUuid(pub(super) EventId);

impl ToSql for PgUuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(&self.0.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for PgUuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(EventId(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// A key or a digest as a `bytea`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PgBytes32(pub(super) [u8; 32]);

impl ToSql for PgBytes32 {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::BYTEA
    }

    to_sql_checked!();
}

/// A cell's bytes, whatever its type.
pub(super) struct PgRawCell<'a>(pub(super) &'a [u8]);

impl PgRawCell<'_> {
    /// As so many bytes; zeros where it is not so long: nothing of ours is called that.
    pub(super) fn array<const N: usize>(&self) -> [u8; N] {
        self.0.try_into().unwrap_or([0; N])
    }
}

impl<'a> FromSql<'a> for PgRawCell<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A row whose event begins at this column.
pub(super) struct PgEventRow<'r>(pub(super) &'r tokio_postgres::Row, pub(super) usize);

impl StoredRow for PgEventRow<'_> {
    fn cell(&self, place: usize) -> CellValue<'_> {
        cell(self.0, self.1 + place)
    }
}

fn cell(row: &tokio_postgres::Row, place: usize) -> CellValue<'_> {
    let Some(column) = row.columns().get(place) else { return CellValue::Other };
    let Ok(raw) = row.try_get::<_, Option<PgRawCell<'_>>>(place) else { return CellValue::Other };
    let Some(PgRawCell(bytes)) = raw else { return CellValue::Null };
    match *column.type_() {
        Type::INT8 => bytes.try_into().map_or(CellValue::Other, |bytes| CellValue::Number(i64::from_be_bytes(bytes))),
        Type::INT4 => {
            bytes.try_into().map_or(CellValue::Other, |bytes| CellValue::Number(i32::from_be_bytes(bytes).into()))
        }
        Type::INT2 => {
            bytes.try_into().map_or(CellValue::Other, |bytes| CellValue::Number(i16::from_be_bytes(bytes).into()))
        }
        Type::TEXT | Type::JSON => std::str::from_utf8(bytes).map_or(CellValue::Other, CellValue::Text),
        Type::UUID | Type::BYTEA => CellValue::Bytes(bytes),
        _ => CellValue::Other,
    }
}

/// How many columns an event has.
pub(super) const COLUMNS: usize = {
    let (names, mut at, mut columns) = (row::columns!().as_bytes(), 0, 1);
    while at < names.len() {
        if names[at] == b',' {
            columns += 1;
        }
        at += 1;
    }
    columns
};

/// The event that begins at this column, with its version behind it; `None` where there is none.
pub(super) fn event(row: &tokio_postgres::Row, from: usize) -> Option<(EventRow, RecordVersion)> {
    let cells = PgEventRow(row, from);
    if cells.cell(0) == CellValue::Null {
        return None;
    }
    let version = match cells.cell(COLUMNS) {
        CellValue::Number(number) => RecordVersion(number.cast_unsigned()),
        _ => RecordVersion(0),
    };
    // Who only looks takes what cannot be read for dead of `damaged`; `Shared` ends it when it comes up.
    let (row::DecodedRow::Whole(row) | row::DecodedRow::Damaged(row, _)) = row::read(&cells);
    Some((row, version))
}

/// PostgreSQL has no text with a zero byte in it.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

pub(super) fn counter(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn small(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// One column: this cell of every row.
pub(super) fn column<'a, R, T: ToSql + Sync + Send + 'a>(rows: &[R], cell: impl Fn(&R) -> T) -> PgParam<'a> {
    Box::new(rows.iter().map(cell).collect::<Vec<T>>())
}

/// Writes new events.
pub(super) const INSERT_EVENTS: &str = concat!(
    "insert into {schema}.events (",
    row::columns!(),
    ", body, version) select r.id, r.revision, r.source, r.route, r.part, r.delivery_id, r.fields::json, r.state, \
     r.cause, r.superseded_by, r.wake_at, r.received_at, r.ended_at, r.keep_from, r.node, r.life, r.attempt, \
     r.doubts, r.blocks_done, r.passed, r.grp, r.turn, r.subject, r.value, r.ord, r.body_digest, r.digest, r.retrier, \
     r.published_again, r.action_kind, r.body, r.version from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::integer[], \
     $6::text[], $7::text[], \
     $8::text[], $9::text[], $10::uuid[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], \
     $16::integer[], $17::integer[], $18::integer[], $19::bigint[], $20::smallint[], $21::bytea[], $22::bigint[], \
     $23::bytea[], $24::bytea[], $25::bigint[], $26::bytea[], $27::bytea[], $28::smallint[], $29::text[], \
     $30::text[], $31::boolean[], $32::bigint[]) as r (",
    row::columns!(),
    ", body, version)"
);

/// What the writers of events need of one.
pub(super) type PgEventWrite<'s> = (&'s EventRow, RecordVersion, &'s EventWrites<'s>);

pub(super) fn insert_events<'s>(rows: &[PgEventWrite<'s>]) -> PgQuery<'s> {
    let event = |row: &PgEventWrite<'s>| -> &'s Event { &row.0.event };
    let params = vec![
        column(rows, |row| PgUuid(event(row).id)),
        column(rows, |row| counter(event(row).revision.0)),
        column(rows, |row| &*event(row).source),
        column(rows, |row| &*event(row).route),
        column(rows, |row| i32::from(event(row).part)),
        column(rows, |row| event(row).delivery_id.as_deref().map(text)),
        column(rows, |row| event(row).fields.to_json()),
        column(rows, |row| StateColumns::of(&event(row).state).state),
        column(rows, |row| StateColumns::of(&event(row).state).cause),
        column(rows, |row| StateColumns::of(&event(row).state).superseded_by.map(|id| PgUuid(EventId(id)))),
        column(rows, |row| event(row).state.wake_at().map(|at| at.0)),
        column(rows, |row| event(row).received_at.0),
        column(rows, |row| event(row).state.ended().map(|at| at.0)),
        column(rows, |row| row.0.keep_from.map(|at| at.0)),
        column(rows, |row| StateColumns::of(&event(row).state).node),
        column(rows, |row| small(event(row).life)),
        column(rows, |row| small(event(row).attempt)),
        column(rows, |row| small(event(row).doubts)),
        column(rows, |row| event(row).blocks.0.cast_signed()),
        column(rows, |row| passed(event(row))),
        column(rows, |row| event(row).group.map(|group| PgBytes32(group.0))),
        column(rows, |row| counter(event(row).turn.0)),
        column(rows, |row| event(row).change.map(|change| PgBytes32(change.subject.0))),
        column(rows, |row| event(row).change.map(|change| PgBytes32(change.value.0))),
        column(rows, |row| event(row).change.and_then(|change| change.order)),
        column(rows, |row| PgBytes32(event(row).body_digest.0)),
        column(rows, |row| PgBytes32(event(row).digest.0)),
        column(rows, |row| retrier(event(row))),
        column(rows, |row| row::published_again_cell(event(row))),
        column(rows, |row| StateColumns::of(&event(row).state).action),
        column(rows, |row| row.2.payload.is_some()),
        column(rows, |row| counter(row.1.0)),
    ];
    PgQuery { sql: INSERT_EVENTS, params }
}

/// Writes what changes by itself of events that are there.
pub(super) const UPDATE_EVENTS: &str = "update {schema}.events set revision = r.revision, version = r.version, state = r.state, cause = r.cause, \
     superseded_by = r.superseded_by, wake_at = r.wake_at, ended_at = r.ended_at, keep_from = r.keep_from, \
     node = r.node, life = r.life, attempt = r.attempt, doubts = r.doubts, blocks_done = r.blocks_done, \
     passed = r.passed, turn = r.turn, ord = r.ord, retrier = r.retrier, published_again = r.published_again, \
     action_kind = r.action_kind from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::uuid[], $7::bigint[], \
     $8::bigint[], $9::bigint[], $10::text[], $11::integer[], $12::integer[], $13::integer[], $14::bigint[], \
     $15::smallint[], $16::bigint[], $17::bigint[], $18::smallint[], $19::text[], $20::text[]) as r (id, revision, version, state, \
     cause, superseded_by, wake_at, ended_at, keep_from, node, life, attempt, doubts, blocks_done, passed, turn, ord, \
     retrier, published_again, action_kind) \
     where events.id = r.id";

pub(super) fn update_events<'s>(rows: &[PgEventWrite<'s>]) -> PgQuery<'s> {
    let event = |row: &PgEventWrite<'s>| -> &'s Event { &row.0.event };
    let params = vec![
        column(rows, |row| PgUuid(event(row).id)),
        column(rows, |row| counter(event(row).revision.0)),
        column(rows, |row| counter(row.1.0)),
        column(rows, |row| StateColumns::of(&event(row).state).state),
        column(rows, |row| StateColumns::of(&event(row).state).cause),
        column(rows, |row| StateColumns::of(&event(row).state).superseded_by.map(|id| PgUuid(EventId(id)))),
        column(rows, |row| event(row).state.wake_at().map(|at| at.0)),
        column(rows, |row| event(row).state.ended().map(|at| at.0)),
        column(rows, |row| row.0.keep_from.map(|at| at.0)),
        column(rows, |row| StateColumns::of(&event(row).state).node),
        column(rows, |row| small(event(row).life)),
        column(rows, |row| small(event(row).attempt)),
        column(rows, |row| small(event(row).doubts)),
        column(rows, |row| event(row).blocks.0.cast_signed()),
        column(rows, |row| passed(event(row))),
        column(rows, |row| counter(event(row).turn.0)),
        column(rows, |row| event(row).change.and_then(|change| change.order)),
        column(rows, |row| retrier(event(row))),
        column(rows, |row| row::published_again_cell(event(row))),
        column(rows, |row| StateColumns::of(&event(row).state).action),
    ];
    PgQuery { sql: UPDATE_EVENTS, params }
}

fn passed(event: &Event) -> i16 {
    i16::try_from(row::passed_cell(event.queue_state)).unwrap_or_default()
}

fn retrier(event: &Event) -> i16 {
    i16::try_from(row::retrier_cell(event.retrier)).unwrap_or_default()
}

/// Writes what else never changes by itself, because another body came.
const FIX_EVENTS: &str = "update {schema}.events set delivery_id = r.delivery_id, fields = r.fields::json, body = true, \
     body_digest = r.body_digest, digest = r.digest \
     from unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::bytea[]) \
     as r (id, delivery_id, fields, body_digest, digest) where events.id = r.id";

pub(super) fn fix_events<'s>(events: &[&'s Event]) -> PgQuery<'s> {
    let params = vec![
        column(events, |event| PgUuid(event.id)),
        column(events, |event| event.delivery_id.as_deref().map(text)),
        column(events, |event| event.fields.to_json()),
        column(events, |event| PgBytes32(event.body_digest.0)),
        column(events, |event| PgBytes32(event.digest.0)),
    ];
    PgQuery { sql: FIX_EVENTS, params }
}

/// Keeps bodies. The conflict is one of a body that takes another's place.
const PUT_PAYLOADS: &str = "insert into {schema}.payloads (event, headers, headers_digest, body, unpacked) \
     select * from unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[]) \
     on conflict (event) do update set headers = excluded.headers, headers_digest = excluded.headers_digest, \
     body = excluded.body, unpacked = excluded.unpacked";

pub(super) fn put_payloads<'s>(
    rows: impl Iterator<Item = (EventId, &'s crate::decide::claim::Payload)>,
) -> PgQuery<'s> {
    let (mut ids, mut headers, mut digests) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bodies, mut unpacked) = (Vec::new(), Vec::new());
    for (id, payload) in rows {
        let text = row::headers_cell(&payload.headers);
        let packed = CompressedBody::of(&payload.body);
        ids.push(PgUuid(id));
        digests.push(PgBytes32(Digest::of(text.as_bytes()).0));
        headers.push(text);
        unpacked.push(packed.unpacked());
        bodies.push(packed.into_bytes());
    }
    ask!(PUT_PAYLOADS, ids, headers, digests, bodies, unpacked)
}
