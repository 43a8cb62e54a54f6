//! Conversion of cells to and from PostgreSQL, and columns of many rows as arrays.

use super::batch_writes::EventWrites;
use super::dictionaries::{PgDictionaries, held_dictionaries};
use super::pool::{PgParam, PgQuery, ask};
use crate::decide::claim::Payload;
use crate::decide::event::Event;
use crate::decide::id::{Digest, EventId};
use crate::decide::ledger::EventRow;
use crate::store::optimistic::RecordVersion;
use crate::store::row;
use crate::store::row::{CellValue, ColumnRewritten, EVENT_COLUMNS, EventCell, EventColumn, RowToWrite, StoredRow};
use bytes::{BufMut, BytesMut};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::LazyLock;
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

/// The raw bytes of a cell of any type.
pub(super) struct PgRawCell<'a>(pub(super) &'a [u8]);

impl PgRawCell<'_> {
    /// The bytes as an array; zeros if the length differs: no id or key of ours is all zeros.
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

/// The event that begins at this column, with its version; `None` if there is none.
pub(super) fn event(row: &tokio_postgres::Row, from: usize) -> Option<(EventRow, RecordVersion)> {
    let cells = PgEventRow(row, from);
    if cells.cell(0) == CellValue::Null {
        return None;
    }
    let version = match cells.cell(EVENT_COLUMNS.len()) {
        CellValue::Number(number) => RecordVersion(number.cast_unsigned()),
        _ => RecordVersion(0),
    };
    // For reads an unreadable event is dead of `damaged`; `optimistic` ends it when it is due.
    let (row::DecodedRow::Whole(row) | row::DecodedRow::Damaged(row, _)) = row::read(&cells);
    Some((row, version))
}

/// Replaces zero bytes, which PostgreSQL's text cannot hold.
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

impl ToSql for EventCell<'_> {
    /// Integers that are too large for their column are clamped.
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self, of) {
            (Self::Null, _) => return Ok(IsNull::Yes),
            (Self::Number(number), &Type::INT2) => out.put_i16(i16::try_from(*number).unwrap_or(i16::MAX)),
            (Self::Number(number), &Type::INT4) => out.put_i32(i32::try_from(*number).unwrap_or(i32::MAX)),
            (Self::Number(number), _) => out.put_i64(*number),
            (Self::Text(cell), _) => out.put_slice(text(cell).as_bytes()),
            (Self::Bytes(bytes), _) => out.put_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        matches!(*of, Type::INT2 | Type::INT4 | Type::INT8 | Type::TEXT | Type::UUID | Type::BYTEA)
    }

    to_sql_checked!();
}

/// The parameters as rows `r` of these columns, each of this type.
fn unnested(columns: &[(&str, &str)]) -> String {
    // A parameter can be an array of texts; the column itself is JSON.
    let array = |of: &str| if of == "json" { "text".to_owned() } else { of.to_owned() };
    let arrays: Vec<_> = (1..).zip(columns).map(|(place, (_, of))| format!("${place}::{}[]", array(of))).collect();
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    format!("unnest({}) as r ({})", arrays.join(", "), names.join(", "))
}

/// The expression for this column of the rows `r`.
fn selected((name, of): &(&str, &str)) -> String {
    if *of == "json" { format!("r.{name}::json") } else { format!("r.{name}") }
}

fn typed(column: &'static EventColumn) -> (&'static str, &'static str) {
    (column.name, column.pg_type)
}

/// Updates these columns, and others after them, of existing events.
fn update_sql(when: ColumnRewritten, others: &[(&'static str, &'static str)], more: &str) -> String {
    let set: Vec<_> = row::rewritten(when).map(typed).chain(others.iter().copied()).collect();
    let assigned: Vec<_> = set.iter().map(|column| format!("{} = {}", column.0, selected(column))).collect();
    let all: Vec<_> = [("id", "uuid")].into_iter().chain(set).collect();
    format!("update {{schema}}.events set {}{more} from {} where events.id = r.id", assigned.join(", "), unnested(&all))
}

/// The columns of a new event.
fn inserted() -> Vec<(&'static str, &'static str)> {
    EVENT_COLUMNS.iter().map(typed).chain([("body", "boolean"), VERSION]).collect()
}

