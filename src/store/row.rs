//! Encoding and decoding of an event as the cells of a row.
//!
//! A stored cell may be damaged. A damaged cell never panics and is never taken for another value: its event is read as
//! dead of `damaged`, with whatever else could still be read.

use crate::decide::action_kind::ActionKind;
use crate::decide::claim::Payload;
use crate::decide::event::{
    DeathCause, DoneReason, Event, EventState, Origin, QueueState, RetryOwner, SubjectChange, SucceededBlocks,
};
use crate::decide::field::StoredFields;
use crate::decide::id::{Digest, EventId, Key, NodeId, QueueTurn, Revision};
use crate::decide::identity::key;
use crate::decide::identity::key::KeyPart;
use crate::decide::ledger::EventRow;
use crate::decide::notification::NotificationKind;
use crate::decide::republish::RepublishState;
use crate::decide::time::Timestamp;
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::sync::Arc;

/// One cell of a stored row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::store) enum CellValue<'r> {
    /// Empty.
    Null,
    /// A number.
    Number(i64),
    /// A text.
    Text(&'r str),
    /// Bytes.
    Bytes(&'r [u8]),
    /// A value of a type that no column has.
    Other,
}

/// A row being read, by column index.
pub(in crate::store) trait StoredRow {
    /// The cell at this index.
    fn cell(&self, place: usize) -> CellValue<'_>;
}

/// A cell to be written.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::store) enum EventCell<'r> {
    /// Empty.
    Null,
    /// A number.
    Number(i64),
    /// A text.
    Text(Cow<'r, str>),
    /// Bytes.
    Bytes(&'r [u8]),
}

impl EventCell<'_> {
    /// The cell as it will be read back.
    pub(in crate::store) fn value(&self) -> CellValue<'_> {
        match self {
            Self::Null => CellValue::Null,
            Self::Number(number) => CellValue::Number(*number),
            Self::Text(text) => CellValue::Text(text),
            Self::Bytes(bytes) => CellValue::Bytes(bytes),
        }
    }
}

macro_rules! cell_from {
    ($($from:ty, $value:ident => $cell:expr;)*) => {
        $(impl<'r> From<$from> for EventCell<'r> {
            fn from($value: $from) -> Self {
                $cell
            }
        })*
    };
}

cell_from! {
    i64, number => Self::Number(number);
    u16, number => Self::Number(number.into());
    u32, number => Self::Number(number.into());
    u64, number => Self::Number(i64::try_from(number).unwrap_or(i64::MAX));
    Timestamp, at => Self::Number(at.0);
    &'r str, text => Self::Text(text.into());
    String, text => Self::Text(text.into());
    &'r [u8], bytes => Self::Bytes(bytes);
}

impl<'r, T: Into<EventCell<'r>>> From<Option<T>> for EventCell<'r> {
    fn from(cell: Option<T>) -> Self {
        cell.map_or(Self::Null, Into::into)
    }
}

/// An event's row to be written.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct RowToWrite<'r> {
    /// The event.
    pub(in crate::store) event: &'r Event,
    /// Since when its retention counts.
    pub(in crate::store) keep_from: Option<Timestamp>,
}

impl<'r> From<&'r EventRow> for RowToWrite<'r> {
    fn from(row: &'r EventRow) -> Self {
        Self { event: &row.event, keep_from: row.keep_from }
    }
}

impl<'r> RowToWrite<'r> {
    fn state(self) -> StateColumns<'r> {
        StateColumns::of(&self.event.state)
    }

    /// The cells of these columns.
    pub(in crate::store) fn cells(
        self,
        columns: impl IntoIterator<Item = &'static EventColumn>,
    ) -> impl Iterator<Item = EventCell<'r>> {
        columns.into_iter().map(move |column| (column.cell)(self))
    }
}

/// A column of an event.
#[derive(Debug)]
pub(in crate::store) struct EventColumn {
    /// Its name in SQL.
    pub(in crate::store) name: &'static str,
    /// Its type in PostgreSQL.
    pub(in crate::store) pg_type: &'static str,
    /// When it is rewritten.
    pub(in crate::store) rewritten: ColumnRewritten,
    /// The value in rows written before this column existed; `None` for the columns of the first release.
    pub(in crate::store) absent: Option<CellValue<'static>>,
    /// Encodes its cell.
    pub(in crate::store) cell: for<'r> fn(RowToWrite<'r>) -> EventCell<'r>,
}

