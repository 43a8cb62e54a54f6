//! Retention: how long each source's events are kept.
//!
//! A node takes it from its config for the sources it has, and writes it to the store. For every other source it uses
//! what the store holds. Without either, nothing is forgotten: another node may have promised any retention.

use super::open::StoreUrl;
use super::{
    AdvanceResult, EventPage, EventQuery, ForgetCounts, Inspect, RemovalResult, RetentionPolicies, Store, StoreError,
};
use crate::decide::event::Event;
use crate::decide::limits;
use crate::decide::source::{Keep, Retention, Route};
use crate::decide::time::{Duration, Timestamp};
use std::fmt;
use std::sync::Arc;
use tokio::time::Instant;

impl RetentionPolicies {
    /// The rows that a node writes into the store.
    pub fn rows(&self, seen_at: Timestamp) -> Vec<SourceRetention> {
        let row =
            |(source, kept): (&Arc<str>, &Retention)| SourceRetention { source: source.clone(), kept: *kept, seen_at };
        self.sources.iter().map(row).collect()
    }

    /// The same for every source in the store: sources missing here are taken from what other nodes wrote.
    pub async fn with_stored(&self, store: &dyn Store) -> Result<Self, StoreError> {
        let mut all = self.clone();
        for SourceRetention { source, kept, .. } in store.retention().await? {
            all.sources.entry(source).or_insert(kept);
        }
        Ok(all)
    }
}

/// The retention of one source, as written by a node that has the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRetention {
    /// The source's name.
    pub source: Arc<str>,
    /// How long.
    pub kept: Retention,
    /// When a node that has the source last wrote this.
    pub seen_at: Timestamp,
}

/// A row as numbers: `keep` and `keep_body` in microseconds, and `seen_at`. A missing `keep` means for ever.
#[cfg(feature = "durable-store")]
impl SourceRetention {
    pub(super) fn numbers(&self) -> (Option<i64>, i64, i64) {
        let micros = |length: Duration| i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        let keep = match self.kept.keys {
            Keep::For(length) => Some(micros(length)),
            Keep::Forever => None,
        };
        (keep, micros(self.kept.body), self.seen_at.0)
    }

    /// Reads an invalid number as the longest duration: a damaged row deletes nothing.
    pub(super) fn of_numbers(source: &str, (keep, body, seen_at): (Option<i64>, i64, i64)) -> Self {
        let length = |micros: i64| u64::try_from(micros).map_or(Duration::MAX, Duration::from_micros);
        let keys = keep.map_or(Keep::Forever, |micros| Keep::For(length(micros)));
        Self { source: source.into(), kept: Retention { keys, body: length(body) }, seen_at: Timestamp(seen_at) }
    }
}

/// How many events of one source a store holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SourceCount {
    /// The source's name.
    pub source: Arc<str>,
    /// The count.
    pub events: u64,
    /// The count is a lower bound.
    pub capped: bool,
}

#[cfg(feature = "sql-store")]
impl SourceCount {
    /// A count that stopped at `limit` plus one.
    pub(super) fn up_to(source: &str, events: u64, limit: usize) -> Self {
        let limit = limit as u64;
        Self { source: source.into(), events: events.min(limit), capped: events > limit }
    }
}

/// A source that has events in the store but is in no node's config.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrphanedSource {
    /// The source and its number of events.
    pub count: SourceCount,
    /// Their retention; `None` means that no node forgets them.
    pub retention: Option<SourceRetention>,
}

/// How many nodes may use a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeTopology {
    /// Only this one.
    One,
    /// Others too: each writes every minute which sources it has.
    Many,
}

impl NodeTopology {
    /// For the store at this address.
    pub fn of(store: &StoreUrl) -> Self {
        if store.is_shared() { Self::Many } else { Self::One }
    }
}

/// The sources that no node has, from the view of a node that has those in `mine`.
pub async fn orphaned(
    store: &dyn Inspect,
    own: &RetentionPolicies,
    nodes: NodeTopology,
) -> Result<Vec<OrphanedSource>, StoreError> {
    let rows = store.retention().await?;
    let now = store.now();
    let had = |row: &&SourceRetention| nodes == NodeTopology::Many && is_had(row, now);
    let elsewhere = rows.iter().filter(had).map(|row| row.source.clone());
    let known = own.sources.keys().cloned().chain(elsewhere).collect();
    let counts = store.other_sources(known).await?;
    let retention = |count: &SourceCount| rows.iter().find(|row| row.source == count.source).cloned();
    Ok(counts.into_iter().map(|count| OrphanedSource { retention: retention(&count), count }).collect())
}

