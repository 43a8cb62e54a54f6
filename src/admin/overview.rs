//! `/api/overview`: the state of the node and its store in one response. Series are counted in this node's memory; events
//! are counted by the store, at most once a second however many clients ask.

use super::AdminState;
use super::budgets::BudgetUseView;
use super::openapi::{BadRequest, StoreWord, WindowWord, params, query, word};
use super::orphans::{self, OrphanView};
use super::query::QueryParams;
use super::view::{self, ClockWaitingView, EventView};
use crate::decide::event::EventState;
use crate::decide::time::{Duration, Timestamp};
use crate::observe::delivery_log::DeliveryVerdict;
use crate::observe::metrics::{Metrics, SourceCounter, SourceMetrics, StoreOp};
use crate::store::clock_monitor::ClockSkew;
use crate::store::{EventCounts, EventQuery, Inspect, StoreError};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

/// How long a count of the store's events is reused.
const COUNT_STANDS: Duration = Duration::from_secs(1);
/// How long the store may take to count.
const COUNT_TIME: Duration = Duration::from_secs(2);
/// Maximum number of events read back from the store at the start, for the series.
const READ_BACK_MAX: usize = 20_000;
/// How far back.
const READ_BACK: Duration = Duration::from_hours(24);
/// How long reading back may take.
const READ_BACK_TIME: Duration = Duration::from_secs(10);
/// Events in one read.
const READ_BACK_PAGE: usize = 500;

/// The windows: their names, how many points they have, and how long each point is.
pub(super) const WINDOWS: [(&str, usize, Duration); 3] =
    [("1h", 60, Duration::from_mins(1)), ("24h", 96, Duration::from_mins(15)), ("7d", 84, Duration::from_hours(2))];

/// The last count of the store's events.
#[derive(Default)]
pub(crate) struct EventCountCache(Mutex<Option<(Instant, TimedEventCounts)>>);

/// A count, or the error, and how long it took.
type TimedEventCounts = (Result<Arc<EventCounts>, String>, Duration);

impl EventCountCache {
    /// The store's events, counted now or a moment ago.
    pub(super) async fn census(&self, store: &dyn Inspect, meter: &Metrics) -> TimedEventCounts {
        let mut last = self.0.lock().await;
        if let Some((at, count)) = &*last
            && at.elapsed() < COUNT_STANDS
        {
            return count.clone();
        }
        let asked = Instant::now();
        let census = match timeout(COUNT_TIME, store.counts()).await {
            Ok(census) => census.map(Arc::new).map_err(|error: StoreError| error.to_string()),
            Err(_) => Err("the store did not respond in time".to_owned()),
        };
        let took = asked.elapsed();
        meter.store_call(StoreOp::Look, took, census.is_ok());
        *last = Some((Instant::now(), (census.clone(), took)));
        (census, took)
    }
}

/// Samples the counters every second. First reads back the events of the last day from the store: new ones and those
/// that ended. Deliveries that made no event are not counted again after a restart.
pub(crate) async fn record_series(state: AdminState) {
    let read = timeout(READ_BACK_TIME, restore_series(&state)).await;
    if let Ok(Ok(since)) = read {
        *state.since.lock().await = since;
    }
    loop {
        state.metrics.sample(state.store.now());
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = state.health.draining.cancelled() => return,
        }
    }
}

async fn restore_series(state: &AdminState) -> Result<Timestamp, StoreError> {
    let (meter, start) = (&*state.metrics, *state.since.lock().await);
    let from = start - READ_BACK;
    let mut listing =
        EventQuery { since: Some(from), until: Some(start), limit: READ_BACK_PAGE, ..EventQuery::default() };
    let (mut read, mut back_to) = (0, start);
    loop {
        let page = state.store.page(listing.clone()).await?;
        for event in &page.events {
            back_to = back_to.min(event.received_at);
            meter.backfill(&event.source, SourceCounter::Delivery(DeliveryVerdict::Accepted), event.received_at);
            let count = match event.state {
                EventState::Done { .. } => SourceCounter::Done,
                EventState::Dead { .. } => SourceCounter::Dead,
                EventState::Waiting { .. } | EventState::Running { .. } => continue,
            };
            meter.backfill(&event.source, count, event.state.ended().unwrap_or(start).min(start));
        }
        read += page.events.len();
        match page.next {
            None => return Ok(from),
            Some(_) if read >= READ_BACK_MAX => return Ok(back_to),
            next => listing.before = next,
        }
    }
}

