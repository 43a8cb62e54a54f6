//! The retention of each source, and which sources there are.

use super::pool::{PgConn, PgQuery, PgResult, ask};
use super::queries::limit_cell;
use crate::decide::limits;
use crate::store::{SourceCount, SourceRetention};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) async fn retention(link: &mut PgConn) -> PgResult<Vec<SourceRetention>> {
    let sql = "select source, keep, keep_body, seen_at from {schema}.retention order by source collate \"C\"";
    let rows = link.query_all(&[ask!(sql)]).await?.remove(0);
    let row = |row: &tokio_postgres::Row| {
        let numbers = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        Ok(SourceRetention::of_numbers(row.try_get(0)?, numbers))
    };
    rows.iter().map(row).collect()
}

/// Removes all retention rows.
pub(super) fn clear<'a>() -> PgQuery<'a> {
    ask!("delete from {schema}.retention")
}

/// In the order of the names, so that two nodes that write the same rows at once do not deadlock.
const RETAIN: &str = "insert into {schema}.retention (source, keep, keep_body, seen_at) \
     select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) as r (source, keep, keep_body, seen_at) \
     order by source on conflict (source) do update \
     set keep = excluded.keep, keep_body = excluded.keep_body, seen_at = excluded.seen_at";

pub(super) async fn retain(link: &mut PgConn, rows: &[SourceRetention]) -> PgResult<()> {
    link.query_all(&[to_retain(rows)]).await.map(drop)
}

/// The statement that writes these rows.
pub(super) fn to_retain(rows: &[SourceRetention]) -> PgQuery<'_> {
    let names: Vec<&str> = rows.iter().map(|row| &*row.source).collect();
    let (mut keep, mut body, mut seen_at) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let numbers = row.numbers();
        keep.push(numbers.0);
        body.push(numbers.1);
        seen_at.push(numbers.2);
    }
    ask!(RETAIN, names, keep, body, seen_at)
}

/// One index seek per name, without reading the entries in between.
const SOURCES: &str = "with recursive names (name) as (select min(source) from {schema}.events \
     union all select (select min(source) from {schema}.events where source > name) from names where name is not null) \
     select name from names where name is not null order by name collate \"C\"";
const COUNT_OF_SOURCE: &str = "select count(*) from (select 1 from {schema}.events where source = $1 limit $2) counted";

pub(super) async fn other_sources(link: &mut PgConn, known: &BTreeSet<Arc<str>>) -> PgResult<Vec<SourceCount>> {
    let mut names: Vec<String> = Vec::new();
    for row in link.query_all(&[ask!(SOURCES)]).await?.remove(0) {
        names.push(row.try_get(0)?);
    }
    names.retain(|name| !known.contains(name.as_str()));
    names.truncate(limits::OTHER_SOURCES_MAX);
    let room = limit_cell(limits::OTHER_EVENTS_MAX + 1);
    let mut counts = Vec::new();
    for name in names {
        let rows = link.query_all(&[ask!(COUNT_OF_SOURCE, &*name, room)]).await?.remove(0);
        let events = rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))?.unsigned_abs();
        counts.push(SourceCount::up_to(&name, events, limits::OTHER_EVENTS_MAX));
    }
    Ok(counts)
}
