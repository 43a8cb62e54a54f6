//! Deploys: of the events that wait only the newest is kept, bursts are waited for, attempts are counted against a
//! budget, and registers remember what was deployed.

use super::{
    DAY, MINUTE, SECOND, StoreUnderTest, dead_of, delivered, failed, making, parked, rejected, route, start,
    superseded_by,
};
use crate::decide::event::{DeathCause, Event, EventState, EventStep, Outcome, QueueState, SucceededBlocks};
use crate::decide::id::{EventId, Key};
use crate::decide::ledger::{RegisterEdit, SubjectRegister};
use crate::decide::limits;
use crate::decide::retry::Jitter;
use crate::decide::source::{
    AttemptBudget, BudgetExceeded, BudgetScope, Debounce, InDoubtPolicy, Keep, Retention, Route, WhenBusy,
};
use crate::decide::time::Timestamp;
use crate::store::{AdvanceResult, RegisterEditError, RetentionPolicies};
use std::sync::Arc;

const DEBOUNCE: Debounce = Debounce { quiet: SECOND.saturating_mul(5), max: SECOND.saturating_mul(12) };

fn replacing() -> Route {
    Route { when_busy: WhenBusy::Replace { debounce: None }, ..route() }
}

fn budgeted(exceeded: BudgetExceeded) -> Route {
    Route { budget: Some(AttemptBudget { runs: 2, within: MINUTE, exceeded, per: BudgetScope::Route }), ..route() }
}

/// Writes this step by the policies of this route.
pub(super) async fn step_on(fresh: &StoreUnderTest, id: EventId, step: EventStep, route: &Route) -> Event {
    let event = fresh.get(id).await;
    let change = event.transition(step, route, fresh.store.now()).expect("the step is possible");
    match fresh.store.advance(vec![change]).await.expect("the store writes").remove(0) {
        AdvanceResult::Written { event, .. } => *event,
        AdvanceResult::Lost => panic!("lost"),
    }
}

pub(super) fn resolve(digest: &str) -> EventStep {
    EventStep::Resolve { digest: digest.into(), lasts: 30 * SECOND }
}

/// Starts this event and resolves it to this digest, again and again while the registry may lag behind.
pub(super) async fn resolved(fresh: &StoreUnderTest, id: EventId, digest: &str, route: &Route) -> Event {
    for _ in 0..=limits::UNMOVED_LOOKUPS {
        step_on(fresh, id, start(), route).await;
        let event = step_on(fresh, id, resolve(digest), route).await;
        if event.state.word() != "waiting" {
            return event;
        }
    }
    panic!("the registry is asked again and again")
}

fn due(event: &Event) -> Option<Timestamp> {
    event.state.wake_at()
}

