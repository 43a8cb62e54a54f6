//! The rules of claiming, advancing and forgetting, for stores that do one thing after another.
//!
//! A ledger is a store reduced to reads and writes of single rows inside one transaction; the rules over them stand
//! here once, so that no two stores can disagree. Locks are nobody's business here: whoever calls holds the only pen,
//! or works on a draft that is written only if nobody else wrote meanwhile.
//!
//! Whether an event is still its subject's current one, and who holds a group's slot, is looked at in the very write
//! that depends on it.

use super::sought::{same_by, sought};
use super::{
    AdvanceResult, ClockSnapshot, ForgetCounts, ImportCounts, KnownDuplicate, RemovalResult, RetentionPolicies,
};
use crate::decide::claim::{
    Claim, IdentityKey, ImportedKey, ImportedKeyValidity, MatchRelation, MatchedBy, NewEvent, Payload,
};
use crate::decide::event::{DeathCause, DoneReason, Event, EventState, QueueState, Receipt, SubjectChange};
use crate::decide::expiry_clock::ExpiryTime;
use crate::decide::id::{DeliveryIdDigest, Digest, EventId, Key, QueueTurn};
use crate::decide::source::Keep;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::{AttemptRecord, QueueUpdate, ReceiptUpdate, TransientHeaders, Transition};

/// An event and since when it may be forgotten.
#[derive(Clone, PartialEq, Debug)]
pub struct EventRow {
    /// The event.
    pub event: Event,
    /// It is over and not its subject's current one, since then.
    pub keep_from: Option<Timestamp>,
}

/// Who holds a key.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyOwner {
    /// The event.
    pub event: EventId,
    /// Through which identity.
    pub same: MatchedBy,
    /// Left behind by a later delivery that was matched through its register.
    pub alias: bool,
    /// The delivery id it was claimed under, where that id has no key of its own. None in what the first release wrote.
    pub id_digest: Option<DeliveryIdDigest>,
}

impl KeyOwner {
    /// What an event holds a key of its own as.
    fn of(event: EventId, identity: &IdentityKey) -> Self {
        Self { event, same: identity.matched_by.clone(), alias: false, id_digest: identity.id_digest }
    }

    /// The identities that this key stands for, where it is the event's own.
    pub fn identities(&self) -> impl Iterator<Item = MatchedBy> + use<> {
        let id = self.id_digest.map(|_| MatchedBy::Delivery);
        [self.same.clone()].into_iter().chain(id).filter(|_| !self.alias).collect::<Vec<_>>().into_iter()
    }
}

/// What a subject was last changed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register {
    /// The digest of it.
    pub value: Digest,
    /// The highest order seen.
    pub order: Option<i64>,
    /// A person's replay set it: an equal order is stale too, until a newer one comes.
    pub strict: bool,
    /// The event that did.
    pub event: EventId,
}

/// A store reduced to single rows. Every call is part of one transaction.
pub trait Ledger {
    /// Why a read or write failed.
    type Error;

