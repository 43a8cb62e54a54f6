//! Due events that are started together.

use super::{MINUTE, SECOND, StoreUnderTest, failed, making, route, start};
use crate::decide::action_kind::ActionKind;
use crate::decide::event::{Event, EventState, EventStep};
use crate::decide::id::NodeId;
use crate::store::{StartDueRequest, StartDueResult};
use std::collections::HashSet;
use std::sync::Arc;

fn starts(limit: usize) -> StartDueRequest {
    StartDueRequest { source: "source".into(), route: Arc::new(route()), part: 0, step: start(), limit }
}

async fn started(fresh: &StoreUnderTest, starts: StartDueRequest) -> Vec<Event> {
    let StartDueResult { events, payloads, unsure } = fresh.store.start_due(starts).await.expect("the store starts");
    assert!(unsure.is_empty());
    for event in &events {
        assert_eq!(*event, fresh.get(event.id).await, "the returned event is the stored one");
    }
    for (id, payload) in payloads {
        assert!(events.iter().any(|event| event.id == id), "a payload belongs to a started event");
        assert_eq!(payload, fresh.store.payload(id).await.expect("the store reads"), "and is the stored one");
    }
    events
}

pub(super) async fn a_batch_start_writes_what_each_step_would_have_written(fresh: StoreUnderTest) {
    let plain = fresh.claimed(making().delivery("1")).await;
    let grouped = fresh.claimed(making().delivery("2").group("g")).await;
    let overtaken = fresh.claimed(making().delivery("3").change("s", "a", Some(1))).await;
    let current = fresh.claimed(making().delivery("4").change("s", "b", Some(2))).await;
    let retried = fresh.claimed(making().delivery("5")).await;
    fresh.attempt(retried.id, failed()).await;
    fresh.wait(SECOND);
    let now = fresh.store.now();
    let mut expected = Vec::new();
    for id in [plain.id, grouped.id, overtaken.id, current.id, retried.id] {
        let mut event = fresh.get(id).await.after(start(), &route(), now).expect("it may start");
        // The store's clock sets the end of the lease.
        event.state = EventState::Waiting { due: None };
        expected.push(event);
    }
    expected.sort_by_key(|event| event.id);
    let mut events = started(&fresh, starts(100)).await;
    for event in &mut events {
        let EventState::Running { until, by, action } = &event.state else { panic!("{event:?}") };
        assert!(
            *until >= now + 30 * SECOND && *by == NodeId("node".into()) && *action == Some(ActionKind::Run),
            "{event:?}"
        );
        event.state = EventState::Waiting { due: None };
    }
    events.sort_by_key(|event| event.id);
    assert_eq!(events, expected);
    assert_eq!(started(&fresh, starts(100)).await, [], "nothing is started twice");
}

pub(super) async fn events_that_need_an_ordinary_step_are_left_unchanged(fresh: StoreUnderTest) {
    let holder = fresh.claimed(making().delivery("1").group("g")).await;
    let parked = fresh.claimed(making().delivery("2").group("g")).await;
    let changed = fresh.claimed(making().delivery("3").change("s", "a", None)).await;
    fresh.attempt(changed.id, failed()).await;
    let aside = fresh.claimed(making().delivery("4")).await;
    fresh.step(aside.id, EventStep::Suspend { lasts: SECOND }).await;
    let elsewhere = fresh.claimed(making().delivery("5").route("2")).await;
    let part = fresh.claimed(making().delivery("6").part(1)).await;
    let later = fresh.claimed(making().delivery("7")).await;
    fresh.step(later.id, EventStep::Suspend { lasts: SECOND }).await;
    fresh.wait(SECOND);
    fresh.step(later.id, EventStep::Unsuspend).await;
    fresh.attempt(later.id, failed()).await; // due in a second
    let mut before = Vec::new();
    for event in [&parked, &changed, &aside, &elsewhere, &part, &later] {
        before.push(fresh.get(event.id).await);
    }
    let events = started(&fresh, starts(100)).await;
    assert_eq!(events.iter().map(|event| event.id).collect::<Vec<_>>(), [holder.id]);
    for was in &before {
        assert_eq!(*was, fresh.get(was.id).await);
    }
    // They are still due, and an ordinary step finds them.
    let due = fresh.due().await;
    for event in [&changed, &aside, &elsewhere, &part] {
        assert!(due.contains(&event.id), "{event:?}");
    }
    assert!(matches!(fresh.start(changed.id).await.state, EventState::Running { .. }));
    fresh.wait(MINUTE);
    assert_eq!(started(&fresh, starts(100)).await.len(), 1, "it needs no register, and is due now");
}

pub(super) async fn concurrent_starts_get_different_events(fresh: StoreUnderTest) {
    let mut all = HashSet::new();
    for n in 0..40 {
        all.insert(fresh.claimed(making().delivery(&n.to_string())).await.id);
    }
    let first = started(&fresh, starts(3)).await;
    assert_eq!(first.len(), 3, "no more than requested");
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let store = fresh.store.clone();
        tasks.push(tokio::spawn(async move { store.start_due(starts(10)).await.expect("the store starts").events }));
    }
    let mut events = first;
    for task in tasks {
        events.extend(task.await.expect("it ends"));
    }
    // A call may have found the remaining events locked by others; no event is returned twice.
    events.extend(started(&fresh, starts(100)).await);
    fresh.wait(2 * SECOND); // longer than a store may reserve events for a node that starts them
    events.extend(started(&fresh, starts(100)).await);
    let ids: HashSet<_> = events.iter().map(|event| event.id).collect();
    assert_eq!((ids.len(), events.len()), (40, 40));
    assert_eq!(ids, all);
}
