//! Parsing and formatting of durations, sizes and addresses. An error says what was expected.

use crate::decide::time::{DURATION_UNITS, Duration};
use std::net::SocketAddr;

/// Maximum duration, a hundred years: a longer one is a typo and could overflow.
const DURATION_MAX: Duration = Duration::from_hours(36_500 * 24);

/// Units, longest first, so that formatting uses the largest unit that fits.
const SIZES: [(&str, usize); 3] = [("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];

/// Parses a whole number with `ms s m h d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a whole number with ms, s, m, h or d, such as \"30s\"".to_owned();
    let (number, unit) = split(text).ok_or_else(expected)?;
    let (_, length) = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
    let long = || "longer than a hundred years".to_owned();
    let milliseconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*length)).ok_or_else(long)?;
    let found = Duration::from_millis(milliseconds);
    if found > DURATION_MAX { Err(long()) } else { Ok(found) }
}

/// Parses a whole number with `KB MB GB`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let expected = || "expected a whole number with KB, MB or GB, such as \"25MB\"".to_owned();
    let (number, unit) = split(text).ok_or_else(expected)?;
    let (_, size) = SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
    number.parse::<usize>().ok().and_then(|n| n.checked_mul(*size)).ok_or_else(|| "too large".to_owned())
}

/// Parses an IP address and a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as \"127.0.0.1:3142\"".to_owned())
}

fn split(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| text.split_at(digits))
}

/// As it would be written in the config.
pub(crate) fn size_text(bytes: usize) -> String {
    SIZES
        .iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
        .map_or_else(|| format!("{bytes} bytes"), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::time::duration_text;

    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(duration(text).ok().map(|d| u64::try_from(d.as_millis()).unwrap()), expected, "{text}");
    }

    #[test]
    fn a_duration_is_a_whole_number_with_a_unit_and_nothing_else() {
        check("250ms", Some(250));
        check("30s", Some(30_000));
        check("10m", Some(600_000));
        check("1h", Some(3_600_000));
        check("30d", Some(2_592_000_000));
        check("0s", Some(0));
        for bad in ["", "s", "30", "30 s", "1.5h", "-1s", "1h30m", "30S", "40000d", "99999999999999999999s", "٣s"] {
            check(bad, None);
        }
    }

    #[test]
    fn a_size_is_counted_in_1024() {
        assert_eq!(size("25MB"), Ok(25 << 20));
        assert_eq!(size("1KB"), Ok(1024));
        for bad in ["", "25", "25mb", "25 MB", "25MiB", "1.5MB", "99999999999GB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same() {
        for text in ["1ms", "30s", "90s", "10m", "36h", "30d", "0s"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
        assert_eq!(duration_text(duration("120s").unwrap()), "2m");
        for text in ["25MB", "3KB", "2GB"] {
            assert_eq!(size_text(size(text).unwrap()), text);
        }
    }
}