    /// The row of this event.
    fn row(&mut self, id: EventId) -> Result<Option<EventRow>, Self::Error>;
    /// Writes a new event with its body; `None` where the body is not to be kept.
    fn insert(&mut self, row: &EventRow, payload: Option<&Payload>) -> Result<(), Self::Error>;
    /// Writes what changes by itself of an event that is already there.
    fn update(&mut self, row: &EventRow) -> Result<(), Self::Error>;
    /// Removes an event with its keys, body, attempts, receipt and sightings.
    fn remove(&mut self, id: EventId) -> Result<(), Self::Error>;
    /// Who holds this key.
    fn key_owner(&mut self, key: &Key) -> Result<Option<KeyOwner>, Self::Error>;
    /// Gives this key to an event; one that is held stays as it is.
    fn set_key_owner(&mut self, key: &Key, held: &KeyOwner) -> Result<(), Self::Error>;
    /// Was this key imported?
    fn is_imported(&mut self, key: &Key) -> Result<bool, Self::Error>;
    /// Writes an imported key, for ever; says whether it is new.
    fn set_imported(&mut self, key: &Key) -> Result<bool, Self::Error>;
    /// The register of this subject.
    fn register(&mut self, subject: &Key) -> Result<Option<Register>, Self::Error>;
    /// Sets it.
    fn set_register(&mut self, subject: &Key, register: &Register) -> Result<(), Self::Error>;
    /// Removes it: the subject was never changed.
    fn remove_register(&mut self, subject: &Key) -> Result<(), Self::Error>;
    /// Who holds this group's slot.
    fn slot(&mut self, group: &Key) -> Result<Option<EventId>, Self::Error>;
    /// Gives it to somebody, or frees it.
    fn set_slot(&mut self, group: &Key, event: Option<EventId>) -> Result<(), Self::Error>;
    /// The event parked in this group with the lowest turn.
    fn parked(&mut self, group: &Key) -> Result<Option<EventRow>, Self::Error>;
    /// The next turn.
    fn next_turn(&mut self) -> QueueTurn;
    /// Replaces an event's body, and with it what else never changes by itself: delivery id, fields and digests.
    fn set_payload(&mut self, event: &Event, payload: &Payload) -> Result<(), Self::Error>;
    /// Keeps an answer in place of an earlier one; with none, the earlier one goes.
    fn set_receipt(&mut self, id: EventId, receipt: Option<&Receipt>) -> Result<(), Self::Error>;
    /// Removes the headers of an event that were only kept to be passed on ([`Payload::drop_transient_headers`]), so that they cannot be
    /// read again.
    fn drop_transient_headers(&mut self, id: EventId) -> Result<(), Self::Error>;
    /// Keeps what an attempt came to.
    fn add_attempt(&mut self, id: EventId, tried: &AttemptRecord) -> Result<(), Self::Error>;
}

/// A ledger that can find what is old by itself.
pub trait SweepLedger: Ledger {
    /// Up to `limit` events of this source that may be forgotten since before then.
    fn forgettable(&mut self, source: &str, before: Timestamp, limit: usize) -> Result<Vec<EventId>, Self::Error>;
    /// Removes up to `limit` bodies, receipts and outputs of events that ended before then; says how many.
    fn remove_bodies(&mut self, source: &str, before: Timestamp, limit: usize) -> Result<u64, Self::Error>;
}

/// Claims one event: all its keys or none.
pub fn claim<L: Ledger>(ledger: &mut L, new: NewEvent, at: ClockSnapshot) -> Result<Claim, L::Error> {
    let now = at.now;
    if let Some(row) = ledger.row(new.event.id)? {
        return Ok(Claim::New { event: Box::new(row.event), now });
    }
    if let Some((row, same)) = matching(ledger, &new, at.expiry)? {
        let same = same_delivery(ledger, &new, &row, same)?;
        let (event, stands) = event_for_duplicate(ledger, row)?;
        return Ok(Claim::Duplicate { event, same, relation: stands, now });
    }
    if let Some(same) = find_imported(ledger, &new)? {
        return Ok(Claim::Imported { same });
    }
    if let Some(change) = new.event.change {
        let was = ledger.register(&change.subject)?;
        if let Some(register) = was {
            if register.value == change.value
                && let Some(current) = ledger.row(register.event)?
            {
                return repeated(ledger, &new, &change, register, current, now);
            }
            if is_stale(&register, change.order) {
                return Ok(Claim::Stale { of: register.event });
            }
        }
        let register = Register { value: change.value, order: change.order, strict: false, event: new.event.id };
        ledger.set_register(&change.subject, &register)?;
        if let Some(was) = was {
            replace(ledger, was.event, new.event.id, now)?;
        }
    }
    write_new(ledger, new, now)
}