/// Has a node written recently that it has this source? A running node writes it every minute, by the same clock, so a
/// time far in the future was written by none of them.
fn is_had(row: &SourceRetention, now: Timestamp) -> bool {
    now.since(row.seen_at).max(row.seen_at.since(now)) < limits::SOURCE_UNSEEN_AFTER
}

/// Does a node other than the caller have this source?
pub async fn is_elsewhere(store: &dyn Store, source: &str) -> Result<bool, StoreError> {
    let (rows, now) = (store.retention().await?, store.now());
    Ok(rows.iter().any(|row| *row.source == *source && is_had(row, now)))
}

/// The result of forgetting a whole source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForgetSourceCounts {
    /// Events that were deleted, with their keys.
    pub events: u64,
    /// How many of these were still waiting, and ended without acting.
    pub ended: u64,
    /// Events that remain: an attempt runs, or its lease has not ended.
    pub running: u64,
}

/// Deletes all events of a source with their keys, whatever `keep` says, on an operator's request. Waiting events end
/// without acting. Running events are cancelled, and remain until their lease has ended.
pub async fn forget_source(store: &dyn Inspect, source: &str) -> Result<ForgetSourceCounts, StoreError> {
    let mut listing =
        EventQuery { source: Some(source.to_owned()), limit: limits::FORGET_BATCH, ..EventQuery::default() };
    let mut forgotten = ForgetSourceCounts::default();
    loop {
        let EventPage { events, next } = store.page(listing.clone()).await?;
        let (mut over, open): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.state.ended().is_some());
        let ended = end(store, &open).await?;
        forgotten.running += (open.len() - ended.len()) as u64;
        over.extend(&ended);
        let removals = store.remove_all(over.iter().map(|event| event.id).collect()).await?;
        for (n, removal) in removals.into_iter().enumerate() {
            let waited = n >= over.len() - ended.len();
            match removal {
                RemovalResult::Removed => {
                    forgotten.events += 1;
                    forgotten.ended += u64::from(waited);
                }
                RemovalResult::NotOver => forgotten.running += 1,
                RemovalResult::Unknown => {}
            }
        }
        match next {
            Some(next) => listing.before = Some(next),
            None => break,
        }
    }
    store.remove_dictionaries(source.to_owned()).await?;
    Ok(forgotten)
}

/// Ends these events where possible; returns those that have now ended.
async fn end(store: &dyn Store, open: &[&Event]) -> Result<Vec<Event>, StoreError> {
    let now = store.now();
    let step = |event: &Event| event.cancelled_from_outside(|until| store.is_lease_over(until));
    let cancelled = |event: &&Event| event.transition(step(event), &Route::default(), now).ok();
    let changes: Vec<_> = open.iter().filter_map(cancelled).collect();
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let written = store.advance(changes).await?.into_iter().filter_map(|advance| match advance {
        AdvanceResult::Written { event, .. } => Some(*event),
        AdvanceResult::Lost => None,
    });
    Ok(written.filter(|event| event.state.ended().is_some()).collect())
}

/// How fast a store is swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SweepPace {
    /// Maximum batch size, while the sweep is behind.
    pub batch_max: usize,
    /// The pause between two full batches, so that claims go first.
    pub pause: SweepPause,
}

/// The pause after a full batch of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SweepPause {
    /// Always the same.
    Fixed(Duration),
    /// As long as the batch took, so many times: where claims wait for it, it took longer, and so it rests longer.
    TimesTaken(u32),
}

impl Default for SweepPace {
    /// For a store where claims wait while a batch is written.
    fn default() -> Self {
        Self { batch_max: limits::FORGET_BATCH, pause: SweepPause::Fixed(limits::SWEEP_PAUSE) }
    }
}

impl SweepPace {
    /// For a store where a batch is many short writes, with claims in between.
    pub const SHORT_WRITES: Self =
        Self { batch_max: limits::FORGET_BATCH_BEHIND, pause: SweepPause::Fixed(Duration::ZERO) };

    /// For a store with one writer, for which every claim waits.
    pub const ONE_WRITER: Self =
        Self { batch_max: limits::FORGET_BATCH_OF_ONE_WRITER, pause: SweepPause::TimesTaken(limits::SWEEP_RESTS) };

    /// The size of the first batch.
    pub fn first(self) -> usize {
        limits::FORGET_BATCH.min(self.batch_max)
    }

    /// The pause after a full batch that took so long.
    pub fn pause_after(self, took: Duration) -> Duration {
        match self.pause {
            SweepPause::Fixed(pause) => pause,
            SweepPause::TimesTaken(times) => took.saturating_mul(times).min(limits::SWEEP_PAUSE * times),
        }
    }

    /// The next batch size after a full batch: four times as many, up to the maximum.
    pub fn next(self, batch: usize) -> usize {
        batch.saturating_mul(4).min(self.batch_max)
    }
}

