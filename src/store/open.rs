//! The URLs of stores (`memory:`, `sqlite:PATH`, `postgres://…`, `redis://…`), and opening them: every difference
//! between the kinds of stores that matters outside of their folders.

use super::clock::StoreClock;
use super::copy::{CopySide, CopyStore};
use super::memory::MemoryStore;
#[cfg(feature = "shared-store")]
use super::optimistic::VersionedBackend;
use super::schema::Migration;
use super::url::ServerUrl;
use super::{Inspect, StoreOpenError};
use crate::decide::error_message::ErrorMessage;
use crate::decide::sql_template::SqlDialect;
use crate::decide::time::Timestamp;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The addresses of stores, for messages.
macro_rules! store_addresses {
    () => {
        "memory:, sqlite:PATH, postgres://HOST/DATABASE or redis://HOST"
    };
}

/// The addresses of stores on servers, for help texts.
#[cfg(feature = "node")]
macro_rules! server_addresses {
    () => {
        "`postgres://…`, `redis://…`"
    };
}

#[cfg(feature = "node")]
pub(crate) use {server_addresses, store_addresses};

/// The addresses of the stores that outlive their node, for messages.
pub(crate) fn durable_addresses() -> &'static str {
    store_addresses!().trim_start_matches("memory:, ")
}

/// The parsed URL of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreUrl {
    /// In memory: lost when the node ends.
    Memory,
    /// In this file.
    Sqlite(PathBuf),
    /// In PostgreSQL.
    Postgres(ServerUrl),
    /// In Redis or Valkey.
    Redis(ServerUrl),
}

/// The text is not the URL of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreUrlError;

impl fmt::Display for StoreUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", store_addresses!())
    }
}

impl std::error::Error for StoreUrlError {}

impl StoreUrl {
    /// Parses a URL; a relative path is resolved against `base`.
    pub fn parse(text: &str, base: &Path) -> Result<Self, StoreUrlError> {
        let (kind, rest) = text.split_once(':').ok_or(StoreUrlError)?;
        let server = || ServerUrl::parse(text).ok_or(StoreUrlError);
        match kind {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "sqlite" if !rest.is_empty() && !rest.starts_with("//") && !rest.contains('\0') => {
                Ok(Self::Sqlite(base.join(rest)))
            }
            "postgres" | "postgresql" => server().map(Self::Postgres),
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+sentinel" | "rediss+sentinel" | "valkey+sentinel"
            | "valkeys+sentinel" => server().map(Self::Redis),
            _ => Err(StoreUrlError),
        }
    }

    /// The SQL dialect that statements in its transactions have; `None` if it runs none.
    pub fn sql_dialect(&self) -> Option<SqlDialect> {
        match self {
            Self::Sqlite(_) => Some(SqlDialect::Sqlite),
            Self::Postgres(_) => Some(SqlDialect::Postgres),
            Self::Memory | Self::Redis(_) => None,
        }
    }

    /// The address, and what a person should know of it.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Memory => "memory: (lost when the node stops)".to_owned(),
            Self::Sqlite(_) | Self::Postgres(_) | Self::Redis(_) => self.to_string(),
        }
    }

    /// Whether nodes on other machines can share it.
    pub fn is_shared(&self) -> bool {
        self.server().is_some()
    }

    /// The URL of its server, if it is on one.
    pub fn server(&self) -> Option<&ServerUrl> {
        match self {
            Self::Postgres(url) | Self::Redis(url) => Some(url),
            Self::Memory | Self::Sqlite(_) => None,
        }
    }

    /// Whether it has tables, whose schema may be older than this version.
    pub(crate) fn has_schema(&self) -> bool {
        match self {
            Self::Sqlite(_) | Self::Postgres(_) => true,
            Self::Memory | Self::Redis(_) => false,
        }
    }

    /// The words for the kinds of stores.
    pub(crate) const WORDS: [&str; 4] = ["memory", "sqlite", "postgres", "redis"];

    /// The word for its kind.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
            Self::Redis(_) => "redis",
        }
    }

    /// How its free space returns to the disk, if not by `hookonce vacuum`.
    pub(crate) fn vacuum_advice(&self) -> String {
        match self {
            Self::Postgres(_) => {
                "PostgreSQL reuses free space automatically (autovacuum); `VACUUM FULL` on the server \
                                  returns it to the disk, and locks each table meanwhile"
                    .to_owned()
            }
            Self::Memory | Self::Sqlite(_) | Self::Redis(_) => {
                format!("{self} is not a file of hookonce; there is nothing to shrink")
            }
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) | Self::Redis(url) => fmt::Display::fmt(url, f),
        }
    }
}

/// The purpose of opening a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenPurpose {
    /// A node.
    Node(MigrationMode),
    /// A command that writes.
    Tool,
    /// A command that only reads.
    Look,
    /// A copy, as its source or target.
    Copy(CopySide),
}

/// Which process migrates an older schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MigrationMode {
    /// The first node that starts.
    #[default]
    Auto,
    /// An operator, with `hookonce migrate up`; until then no node starts.
    Manual,
}

