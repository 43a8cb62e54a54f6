//! The dictionaries of bodies in PostgreSQL, which all nodes share.
//!
//! A batch that packs with a dictionary locks its row for sharing, in the same transaction, and fails if it is retired or
//! gone; then what this node knew is forgotten, and the batch is packed again. To retire a dictionary takes the lock that
//! these exclude. So once it is retired, no more bodies come to need it: those that do are packed without one, and it is
//! removed when none is left, which a foreign key checks again.

use super::pool::{PgConn, PgError, PgQuery, PgResult, ask};
use super::rows::{PgBytes32, PgRawCell, PgUuid};
use super::write::{BEGIN, COMMIT, ROLLBACK};
use crate::decide::body_dictionary::{self, DICTIONARIES_OF_SOURCE_MAX, DictionaryAge};
use crate::decide::event::Event;
use crate::decide::expiry_clock::ExpiryTime;
use crate::decide::id::{Digest, EventId};
use crate::decide::ledger::RetentionPolicies;
use crate::decide::time::{Duration, Timestamp};
use crate::store::body_packer::{BodyPacker, DictionaryCandidate, DictionaryChange};
use crate::store::compression::{self, BodyDictionary, CompressedBody, DictionaryId};
use crate::store::optimistic::{ConditionalWrite, RecordWrite};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::error::SqlState;
use tokio_postgres::{GenericClient, Row};

/// Maximum number of bodies that one transaction packs anew.
const PACKED_ANEW_MAX: i64 = 64;
/// Maximum number of dictionaries that are remembered for reading: 4 MiB.
const READ_MAX: usize = 256;
/// The wait while all bodies that need a dictionary are locked by others.
const LOCKED_AGAIN: Duration = Duration::from_millis(20);
/// How often.
const LOCKED_TRIES: u32 = 500;

/// What this node knows of the dictionaries.
#[derive(Debug, Default)]
pub(super) struct PgDictionaries {
    packer: Mutex<BodyPacker>,
    /// What the trials of a batch ask for, once it is written.
    changes: Mutex<Vec<DictionaryChange>>,
    /// Those that bodies were read with. An id always means the same bytes.
    read: Mutex<HashMap<DictionaryId, Arc<[u8]>>>,
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails, by the logarithm of zero, if one of these dictionaries must not be used; otherwise locks them for sharing.
macro_rules! held_dictionaries {
    ($ids:literal) => {
        concat!(
            "with held as materialized (select id from {schema}.dictionaries where id = any(",
            $ids,
            "::bigint[]) and not retired for share), fits as materialized (select pg_catalog.ln(case when count(*) = \
             cardinality(",
            $ids,
            "::bigint[]) then 1::double precision else 0 end) as is from held) "
        )
    };
}
pub(super) use held_dictionaries;

/// Has the check failed that dictionaries may be used?
pub(super) fn is_retired(failed: &PgError) -> bool {
    let retired = SqlState::INVALID_ARGUMENT_FOR_LOG;
    matches!(failed, PgError::Said(error) if error.code() == Some(&retired))
}

const CURRENT: &str = "select distinct on (d.source) d.source, d.id, d.digest, d.bytes, c.bytes from {schema}.dictionaries d \
     left join {schema}.dictionary_copies c on c.id = d.id where d.source = any($1) and not d.retired \
     order by d.source, d.arrived desc";
const OF_EVENTS: &str = "select id from {schema}.dictionaries where event = any($1)";
const OF_SOURCE: &str = "select id from {schema}.dictionaries where source = $1";
const ALL: &str = "select id, source, retired, arrived from {schema}.dictionaries";
/// A sweep of its body waits for this transaction, and so does the removal of its event.
const HOLD_BODY: &str = "select 1 from {schema}.payloads p join {schema}.events e on e.id = p.event \
     where p.event = $1 and e.body_digest = $2 for key share of p";
const OTHERS: &str = "select id, retired from {schema}.dictionaries where source = $1";
const ADOPT: &str = "with d as (insert into {schema}.dictionaries (id, source, event, arrived, retired, bytes, digest) \
     values ($1, $2, $3, $4, false, $5, $6) on conflict do nothing returning id, bytes) \
     insert into {schema}.dictionary_copies (id, bytes) select id, bytes from d returning id";
const RETIRE_OTHERS: &str = "update {schema}.dictionaries set retired = true \
     where source = $1 and id <> $2 and not retired and exists (select from {schema}.dictionaries where id = $2 and not retired)";
const RETIRE: &str = "update {schema}.dictionaries set retired = true where id = $1 and not retired";
const REMOVE: &str = "with d as (delete from {schema}.dictionaries where id = $1 and retired \
     and not exists (select from {schema}.payloads where dictionary = $1) returning id) \
     delete from {schema}.dictionary_copies where id in (select id from d)";
const IS_THERE: &str = "select 1 from {schema}.dictionaries where id = $1";
const COPIES: &str = "select d.bytes, c.bytes from {schema}.dictionaries d \
     left join {schema}.dictionary_copies c on c.id = d.id where d.id = $1";
/// Those that other transactions have locked are removed or shed by them, and taken later.
const DEPENDENT: &str = "select p.event, p.body, p.length, e.body_digest from {schema}.payloads p \
     left join {schema}.events e on e.id = p.event where p.dictionary = $1 limit $2 for update of p skip locked";
const NEEDED: &str = "select distinct dictionary from {schema}.payloads where dictionary is not null";
const PUT_ANEW: &str = "update {schema}.payloads p set body = a.body, length = a.length, dictionary = null \
     from unnest($1::uuid[], $2::bytea[], $3::bigint[]) as a (event, body, length) where p.event = a.event";

impl PgDictionaries {
    fn packer(&self) -> MutexGuard<'_, BodyPacker> {
        held(&self.packer)
    }

