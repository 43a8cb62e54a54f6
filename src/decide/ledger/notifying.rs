//! Writes the notifications of an event together with its end, so that no crash loses one and none is made twice. They
//! are counted for each target: beyond its limit, one more says how many there were.

use super::budget::BudgetUse;
use super::forgetting::remove_with_output;
use super::register::{set_state, state_of};
use super::{EventRow, Ledger};
use crate::decide::event::{Event, EventState, EventStep, Origin, QueueState};
use crate::decide::id::{Digest, EventId, Key};
use crate::decide::identity::key;
use crate::decide::limits;
use crate::decide::notification::{EndDescription, NotificationKind, NotificationTarget};
use crate::decide::source::{AttemptBudget, BudgetExceeded, BudgetScope, Route};
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::Transition;
use serde_json::{Value as Json, json};

/// The time within which the notifications of a target are limited.
const WITHIN: Duration = Duration::from_hours(1);

/// The notifications of a target within the last hour.
#[derive(Default)]
struct NotificationCount {
    /// When each of them was made.
    sent: BudgetUse,
    /// How many more there would have been since.
    more: u64,
    /// The summary that will tell of those, and when.
    summary: Option<(EventId, Timestamp)>,
}

impl NotificationCount {
    /// Reads a stored count. One that cannot be read counts as empty.
    fn read(state: &str) -> Self {
        let json: Json = serde_json::from_str(state).unwrap_or_default();
        let summary = || {
            let id = json["summary"]["event"].as_str()?.parse().ok()?;
            Some((id, Timestamp(json["summary"]["due"].as_i64()?)))
        };
        Self { sent: BudgetUse::of_json(&json), more: json["more"].as_u64().unwrap_or(0), summary: summary() }
    }

    fn to_state(&self) -> String {
        let mut json = self.sent.to_json();
        json["more"] = self.more.into();
        json["summary"] = self.summary.map_or(Json::Null, |(id, due)| json!({ "event": id.to_string(), "due": due.0 }));
        json.to_string()
    }

    /// Whether its summary is still to come. One that is overdue still is while it waits, such as for a target that
    /// is down. One that was forgotten or cancelled is not waited for without end.
    fn expects_summary<L: Ledger>(&self, ledger: &mut L, now: Timestamp) -> Result<bool, L::Error> {
        let Some((id, due)) = self.summary else { return Ok(false) };
        Ok(now < due + WITHIN || ledger.row(id)?.is_some_and(|row| row.event.state.ended().is_none()))
    }
}

/// The limit of a target as a budget.
fn budget(target: &NotificationTarget) -> AttemptBudget {
    AttemptBudget { runs: target.per_hour, within: WITHIN, exceeded: BudgetExceeded::Drop, per: BudgetScope::Route }
}

/// The records that `tell` and `fill_summary` may read for this transition: the counts, and the notifications that
/// there may be already. The overdue summary of a count is read when it is asked for.
pub fn notification_records(change: &Transition) -> (Vec<Key>, Vec<EventId>) {
    if change.notify.is_empty() {
        return (Vec::new(), Vec::new());
    }
    if let Some(Origin::Notification { of, kind: NotificationKind::Summary }) = change.event.origin {
        return (change.notify.iter().map(|target| target.counted_at).collect(), vec![of]);
    }
    let mut event = change.event.clone();
    if change.budget.is_some_and(|check| check.budget.exceeded == BudgetExceeded::Drop) {
        // Without room in its budget it ends instead.
        event = event.after(EventStep::Cancel, &Route::default(), change.now).unwrap_or(event);
    }
    let told = change.notify.iter().filter_map(|target| Some((target, target.tells(&event)?)));
    let of_target = |(target, kind): (&NotificationTarget, NotificationKind)| {
        let id = |kind: NotificationKind| key::notification(&event, kind.word(), &target.route);
        (target.counted_at, [id(kind), id(NotificationKind::Summary)])
    };
    let (counts, ids): (Vec<_>, Vec<_>) = told.map(of_target).unzip();
    (counts, ids.concat())
}

