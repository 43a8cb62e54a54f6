//! Where commands get events from: a store, or the admin port of a running node. Both return the documents of the admin
//! API, so commands do not depend on which one it is.
pub(crate) mod local;
pub(crate) mod remote;
pub(crate) mod select;

pub(crate) use local::LocalBackend;
pub(super) use remote::root_cause;
pub(crate) use remote::{AdminClient, SseReader};
pub(super) use select::connect_address;
pub(crate) use select::{BackendArgs, BackendPurpose};

use super::error::CommandError;
use super::terminal::one_line;
use crate::admin::LIST_MAX;
use crate::catch_up::has_delivery;
use crate::decide::id::Key;
use crate::decide::ledger::RegisterEdit;
use crate::store::EventQuery;
use crate::store::subjects::RegisterQuery;
use serde_json::Value;

/// Maximum number of pages of registers that are read for one command.
const REGISTER_PAGES_MAX: usize = 200;

/// Where commands read and change events.
pub(crate) enum EventBackend {
    /// A store opened by this process.
    Store(LocalBackend),
    /// A running node.
    Admin(AdminClient),
}

/// The result of one operator command.
pub(crate) enum CommandOutcome {
    /// Done, with the document to print.
    Done(Value),
    /// Refused, and why.
    Refused(String),
}

impl EventBackend {
    /// Events, newest first.
    pub(crate) async fn list(&self, listing: EventQuery) -> Result<Vec<Value>, CommandError> {
        match self {
            Self::Store(store) => store.list(listing).await,
            Self::Admin(port) => port.list(listing).await,
        }
    }

    /// Quarantined stream messages, newest first.
    pub(crate) async fn quarantined(&self) -> Result<Vec<Value>, CommandError> {
        match self {
            Self::Store(store) => store.quarantined().await,
            Self::Admin(port) => port.quarantined().await,
        }
    }

    /// The details of the one event with this name.
    pub(crate) async fn show(&self, name: &str) -> Result<Value, CommandError> {
        match self {
            Self::Store(store) => store.show(name).await,
            Self::Admin(port) => port.show(name).await,
        }
    }

    /// Whether there is an event of this delivery.
    pub(crate) async fn has_delivery(&self, source: &str, delivery: &str) -> Result<bool, CommandError> {
        match self {
            Self::Store(store) => Ok(has_delivery(&*store.store, source, delivery).await?),
            Self::Admin(port) => port.has_delivery(delivery).await,
        }
    }

    /// Replays an event: a new life.
    pub(crate) async fn replay(&self, id: &str) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(store) => store.replay(id).await,
            Self::Admin(port) => port.replay(id).await,
        }
    }

    /// Cancels an event.
    pub(crate) async fn cancel(&self, id: &str) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(store) => store.cancel(id).await,
            Self::Admin(port) => port.cancel(id).await,
        }
    }

    /// Forgets one event with its keys.
    pub(crate) async fn remove(&self, id: &str) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(store) => store.remove(id).await,
            Self::Admin(port) => port.remove(id).await,
        }
    }

    /// Cancels and forgets all events of a source that no node is configured with.
    pub(crate) async fn forget_source(&self, source: &str) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(store) => store.forget_source(source).await,
            Self::Admin(port) => port.forget_source(source).await,
        }
    }

    /// Registers in the order of their keys, and whether there are more.
    pub(crate) async fn registers(&self, mut query: RegisterQuery) -> Result<(Vec<Value>, bool), CommandError> {
        let (mut found, limit) = (Vec::new(), query.limit);
        for _ in 0..REGISTER_PAGES_MAX {
            query.limit = (limit - found.len()).min(LIST_MAX);
            let (page, next) = match self {
                Self::Store(store) => store.registers(&query).await?,
                Self::Admin(port) => port.registers(&query).await?,
            };
            found.extend(page);
            query.after = next;
            if found.len() >= limit || query.after.is_none() {
                break;
            }
        }
        Ok((found, query.after.is_some()))
    }

    /// The one register with this name.
    pub(crate) async fn register(&self, name: &str) -> Result<Value, CommandError> {
        match self {
            Self::Store(store) => store.register(name).await,
            Self::Admin(port) => port.register(name).await,
        }
    }

    /// Corrects the register with this key.
    pub(crate) async fn edit_register(&self, key: Key, edit: RegisterEdit) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(store) => store.edit_register(key, edit).await,
            Self::Admin(port) => port.edit_register(key, &edit).await,
        }
    }

    /// Deletes expired events and bodies; returns `{"forgotten": …, "bodies": …}`.
    pub(crate) async fn forget(&self, says: ClockConfirmation) -> Result<Value, CommandError> {
        match self {
            Self::Store(store) => store.forget(says).await,
            Self::Admin(port) => port.forget(says).await,
        }
    }
}

/// Whether the operator vouches for the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClockConfirmation {
    /// The operator said nothing about the clock.
    NotGiven,
    /// The clock is right, however far it jumped.
    ClockIsRight,
}

/// The last eight digits of an event's id, as people see them.
pub(crate) fn short(event: &Value) -> String {
    short_id(text(event, "event")).to_owned()
}

/// The last digits of an event's id.
pub(crate) fn short_id(id: &str) -> &str {
    id.get(id.len().saturating_sub(8)..).unwrap_or(id)
}

/// A member as text; empty if it is not a string.
pub(crate) fn text<'v>(document: &'v Value, member: &str) -> &'v str {
    document[member].as_str().unwrap_or("")
}

/// The error for a name that matches no event.
fn no_such_event(name: &str) -> CommandError {
    CommandError::no(format!("there is no event `{}`", one_line(name)))
}

/// The error for a name that matches no register.
fn no_such_register(name: &str) -> CommandError {
    CommandError::no(format!(
        "there is no register `{}`; `hookonce registers` lists them, and an event has one only if its source has a `change`",
        one_line(name)
    ))
}

/// The error for the beginning of several keys.
fn ambiguous_register(name: &str) -> CommandError {
    CommandError::no(format!("`{}` begins the keys of several registers; give more of it", one_line(name)))
}

/// The key that is written so.
pub(in crate::cli) fn read_key(digits: &str) -> Option<Key> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(Key(bytes))
}

/// The error for a name that matches several events.
fn ambiguous_name(name: &str, events: &[Value]) -> CommandError {
    let line = |event: &Value| {
        let about = format!("{} {} {}", text(event, "source"), text(event, "state"), text(event, "received_at"));
        let delivery = event["delivery"].as_str().map(|id| format!(" delivery {id}")).unwrap_or_default();
        format!("\n  {}  {}", text(event, "event"), one_line(&format!("{about}{delivery}")))
    };
    let events: String = events.iter().map(line).collect();
    CommandError::no(format!("`{}` matches several events; give more of the id:{events}", one_line(name)))
}
