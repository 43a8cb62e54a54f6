//! Whether a node accepts deliveries: the response of `/readyz`.
//!
//! A store that responds may still accept no writes: its disk or its memory is full, or it is read-only. So the last
//! write counts too. Once a write has failed, a node behind a load balancer gets no delivery that could show that it
//! works again: then each request to `/readyz` causes a test write, at most one a second.

use crate::decide::id::EventId;
use crate::decide::response;
use crate::decide::response::HttpResponse;
use crate::decide::time::Duration;
use crate::observe::log;
use crate::store::batch::{Batcher, LastWriteStatus};
use crate::store::{Store, WriteProbe};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long the store may take to show that it responds, and as long to show that it writes.
const READY_TIME: Duration = Duration::from_secs(2);
/// Minimum time between two test writes while the store cannot be written.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Whether the node accepts deliveries. Cheap to clone.
#[derive(Clone)]
pub struct Readiness {
    /// The node is about to stop.
    pub draining: CancellationToken,
    /// Where events are.
    pub store: Arc<dyn Store>,
    last_write: LastWriteStatus,
    /// When a test write last failed.
    probed: Arc<Mutex<Option<Instant>>>,
    late: LateRequests,
}

/// What becomes of requests that arrive while the node is about to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum LateRequests {
    /// They are refused: another node, or a proxy, takes them.
    #[default]
    Refused,
    /// They are handled: the port stays open for the process that follows, so senders know of no stop.
    Handled,
}

impl Readiness {
    /// The readiness of a node that writes to this store through this batcher.
    pub fn new(draining: CancellationToken, store: Arc<dyn Store>, batch: &Batcher) -> Self {
        let late = LateRequests::default();
        Self { draining, store, last_write: batch.last_write(), probed: Arc::default(), late }
    }

    /// The same, of a node that treats late requests so.
    #[must_use]
    pub(crate) fn treating(self, late: LateRequests) -> Self {
        Self { late, ..self }
    }

    /// Whether a delivery that arrives now is refused because the node is about to stop.
    pub(crate) fn refuses(&self) -> bool {
        self.draining.is_cancelled() && self.late == LateRequests::Refused
    }

    /// Whether the writer of the store answers within this time, with whatever result. A store that only does not respond
    /// is not this node's fault: it says so itself.
    pub(crate) async fn is_alive(&self, within: Duration) -> bool {
        timeout(within, self.store.probe(WriteProbe::Alive)).await.is_ok()
    }

    /// The response to `/readyz`.
    pub async fn ready(&self) -> HttpResponse {
        if self.draining.is_cancelled() {
            return response::not_ready("draining");
        }
        let nobody = EventId([0; 16]);
        match timeout(READY_TIME, self.store.get(nobody)).await {
            Ok(Ok(_)) if self.writes().await => response::healthy(),
            Ok(Ok(_)) => response::not_ready("store_not_writable"),
            _ => response::not_ready("store_unreachable"),
        }
    }

    /// Whether the store can be written, as far as is known.
    async fn writes(&self) -> bool {
        if !self.last_write.failed() {
            return self.probe(WriteProbe::Look).await;
        }
        let mut probed = self.probed.lock().await;
        if probed.is_some_and(|at| at.elapsed() < PROBE_EVERY) {
            return false;
        }
        let writes = self.probe(WriteProbe::Write).await;
        *probed = if writes { None } else { Some(Instant::now()) };
        if writes {
            self.last_write.record(true);
        }
        writes
    }

    async fn probe(&self, probe: WriteProbe) -> bool {
        match timeout(READY_TIME, self.store.probe(probe)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                log::store_warning(&format_args!("it cannot be written: {error}"));
                false
            }
            Err(_) => false,
        }
    }
}
