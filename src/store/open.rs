//! Opening a store by its address.

use super::clock::StoreClock;
use super::copy::{CopySide, CopyStore};
use super::memory::MemoryStore;
#[cfg(any(feature = "postgres", feature = "redis"))]
use super::optimistic::VersionedBackend;
use super::url::StoreUrl;
use super::{Inspect, StoreOpenError};
use crate::decide::time::Timestamp;
use std::path::Path;
use std::sync::Arc;

/// What a store is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenPurpose {
    /// By a node.
    Node(MigrationMode),
    /// By a command that writes.
    Tool,
    /// By a command that only looks.
    Look,
    /// By a copy, from it or into it.
    Copy(CopySide),
}

/// Who brings an older schema up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MigrationMode {
    /// The first node that starts.
    #[default]
    Auto,
    /// A person, with `hookonce migrate up`; until then no node starts.
    Manual,
}

/// Opens a store to copy from it, or into it. A source must be there; a target is made if it is not.
pub async fn open_to_copy(address: &StoreUrl, side: CopySide) -> Result<Box<dyn CopyStore>, StoreOpenError> {
    match address {
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => {
            use super::sqlite::{SqliteAccess, SqliteOpenError, SqliteStore, open_file};
            let cannot = |error: SqliteOpenError| StoreOpenError::Permanent(error.to_string());
            if side == CopySide::Source {
                drop(open_file(path, SqliteAccess::Read).map_err(cannot)?); // what is not there is not made, nor its lock
            }
            Ok(Box::new(SqliteStore::open(path, SqliteAccess::Copy).map_err(cannot)?))
        }
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => Ok(Box::new(postgres(url, OpenPurpose::Copy(side)).await?)),
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => {
            if side == CopySide::Source && super::redis::RedisStore::is_empty(url.expose()).await? {
                return Err(StoreOpenError::Permanent(format!(
                    "{address} holds no store; check the URL and its `prefix`"
                )));
            }
            Ok(Box::new(redis(url, OpenPurpose::Copy(side)).await?))
        }
        StoreUrl::Memory => Err(StoreOpenError::Permanent(format!(
            "a store in memory cannot be the {side} of a copy: it ends with its node. Expected sqlite:PATH, \
             postgres://HOST/DATABASE or redis://HOST"
        ))),
        #[allow(unreachable_patterns, reason = "with every feature there is none that is left")]
        _ => Err(StoreOpenError::Permanent(format!("this hookonce was built without what {address} needs"))),
    }
}

/// A store that is part of a copy is not used. One that was copied away may still be looked at.
#[cfg(any(feature = "postgres", feature = "redis"))]
async fn whole(
    shelf: impl VersionedBackend + Inspect,
    address: &StoreUrl,
    to: OpenPurpose,
) -> Result<Arc<dyn Inspect>, StoreOpenError> {
    use super::copy::{self, CopyLock};
    match copy::mark_of(&shelf).await {
        Ok(None) => Ok(Arc::new(shelf)),
        Ok(Some(CopyLock::Source { .. } | CopyLock::Retired { .. })) if to == OpenPurpose::Look => Ok(Arc::new(shelf)),
        Ok(Some(mark)) => Err(StoreOpenError::Permanent(mark.refusal(address))),
        Err(error) => Err(StoreOpenError::Temporary(format!("{address}: {error}"))),
    }
}

#[cfg(feature = "postgres")]
async fn postgres(
    url: &crate::store::url::ServerUrl,
    to: OpenPurpose,
) -> Result<super::postgres::PostgresStore, StoreOpenError> {
    use super::postgres::{PostgresOptions, PostgresStore, SchemaMode};
    let schema = match to {
        OpenPurpose::Node(MigrationMode::Auto) | OpenPurpose::Copy(CopySide::Target) => SchemaMode::Auto,
        OpenPurpose::Node(MigrationMode::Manual) | OpenPurpose::Tool | OpenPurpose::Copy(CopySide::Source) => {
            SchemaMode::Manual
        }
        OpenPurpose::Look => SchemaMode::Read,
    };
    let options = PostgresOptions { clock: StoreClock::server(), schema };
    match to {
        OpenPurpose::Copy(_) => PostgresStore::open_to_copy(url.expose(), options).await,
        OpenPurpose::Node(_) | OpenPurpose::Tool | OpenPurpose::Look => {
            PostgresStore::open(url.expose(), options).await
        }
    }
}

#[cfg(feature = "redis")]
async fn redis(
    url: &crate::store::url::ServerUrl,
    to: OpenPurpose,
) -> Result<super::redis::RedisStore, StoreOpenError> {
    use super::redis::{RedisAccess, RedisOptions, RedisStore};
    let access = match to {
        OpenPurpose::Node(_) | OpenPurpose::Tool => RedisAccess::Node,
        OpenPurpose::Copy(_) => RedisAccess::Copy,
        OpenPurpose::Look => RedisAccess::Read,
    };
    RedisStore::open(url.expose(), RedisOptions { clock: StoreClock::server(), access }).await
}

