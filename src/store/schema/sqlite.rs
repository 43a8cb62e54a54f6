//! Migrations in SQLite: each in its own transaction, together with its row in `schema_migrations`.

use super::{AppliedMigration, Migration, MigrationRejection, MigrationStatus};
use crate::decide::time::Timestamp;
use crate::store::sqlite::pack_all_anew;
use rusqlite::{Connection, TransactionBehavior};
use std::fmt;

/// All migrations.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "events",
        up: include_str!("sqlite/0001_events.up.sql"),
        down: include_str!("sqlite/0001_events.down.sql"),
        oldest: 1,
    },
    Migration {
        version: 2,
        name: "beside",
        up: include_str!("sqlite/0002_beside.up.sql"),
        down: include_str!("sqlite/0002_beside.down.sql"),
        oldest: 2,
    },
    Migration {
        version: 3,
        name: "scopes",
        up: include_str!("sqlite/0003_scopes.up.sql"),
        down: include_str!("sqlite/0003_scopes.down.sql"),
        oldest: 3,
    },
    Migration {
        version: 4,
        name: "imported",
        up: include_str!("sqlite/0004_imported.up.sql"),
        down: include_str!("sqlite/0004_imported.down.sql"),
        oldest: 4,
    },
    Migration {
        version: 5,
        name: "listing",
        up: include_str!("sqlite/0005_listing.up.sql"),
        down: include_str!("sqlite/0005_listing.down.sql"),
        oldest: 5,
    },
    Migration {
        version: 6,
        name: "quarantine",
        up: include_str!("sqlite/0006_quarantine.up.sql"),
        down: include_str!("sqlite/0006_quarantine.down.sql"),
        oldest: 6,
    },
    Migration {
        version: 7,
        name: "by_source",
        up: include_str!("sqlite/0007_by_source.up.sql"),
        down: include_str!("sqlite/0007_by_source.down.sql"),
        oldest: 7,
    },
    Migration {
        version: 8,
        name: "what_was_signed_and_who_retries",
        up: include_str!("sqlite/0008_what_was_signed_and_who_retries.up.sql"),
        down: include_str!("sqlite/0008_what_was_signed_and_who_retries.down.sql"),
        oldest: 7,
    },
    Migration {
        version: 9,
        name: "append_first",
        up: include_str!("sqlite/0009_append_first.up.sql"),
        down: include_str!("sqlite/0009_append_first.down.sql"),
        oldest: 9,
    },
    Migration {
        version: DICTIONARIES,
        name: "dictionaries",
        up: include_str!("sqlite/0010_dictionaries.up.sql"),
        down: include_str!("sqlite/0010_dictionaries.down.sql"),
        oldest: 10,
    },
    Migration {
        version: 11,
        name: "fewer_indexes",
        up: include_str!("sqlite/0011_fewer_indexes.up.sql"),
        down: include_str!("sqlite/0011_fewer_indexes.down.sql"),
        oldest: 11,
    },
];

/// The version that packs bodies with dictionaries: no SQL can undo that.
const DICTIONARIES: u32 = 10;

const MAKE_LOG: &str = "create table if not exists schema_migrations (
    version    integer not null primary key,
    name       text    not null,
    checksum   text    not null,
    applied_at integer not null,
    oldest     integer                           -- the oldest version that may work beside it
) strict";
/// For a log created by the first release, which lacks this column.
const ADD_OLDEST: &str = "alter table schema_migrations add column oldest integer";

/// Why a migration was not applied. The schema is unchanged.
#[derive(Debug)]
pub enum SqliteMigrationError {
    /// The schema must not be changed.
    Refused(MigrationRejection),
    /// An SQLite error.
    Sqlite(rusqlite::Error),
}

impl fmt::Display for SqliteMigrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => fmt::Display::fmt(refused, f),
            Self::Sqlite(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for SqliteMigrationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::Sqlite(error) => Some(error),
        }
    }
}

impl From<MigrationRejection> for SqliteMigrationError {
    fn from(refused: MigrationRejection) -> Self {
        Self::Refused(refused)
    }
}