/// When a column of an existing event is rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum ColumnRewritten {
    /// Never.
    Never,
    /// With every step of the event.
    Step,
    /// When the body is replaced.
    Body,
}

/// The columns rewritten at that time.
pub(in crate::store) fn rewritten(when: ColumnRewritten) -> impl Iterator<Item = &'static EventColumn> {
    EVENT_COLUMNS.iter().filter(move |column| column.rewritten == when)
}

/// The table of an event's columns, the same for every store and read by [`read`]: name, PostgreSQL type, when it is
/// rewritten, and its cell. A new column is one line at its end, one line in [`read`], and a migration.
macro_rules! event_table {
    ($use:ident) => {
        $crate::store::row::$use! { row;
            id: uuid, Never; row.event.id.0.as_slice();
            revision: bigint, Step; row.event.revision.0;
            source: text, Never; &*row.event.source;
            route: text, Never; &*row.event.route;
            part: integer, Never; row.event.part;
            delivery_id: text, Body; row.event.delivery_id.as_deref();
            fields: json, Body; row.event.fields.to_json();
            state: text, Step; row.state().state;
            cause: text, Step; row.state().cause;
            superseded_by: uuid, Step; row.state().superseded_by;
            wake_at: bigint, Step; row.event.state.wake_at();
            received_at: bigint, Never; row.event.received_at;
            ended_at: bigint, Step; row.event.state.ended();
            keep_from: bigint, Step; row.keep_from;
            node: text, Step; row.state().node;
            life: integer, Step; row.event.life;
            attempt: integer, Step; row.event.attempt;
            doubts: integer, Step; row.event.doubts;
            blocks_done: bigint, Step; row.event.blocks.0.cast_signed();
            passed: smallint, Step; passed_cell(row.event.queue_state);
            grp: bytea, Never; row.event.group.as_ref().map(|group| group.0.as_slice());
            turn: bigint, Step; row.event.turn.0;
            subject: bytea, Never; row.event.change.as_ref().map(|change| change.subject.0.as_slice());
            value: bytea, Never; row.event.change.as_ref().map(|change| change.value.0.as_slice());
            ord: bigint, Step; row.event.change.and_then(|change| change.order);
            body_digest: bytea, Body; row.event.body_digest.0.as_slice();
            digest: bytea, Body; row.event.digest.0.as_slice();
            retrier: smallint, Step, absent CellValue::Number(0); retrier_cell(row.event.retrier);
            published_again: text, Step, absent CellValue::Null; published_again_cell(row.event);
            action_kind: text, Step, absent CellValue::Null; row.state().action;
            aside: text, Step, absent CellValue::Null; aside_cell(row.event.queue_state);
            burst_since: bigint, Step, absent CellValue::Null; row.event.burst_since;
            resolved: text, Step, absent CellValue::Null; row.event.resolved.as_deref();
            origin: text, Never, absent CellValue::Null; origin_cell(row.event);
            failed_lookups: integer, Step, absent CellValue::Number(0); row.event.failed_lookups;
            notifications: text, Step, absent CellValue::Null; notifications_cell(row.event);
        }
    };
}
pub(in crate::store) use event_table;

/// The names of the columns of an event, for SQL.
macro_rules! columns {
    () => {
        $crate::store::row::event_table!(column_names)
    };
}
pub(in crate::store) use columns;

macro_rules! column_names {
    (
        $row:ident;
        $first:ident: $_pg:ident, $_when:ident; $_cell:expr;
        $($name:ident: $pg:ident, $when:ident $(, absent $absent:expr)?; $cell:expr;)*
    ) => {
        concat!(stringify!($first) $(, ", ", stringify!($name))*)
    };
}
pub(in crate::store) use column_names;

macro_rules! column_definitions {
    ($row:ident; $($name:ident: $pg:ident, $when:ident $(, absent $absent:expr)?; $cell:expr;)*) => {
        &[$(EventColumn {
            name: stringify!($name),
            pg_type: stringify!($pg),
            rewritten: ColumnRewritten::$when,
            absent: [$(Some($absent),)? None][0],
            cell: |$row| EventCell::from($cell),
        }),*]
    };
}
use column_definitions;

/// The columns of an event.
pub(in crate::store) const EVENT_COLUMNS: &[EventColumn] = event_table!(column_definitions);

/// A decoded event.
#[derive(Debug)]
pub(in crate::store) enum DecodedRow {
    /// As it was written.
    Whole(EventRow),
    /// What is left of an event that cannot be read any more.
    Damaged(EventRow, DamageRecorded),
}

