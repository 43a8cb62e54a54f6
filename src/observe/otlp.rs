//! Traces for a collector. With the feature `otel`, and if the environment names a collector, `tracing-opentelemetry`
//! turns `tracing` spans into OpenTelemetry spans, which a separate thread sends in batches as OTLP over HTTP. Spans that
//! do not fit into the queue are dropped and counted, so that a slow or unreachable collector delays nothing.

#[cfg(not(feature = "otel"))]
pub(crate) use off::{dropped, layer};
#[cfg(feature = "otel")]
pub(crate) use on::{dropped, flush, layer, start};
#[cfg(feature = "otel")]
pub(super) use on::{ids, set_parent};

#[cfg(not(feature = "otel"))]
mod off {
    /// No layer: spans are not recorded.
    pub(crate) fn layer() -> Option<tracing_subscriber::layer::Identity> {
        None
    }

    /// How many spans were dropped.
    pub(crate) fn dropped() -> u64 {
        0
    }
}

#[cfg(feature = "otel")]
mod on {
    use crate::decide::limits::SPANS_WAITING_MAX;
    use crate::decide::time::Duration;
    use crate::decide::trace_context::TraceContext;
    use opentelemetry::trace::{
        SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
    };
    use opentelemetry::{Context, KeyValue};
    use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{
        BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter,
        SpanProcessor,
    };
    use reqwest::Url;
    use reqwest::header::AUTHORIZATION;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use tracing::Subscriber;
    use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
    use tracing_subscriber::registry::LookupSpan;

    /// Spans per request.
    const BATCH: usize = 512;
    /// How long spans are collected.
    const GATHER: Duration = Duration::from_millis(200);
    /// Timeout of the collector.
    const SEND_TIME: Duration = Duration::from_secs(5);

    static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    static DROPPED: AtomicU64 = AtomicU64::new(0);

