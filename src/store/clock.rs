//! The clocks of a store.
//!
//! [`StoreClock::now`] orders events and ends leases, and never runs backwards. For a store in this process it is the
//! wall clock, and it moves on even while that is set back. For a store behind a server it is the server's time as last
//! reported, brought forward by what the store's nodes agreed on ([`store_clock`](crate::decide::store_clock)).
//!
//! [`StoreClock::expiry`] is the time by which events expire. It follows the wall clock or the server's wherever it is
//! set, but not into a jump ([`expiry_clock`](crate::decide::expiry_clock)). [`StoreClock::wall_time`] is the wall
//! clock itself, by which the age of a signature is measured.

use super::StoreTimes;
use crate::decide::expiry_clock::{ClockReading, ExpiryClock, ExpiryStatus, ExpiryTime};
use crate::decide::limits;
use crate::decide::store_clock::{AgreedClock, NodeStoreClock, ServerTime};
use crate::decide::time::{Duration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The clock of a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StoreClock {
    kind: StoreClockSource,
    expiry: Arc<Mutex<ExpiryClockState>>,
}

/// Where a store's clock gets its time: a server, this machine, or a test.
#[derive(Clone, Debug)]
enum StoreClockSource {
    Server(Arc<Mutex<ServerClockState>>),
    Wall(Arc<Mutex<WallClockState>>),
    Manual(Arc<Mutex<ManualClockState>>),
}

#[derive(Clone, Copy, Debug)]
struct WallClockState {
    shown: Timestamp,
    at: Instant,
}

/// A server's clock, as this process knows it.
#[derive(Clone, Copy, Debug)]
struct ServerClockState {
    clock: NodeStoreClock,
    /// The server's last reported time, even if it had reported a later one before.
    said: ClockReading,
    /// When an agreement was last proposed to the other nodes.
    proposed: Option<Duration>,
}

/// When the server was asked for its time, by this machine's uptime.
#[derive(Clone, Copy, Debug)]
pub struct ClockRequestTime(Duration);

/// A clock that is moved by hand, for tests.
#[derive(Clone, Copy, Debug)]
struct ManualClockState {
    shown: Timestamp,
    reading: ClockReading,
    trust: ManualClockTrust,
}

/// Whether a manual clock counts as right when a store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ManualClockTrust {
    /// It is right, even if the store last saw another time.
    Right,
    /// It may be wrong.
    Doubted,
}

/// The expiry clock, from its first use, and what was written of it.
#[derive(Debug, Default)]
struct ExpiryClockState {
    clock: Option<ExpiryClock>,
    written: Option<Timestamp>,
    looked_at: Option<Duration>,
}

impl ExpiryClockState {
    /// The clock after this reading.
    fn observed(&mut self, reading: ClockReading) -> &mut ExpiryClock {
        let clock = self.clock.get_or_insert_with(|| ExpiryClock::begin(reading.wall, reading));
        clock.observe(reading);
        clock
    }
}

impl StoreClock {
    fn of(kind: StoreClockSource) -> Self {
        Self { kind, expiry: Arc::default() }
    }

    /// A server's clock, set by [`StoreClock::observe_server_time`]; between two readings it advances by this machine's
    /// uptime. The wall clock of this machine does not count.
    pub fn server() -> Self {
        let said = ClockReading { wall: Timestamp::default(), uptime: uptime() };
        Self::of(StoreClockSource::Server(Arc::new(Mutex::new(ServerClockState {
            clock: NodeStoreClock::default(),
            said,
            proposed: None,
        }))))
    }

    /// Notes when a server is asked for its time: now.
    pub fn asks() -> ClockRequestTime {
        ClockRequestTime(uptime())
    }

    /// Takes the server's time and what the nodes have agreed on, and returns the store's time. Any other kind of clock
    /// ignores them.
    pub fn observe_server_time(
        &self,
        ClockRequestTime(asked): ClockRequestTime,
        time: Timestamp,
        agreed: AgreedClock,
    ) -> Timestamp {
        let StoreClockSource::Server(told) = &self.kind else { return self.now() };
        let said = ServerTime { time, asked, answered: uptime() };
        let (now, reading) = {
            let mut told = lock(told);
            let now = told.clock.tell(said, agreed);
            // A response to a request made before the last response came may be older than that one.
            if told.said.uptime <= asked {
                told.said = ClockReading { wall: time, uptime: said.answered };
            }
            (now, told.said)
        };
        if let Some(clock) = &mut lock(&self.expiry).clock {
            clock.observe(reading);
        }
        now
    }

