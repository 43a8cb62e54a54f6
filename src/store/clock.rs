//! The clock of a store. Of one that lives in this process: the wall's time, but never running backwards, and moving
//! on even while the wall's clock is set back. Of one behind a server: the server's time, as it was last told.

use crate::decide::time::{Duration, Timestamp};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Where a store's time comes from.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Server(Arc<Mutex<Told>>),
    Wall(Arc<Mutex<Reading>>),
    Manual(Arc<Mutex<Timestamp>>),
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    shown: Timestamp,
    at: Instant,
}

/// What a server said, and what was made of it.
#[derive(Clone, Copy, Debug)]
struct Told {
    shown: Timestamp,
    server: Timestamp,
    at: Instant,
}

impl Clock {
    /// A server's time, which [`Clock::told`] tells; between two answers it moves on by itself. No clock of this
    /// machine counts.
    pub fn server() -> Self {
        let told = Told { shown: Timestamp::default(), server: Timestamp::default(), at: Instant::now() };
        Self(Kind::Server(Arc::new(Mutex::new(told))))
    }

    /// The server says that it is so late. What counts now: that, unless time was given by hand, or had come further.
    pub fn told(&self, server: Timestamp) -> Timestamp {
        let Kind::Server(told) = &self.0 else { return self.now() };
        let mut last = told.lock().unwrap_or_else(PoisonError::into_inner);
        let server = server.max(last.server);
        *last = Told { shown: last.shown, server, at: Instant::now() };
        server
    }

    /// The wall's time, from `floor` on: the latest time the store already holds.
    pub fn wall(floor: Timestamp) -> Self {
        Self(Kind::Wall(Arc::new(Mutex::new(Reading { shown: floor, at: Instant::now() }))))
    }

    /// A time that moves only when told to.
    pub fn manual(start: Timestamp) -> Self {
        Self(Kind::Manual(Arc::new(Mutex::new(start))))
    }

    /// What it shows.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Kind::Server(told) => {
                let mut last = told.lock().unwrap_or_else(PoisonError::into_inner);
                last.shown = last.shown.max(last.server + last.at.elapsed());
                last.shown
            }
            Kind::Wall(reading) => {
                let mut last = reading.lock().unwrap_or_else(PoisonError::into_inner);
                let at = Instant::now();
                *last = read(*last, at, wall());
                last.shown
            }
            Kind::Manual(time) => *time.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Moves a manual clock on; the wall's moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Kind::Manual(time) = &self.0 {
            let mut time = time.lock().unwrap_or_else(PoisonError::into_inner);
            *time = *time + by;
        }
    }
}

fn read(last: Reading, at: Instant, wall: Timestamp) -> Reading {
    let moved_on = last.shown + at.saturating_duration_since(last.at);
    Reading { shown: moved_on.max(wall), at }
}

#[expect(clippy::disallowed_methods, reason = "this is the store's clock")]
fn wall() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wall: i64, elapsed: u64, expected: i64) {
        let at = Instant::now();
        let last = Reading { shown: Timestamp(1_000), at };
        assert_eq!(read(last, at + Duration::from_micros(elapsed), Timestamp(wall)).shown, Timestamp(expected));
    }

    #[test]
    fn it_follows_the_wall_forwards_and_moves_on_by_itself_when_the_wall_is_set_back() {
        check(1_500, 100, 1_500);
        check(1_050, 100, 1_100);
        check(-9_000, 100, 1_100);
    }

    #[test]
    fn it_begins_at_its_floor_and_never_shows_less() {
        let floor = wall() + Duration::from_hours(1);
        let clock = Clock::wall(floor);
        let (first, second) = (clock.now(), clock.now());
        assert!(floor <= first && first <= second);
    }

    #[test]
    fn a_servers_clock_shows_what_it_was_told_and_never_less() {
        let clock = Clock::server();
        let late = Timestamp(9_000_000_000_000_000);
        assert_eq!(clock.told(late), late);
        assert!(clock.now() >= late && clock.now() < late + Duration::from_hours(1));
        assert_eq!(clock.told(Timestamp(5)), late, "it does not run backwards");
        let manual = Clock::manual(Timestamp(7));
        assert_eq!(manual.told(late), Timestamp(7));
    }

    #[test]
    fn a_manual_clock_stands_still_until_it_is_moved() {
        let clock = Clock::manual(Timestamp(5));
        assert_eq!(clock.now(), Timestamp(5));
        clock.advance(Duration::from_micros(7));
        assert_eq!(clock.clone().now(), Timestamp(12));
    }
}
