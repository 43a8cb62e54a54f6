//! Log lines, as `tracing` events with the target `hookonce`: the message is the log word, such as `done` or
//! `duplicate`. A service that uses the layer gets them in its own subscriber; `log_layer.rs` is the binary's.
//!
//! ```text
//! 2026-11-15 09:12:04.118 INFO running   event=3fa9c01e source=ghcr package=jamiec_ts tag=latest attempt=1
//! 2026-11-15 09:12:04.951 INFO done      event=3fa9c01e source=ghcr attempt=1 took=829ms
//! ```
//!
//! Bodies, secrets and signatures are never logged. Names of fields are static; those that a source declares are in one
//! field, `fields`. A suffix of the name is its unit: `took_ms` is `took=829ms` in a line of text, `age_seconds` is
//! `age=1.1s`.

use crate::decide::event::{DoneReason, Event, EventState, Origin};
use crate::decide::field::{FieldValue, StoredFields};
use crate::decide::limits;
use crate::decide::time::Duration;
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tracing::field::display;
use tracing::{error, info, warn};

/// Maximum number of characters of a value in a log line.
pub(super) const VALUE_CHARS_MAX: usize = 400;

/// The name of the field that holds an event's declared fields.
#[cfg(feature = "node")]
pub(super) const FIELDS: &str = "fields";

/// An event's declared fields: a JSON object as `{:?}`, ` name=value` for each as `{:#?}`.
struct LoggedFields<'a>(&'a StoredFields);

impl fmt::Debug for LoggedFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return self.write_json(f);
        }
        self.0.iter().try_for_each(|(name, value)| {
            let value = match value {
                FieldValue::Text(text) | FieldValue::Number(text) => text,
                FieldValue::Bool(true) => "true",
                FieldValue::Bool(false) => "false",
            };
            f.write_char(' ')?;
            write_field(f, name, value, VALUE_CHARS_MAX)
        })
    }
}

impl LoggedFields<'_> {
    /// Writes a JSON object whose values are truncated if they are too long: a number then becomes a text.
    fn write_json(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| serde_json::Value::from(cut(text, VALUE_CHARS_MAX)).to_string();
        f.write_char('{')?;
        for (at, (name, value)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}:", serde_json::Value::from(name))?;
            match value {
                FieldValue::Number(raw) if raw.len() <= VALUE_CHARS_MAX => f.write_str(raw)?,
                FieldValue::Text(text) | FieldValue::Number(text) => f.write_str(&quoted(text))?,
                FieldValue::Bool(value) => write!(f, "{value}")?,
            }
        }
        f.write_char('}')
    }
}

/// Writes `name=value`, quoted if necessary, so that no value can end the line, and truncated if it is too long.
pub(super) fn write_field(to: &mut dyn Write, name: &str, value: &str, chars_max: usize) -> fmt::Result {
    let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic() && !b"\"'=".contains(&b));
    let quotable = || value.contains('"') && value.bytes().all(|b| matches!(b, b' '..=b'~') && !b"'\\".contains(&b));
    let cut = cut(value, chars_max);
    if plain {
        write!(to, "{name}={cut}")
    } else if quotable() {
        write!(to, "{name}='{cut}'")
    } else {
        write!(to, "{name}={cut:?}")
    }
}

/// One field as in a line of text.
#[cfg(feature = "node")]
pub(crate) fn text_field(name: &str, value: &str) -> String {
    let mut text = String::new();
    write_field(&mut text, name, value, VALUE_CHARS_MAX).expect("a string takes everything");
    text
}

/// The first characters of a text.
pub(super) fn cut(text: &str, chars_max: usize) -> &str {
    if text.len() <= chars_max {
        return text;
    }
    text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end])
}

/// Details of a state's log line besides the event.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct StateDetails<'a> {
    /// How long the attempt took.
    pub took: Option<Duration>,
    /// How long the event waits for its next attempt.
    pub wait: Option<Duration>,
    /// Why it is in this state.
    pub why: Option<&'a str>,
}

/// The value of a field whose name ends in `_ms`.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Logs the new state of an event.
pub(crate) fn log_state(event: &Event, details: StateDetails<'_>) {
    let begins = match event.state {
        EventState::Waiting { .. } => event.attempt == 0,
        EventState::Running { .. } => event.attempt == 1,
        EventState::Done { .. } | EventState::Dead { .. } => false,
    };
    let (mut cause, mut how, mut by, mut wait) = (None, None, None, None);
    match &event.state {
        EventState::Dead { cause: dead, .. } => cause = Some(dead.word()),
        EventState::Done { how: DoneReason::Superseded { by: other }, .. } => {
            (how, by) = (Some("superseded"), Some(display(other)));
        }
        EventState::Done { how: recorded @ DoneReason::Recorded, .. } => how = Some(recorded.word()),
        EventState::Waiting { due: None } => wait = Some("slot"),
        EventState::Waiting { due: Some(_) } | EventState::Running { .. } | EventState::Done { .. } => {}
    }
    let of = match event.origin {
        Some(Origin::Notification { of, .. }) => Some(display(of)),
        _ => None,
    };
    macro_rules! line {
        ($level:ident) => {
            $level!(
                target: "hookonce",
                event = %event.id,
                source = &*event.source,
                of,
                fields = begins.then(|| tracing::field::debug(LoggedFields(&event.fields))),
                attempt = Some(event.attempt).filter(|attempt| *attempt > 0),
                cause,
                how,
                by,
                wait,
                took_ms = details.took.map(millis),
                wait_ms = details.wait.map(millis),
                why = details.why,
                "{}",
                event.state.word()
            )
        };
    }
    match event.state {
        EventState::Dead { .. } => line!(error),
        EventState::Waiting { .. } if details.why.is_some() => line!(warn),
        EventState::Waiting { .. } | EventState::Running { .. } | EventState::Done { .. } => line!(info),
    }
}

