//! Opening a store by its address.

use super::address::Address;
use super::clock::Clock;
use super::copy::{CopyStore, Side};
use super::memory::Memory;
#[cfg(any(feature = "postgres", feature = "redis"))]
use super::shared::{Shared, Shelf};
use super::{CannotOpen, Store};
use crate::decide::time::Timestamp;
use std::path::Path;
use std::sync::Arc;

/// What a store is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// By a node.
    Node(Migrate),
    /// By a command that writes.
    Tool,
    /// By a command that only looks.
    Look,
    /// By a copy, from it or into it.
    Copy(Side),
}

/// Who brings an older schema up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Migrate {
    /// The first node that starts.
    #[default]
    Auto,
    /// A person, with `hookonce migrate up`; until then no node starts.
    Manual,
}

/// Opens a store to copy from it, or into it. A source must be there; a target is made if it is not.
pub async fn open_to_copy(address: &Address, side: Side) -> Result<Box<dyn CopyStore>, CannotOpen> {
    match address {
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => {
            use super::sqlite::{Access, OpenError, Sqlite, open_file};
            let cannot = |error: OpenError| CannotOpen::Ever(error.to_string());
            if side == Side::Source {
                drop(open_file(path, Access::Read).map_err(cannot)?); // what is not there is not made, nor its lock
            }
            Ok(Box::new(Sqlite::open(path, Access::Copy).map_err(cannot)?))
        }
        #[cfg(feature = "postgres")]
        Address::Postgres(url) => Ok(Box::new(postgres(url, Use::Copy(side)).await?)),
        #[cfg(feature = "redis")]
        Address::Redis(url) => {
            if side == Side::Source && super::redis::Redis::is_empty(url.expose()).await? {
                return Err(CannotOpen::Ever(format!("{address} holds no store; check the URL and its `prefix`")));
            }
            Ok(Box::new(redis(url, Use::Copy(side)).await?))
        }
        Address::Memory => Err(CannotOpen::Ever(format!(
            "a store in memory cannot be the {side} of a copy: it ends with its node. Expected sqlite:PATH, \
             postgres://HOST/DATABASE or redis://HOST"
        ))),
        #[allow(unreachable_patterns, reason = "with every feature there is none that is left")]
        _ => Err(CannotOpen::Ever(format!("this hookonce was built without what {address} needs"))),
    }
}

/// A store that is part of a copy is not used. One that was copied away may still be looked at.
#[cfg(any(feature = "postgres", feature = "redis"))]
async fn whole(shelf: impl Shelf, address: &Address, to: Use) -> Result<Arc<dyn Store>, CannotOpen> {
    use super::copy::{self, CopyMark};
    match copy::mark_of(&shelf).await {
        Ok(None) => Ok(Arc::new(Shared(shelf))),
        Ok(Some(CopyMark::Source { .. } | CopyMark::Retired { .. })) if to == Use::Look => Ok(Arc::new(Shared(shelf))),
        Ok(Some(mark)) => Err(CannotOpen::Ever(mark.refusal(address))),
        Err(error) => Err(CannotOpen::Yet(format!("{address}: {error}"))),
    }
}

