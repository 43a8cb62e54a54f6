//! `hookonce handshake`: waits at a running node for what a sender brings by its handshake, and prints it.

use super::backend::{AdminClient, BackendArgs, text};
use super::error::{CommandError, print_error};
use super::terminal::{OutputFormat, Terminal, one_line};
use crate::config::EnvLookup;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;
use std::io::Write;

/// What to wait for.
#[derive(Args, Debug)]
pub(crate) struct HandshakeArgs {
    /// Source whose sender brings a token or its secret
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    source: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Waits for the handshake of a source.
pub(crate) async fn handshake(
    asked: &HandshakeArgs,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> Result<u8, CommandError> {
    let node: AdminClient = asked.at.admin_client(env).await?;
    let source = one_line(&asked.source);
    if node.takes_handshake(&asked.source).await? {
        print_error(format!(
            "waiting for the handshake of `{source}`, for ten minutes: create the webhook at its sender now"
        ));
    }
    let came = node.await_handshake(&asked.source).await?;
    if Terminal::stdout(asked.json).form == OutputFormat::Json {
        writeln!(out, "{came:#}")?;
        return Ok(u8::from(came["came"] != true));
    }
    if came["came"] != true {
        return Err(CommandError::no(format!("no handshake of `{source}` came to this node within ten minutes")));
    }
    print(&came, &source, out)?;
    Ok(0)
}

fn print(came: &Value, source: &str, out: &mut impl Write) -> Result<(), CommandError> {
    if let Some(file) = came["file"].as_str() {
        writeln!(out, "the secret of `{source}` is in {}; its deliveries are accepted now", one_line(file))?;
        print_error(
            "If the sender reports that the webhook could not be created, somebody else was faster: remove that file, \
             give the source another `path`, and try again",
        );
        return Ok(());
    }
    writeln!(out, "{}", one_line(text(came, "value")))?;
    print_error(format!(
        "It arrived at {} and is not kept: give it back to the sender, and write it to the file of the source's secret",
        one_line(text(came, "arrived_at"))
    ));
    if came["replaced"].as_u64().is_some_and(|others| others > 0) {
        print_error("Others came before it. Anyone can send one: ask the sender for a new one if it rejects this one");
    }
    Ok(())
}
