//! Reading records and due events. Every reply comes with the server's time and the store's marks, so that a store that
//! lost data is noticed.

use super::key_names::RedisKeyKind;
use super::script_args::ScriptArgs;
use super::{RedisInner, codec, key_names};
use crate::decide::claim::Payload;
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{Digest, EventId, Key, QueueTurn};
use crate::decide::ledger::EventRow;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::store::compression::BodyDictionary;
use crate::store::inspect::QuarantinedMessage;
use crate::store::optimistic::{ExpectedVersion, GroupSlot, PARKED_READ, ReadBatch, Record, RecordId, RecordVersion};
use crate::store::redis::read;
use crate::store::{DueEvents, DueQuery, SourceCount, SourceRetention, StoreError, StoreResult, StoredValue, row};
use redis::{Pipeline, Value};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Ids read at a time where only some are wanted.
pub(super) const PAGE: usize = 500;
/// How often a payload is read whose dictionary is gone: it may just be packed anew.
const PAYLOAD_TRIES: usize = 3;
/// Maximum number of entries of one list read at once.
const LOOK_MAX: usize = 10_000;

/// A string's bytes; `None` if it is missing.
pub(super) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

pub(super) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) | Value::Set(list) => list,
        _ => &[],
    }
}

pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        other => std::str::from_utf8(bytes(other)?).ok()?.parse().ok(),
    }
}

fn id(value: &Value) -> Option<EventId> {
    bytes(value)?.try_into().ok().map(EventId)
}

/// Members and scores of a sorted set: a score is a number of at most 53 bits.
fn scored(value: &Value) -> Vec<(EventId, i64)> {
    let one = |pair: &[Value]| Some((id(&pair[0])?, score(&pair[1])?));
    list(value).chunks_exact(2).filter_map(one).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "it was a whole number when it was written")]
fn score(value: &Value) -> Option<i64> {
    let text = std::str::from_utf8(bytes(value)?).ok()?;
    text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|score| score as i64))
}

pub(super) fn overwritten(what: &str) -> StoreError {
    StoreError::broken(format!("a {what} was overwritten"))
}

impl RedisInner {
    /// Reads records. A slot is read before its queue: an event that joins meanwhile writes the slot too.
    pub(super) async fn read_cells(&self, cells: Vec<RecordId>) -> StoreResult<ReadBatch> {
        let mut questions = Pipeline::new();
        let (mut named, mut groups, mut imported) = (Vec::new(), Vec::new(), Vec::new());
        for cell in cells {
            match (cell, self.names.cell(&cell)) {
                (_, Some(name)) => named.push((cell, name)),
                (RecordId::Imported(key), _) => imported.push(key),
                (_, None) => {}
            }
            if let RecordId::Slot(group) = cell {
                groups.push(group);
            }
        }
        if !named.is_empty() {
            questions.cmd("MGET").arg(named.iter().map(|(_, name)| &name[..]).collect::<Vec<_>>());
        }
        for group in &groups {
            let queue = self.names.key(RedisKeyKind::Parked, group);
            questions.cmd("ZRANGE").arg(queue).arg(0).arg(PARKED_READ).arg("WITHSCORES");
        }
        if !imported.is_empty() {
            let keys: Vec<_> = imported.iter().map(|key: &Key| &key.0[..]).collect();
            questions.cmd("SMISMEMBER").arg(self.names.imported()).arg(keys);
        }
        let (answers, marks) = self.ask(questions).await?;
        self.confirm(marks.count).await?;
        let mut answers = answers.iter();
        let strings = if named.is_empty() { &[][..] } else { answers.next().map_or(&[][..], list) };
        let mut queues = Vec::new();
        for group in groups {
            queues.push((group, answers.next().map(scored).unwrap_or_default()));
        }
        let mut read = Vec::new();
        for ((cell, _), value) in named.into_iter().zip(strings) {
            read.push((cell, found(&cell, bytes(value), &queues)?));
        }
        let known = if imported.is_empty() { &[][..] } else { answers.next().map_or(&[][..], list) };
        for (key, known) in imported.into_iter().zip(known) {
            let found = if number(known) == Some(1) { Record::Imported } else { Record::Nothing };
            read.push((RecordId::Imported(key), found));
        }
        Ok(ReadBatch { cells: read, turn: marks.turn, now: marks.now })
    }

