//! The dictionaries of bodies in Redis, which all nodes share.
//!
//! A write with a body that is packed with a dictionary checks in the same script call that the dictionary is in use;
//! otherwise nothing is written, what this node knew is forgotten, and the body is packed again. So once a dictionary is
//! retired, no more bodies come to need it: those that do are packed without one, a few in each call, and it is removed.
//!
//! ```text
//! u SOURCE ─▶ NAME        what the source uses
//! d NAME, c NAME          its bytes, twice, each after its digest
//! l NAME                  in use or retired, a random version, then the ids of all events packed with it: 16 bytes each
//! :dictionaries           NAME ─▶ whose body it was        :dictionary_bodies   NAME ─▶ how many bodies need it
//! ```
//!
//! An id stays on the list when its body goes: taking it off would cost more memory than it takes. The count says when the
//! last body is gone. The list ends with its dictionary, and is limited beside what it names.

use super::codec;
use super::codec::dictionary_name;
use super::key_names::RedisKeyKind;
use super::read::{bytes, list, number, pairs};
use super::script_args::{AdoptionSeen, DICTIONARY_IN_USE, ScriptArgs};
use super::{RedisInner, RedisStore, odd_answer};
use crate::decide::body_dictionary::{self, DICTIONARIES_OF_SOURCE_MAX, DictionaryAge};
use crate::decide::event::Event;
use crate::decide::id::EventId;
use crate::decide::ledger::RetentionPolicies;
use crate::decide::time::Timestamp;
use crate::store::body_packer::{BodyPacker, DictionaryCandidate, DictionaryChange};
use crate::store::compression::{BodyDictionary, CompressedBody, DictionaryId};
use crate::store::copy::CopyLockCheck;
use crate::store::optimistic::{ConditionalWrite, RecordWrite};
use crate::store::{StoreError, StoreResult};
use ::redis::{Pipeline, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of bodies that one call packs anew.
const PACKED_ANEW_MAX: usize = 64;
/// Maximum size of what one call packs anew, unless a single body is larger.
const PACKED_ANEW_BYTES_MAX: usize = 1 << 20;
/// Events of a dictionary's list that are read at once.
const LISTED_AT_ONCE: u64 = 500;
/// Maximum number of dictionaries that are remembered for reading: 4 MiB.
const READ_MAX: usize = 256;
/// How often a body that becomes a dictionary is looked at again because its event has moved on.
const ADOPT_TRIES: usize = 8;
/// How often dictionaries that must go are looked for again.
const REMOVE_TRIES: usize = 16;
/// Where the ids begin in a dictionary's list: after its state and its version.
const LIST_BEGIN: u64 = 9;
/// How many events a dictionary's list may name whose bodies are gone, besides as many as have theirs: 1 MiB.
const STALE_MAX: u64 = 1 << 16;
/// How many events it may name at all: 64 MiB. Redis has strings of up to 512 MiB.
const LISTED_MAX: u64 = 1 << 22;

/// What this node knows of the dictionaries.
#[derive(Debug, Default)]
pub(super) struct RedisDictionaries {
    packer: Mutex<BodyPacker>,
    /// The results of trials that are to be written.
    changes: Mutex<Vec<DictionaryChange>>,
    /// Those that bodies were read with. A name always means the same bytes.
    read: Mutex<HashMap<DictionaryId, BodyDictionary>>,
}

/// What is known of a dictionary besides its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DictionaryOrigin {
    pub(super) source: Arc<str>,
    /// The event whose body it was.
    pub(super) event: EventId,
    /// When that event arrived.
    pub(super) arrived: Timestamp,
}

/// A dictionary's name, and what is known of it, if that can be decoded.
type ListedDictionary = (DictionaryId, Option<DictionaryOrigin>);

/// A dictionary as it is stored.
struct StoredDictionary {
    id: DictionaryId,
    origin: Option<DictionaryOrigin>,
    /// The begin of its list: its state and its version. Empty if the list is missing.
    begin: Vec<u8>,
    /// How many events its list names.
    listed: u64,
    /// How many bodies need it; `None` if that is unknown.
    bodies: Option<u64>,
}

