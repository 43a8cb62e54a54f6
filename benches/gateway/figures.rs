//! The tables of this benchmark.

use crate::measure::rounds::{Rounds, Sample, Spread};
use crate::server::Kind;

/// Prints all contenders, and the comparisons that these figures allow.
pub fn print(figures: &Rounds<Kind>) {
    println!(
        "  {:<30} {:>8}  {:<18} {:>7} {:>7} {:>9} {:>6}",
        "", "per s", "of bare", "p50 ms", "p99 ms", "CPU µs", "MiB"
    );
    for (kind, samples) in figures.iter() {
        let of = |figure| figures.spread(kind, figure).median();
        println!(
            "  {:<30} {:>8.0}  {:<18} {:>7.2} {:>7.2} {:>9.1} {:>6.1}",
            kind.words(),
            of(rate),
            figures.ratio(kind, Kind::Bare, rate).text(2),
            of(|s| s.p50),
            of(|s| s.p99),
            of(cpu),
            samples.iter().map(|s| s.memory).fold(0.0, f64::max),
        );
    }
    compare(figures);
    println!();
}

fn compare(figures: &Rounds<Kind>) {
    let group = figures.ratio(Kind::Whole, Kind::PerRow, rate);
    if !group.is_empty() {
        println!("  group commit against a commit per claim: {}", group.text(2));
        println!("  log off against log on: {}", figures.ratio(Kind::Silent, Kind::Whole, rate).text(2));
    }
    for kind in [Kind::AgainMemory, Kind::Again] {
        let ratio = figures.ratio(kind, Kind::Ignored, cpu);
        if !ratio.is_empty() {
            println!("  CPU of {} against filtered out: {}", kind.words(), ratio.text(2));
        }
    }
    let watched = |figure| -> Spread { figures.ratio(Kind::Watched, Kind::Whole, figure) };
    if !watched(rate).is_empty() {
        let (rate, cpu) = (watched(rate).text(3), watched(cpu).text(3));
        println!("  dashboard open against closed: {rate} of the rate, {cpu} of the CPU per delivery");
    }
}

fn rate(sample: &Sample) -> f64 {
    sample.rate
}

fn cpu(sample: &Sample) -> f64 {
    sample.cpu
}
