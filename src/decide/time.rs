//! Points in time and lengths of time: whole microseconds, UTC. There is no `now()` here.

use std::fmt;
use std::ops::{Add, Sub};
pub use std::time::Duration;

/// A point in time: microseconds since 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads RFC 3339. `None` when the text is not a date with a time and an offset.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_microsecond()))
    }

    /// How long before `self` the other point was; zero when it was not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The same point on a clock that shows `theirs` when ours shows `ours`.
    #[must_use]
    pub fn shifted(self, ours: Self, theirs: Self) -> Self {
        Self(self.0.saturating_sub(ours.0).saturating_add(theirs.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(length.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(length.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(t) => write!(f, "{t:.6}"),
            Err(_) => write!(f, "{}µs", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_is_written_as_it_was_read() {
        let t = Timestamp::parse("2026-02-07T16:20:40.5+01:00").expect("RFC 3339");
        assert_eq!(t.to_string(), "2026-02-07T15:20:40.500000Z");
        assert_eq!(
            Timestamp::parse("0001-01-01T00:00:00Z").map(|t| t.to_string()).as_deref(),
            Some("0001-01-01T00:00:00.000000Z")
        );
        for bad in ["", "yesterday", "2026-02-07", "2026-02-07T16:20:40", "1770481240"] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn arithmetic_stops_at_the_ends_instead_of_wrapping() {
        assert_eq!(Timestamp(i64::MAX) + Duration::from_secs(1), Timestamp(i64::MAX));
        assert_eq!(Timestamp(i64::MIN) - Duration::MAX, Timestamp(i64::MIN));
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(130).shifted(Timestamp(100), Timestamp(7)), Timestamp(37));
    }
}
