//! SQLite without its batches: every claim is a commit of its own. What grouping is worth shows against it.

use hookonce::decide::claim::{Claim, NewEvent, Payload};
use hookonce::decide::event::{Event, Receipt};
use hookonce::decide::id::EventId;
use hookonce::decide::id::Key;
use hookonce::decide::identity::recipe::IdentityRecipe;
use hookonce::decide::time::Timestamp;
use hookonce::decide::transition::Transition;
use hookonce::store::inspect::QuarantinedMessage;
use hookonce::store::sqlite::SqliteStore;
use hookonce::store::{
    AdvanceResult, DueEvents, DueQuery, DuplicateNote, EventDetails, EventQuery, ForgetCounts, RetentionPolicies,
    Store, StoreFuture, StoredValue,
};
use hookonce::store::{ImportCounts, RemovalResult, SourceCount, SourceRetention, SweepError};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Asks for one claim at a time.
pub struct PerRow(pub SqliteStore);

impl Store for PerRow {
    fn claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<Claim>> {
        Box::pin(async move {
            let mut claims = Vec::with_capacity(new.len());
            for one in new {
                claims.extend(self.0.claim(vec![one]).await?);
            }
            Ok(claims)
        })
    }

    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>> {
        self.0.advance(changes)
    }

    fn get(&self, id: EventId) -> StoreFuture<'_, Option<Event>> {
        self.0.get(id)
    }

    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        self.0.payload(id)
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        self.0.receipt(id)
    }

    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        self.0.due(look, limit)
    }

    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>> {
        self.0.list(listing)
    }

    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>> {
        self.0.details(id)
    }

    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        self.0.find_by_name(name, limit)
    }

    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        self.0.note_duplicates(notes)
    }

    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError> {
        self.0.forget(keeps, limit)
    }

    fn remove(&self, id: EventId) -> StoreFuture<'_, RemovalResult> {
        self.0.remove(id)
    }

    fn import(&self, keys: Vec<Key>) -> StoreFuture<'_, ImportCounts> {
        self.0.import(keys)
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        self.0.retention()
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        self.0.set_retention(rows)
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>> {
        self.0.other_sources(known)
    }

    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>> {
        self.0.recipes()
    }

    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()> {
        self.0.set_recipes(recipes)
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        self.0.quarantine(message)
    }

    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>> {
        self.0.quarantined(limit)
    }

    fn preview_claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<Claim>> {
        self.0.preview_claim(new)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}
