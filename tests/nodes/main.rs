//! Several nodes on one store: real processes on a real PostgreSQL or Redis, killed, paused, replaced and misled.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

#[path = "../support/cutter.rs"]
mod cutter;
#[path = "../support/disk.rs"]
mod disk;
#[path = "../support/failing_pooler.rs"]
mod failing_pooler;
#[path = "../support/faketime.rs"]
mod faketime;
#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/mod.rs"]
mod support;

mod backup;
mod cancelling;
mod clock_ahead;
mod cluster;
mod copied_clocks;
mod data_loss;
mod health_check;
mod live_output;
mod lost_commits;
mod preset_versions;
mod retention;
mod sentinel;
mod server_failures;
mod server_refusals;
mod shared_database;
mod shorter_retention;
mod store_copy;
mod store_servers;
mod tls;
mod wrong_clocks;

use cancelling::an_event_cancelled_on_another_node_keeps_its_slot_while_it_runs;
use cluster::{Fleet, Lease, Start, size};
use health_check::a_check_that_dies_with_its_node_is_repeated_by_another_and_then_rolled_back;
use live_output::{
    output_is_followed_from_another_node_and_leaves_nothing_behind, what_a_crashed_node_has_shared_is_removed,
};
use rustix::process::Signal;
use server_refusals::an_unreachable_store_is_waited_for_at_start;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store_servers::StoreServer;
use support::Sent;

const NO_TIME: Duration = Duration::ZERO;

/// Runs each test on both stores.
macro_rules! on_both {
    ($($name:ident)+) => {
        mod on_postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::StoreServer::postgres().await).await }
        )+ }
        mod on_redis { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::StoreServer::redis().await).await }
        )+ }
    };
}

on_both! {
    many_deliveries_of_few_keys_make_one_event_and_one_effect_each
    nodes_that_are_killed_lose_and_double_nothing
    a_node_that_slept_past_its_lease_writes_nothing_stale
    a_store_that_crashes_is_waited_for_and_loses_nothing
    clocks_that_are_wrong_by_ten_minutes_change_nothing
    nodes_are_replaced_under_load_without_any_loss
    one_node_receives_and_another_acts
    two_hundred_copies_on_three_nodes_make_one_call_and_get_equal_responses
    an_event_cancelled_on_another_node_keeps_its_slot_while_it_runs
    an_unreachable_store_is_waited_for_at_start
    a_check_that_dies_with_its_node_is_repeated_by_another_and_then_rolled_back
    output_is_followed_from_another_node_and_leaves_nothing_behind
    what_a_crashed_node_has_shared_is_removed
}

async fn many_deliveries_of_few_keys_make_one_event_and_one_effect_each(store: StoreServer) {
    let (deliveries, keys) = (size(1_000_000, 6_000), size(100_000, 600));
    let fleet = Arc::new(Fleet::of_three(store, "accepted", NO_TIME).await);
    let words = fleet.flood(deliveries, keys, 24).await;
    fleet.settled("three nodes", deliveries, keys, &words).await;
    assert_eq!(words.get("accepted"), Some(&keys), "each key is accepted once");
}

async fn nodes_that_are_killed_lose_and_double_nothing(store: StoreServer) {
    let (deliveries, keys) = (size(200_000, 5_000), size(20_000, 1_000));
    let fleet = Arc::new(Fleet::of_three(store, "accepted", Duration::from_millis(2)).await);
    let flood = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.flood(deliveries, keys, 16).await }
    });
    let mut kills = 0;
    while !flood.is_finished() {
        tokio::time::sleep(Duration::from_millis(300)).await;
        fleet.crash(kills % fleet.len());
        kills += 1;
    }
    let words = flood.await.unwrap();
    fleet.settled(&format!("{kills} nodes killed"), deliveries, keys, &words).await;
    assert!(kills > 2);
}

async fn a_node_that_slept_past_its_lease_writes_nothing_stale(store: StoreServer) {
    let (deliveries, keys, sleeps) = (size(50_000, 3_000), size(10_000, 1_000), size(20, 2));
    let fleet = Arc::new(Fleet::of_three(store, "accepted", Duration::from_millis(100)).await);
    let flood = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.flood(deliveries, keys, 16).await }
    });
    for sleep in 0..sleeps {
        let n = usize::try_from(sleep).unwrap() % fleet.len();
        let times = |word: &str| fleet.node(n).log().matches(word).count();
        support::until("it to run something", || times(" running ") > times(" done ")).await;
        fleet.node(n).signal(Signal::STOP);
        tokio::time::sleep(Duration::from_millis(4_500)).await; // longer than the lease
        fleet.node(n).signal(Signal::CONT);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let words = flood.await.unwrap();
    fleet.settled(&format!("{sleeps} nodes slept past their lease"), deliveries, keys, &words).await;
    let lost = || (0..fleet.len()).any(|n| fleet.node(n).log().contains("lease ran out"));
    support::until("a node that was stopped while it ran something", lost).await;
}