    /// Sends spans to the collector that the environment names, once [`layer`] is part of the subscriber:
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or `OTEL_EXPORTER_OTLP_ENDPOINT` and the usual path. Returns the address
    /// without its password; `None` if the environment names none.
    pub(crate) fn start(env: &dyn Fn(&str) -> Option<String>, node: &str) -> Option<Result<String, String>> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let base = || set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| format!("{}/v1/traces", url.trim_end_matches('/')));
        let url = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(base)?;
        let Some(collector) = Collector::parse(&url) else {
            return Some(Err("cannot send traces: OTEL_EXPORTER_OTLP_ENDPOINT is not a URL such as \
                             http://localhost:4318"
                .into()));
        };
        let Some(exporter) = collector.exporter() else {
            return Some(Err(format!("cannot send traces to {}: no client could be made for it", collector.shown())));
        };
        let exporter = CountingExporter(exporter);
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(SPANS_WAITING_MAX + BATCH)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(GATHER)
            .build();
        let batches = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
        let resource = Resource::builder()
            .with_service_name(set("OTEL_SERVICE_NAME").unwrap_or_else(|| "hookonce".into()))
            .with_attribute(KeyValue::new("service.instance.id", node.to_owned()))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider =
            SdkTracerProvider::builder().with_span_processor(BoundedProcessor(batches)).with_resource(resource).build();
        // Only the first provider counts: there is one subscriber.
        PROVIDER.set(provider).unwrap_or_default();
        Some(Ok(collector.shown()))
    }

    /// The address of a collector. It may hold a user name, a password, and a key in its query.
    struct Collector(Url);

    impl Collector {
        fn parse(text: &str) -> Option<Self> {
            Url::parse(text).ok().filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https")).map(Self)
        }

        /// The address for the log.
        fn shown(&self) -> String {
            let mut url = self.bare();
            url.set_query(None);
            url.to_string()
        }

        /// The address without user name and password.
        fn bare(&self) -> Url {
            let mut url = self.0.clone();
            url.set_password(None).and_then(|()| url.set_username("")).expect("a URL with a host can have credentials");
            url
        }

        /// An exporter whose client uses no proxy, as none of our clients does.
        fn exporter(&self) -> Option<opentelemetry_otlp::SpanExporter> {
            let make = || reqwest::blocking::Client::builder().no_proxy().timeout(SEND_TIME).build();
            // A blocking client cannot be made on a thread of the async runtime.
            let client = std::thread::scope(|scope| scope.spawn(make).join()).ok()?.ok()?;
            // The exporter does not use the credentials of a URL; a request that the client builds has them as a header.
            let probe = client.post(self.0.clone()).build().ok()?;
            let credentials = probe.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
            let headers = credentials.map(|value| (AUTHORIZATION.to_string(), value.to_owned()));
            opentelemetry_otlp::SpanExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_endpoint(self.bare())
                .with_headers(headers.into_iter().collect())
                .with_protocol(Protocol::HttpBinary)
                .with_timeout(SEND_TIME)
                .build()
                .ok()
        }
    }

    /// The layer that records spans, if [`start`] found a collector.
    pub(crate) fn layer<S>() -> Option<OpenTelemetryLayer<S, SdkTracer>>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let tracer = PROVIDER.get()?.tracer("hookonce");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        Some(layer.with_location(false).with_threads(false).with_tracked_inactivity(false).with_target(false))
    }

    /// Waits until the ended spans are sent, or dropped.
    pub(crate) fn flush() {
        if let Some(provider) = PROVIDER.get() {
            // Spans that could not be sent are counted.
            provider.force_flush().unwrap_or_default();
        }
    }

    /// How many spans were dropped.
    pub(crate) fn dropped() -> u64 {
        DROPPED.load(Ordering::Relaxed)
    }

    /// Makes a new span part of the sender's trace.
    pub(in crate::observe) fn set_parent(span: &tracing::Span, parent: TraceContext) {
        let flags = if parent.is_recorded() { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
        let trace = TraceId::from_bytes(parent.trace.to_be_bytes());
        let remote = SpanId::from_bytes(parent.span.to_be_bytes());
        let context = SpanContext::new(trace, remote, flags, true, TraceState::default());
        // A span that is not recorded has no parent, either.
        span.set_parent(Context::new().with_remote_span_context(context)).unwrap_or_default();
    }

    /// The trace and the span, if it is recorded.
    pub(in crate::observe) fn ids(span: &tracing::Span) -> Option<(u128, u64)> {
        let context = span.context();
        let context = context.span().span_context().clone();
        let (trace, span) = (context.trace_id().to_bytes(), context.span_id().to_bytes());
        context.is_sampled().then(|| (u128::from_be_bytes(trace), u64::from_be_bytes(span)))
    }

    /// A processor that counts the spans it drops because the queue is full.
    #[derive(Debug)]
    struct BoundedProcessor(BatchSpanProcessor);

    impl SpanProcessor for BoundedProcessor {
        fn on_start(&self, span: &mut Span, context: &Context) {
            self.0.on_start(span, context);
        }

        fn on_end(&self, span: SpanData) {
            if WAITING.fetch_add(1, Ordering::Relaxed) < SPANS_WAITING_MAX {
                self.0.on_end(span);
            } else {
                WAITING.fetch_sub(1, Ordering::Relaxed);
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn force_flush(&self) -> OTelSdkResult {
            self.0.force_flush()
        }

        fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
            self.0.shutdown_with_timeout(timeout)
        }

        fn set_resource(&mut self, resource: &Resource) {
            self.0.set_resource(resource);
        }
    }

    /// An exporter that counts the spans it could not send.
    #[derive(Debug)]
    struct CountingExporter(opentelemetry_otlp::SpanExporter);

    impl SpanExporter for CountingExporter {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let count = batch.len();
            let sent = self.0.export(batch).await;
            WAITING.fetch_sub(count, Ordering::Relaxed);
            if sent.is_err() {
                DROPPED.fetch_add(count as u64, Ordering::Relaxed);
            }
            sent
        }

        fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
            self.0.shutdown_with_timeout(timeout)
        }

        fn force_flush(&self) -> OTelSdkResult {
            self.0.force_flush()
        }

        fn set_resource(&mut self, resource: &Resource) {
            self.0.set_resource(resource);
        }
    }
}
