//! Keys: all of an event's or none; and revisions: the fence.

use super::{MINUTE, SECOND, StoreUnderTest, delivered, making, rejected, route, start};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::{Claim, MatchedBy};
use crate::decide::event::{EventState, EventStep};
use crate::decide::id::Revision;
use crate::decide::time::Timestamp;
use crate::store::AdvanceResult;

pub(super) async fn a_first_claim_is_new_and_is_there_when_it_returns(fresh: StoreUnderTest) {
    let made = making().delivery("d1").body("b1");
    let event = fresh.claimed(made.clone()).await;
    assert_eq!(event.id, made.id());
    assert_eq!(event.revision, Revision::FIRST);
    assert_eq!(fresh.get(event.id).await, event);
    assert_eq!(fresh.store.get(making().id()).await.expect("the store reads"), None);
}

pub(super) async fn a_second_claim_is_a_duplicate_by_each_identity(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("d1").body("b1").named("n1")).await.id;
    assert_eq!(fresh.duplicate(making().delivery("d1").body("b2")).await, (first, MatchedBy::Delivery));
    assert_eq!(fresh.duplicate(making().delivery("d2").body("b1")).await, (first, MatchedBy::Body));
    assert_eq!(fresh.duplicate(making().delivery("d3").named("n1")).await, (first, MatchedBy::Fields("hash".into())));
    fresh.claimed(making().delivery("d4").body("b4").named("n4")).await;
}

pub(super) async fn a_body_that_stands_for_an_unsigned_id_tells_the_same_delivery_from_another(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().unsigned("d1", "b1")).await.id;
    assert_eq!(fresh.duplicate(making().unsigned("d1", "b1")).await, (first, MatchedBy::Delivery));
    assert_eq!(fresh.duplicate(making().unsigned("d2", "b1")).await, (first, MatchedBy::Body));
    let story = fresh.store.details(first).await.expect("it reads").expect("it is there");
    assert_eq!(story.identities, [MatchedBy::Delivery, MatchedBy::Body]);
    fresh.claimed(making().unsigned("d1", "b2")).await;
    fresh.attempt(first, rejected()).await;
    assert_eq!(fresh.duplicate(making().unsigned("d1", "b1")).await, (first, MatchedBy::Delivery));
    assert_eq!(fresh.duplicate(making().unsigned("d2", "b1")).await, (first, MatchedBy::Body));
}

pub(super) async fn an_alias_knows_the_id_that_brought_it(fresh: StoreUnderTest) {
    let change = |id: &str, body: &'static str, to: &str| making().unsigned(id, body).change("app", to, None);
    let first = fresh.claimed(change("d1", "b1", "A")).await.id;
    assert_eq!(fresh.duplicate(change("d2", "b2", "A")).await, (first, MatchedBy::Change));
    fresh.claimed(change("d3", "b3", "B")).await;
    assert_eq!(fresh.duplicate(change("d2", "b2", "A")).await, (first, MatchedBy::Delivery));
    assert_eq!(fresh.duplicate(change("d1", "b1", "A")).await, (first, MatchedBy::Delivery));
    assert_eq!(fresh.duplicate(change("x", "b2", "A")).await, (first, MatchedBy::Body));
}

pub(super) async fn what_was_claimed_by_an_id_alone_is_found_by_it_after_an_upgrade_and_the_other_way_round(
    fresh: StoreUnderTest,
) {
    let old = fresh.claimed(making().unsigned_alone("d1", "b1")).await.id;
    assert_eq!(fresh.duplicate(making().unsigned("d1", "b1")).await, (old, MatchedBy::Delivery));
    assert_eq!(
        fresh.duplicate(making().unsigned("d1", "b1")).await,
        (old, MatchedBy::Delivery),
        "again, and nothing is written"
    );
    fresh.claimed(making().unsigned("d1", "other")).await;
    let new = fresh.claimed(making().unsigned("d2", "b2")).await.id;
    assert_eq!(fresh.duplicate(making().unsigned_alone("d2", "b2")).await, (new, MatchedBy::Delivery));
    fresh.claimed(making().unsigned_alone("d3", "b2")).await;
}

