//! A store opened by the command itself: read-only beside a running node, or with the store's lock to write.

use super::{ClockConfirmation, CommandOutcome, ambiguous_name, ambiguous_register, no_such_event, no_such_register};
use crate::admin::{LIST_MAX, NAMESAKES_MAX, orphans, registers, view};
use crate::cli::error::CommandError;
use crate::decide::event::{Event, EventStep};
use crate::decide::id::Key;
use crate::decide::ledger::RegisterEdit;
use crate::decide::source::Source;
use crate::store::retention::{self, NodeTopology, SweepCompany};
use crate::store::subjects::{self, NamedRegister, RegisterLookup, RegisterQuery};
use crate::store::{AdvanceResult, EventQuery, Inspect, RemovalResult, RetentionPolicies, StoredValue};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// A store opened by this process.
pub(crate) struct LocalBackend {
    /// The store.
    pub store: Arc<dyn Inspect>,
    /// How long each source's events are kept, where that was asked for.
    pub keeps: Arc<RetentionPolicies>,
    /// Whether nodes may run on it meanwhile.
    pub nodes: NodeTopology,
    /// The sources of its nodes, where their config is at hand and a step is to be written.
    pub sources: Vec<Arc<Source>>,
}

impl LocalBackend {
    pub(super) async fn list(&self, listing: EventQuery) -> Result<Vec<Value>, CommandError> {
        Ok(self.store.list(listing).await?.iter().map(|event| document(view::event(event))).collect())
    }

    pub(super) async fn quarantined(&self) -> Result<Vec<Value>, CommandError> {
        Ok(self.store.quarantined(LIST_MAX).await?.iter().map(|message| document(view::quarantined(message))).collect())
    }

    pub(super) async fn show(&self, name: &str) -> Result<Value, CommandError> {
        let event = self.find_by_name(name).await?;
        let story = self.store.details(event.id).await?.ok_or_else(|| no_such_event(name))?;
        Ok(document(view::event_details(&*self.store, &story).await?))
    }

    pub(super) async fn replay(&self, name: &str) -> Result<CommandOutcome, CommandError> {
        let event = self.find_by_name(name).await?;
        match self.store.payload(event.id).await? {
            StoredValue::Whole(_) => self.step(&event, EventStep::Replay).await,
            // Its body is that of the last good event.
            StoredValue::Forgotten if event.is_rollback() => self.step(&event, EventStep::Replay).await,
            StoredValue::Forgotten => Ok(CommandOutcome::Refused("its body is no longer kept".into())),
            StoredValue::Damaged => Ok(CommandOutcome::Refused("its body is damaged".into())),
        }
    }

    pub(super) async fn cancel(&self, name: &str) -> Result<CommandOutcome, CommandError> {
        let event = self.find_by_name(name).await?;
        self.step(&event, event.cancelled_from_outside(|until| self.store.is_lease_over(until))).await
    }

    pub(super) async fn remove(&self, name: &str) -> Result<CommandOutcome, CommandError> {
        let event = self.find_by_name(name).await?;
        match self.store.remove(event.id).await? {
            RemovalResult::Removed => Ok(CommandOutcome::Done(document(view::forgotten_event(event.id)))),
            RemovalResult::NotOver => Ok(CommandOutcome::Refused(format!("it is {}", event.state.word()))),
            RemovalResult::Unknown => Err(no_such_event(name)),
        }
    }

    pub(super) async fn forget_source(&self, source: &str) -> Result<CommandOutcome, CommandError> {
        if self.nodes == NodeTopology::Many && retention::is_elsewhere(&*self.store, source).await? {
            return Ok(CommandOutcome::Refused(orphans::SOURCE_IN_USE.into()));
        }
        let forgotten = retention::forget_source(&*self.store, source).await?;
        Ok(CommandOutcome::Done(document(orphans::document(source, forgotten))))
    }

    pub(super) async fn registers(&self, query: &RegisterQuery) -> Result<(Vec<Value>, Option<Key>), CommandError> {
        let page = subjects::page(&*self.store, &self.store.recipes().await?, query).await?;
        Ok((page.registers.iter().map(|named| document(registers::register(named))).collect(), page.next))
    }

    pub(super) async fn register(&self, name: &str) -> Result<Value, CommandError> {
        Ok(document(registers::register(&self.find_register(name).await?)))
    }

    pub(super) async fn edit_register(&self, key: Key, edit: RegisterEdit) -> Result<CommandOutcome, CommandError> {
        let sets = matches!(edit, RegisterEdit::Set { .. });
        match self.store.edit_register(key, edit).await? {
            Err(why) => Ok(CommandOutcome::Refused(why.to_string())),
            Ok(None) => Ok(CommandOutcome::Done(document(registers::cleared(key, None)))),
            Ok(Some(_)) => {
                let named = self.find_register(&hex::encode(key.0)).await?;
                let cleared = || document(registers::cleared(key, Some(&named)));
                Ok(CommandOutcome::Done(if sets { document(registers::register(&named)) } else { cleared() }))
            }
        }
    }

    async fn find_register(&self, name: &str) -> Result<NamedRegister, CommandError> {
        match subjects::find(&*self.store, &self.store.recipes().await?, name).await? {
            RegisterLookup::Found(named) => Ok(*named),
            RegisterLookup::SeveralRegisters => Err(ambiguous_register(name)),
            RegisterLookup::SeveralEvents(events) => {
                Err(ambiguous_name(name, &events.iter().map(|event| document(view::event(event))).collect::<Vec<_>>()))
            }
            RegisterLookup::Unknown => Err(no_such_register(name)),
        }
    }

    pub(super) async fn forget(&self, says: ClockConfirmation) -> Result<Value, CommandError> {
        if says == ClockConfirmation::ClockIsRight {
            self.store.confirm_time().await?;
        }
        let keeps = Arc::new(self.keeps.with_stored(&*self.store).await?);
        let swept = retention::sweep_all(&*self.store, &keeps, SweepCompany::None).await?;
        Ok(document(view::forgotten(swept, &*self.store)))
    }

    async fn find_by_name(&self, name: &str) -> Result<Event, CommandError> {
        let mut events = self.store.resolve(name.to_owned(), NAMESAKES_MAX).await?;
        match (events.pop(), events.is_empty()) {
            (Some(event), true) => Ok(event),
            (None, _) => Err(no_such_event(name)),
            (Some(last), false) => {
                events.push(last);
                Err(ambiguous_name(name, &events.iter().map(|event| document(view::event(event))).collect::<Vec<_>>()))
            }
        }
    }

    /// Applies an operator's transition, by the policies of the event's route: whom its end is told, for instance.
    /// Without the config, none of them apply.
    async fn step(&self, event: &Event, step: EventStep) -> Result<CommandOutcome, CommandError> {
        let source = self.sources.iter().find(|source| source.name == event.source);
        let route = source.and_then(|source| source.routes.iter().find(|route| route.name == event.route).cloned());
        let Ok(change) = event.transition(step, &route.unwrap_or_default(), self.store.now()) else {
            return Ok(CommandOutcome::Refused(format!("it is {}", event.state.word())));
        };
        match self.store.advance(vec![change]).await?.pop() {
            Some(AdvanceResult::Written { event, .. }) => Ok(CommandOutcome::Done(document(view::event(&event)))),
            Some(AdvanceResult::Lost) | None => Ok(CommandOutcome::Refused("it changed meanwhile".into())),
        }
    }
}

/// A view of the admin API as JSON.
pub(super) fn document(view: impl Serialize) -> Value {
    serde_json::to_value(view).expect("a view has only members that JSON can hold")
}
