//! One thing that grows: nodes, or the load on them, that differ in its size alone.

use crate::Plan;
use crate::measure::chart::LineChart;
use crate::measure::deck::{BODY_BYTES, Deck, Repeats};
use crate::measure::document::table;
use crate::measure::load::{self, CONNECTIONS, Round};
use crate::measure::node::Node;
use crate::measure::process::used_when_quiet;
use crate::measure::rounds::{Rounds, Sample};
use crate::measure::source::SourceConfig;
use hookonce::internals::ingress::raise_file_limit;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;

/// More than a node handles in a second, and more bytes.
const RATE_MAX: f64 = 30_000.0;
const BYTES_RATE_MAX: f64 = 8e8;
/// A node holds 64 MiB of bodies at once, a quarter of it reserved for small ones.
const BYTES_AT_ONCE: usize = 40 << 20;

/// What grows.
pub struct Axis {
    /// As in `--only`.
    pub name: &'static str,
    pub title: &'static str,
    /// The file of its chart.
    pub file: &'static str,
    /// What the sizes are.
    unit: &'static str,
    /// What the chart shows: CPU per delivery, or per kilobyte of body.
    shows: &'static str,
    sizes: Vec<Size>,
}

/// One size: what the load and the config are then.
#[derive(Clone, Copy)]
struct Size {
    /// How it is written.
    number: usize,
    sources: u64,
    bytes: usize,
    connections: usize,
}

impl Size {
    /// The usual load, with a number.
    const fn usual(number: usize) -> Self {
        Self { number, sources: 1, bytes: BODY_BYTES, connections: CONNECTIONS }
    }
}

impl Axis {
    /// All of them, smaller for a quick check.
    pub fn all(plan: &Plan) -> [Self; 3] {
        let sources = if plan.is_quick { vec![1, 20] } else { vec![1, 10, 100, 1_000] };
        let bytes = if plan.is_quick {
            vec![1_000, 100_000]
        } else {
            vec![1_000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000]
        };
        let connections = if plan.is_quick { vec![1, 100] } else { vec![1, 10, 100, 1_000, 10_000] };
        let sized = |number| Size {
            bytes: number,
            connections: (BYTES_AT_ONCE / number).clamp(1, CONNECTIONS),
            ..Size::usual(number)
        };
        [
            Self {
                name: "sources",
                title: "What a delivery costs, with more sources",
                file: "performance-sources.svg",
                unit: "sources",
                shows: "CPU in microseconds per delivery; median of the rounds, less is better",
                sizes: sources.into_iter().map(|n| Size { sources: n as u64, ..Size::usual(n) }).collect(),
            },
            Self {
                name: "bodies",
                title: "What a kilobyte of body costs, with larger bodies",
                file: "performance-bodies.svg",
                unit: "bytes of body",
                shows: "CPU in microseconds per kilobyte; median of the rounds, less is better",
                sizes: bytes.into_iter().map(sized).collect(),
            },
            Self {
                name: "connections",
                title: "What a delivery costs, with more connections",
                file: "performance-connections.svg",
                unit: "connections",
                shows: "CPU in microseconds per delivery of 1 KB; median of the rounds, less is better",
                sizes: connections
                    .into_iter()
                    .map(|n| Size { bytes: 1_000, connections: n, ..Size::usual(n) })
                    .collect(),
            },
        ]
    }

