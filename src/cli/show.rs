//! `hookonce show`: one event with its deliveries, attempts and output, and why it is in its state.

use super::backend::{BackendArgs, BackendPurpose, short, text};
use super::error::CommandError;
use super::list::{state, times, value};
use super::terminal::{OutputFormat, Terminal, one_line, strip_control_chars};
use crate::config::EnvLookup;
use crate::decide::time::{Timestamp, approximate_duration};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;
use std::io::{self, Write};

/// Lines of output shown without `--output`.
const OUTPUT_LINES: usize = 10;
/// Width of the column of labels.
const INDENT: usize = 12;

/// What to show.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Event id, its last characters, or the id of one of its deliveries
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    event: String,
    /// Print all of the output, not only its last lines
    #[arg(long)]
    output: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// How much of an attempt's output is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutputExtent {
    /// The last lines.
    Tail,
    /// All that is kept.
    All,
}

/// Shows one event.
pub(crate) async fn show(asked: &ShowArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let backend = asked.at.open(BackendPurpose::Read, env).await?;
    let story = backend.show(&asked.event).await?;
    let terminal = Terminal::stdout(asked.json);
    match terminal.form {
        OutputFormat::Json => writeln!(out, "{story:#}")?,
        OutputFormat::Screen(_) | OutputFormat::Lines => {
            let output = if asked.output { OutputExtent::All } else { OutputExtent::Tail };
            EventPrinter { terminal, out }.print_event(&story, output)?;
        }
    }
    Ok(0)
}

/// Prints the details of an event as labels and values.
pub(super) struct EventPrinter<'o, W> {
    pub(super) terminal: Terminal,
    pub(super) out: &'o mut W,
}

