//! Forgetting beside others who forget the same.

use super::{OptimisticRunner, RecordId, VersionedBackend};
use crate::decide::expiry_clock::ExpiryTime;
use crate::decide::id::EventId;
use crate::decide::limits;
use crate::decide::source::{Keep, Retention};
use crate::decide::time::Duration;
use crate::store::{ForgetCounts, RetentionPolicies, StoreError, SweepError, ledger};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writes of one sweep under way at once, on a shelf that takes only a few events in each.
const LANES: usize = 4;

/// What is freed.
#[derive(Clone, Copy)]
enum SweepTarget {
    Bodies,
    Events(Duration),
}

/// What a sweep has freed so far: what is gone counts, also where the sweep fails later.
#[derive(Default)]
struct SweepTally {
    bodies: AtomicUsize,
    events: AtomicUsize,
}

impl SweepTally {
    /// The count of what is freed.
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

    /// The time by which events expire, as it is now: whoever swept for long looks again before each write.
    fn expiry_time(&self) -> ExpiryTime {
        self.0.clock().expiry().time
    }

    /// How many events the sweep would forget by this time: at most `limit`.
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

    /// Frees these, until so many are freed in all. Others may free the same meanwhile: what they took is not counted here,
    /// and then it is looked again, so that none freed means that nothing is left.
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
                return Ok(()); // what is still there was left there by the rules
            }
            self.free_these(what, &old, kept, freed).await?;
            if freed.many(what) - before == old.len() {
                return Ok(()); // nobody got in the way: there were no more, or the next batch has them
            }
            seen = old;
        }
    }

    /// Frees these in a few lanes: while one write waits for the disk, the next is drafted. A write that is under way is
    /// waited for also where another one fails: what it frees is counted.
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

    /// Frees these in one write.
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
    /// Writes down what time it is, where that is due, and takes what other nodes wrote while a jump is waited for.
    /// What fails is tried again.
    pub(super) async fn write_clock(&self) {
        if self.0.clock().is_to_be_looked_at(limits::CLOCK_LOOK) {
            self.write_last_seen().await.ok();
        }
        self.agree_on_clock().await;
    }

    /// The same, after the server was asked for its time, if nobody else did so lately.
    pub(super) async fn ask_clock(&self) -> Result<(), StoreError> {
        if self.0.clock().is_silent(limits::CLOCK_LOOK) {
            self.0.last_seen().await?;
        }
        self.write_clock().await;
        Ok(())
    }

    /// Writes down what the nodes are to agree on, where they do not yet. What fails is tried again.
    pub(super) async fn agree_on_clock(&self) {
        if let Some((was, is)) = self.0.clock().to_agree() {
            self.0.agree_on_clock(was, is).await.ok();
        }
    }

    /// A person says that the clock is right; the other nodes hear of it.
    pub(super) async fn confirm(&self) -> Result<(), StoreError> {
        // What the server shows now is confirmed, not what it showed when somebody last asked.
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

/// May whoever opens a store write down what it finds of its clocks?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(in crate::store) enum ClockAccess {
    /// It may: a node or a command.
    Writing,
    /// It only looks, or copies.
    Looking,
}

/// How often one who comes asks again, where what it finds of the store's clock is not plausible.
#[cfg(any(feature = "postgres", feature = "redis"))]
const ASKS: usize = 2;

/// Begins at what the store last saw; one that nobody wrote it down for saw its newest event, and that is written down
/// before anything else: an event that is stored under a wrong clock would be the newest.
#[cfg(any(feature = "postgres", feature = "redis"))]
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
    // Where nodes run and the server's clock was set a moment ago, they know better how far the store's is.
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
