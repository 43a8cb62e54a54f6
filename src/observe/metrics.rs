//! The node's counters. Counting is one addition in memory; time series are sampled from them (`time_series.rs`). Every
//! label is a name of the config or one of a fixed set, so there are few.

use super::delivery_log::{DeliveryRecord, DeliveryVerdict, RecentDeliveries};
use super::histogram::{Histogram, LONG_TIMES, SIZES, TIMES};
use super::time_series::SourceSeries;
use crate::decide::claim::MatchedBy;
use crate::decide::event::{Event, EventState};
use crate::decide::id::{Digest, EventId};
use crate::decide::limits;
use crate::decide::source::{Identity, Intake, Source};
use crate::decide::time::{Duration, Timestamp};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::sync::broadcast;

/// The outcomes of an attempt, in the order of their counters.
pub(crate) const OUTCOMES: [&str; 4] = ["delivered", "failed", "rejected", "unknown"];

/// How many deliveries a listener may fall behind by.
const HEARD_MAX: usize = 1024;
/// How many delivery ids are remembered, to notice one with another body.
const IDS_REMEMBERED: usize = 8192;

/// The results of questions to a registry that is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollCounter {
    /// The tag points to another digest than before.
    New,
    /// It points to the same one.
    Same,
    /// The registry has no such tag.
    Missing,
    /// The registry did not say.
    Failed,
}

impl PollCounter {
    /// All of them.
    #[cfg(feature = "node")]
    pub(super) const ALL: [Self; 4] = [Self::New, Self::Same, Self::Missing, Self::Failed];

    /// The word in the metrics.
    #[cfg(feature = "node")]
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Same => "same",
            Self::Missing => "missing",
            Self::Failed => "failed",
        }
    }
}

/// A counter of one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceCounter {
    /// Deliveries of this verdict.
    Delivery(DeliveryVerdict),
    /// Events that became done.
    Done,
    /// Events that became dead.
    Dead,
    /// Attempts with this outcome, by its index in [`OUTCOMES`].
    Attempt(usize),
    /// Duplicates by this identity, by its index among the source's.
    Same(usize),
}

/// The number of counters before those of the source's own identities.
const OWN: usize = 12;
/// The name of the counter of all identities without their own.
const OTHER: &str = "other";

