//! Logs problems with a store's clocks: a jump that expiry is waiting on, and a store clock far from this machine's.

use super::{Store, StoreError};
use crate::decide::expiry_clock::PendingClockJump;
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp, approximate_duration};
use tracing::{info, warn};

/// How far the store's clock is ahead of this machine's wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockSkew(i64);

impl ClockSkew {
    /// The skew now.
    pub fn of(store: &dyn Store) -> Self {
        Self::between(store.now(), store.wall_time())
    }

    fn between(store: Timestamp, wall: Timestamp) -> Self {
        Self(store.0.saturating_sub(wall.0))
    }

    /// In seconds; negative if the store's clock is behind.
    #[expect(clippy::cast_precision_loss, reason = "microseconds do not matter over years")]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1_000_000.0
    }

    fn is_far(self) -> bool {
        self.length() > limits::CLOCK_STANDS
    }

    fn length(self) -> Duration {
        Duration::from_micros(self.0.unsigned_abs())
    }
}

/// Logs changes in the state of a store's clocks.
#[derive(Debug, Default)]
pub struct ClockMonitor {
    far: ClockSkewState,
    waiting: Option<PendingClockJump>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ClockSkewState {
    /// The clocks are close.
    #[default]
    No,
    /// They were far apart at the last check. Not logged yet: a machine that slept gets its server's time a moment
    /// later.
    Once,
    /// It was logged that they are far apart.
    Said,
}

impl ClockMonitor {
    /// Checks the clocks and logs what changed. `would_forget` is only awaited if a jump is pending.
    pub async fn look(&mut self, store: &dyn Store, would_forget: impl Future<Output = Result<u64, StoreError>>) {
        // A failure is retried by the next check, and reported by the calls that need the clock.
        store.look_at_clock().await.ok();
        let waiting = store.expiry().waiting;
        match (self.waiting, waiting) {
            (Some(before), Some(jump)) if before.since == jump.since => {}
            (_, Some(jump)) => say_waiting(&jump, would_forget.await.ok()),
            (Some(_), None) => {
                let why = "the clock no longer jumps: events expire by the time it shows now";
                info!(target: "hookonce", why, "expiry");
            }
            (None, None) => {}
        }
        self.waiting = waiting;
        let ahead = ClockSkew::of(store);
        self.far = match (self.far, ahead.is_far()) {
            (ClockSkewState::No, true) => ClockSkewState::Once,
            (ClockSkewState::Once, true) => {
                say_far(ahead);
                ClockSkewState::Said
            }
            (ClockSkewState::Said, true) => ClockSkewState::Said,
            (ClockSkewState::Said, false) => {
                info!(target: "hookonce", why = "the store's clock and this machine's agree again", "clock");
                ClockSkewState::No
            }
            (_, false) => ClockSkewState::No,
        };
    }
}

fn say_waiting(jump: &PendingClockJump, would: Option<u64>) {
    let many = would.map_or_else(
        || "an unknown number of".to_owned(),
        |would| {
            let more = if would >= limits::WOULD_FORGET_MAX as u64 { " or more" } else { "" };
            format!("{would}{more}")
        },
    );
    let why = format!(
        "the clock is {} ahead of the time this store last saw; expiry ignores the jump until it has lasted {}, in {}. \
         It would forget {many} events. If it is right, `hookonce forget --now` makes it count at once",
        approximate_duration(jump.jump, 2),
        approximate_duration(limits::CLOCK_JUMP_STANDS_FOR, 2),
        approximate_duration(jump.left, 2),
    );
    warn!(target: "hookonce", why, would_forget = would, "expiry");
}

fn say_far(ahead: ClockSkew) {
    let why = format!(
        "the store's clock is {} {} this machine's; leases and the order of events go by the store's, the age of \
         signatures by this machine's; check which of them is wrong. If neither is, the store's was once ahead and continues \
         from there",
        approximate_duration(ahead.length(), 2),
        if ahead.0 > 0 { "ahead of" } else { "behind" },
    );
    warn!(target: "hookonce", why, "clock");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_far_apart_when_they_differ_by_more_than_a_minute_either_way() {
        let far = |store, wall| ClockSkew::between(Timestamp(store), Timestamp(wall)).is_far();
        assert!(!far(60_000_000, 0) && !far(0, 60_000_000) && far(60_000_001, 0) && far(0, 60_000_001));
    }
}
