//! `when_busy`, `debounce` and `budget`: what happens to a route's events while they wait.

use super::Provenance;
use super::describe::{LabelledTexts, labelled};
use super::keys::{ConfigKey, ConfigValueType, SectionKeys, key};
use super::once::provenance;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::limits;
use crate::decide::source::{
    AttemptBudget, BudgetExceeded, BudgetScope, ChangeRule, Debounce, Group, ResponseMode, Route, WhenBusy,
};
use crate::decide::time::{Duration, duration_text};
use serde::Serialize;
use utoipa::ToSchema;

pub(super) static QUEUEING_KEYS: [ConfigKey; 4] = [
    key(
        "when_busy",
        ConfigValueType::Word(&["queue", "replace"]),
        "replace for presets of packages, else queue",
        "Events that wait while a newer one of the same subject arrives: they all run in turn, or only the newest is kept. The subject is `change.of`; without `change`, the fields of `group`.",
    ),
    key(
        "debounce",
        ConfigValueType::Duration,
        "none",
        "With replace: how long no further event may arrive before the newest one starts.",
    ),
    key(
        "debounce_max",
        ConfigValueType::Duration,
        "6 × debounce",
        "How long after the first event of a burst the newest one starts at the latest.",
    ),
    key(
        "budget",
        ConfigValueType::Table(&BUDGET_KEYS),
        "none",
        "How many attempts may begin in a given time, all nodes together.",
    ),
];

pub(super) static BUDGET_KEYS: SectionKeys = SectionKeys {
    name: "budget",
    title: "`budget = { … }`",
    about: "A limit on attempts that cost money. Retries count. An operator's replay and a roll-back count, and are never held back.",
    keys: &[&[
        key("runs", ConfigValueType::Count, "required", "How many attempts may begin within that time."),
        key("within", ConfigValueType::Duration, "required", "The time, counted back from each attempt."),
        key(
            "exceeded",
            ConfigValueType::Word(&["wait", "drop"]),
            "wait",
            "An event beyond it waits until there is room, or is dead of `over_budget`.",
        ),
        key(
            "per",
            ConfigValueType::Word(&["route", "group"]),
            "route",
            "Whether the route has one budget, or each of its groups.",
        ),
    ]],
};

/// The default of `debounce_max`, in lengths of `debounce`.
const DEBOUNCE_LENGTHS: u32 = 6;

impl ConfigResolver<'_> {
    pub(super) fn when_busy(
        &mut self,
        section: &ConfigSection<'_>,
        group: Option<&Group>,
        change: Option<&ChangeRule>,
        respond: ResponseMode,
    ) -> WhenBusy {
        if section.text("when_busy") != Some("replace") {
            for key in ["debounce", "debounce_max"] {
                if section.has(key) {
                    self.diagnostics
                        .error(format!("`{key}` needs `when_busy = \"replace\"`"))
                        .unless(section.misspells("when_busy"))
                        .at(section.key_place(key), "every event runs here, so none can wait for a newer one")
                        .hint("when_busy = \"replace\" keeps only the newest of the events that wait");
                    break;
                }
            }
            return WhenBusy::Queue;
        }
        let refused = match (respond, change, group) {
            (ResponseMode::WhenDone { .. }, ..) => {
                Some(("with respond = \"done\" each sender waits for its own event", "remove one of them"))
            }
            (ResponseMode::Accepted, Some(_), _) | (_, None, Some(Group::Fields(_))) => None,
            (ResponseMode::Accepted, None, Some(Group::Fixed(_))) => Some((
                "a fixed group does not say which events replace each other",
                "add `once.change`, or make `group` of fields",
            )),
            (ResponseMode::Accepted, None, None) => Some((
                "nothing says which events replace each other",
                "add `once.change`, or `group` with the fields that they share",
            )),
        };
        if let Some((why, hint)) = refused {
            // A preset's default is for what the preset itself says.
            if provenance(section.place("when_busy")) == Provenance::Written {
                self.diagnostics
                    .error("`when_busy = \"replace\"` cannot work here")
                    .unless(self.unread.subject || section.misspells("group"))
                    .at(section.place("when_busy"), why)
                    .hint(hint);
            }
            return WhenBusy::Queue;
        }
        WhenBusy::Replace { debounce: self.debounce(section) }
    }

    fn debounce(&mut self, section: &ConfigSection<'_>) -> Option<Debounce> {
        let Some(quiet) = self.positive(section, "debounce") else {
            if section.has("debounce_max") {
                self.diagnostics
                    .error("`debounce_max` needs `debounce`")
                    .unless(section.has("debounce") || section.misspells("debounce"))
                    .at(section.key_place("debounce_max"), "events start at once here")
                    .hint("debounce = \"5s\" waits until no event has arrived for 5 seconds");
            }
            return None;
        };
        let max = section.duration("debounce_max").unwrap_or(quiet.saturating_mul(DEBOUNCE_LENGTHS));
        if max < quiet {
            self.diagnostics
                .error("`debounce_max` is shorter than `debounce`")
                .at(section.place("debounce_max"), format!("`debounce` is {}", duration_text(quiet)));
        }
        if max > limits::DEBOUNCE_MAX {
            let key = if section.has("debounce_max") { "debounce_max" } else { "debounce" };
            self.diagnostics
                .error(format!("`{key}` is too long"))
                .at(section.place(key), format!("an event may wait at most {}", duration_text(limits::DEBOUNCE_MAX)));
        }
        Some(Debounce { quiet, max })
    }

    pub(super) fn budget(&mut self, section: &ConfigSection<'_>, group: Option<&Group>) -> Option<AttemptBudget> {
        let inner = section.section("budget")?;
        for key in ["runs", "within"] {
            if !inner.has(key) {
                self.diagnostics
                    .error(format!("`budget` has no `{key}`"))
                    .unless(inner.misspells(key))
                    .at(inner.at, "")
                    .hint("budget = { runs = 20, within = \"1h\" }");
            }
        }
        let runs = inner.count("runs")?;
        let within = self.positive(&inner, "within")?;
        if runs > limits::BUDGET_RUNS_MAX {
            self.diagnostics
                .error("`runs` is too large")
                .at(inner.place("runs"), format!("at most {}: each of them is kept", limits::BUDGET_RUNS_MAX))
                .hint("a shorter `within` with fewer `runs` limits the same rate");
        }
        if within > limits::BUDGET_WITHIN_MAX {
            self.diagnostics
                .error("`within` is too long")
                .at(inner.place("within"), format!("at most {}", duration_text(limits::BUDGET_WITHIN_MAX)));
        }
        let per_group = inner.text("per") == Some("group");
        if per_group && group.is_none() {
            self.diagnostics
                .error("`per = \"group\"` needs a `group`")
                .unless(section.misspells("group"))
                .at(inner.place("per"), "this route has none")
                .hint("group = [\"field\"] on the route, or per = \"route\"");
        }
        let exceeded = if inner.text("exceeded") == Some("drop") { BudgetExceeded::Drop } else { BudgetExceeded::Wait };
        Some(AttemptBudget {
            runs,
            within,
            exceeded,
            per: if per_group { BudgetScope::Group } else { BudgetScope::Route },
        })
    }
}

