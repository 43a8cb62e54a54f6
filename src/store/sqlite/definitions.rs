//! The check that the tables and indexes of a file are still defined as its migrations defined them.
//!
//! SQLite keeps definitions as text and parses it each time a file is opened. One flipped bit in that text can remove a
//! column from a table, and every row is then read wrongly. So a file's definitions are compared with those of an empty
//! database with the same migrations.

use crate::decide::time::Timestamp;
use crate::store::schema::sqlite::{self as migrations, SqliteMigrationError};
use rusqlite::{Connection, Row};
use std::collections::BTreeMap;

/// The columns of each table, in order, as text.
type TableColumns = BTreeMap<String, Vec<String>>;
/// The text that defines each index.
type IndexDefinitions = BTreeMap<String, String>;

/// The columns of `schema_migrations` in every version. The one after them is added with the next migration.
const LOG_COLUMNS: usize = 4;

/// The first definition that differs; `None` if there is none. Tables, columns and indexes that we did not create are
/// ignored, and a store ahead of us may have changed its indexes.
pub(super) fn damaged(db: &Connection) -> Result<Option<String>, SqliteMigrationError> {
    let applied = migrations::applied(db)?;
    let version = applied.iter().map(|one| one.version).max().unwrap_or(0);
    let known = migrations::MIGRATIONS.len().try_into().unwrap_or(u32::MAX);
    let mut model = Connection::open_in_memory()?;
    migrations::up(&mut model, Some(version.min(known)), Timestamp::default())?;

    let (expected, found) = (tables(&model)?, tables(db)?);
    for (table, mut columns) in expected {
        if table == "schema_migrations" {
            columns.truncate(LOG_COLUMNS);
        }
        match found.get(&table) {
            Some(there) if there.starts_with(&columns) => {}
            Some(_) => return Ok(Some(format!("the definition of table {table} is damaged"))),
            None if version == 0 => {}
            None => return Ok(Some(format!("table {table} is missing"))),
        }
    }
    if version > known {
        return Ok(None);
    }
    let (expected, found) = (indexes(&model)?, indexes(db)?);
    let changed = expected.iter().find(|(index, text)| found.get(*index) != Some(*text));
    Ok(changed.map(|(index, _)| format!("the definition of index {index} is damaged")))
}

/// The columns of each table, without virtual generated columns: those are declared fields, which follow the config,
/// not the migrations.
fn tables(db: &Connection) -> Result<TableColumns, rusqlite::Error> {
    let sql = "select t.name, format('%s %s %d %s %d, %d %d', c.name, lower(c.type), c.\"notnull\", \
               coalesce(c.dflt_value, ''), c.pk, t.wr, t.strict) \
               from pragma_table_list as t join pragma_table_xinfo(t.name) as c \
               where t.schema = 'main' and t.type = 'table' and t.name not like 'sqlite\\_%' escape '\\' and c.hidden = 0 \
               order by t.name, c.cid";
    let mut tables = TableColumns::new();
    for row in db.prepare(sql)?.query_map([], |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?)))? {
        let (table, column): (String, String) = row?;
        tables.entry(table).or_default().push(column);
    }
    Ok(tables)
}

fn indexes(db: &Connection) -> Result<IndexDefinitions, rusqlite::Error> {
    let mut rows = db.prepare("select name, sql from sqlite_schema where type = 'index' and sql is not null")?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Connection {
        let mut db = Connection::open_in_memory().expect("a database");
        migrations::up(&mut db, None, Timestamp(1)).expect("up");
        db
    }

    fn rewrite(db: &Connection, name: &str, from: &str, to: &str) {
        db.pragma_update(None, "writable_schema", true).expect("a pragma");
        let sql = "update sqlite_schema set sql = replace(sql, ?2, ?3) where name = ?1";
        assert_eq!(db.execute(sql, [name, from, to]).expect("a change"), 1);
        db.pragma_update(None, "writable_schema", "reset").expect("the schema is parsed again");
    }

    #[test]
    fn a_migrated_file_with_declared_fields_is_not_damaged() {
        let db = store();
        assert_eq!(damaged(&db).expect("an answer"), None);
        let fields = [("tag".to_owned(), true), ("size".to_owned(), false)];
        crate::store::sqlite::columns::declare(&db, &fields).expect("columns");
        db.execute_batch("create table mine (a); create index mine_a on mine (a)").expect("a foreign table");
        assert_eq!(damaged(&db).expect("an answer"), None);
    }

    #[test]
    fn no_older_version_is_damaged_nor_is_an_empty_file() {
        for version in 0..=migrations::MIGRATIONS.len() {
            let mut db = Connection::open_in_memory().expect("a database");
            let version = version.try_into().expect("a small number");
            if version > 0 {
                migrations::up(&mut db, Some(version), Timestamp(1)).expect("up");
            }
            assert_eq!(damaged(&db).expect("an answer"), None, "version {version}");
        }
    }

    #[test]
    fn a_migration_log_of_the_first_release_is_not_damaged() {
        let mut db = Connection::open_in_memory().expect("a database");
        migrations::up(&mut db, Some(7), Timestamp(1)).expect("up");
        db.execute_batch("alter table schema_migrations drop column oldest").expect("as it was");
        assert_eq!(damaged(&db).expect("an answer"), None);
    }

    #[test]
    fn a_column_that_a_comment_swallowed_is_noticed() {
        let db = store();
        rewrite(&db, "payloads", "pairs\n", "pairs*");
        let said = damaged(&db).expect("an answer").expect("it is noticed");
        assert!(said.contains("payloads"), "{said}");
    }

    #[test]
    fn an_index_with_a_changed_condition_is_noticed() {
        let db = store();
        rewrite(&db, "events_parked", "'waiting'", "'waitinf'");
        let said = damaged(&db).expect("an answer").expect("it is noticed");
        assert!(said.contains("events_parked"), "{said}");
    }
}
