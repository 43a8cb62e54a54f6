//! The arguments, folder and environment of a step. Pure: the node's environment is an argument.
//!
//! Values of a payload become arguments and environment variables. They never become a variable's name, an option, or
//! more than one segment of the program's path; that they never become program text is checked when the config is
//! loaded.

use crate::action::Attempt;
use crate::action::plan::{
    CommandBlock, CommandLine, EnvEntry, FieldTemplate, FieldTemplateError, FieldTemplatePart, WorkingDir,
};
use crate::decide::field::{FieldValue, StoredFields};
use crate::decide::notification::EndDescription;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The node's variables that every command inherits.
const INHERITED_VARS: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"];
const USUAL_PREFIXES: [&str; 2] = ["LC_", "DOCKER_"];

/// The node's environment without variables that hold a secret.
#[derive(Clone, Default)]
pub struct NodeEnvVars(BTreeMap<String, String>);

impl NodeEnvVars {
    /// These variables without those that the config reads secrets from.
    pub fn new(vars: impl IntoIterator<Item = (String, String)>, secret_names: &BTreeSet<String>) -> Self {
        Self(vars.into_iter().filter(|(name, _)| !secret_names.contains(name)).collect())
    }

    /// The environment of this process; variables that are not UTF-8 are dropped.
    pub fn own(secret_names: &BTreeSet<String>) -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::new(std::env::vars_os().filter_map(text), secret_names)
    }

    fn usual(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter().filter(|(name, _)| {
            INHERITED_VARS.contains(&name.as_str()) || USUAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
    }
}

impl fmt::Debug for NodeEnvVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variables({})", self.0.len())
    }
}

/// A step, ready to start.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PreparedStep {
    pub(super) argv: Vec<String>,
    pub(super) dir: String,
    pub(super) env: BTreeMap<String, String>,
}

/// Why a step cannot be started with an event's fields. Names fields, never values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StepPreparationError {
    Field(FieldTemplateError),
    Folder,
    Option(String),
    Nul(String),
}

impl fmt::Display for StepPreparationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(unfilled) => fmt::Display::fmt(unfilled, f),
            Self::Folder => f.write_str("the name of its folder is not UTF-8"),
            Self::Option(argument) => write!(f, "`{argument}` would be taken for an option: it begins with `-`"),
            Self::Nul(name) => write!(f, "`{name}` has a NUL byte, which cannot be passed to a command"),
        }
    }
}

/// Builds a step for an attempt at an event.
pub(super) fn prepare(
    block: &CommandBlock,
    line: &CommandLine,
    attempt: &Attempt<'_>,
    own: &NodeEnvVars,
    trace: &[(&str, String)],
) -> Result<PreparedStep, StepPreparationError> {
    let event = attempt.event;
    let step = PreparedStep {
        argv: match line {
            CommandLine::Shell { shell, text } => shell.iter().chain([text]).cloned().collect(),
            CommandLine::Argv(argv) => arguments(argv, &event.fields)?,
        },
        dir: folder(&block.dir, &event.fields)?,
        env: environment(&block.env, attempt, own, trace),
    };
    match step.env.iter().find(|(_, value)| value.contains('\0')) {
        Some((name, _)) => Err(StepPreparationError::Nul(name.clone())),
        None => Ok(step),
    }
}

fn arguments(argv: &[FieldTemplate], fields: &StoredFields) -> Result<Vec<String>, StepPreparationError> {
    let mut out = Vec::with_capacity(argv.len());
    let mut options_ended = false;
    for (i, template) in argv.iter().enumerate() {
        let filled = if i == 0 { template.fill_path(fields) } else { template.fill(fields) };
        let argument = filled.map_err(StepPreparationError::Field)?;
        let ours = matches!(template.0.first(), Some(FieldTemplatePart::Text(text)) if !text.is_empty());
        if argument.starts_with('-') && !ours && !options_ended {
            return Err(StepPreparationError::Option(template.to_string()));
        }
        if argument.contains('\0') {
            return Err(StepPreparationError::Nul(template.to_string()));
        }
        options_ended |= ours && argument == "--";
        out.push(argument);
    }
    Ok(out)
}

fn folder(dir: &WorkingDir, fields: &StoredFields) -> Result<String, StepPreparationError> {
    let dir = dir.fill(fields).map_err(StepPreparationError::Field)?;
    dir.into_os_string().into_string().map_err(|_| StepPreparationError::Folder)
}

fn environment(
    entries: &[EnvEntry],
    attempt: &Attempt<'_>,
    own: &NodeEnvVars,
    trace: &[(&str, String)],
) -> BTreeMap<String, String> {
    let event = attempt.event;
    let mut env: BTreeMap<_, _> = own.usual().map(|(name, value)| (name.clone(), value.clone())).collect();
    env.extend(trace.iter().map(|(name, value)| (name.to_ascii_uppercase(), value.clone())));
    for entry in entries {
        match entry {
            EnvEntry::Pass(name) => env.extend(own.0.get(name).map(|value| (name.clone(), value.clone()))),
            EnvEntry::Set(name, value) => env.extend([(name.clone(), value.clone())]),
        }
    }
    // Fields that the event lacks are unset, even if the block's `env` sets them.
    env.retain(|name, _| !name.starts_with("HOOKONCE_"));
    env.extend(event.fields.iter().map(|(name, value)| (variable(name), text(value).to_owned())));
    env.insert("HOOKONCE_EVENT".into(), event.idempotency_key());
    env.insert("HOOKONCE_ATTEMPT".into(), event.attempt.to_string());
    env.insert("HOOKONCE_SOURCE".into(), event.source.to_string());
    env.insert("HOOKONCE_ROUTE".into(), event.route.to_string());
    env.extend(attempt.digest.map(|digest| ("HOOKONCE_DIGEST".to_owned(), digest.to_owned())));
    env.extend(event.is_rollback().then(|| ("HOOKONCE_ROLLBACK".to_owned(), "1".to_owned())));
    env.extend(event.delivery_id.iter().map(|id| ("HOOKONCE_DELIVERY".to_owned(), id.to_string())));
    if event.is_notification()
        && let Some(described) = EndDescription::read(event, &attempt.payload.body)
    {
        env.extend(notification(&described).map(|(name, value)| (name.to_owned(), value)));
        env.insert("HOOKONCE_NOTIFICATION".into(), event.idempotency_key());
    }
    env
}

/// The variables of a notification: they describe the event that ended.
fn notification(described: &EndDescription) -> [(&'static str, String); 8] {
    [
        ("HOOKONCE_NOTIFY", described.kind.word().to_owned()),
        ("HOOKONCE_EVENT", described.event.to_string()),
        ("HOOKONCE_SOURCE", described.source.to_string()),
        ("HOOKONCE_ROUTE", described.route.to_string()),
        ("HOOKONCE_STATE", described.state.to_string()),
        ("HOOKONCE_CAUSE", described.cause.to_string()),
        ("HOOKONCE_WHY", described.why.to_string()),
        ("HOOKONCE_MORE", described.more.to_string()),
    ]
}

/// `version-id` is `HOOKONCE_FIELD_VERSION_ID`.
fn variable(field: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    "HOOKONCE_FIELD_".chars().chain(field.chars().map(upper)).collect()
}

fn text(value: &FieldValue) -> &str {
    match value {
        FieldValue::Text(text) | FieldValue::Number(text) => text,
        FieldValue::Bool(true) => "true",
        FieldValue::Bool(false) => "false",
    }
}