impl SourceCounter {
    /// Its index in the list of counters.
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

/// The counters of one source. They live on when the config is loaded again: what it has no more stays, and what is new
/// comes after it.
#[derive(Debug)]
pub struct SourceMetrics {
    /// Its name.
    pub name: Arc<str>,
    counts: [AtomicU64; OWN],
    same: RwLock<Arc<[Arc<IdentityCount>]>>,
    pub(super) last_at: AtomicI64,
    pub(super) conflicts: AtomicU64,
    /// Events published again because of a redelivery.
    pub(super) published_again: AtomicU64,
    /// Questions to the registry, by result.
    polls: [AtomicU64; 4],
    /// Whether it polls one.
    is_polled: AtomicBool,
    /// Missed deliveries that the sender was asked for.
    pub(super) asked_again: AtomicU64,
    /// When a catch-up last ended, in microseconds since 1970; 0: none has.
    pub(super) caught_up_at: AtomicI64,
    pub(super) secrets: [AtomicU64; limits::SECRETS_MAX],
    /// Events that became waiting, and running.
    waiting: AtomicU64,
    running: AtomicU64,
    /// From a request to its response.
    pub(super) ingest: Histogram<14>,
    /// From a delivery to its event's end as done.
    pub(super) done: Histogram<15>,
    routes: RwLock<Arc<[Arc<RouteMetrics>]>>,
    remembered: RecentDeliveries,
    pub(super) series: Mutex<SourceSeries>,
}

/// The counter of the duplicates that one identity matched.
#[derive(Debug)]
struct IdentityCount {
    name: String,
    count: AtomicU64,
}

/// The counters of one route.
#[derive(Debug)]
pub(super) struct RouteMetrics {
    pub(super) name: Arc<str>,
    /// By index in [`OUTCOMES`].
    pub(super) outcomes: [AtomicU64; 4],
    /// How long attempts took.
    pub(super) took: Histogram<15>,
}

impl SourceMetrics {
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            counts: Default::default(),
            same: RwLock::default(),
            last_at: AtomicI64::new(i64::MIN),
            conflicts: AtomicU64::new(0),
            published_again: AtomicU64::new(0),
            polls: Default::default(),
            is_polled: AtomicBool::new(false),
            asked_again: AtomicU64::new(0),
            caught_up_at: AtomicI64::new(0),
            secrets: Default::default(),
            waiting: AtomicU64::new(0),
            running: AtomicU64::new(0),
            ingest: Histogram::new(TIMES),
            done: Histogram::new(LONG_TIMES),
            routes: RwLock::default(),
            remembered: RecentDeliveries::default(),
            series: Mutex::default(),
        }
    }

    /// Adds counters for the identities and routes of a source that it has none for.
    fn configure(&self, source: &Source) {
        let word = |identity: &Identity| match identity {
            Identity::Delivery => MatchedBy::Delivery.word().to_owned(),
            Identity::Message => MatchedBy::Message.word().to_owned(),
            Identity::Body => MatchedBy::Body.word().to_owned(),
            Identity::Signed => MatchedBy::Signed.word().to_owned(),
            Identity::SignedText => MatchedBy::SignedText.word().to_owned(),
            Identity::Named(fields) => {
                fields.iter().map(|ix| &*source.fields.get(*ix).name).collect::<Vec<_>>().join("+")
            }
        };
        let mut same: Vec<_> = source.once.per.iter().map(word).collect();
        same.extend(source.once.change.as_ref().map(|_| MatchedBy::Change.word().to_owned()));
        self.add_identities(same);
        let names = source.routes.iter().map(|route| &route.name);
        extend(
            &self.routes,
            names,
            |known, name| known.name == **name,
            |name| RouteMetrics { name: name.clone(), outcomes: Default::default(), took: Histogram::new(LONG_TIMES) },
        );
        self.is_polled.fetch_or(matches!(source.intake, Intake::Poll { .. }), Ordering::Relaxed);
    }

    /// Adds counters for these identities, and one for all others, such as those of an older config.
    fn add_identities(&self, mut same: Vec<String>) {
        same.push(OTHER.into());
        let new = |name: String| IdentityCount { name, count: AtomicU64::new(0) };
        extend(&self.same, same, |known, name| known.name == *name, new);
    }

    /// The names of its identities.
    pub fn identities(&self) -> Vec<String> {
        read(&self.same).iter().map(|one| one.name.clone()).collect()
    }

    pub(super) fn routes(&self) -> Arc<[Arc<RouteMetrics>]> {
        read(&self.routes)
    }

    /// Questions to the registry, by result; `None` if it polls none.
    #[cfg(feature = "node")]
    pub(super) fn polls(&self) -> Option<&[AtomicU64; 4]> {
        self.is_polled.load(Ordering::Relaxed).then_some(&self.polls)
    }

    /// The value of a counter.
    pub fn count(&self, count: SourceCounter) -> u64 {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        match count {
            SourceCounter::Same(at) => read(&self.same).get(at).map_or(0, |one| load(&one.count)),
            _ => self.counts.get(count.index()).map_or(0, load),
        }
    }

    /// The values of all counters, by their index.
    pub(super) fn counts(&self) -> Vec<u64> {
        let same = read(&self.same);
        let all = self.counts.iter().chain(same.iter().map(|one| &one.count));
        all.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// How many events reached each state on this node: waiting, running, done, dead.
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

    /// Its last delivery, with any verdict.
    pub fn last_at(&self) -> Option<Timestamp> {
        Some(Timestamp(self.last_at.load(Ordering::Relaxed))).filter(|at| at.0 != i64::MIN)
    }
}

fn read<T>(list: &RwLock<Arc<[T]>>) -> Arc<[T]> {
    list.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Adds what is new to a list whose places stay as they are.
fn extend<T, N>(
    list: &RwLock<Arc<[Arc<T>]>>,
    wanted: impl IntoIterator<Item = N>,
    is: impl Fn(&T, &N) -> bool,
    new: impl Fn(N) -> T,
) {
    let mut list = list.write().unwrap_or_else(PoisonError::into_inner);
    let mut all = list.to_vec();
    for name in wanted {
        if !all.iter().any(|known| is(known, &name)) {
            all.push(Arc::new(new(name)));
        }
    }
    *list = all.into();
}

/// A kind of store call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOp {
    /// Claim a batch.
    Claim,
    /// Write a batch of transitions.
    Advance,
    /// Read due events.
    Due,
    /// Read a body.
    Payload,
    /// Read for operators.
    Look,
}