impl StoredDictionary {
    fn is_in_use(&self) -> bool {
        self.begin.starts_with(DICTIONARY_IN_USE)
    }

    fn source(&self) -> Option<&str> {
        self.origin.as_ref().map(|origin| &*origin.source)
    }

    /// Whether its list names too many events that have no body any more, or too many at all.
    fn is_too_long(&self) -> bool {
        let bodies = self.bodies.unwrap_or(0);
        self.listed > LISTED_MAX || self.listed > bodies.saturating_mul(2).saturating_add(STALE_MAX)
    }
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RedisDictionaries {
    fn packer(&self) -> MutexGuard<'_, BodyPacker> {
        held(&self.packer)
    }

    /// Packs the body of this event, with what is known of its source.
    pub(super) fn pack<'b>(&self, event: &Event, body: &'b [u8]) -> CompressedBody<'b> {
        let (packed, change) = self.packer().pack(event, body);
        held(&self.changes).extend(change);
        packed
    }

    fn known(&self, id: DictionaryId) -> Option<BodyDictionary> {
        held(&self.read).get(&id).cloned()
    }

    fn remember(&self, dictionary: &BodyDictionary) {
        let mut read = held(&self.read);
        if read.len() >= READ_MAX {
            read.clear();
        }
        read.insert(dictionary.id, dictionary.clone());
    }

    /// Forgets what is known of this dictionary.
    fn forget(&self, id: DictionaryId) {
        self.packer().forget(id);
        held(&self.read).remove(&id);
    }
}

fn name(value: &Value) -> Option<DictionaryId> {
    parse_name(bytes(value)?)
}

fn parse_name(bytes: &[u8]) -> Option<DictionaryId> {
    bytes.try_into().ok().map(|name| DictionaryId(i64::from_be_bytes(name)))
}

fn count(value: &Value) -> Option<u64> {
    number(value).and_then(|count| u64::try_from(count).ok())
}

impl RedisInner {
    /// Learns the dictionaries of the sources whose bodies these write.
    pub(super) async fn learn_dictionaries(&self, swaps: &[ConditionalWrite]) -> StoreResult<()> {
        let bodies = swaps.iter().flat_map(|swap| &swap.ops).filter_map(|op| match op {
            RecordWrite::Put { row, payload: Some(payload), .. } => Some((&row.event.source, payload.body.len())),
            RecordWrite::SetPayload(event, payload) => Some((&event.source, payload.body.len())),
            _ => None,
        });
        let unknown: BTreeSet<Arc<str>> = {
            let packer = self.dictionaries.packer();
            bodies
                .filter(|(source, length)| packer.must_learn(source, *length))
                .map(|(source, _)| source.clone())
                .collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let mut questions = Pipeline::new();
        let in_use = |source: &Arc<str>| self.names.of(RedisKeyKind::InUse, source.as_bytes());
        questions.cmd("MGET").arg(unknown.iter().map(in_use).collect::<Vec<_>>());
        let (answers, _) = self.ask(questions).await?;
        let named: Vec<_> = answers.first().map_or(&[][..], list).iter().map(name).collect();
        let wanted: Vec<_> = named.iter().zip(&unknown).filter_map(|(id, of)| Some(((*id)?, &**of))).collect();
        let mut found = self.whole_in_use(&wanted).await?.into_iter();
        for (source, id) in unknown.iter().zip(&named) {
            let current = id.and_then(|_| found.next().flatten());
            if let Some(dictionary) = &current {
                self.dictionaries.remember(dictionary);
            }
            self.dictionaries.packer().learn(source, current);
        }
        Ok(())
    }

    /// Those of these dictionaries of sources that are in use and whose copies are both as they were written. With others
    /// no more bodies are packed: packing without a dictionary is always possible.
    async fn whole_in_use(&self, wanted: &[(DictionaryId, &str)]) -> StoreResult<Vec<Option<BodyDictionary>>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        for (id, _) in wanted {
            let copies = [RedisKeyKind::Dictionary, RedisKeyKind::DictionaryCopy];
            questions.cmd("MGET").arg(&copies.map(|kind| self.names.dictionary(kind, *id)));
            questions.cmd("GETRANGE").arg(self.names.dictionary(RedisKeyKind::PackedWith, *id)).arg(0).arg(0);
        }
        let (answers, _) = self.ask(questions).await?;
        let whole = |((id, source), answers): (&(DictionaryId, &str), &[Value])| {
            let read = |copy: &Value| codec::read_dictionary(*id, source, bytes(copy)?);
            let [one, other] = list(&answers[0]) else { return None };
            let both = read(one).zip(read(other));
            both.filter(|_| bytes(&answers[1]) == Some(DICTIONARY_IN_USE)).map(|(dictionary, _)| dictionary)
        };
        Ok(wanted.iter().zip(answers.chunks_exact(2)).map(whole).collect())
    }

