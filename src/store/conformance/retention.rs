//! Forgetting: only ended events, by the store's clock, each with all its keys.

use super::{DAY, KEPT, MINUTE, StoreUnderTest, TestEventBuilder, delivered, failed, making, route, start};
use crate::decide::event::{EventState, EventStep};
use crate::decide::id::{EventId, Key};
use crate::decide::shared_output::SharedOutput;
use crate::decide::source::{AttemptBudget, BudgetExceeded, BudgetScope, Keep, Retention, Route};
use crate::decide::time::Duration;
use crate::store::retention::{ForgetSourceCounts, forget_source};
use crate::store::{EventQuery, ForgetCounts, RemovalResult, RetentionPolicies, SourceRetention, StoredValue};
use std::sync::Arc;

impl StoreUnderTest {
    async fn forget(&self, limit: usize) -> ForgetCounts {
        let keeps = RetentionPolicies { sources: [("source".into(), KEPT)].into() };
        self.store.forget(Arc::new(keeps), limit).await.expect("the store forgets")
    }

    async fn remove(&self, id: EventId) -> RemovalResult {
        self.store.remove(id).await.expect("the store forgets")
    }
}

pub(super) async fn an_expired_event_is_forgotten_inside_the_claim(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").body("b1")).await.id;
    fresh.attempt(first, delivered()).await;
    fresh.wait(29 * DAY);
    fresh.duplicate(making().delivery("d1")).await;
    fresh.wait(DAY);
    let second = fresh.claimed(making().delivery("d1")).await.id;
    assert_eq!(fresh.store.get(first).await.expect("it reads"), None);
    assert_eq!(fresh.duplicate(making().delivery("d1")).await.0, second);
    let forever = Retention { keys: Keep::Forever, ..KEPT };
    fresh.attempt(second, delivered()).await;
    fresh.wait(1_000 * DAY);
    assert_eq!(fresh.duplicate(making().delivery("d1").kept(forever)).await.0, second, "by the current config");
}

pub(super) async fn only_ended_events_expire(fresh: StoreUnderTest) {
    let waiting = fresh.claimed(making().delivery("d1")).await.id;
    let running = fresh.claimed(making().delivery("d2")).await.id;
    let retried = fresh.claimed(making().delivery("d3")).await.id;
    fresh.start(running).await;
    fresh.attempt(retried, failed()).await;
    fresh.wait(365 * DAY);
    assert_eq!(fresh.forget(100).await, ForgetCounts::default());
    for (delivery, event) in [("d1", waiting), ("d2", running), ("d3", retried)] {
        assert_eq!(fresh.duplicate(making().delivery(delivery)).await.0, event);
    }
}

pub(super) async fn a_registers_current_event_is_not_forgotten(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1").change("app", "A", None)).await.id;
    fresh.attempt(event, delivered()).await;
    fresh.wait(365 * DAY);
    assert_eq!(fresh.forget(100).await.events, 0);
    assert_eq!(fresh.duplicate(making().delivery("d1").change("app", "A", None)).await.0, event);
    assert_eq!(fresh.duplicate(making().delivery("d2").change("app", "A", None)).await.0, event);
}

pub(super) async fn an_event_that_carries_its_registers_order_is_not_forgotten(fresh: StoreUnderTest) {
    let mut events = Vec::new();
    for (n, to) in ["A", "B"].into_iter().enumerate() {
        events.push(fresh.claimed(making().delivery(&format!("d{n}")).change("app", to, Some(7)).recorded()).await.id);
    }
    fresh.wait(365 * DAY);
    assert_eq!(fresh.forget(100).await.events, 0);
    assert_eq!(fresh.duplicate(making().delivery("d0").change("app", "A", Some(7))).await.0, events[0]);
    fresh.claimed(making().delivery("d3").change("app", "C", Some(8)).recorded()).await;
    assert_eq!(fresh.forget(100).await.events, 1, "the order moved on, and the first was replaced long ago");
    fresh.wait(30 * DAY);
    assert_eq!(fresh.forget(100).await.events, 1);
    assert_eq!(fresh.store.get(events[1]).await.expect("it reads"), None);
}