impl From<rusqlite::Error> for SqliteMigrationError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// The migrations applied to this database, oldest first; empty if it has no log.
pub fn applied(db: &Connection) -> Result<Vec<AppliedMigration>, rusqlite::Error> {
    let log = "select count(*) from sqlite_schema where name = 'schema_migrations'";
    if db.query_row(log, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let oldest = if tells_oldest(db)? { "oldest" } else { "null" };
    let sql = format!("select version, name, checksum, applied_at, {oldest} from schema_migrations order by version");
    let mut rows = db.prepare(&sql)?;
    let one = |row: &rusqlite::Row<'_>| {
        let (version, name, checksum, at) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(AppliedMigration { version, name, checksum, applied_at: Timestamp(at), oldest: row.get(4)? })
    };
    rows.query_map([], one)?.collect()
}

/// Does the log have the column `oldest`?
fn tells_oldest(db: &Connection) -> Result<bool, rusqlite::Error> {
    let sql = "select count(*) from pragma_table_info('schema_migrations') where name = 'oldest'";
    Ok(db.query_row(sql, [], |row| row.get::<_, i64>(0))? == 1)
}

/// The status of every version.
pub fn status(db: &Connection) -> Result<Vec<MigrationStatus>, SqliteMigrationError> {
    Ok(super::standings(MIGRATIONS, &applied(db)?))
}

/// Migrates up to this version, or to the newest. Returns what was applied.
pub fn up(
    db: &mut Connection,
    to: Option<u32>,
    now: Timestamp,
) -> Result<Vec<&'static Migration>, SqliteMigrationError> {
    let way = super::way_up(MIGRATIONS, &applied(db)?, to)?;
    for migration in &way {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(MAKE_LOG)?;
        if !tells_oldest(&tx)? {
            tx.execute_batch(ADD_OLDEST)?;
        }
        tx.execute_batch(migration.up)?;
        tx.execute(
            "insert into schema_migrations (version, name, checksum, applied_at, oldest) values (?1, ?2, ?3, ?4, ?5)",
            (migration.version, migration.name, migration.checksum(), now.0, migration.oldest),
        )?;
        tx.commit()?;
    }
    Ok(way)
}