/// The state of the node and its store.
#[derive(Serialize, ToSchema)]
pub(super) struct OverviewView {
    window: WindowWord,
    /// The beginning of the first point.
    from: Timestamp,
    /// Now, by the store's clock.
    to: Timestamp,
    /// Seconds between two points.
    step: u64,
    /// The node that answers. Deliveries, attempts and the series are what this node saw; events and saved.kept are the
    /// store's.
    node: String,
    /// When this node started. Duplicates, ignored and refused deliveries and attempts are counted from then on.
    started_at: Timestamp,
    /// From when on events new, done and dead are counted completely: they are read back from the store at the start.
    since: Timestamp,
    deliveries: DeliveryCountsView,
    /// Duplicates by the identity that matched.
    #[schema(value_type = BTreeMap<String, u64>)]
    duplicates: Map<String, Value>,
    attempts: AttemptCountsView,
    ended: EndedCountsView,
    series: SeriesView,
    /// In the order of the config.
    sources: Vec<SourceCountsView>,
    saved: AvoidedRunsView,
    store: StoreView,
    clock: ClockView,
    events: EventCountsView,
    /// The event that has waited longest.
    #[schema(required)]
    oldest_waiting: Option<EventView>,
    /// Sources with events in the store that no node has configured: at most 100, sorted by name. A source of another
    /// node counts as configured if that node wrote so within five minutes.
    orphaned: Vec<OrphanView>,
    /// How much of its budget each route has used, for routes that have one, in the order of the config.
    budgets: Vec<BudgetUseView>,
    sweep: SweepView,
}

/// Deliveries by verdict.
#[derive(Serialize, ToSchema)]
struct DeliveryCountsView {
    accepted: u64,
    duplicate: u64,
    stale: u64,
    ignored: u64,
    refused: u64,
    unavailable: u64,
}

/// Attempts by outcome.
#[derive(Serialize, ToSchema)]
struct AttemptCountsView {
    delivered: u64,
    failed: u64,
    rejected: u64,
    unknown: u64,
}

/// Events that ended in the window.
#[derive(Serialize, ToSchema)]
struct EndedCountsView {
    done: u64,
    dead: u64,
}

/// At most 120 points; all lists are equally long.
#[derive(Serialize, ToSchema)]
struct SeriesView {
    /// The beginning of each point.
    #[schema(max_items = 120)]
    at: Vec<Timestamp>,
    #[schema(max_items = 120)]
    accepted: Vec<u64>,
    #[schema(max_items = 120)]
    duplicate: Vec<u64>,
    #[schema(max_items = 120)]
    stale: Vec<u64>,
    #[schema(max_items = 120)]
    ignored: Vec<u64>,
    #[schema(max_items = 120)]
    refused: Vec<u64>,
    #[schema(max_items = 120)]
    unavailable: Vec<u64>,
    #[schema(max_items = 120)]
    done: Vec<u64>,
    #[schema(max_items = 120)]
    dead: Vec<u64>,
    /// Attempts that failed, were rejected, or are unknown.
    #[schema(max_items = 120)]
    failed: Vec<u64>,
    /// Duplicates by the identity that matched, if there were any.
    same: BTreeMap<String, Vec<u64>>,
}

/// What one source received in the window.
#[derive(Serialize, ToSchema)]
struct SourceCountsView {
    source: String,
    deliveries: DeliveryCountsView,
    done: u64,
    dead: u64,
    /// Its last delivery, refused or not, that this node saw.
    #[schema(required)]
    last_at: Option<Timestamp>,
    /// Its deliveries at each point of the series.
    #[schema(max_items = 120)]
    series: Vec<u64>,
}

/// Runs that were not repeated.
#[derive(Serialize, ToSchema)]
struct AvoidedRunsView {
    /// Duplicates and stale deliveries of this node in the window.
    window: u64,
    /// Those of all events that are still stored; null: the store does not count them.
    #[schema(required)]
    kept: Option<u64>,
}

/// The store.
#[derive(Serialize, ToSchema)]
struct StoreView {
    kind: StoreWord,
    /// It responds.
    ok: bool,
    /// If not, why.
    #[schema(required)]
    why: Option<String>,
    /// Milliseconds that the count of events took.
    answered_in: f64,
    /// Milliseconds, of this node's claims since its start.
    #[schema(required)]
    claim_p50: Option<f64>,
    #[schema(required)]
    claim_p99: Option<f64>,
}