#[cfg(feature = "postgres")]
async fn postgres(url: &super::address::ServerUrl, to: Use) -> Result<super::postgres::Postgres, CannotOpen> {
    use super::postgres::{Options, Postgres, Schema};
    let schema = match to {
        Use::Node(Migrate::Auto) | Use::Copy(Side::Target) => Schema::Auto,
        Use::Node(Migrate::Manual) | Use::Tool | Use::Copy(Side::Source) => Schema::Manual,
        Use::Look => Schema::Read,
    };
    let options = Options { clock: Clock::server(), schema };
    match to {
        Use::Copy(_) => Postgres::open_to_copy(url.expose(), options).await,
        Use::Node(_) | Use::Tool | Use::Look => Postgres::open(url.expose(), options).await,
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &super::address::ServerUrl, to: Use) -> Result<super::redis::Redis, CannotOpen> {
    use super::redis::{Access, Options, Redis};
    let access = match to {
        Use::Node(_) | Use::Tool => Access::Node,
        Use::Copy(_) => Access::Copy,
        Use::Look => Access::Read,
    };
    Redis::open(url.expose(), Options { clock: Clock::server(), access }).await
}

/// What tells a store from others, whoever connects to it: where it is, and what it is called there. `None` for one that
/// needs no fence.
pub fn identity(address: &Address) -> Result<Option<(String, String)>, CannotOpen> {
    match address {
        #[cfg(feature = "postgres")]
        Address::Postgres(url) => super::postgres::Postgres::identity(url.expose()).map(Some),
        #[cfg(feature = "redis")]
        Address::Redis(url) => super::redis::Redis::identity(url.expose()).map(Some),
        _ => Ok(None),
    }
}

/// Does the server at this address answer, and hold nothing of a store?
pub async fn is_empty(address: &Address) -> Result<bool, CannotOpen> {
    match address {
        #[cfg(feature = "postgres")]
        Address::Postgres(url) => {
            let behind = super::postgres::Postgres::behind(url.expose()).await?;
            Ok(behind.first().is_some_and(|first| first.version == 1))
        }
        #[cfg(feature = "redis")]
        Address::Redis(url) => super::redis::Redis::is_empty(url.expose()).await,
        _ => Ok(false),
    }
}

/// Opens the store at this address: `memory:`, `sqlite:PATH`, `postgres://…` or `redis://…`, as far as the features
/// of that name are on. An older schema is brought up to date.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let store = hookonce::store::open("memory:").await?;
/// # drop(store); Ok::<_, hookonce::store::CannotOpen>(()) }).unwrap();
/// ```
pub async fn open(address: &str) -> Result<Arc<dyn Store>, CannotOpen> {
    match Address::parse(address, Path::new("")) {
        Ok(address) => {
            let store = open_for(&address, Use::Node(Migrate::Auto)).await?;
            let begun = store.begin_fence(Vec::new()).await;
            begun.map_err(|error| CannotOpen::Yet(format!("{address}: {error}")))?;
            Ok(store)
        }
        Err(no_address) => {
            // The kind alone is said: what follows it may hold a password.
            let kind = address.split_once(':').map_or("", |(kind, _)| kind);
            Err(CannotOpen::Ever(format!("no store is known by an address of kind `{kind}:`; {no_address}")))
        }
    }
}

/// Opens the store at this address for this use.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "redis")),
    expect(unused_variables, reason = "memory is the same for every use")
)]
pub async fn open_for(address: &Address, to: Use) -> Result<Arc<dyn Store>, CannotOpen> {
    match address {
        Address::Memory => Ok(Arc::new(Memory::new(Clock::wall(Timestamp::default())))),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => sqlite(path, to).await,
        #[cfg(feature = "postgres")]
        Address::Postgres(url) => whole(postgres(url, to).await?, address, to).await,
        #[cfg(feature = "redis")]
        Address::Redis(url) => whole(redis(url, to).await?, address, to).await,
        #[allow(unreachable_patterns, reason = "with every feature there is none that is left")]
        _ => Err(CannotOpen::Ever(format!("this hookonce was built without what {address} needs"))),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &Path, to: Use) -> Result<Arc<dyn Store>, CannotOpen> {
    use super::schema::{self, sqlite as migrations};
    use super::sqlite::{Access, OpenError, Sqlite, open_file};
    let cannot = |error: OpenError| CannotOpen::Ever(error.to_string());
    if to == Use::Node(Migrate::Manual) && path.exists() {
        let db = open_file(path, Access::Read).map_err(cannot)?.db;
        let applied = migrations::applied(&db).map_err(|error| CannotOpen::Ever(error.to_string()))?;
        let way = schema::way_up(migrations::MIGRATIONS, &applied, None);
        if !way.map_err(|refused| CannotOpen::Ever(refused.to_string()))?.is_empty() {
            return Err(older(&format!("the schema of {}", path.display())));
        }
    }
    let access = match to {
        Use::Node(_) => Access::Node,
        Use::Tool => Access::Tool,
        Use::Look => Access::Read,
        Use::Copy(_) => Access::Copy,
    };
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || Sqlite::open(&path, access)).await;
    match opened {
        Ok(opened) => Ok(Arc::new(opened.map_err(cannot)?)),
        Err(error) => Err(CannotOpen::Yet(error.to_string())),
    }
}

/// An old schema that nobody may bring up to date by starting a node.
pub fn older(what: &str) -> CannotOpen {
    CannotOpen::Ever(format!(
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