    /// Packs the body of this event, with what is [known](Self::learn) of its source.
    pub(super) fn pack<'b>(&self, event: &Event, body: &'b [u8]) -> CompressedBody<'b> {
        let (packed, change) = self.packer().pack(event, body);
        held(&self.changes).extend(change);
        packed
    }

    /// Forgets what was known, because a dictionary is retired.
    pub(super) fn forget(&self) {
        self.packer().clear();
    }

    /// The dictionary of this id, if it is known.
    pub(super) fn known(&self, id: DictionaryId) -> Option<Arc<[u8]>> {
        held(&self.read).get(&id).cloned()
    }

    /// Remembers a dictionary with which a body was read.
    pub(super) fn remember(&self, id: DictionaryId, bytes: &[u8]) {
        let mut read = held(&self.read);
        if read.len() >= READ_MAX {
            read.clear();
        }
        read.insert(id, bytes.into());
    }

    /// Learns the dictionaries of the sources whose bodies these write.
    pub(super) async fn learn(&self, link: &mut PgConn, swaps: &[ConditionalWrite]) -> PgResult<()> {
        let bodies = swaps.iter().flat_map(|swap| &swap.ops).filter_map(|op| match op {
            RecordWrite::Put { row, payload: Some(payload), .. } => Some((&row.event.source, payload.body.len())),
            RecordWrite::SetPayload(event, payload) => Some((&event.source, payload.body.len())),
            _ => None,
        });
        let unknown: BTreeSet<Arc<str>> = {
            let packer = self.packer();
            bodies
                .filter(|(source, length)| packer.must_learn(source, *length))
                .map(|(source, _)| source.clone())
                .collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        let mut found = HashMap::new();
        for row in link.query_all(&[ask!(CURRENT, names)]).await?.remove(0) {
            let source: &str = row.try_get(0)?;
            let digest = Digest(row.try_get::<_, PgRawCell<'_>>(2)?.array());
            let copies = [row.try_get::<_, Option<&[u8]>>(3)?, row.try_get(4)?];
            let whole = copies.into_iter().flatten().find_map(|bytes| BodyDictionary::stored(source, bytes, digest));
            if let Some(dictionary) =
                whole.filter(|dictionary| row.try_get(1).is_ok_and(|id| dictionary.id == DictionaryId(id)))
            {
                self.remember(dictionary.id, &dictionary.bytes);
                found.insert(source.to_owned(), dictionary);
            }
        }
        let mut packer = self.packer();
        for source in unknown {
            packer.learn(&source, found.remove(&*source));
        }
        Ok(())
    }

    /// Whether trials have ended whose result is to be [written](Self::settle).
    pub(super) fn has_changes(&self) -> bool {
        !held(&self.changes).is_empty()
    }

    /// Writes the results of trials.
    pub(super) async fn settle(&self, link: &mut PgConn) -> PgResult<()> {
        let changes = std::mem::take(&mut *held(&self.changes));
        for change in changes {
            match change {
                DictionaryChange::Adopt(candidate) => self.adopt(link, &candidate).await?,
                DictionaryChange::Retire(id) => self.retire(link, id).await?,
            }
        }
        Ok(())
    }

    async fn adopt(&self, link: &mut PgConn, candidate: &DictionaryCandidate) -> PgResult<()> {
        let DictionaryCandidate { dictionary, source, event, body_digest, arrived } = candidate;
        let asks = [ask!(BEGIN), ask!(HOLD_BODY, PgUuid(*event), PgBytes32(body_digest.0)), ask!(OTHERS, &**source)];
        let answers = link.query_all(&asks).await?;
        let others = answers[2].iter().map(|row| Ok((DictionaryId(row.try_get(0)?), row.try_get(1)?)));
        let others: Vec<(DictionaryId, bool)> = others.collect::<PgResult<_>>()?;
        let ours = self.packer().current(source);
        // Another node may have chosen one meanwhile; the event may have been forgotten, or have got another body.
        let is_news = others.iter().any(|(id, retired)| !retired && Some(*id) != ours);
        if is_news || answers[1].is_empty() || others.len() as u64 >= DICTIONARIES_OF_SOURCE_MAX {
            if is_news {
                self.packer().forget_source(source);
            }
            return link.query_all(&[ask!(ROLLBACK)]).await.map(drop);
        }
        let BodyDictionary { id, digest, bytes } = dictionary;
        let adopt = ask!(ADOPT, id.0, &**source, PgUuid(*event), arrived.0, &bytes[..], PgBytes32(digest.0));
        let answers = link.query_all(&[adopt, ask!(RETIRE_OTHERS, &**source, id.0), ask!(COMMIT)]).await?;
        if answers[0].is_empty() {
            self.packer().forget_source(source); // the same bytes are its dictionary already, or on their way out
        } else {
            self.remember(*id, bytes);
            self.packer().learn(source, Some(dictionary.clone()));
        }
        Ok(())
    }

    async fn retire(&self, link: &mut PgConn, id: DictionaryId) -> PgResult<()> {
        self.packer().forget(id);
        link.query_all(&[ask!(RETIRE, id.0)]).await.map(drop)
    }

    /// Removes the dictionaries that are bodies of these events.
    pub(super) async fn remove_of_events(&self, link: &mut PgConn, events: &[EventId]) -> PgResult<()> {
        self.packer().drop_candidates(events);
        let events: Vec<PgUuid> = events.iter().map(|id| PgUuid(*id)).collect();
        self.remove_found(link, ask!(OF_EVENTS, events)).await
    }

    /// Removes all dictionaries of this source.
    pub(super) async fn remove_of_source(&self, link: &mut PgConn, source: &str) -> PgResult<()> {
        self.remove_found(link, ask!(OF_SOURCE, source)).await
    }

    async fn remove_found(&self, link: &mut PgConn, which: PgQuery<'_>) -> PgResult<()> {
        for row in link.query_all(&[which]).await?.remove(0) {
            let id = DictionaryId(row.try_get(0)?);
            self.retire(link, id).await?;
            pack_anew(link, id).await?;
        }
        Ok(())
    }

    /// Retires the dictionaries that are old, removes those that no body needs, and those that must go.
    pub(super) async fn sweep(&self, link: &mut PgConn, keeps: &RetentionPolicies, by: ExpiryTime) -> PgResult<()> {
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
            match age {
                DictionaryAge::Over => pack_anew(link, id).await?,
                DictionaryAge::InUse | DictionaryAge::Retired => {
                    link.query_all(&[ask!(REMOVE, id.0)]).await?;
                }
            }
        }
        Ok(())
    }
}

