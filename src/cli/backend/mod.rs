//! The one place where commands ask about events: a store on this machine, or the admin port of a running node. Both
//! answer with the admin port's own documents, so that a command neither knows nor cares which of them it was.
pub(crate) mod local;
pub(crate) mod remote;
pub(crate) mod select;

pub(crate) use local::LocalBackend;
pub(super) use remote::root_cause;
pub(crate) use remote::{AdminClient, SseReader};
pub(super) use select::connect_address;
pub(crate) use select::{BackendAccess, BackendArgs};

use super::error::CommandError;
use super::terminal::one_line;
use crate::store::EventQuery;
use serde_json::Value;

/// Where commands ask about events.
pub(crate) enum EventBackend {
    /// A store, opened here.
    Store(LocalBackend),
    /// A running node.
    Admin(AdminClient),
}

/// What came of one thing that a person asked for.
pub(crate) enum CommandOutcome {
    /// It is done; this is the document about it.
    Done(Value),
    /// It was refused, for this reason.
    Refused(String),
}

impl EventBackend {
    /// Events, newest first.
    pub(crate) async fn list(&self, listing: EventQuery) -> Result<Vec<Value>, CommandError> {
        match self {
            Self::Store(cabinet) => cabinet.list(listing).await,
            Self::Admin(port) => port.list(listing).await,
        }
    }

    /// Messages of a stream that never became an event, newest first.
    pub(crate) async fn quarantined(&self) -> Result<Vec<Value>, CommandError> {
        match self {
            Self::Store(cabinet) => cabinet.quarantined().await,
            Self::Admin(port) => port.quarantined().await,
        }
    }

    /// All that is known of the one event of this name.
    pub(crate) async fn show(&self, name: &str) -> Result<Value, CommandError> {
        match self {
            Self::Store(cabinet) => cabinet.show(name).await,
            Self::Admin(port) => port.show(name).await,
        }
    }

    /// Gives an event another life.
    pub(crate) async fn replay(&self, id: &str) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(cabinet) => cabinet.replay(id).await,
            Self::Admin(port) => port.replay(id).await,
        }
    }

    /// Ends an event.
    pub(crate) async fn cancel(&self, id: &str) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(cabinet) => cabinet.cancel(id).await,
            Self::Admin(port) => port.cancel(id).await,
        }
    }

    /// Forgets one event with its keys.
    pub(crate) async fn remove(&self, id: &str) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(cabinet) => cabinet.remove(id).await,
            Self::Admin(port) => port.remove(id).await,
        }
    }

    /// Ends and forgets all events of a source that no node has.
    pub(crate) async fn forget_source(&self, source: &str) -> Result<CommandOutcome, CommandError> {
        match self {
            Self::Store(cabinet) => cabinet.forget_source(source).await,
            Self::Admin(port) => port.forget_source(source).await,
        }
    }

    /// Frees what may be forgotten: `{"forgotten": …, "bodies": …}`.
    pub(crate) async fn forget(&self, says: ClockConfirmation) -> Result<Value, CommandError> {
        match self {
            Self::Store(cabinet) => cabinet.forget(says).await,
            Self::Admin(port) => port.forget(says).await,
        }
    }
}

/// What a person says about the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClockConfirmation {
    /// Nothing.
    NotGiven,
    /// It is right, however far it jumped.
    ClockIsRight,
}

/// The last eight digits of an event's id, as people see them.
pub(crate) fn short(event: &Value) -> String {
    let id = text(event, "event");
    id.get(id.len().saturating_sub(8)..).unwrap_or(id).to_owned()
}

/// A member that is text; empty if it is none.
pub(crate) fn text<'v>(document: &'v Value, member: &str) -> &'v str {
    document[member].as_str().unwrap_or("")
}

/// There is nothing of this name.
fn no_such_event(name: &str) -> CommandError {
    CommandError::no(format!("there is no event `{}`", one_line(name)))
}

/// There are several.
fn ambiguous_name(name: &str, events: &[Value]) -> CommandError {
    let line = |event: &Value| {
        let about = format!("{} {} {}", text(event, "source"), text(event, "state"), text(event, "received_at"));
        let delivery = event["delivery"].as_str().map(|id| format!(" delivery {id}")).unwrap_or_default();
        format!("\n  {}  {}", text(event, "event"), one_line(&format!("{about}{delivery}")))
    };
    let events: String = events.iter().map(line).collect();
    CommandError::no(format!("`{}` may be any of these; write more of its id:{events}", one_line(name)))
}
