//! Event kinds and other values that are not signed: what a source uses them for, and kinds that the config defines.

use super::Provenance;
use super::fields::SourceFieldScope;
use super::keys::{ConfigValueType, SectionKeys, in_preset};
use super::once::provenance;
use super::raw::ConfigNode;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::action::ActionPlan;
use crate::decide::field::{FieldIndex, FieldLocation};
use crate::decide::filter::Filter;
use crate::decide::github_kind;
use crate::decide::github_kind::EventKindUse;
use crate::decide::identity::idempotency_key;
use crate::decide::source::{Group, RequiredEventKind, Route};
use std::sync::Arc;

pub(super) static KIND_KEYS: SectionKeys = SectionKeys {
    name: "kind",
    title: "`kind = { … }`",
    about: "The kind of event that a preset is for.",
    keys: &[&[
        in_preset("header", ConfigValueType::Text, "The header that names the kind."),
        in_preset("is", ConfigValueType::Text, "The kind that counts."),
        in_preset("shape", ConfigValueType::Place, "What a body of that kind has."),
    ]],
};

/// What a source uses the event kind for, if an unsigned header names it. `None`: it is unused, or signed, or the
/// preset accepts only one kind and compares that.
pub(super) fn kind_use(
    names: &SourceFieldScope<'_>,
    filters: [Option<&Filter>; 2],
    routes: &[Arc<Route>],
    plans: &[(Arc<str>, ActionPlan)],
) -> Option<EventKindUse> {
    let at = FieldLocation::Header(github_kind::HEADER.into());
    let preset = names.kind.is_some_and(|kind| kind.header == github_kind::HEADER);
    if preset || names.scheme.is_none_or(|scheme| scheme.covers(&at)) {
        return None;
    }
    let fields: Vec<_> = (0..).map(FieldIndex).zip(names.fields.iter()).filter(|(_, field)| field.at == at).collect();
    let is_kind = |ix: &FieldIndex| fields.iter().any(|(own, _)| own == ix);
    let filters = filters.into_iter().chain(routes.iter().map(|route| route.when.as_ref())).flatten();
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

impl ConfigResolver<'_> {
    /// The kind of event that the preset is for.
    pub(super) fn kind(&mut self, section: &ConfigSection<'_>) -> Option<RequiredEventKind> {
        let kind = section.section("kind").filter(|kind| provenance(kind.at) == Provenance::Preset)?;
        let shape = match self.place(kind.node("shape")?) {
            FieldLocation::Body(path) => path,
            _ => Vec::new(),
        };
        Some(RequiredEventKind { header: kind.text("header")?.to_owned(), is: kind.text("is")?.to_owned(), shape })
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
            FieldLocation::Body(_) | FieldLocation::Path => false,
        };
        let passed =
            routes.iter().flat_map(|route| &route.forwarded_headers).map(|name| FieldLocation::Header(name.clone()));
        let fields = (0..).map(FieldIndex).zip(names.fields.iter());
        let used = fields
            .filter(|(ix, _)| plans.iter().any(|(_, plan)| plan.gets_field(&names.fields.get(*ix).name)))
            .map(|(_, field)| field.at.clone());
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
