//! What is said while running: one line per change of state, duplicate and ignored delivery, with the word itself.
//!
//! ```text
//! 09:12:04.118 INFO running   event=3fa9c01e source=ghcr package=jamiec_ts tag=latest attempt=1
//! 09:12:04.951 INFO done      event=3fa9c01e attempt=1 took=829ms
//! ```
//!
//! Bodies, secrets and signatures are never said. Values from outside are cut and escaped: one event, one line.
//! Lines go through a thread of their own, so that a slow terminal delays nobody; what does not fit is counted.
use crate::decide::event::{DoneReason, Event, EventState};
use crate::decide::field::FieldValue;
use crate::decide::limits::LOGGED_LINE_BYTES_MAX;
use crate::decide::time::Duration;
use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// How much it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogLevel {
    /// As it should be.
    Info,
    /// Somebody may want to look.
    Warn,
    /// Somebody must look.
    Error,
}

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object per line.
    Json,
}

/// Lines that wait for the writer; one more is dropped and counted.
const LINES_WAITING_MAX: usize = 8192;
/// How many of these may be output of commands, so that they leave room for what the node has to say.
const OUTPUT_LINES_WAITING_MAX: usize = LINES_WAITING_MAX / 2;
/// How long lines gather after some were written: to be woken for each of them costs more than to write it.
const LINES_GATHER: Duration = Duration::from_millis(2);
/// The longest value that is said.
const VALUE_CHARS_MAX: usize = 400;

