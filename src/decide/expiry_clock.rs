//! The time by which events expire.
//!
//! It follows a clock that people and time services can set: this machine's, or the database server's. A clock that is
//! set forward by mistake must not make a store forget, so a jump forward of more than an hour counts only once it has
//! lasted for ten minutes by a clock that cannot be set, or once an operator confirms it.
//!
//! ```text
//!                 ┌────── lasted for ten minutes, or was confirmed ─────────┐
//!                 ▼                                                         │
//!   start ─▶ the clock counts ── jump forward of more than an hour ─▶ the time before the jump counts
//!                 ▲                                                         │
//!                 └────────────────────── set back ─────────────────────────┘
//! ```
//!
//! A clock that is set back counts at once, and the trusted time goes back with it: a time that was reached only under
//! a clock that was then set back proves nothing.

use super::limits;
use super::time::{Duration, Timestamp};

/// A point in time by which events expire: never the store's own clock, which does not run backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ExpiryTime(pub Timestamp);

impl ExpiryTime {
    /// This point in time, less `length`.
    pub fn minus(self, length: Duration) -> Timestamp {
        self.0 - length
    }
}

/// The store's clock and the time of expiry, read together for one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreTimes {
    /// The store's clock.
    pub now: Timestamp,
    /// The time by which events expire.
    pub expiry: ExpiryTime,
}

/// Two clocks, read at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    /// The clock that can be set.
    pub wall: Timestamp,
    /// A clock that cannot be set: time since an arbitrary origin, suspend included.
    pub uptime: Duration,
}

impl ClockReading {
    /// How far the wall clock is ahead of the uptime: this changes only when the wall clock is set.
    fn offset(self) -> i64 {
        self.wall.0.saturating_sub(micros(self.uptime))
    }
}

fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

/// A jump of the clock that does not count yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingClockJump {
    /// What the clock showed when it was first seen to have jumped.
    pub since: Timestamp,
    /// How far it is ahead of the time by which events expire.
    pub jump: Duration,
    /// How much longer it has to last.
    pub left: Duration,
}

impl PendingClockJump {
    /// How long it has lasted.
    pub fn held_for(&self) -> Duration {
        limits::CLOCK_JUMP_STANDS_FOR.saturating_sub(self.left)
    }
}

/// The time by which events expire, and the clock jump that is not counted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiryStatus {
    /// The time.
    pub time: ExpiryTime,
    /// A jump of the clock that does not count yet.
    pub waiting: Option<PendingClockJump>,
}

/// The offset of the wall clock from the uptime, and the reading at which it was first seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ClockOffset {
    offset: i64,
    since: ClockReading,
}

/// Computes the time by which events expire from readings of the clocks and from the time that the store last saw.
#[derive(Clone, Debug)]
pub struct ExpiryClock {
    /// The trusted offset: it has lasted long enough, or came from the store or an operator.
    believed: i64,
    /// The offset in force: at most an hour ahead of the trusted one.
    counts: i64,
    /// The clock's present offset, while it is ahead of the trusted one.
    standing: Option<ClockOffset>,
    last: ClockReading,
}

impl ExpiryClock {
    /// Starts at the time that the store last saw.
    pub fn begin(last_seen: Timestamp, reading: ClockReading) -> Self {
        let offset = ClockReading { wall: last_seen, ..reading }.offset();
        let mut clock = Self { believed: offset, counts: offset, standing: None, last: reading };
        clock.observe(reading);
        clock
    }

    /// Takes in a reading of the clocks.
    pub fn observe(&mut self, reading: ClockReading) {
        self.last = reading;
        let offset = reading.offset();
        if offset <= self.believed {
            self.trust_offset(offset);
            return;
        }
        let stays =
            |standing: &ClockOffset| offset.abs_diff(standing.offset) <= micros(limits::CLOCK_STANDS).unsigned_abs();
        let standing = self.standing.filter(stays).unwrap_or(ClockOffset { offset, since: reading });
        if reading.uptime.saturating_sub(standing.since.uptime) >= limits::CLOCK_JUMP_STANDS_FOR {
            self.trust_offset(offset);
            return;
        }
        self.standing = Some(standing);
        if offset <= self.believed.saturating_add(micros(limits::CLOCK_JUMP)) {
            self.counts = offset;
        }
    }

