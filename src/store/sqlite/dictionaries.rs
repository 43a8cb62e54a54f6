//! The dictionaries of bodies in SQLite: chosen by the writer, read with each body that needs one, and removed once none
//! does.
//!
//! A body that is packed with a dictionary refers to it, and SQLite refuses to remove a dictionary that is referred to. So
//! what must go is retired first; then the bodies that need it are packed without one, a few in each transaction, and it
//! goes in the last of them.

#[cfg(test)]
mod tests;

use super::SqliteStore;
use super::queries;
use super::rows::SqliteLedger;
use crate::decide::body_dictionary::{self, DICTIONARIES_OF_SOURCE_MAX, DictionaryAge};
use crate::decide::event::Event;
use crate::decide::id::{Digest, EventId};
use crate::decide::ledger::RetentionPolicies;
use crate::decide::time::Timestamp;
use crate::store::body_packer::{BodyPacker, DictionaryCandidate, DictionaryChange};
use crate::store::compression::{BodyDictionary, CompressedBody, DictionaryId};
use crate::store::{StoreError, StoredValue};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Result, Row, ToSql, params};
use std::sync::Arc;

/// Maximum number of bodies that one transaction packs anew.
const PACKED_ANEW_MAX: usize = 64;

/// Whether bodies that depend on a dictionary are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DependentBodies {
    None,
    Some,
}

/// The dictionary in use of a source: the newest that is not retired. Of its two copies the one that is as it was written.
fn current(db: &Connection, source: &str) -> Result<Option<BodyDictionary>> {
    let sql = "select id, digest, bytes, (select bytes from dictionary_copies where id = dictionaries.id) \
               from dictionaries where source = ?1 and retired = 0 order by arrived desc limit 1";
    let read = |row: &Row<'_>| {
        let (id, digest) = (DictionaryId(row.get(0)?), row.get(1).map(Digest).ok());
        let copy = |column| row.get_ref(column).ok()?.as_blob().ok();
        let whole = digest.and_then(|digest| {
            [copy(2), copy(3)].into_iter().flatten().find_map(|bytes| BodyDictionary::stored(source, bytes, digest))
        });
        Ok(whole.filter(|dictionary| dictionary.id == id))
    };
    match db.prepare_cached(sql)?.query_row([source], read).optional() {
        Ok(found) => Ok(found.flatten()),
        // Packing without a dictionary is always possible.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => Ok(None),
        Err(error) => Err(error),
    }
}

impl SqliteLedger<'_> {
    /// Packs the body of this event.
    pub(super) fn pack<'b>(&mut self, event: &Event, body: &'b [u8]) -> Result<CompressedBody<'b>> {
        let Some(packer) = &mut self.packer else { return Ok(CompressedBody::of(body)) };
        if packer.must_learn(&event.source, body.len()) {
            packer.learn(&event.source, current(self.db, &event.source)?);
        }
        let (stored, change) = packer.pack(event, body);
        match change {
            Some(DictionaryChange::Adopt(candidate)) => adopt(self.db, packer, &candidate)?,
            Some(DictionaryChange::Retire(id)) => retire(self.db, packer, id)?,
            None => {}
        }
        Ok(stored)
    }

    /// Retires the dictionaries that are bodies of these events, and returns them.
    fn retire_of_events(&mut self, events: &[EventId]) -> Result<Vec<DictionaryId>> {
        let mut found = Vec::new();
        for event in events {
            let mut ids = self.db.prepare_cached("select id from dictionaries where event = ?1")?;
            found.extend(ids.query_map([event.0], |row| row.get(0).map(DictionaryId))?.collect::<Result<Vec<_>>>()?);
        }
        if let Some(packer) = &mut self.packer {
            packer.drop_candidates(events);
            found.iter().try_for_each(|id| retire(self.db, packer, *id))?;
        }
        Ok(found)
    }

    /// Retires the dictionaries of a source, and returns them.
    fn retire_of_source(&mut self, source: &str) -> Result<Vec<DictionaryId>> {
        let mut ids = self.db.prepare_cached("select id from dictionaries where source = ?1")?;
        let found = ids.query_map([source], |row| row.get(0).map(DictionaryId))?.collect::<Result<Vec<_>>>()?;
        if let Some(packer) = &mut self.packer {
            found.iter().try_for_each(|id| retire(self.db, packer, *id))?;
        }
        Ok(found)
    }

    /// Retires the dictionaries that are old, and removes those that no body needs. Returns those that must go.
    fn retire_old(&mut self, keeps: &RetentionPolicies) -> Result<Vec<DictionaryId>> {
        let by = self.at.expiry;
        let mut all = self.db.prepare_cached("select id, source, retired, arrived from dictionaries")?;
        let read = |row: &Row<'_>| {
            // What is damaged goes as soon as no body needs it.
            let kept = row.get_ref(1)?.as_str().ok().and_then(|source| keeps.sources.get(source));
            let (is_retired, arrived) =
                (row.get(2).unwrap_or(true), row.get(3).map_or(Timestamp::default(), Timestamp));
            let age = kept.map_or(DictionaryAge::InUse, |kept| body_dictionary::age(arrived, kept.body, by));
            Ok((DictionaryId(row.get(0)?), is_retired, age))
        };
        let all = all.query_map([], read)?.collect::<Result<Vec<_>>>()?;
        let mut over = Vec::new();
        for (id, was_retired, age) in all {
            if !was_retired && age == DictionaryAge::InUse {
                continue;
            }
            if let (false, Some(packer)) = (was_retired, &mut self.packer) {
                retire(self.db, packer, id)?;
            }
            if remove_unneeded(self.db, id)? == DependentBodies::Some && age == DictionaryAge::Over {
                over.push(id);
            }
        }
        Ok(over)
    }
}