/// Makes the notifications of an event that this write ends, and notes them in it.
pub(super) fn tell<L: Ledger>(
    ledger: &mut L,
    change: &Transition,
    was: &Event,
    event: &mut Event,
    now: Timestamp,
) -> Result<(), L::Error> {
    if was.state.ended().is_some() || event.state.ended().is_none() {
        return Ok(());
    }
    let why = change.attempt.as_ref().map_or("", |tried| &*tried.why);
    for target in change.notify.iter() {
        let Some(kind) = target.tells(event) else { continue };
        if ledger.row(key::notification(event, kind.word(), &target.route))?.is_some() {
            continue;
        }
        let described = EndDescription::of(event, kind, why, now);
        let mut count = read_count(ledger, &target.counted_at)?;
        count.sent = count.sent.counted(budget(target), now);
        let reopens = count.sent.next_start(budget(target));
        if let Some(reopens) = reopens {
            count.more += 1;
            let id = key::notification(event, NotificationKind::Summary.word(), &target.route);
            if target.summary && !count.expects_summary(ledger, now)? && ledger.row(id)?.is_none() {
                count.summary = Some((id, reopens));
                insert(ledger, event, NotificationKind::Summary, target, &described.into_summary(0), reopens, now)?;
            }
        } else {
            count.sent.starts.push(now);
            insert(ledger, event, kind, target, &described, now, now)?;
        }
        set_state(ledger, &target.counted_at, Some(&count.to_state()))?;
    }
    Ok(())
}

/// Writes one notification, and notes it in the event that it tells of.
fn insert<L: Ledger>(
    ledger: &mut L,
    of: &mut Event,
    kind: NotificationKind,
    target: &NotificationTarget,
    described: &EndDescription,
    due: Timestamp,
    now: Timestamp,
) -> Result<(), L::Error> {
    let (mut event, payload) = of.notification(kind, target, described, due, now);
    event.turn = ledger.next_turn();
    of.notifications.push(event.id);
    ledger.insert(&EventRow { event, keep_from: None }, Some(&payload))?;
    // Each life adds some: of an event that is replayed again and again, the oldest are forgotten.
    while of.notifications.len() > limits::NOTIFICATIONS_PER_EVENT_MAX {
        let oldest = of.notifications.remove(0);
        remove_with_output(ledger, oldest)?;
    }
    Ok(())
}

/// Writes into a summary that begins how many notifications it stands for. From then on, others are counted for the
/// next one.
pub(super) fn fill_summary<L: Ledger>(
    ledger: &mut L,
    change: &Transition,
    event: &mut Event,
    now: Timestamp,
) -> Result<(), L::Error> {
    if !event.is_summary() || !matches!(event.state, EventState::Running { .. }) {
        return Ok(());
    }
    let Some(target) = change.notify.first() else { return Ok(()) };
    let mut count = read_count(ledger, &target.counted_at)?;
    if count.summary.is_none_or(|(id, _)| id != event.id) {
        return Ok(());
    }
    let of = match event.origin {
        Some(Origin::Notification { of, .. }) => ledger.row(of)?,
        _ => None,
    };
    let of = of.as_ref().map_or(&*event, |row| &row.event);
    let payload = EndDescription::of(of, NotificationKind::Summary, "", now).into_summary(count.more).to_payload();
    event.body_digest = Digest::of(&payload.body);
    event.digest = event.immutable_digest();
    ledger.set_payload(event, &payload)?;
    (count.more, count.summary) = (0, None);
    count.sent = count.sent.counted(budget(target), now);
    count.sent.starts.push(now);
    set_state(ledger, &target.counted_at, Some(&count.to_state()))
}

fn read_count<L: Ledger>(ledger: &mut L, key: &Key) -> Result<NotificationCount, L::Error> {
    Ok(state_of(ledger, key)?.map(|state| NotificationCount::read(&state)).unwrap_or_default())
}

/// Whether one of an event's notifications is still to be sent. One whose target is gone is not waited for.
pub(super) fn has_unsent<L: Ledger>(ledger: &mut L, event: &Event) -> Result<bool, L::Error> {
    for id in &event.notifications {
        if let Some(row) = ledger.row(*id)?
            && row.event.state.ended().is_none()
            && row.event.queue_state != QueueState::Suspended
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the notifications of an event that is removed.
pub(super) fn remove_notifications<L: Ledger>(ledger: &mut L, event: &Event) -> Result<(), L::Error> {
    event.notifications.iter().try_for_each(|id| remove_with_output(ledger, *id))
}
