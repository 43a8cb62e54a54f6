//! The action of a route: one file for each, with its keys, its plan, and how `check` shows it.

mod forward;
pub(super) mod publish;
mod run;
mod sql;

use super::describe::{LabelledTexts, labelled};
use super::diagnostic;
use super::fields::SourceFieldScope;
use super::keys::{ConfigKey, ConfigValueType, SectionKeys, key};
use super::raw::ConfigNode;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::action::ActionPlan;
use crate::action::plan::FieldTemplatePart;
use crate::decide::limits;
use crate::decide::source::{ResponseMode, Route};
use crate::decide::time::{Duration, duration_text};
use serde_json::{Value, json};
use std::ops::Range;

/// The actions; a route has at most one.
const ACTIONS: [&str; 4] = ["run", "forward", "publish", "sql"];

/// The keys of a route for its action.
pub(super) static ACTION_KEYS: [ConfigKey; 5] = [
    key("env", ConfigValueType::Env, "nothing more", "Environment of every block: names to pass, or names and values."),
    key("run", ConfigValueType::Tables(&run::BLOCK_KEYS), "none", "Commands to run."),
    key("forward", ConfigValueType::Tables(&forward::FORWARD_KEYS), "none", "Receivers to send to."),
    key("publish", ConfigValueType::Table(&publish::PUBLISH_KEYS), "none", "A NATS subject to publish to."),
    key("sql", ConfigValueType::TextOr(&sql::SQL_KEYS), "none", "A statement to run in the store's own transaction."),
];

/// The keys of a block of `run`.
pub(super) const fn block_keys() -> &'static SectionKeys {
    &run::BLOCK_KEYS
}

/// The keys of a receiver of `forward`.
pub(super) const fn forward_keys() -> &'static SectionKeys {
    &forward::FORWARD_KEYS
}

impl ConfigResolver<'_> {
    /// The plan of a route; `None` if it only records events.
    pub(in crate::config) fn plan(
        &mut self,
        route: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        respond: ResponseMode,
    ) -> Option<ActionPlan> {
        let actions: Vec<_> = ACTIONS.into_iter().filter(|key| route.has(key)).collect();
        if let [first, .., last] = actions[..] {
            self.diagnostics
                .error(format!("a route has one action, but this one has `{first}` and `{last}`"))
                .at(route.key_place(last), "")
                .hint("keep one of them; a command can also send, and `forward` may be a list");
        }
        if route.has("env") && !route.has("run") {
            self.diagnostics
                .warning("`env` has no effect")
                .unless(route.misspells("run"))
                .at(route.key_place("env"), "this route has no `run`");
        }
        if route.has("run") {
            return self.run(route, names, respond).map(ActionPlan::Run);
        }
        if route.has("forward") {
            return self.forward(route, names, respond).map(ActionPlan::Forward);
        }
        if route.has("sql") {
            return self.sql(route, names, respond).map(ActionPlan::Sql);
        }
        if let Some(section) = route.section("publish") {
            return self.publish(&section, names, respond).map(|publish| ActionPlan::Publish(Box::new(publish)));
        }
        None
    }

    /// Adds to a plan what depends on its route, and checks that they fit.
    pub(super) fn finish_plan(&mut self, plan: &mut ActionPlan, section: &ConfigSection<'_>, route: &Route) {
        match plan {
            ActionPlan::Publish(publish) => publish.retry_horizon = publish::horizon(route, publish.timeout),
            ActionPlan::Sql(statement) => self.lease_is_longer(section, route.lease, statement.timeout),
            ActionPlan::Run(_) | ActionPlan::Forward(_) => {}
        }
    }

    /// A written `timeout`; warns if it is longer than the sender waits.
    pub(crate) fn timeout(&mut self, section: &ConfigSection<'_>, respond: ResponseMode) -> Option<Duration> {
        let timeout = self.positive(section, "timeout")?;
        if let ResponseMode::WhenDone { within } = respond
            && timeout > within
        {
            self.diagnostics
                .warning("`timeout` is longer than the sender waits")
                .at(section.place("timeout"), format!("`respond_within` is {}", duration_text(within)))
                .hint("the sender gets 202 before the attempt has ended; raise `respond_within`, or lower `timeout`");
        }
        Some(timeout)
    }

    /// Checks the number of entries.
    pub(crate) fn number_of(&mut self, key: &str, count: usize, route: &ConfigSection<'_>) -> Option<()> {
        if (1..=limits::BLOCKS_MAX).contains(&count) {
            return Some(());
        }
        // A value of the wrong type has been reported already.
        if route.node(key).is_some_and(|node| node.list().is_some()) {
            let label = format!("from 1 to {}", limits::BLOCKS_MAX);
            self.diagnostics.error(format!("`{key}` has {count} entries")).at(route.key_place(key), label);
        }
        None
    }

    pub(crate) fn pieces(&mut self, node: &ConfigNode, names: &SourceFieldScope<'_>) -> Vec<FieldTemplatePart> {
        let text = node.text().unwrap_or_default();
        let mut pieces = Vec::new();
        let mut done = 0;
        for (range, name) in references(text) {
            if names.fields.ix(name).is_none() {
                let at = self.inside(node.at, &range);
                self.diagnostics
                    .error(format!("`{{{name}}}` is not a declared field"))
                    .unless(self.unread.fields)
                    .at(at, names.label())
                    .hint_if(diagnostic::did_you_mean(name, names.all()));
            }
            let at = self.inside(node.at, &range);
            self.warn_if_unsigned(&text[range.clone()], at, name, names);
            if range.start > done {
                pieces.push(FieldTemplatePart::Text(text[done..range.start].to_owned()));
            }
            pieces.push(FieldTemplatePart::Field(name.into()));
            done = range.end;
        }
        if done < text.len() || pieces.is_empty() {
            pieces.push(FieldTemplatePart::Text(text[done..].to_owned()));
        }
        pieces
    }
}

