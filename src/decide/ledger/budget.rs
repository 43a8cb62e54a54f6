//! Counts the attempts of a route against its budget: when each one began, as a state in the store, so that all nodes
//! count together.

use super::Ledger;
use super::register::{set_state, state_of};
use crate::decide::event::{Event, EventStep};
use crate::decide::id::Key;
use crate::decide::identity::key;
use crate::decide::source::{AttemptBudget, BudgetExceeded};
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::BudgetCheck;
use serde_json::{Value as Json, json};

/// The attempts that began within a budget's time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BudgetUse {
    /// When each of them began, the oldest first.
    pub starts: Vec<Timestamp>,
    /// How long each of them counts.
    within: Duration,
}

impl BudgetUse {
    /// Reads a stored count. One that cannot be read counts as empty.
    pub fn read(state: &str) -> Self {
        Self::of_json(&serde_json::from_str(state).unwrap_or_default())
    }

    /// The same, as JSON.
    pub(super) fn of_json(json: &Json) -> Self {
        let read = || {
            let starts = json["starts"].as_array()?.iter().map(|at| at.as_i64().map(Timestamp));
            Some(Self {
                starts: starts.collect::<Option<_>>()?,
                within: Duration::from_micros(json["within"].as_u64()?),
            })
        };
        read().unwrap_or_default()
    }

    /// The attempts that count at this time, as the state under the budget's key says.
    pub fn at(state: Option<&str>, budget: AttemptBudget, now: Timestamp) -> Self {
        state.map(Self::read).unwrap_or_default().counted(budget, now)
    }

    pub(super) fn to_json(&self) -> Json {
        let starts: Vec<i64> = self.starts.iter().map(|at| at.0).collect();
        let within = u64::try_from(self.within.as_micros()).unwrap_or(u64::MAX);
        json!({ "starts": starts, "within": within })
    }

    /// Those that still count at this time, at most as many as the budget has.
    pub(super) fn counted(mut self, budget: AttemptBudget, now: Timestamp) -> Self {
        self.within = budget.within;
        self.starts.retain(|at| *at + budget.within > now && *at <= now);
        let extra = self.starts.len().saturating_sub(usize::try_from(budget.runs).unwrap_or(usize::MAX));
        self.starts.drain(..extra);
        self
    }

    /// Whether one of them still counts at this time.
    fn counts(&self, now: Timestamp) -> bool {
        self.starts.iter().any(|at| *at + self.within > now)
    }

    /// When the next attempt may begin: `None` means now.
    pub fn next_start(&self, budget: AttemptBudget) -> Option<Timestamp> {
        let full = self.starts.len() >= usize::try_from(budget.runs).unwrap_or(usize::MAX);
        self.starts.first().filter(|_| full).map(|oldest| *oldest + budget.within)
    }
}

/// Counts an attempt that begins now. Returns the step of the event instead, if the budget has no room for it.
pub(super) fn take<L: Ledger>(
    ledger: &mut L,
    check: &BudgetCheck,
    now: Timestamp,
) -> Result<Option<EventStep>, L::Error> {
    let BudgetCheck { key, budget, exempt } = check;
    let mut used = BudgetUse::at(state_of(ledger, key)?.as_deref(), *budget, now);
    if let Some(until) = used.next_start(*budget).filter(|_| !exempt) {
        return Ok(Some(match budget.exceeded {
            BudgetExceeded::Wait => EventStep::WaitForBudget { lasts: until.since(now) },
            BudgetExceeded::Drop => EventStep::DropOverBudget,
        }));
    }
    used.starts.push(now);
    set_state(ledger, key, Some(&used.counted(*budget, now).to_json().to_string()))?;
    Ok(None)
}

/// Takes back the attempt that was counted last: it ended before its action began.
pub(super) fn give_back<L: Ledger>(ledger: &mut L, key: &Key) -> Result<(), L::Error> {
    let Some(state) = state_of(ledger, key)? else { return Ok(()) };
    let mut used = BudgetUse::read(&state);
    used.starts.pop();
    set_state(ledger, key, Some(&used.to_json().to_string()))
}

/// Whether an attempt of this event's group still counts against a budget.
pub(super) fn counts<L: Ledger>(ledger: &mut L, event: &Event, now: Timestamp) -> Result<bool, L::Error> {
    let Some(key) = group_key(event) else { return Ok(false) };
    Ok(state_of(ledger, &key)?.is_some_and(|state| BudgetUse::read(&state).counts(now)))
}

/// Removes the count of this event's group, if nothing of it counts any more.
pub(super) fn forget<L: Ledger>(ledger: &mut L, event: &Event, now: Timestamp) -> Result<(), L::Error> {
    let Some(key) = group_key(event) else { return Ok(()) };
    match state_of(ledger, &key)? {
        Some(state) if !BudgetUse::read(&state).counts(now) => set_state(ledger, &key, None),
        _ => Ok(()),
    }
}

/// Where the attempts of this event's group are counted, if its route has a budget for each group.
fn group_key(event: &Event) -> Option<Key> {
    event.group.map(|group| key::budget(&event.source, &event.route, Some(group)))
}
