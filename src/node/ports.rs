//! Opens the ports of a node.

use super::{InheritedSockets, NodeRole, NodeStartError};
use crate::config::{Config, ListenAddress, TlsFiles};
use crate::decide::error_message::ErrorMessage;
use crate::decide::time::Duration;
use crate::ingress::port_listener::PortListener;
use crate::ingress::tls::PortTls;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

/// How long to wait for a port in use: a killed node may leave a child that holds its sockets for a moment.
const PORT_WAIT: Duration = Duration::from_secs(1);
/// How often the port is tried.
const PORT_LOOK: Duration = Duration::from_millis(10);
/// Maximum number of connections that wait to be accepted, as tokio has it.
const BACKLOG: u32 = 1024;

/// Opens the port for webhooks, unless the node only acts, and the admin port. A socket that is open already is taken.
pub(super) async fn open_all(
    config: &Config,
    does: NodeRole,
    sockets: InheritedSockets,
    closing: &CancellationToken,
) -> Result<(Option<PortListener>, PortListener), NodeStartError> {
    let InheritedSockets { ingest, admin } = sockets;
    let (tls, admin_tls) = (config.tls.as_ref(), config.admin.tls.as_ref());
    let ingest = match does {
        NodeRole::Both | NodeRole::Ingest => Some(open(ingest, &config.listen, tls, "listen", closing).await?),
        NodeRole::Work => None,
    };
    let admin = open(admin, &config.admin.listen, admin_tls, "admin.listen", closing).await?;
    Ok((ingest, admin))
}

/// Opens a port: the socket that is open already, or all of its addresses that this machine has. Its certificate is
/// followed until `closing`.
async fn open(
    inherited: Option<std::net::TcpListener>,
    listen: &ListenAddress,
    tls: Option<&TlsFiles>,
    key: &str,
    closing: &CancellationToken,
) -> Result<PortListener, NodeStartError> {
    let tls = match tls.map(PortTls::new).transpose() {
        Ok(tls) => tls,
        Err(error) => {
            let why = format!("the certificate of `{key}` cannot be used: {error}");
            return Err(NodeStartError::new(ErrorMessage::from(why).caused_by(error)));
        }
    };
    let sockets = match inherited {
        Some(inherited) => vec![take(inherited, key)?],
        None => bind(listen, key).await?,
    };
    if let Some(tls) = &tls {
        tokio::spawn(tls.clone().follow_files(closing.clone()));
    }
    Ok(PortListener::new(sockets).with_tls(tls))
}

/// Takes over a socket.
fn take(inherited: std::net::TcpListener, key: &str) -> Result<TcpListener, NodeStartError> {
    let taken = inherited.set_nonblocking(true).and_then(|()| TcpListener::from_std(inherited));
    taken.map_err(|error| {
        let why = format!("the socket for `{key}` that was passed cannot be used: {error}");
        NodeStartError::new(ErrorMessage::from(why).caused_by(error))
    })
}

/// The sockets of all of these addresses that this machine has.
async fn bind(listen: &ListenAddress, key: &str) -> Result<Vec<TcpListener>, NodeStartError> {
    let mut sockets: Vec<TcpListener> = Vec::new();
    let mut missing = None;
    for mut address in listen.all() {
        // Port 0 is any port, but the same for all addresses.
        if let Some(port) = sockets.first().and_then(|first| first.local_addr().ok()).map(|first| first.port()) {
            address.set_port(port);
        }
        match bind_socket(address, !listen.others.is_empty()).await {
            Ok(socket) => sockets.push(socket),
            Err(error) if !listen.others.is_empty() && is_not_here(&error) => missing = Some((address, error)),
            Err(error) => return Err(cannot_listen(address, key, error)),
        }
    }
    match missing {
        Some((address, error)) if sockets.is_empty() => Err(cannot_listen(address, key, error)),
        _ => Ok(sockets),
    }
}

async fn bind_socket(address: SocketAddr, one_of_several: bool) -> io::Result<TcpListener> {
    let patience = tokio::time::Instant::now() + PORT_WAIT;
    loop {
        let bound = if one_of_several { bind_family(address) } else { TcpListener::bind(address).await };
        match bound {
            Err(error) if error.kind() == ErrorKind::AddrInUse && tokio::time::Instant::now() < patience => {
                tokio::time::sleep(PORT_LOOK).await;
            }
            bound => return bound,
        }
    }
}

/// A socket for addresses of its own family alone: IPv4 has another one.
fn bind_family(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whether this machine has no such address, or no addresses of its kind.
fn is_not_here(error: &io::Error) -> bool {
    let unsupported = rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::AFNOSUPPORT);
    unsupported || error.kind() == ErrorKind::AddrNotAvailable
}

fn cannot_listen(address: SocketAddr, key: &str, error: io::Error) -> NodeStartError {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "something else listens there; stop it, or choose another port",
        ErrorKind::PermissionDenied => "ports below 1024 need elevated privileges; choose another port",
        ErrorKind::AddrNotAvailable => "this machine has no such address",
        _ => "choose another address",
    };
    let why = format!("cannot listen on {address} (`{key}`): {error}\nhint: {hint}");
    NodeStartError::new(ErrorMessage::from(why).caused_by(error))
}