/// Where lines go.
#[derive(Clone, Debug)]
pub struct Logger {
    to: Option<SyncSender<LogMessage>>,
    format: LogFormat,
    dropped: Arc<AtomicU64>,
    /// Lines of commands' output that wait.
    output_waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum LogMessage {
    Line(String),
    /// A line of a command's output.
    Output(String),
    Flush(SyncSender<()>),
}

static LOG: OnceLock<Logger> = OnceLock::new();

impl Logger {
    /// Starts writing lines to `out`, for the whole process. Without this nothing is said.
    pub fn start(format: LogFormat, out: Box<dyn Write + Send>) {
        let (to, from) = sync_channel(LINES_WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let output_waiting = Arc::new(AtomicUsize::new(0));
        let log = Self { to: Some(to), format, dropped: dropped.clone(), output_waiting: output_waiting.clone() };
        if LOG.set(log).is_ok() {
            let write = move || write_lines(&from, out, &dropped, &output_waiting);
            std::thread::Builder::new().name("log".into()).spawn(write).ok();
        }
    }

    /// Waits until everything said so far is written.
    pub fn flush() {
        let (done, wait) = sync_channel(1);
        if let Some(to) = LOG.get().and_then(|log| log.to.as_ref())
            && to.send(LogMessage::Flush(done)).is_ok()
        {
            wait.recv().ok();
        }
    }
}

fn write_lines(
    from: &Receiver<LogMessage>,
    out: Box<dyn Write + Send>,
    dropped: &AtomicU64,
    output_waiting: &AtomicUsize,
) {
    let mut out = std::io::BufWriter::new(out);
    while let Ok(first) = from.recv() {
        let mut next = Some(first);
        while let Some(message) = next {
            // Nobody is left to be told that the log cannot be written.
            match message {
                LogMessage::Line(line) => out.write_all(line.as_bytes()).unwrap_or_default(),
                LogMessage::Output(line) => {
                    out.write_all(line.as_bytes()).unwrap_or_default();
                    output_waiting.fetch_sub(1, Ordering::Relaxed);
                }
                LogMessage::Flush(done) => {
                    out.flush().unwrap_or_default();
                    done.send(()).unwrap_or_default();
                }
            }
            next = from.try_recv().ok();
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            writeln!(out, "{lost} lines were not written: the log is too slow").unwrap_or_default();
        }
        out.flush().unwrap_or_default();
        std::thread::sleep(LINES_GATHER);
    }
}

/// Is anybody listening? Saves making a line for nobody.
pub(crate) fn is_on() -> bool {
    LOG.get().is_some()
}

/// Says one word with its details.
pub(crate) fn log(level: LogLevel, word: &str, details: &[(&str, &str)]) {
    let Some(Logger { to: Some(to), format, dropped, .. }) = LOG.get() else { return };
    let line = line(*format, level, word, details, VALUE_CHARS_MAX);
    if let Err(TrySendError::Full(_)) = to.try_send(LogMessage::Line(line)) {
        dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Logs a line of a command's output, with values up to the limit of such a line. False: there is no room for it now.
pub(crate) fn say_output(details: &[(&str, &str)]) -> bool {
    let Some(Logger { to: Some(to), format, output_waiting, .. }) = LOG.get() else { return true };
    if output_waiting.fetch_add(1, Ordering::Relaxed) < OUTPUT_LINES_WAITING_MAX {
        let line = line(*format, LogLevel::Info, "output", details, LOGGED_LINE_BYTES_MAX);
        if to.try_send(LogMessage::Output(line)).is_ok() {
            return true;
        }
    }
    output_waiting.fetch_sub(1, Ordering::Relaxed);
    false
}

fn line(format: LogFormat, level: LogLevel, word: &str, details: &[(&str, &str)], chars_max: usize) -> String {
    match format {
        LogFormat::Text => text(level, word, details, chars_max),
        LogFormat::Json => json(level, word, details, chars_max),
    }
}

fn text(level: LogLevel, word: &str, details: &[(&str, &str)], chars_max: usize) -> String {
    let level = match level {
        LogLevel::Info => "INFO",
        LogLevel::Warn => "WARN",
        LogLevel::Error => "ERROR",
    };
    let mut line = format!("{} {level} {word:<9}", wall().strftime("%H:%M:%S%.3f"));
    for (name, value) in details {
        line.push(' ');
        line += &cut_detail(name, value, chars_max);
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// One detail as a line tells it: `name=value`, quoted where it must be, so that nothing in it can end the line.
pub(crate) fn detail(name: &str, value: &str) -> String {
    cut_detail(name, value, VALUE_CHARS_MAX)
}

fn cut_detail(name: &str, value: &str, chars_max: usize) -> String {
    let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic() && !b"\"'=".contains(&b));
    let quotable = value.contains('"') && value.bytes().all(|b| matches!(b, b' '..=b'~') && !b"'\\".contains(&b));
    let cut: String = value.chars().take(chars_max).collect();
    match (plain, quotable) {
        (true, _) => format!("{name}={cut}"),
        (_, true) => format!("{name}='{cut}'"),
        _ => format!("{name}={cut:?}"),
    }
}

fn json(level: LogLevel, word: &str, details: &[(&str, &str)], chars_max: usize) -> String {
    let level = match level {
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    let mut line = serde_json::Map::new();
    line.insert("at".into(), wall().to_string().into());
    line.insert("level".into(), level.into());
    line.insert("word".into(), word.into());
    for (name, value) in details {
        line.insert((*name).into(), value.chars().take(chars_max).collect::<String>().into());
    }
    escaped(&format!("{}\n", serde_json::Value::Object(line)))
}

/// The same JSON without characters that a terminal obeys: C1 controls, and those that turn the direction of writing.
fn escaped(json: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let obeyed = |c: char| matches!(c, '\u{7f}'..='\u{9f}') || turns(c);
    if !json.contains(obeyed) {
        return json.to_owned();
    }
    let escape = |c: char| if obeyed(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    json.chars().map(escape).collect()
}

#[expect(clippy::disallowed_methods, reason = "a line tells people the wall's time; it decides nothing")]
fn wall() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// Says what an event's state now is.
pub(crate) fn log_state(event: &Event, details: &[(&str, &str)]) {
    if !is_on() {
        return;
    }
    let attempt = event.attempt.to_string();
    let id = event.id.short();
    let mut all: Vec<(&str, &str)> = vec![("event", &id), ("source", &event.source)];
    let begins = match event.state {
        EventState::Waiting { .. } => event.attempt == 0,
        EventState::Running { .. } => event.attempt == 1,
        EventState::Done { .. } | EventState::Dead { .. } => false,
    };
    if begins {
        all.extend(event.fields.iter().map(|(name, value)| (name, said(value))));
    }
    if event.attempt > 0 {
        all.push(("attempt", &attempt));
    }
    let by;
    let level = match &event.state {
        EventState::Dead { cause, .. } => {
            all.push(("cause", cause.word()));
            LogLevel::Error
        }
        EventState::Done { how: DoneReason::Superseded { by: other }, .. } => {
            by = other.short();
            all.extend([("how", "superseded"), ("by", &*by)]);
            LogLevel::Info
        }
        EventState::Done { how: how @ DoneReason::Recorded, .. } => {
            all.push(("how", how.word()));
            LogLevel::Info
        }
        EventState::Waiting { due: None } => {
            all.push(("wait", "slot"));
            LogLevel::Info
        }
        EventState::Waiting { .. } if details.iter().any(|(name, _)| *name == "why") => LogLevel::Warn,
        _ => LogLevel::Info,
    };
    all.extend_from_slice(details);
    log(level, event.state.word(), &all);
}

fn said(value: &FieldValue) -> &str {
    match value {
        FieldValue::Text(text) | FieldValue::Number(text) => text,
        FieldValue::Bool(true) => "true",
        FieldValue::Bool(false) => "false",
    }
}

/// For how long the same sentence is not said again.
const HELD: Duration = Duration::from_secs(10);
/// Sentences that are told apart; the one that was said longest ago makes room for the next.
const SENTENCES_MAX: usize = 16;

static SAID: Mutex<LogRateLimiter> = Mutex::new(LogRateLimiter(Vec::new()));

/// Says why the store did not do what it was asked.
pub(crate) fn log_store_error(level: LogLevel, why: &str, more: &[(&str, &str)]) {
    log_rate_limited(level, "store", why, &[&[("why", why)], more].concat());
}

/// Says one word with its details; what is `same` as before only now and then.
pub(crate) fn log_rate_limited(level: LogLevel, word: &str, same: &str, details: &[(&str, &str)]) {
    let sentence = format!("{word} {same}");
    let times = SAID.lock().unwrap_or_else(PoisonError::into_inner).should_log(&sentence, Instant::now());
    let Some(times) = times else { return };
    let count = times.to_string();
    let counted: &[(&str, &str)] = if times > 1 { &[("times", &count)] } else { &[] };
    log(level, word, &[details, counted].concat());
}

/// What was said, and when; how often it came since.
struct LogRateLimiter(Vec<(String, Instant, u64)>);

impl LogRateLimiter {
    /// How often this came since it was last said, with this time; `None`: it is not to be said now.
    fn should_log(&mut self, why: &str, now: Instant) -> Option<u64> {
        if let Some((_, at, since)) = self.0.iter_mut().find(|(said, ..)| said == why) {
            *since += 1;
            if now.saturating_duration_since(*at) < HELD {
                return None;
            }
            *at = now;
            return Some(std::mem::take(since));
        }
        if self.0.len() == SENTENCES_MAX {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, (_, at, _))| *at).map(|(place, _)| place);
            oldest.map(|place| self.0.swap_remove(place));
        }
        self.0.push((why.to_owned(), now, 0));
        Some(1)
    }
}

#[cfg(test)]
mod trouble_tests {
    use super::*;

    #[test]
    fn a_sentence_is_said_at_once_and_then_now_and_then_with_how_often_it_came() {
        let (mut said, begun) = (LogRateLimiter(Vec::new()), Instant::now());
        assert_eq!(said.should_log("away", begun), Some(1));
        assert!((0..5_000).all(|n| said.should_log("away", begun + Duration::from_millis(n)).is_none()));
        assert_eq!(said.should_log("full", begun + Duration::from_secs(6)), Some(1), "another is not held back");
        assert_eq!(said.should_log("away", begun + HELD), Some(5_001));
        assert_eq!(said.should_log("away", begun + HELD + HELD), Some(1));
    }

    #[test]
    fn so_many_sentences_are_kept_and_no_more() {
        let (mut said, begun) = (LogRateLimiter(Vec::new()), Instant::now());
        for n in 0..1_000 {
            assert_eq!(said.should_log(&n.to_string(), begun + Duration::from_millis(n)), Some(1));
        }
        assert_eq!(said.0.len(), SENTENCES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(details: &[(&str, &str)], expected: &str) {
        let line = text(LogLevel::Info, "done", details, VALUE_CHARS_MAX);
        assert_eq!(line.split_once(' ').map(|(_, rest)| rest), Some(expected));
    }

    #[test]
    fn a_line_is_one_line_whatever_is_said() {
        check(&[("event", "3fa9c01e"), ("took", "829ms")], "INFO done      event=3fa9c01e took=829ms\n");
        check(&[("why", "tag was \"a\"")], "INFO done      why='tag was \"a\"'\n");
        check(&[("why", "it's \"a\"")], "INFO done      why=\"it's \\\"a\\\"\"\n");
        // Whole: people look for what the sender calls it, and the first digits of a UUIDv7 are only its time.
        let id = "f168a0a0-0440-11f1-9b3f-a185afe7eea8";
        check(&[("delivery", id)], &format!("INFO done      delivery={id}\n"));
        check(&[], "INFO done\n");
        check(&[("tag", "")], "INFO done      tag=\"\"\n");
        check(&[("why", "a b\n\u{1b}[31m\"")], "INFO done      why=\"a b\\n\\u{1b}[31m\\\"\"\n");
        check(&[("v", &"y".repeat(5000))], &format!("INFO done      v={}\n", "y".repeat(VALUE_CHARS_MAX)));
    }

    #[test]
    fn a_json_line_can_be_read_back() {
        let why = "\n\"\u{1b}[31m\u{9b}\u{202e}é";
        let line = json(LogLevel::Error, "dead", &[("why", why)], VALUE_CHARS_MAX);
        assert!(!line.trim_end().contains(['\u{1b}', '\u{9b}', '\u{202e}', '\n']), "{line}");
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&value["level"], &value["word"], &value["why"]), (&"error".into(), &"dead".into(), &why.into()));
    }
}
