//! Several nodes that poll one tag: they ask as often as one, and one of them acts.

use crate::odd_answers::OddRegistry;
use crate::polling::{counted, digest, points_to, polled};
use crate::redis;
use crate::support::{House, until};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A registry whose tag can be moved, and when it was asked.
struct CountingRegistry {
    registry: OddRegistry,
    points_to: Arc<AtomicUsize>,
    times: Arc<Mutex<Vec<Instant>>>,
}

impl CountingRegistry {
    async fn start() -> Self {
        let (now, times) = (Arc::new(AtomicUsize::new(1)), Arc::new(Mutex::new(Vec::new())));
        let (says, noted) = (now.clone(), times.clone());
        let registry = OddRegistry::start(None, move |_| {
            noted.lock().unwrap().push(Instant::now());
            points_to(says.load(Ordering::Relaxed))
        })
        .await;
        Self { registry, points_to: now, times }
    }

    async fn asked_again(&self, times: usize) {
        let before = self.times.lock().unwrap().len();
        until("more questions", || self.times.lock().unwrap().len() >= before + times).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_ask_as_often_as_one_and_one_of_them_acts() {
    let store = redis::Server::start();
    let registry = CountingRegistry::start().await;
    let config =
        format!("store = \"{}\"\n{}", store.url("polled"), polled(&registry.registry.address, ", timeout = \"5s\""));
    let mut nodes = [House::new(&config), House::new(&config)];
    let runs = |nodes: &[House; 2]| nodes.iter().map(|node| node.lines("runs")).collect::<Vec<_>>().concat();
    until("the first run", || runs(&nodes) == [digest(1)]).await;
    registry.asked_again(3).await;
    registry.points_to.store(2, Ordering::Relaxed);
    until("the second run", || runs(&nodes).len() == 2).await;
    registry.asked_again(1).await;
    let mut all = runs(&nodes);
    all.sort();
    assert_eq!(all, [digest(1), digest(2)]);
    // A question may reach the registry late, and the next one in time: the interval is that of the nodes.
    let slack = Duration::from_millis(300);
    for pair in registry.times.lock().unwrap().windows(2) {
        assert!(pair[1] - pair[0] + slack >= Duration::from_secs(1), "{:?}", pair[1] - pair[0]);
    }
    let asked = registry.times.lock().unwrap().len();
    let mut known = 0;
    for node in &nodes {
        assert!(!node.log().contains("WARN"), "{}", node.log());
        known += counted(node, "new").await + counted(node, "same").await;
    }
    assert!(known as usize >= asked - 1, "every question was counted on one of them: {known} of {asked}");

    // Each goes on without the other.
    until("all ends", || nodes.iter().all(|n| n.log().matches("INFO done").count() == n.lines("runs").len())).await;
    nodes[0].kill();
    registry.points_to.store(3, Ordering::Relaxed);
    until("the third run", || nodes[1].lines("runs").last() == Some(&digest(3))).await;
    until("its end", || nodes[1].log().matches("INFO done").count() == nodes[1].lines("runs").len()).await;
    nodes[1].kill();
    nodes[0].start();
    registry.points_to.store(1, Ordering::Relaxed);
    until("the roll-back", || runs(&nodes).len() == 4).await;
    assert_eq!(nodes[0].lines("runs").last(), Some(&digest(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_only_acts_does_not_poll_and_one_that_only_receives_does() {
    let store = redis::Server::start();
    let registry = CountingRegistry::start().await;
    let config = format!("store = \"{}\"\n{}", store.url("polled"), polled(&registry.registry.address, ""));
    let start = |role: &str| {
        let mut house = House::empty(&config);
        house.try_start_by(house.command(&["serve", "--only", role])).unwrap();
        house
    };
    let (worker, receiver) = (start("work"), start("ingest"));
    until("a run", || worker.lines("runs") == [digest(1)]).await;
    registry.asked_again(2).await;
    let counts = [counted(&worker, "new").await, counted(&worker, "same").await, counted(&receiver, "new").await];
    assert_eq!(counts, [0, 0, 1]);
    assert_eq!(receiver.lines("runs"), [""; 0]);
}
