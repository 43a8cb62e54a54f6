//! `hookonce notify test`: sends a test message to the targets of the config, and prints what each answered. Nothing is
//! written to the store, and no running node is needed.

use super::error::CommandError;
use crate::action::forward::ip_filter::DnsResolver;
use crate::action::notifier::build_notifier;
#[cfg(feature = "nats")]
use crate::action::publish::NatsConnections;
use crate::action::{
    ActionEnvironment, Attempt, AttemptOutput, GuardProgram, Lease, NodeEnvVars, SharedSucceededBlocks, boottime,
};
use crate::config::{self, Config, ConfiguredNotifier, EnvLookup};
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::{
    DeathCause, DoneReason, Event, EventState, Outcome, QueueState, RetryOwner, SucceededBlocks,
};
use crate::decide::field::{FieldValue, StoredFields};
use crate::decide::id::{Digest, EventId, QueueTurn, Revision};
use crate::decide::notification::NotificationKind;
use crate::decide::source::{Route, Source};
use crate::decide::time::{Duration, Timestamp};
use crate::store::clock::StoreClock;
use clap::Args;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::broadcast;

/// How long one target may take, whatever its config says.
const TEST_TIME: Duration = Duration::from_mins(1);

/// What to send, and to whom.
#[derive(Args, Debug)]
pub(crate) struct NotifyTestArgs {
    /// Only the targets of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only the targets of this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// What the message tells: only targets that are told about it get one
    #[arg(long, value_name = "KIND", default_value = "dead", value_parser = ["dead", "rollback", "done"])]
    on: String,
    /// Value of a field; the other fields have their own names as values
    #[arg(long = "field", value_name = "NAME=VALUE")]
    fields: Vec<String>,
}

/// Sends a test message to each target.
pub(crate) async fn test(
    asked: &NotifyTestArgs,
    explicit: Option<&Path>,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> Result<u8, CommandError> {
    let config = config::load(&config::find(explicit, env)?, env)?;
    let kind = NotificationKind::parse(&asked.on).unwrap_or(NotificationKind::Dead);
    let environment = ActionEnvironment {
        variables: NodeEnvVars::own(&config.secret_env_names),
        guard: GuardProgram::default(),
        resolver: DnsResolver::default(),
        #[cfg(feature = "nats")]
        servers: NatsConnections::default(),
    };
    let (mut sent, mut failed) = (0, 0);
    for (source, route, notifier) in targets(asked, &config, kind) {
        let event = sample_event(source, route, kind, &asked.fields)?;
        let outcome = send(notifier, &event, kind, &environment).await?;
        let word = match &outcome {
            Outcome::Delivered(_) => "ok",
            _ => "failed",
        };
        let answer = match &outcome {
            Outcome::Delivered(Some(receipt)) => format!("answered {}", receipt.status),
            Outcome::Delivered(None) => "done".to_owned(),
            other => other.why().to_owned(),
        };
        (sent, failed) = (sent + 1, failed + u8::from(word == "failed"));
        let place = format!("{}/{}", source.name, route.name);
        writeln!(out, "{word:<6} {} ({}) of {place}: {answer}", notifier.name, notifier.plan.word())?;
    }
    if sent == 0 {
        return Err(CommandError::no(format!(
            "no target is told about `{}`; see `notify` in docs/config.md",
            asked.on
        )));
    }
    Ok(failed.min(1))
}

/// The targets that are told, each once, with a source and a route that they belong to.
fn targets<'c>(
    asked: &NotifyTestArgs,
    config: &'c Config,
    kind: NotificationKind,
) -> Vec<(&'c Source, &'c Route, &'c ConfiguredNotifier)> {
    let mut all: Vec<(&Source, &Route, &ConfiguredNotifier)> = Vec::new();
    let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    for source in config.sources.iter().filter(|source| is(&asked.source, &source.name)) {
        for route in source.routes.iter().filter(|route| is(&asked.route, &route.name)) {
            for notifier in config.notifiers.get(&source.name).into_iter().flatten() {
                let is_told = route.notify.iter().any(|target| target.route == notifier.target.route);
                let known = all.iter().any(|(.., other)| other.target.counted_at == notifier.target.counted_at);
                if is_told && notifier.target.on.contains(&kind) && !known {
                    all.push((source, route, notifier));
                }
            }
        }
    }
    all
}

/// An event that has ended as if it had been acted on, with sample fields.
fn sample_event(
    source: &Source,
    route: &Route,
    kind: NotificationKind,
    given: &[String],
) -> Result<Event, CommandError> {
    let mut values = Vec::new();
    for pair in given {
        match pair.split_once('=') {
            Some((name, value)) => values.push((name, value)),
            None => return Err(CommandError::unknown(format!("--field {pair}: expected NAME=VALUE"))),
        }
    }
    let value =
        |name: &str| values.iter().find(|(given, _)| *given == name).map_or(name.to_owned(), |(_, v)| (*v).to_owned());
    let fields: StoredFields =
        source.fields.iter().map(|field| (field.name.clone(), FieldValue::Text(value(&field.name).into()))).collect();
    let now = StoreClock::wall(Timestamp::default()).now();
    let state = match kind {
        NotificationKind::Dead => EventState::Dead { cause: DeathCause::Failed, at: now },
        _ => EventState::Done { how: DoneReason::Acted, at: now },
    };
    Ok(Event {
        id: EventId(*uuid::Uuid::now_v7().as_bytes()),
        revision: Revision::FIRST,
        source: source.name.clone(),
        route: route.name.clone(),
        part: 0,
        delivery_id: None,
        fields,
        received_at: now,
        state,
        life: 1,
        attempt: 1,
        doubts: 0,
        failed_lookups: 0,
        blocks: SucceededBlocks::default(),
        queue_state: QueueState::Queued,
        retrier: RetryOwner::Node,
        group: None,
        turn: QueueTurn(0),
        change: None,
        published_again: None,
        burst_since: None,
        resolved: None,
        origin: None,
        notifications: Vec::new(),
        body_digest: Digest::of(b""),
        digest: Digest::of(b""),
    })
}

/// Sends one message, as a node would.
async fn send(
    notifier: &ConfiguredNotifier,
    ended: &Event,
    kind: NotificationKind,
    environment: &ActionEnvironment,
) -> Result<Outcome, CommandError> {
    let action = build_notifier(notifier.plan.clone(), environment);
    let action = action.map_err(|cannot| CommandError::unknown(ErrorMessage::of(cannot)))?;
    let (event, payload) = ended.test_notification(kind, &notifier.target);
    let lease = Arc::new(Lease::until(boottime() + TEST_TIME));
    let blocks = SharedSucceededBlocks::new(event.blocks);
    let output = AttemptOutput::new(event.id, (event.life, event.attempt), broadcast::Sender::new(1));
    let attempt = Attempt {
        event: &event,
        payload: &payload,
        lease: &lease,
        blocks: &blocks,
        output: &output,
        at: event.received_at,
        span: None,
        digest: None,
    };
    Ok(action.act(attempt).await)
}
