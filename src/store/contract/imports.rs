//! What was done before there was this store: keys without an event, looked up and never claimed.

use super::{DAY, Fresh, KEPT, delivered, making};
use crate::decide::claim::Counts::{Always, WhileRegisterEmpty};
use crate::decide::claim::Same;
use crate::store::{Imported, Keeps, Listing};
use std::sync::Arc;

pub(super) async fn an_imported_delivery_is_a_duplicate_without_an_event(fresh: Fresh) {
    fresh.import(&["d1"]).await;
    assert_eq!(fresh.known(making().delivery("d1").body("b1").known_as("d1", Always)).await, Same::Delivery);
    assert_eq!(fresh.known(making().delivery("d1").body("b2").known_as("d1", Always)).await, Same::Delivery);
    fresh.claimed(making().delivery("d2").body("b1").known_as("d2", Always)).await;
}

pub(super) async fn an_imported_change_counts_only_while_its_register_is_empty(fresh: Fresh) {
    fresh.import(&["A"]).await;
    let to = |id: &str, subject: &str, to: &str| {
        making().delivery(id).known_as(id, Always).known_as(to, WhileRegisterEmpty).change(subject, to, None)
    };
    assert_eq!(fresh.known(to("d1", "app", "A")).await, Same::Change);
    assert_eq!(fresh.known(to("d2", "app", "A")).await, Same::Change);
    fresh.claimed(to("d3", "app", "B")).await;
    fresh.claimed(to("d4", "app", "A")).await;
    assert_eq!(fresh.known(to("d5", "other", "A")).await, Same::Change);
}

pub(super) async fn what_has_no_register_is_known_for_ever(fresh: Fresh) {
    fresh.import(&["A"]).await;
    fresh.claimed(making().delivery("d1").known_as("B", WhileRegisterEmpty)).await;
    fresh.known(making().delivery("d2").known_as("A", WhileRegisterEmpty)).await;
}

pub(super) async fn an_imported_key_is_never_claimed_and_never_forgotten(fresh: Fresh) {
    fresh.claimed(making().delivery("d1").known_as("d1", Always)).await;
    assert_eq!(fresh.import(&["d1", "d2"]).await, Imported { new: 2, known: 0 });
    fresh.wait(400 * DAY);
    let keeps = Keeps { sources: [("source".into(), KEPT)].into() };
    fresh.store.forget(Arc::new(keeps), 100).await.expect("the store forgets");
    assert_eq!(fresh.known(making().delivery("d2").known_as("d2", Always)).await, Same::Delivery);
}

pub(super) async fn an_own_key_comes_before_an_imported_one_and_the_register_after_it(fresh: Fresh) {
    let made = making().delivery("d1").known_as("d1", Always).change("app", "A", Some(10));
    let first = fresh.claimed(made.clone()).await.id;
    fresh.attempt(first, delivered()).await;
    fresh.import(&["d1", "d2"]).await;
    assert_eq!(fresh.claimed(made).await.id, first);
    assert_eq!(fresh.duplicate(making().delivery("d1").known_as("d1", Always)).await, (first, Same::Delivery));
    let older = making().delivery("d2").known_as("d2", Always).change("app", "B", Some(1));
    assert_eq!(fresh.known(older).await, Same::Delivery);
}

pub(super) async fn an_imported_duplicate_leaves_nothing_behind(fresh: Fresh) {
    fresh.import(&["d1"]).await;
    fresh.known(making().delivery("d1").body("b1").known_as("d1", Always).change("app", "A", Some(10))).await;
    let listing = Listing { limit: 10, ..Listing::default() };
    assert_eq!(fresh.store.list(listing).await.expect("the store reads"), []);
    fresh.claimed(making().delivery("d2").body("b1").change("app", "B", Some(1))).await;
}

pub(super) async fn importing_twice_changes_nothing_and_says_so(fresh: Fresh) {
    assert_eq!(fresh.import(&["d1", "d2", "d1"]).await, Imported { new: 2, known: 1 });
    assert_eq!(fresh.import(&["d2", "d1"]).await, Imported { new: 0, known: 2 });
    assert_eq!(fresh.import(&["d3", "d1"]).await, Imported { new: 1, known: 1 });
    assert_eq!(fresh.import(&[]).await, Imported::default());
}
