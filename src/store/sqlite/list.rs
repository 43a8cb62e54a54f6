//! Lists of events. One condition selects an index in the order of ids, the others filter; without an index, only a
//! limited number of events is scanned, and the next page continues from there.

use super::queries::{events, limit_cell};
use crate::decide::event::{Event, EventState};
use crate::decide::id::EventId;
use crate::store::inspect::{
    DEAD_BY_SOURCE_MAX, EventCounts, EventPage, EventPageScan, EventQuery, LOOKED_THROUGH_MAX,
};
use crate::store::row::columns;
use rusqlite::Result;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::collections::BTreeMap;

/// Maximum number of waiting and running events that are counted.
const OPEN_COUNTED_MAX: i64 = 100_000;

/// A SQL query that lists events: its indexed conditions, its other filters, and their values.
pub(super) struct SqliteListQuery {
    lead: Vec<String>,
    aside: Vec<String>,
    lead_values: Vec<Value>,
    aside_values: Vec<Value>,
}

impl SqliteListQuery {
    fn lead(&mut self, condition: &str, value: impl Into<Value>) {
        self.lead.push(condition.to_owned());
        self.lead_values.push(value.into());
    }

    fn aside(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.aside.push(condition.to_owned());
        self.aside_values.extend(values);
    }

    /// The matching events, at most a given number, scanning all events or only `looked` of them.
    pub(super) fn sql(&self, looked: Option<usize>) -> String {
        let all = |conditions: &[String]| conditions.join(" and ");
        let lead = if self.lead.is_empty() { "true".to_owned() } else { all(&self.lead) };
        let aside = if self.aside.is_empty() { "true".to_owned() } else { all(&self.aside) };
        let columns = columns!();
        match looked {
            None => format!("select {columns} from events where {lead} and {aside} order by id desc limit ?"),
            Some(most) => format!(
                "select {columns} from (select {columns} from events where {lead} order by id desc limit {most}) \
                 where {aside} order by id desc limit ?"
            ),
        }
    }

    /// The last id of such a scan, if it does not reach the end.
    fn last(&self, looked: usize) -> String {
        let lead = if self.lead.is_empty() { "true".to_owned() } else { self.lead.join(" and ") };
        format!("select id from events where {lead} order by id desc limit 1 offset {}", looked - 1)
    }
}

/// All that match, newest first.
pub(super) fn list(db: &Connection, listing: &EventQuery) -> Result<Vec<Event>> {
    let mut all = Vec::new();
    for question in questions(db, listing)? {
        // `finds_inside` decides about texts and numbers: query more until there are enough.
        let mut limit = listing.limit;
        loop {
            let found = ask(db, &question, None, limit)?;
            let full = found.len() == limit;
            let some: Vec<_> = found.into_iter().filter(|event| listing.finds_inside(event)).collect();
            if !full || some.len() >= listing.limit || limit >= limit.saturating_mul(4) {
                all.extend(some);
                break;
            }
            limit = limit.saturating_mul(4);
        }
    }
    newest(&mut all, listing.limit);
    Ok(all)
}

/// One page of matching events.
pub(super) fn page(db: &Connection, listing: &EventQuery) -> Result<EventPage> {
    let mut looks = Vec::new();
    for question in questions(db, listing)? {
        let found = ask(db, &question, Some(LOOKED_THROUGH_MAX), listing.limit.saturating_add(1))?;
        let mut stopped = None;
        if found.len() <= listing.limit && !question.aside.is_empty() {
            let values = params_from_iter(&question.lead_values);
            let mut last = db.prepare_cached(&question.last(LOOKED_THROUGH_MAX))?;
            stopped = last.query_map(values, |row| row.get(0).map(EventId))?.next().transpose()?;
        }
        looks.push(EventPageScan { found, stopped });
    }
    Ok(listing.gathered(looks))
}

