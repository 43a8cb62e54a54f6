//! An event as cells of a row, and back.
//!
//! What is read may have rotted: a cell that is not what was written never panics and never passes for something
//! else. It makes its event one that is dead of `damaged`, with whatever else could still be read.

use crate::decide::action_kind::ActionKind;
use crate::decide::again::PublishedAgain;
use crate::decide::claim::Payload;
use crate::decide::event::{Blocks, Cause, ChangeOf, Event, How, Passed, Retrier, State};
use crate::decide::field::Fields;
use crate::decide::id::{Digest, EventId, Key, Node, Revision, Turn};
use crate::decide::key::{self, Part};
use crate::decide::time::Timestamp;
use crate::store::ledger::Row;
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// One cell of a stored row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::store) enum Value<'r> {
    /// Empty.
    Null,
    /// A number.
    Number(i64),
    /// A text.
    Text(&'r str),
    /// Bytes.
    Bytes(&'r [u8]),
    /// Something that no cell of ours holds.
    Other,
}

/// A row as it is read: cells by their place.
pub(in crate::store) trait Stored {
    /// The cell at this place.
    fn cell(&self, place: usize) -> Value<'_>;

    /// Is there no such place, because the row was written before there was?
    fn is_past(&self, _place: usize) -> bool {
        false
    }
}

/// The cells of an event, in the order in which [`read`] takes them.
macro_rules! columns {
    () => {
        "id, revision, source, route, part, delivery_id, fields, state, cause, superseded_by, wake_at, received_at, \
         ended_at, keep_from, node, life, attempt, doubts, blocks_done, passed, grp, turn, subject, value, ord, \
         body_digest, digest, retrier, published_again, action_kind"
    };
}
pub(in crate::store) use columns;

/// An event as it was found.
#[derive(Debug)]
pub(in crate::store) enum Found {
    /// As it was written.
    Whole(Row),
    /// What is left of one that cannot be read any more.
    Damaged(Row, Buried),
}

/// Whether an event that cannot be read is known to be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum Buried {
    /// It is written down as dead: nothing waits for it.
    Yes,
    /// It still looks alive, or done.
    No,
}

impl Found {
    /// The event, for those who only look.
    pub(in crate::store) fn event(self) -> Event {
        match self {
            Self::Whole(row) | Self::Damaged(row, _) => row.event,
        }
    }
}

/// The cells that change as an event lives.
pub(in crate::store) struct StateCells<'a> {
    pub(in crate::store) state: &'static str,
    pub(in crate::store) cause: Option<&'static str>,
    pub(in crate::store) superseded_by: Option<[u8; 16]>,
    pub(in crate::store) node: Option<&'a str>,
    pub(in crate::store) action: Option<&'static str>,
}

impl<'a> StateCells<'a> {
    pub(in crate::store) fn of(state: &'a State) -> Self {
        let (node, action) = match state {
            State::Running { by, action, .. } => (Some(&*by.0), action.map(ActionKind::word)),
            _ => (None, None),
        };
        let (cause, superseded_by) = match state {
            State::Waiting { .. } | State::Running { .. } => (None, None),
            State::Done { how, .. } => match how {
                How::Superseded { by } => (Some(how.word()), Some(by.0)),
                How::Acted | How::Recorded => (Some(how.word()), None),
            },
            State::Dead { cause, .. } => (Some(cause.word()), None),
        };
        Self { state: state.word(), cause, superseded_by, node, action }
    }
}

/// Where [`read`] looks for who tries an event again: rows of the first release end before it.
pub(in crate::store) const RETRIER_PLACE: usize = 27;

/// `Retrier` as a number.
pub(in crate::store) fn retrier_cell(retrier: Retrier) -> i64 {
    match retrier {
        Retrier::Sender => 0,
        Retrier::Node => 1,
    }
}

/// `Passed` as a number.
pub(in crate::store) fn passed_cell(passed: Passed) -> i64 {
    match passed {
        Passed::No => 0,
        Passed::Aside => 1,
        Passed::Yes => 2,
    }
}

/// The messages that were published after the first one, as a cell.
pub(in crate::store) fn published_again_cell(event: &Event) -> Option<String> {
    let PublishedAgain { times, last_at, first_ended_at, attempts_before } = event.published_again?;
    let (last_at, first_ended_at) = (last_at.0, first_ended_at.0);
    let cell = json!({
        "times": times,
        "last_at": last_at,
        "first_ended_at": first_ended_at,
        "attempts_before": attempts_before,
    });
    Some(cell.to_string())
}

fn published_again(cell: &str) -> Option<PublishedAgain> {
    let cell: Json = serde_json::from_str(cell).ok()?;
    let count = |name: &str| u32::try_from(cell[name].as_u64()?).ok();
    let time = |name: &str| cell[name].as_i64().map(Timestamp);
    Some(PublishedAgain {
        times: count("times").filter(|times| *times > 0)?,
        last_at: time("last_at")?,
        first_ended_at: time("first_ended_at")?,
        attempts_before: count("attempts_before")?,
    })
}

