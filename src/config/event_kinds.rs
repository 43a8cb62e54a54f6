//! Event kinds and other values that are not signed: what a source uses them for, and kinds that the config defines.

use super::fields::SourceFieldScope;
use super::keys::{ConfigValueType, SectionKeys, key};
use super::raw::{ConfigNode, ConfigOrigin};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::action::ActionPlan;
use crate::decide::field::{FieldIndex, FieldLocation};
use crate::decide::filter::Filter;
use crate::decide::github_kind;
use crate::decide::github_kind::EventKindUse;
use crate::decide::identity::idempotency_key;
use crate::decide::limits;
use crate::decide::source::{Group, RequiredEventKind, Route, WantedKind};
use std::sync::Arc;

pub(super) static KIND_KEYS: SectionKeys = SectionKeys {
    name: "kind",
    title: "`kind = { … }`",
    about: "The kinds of event that a source is for, where a header names them that is not signed. Others are ignored. What \
            only bodies of a kind have must be in the body, and nothing of the other kinds: the header alone decides nothing.",
    keys: &[&[
        key("header", ConfigValueType::Text, "required", "The header that names the kind."),
        key(
            "is",
            ConfigValueType::TextOrMembers,
            "required",
            "The kind that counts; or a table of kinds, each with the object or array that only its bodies have.",
        ),
        key("shape", ConfigValueType::Place, "none", "With one kind: the object or array that only its bodies have."),
    ]],
};

/// What a source uses the event kind for, if an unsigned header names it. `None`: it is unused, or signed, or the
/// preset accepts only one kind and compares that.
pub(super) fn kind_use(
    names: &SourceFieldScope<'_>,
    filters: &[Option<&Filter>],
    routes: &[Arc<Route>],
    plans: &[(Arc<str>, ActionPlan)],
) -> Option<EventKindUse> {
    let at = FieldLocation::Header(github_kind::HEADER.into());
    let preset = names.kind.is_some_and(|kind| kind.header == github_kind::HEADER);
    if preset || names.scheme.is_none_or(|scheme| scheme.covers(&at)) {
        return None;
    }
    let fields: Vec<_> = (0..)
        .map(FieldIndex)
        .zip(names.fields.iter())
        .filter(|(_, field)| field.places().any(|place| *place == at))
        .collect();
    let is_kind = |ix: &FieldIndex| fields.iter().any(|(own, _)| own == ix);
    let filters = filters.iter().copied().chain(routes.iter().map(|route| route.when.as_ref())).flatten();
    let filtered = filters.flat_map(Filter::fields).any(|ix| is_kind(&ix));
    let grouped = routes.iter().any(|route| match &route.group {
        Some(Group::Fields(group)) => group.iter().any(is_kind),
        _ => false,
    });
    let needed = routes.iter().any(|route| route.needs.iter().any(is_kind));
    let acted = needed
        || fields.iter().any(|(ix, _)| plans.iter().any(|(_, plan)| plan.gets_field(&names.fields.get(*ix).name)));
    let passed = routes.iter().any(|route| route.forwarded_headers.iter().any(|name| name == github_kind::HEADER));
    match (filtered || grouped || acted, passed) {
        (true, _) => Some(EventKindUse::Decides),
        (false, true) => Some(EventKindUse::PassedOn),
        (false, false) => None,
    }
}

/// Whether a body is compared with all of GitHub's kinds because the config, and not one of our presets, says what bodies
/// of a kind have.
pub(super) fn compares_all_kinds(section: &ConfigSection<'_>, names: &SourceFieldScope<'_>) -> Option<EventKindUse> {
    let is_githubs = names.kind.is_some_and(|kind| kind.header == github_kind::HEADER);
    let is_ours = matches!(section.place("kind").origin, ConfigOrigin::Preset(_));
    (is_githubs && !is_ours).then_some(EventKindUse::Decides)
}

/// The wanted kinds that are not built in, each with the path that its bodies have.
pub(super) fn unknown_kinds(kind: &RequiredEventKind) -> impl Iterator<Item = (String, Vec<String>)> {
    let unknown = kind.any_of.iter().filter(|wanted| github_kind::members(&wanted.is).is_none());
    unknown.map(|wanted| (wanted.is.clone(), wanted.shape.clone()))
}

