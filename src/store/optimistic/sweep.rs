//! The sweep of a store whose nodes may all sweep at once.

use super::{OptimisticRunner, RecordId, VersionedBackend};
use crate::decide::expiry_clock::ExpiryTime;
use crate::decide::id::EventId;
use crate::decide::ledger;
use crate::decide::limits;
use crate::decide::source::{Keep, Retention};
use crate::decide::time::Duration;
use crate::store::{ForgetCounts, RetentionPolicies, StoreError, SweepError};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Concurrent writes of one sweep, on a backend that takes only a few events in each.
const LANES: usize = 4;

/// The target of a sweep: bodies or events.
#[derive(Clone, Copy)]
enum SweepTarget {
    Bodies,
    Events(Duration),
}

/// The counts of what a sweep has deleted so far, which count even if the sweep fails later.
#[derive(Default)]
struct SweepTally {
    bodies: AtomicUsize,
    events: AtomicUsize,
}

impl SweepTally {
    /// The counter of this target.
    fn of(&self, what: SweepTarget) -> &AtomicUsize {
        match what {
            SweepTarget::Bodies => &self.bodies,
            SweepTarget::Events(_) => &self.events,
        }
    }

    fn many(&self, what: SweepTarget) -> usize {
        self.of(what).load(Ordering::Relaxed)
    }
}

impl<B: VersionedBackend> OptimisticRunner<'_, B> {
    pub(super) async fn sweep(&self, keeps: &RetentionPolicies, limit: usize) -> Result<ForgetCounts, SweepError> {
        let freed = SweepTally::default();
        let swept = self.free_all(keeps, limit, &freed).await;
        let freed = ForgetCounts { events: freed.events.into_inner() as u64, bodies: freed.bodies.into_inner() as u64 };
        swept.map(|()| freed).map_err(|error| SweepError { freed, error })
    }

    async fn free_all(&self, keeps: &RetentionPolicies, limit: usize, freed: &SweepTally) -> Result<(), StoreError> {
        let by = self.expiry_time();
        for (of, &kept) in &keeps.sources {
            self.free(SweepTarget::Bodies, of, kept, by, limit, freed).await?;
            if let Keep::For(length) = kept.keys {
                self.free(SweepTarget::Events(length), of, kept, by, limit, freed).await?;
            }
        }
        Ok(())
    }

    /// The expiry time as of now: a long sweep reads it again before each write.
    fn expiry_time(&self) -> ExpiryTime {
        self.0.clock().expiry().time
    }

    /// How many events, up to `limit`, the sweep would forget at this time.
    pub(super) async fn count_forgettable(
        &self,
        keeps: &RetentionPolicies,
        limit: usize,
        by: ExpiryTime,
    ) -> Result<u64, StoreError> {
        let mut many = 0;
        for (of, kept) in &keeps.sources {
            if let Keep::For(length) = kept.keys {
                many += self.0.forgettable(of, by.minus(length), limit - many).await?.len();
            }
        }
        Ok(many as u64)
    }

    /// Deletes these until `limit` is reached. What other nodes delete meanwhile is not counted here, but makes it
    /// query again, so that a count of zero means that nothing is left.
    async fn free(
        &self,
        what: SweepTarget,
        of: &str,
        kept: Retention,
        by: ExpiryTime,
        limit: usize,
        freed: &SweepTally,
    ) -> Result<(), StoreError> {
        let mut seen = Vec::new();
        loop {
            let before = freed.many(what);
            let room = limit.saturating_sub(before);
            if room == 0 {
                return Ok(());
            }
            let old = match what {
                SweepTarget::Bodies => self.0.with_old_bodies(of, by.minus(kept.body), room).await?,
                SweepTarget::Events(length) => self.0.forgettable(of, by.minus(length), room).await?,
            };
            if old.is_empty() || old == seen {
                return Ok(()); // the rules keep what is left
            }
            self.free_these(what, &old, kept, freed).await?;
            if freed.many(what) - before == old.len() {
                return Ok(()); // no conflicts: there were no more, or the next batch takes them
            }
            seen = old;
        }
    }

    /// Deletes these in a few concurrent lanes: while one write waits for the disk, the next is prepared. A write in
    /// progress is awaited even if another one fails, so that its deletions are counted.
    async fn free_these(
        &self,
        what: SweepTarget,
        old: &[EventId],
        kept: Retention,
        freed: &SweepTally,
    ) -> Result<(), StoreError> {
        let writes: Vec<_> = old.chunks(self.0.swept_at_once(old.len())).collect();
        let lane = async |first: usize| {
            for some in writes.iter().skip(first).step_by(LANES) {
                let many = self.free_some(what, some, kept).await?;
                freed.of(what).fetch_add(many, Ordering::Relaxed);
            }
            Ok::<_, StoreError>(())
        };
        let [a, b, c, d] = std::array::from_fn(|first: usize| lane(first));
        let (a, b, c, d) = tokio::join!(a, b, c, d);
        a.and(b).and(c).and(d)
    }

    /// Deletes these in one write.
    async fn free_some(&self, what: SweepTarget, some: &[EventId], kept: Retention) -> Result<usize, StoreError> {
        let cells = |id: &EventId| vec![RecordId::Event(*id)];
        let gone = match what {
            SweepTarget::Bodies => {
                self.run(some, cells, |draft, id, _| draft.remove_body(*id, self.expiry_time().minus(kept.body)))
                    .await?
            }
            SweepTarget::Events(_) => {
                self.run(some, cells, |draft, id, _| ledger::forget_one(draft, *id, kept.keys, self.expiry_time()))
                    .await?
            }
        };
        Ok(gone.into_iter().filter(|gone| *gone == Some(true)).count())
    }
}

