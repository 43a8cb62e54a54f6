//! How long a connection may take for what it is doing. Owns the deadlines of one connection; closes nothing itself:
//! whoever drives the connection drops it when [`ConnTimeouts::overdue`] returns.
//!
//! ```text
//! New ─first byte─▶ Head ─request─▶ Busy ─answer─▶ Quiet ─first byte─▶ Head
//!                    │               └─ closed before the request was read ─▶ Lingering
//!                    └─ malformed, answered by hyper ────────────────────────▶ Lingering
//! ```
//! `InFlightRequest` has no deadline here: a body has its own, and so has whatever the handler waits for. Out of any other phase the
//! port may close a connection to make room for another one (`conn_limit.rs`).

use super::accept::ConnectionLimits;
use super::conn_limit::PortState;
use crate::decide::limits;
use bytes::{Buf as _, Bytes};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

/// Bytes thrown away at a time while lingering.
const LINGER_BYTES: usize = 8 << 10;

/// A connection that is quiet for so long gives its buffers back.
const REST_AFTER: Duration = Duration::from_millis(100);
/// Bytes taken from a socket at a time. hyper doubles the buffer of a connection that fills it, up to what headers may
/// take, and keeps it so: less than its first one is never filled.
const READ_BYTES: usize = (8 << 10) - 1;
/// A head that is arriving grows by so much at a time, and never to twice its size.
const HEAD_GROWTH: usize = 512;

#[derive(Clone, Copy)]
enum ConnPhase {
    New {
        since: Instant,
    },
    Head {
        since: Instant,
    },
    Busy,
    Idle {
        since: Instant,
    },
    Lingering {
        since: Instant,
    },
    /// Another connection has its place.
    Closed,
}

/// In which way a connection has no request under way, the best to close first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum IdleKind {
    BetweenRequests,
    BeforeRequest,
    AfterAnswer,
}

impl IdleKind {
    pub(super) fn is_between_requests(self) -> bool {
        self == Self::BetweenRequests
    }
}

/// In which way, and since when, a connection has no request under way. The smaller, the sooner it is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct IdleSince {
    pub(super) kind: IdleKind,
    since: Instant,
}

/// What it is time for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ConnDeadline {
    /// To close the connection.
    Close,
    /// To give its buffers back: it has been quiet for a while.
    ReleaseBuffers,
}

/// An answer that its peer did not take at once.
#[derive(Clone, Copy)]
struct BlockedWrite {
    since: Instant,
    /// When it is given up. Every byte that is taken moves this away, but never further than the idle time.
    until: Instant,
}

struct ConnTimeoutState {
    phase: ConnPhase,
    /// Until all that we wrote is taken.
    blocked: Option<BlockedWrite>,
    /// Set by a drain.
    end_by: Option<Instant>,
    /// The answer was given before its request was read.
    will_linger: bool,
    /// Bytes of the head that is arriving.
    head: usize,
}

impl Drop for ConnTimeoutsInner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.port.head_ended(state.head);
    }
}

impl ConnTimeoutState {
    fn idle(&self) -> Option<IdleSince> {
        let (kind, since) = match (self.phase, self.blocked) {
            (ConnPhase::Idle { since }, None) => (IdleKind::BetweenRequests, since),
            (ConnPhase::New { since } | ConnPhase::Head { since }, _) => (IdleKind::BeforeRequest, since),
            (ConnPhase::Lingering { since }, _) | (ConnPhase::Idle { .. }, Some(BlockedWrite { since, .. })) => {
                (IdleKind::AfterAnswer, since)
            }
            (ConnPhase::Busy | ConnPhase::Closed, _) => return None,
        };
        Some(IdleSince { kind, since })
    }
}

/// The clock of one connection. Shared by its socket, its requests and its driver, which are one task: the lock is
/// never waited for.
#[derive(Clone)]
pub(super) struct ConnTimeouts(Arc<ConnTimeoutsInner>);

struct ConnTimeoutsInner {
    state: Mutex<ConnTimeoutState>,
    limits: ConnectionLimits,
    port: Arc<PortState>,
    closed: Notify,
}