/// Reads the cells named by [`columns`].
pub(in crate::store) fn read(row: &impl Stored) -> Found {
    let mut cells = Cells { row, next: 0, whole: true };
    let id = EventId(cells.bytes());
    let revision = Revision(cells.number());
    let (source, route): (Arc<str>, Arc<str>) = (cells.text().into(), cells.text().into());
    let part = cells.number();
    let delivery_id = cells.maybe(Cells::text).map(Arc::from);
    let fields = Fields::from_json(cells.text());
    let word = cells.text();
    let cause = cells.maybe(Cells::text);
    let superseded_by = cells.maybe(Cells::bytes).map(EventId);
    let wake_at = cells.maybe(Cells::integer).map(Timestamp);
    let received_at = Timestamp(cells.integer());
    let ended_at = cells.maybe(Cells::integer).map(Timestamp);
    let keep_from = cells.maybe(Cells::integer).map(Timestamp);
    let node = cells.maybe(Cells::text).map(|name| Node(name.into()));
    let (life, attempt, doubts) = (cells.number(), cells.number(), cells.number());
    let blocks = Blocks(cells.integer().cast_unsigned());
    let passed = match cells.integer() {
        0 => Some(Passed::No),
        1 => Some(Passed::Aside),
        2 => Some(Passed::Yes),
        _ => None,
    };
    let group = cells.maybe(Cells::bytes).map(Key);
    let turn = Turn(cells.number());
    let subject = cells.maybe(Cells::bytes).map(Key);
    let value = cells.maybe(Cells::bytes).map(Digest);
    let order = cells.maybe(Cells::integer);
    let (body_digest, digest) = (Digest(cells.bytes()), Digest(cells.bytes()));
    let retrier = match cells.integer() {
        0 => Some(Retrier::Sender),
        1 => Some(Retrier::Node),
        _ => None,
    };
    let again = cells.last(Cells::text).map(published_again);
    // A word of a later version is none of ours: that lease runs out by the clock. So does one that was begun without it.
    let action = cells.last(Cells::text).and_then(ActionKind::parse);
    let change = match (subject, value) {
        (Some(subject), Some(value)) => Some(ChangeOf { subject, value, order }),
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
        && change.is_some() == (subject.is_some() || value.is_some() || order.is_some());
    let damaged = State::Dead { cause: Cause::Damaged, at: ended_at.unwrap_or(received_at) };
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
        blocks,
        passed: passed.unwrap_or(Passed::No),
        retrier: retrier.unwrap_or(Retrier::Sender),
        group,
        turn,
        change,
        published_again: again.flatten(),
        body_digest,
        digest,
    };
    let whole = whole && event.adds_up();
    if !whole {
        event.state = damaged;
    }
    let buried = word == "dead" && cause == Some("damaged") && ended_at.is_some() && wake_at.is_none();
    match (whole, buried) {
        (true, _) => Found::Whole(Row { event, keep_from }),
        (false, true) => Found::Damaged(Row { event, keep_from }, Buried::Yes),
        (false, false) => Found::Damaged(Row { event, keep_from }, Buried::No),
    }
}

fn state(
    word: &str,
    cause: Option<&str>,
    superseded_by: Option<EventId>,
    wake_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    lease: Option<(Node, Option<ActionKind>)>,
) -> Option<State> {
    match (word, cause, wake_at, ended_at) {
        ("waiting", None, due, None) => Some(State::Waiting { due }),
        ("running", None, Some(until), None) => lease.map(|(by, action)| State::Running { until, by, action }),
        ("done", Some(how), None, Some(at)) => {
            let how = match (how, superseded_by) {
                ("acted", None) => How::Acted,
                ("recorded", None) => How::Recorded,
                ("superseded", Some(by)) => How::Superseded { by },
                _ => return None,
            };
            Some(State::Done { how, at })
        }
        ("dead", Some(cause), None, Some(at)) => Cause::parse(cause).map(|cause| State::Dead { cause, at }),
        _ => None,
    }
}

/// Takes one cell after another, and remembers whether all of them were what they should be.
struct Cells<'r, S> {
    row: &'r S,
    next: usize,
    whole: bool,
}

impl<'r, S: Stored> Cells<'r, S> {
    fn take<T: Default>(&mut self, read: impl FnOnce(Value<'r>) -> Option<T>) -> T {
        let value = read(self.row.cell(self.next));
        self.next += 1;
        self.whole &= value.is_some();
        value.unwrap_or_default()
    }

    fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.row.cell(self.next) == Value::Null {
            self.next += 1;
            return None;
        }
        Some(read(self))
    }

    /// A cell that older rows do not have.
    fn last<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.row.is_past(self.next) { None } else { self.maybe(read) }
    }

    fn text(&mut self) -> &'r str {
        self.take(|cell| match cell {
            Value::Text(text) => Some(text),
            _ => None,
        })
    }

    fn integer(&mut self) -> i64 {
        self.number()
    }

    fn number<T: TryFrom<i64> + Default>(&mut self) -> T {
        self.take(|cell| match cell {
            Value::Number(number) => T::try_from(number).ok(),
            _ => None,
        })
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.take(|cell| match cell {
            Value::Bytes(bytes) => Some(Bytes(bytes.try_into().ok()?)),
            _ => None,
        })
        .0
    }
}

/// An array has no default of its own beyond 32 places, and not for every length.
struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

/// Headers as a cell.
pub(in crate::store) fn headers_cell(headers: &[(String, String)]) -> String {
    serde_json::to_string(headers).expect("pairs of texts are JSON")
}

/// The cell without what was only kept to be passed on; `None` if there is nothing of it in there.
pub(in crate::store) fn shed(cell: &str) -> Option<String> {
    let mut payload = Payload { headers: headers(cell)?, ..Payload::default() };
    let before = payload.headers.len();
    payload.shed();
    (payload.headers.len() < before).then(|| headers_cell(&payload.headers))
}

/// Headers from their cell; `None` if it is something else.
pub(in crate::store) fn headers(cell: &str) -> Option<Vec<(String, String)>> {
    serde_json::from_str(cell).ok()
}

/// What a receipt is compared with when it is read.
pub(in crate::store) fn receipt_digest(status: u16, cut: bool, headers: &str, body: &[u8]) -> Digest {
    key::value(&[
        Part::bytes("status", &status.to_be_bytes()),
        Part::bytes("cut", &[u8::from(cut)]),
        Part::text("headers", headers),
        Part::bytes("body", body),
    ])
}