/// Opens a store as the source or target of a copy. The source must exist; the target is created if it does not.
pub async fn open_to_copy(address: &StoreUrl, side: CopySide) -> Result<Box<dyn CopyStore>, StoreOpenError> {
    match address {
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => {
            use super::sqlite::{SqliteAccess, SqliteOpenError, SqliteStore, open_file};
            let cannot = |error: SqliteOpenError| StoreOpenError::Permanent(ErrorMessage::of(error));
            if side == CopySide::Source {
                drop(open_file(path, SqliteAccess::Read).map_err(cannot)?); // fail before a missing file or its lock is created
            }
            Ok(Box::new(SqliteStore::open(path, SqliteAccess::Copy).map_err(cannot)?))
        }
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => Ok(Box::new(postgres(url, OpenPurpose::Copy(side)).await?)),
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => {
            if side == CopySide::Source && super::redis::RedisStore::is_empty(url.expose()).await? {
                return Err(StoreOpenError::permanent(format!(
                    "{address} holds no store; check the URL and its `prefix`"
                )));
            }
            Ok(Box::new(redis(url, OpenPurpose::Copy(side)).await?))
        }
        StoreUrl::Memory => Err(StoreOpenError::permanent(format!(
            "a store in memory cannot be the {side} of a copy: it ends with its node. Expected {}",
            durable_addresses()
        ))),
        #[allow(unreachable_patterns, reason = "unreachable with every feature on")]
        _ => Err(StoreOpenError::permanent(format!("this hookonce was built without what {address} needs"))),
    }
}

/// Refuses a store that is part of a copy. The source of a finished copy may still be read.
#[cfg(feature = "shared-store")]
async fn whole(
    shelf: impl VersionedBackend + Inspect,
    address: &StoreUrl,
    to: OpenPurpose,
) -> Result<Arc<dyn Inspect>, StoreOpenError> {
    use super::copy::{self, CopyRole};
    match copy::mark_of(&shelf).await {
        Ok(None) => Ok(Arc::new(shelf)),
        Ok(Some(CopyRole::Source { .. } | CopyRole::Retired { .. })) if to == OpenPurpose::Look => Ok(Arc::new(shelf)),
        Ok(Some(mark)) => Err(StoreOpenError::permanent(mark.refusal(address))),
        Err(error) => Err(StoreOpenError::temporary(format!("{address}: {error}")).caused_by(error)),
    }
}

#[cfg(feature = "postgres")]
async fn postgres(url: &ServerUrl, to: OpenPurpose) -> Result<super::postgres::PostgresStore, StoreOpenError> {
    use super::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
    let schema = match to {
        OpenPurpose::Node(MigrationMode::Auto) | OpenPurpose::Copy(CopySide::Target) => SchemaMode::Auto,
        OpenPurpose::Node(MigrationMode::Manual) | OpenPurpose::Tool | OpenPurpose::Copy(CopySide::Source) => {
            SchemaMode::Manual
        }
        OpenPurpose::Look => SchemaMode::Read,
    };
    let options = PostgresOpenOptions { clock: StoreClock::server(), schema };
    match to {
        OpenPurpose::Copy(_) => PostgresStore::open_to_copy(url.expose(), options).await,
        OpenPurpose::Node(_) => {
            let store = PostgresStore::open(url.expose(), options).await?;
            store.log_missing_version();
            Ok(store)
        }
        OpenPurpose::Tool | OpenPurpose::Look => PostgresStore::open(url.expose(), options).await,
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &ServerUrl, to: OpenPurpose) -> Result<super::redis::RedisStore, StoreOpenError> {
    use super::redis::{RedisAccess, RedisOpenOptions, RedisStore};
    let access = match to {
        OpenPurpose::Node(_) | OpenPurpose::Tool => RedisAccess::Node,
        OpenPurpose::Copy(_) => RedisAccess::Copy,
        OpenPurpose::Look => RedisAccess::Read,
    };
    RedisStore::open(url.expose(), RedisOpenOptions { clock: StoreClock::server(), access }).await
}

/// The server and the store's name on it, independent of how a client connects. `None` for a store that needs no fence.
pub fn identity(address: &StoreUrl) -> Result<Option<(String, String)>, StoreOpenError> {
    match address {
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => super::postgres::PostgresStore::identity(url.expose()).map(Some),
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => super::redis::RedisStore::identity(url.expose()).map(Some),
        _ => Ok(None),
    }
}

/// What is at the address of a store.
pub(crate) enum StoreContents {
    /// A store of this version; or a file, or memory, which are not looked at.
    Store,
    /// A store whose schema lacks these migrations.
    OlderSchema(Vec<&'static Migration>),
    /// Nothing of a store.
    Empty,
}

/// Asks the server at this address what it holds of a store.
pub(crate) async fn contents(address: &StoreUrl) -> Result<StoreContents, StoreOpenError> {
    match address {
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => {
            let behind = super::postgres::PostgresStore::behind(url.expose()).await?;
            Ok(match behind.first() {
                None => StoreContents::Store,
                Some(first) if first.version == 1 => StoreContents::Empty,
                Some(_) => StoreContents::OlderSchema(behind),
            })
        }
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) if super::redis::RedisStore::is_empty(url.expose()).await? => Ok(StoreContents::Empty),
        _ => Ok(StoreContents::Store),
    }
}

/// Does the server at this address respond, and hold no store?
pub async fn is_empty(address: &StoreUrl) -> Result<bool, StoreOpenError> {
    contents(address).await.map(|contents| matches!(contents, StoreContents::Empty))
}

/// Opens the store at this address: `memory:`, `sqlite:PATH`, `postgres://…` or `redis://…`, as far as the features of
/// that name are enabled. An older schema is migrated.
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
            begun.map_err(|error| StoreOpenError::temporary(format!("{address}: {error}")).caused_by(error))?;
            Ok(store)
        }
        Err(no_address) => {
            // Only the scheme is printed: the rest may hold a password.
            let kind = address.split_once(':').map_or("", |(kind, _)| kind);
            Err(StoreOpenError::permanent(format!("there is no store with the URL scheme `{kind}:`; {no_address}")))
        }
    }
}

