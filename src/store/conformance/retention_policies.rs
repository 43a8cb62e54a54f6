//! Retention: how long the events of a source that a node lacks are kept, and how a person ends them.

use super::{DAY, KEPT, StoreUnderTest, delivered, making};
use crate::decide::event::EventState;
use crate::decide::source::{Keep, Retention};
use crate::decide::time::Duration;
use crate::store::retention::{ForgetSourceCounts, forget_source};
use crate::store::{ForgetCounts, RetentionPolicies, SourceRetention};
use std::sync::Arc;

const FOREVER: Retention = Retention { keys: Keep::Forever, body: Duration::from_hours(365 * 24) };

impl StoreUnderTest {
    async fn retain(&self, source: &str, kept: Retention) {
        let row = SourceRetention { source: source.into(), kept, seen_at: self.store.now() };
        self.store.set_retention(vec![row]).await.expect("it writes");
    }

    /// Forgets as a node does that has only the source `source`, and keeps that for ever.
    async fn forget_as_stored(&self) -> ForgetCounts {
        let own = RetentionPolicies { sources: [("source".into(), FOREVER)].into() };
        let keeps = own.with_stored(&*self.store).await.expect("it reads");
        self.store.forget(Arc::new(keeps), 100).await.expect("the store forgets")
    }

    /// Every source that the store has events of, and how many.
    async fn sources(&self) -> Vec<(String, u64)> {
        let counts = self.store.other_sources([].into()).await.expect("it counts");
        counts.into_iter().map(|one| (one.source.to_string(), one.events)).collect()
    }
}

pub(super) async fn a_source_that_a_node_lacks_is_kept_as_long_as_the_store_says(fresh: StoreUnderTest) {
    for name in ["long", "short", "forever", "source"] {
        fresh.claimed(making().delivery(name).source(name).carrying("body").recorded()).await;
    }
    fresh.retain("long", Retention { keys: Keep::For(365 * DAY), body: 40 * DAY }).await;
    fresh.retain("short", Retention { keys: Keep::For(DAY), body: DAY }).await;
    fresh.retain("forever", FOREVER).await;
    fresh.retain("source", Retention { keys: Keep::For(DAY), body: DAY }).await;
    fresh.wait(31 * DAY);
    assert_eq!(
        fresh.forget_as_stored().await,
        ForgetCounts { events: 1, bodies: 1 },
        "short; its own goes by its config"
    );
    fresh.wait(9 * DAY);
    assert_eq!(fresh.forget_as_stored().await, ForgetCounts { events: 0, bodies: 1 }, "the body of long");
    fresh.wait(325 * DAY);
    assert_eq!(
        fresh.forget_as_stored().await,
        ForgetCounts { events: 1, bodies: 2 },
        "long, and the bodies of the others"
    );
    fresh.wait(10_000 * DAY);
    assert_eq!(fresh.forget_as_stored().await, ForgetCounts::default());
    for name in ["forever", "source"] {
        fresh.duplicate(making().delivery(name).kept(FOREVER)).await;
    }
}

pub(super) async fn a_source_without_retention_is_never_forgotten_by_a_node_that_lacks_it(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1").source("lost").carrying("body").recorded()).await.id;
    fresh.wait(10_000 * DAY);
    assert_eq!(fresh.forget_as_stored().await, ForgetCounts::default());
    assert!(fresh.store.details(event).await.expect("it reads").is_some_and(|story| story.has_body));
}

pub(super) async fn the_retention_of_one_source_stays_when_anothers_is_written(fresh: StoreUnderTest) {
    assert_eq!(fresh.store.retention().await.expect("it reads"), []);
    let row = |source: &str, kept| SourceRetention { source: source.into(), kept, seen_at: fresh.store.now() };
    let [a, b] = [row("a", FOREVER), row("b", KEPT)];
    fresh.store.set_retention(vec![b.clone(), a.clone()]).await.expect("it writes");
    assert_eq!(fresh.store.retention().await.expect("it reads"), [a.clone(), b]);
    fresh.wait(DAY);
    let b = SourceRetention { seen_at: fresh.store.now(), ..row("b", Retention { keys: Keep::For(DAY), body: DAY }) };
    fresh.store.set_retention(vec![b.clone()]).await.expect("it writes");
    assert_eq!(fresh.store.retention().await.expect("it reads"), [a, b]);
}

pub(super) async fn sources_that_nobody_knows_are_counted(fresh: StoreUnderTest) {
    for (n, name) in ["a", "b", "c", "b", "ab", "b"].into_iter().enumerate() {
        fresh.claimed(making().delivery(&format!("d{n}")).source(name).recorded()).await;
    }
    let waits = fresh.claimed(making().delivery("w1").source("b")).await.id;
    let of = |all: &[(&str, u64)]| all.iter().map(|(name, events)| ((*name).to_owned(), *events)).collect::<Vec<_>>();
    assert_eq!(fresh.sources().await, of(&[("a", 1), ("ab", 1), ("b", 4), ("c", 1)]));
    let known = ["a".into(), "c".into()].into();
    let others = fresh.store.other_sources(known).await.expect("it counts");
    assert_eq!(others.iter().map(|one| (&*one.source, one.events)).collect::<Vec<_>>(), [("ab", 1), ("b", 4)]);
    assert!(matches!(fresh.get(waits).await.state, EventState::Waiting { .. }));
}

pub(super) async fn a_person_ends_and_forgets_all_of_a_source_and_nothing_else(fresh: StoreUnderTest) {
    let forever = |delivery: &str| making().delivery(delivery).source("gone").kept(FOREVER);
    let done = fresh.claimed(forever("d1").change("app", "A", Some(1))).await.id;
    fresh.attempt(done, delivered()).await;
    fresh.claimed(forever("d2").recorded()).await;
    fresh.claimed(forever("d3")).await;
    fresh.claimed(forever("d4").group("g")).await;
    fresh.claimed(forever("d5").group("g")).await;
    let parked = fresh.claimed(making().delivery("d6").group("g")).await.id;
    let running = fresh.claimed(forever("d7")).await.id;
    fresh.start(running).await;
    let forgotten = forget_source(&*fresh.store, "gone").await.expect("it forgets");
    assert_eq!(forgotten, ForgetSourceCounts { events: 5, ended: 3, running: 1 });
    assert!(fresh.get(running).await.is_called_off());
    assert_eq!(fresh.due().await, [parked], "its slot was handed on to another source's event");
    for delivery in ["d2", "d3"] {
        fresh.claimed(forever(delivery)).await;
    }
    fresh.claimed(forever("d1").change("app", "A", Some(1))).await;
    fresh.wait(DAY);
    let forgotten = forget_source(&*fresh.store, "gone").await.expect("it forgets");
    assert_eq!(forgotten, ForgetSourceCounts { events: 4, ended: 4, running: 0 }, "its lease has ended");
    assert_eq!(fresh.sources().await, [("source".to_owned(), 1)]);
    assert_eq!(forget_source(&*fresh.store, "gone").await.expect("it forgets"), ForgetSourceCounts::default());
}
