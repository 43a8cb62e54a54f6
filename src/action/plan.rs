//! What the plans of actions consist of, as resolved from the config. Data only.

use super::forward::ip_filter::IpRange;
use crate::decide::envelope::EnvelopeFormat;
use crate::decide::field::{FieldValue, StoredFields};
use crate::decide::time::Duration;
use crate::decide::verify::VerificationScheme;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The URL in a plan whose own is not known, because a secret was not read.
pub(crate) const UNKNOWN_URL: &str = "http://unknown.invalid/";

/// Steps that run one after the other, each only if the one before succeeded.
#[derive(Clone, PartialEq, Debug)]
pub struct CommandBlock {
    /// The working directory.
    pub dir: WorkingDir,
    /// The steps.
    pub steps: Vec<CommandLine>,
    /// Timeout of the block.
    pub timeout: Duration,
    /// Additional environment; later entries win.
    pub env: Vec<EnvEntry>,
    /// Whether output also goes to the log.
    pub output: OutputDestination,
}

impl CommandBlock {
    /// The fields it needs as parameters.
    pub(super) fn fields(&self) -> Vec<Arc<str>> {
        let dir = match &self.dir {
            WorkingDir::Named(template) => Some(template),
            WorkingDir::Fixed(_) => None,
        };
        let arguments = self.steps.iter().flat_map(|line| match line {
            CommandLine::Argv(words) => words.as_slice(),
            CommandLine::Shell { .. } => &[],
        });
        dir.into_iter().chain(arguments).flat_map(FieldTemplate::fields).cloned().collect()
    }
}

/// Where the output of a block's commands goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutputDestination {
    /// The store keeps its head and tail with the attempt.
    #[default]
    Store,
    /// Each line also goes to the node's log.
    StoreAndLog,
}

/// The folder a block runs in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkingDir {
    /// This one.
    Fixed(PathBuf),
    /// One that depends on the event: each field is a whole segment.
    Named(FieldTemplate),
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandLine {
    /// A shell command. It gets fields only through its environment.
    Shell {
        /// The shell, such as `["sh", "-c"]`.
        shell: Vec<String>,
        /// What it runs.
        text: String,
    },
    /// A program and its arguments, run without a shell.
    Argv(Vec<FieldTemplate>),
}

/// A variable of a block's environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EnvEntry {
    /// Hookonce's own variable of this name, if it is set.
    Pass(String),
    /// This name, set to this value.
    Set(String, String),
}

/// One receiver.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceiverPlan {
    /// The URL. May contain a secret: show `display` instead.
    pub url: FieldTemplate,
    /// The receiver as it may be shown and logged.
    pub display: String,
    /// How long it may take.
    pub timeout: Duration,
    /// Headers of the sender that it is passed, in lower case.
    pub pass: Vec<String>,
    /// Headers that are set for it, in lower case.
    pub set: Vec<(String, ReceiverHeaderValue)>,
    /// The key to sign requests with (Standard Webhooks).
    pub sign: Option<SigningKey>,
    /// Ranges besides the public internet that a URL with a field in it may reach.
    pub allow: Vec<IpRange>,
    /// How HTTP/2 is negotiated.
    pub http2: Http2Mode,
    /// Maximum concurrent attempts on one node; `None`: the route's.
    pub at_once: Option<usize>,
    /// Additional response headers to keep, in lower case.
    pub receipt_headers: Vec<String>,
}

