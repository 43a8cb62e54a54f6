//! `sql`: nothing is done before the write. The statement goes with it, and the store runs it after the swap.

use super::{Acting, Action, Attempt};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::Payload;
use crate::decide::event::{Event, Outcome};
use crate::decide::statement::{Bound, Statement};
use std::sync::Arc;

/// Runs one statement in the write that moves an event to done.
pub(super) struct Sql(pub(super) Arc<Statement>);

impl Action for Sql {
    fn act<'a>(&'a self, _: Attempt<'a>) -> Acting<'a> {
        Box::pin(std::future::ready(Outcome::Delivered(None)))
    }

    fn kind(&self) -> ActionKind {
        ActionKind::Sql
    }

    fn effect(&self, event: &Event, payload: &Payload) -> Option<Bound> {
        Some(self.0.bind(event, payload))
    }
}
