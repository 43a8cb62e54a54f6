//! Migration of a PostgreSQL store. Nodes may run while it goes up, if the new versions allow it; none may run while it
//! is reverted, because it removes what they rely on.

use super::{DataLossConsent, MigrateError, MigrationSettings, agreed, tell, tell_standings};
use crate::decide::error_message::ErrorMessage;
use crate::store::postgres::sessions::{self, NodeSessionList, exclude_nodes};
use crate::store::postgres::{PostgresStore, indexes};
use crate::store::schema::postgres::{self as schema, SchemaName};
use crate::store::url::ServerUrl;
use std::io::Write;
use tokio_postgres::Client;

/// Prints the status of every version, and unfinished indexes.
pub async fn status(url: &ServerUrl, config: &MigrationSettings, out: &mut impl Write) -> Result<(), MigrateError> {
    let (db, name) = connect(url).await?;
    let standings = schema::status(&db, &name).await.map_err(|problem| left(url, problem))?;
    tell_standings(&standings, out)?;
    if schema::is_complete(&standings) {
        let asked = indexes::unfinished(&db, &name, &config.fields, config.migrate).await;
        for line in asked.map_err(|error| left(url, schema::PgMigrationError::Postgres(error)))? {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Moves the store to the named schema, if any; migrates up to this version, or to the latest; builds missing indexes.
pub async fn up(
    url: &ServerUrl,
    config: &MigrationSettings,
    schema: Option<&str>,
    to: Option<u32>,
    out: &mut impl Write,
) -> Result<(), MigrateError> {
    let (mut db, name) = match schema {
        Some(name) => moved(url, name, out).await?,
        None => connect(url).await?,
    };
    without_first_release(url, &db, &name, to).await?;
    let way = schema::up(&mut db, &name, to).await.map_err(|problem| left(url, problem))?;
    if !way.is_empty() {
        tell(&way, "applied", out)?;
    }
    let built = build(url, config, &db, &name).await?;
    for name in &built {
        writeln!(out, "index {name}: built")?;
    }
    if way.is_empty() && built.is_empty() { tell(&way, "applied", out) } else { Ok(()) }
}

/// Refuses the version that the first release cannot run beside, while one of its nodes is connected.
async fn without_first_release(
    url: &ServerUrl,
    db: &Client,
    name: &SchemaName,
    to: Option<u32>,
) -> Result<(), MigrateError> {
    let failed = |error| left(url, schema::PgMigrationError::Postgres(error));
    let applied = schema::applied(db, name).await.map_err(failed)?;
    let reaches = |version: u32| to.is_none_or(|to| to >= version);
    let has = applied.iter().any(|one| one.version >= schema::DICTIONARIES);
    if applied.is_empty() || has || !reaches(schema::DICTIONARIES) {
        return Ok(());
    }
    let nodes = sessions::of_first_release(db).await.map_err(failed)?;
    if nodes.is_empty() {
        return Ok(());
    }
    Err(MigrateError::server(format!(
        "{url}: a node of hookonce 0.1.0 is connected: {}. It cannot read bodies as version {} stores them. Stop every node of \
         0.1.0 first; nothing was changed. `hookonce migrate up --to {}` applies what 0.1.0 can run beside",
        NodeSessionList(&nodes),
        schema::DICTIONARIES,
        schema::NEEDED,
    )))
}

/// Builds the indexes of the latest version, if the store has reached what nodes need. Nodes may run meanwhile.
async fn build(
    url: &ServerUrl,
    config: &MigrationSettings,
    db: &Client,
    name: &SchemaName,
) -> Result<Vec<String>, MigrateError> {
    let standings = schema::status(db, name).await.map_err(|problem| left(url, problem))?;
    if !schema::is_complete(&standings) {
        return Ok(Vec::new());
    }
    indexes::build_now(db, name, &config.fields).await.map_err(|error| {
        let why = schema::PgMigrationError::Postgres(error);
        let hint = "the versions are applied; nodes work without the index, but slower. Fix the cause and run \
                    `hookonce migrate up` again";
        let text = format!("{url}: an index was not built: {why}; {hint}");
        MigrateError::Server(ErrorMessage::from(text).caused_by(why))
    })
}

/// Moves the store to this schema, unless it is already there.
async fn moved(url: &ServerUrl, name: &str, out: &mut impl Write) -> Result<(Client, SchemaName), MigrateError> {
    let Some(there) = SchemaName::parse(name) else {
        return Err(MigrateError::server(format!("`{}` is not a valid schema name", name.escape_debug())));
    };
    let done = PostgresStore::relocate(url.expose(), &there).await;
    let (db, from) = done.map_err(|cannot| MigrateError::Server(ErrorMessage::of(cannot)))?;
    if let Some(from) = from {
        writeln!(out, "moved from schema {from} to schema {there}")?;
    }
    if !PostgresStore::names(url.expose(), &there) {
        writeln!(out, "add `schema={}` to the store's URL before you start a node", there.as_str())?;
    }
    Ok((db, there))
}

/// Reverts to this version, which deletes data.
pub async fn down(
    url: &ServerUrl,
    to: u32,
    consent: DataLossConsent,
    out: &mut impl Write,
) -> Result<(), MigrateError> {
    agreed(to, consent)?;
    let (mut db, name) = connect(url).await?;
    let asked = exclude_nodes(&db, &name).await;
    if let Err(nodes) = asked.map_err(|error| left(url, schema::PgMigrationError::Postgres(error)))? {
        let why = format!(
            "{url}: a node is running: {}. Stop every node first; nothing was changed",
            NodeSessionList(&nodes)
        );
        return Err(MigrateError::server(why));
    }
    let way = schema::down(&mut db, &name, to).await.map_err(|problem| left(url, problem))?;
    tell(&way, "reverted", out)
}

async fn connect(url: &ServerUrl) -> Result<(Client, SchemaName), MigrateError> {
    PostgresStore::connect(url.expose()).await.map_err(|cannot| MigrateError::Server(ErrorMessage::of(cannot)))
}

fn left(url: &ServerUrl, problem: schema::PgMigrationError) -> MigrateError {
    MigrateError::Server(ErrorMessage::from(format!("{url}: {problem}")).caused_by(problem))
}