impl<W: Write> EventPrinter<'_, W> {
    fn print_event(&mut self, story: &Value, output: OutputExtent) -> io::Result<()> {
        self.print_wrapped("event", text(story, "event"))?;
        self.print_state(story)?;
        self.print_wrapped("source", &format!("{}, route {}", text(story, "source"), text(story, "route")))?;
        self.print_wrapped("received", &self.terminal.format_time(&story["received_at"]))?;
        if story["ended_at"].is_string() {
            self.print_wrapped("ended", &self.terminal.format_time(&story["ended_at"]))?;
        }
        let again = &story["published_again"];
        if again.is_object() {
            let (last, message) = (self.terminal.format_time(&again["last_at"]), text(again, "message"));
            let over = if story["ended_at"].is_string() { format!(", last {last}") } else { String::new() };
            self.print_wrapped("published", &format!("again {}{over}, message {message}", times(again)))?;
        }
        let rollback = &story["rollback"];
        if rollback.is_object() {
            let (from, to) = (text(rollback, "from"), text(rollback, "to"));
            self.print_wrapped(
                "rolls back",
                &format!("from {from}, which is not healthy, to {to}, the last good one"),
            )?;
        }
        let back = &story["rolled_back_by"];
        if back.is_object() {
            self.print_wrapped("roll-back", &format!("rolled back by {} ({})", short(back), state(back).0))?;
        } else if story["cause"] == "unhealthy" {
            self.print_wrapped("roll-back", "not rolled back")?;
        }
        if story["digest"].is_string() {
            self.print_wrapped("digest", text(story, "digest"))?;
        }
        self.notifications(story)?;
        self.fields(story)?;
        self.print_wrapped("once per", &identities(story))?;
        self.deliveries(story)?;
        let body = match story["has_body"] == true {
            _ if rollback.is_object() => "that of the last good event",
            true => "kept",
            false => "no longer kept, so it cannot be replayed",
        };
        self.print_wrapped("body", body)?;
        self.headers(story)?;
        self.attempts(story, output)?;
        self.receipt(story, output)
    }

    /// Prints why the event is in its state, the state in its colour.
    pub(super) fn print_state(&mut self, story: &Value) -> io::Result<()> {
        let why = text(story, "why");
        let (word, rest) = why.split_once(':').unwrap_or((why, ""));
        let (_, code) = state(story);
        let lines = self.terminal.wrap(one_line(rest).trim_start(), INDENT + word.len() + 2);
        let first = format!("{}: {}", self.terminal.paint(code, word), lines.first().map_or("", |line| line));
        self.label("state", &first)?;
        lines.iter().skip(1).try_for_each(|line| self.label("", line))
    }

    /// Prints which event it tells of, or which notifications tell of it.
    fn notifications(&mut self, story: &Value) -> io::Result<()> {
        let of = &story["notification"];
        if of.is_object() {
            let words = match text(of, "on") {
                "summary" => "more events have ended than may be told; the first is".to_owned(),
                on => format!("tells that it ended ({on}): event"),
            };
            self.print_wrapped("tells of", &format!("{words} {}", text(of, "of")))?;
        }
        let mut label = "told by";
        for id in story["notifications"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.label(std::mem::take(&mut label), &one_line(id))?;
        }
        Ok(())
    }

    fn fields(&mut self, story: &Value) -> io::Result<()> {
        let Some(fields) = story["fields"].as_object() else { return Ok(()) };
        let widest = fields.keys().map(|name| name.chars().count()).max().unwrap_or(0);
        let mut label = "fields";
        for (name, found) in fields {
            self.label(std::mem::take(&mut label), &format!("{name:<widest$}  {}", value(found)))?;
        }
        Ok(())
    }

    /// Prints the headers that are kept until the event ends, to be passed on.
    fn headers(&mut self, story: &Value) -> io::Result<()> {
        let mut label = "passes on";
        for (name, shown) in story["headers"].as_object().into_iter().flatten() {
            let line = format!("{}  {}", one_line(name), shown.as_str().unwrap_or_default());
            self.label(std::mem::take(&mut label), &line)?;
        }
        Ok(())
    }

    fn deliveries(&mut self, story: &Value) -> io::Result<()> {
        let first = story["delivery"].as_str().map_or("without an id".to_owned(), one_line);
        self.label("deliveries", &first)?;
        let empty = Vec::new();
        let seen = story["deliveries"].as_array().unwrap_or(&empty);
        for sighting in seen {
            let id = sighting["delivery"].as_str().map_or("without an id".to_owned(), one_line);
            let (at, same) = (self.terminal.ago(&sighting["at"]), same(text(sighting, "same")));
            self.label("", &format!("{id}  duplicate, {at}: {same}"))?;
        }
        let more = story["duplicates"].as_u64().unwrap_or(0).saturating_sub(seen.len() as u64);
        if more > 0 { self.label("", &format!("and {more} more duplicates")) } else { Ok(()) }
    }

    pub(super) fn attempts(&mut self, story: &Value, output: OutputExtent) -> io::Result<()> {
        let mut label = "attempts";
        for tried in story["attempts"].as_array().into_iter().flatten() {
            self.print_wrapped(std::mem::take(&mut label), &self.attempt_line(tried, story["life"] != 1))?;
            self.output(text(tried, "output"), output)?;
        }
        Ok(())
    }

    fn attempt_line(&self, tried: &Value, lives: bool) -> String {
        let time = |member: &str| Timestamp::parse(text(tried, member)).unwrap_or_default();
        let took = approximate_duration(time("ended_at").since(time("started_at")), 1);
        let life = if lives { format!("life {}, ", tried["life"]) } else { String::new() };
        let why = strip_control_chars(text(tried, "why")).replace('\n', " ");
        let why = if why.is_empty() { why } else { format!(": {why}") };
        let ago = self.terminal.ago(&tried["ended_at"]);
        format!("{life}attempt {} {} after {took}, {ago}{why}", tried["attempt"], text(tried, "outcome"))
    }

    fn output(&mut self, text: &str, output: OutputExtent) -> io::Result<()> {
        let tamed = strip_control_chars(text);
        let lines: Vec<_> = tamed.lines().collect();
        let skipped = if output == OutputExtent::All { 0 } else { lines.len().saturating_sub(OUTPUT_LINES) };
        if skipped > 0 {
            let more = format!("… {skipped} lines before; --output shows all");
            self.label("", &format!("  {}", self.terminal.paint("2", &more)))?;
        }
        lines[skipped..].iter().try_for_each(|line| self.label("", &format!("  {}", self.terminal.paint("2", line))))
    }

    fn receipt(&mut self, story: &Value, output: OutputExtent) -> io::Result<()> {
        let Some(receipt) = story.get("receipt") else { return Ok(()) };
        let body = text(receipt, "body");
        let cut = if receipt["cut"] == true { ", truncated" } else { "" };
        self.print_wrapped("receipt", &format!("{}, {} bytes{cut}", receipt["status"], body.len()))?;
        self.output(body, output)
    }

    /// Prints a label and a text, wrapped to the terminal's width.
    pub(super) fn print_wrapped(&mut self, label: &str, text: &str) -> io::Result<()> {
        let mut label = label;
        for line in self.terminal.wrap(&one_line(text), INDENT) {
            self.label(std::mem::take(&mut label), &line)?;
        }
        Ok(())
    }

    pub(super) fn label(&mut self, label: &str, line: &str) -> io::Result<()> {
        let label = self.terminal.paint(if label.is_empty() { "" } else { "2" }, &format!("{label:<INDENT$}"));
        writeln!(self.out, "{}", format!("{label}{line}").trim_end())
    }
}