/// Whether the store already records an unreadable event as damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum DamageRecorded {
    /// It is recorded as dead: nothing waits for it.
    Yes,
    /// It still looks alive, or done.
    No,
}

impl DecodedRow {
    /// The row, or what is left of it.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn row(&self) -> &EventRow {
        match self {
            Self::Whole(row) | Self::Damaged(row, _) => row,
        }
    }

    /// The event, for reads that do not act on damage.
    pub(in crate::store) fn event(self) -> Event {
        match self {
            Self::Whole(row) | Self::Damaged(row, _) => row.event,
        }
    }
}

/// The cells of a state.
struct StateColumns<'a> {
    state: &'static str,
    cause: Option<&'static str>,
    superseded_by: Option<&'a [u8]>,
    node: Option<&'a str>,
    action: Option<&'static str>,
}

impl<'a> StateColumns<'a> {
    fn of(state: &'a EventState) -> Self {
        let (node, action) = match state {
            EventState::Running { by, action, .. } => (Some(&*by.0), action.map(ActionKind::word)),
            _ => (None, None),
        };
        let (cause, superseded_by) = match state {
            EventState::Waiting { .. } | EventState::Running { .. } => (None, None),
            EventState::Done { how, .. } => match how {
                DoneReason::Superseded { by } => (Some(how.word()), Some(by.0.as_slice())),
                DoneReason::Acted | DoneReason::Recorded => (Some(how.word()), None),
            },
            EventState::Dead { cause, .. } => (Some(cause.word()), None),
        };
        Self { state: state.word(), cause, superseded_by, node, action }
    }
}

/// `RetryOwner` as a number.
fn retrier_cell(retrier: RetryOwner) -> i64 {
    match retrier {
        RetryOwner::Sender => 0,
        RetryOwner::Node => 1,
    }
}

/// `QueueState` as a number. An event that waits aside for any reason is written as one whose route is gone, because
/// the first release knows no other: once it is due, that version takes it back into the queue.
fn passed_cell(passed: QueueState) -> i64 {
    match passed {
        QueueState::Queued => 0,
        QueueState::Suspended | QueueState::Debouncing | QueueState::OverBudget => 1,
        QueueState::Requeued => 2,
    }
}

const DEBOUNCE: &str = "debounce";
const BUDGET: &str = "budget";

/// What an event waits aside for, unless its route is gone.
fn aside_cell(passed: QueueState) -> Option<&'static str> {
    match passed {
        QueueState::Debouncing => Some(DEBOUNCE),
        QueueState::OverBudget => Some(BUDGET),
        QueueState::Queued | QueueState::Suspended | QueueState::Requeued => None,
    }
}

/// Reads `passed` and `aside`.
fn queue_state(passed: i64, aside: Option<&str>) -> Option<QueueState> {
    match (passed, aside) {
        (0, _) => Some(QueueState::Queued),
        (1, None) => Some(QueueState::Suspended),
        (1, Some(DEBOUNCE)) => Some(QueueState::Debouncing),
        (1, Some(BUDGET)) => Some(QueueState::OverBudget),
        (2, _) => Some(QueueState::Requeued),
        _ => None,
    }
}

/// What made an event that no delivery made, as a cell.
fn origin_cell(event: &Event) -> Option<String> {
    let origin = match event.origin? {
        Origin::Rollback { from, to } => json!({ "rollback": { "from": from.to_string(), "to": to.to_string() } }),
        Origin::Notification { of, kind } => {
            json!({ "notification": { "of": of.to_string(), "kind": kind.word() } })
        }
    };
    Some(origin.to_string())
}

fn origin(cell: &str) -> Option<Origin> {
    let cell: Json = serde_json::from_str(cell).ok()?;
    let id = |kind: &str, name: &str| cell[kind][name].as_str()?.parse().ok();
    if cell["notification"].is_object() {
        let kind = NotificationKind::parse(cell["notification"]["kind"].as_str()?)?;
        return Some(Origin::Notification { of: id("notification", "of")?, kind });
    }
    Some(Origin::Rollback { from: id("rollback", "from")?, to: id("rollback", "to")? })
}

/// The ids of an event's notifications, as a cell.
fn notifications_cell(event: &Event) -> Option<String> {
    let ids: Vec<_> = event.notifications.iter().map(ToString::to_string).collect();
    (!ids.is_empty()).then(|| json!(ids).to_string())
}

fn notifications(cell: &str) -> Option<Vec<EventId>> {
    let cell: Vec<String> = serde_json::from_str(cell).ok()?;
    cell.iter().map(|id| id.parse().ok()).collect()
}

