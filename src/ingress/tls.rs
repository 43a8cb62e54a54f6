//! TLS on a port: the certificate, read again when its files change, and the handshake.
//!
//! A connection uses the certificate of its start to its end. A pair of files that cannot be used replaces none.

use super::timed_stream::TimedSocket;
use crate::config::{TlsFiles, TlsFilesError};
use crate::decide::limits;
use crate::observe::log;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// What a client that speaks plain HTTP gets. It cannot read anything else.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 33\r\n\
                            Connection: close\r\n\r\nThis port speaks HTTPS, not HTTP.";

/// The certificate of a port.
pub struct PortTls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

impl PortTls {
    /// Reads the certificate and its key.
    pub fn new(files: &TlsFiles) -> Result<Arc<Self>, TlsFilesError> {
        let current = RwLock::new(files.load()?.config);
        Ok(Arc::new(Self { files: files.clone(), current }))
    }

    /// The settings of a connection that begins now.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the files until the port closes, and reads them when they have changed.
    ///
    /// Two files are not replaced at once. So a change is read at the look after the one that found it, if the files have
    /// not changed again in between.
    pub(crate) async fn follow_files(self: Arc<Self>, closing: CancellationToken) {
        let mut used = self.files.stamp();
        let (mut seen, mut refused) = (used.clone(), None);
        while closing.run_until_cancelled(tokio::time::sleep(limits::TLS_FILES_EVERY)).await.is_some() {
            let now = self.files.stamp();
            let settled = now == seen;
            seen.clone_from(&now);
            if !settled || now == used || refused.as_ref() == Some(&now) {
                continue;
            }
            let certificate = self.files.certificate.display();
            match self.files.load() {
                Ok(loaded) if self.files.stamp() == now => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded.config;
                    (used, refused) = (now, None);
                    info!(target: "hookonce", %certificate, "certificate");
                }
                Ok(_) => {}
                Err(error) => {
                    refused = Some(now);
                    let (why, hint) = (error.to_string(), "the certificate that was read before stays in use");
                    warn!(target: "hookonce", %certificate, why, hint, "certificate");
                }
            }
        }
    }
}

/// What a client has chosen to speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Negotiated {
    Http1,
    Http2,
}

/// Makes the TLS of a new connection. `None`: it was not made, and the connection is over.
pub(super) async fn negotiate(
    mut socket: TimedSocket,
    config: Arc<ServerConfig>,
    peer: IpAddr,
) -> Option<(Negotiated, Box<TlsStream<TimedSocket>>)> {
    if socket.begins_as_http().await {
        // The client may be gone already.
        let _ = socket.write_all(PLAIN_HTTP).await;
        let _ = socket.shutdown().await;
        return None;
    }
    match TlsAcceptor::from(config).accept(socket).await {
        Ok(stream) => {
            let chosen = stream.get_ref().1.alpn_protocol();
            let protocol = if chosen == Some(b"h2") { Negotiated::Http2 } else { Negotiated::Http1 };
            Some((protocol, Box::new(stream)))
        }
        Err(error) => {
            log_refusal(&error, peer);
            None
        }
    }
}

/// Logs that a client does not accept our certificate: all else that fails at this point is a scanner's business.
fn log_refusal(error: &io::Error, peer: IpAddr) {
    let alert = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = alert else { return };
    let why = format!("a client ended the handshake: {alert:?}");
    log::rate_limited("tls", &why, |times| warn!(target: "hookonce", why = &*why, from = %peer, times, "tls"));
}