async fn a_store_that_crashes_is_waited_for_and_loses_nothing(store: StoreServer) {
    let (deliveries, keys, crashes) = (size(100_000, 4_000), size(10_000, 800), size(20, 3));
    let mut fleet = Fleet::of_three(store, "accepted", NO_TIME).await;
    // The server is crashed here, while the fleet is shared with the senders.
    let mut store = std::mem::replace(&mut fleet.store, StoreServer::None);
    let fleet = Arc::new(fleet);
    let flood = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.flood(deliveries, keys, 16).await }
    });
    let client = reqwest::Client::new();
    let mut longest = NO_TIME;
    for crash in 0..crashes {
        tokio::time::sleep(Duration::from_millis(300)).await;
        store.crash().await;
        let back = Instant::now();
        let probe = Sent::github("push", &format!("probe{crash}"), r#"{"key":"k0"}"#);
        fleet.send(&client, &probe).await;
        longest = longest.max(back.elapsed());
    }
    let words = flood.await.unwrap();
    fleet.settled(&format!("{crashes} crashes of the store, back within {longest:?}"), deliveries, keys, &words).await;
    assert!(longest < Duration::from_secs(20), "{longest:?}");
}

async fn clocks_that_are_wrong_by_ten_minutes_change_nothing(store: StoreServer) {
    let (deliveries, keys) = (size(100_000, 3_000), size(10_000, 500));
    let clocks = [Some("-10m"), None, Some("+10m")].map(|clock| Start { clock, ..Start::default() });
    let fleet = Arc::new(Fleet::start(store, "accepted", Duration::from_millis(5), Lease::Long, &clocks).await);
    let words = fleet.flood(deliveries, keys, 16).await;
    fleet.settled("clocks wrong by ten minutes", deliveries, keys, &words).await;
    let (effects, calls) = fleet.receiver.counted();
    assert_eq!(effects as u64, calls, "no lease ended early");
}

async fn nodes_are_replaced_under_load_without_any_loss(store: StoreServer) {
    let (deliveries, keys, restarts) = (size(300_000, 4_000), size(30_000, 1_000), size(200, 6));
    let fleet = Arc::new(Fleet::of_three(store, "accepted", Duration::from_millis(2)).await);
    let flood = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.flood(deliveries, keys, 16).await }
    });
    for restart in 0..restarts {
        let (fleet, n) = (fleet.clone(), usize::try_from(restart).unwrap() % 3);
        tokio::task::spawn_blocking(move || fleet.replace(n)).await.unwrap();
    }
    let words = flood.await.unwrap();
    fleet.settled(&format!("{restarts} nodes replaced"), deliveries, keys, &words).await;
}

async fn one_node_receives_and_another_acts(store: StoreServer) {
    let (deliveries, keys) = (size(100_000, 2_000), size(10_000, 400));
    let halves = [&["--only", "ingest"][..], &["--only", "work"], &["--only", "work"]];
    let halves = halves.map(|args| Start { args, ..Start::default() });
    let fleet = Arc::new(Fleet::start(store, "accepted", NO_TIME, Lease::Short, &halves).await);
    let words = fleet.flood(deliveries, keys, 16).await;
    fleet.settled("one receives, two act", deliveries, keys, &words).await;
    let acts = [0, 1, 2].map(|n| fleet.node(n).log().contains(" running "));
    assert!(!acts[0] && (acts[1] || acts[2]), "the nodes that acted: {acts:?}");
}

async fn two_hundred_copies_on_three_nodes_make_one_call_and_get_equal_responses(store: StoreServer) {
    let three = [Start::default(); 3];
    let fleet = Arc::new(Fleet::start(store, "done", Duration::from_millis(500), Lease::Long, &three).await);
    for round in 0..size(10, 2) {
        let upload = Arc::new(Sent::github("push", &format!("u{round}"), &format!(r#"{{"key":"upload{round}"}}"#)));
        let copies: Vec<_> = (0..200)
            .map(|_| {
                let (fleet, upload) = (fleet.clone(), upload.clone());
                tokio::spawn(async move {
                    let (status, text, sent) = fleet.send(&reqwest::Client::new(), &upload).await;
                    assert_eq!(sent, 1, "each copy is answered the first time");
                    (status, text)
                })
            })
            .collect();
        let mut answers = Vec::new();
        for copy in copies {
            answers.push(copy.await.unwrap());
        }
        assert!(answers[0].1.starts_with("took "), "{:?}", answers[0]);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert_eq!(fleet.receiver.counted(), (usize::try_from(round).unwrap() + 1, round + 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_whose_responses_are_cut_off_make_one_event_and_one_effect() {
    let (cuts, keys) = (size(1_000, 50), size(100_000, 3_000));
    let deliveries = 2 * keys;
    let server = postgres::Server::start().await;
    let cutter = cutter::Cutter::before(server.port).await;
    let (armed, done) = (cutter.armed.clone(), cutter.cuts.clone());
    let fleet = Arc::new(Fleet::of_three(StoreServer::Cut(server, cutter), "accepted", NO_TIME).await);
    let flood = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.flood(deliveries, keys, 16).await }
    });
    while done.load(Ordering::SeqCst) < cuts && !flood.is_finished() {
        armed.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    armed.store(false, Ordering::SeqCst);
    let words = flood.await.unwrap();
    let done = done.load(Ordering::SeqCst);
    fleet.settled(&format!("{done} connections cut at COMMIT"), deliveries, keys, &words).await;
    assert!(done >= cuts, "only {done} were cut");
}
