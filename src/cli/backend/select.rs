//! Choice of the backend: the one named on the command line, else the config's node if it responds, else its store.

use super::{AdminClient, EventBackend, LocalBackend};
use crate::cli::error::CommandError;
use crate::config::{self, EnvLookup, NodeAddresses, SecretRequirement, StoreAddress};
use crate::decide::error_message::ErrorMessage;
use crate::decide::source::Source;
use crate::store::open::{OpenPurpose, StoreUrlError, open_for, server_addresses};
use crate::store::retention::NodeTopology;
use crate::store::{Inspect, RetentionPolicies};
use clap::Args;
use reqwest::StatusCode;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The environment variable with the admin token.
const TOKEN: &str = "HOOKONCE_ADMIN_TOKEN";

/// Where to ask about events; with neither a store nor an address, the config decides
#[derive(Args, Debug, Default)]
pub(crate) struct BackendArgs {
    /// Config file [default: `HOOKONCE_CONFIG`, ./hookonce.toml, or /etc/hookonce/hookonce.toml]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(long, value_name = "STORE", conflicts_with = "admin", help = concat!("Read this store directly: `sqlite:PATH` or a path, ", server_addresses!()))]
    pub store: Option<String>,
    /// Ask the node with this admin port, such as `http://127.0.0.1:3143`
    #[arg(long, value_name = "URL")]
    pub admin: Option<String>,
    /// Environment variable with the admin token
    #[arg(long, value_name = "NAME", default_value = TOKEN)]
    pub token_env: String,
}

/// What a backend is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BackendPurpose {
    /// To read.
    Read,
    /// To change an event.
    Write,
    /// To forget expired events: needs the retention of each source.
    Sweep,
}

impl BackendArgs {
    /// Opens the backend.
    pub(crate) async fn open(&self, purpose: BackendPurpose, env: EnvLookup<'_>) -> Result<EventBackend, CommandError> {
        if let Some(address) = &self.admin {
            return AdminClient::new(address, self.token(env)?.as_deref()).map(EventBackend::Admin);
        }
        if let Some(store) = &self.store {
            return self.open_local(&named_store(store)?, purpose, env, "").await.map(EventBackend::Store);
        }
        let addresses = config::addresses(&config::find(self.config.as_deref(), env)?, env)?;
        let admin = connect_address(addresses.admin);
        if let Some(port) = self.running_node(&addresses, purpose, env).await? {
            return Ok(EventBackend::Admin(port));
        }
        match &addresses.store {
            StoreAddress::Memory => Err(CommandError::unknown(format!(
                "the config keeps events in memory, and no node responds at {admin}"
            ))),
            address => self
                .open_local(address, purpose, env, &format!(", but no node responds at {admin}"))
                .await
                .map(EventBackend::Store),
        }
    }

    /// The admin port of a running node; a store cannot be followed.
    pub(crate) async fn admin_client(&self, env: EnvLookup<'_>) -> Result<AdminClient, CommandError> {
        if self.store.is_some() {
            return Err(CommandError::unknown(
                "only a running node can be followed; name it with --admin instead of --store",
            ));
        }
        if self.admin.is_some() {
            return match self.open(BackendPurpose::Read, env).await? {
                EventBackend::Admin(port) => Ok(port),
                EventBackend::Store(_) => unreachable!("an address leads to a port"),
            };
        }
        let addresses = config::addresses(&config::find(self.config.as_deref(), env)?, env)?;
        match self.running_node(&addresses, BackendPurpose::Write, env).await? {
            Some(port) => Ok(port),
            None => Err(CommandError::unknown(format!(
                "no node responds at {}; start one with `hookonce serve`, or name its address with --admin",
                connect_address(addresses.admin)
            ))),
        }
    }

    /// The config's node, if it runs and accepts our token. To read, the store will do as well.
    async fn running_node(
        &self,
        found: &NodeAddresses,
        purpose: BackendPurpose,
        env: EnvLookup<'_>,
    ) -> Result<Option<AdminClient>, CommandError> {
        if found.admin.port() == 0 {
            return Ok(None);
        }
        let own = found.token.as_ref().and_then(|token| std::str::from_utf8(token.expose()).ok().map(str::to_owned));
        let token = self.token(env)?.or(own);
        let port = AdminClient::with_certificate(
            &connect_address(found.admin).to_string(),
            token.as_deref(),
            found.tls.as_ref(),
        )?;
        let in_memory = found.store == StoreAddress::Memory;
        Ok(match port.probe().await {
            None => None,
            Some(StatusCode::OK) => Some(port),
            Some(_) if purpose == BackendPurpose::Read && !in_memory => None,
            Some(_) => Some(port), // the response to the command itself will say what is wrong
        })
    }

    fn token(&self, env: EnvLookup<'_>) -> Result<Option<String>, CommandError> {
        match env(&self.token_env).filter(|token| !token.is_empty()) {
            None if self.token_env != TOKEN => Err(CommandError::unknown(format!(
                "the environment variable `{}` is not set; it should hold the admin port's token",
                self.token_env
            ))),
            token => Ok(token),
        }
    }