/// What happens to the events that wait.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum WhenBusyView {
    Queue,
    Replace,
}

/// The limit on a route's attempts.
#[derive(Serialize, ToSchema)]
pub(super) struct BudgetView {
    runs: u32,
    within: String,
    exceeded: BudgetExceededView,
    per: BudgetScopeView,
}

/// What happens to an event beyond the budget.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum BudgetExceededView {
    Wait,
    Drop,
}

/// What a budget is counted for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum BudgetScopeView {
    Route,
    Group,
}

/// How a route's events wait.
#[derive(Serialize, ToSchema)]
pub(super) struct QueueingView {
    when_busy: WhenBusyView,
    #[schema(required)]
    debounce: Option<String>,
    #[schema(required)]
    debounce_max: Option<String>,
    #[schema(required)]
    budget: Option<BudgetView>,
}

/// How a route's events wait, as resolved.
pub(super) fn view(route: &Route) -> QueueingView {
    let length = |of: fn(Debounce) -> Duration| route.when_busy.debounce().map(of).map(duration_text);
    QueueingView {
        when_busy: if route.when_busy.replaces() { WhenBusyView::Replace } else { WhenBusyView::Queue },
        debounce: length(|debounce| debounce.quiet),
        debounce_max: length(|debounce| debounce.max),
        budget: route.budget.map(|budget| BudgetView {
            runs: budget.runs,
            within: duration_text(budget.within),
            exceeded: match budget.exceeded {
                BudgetExceeded::Wait => BudgetExceededView::Wait,
                BudgetExceeded::Drop => BudgetExceededView::Drop,
            },
            per: match budget.per {
                BudgetScope::Route => BudgetScopeView::Route,
                BudgetScope::Group => BudgetScopeView::Group,
            },
        }),
    }
}

/// The same in words.
pub(super) fn texts(route: &Route) -> Vec<LabelledTexts> {
    let busy = match route.when_busy {
        WhenBusy::Queue => "queue: every event runs".to_owned(),
        WhenBusy::Replace { debounce: None } => "replace: of those that wait, only the newest is kept".to_owned(),
        WhenBusy::Replace { debounce: Some(debounce) } => format!(
            "replace: of those that wait, only the newest is kept; it starts when none came for {}, after {} at most",
            duration_text(debounce.quiet),
            duration_text(debounce.max)
        ),
    };
    let budget = route.budget.map(|budget| {
        let per = match budget.per {
            BudgetScope::Route => "",
            BudgetScope::Group => " per group",
        };
        let beyond = match budget.exceeded {
            BudgetExceeded::Wait => "what is beyond it waits",
            BudgetExceeded::Drop => "what is beyond it is dropped",
        };
        labelled("budget", format!("{} attempts in {}{per}; {beyond}", budget.runs, duration_text(budget.within)))
    });
    [labelled("when busy", busy)].into_iter().chain(budget).collect()
}