pub(super) async fn retention_of_a_replaced_event_counts_from_its_replacement(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").change("app", "A", None).recorded()).await.id;
    fresh.wait(100 * DAY);
    fresh.claimed(making().delivery("d2").change("app", "B", None).recorded()).await;
    fresh.wait(29 * DAY);
    assert_eq!(fresh.duplicate(making().delivery("d1").change("app", "A", None)).await.0, first);
    fresh.wait(DAY);
    fresh.claimed(making().delivery("d1").change("app", "A", None)).await;
}

pub(super) async fn duplicates_do_not_extend_retention(fresh: StoreUnderTest) {
    fresh.claimed(making().delivery("d1").recorded()).await;
    for _ in 0..29 {
        fresh.wait(DAY);
        fresh.duplicate(making().delivery("d1")).await;
    }
    fresh.wait(DAY);
    fresh.claimed(making().delivery("d1")).await;
}

pub(super) async fn the_sweep_frees_bodies_first_and_keys_later(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1").carrying("body")).await.id;
    fresh.attempt(event, delivered()).await;
    fresh.wait(6 * DAY);
    assert_eq!(fresh.forget(100).await, ForgetCounts::default());
    fresh.wait(DAY);
    assert_eq!(fresh.forget(100).await, ForgetCounts { events: 0, bodies: 1 });
    assert_eq!(fresh.forget(100).await, ForgetCounts::default());
    assert_eq!(fresh.store.payload(event).await.expect("it reads"), StoredValue::Forgotten);
    assert_eq!(fresh.duplicate(making().delivery("d1")).await.0, event);
    fresh.wait(23 * DAY);
    assert_eq!(fresh.forget(100).await, ForgetCounts { events: 1, bodies: 0 });
    assert_eq!(fresh.store.get(event).await.expect("it reads"), None);
    fresh.claimed(making().delivery("d1")).await;
}

pub(super) async fn bodies_that_are_alike_stay_whole_whichever_of_them_are_forgotten(fresh: StoreUnderTest) {
    let body = |n: usize| {
        let words = (0..400_usize).map(|i| format!("{:08x}", i.wrapping_mul(2_654_435_761) & 0xffff_ffff));
        format!("{n:08} {}", words.collect::<String>())
    };
    let mut left = Vec::new();
    for n in 0..24 {
        left.push((n, fresh.claimed(making().delivery(&format!("d{n}")).carrying(body(n)).recorded()).await.id));
    }
    let waiting = fresh.claimed(making().delivery("waiting").carrying(body(24))).await.id;
    // The first, the last, and one of the others at a time.
    for at in [0, 22, 0, 7, 0, 0, 3] {
        let (_, forgotten) = left.remove(at);
        assert_eq!(fresh.remove(forgotten).await, RemovalResult::Removed);
        assert_eq!(fresh.store.payload(forgotten).await.expect("it reads"), StoredValue::Forgotten);
        for (n, id) in left.iter().copied().chain([(24, waiting)]) {
            let StoredValue::Whole(payload) = fresh.store.payload(id).await.expect("it reads") else { panic!("{n}") };
            assert_eq!(&*payload.body, body(n).as_bytes());
        }
    }
    fresh.wait(7 * DAY);
    assert_eq!(fresh.forget(100).await, ForgetCounts { events: 0, bodies: left.len() as u64 });
    for n in 30..45 {
        fresh.claimed(making().delivery(&format!("d{n}")).carrying(body(n))).await;
    }
    for _ in 0..3 {
        fresh.wait(7 * DAY);
        fresh.forget(100).await;
        let StoredValue::Whole(payload) = fresh.store.payload(waiting).await.expect("it reads") else { panic!("lost") };
        assert_eq!(&*payload.body, body(24).as_bytes());
    }
    forget_source(&*fresh.store, "source").await.expect("the store forgets");
    assert_eq!(fresh.store.payload(waiting).await.expect("it reads"), StoredValue::Forgotten);
}

