//! `/metrics`: the node's metrics, encoded by `prometheus-client`. The names of all metrics are here.
//!
//! Counting is one addition in memory (`metrics.rs`); a request for `/metrics` reads the counters into a registry of
//! its own. Every sample has the label `node`, which is the same after a restart.

use super::delivery_log::DeliveryVerdict;
use super::histogram::HistogramSnapshot;
use super::metrics::{Metrics, OUTCOMES, PollCounter, RouteMetrics, SourceCounter, SourceMetrics, StoreOp};
use super::process_stats::ProcessStats;
use crate::decide::time::{Duration, Timestamp};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The format of a page of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MetricsFormat {
    /// Prometheus' text format.
    Text,
    /// `OpenMetrics`, for collectors that ask for it.
    OpenMetrics,
}

impl MetricsFormat {
    /// The best format that this `Accept` header allows.
    pub(crate) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Values that are read when `/metrics` is requested.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Gauges {
    /// Bytes of request bodies in flight.
    pub bodies_in_flight: usize,
    /// Waiting, running and dead events of the whole store; `None`: it does not respond.
    pub events: Option<[u64; 3]>,
    /// The same by source; `None`: the store counts by state only.
    pub events_by_source: Option<Vec<(Arc<str>, [u64; 3])>>,
    /// The age in seconds of the event that has waited longest; 0: none waits.
    pub oldest: Option<f64>,
    /// Seconds by which the store's clock is ahead of this machine's.
    pub clock_ahead: f64,
    /// How long expiry has been paused because the clock jumped, and how far it jumped.
    pub expiry_waits: Option<(Duration, Duration)>,
    /// Events of sources that no node has.
    pub orphaned: Option<u64>,
    /// Receivers whose circuit is open, by source and route.
    pub open_circuits: Vec<(Arc<str>, Arc<str>, u64)>,
    /// The attempts that count against the budget of each route, and how many it has, by source and route.
    pub budgets: Vec<(String, String, [u64; 2])>,
    /// Clients of the live streams.
    pub listeners: usize,
    /// Spans that could not be sent.
    pub spans_dropped: u64,
}

/// The metrics of budgets.
const BUDGETS: [(&str, &str); 2] = [
    ("budget_attempts_used", "Attempts of all nodes that count against a route's budget"),
    ("budget_attempts", "Attempts that a route's budget allows within its time"),
];

type Labels = Vec<(&'static str, String)>;

/// The samples of one metric.
#[derive(Debug)]
enum Samples {
    Counter(Vec<(Labels, u64)>),
    FloatCounter(Vec<(Labels, f64)>),
    Gauge(Vec<(Labels, f64)>),
    Histogram(Vec<(Labels, HistogramSnapshot)>),
}

impl EncodeMetric for Samples {
    fn encode(&self, mut encoder: MetricEncoder) -> std::fmt::Result {
        let exemplar = None::<&Exemplar<NoLabelSet, f64>>;
        match self {
            Self::Counter(all) => all.iter().try_for_each(|(labels, value)| {
                encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(value, exemplar)
            }),
            Self::FloatCounter(all) => all.iter().try_for_each(|(labels, value)| {
                encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(value, exemplar)
            }),
            Self::Gauge(all) => all.iter().try_for_each(|(labels, value)| {
                let mut encoder = encoder.encode_family(labels)?;
                match whole(*value) {
                    Some(value) => encoder.encode_gauge(&value),
                    None => encoder.encode_gauge(value),
                }
            }),
            Self::Histogram(all) => all.iter().try_for_each(|(labels, HistogramSnapshot { sum, count, buckets })| {
                encoder.encode_family(labels)?.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }),
        }
    }

    fn metric_type(&self) -> MetricType {
        match self {
            Self::Counter(_) | Self::FloatCounter(_) => MetricType::Counter,
            Self::Gauge(_) => MetricType::Gauge,
            Self::Histogram(_) => MetricType::Histogram,
        }
    }
}

/// A page with every metric of this node.
pub(crate) fn exposition(meter: &Metrics, (node, id): (&str, &str), gauges: &Gauges, format: MetricsFormat) -> String {
    let mut all = Registry::with_labels(std::iter::once(("node".into(), node.to_owned().into())));
    process(&mut all, &ProcessStats::read());
    let own = all.sub_registry_with_prefix("hookonce");
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("node_id", id.to_owned())];
    own.register(
        "build_info",
        "The version of the binary, and the id of this run",
        Samples::Gauge(vec![(version, 1.0)]),
    );
    deliveries(own, meter);
    events(own, meter, gauges);
    store(own, meter, gauges);
    sweeps(own, meter, gauges);
    let circuits = gauges.open_circuits.iter().map(|(source, route, open)| {
        (vec![("source", source.to_string()), ("route", route.to_string())], float(*open))
    });
    own.register("receivers_circuit_open", "Receivers that are left alone", Samples::Gauge(circuits.collect()));
    for (place, (name, help)) in BUDGETS.into_iter().enumerate() {
        let each = gauges.budgets.iter().map(|(source, route, numbers)| {
            (vec![("source", source.clone()), ("route", route.clone())], float(numbers[place]))
        });
        own.register(name, help, Samples::Gauge(each.collect()));
    }
    let refused = ["header", "login"].into_iter().zip(&meter.admin_refused);
    let refused = refused.map(|(way, count)| (vec![("way", way.to_owned())], load(count)));
    own.register("admin_auth_failures", "Wrong tokens at the admin port", Samples::Counter(refused.collect()));
    gauge(
        own,
        "request_bodies_bytes",
        "Request bodies that the node holds",
        Some(float(gauges.bodies_in_flight as u64)),
    );
    gauge(own, "live_clients", "Clients of /api/live and /api/tail", Some(float(gauges.listeners as u64)));
    counter(own, "spans_dropped", "Spans that could not be sent", gauges.spans_dropped);
    let mut page = String::new();
    text::encode(&mut page, &all).expect("a string takes everything");
    match format {
        MetricsFormat::OpenMetrics => page,
        MetricsFormat::Text => text_format(&page),
    }
}

fn deliveries(own: &mut Registry, meter: &Metrics) {
    let sources = meter.sources();
    let of = |source: &str, name, value: &str| vec![("source", source.to_owned()), (name, value.to_owned())];
    let verdicts = sources.iter().flat_map(|source| {
        let count = |verdict| source.count(SourceCounter::Delivery(verdict));
        DeliveryVerdict::ALL.map(|verdict| (of(&source.name, "verdict", verdict.word()), count(verdict)))
    });
    own.register("deliveries", "Deliveries by verdict", Samples::Counter(verdicts.collect()));
    let same = sources.iter().flat_map(|source| {
        let count = |at| source.count(SourceCounter::Same(at));
        source.identities().into_iter().enumerate().map(move |(at, same)| (of(&source.name, "same", &same), count(at)))
    });
    own.register("duplicates", "Duplicates by the identity that matched", Samples::Counter(same.collect()));
    let again = by_source(meter, |source| load(&source.published_again));
    own.register("events_republished", "Events published again because of a repeat", Samples::Counter(again));
    let asked = by_source(meter, |source| load(&source.asked_again));
    own.register("catch_up_asked", "Missed deliveries that the sender was asked for", Samples::Counter(asked));
    let ended = |source: &SourceMetrics| Timestamp(source.caught_up_at.load(Ordering::Relaxed)).since(Timestamp(0));
    let caught_up = by_source(meter, |source| ended(source).as_secs_f64());
    own.register(
        "last_catch_up_timestamp_seconds",
        "When a catch-up last ended on this node; 0: none has",
        Samples::Gauge(caught_up),
    );
    let conflicts = by_source(meter, |source| load(&source.conflicts));
    own.register("delivery_id_conflicts", "Delivery ids that came with another body", Samples::Counter(conflicts));
    let polls = sources.iter().filter_map(|source| Some((&source.name, source.polls()?)));
    let polls = polls.flat_map(|(source, counts)| {
        PollCounter::ALL.map(|result| (of(source, "result", result.word()), load(&counts[result as usize])))
    });
    own.register("polls", "Questions to a polled registry by result", Samples::Counter(polls.collect()));
    let secrets = sources.iter().flat_map(|source| {
        let used = source.secrets.iter().map(load).enumerate().filter(|(_, count)| *count > 0);
        used.map(|(at, count)| (of(&source.name, "secret", &at.to_string()), count))
    });
    own.register("secret_matches", "Verified deliveries by the secret's position", Samples::Counter(secrets.collect()));
    let ingest = by_source(meter, |source| source.ingest.seconds());
    own.register("ingest_duration_seconds", "From a request to its response", Samples::Histogram(ingest));
}

fn events(own: &mut Registry, meter: &Metrics, gauges: &Gauges) {
    let sources = meter.sources();
    let states = sources.iter().flat_map(|source| {
        let states = ["waiting", "running", "done", "dead"].into_iter().zip(source.state_counts());
        states.map(|(state, count)| (vec![("source", source.name.to_string()), ("state", state.to_owned())], count))
    });
    own.register("event_states", "Events that came to a state on this node", Samples::Counter(states.collect()));
    let route = |source: &str, route: &str| vec![("source", source.to_owned()), ("route", route.to_owned())];
    let attempts = sources.iter().flat_map(|source| {
        let routes = source.routes();
        let of_route = |of: &Arc<RouteMetrics>| {
            let counts = OUTCOMES.iter().zip(&of.outcomes).map(|(outcome, count)| {
                let mut labels = route(&source.name, &of.name);
                labels.push(("outcome", (*outcome).to_owned()));
                (labels, load(count))
            });
            counts.collect::<Vec<_>>()
        };
        routes.iter().flat_map(of_route).collect::<Vec<_>>()
    });
    own.register("attempts", "Attempts by outcome", Samples::Counter(attempts.collect()));
    let took = sources.iter().flat_map(|source| {
        let routes = source.routes();
        let took = routes.iter().map(|of| (route(&source.name, &of.name), of.took.seconds()));
        took.collect::<Vec<_>>()
    });
    own.register("attempt_duration_seconds", "How long attempts took", Samples::Histogram(took.collect()));
    let done = by_source(meter, |source| source.done.seconds());
    own.register("event_duration_seconds", "From a delivery to its event's end as done", Samples::Histogram(done));
    counter(own, "leases_lost", "Attempts whose event was changed elsewhere first", load(&meter.lost));
    counter(own, "leases_expired", "Expired leases that this node recorded", load(&meter.expired));
    own.register(
        "events",
        "Events of the whole store; absent while it does not respond",
        Samples::Gauge(events_in_store(sources.iter().map(|source| &*source.name), gauges)),
    );
    gauge(
        own,
        "oldest_waiting_event_seconds",
        "Age of the event that has waited longest; 0: none waits",
        gauges.oldest,
    );
    let orphaned = gauges.orphaned.map(float);
    gauge(
        own,
        "orphaned_events",
        "Events of sources that no node has; absent while the store does not respond",
        orphaned,
    );
}

/// The events of the store by source and state: the sources of the config, and those of all others as `other`. By state
/// only where the store does not count them by source.
fn events_in_store<'a>(config: impl Iterator<Item = &'a str>, gauges: &Gauges) -> Vec<(Labels, f64)> {
    const STATES: [&str; 3] = ["waiting", "running", "dead"];
    let Some(mut rest) = gauges.events else { return Vec::new() };
    let Some(by_source) = &gauges.events_by_source else {
        return STATES
            .into_iter()
            .zip(rest)
            .map(|(state, count)| (vec![("state", state.to_owned())], float(count)))
            .collect();
    };
    let mut counts: BTreeMap<&str, [u64; 3]> =
        config.filter(|source| !source.is_empty()).map(|source| (source, [0; 3])).collect();
    for (source, found) in by_source {
        if let Some(count) = counts.get_mut(&**source) {
            *count = *found;
            rest = std::array::from_fn(|state| rest[state].saturating_sub(found[state]));
        }
    }
    if rest != [0; 3] {
        let other = counts.entry("other").or_default();
        *other = std::array::from_fn(|state| other[state] + rest[state]);
    }
    let labels = |source: &str, state: &str| vec![("source", source.to_owned()), ("state", state.to_owned())];
    let samples = counts.iter().flat_map(|(source, counts)| {
        STATES.into_iter().zip(counts).map(move |(state, count)| (labels(source, state), float(*count)))
    });
    samples.collect()
}

