//! `route`: its filter, its group, and how its events are handled.

use super::describe::{LabelledTexts, labelled};
use super::fields::{SourceFieldScope, field_names, joined_names};
use super::health::HealthView;
use super::keys::{ConfigValueType, SectionKeys, key};
use super::lookup::{LOOKUP_KEYS, LookupView};
use super::notifier::{ConfiguredNotifier, NOTIFY_KEYS, NotifierView, NotifyLevel};
use super::queueing;
use super::queueing::QueueingView;
use super::raw::{ConfigNode, ConfigValue};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::{Config, action, health, lookup, notifier};
use crate::action::ActionPlan;
use crate::action::health_check::HealthCheckPlan;
use crate::decide::event::RetryOwner;
use crate::decide::limits;
use crate::decide::notification::NOTIFY_ROUTE;
use crate::decide::retry::RetryPolicy;
use crate::decide::source::{
    ChangeRule, DeduplicationPolicy, Fanout, Group, Identity, InDoubtPolicy, RedeliveryPolicy, ResponseMode, Route,
    SameChange, Source, TimeoutAccounting, WhenBusy,
};
use crate::decide::time::{Duration, duration_text};
use crate::registry::LookupPlan;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::thread::available_parallelism;
use utoipa::ToSchema;

pub(super) static ROUTE_KEYS: SectionKeys = SectionKeys {
    name: "route",
    title: "`[[source.NAME.route]]`",
    about: "Where events go. The first route that lets a delivery through wins.",
    keys: &[
        &[
            key("name", ConfigValueType::Text, "\"1\", \"2\", … by position", "The route's name."),
            key("when", ConfigValueType::Expression, "always", "Which events take this route."),
            key(
                "group",
                ConfigValueType::Group,
                "change.of, else none",
                "Events that must not overlap: fields, or one fixed name.",
            ),
            key("retry", ConfigValueType::Table(&RETRY_KEYS), "see its keys", "When a failed attempt is retried."),
            key(
                "lookup",
                ConfigValueType::Table(&LOOKUP_KEYS),
                "none",
                "Asks a container registry what a tag points to now, before the action begins.",
            ),
            key(
                "in_doubt",
                ConfigValueType::Word(&["retry", "hold"]),
                "retry",
                "What to do when an attempt may have acted.",
            ),
            key(
                "redelivery",
                ConfigValueType::Word(&["retry", "ignore", "again"]),
                "again for publish of GitHub's deliveries to a stream, else retry",
                "What a repeat of an ended event does.",
            ),
            key(
                "rearm_after",
                ConfigValueType::Duration,
                "60s; 0s with respond = \"done\"; 60s for again",
                "How long an event is dead before another delivery revives it (one of the same id: 5s); with again, how long ago it was published.",
            ),
            key(
                "lease",
                ConfigValueType::Duration,
                "30s",
                "How long a node may act alone on an event before it must renew its lease.",
            ),
            key(
                "at_once",
                ConfigValueType::Count,
                "2 × cores for run, else 64",
                "Maximum concurrent attempts on one node.",
            ),
        ],
        &queueing::QUEUEING_KEYS,
        &health::HEALTH_KEYS,
        &action::ACTION_KEYS,
        &[key(
            "notify",
            ConfigValueType::Tables(&NOTIFY_KEYS),
            "the source's",
            "Who is told about the ends of its events.",
        )],
    ],
};

pub(super) static RETRY_KEYS: SectionKeys = SectionKeys {
    name: "retry",
    title: "`retry = { … }`",
    about: "When a failed attempt is retried. Each wait is random, up to its length.",
    keys: &[&[
        key(
            "attempts",
            ConfigValueType::Count,
            "1 for run without lookup and with respond = \"done\", else 5",
            "Maximum attempts that fail or time out. Attempts lost to a crash are counted separately, and so are those that ended because the registry of `lookup` did not answer: at least 12 of these.",
        ),
        key(
            "first",
            ConfigValueType::Duration,
            "10s",
            "Maximum wait before the second attempt; it doubles for each further one.",
        ),
        key("longest", ConfigValueType::Duration, "1h", "Maximum wait before any attempt."),
    ]],
};

/// Default attempts if nothing else retries.
const ATTEMPTS: u32 = 5;
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_hours(1);
const LEASE: Duration = Duration::from_secs(30);
const LEASE_MIN: Duration = Duration::from_secs(1);
const REARM_AFTER: Duration = Duration::from_mins(1);
/// Default concurrent attempts of a route whose action is not a process.
const AT_ONCE: usize = 64;

