//! `hookonce tail`: follows the events of a node live.

use super::backend::{AdminClient, BackendArgs, SseReader, short, text};
use super::error::{CommandError, print_error};
use super::list::{state, value};
use super::terminal::{OutputFormat, Terminal, one_line, strip_control_chars};
use crate::config::EnvLookup;
use crate::decide::time::Timestamp;
use crate::observe::log::text_field;
use crate::store::clock::StoreClock;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// Maximum bytes of a line of output; a longer one is printed in pieces.
const LINE_BYTES_MAX: usize = 4 << 10;

/// What to follow.
#[derive(Args, Debug)]
pub(crate) struct TailArgs {
    /// Only events of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only this event, until it ends
    #[arg(long, value_name = "EVENT", value_parser = NonEmptyStringValueParser::new())]
    event: Option<String>,
    /// Print JSON, one document per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Follows a node until it stops, the event ends, or the command is interrupted.
pub(crate) async fn tail(asked: &TailArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let port = asked.at.admin_client(env).await?;
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Ok(0),
        followed = follow(asked, &port, out) => followed,
    }
}

async fn follow(asked: &TailArgs, port: &AdminClient, out: &mut impl Write) -> Result<u8, CommandError> {
    let only = match &asked.event {
        Some(name) => Some(text(&port.show(name).await?, "event").to_owned()),
        None => None,
    };
    let mut news = port.tail(only.as_deref()).await?; // before its state is looked up, so that nothing is missed between the two
    let mut teller = TailPrinter::new(Terminal::stdout(asked.json));
    if let Some(event) = &only {
        let story = port.show(event).await?;
        if story["ended_at"].is_string() {
            print_error(format!("{} has ended: see `hookonce show {}`", short(&story), short(&story)));
            return Ok(0);
        }
    }
    let mut wanted = TailFilter { source: asked.source.clone(), only, known: BTreeSet::new() };
    wanted.load_running(port).await?;
    while let Some((kind, document)) = news.next().await? {
        if wanted.matches(&kind, &document) {
            teller.print(&kind, &document, out)?;
        }
        if wanted.only.is_some() && wanted.matches(&kind, &document) && document["ended_at"].is_string() {
            return Ok(0);
        }
    }
    teller.flush(out)?;
    print_error("the node has stopped");
    Ok(0)
}

/// The filter of stream events.
struct TailFilter {
    source: Option<String>,
    only: Option<String>,
    /// Known events of the source, because output names only its event.
    known: BTreeSet<String>,
}

impl TailFilter {
    /// Adds the events that are already running.
    async fn load_running(&mut self, port: &AdminClient) -> Result<(), CommandError> {
        if let Some(source) = self.source.clone() {
            for event in port.running(&source).await? {
                self.known.insert(text(&event, "event").to_owned());
            }
        }
        Ok(())
    }

    fn matches(&mut self, kind: &str, document: &Value) -> bool {
        let event = text(document, "event");
        let of_source = match (&self.source, kind) {
            (None, _) | (_, "missed") => true,
            (Some(source), "state" | "delivery") => text(document, "source") == source,
            _ => self.known.contains(event),
        };
        if of_source && self.source.is_some() && kind == "state" {
            self.known.insert(event.to_owned());
        }
        of_source && self.only.as_ref().is_none_or(|only| only == event)
    }
}

/// Prints stream events, line by line.
pub(super) struct TailPrinter {
    paper: Terminal,
    clock: StoreClock,
    /// Incomplete lines of output, by event.
    open: BTreeMap<String, String>,
}

impl TailPrinter {
    pub(super) fn new(paper: Terminal) -> Self {
        Self { paper, clock: StoreClock::wall(Timestamp::default()), open: BTreeMap::new() }
    }

    /// Prints one stream event and flushes it.
    pub(super) fn print(&mut self, kind: &str, document: &Value, out: &mut impl Write) -> Result<(), CommandError> {
        if self.paper.form == OutputFormat::Json {
            let mut line = json!({ "kind": kind });
            if let (Some(line), Some(document)) = (line.as_object_mut(), document.as_object()) {
                line.extend(document.clone());
            }
            writeln!(out, "{line}")?;
        } else {
            match kind {
                "state" => {
                    self.close(text(document, "event"), out)?;
                    writeln!(out, "{}", self.change(document))?;
                }
                "delivery" => writeln!(out, "{}", self.delivery(document))?,
                "output" => self.output(document, out)?,
                _ => writeln!(out, "{} events were missed: the output is read too slowly", document["missed"])?,
            }
        }
        Ok(out.flush()?)
    }

    /// Prints incomplete lines.
    pub(super) fn flush(&mut self, out: &mut impl Write) -> Result<(), CommandError> {
        let events: Vec<_> = self.open.keys().cloned().collect();
        events.iter().try_for_each(|event| self.close(event, out))
    }

    fn time(&self) -> String {
        let now = self.clock.now().to_string();
        now.get(11..23).unwrap_or(&now).to_owned()
    }

