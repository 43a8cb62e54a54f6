//! `hookonce cancel`: ends an event that waits or runs. A command under way is killed; what it did is done.

use super::desk::{Came, Purpose, Where, short, text};
use super::paper::{Form, Paper};
use super::trouble::Trouble;
use crate::config::Env;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::io::Write;

/// What to cancel.
#[derive(Args, Debug)]
pub struct Cancel {
    /// Its id, the end of its id, or the id of a delivery of it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    event: String,
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

/// Cancels one event.
pub async fn cancel(asked: &Cancel, env: Env<'_>, out: &mut impl Write) -> Result<u8, Trouble> {
    let desk = asked.at.open(Purpose::Write, env).await?;
    let event = desk.show(&asked.event).await?;
    match desk.cancel(text(&event, "event")).await? {
        Came::Done(now) if Paper::stdout(asked.json).form == Form::Json => writeln!(out, "{now:#}")?,
        Came::Done(now) if text(&now, "state") == "running" => {
            writeln!(
                out,
                "called off {}: the node that is at it ends it, by {} at the latest",
                short(&now),
                text(&now, "until")
            )?;
        }
        Came::Done(now) => writeln!(out, "cancelled {}, which was {}", short(&now), text(&event, "state"))?,
        Came::Refused(why) => return Err(Trouble::no(format!("{} was not cancelled: {why}", short(&event)))),
    }
    Ok(0)
}
