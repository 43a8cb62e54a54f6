//! The results: a table on the terminal, JSON, charts, and the figures of the docs.

use crate::Plan;
use crate::contender::{Bodies, Contender, StoreServer};
use crate::measure::chart::{DotChart, DotRow};
use crate::measure::document::{self, Target, grouped, table};
use crate::measure::rounds::{Rounds, Sample, Spread, file_system, machine};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// What came of many copies at once.
pub struct Storm {
    /// Responses: 202, 200, and others.
    pub accepted: u64,
    pub repeats: u64,
    pub failed: u64,
    /// How often the contender acted.
    pub effects: u64,
    pub took: Duration,
}

/// All figures of one run.
pub struct Report {
    conditions: String,
    rounds: Rounds<Contender>,
    storms: Vec<(Contender, Storm)>,
    left_out: Vec<(Contender, String)>,
    /// Responses of each contender, and the rounds in which one was wrong.
    answers: BTreeMap<String, (u64, u64)>,
}

/// A chart: its file, its title, what its axis shows, the figures, and which end is good.
type ChartOf<'a> = (&'a str, &'a str, &'a str, fn(&Sample) -> f64, Best);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Best {
    Most,
    Least,
}

const CHARTS: [ChartOf<'static>; 3] = [
    (
        "performance-rate.svg",
        "Deliveries per second, as a share of a handler that only reads the body",
        "median and range of the rounds of one interleaved run, logarithmic; more is better",
        |sample| sample.rate,
        Best::Most,
    ),
    (
        "performance-cpu.svg",
        "CPU time per delivery, in microseconds",
        "the server and the server of its store, logarithmic; less is better",
        Sample::whole_cpu,
        Best::Least,
    ),
    (
        "performance-latency.svg",
        "99th percentile of the latency, in milliseconds",
        "each connection sends as soon as it has its response; logarithmic, less is better",
        |sample| sample.p99,
        Best::Least,
    ),
];

impl Report {
    pub fn new(plan: &Plan, dir: &Path) -> Self {
        let (rounds, lasts, (deliveries, copies)) = (plan.rounds, plan.lasts, plan.storm);
        let conditions = format!(
            "{} connections, bodies of {} bytes, {} % repeats, {rounds} rounds of {lasts:?}, a storm of {copies} copies of \
             {deliveries} deliveries; store on {}; {}, which also ran the load",
            plan.connections,
            plan.bytes,
            plan.repeats.percent,
            file_system(dir),
            machine()
        );
        Self {
            conditions,
            rounds: Rounds::default(),
            storms: Vec::new(),
            left_out: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    pub fn conditions(&self) -> &str {
        &self.conditions
    }

    pub fn add(&mut self, contender: Contender, sample: Sample) {
        self.rounds.add(contender, sample);
    }

    /// Counts the responses of a round, which were right or not.
    pub fn answers(&mut self, contender: Contender, answers: u64, right: bool) {
        let (all, wrong) = self.answers.entry(contender.name()).or_default();
        *all += answers;
        *wrong += u64::from(!right);
    }

    pub fn storm(&mut self, contender: Contender, storm: Storm) {
        self.storms.push((contender, storm));
    }

    /// Says that this one does not take part, and why.
    pub fn leave_out(&mut self, contender: Contender, why: &str) {
        println!("left out: {}: {why}", contender.words());
        self.left_out.push((contender, why.to_owned()));
    }

    fn storm_of(&self, contender: Contender) -> Option<&Storm> {
        self.storms.iter().find(|(known, _)| *known == contender).map(|(_, storm)| storm)
    }

    pub fn print(&self) {
        println!("\n{}\n\n{}\n{}", self.figures(), self.ratios(), self.missing());
    }

    /// Writes everything under `target`, and, if asked, into the docs.
    pub fn write(&self, folder: &Path, target: Target) {
        println!("written:");
        let json = serde_json::to_string_pretty(&self.json()).expect("figures are JSON");
        document::write(&folder.join("results.json"), &(json + "\n"));
        for (file, svg) in self.charts() {
            target.chart(folder, file, &svg);
        }
        let images = CHARTS.map(|(file, title, ..)| format!("![{title}]({file})\n"));
        let tables = [self.figures(), self.ratios(), self.missing()];
        let all = format!("{}.\n\n{}\n{}", self.conditions, images.join("\n"), tables.join("\n"));
        target.figures("figures of peers", &all);
    }

    /// One row for each contender.
    fn figures(&self) -> String {
        let header =
            ["", "Per second", "Ratio to bare", "p50 · p99 ms", "CPU µs: server + store", "KB written", "Memory MiB"];
        let mut rows =
            vec![[&header[..], &["Statuses", "Storm: effects"]].concat().into_iter().map(String::from).collect()];
        for (contender, samples) in self.rounds.iter() {
            let median = |figure: fn(&Sample) -> f64| self.rounds.spread(contender, figure).median();
            let (all, wrong) = self.answers.get(&contender.name()).copied().unwrap_or_default();
            let store = match median(|s| s.store_cpu) {
                0.0 => String::new(),
                store => format!(" + {store:.0}"),
            };
            rows.push(vec![
                contender.words().to_owned(),
                grouped(median(|s| s.rate)),
                self.rounds.ratio(contender, Contender::Bare, |s| s.rate).text(3),
                format!("{:.1} · {:.1}", median(|s| s.p50), median(|s| s.p99)),
                format!("{:.0}{store}", median(|s| s.cpu)),
                format!("{:.1}", median(|s| s.written) / 1e3),
                format!("{:.0}", samples.iter().map(|s| s.memory).fold(0.0, f64::max)),
                if wrong == 0 { format!("{} right", grouped(all as f64)) } else { format!("wrong in {wrong} rounds") },
                self.storm_of(contender).map_or_else(|| "–".into(), storm_text),
            ]);
        }
        table(&rows)
    }

    /// How many times each peer's rate Hookonce has on the same store, and which share of its CPU it takes.
    fn ratios(&self) -> String {
        let header = ["Compared with", "Hookonce on", "Times as fast", "With body", "CPU of the peer, times ours"];
        let mut rows = vec![header.into_iter().map(String::from).collect()];
        for peer in Contender::PEERS.into_iter().filter(|peer| !self.rounds.of(*peer).is_empty()) {
            let ours = |bodies| Contender::Hookonce(peer.compared_on(), bodies);
            let faster = |bodies| self.rounds.ratio(ours(bodies), peer, |s| s.rate).text(1);
            let cpu = self.rounds.ratio(peer, ours(Bodies::NotKept), Sample::whole_cpu).text(1);
            let store = match peer.compared_on() {
                StoreServer::Memory => "memory",
                StoreServer::Sqlite => "SQLite",
                StoreServer::Postgres => "PostgreSQL",
                StoreServer::Redis => "Redis",
            };
            let rates = [faster(Bodies::NotKept), faster(Bodies::Kept)];
            rows.push([vec![peer.words().to_owned(), store.to_owned()], rates.to_vec(), vec![cpu]].concat());
        }
        table(&rows)
    }

    fn missing(&self) -> String {
        self.left_out.iter().fold(String::new(), |mut text, (contender, why)| {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "- Left out: {}, because it could not be installed or started: {why}",
                contender.words()
            );
            text
        })
    }

    fn charts(&self) -> Vec<(&'static str, String)> {
        let chart = |(file, title, axis, figure, best): ChartOf<'static>| {
            let mut rows: Vec<_> =
                self.rounds.iter().filter_map(|(contender, _)| self.row(contender, figure, best)).collect();
            rows.sort_by(|one, other| one.range[1].total_cmp(&other.range[1]));
            if best == Best::Most {
                rows.reverse();
            }
            (file, DotChart { title, axis, rows }.svg())
        };
        CHARTS.map(chart).into()
    }

