//! The cost of a large store: a claim compared with a small store, bytes per kept event, the latency of lists, and the
//! latency of claims while the sweep runs. See `docs/performance.md`.
//!
//! ```text
//! cargo bench --bench scale               10^4, 10^5 and 10^6 kept events on SQLite, PostgreSQL and Redis
//! cargo bench --bench scale -- --full     10^7 too: an hour, and 25 GB of memory for Redis
//! cargo bench --bench scale -- --many 100000 --only redis
//! cargo bench --bench scale -- --docs     writes the figures and the chart into docs/performance.md
//! cargo bench --bench scale -- --quick    only whether it still works; `cargo test --benches` does the same
//! ```
//!
//! The kept events are claimed like any other: two keys each, recorded, without a body. Rounds on the small and the
//! large store alternate, so that other load on the machine affects both alike.
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "these only print figures")]

#[path = "measure/mod.rs"]
mod measure;
#[path = "../tests/support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each bench uses a part of it")]
mod postgres;
#[path = "../tests/support/redis.rs"]
mod redis;

use hookonce::decide::claim::{ClaimResult, NewEvent};
use hookonce::decide::source::{Keep, Retention};
use hookonce::decide::time::Duration;
use hookonce::store::conformance::making;
use hookonce::store::{EventQuery, Inspect, RetentionPolicies, StoreError};
use measure::chart::LineChart;
use measure::deck::mix;
use measure::document::{self, Target};
use measure::rounds::Spread;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

/// Kept events of the small store that others are compared with.
const FEW: usize = 10_000;
/// Claims in a timed batch.
const BATCH: usize = 64;
/// Claims per batch while filling.
const FILL: usize = 512;
/// Batches in flight while filling a server.
const IN_FLIGHT: usize = 4;

struct Plan {
    few: usize,
    many: Vec<usize>,
    rounds: usize,
    only: Option<String>,
    target: Target,
}

/// What a claim costs with this many events kept: microseconds, and the ratio to the small store.
struct Growth {
    store: &'static str,
    kept: usize,
    new: (f64, Spread),
    repeat: (f64, Spread),
    /// Bytes per kept event.
    bytes: f64,
    /// The 99th percentile of a batch's latency in milliseconds: alone, and during a sweep.
    p99: (f64, f64),
}

impl Plan {
    /// `cargo bench` passes `--bench`; without it only a quick check runs.
    fn of(args: &[String]) -> Self {
        let has = |name: &str| args.iter().any(|arg| arg == name);
        let word = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1).cloned();
        if has("--quick") || !has("--bench") {
            return Self { few: 200, many: vec![1_000, 2_000], rounds: 3, only: None, target: Target::Build };
        }
        let many = match word("--many").and_then(|many| many.parse().ok()) {
            Some(many) => vec![many],
            None if has("--full") => vec![100_000, 1_000_000, 10_000_000],
            None => vec![100_000, 1_000_000],
        };
        Self { few: FEW, many, rounds: 60, only: word("--only"), target: Target::of(args) }
    }
}

/// A store, and its size in bytes.
struct Place {
    store: Arc<dyn Inspect>,
    next: usize,
    url: String,
}

/// The servers, and a folder on the disk of the build: in memory every sync would be free.
struct Servers {
    dir: tempfile::TempDir,
    postgres: postgres::Server,
    redis: Vec<redis::Server>,
    made: usize,
}

impl Servers {
    async fn place(&mut self, kind: &str) -> Place {
        self.made += 1;
        let url = match kind {
            "sqlite" => format!("sqlite:{}", self.dir.path().join(format!("{}.db", self.made)).display()),
            "postgres" => self.postgres.url(&self.postgres.database().await),
            _ => {
                let dir = tempfile::tempdir_in(self.dir.path()).unwrap();
                self.redis.push(redis::Server::inside(dir, &redis::redis(), &[]));
                self.redis.last().unwrap().url("scale")
            }
        };
        Place { store: hookonce::store::open(&url).await.unwrap(), next: 0, url }
    }

