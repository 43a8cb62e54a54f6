//! `hookonce replay`: gives events another life. They run again, with the body they came with.

use super::backend::{BackendAccess, BackendArgs, CommandOutcome, EventBackend, short, text};
use super::error::{CommandError, print_error};
use super::terminal::confirm;
use super::terminal::{OutputFormat, Terminal};
use crate::config::EnvLookup;
use crate::store::EventQuery;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};
use std::io::Write;

/// Events replayed by one command.
const REPLAY_MAX: usize = 10_000;

/// What to replay.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// Their ids, the ends of their ids, or ids of their deliveries
    #[arg(required_unless_present = "state", value_name = "EVENT", value_parser = NonEmptyStringValueParser::new())]
    events: Vec<String>,
    /// All events in this state
    #[arg(long, value_name = "STATE", value_parser = ["done", "dead"], conflicts_with = "events")]
    state: Option<String>,
    /// Only those of this source
    #[arg(long, value_name = "NAME", requires = "state")]
    source: Option<String>,
    /// Only those on this route
    #[arg(long, value_name = "NAME", requires = "state")]
    route: Option<String>,
    /// Yes, also when it is more than one
    #[arg(long)]
    yes: bool,
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Replays events, the oldest first: of several changes of one subject the last one is the newest again.
pub(crate) async fn replay(asked: &ReplayArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let desk = asked.at.open(BackendAccess::Write, env).await?;
    let mut events = chosen(asked, &desk).await?;
    events.sort_by(|a, b| text(a, "event").cmp(text(b, "event")));
    events.dedup_by(|a, b| a["event"] == b["event"]);
    if events.len() > 1 {
        confirm(&format!("{} events would run again.", events.len()), asked.yes).await?;
    }
    let paper = Terminal::stdout(asked.json);
    let (mut replayed, mut refused) = (Vec::new(), Vec::new());
    for event in &events {
        match desk.replay(text(event, "event")).await {
            Ok(CommandOutcome::Done(now)) => {
                if paper.form != OutputFormat::Json {
                    let runs =
                        if matches!(desk, EventBackend::Store(_)) { ": it runs when a node is started" } else { "" };
                    writeln!(out, "replayed {}, life {}{runs}", short(&now), now["life"])?;
                }
                replayed.push(now);
            }
            Ok(CommandOutcome::Refused(why)) => {
                print_error(format!("{} was not replayed: {why}", short(event)));
                refused.push(json!({ "event": event["event"], "reason": why }));
            }
            Err(trouble) => {
                let so_far = format!("{trouble}; {} of {} were replayed before that", replayed.len(), events.len());
                return Err(if events.len() == 1 { trouble } else { CommandError::unknown(so_far) });
            }
        }
    }
    let code = u8::from(!refused.is_empty());
    match paper.form {
        OutputFormat::Json => writeln!(out, "{:#}", json!({ "replayed": replayed, "refused": refused }))?,
        OutputFormat::Screen(_) | OutputFormat::Lines if events.is_empty() => {
            print_error("no event matches; nothing was done");
        }
        OutputFormat::Screen(_) | OutputFormat::Lines => {}
    }
    Ok(code)
}

async fn chosen(asked: &ReplayArgs, desk: &EventBackend) -> Result<Vec<Value>, CommandError> {
    if asked.state.is_some() {
        let (source, route, state) = (asked.source.clone(), asked.route.clone(), asked.state.clone());
        let listing = EventQuery { source, route, state, limit: REPLAY_MAX + 1, ..EventQuery::default() };
        let events = desk.list(listing).await?;
        if events.len() > REPLAY_MAX {
            return Err(CommandError::no(format!(
                "more than {REPLAY_MAX} events match; choose fewer with --source or --route"
            )));
        }
        return Ok(events);
    }
    // All names are looked up before anything runs: a slip in the last one must not leave half of it done.
    let mut events = Vec::new();
    for name in &asked.events {
        events.push(desk.show(name).await?);
    }
    Ok(events)
}
