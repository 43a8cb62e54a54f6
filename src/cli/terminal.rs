//! Output to a terminal, with its width and colours, or to a pipe. Strips control characters from untrusted text, so
//! that an event cannot control the terminal of an operator who looks at it.

use super::error::CommandError;
use crate::config::diagnostic::ColorChoice;
use crate::decide::time::{Timestamp, approximate_duration};
use crate::store::clock::StoreClock;
use serde_json::Value;
use std::io;
use std::io::{IsTerminal, Write};

/// Width of a terminal that does not report it.
const WIDTH: usize = 80;

/// Where output goes, and the time that ages are relative to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// The output format.
    pub form: OutputFormat,
    /// Whether output is coloured.
    pub ink: ColorChoice,
    /// The current time.
    pub now: Timestamp,
}

/// Output format of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputFormat {
    /// For people, at most this many columns wide.
    Screen(usize),
    /// Tab-separated lines, when the output is a pipe.
    Lines,
    /// JSON.
    Json,
}

impl Terminal {
    /// Standard output.
    pub(crate) fn stdout(json: bool) -> Self {
        let out = io::stdout();
        let form = match (json, out.is_terminal()) {
            (true, _) => OutputFormat::Json,
            (false, true) => OutputFormat::Screen(width(&out)),
            (false, false) => OutputFormat::Lines,
        };
        Self { form, ink: crate::cli::color_choice(&out), now: StoreClock::wall(Timestamp::default()).now() }
    }

    /// Text in a colour, if colours are on.
    pub(crate) fn paint(&self, code: &str, text: &str) -> String {
        if code.is_empty() { text.to_owned() } else { self.ink.paint(code, text) }
    }

    /// A JSON timestamp as an age.
    pub(crate) fn ago(&self, at: &Value) -> String {
        at.as_str().and_then(Timestamp::parse).map(|at| ago(at, self.now)).unwrap_or_default()
    }

    /// A JSON timestamp as time and age.
    pub(crate) fn format_time(&self, at: &Value) -> String {
        let Some(time) = at.as_str().and_then(Timestamp::parse) else { return String::new() };
        let whole = Timestamp(time.0 - time.0.rem_euclid(1_000_000)).to_string();
        format!("{} ({})", whole.replace(".000000", "").replace('T', " ").replace('Z', " UTC"), ago(time, self.now))
    }

    /// Wraps text to the width that an indentation leaves.
    pub(crate) fn wrap(&self, text: &str, indent: usize) -> Vec<String> {
        match self.form {
            OutputFormat::Screen(width) => wrap(text, width.saturating_sub(indent).max(20)),
            OutputFormat::Lines | OutputFormat::Json => vec![text.to_owned()],
        }
    }
}

fn width(out: &io::Stdout) -> usize {
    let asked = rustix::termios::tcgetwinsize(out).map(|size| usize::from(size.ws_col));
    asked.ok().filter(|columns| *columns > 0).unwrap_or(WIDTH)
}

/// How long ago, or in how long.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    match (now.since(at), at.since(now)) {
        (past, future) if past.as_secs() == 0 && future.as_secs() == 0 => "just now".into(),
        (past, future) if past > future => format!("{} ago", approximate_duration(past, 1)),
        (_, future) => format!("in {}", approximate_duration(future, 1)),
    }
}

/// Makes untrusted text safe for a terminal: removes escape sequences, shows other control characters as `\u{7}`. Keeps
/// newlines and tabs.
pub(crate) fn strip_control_chars(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                while chars.next_if(|c| !('@'..='~').contains(c)).is_some() {}
                chars.next();
            }
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            _ if c.is_control() || is_bidi_control(c) => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

/// Whether a character changes the direction of the text after it.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The same on one line: a newline is shown as `\n`, a tab as `\t`.
pub(crate) fn one_line(text: &str) -> String {
    strip_control_chars(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// The same JSON on one line, safe for a terminal: characters that need escaping occur only inside strings.
pub(crate) fn one_line_json(value: &Value) -> String {
    let escaped = |c: char| match c {
        c if c.is_control() || is_bidi_control(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.into(),
    };
    value.to_string().chars().map(escaped).collect()
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one line at least");
        let long = line.chars().count() + 1 + word.chars().count() > width;
        if long && !line.is_empty() {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// Asks the operator to confirm, unless `--yes` was given. Without a terminal the answer is no.
pub(crate) async fn confirm(question: &str, said_before: bool) -> Result<(), CommandError> {
    if said_before {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CommandError::no(format!("{question} Add --yes to go on; nothing was done")));
    }
    write!(io::stderr(), "{question} Go on? [y/N] ").and_then(|()| io::stderr().flush()).unwrap_or_default();
    // On its own thread, so that Ctrl-C still works.
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = answer.await.ok().and_then(Result::ok).unwrap_or_default();
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CommandError::no("nothing was done")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::time::Duration;

    #[test]
    fn times_are_told_relative_to_now() {
        let now = Timestamp(1_000_000_000_000_000);
        for (seconds, said) in
            [(0, "just now"), (1, "1s ago"), (59, "59s ago"), (60, "1m ago"), (3_599, "59m ago"), (90_000, "1d ago")]
        {
            assert_eq!(ago(now - Duration::from_secs(seconds), now), said);
        }
        assert_eq!(ago(now + Duration::from_secs(5), now), "in 5s");
        assert_eq!(ago(now + Duration::from_millis(5), now), "just now");
    }

    #[test]
    fn nothing_from_outside_drives_the_terminal() {
        for (text, tamed) in [
            ("plain é 漢", "plain é 漢"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\r\nb\rc\td", "a\nb\nc\td"),
            ("\u{202e}evil", "\\u{202e}evil"),
            ("\u{1b}[", ""),
            ("\u{1b}", "\\u{1b}"),
        ] {
            assert_eq!(strip_control_chars(text), tamed, "{text:?}");
        }
        assert_eq!(one_line("a\nb\tc"), "a\\nb\\tc");
    }

    #[test]
    fn json_on_one_line_stays_the_same_json_whatever_is_in_it() {
        let all: String = ('\0'..='\u{2100}').chain(['\u{feff}', '\u{10ffff}']).collect();
        let value = serde_json::json!({ "a\u{202e}b": all, "n": 1 });
        let line = one_line_json(&value);
        assert!(!line.chars().any(|c| c.is_control() || is_bidi_control(c)), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).ok(), Some(value));
    }

    #[test]
    fn long_text_is_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("averylongword a b", 5), ["averylongword", "a b"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn a_moment_is_told_both_ways() {
        let now = Timestamp::parse("2026-02-07T16:23:40Z").unwrap();
        let terminal = Terminal { form: OutputFormat::Lines, ink: ColorChoice::Plain, now };
        let at = Value::from("2026-02-07T16:20:40.123456Z");
        assert_eq!(terminal.format_time(&at), "2026-02-07 16:20:40 UTC (2m ago)");
        assert_eq!(terminal.ago(&Value::Null), "");
    }
}