fn identities(story: &Value) -> String {
    let words = story["identities"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<_> = words.map(same).collect();
    if words.is_empty() { "nothing".into() } else { words.join(" · ") }
}

/// An identity in words.
fn same(word: &str) -> String {
    match word {
        "delivery" => "the delivery id".into(),
        "body" => "the body".into(),
        "change" => "the change".into(),
        fields => one_line(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::ColorChoice;
    use serde_json::json;

    fn told(story: &Value, form: OutputFormat, ink: ColorChoice, output: OutputExtent) -> String {
        let mut out = Vec::new();
        let terminal = Terminal { form, ink, now: Timestamp::parse("2026-02-07T16:30:00Z").unwrap() };
        EventPrinter { terminal, out: &mut out }.print_event(story, output).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn story() -> Value {
        let lines = (1..=12).fold(String::new(), |all, n| format!("{all}line {n}\n"));
        json!({
            "event": "019c3812-0000-7000-8000-00003fa9c01e", "source": "ghcr", "route": "deploy", "delivery": "f168a0a0",
            "fields": { "package": "jamiec_ts", "tag": "latest\u{1b}[31m" }, "state": "dead", "cause": "failed",
            "received_at": "2026-02-07T16:20:40.5Z", "ended_at": "2026-02-07T16:21:00Z", "life": 1,
            "why": "dead: it failed because step 1 of block 1 exited with 1: docker compose pull",
            "identities": ["delivery", "body", "change"], "duplicates": 3,
            "deliveries": [{ "at": "2026-02-07T16:20:50Z", "delivery": "f27359e0", "same": "change" }],
            "attempts": [{ "life": 1, "attempt": 1, "started_at": "2026-02-07T16:20:41Z", "outcome": "failed",
                "ended_at": "2026-02-07T16:20:41.829Z", "why": "step 1 of block 1 exited with 1", "output": lines }],
            "has_body": false, "receipt": { "status": 500, "headers": [], "body": "no", "cut": false },
        })
    }

    #[test]
    fn an_event_is_told_on_one_page() {
        let page = told(&story(), OutputFormat::Lines, ColorChoice::Plain, OutputExtent::Tail);
        let expected = "event       019c3812-0000-7000-8000-00003fa9c01e
state       dead: it failed because step 1 of block 1 exited with 1: docker compose pull
source      ghcr, route deploy
received    2026-02-07 16:20:40 UTC (9m ago)
ended       2026-02-07 16:21:00 UTC (9m ago)
fields      package  jamiec_ts
            tag      latest
once per    the delivery id · the body · the change
deliveries  f168a0a0
            f27359e0  duplicate, 9m ago: the change
            and 2 more duplicates
body        no longer kept, so it cannot be replayed
attempts    attempt 1 failed after 829ms, 9m ago: step 1 of block 1 exited with 1
              … 2 lines before; --output shows all
              line 3
";
        assert!(page.starts_with(expected), "{page}");
        assert!(page.ends_with("  line 12\nreceipt     500, 2 bytes\n              no\n"), "{page}");
        assert!(
            told(&story(), OutputFormat::Lines, ColorChoice::Plain, OutputExtent::All)
                .contains("              line 1\n")
        );
    }

    #[test]
    fn a_page_fits_its_terminal_and_has_colours_only_there() {
        let page = told(&story(), OutputFormat::Screen(50), ColorChoice::Colour, OutputExtent::Tail);
        assert!(
            page.contains("\x1b[31mdead\x1b[0m: it failed because step 1 of\n            block 1 exited"),
            "{page}"
        );
        let plain = told(&story(), OutputFormat::Screen(50), ColorChoice::Plain, OutputExtent::Tail);
        assert!(plain.lines().all(|line| line.chars().count() <= 52), "{plain}");
        assert!(!plain.contains('\x1b'));
    }
}
