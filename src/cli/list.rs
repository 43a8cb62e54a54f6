//! `hookonce list`: events, newest first.

use super::backend::{BackendArgs, BackendPurpose, short, text};
use super::error::{CommandError, print_error};
use super::terminal::{OutputFormat, Terminal, one_line, one_line_json};
use super::text_table::{TextTable, TextTableCell};
use crate::config::EnvLookup;
use crate::decide::id::EventId;
use crate::store::EventQuery;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;

/// Minimum width of a column that is never cut.
const WHOLE: usize = usize::MAX;
/// Minimum width of a name or value; cut shorter it would be useless.
const LEAST: usize = 10;

/// What to list.
#[derive(Args, Debug)]
#[command(
    after_help = "A roll-back or a notification is listed beside the event that made it: its id begins with that event's time."
)]
pub(crate) struct ListArgs {
    /// Only events of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only events on this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Only events in this state
    #[arg(long, value_name = "STATE", value_parser = ["waiting", "running", "done", "dead"])]
    state: Option<String>,
    /// Maximum number of events to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,
    /// Only events older than this one
    #[arg(long, value_name = "EVENT")]
    before: Option<String>,
    /// List quarantined stream messages instead of events
    #[arg(long, conflicts_with_all = ["source", "route", "state", "before"])]
    quarantine: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Lists events.
pub(crate) async fn list(asked: &ListArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let backend = asked.at.open(BackendPurpose::Read, env).await?;
    if asked.quarantine {
        return quarantined(backend.quarantined().await?, asked, out);
    }
    let before = match &asked.before {
        Some(name) => text(&backend.show(name).await?, "event").parse::<EventId>().ok(),
        None => None,
    };
    let limit = usize::from(asked.limit);
    let (source, route, state) = (asked.source.clone(), asked.route.clone(), asked.state.clone());
    let events = backend.list(EventQuery { source, route, state, before, limit, ..EventQuery::default() }).await?;
    let next = events.last().filter(|_| events.len() >= limit);
    let terminal = Terminal::stdout(asked.json);
    match terminal.form {
        OutputFormat::Json => {
            let next = next.map(|event| event["event"].clone());
            writeln!(out, "{:#}", json!({ "events": events, "next": next }))?;
        }
        OutputFormat::Lines => events.iter().try_for_each(|event| writeln!(out, "{}", line(event)))?,
        OutputFormat::Screen(_) if events.is_empty() => print_error("no events"),
        OutputFormat::Screen(width) => {
            write!(out, "{}", table(asked, &events, &terminal).render(&terminal, width))?;
            if let Some(last) = next {
                let more = format!("older events: --before {}", short(last));
                writeln!(out, "{}", terminal.paint("2", &more))?;
            }
        }
    }
    Ok(0)
}

/// Lists quarantined stream messages.
fn quarantined(mut messages: Vec<Value>, asked: &ListArgs, out: &mut impl Write) -> Result<u8, CommandError> {
    messages.truncate(usize::from(asked.limit));
    let terminal = Terminal::stdout(asked.json);
    let names = ["message", "source", "subject", "at", "bytes", "why"];
    match terminal.form {
        OutputFormat::Json => writeln!(out, "{:#}", json!({ "messages": messages }))?,
        OutputFormat::Screen(_) if messages.is_empty() => print_error("no messages in quarantine"),
        OutputFormat::Lines => {
            let cell = |message: &Value, name: &str| one_line(&value(&message[name]));
            let line = |message: &Value| names.map(|name| cell(message, name)).join("\t");
            messages.iter().try_for_each(|message| writeln!(out, "{}", line(message)))?;
        }
        OutputFormat::Screen(width) => {
            let mut table = TextTable::default().column("message", WHOLE).column("since", WHOLE);
            for name in ["source", "subject", "bytes", "why"] {
                table = table.column(name, LEAST);
            }
            for message in &messages {
                let mut cells = vec![TextTableCell::new(one_line(text(message, "message")), "1")];
                cells.push(TextTableCell::new(terminal.ago(&message["at"]), ""));
                let others = ["source", "subject", "bytes", "why"];
                cells.extend(others.map(|name| TextTableCell::new(one_line(&value(&message[name])), "")));
                table.row(cells);
            }
            write!(out, "{}", table.render(&terminal, width))?;
        }
    }
    Ok(0)
}

/// One event as a tab-separated line; the columns are always the same, whatever fields the event has.
fn line(event: &Value) -> String {
    let how = [text(event, "how"), text(event, "cause"), text(event, "waiting_for")].concat();
    let attempt = event["attempt"].to_string();
    let cells = [
        text(event, "event"),
        text(event, "state"),
        &how,
        text(event, "source"),
        text(event, "route"),
        text(event, "received_at"),
        &attempt,
        text(event, "delivery"),
    ];
    [&cells.map(one_line)[..], &[one_line_json(&event["fields"])]].concat().join("\t")
}

fn table(asked: &ListArgs, events: &[Value], terminal: &Terminal) -> TextTable {
    let mut table = TextTable::default().column("event", WHOLE).column("state", WHOLE).column("received", WHOLE);
    let mut named = Vec::new();
    for (name, wanted) in [("source", &asked.source), ("route", &asked.route)] {
        if wanted.is_none() {
            table = table.column(name, LEAST);
            named.push(name);
        }
    }
    let fields = fields(events);
    for name in &fields {
        table = table.column(name, LEAST);
    }
    for event in events {
        let (state, code) = state(event);
        let mut cells = vec![TextTableCell::new(short(event), "1"), TextTableCell::new(state, code)];
        cells.push(TextTableCell::new(terminal.ago(&event["received_at"]), ""));
        cells.extend(named.iter().map(|name| TextTableCell::new(one_line(text(event, name)), "")));
        cells.extend(fields.iter().map(|name| TextTableCell::new(value(&event["fields"][name]), "")));
        table.row(cells);
    }
    table
}

/// The names of the listed events' fields, the most frequent first.
fn fields(events: &[Value]) -> Vec<&str> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for (name, _) in events.iter().filter_map(|event| event["fields"].as_object()).flatten() {
        match counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(name, _)| name).collect()
}

