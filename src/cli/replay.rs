//! `hookonce replay`: runs events again, with their original bodies.

use super::backend::{BackendArgs, BackendPurpose, CommandOutcome, EventBackend, short, text};
use super::error::{CommandError, print_error};
use super::terminal::{OutputFormat, Terminal, confirm};
use crate::config::EnvLookup;
use crate::store::EventQuery;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};
use std::io::Write;

/// Maximum events replayed by one command.
const REPLAY_MAX: usize = 10_000;

/// What to replay.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// Event ids, their last characters, or ids of their deliveries
    #[arg(required_unless_present = "state", value_name = "EVENT", value_parser = NonEmptyStringValueParser::new())]
    events: Vec<String>,
    /// All events in this state
    #[arg(long, value_name = "STATE", value_parser = ["done", "dead"], conflicts_with = "events")]
    state: Option<String>,
    /// Only events of this source
    #[arg(long, value_name = "NAME", requires = "state")]
    source: Option<String>,
    /// Only events on this route
    #[arg(long, value_name = "NAME", requires = "state")]
    route: Option<String>,
    /// Don't ask before replaying more than one event
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Replays events, oldest first, so that of several changes of one subject the newest wins again.
pub(crate) async fn replay(asked: &ReplayArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let backend = asked.at.open(BackendPurpose::Write, env).await?;
    let mut events = chosen(asked, &backend).await?;
    events.sort_by(|a, b| text(a, "event").cmp(text(b, "event")));
    events.dedup_by(|a, b| a["event"] == b["event"]);
    if events.len() > 1 {
        confirm(&format!("This runs {} events again.", events.len()), asked.yes).await?;
    }
    let terminal = Terminal::stdout(asked.json);
    let (mut replayed, mut refused) = (Vec::new(), Vec::new());
    for event in &events {
        match backend.replay(text(event, "event")).await {
            Ok(CommandOutcome::Done(now)) => {
                if terminal.form != OutputFormat::Json {
                    let runs =
                        if matches!(backend, EventBackend::Store(_)) { ": it runs when a node is started" } else { "" };
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
    match terminal.form {
        OutputFormat::Json => writeln!(out, "{:#}", json!({ "replayed": replayed, "refused": refused }))?,
        OutputFormat::Screen(_) | OutputFormat::Lines if events.is_empty() => {
            print_error("no event matches; nothing was done");
        }
        OutputFormat::Screen(_) | OutputFormat::Lines => {}
    }
    Ok(code)
}

async fn chosen(asked: &ReplayArgs, backend: &EventBackend) -> Result<Vec<Value>, CommandError> {
    if asked.state.is_some() {
        let (source, route, state) = (asked.source.clone(), asked.route.clone(), asked.state.clone());
        let listing = EventQuery { source, route, state, limit: REPLAY_MAX + 1, ..EventQuery::default() };
        let events = backend.list(listing).await?;
        if events.len() > REPLAY_MAX {
            return Err(CommandError::no(format!(
                "more than {REPLAY_MAX} events match; narrow it down with --source or --route"
            )));
        }
        return Ok(events);
    }
    // All names are resolved before anything runs: a typo in the last one must not leave the command half done.
    let mut events = Vec::new();
    for name in &asked.events {
        events.push(backend.show(name).await?);
    }
    Ok(events)
}
