//! The dictionaries of bodies in PostgreSQL, which all nodes share: learned, used and chosen.
//!
//! A batch that packs with a dictionary locks its row for key share in the statement that writes the bodies, and fails if
//! the dictionary is retired or gone; then what this node knew is forgotten, and the batch is packed again. Retiring one
//! does not wait for these locks; only removing one does (`dictionary_removal.rs`).
//!
//! A body can always be packed without a dictionary. So dictionaries are read outside the transaction of a batch, and what
//! the server cannot read of them fails no claim.
//!
//! The tables are there from schema version 9 on. A node that starts before they are packs without dictionaries until its
//! next sweep notices them. It reads all bodies meanwhile: its statements take columns that are missing for null.

use super::pool::{PgConn, PgError, PgResult, ask};
use super::rows::{PgBytes32, PgRawCell, PgUuid};
use super::write::{BEGIN, COMMIT, ROLLBACK};
use crate::decide::body_dictionary::DICTIONARIES_OF_SOURCE_MAX;
use crate::decide::event::Event;
use crate::decide::id::{Digest, EventId};
use crate::store::body_packer::{BodyPacker, DictionaryCandidate, DictionaryChange};
use crate::store::compression::{BodyDictionary, CompressedBody, DictionaryId};
use crate::store::optimistic::{ConditionalWrite, RecordWrite};
use crate::store::schema::postgres::{DICTIONARIES, SchemaName};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::{Client, Error};
use tracing::info;

/// Maximum number of dictionaries that are remembered for reading: 4 MiB.
const READ_MAX: usize = 256;

/// What this node knows of the dictionaries.
#[derive(Debug, Default)]
pub(super) struct PgDictionaries {
    /// Whether the store has the tables.
    are_there: AtomicBool,
    packer: Mutex<BodyPacker>,
    /// What the trials of a batch ask for, once it is written.
    changes: Mutex<Vec<DictionaryChange>>,
    /// Those that bodies were read with. An id always means the same bytes.
    read: Mutex<HashMap<DictionaryId, Arc<[u8]>>>,
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails, by the logarithm of zero, if one of these dictionaries must not be used; otherwise locks them. The lock lets a
/// dictionary be retired, and keeps it from being removed.
macro_rules! held_dictionaries {
    ($ids:literal) => {
        concat!(
            "with held as materialized (select id from {schema}.dictionaries where id = any(",
            $ids,
            "::bigint[]) and not retired for key share), fits as materialized (select pg_catalog.ln(case when count(*) = \
             cardinality(",
            $ids,
            "::bigint[]) then 1::double precision else 0 end) as is from held) "
        )
    };
}
pub(super) use held_dictionaries;

/// Whether a batch that packed with dictionaries failed because of them: one is retired, gone or unreadable.
pub(super) fn is_unusable(failed: &PgError) -> bool {
    is_retired(failed) || is_unreadable(failed)
}

/// Has the check failed that dictionaries may be used?
fn is_retired(failed: &PgError) -> bool {
    let retired = [SqlState::INVALID_ARGUMENT_FOR_LOG, SqlState::FOREIGN_KEY_VIOLATION];
    matches!(failed, PgError::Said(error) if error.code().is_some_and(|code| retired.contains(code)))
}

/// Could the server not read a page or a value on it? It goes on, and has written nothing.
pub(super) fn is_unreadable(failed: &PgError) -> bool {
    matches!(failed, PgError::Said(error) if is_damage(error))
}

pub(super) fn is_damage(error: &Error) -> bool {
    let damaged = [
        SqlState::DATA_CORRUPTED,
        SqlState::INDEX_CORRUPTED,
        SqlState::INTERNAL_ERROR,
        SqlState::IO_ERROR,
        SqlState::UNDEFINED_FILE,
    ];
    refused(error) && error.code().is_some_and(|code| damaged.contains(code))
}

/// Has the server refused a statement, and nothing else?
fn refused(error: &Error) -> bool {
    error.as_db_error().and_then(DbError::parsed_severity) == Some(Severity::Error)
}

/// The result of a statement outside of a transaction that nothing depends on: none if the server refuses it.
pub(super) fn tolerated<T>(result: PgResult<T>) -> PgResult<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(PgError::Said(error)) if refused(&error) => Ok(None),
        Err(failed) => Err(failed),
    }
}

/// Where the bytes of a dictionary are: two statements, so that each is read if the other cannot be.
pub(super) const BYTES: [&str; 2] = [
    "select bytes from {schema}.dictionaries where id = $1",
    "select bytes from {schema}.dictionary_copies where id = $1",
];
const CURRENT: &str =
    "select id, digest from {schema}.dictionaries where source = $1 and not retired order by arrived desc limit 1";
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