    fn row(&self, contender: Contender, figure: fn(&Sample) -> f64, best: Best) -> Option<DotRow> {
        let spread = match best {
            Best::Most => self.rounds.ratio(contender, Contender::Bare, figure),
            Best::Least => self.rounds.spread(contender, figure),
        };
        let range = spread.range().filter(|range| range[0] > 0.0)?;
        Some(DotRow { label: contender.words().to_owned(), range, ours: contender.is_hookonce() })
    }

    fn json(&self) -> Json {
        let contenders: Vec<_> =
            self.rounds.iter().map(|(contender, samples)| self.contender_json(contender, samples)).collect();
        let left_out: Vec<_> =
            self.left_out.iter().map(|(contender, why)| json!({"name": contender.name(), "why": why})).collect();
        json!({
            "conditions": self.conditions,
            "contenders": contenders,
            "left_out": left_out,
        })
    }

    fn contender_json(&self, contender: Contender, samples: &[Sample]) -> Json {
        let rounds: Vec<_> = samples.iter().map(Sample::json).collect();
        let ratio = |to| range_json(self.rounds.ratio(contender, to, |s| s.rate));
        let faster = Contender::PEERS.contains(&contender).then(|| {
            let ours = |bodies| {
                let hookonce = Contender::Hookonce(contender.compared_on(), bodies);
                range_json(self.rounds.ratio(hookonce, contender, |s| s.rate))
            };
            json!({"without_body": ours(Bodies::NotKept), "with_body": ours(Bodies::Kept)})
        });
        let storm = self.storm_of(contender).map(|storm| {
            json!({"accepted": storm.accepted, "repeats": storm.repeats, "failed": storm.failed,
                   "effects": storm.effects, "seconds": storm.took.as_secs_f64()})
        });
        json!({
            "name": contender.name(),
            "rounds": rounds,
            "of_bare": ratio(Contender::Bare),
            "hookonce_times_as_fast": faster,
            "storm": storm,
        })
    }
}

fn storm_text(storm: &Storm) -> String {
    let failed = if storm.failed > 0 { format!(", {} failed", storm.failed) } else { String::new() };
    format!("{}{failed}", grouped(storm.effects as f64))
}

fn range_json(spread: Spread) -> Json {
    spread.range().map_or(Json::Null, |[least, median, most]| json!({"least": least, "median": median, "most": most}))
}
