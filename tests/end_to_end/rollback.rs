//! Subjects that change: rollbacks, late deliveries, retries that are superseded.

use crate::support::{House, Sent, until};
use crate::{GHCR, ghcr, touch};

const RUN: &str = "run = { steps = [\"echo $HOOKONCE_FIELD_VERSION_ID >> runs\"] }";

/// Checks the status word of each delivery (id, version, second), one after another; then what ran.
async fn check(deliveries: &[(&str, u64, u32, &str)], runs: &[&str]) {
    let house = House::new(&ghcr(RUN));
    for (id, version, second, word) in deliveries {
        let answer = house.deliver(GHCR, &Sent::package(id, "latest", *version, *second)).await;
        assert_eq!(answer.word(), *word, "{id}: {answer:?}");
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), runs);
}

#[tokio::test]
async fn a_rollback_is_a_deploy() {
    check(&[("a", 1, 1, "accepted"), ("b", 2, 2, "accepted"), ("c", 1, 3, "accepted")], &["1", "2", "1"]).await;
}

#[tokio::test]
async fn an_older_order_is_stale_and_an_equal_one_is_not() {
    let deliveries = [("a", 1, 5, "accepted"), ("b", 2, 4, "stale"), ("b", 2, 4, "stale"), ("c", 3, 5, "accepted")];
    check(&deliveries, &["1", "3"]).await;
}

#[tokio::test]
async fn a_repeat_after_the_next_change_is_no_rollback() {
    let deliveries = [
        ("d1", 1, 1, "accepted"),
        ("d2", 1, 2, "duplicate"),
        ("b", 2, 3, "accepted"),
        ("d2", 1, 2, "duplicate"),
        ("d1", 1, 1, "duplicate"),
        ("d2 under a new id", 1, 2, "duplicate"),
    ];
    check(&deliveries, &["1", "2"]).await;
}

#[tokio::test]
async fn a_newer_repeat_makes_changes_in_between_stale() {
    let deliveries =
        [("a", 1, 1, "accepted"), ("again", 1, 9, "duplicate"), ("b", 2, 5, "stale"), ("c", 3, 10, "accepted")];
    check(&deliveries, &["1", "3"]).await;
}

#[tokio::test]
async fn a_retry_never_overwrites_a_newer_change() {
    let step = "echo $HOOKONCE_FIELD_VERSION_ID >> runs; test $HOOKONCE_FIELD_VERSION_ID = 2";
    let retry = "retry = { attempts = 3, first = \"1h\", longest = \"1h\" }";
    let house = House::new(&ghcr(&format!("{retry}\nrun = {{ steps = [\"{step}\"] }}")));
    let a = house.deliver(GHCR, &Sent::package("a", "latest", 1, 1)).await;
    until("the retry of A to wait", || house.lines("runs").len() == 1 && house.count("waiting") == 1).await;
    let b = house.deliver(GHCR, &Sent::package("b", "latest", 2, 2)).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "2"]);
    let shown = house.ask("GET", &format!("/api/events/{}", a.event())).await.json();
    assert_eq!((shown["state"].as_str(), shown["how"].as_str()), (Some("done"), Some("superseded")), "{shown}");
    assert_eq!(shown["superseded_by"], b.json()["event"], "{shown}");
    // Its duplicates are answered with the event that superseded it.
    let again = house.deliver(GHCR, &Sent::package("a", "latest", 1, 1)).await;
    assert_eq!((again.word(), again.event()), ("duplicate".into(), b.event()), "{again:?}");
    assert_eq!(again.json()["state"], "done", "{again:?}");
}

#[tokio::test]
async fn an_event_superseded_while_it_runs_is_not_retried_when_it_fails() {
    let step = "echo $HOOKONCE_FIELD_VERSION_ID >> runs; until test -e go; do sleep 0.01; done; \
                test $HOOKONCE_FIELD_VERSION_ID = 2";
    let retry = "retry = { attempts = 3, first = \"1ms\" }";
    let house = House::new(&ghcr(&format!("{retry}\nrun = {{ steps = [\"{step}\"] }}")));
    let a = house.deliver(GHCR, &Sent::package("a", "latest", 1, 1)).await.event();
    until("A to run", || house.lines("runs").len() == 1).await;
    house.deliver(GHCR, &Sent::package("b", "latest", 2, 2)).await;
    touch(&house, "go");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "2"]);
    assert_eq!(house.ask("GET", &format!("/api/events/{a}")).await.json()["how"], "superseded");
}

#[tokio::test]
async fn a_replay_makes_an_old_event_its_subjects_current_one() {
    let house = House::new(&ghcr(RUN));
    for (id, version, second) in [("the-first", 1, 1), ("the-second", 2, 2)] {
        house.deliver(GHCR, &Sent::package(id, "latest", version, second)).await;
        house.quiet().await;
    }
    let replayed = house.ask("POST", "/api/events/the-first/replay").await;
    assert_eq!(replayed.status, 200, "{replayed:?}");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "2", "1"]);
    // An equal order is stale from now on, until a newer one comes.
    for (id, version, second, word) in
        [("c", 3, 2, "stale"), ("d", 1, 2, "duplicate"), ("e", 2, 3, "accepted"), ("f", 3, 3, "accepted")]
    {
        let answer = house.deliver(GHCR, &Sent::package(id, "latest", version, second)).await;
        assert_eq!(answer.word(), word, "{id}: {answer:?}");
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), ["1", "2", "1", "2", "3"]);
}

#[tokio::test]
async fn a_dead_event_that_was_superseded_is_not_rearmed() {
    let step = "echo $HOOKONCE_FIELD_VERSION_ID >> runs; test $HOOKONCE_FIELD_VERSION_ID = 2";
    let house = House::new(&ghcr(&format!("rearm_after = \"1ms\"\nrun = {{ steps = [\"{step}\"] }}")));
    let a = Sent::package("a", "latest", 1, 1);
    let old = house.deliver(GHCR, &a).await.event();
    house.quiet().await;
    let b = house.deliver(GHCR, &Sent::package("b", "latest", 2, 2)).await.event();
    house.quiet().await;
    let again = house.deliver(GHCR, &a.with("x-github-delivery", "another")).await;
    assert_eq!((again.word(), again.event()), ("duplicate".into(), b), "{again:?}");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "2"]);
    assert_eq!(house.ask("GET", &format!("/api/events/{old}")).await.json()["how"], "superseded");
}