impl ConfigResolver<'_> {
    pub(super) fn route(
        &mut self,
        number: usize,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        once: &DeduplicationPolicy,
        respond: ResponseMode,
        notifiers: &[Arc<ConfiguredNotifier>],
    ) -> ResolvedRoute {
        let mut plan = self.plan(section, names, respond);
        let lookup = self.lookup(section, names, once, respond, plan.as_ref());
        let health_check = self.health_check(section, names, respond, plan.as_ref());
        let is_process = plan.as_ref().is_some_and(ActionPlan::is_process);
        // A registry may lag behind its own webhook; and to deploy what a tag points to is harmless the second time.
        let own = if is_process && lookup.is_none() { 1 } else { ATTEMPTS };
        let needs = plan.iter().flat_map(ActionPlan::fields);
        let needs = needs.chain(lookup.iter().flat_map(LookupPlan::fields).cloned());
        let needs = needs.chain(health_check.iter().flat_map(HealthCheckPlan::fields));
        let attempts = section.section("retry").and_then(|retry| retry.count("attempts"));
        let default_at_once = if is_process { 2 * available_parallelism().map_or(1, usize::from) } else { AT_ONCE };
        let group = self.group(section, names, once.change.as_ref());
        let when_busy = match plan {
            Some(_) => self.when_busy(section, group.as_ref(), once.change.as_ref(), respond),
            None => WhenBusy::Queue,
        };
        let name = self.route_name(number, section);
        let level = NotifyLevel { source: names.source, route: &name };
        let notifiers = match self.notify(section, names, level) {
            Some(own) => own,
            None => notifiers.to_vec(),
        };
        let route = Route {
            name: name.into(),
            notify: notifiers.iter().map(|notifier| notifier.target.clone()).collect(),
            when: self.filter("when", section, names),
            when_busy,
            same_change: if lookup.is_some() { SameChange::Hint } else { SameChange::Duplicate },
            budget: self.budget(section, group.as_ref()),
            on_unhealthy: self.on_unhealthy(section, once.change.as_ref()),
            group,
            retry: self.retry(section, if respond == ResponseMode::Accepted { own } else { 1 }),
            attempts_once_accepted: (respond != ResponseMode::Accepted && attempts.is_none()).then_some(own),
            in_doubt: match section.text("in_doubt") {
                _ if plan.as_ref().is_some_and(|plan| !plan.can_be_in_doubt()) => InDoubtPolicy::Never,
                Some("hold") => InDoubtPolicy::Hold,
                _ => InDoubtPolicy::Retry,
            },
            timeouts: if plan.as_ref().is_some_and(ActionPlan::is_kept_by_stream) {
                TimeoutAccounting::Doubts
            } else {
                TimeoutAccounting::Attempts
            },
            redelivery: self.redelivery(section, names, respond, once, plan.as_ref()),
            lease: self.lease(section),
            max_concurrency: section
                .count("at_once")
                .map_or(default_at_once, |n| usize::try_from(n).unwrap_or(usize::MAX)),
            fanout: plan.as_ref().map_or(Fanout::Record, |plan| Fanout::Actions(plan.events())),
            needs: needs.filter_map(|name| names.fields.ix(&name)).collect(),
            forwarded_headers: plan.as_ref().map(ActionPlan::forwarded_headers).unwrap_or_default(),
        };
        if let Some(plan) = &mut plan {
            self.finish_plan(plan, section, &route);
        }
        ResolvedRoute { route, plan, lookup, health_check, notifiers }
    }

    fn route_name(&mut self, number: usize, section: &ConfigSection<'_>) -> String {
        let name = section.text("name").map_or_else(|| number.to_string(), str::to_owned);
        if name.is_empty() || name.chars().any(char::is_control) {
            self.diagnostics.error("the name of a route is empty or cannot be printed").at(section.place("name"), "");
        }
        if name.starts_with(NOTIFY_ROUTE) {
            self.diagnostics
                .error(format!("the name of a route cannot begin with `{NOTIFY_ROUTE}`"))
                .at(section.place("name"), "such routes are those of notifications");
        }
        name
    }

    fn group(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        change: Option<&ChangeRule>,
    ) -> Option<Group> {
        let Some(node) = section.node("group") else {
            return change.map(|change| Group::Fields(change.of.clone()));
        };
        let list = match &node.value {
            ConfigValue::Text(fixed) if fixed.is_empty() => {
                self.diagnostics.error("`group` is empty").at(node.at, "expected a name, or a list of fields");
                return None;
            }
            ConfigValue::Text(fixed) => return Some(Group::Fixed(fixed.clone())),
            ConfigValue::List(list) => list,
            _ => return None,
        };
        if list.is_empty() {
            self.diagnostics.error("`group` is empty").at(node.at, "expected a name, or a list of fields");
        }
        let mut fields = Vec::new();
        for item in list {
            let Some(ix) = self.named("group", item, names) else { continue };
            let field = item.text().unwrap_or_default();
            self.warn_if_unsigned(field, item.at, field, names);
            if fields.contains(&ix) {
                self.report_repeated_field("group", item);
            } else {
                fields.push(ix);
            }
            self.within_change(item, names, change.filter(|change| !change.of.contains(&ix)));
        }
        Some(Group::Fields(fields))
    }

    /// Checks that events of one subject cannot be in two groups, where they would overlap.
    fn within_change(&mut self, item: &ConfigNode, names: &SourceFieldScope<'_>, broken: Option<&ChangeRule>) {
        let Some(change) = broken else { return };
        let of: Vec<_> = change.of.iter().map(|ix| &*names.fields.get(*ix).name).collect();
        self.diagnostics
            .error(format!("`group` uses `{}`, which is not in `change.of`", item.text().unwrap_or_default()))
            .unless(self.unread.subject)
            .at(item.at, format!("`change.of`: {}", of.join(", ")))
            .hint("two events of one subject would be in two groups; remove `group`, or use one fixed name");
    }

    pub(super) fn retry(&mut self, section: &ConfigSection<'_>, attempts: u32) -> RetryPolicy {
        let inner = section.section("retry");
        let duration = |key: &str| inner.and_then(|s| s.duration(key));
        let first = duration("first").unwrap_or_else(|| FIRST.min(duration("longest").unwrap_or(FIRST)));
        let longest = duration("longest").unwrap_or(LONGEST.max(first));
        if let Some(inner) = inner
            && longest < first
        {
            self.diagnostics
                .error("`longest` is shorter than `first`")
                .at(inner.place("longest"), format!("`first` is {}", duration_text(first)));
        }
        RetryPolicy { attempts: inner.and_then(|s| s.count("attempts")).unwrap_or(attempts), first, longest }
    }

    fn redelivery(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        respond: ResponseMode,
        once: &DeduplicationPolicy,
        plan: Option<&ActionPlan>,
    ) -> RedeliveryPolicy {
        if once.keep_failures && respond != ResponseMode::Accepted {
            return self.keep_failures_redelivery(section);
        }
        let again = self.is_published_again(section, names, once, plan);
        let written = section.duration("rearm_after");
        if section.text("redelivery") == Some("ignore") {
            if section.has("rearm_after") {
                self.diagnostics
                    .warning("`rearm_after` has no effect")
                    .at(section.key_place("rearm_after"), "`redelivery` is \"ignore\"");
            }
            return RedeliveryPolicy::Ignore;
        }
        let (same_after, other_after) = match respond {
            ResponseMode::Accepted => (limits::REDELIVERY_AFTER, REARM_AFTER),
            ResponseMode::WhenDone { .. } => (Duration::ZERO, Duration::ZERO),
        };
        let other_after = written.unwrap_or(other_after);
        if again {
            let published_after = written.unwrap_or(REARM_AFTER);
            return RedeliveryPolicy::Again { same_after, other_after, published_after };
        }
        RedeliveryPolicy::Retry { same_after, other_after }
    }

    /// Whether a repeat publishes the message again. Default: if this sender redelivers only on a person's request and
    /// a stream keeps the messages, because the worker behind it knows what became of them.
    fn is_published_again(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        once: &DeduplicationPolicy,
        plan: Option<&ActionPlan>,
    ) -> bool {
        let not = match () {
            () if !section.has("publish") => Some((
                "this route has no `publish`, so there is nothing to publish again",
                "use \"retry\", which retries dead events, or \"ignore\"",
            )),
            () if names.stream.is_some() => Some((
                "a stream redelivers its messages automatically, so a repeat is no request to publish again",
                "remove it here; set it where the deliveries arrive over HTTP",
            )),
            () if names.scheme.is_some() && names.delivery.is_none() => Some((
                "this source has no delivery id, so a repeat of the same delivery cannot be recognised",
                "set delivery = \"header.x-id\"",
            )),
            () if !once.per.contains(&Identity::Delivery) => Some((
                "`once.per` does not contain \"delivery\", so a repeat of the same delivery cannot be recognised",
                "add \"delivery\" to `once.per`",
            )),
            () => None,
        };
        if section.text("redelivery") == Some("again") {
            if let Some((why, hint)) = not {
                self.diagnostics
                    .error("`redelivery = \"again\"` cannot work here")
                    .unless(section.misspells("publish") || self.unread.delivery && section.has("publish"))
                    .at(section.place("redelivery"), why)
                    .hint(hint);
            }
            return not.is_none();
        }
        let kept = plan.is_some_and(ActionPlan::is_kept_by_stream);
        let only_by_hand = names.scheme.is_some_and(|scheme| scheme.redelivered_by_hand().is_some());
        !section.has("redelivery") && not.is_none() && kept && only_by_hand
    }

    /// The redelivery policy with `keep_failures`: a repeat gets the kept failure.
    fn keep_failures_redelivery(&mut self, section: &ConfigSection<'_>) -> RedeliveryPolicy {
        for key in ["redelivery", "rearm_after"] {
            if section.has(key) && section.text(key) != Some("ignore") {
                self.diagnostics
                    .error(format!("`{key}` and `keep_failures` cannot be combined"))
                    .at(section.key_place(key), "a repeat gets the kept failure and retries nothing")
                    .hint("leave one of them out");
            }
        }
        RedeliveryPolicy::Ignore
    }

    fn lease(&mut self, section: &ConfigSection<'_>) -> Duration {
        let lease = section.duration("lease").unwrap_or(LEASE);
        if lease < LEASE_MIN {
            self.diagnostics
                .error("`lease` is too short")
                .at(section.place("lease"), "at least 1s: it is renewed at a third");
        }
        lease
    }
}