impl ConfigResolver<'_> {
    /// The kinds of event that the source is for.
    pub(super) fn kind(&mut self, section: &ConfigSection<'_>) -> Option<RequiredEventKind> {
        let kind = section.section("kind")?;
        for key in ["header", "is"] {
            self.diagnostics
                .error(format!("`kind` has no `{key}`"))
                .unless(kind.has(key) || kind.misspells(key))
                .at(kind.at, "")
                .hint("kind = { header = \"x-event\", is = { push = \"body.commits\" } }");
        }
        let header = self.header_name(kind.text("header")?, kind.place("header"))?;
        let any_of = self.wanted_kinds(&kind, &header)?;
        Some(RequiredEventKind { header, any_of })
    }

    /// The kinds, each with the path that its bodies have.
    fn wanted_kinds(&mut self, kind: &ConfigSection<'_>, header: &str) -> Option<Vec<WantedKind>> {
        let is = kind.node("is")?;
        let written: Vec<(&str, &ConfigNode)> = match (is.table(), kind.node("shape")) {
            (Some(table), None) => table.entries.iter().map(|entry| (&*entry.key, &entry.node)).collect(),
            (None, Some(shape)) => vec![(is.text()?, shape)],
            (Some(_), Some(_)) => {
                self.diagnostics
                    .error("`shape` is for one kind, and `is` has the shape of each")
                    .at(kind.key_place("shape"), "")
                    .hint("remove it");
                return None;
            }
            (None, None) => {
                let name = is.text()?;
                self.diagnostics
                    .error(format!("`kind` does not say what only bodies of the kind `{name}` have"))
                    .unless(kind.misspells("shape"))
                    .at(is.at, "the header is not signed: the body must show its kind")
                    .hint(format!("shape = \"body.{name}\""));
                return None;
            }
        };
        if written.is_empty() || written.len() > limits::WANTED_KINDS_MAX {
            self.diagnostics
                .error(format!("`kind` names {} kinds", written.len()))
                .at(is.at, format!("from 1 to {} are possible", limits::WANTED_KINDS_MAX));
        }
        let mut wanted: Vec<WantedKind> = Vec::new();
        for (name, node) in written.into_iter().take(limits::WANTED_KINDS_MAX) {
            let shape = self.shape(name, node, header)?;
            let overlaps = |other: &&WantedKind| shape.starts_with(&other.shape) || other.shape.starts_with(&shape);
            if let Some(other) = wanted.iter().find(overlaps) {
                self.diagnostics
                    .error(format!("a body of the kind `{name}` would also have the shape of `{}`", other.is))
                    .at(node.at, "the header is not signed: it must not decide between them")
                    .hint("name an object or array that only bodies of this kind have");
            }
            wanted.push(WantedKind { is: name.to_owned(), shape });
        }
        Some(wanted)
    }

    /// The path that only bodies of this kind have.
    fn shape(&mut self, name: &str, node: &ConfigNode, header: &str) -> Option<Vec<String>> {
        match self.place(node) {
            FieldLocation::Body(path)
                if header == github_kind::HEADER
                    && path.first().is_some_and(|member| github_kind::is_common(member)) =>
            {
                self.diagnostics
                    .error(format!("the shape of the kind `{name}` is a member that many kinds of events have"))
                    .at(node.at, "a captured delivery of another kind would pass for this one")
                    .hint("name a member that only bodies of this kind have");
                None
            }
            FieldLocation::Body(path) => Some(path),
            other => {
                self.diagnostics
                    .error(format!("the shape of the kind `{name}` is {other}, which is not in a JSON body"))
                    .at(node.at, "the header is not signed: the body must show its kind")
                    .hint(format!("\"body.{name}\""));
                None
            }
        }
    }

    /// Reports values that distinguish unauthenticated API clients but are not part of their keys: one client would get
    /// another's response. Only the body, and what says nothing about the client, may reach the action.
    pub(super) fn callers_differ_by_their_keys(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        routes: &[Arc<Route>],
        plans: &[(Arc<str>, ActionPlan)],
    ) {
        let own = names.delivery.map(|id| &id.at);
        let tells_apart = |place: &FieldLocation| match place {
            FieldLocation::Header(name) => !idempotency_key::ANONYMOUS.contains(&name.as_str()) && own != Some(place),
            FieldLocation::Query(_) => true,
            FieldLocation::Body(_)
            | FieldLocation::Form(_)
            | FieldLocation::Outer(_)
            | FieldLocation::Path
            | FieldLocation::Claim(_) => false,
        };
        let passed =
            routes.iter().flat_map(|route| &route.forwarded_headers).map(|name| FieldLocation::Header(name.clone()));
        let fields = (0..).map(FieldIndex).zip(names.fields.iter());
        let used = fields
            .filter(|(ix, _)| plans.iter().any(|(_, plan)| plan.gets_field(&names.fields.get(*ix).name)))
            .flat_map(|(_, field)| field.places().cloned());
        let mut told: Vec<_> = passed.chain(used).filter(tells_apart).map(|place| place.to_string()).collect();
        told.sort();
        told.dedup();
        for place in told {
            self.diagnostics
                .error(format!("callers with different `{place}` would share their keys"))
                .at(section.place("verify"), "the action gets it, but callers are not authenticated")
                .hint("scheme = \"bearer\" gives each token its own keys; with \"none\" only `Authorization` does");
        }
    }

    /// The kinds that the config defines, each by a path that its bodies have.
    pub(super) fn kinds(
        &mut self,
        source: &ConfigSection<'_>,
        used: Option<EventKindUse>,
    ) -> Vec<(String, Vec<String>)> {
        let entries = source.node("kinds").and_then(ConfigNode::table).map_or(&[][..], |table| &table.entries);
        if source.has("kinds") && used.is_none() {
            self.diagnostics
                .warning("`kinds` has no effect")
                .unless(self.unread.fields)
                .at(source.key_place("kinds"), format!("nothing in this source uses {}", github_kind::HEADER))
                .hint(format!("use a field such as kind = \"header.{}\" in `when`, or remove it", github_kind::HEADER));
        }
        let mut kinds = Vec::new();
        for entry in entries {
            if !github_kind::is_name(&entry.key) {
                self.diagnostics
                    .error(format!("`{}` cannot be a kind of event", entry.key))
                    .at(entry.key_at, "lower-case letters, digits and _, as the header names it");
            }
            match self.place(&entry.node) {
                FieldLocation::Body(path) if path.first().is_some_and(|member| github_kind::is_common(member)) => {
                    self.diagnostics
                        .error(format!("`kinds.{}` names a member that many kinds of events have", entry.key))
                        .at(entry.node.at, "a captured delivery of another kind would pass for this one")
                        .hint("name a member that only bodies of this kind have");
                }
                FieldLocation::Body(path) => kinds.push((entry.key.clone(), path)),
                other => {
                    self.diagnostics
                        .error(format!("`kinds.{}` is {other}, and only the body is signed", entry.key))
                        .at(entry.node.at, "a member that every body of this kind has")
                        .hint(format!("{} = \"body.{}\"", entry.key, entry.key));
                }
            }
        }
        kinds
    }
}
