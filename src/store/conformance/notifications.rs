//! Notifications: each is written with the end that it tells of, once, and is forgotten with it; there are only so many
//! in an hour.

use super::deploys::step_on;
use super::{DAY, MINUTE, StoreUnderTest, dead_of, delivered, making, rejected, route, start};
use crate::decide::event::{DeathCause, Event, EventState, EventStep, Origin, Outcome, QueueState, SucceededBlocks};
use crate::decide::id::{EventId, Key};
use crate::decide::limits;
use crate::decide::notification::{EndDescription, NotificationKind, NotificationTarget};
use crate::decide::retry::Jitter;
use crate::decide::source::{AttemptBudget, BudgetExceeded, BudgetScope, Keep, OnUnhealthy, Retention, Route};
use crate::store::{AdvanceResult, EventQuery, RemovalResult, RetentionPolicies, StoredValue};
use std::sync::Arc;

const KEPT: Retention = Retention { keys: Keep::For(DAY), body: DAY };

fn target(name: &str, on: &[NotificationKind]) -> NotificationTarget {
    NotificationTarget {
        route: format!("notify:{name}").into(),
        on: on.to_vec(),
        needs: Vec::new(),
        counted_at: Key([u8::try_from(name.len()).expect("a short name"); 32]),
        per_hour: limits::NOTIFICATIONS_PER_HOUR,
        summary: true,
    }
}

/// A route whose ends are told to `ops`, and its failures also to `night`.
fn telling() -> Route {
    let ops = target("ops", &[NotificationKind::Dead, NotificationKind::Done]);
    Route { notify: Arc::new([ops, target("night", &[NotificationKind::Dead])]), ..route() }
}

/// The route of the notifications to `ops`.
fn lane() -> Route {
    Route { name: "notify:ops".into(), notify: Arc::new([target("ops", &[NotificationKind::Dead])]), ..route() }
}

fn settle(outcome: Outcome) -> EventStep {
    EventStep::Settle { outcome, blocks: SucceededBlocks::default(), jitter: Jitter(0) }
}

/// One attempt with this outcome on the route that tells.
async fn end(fresh: &StoreUnderTest, id: EventId, outcome: Outcome) -> Event {
    step_on(fresh, id, start(), &telling()).await;
    step_on(fresh, id, settle(outcome), &telling()).await
}

async fn described(fresh: &StoreUnderTest, id: EventId) -> EndDescription {
    let event = fresh.get(id).await;
    match fresh.store.payload(id).await.expect("the store reads") {
        StoredValue::Whole(payload) => EndDescription::read(&event, &payload.body).expect("it is a description"),
        other => panic!("no body: {other:?}"),
    }
}

/// The notifications to `ops`, the newest first.
async fn told(fresh: &StoreUnderTest) -> Vec<Event> {
    let query = EventQuery { route: Some("notify:ops".into()), limit: 100, ..EventQuery::default() };
    fresh.store.list(query).await.expect("the store lists")
}

fn keeps() -> Arc<RetentionPolicies> {
    let mut keeps = RetentionPolicies::default();
    keeps.sources.insert("source".into(), KEPT);
    Arc::new(keeps)
}

pub(super) async fn a_notification_is_written_with_the_end_that_it_tells_of_and_once(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("1").group("g").change("app", "1", None)).await;
    let dead = end(&fresh, event.id, rejected()).await;
    assert_eq!(dead.notifications.len(), 2, "one for each target");
    assert_eq!(fresh.get(event.id).await, dead);
    let first = fresh.get(dead.notifications[0]).await;
    assert_eq!(first.origin, Some(Origin::Notification { of: event.id, kind: NotificationKind::Dead }));
    assert_eq!((&*first.source, &*first.route, first.part), ("source", "notify:ops", 0));
    assert_eq!((first.group, first.change, &first.fields), (None, None, &event.fields));
    assert_eq!((first.state.word(), first.immutable_digest()), ("waiting", first.digest));
    let mut due = fresh.due().await;
    due.sort();
    let mut expected = dead.notifications.clone();
    expected.sort();
    assert_eq!(due, expected, "both are due, and hold no slot of the group");
    let tells = described(&fresh, first.id).await;
    assert_eq!((tells.event, &*tells.route, &*tells.state, &*tells.cause), (event.id, "1", "dead", "rejected"));

    let again = step_on(&fresh, event.id, EventStep::Rearm, &telling()).await;
    assert_eq!(end(&fresh, again.id, rejected()).await.notifications, dead.notifications, "the same life is told once");
    step_on(&fresh, event.id, EventStep::Replay, &telling()).await;
    let done = end(&fresh, event.id, delivered()).await;
    assert_eq!(done.notifications.len(), 3, "only `ops` is told that it is done");
    let last = fresh.get(done.notifications[2]).await;
    assert_eq!(last.origin, Some(Origin::Notification { of: event.id, kind: NotificationKind::Done }));

    // A notification that fails is told to nobody, and what is superseded or only recorded neither.
    step_on(&fresh, first.id, start(), &lane()).await;
    let failed = step_on(&fresh, first.id, settle(rejected()), &lane()).await;
    assert_eq!((failed.state.word(), failed.notifications.len()), ("dead", 0));
    let other = fresh.claimed(making().delivery("2").recorded()).await;
    assert_eq!(other.notifications, []);
    assert_eq!(told(&fresh).await.len(), 2);
}

