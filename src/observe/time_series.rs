//! Time series of the counters: per minute for a day, per quarter of an hour for a week, in this node's memory.
//!
//! Counting does not touch them: a task samples the counters every second, and adds what was counted since the last
//! sample.

use super::metrics::{Metrics, SourceCounter};
use crate::decide::time::{Duration, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// In microseconds.
const MINUTE: i64 = 60_000_000;
/// Minutes after which only quarters of an hour are kept.
const MINUTES_KEPT: i64 = 25 * 60;
/// Minutes after which nothing is kept.
const ALL_KEPT: i64 = 8 * 24 * 60;
/// In minutes.
const QUARTER: i64 = 15;

/// The counts of one source in one interval.
type CounterValues = Box<[u64]>;

/// The time series of all sources.
#[derive(Debug)]
pub struct CounterSeries(Mutex<Vec<SourceSeries>>);

#[derive(Debug, Default)]
struct SourceSeries {
    /// The counts at the last sample.
    seen: Vec<u64>,
    /// By the first minute of the interval.
    points: BTreeMap<i64, CounterValues>,
}

impl CounterSeries {
    pub(super) fn new(sources: usize) -> Self {
        Self(Mutex::new((0..sources).map(|_| SourceSeries::default()).collect()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SourceSeries>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metrics {
    /// Adds what was counted since the last sample.
    pub fn sample(&self, now: Timestamp) {
        let minute = now.0.div_euclid(MINUTE);
        for (of, source) in self.series.lock().iter_mut().zip(&self.sources) {
            of.seen.resize(source.counts.len(), 0);
            for (place, (seen, count)) in of.seen.iter_mut().zip(&source.counts).enumerate() {
                let now = count.load(Ordering::Relaxed);
                let more = now - *seen;
                if more > 0 {
                    *seen = now;
                    add(&mut of.points, minute, source.counts.len(), place, more);
                }
            }
            downsample(&mut of.points, minute);
        }
    }

    /// Adds events from before this node started.
    pub fn backfill(&self, source: &str, count: SourceCounter, at: Timestamp) {
        let place = self.place(source);
        let len = self.sources[place].counts.len();
        add(&mut self.series.lock()[place].points, at.0.div_euclid(MINUTE), len, count.index(), 1);
    }

    /// The counts of a source over time: the sums of `points` intervals from `from`, each `step` long.
    pub fn counted(&self, source: usize, from: Timestamp, step: Duration, points: usize) -> Vec<Vec<u64>> {
        let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX).max(1);
        let len = self.sources[source].counts.len();
        let mut all = vec![vec![0; len]; points];
        for (minute, counts) in self.series.lock()[source].points.range(from.0.div_euclid(MINUTE)..) {
            let at = usize::try_from((minute * MINUTE - from.0).div_euclid(step)).unwrap_or(0);
            if let Some(sums) = all.get_mut(at) {
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        all
    }
}

fn add(points: &mut BTreeMap<i64, CounterValues>, minute: i64, len: usize, place: usize, more: u64) {
    let counts = points.entry(minute).or_insert_with(|| vec![0; len].into());
    if let Some(count) = counts.get_mut(place) {
        *count += more;
    }
}

/// Merges old minutes into quarters of an hour, and drops points that are too old to be shown.
fn downsample(points: &mut BTreeMap<i64, CounterValues>, now: i64) {
    while points.first_key_value().is_some_and(|(minute, _)| *minute < now - ALL_KEPT) {
        points.pop_first();
    }
    let old = points.range(..now - MINUTES_KEPT).map(|(minute, _)| *minute).filter(|minute| minute % QUARTER != 0);
    for minute in old.collect::<Vec<_>>() {
        let Some(counts) = points.remove(&minute) else { continue };
        for (place, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            add(points, minute - minute.rem_euclid(QUARTER), counts.len(), place, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::delivery_log::{DeliveryRecord, DeliveryVerdict};

    fn minutes(n: i64) -> Timestamp {
        Timestamp(n * MINUTE)
    }

    fn sums(meter: &Metrics, from: i64, step: u64, points: usize) -> Vec<u64> {
        let counted = meter.counted(0, minutes(from), Duration::from_mins(step), points);
        counted.iter().map(|point| point[SourceCounter::Delivery(DeliveryVerdict::Accepted).index()]).collect()
    }

    #[test]
    fn a_count_is_in_its_minute_and_later_in_its_quarter_of_an_hour() {
        let meter = Metrics::default();
        let start = 1_000 * QUARTER;
        for minute in start..start + 30 {
            let heard = || DeliveryRecord::new(None, DeliveryVerdict::Accepted, minutes(minute));
            meter.delivery("", DeliveryVerdict::Accepted, minutes(minute), heard);
            meter.sample(minutes(minute));
        }
        meter.sample(minutes(start + 29));
        assert_eq!(sums(&meter, start + 27, 1, 4), [1, 1, 1, 0]);
        assert_eq!(sums(&meter, start, 15, 2), [15, 15]);
        meter.sample(minutes(start + MINUTES_KEPT + 15));
        assert_eq!(sums(&meter, start, 1, 2), [15, 0], "minutes are no longer known");
        assert_eq!(sums(&meter, start, 15, 2), [15, 15]);
        meter.sample(minutes(start + ALL_KEPT + 60));
        assert_eq!(sums(&meter, start, 15, 2), [0, 0]);
    }

    #[test]
    fn backfilled_counts_are_added_and_do_not_count_as_new() {
        let meter = Metrics::default();
        meter.backfill("", SourceCounter::Delivery(DeliveryVerdict::Accepted), minutes(60));
        meter.sample(minutes(61));
        assert_eq!(sums(&meter, 60, 1, 2), [1, 0]);
        assert_eq!(meter.sources[0].count(SourceCounter::Delivery(DeliveryVerdict::Accepted)), 0);
    }
}
