//! One running node, put together from a config: the store, its batcher, the dispatcher, the gateway, and both ports.

use crate::action::resolve::Resolver;
use crate::action::{Environment, GuardProgram, Variables, action};
use crate::config::{Config, StoreAddress};
use crate::decide::limits;
use crate::decide::recipe;
use crate::decide::source::{Identity, Source, Sources};
use crate::decide::time::Duration;
use crate::decide::time::Timestamp;
use crate::dispatcher::{Dispatcher, Lane};
use crate::gateway::Gateway;
use crate::http::accept::{self, Limits};
use crate::http::admin::{self, Desk};
use crate::http::body::BodiesInFlight;
use crate::http::ingest::{Health, Ingest};
use crate::store::batch::Batcher;
use crate::store::clock::Clock;
use crate::store::memory::Memory;
use crate::store::{Store, StoreError};
use crate::telemetry::{self, Level};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// A node that runs.
pub struct Node {
    /// Where webhooks arrive.
    pub ingest: SocketAddr,
    /// The port for people.
    pub admin: SocketAddr,
    /// Who acts.
    pub dispatcher: Dispatcher,
    /// Where events are.
    pub store: Arc<dyn Store>,
    failed: watch::Receiver<Option<String>>,
    draining: CancellationToken,
    ports: Vec<JoinHandle<()>>,
}

/// Why a node could not start, in a sentence.
#[derive(Debug)]
pub struct CannotStart(String);

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotStart {}

impl Node {
    /// Starts a node. Both ports are taken and the store is open when this returns.
    pub async fn start(config: &Config, guard: GuardProgram) -> Result<Self, CannotStart> {
        let listener = bind(config.listen, "listen").await?;
        let admin_listener = bind(config.admin.listen, "admin.listen").await?;
        let (ingest, admin) = (address(&listener)?, address(&admin_listener)?);
        let lanes = lanes(config, guard)?;
        let (store, failed) = open(config).await?;
        notice(&*store, config).await?;
        let batch = Batcher::start(store.clone());
        let dispatcher = Dispatcher::new(store.clone(), batch.clone(), lanes);
        let draining = CancellationToken::new();
        let health = Health { draining: draining.clone(), store: store.clone() };
        let port = Ingest {
            sources: Arc::new(Sources::new(config.sources.iter().cloned())),
            gateway: Gateway::new(store.clone(), batch, dispatcher.clone()),
            flight: Arc::new(BodiesInFlight::default()),
            health: health.clone(),
        };
        let mut configured = config.admin.clone();
        configured.listen = admin;
        let desk = Desk { store: store.clone(), dispatcher: dispatcher.clone(), admin: Arc::new(configured), health };
        let router = admin::router(desk);
        let ask = move |request: http::Request<hyper::body::Incoming>| {
            let router = router.clone();
            async move { router.oneshot(request.map(axum::body::Body::new)).await.unwrap_or_else(|never| match never {}) }
        };
        if accept::allow_files(limits::CONNECTIONS_MAX).is_none_or(|files| files < limits::CONNECTIONS_MAX as u64) {
            telemetry::say(Level::Warn, "files", &[("why", "this process may open fewer files than connections")]);
        }
        dispatcher.run();
        let ports = vec![
            tokio::spawn(accept::serve(listener, move |r| port.clone().answer(r), Limits::default(), draining.clone())),
            tokio::spawn(accept::serve(admin_listener, ask, Limits::default(), draining.clone())),
        ];
        Ok(Self { ingest, admin, dispatcher, store, failed, draining, ports })
    }

    /// Waits until the store has stopped for good, and says why. Most never do.
    pub async fn broken(&self) -> String {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops: takes nothing new, lets what runs end for a while, then ends it; `hurry` shortens the wait.
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
        // The last requests may have handed over events that are now to be handed back.
        self.dispatcher.stop(limits::DRAIN_TIME).await;
    }
}

