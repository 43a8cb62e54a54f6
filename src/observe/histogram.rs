//! Histograms that cost three additions per value.

use crate::decide::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bounds of batch sizes.
pub(super) const SIZES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// The bounds of store calls and requests, in microseconds.
pub(super) const TIMES: [u64; 14] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 2_500_000, 10_000_000];

/// The bounds of attempts and whole events, in microseconds: from a millisecond to a day.
pub(super) const LONG_TIMES: [u64; 15] = [
    1_000,
    5_000,
    25_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    10_800_000_000,
    86_400_000_000,
];

/// A histogram: how many values were at most each bound; sizes, or times in microseconds.
#[derive(Debug)]
pub(super) struct Histogram<const N: usize> {
    bounds: [u64; N],
    counts: [AtomicU64; N],
    all: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    pub(super) fn new(bounds: [u64; N]) -> Self {
        Self {
            bounds,
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            all: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    pub(super) fn add(&self, value: u64) {
        if let Some(at) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[at].fetch_add(1, Ordering::Relaxed);
        }
        self.all.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(super) fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many were at most each bound, how many there were, and their sum.
    fn read(&self) -> (Vec<u64>, u64, u64) {
        let mut below = 0;
        let each = self.counts.iter().map(|count| {
            below += count.load(Ordering::Relaxed);
            below
        });
        let each = each.collect::<Vec<_>>();
        (each, self.all.load(Ordering::Relaxed).max(below), self.sum.load(Ordering::Relaxed))
    }

    /// Its current values.
    #[cfg(feature = "node")]
    pub(super) fn snapshot(&self) -> HistogramSnapshot {
        self.scaled(1.0)
    }

    /// Its current values, in seconds.
    #[cfg(feature = "node")]
    pub(super) fn seconds(&self) -> HistogramSnapshot {
        self.scaled(1e6)
    }

    #[cfg(feature = "node")]
    #[expect(clippy::cast_precision_loss, reason = "far below where that matters")]
    fn scaled(&self, unit: f64) -> HistogramSnapshot {
        let counts: Vec<_> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let below = counts.iter().sum();
        let count = self.all.load(Ordering::Relaxed).max(below);
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / unit).chain([f64::INFINITY]);
        let buckets = bounds.zip(counts.into_iter().chain([count - below])).collect();
        HistogramSnapshot { sum: self.sum.load(Ordering::Relaxed) as f64 / unit, count, buckets }
    }

    /// The bound below which this share of the values is.
    pub(super) fn quantile(&self, share: f64) -> Option<u64> {
        let (each, all, _) = self.read();
        #[expect(clippy::cast_precision_loss, reason = "only displayed")]
        let at = each.iter().position(|below| all > 0 && *below as f64 >= share * all as f64);
        at.map(|at| self.bounds[at])
    }
}

/// A histogram at one moment.
#[cfg(feature = "node")]
#[derive(Debug)]
pub(super) struct HistogramSnapshot {
    /// The sum of all values.
    pub(super) sum: f64,
    /// How many there were.
    pub(super) count: u64,
    /// Each upper bound, and how many values are above the bound before it.
    pub(super) buckets: Vec<(f64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_says_how_many_were_at_most_each_bound() {
        let histogram = Histogram::new([1, 10, 100]);
        for value in [1, 2, 10, 11, 1000] {
            histogram.add(value);
        }
        assert_eq!(histogram.read(), (vec![1, 3, 4], 5, 1024));
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.99)), (Some(10), None));
        assert_eq!(Histogram::new([1]).quantile(0.5), None);
    }
}
