//! What time this store has last seen and believed: a row of its own, written now and then in a transaction that is there
//! anyway.

use crate::decide::time::Timestamp;
use rusqlite::Result;
use rusqlite::{Connection, OptionalExtension as _};

/// What was last seen; nothing in a store of the first release, and where only a reader looks at one.
pub(super) fn read(db: &Connection) -> Result<Option<Timestamp>> {
    db.query_row("select at from last_seen", [], |row| row.get(0).map(Timestamp)).optional()
}

/// Writes it down.
pub(super) fn write(db: &Connection, time: Timestamp) -> Result<()> {
    let sql = "insert into last_seen (id, at) values (1, ?1) on conflict (id) do update set at = excluded.at";
    db.prepare_cached(sql)?.execute([time.0]).map(drop)
}