impl ReceiverPlan {
    /// A receiver with this URL and default settings.
    pub fn new(url: FieldTemplate, timeout: Duration) -> Self {
        let shown = url.to_string();
        let (pass, set, allow, receipt_headers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (sign, http2, at_once) = (None, Http2Mode::Negotiated, None);
        Self { url, display: shown, timeout, pass, set, sign, allow, http2, at_once, receipt_headers }
    }
}

impl ReceiverPlan {
    /// The fields it needs.
    pub(super) fn fields(&self) -> Vec<Arc<str>> {
        let headers = self.set.iter().filter_map(|(_, text)| match text {
            ReceiverHeaderValue::Template(template) => Some(template),
            ReceiverHeaderValue::Secret(_) => None,
        });
        [&self.url].into_iter().chain(headers).flat_map(FieldTemplate::fields).cloned().collect()
    }
}

impl fmt::Debug for ReceiverPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverPlan")
            .field("url", &self.display)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The value of a header that is set for a receiver.
#[derive(Clone, PartialEq, Eq)]
pub enum ReceiverHeaderValue {
    /// With fields in it.
    Template(FieldTemplate),
    /// A secret, never shown.
    Secret(String),
}

impl ReceiverHeaderValue {
    /// With the values of an event's fields.
    pub fn fill(&self, fields: &StoredFields) -> Result<String, FieldTemplateError> {
        match self {
            Self::Template(template) => template.fill(fields),
            Self::Secret(text) => Ok(text.clone()),
        }
    }
}

impl fmt::Debug for ReceiverHeaderValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(template) => write!(f, "{:?}", template.to_string()),
            Self::Secret(_) => f.write_str("•••"),
        }
    }
}

/// The key that signs requests to a receiver. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(pub Vec<u8>);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(•••)")
    }
}

/// How HTTP/2 is negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Http2Mode {
    /// Negotiated over TLS; HTTP/1.1 otherwise.
    Negotiated,
    /// Always HTTP/2, with prior knowledge.
    Prior,
}

/// Text with fields in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldTemplate(pub Vec<FieldTemplatePart>);

/// A piece of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldTemplatePart {
    /// Literal text.
    Text(String),
    /// The value of the field of this name.
    Field(Arc<str>),
}

/// Why a template could not be filled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldTemplateError {
    /// The event has no such field.
    Missing(Arc<str>),
    /// The field's value is not the name of one file: it is empty, `.` or `..`, or has a `/` in it.
    NotASegment(Arc<str>),
    /// The field's value is not allowed at its position in a URL.
    NotInUrl(Arc<str>),
    /// The field's value is not one token of a subject: it is empty, or has a space, a `.` or a wildcard in it.
    NotAToken(Arc<str>),
}

impl fmt::Display for FieldTemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "the field `{name}` is missing"),
            Self::NotASegment(name) => write!(f, "the field `{name}` is not one segment of a path"),
            Self::NotInUrl(name) => write!(f, "the field `{name}` is not allowed at its position in the URL"),
            Self::NotAToken(name) => write!(
                f,
                "the field `{name}` is not one token of a subject: it is empty, or has a space, a dot or a wildcard in it"
            ),
        }
    }
}

impl FieldTemplate {
    /// The fields in it.
    pub fn fields(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().filter_map(FieldTemplatePart::field)
    }

    /// With the values of an event's fields.
    pub fn fill(&self, fields: &StoredFields) -> Result<String, FieldTemplateError> {
        self.0.iter().map(|piece| piece.text(fields)).collect()
    }

    /// Fills it as a path: a field is exactly one path segment.
    pub fn fill_path(&self, fields: &StoredFields) -> Result<String, FieldTemplateError> {
        let mut path = String::new();
        for piece in &self.0 {
            let text = piece.text(fields)?;
            if let FieldTemplatePart::Field(name) = piece
                && (matches!(text.as_str(), "" | "." | "..") || text.contains(['/', '\\', '\0']))
            {
                return Err(FieldTemplateError::NotASegment(name.clone()));
            }
            path += &text;
        }
        Ok(path)
    }
}

impl From<&str> for FieldTemplate {
    /// Text without fields.
    fn from(text: &str) -> Self {
        Self(vec![FieldTemplatePart::Text(text.to_owned())])
    }
}

impl FieldTemplatePart {
    /// The field's name, if it is a field.
    pub(super) fn field(&self) -> Option<&Arc<str>> {
        match self {
            Self::Field(name) => Some(name),
            Self::Text(_) => None,
        }
    }

    pub(super) fn text(&self, fields: &StoredFields) -> Result<String, FieldTemplateError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Field(name) => match fields.get(name) {
                None => Err(FieldTemplateError::Missing(name.clone())),
                Some(FieldValue::Text(text) | FieldValue::Number(text)) => Ok(text.to_string()),
                Some(FieldValue::Bool(flag)) => Ok(flag.to_string()),
            },
        }
    }
}

