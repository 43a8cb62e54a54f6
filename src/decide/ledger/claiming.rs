//! Decides whether a delivery is new, a duplicate, already imported or stale, and writes the result.

use super::advancing::take_slot_or_park;
use super::forgetting::{has_expired, remove_expired};
use super::superseding::{InheritedPlace, supersede_previous};
use super::{EventRow, KeyOwner, Ledger, SubjectRegister};
use crate::decide::claim::{
    ClaimResult, DuplicateTarget, IdentityKey, ImportedKey, ImportedKeyValidity, MatchedBy, NewEvent,
};
use crate::decide::event::{DeathCause, DoneReason, Event, EventState, Receipt, SubjectChange};
use crate::decide::expiry_clock::{ExpiryTime, StoreTimes};
use crate::decide::id::Key;
use crate::decide::source::SameChange;
use crate::decide::time::{Duration, Timestamp};

/// A duplicate that was found without a claim: what [`ClaimResult::Duplicate`] has, and the receipt.
#[derive(Clone, PartialEq, Debug)]
pub struct KnownDuplicate {
    /// The event; it is not dead, unless it is the successor of the one that matched.
    pub event: Box<Event>,
    /// Which identity matched.
    pub same: MatchedBy,
    /// Whether that event is the one that matched, and whether it is still its subject's current one.
    pub target: DuplicateTarget,
    /// Its receipt, where that is needed and there is one.
    pub receipt: Option<Receipt>,
    /// The store's clock.
    pub now: Timestamp,
}

/// How many keys of an import were new, and how many the store already had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportCounts {
    /// Keys that did not exist.
    pub new: u64,
    /// Keys that existed.
    pub known: u64,
}

/// Why a key is looked up.
#[derive(Clone, Copy)]
enum KeyLookupKind {
    /// It is this delivery's own.
    Own,
    /// An earlier version or config would have claimed it.
    Former,
}

impl KeyLookupKind {
    /// Whether this owner makes the delivery a duplicate. A former key of a body does so only if it was claimed under
    /// the same id.
    fn counts(self, identity: &IdentityKey, held: &KeyOwner) -> bool {
        match self {
            Self::Own => true,
            Self::Former => identity.id_digest.is_none() || identity.id_digest == held.id_digest,
        }
    }
}

/// The keys to look up for a delivery, in their order of precedence.
fn keys_to_look_up(new: &NewEvent) -> impl Iterator<Item = (&IdentityKey, KeyLookupKind)> {
    let own = new.keys.iter().map(|identity| (identity, KeyLookupKind::Own));
    own.chain(new.former_keys.iter().map(|identity| (identity, KeyLookupKind::Former)))
}

/// The identity that a delivery shares with the owner of one of its keys. A key that also represents a delivery id is
/// compared by that id; where the first release wrote the key, by its event's id.
fn matched_by(identity: &IdentityKey, held: &KeyOwner, row: &EventRow, new: &NewEvent) -> MatchedBy {
    let same_id = match (identity.id_digest, held.id_digest) {
        (None, _) => false,
        (Some(arriving), Some(first)) => arriving == first,
        (Some(_), None) => row.event.delivery_id == new.event.delivery_id,
    };
    if same_id { MatchedBy::Delivery } else { identity.matched_by.clone() }
}

/// Claims one event: all its keys or none.
pub fn claim<L: Ledger>(ledger: &mut L, new: &NewEvent, at: StoreTimes) -> Result<ClaimResult, L::Error> {
    let now = at.now;
    if let Some(row) = ledger.row(new.event.id)? {
        return Ok(ClaimResult::New { event: Box::new(row.event), now });
    }
    if let Some((row, same)) = find_match(ledger, new, at.expiry)? {
        let same = same_delivery(ledger, new, &row, same)?;
        let (event, relation) = event_for_duplicate(ledger, row)?;
        return Ok(ClaimResult::Duplicate { event, same, target: relation, now });
    }
    if let Some(same) = find_imported(ledger, new)? {
        return Ok(ClaimResult::Imported { same });
    }
    let mut inherited = None;
    if let Some(change) = new.event.change {
        let was = ledger.register(&change.subject)?;
        if let Some(register) = &was {
            if register.value == change.value
                && let Some(current) = ledger.row(register.event)?
                && !is_another_hint(new, change.order, register, &current.event)
            {
                return repeat_change(ledger, new, &change, register.clone(), current, now);
            }
            if is_stale(register, change.order) {
                return Ok(ClaimResult::Stale { of: register.event });
            }
        }
        let mut register = SubjectRegister::new(change.value, change.order, new.event.id);
        register.note = was.as_ref().and_then(|was| was.note.clone());
        ledger.set_register(&change.subject, &register)?;
        if let Some(was) = was {
            inherited = supersede_previous(ledger, &was, &register, &new.event, new.when_busy, now)?;
        }
    }
    write_new(ledger, new, inherited, now)
}