/// A resolved route, what it does, the registry that it asks before, how it checks the result, and who is told about its
/// ends.
pub(super) struct ResolvedRoute {
    pub(super) route: Route,
    pub(super) plan: Option<ActionPlan>,
    pub(super) lookup: Option<LookupPlan>,
    pub(super) health_check: Option<HealthCheckPlan>,
    pub(super) notifiers: Vec<Arc<ConfiguredNotifier>>,
}

/// A route.
#[derive(Serialize, ToSchema)]
pub(super) struct RouteView {
    name: String,
    #[schema(required)]
    when: Option<String>,
    /// One of run, forward, record, …
    #[schema(value_type = Object)]
    action: Value,
    #[schema(required)]
    lookup: Option<LookupView>,
    #[schema(required)]
    group: Option<GroupView>,
    retry: RetryView,
    in_doubt: InDoubtView,
    /// How many attempts may be lost to a crash, a lost lease or a broken connection.
    doubts: u32,
    redelivery: RedeliveryView,
    #[schema(required)]
    rearm_after: Option<String>,
    lease: String,
    at_once: usize,
    #[serde(flatten)]
    queueing: QueueingView,
    #[serde(flatten)]
    health: HealthView,
    /// Who is told about the ends of its events.
    notify: Vec<NotifierView>,
}

