//! SQLite without batches: every claim is its own commit. Shows the benefit of group commit.

use hookonce::decide::claim::{ClaimResult, NewEvent, Payload};
use hookonce::decide::event::{Event, Receipt};
use hookonce::decide::id::{EventId, Key};
use hookonce::decide::transition::Transition;
use hookonce::store::clock::StoreClock;
use hookonce::store::inspect::QuarantinedMessage;
use hookonce::store::sqlite::SqliteStore;
use hookonce::store::{
    AdvanceResult, DueEvents, DueQuery, DuplicateNote, ForgetCounts, RetentionPolicies, SourceRetention,
    StartDueRequest, StartDueResult, Store, StoreBackend, StoreFuture, StoredValue, SweepError,
};
use std::sync::Arc;

/// Makes one claim at a time.
pub struct PerRow(pub Arc<SqliteStore>);

impl StoreBackend for PerRow {
    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        self.0.payload(id)
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        self.0.receipt(id)
    }

    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        self.0.note_duplicates(notes)
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        self.0.retention()
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        self.0.set_retention(rows)
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        self.0.quarantine(message)
    }

    fn clock(&self) -> &StoreClock {
        self.0.clock()
    }

    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        Box::pin(starts.by_steps(self))
    }
}

impl Store for PerRow {
    fn claim(&self, new: Vec<Arc<NewEvent>>) -> StoreFuture<'_, Vec<ClaimResult>> {
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

    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        self.0.due(look, limit)
    }

    fn state(&self, key: Key) -> StoreFuture<'_, Option<Arc<str>>> {
        self.0.state(key)
    }

    fn swap_state(&self, key: Key, was: Option<Arc<str>>, is: Option<Arc<str>>) -> StoreFuture<'_, bool> {
        self.0.swap_state(key, was, is)
    }

    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError> {
        self.0.forget(keeps, limit)
    }
}
