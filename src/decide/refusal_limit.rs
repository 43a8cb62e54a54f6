//! Limits what one address can cost by deliveries that are refused. Pure: time is an argument, counted from an arbitrary
//! fixed origin.
//!
//! Only refusals count. A delivery that verifies costs its address nothing and is never held up, whatever came from the
//! same address before: behind one address there may be an attacker and a sender that does not come again.

use super::limits;
use super::time::Duration;
use std::collections::HashMap;
use std::hash::Hash;

/// A number of refusals in a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusalRate {
    /// How many; also how many may come at once.
    pub count: u32,
    /// In which time.
    pub within: Duration,
}

/// How much of its rate each address has used.
#[derive(Debug)]
pub struct RefusalLimiter<K> {
    rate: RefusalRate,
    addresses: HashMap<K, SpentAllowance>,
}

/// The refusals of an address that count now, at a time; they become fewer at the rate.
#[derive(Clone, Copy, Debug)]
struct SpentAllowance {
    spent: f64,
    at: Duration,
}

impl<K: Hash + Eq + Clone> RefusalLimiter<K> {
    /// A limiter with this rate.
    pub fn new(rate: RefusalRate) -> Self {
        Self { rate, addresses: HashMap::new() }
    }

    fn spent(&self, known: SpentAllowance, now: Duration) -> f64 {
        let passed = now.saturating_sub(known.at).as_secs_f64();
        let per_second = f64::from(self.rate.count) / self.rate.within.as_secs_f64();
        (known.spent - passed * per_second).max(0.0)
    }

    /// Until when this address is over its rate; `None`: it is not.
    pub fn exceeded_for(&self, from: &K, now: Duration) -> Option<Duration> {
        let spent = self.spent(*self.addresses.get(from)?, now);
        let beyond = spent + 1.0 - f64::from(self.rate.count);
        let per_refusal = self.rate.within.as_secs_f64() / f64::from(self.rate.count);
        (beyond > 0.0).then(|| Duration::from_secs_f64(beyond * per_refusal))
    }

    /// Counts a refusal. One beyond the rate costs nothing more: an address is let go as soon as it is quiet.
    pub fn count(&mut self, from: &K, now: Duration) {
        if !self.addresses.contains_key(from) && self.addresses.len() >= limits::REFUSED_ADDRESSES_MAX {
            self.make_room(now);
        }
        let before = self.addresses.get(from).map_or(0.0, |known| self.spent(*known, now));
        let spent = (before + 1.0).min(f64::from(self.rate.count));
        self.addresses.insert(from.clone(), SpentAllowance { spent, at: now });
    }

    /// Forgets the addresses that have used nothing of their rate; if there is none, the one that was quiet longest.
    fn make_room(&mut self, now: Duration) {
        let free: Vec<K> = self
            .addresses
            .iter()
            .filter(|(_, known)| self.spent(**known, now) <= 0.0)
            .map(|(from, _)| from.clone())
            .collect();
        if free.is_empty() {
            let oldest = self.addresses.iter().min_by_key(|(_, known)| known.at).map(|(from, _)| from.clone());
            oldest.map(|from| self.addresses.remove(&from));
        }
        for from in free {
            self.addresses.remove(&from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: RefusalRate = RefusalRate { count: 10, within: Duration::from_mins(1) };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_address_is_over_its_rate_after_as_many_refusals_and_until_one_has_expired() {
        let mut limiter = RefusalLimiter::new(RATE);
        for n in 0..10 {
            assert_eq!(limiter.exceeded_for(&"a", at(0)), None, "{n}");
            limiter.count(&"a", at(0));
        }
        assert_eq!(limiter.exceeded_for(&"a", at(0)), Some(at(6)));
        assert_eq!(limiter.exceeded_for(&"b", at(0)), None, "each address has its own");
        for _ in 0..1_000 {
            limiter.count(&"a", at(1)); // what is refused beyond the rate is not held against it
        }
        assert!(limiter.exceeded_for(&"a", at(6)).is_some_and(|wait| wait <= at(6)));
        assert_eq!(limiter.exceeded_for(&"a", at(8)), None);
        limiter.count(&"a", at(8));
        assert!(limiter.exceeded_for(&"a", at(8)).is_some());
        assert_eq!(limiter.exceeded_for(&"a", at(1_000)), None);
    }

    #[test]
    fn the_number_of_remembered_addresses_is_limited() {
        let mut limiter = RefusalLimiter::new(RATE);
        for from in 0..2 * limits::REFUSED_ADDRESSES_MAX as u64 {
            limiter.count(&from, Duration::from_millis(from));
        }
        assert!(limiter.addresses.len() <= limits::REFUSED_ADDRESSES_MAX);
        let last = 2 * limits::REFUSED_ADDRESSES_MAX as u64 - 1;
        assert!(limiter.addresses.contains_key(&last));
    }
}
