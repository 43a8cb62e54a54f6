//! Lists of events, a page at a time. One condition selects an index in the order of ids, the others filter a limited
//! number of events; the next page continues from there.

use super::columns;
use super::pool::{PgConn, PgParam, PgResult, ask};
use super::queries::{events, limit_cell};
use super::rows::{PgUuid, text};
use crate::decide::event::EventState;
use crate::store::inspect::{
    DEAD_BY_SOURCE_MAX, EventCounts, EventPage, EventPageScan, EventQuery, LOOKED_THROUGH_MAX,
};
use crate::store::row::columns;
use crate::store::schema::postgres::SchemaName;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row, Transaction};

/// Maximum number of waiting and running events that are counted.
const OPEN_COUNTED_MAX: i64 = 100_000;
/// A field's value with more events than this is not used as the indexed condition: scanning the newest events is as
/// fast.
const FIELD_LEADS_MAX: i64 = 2_000;

/// Plans for the given values: a user's query runs once.
const PLANNED_FOR_THIS: &str = "set local plan_cache_mode = force_custom_plan";
/// A zero byte in a field, which PostgreSQL's text cannot hold: only Rust can tell what such an event matches. There is
/// an index of them.
const ZERO: &str = r"strpos(fields::text, '\u0000') > 0";

/// A condition with its values: one between each two parts of its text.
struct SqlCondition<'a> {
    parts: Vec<String>,
    values: Vec<PgParam<'a>>,
}

impl<'a> SqlCondition<'a> {
    fn of(parts: &[&str], values: Vec<PgParam<'a>>) -> Self {
        Self { parts: parts.iter().map(|part| (*part).to_owned()).collect(), values }
    }

    fn plain(text: &str) -> Self {
        Self::of(&[text], Vec::new())
    }
}

/// How the matching events are found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListStrategy {
    /// In the order of ids, scanning a limited number.
    Window,
    /// The indexed condition matches few: they are all read and sorted.
    Few,
}

/// A query: the indexed conditions and the filters.
struct PgListQuery<'a> {
    way: ListStrategy,
    lead: Vec<SqlCondition<'a>>,
    aside: Vec<SqlCondition<'a>>,
}

impl<'a> PgListQuery<'a> {
    fn lead(&mut self, parts: &[&str], values: Vec<PgParam<'a>>) {
        self.lead.push(SqlCondition::of(parts, values));
    }

    fn aside(&mut self, parts: &[&str], values: Vec<PgParam<'a>>) {
        self.aside.push(SqlCondition::of(parts, values));
    }

    /// The newest matches, at most `limit`.
    fn sql(&self, schema: &SchemaName, limit: usize) -> String {
        let mut used = 0;
        let (lead, aside) = (joined(&self.lead, &mut used), joined(&self.aside, &mut used));
        let (columns, limit) = (concat!(columns!(), ", version"), limit_cell(limit));
        match self.way {
            ListStrategy::Window if self.aside.is_empty() => {
                format!("select {columns} from {schema}.events where {lead} order by id desc limit {limit}")
            }
            ListStrategy::Window => format!(
                "select {columns} from (select * from {schema}.events where {lead} order by id desc limit {LOOKED_THROUGH_MAX}) \
                 looked where {aside} order by id desc limit {limit}"
            ),
            ListStrategy::Few => format!(
                "with few as materialized (select * from {schema}.events where {lead}) \
                 select {columns} from few where {aside} order by id desc limit {limit}"
            ),
        }
    }

    /// The last id of such a scan, if it does not reach the end.
    fn last(&self, schema: &SchemaName) -> String {
        let lead = joined(&self.lead, &mut 0);
        format!(
            "select id from {schema}.events where {lead} order by id desc limit 1 offset {}",
            LOOKED_THROUGH_MAX - 1
        )
    }

    async fn look(&self, tx: &Transaction<'_>, schema: &SchemaName, listing: &EventQuery) -> PgResult<EventPageScan> {
        let values = self.lead.iter().chain(&self.aside);
        let rows = tx.query(&self.sql(schema, listing.limit.saturating_add(1)), &values_of(values)).await?;
        let found = events(&rows);
        let mut stopped = None;
        if self.way == ListStrategy::Window && rows.len() <= listing.limit && !self.aside.is_empty() {
            let last = tx.query_opt(&self.last(schema), &values_of(self.lead.iter())).await?;
            stopped = last.map(|row| row.try_get(0)).transpose()?.map(|PgUuid(id)| id);
        }
        Ok(EventPageScan { found, stopped })
    }
}

fn values_of<'v, 'a: 'v>(conditions: impl Iterator<Item = &'v SqlCondition<'a>>) -> Vec<&'v (dyn ToSql + Sync)> {
    conditions.flat_map(|one| &one.values).map(|value| &**value as _).collect()
}

/// Conditions as one text, with numbered parameters.
fn joined(conditions: &[SqlCondition<'_>], used: &mut usize) -> String {
    let mut text = String::from("true");
    for SqlCondition { parts, .. } in conditions {
        text.push_str(" and ");
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                *used += 1;
                let _ = write!(text, "${used}");
            }
            text.push_str(part);
        }
    }
    text
}

