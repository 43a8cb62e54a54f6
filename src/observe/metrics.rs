//! What is counted while running. To count costs one addition in memory; what is counted over time is worked out from
//! that by who looks (`time_series.rs`). Every label is a name of the config or a word of the design, so there are few.

use super::delivery_log::{DeliveryRecord, DeliveryVerdict, RecentDeliveries};
use super::histogram::{Histogram, LONG_TIMES, SIZES, TIMES};
use super::time_series::CounterSeries;
use crate::decide::claim::MatchedBy;
use crate::decide::event::{Event, EventState};
use crate::decide::id::{Digest, EventId};
use crate::decide::limits;
use crate::decide::source::{Identity, Source};
use crate::decide::time::{Duration, Timestamp};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Outcomes of an attempt, in the order in which they are counted.
pub(crate) const OUTCOMES: [&str; 4] = ["delivered", "failed", "rejected", "unknown"];

/// Deliveries that a listener may fall behind by.
const HEARD_MAX: usize = 1024;
/// Delivery ids that are remembered to notice one with another body.
const IDS_REMEMBERED: usize = 8192;

/// What is counted of one source, by its place in the list of counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceCounter {
    /// Deliveries of this verdict.
    Delivery(DeliveryVerdict),
    /// Events that came to be done.
    Done,
    /// Events that came to be dead.
    Dead,
    /// Attempts of this outcome, by its place in [`OUTCOMES`].
    Attempt(usize),
    /// Duplicates by this identity, by its place among the source's.
    Same(usize),
}

/// Counts before those of the source's own identities.
const OWN: usize = 12;

impl SourceCounter {
    /// Its place in a list of counts.
    pub fn index(self) -> usize {
        match self {
            Self::Delivery(verdict) => verdict as usize,
            Self::Done => 6,
            Self::Dead => 7,
            Self::Attempt(outcome) => 8 + outcome.min(3),
            Self::Same(at) => OWN + at,
        }
    }
}

/// What is counted of one source.
#[derive(Debug)]
pub struct SourceMetrics {
    /// Its name.
    pub name: Arc<str>,
    /// The words of its identities; the last stands for others, such as those of an older config.
    pub same: Vec<String>,
    pub(super) counts: Box<[AtomicU64]>,
    pub(super) last_at: AtomicI64,
    pub(super) conflicts: AtomicU64,
    /// Events that a redelivery had published again.
    pub(super) published_again: AtomicU64,
    pub(super) secrets: [AtomicU64; limits::SECRETS_MAX],
    /// Events that came to wait, and to run.
    waiting: AtomicU64,
    running: AtomicU64,
    /// From a request to its response.
    pub(super) ingest: Histogram<14>,
    /// From a delivery to its event's end as done.
    pub(super) done: Histogram<15>,
    pub(super) routes: Vec<RouteMetrics>,
    remembered: RecentDeliveries,
}

/// What is counted of one route.
#[derive(Debug)]
pub(super) struct RouteMetrics {
    pub(super) name: Arc<str>,
    /// By place in [`OUTCOMES`].
    pub(super) outcomes: [AtomicU64; 4],
    /// How long attempts took.
    pub(super) took: Histogram<15>,
}

impl SourceMetrics {
    fn new(source: &Source) -> Self {
        let word = |identity: &Identity| match identity {
            Identity::Delivery => MatchedBy::Delivery.word().to_owned(),
            Identity::Message => MatchedBy::Message.word().to_owned(),
            Identity::Body => MatchedBy::Body.word().to_owned(),
            Identity::Signed => MatchedBy::Signed.word().to_owned(),
            Identity::Named(fields) => {
                fields.iter().map(|ix| &*source.fields.get(*ix).name).collect::<Vec<_>>().join("+")
            }
        };
        let mut same: Vec<_> = source.once.per.iter().map(word).collect();
        same.extend(source.once.change.as_ref().map(|_| MatchedBy::Change.word().to_owned()));
        let routes = source.routes.iter().map(|route| route.name.clone()).collect();
        Self::of(source.name.clone(), same, routes)
    }

    fn of(name: Arc<str>, mut same: Vec<String>, routes: Vec<Arc<str>>) -> Self {
        same.push("other".into());
        Self {
            name,
            counts: (0..OWN + same.len()).map(|_| AtomicU64::new(0)).collect(),
            same,
            last_at: AtomicI64::new(i64::MIN),
            conflicts: AtomicU64::new(0),
            published_again: AtomicU64::new(0),
            secrets: Default::default(),
            waiting: AtomicU64::new(0),
            running: AtomicU64::new(0),
            ingest: Histogram::new(TIMES),
            done: Histogram::new(LONG_TIMES),
            routes: routes
                .into_iter()
                .map(|name| RouteMetrics { name, outcomes: Default::default(), took: Histogram::new(LONG_TIMES) })
                .collect(),
            remembered: RecentDeliveries::default(),
        }
    }

