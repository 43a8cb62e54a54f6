//! The webhook port: path and method, the body under its limits, then the gateway.

use super::accept::PeerAddress;
use super::client_address::ClientGuard;
use super::http_response;
use super::readiness::Readiness;
use super::request_body::{BodiesInFlight, BodyError, BodyLimits, read};
use crate::decide::field::FieldLocation;
use crate::decide::handshake::{HandshakeMethod, RefusedHandshake};
use crate::decide::response;
use crate::decide::response::HttpResponse;
use crate::decide::response::problem_json;
use crate::decide::source::{ApiStyle, Source, Sources};
use crate::engine::gateway::{DeliveryClient, Gateway};
use crate::engine::received::Received;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// The state of the webhook port for one config, shared by all its requests.
pub struct IngestState {
    /// The sources, by path.
    pub sources: Arc<Sources>,
    /// The gateway that handles deliveries.
    pub gateway: Gateway,
    /// The memory budget for bodies.
    pub flight: Arc<BodiesInFlight>,
    /// Whether the node still accepts deliveries.
    pub health: Readiness,
    /// What is believed and accepted of clients' addresses.
    pub clients: Arc<ClientGuard>,
}

/// The webhook port's state as it is configured now. Each request reads it once. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CurrentIngest(Arc<RwLock<Arc<IngestState>>>);

impl CurrentIngest {
    pub(crate) fn new(state: IngestState) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(state))))
    }

    /// The state for a request that begins now.
    pub(crate) fn get(&self) -> Arc<IngestState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the state, for requests that begin from now on.
    pub(crate) fn replace(&self, state: IngestState) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }
}

