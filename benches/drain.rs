//! How fast a backlog is drained: by one node, then two, four and eight, on PostgreSQL and on Redis.
//!
//! ```text
//! cargo bench --bench drain                            some minutes
//! cargo bench --bench drain -- --events 20000 --rounds 5 --only redis
//! cargo bench --bench drain -- --quick                 only whether it still works; `cargo test --benches` does the same
//! ```
//!
//! A round fills a store with waiting events, starts the nodes (each with its own store, in this process), and measures
//! until the last event is done. The action does nothing, so that only starting and settling is measured. Rounds of
//! one, two, four and eight nodes alternate, so that other load on the machine affects all alike. Only ratios of one
//! run are comparable.
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "these only print figures")]

#[path = "../tests/support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each bench uses a part of it")]
mod postgres;
#[path = "../tests/support/redis.rs"]
mod redis;

use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::event::Outcome;
use hookonce::decide::source::{Fanout, Route, Source};
use hookonce::internals::action::{Action, ActionFuture, Attempt};
use hookonce::internals::engine::{Dispatcher, Lane};
use hookonce::store::Store;
use hookonce::store::batch::Batcher;
use hookonce::store::conformance::making;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Numbers of nodes.
const NODES: [usize; 4] = [1, 2, 4, 8];
/// Claims per batch while filling.
const FILL: usize = 256;
/// Concurrent attempts of one node.
const AT_ONCE: usize = 64;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        if !args.iter().any(|arg| arg == "--ignored") {
            println!("the_benchmark_works: test");
        }
        return;
    }
    let number = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1).and_then(|text| text.parse().ok());
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let (events, rounds) = if quick { (200, 1) } else { (10_000, 5) };
    let (events, rounds) = (number("--events").unwrap_or(events), number("--rounds").unwrap_or(rounds));
    // On the disk of the build: on a file system in memory every sync would be free.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let only = args.iter().skip_while(|arg| *arg != "--only").nth(1);
    runtime.block_on(measure(dir.path(), events, rounds, only.map(String::as_str)));
}

async fn measure(dir: &Path, events: usize, rounds: usize, only: Option<&str>) {
    let postgres = postgres::Server::start_with(&["max_connections=200"]).await;
    println!("{events} events, {rounds} rounds, interleaved; events done in a second: median (least to most)\n");
    println!("{:>10} {:>6} {:>8}", "store", "nodes", "median");
    let mut rates = vec![Vec::new(); NODES.len() * 2];
    for round in 0..rounds {
        for turn in 0..NODES.len() {
            // Each is the first equally often: a server still cleans up after the round before.
            let place = (round + turn) % NODES.len();
            let nodes = NODES[place];
            if only != Some("redis") {
                let url = postgres.url(&postgres.database().await);
                rates[place].push(drain(&url, events, nodes).await);
            }
            if only != Some("postgres") {
                let folder = tempfile::tempdir_in(dir).unwrap();
                let server = redis::Server::inside(folder, &redis::redis(), &[]);
                rates[NODES.len() + place].push(drain(&server.url("drain"), events, nodes).await);
            }
        }
    }
    for (place, rates) in rates.iter_mut().enumerate().filter(|(_, rates)| !rates.is_empty()) {
        rates.sort_by(f64::total_cmp);
        let store = if place < NODES.len() { "PostgreSQL" } else { "Redis" };
        let (median, least, most) = (rates[rates.len() / 2], rates[0], rates[rates.len() - 1]);
        println!("{store:>10} {:>6} {median:>8.0} ({least:.0} to {most:.0})", NODES[place % NODES.len()]);
    }
}

/// Events of this store done per second, by this many nodes.
async fn drain(url: &str, events: usize, nodes: usize) -> f64 {
    let store = hookonce::store::open(url).await.unwrap();
    for from in (0..events).step_by(FILL) {
        let one = |n: usize| {
            let delivery = format!("72d3162e-cc78-11e3-81ab-{n:012}");
            making().delivery(&delivery).carrying(format!("{{\"n\":{n}}}")).made(store.now())
        };
        store.claim((from..events.min(from + FILL)).map(|n| one(n).into()).collect()).await.unwrap();
    }
    let counts = Arc::new(Counts::default());
    let (source, route) = source();
    let mut dispatchers = Vec::new();
    for _ in 0..nodes {
        let store: Arc<dyn Store> = hookonce::store::open(url).await.unwrap();
        let lane = Lane::new(source.clone(), route.clone(), Some(counts.clone()));
        dispatchers.push(Dispatcher::new(
            store.clone(),
            Batcher::start(store, Arc::default()),
            vec![lane],
            Arc::default(),
        ));
    }
    let began = Instant::now();
    dispatchers.iter().for_each(Dispatcher::run);
    // Polled rarely: counting slows the nodes down.
    while counts.0.load(Ordering::SeqCst) < events || store.counts().await.unwrap().done < events as u64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = began.elapsed();
    for dispatcher in dispatchers {
        dispatcher.stop(Duration::from_secs(10)).await;
    }
    assert_eq!(counts.0.load(Ordering::SeqCst), events, "each event acts once");
    events as f64 / took.as_secs_f64()
}

/// Does nothing, and counts its calls.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Action for Counts {
    fn kind(&self) -> ActionKind {
        ActionKind::Run
    }

    fn act<'a>(&'a self, _: Attempt<'a>) -> ActionFuture<'a> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Outcome::Delivered(None)))
    }
}

/// The source and the route of the conformance suite's events.
fn source() -> (Arc<Source>, Arc<Route>) {
    let config = "store = \"memory:\"\n[source.source]\nverify = \"none\"\ndelivery = \"header.x-id\"\n";
    let config = hookonce::internals::config::parse(config, "drain", Path::new("."), &|_| None).unwrap();
    let route = Route { max_concurrency: AT_ONCE, fanout: Fanout::Actions(1), ..Route::default() };
    (config.sources[0].clone(), Arc::new(route))
}
