//! `hookonce check`: validates the config and prints what it means, defaults included.

pub mod live;

use crate::action::plan::PublishMode;
use crate::action::plan::{ActionPlan, CommandBlock, Http2Mode, OutputDestination, ReceiverPlan};
use crate::config;
use crate::config::describe::{
    change_text, env_name, group_text, identity_text, in_doubt_text, line, lines, redelivery_text, store_text,
};
use crate::config::diagnostic::{ColorChoice, ConfigDiagnostic, ConfigError, ConfigErrorKind, count};
use crate::config::{
    AdminPermission, Config, EnvLookup, Provenance, SecretRequirement, SourceProvenance, StoreAddress, size_text, view,
};
use crate::decide::event::Retrier;
use crate::decide::github_kind::{EventKindUse, HEADER};
use crate::decide::identity::recipe;
use crate::decide::source::{ApiStyle, Fanout, Keep, ResponseMode, Route, Source};
use crate::decide::time::duration_text;
#[cfg(feature = "sqlite")]
use crate::store::status_text;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

/// Output format of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportFormat {
    /// Text for people.
    Text(ColorChoice),
    /// JSON for programs.
    Json,
}

/// Warnings that need the store: events that would act again because the identities changed, and events that wait for a
/// removed route. None if the store cannot be read.
fn store_warnings(config: &Config) -> Vec<ConfigDiagnostic> {
    #[cfg(feature = "sqlite")]
    if let StoreAddress::Sqlite(path) = &config.store
        && path.exists()
    {
        let before = crate::store::sqlite::remembered(path);
        let stranded = status_text::stranded(&crate::store::sqlite::waiting(path), &config.sources);
        let changes = recipe::changes(&before, &config.recipes());
        return changes.into_iter().chain(stranded).map(ConfigDiagnostic::warning).collect();
    }
    Vec::new()
}

/// The result; its number is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CheckExit {
    /// The config is valid.
    Fine = 0,
    /// It has errors.
    Wrong = 1,
    /// It could not be read.
    Unread = 2,
}