/// The only register of the store.
pub(super) async fn only_register(fresh: &StoreUnderTest) -> (Key, SubjectRegister) {
    let mut all = fresh.store.registers(None, 10).await.expect("the store lists");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

pub(super) async fn of_the_waiting_events_of_a_subject_only_the_newest_is_kept(fresh: StoreUnderTest) {
    let new = |n: u32| making().change("app", &n.to_string(), None).group("app").replacing(None);
    let first = fresh.claimed(new(0)).await.id;
    fresh.start(first).await;
    let mut waiting = fresh.claimed(new(1)).await;
    assert!(parked(&waiting));
    let turn = waiting.turn;
    for n in 2..10 {
        let next = fresh.claimed(new(n)).await;
        assert!(parked(&next));
        assert_eq!(next.turn, turn, "it takes the place of the one that it replaces");
        assert_eq!(superseded_by(&fresh.get(waiting.id).await), Some(next.id));
        waiting = next;
    }
    assert!(matches!(fresh.settle(first, delivered()).await.state, EventState::Done { .. }));
    assert_eq!(fresh.due().await, [waiting.id], "the slot is handed to the newest");
    assert_eq!(superseded_by(&step_on(&fresh, waiting.id, start(), &replacing()).await), None);
}

pub(super) async fn an_event_that_waits_for_its_next_attempt_is_replaced_and_one_on_another_route_is_not(
    fresh: StoreUnderTest,
) {
    let new = |n: u32| making().change("app", &n.to_string(), None).group("app").replacing(None);
    let failing = fresh.claimed(new(0)).await.id;
    fresh.attempt(failing, failed()).await;
    let next = fresh.claimed(new(1)).await;
    assert_eq!(superseded_by(&fresh.get(failing).await), Some(next.id));
    assert!(due(&next).is_some(), "it has the slot of the one that it replaced");
    let elsewhere = fresh.claimed(new(2).route("other")).await;
    assert_eq!(superseded_by(&fresh.get(next.id).await), None, "its first attempt is still owed on its own route");
    assert!(parked(&elsewhere));
    let started = step_on(&fresh, next.id, start(), &replacing()).await;
    assert_eq!(started.state.word(), "running", "only an event of its own route replaces it");
}

pub(super) async fn a_backlog_from_before_is_thinned_as_each_event_gets_its_turn(fresh: StoreUnderTest) {
    let mut events = Vec::new();
    for n in 0..4 {
        events.push(fresh.claimed(making().change("app", &n.to_string(), None).group("app")).await.id);
    }
    for id in &events[..3] {
        assert_eq!(superseded_by(&step_on(&fresh, *id, start(), &replacing()).await), Some(events[3]));
    }
    assert!(matches!(step_on(&fresh, events[3], start(), &replacing()).await.state, EventState::Running { .. }));
}

pub(super) async fn a_replay_replaces_what_waits_and_so_does_a_rearm_in_a_queue_without_a_subject(
    fresh: StoreUnderTest,
) {
    let new = |n: u32| making().change("app", &n.to_string(), None).group("app").replacing(None);
    let old = fresh.claimed(new(0)).await.id;
    fresh.attempt(old, delivered()).await;
    let running = fresh.claimed(new(1)).await.id;
    fresh.start(running).await;
    let waiting = fresh.claimed(new(2)).await.id;
    assert!(parked(&step_on(&fresh, old, EventStep::Replay, &replacing()).await));
    assert_eq!(superseded_by(&fresh.get(waiting).await), Some(old));

    let new = || making().in_queue("q").group("q").replacing(None);
    let dead = fresh.claimed(new()).await.id;
    fresh.attempt(dead, rejected()).await;
    let running = fresh.claimed(new()).await.id;
    fresh.start(running).await;
    let waiting = fresh.claimed(new()).await.id;
    assert!(parked(&step_on(&fresh, dead, EventStep::Rearm, &replacing()).await), "a repeat of it is the newest");
    assert_eq!(superseded_by(&fresh.get(waiting).await), Some(dead));
}

pub(super) async fn the_register_of_a_queue_goes_with_its_last_event(fresh: StoreUnderTest) {
    let kept = Retention { keys: Keep::For(DAY), body: DAY };
    let new = || making().in_queue("q").group("q").replacing(None).kept(kept);
    let first = fresh.claimed(new()).await.id;
    fresh.attempt(first, delivered()).await;
    fresh.wait(DAY + MINUTE);
    let last = fresh.claimed(new()).await.id;
    fresh.attempt(last, delivered()).await;
    let mut keeps = RetentionPolicies::default();
    keeps.sources.insert("source".into(), kept);
    let keeps = Arc::new(keeps);
    assert_eq!(fresh.store.forget(keeps.clone(), 10).await.expect("the store forgets").events, 1);
    assert_eq!(only_register(&fresh).await.1.event, last);
    fresh.wait(DAY + MINUTE);
    assert_eq!(fresh.store.forget(keeps, 10).await.expect("the store forgets").events, 1);
    assert_eq!(fresh.store.registers(None, 10).await.expect("the store lists"), []);
}

pub(super) async fn a_burst_is_waited_for_from_its_first_event(fresh: StoreUnderTest) {
    let new = |n: u32| making().change("app", &n.to_string(), None).group("app").replacing(Some(DEBOUNCE));
    let began = fresh.store.now();
    let first = fresh.claimed(new(0)).await;
    assert_eq!(first.queue_state, QueueState::Debouncing);
    let near = |at: Option<Timestamp>, expected: Timestamp| {
        let at = at.expect("it waits for a time");
        assert!(at >= expected && at < expected + 2 * SECOND, "{at:?}, not {expected:?}");
    };
    near(due(&first), began + DEBOUNCE.quiet);
    fresh.wait(4 * SECOND);
    let second = fresh.claimed(new(1)).await;
    assert_eq!(superseded_by(&fresh.get(first.id).await), Some(second.id));
    near(due(&second), began + 4 * SECOND + DEBOUNCE.quiet);
    fresh.wait(4 * SECOND);
    let third = fresh.claimed(new(2)).await;
    near(due(&third), began + DEBOUNCE.max);
    assert_eq!(third.burst_since, second.burst_since);

    let other = fresh.claimed(making().group("app")).await;
    assert!(due(&other).is_some(), "what waits for a burst holds no slot");
    fresh.start(other.id).await;
    fresh.wait(5 * SECOND);
    assert!(fresh.due().await.contains(&third.id));
    assert!(parked(&step_on(&fresh, third.id, start(), &replacing()).await), "it waits for the slot then");
    fresh.settle(other.id, delivered()).await;
    let running = step_on(&fresh, third.id, start(), &replacing()).await;
    assert!(matches!(running.state, EventState::Running { .. }));
    let next = fresh.claimed(new(3)).await;
    assert!(due(&next) >= Some(fresh.store.now() + DEBOUNCE.quiet - SECOND), "a new burst begins");
}

pub(super) async fn attempts_beyond_the_budget_wait_without_a_slot_or_are_dropped(fresh: StoreUnderTest) {
    let waits = budgeted(BudgetExceeded::Wait);
    let mut events = Vec::new();
    for n in 0..4 {
        events.push(fresh.claimed(making().delivery(&n.to_string())).await.id);
    }
    let began = fresh.store.now();
    for id in &events[..2] {
        step_on(&fresh, *id, start(), &waits).await;
        fresh.wait(SECOND);
    }
    let third = step_on(&fresh, events[2], start(), &waits).await;
    assert_eq!((third.queue_state, third.attempt, third.wants_slot()), (QueueState::OverBudget, 0, false));
    let until = due(&third).expect("it waits for a time");
    assert!(until >= began + MINUTE && until < began + MINUTE + 2 * SECOND, "{until:?}");
    let dropped = step_on(&fresh, events[3], start(), &budgeted(BudgetExceeded::Drop)).await;
    assert_eq!(dead_of(&dropped), Some(DeathCause::OverBudget));
    let replayed = step_on(&fresh, events[3], EventStep::Replay, &waits).await;
    let replayed = step_on(&fresh, replayed.id, start(), &waits).await;
    assert!(matches!(replayed.state, EventState::Running { .. }), "an operator's replay is never held back");
    fresh.wait(MINUTE);
    let third = step_on(&fresh, events[2], start(), &waits).await;
    assert!(matches!(third.state, EventState::Running { .. }), "{third:?}");
    assert_eq!(third.queue_state, QueueState::Requeued);
}

pub(super) async fn an_attempt_that_ends_before_its_action_begins_costs_no_budget(fresh: StoreUnderTest) {
    let budgeted = budgeted(BudgetExceeded::Drop);
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let unresolved = || EventStep::Settle {
        outcome: Outcome::Unresolved { why: "not there yet".into(), retry_after: None },
        blocks: SucceededBlocks::default(),
        jitter: Jitter(0),
    };
    let one = fresh.claimed(new("1")).await.id;
    for _ in 0..5 {
        assert_eq!(step_on(&fresh, one, start(), &budgeted).await.state.word(), "running");
        assert_eq!(step_on(&fresh, one, unresolved(), &budgeted).await.state.word(), "waiting");
    }
    step_on(&fresh, one, start(), &budgeted).await;
    step_on(&fresh, one, resolve("sha256:1"), &budgeted).await;
    step_on(&fresh, one, settle(delivered()), &budgeted).await;
    for n in 2..6 {
        let same = fresh.claimed(new(&n.to_string())).await.id;
        assert_eq!(superseded_by(&resolved(&fresh, same, "sha256:1", &budgeted).await), Some(one));
    }
    for (n, word) in [(6, "running"), (7, "dead")] {
        let next = fresh.claimed(making().delivery(&n.to_string())).await.id;
        assert_eq!(step_on(&fresh, next, start(), &budgeted).await.state.word(), word, "two have begun");
    }
}

pub(super) async fn an_event_that_is_parked_instead_of_started_costs_no_budget(fresh: StoreUnderTest) {
    let route = budgeted(BudgetExceeded::Drop);
    let holder = fresh.claimed(making().group("g").delivery("1")).await.id;
    step_on(&fresh, holder, start(), &route).await;
    for n in 2..5 {
        let event = fresh.claimed(making().delivery(&n.to_string()).group("g")).await;
        assert!(parked(&event));
    }
    fresh.settle(holder, delivered()).await;
    let next = fresh.due().await[0];
    assert!(matches!(step_on(&fresh, next, start(), &route).await.state, EventState::Running { .. }));
}

pub(super) async fn a_register_knows_what_was_deployed_and_keeps_that_event(fresh: StoreUnderTest) {
    let kept = Retention { keys: Keep::For(DAY), body: DAY };
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app").kept(kept);
    let one = fresh.claimed(new("1")).await.id;
    fresh.start(one).await;
    let running = fresh.step(one, resolve("sha256:1")).await;
    assert_eq!((running.resolved.as_deref(), running.state.word()), (Some("sha256:1"), "running"));
    assert_eq!(only_register(&fresh).await.1.deployed(), None, "nothing is deployed before its action has succeeded");
    fresh.settle(one, delivered()).await;
    let deployed = only_register(&fresh).await.1.deployed().expect("one is deployed");
    assert_eq!((deployed.event, deployed.digest.as_deref()), (one, Some("sha256:1")));

    let two = fresh.claimed(new("2")).await.id;
    fresh.attempt(two, rejected()).await;
    let (_, register) = only_register(&fresh).await;
    assert_eq!(
        (register.event, register.deployed().map(|one| one.event)),
        (two, Some(one)),
        "a failure deploys nothing"
    );
    let three = fresh.claimed(new("3")).await.id;
    let same = resolved(&fresh, three, "sha256:1", &route()).await;
    assert_eq!(superseded_by(&same), Some(one), "what it would deploy is deployed");
    let again = fresh.step(three, EventStep::Replay).await;
    fresh.start(again.id).await;
    assert_eq!(superseded_by(&fresh.step(three, resolve("sha256:1")).await), None, "a replay always runs");
    fresh.settle(three, failed()).await;

    let mut keeps = RetentionPolicies::default();
    keeps.sources.insert("source".into(), kept);
    let keeps = Arc::new(keeps);
    fresh.wait(3 * DAY);
    assert_eq!(fresh.store.forget(keeps.clone(), 10).await.expect("the store forgets").events, 1, "two is forgotten");
    assert!(fresh.store.get(one).await.expect("the store reads").is_some(), "what is deployed is kept");
    let four = fresh.claimed(new("4")).await.id;
    fresh.attempt(four, delivered()).await;
    fresh.wait(3 * DAY);
    assert_eq!(fresh.store.forget(keeps, 10).await.expect("the store forgets").events, 2);
    assert_eq!(only_register(&fresh).await.1.deployed().map(|one| one.event), Some(four));
}

pub(super) async fn what_is_deployed_is_unknown_once_another_deploy_has_begun(fresh: StoreUnderTest) {
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let deployed = async || only_register(&fresh).await.1.deployed().map(|one| one.event);
    let one = fresh.claimed(new("1")).await.id;
    fresh.start(one).await;
    fresh.step(one, resolve("sha256:1")).await;
    fresh.settle(one, delivered()).await;
    assert_eq!(deployed().await, Some(one));
    let two = fresh.claimed(new("2")).await.id;
    fresh.start(two).await;
    fresh.step(two, resolve("sha256:2")).await;
    assert_eq!(deployed().await, None);
    fresh.settle(two, rejected()).await;
    assert_eq!(deployed().await, None, "it may have acted before it failed");
    // The tag points to the first image again.
    let three = fresh.claimed(new("3")).await.id;
    fresh.start(three).await;
    assert_eq!(fresh.step(three, resolve("sha256:1")).await.state.word(), "running", "it must be deployed again");
    fresh.settle(three, delivered()).await;
    assert_eq!(deployed().await, Some(three));
}

pub(super) async fn a_registry_that_still_has_what_was_deployed_before_an_event_arrived_is_asked_again(
    fresh: StoreUnderTest,
) {
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let one = fresh.claimed(new("1")).await.id;
    assert_eq!(resolved(&fresh, one, "sha256:1", &route()).await.state.word(), "running");
    let early = fresh.claimed(new("2")).await.id;
    fresh.wait(SECOND);
    fresh.settle(one, delivered()).await;
    fresh.start(early).await;
    let ended = fresh.step(early, resolve("sha256:1")).await;
    assert_eq!(superseded_by(&ended), Some(one), "it arrived before that was deployed: it is a part of the same push");

    fresh.wait(SECOND);
    let late = fresh.claimed(new("3")).await.id;
    for asked in 1..=limits::UNMOVED_LOOKUPS {
        fresh.start(late).await;
        let before = fresh.store.now();
        let waits = fresh.step(late, resolve("sha256:1")).await;
        assert_eq!((waits.failed_lookups, &waits.resolved, waits.wants_slot()), (asked, &None, true));
        let due = due(&waits).expect("it waits for a time");
        assert!(due >= before + SECOND && due <= fresh.store.now() + SECOND, "{before:?} {due:?}");
        let tried = fresh.store.details(late).await.expect("it reads").expect("it is there").attempts;
        let last = tried.last().expect("an attempt is recorded");
        assert_eq!((u32::try_from(tried.len()), last.attempt, &*last.outcome), (Ok(asked), asked, "failed"));
    }
    fresh.start(late).await;
    assert_eq!(fresh.step(late, resolve("sha256:2")).await.state.word(), "running", "now the tag has moved");
    fresh.settle(late, delivered()).await;
    assert_eq!(only_register(&fresh).await.1.deployed().map(|deployed| deployed.event), Some(late));

    fresh.wait(SECOND);
    let overtaken = fresh.claimed(new("4")).await.id;
    fresh.start(overtaken).await;
    fresh.claimed(new("5")).await;
    let ended = fresh.step(overtaken, resolve("sha256:2")).await;
    assert_eq!(superseded_by(&ended), Some(late), "the registry is asked for the newer one");
}

pub(super) fn settle(outcome: Outcome) -> EventStep {
    EventStep::Settle { outcome, blocks: SucceededBlocks::default().with_acted(), jitter: Jitter(0) }
}

pub(super) async fn what_was_deployed_but_never_checked_is_deployed_again(fresh: StoreUnderTest) {
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let one = fresh.claimed(new("1")).await.id;
    fresh.start(one).await;
    fresh.step(one, resolve("sha256:1")).await;
    fresh.step(one, EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: 30 * SECOND }).await;
    let newer = fresh.claimed(new("2")).await.id;
    fresh.step(one, EventStep::Supersede { by: newer }).await; // its node died, and a newer event waits
    assert_eq!(only_register(&fresh).await.1.deployed().map(|deployed| deployed.event), Some(one));
    fresh.start(newer).await;
    assert_eq!(fresh.step(newer, resolve("sha256:1")).await.state.word(), "running", "its health is not known");
}