/// Migrates down to this version, removing what later versions added. Returns what was undone.
pub fn down(db: &mut Connection, to: u32) -> Result<Vec<&'static Migration>, SqliteMigrationError> {
    let way = super::way_down(MIGRATIONS, &applied(db)?, to)?;
    for migration in &way {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if migration.version == DICTIONARIES {
            pack_all_anew(&tx)?;
        }
        tx.execute_batch(migration.down)?;
        tx.execute("delete from schema_migrations where version = ?1", [migration.version])?;
        tx.commit()?;
    }
    Ok(way)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(db: &Connection) -> Vec<(String, String, Option<String>)> {
        let mut rows = db.prepare("select type, name, sql from sqlite_schema order by type, name").expect("a query");
        let one = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        rows.query_map([], one).expect("rows").map(|row| row.expect("a row")).collect()
    }

    #[test]
    fn up_then_down_then_up_leaves_the_same_schema_for_every_version() {
        for migration in MIGRATIONS {
            let mut db = Connection::open_in_memory().expect("a database");
            up(&mut db, Some(migration.version - 1), Timestamp(1)).expect("up to the version before");
            let before = schema(&db);
            up(&mut db, Some(migration.version), Timestamp(1)).expect("up");
            let there = schema(&db);
            down(&mut db, migration.version - 1).expect("down");
            if migration.version > 1 {
                assert_eq!(schema(&db), before, "{}", migration.name);
            }
            up(&mut db, Some(migration.version), Timestamp(2)).expect("up again");
            assert_eq!(schema(&db), there, "{}", migration.name);
        }
    }

    #[test]
    fn going_all_the_way_down_leaves_nothing_but_the_log() {
        let mut db = Connection::open_in_memory().expect("a database");
        up(&mut db, None, Timestamp(1)).expect("up");
        assert_eq!(down(&mut db, 0).expect("down").len(), MIGRATIONS.len());
        let left: Vec<_> = schema(&db).into_iter().map(|(_, name, _)| name).collect();
        assert_eq!(left, ["schema_migrations"]);
        assert!(applied(&db).expect("the log").is_empty());
    }

    #[test]
    fn quarantined_messages_survive_migrating_up_and_stay_once_per_message_when_migrating_down() {
        let mut db = Connection::open_in_memory().expect("a database");
        let lay = "insert into quarantine (message, source, subject, at, why, bytes, head) \
                   values (?1, ?2, '', 0, '', 0, x'') on conflict do nothing";
        let lie = |db: &Connection| {
            let mut rows = db.prepare("select source || ' ' || message from quarantine order by n").expect("a query");
            let rows = rows.query_map([], |row| row.get::<_, String>(0)).expect("rows");
            rows.map(|row| row.expect("a row")).collect::<Vec<_>>()
        };
        up(&mut db, Some(6), Timestamp(1)).expect("up");
        db.execute(lay, ["m1", "a"]).expect("a row");
        up(&mut db, Some(7), Timestamp(1)).expect("up");
        // The same statement as a binary of schema version 6: it may still be running.
        for (message, source) in [("m1", "a"), ("m1", "b"), ("m2", "b")] {
            db.execute(lay, [message, source]).expect("it is inserted, or was there");
        }
        assert_eq!(lie(&db), ["a m1", "b m1", "b m2"]);
        down(&mut db, 6).expect("down");
        assert_eq!(lie(&db), ["a m1", "b m2"]);
    }

    #[test]
    fn keys_and_names_are_indexed_by_migrating_up_and_whole_again_by_migrating_down() {
        let mut db = Connection::open_in_memory().expect("a database");
        up(&mut db, Some(8), Timestamp(1)).expect("up");
        let event = "insert into events (id, revision, source, route, part, delivery_id, fields, state, received_at, life, \
                     attempt, doubts, blocks_done, passed, turn, body, body_digest, digest) values \
                     (?1, 1, 's', 'r', 0, ?2, '{}', 'done', 0, 1, 0, 0, 0, 0, 0, 0, x'', x'')";
        let key = "insert into keys (key, event, identity, alias, id_digest) values (?1, ?2, ?3, ?4, ?5)";
        for n in 0..100_u8 {
            let id = [n; 16];
            let name = (n % 3 > 0).then(|| format!("{n}{}", "ä".repeat(usize::from(n))));
            db.execute(event, (id, name)).expect("an event");
            for (alias, byte) in [(false, 1), (true, 2)] {
                let mut bytes = [n; 32];
                (bytes[0], bytes[31]) = (byte, 7);
                db.execute(key, (bytes, id, "body", alias, alias.then_some([n; 8]))).expect("a key");
            }
        }
        let keys = |db: &Connection| {
            let mut rows = db
                .prepare(
                    "select quote(key) || quote(event) || identity || alias || quote(id_digest) from keys \
                                       order by key",
                )
                .expect("a query");
            let rows = rows.query_map([], |row| row.get::<_, String>(0)).expect("rows");
            rows.collect::<Result<Vec<_>, _>>().expect("texts")
        };
        let before = keys(&db);
        up(&mut db, Some(9), Timestamp(1)).expect("up");
        let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a count");
        let indexed = "select count(*) from keys join key_index on key_index.event = keys.event \
                       and key_index.key = substr(keys.key, 1, 16)";
        assert_eq!((count(indexed), count("select count(*) from key_index")), (200, 200));
        let named = "select count(*) from events join name_index on name_index.event = events.id \
                     and name_index.name in (cast(substr(delivery_id, -16) as blob), substr(id, 13))";
        assert_eq!((count(named), count("select count(*) from name_index")), (166, 166));
        // Damage may leave a key with two events: the older one keeps it.
        let twice = "insert into keys (key, event, identity, alias) select key, x'ff', identity, alias from keys \
                     where event = ?1";
        assert_eq!(db.execute(twice, [[7_u8; 16]]).expect("two keys"), 2);
        down(&mut db, 8).expect("down");
        assert_eq!(keys(&db), before);
    }

    #[test]
    fn versions_are_numbered_without_a_gap() {
        assert!(MIGRATIONS.iter().zip(1..).all(|(migration, number)| migration.version == number));
    }

    #[test]
    fn a_migration_with_another_checksum_is_refused() {
        let mut db = Connection::open_in_memory().expect("a database");
        up(&mut db, Some(1), Timestamp(1)).expect("up");
        db.execute("update schema_migrations set checksum = 'another'", []).expect("an edit");
        let refused =
            |got| matches!(got, Err(SqliteMigrationError::Refused(MigrationRejection::Drift { version: 1, .. })));
        assert!(refused(up(&mut db, None, Timestamp(2))));
        assert!(refused(down(&mut db, 0)));
    }
}
