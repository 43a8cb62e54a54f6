//! Registers for operators: each with its subject in words, and with the events that it names.
//!
//! A register's key is a digest. Its subject is named by its current event: by the fields that the recipe of its scope
//! says. A register that is only the queue of a route says nothing that its event does not, and is left out.

use super::StoreError;
use super::inspect::{Inspect, said};
use crate::decide::event::{DeathCause, DoneReason, Event, EventState};
use crate::decide::field::FieldValue;
use crate::decide::id::{EventId, Key};
use crate::decide::identity::key;
use crate::decide::identity::recipe::{ChangeFields, IdentityRecipe};
use crate::decide::ledger::SubjectRegister;
use crate::decide::limits;
use std::collections::BTreeSet;

/// A register, what its subject is called, and its events.
#[derive(Clone, Debug)]
pub struct NamedRegister {
    /// Its key.
    pub key: Key,
    /// The register.
    pub register: SubjectRegister,
    /// The fields that its change is made of; `None` if no recipe tells.
    pub names: Option<ChangeFields>,
    /// Its current, deployed and good events, as far as they are kept.
    events: Vec<Event>,
    /// The roll-back of its deployed event.
    rollback: Option<Event>,
}

impl NamedRegister {
    /// The register with its events; `None` if it is only a queue.
    async fn load(
        store: &(impl Inspect + ?Sized),
        recipes: &[IdentityRecipe],
        (key, register): (Key, SubjectRegister),
    ) -> Result<Option<Self>, StoreError> {
        let mut ids = vec![register.event];
        for deployment in [register.deployed(), register.good()].into_iter().flatten() {
            if !ids.contains(&deployment.event) {
                ids.push(deployment.event);
            }
        }
        let mut events = Vec::new();
        for id in ids {
            events.extend(store.get(id).await?);
        }
        let mut named = Self { key, register, names: None, events, rollback: None };
        if let Some(deployed) = named.register.deployed().and_then(|deployed| named.event(deployed.event)) {
            named.rollback = rollback(store, deployed).await?;
        }
        let is_queue = named.current().is_some_and(Event::has_queue_as_subject);
        named.names = named.current().and_then(|event| change_fields(recipes, &key, event));
        Ok((!is_queue).then_some(named))
    }

    /// This event of it, if it is kept.
    pub fn event(&self, id: EventId) -> Option<&Event> {
        self.events.iter().find(|event| event.id == id)
    }

    /// Its current event.
    pub fn current(&self) -> Option<&Event> {
        self.event(self.register.event)
    }

    /// The roll-back that has deployed its good event again, since its deployed event was deployed.
    pub fn rolled_back_by(&self) -> Option<EventId> {
        let (deployed, rollback) = (self.register.deployed()?, self.rollback.as_ref()?);
        let has_acted = matches!(rollback.state, EventState::Done { how: DoneReason::Acted, at } if at >= deployed.at);
        has_acted.then_some(rollback.id)
    }

    /// The fields that name its subject: all fields of its event, where it is unknown which.
    pub fn subject(&self) -> Vec<(&str, &FieldValue)> {
        let is_named = |name: &str| self.names.as_ref().is_none_or(|names| names.of.iter().any(|of| of == name));
        let fields = self.current().into_iter().flat_map(|event| event.fields.iter());
        fields.filter(|(name, _)| is_named(name)).collect()
    }

    /// The fields of the value to which an event changed it.
    pub fn value_of<'e>(&self, event: &'e Event) -> Vec<(&'e str, &'e FieldValue)> {
        let is_value = |name: &str| self.names.as_ref().is_some_and(|names| names.to.iter().any(|to| to == name));
        event.fields.iter().filter(|(name, _)| is_value(name)).collect()
    }
}

/// The roll-back of an event that is dead because what it deployed is not healthy.
pub(crate) async fn rollback(store: &(impl Inspect + ?Sized), event: &Event) -> Result<Option<Event>, StoreError> {
    match event.state {
        EventState::Dead { cause: DeathCause::Unhealthy, .. } => store.get(event.rollback_id()).await,
        _ => Ok(None),
    }
}

/// The fields that the change of this register's event is made of. A recipe that makes the register's key is right
/// whatever its scope is called; where the key has other parts, too, the scope has the source's name.
fn change_fields(recipes: &[IdentityRecipe], register: &Key, event: &Event) -> Option<ChangeFields> {
    let makes_key = |recipe: &&IdentityRecipe| {
        let Some(names) = recipe.change() else { return false };
        let parts = key::parts(names.of.iter().map(String::as_str), &event.fields);
        parts.is_ok_and(|parts| key::key(&recipe.scope, "register", &parts) == *register)
    };
    let by_name = || recipes.iter().find(|recipe| *recipe.scope == *event.source);
    recipes.iter().find(makes_key).or_else(by_name).and_then(IdentityRecipe::change)
}

/// Which registers to list, and where the page begins.
#[derive(Clone, Debug, Default)]
pub struct RegisterQuery {
    /// Of this source.
    pub source: Option<String>,
    /// Whose current event has these fields, each with this value as text.
    pub fields: Vec<(String, String)>,
    /// After this one.
    pub after: Option<Key>,
    /// Maximum number of registers per page.
    pub limit: usize,
}

