//! Detection of a connection pooler that lends server sessions for one transaction at a time. Through such a pooler,
//! our settings and advisory locks would stay on a server connection that the pooler then gives to another client. So
//! this check runs on a new connection before the first `set`, and leaves nothing on the server itself.
//!
//! ```text
//! first    pid ──────────────── pid ───────────  always the same process, and never the second's
//! second        begin, pid ─────────── rollback  always the same process
//! ```
//!
//! While the second connection is in a transaction, a pooler must serve the first one from another server connection,
//! or make it wait. Afterwards the first one asks again: an idle pooler lends the connection that was returned last. A
//! busy one may pick the right connections by chance, so there are three rounds.

use super::error;
use super::pool::{ANSWER_TIME, dial_at_start};
use super::url::PostgresUrl;
use crate::decide::time::Duration;
use crate::store::StoreOpenError;
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

const ROUNDS: usize = 3;
/// How long the second connection stays in its transaction while the first one waits for a response. A slow server is
/// not taken for a pooler: its response comes later, from the right process.
const HOLD_TIME: Duration = Duration::from_millis(250);
/// The `application_name` of the second connection: it is not a node's session.
const NAME: &str = "hookonce probe";

const PID: &str = "select pg_backend_pid()";
const BEGIN: &str = "begin; select pg_backend_pid()";

/// How server sessions are assigned to connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PoolingMode {
    /// A connection has its own session until it ends.
    Session,
    /// For one transaction, or less.
    Transaction,
    /// The second connection got no session at all.
    NoneFree,
}

/// Refuses an address where this new connection has no session of its own.
pub(super) async fn check(address: &PostgresUrl, first: &Client) -> Result<(), StoreOpenError> {
    match probe(address, first).await {
        Ok(PoolingMode::Session) => Ok(()),
        Ok(PoolingMode::Transaction) => Err(error::pooled(address)),
        Ok(PoolingMode::NoneFree) => Err(StoreOpenError::temporary(format!(
            "{address}: a second connection got no response within {} s; hookonce needs at least two. If a pooler is in \
             front of the server, all of its server connections are in use: raise `pool_size`, or run fewer nodes",
            (ANSWER_TIME / 2).as_secs()
        ))),
        // PgBouncer's response to `begin` with `pool_mode = statement`.
        Err(error) if error::server_message(&error).contains("statement pooling") => {
            Err(error::pooled(address).caused_by(error))
        }
        Err(error) => Err(error::cannot_open(address, error)),
    }
}

async fn probe(address: &PostgresUrl, first: &Client) -> Result<PoolingMode, Error> {
    let second = dial_at_start(address, NAME).await?;
    let mut pids = None;
    for _ in 0..ROUNDS {
        let own = text(first, PID).await?;
        let Ok(begun) = timeout(ANSWER_TIME / 2, text(&second, BEGIN)).await else { return Ok(PoolingMode::NoneFree) };
        let held = begun?;
        let asked = text(first, PID);
        tokio::pin!(asked);
        let answered = timeout(HOLD_TIME, &mut asked).await;
        second.batch_execute("rollback").await?;
        // A pooler with one server connection responds only now, and from the second's process.
        let again = match answered {
            Ok(again) => again?,
            Err(_) => asked.await?,
        };
        let now = (own, held);
        let before = pids.get_or_insert_with(|| now.clone());
        if *before != now || again != now.0 || again == now.1 {
            return Ok(PoolingMode::Transaction);
        }
    }
    Ok(PoolingMode::Session)
}

/// Refuses a session without the `search_path` that the URL sets. A pooler may drop it silently, and then a store of
/// the first release would not be found, and another one created.
pub(super) async fn check_search_path(address: &PostgresUrl, client: &Client) -> Result<(), StoreOpenError> {
    let Some(asked) = &address.search_path else { return Ok(()) };
    let has = text(client, "show search_path").await.map_err(|error| error::cannot_open(address, error))?;
    let same = |path: &str| path.split_ascii_whitespace().collect::<String>();
    if same(asked) == same(&has) { Ok(()) } else { Err(error::dropped_path(address, asked, &has)) }
}

/// The first column of the first row.
async fn text(client: &Client, sql: &str) -> Result<String, Error> {
    let said = client.simple_query(sql).await?;
    let row = said.iter().find_map(|said| match said {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    Ok(row.unwrap_or_default())
}
