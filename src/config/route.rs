//! `route`: its filter, its group, and how its events are handled.

use super::action;
use super::fields::FieldScope;
use super::raw::{ConfigNode, ConfigValue};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::action::plan::ActionPlan;
use crate::action::plan::PublishMode;
use crate::config::keys::{ConfigValueType, SectionKeys, key};
use crate::decide::event::Retrier;
use crate::decide::limits;
use crate::decide::retry::{self, RetryPolicy};
use crate::decide::source::{
    ChangeRule, DeduplicationPolicy, Fanout, Group, Identity, InDoubtPolicy, RedeliveryPolicy, ResponseMode, Route,
    TimeoutAccounting,
};
use crate::decide::time::Duration;
use crate::decide::time::duration_text;
use std::thread::available_parallelism;

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
        &action::ROUTE_KEYS,
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
            "1 for run and with respond = \"done\", else 5",
            "Maximum attempts that fail or time out. Attempts lost to a crash are counted separately.",
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

/// How long after the first attempt of a life the last one may be. Failed and in-doubt attempts are counted separately.
fn horizon(route: &Route, timeout: Duration) -> Duration {
    let ours = Retrier::Node;
    let attempts = route.attempts(ours).saturating_add(route.doubts_max(ours));
    retry::horizon(&route.retry, attempts - 1, timeout + route.lease)
}

impl ConfigResolver<'_> {
    pub(super) fn route(
        &mut self,
        number: usize,
        section: &ConfigSection<'_>,
        names: &FieldScope<'_>,
        once: &DeduplicationPolicy,
        respond: ResponseMode,
    ) -> (Route, Option<ActionPlan>) {
        let mut plan = self.plan(section, names, respond);
        let runs = matches!(plan, Some(ActionPlan::Run(_))) || section.has("run");
        let makes = match &plan {
            None => Fanout::Record,
            Some(ActionPlan::Run(_) | ActionPlan::Sql(_) | ActionPlan::Publish(_)) => Fanout::Actions(1),
            Some(ActionPlan::Forward(receivers)) => Fanout::Actions(u16::try_from(receivers.len()).unwrap_or(u16::MAX)),
        };
        let own = if runs { 1 } else { ATTEMPTS };
        let attempts = section.section("retry").and_then(|retry| retry.count("attempts"));
        let default_at_once = if runs { 2 * available_parallelism().map_or(1, usize::from) } else { AT_ONCE };
        let route = Route {
            name: self.route_name(number, section).into(),
            when: self.filter("when", section, names),
            group: self.group(section, names, once.change.as_ref()),
            retry: self.retry(section, if respond == ResponseMode::Accepted { own } else { 1 }),
            attempts_once_accepted: (respond != ResponseMode::Accepted && attempts.is_none()).then_some(own),
            in_doubt: match section.text("in_doubt") {
                _ if section.has("sql") => InDoubtPolicy::Never,
                Some("hold") => InDoubtPolicy::Hold,
                _ => InDoubtPolicy::Retry,
            },
            timeouts: match &plan {
                Some(ActionPlan::Publish(publish)) if publish.keeper == PublishMode::Stream => {
                    TimeoutAccounting::Doubts
                }
                _ => TimeoutAccounting::Attempts,
            },
            redelivery: self.redelivery(section, names, respond, once, plan.as_ref()),
            lease: self.lease(section),
            max_concurrency: section
                .count("at_once")
                .map_or(default_at_once, |n| usize::try_from(n).unwrap_or(usize::MAX)),
            fanout: makes,
            needs: plan.iter().flat_map(ActionPlan::fields).filter_map(|name| names.fields.ix(&name)).collect(),
            forwarded_headers: plan.as_ref().map(ActionPlan::forwarded_headers).unwrap_or_default(),
        };
        match &mut plan {
            Some(ActionPlan::Publish(publish)) => publish.retry_horizon = horizon(&route, publish.timeout),
            Some(ActionPlan::Sql(statement)) => self.lease_is_longer(section, route.lease, statement.timeout),
            _ => {}
        }
        (route, plan)
    }

    fn route_name(&mut self, number: usize, section: &ConfigSection<'_>) -> String {
        let name = section.text("name").map_or_else(|| number.to_string(), str::to_owned);
        if name.is_empty() || name.chars().any(char::is_control) {
            self.diagnostics.error("the name of a route is empty or cannot be printed").at(section.place("name"), "");
        }
        name
    }

    fn group(
        &mut self,
        section: &ConfigSection<'_>,
        names: &FieldScope<'_>,
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
    fn within_change(&mut self, item: &ConfigNode, names: &FieldScope<'_>, broken: Option<&ChangeRule>) {
        let Some(change) = broken else { return };
        let of: Vec<_> = change.of.iter().map(|ix| &*names.fields.get(*ix).name).collect();
        self.diagnostics
            .error(format!("`group` uses `{}`, which is not in `change.of`", item.text().unwrap_or_default()))
            .unless(self.unread.subject)
            .at(item.at, format!("`change.of`: {}", of.join(", ")))
            .hint("two events of one subject would be in two groups; remove `group`, or use one fixed name");
    }

    fn retry(&mut self, section: &ConfigSection<'_>, attempts: u32) -> RetryPolicy {
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
        names: &FieldScope<'_>,
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
        names: &FieldScope<'_>,
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
        let kept = matches!(plan, Some(ActionPlan::Publish(publish)) if publish.keeper == PublishMode::Stream);
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
