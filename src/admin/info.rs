//! What is configured, what would come of a delivery, and what is counted: for people and their tools.

use super::overview::EventCountCache;
use super::{AdminState, auth, refuse};
use crate::config::{Config, view as configured};
use crate::decide::limits;
use crate::decide::source::Source;
use crate::explain::prediction::ExplainHistory;
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
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The API itself.
const OPENAPI: &str = include_str!("openapi.json");

/// A pasted delivery: its bytes in base64, and as much again for escapes.
const PASTED_BYTES_MAX: usize = 2 * limits::BODY_BYTES_MAX;

/// The document that describes the API.
pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// Sources and routes as resolved; made once, since a config is read once.
pub(super) fn sources(config: &Config, node: &str, ingest: Option<SocketAddr>) -> Value {
    let one = |source: &Source| {
        let mut told = configured::source(config, source);
        told["url"] = json!(ingest.map(|at| format!("http://{at}{}", source.path)));
        told["identities_in_words"] = configured::identities(source).into_iter().map(|(_, words)| words).collect();
        told
    };
    let warnings: Vec<_> = config.warnings.iter().map(|warning| &warning.title).collect();
    json!({
        "node": node,
        "store": config.store.to_string(),
        "sources": config.sources.iter().map(|source| one(source)).collect::<Vec<_>>(),
        "warnings": warnings,
    })
}

/// Sources and routes as resolved.
pub(super) async fn configured(State(desk): State<AdminState>) -> Response {
    Json(&*desk.shown).into_response()
}

/// What is pasted.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ExplainRequest {
    raw: Option<String>,
    event: Option<String>,
    source: Option<String>,
    path: Option<String>,
    query: Option<String>,
    headers: BTreeMap<String, String>,
    body: Option<String>,
    body_base64: Option<String>,
}

impl ExplainRequest {
    /// The deliveries in it; an event is not one of them.
    fn deliveries(self) -> Result<Vec<SavedDelivery>, String> {
        let parts = self.path.is_some() || self.query.is_some() || !self.headers.is_empty();
        let body = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => return Err("body and body_base64 are both given; one is enough".into()),
            (body, None) => body.map(String::into_bytes),
            (None, Some(coded)) => {
                let read = base64::engine::general_purpose::STANDARD.decode(coded);
                Some(read.map_err(|_| "body_base64 is not base64".to_owned())?)
            }
        };
        match (self.raw, body) {
            (Some(_), Some(_)) => Err("raw is a whole delivery; a body beside it has no place".into()),
            (Some(_), None) if parts => Err("raw is a whole delivery; parts beside it have no place".into()),
            (Some(raw), None) if raw.trim().is_empty() => Err("what was pasted is empty".into()),
            (Some(raw), None) => deliveries("pasted", raw.into_bytes()),
            (None, None) => Err("there is nothing to explain: give raw, event, or a body".into()),
            (None, Some(body)) => {
                let header = |(name, value): (String, String)| (name.to_ascii_lowercase(), value.into_bytes());
                Ok(vec![SavedDelivery {
                    from: "pasted".into(),
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

/// Walks what was pasted.
pub(super) async fn explain(State(desk): State<AdminState>, body: Body) -> Result<Response, Response> {
    let limits = BodyLimits { bytes: PASTED_BYTES_MAX, ..BodyLimits::default() };
    let bytes = read(body, limits, &desk.flight).await.map_err(auth::no_body)?;
    let pasted: ExplainRequest = serde_json::from_slice(&bytes)
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, &format!("this is no delivery to explain: {error}")))?;
    let known = ExplainHistory::Store(desk.store.clone(), "this node's store".into());
    let source = pasted.source.clone();
    let all = match &pasted.event {
        Some(_) if pasted.raw.is_some() || pasted.body.is_some() || pasted.body_base64.is_some() => {
            Err("an event has its own delivery; what is beside it has no place".to_owned().into())
        }
        Some(event) => explain::rebuild_delivery(event, &known, &desk.sources).await.map(|one| vec![one]),
        None => pasted.deliveries().map_err(Into::into),
    };
    let mut told = Vec::new();
    for delivery in all.map_err(|why| cannot(&why))? {
        let walked = explain::walk(&desk.sources, &[], source.as_deref(), &delivery, &known).await;
        let (walk, would) = walked.map_err(|why| cannot(&why))?;
        let (mut one, mut text) = (explain::report_json::explained(&walk, &would), Vec::new());
        explain::report_text::explained(&walk, &would, &mut text).unwrap_or_default();
        one["text"] = String::from_utf8_lossy(&text).into();
        told.push(one);
    }
    Ok(Json(json!({ "deliveries": told })).into_response())
}

fn cannot(cannot: &ExplainError) -> Response {
    match cannot.lack {
        ExplainErrorKind::Input | ExplainErrorKind::Source => refuse(StatusCode::BAD_REQUEST, &cannot.why),
        ExplainErrorKind::Unknown => refuse(StatusCode::NOT_FOUND, "unknown_event"),
        ExplainErrorKind::Several => refuse(StatusCode::CONFLICT, "several_events"),
        ExplainErrorKind::Forgotten => refuse(StatusCode::GONE, "its body is no longer kept"),
        ExplainErrorKind::Store => crate::admin::unavailable_response(&cannot.why),
    }
}

/// What is counted, for Prometheus.
pub(super) async fn metrics(State(desk): State<AdminState>, headers: HeaderMap) -> Response {
    let meter = desk.dispatcher.meter();
    let counted: &EventCountCache = &desk.counted;
    let (census, _) = counted.census(&*desk.store, meter).await;
    let census = census.ok();
    let orphaned = desk.orphans.now(&desk).await;
    let age = |at| desk.store.now().since(at).as_secs_f64();
    let gauges = Gauges {
        bodies_in_flight: desk.flight.used(),
        events: census.as_ref().map(|census| [census.waiting, census.running, census.dead]),
        oldest: census.as_ref().map(|census| census.oldest.as_ref().map_or(0.0, |event| age(event.received_at))),
        clock_ahead: ClockSkew::of(&*desk.store).seconds(),
        expiry_waits: desk.store.expiry().waiting.map(|waiting| (waiting.held_for(), waiting.jump)),
        orphaned: orphaned.map(|all| crate::admin::orphans::total(&all)),
        open_circuits: desk.dispatcher.open_circuits(),
        listeners: limits::LISTENERS_MAX - desk.listeners.available_permits(),
        spans_dropped: otlp::dropped(),
    };
    let node = observe::node_name(desk.admin.listen);
    let format =
        MetricsFormat::accepted(headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or(""));
    let page = exposition(meter, (&node, &desk.dispatcher.node().0), &gauges, format);
    ([(header::CONTENT_TYPE, format.content_type())], page).into_response()
}
