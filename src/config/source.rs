//! `source`: its preset, path, delivery id, responses and routes.

use super::diagnostic;
use super::event_kinds::{kind_use, reaches_action};
use super::fields::FIELD_KEYS;
use super::fields::FieldScope;
use super::once::ONCE_KEYS;
use super::once::provenance;
use super::raw::{ConfigNode, ConfigSpan, ConfigTable};
use super::resolve::{ConfigResolver, UnreadParts};
use super::route::ROUTE_KEYS;
use super::section::ConfigSection;
use super::stream_source::FROM_KEYS;
use super::units::size_text;
use super::verify::{SCHEMES, VERIFY_KEYS};
use super::{Provenance, SourceProvenance, StreamPlan, presets};
use crate::action::plan::ActionPlan;
use crate::config::keys::{ConfigValueType, SectionKeys, in_preset, key};
use crate::decide::field::{FieldIndex, FieldLocation, FieldSet};
use crate::decide::identity::idempotency_key;
use crate::decide::limits;
use crate::decide::response::problem_json::PAGE_PATH;
use crate::decide::source::{ApiStyle, DeliveryIdLocation, RequiredEventKind, ResponseMode, Route, Source};
use crate::decide::time::Duration;
use crate::decide::verify::VerificationScheme;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) static SOURCE_KEYS: SectionKeys = SectionKeys {
    name: "source",
    title: "`[source.NAME]`",
    about: "A sender. NAME consists of lower-case letters, digits, `_` and `-`.",
    keys: &[&[
        key(
            "preset",
            ConfigValueType::Text,
            "none",
            "Built-in settings for a known sender; keys beside it replace them.",
        ),
        key("path", ConfigValueType::Text, "/in/<source name>", "The path webhooks arrive on."),
        key(
            "from",
            ConfigValueType::Table(&FROM_KEYS),
            "none",
            "Reads deliveries from a NATS stream instead of receiving them on a path.",
        ),
        key(
            "verify",
            ConfigValueType::WordOr(SCHEMES, &VERIFY_KEYS),
            "required",
            "How deliveries are verified; \"none\" must be set explicitly.",
        ),
        key("secret", ConfigValueType::Secrets, "none", "Short for verify.secret."),
        key(
            "key_id",
            ConfigValueType::Name,
            "none",
            "The field that names the caller, if secret = { dir = … } has a file for each caller.",
        ),
        key(
            "scope",
            ConfigValueType::Text,
            "the source's name",
            "The namespace of keys: set it to the old name after renaming a source.",
        ),
        key("delivery", ConfigValueType::Place, "depends on the scheme", "Where the sender's delivery id is."),
        key("signed", ConfigValueType::Flag, "depends on the scheme", "Whether the signature covers the delivery id."),
        key("require", ConfigValueType::Expression, "none", "If false, the delivery is refused with 403."),
        key("when", ConfigValueType::Expression, "always", "If false, the delivery is ignored and nothing is stored."),
        key(
            "respond",
            ConfigValueType::Word(&["accepted", "done"]),
            "accepted",
            "When the sender gets its response: once the event is stored, or once it is done.",
        ),
        key(
            "respond_within",
            ConfigValueType::Duration,
            "8s",
            "With respond = \"done\": how long the sender waits before it gets 202.",
        ),
        key(
            "mark_duplicates",
            ConfigValueType::Flag,
            "false",
            "Sets isDuplicate: true in a JSON object that is returned again to a duplicate.",
        ),
        key("body_max", ConfigValueType::Size, "25MB", "Maximum size of a body."),
        key("fields", ConfigValueType::Places(&FIELD_KEYS), "none", "Named values inside a delivery."),
        key(
            "kinds",
            ConfigValueType::Members,
            "the built-in kinds",
            "Kinds of GitHub events that are not built in, or look different: a member that every body of the kind has.",
        ),
        key(
            "once",
            ConfigValueType::Table(&ONCE_KEYS),
            "per delivery id, else per body",
            "What makes two deliveries the same event.",
        ),
        key(
            "route",
            ConfigValueType::Tables(&ROUTE_KEYS),
            "one that only records",
            "Where events go; the first that matches wins.",
        ),
        in_preset("imported", ConfigValueType::Names, "The fields that identify an imported change."),
        in_preset("api", ConfigValueType::Flag, "For clients of an HTTP API, with an Idempotency-Key."),
        in_preset("kind", ConfigValueType::Table(&KIND_KEYS), "The kind of event this preset is for."),
    ]],
};

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

const RESPOND_WITHIN: Duration = Duration::from_secs(8);
/// Paths that the node serves itself.
const OWN_PATHS: [&str; 3] = ["/healthz", "/readyz", PAGE_PATH];