impl IngestState {
    /// Responds to one request.
    pub async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: PeerAddress) -> Response<Full<Bytes>> {
        http_response::response(self.reply(request, peer.0).await)
    }

    async fn reply(&self, request: Request<Incoming>, peer: IpAddr) -> HttpResponse {
        let (parts, body) = request.into_parts();
        let from = self.clients.client(peer, &parts.headers);
        let source = match (parts.uri.path(), self.sources.at(parts.uri.path())) {
            (_, Some(source)) => source,
            ("/healthz", None) => return response::healthy(),
            ("/readyz", None) => return self.health.ready().await,
            (problem_json::PAGE_PATH, None) => return closing(response::page(problem_json::PAGE)),
            (_, None) => {
                let paths: Vec<_> = self.sources.all().map(|source| source.path.shown()).collect();
                let hidden = match parts.uri.path().len() {
                    length if self.sources.have_secret_path() => {
                        format!("; one of {length} characters was asked for, not shown because a path is secret")
                    }
                    _ => String::new(),
                };
                let why = format!("no source listens there; their paths are {}{hidden}", paths.join(", "));
                return self.reject(None, (&parts, from), refused(404, "unknown_path"), why);
            }
        };
        if !self.clients.allows(source, from) {
            let why = format!("`allow_from` does not have the address {from}");
            return self.reject(Some(source), (&parts, from), refused(403, "address"), why);
        }
        if parts.method != Method::POST {
            let method = HandshakeMethod::parse(parts.method.as_str());
            if let Some(reply) = method.and_then(|method| self.gateway.answer_handshake(source, method, &parts, from)) {
                return closing(reply);
            }
            if let Some(RefusedHandshake { status, why }) =
                method.and_then(|method| self.gateway.refused_handshake(source, method, &parts))
            {
                return self.reject(Some(source), (&parts, from), refused(status, "handshake"), why);
            }
            let why = format!("a delivery is a POST, this was a {}", parts.method);
            let mut reply = self.reject(Some(source), (&parts, from), refused(405, "method"), why);
            reply.headers.push(("allow".into(), source.methods().join(", ").into()));
            return reply;
        }
        if self.health.refuses() {
            return in_api_style(source, closing(response::unavailable()));
        }
        let limited_for = self.clients.limited_for(Some(source), from);
        if limited_for.is_some() && cannot_verify(source, &parts.headers) {
            let why = "there is no signature".to_owned();
            return self.reject(Some(source), (&parts, from), refused(401, "bad_signature"), why);
        }
        let limits = BodyLimits { bytes: source.body_max, ..BodyLimits::default() };
        match read(body, limits, &self.flight).await {
            Ok(body) => {
                let client = DeliveryClient { address: Some(from), limited_for };
                let received = self.gateway.receive(source, &parts, body, client).await;
                if received.is_unproven() {
                    self.clients.count_refusal(Some(source), from);
                }
                received.response
            }
            Err(error) => {
                let why = match error {
                    BodyError::TooLarge => format!("{error}: `body_max` is {} bytes", source.body_max),
                    _ => error.to_string(),
                };
                self.reject(Some(source), (&parts, from), (http_response::no_body(error), error.reason()), why)
            }
        }
    }

    /// Rejects a request before it is judged. The log and the delivery record say why; the response to the sender does
    /// not. Of an address that has had too many refusals, it is only counted.
    fn reject(
        &self,
        source: Option<&Source>,
        (parts, from): (&Parts, IpAddr),
        rejection: (HttpResponse, Option<&'static str>),
        why: String,
    ) -> HttpResponse {
        // A path that is almost a secret one tells most of it.
        let shows = source.is_none() && !self.sources.have_secret_path();
        let path = shows.then(|| parts.uri.path());
        let id = self.delivery_id(source, &parts.headers);
        let now = self.gateway.now();
        let received = match self.clients.limited_for(source, from).filter(|_| rejection.0.status != 503) {
            Some(wait) => Received::limited(now, wait),
            None => Received::not_judged(now, path, id, rejection, why),
        };
        if received.response.status != 503 {
            self.clients.count_refusal(source, from);
        }
        let received = received.from(Some(from));
        self.gateway.observer().delivery(source, &received);
        let reply = received.response;
        let closed = reply.headers.iter().any(|(name, _)| name == "connection");
        let reply = if closed { reply } else { closing(reply) };
        match source {
            Some(source) => in_api_style(source, reply),
            None => reply,
        }
    }

    /// The delivery id of a request, from the header of its source. If no source has its path, from the header of any
    /// source: an operator who looks for a delivery has that id, and a wrong URL is a common cause.
    fn delivery_id<'h>(&self, source: Option<&Source>, headers: &'h http::HeaderMap) -> Option<&'h str> {
        let all = self.sources.all().filter(|one| source.is_none_or(|source| source.name == one.name));
        let mut named = all.filter_map(|source| match &source.delivery.as_ref()?.at {
            FieldLocation::Header(name) => headers.get(&**name)?.to_str().ok(),
            _ => None,
        });
        named.find(|id| !id.is_empty())
    }
}

/// Whether no body can make a request with these headers verify: all that proves its sender is in headers, and none of
/// them is there. A handshake may come without.
fn cannot_verify(source: &Source, headers: &HeaderMap) -> bool {
    let (places, names) = (source.verify.credential_places(), source.verify.signature_headers());
    let in_headers = !places.is_empty() && places.len() == names.len();
    in_headers && source.handshakes.is_empty() && !names.iter().any(|name| headers.contains_key(name))
}

/// The response to a request that is rejected, and the reason.
fn refused(status: u16, reason: &'static str) -> (HttpResponse, Option<&'static str>) {
    (response::rejected_before_judging(status, reason), Some(reason))
}

/// The same response, as the source's senders expect it.
fn in_api_style(source: &Source, reply: HttpResponse) -> HttpResponse {
    match source.api_style {
        ApiStyle::Webhook => reply,
        ApiStyle::Api => problem_json::turned_away(reply),
    }
}

/// Closes the connection after this response: what is not read must not be taken for the next request.
pub(crate) fn closing(mut reply: HttpResponse) -> HttpResponse {
    reply.headers.push(("connection".into(), "close".into()));
    reply
}