impl ForgetCounts {
    /// Was this batch full, so that more may be left?
    pub fn fills(&self, batch: usize) -> bool {
        self.events.max(self.bodies) >= batch as u64
    }
}

/// What else uses the store while it is swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SweepCompany {
    /// Nothing in this process.
    None,
    /// Claims, which go first.
    Claims,
}

/// Deletes everything of these sources that may be forgotten now, and returns the counts. What another sweep deletes
/// meanwhile is not counted.
pub async fn sweep_all(
    store: &dyn Store,
    keeps: &Arc<RetentionPolicies>,
    company: SweepCompany,
) -> Result<ForgetCounts, SweepError> {
    let (mut all, pace) = (ForgetCounts::default(), store.sweep_pace());
    let mut batch = match company {
        SweepCompany::None => limits::FORGET_BATCH,
        SweepCompany::Claims => pace.first(),
    };
    while all.events + all.bodies < limits::FORGOTTEN_AT_ONCE_MAX {
        let asked = Instant::now();
        match store.forget(keeps.clone(), batch).await {
            Ok(some) if some == ForgetCounts::default() => break,
            Ok(some) => {
                all.add(some);
                if company == SweepCompany::Claims && some.fills(batch) {
                    tokio::time::sleep(pace.pause_after(asked.elapsed())).await;
                    batch = pace.next(batch);
                }
            }
            Err(SweepError { freed, error }) => {
                all.add(freed);
                return Err(SweepError { freed: all, error });
            }
        }
    }
    Ok(all)
}

/// Why a sweep stopped early, and what it had deleted by then.
#[derive(Clone, Debug)]
pub struct SweepError {
    /// What was deleted all the same.
    pub freed: ForgetCounts,
    /// Why it stopped.
    pub error: StoreError,
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { freed: ForgetCounts { events, bodies }, error } = self;
        match events + bodies {
            0 => error.fmt(f),
            _ => write!(f, "{error}; {events} events and {bodies} bodies were forgotten before that"),
        }
    }
}

impl std::error::Error for SweepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<StoreError> for SweepError {
    /// Nothing was freed.
    fn from(error: StoreError) -> Self {
        Self { freed: ForgetCounts::default(), error }
    }
}

impl From<SweepError> for StoreError {
    fn from(failed: SweepError) -> Self {
        failed.error
    }
}

impl ForgetCounts {
    /// Adds to the counts.
    pub fn add(&mut self, more: Self) {
        self.events += more.events;
        self.bodies += more.bodies;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreBackend as _;
    use crate::store::clock::StoreClock;
    use crate::store::conformance::making;
    use crate::store::memory::MemoryStore;

    const DAY: Duration = Duration::from_hours(24);

    fn kept(days: Option<u32>, body: u32) -> Retention {
        Retention { keys: days.map_or(Keep::Forever, |days| Keep::For(DAY * days)), body: DAY * body }
    }

    #[tokio::test]
    async fn a_source_is_orphaned_once_its_nodes_have_long_been_silent_and_at_once_with_a_single_node() {
        let clock = StoreClock::manual(Timestamp(1_750_000_000_000_000));
        let store = MemoryStore::new(clock.clone());
        for name in ["ours", "theirs", "unknown"] {
            store.claim(vec![making().delivery(name).source(name).made(store.now()).into()]).await.unwrap();
        }
        let keeps = |name: &str| RetentionPolicies { sources: [(name.into(), kept(None, 7))].into() };
        store.set_retention(keeps("theirs").rows(store.now())).await.unwrap();
        let names = async |nodes| {
            let found = orphaned(&store, &keeps("ours"), nodes).await.unwrap();
            found.iter().map(|one| (one.count.source.to_string(), one.retention.is_some())).collect::<Vec<_>>()
        };
        let (theirs, unknown) = (("theirs".to_owned(), true), ("unknown".to_owned(), false));
        assert_eq!(names(NodeTopology::Many).await, std::slice::from_ref(&unknown));
        assert_eq!(names(NodeTopology::One).await, [theirs.clone(), unknown.clone()]);
        assert!(is_elsewhere(&store, "theirs").await.unwrap() && !is_elsewhere(&store, "unknown").await.unwrap());
        clock.advance(limits::SOURCE_UNSEEN_AFTER);
        assert_eq!(names(NodeTopology::Many).await, [theirs, unknown]);
        assert!(!is_elsewhere(&store, "theirs").await.unwrap());
        let written = async |ahead| {
            store.set_retention(keeps("theirs").rows(store.now() + ahead)).await.unwrap();
            is_elsewhere(&store, "theirs").await.unwrap()
        };
        assert!(written(Duration::from_secs(2)).await, "by a node whose clock is slightly ahead");
        assert!(!written(31 * DAY).await, "at a time that no node's clock shows");
    }
}
