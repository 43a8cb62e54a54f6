//! What is counted, as Prometheus reads it. The names of all metrics stand here, once.

use super::delivery_log::DeliveryVerdict;
use super::metrics::{Histogram, Metrics, OUTCOMES, SourceCounter, StoreOp};
use crate::decide::time::Duration;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

/// What only others know, when it is asked.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Gauges {
    /// Bytes of bodies in flight.
    pub bodies_in_flight: usize,
    /// Events that wait, if the store says so.
    pub waiting: Option<u64>,
    /// Events that run.
    pub running: Option<u64>,
    /// Events that are dead.
    pub dead: Option<u64>,
    /// Seconds since the one was received that waits longest; 0: none waits.
    pub oldest: Option<f64>,
    /// Seconds by which the store's clock is ahead of this machine's.
    pub clock_ahead: f64,
    /// How long expiry has waited for a jump of the clock, and how far the clock jumped.
    pub expiry_waits: Option<(Duration, Duration)>,
    /// Events of sources that no node has.
    pub orphaned: Option<u64>,
    /// Seconds since the node started.
    pub uptime: f64,
    /// Who looks on.
    pub listeners: usize,
    /// Spans that could not be sent.
    pub spans_dropped: u64,
}

/// All of it, in Prometheus' text format.
pub(crate) fn exposition(meter: &Metrics, node: &str, gauges: &Gauges) -> String {
    let mut page = ExpositionWriter::default();
    page.metric("build_info", "gauge", "Which binary this is.");
    page.line(&[("version", env!("CARGO_PKG_VERSION")), ("node", node)], 1);
    deliveries(&mut page, meter);
    attempts(&mut page, meter);
    page.one("leases_lost_total", "counter", "Attempts of this node that somebody else overtook.", load(&meter.lost));
    page.one("leases_expired_total", "counter", "Leases that ran out, written by this node.", load(&meter.expired));
    page.metric("batch_claims", "histogram", "Claims made together.");
    page.histogram("batch_claims", &[], &meter.batches, |bound| bound.to_string());
    page.metric("store_seconds", "histogram", "How long the store took, by what it was asked.");
    for call in StoreOp::ALL {
        let labels = [("call", call.word())];
        page.histogram("store_seconds", &labels, &meter.calls[call as usize], seconds);
    }
    page.metric("store_errors_total", "counter", "Questions that the store did not answer.");
    for call in StoreOp::ALL {
        page.line(&[("call", call.word())], load(&meter.errors[call as usize]));
    }
    page.one("bodies_in_flight_bytes", "gauge", "Bytes of bodies that the node holds.", gauges.bodies_in_flight);
    page.metric("events", "gauge", "Events of the whole store, by state; left out while the store does not answer.");
    for (state, count) in [("waiting", gauges.waiting), ("running", gauges.running), ("dead", gauges.dead)] {
        if let Some(count) = count {
            page.line(&[("state", state)], count);
        }
    }
    page.metric("oldest_waiting_seconds", "gauge", "The age of the event that waits longest; 0: none waits.");
    if let Some(oldest) = gauges.oldest {
        page.line(&[], oldest);
    }
    page.metric("admin_refused_total", "counter", "Wrong tokens at the admin port, by how they were shown.");
    for (way, count) in ["header", "login"].into_iter().zip(&meter.admin_refused) {
        page.line(&[("way", way)], load(count));
    }
    let ahead = "By how much the store's clock is ahead of this machine's; negative: behind.";
    page.one("clock_ahead_seconds", "gauge", ahead, gauges.clock_ahead);
    let (waits, jump) = gauges.expiry_waits.unwrap_or_default();
    let waited = "How long expiry has waited for the clock to stand after a jump; 0: it does not wait.";
    page.one("expiry_waiting_seconds", "gauge", waited, waits.as_secs_f64());
    let behind = "How far the time by which events expire is behind the clock that jumped; 0: it does not wait.";
    page.one("expiry_behind_seconds", "gauge", behind, jump.as_secs_f64());
    sweeps(&mut page, meter, gauges);
    page.one("listeners", "gauge", "Who follows what happens, at /api/live and /api/tail.", gauges.listeners);
    page.one("spans_dropped_total", "counter", "Spans that could not be sent.", gauges.spans_dropped);
    page.one("uptime_seconds", "gauge", "Since the node started.", gauges.uptime);
    page.text
}

