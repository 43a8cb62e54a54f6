//! SQLite without its batches: every claim is a commit of its own. What grouping is worth shows against it.

use hookonce::decide::change::Change;
use hookonce::decide::claim::{Claim, New, Payload};
use hookonce::decide::event::{Event, Receipt};
use hookonce::decide::id::EventId;
use hookonce::decide::id::Key;
use hookonce::decide::recipe::Recipe;
use hookonce::decide::time::Timestamp;
use hookonce::store::quarantine::Quarantined;
use hookonce::store::sqlite::Sqlite;
use hookonce::store::{Advance, Answer, Due, Forgotten, Keeps, Listing, Look, Note, Store, Stored, Story};
use hookonce::store::{Imported, Removal, SourceCount, SourceRetention, SweepError};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Asks for one claim at a time.
pub struct PerRow(pub Sqlite);

impl Store for PerRow {
    fn claim(&self, new: Vec<New>) -> Answer<'_, Vec<Claim>> {
        Box::pin(async move {
            let mut claims = Vec::with_capacity(new.len());
            for one in new {
                claims.extend(self.0.claim(vec![one]).await?);
            }
            Ok(claims)
        })
    }

    fn advance(&self, changes: Vec<Change>) -> Answer<'_, Vec<Advance>> {
        self.0.advance(changes)
    }

    fn get(&self, id: EventId) -> Answer<'_, Option<Event>> {
        self.0.get(id)
    }

    fn payload(&self, id: EventId) -> Answer<'_, Stored<Payload>> {
        self.0.payload(id)
    }

    fn receipt(&self, id: EventId) -> Answer<'_, Option<Receipt>> {
        self.0.receipt(id)
    }

    fn due(&self, look: Look, limit: usize) -> Answer<'_, Due> {
        self.0.due(look, limit)
    }

    fn list(&self, listing: Listing) -> Answer<'_, Vec<Event>> {
        self.0.list(listing)
    }

    fn story(&self, id: EventId) -> Answer<'_, Option<Story>> {
        self.0.story(id)
    }

    fn named(&self, name: String, limit: usize) -> Answer<'_, Vec<Event>> {
        self.0.named(name, limit)
    }

    fn note(&self, notes: Vec<Note>) -> Answer<'_, ()> {
        self.0.note(notes)
    }

    fn forget(&self, keeps: Arc<Keeps>, limit: usize) -> Answer<'_, Forgotten, SweepError> {
        self.0.forget(keeps, limit)
    }

    fn remove(&self, id: EventId) -> Answer<'_, Removal> {
        self.0.remove(id)
    }

    fn import(&self, keys: Vec<Key>) -> Answer<'_, Imported> {
        self.0.import(keys)
    }

    fn retention(&self) -> Answer<'_, Vec<SourceRetention>> {
        self.0.retention()
    }

    fn retain(&self, rows: Vec<SourceRetention>) -> Answer<'_, ()> {
        self.0.retain(rows)
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> Answer<'_, Vec<SourceCount>> {
        self.0.other_sources(known)
    }

    fn recipes(&self) -> Answer<'_, Vec<Recipe>> {
        self.0.recipes()
    }

    fn remember(&self, recipes: Vec<Recipe>) -> Answer<'_, ()> {
        self.0.remember(recipes)
    }

    fn quarantine(&self, message: Quarantined) -> Answer<'_, ()> {
        self.0.quarantine(message)
    }

    fn quarantined(&self, limit: usize) -> Answer<'_, Vec<Quarantined>> {
        self.0.quarantined(limit)
    }

    fn foresee(&self, new: Vec<New>) -> Answer<'_, Vec<Claim>> {
        self.0.foresee(new)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}