/// The group of a route: a name, or the names of fields.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum GroupView {
    Name(String),
    Fields(Vec<String>),
}

/// How a route retries.
#[derive(Serialize, ToSchema)]
struct RetryView {
    /// How many attempts may fail or time out.
    attempts: u32,
    /// The same, once a sender that waits for the end got 202.
    attempts_once_accepted: u32,
    first: String,
    longest: String,
}

/// What happens to an event whose outcome is not known.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum InDoubtView {
    Retry,
    Hold,
    Never,
}

/// What a repeat does to a dead event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum RedeliveryView {
    Retry,
    Ignore,
    Again,
}

/// A route as resolved.
pub(super) fn view(config: &Config, source: &Source, route: &Route) -> RouteView {
    let (redelivery, rearm_after) = match route.redelivery {
        RedeliveryPolicy::Ignore => (RedeliveryView::Ignore, None),
        RedeliveryPolicy::Retry { other_after, .. } => (RedeliveryView::Retry, Some(duration_text(other_after))),
        RedeliveryPolicy::Again { published_after, .. } => {
            (RedeliveryView::Again, Some(duration_text(published_after)))
        }
    };
    RouteView {
        name: route.name.to_string(),
        when: route.when.as_ref().map(|filter| filter.text().to_owned()),
        action: action::view(config.plan(source, route)),
        lookup: config.lookup(source, route).map(lookup::view),
        group: route.group.as_ref().map(|group| match group {
            Group::Fixed(name) => GroupView::Name(name.clone()),
            Group::Fields(fields) => GroupView::Fields(field_names(source, fields)),
        }),
        retry: RetryView {
            attempts: route.retry.attempts,
            attempts_once_accepted: route.attempts(RetryOwner::Node),
            first: duration_text(route.retry.first),
            longest: duration_text(route.retry.longest),
        },
        in_doubt: match route.in_doubt {
            InDoubtPolicy::Retry => InDoubtView::Retry,
            InDoubtPolicy::Hold => InDoubtView::Hold,
            InDoubtPolicy::Never => InDoubtView::Never,
        },
        doubts: route.doubts_max(RetryOwner::Sender),
        redelivery,
        rearm_after,
        lease: duration_text(route.lease),
        at_once: route.max_concurrency,
        queueing: queueing::view(route),
        health: health::view(config.health_check(source, route), route),
        notify: notifier::views(config, source, route),
    }
}