impl WorkingDir {
    /// Fills it with an event's fields. Does not check that the folder exists.
    pub fn fill(&self, fields: &StoredFields) -> Result<PathBuf, FieldTemplateError> {
        match self {
            Self::Fixed(path) => Ok(path.clone()),
            Self::Named(template) => template.fill_path(fields).map(PathBuf::from),
        }
    }
}

/// As it would be written in the config.
impl fmt::Display for FieldTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| fmt::Display::fmt(piece, f))
    }
}

impl fmt::Display for FieldTemplatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Field(name) => write!(f, "{{{name}}}"),
        }
    }
}

impl fmt::Display for WorkingDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(path) => write!(f, "{}", path.display()),
            Self::Named(template) => fmt::Display::fmt(template, f),
        }
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shell { text, .. } => f.write_str(text),
            Self::Argv(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("{:?}", word.to_string())).collect();
                write!(f, "[{}]", words.join(", "))
            }
        }
    }
}

/// A NATS server or cluster, with credentials. Routes with equal servers share a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NatsServer {
    /// One URL, or several separated by commas. May contain a password: show `shown` instead.
    pub url: String,
    /// The URL to show and log.
    pub shown: String,
    /// The credentials.
    pub who: NatsCredentials,
    /// A CA certificate to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// The client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Credentials for a server. Never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum NatsCredentials {
    /// Those of the URL, if any.
    Anybody,
    /// The content of a `.creds` file.
    Creds(String),
    /// The seed of an nkey.
    Nkey(String),
    /// A token.
    Token(String),
    /// A user and a password.
    User(String, String),
}

impl fmt::Debug for NatsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsServer").field("url", &self.shown).finish_non_exhaustive()
    }
}

/// How events are published.
#[derive(Clone, Debug)]
pub struct PublishPlan {
    /// The server.
    pub server: NatsServer,
    /// The subject; each field is one token of it.
    pub subject: FieldTemplate,
    /// Timeout of the acknowledgement.
    pub timeout: Duration,
    /// The format in which the message carries the delivery.
    pub envelope: EnvelopeFormat,
    /// Whether a stream must acknowledge it.
    pub keeper: PublishMode,
    /// The header with the event kind, in lower case, if the sender has one.
    pub kind: Option<String>,
    /// The sender's headers to pass on, in lower case.
    pub carries: Vec<String>,
    /// How to sign it again once the sender's signature is deleted with the end of its event.
    pub signs: Option<VerificationScheme>,
    /// Maximum time between the first and the last attempt; the stream's duplicate window must cover it.
    pub retry_horizon: Duration,
}

/// Whether a stream acknowledges messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishMode {
    /// JetStream acknowledges each message.
    Stream,
    /// Core NATS: at-most-once, lost if nobody is subscribed.
    Core,
}

impl PublishPlan {
    /// The subject of one event. A field must be exactly one token and no wildcard.
    pub fn subject(&self, fields: &StoredFields) -> Result<String, FieldTemplateError> {
        let mut subject = String::new();
        for piece in &self.subject.0 {
            let text = piece.text(fields)?;
            if let FieldTemplatePart::Field(name) = piece
                && !is_token(&text)
            {
                return Err(FieldTemplateError::NotAToken(name.clone()));
            }
            subject += &text;
        }
        Ok(subject)
    }

    /// A subject filter that matches every event: a wildcard for each field.
    pub fn subjects(&self) -> String {
        let one = |token: &str| if token.contains('{') { "*".to_owned() } else { token.to_owned() };
        self.subject.to_string().split('.').map(one).collect::<Vec<_>>().join(".")
    }

    /// The fields it needs.
    pub(super) fn fields(&self) -> Vec<Arc<str>> {
        self.subject.fields().cloned().collect()
    }

    /// The command that creates a stream for this subject with a long enough duplicate window.
    pub fn create_stream_command(&self) -> String {
        let subjects = self.subjects();
        let first = subjects.split('.').next().unwrap_or_default();
        let name = if first == "*" { "HOOKS".to_owned() } else { first.to_ascii_uppercase() };
        let window = window(self.retry_horizon);
        format!("nats stream add {name} --subjects '{subjects}' --storage file --dupe-window {window} --defaults")
    }
}

/// A duplicate window that covers this time, in whole minutes.
pub fn window(horizon: Duration) -> String {
    format!("{}m", horizon.as_secs().div_ceil(60).max(2))
}

