//! `hookonce cancel`: ends a waiting or running event. A running command is killed; its effects are not undone.

use super::backend::{BackendArgs, BackendPurpose, CommandOutcome, short, text};
use super::error::CommandError;
use super::terminal::{OutputFormat, Terminal};
use crate::config::EnvLookup;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::io::Write;

/// What to cancel.
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Event id, its last characters, or the id of one of its deliveries
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    event: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Cancels one event.
pub(crate) async fn cancel(asked: &CancelArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let backend = asked.at.open(BackendPurpose::Write, env).await?;
    let event = backend.show(&asked.event).await?;
    match backend.cancel(text(&event, "event")).await? {
        CommandOutcome::Done(now) if Terminal::stdout(asked.json).form == OutputFormat::Json => {
            writeln!(out, "{now:#}")?;
        }
        CommandOutcome::Done(now) if text(&now, "state") == "running" => {
            writeln!(out, "cancelling {}: its node will end it by {} at the latest", short(&now), text(&now, "until"))?;
        }
        CommandOutcome::Done(now) => writeln!(out, "cancelled {}, which was {}", short(&now), text(&event, "state"))?,
        CommandOutcome::Refused(why) => {
            return Err(CommandError::no(format!("{} was not cancelled: {why}", short(&event))));
        }
    }
    Ok(0)
}
