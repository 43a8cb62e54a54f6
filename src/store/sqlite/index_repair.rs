//! The repair of the indexes of keys and names. Everything in them, and in their fresh tables, is also in `keys` and
//! `events`: whatever is damaged there is made again, and no key is lost with it.

use rusqlite::{Connection, OptionalExtension as _, Result};

/// An index that is merged behind, its fresh table, and what they are made of.
struct DerivedIndex {
    index: &'static str,
    fresh: &'static str,
    /// Whether an entry is missing, or a row is damaged.
    is_wrong: &'static str,
    /// Writes all entries.
    fill: &'static str,
}

static DERIVED: [DerivedIndex; 2] = [
    DerivedIndex {
        index: "key_index",
        fresh: "fresh_keys",
        is_wrong: "select exists (select 1 from fresh_keys where typeof(key) <> 'blob' or length(key) <> 16 \
                or typeof(event) <> 'blob' or length(event) <> 16 or typeof(gone) <> 'integer') \
            or exists (select 1 from (select key, event, gone, max(n) from fresh_keys group by key, event) as fresh \
                where gone and exists (select 1 from keys where keys.event = fresh.event \
                    and substr(keys.key, 1, 16) = fresh.key)) \
            or exists (select 1 from keys where typeof(key) = 'blob' and length(key) = 32 and typeof(event) = 'blob' \
                and not exists (select 1 from key_index as merged \
                    where merged.key = substr(keys.key, 1, 16) and merged.event = keys.event) \
                and (substr(key, 1, 16), event) not in (select key, event from fresh_keys where not gone))",
        fill: "insert or ignore into key_index (key, event) select substr(key, 1, 16), event from keys \
            where typeof(key) = 'blob' and length(key) = 32 and typeof(event) = 'blob' order by 1, 2",
    },
    DerivedIndex {
        index: "name_index",
        fresh: "fresh_names",
        is_wrong: "with named (name, event) as ( \
                select cast(substr(delivery_id, -16) as blob), id from events where delivery_id is not null) \
            select exists (select 1 from fresh_names where typeof(name) <> 'blob' \
                or typeof(event) <> 'blob' or length(event) <> 16 or typeof(gone) <> 'integer') \
            or exists (select 1 from named where not exists (select 1 from name_index as merged \
                    where merged.name = named.name and merged.event = named.event) \
                and (name, event) not in (select name, event from fresh_names where not gone))",
        fill: "insert or ignore into name_index (name, event) \
            select cast(substr(delivery_id, -16) as blob), id from events where delivery_id is not null order by 1, 2",
    },
];

/// Whether this table can be made again from others.
pub(super) fn is_derived(table: &str) -> bool {
    DERIVED.iter().any(|one| table == one.index || table == one.fresh)
}

/// Whether the database has these tables: an earlier version's has not.
pub(super) fn has_indexes(db: &Connection) -> Result<bool> {
    let sql = "select count(*) = 4 from sqlite_schema where type = 'table' \
               and name in ('key_index', 'fresh_keys', 'name_index', 'fresh_names')";
    db.query_row(sql, [], |row| row.get(0))
}

/// The first index that lacks an entry.
pub(super) fn find_wrong(db: &Connection) -> Result<Option<&'static str>> {
    for one in &DERIVED {
        if db.query_row(one.is_wrong, [], |row| row.get(0))? {
            return Ok(Some(one.index));
        }
    }
    Ok(None)
}

/// Makes the indexes again. All or nothing.
pub(super) fn rebuild(db: &Connection) -> Result<()> {
    let tx = db.unchecked_transaction()?;
    refill(&tx)?;
    tx.commit()
}

/// The same in the transaction in progress.
pub(super) fn refill(db: &Connection) -> Result<()> {
    for DerivedIndex { index, fresh, fill, .. } in &DERIVED {
        db.execute_batch(&format!("delete from {index}; delete from {fresh}; {fill};"))?;
    }
    Ok(())
}

/// Makes empty tables instead of those whose pages are damaged, in the transaction in progress. SQLite removes no table
/// that it cannot read, so its pages stay unused until the file is vacuumed.
pub(super) fn replace_tables(db: &Connection) -> Result<()> {
    for table in DERIVED.iter().flat_map(|one| [one.index, one.fresh]) {
        let sql = "select sql from sqlite_schema where type = 'table' and name = ?1";
        let Some(definition) = db.query_row(sql, [table], |row| row.get::<_, String>(0)).optional()? else { continue };
        db.execute_batch("pragma writable_schema = on")?;
        let removed = db.execute("delete from sqlite_schema where name = ?1 or tbl_name = ?1", [table]);
        db.execute_batch("pragma writable_schema = reset")?;
        removed?;
        db.execute_batch(&definition)?;
    }
    Ok(())
}