/// A node that was killed while it started a command leaves a child that holds its sockets for another moment: its
/// successor waits so long for the port.
const PORT_WAIT: Duration = Duration::from_secs(1);
/// How often it looks.
const PORT_LOOK: Duration = Duration::from_millis(10);

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, CannotStart> {
    let patience = tokio::time::Instant::now() + PORT_WAIT;
    let bound = loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && tokio::time::Instant::now() < patience => {
                tokio::time::sleep(PORT_LOOK).await;
            }
            bound => break bound,
        }
    };
    bound.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => "something else listens there; stop it, or choose another port",
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need more rights; choose another port",
            std::io::ErrorKind::AddrNotAvailable => "this machine has no such address",
            _ => "choose another address",
        };
        CannotStart(format!("cannot listen on {address} (`{key}`): {error}\nhint: {hint}"))
    })
}

fn address(listener: &TcpListener) -> Result<SocketAddr, CannotStart> {
    listener.local_addr().map_err(|error| CannotStart(format!("a port has no address: {error}")))
}

fn lanes(config: &Config, guard: GuardProgram) -> Result<Vec<Lane>, CannotStart> {
    let environment =
        Environment { variables: Variables::own(&config.secret_env_names), guard, resolver: Resolver::default() };
    let mut lanes = Vec::new();
    for source in &config.sources {
        for route in &source.routes {
            let plan = config.actions.get(&(source.name.clone(), route.name.clone()));
            let action = plan.map(|plan| action(plan.clone(), &environment)).transpose();
            let action = action.map_err(|cannot| {
                CannotStart(format!("the route {} of {} cannot act: {cannot}", route.name, source.name))
            })?;
            lanes.push(Lane::new(source.clone(), route.clone(), action));
        }
    }
    Ok(lanes)
}

/// Says what would act again because a source was renamed or its identities changed.
async fn notice(store: &dyn Store, config: &Config) -> Result<(), CannotStart> {
    let cannot = |error: StoreError| CannotStart(error.to_string());
    let recipes = config.recipes();
    let before = store.recipes().await.map_err(cannot)?;
    for change in recipe::changes(&before, &recipes) {
        telemetry::say(Level::Warn, "once", &[("why", &change)]);
    }
    if before == recipes { Ok(()) } else { store.remember(recipes).await.map_err(cannot) }
}

type Opened = (Arc<dyn Store>, watch::Receiver<Option<String>>);

async fn open(config: &Config) -> Result<Opened, CannotStart> {
    match &config.store {
        StoreAddress::Memory => {
            let never = watch::Sender::new(None).subscribe();
            Ok((Arc::new(Memory::new(Clock::wall(Timestamp::default()))), never))
        }
        #[cfg(feature = "sqlite")]
        StoreAddress::Sqlite(path) => {
            use crate::store::sqlite::{Access, Sqlite};
            let store = Sqlite::open(path, Access::Node).map_err(|error| CannotStart(error.to_string()))?;
            let taken = store.declare(&columns(&config.sources)).await;
            let taken = taken.map_err(|error| CannotStart(format!("{}: {error}", path.display())))?;
            for name in taken {
                let why = format!("the field {name} is no column of its own: `events` has one of that name");
                telemetry::say(Level::Warn, "columns", &[("why", &why)]);
            }
            let failed = store.failed();
            Ok((Arc::new(store), failed))
        }
        #[cfg(not(feature = "sqlite"))]
        StoreAddress::Sqlite(_) => Err(CannotStart("this hookonce was built without SQLite".into())),
    }
}

/// The declared fields of all sources, and whether an identity uses them.
#[cfg(feature = "sqlite")]
fn columns(sources: &[Arc<Source>]) -> Vec<(String, bool)> {
    let mut columns: Vec<(String, bool)> = Vec::new();
    for source in sources {
        let identity = identity_fields(source);
        for field in source.fields.iter() {
            let identifies = identity.contains(&*field.name);
            match columns.iter_mut().find(|(name, _)| **name == *field.name) {
                Some(known) => known.1 |= identifies,
                None => columns.push((field.name.to_string(), identifies)),
            }
        }
    }
    columns
}

#[cfg(feature = "sqlite")]
fn identity_fields(source: &Source) -> BTreeSet<&str> {
    let named = source.once.per.iter().flat_map(|identity| match identity {
        Identity::Named(fields) => fields.as_slice(),
        Identity::Delivery | Identity::Body => &[],
    });
    let change = source.once.change.iter().flat_map(|change| change.of.iter().chain(&change.to));
    named.chain(change).map(|ix| &*source.fields.get(*ix).name).collect()
}