    fn trust_offset(&mut self, offset: i64) {
        (self.believed, self.counts, self.standing) = (offset, offset, None);
    }

    /// An operator confirms that the clock is right.
    pub fn confirm(&mut self, reading: ClockReading) {
        self.last = reading;
        self.trust_offset(reading.offset());
    }

    /// Takes in a time that another node has seen and trusted. It ends a wait; it is trusted only if this node's clock
    /// shows as much.
    pub fn adopt(&mut self, seen: Timestamp, reading: ClockReading) {
        let offset = ClockReading { wall: seen, ..reading }.offset();
        if self.expiry(reading).waiting.is_some() && offset > self.believed {
            self.believed = offset;
        }
        self.observe(reading);
    }

    /// The time by which events expire, as of this reading.
    pub fn expiry(&self, reading: ClockReading) -> ExpiryStatus {
        let time = ExpiryTime(Timestamp(self.counts.saturating_add(micros(reading.uptime))));
        let shown = self.last.offset();
        let jumped = shown > self.believed.saturating_add(micros(limits::CLOCK_JUMP));
        let waiting = self.standing.filter(|_| jumped).map(|standing| {
            let stood = reading.uptime.saturating_sub(standing.since.uptime);
            PendingClockJump {
                since: standing.since.wall,
                jump: Timestamp(shown).since(Timestamp(self.counts)),
                left: limits::CLOCK_JUMP_STANDS_FOR.saturating_sub(stood),
            }
        });
        ExpiryStatus { time, waiting }
    }