pub(super) async fn an_event_and_all_its_keys_go_together(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").body("b1").change("app", "A", None).recorded()).await.id;
    fresh.duplicate(making().delivery("d2").body("b2").change("app", "A", None)).await;
    let second = fresh.claimed(making().delivery("d3").change("app", "B", None).recorded()).await.id;
    fresh.wait(30 * DAY);
    assert_eq!(fresh.forget(100).await.events, 1);
    assert_eq!(fresh.store.get(first).await.expect("it reads"), None);
    let all: [fn() -> TestEventBuilder; 4] =
        [|| making().delivery("d1"), || making().body("b1"), || making().delivery("d2"), || making().body("b2")];
    for made in all {
        let anew = fresh.claimed(made()).await.id;
        assert_eq!(fresh.duplicate(made()).await.0, anew, "its key can be claimed again");
    }
    assert_eq!(fresh.duplicate(making().delivery("d3")).await.0, second);
}

pub(super) async fn the_sweep_keeps_to_its_limit_and_gets_through(fresh: StoreUnderTest) {
    for n in 0..10 {
        fresh.claimed(making().delivery(&format!("d{n}")).carrying("body").recorded()).await;
    }
    fresh.wait(30 * DAY);
    let mut rounds = Vec::new();
    for _ in 0..4 {
        rounds.push(fresh.forget(4).await.events);
    }
    assert_eq!(rounds, [4, 4, 2, 0]);
}

pub(super) async fn concurrent_sweeps_leave_nothing_and_count_each_event_once(fresh: StoreUnderTest) {
    const MANY: u64 = 120;
    let now = fresh.store.now();
    let none = Retention { body: Duration::ZERO, ..KEPT }; // with bodies to delete, one sweep falls behind the other and they never conflict
    let one = |n: u64| making().delivery(&format!("d{n}")).recorded().kept(none).made(now);
    fresh.claim_all((0..MANY).map(one).collect()).await;
    fresh.wait(30 * DAY);
    // A count of zero means that nothing is left, also for the slower sweep.
    let sweep = async || {
        let mut freed = ForgetCounts::default();
        loop {
            let some = fresh.forget(10).await;
            freed = ForgetCounts { events: freed.events + some.events, bodies: freed.bodies + some.bodies };
            if some == ForgetCounts::default() {
                let left = fresh.store.list(EventQuery { limit: 1, ..EventQuery::default() }).await.expect("it lists");
                return (freed, left.len());
            }
        }
    };
    let (one, other) = tokio::join!(sweep(), sweep());
    assert_eq!((one.1, other.1), (0, 0), "{one:?}, {other:?}");
    assert_eq!(one.0.events + other.0.events, MANY, "{one:?}, {other:?}");
}

pub(super) async fn a_recorded_event_may_leave_no_body(fresh: StoreUnderTest) {
    let none = Retention { body: Duration::ZERO, ..KEPT };
    let recorded = fresh.claimed(making().delivery("d1").carrying("body").recorded().kept(none)).await.id;
    assert_eq!(fresh.store.payload(recorded).await.expect("it reads"), StoredValue::Forgotten);
    let waiting = making().delivery("d2").carrying("body").kept(none);
    let payload = waiting.payload().clone();
    let waiting = fresh.claimed(waiting).await.id;
    fresh.wait(MINUTE);
    assert_eq!(fresh.store.payload(waiting).await.expect("it reads"), StoredValue::Whole(payload));
}

