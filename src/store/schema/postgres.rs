//! Migrations in PostgreSQL: each in its own transaction, together with its row in `schema_migrations`, all under an
//! advisory lock, so that nodes that start together do not interfere.
//!
//! A migration names its tables without a schema: its transaction has a `search_path` of our schema alone.

mod locate;
mod schema_name;

pub use locate::{SchemaLocation, StoreSchemaError, locate};
pub use schema_name::SchemaName;

use super::{AppliedMigration, Migration, MigrationRejection, MigrationStatus};
use crate::decide::time::{Duration, Timestamp};
use crate::store::postgres::pack_all_anew;
use std::fmt;
use std::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, GenericClient, Transaction};

/// All migrations.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "events",
        up: include_str!("postgres/0001_events.up.sql"),
        down: include_str!("postgres/0001_events.down.sql"),
        oldest: 1,
    },
    Migration {
        version: 2,
        name: "beside",
        up: include_str!("postgres/0002_beside.up.sql"),
        down: include_str!("postgres/0002_beside.down.sql"),
        oldest: 2,
    },
    Migration {
        version: 3,
        name: "scopes",
        up: include_str!("postgres/0003_scopes.up.sql"),
        down: include_str!("postgres/0003_scopes.down.sql"),
        oldest: 3,
    },
    Migration {
        version: 4,
        name: "imported",
        up: include_str!("postgres/0004_imported.up.sql"),
        down: include_str!("postgres/0004_imported.down.sql"),
        oldest: 4,
    },
    Migration {
        version: 5,
        name: "quarantine",
        up: include_str!("postgres/0005_quarantine.up.sql"),
        down: include_str!("postgres/0005_quarantine.down.sql"),
        oldest: 5,
    },
    Migration {
        version: 6,
        name: "listing",
        up: include_str!("postgres/0006_listing.up.sql"),
        down: include_str!("postgres/0006_listing.down.sql"),
        oldest: 6,
    },
    Migration {
        version: 7,
        name: "by_source",
        up: include_str!("postgres/0007_by_source.up.sql"),
        down: include_str!("postgres/0007_by_source.down.sql"),
        oldest: 7,
    },
    Migration {
        version: 8,
        name: "what_was_signed_and_who_retries",
        up: include_str!("postgres/0008_what_was_signed_and_who_retries.up.sql"),
        down: include_str!("postgres/0008_what_was_signed_and_who_retries.down.sql"),
        oldest: 7,
    },
    Migration {
        version: DICTIONARIES,
        name: "dictionaries",
        up: include_str!("postgres/0009_dictionaries.up.sql"),
        down: include_str!("postgres/0009_dictionaries.down.sql"),
        oldest: 9,
    },
];

/// The version that packs bodies with dictionaries. Nodes of earlier versions cannot read such bodies, and nodes of this one
/// work without it: so a new store has it, and an existing one gets it by `hookonce migrate up` alone.
pub const DICTIONARIES: u32 = 9;
/// The newest version that every node needs, and applies when it starts.
pub const NEEDED: u32 = DICTIONARIES - 1;

const MAKE_LOG: &str = "create table if not exists schema_migrations (
    version    integer not null primary key,
    name       text    not null,
    checksum   text    not null,
    applied_at bigint  not null,
    oldest     integer
)";
/// The oldest version that may run at the same time; a log created by the first release lacks the column.
const ADD_OLDEST: &str = "alter table schema_migrations add column if not exists oldest integer";

/// How long a migration waits for maintenance of the tables that it alters: a vacuum, or an index build. No read or
/// write queues behind it. PostgreSQL cancels an autovacuum that blocks another transaction, but only after
/// `deadlock_timeout`, 1 s by default.
const MAINTENANCE_TIME: &str = "set local lock_timeout = '10s'";
/// How long it then waits for a lock on a table. Writers of the table queue behind it for as long, so it gives up soon
/// and retries.
const LOCK_TIME: &str = "set local lock_timeout = '25ms'";
/// The wait before it retries.
const LOCK_AGAIN: Duration = Duration::from_millis(250);
/// How long it retries.
const LOCK_PATIENCE: Duration = Duration::from_mins(5);

