//! Going back from a Redis store: it has no schema, but the first release cannot read bodies that are compressed with a
//! dictionary.

use super::MigrateError;
use crate::decide::error_message::ErrorMessage;
use crate::store::StoreError;
use crate::store::clock::StoreClock;
use crate::store::copy::ExportBackend as _;
use crate::store::redis::{RedisAccess, RedisOpenOptions, RedisStore};
use crate::store::url::ServerUrl;
use std::io::Write;

/// The schema version of the first release on the other stores.
const FIRST_RELEASE: u32 = 7;

/// Compresses all bodies as the first release reads them. No node may run.
pub async fn down(url: &ServerUrl, to: u32, out: &mut impl Write) -> Result<(), MigrateError> {
    if to != FIRST_RELEASE {
        return Err(MigrateError::server(format!(
            "{url} has no schema. `--to {FIRST_RELEASE}` compresses all bodies as 0.1.0 reads them; there is no other \
             version to go back to"
        )));
    }
    let cannot_open = |error| MigrateError::Server(ErrorMessage::of(error));
    if RedisStore::is_empty(url.expose()).await.map_err(cannot_open)? {
        return Err(MigrateError::server(format!("{url} holds no store; check the URL and its `prefix`")));
    }
    let options = RedisOpenOptions { clock: StoreClock::server(), access: RedisAccess::Copy };
    let store = RedisStore::open(url.expose(), options).await.map_err(cannot_open)?;
    let failed =
        |error: StoreError| MigrateError::Server(ErrorMessage::from(format!("{url}: {error}")).caused_by(error));
    if let Some(nodes) = store.connected().await.map_err(failed)? {
        let why = format!("{url}: a node is running: {nodes}. Stop every node first; nothing was changed");
        return Err(MigrateError::server(why));
    }
    let removed = store.pack_without_dictionaries().await.map_err(failed)?;
    writeln!(out, "every body is compressed as 0.1.0 reads it; dictionaries removed: {removed}")
        .map_err(MigrateError::Print)
}
