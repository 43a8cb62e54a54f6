//! `hookonce reload`: has a running node read its config again, and prints what became of it.

use super::backend::{AdminClient, BackendArgs, text};
use super::error::{CommandError, print_error};
use super::terminal::{OutputFormat, Terminal, one_line};
use crate::config::EnvLookup;
use clap::Args;
use std::io::Write;

/// Which node.
#[derive(Args, Debug)]
pub(crate) struct ReloadArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Has a node read its config again.
pub(crate) async fn reload(asked: &ReloadArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let node: AdminClient = asked.at.admin_client(env).await?;
    let answer = node.reload().await?;
    if Terminal::stdout(asked.json).form == OutputFormat::Json {
        let (Ok(body) | Err(body)) = &answer;
        writeln!(out, "{body:#}")?;
        return Ok(u8::from(answer.is_err()));
    }
    let done = match answer {
        Ok(done) => done,
        Err(refused) => {
            let why: Vec<_> = text(&refused, "why").lines().map(one_line).collect();
            let why = why.join("\n");
            return Err(CommandError::no(why.strip_prefix("error: ").unwrap_or(&why)));
        }
    };
    for warning in done["warnings"].as_array().into_iter().flatten() {
        let line = warning["line"].as_u64().map(|line| format!("line {line}: ")).unwrap_or_default();
        print_error(format!("warning: {line}{}", one_line(text(warning, "why"))));
    }
    let many = |name: &str, word: &str| match done[name].as_u64().unwrap_or_default() {
        1 => format!("1 {word}"),
        n => format!("{n} {word}s"),
    };
    writeln!(out, "reloaded: {}, {}", many("sources", "source"), many("routes", "route"))?;
    Ok(0)
}