pub(super) async fn a_loser_leaves_none_of_its_keys_behind(fresh: StoreUnderTest) {
    fresh.claimed(making().delivery("d1").body("b1")).await;
    fresh.duplicate(making().delivery("d2").body("b1").named("n2")).await;
    fresh.claimed(making().delivery("d2").body("b2").named("n2")).await;
}

pub(super) async fn the_first_in_the_order_of_per_that_is_not_dead_is_the_answer(fresh: StoreUnderTest) {
    let dead = fresh.claimed(making().delivery("d1")).await.id;
    let second = fresh.claimed(making().body("b2")).await.id;
    let third = fresh.claimed(making().named("n3")).await.id;
    fresh.attempt(dead, rejected()).await;
    assert_eq!(fresh.duplicate(making().delivery("d1").body("b2").named("n3")).await, (second, MatchedBy::Body));
    assert_eq!(fresh.duplicate(making().named("n3").body("b2")).await.0, third);
    fresh.attempt(second, rejected()).await;
    fresh.attempt(third, rejected()).await;
    assert_eq!(fresh.duplicate(making().delivery("d1").body("b2").named("n3")).await, (dead, MatchedBy::Delivery));
}

pub(super) async fn the_same_claim_again_is_new_again_even_after_the_event_moved_on(fresh: StoreUnderTest) {
    let made = making().delivery("d1").change("app", "A", None);
    let first = fresh.claimed(made.clone()).await;
    fresh.wait(SECOND);
    assert_eq!(fresh.claimed(made.clone()).await, first);
    let done = fresh.attempt(first.id, delivered()).await;
    assert_eq!(fresh.claimed(made).await, done);
}

pub(super) async fn a_batch_with_two_deliveries_of_one_event_answers_new_and_duplicate(fresh: StoreUnderTest) {
    let now = fresh.store.now();
    let first = making().delivery("d1").body("b1");
    let batch = [first.clone(), making().delivery("d2").body("b1"), making().delivery("d2").body("b2"), first.clone()];
    let claims = fresh.claim_all(batch.into_iter().map(|one| one.made(now)).collect()).await;
    assert!(matches!(&claims[0], Claim::New { event, .. } if event.id == first.id()), "{claims:?}");
    let (id, same) = match &claims[1] {
        Claim::Duplicate { event, same, .. } => (event.id, same.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!((id, same), (first.id(), MatchedBy::Body));
    assert!(matches!(&claims[2], Claim::New { .. }), "a loser leaves no key in its batch either");
    assert!(matches!(&claims[3], Claim::New { event, .. } if event.id == first.id()));
}

pub(super) async fn a_write_that_names_another_revision_is_lost(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1")).await;
    let slept = event.transition(start(), &route(), fresh.store.now()).expect("it may start");
    let running = fresh.start(event.id).await;
    let late = fresh.store.advance(vec![slept.clone(), slept]).await.expect("the store writes");
    assert_eq!(late, [AdvanceResult::Lost, AdvanceResult::Lost]);
    assert_eq!(fresh.get(event.id).await, running);
    let nobody = making().delivery("d2").made(fresh.store.now()).event;
    let nobody = nobody.transition(start(), &route(), fresh.store.now()).expect("it may start");
    assert_eq!(fresh.store.advance(vec![nobody]).await.expect("the store writes"), [AdvanceResult::Lost]);
}

pub(super) async fn times_are_written_by_the_stores_clock(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1")).await;
    let theirs = Timestamp(1_000); // a node whose clock stopped long ago
    let step = EventStep::Start { lasts: MINUTE, by: crate::decide::id::Node("node".into()), action: ActionKind::Run };
    let change = event.transition(step, &route(), theirs).expect("it may start");
    let AdvanceResult::Written { event, now } = fresh.store.advance(vec![change]).await.expect("it writes").remove(0)
    else {
        panic!("lost");
    };
    let EventState::Running { until, .. } = event.state else { panic!("{:?}", event.state) };
    assert_eq!(until, now + MINUTE);
}
