//! How things are, at a glance. What this node counted over time is in its memory; what the store holds is counted by
//! the store, at most once a second however many look.

use super::query::QueryParams;
use super::{AdminState, orphans, view};
use crate::decide::event::EventState;
use crate::decide::time::{Duration, Timestamp};
use crate::observe::delivery_log::DeliveryVerdict;
use crate::observe::metrics::{Metrics, OUTCOMES, SourceCounter, StoreOp};
use crate::store::clock_monitor::ClockSkew;
use crate::store::{EventCounts, EventQuery, Inspect, StoreError};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// How long a count of the store's events stands.
const COUNT_STANDS: Duration = Duration::from_secs(1);
/// How long the store may take to count.
const COUNT_TIME: Duration = Duration::from_secs(2);
/// Events read back from the store at the start, for the series.
const READ_BACK_MAX: usize = 20_000;
/// As far back as that.
const READ_BACK: Duration = Duration::from_hours(24);
/// How long it may take.
const READ_BACK_TIME: Duration = Duration::from_secs(10);
/// Read at once.
const READ_BACK_PAGE: usize = 500;

/// The windows: their names, how many points they have, and how long each is.
const WINDOWS: [(&str, usize, Duration); 3] =
    [("1h", 60, Duration::from_mins(1)), ("24h", 96, Duration::from_mins(15)), ("7d", 84, Duration::from_hours(2))];

/// The last count of the store's events.
#[derive(Default)]
pub(crate) struct EventCountCache(Mutex<Option<(Instant, TimedEventCounts)>>);

/// A count, or why there is none, and how long it took.
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
            Err(_) => Err("the store took too long".to_owned()),
        };
        let took = asked.elapsed();
        meter.store_call(StoreOp::Look, took, census.is_ok());
        *last = Some((Instant::now(), (census.clone(), took)));
        (census, took)
    }
}

/// Looks every second at what was counted, and first reads back what the store knows of the last day: events that were
/// made and that ended. Deliveries that made none are known to nobody after a restart.
pub(crate) async fn record_series(desk: AdminState) {
    let read = timeout(READ_BACK_TIME, restore_series(&desk)).await;
    if let Ok(Ok(since)) = read {
        *desk.since.lock().await = since;
    }
    loop {
        desk.dispatcher.meter().sample(desk.store.now());
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = desk.health.draining.cancelled() => return,
        }
    }
}

