//! Forgetting all that may be forgotten, a batch after another.

use super::{ForgetCounts, RetentionPolicies, Store, StoreError};
use crate::decide::limits;
use crate::decide::time::Duration;
use std::fmt;
use std::sync::Arc;

/// How fast a store is swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SweepPace {
    /// The most that is freed in one batch, while the sweep is behind.
    pub batch_max: usize,
    /// The pause between two full batches, so that claims go first.
    pub pause: Duration,
}

impl Default for SweepPace {
    /// Of a store where claims wait until a batch is written.
    fn default() -> Self {
        Self { batch_max: limits::FORGET_BATCH, pause: limits::SWEEP_PAUSE }
    }
}

impl SweepPace {
    /// Of a store where a batch is many short writes, and claims come in between.
    pub const SHORT_WRITES: Self = Self { batch_max: limits::FORGET_BATCH_BEHIND, pause: Duration::ZERO };

    /// How many to free next, after a full batch of so many: four times as many, up to the most.
    pub fn next(self, batch: usize) -> usize {
        batch.saturating_mul(4).min(self.batch_max)
    }
}

impl ForgetCounts {
    /// Did a batch of so many free as much as it could? Then more may be left.
    pub fn fills(&self, batch: usize) -> bool {
        self.events.max(self.bodies) >= batch as u64
    }
}

/// Frees everything of these sources that may be forgotten when it is asked, and says how much that was. What another
/// sweep frees meanwhile is its to count.
pub async fn sweep_all(store: &dyn Store, keeps: &Arc<RetentionPolicies>) -> Result<ForgetCounts, SweepError> {
    let mut all = ForgetCounts::default();
    for _ in 0..limits::FORGET_BATCHES_MAX {
        match store.forget(keeps.clone(), limits::FORGET_BATCH).await {
            Ok(some) if some == ForgetCounts::default() => break,
            Ok(some) => all.add(some),
            Err(SweepError { freed, error }) => {
                all.add(freed);
                return Err(SweepError { freed: all, error });
            }
        }
    }
    Ok(all)
}

/// Why a sweep did not get to its end, and what it had freed by then.
#[derive(Clone, Debug)]
pub struct SweepError {
    /// What is gone all the same.
    pub freed: ForgetCounts,
    /// Why it stopped.
    pub error: StoreError,
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { freed: ForgetCounts { events, bodies }, error } = self;
        match events + bodies {
            0 => error.fmt(f),
            _ => write!(f, "{error}; {events} events and {bodies} bodies had been forgotten before that"),
        }
    }
}

impl std::error::Error for SweepError {}

impl From<StoreError> for SweepError {
    /// Nothing was freed.
    fn from(error: StoreError) -> Self {
        Self { freed: ForgetCounts::default(), error }
    }
}

impl From<SweepError> for StoreError {
    fn from(failed: SweepError) -> Self {
        failed.error
    }
}

impl ForgetCounts {
    /// Counts more of it.
    pub fn add(&mut self, more: Self) {
        self.events += more.events;
        self.bodies += more.bodies;
    }
}
