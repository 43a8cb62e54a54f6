//! The admin port: its router and its state. Operators and their tools view, replay, forget and watch events there. It
//! is a separate port, on loopback by default.
//!
//! `auth.rs` decides which client may do what. The handlers describe themselves, and `openapi.rs` makes a document of
//! that.
pub(crate) mod auth;
pub(crate) mod budgets;
pub(crate) mod bulk_replay;
pub(crate) mod dashboard;
pub(crate) mod deliveries;
pub(crate) mod events;
pub(crate) mod handshakes;
pub(crate) mod info;
pub(crate) mod login_links;
pub(crate) mod openapi;
pub(crate) mod orphans;
pub(crate) mod overview;
pub(crate) mod polled;
pub(crate) mod query;
pub(crate) mod registers;
pub(crate) mod reload;
pub(crate) mod remote_output;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod view;

pub(crate) use query::LIST_MAX;

use crate::config::{AdminConfig, Config};
use crate::decide::event::{EventState, QueueState};
use crate::decide::limits;
use crate::decide::response;
use crate::decide::source::Source;
use crate::decide::time::Timestamp;
use crate::engine::dispatcher::Dispatcher;
use crate::engine::handover::Handovers;
use crate::ingress::readiness::Readiness;
use crate::ingress::request_body::BodiesInFlight;
use crate::observe::metrics::Metrics;
use crate::store::retention::NodeTopology;
use crate::store::status_text::has_route;
use crate::store::{EventDetails, Inspect, StoreError};
use auth::{AdminAccess, TokenThrottle};
use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use budgets::BudgetUseCache;
use info::SourceList;
use login_links::LoginLinks;
use openapi::NotReady;
use orphans::OrphanCountCache;
use overview::EventCountCache;
use polled::PolledSource;
use reload::ReloadRequests;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use view::{OkView, RefusalView, UnavailableView};

/// Maximum number of events listed where one name means several.
pub(crate) const NAMESAKES_MAX: usize = 10;

/// The state of the admin port for one config, shared by all handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AdminState {
    /// The node's metrics.
    metrics: Arc<Metrics>,
    /// The store.
    pub store: Arc<dyn Inspect>,
    /// The dispatcher, which replays and cancels.
    pub dispatcher: Dispatcher,
    /// Tokens, peers and address.
    pub admin: Arc<AdminConfig>,
    /// Who may do what, as configured now.
    access: Arc<watch::Sender<AdminAccess>>,
    /// Where requests to read the config again go, if it is a file.
    reloads: Option<ReloadRequests>,
    /// Whether the node is ready.
    pub health: Readiness,
    /// Cancelled when the port is about to close: later than the node begins to drain, so that clients of the live
    /// stream see running events end.
    pub closing: CancellationToken,
    sources: Arc<[Arc<Source>]>,
    handovers: Arc<Handovers>,
    /// The address of the webhook port.
    ingest: Option<SocketAddr>,
    shown: Arc<SourceList>,
    polled: Arc<[PolledSource]>,
    store_kind: &'static str,
    flight: Arc<BodiesInFlight>,
    links: Arc<LoginLinks>,
    refusals: Arc<TokenThrottle>,
    listeners: Arc<Semaphore>,
    counted: Arc<EventCountCache>,
    orphans: Arc<OrphanCountCache>,
    budgets: Arc<BudgetUseCache>,
    nodes: NodeTopology,
    peers: reqwest::Client,
    started_at: Timestamp,
    since: Arc<Mutex<Timestamp>>,
}

impl AdminState {
    /// The state for this config, with the addresses of the webhook port and of the admin port.
    pub(crate) fn new(
        config: &Config,
        (ingest, admin): (Option<SocketAddr>, SocketAddr),
        store: Arc<dyn Inspect>,
        (dispatcher, metrics): (Dispatcher, Arc<Metrics>),
        health: Readiness,
        flight: Arc<BodiesInFlight>,
    ) -> Self {
        let configured = Arc::new(AdminConfig { listen: admin.into(), ..config.admin.clone() });
        let access = AdminAccess::new(configured.clone(), None);
        let builder = || reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        // A machine without CA certificates runs a node too; a peer with HTTPS then counts as one that does not respond.
        let peers = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        Self {
            admin: configured,
            access: Arc::new(watch::Sender::new(access)),
            reloads: None,
            ingest,
            sources: config.sources.clone().into(),
            handovers: Arc::default(),
            shown: Arc::new(info::sources(config, &dispatcher.node().0, ingest)),
            polled: polled::sources(config),
            store_kind: config.store.word(),
            flight,
            metrics,
            closing: CancellationToken::new(),
            links: Arc::default(),
            refusals: Arc::default(),
            listeners: Arc::new(Semaphore::new(limits::LISTENERS_MAX)),
            counted: Arc::default(),
            orphans: Arc::default(),
            budgets: Arc::default(),
            nodes: NodeTopology::of(&config.store),
            peers: peers.unwrap_or_default(),
            started_at: store.now(),
            since: Arc::new(Mutex::new(store.now())),
            store,
            dispatcher,
            health,
        }
    }

