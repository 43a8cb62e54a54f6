//! `hookonce healthcheck`: whether the config's node accepts deliveries, for a container's health check.

use super::backend::{AdminClient, connect_address};
use super::error::CommandError;
use crate::config::{self, EnvLookup};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

/// Which node to ask.
#[derive(Args, Debug)]
pub(crate) struct HealthcheckArgs {
    /// Config file [default: `HOOKONCE_CONFIG`, ./hookonce.toml, or /etc/hookonce/hookonce.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask the node with this admin port, such as `http://127.0.0.1:3143`
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    admin: Option<String>,
}

/// Asks the admin port, which also a node has that receives nothing. It answers this without a token.
pub(crate) async fn healthcheck(
    asked: &HealthcheckArgs,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> Result<u8, CommandError> {
    let port = if let Some(address) = &asked.admin {
        AdminClient::new(address, None)?
    } else {
        let addresses = config::addresses(&config::find(asked.config.as_deref(), env)?, env)?;
        if addresses.admin.port() == 0 {
            let why = "the config lets the system choose the admin port; name it with --admin";
            return Err(CommandError::unknown(why));
        }
        AdminClient::with_certificate(&connect_address(addresses.admin).to_string(), None, addresses.tls.as_ref())?
    };
    match port.readiness().await? {
        None => writeln!(out, "ready")?,
        Some(reason) => return Err(CommandError::no(format!("the node is not ready: {reason}"))),
    }
    Ok(0)
}