const NOTE: &str = "insert into schema_migrations (version, name, checksum, oldest, applied_at) \
     values ($1, $2, $3, $4, (extract(epoch from clock_timestamp()) * 1000000)::bigint)";

/// The advisory lock around schema changes: the letters of our name.
pub(in crate::store) const LOCK: &str = "select pg_advisory_lock(7525476853281449829)";
/// Releases the lock.
pub(in crate::store) const UNLOCK: &str = "select pg_advisory_unlock(7525476853281449829)";

/// Large tables take longer than a query may.
pub(in crate::store) const TAKE_TIME: &str = "set local statement_timeout = 0";

/// Why a migration was not applied. The schema is unchanged.
#[derive(Debug)]
pub enum PgMigrationError {
    /// The schema must not be changed.
    Refused(MigrationRejection),
    /// It is unclear which schema of the database is ours.
    Conflict(StoreSchemaError),
    /// A PostgreSQL error.
    Postgres(Error),
}

impl fmt::Display for PgMigrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => fmt::Display::fmt(refused, f),
            Self::Conflict(conflict) => fmt::Display::fmt(conflict, f),
            Self::Postgres(error) => match error.as_db_error() {
                Some(said) => f.write_str(said.message()),
                None => fmt::Display::fmt(error, f),
            },
        }
    }
}

impl std::error::Error for PgMigrationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::Conflict(conflict) => Some(conflict),
            Self::Postgres(error) => Some(error),
        }
    }
}

impl From<MigrationRejection> for PgMigrationError {
    fn from(refused: MigrationRejection) -> Self {
        Self::Refused(refused)
    }
}

impl From<Error> for PgMigrationError {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

/// The migrations applied in this schema, oldest first; empty if it has no log.
pub async fn applied(db: &Client, schema: &SchemaName) -> Result<Vec<AppliedMigration>, Error> {
    let log = schema.relation("schema_migrations");
    let there = db.query_one("select to_regclass($1) is not null", &[&log]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    // In a log created by the first release, this column is missing and read as null.
    let sql = schema.qualify(
        "select version, name, checksum, applied_at, (to_jsonb(m) ->> 'oldest')::integer \
         from {schema}.schema_migrations m order by version",
    );
    let one = |row: tokio_postgres::Row| AppliedMigration {
        version: row.get::<_, i32>(0).unsigned_abs(),
        name: row.get(1),
        checksum: row.get(2),
        applied_at: Timestamp(row.get(3)),
        oldest: row.get::<_, Option<i32>>(4).map(i32::unsigned_abs),
    };
    Ok(db.query(&sql, &[]).await?.into_iter().map(one).collect())
}

/// Which version to migrate up to.
#[derive(Clone, Copy)]
enum UpTarget {
    /// This one, or the newest.
    Version(Option<u32>),
    /// What a node needs when it starts; of a new store the newest.
    Start,
}

impl UpTarget {
    fn way(self, applied: &[AppliedMigration]) -> Result<Vec<&'static Migration>, MigrationRejection> {
        let to = match self {
            Self::Version(to) => to,
            Self::Start => (!applied.is_empty()).then_some(NEEDED),
        };
        super::way_up(MIGRATIONS, applied, to)
    }
}

/// May this binary work with a store that has these migrations?
pub fn fits(applied: &[AppliedMigration]) -> Result<(), MigrationRejection> {
    super::fits_from(NEEDED, MIGRATIONS, applied)
}

/// The migrations that a node applies to this store when it starts.
pub fn way_at_start(applied: &[AppliedMigration]) -> Result<Vec<&'static Migration>, MigrationRejection> {
    UpTarget::Start.way(applied)
}

/// Has the store every version that a node needs?
pub fn is_complete(standings: &[MigrationStatus]) -> bool {
    standings.iter().all(|one| one.applied_at.is_some() || one.version > NEEDED)
}

/// The status of every version.
pub async fn status(db: &Client, schema: &SchemaName) -> Result<Vec<MigrationStatus>, PgMigrationError> {
    Ok(super::standings(MIGRATIONS, &applied(db, schema).await?))
}