fn adopt(db: &Connection, packer: &mut BodyPacker, candidate: &DictionaryCandidate) -> Result<()> {
    let DictionaryCandidate { dictionary, source, event, body_digest, arrived } = candidate;
    // The event may have been forgotten since, or have got another body.
    let kept = "select 1 from events join payloads on payloads.event = events.id \
                where events.id = ?1 and events.body_digest = ?2";
    let is_kept = db.prepare_cached(kept)?.exists(params![event.0, body_digest.0])?;
    let count = "select count(*) from dictionaries where source = ?1";
    let many: i64 = db.prepare_cached(count)?.query_row([&**source], |row| row.get(0))?;
    if !is_kept || many.unsigned_abs() >= DICTIONARIES_OF_SOURCE_MAX {
        return Ok(());
    }
    let new = "insert into dictionaries (id, source, event, arrived, retired, bytes, digest) \
               values (?1, ?2, ?3, ?4, 0, ?5, ?6) on conflict do nothing";
    let BodyDictionary { id, digest, bytes } = dictionary;
    let written = db.prepare_cached(new)?.execute(params![id.0, &**source, event.0, arrived.0, &**bytes, digest.0])?;
    if written == 0 {
        return Ok(()); // the same bytes were its dictionary before, and are on their way out
    }
    let copy = "insert into dictionary_copies (id, bytes) values (?1, ?2)";
    db.prepare_cached(copy)?.execute(params![id.0, &**bytes])?;
    let others = "update dictionaries set retired = 1 where source = ?1 and id <> ?2 and retired = 0";
    db.prepare_cached(others)?.execute(params![&**source, id.0])?;
    packer.learn(source, Some(dictionary.clone()));
    Ok(())
}

fn retire(db: &Connection, packer: &mut BodyPacker, id: DictionaryId) -> Result<()> {
    packer.forget(id);
    match db.prepare_cached("update dictionaries set retired = 1 where id = ?1")?.execute([id.0]) {
        // SQLite writes no row with a cell of another type. The copy is still there to read bodies with.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            let sql = "update dictionaries set source = '', event = x'', arrived = 0, retired = 1, bytes = x'', \
                       digest = x'' where id = ?1";
            db.prepare_cached(sql)?.execute([id.0]).map(drop)
        }
        retired => retired.map(drop),
    }
}

/// Removes a dictionary, unless a body needs it.
fn remove_unneeded(db: &Connection, id: DictionaryId) -> Result<DependentBodies> {
    if db.prepare_cached("select 1 from payloads where dictionary = ?1")?.exists([id.0])? {
        return Ok(DependentBodies::Some);
    }
    db.prepare_cached("delete from dictionary_copies where id = ?1")?.execute([id.0])?;
    db.prepare_cached("delete from dictionaries where id = ?1")?.execute([id.0])?;
    Ok(DependentBodies::None)
}