fn ask(db: &Connection, question: &SqliteListQuery, looked: Option<usize>, limit: usize) -> Result<Vec<Event>> {
    let looked = looked.filter(|_| !question.aside.is_empty());
    let values = question.lead_values.iter().chain(&question.aside_values).cloned();
    let limit = Value::Integer(limit_cell(limit));
    events(db, &question.sql(looked), params_from_iter(values.chain([limit])))
}

fn newest(events: &mut Vec<Event>, limit: usize) {
    events.sort_by_key(|event| std::cmp::Reverse(event.id));
    events.dedup_by_key(|event| event.id);
    events.truncate(limit);
}

/// The queries to run: one, or one for each meaning of a field's value.
pub(super) fn questions(db: &Connection, listing: &EventQuery) -> Result<Vec<SqliteListQuery>> {
    let mut led = None;
    for (at, (name, _)) in listing.fields.iter().enumerate() {
        if led.is_none() && has_index(db, name)? {
            led = Some(at);
        }
    }
    let Some(led) = led else { return Ok(vec![question(listing, None)]) };
    let (name, value) = &listing.fields[led];
    Ok(meanings(value).into_iter().map(|meaning| question(listing, Some(&(led, name, meaning)))).collect())
}

fn question(listing: &EventQuery, field: Option<&(usize, &str, Value)>) -> SqliteListQuery {
    let mut asked =
        SqliteListQuery { lead: Vec::new(), aside: Vec::new(), lead_values: Vec::new(), aside_values: Vec::new() };
    let (least, before) = listing.ids();
    if let Some(before) = before {
        asked.lead("id < ?", before.0.to_vec());
    }
    if let Some(least) = least {
        asked.lead("id >= ?", least.0.to_vec());
    }
    // One of these is the indexed condition, the most selective first; `+` keeps SQLite from using the index of
    // another.
    let mut led = true;
    if let Some(successor) = listing.superseded_by {
        asked.lead("superseded_by = ?", successor.0.to_vec());
    } else if let Some((_, name, meaning)) = field {
        asked.lead(&format!("{} = ?", quoted(name)), meaning.clone());
    } else {
        led = false;
    }
    let dead = listing.means_dead();
    match listing.state.as_deref() {
        _ if dead && !led => (asked.lead.push("state = 'dead'".into()), led = true).1,
        Some(state @ ("waiting" | "running")) => {
            if !led {
                asked.lead.push("ended_at is null".into());
                led = true;
            }
            asked.aside("state = ?", [Value::from(state.to_owned())]);
        }
        Some(state) => asked.aside("+state = ?", [Value::from(state.to_owned())]),
        None => {}
    }
    if let Some(source) = &listing.source {
        if led {
            asked.aside("+source = ?", [Value::from(source.clone())]);
        } else {
            asked.lead("source = ?", source.clone());
        }
    }
    for (column, value) in [("route", &listing.route), ("cause", &listing.cause)] {
        if let Some(value) = value {
            asked.aside(&format!("+{column} = ?"), [Value::from(value.clone())]);
        }
    }
    if let Some(since) = listing.since {
        asked.aside("received_at >= ?", [Value::from(since.0)]);
    }
    if let Some(until) = listing.until {
        asked.aside("received_at < ?", [Value::from(until.0)]);
    }
    for (at, (name, value)) in listing.fields.iter().enumerate() {
        if field.is_none_or(|(led, ..)| *led != at) {
            inside(&mut asked, name, value);
        }
    }
    if let Some(text) = &listing.text {
        mentions(&mut asked, text);
    }
    asked
}

/// Filters by a field without an index. A name that cannot be written in a JSON path is left to `finds_inside`.
fn inside(asked: &mut SqliteListQuery, name: &str, value: &str) {
    let path = format!("$.\"{name}\"");
    if name.contains(['"', '\\', '\0']) {
        return asked.aside("true", []);
    }
    let meanings = meanings(value);
    let marks = vec!["?"; meanings.len()].join(", ");
    let condition = format!("json_extract(fields, ?) in ({marks})");
    asked.aside(&condition, std::iter::once(Value::from(path)).chain(meanings));
}

