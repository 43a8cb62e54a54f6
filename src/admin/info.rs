//! `/api/sources`, `/api/explain` and `/metrics`: the config, the dry run of a delivery, and the counters.

use super::openapi::{BadRequest, BodyGone, Conflict, StoreDown, TooLarge, UnknownEvent};
use super::overview::EventCountCache;
use super::{AdminState, auth, refuse, unavailable_response};
use crate::config::source_view::SourceView;
use crate::config::{Config, once_view};
use crate::decide::limits;
use crate::decide::source::Source;
use crate::explain::prediction::ExplainHistory;
use crate::explain::report_json::ExplainedDelivery;
use crate::explain::saved_delivery::{SavedDelivery, deliveries};
use crate::explain::{self, ExplainError, ExplainErrorKind};
use crate::ingress::request_body::{BodyLimits, read};
use crate::observe;
use crate::observe::exposition::{Gauges, MetricsFormat, exposition};
use crate::observe::otlp;
use crate::store::clock_monitor::ClockSkew;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use utoipa::ToSchema;

/// Maximum size of a request to explain a delivery: its body in base64, and as much again for escapes.
const EXPLAIN_BYTES_MAX: usize = 2 * limits::BODY_BYTES_MAX;

/// The sources of a node.
#[derive(Serialize, ToSchema)]
pub(super) struct SourceList {
    /// The node that answers.
    node: String,
    /// Where events are stored, without a password.
    store: String,
    sources: Vec<ConfiguredSource>,
    warnings: Vec<String>,
}

/// A source of a node.
#[derive(Serialize, ToSchema)]
struct ConfiguredSource {
    #[serde(flatten)]
    source: SourceView,
    /// Where it listens on this node; null on a node that only acts, and for a source that reads a stream or polls.
    #[schema(required)]
    url: Option<String>,
    /// What makes two deliveries the same event, as sentences.
    identities_in_words: Vec<String>,
}

/// The sources of a node; computed once, because the config is read once.
pub(super) fn sources(config: &Config, node: &str, ingest: Option<SocketAddr>) -> SourceList {
    let one = |source: &Source| ConfiguredSource {
        source: crate::config::source_view::view(config, source),
        url: ingest.filter(|_| source.intake.listens()).map(|at| format!("http://{at}{}", source.path)),
        identities_in_words: once_view::identities(source).into_iter().map(|(_, words)| words).collect(),
    };
    SourceList {
        node: node.to_owned(),
        store: config.store.to_string(),
        sources: config.sources.iter().map(|source| one(source)).collect(),
        warnings: config.warnings.iter().map(|warning| warning.title.clone()).collect(),
    }
}

/// Shows sources and routes, as resolved from the config.
#[utoipa::path(
    get,
    path = "/api/sources",
    operation_id = "sources",
    responses((status = 200, description = "Never a secret.", body = SourceList))
)]
pub(super) async fn configured(State(state): State<AdminState>) -> Response {
    Json(&*state.shown).into_response()
}

/// A delivery to explain: raw, event, or its parts.
#[derive(Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields, default)]
struct ExplainRequest {
    /// A whole delivery as one text: an HTTP request, a list of headers and a body, or a JSON document with both.
    raw: Option<String>,
    /// An event whose delivery is to be evaluated again.
    event: Option<String>,
    /// The source it is for; otherwise the one with its path, or the only one.
    source: Option<String>,
    path: Option<String>,
    query: Option<String>,
    headers: BTreeMap<String, String>,
    /// As text.
    body: Option<String>,
    /// As base64, instead of body.
    body_base64: Option<String>,
}

/// What would happen to each delivery.
#[derive(Serialize, ToSchema)]
pub(super) struct ExplainedList {
    deliveries: Vec<ExplainedText>,
}

/// What would happen to a delivery.
#[derive(Serialize, ToSchema)]
struct ExplainedText {
    #[serde(flatten)]
    explained: ExplainedDelivery,
    /// The same line by line, as `hookonce explain` prints it.
    text: String,
}

impl ExplainRequest {
    /// The deliveries in it; for an event see [`explain::rebuild_delivery`].
    fn deliveries(self) -> Result<Vec<SavedDelivery>, String> {
        let parts = self.path.is_some() || self.query.is_some() || !self.headers.is_empty();
        let body = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => return Err("body and body_base64 are both given; send only one of them".into()),
            (body, None) => body.map(String::into_bytes),
            (None, Some(coded)) => {
                let read = base64::engine::general_purpose::STANDARD.decode(coded);
                Some(read.map_err(|_| "body_base64 is not base64".to_owned())?)
            }
        };
        match (self.raw, body) {
            (Some(_), Some(_)) => Err("raw is a whole delivery; leave out body".into()),
            (Some(_), None) if parts => Err("raw is a whole delivery; leave out path, query and headers".into()),
            (Some(raw), None) if raw.trim().is_empty() => Err("raw is empty".into()),
            (Some(raw), None) => deliveries("pasted", raw.into_bytes()),
            (None, None) => Err("there is nothing to explain: send raw, event, or a body".into()),
            (None, Some(body)) => {
                let header = |(name, value): (String, String)| (name.to_ascii_lowercase(), value.into_bytes());
                Ok(vec![SavedDelivery {
                    from: "pasted".into(),
                    method: None,
                    path: self.path,
                    query: self.query.unwrap_or_default(),
                    headers: self.headers.into_iter().map(header).collect(),
                    body: body.into(),
                    source: None,
                    notes: Vec::new(),
                }])
            }
        }
    }
}

