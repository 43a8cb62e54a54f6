//! Opening a store by its address.

use super::address::Address;
use super::clock::Clock;
use super::memory::Memory;
use super::shared::{Shared, Shelf};
use super::{CannotOpen, Store, copy};
use crate::decide::time::Timestamp;
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

/// The cells of a store that nodes share, for whoever fills it.
pub async fn shelf(address: &Address) -> Result<Arc<dyn Shelf>, CannotOpen> {
    match address {
        #[cfg(feature = "postgres")]
        Address::Postgres(url) => Ok(Arc::new(postgres(url, Use::Node(Migrate::Auto)).await?)),
        #[cfg(feature = "redis")]
        Address::Redis(url) => Ok(Arc::new(redis(url, Use::Tool).await?)),
        other => Err(CannotOpen::Ever(format!("{other} is no store that nodes share"))),
    }
}

/// A store that somebody is still filling is not used.
async fn whole(shelf: impl Shelf, address: &Address) -> Result<Arc<dyn Store>, CannotOpen> {
    match copy::is_unfinished(&shelf).await {
        Ok(false) => Ok(Arc::new(Shared(shelf))),
        Ok(true) => Err(CannotOpen::Ever(format!(
            "{address} holds an unfinished copy of another store\n\
             hint: run `hookonce migrate copy` again to finish it, or begin with an empty store"
        ))),
        Err(error) => Err(CannotOpen::Yet(format!("{address}: {error}"))),
    }
}

#[cfg(feature = "postgres")]
async fn postgres(url: &super::address::ServerUrl, to: Use) -> Result<super::postgres::Postgres, CannotOpen> {
    use super::postgres::{Options, Postgres, Schema};
    let schema = match to {
        Use::Node(Migrate::Auto) => Schema::Auto,
        Use::Node(Migrate::Manual) | Use::Tool => Schema::Manual,
        Use::Look => Schema::Read,
    };
    Postgres::open(url.expose(), Options { clock: Clock::server(), schema }).await
}

#[cfg(feature = "redis")]
async fn redis(url: &super::address::ServerUrl, to: Use) -> Result<super::redis::Redis, CannotOpen> {
    use super::redis::{Access, Options, Redis};
    let access = if to == Use::Look { Access::Read } else { Access::Node };
    Redis::open(url.expose(), Options { clock: Clock::server(), access }).await
}

/// Opens the store at this address.
pub async fn open(address: &Address, to: Use) -> Result<Arc<dyn Store>, CannotOpen> {
    match address {
        Address::Memory => Ok(Arc::new(Memory::new(Clock::wall(Timestamp::default())))),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => sqlite(path, to),
        #[cfg(feature = "postgres")]
        Address::Postgres(url) => whole(postgres(url, to).await?, address).await,
        #[cfg(feature = "redis")]
        Address::Redis(url) => whole(redis(url, to).await?, address).await,
        #[allow(unreachable_patterns, reason = "with every feature there is none that is left")]
        _ => Err(CannotOpen::Ever(format!("this hookonce was built without what {address} needs"))),
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(path: &std::path::Path, to: Use) -> Result<Arc<dyn Store>, CannotOpen> {
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
    };
    Ok(Arc::new(Sqlite::open(path, access).map_err(cannot)?))
}

/// An old schema that nobody may bring up to date by starting a node.
pub fn older(what: &str) -> CannotOpen {
    CannotOpen::Ever(format!(
        "{what} is older than this hookonce, and the config says migrate = \"manual\"\n\
         hint: run `hookonce migrate up`, then start again"
    ))
}