/// A field's value as people read it.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The state with how or why it ended, and its colour.
pub(super) fn state(event: &Value) -> (String, &'static str) {
    let word = text(event, "state");
    let how = [text(event, "how"), text(event, "cause")].concat();
    let (said, colour) = match (word, &*how) {
        ("done", "acted") => (word.to_owned(), "32"),
        ("done", _) => (format!("{word}: {how}"), "2"),
        ("dead", _) => (format!("{word}: {how}"), "31"),
        ("running", _) => (word.to_owned(), "36"),
        ("waiting", _) if event["waiting_for"].is_string() => (format!("{word}: {}", text(event, "waiting_for")), "33"),
        _ => (word.to_owned(), "33"),
    };
    let again = &event["published_again"];
    let said = if again.is_object() { format!("{said}, published again {}", times(again)) } else { said };
    let said = if event["rollback"].is_object() { format!("{said}, roll-back") } else { said };
    (said, colour)
}

/// How often it was published again.
pub(super) fn times(again: &Value) -> String {
    match again["times"].as_u64() {
        Some(1) => "once".into(),
        times => format!("{} times", times.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_the_fields_that_most_events_have() {
        let events = [json!({ "fields": { "b": 1 } }), json!({ "fields": { "a": 1, "b": 2 } }), json!({})];
        assert_eq!(fields(&events), ["b", "a"]);
    }

    #[test]
    fn a_line_for_programs_has_the_same_columns_whatever_is_in_it() {
        let event = json!({ "event": "e", "state": "dead", "cause": "failed", "source": "s", "route": "a\tb",
            "received_at": "t", "attempt": 2, "delivery": null, "fields": { "x": "1\n2" } });
        assert_eq!(line(&event), "e\tdead\tfailed\ts\ta\\tb\tt\t2\t\t{\"x\":\"1\\n2\"}");
        let turned = json!({ "event": "e", "delivery": "\u{202e}", "fields": { "x": "\u{202e}\u{9b}\u{7f}\t" } });
        let line = line(&turned);
        let cells: Vec<_> = line.split('\t').collect();
        assert_eq!((cells.len(), cells[7]), (9, "\\u{202e}"));
        assert_eq!(cells[8], "{\"x\":\"\\u202e\\u009b\\u007f\\t\"}");
        assert_eq!(serde_json::from_str::<Value>(cells[8]).ok().as_ref(), Some(&turned["fields"]));
    }
}
