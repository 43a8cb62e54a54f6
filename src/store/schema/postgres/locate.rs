//! Finding the schema that holds the store: `hookonce` unless the URL names another. A store of the first release is in
//! the first schema of its user's `search_path`, and stays there until an operator moves it.
//!
//! Other programs have a table `schema_migrations`, too. Ours is recognized by its columns and its first row.

use super::{MIGRATIONS, PgMigrationError, SchemaName};
use std::fmt;
use tokio_postgres::{Client, Error};

/// The version in a `schema_migrations` that a moved store left behind. The first release compares only numbers, and
/// refuses a store this far ahead, so it does not create a second, empty store where the first one was.
pub(super) const MOVED: i32 = i32::MAX;
/// The prefix of that version's name; the new schema follows.
pub(super) const MOVED_TO: &str = "moved to schema ";

/// Where a store is, or where it is to be created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaLocation {
    /// The schema.
    pub schema: SchemaName,
    /// Other schemas of the `search_path` that hold a store.
    pub others: Vec<SchemaName>,
}

/// The error that no PostgreSQL schema (namespace) of the database can hold this store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreSchemaError {
    /// The schema holds another program's `schema_migrations`.
    Foreign(SchemaName),
    /// The store was moved to another schema than the URL names.
    Moved {
        /// Where it was.
        from: SchemaName,
        /// Where it is.
        to: SchemaName,
    },
    /// The URL names an empty schema, but another one holds a store.
    Elsewhere {
        /// The schema that the URL names.
        named: SchemaName,
        /// The one that holds a store.
        found: SchemaName,
    },
}

impl fmt::Display for StoreSchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(schema) => write!(
                f,
                "schema {schema} has a table schema_migrations that is not hookonce's; use another schema for hookonce: \
                 add `schema=NAME` to the URL"
            ),
            Self::Moved { from, to } => write!(
                f,
                "the store was moved from schema {from} to schema {to}; add `schema={}` to the URL",
                to.as_str()
            ),
            Self::Elsewhere { named, found } => write!(
                f,
                "the URL names schema {named}, which is empty, and there is a store in schema {found}; move it with \
                 `hookonce migrate up --schema {}`, or remove `schema` from the URL. To create a second store here, \
                 first move the other one to a schema of its own",
                named.as_str()
            ),
        }
    }
}

impl std::error::Error for StoreSchemaError {}

/// The content of a schema's table `schema_migrations`.
#[derive(Clone, PartialEq, Eq, Debug)]
enum MigrationLog {
    /// It is ours, and the store is here.
    Ours,
    /// It is ours, and the store was moved to this schema.
    MovedTo(SchemaName),
    /// It is ours, and nothing was applied.
    Empty,
    /// It is another program's.
    Foreign,
}

const LOGS: &str = "select n.nspname::text, n.nspname = any(current_schemas(false)), \
     (select count(*) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped \
     and (a.attname::text, format_type(a.atttypid, null)) in (('version', 'integer'), ('name', 'text'), \
     ('checksum', 'text'), ('applied_at', 'bigint'))) = 4 \
     from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relname = 'schema_migrations' \
     and (n.nspname = $1 or n.nspname = any(current_schemas(false))) \
     order by array_position(current_schemas(false), n.nspname)";

/// Looks for the store in the schema that the URL names, else in `hookonce`, else along the `search_path`.
pub async fn locate(db: &Client, named: Option<&SchemaName>) -> Result<SchemaLocation, PgMigrationError> {
    let wanted = named.cloned().unwrap_or_default();
    let (mut here, mut on_path) = (MigrationLog::Empty, Vec::new());
    for row in db.query(LOGS, &[&wanted.as_str()]).await? {
        let (schema, in_path, fits) = (SchemaName::of(row.try_get(0)?), row.try_get(1)?, row.try_get(2)?);
        let log = if fits { read(db, &schema).await? } else { MigrationLog::Foreign };
        if schema == wanted {
            here = log;
        } else if in_path {
            on_path.push((schema, log));
        }
    }
    choose(named, wanted, here, on_path).map_err(PgMigrationError::Conflict)
}