    /// A node of each size, one round of each in turn. Every delivery must be accepted, and become one event.
    pub async fn measure(&self, plan: &Plan, dir: &Path) -> Rounds<usize> {
        let files = raise_file_limit(self.sizes.iter().map(|size| size.connections).max().unwrap_or(0));
        let fits = |size: &Size| files.is_none_or(|files| files > size.connections as u64 + 100);
        let mut runners = Vec::new();
        for size in self.sizes.iter().copied() {
            if !fits(&size) {
                println!("left out: {} {}: this process may not open so many files", size.number, self.unit);
                continue;
            }
            let config = SourceConfig::recorded("\"sqlite:hookonce.db\"", "7d");
            let config = if size.sources == 1 { config.text() } else { config.text_of_many(size.sources) };
            let rate = RATE_MAX.min(BYTES_RATE_MAX / size.bytes as f64);
            let count = (rate * plan.lasts.as_secs_f64() * plan.rounds as f64) as usize + size.connections + 1;
            let deck = Arc::new(Deck::to_sources(count, size.bytes, size.sources));
            let node = Node::start(&dir.join(size.number.to_string()), &config);
            runners.push((size, deck, node, 0));
        }
        let mut figures = Rounds::default();
        for round in 0..plan.rounds {
            for turn in 0..runners.len() {
                // Each is the first equally often.
                let at = (round + turn) % runners.len();
                let (size, deck, node, used) = &mut runners[at];
                let room = deck.len() as u64 - *used;
                let (to, connections) = (node.address, size.connections);
                let round = Round { to, repeats: Repeats::NONE, from: *used, room, lasts: plan.lasts, connections };
                let before = node.used();
                let result = load::run(deck, round).await;
                let memory = node.memory();
                let [after] = used_when_quiet(|| [node.used()]).await;
                *used += result.distinct;
                let right = (result.answers(), 0);
                assert_eq!((result.accepted, result.other), right, "{} {}", size.number, self.unit);
                figures.add(size.number, Sample::of(&result, after - before, memory));
            }
        }
        for (size, _, node, used) in runners {
            node.stop();
            let store = dir.join(size.number.to_string()).join("hookonce.db");
            let store = hookonce::store::open(&format!("sqlite:{}", store.display())).await.expect("its store opens");
            let events = store.counts().await.expect("its store counts").done;
            assert_eq!(events, used, "{} {}: each delivery is one event", size.number, self.unit);
        }
        std::fs::remove_dir_all(dir).ok();
        figures
    }

    /// What the chart shows of one size.
    fn cost(&self, number: usize, cpu: f64) -> f64 {
        if self.name == "bodies" { cpu * 1e3 / number as f64 } else { cpu }
    }

    pub fn chart(&self, figures: &Rounds<usize>) -> String {
        let point = |number| (number as f64, self.cost(number, figures.spread(number, |s| s.cpu).median()));
        let points = figures.iter().map(|(number, _)| point(number)).collect();
        let axis = format!("{}, logarithmic", self.unit);
        let series = vec![("SQLite, bodies kept".to_owned(), points)];
        LineChart { title: self.title, shows: self.shows, axis: &axis, series }.svg()
    }

    pub fn table(&self, figures: &Rounds<usize>) -> String {
        let unit = self.unit[..1].to_uppercase() + &self.unit[1..];
        let header = [&unit, "Sent over", "Per second", "MB/s", "p50 · p99 ms", "CPU µs", "KB written", "MiB"];
        let row = |size: &Size| {
            let of = |figure: fn(&Sample) -> f64| figures.spread(size.number, figure);
            vec![
                size.number.to_string(),
                format!("{} connections", size.connections),
                of(|s| s.rate).text(0),
                format!("{:.1}", of(|s| s.rate).median() * size.bytes as f64 / 1e6),
                format!("{:.1} · {:.1}", of(|s| s.p50).median(), of(|s| s.p99).median()),
                of(|s| s.cpu).text(0),
                format!("{:.1}", of(|s| s.written).median() / 1e3),
                format!("{:.0}", of(|s| s.memory).median()),
            ]
        };
        let measured = self.sizes.iter().filter(|size| !figures.of(size.number).is_empty());
        table(&std::iter::once(header.map(str::to_owned).to_vec()).chain(measured.map(row)).collect::<Vec<_>>())
    }

    pub fn json(&self, figures: &Rounds<usize>) -> Json {
        let size = |(number, samples): (usize, &[Sample])| json!({ self.unit: number, "rounds": samples.iter().map(Sample::json).collect::<Vec<_>>() });
        figures.iter().map(size).collect()
    }
}
