//! `source`: its preset, path, delivery id, responses and routes.

use super::catch_up::CATCH_UP_KEYS;
use super::client_rules::{ClientRules, SOURCE_CLIENT_KEYS, SourceClientRules};
use super::event_kinds::{KIND_KEYS, compares_all_kinds, kind_use, unknown_kinds};
use super::fields::{FIELD_KEYS, SourceFieldScope};
use super::handshake::HANDSHAKE_KEYS;
use super::keys::{ConfigValueType, SectionKeys, in_preset, key};
use super::notifier::{ConfiguredNotifier, NOTIFY_KEYS, NotifyLevel};
use super::once::ONCE_KEYS;
use super::polled_source::POLL_KEYS;
use super::presets::{SENDER_KEYS, SenderFacts};
use super::raw::{ConfigSpan, ConfigTable};
use super::resolve::{ConfigResolver, SourcePartsInError};
use super::route::{ROUTE_KEYS, ResolvedRoute};
use super::section::ConfigSection;
use super::stream_source::FROM_KEYS;
use super::units::size_text;
use super::verify::{SCHEMES, VERIFY_KEYS};
use super::{ListenAddress, PollPlan, SourceProvenance, StreamPlan, presets};
use crate::action::ActionPlan;
use crate::action::health_check::HealthCheckPlan;
use crate::catch_up::CatchUpPlan;
use crate::decide::ingest_path::IngestPath;
use crate::decide::limits;
use crate::decide::source::{ApiStyle, Intake, Route, Source};
use crate::decide::verify::VerificationScheme;
use crate::registry::LookupPlan;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) static SOURCE_KEYS: SectionKeys = SectionKeys {
    name: "source",
    title: "`[source.NAME]`",
    about: "A sender. NAME consists of lower-case letters, digits, `_` and `-`.",
    keys: &[
        &[
            key(
                "preset",
                ConfigValueType::Text,
                "none",
                "Built-in settings for a known sender; keys beside it replace them.",
            ),
            key(
                "path",
                ConfigValueType::Open,
                "/in/<source name>",
                "The path webhooks arrive on. From { env } or { file } it is a secret, for senders that sign nothing.",
            ),
            key(
                "from",
                ConfigValueType::Table(&FROM_KEYS),
                "none",
                "Reads deliveries from a NATS stream instead of receiving them on a path.",
            ),
            key(
                "poll",
                ConfigValueType::Table(&POLL_KEYS),
                "none",
                "Asks a container registry what a tag points to, instead of receiving deliveries. Needs no `verify`.",
            ),
            key(
                "verify",
                ConfigValueType::WordOr(SCHEMES, &VERIFY_KEYS),
                "required",
                "How deliveries are verified; \"none\" must be set explicitly.",
            ),
            key("secret", ConfigValueType::Secrets, "none", "Short for verify.secret."),
            key("public_key", ConfigValueType::OneOrMoreOpen, "none", "Short for verify.public_key."),
            key("issuer", ConfigValueType::Text, "none", "Short for verify.issuer."),
            key("audience", ConfigValueType::Text, "none", "Short for verify.audience."),
            key("claims", ConfigValueType::Claims, "none", "Required beside verify.claims."),
            key("topic", ConfigValueType::Text, "none", "Short for verify.topic."),
            key("webhook_id", ConfigValueType::Text, "none", "Short for verify.webhook_id."),
            key("certificates", ConfigValueType::Text, "none", "Short for verify.certificates."),
            key("keys", ConfigValueType::Text, "none", "Short for verify.keys."),
            key(
                "allow_keys_from",
                ConfigValueType::Texts,
                "public addresses",
                "Ranges of addresses from which published keys may be fetched although they are not public, such as \
             \"10.0.0.0/8\".",
            ),
            key("url", ConfigValueType::Text, "none", "The URL that is set at the sender, if it signs that, too."),
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
            key(
                "each",
                ConfigValueType::Place,
                "the delivery is one event",
                "An array in the body whose elements are events of their own: body.events, or body. Then body.x is a place in the element, and outer.x one around it.",
            ),
            key("delivery", ConfigValueType::Place, "depends on the scheme", "Where the sender's delivery id is."),
            key(
                "signed",
                ConfigValueType::Flag,
                "depends on the scheme",
                "Whether the signature covers the delivery id.",
            ),
            key("require", ConfigValueType::Expression, "none", "If false, the delivery is refused with 403."),
            key(
                "when",
                ConfigValueType::Expression,
                "always",
                "If false, the delivery is ignored and nothing is stored.",
            ),
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
                "accepted_status",
                ConfigValueType::Number(&[200, 202, 204]),
                "202",
                "With respond = \"accepted\": the status that the sender gets for an event that is stored; 204 has no body.",
            ),
            key(
                "mark_duplicates",
                ConfigValueType::Flag,
                "false",
                "Sets isDuplicate: true in a JSON object that is returned again to a duplicate.",
            ),
            key(
                "content_type",
                ConfigValueType::OneOrMoreTexts,
                "JSON's own types, text/plain",
                "More content types under which the sender sends JSON, such as \"application/csp-report\"; \"*/*\" is any.",
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
                "handshake",
                ConfigValueType::Tables(&HANDSHAKE_KEYS),
                "the preset's",
                "Questions of the sender that are answered without an event.",
            ),
            key("verify_token", ConfigValueType::Secrets, "none", "The token that a handshake must bring."),
            key(
                "catch_up",
                ConfigValueType::Table(&CATCH_UP_KEYS),
                "none",
                "Asks the sender again for deliveries that were missed.",
            ),
            key(
                "route",
                ConfigValueType::Tables(&ROUTE_KEYS),
                "one that only records",
                "Where events go; the first that matches wins.",
            ),
            key(
                "notify",
                ConfigValueType::Tables(&NOTIFY_KEYS),
                "the config's",
                "Who is told about the ends of its events, unless a route has its own.",
            ),
            key(
                "imported",
                ConfigValueType::Names,
                "none",
                "The fields that identify a change that `hookonce import` brought here.",
            ),
            key(
                "api",
                ConfigValueType::Flag,
                "false",
                "For clients of an HTTP API, with a key in the header of `delivery`: each credential has keys of its own, another \
             body under a key is 422, and problems are application/problem+json.",
            ),
            key(
                "kind",
                ConfigValueType::Table(&KIND_KEYS),
                "any kind",
                "The kinds of event that the source is for, where a header names them.",
            ),
            in_preset("sender", ConfigValueType::Table(&SENDER_KEYS), "What the preset knows of its sender."),
        ],
        SOURCE_CLIENT_KEYS,
    ],
};