/// One page of matches, in one snapshot.
pub(super) async fn page(link: &mut PgConn, listing: &EventQuery) -> PgResult<EventPage> {
    let schema = link.schema();
    let tx = link.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let tx = tx.start().await?;
    tx.batch_execute(PLANNED_FOR_THIS).await?;
    let mut looks = Vec::new();
    for question in questions(&tx, &schema, listing).await? {
        looks.push(question.look(&tx, &schema, listing).await?);
    }
    tx.commit().await?;
    Ok(listing.gathered(looks))
}

async fn questions<'a>(
    tx: &Transaction<'_>,
    schema: &SchemaName,
    listing: &'a EventQuery,
) -> PgResult<Vec<PgListQuery<'a>>> {
    for (at, (name, value)) in listing.fields.iter().enumerate() {
        if listing.superseded_by.is_none() && leads(tx, schema, name, value).await? {
            // What the index cannot hold is searched separately.
            let mut odd = question(listing, Some(at));
            odd.way = ListStrategy::Window;
            odd.lead[0] = SqlCondition::plain(ZERO);
            inside(&mut odd, name, value);
            return Ok(vec![question(listing, Some(at)), odd]);
        }
    }
    Ok(vec![question(listing, None)])
}

/// Is there an index by this field, and do few events have this value? An index of the first release holds the whole
/// value, and cannot be used for its prefix.
async fn leads(tx: &Transaction<'_>, schema: &SchemaName, name: &str, value: &str) -> PgResult<bool> {
    let Some(index) = columns::index(schema, name).filter(|_| !value.contains('\0')) else { return Ok(false) };
    let valid = "select exists (select from pg_index i join pg_class c on c.oid = i.indexrelid \
                 join pg_am a on a.oid = c.relam where i.indexrelid = to_regclass($1) and i.indisvalid \
                 and a.amname = 'btree')";
    let there = tx.query_one(valid, &[&index]).await?;
    if !there.try_get::<_, bool>(0)? {
        return Ok(false);
    }
    let field = columns::indexed(name);
    let sql =
        format!("select count(*) from (select 1 from {schema}.events where {field} = $1 limit {FIELD_LEADS_MAX}) few");
    Ok(tx.query_one(&sql, &[&begin_of(value)]).await?.try_get::<_, i64>(0)? < FIELD_LEADS_MAX)
}

/// The prefix of a field's value that its index holds.
fn begin_of(value: &str) -> &str {
    let end = value.char_indices().nth(columns::INDEXED_LETTERS).map_or(value.len(), |(at, _)| at);
    &value[..end]
}

/// The query for a listing, using the index of the field at this position, or the most selective of the others.
fn question(listing: &EventQuery, field: Option<usize>) -> PgListQuery<'_> {
    let mut asked = PgListQuery { way: ListStrategy::Window, lead: Vec::new(), aside: Vec::new() };
    let (state, mut led) = (listing.state.as_deref(), true);
    if let Some(successor) = listing.superseded_by {
        asked.lead(&["superseded_by = ", ""], vec![Box::new(PgUuid(successor))]);
    } else if let Some((name, value)) = field.map(|at| &listing.fields[at]) {
        asked.way = ListStrategy::Few;
        let [indexed, whole] = [columns::indexed(name), columns::value(name)];
        let parts = [&*format!("{indexed} = "), &*format!(" and {whole} = "), ""];
        asked.lead(&parts, vec![Box::new(begin_of(value)), Box::new(value)]);
    } else if listing.means_dead() {
        asked.lead(&["state = 'dead'"], Vec::new());
    } else if matches!(state, Some("waiting" | "running")) {
        asked.lead(&["ended_at is null"], Vec::new());
    } else {
        led = false;
    }
    match &listing.source {
        Some(source) if led => asked.aside(&["source = ", ""], vec![Box::new(text(source))]),
        Some(source) => asked.lead(&["source = ", ""], vec![Box::new(text(source))]),
        None => {}
    }
    let (least, before) = listing.ids();
    for (condition, id) in [("id < ", before), ("id >= ", least)] {
        if let Some(id) = id {
            asked.lead(&[condition, ""], vec![Box::new(PgUuid(id))]);
        }
    }
    for (condition, value) in [("state = ", state), ("route = ", listing.route.as_deref())] {
        if let Some(value) = value {
            asked.aside(&[condition, ""], vec![Box::new(text(value))]);
        }
    }
    if let Some(cause) = &listing.cause {
        asked.aside(&["cause = ", ""], vec![Box::new(text(cause))]);
    }
    for (condition, at) in [("received_at >= ", listing.since), ("received_at < ", listing.until)] {
        if let Some(at) = at {
            asked.aside(&[condition, ""], vec![Box::new(at.0)]);
        }
    }
    for (at, (name, value)) in listing.fields.iter().enumerate() {
        if field != Some(at) {
            inside(&mut asked, name, value);
        }
    }
    if let Some(text) = &listing.text {
        mentions(&mut asked, text);
    }
    asked
}

