//! Starting due events, many in one write. Nodes that drain the same backlog get different events: each skips those
//! that another node is starting.

use super::{AdvanceResult, DueQuery, Store, StoreError, StoredValue};
use crate::decide::claim::Payload;
use crate::decide::event::{Event, EventStep};
use crate::decide::id::EventId;
use crate::decide::ledger::EventRow;
use crate::decide::source::Route;
use crate::decide::time::Timestamp;
use crate::decide::transition::Transition;
use std::collections::HashMap;
use std::sync::Arc;

/// Which due events to start, and how.
#[derive(Clone, Debug)]
pub struct StartDueRequest {
    /// Of this source.
    pub source: Arc<str>,
    /// On this route.
    pub route: Arc<Route>,
    /// For this receiver of the route.
    pub part: u16,
    /// With this step, an [`EventStep::Start`].
    pub step: EventStep,
    /// How many due events to consider, from the first. Those that need an ordinary step are left as they are.
    pub limit: usize,
}

/// The result of a [`StartDueRequest`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StartDueResult {
    /// The started events.
    pub events: Vec<Event>,
    /// Payloads of started events that the store read along with them. The others are read one by one.
    pub payloads: HashMap<EventId, StoredValue<Payload>>,
    /// Events that may have been started: the store did not confirm the write. As they were before.
    pub unsure: Vec<Event>,
}

impl StartDueRequest {
    /// The query that finds the events.
    pub fn look(&self) -> DueQuery {
        DueQuery::Receiver(self.source.clone(), self.route.name.clone(), self.part..=self.part)
    }

    /// The transition that starts this event, if it matches and can be decided by its own row alone.
    pub fn change(&self, event: &Event, now: Timestamp) -> Option<Transition> {
        let due = self.look().finds(event) && event.state.wake_at().is_some_and(|at| at <= now);
        if due { event.start_alone(&self.step, &self.route, now) } else { None }
    }

    /// The row of the started event, for a store that has the row locked meanwhile: what
    /// [`ledger::advance`](crate::decide::ledger::advance) would write.
    pub fn row(&self, row: &EventRow, now: Timestamp) -> Option<EventRow> {
        let change = self.change(&row.event, now)?;
        Some(EventRow { event: change.resolve(None, now), keep_from: None })
    }

    /// Starts them with [`due`](Store::due) and [`advance`](Store::advance), for a store that one node writes.
    pub async fn by_steps<S: Store + ?Sized>(self, store: &S) -> Result<StartDueResult, StoreError> {
        let due = store.due(self.look(), self.limit).await?.events;
        let now = store.now();
        let (was, changes): (Vec<_>, Vec<_>) =
            due.into_iter().filter_map(|event| self.change(&event, now).map(|change| (event, change))).unzip();
        if changes.is_empty() {
            return Ok(StartDueResult::default());
        }
        match store.advance(changes).await {
            Ok(advances) => {
                let written = advances.into_iter().filter_map(|advance| match advance {
                    AdvanceResult::Written { event, .. } => Some(*event),
                    AdvanceResult::Lost => None,
                });
                Ok(StartDueResult { events: written.collect(), ..StartDueResult::default() })
            }
            Err(StoreError::Unsure(_)) => Ok(StartDueResult { unsure: was, ..StartDueResult::default() }),
            Err(error) => Err(error),
        }
    }
}
