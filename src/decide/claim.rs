//! The types that a claim takes and returns: what passes between `judge`, the store and the response.

use super::event::{DeathCause, Event, EventState};
use super::id::{DeliveryIdDigest, EventId, Key};
use super::source::{
    ApiStyle, InDoubtPolicy, RedeliveryPolicy, ResponseMode, Retention, Route, SameChange, Source, WhenBusy,
};
use super::time::Timestamp;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// A new event as one delivery makes it. It is written completely or not at all.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The hot row, at its first revision.
    pub event: Event,
    /// Its keys, in the order of `per`.
    pub keys: Vec<IdentityKey>,
    /// Keys that an earlier version, or an earlier config, claimed for the same delivery: looked up after `keys`, never
    /// claimed. A key with an `id_digest` matches only if it was claimed under that same delivery id.
    pub former_keys: Vec<IdentityKey>,
    /// Keys under which `import` may have written what was done before: looked up, never claimed.
    pub imported: Vec<ImportedKey>,
    /// Headers and body.
    pub payload: Payload,
    /// How long its source's events are remembered, as configured now.
    pub kept: Retention,
    /// What becomes of the waiting events of its subject, as configured now.
    pub when_busy: WhenBusy,
    /// What it counts as if it is its subject's current change once more, as configured now.
    pub same_change: SameChange,
}

/// The events of one delivery, each with its index, in chains: events that share a key, a register or a group are in one
/// chain, in their order. They must be claimed in that order; different chains have nothing to do with each other.
pub fn claim_chains(events: Vec<NewEvent>) -> Vec<Vec<(usize, NewEvent)>> {
    let mut chain_of: HashMap<Key, usize> = HashMap::new();
    let mut chains: Vec<Vec<(usize, NewEvent)>> = Vec::new();
    for (index, new) in events.into_iter().enumerate() {
        let keys = new.keys.iter().chain(&new.former_keys).map(|identity| identity.key);
        let keys: Vec<_> = keys.chain(new.event.change.map(|change| change.subject)).chain(new.event.group).collect();
        let mut joined: Vec<_> = keys.iter().filter_map(|key| chain_of.get(key).copied()).collect();
        joined.sort_unstable();
        joined.dedup();
        let chain = joined.first().copied().unwrap_or_else(|| {
            chains.push(Vec::new());
            chains.len() - 1
        });
        // An event that has something in common with several chains joins them.
        for other in joined.iter().skip(1) {
            let moved = std::mem::take(&mut chains[*other]);
            chains[chain].extend(moved);
            chain_of.values_mut().filter(|at| **at == *other).for_each(|at| *at = chain);
        }
        chains[chain].push((index, new));
        chain_of.extend(keys.into_iter().map(|key| (key, chain)));
    }
    chains.retain(|chain| !chain.is_empty());
    for chain in &mut chains {
        chain.sort_by_key(|(index, _)| *index);
    }
    chains
}

/// One identity's key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentityKey {
    /// Which identity.
    pub matched_by: MatchedBy,
    /// Its key.
    pub key: Key,
    /// The delivery id it came under, where that id has no key of its own and this key represents both.
    pub id_digest: Option<DeliveryIdDigest>,
}

impl IdentityKey {
    /// The key of one identity alone.
    pub fn new(same: MatchedBy, key: Key) -> Self {
        Self { matched_by: same, key, id_digest: None }
    }
}

/// A key under which something may have been imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportedKey {
    /// Which identity it represents.
    pub same: MatchedBy,
    /// The key.
    pub key: Key,
    /// When a hit makes the delivery a duplicate.
    pub counts: ImportedKeyValidity,
}

/// When an imported key counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportedKeyValidity {
    /// Always.
    Always,
    /// Only until its subject is changed here: from then on the register decides, and going back to what was imported
    /// is a change.
    WhileRegisterEmpty,
}

/// The identity that two deliveries share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum MatchedBy {
    /// The sender's delivery id.
    Delivery,
    /// The message of a stream.
    Message,
    /// The bytes.
    Body,
    /// The time that was signed with the body, and the body.
    Signed,
    /// What was signed, where the bytes of the body are not.
    SignedText,
    /// These fields, as their joined names.
    Fields(Arc<str>),
    /// The subject was already changed to this value.
    Change,
}

impl MatchedBy {
    /// The name under which it is stored and logged, or the fields' names.
    pub fn word(&self) -> &str {
        match self {
            Self::Delivery => "delivery",
            Self::Message => "message",
            Self::Body => "body",
            // Unambiguous: `body` is not allowed as the name of a field.
            Self::Signed => "time+body",
            // No field's name has a hyphen.
            Self::SignedText => "signed-text",
            Self::Fields(names) => names,
            Self::Change => "change",
        }
    }

    /// The identity with this name.
    pub fn parse(word: &str) -> Self {
        match word {
            "delivery" => Self::Delivery,
            "message" => Self::Message,
            "body" => Self::Body,
            "time+body" => Self::Signed,
            "signed-text" => Self::SignedText,
            "change" => Self::Change,
            names => Self::Fields(names.into()),
        }
    }

    /// Whether a delivery that was matched through its register leaves this key behind as an alias. Keys of named
    /// fields are not left: that would join unrelated events.
    pub fn aliased(&self) -> bool {
        matches!(self, Self::Delivery | Self::Message | Self::Body | Self::Signed | Self::SignedText)
    }
}

/// The headers that fields use or a route passes on, and the body as it was received.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Payload {
    /// Names in lower case. A header that is only passed on, and is deleted when the event ends, is stored as `>name`,
    /// which is not a valid header name.
    pub headers: Vec<(String, String)>,
    /// The bytes that were verified.
    pub body: Bytes,
}

