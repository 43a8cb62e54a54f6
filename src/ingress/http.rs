//! The port where webhooks arrive: path and method, the body under its limits, then the gateway.

use super::http_response;
use super::readiness::Readiness;
use super::request_body::{BodiesInFlight, BodyError, BodyLimits, read};
use crate::decide::delivery::Delivery;
use crate::decide::field::FieldLocation;
use crate::decide::response;
use crate::decide::response::HttpResponse;
use crate::decide::response::problem_json;
use crate::decide::source::{ApiStyle, Source, Sources};
use crate::engine::gateway::Gateway;
use crate::observe::delivery_log::{DeliveryRecord, DeliveryVerdict};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;
use tracing::warn;

/// What the ingest port needs. Cheap to clone.
#[derive(Clone)]
pub struct IngestState {
    /// Who may send.
    pub sources: Arc<Sources>,
    /// What becomes of it.
    pub gateway: Gateway,
    /// How much may be under way.
    pub flight: Arc<BodiesInFlight>,
    /// Whether the node still takes deliveries.
    pub health: Readiness,
}

impl IngestState {
    /// Answers one request.
    pub async fn answer(self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        http_response::response(self.reply(request).await)
    }

    async fn reply(&self, request: Request<Incoming>) -> HttpResponse {
        let (parts, body) = request.into_parts();
        let source = match (parts.uri.path(), self.sources.at(parts.uri.path())) {
            (_, Some(source)) => source,
            ("/healthz", None) => return response::healthy(),
            ("/readyz", None) => return self.health.ready().await,
            (problem_json::PAGE_PATH, None) => return closing(response::page(problem_json::PAGE)),
            (_, None) => {
                let paths: Vec<_> = self.sources.all().map(|source| &*source.path).collect();
                let why = format!("no source listens there; their paths are {}", paths.join(", "));
                return self.reject(None, &parts, response::rejected_before_judging(404, "unknown_path"), why);
            }
        };
        if parts.method != Method::POST {
            let why = format!("a delivery is a POST, this was a {}", parts.method);
            let mut reply = self.reject(Some(source), &parts, response::rejected_before_judging(405, "method"), why);
            reply.headers.push(("allow".into(), "POST".into()));
            return reply;
        }
        if self.health.draining.is_cancelled() {
            return in_api_style(source, closing(response::unavailable()));
        }
        let limits = BodyLimits { bytes: source.body_max, ..BodyLimits::default() };
        match read(body, limits, &self.flight).await {
            Ok(body) => self.receive(source, &parts, body).await,
            Err(error) => {
                let why = match error {
                    BodyError::TooLarge => format!("{error}: `body_max` is {} bytes", source.body_max),
                    _ => error.to_string(),
                };
                self.reject(Some(source), &parts, http_response::no_body(error), why)
            }
        }
    }

    /// What never came so far as to be judged is visible too; why, the log and people are told, and not the sender.
    fn reject(&self, source: Option<&Source>, parts: &Parts, reply: HttpResponse, why: String) -> HttpResponse {
        let reason = serde_json::from_slice::<serde_json::Value>(&reply.body).ok();
        let reason = reason.and_then(|body| body["reason"].as_str().map(str::to_owned));
        let verdict = if reply.status == 503 { DeliveryVerdict::Unavailable } else { DeliveryVerdict::Refused };
        let heard = DeliveryRecord::new(source.map(|source| source.name.clone()), verdict, self.gateway.now());
        let path = source.is_none().then(|| parts.uri.path().to_owned());
        let (status, delivery) = (reply.status, self.delivery_id(source, &parts.headers));
        let source_name = source.map(|source| &*source.name);
        warn!(target: "hookonce", source = source_name, path, delivery, status, reason, why, "{}", reply.word);
        self.gateway.meter().turned_away(DeliveryRecord { path, status, reason, delivery, why: Some(why), ..heard });
        let closed = reply.headers.iter().any(|(name, _)| name == "connection");
        let reply = if closed { reply } else { closing(reply) };
        match source {
            Some(source) => in_api_style(source, reply),
            None => reply,
        }
    }

    /// What the sender calls it, in the header of its source; where nobody listens, in that of any of ours: who looks
    /// for it has that id, and a wrong URL is a usual reason.
    fn delivery_id(&self, source: Option<&Source>, headers: &http::HeaderMap) -> Option<String> {
        let all = self.sources.all().filter(|one| source.is_none_or(|source| source.name == one.name));
        let named = all.filter_map(|source| match &source.delivery.as_ref()?.at {
            FieldLocation::Header(name) => headers.get(&**name)?.to_str().ok(),
            _ => None,
        });
        named.map(str::to_owned).find(|id| !id.is_empty())
    }

    async fn receive(&self, source: &Source, parts: &Parts, body: Bytes) -> HttpResponse {
        let began = std::time::Instant::now();
        let named =
            |(name, value): (&http::HeaderName, &http::HeaderValue)| (name.to_string(), value.as_bytes().to_vec());
        let headers: Vec<_> = parts.headers.iter().map(named).collect();
        let delivery = Delivery {
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or(""),
            headers: &headers,
            body: &body,
            at: self.gateway.now(),
            wall: self.gateway.wall_time(),
        };
        let judged = self.gateway.judge(source, &delivery);
        drop(body);
        let reply = self.gateway.claim_and_respond(source, judged).await.0;
        self.gateway.meter().ingest(&source.name, began.elapsed());
        reply
    }
}

/// The same, as the source's senders expect it.
fn in_api_style(source: &Source, reply: HttpResponse) -> HttpResponse {
    match source.api_style {
        ApiStyle::Webhook => reply,
        ApiStyle::Api => problem_json::turned_away(reply),
    }
}

/// What is not read must not be taken for the next request.
pub(crate) fn closing(mut reply: HttpResponse) -> HttpResponse {
    reply.headers.push(("connection".into(), "close".into()));
    reply
}
