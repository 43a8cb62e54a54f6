//! A look at the stream that is published to, once there is a connection: what about it makes a promise smaller, said
//! in a line each, with the command that helps. Nothing here changes what is done.
//!
//! What the API tells: whether a stream takes the subject, how long it remembers ids, whether it keeps messages on disk,
//! whether it acknowledges at all or before it writes. Whether the server syncs before it acknowledges
//! (`sync_interval: always`) it tells nobody but its administrators: that line says so.

use super::Connection;
use crate::action::plan::nats::{Keeper, Publish, window};
use crate::action::spoken;
use crate::decide::time::Duration;
use crate::telemetry::{self, Level};
use async_nats::Client;
use async_nats::jetstream::stream::{Config, PersistenceMode, StorageType};
use async_nats::jetstream::{self, Context};
use std::sync::Arc;

/// How often a connection that is not there is looked for.
const LOOK: Duration = Duration::from_secs(10);

pub(super) async fn look(plan: Arc<Publish>, server: Arc<Connection>) {
    let client = loop {
        match server.up(LOOK).await {
            Ok(client) => break client,
            Err(why) => {
                say(Level::Warn, &server, &plan, &why, "it is tried again; events wait meanwhile");
                // An error may come at once: a file that cannot be read.
                tokio::time::sleep(LOOK).await;
            }
        }
    };
    if plan.keeper == Keeper::Nobody {
        let why = "core = true: who does not listen right now never gets it; at most once";
        return say(Level::Warn, &server, &plan, why, &plan.command());
    }
    match stream(&client, &plan.subjects()).await {
        Ok(config) => about(&plan, &server, &config),
        Err(why) => say(Level::Error, &server, &plan, &why, &plan.command()),
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

fn about(plan: &Publish, server: &Connection, stream: &Config) {
    let name = &stream.name;
    if stream.duplicate_window < plan.horizon {
        let why = format!(
            "the stream {name} remembers ids for {}, and the last attempt may come {} after the first: what was lost in \
             between may be stored twice",
            spoken(stream.duplicate_window),
            spoken(plan.horizon)
        );
        let hint = format!("nats stream edit {name} --dupe-window {}", window(plan.horizon));
        say(Level::Warn, server, plan, &why, &hint);
    }
    if stream.no_ack {
        let why = format!("the stream {name} acknowledges nothing, so every attempt ends in doubt");
        say(Level::Error, server, plan, &why, "make it anew without --no-ack");
    }
    if stream.storage == StorageType::Memory {
        let why = format!("the stream {name} is kept in memory: a server that restarts has lost it");
        say(Level::Warn, server, plan, &why, "make it anew with --storage file");
    }
    if stream.persist_mode == Some(PersistenceMode::Async) {
        let why = format!("the stream {name} acknowledges before it writes");
        say(Level::Warn, server, plan, &why, "make it anew with the default persist mode");
    }
    if server.first_to_tell() {
        let why = "the server does not tell whether it syncs before it acknowledges; by default it syncs every 2m, \
                   and a power failure may take what it acknowledged since";
        say(Level::Warn, server, plan, why, "jetstream { sync_interval: always } in its config");
    }
}

fn say(level: Level, server: &Connection, plan: &Publish, why: &str, hint: &str) {
    let subject = plan.subject.to_string();
    telemetry::say(
        level,
        "publish",
        &[("server", server.shown()), ("subject", &subject), ("why", why), ("hint", hint)],
    );
}
