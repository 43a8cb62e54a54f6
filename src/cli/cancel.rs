//! `hookonce cancel`: ends an event that waits or runs. A command under way is killed; what it did is done.

use super::backend::{BackendAccess, BackendArgs, CommandOutcome, short, text};
use super::error::CommandError;
use super::terminal::{OutputFormat, Terminal};
use crate::config::EnvLookup;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::io::Write;

/// What to cancel.
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Its id, the end of its id, or the id of a delivery of it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    event: String,
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Cancels one event.
pub(crate) async fn cancel(asked: &CancelArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let desk = asked.at.open(BackendAccess::Write, env).await?;
    let event = desk.show(&asked.event).await?;
    match desk.cancel(text(&event, "event")).await? {
        CommandOutcome::Done(now) if Terminal::stdout(asked.json).form == OutputFormat::Json => {
            writeln!(out, "{now:#}")?;
        }
        CommandOutcome::Done(now) if text(&now, "state") == "running" => {
            writeln!(
                out,
                "called off {}: the node that is at it ends it, by {} at the latest",
                short(&now),
                text(&now, "until")
            )?;
        }
        CommandOutcome::Done(now) => writeln!(out, "cancelled {}, which was {}", short(&now), text(&event, "state"))?,
        CommandOutcome::Refused(why) => {
            return Err(CommandError::no(format!("{} was not cancelled: {why}", short(&event))));
        }
    }
    Ok(0)
}
