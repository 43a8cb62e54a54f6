//! Moving a store from one schema of its database to another: all its tables, sequences and views in one transaction,
//! while no node runs.
//!
//! A `schema_migrations` with one very high version stays in the old schema. The first release, started again with the
//! same URL, refuses it; otherwise it would create an empty store there and act again on everything.

use super::sessions::{NodeSession, NodeSessionList, exclude_nodes};
use crate::store::schema::postgres::{
    self as migrations, LOCK, PgMigrationError, SchemaName, StoreSchemaError, TAKE_TIME, UNLOCK,
};
use std::fmt;
use tokio_postgres::{Client, Error};

/// Why a store was not moved.
#[derive(Debug)]
pub enum RelocateError {
    /// Nodes or commands use it.
    Running(Vec<NodeSession>),
    /// The other schema already holds a store.
    Taken(SchemaName),
    /// The server, or its contents, does not allow it.
    Problem(PgMigrationError),
}

impl fmt::Display for RelocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(sessions) => write!(
                f,
                "a store can be moved only while no node runs, but hookonce is connected to this database: {}. Stop every \
                 node, wait for other hookonce commands to end, then try again; behind a pooler, its idle server \
                 connections count, too",
                NodeSessionList(sessions)
            ),
            Self::Taken(schema) => write!(f, "schema {schema} holds a store already; nothing was moved"),
            Self::Problem(problem) => fmt::Display::fmt(problem, f),
        }
    }
}

impl std::error::Error for RelocateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::Running(_) | Self::Taken(_) => None,
        }
    }
}

impl From<PgMigrationError> for RelocateError {
    fn from(problem: PgMigrationError) -> Self {
        Self::Problem(problem)
    }
}

impl From<Error> for RelocateError {
    fn from(error: Error) -> Self {
        Self::Problem(PgMigrationError::Postgres(error))
    }
}

/// Moves the store: all of it, or nothing.
pub async fn relocate(db: &mut Client, from: &SchemaName, to: &SchemaName) -> Result<(), RelocateError> {
    db.batch_execute(LOCK).await?;
    let done = relocate_alone(db, from, to).await;
    db.batch_execute(UNLOCK).await?;
    done
}

/// The views `events_<source>` that we created: their comment is a digest.
const VIEWS: &str = "select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace \
     where n.nspname = $1 and c.relkind = 'v' and c.relname like 'events\\_%' \
     and obj_description(c.oid, 'pg_class') ~ '^[0-9a-f]{64}$'";

async fn relocate_alone(db: &mut Client, from: &SchemaName, to: &SchemaName) -> Result<(), RelocateError> {
    match migrations::locate(db, Some(to)).await {
        Err(conflict @ PgMigrationError::Conflict(StoreSchemaError::Foreign(_))) => return Err(conflict.into()),
        // A store was here before, and may come back: its leftover log is removed.
        Err(PgMigrationError::Conflict(_)) => {}
        Err(problem) => return Err(problem.into()),
        Ok(_) if !migrations::applied(db, to).await?.is_empty() => return Err(RelocateError::Taken(to.clone())),
        Ok(_) => {}
    }
    exclude_nodes(db, from).await?.map_err(RelocateError::Running)?;
    let tx = db.transaction().await?;
    tx.batch_execute(TAKE_TIME).await?;
    migrations::make_schema(&tx, to).await?;
    for view in tx.query(VIEWS, &[&from.as_str()]).await? {
        let view = from.relation(view.try_get(0)?);
        tx.batch_execute(&format!("alter view {view} set schema {to}")).await?;
    }
    // Migrating down to version 0 leaves an empty log, and moving away leaves one with a single row: the moved log
    // replaces it.
    tx.batch_execute(&format!("drop table if exists {to}.schema_migrations")).await?;
    for (kind, name) in migrations::relations() {
        let relation = from.relation(name);
        tx.batch_execute(&format!("alter {kind} if exists {relation} set schema {to}")).await?;
    }
    migrations::leave_a_sign(&tx, from, to).await?;
    tx.commit().await?;
    Ok(())
}
