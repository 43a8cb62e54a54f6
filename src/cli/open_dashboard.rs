//! `hookonce open`: prints a link to the dashboard of a running node that logs a browser in, and opens it.

use super::backend::{AdminClient, BackendArgs};
use super::error::{CommandError, print_error};
use crate::config::EnvLookup;
use clap::Args;
use std::io::Write;
use std::process::{Command, Stdio};

/// What to open.
#[derive(Args, Debug)]
pub(crate) struct OpenArgs {
    /// Only print the link
    #[arg(long)]
    no_browser: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Prints a link, and opens it on a desktop.
pub(crate) async fn open(asked: &OpenArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let node: AdminClient = asked.at.admin_client(env).await?;
    let (link, expires) = node.login_link().await?;
    writeln!(out, "{link}")?;
    out.flush()?;
    let set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
    let elsewhere = set("SSH_CONNECTION") || set("SSH_TTY");
    let has_desktop = (set("DISPLAY") || set("WAYLAND_DISPLAY")) && !elsewhere;
    if let Some(seconds) = expires {
        print_error(format!("The link works once, for {seconds} seconds."));
    }
    let loopback = link.host_str().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
    if loopback
        && elsewhere
        && let Some(port) = link.port_or_known_default()
    {
        print_error(format!(
            "From your own machine, first: ssh -L {port}:{}:{port} THIS-HOST",
            link.host_str().unwrap_or("127.0.0.1")
        ));
    }
    if has_desktop && !asked.no_browser {
        // Where there is no xdg-open, the link was printed.
        let _ = Command::new("xdg-open")
            .arg(link.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
    }
    Ok(0)
}
