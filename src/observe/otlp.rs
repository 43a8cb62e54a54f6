//! Traces: receive, claim, attempt, as spans of one trace; W3C context in from the sender and out to who acts.
//!
//! Spans are sent in batches as OTLP/JSON over HTTP, by a task of their own. What does not fit is dropped and counted:
//! a collector that is slow or gone delays nobody. Without the feature `otel` a span is nothing.

#[cfg(not(feature = "otel"))]
pub(crate) use off::{TraceSpan, dropped};
#[cfg(feature = "otel")]
pub(crate) use on::{TraceSpan, dropped, flush, start};

/// Without the feature nothing is traced.
#[cfg(not(feature = "otel"))]
mod off {
    use crate::decide::trace_context::TraceContext;

    /// Nothing.
    #[derive(Debug)]
    pub struct TraceSpan;

    #[expect(clippy::unused_self, reason = "a span that is kept has the same methods")]
    impl TraceSpan {
        /// Nothing begins.
        pub fn begin(_: &'static str, _: Option<TraceContext>) -> Self {
            Self
        }

        /// Nobody is told.
        pub fn tell(&mut self, _: &'static str, _: &str) {}

        /// It went wrong, and nobody is told.
        pub fn failed(&mut self, _: &str) {}

        /// There is none.
        pub fn context(&self) -> Option<TraceContext> {
            None
        }
    }

    /// None.
    pub(crate) fn dropped() -> u64 {
        0
    }
}

#[cfg(feature = "otel")]
mod on {
    use crate::decide::limits;
    use crate::decide::time::Duration;
    use crate::decide::trace_context::TraceContext;
    use serde_json::{Value, json};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::sync::mpsc::{Receiver, Sender, channel};
    use tokio::sync::oneshot;

    /// Spans in one request.
    const BATCH: usize = 512;
    /// How long spans gather.
    const GATHER: Duration = Duration::from_millis(200);
    /// How long a collector may take.
    const SEND_TIME: Duration = Duration::from_secs(5);
    /// The longest value that is told.
    const VALUE_CHARS_MAX: usize = 400;

    enum SpanMessage {
        Span(Value),
        Flush(oneshot::Sender<()>),
    }

    static EXPORTER: OnceLock<Sender<SpanMessage>> = OnceLock::new();
    static DROPPED: AtomicU64 = AtomicU64::new(0);

