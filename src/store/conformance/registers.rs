//! Registers: what a subject was last changed to, and the effect on earlier events.

use super::deploys::{resolved, step_on};
use super::{
    DAY, MINUTE, SECOND, StoreUnderTest, dead_of, delivered, failed, making, rejected, route, start, superseded_by,
};
use crate::decide::claim::{ClaimResult, DuplicateTarget, MatchedBy};
use crate::decide::event::{DeathCause, Event, EventState, EventStep, SucceededBlocks};
use crate::decide::id::Key;
use crate::decide::retry::Jitter;
use crate::decide::source::{Route, WhenBusy};
use crate::store::{AdvanceResult, StoredValue};

pub(super) async fn another_value_is_new_and_the_same_value_is_a_duplicate(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").change("app", "A", None)).await.id;
    assert_eq!(fresh.duplicate(making().delivery("d2").change("app", "A", None)).await, (first, MatchedBy::Change));
    let second = fresh.claimed(making().delivery("d3").change("app", "B", None)).await.id;
    assert_eq!(fresh.duplicate(making().delivery("d4").change("app", "B", None)).await.0, second);
    fresh.claimed(making().delivery("d5").change("other", "A", None)).await;
}

pub(super) async fn a_change_a_new_value_and_the_rollback_are_three_events(fresh: StoreUnderTest) {
    for (n, to) in ["A", "B", "A"].into_iter().enumerate() {
        fresh.claimed(making().delivery(&format!("d{n}")).change("app", to, None)).await;
    }
}

pub(super) async fn where_a_registry_decides_a_newer_delivery_of_the_same_change_is_new_once_it_was_asked(
    fresh: StoreUnderTest,
) {
    let sent = |id: &str, order| making().delivery(id).change("app", "A", Some(order)).group("app").hinting();
    let first = fresh.claimed(sent("d1", 1)).await.id;
    assert_eq!(fresh.duplicate(sent("d2", 2)).await, (first, MatchedBy::Change), "the registry is still to be asked");
    fresh.start(first).await;
    assert_eq!(fresh.duplicate(sent("d3", 2)).await.0, first, "it is not newer");
    let second = fresh.claimed(sent("d4", 3)).await.id;
    assert_eq!(fresh.duplicate(sent("d5", 4)).await.0, second);
    let resolve = || EventStep::Resolve { digest: "sha256:B".into(), lasts: 30 * SECOND };
    fresh.step(first, resolve()).await;
    fresh.settle(first, delivered()).await;
    let again = resolved(&fresh, second, "sha256:B", &Route::default()).await;
    assert_eq!(superseded_by(&again), Some(first), "the registry says the same");
    let third = fresh.claimed(sent("d6", 5)).await.id;
    fresh.attempt(third, rejected()).await;
    assert_eq!(fresh.duplicate(sent("d7", 6)).await.0, third, "a delivery re-arms it, but not at once");
    let plain = making().delivery("d8").change("app", "A", Some(7)).group("app");
    assert_eq!(fresh.duplicate(plain).await.0, third);
}

pub(super) async fn a_delivery_matched_through_its_register_is_still_a_duplicate_after_the_next_change(
    fresh: StoreUnderTest,
) {
    let first = fresh.claimed(making().delivery("d1").body("b1").change("app", "A", None)).await.id;
    fresh.duplicate(making().delivery("d2").body("b2").change("app", "A", None)).await;
    fresh.claimed(making().delivery("d3").body("b3").change("app", "B", None)).await;
    let again = fresh.duplicate(making().delivery("d2").body("x").change("app", "A", None)).await;
    assert_eq!(again, (first, MatchedBy::Delivery));
    let again = fresh.duplicate(making().delivery("x").body("b2").change("app", "A", None)).await;
    assert_eq!(again, (first, MatchedBy::Body));
}

pub(super) async fn named_fields_leave_no_alias(fresh: StoreUnderTest) {
    fresh.claimed(making().delivery("d1").named("n1").change("app", "A", None)).await;
    fresh.duplicate(making().delivery("d2").named("n2").change("app", "A", None)).await;
    fresh.claimed(making().delivery("d3").named("n2").change("app", "B", None)).await;
}

pub(super) async fn an_older_order_is_stale_and_an_equal_one_is_not(fresh: StoreUnderTest) {
    fresh.claimed(making().delivery("d1").change("app", "A", Some(10))).await;
    let newer = fresh.claimed(making().delivery("d2").change("app", "B", Some(20))).await.id;
    assert_eq!(fresh.stale(making().delivery("d3").change("app", "A", Some(19))).await, newer);
    let equal = fresh.claimed(making().delivery("d3").change("app", "C", Some(20))).await.id; // the stale one left no key
    assert_eq!(fresh.stale(making().delivery("d4").change("app", "A", Some(-5))).await, equal);
    assert_eq!(fresh.duplicate(making().delivery("d5").change("app", "C", Some(1))).await.0, equal);
    fresh.claimed(making().delivery("d6").change("app", "D", None)).await;
}