/// How far the store's clock is from this machine's, the time by which events expire, and the jump that expiry waits
/// for.
#[derive(Serialize, ToSchema)]
struct ClockView {
    /// Seconds by which the store's clock is ahead of this machine's; negative: behind.
    ahead: f64,
    /// The time by which events expire.
    expires_by: Timestamp,
    #[schema(required)]
    waiting: Option<ClockWaitingView>,
}

/// All events of the store by state, now.
#[derive(Serialize, ToSchema)]
struct EventCountsView {
    waiting: u64,
    running: u64,
    done: u64,
    dead: u64,
    /// The numbers are lower bounds: this store does not count further.
    capped: bool,
}

/// What this node's sweep has deleted since the node started, and how the last sweeps went.
#[derive(Serialize, ToSchema)]
struct SweepView {
    /// Events with their keys.
    events: u64,
    /// Bodies with receipts and output.
    bodies: u64,
    /// Sweeps that failed.
    failures: u64,
    /// When the last sweep finished. null: none has.
    #[schema(required)]
    finished_at: Option<Timestamp>,
    /// Milliseconds that it took.
    #[schema(required)]
    took_ms: Option<f64>,
    #[schema(required)]
    freed: Option<LastDeletingSweepView>,
    #[schema(required)]
    failed: Option<FailedSweepView>,
}

/// The last sweep that deleted something.
#[derive(Serialize, ToSchema)]
struct LastDeletingSweepView {
    at: Timestamp,
    /// Events with their keys.
    events: u64,
    /// Bodies with receipts and output.
    bodies: u64,
}

/// The last sweep that failed.
#[derive(Serialize, ToSchema)]
struct FailedSweepView {
    at: Timestamp,
    why: String,
}

params!(
    /// Which window.
    OverviewParams,
    [query("window", "The window of the counts.", word(&WINDOWS.map(|(name, ..)| name)).default(Some("1h".into())))]
);

