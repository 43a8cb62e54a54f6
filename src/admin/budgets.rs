//! Budgets: how many attempts each route has used of those that it may begin, and what waits for room.

use super::AdminState;
use super::openapi::{BudgetExceededWord, BudgetScopeWord};
use crate::decide::event::{EventState, QueueState};
use crate::decide::ledger::BudgetUse;
use crate::decide::source::{AttemptBudget, BudgetExceeded, BudgetScope, Route, Source};
use crate::decide::time::{Duration, Timestamp, duration_text};
use crate::store::{EventQuery, Inspect, StoreError};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

/// How long a count is reused.
const COUNT_STANDS: Duration = Duration::from_secs(1);
/// How long the store may take to count.
const COUNT_TIME: Duration = Duration::from_secs(2);

/// The budget of a route, and how much of it is used.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct BudgetUseView {
    pub(super) source: String,
    pub(super) route: String,
    /// How many attempts may begin.
    pub(super) runs: u32,
    /// Within this time.
    within: String,
    /// What it is counted for.
    per: BudgetScopeWord,
    /// What happens to an event beyond it.
    exceeded: BudgetExceededWord,
    /// Attempts of all nodes that count now. null: each group has a count of its own.
    #[schema(required)]
    pub(super) used: Option<usize>,
    /// When the next attempt may begin; of groups: the first of those that wait. null: now.
    #[schema(required)]
    next_at: Option<Timestamp>,
    /// Events that wait for it, among the newest 500 that wait on the route.
    waiting: usize,
}

/// The last count of what budgets are used for.
#[derive(Default)]
pub(crate) struct BudgetUseCache(Mutex<Option<(Instant, Arc<[BudgetUseView]>)>>);

impl BudgetUseCache {
    /// The budgets of this node's routes, counted now or a moment ago. Empty where the store does not respond.
    pub(super) async fn now(&self, state: &AdminState) -> Arc<[BudgetUseView]> {
        let mut last = self.0.lock().await;
        if let Some((_, counted)) = last.as_ref().filter(|(at, _)| at.elapsed() < COUNT_STANDS) {
            return counted.clone();
        }
        let counted = timeout(COUNT_TIME, count_all(&*state.store, &state.sources)).await;
        let counted: Arc<[BudgetUseView]> = counted.ok().and_then(Result::ok).unwrap_or_default().into();
        *last = Some((Instant::now(), counted.clone()));
        counted
    }
}

async fn count_all(store: &dyn Inspect, sources: &[Arc<Source>]) -> Result<Vec<BudgetUseView>, StoreError> {
    let mut counted = Vec::new();
    for source in sources {
        for route in &source.routes {
            if let Some(budget) = route.budget {
                counted.push(count(store, source, route, budget).await?);
            }
        }
    }
    Ok(counted)
}

async fn count(
    store: &dyn Inspect,
    source: &Source,
    route: &Route,
    budget: AttemptBudget,
) -> Result<BudgetUseView, StoreError> {
    let mut shown = BudgetUseView {
        source: source.name.to_string(),
        route: route.name.to_string(),
        runs: budget.runs,
        within: duration_text(budget.within),
        per: match budget.per {
            BudgetScope::Route => "route".into(),
            BudgetScope::Group => "group".into(),
        },
        exceeded: match budget.exceeded {
            BudgetExceeded::Wait => "wait".into(),
            BudgetExceeded::Drop => "drop".into(),
        },
        used: None,
        next_at: None,
        waiting: 0,
    };
    if let Some(key) = budget.route_key(&source.name, &route.name) {
        let used = BudgetUse::at(store.state(key).await?.as_deref(), budget, store.now());
        (shown.used, shown.next_at) = (Some(used.starts.len()), used.next_start(budget));
    }
    // While there is room, nothing waits for it.
    if budget.exceeded == BudgetExceeded::Wait && (shown.used.is_none() || shown.next_at.is_some()) {
        let query = EventQuery {
            source: Some(shown.source.clone()),
            route: Some(shown.route.clone()),
            state: Some("waiting".into()),
            limit: super::LIST_MAX,
            ..EventQuery::default()
        };
        let events = store.page(query).await?.events;
        let due = events.iter().filter_map(|event| match (event.queue_state, &event.state) {
            (QueueState::OverBudget, EventState::Waiting { due }) => *due,
            _ => None,
        });
        shown.waiting = due.clone().count();
        shown.next_at = shown.next_at.or(due.min());
    }
    Ok(shown)
}