    /// How often.
    pub fn count(&self, count: SourceCounter) -> u64 {
        self.counts.get(count.index()).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// How many events came to each state on this node: waiting, running, done, dead.
    #[cfg(feature = "node")]
    pub(super) fn state_counts(&self) -> [u64; 4] {
        let [waiting, running] = [&self.waiting, &self.running].map(|count| count.load(Ordering::Relaxed));
        [waiting, running, self.count(SourceCounter::Done), self.count(SourceCounter::Dead)]
    }

    fn add(&self, count: SourceCounter) {
        if let Some(count) = self.counts.get(count.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn delivery(&self, verdict: DeliveryVerdict, at: Timestamp) {
        self.add(SourceCounter::Delivery(verdict));
        self.last_at.fetch_max(at.0, Ordering::Relaxed);
    }

    /// Its last delivery, whatever came of it.
    pub fn last_at(&self) -> Option<Timestamp> {
        Some(Timestamp(self.last_at.load(Ordering::Relaxed))).filter(|at| at.0 != i64::MIN)
    }
}

/// What the store is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOp {
    /// To claim a batch.
    Claim,
    /// To write a batch of changes.
    Advance,
    /// What is due.
    Due,
    /// A body.
    Payload,
    /// What people want to see.
    Look,
}

impl StoreOp {
    /// Each of them.
    pub const ALL: [Self; 5] = [Self::Claim, Self::Advance, Self::Due, Self::Payload, Self::Look];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Advance => "advance",
            Self::Due => "due",
            Self::Payload => "payload",
            Self::Look => "look",
        }
    }
}

