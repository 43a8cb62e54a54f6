//! The schema of a PostgreSQL store. Nodes may run meanwhile: one that is a version older or newer goes on.

use super::{Consent, MigrateError, agreed, tell, tell_standings};
use crate::store::address::ServerUrl;
use crate::store::postgres::Postgres;
use crate::store::schema::postgres as schema;
use std::io::Write;

/// Prints where every version stands.
pub async fn status(url: &ServerUrl, out: &mut impl Write) -> Result<(), MigrateError> {
    let (db, name) = connect(url).await?;
    tell_standings(&schema::status(&db, &name).await.map_err(|problem| left(url, &problem))?, out)
}

/// Goes up to this version, or as far as it goes.
pub async fn up(url: &ServerUrl, to: Option<u32>, out: &mut impl Write) -> Result<(), MigrateError> {
    let (mut db, name) = connect(url).await?;
    let way = schema::up(&mut db, &name, to).await.map_err(|problem| left(url, &problem))?;
    tell(&way, "applied", out)
}

/// Goes back to this version, which removes data.
pub async fn down(url: &ServerUrl, to: u32, consent: Consent, out: &mut impl Write) -> Result<(), MigrateError> {
    agreed(to, consent)?;
    let (mut db, name) = connect(url).await?;
    let way = schema::down(&mut db, &name, to).await.map_err(|problem| left(url, &problem))?;
    tell(&way, "taken back", out)
}

async fn connect(url: &ServerUrl) -> Result<(tokio_postgres::Client, schema::SchemaName), MigrateError> {
    Postgres::connect(url.expose()).await.map_err(|cannot| MigrateError::Server(cannot.to_string()))
}

fn left(url: &ServerUrl, problem: &schema::Problem) -> MigrateError {
    MigrateError::Server(format!("{url}: {problem}"))
}
