//! The schema in PostgreSQL: every migration in a transaction of its own, with its row in `schema_migrations`, and an
//! advisory lock round all of them, so that nodes that start together do not get in each other's way.

use super::{Applied, Migration, Refused, Standing};
use crate::decide::time::Timestamp;
use std::fmt;
use tokio_postgres::{Client, Error};

/// Every version there is.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "events",
        up: include_str!("postgres/0001_events.up.sql"),
        down: include_str!("postgres/0001_events.down.sql"),
    },
    Migration {
        version: 2,
        name: "beside",
        up: include_str!("postgres/0002_beside.up.sql"),
        down: include_str!("postgres/0002_beside.down.sql"),
    },
    Migration {
        version: 3,
        name: "scopes",
        up: include_str!("postgres/0003_scopes.up.sql"),
        down: include_str!("postgres/0003_scopes.down.sql"),
    },
    Migration {
        version: 4,
        name: "imported",
        up: include_str!("postgres/0004_imported.up.sql"),
        down: include_str!("postgres/0004_imported.down.sql"),
    },
    Migration {
        version: 5,
        name: "quarantine",
        up: include_str!("postgres/0005_quarantine.up.sql"),
        down: include_str!("postgres/0005_quarantine.down.sql"),
    },
    Migration {
        version: 6,
        name: "listing",
        up: include_str!("postgres/0006_listing.up.sql"),
        down: include_str!("postgres/0006_listing.down.sql"),
    },
    Migration {
        version: 7,
        name: "by_source",
        up: include_str!("postgres/0007_by_source.up.sql"),
        down: include_str!("postgres/0007_by_source.down.sql"),
    },
    Migration {
        version: 8,
        name: "what_was_signed_and_who_retries",
        up: include_str!("postgres/0008_what_was_signed_and_who_retries.up.sql"),
        down: include_str!("postgres/0008_what_was_signed_and_who_retries.down.sql"),
    },
];

const MAKE_LOG: &str = "create table if not exists schema_migrations (
    version    integer not null primary key,
    name       text    not null,
    checksum   text    not null,
    applied_at bigint  not null
)";

/// The advisory lock round changes of the schema: the letters of our name.
pub(in crate::store) const LOCK: &str = "select pg_advisory_lock(7525476853281449829)";
/// Gives it back.
pub(in crate::store) const UNLOCK: &str = "select pg_advisory_unlock(7525476853281449829)";

/// Large tables take longer than a question may.
pub(in crate::store) const TAKE_TIME: &str = "set local statement_timeout = 0";

/// Why the schema is as it was before the call.
#[derive(Debug)]
pub enum Problem {
    /// It is not ours to change.
    Refused(Refused),
    /// PostgreSQL did not do it.
    Postgres(Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => fmt::Display::fmt(refused, f),
            Self::Postgres(error) => match error.as_db_error() {
                Some(said) => f.write_str(said.message()),
                None => fmt::Display::fmt(error, f),
            },
        }
    }
}

impl std::error::Error for Problem {}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

/// What this database went through, the oldest first; nothing where it has no log of it.
pub async fn applied(db: &Client) -> Result<Vec<Applied>, Error> {
    let there = db.query_one("select to_regclass('schema_migrations') is not null", &[]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let rows = db.query("select version, name, checksum, applied_at from schema_migrations order by version", &[]);
    let one = |row: tokio_postgres::Row| Applied {
        version: row.get::<_, i32>(0).unsigned_abs(),
        name: row.get(1),
        checksum: row.get(2),
        applied_at: Timestamp(row.get(3)),
    };
    Ok(rows.await?.into_iter().map(one).collect())
}

/// Where every version stands.
pub async fn status(db: &Client) -> Result<Vec<Standing>, Problem> {
    Ok(super::standings(MIGRATIONS, &applied(db).await?))
}

/// Goes up to this version; `None`: to the newest. Says what was applied.
pub async fn up(db: &mut Client, to: Option<u32>) -> Result<Vec<&'static Migration>, Problem> {
    // Nodes that find nothing to do wait for nobody.
    if super::way_up(MIGRATIONS, &applied(db).await?, to)?.is_empty() {
        return Ok(Vec::new());
    }
    db.batch_execute(LOCK).await?;
    let done = up_alone(db, to).await;
    db.batch_execute(UNLOCK).await?;
    done
}

async fn up_alone(db: &mut Client, to: Option<u32>) -> Result<Vec<&'static Migration>, Problem> {
    let way = super::way_up(MIGRATIONS, &applied(db).await?, to)?;
    for migration in &way {
        let tx = db.transaction().await?;
        tx.batch_execute(TAKE_TIME).await?;
        tx.batch_execute(MAKE_LOG).await?;
        tx.batch_execute(migration.up).await?;
        tx.execute(
            "insert into schema_migrations (version, name, checksum, applied_at) \
             values ($1, $2, $3, (extract(epoch from clock_timestamp()) * 1000000)::bigint)",
            &[&migration.version.cast_signed(), &migration.name, &migration.checksum()],
        )
        .await?;
        tx.commit().await?;
    }
    Ok(way)
}

/// Goes back to this version, and removes what the versions after it hold. Says what was taken back.
pub async fn down(db: &mut Client, to: u32) -> Result<Vec<&'static Migration>, Problem> {
    db.batch_execute(LOCK).await?;
    let done = down_alone(db, to).await;
    db.batch_execute(UNLOCK).await?;
    done
}

async fn down_alone(db: &mut Client, to: u32) -> Result<Vec<&'static Migration>, Problem> {
    let way = super::way_down(MIGRATIONS, &applied(db).await?, to)?;
    for migration in &way {
        let tx = db.transaction().await?;
        tx.batch_execute(TAKE_TIME).await?;
        tx.batch_execute(migration.down).await?;
        tx.execute("delete from schema_migrations where version = $1", &[&migration.version.cast_signed()]).await?;
        tx.commit().await?;
    }
    Ok(way)
}