fn store(own: &mut Registry, meter: &Metrics, gauges: &Gauges) {
    let batches = Samples::Histogram(vec![(Labels::new(), meter.batches.snapshot())]);
    own.register("claim_batch_size", "Claims made together", batches);
    let call = |call: StoreOp| vec![("call", call.word().to_owned())];
    let took = StoreOp::ALL.map(|op| (call(op), meter.calls[op as usize].seconds()));
    own.register("store_call_duration_seconds", "How long store calls took", Samples::Histogram(took.into()));
    let errors = StoreOp::ALL.map(|op| (call(op), load(&meter.errors[op as usize])));
    own.register("store_call_errors", "Store calls that failed", Samples::Counter(errors.into()));
    let ahead = "By how much the store's clock is ahead of this machine's; negative: behind";
    gauge(own, "store_clock_ahead_seconds", ahead, Some(gauges.clock_ahead));
}

fn sweeps(own: &mut Registry, meter: &Metrics, gauges: &Gauges) {
    let (events, bodies, failures) = meter.sweeps.totals();
    counter(own, "forgotten_events", "Events that this node's sweep deleted", events);
    counter(own, "forgotten_bodies", "Bodies that it deleted, with receipts and output", bodies);
    counter(own, "sweep_failures", "Sweeps that failed", failures);
    let last = meter.sweeps.last().finished.map_or(0, |(at, _)| at.0.div_euclid(1_000_000));
    let last = float(u64::try_from(last).unwrap_or_default());
    gauge(own, "last_sweep_timestamp_seconds", "When the last sweep finished; 0: none has", Some(last));
    let (paused, behind) = gauges.expiry_waits.unwrap_or_default();
    let help = "How long expiry has been paused because the clock jumped; 0: it is not";
    gauge(own, "expiry_paused_seconds", help, Some(paused.as_secs_f64()));
    let help = "How far the time used for expiry is behind the clock that jumped; 0: expiry is not paused";
    gauge(own, "expiry_behind_seconds", help, Some(behind.as_secs_f64()));
}

