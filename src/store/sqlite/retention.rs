//! How long each source's events are kept, and which sources there are.

use super::queries::limit_cell;
use crate::decide::limits;
use crate::store::{SourceCount, SourceRetention};
use rusqlite::Connection;
use rusqlite::Result;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn retention(db: &Connection) -> Result<Vec<SourceRetention>> {
    let mut rows = db.prepare_cached("select source, keep, keep_body, seen_at from retention order by source")?;
    let row = |row: &rusqlite::Row<'_>| {
        let source = row.get_ref(0)?.as_str()?;
        Ok(SourceRetention::of_numbers(source, (row.get(1)?, row.get(2)?, row.get(3)?)))
    };
    rows.query_map([], row)?.collect()
}

pub(super) fn retain(db: &Connection, rows: &[SourceRetention]) -> Result<()> {
    let sql = "insert or replace into retention (source, keep, keep_body, seen_at) values (?1, ?2, ?3, ?4)";
    let mut insert = db.prepare_cached(sql)?;
    rows.iter().try_for_each(|row| {
        let (keep, body, seen_at) = row.numbers();
        insert.execute((&*row.source, keep, body, seen_at)).map(drop)
    })
}

/// One name after another out of the index, without reading what lies between.
pub(super) const SOURCES: &str = "with recursive names (name) as (select min(source) from events \
    union all select (select min(source) from events where source > name) from names where name is not null) \
    select name from names where name is not null";
pub(super) const COUNT_OF_SOURCE: &str = "select count(*) from (select 1 from events where source = ?1 limit ?2)";

pub(super) fn other_sources(db: &Connection, known: &BTreeSet<Arc<str>>) -> Result<Vec<SourceCount>> {
    let snapshot = db.unchecked_transaction()?;
    let (mut names, mut count) = (snapshot.prepare_cached(SOURCES)?, snapshot.prepare_cached(COUNT_OF_SOURCE)?);
    let names = names.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>>>()?;
    let others = names.into_iter().filter(|name| !known.contains(name.as_str())).take(limits::OTHER_SOURCES_MAX);
    let counted = others.map(|source| {
        let events =
            count.query_row((&*source, limit_cell(limits::OTHER_EVENTS_MAX + 1)), |row| row.get::<_, i64>(0))?;
        Ok(SourceCount::up_to(&source, events.unsigned_abs(), limits::OTHER_EVENTS_MAX))
    });
    counted.collect()
}
