//! A look at the stream that is published to, once there is a connection: what about it makes a promise smaller, said
//! in a line each, with the command that helps. Nothing here changes what is done.
//!
//! What the API tells: whether a stream takes the subject, how long it remembers ids, whether it keeps messages on disk,
//! whether it acknowledges at all or before it writes. Whether the server syncs before it acknowledges
//! (`sync_interval: always`) it tells nobody but its administrators: that line says so.

use super::{NatsConnection, NatsServerVersion};
use crate::action::plan::{PublishMode, PublishPlan, window};
use crate::decide::time::Duration;
use crate::decide::time::duration_text;
use async_nats::Client;
use async_nats::jetstream::stream::{Config, PersistenceMode, StorageType};
use async_nats::jetstream::{self, Context};
use std::sync::Arc;
use tracing::{Level, error, warn};

/// How often a connection that is not there is looked for.
const LOOK: Duration = Duration::from_secs(10);

/// What about a stream makes a promise smaller.
pub(crate) struct StreamWarning {
    /// An error: nothing can be published. Else it is worth knowing.
    pub level: Level,
    /// What it is.
    pub why: String,
    /// What to do about it.
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
                let hint = "it is tried again; events wait meanwhile";
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
        let why = "the server does not tell whether it syncs before it acknowledges; by default it syncs every minute \
                   or two, and a power failure may take what it acknowledged since";
        let version = NatsServerVersion::of(&client);
        let config = "jetstream { sync_interval: always } in its config";
        let hint = if version.can_sync_always() {
            config.to_owned()
        } else {
            format!("{config}, with nats-server 2.10 or newer; it is {version}")
        };
        say(&server, &plan, &StreamWarning::new(Level::WARN, why, hint));
    }
}

/// What is to be said of where this plan publishes.
pub(crate) async fn stream_warnings(client: &Client, plan: &PublishPlan) -> Vec<StreamWarning> {
    let old = NatsServerVersion::of(client).too_old();
    let mut warnings: Vec<_> =
        old.map(|why| StreamWarning::new(Level::WARN, why, "install a newer one")).into_iter().collect();
    warnings.extend(delivery_warnings(client, plan).await);
    warnings
}

async fn delivery_warnings(client: &Client, plan: &PublishPlan) -> Vec<StreamWarning> {
    if plan.keeper == PublishMode::Core {
        let why = "core = true: who does not listen right now never gets it; at most once";
        return vec![StreamWarning::new(Level::WARN, why, plan.create_stream_command())];
    }
    match stream(client, &plan.subjects()).await {
        Ok(config) => config_warnings(plan, &config),
        Err(why) => vec![StreamWarning::new(Level::ERROR, why, plan.create_stream_command())],
    }
}

/// The stream that takes this subject.
async fn stream(client: &Client, subjects: &str) -> Result<Config, String> {
    let context: Context = jetstream::new(client.clone());
    let name = context.stream_by_subject(subjects).await;
    let name = name.map_err(|_| format!("no stream takes `{subjects}`, so nothing is kept and every attempt fails"))?;
    let found =
        context.get_stream(&name).await.map_err(|error| format!("the stream {name} cannot be seen: {error}"))?;
    Ok(found.cached_info().config.clone())
}

fn config_warnings(plan: &PublishPlan, stream: &Config) -> Vec<StreamWarning> {
    let name = &stream.name;
    let mut warnings = Vec::new();
    if stream.duplicate_window < plan.retry_horizon {
        let why = format!(
            "the stream {name} remembers ids for {}, and the last attempt may come {} after the first: what was lost in \
             between may be stored twice",
            duration_text(stream.duplicate_window),
            duration_text(plan.retry_horizon)
        );
        let hint = format!("nats stream edit {name} --dupe-window {}", window(plan.retry_horizon));
        warnings.push(StreamWarning::new(Level::WARN, why, hint));
    }
    if stream.no_ack {
        let why = format!("the stream {name} acknowledges nothing, so every attempt ends in doubt");
        warnings.push(StreamWarning::new(Level::ERROR, why, "make it anew without --no-ack"));
    }
    if stream.storage == StorageType::Memory {
        let why = format!("the stream {name} is kept in memory: a server that restarts has lost it");
        warnings.push(StreamWarning::new(Level::WARN, why, "make it anew with --storage file"));
    }
    if stream.persist_mode == Some(PersistenceMode::Async) {
        let why = format!("the stream {name} acknowledges before it writes");
        warnings.push(StreamWarning::new(Level::WARN, why, "make it anew with the default persist mode"));
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