impl RegisterQuery {
    fn finds(&self, named: &NamedRegister) -> bool {
        let Some(event) = named.current() else { return self.source.is_none() && self.fields.is_empty() };
        let has = |(name, wanted): &(String, String)| event.fields.get(name).is_some_and(|value| said(value) == wanted);
        self.source.as_deref().is_none_or(|source| *source == *event.source) && self.fields.iter().all(has)
    }
}

/// A page of registers, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct RegisterPage {
    /// The registers.
    pub registers: Vec<NamedRegister>,
    /// Continue after this one; `None` if there are no more.
    pub next: Option<Key>,
}

/// One page of registers, looking at a bounded number of them.
pub async fn page(
    store: &(impl Inspect + ?Sized),
    recipes: &[IdentityRecipe],
    query: &RegisterQuery,
) -> Result<RegisterPage, StoreError> {
    let mut found = RegisterPage { registers: Vec::new(), next: query.after };
    for _ in 0..limits::REGISTERS_LOOKED_AT_MAX / CHUNK {
        let some = store.registers(found.next, CHUNK).await?;
        let is_last = some.len() < CHUNK;
        for (key, register) in some {
            if found.registers.len() == query.limit {
                return Ok(found);
            }
            found.next = Some(key);
            let named = NamedRegister::load(store, recipes, (key, register)).await?;
            found.registers.extend(named.filter(|named| query.finds(named)));
        }
        if is_last {
            return Ok(RegisterPage { next: None, ..found });
        }
    }
    Ok(found)
}

/// Registers read at a time.
const CHUNK: usize = 100;

/// The register that an operator means by a name.
#[derive(Clone, Debug)]
pub enum RegisterLookup {
    /// This one.
    Found(Box<NamedRegister>),
    /// Several registers have keys that begin so.
    SeveralRegisters,
    /// The name means several events, of more than one register.
    SeveralEvents(Vec<Event>),
    /// No register.
    Unknown,
}

/// The register with this name: the beginning of its key, or an event that changed its subject.
pub async fn find(
    store: &(impl Inspect + ?Sized),
    recipes: &[IdentityRecipe],
    name: &str,
) -> Result<RegisterLookup, StoreError> {
    let mut begins = Vec::new();
    if let Some(first) = first_key(name) {
        let prefix = name.to_ascii_lowercase();
        for (key, register) in store.registers(first.predecessor(), KEYS_LOOKED_AT).await? {
            if hex::encode(key.0).starts_with(&prefix) {
                begins.extend(NamedRegister::load(store, recipes, (key, register)).await?);
            }
        }
    }
    match (begins.pop(), begins.is_empty()) {
        (Some(named), true) => return Ok(RegisterLookup::Found(Box::new(named))),
        (Some(_), false) => return Ok(RegisterLookup::SeveralRegisters),
        (None, _) => {}
    }
    let events = store.resolve(name.to_owned(), EVENTS_LOOKED_AT).await?;
    let subjects: BTreeSet<Key> = events.iter().filter_map(|event| Some(event.explicit_change()?.subject)).collect();
    match (subjects.first(), subjects.len()) {
        (Some(subject), 1) => {
            let Some(register) = store.register(*subject).await? else { return Ok(RegisterLookup::Unknown) };
            let named = NamedRegister::load(store, recipes, (*subject, register)).await?;
            Ok(named.map_or(RegisterLookup::Unknown, |named| RegisterLookup::Found(Box::new(named))))
        }
        (Some(_), _) => Ok(RegisterLookup::SeveralEvents(events)),
        (None, _) => Ok(RegisterLookup::Unknown),
    }
}

/// Keys that are compared with a prefix: two are enough, but some may be of queues.
const KEYS_LOOKED_AT: usize = 10;
/// Events that a name may mean.
const EVENTS_LOOKED_AT: usize = 10;
/// The shortest beginning of a key.
const PREFIX_MIN: usize = 4;

/// The first key that begins with these digits; `None` if they are none.
fn first_key(prefix: &str) -> Option<Key> {
    let mut bytes = [0; 32];
    let is_prefix = (PREFIX_MIN..=64).contains(&prefix.len());
    hex::decode_to_slice(format!("{prefix:0<64}"), &mut bytes).ok().filter(|()| is_prefix)?;
    Some(Key(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_first_key_that_begins_with_it() {
        let first = first_key("00ff1").unwrap();
        assert!(hex::encode(first.0).starts_with("00ff1000"));
        assert!(hex::encode(first.predecessor().unwrap().0).starts_with("00ff0fffff"));
        assert_eq!(first_key("0000").and_then(Key::predecessor), None);
        let whole = "ab".repeat(32);
        assert_eq!(first_key(&whole).map(|key| hex::encode(key.0)), Some(whole.clone()));
        for not in ["", "abc", "latest", "abcg", &(whole + "a")] {
            assert_eq!(first_key(not), None, "{not}");
        }
    }
}
