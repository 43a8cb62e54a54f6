//! An attacker who has captured a signed body but has no secret can do nothing that was not done before.

use crate::support::{House, Sent, package};
use crate::{GHCR, IN, ghcr, number, numbers};

const RUN: &str = "run = { steps = [\"echo $HOOKONCE_FIELD_VERSION_ID >> runs\"] }";

/// Checks the status and word of each delivery, one after another; then what ran.
async fn check(deliveries: &[(Sent, u16, &str)], runs: &[&str]) {
    let house = House::new(&ghcr(RUN));
    for (sent, status, word) in deliveries {
        let answer = house.deliver(GHCR, sent).await;
        assert_eq!((answer.status, &*answer.word()), (*status, *word), "{answer:?}");
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), runs);
}

#[tokio::test]
async fn an_old_body_under_a_forged_id_does_not_suppress_the_real_delivery() {
    let old = Sent::package("old", "latest", 1, 1);
    let deliveries = [
        (old.clone(), 202, "accepted"),
        (old.with("x-github-delivery", "next"), 200, "duplicate"),
        (Sent::package("next", "latest", 2, 2), 202, "accepted"),
        (Sent::package("next", "latest", 2, 2), 200, "duplicate"),
    ];
    check(&deliveries, &["1", "2"]).await;
}

#[tokio::test]
async fn the_id_of_a_delivery_is_bound_to_its_body_where_it_is_not_signed() {
    let house = House::new(&numbers("", "run = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }"));
    for (sent, word) in [
        (number("next", 1), "accepted"),
        (number("next", 2), "accepted"),
        (number("next", 1), "duplicate"),
        (number("next", 2), "duplicate"),
    ] {
        assert_eq!(house.deliver(IN, &sent).await.word(), word);
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), ["1", "2"]);
}

#[tokio::test]
async fn a_body_replayed_under_a_new_id_does_not_act() {
    let sent = Sent::package("a", "latest", 1, 1);
    let replay = |id: &str| sent.clone().with("x-github-delivery", id);
    let deliveries = [
        (sent.clone(), 202, "accepted"),
        (replay("b"), 200, "duplicate"),
        (Sent::package("c", "latest", 2, 2), 202, "accepted"),
        (replay("d"), 200, "duplicate"),
        (replay("e"), 200, "duplicate"),
    ];
    check(&deliveries, &["1", "2"]).await;
}

#[tokio::test]
async fn ids_around_two_to_the_53_stay_distinct() {
    let (one, two) = (9_007_199_254_740_992, 9_007_199_254_740_993);
    // The same digest, so that only the number distinguishes them.
    let body = |version: u64, second| {
        package("latest", version, second).replace(&format!("{version:064x}"), &format!("{:064x}", 1))
    };
    let sent = |id, version, second| Sent::github("registry_package", id, &body(version, second));
    let deliveries = [
        (sent("a", one, 1), 202, "accepted"),
        (sent("b", two, 2), 202, "accepted"),
        (sent("c", two, 3), 200, "duplicate"),
    ];
    check(&deliveries, &["9007199254740992", "9007199254740993"]).await;
}

#[tokio::test]
async fn a_body_of_another_kind_does_not_act_whatever_its_header() {
    let push = Sent::github("push", "a", r#"{"ref":"refs/heads/main","repository":{"name":"jamiec_ts"}}"#);
    let forged = push.clone().with("x-github-event", "registry_package");
    check(&[(push, 200, "ignored"), (forged.clone(), 422, "refused")], &[]).await;
    let house = House::new(&ghcr(RUN));
    assert_eq!(house.deliver(GHCR, &forged).await.json()["reason"], "kind_mismatch");
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
}