pub(super) async fn a_deploy_that_was_cancelled_while_it_was_checked_and_one_of_another_route_do_not_count(
    fresh: StoreUnderTest,
) {
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let one = fresh.claimed(new("1")).await.id;
    fresh.start(one).await;
    fresh.step(one, resolve("sha256:1")).await;
    fresh.step(one, EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: 30 * SECOND }).await;
    fresh.step(one, EventStep::Cancel).await;
    let two = fresh.claimed(new("2")).await.id;
    fresh.start(two).await;
    assert_eq!(fresh.step(two, resolve("sha256:1")).await.state.word(), "running", "its health is not known");
    fresh.step(two, settle(delivered())).await;
    let other = fresh.claimed(new("3").route("other")).await.id;
    fresh.start(other).await;
    assert_eq!(fresh.step(other, resolve("sha256:1")).await.state.word(), "running", "this route has not deployed it");
    fresh.step(other, settle(delivered())).await;
    let last = fresh.claimed(new("4").route("other")).await.id;
    assert_eq!(superseded_by(&resolved(&fresh, last, "sha256:1", &route()).await), Some(other));
}

pub(super) async fn after_a_crash_only_the_health_of_a_deploy_is_checked_again(fresh: StoreUnderTest) {
    let held = Route { in_doubt: InDoubtPolicy::Hold, ..route() };
    let event = fresh.claimed(making().change("app", "1", None)).await.id;
    step_on(&fresh, event, start(), &held).await;
    step_on(&fresh, event, EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: SECOND }, &held).await;
    fresh.wait(MINUTE);
    let again = step_on(&fresh, event, EventStep::Expire { jitter: Jitter(0) }, &held).await;
    assert_eq!((again.state.word(), again.blocks.acted()), ("waiting", true), "there is no doubt that it acted");
}