/// All that one node counts.
#[derive(Debug)]
pub struct Metrics {
    /// Its sources, in the order of the config, and last one that stands for those it does not have.
    pub sources: Vec<SourceMetrics>,
    by_name: HashMap<Arc<str>, usize>,
    nowhere: RecentDeliveries,
    heard: broadcast::Sender<DeliveryRecord>,
    ids: Box<[AtomicU64]>,
    hasher: RandomState,
    pub(super) batches: Histogram<10>,
    pub(super) calls: [Histogram<14>; 5],
    pub(super) errors: [AtomicU64; 5],
    pub(super) lost: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) admin_refused: [AtomicU64; 2],
    /// What the sweep has freed.
    pub sweeps: SweepMetrics,
    /// What was counted, over time.
    pub series: CounterSeries,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Metrics {
    /// A meter for these sources.
    pub fn new(sources: &[Arc<Source>]) -> Self {
        let mut meters: Vec<_> = sources.iter().map(|source| SourceMetrics::new(source)).collect();
        meters.push(SourceMetrics::of("".into(), Vec::new(), Vec::new()));
        let by_name = meters.iter().enumerate().map(|(at, meter)| (meter.name.clone(), at)).collect();
        Self {
            series: CounterSeries::new(meters.len()),
            sources: meters,
            by_name,
            nowhere: RecentDeliveries::default(),
            heard: broadcast::Sender::new(HEARD_MAX),
            ids: (0..IDS_REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            batches: Histogram::new(SIZES),
            calls: std::array::from_fn(|_| Histogram::new(TIMES)),
            errors: Default::default(),
            lost: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            admin_refused: Default::default(),
            sweeps: SweepMetrics::default(),
        }
    }

    /// The place of a source among [`Metrics::sources`].
    pub fn place(&self, name: &str) -> usize {
        self.by_name.get(name).copied().unwrap_or(self.sources.len() - 1)
    }

    fn source(&self, name: &str) -> &SourceMetrics {
        &self.sources[self.place(name)]
    }

    /// A delivery was believed because of this secret.
    pub fn secret_used(&self, source: &str, secret: usize) {
        if let Some(secret) = self.source(source).secrets.get(secret) {
            secret.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a delivery, and remembers it if it was turned away.
    pub fn turned_away(&self, heard: DeliveryRecord) {
        let heard = heard.truncated();
        self.broadcast(|| heard.clone());
        let Some(name) = &heard.source else { return self.nowhere.push(heard) };
        let source = self.source(name);
        source.delivery(heard.verdict, heard.at);
        source.remembered.push(heard);
    }

    /// Counts a delivery that came to be claimed, and remembers it unless it made an event: then the store does.
    pub fn delivery(
        &self,
        source: &str,
        verdict: DeliveryVerdict,
        at: Timestamp,
        heard: impl FnOnce() -> DeliveryRecord,
    ) {
        let source = self.source(source);
        source.delivery(verdict, at);
        if verdict == DeliveryVerdict::Accepted {
            return self.broadcast(heard);
        }
        let heard = heard().truncated();
        self.broadcast(|| heard.clone());
        source.remembered.push(heard);
    }

    /// Counts a duplicate by the identity that matched.
    pub fn duplicate(&self, source: &str, same: &MatchedBy) {
        let meter = self.source(source);
        let at = meter.same.iter().position(|word| word == same.word()).unwrap_or(meter.same.len() - 1);
        meter.add(SourceCounter::Same(at));
    }

    /// Counts an event that a redelivery has published again.
    pub fn published_again(&self, source: &str) {
        self.source(source).published_again.fetch_add(1, Ordering::Relaxed);
    }

    fn broadcast(&self, heard: impl FnOnce() -> DeliveryRecord) {
        if self.heard.receiver_count() > 0 {
            // Who stopped listening meanwhile misses nothing.
            self.heard.send(heard().truncated()).map(drop).unwrap_or_default();
        }
    }

    /// Deliveries, as they are heard.
    pub fn subscribe(&self) -> broadcast::Receiver<DeliveryRecord> {
        self.heard.subscribe()
    }

    /// The last deliveries that made no event, newest first.
    pub fn last(&self) -> Vec<DeliveryRecord> {
        let mut all = self.nowhere.all();
        all.extend(self.sources.iter().flat_map(|source| source.remembered.all()));
        all.sort_by_key(|heard| std::cmp::Reverse(heard.at));
        all
    }

    /// Notices a delivery id that came with another body lately, on this node. Where the signature does not cover the
    /// id, that is another event; either way somebody should know.
    pub fn check_id_conflict(&self, source: &str, id: &str, body: &Digest) {
        let hash = self.hasher.hash_one((source, id));
        let [a, b, c, d, ..] = body.0;
        let (known, digest) = (hash & !0xffff_ffff, u64::from(u32::from_be_bytes([a, b, c, d])));
        let slot = &self.ids[usize::try_from(hash).unwrap_or(0) % IDS_REMEMBERED];
        let before = slot.swap(known | digest, Ordering::Relaxed);
        if before != 0 && before & !0xffff_ffff == known && before & 0xffff_ffff != digest {
            self.source(source).conflicts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A delivery id that the signature covers came with another body than its event has.
    pub fn conflict(&self, source: &str) {
        self.source(source).conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// An event has come to this state.
    pub fn state(&self, event: &Event) {
        let source = self.source(&event.source);
        match event.state {
            EventState::Done { at, .. } => {
                source.add(SourceCounter::Done);
                // A replay's time would be that until a person asked for it.
                if event.life == 1 {
                    source.done.add_time(at.since(event.received_at));
                }
            }
            EventState::Dead { .. } => source.add(SourceCounter::Dead),
            EventState::Waiting { .. } => _ = source.waiting.fetch_add(1, Ordering::Relaxed),
            EventState::Running { .. } => _ = source.running.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// An attempt came to this outcome, after this time.
    pub fn attempt(&self, event: &Event, outcome: &str, took: Option<Duration>) {
        let source = self.source(&event.source);
        let at = OUTCOMES.iter().position(|word| *word == outcome).unwrap_or(3);
        source.add(SourceCounter::Attempt(at));
        if let Some(route) = source.routes.iter().find(|route| route.name == event.route) {
            route.outcomes[at].fetch_add(1, Ordering::Relaxed);
            if let Some(took) = took {
                route.took.add_time(took);
            }
        }
    }

    /// A request to this source was answered after this time.
    pub fn ingest(&self, source: &str, took: Duration) {
        self.source(source).ingest.add_time(took);
    }

    /// This node lost a lease: somebody else wrote first.
    pub fn lost(&self, _: EventId) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// A lease ran out, and this node wrote so.
    pub fn expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    /// The admin port refused a wrong token: in a header, or at the login.
    pub fn admin_refused(&self, login: bool) {
        self.admin_refused[usize::from(login)].fetch_add(1, Ordering::Relaxed);
    }

    /// The store was asked, with so many at once, and took so long.
    pub fn store_call(&self, call: StoreOp, took: Duration, answered: bool) {
        self.calls[call as usize].add_time(took);
        if !answered {
            self.errors[call as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So many were claimed together.
    pub fn batch(&self, size: usize) {
        self.batches.add(size as u64);
    }

    /// Below what time, in milliseconds, this share of the claims was answered.
    pub fn claim_latency_quantile(&self, share: f64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        self.calls[StoreOp::Claim as usize].quantile(share).map(|micros| micros as f64 / 1000.0)
    }
}

/// The counters of the sweep, since the node started, and how the last sweeps went.
#[derive(Debug, Default)]
pub struct SweepMetrics {
    events: AtomicU64,
    bodies: AtomicU64,
    failures: AtomicU64,
    last: Mutex<LastSweeps>,
}

/// How the last sweeps of a node went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LastSweeps {
    /// The last sweep that got to its end: when, and how long it took.
    pub finished: Option<(Timestamp, Duration)>,
    /// The last sweep that freed something: when, how many events, and how many bodies.
    pub freed: Option<(Timestamp, u64, u64)>,
    /// The last sweep that failed: when, and why.
    pub failed: Option<(Timestamp, String)>,
}

impl SweepMetrics {
    /// Counts what one batch has freed.
    pub fn freed(&self, events: u64, bodies: u64) {
        self.events.fetch_add(events, Ordering::Relaxed);
        self.bodies.fetch_add(bodies, Ordering::Relaxed);
    }

    /// Notes a sweep that came to its end, or failed with `why`, after it freed so much.
    pub fn ended(&self, at: Timestamp, took: Duration, (events, bodies): (u64, u64), failed: Option<String>) {
        let mut last = self.lock();
        if events + bodies > 0 {
            last.freed = Some((at, events, bodies));
        }
        match failed {
            Some(why) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                last.failed = Some((at, why));
            }
            None => last.finished = Some((at, took)),
        }
    }

    /// Events and bodies that were freed, and sweeps that failed, since the node started.
    pub fn totals(&self) -> (u64, u64, u64) {
        let [events, bodies, failures] =
            [&self.events, &self.bodies, &self.failures].map(|count| count.load(Ordering::Relaxed));
        (events, bodies, failures)
    }

    /// How the last sweeps went.
    pub fn last(&self) -> LastSweeps {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, LastSweeps> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod sweeps_tests {
    use super::*;

    #[test]
    fn a_failure_stays_to_be_seen_after_a_sweep_that_works_and_an_empty_one_hides_nothing() {
        let (meter, second) = (SweepMetrics::default(), Duration::from_secs(1));
        meter.freed(5, 2);
        meter.ended(Timestamp(1), second, (5, 2), Some("it is away".into()));
        assert_eq!(meter.totals(), (5, 2, 1));
        meter.ended(Timestamp(2), second, (0, 0), None);
        let last = meter.last();
        assert_eq!(last.finished, Some((Timestamp(2), second)));
        assert_eq!(last.freed, Some((Timestamp(1), 5, 2)));
        assert_eq!(last.failed, Some((Timestamp(1), "it is away".into())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_comes_with_another_body_is_counted_and_a_repeat_is_not() {
        let meter = Metrics::default();
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let conflicts = || meter.sources[0].conflicts.load(Ordering::Relaxed);
        for (id, body, expected) in [("a", one, 0), ("a", one, 0), ("b", other, 0), ("a", other, 1), ("a", other, 1)] {
            meter.check_id_conflict("s", id, &body);
            assert_eq!(conflicts(), expected);
        }
    }

    #[test]
    fn what_names_no_source_of_ours_is_counted_as_others() {
        let meter = Metrics::default();
        let at = Timestamp(5);
        meter.delivery("gone", DeliveryVerdict::Stale, at, || DeliveryRecord::new(None, DeliveryVerdict::Stale, at));
        meter.delivery("gone", DeliveryVerdict::Accepted, at, || unreachable!("nobody listens"));
        assert_eq!(meter.last(), [DeliveryRecord::new(None, DeliveryVerdict::Stale, at)]);
        meter.duplicate("gone", &MatchedBy::Change);
        let other = &meter.sources[0];
        assert_eq!((other.count(SourceCounter::Delivery(DeliveryVerdict::Stale)), other.last_at()), (1, Some(at)));
        assert_eq!((&*other.same[0], other.count(SourceCounter::Same(0))), ("other", 1));
    }
}
