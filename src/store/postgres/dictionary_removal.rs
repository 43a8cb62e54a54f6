//! Removing dictionaries of bodies from PostgreSQL, while other nodes pack with them.
//!
//! ```text
//! retire ─▶ pack what needs it without it ─▶ lock its row ─▶ does a body need it? ─no─▶ remove it and its copy
//!                       ▲                                            │ yes
//!                       └────────────────────────────────────────────┘
//! ```
//!
//! A batch that began before a dictionary was retired may still commit bodies that need it; it holds a lock on the row. The
//! lock of the removal waits for such batches, and the statement after it sees what they have committed. One that comes
//! later waits for the removal, and then finds the row gone. The foreign key checks the same once more.
//!
//! No lock is waited for without a limit. The sweep leaves what is locked to the next sweep; to forget an event or a source
//! is tried again for a while, and then refused.

use super::dictionaries::{self, BYTES, PgDictionaries, is_damage, is_unreadable};
use super::error;
use super::pool::{PgConn, PgError, PgResult, ask};
use super::rows::{PgRawCell, PgUuid};
use super::write::{BEGIN, COMMIT, ROLLBACK};
use crate::decide::body_dictionary::{self, DictionaryAge};
use crate::decide::expiry_clock::ExpiryTime;
use crate::decide::id::{Digest, EventId};
use crate::decide::ledger::RetentionPolicies;
use crate::decide::time::{Duration, Timestamp};
use crate::store::StoreError;
use crate::store::compression::{self, CompressedBody, DictionaryId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row, Transaction};

/// Maximum number of bodies that one transaction packs anew.
const PACKED_ANEW_MAX: i64 = 64;
/// How long the removal of a dictionary waits for the batches that use it.
const LOCK_TIME: &str = "set local lock_timeout = '500ms'";
/// The wait before what others have locked is tried again.
const LOCKED_AGAIN: Duration = Duration::from_millis(50);
/// How often forgetting tries it.
const FORGET_TRIES: u32 = 20;
/// How often a sweep tries it: the next one goes on.
const SWEEP_TRIES: u32 = 1;

/// Whether a dictionary is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DictionaryRemoval {
    Gone,
    /// Another transaction has locked it, or a body that needs it.
    Locked,
}

impl DictionaryRemoval {
    /// Nothing counts as forgotten while a dictionary may hold it.
    pub(super) fn is_complete(self) -> Result<(), StoreError> {
        match self {
            Self::Gone => Ok(()),
            Self::Locked => Err(StoreError::down(
                "other bodies are compressed with one that is to be forgotten, and another transaction has locked them; try \
                 again",
            )),
        }
    }
}

const OF_EVENTS: &str = "select id from {schema}.dictionaries where event = any($1)";
const OF_SOURCE: &str = "select id from {schema}.dictionaries where source = $1";
const ALL: &str = "select id, source, retired, arrived from {schema}.dictionaries";
const HOLD: &str = "select 1 from {schema}.dictionaries where id = $1 and retired for update";
/// After [`HOLD`], in a snapshot of its own.
const REMOVE: &str = "with d as (delete from {schema}.dictionaries where id = $1 and retired \
     and not exists (select from {schema}.payloads where dictionary = $1) returning id) \
     delete from {schema}.dictionary_copies where id in (select id from d)";
/// One that is not retired is in use anew under the same id, as the body of another event.
const IS_RETIRED: &str = "select 1 from {schema}.dictionaries where id = $1 and retired";
const DEPENDENT: &str = "select event from {schema}.payloads where dictionary = $1 limit $2";
/// Those that other transactions have locked are removed or rewritten by them, or taken later.
const HOLD_BODIES: &str = "select p.event, p.body is not null, p.packed, p.unpacked, e.body_digest from {schema}.payloads p \
     left join {schema}.events e on e.id = p.event where p.event = any($1) and p.dictionary = $2 for update of p skip locked";