pub(super) async fn a_rollback_is_told_when_it_has_ended(fresh: StoreUnderTest) {
    let rolls_back = Route {
        on_unhealthy: OnUnhealthy::Rollback,
        notify: Arc::new([target("ops", &[NotificationKind::Rollback]), target("night", &[NotificationKind::Done])]),
        ..route()
    };
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let run = async |id: EventId, outcome: Outcome| {
        step_on(&fresh, id, start(), &rolls_back).await;
        step_on(&fresh, id, settle(outcome), &rolls_back).await
    };
    let unhealthy = || Outcome::Unhealthy { why: "no answer".into(), receipt: None };
    let good = fresh.claimed(new("1")).await.id;
    assert_eq!(run(good, delivered()).await.notifications.len(), 1, "`night` is told that it is done");
    let bad = fresh.claimed(new("2")).await.id;
    let dead = run(bad, unhealthy()).await;
    assert_eq!(dead.notifications, [], "nobody asked to be told about what is dead");
    let of_bad = |event: &Event| event.origin == Some(Origin::Rollback { from: bad, to: good });
    let all = fresh.store.list(EventQuery { limit: 100, ..EventQuery::default() }).await.expect("the store lists");
    let back = all.into_iter().find(of_bad).expect("it is rolled back");
    let ended = run(back.id, delivered()).await;
    let [told] = ended.notifications[..] else { panic!("one is told: {ended:?}") };
    let tells = described(&fresh, told).await;
    assert_eq!((tells.kind, tells.event, tells.rollback_from), (NotificationKind::Rollback, back.id, Some(bad)));

    // One that fails is told to the same.
    step_on(&fresh, back.id, EventStep::Replay, &rolls_back).await;
    let failed = run(back.id, rejected()).await;
    assert_eq!(failed.notifications.len(), 2);
    assert_eq!(described(&fresh, failed.notifications[1]).await.kind, NotificationKind::Dead);
}

pub(super) async fn an_event_that_is_dropped_for_its_budget_is_told_to_many_targets(fresh: StoreUnderTest) {
    let names = ["a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh", "abcdefghi", "abcdefghij"];
    let targets = names.map(|name| target(name, &[NotificationKind::Dead]));
    let budget = AttemptBudget { runs: 1, within: MINUTE, exceeded: BudgetExceeded::Drop, per: BudgetScope::Route };
    let dropping = Route { notify: Arc::new(targets), budget: Some(budget), ..route() };
    let [first, second] =
        [fresh.claimed(making().delivery("1")).await.id, fresh.claimed(making().delivery("2")).await.id];
    step_on(&fresh, first, start(), &dropping).await;
    let dropped = step_on(&fresh, second, start(), &dropping).await;
    assert_eq!(dead_of(&dropped), Some(DeathCause::OverBudget));
    assert_eq!(dropped.notifications.len(), names.len());
    assert_eq!(fresh.store.remove(second).await.expect("the store removes"), RemovalResult::Removed);
    for id in dropped.notifications {
        assert_eq!(fresh.store.get(id).await.expect("the store reads"), None);
    }
}

pub(super) async fn a_notification_is_forgotten_with_its_event_and_not_before_it_is_sent(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("1").kept(KEPT)).await.id;
    let [ops, night] = end(&fresh, event, rejected()).await.notifications[..] else { panic!("two are told") };
    fresh.wait(2 * DAY);
    let forget = async || fresh.store.forget(keeps(), 10).await.expect("the store forgets").events;
    assert_eq!(forget().await, 0, "its notifications are still to be sent");
    for id in [ops, night] {
        step_on(&fresh, id, start(), &lane()).await;
        step_on(&fresh, id, settle(delivered()), &lane()).await;
    }
    let exists = async |id| fresh.store.get(id).await.expect("the store reads").is_some();
    assert!(exists(ops).await);
    assert_eq!(forget().await, 1);
    assert!(!exists(event).await && !exists(ops).await && !exists(night).await);

    // The notification of a subject's current event is kept as long as that.
    let current = fresh.claimed(making().delivery("2").change("app", "1", None).kept(KEPT)).await.id;
    let [done] = end(&fresh, current, delivered()).await.notifications[..] else { panic!("one is told") };
    step_on(&fresh, done, start(), &lane()).await;
    step_on(&fresh, done, settle(delivered()), &lane()).await;
    fresh.wait(3 * DAY);
    assert_eq!(forget().await, 0);
    assert!(exists(done).await);
    assert_eq!(fresh.store.remove(current).await.expect("the store removes"), RemovalResult::Removed);
    assert!(!exists(done).await, "an operator forgets both");

    // One that waits for a target that is gone does not keep its event.
    let event = fresh.claimed(making().delivery("3").kept(KEPT)).await.id;
    for id in end(&fresh, event, rejected()).await.notifications {
        step_on(&fresh, id, EventStep::Suspend { lasts: MINUTE }, &lane()).await;
    }
    fresh.wait(2 * DAY);
    assert_eq!(forget().await, 1);
    assert_eq!(told(&fresh).await, []);
}

