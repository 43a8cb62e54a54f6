//! The connections of one port: how many there are, and which one is closed when there is no place for another.
//!
//! The one that has been idle longest goes: between two requests; if there is none, without a whole request so far; if
//! there is none either, with an answer that is only waited for to be read. One with a request under way never goes.

use super::conn_timeout::{ConnTimeouts, IdleKind, IdleSince};
use crate::decide::limits;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Idle connections that one look through all of them finds: those that are idle longest stay so until they are closed
/// or come back, so that a flood does not make every newcomer look through all.
const FOUND_AT_ONCE: usize = 256;
/// The same among connections that are not idle between requests; one of those is better, and may come at any time.
const OTHERS_AT_ONCE: usize = 16;

/// The places of one port.
pub(super) struct ConnectionLimiter {
    max: usize,
    open: Mutex<OpenConnections>,
    port: Arc<PortState>,
}

#[derive(Default)]
struct OpenConnections {
    all: HashMap<u64, ConnTimeouts>,
    next: u64,
    /// Connections that were found idle, the longest first.
    found: VecDeque<(u64, IdleSince)>,
}

/// What the connections of one port share.
#[derive(Default)]
pub(super) struct PortState {
    /// A newcomer waits for a place …
    wanted: AtomicBool,
    /// … and is told here that one may have become free.
    changed: Notify,
    /// Bytes of all unfinished heads.
    heads: AtomicUsize,
}

impl PortState {
    /// So many bytes of a head have arrived, `own` of it altogether. False: there is no room for a head of this length.
    pub(super) fn head_grew(&self, bytes: usize, own: usize) -> bool {
        let all = self.heads.fetch_add(bytes, Ordering::Relaxed) + bytes;
        all <= limits::HEADS_BYTES_MAX || own <= limits::SMALL_HEAD_BYTES_MAX
    }

    /// A head is whole, or its connection is gone.
    pub(super) fn head_ended(&self, own: usize) {
        self.heads.fetch_sub(own, Ordering::Relaxed);
    }

    /// A connection ended, or has nothing under way any more.
    pub(super) fn changed(&self) {
        if self.wanted.load(Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }
}

/// A place, until it is dropped.
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

    /// What this port's connections share.
    pub(super) fn port_state(&self) -> Arc<PortState> {
        self.port.clone()
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for this connection: at the limit another is closed for it, and if none is idle it waits.
    pub(super) async fn take(self: &Arc<Self>, watch: &ConnTimeouts) -> ConnectionPermit {
        loop {
            if let Some(place) = self.try_take(watch) {
                return place;
            }
            // Looked at again: what became idle before this was set told nobody.
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

    fn try_take(self: &Arc<Self>, watch: &ConnTimeouts) -> Option<ConnectionPermit> {
        let mut open = self.open();
        if open.all.len() >= self.max && !open.close_one() {
            return None;
        }
        let id = open.next;
        open.next += 1;
        open.all.insert(id, watch.clone());
        Some(ConnectionPermit { places: self.clone(), id })
    }

    /// Closes the connection that is idle between two requests longest; says whether there was any.
    pub(super) fn close_idle(&self) -> bool {
        let mut open = self.open();
        let idle = open.all.values().filter_map(ConnTimeouts::idle).any(|idle| idle.kind.is_between_requests());
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

    /// Closes the first of those that were found and have not moved since.
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