    /// Its size: on disk, or in Redis's memory.
    async fn bytes(&self, place: &Place) -> f64 {
        match place.url.split_once(':').unwrap() {
            ("sqlite", path) => {
                // As its readers see it: including the WAL.
                let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
                let db = rusqlite::Connection::open_with_flags(path, flags).unwrap();
                let sql = "select page_count * page_size from pragma_page_count(), pragma_page_size()";
                db.query_row(sql, [], |row| row.get::<_, f64>(0)).unwrap()
            }
            ("postgres", url) => {
                let name = url.rsplit('/').next().unwrap();
                let db = self.postgres.client(name).await;
                db.batch_execute("checkpoint").await.unwrap();
                let sql = "select pg_database_size(current_database())::float8, \
                           pg_total_relation_size('events')::float8, pg_total_relation_size('keys')::float8";
                let row = db.query_one(sql, &[]).await.unwrap();
                let (all, events, keys) = (row.get::<_, f64>(0), row.get::<_, f64>(1), row.get::<_, f64>(2));
                println!(
                    "    (events with indexes {:.0} MiB, keys {:.0} MiB)",
                    events / 1_048_576.0,
                    keys / 1_048_576.0
                );
                all
            }
            _ => {
                let server = self.redis.iter().find(|server| server.url("scale") == place.url).unwrap();
                let info: String = ::redis::cmd("INFO").arg("memory").query(&mut server.client()).unwrap();
                let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
                used.trim().parse().unwrap()
            }
        }
    }
}

impl Place {
    /// The next claims, each new, of this source.
    fn batch(&mut self, source: &str, size: usize) -> Vec<NewEvent> {
        self.next += size;
        self.at(source, self.next - size, size)
    }

    fn at(&self, source: &str, from: usize, size: usize) -> Vec<NewEvent> {
        let kept = Retention { body: Duration::ZERO, ..Retention::default() };
        let one = |n: usize| {
            // Random, as senders make them: ids that count up would all land on one page of an index.
            let random = format!("{:016x}{:016x}", mix(n as u64), mix(!(n as u64)));
            let made = making().source(source).delivery(&random);
            made.named(&n.to_string()).recorded().kept(kept).made(self.store.now())
        };
        (from..from + size).map(one).collect()
    }

    async fn fill(&mut self, many: usize) -> f64 {
        let begun = Instant::now();
        let at_once = if self.store.batches_at_once() > 1 { IN_FLIGHT } else { 1 };
        let mut tasks = JoinSet::new();
        let mut left = many;
        while left > 0 {
            if tasks.len() >= at_once {
                tasks.join_next().await.unwrap().unwrap();
            }
            let batch: Vec<_> = self.batch("kept", left.min(FILL)).into_iter().map(Arc::new).collect();
            left -= batch.len();
            let store = self.store.clone();
            tasks.spawn(async move {
                // If the server is delayed by its disk, the same claim is made again.
                let claims = loop {
                    match store.claim(batch.clone()).await {
                        Err(StoreError::Down(_) | StoreError::Unsure(_)) => {}
                        claims => break claims.unwrap(),
                    }
                };
                assert!(claims.iter().all(|claim| matches!(claim, ClaimResult::New { .. })));
            });
        }
        tasks.join_all().await;
        begun.elapsed().as_secs_f64()
    }

    /// Microseconds per claim of a batch of these.
    async fn timed(&self, batch: Vec<NewEvent>, new: bool) -> f64 {
        let many = batch.len() as f64;
        let batch = batch.into_iter().map(Arc::new).collect();
        let begun = Instant::now();
        let claims = self.store.claim(batch).await.unwrap();
        let took = begun.elapsed().as_secs_f64() * 1e6 / many;
        assert!(claims.iter().all(|claim| matches!(claim, ClaimResult::New { .. }) == new));
        took
    }

