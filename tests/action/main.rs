//! Actions against the real world: real processes behind the real guard, real sockets.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod command;
mod forward;
mod guard;
mod lifetime;
mod reach;
mod receiver;
mod sending;

use bytes::Bytes;
use hookonce::decide::claim::Payload;
use hookonce::decide::event::{Event, EventState, Outcome, QueueState, RetryOwner, SucceededBlocks};
use hookonce::decide::field::{FieldValue, StoredFields};
use hookonce::decide::id::{Digest, EventId, NodeId, QueueTurn, Revision};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::internals::action::DnsResolver;
use hookonce::internals::action::plan::{
    ActionPlan, CommandBlock, CommandLine, FieldTemplate, FieldTemplatePart, OutputDestination, WorkingDir,
};
use hookonce::internals::action::{
    Action, ActionEnvironment, Attempt, AttemptOutput, CircuitBreakers, GuardProgram, Lease, NodeEnvVars, OutputChunk,
    SharedSucceededBlocks, boottime, build_action,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::broadcast;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
const GUARD: &str = env!("CARGO_BIN_EXE_hookonce");

/// One attempt and all it needs.
struct Bench {
    dir: tempfile::TempDir,
    event: Event,
    payload: Payload,
    lease: Lease,
    blocks: SharedSucceededBlocks,
    output: AttemptOutput,
    live: broadcast::Receiver<OutputChunk>,
    at: Timestamp,
}

impl Bench {
    fn new() -> Self {
        let event = event([]);
        let (send, live) = broadcast::channel(64);
        Self {
            dir: tempfile::tempdir().unwrap(),
            payload: Payload::default(),
            lease: Lease::until(boottime() + PATIENCE * 4),
            blocks: SharedSucceededBlocks::new(SucceededBlocks::default()),
            output: AttemptOutput::new(event.id, (1, 1), send),
            event,
            live,
            at: Timestamp(1_770_000_000_000_000),
        }
    }

    fn with(fields: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self { event: event(fields), ..Self::new() }
    }

    fn body(bytes: impl Into<Bytes>) -> Self {
        Self { payload: Payload { headers: Vec::new(), body: bytes.into() }, ..Self::new() }
    }

    async fn act(&self, action: &dyn Action) -> Outcome {
        let (event, payload, lease) = (&self.event, &self.payload, &self.lease);
        action
            .act(Attempt {
                event,
                payload,
                lease,
                blocks: &self.blocks,
                output: &self.output,
                at: self.at,
                span: None,
                digest: None,
            })
            .await
    }

    /// One block of one shell step, in the bench's own folder.
    async fn sh(&self, text: &str) -> Outcome {
        self.act(&*run(vec![self.block([sh(text)])])).await
    }

    fn block(&self, steps: impl IntoIterator<Item = CommandLine>) -> CommandBlock {
        let dir = WorkingDir::Fixed(self.dir.path().to_owned());
        CommandBlock {
            dir,
            steps: steps.into_iter().collect(),
            timeout: PATIENCE,
            env: Vec::new(),
            output: OutputDestination::Store,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.output.to_bytes()).into_owned()
    }

    /// Waits for a file with a pid in it.
    async fn pid(&self, name: &str) -> i32 {
        until(&format!("{name} has a number"), || self.read(name).ends_with('\n')).await;
        self.read(name).trim().parse().unwrap()
    }
}

fn event(fields: impl IntoIterator<Item = (&'static str, String)>) -> Event {
    Event {
        id: EventId([0x5a; 16]),
        revision: Revision::FIRST,
        source: "ghcr".into(),
        route: "1".into(),
        part: 0,
        delivery_id: None,
        fields: fields
            .into_iter()
            .map(|(name, value)| (name.into(), FieldValue::Text(value.into())))
            .collect::<StoredFields>(),
        received_at: Timestamp(0),
        state: EventState::Running { until: Timestamp(0), by: NodeId("here".into()), action: None },
        life: 1,
        attempt: 1,
        doubts: 0,
        failed_lookups: 0,
        published_again: None,
        burst_since: None,
        resolved: None,
        origin: None,
        notifications: Vec::new(),
        blocks: SucceededBlocks::default(),
        queue_state: QueueState::Queued,
        retrier: RetryOwner::Sender,
        group: None,
        turn: QueueTurn(1),
        change: None,
        body_digest: Digest([0; 32]),
        digest: Digest([0; 32]),
    }
}

fn environment(vars: &[(&str, &str)], secrets: &[&str]) -> ActionEnvironment {
    let path = std::env::var("PATH").unwrap();
    let vars = vars.iter().copied().chain([("PATH", path.as_str())]);
    let secrets: BTreeSet<String> = secrets.iter().map(|&name| name.to_owned()).collect();
    let variables = NodeEnvVars::new(vars.map(|(name, value)| (name.to_owned(), value.to_owned())), &secrets);
    ActionEnvironment {
        variables,
        guard: GuardProgram(GUARD.into()),
        servers: hookonce::internals::action::NatsConnections::default(),
        resolver: DnsResolver::default(),
        circuits: CircuitBreakers::default(),
    }
}

fn run(blocks: Vec<CommandBlock>) -> Arc<dyn Action> {
    build_action(ActionPlan::Run(blocks), &environment(&[], &[])).unwrap()
}

fn sh(text: &str) -> CommandLine {
    CommandLine::Shell { shell: vec!["sh".into(), "-c".into()], text: text.into() }
}

/// `{name}` is a field.
fn argv<const N: usize>(arguments: [&str; N]) -> CommandLine {
    let template = |text: &str| match text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(name) => FieldTemplate(vec![FieldTemplatePart::Field(name.into())]),
        None => text.into(),
    };
    CommandLine::Argv(arguments.into_iter().map(template).collect())
}

/// Waits until this is true.
async fn until(what: &str, fact: impl Fn() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Is there such a process, and not a zombie?
fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}