/// The event that holds one of these keys: the first, in their order, that is not dead, else the first. A dead one
/// that has the delivery's id is matched through it, wherever `per` names it: the same id re-arms sooner.
/// What has expired is forgotten on the way.
fn matching<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    by: ExpiryTime,
) -> Result<Option<(EventRow, MatchedBy)>, L::Error> {
    let mut dead: Option<(EventRow, MatchedBy)> = None;
    for (identity, how) in sought(new) {
        let Some(held) = ledger.key_owner(&identity.key)?.filter(|held| how.counts(identity, held)) else { continue };
        let Some(row) = ledger.row(held.event)? else {
            ledger.remove(held.event)?; // only rot parts a key from its event; freed, it can be held again
            continue;
        };
        let same = same_by(identity, &held, &row, new);
        if expired(ledger, &row, new.kept.keys, by)? {
            ledger.remove(row.event.id)?;
        } else if !matches!(row.event.state, EventState::Dead { .. }) {
            return Ok(Some((row, same)));
        } else if dead.as_ref().is_none_or(|(found, _)| found.event.id == row.event.id && same == MatchedBy::Delivery) {
            dead = Some((row, same));
        }
    }
    // A later key may have forgotten an event, but never the one found: that one had not expired.
    Ok(dead)
}

/// What a repeat is told, where a claim would write nothing: the first of its keys that is held is held by an event that
/// is kept and not dead. A dead one may be re-armed, and what has expired is forgotten: that takes a claim.
pub fn recall<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    at: ClockSnapshot,
) -> Result<Option<KnownDuplicate>, L::Error> {
    for (identity, how) in sought(new) {
        let Some(held) = ledger.key_owner(&identity.key)?.filter(|held| how.counts(identity, held)) else { continue };
        let Some(row) = ledger.row(held.event)?.filter(|row| row.event.id != new.event.id) else { return Ok(None) };
        if matches!(row.event.state, EventState::Dead { .. }) || expired(ledger, &row, new.kept.keys, at.expiry)? {
            return Ok(None);
        }
        let same = same_delivery(ledger, new, &row, same_by(identity, &held, &row, new))?;
        let (event, stands) = event_for_duplicate(ledger, row)?;
        return Ok(Some(KnownDuplicate { event, same, stands, receipt: None, now: at.now }));
    }
    Ok(None)
}

/// The identity by which a delivery repeats an event that is done: its id, where the event has that too, wherever `per`
/// names it. A repeat of the same delivery may have it published again.
fn same_delivery<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    row: &EventRow,
    same: MatchedBy,
) -> Result<MatchedBy, L::Error> {
    if same == MatchedBy::Delivery || !matches!(row.event.state, EventState::Done { .. }) {
        return Ok(same);
    }
    for (identity, how) in sought(new) {
        let own = |held: &KeyOwner| held.event == row.event.id && how.counts(identity, held);
        let Some(held) = ledger.key_owner(&identity.key)?.filter(own) else { continue };
        if same_by(identity, &held, row, new) == MatchedBy::Delivery {
            return Ok(MatchedBy::Delivery);
        }
    }
    Ok(same)
}

/// Was this done before there was this store?
fn find_imported<L: Ledger>(ledger: &mut L, new: &NewEvent) -> Result<Option<MatchedBy>, L::Error> {
    for ImportedKey { same, key, counts } in &new.imported {
        if !ledger.is_imported(key)? {
            continue;
        }
        let changed_since = match (counts, new.event.change) {
            (ImportedKeyValidity::WhileRegisterEmpty, Some(change)) => ledger.register(&change.subject)?.is_some(),
            (ImportedKeyValidity::WhileRegisterEmpty, None) | (ImportedKeyValidity::Always, _) => false,
        };
        if !changed_since {
            return Ok(Some(same.clone()));
        }
    }
    Ok(None)
}

/// Writes keys of what was done before there was this store. A key that is there stays as it is.
pub fn import<L: Ledger>(ledger: &mut L, keys: &[Key]) -> Result<ImportCounts, L::Error> {
    let mut imported = ImportCounts::default();
    for key in keys {
        if ledger.set_imported(key)? {
            imported.new += 1;
        } else {
            imported.known += 1;
        }
    }
    Ok(imported)
}

/// The event that a delivery whose key is held hears of: where the holder was superseded, its subject's current one;
/// and how the two are related.
fn event_for_duplicate<L: Ledger>(ledger: &mut L, row: EventRow) -> Result<(Box<Event>, MatchRelation), L::Error> {
    let itself = |event: Event| (Box::new(event), MatchRelation::Direct);
    let (Some(_), Some(change)) = (row.event.state.ended(), row.event.change) else { return Ok(itself(row.event)) };
    let Some(register) = ledger.register(&change.subject)?.filter(|register| register.event != row.event.id) else {
        return Ok(itself(row.event));
    };
    if !matches!(row.event.state, EventState::Done { how: DoneReason::Superseded { .. }, .. }) {
        return Ok((Box::new(row.event), MatchRelation::DirectNotCurrent));
    }
    match ledger.row(register.event)? {
        Some(current) => Ok((Box::new(current.event), MatchRelation::ViaSuccessor)),
        None => Ok(itself(row.event)),
    }
}

