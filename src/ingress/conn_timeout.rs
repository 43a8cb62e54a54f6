//! The deadlines of one connection: how long it may take for what it is doing. Closes nothing itself: the task that
//! drives the connection drops it when [`ConnTimeoutTracker::overdue`] returns.
//!
//! ```text
//! New ─first byte─▶ Head ─request─▶ Busy ─answer─▶ Idle ──first byte─▶ Head
//!                    │               └─ closed before the request was read ─▶ Lingering
//!                    └─ malformed, answered by hyper ────────────────────────▶ Lingering
//! ```
//! `Busy` has no deadline here: a body has its own, and so has whatever the handler waits for. In any other phase the
//! port may close the connection to admit another one (`conn_limit.rs`).
//!
//! A connection of HTTP/2 has several requests: it is `Busy` from its first one until the last response has ended, then
//! `Idle`. Its frames are not heads, so no byte changes its phase. Each response has a deadline of its own: what a client
//! does not accept blocks one stream, not the socket.

use super::accept::ConnectionLimits;
use super::conn_limit::PortState;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

/// A connection that is quiet for this long releases its buffers.
const REST_AFTER: Duration = Duration::from_millis(100);

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
    /// Closed to admit another connection.
    Closed,
}

/// In which way a connection has no request in progress, the best to close first.
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

/// In which way, and since when, a connection has no request in progress. The smallest is closed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct IdleSince {
    pub(super) kind: IdleKind,
    since: Instant,
}

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ConnDeadline {
    /// To close the connection.
    Close,
    /// To release its buffers: it has been quiet for a while.
    ReleaseBuffers,
}

/// A response that the peer did not accept at once.
#[derive(Clone, Copy)]
struct BlockedWrite {
    since: Instant,
    /// When it is given up. Every accepted byte moves this later, but never further than the idle time.
    until: Instant,
}

struct ConnTimeoutState {
    phase: ConnPhase,
    /// Set until everything written is accepted.
    blocked: Option<BlockedWrite>,
    /// Set by a drain.
    end_by: Option<Instant>,
    /// Whether the response was sent before its request was read.
    will_linger: bool,
    /// Bytes of the head that is arriving.
    head: usize,
    /// Whether it has several requests at once: HTTP/2.
    multiplexed: bool,
    /// Requests in progress.
    requests: usize,
    /// Until when the client of HTTP/2 must accept the next bytes of each response that it keeps waiting.
    responses: BTreeMap<u64, Instant>,
    next_response: u64,
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

/// Tracks what one connection is doing, and when it must be closed for it. Shared by its socket, its requests and its
/// driver, which are one task: the lock is never contended.
#[derive(Clone)]
pub(super) struct ConnTimeoutTracker(Arc<ConnTimeoutsInner>);

struct ConnTimeoutsInner {
    state: Mutex<ConnTimeoutState>,
    limits: ConnectionLimits,
    port: Arc<PortState>,
    closed: Notify,
    /// Notified when a deadline may have come nearer outside of the driver's task: HTTP/2 has a task for each request.
    changed: Notify,
}

impl ConnTimeoutTracker {
    pub(super) fn new(limits: ConnectionLimits, port: Arc<PortState>) -> Self {
        let phase = ConnPhase::New { since: Instant::now() };
        let state = Mutex::new(ConnTimeoutState {
            phase,
            blocked: None,
            end_by: None,
            will_linger: false,
            head: 0,
            multiplexed: false,
            requests: 0,
            responses: BTreeMap::new(),
            next_response: 0,
        });
        let (closed, changed) = (Notify::new(), Notify::new());
        Self(Arc::new(ConnTimeoutsInner { state, limits, port, closed, changed }))
    }

    /// From now on the connection has several requests at once.
    pub(super) fn multiplex(&self) {
        self.state().multiplexed = true;
    }

    /// Returns when a deadline may have come nearer.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// A permit for one more request on this port, unless there are as many as it may have connections.
    pub(super) fn begin_stream(&self) -> Option<StreamPermit> {
        let permit = StreamPermit(self.0.port.clone());
        (self.0.port.stream_began() <= self.0.limits.connections).then_some(permit)
    }

    /// Tracks one response of HTTP/2.
    pub(super) fn track_response(&self) -> ResponseDeadline {
        let mut state = self.state();
        let id = state.next_response;
        state.next_response += 1;
        drop(state);
        let deadline = ResponseDeadline { watch: self.clone(), id };
        deadline.waits_for_client(0);
        self.0.changed.notify_one();
        deadline
    }

    fn state(&self) -> MutexGuard<'_, ConnTimeoutState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn limits(&self) -> &ConnectionLimits {
        &self.0.limits
    }

    /// Whether, and since when, no request is in progress.
    pub(super) fn idle(&self) -> Option<IdleSince> {
        self.state().idle()
    }