/// A route in words, with what it does.
pub(super) fn texts(config: &Config, source: &Source, route: &Route) -> Vec<LabelledTexts> {
    let mut texts = vec![labelled("when", route.when.as_ref().map_or("always", |when| when.text()))];
    texts.extend(config.lookup(source, route).map(lookup::text));
    texts.extend(action::texts(config.plan(source, route)));
    if route.fanout != Fanout::Record {
        texts.extend([
            labelled("retry", retry_text(route)),
            labelled("in doubt", in_doubt_text(route)),
            labelled("redelivery", redelivery_text(route.redelivery)),
            labelled("group", group_text(source, route)),
        ]);
        texts.extend(config.health_check(source, route).map(|check| health::text(check, route)));
        texts.extend(queueing::texts(route));
        texts.extend([
            labelled("lease", duration_text(route.lease)),
            labelled("at once", route.max_concurrency.to_string()),
        ]);
        texts.extend(notifier::texts(config, source, route));
    }
    texts
}

fn retry_text(route: &Route) -> String {
    let retry = &route.retry;
    let waits = format!("waiting {} to {}", duration_text(retry.first), duration_text(retry.longest));
    match (retry.attempts, route.attempts(RetryOwner::Node)) {
        (1, 1) => "one attempt".to_owned(),
        (n, after) if n == after => format!("{n} attempts, {waits}"),
        (1, after) => format!("one attempt while the sender waits, {after} after it got 202, {waits}"),
        (n, after) => format!("{n} attempts while the sender waits, {after} after it got 202, {waits}"),
    }
}

/// What happens when nobody knows whether an attempt acted, and how often at most.
fn in_doubt_text(route: &Route) -> String {
    let limit = match (route.doubts_max(RetryOwner::Sender), route.doubts_max(RetryOwner::Node)) {
        (sender, node) if sender == node => node.to_string(),
        (sender, node) => format!("{sender} (after a 202: {node})"),
    };
    let lost = match route.timeouts {
        TimeoutAccounting::Attempts => "a crash, a lost lease or a broken connection",
        TimeoutAccounting::Doubts => "a crash, a lost lease, a broken connection or a timeout",
    };
    match route.in_doubt {
        InDoubtPolicy::Retry => format!("retry, at most {limit} attempts lost to {lost}"),
        InDoubtPolicy::Hold => "hold after the first attempt lost or timed out".to_owned(),
        InDoubtPolicy::Never => format!("never; at most {limit} attempts lost to a crash or a lost lease"),
    }
}

/// What a repeat of an ended event does.
pub(crate) fn redelivery_text(redelivery: RedeliveryPolicy) -> String {
    match redelivery {
        RedeliveryPolicy::Ignore => "ignore".to_owned(),
        RedeliveryPolicy::Retry { same_after, other_after } => rearm_text(same_after, other_after),
        RedeliveryPolicy::Again { same_after, other_after, published_after } => format!(
            "publish it again: the same delivery after {}; {}",
            duration_text(published_after),
            rearm_text(same_after, other_after)
        ),
    }
}

fn rearm_text(same_after: Duration, other_after: Duration) -> String {
    format!(
        "retry a dead event: the same delivery after {}, another after {}",
        duration_text(same_after),
        duration_text(other_after)
    )
}

/// The group of a route in words.
pub(crate) fn group_text(source: &Source, route: &Route) -> String {
    match &route.group {
        None => "none: events may overlap".to_owned(),
        Some(Group::Fixed(name)) => format!("{name:?}, one at a time"),
        Some(Group::Fields(fields)) => format!("one at a time per {}", joined_names(source, fields)),
    }
}
