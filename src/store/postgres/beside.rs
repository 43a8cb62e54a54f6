//! What is kept beside an event and never decides anything: its attempts and its duplicates.

use super::batch_writes::{BatchWrites, EventWrites};
use super::pool::PgQuery;
use super::rows::{PgUuid, column, counter, small, text};
use crate::decide::id::EventId;
use crate::decide::transition::AttemptRecord;
use crate::store::DuplicateSighting;

const PUT_ATTEMPTS: &str = "with t as materialized (\
     select nextval(pg_get_serial_sequence('{schema}.attempts', 'id')) as id, * from unnest($1::uuid[], $2::integer[], \
     $3::integer[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::bytea[]) \
     as t (event, life, attempt, started_at, ended_at, outcome, why, bytes)), \
     a as (insert into {schema}.attempts (id, event, life, attempt, started_at, ended_at, outcome, why) \
     overriding system value select id, event, life, attempt, started_at, ended_at, outcome, why from t) \
     insert into {schema}.output (id, event, life, attempt, bytes) select id, event, life, attempt, bytes from t \
     where bytes <> ''";
const PUT_DUPLICATES: &str = "insert into {schema}.duplicates (event, count) select * from unnest($1::uuid[], $2::bigint[]) \
     on conflict (event) do update set count = excluded.count";
const PUT_SIGHTINGS: &str = "insert into {schema}.sightings (event, n, at, delivery_id, identity) \
     select * from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::text[]) on conflict do nothing";

/// Keeps what attempts came to.
pub(super) fn put_attempts<'s>(effect: &'s BatchWrites<'s>, asks: &mut Vec<PgQuery<'s>>) {
    let tried = effect.events.iter().flat_map(|(id, fate)| fate.tried.iter().map(|tried| (*id, *tried)));
    let tried: Vec<(EventId, &'s AttemptRecord)> = tried.collect();
    if tried.is_empty() {
        return;
    }
    let params = vec![
        column(&tried, |(id, _)| PgUuid(*id)),
        column(&tried, |(_, tried)| small(tried.life)),
        column(&tried, |(_, tried)| small(tried.attempt)),
        column(&tried, |(_, tried)| tried.started_at.0),
        column(&tried, |(_, tried)| tried.ended_at.0),
        column(&tried, |(_, tried)| text(&tried.outcome)),
        column(&tried, |(_, tried)| text(&tried.why)),
        column(&tried, |(_, tried)| &tried.output[..]),
    ];
    asks.push(PgQuery { sql: PUT_ATTEMPTS, params });
}

/// Keeps how many duplicates there were, and the first few.
pub(super) fn put_sightings<'s>(effect: &'s BatchWrites<'s>, asks: &mut Vec<PgQuery<'s>>) {
    let counts: Vec<_> = effect.events.iter().filter_map(|(id, fate)| Some((*id, fate.seen?.0))).collect();
    if counts.is_empty() {
        return;
    }
    let params = vec![column(&counts, |(id, _)| PgUuid(*id)), column(&counts, |(_, count)| counter(*count))];
    asks.push(PgQuery { sql: PUT_DUPLICATES, params });
    let numbered = |(id, fate): (&EventId, &EventWrites<'s>)| {
        let (id, seen) = (*id, fate.seen.map_or(&[][..], |(_, seen)| seen));
        (1..).zip(seen).map(move |(n, seen)| (id, n, seen))
    };
    let seen: Vec<(EventId, u32, &'s DuplicateSighting)> = effect.events.iter().flat_map(numbered).collect();
    let params = vec![
        column(&seen, |(id, ..)| PgUuid(*id)),
        column(&seen, |(_, n, _)| small(*n)),
        column(&seen, |(.., seen)| seen.at.0),
        column(&seen, |(.., seen)| seen.delivery_id.as_deref().map(text)),
        column(&seen, |(.., seen)| seen.same.word()),
    ];
    asks.push(PgQuery { sql: PUT_SIGHTINGS, params });
}