/// Migrates up to this version, or to the newest. Returns what was applied.
pub async fn up(
    db: &mut Client,
    schema: &SchemaName,
    to: Option<u32>,
) -> Result<Vec<&'static Migration>, PgMigrationError> {
    up_with(db, schema, UpTarget::Version(to)).await
}

/// Migrates a new store up to the newest version, and another one to the version that a node needs.
pub async fn up_at_start(db: &mut Client, schema: &SchemaName) -> Result<Vec<&'static Migration>, PgMigrationError> {
    up_with(db, schema, UpTarget::Start).await
}

async fn up_with(
    db: &mut Client,
    schema: &SchemaName,
    to: UpTarget,
) -> Result<Vec<&'static Migration>, PgMigrationError> {
    // Nodes with nothing to do do not wait for the lock.
    if to.way(&applied(db, schema).await?)?.is_empty() {
        return Ok(Vec::new());
    }
    db.batch_execute(LOCK).await?;
    let done = up_alone(db, schema, to).await;
    db.batch_execute(UNLOCK).await?;
    done
}

async fn up_alone(
    db: &mut Client,
    schema: &SchemaName,
    to: UpTarget,
) -> Result<Vec<&'static Migration>, PgMigrationError> {
    let way = to.way(&applied(db, schema).await?)?;
    if !way.is_empty() {
        make_schema(db, schema).await?;
    }
    for migration in &way {
        let began = Instant::now();
        while let Err(error) = apply(db, schema, migration).await {
            // An index build waits for other transactions, too: PostgreSQL aborts one of two that wait for each other.
            let again = [&SqlState::LOCK_NOT_AVAILABLE, &SqlState::T_R_DEADLOCK_DETECTED];
            if !error.code().is_some_and(|code| again.contains(&code)) || began.elapsed() > LOCK_PATIENCE {
                return Err(error.into());
            }
            tokio::time::sleep(LOCK_AGAIN).await;
        }
    }
    Ok(way)
}

async fn apply(db: &mut Client, schema: &SchemaName, migration: &Migration) -> Result<(), Error> {
    let tx = begin(db, schema).await?;
    end_maintenance(&tx, schema, migration).await?;
    tx.batch_execute(LOCK_TIME).await?;
    tx.batch_execute(MAKE_LOG).await?;
    tx.batch_execute(ADD_OLDEST).await?;
    tx.batch_execute(migration.up).await?;
    let (version, oldest) = (migration.version.cast_signed(), migration.oldest.cast_signed());
    tx.execute(NOTE, &[&version, &migration.name, &migration.checksum(), &oldest]).await?;
    tx.commit().await
}

/// Waits until no vacuum or index build runs on the tables that this migration alters, and blocks new ones until the
/// transaction ends. Reads and writes continue.
async fn end_maintenance(tx: &Transaction<'_>, schema: &SchemaName, migration: &Migration) -> Result<(), Error> {
    tx.batch_execute(MAINTENANCE_TIME).await?;
    for table in altered(migration) {
        let table = schema.relation(table);
        // A table that the migration itself creates does not exist yet.
        if tx.query_one("select to_regclass($1) is not null", &[&table]).await?.try_get(0)? {
            tx.batch_execute(&format!("lock table {table} in share update exclusive mode")).await?;
        }
    }
    Ok(())
}

/// The tables that a migration alters, each once.
fn altered(migration: &Migration) -> Vec<&'static str> {
    let mut tables = Vec::new();
    for line in migration.up.lines() {
        let named = line.trim_start().strip_prefix("alter table ").and_then(|rest| rest.split([' ', ';']).next());
        tables.extend(named.filter(|name| !tables.contains(name)));
    }
    tables
}

/// Creates the schema if it is missing. A user without the right to create one may still use an existing one.
pub(in crate::store) async fn make_schema(db: &impl GenericClient, schema: &SchemaName) -> Result<(), Error> {
    let sql = "select exists (select from pg_namespace where nspname = $1)";
    if !db.query_one(sql, &[&schema.as_str()]).await?.try_get::<_, bool>(0)? {
        db.batch_execute(&format!("create schema {schema}")).await?;
    }
    Ok(())
}