/// The subject is already what this delivery changes it to. Its delivery and body keys become aliases, so that its
/// own redelivery after the next change is still a repeat; a newer order moves the register's forward.
fn repeated<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    change: &SubjectChange,
    mut register: Register,
    mut row: EventRow,
    now: Timestamp,
) -> Result<Claim, L::Error> {
    for identity in new.keys.iter().filter(|k| k.matched_by.aliased()) {
        ledger.set_key_owner(&identity.key, &KeyOwner { alias: true, ..KeyOwner::of(register.event, identity) })?;
    }
    if change.order > register.order {
        (register.order, register.strict) = (change.order, false);
        ledger.set_register(&change.subject, &register)?;
        // No new revision: the node that runs it must not lose its swap to a repeat.
        row.event.change = row.event.change.map(|was| SubjectChange { order: change.order, ..was });
        ledger.update(&row)?;
    }
    Ok(Claim::Duplicate { event: Box::new(row.event), same: MatchedBy::Change, relation: MatchRelation::Direct, now })
}

fn is_stale(register: &Register, order: Option<i64>) -> bool {
    match (register.order, order) {
        (Some(seen), Some(arriving)) => arriving < seen || (register.strict && arriving == seen),
        _ => false,
    }
}

/// `old` is no longer its subject's current event, now that `by` is. If it waits and is owed nothing, it ends.
fn replace<L: Ledger>(ledger: &mut L, old: EventId, by: EventId, now: Timestamp) -> Result<(), L::Error> {
    let Some(mut row) = ledger.row(old)? else { return Ok(()) };
    if let Some(event) = row.event.supersede(by, now) {
        write(ledger, &row, event, now)?;
        ledger.drop_transient_headers(old)?;
    } else if row.event.state.ended().is_some() {
        row.keep_from = Some(now);
        ledger.update(&row)?;
    }
    Ok(())
}

fn write_new<L: Ledger>(ledger: &mut L, new: NewEvent, now: Timestamp) -> Result<Claim, L::Error> {
    let mut event = new.event;
    event.state = event.state.shifted(event.received_at, now);
    event.turn = ledger.next_turn();
    event = take_slot_or_park(ledger, event)?;
    for identity in &new.keys {
        ledger.set_key_owner(&identity.key, &KeyOwner::of(event.id, identity))?;
    }
    let ended = event.state.ended();
    let keep_from = if event.change.is_some() { None } else { ended };
    let body_is_kept = ended.is_none() || new.kept.body > Duration::ZERO;
    let row = EventRow { event, keep_from };
    ledger.insert(&row, body_is_kept.then_some(&new.payload))?;
    Ok(Claim::New { event: Box::new(row.event), now })
}

/// Writes one change, if nobody else wrote first.
pub fn advance<L: Ledger>(ledger: &mut L, change: &Transition, now: Timestamp) -> Result<AdvanceResult, L::Error> {
    let Some(row) = ledger.row(change.event.id)? else { return Ok(AdvanceResult::Lost) };
    if row.event.revision.next() != change.event.revision {
        return Ok(AdvanceResult::Lost);
    }
    let current = current_of(ledger, &row.event)?;
    if change.place == QueueUpdate::RequireCurrent && current.is_some_and(|current| current != row.event.id) {
        return Ok(AdvanceResult::Lost);
    }
    let mut event = change.resolve(current, now);
    if let (Some(next), Some(was)) = (&mut event.change, row.event.change) {
        next.order = was.order; // a repeat may have moved it forward meanwhile
    }
    if event.state.ended().is_none() {
        if matches!(change.place, QueueUpdate::MoveToEnd | QueueUpdate::BecomeCurrent) {
            event.turn = ledger.next_turn();
        }
        if change.place == QueueUpdate::BecomeCurrent {
            make_current(ledger, &event, now)?;
        }
        if let Some(payload) = &change.payload {
            ledger.set_payload(&event, payload)?;
        }
    }
    if let Some(tried) = &change.attempt {
        ledger.add_attempt(event.id, tried)?;
    }
    if let ReceiptUpdate::Replace(receipt) = &change.receipt {
        ledger.set_receipt(event.id, receipt.as_ref())?;
    }
    let event = write(ledger, &row, event, now)?;
    if event.state.ended().is_some() && row.event.state.ended().is_none() && change.passed == TransientHeaders::Drop {
        ledger.drop_transient_headers(event.id)?;
    }
    Ok(AdvanceResult::Written { event: Box::new(event), now })
}