/// Evaluates a delivery step by step, and shows what would happen to it. Nothing is verified and nothing is written.
#[utoipa::path(
    post,
    path = "/api/explain",
    operation_id = "explain",
    request_body(content = ExplainRequest, example = json!({
        "source": "ghcr", "headers": { "x-github-event": "registry_package", "content-type": "application/json" },
        "body": "{}",
    })),
    responses(
        (status = 200, description = "Each delivery in the request.", body = ExplainedList),
        BadRequest, UnknownEvent, Conflict, BodyGone, TooLarge, StoreDown
    )
)]
pub(super) async fn explain(State(state): State<AdminState>, body: Body) -> Result<Json<ExplainedList>, Response> {
    let limits = BodyLimits { bytes: EXPLAIN_BYTES_MAX, ..BodyLimits::default() };
    let bytes = read(body, limits, &state.flight).await.map_err(auth::no_body)?;
    let request: ExplainRequest = serde_json::from_slice(&bytes)
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, &format!("this is not a delivery to explain: {error}")))?;
    let known = ExplainHistory::Store(state.store.clone(), "this node's store".into());
    let source = request.source.clone();
    let all = match &request.event {
        Some(_) if request.raw.is_some() || request.body.is_some() || request.body_base64.is_some() => {
            Err("an event has its own delivery; leave out raw and body".to_owned().into())
        }
        Some(event) => explain::rebuild_delivery(event, &known, &state.sources).await.map(|one| vec![one]),
        None => request.deliveries().map_err(Into::into),
    };
    let mut explained = Vec::new();
    for delivery in all.map_err(|why| cannot(&why))? {
        let walked = explain::walk(&state.sources, &[], source.as_deref(), &delivery, &known).await;
        let (walk, would) = walked.map_err(|why| cannot(&why))?;
        let (one, mut text) = (explain::report_json::explained(&walk, &would), Vec::new());
        explain::report_text::explained(&walk, &would, &mut text).unwrap_or_default();
        explained.push(ExplainedText { explained: one, text: String::from_utf8_lossy(&text).into_owned() });
    }
    Ok(Json(ExplainedList { deliveries: explained }))
}

fn cannot(error: &ExplainError) -> Response {
    match error.lack {
        ExplainErrorKind::Input | ExplainErrorKind::Source => refuse(StatusCode::BAD_REQUEST, &error.why),
        ExplainErrorKind::Unknown => refuse(StatusCode::NOT_FOUND, "unknown_event"),
        ExplainErrorKind::Several => refuse(StatusCode::CONFLICT, "several_events"),
        ExplainErrorKind::NoDelivery => refuse(StatusCode::CONFLICT, &error.why),
        ExplainErrorKind::Forgotten => refuse(StatusCode::GONE, "its body is no longer kept"),
        ExplainErrorKind::Store => unavailable_response(&error.why),
    }
}

/// Shows the metrics for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    responses((status = 200, description = "Prometheus' text format 0.0.4.", body = String,
               example = "# TYPE hookonce_deliveries_total counter\nhookonce_deliveries_total{source=\"ghcr\",verdict=\"accepted\"} 20\n"))
)]
pub(super) async fn metrics(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    let meter = &state.metrics;
    let counted: &EventCountCache = &state.counted;
    let (census, _) = counted.census(&*state.store, meter).await;
    let census = census.ok();
    let by_source = census.as_ref().and_then(|census| census.by_source.as_ref());
    let orphaned = state.orphans.now(&state).await;
    let budgets = state.budgets.now(&state).await;
    let age = |at| state.store.now().since(at).as_secs_f64();
    let gauges = Gauges {
        bodies_in_flight: state.flight.used(),
        events: census.as_ref().map(|census| [census.waiting, census.running, census.dead]),
        events_by_source: by_source.map(|all| {
            all.iter().map(|(source, count)| (source.clone(), [count.waiting, count.running, count.dead])).collect()
        }),
        oldest: census.as_ref().map(|census| census.oldest.as_ref().map_or(0.0, |event| age(event.received_at))),
        clock_ahead: ClockSkew::of(&*state.store).seconds(),
        expiry_waits: state.store.expiry().waiting.map(|waiting| (waiting.held_for(), waiting.jump)),
        orphaned: orphaned.map(|all| crate::admin::orphans::total(&all)),
        open_circuits: state.dispatcher.open_circuits(),
        budgets: budgets
            .iter()
            .filter_map(|one| Some((one.source.clone(), one.route.clone(), [one.used? as u64, one.runs.into()])))
            .collect(),
        listeners: limits::LISTENERS_MAX - state.listeners.available_permits(),
        spans_dropped: otlp::dropped(),
    };
    let node = observe::node_name(state.admin.listen.first);
    let format =
        MetricsFormat::accepted(headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or(""));
    let page = exposition(meter, (&node, &state.dispatcher.node().0), &gauges, format);
    ([(header::CONTENT_TYPE, format.content_type())], page).into_response()
}
