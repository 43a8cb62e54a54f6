//! A registry that lags behind its own webhook: after a push, it still says for a while what the tag pointed to before.

use crate::odd_answers::OddRegistry;
use crate::polling::{digest, points_to};
use crate::support::{House, Sent, until};
use crate::{GHCR, deploy, last_why};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A registry whose tag points to these, one for each question; to the last one from then on.
async fn answering(digests: &'static [usize]) -> OddRegistry {
    let asked = AtomicUsize::new(0);
    OddRegistry::start(None, move |_| points_to(digests[asked.fetch_add(1, Ordering::SeqCst).min(digests.len() - 1)]))
        .await
}

/// A node that asks this registry, and tries its command only once.
fn house(registry: &OddRegistry) -> House {
    House::new(&deploy(&registry.address, "").replace("attempts = 1000", "attempts = 1"))
}

/// Delivers a push, and waits for the end of its event; returns the event.
async fn pushed(house: &House, version: u64) -> String {
    let sent = Sent::package(&format!("push-{version}"), "latest", version, u32::try_from(version).unwrap());
    let answer = house.deliver(GHCR, &sent).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    house.quiet().await;
    answer.event()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_the_registry_does_not_know_yet_is_deployed_by_its_one_delivery_and_once() {
    let registry = answering(&[1, 1, 1, 2]).await;
    let house = house(&registry);
    pushed(&house, 1).await;
    let event = pushed(&house, 2).await;
    assert_eq!(house.lines("runs"), [digest(1), digest(2)]);
    assert_eq!((registry.asked().len(), house.count("done")), (4, 2));
    let shown = house.ask("GET", &format!("/api/events/{event}")).await.json();
    assert_eq!((&shown["how"], &shown["digest"]), (&"acted".into(), &digest(2).into()), "{shown}");
    let attempts: Vec<_> =
        shown["attempts"].as_array().unwrap().iter().map(|one| one["why"].as_str().unwrap()).collect();
    let lags = "the registry still has what is deployed already; it may lag behind its own webhook";
    assert_eq!(attempts, [lags, lags, ""], "{shown}");
    let line = format!("INFO waiting   event={} source=ghcr attempt=1 wait=50ms\n", &event[28..]);
    until("the wait in the log", || house.log().contains(&line)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_did_not_move_is_asked_for_so_often_and_nothing_runs() {
    let registry = answering(&[1]).await;
    let house = house(&registry);
    let first = pushed(&house, 1).await;
    let second = pushed(&house, 2).await;
    assert_eq!((house.lines("runs"), registry.asked().len()), (vec![digest(1)], 4));
    let shown = house.ask("GET", &format!("/api/events/{second}")).await.json();
    assert_eq!((&shown["how"], &shown["superseded_by"]), (&"superseded".into(), &first.into()), "{shown}");
    // A replay always runs, and is not asked for again.
    assert_eq!(house.ask("POST", &format!("/api/events/{second}/replay")).await.status, 200);
    house.quiet().await;
    assert_eq!((house.lines("runs"), registry.asked().len()), (vec![digest(1), digest(1)], 5));
    assert_eq!(last_why(&house), "");
}
