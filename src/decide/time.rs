//! Points in time and durations: whole microseconds, UTC. There is no `now()` here.

use std::fmt;
use std::ops::{Add, Sub};
pub use std::time::Duration;

/// A point in time: microseconds since 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Parses RFC 3339. `None` when the text is not a date with a time and an offset.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_microsecond()))
    }

    /// The time since `earlier`; zero if it is not earlier.
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

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(read: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(read)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a time of RFC 3339"))
    }
}

/// The units of a duration in a config, longest first, in milliseconds.
pub const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// A duration exactly, as a config writes it: `10m`, `1500ms`.
pub fn duration_text(length: Duration) -> String {
    let milliseconds = length.as_millis();
    let fits = |(_, unit): &&(&str, u64)| milliseconds > 0 && milliseconds.is_multiple_of(u128::from(*unit));
    DURATION_UNITS
        .iter()
        .find(fits)
        .map_or_else(|| "0s".to_owned(), |(name, unit)| format!("{}{name}", milliseconds / u128::from(*unit)))
}

/// A duration in its largest units, at most `units` of them: `829ms`, `12m`, `2d 5h`.
pub fn approximate_duration(length: Duration, units: usize) -> String {
    let whole = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let units_shown = DURATION_UNITS.iter().filter(|(name, _)| whole < 1000 || *name != "ms");
    let mut left = whole;
    let mut parts = Vec::new();
    for (name, unit) in units_shown.skip_while(|(name, unit)| whole < *unit && *name != "ms").take(units) {
        if left >= *unit || parts.is_empty() {
            parts.push(format!("{}{name}", left / unit));
        }
        left %= unit;
    }
    parts.join(" ")
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

    #[test]
    fn a_duration_is_shown_exactly_or_in_its_largest_units() {
        let check = |millis, exact: &str, one: &str, two: &str| {
            let length = Duration::from_millis(millis);
            let shown = (duration_text(length), approximate_duration(length, 1), approximate_duration(length, 2));
            assert_eq!(shown, (exact.into(), one.into(), two.into()), "{millis}");
        };
        check(0, "0s", "0ms", "0ms");
        check(829, "829ms", "829ms", "829ms");
        check(1_500, "1500ms", "1s", "1s");
        check(59_999, "59999ms", "59s", "59s");
        check(600_000, "10m", "10m", "10m");
        check(719_000, "719s", "11m", "11m 59s");
        check(7_200_000, "2h", "2h", "2h");
        check(2_678_400_000, "31d", "31d", "31d");
        check((2 * 86_400 + 5 * 3_600 + 7) * 1000, "190807s", "2d", "2d 5h");
        check((2 * 86_400 + 7) * 1000, "172807s", "2d", "2d");
    }
}
