//! The arguments of writes of dictionaries, and of bodies that are packed with them.

use super::super::codec;
use super::super::codec::dictionary_name;
use super::super::dictionaries::DictionaryOrigin;
use super::super::key_names::{RedisKeyKind, RedisKeyNames};
use super::{ConditionalWriteArgs, IntoArg, ScriptArgs};
use crate::decide::id::EventId;
use crate::store::body_packer::DictionaryCandidate;
use crate::store::compression::DictionaryId;
use crate::store::optimistic::txn::new_version;
use crate::store::optimistic::{ExpectedVersion, RecordId, RecordVersion};

/// The first byte of a dictionary's list of events while bodies are packed with it.
pub(in crate::store::redis) const DICTIONARY_IN_USE: &[u8] = b"u";
/// The same once no more are.
pub(in crate::store::redis) const DICTIONARY_RETIRED: &[u8] = b"r";

/// What was read before a body became a dictionary.
pub(in crate::store::redis) struct AdoptionSeen {
    /// The name of the dictionary that its source uses.
    pub(in crate::store::redis) in_use: Option<DictionaryId>,
    /// The version of its event.
    pub(in crate::store::redis) event: RecordVersion,
    /// The first bytes of its payload.
    pub(in crate::store::redis) payload: Vec<u8>,
}

impl ConditionalWriteArgs {
    /// After a body is written that is packed with this dictionary, which must be in use.
    pub(super) fn pack_with(&mut self, names: &RedisKeyNames, dictionary: DictionaryId, event: EventId) {
        let list = names.dictionary(RedisKeyKind::PackedWith, dictionary);
        let (first, id) = (names.dictionary(RedisKeyKind::Dictionary, dictionary), dictionary_name(dictionary));
        self.seen.push([list.clone(), DICTIONARY_IN_USE.to_vec()]);
        self.seen.push([first, id.to_vec()]); // its digest, with which it begins, begins with its name
        self.call(command!("PACK", list, names.dictionary_bodies(), id, event.0));
    }
}

impl ScriptArgs<'_> {
    /// Makes this body the dictionary of its source, if everything is still as it was seen.
    pub(in crate::store::redis) fn adopt(
        &mut self,
        candidate: &DictionaryCandidate,
        origin: &DictionaryOrigin,
        seen: AdoptionSeen,
    ) {
        self.adds = true;
        let names = self.names;
        let id = candidate.dictionary.id;
        let [first, second, list] = [RedisKeyKind::Dictionary, RedisKeyKind::DictionaryCopy, RedisKeyKind::PackedWith]
            .map(|kind| names.dictionary(kind, id));
        let in_use = names.of(RedisKeyKind::InUse, origin.source.as_bytes());
        let body = names.event(RedisKeyKind::Payload, origin.event);
        let mut part = ConditionalWriteArgs::default();
        part.seen.push([in_use.clone(), seen.in_use.map(|id| dictionary_name(id).to_vec()).unwrap_or_default()]);
        // None of the three, also where one was lost: bodies may still need the others.
        part.seen.extend([&first, &second, &list].map(|name| [name.clone(), Vec::new()]));
        part.seen.push([body, seen.payload]);
        part.seen.extend(self.seen(&RecordId::Event(origin.event), ExpectedVersion::Version(seen.event)));
        if let Some(was) = seen.in_use {
            retire_dictionary(names, &mut part, was);
        }
        let bytes = codec::dictionary(&candidate.dictionary);
        part.call(command!("SET", list, [DICTIONARY_IN_USE, &new_version().0.to_be_bytes()].concat()));
        part.call(command!("SET", first, &bytes));
        part.call(command!("SET", second, bytes));
        part.call(command!("HSET", names.dictionaries(), dictionary_name(id), codec::dictionary_origin(origin)));
        part.call(command!("HSET", names.dictionary_bodies(), dictionary_name(id), "0"));
        part.call(command!("SET", in_use, dictionary_name(id)));
        self.add(part);
    }

    /// Retires a dictionary, of this source if that is known: no more bodies are packed with it.
    pub(in crate::store::redis) fn retire(&mut self, id: DictionaryId, source: Option<&str>) {
        let mut part = ConditionalWriteArgs::default();
        retire_dictionary(self.names, &mut part, id);
        self.add(part);
        if let Some(source) = source {
            let in_use = self.names.of(RedisKeyKind::InUse, source.as_bytes());
            let mut part = ConditionalWriteArgs::default();
            part.seen.push([in_use.clone(), dictionary_name(id).to_vec()]);
            part.call(command!("DEL", in_use));
            self.add(part);
        }
    }

    /// Replaces a payload by one that is packed without a dictionary, if it is still as it was.
    pub(in crate::store::redis) fn pack_anew(&mut self, event: EventId, was: Vec<u8>, is: Vec<u8>) {
        self.adds = true;
        let name = self.names.event(RedisKeyKind::Payload, event);
        let mut part = ConditionalWriteArgs::default();
        part.seen.push([name.clone(), was]);
        shed_dictionary(self.names, &mut part, event);
        part.call(command!("SET", name, is));
        self.add(part);
    }

    /// Removes a retired dictionary, if it is still the one whose list of events begins so: the same bytes may have become
    /// a dictionary again.
    pub(in crate::store::redis) fn remove_dictionary(&mut self, id: DictionaryId, begin: &[u8]) {
        let names = self.names;
        let [first, second, list] = [RedisKeyKind::Dictionary, RedisKeyKind::DictionaryCopy, RedisKeyKind::PackedWith]
            .map(|kind| names.dictionary(kind, id));
        let mut part = ConditionalWriteArgs::default();
        part.seen.push([list.clone(), begin.to_vec()]);
        part.call(command!("DEL", first, second, list));
        part.call(command!("HDEL", names.dictionaries(), dictionary_name(id)));
        part.call(command!("HDEL", names.dictionary_bodies(), dictionary_name(id)));
        self.add(part);
    }
}

/// Before the body of this event is removed or replaced: its dictionary is needed by one body less.
pub(super) fn shed_dictionary(names: &RedisKeyNames, part: &mut ConditionalWriteArgs, id: EventId) {
    part.call(command!("SHED", names.dictionary_bodies(), names.event(RedisKeyKind::Payload, id)));
}

/// Retires a dictionary, if it exists.
fn retire_dictionary(names: &RedisKeyNames, part: &mut ConditionalWriteArgs, id: DictionaryId) {
    let list = names.dictionary(RedisKeyKind::PackedWith, id);
    part.call_if(list.clone(), command!("SETRANGE", list, "0", DICTIONARY_RETIRED));
}
