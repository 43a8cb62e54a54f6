//! A running node, assembled from a config: store, batcher, dispatcher, gateway and both ports.
pub(crate) mod data_loss;
mod intakes;
mod parts;
mod ports;
mod reload;
pub(crate) mod state_file;

use crate::action::forward::ip_filter::DnsResolver;
#[cfg(feature = "nats")]
use crate::action::publish::NatsConnections;
use crate::action::{ActionEnvironment, CircuitBreakers, GuardProgram, NodeEnvVars};
use crate::admin;
use crate::admin::AdminState;
use crate::admin::reload::ReloadRequests;
use crate::catch_up::CatchUpContext;
use crate::config::Config;
use crate::decide::error_message::ErrorMessage;
use crate::decide::identity::recipe;
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::source::{Identity, Intake, Source, Sources};
use crate::decide::time::{Duration, Timestamp};
use crate::decide::{limits, response};
use crate::engine::dispatcher::Dispatcher;
use crate::engine::gateway::{FormerKeyPolicy, Gateway};
use crate::engine::handover::Handovers;
use crate::ingress::accept::{ConnectionLimits, PeerAddress};
use crate::ingress::client_address::ClientGuard;
use crate::ingress::http::{CurrentIngest, IngestState};
use crate::ingress::port_listener::PortListener;
use crate::ingress::readiness::{LateRequests, Readiness};
use crate::ingress::registry_poll::PollContext;
use crate::ingress::request_body::BodiesInFlight;
use crate::ingress::{accept, http, http_response};
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::store;
use crate::store::batch::Batcher;
use crate::store::open::OpenPurpose;
use crate::store::retention::NodeTopology;
use crate::store::{
    DeclaredFields, EventQuery, Inspect, RetentionPolicies, StoreError, StoreOpenError, is_event_column, status_text,
};
use data_loss::{DataLossCheckError, DataLossDetector, StateFileWriter};
use intakes::{IntakeContext, SourceIntakes, WantedIntakes};
use parts::NodeParts;
use reload::{ConfiguredNode, CurrentRouter, FixedSettings};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::warn;

/// The handle of the node that this process runs: its addresses, dispatcher, store and shutdown.
pub struct NodeHandle {
    /// The address for webhooks, unless the node only acts.
    pub ingest: Option<SocketAddr>,
    /// The admin port.
    pub admin: SocketAddr,
    /// The dispatcher.
    pub dispatcher: Dispatcher,
    /// The store.
    pub store: Arc<dyn Inspect>,
    failed: watch::Receiver<Option<ErrorMessage>>,
    draining: CancellationToken,
    configured: ConfiguredNode,
    ports: Vec<JoinHandle<()>>,
    closing: CancellationToken,
    admin_port: JoinHandle<()>,
    fence: Option<StateFileWriter>,
}

/// How a node starts.
#[derive(Default)]
pub(crate) struct NodeStartOptions {
    /// Its role.
    pub(crate) does: NodeRole,
    /// The program that guards its commands.
    pub(crate) guard: GuardProgram,
    /// An accepted loss of data, as `EPOCH:COUNTER`.
    pub(crate) accepts: Option<String>,
    /// Where requests to read the config again go, if it is a file.
    pub(crate) reloads: Option<ReloadRequests>,
    /// Sockets that are open already.
    pub(crate) sockets: InheritedSockets,
}

/// Sockets that a service manager has opened for the node. They stay open when the node ends.
#[derive(Default)]
pub(crate) struct InheritedSockets {
    /// For webhooks.
    pub(crate) ingest: Option<std::net::TcpListener>,
    /// For the admin port.
    pub(crate) admin: Option<std::net::TcpListener>,
}

/// How long a request may still arrive on a connection of an inherited socket when the node stops.
const LATE_TIME: Duration = Duration::from_secs(1);

/// The role of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum NodeRole {
    /// It receives and acts.
    #[default]
    Both,
    /// It only receives; its events wait for a node that acts.
    Ingest,
    /// It only acts.
    Work,
}

/// Why a node could not start, as a sentence.
#[derive(Debug)]
pub struct NodeStartError(ErrorMessage);

impl fmt::Display for NodeStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NodeStartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl NodeStartError {
    fn new(why: impl Into<ErrorMessage>) -> Self {
        Self(why.into())
    }
}

impl NodeHandle {
    /// Starts a node. When this returns, both ports are bound and the store is open.
    pub async fn start(config: &Config, guard: GuardProgram) -> Result<Self, NodeStartError> {
        Self::start_as(config, NodeStartOptions { guard, ..NodeStartOptions::default() }).await
    }