    async fn open_local(
        &self,
        address: &StoreAddress,
        purpose: BackendPurpose,
        env: EnvLookup<'_>,
        no_node: &str,
    ) -> Result<LocalBackend, CommandError> {
        let keeps = Arc::new(if purpose == BackendPurpose::Sweep {
            self.retention(env)?
        } else {
            RetentionPolicies::default()
        });
        let store = match address {
            #[cfg(feature = "sqlite")]
            StoreAddress::Sqlite(path) => open_sqlite(path, purpose, no_node)?,
            _ => {
                let to = if purpose == BackendPurpose::Read { OpenPurpose::Look } else { OpenPurpose::Tool };
                open_for(address, to).await.map_err(|cannot| CommandError::unknown(ErrorMessage::of(cannot)))?
            }
        };
        let sources = if purpose == BackendPurpose::Write { self.sources_of(address, env) } else { Vec::new() };
        Ok(LocalBackend { store, keeps, nodes: NodeTopology::of(address), sources })
    }

    /// The sources of the config, if this store is the config's. A command also works without them, and beside a config
    /// that has errors.
    fn sources_of(&self, store: &StoreAddress, env: EnvLookup<'_>) -> Vec<Arc<Source>> {
        let Ok(path) = config::find(self.config.as_deref(), env) else { return Vec::new() };
        match config::load_with(&path, SecretRequirement::Optional, env) {
            Ok(config) if is_same_store(&config.store, store) => config.sources,
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// Retention of the config's sources; for other sources the store has it.
    fn retention(&self, env: EnvLookup<'_>) -> Result<RetentionPolicies, CommandError> {
        let config::Config { sources, .. } = config::load(&config::find(self.config.as_deref(), env)?, env)?;
        Ok(RetentionPolicies::of_sources(sources.iter().map(|source| &**source)))
    }
}

/// Opens an SQLite store. A command that writes takes the file's lock, which a running node holds; reading needs none.
#[cfg(feature = "sqlite")]
fn open_sqlite(
    path: &std::path::Path,
    purpose: BackendPurpose,
    no_node: &str,
) -> Result<Arc<dyn Inspect>, CommandError> {
    use crate::store::sqlite::{SqliteAccess, SqliteOpenError, SqliteStore};
    let cannot = |error: SqliteOpenError| {
        let running = format!(
            "{} is locked by a running node{no_node}; name its admin port with --admin, or stop it first",
            path.display()
        );
        let why = if error.is_in_use() { running } else { error.to_string() };
        CommandError::unknown(ErrorMessage::from(why).caused_by(error))
    };
    // Read first: a missing file must not be created, and a foreign one must not get a lock file beside it.
    let reading = SqliteStore::open(path, SqliteAccess::Read).map_err(cannot)?;
    let store = match purpose {
        BackendPurpose::Read => reading,
        BackendPurpose::Write | BackendPurpose::Sweep => {
            drop(reading);
            SqliteStore::open(path, SqliteAccess::Tool).map_err(cannot)?
        }
    };
    Ok(Arc::new(store))
}

/// The store with this address, or the SQLite file at this path.
fn named_store(store: &str) -> Result<StoreAddress, CommandError> {
    let cannot = |why: &str| Err(CommandError::unknown(format!("`{store}` cannot be opened: {why}")));
    match (StoreAddress::parse(store, Path::new("")), store.split_once(':')) {
        (Ok(StoreAddress::Memory), _) => {
            cannot("a memory store exists only inside its node; name the node with --admin")
        }
        (Ok(address), _) => Ok(address),
        _ if store.is_empty() => cannot("it is empty; expected sqlite:PATH"),
        (_, Some(("sqlite", ""))) => cannot("the path is missing; expected sqlite:PATH"),
        (_, Some((_, rest))) if rest.starts_with("//") => cannot(&StoreUrlError.to_string()),
        _ => Ok(StoreAddress::Sqlite(store.into())),
    }
}

/// Whether two addresses are of one store. A path may be written in several ways.
fn is_same_store(one: &StoreAddress, other: &StoreAddress) -> bool {
    match (one, other) {
        (StoreAddress::Sqlite(one), StoreAddress::Sqlite(other)) => {
            let file = |path: &Path| path.canonicalize().ok();
            file(one).is_some() && file(one) == file(other)
        }
        _ => one == other,
    }
}

/// An address to connect to: the loopback address if the node listens on all.
pub(in crate::cli) fn connect_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_url_or_by_its_path_alone() {
        for (text, path) in [("sqlite:a.db", "a.db"), ("a.db", "a.db"), ("/a/b.db", "/a/b.db"), ("a:b.db", "a:b.db")] {
            assert_eq!(named_store(text).unwrap(), StoreAddress::Sqlite(path.into()));
        }
        assert_eq!(named_store("postgres://u:p@h/d").unwrap().to_string(), "postgres://u@h/d");
        for text in ["", "sqlite:", "memory:", "postgres://", "mysql://h/d"] {
            assert!(matches!(named_store(text), Err(CommandError::Unknown(_))), "{text}");
        }
    }

    #[test]
    fn what_listens_everywhere_is_asked_here() {
        for (listen, asked) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")] {
            assert_eq!(connect_address(listen.parse().unwrap()).to_string(), asked);
        }
    }
}