/// Inserts new events.
static INSERT_EVENTS: LazyLock<String> = LazyLock::new(|| {
    let all = inserted();
    let selected: Vec<_> = all.iter().map(selected).collect();
    let names = concat!(row::columns!(), ", body, version");
    format!("insert into {{schema}}.events ({names}) select {} from {}", selected.join(", "), unnested(&all))
});
/// Updates what a step changes.
static UPDATE_EVENTS: LazyLock<String> = LazyLock::new(|| update_sql(ColumnRewritten::Step, &[VERSION], ""));
/// A condition that fails, by a division by zero, if the register of this parameter exists; a null checks nothing.
fn unless_marked(place: usize) -> String {
    format!(
        "(select 1 / (case when exists (select from {{schema}}.registers where key = ${place}) then 0 else 1 end)) = 1"
    )
}

/// Inserts keys in the order of the arrays, which are sorted, and then new events: `count` waits for all of the keys.
/// All or nothing: a key or an event that is there already fails the statement.
static CLAIM_EVENTS: LazyLock<String> = LazyLock::new(|| {
    let all = inserted();
    let selected: Vec<_> = all.iter().map(selected).collect();
    let names = concat!(row::columns!(), ", body, version");
    let key = |place: usize| all.len() + place;
    format!(
        "with k as (insert into {{schema}}.keys (key, event, identity, alias, id_digest) \
         select * from unnest(${}::bytea[], ${}::uuid[], ${}::text[], ${}::boolean[], ${}::bytea[]) returning 1) \
         insert into {{schema}}.events ({names}) select {} from {} where (select count(*) from k) >= 0 and {}",
        key(1),
        key(2),
        key(3),
        key(4),
        key(5),
        selected.join(", "),
        unnested(&all),
        unless_marked(key(6))
    )
});
/// Updates what a step changes, if all of the expected events have these versions; otherwise it fails, by a negative
/// square root. They are locked first, in the order of their ids; one that changes meanwhile is read again then.
static UPDATE_EXPECTED_EVENTS: LazyLock<String> = LazyLock::new(|| {
    let place = row::rewritten(ColumnRewritten::Step).count() + 3;
    let held = format!(
        "with s as materialized (select * from unnest(${0}::uuid[], ${1}::bigint[]) as s (id, version)), \
         held as materialized (select e.id from s join {{schema}}.events e on e.id = s.id where e.version = s.version \
         order by e.id for no key update of e)",
        place,
        place + 1
    );
    let fits = format!(
        "(select pg_catalog.sqrt(case when count(*) = cardinality(${place}) then 0 else -1 end) from held) = 0"
    );
    let update = update_sql(ColumnRewritten::Step, &[VERSION], "");
    format!("{held} {update} and {fits} and {}", unless_marked(place + 2))
});
/// The same check, and no update.
const EXPECT_EVENTS: &str = "with s as materialized (select * from unnest($1::uuid[], $2::bigint[]) as s (id, version)), \
     held as materialized (select e.id from s join {schema}.events e on e.id = s.id where e.version = s.version \
     order by e.id for no key update of e) \
     select pg_catalog.sqrt(case when count(*) = cardinality($1) then 0 else -1 end), \
     1 / (case when exists (select from {schema}.registers where key = $3) then 0 else 1 end) from held";
/// Updates what a new body changes.
static REPLACE_BODIES: LazyLock<String> = LazyLock::new(|| update_sql(ColumnRewritten::Body, &[], ", body = true"));

const VERSION: (&str, &str) = ("version", "bigint");

/// The parts of an event write.
pub(super) type PgEventWrite<'s> = (&'s EventRow, RecordVersion, &'s EventWrites<'s>);

/// These columns of many rows.
fn event_params<'s>(rows: &[RowToWrite<'s>], columns: impl Iterator<Item = &'static EventColumn>) -> Vec<PgParam<'s>> {
    columns.map(|one| column(rows, |row| (one.cell)(*row))).collect()
}

pub(super) fn insert_events<'s>(rows: &[PgEventWrite<'s>]) -> PgQuery<'s> {
    PgQuery { sql: &INSERT_EVENTS, params: inserted_params(rows) }
}

fn inserted_params<'s>(rows: &[PgEventWrite<'s>]) -> Vec<PgParam<'s>> {
    let cells: Vec<_> = rows.iter().map(|(row, ..)| RowToWrite::from(*row)).collect();
    let mut params = event_params(&cells, EVENT_COLUMNS.iter());
    params.push(column(rows, |row| row.2.payload.is_some()));
    params.push(column(rows, |row| counter(row.1.0)));
    params
}

