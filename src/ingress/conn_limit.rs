//! Limits the connections of one port: counts them, and chooses which one is closed to admit another.
//!
//! The connection that has been idle longest is closed: first one between two requests; if there is none, one without a
//! complete request so far; if there is none either, one whose client has yet to read its response. A connection with a
//! request in progress is never closed.

use super::conn_timeout::{ConnTimeoutTracker, IdleKind, IdleSince};
use crate::decide::limits;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Idle connections that one scan collects. Those that have been idle longest stay so until they are closed or used
/// again, so a flood does not make every new connection scan all of them.
const FOUND_AT_ONCE: usize = 256;
/// The same for connections that are not idle between requests; one that is would be better to close, and may appear at
/// any time.
const OTHERS_AT_ONCE: usize = 16;

/// The connections of one port, and their limit.
pub(super) struct ConnectionLimiter {
    max: usize,
    open: Mutex<OpenConnections>,
    port: Arc<PortState>,
}

#[derive(Default)]
struct OpenConnections {
    all: HashMap<u64, ConnTimeoutTracker>,
    next: u64,
    /// Connections that were found idle, the longest first.
    found: VecDeque<(u64, IdleSince)>,
}

/// State shared by the connections of one port.
#[derive(Default)]
pub(super) struct PortState {
    /// A new connection is waiting for a permit.
    wanted: AtomicBool,
    /// Notified when a permit may have become free.
    changed: Notify,
    /// Bytes of all unfinished request heads.
    heads: AtomicUsize,
    /// Requests of HTTP/2 in progress.
    streams: AtomicUsize,
}

impl PortState {
    /// Counts `bytes` more of a head, which has `own` bytes in total. False: there is no memory for a head of this
    /// length.
    pub(super) fn head_grew(&self, bytes: usize, own: usize) -> bool {
        let all = self.heads.fetch_add(bytes, Ordering::Relaxed) + bytes;
        all <= limits::HEADS_BYTES_MAX || own <= limits::SMALL_HEAD_BYTES_MAX
    }

    /// Releases a head that is complete, or whose connection has closed.
    pub(super) fn head_ended(&self, own: usize) {
        self.heads.fetch_sub(own, Ordering::Relaxed);
    }

    /// Counts one more request of HTTP/2, and returns how many there are.
    pub(super) fn stream_began(&self) -> usize {
        self.streams.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Such a request has ended.
    pub(super) fn stream_ended(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Reports that a connection has closed, or has no request in progress any more.
    pub(super) fn changed(&self) {
        if self.wanted.load(Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }
}

/// A permit for one connection; released on drop.
pub(super) struct ConnectionPermit {
    places: Arc<ConnectionLimiter>,
    id: u64,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.places.open().all.remove(&self.id);
        self.places.port.changed();
    }
}

impl ConnectionLimiter {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, open: Mutex::default(), port: Arc::default() })
    }

    /// The state that this port's connections share.
    pub(super) fn port_state(&self) -> Arc<PortState> {
        self.port.clone()
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for this connection. At the limit another one is closed for it; if none is idle, it waits.
    pub(super) async fn take(self: &Arc<Self>, watch: &ConnTimeoutTracker) -> ConnectionPermit {
        loop {
            if let Some(place) = self.try_take(watch) {
                return place;
            }
            // Checked again: a connection that became idle before this was set did not notify.
            self.port.wanted.store(true, Ordering::SeqCst);
            let place = self.try_take(watch);
            if place.is_none() {
                self.port.changed.notified().await;
            }
            self.port.wanted.store(false, Ordering::SeqCst);
            if let Some(place) = place {
                return place;
            }
        }
    }

    fn try_take(self: &Arc<Self>, watch: &ConnTimeoutTracker) -> Option<ConnectionPermit> {
        let mut open = self.open();
        if open.all.len() >= self.max && !open.close_one() {
            return None;
        }
        let id = open.next;
        open.next += 1;
        open.all.insert(id, watch.clone());
        Some(ConnectionPermit { places: self.clone(), id })
    }

    /// Closes the connection that has been idle between two requests longest; returns whether there was one.
    pub(super) fn close_idle(&self) -> bool {
        let mut open = self.open();
        let idle = open.all.values().filter_map(ConnTimeoutTracker::idle).any(|idle| idle.kind.is_between_requests());
        idle && open.close_one()
    }
}

impl OpenConnections {
    fn close_one(&mut self) -> bool {
        if self.close_found() {
            return true;
        }
        let mut idle: Vec<_> = self.all.iter().filter_map(|(id, watch)| Some((watch.idle()?, *id))).collect();
        idle.sort_unstable();
        let kind = idle.first().map(|(idle, _)| idle.kind);
        let most = if kind.is_some_and(IdleKind::is_between_requests) { FOUND_AT_ONCE } else { OTHERS_AT_ONCE };
        let same = idle.into_iter().take_while(|(idle, _)| Some(idle.kind) == kind);
        self.found = same.take(most).map(|(idle, id)| (id, idle)).collect();
        self.close_found()
    }

    /// Closes the first of the found connections that has not changed since.
    fn close_found(&mut self) -> bool {
        while let Some((id, idle)) = self.found.pop_front() {
            if self.all.get(&id).is_some_and(|watch| watch.close_if(idle)) {
                self.all.remove(&id);
                return true;
            }
        }
        false
    }
}