/// How long the same line is suppressed after it was logged.
const HELD: Duration = Duration::from_secs(10);
/// How many different lines are tracked; the one logged longest ago makes room for the next.
const LINES_KEPT_MAX: usize = 16;

static LOGGED: Mutex<LogRateLimiter> = Mutex::new(LogRateLimiter(Vec::new()));

/// Logs an error of the store, the same one at most every few seconds.
pub(crate) fn store_error(error: &dyn fmt::Display) {
    let why = error.to_string();
    rate_limited("store", &why, |times| error!(target: "hookonce", why, times, "store"));
}

/// Logs a store error that is retried anyway, the same one at most every few seconds.
pub(crate) fn store_warning(error: &dyn fmt::Display) {
    let why = error.to_string();
    rate_limited("store", &why, |times| warn!(target: "hookonce", why, times, "store"));
}

/// Calls `log` unless the same line was logged within the last few seconds, with how often it occurred since, if more
/// than once.
pub(crate) fn rate_limited(word: &str, same: &str, log: impl FnOnce(Option<u64>)) {
    let line = format!("{word} {same}");
    let times = LOGGED.lock().unwrap_or_else(PoisonError::into_inner).should_log(&line, Instant::now());
    if let Some(times) = times {
        log(Some(times).filter(|times| *times > 1));
    }
}

/// The tracked lines: when each was logged, and how often it occurred since.
struct LogRateLimiter(Vec<(String, Instant, u64)>);

impl LogRateLimiter {
    /// How often this line occurred since it was last logged, including now; `None` if it is suppressed.
    fn should_log(&mut self, line: &str, now: Instant) -> Option<u64> {
        if let Some((_, at, since)) = self.0.iter_mut().find(|(logged, ..)| logged == line) {
            *since += 1;
            if now.saturating_duration_since(*at) < HELD {
                return None;
            }
            *at = now;
            return Some(std::mem::take(since));
        }
        if self.0.len() == LINES_KEPT_MAX {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, (_, at, _))| *at).map(|(place, _)| place);
            oldest.map(|place| self.0.swap_remove(place));
        }
        self.0.push((line.to_owned(), now, 0));
        Some(1)
    }
}

/// A rate limit of log lines: a burst of them, then a number per second.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    /// A limit with its whole burst left.
    pub(crate) fn full(now: Instant) -> Self {
        Self { tokens: f64::from(limits::LOGGED_LINES_BURST), filled: now }
    }

    /// Whether another line may be logged now.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed: std::time::Duration = now.saturating_duration_since(self.filled);
        let refilled = self.tokens + passed.as_secs_f64() * f64::from(limits::LOGGED_LINES_PER_SECOND);
        self.tokens = refilled.min(f64::from(limits::LOGGED_LINES_BURST));
        self.filled = now;
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_logged_at_once_and_then_every_few_seconds_with_its_count() {
        let (mut lines, begun) = (LogRateLimiter(Vec::new()), Instant::now());
        assert_eq!(lines.should_log("away", begun), Some(1));
        assert!((0..5_000).all(|n| lines.should_log("away", begun + Duration::from_millis(n)).is_none()));
        assert_eq!(lines.should_log("full", begun + Duration::from_secs(6)), Some(1), "another line is not suppressed");
        assert_eq!(lines.should_log("away", begun + HELD), Some(5_001));
        assert_eq!(lines.should_log("away", begun + HELD + HELD), Some(1));
    }

    #[test]
    fn a_burst_is_allowed_and_then_so_many_lines_per_second() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(start);
        let mut allowed = |at: Instant| (0..5000).filter(|_| bucket.take(at)).count();
        assert_eq!(allowed(start), limits::LOGGED_LINES_BURST as usize);
        assert_eq!(allowed(start + Duration::from_secs(1)), limits::LOGGED_LINES_PER_SECOND as usize);
        assert_eq!(allowed(start + Duration::from_hours(1)), limits::LOGGED_LINES_BURST as usize);
    }

    #[test]
    fn only_the_last_few_lines_are_tracked() {
        let (mut lines, begun) = (LogRateLimiter(Vec::new()), Instant::now());
        for n in 0..1_000 {
            assert_eq!(lines.should_log(&n.to_string(), begun + Duration::from_millis(n)), Some(1));
        }
        assert_eq!(lines.0.len(), LINES_KEPT_MAX);
    }

    #[test]
    fn a_field_is_one_word_of_one_line_whatever_its_value() {
        let check = |value: &str, expected: &str| {
            let mut line = String::new();
            write_field(&mut line, "why", value, VALUE_CHARS_MAX).expect("a string takes everything");
            assert_eq!(line, format!("why={expected}"));
        };
        check("829ms", "829ms");
        check("tag was \"a\"", "'tag was \"a\"'");
        check("it's \"a\"", "\"it's \\\"a\\\"\"");
        check("", "\"\"");
        check("a b\n\u{1b}[31m\"", "\"a b\\n\\u{1b}[31m\\\"\"");
        check(&"y".repeat(5000), &"y".repeat(VALUE_CHARS_MAX));
        check(&"é".repeat(5000), &format!("{:?}", "é".repeat(VALUE_CHARS_MAX)));
    }
}