    /// Whether this dictionary of a source is in use and whole.
    async fn is_whole_in_use(&self, id: DictionaryId, source: &str) -> StoreResult<bool> {
        Ok(self.whole_in_use(&[(id, source)]).await?.iter().any(Option::is_some))
    }

    /// Forgets those dictionaries that are the reason why bodies of these sources were not written: they are no longer in
    /// use, or it cannot be told.
    pub(super) async fn forget_retired(&self, sources: BTreeSet<Arc<str>>) {
        for source in sources {
            let current = self.dictionaries.packer().current(&source);
            if let Some(id) = current
                && !matches!(self.is_whole_in_use(id, &source).await, Ok(true))
            {
                self.dictionaries.packer().forget_source(&source);
            }
        }
    }

    /// The dictionary with which a body of this source was packed; `None` if it is gone, or both copies are damaged.
    pub(super) async fn dictionary_for_reading(
        &self,
        id: DictionaryId,
        source: &str,
    ) -> StoreResult<Option<BodyDictionary>> {
        if let Some(known) = self.dictionaries.known(id) {
            return Ok(Some(known));
        }
        let found = self.copies(id, source).await?.into_iter().next();
        if let Some(dictionary) = &found {
            self.dictionaries.remember(dictionary);
        }
        Ok(found)
    }

    /// Those copies of a dictionary that are as they were written.
    async fn copies(&self, id: DictionaryId, source: &str) -> StoreResult<Vec<BodyDictionary>> {
        let mut questions = Pipeline::new();
        let copies = [RedisKeyKind::Dictionary, RedisKeyKind::DictionaryCopy];
        questions.cmd("MGET").arg(&copies.map(|kind| self.names.dictionary(kind, id)));
        let (answers, _) = self.ask(questions).await?;
        let read = |copy: &Value| codec::read_dictionary(id, source, bytes(copy)?);
        Ok(answers.first().map_or(&[][..], list).iter().filter_map(read).collect())
    }

    /// Writes the results of trials. A failure is not one of the batch whose bodies ended them: the next trial comes.
    pub(super) async fn settle_trials(&self, heeds: CopyLockCheck) {
        let changes = std::mem::take(&mut *held(&self.dictionaries.changes));
        for change in changes {
            let settled = match change {
                DictionaryChange::Adopt(candidate) => self.adopt(&candidate, heeds).await,
                DictionaryChange::Retire(id) => self.retire_known(id, heeds).await,
            };
            settled.ok();
        }
    }