    /// The time that the store is to remember as last seen, given what it remembers now; `None`: nothing to write.
    /// Nothing is written while a jump does not count, or if the difference is small; a clock that was set back is
    /// written at once. A store that remembers nothing gets a time at once, even the time before a jump: otherwise the
    /// first event that it takes under a wrong clock would set that time.
    pub fn to_write(&self, stored: Option<Timestamp>, reading: ClockReading) -> Option<Timestamp> {
        let ExpiryStatus { time: ExpiryTime(time), waiting } = self.expiry(reading);
        let differs = stored.is_none_or(|stored| {
            time.since(stored) >= limits::CLOCK_WRITTEN_EVERY || stored.since(time) >= limits::CLOCK_STANDS
        });
        ((waiting.is_none() || stored.is_none()) && differs).then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    /// An arbitrary day.
    const T: i64 = 1_750_000_000;

    fn at(wall: i64, uptime: i64) -> ClockReading {
        ClockReading { wall: Timestamp(wall * 1_000_000), uptime: Duration::from_secs(uptime.unsigned_abs()) }
    }

    /// Checks readings, each with the time by which events expire then, and whether a jump is pending.
    fn check(last_seen: i64, readings: &[(i64, i64, i64, bool)]) {
        let (wall, uptime, ..) = readings[0];
        let mut clock = ExpiryClock::begin(at(last_seen, 0).wall, at(wall, uptime));
        for (n, (wall, uptime, time, waits)) in readings.iter().copied().enumerate() {
            let reading = at(wall, uptime);
            clock.observe(reading);
            let expiry = clock.expiry(reading);
            assert_eq!(expiry.time.0.0 / 1_000_000 - T, time - T, "reading {n} of {readings:?}");
            assert_eq!(expiry.waiting.is_some(), waits, "reading {n} of {readings:?}");
        }
    }

    #[test]
    fn a_jump_of_more_than_an_hour_counts_once_it_has_lasted_for_ten_minutes() {
        let ahead = T + 31 * DAY;
        check(
            T,
            &[
                (T, 0, T, false),
                (T + 5, 5, T + 5, false),
                (ahead + 6, 6, T + 6, true),
                (ahead + 605, 605, T + 605, true),
                (ahead + 606, 606, ahead + 606, false),
                (ahead + 607, 607, ahead + 607, false),
            ],
        );
    }

    #[test]
    fn a_node_that_starts_under_a_clock_that_is_ahead_of_what_the_store_last_saw_waits_too() {
        check(T, &[(T + 31 * DAY, 0, T, true), (T + 31 * DAY + 4, 4, T + 4, true)]);
        check(T, &[(T + HOUR + 1, 0, T, true), (T + HOUR + 601, 600, T + HOUR + 601, false)]);
    }

    #[test]
    fn up_to_an_hour_counts_at_once() {
        check(T, &[(T + HOUR, 0, T + HOUR, false), (T + HOUR + 1, 1, T + HOUR + 1, false)]);
        check(T, &[(T, 0, T, false), (T + 50 * MINUTE, 1, T + 50 * MINUTE, false)]);
    }

    #[test]
    fn time_that_passes_is_no_jump_however_rarely_the_clock_is_read() {
        check(T, &[(T, 0, T, false), (T + 400 * DAY, 400 * DAY, T + 400 * DAY, false)]);
    }

    #[test]
    fn a_clock_that_is_set_back_counts_at_once_and_what_it_showed_before_proves_nothing() {
        let ahead = T + 31 * DAY;
        // It lasted long enough, was set back, and jumps again: the second jump is pending again.
        check(
            T,
            &[
                (ahead, 0, T, true),
                (ahead + 600, 600, ahead + 600, false),
                (T + 601, 601, T + 601, false),
                (ahead + 602, 602, T + 602, true),
            ],
        );
        check(T, &[(ahead, 0, T, true), (T + 300, 300, T + 300, false), (ahead + 700, 700, T + 700, true)]);
        check(T, &[(T - 20 * 365 * DAY, 0, T - 20 * 365 * DAY, false), (T + 5, 5, T - 20 * 365 * DAY + 5, true)]);
    }

    #[test]
    fn a_clock_that_is_set_again_during_the_wait_starts_the_wait_again() {
        check(
            T,
            &[
                (T + 31 * DAY, 0, T, true),
                (T + 62 * DAY, 500, T + 500, true),
                (T + 62 * DAY + 200, 700, T + 700, true),
                (T + 62 * DAY + 600, 1_100, T + 62 * DAY + 600, false),
            ],
        );
        check(
            T,
            &[(T + 31 * DAY, 0, T, true), (T + 2 * DAY, 599, T + 599, true), (T + 2 * DAY + 9, 608, T + 608, true)],
        );
    }

    #[test]
    fn steps_of_less_than_an_hour_add_up_only_as_fast_as_each_has_lasted() {
        let step = 50 * MINUTE;
        check(
            T,
            &[
                (T + step, 1, T + step, false),
                (T + 2 * step, 2, T + step + 1, true),
                (T + 3 * step, 3, T + step + 2, true),
            ],
        );
        // Each lasted for ten minutes before the next.
        check(
            T,
            &[
                (T + step, 1, T + step, false),
                (T + step + 600, 601, T + step + 600, false),
                (T + 2 * step + 600, 602, T + 2 * step + 600, false),
            ],
        );
    }

    #[test]
    fn a_jump_that_an_operator_confirms_counts_at_once() {
        let reading = at(T + 31 * DAY, 4);
        let mut clock = ExpiryClock::begin(at(T, 0).wall, reading);
        assert_eq!(clock.to_write(Some(at(T, 0).wall), reading), None, "a jump that does not count is not remembered");
        assert_eq!(clock.to_write(None, reading), Some(at(T, 0).wall), "but what was before it is");
        clock.confirm(reading);
        assert_eq!(clock.expiry(reading), ExpiryStatus { time: ExpiryTime(reading.wall), waiting: None });
        assert_eq!(clock.to_write(Some(at(T, 0).wall), reading), Some(reading.wall));
    }

    #[test]
    fn a_time_trusted_by_another_node_ends_a_wait_and_does_nothing_else() {
        let (ahead, seen) = (at(T + 31 * DAY, 4), at(T + 31 * DAY - 30, 0).wall);
        let mut waits = ExpiryClock::begin(at(T, 0).wall, ahead);
        waits.adopt(seen, ahead);
        assert_eq!(waits.expiry(ahead), ExpiryStatus { time: ExpiryTime(ahead.wall), waiting: None });
        // A time left in the store from before the clock was set back is not trusted.
        let right = at(T, 4);
        let mut follows = ExpiryClock::begin(at(T, 0).wall, right);
        follows.adopt(seen, right);
        follows.observe(at(T + 31 * DAY, 5));
        assert!(follows.expiry(at(T + 31 * DAY, 5)).waiting.is_some());
    }

    #[test]
    fn what_was_last_seen_is_written_once_a_minute_and_at_once_where_the_clock_was_set_back() {
        let reading = at(T, 1);
        let clock = ExpiryClock::begin(reading.wall, reading);
        let check = |stored: Option<i64>, writes: bool| {
            let stored = stored.map(|stored| at(stored, 0).wall);
            assert_eq!(clock.to_write(stored, reading), writes.then_some(reading.wall), "{stored:?}");
        };
        check(None, true);
        check(Some(T - 59), false);
        check(Some(T - 60), true);
        check(Some(T + 5), false);
        check(Some(T + 2 * HOUR), true);
    }

    proptest! {
        /// Whatever the clock is set to: the time in force is never more than an hour ahead of the time that really
        /// passed since the clock was last trusted, unless the setting lasted for ten minutes; it is never ahead of the
        /// clock itself; and a clock that is right in the end, and was never wrong for ten minutes, leaves everything
        /// as if it had always been right.
        #[test]
        fn a_clock_that_is_never_wrong_for_ten_minutes_moves_nothing_by_more_than_an_hour(
            steps in proptest::collection::vec((0i64..300, -40 * DAY..40 * DAY, any::<bool>()), 1..40)
        ) {
            let mut uptime = 0;
            let mut clock = ExpiryClock::begin(at(T, 0).wall, at(T, 0));
            for (passed, wrong, right_after) in steps {
                uptime += passed;
                // A clock that is set back is trusted at once, so only forward settings are wrong here.
                let reading = at(T + uptime + wrong.abs(), uptime);
                clock.observe(reading);
                let time = clock.expiry(reading).time.0;
                prop_assert!(time <= at(T + uptime + HOUR, 0).wall && time <= reading.wall);
                if right_after || passed > 200 {
                    clock.observe(at(T + uptime, uptime));
                }
                uptime += 1;
                clock.observe(at(T + uptime, uptime));
            }
            let right = at(T + uptime, uptime);
            prop_assert_eq!(clock.expiry(right), ExpiryStatus { time: ExpiryTime(right.wall), waiting: None });
        }

        /// Without a jump the clock itself counts, however it drifts and however rarely it is read.
        #[test]
        fn without_a_jump_the_clock_itself_counts(
            steps in proptest::collection::vec((0i64..10 * DAY, -30i64..30), 1..60)
        ) {
            let (mut uptime, mut wall) = (0, T);
            let mut clock = ExpiryClock::begin(at(T, 0).wall, at(T, 0));
            for (passed, drift) in steps {
                uptime += passed;
                wall += passed + if passed > 600 { drift } else { 0 };
                let reading = at(wall, uptime);
                clock.observe(reading);
                prop_assert_eq!(clock.expiry(reading), ExpiryStatus { time: ExpiryTime(reading.wall), waiting: None });
            }
        }
    }
}
