//! The background tasks that belong to no attempt and no lane: expired leases, events without a route, retention.

use super::{Dispatcher, jitter, log_and_pause};
use crate::action::boottime;
use crate::decide::event::{EventStep, QueueState};
use crate::decide::limits;
use crate::decide::time::Duration;
use crate::observe::log;
use crate::store::clock_monitor::ClockMonitor;
use crate::store::{AdvanceResult, DueQuery, ForgetCounts, StoreError};
use std::sync::Arc;
use tracing::{info, warn};

impl Dispatcher {
    /// The reaper's loop: expired leases, and events without a route.
    pub(super) async fn run_reaper(self) {
        let mut strays_at = tokio::time::Instant::now();
        let mut looked_with = None;
        while !self.0.stopping.is_cancelled() {
            let mut rest = self.expire().await;
            let lanes = self.lanes();
            let is_new = looked_with.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &lanes));
            if is_new || tokio::time::Instant::now() >= strays_at {
                let known: Arc<[_]> =
                    lanes.all().map(|lane| (lane.source.name.clone(), lane.route.name.clone())).collect();
                looked_with = Some(lanes);
                strays_at = tokio::time::Instant::now() + limits::ROUTE_GONE_LOOK;
                self.suspend_orphans(&known).await;
            }
            rest = rest.max(Duration::from_millis(20));
            self.0.stopping.run_until_cancelled(tokio::time::sleep(rest)).await;
        }
    }

    async fn expire(&self) -> Duration {
        match self.0.store.due(DueQuery::Leases, limits::BATCH_CLAIMS_MAX).await {
            Ok(due) => {
                // An attempt of this node that is still running settles itself: it may have a result that the store
                // could not accept when the lease ended.
                let ours = |id| self.is_running_here(id) || self.0.unsure_starts().contains(&id);
                for event in due.events.iter().filter(|event| !ours(event.id)) {
                    let expired = self.step(event, EventStep::Expire { jitter: jitter() }).await;
                    if matches!(expired, Ok(Some(AdvanceResult::Written { .. }))) {
                        self.0.metrics.expired();
                        self.unshare_output(event.id).await;
                    }
                }
                self.until(due.next)
            }
            Err(error) => log_and_pause(&error),
        }
    }

    /// Suspends events without a route. Each may hand its slot to another one without a route, so this repeats until
    /// there is none.
    async fn suspend_orphans(&self, known: &Arc<[(Arc<str>, Arc<str>)]>) {
        while !self.0.stopping.is_cancelled() {
            let Ok(due) = self.0.store.due(DueQuery::Orphans(known.clone()), limits::BATCH_CLAIMS_MAX).await else {
                return;
            };
            let mut more = false;
            for event in due.events {
                // Its route's name may be what is damaged: that route will not come back.
                if event.immutable_digest() != event.digest {
                    self.step(&event, EventStep::Damage).await.ok();
                    continue;
                }
                let set = self.step(&event, EventStep::Suspend { lasts: limits::ROUTE_GONE_LOOK }).await;
                more |= event.queue_state != QueueState::Suspended
                    && matches!(set, Ok(Some(AdvanceResult::Written { .. })));
            }
            if !more {
                return;
            }
        }
    }

    /// The sweep only frees space: whether an event has expired is decided in the claim, and again in the sweep's own
    /// write.
    pub(super) async fn sweep(self) {
        loop {
            // An error is logged, and the next sweep tries again.
            let behind = self.forget(SweepTrigger::Background).await.is_ok_and(|swept| swept.behind);
            let rest = if behind { Duration::ZERO } else { limits::FORGET_EVERY };
            if self.0.stopping.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                return;
            }
        }
    }

    /// Removes everything that has expired, because an operator asks for it.
    pub async fn forget_now(&self) -> Result<ForgetCounts, StoreError> {
        self.forget(SweepTrigger::Asked).await.map(|swept| swept.freed)
    }

    /// How many events the sweep would remove if a pending jump of the clock counted now.
    pub async fn would_forget(&self) -> Result<u64, StoreError> {
        let keeps = Arc::new(self.keeps().with_stored(&*self.0.store).await?);
        self.0.store.would_forget(keeps, limits::WOULD_FORGET_MAX).await
    }

    /// Removes batch after batch, and reports the result.
    async fn forget(&self, sweep: SweepTrigger) -> Result<SweepResult, StoreError> {
        let (began, mut freed) = (boottime(), ForgetCounts::default());
        let behind = self.free(sweep, &mut freed).await;
        let took = boottime().0.saturating_sub(began.0);
        if freed != ForgetCounts::default() {
            let ForgetCounts { events, bodies } = freed;
            info!(target: "hookonce", events, bodies, took_ms = log::millis(took), "forgot");
        }
        let why = behind.as_ref().err().map(ToString::to_string);
        if let Some(why) = &why {
            log::rate_limited("sweep", why, |times| warn!(target: "hookonce", why, times, "sweep"));
        }
        self.0.metrics.sweeps.ended(self.0.store.now(), took, (freed.events, freed.bodies), why);
        behind.map(|behind| SweepResult { freed, behind })
    }

    /// Removes batch after batch; returns whether more may be left.
    async fn free(&self, sweep: SweepTrigger, freed: &mut ForgetCounts) -> Result<bool, StoreError> {
        let keeps = Arc::new(self.keeps().with_stored(&*self.0.store).await?);
        let until = tokio::time::Instant::now() + limits::FORGET_EVERY;
        let pace = self.0.store.sweep_pace();
        let mut batch = pace.first();
        loop {
            let asked = tokio::time::Instant::now();
            let swept = self.0.store.forget(keeps.clone(), batch).await;
            // What was removed counts, even if the batch failed later.
            let some = *swept.as_ref().unwrap_or_else(|failed| &failed.freed);
            self.0.metrics.sweeps.freed(some.events, some.bodies);
            freed.add(some);
            swept?;
            let (pause, more, enough) = match sweep {
                SweepTrigger::Background => {
                    (pace.pause_after(asked.elapsed()), some.fills(batch), tokio::time::Instant::now() >= until)
                }
                // Someone waits for it: it rests no longer than it works.
                SweepTrigger::Asked => (
                    pace.pause_after(asked.elapsed()).min(asked.elapsed()),
                    some != ForgetCounts::default(),
                    freed.events + freed.bodies >= limits::FORGOTTEN_AT_ONCE_MAX,
                ),
            };
            if !more || enough {
                return Ok(more);
            }
            batch = pace.next(batch);
            if self.0.stopping.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                break;
            }
        }
        Ok(true)
    }
}

/// How to sweep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepTrigger {
    /// With pauses, until a batch is not full. A sweep that takes longer than its interval is reported as several.
    Background,
    /// With shorter pauses, until nothing is left.
    Asked,
}

/// The result of a sweep.
struct SweepResult {
    freed: ForgetCounts,
    /// More may be left.
    behind: bool,
}

impl Dispatcher {
    /// Watches the clocks until the node stops.
    pub(super) async fn watch_clocks(self) {
        let mut watch = ClockMonitor::default();
        loop {
            watch.look(&*self.0.store, self.would_forget()).await;
            let rest = tokio::time::sleep(limits::CLOCK_LOOK);
            if self.0.stopping.run_until_cancelled(rest).await.is_none() {
                return;
            }
        }
    }
}