    /// The rows of these events, and their versions.
    async fn rows(&self, ids: &[EventId]) -> StoreResult<Vec<(EventId, Option<(row::DecodedRow, RecordVersion)>)>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        questions.cmd("MGET").arg(ids.iter().map(|id| self.names.event(RedisKeyKind::Event, *id)).collect::<Vec<_>>());
        let (answers, _) = self.ask(questions).await?;
        let rows = answers.first().map_or(&[][..], list);
        Ok(ids.iter().zip(rows).map(|(id, row)| (*id, bytes(row).map(|row| codec::read_row(*id, row)))).collect())
    }

    /// These events, as far as they exist.
    pub(super) async fn events(&self, ids: &[EventId]) -> StoreResult<Vec<Event>> {
        let rows = self.rows(ids).await?.into_iter();
        Ok(rows.filter_map(|(_, row)| row.map(|(found, _)| found.event())).collect())
    }

    pub(super) async fn ids(&self, questions: Pipeline) -> StoreResult<Vec<EventId>> {
        let (answers, _) = self.ask(questions).await?;
        Ok(answers.first().map_or(&[][..], list).iter().filter_map(id).collect())
    }

    /// The indexes of those names whose lists are all empty.
    async fn empty<N>(&self, names: &[N], lists: impl Fn(&N) -> Vec<Vec<u8>>) -> StoreResult<Vec<usize>> {
        let mut questions = Pipeline::new();
        for name in names {
            questions.cmd("EXISTS").arg(lists(name));
        }
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let (answers, _) = self.ask(questions).await?;
        Ok(answers.iter().enumerate().filter(|(_, there)| number(there) == Some(0)).map(|(place, _)| place).collect())
    }

    /// Drops the names of sources and routes that were renamed or removed, once nothing refers to them.
    pub(super) async fn drop_names<'n, N: 'n>(
        &self,
        names: impl Iterator<Item = &'n N>,
        drop: impl Fn(&mut ScriptArgs<'_>, &N),
    ) -> StoreResult<()> {
        let mut words = ScriptArgs::new(&self.names);
        let mut any = false;
        for name in names {
            drop(&mut words, name);
            any = true;
        }
        if any && self.may_write() {
            self.send(words).await?;
        }
        Ok(())
    }

    /// Up to `limit` ids of a list with this time or an earlier one, after the first `skip`.
    async fn until(&self, name: &[u8], before: Timestamp, skip: usize, limit: usize) -> StoreResult<Vec<EventId>> {
        let mut questions = Pipeline::new();
        questions.cmd("ZRANGE").arg(name).arg("-inf").arg(before.0).arg("BYSCORE");
        questions.arg("LIMIT").arg(skip).arg(limit);
        self.ids(questions).await
    }

    pub(super) async fn forgettable_ids(
        &self,
        source: &str,
        before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<EventId>> {
        let (name, page) = (self.names.of(RedisKeyKind::Keep, source.as_bytes()), limit.max(PAGE));
        let (mut all, mut skip) = (Vec::new(), 0);
        while all.len() < limit {
            let ids = self.until(&name, before, skip, page).await?;
            skip += ids.len();
            let last = ids.len() < page;
            all.extend(self.without_order(ids).await?.into_iter().take(limit - all.len()));
            if last {
                break;
            }
        }
        Ok(all)
    }

    /// Those of these events that do not carry their register's order.
    async fn without_order(&self, ids: Vec<EventId>) -> StoreResult<Vec<EventId>> {
        let events = self.events(&ids).await?;
        let ordered = events.iter().filter_map(|event| Some((event.id, event.change.filter(|of| of.order.is_some())?)));
        let ordered: Vec<_> = ordered.collect();
        let mut carrying = HashSet::new();
        if !ordered.is_empty() {
            let cells = ordered.iter().map(|(_, change)| RecordId::Register(change.subject)).collect();
            let registers = self.read_cells(cells).await?.cells;
            for ((id, change), (_, register)) in ordered.into_iter().zip(registers) {
                if matches!(register, Record::Register(register, _) if register.order == change.order) {
                    carrying.insert(id);
                }
            }
        }
        Ok(events.into_iter().map(|event| event.id).filter(|id| !carrying.contains(id)).collect())
    }

    pub(super) async fn old_bodies(&self, source: &str, before: Timestamp, limit: usize) -> StoreResult<Vec<EventId>> {
        self.until(&self.names.of(RedisKeyKind::Bodies, source.as_bytes()), before, 0, limit).await
    }

    pub(super) async fn payload_of(&self, id: EventId) -> StoreResult<StoredValue<Payload>> {
        for _ in 0..PAYLOAD_TRIES {
            let mut questions = Pipeline::new();
            let kinds = [RedisKeyKind::Event, RedisKeyKind::Payload, RedisKeyKind::Passed];
            questions.cmd("MGET").arg(&kinds.map(|kind| self.names.event(kind, id)));
            let (answers, _) = self.ask(questions).await?;
            let [row, payload, passed] = answers.first().map_or(&[][..], list) else {
                return Ok(StoredValue::Forgotten);
            };
            let event = bytes(row).map(|row| codec::read_row(id, row).0.event());
            let needed = bytes(payload).and_then(codec::dictionary_of);
            let source = event.as_ref().map_or("", |event| &event.source);
            let dictionary = match needed {
                Some(needed) => self.dictionary_for_reading(needed, source).await?,
                None => None,
            };
            // Otherwise it may have been packed without its dictionary since.
            if needed.is_none() || dictionary.is_some() {
                let digest = event.map(|event| event.body_digest);
                return Ok(payload_as_kept(digest, bytes(payload), bytes(passed), dictionary.as_ref()));
            }
        }
        Ok(StoredValue::Damaged)
    }

    /// The last-seen time.
    pub(super) async fn last_seen(&self) -> StoreResult<Option<Timestamp>> {
        let mut questions = Pipeline::new();
        questions.cmd("GET").arg(self.names.last_seen());
        let (answers, _) = self.ask(questions).await?;
        Ok(answers.first().and_then(number).map(Timestamp))
    }

    pub(super) async fn receipt_of(&self, id: EventId) -> StoreResult<Option<Receipt>> {
        let mut questions = Pipeline::new();
        questions.cmd("GET").arg(self.names.event(RedisKeyKind::Receipt, id));
        let (answers, _) = self.ask(questions).await?;
        Ok(answers.first().and_then(bytes).and_then(codec::read_receipt))
    }

    pub(super) async fn due_at(&self, look: DueQuery, limit: usize) -> StoreResult<DueEvents> {
        let lists = if let DueQuery::Leases = look {
            vec![self.names.leases()]
        } else {
            let mut questions = Pipeline::new();
            questions.cmd("SMEMBERS").arg(self.names.routes());
            let (answers, _) = self.ask(questions).await?;
            let queues = answers.first().map_or(&[][..], list).iter().filter_map(bytes);
            let wanted = queues.filter(|queue| match (&look, key_names::parse_queue(queue)) {
                (DueQuery::Route(source, route), Some((_, s, r))) => **source == *s && **route == *r,
                (DueQuery::Receiver(source, route, parts), Some((part, s, r))) => {
                    **source == *s && **route == *r && parts.contains(&part)
                }
                (DueQuery::Orphans(known), Some((_, s, r))) => !known.iter().any(|(a, b)| **a == *s && **b == *r),
                (DueQuery::Orphans(_), None) => true,
                (DueQuery::Leases | DueQuery::Route(..) | DueQuery::Receiver(..), _) => false,
            });
            let wanted: Vec<Vec<u8>> = wanted.map(<[u8]>::to_vec).collect();
            if let DueQuery::Orphans(_) = look {
                let empty = self.empty(&wanted, |queue| vec![self.names.of(RedisKeyKind::Due, queue)]).await?;
                self.drop_names(empty.iter().map(|n| &wanted[*n]), |words, queue| words.drop_queue(queue)).await?;
            }
            wanted.iter().map(|queue| self.names.of(RedisKeyKind::Due, queue)).collect()
        };
        let mut due = DueEvents::default();
        for name in lists {
            self.gather(&name, &look, limit, &mut due).await?;
        }
        due.events.sort_by_key(|event| (event.state.wake_at(), event.id));
        if let Some(left_over) = due.events.get(limit) {
            due.next = [due.next, left_over.state.wake_at()].into_iter().flatten().min();
            due.events.truncate(limit);
        }
        Ok(due)
    }

    /// Takes the due events from one list, and the time of the first that is not due.
    async fn gather(&self, name: &[u8], look: &DueQuery, limit: usize, due: &mut DueEvents) -> StoreResult<()> {
        let mut questions = Pipeline::new();
        questions.cmd("ZRANGE").arg(name).arg("-inf").arg("+inf").arg("BYSCORE");
        questions.arg("LIMIT").arg(0).arg(limit.min(LOOK_MAX) + 1).arg("WITHSCORES");
        let (answers, marks) = self.ask(questions).await?;
        let entries = answers.first().map(scored).unwrap_or_default();
        let mut ids = Vec::new();
        for (id, at) in entries {
            let at = if let DueQuery::Leases = look { self.clock.lease_end(Timestamp(at)) } else { Timestamp(at) };
            if at > marks.now || ids.len() == limit.min(LOOK_MAX) {
                due.next = Some(due.next.map_or(at, |next| next.min(at)));
                continue;
            }
            ids.push(id);
        }
        let mut strays = Vec::new();
        for (id, row) in self.rows(&ids).await? {
            match row {
                Some((row::DecodedRow::Whole(EventRow { event, .. }), _)) if look.finds(&event) => {
                    due.events.push(event);
                }
                Some((row::DecodedRow::Damaged(row, _), _)) => due.events.push(row.event), // dead, to be ended
                // It has moved on since the list was read; or it does not belong there, and was left by a damaged row.
                Some((_, version)) => strays.push((id, ExpectedVersion::Version(version))),
                None => strays.push((id, ExpectedVersion::Absent)),
            }
        }
        if !strays.is_empty() && self.may_write() {
            let mut words = ScriptArgs::new(&self.names);
            for (id, seen) in strays {
                words.remove_from_list(name, id, seen);
            }
            self.send(words).await?;
        }
        Ok(())
    }
}

/// Headers and body, with the transient headers while they exist; the body unpacked with its dictionary, if it needs one.
pub(super) fn payload_as_kept(
    digest: Option<Digest>,
    payload: Option<&[u8]>,
    passed: Option<&[u8]>,
    dictionary: Option<&BodyDictionary>,
) -> StoredValue<Payload> {
    let Some(payload) = payload else { return StoredValue::Forgotten };
    match (codec::read_payload(payload, digest, dictionary), passed.map(codec::read_headers)) {
        (StoredValue::Whole(payload), Some(Some(headers))) => StoredValue::Whole(Payload { headers, ..payload }),
        (StoredValue::Whole(_), Some(None)) => StoredValue::Damaged,
        (stored, _) => stored,
    }
}

pub(super) fn key(bytes: &[u8]) -> Option<Key> {
    bytes.try_into().ok().map(Key)
}

/// The content of a record.
fn found(cell: &RecordId, value: Option<&[u8]>, queues: &[(Key, Vec<(EventId, i64)>)]) -> StoreResult<Record> {
    let Some(value) = value else { return Ok(Record::Nothing) };
    match cell {
        RecordId::Key(_) => codec::read_held(value).map(Record::Key).ok_or_else(|| overwritten("key")),
        RecordId::Register(_) => {
            let register = codec::read_register(value).ok_or_else(|| overwritten("register"))?;
            Ok(Record::Register(register.0, register.1))
        }
        RecordId::Slot(group) => {
            let (holder, version) = codec::read_slot(value).ok_or_else(|| overwritten("slot"))?;
            let queue = queues.iter().find(|(of, _)| of == group).map_or(&[][..], |(_, queue)| queue);
            let turn = |at: i64| QueueTurn(u64::try_from(at).unwrap_or_default());
            let parked = queue.iter().take(PARKED_READ).map(|(id, at)| (turn(*at), *id)).collect();
            Ok(Record::Slot(GroupSlot { holder, parked, more: queue.len() > PARKED_READ }, version))
        }
        RecordId::Event(id) => {
            let (row::DecodedRow::Whole(row) | row::DecodedRow::Damaged(row, _), version) = codec::read_row(*id, value);
            Ok(Record::Event(Box::new(row), version))
        }
        RecordId::Imported(_) => Ok(Record::Nothing),
    }
}

/// Names and values of a hash.
pub(super) fn pairs(value: &Value) -> Vec<(&[u8], &[u8])> {
    match value {
        Value::Map(pairs) => pairs.iter().filter_map(|(name, value)| Some((bytes(name)?, bytes(value)?))).collect(),
        other => list(other).chunks_exact(2).filter_map(|pair| Some((bytes(&pair[0])?, bytes(&pair[1])?))).collect(),
    }
}

impl RedisInner {
    /// Adds a message to quarantine, and evicts the oldest.
    pub(super) async fn lay(&self, one: &QuarantinedMessage) -> Result<(), StoreError> {
        let mut words = ScriptArgs::new(&self.names);
        words.quarantine(one);
        self.send(words).await.map(drop)
    }

    /// The newest quarantined messages, newest first.
    pub(super) async fn laid(&self, limit: usize) -> Result<Vec<QuarantinedMessage>, StoreError> {
        let first = isize::try_from(limit).map_or(isize::MIN, |limit| -limit);
        if first == 0 {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        questions.cmd("LRANGE").arg(self.names.quarantine()).arg(first).arg(-1);
        let (answers, _) = self.ask(questions).await?;
        let names: Vec<_> = answers.first().map_or(&[][..], read::list).iter().rev().filter_map(read::bytes).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        questions.cmd("HMGET").arg(self.names.quarantined()).arg(names);
        let (answers, _) = self.ask(questions).await?;
        let found = answers.first().map_or(&[][..], read::list).iter().filter_map(read::bytes);
        Ok(found.filter_map(codec::read_quarantined).collect())
    }
}

impl RedisInner {
    pub(super) async fn retention(&self) -> StoreResult<Vec<SourceRetention>> {
        let mut questions = Pipeline::new();
        questions.cmd("HGETALL").arg(self.names.retention());
        let (answers, _) = self.ask(questions).await?;
        let pairs = answers.first().map(pairs).unwrap_or_default().into_iter();
        let mut rows: Vec<_> = pairs.filter_map(|(source, row)| codec::read_retention(source, row)).collect();
        rows.sort_by(|one, other| one.source.cmp(&other.source));
        Ok(rows)
    }

    pub(super) async fn retain(&self, rows: &[SourceRetention]) -> StoreResult<()> {
        let mut words = ScriptArgs::new(&self.names);
        words.retention(rows);
        self.send(words).await.map(drop)
    }

    /// Counts by the lists: events waiting for their time, and ended ones that may be forgotten some day, or have their
    /// body. What is on none of them, such as the last event of a subject without its body, is not counted: the counts
    /// are lower bounds.
    pub(super) async fn other_sources(&self, known: &BTreeSet<Arc<str>>) -> StoreResult<Vec<SourceCount>> {
        let mut questions = Pipeline::new();
        questions.cmd("SMEMBERS").arg(self.names.sources());
        questions.cmd("SMEMBERS").arg(self.names.routes());
        let (answers, _) = self.ask(questions).await?;
        let [sources, queues] = [0, 1].map(|place| answers.get(place).map_or(&[][..], list).iter().filter_map(bytes));
        let mut waiting = BTreeMap::<String, Vec<Vec<u8>>>::new();
        for name in sources.filter_map(|name| std::str::from_utf8(name).ok()).filter(|name| !known.contains(*name)) {
            waiting.entry(name.to_owned()).or_default();
        }
        for queue in queues {
            let Some((_, source, _)) = key_names::parse_queue(queue).filter(|(_, source, _)| !known.contains(*source))
            else {
                continue;
            };
            waiting.entry(source.to_owned()).or_default().push(self.names.of(RedisKeyKind::Due, queue));
        }
        let mut questions = Pipeline::new();
        for (name, queues) in waiting.iter().take(limits::OTHER_SOURCES_MAX) {
            let over = [RedisKeyKind::Keep, RedisKeyKind::Bodies].map(|kind| self.names.of(kind, name.as_bytes()));
            for list in over.iter().chain(queues) {
                questions.cmd("ZCARD").arg(list);
            }
        }
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let (answers, _) = self.ask(questions).await?;
        let mut answers = answers.iter().map(|count| number(count).map_or(0, i64::unsigned_abs));
        let mut next = || answers.next().unwrap_or(0);
        let (mut counts, mut gone) = (Vec::new(), Vec::new());
        for (name, queues) in waiting.iter().take(limits::OTHER_SOURCES_MAX) {
            let over = next().max(next());
            let events = over + queues.iter().map(|_| next()).sum::<u64>();
            if events > 0 {
                counts.push(SourceCount { source: name.as_str().into(), events, capped: true });
            }
            if over == 0 {
                gone.push(name.clone());
            }
        }
        self.drop_names(gone.iter(), |words, name| words.drop_source(name)).await?;
        Ok(counts)
    }
}