async fn restore_series(desk: &AdminState) -> Result<Timestamp, StoreError> {
    let (meter, start) = (desk.dispatcher.meter(), *desk.since.lock().await);
    let from = start - READ_BACK;
    let mut listing =
        EventQuery { since: Some(from), until: Some(start), limit: READ_BACK_PAGE, ..EventQuery::default() };
    let (mut read, mut back_to) = (0, start);
    loop {
        let page = desk.store.page(listing.clone()).await?;
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

/// The overview.
pub(super) async fn overview(State(desk): State<AdminState>, mut asked: QueryParams) -> Result<Response, Response> {
    let window = asked.word("window", &WINDOWS.map(|(name, ..)| name))?.unwrap_or("1h");
    asked.finish()?;
    let (name, points, step) = WINDOWS.into_iter().find(|(name, ..)| *name == window).unwrap_or(WINDOWS[0]);
    let meter = desk.dispatcher.meter();
    let now = desk.store.now();
    meter.sample(now);
    let length = i64::try_from(step.as_micros()).unwrap_or(1);
    let end = Timestamp((now.0.div_euclid(length) + 1) * length);
    let from = Timestamp(end.0 - length * i64::try_from(points).unwrap_or(0));
    let all: Vec<_> = (0..meter.sources.len()).map(|at| meter.counted(at, from, step, points)).collect();
    let (census, took) = desk.counted.census(&*desk.store, meter).await;
    let counts = WindowCounts { meter, all: &all };
    let mut told = json!({
        "window": name,
        "from": from,
        "to": now,
        "step": step.as_secs(),
        "node": desk.dispatcher.node().to_string(),
        "started_at": desk.started_at,
        "since": *desk.since.lock().await,
        "deliveries": counts.deliveries(None),
        "duplicates": counts.duplicates(),
        "attempts": OUTCOMES.iter().enumerate()
            .map(|(at, word)| ((*word).to_owned(), json!(counts.sum(None, SourceCounter::Attempt(at)))))
            .collect::<Map<_, _>>(),
        "ended": { "done": counts.sum(None, SourceCounter::Done), "dead": counts.sum(None, SourceCounter::Dead) },
        "series": counts.series(from, length, points),
        "sources": counts.sources(),
        "saved": {
            "window": counts.sum(None, SourceCounter::Delivery(DeliveryVerdict::Duplicate)) + counts.sum(None, SourceCounter::Delivery(DeliveryVerdict::Stale)),
            "kept": census.as_ref().ok().and_then(|census| census.duplicates),
        },
    });
    told["store"] = json!({
        "kind": desk.store_kind,
        "ok": census.is_ok(),
        "why": census.as_ref().err(),
        "answered_in": took.as_secs_f64() * 1000.0,
        "claim_p50": meter.claim_latency_quantile(0.5),
        "claim_p99": meter.claim_latency_quantile(0.99),
    });
    told["clock"] = clock(&desk).await;
    let census = census.ok();
    told["events"] = match &census {
        Some(c) => {
            json!({ "waiting": c.waiting, "running": c.running, "done": c.done, "dead": c.dead, "capped": c.capped })
        }
        None => json!({ "waiting": 0, "running": 0, "done": 0, "dead": 0, "capped": true }),
    };
    told["oldest_waiting"] = json!(census.as_ref().and_then(|census| census.oldest.as_ref()).map(view::event));
    let orphaned = desk.orphans.now(&desk).await;
    told["orphaned"] = orphaned.iter().flat_map(|all| all.iter()).map(orphans::shown).collect();
    told["sweep"] = swept(meter);
    Ok(Json(told).into_response())
}

/// How far the store's clock is from this machine's, the time by which events expire, and what that waits for.
async fn clock(desk: &AdminState) -> Value {
    let expiry = desk.store.expiry();
    let mut told =
        json!({ "ahead": ClockSkew::of(&*desk.store).seconds(), "expires_by": expiry.time.0, "waiting": null });
    if let Some(waiting) = &expiry.waiting {
        let would = timeout(COUNT_TIME, desk.dispatcher.would_forget()).await.ok().and_then(Result::ok);
        told["waiting"] = view::waiting(waiting);
        told["waiting"]["would_forget"] = json!(would);
    }
    told
}

/// What the sweep of this node has freed, when, and what failed.
fn swept(meter: &Metrics) -> Value {
    let ((events, bodies, failures), last) = (meter.sweeps.totals(), meter.sweeps.last());
    json!({
        "events": events,
        "bodies": bodies,
        "failures": failures,
        "finished_at": last.finished.map(|(at, _)| at),
        "took_ms": last.finished.map(|(_, took)| took.as_secs_f64() * 1000.0),
        "freed": last.freed.map(|(at, events, bodies)| json!({ "at": at, "events": events, "bodies": bodies })),
        "failed": last.failed.map(|(at, why)| json!({ "at": at, "why": why })),
    })
}

/// What was counted in a window: of each source, of each point, each count.
struct WindowCounts<'a> {
    meter: &'a Metrics,
    all: &'a [Vec<Vec<u64>>],
}

impl WindowCounts<'_> {
    fn sum(&self, source: Option<usize>, count: SourceCounter) -> u64 {
        let place = count.index();
        let chosen = self.all.iter().enumerate().filter(|(at, _)| source.is_none_or(|source| source == *at));
        chosen.flat_map(|(_, points)| points).filter_map(|counts| counts.get(place)).sum()
    }

    fn deliveries(&self, source: Option<usize>) -> Map<String, Value> {
        let one = |verdict: DeliveryVerdict| {
            (verdict.word().to_owned(), self.sum(source, SourceCounter::Delivery(verdict)).into())
        };
        DeliveryVerdict::ALL.map(one).into_iter().collect()
    }

    fn duplicates(&self) -> Map<String, Value> {
        let mut all = Map::new();
        for (at, source) in self.meter.sources.iter().enumerate() {
            for (same, word) in source.same.iter().enumerate() {
                let more = self.sum(Some(at), SourceCounter::Same(same));
                let sum = all.get(word).and_then(Value::as_u64).unwrap_or(0) + more;
                if sum > 0 {
                    all.insert(word.clone(), sum.into());
                }
            }
        }
        all
    }

    fn series(&self, from: Timestamp, length: i64, points: usize) -> Value {
        let at = |point: usize| Timestamp(from.0 + length * i64::try_from(point).unwrap_or(0));
        let mut series = json!({ "at": (0..points).map(at).collect::<Vec<_>>() });
        let over = |counts: &[SourceCounter]| {
            let one = |point: usize| {
                let each = self.all.iter().filter_map(|points| points.get(point));
                each.map(|sums| counts.iter().filter_map(|count| sums.get(count.index())).sum::<u64>()).sum::<u64>()
            };
            (0..points).map(one).collect::<Vec<_>>()
        };
        for verdict in DeliveryVerdict::ALL {
            series[verdict.word()] = json!(over(&[SourceCounter::Delivery(verdict)]));
        }
        series["done"] = json!(over(&[SourceCounter::Done]));
        series["dead"] = json!(over(&[SourceCounter::Dead]));
        series["failed"] =
            json!(over(&[SourceCounter::Attempt(1), SourceCounter::Attempt(2), SourceCounter::Attempt(3)]));
        series["same"] = self.same(points).into();
        series
    }

    /// Duplicates over time, by the identity that matched.
    fn same(&self, points: usize) -> Map<String, Value> {
        let mut all: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (source, counted) in self.meter.sources.iter().zip(self.all) {
            for (same, word) in source.same.iter().enumerate() {
                let place = SourceCounter::Same(same).index();
                let each = counted.iter().map(|counts| counts.get(place).copied().unwrap_or(0));
                let sums = all.entry(word).or_insert_with(|| vec![0; points]);
                sums.iter_mut().zip(each).for_each(|(sum, more)| *sum += more);
            }
        }
        all.retain(|_, sums| sums.iter().any(|sum| *sum > 0));
        all.into_iter().map(|(word, sums)| (word.to_owned(), json!(sums))).collect()
    }

    /// Deliveries of one source over time, whatever came of them.
    fn each(&self, source: usize) -> Vec<u64> {
        let all = |counts: &Vec<u64>| {
            DeliveryVerdict::ALL
                .iter()
                .filter_map(|verdict| counts.get(SourceCounter::Delivery(*verdict).index()))
                .sum()
        };
        self.all.get(source).map(|points| points.iter().map(all).collect()).unwrap_or_default()
    }

    fn sources(&self) -> Vec<Value> {
        let named = self.meter.sources.iter().enumerate().filter(|(_, source)| !source.name.is_empty());
        let one = |(at, source): (usize, &crate::observe::metrics::SourceMetrics)| {
            json!({
                "source": &*source.name,
                "deliveries": self.deliveries(Some(at)),
                "done": self.sum(Some(at), SourceCounter::Done),
                "dead": self.sum(Some(at), SourceCounter::Dead),
                "last_at": source.last_at(),
                "series": self.each(at),
            })
        };
        named.map(one).collect()
    }
}
