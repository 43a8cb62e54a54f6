//! Acquires the event of a key: claims it, takes it over, or joins it. In the layer the client retries, so the first
//! request after a failure or an expired lease takes the event over; the compare-and-swap of its revision decides which
//! one.
//!
//! ```text
//! claim ─▶ new ─────────────────────────────────────▶ ours
//!          duplicate ─▶ done ────────────────────────▶ over: its answer again
//!                       running, its lease goes on ──▶ join: wait, bounded
//!                       running, its lease ran out ──▶ expire ─▶ start ─▶ ours
//!                       dead, or left waiting ───────▶ revive ─▶ start ─▶ ours
//! ```

use super::leased_attempt::{EndedEventWithReceipt, LeasedAttempt};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::{ClaimResult, MatchedBy, NewEvent};
use crate::decide::event::{Event, EventState, EventStep, Outcome, QueueState, Receipt};
use crate::decide::id::{EventId, NodeId, Revision};
use crate::decide::limits;
use crate::decide::retry::{Jitter, RetryPolicy};
use crate::decide::source::{Fanout, InDoubtPolicy, Keep, RedeliveryPolicy, Retention, Route};
use crate::decide::time::Duration;
use crate::lease::boottime;
use crate::observe::log;
use crate::observe::trace_span::TraceSpan;
use crate::store::batch::Batcher;
use crate::store::clock_monitor::ClockMonitor;
use crate::store::completion::{Completion, CompletionWaiters, JOIN_LOOK};
use crate::store::{
    AdvanceResult, DueQuery, DuplicateNote, ForgetCounts, RetentionPolicies, Store, StoreError, retention,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

/// Minimum delay between two polls.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// The delay of the next poll for an attempt of this process: longer than any wait, because its end is told.
const TOLD: Duration = Duration::from_hours(24);
/// Maximum retries if others write the event at the same time, however short the wait.
const TRIES_MIN: u32 = 16;

/// A store and this process's engine on it.
pub(super) struct OnceEngine {
    pub(super) store: Arc<dyn Store>,
    pub(super) node: NodeId,
    batch: OnceLock<Batcher>,
    /// The attempts of this process, by event and the revision they were started at: a new attempt may start before the
    /// previous one has been settled.
    running: Mutex<BTreeSet<(EventId, Revision)>>,
    pub(super) ends: CompletionWaiters<Arc<EndedEventWithReceipt>>,
    scopes: Mutex<HashMap<Arc<str>, Retention>>,
}

/// How a scope's events are treated.
#[derive(Debug)]
pub(super) struct ScopeRules {
    pub(super) scope: Arc<str>,
    /// A failed event is dead at once, and the next request revives it.
    pub(super) route: Route,
    pub(super) wait: Duration,
    pub(super) kept: Retention,
}

/// The result of acquiring a key.
pub(super) enum KeyAcquisition {
    /// The caller makes this attempt.
    Ours(LeasedAttempt),
    /// It has ended.
    Over(Arc<EndedEventWithReceipt>),
    /// It ended with a failure while the caller waited for it.
    Failed(Arc<EndedEventWithReceipt>),
    /// It is still running, and the wait timed out.
    Busy(Event),
    /// It was claimed with another body.
    Conflict(Event),
}

impl ScopeRules {
    pub(super) fn new(scope: &Arc<str>, lease: Duration, wait: Duration, kept: Retention) -> Self {
        let route = Route {
            name: "layer".into(),
            retry: RetryPolicy { attempts: 1, first: Duration::ZERO, longest: Duration::ZERO },
            redelivery: RedeliveryPolicy::Retry { same_after: Duration::ZERO, other_after: Duration::ZERO },
            lease,
            fanout: Fanout::Actions(1),
            ..Route::default()
        };
        Self { scope: scope.clone(), route, wait, kept }
    }

    /// The route for an event whose process is gone: there is no limit of crashes.
    fn unlimited_retries(&self) -> Route {
        Route { retry: RetryPolicy { attempts: u32::MAX, ..self.route.retry }, ..self.route.clone() }
    }
}

impl OnceEngine {
    pub(super) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        let node = NodeId(format!("layer-{id}").into());
        let (batch, running, scopes) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Arc::new(Self { store, node, batch, running, ends: CompletionWaiters::default(), scopes })
    }

    /// Starts the batcher and the sweep with the first request, because only then a runtime is certain.
    pub(super) fn batch(self: &Arc<Self>) -> &Batcher {
        self.batch.get_or_init(|| {
            tokio::spawn(sweep(Arc::downgrade(self)));
            Batcher::start(self.store.clone(), Arc::default())
        })
    }

    /// The sweep forgets events of this scope from now on.
    pub(super) fn register_scope(&self, rules: &ScopeRules) {
        lock(&self.scopes).insert(rules.scope.clone(), rules.kept);
    }

    pub(super) fn running(&self) -> MutexGuard<'_, BTreeSet<(EventId, Revision)>> {
        lock(&self.running)
    }

    /// Whether this process has an attempt at this event.
    fn is_running_here(&self, id: EventId) -> bool {
        self.running().range((id, Revision(0))..=(id, Revision(u64::MAX))).next().is_some()
    }

    /// Claims this event, takes over an abandoned one, or waits for a running one.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        mut new: NewEvent,
        rules: &Arc<ScopeRules>,
        minds_body: impl Fn(&MatchedBy) -> bool,
    ) -> Result<KeyAcquisition, StoreError> {
        new.event.start_at_claim(rules.route.lease, self.node.clone(), ActionKind::Layer);
        let new = Arc::new(new);
        let until = Instant::now() + rules.wait;
        let mut tries = 0;
        loop {
            let (event, same) = match self.claim(&new, rules).await? {
                Ok(held) => return Ok(KeyAcquisition::Ours(held)),
                Err(duplicate) => duplicate,
            };
            if minds_body(&same) && event.body_digest != new.event.body_digest {
                return Ok(KeyAcquisition::Conflict(event));
            }
            if tries == 0 {
                // Not durable, and not worth an error.
                let note = DuplicateNote::new(&event, &same, &new, self.store.now());
                self.store.note_duplicates(vec![note]).await.ok();
            }
            if let Some(taken) = self.take_over(event, &new, rules, until, &mut tries).await? {
                return Ok(taken);
            }
            // It was forgotten meanwhile: the key is free.
        }
    }

    /// `Ok` if it is new, and ours; `Err` with the event that owns its key.
    async fn claim(
        self: &Arc<Self>,
        new: &Arc<NewEvent>,
        rules: &Arc<ScopeRules>,
    ) -> Result<Result<LeasedAttempt, (Event, MatchedBy)>, StoreError> {
        let span = TraceSpan::begin("claim", None);
        let (engine, rules, sent) = (self.clone(), rules.clone(), boottime());
        let (give, taken) = oneshot::channel();
        // Registered before any waiter is woken: a duplicate finds it leased, and if the caller is gone, it is released
        // at once.
        let then = move |event: &Event| {
            if event.revision == Revision::FIRST && event.is_running_on(&engine.node) {
                drop(give.send(LeasedAttempt::new(engine, rules, event.clone(), sent)));
            }
        };
        match span.run(self.batch().claim(new.clone(), Box::new(then))).await? {
            ClaimResult::New { event, .. } => match taken.await {
                Ok(held) => Ok(Ok(held)),
                Err(_) => Ok(Err((*event, new.keys.first().map_or(MatchedBy::Body, |key| key.matched_by.clone())))),
            },
            ClaimResult::Duplicate { event, same, .. } => Ok(Err((*event, same))),
            ClaimResult::Imported { .. } | ClaimResult::Stale { .. } | ClaimResult::Undecided => {
                Err(StoreError::Down("the store could not decide".into()))
            }
        }
    }

    /// `None` if the event is gone.
    async fn take_over(
        self: &Arc<Self>,
        mut event: Event,
        new: &NewEvent,
        rules: &Arc<ScopeRules>,
        until: Instant,
        tries: &mut u32,
    ) -> Result<Option<KeyAcquisition>, StoreError> {
        let mut joined = false;
        loop {
            *tries += 1;
            if *tries > TRIES_MIN && Instant::now() >= until {
                return Ok(Some(KeyAcquisition::Busy(event)));
            }
            if matches!(event.state, EventState::Done { .. }) {
                let receipt = self.store.receipt(event.id).await?;
                return Ok(Some(KeyAcquisition::Over(Arc::new(EndedEventWithReceipt { event, receipt }))));
            }
            if joined && event.state.ended().is_some() {
                let receipt = self.store.receipt(event.id).await?;
                // It may have been revived before the receipt was read.
                let Some(stands) = self.store.get(event.id).await? else { return Ok(None) };
                if stands.revision != event.revision {
                    event = stands;
                    continue;
                }
                if let Some(taken) = KeyAcquisition::of(Arc::new(EndedEventWithReceipt { event: stands, receipt })) {
                    return Ok(Some(taken));
                }
            }
            if self.next_look(&event).is_some() {
                joined = true;
                let waited = self.ends.wait(&*self.store, event.id, until, |event| self.next_look(event)).await;
                let waited = match waited {
                    // It goes on here, whether the store responds or not.
                    Err(StoreError::Down(_) | StoreError::Unsure(_)) if self.is_running_here(event.id) => {
                        return Ok(Some(KeyAcquisition::Busy(event)));
                    }
                    waited => waited?,
                };
                event = match waited {
                    Completion::Told(ended) => match KeyAcquisition::of(ended) {
                        Some(taken) => return Ok(Some(taken)),
                        None => match self.store.get(event.id).await? {
                            Some(stands) => stands,
                            None => return Ok(None),
                        },
                    },
                    Completion::Stored(None) => return Ok(None),
                    Completion::Stored(Some(stands))
                        if Instant::now() >= until && self.next_look(&stands).is_some() =>
                    {
                        return Ok(Some(KeyAcquisition::Busy(*stands)));
                    }
                    Completion::Stored(Some(stands)) => *stands,
                };
                continue;
            }
            let sent = boottime();
            let written = self.revive(&event, new, rules).await?;
            event = match written {
                Some(AdvanceResult::Written { event, .. }) if event.is_running_on(&self.node) => {
                    return Ok(Some(KeyAcquisition::Ours(LeasedAttempt::new(
                        self.clone(),
                        rules.clone(),
                        *event,
                        sent,
                    ))));
                }
                Some(AdvanceResult::Written { event, .. }) => *event,
                Some(AdvanceResult::Lost) | None => match self.store.get(event.id).await? {
                    Some(stands) => stands,
                    None => return Ok(None),
                },
            };
        }
    }

    /// One step towards an attempt of this process.
    async fn revive(
        self: &Arc<Self>,
        event: &Event,
        new: &NewEvent,
        rules: &ScopeRules,
    ) -> Result<Option<AdvanceResult>, StoreError> {
        let now = self.store.now();
        let route = &rules.route;
        let change = match &event.state {
            EventState::Running { .. } => {
                event.transition(EventStep::Expire { jitter: Jitter(0) }, &rules.unlimited_retries(), now)
            }
            EventState::Waiting { .. } if event.queue_state == QueueState::Suspended => {
                event.transition(EventStep::Unsuspend, route, now)
            }
            EventState::Waiting { .. } => {
                let (lasts, by) = (route.lease, self.node.clone());
                event.transition(EventStep::Start { lasts, by, action: ActionKind::Layer }, route, now)
            }
            EventState::Dead { cause, .. } if cause.rearmable() => event.rearm(new, route, now),
            // It may have acted: the services it called must recognise the next attempt.
            EventState::Dead { .. } => event.transition(EventStep::Resume, route, now),
            EventState::Done { .. } => return Ok(None),
        };
        match change {
            Ok(change) => match self.batch().advance(change).await {
                // It may have been written: the next read shows it.
                Err(StoreError::Unsure(_)) => Ok(None),
                written => written.map(Some),
            },
            Err(_) => Ok(None),
        }
    }

    /// When a request that waits for this event asks the store again; `None`: the event is not waited for.
    fn next_look(&self, event: &Event) -> Option<Duration> {
        if event.state.ended().is_some() {
            return None;
        }
        if self.is_running_here(event.id) {
            return Some(TOLD); // its end is told, even after its lease
        }
        let EventState::Running { until, .. } = event.state else { return None };
        let left = self.store.lease_end(until).since(self.store.now());
        (!left.is_zero()).then(|| left.clamp(LOOK_MIN, JOIN_LOOK))
    }

    /// Ends events of processes that are gone, and deletes expired ones.
    pub(super) async fn forget(self: &Arc<Self>) -> Result<ForgetCounts, StoreError> {
        let sources = lock(&self.scopes).clone();
        for event in self.store.due(DueQuery::Leases, limits::BATCH_CLAIMS_MAX).await?.events {
            if sources.contains_key(&event.source) && !self.is_running_here(event.id) {
                // Ended, so that it can expire; a later request can still revive it.
                let gone = Route { in_doubt: InDoubtPolicy::Hold, ..Route::default() };
                if let Ok(change) = event.transition(EventStep::Expire { jitter: Jitter(0) }, &gone, self.store.now()) {
                    self.batch().advance(change).await?;
                }
            }
        }
        self.retain().await;
        Ok(retention::sweep_all(&*self.store, &self.keeps(), retention::SweepCompany::Claims).await?)
    }

    /// Publishes the retention in the store, for nodes that share it. If that fails, events are still swept here.
    async fn retain(&self) {
        if let Err(error) = self.store.set_retention(self.keeps().rows(self.store.now())).await {
            log::store_warning(&error);
        }
    }

    /// Runs one sweep and logs an error.
    async fn sweep(self: &Arc<Self>, watch: &mut ClockMonitor) {
        watch.look(&*self.store, self.store.would_forget(self.keeps(), limits::WOULD_FORGET_MAX)).await;
        // It only frees space; the next one tries again.
        if let Err(error) = self.forget().await {
            let why = error.to_string();
            log::rate_limited("sweep", &why, |times| warn!(target: "hookonce", why, times, "sweep"));
        }
    }

    /// The retention of this engine's scopes.
    fn keeps(&self) -> Arc<RetentionPolicies> {
        Arc::new(RetentionPolicies { sources: lock(&self.scopes).clone() })
    }
}