/// Packs bodies that need this dictionary without it, at most `limit`, and removes it when none is left.
fn pack_anew(db: &Connection, id: DictionaryId, limit: usize) -> Result<DependentBodies> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut events = db.prepare_cached("select event from payloads where dictionary = ?1 limit ?2")?;
    let events = events.query_map(params![id.0, limit], |row| row.get(0).map(EventId))?.collect::<Result<Vec<_>>>()?;
    for event in events {
        match queries::body(db, event)? {
            StoredValue::Whole(body) => {
                let packed = CompressedBody::of(&body);
                let set = "body = ?2, unpacked = ?3, dictionary = null";
                let written = params![event.0, packed.bytes(), packed.unpacked()];
                update_payload(db, set, "headers = '[]', headers_digest = x''", written)?;
            }
            // It is damaged, and stays so: without its dictionary it cannot become what its event's digest says.
            StoredValue::Damaged | StoredValue::Forgotten => {
                let others = "headers = '[]', headers_digest = x'', body = x'', unpacked = null";
                update_payload(db, "dictionary = null", others, params![event.0])?;
            }
        }
    }
    remove_unneeded(db, id)
}

/// Updates the payload of an event. SQLite writes no row with a cell of another type: if there is one, the other columns are
/// emptied, which leaves the payload damaged.
fn update_payload(db: &Connection, set: &str, emptied: &str, values: &[&dyn ToSql]) -> Result<()> {
    let update = |set: &str| {
        let sql = format!("update payloads set {set} where event = ?1");
        db.prepare_cached(&sql)?.execute(values).map(drop)
    };
    match update(set) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            update(&format!("{set}, {emptied}"))
        }
        updated => updated,
    }
}

/// Whether no more bodies are packed with this dictionary. One that is gone may be in use anew under the same id.
fn is_retired(db: &Connection, id: DictionaryId) -> Result<bool> {
    let sql = "select retired from dictionaries where id = ?1";
    let retired = db.prepare_cached(sql)?.query_row([id.0], |row| Ok(row.get(0).unwrap_or(true))).optional()?;
    Ok(retired.unwrap_or(true))
}

/// Packs all bodies without a dictionary: earlier versions know none.
pub(in crate::store) fn pack_all_anew(db: &Connection) -> Result<()> {
    let mut ids = db.prepare("select distinct dictionary from payloads where dictionary is not null")?;
    let ids = ids.query_map([], |row| row.get(0).map(DictionaryId))?.collect::<Result<Vec<_>>>()?;
    ids.into_iter().try_for_each(|id| pack_anew(db, id, usize::MAX).map(drop))
}

impl SqliteStore {
    /// Removes retired dictionaries, and those that are too old.
    pub(super) async fn sweep_dictionaries(&self, keeps: Arc<RetentionPolicies>) -> Result<(), StoreError> {
        let over = self.ask(1, 0, move |rows| rows.retire_old(&keeps)).await?;
        self.pack_all_of(over).await
    }

    /// Removes all dictionaries of this source: they hold bodies of events that may be forgotten.
    pub(super) async fn remove_dictionaries_of(&self, source: String) -> Result<(), StoreError> {
        let found = self.ask(1, 0, move |rows| rows.retire_of_source(&source)).await?;
        self.pack_all_of(found).await
    }

    /// Runs this once no dictionary holds the body of one of these events.
    pub(super) async fn without_dictionaries_of<T: Send + 'static>(
        &self,
        events: Vec<EventId>,
        act: impl Fn(&mut SqliteLedger<'_>, &[EventId]) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        let events = Arc::new(events);
        loop {
            let (asked, act) = (events.clone(), act.clone());
            let done = self.ask(events.len(), 0, move |rows| {
                let found = rows.retire_of_events(&asked)?;
                if found.is_empty() { act(rows, &asked).map(Ok) } else { Ok(Err(found)) }
            });
            match done.await? {
                Ok(done) => return Ok(done),
                Err(found) => self.pack_all_of(found).await?,
            }
        }
    }

    /// Packs the bodies that need these dictionaries anew, in short transactions, so that no claim waits long.
    async fn pack_all_of(&self, dictionaries: Vec<DictionaryId>) -> Result<(), StoreError> {
        for id in dictionaries {
            let anew = || {
                self.ask(PACKED_ANEW_MAX, 0, move |rows| {
                    if is_retired(rows.db, id)? {
                        pack_anew(rows.db, id, PACKED_ANEW_MAX)
                    } else {
                        // It was removed meanwhile, and another body has become the same dictionary.
                        Ok(DependentBodies::None)
                    }
                })
            };
            while anew().await? == DependentBodies::Some {}
        }
        Ok(())
    }
}