/// Filters by text. `fields` is JSON: characters that are escaped there are left to `finds_inside`.
fn mentions(asked: &mut SqliteListQuery, text: &str) {
    let plain = text.chars().all(|c| !c.is_control() && !matches!(c, '"' | '\\' | '%' | '_'));
    if !plain {
        return asked.aside("true", []);
    }
    let anywhere = Value::from(format!("%{text}%"));
    let ending = Value::from(format!("%{}", text.replace('-', "")));
    let condition = "(delivery_id like ? or fields like ? or hex(id) like ?)";
    asked.aside(condition, [anywhere.clone(), anywhere, ending]);
}

/// The values that a column may hold for this text: the text itself, and others that read the same.
fn meanings(value: &str) -> Vec<Value> {
    let mut all = vec![Value::from(value.to_owned())];
    match (value, value.parse::<i64>(), value.parse::<f64>()) {
        ("true", ..) => all.push(Value::from(1)),
        ("false", ..) => all.push(Value::from(0)),
        (_, Ok(number), _) => all.push(Value::from(number)),
        (_, Err(_), Ok(number)) if number.is_finite() => all.push(Value::from(number)),
        _ => {}
    }
    all
}

fn has_index(db: &Connection, name: &str) -> Result<bool> {
    let sql = "select count(*) from sqlite_schema where type = 'index' and name = 'events_field_' || ?1";
    db.prepare_cached(sql)?.query_row([name], |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) const COUNT_ALL: &str = "select count(*) from events";
pub(super) const COUNT_DEAD: &str = "select count(*) from events where state = 'dead'";
pub(super) const OLDEST_OPEN: &str =
    concat!("select ", columns!(), " from events where ended_at is null and +state = 'waiting' order by id limit 1");

/// A text; empty where the cell is damaged: one bad row must not end the counting.
fn text<'r>(row: &'r rusqlite::Row<'_>, place: usize) -> Result<&'r str> {
    Ok(row.get_ref(place)?.as_str().unwrap_or_default())
}

/// The counts: open events are counted, ended ones computed from the indexes.
pub(super) fn census(db: &Connection) -> Result<EventCounts> {
    let snapshot = db.unchecked_transaction()?;
    let count = |sql: &str| snapshot.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
    let open = format!(
        "select source, state, count(*) from (select source, state from events where ended_at is null \
         limit {OPEN_COUNTED_MAX}) group by source, state"
    );
    let mut rows = snapshot.prepare_cached(&open)?;
    let mut rows = rows.query([])?;
    let (mut census, mut open) = (EventCounts { by_source: Some(BTreeMap::new()), ..EventCounts::default() }, 0);
    while let Some(row) = rows.next()? {
        let (source, state, many) = (text(row, 0)?, text(row, 1)?, row.get::<_, i64>(2)?);
        open += many;
        census.add_to_source(source, state, many.unsigned_abs());
        match state {
            "running" => census.running += many.unsigned_abs(),
            _ => census.waiting += many.unsigned_abs(),
        }
    }
    census.capped = open == OPEN_COUNTED_MAX;
    let dead = format!(
        "select source, count(*) from (select source from events where state = 'dead' limit {DEAD_BY_SOURCE_MAX}) \
         group by source"
    );
    let mut rows = snapshot.prepare_cached(&dead)?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        census.add_to_source(text(row, 0)?, "dead", row.get::<_, i64>(1)?.unsigned_abs());
    }
    let dead = count(COUNT_DEAD)?;
    census.dead = dead.unsigned_abs();
    census.done = u64::try_from(count(COUNT_ALL)? - dead - open).unwrap_or(0);
    census.duplicates = Some(count("select coalesce(sum(count), 0) from duplicates")?.unsigned_abs());
    let oldest = events(&snapshot, OLDEST_OPEN, [])?.into_iter().next();
    census.oldest = oldest.filter(|event| matches!(event.state, EventState::Waiting { .. }));
    Ok(census)
}
