//! Delays the response to a wrong token, longer with each failure from the same address. Pure: time is an argument,
//! counted from an arbitrary fixed origin.
//!
//! Only refusals are delayed. A right token is answered at once, whatever came from its address before: behind a proxy
//! on this machine all clients have one address, and none may lock out the others.

use super::limits;
use super::time::Duration;
use std::collections::HashMap;
use std::hash::Hash;

/// Delay of an address's first refusal; it doubles with each further one.
const DELAY_FIRST: Duration = Duration::from_millis(20);
/// An address that sent no wrong token for this long starts again at the first delay.
const FORGET_AFTER: Duration = Duration::from_mins(1);
/// Minimum time between two log lines about one address.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Maximum number of log lines per second, for all addresses together.
const LINES_PER_SECOND: u32 = 5;

/// Recent refusals, by address.
#[derive(Debug)]
pub struct AuthThrottle<K> {
    addresses: HashMap<K, ThrottledAddress>,
    waiting: usize,
    lines: (Duration, u32),
}

#[derive(Debug, Default)]
struct ThrottledAddress {
    refused: u32,
    last: Duration,
    waiting: usize,
    said: Option<Duration>,
    unsaid: u64,
}

/// How to handle one refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThrottleDecision {
    /// How long the response is delayed; it counts as waiting until [`AuthThrottle::release`]. `None`: too many are
    /// waiting, and the connection is closed without a response.
    pub delay: Option<Duration>,
    /// The number of refusals of this address to log now; `None`: log nothing.
    pub say: Option<u64>,
}

impl<K> Default for AuthThrottle<K> {
    fn default() -> Self {
        Self { addresses: HashMap::new(), waiting: 0, lines: (Duration::ZERO, 0) }
    }
}

impl<K: Hash + Eq + Clone> AuthThrottle<K> {
    /// Records a wrong token from this address.
    pub fn record_failure(&mut self, from: &K, now: Duration) -> ThrottleDecision {
        if !self.addresses.contains_key(from) {
            self.make_room(now);
        }
        let address = self.addresses.entry(from.clone()).or_default();
        if now.saturating_sub(address.last) >= FORGET_AFTER {
            address.refused = 0;
        }
        let doubled = DELAY_FIRST.saturating_mul(1 << address.refused.min(16));
        address.refused += 1;
        address.last = now;
        address.unsaid += 1;
        let say = if address.said.is_none_or(|said| now.saturating_sub(said) >= SAY_EVERY) {
            let (since, lines) = &mut self.lines;
            if now.saturating_sub(*since) >= Duration::from_secs(1) {
                (*since, *lines) = (now, 0);
            }
            *lines += 1;
            (*lines <= LINES_PER_SECOND).then(|| {
                address.said = Some(now);
                std::mem::take(&mut address.unsaid)
            })
        } else {
            None
        };
        let room =
            address.waiting < limits::REFUSALS_WAITING_PER_ADDRESS && self.waiting < limits::REFUSALS_WAITING_MAX;
        let delay = room.then(|| {
            address.waiting += 1;
            self.waiting += 1;
            doubled.min(limits::REFUSAL_DELAY_MAX)
        });
        ThrottleDecision { delay, say }
    }

    /// Ends the wait of a delayed refusal: it was sent, or its client has gone.
    pub fn release(&mut self, from: &K) {
        if let Some(address) = self.addresses.get_mut(from) {
            address.waiting = address.waiting.saturating_sub(1);
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    /// Forgets addresses when there are too many: first those whose time is over, then the one that was quiet longest.
    /// An address with waiting refusals stays.
    fn make_room(&mut self, now: Duration) {
        if self.addresses.len() < limits::REFUSED_ADDRESSES_MAX {
            return;
        }
        self.addresses.retain(|_, address| address.waiting > 0 || now.saturating_sub(address.last) < FORGET_AFTER);
        if self.addresses.len() < limits::REFUSED_ADDRESSES_MAX {
            return;
        }
        let quiet = self.addresses.iter().filter(|(_, address)| address.waiting == 0);
        let oldest = quiet.min_by_key(|(_, address)| address.last).map(|(from, _)| from.clone());
        oldest.map(|from| self.addresses.remove(&from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_delay_doubles_up_to_its_limit_and_begins_anew_after_a_minute() {
        let mut throttle = AuthThrottle::default();
        let delays: Vec<_> = (0..9)
            .map(|_| {
                let delay = throttle.record_failure(&"a", at(0)).delay.expect("few wait");
                throttle.release(&"a");
                delay.as_millis()
            })
            .collect();
        assert_eq!(delays, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]);
        assert_eq!(throttle.record_failure(&"b", at(0)).delay, Some(at(20)), "each address has its own delay");
        assert_eq!(throttle.record_failure(&"a", at(59_000)).delay, Some(at(2000)));
        assert_eq!(throttle.record_failure(&"a", at(120_000)).delay, Some(at(20)));
    }

    #[test]
    fn waiting_refusals_are_limited_per_address_and_in_total() {
        let mut throttle = AuthThrottle::default();
        for _ in 0..limits::REFUSALS_WAITING_PER_ADDRESS {
            assert!(throttle.record_failure(&0, at(0)).delay.is_some());
        }
        assert_eq!(throttle.record_failure(&0, at(0)).delay, None);
        throttle.release(&0);
        assert!(throttle.record_failure(&0, at(0)).delay.is_some());
        let waiting = (1..1000).filter(|from| throttle.record_failure(from, at(0)).delay.is_some()).count();
        assert_eq!(waiting + limits::REFUSALS_WAITING_PER_ADDRESS, limits::REFUSALS_WAITING_MAX);
    }

    #[test]
    fn refusals_are_logged_at_once_then_counted_and_never_flood_the_log() {
        let mut throttle = AuthThrottle::default();
        assert_eq!(throttle.record_failure(&0, at(0)).say, Some(1));
        assert!((0..500).all(|n| throttle.record_failure(&0, at(n)).say.is_none()));
        assert_eq!(throttle.record_failure(&0, at(10_000)).say, Some(501));
        let lines = (1..1000).filter(|from| throttle.record_failure(from, at(20_000)).say.is_some()).count();
        assert_eq!(lines, 5);
    }

    #[test]
    fn the_number_of_remembered_addresses_is_limited() {
        let mut throttle = AuthThrottle::default();
        for from in 0..2 * limits::REFUSED_ADDRESSES_MAX as u64 {
            if throttle.record_failure(&from, at(from)).delay.is_some() {
                throttle.release(&from);
            }
        }
        assert_eq!(throttle.addresses.len(), limits::REFUSED_ADDRESSES_MAX);
    }
}
