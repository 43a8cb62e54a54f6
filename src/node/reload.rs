//! A node gets another config while it runs: all of it, or none.
//!
//! ```text
//! read the file ─▶ may it change? ─▶ make its parts ─▶ prepare the store ─▶ metrics, lanes, gateway, admin port, tasks
//!                  └──────────── nothing has changed until here ────────┘   from now on; what has begun ends as it began
//! ```
//!
//! What belongs to one config: sources with their secrets, lanes with their actions, the tokens, the tasks of streams,
//! tags and catch-ups. What lives on: store, ports, batcher, permits of queues, circuit breakers, counters, sessions,
//! body budget, live streams, handovers, fetched keys.

use super::intakes::{SourceIntakes, WantedIntakes};
use super::parts::NodeParts;
use super::{NodeHandle, NodeRole, former_key_sources, is_guarded, prepare, retention_policies};
use crate::action::{ActionEnvironment, NodeEnvVars};
use crate::admin::reload::{ReloadError, ReloadSummary};
use crate::admin::{self, AdminState};
use crate::config::{Config, ListenAddress, LogFormat, MigrationMode, StateFolder, StoreAddress, TlsFiles};
use crate::decide::error_message::ErrorMessage;
use crate::decide::source::Sources;
use crate::decide::time::Duration;
use crate::engine::handover::Handovers;
use crate::ingress::http::{CurrentIngest, IngestState};
use crate::key_fetch::FetchedKeys;
use crate::observe::metrics::Metrics;
use crate::store::{RetentionPolicies, StoreError};
use axum::Router;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long the store may take to be prepared for a config.
const STORE_TIME: Duration = Duration::from_secs(20);

/// The settings that are read only at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FixedSettings {
    listen: ListenAddress,
    tls: Option<TlsFiles>,
    admin_listen: ListenAddress,
    admin_tls: Option<TlsFiles>,
    store: StoreAddress,
    migrate: MigrationMode,
    state: StateFolder,
    log: LogFormat,
}

impl FixedSettings {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            listen: config.listen.clone(),
            tls: config.tls.clone(),
            admin_listen: config.admin.listen.clone(),
            admin_tls: config.admin.tls.clone(),
            store: config.store.clone(),
            migrate: config.migrate,
            state: config.state.clone(),
            log: config.log,
        }
    }

    /// The keys that are different.
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let all = [
            ("listen", self.listen != other.listen),
            ("tls", self.tls != other.tls),
            ("admin.listen", self.admin_listen != other.admin_listen),
            ("admin.tls", self.admin_tls != other.admin_tls),
            ("store", self.store != other.store),
            ("migrate", self.migrate != other.migrate),
            ("state", self.state != other.state),
            ("log", self.log != other.log),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// The admin port's router as it is configured now. Cheap to clone.
#[derive(Clone)]
pub(super) struct CurrentRouter(Arc<RwLock<Router>>);

impl CurrentRouter {
    pub(super) fn new(state: AdminState) -> Self {
        Self(Arc::new(RwLock::new(admin::router(state))))
    }

    /// The router for a request that begins now.
    pub(super) fn get(&self) -> Router {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, state: AdminState) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = admin::router(state);
    }
}

/// What of a node depends on its config.
pub(super) struct ConfiguredNode {
    pub(super) does: NodeRole,
    pub(super) fixed: FixedSettings,
    pub(super) environment: ActionEnvironment,
    pub(super) metrics: Arc<Metrics>,
    pub(super) port: CurrentIngest,
    pub(super) desk: AdminState,
    pub(super) router: CurrentRouter,
    pub(super) handovers: Arc<Handovers>,
    pub(super) fetched_keys: HashMap<Arc<str>, Arc<FetchedKeys>>,
    pub(super) intakes: SourceIntakes,
    /// How long the events of its sources are kept.
    pub(super) retention: watch::Sender<RetentionPolicies>,
}

impl NodeHandle {
    /// Uses this config from now on, or stays as it is and says why.
    pub(crate) async fn reload(&mut self, config: &Config) -> Result<ReloadSummary, ReloadError> {
        let Self { configured: now, store, dispatcher, admin, .. } = self;
        let keys = now.fixed.differences(&FixedSettings::of(config));
        if !keys.is_empty() {
            return Err(ReloadError::NeedsRestart(keys));
        }
        is_guarded(config, *admin).map_err(|cannot| ReloadError::Cannot(ErrorMessage::of(cannot)))?;
        let variables = NodeEnvVars::own(&config.secret_env_names);
        let environment = ActionEnvironment { variables, ..now.environment.clone() };
        for (source, keys) in &config.fetched_keys {
            now.fetched_keys.get(source).into_iter().for_each(|former| keys.inherit(former));
        }
        let parts = NodeParts::new(config, now.does, &environment);
        let mut parts = parts.map_err(|cannot| ReloadError::Cannot(ErrorMessage::of(cannot)))?;
        let prepared = timeout(STORE_TIME, prepare(&**store, config)).await;
        prepared.unwrap_or_else(|_| Err(late())).map_err(|error| {
            ReloadError::Cannot(ErrorMessage::from(format!("{}: {error}", config.store)).caused_by(error))
        })?;
        let former_keys = former_key_sources(&**store, config).await;
        // Nothing below can fail.
        now.metrics.configure(&config.sources);
        now.retention.send_replace(retention_policies(config));
        let wanted = WantedIntakes::take(&mut parts);
        dispatcher.reconfigure(parts.lanes).await;
        let handovers = Handovers::new(&config.sources, &config.secret_files).following(&now.handovers);
        now.handovers = Arc::new(handovers);
        let port = now.port.get();
        let gateway = port.gateway.reconfigured();
        now.port.replace(IngestState {
            sources: Arc::new(Sources::new(config.sources.iter().cloned())),
            gateway: gateway.looking_for(former_keys).fetching(parts.key_fetchers).handing_over(now.handovers.clone()),
            flight: port.flight.clone(),
            health: port.health.clone(),
            clients: port.clients.reconfigured(&config.clients),
        });
        now.desk = now.desk.reconfigured(config, now.handovers.clone());
        now.router.replace(now.desk.clone());
        if now.does != NodeRole::Work {
            now.intakes.follow(wanted).await;
        }
        now.fetched_keys.clone_from(&config.fetched_keys);
        now.environment = environment;
        Ok(ReloadSummary {
            sources: config.sources.len(),
            routes: config.sources.iter().map(|source| source.routes.len()).sum(),
            warnings: config.warnings.clone(),
        })
    }
}

fn late() -> StoreError {
    StoreError::Down(format!("it did not respond within {} s", STORE_TIME.as_secs()).into())
}
