//! What is done with an event: commands behind a guard, HTTP, NATS. An action is told what to act on and how long it may,
//! and says what came of it. It never writes to a store, never retries, and knows no route.
//!
//! ```text
//! Attempt ─act─▶ Outcome          run/       blocks and steps ─▶ guard_client.rs ─socket─▶ guard.rs ─▶ the command
//!                                 forward/   one request ─▶ url_template.rs (where to) ─▶ ip_filter.rs (which addresses)
//!                                 publish/   one NATS message
//!                                 sql.rs     nothing yet: its statement goes with the write of the outcome
//! ```
//!
//! An action ends when its lease does, and when its future is dropped: then what it started is killed.

use crate::decide::action_kind::ActionKind;
pub(crate) use crate::decide::circuit_breaker::CircuitAdmission;
use crate::decide::claim::Payload;
use crate::decide::event::{Event, Outcome, SucceededBlocks};
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::Timestamp;
use crate::decide::trace_context;
use crate::decide::trace_context::{PARENT, STATE, TraceContext};
pub(crate) use crate::lease::{BootInstant, Lease, LeaseSignal, boottime, margin};
use forward::ip_filter::DnsResolver;
use plan::ActionPlan;
pub use run::guard_client::GuardProgram;
pub use run::output::{AttemptOutput, OutputChunk};
pub use run::step::NodeEnvVars;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

pub(crate) mod forward;
pub mod plan;
#[cfg(feature = "nats")]
pub(crate) mod publish;
pub(crate) mod run;
mod sql;

/// What an action comes to, later. Actions are chosen by the config, so the future is boxed.
pub type ActionFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Something that can be done with an event.
pub trait Action: Send + Sync {
    /// Does it once. Not a `Result`: an unknown is an answer. When the future is dropped, what it does is ended.
    fn act<'a>(&'a self, attempt: Attempt<'a>) -> ActionFuture<'a>;

    /// What kind of action it is: written with the lease of each attempt.
    fn kind(&self) -> ActionKind;

    /// Whether an attempt at this of its receivers may begin. Whoever asks begins one, if it may.
    fn ready(&self, _part: u16) -> CircuitAdmission {
        CircuitAdmission::Now
    }

    /// The attempt that was let begin did not.
    fn release_probe(&self, _part: u16) {}

    /// Whether nothing is known against this of its receivers. Asking begins nothing.
    fn is_healthy(&self, _part: u16) -> bool {
        true
    }

    /// What is to run in the very write that moves the event to done, if it has come so far.
    fn bound_statement(&self, _event: &Event, _payload: &Payload) -> Option<BoundStatement> {
        None
    }

    /// How many attempts at this of its receivers may be under way at once, if it says so.
    fn concurrency_limit(&self, _part: u16) -> Option<usize> {
        None
    }
}

/// One try of an action.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// To act on this.
    pub event: &'a Event,
    /// Its headers and body.
    pub payload: &'a Payload,
    /// For so long.
    pub lease: &'a Lease,
    /// Where a block's success is told at once.
    pub blocks: &'a CompletedBlocks,
    /// Where a command's output goes.
    pub output: &'a AttemptOutput,
    /// When it began, by the store's clock.
    pub at: Timestamp,
    /// Its span, where it is traced: what it calls is within that.
    pub span: Option<TraceContext>,
}

/// The blocks that have succeeded, for a dispatcher that writes each of them down while the next one runs.
#[derive(Debug, Default)]
pub struct CompletedBlocks {
    blocks: AtomicU64,
    notify: Notify,
}

impl CompletedBlocks {
    /// Beginning with those of earlier attempts.
    pub fn new(blocks: SucceededBlocks) -> Self {
        Self { blocks: AtomicU64::new(blocks.0), notify: Notify::new() }
    }

    /// Those that have succeeded so far.
    pub fn blocks(&self) -> SucceededBlocks {
        SucceededBlocks(self.blocks.load(Ordering::Acquire))
    }

    /// This one has, too.
    pub fn mark_done(&self, block: usize) {
        self.blocks.fetch_or(SucceededBlocks::default().with(block).0, Ordering::AcqRel);
        self.notify.notify_one();
    }

    /// Waits for the next success, or returns at once if there was one since the last call. For one waiter.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }
}

/// What actions need of the node they run on.
#[derive(Clone, Debug)]
pub struct ActionEnvironment {
    /// What commands may see of the node's own variables.
    pub variables: NodeEnvVars,
    /// What is started as their guard.
    pub guard: GuardProgram,
    /// Who finds the addresses of receivers that a field names.
    pub resolver: DnsResolver,
    /// Connections to NATS, one for each server.
    #[cfg(feature = "nats")]
    pub servers: publish::NatsConnections,
}

/// Why there can be no such action on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionError(pub String);

impl fmt::Display for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ActionError {}

/// The action of this plan.
pub fn build_action(plan: ActionPlan, environment: &ActionEnvironment) -> Result<Arc<dyn Action>, ActionError> {
    match plan {
        ActionPlan::Run(blocks) => Ok(Arc::new(run::RunAction::new(blocks, environment.clone()))),
        ActionPlan::Forward(receivers) => Ok(Arc::new(forward::ForwardAction::new(receivers, &environment.resolver)?)),
        ActionPlan::Sql(statement) => Ok(Arc::new(sql::SqlAction(statement))),
        #[cfg(feature = "nats")]
        ActionPlan::Publish(publish) => Ok(Arc::new(publish::PublishAction::new(*publish, &environment.servers)?)),
        #[cfg(not(feature = "nats"))]
        ActionPlan::Publish(_) => Err(ActionError("this hookonce was built without NATS".into())),
    }
}

/// The headers with an attempt's place in its trace: its own span, else a new one of the sender's trace or of its event's.
pub(super) fn trace_headers(attempt: &Attempt<'_>) -> Vec<(&'static str, String)> {
    let payload = attempt.payload;
    let sender = TraceContext::of(&payload.headers);
    let own = attempt.span.unwrap_or_else(|| {
        let mut span = [0; 8];
        aws_lc_rs::rand::fill(&mut span).expect("the system has random bytes");
        let span = u64::from_be_bytes(span);
        sender.map_or_else(|| TraceContext::begins_with(attempt.event.id, span), |sender| sender.child(span))
    });
    let state = sender.and(payload.header(STATE)).and_then(trace_context::state);
    let state = state.map(|state| (STATE, state.to_owned()));
    [(PARENT, own.to_string())].into_iter().chain(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_success_is_told_even_to_who_asks_later() {
        let done = CompletedBlocks::new(SucceededBlocks(0b1));
        done.mark_done(63);
        done.changed().await;
        assert_eq!(done.blocks(), SucceededBlocks(1 << 63 | 1));
    }
}
