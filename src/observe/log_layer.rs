//! The binary's log: `tracing` events with our target as lines of text or JSON, on standard error.
//!
//! Values from outside are truncated and escaped: one event, one line. A separate thread writes the lines, so that a
//! slow terminal delays nothing else; lines that do not fit into its queue are dropped and counted.

use super::log::{FIELDS, VALUE_CHARS_MAX, cut, write_field};
use super::otlp;
use crate::decide::limits::LOGGED_LINE_BYTES_MAX;
use crate::decide::time::Duration;
use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Text, with the time of the day.
    #[default]
    Text,
    /// Text, with the date and the time.
    DatedText,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// How a second is written in a line of text.
    fn second(self) -> &'static str {
        if self == Self::DatedText { "%Y-%m-%d %H:%M:%S" } else { "%H:%M:%S" }
    }

    /// The length of that.
    fn second_bytes(self) -> usize {
        if self == Self::DatedText { 19 } else { 8 }
    }

    /// The format with this name in the config and the environment.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// The target of `tracing` events that are lines of commands' output.
pub(crate) const OUTPUT_TARGET: &str = "hookonce::output";

/// Maximum number of lines waiting for the writer; further ones are dropped and counted.
const LINES_WAITING_MAX: usize = 8192;
/// How many of these may be output of commands, so that the node's own lines always have room.
const OUTPUT_LINES_WAITING_MAX: usize = LINES_WAITING_MAX / 2;
/// How long lines are collected after a write: waking the writer for each costs more than writing it.
const LINES_GATHER: Duration = Duration::from_millis(2);

/// The log of this process.
#[derive(Clone, Copy, Debug)]
pub struct Logger;

#[derive(Debug)]
enum LogMessage {
    Line(String),
    /// A line of a command's output.
    Output(String),
    Flush(SyncSender<()>),
}

static LINES: OnceLock<LineQueue> = OnceLock::new();

/// The state shared by the layer and the writer.
#[derive(Debug)]
struct LineQueue {
    to: SyncSender<LogMessage>,
    dropped: AtomicU64,
    /// Lines of commands' output that wait.
    output_waiting: AtomicUsize,
}

impl Logger {
    /// Writes the log to `out` from now on, for the whole process. Only the first call has an effect.
    pub fn start(format: LogFormat, out: Box<dyn Write + Send>) {
        let (to, from) = sync_channel(LINES_WAITING_MAX);
        let queue = LineQueue { to, dropped: AtomicU64::new(0), output_waiting: AtomicUsize::new(0) };
        if LINES.set(queue).is_err() {
            return;
        }
        let Some(queue) = LINES.get() else { return };
        let write = move || write_lines(&from, out, queue, format);
        std::thread::Builder::new().name("log".into()).spawn(write).ok();
        let traces = otlp::layer();
        let log = LogLayer { format, queue, spans: traces.is_some() };
        let subscriber = tracing_subscriber::registry().with(log).with(traces);
        // An embedder that has already set a subscriber keeps it, and gets our events there.
        tracing::subscriber::set_global_default(subscriber).ok();
    }

    /// Waits until everything that was logged so far is written.
    pub fn flush() {
        let (done, wait) = sync_channel(1);
        if let Some(queue) = LINES.get()
            && queue.to.send(LogMessage::Flush(done)).is_ok()
        {
            wait.recv().ok();
        }
    }
}

/// Whether there is room for another line of a command's output.
pub(crate) fn has_room_for_output() -> bool {
    LINES.get().is_none_or(|queue| queue.output_waiting.load(Ordering::Relaxed) < OUTPUT_LINES_WAITING_MAX)
}

fn write_lines(from: &Receiver<LogMessage>, out: Box<dyn Write + Send>, queue: &LineQueue, format: LogFormat) {
    let mut out = std::io::BufWriter::new(out);
    while let Ok(first) = from.recv() {
        let mut next = Some(first);
        while let Some(message) = next {
            // There is no other place to report that the log cannot be written.
            match message {
                LogMessage::Line(line) => out.write_all(line.as_bytes()).unwrap_or_default(),
                LogMessage::Output(line) => {
                    out.write_all(line.as_bytes()).unwrap_or_default();
                    queue.output_waiting.fetch_sub(1, Ordering::Relaxed);
                }
                LogMessage::Flush(done) => {
                    out.flush().unwrap_or_default();
                    done.send(()).unwrap_or_default();
                }
            }
            next = from.try_recv().ok();
        }
        let lost = queue.dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            out.write_all(lost_lines(format, lost).as_bytes()).unwrap_or_default();
        }
        out.flush().unwrap_or_default();
        std::thread::sleep(LINES_GATHER);
    }
}

