//! Keys: all of an event's or none. Revisions: the fencing token.

use super::{DAY, KEPT, MINUTE, SECOND, StoreUnderTest, delivered, making, rejected, route, start};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::ImportedKeyValidity::{Always, WhileRegisterEmpty};
use crate::decide::claim::{ClaimResult, MatchedBy};
use crate::decide::event::{EventState, EventStep};
use crate::decide::id::Revision;
use crate::decide::time::Timestamp;
use crate::store::{AdvanceResult, EventQuery, ImportCounts, RetentionPolicies};
use std::sync::Arc;

pub(super) async fn a_first_claim_is_new_and_stored_when_it_returns(fresh: StoreUnderTest) {
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

pub(super) async fn an_event_without_a_key_is_new_each_time_and_ends_like_any_other(fresh: StoreUnderTest) {
    let first = fresh.claimed(making()).await.id;
    let second = fresh.claimed(making()).await.id;
    assert_ne!(first, second);
    fresh.attempt(first, delivered()).await;
    fresh.attempt(second, rejected()).await;
    assert!(matches!(fresh.get(first).await.state, EventState::Done { .. }));
    assert!(matches!(fresh.get(second).await.state, EventState::Dead { .. }));
    let story = fresh.store.details(first).await.expect("it reads").expect("it is there");
    assert_eq!(story.identities, []);
    fresh.claimed(making()).await;
}

pub(super) async fn a_body_key_with_an_unsigned_id_distinguishes_the_same_delivery_from_another(fresh: StoreUnderTest) {
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

pub(super) async fn an_alias_keeps_the_delivery_id_it_came_with(fresh: StoreUnderTest) {
    let change = |id: &str, body: &'static str, to: &str| making().unsigned(id, body).change("app", to, None);
    let first = fresh.claimed(change("d1", "b1", "A")).await.id;
    assert_eq!(fresh.duplicate(change("d2", "b2", "A")).await, (first, MatchedBy::Change));
    fresh.claimed(change("d3", "b3", "B")).await;
    assert_eq!(fresh.duplicate(change("d2", "b2", "A")).await, (first, MatchedBy::Delivery));
    assert_eq!(fresh.duplicate(change("d1", "b1", "A")).await, (first, MatchedBy::Delivery));
    assert_eq!(fresh.duplicate(change("x", "b2", "A")).await, (first, MatchedBy::Body));
}

pub(super) async fn an_event_claimed_by_id_alone_is_found_after_an_upgrade_and_after_a_downgrade(
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

pub(super) async fn a_duplicate_leaves_none_of_its_keys_behind(fresh: StoreUnderTest) {
    fresh.claimed(making().delivery("d1").body("b1")).await;
    fresh.duplicate(making().delivery("d2").body("b1").named("n2")).await;
    fresh.claimed(making().delivery("d2").body("b2").named("n2")).await;
}

pub(super) async fn the_first_live_match_in_the_order_of_per_is_returned(fresh: StoreUnderTest) {
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
    assert!(matches!(&claims[0], ClaimResult::New { event, .. } if event.id == first.id()), "{claims:?}");
    let (id, same) = match &claims[1] {
        ClaimResult::Duplicate { event, same, .. } => (event.id, same.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!((id, same), (first.id(), MatchedBy::Body));
    assert!(matches!(&claims[2], ClaimResult::New { .. }), "a duplicate leaves no key in its batch either");
    assert!(matches!(&claims[3], ClaimResult::New { event, .. } if event.id == first.id()));
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
    let step =
        EventStep::Start { lasts: MINUTE, by: crate::decide::id::NodeId("node".into()), action: ActionKind::Run };
    let change = event.transition(step, &route(), theirs).expect("it may start");
    let AdvanceResult::Written { event, now } = fresh.store.advance(vec![change]).await.expect("it writes").remove(0)
    else {
        panic!("lost");
    };
    let EventState::Running { until, .. } = event.state else { panic!("{:?}", event.state) };
    assert_eq!(until, now + MINUTE);
}

pub(super) async fn an_imported_delivery_is_a_duplicate_without_an_event(fresh: StoreUnderTest) {
    fresh.import(&["d1"]).await;
    assert_eq!(fresh.known(making().delivery("d1").body("b1").known_as("d1", Always)).await, MatchedBy::Delivery);
    assert_eq!(fresh.known(making().delivery("d1").body("b2").known_as("d1", Always)).await, MatchedBy::Delivery);
    fresh.claimed(making().delivery("d2").body("b1").known_as("d2", Always)).await;
}

pub(super) async fn an_imported_change_counts_only_while_its_register_is_empty(fresh: StoreUnderTest) {
    fresh.import(&["A"]).await;
    let to = |id: &str, subject: &str, to: &str| {
        making().delivery(id).known_as(id, Always).known_as(to, WhileRegisterEmpty).change(subject, to, None)
    };
    assert_eq!(fresh.known(to("d1", "app", "A")).await, MatchedBy::Change);
    assert_eq!(fresh.known(to("d2", "app", "A")).await, MatchedBy::Change);
    fresh.claimed(to("d3", "app", "B")).await;
    fresh.claimed(to("d4", "app", "A")).await;
    assert_eq!(fresh.known(to("d5", "other", "A")).await, MatchedBy::Change);
}

pub(super) async fn an_imported_key_without_a_register_is_known_for_ever(fresh: StoreUnderTest) {
    fresh.import(&["A"]).await;
    fresh.claimed(making().delivery("d1").known_as("B", WhileRegisterEmpty)).await;
    fresh.known(making().delivery("d2").known_as("A", WhileRegisterEmpty)).await;
}

pub(super) async fn an_imported_key_is_never_claimed_and_never_forgotten(fresh: StoreUnderTest) {
    fresh.claimed(making().delivery("d1").known_as("d1", Always)).await;
    assert_eq!(fresh.import(&["d1", "d2"]).await, ImportCounts { new: 2, known: 0 });
    fresh.wait(400 * DAY);
    let keeps = RetentionPolicies { sources: [("source".into(), KEPT)].into() };
    fresh.store.forget(Arc::new(keeps), 100).await.expect("the store forgets");
    assert_eq!(fresh.known(making().delivery("d2").known_as("d2", Always)).await, MatchedBy::Delivery);
}

pub(super) async fn a_claimed_key_wins_over_an_imported_one_and_that_over_the_register(fresh: StoreUnderTest) {
    let made = making().delivery("d1").known_as("d1", Always).change("app", "A", Some(10));
    let first = fresh.claimed(made.clone()).await.id;
    fresh.attempt(first, delivered()).await;
    fresh.import(&["d1", "d2"]).await;
    assert_eq!(fresh.claimed(made).await.id, first);
    assert_eq!(fresh.duplicate(making().delivery("d1").known_as("d1", Always)).await, (first, MatchedBy::Delivery));
    let older = making().delivery("d2").known_as("d2", Always).change("app", "B", Some(1));
    assert_eq!(fresh.known(older).await, MatchedBy::Delivery);
}

pub(super) async fn an_imported_duplicate_leaves_nothing_behind(fresh: StoreUnderTest) {
    fresh.import(&["d1"]).await;
    fresh.known(making().delivery("d1").body("b1").known_as("d1", Always).change("app", "A", Some(10))).await;
    let listing = EventQuery { limit: 10, ..EventQuery::default() };
    assert_eq!(fresh.store.list(listing).await.expect("the store reads"), []);
    fresh.claimed(making().delivery("d2").body("b1").change("app", "B", Some(1))).await;
}

pub(super) async fn importing_twice_changes_nothing_and_says_so(fresh: StoreUnderTest) {
    assert_eq!(fresh.import(&["d1", "d2", "d1"]).await, ImportCounts { new: 2, known: 1 });
    assert_eq!(fresh.import(&["d2", "d1"]).await, ImportCounts { new: 0, known: 2 });
    assert_eq!(fresh.import(&["d3", "d1"]).await, ImportCounts { new: 1, known: 1 });
    assert_eq!(fresh.import(&[]).await, ImportCounts::default());
}
