//! A config as JSON, without secrets and without URLs that may contain one.

use super::describe::{change_text, env_name, identity_text, store_text};
use super::diagnostic::{ConfigDiagnostic, ConfigError, DiagnosticSeverity};
use super::{AdminPermission, Config, Provenance};
use crate::action::plan::PublishMode;
use crate::action::plan::{ActionPlan, CommandBlock, CommandLine, Http2Mode, OutputDestination, ReceiverPlan};
use crate::decide::claim::MatchedBy;
use crate::decide::envelope::EnvelopeFormat;
use crate::decide::event::Retrier;
use crate::decide::field::FieldIndex;
use crate::decide::github_kind::EventKindUse;
use crate::decide::source::{Group, Identity, InDoubtPolicy, Keep, RedeliveryPolicy, ResponseMode, Route, Source};
use crate::decide::time::duration_text;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

pub(crate) fn valid_config(file: &str, config: &Config) -> Value {
    json!({
        "status": "fine",
        "file": file,
        "listen": config.listen.to_string(),
        "store": store_text(&config.store),
        "admin": {
            "listen": config.admin.listen.to_string(),
            "tokens": config.admin.tokens.iter().map(|token| match token.may {
                AdminPermission::Read => "read",
                AdminPermission::Forget => "forget",
                AdminPermission::All => "all",
            }).collect::<Vec<_>>(),
            "peers": config.admin.peers,
        },
        "sources": config.sources.iter().map(|s| source(config, s)).collect::<Vec<_>>(),
        "problems": problems(&config.warnings),
    })
}

/// The problems of an invalid config.
pub(crate) fn wrong(all: &ConfigError) -> Value {
    json!({ "status": "wrong", "file": all.file, "problems": problems(&all.list), "more": all.more })
}

fn problems(list: &[ConfigDiagnostic]) -> Vec<Value> {
    let one = |problem: &ConfigDiagnostic| {
        json!({
            "level": match problem.level { DiagnosticSeverity::Error => "error", DiagnosticSeverity::Warning => "warning" },
            "title": problem.title,
            "file": problem.place.as_ref().map(|place| &place.file),
            "line": problem.place.as_ref().map(|place| place.line),
            "column": problem.place.as_ref().map(|place| place.column),
            "label": problem.place.as_ref().map(|place| &place.label),
            "hint": problem.hint,
        })
    };
    list.iter().map(one).collect()
}

/// A source as resolved from the config: what `hookonce check --json` prints.
#[derive(Serialize, ToSchema)]
pub(crate) struct SourceView {
    name: String,
    #[schema(required)]
    preset: Option<&'static str>,
    scope: String,
    path: String,
    /// In words; never a secret.
    signed_by: String,
    #[schema(required, value_type = Option<Object>)]
    kind: Option<Value>,
    /// What the kind of event in X-GitHub-Event is used for, where it is compared with the shape of the body.
    #[schema(required)]
    kind_use: Option<KindUseWord>,
    #[schema(required, value_type = Option<Object>)]
    delivery: Option<Value>,
    fields: Vec<FieldView>,
    #[schema(required)]
    require: Option<String>,
    #[schema(required)]
    when: Option<String>,
    once: OnceView,
    respond: RespondWord,
    #[schema(required)]
    respond_within: Option<String>,
    mark_duplicates: bool,
    /// In bytes.
    body_max: usize,
    routes: Vec<RouteView>,
}

/// What the kind of an event is used for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum KindUseWord {
    Decides,
    PassedOn,
}

/// When a source responds.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum RespondWord {
    Accepted,
    Done,
}

/// A declared field.
#[derive(Serialize, ToSchema)]
struct FieldView {
    name: String,
    /// Where it is read from.
    at: String,
    /// White space is cut off.
    trim: bool,
    /// What is cut off its beginning.
    #[schema(required)]
    after: Option<String>,
    /// The value of a missing one.
    #[schema(required)]
    default: Option<String>,
}

/// What makes two deliveries the same event, and how long that is remembered.
#[derive(Serialize, ToSchema)]
struct OnceView {
    #[schema(value_type = Vec<Object>)]
    per: Vec<Value>,
    #[schema(required, value_type = Option<Object>)]
    change: Option<Value>,
    keep: String,
    keep_body: String,
    keep_failures: bool,
}