    /// When a lease written to end at `until` really ends: later for a while after a server's clock was set forward.
    pub fn lease_end(&self, until: Timestamp) -> Timestamp {
        match &self.kind {
            StoreClockSource::Server(told) => lock(told).clock.lease_end(until, uptime()),
            StoreClockSource::Wall(_) | StoreClockSource::Manual(_) => until,
        }
    }

    /// The agreement to replace and the one to propose, at most once per interval.
    pub fn to_agree(&self) -> Option<(AgreedClock, AgreedClock)> {
        let StoreClockSource::Server(told) = &self.kind else { return None };
        let (mut told, uptime) = (lock(told), uptime());
        let due = told.proposed.is_none_or(|at| uptime.saturating_sub(at) >= limits::CLOCK_LOOK);
        let agree = told.clock.to_agree(uptime).filter(|_| due)?;
        told.proposed = Some(uptime);
        Some(agree)
    }

    /// Is the agreement of the nodes plausible to a node that has just started?
    pub fn is_settled(&self) -> bool {
        !matches!(&self.kind, StoreClockSource::Server(told) if !lock(told).clock.is_settled())
    }

    /// Has the server reported no time for this long?
    pub fn is_silent(&self, length: Duration) -> bool {
        let StoreClockSource::Server(told) = &self.kind else { return false };
        lock(told).clock.silent_for(uptime()).is_none_or(|silent| silent >= length)
    }

    /// The wall clock, starting at `floor` at least: the latest time in the store.
    pub fn wall(floor: Timestamp) -> Self {
        Self::of(StoreClockSource::Wall(Arc::new(Mutex::new(WallClockState { shown: floor, at: Instant::now() }))))
    }

    /// A clock that moves only by [`StoreClock::advance`] and [`StoreClock::set`], and counts as right.
    pub fn manual(start: Timestamp) -> Self {
        Self::by_hand(start, ManualClockTrust::Right)
    }

    /// The same, but in doubt when a store is opened that last saw another time.
    pub fn doubted(start: Timestamp) -> Self {
        Self::by_hand(start, ManualClockTrust::Doubted)
    }

    fn by_hand(start: Timestamp, trust: ManualClockTrust) -> Self {
        let reading = ClockReading { wall: start, uptime: Duration::ZERO };
        Self::of(StoreClockSource::Manual(Arc::new(Mutex::new(ManualClockState { shown: start, reading, trust }))))
    }

    /// The store's time. It never runs backwards.
    pub fn now(&self) -> Timestamp {
        match &self.kind {
            StoreClockSource::Server(told) => lock(told).clock.now(uptime()),
            StoreClockSource::Wall(reading) => {
                let mut last = lock(reading);
                let at = Instant::now();
                *last = read(*last, at, wall());
                last.shown
            }
            StoreClockSource::Manual(hand) => lock(hand).shown,
        }
    }

    /// This machine's wall clock, which may be set at any time.
    pub fn wall_time(&self) -> Timestamp {
        match &self.kind {
            StoreClockSource::Server(_) | StoreClockSource::Wall(_) => wall(),
            StoreClockSource::Manual(hand) => lock(hand).reading.wall,
        }
    }

    /// The wall clock or server's clock that expiry follows, with the uptime, which cannot be set.
    fn reading(&self) -> ClockReading {
        match &self.kind {
            StoreClockSource::Server(told) => {
                let (said, uptime) = (lock(told).said, uptime());
                ClockReading { wall: said.wall + uptime.saturating_sub(said.uptime), uptime }
            }
            StoreClockSource::Wall(_) => ClockReading { wall: wall(), uptime: uptime() },
            StoreClockSource::Manual(hand) => lock(hand).reading,
        }
    }

    /// Sets the time that the store last saw; if it did not record one, nothing in it is later than `newest`.
    pub fn last_seen(&self, seen: Option<Timestamp>, newest: Option<Timestamp>) {
        let reading = self.reading();
        let mut kept = lock(&self.expiry);
        kept.written = seen;
        let right = matches!(&self.kind, StoreClockSource::Manual(hand) if lock(hand).trust == ManualClockTrust::Right);
        if !right {
            kept.clock = Some(ExpiryClock::begin(seen.or(newest).unwrap_or(reading.wall), reading));
        }
    }