/// The re-published messages, as a cell.
fn published_again_cell(event: &Event) -> Option<String> {
    let RepublishState { times, last_at, first_ended_at, attempts_before } = event.published_again?;
    let (last_at, first_ended_at) = (last_at.0, first_ended_at.0);
    let cell = json!({
        "times": times,
        "last_at": last_at,
        "first_ended_at": first_ended_at,
        "attempts_before": attempts_before,
    });
    Some(cell.to_string())
}

fn published_again(cell: &str) -> Option<RepublishState> {
    let cell: Json = serde_json::from_str(cell).ok()?;
    let count = |name: &str| u32::try_from(cell[name].as_u64()?).ok();
    let time = |name: &str| cell[name].as_i64().map(Timestamp);
    Some(RepublishState {
        times: count("times").filter(|times| *times > 0)?,
        last_at: time("last_at")?,
        first_ended_at: time("first_ended_at")?,
        attempts_before: count("attempts_before")?,
    })
}

/// Reads the cells of [`EVENT_COLUMNS`].
pub(in crate::store) fn read(row: &impl StoredRow) -> DecodedRow {
    let mut cells = CellReader { row, next: 0, whole: true };
    let id = EventId(cells.bytes());
    let revision = Revision(cells.number());
    let (source, route): (Arc<str>, Arc<str>) = (cells.text().into(), cells.text().into());
    let part = cells.number();
    let delivery_id = cells.maybe(CellReader::text).map(Arc::from);
    let fields = StoredFields::from_json(cells.text());
    let word = cells.text();
    let cause = cells.maybe(CellReader::text);
    let superseded_by = cells.maybe(CellReader::bytes).map(EventId);
    let wake_at = cells.maybe(CellReader::integer).map(Timestamp);
    let received_at = Timestamp(cells.integer());
    let ended_at = cells.maybe(CellReader::integer).map(Timestamp);
    let keep_from = cells.maybe(CellReader::integer).map(Timestamp);
    let node = cells.maybe(CellReader::text).map(|name| NodeId(name.into()));
    let (life, attempt, doubts) = (cells.number(), cells.number(), cells.number());
    let blocks = SucceededBlocks(cells.integer().cast_unsigned());
    let passed = cells.integer();
    let group = cells.maybe(CellReader::bytes).map(Key);
    let turn = QueueTurn(cells.number());
    let subject = cells.maybe(CellReader::bytes).map(Key);
    let value = cells.maybe(CellReader::bytes).map(Digest);
    let order = cells.maybe(CellReader::integer);
    let (body_digest, digest) = (Digest(cells.bytes()), Digest(cells.bytes()));
    let retrier = match cells.integer() {
        0 => Some(RetryOwner::Sender),
        1 => Some(RetryOwner::Node),
        _ => None,
    };
    let again = cells.maybe(CellReader::text).map(published_again);
    // An unknown kind, from a later version, is ignored: that lease expires by the clock. So does one written without
    // it.
    let action = cells.maybe(CellReader::text).and_then(ActionKind::parse);
    let passed = queue_state(passed, cells.maybe(CellReader::text));
    let burst_since = cells.maybe(CellReader::integer).map(Timestamp);
    let resolved = cells.maybe(CellReader::text).map(Arc::from);
    let origin = cells.maybe(CellReader::text).map(origin);
    let failed_lookups = cells.number();
    let notified = cells.maybe(CellReader::text).map(notifications);
    debug_assert_eq!(cells.next, EVENT_COLUMNS.len(), "every column is read");
    let change = match (subject, value) {
        (Some(subject), Some(value)) => Some(SubjectChange { subject, value, order }),
        _ => None,
    };
    let lease = node.map(|by| (by, action));
    let state = state(word, cause, superseded_by, wake_at, ended_at, lease);

    let whole = cells.whole
        && fields.is_some()
        && passed.is_some()
        && retrier.is_some()
        && state.is_some()
        && again != Some(None)
        && origin != Some(None)
        && notified != Some(None)
        && change.is_some() == (subject.is_some() || value.is_some() || order.is_some());
    let damaged = EventState::Dead { cause: DeathCause::Damaged, at: ended_at.unwrap_or(received_at) };
    let mut event = Event {
        id,
        revision,
        source,
        route,
        part,
        delivery_id,
        fields: fields.unwrap_or_default(),
        received_at,
        state: state.unwrap_or(damaged.clone()),
        life,
        attempt,
        doubts,
        failed_lookups,
        blocks,
        queue_state: passed.unwrap_or(QueueState::Queued),
        retrier: retrier.unwrap_or(RetryOwner::Sender),
        group,
        turn,
        change,
        published_again: again.flatten(),
        burst_since,
        resolved,
        origin: origin.flatten(),
        notifications: notified.flatten().unwrap_or_default(),
        body_digest,
        digest,
    };
    let whole = whole && event.has_consistent_counts();
    if !whole {
        event.state = damaged;
    }
    let buried = word == "dead" && cause == Some("damaged") && ended_at.is_some() && wake_at.is_none();
    match (whole, buried) {
        (true, _) => DecodedRow::Whole(EventRow { event, keep_from }),
        (false, true) => DecodedRow::Damaged(EventRow { event, keep_from }, DamageRecorded::Yes),
        (false, false) => DecodedRow::Damaged(EventRow { event, keep_from }, DamageRecorded::No),
    }
}

