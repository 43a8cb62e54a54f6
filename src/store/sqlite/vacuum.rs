//! Returning free pages to the disk.

use super::open::{SqliteOpenError, SqliteOpenErrorKind};
use rusqlite::Connection;
use std::path::Path;

/// The size of the file before and after, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VacuumReport {
    /// Before.
    pub before: u64,
    /// Now.
    pub after: u64,
}

/// Rewrites the database without its free pages, in one transaction: an interruption leaves the file unchanged. The
/// caller holds the file's lock. The disk needs space for a second copy of the file, and so does the folder for
/// temporary files.
pub fn vacuum(path: &Path, db: &Connection) -> Result<VacuumReport, SqliteOpenError> {
    let length = || std::fs::metadata(path).map(|file| file.len()).map_err(|error| SqliteOpenError::io(path, error));
    empty_log(path, db)?;
    let before = length()?;
    db.execute_batch("vacuum").map_err(|error| SqliteOpenError::sqlite(path, error))?;
    empty_log(path, db)?;
    Ok(VacuumReport { before, after: length()? })
}

/// Moves the WAL into the database. That fails while another program reads the file, and the file keeps its size.
fn empty_log(path: &Path, db: &Connection) -> Result<(), SqliteOpenError> {
    let busy = db.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0));
    match busy.map_err(|error| SqliteOpenError::sqlite(path, error))? {
        0 => Ok(()),
        _ => Err(SqliteOpenError::new(path, SqliteOpenErrorKind::Busy)),
    }
}