impl ConnTimeouts {
    pub(super) fn new(limits: ConnectionLimits, port: Arc<PortState>) -> Self {
        let phase = ConnPhase::New { since: Instant::now() };
        let state = Mutex::new(ConnTimeoutState { phase, blocked: None, end_by: None, will_linger: false, head: 0 });
        Self(Arc::new(ConnTimeoutsInner { state, limits, port, closed: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, ConnTimeoutState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether and since when nothing is under way.
    pub(super) fn idle(&self) -> Option<IdleSince> {
        self.state().idle()
    }

    /// Closes the connection, if it has been idle in this way all the time.
    pub(super) fn close_if(&self, idle: IdleSince) -> bool {
        let mut state = self.state();
        let same = state.idle() == Some(idle);
        if same {
            state.phase = ConnPhase::Closed;
            self.0.closed.notify_one();
        }
        same
    }

    /// Returns when another connection has this one's place. A request that began at the last moment is seen through.
    pub(super) async fn closed(&self) {
        loop {
            self.0.closed.notified().await;
            if self.is_closed() {
                return;
            }
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self.state().phase, ConnPhase::Closed)
    }

    /// A request is under way until the guard is dropped.
    pub(super) fn busy(&self) -> InFlightRequest {
        let mut state = self.state();
        state.phase = ConnPhase::Busy;
        self.0.port.head_ended(std::mem::take(&mut state.head));
        drop(state);
        InFlightRequest(self.clone())
    }

    /// The answer under way closes its connection, maybe before the request was read.
    pub(super) fn will_linger(&self) {
        self.state().will_linger = true;
    }

    /// The connection ends then, whatever it is doing.
    pub(super) fn end_by(&self, end: Instant) {
        self.state().end_by = Some(end);
    }

    /// Returns when it is time for something. To be polled after the connection, in the same task: nothing else wakes it
    /// when the phase changes.
    pub(super) async fn due(&self) -> ConnDeadline {
        self.alarm(|| self.deadline()).await
    }

    /// The same for a connection that has no buffers to give back: returns when it is time to close it.
    pub(super) async fn overdue(&self) {
        self.alarm(|| self.close_by().map(|at| (at, ()))).await;
    }

    async fn alarm<T>(&self, next: impl Fn() -> Option<(Instant, T)>) -> T {
        let mut alarm = pin!(sleep_until(Instant::now() + self.0.limits.header_time));
        poll_fn(|cx| {
            loop {
                let Some((deadline, due)) = next() else { return Poll::Pending };
                // A deadline that has only moved away is noticed when the alarm rings: setting it anew for every
                // request of a kept connection would cost more than the ring.
                if deadline < alarm.deadline() || alarm.is_elapsed() {
                    alarm.as_mut().reset(deadline);
                }
                ready!(alarm.as_mut().poll(cx));
                if deadline <= Instant::now() {
                    return Poll::Ready(due);
                }
            }
        })
        .await
    }

    /// The next thing to do, and when.
    fn deadline(&self) -> Option<(Instant, ConnDeadline)> {
        let close = self.close_by().map(|at| (at, ConnDeadline::Close));
        let state = self.state();
        let rest = match (state.blocked, state.phase) {
            (None, ConnPhase::Idle { since }) => Some((since + REST_AFTER, ConnDeadline::ReleaseBuffers)),
            _ => None,
        };
        [close, rest].into_iter().flatten().min()
    }

    fn close_by(&self) -> Option<Instant> {
        let ConnectionLimits { header_time, idle_time, linger_time, .. } = self.0.limits;
        let state = self.state();
        let doing = match (state.blocked, state.phase) {
            (Some(blocked), _) => Some(blocked.until),
            (None, ConnPhase::Idle { since }) => Some(since + idle_time),
            (None, ConnPhase::New { since } | ConnPhase::Head { since }) => Some(since + header_time),
            (None, ConnPhase::Lingering { since }) => Some(since + linger_time),
            (None, ConnPhase::Busy | ConnPhase::Closed) => None,
        };
        [doing, state.end_by].into_iter().flatten().min()
    }

    fn on_read(&self, bytes: usize) {
        let mut state = self.state();
        state.phase = match state.phase {
            // A connection that is opened for nothing has no more time than one that is opened for headers.
            ConnPhase::New { since } => ConnPhase::Head { since },
            ConnPhase::Idle { .. } => ConnPhase::Head { since: Instant::now() },
            same => same,
        };
        if let ConnPhase::Head { .. } = state.phase {
            state.head += bytes;
            if !self.0.port.head_grew(bytes, state.head) {
                state.phase = ConnPhase::Closed;
                self.0.closed.notify_one();
            }
        }
    }

    /// hyper lets go of an answer when it is buffered, not when it is written: until then nobody is quiet, and the
    /// next request has not begun.
    fn on_write(&self, written: &Poll<io::Result<usize>>) {
        let ConnectionLimits { idle_time, answer_bytes_per_second, .. } = self.0.limits;
        let now = Instant::now();
        let latest = now + idle_time;
        let mut state = self.state();
        match written {
            Poll::Pending => {
                state.blocked.get_or_insert(BlockedWrite { since: now, until: latest });
                drop(state);
                self.0.port.changed();
            }
            Poll::Ready(written) => {
                let bytes = written.as_ref().map_or(0, |bytes| *bytes as u64);
                if let Some(blocked) = &mut state.blocked {
                    let time = Duration::from_micros(bytes.saturating_mul(1_000_000) / answer_bytes_per_second.max(1));
                    blocked.until = latest.min(blocked.until + time);
                }
                if let ConnPhase::Idle { since } | ConnPhase::Head { since } = &mut state.phase {
                    *since = now;
                }
            }
        }
    }

    /// All that was to be written is written.
    fn flushed(&self) {
        self.state().blocked = None;
    }

    /// Whether the peer may still be sending what we no longer read.
    fn starts_to_linger(&self) -> bool {
        let mut state = self.state();
        let lingers = state.will_linger || matches!(state.phase, ConnPhase::Head { .. });
        if lingers {
            state.phase = ConnPhase::Lingering { since: Instant::now() };
        }
        lingers
    }
}

/// A request under way: from its headers until its answer is with hyper.
pub(super) struct InFlightRequest(ConnTimeouts);

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.state().phase = ConnPhase::Idle { since: Instant::now() };
        self.0.0.port.changed();
    }
}

/// A socket that tells its watch what happens.
pub(super) struct TimedStream {
    stream: TcpStream,
    /// What was read of the next request and hyper has not taken yet.
    unread: Bytes,
    watch: ConnTimeouts,
    closing: LingerState,
}

#[derive(Clone, Copy)]
enum LingerState {
    NotYet,
    Lingering,
}

impl TimedStream {
    pub(super) fn new(stream: TcpStream, watch: ConnTimeouts) -> Self {
        Self { stream, unread: Bytes::new(), watch, closing: LingerState::NotYet }
    }

    /// The same with what was read of it and not understood yet. Copied: as it is, it would keep the buffer it is in.
    pub(super) fn with_unread(self, unread: &[u8]) -> Self {
        if !unread.is_empty() {
            self.watch.on_read(unread.len());
        }
        Self { unread: Bytes::copy_from_slice(unread), ..self }
    }

    /// Reads until hyper is needed. Before that, an unfinished head takes as much memory as was sent of it; hyper would
    /// take two buffers of 8 KiB for its first byte.
    pub(super) async fn read_head(&mut self) -> io::Result<()> {
        let longest = self.watch.0.limits.header_bytes.min(limits::SMALL_HEAD_BYTES_MAX);
        let mut head = Vec::from(std::mem::take(&mut self.unread));
        let mut looked = 0;
        while head.len() < longest && !is_whole(&head, looked) {
            looked = head.len();
            self.stream.readable().await?;
            match self.read_some(&mut head) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.watch.on_read(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        self.unread = head.into();
        Ok(())
    }

    fn read_some(&self, head: &mut Vec<u8>) -> io::Result<usize> {
        let mut some = [0; READ_BYTES];
        let bytes = self.stream.try_read(&mut some)?;
        if head.capacity() - head.len() < bytes {
            head.reserve_exact(bytes.max(HEAD_GROWTH));
        }
        head.extend_from_slice(&some[..bytes]);
        Ok(bytes)
    }
}

/// Has a head come to its end? Its first `looked` bytes were looked at before. One that cannot become any, as the first
/// bytes of TLS, is hyper's to refuse.
fn is_whole(head: &[u8], looked: usize) -> bool {
    let Some(start) = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) else { return false };
    // An end may have begun in what was looked at before.
    let new = &head[looked.saturating_sub(2).max(start)..];
    let ends = |end: &[u8]| new.windows(end.len()).any(|bytes| bytes == end);
    !head[start].is_ascii_graphic() || ends(b"\n\r\n") || ends(b"\n\n")
}

impl AsyncRead for TimedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.watch.is_closed() {
            return Poll::Ready(Ok(())); // an end: what comes now is not begun
        }
        if !self.unread.is_empty() {
            let some = self.unread.len().min(into.remaining()).min(READ_BYTES);
            into.put_slice(&self.unread[..some]);
            self.unread.advance(some);
            return Poll::Ready(Ok(()));
        }
        let most = into.remaining().min(READ_BYTES);
        let mut some = ReadBuf::new(into.initialize_unfilled_to(most));
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut some);
        let filled = some.filled().len();
        if filled > 0 {
            into.advance(filled);
            self.watch.on_read(filled);
        }
        read
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch.on_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch.on_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes when it has nothing more to write.
        self.watch.flushed();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Says that we are done, then reads on until the peer is: a socket closed over unread bytes is reset, and a reset
    /// takes our answer with it before the peer has seen it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let LingerState::NotYet = self.closing {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.watch.starts_to_linger() {
                return Poll::Ready(Ok(()));
            }
            self.closing = LingerState::Lingering;
        }
        let mut scrap = [0; LINGER_BYTES];
        loop {
            let mut into = ReadBuf::new(&mut scrap);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut into));
            if read.is_err() || into.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_whole_at_its_empty_line_and_what_cannot_become_one_at_once() {
        for (head, expected) in [
            ("", false),
            ("\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nhost: t\r\n", false),
            ("GET / HTTP/1.1\r\nhost: t\r\n\r", false),
            ("GET / HTTP/1.1\r\nhost: t\r\n\r\n", true),
            ("\r\nGET / HTTP/1.1\r\n\r\nbody", true),
            ("GET / HTTP/1.1\nhost: t\n\n", true),
            ("\u{16}\u{3}\u{1}", true),
            ("\r\n\0", true),
        ] {
            for looked in 0..head.len().max(1) {
                let before = is_whole(&head.as_bytes()[..looked], 0);
                assert_eq!(before || is_whole(head.as_bytes(), looked), expected, "{head:?} from {looked}");
            }
        }
    }
}