fn deliveries(page: &mut ExpositionWriter, meter: &Metrics) {
    page.metric("deliveries_total", "counter", "Deliveries, by what came of them.");
    for source in &meter.sources {
        for verdict in DeliveryVerdict::ALL {
            let labels = [("source", &*source.name), ("verdict", verdict.word())];
            page.line(&labels, source.count(SourceCounter::Delivery(verdict)));
        }
    }
    page.metric("duplicates_total", "counter", "Duplicates, by the identity that matched.");
    for source in &meter.sources {
        for (at, same) in source.same.iter().enumerate() {
            page.line(&[("source", &source.name), ("same", same)], source.count(SourceCounter::Same(at)));
        }
    }
    page.metric("published_again_total", "counter", "Events published again because their delivery came again.");
    for source in &meter.sources {
        page.line(&[("source", &source.name)], load(&source.published_again));
    }
    page.metric("delivery_id_conflict_total", "counter", "Delivery ids that came with another body.");
    for source in &meter.sources {
        page.line(&[("source", &source.name)], load(&source.conflicts));
    }
    page.metric("secret_matched_total", "counter", "Deliveries believed, by the place of the secret in the config.");
    for source in &meter.sources {
        for (at, secret) in source.secrets.iter().enumerate().filter(|(_, secret)| load(secret) > 0) {
            page.line(&[("source", &source.name), ("secret", &at.to_string())], load(secret));
        }
    }
}

fn sweeps(page: &mut ExpositionWriter, meter: &Metrics, gauges: &Gauges) {
    let (events, bodies, failures) = meter.sweeps.totals();
    page.one("forgotten_events_total", "counter", "Events that the sweep of this node has freed.", events);
    page.one("forgotten_bodies_total", "counter", "Bodies that it has freed, with receipts and output.", bodies);
    page.one("sweep_failures_total", "counter", "Sweeps that the store did not let come to their end.", failures);
    page.metric("sweep_last_timestamp_seconds", "gauge", "When the last sweep came to its end; 0: none has.");
    page.line(&[], meter.sweeps.last().finished.map_or(0, |(at, _)| at.0.div_euclid(1_000_000)));
    page.metric(
        "orphaned_events",
        "gauge",
        "Events of sources that no node has; left out while the store does not answer.",
    );
    if let Some(orphaned) = gauges.orphaned {
        page.line(&[], orphaned);
    }
}

fn attempts(page: &mut ExpositionWriter, meter: &Metrics) {
    page.metric("events_ended_total", "counter", "Events that came to their end on this node.");
    for source in &meter.sources {
        for (state, count) in [("done", SourceCounter::Done), ("dead", SourceCounter::Dead)] {
            page.line(&[("source", &source.name), ("state", state)], source.count(count));
        }
    }
    page.metric("attempts_total", "counter", "Attempts, by outcome.");
    for source in &meter.sources {
        for (route, outcomes) in &source.routes {
            for (outcome, count) in OUTCOMES.iter().zip(outcomes) {
                page.line(&[("source", &source.name), ("route", route), ("outcome", outcome)], load(count));
            }
        }
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

fn seconds(micros: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a bound of our own, far below where that matters")]
    let seconds = micros as f64 / 1e6;
    seconds.to_string()
}

#[derive(Default)]
struct ExpositionWriter {
    text: String,
    name: &'static str,
}

impl ExpositionWriter {
    fn metric(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP hookonce_{name} {help}\n# TYPE hookonce_{name} {kind}\n");
    }

    fn one(&mut self, name: &'static str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.line(&[], value);
    }

    fn line(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let name = self.name;
        self.named(name, labels, value);
    }

    fn named(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "hookonce_{name}{labels} {value}");
    }

    fn histogram<const N: usize>(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        histogram: &Histogram<N>,
        shown: impl Fn(u64) -> String,
    ) {
        let (each, all, sum) = histogram.read();
        for (bound, below) in histogram.bounds.iter().zip(&each) {
            self.named(&format!("{name}_bucket"), &[labels, &[("le", &shown(*bound))]].concat(), below);
        }
        self.named(&format!("{name}_bucket"), &[labels, &[("le", "+Inf")]].concat(), all);
        self.named(&format!("{name}_sum"), labels, shown(sum));
        self.named(&format!("{name}_count"), labels, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_break_a_line_is_escaped() {
        let mut page = ExpositionWriter::default();
        page.metric("x", "gauge", "X.");
        page.line(&[("source", "a\"b\\c\nd")], 1);
        assert_eq!(
            page.text,
            "# HELP hookonce_x X.\n# TYPE hookonce_x gauge\nhookonce_x{source=\"a\\\"b\\\\c\\nd\"} 1\n"
        );
    }
}
