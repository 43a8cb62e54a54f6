//! Groups: one slot each, handed on in the write that ends its holder, in the order of turns.

use super::{MINUTE, StoreUnderTest, delivered, failed, making, parked, rejected, superseded_by};
use crate::decide::event::{EventState, EventStep, QueueState};

pub(super) async fn parked_events_get_the_slot_in_the_order_of_their_turns(fresh: StoreUnderTest) {
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(fresh.claimed(making().group("g")).await);
    }
    let other = fresh.claimed(making().group("other")).await;
    assert!(!parked(&events[0]) && !parked(&other));
    assert!(events[1..].iter().all(parked), "{events:?}");
    assert!(events.windows(2).all(|two| two[0].turn < two[1].turn));
    for pair in events.windows(2) {
        assert!(parked(&fresh.get(pair[1].id).await));
        fresh.attempt(pair[0].id, delivered()).await;
        let next = fresh.get(pair[1].id).await;
        assert!(fresh.due().await.contains(&next.id), "{:?}", next.state);
        assert!(next.revision > pair[1].revision, "handing over the slot is a write");
    }
}

pub(super) async fn a_slot_is_held_across_retries(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().group("g")).await.id;
    let second = fresh.claimed(making().group("g")).await.id;
    fresh.attempt(first, failed()).await;
    assert!(parked(&fresh.get(second).await));
    fresh.wait(MINUTE);
    assert_eq!(fresh.due().await, [first]);
    fresh.attempt(first, delivered()).await;
    assert_eq!(fresh.due().await, [second]);
}

pub(super) async fn done_dead_superseded_and_suspended_events_hand_the_slot_on(fresh: StoreUnderTest) {
    let mut events = Vec::new();
    for n in 0..6 {
        let made = making().group("g");
        let made = if n == 3 { made.change("app", "A", None) } else { made };
        events.push(fresh.claimed(made).await.id);
    }
    fresh.attempt(events[0], delivered()).await;
    fresh.attempt(events[1], rejected()).await;
    fresh.step(events[2], EventStep::Cancel).await;
    fresh.start(events[3]).await;
    let by = fresh.claimed(making().change("app", "B", None)).await.id;
    assert_eq!(superseded_by(&fresh.settle(events[3], failed()).await), Some(by));
    fresh.step(events[4], EventStep::Suspend { lasts: MINUTE }).await;
    assert!(matches!(fresh.start(events[5]).await.state, EventState::Running { .. }));
    fresh.settle(events[5], delivered()).await;
    assert!(!parked(&fresh.claimed(making().group("g")).await), "with no event parked the slot is free");
}

pub(super) async fn a_replay_takes_a_new_turn_and_makes_its_event_the_current_one(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").change("app", "A", None).group("app")).await.id;
    fresh.attempt(first, delivered()).await;
    let second = fresh.claimed(making().delivery("d2").change("app", "B", None).group("app")).await;
    let replayed = fresh.step(first, EventStep::Replay).await;
    assert!(replayed.turn > second.turn && replayed.life == 2 && replayed.attempt == 0);
    assert!(parked(&replayed), "the other holds the slot");
    assert_eq!(fresh.duplicate(making().delivery("d3").change("app", "A", None)).await.0, first);
    fresh.start(second.id).await;
    assert_eq!(superseded_by(&fresh.settle(second.id, failed()).await), Some(first));
    assert!(matches!(fresh.start(first).await.state, EventState::Running { .. }));
}

pub(super) async fn a_suspended_event_is_skipped_and_queues_again_when_it_resumes(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().group("g")).await;
    let second = fresh.claimed(making().group("g")).await.id;
    let third = fresh.claimed(making().group("g")).await.id;
    let aside = fresh.step(first.id, EventStep::Suspend { lasts: MINUTE }).await;
    assert_eq!((aside.queue_state, aside.turn), (QueueState::Suspended, first.turn));
    assert_eq!(fresh.due().await, [second]);
    let back = fresh.step(first.id, EventStep::Unsuspend).await;
    assert!(parked(&back) && back.queue_state == QueueState::Requeued, "{back:?}");
    fresh.attempt(second, delivered()).await;
    assert_eq!(fresh.due().await, [first.id], "its turn is lower than the third's");
    assert!(parked(&fresh.get(third).await));
}