async fn read(db: &Client, schema: &SchemaName) -> Result<MigrationLog, Error> {
    let log = schema.relation("schema_migrations");
    let rows = db.query(&format!("select version, name from {log} order by version desc"), &[]).await?;
    let rows: Vec<(i32, &str)> =
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_, Error>>()?;
    Ok(match rows.first() {
        None => MigrationLog::Empty,
        Some((MOVED, name)) => {
            MigrationLog::MovedTo(name.strip_prefix(MOVED_TO).map_or_else(SchemaName::default, SchemaName::of))
        }
        _ if rows.iter().any(|(version, name)| (*version, *name) == (1, MIGRATIONS[0].name)) => MigrationLog::Ours,
        _ => MigrationLog::Foreign,
    })
}

/// Chooses the schema from the logs that were found.
fn choose(
    named: Option<&SchemaName>,
    wanted: SchemaName,
    here: MigrationLog,
    on_path: Vec<(SchemaName, MigrationLog)>,
) -> Result<SchemaLocation, StoreSchemaError> {
    let stores = || on_path.iter().filter(|(_, log)| *log == MigrationLog::Ours).map(|(schema, _)| schema.clone());
    match here {
        MigrationLog::Ours => {
            // A schema named in the URL: two stores are intended.
            let others = if named.is_some() { Vec::new() } else { stores().collect() };
            return Ok(SchemaLocation { schema: wanted, others });
        }
        MigrationLog::Foreign if named.is_some() || stores().next().is_none() => {
            return Err(StoreSchemaError::Foreign(wanted));
        }
        MigrationLog::MovedTo(to) => return Err(StoreSchemaError::Moved { from: wanted, to }),
        MigrationLog::Foreign | MigrationLog::Empty => {}
    }
    match (stores().next(), named) {
        (Some(found), None) => return Ok(SchemaLocation { schema: found, others: stores().skip(1).collect() }),
        (Some(found), Some(_)) => return Err(StoreSchemaError::Elsewhere { named: wanted, found }),
        (None, Some(_)) => {}
        (None, None) => {
            for (from, log) in on_path {
                if let MigrationLog::MovedTo(to) = log
                    && to != wanted
                {
                    return Err(StoreSchemaError::Moved { from, to });
                }
            }
        }
    }
    Ok(SchemaLocation { schema: wanted, others: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> SchemaName {
        SchemaName::of(name)
    }

    fn check(
        named: Option<&str>,
        here: MigrationLog,
        path: &[(&str, MigrationLog)],
        expected: Result<&str, StoreSchemaError>,
    ) {
        let named = named.map(name);
        let path = path.iter().map(|(schema, log)| (name(schema), log.clone())).collect();
        let came = choose(named.as_ref(), named.clone().unwrap_or_default(), here, path);
        assert_eq!(came.map(|located| located.schema), expected.map(name));
    }

    #[test]
    fn a_store_is_in_the_schema_of_the_url_else_in_hookonce_else_where_an_older_one_is_found() {
        check(None, MigrationLog::Empty, &[], Ok("hookonce"));
        check(None, MigrationLog::Ours, &[("public", MigrationLog::Ours)], Ok("hookonce"));
        check(
            None,
            MigrationLog::Empty,
            &[("app", MigrationLog::Foreign), ("public", MigrationLog::Ours)],
            Ok("public"),
        );
        check(None, MigrationLog::Empty, &[("public", MigrationLog::Foreign)], Ok("hookonce"));
        check(Some("two"), MigrationLog::Empty, &[("public", MigrationLog::Foreign)], Ok("two"));
        check(Some("two"), MigrationLog::Ours, &[("public", MigrationLog::Ours)], Ok("two"));
    }

    #[test]
    fn no_empty_store_is_created_beside_an_existing_one() {
        let moved = |to: &str| MigrationLog::MovedTo(name(to));
        check(None, MigrationLog::Empty, &[("public", moved("hookonce"))], Ok("hookonce"));
        let away = StoreSchemaError::Moved { from: name("public"), to: name("two") };
        check(None, MigrationLog::Empty, &[("public", moved("two"))], Err(away.clone()));
        check(Some("public"), moved("two"), &[], Err(away));
        let elsewhere = StoreSchemaError::Elsewhere { named: name("two"), found: name("public") };
        check(Some("two"), MigrationLog::Empty, &[("public", MigrationLog::Ours)], Err(elsewhere));
        check(None, MigrationLog::Foreign, &[("public", MigrationLog::Ours)], Ok("public"));
        check(None, MigrationLog::Foreign, &[], Err(StoreSchemaError::Foreign(name("hookonce"))));
        check(
            Some("two"),
            MigrationLog::Foreign,
            &[("public", MigrationLog::Ours)],
            Err(StoreSchemaError::Foreign(name("two"))),
        );
    }
}