    async fn adopt(&self, candidate: &DictionaryCandidate, heeds: CopyLockCheck) -> StoreResult<()> {
        let DictionaryCandidate { dictionary, source, event, body_digest, arrived } = candidate;
        let origin = DictionaryOrigin { source: source.clone(), event: *event, arrived: *arrived };
        for _ in 0..ADOPT_TRIES {
            let mut questions = Pipeline::new();
            questions.cmd("MGET").arg(&[
                self.names.of(RedisKeyKind::InUse, source.as_bytes()),
                self.names.dictionary(RedisKeyKind::Dictionary, dictionary.id),
                self.names.event(RedisKeyKind::Event, *event),
            ]);
            questions.cmd("GETRANGE").arg(self.names.event(RedisKeyKind::Payload, *event)).arg(0).arg(63);
            questions.cmd("HGETALL").arg(self.names.dictionaries());
            let (answers, _) = self.ask(questions).await?;
            let [strings, payload, all] = &answers[..] else { return Err(odd_answer()) };
            let [in_use, there, row] = list(strings) else { return Err(odd_answer()) };
            let in_use = name(in_use);
            let origins = pairs(all).into_iter().filter_map(|(_, origin)| codec::read_dictionary_origin(origin));
            if origins.filter(|origin| origin.source == *source).count() as u64 >= DICTIONARIES_OF_SOURCE_MAX {
                return Ok(());
            }
            // Another node may have chosen one meanwhile.
            let ours = self.dictionaries.packer().current(source);
            let is_news = match in_use.filter(|id| Some(*id) != ours) {
                Some(id) => self.is_whole_in_use(id, source).await?,
                None => false,
            };
            let row = bytes(row).map(|row| codec::read_row(*event, row));
            let row = row.filter(|(row, _)| row.row().event.body_digest == *body_digest);
            let payload = bytes(payload).filter(|payload| !payload.is_empty());
            // The event may have been forgotten, or have got another body; the same bytes may be on their way out.
            let (Some((_, event)), Some(payload), false, None) = (row, payload, is_news, bytes(there)) else {
                self.dictionaries.packer().forget_source(source);
                return Ok(());
            };
            let mut words = ScriptArgs::new(&self.names).heeding(heeds);
            words.adopt(candidate, &origin, AdoptionSeen { in_use, event, payload: payload.to_vec() });
            if self.send(words).await?.first() == Some(&true) {
                self.dictionaries.remember(dictionary);
                self.dictionaries.packer().learn(source, Some(dictionary.clone()));
                return Ok(());
            }
        }
        Ok(())
    }

    async fn retire_known(&self, id: DictionaryId, heeds: CopyLockCheck) -> StoreResult<()> {
        let mut questions = Pipeline::new();
        questions.cmd("HGET").arg(self.names.dictionaries()).arg(&dictionary_name(id));
        let (answers, _) = self.ask(questions).await?;
        let origin = answers.first().and_then(bytes).and_then(codec::read_dictionary_origin);
        self.retire(id, origin.as_ref().map(|origin| &*origin.source), heeds).await
    }

    async fn retire(&self, id: DictionaryId, source: Option<&str>, heeds: CopyLockCheck) -> StoreResult<()> {
        self.dictionaries.packer().forget(id);
        let mut words = ScriptArgs::new(&self.names).heeding(heeds);
        words.retire(id, source);
        self.send(words).await.map(drop)
    }

    /// The names of all dictionaries, and whose bodies they were, as far as that can be decoded.
    async fn listed_dictionaries(&self) -> StoreResult<Vec<ListedDictionary>> {
        let mut questions = Pipeline::new();
        questions.cmd("HGETALL").arg(self.names.dictionaries());
        let (answers, _) = self.ask(questions).await?;
        let all = answers.first().map(pairs).unwrap_or_default().into_iter();
        Ok(all.filter_map(|(id, origin)| Some((parse_name(id)?, codec::read_dictionary_origin(origin)))).collect())
    }

