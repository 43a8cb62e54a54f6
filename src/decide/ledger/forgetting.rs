//! Decides which events have expired, and removes them with everything that belongs to them.

use super::advancing::release_slot;
use super::budget;
use super::notifying::{has_unsent, remove_notifications};
use super::register::write_register;
use super::{EventRow, Ledger, SubjectRegister, SweepLedger, register_of};
use crate::decide::event::Event;
use crate::decide::expiry_clock::ExpiryTime;
use crate::decide::id::EventId;
use crate::decide::shared_output::SharedOutput;
use crate::decide::source::{Keep, Retention, Source};
use crate::decide::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// The retention of each source's events. Events of a source that is not listed are not removed.
#[derive(Clone, Debug, Default)]
pub struct RetentionPolicies {
    /// By the source's name.
    pub sources: HashMap<Arc<str>, Retention>,
}

impl RetentionPolicies {
    /// The policies of a config. The events of a renamed source have its old name, which is its scope now; where that
    /// is also another source's name, the longer retention counts.
    pub fn of_sources<'s>(sources: impl Iterator<Item = &'s Source>) -> Self {
        Self::under(sources.map(|source| ([&source.scope, &source.name], source.once.kept())))
    }

    fn under<'s>(sources: impl Iterator<Item = ([&'s Arc<str>; 2], Retention)>) -> Self {
        let mut policies = Self::default();
        for (names, kept) in sources {
            for name in names {
                policies.sources.entry(name.clone()).and_modify(|other| *other = other.longest(kept)).or_insert(kept);
            }
        }
        policies
    }
}

/// The result of removing one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovalResult {
    /// It is removed, and so are its keys.
    Removed,
    /// It is waiting or running, and stays.
    NotOver,
    /// There is no such event.
    Unknown,
}

/// How much was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForgetCounts {
    /// Events, with their keys.
    pub events: u64,
    /// Bodies, with receipts and output.
    pub bodies: u64,
}

/// Whether the retention of this event has ended, and its notifications are sent. It never ends while the event carries
/// its register's order: an equal order is not stale.
pub(super) fn has_expired<L: Ledger>(
    ledger: &mut L,
    row: &EventRow,
    keep: Keep,
    by: ExpiryTime,
) -> Result<bool, L::Error> {
    let (Some(from), Keep::For(length)) = (row.keep_from, keep) else { return Ok(false) };
    if from + length > by.0 || has_unsent(ledger, &row.event)? {
        return Ok(false);
    }
    match row.event.change {
        Some(change) if change.order.is_some() => {
            Ok(ledger.register(&change.subject)?.is_none_or(|register| register.order != change.order))
        }
        _ => Ok(true),
    }
}

/// Removes one event that has ended, whatever its retention. A register that names the event would match its next
/// delivery with nothing, so it is removed too. If the event still holds a slot, the slot is handed on.
pub fn remove<L: Ledger>(ledger: &mut L, id: EventId, now: Timestamp) -> Result<RemovalResult, L::Error> {
    let Some(EventRow { event, .. }) = ledger.row(id)? else { return Ok(RemovalResult::Unknown) };
    if event.state.ended().is_none() {
        return Ok(RemovalResult::NotOver);
    }
    if let (Some(change), Some(register)) = (event.change, register_of(ledger, &event)?) {
        if register.event == id {
            let bare = SubjectRegister { note: None, ..register.clone() };
            write_register(ledger, &change.subject, &register, &bare, now)?;
            ledger.remove_register(&change.subject)?;
        } else if register.names(id) {
            let others = register.deployments().without(id);
            ledger.set_register(&change.subject, &register.with_deployments(&others))?;
        }
    }
    release_slot(ledger, &event, now)?;
    remove_whole(ledger, &event, now)?;
    Ok(RemovalResult::Removed)
}

/// Removes one event if it has expired; returns whether it was removed. One whose group still counts against a budget is
/// left for a later sweep: it may be the last that could remove the count.
pub fn forget_one<L: Ledger>(ledger: &mut L, id: EventId, keep: Keep, by: ExpiryTime) -> Result<bool, L::Error> {
    let Some(row) = ledger.row(id)? else { return Ok(false) };
    let goes = has_expired(ledger, &row, keep, by)? && !budget::counts(ledger, &row.event, by.0)?;
    if goes {
        remove_expired(ledger, &row, by)?;
    }
    Ok(goes)
}

/// Removes an event that has expired, and what was kept only for it, such as the register of its queue.
pub(super) fn remove_expired<L: Ledger>(ledger: &mut L, row: &EventRow, by: ExpiryTime) -> Result<(), L::Error> {
    let event = &row.event;
    if event.has_queue_as_subject()
        && let (Some(change), Some(register)) = (event.change, register_of(ledger, event)?)
        && register.event == event.id
    {
        ledger.remove_register(&change.subject)?;
    }
    remove_whole(ledger, event, by.0)
}

/// Removes an event with its notifications, and the count of its group's budget once that is over.
fn remove_whole<L: Ledger>(ledger: &mut L, event: &Event, now: Timestamp) -> Result<(), L::Error> {
    budget::forget(ledger, event, now)?;
    remove_notifications(ledger, event)?;
    remove_with_output(ledger, event.id)
}

/// Removes an event, and what a node may have shared of its output: if that could not be removed when the attempt ended,
/// it is still there. It is not read before, because there is nothing for almost all events.
pub(super) fn remove_with_output<L: Ledger>(ledger: &mut L, id: EventId) -> Result<(), L::Error> {
    ledger.remove_register(&SharedOutput::key(id))?;
    ledger.remove(id)
}

/// Removes what has expired: at most `limit` events and as many bodies.
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

/// How many events [`forget`] would remove by this time: at most `limit`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::time::Duration;

    const DAY: Duration = Duration::from_hours(24);

    fn kept(days: Option<u32>, body: u32) -> Retention {
        Retention { keys: days.map_or(Keep::Forever, |days| Keep::For(DAY * days)), body: DAY * body }
    }

    #[test]
    fn a_policy_applies_to_name_and_scope_and_where_two_apply_the_longer_counts() {
        let names: [[Arc<str>; 2]; 3] =
            [["old", "new"], ["older", "old"], ["x", "x"]].map(|names| names.map(Into::into));
        let each = [kept(Some(365), 1), kept(Some(3), 7), kept(None, 1)];
        let keeps = RetentionPolicies::under(names.iter().zip(each).map(|([scope, name], kept)| ([scope, name], kept)));
        let mut all: Vec<_> = keeps.sources.iter().map(|(name, kept)| (&**name, *kept)).collect();
        all.sort_by_key(|(name, _)| *name);
        let [new, old, older, x] = [kept(Some(365), 1), kept(Some(365), 7), kept(Some(3), 7), kept(None, 1)];
        assert_eq!(all, [("new", new), ("old", old), ("older", older), ("x", x)]);
    }
}
