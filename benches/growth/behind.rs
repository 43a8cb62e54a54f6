//! The latency of deliveries that come while a node merges, checkpoints or sweeps, compared with that of the others.

use crate::Plan;
use crate::measure::deck::{Deck, Repeats};
use crate::measure::document::table;
use crate::measure::load::{self, CONNECTIONS, LoadResult, Round};
use crate::measure::node::Node;
use crate::measure::process::used_when_quiet;
use crate::measure::rounds::Spread;
use crate::measure::source::SourceConfig;
use crate::phases::{Behind, Observer, Phases};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much longer than a round of the other parts: merges come every second or two.
const TIMES_AS_LONG: u32 = 3;
/// Fewer responses than this say nothing about a 99th percentile.
const RESPONSES_MIN: usize = 1_000;
/// More than a node handles in a second.
const RATE_MAX: f64 = 30_000.0;
/// After this long every event of a node with `keep = "1s"` has expired.
const EXPIRED_AFTER: Duration = Duration::from_millis(1_500);
/// A sweep that removes nothing for so long is over.
const SWEEP_PAUSE_MAX: Duration = Duration::from_secs(2);
const STORE: &str = "\"sqlite:hookonce.db\"";

/// What a response met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Met {
    Nothing,
    Merge,
    Checkpoint,
}

/// The figures of all rounds.
#[derive(Default)]
pub struct Figures {
    /// The 99th percentile of what met nothing, in milliseconds.
    quiet: Vec<f64>,
    /// That of what met it, and its ratio to the quiet one of the same round.
    merging: Vec<(f64, f64)>,
    checkpointing: Vec<(f64, f64)>,
    /// That of all during a sweep, and its ratio to all of the round without one before it.
    sweeping: Vec<(f64, f64)>,
    /// Shares of the time.
    merged: Vec<f64>,
    checkpointed: Vec<f64>,
    /// Events swept in a second.
    swept: Vec<f64>,
    /// What a sweep without any load takes for an event: microseconds of CPU, and kilobytes written.
    alone: Vec<(f64, f64)>,
}

/// Rounds without a sweep and with one, in turn, on the store in this folder. Before each, the node is started again.
pub async fn measure(plan: &Plan, dir: &Path) -> Figures {
    let lasts = plan.lasts * TIMES_AS_LONG;
    let each = RATE_MAX * lasts.as_secs_f64();
    let deck = Arc::new(Deck::new((each * plan.rounds as f64 * 2.0) as usize + CONNECTIONS + 1));
    let config = SourceConfig::recorded(STORE, "7d").text();
    let sweeps =
        SourceConfig::recorded(STORE, "1s").text().replace("keep_body = \"1s\"", "keep = \"1s\"\nkeep_body = \"1s\"");
    let (mut figures, mut used) = (Figures::default(), 0);
    for _ in 0..plan.rounds {
        let node = Node::start(dir, &config);
        let begun = Instant::now();
        let observer = Observer::start(node.id(), &dir.join("hookonce.db"), begun);
        let offset = begun.elapsed();
        let result = round(&deck, &node, &mut used, lasts).await;
        figures.add_behind(&result, &observer.end(), offset);
        node.stop();

        let node = Node::start(dir, &sweeps);
        let before = (node.metric("hookonce_forgotten_events_total"), Instant::now());
        let swept = round(&deck, &node, &mut used, lasts).await;
        let forgotten = node.metric("hookonce_forgotten_events_total") - before.0;
        figures.add_sweep(&result, &swept, forgotten / before.1.elapsed().as_secs_f64());
        node.stop();
        figures.alone.extend(rest_swept(dir, &sweeps).await);
    }
    figures
}

/// What the sweep of what is left costs for each event while nothing else is done. It includes the start of its node.
async fn rest_swept(dir: &Path, config: &str) -> Option<(f64, f64)> {
    tokio::time::sleep(EXPIRED_AFTER).await;
    let node = Node::start(dir, config);
    let forgotten = || node.metric("hookonce_forgotten_events_total");
    let mut last = 0.0;
    loop {
        tokio::time::sleep(SWEEP_PAUSE_MAX).await;
        let now = forgotten();
        if now - last < 1.0 {
            break;
        }
        last = now;
    }
    let [cost] = used_when_quiet(|| [node.used()]).await;
    node.stop();
    (last > 1_000.0).then(|| (cost.cpu.as_secs_f64() * 1e6 / last, cost.written as f64 / 1e3 / last))
}