fn state(
    word: &str,
    cause: Option<&str>,
    superseded_by: Option<EventId>,
    wake_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    lease: Option<(NodeId, Option<ActionKind>)>,
) -> Option<EventState> {
    match (word, cause, wake_at, ended_at) {
        ("waiting", None, due, None) => Some(EventState::Waiting { due }),
        ("running", None, Some(until), None) => lease.map(|(by, action)| EventState::Running { until, by, action }),
        ("done", Some(how), None, Some(at)) => {
            let how = match (how, superseded_by) {
                ("acted", None) => DoneReason::Acted,
                ("recorded", None) => DoneReason::Recorded,
                ("superseded", Some(by)) => DoneReason::Superseded { by },
                _ => return None,
            };
            Some(EventState::Done { how, at })
        }
        ("dead", Some(cause), None, Some(at)) => DeathCause::parse(cause).map(|cause| EventState::Dead { cause, at }),
        _ => None,
    }
}

/// Reads one cell after another, and remembers whether all of them were valid.
struct CellReader<'r, S> {
    row: &'r S,
    next: usize,
    whole: bool,
}

impl<'r, S: StoredRow> CellReader<'r, S> {
    fn take<T: Default>(&mut self, read: impl FnOnce(CellValue<'r>) -> Option<T>) -> T {
        let value = read(self.row.cell(self.next));
        self.next += 1;
        self.whole &= value.is_some();
        value.unwrap_or_default()
    }

    fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.row.cell(self.next) == CellValue::Null {
            self.next += 1;
            return None;
        }
        Some(read(self))
    }

    fn text(&mut self) -> &'r str {
        self.take(|cell| match cell {
            CellValue::Text(text) => Some(text),
            _ => None,
        })
    }

    fn integer(&mut self) -> i64 {
        self.number()
    }

    fn number<T: TryFrom<i64> + Default>(&mut self) -> T {
        self.take(|cell| match cell {
            CellValue::Number(number) => T::try_from(number).ok(),
            _ => None,
        })
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.take(|cell| match cell {
            CellValue::Bytes(bytes) => Some(ByteArray(bytes.try_into().ok()?)),
            _ => None,
        })
        .0
    }
}

/// Arrays implement `Default` only up to length 32, and not for a generic length.
struct ByteArray<const N: usize>([u8; N]);

impl<const N: usize> Default for ByteArray<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

/// Headers as a cell.
pub(in crate::store) fn headers_cell(headers: &[(String, String)]) -> String {
    serde_json::to_string(headers).expect("pairs of texts are JSON")
}

/// The headers cell without its transient headers; `None` if it has none.
pub(in crate::store) fn shed(cell: &str) -> Option<String> {
    let mut payload = Payload { headers: headers(cell)?, ..Payload::default() };
    let before = payload.headers.len();
    payload.drop_transient_headers();
    (payload.headers.len() < before).then(|| headers_cell(&payload.headers))
}

/// Headers from their cell; `None` if it is invalid.
pub(in crate::store) fn headers(cell: &str) -> Option<Vec<(String, String)>> {
    serde_json::from_str(cell).ok()
}

/// The digest that a receipt is checked against when it is read.
pub(in crate::store) fn receipt_digest(status: u16, cut: bool, headers: &str, body: &[u8]) -> Digest {
    key::value(&[
        KeyPart::bytes("status", &status.to_be_bytes()),
        KeyPart::bytes("cut", &[u8::from(cut)]),
        KeyPart::text("headers", headers),
        KeyPart::bytes("body", body),
    ])
}
