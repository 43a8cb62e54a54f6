//! Reads what steakpie has done: its `events` table, in both its schemas.
//!
//! ```text
//! older   id, timestamp, repository                                       a delivery id
//! newer   delivery_id, tag, version_id, sha, timestamp, repository        and what was deployed
//! ```

use crate::decide::field::{FieldValue, StoredFields};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Columns that only the newer table has.
const KNOWN: [&str; 3] = ["tag", "version_id", "sha"];
/// How long to wait for a running steakpie to finish a write.
const BUSY: Duration = Duration::from_secs(5);

/// All events of steakpie.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SteakpieEvents {
    /// Which columns the table has.
    pub shape: SteakpieSchema,
    /// Each row.
    pub rows: Vec<SteakpieEvent>,
    /// A sentence for each row that could not be read.
    pub odd: Vec<String>,
}

/// The columns that identify a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SteakpieSchema {
    /// Its delivery id.
    Id,
    /// Its delivery id, tag, version id and sha.
    Change,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SteakpieEvent {
    /// GitHub's id of the delivery.
    pub delivery_id: String,
    /// What was deployed, by the names of our fields; empty in the older schema.
    pub change: StoredFields,
}

/// Why a database could not be read.
#[derive(Debug)]
pub(crate) struct SteakpieReadError {
    path: PathBuf,
    why: SteakpieReadErrorKind,
}

/// The kind of a [`SteakpieReadError`].
#[derive(Debug)]
enum SteakpieReadErrorKind {
    Missing,
    Folder,
    NotADatabase,
    Ours,
    NoTable,
    Shape(Vec<String>),
    Sqlite(rusqlite::Error),
}

impl fmt::Display for SteakpieReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            SteakpieReadErrorKind::Missing => write!(f, "there is no database at {path}; name steakpie's with --db"),
            SteakpieReadErrorKind::Folder => write!(f, "{path} is a folder; name the file in it"),
            SteakpieReadErrorKind::NotADatabase => {
                write!(f, "{path} is not an SQLite database; name steakpie's with --db")
            }
            SteakpieReadErrorKind::Ours => write!(f, "{path} is a store of hookonce, not steakpie's database"),
            SteakpieReadErrorKind::NoTable => {
                write!(f, "{path} has no table `events`, so it is not steakpie's database")
            }
            SteakpieReadErrorKind::Shape(columns) => write!(
                f,
                "the table `events` in {path} is not known: it has {}, but neither `id` nor `delivery_id`, `tag`, \
                 `version_id` and `sha`",
                columns.join(", ")
            ),
            SteakpieReadErrorKind::Sqlite(error) => write!(f, "{path} could not be read: {error}"),
        }
    }
}

impl std::error::Error for SteakpieReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            SteakpieReadErrorKind::Sqlite(error) => Some(error),
            _ => None,
        }
    }
}

/// Reads all events; steakpie may be running.
pub(crate) fn read(path: &Path) -> Result<SteakpieEvents, SteakpieReadError> {
    let unread = |why| SteakpieReadError { path: path.to_owned(), why };
    if path.is_dir() {
        return Err(unread(SteakpieReadErrorKind::Folder));
    }
    if !path.exists() {
        return Err(unread(SteakpieReadErrorKind::Missing));
    }
    rows(path).map_err(|why| match why {
        SteakpieReadErrorKind::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            unread(SteakpieReadErrorKind::NotADatabase)
        }
        why => unread(why),
    })
}

impl From<rusqlite::Error> for SteakpieReadErrorKind {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn rows(path: &Path) -> Result<SteakpieEvents, SteakpieReadErrorKind> {
    // Absolute, so that SQLite does not take a name for a URI.
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let db = Connection::open_with_flags(whole, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY)?;
    let mut tables = db.prepare("select name from sqlite_schema where type = 'table'")?;
    let tables = tables.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    if tables.iter().any(|name| name == "schema_migrations") {
        return Err(SteakpieReadErrorKind::Ours);
    }
    if !tables.iter().any(|name| name.eq_ignore_ascii_case("events")) {
        return Err(SteakpieReadErrorKind::NoTable);
    }
    let mut columns = db.prepare("select name from pragma_table_info('events')")?;
    let columns = columns.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let has = |name: &str| columns.iter().any(|column| column == name);
    let shape = if has("delivery_id") && KNOWN.iter().all(|name| has(name)) {
        SteakpieSchema::Change
    } else if has("id") {
        SteakpieSchema::Id
    } else {
        return Err(SteakpieReadErrorKind::Shape(columns));
    };
    let sql = match shape {
        SteakpieSchema::Id => "select id from events",
        SteakpieSchema::Change => "select delivery_id, tag, version_id, sha from events",
    };
    let mut events = SteakpieEvents { shape, rows: Vec::new(), odd: Vec::new() };
    let (mut query, mut number) = (db.prepare(sql)?, 0);
    let mut found = query.query([])?;
    while let Some(row) = found.next()? {
        number += 1;
        match self::row(row, shape)? {
            Ok(row) => events.rows.push(row),
            Err(cell) => {
                events.odd.push(format!("row {number} of `events`: its {cell} is not a value that steakpie writes"));
            }
        }
    }
    Ok(events)
}

/// A row, or the name of the column whose value is invalid.
fn row(row: &rusqlite::Row<'_>, shape: SteakpieSchema) -> Result<Result<SteakpieEvent, &'static str>, rusqlite::Error> {
    let Some(delivery_id) = text(row.get_ref(0)?) else { return Ok(Err("delivery id")) };
    let mut change: Vec<(Arc<str>, FieldValue)> = Vec::new();
    if shape == SteakpieSchema::Change {
        for (ix, name) in (1..).zip(KNOWN) {
            let cell = row.get_ref(ix)?;
            let value = match name {
                "version_id" => number(cell).map(|number| FieldValue::Number(number.into())),
                _ => text(cell).map(|text| FieldValue::Text(text.into())),
            };
            match value {
                Some(value) => change.push((name.into(), value)),
                None if cell == ValueRef::Null => {} // older than the column
                None => return Ok(Err(name)),
            }
        }
    }
    Ok(Ok(SteakpieEvent { delivery_id, change: change.into_iter().collect() }))
}

fn text(cell: ValueRef<'_>) -> Option<String> {
    match cell {
        ValueRef::Text(text) => std::str::from_utf8(text).ok().filter(|text| !text.is_empty()).map(str::to_owned),
        _ => None,
    }
}

fn number(cell: ValueRef<'_>) -> Option<String> {
    match cell {
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.parse::<i64>().ok().map(|number| number.to_string()),
        _ => None,
    }
}