/// Shows the state of the node and its store.
#[utoipa::path(
    get,
    path = "/api/overview",
    operation_id = "overview",
    params(OverviewParams),
    responses(
        (status = 200, description = "For one window of time.", body = OverviewView, example = json!({
            "window": "1h", "from": "2026-02-07T14:21:00.000000Z", "to": "2026-02-07T15:20:41.000000Z", "step": 60,
            "node": "4f6b3fa9c01e", "started_at": "2026-02-07T09:00:00.000000Z", "since": "2026-02-07T09:00:00.000000Z",
            "deliveries": {
                "accepted": 20, "duplicate": 171, "stale": 3, "ignored": 6, "refused": 1, "unavailable": 0,
            },
            "duplicates": { "delivery": 40, "change": 131 },
            "attempts": { "delivered": 19, "failed": 1, "rejected": 0, "unknown": 0 },
            "ended": { "done": 19, "dead": 1 },
            "series": {
                "at": ["2026-02-07T15:20:00.000000Z"], "accepted": [20], "duplicate": [171], "stale": [3],
                "ignored": [6], "refused": [1], "unavailable": [0], "done": [19], "dead": [1], "failed": [1],
                "same": { "delivery": [40], "change": [131] },
            },
            "sources": [{
                "source": "ghcr",
                "deliveries": {
                    "accepted": 20, "duplicate": 171, "stale": 3, "ignored": 6, "refused": 1, "unavailable": 0,
                },
                "done": 19, "dead": 1, "last_at": "2026-02-07T15:20:40.500000Z", "series": [201],
            }],
            "saved": { "window": 174, "kept": 174 },
            "store": {
                "kind": "sqlite", "ok": true, "why": null, "answered_in": 3.2, "claim_p50": 1.5, "claim_p99": 8.0,
            },
            "clock": { "ahead": 0.0, "expires_by": "2026-02-07T15:20:41.000000Z", "waiting": null },
            "events": { "waiting": 0, "running": 0, "done": 19, "dead": 1, "capped": false },
            "oldest_waiting": null,
            "orphaned": [{
                "source": "old", "events": 1200, "capped": false, "keep": "365d", "keep_body": "7d",
                "seen_at": "2026-02-01T09:00:00.000000Z",
            }],
            "budgets": [{
                "source": "agent", "route": "review", "runs": 20, "within": "1h", "per": "route", "exceeded": "wait",
                "used": 20, "next_at": "2026-02-07T15:42:10.000000Z", "waiting": 3,
            }],
            "sweep": {
                "events": 120, "bodies": 340, "failures": 0, "finished_at": "2026-02-07T15:20:00.000000Z",
                "took_ms": 3.5, "freed": { "at": "2026-02-07T15:20:00.000000Z", "events": 3, "bodies": 1 },
                "failed": null,
            },
        })),
        BadRequest
    )
)]
pub(super) async fn overview(
    State(state): State<AdminState>,
    mut params: QueryParams,
) -> Result<Json<OverviewView>, Response> {
    let window = params.word("window", &WINDOWS.map(|(name, ..)| name))?.unwrap_or("1h");
    params.finish()?;
    let (name, points, step) = WINDOWS.into_iter().find(|(name, ..)| *name == window).unwrap_or(WINDOWS[0]);
    let meter = &state.metrics;
    let now = state.store.now();
    meter.sample(now);
    let length = i64::try_from(step.as_micros()).unwrap_or(1);
    let end = Timestamp((now.0.div_euclid(length) + 1) * length);
    let from = Timestamp(end.0 - length * i64::try_from(points).unwrap_or(0));
    let sources = meter.sources();
    let all: Vec<_> = sources.iter().map(|source| source.counted(from, step, points)).collect();
    let (census, took) = state.counted.census(&*state.store, meter).await;
    let counts = WindowCounts { sources: &sources, all: &all };
    let [delivered, failed, rejected, unknown] =
        std::array::from_fn(|outcome| counts.sum(None, SourceCounter::Attempt(outcome)));
    let deliveries = counts.deliveries(None);
    let saved = AvoidedRunsView {
        window: deliveries.duplicate + deliveries.stale,
        kept: census.as_ref().ok().and_then(|census| census.duplicates),
    };
    let store = StoreView {
        kind: state.store_kind.into(),
        ok: census.is_ok(),
        why: census.as_ref().err().cloned(),
        answered_in: took.as_secs_f64() * 1000.0,
        claim_p50: meter.claim_latency_quantile(0.5),
        claim_p99: meter.claim_latency_quantile(0.99),
    };
    let census = census.ok();
    let oldest = census.as_ref().and_then(|census| census.oldest.as_ref());
    let orphaned = state.orphans.now(&state).await;
    let budgets = state.budgets.now(&state).await;
    Ok(Json(OverviewView {
        window: name.into(),
        from,
        to: now,
        step: step.as_secs(),
        node: state.dispatcher.node().to_string(),
        started_at: state.started_at,
        since: *state.since.lock().await,
        deliveries,
        duplicates: counts.duplicates(),
        attempts: AttemptCountsView { delivered, failed, rejected, unknown },
        ended: EndedCountsView {
            done: counts.sum(None, SourceCounter::Done),
            dead: counts.sum(None, SourceCounter::Dead),
        },
        series: counts.series(from, length, points),
        sources: counts.sources(),
        saved,
        store,
        clock: clock(&state).await,
        events: match &census {
            Some(c) => {
                EventCountsView { waiting: c.waiting, running: c.running, done: c.done, dead: c.dead, capped: c.capped }
            }
            None => EventCountsView { waiting: 0, running: 0, done: 0, dead: 0, capped: true },
        },
        oldest_waiting: oldest.map(view::event),
        orphaned: orphaned.iter().flat_map(|all| all.iter()).map(orphans::shown).collect(),
        budgets: budgets.to_vec(),
        sweep: swept(meter),
    }))
}

/// How far the store's clock is from this machine's, the time by which events expire, and the jump that expiry waits
/// on.
async fn clock(state: &AdminState) -> ClockView {
    let expiry = state.store.expiry();
    let mut waiting = expiry.waiting.as_ref().map(view::waiting);
    if let Some(waiting) = &mut waiting {
        let would = timeout(COUNT_TIME, state.dispatcher.would_forget()).await.ok().and_then(Result::ok);
        waiting.would_forget = Some(would);
    }
    ClockView { ahead: ClockSkew::of(&*state.store).seconds(), expires_by: expiry.time.0, waiting }
}

fn swept(meter: &Metrics) -> SweepView {
    let ((events, bodies, failures), last) = (meter.sweeps.totals(), meter.sweeps.last());
    SweepView {
        events,
        bodies,
        failures,
        finished_at: last.finished.map(|(at, _)| at),
        took_ms: last.finished.map(|(_, took)| took.as_secs_f64() * 1000.0),
        freed: last.freed.map(|(at, events, bodies)| LastDeletingSweepView { at, events, bodies }),
        failed: last.failed.map(|(at, why)| FailedSweepView { at, why }),
    }
}

/// The counts of a window: of each source, at each point, each counter.
struct WindowCounts<'a> {
    sources: &'a [Arc<SourceMetrics>],
    all: &'a [Vec<Vec<u64>>],
}

