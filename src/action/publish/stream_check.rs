//! Checks the stream that is published to, once connected, and logs each setting that weakens a guarantee, with the
//! command that fixes it. Only logs.
//!
//! The API shows whether a stream has the subject, its duplicate window, its storage, and whether it acknowledges at
//! all or before it writes. Whether the server syncs before it acknowledges (`sync_interval: always`) is visible only
//! to its administrators; a log line says so.

use super::{NatsConnection, NatsConnections, NatsServerVersion};
use crate::action::plan::{NatsServer, PublishMode, PublishPlan, UNKNOWN_URL, window};
use crate::action::{LiveCheck, failed_check};
use crate::decide::time::{Duration, duration_text};
use async_nats::Client;
use async_nats::jetstream::stream::{Config, PersistenceMode, StorageType};
use async_nats::jetstream::{self, Context};
use std::sync::Arc;
use tracing::{Level, error, warn};

/// How often a missing connection is checked.
const LOOK: Duration = Duration::from_secs(10);
/// Connect timeout of a live check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// A setting of a stream that weakens a guarantee.
pub(crate) struct StreamWarning {
    /// An error: nothing can be published. Else it is worth knowing.
    pub level: Level,
    /// What it is.
    pub why: String,
    /// What to do.
    pub hint: String,
}

impl StreamWarning {
    fn new(level: Level, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { level, why: why.into(), hint: hint.into() }
    }
}

pub(super) async fn warn_about_stream(plan: Arc<PublishPlan>, server: Arc<NatsConnection>) {
    let client = loop {
        match server.connected(LOOK).await {
            Ok(client) => break client,
            Err(why) => {
                let hint = "retrying; events wait meanwhile";
                say(&server, &plan, &StreamWarning::new(Level::WARN, why, hint));
                // An error may come at once: a file that cannot be read.
                tokio::time::sleep(LOOK).await;
            }
        }
    };
    for doubt in stream_warnings(&client, &plan).await {
        say(&server, &plan, &doubt);
    }
    if plan.keeper == PublishMode::Stream && server.claim_sync_warning() {
        let why = "the server does not reveal whether it syncs before it acknowledges; by default it syncs every minute \
                   or two, and a power failure may lose what it acknowledged since";
        let version = NatsServerVersion::of(&client);
        let config = "set jetstream { sync_interval: always } in its config";
        let hint = if version.can_sync_always() {
            config.to_owned()
        } else {
            format!("{config}, with nats-server 2.10 or newer; it is {version}")
        };
        say(&server, &plan, &StreamWarning::new(Level::WARN, why, hint));
    }
}

/// The warnings about a plan's stream.
pub(crate) async fn stream_warnings(client: &Client, plan: &PublishPlan) -> Vec<StreamWarning> {
    let old = NatsServerVersion::of(client).too_old();
    let mut warnings: Vec<_> =
        old.map(|why| StreamWarning::new(Level::WARN, why, "install a newer version")).into_iter().collect();
    warnings.extend(delivery_warnings(client, plan).await);
    warnings
}

async fn delivery_warnings(client: &Client, plan: &PublishPlan) -> Vec<StreamWarning> {
    if plan.keeper == PublishMode::Core {
        let why = "core = true: at most once; lost if there is no subscriber";
        return vec![StreamWarning::new(Level::WARN, why, plan.create_stream_command())];
    }
    match stream(client, &plan.subjects()).await {
        Ok(config) => config_warnings(plan, &config),
        Err(why) => vec![StreamWarning::new(Level::ERROR, why, plan.create_stream_command())],
    }
}

/// The stream with this subject.
async fn stream(client: &Client, subjects: &str) -> Result<Config, String> {
    let context: Context = jetstream::new(client.clone());
    let name = context.stream_by_subject(subjects).await;
    let name = name.map_err(|_| format!("no stream has the subject `{subjects}`, so every attempt fails"))?;
    let found =
        context.get_stream(&name).await.map_err(|error| format!("the stream {name} cannot be read: {error}"))?;
    Ok(found.cached_info().config.clone())
}

fn config_warnings(plan: &PublishPlan, stream: &Config) -> Vec<StreamWarning> {
    let name = &stream.name;
    let mut warnings = Vec::new();
    if stream.duplicate_window < plan.retry_horizon {
        let why = format!(
            "the stream {name} has a duplicate window of {}, but the last attempt may come {} after the first: a message \
             whose acknowledgement was lost may be stored twice",
            duration_text(stream.duplicate_window),
            duration_text(plan.retry_horizon)
        );
        let hint = format!("nats stream edit {name} --dupe-window {}", window(plan.retry_horizon));
        warnings.push(StreamWarning::new(Level::WARN, why, hint));
    }
    if stream.no_ack {
        let why = format!("the stream {name} does not acknowledge, so every attempt ends in doubt");
        warnings.push(StreamWarning::new(Level::ERROR, why, "recreate it without --no-ack"));
    }
    if stream.storage == StorageType::Memory {
        let why = format!("the stream {name} is kept in memory: a server restart loses it");
        warnings.push(StreamWarning::new(Level::WARN, why, "recreate it with --storage file"));
    }
    if stream.persist_mode == Some(PersistenceMode::Async) {
        let why = format!("the stream {name} acknowledges before it writes");
        warnings.push(StreamWarning::new(Level::WARN, why, "recreate it with the default persist mode"));
    }
    warnings
}

fn say(server: &NatsConnection, plan: &PublishPlan, doubt: &StreamWarning) {
    let (server, subject, StreamWarning { level, why, hint }) = (server.shown(), &plan.subject, doubt);
    if *level == Level::ERROR {
        error!(target: "hookonce", server, %subject, why, hint, "publish");
    } else {
        warn!(target: "hookonce", server, %subject, why, hint, "publish");
    }
}

/// Connects to the server of a plan and looks at its stream. Creates none.
pub(crate) async fn check_live(plan: &PublishPlan, servers: &NatsConnections) -> Vec<LiveCheck> {
    if plan.server.url == UNKNOWN_URL {
        return Vec::new();
    }
    let name = format!("{} at {}", plan.subject, plan.server.shown);
    vec![LiveCheck::new("publish", name, published(servers, plan).await)]
}

/// Connects to a server for a live check.
pub(crate) async fn connected(servers: &NatsConnections, server: &NatsServer) -> Result<Client, (String, String)> {
    let connection = servers.connection(server).map_err(|cannot| (cannot.to_string(), String::new()))?;
    let hint = "is it running, and are port and credentials right?";
    connection.connected(CHECK_TIMEOUT).await.map_err(|why| (why, hint.to_owned()))
}

async fn published(servers: &NatsConnections, plan: &PublishPlan) -> Result<String, (String, String)> {
    let client = connected(servers, &plan.server).await?;
    let warnings = stream_warnings(&client, plan).await;
    if let Some(doubt) = warnings.iter().find(|doubt| doubt.level == Level::ERROR) {
        return failed_check(&doubt.why, &doubt.hint);
    }
    let said = warnings.iter().map(|doubt| format!("{}: {}", doubt.why, doubt.hint)).collect::<Vec<_>>().join("; ");
    Ok(if said.is_empty() { "a stream stores it".into() } else { said })
}