/// The standard metrics of a process, under their usual names.
fn process(all: &mut Registry, stats: &ProcessStats) {
    let cpu = stats.cpu.map(|cpu| cpu.as_secs_f64());
    let cpu = Samples::FloatCounter(cpu.into_iter().map(|cpu| (Labels::new(), cpu)).collect());
    all.register("process_cpu_seconds", "CPU time that the process has used", cpu);
    gauge(all, "process_resident_memory_bytes", "Resident memory", stats.resident_bytes.map(float));
    gauge(all, "process_virtual_memory_bytes", "Virtual memory", stats.virtual_bytes.map(float));
    gauge(all, "process_open_fds", "Open file descriptors", stats.open_files.map(float));
    gauge(all, "process_max_fds", "Limit of open file descriptors", stats.files_max.map(float));
    gauge(all, "process_threads", "Threads", stats.threads.map(float));
    gauge(all, "process_start_time_seconds", "When the process started, since the Unix epoch", stats.started);
}

fn by_source<V>(meter: &Metrics, value: impl Fn(&SourceMetrics) -> V) -> Vec<(Labels, V)> {
    meter.sources().iter().map(|source| (vec![("source", source.name.to_string())], value(source))).collect()
}

fn counter(to: &mut Registry, name: &str, help: &str, value: u64) {
    to.register(name, help, Samples::Counter(vec![(Labels::new(), value)]));
}