pub(super) async fn after_a_replay_an_equal_order_is_stale_until_a_newer_one_comes(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").change("app", "A", Some(10))).await.id;
    let second = fresh.claimed(making().delivery("d2").change("app", "B", Some(20))).await.id;
    for id in [first, second] {
        fresh.attempt(id, delivered()).await;
    }
    fresh.step(first, EventStep::Replay).await;
    assert_eq!(fresh.stale(making().delivery("d3").change("app", "C", Some(20))).await, first);
    assert_eq!(fresh.duplicate(making().delivery("d4").change("app", "A", Some(20))).await.0, first);
    fresh.claimed(making().delivery("d5").change("app", "C", Some(21))).await;
    fresh.claimed(making().delivery("d6").change("app", "D", Some(21))).await;
}

pub(super) async fn a_duplicate_with_a_newer_order_moves_its_event_forward_and_no_running_attempt_loses(
    fresh: StoreUnderTest,
) {
    let event = fresh.claimed(making().delivery("d1").change("app", "A", Some(10))).await;
    let running = fresh.start(event.id).await;
    fresh.duplicate(making().delivery("d2").change("app", "A", Some(30))).await;
    let order = |event: &Event| event.change.and_then(|change| change.order);
    assert_eq!(order(&fresh.get(event.id).await), Some(30));
    let settle = EventStep::Settle { outcome: delivered(), blocks: running.blocks, jitter: Jitter(0) };
    let change = running.transition(settle, &route(), fresh.store.now()).expect("it runs");
    let AdvanceResult::Written { event, .. } = fresh.store.advance(vec![change]).await.expect("it writes").remove(0)
    else {
        panic!("the duplicate made the running attempt lose its compare-and-swap");
    };
    assert_eq!(order(&event), Some(30));
    assert_eq!(fresh.stale(making().delivery("d3").change("app", "B", Some(29))).await, event.id);
    fresh.duplicate(making().delivery("d4").change("app", "A", Some(20))).await;
    assert_eq!(fresh.stale(making().delivery("d5").change("app", "B", Some(29))).await, event.id);
}

pub(super) async fn a_first_attempt_runs_even_if_its_event_was_replaced(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").change("app", "A", None)).await.id;
    fresh.claimed(making().delivery("d2").change("app", "B", None)).await;
    assert!(matches!(fresh.start(first).await.state, EventState::Running { .. }));
    fresh.step(first, EventStep::HandBack).await;
    assert!(matches!(fresh.start(first).await.state, EventState::Running { .. }));
    assert_eq!(superseded_by(&fresh.settle(first, delivered()).await), None);
}

pub(super) async fn a_replaced_event_is_superseded_wherever_it_would_be_retried(fresh: StoreUnderTest) {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for subject in ["settle", "expire", "start", "rearm"] {
        let event = fresh.claimed(making().delivery(subject).change(subject, "A", None)).await.id;
        if subject == "rearm" {
            assert_eq!(dead_of(&fresh.attempt(event, rejected()).await), Some(DeathCause::Rejected));
        } else if subject != "start" {
            fresh.start(event).await;
        }
        old.push(event);
        new.push(fresh.claimed(making().change(subject, "B", None)).await.id);
    }
    assert_eq!(superseded_by(&fresh.settle(old[0], failed()).await), Some(new[0]));
    fresh.wait(MINUTE);
    assert_eq!(superseded_by(&fresh.step(old[1], EventStep::Expire { jitter: Jitter(0) }).await), Some(new[1]));
    // A second attempt that was prepared before the subject was changed.
    let second = Event { attempt: 1, ..fresh.get(old[2]).await };
    let change = second.transition(start(), &route(), fresh.store.now()).expect("it may start");
    let AdvanceResult::Written { event, .. } = fresh.store.advance(vec![change]).await.expect("it writes").remove(0)
    else {
        panic!("lost");
    };
    assert_eq!(superseded_by(&event), Some(new[2]));
    assert_eq!(superseded_by(&fresh.step(old[3], EventStep::Rearm).await), Some(new[3]));
    for id in old {
        assert!(fresh.get(id).await.state.ended().is_some());
    }
}

