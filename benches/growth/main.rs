//! What changes as things grow: sources, bodies, connections; the latency while a node merges, checkpoints and sweeps;
//! and its start. Kept events are `scale`'s, nodes are `drain`'s. See `docs/performance.md`.
//!
//! ```text
//! cargo bench --bench growth                     all of it: eight minutes
//! cargo bench --bench growth -- --only bodies    or sources, connections, behind, start; may be repeated
//! cargo bench --bench growth -- --rounds 9 --seconds 2 --kept 100000
//! cargo bench --bench growth -- --docs           writes the figures and charts into docs/performance.md
//! cargo bench --bench growth -- --quick          only whether it still works; `cargo test --benches` does the same
//! ```
//!
//! The nodes are the real binary on SQLite, with bodies kept. Rounds of one size and another alternate, so that other
//! load on the machine affects all alike. Only ratios of one run are comparable.
#![expect(unreachable_pub, reason = "the parts of one program")]
#![expect(clippy::cast_precision_loss, reason = "figures are only printed")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of the command line")]

mod axis;
mod behind;
#[path = "../measure/mod.rs"]
mod measure;
mod phases;
mod start;

use axis::Axis;
use measure::document::{self, Target};
use measure::rounds::{file_system, machine};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Kept events of a large store.
const KEPT: usize = 1_000_000;

/// How much to measure.
pub struct Plan {
    rounds: usize,
    lasts: Duration,
    /// The parts to measure; empty: all.
    only: Vec<String>,
    /// Kept events of the large store.
    kept: usize,
    is_quick: bool,
    target: Target,
}

impl Plan {
    /// `cargo bench` passes `--bench`; without it only a quick check runs.
    fn of(args: &[String]) -> Self {
        let has = |name: &str| args.iter().any(|arg| arg == name);
        let words =
            |name: &'static str| args.windows(2).filter(move |pair| pair[0] == name).map(|pair| pair[1].clone());
        let number = |name, otherwise: f64| words(name).next().and_then(|word| word.parse().ok()).unwrap_or(otherwise);
        if has("--quick") || !has("--bench") {
            let lasts = Duration::from_millis(100);
            return Self { rounds: 1, lasts, only: Vec::new(), kept: 2_000, is_quick: true, target: Target::Build };
        }
        Self {
            rounds: number("--rounds", 5.0) as usize,
            lasts: Duration::from_secs_f64(number("--seconds", 2.0)),
            only: words("--only").collect(),
            kept: number("--kept", KEPT as f64) as usize,
            is_quick: false,
            target: Target::of(args),
        }
    }

    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        if !args.iter().any(|arg| arg == "--ignored") {
            println!("the_benchmark_works: test");
        }
        return;
    }
    let plan = Plan::of(&args);
    // On the disk of the build: on a file system in memory every sync would be free.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    runtime.expect("a runtime").block_on(measure(&plan, dir.path()));
}

async fn measure(plan: &Plan, dir: &Path) {
    let conditions = format!(
        "{} rounds of {:?}, SQLite on {}; {}, which also ran the load",
        plan.rounds,
        plan.lasts,
        file_system(dir),
        machine()
    );
    println!("{conditions}");
    // A quick check leaves the figures of the last measurement alone.
    let folder = document::folder(if plan.is_quick { "growth-quick" } else { "growth" });
    let (mut tables, mut all) = (format!("{conditions}.\n"), serde_json::Map::new());
    for axis in Axis::all(plan).into_iter().filter(|axis| plan.wants(axis.name)) {
        println!("\n{}", axis.title);
        let figures = axis.measure(plan, &dir.join(axis.name)).await;
        let (table, json) = (axis.table(&figures), axis.json(&figures));
        println!("{table}");
        plan.target.chart(&folder, axis.file, &axis.chart(&figures));
        tables = format!("{tables}\n![{}]({})\n\n{table}", axis.title, axis.file);
        all.insert(axis.name.to_owned(), json);
    }
    // Both are on one large store.
    let large = dir.join("large");
    if plan.wants("start") || plan.wants("behind") {
        start::fill(&large, plan.kept).await;
    }
    if plan.wants("start") {
        let figures = start::measure(plan, dir, &large);
        println!("\n{}", figures.table());
        tables = format!("{tables}\n{}", figures.table());
        all.insert("start".to_owned(), figures.json());
    }
    if plan.wants("behind") {
        let figures = behind::measure(plan, &large).await;
        println!("\n{}", figures.table());
        tables = format!("{tables}\n{}", figures.table());
        all.insert("behind".to_owned(), figures.json());
    }
    println!("written:");
    let json = json!({"conditions": conditions, "figures": all});
    document::write(&folder.join("results.json"), &format!("{json:#}\n"));
    if plan.only.is_empty() {
        plan.target.figures("figures of growth", &tables);
    }
}
