//! What belongs to no attempt and no lane: leases that ran out, events without a route, and what is old.

use super::{Dispatcher, jitter, rest};
use crate::decide::event::{Passed, Step};
use crate::decide::limits;
use crate::decide::time::Duration;
use crate::store::{Advance, Forgotten, Look};
use std::sync::Arc;

/// The pause between two batches of a sweep, so that claims go first.
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

impl Dispatcher {
    /// The keeper's loop: leases that ran out, and events without a route.
    pub(super) async fn keep(self) {
        let known: Arc<[_]> = self.lanes().map(|lane| (lane.source.name.clone(), lane.route.name.clone())).collect();
        let mut strays_at = tokio::time::Instant::now();
        while !self.0.stopping.is_cancelled() {
            let mut rest = self.expire().await;
            if tokio::time::Instant::now() >= strays_at {
                strays_at = tokio::time::Instant::now() + limits::ROUTE_GONE_LOOK;
                self.set_aside(&known).await;
            }
            rest = rest.max(Duration::from_millis(20));
            self.0.stopping.run_until_cancelled(tokio::time::sleep(rest)).await;
        }
    }

    async fn expire(&self) -> Duration {
        match self.0.store.due(Look::Leases, limits::BATCH_CLAIMS_MAX).await {
            Ok(due) => {
                // An attempt of this node that still lives settles itself: it may have a result that the store could
                // not take when the lease ended.
                for event in due.events.iter().filter(|event| !self.is_at(event.id)) {
                    let expired = self.step(event, Step::Expire { jitter: jitter() }).await;
                    if matches!(expired, Ok(Some(Advance::Written { .. }))) {
                        self.meter().expired();
                    }
                }
                self.until(due.next)
            }
            Err(error) => rest(&error),
        }
    }

    /// Each that is set aside may hand its slot to another without a route: looks until there is none.
    async fn set_aside(&self, known: &Arc<[(Arc<str>, Arc<str>)]>) {
        while !self.0.stopping.is_cancelled() {
            let Ok(due) = self.0.store.due(Look::Strays(known.clone()), limits::BATCH_CLAIMS_MAX).await else { return };
            let mut more = false;
            for event in due.events {
                // Its name may be what is damaged: that route will not come back.
                if event.seal() != event.digest {
                    self.step(&event, Step::Damage).await.ok();
                    continue;
                }
                let set = self.step(&event, Step::SetAside { lasts: limits::ROUTE_GONE_LOOK }).await;
                more |= event.passed != Passed::Aside && matches!(set, Ok(Some(Advance::Written { .. })));
            }
            if !more {
                return;
            }
        }
    }

    /// The sweep: it only frees space. What may be forgotten is decided in the claim, and again in the sweep's write.
    pub(super) async fn sweep(self) {
        let mut swept = Forgotten::default();
        loop {
            let full = match self.0.store.forget(self.0.keeps.clone(), limits::FORGET_BATCH).await {
                Ok(forgotten) => {
                    swept.add(forgotten);
                    forgotten.events.max(forgotten.bodies) >= limits::FORGET_BATCH as u64
                }
                Err(_) => false,
            };
            if !full {
                std::mem::take(&mut swept).say();
            }
            let rest = if full { SWEEP_PAUSE } else { limits::FORGET_EVERY };
            if self.0.stopping.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                return;
            }
        }
    }
}