/// A route.
#[derive(Serialize, ToSchema)]
struct RouteView {
    name: String,
    #[schema(required)]
    when: Option<String>,
    /// One of run, forward, record, …
    #[schema(value_type = Object)]
    action: Value,
    #[schema(required)]
    group: Option<GroupView>,
    retry: RetryView,
    in_doubt: InDoubtWord,
    /// How many attempts may be lost to a crash, a lost lease or a broken connection.
    doubts: u32,
    redelivery: RedeliveryWord,
    #[schema(required)]
    rearm_after: Option<String>,
    lease: String,
    at_once: usize,
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
enum InDoubtWord {
    Retry,
    Hold,
    Never,
}

/// What a repeat does to a dead event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum RedeliveryWord {
    Retry,
    Ignore,
    Again,
}

/// One source as resolved.
pub(crate) fn source(config: &Config, source: &Source) -> SourceView {
    let notes = config.notes.get(&source.name);
    let fields: Vec<_> = source
        .fields
        .iter()
        .map(|field| FieldView {
            name: field.name.to_string(),
            at: field.at.to_string(),
            trim: field.trim,
            after: field.after.clone(),
            default: field.default.as_deref().map(str::to_owned),
        })
        .collect();
    let per: Vec<_> = source
        .once
        .per
        .iter()
        .enumerate()
        .map(|(i, identity)| {
            let whence = notes.and_then(|notes| notes.per.get(i)).copied().unwrap_or(Provenance::Written);
            json!({ "identity": identity_json(source, identity), "from": whence_word(whence) })
        })
        .collect();
    let change = source.once.change.as_ref().map(|change| {
        json!({
            "of": names(source, &change.of),
            "to": names(source, &change.to),
            "order": change.order.map(|ix| &*source.fields.get(ix).name),
            "from": notes.map(|notes| whence_word(notes.change)),
        })
    });
    let (respond, respond_within) = match source.respond {
        ResponseMode::Accepted => (RespondWord::Accepted, None),
        ResponseMode::WhenDone { within } => (RespondWord::Done, Some(duration_text(within))),
    };
    SourceView {
        name: source.name.to_string(),
        preset: notes.and_then(|notes| notes.preset),
        scope: source.scope.to_string(),
        path: source.path.to_string(),
        signed_by: source.verify.words(),
        kind: source.kind.as_ref().map(|kind| json!({ "header": kind.header, "is": kind.is, "shape": kind.shape })),
        kind_use: source.fields.kind_use().map(|used| match used {
            EventKindUse::Decides => KindUseWord::Decides,
            EventKindUse::PassedOn => KindUseWord::PassedOn,
        }),
        delivery: source.delivery.as_ref().map(|id| json!({ "at": id.at.to_string(), "signed": id.signed })),
        fields,
        require: source.require.as_ref().map(|filter| filter.text().to_owned()),
        when: source.when.as_ref().map(|filter| filter.text().to_owned()),
        once: OnceView {
            per,
            change,
            keep: match source.once.keep {
                Keep::For(length) => duration_text(length),
                Keep::Forever => "forever".into(),
            },
            keep_body: duration_text(source.once.keep_body),
            keep_failures: source.once.keep_failures,
        },
        respond,
        respond_within,
        mark_duplicates: source.mark_duplicates,
        body_max: source.body_max,
        routes: source.routes.iter().map(|r| route(config, source, r)).collect(),
    }
}

fn receiver(receiver: &ReceiverPlan) -> Value {
    json!({
        "url": receiver.display,
        "timeout": duration_text(receiver.timeout),
        "headers": receiver.pass,
        "set": receiver.set.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "signed": receiver.sign.is_some(),
        "allow": receiver.allow.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "http2": match receiver.http2 { Http2Mode::Negotiated => "auto", Http2Mode::Prior => "prior" },
        "at_once": receiver.at_once,
        "receipt_headers": receiver.receipt_headers,
    })
}

