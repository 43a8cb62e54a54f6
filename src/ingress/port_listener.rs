//! The sockets of one port, on one address or several, and the TLS that its connections begin with.

use super::tls::PortTls;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use tokio::net::{TcpListener, TcpStream};

/// The listening sockets of one port.
pub struct PortListener {
    sockets: Vec<TcpListener>,
    tls: Option<Arc<PortTls>>,
}

impl From<TcpListener> for PortListener {
    fn from(socket: TcpListener) -> Self {
        Self::new(vec![socket])
    }
}

impl PortListener {
    /// A port with these sockets, at least one.
    pub(crate) fn new(sockets: Vec<TcpListener>) -> Self {
        assert!(!sockets.is_empty(), "a port has a socket");
        Self { sockets, tls: None }
    }

    /// The same port, whose connections begin with TLS.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<PortTls>>) -> Self {
        Self { tls, ..self }
    }

    /// The TLS of its connections.
    pub(crate) fn tls(&self) -> Option<&Arc<PortTls>> {
        self.tls.as_ref()
    }

    /// The address of its first socket.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.sockets[0].local_addr()
    }

    /// The same port with descriptors of its own.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let again = |socket: &TcpListener| {
            let socket = rustix::io::dup(socket).map(std::net::TcpListener::from)?;
            TcpListener::from_std(socket)
        };
        let sockets = self.sockets.iter().map(again).collect::<io::Result<_>>()?;
        Ok(Self { sockets, tls: self.tls.clone() })
    }

    /// The next connection to any of its sockets.
    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| {
            for socket in &self.sockets {
                if let Poll::Ready(accepted) = socket.poll_accept(cx) {
                    return Poll::Ready(accepted);
                }
            }
            Poll::Pending
        })
        .await
    }
}