/// Loads a config and prints what it means, or what is wrong with it.
pub fn check(
    explicit: Option<&Path>,
    form: ReportFormat,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<CheckExit> {
    let (file, config) = match load_config(explicit, SecretRequirement::Required, env) {
        Ok(found) => found,
        Err(problems) => return print_errors(&problems, form, out),
    };
    match form {
        ReportFormat::Text(ink) => {
            print_warnings(&config, ink, out)?;
            describe(&config, out)?;
            let warnings = match config.warnings.as_slice() {
                [] => String::new(),
                some => format!(", with {}", count(some)),
            };
            writeln!(out, "{file} is fine{warnings}")?;
        }
        ReportFormat::Json => writeln!(out, "{:#}", view::valid_config(&file, &config))?,
    }
    Ok(CheckExit::Fine)
}

/// The config and its file name, with the store's warnings added.
fn load_config(
    explicit: Option<&Path>,
    secrets: SecretRequirement,
    env: EnvLookup<'_>,
) -> Result<(String, Config), ConfigError> {
    let path = config::find(explicit, env).map_err(|problem| ConfigError {
        file: String::new(),
        nature: ConfigErrorKind::Unread,
        list: vec![problem],
        more: 0,
    })?;
    let mut config = config::load_with(&path, secrets, env)?;
    let renamed = store_warnings(&config);
    config.warnings.extend(renamed);
    Ok((path.display().to_string(), config))
}

fn print_warnings(config: &Config, ink: ColorChoice, out: &mut impl Write) -> io::Result<()> {
    config.warnings.iter().try_for_each(|warning| writeln!(out, "{}", warning.render(ink)))
}

fn print_errors(problems: &ConfigError, form: ReportFormat, out: &mut impl Write) -> io::Result<CheckExit> {
    match form {
        ReportFormat::Text(ink) => write!(out, "{}", problems.render(ink))?,
        ReportFormat::Json => writeln!(out, "{:#}", view::wrong(problems))?,
    }
    Ok(if problems.nature == ConfigErrorKind::Wrong { CheckExit::Wrong } else { CheckExit::Unread })
}

/// Prints what a config means, source by source.
pub fn describe(config: &Config, out: &mut impl Write) -> io::Result<()> {
    let admin = match config.admin.tokens.as_slice() {
        [] => format!("{}, without a token", config.admin.listen),
        tokens => {
            let may: Vec<_> = tokens.iter().map(|token| may_words(token.may)).collect();
            format!("{}, tokens that may {}", config.admin.listen, may.join(", "))
        }
    };
    line(out, "", "listen", &config.listen.to_string())?;
    line(out, "", "admin", &admin)?;
    line(out, "", "store", &store_text(&config.store))?;
    for source in &config.sources {
        writeln!(out)?;
        source_text(config, source, out)?;
    }
    writeln!(out)
}

fn source_text(config: &Config, source: &Source, out: &mut impl Write) -> io::Result<()> {
    let notes = config.notes.get(&source.name);
    writeln!(out, "source {}", source.name)?;
    if let Some(preset) = notes.and_then(|notes| notes.preset) {
        line(out, "  ", "preset", preset)?;
    }
    match &source.stream {
        Some(_) => line(out, "  ", "reads from", &source.path)?,
        None => line(out, "  ", "url", &format!("http://{}{}", config.listen, source.path))?,
    }
    line(out, "  ", "signed by", &source.verify.words())?;
    if let Some(kind) = &source.kind {
        line(out, "  ", "kind", &format!("{} is {}, and the body has {}", kind.header, kind.is, kind.shape.join(".")))?;
    }
    if let Some(used) = source.fields.kind_use() {
        let newer = match used {
            EventKindUse::Decides => "an unknown kind is refused",
            EventKindUse::PassedOn => "an unknown kind is passed on",
        };
        line(out, "  ", "kind", &format!("{HEADER}, and the body has the shape of that kind; {newer}"))?;
    }
    lines(out, "  ", "fields", &field_texts(source))?;
    if let Some(require) = &source.require {
        line(out, "  ", "requires", require.text())?;
    }
    line(out, "  ", "acts when", source.when.as_ref().map_or("always", |when| when.text()))?;
    lines(out, "  ", "once per", &identity_texts(source, notes))?;
    line(out, "  ", "keeps", &keeps_text(source, notes))?;
    if let Some(text) = replay_protection_text(source) {
        line(out, "  ", "captured", &text)?;
    }
    line(out, "  ", "answers", &respond_text(source))?;
    line(out, "  ", "limits", &format!("body {}", size_text(source.body_max)))?;
    if source.scope != source.name {
        line(out, "  ", "scope", &source.scope)?;
    }
    for route in &source.routes {
        let plan = config.actions.get(&(source.name.clone(), route.name.clone()));
        route_text(source, route, plan, out)?;
    }
    Ok(())
}

fn route_text(source: &Source, route: &Route, plan: Option<&ActionPlan>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  route {}", route.name)?;
    line(out, "    ", "when", route.when.as_ref().map_or("always", |when| when.text()))?;
    match plan {
        Some(ActionPlan::Run(blocks)) => {
            for block in blocks {
                lines(out, "    ", "runs", &block_texts(block))?;
            }
        }
        Some(ActionPlan::Forward(receivers)) => {
            let texts: Vec<_> = receivers.iter().map(receiver_text).collect();
            lines(out, "    ", "forwards", &texts)?;
        }
        Some(ActionPlan::Sql(statement)) => {
            let written = statement.written.split_whitespace().collect::<Vec<_>>().join(" ");
            line(out, "    ", "sql", &format!("{written}, within {}", duration_text(statement.timeout)))?;
        }
        Some(ActionPlan::Publish(publish)) => {
            let keeper = match publish.keeper {
                PublishMode::Stream => format!("a stream acknowledges within {}", duration_text(publish.timeout)),
                PublishMode::Core => "core NATS: at most once, lost if there is no subscriber".to_owned(),
            };
            line(out, "    ", "publishes", &format!("{} at {}, {keeper}", publish.subject, publish.server.shown))?;
        }
        None => line(out, "    ", "does", "nothing: events are only recorded")?,
    }
    if route.fanout == Fanout::Record {
        return Ok(());
    }
    line(out, "    ", "retry", &retry_text(route))?;
    line(out, "    ", "in doubt", &in_doubt_text(route))?;
    line(out, "    ", "redelivery", &redelivery_text(route.redelivery))?;
    line(out, "    ", "group", &group_text(source, route))?;
    line(out, "    ", "lease", &duration_text(route.lease))?;
    line(out, "    ", "at once", &route.max_concurrency.to_string())
}

fn receiver_text(receiver: &ReceiverPlan) -> String {
    let mut text = format!("{}, within {}", receiver.display, duration_text(receiver.timeout));
    // Writing to a string cannot fail.
    if !receiver.pass.is_empty() {
        let _ = write!(text, ", passing {}", receiver.pass.join(", "));
    }
    if !receiver.set.is_empty() {
        let names: Vec<_> = receiver.set.iter().map(|(name, _)| &**name).collect();
        let _ = write!(text, ", setting {}", names.join(", "));
    }
    if receiver.sign.is_some() {
        text += ", signed";
    }
    if receiver.http2 == Http2Mode::Prior {
        text += ", by HTTP/2";
    }
    if let Some(at_once) = receiver.at_once {
        let _ = write!(text, ", {at_once} at once");
    }
    text
}

fn may_words(may: AdminPermission) -> &'static str {
    match may {
        AdminPermission::Read => "read",
        AdminPermission::Forget => "forget",
        AdminPermission::All => "do everything",
    }
}