    /// The time by which events expire.
    pub fn expiry(&self) -> ExpiryStatus {
        let reading = self.reading();
        lock(&self.expiry).observed(reading).expiry(reading)
    }

    /// The store's time together with the expiry time.
    pub fn moment(&self) -> StoreTimes {
        StoreTimes { now: self.now(), expiry: self.expiry().time }
    }

    /// The expiry time if a jump of the clock counted at once.
    pub fn jumped(&self) -> ExpiryTime {
        ExpiryTime(self.reading().wall)
    }

    /// Accepts the clock as right, because an operator confirmed it.
    pub fn confirm(&self) {
        let reading = self.reading();
        lock(&self.expiry).observed(reading).confirm(reading);
    }

    /// The last-seen time recorded in the store and the one to replace it with, if they differ.
    pub fn to_write(&self) -> Option<(Option<Timestamp>, Timestamp)> {
        let reading = self.reading();
        let mut kept = lock(&self.expiry);
        let written = kept.written;
        kept.observed(reading).to_write(written, reading).map(|time| (written, time))
    }

    /// Notes that the store has recorded this time.
    pub fn written(&self, time: Timestamp) {
        lock(&self.expiry).written = Some(time);
    }

    /// Notes what the store has recorded, perhaps by another node.
    pub fn observe_last_seen(&self, seen: Option<Timestamp>) {
        let reading = self.reading();
        let mut kept = lock(&self.expiry);
        kept.written = seen;
        if let Some(seen) = seen {
            kept.observed(reading).adopt(seen, reading);
        }
    }

    /// Is it time to read the store's last-seen time? At most once per interval, and rarely while no jump is pending
    /// and nothing is to be written.
    pub fn is_to_be_looked_at(&self, every: Duration) -> bool {
        let waits = self.expiry().waiting.is_some();
        let writes = self.to_write().is_some();
        let uptime = self.reading().uptime;
        let mut kept = lock(&self.expiry);
        let due = kept.looked_at.is_none_or(|at| uptime.saturating_sub(at) >= every);
        let looks = due && (waits || writes);
        if looks {
            kept.looked_at = Some(uptime);
        }
        looks
    }

    /// Advances a manual clock; the wall clock advances on its own.
    pub fn advance(&self, by: Duration) {
        if let StoreClockSource::Manual(hand) = &self.kind {
            self.expiry(); // so that a later `set` counts as a jump
            let mut hand = lock(hand);
            let reading = ClockReading { wall: hand.reading.wall + by, uptime: hand.reading.uptime + by };
            *hand = ManualClockState { shown: (hand.shown + by).max(reading.wall), reading, ..*hand };
        }
    }

