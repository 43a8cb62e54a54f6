//! Accepts connections and passes their requests to a handler. Owns the limits of a connection and the drain; never
//! looks into a request.
//!
//! HTTP/1.1 over hyper, and not through `axum::serve`: that has no timer, and without a timer hyper's header timeout never
//! fires. With TLS (`tls.rs`) a client may choose HTTP/2 (`http2.rs`).

use super::conn_limit::ConnectionLimiter;
use super::conn_timeout::{ConnDeadline, ConnTimeoutTracker, InFlightRequest};
use super::http2;
use super::port_listener::PortListener;
use super::timed_stream::{TimedSocket, TimedStream, Transport};
use super::tls::{self, Negotiated};
use crate::decide::limits;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

/// The pause after an accept that failed for lack of file descriptors or memory: it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The same if connections were closed for it: they need this long to close.
const CLOSE_PAUSE: Duration = Duration::from_millis(2);
/// Minimum time between two log lines about failing accepts.
const ACCEPT_COMPLAINT_EVERY: Duration = Duration::from_secs(1);
/// The smallest buffer that hyper accepts.
const BUFFER_BYTES_MIN: usize = 8 << 10;

/// The peer's IP address; on the admin port an extension of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerAddress(pub IpAddr);

/// The limits of one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of connections. For a further one, the connection that has been idle longest is closed; while all
    /// have a request in progress, it waits.
    pub connections: usize,
    /// Maximum number of headers of a request; more are answered 431.
    pub headers: usize,
    /// Maximum size of a request's line and headers; more are answered 431.
    pub header_bytes: usize,
    /// The time in which they must arrive, counted from their first byte, and on a new connection from its start.
    pub header_time: Duration,
    /// How long a connection may stay open between two requests, or accept nothing of its response.
    pub idle_time: Duration,
    /// Minimum rate at which a response must be accepted; it may fall behind by the idle time.
    pub answer_bytes_per_second: u64,
    /// How long the rest of a request is discarded after a response that was sent before its end.
    pub linger_time: Duration,
    /// How long requests in progress may go on after `drain`.
    pub drain_time: Duration,
    /// How long a request may still arrive on an open connection after `drain`.
    pub late_time: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS_MAX,
            headers: limits::HEADERS_MAX,
            header_bytes: limits::HEADER_BYTES_MAX,
            header_time: limits::HEADER_TIME,
            idle_time: limits::CONNECTION_IDLE,
            answer_bytes_per_second: limits::ANSWER_BYTES_PER_SECOND_MIN,
            linger_time: limits::CONNECTION_LINGER,
            drain_time: limits::DRAIN_TIME,
            late_time: Duration::ZERO,
        }
    }
}

/// Serves a port until `drain` is cancelled and the last connection is closed.
///
/// The handler is any `async fn(Request<Incoming>) -> Response<_>`; an axum router is one after
/// `request.map(axum::body::Body::new)`. It runs in the task of its connection and is dropped when the client
/// disconnects, so what must not be lost belongs in a task of its own. A response with `Connection: close` ends its
/// connection.
///
/// On `drain` the port is closed, connections without a request are closed, and requests in progress are finished and
/// answered with `Connection: close`; what is not finished within [`ConnectionLimits::drain_time`] is dropped.
pub async fn serve<H, F, B>(
    listener: impl Into<PortListener>,
    handler: H,
    limits: ConnectionLimits,
    drain: CancellationToken,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    serve_with_peers(listener, move |request, _| handler(request), limits, drain).await;
}