/// Packs the bodies that need this dictionary without one, and removes it.
async fn pack_anew(link: &mut PgConn, id: DictionaryId) -> PgResult<()> {
    let mut tries = 0;
    loop {
        let copies = link.query_all(&[ask!(COPIES, id.0)]).await?.remove(0);
        let Some(copies) = copies.first() else { return Ok(()) };
        let asks = [ask!(BEGIN), ask!(DEPENDENT, id.0, PACKED_ANEW_MAX)];
        let bodies = link.query_all(&asks).await?.remove(1);
        let (events, bytes, lengths) = packed_anew(&bodies, copies)?;
        let is_last = events.is_empty();
        link.query_all(&[ask!(PUT_ANEW, events, bytes, lengths), ask!(COMMIT)]).await?;
        if is_last {
            let there = link.query_all(&[ask!(REMOVE, id.0), ask!(IS_THERE, id.0)]).await?.remove(1);
            if there.is_empty() {
                return Ok(());
            }
            tries += 1;
            if tries >= LOCKED_TRIES {
                return Err(PgError::Silent); // whoever has them locked does not respond
            }
            tokio::time::sleep(LOCKED_AGAIN).await;
        }
    }
}

/// Bodies that are packed without a dictionary, by their events.
type PackedAnew = (Vec<PgUuid>, Vec<Vec<u8>>, Vec<Option<i64>>);