/// Makes an event its subject's current one, because a person replays it. The highest order seen stays.
fn make_current<L: Ledger>(ledger: &mut L, event: &Event, now: Timestamp) -> Result<(), L::Error> {
    let Some(change) = event.change else { return Ok(()) };
    let was = ledger.register(&change.subject)?;
    let order = was.and_then(|r| r.order).max(change.order);
    let register = Register { value: change.value, order, strict: order.is_some(), event: event.id };
    ledger.set_register(&change.subject, &register)?;
    match was {
        Some(was) if was.event != event.id => replace(ledger, was.event, event.id, now),
        _ => Ok(()),
    }
}

/// Writes an event over its old row, in its group's slot or parked behind it; one that ends hands its slot on.
fn write<L: Ledger>(ledger: &mut L, old: &EventRow, event: Event, now: Timestamp) -> Result<Event, L::Error> {
    let event = take_slot_or_park(ledger, event)?;
    let ended = event.state.ended();
    let keep_from = match (ended, old.event.state.ended()) {
        (None, _) => None,
        (Some(_), Some(_)) if old.keep_from.is_some() => old.keep_from,
        // Published again, it is kept from its first end; replaced meanwhile, from then.
        (Some(ended), _) => match current_of(ledger, &event)? {
            Some(current) => (current != event.id).then_some(now),
            None => Some(ended),
        },
    };
    ledger.update(&EventRow { event: event.clone(), keep_from })?;
    if !event.wants_slot() {
        release_slot(ledger, &event, now)?;
    }
    Ok(event)
}

/// Where an event is parked: its group, its turn and itself.
pub fn parking(event: &Event) -> Option<(Key, QueueTurn, EventId)> {
    let parked = matches!(event.state, EventState::Waiting { due: None }) && event.queue_state != QueueState::Suspended;
    event.group.filter(|_| parked).map(|group| (group, event.turn, event.id))
}

/// Ends an event that cannot be read any more: what is left of it is dead of `damaged`, and its slot is handed on.
pub fn end_damaged<L: Ledger>(ledger: &mut L, row: EventRow, now: Timestamp) -> Result<EventRow, L::Error> {
    let state = EventState::Dead { cause: DeathCause::Damaged, at: now };
    let event = Event { revision: row.event.revision.next(), state, ..row.event.clone() };
    let event = write(ledger, &EventRow { keep_from: None, ..row }, event, now)?;
    Ok(EventRow { event, keep_from: None })
}

/// The subject's current event; `None` where the event stands for no change.
fn current_of<L: Ledger>(ledger: &mut L, event: &Event) -> Result<Option<EventId>, L::Error> {
    match event.change {
        Some(change) => Ok(ledger.register(&change.subject)?.map(|register| register.event)),
        None => Ok(None),
    }
}

/// An event that wants its group's slot has it after this, or is parked.
fn take_slot_or_park<L: Ledger>(ledger: &mut L, event: Event) -> Result<Event, L::Error> {
    let Some(group) = event.group.filter(|_| event.wants_slot()) else { return Ok(event) };
    match ledger.slot(&group)? {
        Some(holder) if holder == event.id => Ok(event),
        Some(_) => Ok(event.park()),
        None => {
            ledger.set_slot(&group, Some(event.id))?;
            Ok(event)
        }
    }
}