/// Inserts keys and new events, unless the store has this mark.
pub(super) fn claim_events<'s>(
    keys: Vec<PgParam<'s>>,
    rows: &[PgEventWrite<'s>],
    mark: Option<PgBytes32>,
) -> PgQuery<'s> {
    let mut params = inserted_params(rows);
    params.extend(keys);
    params.push(Box::new(mark));
    PgQuery { sql: &CLAIM_EVENTS, params }
}

/// Updates the columns of existing events that a step changes, if all expected events have their versions, and unless the
/// store has this mark.
pub(super) fn update_expected_events<'s>(
    rows: &[PgEventWrite<'s>],
    expected: &[(EventId, RecordVersion)],
    mark: Option<PgBytes32>,
) -> PgQuery<'s> {
    let check: [PgParam<'s>; 3] =
        [column(expected, |(id, _)| PgUuid(*id)), column(expected, |(_, version)| counter(version.0)), Box::new(mark)];
    if rows.is_empty() {
        return PgQuery { sql: EXPECT_EVENTS, params: check.into() };
    }
    let mut query = update_events(rows);
    query.sql = &UPDATE_EXPECTED_EVENTS;
    query.params.extend(check);
    query
}

/// Updates the columns of existing events that a step changes.
pub(super) fn update_events<'s>(rows: &[PgEventWrite<'s>]) -> PgQuery<'s> {
    let cells: Vec<_> = rows.iter().map(|(row, ..)| RowToWrite::from(*row)).collect();
    let mut params = vec![column(rows, |row| PgUuid(row.0.event.id))];
    params.extend(event_params(&cells, row::rewritten(ColumnRewritten::Step)));
    params.push(column(rows, |row| counter(row.1.0)));
    PgQuery { sql: &UPDATE_EVENTS, params }
}

/// Updates the columns that only a new body changes.
pub(super) fn replace_bodies<'s>(events: &[&'s Event]) -> PgQuery<'s> {
    let cells: Vec<_> = events.iter().map(|event| RowToWrite { event, keep_from: None }).collect();
    let mut params = vec![column(events, |event| PgUuid(event.id))];
    params.extend(event_params(&cells, row::rewritten(ColumnRewritten::Body)));
    PgQuery { sql: &REPLACE_BODIES, params }
}

/// Writes bodies without dictionaries, replacing existing ones that have none.
const PUT_PAYLOADS: &str = "insert into {schema}.payloads (event, headers, headers_digest, body, unpacked) \
     select * from unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[]) \
     on conflict (event) do update set headers = excluded.headers, headers_digest = excluded.headers_digest, \
     body = excluded.body, unpacked = excluded.unpacked";
/// Writes bodies some of which need a dictionary, in stores that have dictionaries.
const PUT_PACKED: &str = concat!(
    held_dictionaries!("$8"),
    "insert into {schema}.payloads (event, headers, headers_digest, body, unpacked, packed, dictionary) \
     select p.* from fits, unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bytea[], \
     $7::bigint[]) p where fits.is = 0 \
     on conflict (event) do update set headers = excluded.headers, headers_digest = excluded.headers_digest, \
     body = excluded.body, unpacked = excluded.unpacked, packed = excluded.packed, dictionary = excluded.dictionary"
);

pub(super) fn put_payloads<'s>(
    rows: impl Iterator<Item = (&'s Event, &'s Payload)>,
    dictionaries: &PgDictionaries,
) -> PgQuery<'s> {
    let (mut ids, mut headers, mut digests) = (Vec::new(), Vec::new(), Vec::new());
    let (mut plain, mut unpacked, mut packed, mut used) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (event, payload) in rows {
        let text = row::headers_cell(&payload.headers);
        let body = dictionaries.pack(event, &payload.body);
        ids.push(PgUuid(event.id));
        digests.push(PgBytes32(Digest::of(text.as_bytes()).0));
        headers.push(text);
        unpacked.push(body.unpacked());
        let dictionary = body.dictionary().map(|dictionary| dictionary.0);
        let bytes = body.into_bytes();
        let (without, with) = if dictionary.is_some() { (None, Some(bytes)) } else { (Some(bytes), None) };
        plain.push(without);
        packed.push(with);
        used.push(dictionary);
    }
    let held: Vec<i64> = used.iter().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect();
    if held.is_empty() {
        return ask!(PUT_PAYLOADS, ids, headers, digests, plain, unpacked);
    }
    ask!(PUT_PACKED, ids, headers, digests, plain, unpacked, packed, used, held)
}

/// Does one of these statements pack with a dictionary?
pub(super) fn use_dictionaries(asks: &[PgQuery<'_>]) -> bool {
    asks.iter().any(|ask| ask.sql == PUT_PACKED)
}