pub(super) async fn the_count_of_a_groups_budget_goes_with_its_last_event(fresh: StoreUnderTest) {
    let within = 32 * DAY; // longer than the event is kept
    let budget = AttemptBudget { runs: 2, within, exceeded: BudgetExceeded::Wait, per: BudgetScope::Group };
    let budgeted = Route { budget: Some(budget), ..route() };
    let run = async |group: &str| {
        let event = fresh.claimed(making().group(group)).await;
        let change = event.transition(start(), &budgeted, fresh.store.now()).expect("it is due");
        let counted_at = change.budget.expect("its route has a budget").key;
        fresh.store.advance(vec![change]).await.expect("the store writes");
        fresh.settle(event.id, delivered()).await;
        (event.id, counted_at)
    };
    let (_, swept) = run("swept").await;
    let (by_hand, removed) = run("removed by hand").await;
    let is_counted = async |key: Key| fresh.store.state(key).await.expect("the store reads").is_some();
    fresh.wait(31 * DAY);
    assert_eq!(fresh.forget(100).await.events, 0, "it is the last that can remove a count which is not over");
    assert!(is_counted(swept).await && is_counted(removed).await);
    fresh.wait(DAY + MINUTE);
    assert_eq!(fresh.remove(by_hand).await, RemovalResult::Removed);
    assert!(is_counted(swept).await && !is_counted(removed).await);
    assert_eq!(fresh.forget(100).await.events, 1);
    assert!(!is_counted(swept).await);
}

pub(super) async fn what_was_shared_of_an_events_output_goes_with_the_event(fresh: StoreUnderTest) {
    let (swept, by_hand) = (fresh.claimed(making()).await.id, fresh.claimed(making()).await.id);
    for event in [swept, by_hand] {
        fresh.attempt(event, delivered()).await;
        // Its node could not remove it when the attempt ended.
        let left = fresh.store.swap_state(SharedOutput::key(event), None, Some("output".into())).await;
        assert!(left.expect("the store writes"));
    }
    let is_left = async |event| fresh.store.state(SharedOutput::key(event)).await.expect("it reads").is_some();
    assert_eq!(fresh.remove(by_hand).await, RemovalResult::Removed);
    assert!(is_left(swept).await && !is_left(by_hand).await);
    fresh.wait(31 * DAY);
    assert_eq!(fresh.forget(100).await.events, 1);
    assert!(!is_left(swept).await);
}

pub(super) async fn a_delivery_acts_again_after_an_operator_forgot_its_event(fresh: StoreUnderTest) {
    let forever = Retention { keys: Keep::Forever, ..KEPT };
    let made = || making().delivery("d1").body("b1").named("n1").kept(forever);
    let first = fresh.claimed(made()).await.id;
    fresh.attempt(first, delivered()).await;
    assert_eq!(fresh.remove(first).await, RemovalResult::Removed);
    assert_eq!(fresh.store.get(first).await.expect("it reads"), None);
    assert_eq!(fresh.store.details(first).await.expect("it reads"), None);
    assert_eq!(fresh.store.payload(first).await.expect("it reads"), StoredValue::Forgotten);
    assert_eq!(fresh.remove(first).await, RemovalResult::Unknown, "twice is harmless");
    let second = fresh.claimed(made()).await.id;
    assert_eq!(fresh.duplicate(made()).await.0, second);
}

pub(super) async fn forgetting_a_subjects_current_event_forgets_what_it_was_changed_to(fresh: StoreUnderTest) {
    let old = fresh.claimed(making().delivery("d1").change("app", "A", Some(1)).recorded()).await.id;
    let current = fresh.claimed(making().delivery("d2").change("app", "B", Some(2)).recorded()).await.id;
    fresh.duplicate(making().delivery("d3").change("app", "B", Some(2))).await;
    assert_eq!(fresh.remove(old).await, RemovalResult::Removed);
    assert_eq!(fresh.stale(making().delivery("d1").change("app", "A", Some(1))).await, current, "B is still current");
    assert_eq!(fresh.remove(current).await, RemovalResult::Removed);
    let again = fresh.claimed(making().delivery("d3").change("app", "B", Some(2)).recorded()).await.id;
    assert_eq!(fresh.duplicate(making().delivery("d2").change("app", "B", Some(2))).await.0, again);
}

