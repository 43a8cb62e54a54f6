//! Actions on events: guarded commands, HTTP, NATS, SQL. An action gets an attempt with its lease and returns an
//! outcome. It never writes to a store, never retries, and knows no routes.
//!
//! ```text
//! Attempt ─act─▶ Outcome     run/       blocks of steps ─▶ guard_client.rs ─guard_protocol.rs─▶ guard.rs ─▶ the command
//!                            sql.rs     nothing yet: the statement runs in the write of the outcome
//!                            forward/   one request ─▶ url_template.rs ─▶ ip_filter.rs
//!                            publish/   one message
//!                            notifier/  a message about the end of another event ─▶ run/ or forward/
//! ```
//!
//! An action ends with its lease, or when its future is dropped; what it started is then killed.

use crate::decide::action_kind::ActionKind;
pub(crate) use crate::decide::circuit_breaker::CircuitAdmission;
use crate::decide::claim::Payload;
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::{Event, Outcome};
use crate::decide::sql_template::{BoundStatement, SqlParamSource, SqlTemplate};
use crate::decide::time::Timestamp;
use crate::decide::trace_context;
use crate::decide::trace_context::{PARENT, STATE, TraceContext};
pub use crate::lease::renewal::SharedSucceededBlocks;
pub(crate) use crate::lease::{BootInstant, Lease, LeaseSignal, boottime};
pub use forward::circuits::CircuitBreakers;
pub(crate) use forward::circuits::CircuitOwner;
use forward::ip_filter::DnsResolver;
use plan::{CommandBlock, PublishMode, PublishPlan, ReceiverPlan};
pub use run::guard_client::GuardProgram;
pub use run::output::{AttemptOutput, OutputChunk};
pub use run::step::NodeEnvVars;
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub(crate) mod forward;
pub(crate) mod health_check;
pub(crate) mod notifier;
pub(crate) mod plan;
#[cfg(feature = "nats")]
pub(crate) mod publish;
pub(crate) mod run;
mod sql;

/// The future of an outcome; boxed, because the config chooses the action at run time.
pub type ActionFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// An action on events.
pub trait Action: Send + Sync {
    /// Makes one attempt. Not a `Result`: an unknown outcome is an outcome. Dropping the future ends the attempt.
    fn act<'a>(&'a self, attempt: Attempt<'a>) -> ActionFuture<'a>;

    /// The kind of action, stored with the lease of each attempt.
    fn kind(&self) -> ActionKind;

    /// Whether an attempt at this receiver may start. If it may, the caller must start one or call `release_probe`.
    fn ready(&self, _part: u16) -> CircuitAdmission {
        CircuitAdmission::Now
    }

    /// How many of its receivers are left alone because they did not answer.
    fn open_circuits(&self) -> usize {
        0
    }

    /// The attempt that was let begin did not.
    fn release_probe(&self, _part: u16) {}

    /// Whether the circuit of this receiver is closed; has no side effect.
    fn is_healthy(&self, _part: u16) -> bool {
        true
    }

    /// The SQL statement to run in the write that moves the event to done, if there is one.
    fn bound_statement(&self, _event: &Event, _payload: &Payload) -> Option<BoundStatement> {
        None
    }

    /// Maximum concurrent attempts at this receiver, if configured.
    fn concurrency_limit(&self, _part: u16) -> Option<usize> {
        None
    }
}

/// What a route does, as resolved from the config.
#[derive(Clone, Debug)]
pub enum ActionPlan {
    /// Runs these blocks, independent of each other.
    Run(Vec<CommandBlock>),
    /// Sends to these receivers, one event for each.
    Forward(Vec<ReceiverPlan>),
    /// Runs this statement in the write that moves the event to done.
    Sql(Arc<SqlTemplate>),
    /// Publishes to NATS.
    Publish(Box<PublishPlan>),
}

