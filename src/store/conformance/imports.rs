//! What was done before there was this store: keys without an event, looked up and never claimed.

use super::{DAY, KEPT, StoreUnderTest, delivered, making};
use crate::decide::claim::ImportedKeyValidity::{Always, WhileRegisterEmpty};
use crate::decide::claim::MatchedBy;
use crate::store::{EventQuery, ImportCounts, RetentionPolicies};
use std::sync::Arc;

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

pub(super) async fn what_has_no_register_is_known_for_ever(fresh: StoreUnderTest) {
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

pub(super) async fn an_own_key_comes_before_an_imported_one_and_the_register_after_it(fresh: StoreUnderTest) {
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