pub(super) async fn of_thirty_ends_in_an_hour_twenty_are_told_and_one_message_counts_the_others(fresh: StoreUnderTest) {
    let began = fresh.store.now();
    for round in 0..3 {
        // All of a round are in one write.
        let mut changes = Vec::new();
        for n in 0..10 {
            let event = fresh.claimed(making().delivery(&format!("{round} {n}"))).await;
            let event = step_on(&fresh, event.id, start(), &telling()).await;
            changes.push(event.transition(settle(rejected()), &telling(), fresh.store.now()).expect("it can end"));
        }
        let ends = fresh.store.advance(changes).await.expect("the store writes");
        assert!(ends.iter().all(|end| matches!(end, AdvanceResult::Written { .. })), "{ends:?}");
    }
    let all = told(&fresh).await;
    assert_eq!(all.len(), 21, "twenty, and one that counts");
    let is_summary = |event: &&Event| event.is_summary();
    let summary = all.iter().find(is_summary).expect("there is one that counts");
    assert_eq!(all.iter().filter(is_summary).count(), 1);
    assert_eq!((summary.queue_state, summary.attempt), (QueueState::OverBudget, 0));
    let due = summary.state.wake_at().expect("it waits for a time");
    assert!(due >= began + 60 * MINUTE && due < began + 61 * MINUTE, "{due:?}, from {began:?}");
    assert!(!fresh.due().await.contains(&summary.id));

    fresh.wait(61 * MINUTE);
    assert!(fresh.due().await.contains(&summary.id));
    let now = fresh.store.now();
    assert!(summary.start_alone(&start(), &lane(), now).is_none(), "its count is written as it starts");
    let started = step_on(&fresh, summary.id, start(), &lane()).await;
    assert!(matches!(started.state, EventState::Running { .. }));
    assert_eq!(started.immutable_digest(), started.digest);
    let counts = described(&fresh, summary.id).await;
    assert_eq!((counts.kind, counts.more), (NotificationKind::Summary, 10));

    let next = fresh.claimed(making().delivery("next")).await.id;
    let next = end(&fresh, next, rejected()).await.notifications;
    assert_eq!(next.len(), 2, "the hour is over: both are told again");
    assert_eq!(described(&fresh, next[0]).await.kind, NotificationKind::Dead);
}

pub(super) async fn an_overdue_message_that_counts_stays_the_only_one_while_it_waits(fresh: StoreUnderTest) {
    let ops = NotificationTarget { per_hour: 1, ..target("ops", &[NotificationKind::Dead]) };
    let of_lane = Route { notify: Arc::new([ops.clone()]), ..lane() };
    let telling = Route { notify: Arc::new([ops]), ..route() };
    let fail = async |delivery: &str| {
        let id = fresh.claimed(making().delivery(delivery)).await.id;
        step_on(&fresh, id, start(), &telling).await;
        step_on(&fresh, id, settle(rejected()), &telling).await
    };
    let summaries = async || told(&fresh).await.into_iter().filter(Event::is_summary).map(|event| event.id);
    fail("told").await;
    fail("counted").await;
    let [first] = summaries().await.collect::<Vec<_>>()[..] else { panic!("one counts") };

    // Its target is down for long, and others end.
    fresh.wait(150 * MINUTE);
    for delivery in ["told, too", "counted, too", "counted as well"] {
        fail(delivery).await;
    }
    assert_eq!(summaries().await.collect::<Vec<_>>(), [first], "the one that waits counts them");
    step_on(&fresh, first, start(), &of_lane).await;
    assert_eq!(described(&fresh, first).await.more, 3);
    step_on(&fresh, first, settle(delivered()), &of_lane).await;

    // The next ones are counted by another; and one that is cancelled is not waited for.
    fail("of the next").await;
    let next = summaries().await.find(|id| *id != first).expect("there is another");
    fresh.wait(150 * MINUTE);
    step_on(&fresh, next, EventStep::Cancel, &of_lane).await;
    for delivery in ["told at last", "counted at last"] {
        fail(delivery).await;
    }
    assert_eq!(summaries().await.count(), 3);
}
