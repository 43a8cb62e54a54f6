//! `hookonce forget`: frees what may be forgotten, or makes one event as if it had never been.

use super::consent::consent;
use super::desk::{Came, Desk, Purpose, Says, Where, short, text};
use super::paper::{Form, Paper};
use super::trouble::Trouble;
use crate::config::Env;
use crate::decide::time::Duration;
use crate::store::clock_watch::in_words;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;
use std::io::Write;

/// What to forget.
#[derive(Args, Debug)]
pub struct Forget {
    /// This one, whatever its age: its next delivery acts again. Without it: all that is kept long enough
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    event: Option<String>,
    /// Yes, this event and its keys
    #[arg(long, requires = "event")]
    yes: bool,
    /// The clock is right: forget by it at once, even after a jump of more than an hour
    #[arg(long, conflicts_with = "event")]
    now: bool,
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

/// Forgets.
pub async fn forget(asked: &Forget, env: Env<'_>, out: &mut impl Write) -> Result<u8, Trouble> {
    let purpose = if asked.event.is_some() { Purpose::Write } else { Purpose::Sweep };
    let desk = asked.at.open(purpose, env).await?;
    let (document, said) = match &asked.event {
        Some(name) => one(&desk, name, asked.yes).await?,
        None => old(&desk, if asked.now { Says::ClockIsRight } else { Says::Nothing }).await?,
    };
    match Paper::stdout(asked.json).form {
        Form::Json => writeln!(out, "{document:#}")?,
        Form::Screen(_) | Form::Lines => writeln!(out, "{said}")?,
    }
    Ok(0)
}

async fn one(desk: &Desk, name: &str, yes: bool) -> Result<(Value, String), Trouble> {
    let event = desk.show(name).await?;
    let id = short(&event);
    consent(&format!("{id} and its keys would be forgotten, and its next delivery would act again."), yes).await?;
    match desk.remove(text(&event, "event")).await? {
        Came::Done(document) => Ok((document, format!("forgot {id}: its next delivery acts again"))),
        Came::Refused(why) => {
            let hint = "only what is done or dead can be forgotten; `hookonce cancel` ends it";
            Err(Trouble::no(format!("{id} was not forgotten: {why}; {hint}")))
        }
    }
}

async fn old(desk: &Desk, says: Says) -> Result<(Value, String), Trouble> {
    let document = desk.forget(says).await?;
    let many = |member: &str, one: &str, several: &str| match document[member].as_u64().unwrap_or(0) {
        1 => format!("1 {one}"),
        n => format!("{n} {several}"),
    };
    let mut said = format!("forgot {} and {}", many("forgotten", "event", "events"), many("bodies", "body", "bodies"));
    if let Some(jump) = document["waiting"]["jump"].as_u64() {
        let jump = in_words(Duration::from_secs(jump));
        said = format!(
            "{said}\nthe clock is {jump} ahead of the time the store last saw, and does not count yet\n\
             hint: if it is right, run `hookonce forget --now`"
        );
    }
    Ok((document, said))
}
