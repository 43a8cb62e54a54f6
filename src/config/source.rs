//! `source`: its preset, path, delivery id, responses and routes.

use super::catch_up::{self, CATCH_UP_KEYS, CatchUpView};
use super::describe::{LabelledTexts, labelled};
use super::event_kinds::{KIND_KEYS, kind_use};
use super::fields::{FIELD_KEYS, FieldView, SourceFieldScope};
use super::handshake::{self, HANDSHAKE_KEYS};
use super::keys::{ConfigValueType, SectionKeys, in_preset, key};
use super::notifier::{ConfiguredNotifier, NOTIFY_KEYS, NotifyLevel};
use super::once::{ONCE_KEYS, OnceView, provenance};
use super::polled_source::{self, POLL_KEYS, PollView};
use super::presets::{Preset, SENDER_KEYS, SenderFacts};
use super::raw::{ConfigNode, ConfigSpan, ConfigTable};
use super::resolve::{ConfigResolver, SourcePartsInError};
use super::route::{ROUTE_KEYS, ResolvedRoute, RouteView};
use super::section::ConfigSection;
use super::stream_source::FROM_KEYS;
use super::units::size_text;
use super::verify::{SCHEMES, VERIFY_KEYS};
use super::{Config, PollPlan, Provenance, SourceProvenance, StreamPlan, diagnostic, fields, once, presets, route};
use crate::action::ActionPlan;
use crate::action::health_check::HealthCheckPlan;
use crate::catch_up::CatchUpPlan;
use crate::decide::github_kind::{self, EventKindUse};
use crate::decide::limits;
use crate::decide::response::problem_json::PAGE_PATH;
use crate::decide::source::{AcceptedStatus, ApiStyle, Intake, ResponseMode, Route, Source};
use crate::decide::time::{Duration, duration_text};
use crate::decide::verify::VerificationScheme;
use crate::registry::LookupPlan;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::ToSchema;

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
        key("public_key", ConfigValueType::Open, "none", "Short for verify.public_key."),
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
        in_preset("imported", ConfigValueType::Names, "The fields that identify an imported change."),
        in_preset("api", ConfigValueType::Flag, "For clients of an HTTP API, with an Idempotency-Key."),
        in_preset("kind", ConfigValueType::Table(&KIND_KEYS), "The kind of event this preset is for."),
        in_preset("sender", ConfigValueType::Table(&SENDER_KEYS), "What the preset knows of its sender."),
    ]],
};

const RESPOND_WITHIN: Duration = Duration::from_secs(8);
/// Paths that the node serves itself.
const OWN_PATHS: [&str; 3] = ["/healthz", "/readyz", PAGE_PATH];

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
    pub(super) notes: SourceProvenance,
}

