//! `sql`: the statement of a route, the names bound to it, and its timeout.

use crate::config::diagnostic;
use crate::config::fields::SourceFieldScope;
use crate::config::keys::{ConfigValueType, SectionKeys, key};
use crate::config::raw::ConfigNode;
use crate::config::resolve::ConfigResolver;
use crate::config::section::ConfigSection;
use crate::decide::limits;
use crate::decide::source::ResponseMode;
use crate::decide::sql_template::{OWN_NAMES, SqlParamSource, SqlTemplate};
use crate::decide::time::{Duration, duration_text};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) static SQL_KEYS: SectionKeys = SectionKeys {
    name: "sql",
    title: "`sql = { … }`",
    about: "One statement, run in the transaction that moves the event to done. A string is short for `{ statement = \"…\" }`.",
    keys: &[&[
        key("statement", ConfigValueType::Text, "required", "The statement; values are bound to its :names."),
        key("timeout", ConfigValueType::Duration, "5s", "Timeout of the statement."),
    ]],
};

impl ConfigResolver<'_> {
    pub(crate) fn sql(
        &mut self,
        route: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        respond: ResponseMode,
    ) -> Option<Arc<SqlTemplate>> {
        let (node, timeout) = match route.section("sql") {
            None => (route.node("sql")?, limits::STATEMENT_TIME),
            Some(section) => {
                let Some(node) = section.node("statement") else {
                    self.diagnostics
                        .error("`sql` has no `statement`")
                        .unless(section.misspells("statement"))
                        .at(section.at, "")
                        .hint("sql = { statement = \"insert into seen values (:delivery)\", timeout = \"5s\" }");
                    return None;
                };
                let timeout = self.timeout(&section, respond).unwrap_or(limits::STATEMENT_TIME);
                (node, self.statement_time(&section, timeout))
            }
        };
        let Some(dialect) = self.dialect else {
            self.diagnostics
                .error("`sql` needs a store that is a database")
                .at(route.key_place("sql"), "it runs in the transaction that moves the event to done")
                .hint("store = \"sqlite:hookonce.db\", or PostgreSQL; `run` and `forward` work with every store");
            return None;
        };
        let statement = match SqlTemplate::parse(node.text()?, dialect, timeout) {
            Ok(statement) => statement,
            Err(wrong) => {
                let at = self.inside(node.at, &wrong.at);
                self.diagnostics.error(wrong.title).at(at, wrong.label);
                return None;
            }
        };
        self.names_of(&statement, node, names);
        if route.text("in_doubt") == Some("hold") {
            self.diagnostics
                .error("`sql` and `in_doubt` cannot be combined")
                .at(
                    route.place("in_doubt"),
                    "a statement and the end of its event are one commit, so an attempt is never in doubt",
                )
                .hint("remove `in_doubt`: after a crash nothing was committed, and the statement runs again");
        }
        Some(Arc::new(statement))
    }

    /// Checks that every `:name` is a built-in name or a declared field.
    fn names_of(&mut self, statement: &SqlTemplate, node: &ConfigNode, names: &SourceFieldScope<'_>) {
        for named in &statement.names {
            let SqlParamSource::Field(name) = &named.what else { continue };
            let at = self.inside(node.at, &named.at);
            self.warn_if_unsigned(&format!(":{name}"), at, name, names);
            if names.fields.ix(name).is_none() {
                let all: Vec<_> = OWN_NAMES.into_iter().chain(names.all()).collect();
                self.diagnostics
                    .error(format!("`:{name}` is not a declared field"))
                    .unless(self.unread.fields)
                    .at(at, format!("names here: {}", all.join(", ")))
                    .hint_if(diagnostic::did_you_mean(name, all));
            }
        }
        for own in OWN_NAMES {
            if names.fields.ix(own).is_some() && statement.names.iter().any(|named| named.what.is(own)) {
                self.diagnostics
                    .warning(format!("`:{own}` is not the field of that name"))
                    .at(node.at, "hookonce binds it itself")
                    .hint("rename the field, if you mean the field");
            }
        }
    }

    fn statement_time(&mut self, section: &ConfigSection<'_>, timeout: Duration) -> Duration {
        if timeout > limits::STATEMENT_TIME_MAX {
            self.diagnostics
                .error("`timeout` is too long")
                .at(section.place("timeout"), "at most 1m: it holds locks, in SQLite the only write lock");
        }
        timeout
    }

    /// Checks that a statement ends before its lease: otherwise the next attempt overtakes it.
    pub(crate) fn lease_is_longer(&mut self, route: &ConfigSection<'_>, lease: Duration, timeout: Duration) {
        if lease > timeout {
            return;
        }
        let (at, label) = match route.section("sql") {
            Some(section) if !route.has("lease") => {
                (section.place("timeout"), format!("`lease` is {} by default", duration_text(lease)))
            }
            _ => (route.place("lease"), format!("the statement may take {}", duration_text(timeout))),
        };
        self.diagnostics
            .error("`lease` is not longer than the statement's timeout")
            .at(at, label)
            .hint("use a longer lease, or sql = { statement = \"…\", timeout = \"…\" }");
    }
}

/// A statement as JSON.
pub(super) fn view(statement: &SqlTemplate) -> Value {
    json!({ "statement": &*statement.written, "timeout": duration_text(statement.timeout) })
}

/// A statement in words.
pub(super) fn text(statement: &SqlTemplate) -> String {
    let written = statement.written.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{written}, within {}", duration_text(statement.timeout))
}
