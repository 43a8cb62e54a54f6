//! A source as it was resolved: as JSON and in words.

use super::catch_up::{self, CatchUpView};
use super::client_rules::rate_text;
use super::describe::{LabelledTexts, labelled};
use super::each::each_text;
use super::fields::FieldView;
use super::once_view::OnceView;
use super::polled_source::{self, PollView};
use super::responding::{accepted_status, respond_text};
use super::route::RouteView;
use super::units::size_text;
use super::{Config, fields, handshake, once_view, route};
use crate::decide::github_kind::{self, EventKindUse};
use crate::decide::source::{AcceptedStatus, Intake, ResponseMode, Source, WantedKind};
use crate::decide::time::duration_text;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// A source as resolved from the config: what `hookonce check --json` prints.
#[derive(Serialize, ToSchema)]
pub(crate) struct SourceView {
    name: String,
    #[schema(required)]
    preset: Option<String>,
    scope: String,
    path: String,
    /// The tag that it polls, instead of receiving deliveries.
    #[schema(required)]
    poll: Option<PollView>,
    /// In words; never a secret.
    signed_by: String,
    /// What is signed: `id+time+body`, `id+body`, `time+body`, `body`, `fields` (only some values), `nonce` (nothing of
    /// the body), `token` or `none`.
    signs: &'static str,
    #[schema(required, value_type = Option<Object>)]
    kind: Option<Value>,
    /// What the kind of event in X-GitHub-Event is used for, where it is compared with the shape of the body.
    #[schema(required)]
    kind_use: Option<EventKindUseView>,
    /// The array whose elements are events of their own.
    #[schema(required)]
    each: Option<String>,
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
    /// The addresses that may send; null: every address.
    #[schema(required)]
    allow_from: Option<Vec<String>>,
    /// How many refused deliveries of one address are answered one by one, such as `60/m`; null: all.
    #[schema(required)]
    rate_limit: Option<String>,
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
    let rules = config.clients.sources.get(&source.name);
    let notes = config.notes.get(&source.name);
    let (respond, respond_within) = match source.respond {
        ResponseMode::Accepted => (ResponseModeView::Accepted, None),
        ResponseMode::WhenDone { within } => (ResponseModeView::Done, Some(duration_text(within))),
    };
    SourceView {
        name: source.name.to_string(),
        preset: notes.and_then(|notes| notes.preset.as_deref().map(str::to_owned)),
        scope: source.scope.to_string(),
        path: source.path.to_string(),
        poll: config.polls.get(&source.name).map(polled_source::view),
        signed_by: source.verify.words(),
        signs: source.verify.signs(),
        kind: source.kind.as_ref().map(|kind| {
            let shapes = kind.any_of.iter().map(|kind| (kind.is.clone(), json!(kind.shape)));
            let (first, shapes) = (kind.any_of.first(), shapes.collect::<serde_json::Map<_, _>>());
            json!({
                "header": kind.header,
                "is": first.map(|kind| &kind.is),
                "shape": first.map(|kind| &kind.shape),
                "any_of": shapes,
            })
        }),
        kind_use: source.fields.kind_use().map(|used| match used {
            EventKindUse::Decides => EventKindUseView::Decides,
            EventKindUse::PassedOn => EventKindUseView::PassedOn,
        }),
        each: each_text(source),
        delivery: source.delivery.as_ref().map(|id| json!({ "at": id.at.to_string(), "signed": id.signed })),
        handshakes: source.handshakes.iter().map(handshake::words).collect(),
        fields: fields::view(source),
        require: source.require.as_ref().map(|filter| filter.text().to_owned()),
        when: source.when.as_ref().map(|filter| filter.text().to_owned()),
        once: once_view::view(source, notes),
        respond,
        respond_within,
        accepted_status: accepted_status(source).map(AcceptedStatus::code),
        mark_duplicates: source.mark_duplicates,
        body_max: source.body_max,
        allow_from: rules
            .and_then(|rules| rules.allow_from.as_ref())
            .map(|ranges| ranges.iter().map(ToString::to_string).collect()),
        rate_limit: rules.and_then(|rules| rules.rate_limit).map(rate_text),
        catch_up: config.catch_ups.get(&source.name).map(catch_up::view),
        routes: source.routes.iter().map(|r| route::view(config, source, r)).collect(),
    }
}

/// A source in words.
pub(super) fn texts(config: &Config, source: &Source) -> Vec<LabelledTexts> {
    let notes = config.notes.get(&source.name);
    let mut texts = Vec::new();
    let mut tell = |label, text: &str| texts.push(labelled(label, text));
    if let Some(preset) = notes.and_then(|notes| notes.preset.as_deref()) {
        tell("preset", preset);
    }
    match (&source.intake, config.polls.get(&source.name)) {
        (_, Some(poll)) => texts.extend(polled_source::texts(poll)),
        (Intake::Path, None) => {
            let scheme = if config.tls.is_some() { "https" } else { "http" };
            tell("url", &format!("{scheme}://{}{}", config.listen.first, source.path));
        }
        (Intake::Stream(_) | Intake::Poll { .. }, None) => tell("reads from", source.path.shown()),
    }
    let is_polled = matches!(source.intake, Intake::Poll { .. });
    if !is_polled {
        texts.push(labelled("signed by", source.verify.words()));
        texts.push(labelled("signs", source.verify.signs()));
    }
    if let Some(kind) = &source.kind {
        let shape = |wanted: &WantedKind| {
            format!("{} is {}, and the body has {}", kind.header, wanted.is, wanted.shape.join("."))
        };
        texts.push(("kind", kind.any_of.iter().map(shape).collect()));
    }
    let mut tell = |label, text: &str| texts.push(labelled(label, text));
    if let Some(used) = source.fields.kind_use() {
        let newer = match used {
            EventKindUse::Decides => "an unknown kind is refused",
            EventKindUse::PassedOn => "an unknown kind is passed on",
        };
        let header = github_kind::HEADER;
        tell("kind", &format!("{header}, and the body has the shape of that kind; {newer}"));
    }
    texts.extend(each_text(source).map(|place| labelled("each", format!("one event for each element of {place}"))));
    if !source.handshakes.is_empty() {
        texts.push(("handshake", source.handshakes.iter().map(handshake::words).collect()));
    }
    texts.push(("fields", fields::texts(source)));
    if let Some(require) = &source.require {
        texts.push(labelled("requires", require.text()));
    }
    texts.push(labelled("acts when", source.when.as_ref().map_or("always", |when| when.text())));
    texts.push(("once per", once_view::texts(source, notes)));
    texts.push(labelled("keeps", once_view::keep_text(source, notes)));
    texts.extend(once_view::replay_protection_text(source).map(|text| labelled("captured", text)));
    if !is_polled {
        texts.push(labelled("answers", respond_text(source)));
        let rules = config.clients.sources.get(&source.name);
        let rate = rules
            .and_then(|rules| rules.rate_limit)
            .map_or(String::new(), |rate| format!(", {} refused deliveries of one address", rate_text(rate)));
        texts.push(labelled("limits", format!("body {}{rate}", size_text(source.body_max))));
        if let Some(ranges) = rules.and_then(|rules| rules.allow_from.as_ref()) {
            let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
            texts.push(labelled("only from", ranges.join(", ")));
        }
    }
    texts.extend(config.catch_ups.get(&source.name).map(catch_up::text));
    if source.scope != source.name {
        texts.push(labelled("scope", &*source.scope));
    }
    texts
}
