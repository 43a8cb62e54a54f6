//! Declared fields as columns by their name, so that `select delivery_id, tag, sha from events` works in any shell.
//! They are computed from the one JSON column when they are read; only those of an identity have an index.

use rusqlite::Connection;

/// Makes a column for each field that has none, and an index for those of an identity. Returns the names that cannot
/// be columns, because a column of our own has that name or its letters cannot stand in a path.
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
    /// Nobody has this name.
    Free,
    /// It is there.
    There,
    /// It cannot be: a column of our own, or another field in other letters, has the name.
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
            let generated = hidden == 2; // as `pragma table_xinfo` counts a virtual generated column
            return Ok(if generated && there == name { ColumnAvailability::There } else { ColumnAvailability::Taken });
        }
    }
    Ok(ColumnAvailability::Free)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