/// A resolved source, the plans, lookups, health checks and notifiers of its routes, and the provenance of its parts.
pub(super) struct ResolvedSource {
    pub(super) source: Source,
    pub(super) plans: Vec<(Arc<str>, ActionPlan)>,
    pub(super) lookups: Vec<(Arc<str>, LookupPlan)>,
    pub(super) health_checks: Vec<(Arc<str>, HealthCheckPlan)>,
    pub(super) catch_up: Option<CatchUpPlan>,
    pub(super) notifiers: Vec<Arc<ConfiguredNotifier>>,
    pub(super) stream: Option<StreamPlan>,
    pub(super) poll: Option<PollPlan>,
    pub(super) clients: SourceClientRules,
    pub(super) notes: SourceProvenance,
}

/// The preset that a source begins with.
struct ChosenPreset {
    name: Arc<str>,
    sender: SenderFacts,
}

/// What is absent from a source only because it could not be read.
fn unread_parts(section: &ConfigSection<'_>, preset: Option<&ChosenPreset>) -> SourcePartsInError {
    let preset = preset.is_none() && (section.has("preset") || section.misspells("preset"));
    let fields = section.misspells("fields") || section.node("fields").is_some_and(|node| node.table().is_none());
    SourcePartsInError {
        preset,
        fields: preset || fields,
        delivery: preset || section.misspells("delivery"),
        subject: false,
    }
}