/// Has the store the tables of dictionaries?
pub(super) async fn are_there(db: &Client, schema: &SchemaName) -> Result<bool, Error> {
    let log = schema.relation("schema_migrations");
    let sql = format!("select exists (select from {log} where version = {DICTIONARIES})");
    db.query_one(&sql, &[]).await?.try_get(0)
}

impl PgDictionaries {
    /// Whether the store has dictionaries, by what is known, or else by what the store says now.
    pub(super) async fn notice(&self, link: &PgConn) -> PgResult<bool> {
        if !self.are_there() && are_there(&link.client, &link.schema()).await? {
            self.are_there.store(true, Ordering::Relaxed);
        }
        Ok(self.are_there())
    }

    /// Whether the store has dictionaries, as far as is known.
    pub(super) fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
    }

    /// Logs that the store lacks them.
    pub(super) fn log_if_missing(&self) {
        if !self.are_there() {
            let why = format!(
                "schema version {DICTIONARIES} makes stored bodies smaller; apply it with `hookonce migrate up` once no node of \
                 0.1.0 is running"
            );
            info!(target: "hookonce", why, "schema");
        }
    }

    fn packer(&self) -> MutexGuard<'_, BodyPacker> {
        held(&self.packer)
    }

    /// Packs the body of this event, with what is [known](Self::learn) of its source.
    pub(super) fn pack<'b>(&self, event: &Event, body: &'b [u8]) -> CompressedBody<'b> {
        let (packed, change) = self.packer().pack(event, body);
        held(&self.changes).extend(change);
        packed
    }

    /// Forgets what was known, because a batch failed on it. What was only retired is learned anew; without what cannot be
    /// read, bodies are packed plainly until another dictionary is chosen.
    pub(super) fn doubt(&self, failed: &PgError) {
        if is_retired(failed) {
            self.packer().clear();
        } else {
            self.packer().use_none();
        }
    }

    /// Forgets candidates that are bodies of these events.
    pub(super) fn drop_candidates(&self, events: &[EventId]) {
        self.packer().drop_candidates(events);
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
        if !self.are_there() {
            return Ok(());
        }
        let bodies = swaps.iter().flat_map(|swap| &swap.ops).filter_map(|op| match op {
            RecordWrite::Put { row, payload: Some(payload), .. } => Some((&row.event.source, payload.body.len())),
            RecordWrite::SetPayload(event, payload) => Some((&event.source, payload.body.len())),
            _ => None,
        });
        let unknown: BTreeSet<Arc<str>> = {
            let packer = self.packer();
            let unknown = bodies.filter(|(source, length)| packer.must_learn(source, *length));
            unknown.map(|(source, _)| source.clone()).collect()
        };
        for source in unknown {
            let current = self.current(link, &source).await?;
            self.packer().learn(&source, current);
        }
        Ok(())
    }

    /// The dictionary in use of a source: the newest that is not retired. One that cannot be read is retired.
    async fn current(&self, link: &mut PgConn, source: &str) -> PgResult<Option<BodyDictionary>> {
        let found = tolerated(link.query_all(&[ask!(CURRENT, source)]).await)?;
        let Some(row) = found.as_ref().and_then(|answers| answers[0].first()) else { return Ok(None) };
        let (id, digest) = (DictionaryId(row.try_get(0)?), Digest(row.try_get::<_, PgRawCell<'_>>(1)?.array()));
        for sql in BYTES {
            let bytes = bytes(link, sql, id).await?;
            let stored = bytes.and_then(|bytes| BodyDictionary::stored(source, &bytes, digest));
            if let Some(dictionary) = stored.filter(|dictionary| dictionary.id == id) {
                self.remember(id, &dictionary.bytes);
                return Ok(Some(dictionary));
            }
        }
        tolerated(self.retire(link, id).await)?;
        Ok(None)
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

    /// Ends the use of a dictionary: no batch that begins after this packs with it.
    pub(super) async fn retire(&self, link: &mut PgConn, id: DictionaryId) -> PgResult<()> {
        self.packer().forget(id);
        held(&self.read).remove(&id);
        link.query_all(&[ask!(RETIRE, id.0)]).await.map(drop)
    }
}

/// The bytes of a dictionary by one of the [statements](BYTES); none if they are not there, or cannot be read.
pub(super) async fn bytes(link: &mut PgConn, sql: &'static str, id: DictionaryId) -> PgResult<Option<Vec<u8>>> {
    let found = tolerated(link.query_all(&[ask!(sql, id.0)]).await)?;
    Ok(found.and_then(|answers| answers[0].first()?.try_get(0).ok()))
}