impl WindowCounts<'_> {
    fn sum(&self, source: Option<usize>, count: SourceCounter) -> u64 {
        let place = count.index();
        let chosen = self.all.iter().enumerate().filter(|(at, _)| source.is_none_or(|source| source == *at));
        chosen.flat_map(|(_, points)| points).filter_map(|counts| counts.get(place)).sum()
    }

    fn deliveries(&self, source: Option<usize>) -> DeliveryCountsView {
        let sum = |verdict| self.sum(source, SourceCounter::Delivery(verdict));
        DeliveryCountsView {
            accepted: sum(DeliveryVerdict::Accepted),
            duplicate: sum(DeliveryVerdict::Duplicate),
            stale: sum(DeliveryVerdict::Stale),
            ignored: sum(DeliveryVerdict::Ignored),
            refused: sum(DeliveryVerdict::Refused),
            unavailable: sum(DeliveryVerdict::Unavailable),
        }
    }

    fn duplicates(&self) -> Map<String, Value> {
        let mut all = Map::new();
        for (at, source) in self.sources.iter().enumerate() {
            for (same, word) in source.identities().into_iter().enumerate() {
                let more = self.sum(Some(at), SourceCounter::Same(same));
                let sum = all.get(&word).and_then(Value::as_u64).unwrap_or(0) + more;
                if sum > 0 {
                    all.insert(word, sum.into());
                }
            }
        }
        all
    }

    fn series(&self, from: Timestamp, length: i64, points: usize) -> SeriesView {
        let at = |point: usize| Timestamp(from.0 + length * i64::try_from(point).unwrap_or(0));
        let over = |counts: &[SourceCounter]| {
            let one = |point: usize| {
                let each = self.all.iter().filter_map(|points| points.get(point));
                each.map(|sums| counts.iter().filter_map(|count| sums.get(count.index())).sum::<u64>()).sum::<u64>()
            };
            (0..points).map(one).collect::<Vec<_>>()
        };
        let deliveries = |verdict| over(&[SourceCounter::Delivery(verdict)]);
        SeriesView {
            at: (0..points).map(at).collect(),
            accepted: deliveries(DeliveryVerdict::Accepted),
            duplicate: deliveries(DeliveryVerdict::Duplicate),
            stale: deliveries(DeliveryVerdict::Stale),
            ignored: deliveries(DeliveryVerdict::Ignored),
            refused: deliveries(DeliveryVerdict::Refused),
            unavailable: deliveries(DeliveryVerdict::Unavailable),
            done: over(&[SourceCounter::Done]),
            dead: over(&[SourceCounter::Dead]),
            failed: over(&[SourceCounter::Attempt(1), SourceCounter::Attempt(2), SourceCounter::Attempt(3)]),
            same: self.same(points),
        }
    }

    /// Duplicates over time, by the identity that matched.
    fn same(&self, points: usize) -> BTreeMap<String, Vec<u64>> {
        let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (source, counted) in self.sources.iter().zip(self.all) {
            for (same, word) in source.identities().into_iter().enumerate() {
                let place = SourceCounter::Same(same).index();
                let each = counted.iter().map(|counts| counts.get(place).copied().unwrap_or(0));
                let sums = all.entry(word).or_insert_with(|| vec![0; points]);
                sums.iter_mut().zip(each).for_each(|(sum, more)| *sum += more);
            }
        }
        all.retain(|_, sums| sums.iter().any(|sum| *sum > 0));
        all
    }

    /// Deliveries of one source over time, with any verdict.
    fn each(&self, source: usize) -> Vec<u64> {
        let all = |counts: &Vec<u64>| {
            DeliveryVerdict::ALL
                .iter()
                .filter_map(|verdict| counts.get(SourceCounter::Delivery(*verdict).index()))
                .sum()
        };
        self.all.get(source).map(|points| points.iter().map(all).collect()).unwrap_or_default()
    }

    fn sources(&self) -> Vec<SourceCountsView> {
        let named = self.sources.iter().enumerate().filter(|(_, source)| !source.name.is_empty());
        let one = |(at, source): (usize, &Arc<SourceMetrics>)| SourceCountsView {
            source: source.name.to_string(),
            deliveries: self.deliveries(Some(at)),
            done: self.sum(Some(at), SourceCounter::Done),
            dead: self.sum(Some(at), SourceCounter::Dead),
            last_at: source.last_at(),
            series: self.each(at),
        };
        named.map(one).collect()
    }
}