/// A transaction for the statements of a migration: unqualified names are in our schema, and in no other.
async fn begin<'d>(db: &'d mut Client, schema: &SchemaName) -> Result<Transaction<'d>, Error> {
    let tx = db.transaction().await?;
    tx.batch_execute(TAKE_TIME).await?;
    tx.batch_execute(&format!("set local search_path = {schema}, pg_temp")).await?;
    Ok(tx)
}

/// Every table and sequence of a store with its kind, read from the migrations.
pub(in crate::store) fn relations() -> impl Iterator<Item = (&'static str, &'static str)> {
    let made = MIGRATIONS.iter().flat_map(|migration| migration.up.lines()).filter_map(|line| {
        let (kind, rest) = line.trim_start().strip_prefix("create ")?.split_once(' ')?;
        let rest = rest.strip_prefix("if not exists ").unwrap_or(rest);
        let name = rest.split([' ', '(', ';']).next()?;
        matches!(kind, "table" | "sequence").then_some((kind, name))
    });
    made.chain([("table", "schema_migrations")])
}

/// Leaves a log with one very high version where a store was: it says where the store went, and keeps the first
/// release, which compares only the number, from creating another store here.
pub(in crate::store) async fn leave_a_sign(
    tx: &Transaction<'_>,
    from: &SchemaName,
    to: &SchemaName,
) -> Result<(), Error> {
    tx.batch_execute(&format!("set local search_path = {from}, pg_temp")).await?;
    tx.batch_execute(MAKE_LOG).await?;
    tx.batch_execute(ADD_OLDEST).await?;
    let name = format!("{}{}", locate::MOVED_TO, to.as_str());
    tx.execute(NOTE, &[&locate::MOVED, &name, &"", &locate::MOVED]).await?;
    Ok(())
}

/// Migrates down to this version, removing what later versions added. Returns what was undone.
pub async fn down(db: &mut Client, schema: &SchemaName, to: u32) -> Result<Vec<&'static Migration>, PgMigrationError> {
    db.batch_execute(LOCK).await?;
    let done = down_alone(db, schema, to).await;
    db.batch_execute(UNLOCK).await?;
    done
}

async fn down_alone(
    db: &mut Client,
    schema: &SchemaName,
    to: u32,
) -> Result<Vec<&'static Migration>, PgMigrationError> {
    let way = super::way_down(MIGRATIONS, &applied(db, schema).await?, to)?;
    for migration in &way {
        let mut tx = begin(db, schema).await?;
        if migration.version == DICTIONARIES {
            pack_all_anew(&mut tx).await?;
        }
        tx.batch_execute(migration.down).await?;
        tx.execute("delete from schema_migrations where version = $1", &[&migration.version.cast_signed()]).await?;
        tx.commit().await?;
    }
    Ok(way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_creates_a_store_with_dictionaries_and_adds_none_to_a_store_that_is_there() {
        let check = |has: u32, expected: u32| {
            let one = |migration: &Migration| AppliedMigration {
                version: migration.version,
                name: migration.name.into(),
                checksum: migration.checksum(),
                applied_at: Timestamp(1),
                oldest: Some(migration.oldest),
            };
            let applied: Vec<_> = MIGRATIONS.iter().filter(|one| one.version <= has).map(one).collect();
            let way = way_at_start(&applied).expect("there is a way");
            assert_eq!(way.last().map_or(has, |last| last.version), expected);
            assert_eq!(fits(&applied).is_ok(), has >= NEEDED);
        };
        check(0, 9);
        check(7, 8);
        check(8, 8);
        check(9, 9);
    }

    #[test]
    fn the_relations_of_a_store_are_read_from_its_migrations() {
        let all: Vec<_> = relations().collect();
        for one in [("table", "events"), ("table", "quarantine"), ("sequence", "turns"), ("table", "schema_migrations")]
        {
            assert!(all.contains(&one), "{one:?}: {all:?}");
        }
    }

    #[test]
    fn the_tables_that_a_migration_alters_are_read_from_its_statements() {
        let of = |version: u32| altered(&MIGRATIONS[version as usize - 1]);
        assert_eq!(of(1), [""; 0]);
        assert_eq!(of(7), ["quarantine"]);
        assert_eq!(of(8)[..3], ["events", "keys", "scopes"]);
    }
}