    /// The latency of batches of new claims, in milliseconds: median and 99th percentile.
    async fn waits(&mut self, batches: usize) -> (f64, f64) {
        let mut waits = Vec::new();
        for _ in 0..batches {
            let batch = self.batch("source", BATCH);
            waits.push(self.timed(batch, true).await * BATCH as f64 / 1e3);
        }
        waits.sort_by(f64::total_cmp);
        (waits[waits.len() / 2], waits[waits.len() * 99 / 100])
    }
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Claims of the large store compared with the small one, in turns: microseconds and ratios, of new ones or of repeats.
async fn compare(
    rounds: usize,
    new: bool,
    (few, kept_few): (&mut Place, usize),
    (many, kept_many): (&mut Place, usize),
) -> (f64, Spread) {
    let (mut small, mut large, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds + 2 {
        // Duplicates of keys spread over everything that is kept.
        let place = |kept: usize| round * 7919 * BATCH % (kept - BATCH);
        let one = if new { few.batch("source", BATCH) } else { few.at("kept", place(kept_few), BATCH) };
        let other = if new { many.batch("source", BATCH) } else { many.at("kept", place(kept_many), BATCH) };
        let (one, other) = (few.timed(one, new).await, many.timed(other, new).await);
        if round >= 2 {
            small.push(one);
            large.push(other);
            ratios.push(other / one);
        }
    }
    let (small, large, ratios) = (middle(small), middle(large), quartiles(ratios));
    println!(
        "    {}: {large:.1} µs per claim, with few kept {small:.1} µs, ratio {}",
        if new { "new    " } else { "repeats" },
        ratios.text(2)
    );
    (large, ratios)
}

/// The median, and the middle half: single batches wait for a checkpoint.
fn quartiles(mut figures: Vec<f64>) -> Spread {
    figures.sort_by(f64::total_cmp);
    let last = figures.len() - 1;
    Spread::of(figures[last / 4..=last - last / 4].to_vec())
}

/// The latency of claims, alone and during a sweep.
async fn sweep(rounds: usize, many: &mut Place) -> (f64, f64) {
    let alone = many.waits(rounds * 5).await;
    let kept = Retention { keys: Keep::For(Duration::ZERO), body: Duration::ZERO };
    let keeps = Arc::new(RetentionPolicies { sources: [("kept".into(), kept)].into() });
    let (over, forgotten) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let sweeper = tokio::spawn({
        let (store, over, forgotten) = (many.store.clone(), over.clone(), forgotten.clone());
        async move {
            // As a node does.
            let pace = store.sweep_pace();
            let mut many = pace.first();
            while !over.load(Ordering::SeqCst) {
                let asked = Instant::now();
                let freed = store.forget(keeps.clone(), many).await.unwrap();
                forgotten.fetch_add(freed.events, Ordering::SeqCst);
                many = if freed.fills(many) { pace.next(many) } else { pace.first() };
                tokio::time::sleep(pace.pause_after(asked.elapsed())).await;
            }
        }
    });
    let swept = many.waits(rounds * 5).await;
    over.store(true, Ordering::SeqCst);
    sweeper.await.unwrap();
    println!(
        "    a batch of {BATCH} waits p50 {:.2} ms, p99 {:.2} ms; while the sweep frees {} events: p50 {:.2} ms, p99 {:.2} ms",
        alone.0,
        alone.1,
        forgotten.load(Ordering::SeqCst),
        swept.0,
        swept.1
    );
    assert!(forgotten.load(Ordering::SeqCst) > 0);
    (alone.1, swept.1)
}

/// The latency of lists: pages of 100 with an index, without one, and the count of all.
async fn look(rounds: usize, many: &Place) {
    let listing = || EventQuery { limit: 100, ..EventQuery::default() };
    let word = |word: &str| Some(word.to_owned());
    let pages = [
        ("newest", listing()),
        ("source", EventQuery { source: word("kept"), ..listing() }),
        ("dead", EventQuery { state: word("dead"), ..listing() }),
        ("waiting", EventQuery { state: word("waiting"), ..listing() }),
        ("a route that nothing has", EventQuery { route: word("none"), ..listing() }),
        ("a text that nothing has", EventQuery { text: word("nothing like it"), ..listing() }),
        ("a field that nothing has", EventQuery { fields: vec![("tag".into(), "none".into())], ..listing() }),
    ];
    let mut said = Vec::new();
    for (name, page) in pages {
        let mut waits = Vec::new();
        for _ in 0..rounds.min(10) {
            let begun = Instant::now();
            many.store.page(page.clone()).await.unwrap();
            waits.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        said.push(format!("{name} {:.1} ms", middle(waits)));
    }
    let mut waits = Vec::new();
    for _ in 0..rounds.min(10) {
        let begun = Instant::now();
        many.store.counts().await.unwrap();
        waits.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    println!("    a page of 100 by {}; the count of all {:.1} ms", said.join(", "), middle(waits));
}

async fn measure(plan: &Plan) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut servers = Servers { dir, postgres: postgres::Server::start().await, redis: Vec::new(), made: 0 };
    let mut all = Vec::new();
    for kind in ["sqlite", "postgres", "redis"] {
        if plan.only.as_deref().is_some_and(|only| only != kind) {
            continue;
        }
        for &many in &plan.many {
            let (mut few, mut large) = (servers.place(kind).await, servers.place(kind).await);
            let before = servers.bytes(&large).await;
            few.fill(plan.few).await;
            let took = large.fill(many).await;
            println!("{kind}, {many} events kept beside {}: filled at {:.0} claims/s", plan.few, many as f64 / took);
            let bytes = (servers.bytes(&large).await - before) / many as f64;
            println!("    {bytes:.0} bytes per kept event with its two keys");
            look(plan.rounds, &large).await;
            let new = compare(plan.rounds, true, (&mut few, plan.few), (&mut large, many)).await;
            let repeat = compare(plan.rounds, false, (&mut few, plan.few), (&mut large, many)).await;
            let p99 = sweep(plan.rounds, &mut large).await;
            all.push(Growth { store: kind, kept: many, new, repeat, bytes, p99 });
        }
    }
    report(plan, &all);
}

/// Writes the chart and JSON under `target`, and, if asked, the chart and a table into the docs.
fn report(plan: &Plan, all: &[Growth]) {
    const CHART: &str = "performance-growth.svg";
    // A quick check leaves the figures of the last measurement alone.
    let folder = document::folder(if plan.few == FEW { "scale" } else { "scale-quick" });
    let rows: Vec<_> = all
        .iter()
        .map(|one| {
            let ratio = |spread: Spread| spread.range().map(|[least, median, most]| json!([least, median, most]));
            json!({"store": one.store, "kept_events": one.kept, "new_us": one.new.0, "new_of_small": ratio(one.new.1),
                   "repeat_us": one.repeat.0, "repeat_of_small": ratio(one.repeat.1), "bytes_per_event": one.bytes,
                   "batch_p99_ms": one.p99.0, "batch_p99_ms_during_sweep": one.p99.1})
        })
        .collect();
    let json = json!({"small_store": plan.few, "stores": rows});
    println!("written:");
    document::write(&folder.join("results.json"), &format!("{json:#}\n"));
    plan.target.chart(&folder, CHART, &chart(plan, all));
    let image = format!("![What a new claim costs, with more events kept]({CHART})\n\n");
    plan.target.figures("figures of growth", &(image + &table(all)));
}

fn chart(plan: &Plan, all: &[Growth]) -> String {
    let line = |store: &str, name: &str| {
        let points = all.iter().filter(|one| one.store == store).map(|one| (one.kept as f64, one.new.1.median()));
        (name.to_owned(), std::iter::once((plan.few as f64, 1.0)).chain(points).collect::<Vec<_>>())
    };
    let series =
        [("sqlite", "SQLite"), ("postgres", "PostgreSQL"), ("redis", "Redis")].map(|(kind, name)| line(kind, name));
    LineChart {
        title: "What a new claim costs, with more events kept",
        shows: "as a ratio to a store with few events, in turns; medians, less is better",
        axis: "kept events with two keys each, logarithmic",
        series: series.into_iter().filter(|(_, points)| points.len() > 1).collect(),
    }
    .svg()
}

fn table(all: &[Growth]) -> String {
    let header = "| Store, kept events | New claim: µs, ratio to small | Repeat: µs, ratio to small | Bytes per event with two \
                  keys | Batch of 64, p99 alone · during the sweep |\n|---|---|---|---|---|\n";
    all.iter().fold(header.to_owned(), |text, one| {
        let ((new, new_ratio), (repeat, repeat_ratio)) = (one.new, one.repeat);
        let claims = format!("{new:.0}, {} | {repeat:.1}, {}", new_ratio.text(2), repeat_ratio.text(2));
        let (alone, swept) = one.p99;
        format!("{text}| {}, {} | {claims} | {:.0} | {alone:.1} · {swept:.1} ms |\n", one.store, one.kept, one.bytes)
    })
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        if !args.iter().any(|arg| arg == "--ignored") {
            println!("the_stores_keep_much: test");
        }
        return;
    }
    let plan = Plan::of(&args);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    runtime.unwrap().block_on(measure(&plan));
}