    /// Starts sending spans to a collector, for the whole process: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` and the usual path. Says where to; `None`: nobody asked for it.
    pub(crate) fn start(env: &dyn Fn(&str) -> Option<String>, node: &str) -> Option<String> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let base = || set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| format!("{}/v1/traces", url.trim_end_matches('/')));
        let url = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(base)?;
        let service = set("OTEL_SERVICE_NAME").unwrap_or_else(|| "hookonce".into());
        let (to, from) = channel(limits::SPANS_WAITING_MAX);
        if EXPORTER.set(to).is_ok() {
            let resource = json!({ "attributes": [
                attribute("service.name", &service),
                attribute("service.instance.id", node),
                attribute("service.version", env!("CARGO_PKG_VERSION")),
            ] });
            tokio::spawn(export(url.clone(), resource, from));
        }
        Some(shown(&url))
    }

    /// Where it goes, without what is secret of it.
    fn shown(url: &str) -> String {
        let Ok(mut url) = reqwest::Url::parse(url) else { return "an address that cannot be read".into() };
        // An address that cannot have a name and a password has none to show.
        url.set_password(None).unwrap_or_default();
        url.set_username("").unwrap_or_default();
        url.to_string()
    }

    /// Waits until what was traced so far is sent, or given up.
    pub(crate) async fn flush() {
        let (done, wait) = oneshot::channel();
        if let Some(exporter) = EXPORTER.get()
            && exporter.send(SpanMessage::Flush(done)).await.is_ok()
        {
            wait.await.ok();
        }
    }

    /// Spans that were dropped.
    pub(crate) fn dropped() -> u64 {
        DROPPED.load(Ordering::Relaxed)
    }

    async fn export(url: String, resource: Value, mut from: Receiver<SpanMessage>) {
        let client = reqwest::Client::builder().timeout(SEND_TIME).no_proxy().build().unwrap_or_default();
        let mut messages = Vec::new();
        while from.recv_many(&mut messages, BATCH).await > 0 {
            let (mut spans, mut waiting) = (Vec::new(), Vec::new());
            for message in messages.drain(..) {
                match message {
                    SpanMessage::Span(span) => spans.push(span),
                    SpanMessage::Flush(done) => waiting.push(done),
                }
            }
            if !spans.is_empty() {
                let count = spans.len() as u64;
                let scope = json!({ "name": "hookonce" });
                let body = json!({ "resourceSpans": [
                    { "resource": resource, "scopeSpans": [{ "scope": scope, "spans": spans }] }
                ] });
                let sent = client.post(&url).header("content-type", "application/json").body(body.to_string());
                if !sent.send().await.is_ok_and(|answer| answer.status().is_success()) {
                    DROPPED.fetch_add(count, Ordering::Relaxed);
                }
            }
            if waiting.is_empty() {
                tokio::time::sleep(GATHER).await;
            }
            for done in waiting {
                done.send(()).unwrap_or_default();
            }
        }
    }

    fn attribute(name: &str, value: &str) -> Value {
        json!({ "key": name, "value": { "stringValue": value.chars().take(VALUE_CHARS_MAX).collect::<String>() } })
    }

    #[expect(clippy::disallowed_methods, reason = "a span tells people the wall's time; it decides nothing")]
    fn nanos() -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap_or_default().as_nanos().to_string()
    }

    /// Something that takes time. It ends when it is dropped.
    #[derive(Debug)]
    pub struct TraceSpan(Option<Box<OpenSpan>>);

    #[derive(Debug)]
    struct OpenSpan {
        name: &'static str,
        context: TraceContext,
        parent: Option<u64>,
        start: String,
        attributes: Vec<Value>,
        failed: Option<String>,
    }

    impl TraceSpan {
        /// Begins one, within this one if there is one. A sender that says it is not sampled is obeyed.
        pub fn begin(name: &'static str, parent: Option<TraceContext>) -> Self {
            if EXPORTER.get().is_none() || parent.is_some_and(|parent| !parent.is_recorded()) {
                return Self(None);
            }
            let mut random = [0; 24];
            aws_lc_rs::rand::fill(&mut random).expect("the system has random bytes");
            let trace = u128::from_be_bytes(random[..16].try_into().expect("sixteen bytes"));
            let span = u64::from_be_bytes(random[16..].try_into().expect("eight bytes"));
            let context = parent.map_or_else(|| TraceContext::begins(trace, span), |parent| parent.child(span));
            let (start, attributes, parent) = (nanos(), Vec::new(), parent.map(|parent| parent.span));
            Self(Some(Box::new(OpenSpan { name, context, parent, start, attributes, failed: None })))
        }

        /// Tells something about it.
        pub fn tell(&mut self, name: &'static str, value: &str) {
            if let Some(open) = &mut self.0 {
                open.attributes.push(attribute(&format!("hookonce.{name}"), value));
            }
        }

        /// It went wrong.
        pub fn failed(&mut self, why: &str) {
            if let Some(open) = &mut self.0 {
                open.failed = Some(why.chars().take(VALUE_CHARS_MAX).collect());
            }
        }

        /// What begins within it has this as its parent.
        pub fn context(&self) -> Option<TraceContext> {
            self.0.as_ref().map(|open| open.context)
        }
    }

    impl Drop for TraceSpan {
        fn drop(&mut self) {
            let (Some(open), Some(exporter)) = (self.0.take(), EXPORTER.get()) else { return };
            let TraceContext { trace, span, .. } = open.context;
            let kind = if open.name == "receive" { 2 } else { 1 }; // a server's, or internal
            let mut told = json!({
                "traceId": format!("{trace:032x}"),
                "spanId": format!("{span:016x}"),
                "name": open.name,
                "kind": kind,
                "startTimeUnixNano": open.start,
                "endTimeUnixNano": nanos(),
                "attributes": open.attributes,
            });
            if let Some(parent) = open.parent {
                told["parentSpanId"] = format!("{parent:016x}").into();
            }
            if let Some(why) = open.failed {
                told["status"] = json!({ "code": 2, "message": why });
            }
            if exporter.try_send(SpanMessage::Span(told)).is_err() {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
