//! The tables of this benchmark, on the terminal and in the docs.

use crate::measure::document::table;
use crate::measure::rounds::{Rounds, Sample, Spread};
use crate::server::Kind;
use serde_json::{Value as Json, json};

/// Prints all servers, and the comparisons that these figures allow.
pub fn print(figures: &Rounds<Kind>) {
    println!(
        "  {:<30} {:>8}  {:<18} {:>7} {:>7} {:>9} {:>11} {:>6}",
        "", "per s", "of bare", "p50 ms", "p99 ms", "CPU µs", "KB written", "MiB"
    );
    for (kind, samples) in figures.iter() {
        let of = |figure| figures.spread(kind, figure).median();
        println!(
            "  {:<30} {:>8.0}  {:<18} {:>7.2} {:>7.2} {:>9.1} {:>11.1} {:>6.1}",
            kind.words(),
            of(rate),
            figures.ratio(kind, Kind::Bare, rate).text(2),
            of(|s| s.p50),
            of(|s| s.p99),
            of(cpu),
            of(|s| s.written / 1e3),
            samples.iter().map(|s| s.memory).fold(0.0, f64::max),
        );
    }
    println!("{}", comparisons(figures));
}

/// The same as a table of the docs.
pub fn markdown(name: &str, figures: &Rounds<Kind>) -> String {
    let header =
        [name, "Per second", "Ratio to bare", "p50 · p99 ms", "CPU µs per delivery", "KB written per delivery", "MiB"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (kind, samples) in figures.iter() {
        let of = |figure| figures.spread(kind, figure);
        rows.push(vec![
            kind.words().to_owned(),
            of(rate).text(0),
            figures.ratio(kind, Kind::Bare, rate).text(2),
            format!("{:.1} · {:.1}", of(|s| s.p50).median(), of(|s| s.p99).median()),
            of(cpu).text(0),
            of(|s| s.written / 1e3).text(1),
            format!("{:.0}", samples.iter().map(|s| s.memory).fold(0.0, f64::max)),
        ]);
    }
    table(&rows)
}

/// The same as JSON.
pub fn json(figures: &Rounds<Kind>) -> Json {
    let kinds = figures.iter().map(|(kind, samples)| {
        let rounds: Vec<_> = samples.iter().map(Sample::json).collect();
        (format!("{kind:?}"), json!({ "rounds": rounds }))
    });
    Json::Object(kinds.collect())
}

/// The comparisons that these figures allow, as a list.
pub fn comparisons(figures: &Rounds<Kind>) -> String {
    let mut lines = Vec::new();
    let group = figures.ratio(Kind::Whole, Kind::PerRow, rate);
    if !group.is_empty() {
        lines.push(format!("group commit against a commit per claim: {}", group.text(2)));
        lines.push(format!("log off against log on: {}", figures.ratio(Kind::Silent, Kind::Whole, rate).text(2)));
    }
    for kind in [Kind::AgainMemory, Kind::Again] {
        let ratio = figures.ratio(kind, Kind::Ignored, cpu);
        if !ratio.is_empty() {
            lines.push(format!("CPU of {} against filtered out: {}", kind.words(), ratio.text(2)));
        }
    }
    let watched = |figure| -> Spread { figures.ratio(Kind::Watched, Kind::Whole, figure) };
    if !watched(rate).is_empty() {
        let (rate, cpu) = (watched(rate).text(3), watched(cpu).text(3));
        lines.push(format!("dashboard open against closed: {rate} of the rate, {cpu} of the CPU per delivery"));
    }
    lines.into_iter().fold(String::new(), |text, line| text + "- " + &line + "\n")
}

fn rate(sample: &Sample) -> f64 {
    sample.rate
}

fn cpu(sample: &Sample) -> f64 {
    sample.cpu
}
