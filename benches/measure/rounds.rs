//! Rounds of several contenders in turns: the median of each figure, and its range.

use super::load::LoadResult;
use super::process::Used;
use serde_json::{Value as Json, json};
use std::path::Path;

/// One round of one contender.
#[derive(Clone, Debug)]
pub struct Sample {
    pub rate: f64,
    /// Latencies in milliseconds.
    pub p50: f64,
    pub p99: f64,
    /// CPU of the server per request, in microseconds.
    pub cpu: f64,
    /// CPU of the store's own server per request, in microseconds; 0 where there is none.
    pub store_cpu: f64,
    /// Bytes that the server and its store's own server wrote per request.
    pub written: f64,
    /// PSS of the server in MiB.
    pub memory: f64,
}

impl Sample {
    pub fn of(result: &LoadResult, used: Used, memory: f64) -> Self {
        Self::with_store(result, used, Used::default(), memory)
    }

    pub fn with_store(result: &LoadResult, server: Used, store: Used, memory: f64) -> Self {
        let answers = result.answers().max(1) as f64;
        let each = |used: Used| used.cpu.as_secs_f64() * 1e6 / answers;
        Self {
            rate: result.rate(),
            p50: result.wait(0.5),
            p99: result.wait(0.99),
            cpu: each(server),
            store_cpu: each(store),
            written: (server + store).written as f64 / answers,
            memory,
        }
    }

    /// All its figures.
    pub fn json(&self) -> Json {
        json!({"per_second": self.rate, "p50_ms": self.p50, "p99_ms": self.p99, "server_cpu_us": self.cpu,
               "store_cpu_us": self.store_cpu, "written_bytes": self.written, "memory_mib": self.memory})
    }

    /// CPU of the server and of its store.
    pub fn whole_cpu(&self) -> f64 {
        self.cpu + self.store_cpu
    }
}

/// The rounds of all contenders that were measured in turns.
pub struct Rounds<K>(Vec<(K, Vec<Sample>)>);

impl<K> Default for Rounds<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Copy + PartialEq> Rounds<K> {
    pub fn add(&mut self, kind: K, sample: Sample) {
        match self.0.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, samples)) => samples.push(sample),
            None => self.0.push((kind, vec![sample])),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &[Sample])> {
        self.0.iter().map(|(kind, samples)| (*kind, samples.as_slice()))
    }

    pub fn of(&self, kind: K) -> &[Sample] {
        self.0.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, samples)| samples)
    }

    /// The figure of one divided by that of another, round by round.
    pub fn ratio(&self, kind: K, to: K, figure: fn(&Sample) -> f64) -> Spread {
        let both = self.of(kind).iter().zip(self.of(to));
        Spread::of(both.map(|(one, other)| figure(one) / figure(other)).collect())
    }

    /// This figure of all its rounds.
    pub fn spread(&self, kind: K, figure: fn(&Sample) -> f64) -> Spread {
        Spread::of(self.of(kind).iter().map(figure).collect())
    }
}

/// The median of some figures, and their range. Empty if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread(Option<[f64; 3]>);

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let [Some(least), Some(most)] = [values.first(), values.last()] else { return Self(None) };
        let half = values.len() / 2;
        let middle = if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        Self(Some([*least, middle, *most]))
    }

    pub fn is_empty(self) -> bool {
        self.0.is_none()
    }

    /// Least, median and most.
    pub fn range(self) -> Option<[f64; 3]> {
        self.0
    }

    pub fn median(self) -> f64 {
        self.0.map_or(0.0, |[_, middle, _]| middle)
    }

    /// With this many digits behind the point: `0.21 (0.18–0.24)`.
    pub fn text(self, digits: usize) -> String {
        match self.0 {
            None => String::new(),
            Some([least, middle, most]) if least.to_bits() == most.to_bits() => format!("{middle:.digits$}"),
            Some([least, middle, most]) => format!("{middle:.digits$} ({least:.digits$}–{most:.digits$})"),
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

/// The processor's name and the number of its cores, as the system shows them.
pub fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {}", model.unwrap_or("an unknown processor").trim())
}
