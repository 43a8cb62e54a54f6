//! The arguments of the write script.

use super::codec;
use super::data_loss;
use super::data_loss::RedisWriterId;
use super::dictionaries::RedisDictionaries;
use super::ends;
use super::key_names;
use super::key_names::{RedisKeyKind, RedisKeyNames};
use crate::decide::claim::{Payload, is_transient_header};
use crate::decide::event::{DeathCause, Event, EventState};
use crate::decide::id::EventId;
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{self, EventRow};
use crate::decide::limits;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::Timestamp;
use crate::store::ChangeHint;
use crate::store::DuplicateNote;
use crate::store::SourceRetention;
use crate::store::copy::{CopyLockCheck, MARK, UnversionedCopyData};
use crate::store::inspect::QuarantinedMessage;
use crate::store::optimistic::{ConditionalWrite, ExpectedVersion, RecordId, RecordVersion, RecordWrite};
use dictionaries::shed_dictionary;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) use dictionaries::{AdoptionSeen, DICTIONARY_IN_USE};

/// The arguments of one call: the conditional writes to check and apply.
pub(super) struct ScriptArgs<'n> {
    names: &'n RedisKeyNames,
    args: Vec<Vec<u8>>,
    swaps: usize,
    /// The first turn that is free after this.
    turn: u64,
    /// It adds something new.
    adds: bool,
    /// The conditional writes with a body that is packed with a dictionary, and its source.
    packed: Vec<(usize, Arc<str>)>,
    heeds: CopyLockCheck,
}

/// One conditional write being built.
#[derive(Default)]
struct ConditionalWriteArgs {
    seen: Vec<[Vec<u8>; 2]>,
    hints: Vec<Vec<u8>>,
    commands: Vec<ScriptCommand>,
}

/// A command, and the name that must exist for it.
struct ScriptCommand {
    needs: Vec<u8>,
    words: Vec<Vec<u8>>,
}

/// A command of these words.
macro_rules! command {
    ($($word:expr),+) => { vec![$(IntoArg::word($word)),+] };
}

mod dictionaries;

/// Conversion to an argument; owned bytes are not copied.
trait IntoArg {
    fn word(self) -> Vec<u8>;
}

impl IntoArg for Vec<u8> {
    fn word(self) -> Vec<u8> {
        self
    }
}

impl IntoArg for &[u8] {
    fn word(self) -> Vec<u8> {
        self.to_vec()
    }
}

impl<const N: usize> IntoArg for [u8; N] {
    fn word(self) -> Vec<u8> {
        self.to_vec()
    }
}

