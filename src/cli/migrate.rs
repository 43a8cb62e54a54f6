//! `hookonce migrate`: `status`, `up` and `down` for the schema of a store, on Redis `down` alone; `copy` and `reopen` to
//! move a store.

pub mod copy;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;

use crate::cli::error::CommandError;
use crate::config::{self, EnvLookup, MigrationMode, SecretRequirement, StoreAddress};
use crate::decide::error_message::ErrorMessage;
use crate::decide::time::Timestamp;
use crate::store::DeclaredFields;
use crate::store::clock::StoreClock;
use crate::store::schema::sqlite::{self as schema, SqliteMigrationError};
use crate::store::schema::{Migration, MigrationStatus};
use crate::store::sqlite::{SqliteAccess, SqliteOpenError, open_file};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a migration failed.
#[derive(Debug)]
pub enum MigrateError {
    /// The database could not be opened.
    Open(SqliteOpenError),
    /// The migration failed; the schema is unchanged.
    Schema(PathBuf, SqliteMigrationError),
    /// A server could not be reached, or its migration failed.
    Server(ErrorMessage),
    /// Reverting deletes data, and `--yes` was not given.
    NotAgreed(u32),
    /// The result could not be printed.
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
                "reverting to version {to} deletes the data of all later versions; nothing was changed. Add `--yes` to go \
                 on"
            ),
            Self::Print(error) => write!(f, "could not print: {error}"),
        }
    }
}

impl MigrateError {
    pub(super) fn server(why: impl Into<ErrorMessage>) -> Self {
        Self::Server(why.into())
    }
}

impl std::error::Error for MigrateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) => Some(error),
            Self::Schema(_, problem) => Some(problem),
            Self::Server(why) => why.source(),
            Self::NotAgreed(_) => None,
            Self::Print(error) => Some(error),
        }
    }
}

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

/// Whether the operator allows deleting data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataLossConsent {
    /// Data may be deleted.
    Given,
    /// Nothing.
    NotGiven,
}

/// What a config determines about its store's schema.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MigrationSettings {
    /// Whether nodes migrate the schema and build its indexes.
    pub migrate: MigrationMode,
    /// The fields of its sources.
    pub fields: Vec<DeclaredFields>,
}

/// The store that the config names.
pub fn store(explicit: Option<&Path>, env: EnvLookup<'_>) -> Result<StoreAddress, CommandError> {
    configured(explicit, env).map(|(store, _)| store)
}

/// The store that the config names, and what the config determines about its schema.
pub fn configured(
    explicit: Option<&Path>,
    env: EnvLookup<'_>,
) -> Result<(StoreAddress, MigrationSettings), CommandError> {
    let path = config::find(explicit, env)?;
    let config = config::load_with(&path, SecretRequirement::Optional, env)?;
    let fields = crate::node::declared(&config.sources);
    Ok((config.store, MigrationSettings { migrate: config.migrate, fields }))
}

/// Prints the status of every version; a node may be running.
pub fn status(path: &Path, out: &mut impl Write) -> Result<(), MigrateError> {
    let db = open_file(path, SqliteAccess::Read)?.db;
    tell_standings(&schema::status(&db).map_err(|problem| MigrateError::Schema(path.into(), problem))?, out)
}

/// Migrates up to this version, or to the latest. No node may run.
pub fn up(path: &Path, to: Option<u32>, out: &mut impl Write) -> Result<(), MigrateError> {
    let mut opened = open_file(path, SqliteAccess::Tool)?;
    let now = StoreClock::wall(Timestamp::default()).now();
    let way = schema::up(&mut opened.db, to, now).map_err(|problem| MigrateError::Schema(path.into(), problem))?;
    tell(&way, "applied", out)
}

/// Reverts to this version, which deletes data. No node may run.
pub fn down(path: &Path, to: u32, consent: DataLossConsent, out: &mut impl Write) -> Result<(), MigrateError> {
    agreed(to, consent)?;
    let mut opened = open_file(path, SqliteAccess::Tool)?;
    if let Some(lock) = &opened.lock {
        lock.forget_last_write(path)?;
    }
    let way = schema::down(&mut opened.db, to).map_err(|problem| MigrateError::Schema(path.into(), problem))?;
    tell(&way, "reverted", out)
}

/// Prints the status of every version.
fn tell_standings(standings: &[MigrationStatus], out: &mut impl Write) -> Result<(), MigrateError> {
    for version in standings {
        let when = version.applied_at.map_or("not applied".into(), |at| format!("applied {at}"));
        writeln!(out, "{:04} {:<12} {when}", version.version, version.name)?;
    }
    Ok(())
}

/// Reverting deletes data, so it requires `--yes`.
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