/// What is absent from a source only because it could not be read.
fn unread_parts(section: &ConfigSection<'_>, preset: Option<&str>) -> SourcePartsInError {
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
    pub(super) fn source(&mut self, name: &str, at: ConfigSpan, written: &ConfigTable) -> ResolvedSource {
        self.source_name(name, at);
        let (table, preset) = self.with_preset(written, at);
        let section = ConfigSection::new(&table, &SOURCE_KEYS, at);
        self.unread = unread_parts(&section, preset);
        let stream = self.from(&section);
        let poll = self.poll(&section);
        let delivery_at = section.node("delivery").map(|node| self.place(node));
        let kind = self.kind(&section);
        let fields = self.fields(&section, kind.as_ref());
        let scheme = self.verify(name, &section, delivery_at.as_ref(), &fields);
        let delivery = self.delivery(&section, delivery_at, scheme.as_ref());
        let delivery = delivery.or_else(|| stream.as_ref()?.delivery_id(scheme.as_ref()?));
        self.no_secret_field(&section, &fields, delivery.as_ref(), scheme.as_ref());
        let sender = preset.and_then(presets::find).map(Preset::sender);
        let names = SourceFieldScope {
            source: name,
            fields: &fields,
            scheme: scheme.as_ref(),
            sender: sender.as_ref(),
            kind: kind.as_ref(),
            delivery: delivery.as_ref(),
            stream: stream.as_ref(),
        };
        let (once, mut notes) = self.once(&section, &names, delivery.as_ref());
        notes.preset = preset;
        let catch_up = self.catch_up(&section, &once, delivery.as_ref());
        let handshakes = self.handshakes(&section, scheme.as_ref());
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
        let kind_used = kind_use(&names, [require.as_ref(), when.as_ref()], &routes, &plans);
        let kinds = self.kinds(&section, kind_used);
        let source = Source {
            name: name.into(),
            scope: self.scope(name, &section),
            path: match (&stream, &poll) {
                (Some(stream), _) => stream.words().into(),
                (None, Some(poll)) => poll.words().into(),
                (None, None) => self.path(name, &section, sender.as_ref()),
            },
            intake: match (&stream, &poll) {
                (Some(stream), _) => Intake::Stream(stream.stream()),
                (None, Some(_)) => Intake::Poll { digest: fields.ix("digest") },
                (None, None) => Intake::Path,
            },
            verify: scheme.unwrap_or_else(VerificationScheme::none),
            kind,
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
        ResolvedSource { source, plans, lookups, health_checks, catch_up, notifiers, stream, poll, notes }
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
        if written.get("poll").is_some() {
            return (presets::merge_preset(&presets::POLL, written), Some(presets::POLL.name));
        }
        let Some(node) = written.get("preset") else { return (written.clone(), None) };
        let Some(name) = node.text() else { return (written.clone(), None) };
        let Some(preset) = presets::find(name) else {
            self.diagnostics
                .error(format!("there is no preset `{name}`"))
                .at(node.at, "`hookonce presets` lists them")
                .sort_at(source)
                .hint_if(diagnostic::did_you_mean(name, presets::PRESETS.iter().map(|preset| preset.name)));
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

    fn respond(&mut self, section: &ConfigSection<'_>) -> ResponseMode {
        if section.has("from") || section.has("poll") {
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

    /// The status for stored events. A preset's is for senders that do not wait for the end.
    fn accepted_status(&mut self, section: &ConfigSection<'_>, respond: ResponseMode) -> AcceptedStatus {
        let Some(node) = section.node("accepted_status") else { return AcceptedStatus::default() };
        if respond != ResponseMode::Accepted {
            if provenance(node.at) == Provenance::Written {
                self.diagnostics
                    .error("`accepted_status` and respond = \"done\" cannot be combined")
                    .at(section.key_place("accepted_status"), "a sender that waits for the end gets its status")
                    .hint("remove one of them");
            }
            return AcceptedStatus::default();
        }
        match section.count("accepted_status") {
            Some(200) => AcceptedStatus::Ok,
            Some(204) => AcceptedStatus::NoContent,
            _ => AcceptedStatus::Accepted,
        }
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

    fn path(&mut self, name: &str, section: &ConfigSection<'_>, sender: Option<&SenderFacts>) -> Arc<str> {
        let Some((path, at)) = section.node("path").and_then(|node: &ConfigNode| Some((node.text()?, node.at))) else {
            if let Some(sender) = sender.filter(|sender| sender.needs.iter().any(|key| key == "path")) {
                self.diagnostics
                    .error(format!("source `{name}` needs a `path` that cannot be guessed"))
                    .unless(section.has("path") || section.misspells("path"))
                    .at(section.at, format!("{} signs nothing", sender.name))
                    .hint(format!("path = \"/in/{name}/…\", with a long random word"));
            }
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

/// A source as resolved from the config: what `hookonce check --json` prints.
#[derive(Serialize, ToSchema)]
pub(crate) struct SourceView {
    name: String,
    #[schema(required)]
    preset: Option<&'static str>,
    scope: String,
    path: String,
    /// The tag that it polls, instead of receiving deliveries.
    #[schema(required)]
    poll: Option<PollView>,
    /// In words; never a secret.
    signed_by: String,
    #[schema(required, value_type = Option<Object>)]
    kind: Option<Value>,
    /// What the kind of event in X-GitHub-Event is used for, where it is compared with the shape of the body.
    #[schema(required)]
    kind_use: Option<EventKindUseView>,
    #[schema(required, value_type = Option<Object>)]
    delivery: Option<Value>,
    /// The handshakes that are answered, in words.
    handshakes: Vec<String>,
    fields: Vec<FieldView>,
    #[schema(required)]
    require: Option<String>,
    #[schema(required)]
    when: Option<String>,
    once: OnceView,
    respond: ResponseModeView,
    #[schema(required)]
    respond_within: Option<String>,
    /// The status of the response to an event that is stored, if the sender does not wait for its end.
    #[schema(required)]
    accepted_status: Option<u16>,
    mark_duplicates: bool,
    /// In bytes.
    body_max: usize,
    /// Where missed deliveries are asked for.
    #[schema(required)]
    catch_up: Option<CatchUpView>,
    routes: Vec<RouteView>,
}

/// The JSON form of what the kind of an event is used for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum EventKindUseView {
    Decides,
    PassedOn,
}

/// When a source responds.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ResponseModeView {
    Accepted,
    Done,
}

/// A source as resolved.
pub(crate) fn view(config: &Config, source: &Source) -> SourceView {
    let notes = config.notes.get(&source.name);
    let (respond, respond_within) = match source.respond {
        ResponseMode::Accepted => (ResponseModeView::Accepted, None),
        ResponseMode::WhenDone { within } => (ResponseModeView::Done, Some(duration_text(within))),
    };
    SourceView {
        name: source.name.to_string(),
        preset: notes.and_then(|notes| notes.preset),
        scope: source.scope.to_string(),
        path: source.path.to_string(),
        poll: config.polls.get(&source.name).map(polled_source::view),
        signed_by: source.verify.words(),
        kind: source.kind.as_ref().map(|kind| json!({ "header": kind.header, "is": kind.is, "shape": kind.shape })),
        kind_use: source.fields.kind_use().map(|used| match used {
            EventKindUse::Decides => EventKindUseView::Decides,
            EventKindUse::PassedOn => EventKindUseView::PassedOn,
        }),
        delivery: source.delivery.as_ref().map(|id| json!({ "at": id.at.to_string(), "signed": id.signed })),
        handshakes: source.handshakes.iter().map(handshake::words).collect(),
        fields: fields::view(source),
        require: source.require.as_ref().map(|filter| filter.text().to_owned()),
        when: source.when.as_ref().map(|filter| filter.text().to_owned()),
        once: once::view(source, notes),
        respond,
        respond_within,
        accepted_status: accepted_status(source).map(AcceptedStatus::code),
        mark_duplicates: source.mark_duplicates,
        body_max: source.body_max,
        catch_up: config.catch_ups.get(&source.name).map(catch_up::view),
        routes: source.routes.iter().map(|r| route::view(config, source, r)).collect(),
    }
}

/// A source in words.
pub(super) fn texts(config: &Config, source: &Source) -> Vec<LabelledTexts> {
    let notes = config.notes.get(&source.name);
    let mut texts = Vec::new();
    let mut tell = |label, text: &str| texts.push(labelled(label, text));
    if let Some(preset) = notes.and_then(|notes| notes.preset) {
        tell("preset", preset);
    }
    match (&source.intake, config.polls.get(&source.name)) {
        (_, Some(poll)) => texts.extend(polled_source::texts(poll)),
        (Intake::Path, None) => tell("url", &format!("http://{}{}", config.listen, source.path)),
        (Intake::Stream(_) | Intake::Poll { .. }, None) => tell("reads from", &source.path),
    }
    let is_polled = matches!(source.intake, Intake::Poll { .. });
    if !is_polled {
        texts.push(labelled("signed by", source.verify.words()));
    }
    let mut tell = |label, text: &str| texts.push(labelled(label, text));
    if let Some(kind) = &source.kind {
        tell("kind", &format!("{} is {}, and the body has {}", kind.header, kind.is, kind.shape.join(".")));
    }
    if let Some(used) = source.fields.kind_use() {
        let newer = match used {
            EventKindUse::Decides => "an unknown kind is refused",
            EventKindUse::PassedOn => "an unknown kind is passed on",
        };
        let header = github_kind::HEADER;
        tell("kind", &format!("{header}, and the body has the shape of that kind; {newer}"));
    }
    if !source.handshakes.is_empty() {
        texts.push(("handshake", source.handshakes.iter().map(handshake::words).collect()));
    }
    texts.push(("fields", fields::texts(source)));
    if let Some(require) = &source.require {
        texts.push(labelled("requires", require.text()));
    }
    texts.push(labelled("acts when", source.when.as_ref().map_or("always", |when| when.text())));
    texts.push(("once per", once::texts(source, notes)));
    texts.push(labelled("keeps", once::keep_text(source, notes)));
    texts.extend(once::replay_protection_text(source).map(|text| labelled("captured", text)));
    if !is_polled {
        texts.push(labelled("answers", respond_text(source)));
        texts.push(labelled("limits", format!("body {}", size_text(source.body_max))));
    }
    texts.extend(config.catch_ups.get(&source.name).map(catch_up::text));
    if source.scope != source.name {
        texts.push(labelled("scope", &*source.scope));
    }
    texts
}

/// The status for stored events, if a sender waits for it.
fn accepted_status(source: &Source) -> Option<AcceptedStatus> {
    (source.intake.listens() && source.respond == ResponseMode::Accepted).then_some(source.accepted_status)
}

fn respond_text(source: &Source) -> String {
    let ResponseMode::WhenDone { within } = source.respond else {
        let status = accepted_status(source).map(|status| format!(", with {}", status.code()));
        return format!("when the event is stored{}", status.unwrap_or_default());
    };
    let mut text = format!("when it is done, within {}", duration_text(within));
    if source.mark_duplicates {
        text += ", duplicates marked with isDuplicate";
    }
    if source.once.keep_failures {
        text += ", failures kept";
    }
    if source.api_style == ApiStyle::Api {
        text += ", problems as application/problem+json";
    }
    text
}
