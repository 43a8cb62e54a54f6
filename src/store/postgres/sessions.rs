//! The nodes connected to a database, for commands that need the store for themselves.
//!
//! Every session of hookonce has the `application_name` `hookonce`, or one that begins with it; the first release shows no
//! more. Later versions hold a shared advisory lock in each session that may write. It identifies the schema of their store: nodes of
//! another store in the same database do not count. A session takes it before it reads the version of the schema.
//!
//! A command that removes tables or columns holds the same lock exclusively, so that no node starts meanwhile.

use crate::decide::time::Duration;
use crate::store::schema::postgres::SchemaName;
use std::collections::BTreeSet;
use std::fmt;
use tokio_postgres::{Client, Error, Row};

/// The first number of the advisory locks that identify a session's schema; the second is [`SchemaName::number`].
const CLASS: i32 = 0x686f_6f6b; // "hook"

/// The `application_name` of sessions, also in the first release.
pub(super) const NAME: &str = "hookonce";
/// The `application_name` of a copy's sessions.
const COPY_NAME: &str = "hookonce copy";
/// The `application_name` of sessions that only read. They hold no lock.
const READ_NAME: &str = "hookonce read";

/// How often an exclusive lock is tried: the sessions of a node that was just stopped end a moment later.
const TRIES: usize = 20;
/// The wait between two tries.
const AGAIN: Duration = Duration::from_millis(100);

/// Marks this session as a copy's, not a node's.
pub(super) async fn tell_copy(db: &Client) -> Result<(), Error> {
    db.batch_execute(&format!("set application_name = '{COPY_NAME}'")).await
}

/// Marks this session as one that only reads.
pub(super) async fn tell_reader(db: &Client) -> Result<(), Error> {
    db.batch_execute(&format!("set application_name = '{READ_NAME}'")).await
}

/// Holds the lock that identifies this session's store, until the session ends.
pub(super) async fn hold_schema_lock(db: &Client, schema: &SchemaName) -> Result<(), Error> {
    db.batch_execute(&format!("select pg_advisory_lock_shared({CLASS}, {})", schema.number())).await
}

/// Prevents nodes from starting on the store until this session ends. If sessions go on using the store, returns those,
/// and holds no lock.
pub async fn exclude_nodes(db: &Client, schema: &SchemaName) -> Result<Result<(), Vec<NodeSession>>, Error> {
    let number = schema.number();
    let lock = format!("select pg_try_advisory_lock({CLASS}, {number})");
    let mut sessions = Vec::new();
    for _ in 0..TRIES {
        let locked: bool = db.query_one(&lock, &[]).await?.try_get(0)?;
        sessions = running_nodes(db, schema).await?;
        if locked && sessions.is_empty() {
            return Ok(Ok(()));
        }
        if locked {
            // Nodes of the first release hold no lock.
            db.batch_execute(&format!("select pg_advisory_unlock({CLASS}, {number})")).await?;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(Err(sessions))
}

const SESSIONS: &str = "select a.pid, coalesce(host(a.client_addr), 'a local socket') from pg_stat_activity a \
     where a.application_name = any($3) and a.datname = current_database() and a.pid <> pg_backend_pid() \
     and not exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory' and l.objsubid = 2 \
     and l.classid::bigint = $1 and l.objid::bigint <> $2) order by a.pid";

/// One session of another hookonce process, a node or a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSession {
    /// The process id of the server process.
    pub pid: i32,
    /// The address it is connected from.
    pub from: String,
}

/// The hookonce sessions that use the store in this schema, or may; without this one. Empty if no node runs. A node has
/// several.
pub async fn running_nodes(db: &Client, schema: &SchemaName) -> Result<Vec<NodeSession>, Error> {
    sessions(db, schema, &[NAME, COPY_NAME, READ_NAME]).await
}

/// The same during a copy from or into this store: sessions of copies, such as its own, are left out.
pub(super) async fn nodes_beside_a_copy(db: &Client, schema: &SchemaName) -> Result<Vec<NodeSession>, Error> {
    sessions(db, schema, &[NAME, READ_NAME]).await
}

const OF_FIRST_RELEASE: &str = "select a.pid, coalesce(host(a.client_addr), 'a local socket') from pg_stat_activity a \
     where a.application_name = $2 and a.datname = current_database() and a.pid <> pg_backend_pid() \
     and not exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory' and l.objsubid = 2 \
     and l.classid::bigint = $1) order by a.pid";

/// The sessions of the first release that stay: they hold no lock that identifies a schema. A later version's session has
/// one a moment after it begins.
pub async fn of_first_release(db: &Client) -> Result<Vec<NodeSession>, Error> {
    let mut found = Vec::new();
    for _ in 0..TRIES {
        found = node_sessions(&db.query(OF_FIRST_RELEASE, &[&i64::from(CLASS.cast_unsigned()), &NAME]).await?)?;
        if found.is_empty() {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(found)
}

async fn sessions(db: &Client, schema: &SchemaName, names: &[&str]) -> Result<Vec<NodeSession>, Error> {
    let (class, number) = (i64::from(CLASS.cast_unsigned()), i64::from(schema.number().cast_unsigned()));
    let rows = db.query(SESSIONS, &[&class, &number, &names]).await?;
    node_sessions(&rows)
}

fn node_sessions(rows: &[Row]) -> Result<Vec<NodeSession>, Error> {
    rows.iter().map(|row| Ok(NodeSession { pid: row.try_get(0)?, from: row.try_get(1)? })).collect()
}

/// Displays sessions: how many, from where, and their process ids at the server.
pub struct NodeSessionList<'a>(pub &'a [NodeSession]);

impl fmt::Display for NodeSessionList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from: Vec<&str> = self.0.iter().map(|one| &*one.from).collect::<BTreeSet<_>>().into_iter().collect();
        let pids: Vec<String> = self.0.iter().map(|one| one.pid.to_string()).collect();
        let sessions = if self.0.len() == 1 { "session" } else { "sessions" };
        if self.0.is_empty() {
            return f.write_str("a session that the server does not show");
        }
        write!(f, "{} {sessions} from {} (server process {})", self.0.len(), from.join(", "), pids.join(", "))
    }
}