/// What tells a store from others, whoever connects to it: where it is, and what it is called there. `None` for one that
/// needs no fence.
pub fn identity(address: &StoreUrl) -> Result<Option<(String, String)>, StoreOpenError> {
    match address {
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => super::postgres::PostgresStore::identity(url.expose()).map(Some),
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => super::redis::RedisStore::identity(url.expose()).map(Some),
        _ => Ok(None),
    }
}

/// Does the server at this address answer, and hold nothing of a store?
pub async fn is_empty(address: &StoreUrl) -> Result<bool, StoreOpenError> {
    match address {
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => {
            let behind = super::postgres::PostgresStore::behind(url.expose()).await?;
            Ok(behind.first().is_some_and(|first| first.version == 1))
        }
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => super::redis::RedisStore::is_empty(url.expose()).await,
        _ => Ok(false),
    }
}

/// Opens the store at this address: `memory:`, `sqlite:PATH`, `postgres://…` or `redis://…`, as far as the features
/// of that name are on. An older schema is brought up to date.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let store = hookonce::store::open("memory:").await?;
/// # drop(store); Ok::<_, hookonce::store::StoreOpenError>(()) }).unwrap();
/// ```
pub async fn open(address: &str) -> Result<Arc<dyn Inspect>, StoreOpenError> {
    match StoreUrl::parse(address, Path::new("")) {
        Ok(address) => {
            let store = open_for(&address, OpenPurpose::Node(MigrationMode::Auto)).await?;
            let begun = store.begin_fence(Vec::new()).await;
            begun.map_err(|error| StoreOpenError::Temporary(format!("{address}: {error}")))?;
            Ok(store)
        }
        Err(no_address) => {
            // The kind alone is said: what follows it may hold a password.
            let kind = address.split_once(':').map_or("", |(kind, _)| kind);
            Err(StoreOpenError::Permanent(format!("no store is known by an address of kind `{kind}:`; {no_address}")))
        }
    }
}

/// Opens the store at this address for this use.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "redis")),
    expect(unused_variables, reason = "memory is the same for every use")
)]
pub async fn open_for(address: &StoreUrl, to: OpenPurpose) -> Result<Arc<dyn Inspect>, StoreOpenError> {
    match address {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(StoreClock::wall(Timestamp::default())))),
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => sqlite(path, to).await,
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => whole(postgres(url, to).await?, address, to).await,
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => whole(redis(url, to).await?, address, to).await,
        #[allow(unreachable_patterns, reason = "with every feature there is none that is left")]
        _ => Err(StoreOpenError::Permanent(format!("this hookonce was built without what {address} needs"))),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &Path, to: OpenPurpose) -> Result<Arc<dyn Inspect>, StoreOpenError> {
    use super::schema::{self, sqlite as migrations};
    use super::sqlite::{SqliteAccess, SqliteOpenError, SqliteStore, open_file};
    let cannot = |error: SqliteOpenError| StoreOpenError::Permanent(error.to_string());
    if to == OpenPurpose::Node(MigrationMode::Manual) && path.exists() {
        let db = open_file(path, SqliteAccess::Read).map_err(cannot)?.db;
        let applied = migrations::applied(&db).map_err(|error| StoreOpenError::Permanent(error.to_string()))?;
        let way = schema::way_up(migrations::MIGRATIONS, &applied, None);
        if !way.map_err(|refused| StoreOpenError::Permanent(refused.to_string()))?.is_empty() {
            return Err(older(&format!("the schema of {}", path.display())));
        }
    }
    let access = match to {
        OpenPurpose::Node(_) => SqliteAccess::Node,
        OpenPurpose::Tool => SqliteAccess::Tool,
        OpenPurpose::Look => SqliteAccess::Read,
        OpenPurpose::Copy(_) => SqliteAccess::Copy,
    };
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&path, access)).await;
    match opened {
        Ok(opened) => Ok(Arc::new(opened.map_err(cannot)?)),
        Err(error) => Err(StoreOpenError::Temporary(error.to_string())),
    }
}

/// An old schema that nobody may bring up to date by starting a node.
pub fn older(what: &str) -> StoreOpenError {
    StoreOpenError::Permanent(format!(
        "{what} is older than this hookonce, and the config says migrate = \"manual\"\n\
         hint: run `hookonce migrate up`, then start again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(address: &str, expected: &str) {
        let why = open(address).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains(expected), "{address}: {why}");
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_told_what_one_is_and_keeps_its_password() {
        assert!(open("memory:").await.is_ok());
        check("", "expected memory:, sqlite:PATH").await;
        check("sqlite:", "expected memory:").await;
        check("sqlite://x", "expected memory:").await;
        check("oracle://u:secret@h", "kind `oracle:`").await;
        let why = open("oracle://u:secret@h").await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!why.contains("secret"), "{why}");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_is_opened_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let address = format!("sqlite:{}", dir.path().join("once.db").display());
        let store = open(&address).await.expect("a store");
        check(&address, "is in use by another").await;
        drop(store);
        assert!(open(&address).await.is_ok());
    }
}