impl<B: VersionedBackend> OptimisticRunner<'_, B> {
    /// Writes the last-seen time where that is due, and reads what other nodes wrote while a clock jump is pending.
    /// Failures are retried later.
    pub(super) async fn write_clock(&self) {
        if self.0.clock().is_to_be_looked_at(limits::CLOCK_LOOK) {
            self.write_last_seen().await.ok();
        }
        self.agree_on_clock().await;
    }

    /// The same, after asking the server for its time, unless that happened recently.
    pub(super) async fn ask_clock(&self) -> Result<(), StoreError> {
        if self.0.clock().is_silent(limits::CLOCK_LOOK) {
            self.0.last_seen().await?;
        }
        self.write_clock().await;
        Ok(())
    }

    /// Proposes a clock agreement to the other nodes, if there is none yet. Failures are retried later.
    pub(super) async fn agree_on_clock(&self) {
        if let Some((was, is)) = self.0.clock().to_agree() {
            self.0.agree_on_clock(was, is).await.ok();
        }
    }

    /// Accepts the clock as right, on an operator's request; the other nodes read it from the store.
    pub(super) async fn confirm(&self) -> Result<(), StoreError> {
        // Read the clock first: what the server shows now is confirmed, not what it showed at the last request.
        self.0.last_seen().await?;
        self.0.clock().confirm();
        self.write_last_seen().await
    }

    async fn write_last_seen(&self) -> Result<(), StoreError> {
        write_last_seen(self.0).await
    }
}

async fn write_last_seen(shelf: &impl VersionedBackend) -> Result<(), StoreError> {
    let clock = shelf.clock();
    clock.observe_last_seen(shelf.last_seen().await?);
    let Some((was, time)) = clock.to_write() else { return Ok(()) };
    shelf.set_last_seen(was, time).await?;
    clock.observe_last_seen(shelf.last_seen().await?);
    Ok(())
}

/// Whether opening a store may write what was found of its clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg(feature = "shared-store")]
pub(in crate::store) enum ClockAccess {
    /// Yes: a node or a command that writes.
    Writing,
    /// No: it only reads, or copies.
    Looking,
}

/// How often opening a store reads the clock again where it is not plausible.
#[cfg(feature = "shared-store")]
const ASKS: usize = 2;

/// Sets the clock to what the store last saw. If the store recorded no time, that is the time of its newest event,
/// which is recorded before anything else: an event stored under a wrong clock would be the newest.
#[cfg(feature = "shared-store")]
pub(in crate::store) async fn begin(
    shelf: &(impl VersionedBackend + crate::store::Inspect),
    begins: ClockAccess,
) -> Result<(), StoreError> {
    let seen = shelf.last_seen().await?;
    let newest = match seen {
        Some(_) => None,
        None => shelf
            .list(crate::store::EventQuery { limit: 1, ..crate::store::EventQuery::default() })
            .await?
            .first()
            .map(|event| event.received_at),
    };
    shelf.clock().last_seen(seen, newest);
    if begins == ClockAccess::Looking {
        return Ok(());
    }
    if newest.is_some() {
        write_last_seen(shelf).await?;
    }
    // Where the server's clock was set a moment ago, the running nodes know better how far the store's clock is.
    for _ in 0..ASKS {
        if shelf.clock().is_settled() {
            break;
        }
        tokio::time::sleep(limits::CLOCK_LOOK).await;
        shelf.last_seen().await?;
    }
    if let Some((was, is)) = shelf.clock().to_agree() {
        shelf.agree_on_clock(was, is).await?;
        shelf.last_seen().await?;
    }
    Ok(())
}
