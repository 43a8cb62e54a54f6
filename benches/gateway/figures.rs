//! Figures: the median of several rounds, and their spread.

use crate::load::Came;
use crate::server::Kind;
use std::path::Path;
use std::time::Duration;

/// One round of one server.
pub struct Sample {
    rate: f64,
    middle: f64,
    late: f64,
    cpu: f64,
    memory: f64,
}

impl Sample {
    pub fn of(came: &Came, cpu: Duration, memory: f64) -> Self {
        let cpu = cpu.as_secs_f64() * 1e6 / came.answers() as f64;
        Self { rate: came.rate(), middle: came.wait(0.5), late: came.wait(0.99), cpu, memory }
    }
}

/// The rounds of all servers that were measured in turns.
#[derive(Default)]
pub struct Figures(Vec<(Kind, Vec<Sample>)>);

impl Figures {
    pub fn add(&mut self, kind: Kind, sample: Sample) {
        match self.0.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, samples)) => samples.push(sample),
            None => self.0.push((kind, vec![sample])),
        }
    }

    fn of(&self, kind: Kind) -> &[Sample] {
        self.0.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, samples)| samples)
    }

    /// The ratio of the rates of one to those of another, round by round.
    fn ratio(&self, kind: Kind, to: Kind) -> String {
        let both = self.of(kind).iter().zip(self.of(to));
        spread(both.map(|(one, other)| one.rate / other.rate).collect(), 2)
    }

    pub fn print(&self) {
        println!(
            "  {:<30} {:>8}  {:<18} {:>7} {:>7} {:>9} {:>6}",
            "", "per s", "of bare", "p50 ms", "p99 ms", "CPU µs", "MiB"
        );
        for (kind, samples) in &self.0 {
            let of = |what: fn(&Sample) -> f64| middle(samples.iter().map(what).collect());
            println!(
                "  {:<30} {:>8.0}  {:<18} {:>7.2} {:>7.2} {:>9.1} {:>6.1}",
                kind.words(),
                of(|s| s.rate),
                self.ratio(*kind, Kind::Bare),
                of(|s| s.middle),
                of(|s| s.late),
                of(|s| s.cpu),
                samples.iter().map(|s| s.memory).fold(0.0, f64::max),
            );
        }
        if !self.of(Kind::PerRow).is_empty() {
            println!("  group commit against a commit per claim: {}", self.ratio(Kind::Whole, Kind::PerRow));
            println!("  log off against log on: {}", self.ratio(Kind::Silent, Kind::Whole));
        }
        for kind in [Kind::AgainMemory, Kind::Again] {
            let both = self.of(kind).iter().zip(self.of(Kind::Ignored));
            let ratio = spread(both.map(|(one, other)| one.cpu / other.cpu).collect(), 2);
            if !ratio.is_empty() {
                println!("  CPU of {} against filtered out: {ratio}", kind.words());
            }
        }
        if !self.of(Kind::Watched).is_empty() {
            let both = || self.of(Kind::Watched).iter().zip(self.of(Kind::Whole));
            let (rate, cpu) = (both().map(|(w, o)| w.rate / o.rate), both().map(|(w, o)| w.cpu / o.cpu));
            let (rate, cpu) = (spread(rate.collect(), 3), spread(cpu.collect(), 3));
            println!("  dashboard open against closed: {rate} of the rate, {cpu} of the CPU per delivery");
        }
        println!();
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The median of these, and their range.
pub fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    match values[..] {
        [] => String::new(),
        [one] => format!("{one:.digits$}"),
        [least, .., most] => {
            format!("{:.digits$} ({least:.digits$}–{most:.digits$})", values[values.len() / 2])
        }
    }
}

/// The type of the file system of a folder.
pub fn file_system(dir: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let holding = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        dir.starts_with(at).then(|| (at.len(), kind.to_owned()))
    });
    holding.max().map_or_else(|| "an unknown file system".into(), |(_, kind)| kind)
}