/// Opens the store at this address for this purpose.
#[cfg_attr(not(feature = "durable-store"), expect(unused_variables, reason = "memory ignores the purpose"))]
pub async fn open_for(address: &StoreUrl, to: OpenPurpose) -> Result<Arc<dyn Inspect>, StoreOpenError> {
    match address {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(StoreClock::wall(Timestamp::default())))),
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => sqlite(path, to).await,
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => whole(postgres(url, to).await?, address, to).await,
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => whole(redis(url, to).await?, address, to).await,
        #[allow(unreachable_patterns, reason = "unreachable with every feature on")]
        _ => Err(StoreOpenError::permanent(format!("this hookonce was built without what {address} needs"))),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &Path, to: OpenPurpose) -> Result<Arc<dyn Inspect>, StoreOpenError> {
    use super::schema::{self, sqlite as migrations};
    use super::sqlite::{SqliteAccess, SqliteOpenError, SqliteStore, open_file};
    let cannot = |error: SqliteOpenError| StoreOpenError::Permanent(ErrorMessage::of(error));
    if to == OpenPurpose::Node(MigrationMode::Manual) && path.exists() {
        let db = open_file(path, SqliteAccess::Read).map_err(cannot)?.db;
        let applied = migrations::applied(&db).map_err(|error| StoreOpenError::Permanent(ErrorMessage::of(error)))?;
        let way = schema::way_up(migrations::MIGRATIONS, &applied, None);
        if !way.map_err(|refused| StoreOpenError::Permanent(ErrorMessage::of(refused)))?.is_empty() {
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
        Err(error) => Err(StoreOpenError::Temporary(ErrorMessage::of(error))),
    }
}

/// An older schema that a node must not migrate.
pub fn older(what: &str) -> StoreOpenError {
    StoreOpenError::permanent(format!(
        "{what} is older than this hookonce, and the config says migrate = \"manual\"\n\
         hint: run `hookonce migrate up`, then start again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreUrl, StoreUrlError> {
        StoreUrl::parse(text, Path::new("/base"))
    }

    #[test]
    fn every_store_url_is_parsed_and_nothing_else_is() {
        assert_eq!(parse("memory:"), Ok(StoreUrl::Memory));
        assert_eq!(parse("sqlite:a.db"), Ok(StoreUrl::Sqlite("/base/a.db".into())));
        assert_eq!(parse("sqlite:/a.db"), Ok(StoreUrl::Sqlite("/a.db".into())));
        for text in ["postgres://h/d", "postgresql://u:p@h:5432/d?sslmode=require", "postgres://%2Frun%2Fpg/d"] {
            assert!(matches!(parse(text), Ok(StoreUrl::Postgres(_))), "{text}");
        }
        for text in ["redis://h", "rediss://:p@h:6379/1", "valkey://h", "valkeys://h", "redis+sentinel://h,i/main"] {
            assert!(matches!(parse(text), Ok(StoreUrl::Redis(_))), "{text}");
        }
        for text in [
            "",
            "memory",
            "memory:x",
            "sqlite:",
            "sqlite://a",
            "postgres:",
            "postgres://",
            "redis:///",
            "mysql://h",
            "postgres://a b",
        ] {
            assert_eq!(parse(text), Err(StoreUrlError), "{text}");
        }
    }

    async fn check(address: &str, expected: &str) {
        let why = open(address).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains(expected), "{address}: {why}");
    }

    #[tokio::test]
    async fn a_bad_store_url_is_refused_with_the_valid_forms_and_without_its_password() {
        assert!(open("memory:").await.is_ok());
        check("", "expected memory:, sqlite:PATH").await;
        check("sqlite:", "expected memory:").await;
        check("sqlite://x", "expected memory:").await;
        check("oracle://u:secret@h", "scheme `oracle:`").await;
        let why = open("oracle://u:secret@h").await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!why.contains("secret"), "{why}");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_that_is_open_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let address = format!("sqlite:{}", dir.path().join("once.db").display());
        let store = open(&address).await.expect("a store");
        check(&address, "is in use by another").await;
        drop(store);
        assert!(open(&address).await.is_ok());
    }
}
