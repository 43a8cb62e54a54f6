//! NATS servers: checks that they accept connections and that streams and consumers exist. Creates none.

use super::{LiveCheck, failed_check, plans};
use crate::action::plan::ActionPlan;
use crate::action::plan::{NatsServer, PublishPlan};
use crate::action::publish::{NatsConnections, stream_warnings};
use crate::config::{Config, StreamPlan, UNKNOWN_URL};
use crate::decide::time::Duration;
use crate::ingress::nats::check_consumer;
use async_nats::Client;
use std::io;

/// Connect timeout.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks publish targets, then stream sources.
pub(super) fn tried(config: &Config) -> io::Result<Vec<LiveCheck>> {
    let publishes = plans(config).into_iter().filter_map(|plan| match plan {
        ActionPlan::Publish(publish) => Some(&**publish),
        ActionPlan::Run(_) | ActionPlan::Forward(_) | ActionPlan::Sql(_) => None,
    });
    let publishes: Vec<_> = publishes.filter(|publish| publish.server.url != UNKNOWN_URL).collect();
    let streams = config.sources.iter().filter_map(|source| config.streams.get(&source.name));
    let streams: Vec<_> = streams.filter(|stream| stream.server.url != UNKNOWN_URL).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let servers = NatsConnections::default();
        let mut all = Vec::new();
        for publish in publishes {
            let name = format!("{} at {}", publish.subject, publish.server.shown);
            all.push(LiveCheck::new("publish", name, published(&servers, publish).await));
        }
        for stream in streams {
            all.push(LiveCheck::new("stream", stream.words(), taken(&servers, stream).await));
        }
        all
    }))
}

async fn connected(servers: &NatsConnections, server: &NatsServer) -> Result<Client, (String, String)> {
    let connection = servers.connection(server).map_err(|cannot| (cannot.to_string(), String::new()))?;
    let hint = "is it running, and are port and credentials right?";
    connection.connected(PATIENCE).await.map_err(|why| (why, hint.to_owned()))
}

async fn published(servers: &NatsConnections, plan: &PublishPlan) -> Result<String, (String, String)> {
    let client = connected(servers, &plan.server).await?;
    let warnings = stream_warnings(&client, plan).await;
    if let Some(doubt) = warnings.iter().find(|doubt| doubt.level == tracing::Level::ERROR) {
        return failed_check(&doubt.why, &doubt.hint);
    }
    let said = warnings.iter().map(|doubt| format!("{}: {}", doubt.why, doubt.hint)).collect::<Vec<_>>().join("; ");
    Ok(if said.is_empty() { "a stream stores it".into() } else { said })
}

async fn taken(servers: &NatsConnections, plan: &StreamPlan) -> Result<String, (String, String)> {
    let client = connected(servers, &plan.server).await?;
    match check_consumer(&client, plan).await {
        Ok(said) if said.is_empty() => Ok("can be read".into()),
        Ok(said) => Ok(said),
        Err(why) => failed_check(why, ""),
    }
}