/// A body that was stored without the dictionary later stays.
const PUT_ANEW: &str = "update {schema}.payloads p set body = coalesce(a.body, p.body), \
     unpacked = case when a.body is null then p.unpacked else a.unpacked end, packed = null, dictionary = null \
     from unnest($1::uuid[], $2::bytea[], $3::bigint[]) as a (event, body, unpacked) where p.event = a.event";
/// Leaves a body that cannot be read, and counts as damaged.
const PUT_NOTHING: &str =
    "update {schema}.payloads set body = '', packed = null, dictionary = null where event = $1 and dictionary = $2";
/// No body is locked by another transaction then, and passed over.
const LOCK_ALL: &str = "lock table {schema}.payloads in access exclusive mode";
/// The next bodies that need a dictionary, in the order of their events. The limit is a part of it: of one that it does not
/// know, the server assumes that it is large, and sorts all that are left each time.
const NEXT_OF_ALL: &str = "select p.event, p.body is not null, p.packed, p.unpacked, e.body_digest, p.dictionary \
     from {schema}.payloads p left join {schema}.events e on e.id = p.event \
     where p.event > $1 and p.dictionary is not null order by p.event limit 64";

impl PgDictionaries {
    /// Removes the dictionaries that are bodies of these events.
    pub(super) async fn remove_of_events(&self, link: &mut PgConn, events: &[EventId]) -> PgResult<DictionaryRemoval> {
        self.drop_candidates(events);
        if !self.notice(link).await? {
            return Ok(DictionaryRemoval::Gone);
        }
        let events: Vec<PgUuid> = events.iter().map(|id| PgUuid(*id)).collect();
        let found = link.query_all(&[ask!(OF_EVENTS, events)]).await?.remove(0);
        self.remove_these(link, &found).await
    }

    /// Removes all dictionaries of this source.
    pub(super) async fn remove_of_source(&self, link: &mut PgConn, source: &str) -> PgResult<DictionaryRemoval> {
        if !self.notice(link).await? {
            return Ok(DictionaryRemoval::Gone);
        }
        let found = link.query_all(&[ask!(OF_SOURCE, source)]).await?.remove(0);
        self.remove_these(link, &found).await
    }

    async fn remove_these(&self, link: &mut PgConn, found: &[Row]) -> PgResult<DictionaryRemoval> {
        for row in found {
            let id = DictionaryId(row.try_get(0)?);
            self.retire(link, id).await?;
            if remove(link, id, FORGET_TRIES).await? == DictionaryRemoval::Locked {
                return Ok(DictionaryRemoval::Locked);
            }
        }
        Ok(DictionaryRemoval::Gone)
    }