    /// The state for a config that was loaded later. Counters, sessions, clients of live streams and the delays of wrong
    /// tokens live on; what is done with a token that is gone ends.
    pub(crate) fn reconfigured(&self, config: &Config, handovers: Arc<Handovers>) -> Self {
        let configured = Arc::new(AdminConfig { listen: self.admin.listen.clone(), ..config.admin.clone() });
        let access = AdminAccess::new(configured.clone(), Some(&self.access.borrow()));
        self.access.send_replace(access);
        Self {
            admin: configured,
            sources: config.sources.clone().into(),
            handovers,
            shown: Arc::new(info::sources(config, &self.dispatcher.node().0, self.ingest)),
            polled: polled::sources(config),
            orphans: Arc::default(),
            budgets: Arc::default(),
            ..self.clone()
        }
    }

    /// The same state, with a way to have the config read again.
    #[must_use]
    pub(crate) fn reloading(self, reloads: Option<ReloadRequests>) -> Self {
        Self { reloads, ..self }
    }

    /// The same state, with what senders bring by their handshakes.
    #[must_use]
    pub(crate) fn handing_over(self, handovers: Arc<Handovers>) -> Self {
        Self { handovers, ..self }
    }

    /// The same state, closing with this token.
    #[must_use]
    pub(crate) fn closing_with(self, closing: CancellationToken) -> Self {
        Self { closing, ..self }
    }

    /// Shows a waiting event as suspended if its route is not configured, even before it is due.
    fn mark_suspended(&self, details: &mut EventDetails) {
        let waits = matches!(details.event.state, EventState::Waiting { .. });
        if waits && !has_route(&self.sources, &details.event) {
            details.event.queue_state = QueueState::Suspended;
        }
    }
}

/// The routes that need no authentication.
fn public_routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(auth::session))
        .routes(routes!(auth::login, dashboard::login_page))
        .routes(routes!(auth::logout))
        .routes(routes!(auth::open_link))
}

/// The routes that [`auth::authorize`] guards.
fn guarded_routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(openapi::openapi))
        .routes(routes!(auth::make_link))
        .routes(routes!(overview::overview))
        .routes(routes!(events::list))
        .routes(routes!(events::show, events::remove))
        .routes(routes!(events::body))
        .routes(routes!(events::headers))
        .routes(routes!(events::replay))
        .routes(routes!(events::cancel))
        .routes(routes!(events::quarantine))
        .routes(routes!(events::forget))
        .routes(routes!(bulk_replay::replay))
        .routes(routes!(registers::list))
        .routes(routes!(registers::show, registers::set, registers::clear))
        .routes(routes!(info::configured))
        .routes(routes!(polled::polled))
        .routes(routes!(orphans::forget_source))
        .routes(routes!(info::explain))
        .routes(routes!(deliveries::deliveries))
        .routes(routes!(deliveries::turned_away))
        .routes(routes!(handshakes::list))
        .routes(routes!(handshakes::wait))
        .routes(routes!(reload::reload))
        .routes(routes!(stream::live))
        .routes(routes!(stream::tail))
        .routes(routes!(info::metrics))
}

/// The router of the admin port.
pub(crate) fn router(state: AdminState) -> Router {
    // A method that a path does not have is 405 for every client, authenticated or not.
    let guarded = Router::from(guarded_routes()).route_layer(from_fn_with_state(state.clone(), auth::authorize));
    Router::from(public_routes())
        .merge(guarded)
        .merge(dashboard::router())
        .method_not_allowed_fallback(|| async { refuse(StatusCode::METHOD_NOT_ALLOWED, "method") })
        .fallback(not_found)
        .layer(from_fn(auth::security_headers))
        .with_state(state)
}

/// Is the node alive?
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    responses((status = 200, description = "Yes.", body = OkView, example = json!({ "status": "ok" })))
)]
async fn healthz() -> Response {
    plain(&response::healthy())
}

/// Does its store respond, can it be written, and is the node not about to stop?
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    responses((status = 200, description = "Yes.", body = OkView, example = json!({ "status": "ok" })), NotReady)
)]
async fn readyz(State(state): State<AdminState>) -> Response {
    plain(&state.health.ready().await)
}

/// The response for an unknown path: a page for browsers, a refusal for programs.
async fn not_found(request: Request) -> Response {
    dashboard::nowhere(&request).unwrap_or_else(|| refuse(StatusCode::NOT_FOUND, "unknown_path"))
}

fn plain(reply: &response::HttpResponse) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], reply.body.clone()).into_response()
}

fn refuse(status: StatusCode, reason: &str) -> Response {
    (status, Json(RefusalView::new(reason))).into_response()
}

fn unavailable(error: &StoreError) -> Response {
    unavailable_response(&error.to_string())
}

fn unavailable_response(why: &str) -> Response {
    let retry = [(header::RETRY_AFTER, "5")];
    (StatusCode::SERVICE_UNAVAILABLE, retry, Json(UnavailableView::new(why))).into_response()
}