/// The same with a handler that also gets the address of the peer.
pub async fn serve_with_peers<H, F, B>(
    listener: impl Into<PortListener>,
    handler: H,
    limits: ConnectionLimits,
    drain: CancellationToken,
) where
    H: Fn(Request<Incoming>, PeerAddress) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let listener = listener.into();
    let places = ConnectionLimiter::new(limits.connections);
    let connections = TaskTracker::new();
    let mut complaint = AcceptErrorLog::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = drain.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Responses are small and written at once: waiting to fill a packet only delays them. A socket for
                // which this fails is already reset, which shows at its first byte.
                let _ = stream.set_nodelay(true);
                let watch = ConnTimeoutTracker::new(limits, places.port_state());
                let Some(place) = drain.run_until_cancelled(places.take(&watch)).await else { break };
                let socket = TimedSocket::new(stream, watch.clone());
                let begun = match listener.tls() {
                    None => Begin::Plain(TimedStream::new(Transport::Plain(socket), watch.clone())),
                    Some(tls) => Begin::Tls(socket, tls.config()),
                };
                let context = ConnectionContext { watch, peer: peer.ip().to_canonical(), limits, drain: drain.clone() };
                let connection = serve_connection(begun, context, handler.clone(), connections.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                complaint.log(&error);
                let closed = is_out_of_files(&error) && places.close_idle();
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tokio::time::sleep(if closed { CLOSE_PAUSE } else { ACCEPT_PAUSE }).await;
                }
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

fn is_out_of_files(error: &io::Error) -> bool {
    let code = rustix::io::Errno::from_io_error(error);
    matches!(code, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

/// A connection before its first byte.
enum Begin {
    Plain(TimedStream),
    Tls(TimedSocket, Arc<ServerConfig>),
}

/// What belongs to one connection beside its socket.
pub(super) struct ConnectionContext {
    pub(super) watch: ConnTimeoutTracker,
    /// The peer's address; one of IPv4 is never written as one of IPv6.
    pub(super) peer: IpAddr,
    pub(super) limits: ConnectionLimits,
    pub(super) drain: CancellationToken,
}

/// One connection, from its first byte to its last. The time for the first headers is the time for TLS, too.
async fn serve_connection<H, F, B>(begun: Begin, context: ConnectionContext, handler: H, tasks: TaskTracker)
where
    H: Fn(Request<Incoming>, PeerAddress) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (socket, config) = match begun {
        Begin::Plain(socket) => return serve_http1(socket, context, handler).await,
        Begin::Tls(socket, config) => (socket, config),
    };
    let negotiated = tokio::select! {
        biased;
        negotiated = tls::negotiate(socket, config, context.peer) => negotiated,
        () = context.watch.closed() => return,
        () = context.watch.overdue() => return,
        () = late(&context.drain, context.limits.late_time) => return,
    };
    match negotiated {
        None => {}
        Some((Negotiated::Http1, stream)) => {
            let socket = TimedStream::new(Transport::Tls(stream), context.watch.clone());
            serve_http1(socket, context, handler).await;
        }
        Some((Negotiated::Http2, stream)) => {
            let socket = TimedStream::new(Transport::Tls(stream), context.watch.clone());
            // Boxed: a connection of HTTP/1.1 should not carry the state of this.
            Box::pin(http2::serve_streams(socket, context, handler, tasks)).await;
        }
    }
}

/// A connection of HTTP/1.1. While no request is in progress it has no hyper buffers.
async fn serve_http1<H, F, B>(mut socket: TimedStream, context: ConnectionContext, handler: H)
where
    H: Fn(Request<Incoming>, PeerAddress) -> F + Clone,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let ConnectionContext { watch, peer, limits, drain } = context;
    loop {
        tokio::select! {
            biased;
            read = socket.read_head() => if read.is_err() { return },
            () = watch.closed() => return,
            () = watch.overdue() => return,
            () = late(&drain, limits.late_time) => return,
        }
        match Box::pin(serve_requests(socket, &watch, peer, handler.clone(), limits, &drain)).await {
            Some(quiet) => socket = quiet,
            None => return,
        }
    }
}

/// Waits until no request may arrive any more.
async fn late(drain: &CancellationToken, late_time: Duration) {
    drain.cancelled().await;
    if !late_time.is_zero() {
        tokio::time::sleep(late_time).await;
    }
}