impl KeyAcquisition {
    /// The result of an ended event for the caller; `None` if it ended without a response, by a panic or with its
    /// lease: the caller then tries itself.
    fn of(ended: Arc<EndedEventWithReceipt>) -> Option<Self> {
        match (&ended.event.state, &ended.receipt) {
            (EventState::Done { .. }, _) => Some(Self::Over(ended)),
            (_, Some(_)) => Some(Self::Failed(ended)),
            (_, None) => None,
        }
    }
}

/// Sweeps while the engine is in use.
async fn sweep(engine: Weak<OnceEngine>) {
    let mut watch = ClockMonitor::default();
    if let Some(engine) = engine.upgrade() {
        engine.retain().await;
    }
    loop {
        tokio::time::sleep(limits::FORGET_EVERY).await;
        let Some(engine) = engine.upgrade() else { return };
        engine.sweep(&mut watch).await;
    }
}

/// How long events are kept.
pub(super) fn kept(keys: Duration, body: Duration) -> Retention {
    Retention { keys: Keep::For(keys), body }
}

/// The outcome of a failed attempt that may be repeated.
pub(super) fn failed(why: &str, receipt: Option<Receipt>) -> Outcome {
    Outcome::Failed { why: why.to_owned(), retry_after: None, receipt }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, feature = "sqlite", feature = "node"))]
mod tests {
    use super::*;
    use crate::observe::log_layer::{LogFormat, Logger};
    use crate::store::sqlite::{SqliteAccess, SqliteStore};
    use std::io::Write;

    /// Captures the log.
    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_sweep_that_fails_logs_why() {
        let lines = CapturedLog::default();
        Logger::start(LogFormat::Text, Box::new(lines.clone()));
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("hookonce.db");
        drop(SqliteStore::open(&path, SqliteAccess::Node).expect("it is made"));
        let engine = OnceEngine::new(Arc::new(SqliteStore::open(&path, SqliteAccess::Read).expect("it opens")));
        let (hour, scope) = (Duration::from_hours(1), Arc::from("s"));
        engine.register_scope(&ScopeRules::new(&scope, hour, hour, kept(hour, hour)));
        engine.sweep(&mut ClockMonitor::default()).await;
        Logger::flush();
        let log = String::from_utf8(lock(&lines.0).clone()).expect("text");
        let says = |word: &str| log.lines().any(|line| line.contains(word) && line.contains("opened read-only"));
        assert!(says("WARN sweep") && says("WARN store"), "{log}");
    }
}