fn route(config: &Config, source: &Source, route: &Route) -> RouteView {
    let action = match config.actions.get(&(source.name.clone(), route.name.clone())) {
        None => json!({ "record": true }),
        Some(ActionPlan::Run(blocks)) => json!({ "run": blocks.iter().map(block).collect::<Vec<_>>() }),
        Some(ActionPlan::Sql(statement)) => json!({
            "sql": { "statement": &*statement.written, "timeout": duration_text(statement.timeout) },
        }),
        Some(ActionPlan::Publish(publish)) => json!({
            "publish": {
                "nats": publish.server.shown,
                "subject": publish.subject.to_string(),
                "timeout": duration_text(publish.timeout),
                "envelope": (publish.envelope == EnvelopeFormat::Patchwork).then_some("patchwork"),
                "core": publish.keeper == PublishMode::Core,
            },
        }),
        Some(ActionPlan::Forward(receivers)) => json!({
            "forward": receivers
                .iter()
                .map(receiver)
                .collect::<Vec<_>>(),
        }),
    };
    let (redelivery, rearm_after) = match route.redelivery {
        RedeliveryPolicy::Ignore => (RedeliveryWord::Ignore, None),
        RedeliveryPolicy::Retry { other_after, .. } => (RedeliveryWord::Retry, Some(duration_text(other_after))),
        RedeliveryPolicy::Again { published_after, .. } => {
            (RedeliveryWord::Again, Some(duration_text(published_after)))
        }
    };
    RouteView {
        name: route.name.to_string(),
        when: route.when.as_ref().map(|filter| filter.text().to_owned()),
        action,
        group: route.group.as_ref().map(|group| match group {
            Group::Fixed(name) => GroupView::Name(name.clone()),
            Group::Fields(fields) => GroupView::Fields(names(source, fields)),
        }),
        retry: RetryView {
            attempts: route.retry.attempts,
            attempts_once_accepted: route.attempts(Retrier::Node),
            first: duration_text(route.retry.first),
            longest: duration_text(route.retry.longest),
        },
        in_doubt: match route.in_doubt {
            InDoubtPolicy::Retry => InDoubtWord::Retry,
            InDoubtPolicy::Hold => InDoubtWord::Hold,
            InDoubtPolicy::Never => InDoubtWord::Never,
        },
        doubts: route.doubts_max(Retrier::Sender),
        redelivery,
        rearm_after,
        lease: duration_text(route.lease),
        at_once: route.max_concurrency,
    }
}

fn block(block: &CommandBlock) -> Value {
    let steps: Vec<_> = block
        .steps
        .iter()
        .map(|step| match step {
            CommandLine::Shell { text, .. } => json!(text),
            CommandLine::Argv(words) => json!(words.iter().map(ToString::to_string).collect::<Vec<_>>()),
        })
        .collect();
    json!({
        "dir": block.dir.to_string(),
        "steps": steps,
        "timeout": duration_text(block.timeout),
        "env": block.env.iter().map(env_name).collect::<Vec<_>>(),
        "log_output": block.output == OutputDestination::StoreAndLog,
    })
}

/// The identities of a source: the word stored for each, and a description.
pub(crate) fn identities(source: &Source) -> Vec<(String, String)> {
    let word = |identity: &Identity| match identity {
        Identity::Delivery => "delivery".to_owned(),
        Identity::Message => "message".to_owned(),
        Identity::Body => "body".to_owned(),
        Identity::Signed => MatchedBy::Signed.word().to_owned(),
        Identity::Named(fields) => names(source, fields).join("+"),
    };
    let per = source.once.per.iter().map(|identity| (word(identity), identity_text(source, identity)));
    let change = source.once.change.as_ref().map(|change| ("change".to_owned(), change_text(source, change)));
    per.chain(change).collect()
}

fn identity_json(source: &Source, identity: &Identity) -> Value {
    match identity {
        Identity::Delivery => json!("delivery"),
        Identity::Message => json!("message"),
        Identity::Body => json!("body"),
        Identity::Signed => json!(MatchedBy::Signed.word()),
        Identity::Named(fields) => json!(names(source, fields)),
    }
}

fn names(source: &Source, fields: &[FieldIndex]) -> Vec<String> {
    fields.iter().map(|ix| source.fields.get(*ix).name.to_string()).collect()
}

fn whence_word(whence: Provenance) -> &'static str {
    match whence {
        Provenance::Written => "written",
        Provenance::Preset => "preset",
        Provenance::Default => "default",
        Provenance::Implied | Provenance::ImpliedBySignature => "implied",
    }
}