/// Requests and responses, until the connection ends, or has been quiet for a while: then its socket is returned.
async fn serve_requests<H, F, B>(
    socket: TimedStream,
    watch: &ConnTimeoutTracker,
    peer: IpAddr,
    handler: H,
    limits: ConnectionLimits,
    drain: &CancellationToken,
) -> Option<TimedStream>
where
    H: Fn(Request<Incoming>, PeerAddress) -> F,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let busy = watch.busy();
        let response = handler(request, PeerAddress(peer));
        async move {
            let response = response.await;
            if says_close(response.headers()) {
                watch.will_linger();
            }
            Ok::<_, Infallible>(response.map(|body| TrackedResponseBody { body, _busy: busy }))
        }
    });
    let mut connection = builder(limits).serve_connection(TokioIo::new(socket), service);
    let mut due = pin!(watch.due());
    let mut draining = false;
    loop {
        tokio::select! {
            // The deadlines are checked after the connection was polled, in the same turn: what the connection begins
            // in its turn has its deadline before the turn ends.
            biased;
            ended = &mut connection => {
                // A client that disconnects or sends invalid HTTP is not our error.
                ended.unwrap_or_default();
                return None;
            }
            () = watch.closed() => return None,
            due = due.as_mut() => match due {
                ConnDeadline::Close => return None,
                ConnDeadline::ReleaseBuffers => {
                    let parts = connection.into_parts();
                    return Some(parts.io.into_inner().with_unread(&parts.read_buf));
                }
            },
            () = drain.cancelled(), if !draining => {
                draining = true;
                watch.end_by(Instant::now() + limits.drain_time);
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
}

fn builder(limits: ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .max_headers(limits.headers)
        .max_header_size(limits.header_bytes)
        // Nothing larger than the headers has to fit at once; hyper would take 400 KB per connection.
        .max_buf_size(limits.header_bytes.max(BUFFER_BYTES_MIN))
        // hyper counts this time from the end of the last response, so it would be the idle time too: `ConnTimeoutTracker`
        // has both.
        .header_read_timeout(None);
    builder
}

fn says_close(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// The body of a response; its connection is busy until hyper has accepted all of it.
struct TrackedResponseBody<B> {
    body: B,
    _busy: InFlightRequest,
}

impl<B: Body + Unpin> Body for TrackedResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Limits the log lines about failing accepts.
#[derive(Default)]
struct AcceptErrorLog {
    last: Option<Instant>,
}

impl AcceptErrorLog {
    fn log(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.last.is_none_or(|last| now - last >= ACCEPT_COMPLAINT_EVERY) {
            self.last = Some(now);
            let why = format!("cannot accept a connection: {error}");
            error!(target: "hookonce", why, "accept");
        }
    }
}

/// Raises the limit of open files for `connections`, as far as the system allows, and returns the resulting limit. Most
/// systems start a process with 1,024.
pub fn raise_file_limit(connections: usize) -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = (connections + limits::FILES_BESIDE_CONNECTIONS) as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let allowed = maximum.map_or(wanted, |most| wanted.min(most));
    if current.is_none_or(|now| now >= allowed) {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum }) {
        Ok(()) => Some(allowed),
        Err(_) => current,
    }
}

/// The connection limits of the webhook port and the admin port, for a process that may open this many files: some are
/// reserved for the store, commands and receivers, whatever clients do.
pub fn connection_limits(files: Option<u64>) -> (usize, usize) {
    let all = limits::CONNECTIONS_MAX + limits::ADMIN_CONNECTIONS_MAX + limits::FILES_BESIDE_CONNECTIONS;
    let files = files.map_or(all, |files| usize::try_from(files).unwrap_or(all)).min(all);
    let beside = limits::FILES_BESIDE_CONNECTIONS.min(files / 4);
    let admin = limits::ADMIN_CONNECTIONS_MAX.min(files / 8);
    (files - beside - admin, admin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_the_rest_of_the_node() {
        for (files, expected) in [
            (None, (10_000, 1_000)),
            (Some(u64::MAX), (10_000, 1_000)),
            (Some(12_024), (10_000, 1_000)),
            (Some(4_096), (2_560, 512)),
            (Some(1_024), (640, 128)),
            (Some(256), (160, 32)),
        ] {
            assert_eq!(connection_limits(files), expected, "{files:?}");
        }
    }
}