pub(super) async fn an_operator_can_set_and_clear_a_register(fresh: StoreUnderTest) {
    let new = |to: &str| making().delivery(to).change("app", to, None);
    let one = fresh.claimed(new("1")).await.id;
    fresh.attempt(one, delivered()).await;
    let two = fresh.claimed(new("2")).await.id;
    fresh.attempt(two, delivered()).await;
    let other = fresh.claimed(making().change("other", "1", None)).await.id;
    fresh.attempt(other, delivered()).await;
    let subject = fresh.get(one).await.change.expect("it changes a subject").subject;
    let edit = async |edit: RegisterEdit| fresh.store.edit_register(subject, edit).await.expect("the store writes");
    let set = |current, deployed, good| RegisterEdit::Set { current, deployed, good };

    let is = edit(set(Some(one), None, Some(one))).await.expect("it can be set").expect("it is there");
    let of = |register: &SubjectRegister| {
        (register.event, register.deployed().map(|one| one.event), register.good().map(|one| one.event))
    };
    assert_eq!(of(&is), (one, Some(two), Some(one)));
    assert_eq!(fresh.duplicate(making().delivery("3").change("app", "1", None)).await.0, one);
    assert_eq!(edit(set(Some(other), None, None)).await, Err(RegisterEditError::OtherSubject(other)));
    let unknown = EventId([7; 16]);
    assert_eq!(edit(set(None, Some(unknown), None)).await, Err(RegisterEditError::NoEvent(unknown)));
    let is = edit(RegisterEdit::ClearDeployed).await.expect("it can be cleared").expect("it is there");
    assert_eq!(of(&is), (one, None, None));
    let waiting = fresh.claimed(new("4")).await.id;
    assert_eq!(edit(RegisterEdit::Clear).await, Err(RegisterEditError::NotOver(waiting)));
    fresh.attempt(waiting, delivered()).await;
    assert_eq!(edit(RegisterEdit::Clear).await, Ok(None));
    assert_eq!(edit(RegisterEdit::Clear).await, Err(RegisterEditError::NoRegister));
    fresh.claimed(making().delivery("5").change("app", "4", None)).await;
}

