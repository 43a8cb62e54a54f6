//! Reads for the dispatcher and for operators: due events, bodies and responses, lists, and events to forget.

use super::dictionaries::{self, BYTES, PgDictionaries};
use super::pool::{PgConn, PgQuery, PgResult, ask};
use super::read::{CLOCK, told};
use super::rows;
use super::rows::{PgRawCell, PgUuid, counter, text};
use crate::decide::claim::{MatchedBy, Payload};
use crate::decide::event::{Event, EventState, Receipt};
use crate::decide::id::{Digest, EventId};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::limits;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::AttemptRecord;
use crate::store::clock::StoreClock;
use crate::store::compression::DictionaryId;
use crate::store::inspect::QuarantinedMessage;
use crate::store::row::columns;
use crate::store::{
    DueEvents, DueQuery, DuplicateNote, DuplicateSighting, EventDetails, EventQuery, StoredValue, compression, row,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use tokio_postgres::Row;
use tracing::error;

macro_rules! due {
    ($which:literal) => {
        concat!(
            "select ",
            columns!(),
            ", version from {schema}.events where wake_at is not null and ",
            $which,
            " order by wake_at, id limit $1"
        )
    };
}

const DUE_ON_ROUTE: &str = due!("state = $2 and source = $3 and route = $4");
/// Uses the index `events_due_part`. The redundant range makes the planner estimate it as much narrower, so that it
/// never scans the events of other receivers in `events_due`, whatever the statistics say.
const DUE_AT_RECEIVER: &str =
    due!("state = 'waiting' and source = $2 and route = $3 and part = $4 and part between $4 and $4");
/// The same for several receivers: one index seek per receiver, and the first due events of each.
const DUE_AT_RECEIVERS: &str = concat!(
    "with recursive parts (n) as ((select part from {schema}.events where wake_at is not null and state = 'waiting' \
     and source = $2 and route = $3 and part between $4 and $5 order by part limit 1) \
     union all select more.part from parts, lateral (select part from {schema}.events where wake_at is not null \
     and state = 'waiting' and source = $2 and route = $3 and part > parts.n and part <= $5 order by part limit 1) more) \
     select due.* from parts, lateral (select ",
    columns!(),
    ", version from {schema}.events where wake_at is not null and state = 'waiting' and source = $2 and route = $3 \
     and part = parts.n and part between parts.n and parts.n order by wake_at, id limit $1) due \
     order by wake_at, id limit $1"
);
const DUE_LEASES: &str = due!("state = 'running'");
/// One index seek per route, without reading the entries in between.
const ROUTES_IN_USE: &str = "with recursive used (state, source, route) as (\
     (select state, source, route from {schema}.events where wake_at is not null order by state, source, route limit 1) \
     union all select n.state, n.source, n.route from used, lateral (select e.state, e.source, e.route from {schema}.events e \
     where wake_at is not null and (e.state, e.source, e.route) > (used.state, used.source, used.route) \
     order by e.state, e.source, e.route limit 1) n) select state, source, route from used where state <> 'running'";

/// The due events of a query. Includes unreadable events, as dead of `damaged`.
pub(super) async fn due(link: &mut PgConn, look: &DueQuery, limit: usize, clock: &StoreClock) -> PgResult<DueEvents> {
    let room = limit_cell(limit.saturating_add(1));
    let first = match look {
        DueQuery::Route(source, route) => ask!(DUE_ON_ROUTE, room, "waiting", &**source, &**route),
        DueQuery::Receiver(source, route, parts) => {
            let [from, to] = [*parts.start(), *parts.end()].map(i32::from);
            if from == to {
                ask!(DUE_AT_RECEIVER, room, &**source, &**route, from)
            } else {
                ask!(DUE_AT_RECEIVERS, room, &**source, &**route, from, to)
            }
        }
        DueQuery::Leases => ask!(DUE_LEASES, room),
        DueQuery::Orphans(_) => ask!(ROUTES_IN_USE),
    };
    let asked = StoreClock::asks();
    let mut answers = link.query_all(&[ask!(CLOCK), first]).await?;
    let now = told(clock, asked, &answers[0][0], 0)?;
    let rows = answers.swap_remove(1);
    let ends = |at| if let DueQuery::Leases = look { clock.lease_end(at) } else { at };
    let DueQuery::Orphans(known) = look else { return Ok(gather([rows], limit, now, ends)) };
    let strays = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
    let strays: Vec<(&str, &str, &str)> = strays.collect::<Result<_, tokio_postgres::Error>>()?;
    let asks: Vec<_> = strays
        .into_iter()
        // An unknown state means an unreadable row: it belongs to no route either.
        .filter(|(state, source, route)| {
            *state != "waiting" || !known.iter().any(|(s, r)| **s == **source && **r == **route)
        })
        .map(|(state, source, route)| ask!(DUE_ON_ROUTE, room, state, source, route))
        .collect();
    let answers = if asks.is_empty() { Vec::new() } else { link.query_all(&asks).await? };
    Ok(gather(answers, limit, now, ends))
}

/// Takes the due events, oldest first, and the time of the first that is not due. `ends` maps a stored time to when it
/// really comes.
fn gather(
    answers: impl IntoIterator<Item = Vec<Row>>,
    limit: usize,
    now: Timestamp,
    ends: impl Fn(Timestamp) -> Timestamp,
) -> DueEvents {
    let mut found: Vec<_> = answers
        .into_iter()
        .flatten()
        .filter_map(|row| {
            let at = ends(row.try_get("wake_at").map(Timestamp).unwrap_or_default());
            rows::event(&row, 0).map(|(row, _)| (at, row.event))
        })
        .collect();
    found.sort_by_key(|(at, event)| (*at, event.id));
    let due = found.iter().take(limit).take_while(|(at, _)| *at <= now).count();
    let next = found.get(due).map(|(at, _)| *at);
    found.truncate(due);
    DueEvents { events: found.into_iter().map(|(_, event)| event).collect(), next }
}

/// The payloads `p` that meet a condition, with columns that stores without dictionaries lack: those are null there. A name
/// in the inner query means the column of the table, or else that of the outer one.
macro_rules! payloads {
    ($which:literal) => {
        concat!(
            "(select null::bytea as packed, null::bigint as dictionary) as absent, lateral (select event, headers, \
             headers_digest, body, unpacked, packed, dictionary from {schema}.payloads where ",
            $which,
            ") as p"
        )
    };
}
pub(super) use payloads;

const PAYLOAD: &str = concat!(
    "select p.headers, p.headers_digest, p.body, p.unpacked, (select body_digest from {schema}.events where id = p.event), \
     p.packed, p.dictionary from ",
    payloads!("event = $1")
);
/// How often a payload is read whose dictionary is missing: it was packed without it meanwhile.
const PAYLOAD_READS: u32 = 3;

/// Headers and body, checked against their digests. A body counts as damaged if neither copy of its dictionary can be read.
pub(super) async fn payload(
    link: &mut PgConn,
    id: EventId,
    dictionaries: &PgDictionaries,
) -> PgResult<StoredValue<Payload>> {
    for _ in 0..PAYLOAD_READS {
        let rows = link.query_all(&[ask!(PAYLOAD, PgUuid(id))]).await?.remove(0);
        let Some(row) = rows.first() else { return Ok(StoredValue::Forgotten) };
        let found = unpacked(row, 0, dictionaries)?;
        let name = match (&found, needed_dictionary(row, 0)?) {
            (StoredValue::Whole(_) | StoredValue::Forgotten, _) | (_, None) => return Ok(found),
            (StoredValue::Damaged, Some(name)) => name,
        };
        for sql in BYTES {
            let Some(bytes) = dictionaries::bytes(link, sql, name).await? else { continue };
            if let StoredValue::Whole(payload) = unpacked_with(row, 0, Some(&bytes))? {
                dictionaries.remember(name, &bytes);
                return Ok(StoredValue::Whole(payload));
            }
        }
    }
    Ok(StoredValue::Damaged)
}

/// The dictionary without which the payload in the columns from this index on cannot be read.
fn needed_dictionary(row: &Row, from: usize) -> PgResult<Option<DictionaryId>> {
    let is_plain = row.try_get::<_, Option<PgRawCell<'_>>>(from + 2)?.is_some();
    let dictionary = row.try_get::<_, Option<i64>>(from + 6)?;
    Ok(dictionary.filter(|_| !is_plain).map(DictionaryId))
}

/// The payload in the columns from this index on, if its dictionary is known here; otherwise, and where that does not fit,
/// it is `Damaged`.
pub(super) fn unpacked(row: &Row, from: usize, dictionaries: &PgDictionaries) -> PgResult<StoredValue<Payload>> {
    let bytes = needed_dictionary(row, from)?.and_then(|id| dictionaries.known(id));
    unpacked_with(row, from, bytes.as_deref())
}

/// The same with this dictionary.
fn unpacked_with(row: &Row, from: usize, dictionary: Option<&[u8]>) -> PgResult<StoredValue<Payload>> {
    let (text, length): (&str, _) = (row.try_get(from)?, row.try_get(from + 3)?);
    let (plain, packed): (Option<PgRawCell<'_>>, Option<PgRawCell<'_>>) =
        (row.try_get(from + 2)?, row.try_get(from + 5)?);
    let body = match (plain, packed, dictionary) {
        (Some(plain), ..) => compression::unpack(plain.0, length),
        (None, Some(packed), Some(dictionary)) => compression::unpack_with(packed.0, length, Some(dictionary)),
        (None, ..) => None,
    };
    let digest = |place| row.try_get::<_, Option<PgRawCell<'_>>>(place).map(|raw| raw.map(|raw| Digest(raw.array())));
    let whole =
        digest(from + 1)? == Some(Digest::of(text.as_bytes())) && digest(from + 4)? == body.as_deref().map(Digest::of);
    Ok(match (row::headers(text), body) {
        (Some(headers), Some(body)) if whole => StoredValue::Whole(Payload { headers, body: body.into() }),
        _ => StoredValue::Damaged,
    })
}

const RECEIPT: &str = "select status, headers, body, cut, digest from {schema}.receipts where event = $1";

/// The receipt; `None` if it is not as it was stored.
pub(super) async fn receipt(link: &mut PgConn, id: EventId) -> PgResult<Option<Receipt>> {
    let rows = link.query_all(&[ask!(RECEIPT, PgUuid(id))]).await?.remove(0);
    kept(id, rows.first(), 0)
}

/// The receipt in the columns from this index on.
pub(super) fn kept(id: EventId, row: Option<&Row>, from: usize) -> PgResult<Option<Receipt>> {
    let Some(row) = row else { return Ok(None) };
    let (text, body, cut): (&str, PgRawCell<'_>, bool) =
        (row.try_get(from + 1)?, row.try_get(from + 2)?, row.try_get(from + 3)?);
    let status = u16::try_from(row.try_get::<_, i32>(from)?).unwrap_or_default();
    let digest = Digest(row.try_get::<_, PgRawCell<'_>>(from + 4)?.array());
    let whole = digest == row::receipt_digest(status, cut, text, body.0);
    let receipt = row::headers(text).filter(|_| whole);
    if receipt.is_none() {
        error!(target: "hookonce", event = %id, why = "its receipt cannot be read", "damaged");
    }
    Ok(receipt.map(|headers| Receipt { status, headers, body: body.0.to_vec(), truncated: cut }))
}

macro_rules! listed {
    ($state:literal) => {
        concat!(
            "select ",
            columns!(),
            ", version from {schema}.events where id < $1 and ($2::text is null or source = $2) and ($3::text is null \
             or route = $3) and ",
            $state,
            " order by id desc limit $5"
        )
    };
}

/// The newest first. Each state is found through the index with the fewest other events.
pub(super) async fn list(link: &mut PgConn, listing: &EventQuery) -> PgResult<Vec<Event>> {
    let sql = match listing.state.as_deref() {
        None => listed!("$4::text is null"),
        Some("waiting" | "running") => listed!("ended_at is null and state = $4::text"),
        Some("dead") => listed!("state = 'dead' and $4::text is not null"),
        Some(_) => listed!("state = $4::text"),
    };
    let before = PgUuid(listing.before.unwrap_or(EventId([u8::MAX; 16])));
    let EventQuery { source, route, state, limit, .. } = listing;
    let asked = ask!(sql, before, source.as_deref(), route.as_deref(), state.as_deref(), limit_cell(*limit));
    Ok(events(&link.query_all(&[asked]).await?.remove(0)))
}

pub(super) fn events(rows: &[Row]) -> Vec<Event> {
    rows.iter().filter_map(|row| rows::event(row, 0)).map(|(row, _)| row.event).collect()
}

const BY_DELIVERY: &str =
    concat!("select ", columns!(), ", version from {schema}.events where delivery_id = $1 order by id desc limit $2");
const BY_ID: &str = concat!("select ", columns!(), ", version from {schema}.events where id = $1 limit $2");
const BY_END: &str = concat!(
    "with found as materialized (select id from {schema}.events where reverse(right(id::text, 12)) collate \"C\" >= $3 \
     and reverse(right(id::text, 12)) collate \"C\" < $4) select ",
    columns!(),
    ", version from {schema}.events where id in (select id from found) and right(id::text, length($1)) = $1 \
     order by id desc limit $2"
);
/// For so few digits that the newest matches are found soon.
const BY_SHORT_END: &str = concat!(
    "select ",
    columns!(),
    ", version from {schema}.events where right(id::text, length($1)) = $1 order by id desc limit $2"
);
/// Digits of a suffix that matches few events.
const END_LEADS: usize = 4;
/// Letters of an id after its last dash, which the index `events_id_end` holds in reverse.
const END_INDEXED: usize = 12;

/// The events with this delivery id, or with this suffix of their id.
pub(super) async fn named(link: &mut PgConn, name: &str, limit: usize) -> PgResult<Vec<Event>> {
    let room = limit_cell(limit);
    let mut asks = vec![ask!(BY_DELIVERY, text(name), room)];
    let end = name.to_ascii_lowercase();
    if let Ok(id) = end.parse::<EventId>() {
        asks.push(ask!(BY_ID, PgUuid(id), room));
    } else if end.bytes().any(|b| b.is_ascii_hexdigit()) && end.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        // The digits before the suffix, in reverse order, range from 0 to f.
        let reverse: String = end.chars().rev().take(END_INDEXED).collect();
        asks.push(if end.len() < END_LEADS {
            ask!(BY_SHORT_END, end, room)
        } else {
            let beyond = format!("{reverse}g");
            ask!(BY_END, end, room, reverse, beyond)
        });
    }
    let answers = link.query_all(&asks).await?;
    let mut found: Vec<Event> = answers.iter().flat_map(|rows| events(rows)).collect();
    found.sort_by_key(|event| std::cmp::Reverse(event.id));
    found.dedup_by_key(|event| event.id);
    found.truncate(limit);
    Ok(found)
}

const STORY: &[&str] = &[
    concat!("select ", columns!(), ", version from {schema}.events where id = $1"),
    "select identity from {schema}.keys where event = $1 and not alias union all \
     select 'delivery' from {schema}.keys where event = $1 and not alias and id_digest is not null",
    "select at, delivery_id, identity from {schema}.sightings where event = $1 order by n",
    "select count from {schema}.duplicates where event = $1",
    "select 1 from {schema}.payloads where event = $1",
    "select a.life, a.attempt, a.started_at, a.ended_at, a.outcome, a.why, coalesce(o.bytes, '') from {schema}.attempts a \
     left join {schema}.output o on o.id = a.id where a.event = $1 order by a.id",
    RECEIPT,
    "select s.event from {schema}.events e join {schema}.slots s on s.grp = e.grp where e.id = $1",
];

/// All of one event, in one snapshot.
pub(super) async fn story(link: &mut PgConn, id: EventId) -> PgResult<Option<EventDetails>> {
    let mut asks = vec![ask!("begin isolation level repeatable read, read only")];
    asks.extend(STORY.iter().map(|sql| ask!(sql, PgUuid(id))));
    asks.push(ask!("commit"));
    let answers = link.query_all(&asks).await?;
    let [_, event, identities, sightings, duplicates, body, attempts, receipt, behind, _] = &answers[..] else {
        return Ok(None);
    };
    let Some(event) = events(event).pop() else { return Ok(None) };
    let mut told = EventDetails {
        behind: None,
        identities: Vec::new(),
        sightings: Vec::new(),
        duplicates: 0,
        attempts: Vec::new(),
        receipt: kept(id, receipt.first(), 0)?,
        has_body: !body.is_empty(),
        event,
    };
    for row in identities {
        told.identities.push(MatchedBy::parse(row.try_get(0)?));
    }
    told.identities.sort();
    told.identities.dedup();
    for row in sightings {
        let delivery_id = row.try_get::<_, Option<&str>>(1)?.map(Into::into);
        told.sightings.push(DuplicateSighting {
            at: Timestamp(row.try_get(0)?),
            delivery_id,
            same: MatchedBy::parse(row.try_get(2)?),
        });
    }
    for row in duplicates {
        told.duplicates = row.try_get::<_, i64>(0)?.unsigned_abs();
    }
    for row in attempts {
        told.attempts.push(tried(row, 0)?);
    }
    if told.event.state == (EventState::Waiting { due: None }) {
        told.behind = behind.first().map(|row| row.try_get(0)).transpose()?.map(|PgUuid(holder)| holder);
    }
    Ok(Some(told))
}

/// The attempt in the columns from this index on.
pub(super) fn tried(row: &Row, from: usize) -> PgResult<AttemptRecord> {
    Ok(AttemptRecord {
        life: row.try_get::<_, i32>(from)?.unsigned_abs(),
        attempt: row.try_get::<_, i32>(from + 1)?.unsigned_abs(),
        started_at: Timestamp(row.try_get(from + 2)?),
        ended_at: Timestamp(row.try_get(from + 3)?),
        outcome: row.try_get(from + 4)?,
        why: row.try_get(from + 5)?,
        output: row.try_get(from + 6)?,
    })
}

/// The event is locked while its duplicates are counted, so that nothing is left of one that is deleted meanwhile.
const NOTE: &str = "with e as materialized (select id from {schema}.events where id = any($1) order by id for key share), \
     n as (insert into {schema}.duplicates (event, count) select r.id, r.count from unnest($1::uuid[], $2::bigint[]) \
     as r (id, count) where r.id in (select id from e) \
     on conflict (event) do update set count = duplicates.count + excluded.count returning event, count) \
     insert into {schema}.sightings (event, n, at, delivery_id, identity) \
     select n.event, n.count - s.later, s.at, s.delivery_id, s.identity from n join unnest($3::uuid[], $4::bigint[], \
     $5::bigint[], $6::text[], $7::text[]) as s (event, later, at, delivery_id, identity) on s.event = n.event \
     where n.count - s.later <= $8 on conflict do nothing";

/// Counts duplicates, and stores the first few of each event. The commit does not wait for the disk.
pub(super) async fn note(link: &mut PgConn, notes: &[DuplicateNote]) -> PgResult<()> {
    let mut counts = BTreeMap::<EventId, i64>::new();
    for note in notes {
        *counts.entry(note.event).or_default() += 1;
    }
    let ids: Vec<PgUuid> = counts.keys().map(|id| PgUuid(*id)).collect();
    let totals: Vec<i64> = counts.values().copied().collect();
    let later = |note: &DuplicateNote| {
        let left = counts.get_mut(&note.event).expect("every event was counted");
        *left -= 1;
        *left
    };
    let later: Vec<i64> = notes.iter().map(later).collect();
    let asked = ask!(
        NOTE,
        ids,
        totals,
        notes.iter().map(|note| PgUuid(note.event)).collect::<Vec<_>>(),
        later,
        notes.iter().map(|note| note.sighting.at.0).collect::<Vec<_>>(),
        notes.iter().map(|note| note.sighting.delivery_id.as_deref().map(text)).collect::<Vec<_>>(),
        notes.iter().map(|note| note.sighting.same.word()).collect::<Vec<_>>(),
        limit_cell(limits::SIGHTINGS_MAX),
    );
    link.query_all(&[ask!("begin"), ask!("set local synchronous_commit = off"), asked, ask!("commit")]).await.map(drop)
}

const FORGETTABLE: &str = "select id from {schema}.events where source = $1 and keep_from <= $2 and (ord is null \
     or not exists (select 1 from {schema}.registers where registers.key = events.subject and registers.ord = events.ord)) \
     order by keep_from limit $3";
const OLD_BODIES: &str =
    "select id from {schema}.events where source = $1 and body and ended_at <= $2 order by ended_at limit $3";

/// Events of this source that could be forgotten before then.
pub(super) async fn forgettable(
    link: &mut PgConn,
    source: &str,
    before: Timestamp,
    limit: usize,
) -> PgResult<Vec<EventId>> {
    old(link, FORGETTABLE, source, before, limit).await
}

/// Events of this source that ended before then and still have their body.
pub(super) async fn with_old_bodies(
    link: &mut PgConn,
    source: &str,
    before: Timestamp,
    limit: usize,
) -> PgResult<Vec<EventId>> {
    old(link, OLD_BODIES, source, before, limit).await
}

async fn old(
    link: &mut PgConn,
    sql: &'static str,
    source: &str,
    before: Timestamp,
    limit: usize,
) -> PgResult<Vec<EventId>> {
    let rows = link.query_all(&[ask!(sql, source, before.0, limit_cell(limit))]).await?.remove(0);
    rows.iter().map(|row| Ok(row.try_get::<_, PgUuid>(0).map(|PgUuid(id)| id)?)).collect()
}

/// What each scope's identities are made of.
pub(super) async fn recipes(link: &mut PgConn) -> PgResult<Vec<IdentityRecipe>> {
    let rows = link
        .query_all(&[ask!("select scope, once, since from {schema}.scopes order by scope collate \"C\"")])
        .await?
        .remove(0);
    let one = |row: &tokio_postgres::Row| {
        let since = row.try_get::<_, Option<i64>>(2)?.map(Timestamp);
        Ok(IdentityRecipe { scope: row.try_get(0)?, once: row.try_get(1)?, since })
    };
    rows.iter().map(one).collect()
}

/// Replaces all recipes, in one transaction.
pub(super) async fn remember(link: &mut PgConn, recipes: &[IdentityRecipe]) -> PgResult<()> {
    let mut asks = vec![ask!("begin")];
    asks.extend(to_remember(recipes));
    asks.push(ask!("commit"));
    link.query_all(&asks).await.map(drop)
}

/// The statements that replace them, for use in a transaction.
pub(super) fn to_remember(recipes: &[IdentityRecipe]) -> [PgQuery<'_>; 3] {
    let all: BTreeMap<&str, &IdentityRecipe> = recipes.iter().map(|recipe| (&*recipe.scope, recipe)).collect();
    let (scopes, once): (Vec<_>, Vec<_>) = all.iter().map(|(scope, recipe)| (*scope, &*recipe.once)).unzip();
    let since: Vec<_> = all.values().map(|recipe| recipe.since.map(|at| at.0)).collect();
    [
        ask!("lock table {schema}.scopes in share row exclusive mode"),
        ask!("delete from {schema}.scopes"),
        ask!(
            "insert into {schema}.scopes (scope, once, since) select * from unnest($1::text[], $2::text[], $3::bigint[])",
            scopes,
            once,
            since
        ),
    ]
}

const SET_LAST_SEEN: &str = "insert into {schema}.last_seen as seen (id, at) values (1, $1) on conflict (id) do update \
     set at = excluded.at where seen.at = $2";

/// The last-seen time, read together with the server's clock.
pub(super) async fn last_seen(link: &mut PgConn, clock: &StoreClock) -> PgResult<Option<Timestamp>> {
    let asked = StoreClock::asks();
    let answers = link.query_all(&[ask!("select at from {schema}.last_seen"), ask!(CLOCK)]).await?;
    told(clock, asked, &answers[1][0], 0)?;
    answers[0].first().map(|row| Ok(Timestamp(row.try_get(0)?))).transpose()
}

/// Writes the last-seen time, if it is still `was`. The commit does not wait for the disk.
pub(super) async fn set_last_seen(link: &mut PgConn, was: Option<Timestamp>, time: Timestamp) -> PgResult<()> {
    let write = ask!(SET_LAST_SEEN, time.0, was.map(|was| was.0));
    link.query_all(&[ask!("begin"), ask!("set local synchronous_commit = off"), write, ask!("commit")]).await.map(drop)
}

const AGREE_ON_CLOCK: &str = "insert into {schema}.store_clock as c (id, ahead, reached, held_last, held_by, held_until) \
     values (1, $1, $2, $3, $4, $5) on conflict (id) do update set ahead = excluded.ahead, reached = excluded.reached, \
     held_last = excluded.held_last, held_by = excluded.held_by, held_until = excluded.held_until \
     where c.ahead = $6 and c.reached = $7";

/// Writes the nodes' agreement on the store's clock, if it is still `was`.
pub(super) async fn agree_on_clock(link: &mut PgConn, was: AgreedClock, is: AgreedClock) -> PgResult<()> {
    let micros = |length: Duration| i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    let (last, by, until) = (is.held.map(|h| h.last.0), is.held.map(|h| micros(h.by)), is.held.map(|h| h.until.0));
    let (ahead, was_ahead) = (micros(is.ahead), micros(was.ahead));
    let write = ask!(AGREE_ON_CLOCK, ahead, is.reached.0, last, by, until, was_ahead, was.reached.0);
    link.query_all(&[write]).await.map(drop)
}

pub(super) fn limit_cell(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

const LAY: &str = "insert into {schema}.quarantine (message, source, subject, at, why, bytes, head) \
                   values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing";
/// The numbers have gaps, so rows are counted.
const MAKE_WAY: &str =
    "delete from {schema}.quarantine where n <= (select n from {schema}.quarantine order by n desc offset $1 limit 1)";
const NEWEST: &str =
    "select source, message, subject, at, why, bytes, head from {schema}.quarantine order by n desc limit $1";

/// 64 KiB that do not compress.
const PROBE: &str = "insert into {schema}.quarantine (message, source, subject, at, why, bytes, head) \
                     select 'probe ' || clock_timestamp() || ' ' || random(), '', '', 0, '', 0, \
                     string_agg(decode(md5(random()::text || n), 'hex'), '') from generate_series(1, 4096) as n";

/// Writes to a table and rolls back. The server allocates disk space when a row is written, not when it is committed.
pub(super) async fn probe(link: &mut PgConn) -> PgResult<()> {
    link.query_all(&[ask!("begin"), ask!(PROBE), ask!("rollback")]).await.map(drop)
}

/// Adds a message to quarantine, and evicts the oldest. Under a table lock: concurrent inserts would wait for each
/// other's rows in any order.
pub(super) async fn lay(link: &mut PgConn, one: &QuarantinedMessage) -> PgResult<()> {
    let mut asks = vec![ask!("begin")];
    asks.extend(to_lay(std::slice::from_ref(one)));
    asks.push(ask!("commit"));
    link.query_all(&asks).await.map(drop)
}

/// The statements that add these messages, for use in a transaction.
pub(super) fn to_lay(messages: &[QuarantinedMessage]) -> Vec<PgQuery<'_>> {
    let mut asks = vec![ask!("lock table {schema}.quarantine in share row exclusive mode")];
    for one in messages {
        asks.push(ask!(
            LAY,
            text(&one.message),
            text(&one.source),
            text(&one.subject),
            one.at.0,
            text(&one.why),
            counter(one.bytes),
            &one.head[..],
        ));
    }
    asks.push(ask!(MAKE_WAY, counter(limits::QUARANTINE_MAX as u64)));
    asks
}

/// The newest quarantined messages.
pub(super) async fn newest(link: &mut PgConn, limit: usize) -> PgResult<Vec<QuarantinedMessage>> {
    let rows = link.query_all(&[ask!(NEWEST, counter(limit as u64))]).await?.remove(0);
    rows.iter().map(quarantined).collect()
}

fn quarantined(row: &Row) -> PgResult<QuarantinedMessage> {
    Ok(QuarantinedMessage {
        source: row.try_get::<_, &str>(0)?.into(),
        message: row.try_get(1)?,
        subject: row.try_get(2)?,
        at: Timestamp(row.try_get(3)?),
        why: row.try_get(4)?,
        bytes: row.try_get::<_, i64>(5)?.unsigned_abs(),
        head: Bytes::copy_from_slice(row.try_get(6)?),
    })
}
