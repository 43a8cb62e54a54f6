//! `health_check` and `on_unhealthy`: whether what a route deployed is healthy, and what happens if it is not.

use super::describe::{LabelledTexts, labelled};
use super::fields::SourceFieldScope;
use super::keys::{ConfigKey, ConfigValueType, SectionKeys, key};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::action::ActionPlan;
use crate::action::health_check::{HealthCheckPlan, HealthProbePlan};
use crate::action::plan::{CommandBlock, CommandLine, OutputDestination, ReceiverPlan, WorkingDir};
use crate::decide::limits;
use crate::decide::source::{ChangeRule, OnUnhealthy, ResponseMode, Route};
use crate::decide::time::{Duration, duration_text};
use serde::Serialize;
use utoipa::ToSchema;

pub(super) static HEALTH_KEYS: [ConfigKey; 2] = [
    key(
        "health_check",
        ConfigValueType::Table(&HEALTH_CHECK_KEYS),
        "none",
        "Checks, after the action of run or forward has succeeded, that what it deployed is healthy.",
    ),
    key(
        "on_unhealthy",
        ConfigValueType::Word(&["hold", "rollback"]),
        "hold",
        "If it is not, the event is dead of `unhealthy`. rollback: the route then runs once more, with the last good event of the subject; needs `change`.",
    ),
];

pub(super) static HEALTH_CHECK_KEYS: SectionKeys = SectionKeys {
    name: "health_check",
    title: "`health_check = { … }`",
    about: "Asks a URL or runs a command until what was deployed is healthy. After a crash only the check is repeated.",
    keys: &[&[
        key("url", ConfigValueType::Open, "none", "Asked with GET: 2xx is healthy. May contain {field}."),
        key(
            "run",
            ConfigValueType::Texts,
            "none",
            "Instead of `url`: a program and its arguments, with {field} as in a step. Exit code 0 is healthy. Folder and environment are those of the first block of `run`.",
        ),
        key("within", ConfigValueType::Duration, "2m", "How long it may take until it is healthy, at most 1h."),
        key("every", ConfigValueType::Duration, "5s", "How often it is checked, at least 100ms apart."),
        key(
            "timeout",
            ConfigValueType::Duration,
            "10s, or `within` if that is shorter",
            "How long one check may take.",
        ),
        key(
            "allow",
            ConfigValueType::Texts,
            "none",
            "Address ranges besides the public internet that a url with {field} in it may reach, such as [\"10.0.0.0/8\"].",
        ),
    ]],
};

const WITHIN: Duration = Duration::from_mins(2);
const EVERY: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);