async fn round(deck: &Arc<Deck>, node: &Node, used: &mut u64, lasts: Duration) -> LoadResult {
    let room = deck.len() as u64 - *used;
    let to = node.address;
    let round = Round { to, repeats: Repeats::NONE, from: *used, room, lasts, connections: CONNECTIONS };
    let result = load::run(deck, round).await;
    *used += result.distinct;
    assert_eq!((result.accepted, result.other), (result.answers(), 0), "each delivery is accepted");
    result
}

/// The 99th percentile in milliseconds, if there is enough to say one.
fn p99(mut waits: Vec<u32>) -> Option<f64> {
    waits.sort_unstable();
    (waits.len() >= RESPONSES_MIN).then(|| f64::from(waits[waits.len() * 99 / 100]) / 1e3)
}

impl Figures {
    /// Takes a round without a sweep. Its load began so much after its observer.
    fn add_behind(&mut self, result: &LoadResult, phases: &Phases, offset: Duration) {
        let met = |(ended, wait): &(u32, u32)| {
            let end = offset + Duration::from_micros(u64::from(*ended));
            phases.between(end.saturating_sub(Duration::from_micros(u64::from(*wait))), end)
        };
        let waits = |which: Met| {
            let of = result.timeline.iter().filter(|answer| match (which, met(answer)) {
                (Met::Nothing, behind) => behind == Behind::default(),
                (Met::Merge, behind) => behind.merges,
                (Met::Checkpoint, behind) => behind.checkpoints,
            });
            p99(of.map(|(_, wait)| *wait).collect())
        };
        self.merged.push(phases.share(|behind| behind.merges));
        self.checkpointed.push(phases.share(|behind| behind.checkpoints));
        let Some(quiet) = waits(Met::Nothing) else { return };
        self.quiet.push(quiet);
        self.merging.extend(waits(Met::Merge).map(|p99| (p99, p99 / quiet)));
        self.checkpointing.extend(waits(Met::Checkpoint).map(|p99| (p99, p99 / quiet)));
    }

    fn add_sweep(&mut self, without: &LoadResult, during: &LoadResult, swept: f64) {
        if let (Some(without), Some(during)) = (p99(without.waits.clone()), p99(during.waits.clone())) {
            self.sweeping.push((during, during / without));
        }
        self.swept.push(swept);
    }

    pub fn table(&self) -> String {
        let text = |figures: &[(f64, f64)]| {
            let (p99, ratio) = spreads(figures);
            if p99.is_empty() { ["not seen".to_owned(), String::new()] } else { [p99.text(1), ratio.text(2)] }
        };
        let share = |shares: &[f64]| format!("{:.0} % of the time", Spread::of(shares.to_vec()).median() * 100.0);
        let row =
            |name: &str, figures, how: String| [vec![name.to_owned()], text(figures).to_vec(), vec![how]].concat();
        let quiet = Spread::of(self.quiet.clone());
        let quiet = if quiet.is_empty() { "not seen".to_owned() } else { quiet.text(1) };
        let header = ["While the node", "p99 ms", "Ratio to quiet", "How much"].map(str::to_owned).to_vec();
        let (cpu, written) = spreads(&self.alone);
        let swept = format!(
            "{} events per second; without deliveries {} µs of CPU and {} KB written for each",
            Spread::of(self.swept.clone()).text(0),
            cpu.text(0),
            written.text(1)
        );
        table(&[
            header,
            vec!["does none of it".to_owned(), quiet, "1".to_owned(), String::new()],
            row("merges", &self.merging, share(&self.merged)),
            row("checkpoints", &self.checkpointing, share(&self.checkpointed)),
            row("sweeps", &self.sweeping, swept),
        ])
    }

    pub fn json(&self) -> Json {
        let of = |figures: &[(f64, f64)]| {
            let (p99, ratio) = spreads(figures);
            json!({"p99_ms": p99.range(), "of_quiet": ratio.range()})
        };
        json!({"quiet_p99_ms": Spread::of(self.quiet.clone()).range(), "merging": of(&self.merging),
               "checkpointing": of(&self.checkpointing), "sweeping": of(&self.sweeping),
               "swept_per_second": Spread::of(self.swept.clone()).range(),
               "sweep_cpu_us": Spread::of(self.alone.iter().map(|cost| cost.0).collect()).range(),
               "sweep_kb": Spread::of(self.alone.iter().map(|cost| cost.1).collect()).range()})
    }
}

/// The 99th percentiles, and the ratios.
fn spreads(figures: &[(f64, f64)]) -> (Spread, Spread) {
    let (p99, ratios) = figures.iter().copied().unzip();
    (Spread::of(p99), Spread::of(ratios))
}