impl ConfigResolver<'_> {
    #[expect(clippy::too_many_lines, reason = "one step for each part of a source")]
    pub(super) fn source(
        &mut self,
        name: &str,
        (at, written): (ConfigSpan, &ConfigTable),
        (clients, listen): (&ClientRules, &ListenAddress),
    ) -> ResolvedSource {
        self.source_name(name, at);
        let (table, preset) = self.with_preset(written, at);
        let section = ConfigSection::new(&table, &SOURCE_KEYS, at);
        self.unread = unread_parts(&section, preset.as_ref());
        self.places.clear();
        let stream = self.from(&section);
        let poll = self.poll(&section);
        let each = self.each(&section);
        let delivery_at = section.node("delivery").map(|node| self.content_place(node, each.as_deref()));
        let kind = self.kind(&section);
        let fields = self.fields(&section, kind.as_ref(), each);
        let sender = preset.as_ref().map(|preset| &preset.sender);
        let before = self.places.len();
        let scheme = self.verify(name, &section, delivery_at.as_ref(), &fields, sender);
        self.no_claims(before);
        // A scheme's own id is that of the whole delivery.
        let whole = scheme.as_ref().filter(|_| delivery_at.is_some() || fields.each().is_none());
        let delivery = self.delivery(&section, delivery_at, whole);
        let delivery = delivery.or_else(|| stream.as_ref()?.delivery_id(scheme.as_ref()?));
        self.usable_places(&section, &fields, delivery.as_ref(), scheme.as_ref());
        if let Some(preset) = &preset {
            self.has_what_it_needs(&section, &preset.name, &preset.sender, &fields);
        }
        self.check_sender_headers(&section, scheme.as_ref());
        let names = SourceFieldScope {
            source: name,
            fields: &fields,
            scheme: scheme.as_ref(),
            sender,
            kind: kind.as_ref(),
            delivery: delivery.as_ref(),
            stream: stream.as_ref(),
        };
        let (once, mut notes) = self.once(&section, &names, delivery.as_ref());
        notes.preset = preset.as_ref().map(|preset| preset.name.clone());
        notes.preset_version = sender.map_or(1, |sender| sender.version);
        self.check_elements(&section, &names, &once);
        let catch_up = self.catch_up(&section, &once, delivery.as_ref());
        let before = self.places.len();
        let handshakes = self.handshakes(&section, scheme.as_ref());
        self.no_claims(before);
        let require = self.filter("require", &section, &names);
        let when = self.filter("when", &section, &names);
        let respond = self.respond(&section);
        let accepted_status = self.accepted_status(&section, respond);
        let speaks = self.api_style(&section, scheme.as_ref());
        self.only_when_done(&section, respond);

        let mut routes: Vec<Arc<Route>> = Vec::new();
        let (mut plans, mut lookups, mut health_checks) = (Vec::new(), Vec::new(), Vec::new());
        let told = self.notify(&section, &names, NotifyLevel { source: name, route: "" });
        let told = told.unwrap_or_else(|| self.notifiers.clone());
        let mut notifiers: Vec<Arc<ConfiguredNotifier>> = Vec::new();
        let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
        for (i, inner) in section.sections("route").into_iter().enumerate() {
            let resolved = self.route(i + 1, &inner, &names, &once, respond, &told);
            let ResolvedRoute { route, plan, lookup, health_check, notifiers: of_route } = resolved;
            let known = |one: &ConfiguredNotifier| notifiers.iter().any(|other| other.target.route == one.target.route);
            let new: Vec<_> = of_route.into_iter().filter(|one| !known(one)).collect();
            notifiers.extend(new);
            if let Some(other) = seen.insert(route.name.clone(), i + 1) {
                self.diagnostics
                    .error(format!("source `{name}` has two routes named `{}`", route.name))
                    .at(inner.place("name"), format!("also the name of route number {other}"));
            }
            plans.extend(plan.map(|plan| (route.name.clone(), plan)));
            lookups.extend(lookup.map(|lookup| (route.name.clone(), lookup)));
            health_checks.extend(health_check.map(|check| (route.name.clone(), check)));
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
        let filters = [require.as_ref(), when.as_ref(), once.new_when.as_ref()];
        let kind_used = kind_use(&names, &filters, &routes, &plans);
        let kind_used = kind_used.or_else(|| compares_all_kinds(&section, &names));
        let mut kinds = self.kinds(&section, kind_used);
        kinds.extend(kind.iter().flat_map(unknown_kinds));
        let format = self.body_format(&section, scheme.as_ref());
        let (path, intake) = match (&stream, &poll) {
            (Some(stream), _) => (IngestPath::open(&stream.words()), Intake::Stream(stream.stream())),
            (None, Some(poll)) => (IngestPath::open(&poll.words()), Intake::Poll { digest: fields.ix("digest") }),
            (None, None) => (self.path(name, &section, sender, scheme.as_ref()), Intake::Path),
        };
        let clients = self.source_client_rules(&section, intake.listens(), clients, listen);
        let source = Source {
            name: name.into(),
            scope: self.scope(name, &section),
            path,
            intake,
            verify: scheme.unwrap_or_else(VerificationScheme::none).reading(format),
            kind,
            kind_headers: sender.map(|sender| sender.kind_headers.clone()).unwrap_or_default(),
            delivery,
            handshakes,
            fields: match kind_used {
                Some(used) => fields.comparing_kinds(used, &kinds),
                None => fields,
            },
            require,
            when,
            once,
            respond,
            accepted_status,
            api_style: speaks,
            mark_duplicates: section.flag("mark_duplicates").unwrap_or(false),
            body_max: self.body_max(&section),
            routes,
        };
        ResolvedSource { source, plans, lookups, health_checks, catch_up, notifiers, stream, poll, clients, notes }
    }

    fn source_name(&mut self, name: &str, at: ConfigSpan) {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(allowed) {
            self.diagnostics
                .error(format!("`{name}` cannot be the name of a source"))
                .at(at, "lower-case letters, digits, _ and -");
        }
    }

    fn with_preset(&mut self, written: &ConfigTable, source: ConfigSpan) -> (ConfigTable, Option<ChosenPreset>) {
        let poll = &presets::POLL;
        if written.get("poll").is_some() {
            let chosen = ChosenPreset { name: poll.name.into(), sender: poll.sender() };
            return (presets::merge_preset(poll, written), Some(chosen));
        }
        let Some(node) = written.get("preset") else { return (written.clone(), None) };
        let Some(name) = node.text() else { return (written.clone(), None) };
        let (merged, sender) = if let Some(preset) = presets::find(name) {
            self.no_file_of_this_name(name);
            (presets::merge_preset(preset, written), preset.sender())
        } else if let Some(preset) = self.user_preset(name, node, source) {
            let sender = preset.sender();
            (presets::merge(preset.table, written), sender)
        } else {
            return (written.clone(), None);
        };
        if let Some(once) = written.entry("once")
            && once.node.table().is_some_and(|once| once.get("per").is_none() && once.get("change").is_none())
        {
            self.diagnostics
                .warning("`once` replaces the preset's whole `once`, including the keys it does not set")
                .at(once.key_at, "neither `per` nor `change`: the defaults apply")
                .hint(format!("`hookonce presets {name}` shows the keys to repeat"));
        }
        (merged, Some(ChosenPreset { name: name.into(), sender }))
    }

    /// The style of responses: with the preset for APIs, for clients with an `Idempotency-Key`.
    fn api_style(&mut self, section: &ConfigSection<'_>, scheme: Option<&VerificationScheme>) -> ApiStyle {
        if section.flag("api") != Some(true) {
            return ApiStyle::Webhook;
        }
        let in_header = section.text("delivery").is_some_and(|place| place.starts_with("header."));
        self.diagnostics
            .error("`api` needs `delivery`, the header with the key of a request")
            .unless(in_header || self.unread.delivery)
            .at(section.key_place("api"), "")
            .hint("delivery = \"header.idempotency-key\"");
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
