//! Parsing and formatting of durations, sizes and addresses. An error says what was expected.

use crate::decide::time::{DURATION_UNITS, Duration};

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

/// The units of time in a rate.
const RATE_UNITS: [(&str, Duration); 3] =
    [("s", Duration::from_secs(1)), ("m", Duration::from_mins(1)), ("h", Duration::from_hours(1))];

/// Parses a number for each `s`, `m` or `h`.
pub(super) fn rate(text: &str) -> Result<(u32, Duration), String> {
    let expected = || "expected a number for each s, m or h, such as \"60/m\"".to_owned();
    let (number, unit) = text.split_once('/').ok_or_else(expected)?;
    let (_, time) = RATE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let count = number.parse().ok().filter(|count| digits && *count > 0).ok_or_else(expected)?;
    Ok((count, *time))
}

/// A rate as it would be written in the config.
pub(crate) fn rate_text(count: u32, time: Duration) -> String {
    let unit = RATE_UNITS.iter().find(|(_, length)| *length == time).map_or("s", |(name, _)| name);
    format!("{count}/{unit}")
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
    fn a_rate_is_a_number_for_each_second_minute_or_hour() {
        for (text, seconds) in [("1/s", 1), ("60/m", 60), ("1000/h", 3600)] {
            let (count, time) = rate(text).unwrap();
            assert_eq!((time.as_secs(), rate_text(count, time).as_str()), (seconds, text));
        }
        for bad in ["", "1", "0/s", "1/d", "1/", "/s", "+1/s", "1.5/s", "99999999999/s", "1 /s"] {
            assert!(rate(bad).is_err(), "{bad}");
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