/// A resolved source, the plans of its routes, and the provenance of its parts.
pub(super) struct ResolvedSource {
    pub(super) source: Source,
    pub(super) plans: Vec<(Arc<str>, ActionPlan)>,
    pub(super) stream: Option<StreamPlan>,
    pub(super) notes: SourceProvenance,
}

/// What is absent from a source only because it could not be read.
fn unread_parts(section: &ConfigSection<'_>, preset: Option<&str>) -> UnreadParts {
    let preset = preset.is_none() && (section.has("preset") || section.misspells("preset"));
    let fields = section.misspells("fields") || section.node("fields").is_some_and(|node| node.table().is_none());
    UnreadParts { preset, fields: preset || fields, delivery: preset || section.misspells("delivery"), subject: false }
}

impl ConfigResolver<'_> {
    pub(super) fn source(&mut self, name: &str, at: ConfigSpan, written: &ConfigTable) -> ResolvedSource {
        self.source_name(name, at);
        let (table, preset) = self.with_preset(written, at);
        let section = ConfigSection::new(&table, &SOURCE_KEYS, at);
        self.unread = unread_parts(&section, preset);
        let stream = self.from(&section);
        let delivery_at = section.node("delivery").map(|node| self.place(node));
        let kind = self.kind(&section);
        let fields = self.fields(&section, kind.as_ref());
        let scheme = self.verify(name, &section, delivery_at.as_ref(), &fields);
        let delivery = self.delivery(&section, delivery_at, scheme.as_ref());
        let delivery = delivery.or_else(|| stream.as_ref()?.delivery_id(scheme.as_ref()?));
        self.no_secret_field(&section, &fields, delivery.as_ref(), scheme.as_ref());
        let names = FieldScope {
            source: name,
            fields: &fields,
            scheme: scheme.as_ref(),
            kind: kind.as_ref(),
            delivery: delivery.as_ref(),
            stream: stream.as_ref(),
        };
        let (once, mut notes) = self.once(&section, &names, delivery.as_ref());
        notes.preset = preset;
        let require = self.filter("require", &section, &names);
        let when = self.filter("when", &section, &names);
        let respond = self.respond(&section);
        let speaks = self.api_style(&section, scheme.as_ref());
        self.only_when_done(&section, respond);

        let mut routes: Vec<Arc<Route>> = Vec::new();
        let mut plans = Vec::new();
        let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
        for (i, inner) in section.sections("route").into_iter().enumerate() {
            let (route, plan) = self.route(i + 1, &inner, &names, &once, respond);
            if let Some(other) = seen.insert(route.name.clone(), i + 1) {
                self.diagnostics
                    .error(format!("source `{name}` has two routes named `{}`", route.name))
                    .at(inner.place("name"), format!("also the name of route number {other}"));
            }
            plans.extend(plan.map(|plan| (route.name.clone(), plan)));
            routes.push(Arc::new(route));
        }
        if !section.has("route") {
            self.diagnostics
                .warning(format!("source `{name}` has no route, so its events are only recorded"))
                .unless(section.misspells("route"))
                .at(at, "")
                .hint(format!("[[source.{name}.route]] with `run` or `forward`"));
            routes.push(Arc::new(Route::default()));
        }
        if speaks == ApiStyle::Api && scheme.as_ref().is_some_and(VerificationScheme::is_none) {
            self.callers_differ_by_their_keys(&section, &names, &routes, &plans);
        }
        let kind_used = kind_use(&names, [require.as_ref(), when.as_ref()], &routes, &plans);
        let kinds = self.kinds(&section, kind_used);
        let source = Source {
            name: name.into(),
            scope: self.scope(name, &section),
            path: stream.as_ref().map_or_else(|| self.path(name, &section), |stream| stream.words().into()),
            stream: stream.as_ref().map(StreamPlan::stream),
            verify: scheme.unwrap_or(VerificationScheme::None),
            kind,
            delivery,
            fields: match kind_used {
                Some(used) => fields.comparing_kinds(used, &kinds),
                None => fields,
            },
            require,
            when,
            once,
            respond,
            api_style: speaks,
            mark_duplicates: section.flag("mark_duplicates").unwrap_or(false),
            body_max: self.body_max(&section),
            routes,
        };
        ResolvedSource { source, plans, stream, notes }
    }

    fn source_name(&mut self, name: &str, at: ConfigSpan) {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(allowed) {
            self.diagnostics
                .error(format!("`{name}` cannot be the name of a source"))
                .at(at, "lower-case letters, digits, _ and -");
        }
    }

    fn with_preset(&mut self, written: &ConfigTable, source: ConfigSpan) -> (ConfigTable, Option<&'static str>) {
        let Some(node) = written.get("preset") else { return (written.clone(), None) };
        let Some(name) = node.text() else { return (written.clone(), None) };
        let Some(preset) = presets::find(name) else {
            let known = || presets::PRESETS.iter().map(|preset| preset.name);
            let all: Vec<_> = known().collect();
            self.diagnostics
                .error(format!("there is no preset `{name}`"))
                .at(node.at, format!("presets: {}", all.join(", ")))
                .sort_at(source)
                .hint_if(diagnostic::did_you_mean(name, known()));
            return (written.clone(), None);
        };
        let merged = presets::merge_preset(preset, written);
        if let Some(once) = written.entry("once")
            && once.node.table().is_some_and(|once| once.get("per").is_none() && once.get("change").is_none())
        {
            self.diagnostics
                .warning("`once` replaces the preset's whole `once`, including the keys it does not set")
                .at(once.key_at, "neither `per` nor `change`: the defaults apply")
                .hint(format!("`hookonce presets {name}` shows the keys to repeat"));
        }
        (merged, Some(preset.name))
    }

    fn kind(&mut self, section: &ConfigSection<'_>) -> Option<RequiredEventKind> {
        let kind = section.section("kind").filter(|kind| provenance(kind.at) == Provenance::Preset)?;
        let shape = match self.place(kind.node("shape")?) {
            FieldLocation::Body(path) => path,
            _ => Vec::new(),
        };
        Some(RequiredEventKind { header: kind.text("header")?.to_owned(), is: kind.text("is")?.to_owned(), shape })
    }

    /// Reports a field or delivery id that holds the sender's credentials: it would be logged, stored and passed on.
    fn no_secret_field(
        &mut self,
        section: &ConfigSection<'_>,
        fields: &FieldSet,
        delivery: Option<&DeliveryIdLocation>,
        scheme: Option<&VerificationScheme>,
    ) {
        let names = scheme.map(VerificationScheme::signature_headers).unwrap_or_default();
        let secret = |at: &FieldLocation| matches!(at, FieldLocation::Header(name) if names.contains(&name.as_str()));
        let fields = fields.iter().filter(|field| secret(&field.at));
        let fields = fields.map(|field| (format!("the field `{}`", field.name), "fields", &field.at));
        let id = delivery.filter(|delivery| secret(&delivery.at));
        let id = id.map(|delivery| ("`delivery`".to_owned(), "delivery", &delivery.at));
        for (what, key, header) in fields.chain(id) {
            self.diagnostics
                .error(format!("{what} holds the sender's credentials"))
                .at(section.key_place(key), format!("{header} must not be logged, stored or passed on"))
                .hint("use a value that is not a secret");
        }
    }

    fn delivery(
        &mut self,
        section: &ConfigSection<'_>,
        at: Option<FieldLocation>,
        scheme: Option<&VerificationScheme>,
    ) -> Option<DeliveryIdLocation> {
        if let Some(at) = at {
            // What an invalid scheme covers is unknown.
            let covered = scheme.is_none_or(|scheme| scheme.covers(&at));
            let signed = section.flag("signed").unwrap_or(covered);
            if !covered && (signed || section.flag("api") == Some(true)) {
                self.does_not_cover(section, &at, scheme);
            }
            return Some(DeliveryIdLocation { at, signed });
        }
        if section.has("signed") {
            self.diagnostics
                .error("`signed` needs `delivery`, which is missing")
                .unless(self.unread.delivery)
                .at(section.key_place("signed"), "")
                .hint("set delivery = \"header.x-id\", or remove `signed`");
        }
        scheme.and_then(VerificationScheme::delivery_id)
    }

    /// Reports an unsigned id that is claimed to be signed: anyone could put it on a captured delivery.
    fn does_not_cover(&mut self, section: &ConfigSection<'_>, at: &FieldLocation, scheme: Option<&VerificationScheme>) {
        if section.flag("api") == Some(true) {
            self.diagnostics
                .error("the signature does not cover the `Idempotency-Key`")
                .at(section.place("verify"), "anyone who sees a request could send it again under another key")
                .hint("over = \"{id}.{body}\", if your clients sign both; or scheme = \"bearer\"");
            return;
        }
        let hint = if scheme.is_some_and(VerificationScheme::content_is_configured) {
            "over = \"{id}.{body}\", if the sender signs both; else remove `signed`"
        } else {
            "remove `signed`: the signed content is then part of the identity"
        };
        self.diagnostics
            .error("`signed` is true, but the signature does not cover the delivery id")
            .at(section.place("signed"), format!("anyone who repeats a delivery could change {at}"))
            .hint(hint);
    }

    /// Reports values that distinguish unauthenticated API clients but are not part of their keys: one client would get
    /// another's response. Only the body, and what says nothing about the client, may reach the action.
    fn callers_differ_by_their_keys(
        &mut self,
        section: &ConfigSection<'_>,
        names: &FieldScope<'_>,
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
        let used =
            fields.filter(|(ix, _)| reaches_action(names, *ix, routes, plans)).map(|(_, field)| field.at.clone());
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

    fn respond(&mut self, section: &ConfigSection<'_>) -> ResponseMode {
        if section.has("from") {
            return ResponseMode::Accepted;
        }
        let within = self.positive(section, "respond_within");
        if section.text("respond") == Some("done") {
            return ResponseMode::WhenDone { within: within.unwrap_or(RESPOND_WITHIN) };
        }
        if section.has("respond_within") {
            self.diagnostics
                .warning("`respond_within` has no effect")
                .unless(self.unread.preset || section.misspells("respond"))
                .at(section.key_place("respond_within"), "the sender gets its response as soon as the event is stored")
                .hint("respond = \"done\" makes the sender wait");
        }
        ResponseMode::Accepted
    }

    /// Warns about settings for kept responses if the sender does not wait for one.
    fn only_when_done(&mut self, section: &ConfigSection<'_>, respond: ResponseMode) {
        if respond != ResponseMode::Accepted {
            return;
        }
        let once = section.section("once");
        let marks = section.has("mark_duplicates").then(|| ("mark_duplicates", section.key_place("mark_duplicates")));
        let keeps = once.filter(|once| once.has("keep_failures"));
        let keeps = keeps.map(|once| ("keep_failures", once.key_place("keep_failures")));
        // Presets are written for HTTP.
        let told = |at: ConfigSpan| !section.has("from") || provenance(at) == Provenance::Written;
        for (key, at) in marks.into_iter().chain(keeps).filter(|(_, at)| told(*at)) {
            self.diagnostics
                .warning(format!("`{key}` has no effect"))
                .unless(self.unread.preset || section.misspells("respond"))
                .at(at, "the sender gets its response as soon as the event is stored")
                .hint("respond = \"done\" makes the sender wait for a response, and keeps it");
        }
    }

    /// The style of responses: with the preset for APIs, for clients with an `Idempotency-Key`.
    fn api_style(&mut self, section: &ConfigSection<'_>, scheme: Option<&VerificationScheme>) -> ApiStyle {
        let api = section.node("api").filter(|node| provenance(node.at) == Provenance::Preset);
        if api.is_none() || section.flag("api") != Some(true) {
            return ApiStyle::Webhook;
        }
        if scheme.is_some_and(VerificationScheme::is_none) {
            self.diagnostics
                .warning("callers are distinguished by the `Authorization` header alone")
                .at(section.place("verify"), "callers are not authenticated; those without the header share their keys")
                .hint("scheme = \"bearer\" gives each token its own keys");
        }
        ApiStyle::Api
    }

    fn scope(&mut self, name: &str, section: &ConfigSection<'_>) -> Arc<str> {
        let scope = section.text("scope").unwrap_or(name);
        if scope.is_empty() {
            self.diagnostics.error("`scope` is empty").at(section.place("scope"), "");
        }
        scope.into()
    }

    fn path(&mut self, name: &str, section: &ConfigSection<'_>) -> Arc<str> {
        let Some((path, at)) = section.node("path").and_then(|node: &ConfigNode| Some((node.text()?, node.at))) else {
            return format!("/in/{name}").into();
        };
        let wrong = if !path.starts_with('/') {
            Some("it must begin with /")
        } else if OWN_PATHS.contains(&path) {
            Some("hookonce uses this path itself")
        } else if path.chars().any(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#')) {
            Some("a path is ASCII without spaces, ? and #")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.diagnostics.error(format!("`{path}` cannot be a path")).at(at, wrong);
        }
        path.into()
    }

    fn body_max(&mut self, section: &ConfigSection<'_>) -> usize {
        let size = section.size("body_max").unwrap_or(limits::BODY_BYTES_MAX);
        let most = limits::BODIES_IN_FLIGHT_BYTES;
        if size == 0 || size > most {
            self.diagnostics.error("`body_max` is out of range").at(
                section.place("body_max"),
                format!("from 1KB to {}, the limit of all bodies in a node's memory", size_text(most)),
            );
        }
        size
    }
}
