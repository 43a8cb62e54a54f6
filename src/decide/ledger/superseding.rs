//! A newer event becomes its subject's current one, and ends the one that waits: by a claim, or by an operator's replay.

use super::advancing::write;
use super::register::begin_retention;
use super::{Ledger, SubjectRegister};
use crate::decide::event::Event;
use crate::decide::id::QueueTurn;
use crate::decide::source::WhenBusy;
use crate::decide::time::Timestamp;

/// Makes an event that an operator replays its subject's current one. The register keeps the highest order seen.
pub(super) fn make_current<L: Ledger>(
    ledger: &mut L,
    event: &Event,
    when_busy: WhenBusy,
    now: Timestamp,
) -> Result<(), L::Error> {
    let Some(change) = event.change else { return Ok(()) };
    let was = ledger.register(&change.subject)?;
    let order = was.as_ref().and_then(|register| register.order).max(change.order);
    let mut register = SubjectRegister::new(change.value, order, event.id);
    (register.strict, register.note) = (order.is_some(), was.as_ref().and_then(|was| was.note.clone()));
    ledger.set_register(&change.subject, &register)?;
    if let Some(was) = was.filter(|was| was.event != event.id) {
        supersede_previous(ledger, &was, &register, event, when_busy, now)?;
    }
    Ok(())
}

/// What an event takes over from the one whose place it takes.
#[derive(Clone, Copy)]
pub(super) struct InheritedPlace {
    /// Its position in the queue: a subject that is changed again and again must not wait for ever.
    pub(super) turn: QueueTurn,
    /// When its burst began.
    pub(super) burst_since: Option<Timestamp>,
}

/// Ends the event that was its subject's current one until `by` became it, if it waits and need not run. If it has ended
/// already, its retention begins. Returns the place of an event that would have run.
pub(super) fn supersede_previous<L: Ledger>(
    ledger: &mut L,
    was: &SubjectRegister,
    is: &SubjectRegister,
    by: &Event,
    when_busy: WhenBusy,
    now: Timestamp,
) -> Result<Option<InheritedPlace>, L::Error> {
    let Some(row) = ledger.row(was.event)? else { return Ok(None) };
    if let Some(event) = row.event.supersede(by, when_busy, now) {
        let place = InheritedPlace { turn: row.event.turn, burst_since: row.event.burst_since };
        write(ledger, &row, event, now)?;
        ledger.drop_transient_headers(was.event)?;
        return Ok(Some(place).filter(|_| row.event.owed_first_attempt()));
    }
    if !is.names(was.event) {
        begin_retention(ledger, was.event, now)?;
    }
    Ok(None)
}
