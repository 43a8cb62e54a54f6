//! What rotted, looked for once, when a node opens the file. An event that its index has lost would wait for ever, and
//! nobody would know: the rows are the truth, so the indexes are made anew from them. Where the pages that hold the rows
//! are broken, nobody can say which keys are gone with them, and a repeat would act again: such a file is not opened.

use crate::telemetry::{self, Level};
use rusqlite::Connection;

/// Larger files are not looked through: a node should start within a moment.
const LOOKED_THROUGH_BYTES: i64 = 64 << 20;
/// So many things that are wrong are looked at.
const WRONG_MAX: u16 = 100;

/// Which files are looked through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Looks {
    /// Those that are small.
    IfSmall,
    /// Any: its log may be of another database.
    However,
}

/// Looks through the database, and makes its indexes anew if something is wrong with them. What is wrong with single
/// rows is found where they are used, and ends dead. The answer is what is wrong with the pages themselves.
pub(super) fn mend(db: &Connection, looks: Looks) -> Result<Option<String>, rusqlite::Error> {
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let bytes = number("page_count")?.saturating_mul(number("page_size")?);
    if looks == Looks::IfSmall && bytes > LOOKED_THROUGH_BYTES {
        return Ok(None);
    }
    let before = wrong(db)?;
    let Some(first) = before.first() else { return Ok(None) };
    // All or nothing: what does not help leaves the file as it is, for who wants to look.
    db.execute_batch("begin immediate")?;
    let left = match db.execute_batch("reindex") {
        Ok(()) => wrong(db)?,
        Err(_) => before.clone(),
    };
    let of_pages = left.iter().find(|wrong| !is_of_one_row(wrong));
    if let Some(of_pages) = of_pages {
        db.execute_batch("rollback")?;
        return Ok(Some(of_pages.replace('\n', " ")));
    }
    db.execute_batch("commit")?;
    let (level, word) = if left.is_empty() { (Level::Warn, "mended") } else { (Level::Error, "rotten") };
    telemetry::say(level, word, &[("why", first)]);
    Ok(None)
}

/// What is wrong, in SQLite's words.
fn wrong(db: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut check = db.prepare(&format!("pragma integrity_check({WRONG_MAX})"))?;
    let said = check.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(said.into_iter().filter(|said| said != "ok").collect())
}

/// Is it about a value in a row? Everything else is about where rows are and in which order they lie.
fn is_of_one_row(wrong: &str) -> bool {
    !wrong.contains('\n') && (wrong.contains(" value in ") || wrong.starts_with("CHECK constraint failed in "))
}
