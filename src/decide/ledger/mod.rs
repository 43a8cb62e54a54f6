//! The rules of claiming, advancing and forgetting events: one function for each write that a store makes.
//!
//! A [`Ledger`] is a store reduced to reads and writes of single rows inside one transaction. The rules are written over
//! that trait, once, so that no two stores can disagree. They take no locks: the caller is the only writer, or works on a
//! copy that is written only if every row is still as it was read.
//!
//! Whether an event is still its subject's current one, and which event holds a group's slot, is read in the write that
//! depends on it.

mod advancing;
mod budget;
mod claiming;
mod forgetting;
mod notifying;
mod register;
mod superseding;

pub use advancing::{AdvanceResult, advance, end_damaged, hand_slot_on, parking};
pub use budget::BudgetUse;
pub use claiming::{ImportCounts, KnownDuplicate, claim, find_duplicate, import};
pub use forgetting::{ForgetCounts, RemovalResult, RetentionPolicies, forget, forget_one, remove, would_forget};
pub use notifying::notification_records;
pub use register::{
    Deployment, Deployments, RegisterEdit, RegisterEditError, SubjectRegister, edit_register, state_of, swap_state,
};

use super::claim::{IdentityKey, MatchedBy, Payload};
use super::event::{Event, Receipt};
use super::id::{DeliveryIdDigest, EventId, Key, QueueTurn};
use super::time::Timestamp;
use super::transition::AttemptRecord;

/// An event, and the time from which its retention counts.
#[derive(Clone, PartialEq, Debug)]
pub struct EventRow {
    /// The event.
    pub event: Event,
    /// When it ended, or when it ceased to be its subject's current event, whichever is later.
    pub keep_from: Option<Timestamp>,
}

/// The event that holds a key, and how it got it.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyOwner {
    /// The event.
    pub event: EventId,
    /// Through which identity.
    pub same: MatchedBy,
    /// Left behind by a later delivery that was matched through its register.
    pub alias: bool,
    /// The delivery id it was claimed under, where that id has no key of its own. `None` in rows of the first release.
    pub id_digest: Option<DeliveryIdDigest>,
}

impl KeyOwner {
    /// The owner of a key that an event claims for itself.
    fn of(event: EventId, identity: &IdentityKey) -> Self {
        Self { event, same: identity.matched_by.clone(), alias: false, id_digest: identity.id_digest }
    }

    /// The identities of the event that this key represents; none if it is an alias.
    pub fn identities(&self) -> impl Iterator<Item = MatchedBy> + use<> {
        let id = self.id_digest.map(|_| MatchedBy::Delivery);
        [self.same.clone()].into_iter().chain(id).filter(|_| !self.alias).collect::<Vec<_>>().into_iter()
    }
}

/// A store reduced to single rows. Every call is part of one transaction.
pub trait Ledger {
    /// Why a read or write failed.
    type Error;

    /// The row of this event.
    fn row(&mut self, id: EventId) -> Result<Option<EventRow>, Self::Error>;
    /// Writes a new event with its body; `None` where the body is not to be kept.
    fn insert(&mut self, row: &EventRow, payload: Option<&Payload>) -> Result<(), Self::Error>;
    /// Writes the columns of an existing event that its steps change.
    fn update(&mut self, row: &EventRow) -> Result<(), Self::Error>;
    /// Removes an event with its keys, body, attempts, receipt and sightings.
    fn remove(&mut self, id: EventId) -> Result<(), Self::Error>;
    /// The owner of this key.
    fn key_owner(&mut self, key: &Key) -> Result<Option<KeyOwner>, Self::Error>;
    /// Sets the owner of this key; a key that has an owner keeps it.
    fn set_key_owner(&mut self, key: &Key, held: &KeyOwner) -> Result<(), Self::Error>;
    /// Whether this key was imported.
    fn is_imported(&mut self, key: &Key) -> Result<bool, Self::Error>;
    /// Writes an imported key, for ever. Returns whether it is new.
    fn set_imported(&mut self, key: &Key) -> Result<bool, Self::Error>;
    /// The register of this subject.
    fn register(&mut self, subject: &Key) -> Result<Option<SubjectRegister>, Self::Error>;
    /// Sets the register of this subject.
    fn set_register(&mut self, subject: &Key, register: &SubjectRegister) -> Result<(), Self::Error>;
    /// Removes the register, as if the subject was never changed.
    fn remove_register(&mut self, subject: &Key) -> Result<(), Self::Error>;
    /// The event that holds this group's slot.
    fn slot(&mut self, group: &Key) -> Result<Option<EventId>, Self::Error>;
    /// Gives the slot to an event, or frees it.
    fn set_slot(&mut self, group: &Key, event: Option<EventId>) -> Result<(), Self::Error>;
    /// The event parked in this group with the lowest turn.
    fn parked(&mut self, group: &Key) -> Result<Option<EventRow>, Self::Error>;
    /// The next turn.
    fn next_turn(&mut self) -> QueueTurn;
    /// Replaces an event's body, and the columns that belong to it: delivery id, fields and digests.
    fn set_payload(&mut self, event: &Event, payload: &Payload) -> Result<(), Self::Error>;
    /// Replaces an event's receipt; `None` removes it.
    fn set_receipt(&mut self, id: EventId, receipt: Option<&Receipt>) -> Result<(), Self::Error>;
    /// Removes the headers of an event that were kept only to be passed on
    /// ([`Payload::drop_transient_headers`]), so that they cannot be read again.
    fn drop_transient_headers(&mut self, id: EventId) -> Result<(), Self::Error>;
    /// Adds the record of an attempt that has ended.
    fn add_attempt(&mut self, id: EventId, tried: &AttemptRecord) -> Result<(), Self::Error>;
}

/// A ledger that can also look for rows by their age.
pub trait SweepLedger: Ledger {
    /// At most `limit` events of this source whose retention began before this time.
    fn forgettable(&mut self, source: &str, before: Timestamp, limit: usize) -> Result<Vec<EventId>, Self::Error>;
    /// Removes the bodies, receipts and outputs of at most `limit` events that ended before this time. Returns how
    /// many.
    fn remove_bodies(&mut self, source: &str, before: Timestamp, limit: usize) -> Result<u64, Self::Error>;
}

/// The register of the subject that this event changes; `None` where it changes none.
fn register_of<L: Ledger>(ledger: &mut L, event: &Event) -> Result<Option<SubjectRegister>, L::Error> {
    match event.change {
        Some(change) => ledger.register(&change.subject),
        None => Ok(None),
    }
}
