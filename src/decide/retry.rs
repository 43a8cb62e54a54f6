//! When to retry: exponential backoff with full jitter, so that what failed together is not retried together.

use super::time::Duration;

/// How often, and how soon, to retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPolicy {
    /// The number of attempts that may fail.
    pub attempts: u32,
    /// Maximum delay before the second attempt; doubles from there.
    pub first: Duration,
    /// Upper limit of the delay.
    pub longest: Duration,
}

/// A random fraction: 0 is none, `u32::MAX` nearly all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter(pub u32);

impl Jitter {
    /// This fraction of a length.
    pub fn share(self, length: Duration) -> Duration {
        length.mul_f64(f64::from(self.0) / (f64::from(u32::MAX) + 1.0))
    }
}

/// The delay after the `count`th failure (or doubt): a random fraction of a length that doubles.
pub fn delay(retry: &RetryPolicy, count: u32, jitter: Jitter) -> Duration {
    let doubled = retry.first.saturating_mul(1_u32.checked_shl(count.saturating_sub(1)).unwrap_or(u32::MAX));
    jitter.share(doubled.min(retry.longest))
}

/// From this failure on the delay no longer grows: a `u32` cannot be doubled further.
const GROWN: u32 = u32::BITS + 1;

/// The longest time between the first and the last of this many tries, if each takes at most `each`.
pub fn horizon(retry: &RetryPolicy, tries: u32, each: Duration) -> Duration {
    let longest = |count| delay(retry, count, Jitter(u32::MAX)).saturating_add(each);
    let growing = (1..tries.min(GROWN)).map(longest).fold(each, Duration::saturating_add);
    growing.saturating_add(longest(GROWN).saturating_mul(tries.saturating_sub(GROWN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(count: u32, jitter: u32, expected: Duration) {
        let retry = RetryPolicy { attempts: 9, first: Duration::from_secs(10), longest: Duration::from_mins(1) };
        let got = delay(&retry, count, Jitter(jitter));
        assert!(got.abs_diff(expected) < Duration::from_millis(1), "{got:?} is not {expected:?}");
    }

    #[test]
    fn the_wait_is_a_share_of_a_doubling_length_up_to_the_longest() {
        check(1, u32::MAX, Duration::from_secs(10));
        check(2, u32::MAX, Duration::from_secs(20));
        check(3, u32::MAX / 2, Duration::from_secs(20));
        check(4, u32::MAX, Duration::from_mins(1));
        check(400, u32::MAX, Duration::from_mins(1));
        check(3, 0, Duration::ZERO);
    }

    #[test]
    fn the_horizon_is_the_sum_of_the_longest_waits_and_of_the_tries() {
        let retry = RetryPolicy { attempts: 4, first: Duration::from_secs(10), longest: Duration::from_secs(30) };
        let got = horizon(&retry, 4, Duration::from_secs(1));
        assert!(got.abs_diff(Duration::from_secs(10 + 20 + 30 + 4)) < Duration::from_millis(1), "{got:?}");
    }

    #[test]
    fn the_horizon_of_any_number_of_tries_is_known_at_once() {
        let (each, long) = (Duration::from_millis(1), Duration::from_hours(24 * 365));
        for (first, longest) in [(Duration::from_secs(10), Duration::from_mins(1)), (Duration::from_nanos(1), long)] {
            let retry = RetryPolicy { attempts: 1, first, longest };
            for tries in [1, 2, 3, 31, 32, 33, 34, 35, 1000, 1_000_000_000, u32::MAX - 1] {
                let one_more = horizon(&retry, tries, each) + delay(&retry, tries, Jitter(u32::MAX)) + each;
                assert_eq!(horizon(&retry, tries + 1, each), one_more, "{retry:?}, {tries}");
            }
        }
        let retry = RetryPolicy { attempts: 1, first: Duration::MAX, longest: Duration::MAX };
        assert_eq!(horizon(&retry, u32::MAX, Duration::MAX), Duration::MAX);
    }
}