fn lost_lines(format: LogFormat, lost: u64) -> String {
    let why = "lines were dropped: the log is too slow";
    if format != LogFormat::Json {
        return format!("{lost} {why}\n");
    }
    let mut line = JsonLine::new(Level::WARN, VALUE_CHARS_MAX);
    line.value("message", "\"log\"");
    line.value("lines", &lost.to_string());
    line.text("why", why);
    line.end()
}

struct LogLayer {
    format: LogFormat,
    queue: &'static LineQueue,
    /// Whether another layer records spans.
    spans: bool,
}

impl LogLayer {
    fn is_ours(&self, metadata: &Metadata<'_>) -> bool {
        (metadata.is_event() || self.spans) && matches!(metadata.target(), "hookonce" | OUTPUT_TARGET)
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.is_ours(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_ours(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let is_output = event.metadata().target() == OUTPUT_TARGET;
        let chars_max = if is_output { LOGGED_LINE_BYTES_MAX } else { VALUE_CHARS_MAX };
        let line = line(self.format, event, chars_max);
        let message = if is_output {
            self.queue.output_waiting.fetch_add(1, Ordering::Relaxed);
            LogMessage::Output(line)
        } else {
            LogMessage::Line(line)
        };
        if let Err(TrySendError::Full(_)) = self.queue.to.try_send(message) {
            self.queue.dropped.fetch_add(1, Ordering::Relaxed);
            if is_output {
                self.queue.output_waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn line(format: LogFormat, event: &Event<'_>, chars_max: usize) -> String {
    let level = *event.metadata().level();
    if format == LogFormat::Json {
        let mut line = JsonLine::new(level, chars_max);
        event.record(&mut line);
        line.end()
    } else {
        let mut line = TextLine::new(format, level, chars_max);
        event.record(&mut line);
        line.end()
    }
}

/// The width of the word that a line of text begins with.
const WORD_WIDTH: usize = 9;
/// How many digits of an event's id a line of text has.
const SHORT_ID: usize = 8;
/// Room for most lines.
const LINE_BYTES: usize = 192;

thread_local! {
    /// The second of this thread's last line, and its text.
    static LAST_SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

/// Writes the time of a line of text. Its second is formatted once: all but a few lines are of the same as the last.
fn write_time(line: &mut String, format: LogFormat, at: jiff::Timestamp) {
    let millis = at.as_millisecond();
    let (second, millis) = (millis.div_euclid(1000), millis.rem_euclid(1000));
    LAST_SECOND.with_borrow_mut(|(last, text)| {
        if *last != second || text.len() != format.second_bytes() {
            (*last, *text) = (second, at.strftime(format.second()).to_string());
        }
        line.push_str(text);
    });
    write!(line, ".{millis:03}").expect("a string takes everything");
}

struct TextLine {
    line: String,
    chars_max: usize,
}

impl TextLine {
    fn new(format: LogFormat, level: Level, chars_max: usize) -> Self {
        let mut line = String::with_capacity(LINE_BYTES);
        write_time(&mut line, format, wall());
        write!(line, " {level} ").expect("a string takes everything");
        Self { line, chars_max }
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        self.line.write_fmt(text).expect("a string takes everything");
    }

    fn end(mut self) -> String {
        self.line.truncate(self.line.trim_end().len());
        self.line.push('\n');
        self.line
    }
}

/// The name of a field in a line of text, without its unit.
fn text_name(name: &str) -> &str {
    // `message` is the log word itself.
    let name = if name == "message_id" { "message" } else { name };
    name.strip_suffix("_ms").or_else(|| name.strip_suffix("_seconds")).unwrap_or(name)
}

impl Visit for TextLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => {
                let begin = self.line.len();
                self.write(format_args!("{value:?}"));
                let width = self.line.len() - begin;
                self.line.extend(std::iter::repeat_n(' ', WORD_WIDTH.saturating_sub(width)));
            }
            FIELDS => self.write(format_args!("{value:#?}")),
            // A line of text has the last eight digits of an event's id.
            "event" | "by" | "bad" | "good" => {
                self.write(format_args!(" {}=", field.name()));
                let begin = self.line.len();
                self.write(format_args!("{value:?}"));
                let short = self.line.len().saturating_sub(SHORT_ID).max(begin);
                if self.line.is_char_boundary(short) {
                    self.line.replace_range(begin..short, "");
                }
            }
            _ => self.record_str(field, &format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.line.push(' ');
        write_field(&mut self.line, text_name(field.name()), value, self.chars_max).expect("a string takes everything");
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let (name, unit) = (field.name(), if field.name().ends_with("_ms") { "ms" } else { "" });
        self.write(format_args!(" {}={value}{unit}", text_name(name)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write(format_args!(" {}={value:.1}s", text_name(field.name())));
    }
}

struct JsonLine {
    line: String,
    chars_max: usize,
}

impl JsonLine {
    fn new(level: Level, chars_max: usize) -> Self {
        let level = match level {
            Level::ERROR => "error",
            Level::WARN => "warn",
            _ => "info",
        };
        Self { line: format!("{{\"timestamp\":\"{:.6}\",\"level\":\"{level}\"", wall()), chars_max }
    }

    fn value(&mut self, name: &str, json: &str) {
        write!(self.line, ",\"{name}\":{json}").expect("a string takes everything");
    }

    fn text(&mut self, name: &str, text: &str) {
        let json = serde_json::Value::from(cut(text, self.chars_max)).to_string();
        self.value(name, &json);
    }

    fn end(self) -> String {
        escaped(self.line + "}\n")
    }
}

impl Visit for JsonLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == FIELDS { self.value(FIELDS, &text) } else { self.text(field.name(), &text) }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.value(field.name(), &value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.value(field.name(), &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field.name(), &value.to_string());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.value(field.name(), &serde_json::Value::from(value).to_string());
    }
}

/// The same JSON with characters escaped that a terminal interprets: C1 controls, and those that change the text
/// direction.
fn escaped(json: String) -> String {
    let turns =
        |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let obeyed = |c: char| matches!(c, '\u{7f}'..='\u{9f}') || turns(c);
    if json.is_ascii() && !json.contains('\u{7f}') || !json.contains(obeyed) {
        return json;
    }
    let escape = |c: char| if obeyed(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    json.chars().map(escape).collect()
}

#[expect(clippy::disallowed_methods, reason = "a log line shows the wall clock; nothing depends on it")]
fn wall() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing::{error, info, warn};

    /// A subscriber that keeps the lines of one thread.
    struct Lines(LogFormat, Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.1.lock().unwrap().push(line(self.0, event, VALUE_CHARS_MAX));
        }
    }

    fn lines(format: LogFormat, log: impl FnOnce()) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Lines(format, lines.clone()));
        tracing::subscriber::with_default(subscriber, log);
        std::mem::take(&mut lines.lock().unwrap())
    }

    #[test]
    fn a_line_of_text_has_short_ids_and_units_and_leaves_out_what_is_none() {
        let log = || {
            let id = crate::decide::id::EventId([0xab; 16]);
            let (age_seconds, none) = (1.149, None::<u64>);
            info!(target: "hookonce", event = %id, attempt = 1_u32, none, took_ms = 829_u64, age_seconds, "done");
            warn!(target: "hookonce", message_id = "s:1", why = "it's \"a\"", "quarantined");
            error!(target: "hookonce", "dead");
        };
        let rest = |line: &String| line.split_once(' ').map(|(_, rest)| rest.to_owned()).unwrap();
        let found: Vec<_> = lines(LogFormat::Text, log).iter().map(rest).collect();
        assert_eq!(
            found,
            [
                "INFO done      event=abababab attempt=1 took=829ms age=1.1s\n",
                "WARN quarantined message=s:1 why=\"it's \\\"a\\\"\"\n",
                "ERROR dead\n",
            ]
        );
        let dated = lines(LogFormat::DatedText, || error!(target: "hookonce", "dead"));
        let time = dated[0].strip_suffix(" ERROR dead\n").unwrap();
        assert!(jiff::fmt::strtime::parse("%Y-%m-%d %H:%M:%S%.3f", time).is_ok(), "{time}");
    }

    #[test]
    fn the_time_of_a_line_is_its_own_whatever_the_last_lines_was() {
        for micros in [0, 999_999, 1_000_000, 86_400_000_000 - 1, 86_400_000_000, 1_770_481_240_123_999, 1_000_000] {
            let at = jiff::Timestamp::from_microsecond(micros).unwrap();
            for (format, text) in
                [(LogFormat::Text, "%H:%M:%S%.3f"), (LogFormat::DatedText, "%Y-%m-%d %H:%M:%S%.3f")].repeat(2)
            {
                let mut line = String::new();
                write_time(&mut line, format, at);
                assert_eq!(line, at.strftime(text).to_string());
            }
        }
    }

    #[test]
    fn a_line_of_json_has_whole_ids_and_numbers_and_cannot_steer_a_terminal() {
        let why = "\n\"\u{1b}[31m\u{9b}\u{202e}é";
        let log = || {
            let id = crate::decide::id::EventId([0xab; 16]);
            warn!(target: "hookonce", event = %id, attempt = 1_u32, took_ms = 829_u64, age_seconds = 1.5, why, "done");
        };
        let found = lines(LogFormat::Json, log);
        assert!(!found[0].trim_end().contains(['\u{1b}', '\u{9b}', '\u{202e}', '\n']), "{}", found[0]);
        let mut value: serde_json::Value = serde_json::from_str(&found[0]).expect("JSON");
        let time = value["timestamp"].take();
        assert!(time.as_str().is_some_and(|time| time.parse::<jiff::Timestamp>().is_ok()), "{time}");
        let id = "abababab-abab-abab-abab-abababababab";
        let expected = serde_json::json!({
            "timestamp": null, "level": "warn", "message": "done", "event": id, "attempt": 1, "took_ms": 829,
            "age_seconds": 1.5, "why": why,
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn dropped_lines_are_counted_in_the_format_of_the_others() {
        assert_eq!(lost_lines(LogFormat::Text, 3), "3 lines were dropped: the log is too slow\n");
        let line: serde_json::Value = serde_json::from_str(&lost_lines(LogFormat::Json, 3)).expect("JSON");
        assert_eq!((&line["message"], &line["lines"]), (&"log".into(), &3.into()));
    }

    /// The line as it was formatted before `tracing`: details as texts, each formatted separately.
    fn former(word: &str, details: &[(&str, &str)]) -> String {
        let mut line = format!("{} INFO {word:<9}", wall().strftime("%H:%M:%S%.3f"));
        for (name, value) in details {
            line.push(' ');
            line += &crate::observe::log::text_field(name, value);
        }
        line.push('\n');
        line
    }

    /// `cargo test --release --lib what_a_line_costs -- --ignored --nocapture`
    #[test]
    #[ignore = "it measures"]
    fn what_a_line_costs() {
        use rustix::time::{ClockId, clock_gettime};
        let id = crate::decide::id::EventId([0xab; 16]);
        let cpu = || {
            let now = clock_gettime(ClockId::ThreadCPUTime);
            now.tv_sec * 1_000_000_000 + now.tv_nsec
        };
        let lines = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Lines(LogFormat::DatedText, lines.clone()));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..200 {
                let start = cpu();
                for n in 0..100_u32 {
                    let (short, attempt, took) = (id.short(), n.to_string(), format!("{}ms", 829));
                    let details = [("event", &*short), ("source", "ghcr"), ("attempt", &*attempt), ("took", &*took)];
                    lines.lock().unwrap().push(former("done", &details));
                }
                before.push(cpu() - start);
                lines.lock().unwrap().clear();
                let start = cpu();
                for n in 0..100_u32 {
                    info!(target: "hookonce", event = %id, source = "ghcr", attempt = n, took_ms = 829_u64, "done");
                }
                after.push(cpu() - start);
                lines.lock().unwrap().clear();
            }
        });
        let median = |times: &mut Vec<i64>| {
            times.sort_unstable();
            times[times.len() / 2] / 100
        };
        eprintln!("a line: {} ns before, {} ns now", median(&mut before), median(&mut after));
    }
}