/// An event that no longer wants its group's slot hands it on.
fn release_slot<L: Ledger>(ledger: &mut L, event: &Event, now: Timestamp) -> Result<(), L::Error> {
    let Some(group) = event.group else { return Ok(()) };
    if ledger.slot(&group)? == Some(event.id) { hand_slot_on(ledger, &group, now) } else { Ok(()) }
}

/// Gives a group's slot to the parked event with the lowest turn, and makes that due; with none parked, it is free.
pub fn hand_slot_on<L: Ledger>(ledger: &mut L, group: &Key, now: Timestamp) -> Result<(), L::Error> {
    let next = ledger.parked(group)?;
    ledger.set_slot(group, next.as_ref().map(|row| row.event.id))?;
    if let Some(mut row) = next {
        row.event.revision = row.event.revision.next();
        row.event.state = EventState::Waiting { due: Some(now) };
        ledger.update(&row)?;
    }
    Ok(())
}

/// May it be forgotten? Those that carry their register's order may not: an equal order is not stale.
fn expired<L: Ledger>(ledger: &mut L, row: &EventRow, keep: Keep, by: ExpiryTime) -> Result<bool, L::Error> {
    let (Some(from), Keep::For(length)) = (row.keep_from, keep) else { return Ok(false) };
    if from + length > by.0 {
        return Ok(false);
    }
    match row.event.change {
        Some(change) if change.order.is_some() => {
            Ok(ledger.register(&change.subject)?.is_none_or(|register| register.order != change.order))
        }
        _ => Ok(true),
    }
}

/// Forgets one event that is over, whatever `keep` says. A register that names it would match its next delivery with
/// nothing, so that goes too; a slot it still holds is handed on.
pub fn remove<L: Ledger>(ledger: &mut L, id: EventId, now: Timestamp) -> Result<RemovalResult, L::Error> {
    let Some(EventRow { event, .. }) = ledger.row(id)? else { return Ok(RemovalResult::Unknown) };
    if event.state.ended().is_none() {
        return Ok(RemovalResult::NotOver);
    }
    if let Some(change) = event.change
        && current_of(ledger, &event)? == Some(id)
    {
        ledger.remove_register(&change.subject)?;
    }
    release_slot(ledger, &event, now)?;
    ledger.remove(id)?;
    Ok(RemovalResult::Removed)
}

/// Forgets one event if it has expired, and says whether it did.
pub fn forget_one<L: Ledger>(ledger: &mut L, id: EventId, keep: Keep, by: ExpiryTime) -> Result<bool, L::Error> {
    let Some(row) = ledger.row(id)? else { return Ok(false) };
    let goes = expired(ledger, &row, keep, by)?;
    if goes {
        ledger.remove(id)?;
    }
    Ok(goes)
}

/// Frees the space of what has expired: at most `limit` events and as many bodies.
pub fn forget<L: SweepLedger>(
    ledger: &mut L,
    keeps: &RetentionPolicies,
    limit: usize,
    by: ExpiryTime,
) -> Result<ForgetCounts, L::Error> {
    let mut forgotten = ForgetCounts::default();
    for (of, kept) in &keeps.sources {
        let room = limit.saturating_sub(usize::try_from(forgotten.bodies).unwrap_or(limit));
        forgotten.bodies += ledger.remove_bodies(of, by.minus(kept.body), room)?;
        let Keep::For(length) = kept.keys else { continue };
        let room = limit.saturating_sub(usize::try_from(forgotten.events).unwrap_or(limit));
        for id in ledger.forgettable(of, by.minus(length), room)? {
            forgotten.events += u64::from(forget_one(ledger, id, kept.keys, by)?);
        }
    }
    Ok(forgotten)
}

/// How many events the sweep would forget by this time: at most `limit`.
pub fn would_forget<L: SweepLedger>(
    ledger: &mut L,
    keeps: &RetentionPolicies,
    limit: usize,
    by: ExpiryTime,
) -> Result<u64, L::Error> {
    let mut many = 0;
    for (of, kept) in &keeps.sources {
        if let Keep::For(length) = kept.keys {
            many += ledger.forgettable(of, by.minus(length), limit - many)?.len();
        }
    }
    Ok(many as u64)
}