pub(super) async fn a_waiting_event_with_attempts_ends_when_it_is_replaced_and_hands_its_slot_on(
    fresh: StoreUnderTest,
) {
    let first = fresh.claimed(making().delivery("d1").change("app", "A", None).group("app")).await.id;
    fresh.attempt(first, failed()).await;
    let second = fresh.claimed(making().delivery("d2").change("app", "B", None).group("app")).await;
    assert_eq!(superseded_by(&fresh.get(first).await), Some(second.id));
    assert!(
        matches!(second.state, EventState::Waiting { due: Some(_) }),
        "the slot was free by then: {:?}",
        second.state
    );
    fresh.start(second.id).await;
}

pub(super) async fn duplicates_of_a_superseded_event_return_the_current_one(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").change("app", "A", None)).await.id;
    fresh.attempt(first, failed()).await;
    let second = fresh.claimed(making().delivery("d2").change("app", "B", None)).await.id;
    match fresh.claim(making().delivery("d1").change("app", "A", None)).await {
        ClaimResult::Duplicate { event, same: MatchedBy::Delivery, target: DuplicateTarget::ViaSuccessor, .. } => {
            assert_eq!(event.id, second);
        }
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_rearm_takes_the_arriving_body(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1").carrying("old")).await.id;
    let dead = fresh.attempt(event, rejected()).await;
    fresh.wait(DAY);
    let arriving = making().carrying("new");
    let mut change = dead.transition(EventStep::Rearm, &route(), fresh.store.now()).expect("it may be re-armed");
    change.event.body_digest = arriving.clone().made(fresh.store.now()).event.body_digest;
    change.event.digest = change.event.immutable_digest();
    change.payload = Some(arriving.payload().clone());
    let AdvanceResult::Written { event, .. } = fresh.store.advance(vec![change]).await.expect("it writes").remove(0)
    else {
        panic!("lost");
    };
    assert_eq!(fresh.get(event.id).await, *event);
    assert_eq!(event.digest, event.immutable_digest());
    assert_eq!(fresh.store.payload(event.id).await.expect("it reads"), StoredValue::Whole(arriving.payload().clone()));
    fresh.wait(SECOND);
    assert_eq!(fresh.start(event.id).await.attempt, 2, "the attempt count continues");
}

pub(super) async fn a_republished_event_takes_the_arriving_body_and_keeps_its_first_end(fresh: StoreUnderTest) {
    let sent = || making().delivery("d1").body("b1").group("g").passing("x-signature", "again");
    let first = fresh.claimed(making().delivery("d1").body("b1").group("g")).await;
    let ended = fresh.attempt(first.id, delivered()).await;
    for n in 1..=2 {
        fresh.wait(9 * DAY);
        let arriving = sent().made(fresh.store.now());
        let done = fresh.get(first.id).await;
        let change = done.publish_again(&arriving, &route(), fresh.store.now()).expect("it was published");
        let both = fresh.store.advance(vec![change.clone()]).await.expect("it writes").remove(0);
        let AdvanceResult::Written { event, .. } = both else { panic!("lost") };
        assert_eq!(
            fresh.store.advance(vec![change]).await.expect("it writes").remove(0),
            AdvanceResult::Lost,
            "the same transition again"
        );
        assert_eq!(fresh.get(first.id).await, *event);
        assert_eq!((event.turn, event.life, event.digest), (first.turn, 1, event.immutable_digest()));
        assert_eq!(event.idempotency_key(), format!("{}.r{n}", first.id));
        let payload = fresh.store.payload(first.id).await.expect("it reads");
        assert_eq!(payload, StoredValue::Whole(arriving.payload), "with the signature that arrived");
        let again = fresh.attempt(first.id, delivered()).await;
        assert_eq!(fresh.get(first.id).await, again);
        assert_eq!(again.state, ended.state, "it ended when it first did");
        let StoredValue::Whole(payload) = fresh.store.payload(first.id).await.expect("it reads") else {
            panic!("no body")
        };
        assert_eq!(payload.transient_header_names().count(), 0, "the signature was removed");
    }
    fresh.wait(11 * DAY);
    assert_eq!(fresh.duplicate(sent()).await.0, first.id, "29 days after its first end");
    fresh.wait(DAY);
    fresh.claimed(sent()).await;
}

pub(super) async fn an_event_that_is_no_longer_current_is_not_published_again(fresh: StoreUnderTest) {
    let sent = || making().delivery("d1").body("b1").change("app", "A", None);
    let first = fresh.claimed(sent()).await;
    let done = fresh.attempt(first.id, delivered()).await;
    let publish = |event: &Event| {
        let now = fresh.store.now();
        event.publish_again(&sent().made(now), &route(), now).expect("it was published")
    };
    let meanwhile = publish(&done);
    let second = fresh.claimed(making().delivery("d2").change("app", "B", None)).await.id;
    assert_eq!(fresh.store.advance(vec![meanwhile]).await.expect("it reads").remove(0), AdvanceResult::Lost);
    assert_eq!(fresh.get(first.id).await, done, "nothing was written");
    match fresh.claim(sent()).await {
        ClaimResult::Duplicate {
            event, same: MatchedBy::Delivery, target: DuplicateTarget::DirectNotCurrent, ..
        } => {
            assert_eq!((event.id, event.state), (first.id, done.state.clone()));
        }
        other => panic!("{other:?}"),
    }
    // Replaced while it waits to be published again, it stays done, and hands its slot on.
    fresh.attempt(second, delivered()).await;
    let current = making().delivery("d2").change("app", "B", None).made(fresh.store.now());
    let change =
        fresh.get(second).await.publish_again(&current, &route(), fresh.store.now()).expect("it was published");
    let before = fresh.get(second).await.state;
    fresh.store.advance(vec![change]).await.expect("it writes");
    fresh.claimed(making().delivery("d3").change("app", "C", None)).await;
    assert_eq!(fresh.get(second).await.state, before);
}

pub(super) async fn each_event_of_a_queue_without_a_subject_is_published_again(fresh: StoreUnderTest) {
    let route = Route { when_busy: WhenBusy::Replace { debounce: None }, ..route() };
    let sent = |id: &str| making().delivery(id).body(id.to_owned()).in_queue("q").group("q").replacing(None);
    let first = fresh.claimed(sent("d1")).await.id;
    fresh.attempt(first, delivered()).await;
    let second = fresh.claimed(sent("d2")).await.id;
    fresh.attempt(second, delivered()).await;
    let again = sent("d1").made(fresh.store.now());
    let ClaimResult::Duplicate { event, same, target, now } = fresh.claim_all(vec![again.clone()]).await.remove(0)
    else {
        panic!("not a duplicate")
    };
    assert_eq!((event.id, same, target), (first, MatchedBy::Delivery, DuplicateTarget::Direct));
    let change = event.publish_again(&again, &route, now).expect("it was published");
    fresh.store.advance(vec![change]).await.expect("it writes");
    let failed_once = step_on(&fresh, first, start(), &route).await;
    assert_eq!(failed_once.state.word(), "running", "the newer event in its queue is another one");
    let settle = EventStep::Settle { outcome: failed(), blocks: SucceededBlocks(0), jitter: Jitter(0) };
    assert_eq!(step_on(&fresh, first, settle, &route).await.state.word(), "waiting", "it is tried again");
    fresh.wait(2 * SECOND);
    fresh.attempt(first, delivered()).await;
    assert_eq!(fresh.get(second).await.published_again, None);
}

pub(super) async fn a_duplicate_of_a_done_event_matches_by_its_delivery_id_wherever_per_names_it(
    fresh: StoreUnderTest,
) {
    let sent = || making().body("b1").delivery("d1");
    let first = fresh.claimed(sent()).await.id;
    assert_eq!(fresh.duplicate(sent()).await, (first, MatchedBy::Body), "in the order of `per`");
    fresh.attempt(first, delivered()).await;
    assert_eq!(fresh.duplicate(sent()).await, (first, MatchedBy::Delivery));
    assert_eq!(fresh.duplicate(making().body("b1").delivery("d2")).await, (first, MatchedBy::Body));
}

pub(super) async fn a_register_is_found_by_its_key_and_a_list_may_begin_anywhere(fresh: StoreUnderTest) {
    let list = async |after: Option<Key>, limit| fresh.store.registers(after, limit).await.expect("the store lists");
    let read = async |key: Key| fresh.store.register(key).await.expect("the store reads");
    for n in 0..5 {
        fresh.claimed(making().delivery(&format!("d{n}")).change(&format!("app{n}"), "A", None)).await;
        // Each list includes the newest, wherever it begins.
        for (key, register) in list(None, 10).await {
            assert_eq!(list(key.predecessor(), 1).await, [(key, register.clone())]);
            assert_eq!(read(key).await, Some(register));
        }
    }
    let all = list(None, 10).await;
    assert!(all.len() == 5 && all.is_sorted_by_key(|(key, _)| *key));
    assert_eq!(list(Some(all[1].0), 2).await, all[2..4]);
    let none = Key([0; 32]);
    assert_eq!((read(none).await, list(Some(all[4].0), 10).await), (None, Vec::new()));
    assert!(fresh.store.swap_state(none, None, Some("state".into())).await.expect("the store writes"));
    assert_eq!((read(none).await, list(None, 10).await), (None, all), "a state is no register");
}
