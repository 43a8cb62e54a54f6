//! Damage in a database file, looked for once, when a node opens it.
//!
//! An event that is missing from its index would wait for ever, and no one would know: the rows are the truth, so the
//! indexes are made anew from them. Only the time at which an event is due is taken from whichever has the earlier one:
//! a flipped bit in a row must not postpone it. Where the pages that hold the rows are broken, it is unknown which keys
//! are gone with them, and a repeat would act again: such a file is not opened.

use rusqlite::{Connection, OptionalExtension};
use tracing::{error, warn};

/// Larger files are not looked through: a node should start within a moment.
const LOOKED_THROUGH_BYTES: i64 = 64 << 20;
/// So many things that are wrong are looked at.
const WRONG_MAX: u16 = 100;

/// Which files are looked through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IntegrityScope {
    /// Those that are small.
    IfSmall,
    /// Any: its log may be of another database.
    However,
}

/// Looks through the database, and makes its indexes anew if something is wrong with them. What is wrong with single
/// rows is found where they are used, and ends dead. The answer is what is wrong with the pages themselves.
pub(super) fn check_and_repair(db: &Connection, looks: IntegrityScope) -> Result<Option<String>, rusqlite::Error> {
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let bytes = number("page_count")?.saturating_mul(number("page_size")?);
    if looks == IntegrityScope::IfSmall && bytes > LOOKED_THROUGH_BYTES {
        return Ok(None);
    }
    let before = wrong(db)?;
    let Some(first) = before.first() else { return Ok(None) };
    // To make the indexes anew would make good a page of a table, too, without the rows that it has lost.
    if let Some(of_table) = before.iter().find(|wrong| pages(wrong).any(|page| !is_of_index(db, page))) {
        return Ok(Some(of_table.replace('\n', " ")));
    }
    // All or nothing: what does not help leaves the file as it is, for who wants to look.
    db.execute_batch("begin immediate")?;
    let earlier = due_earlier(db).unwrap_or_default();
    let left = match db.execute_batch("reindex") {
        Ok(()) => {
            for (id, wake_at) in &earlier {
                db.execute("update events set wake_at = ?2 where id = ?1", (id, wake_at))?;
            }
            wrong(db)?
        }
        Err(_) => before.clone(),
    };
    let of_pages = left.iter().find(|wrong| !is_of_one_row(wrong));
    if let Some(of_pages) = of_pages {
        db.execute_batch("rollback")?;
        return Ok(Some(of_pages.replace('\n', " ")));
    }
    db.execute_batch("commit")?;
    if left.is_empty() {
        warn!(target: "hookonce", why = first, "mended");
    } else {
        error!(target: "hookonce", why = first, "rotten");
    }
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

/// The pages that SQLite complains about here, by their numbers.
fn pages(wrong: &str) -> impl Iterator<Item = u32> {
    let words = wrong.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let numbers = words.windows(2).filter(|pair| pair[0].eq_ignore_ascii_case("page"));
    numbers.filter_map(|pair| pair[1].parse().ok()).collect::<Vec<_>>().into_iter()
}

/// Whether this page holds entries of an index, which can be made anew from the rows.
fn is_of_index(db: &Connection, page: u32) -> bool {
    let kind = "select type from sqlite_schema where name = (select name from dbstat where pageno = ?1)";
    let kind = db.query_row(kind, [page], |row| row.get::<_, String>(0)).optional();
    kind.is_ok_and(|kind| kind.as_deref() == Some("index"))
}

/// The events of which row and index say different times, with the earlier of the two.
fn due_earlier(db: &Connection) -> Result<Vec<(Vec<u8>, i64)>, rusqlite::Error> {
    let sql = "select events.id, min(due.at, coalesce(events.wake_at, due.at)) \
               from (select id, wake_at as at from events indexed by events_due where wake_at is not null) as due \
               join events on events.id = due.id \
               where events.state = 'waiting' and events.wake_at is not due.at";
    let mut rows = db.prepare(sql)?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