    /// These dictionaries as they are now. The state of each is read before its count: if it is retired, the count only
    /// falls.
    async fn stored_dictionaries(&self, listed: Vec<ListedDictionary>) -> StoreResult<Vec<StoredDictionary>> {
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        for (id, _) in &listed {
            let packed = self.names.dictionary(RedisKeyKind::PackedWith, *id);
            questions.cmd("GETRANGE").arg(&packed).arg(0).arg(LIST_BEGIN - 1);
            questions.cmd("STRLEN").arg(&packed);
            questions.cmd("HGET").arg(self.names.dictionary_bodies()).arg(&dictionary_name(*id));
        }
        let (answers, _) = self.ask(questions).await?;
        let one = |((id, origin), answers): (ListedDictionary, &[Value])| StoredDictionary {
            id,
            origin,
            begin: bytes(&answers[0]).unwrap_or_default().to_vec(),
            listed: count(&answers[1]).unwrap_or(0).saturating_sub(LIST_BEGIN) / 16,
            bodies: count(&answers[2]),
        };
        Ok(listed.into_iter().zip(answers.chunks_exact(3)).map(one).collect())
    }

    /// Retires the dictionaries that are old, removes those that no body needs, and those that must go.
    pub(super) async fn sweep_dictionaries(&self, keeps: &RetentionPolicies) -> StoreResult<()> {
        let by = self.clock.expiry().time;
        let mut all = self.stored_dictionaries(self.listed_dictionaries().await?).await?;
        // To remove those that no body needs takes no memory, and frees some for the others.
        all.sort_by_key(|dictionary| dictionary.bodies != Some(0));
        for mut dictionary in all {
            let age = match &dictionary.origin {
                Some(DictionaryOrigin { source, arrived, .. }) => match keeps.sources.get(source) {
                    Some(kept) => body_dictionary::age(*arrived, kept.body, by),
                    None => DictionaryAge::InUse,
                },
                None => DictionaryAge::Over, // it cannot be told when it would be
            };
            if dictionary.is_in_use() {
                if age == DictionaryAge::InUse && !dictionary.is_too_long() {
                    continue;
                }
                self.retire(dictionary.id, dictionary.source(), CopyLockCheck::Mark).await?;
                let StoredDictionary { id, origin, .. } = dictionary;
                let Some(retired) = self.stored_dictionaries(vec![(id, origin)]).await?.pop() else { continue };
                dictionary = retired;
            }
            if age == DictionaryAge::Over || dictionary.bodies == Some(0) {
                self.pack_anew(dictionary).await?;
            }
        }
        Ok(())
    }

    /// Removes the dictionaries that are bodies of these events.
    pub(super) async fn remove_dictionaries_of_events(&self, events: &[EventId]) -> StoreResult<()> {
        self.dictionaries.packer().drop_candidates(events);
        self.remove_dictionaries(|origin| events.contains(&origin.event)).await.map(drop)
    }

    /// Removes all dictionaries of this source.
    pub(super) async fn remove_dictionaries_of_source(&self, source: &str) -> StoreResult<()> {
        self.remove_dictionaries(|origin| *origin.source == *source).await.map(drop)
    }

    /// Removes these dictionaries, and those of which nothing is known; returns how many.
    async fn remove_dictionaries(&self, which: impl Fn(&DictionaryOrigin) -> bool) -> StoreResult<u64> {
        let mut removed = 0;
        // The same bytes may become a dictionary again meanwhile.
        for _ in 0..REMOVE_TRIES {
            let mut all = self.listed_dictionaries().await?;
            all.retain(|(_, origin)| origin.as_ref().is_none_or(&which));
            if all.is_empty() {
                return Ok(removed);
            }
            removed += all.len() as u64;
            for (id, origin) in &all {
                let source = origin.as_ref().map(|origin| &*origin.source);
                self.retire(*id, source, CopyLockCheck::Mark).await?;
            }
            for dictionary in self.stored_dictionaries(all).await? {
                self.pack_anew(dictionary).await?;
            }
        }
        Err(StoreError::unsure("bodies become dictionaries faster than those can be removed"))
    }