    /// A delivery that made no event: the event it repeats, or why it was rejected.
    fn delivery(&self, heard: &Value) -> String {
        let event = if heard["event"].is_string() { self.paper.paint("1", &short(heard)) } else { "-".into() };
        let mut told = vec![self.time(), self.paper.paint("2", text(heard, "verdict")), event];
        let turned_away = !text(heard, "reason").is_empty();
        let said = ["source", "path", "delivery", "same", "status", "reason", "why"].into_iter().filter_map(|name| {
            let said = match &heard[name] {
                Value::String(said) if !said.is_empty() => said.clone(),
                Value::Number(status) if turned_away => status.to_string(),
                _ => return None,
            };
            Some(text_field(name, &said))
        });
        told.extend(said);
        told.join(" ")
    }

    fn change(&self, event: &Value) -> String {
        let (_, code) = state(event);
        let word = self.paper.paint(code, &format!("{:<7}", text(event, "state")));
        let mut told = vec![self.time(), word, self.paper.paint("1", &short(event))];
        let attempt = event["attempt"].as_u64().unwrap_or(0);
        told.extend(
            ["source", "route", "cause", "how"]
                .into_iter()
                .filter(|name| event[name].is_string())
                .map(|name| format!("{name}={}", one_line(text(event, name)))),
        );
        let begins = matches!((text(event, "state"), attempt), ("waiting", 0) | ("running", 1));
        let fields = event["fields"].as_object().into_iter().flatten().filter(|_| begins);
        told.extend(fields.map(|(name, found)| format!("{name}={}", value(found))));
        if attempt > 0 {
            told.push(format!("attempt={attempt}"));
        }
        let why = text(event, "why").trim_start_matches(text(event, "state")).trim_start_matches(": ");
        if !why.is_empty() {
            told.push(text_field("why", why));
        }
        told.join(" ")
    }

    fn output(&mut self, chunk: &Value, out: &mut impl Write) -> Result<(), CommandError> {
        let event = text(chunk, "event");
        let mut open = self.open.remove(event).unwrap_or_default();
        open += text(chunk, "text");
        while let Some(end) = open.find('\n') {
            let rest = open.split_off(end + 1);
            self.line(event, open.trim_end_matches(['\r', '\n']), out)?;
            open = rest;
        }
        if open.len() > LINE_BYTES_MAX {
            self.line(event, &open, out)?;
        } else if !open.is_empty() {
            self.open.insert(event.to_owned(), open);
        }
        Ok(())
    }

    fn close(&mut self, event: &str, out: &mut impl Write) -> Result<(), CommandError> {
        match self.open.remove(event) {
            Some(line) => self.line(event, &line, out),
            None => Ok(()),
        }
    }

    fn line(&self, event: &str, line: &str, out: &mut impl Write) -> Result<(), CommandError> {
        for line in strip_control_chars(line).lines() {
            let id = short(&json!({ "event": event }));
            writeln!(out, "{} {line}", self.paper.paint("2", &format!("{id} |")))?;
        }
        Ok(())
    }
}

/// Follows these events to their end.
pub(super) async fn follow_until_ended(
    news: &mut SseReader,
    events: &[String],
    teller: &mut TailPrinter,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let mut left: BTreeSet<&str> = events.iter().map(String::as_str).collect();
    while !left.is_empty() {
        let Some((kind, document)) = news.next().await? else {
            return Err(CommandError::unknown("the node stopped before the event ended"));
        };
        let event = text(&document, "event");
        if left.contains(event) && kind != "delivery" {
            teller.print(&kind, &document, out)?;
        }
        if document["ended_at"].is_string() {
            left.remove(event);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::ColorChoice;

    fn told(news: &[(&str, Value)]) -> String {
        let paper = Terminal { form: OutputFormat::Lines, ink: ColorChoice::Plain, now: Timestamp(0) };
        let (mut teller, mut out) = (TailPrinter::new(paper), Vec::new());
        for (kind, document) in news {
            teller.print(kind, document, &mut out).unwrap();
        }
        teller.flush(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn output_is_told_in_whole_lines_of_one_event_each() {
        let chunk = |event: &str, text: &str| ("output", json!({ "event": event, "text": text }));
        let news = [chunk("aaaaaaaa", "one\ntw"), chunk("bbbbbbbb", "other\r\n"), chunk("aaaaaaaa", "o\nrest\u{7}")];
        assert_eq!(told(&news), "aaaaaaaa | one\nbbbbbbbb | other\naaaaaaaa | two\naaaaaaaa | rest\\u{7}\n");
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        assert_eq!(told(&[chunk("aaaaaaaa", &long)]), format!("aaaaaaaa | {long}\n"));
    }

    #[test]
    fn a_change_of_state_is_one_line_with_its_fields_where_it_begins() {
        let event = json!({ "event": "019c-3fa9c01e", "state": "running", "source": "ghcr", "route": "deploy",
            "fields": { "tag": "a\nb" }, "attempt": 1 });
        let line = told(&[("state", event.clone())]);
        assert_eq!(&line[12..], " running 3fa9c01e source=ghcr route=deploy tag=a\\nb attempt=1\n");
        let mut done = event;
        (done["state"], done["how"], done["ended_at"]) = ("done".into(), "acted".into(), "t".into());
        assert_eq!(&told(&[("state", done)])[12..], " done    3fa9c01e source=ghcr route=deploy how=acted attempt=1\n");
    }
}