impl StoreOp {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Claim, Self::Advance, Self::Due, Self::Payload, Self::Look];

    /// Its name.
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

/// The counters of the configured sources.
#[derive(Debug, Default)]
struct ConfiguredSources {
    /// In the order of the config, and a last one for all others.
    all: Arc<[Arc<SourceMetrics>]>,
    by_name: HashMap<Arc<str>, Arc<SourceMetrics>>,
    others: Option<Arc<SourceMetrics>>,
}

/// All counters of one node.
#[derive(Debug)]
pub struct Metrics {
    sources: RwLock<ConfiguredSources>,
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
    /// What the sweep has deleted.
    pub sweeps: SweepMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Metrics {
    /// The counters for these sources.
    pub fn new(sources: &[Arc<Source>]) -> Self {
        let all = Self {
            sources: RwLock::default(),
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
        };
        all.configure(sources);
        all
    }

    /// Counts for these sources from now on. Those that were counted before keep their counts.
    pub fn configure(&self, sources: &[Arc<Source>]) {
        let mut known = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let new = |name: &Arc<str>| Arc::new(SourceMetrics::new(name.clone()));
        let one = |source: &Arc<Source>| {
            let metrics = known.by_name.get(&source.name).cloned().unwrap_or_else(|| new(&source.name));
            metrics.configure(source);
            metrics
        };
        let configured: Vec<_> = sources.iter().map(one).collect();
        let others = known.others.clone().unwrap_or_else(|| new(&"".into()));
        others.add_identities(Vec::new());
        *known = ConfiguredSources {
            by_name: configured.iter().map(|source| (source.name.clone(), source.clone())).collect(),
            all: configured.into_iter().chain([others.clone()]).collect(),
            others: Some(others),
        };
    }

    /// Its sources, in the order of the config, and a last one for all others.
    pub fn sources(&self) -> Arc<[Arc<SourceMetrics>]> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    /// The counters of a source; those of all others, if it is not configured.
    pub fn source(&self, name: &str) -> Arc<SourceMetrics> {
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        let source = sources.by_name.get(name).or(sources.others.as_ref());
        source.expect("there are counters of all other sources").clone()
    }

    /// Counts a delivery verified with this secret.
    pub fn secret_used(&self, source: &str, secret: usize) {
        if let Some(secret) = self.source(source).secrets.get(secret) {
            secret.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a rejected or ignored delivery, and remembers it.
    pub fn turned_away(&self, heard: DeliveryRecord) {
        let heard = heard.truncated();
        self.broadcast(|| heard.clone());
        let Some(name) = &heard.source else { return self.nowhere.push(heard) };
        let source = self.source(name);
        source.delivery(heard.verdict, heard.at);
        source.remembered.push(heard);
    }

    /// Counts a delivery that was claimed, and remembers it unless it made an event: that is in the store.
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

    /// Counts a refusal that is not remembered.
    pub fn limited(&self, source: &str, at: Timestamp) {
        self.source(source).delivery(DeliveryVerdict::Refused, at);
    }

    /// Counts a duplicate by the identity that matched.
    pub fn duplicate(&self, source: &str, same: &MatchedBy) {
        let all = read(&self.source(source).same);
        let named = |name: &str| all.iter().find(|one| one.name == name);
        if let Some(one) = named(same.word()).or_else(|| named(OTHER)) {
            one.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an event that a redelivery has published again.
    pub fn published_again(&self, source: &str) {
        self.source(source).published_again.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a question to the registry that a source polls.
    pub fn polled(&self, source: &str, result: PollCounter) {
        self.source(source).polls[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a missed delivery that the sender was asked for.
    pub fn asked_again(&self, source: &str) {
        self.source(source).asked_again.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a catch-up has ended.
    pub fn caught_up(&self, source: &str, at: Timestamp) {
        self.source(source).caught_up_at.store(at.0, Ordering::Relaxed);
    }

    fn broadcast(&self, heard: impl FnOnce() -> DeliveryRecord) {
        if self.heard.receiver_count() > 0 {
            // If the last listener is gone, nothing is missed.
            self.heard.send(heard().truncated()).map(drop).unwrap_or_default();
        }
    }

    /// Subscribes to deliveries as they arrive.
    pub fn subscribe(&self) -> broadcast::Receiver<DeliveryRecord> {
        self.heard.subscribe()
    }

    /// The last deliveries that made no event, newest first.
    pub fn last(&self) -> Vec<DeliveryRecord> {
        let mut all = self.nowhere.all();
        all.extend(self.sources().iter().flat_map(|source| source.remembered.all()));
        all.sort_by_key(|heard| std::cmp::Reverse(heard.at));
        all
    }

    /// Notices a delivery id that came with another body recently, on this node. If the signature does not cover the
    /// id, that is another event; either way the operator should know.
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

    /// Counts a delivery id, covered by the signature, with another body than its event has.
    pub fn conflict(&self, source: &str) {
        self.source(source).conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an event that has reached this state.
    pub fn state(&self, event: &Event) {
        let source = self.source(&event.source);
        match event.state {
            EventState::Done { at, .. } => {
                source.add(SourceCounter::Done);
                // A replay's duration would include the time until the operator requested it; one that was published
                // again has ended before. A notification is no delivery.
                if event.life == 1 && event.published_again.is_none() && !event.is_notification() {
                    source.done.add_time(at.since(event.received_at));
                }
            }
            EventState::Dead { .. } => source.add(SourceCounter::Dead),
            EventState::Waiting { .. } => _ = source.waiting.fetch_add(1, Ordering::Relaxed),
            EventState::Running { .. } => _ = source.running.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Counts an attempt with this outcome and duration.
    pub fn attempt(&self, event: &Event, outcome: &str, took: Option<Duration>) {
        let source = self.source(&event.source);
        let at = OUTCOMES.iter().position(|word| *word == outcome).unwrap_or(3);
        source.add(SourceCounter::Attempt(at));
        if let Some(route) = source.routes().iter().find(|route| route.name == event.route) {
            route.outcomes[at].fetch_add(1, Ordering::Relaxed);
            if let Some(took) = took {
                route.took.add_time(took);
            }
        }
    }

    /// Records the duration of a request to this source.
    pub fn ingest(&self, source: &str, took: Duration) {
        self.source(source).ingest.add_time(took);
    }

    /// Counts a lost lease: another process wrote first.
    pub fn lost(&self, _: EventId) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an expired lease that this node recorded.
    pub fn expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a wrong token at the admin port: in a header, or at the login.
    pub fn admin_refused(&self, login: bool) {
        self.admin_refused[usize::from(login)].fetch_add(1, Ordering::Relaxed);
    }

    /// Records a store call and its duration.
    pub fn store_call(&self, call: StoreOp, took: Duration, answered: bool) {
        self.calls[call as usize].add_time(took);
        if !answered {
            self.errors[call as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the size of a batch of claims.
    pub fn batch(&self, size: usize) {
        self.batches.add(size as u64);
    }

    /// The time, in milliseconds, within which this share of the claims was answered.
    pub fn claim_latency_quantile(&self, share: f64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "only displayed")]
        self.calls[StoreOp::Claim as usize].quantile(share).map(|micros| micros as f64 / 1000.0)
    }
}

/// The counters of the sweep since the node started, and the last sweeps.
#[derive(Debug, Default)]
pub struct SweepMetrics {
    events: AtomicU64,
    bodies: AtomicU64,
    failures: AtomicU64,
    last: Mutex<LastSweepOutcomes>,
}

/// The node's last finished sweep, last sweep that deleted something, and last failed sweep.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LastSweepOutcomes {
    /// The last complete sweep: when, and how long it took.
    pub finished: Option<(Timestamp, Duration)>,
    /// The last sweep that deleted something: when, how many events, and how many bodies.
    pub freed: Option<(Timestamp, u64, u64)>,
    /// The last sweep that failed: when, and why.
    pub failed: Option<(Timestamp, String)>,
}

impl SweepMetrics {
    /// Counts what one batch has deleted.
    pub fn freed(&self, events: u64, bodies: u64) {
        self.events.fetch_add(events, Ordering::Relaxed);
        self.bodies.fetch_add(bodies, Ordering::Relaxed);
    }

    /// Records a sweep that was completed, or failed with `why`, and what it deleted.
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

    /// Deleted events and bodies, and failed sweeps, since the node started.
    pub fn totals(&self) -> (u64, u64, u64) {
        let [events, bodies, failures] =
            [&self.events, &self.bodies, &self.failures].map(|count| count.load(Ordering::Relaxed));
        (events, bodies, failures)
    }

    /// The last sweeps.
    pub fn last(&self) -> LastSweepOutcomes {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, LastSweepOutcomes> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod sweeps_tests {
    use super::*;

    #[test]
    fn a_failure_stays_visible_after_a_successful_sweep_and_an_empty_sweep_hides_nothing() {
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
    fn an_id_with_another_body_is_counted_and_a_duplicate_is_not() {
        let meter = Metrics::default();
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let conflicts = || meter.source("").conflicts.load(Ordering::Relaxed);
        for (id, body, expected) in [("a", one, 0), ("a", one, 0), ("b", other, 0), ("a", other, 1), ("a", other, 1)] {
            meter.check_id_conflict("s", id, &body);
            assert_eq!(conflicts(), expected);
        }
    }

    #[test]
    fn an_unknown_source_is_counted_under_others() {
        let meter = Metrics::default();
        let at = Timestamp(5);
        meter.delivery("gone", DeliveryVerdict::Stale, at, || DeliveryRecord::new(None, DeliveryVerdict::Stale, at));
        meter.delivery("gone", DeliveryVerdict::Accepted, at, || unreachable!("there is no listener"));
        assert_eq!(meter.last(), [DeliveryRecord::new(None, DeliveryVerdict::Stale, at)]);
        meter.duplicate("gone", &MatchedBy::Change);
        let other = meter.source("");
        assert_eq!((other.count(SourceCounter::Delivery(DeliveryVerdict::Stale)), other.last_at()), (1, Some(at)));
        assert_eq!((&*other.identities(), other.count(SourceCounter::Same(0))), (&["other".to_owned()][..], 1));
    }

    fn source(name: &str, once: &str, route: &str) -> Source {
        let route = Arc::new(crate::decide::source::Route { name: route.into(), ..Default::default() });
        let per = if once == "body" { Identity::Body } else { Identity::Delivery };
        let mut source = Source::new(name, crate::decide::verify::VerificationScheme::none());
        (source.once.per, source.routes) = (vec![per], vec![route]);
        source
    }

    #[test]
    fn counters_live_on_when_their_source_is_configured_anew_and_end_with_it() {
        let meter = Metrics::new(&[Arc::new(source("a", "delivery", "one"))]);
        let accepted = |source: &str| {
            let at = Timestamp(5);
            let heard = || unreachable!("there is no listener");
            meter.delivery(source, DeliveryVerdict::Accepted, at, heard);
            meter.source(source).count(SourceCounter::Delivery(DeliveryVerdict::Accepted))
        };
        meter.duplicate("a", &MatchedBy::Delivery);
        assert_eq!(accepted("a"), 1);
        meter.configure(&[Arc::new(source("b", "body", "one")), Arc::new(source("a", "body", "two"))]);
        meter.duplicate("a", &MatchedBy::Body);
        let a = meter.source("a");
        assert_eq!(a.identities(), ["delivery", "other", "body"]);
        assert_eq!([0, 1, 2].map(|at| a.count(SourceCounter::Same(at))), [1, 0, 1]);
        assert_eq!(a.routes().iter().map(|route| &*route.name).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!((accepted("a"), accepted("b")), (2, 1));
        meter.configure(&[Arc::new(source("a", "body", "two"))]);
        assert_eq!((accepted("a"), accepted("b"), accepted("c")), (3, 1, 2), "what is not configured counts as one");
        let names = meter.sources();
        assert_eq!(names.iter().map(|source| &*source.name).collect::<Vec<_>>(), ["a", ""]);
    }
}
