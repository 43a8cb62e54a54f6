//! How long a connection may take for what it is doing. Owns the deadlines of one connection; closes nothing itself:
//! whoever drives the connection drops it when [`Watch::overdue`] returns.
//!
//! ```text
//! New ─first byte─▶ Head ─request─▶ Busy ─answer─▶ Quiet ─first byte─▶ Head
//!                    │               └─ closed before the request was read ─▶ Lingering
//!                    └─ malformed, answered by hyper ────────────────────────▶ Lingering
//! ```
//! `Busy` has no deadline here: a body has its own, and so has whatever the handler waits for.

use super::accept::Limits;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// Bytes thrown away at a time while lingering.
const LINGER_BYTES: usize = 8 << 10;

#[derive(Clone, Copy)]
enum Phase {
    New { since: Instant },
    Head { since: Instant },
    Busy,
    Quiet { since: Instant },
    Lingering { since: Instant },
}

struct State {
    phase: Phase,
    /// Since when the peer takes nothing of what we write.
    blocked: Option<Instant>,
    /// Set by a drain.
    end_by: Option<Instant>,
    /// The answer was given before its request was read.
    will_linger: bool,
}

/// The clock of one connection. Shared by its socket, its requests and its driver, which are one task: the lock is
/// never waited for.
#[derive(Clone)]
pub(super) struct Watch {
    state: Arc<Mutex<State>>,
    limits: Limits,
}

impl Watch {
    pub(super) fn new(limits: Limits) -> Self {
        let phase = Phase::New { since: Instant::now() };
        let state = State { phase, blocked: None, end_by: None, will_linger: false };
        Self { state: Arc::new(Mutex::new(state)), limits }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is under way until the guard is dropped.
    pub(super) fn busy(&self) -> Busy {
        self.state().phase = Phase::Busy;
        Busy(self.clone())
    }

    /// The answer under way closes its connection, maybe before the request was read.
    pub(super) fn will_linger(&self) {
        self.state().will_linger = true;
    }

    /// The connection ends then, whatever it is doing.
    pub(super) fn end_by(&self, end: Instant) {
        self.state().end_by = Some(end);
    }

    /// Returns when a deadline has passed. To be polled after the connection, in the same task: nothing else wakes it
    /// when the phase changes.
    pub(super) async fn overdue(&self) {
        let mut alarm = pin!(sleep_until(Instant::now() + self.limits.header_time));
        poll_fn(|cx| {
            loop {
                let Some(deadline) = self.deadline() else { return Poll::Pending };
                // A deadline that has only moved away is noticed when the alarm rings: setting it anew for every
                // request of a kept connection would cost more than the ring.
                if deadline < alarm.deadline() || alarm.is_elapsed() {
                    alarm.as_mut().reset(deadline);
                }
                ready!(alarm.as_mut().poll(cx));
                if deadline <= Instant::now() {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }

    fn deadline(&self) -> Option<Instant> {
        let Limits { header_time, idle_time, linger_time, .. } = self.limits;
        let state = self.state();
        let doing = match (state.blocked, state.phase) {
            (Some(since), _) | (None, Phase::Quiet { since }) => Some(since + idle_time),
            (None, Phase::New { since } | Phase::Head { since }) => Some(since + header_time),
            (None, Phase::Lingering { since }) => Some(since + linger_time),
            (None, Phase::Busy) => None,
        };
        [doing, state.end_by].into_iter().flatten().min()
    }

    fn bytes_came(&self) {
        let mut state = self.state();
        state.phase = match state.phase {
            // A connection that is opened for nothing has no more time than one that is opened for headers.
            Phase::New { since } => Phase::Head { since },
            Phase::Quiet { .. } => Phase::Head { since: Instant::now() },
            same => same,
        };
    }

    /// hyper lets go of an answer when it is buffered, not when it is written: until then nobody is quiet, and the
    /// next request has not begun.
    fn write_ended<T>(&self, written: &Poll<T>) {
        let now = Instant::now();
        let mut state = self.state();
        if written.is_pending() {
            state.blocked = state.blocked.or(Some(now));
            return;
        }
        state.blocked = None;
        if let Phase::Quiet { since } | Phase::Head { since } = &mut state.phase {
            *since = now;
        }
    }

    /// Whether the peer may still be sending what we no longer read.
    fn starts_to_linger(&self) -> bool {
        let mut state = self.state();
        let lingers = state.will_linger || matches!(state.phase, Phase::Head { .. });
        if lingers {
            state.phase = Phase::Lingering { since: Instant::now() };
        }
        lingers
    }
}

/// A request under way: from its headers until its answer is with hyper.
pub(super) struct Busy(Watch);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.state().phase = Phase::Quiet { since: Instant::now() };
    }
}

/// A socket that tells its watch what happens.
pub(super) struct Watched {
    stream: TcpStream,
    watch: Watch,
    closing: Closing,
}

#[derive(Clone, Copy)]
enum Closing {
    NotYet,
    Lingering,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, watch: Watch) -> Self {
        Self { stream, watch, closing: Closing::NotYet }
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        if into.filled().len() > before {
            self.watch.bytes_came();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch.write_ended(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch.write_ended(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Says that we are done, then reads on until the peer is: a socket closed over unread bytes is reset, and a reset
    /// takes our answer with it before the peer has seen it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Closing::NotYet = self.closing {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.watch.starts_to_linger() {
                return Poll::Ready(Ok(()));
            }
            self.closing = Closing::Lingering;
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