impl ActionPlan {
    /// The kind of action.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Run(_) => ActionKind::Run,
            Self::Forward(_) => ActionKind::Forward,
            Self::Sql(_) => ActionKind::Sql,
            Self::Publish(_) => ActionKind::Publish,
        }
    }

    /// Its first block of commands, if it runs commands.
    pub(crate) fn first_block(&self) -> Option<&CommandBlock> {
        match self {
            Self::Run(blocks) => blocks.first(),
            Self::Forward(_) | Self::Sql(_) | Self::Publish(_) => None,
        }
    }

    /// The fields without which it cannot act.
    pub fn fields(&self) -> Vec<Arc<str>> {
        match self {
            Self::Run(blocks) => blocks.iter().flat_map(CommandBlock::fields).collect(),
            Self::Forward(receivers) => receivers.iter().flat_map(ReceiverPlan::fields).collect(),
            Self::Publish(publish) => publish.fields(),
            // A missing field is NULL there.
            Self::Sql(_) => Vec::new(),
        }
    }

    /// Whether it gets this field, needed or not. A command gets every field as a variable.
    pub fn gets_field(&self, name: &str) -> bool {
        match self {
            Self::Run(_) => true,
            Self::Forward(_) | Self::Publish(_) => self.fields().iter().any(|field| **field == *name),
            Self::Sql(statement) => statement.names.iter().any(|named| match &named.what {
                SqlParamSource::Field(field) => **field == *name,
                _ => false,
            }),
        }
    }

    /// The sender's headers that it passes on, without duplicates.
    pub fn forwarded_headers(&self) -> Vec<String> {
        match self {
            Self::Run(_) | Self::Sql(_) => Vec::new(),
            Self::Forward(receivers) => {
                let all: BTreeSet<_> = receivers.iter().flat_map(|receiver| &receiver.pass).cloned().collect();
                all.into_iter().collect()
            }
            Self::Publish(publish) => publish.carries.clone(),
        }
    }

    /// How many events a delivery makes.
    pub fn events(&self) -> u16 {
        match self {
            Self::Run(_) | Self::Sql(_) | Self::Publish(_) => 1,
            Self::Forward(receivers) => u16::try_from(receivers.len()).unwrap_or(u16::MAX),
        }
    }

    /// Whether it takes a process of this machine: by default few run at once, and none is retried.
    pub fn is_process(&self) -> bool {
        match self {
            Self::Run(_) => true,
            Self::Forward(_) | Self::Sql(_) | Self::Publish(_) => false,
        }
    }

    /// Whether it may have acted although no outcome is known. A statement has not: it is rolled back.
    pub fn can_be_in_doubt(&self) -> bool {
        match self {
            Self::Run(_) | Self::Forward(_) | Self::Publish(_) => true,
            Self::Sql(_) => false,
        }
    }

    /// Whether a stream keeps what it publishes, once.
    pub fn is_kept_by_stream(&self) -> bool {
        match self {
            Self::Publish(publish) => publish.keeper == PublishMode::Stream,
            Self::Run(_) | Self::Forward(_) | Self::Sql(_) => false,
        }
    }

    /// Checks that what it needs is there. Changes and sends nothing.
    pub(crate) async fn check_live(&self, environment: &LiveCheckEnvironment<'_>) -> Vec<LiveCheck> {
        match self {
            Self::Run(blocks) => run::check_live(blocks, environment.variable),
            Self::Forward(receivers) => forward::check_live(receivers).await,
            #[cfg(feature = "nats")]
            Self::Publish(publish) => publish::check_live(publish, environment.servers).await,
            #[cfg(not(feature = "nats"))]
            Self::Publish(_) => Vec::new(),
            Self::Sql(_) => Vec::new(),
        }
    }
}

/// What a check of actions needs of its surroundings.
#[derive(Clone, Copy)]
pub(crate) struct LiveCheckEnvironment<'a> {
    /// Looks up an environment variable.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    /// Connections to NATS.
    #[cfg(feature = "nats")]
    pub(crate) servers: &'a publish::NatsConnections,
}

/// The check of one thing that a config refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LiveCheck {
    /// The kind of thing: secret, folder, …
    pub(crate) what: &'static str,
    /// Which one.
    pub(crate) name: String,
    /// A remark; or what is wrong, and what to do.
    pub(crate) found: Result<String, (String, String)>,
}

impl LiveCheck {
    pub(crate) fn new(what: &'static str, name: impl Into<String>, found: Result<String, (String, String)>) -> Self {
        Self { what, name: name.into(), found }
    }
}

/// What is wrong, and what to do.
pub(crate) fn failed_check<T>(why: impl Into<String>, hint: impl Into<String>) -> Result<T, (String, String)> {
    Err((why.into(), hint.into()))
}

/// Creates the action of a plan.
pub fn build_action(plan: ActionPlan, environment: &ActionEnvironment) -> Result<Arc<dyn Action>, ActionBuildError> {
    match plan {
        ActionPlan::Run(blocks) => Ok(Arc::new(run::RunAction::new(blocks, environment.clone()))),
        ActionPlan::Forward(receivers) => Ok(Arc::new(forward::ForwardAction::new(receivers, environment)?)),
        ActionPlan::Sql(statement) => Ok(Arc::new(sql::SqlAction(statement))),
        #[cfg(feature = "nats")]
        ActionPlan::Publish(publish) => Ok(Arc::new(publish::PublishAction::new(*publish, &environment.servers)?)),
        #[cfg(not(feature = "nats"))]
        ActionPlan::Publish(_) => Err(ActionBuildError("this hookonce was built without NATS".into())),
    }
}

/// One attempt at an event.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The event.
    pub event: &'a Event,
    /// Its headers and body.
    pub payload: &'a Payload,
    /// The lease.
    pub lease: &'a Lease,
    /// Where a finished block is recorded at once.
    pub blocks: &'a SharedSucceededBlocks,
    /// Where a command's output goes.
    pub output: &'a AttemptOutput,
    /// When it began, by the store's clock.
    pub at: Timestamp,
    /// Its span, if it is traced; the parent of what it calls.
    pub span: Option<TraceContext>,
    /// What the tag of its image points to, if its route asks a registry.
    pub digest: Option<&'a str>,
}

/// What actions need of the node they run on.
#[derive(Clone, Debug)]
pub struct ActionEnvironment {
    /// The node's environment variables that commands may get.
    pub variables: NodeEnvVars,
    /// The program that guards commands.
    pub guard: GuardProgram,
    /// The resolver for receivers whose host has a field in it.
    pub resolver: DnsResolver,
    /// The circuit breakers of receivers.
    pub circuits: CircuitBreakers,
    /// Connections to NATS, one for each server.
    #[cfg(feature = "nats")]
    pub servers: publish::NatsConnections,
}

impl ActionEnvironment {
    /// The same environment, for the receivers of this owner.
    #[must_use]
    pub(crate) fn of(&self, owner: CircuitOwner) -> Self {
        Self { circuits: self.circuits.of(owner), ..self.clone() }
    }
}

/// Why an action cannot be created on this machine.
#[derive(Clone, Debug)]
pub struct ActionBuildError(pub ErrorMessage);

impl fmt::Display for ActionBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ActionBuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// The trace context headers of an attempt: its own span, else a new span in the sender's trace or the event's.
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