    /// Sets a manual clock without any uptime passing.
    pub fn set(&self, wall: Timestamp) {
        if let StoreClockSource::Manual(hand) = &self.kind {
            self.expiry();
            let mut hand = lock(hand);
            *hand = ManualClockState {
                shown: hand.shown.max(wall),
                reading: ClockReading { wall, ..hand.reading },
                ..*hand
            };
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(last: WallClockState, at: Instant, wall: Timestamp) -> WallClockState {
    let moved_on = last.shown + at.saturating_duration_since(last.at);
    WallClockState { shown: moved_on.max(wall), at }
}

#[expect(clippy::disallowed_methods, reason = "this is the store's clock")]
pub(super) fn wall() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// How long this machine has been up, including suspend. It cannot be set.
fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wall: i64, elapsed: u64, expected: i64) {
        let at = Instant::now();
        let last = WallClockState { shown: Timestamp(1_000), at };
        assert_eq!(read(last, at + Duration::from_micros(elapsed), Timestamp(wall)).shown, Timestamp(expected));
    }

    #[test]
    fn the_clock_follows_the_wall_clock_forwards_and_moves_on_when_that_is_set_back() {
        check(1_500, 100, 1_500);
        check(1_050, 100, 1_100);
        check(-9_000, 100, 1_100);
    }

    #[test]
    fn the_clock_starts_at_its_floor_and_never_shows_less() {
        let floor = wall() + Duration::from_hours(1);
        let clock = StoreClock::wall(floor);
        let (first, second) = (clock.now(), clock.now());
        assert!(floor <= first && first <= second);
    }

    /// The server reports this time at once, and nothing was agreed on.
    fn told(clock: &StoreClock, time: Timestamp) -> Timestamp {
        clock.observe_server_time(StoreClock::asks(), time, AgreedClock::default())
    }

    #[test]
    fn a_server_clock_shows_the_reported_time_and_never_runs_backwards() {
        let clock = StoreClock::server();
        assert!(clock.is_silent(Duration::ZERO) && clock.is_settled());
        let late = Timestamp(9_000_000_000_000_000);
        let first = told(&clock, late);
        assert!(first >= late && first < late + Duration::from_hours(1));
        assert!(told(&clock, Timestamp(5)) >= first, "the clock does not run backwards");
        assert!(clock.now() < late + Duration::from_hours(1), "and does not jump");
        assert!(clock.to_agree().is_some_and(|(_, agreed)| agreed.ahead > Duration::from_hours(1)));
        assert_eq!(clock.to_agree(), None, "not again at once");
        let manual = StoreClock::manual(Timestamp(7));
        assert_eq!(told(&manual, late), Timestamp(7));
    }

    #[test]
    fn a_response_to_a_request_older_than_the_last_response_is_ignored() {
        let (clock, early) = (StoreClock::server(), StoreClock::asks());
        let start = Timestamp(1_750_000_000_000_000);
        told(&clock, start);
        clock.observe_server_time(early, start + 31 * DAY, AgreedClock::default());
        assert!(clock.now() < start + DAY && clock.jumped().0 < start + DAY);
    }

    #[test]
    fn a_manual_clock_stands_still_until_it_is_moved() {
        let clock = StoreClock::manual(Timestamp(5));
        assert_eq!(clock.now(), Timestamp(5));
        clock.advance(Duration::from_micros(7));
        assert_eq!(clock.clone().now(), Timestamp(12));
    }

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_manual_clock_that_is_moved_on_is_right_and_one_that_is_set_is_not_at_once() {
        let start = Timestamp(1_750_000_000_000_000);
        let clock = StoreClock::manual(start);
        clock.last_seen(Some(Timestamp(5)), None);
        clock.advance(400 * DAY);
        let now = start + 400 * DAY;
        assert_eq!(clock.moment(), StoreTimes { now, expiry: ExpiryTime(now) });
        clock.set(now + 31 * DAY);
        assert_eq!(clock.moment(), StoreTimes { now: now + 31 * DAY, expiry: ExpiryTime(now) });
        assert_eq!(clock.wall_time(), now + 31 * DAY);
        clock.set(now);
        assert_eq!(
            clock.moment(),
            StoreTimes { now: now + 31 * DAY, expiry: ExpiryTime(now) },
            "the store's clock stays"
        );
        assert_eq!(clock.wall_time(), now, "the wall clock does not");
    }

    #[test]
    fn expiry_waits_for_a_server_clock_that_jumps_and_follows_one_that_is_set_back() {
        let clock = StoreClock::server();
        let start = Timestamp(1_750_000_000_000_000);
        told(&clock, start);
        clock.last_seen(Some(start), None);
        told(&clock, start + 31 * DAY);
        let ExpiryStatus { time: ExpiryTime(time), waiting } = clock.expiry();
        assert!(time >= start && time < start + DAY && waiting.is_some(), "{time} {waiting:?}");
        assert_eq!(clock.to_write(), None);
        clock.confirm();
        assert!(clock.expiry().time.0 >= start + 31 * DAY);
        assert_eq!(clock.to_write().map(|(was, _)| was), Some(Some(start)));
        told(&clock, start);
        assert!(clock.expiry().time.0 < start + DAY && clock.now() >= start + 31 * DAY);
    }

    #[test]
    fn a_store_that_recorded_no_time_last_saw_its_newest_event() {
        let start = Timestamp(1_750_000_000_000_000);
        let opened = |seen, newest| {
            let clock = StoreClock::doubted(start + 31 * DAY);
            clock.last_seen(seen, newest);
            clock.expiry().time.0
        };
        assert_eq!(opened(None, None), start + 31 * DAY);
        assert_eq!(opened(None, Some(start)), start);
        assert_eq!(opened(Some(start + DAY), Some(start + 60 * DAY)), start + DAY);
        assert_eq!(opened(None, Some(start + 60 * DAY)), start + 31 * DAY);
    }
}