    /// Starts a node with these options.
    pub(crate) async fn start_as(config: &Config, how: NodeStartOptions) -> Result<Self, NodeStartError> {
        let NodeStartOptions { does, guard, accepts, reloads, sockets } = how;
        let late = if sockets.ingest.is_some() { LateRequests::Handled } else { LateRequests::Refused };
        fits_store(does, config)?;
        let closing = CancellationToken::new();
        let (listener, admin_listener) = ports::open_all(config, does, sockets, &closing).await?;
        let (ingest, admin) = (listener.as_ref().map(address).transpose()?, address(&admin_listener)?);
        is_guarded(config, admin)?;
        let environment = environment(config, guard);
        let mut made = NodeParts::new(config, does, &environment)?;
        let wanted = WantedIntakes::take(&mut made);
        let (store, fence) = open(config, accepts.as_deref(), listener.iter().chain([&admin_listener])).await?;
        let failed = store.failed();
        let metrics = Arc::new(Metrics::new(&config.sources));
        let batch = Batcher::start(store.clone(), metrics.clone());
        let dispatcher = Dispatcher::new(store.clone(), batch.clone(), made.lanes, metrics.clone());
        let draining = CancellationToken::new();
        let last_write = batch.last_write();
        let health = Readiness::new(draining.clone(), store.clone(), &batch).treating(late);
        let flight = Arc::new(BodiesInFlight::default());
        let handovers = Arc::new(Handovers::new(&config.sources, &config.secret_files));
        let port = CurrentIngest::new(IngestState {
            sources: Arc::new(Sources::new(config.sources.iter().cloned())),
            gateway: Gateway::new(store.clone(), batch, dispatcher.clone(), metrics.clone())
                .looking_for(former_key_sources(&*store, config).await)
                .fetching(made.key_fetchers)
                .handing_over(handovers.clone()),
            flight: flight.clone(),
            health: health.clone(),
            clients: Arc::new(ClientGuard::new(&config.clients)),
        });
        let mut intakes = SourceIntakes::new(IntakeContext {
            #[cfg(feature = "nats")]
            streams: crate::ingress::nats::ConsumerContext {
                port: port.clone(),
                dispatcher: dispatcher.clone(),
                store: store.clone(),
                flight: flight.clone(),
                draining: draining.clone(),
            },
            polls: PollContext { port: port.clone(), store: store.clone(), draining: draining.clone() },
            catch_ups: CatchUpContext {
                store: store.clone(),
                node: dispatcher.node().to_string(),
                nodes: NodeTopology::of(&config.store),
                metrics: metrics.clone(),
                last_write,
                draining: draining.clone(),
            },
            draining: draining.clone(),
        });
        let counted = (dispatcher.clone(), metrics.clone());
        let desk = AdminState::new(config, (ingest, admin), store.clone(), counted, health, flight)
            .handing_over(handovers.clone())
            .closing_with(closing.clone())
            .reloading(reloads);
        tokio::spawn(admin::overview::record_series(desk.clone()));
        let retention = watch::Sender::new(retention_policies(config));
        if config.store.is_shared() {
            tokio::spawn(publish_retention(store.clone(), retention.subscribe(), draining.clone()));
        }
        let mut ports = Vec::new();
        let router = CurrentRouter::new(desk.clone());
        let (connections, admin_connections) = connections();
        dispatcher.watch();
        if does != NodeRole::Ingest {
            dispatcher.run();
        }
        let current = (router.clone(), port.clone());
        let admin_port = serve_admin(admin_listener, current, admin_connections, closing.clone());
        if let Some(listener) = listener {
            let late_time = if late == LateRequests::Handled { LATE_TIME } else { Duration::ZERO };
            let limits = ConnectionLimits { connections, late_time, ..ConnectionLimits::default() };
            let port = port.clone();
            let answer = move |request, peer| port.get().answer(request, peer);
            ports.push(tokio::spawn(accept::serve_with_peers(listener, answer, limits, draining.clone())));
        }
        if does != NodeRole::Work {
            intakes.follow(wanted).await;
        }
        let fence = fence.starts(store.clone());
        let configured = ConfiguredNode {
            does,
            fixed: FixedSettings::of(config),
            environment,
            metrics,
            port,
            desk,
            router,
            handovers,
            fetched_keys: config.fetched_keys.clone(),
            intakes,
            retention,
        };
        Ok(Self { ingest, admin, dispatcher, store, failed, draining, configured, ports, closing, admin_port, fence })
    }

