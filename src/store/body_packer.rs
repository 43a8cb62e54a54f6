//! What a process knows of the dictionaries of each source, and the trials that choose them. Bounded: of the sources
//! beyond a number, those not heard of for the longest time are forgotten, and learned again from the store.

use super::compression::{BodyDictionary, CompressedBody, DictionaryId};
use crate::decide::body_dictionary::{BODY_BYTES, DictionaryTrials, PackedSizes, TrialResult, TrialStep};
use crate::decide::event::Event;
use crate::decide::id::{Digest, EventId};
use crate::decide::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of sources that are remembered: at most 8 MiB of dictionaries and candidates.
const SOURCES_MAX: usize = 256;

/// Packs bodies with the dictionaries of their sources.
#[derive(Debug, Default)]
pub(in crate::store) struct BodyPacker {
    sources: HashMap<Arc<str>, SourceDictionary>,
    /// Counts bodies, so that the source that was not used for the longest time is known.
    clock: u64,
}

#[derive(Debug)]
struct SourceDictionary {
    current: Option<BodyDictionary>,
    candidate: Option<DictionaryCandidate>,
    trials: DictionaryTrials,
    used: u64,
}

/// A body that may become its source's dictionary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::store) struct DictionaryCandidate {
    pub(in crate::store) dictionary: BodyDictionary,
    pub(in crate::store) source: Arc<str>,
    /// The event whose body it is.
    pub(in crate::store) event: EventId,
    /// The digest of that body: the event may get another one.
    pub(in crate::store) body_digest: Digest,
    /// When it arrived.
    pub(in crate::store) arrived: Timestamp,
}

/// What a trial that ended asks of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::store) enum DictionaryChange {
    /// To write this dictionary, retire the source's others, and say so with [`BodyPacker::learn`].
    Adopt(Box<DictionaryCandidate>),
    /// To retire this one.
    Retire(DictionaryId),
}

impl BodyPacker {
    /// Whether a body of this source and length is packed with a dictionary, of which nothing is known yet.
    pub(in crate::store) fn must_learn(&self, source: &str, length: usize) -> bool {
        BODY_BYTES.contains(&length) && !self.sources.contains_key(source)
    }

    /// Takes this dictionary for the one of the source.
    pub(in crate::store) fn learn(&mut self, source: &Arc<str>, current: Option<BodyDictionary>) {
        if let Some(known) = self.sources.get_mut(source) {
            (known.current, known.candidate) = (current, None);
            return;
        }
        if self.sources.len() >= SOURCES_MAX
            && let Some(unused) = self.sources.iter().min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone())
        {
            self.sources.remove(&unused);
        }
        let trials = if current.is_some() {
            DictionaryTrials::with_dictionary()
        } else {
            DictionaryTrials::without_dictionary()
        };
        let known = SourceDictionary { current, candidate: None, trials, used: self.clock };
        self.sources.insert(source.clone(), known);
    }

    /// Packs the body of this event, and says what is to be done about the dictionary before the next one.
    pub(in crate::store) fn pack<'b>(
        &mut self,
        event: &Event,
        body: &'b [u8],
    ) -> (CompressedBody<'b>, Option<DictionaryChange>) {
        self.clock += 1;
        let known = self.sources.get_mut(&event.source).filter(|_| BODY_BYTES.contains(&body.len()));
        let Some(known) = known else { return (CompressedBody::of(body), None) };
        known.used = self.clock;
        let packed = match &known.current {
            Some(current) => CompressedBody::with(body, current),
            None => CompressedBody::of(body),
        };
        // A notification is no delivery of the source, and goes with another event.
        if event.origin.is_some() {
            return (packed, None);
        }
        let change = known.try_candidate(event, body, packed.bytes().len());
        (packed, change)
    }

    /// Forgets the candidates that are bodies of these events.
    pub(in crate::store) fn drop_candidates(&mut self, events: &[EventId]) {
        for known in self.sources.values_mut() {
            if known.candidate.as_ref().is_some_and(|candidate| events.contains(&candidate.event)) {
                known.candidate = None;
                known.trials.give_up();
            }
        }
    }

    /// Forgets what is known of the source that uses this dictionary.
    pub(in crate::store) fn forget(&mut self, dictionary: DictionaryId) {
        self.sources.retain(|_, known| known.current.as_ref().is_none_or(|current| current.id != dictionary));
    }

    /// The dictionary that bodies of this source are packed with.
    #[cfg(feature = "shared-store")]
    pub(in crate::store) fn current(&self, source: &str) -> Option<DictionaryId> {
        self.sources.get(source)?.current.as_ref().map(|current| current.id)
    }

    /// Forgets what is known of this source.
    #[cfg(feature = "shared-store")]
    pub(in crate::store) fn forget_source(&mut self, source: &str) {
        self.sources.remove(source);
    }

    /// Packs without dictionaries until others are chosen.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn use_none(&mut self) {
        for known in self.sources.values_mut() {
            (known.current, known.candidate) = (None, None);
            known.trials = DictionaryTrials::without_dictionary();
        }
    }

    /// Forgets everything, because a transaction that may have changed it was rolled back.
    pub(in crate::store) fn clear(&mut self) {
        self.sources.clear();
    }
}

