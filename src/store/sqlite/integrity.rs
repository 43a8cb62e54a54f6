//! The integrity check of a database file, run once when a node opens it.
//!
//! An event missing from its index would wait for ever, unnoticed. The rows are the truth, so the indexes are rebuilt
//! from them, also those of keys and names (`index_repair.rs`): a key missing from its index would act again. Only the time at which an event is due is taken from whichever has the earlier one: a flipped bit in a
//! row must not postpone it. If the pages that hold the rows are broken, it is unknown which keys are lost with them,
//! and duplicates would act again: such a file is not opened.

use super::index_repair;
use rusqlite::{Connection, ErrorCode, OptionalExtension};
use tracing::{error, warn};

/// Larger files are not checked: a node should start quickly.
const LOOKED_THROUGH_BYTES: i64 = 64 << 20;
/// Maximum number of problems to examine.
const WRONG_MAX: u16 = 100;

/// Which files to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IntegrityScope {
    /// Only small ones.
    IfSmall,
    /// Any: its WAL may belong to another database, or a page was found to be damaged.
    However,
}

/// Checks the database, and rebuilds its indexes if something is wrong with them. Damage in single rows is found when
/// they are used, and ends their events as dead. Returns the problem if pages are damaged.
pub(super) fn check_and_repair(db: &Connection, looks: IntegrityScope) -> Result<Option<String>, rusqlite::Error> {
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let bytes = number("page_count")?.saturating_mul(number("page_size")?);
    if looks == IntegrityScope::IfSmall && bytes > LOOKED_THROUGH_BYTES {
        return Ok(None);
    }
    let before = wrong(db)?;
    // Rebuilding the indexes would also repair a table's page, but without the rows it has lost.
    if let Some(of_table) = before.iter().find(|wrong| pages(wrong).any(|page| !is_of_index(db, page))) {
        return Ok(Some(of_table.replace('\n', " ")));
    }
    let has_indexes = index_repair::has_indexes(db)?;
    let hurt = |page| table_of(db, page).is_some_and(|(_, name)| index_repair::is_derived(&name));
    let is_replaced = before.iter().any(|wrong| pages(wrong).any(hurt));
    let of_keys = if has_indexes && !is_replaced { index_repair::find_wrong(db)? } else { None };
    let first = match (before.first(), of_keys) {
        (Some(first), _) => first.clone(),
        (None, Some(index)) => format!("entries are missing in {index}"),
        (None, None) => return Ok(None),
    };
    // All or nothing: a rebuild that does not help leaves the file unchanged, for inspection.
    db.execute_batch("begin immediate")?;
    let earlier = due_earlier(db).unwrap_or_default();
    let made = (|| {
        if is_replaced {
            index_repair::replace_tables(db)?;
        }
        db.execute_batch("reindex")?;
        if has_indexes { index_repair::refill(db) } else { Ok(()) }
    })();
    let left = match made {
        Ok(()) => {
            for (id, wake_at) in &earlier {
                db.execute("update events set wake_at = ?2 where id = ?1", (id, wake_at))?;
            }
            wrong(db)?
        }
        Err(_) => before.clone(),
    };
    let of_pages = left.iter().find(|wrong| !is_of_one_row(wrong) && !(is_replaced && is_of_unused_pages(wrong)));
    if let Some(of_pages) = of_pages {
        db.execute_batch("rollback")?;
        return Ok(Some(of_pages.replace('\n', " ")));
    }
    db.execute_batch("commit")?;
    if is_replaced {
        // The damaged pages are given back. On a full disk they stay, unused.
        let _ = db.execute_batch("vacuum");
    }
    if left.iter().all(|wrong| is_of_unused_pages(wrong)) {
        warn!(target: "hookonce", why = first, "mended");
    } else {
        error!(target: "hookonce", why = first, "rotten");
    }
    Ok(None)
}

/// The problems, in SQLite's words. After it has reported a page that cannot be read, SQLite may fail on it.
fn wrong(db: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut check = db.prepare(&format!("pragma integrity_check({WRONG_MAX})"))?;
    let mut said = Vec::new();
    for line in check.query_map([], |row| row.get::<_, String>(0))? {
        match line {
            Ok(line) => said.push(line),
            Err(error) if !said.is_empty() && error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => break,
            Err(error) => return Err(error),
        }
    }
    said.retain(|said| said != "ok");
    Ok(said)
}

/// Is it about a value in a row? All other problems are about the location and order of rows.
fn is_of_one_row(wrong: &str) -> bool {
    !wrong.contains('\n') && (wrong.contains(" value in ") || wrong.starts_with("CHECK constraint failed in "))
}

/// Is it only about pages that belong to nothing?
fn is_of_unused_pages(wrong: &str) -> bool {
    wrong.lines().all(|line| line.starts_with("***") || line.contains(UNUSED))
}

/// What SQLite says of a page that belongs to nothing.
const UNUSED: &str = "never used";

/// The numbers of the pages that SQLite reports here. Below a page that cannot be read, others seem to be unused.
fn pages(wrong: &str) -> impl Iterator<Item = u32> {
    let lines = wrong.lines().filter(|line| is_of_unused_pages(wrong) || !line.contains(UNUSED));
    let words = lines.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()).chain([""; 1]));
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let numbers = words.windows(2).filter(|pair| pair[0].eq_ignore_ascii_case("page"));
    numbers.filter_map(|pair| pair[1].parse().ok()).collect::<Vec<_>>().into_iter()
}

/// Whether this page belongs to an index, which can be rebuilt from the rows.
fn is_of_index(db: &Connection, page: u32) -> bool {
    table_of(db, page).is_some_and(|(kind, name)| kind == "index" || index_repair::is_derived(&name))
}

/// The type and the name of what this page belongs to.
fn table_of(db: &Connection, page: u32) -> Option<(String, String)> {
    let sql = "select type, name from sqlite_schema where name = (select name from dbstat where pageno = ?1)";
    db.query_row(sql, [page], |row| Ok((row.get(0)?, row.get(1)?))).optional().ok().flatten()
}

/// The events whose row and index hold different times, with the earlier of the two.
fn due_earlier(db: &Connection) -> Result<Vec<(Vec<u8>, i64)>, rusqlite::Error> {
    let sql = "select events.id, min(due.at, coalesce(events.wake_at, due.at)) \
               from (select id, wake_at as at from events indexed by events_due where wake_at is not null) as due \
               join events on events.id = due.id \
               where events.state = 'waiting' and events.wake_at is not due.at";
    let mut rows = db.prepare(sql)?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