/// Every `{name}` in a text. `{{name}}` belongs to another template language and is ignored.
pub(crate) fn references(text: &str) -> Vec<(Range<usize>, &str)> {
    let mut found = Vec::new();
    for (open, _) in text.match_indices('{') {
        let inner = &text[open + 1..];
        let length = inner.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let close = open + 1 + length;
        let begins = inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let doubled = text[..open].ends_with('{') && text[close..].starts_with("}}");
        if begins && text[close..].starts_with('}') && !doubled {
            found.push((open..close + 1, &text[open + 1..close]));
        }
    }
    found
}

/// What a route does, as JSON.
pub(super) fn view(plan: Option<&ActionPlan>) -> Value {
    match plan {
        None => json!({ "record": true }),
        Some(ActionPlan::Run(blocks)) => json!({ "run": blocks.iter().map(run::view).collect::<Vec<_>>() }),
        Some(ActionPlan::Forward(receivers)) => {
            json!({ "forward": receivers.iter().map(forward::view).collect::<Vec<_>>() })
        }
        Some(ActionPlan::Publish(plan)) => json!({ "publish": publish::view(plan) }),
        Some(ActionPlan::Sql(statement)) => json!({ "sql": sql::view(statement) }),
    }
}

/// What a route does, in words.
pub(super) fn texts(plan: Option<&ActionPlan>) -> Vec<LabelledTexts> {
    match plan {
        None => vec![labelled("does", "nothing: events are only recorded")],
        Some(ActionPlan::Run(blocks)) => blocks.iter().map(|block| ("runs", run::texts(block))).collect(),
        Some(ActionPlan::Forward(receivers)) => vec![("forwards", receivers.iter().map(forward::text).collect())],
        Some(ActionPlan::Publish(plan)) => vec![labelled("publishes", publish::text(plan))],
        Some(ActionPlan::Sql(statement)) => vec![labelled("sql", sql::text(statement))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let names: Vec<_> = references(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, expected, "{text}");
    }

    #[test]
    fn only_a_name_in_single_braces_is_a_field() {
        check("a{tag}b{sha}", &["tag", "sha"]);
        check("{tag}", &["tag"]);
        check("{{tag}} {{.Name}} {{json .}}", &[]);
        check("{} {1a} {a b} {a,b} {ä} {tag", &[]);
        check("{{tag}", &["tag"]);
    }
}