    /// Marks the connection as closed and wakes its driver, if it has been idle in this way all the time.
    pub(super) fn close_if(&self, idle: IdleSince) -> bool {
        let mut state = self.state();
        let same = state.idle() == Some(idle);
        if same {
            state.phase = ConnPhase::Closed;
            self.0.closed.notify_one();
        }
        same
    }

    /// Returns when this connection is closed to admit another one. A request that began at the last moment is
    /// finished.
    pub(super) async fn closed(&self) {
        loop {
            self.0.closed.notified().await;
            if self.is_closed() {
                return;
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state().phase, ConnPhase::Closed)
    }

    /// Marks a request as in progress until the guard is dropped.
    pub(super) fn busy(&self) -> InFlightRequest {
        let mut state = self.state();
        state.phase = ConnPhase::Busy;
        state.requests += 1;
        self.0.port.head_ended(std::mem::take(&mut state.head));
        drop(state);
        InFlightRequest(self.clone())
    }

    /// The current response closes its connection, possibly before the request was read.
    pub(super) fn will_linger(&self) {
        self.state().will_linger = true;
    }

    /// The connection ends at this time, whatever it is doing.
    pub(super) fn end_by(&self, end: Instant) {
        self.state().end_by = Some(end);
    }

    /// Returns at the next deadline. To be polled after the connection, in the same task: nothing else wakes it when
    /// the phase changes.
    pub(super) async fn due(&self) -> ConnDeadline {
        self.alarm(|| self.deadline()).await
    }

    /// The same for a connection without buffers to release: returns when it is time to close it.
    pub(super) async fn overdue(&self) {
        self.alarm(|| self.close_by().map(|at| (at, ()))).await;
    }

    async fn alarm<T>(&self, next: impl Fn() -> Option<(Instant, T)>) -> T {
        let mut alarm = pin!(sleep_until(Instant::now() + self.0.limits.header_time));
        poll_fn(|cx| {
            loop {
                let Some((deadline, due)) = next() else { return Poll::Pending };
                // A deadline that has only moved later is noticed when the timer fires: resetting it for every request
                // of a kept connection would cost more.
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

    /// The next deadline, and what it is for.
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
        let response = state.responses.values().min().copied();
        [doing, response, state.end_by].into_iter().flatten().min()
    }

    pub(super) fn on_read(&self, bytes: usize) {
        let mut state = self.state();
        if state.multiplexed {
            return;
        }
        state.phase = match state.phase {
            // A connection without any byte has no more time than one that sends headers.
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

    /// Tracks a write. hyper drops a response when it is buffered, not when it is written: until then the connection is
    /// not quiet, and the next request has not begun.
    pub(super) fn on_write(&self, written: &Poll<io::Result<usize>>) {
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
                // What HTTP/2 itself answers, such as a ping, keeps no connection open.
                let multiplexed = state.multiplexed;
                if let ConnPhase::Idle { since } | ConnPhase::Head { since } = &mut state.phase
                    && !multiplexed
                {
                    *since = now;
                }
            }
        }
    }

    /// Everything was written.
    pub(super) fn flushed(&self) {
        self.state().blocked = None;
    }

    /// Whether the peer may still be sending bytes that are no longer read; then the connection lingers.
    pub(super) fn starts_to_linger(&self) -> bool {
        let mut state = self.state();
        let lingers = state.will_linger || matches!(state.phase, ConnPhase::Head { .. });
        if lingers {
            state.phase = ConnPhase::Lingering { since: Instant::now() };
        }
        lingers
    }
}

/// A request in progress: from its headers until hyper has its response.
pub(super) struct InFlightRequest(ConnTimeoutTracker);

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        if state.requests == 0 {
            state.phase = ConnPhase::Idle { since: Instant::now() };
        }
        let multiplexed = state.multiplexed;
        drop(state);
        self.0.0.port.changed();
        if multiplexed {
            self.0.0.changed.notify_one();
        }
    }
}

/// A permit for one request of HTTP/2; released on drop.
pub(super) struct StreamPermit(Arc<PortState>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.stream_ended();
    }
}

/// The deadline of one response of HTTP/2: hyper asks for its next bytes only when the client accepts some.
pub(super) struct ResponseDeadline {
    watch: ConnTimeoutTracker,
    id: u64,
}

impl ResponseDeadline {
    /// The client must accept these bytes before it gets more.
    pub(super) fn waits_for_client(&self, bytes: usize) {
        let ConnectionLimits { idle_time, answer_bytes_per_second, .. } = self.watch.0.limits;
        let bytes = (bytes as u64).saturating_mul(1_000_000);
        let time = Duration::from_micros(bytes / answer_bytes_per_second.max(1));
        self.watch.state().responses.insert(self.id, Instant::now() + idle_time + time);
    }

    /// There is nothing that the client could accept.
    pub(super) fn waits_for_us(&self) {
        self.watch.state().responses.remove(&self.id);
    }
}

impl Drop for ResponseDeadline {
    fn drop(&mut self) {
        self.waits_for_us();
    }
}
