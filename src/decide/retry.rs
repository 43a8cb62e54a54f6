//! When to try again: full jitter, so that what failed together does not come back together.

use super::time::Duration;

/// How often, and how fast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// How many attempts may fail.
    pub attempts: u32,
    /// The longest wait before the second attempt; it doubles from there.
    pub first: Duration,
    /// The longest wait of all.
    pub longest: Duration,
}

/// A random share: 0 is none of it, `u32::MAX` nearly all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter(pub u32);

/// How long to wait after the `count`th failure (or doubt): a random share of a doubling length.
pub fn delay(retry: &Retry, count: u32, jitter: Jitter) -> Duration {
    let doubled = retry.first.saturating_mul(1_u32.checked_shl(count.saturating_sub(1)).unwrap_or(u32::MAX));
    doubled.min(retry.longest).mul_f64(f64::from(jitter.0) / (f64::from(u32::MAX) + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(count: u32, jitter: u32, expected: Duration) {
        let retry = Retry { attempts: 9, first: Duration::from_secs(10), longest: Duration::from_mins(1) };
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
}