/// Packs these bodies, in rows of event, body, length and digest, without the dictionary of which these are the copies.
fn packed_anew(bodies: &[Row], copies: &Row) -> Result<PackedAnew, tokio_postgres::Error> {
    let copies = [copies.try_get::<_, Option<&[u8]>>(0)?, copies.try_get(1)?];
    let mut anew = PackedAnew::default();
    for row in bodies {
        let (bytes, length): (&[u8], Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
        let digest = row.try_get::<_, Option<PgRawCell<'_>>>(3)?.map(|raw| Digest(raw.array()));
        let unpacked = |dictionary| compression::unpack_with(bytes, length, Some(dictionary));
        let whole = |body: &Vec<u8>| digest == Some(Digest::of(body));
        let body = copies.into_iter().flatten().find_map(|copy| unpacked(copy).filter(whole));
        anew.0.push(row.try_get(0)?);
        if let Some(body) = &body {
            let packed = CompressedBody::of(body);
            anew.2.push(packed.unpacked());
            anew.1.push(packed.bytes().to_vec());
        } else {
            // It is damaged, and stays so: without its dictionary it cannot become what its event's digest says.
            anew.2.push(length);
            anew.1.push(bytes.to_vec());
        }
    }
    Ok(anew)
}

/// Packs all bodies without a dictionary, in a transaction whose `search_path` is the store's schema: earlier versions know
/// none.
pub(in crate::store) async fn pack_all_anew(tx: &impl GenericClient) -> Result<(), tokio_postgres::Error> {
    let unqualified = |sql: &str| sql.replace("{schema}.", "");
    let ids = tx.query(&unqualified(NEEDED), &[]).await?;
    for id in ids {
        let id: i64 = id.try_get(0)?;
        let Some(copies) = tx.query_opt(&unqualified(COPIES), &[&id]).await? else { continue };
        loop {
            let bodies = tx.query(&unqualified(DEPENDENT), &[&id, &PACKED_ANEW_MAX]).await?;
            if bodies.is_empty() {
                break;
            }
            let (events, bytes, lengths) = packed_anew(&bodies, &copies)?;
            tx.execute(&unqualified(PUT_ANEW), &[&events, &bytes, &lengths]).await?;
        }
    }
    Ok(())
}