impl SourceDictionary {
    /// Takes part in a trial with this body, which takes `current` bytes as it is packed now.
    fn try_candidate(&mut self, event: &Event, body: &[u8], current: usize) -> Option<DictionaryChange> {
        match self.trials.next_step() {
            TrialStep::Rest => None,
            TrialStep::Begin => {
                let dictionary = BodyDictionary::of(&event.source, body);
                let (source, body_digest) = (event.source.clone(), event.body_digest);
                let (id, arrived) = (event.id, event.received_at);
                let candidate = DictionaryCandidate { dictionary, source, event: id, body_digest, arrived };
                self.candidate = Some(candidate);
                None
            }
            TrialStep::Measure => {
                let Some(candidate) = &self.candidate else {
                    self.trials.give_up();
                    return None;
                };
                // A transaction that is run again packs its bodies again.
                if candidate.event == event.id {
                    return None;
                }
                let plain = match &self.current {
                    Some(_) => CompressedBody::of(body).bytes().len(),
                    None => current,
                };
                let candidate = CompressedBody::with(body, &candidate.dictionary).bytes().len();
                match self.trials.measure(PackedSizes { plain, current, candidate }) {
                    TrialResult::Unfinished => None,
                    TrialResult::Replace => self.candidate.take().map(Box::new).map(DictionaryChange::Adopt),
                    TrialResult::Stay => {
                        self.candidate = None;
                        None
                    }
                    TrialResult::Stop => {
                        self.candidate = None;
                        self.current.take().map(|current| DictionaryChange::Retire(current.id))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::making;

    /// A body of 4 KiB whose text no other one shares, but for bodies of the same kind.
    fn body(kind: u32, n: u32) -> Vec<u8> {
        let text = |i: u32| format!("{:08x}", i.wrapping_mul(2_654_435_761).wrapping_add(kind * 77_777));
        let mut body = (0..500).map(text).collect::<String>();
        body.replace_range(..8, &format!("{n:08}"));
        body.into_bytes()
    }

    fn event(source: &str, body: &[u8]) -> Event {
        making().source(source).carrying(body.to_vec()).made(Timestamp(5)).event
    }

    fn pack(packer: &mut BodyPacker, source: &str, body: &[u8]) -> (Option<DictionaryId>, Option<DictionaryChange>) {
        let event = event(source, body);
        if packer.must_learn(source, body.len()) {
            packer.learn(&event.source, None);
        }
        let (stored, change) = packer.pack(&event, body);
        (stored.dictionary(), change)
    }

    /// Packs bodies of this kind until something is asked for.
    fn until_asked(packer: &mut BodyPacker, kind: u32) -> (u32, DictionaryChange) {
        (0..100_000).find_map(|n| Some(n).zip(pack(packer, "source", &body(kind, n)).1)).expect("a change")
    }

    #[test]
    fn a_body_becomes_the_dictionary_of_its_source_alone_and_a_better_one_replaces_it() {
        let mut packer = BodyPacker::default();
        let (n, asked) = until_asked(&mut packer, 1);
        let DictionaryChange::Adopt(first) = asked else { panic!("{asked:?}") };
        assert_eq!((n, &first.dictionary), (8, &BodyDictionary::of("source", &body(1, 0))));
        assert_eq!(first.body_digest, Digest::of(&body(1, 0)));
        assert_eq!(pack(&mut packer, "source", &body(1, 9)).0, None, "it is not stored yet");
        packer.learn(&first.source, Some(first.dictionary.clone()));
        assert_eq!(pack(&mut packer, "source", &body(1, 9)).0, Some(first.dictionary.id));
        assert_eq!(pack(&mut packer, "another", &body(1, 9)).0, None);
        assert_eq!(pack(&mut packer, "source", b"short").0, None);
        let (_, asked) = until_asked(&mut packer, 2);
        let DictionaryChange::Adopt(second) = asked else { panic!("{asked:?}") };
        assert_ne!(second.dictionary.id, first.dictionary.id);
    }

    #[test]
    fn a_dictionary_that_saves_nothing_any_more_is_retired() {
        let mut packer = BodyPacker::default();
        let dictionary = BodyDictionary::of("source", &body(1, 0));
        packer.learn(&"source".into(), Some(dictionary.clone()));
        let asked = (0..10_000).find_map(|n| pack(&mut packer, "source", &body(n + 2, n)).1);
        assert_eq!(asked, Some(DictionaryChange::Retire(dictionary.id)));
        assert_eq!(pack(&mut packer, "source", &body(1, 1)).0, None);
    }

    #[test]
    fn the_body_of_a_forgotten_event_does_not_become_a_dictionary() {
        let mut packer = BodyPacker::default();
        let first = event("source", &body(1, 0));
        packer.learn(&first.source, None);
        packer.pack(&first, &body(1, 0));
        packer.drop_candidates(&[first.id]);
        let (n, asked) = until_asked(&mut packer, 1);
        let DictionaryChange::Adopt(candidate) = asked else { panic!("{asked:?}") };
        assert!(n > 8 && candidate.event != first.id);
    }

    #[test]
    fn the_sources_that_are_remembered_are_limited_to_those_used_last() {
        let mut packer = BodyPacker::default();
        for n in 0..=SOURCES_MAX {
            pack(&mut packer, &format!("source {n}"), &body(1, 0));
            pack(&mut packer, "source 0", &body(1, 0));
        }
        assert_eq!(packer.sources.len(), SOURCES_MAX);
        assert!(packer.must_learn("source 1", 4_000) && !packer.must_learn("source 0", 4_000));
        assert!(!packer.must_learn("source 1", 10));
    }
}
