//! `hookonce notify test`: sends a test message to the targets of the config, and prints what each answered. Nothing is
//! written to the store, and no running node is needed.

use super::error::CommandError;
use super::terminal::one_line;
use crate::action::forward::ip_filter::DnsResolver;
use crate::action::notifier::{NotifierPlan, build_notifier};
use crate::action::plan::FieldTemplatePart;
#[cfg(feature = "nats")]
use crate::action::publish::NatsConnections;
use crate::action::{
    ActionEnvironment, Attempt, AttemptOutput, CircuitBreakers, GuardProgram, Lease, NodeEnvVars,
    SharedSucceededBlocks, boottime,
};
use crate::config::{self, Config, ConfiguredNotifier, EnvLookup};
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::{
    DeathCause, DoneReason, Event, EventState, Outcome, QueueState, RetryOwner, SucceededBlocks,
};
use crate::decide::field::{FieldValue, StoredFields};
use crate::decide::id::{Digest, EventId, QueueTurn, Revision};
use crate::decide::nearest_name::nearest;
use crate::decide::notification::NotificationKind;
use crate::decide::source::{Route, Source};
use crate::decide::time::{Duration, Timestamp};
use crate::store::clock::StoreClock;
use clap::Args;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::broadcast;

/// How long one target may take, whatever its config says.
const TEST_TIME: Duration = Duration::from_mins(1);
/// A repository that looks like one.
const TEST_REPOSITORY: &str = "owner/name";
/// A commit that looks like one.
const TEST_COMMIT: &str = "0000000000000000000000000000000000000000";

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
    /// Value of a field; the others have their own names as values, or stand for a repository or a commit
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
        circuits: CircuitBreakers::default(),
        #[cfg(feature = "nats")]
        servers: NatsConnections::default(),
    };
    check_names(asked, &config)?;
    let targets = targets(asked, &config, kind);
    let given = given_fields(&asked.fields, &targets)?;
    let (mut sent, mut failed) = (0, 0);
    for (source, route, notifier) in targets {
        let event = sample_event(source, route, kind, &[&given[..], &commit_values(&notifier.plan)].concat());
        let outcome = send(notifier, &event, kind, &environment).await?;
        let word = match &outcome {
            Outcome::Delivered(_) => "ok",
            _ => "failed",
        };
        let answer = match &outcome {
            Outcome::Delivered(Some(receipt)) => format!("answered {}", receipt.status),
            Outcome::Delivered(None) => "done".to_owned(),
            Outcome::Rejected { why, .. } => format!("{why}{}", commit_hint(&notifier.plan, &given)),
            other => other.why().to_owned(),
        };
        (sent, failed) = (sent + 1, failed + u8::from(word == "failed"));
        let place = format!("{}/{}", source.name, route.name);
        writeln!(out, "{word:<6} {} ({}) of {place}: {answer}", notifier.name, notifier.plan.word())?;
    }
    if sent == 0 {
        return Err(CommandError::no(format!(
            "no target is told about `{}`; `hookonce help config notify` has the keys of `notify`",
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

/// Checks that the config has the source and the route that are asked for.
fn check_names(asked: &NotifyTestArgs, config: &Config) -> Result<(), CommandError> {
    let sources: Vec<_> = config.sources.iter().map(|source| &*source.name).collect();
    if let Some(name) = &asked.source {
        known(name, &sources, |name| format!("the config has no source `{name}`"))?;
    }
    let Some(name) = &asked.route else { return Ok(()) };
    let of_source = config.sources.iter().filter(|of| asked.source.as_deref().is_none_or(|wanted| wanted == &*of.name));
    let routes: BTreeSet<_> = of_source.flat_map(|source| &source.routes).map(|route| &*route.name).collect();
    let routes: Vec<_> = routes.into_iter().collect();
    let owner = asked.source.as_ref().map_or("the config".to_owned(), |source| format!("source `{source}`"));
    known(name, &routes, |name| format!("{owner} has no route `{name}`"))
}

/// Says that this name is unknown, if it is, which ones there are, and which was most likely meant.
fn known(name: &str, names: &[&str], wrong: impl FnOnce(&str) -> String) -> Result<(), CommandError> {
    if names.contains(&name) {
        return Ok(());
    }
    let all = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    let meant = nearest(name, names.iter().copied()).map(|name| format!("; did you mean `{name}`?"));
    Err(CommandError::unknown(format!("{}{all}{}", wrong(&one_line(name)), meant.unwrap_or_default())))
}

/// The values that the command line gives. Each must be of a field that a target uses: those about a commit use only the
/// fields that name it, the others tell of all.
fn given_fields<'a>(
    given: &'a [String],
    targets: &[(&Source, &Route, &ConfiguredNotifier)],
) -> Result<Vec<(&'a str, &'a str)>, CommandError> {
    let used = targets.iter().flat_map(|(source, _, notifier)| {
        let all = || source.fields.iter().map(|field| field.name.clone()).collect();
        if notifier.plan.is_about_a_commit() { notifier.plan.fields() } else { all() }
    });
    let used: BTreeSet<Arc<str>> = used.collect();
    let names: Vec<&str> = used.iter().map(|name| &**name).collect();
    let mut values = Vec::new();
    for pair in given {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(CommandError::unknown(format!("--field {pair}: expected NAME=VALUE")));
        };
        if !targets.is_empty() {
            known(name, &names, |name| format!("no target uses a field `{name}`"))?;
        }
        values.push((name, value));
    }
    Ok(values)
}

/// The fields that are a whole repository or a whole commit for this target, with values that look like one.
fn commit_values(plan: &NotifierPlan) -> Vec<(&str, &'static str)> {
    let (NotifierPlan::GithubStatus(plan) | NotifierPlan::GithubDeployment(plan)) = plan else { return Vec::new() };
    let templates = [(&plan.repository, TEST_REPOSITORY), (&plan.commit, TEST_COMMIT)];
    let whole = templates.into_iter().filter_map(|(template, value)| match &template.0[..] {
        [FieldTemplatePart::Field(name)] => Some((&**name, value)),
        _ => None,
    });
    whole.collect()
}

/// How to test with a commit that there is, if this target's was made up.
fn commit_hint(plan: &NotifierPlan, given: &[(&str, &str)]) -> String {
    let fields = if plan.is_about_a_commit() { plan.fields() } else { Vec::new() };
    if fields.iter().all(|name| given.iter().any(|(given, _)| *given == &**name)) {
        return String::new();
    }
    let flags: Vec<_> = fields.iter().map(|name| format!("--field {name}=…")).collect();
    format!("; test with a real commit: {}", flags.join(" "))
}

/// An event that has ended as if it had been acted on. Fields without a value have their own names.
fn sample_event(source: &Source, route: &Route, kind: NotificationKind, values: &[(&str, &str)]) -> Event {
    let value = |name: &str| values.iter().find(|(of, _)| *of == name).map_or(name, |(_, value)| value).into();
    let fields: StoredFields =
        source.fields.iter().map(|field| (field.name.clone(), FieldValue::Text(value(&field.name)))).collect();
    let now = StoreClock::wall(Timestamp::default()).now();
    let state = match kind {
        NotificationKind::Dead => EventState::Dead { cause: DeathCause::Failed, at: now },
        _ => EventState::Done { how: DoneReason::Acted, at: now },
    };
    Event {
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
    }
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
