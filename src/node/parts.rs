//! What a node makes of a config before it uses any of it: lanes, clients, streams and tags. If one of them cannot be
//! made, nothing has happened.

use super::{NodeRole, NodeStartError};
use crate::action::health_check::HealthCheck;
use crate::action::notifier::build_notifier;
#[cfg(feature = "nats")]
use crate::action::publish::NatsConnections;
use crate::action::{Action, ActionBuildError, ActionEnvironment, CircuitOwner, build_action};
use crate::catch_up::{CatchUpPlan, HookApi};
use crate::config::Config;
use crate::decide::error_message::ErrorMessage;
use crate::decide::id::Key;
use crate::decide::source::Source;
use crate::engine::dispatcher::Lane;
#[cfg(feature = "nats")]
use crate::ingress::nats::StreamIntake;
use crate::ingress::registry_poll::PollIntake;
use crate::key_fetch::{FetchedKeys, KeyFetcher};
use crate::registry::RegistryClients;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// What a config says that a node does.
pub(super) struct NodeParts {
    pub(super) lanes: Vec<Lane>,
    /// The APIs at which missed deliveries are asked for, in the order of the file.
    pub(super) hook_apis: Vec<HookApi>,
    /// What fetches the keys that senders publish, by the names of their sources.
    pub(super) key_fetchers: HashMap<Arc<str>, KeyFetcher>,
    #[cfg(feature = "nats")]
    pub(super) streams: Vec<StreamIntake>,
    pub(super) polls: Vec<PollIntake>,
}

impl NodeParts {
    /// The parts of a node with this role.
    pub(super) fn new(
        config: &Config,
        does: NodeRole,
        environment: &ActionEnvironment,
    ) -> Result<Self, NodeStartError> {
        Ok(Self {
            lanes: lanes(config, does, environment)?,
            hook_apis: hook_apis(config)?,
            key_fetchers: key_fetchers(config, environment)?,
            #[cfg(feature = "nats")]
            streams: streams(config, does, &environment.servers)?,
            polls: polls(config, does)?,
        })
    }
}

#[cfg(feature = "nats")]
fn streams(config: &Config, does: NodeRole, servers: &NatsConnections) -> Result<Vec<StreamIntake>, NodeStartError> {
    if does == NodeRole::Work {
        return Ok(Vec::new());
    }
    StreamIntake::all(config, servers).map_err(NodeStartError::new)
}

fn polls(config: &Config, does: NodeRole) -> Result<Vec<PollIntake>, NodeStartError> {
    #[cfg(not(feature = "nats"))]
    if let Some(source) = config.streams.keys().next() {
        return Err(NodeStartError::new(format!(
            "this hookonce was built without NATS, which the source {source} needs"
        )));
    }
    if does == NodeRole::Work {
        return Ok(Vec::new());
    }
    PollIntake::all(config).map_err(NodeStartError::new)
}

fn lanes(config: &Config, does: NodeRole, environment: &ActionEnvironment) -> Result<Vec<Lane>, NodeStartError> {
    let mut lanes = Vec::new();
    let mut registries = RegistryClients::default();
    for source in &config.sources {
        for route in &source.routes {
            if does == NodeRole::Ingest {
                lanes.push(Lane::closed(source.clone(), route.clone()));
                continue;
            }
            let environment = &environment.of(CircuitOwner::Route(source.name.clone(), route.name.clone()));
            let plan = config.plan(source, route);
            let action = plan.map(|plan| build_action(plan.clone(), environment)).transpose();
            let cannot_act = |cannot: ActionBuildError| {
                let why = format!("the route {} of source {} cannot act: {cannot}", route.name, source.name);
                NodeStartError::new(ErrorMessage::from(why).caused_by(cannot))
            };
            let action = action.map_err(cannot_act)?;
            let lookup = config.lookup(source, route).map(|plan| registries.lookup(plan)).transpose();
            let lookup = lookup.map_err(cannot_act)?;
            let health = config.health_check(source, route).map(|plan| HealthCheck::new(plan.clone(), environment));
            let health = health.transpose().map_err(cannot_act)?;
            lanes.push(Lane::new(source.clone(), route.clone(), action).asking(lookup).checking(health));
        }
    }
    lanes.extend(notification_lanes(config, does, environment)?);
    Ok(lanes)
}

/// A lane for each source and target of notifications. A target that several sources share has one action, so that it
/// is left alone by all of them while it does not answer.
fn notification_lanes(
    config: &Config,
    does: NodeRole,
    environment: &ActionEnvironment,
) -> Result<Vec<Lane>, NodeStartError> {
    let mut lanes = Vec::new();
    let mut actions: HashMap<Key, Arc<dyn Action>> = HashMap::new();
    for source in &config.sources {
        for notifier in config.notifiers.get(&source.name).into_iter().flatten() {
            let route = notifier.route.clone();
            if does == NodeRole::Ingest {
                lanes.push(Lane::closed(source.clone(), route));
                continue;
            }
            let action = match actions.entry(notifier.target.counted_at) {
                Entry::Occupied(built) => built.get().clone(),
                Entry::Vacant(place) => {
                    let environment = &environment.of(CircuitOwner::Target(notifier.target.counted_at));
                    let action = build_notifier(notifier.plan.clone(), environment).map_err(|cannot| {
                        let why = format!(
                            "the notification {} of source {} cannot be sent: {cannot}",
                            notifier.name, source.name
                        );
                        NodeStartError::new(ErrorMessage::from(why).caused_by(cannot))
                    })?;
                    place.insert(action).clone()
                }
            };
            lanes.push(Lane::new(source.clone(), route, Some(action)));
        }
    }
    Ok(lanes)
}

/// The APIs at which missed deliveries are asked for, in the order of the file.
fn hook_apis(config: &Config) -> Result<Vec<HookApi>, NodeStartError> {
    let planned = config.sources.iter().filter_map(|source| Some((source, config.catch_ups.get(&source.name)?)));
    let one = |(source, plan): (&Arc<Source>, &CatchUpPlan)| {
        HookApi::new(plan.clone(), source.clone()).map_err(|cannot| {
            let why = format!("the source {} cannot be caught up: {cannot}", source.name);
            NodeStartError::new(ErrorMessage::from(why).caused_by(cannot))
        })
    };
    planned.map(one).collect()
}

/// What fetches the keys that senders publish, by the names of their sources.
fn key_fetchers(
    config: &Config,
    environment: &ActionEnvironment,
) -> Result<HashMap<Arc<str>, KeyFetcher>, NodeStartError> {
    let one = |(source, keys): (&Arc<str>, &Arc<FetchedKeys>)| {
        let fetcher = KeyFetcher::new(source.clone(), keys.clone(), &environment.resolver);
        let fetcher = fetcher.map_err(|cannot| NodeStartError::new(ErrorMessage::from(cannot.to_string())))?;
        Ok((source.clone(), fetcher))
    };
    config.fetched_keys.iter().map(one).collect()
}
