//! `health_check`: is what an action deployed healthy? Asks a URL or runs a command, again and again, until it is or the
//! time is over.
//!
//! Its output goes to the attempt's. It gets no standard input: a check is about what runs, not about the delivery.

use super::forward::ReceiverClient;
use super::plan::{CommandBlock, ReceiverPlan};
use super::run::RunAction;
use super::{ActionBuildError, ActionEnvironment, Attempt, LiveCheck, LiveCheckEnvironment, forward, run};
use crate::decide::claim::Payload;
use crate::decide::event::Outcome;
use crate::decide::time::{Duration, duration_text};
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};

/// The health check of a route, as resolved from the config.
#[derive(Clone, PartialEq, Debug)]
pub struct HealthCheckPlan {
    /// What is asked.
    pub probe: HealthProbePlan,
    /// How long it may take until it is healthy.
    pub within: Duration,
    /// The time from the beginning of one probe to the beginning of the next.
    pub every: Duration,
}

/// What a health check asks.
#[derive(Clone, PartialEq, Debug)]
pub enum HealthProbePlan {
    /// One command: exit code 0 is healthy.
    Run(CommandBlock),
    /// A URL, with GET: 2xx is healthy.
    Url(ReceiverPlan),
}

impl HealthCheckPlan {
    /// The fields that it needs.
    pub(crate) fn fields(&self) -> Vec<Arc<str>> {
        match &self.probe {
            HealthProbePlan::Run(block) => block.fields(),
            HealthProbePlan::Url(receiver) => receiver.fields(),
        }
    }

    /// The command or the URL, as it may be shown.
    pub(crate) fn shown(&self) -> String {
        match &self.probe {
            HealthProbePlan::Run(block) => block.steps.first().map(ToString::to_string).unwrap_or_default(),
            HealthProbePlan::Url(receiver) => receiver.display.clone(),
        }
    }

    /// Checks that what it needs is there. Runs and sends nothing.
    pub(crate) async fn check_live(&self, environment: &LiveCheckEnvironment<'_>) -> Vec<LiveCheck> {
        match &self.probe {
            HealthProbePlan::Run(block) => run::check_live(std::slice::from_ref(block), environment.variable),
            HealthProbePlan::Url(receiver) => forward::check_live(std::slice::from_ref(receiver)).await,
        }
    }
}

/// A health check that can be made on this machine.
pub(crate) struct HealthCheck {
    probe: HealthProbe,
    within: Duration,
    every: Duration,
}

enum HealthProbe {
    Run(Box<RunAction>, CommandBlock),
    Url(Box<ReceiverClient>),
}

/// The result of a health check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HealthVerdict {
    /// A probe succeeded in time.
    Healthy,
    /// None did; why the last one failed, as a sentence.
    Unhealthy(String),
    /// The lease ended before that was known.
    Interrupted(String),
}

impl HealthCheck {
    pub(crate) fn new(plan: HealthCheckPlan, environment: &ActionEnvironment) -> Result<Self, ActionBuildError> {
        let probe = match plan.probe {
            HealthProbePlan::Run(block) => {
                HealthProbe::Run(Box::new(RunAction::new(Vec::new(), environment.clone())), block)
            }
            HealthProbePlan::Url(receiver) => HealthProbe::Url(Box::new(ReceiverClient::new(receiver, environment)?)),
        };
        Ok(Self { probe, within: plan.within, every: plan.every })
    }

    /// Probes until one succeeds, the time is over, or the lease ends; the last time when the time is over. Dropping the
    /// future ends the probe.
    pub(crate) async fn check(&self, attempt: Attempt<'_>) -> HealthVerdict {
        let until = Instant::now() + self.within;
        for probes in 1_u64.. {
            let next = (Instant::now() + self.every).min(until);
            let found = tokio::select! {
                found = self.probe(attempt) => found,
                over = attempt.lease.ended() => return interrupted(over.why()),
            };
            if let Some(over) = attempt.lease.term().over() {
                return interrupted(over.why());
            }
            let said = found.as_ref().err().map_or("healthy", String::as_str);
            attempt.output.push(format!("health check {probes}: {said}\n").as_bytes());
            let why = match found {
                Ok(()) => return HealthVerdict::Healthy,
                Err(why) => why,
            };
            if Instant::now() >= until {
                let within = duration_text(self.within);
                return HealthVerdict::Unhealthy(format!("not healthy within {within}, checked {probes}×: {why}"));
            }
            tokio::select! {
                () = sleep_until(next) => {}
                over = attempt.lease.ended() => return interrupted(over.why()),
            }
        }
        interrupted("it was checked too often")
    }

    /// Probes once; `Err` says what was wrong, without a value of the payload.
    async fn probe(&self, attempt: Attempt<'_>) -> Result<(), String> {
        let nothing = Payload { headers: attempt.payload.headers.clone(), ..Payload::default() };
        let attempt = Attempt { payload: &nothing, ..attempt };
        match &self.probe {
            HealthProbe::Run(action, block) => match action.block(1, block, attempt).await {
                Outcome::Delivered(_) => Ok(()),
                outcome => Err(outcome.why().replacen("step 1 of block 1", "its command", 1)),
            },
            HealthProbe::Url(receiver) => receiver.get(attempt).await,
        }
    }
}

fn interrupted(why: &str) -> HealthVerdict {
    HealthVerdict::Interrupted(format!("{why} before it was known whether what it deployed is healthy"))
}
