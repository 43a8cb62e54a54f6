//! The circuit breaker of a receiver that does not respond: its events wait, and no attempts are spent on it.
//!
//! ```text
//!   closed ── enough failures in a row ───▶ open ── its wait is over ──▶ half-open: one attempt
//!     ▲ ▲                                    │ ▲                          │    │
//!     │ └──── an attempt under way answers ──┘ └── fails: twice the wait ─┘    │
//!     └──────────────────────────── answers ───────────────────────────────────┘
//! ```
//!
//! Times are durations since an arbitrary fixed origin.

use super::limits::{BREAKER_FAILURES, BREAKER_WAIT_FIRST, BREAKER_WAIT_LONGEST};
use super::time::Duration;

/// The circuit breaker of one receiver.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CircuitBreaker {
    failures: u32,
    state: CircuitState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum CircuitState {
    #[default]
    Closed,
    Open {
        until: Duration,
        wait: Duration,
    },
    /// One attempt is under way. If it has not reported by `until`, it never began.
    HalfOpen {
        until: Duration,
        wait: Duration,
    },
}

/// The circuit breaker's answer to an attempt that wants to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CircuitAdmission {
    /// It may, and so may others.
    Now,
    /// This one may, to find out whether the receiver is back.
    Probe,
    /// Not before this time has passed.
    In(Duration),
}

/// What an attempt's result says about its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverHealth {
    /// It responded, with whatever status.
    Up,
    /// It could not be reached, did not respond, or reported that it is broken.
    Down,
    /// Nothing: the attempt ended for another reason.
    Unknown,
}

/// A change worth logging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CircuitTransition {
    /// The circuit has opened, for this long.
    Opened(Duration),
    /// The receiver responds again.
    Closed,
}

impl CircuitBreaker {
    /// Whether the circuit is open or half-open.
    pub fn is_open(&self) -> bool {
        self.state != CircuitState::Closed
    }

    /// Whether an attempt may begin now. Only one attempt gets [`CircuitAdmission::Probe`]; it has `lasts` to report
    /// its result.
    pub fn try_acquire(&mut self, now: Duration, lasts: Duration) -> CircuitAdmission {
        match self.state {
            CircuitState::Closed => CircuitAdmission::Now,
            CircuitState::Open { until, .. } | CircuitState::HalfOpen { until, .. } if now < until => {
                CircuitAdmission::In(until.saturating_sub(now))
            }
            CircuitState::Open { wait, .. } | CircuitState::HalfOpen { wait, .. } => {
                self.state = CircuitState::HalfOpen { until: now + lasts, wait };
                CircuitAdmission::Probe
            }
        }
    }

    /// Whether the circuit is closed.
    pub fn is_closed(&self) -> bool {
        self.state == CircuitState::Closed
    }

    /// Records the result of an attempt.
    pub fn on_result(&mut self, heard: ReceiverHealth, now: Duration) -> Option<CircuitTransition> {
        match (heard, self.state) {
            (ReceiverHealth::Up, state) => {
                *self = Self::default();
                (state != CircuitState::Closed).then_some(CircuitTransition::Closed)
            }
            (ReceiverHealth::Down, CircuitState::Closed) => {
                self.failures += 1;
                let wait = BREAKER_WAIT_FIRST;
                (self.failures >= BREAKER_FAILURES).then(|| {
                    self.state = CircuitState::Open { until: now + wait, wait };
                    CircuitTransition::Opened(wait)
                })
            }
            (ReceiverHealth::Down, CircuitState::HalfOpen { wait, .. }) => {
                let wait = (wait * 2).min(BREAKER_WAIT_LONGEST);
                self.state = CircuitState::Open { until: now + wait, wait };
                None
            }
            // The probe has shown nothing: the next attempt may probe.
            (ReceiverHealth::Unknown, CircuitState::HalfOpen { wait, .. }) => {
                self.state = CircuitState::Open { until: now, wait };
                None
            }
            // Attempts that were under way when the circuit opened tell nothing new.
            (ReceiverHealth::Down, CircuitState::Open { .. }) | (ReceiverHealth::Unknown, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    /// A breaker that opened at second 0.
    fn opened() -> CircuitBreaker {
        let mut breaker = CircuitBreaker::default();
        for _ in 1..BREAKER_FAILURES {
            assert_eq!(breaker.on_result(ReceiverHealth::Down, at(0)), None);
        }
        assert_eq!(breaker.on_result(ReceiverHealth::Down, at(0)), Some(CircuitTransition::Opened(BREAKER_WAIT_FIRST)));
        breaker
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let mut breaker = CircuitBreaker::default();
        for _ in 0..100 {
            for _ in 1..BREAKER_FAILURES {
                breaker.on_result(ReceiverHealth::Down, at(0));
            }
            assert_eq!(breaker.try_acquire(at(0), LASTS), CircuitAdmission::Now);
            assert_eq!(breaker.on_result(ReceiverHealth::Unknown, at(0)), None);
            assert_eq!(breaker.on_result(ReceiverHealth::Up, at(0)), None);
        }
    }

    #[test]
    fn while_it_is_open_no_attempt_begins_and_then_one_does() {
        let mut breaker = opened();
        let first = BREAKER_WAIT_FIRST.as_secs();
        assert_eq!(
            breaker.try_acquire(at(1), LASTS),
            CircuitAdmission::In(BREAKER_WAIT_FIRST.saturating_sub(Duration::from_secs(1)))
        );
        assert_eq!(breaker.on_result(ReceiverHealth::Down, at(1)), None, "one that was under way");
        assert_eq!(breaker.try_acquire(at(first), LASTS), CircuitAdmission::Probe);
        assert_eq!(breaker.try_acquire(at(first), LASTS), CircuitAdmission::In(LASTS));
        assert_eq!(breaker.on_result(ReceiverHealth::Up, at(first)), Some(CircuitTransition::Closed));
        assert_eq!(breaker.try_acquire(at(first), LASTS), CircuitAdmission::Now);
        assert_eq!(breaker.on_result(ReceiverHealth::Down, at(first)), None, "it counts from the beginning");
    }

    #[test]
    fn each_try_that_fails_doubles_the_wait_up_to_the_longest() {
        let (mut breaker, mut now, mut wait) = (opened(), at(0), BREAKER_WAIT_FIRST);
        for _ in 0..10 {
            assert_eq!(breaker.try_acquire(now, LASTS), CircuitAdmission::In(wait));
            now += wait;
            assert_eq!(breaker.try_acquire(now, LASTS), CircuitAdmission::Probe);
            assert_eq!(breaker.on_result(ReceiverHealth::Down, now), None);
            wait = (wait * 2).min(BREAKER_WAIT_LONGEST);
        }
        assert_eq!(wait, BREAKER_WAIT_LONGEST);
    }

    #[test]
    fn a_probe_that_never_reports_does_not_keep_the_circuit_open() {
        let mut breaker = opened();
        let now = at(0) + BREAKER_WAIT_FIRST;
        assert_eq!(breaker.try_acquire(now, LASTS), CircuitAdmission::Probe);
        assert_eq!(breaker.try_acquire(now + LASTS, LASTS), CircuitAdmission::Probe);
        assert_eq!(breaker.on_result(ReceiverHealth::Unknown, now + LASTS), None);
        assert_eq!(breaker.try_acquire(now + LASTS, LASTS), CircuitAdmission::Probe);
    }

    #[test]
    fn an_answer_to_an_attempt_under_way_closes_it() {
        assert_eq!(opened().on_result(ReceiverHealth::Up, at(1)), Some(CircuitTransition::Closed));
    }
}