impl ConfigResolver<'_> {
    /// The health check of a route; `None` if it has none or it is invalid.
    pub(super) fn health_check(
        &mut self,
        route: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        respond: ResponseMode,
        plan: Option<&ActionPlan>,
    ) -> Option<HealthCheckPlan> {
        let section = route.section("health_check")?;
        self.can_check_health(route, respond, plan);
        let (within, every) = self.health_times(&section);
        let timeout = self.positive(&section, "timeout").unwrap_or(TIMEOUT.min(within));
        if timeout > within {
            self.diagnostics
                .error("`timeout` is longer than `within`")
                .at(section.place("timeout"), format!("`within` is {}", duration_text(within)));
        }
        let probe = match (section.node("url"), section.node("run")) {
            (Some(_), Some(run)) => {
                self.diagnostics.error("`url` and `run` are both health checks").at(run.at, "one of them, not both");
                return None;
            }
            (Some(node), None) => {
                let allow = self.allow(&section);
                let (url, display) = self.url(node, &allow, names)?;
                HealthProbePlan::Url(ReceiverPlan { display, allow, ..ReceiverPlan::new(url, timeout) })
            }
            (None, Some(node)) => {
                let step = self.step(node, &[], names)?;
                HealthProbePlan::Run(self.health_command(step, timeout, plan))
            }
            (None, None) => {
                self.diagnostics
                    .error("`health_check` has neither `url` nor `run`")
                    .unless(section.misspells("url") || section.misspells("run"))
                    .at(section.at, "")
                    .hint("health_check = { url = \"http://127.0.0.1:8080/healthz\" }");
                return None;
            }
        };
        Some(HealthCheckPlan { probe, within, every })
    }

    /// The command of a health check, in the folder and the environment of the action's first block.
    fn health_command(&self, step: CommandLine, timeout: Duration, plan: Option<&ActionPlan>) -> CommandBlock {
        let first = plan.and_then(ActionPlan::first_block);
        CommandBlock {
            dir: first.map_or_else(|| WorkingDir::Fixed(self.base.to_owned()), |block| block.dir.clone()),
            steps: vec![step],
            timeout,
            env: first.map(|block| block.env.clone()).unwrap_or_default(),
            output: OutputDestination::Store,
        }
    }

    fn health_times(&mut self, section: &ConfigSection<'_>) -> (Duration, Duration) {
        let within = self.positive(section, "within").unwrap_or(WITHIN);
        let every = section.duration("every").unwrap_or(EVERY.min(within));
        if within > limits::HEALTH_WITHIN_MAX {
            self.diagnostics
                .error("`within` is too long")
                .at(section.place("within"), format!("at most {}", duration_text(limits::HEALTH_WITHIN_MAX)))
                .hint("while it is checked, other events of its group wait");
        }
        if every < limits::HEALTH_EVERY_MIN {
            self.diagnostics
                .error("`every` is too short")
                .unless(!section.has("every"))
                .at(section.place("every"), format!("at least {}", duration_text(limits::HEALTH_EVERY_MIN)));
        }
        if every > within {
            self.diagnostics.error("`every` is longer than `within`").at(
                section.place("every"),
                format!("`within` is {}: it would be checked only once", duration_text(within)),
            );
        }
        (within, every)
    }

    /// Reports routes on which a health check can never work.
    fn can_check_health(&mut self, route: &ConfigSection<'_>, respond: ResponseMode, plan: Option<&ActionPlan>) {
        let acts = ["run", "forward", "publish", "sql"].into_iter().find(|key| route.has(key));
        let misspelt = ["run", "forward"].into_iter().any(|key| route.misspells(key));
        let problem = match acts {
            None => Some(("this route has no action", "add `run` or `forward`, whose result is checked")),
            Some("publish" | "sql") => Some((
                "what it starts, if anything, has not begun when the event is done",
                "check it where it is deployed, or use `run` or `forward`",
            )),
            Some(_) if plan.is_some_and(|plan| plan.events() > 1) => Some((
                "`forward` has several receivers, and each could be in another state",
                "use a route of its own for each receiver",
            )),
            Some(_) if respond != ResponseMode::Accepted => Some((
                "with respond = \"done\" the sender would wait for the check",
                "remove `respond`: the sender gets 202 once the event is stored",
            )),
            Some(_) => None,
        };
        if let Some((why, hint)) = problem {
            self.diagnostics
                .error("`health_check` cannot work on this route")
                .unless(acts.is_none() && misspelt)
                .at(route.key_place("health_check"), why)
                .hint(hint);
        }
    }

    pub(super) fn on_unhealthy(&mut self, route: &ConfigSection<'_>, change: Option<&ChangeRule>) -> OnUnhealthy {
        if route.has("on_unhealthy") && !route.has("health_check") {
            self.diagnostics
                .error("`on_unhealthy` needs `health_check`")
                .unless(route.misspells("health_check"))
                .at(route.key_place("on_unhealthy"), "nothing says whether what was deployed is healthy")
                .hint("health_check = { url = \"http://127.0.0.1:8080/healthz\" }");
        }
        if route.text("on_unhealthy") != Some("rollback") {
            return OnUnhealthy::Hold;
        }
        if change.is_none() {
            self.diagnostics
                .error("`on_unhealthy = \"rollback\"` needs `change`")
                .unless(self.unread.preset || self.unread.subject)
                .at(route.place("on_unhealthy"), "without it, it is not known which event was last good")
                .hint(
                    "once = { per = [\"delivery\"], change = { of = [\"package\", \"tag\"], to = [\"version_id\"] } }",
                );
        }
        OnUnhealthy::Rollback
    }
}

/// What happens if what an event deployed is not healthy.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OnUnhealthyView {
    Hold,
    Rollback,
}

/// The check of what a route deployed.
#[derive(Serialize, ToSchema)]
struct HealthCheckView {
    /// The URL that is asked; never a secret.
    #[schema(required)]
    url: Option<String>,
    /// The command that is run.
    #[schema(required)]
    run: Option<String>,
    within: String,
    every: String,
    timeout: String,
}

/// How a route checks what it deployed.
#[derive(Serialize, ToSchema)]
pub(super) struct HealthView {
    #[schema(required)]
    health_check: Option<HealthCheckView>,
    #[schema(required)]
    on_unhealthy: Option<OnUnhealthyView>,
}

/// How a route checks what it deployed, as resolved.
pub(super) fn view(plan: Option<&HealthCheckPlan>, route: &Route) -> HealthView {
    HealthView {
        health_check: plan.map(|plan| {
            let (url, run, timeout) = match &plan.probe {
                HealthProbePlan::Url(receiver) => (Some(plan.shown()), None, receiver.timeout),
                HealthProbePlan::Run(block) => (None, Some(plan.shown()), block.timeout),
            };
            let [within, every, timeout] = [plan.within, plan.every, timeout].map(duration_text);
            HealthCheckView { url, run, within, every, timeout }
        }),
        on_unhealthy: plan.map(|_| match route.on_unhealthy {
            OnUnhealthy::Hold => OnUnhealthyView::Hold,
            OnUnhealthy::Rollback => OnUnhealthyView::Rollback,
        }),
    }
}

/// The same in words.
pub(super) fn text(plan: &HealthCheckPlan, route: &Route) -> LabelledTexts {
    let (shown, healthy) = match &plan.probe {
        HealthProbePlan::Url(_) => (plan.shown(), "responds with 2xx"),
        HealthProbePlan::Run(_) => (plan.shown(), "exits with 0"),
    };
    let (within, every) = (duration_text(plan.within), duration_text(plan.every));
    let otherwise = match route.on_unhealthy {
        OnUnhealthy::Hold => "otherwise it is dead of `unhealthy`",
        OnUnhealthy::Rollback => "otherwise it is dead of `unhealthy`, and the last good one is deployed again",
    };
    labelled("healthy if", format!("{shown} {healthy} within {within}, checked every {every}; {otherwise}"))
}