pub(super) async fn a_state_is_replaced_only_if_it_is_still_what_was_read(fresh: StoreUnderTest) {
    let (key, other) = (Key([1; 32]), Key([2; 32]));
    let text = |text: &str| Some(Arc::<str>::from(text));
    let swap = async |was: Option<Arc<str>>, is: Option<Arc<str>>| {
        fresh.store.swap_state(key, was, is).await.expect("the store writes")
    };
    let read = async |key: Key| fresh.store.state(key).await.expect("the store reads");
    assert_eq!(read(key).await, None);
    assert!(!swap(text("a"), text("b")).await);
    assert!(swap(None, text("a \"é\"\n")).await);
    assert!(!swap(None, text("b")).await);
    assert_eq!((read(key).await, read(other).await), (text("a \"é\"\n"), None));
    assert!(swap(text("a \"é\"\n"), text("b")).await);
    assert_eq!(fresh.store.registers(None, 10).await.expect("the store lists"), [], "a state is no register");
    assert!(swap(text("b"), None).await);
    assert_eq!(read(key).await, None);
    // Of several that swap at once, one wins.
    let (a, b, c, d) =
        tokio::join!(swap(None, text("1")), swap(None, text("2")), swap(None, text("3")), swap(None, text("4")));
    assert_eq!([a, b, c, d].into_iter().filter(|won| *won).count(), 1);
}
