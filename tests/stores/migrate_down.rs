//! `migrate down` from the version that has notifications and roll-backs: earlier versions act on neither.

use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::event::{DeathCause, Event, EventState, EventStep, Outcome, SucceededBlocks};
use hookonce::decide::id::{EventId, Key, NodeId};
use hookonce::decide::notification::{NotificationKind, NotificationTarget};
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::{Keep, OnUnhealthy, Retention, Route};
use hookonce::decide::time::Duration;
use hookonce::internals::cli::migrate::{self, DataLossConsent};
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::{TestEventBuilder, making};
use hookonce::store::open::StoreUrl;
use hookonce::store::{AdvanceResult, Inspect, RetentionPolicies, StoredValue};
use std::path::Path;
use std::sync::Arc;

/// The schema version before.
const BEFORE: u32 = 7;

/// A route that rolls back, and tells of each end.
fn route() -> Route {
    let ops = NotificationTarget {
        route: "notify:ops".into(),
        on: NotificationKind::ALL.to_vec(),
        needs: Vec::new(),
        counted_at: Key([1; 32]),
        per_hour: 20,
        summary: true,
    };
    Route { on_unhealthy: OnUnhealthy::Rollback, notify: Arc::new([ops]), ..Route::default() }
}

async fn claim(store: &dyn Inspect, one: TestEventBuilder) -> EventId {
    match store.claim(vec![one.made(store.now()).into()]).await.unwrap().remove(0) {
        ClaimResult::New { event, .. } => event.id,
        other => panic!("{other:?}"),
    }
}

async fn step(store: &dyn Inspect, id: EventId, step: EventStep) -> Event {
    let change = store.get(id).await.unwrap().unwrap().transition(step, &route(), store.now()).unwrap();
    match store.advance(vec![change]).await.unwrap().remove(0) {
        AdvanceResult::Written { event, .. } => *event,
        AdvanceResult::Lost => panic!("lost"),
    }
}

async fn attempt(store: &dyn Inspect, id: EventId, outcome: Outcome) -> Event {
    let lasts = Duration::from_mins(1);
    step(store, id, EventStep::Start { lasts, by: NodeId("node".into()), action: ActionKind::Run }).await;
    step(store, id, EventStep::Settle { outcome, blocks: SucceededBlocks(0), jitter: Jitter(0) }).await
}

/// What is in the store before it is taken down.
struct FilledStore {
    good: EventId,
    bad: EventId,
    rollback: EventId,
    parked: [EventId; 2],
    notifications: Vec<EventId>,
}

/// A roll-back that holds its group's slot, two events behind it, and notifications that are not sent yet.
async fn fill(store: &dyn Inspect) -> FilledStore {
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let good = claim(store, new("1")).await;
    attempt(store, good, Outcome::Delivered(None)).await;
    let bad = claim(store, new("2")).await;
    let dead = attempt(store, bad, Outcome::Unhealthy { why: "no".into(), receipt: None }).await;
    let other = |id: &str| making().delivery(id).group("app");
    let parked = [claim(store, other("3")).await, claim(store, other("4")).await];
    for id in parked {
        assert_eq!(store.get(id).await.unwrap().unwrap().state, EventState::Waiting { due: None });
    }
    let good = store.get(good).await.unwrap().unwrap();
    let notifications: Vec<_> = good.notifications.iter().copied().chain(dead.notifications.clone()).collect();
    assert_eq!(notifications.len(), 2);
    let rollback = dead.rollback_id();
    assert!(matches!(store.get(rollback).await.unwrap().unwrap().state, EventState::Waiting { due: Some(_) }));
    FilledStore { good: good.id, bad, rollback, parked, notifications }
}

async fn check_nothing_acts(store: &dyn Inspect, filled: &FilledStore) {
    for id in &filled.notifications {
        assert_eq!(store.get(*id).await.unwrap(), None);
        assert_eq!(store.payload(*id).await.unwrap(), StoredValue::Forgotten);
    }
    for id in [filled.rollback, filled.bad] {
        let event = store.get(id).await.unwrap().unwrap();
        assert!(matches!(event.state, EventState::Dead { cause: DeathCause::Cancelled, .. }), "{event:?}");
    }
    let [waiting, _] = crate::due(store, 10).await.unwrap();
    assert_eq!(waiting.events.iter().map(|event| event.id).collect::<Vec<_>>(), filled.parked[..1]);
    attempt(store, filled.parked[0], Outcome::Delivered(None)).await;
    let [waiting, _] = crate::due(store, 10).await.unwrap();
    let next = waiting.events.iter().map(|event| event.id).find(|id| *id == filled.parked[1]);
    assert!(next.is_some(), "the slot is handed on as ever");
    let kept = Retention { keys: Keep::For(Duration::ZERO), body: Duration::ZERO };
    let keeps = RetentionPolicies { sources: [("source".into(), kept)].into() };
    store.forget(Arc::new(keeps), 10).await.unwrap();
    assert_eq!(store.get(filled.good).await.unwrap(), None, "it is no longer the last good one");
    assert!(store.get(filled.bad).await.unwrap().is_some(), "it is its subject's current event");
}

#[tokio::test]
async fn on_sqlite_neither_notifications_nor_roll_backs_act_after_migrate_down() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hookonce.db");
    let store = crate::sqlite::node(&path);
    let filled = fill(&store).await;
    drop(store);
    migrate::down(&path, BEFORE, DataLossConsent::Given, &mut Vec::new()).unwrap();
    check_nothing_acts(&crate::sqlite::node(&path), &filled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_neither_notifications_nor_roll_backs_act_after_migrate_down() {
    let server = crate::postgres_server::Server::start().await;
    let database = server.database().await;
    let store = crate::postgres::open(&server, &database, StoreClock::server()).await;
    let filled = fill(&store).await;
    drop(store);
    let url = server.url(&database);
    let Ok(StoreUrl::Postgres(url)) = StoreUrl::parse(&url, Path::new("")) else { panic!("{url}") };
    while let Err(error) = migrate::postgres::down(&url, BEFORE, DataLossConsent::Given, &mut Vec::new()).await {
        assert!(error.to_string().contains("a node is running"), "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    check_nothing_acts(&crate::postgres::open(&server, &database, StoreClock::server()).await, &filled).await;
}
