//! Time series of the counters: per minute for a day, per quarter of an hour for a week, in this node's memory.
//!
//! Counting does not touch them: a task samples the counters every second, and adds what was counted since the last
//! sample.

use super::metrics::{Metrics, SourceCounter, SourceMetrics};
use crate::decide::time::{Duration, Timestamp};
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// In microseconds.
const MINUTE: i64 = 60_000_000;
/// Minutes after which only quarters of an hour are kept.
const MINUTES_KEPT: i64 = 25 * 60;
/// Minutes after which nothing is kept.
const ALL_KEPT: i64 = 8 * 24 * 60;
/// In minutes.
const QUARTER: i64 = 15;

/// The counts of one source in one interval. A config that is loaded later may have more of them.
type CounterValues = Vec<u64>;

/// The time series of one source.
#[derive(Debug, Default)]
pub(super) struct SourceSeries {
    /// The counts at the last sample.
    seen: Vec<u64>,
    /// By the first minute of the interval.
    points: BTreeMap<i64, CounterValues>,
}

impl Metrics {
    /// Adds what was counted since the last sample.
    pub fn sample(&self, now: Timestamp) {
        let minute = now.0.div_euclid(MINUTE);
        for source in &*self.sources() {
            let mut series = source.series.lock().unwrap_or_else(PoisonError::into_inner);
            let (of, counts) = (&mut *series, source.counts());
            of.seen.resize(counts.len().max(of.seen.len()), 0);
            for (place, (seen, now)) in of.seen.iter_mut().zip(counts).enumerate() {
                let more = now.saturating_sub(*seen);
                if more > 0 {
                    *seen = now;
                    add(&mut of.points, minute, place, more);
                }
            }
            downsample(&mut of.points, minute);
        }
    }

    /// Adds events from before this node started.
    pub fn backfill(&self, source: &str, count: SourceCounter, at: Timestamp) {
        let source = self.source(source);
        let mut series = source.series.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut series.points, at.0.div_euclid(MINUTE), count.index(), 1);
    }
}

impl SourceMetrics {
    /// Its counts over time: the sums of `points` intervals from `from`, each `step` long.
    pub fn counted(&self, from: Timestamp, step: Duration, points: usize) -> Vec<Vec<u64>> {
        let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX).max(1);
        let mut all = vec![vec![0; self.counts().len()]; points];
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for (minute, counts) in series.points.range(from.0.div_euclid(MINUTE)..) {
            let at = usize::try_from((minute * MINUTE - from.0).div_euclid(step)).unwrap_or(0);
            if let Some(sums) = all.get_mut(at) {
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        all
    }
}

fn add(points: &mut BTreeMap<i64, CounterValues>, minute: i64, place: usize, more: u64) {
    let counts = points.entry(minute).or_default();
    counts.resize(counts.len().max(place + 1), 0);
    counts[place] += more;
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
            add(points, minute - minute.rem_euclid(QUARTER), place, *count);
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
        let counted = meter.source("").counted(minutes(from), Duration::from_mins(step), points);
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
        assert_eq!(meter.source("").count(SourceCounter::Delivery(DeliveryVerdict::Accepted)), 0);
    }
}
