//! `hookonce forget`: deletes expired events, or one event, or all events of a source that no node has, keys included.

use super::backend::{BackendArgs, BackendPurpose, ClockConfirmation, CommandOutcome, EventBackend, short, text};
use super::error::CommandError;
use super::terminal::{OutputFormat, Terminal, confirm, one_line};
use crate::config::EnvLookup;
use crate::decide::time::{Duration, approximate_duration};
use crate::store::EventQuery;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;
use std::io::Write;

/// What to forget.
#[derive(Args, Debug)]
pub(crate) struct ForgetArgs {
    /// Event to forget whatever its age: its next delivery acts again [default: all expired events]
    #[arg(value_parser = NonEmptyStringValueParser::new(), group = "named")]
    event: Option<String>,
    /// Forget all events of this source, which no running node may have; waiting events never act
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), group = "named")]
    source: Option<String>,
    /// Don't ask before forgetting the event or source and its keys
    #[arg(long, requires = "named")]
    yes: bool,
    /// Trust the clock at once, even after a jump of more than an hour
    #[arg(long, conflicts_with = "named")]
    now: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

pub(crate) async fn forget(asked: &ForgetArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let named = asked.event.is_some() || asked.source.is_some();
    let backend = asked.at.open(if named { BackendPurpose::Write } else { BackendPurpose::Sweep }, env).await?;
    let (document, said) = match (&asked.event, &asked.source) {
        (Some(name), _) => one(&backend, name, asked.yes).await?,
        (None, Some(source)) => all_of(&backend, source, asked.yes).await?,
        (None, None) => {
            old(&backend, if asked.now { ClockConfirmation::ClockIsRight } else { ClockConfirmation::NotGiven }).await?
        }
    };
    let left = document["running"].as_u64().unwrap_or(0);
    match Terminal::stdout(asked.json).form {
        OutputFormat::Json => writeln!(out, "{document:#}")?,
        OutputFormat::Screen(_) | OutputFormat::Lines => writeln!(out, "{said}")?,
    }
    Ok(u8::from(left > 0))
}

async fn all_of(backend: &EventBackend, source: &str, yes: bool) -> Result<(Value, String), CommandError> {
    let shown = one_line(source);
    let listing = EventQuery { source: Some(source.to_owned()), limit: 1, ..EventQuery::default() };
    if backend.list(listing).await?.is_empty() {
        return Err(CommandError::no(format!("the store has no event of the source `{shown}`")));
    }
    let question = format!(
        "This forgets all events of the source `{shown}` and their keys. Waiting events will not act, and deliveries \
         that arrive again will act again."
    );
    confirm(&question, yes).await?;
    let document = match backend.forget_source(source).await? {
        CommandOutcome::Done(document) => document,
        CommandOutcome::Refused(why) => {
            let hint = "remove it from every node's config and restart them; a stopped node counts for another five \
                        minutes";
            return Err(CommandError::no(format!("nothing of `{shown}` was forgotten: {why}; {hint}")));
        }
    };
    let number = |member: &str| document[member].as_u64().unwrap_or(0);
    let mut said = vec![format!("forgot {} of {shown}", count(number("forgotten"), "event", "events"))];
    if number("ended") > 0 {
        said.push(format!("{} waiting and will not act", count(number("ended"), "was", "were")));
    }
    if number("running") > 0 {
        said.push(format!("{} still running: run this again later", count(number("running"), "is", "are")));
    }
    Ok((document, said.join("; ")))
}

fn count(many: u64, one: &str, several: &str) -> String {
    format!("{many} {}", if many == 1 { one } else { several })
}

async fn one(backend: &EventBackend, name: &str, yes: bool) -> Result<(Value, String), CommandError> {
    let event = backend.show(name).await?;
    let id = short(&event);
    confirm(&format!("This forgets {id} and its keys; its next delivery will act again."), yes).await?;
    match backend.remove(text(&event, "event")).await? {
        CommandOutcome::Done(document) => Ok((document, format!("forgot {id}: its next delivery acts again"))),
        CommandOutcome::Refused(why) => {
            let hint = "only a done or dead event can be forgotten; end it with `hookonce cancel`";
            Err(CommandError::no(format!("{id} was not forgotten: {why}; {hint}")))
        }
    }
}

async fn old(backend: &EventBackend, says: ClockConfirmation) -> Result<(Value, String), CommandError> {
    let document = backend.forget(says).await?;
    let many = |member: &str, one: &str, several: &str| count(document[member].as_u64().unwrap_or(0), one, several);
    let said = format!("forgot {} and {}", many("forgotten", "event", "events"), many("bodies", "body", "bodies"));
    let said =
        match document["waiting"]["jump"].as_u64().map(Duration::from_secs).map(|jump| approximate_duration(jump, 2)) {
            None => said,
            Some(jump) => format!(
                "{said}\nthe clock is {jump} ahead of the time the store last saw, and is not trusted yet\n\
             hint: if it is right, run `hookonce forget --now`"
            ),
        };
    Ok((document, said))
}