/// Prefix of the name of a header that is only passed on.
const PASSED: char = '>';

/// Whether this is the stored name of a header that is deleted when its event ends.
pub fn is_transient_header(name: &str) -> bool {
    name.starts_with(PASSED)
}

impl Payload {
    /// Adds a header that is kept only to be passed on.
    pub fn push_transient_header(&mut self, name: &str, value: String) {
        self.headers.push((format!("{PASSED}{name}"), value));
    }

    /// The values of this header, whatever it is kept for.
    pub fn all<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        let named = move |kept: &str| kept.strip_prefix(PASSED).unwrap_or(kept) == name;
        self.headers.iter().filter(move |(kept, _)| named(kept)).map(|(_, value)| &**value)
    }

    /// The first value of this header.
    pub fn header<'p>(&'p self, name: &'p str) -> Option<&'p str> {
        self.all(name).next()
    }

    /// The names of the headers that are only passed on. Their values are not shown anywhere.
    pub fn transient_header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().filter_map(|(name, _)| name.strip_prefix(PASSED))
    }

    /// The same payload with a body of its own, where the body is part of a larger one that would be held with it.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { headers: self.headers.clone(), body: Bytes::copy_from_slice(&self.body) }
    }

    /// Removes the headers that are only passed on, because the event has ended.
    pub fn drop_transient_headers(&mut self) {
        self.headers.retain(|(name, _)| !is_transient_header(name));
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} headers, {} bytes)", self.headers.len(), self.body.len())
    }
}

/// The result of a claim.
#[derive(Clone, PartialEq, Debug)]
pub enum ClaimResult {
    /// Committed as new. The event as it is now: after a lost response it may have moved on.
    New {
        /// As written: in a group it may have been parked.
        event: Box<Event>,
        /// The store's clock.
        now: Timestamp,
    },
    /// One of its identities is claimed.
    Duplicate {
        /// The event that holds the key; where that one was superseded, its subject's current event.
        event: Box<Event>,
        /// Which identity matched.
        same: MatchedBy,
        /// Whether that event is the one that matched, and whether it is still its subject's current one.
        target: DuplicateTarget,
        /// The store's clock.
        now: Timestamp,
    },
    /// It was done before this store existed: imported, so there is no event.
    Imported {
        /// Which identity matched.
        same: MatchedBy,
    },
    /// Its subject has been changed by something newer.
    Stale {
        /// By this event.
        of: EventId,
    },
    /// The store could not decide in this batch: claim again.
    Undecided,
}

/// The event that a duplicate is answered with: the one that matched, or its successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DuplicateTarget {
    /// It is the one that matched.
    Direct,
    /// It is the one that matched. It has ended, and another event is its subject's current one.
    DirectNotCurrent,
    /// It is the successor of the one that matched, which was superseded.
    ViaSuccessor,
}

/// What a duplicate does to the event it repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepeatEffect {
    /// Has it published once more ([`EventStep::PublishAgain`](super::event::EventStep::PublishAgain)).
    PublishesAgain,
    /// Gives it another attempt.
    Rearms,
    /// Gives it another attempt although it may have acted: the sender waits for the end, and is the retrier.
    Resumes,
    /// Nothing: it only gets the event's state as its response.
    ReportOnly,
}

/// Whether a client sent another request under a key that it has used before.
pub fn is_key_reuse(source: &Source, event: &Event, new: &NewEvent) -> bool {
    source.api_style == ApiStyle::Api && event.body_digest != new.event.body_digest
}

/// What a duplicate does. Only an event that is dead of `failed` or `rejected` is re-armed, and not too soon, so that a
/// burst of copies does not become a retry loop. An event in doubt is tried again only where the sender waits for the
/// end and the route says `in_doubt = "retry"`. A published event is published again only for a repeat of the same
/// delivery, and only after `published_after`.
pub fn repeat_effect(
    event: &Event,
    arriving: &NewEvent,
    same: &MatchedBy,
    stands: DuplicateTarget,
    route: &Route,
    respond: ResponseMode,
    now: Timestamp,
) -> RepeatEffect {
    let (Some(since), false) = (event.idle_since(), stands == DuplicateTarget::ViaSuccessor) else {
        return RepeatEffect::ReportOnly;
    };
    let (same_after, other_after) = match route.redelivery {
        RedeliveryPolicy::Ignore => return RepeatEffect::ReportOnly,
        RedeliveryPolicy::Again { published_after, .. } if event.was_published() => {
            let repeats =
                *same == MatchedBy::Delivery && stands == DuplicateTarget::Direct && event.is_redelivered_by(arriving);
            let due = event.may_publish_again() && now >= since + published_after;
            return if repeats && due { RepeatEffect::PublishesAgain } else { RepeatEffect::ReportOnly };
        }
        RedeliveryPolicy::Retry { same_after, other_after }
        | RedeliveryPolicy::Again { same_after, other_after, .. } => (same_after, other_after),
    };
    let EventState::Dead { cause, .. } = &event.state else { return RepeatEffect::ReportOnly };
    let wait = if matches!(same, MatchedBy::Delivery | MatchedBy::Message) { same_after } else { other_after };
    let sender_retries = respond != ResponseMode::Accepted && route.in_doubt == InDoubtPolicy::Retry;
    match cause {
        _ if now < since + wait => RepeatEffect::ReportOnly,
        DeathCause::Failed | DeathCause::Rejected => RepeatEffect::Rearms,
        DeathCause::InDoubt if sender_retries => RepeatEffect::Resumes,
        DeathCause::InDoubt
        | DeathCause::Damaged
        | DeathCause::Cancelled
        | DeathCause::OverBudget
        | DeathCause::Unhealthy => RepeatEffect::ReportOnly,
    }
}
