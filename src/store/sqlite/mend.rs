//! Indexes that rotted: an event that its index has lost would wait for ever, and nobody would know. The rows are
//! the truth, so the indexes are made anew from them, once, when a node opens the file.

use crate::telemetry::{self, Level};
use rusqlite::Connection;

/// Larger files are not looked through: a node should start within a moment.
const LOOKED_THROUGH_BYTES: i64 = 64 << 20;

/// Looks through the database, and makes its indexes anew if something is wrong. What else is wrong is found where
/// it is used: a row that cannot be read ends dead, a page that cannot be read stops the store.
pub(super) fn mend(db: &Connection) -> Result<(), rusqlite::Error> {
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    if number("page_count")?.saturating_mul(number("page_size")?) > LOOKED_THROUGH_BYTES {
        return Ok(());
    }
    let Some(wrong) = wrong(db)? else { return Ok(()) };
    // One that fails leaves all as it was.
    let mended = db.execute_batch("reindex").is_ok() && self::wrong(db)?.is_none();
    let (level, word) = if mended { (Level::Warn, "mended") } else { (Level::Error, "rotten") };
    telemetry::say(level, word, &[("why", &wrong)]);
    Ok(())
}

/// The first thing that is wrong.
fn wrong(db: &Connection) -> Result<Option<String>, rusqlite::Error> {
    let said: String = db.query_row("pragma integrity_check(1)", [], |row| row.get(0))?;
    Ok(if said == "ok" { None } else { Some(said) })
}