/// The event that holds one of these keys: the first, in their order, that is not dead, otherwise the first. A dead
/// event that has the delivery's id is matched by that id, wherever `per` lists it: the same id re-arms sooner. Expired
/// owners are removed on the way.
fn find_match<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    by: ExpiryTime,
) -> Result<Option<(EventRow, MatchedBy)>, L::Error> {
    let mut dead: Option<(EventRow, MatchedBy)> = None;
    for (identity, how) in keys_to_look_up(new) {
        let Some(held) = ledger.key_owner(&identity.key)?.filter(|held| how.counts(identity, held)) else { continue };
        let Some(row) = ledger.row(held.event)? else {
            ledger.remove(held.event)?; // only data corruption separates a key from its event; once freed, it can be claimed again
            continue;
        };
        let same = matched_by(identity, &held, &row, new);
        if has_expired(ledger, &row, new.kept.keys, by)? {
            remove_expired(ledger, &row, by)?;
        } else if !row.event.is_dead() {
            return Ok(Some((row, same)));
        } else if dead.as_ref().is_none_or(|(found, _)| found.event.id == row.event.id && same == MatchedBy::Delivery) {
            dead = Some((row, same));
        }
    }
    // A later key may have removed an event, but never the one found: that one had not expired.
    Ok(dead)
}

/// A duplicate whose claim would write nothing: the first of its keys that has an owner belongs to an event that is
/// kept and not dead. A dead event may be re-armed and an expired one is removed; both need a claim.
pub fn find_duplicate<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    at: StoreTimes,
) -> Result<Option<KnownDuplicate>, L::Error> {
    for (identity, how) in keys_to_look_up(new) {
        let Some(held) = ledger.key_owner(&identity.key)?.filter(|held| how.counts(identity, held)) else { continue };
        let Some(row) = ledger.row(held.event)?.filter(|row| row.event.id != new.event.id) else { return Ok(None) };
        if row.event.is_dead() || has_expired(ledger, &row, new.kept.keys, at.expiry)? {
            return Ok(None);
        }
        let same = same_delivery(ledger, new, &row, matched_by(identity, &held, &row, new))?;
        let (event, stands) = event_for_duplicate(ledger, row)?;
        return Ok(Some(KnownDuplicate { event, same, target: stands, receipt: None, now: at.now }));
    }
    Ok(None)
}

/// The identity by which a delivery repeats an event that is done: its delivery id, if the event has the same one,
/// wherever `per` lists it. A repeat of the same delivery may have the event published again.
fn same_delivery<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    row: &EventRow,
    same: MatchedBy,
) -> Result<MatchedBy, L::Error> {
    if same == MatchedBy::Delivery || !matches!(row.event.state, EventState::Done { .. }) {
        return Ok(same);
    }
    // Only these keys say whether the delivery ids are the same.
    let of_id = |identity: &IdentityKey| identity.matched_by == MatchedBy::Delivery || identity.id_digest.is_some();
    for (identity, how) in keys_to_look_up(new).filter(|(identity, _)| of_id(identity)) {
        let own = |held: &KeyOwner| held.event == row.event.id && how.counts(identity, held);
        let Some(held) = ledger.key_owner(&identity.key)?.filter(own) else { continue };
        if matched_by(identity, &held, row, new) == MatchedBy::Delivery {
            return Ok(MatchedBy::Delivery);
        }
    }
    Ok(same)
}

/// The imported identity that a delivery shares, if it was done before this store existed.
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

/// Writes keys of what was done before this store existed. A key that exists stays as it is.
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

