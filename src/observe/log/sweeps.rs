//! What the sweeps of one node have freed, and why one failed.

use crate::decide::time::{Duration, Timestamp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The counters of the sweep, since the node started, and how the last sweeps went.
#[derive(Debug, Default)]
pub struct SweepMetrics {
    events: AtomicU64,
    bodies: AtomicU64,
    failures: AtomicU64,
    last: Mutex<LastSweeps>,
}

/// How the last sweeps of a node went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LastSweeps {
    /// The last sweep that got to its end: when, and how long it took.
    pub finished: Option<(Timestamp, Duration)>,
    /// The last sweep that freed something: when, how many events, and how many bodies.
    pub freed: Option<(Timestamp, u64, u64)>,
    /// The last sweep that failed: when, and why.
    pub failed: Option<(Timestamp, String)>,
}

impl SweepMetrics {
    /// Counts what one batch has freed.
    pub fn freed(&self, events: u64, bodies: u64) {
        self.events.fetch_add(events, Ordering::Relaxed);
        self.bodies.fetch_add(bodies, Ordering::Relaxed);
    }

    /// Notes a sweep that came to its end, or failed with `why`, after it freed so much.
    pub fn ended(&self, at: Timestamp, took: Duration, (events, bodies): (u64, u64), failed: Option<String>) {
        let mut last = self.lock();
        if events + bodies > 0 {
            last.freed = Some((at, events, bodies));
        }
        match failed {
            Some(why) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                last.failed = Some((at, why));
            }
            None => last.finished = Some((at, took)),
        }
    }

    /// Events and bodies that were freed, and sweeps that failed, since the node started.
    pub fn totals(&self) -> (u64, u64, u64) {
        let [events, bodies, failures] =
            [&self.events, &self.bodies, &self.failures].map(|count| count.load(Ordering::Relaxed));
        (events, bodies, failures)
    }

    /// How the last sweeps went.
    pub fn last(&self) -> LastSweeps {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, LastSweeps> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_stays_to_be_seen_after_a_sweep_that_works_and_an_empty_one_hides_nothing() {
        let (meter, second) = (SweepMetrics::default(), Duration::from_secs(1));
        meter.freed(5, 2);
        meter.ended(Timestamp(1), second, (5, 2), Some("it is away".into()));
        assert_eq!(meter.totals(), (5, 2, 1));
        meter.ended(Timestamp(2), second, (0, 0), None);
        let last = meter.last();
        assert_eq!(last.finished, Some((Timestamp(2), second)));
        assert_eq!(last.freed, Some((Timestamp(1), 5, 2)));
        assert_eq!(last.failed, Some((Timestamp(1), "it is away".into())));
    }
}
