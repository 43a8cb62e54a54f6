//! How fast a backlog is drained: by one node, then two, four and eight, on PostgreSQL and on Redis.
//!
//! ```text
//! cargo bench --bench drain                            some minutes
//! cargo bench --bench drain -- --events 20000 --rounds 5 --only redis
//! cargo bench --bench drain -- --docs                  writes the figures and the chart into docs/performance.md
//! cargo bench --bench drain -- --quick                 only whether it still works; `cargo test --benches` does the same
//! ```
//!
//! A round fills a store with waiting events, starts the nodes (each with its own store, in this process), and measures
//! until the last event is done. The action does nothing, so that only starting and settling is measured. Rounds of
//! one, two, four and eight nodes alternate, so that other load on the machine affects all alike. Only ratios of one
//! run are comparable.
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "these only print figures")]

#[path = "measure/mod.rs"]
mod measure;
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
use measure::chart::LineChart;
use measure::document::{self, Target, table};
use measure::rounds::{Spread, machine};
use serde_json::json;
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
    let rates = runtime.block_on(measure(dir.path(), events, rounds, only.map(String::as_str)));
    // A quick check leaves the figures of the last measurement alone.
    let folder = document::folder(if quick { "drain-quick" } else { "drain" });
    let conditions = format!("{events} events, {rounds} rounds; {}", machine());
    report(&folder, &conditions, &rates, if quick { Target::Build } else { Target::of(&args) });
}

/// A store's name, and events done per second by each number of nodes, round by round.
type Rates = (&'static str, [Vec<f64>; NODES.len()]);

async fn measure(dir: &Path, events: usize, rounds: usize, only: Option<&str>) -> [Rates; 2] {
    let postgres = postgres::Server::start_with(&["max_connections=200"]).await;
    let mut rates: [Rates; 2] = [("PostgreSQL", Default::default()), ("Redis", Default::default())];
    for round in 0..rounds {
        for turn in 0..NODES.len() {
            // Each is the first equally often: a server still cleans up after the round before.
            let place = (round + turn) % NODES.len();
            let nodes = NODES[place];
            if only != Some("redis") {
                let url = postgres.url(&postgres.database().await);
                rates[0].1[place].push(drain(&url, events, nodes).await);
            }
            if only != Some("postgres") {
                let folder = tempfile::tempdir_in(dir).unwrap();
                let server = redis::Server::inside(folder, &redis::redis(), &[]);
                rates[1].1[place].push(drain(&server.url("drain"), events, nodes).await);
            }
        }
    }
    rates
}

/// Prints the figures, and writes them under `target`, and, if asked, into the docs.
fn report(folder: &Path, conditions: &str, rates: &[Rates], target: Target) {
    const CHART: (&str, &str) = ("performance-nodes.svg", "Events done per second, by more nodes");
    let measured = || rates.iter().filter(|(_, rates)| rates.iter().all(|rates| !rates.is_empty()));
    // The ratio to one node, round by round.
    let of_one = |rates: &[Vec<f64>; NODES.len()], place: usize| {
        Spread::of(rates[place].iter().zip(&rates[0]).map(|(many, one)| many / one).collect())
    };
    let header = ["Store", "Nodes", "Events per second", "Ratio to one node"].map(str::to_owned).to_vec();
    let mut rows = vec![header];
    for (store, rates) in measured() {
        rows.extend(NODES.iter().enumerate().map(|(place, nodes)| {
            let rate = Spread::of(rates[place].clone()).text(0);
            vec![(*store).to_owned(), nodes.to_string(), rate, of_one(rates, place).text(2)]
        }));
    }
    let table = table(&rows);
    println!("{conditions}\n\n{table}\nwritten:");
    let json = measured().map(|(store, rates)| json!({"store": store, "nodes": NODES, "per_second": rates}));
    let json = json!({"conditions": conditions, "stores": json.collect::<Vec<_>>()});
    document::write(&folder.join("results.json"), &format!("{json:#}\n"));
    let points = |rates| (0..NODES.len()).map(move |place| (NODES[place] as f64, of_one(rates, place).median()));
    let chart = LineChart {
        title: CHART.1,
        shows: "as a ratio to one node; all share two cores with the server; medians, more is better",
        axis: "nodes, logarithmic",
        series: measured().map(|(store, rates)| ((*store).to_owned(), points(rates).collect())).collect(),
    };
    target.chart(folder, CHART.0, &chart.svg());
    target.figures("figures of draining", &format!("{conditions}.\n\n![{}]({})\n\n{table}", CHART.1, CHART.0));
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