/// The event that a duplicate is answered with, and how it is related to the owner of the key: the owner itself, or
/// where that was superseded, its subject's current event. Where the subject is only a queue, a newer event there does
/// not replace what one that has acted stands for.
fn event_for_duplicate<L: Ledger>(ledger: &mut L, row: EventRow) -> Result<(Box<Event>, DuplicateTarget), L::Error> {
    let itself = |event: Event| (Box::new(event), DuplicateTarget::Direct);
    let (Some(_), Some(change)) = (row.event.state.ended(), row.event.change) else { return Ok(itself(row.event)) };
    let Some(register) = ledger.register(&change.subject)?.filter(|register| register.event != row.event.id) else {
        return Ok(itself(row.event));
    };
    if !matches!(row.event.state, EventState::Done { how: DoneReason::Superseded { .. }, .. }) {
        let is_only_in_queue = row.event.has_queue_as_subject();
        let target = if is_only_in_queue { DuplicateTarget::Direct } else { DuplicateTarget::DirectNotCurrent };
        return Ok((Box::new(row.event), target));
    }
    match ledger.row(register.event)? {
        Some(current) => Ok((Box::new(current.event), DuplicateTarget::ViaSuccessor)),
        None => Ok(itself(row.event)),
    }
}

/// Claims a delivery whose subject already has the value that it would be changed to. Its delivery and body keys become
/// aliases, so that its own redelivery after the next change is still a repeat. A newer order moves the register's
/// order forward.
fn repeat_change<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    change: &SubjectChange,
    mut register: SubjectRegister,
    current: EventRow,
    now: Timestamp,
) -> Result<ClaimResult, L::Error> {
    for identity in new.keys.iter().filter(|k| k.matched_by.aliased()) {
        ledger.set_key_owner(&identity.key, &KeyOwner { alias: true, ..KeyOwner::of(register.event, identity) })?;
    }
    let mut event = current.event;
    if change.order > register.order {
        (register.order, register.strict) = (change.order, false);
        ledger.set_register(&change.subject, &register)?;
        event = event.with_order(change.order);
        ledger.update(&EventRow { event: event.clone(), ..current })?;
    }
    Ok(ClaimResult::Duplicate { event: Box::new(event), same: MatchedBy::Change, target: DuplicateTarget::Direct, now })
}

/// Whether a delivery whose subject already has the value that it would be changed to is an event all the same: it is
/// newer, and the registry is not asked again for the current event. What is dead for another reason than its health asks
/// again when it is re-armed.
fn is_another_hint(new: &NewEvent, order: Option<i64>, register: &SubjectRegister, current: &Event) -> bool {
    let has_asked = match current.state {
        EventState::Waiting { .. } => current.blocks.acted(),
        EventState::Running { .. } => !current.is_called_off(),
        EventState::Done { .. } => true,
        EventState::Dead { cause, .. } => cause == DeathCause::Unhealthy,
    };
    new.same_change == SameChange::Hint && order > register.order && has_asked
}

fn is_stale(register: &SubjectRegister, order: Option<i64>) -> bool {
    match (register.order, order) {
        (Some(seen), Some(arriving)) => arriving < seen || (register.strict && arriving == seen),
        _ => false,
    }
}

/// Writes a new event with its keys, in its group's slot or parked behind it.
fn write_new<L: Ledger>(
    ledger: &mut L,
    new: &NewEvent,
    inherited: Option<InheritedPlace>,
    now: Timestamp,
) -> Result<ClaimResult, L::Error> {
    let turn = ledger.next_turn();
    let mut event = new.event.clone().at_claim(inherited.map_or(turn, |place| place.turn), now);
    if let Some(debounce) = new.when_busy.debounce() {
        event = event.debounced(debounce, inherited.and_then(|place| place.burst_since), now);
    }
    let event = take_slot_or_park(ledger, event, now)?;
    for identity in &new.keys {
        ledger.set_key_owner(&identity.key, &KeyOwner::of(event.id, identity))?;
    }
    let ended = event.state.ended();
    let keep_from = if event.explicit_change().is_some() { None } else { ended };
    let body_is_kept = ended.is_none() || new.kept.body > Duration::ZERO;
    let row = EventRow { event, keep_from };
    ledger.insert(&row, body_is_kept.then_some(&new.payload))?;
    Ok(ClaimResult::New { event: Box::new(row.event), now })
}