/// Whether this is one token of a subject: not empty, and without white space, dots, wildcards and control characters.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>'))
}

#[cfg(test)]
mod nats_tests {
    use super::*;

    fn publish(pieces: Vec<FieldTemplatePart>) -> PublishPlan {
        let who = NatsCredentials::Token("s3cret".into());
        let server = NatsServer { url: "nats://h".into(), shown: "nats://h".into(), who, ca: None, certificate: None };
        PublishPlan {
            server,
            subject: FieldTemplate(pieces),
            timeout: Duration::from_secs(5),
            envelope: EnvelopeFormat::Raw,
            keeper: PublishMode::Stream,
            kind: None,
            carries: Vec::new(),
            signs: None,
            retry_horizon: Duration::from_secs(90),
        }
    }

    fn check(value: &str, expected: Result<&str, FieldTemplateError>) {
        let plan = publish(vec![FieldTemplatePart::Text("github.".into()), FieldTemplatePart::Field("kind".into())]);
        let fields = serde_json::json!({ "kind": value }).to_string();
        let fields = StoredFields::from_json(&fields).expect("the test's own JSON");
        assert_eq!(plan.subject(&fields), expected.map(str::to_owned), "{value:?}");
    }

    #[test]
    fn a_field_is_one_token_of_a_subject() {
        check("push", Ok("github.push"));
        check("pull_request", Ok("github.pull_request"));
        for bad in ["", "a.b", "*", ">", "a b", "a\tb", "a\nPUB x", "\u{2003}", "$SYS.>"] {
            check(bad, Err(FieldTemplateError::NotAToken("kind".into())));
        }
    }

    #[test]
    fn the_command_names_every_subject_and_a_window_that_is_long_enough() {
        let plan = publish(vec![
            FieldTemplatePart::Text("github.".into()),
            FieldTemplatePart::Field("kind".into()),
            FieldTemplatePart::Text("-x".into()),
        ]);
        assert_eq!(plan.subjects(), "github.*");
        let command = "nats stream add GITHUB --subjects 'github.*' --storage file --dupe-window 2m --defaults";
        assert_eq!(plan.create_stream_command(), command);
        assert_eq!(window(Duration::from_secs(121)), "3m");
    }

    #[test]
    fn who_we_are_is_not_printed() {
        let plan = publish(Vec::new());
        assert!(!format!("{plan:?}").contains("s3cret"), "{plan:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[FieldTemplatePart], json: &str, expected: Result<&str, FieldTemplateError>) {
        let fields = StoredFields::from_json(json).expect("the test's own JSON");
        assert_eq!(
            WorkingDir::Named(FieldTemplate(pieces.to_vec())).fill(&fields),
            expected.map(PathBuf::from),
            "{json}"
        );
    }

    #[test]
    fn a_field_never_leads_out_of_its_folder() {
        let pieces = [
            FieldTemplatePart::Text("/opt/".into()),
            FieldTemplatePart::Field("tag".into()),
            FieldTemplatePart::Text("/app".into()),
        ];
        check(&pieces, r#"{"tag":"latest"}"#, Ok("/opt/latest/app"));
        check(&pieces, r#"{"tag":7}"#, Ok("/opt/7/app"));
        check(&pieces, r#"{"tag":"..."}"#, Ok("/opt/.../app"));
        for bad in ["", ".", "..", "a/b", "../a", "/etc", "a\\\\b"] {
            check(&pieces, &format!(r#"{{"tag":"{bad}"}}"#), Err(FieldTemplateError::NotASegment("tag".into())));
        }
        check(&pieces, "{}", Err(FieldTemplateError::Missing("tag".into())));
    }

    #[test]
    fn a_template_takes_values_as_they_are() {
        let template = FieldTemplate(vec![FieldTemplatePart::Text("v".into()), FieldTemplatePart::Field("tag".into())]);
        let fields = StoredFields::from_json(r#"{"tag":"a b; rm -rf /"}"#).expect("the test's own JSON");
        assert_eq!(template.fill(&fields).as_deref(), Ok("va b; rm -rf /"));
        assert_eq!(template.to_string(), "v{tag}");
    }
}