    /// Waits until the store has failed permanently, and returns why.
    pub async fn store_failed(&self) -> String {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await {
            Ok(why) => why.as_ref().map(ToString::to_string).unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether the node accepts deliveries: what `/readyz` answers.
    pub(crate) fn readiness(&self) -> Readiness {
        self.configured.port.get().health.clone()
    }

    /// Drains and stops: receives nothing new, waits for running attempts, then ends them; `hurry` shortens the wait.
    /// The admin port stays open to the end; webhooks are refused at once, so that a load balancer uses another node.
    pub async fn stop(self, hurry: impl Future<Output = ()>) {
        self.draining.cancel();
        let stopped = self.dispatcher.stop(limits::DRAIN_TIME);
        tokio::pin!(stopped, hurry);
        tokio::select! {
            () = &mut stopped => {}
            () = &mut hurry => {
                self.dispatcher.end_all();
                stopped.await;
            }
        }
        for port in self.ports {
            port.await.unwrap_or_default();
        }
        self.configured.intakes.ended().await;
        self.closing.cancel();
        self.admin_port.await.unwrap_or_default();
        // The last requests may have passed events to the dispatcher, which must hand them back.
        self.dispatcher.stop(limits::DRAIN_TIME).await;
        if let Some(fence) = self.fence {
            fence.stop().await;
        }
    }
}

/// The connection limit of each port: the configured one, or what the limit of open files allows.
fn connections() -> (usize, usize) {
    let files = accept::raise_file_limit(limits::CONNECTIONS_MAX + limits::ADMIN_CONNECTIONS_MAX);
    let (connections, admin) = accept::connection_limits(files);
    if connections < limits::CONNECTIONS_MAX {
        let files = files.unwrap_or_default();
        let why = format!("this process may open only {files} files, so it accepts at most {connections} connections");
        warn!(target: "hookonce", why, "files");
    }
    (connections, admin)
}

/// Refuses a role that needs other nodes where there can be none.
fn fits_store(does: NodeRole, config: &Config) -> Result<(), NodeStartError> {
    if does == NodeRole::Both || config.store.is_shared() {
        return Ok(());
    }
    Err(NodeStartError::new(format!(
        "--only needs another node on the same store, but {} cannot be shared\n\
         hint: remove --only, or use PostgreSQL or Redis",
        config.store
    )))
}

/// Refuses an admin port that is reached from outside without a token. The config checks its own address; a socket that
/// was passed may have another one.
fn is_guarded(config: &Config, admin: SocketAddr) -> Result<(), NodeStartError> {
    if admin.ip().is_loopback() || !config.admin.tokens.is_empty() {
        return Ok(());
    }
    Err(NodeStartError::new(format!(
        "the socket for `admin.listen` that was passed can be reached from outside ({admin}), and there is no token\n\
         hint: add token = {{ env = \"HOOKONCE_ADMIN_TOKEN\" }} in [admin], or let the socket listen on 127.0.0.1"
    )))
}

/// What the actions of a node share.
fn environment(config: &Config, guard: GuardProgram) -> ActionEnvironment {
    ActionEnvironment {
        variables: NodeEnvVars::own(&config.secret_env_names),
        guard,
        resolver: DnsResolver::default(),
        circuits: CircuitBreakers::default(),
        #[cfg(feature = "nats")]
        servers: NatsConnections::default(),
    }
}

/// Serves the admin port until `closing`. Of each request, the router and the trusted proxies are those of that moment.
fn serve_admin(
    listener: PortListener,
    (router, port): (CurrentRouter, CurrentIngest),
    connections: usize,
    closing: CancellationToken,
) -> JoinHandle<()> {
    let ask = move |mut request: ::http::Request<hyper::body::Incoming>, peer: PeerAddress| {
        let client = port.get().clients.client(peer.0, request.headers());
        request.extensions_mut().insert(PeerAddress(client));
        let router = router.get();
        async move { router.oneshot(request.map(axum::body::Body::new)).await.unwrap_or_else(|never| match never {}) }
    };
    let limits = ConnectionLimits { connections, drain_time: limits::ADMIN_CLOSE_TIME, ..ConnectionLimits::default() };
    tokio::spawn(accept::serve_with_peers(listener, ask, limits, closing))
}

fn address(listener: &PortListener) -> Result<SocketAddr, NodeStartError> {
    listener.address().map_err(|error| {
        NodeStartError::new(ErrorMessage::from(format!("a port has no address: {error}")).caused_by(error))
    })
}

/// Warns about events that would act again because a source was renamed or its identities changed, and about events
/// that wait for a removed route.
async fn warn_about_changes(store: &dyn Inspect, config: &Config) -> Result<(), StoreError> {
    let recipes = config.recipes();
    let before = store.recipes().await?;
    for change in recipe::changes(&before, &recipes) {
        warn!(target: "hookonce", why = change, "once");
    }
    let waiting = store.page(status_text::those_that_wait()).await?.events;
    for stranded in status_text::stranded(&waiting, &config.sources) {
        warn!(target: "hookonce", why = stranded, "route");
    }
    let lines =
        |recipes: &[IdentityRecipe]| recipes.iter().map(|recipe| (recipe.scope.clone(), recipe.once.clone())).collect();
    let (was, is): (Vec<_>, Vec<_>) = (lines(&before), lines(&recipes));
    if was == is {
        return Ok(());
    }
    let since = is_there_any(store, None).await?.then(|| store.now());
    store.set_recipes(recipe::remembered(&before, recipes, since)).await
}

/// Whether there is an event that was claimed before this time.
async fn is_there_any(store: &dyn Inspect, until: Option<Timestamp>) -> Result<bool, StoreError> {
    let page = store.page(EventQuery { until, limit: 1, ..EventQuery::default() }).await?;
    Ok(!page.events.is_empty() || page.next.is_some())
}

/// The sources whose deliveries are also looked up under the keys of an earlier version or config: those whose
/// identities changed while there were events, as long as one of these is kept.
async fn former_key_sources(store: &dyn Inspect, config: &Config) -> FormerKeyPolicy {
    let looked = async {
        let mut sources = HashMap::new();
        let recipes = store.recipes().await?;
        for source in &config.sources {
            let since = recipes.iter().find(|recipe| recipe.scope == *source.scope).map(|recipe| recipe.since);
            // A scope without a record was written by another node: nothing is known about it.
            let Some(until) = since.unwrap_or(Some(store.now())).map(|since| since + limits::UPGRADE_TAKES) else {
                continue;
            };
            if is_there_any(store, Some(until)).await? {
                sources.insert(source.name.clone(), until);
            }
        }
        Ok::<_, StoreError>(sources)
    };
    match looked.await {
        Ok(sources) if config.store.is_shared() => FormerKeyPolicy::Shared(Arc::new(sources)),
        Ok(sources) => FormerKeyPolicy::Of(Arc::new(sources)),
        Err(_) => FormerKeyPolicy::All,
    }
}

/// How long the events of its sources are kept.
fn retention_policies(config: &Config) -> RetentionPolicies {
    RetentionPolicies::of_sources(config.sources.iter().map(|source| &**source))
}

/// Publishes this node's sources and their retention in a shared store while it runs, for nodes that lack them.
async fn publish_retention(
    store: Arc<dyn Inspect>,
    keeps: watch::Receiver<RetentionPolicies>,
    draining: CancellationToken,
) {
    while draining.run_until_cancelled(tokio::time::sleep(limits::RETENTION_EVERY)).await.is_some() {
        let rows = keeps.borrow().rows(store.now());
        if let Err(error) = store.set_retention(rows).await {
            log::store_warning(&error);
        }
    }
}

/// Opens and prepares the store. If it becomes unreachable in between, waits for it, too.
async fn open_once(config: &Config, fence: &mut DataLossDetector) -> Result<Arc<dyn Inspect>, StoreOpenError> {
    let cannot = |error: StoreError| match error {
        StoreError::Down(_) | StoreError::Unsure(_) if config.store.is_shared() => {
            StoreOpenError::temporary(format!("{}: {error}", config.store)).caused_by(error)
        }
        _ => StoreOpenError::permanent(format!("{}: {error}", config.store)).caused_by(error),
    };
    let closed = |error| match error {
        DataLossCheckError::Store(error) => cannot(error),
        DataLossCheckError::Closed(closed) => closed,
    };
    fence.check_before_open(config).await.map_err(closed)?;
    let store = store::open::open_for(&config.store, OpenPurpose::Node(config.migrate)).await?;
    fence.check_after_open(&*store).await.map_err(closed)?;
    prepare(&*store, config).await.map_err(cannot)?;
    Ok(store)
}

/// Prepares the store for a config: the columns of its fields, its recipes, its retention.
async fn prepare(store: &dyn Inspect, config: &Config) -> Result<(), StoreError> {
    // Of names that `events` has anyway the config warns where a user chose them.
    let hidden = store.declare(declared(&config.sources)).await?;
    for name in hidden.iter().filter(|name| !is_event_column(name)) {
        let why = format!("the field {name} gets no column: `events` already has one of that name");
        warn!(target: "hookonce", why, "columns");
    }
    store.set_retention(retention_policies(config).rows(store.now())).await?;
    // Last: this also writes what the identities are made of now. A config that cannot be used must not leave that.
    warn_about_changes(store, config).await
}

/// Opens the store. While it does not respond, waits, logs that, and answers senders with 503.
async fn open(
    config: &Config,
    accepts: Option<&str>,
    ports: impl Iterator<Item = &PortListener>,
) -> Result<(Arc<dyn Inspect>, DataLossDetector), NodeStartError> {
    let mut fence =
        DataLossDetector::new(config, accepts).map_err(|cannot| NodeStartError::new(ErrorMessage::of(cannot)))?;
    let mut wait = STORE_WAIT;
    let ports: Vec<_> = ports.collect();
    let mut closed = None;
    let store = loop {
        match open_once(config, &mut fence).await {
            Ok(store) => break store,
            Err(StoreOpenError::Permanent(why)) => return Err(NodeStartError(why)),
            Err(StoreOpenError::Temporary(why)) => {
                if closed.is_none() {
                    closed = Some(UnavailablePorts::at(&ports)?);
                }
                let again_in_ms = log::millis(wait);
                log::rate_limited(
                    "store",
                    &why,
                    |times| warn!(target: "hookonce", why = &*why, again_in_ms, times, "store"),
                );
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(STORE_WAIT_MAX);
            }
        }
    };
    if let Some(closed) = closed {
        closed.open().await;
    }
    Ok((store, fence))
}

/// The ports of a node whose store is not ready yet: every request gets 503 with `Retry-After`.
struct UnavailablePorts {
    until: CancellationToken,
    ports: Vec<JoinHandle<()>>,
}

impl UnavailablePorts {
    fn at(ports: &[&PortListener]) -> Result<Self, NodeStartError> {
        let until = CancellationToken::new();
        let answer = |request: ::http::Request<hyper::body::Incoming>| async move {
            let alive = request.uri().path() == "/healthz";
            http_response::response(if alive { response::healthy() } else { http::closing(response::unavailable()) })
        };
        let serve = |port: &&PortListener| {
            let port = port.try_clone().map_err(|error| {
                NodeStartError::new(ErrorMessage::from(format!("a port cannot be shared: {error}")).caused_by(error))
            })?;
            Ok(tokio::spawn(accept::serve(port, answer, ConnectionLimits::default(), until.clone())))
        };
        let ports = ports.iter().map(serve).collect::<Result<_, NodeStartError>>()?;
        Ok(Self { until, ports })
    }

    /// Releases the ports.
    async fn open(self) {
        self.until.cancel();
        for port in self.ports {
            port.await.unwrap_or_default();
        }
    }
}

/// The first delay before an unresponsive store is tried again; it doubles.
const STORE_WAIT: Duration = Duration::from_millis(100);
/// Maximum delay.
const STORE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The declared fields of each source, and whether an identity uses them.
pub(crate) fn declared(sources: &[Arc<Source>]) -> Vec<DeclaredFields> {
    let fields = |source: &Source| {
        let identity = identity_fields(source);
        // The digest of a polled tag is what its event resolves to, which has a column.
        let resolved = match source.intake {
            Intake::Poll { digest } => digest.map(|ix| &source.fields.get(ix).name),
            Intake::Path | Intake::Stream(_) => None,
        };
        let fields = source.fields.iter().filter(|field| Some(&field.name) != resolved);
        fields.map(|field| (field.name.to_string(), identity.contains(&*field.name))).collect()
    };
    sources.iter().map(|source| DeclaredFields { source: source.name.clone(), fields: fields(source) }).collect()
}

fn identity_fields(source: &Source) -> BTreeSet<&str> {
    let named = source.once.per.iter().flat_map(|identity| match identity {
        Identity::Named(fields) => fields.as_slice(),
        Identity::Delivery | Identity::Message | Identity::Body | Identity::Signed | Identity::SignedText => &[],
    });
    let change = source.once.change.iter().flat_map(|change| change.of.iter().chain(&change.to));
    named.chain(change).map(|ix| &*source.fields.get(*ix).name).collect()
}