/// Filters by a field without using its index.
fn inside<'a>(asked: &mut PgListQuery<'a>, name: &'a str, value: &'a str) {
    if name.contains('\0') || value.contains('\0') {
        return asked.aside(&[ZERO], Vec::new());
    }
    let begin = format!("case when {ZERO} then true else fields ->> ");
    asked.aside(&[&begin, "::text = ", "::text end"], vec![Box::new(name), Box::new(value)]);
}

/// Filters by text. `fields` is JSON: of a text with characters that are escaped there, the longest part without them
/// is searched, and the whole by `finds_inside`.
fn mentions(asked: &mut PgListQuery<'_>, text: &str) {
    let text = text.to_ascii_lowercase();
    let parts = text.split(|letter: char| letter.is_control() || matches!(letter, '"' | '\\'));
    let part = parts.max_by_key(|part| part.len()).unwrap_or_default().to_owned();
    if part.is_empty() {
        return;
    }
    let parts = [
        r#"(strpos(lower(delivery_id collate "C"), "#,
        r#"::text) > 0 or strpos(lower(fields::text collate "C"), "#,
        "::text) > 0 or right(id::text, length(",
        "::text)) = ",
        "::text)",
    ];
    let values = (0..4).map(|_| Box::new(part.clone()) as PgParam<'_>).collect();
    asked.aside(&parts, values);
}

const COUNT_OPEN: &str = "select source, state, count(*) from (select source, state from {schema}.events \
                          where ended_at is null limit $1) open group by source, state";
const COUNT_DEAD_BY_SOURCE: &str = "select source, count(*) from (select source from {schema}.events where state = 'dead' \
                                    limit $1) dead group by source";
const COUNT_DEAD: &str = "select count(*) from (select 1 from {schema}.events where state = 'dead' limit $1) dead";
/// A table that the server estimates as larger is not counted, because that reads all of it. The estimate is returned
/// instead.
const COUNTED_MAX: i64 = 200_000;
const COUNT_ALL: &str = "select case when about < $1 then (select count(*) from {schema}.events) else about end, about >= $1 \
                         from (select reltuples::bigint as about from pg_class where oid = '{schema}.events'::regclass) events";
const COUNT_DUPLICATES: &str = "select case when about < $1 then (select coalesce(sum(count), 0)::bigint from {schema}.duplicates) \
                                end from (select reltuples::bigint as about from pg_class \
                                where oid = '{schema}.duplicates'::regclass) duplicates";
const OLDEST: &str = concat!(
    "select ",
    columns!(),
    ", version from {schema}.events where ended_at is null and state = 'waiting' order by id limit 1"
);

/// The counts, in one snapshot: open events are counted, ended ones computed from the indexes, and if there are too
/// many, estimated by the server.
pub(super) async fn census(link: &mut PgConn) -> PgResult<EventCounts> {
    let asks = [
        ask!("begin isolation level repeatable read, read only"),
        ask!(COUNT_OPEN, OPEN_COUNTED_MAX),
        ask!(COUNT_DEAD_BY_SOURCE, DEAD_BY_SOURCE_MAX),
        ask!(COUNT_DEAD, COUNTED_MAX),
        ask!(COUNT_ALL, COUNTED_MAX),
        ask!(COUNT_DUPLICATES, COUNTED_MAX),
        ask!(OLDEST),
        ask!("commit"),
    ];
    let answers = link.query_all(&asks).await?;
    let [_, states, dead_by_source, dead, all, duplicates, oldest, _] = &answers[..] else {
        return Ok(EventCounts::default());
    };
    let count = |rows: &[Row]| rows.first().map_or(Ok(None), |row| row.try_get::<_, Option<i64>>(0));
    let (mut census, mut open) = (EventCounts { by_source: Some(BTreeMap::new()), ..EventCounts::default() }, 0);
    for row in states {
        let (source, state, many) = (row.try_get(0)?, row.try_get::<_, &str>(1)?, row.try_get::<_, i64>(2)?);
        open += many;
        census.add_to_source(source, state, many.unsigned_abs());
        match state {
            "running" => census.running += many.unsigned_abs(),
            _ => census.waiting += many.unsigned_abs(),
        }
    }
    for row in dead_by_source {
        census.add_to_source(row.try_get(0)?, "dead", row.try_get::<_, i64>(1)?.unsigned_abs());
    }
    let dead = count(dead)?.unwrap_or(0);
    let about = all.first().is_some_and(|row| row.try_get(1).unwrap_or(false));
    census.capped = about || open == OPEN_COUNTED_MAX || dead == COUNTED_MAX;
    census.dead = dead.unsigned_abs();
    census.done = u64::try_from(count(all)?.unwrap_or(0) - dead - open).unwrap_or(0);
    census.duplicates = count(duplicates)?.map(i64::unsigned_abs);
    census.oldest = events(oldest).pop().filter(|event| matches!(event.state, EventState::Waiting { .. }));
    Ok(census)
}