fn gauge(to: &mut Registry, name: &str, help: &str, value: Option<f64>) {
    to.register(name, help, Samples::Gauge(value.into_iter().map(|value| (Labels::new(), value)).collect()));
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[expect(clippy::cast_precision_loss, reason = "far below where that matters")]
fn float(count: u64) -> f64 {
    count as f64
}

/// The number as an integer, if it has no fraction.
#[expect(clippy::cast_possible_truncation, reason = "far below where that matters")]
fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64)
}

/// Converts `OpenMetrics` to Prometheus' text format, where the name of a counter ends in `_total` in its description,
/// too.
fn text_format(openmetrics: &str) -> String {
    let (mut page, mut help) = (String::with_capacity(openmetrics.len()), "");
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            write!(page, "# HELP {name}{total} {help}\n# TYPE {name}{total} {kind}\n").expect("a string takes it");
        } else if line != "# EOF" {
            page.push_str(line);
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_has_the_node_and_the_page_is_complete_in_both_formats() {
        let gauges = Gauges { events: Some([3, 2, 1]), ..Gauges::default() };
        let page = |format| exposition(&Metrics::default(), ("web \"1\"", "a1"), &gauges, format);
        let (text, open) = (page(MetricsFormat::Text), page(MetricsFormat::OpenMetrics));
        assert!(text.contains("# TYPE hookonce_leases_lost_total counter\n"), "{text}");
        assert!(text.contains("hookonce_events{node=\"web \\\"1\\\"\",state=\"waiting\"} 3\n"), "{text}");
        let bare = |line: &&str| !line.starts_with('#') && !line.contains("node=\"web \\\"1\\\"\"");
        assert_eq!(text.lines().find(bare), None);
        assert!(open.contains("# TYPE hookonce_leases_lost counter\n") && open.ends_with("# EOF\n"), "{open}");
        let samples = |page: &str| page.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples(&text), samples(&open));
    }

    #[test]
    fn events_of_sources_that_are_not_in_the_config_are_counted_as_other_and_none_is_left_out() {
        let by_source = |names: &[&str]| names.iter().map(|name| ((*name).into(), [2, 1, 1])).collect();
        let events = |config: &[&str], stored: Option<&[&str]>| {
            let events_by_source = stored.map(by_source);
            let gauges = Gauges { events: Some([6, 3, 5]), events_by_source, ..Gauges::default() };
            let samples = events_in_store(config.iter().copied().chain([""]), &gauges);
            samples
                .into_iter()
                .map(|(labels, count)| {
                    let labels: Vec<_> = labels.into_iter().map(|(_, value)| value).collect();
                    format!("{} {count}", labels.join(" "))
                })
                .collect::<Vec<_>>()
        };
        let of = |source: &str, counts: [u64; 3]| {
            let samples = ["waiting", "running", "dead"].into_iter().zip(counts);
            samples.map(|(state, count)| format!("{source} {state} {count}")).collect::<Vec<_>>()
        };
        let expected = [of("a", [2, 1, 1]), of("new", [0; 3]), of("other", [4, 2, 4])].concat();
        assert_eq!(events(&["a", "new"], Some(&["a", "gone", "gone too"])), expected);
        assert_eq!(events(&["other"], Some(&["gone"])), of("other", [6, 3, 5]));
        assert_eq!(events(&["a"], None), ["waiting 6", "running 3", "dead 5"]);
    }

    #[test]
    fn openmetrics_is_sent_only_on_request() {
        let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(MetricsFormat::accepted(accept), MetricsFormat::OpenMetrics);
        assert_eq!(MetricsFormat::accepted("*/*"), MetricsFormat::Text);
    }
}