impl IntoArg for &str {
    fn word(self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl IntoArg for &Vec<u8> {
    fn word(self) -> Vec<u8> {
        self.clone()
    }
}

impl ConditionalWriteArgs {
    fn call(&mut self, words: Vec<Vec<u8>>) {
        self.call_if(Vec::new(), words);
    }

    fn call_if(&mut self, needs: Vec<u8>, words: Vec<Vec<u8>>) {
        self.commands.push(ScriptCommand { needs, words });
    }
}

fn number(number: impl std::fmt::Display) -> Vec<u8> {
    number.to_string().into_bytes()
}

impl<'n> ScriptArgs<'n> {
    pub(super) fn new(names: &'n RedisKeyNames) -> Self {
        Self {
            names,
            args: Vec::new(),
            swaps: 0,
            turn: 0,
            adds: false,
            packed: Vec::new(),
            heeds: CopyLockCheck::Nothing,
        }
    }

    /// Whether it is applied while another store is being copied into this one.
    pub(super) fn heeding(mut self, heeds: CopyLockCheck) -> Self {
        self.heeds = heeds;
        self
    }

    /// Whether it adds something new, or a body. Anything else ends or frees something, or is small and limited in
    /// number.
    pub(super) fn adds(&self) -> bool {
        self.adds
    }

    /// The conditional writes, by their place, with a body that is packed with a dictionary, and its source. They are not
    /// applied if the dictionary is retired.
    pub(super) fn packed(&self) -> Vec<(usize, Arc<str>)> {
        self.packed.clone()
    }

    /// The script's KEYS.
    pub(super) fn keys(&self) -> [Vec<u8>; 6] {
        let names = self.names;
        let mark = names.key(RedisKeyKind::Register, &MARK);
        [names.epoch(), names.count(), names.turn(), names.hints(), names.writers(), mark]
    }

    /// The script's ARGV, for a store with this epoch and count, from this writer.
    pub(super) fn all(mut self, epoch: &[u8], count: u64, by: &RedisWriterId) -> Vec<Vec<u8>> {
        let mut all = vec![epoch.to_vec(), number(count), number(self.turn), number(self.swaps)];
        all.extend([by.name.to_vec(), number(by.wrote()), number(data_loss::WRITERS_MAX)]);
        all.push(number(u8::from(self.heeds == CopyLockCheck::Mark)));
        all.append(&mut self.args);
        all
    }

    fn add(&mut self, part: ConditionalWriteArgs) {
        self.swaps += 1;
        self.args.push(number(part.seen.len()));
        self.args.extend(part.seen.into_iter().flatten());
        self.args.push(number(part.hints.len()));
        self.args.extend(part.hints);
        self.args.push(number(part.commands.len()));
        for command in part.commands {
            self.args.push(command.needs);
            self.args.push(number(command.words.len()));
            self.args.extend(command.words);
        }
    }

    /// Adds a conditional write, whose bodies are packed with these dictionaries.
    pub(super) fn swap(&mut self, swap: ConditionalWrite, dictionaries: &RedisDictionaries) {
        let mut part = ConditionalWriteArgs::default();
        for (cell, seen) in &swap.seen {
            part.seen.extend(self.seen(cell, *seen));
        }
        for op in swap.ops {
            self.op(&mut part, op, dictionaries);
        }
        self.add(part);
    }

    fn seen(&self, cell: &RecordId, seen: ExpectedVersion) -> Option<[Vec<u8>; 2]> {
        let name = self.names.cell(cell)?;
        let begins = match seen {
            ExpectedVersion::Absent => Vec::new(),
            ExpectedVersion::Holder(event) => event.0.to_vec(),
            ExpectedVersion::Version(version) => version.0.to_be_bytes().to_vec(),
        };
        Some([name, begins])
    }

    fn op(&mut self, part: &mut ConditionalWriteArgs, op: RecordWrite, dictionaries: &RedisDictionaries) {
        let names = self.names;
        self.adds |= matches!(
            op,
            RecordWrite::Put { was: None, .. }
                | RecordWrite::Hold(..)
                | RecordWrite::SetImported(_)
                | RecordWrite::SetPayload(..)
                | RecordWrite::SetSightings(..)
        );
        match op {
            RecordWrite::Put { was, row, version, payload } => {
                self.turn = self.turn.max(row.event.turn.0 + 1);
                let id = row.event.id;
                part.call(command!("SET", names.event(RedisKeyKind::Event, id), codec::row(&row, version)));
                if let Some(payload) = payload {
                    self.payload(part, &row.event, payload, dictionaries);
                }
                places(names, part, was.as_deref(), Some(&row));
                part.hints.extend(ChangeHint::of(was.as_deref(), &row).map(|hint| hint.bytes()));
            }
            RecordWrite::Remove(id, row) => {
                let list = names.event(RedisKeyKind::KeysOf, id);
                part.call(command!("FREE", list, id.0, names.key_prefix()));
                shed_dictionary(names, part, id);
                part.call([vec![b"DEL".to_vec()], names.all_of(id)].concat());
                if let Some(row) = row {
                    part.call(command!("ZREM", names.of(RedisKeyKind::Bodies, row.event.source.as_bytes()), id.0));
                    places(names, part, Some(&row), None);
                }
            }
            RecordWrite::Hold(key, held) => {
                part.call(command!("SET", names.key(RedisKeyKind::Key, &key), codec::held(&held)));
                part.call(command!("APPEND", names.event(RedisKeyKind::KeysOf, held.event), key.0));
            }
            RecordWrite::SetImported(key) => part.call(command!("SADD", names.imported(), key.0)),
            RecordWrite::SetRegister(key, register, version) => {
                part.call(command!(
                    "SET",
                    names.key(RedisKeyKind::Register, &key),
                    codec::register(&register, version)
                ));
            }
            RecordWrite::RemoveRegister(key) => part.call(command!("DEL", names.key(RedisKeyKind::Register, &key))),
            RecordWrite::SetSlot(group, holder, version) => {
                part.call(command!("SET", names.key(RedisKeyKind::Slot, &group), codec::slot(holder, version)));
            }
            RecordWrite::FreeSlot(group) => part.call(command!("DEL", names.key(RedisKeyKind::Slot, &group))),
            RecordWrite::SetPayload(event, payload) => {
                self.payload(part, &event, payload, dictionaries);
            }
            RecordWrite::Shed(id) => part.call(command!("DEL", names.event(RedisKeyKind::Passed, id))),
            RecordWrite::SetReceipt(id, Some(receipt)) => {
                part.call(command!("SET", names.event(RedisKeyKind::Receipt, id), codec::receipt(&receipt)));
            }
            RecordWrite::SetReceipt(id, None) => part.call(command!("DEL", names.event(RedisKeyKind::Receipt, id))),
            RecordWrite::SetTried(id, tried) => {
                part.call(command!("RPUSH", names.event(RedisKeyKind::Attempts, id), codec::tried(&tried)));
                if !tried.output.is_empty() {
                    let (name, field) = (names.event(RedisKeyKind::Output, id), codec::output_name(&tried));
                    part.call(command!("HSET", name, field, tried.output));
                }
            }
            RecordWrite::SetSightings(id, count, seen) => {
                let name = names.event(RedisKeyKind::Sightings, id);
                part.call(command!("HSET", name.clone(), "count", &*count.to_string()));
                for (n, sighting) in seen.iter().enumerate() {
                    part.call(command!("HSET", name.clone(), &*n.to_string(), codec::sighting(sighting)));
                }
            }
            RecordWrite::RemoveBody(row) => {
                let Event { id, source, .. } = &row.event;
                let kinds = [RedisKeyKind::Payload, RedisKeyKind::Passed, RedisKeyKind::Receipt, RedisKeyKind::Output];
                let [payload, passed, receipt, output] = kinds.map(|kind| names.event(kind, *id));
                shed_dictionary(names, part, *id);
                part.call(command!("DEL", payload, passed, receipt, output));
                part.call(command!("ZREM", names.of(RedisKeyKind::Bodies, source.as_bytes()), id.0));
            }
        }
    }

    /// Writes a body with its permanent headers; if there are transient headers, all headers are stored beside it. A body
    /// that is packed with a dictionary is only written while that is in use.
    fn payload(
        &mut self,
        part: &mut ConditionalWriteArgs,
        event: &Event,
        mut payload: Payload,
        dictionaries: &RedisDictionaries,
    ) {
        let names = self.names;
        let passed = names.event(RedisKeyKind::Passed, event.id);
        if payload.headers.iter().any(|(name, _)| is_transient_header(name)) {
            part.call(command!("SET", passed, codec::headers(&payload.headers)));
            payload.drop_transient_headers();
        } else {
            part.call(command!("DEL", passed));
        }
        let packed = dictionaries.pack(event, &payload.body);
        shed_dictionary(names, part, event.id);
        let name = names.event(RedisKeyKind::Payload, event.id);
        part.call(command!("SET", name, codec::payload(&payload.headers, &packed)));
        if let Some(dictionary) = packed.dictionary() {
            part.pack_with(names, dictionary, event.id);
            self.packed.push((self.swaps, event.source.clone()));
        }
    }

    /// Adds sightings of duplicates. Their events may have been deleted meanwhile.
    pub(super) fn notes(&mut self, notes: &[DuplicateNote]) {
        let mut part = ConditionalWriteArgs::default();
        for DuplicateNote { event, sighting } in notes {
            let (name, most) = (self.names.event(RedisKeyKind::Sightings, *event), number(limits::SIGHTINGS_MAX));
            let words = command!("NOTE", name, most, codec::sighting(sighting));
            part.call_if(self.names.event(RedisKeyKind::Event, *event), words);
        }
        self.add(part);
    }

    /// Replaces all recipes.
    pub(super) fn recipes(&mut self, recipes: &[IdentityRecipe]) {
        let mut part = ConditionalWriteArgs::default();
        put_recipes(self.names, &mut part, recipes);
        self.add(part);
    }

    /// Adds what a copy writes besides versioned records, if the copy's mark still has this version.
    pub(super) fn beside(
        &mut self,
        UnversionedCopyData { recipes, retention, quarantined }: &UnversionedCopyData,
        mark: RecordVersion,
    ) {
        let mut part = ConditionalWriteArgs::default();
        part.seen.extend(self.seen(&RecordId::Register(MARK), ExpectedVersion::Version(mark)));
        if let Some(recipes) = recipes {
            put_recipes(self.names, &mut part, recipes);
        }
        if let Some(rows) = retention {
            part.call(command!("DEL", self.names.retention()));
            put_retention(self.names, &mut part, rows);
        }
        self.adds |= !quarantined.is_empty();
        for one in quarantined {
            put_quarantined(self.names, &mut part, one);
        }
        self.add(part);
    }

    /// Sets the last-seen time, if it is still `was`.
    pub(super) fn last_seen(&mut self, was: Option<Timestamp>, time: Timestamp) {
        let mut part = ConditionalWriteArgs::default();
        let name = self.names.last_seen();
        part.seen.push([name.clone(), was.map(|was| number(was.0)).unwrap_or_default()]);
        part.call(command!("SET", name, number(time.0)));
        self.add(part);
    }

    /// Sets the nodes' agreement on the store's clock, if it is still `was`. There is none before the first.
    pub(super) fn agree_on_clock(&mut self, was: AgreedClock, is: AgreedClock) {
        let mut part = ConditionalWriteArgs::default();
        let name = self.names.store_clock();
        let was = if was == AgreedClock::default() { Vec::new() } else { codec::agreed_clock(was) };
        part.seen.push([name.clone(), was]);
        part.call(command!("SET", name, codec::agreed_clock(is)));
        self.add(part);
    }

    /// Sets the retention of these sources.
    pub(super) fn retention(&mut self, rows: &[SourceRetention]) {
        let mut part = ConditionalWriteArgs::default();
        put_retention(self.names, &mut part, rows);
        self.add(part);
    }

    /// Adds a message to quarantine.
    pub(super) fn quarantine(&mut self, one: &QuarantinedMessage) {
        self.adds = true;
        let mut part = ConditionalWriteArgs::default();
        put_quarantined(self.names, &mut part, one);
        self.add(part);
    }

    /// Adds one of every command, so that a missing permission fails here and not half-way through a write.
    pub(super) fn probe(&mut self) {
        let mut part = ConditionalWriteArgs::default();
        let probe = self.names.probe();
        part.call(command!("DEL", &probe));
        part.call(command!("SET", &probe, "1"));
        part.call(command!("APPEND", &probe, "1"));
        for words in [
            command!("ZADD", &probe, "1", "1"),
            command!("SADD", &probe, "1"),
            command!("SREM", &probe, "1"),
            command!("RPUSH", &probe, "1"),
            command!("HSET", &probe, "1", "1"),
            command!("HDEL", &probe, "1"),
            command!("LPOP", &probe),
            command!("SETRANGE", &probe, "0", "1"),
        ] {
            part.call(command!("DEL", &probe));
            part.call(words);
        }
        part.call(command!("DEL", &probe));
        part.call(command!("ZADD", &probe, "1", "1"));
        part.call(command!("ZREM", &probe, "1"));
        self.add(part);
    }

    /// Removes the name of an empty queue.
    pub(super) fn drop_queue(&mut self, queue: &[u8]) {
        let mut part = ConditionalWriteArgs::default();
        part.call(command!("DROP", self.names.routes(), queue, self.names.of(RedisKeyKind::Due, queue)));
        self.add(part);
    }

    /// Removes the name of a source without events that could be deleted.
    pub(super) fn drop_source(&mut self, source: &str) {
        let mut part = ConditionalWriteArgs::default();
        let lists = [RedisKeyKind::Keep, RedisKeyKind::Bodies].map(|kind| self.names.of(kind, source.as_bytes()));
        let [keep, bodies] = lists;
        part.call(command!("DROP", self.names.sources(), source, keep, bodies));
        self.add(part);
    }

    /// Removes an event from a list it does not belong on, if it is still as expected.
    pub(super) fn remove_from_list(&mut self, list: &[u8], id: EventId, seen: ExpectedVersion) {
        let mut part = ConditionalWriteArgs::default();
        part.seen.extend(self.seen(&RecordId::Event(id), seen));
        part.call(command!("ZREM", list, id.0));
        self.add(part);
    }

    /// Releases an event that was reserved to be started: restores its own time on the list, if it is still as
    /// expected.
    pub(super) fn release_hold(&mut self, event: &Event, seen: ExpectedVersion) {
        let EventState::Waiting { due: Some(at) } = event.state else { return };
        let mut part = ConditionalWriteArgs::default();
        part.seen.extend(self.seen(&RecordId::Event(event.id), seen));
        let list = self.names.of(RedisKeyKind::Due, &key_names::queue(event));
        part.call(command!("ZADD", list, "XX", number(at.0), event.id.0));
        self.add(part);
    }
}

impl RedisKeyNames {
    /// The name of a record; an imported key has none of its own.
    pub(super) fn cell(&self, cell: &RecordId) -> Option<Vec<u8>> {
        match cell {
            RecordId::Key(key) => Some(self.key(RedisKeyKind::Key, key)),
            RecordId::Register(key) => Some(self.key(RedisKeyKind::Register, key)),
            RecordId::Slot(key) => Some(self.key(RedisKeyKind::Slot, key)),
            RecordId::Event(id) => Some(self.event(RedisKeyKind::Event, *id)),
            RecordId::Imported(_) => None,
        }
    }

    /// All keys of an event's related data, without its claimed keys.
    fn all_of(&self, id: EventId) -> Vec<Vec<u8>> {
        [
            RedisKeyKind::Event,
            RedisKeyKind::Payload,
            RedisKeyKind::Passed,
            RedisKeyKind::Receipt,
            RedisKeyKind::Attempts,
            RedisKeyKind::Output,
            RedisKeyKind::Sightings,
        ]
        .map(|kind| self.event(kind, id))
        .into()
    }
}

/// Replaces all recipes.
fn put_recipes(names: &RedisKeyNames, part: &mut ConditionalWriteArgs, recipes: &[IdentityRecipe]) {
    let scopes = names.scopes();
    part.call(command!("DEL", &scopes));
    for recipe in recipes {
        part.call(command!("HSET", &scopes, recipe.scope.as_str(), codec::recipe(recipe)));
    }
}

/// Sets the retention of these sources.
fn put_retention(names: &RedisKeyNames, part: &mut ConditionalWriteArgs, rows: &[SourceRetention]) {
    for row in rows {
        part.call(command!("HSET", names.retention(), &*row.source, codec::retention(row)));
    }
}

/// Adds a message to quarantine.
fn put_quarantined(names: &RedisKeyNames, part: &mut ConditionalWriteArgs, one: &QuarantinedMessage) {
    let (list, hash, most) = (names.quarantine(), names.quarantined(), number(limits::QUARANTINE_MAX));
    let name = key_names::message(&one.source, &one.message);
    part.call(command!("LAY", list, hash, name, codec::quarantined(one), most));
}

/// The sorted sets that an event is on: name, member and score.
fn lists(names: &RedisKeyNames, row: &EventRow) -> BTreeMap<[Vec<u8>; 2], i64> {
    let EventRow { event, keep_from } = row;
    let id = event.id.0.to_vec();
    let mut lists = BTreeMap::from([([names.all(), id.clone()], 0), ([names.ends(), ends::end(event.id)], 0)]);
    if let Some(delivery) = &event.delivery_id {
        lists.insert([names.deliveries(), [&key_names::delivery(delivery)[..], &id].concat()], 0);
    }
    if event.state.ended().is_none() {
        lists.insert([names.open(), id.clone()], 0);
    }
    match event.state {
        EventState::Waiting { due: Some(at) } => {
            lists.insert([names.of(RedisKeyKind::Due, &key_names::queue(event)), id.clone()], at.0);
        }
        EventState::Running { until, .. } => {
            lists.insert([names.leases(), id.clone()], until.0);
        }
        EventState::Dead { .. } => {
            lists.insert([names.dead(), id.clone()], 0);
        }
        EventState::Waiting { due: None } | EventState::Done { .. } => {}
    }
    if let Some((group, turn, _)) = ledger::parking(event) {
        lists.insert([names.key(RedisKeyKind::Parked, &group), id.clone()], i64::try_from(turn.0).unwrap_or(i64::MAX));
    }
    if let Some(from) = keep_from {
        lists.insert([names.of(RedisKeyKind::Keep, event.source.as_bytes()), id], from.0);
    }
    lists
}

/// Moves an event between lists.
fn places(names: &RedisKeyNames, part: &mut ConditionalWriteArgs, was: Option<&EventRow>, now: Option<&EventRow>) {
    let stood = was.map(|row| lists(names, row)).unwrap_or_default();
    let stands = now.map(|row| lists(names, row)).unwrap_or_default();
    for [list, entry] in stood.keys().filter(|place| !stands.contains_key(*place)) {
        part.call(command!("ZREM", list, entry));
    }
    for (place @ [list, entry], at) in &stands {
        if stood.get(place) != Some(at) {
            part.call(command!("ZADD", list, number(at), entry));
        }
    }
    let Some(EventRow { event, keep_from }) = now else { return };
    let was = was.map(|row| &row.event);
    // Whenever it joins a queue: the name is removed while the queue is empty.
    let in_line = |event: &Event| matches!(event.state, EventState::Waiting { due: Some(_) });
    if in_line(event) && !was.is_some_and(in_line) {
        part.call(command!("SADD", names.routes(), key_names::queue(event)));
    }
    let ended = event.state.ended();
    if ended != was.and_then(|was| was.state.ended()) {
        let bodies = names.of(RedisKeyKind::Bodies, event.source.as_bytes());
        match ended {
            Some(at) => {
                let body = names.event(RedisKeyKind::Payload, event.id);
                part.call_if(body, command!("ZADD", bodies, number(at.0), event.id.0));
            }
            None => part.call(command!("ZREM", bodies, event.id.0)),
        }
    }
    if keep_from.is_some() || ended.is_some() {
        part.call(command!("SADD", names.sources(), &*event.source));
    }
    if matches!(event.state, EventState::Dead { cause: DeathCause::Damaged, .. }) {
        // Its earlier lists are not known from its row.
        part.call(command!("ZREM", names.leases(), event.id.0));
        part.call(command!("ZREM", names.open(), event.id.0));
        part.call(command!("ZREM", names.of(RedisKeyKind::Due, &key_names::queue(event)), event.id.0));
        if let Some(group) = event.group {
            part.call(command!("ZREM", names.key(RedisKeyKind::Parked, &group), event.id.0));
        }
    }
}
