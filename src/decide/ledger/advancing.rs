//! Writes one transition of one event over the revision that it was computed for, together with its consequences for
//! the event's register and its group's slot.

use super::budget;
use super::notifying;
use super::register::{note_deployed, outdates_rollback, rollback_of};
use super::superseding::make_current;
use super::{Deployment, EventRow, Ledger, SubjectRegister, register_of};
use crate::decide::event::{DeathCause, DoneReason, Event, EventState, EventStep};
use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::source::{OnUnhealthy, Route};
use crate::decide::time::Timestamp;
use crate::decide::transition::{QueuePositionUpdate, ReceiptUpdate, TransientHeadersUpdate, Transition};

/// The result of writing a transition.
#[derive(Clone, PartialEq, Debug)]
pub enum AdvanceResult {
    /// It is written.
    Written {
        /// As it was written: it may have been parked, or superseded instead.
        event: Box<Event>,
        /// The store's clock.
        now: Timestamp,
    },
    /// Another write came first.
    Lost,
}

/// Writes one transition, unless another write came first.
pub fn advance<L: Ledger>(ledger: &mut L, change: &Transition, now: Timestamp) -> Result<AdvanceResult, L::Error> {
    let Some(row) = ledger.row(change.event.id)? else { return Ok(AdvanceResult::Lost) };
    if row.event.revision.next() != change.event.revision {
        return Ok(AdvanceResult::Lost);
    }
    let register = register_of(ledger, &row.event)?;
    let current = register.as_ref().map(|register| register.event);
    if change.place == QueuePositionUpdate::RequireCurrent && current.is_some_and(|current| current != row.event.id) {
        return Ok(AdvanceResult::Lost);
    }
    let mut event = change.resolve(replaced_by(ledger, &row.event, current)?, now);
    if let (EventState::Waiting { .. }, EventState::Running { .. }) = (&row.event.state, &event.state)
        && let Some(by) = outdates_rollback(ledger, &row.event)?
        && let Ok(ended) = row.event.after(EventStep::Supersede { by }, &Route::default(), now)
    {
        event = ended;
    }
    let mut ends_as_deployed = false;
    if let Some(deployed) = deployed_before(ledger, change, register.as_ref(), &event)? {
        // If there is a newer event, the registry is asked for that one.
        let may_lag = deployed.at <= event.received_at && current == Some(event.id);
        if let Some((waits, tried)) = change.if_asked_again(now).filter(|_| may_lag) {
            ledger.add_attempt(event.id, tried)?;
            event = waits;
        } else {
            event = change.if_deployed_by(deployed.event, now).unwrap_or(event);
            ends_as_deployed = true;
        }
    }
    if let Some(was) = row.event.change {
        event = event.with_order(was.order);
    }
    if let Some(check) = change.budget.filter(|_| matches!(event.state, EventState::Running { .. }))
        && slot_is_free_for(ledger, &event)?
        && let Some(step) = budget::take(ledger, &check, now)?
        && let Ok(held) = row.event.after(step, &Route::default(), now)
    {
        event = held;
    }
    if let Some(key) = change.refund.filter(|_| !matches!(event.state, EventState::Running { .. })) {
        budget::give_back(ledger, &key)?;
    }
    if event.state.ended().is_none() {
        if matches!(change.place, QueuePositionUpdate::MoveToEnd | QueuePositionUpdate::BecomeCurrent) {
            event.turn = ledger.next_turn();
        }
        if change.place == QueuePositionUpdate::BecomeCurrent {
            make_current(ledger, &event, change.when_busy, now)?;
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
    note_deployed(ledger, &row.event, &event, now)?;
    // Parked behind this event's slot with its turn, the roll-back is the next to get it.
    let dies = matches!(event.state, EventState::Dead { .. }) && row.event.state.ended().is_none();
    if (dies || ends_as_deployed)
        && change.on_unhealthy == OnUnhealthy::Rollback
        && let Some(rollback) = rollback_of(ledger, &event, now)?
    {
        let rollback = EventRow { event: take_slot_or_park(ledger, rollback.event, now)?, keep_from: None };
        ledger.insert(&rollback, None)?;
    }
    notifying::tell(ledger, change, &row.event, &mut event, now)?;
    notifying::fill_summary(ledger, change, &mut event, now)?;
    let event = write(ledger, &row, event, now)?;
    if event.state.ended().is_some()
        && row.event.state.ended().is_none()
        && change.passed == TransientHeadersUpdate::Drop
    {
        ledger.drop_transient_headers(event.id)?;
    }
    Ok(AdvanceResult::Written { event: Box::new(event), now })
}

/// The subject's current event, as far as it concerns this one: while it is owed its first attempt, only an event of the
/// same route replaces it.
fn replaced_by<L: Ledger>(
    ledger: &mut L,
    event: &Event,
    current: Option<EventId>,
) -> Result<Option<EventId>, L::Error> {
    let Some(other) = current.filter(|current| *current != event.id && event.owed_first_attempt()) else {
        return Ok(current);
    };
    let is_of_route = ledger.row(other)?.is_some_and(|row| row.event.has_route_of(event));
    Ok(current.filter(|_| is_of_route))
}

/// The deploy that makes one of what this event has resolved to needless, if its transition asks for that.
fn deployed_before<L: Ledger>(
    ledger: &mut L,
    change: &Transition,
    register: Option<&SubjectRegister>,
    event: &Event,
) -> Result<Option<Deployment>, L::Error> {
    let deployed = register.filter(|_| change.if_deployed.is_some()).and_then(SubjectRegister::deployed);
    let is_same = |one: &Deployment| one.event != event.id && one.digest.is_some() && one.digest == event.resolved;
    let Some(deployed) = deployed.filter(is_same) else { return Ok(None) };
    let is_needless = is_deployed_for(ledger, deployed.event, event)?;
    Ok(Some(deployed).filter(|_| is_needless))
}

/// Whether what `deployed` has deployed need not be deployed by `event`: it was by the same route, and its attempt went on
/// to its end. What was cut off while its health was checked may not be healthy.
fn is_deployed_for<L: Ledger>(ledger: &mut L, deployed: EventId, event: &Event) -> Result<bool, L::Error> {
    let Some(row) = ledger.row(deployed)? else { return Ok(false) };
    let has_ended = matches!(
        row.event.state,
        EventState::Done { how: DoneReason::Acted, .. } | EventState::Dead { cause: DeathCause::Unhealthy, .. }
    );
    Ok(has_ended && row.event.has_route_of(event))
}

/// Writes an event over its old row, in its group's slot or parked behind it; one that ends hands its slot on.
pub(super) fn write<L: Ledger>(
    ledger: &mut L,
    old: &EventRow,
    event: Event,
    now: Timestamp,
) -> Result<Event, L::Error> {
    let event = take_slot_or_park(ledger, event, now)?;
    let ended = event.state.ended();
    let keep_from = match (ended, old.event.state.ended()) {
        (None, _) => None,
        // It is forgotten with the event that it tells of.
        (Some(_), _) if event.is_notification() => None,
        (Some(_), Some(_)) if old.keep_from.is_some() => old.keep_from,
        // An event that was published again is kept from its first end; one that was superseded meanwhile, from now.
        (Some(ended), _) => match register_of(ledger, &event)?.filter(|_| !event.has_queue_as_subject()) {
            Some(register) => (!register.names(event.id)).then_some(now),
            None => Some(ended),
        },
    };
    ledger.update(&EventRow { event: event.clone(), keep_from })?;
    if !event.wants_slot() {
        release_slot(ledger, &event, now)?;
    }
    Ok(event)
}

/// The queue position of a parked event: its group, its turn and its id.
pub fn parking(event: &Event) -> Option<(Key, QueueTurn, EventId)> {
    let parked = matches!(event.state, EventState::Waiting { due: None }) && !event.queue_state.is_aside();
    event.group.filter(|_| parked).map(|group| (group, event.turn, event.id))
}

/// Ends an event that can no longer be read: what is left of it is dead of `damaged`, and its slot is handed on. An
/// event that has ended and can be read after all stays as it is.
pub fn end_damaged<L: Ledger>(ledger: &mut L, row: EventRow, now: Timestamp) -> Result<EventRow, L::Error> {
    let Ok(event) = row.event.after(EventStep::Damage, &Route::default(), now) else { return Ok(row) };
    let event = write(ledger, &EventRow { keep_from: None, ..row }, event, now)?;
    Ok(EventRow { event, keep_from: None })
}

/// Whether this event has its group's slot, or could have it.
fn slot_is_free_for<L: Ledger>(ledger: &mut L, event: &Event) -> Result<bool, L::Error> {
    match event.group {
        Some(group) => Ok(ledger.slot(&group)?.is_none_or(|holder| holder == event.id)),
        None => Ok(true),
    }
}

/// Gives an event its group's slot if it wants it and the slot is free; otherwise parks it.
pub(super) fn take_slot_or_park<L: Ledger>(ledger: &mut L, event: Event, now: Timestamp) -> Result<Event, L::Error> {
    let Some(group) = event.group.filter(|_| event.wants_slot()) else { return Ok(event) };
    match ledger.slot(&group)? {
        Some(holder) if holder == event.id => Ok(event),
        Some(_) => Ok(event.park(now)),
        None => {
            ledger.set_slot(&group, Some(event.id))?;
            Ok(event)
        }
    }
}

/// Hands the group's slot on, if this event, which no longer wants it, holds it.
pub(super) fn release_slot<L: Ledger>(ledger: &mut L, event: &Event, now: Timestamp) -> Result<(), L::Error> {
    let Some(group) = event.group else { return Ok(()) };
    if ledger.slot(&group)? == Some(event.id) { hand_slot_on(ledger, &group, now) } else { Ok(()) }
}

/// Gives a group's slot to the parked event with the lowest turn and makes it due. If none is parked, the slot is free.
pub fn hand_slot_on<L: Ledger>(ledger: &mut L, group: &Key, now: Timestamp) -> Result<(), L::Error> {
    let next = ledger.parked(group)?;
    ledger.set_slot(group, next.as_ref().map(|row| row.event.id))?;
    if let Some(EventRow { event, keep_from }) = next
        && let Ok(event) = event.after(EventStep::Unpark, &Route::default(), now)
    {
        ledger.update(&EventRow { event, keep_from })?;
    }
    Ok(())
}