    /// Packs the bodies that need this retired dictionary without one, and removes it.
    async fn pack_anew(&self, dictionary: StoredDictionary) -> StoreResult<()> {
        if dictionary.is_in_use() {
            return Ok(()); // it was removed meanwhile, and the same bytes are in use anew
        }
        let pages = if dictionary.bodies == Some(0) { 0 } else { dictionary.listed.div_ceil(LISTED_AT_ONCE) };
        for page in 0..pages {
            let needing = self.needing(dictionary.id, LIST_BEGIN + page * LISTED_AT_ONCE * 16).await?;
            for some in needing.chunks(PACKED_ANEW_MAX) {
                self.pack_some_anew(&dictionary, some).await?;
            }
        }
        self.dictionaries.forget(dictionary.id);
        let mut words = ScriptArgs::new(&self.names).heeding(CopyLockCheck::Mark);
        words.remove_dictionary(dictionary.id, &dictionary.begin);
        self.send(words).await.map(drop)
    }

    /// Those events of a page of this dictionary's list whose bodies need it.
    async fn needing(&self, id: DictionaryId, from: u64) -> StoreResult<Vec<EventId>> {
        let mut questions = Pipeline::new();
        let packed = self.names.dictionary(RedisKeyKind::PackedWith, id);
        questions.cmd("GETRANGE").arg(packed).arg(from).arg(from + LISTED_AT_ONCE * 16 - 1);
        let (answers, _) = self.ask(questions).await?;
        let (events, _) = answers.first().and_then(bytes).unwrap_or_default().as_chunks::<16>();
        let events: BTreeSet<EventId> = events.iter().map(|event| EventId(*event)).collect();
        let mut questions = Pipeline::new();
        for event in &events {
            questions.cmd("GETRANGE").arg(self.names.event(RedisKeyKind::Payload, *event)).arg(0).arg(8);
        }
        let (answers, _) = self.ask(questions).await?;
        let needs = |head: &Value| bytes(head).and_then(codec::dictionary_of) == Some(id);
        let needing = events.into_iter().zip(&answers).filter(|(_, head)| needs(head));
        Ok(needing.map(|(event, _)| event).collect())
    }

    /// Packs the bodies of these events without this dictionary. One that another node has replaced or removed meanwhile
    /// needs it no more.
    async fn pack_some_anew(&self, dictionary: &StoredDictionary, some: &[EventId]) -> StoreResult<()> {
        let mut questions = Pipeline::new();
        for event in some {
            let kinds = [RedisKeyKind::Event, RedisKeyKind::Payload];
            questions.cmd("MGET").arg(&kinds.map(|kind| self.names.event(kind, *event)));
        }
        let (answers, _) = self.ask(questions).await?;
        let mut bodies = Vec::new();
        for (event, answer) in some.iter().zip(&answers) {
            let [row, Value::BulkString(payload)] = list(answer) else { continue };
            if codec::dictionary_of(payload) == Some(dictionary.id) {
                bodies.push((bytes(row).map(|row| codec::read_row(*event, row).0.event()), *event, payload));
            }
        }
        // All events that use it are of one source.
        let source = dictionary.source().or(bodies.iter().find_map(|(event, ..)| Some(&*event.as_ref()?.source)));
        let copies = self.copies(dictionary.id, source.unwrap_or_default()).await?;
        let mut words = ScriptArgs::new(&self.names).heeding(CopyLockCheck::Mark);
        let mut size = 0;
        for (row, event, payload) in &bodies {
            let anew = codec::packed_anew(payload, row.as_ref().map(|event| event.body_digest), &copies);
            size += payload.len() + anew.len();
            words.pack_anew(*event, (*payload).clone(), anew);
            if size >= PACKED_ANEW_BYTES_MAX {
                let full = std::mem::replace(&mut words, ScriptArgs::new(&self.names).heeding(CopyLockCheck::Mark));
                self.send(full).await?;
                size = 0;
            }
        }
        if size > 0 {
            self.send(words).await?;
        }
        Ok(())
    }
}

impl RedisStore {
    /// Packs all bodies without dictionaries, which earlier versions do not know; returns how many dictionaries there were.
    pub(crate) async fn pack_without_dictionaries(&self) -> StoreResult<u64> {
        self.core.remove_dictionaries(|_| true).await
    }
}
