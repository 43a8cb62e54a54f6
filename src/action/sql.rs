//! `sql`: does nothing by itself. The store runs the statement in the write that ends the event, after the
//! compare-and-swap.

use super::{Action, ActionFuture, Attempt};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::Payload;
use crate::decide::event::{Event, Outcome};
use crate::decide::sql_template::{BoundStatement, SqlTemplate};
use std::sync::Arc;

/// Runs one statement in the write that moves an event to done.
pub(super) struct SqlAction(pub(super) Arc<SqlTemplate>);

impl Action for SqlAction {
    fn act<'a>(&'a self, _: Attempt<'a>) -> ActionFuture<'a> {
        Box::pin(std::future::ready(Outcome::Delivered(None)))
    }

    fn kind(&self) -> ActionKind {
        ActionKind::Sql
    }

    fn bound_statement(&self, event: &Event, payload: &Payload) -> Option<BoundStatement> {
        Some(self.0.bind(event, payload))
    }
}
