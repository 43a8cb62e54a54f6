//! Declared fields as columns by their name, so that `select delivery_id, tag, sha from events` works in any shell.
//! They are virtual columns over the one JSON column; only those used by an identity have an index.

use rusqlite::Connection;

/// Adds a column for each field that has none, and an index for those of an identity. Returns the names that cannot be
/// columns, because a built-in column has that name, or because they cannot be written in a JSON path.
pub(super) fn declare(db: &Connection, fields: &[(String, bool)]) -> Result<Vec<String>, rusqlite::Error> {
    let mut refused = Vec::new();
    for (name, identity) in fields {
        match column(db, name)? {
            ColumnAvailability::Taken => refused.push(name.clone()),
            ColumnAvailability::There => {}
            ColumnAvailability::Free => db.execute_batch(&format!(
                "alter table events add column {} any generated always as (json_extract(fields, '$.\"{}\"')) virtual",
                quoted(name),
                name.replace('\'', "''"),
            ))?,
        }
        if *identity && !refused.contains(name) {
            let index = quoted(&format!("events_field_{name}"));
            db.execute_batch(&format!("create index if not exists {index} on events ({})", quoted(name)))?;
        }
    }
    Ok(refused)
}

enum ColumnAvailability {
    /// The name is free.
    Free,
    /// The column exists.
    There,
    /// The name is taken by a built-in column, or by another field in other letter case.
    Taken,
}

fn column(db: &Connection, name: &str) -> Result<ColumnAvailability, rusqlite::Error> {
    if name.is_empty() || name.contains(['"', '\\', '\0']) {
        return Ok(ColumnAvailability::Taken);
    }
    let mut columns = db.prepare("select name, hidden from pragma_table_xinfo('events')")?;
    let mut columns = columns.query([])?;
    while let Some(row) = columns.next()? {
        let (there, hidden): (String, i64) = (row.get(0)?, row.get(1)?);
        if there.eq_ignore_ascii_case(name) {
            let generated = hidden == 2; // how `pragma table_xinfo` marks a virtual generated column
            return Ok(if generated && there == name { ColumnAvailability::There } else { ColumnAvailability::Taken });
        }
    }
    Ok(ColumnAvailability::Free)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