pub(super) async fn an_event_that_has_not_ended_cannot_be_forgotten_by_an_operator(fresh: StoreUnderTest) {
    let running = fresh.claimed(making().delivery("d1").group("g")).await.id;
    let parked = fresh.claimed(making().delivery("d2").group("g")).await.id;
    fresh.start(running).await;
    for id in [running, parked] {
        assert_eq!(fresh.remove(id).await, RemovalResult::NotOver);
    }
    let story = fresh.store.details(parked).await.expect("it reads").expect("it is there");
    assert_eq!(story.behind, Some(running));
    fresh.settle(running, delivered()).await;
    assert_eq!(fresh.remove(running).await, RemovalResult::Removed);
    assert_eq!(fresh.due().await, [parked], "the slot was handed on before");
    fresh.step(parked, EventStep::Cancel).await;
    assert_eq!(fresh.remove(parked).await, RemovalResult::Removed);
    fresh.claimed(making().delivery("d2").group("g")).await;
}

const FOREVER: Retention = Retention { keys: Keep::Forever, body: Duration::from_hours(365 * 24) };

impl StoreUnderTest {
    async fn retain(&self, source: &str, kept: Retention) {
        let row = SourceRetention { source: source.into(), kept, seen_at: self.store.now() };
        self.store.set_retention(vec![row]).await.expect("it writes");
    }

    /// Forgets as a node that has only the source `source`, and keeps that for ever.
    async fn forget_as_stored(&self) -> ForgetCounts {
        let own = RetentionPolicies { sources: [("source".into(), FOREVER)].into() };
        let keeps = own.with_stored(&*self.store).await.expect("it reads");
        self.store.forget(Arc::new(keeps), 100).await.expect("the store forgets")
    }

    /// Every source with events in the store, and how many.
    async fn sources(&self) -> Vec<(String, u64)> {
        let counts = self.store.other_sources([].into()).await.expect("it counts");
        counts.into_iter().map(|one| (one.source.to_string(), one.events)).collect()
    }
}

pub(super) async fn a_source_that_a_node_lacks_is_kept_as_long_as_the_store_says(fresh: StoreUnderTest) {
    for name in ["long", "short", "forever", "source"] {
        fresh.claimed(making().delivery(name).source(name).carrying("body").recorded()).await;
    }
    fresh.retain("long", Retention { keys: Keep::For(365 * DAY), body: 40 * DAY }).await;
    fresh.retain("short", Retention { keys: Keep::For(DAY), body: DAY }).await;
    fresh.retain("forever", FOREVER).await;
    fresh.retain("source", Retention { keys: Keep::For(DAY), body: DAY }).await;
    fresh.wait(31 * DAY);
    assert_eq!(
        fresh.forget_as_stored().await,
        ForgetCounts { events: 1, bodies: 1 },
        "the source `short`; its own source goes by its config"
    );
    fresh.wait(9 * DAY);
    assert_eq!(fresh.forget_as_stored().await, ForgetCounts { events: 0, bodies: 1 }, "the body of long");
    fresh.wait(325 * DAY);
    assert_eq!(
        fresh.forget_as_stored().await,
        ForgetCounts { events: 1, bodies: 2 },
        "the source `long`, and the bodies of the others"
    );
    fresh.wait(10_000 * DAY);
    assert_eq!(fresh.forget_as_stored().await, ForgetCounts::default());
    for name in ["forever", "source"] {
        fresh.duplicate(making().delivery(name).kept(FOREVER)).await;
    }
}

