//! Receivers: checks that they accept connections and that their certificate is trusted. Sends nothing.

use super::{LiveCheck, failed_check};
use crate::action::plan::ReceiverPlan;
use crate::config::UNKNOWN_URL;
use crate::decide::time::Duration;
use reqwest::Url;
use rustls_platform_verifier::BuilderVerifierExt as _;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};

/// Connect timeout.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to all of them at once.
pub(super) fn tried<'r>(receivers: impl Iterator<Item = &'r ReceiverPlan>) -> io::Result<Vec<LiveCheck>> {
    // A URL with a field in it is known only with an event.
    let fixed = |receiver: &&ReceiverPlan| receiver.url.fields().next().is_none();
    let known = receivers.filter(fixed).filter(|receiver| receiver.url.to_string() != UNKNOWN_URL);
    let all = known.map(|receiver| async move {
        let found = tokio::time::timeout(PATIENCE, reach(&receiver.url.to_string())).await;
        let late = || {
            failed_check(format!("no answer within {} s", PATIENCE.as_secs()), "is it running, and is the port open?")
        };
        LiveCheck::new("receiver", &receiver.display, found.unwrap_or_else(|_| late()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(futures_util::future::join_all(all)))
}

async fn reach(url: &str) -> Result<String, (String, String)> {
    let Ok(url) = Url::parse(url) else { return failed_check("it is not a URL", "correct it") };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return failed_check("it has no host", "correct it");
    };
    // A URL has an IPv6 address in brackets; `lookup_host` wants none.
    let host = host.trim_matches(['[', ']']);
    let addresses = match tokio::net::lookup_host((host, port)).await {
        Ok(addresses) => addresses.collect::<Vec<_>>(),
        Err(error) => return failed_check(format!("its name cannot be resolved: {error}"), "is the name right?"),
    };
    let stream = match TcpStream::connect(addresses.as_slice()).await {
        Ok(stream) => stream,
        Err(error) => return failed_check(format!("cannot connect: {error}"), "is it running, and is the port right?"),
    };
    if url.scheme() != "https" {
        return Ok("can be connected to".into());
    }
    match tls_handshake(host, stream).await {
        Ok(()) => Ok("can be connected to, and its certificate is trusted".into()),
        Err(error) => {
            failed_check(format!("TLS failed: {error}"), "does it speak HTTPS, and is its certificate trusted?")
        }
    }
}

async fn tls_handshake(host: &str, stream: TcpStream) -> io::Result<()> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(other)?;
    let config = builder.with_platform_verifier().map_err(other)?.with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(drop)
}

fn other(error: rustls::Error) -> io::Error {
    io::Error::other(error)
}