    /// Retires the dictionaries that are old, removes those that no body needs, and those that must go.
    pub(super) async fn sweep(&self, link: &mut PgConn, keeps: &RetentionPolicies, by: ExpiryTime) -> PgResult<()> {
        if !self.notice(link).await? {
            return Ok(());
        }
        let mut refused = None;
        for row in link.query_all(&[ask!(ALL)]).await?.remove(0) {
            let (id, source): (_, &str) = (DictionaryId(row.try_get(0)?), row.try_get(1)?);
            let (retired, arrived): (bool, _) = (row.try_get(2)?, Timestamp(row.try_get(3)?));
            let kept = keeps.sources.get(source);
            let age = kept.map_or(DictionaryAge::InUse, |kept| body_dictionary::age(arrived, kept.body, by));
            if !retired && age == DictionaryAge::InUse {
                continue;
            }
            if !retired {
                self.retire(link, id).await?;
            }
            let removed = match age {
                DictionaryAge::Over => remove(link, id, SWEEP_TRIES).await,
                DictionaryAge::InUse | DictionaryAge::Retired => remove_unneeded(link, id).await,
            };
            match removed {
                Ok(_) => {}
                // What is damaged does not keep the others.
                Err(failed @ PgError::Said(_)) if is_unreadable(&failed) => {
                    link.query_all(&[ask!(ROLLBACK)]).await?;
                    refused = Some(failed);
                }
                Err(failed) => return Err(failed),
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

/// Packs the bodies that need a retired dictionary without it, a few in each transaction, and removes it.
async fn remove(link: &mut PgConn, id: DictionaryId, tries: u32) -> PgResult<DictionaryRemoval> {
    for tried in 1.. {
        while pack_some_anew(link, id).await? > 0 {}
        if remove_unneeded(link, id).await? == DictionaryRemoval::Gone {
            break;
        }
        if tried >= tries {
            return Ok(DictionaryRemoval::Locked);
        }
        tokio::time::sleep(LOCKED_AGAIN).await;
    }
    Ok(DictionaryRemoval::Gone)
}

/// Removes a retired dictionary, unless a body needs it.
async fn remove_unneeded(link: &mut PgConn, id: DictionaryId) -> PgResult<DictionaryRemoval> {
    let asks = [ask!(BEGIN), ask!(LOCK_TIME), ask!(HOLD, id.0), ask!(REMOVE, id.0), ask!(COMMIT)];
    match link.query_all(&asks).await {
        Ok(_) => {}
        Err(failed) if is_locked(&failed) => return Ok(DictionaryRemoval::Locked),
        Err(failed) => return Err(failed),
    }
    let left = link.query_all(&[ask!(IS_RETIRED, id.0)]).await?.remove(0);
    Ok(if left.is_empty() { DictionaryRemoval::Gone } else { DictionaryRemoval::Locked })
}

/// Has another transaction held a lock for too long, or the foreign key found a body, or did it take too long to look?
fn is_locked(failed: &PgError) -> bool {
    // Without its index, which may be missing still, a look for bodies can take longer than a statement may.
    let locked = [SqlState::LOCK_NOT_AVAILABLE, SqlState::FOREIGN_KEY_VIOLATION, SqlState::QUERY_CANCELED];
    let is_locked = |error: &Error| error.code().is_some_and(|code| locked.contains(code));
    matches!(failed, PgError::Said(error) if is_locked(error) || error::is_contention(error))
}

/// Packs bodies that need this retired dictionary without one. Returns how many.
async fn pack_some_anew(link: &mut PgConn, id: DictionaryId) -> PgResult<usize> {
    let answers = link.query_all(&[ask!(IS_RETIRED, id.0), ask!(DEPENDENT, id.0, PACKED_ANEW_MAX)]).await?;
    if answers[0].is_empty() || answers[1].is_empty() {
        return Ok(0);
    }
    let mut copies = Vec::new();
    for sql in BYTES {
        copies.extend(dictionaries::bytes(link, sql, id).await?);
    }
    let events: Vec<PgUuid> = answers[1].iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    match pack_these_anew(link, id, &events, &copies).await {
        Err(failed) if is_unreadable(&failed) => {}
        packed => return packed,
    }
    link.query_all(&[ask!(ROLLBACK)]).await?;
    let mut many = 0;
    for event in events {
        many += match pack_these_anew(link, id, &[event], &copies).await {
            Err(failed) if is_unreadable(&failed) => {
                link.query_all(&[ask!(ROLLBACK)]).await?;
                link.query_all(&[ask!(PUT_NOTHING, event, id.0)]).await?;
                1
            }
            packed => packed?,
        };
    }
    Ok(many)
}

async fn pack_these_anew(
    link: &mut PgConn,
    id: DictionaryId,
    events: &[PgUuid],
    copies: &[Vec<u8>],
) -> PgResult<usize> {
    let bodies = link.query_all(&[ask!(BEGIN), ask!(HOLD_BODIES, events, id.0)]).await?.remove(1);
    let anew = bodies.iter().map(|row| PackedAnew::read(row, copies)).collect::<Result<Vec<_>, _>>()?;
    let (events, bytes, lengths) = PackedAnew::columns(&anew);
    link.query_all(&[ask!(PUT_ANEW, events, bytes, lengths), ask!(COMMIT)]).await?;
    Ok(anew.len())
}

/// Events, bodies and lengths.
type PackedAnewColumns<'b> = (Vec<PgUuid>, Vec<Option<&'b [u8]>>, Vec<Option<i64>>);

/// A body that is packed without a dictionary.
struct PackedAnew {
    event: PgUuid,
    /// `None` if it was stored without the dictionary later.
    body: Option<Vec<u8>>,
    unpacked: Option<i64>,
}

impl PackedAnew {
    /// Packs the body in a row of [`HOLD_BODIES`], of whose dictionary these are the copies.
    fn read(row: &Row, copies: &[Vec<u8>]) -> Result<Self, Error> {
        let (event, unpacked) = (row.try_get(0)?, row.try_get(3)?);
        if row.try_get(1)? {
            return Ok(Self { event, body: None, unpacked });
        }
        let bytes: &[u8] = row.try_get::<_, Option<_>>(2)?.unwrap_or_default();
        let digest = row.try_get::<_, Option<PgRawCell<'_>>>(4)?.map(|raw| Digest(raw.array()));
        let whole = |body: &Vec<u8>| digest == Some(Digest::of(body));
        let read = |copy: &Vec<u8>| compression::unpack_with(bytes, unpacked, Some(copy)).filter(whole);
        Ok(match copies.iter().find_map(read) {
            Some(body) => {
                let packed = CompressedBody::of(&body);
                Self { event, body: Some(packed.bytes().to_vec()), unpacked: packed.unpacked() }
            }
            // It is damaged, and stays so: without its dictionary it cannot become what its event's digest says.
            None => Self { event, body: Some(Vec::new()), unpacked },
        })
    }

    /// The parameters of [`PUT_ANEW`].
    fn columns(all: &[Self]) -> PackedAnewColumns<'_> {
        let events = all.iter().map(|one| one.event).collect();
        let bytes = all.iter().map(|one| one.body.as_deref()).collect();
        (events, bytes, all.iter().map(|one| one.unpacked).collect())
    }
}

/// Packs all bodies without a dictionary, in a transaction whose `search_path` is the store's schema: earlier versions know
/// none.
pub(in crate::store) async fn pack_all_anew(tx: &mut Transaction<'_>) -> Result<(), Error> {
    tx.batch_execute(&unqualified(LOCK_ALL)).await?;
    let mut last = PgUuid(EventId([0; 16])); // no event has this id
    let mut known = HashMap::new();
    loop {
        let rows = tx.query(&unqualified(NEXT_OF_ALL), &[&last]).await?;
        let Some(end) = rows.last() else { return Ok(()) };
        last = end.try_get(0)?;
        let mut anew = Vec::with_capacity(rows.len());
        for row in &rows {
            let id: i64 = row.try_get(5)?;
            let copies = match known.entry(id) {
                Entry::Occupied(copies) => copies.into_mut(),
                Entry::Vacant(place) => place.insert(readable_copies(tx, id).await?),
            };
            anew.push(PackedAnew::read(row, copies)?);
        }
        let (events, bytes, lengths) = PackedAnew::columns(&anew);
        tx.execute(&unqualified(PUT_ANEW), &[&events, &bytes, &lengths]).await?;
    }
}

fn unqualified(sql: &str) -> String {
    sql.replace("{schema}.", "")
}

/// The copies of a dictionary. One that the server cannot read does not end the transaction.
async fn readable_copies(tx: &mut Transaction<'_>, id: i64) -> Result<Vec<Vec<u8>>, Error> {
    let mut copies = Vec::new();
    for sql in BYTES {
        let point = tx.savepoint("dictionary").await?;
        match point.query_opt(&unqualified(sql), &[&id]).await {
            Ok(found) => {
                point.commit().await?;
                copies.extend(found.map(|row| row.try_get(0)).transpose()?);
            }
            Err(error) if is_damage(&error) => point.rollback().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(copies)
}