pub(super) async fn a_source_without_retention_is_never_forgotten_by_a_node_that_lacks_it(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1").source("lost").carrying("body").recorded()).await.id;
    fresh.wait(10_000 * DAY);
    assert_eq!(fresh.forget_as_stored().await, ForgetCounts::default());
    assert!(fresh.store.details(event).await.expect("it reads").is_some_and(|story| story.has_body));
}

pub(super) async fn the_retention_of_one_source_stays_when_anothers_is_written(fresh: StoreUnderTest) {
    assert_eq!(fresh.store.retention().await.expect("it reads"), []);
    let row = |source: &str, kept| SourceRetention { source: source.into(), kept, seen_at: fresh.store.now() };
    let [a, b] = [row("a", FOREVER), row("b", KEPT)];
    fresh.store.set_retention(vec![b.clone(), a.clone()]).await.expect("it writes");
    assert_eq!(fresh.store.retention().await.expect("it reads"), [a.clone(), b]);
    fresh.wait(DAY);
    let b = SourceRetention { seen_at: fresh.store.now(), ..row("b", Retention { keys: Keep::For(DAY), body: DAY }) };
    fresh.store.set_retention(vec![b.clone()]).await.expect("it writes");
    assert_eq!(fresh.store.retention().await.expect("it reads"), [a, b]);
}

pub(super) async fn unknown_sources_are_counted(fresh: StoreUnderTest) {
    for (n, name) in ["a", "b", "c", "b", "ab", "b"].into_iter().enumerate() {
        fresh.claimed(making().delivery(&format!("d{n}")).source(name).recorded()).await;
    }
    let waits = fresh.claimed(making().delivery("w1").source("b")).await.id;
    let of = |all: &[(&str, u64)]| all.iter().map(|(name, events)| ((*name).to_owned(), *events)).collect::<Vec<_>>();
    assert_eq!(fresh.sources().await, of(&[("a", 1), ("ab", 1), ("b", 4), ("c", 1)]));
    let known = ["a".into(), "c".into()].into();
    let others = fresh.store.other_sources(known).await.expect("it counts");
    assert_eq!(others.iter().map(|one| (&*one.source, one.events)).collect::<Vec<_>>(), [("ab", 1), ("b", 4)]);
    assert!(matches!(fresh.get(waits).await.state, EventState::Waiting { .. }));
}

pub(super) async fn forgetting_a_source_ends_and_deletes_all_of_its_events_and_nothing_else(fresh: StoreUnderTest) {
    let forever = |delivery: &str| making().delivery(delivery).source("gone").kept(FOREVER);
    let done = fresh.claimed(forever("d1").change("app", "A", Some(1))).await.id;
    fresh.attempt(done, delivered()).await;
    fresh.claimed(forever("d2").recorded()).await;
    fresh.claimed(forever("d3")).await;
    fresh.claimed(forever("d4").group("g")).await;
    fresh.claimed(forever("d5").group("g")).await;
    let parked = fresh.claimed(making().delivery("d6").group("g")).await.id;
    let running = fresh.claimed(forever("d7")).await.id;
    fresh.start(running).await;
    let forgotten = forget_source(&*fresh.store, "gone").await.expect("it forgets");
    assert_eq!(forgotten, ForgetSourceCounts { events: 5, ended: 3, running: 1 });
    assert!(fresh.get(running).await.is_called_off());
    assert_eq!(fresh.due().await, [parked], "its slot was handed on to another source's event");
    for delivery in ["d2", "d3"] {
        fresh.claimed(forever(delivery)).await;
    }
    fresh.claimed(forever("d1").change("app", "A", Some(1))).await;
    fresh.wait(DAY);
    let forgotten = forget_source(&*fresh.store, "gone").await.expect("it forgets");
    assert_eq!(forgotten, ForgetSourceCounts { events: 4, ended: 4, running: 0 }, "its lease has ended");
    assert_eq!(fresh.sources().await, [("source".to_owned(), 1)]);
    assert_eq!(forget_source(&*fresh.store, "gone").await.expect("it forgets"), ForgetSourceCounts::default());
}