fn field_texts(source: &Source) -> Vec<String> {
    let width = source.fields.iter().map(|field| field.name.chars().count()).max().unwrap_or(0);
    source
        .fields
        .iter()
        .map(|field| {
            let mut text = format!("{:<width$}  {}", field.name, field.at);
            if field.trim {
                text += ", trimmed";
            }
            if let Some(after) = &field.after {
                let _ = write!(text, ", after {after:?}");
            }
            if let Some(default) = &field.default {
                let _ = write!(text, ", else {default:?}");
            }
            text
        })
        .collect()
}

/// The identities of a source, each with its provenance.
fn identity_texts(source: &Source, notes: Option<&SourceProvenance>) -> Vec<String> {
    let mut texts = Vec::new();
    for (i, identity) in source.once.per.iter().enumerate() {
        let whence = notes.and_then(|notes| notes.per.get(i)).copied().unwrap_or(Provenance::Written);
        texts.push(format!("{}{}", identity_text(source, identity), whence_text(whence)));
    }
    if let Some(change) = &source.once.change {
        let whence = notes.map_or(Provenance::Written, |notes| notes.change);
        texts.push(format!("{}{}", change_text(source, change), whence_text(whence)));
    }
    texts
}

fn whence_text(whence: Provenance) -> &'static str {
    match whence {
        // The text of an identity implied by the signature already says so.
        Provenance::Written | Provenance::ImpliedBySignature => "",
        Provenance::Preset => "  (preset)",
        Provenance::Default => "  (default)",
        Provenance::Implied => "  (implied by change)",
    }
}

fn keeps_text(source: &Source, notes: Option<&SourceProvenance>) -> String {
    let (keep, body) = notes.map_or((Provenance::Written, Provenance::Written), |notes| (notes.keep, notes.keep_body));
    let keys = match source.once.keep {
        Keep::For(length) => format!("events for {}", duration_text(length)),
        Keep::Forever => "events for ever".to_owned(),
    };
    let bodies = duration_text(source.once.keep_body);
    format!("{keys}{}, bodies for {bodies}{}", whence_text(keep), whence_text(body)).replace("  (", " (")
}

/// How long a captured delivery that is sent again under another id counts as a duplicate.
fn replay_protection_text(source: &Source) -> Option<String> {
    if source.api_style != ApiStyle::Webhook || !source.has_unsigned_ids() {
        return None;
    }
    if !source.dedups_by_body() {
        return Some("a delivery sent again under another id acts again: equal_bodies is \"new\"".to_owned());
    }
    Some(match (source.verify.tolerance(), source.once.keep) {
        (_, Keep::Forever) => "a delivery sent again under another id is a repeat for ever".to_owned(),
        (Some(age), Keep::For(keep)) if age < keep => {
            let (age, keep) = (duration_text(age), duration_text(keep));
            format!("a delivery sent again under another id is a repeat, and after {age} refused; kept {keep}")
        }
        (_, Keep::For(keep)) => {
            let keep = duration_text(keep);
            format!("a delivery sent again under another id is a repeat for {keep} after its event ended")
        }
    })
}

fn respond_text(source: &Source) -> String {
    let ResponseMode::WhenDone { within } = source.respond else { return "when the event is stored".to_owned() };
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

fn block_texts(block: &CommandBlock) -> Vec<String> {
    let mut texts = vec![format!("in {}, within {}", block.dir, duration_text(block.timeout))];
    texts.extend(block.steps.iter().map(|step| format!("  {step}")));
    if !block.env.is_empty() {
        let env: Vec<_> = block.env.iter().map(env_name).collect();
        texts.push(format!("with {}", env.join(", ")));
    }
    if block.output == OutputDestination::StoreAndLog {
        texts.push("output also to the log".to_owned());
    }
    texts
}

fn retry_text(route: &Route) -> String {
    let retry = &route.retry;
    let waits = format!("waiting {} to {}", duration_text(retry.first), duration_text(retry.longest));
    match (retry.attempts, route.attempts(Retrier::Node)) {
        (1, 1) => "one attempt".to_owned(),
        (n, after) if n == after => format!("{n} attempts, {waits}"),
        (1, after) => format!("one attempt while the sender waits, {after} after it got 202, {waits}"),
        (n, after) => format!("{n} attempts while the sender waits, {after} after it got 202, {waits}"),
    }
}
