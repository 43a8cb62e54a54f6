//! `hookonce migrate status | up | down`: the schema of a store, one version at a time; `copy`: all of it, elsewhere.

pub mod copy;
#[cfg(feature = "postgres")]
pub mod postgres;

use crate::config::{self, EnvLookup, MigrationMode, SecretRequirement, StoreAddress};
use crate::decide::time::Timestamp;
use crate::store::DeclaredFields;
use crate::store::clock::StoreClock;
use crate::store::schema::sqlite::{self as schema, SqliteMigrationError};
use crate::store::schema::{Migration, MigrationStatus};
use crate::store::sqlite::{SqliteAccess, SqliteOpenError, open_file};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a schema is as it was, or could not be told.
#[derive(Debug)]
pub enum MigrateError {
    /// The database could not be opened.
    Open(SqliteOpenError),
    /// It was opened, and left as it is.
    Schema(PathBuf, SqliteMigrationError),
    /// A server could not be asked, or left its schema as it is.
    Server(String),
    /// Going down removes data, and nobody said that it may.
    NotAgreed(u32),
    /// What was done could not be printed.
    Print(io::Error),
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => fmt::Display::fmt(error, f),
            Self::Schema(path, problem) => write!(f, "{}: {problem}", path.display()),
            Self::Server(why) => f.write_str(why),
            Self::NotAgreed(to) => write!(
                f,
                "going down to version {to} removes what the versions after it hold; nothing was changed. Say `--yes` to \
                 go on"
            ),
            Self::Print(error) => write!(f, "could not print: {error}"),
        }
    }
}

impl std::error::Error for MigrateError {}

impl From<SqliteOpenError> for MigrateError {
    fn from(error: SqliteOpenError) -> Self {
        Self::Open(error)
    }
}

impl From<io::Error> for MigrateError {
    fn from(error: io::Error) -> Self {
        Self::Print(error)
    }
}

/// What a person said about losing data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataLossConsent {
    /// It may be removed.
    Given,
    /// Nothing.
    NotGiven,
}

/// What a config says about the schema of its store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MigrationSettings {
    /// Who brings an older schema up to date, and builds its indexes.
    pub migrate: MigrationMode,
    /// The fields of its sources.
    pub fields: Vec<DeclaredFields>,
}

/// The store that the config names.
pub fn store(explicit: Option<&Path>, env: EnvLookup<'_>) -> Result<StoreAddress, String> {
    configured(explicit, env).map(|(store, _)| store)
}

/// The same, and what the config says about the schema.
pub fn configured(explicit: Option<&Path>, env: EnvLookup<'_>) -> Result<(StoreAddress, MigrationSettings), String> {
    let path = config::find(explicit, env).map_err(|problem| problem.to_string())?;
    let config = config::load_with(&path, SecretRequirement::Optional, env).map_err(|problems| problems.to_string())?;
    let fields = crate::node::declared(&config.sources);
    Ok((config.store, MigrationSettings { migrate: config.migrate, fields }))
}

/// Prints where every version stands. Reads beside a running node.
pub fn status(path: &Path, out: &mut impl Write) -> Result<(), MigrateError> {
    let db = open_file(path, SqliteAccess::Read)?.db;
    tell_standings(&schema::status(&db).map_err(|problem| MigrateError::Schema(path.into(), problem))?, out)
}

/// Goes up to this version, or as far as it goes. No node may run.
pub fn up(path: &Path, to: Option<u32>, out: &mut impl Write) -> Result<(), MigrateError> {
    let mut opened = open_file(path, SqliteAccess::Tool)?;
    let now = StoreClock::wall(Timestamp::default()).now();
    let way = schema::up(&mut opened.db, to, now).map_err(|problem| MigrateError::Schema(path.into(), problem))?;
    tell(&way, "applied", out)
}

/// Goes back to this version, which removes data. No node may run.
pub fn down(path: &Path, to: u32, consent: DataLossConsent, out: &mut impl Write) -> Result<(), MigrateError> {
    agreed(to, consent)?;
    let mut opened = open_file(path, SqliteAccess::Tool)?;
    if let Some(lock) = &opened.lock {
        lock.forget_last_write(path)?;
    }
    let way = schema::down(&mut opened.db, to).map_err(|problem| MigrateError::Schema(path.into(), problem))?;
    tell(&way, "taken back", out)
}

/// Prints where every version stands.
fn tell_standings(standings: &[MigrationStatus], out: &mut impl Write) -> Result<(), MigrateError> {
    for version in standings {
        let when = version.applied_at.map_or("not applied".into(), |at| format!("applied {at}"));
        writeln!(out, "{:04} {:<12} {when}", version.version, version.name)?;
    }
    Ok(())
}

/// Going down removes data: somebody must have said that it may.
fn agreed(to: u32, consent: DataLossConsent) -> Result<(), MigrateError> {
    if consent == DataLossConsent::Given { Ok(()) } else { Err(MigrateError::NotAgreed(to)) }
}

fn tell(way: &[&Migration], done: &str, out: &mut impl Write) -> Result<(), MigrateError> {
    for Migration { version, name, .. } in way {
        writeln!(out, "{version:04} {name:<12} {done}")?;
    }
    if way.is_empty() {
        writeln!(out, "nothing to do")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_goes_up_says_where_it_stands_and_goes_down_only_with_consent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hookonce.db");
        let mut out = Vec::new();
        up(&path, Some(2), &mut out).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), "0001 events       applied\n0002 beside       applied\n");
        let mut out = Vec::new();
        status(&path, &mut out).unwrap();
        let text = String::from_utf8_lossy(&out);
        assert!(
            text.contains("0002 beside       applied 2") && text.contains("0003 scopes       not applied"),
            "{text}"
        );
        assert!(matches!(down(&path, 0, DataLossConsent::NotGiven, &mut Vec::new()), Err(MigrateError::NotAgreed(0))));
        down(&path, 0, DataLossConsent::Given, &mut Vec::new()).unwrap();
        up(&path, None, &mut Vec::new()).unwrap();
        let mut out = Vec::new();
        up(&path, None, &mut out).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), "nothing to do\n");
    }
}
