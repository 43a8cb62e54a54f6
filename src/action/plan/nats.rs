//! NATS, as resolved from the config: a server and who we are to it, and what is published there.

use super::{FieldTemplate, FieldTemplateError, FieldTemplatePart};
use crate::decide::envelope::EnvelopeFormat;
use crate::decide::field::Fields;
use crate::decide::time::Duration;
use crate::decide::verify::VerificationScheme;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A server, or several of one cluster, and who we are to them. Routes with an equal one share a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NatsServer {
    /// Where: one URL, or several with commas between them. May hold a password: people see `shown`.
    pub url: String,
    /// The same as it may be shown and logged.
    pub shown: String,
    /// Who we are.
    pub who: NatsCredentials,
    /// Whom we trust instead of those the machine trusts.
    pub ca: Option<PathBuf>,
    /// What we show of ourselves: a certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Who we are to a server. Never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum NatsCredentials {
    /// Whoever the URL says, or nobody.
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

/// What is published.
#[derive(Clone, Debug)]
pub struct PublishPlan {
    /// To whom.
    pub server: NatsServer,
    /// Under which subject; each field is one token of it.
    pub subject: FieldTemplate,
    /// How long the stream may take to say that it has it.
    pub timeout: Duration,
    /// How the message carries the delivery.
    pub envelope: EnvelopeFormat,
    /// What takes it.
    pub keeper: PublishMode,
    /// The header with the kind of event, in lower case, where the sender has one.
    pub kind: Option<String>,
    /// The sender's headers that go along, in lower case.
    pub carries: Vec<String>,
    /// How it is signed again when the sender's signature has gone with the end of its event.
    pub signs: Option<VerificationScheme>,
    /// How long after the first attempt the last one may be: a stream must know an id for so long.
    pub retry_horizon: Duration,
}

/// What takes a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishMode {
    /// A stream, which says so.
    Stream,
    /// Whoever happens to listen: at most once.
    Core,
}

impl PublishPlan {
    /// The subject of one event. A field is one token: what would make it two, or a wildcard, is refused.
    pub fn subject(&self, fields: &Fields) -> Result<String, FieldTemplateError> {
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

    /// Every subject it may come to: a wildcard for each field.
    pub fn subjects(&self) -> String {
        let one = |token: &str| if token.contains('{') { "*".to_owned() } else { token.to_owned() };
        self.subject.to_string().split('.').map(one).collect::<Vec<_>>().join(".")
    }

    /// The fields it needs.
    pub(super) fn fields(&self) -> Vec<Arc<str>> {
        let name = |piece: &FieldTemplatePart| match piece {
            FieldTemplatePart::Field(name) => Some(name.clone()),
            FieldTemplatePart::Text(_) => None,
        };
        self.subject.0.iter().filter_map(name).collect()
    }

    /// The command that makes a stream which takes what is published here, and remembers ids for long enough.
    pub fn create_stream_command(&self) -> String {
        let subjects = self.subjects();
        let first = subjects.split('.').next().unwrap_or_default();
        let name = if first == "*" { "HOOKS".to_owned() } else { first.to_ascii_uppercase() };
        let window = window(self.retry_horizon);
        format!("nats stream add {name} --subjects '{subjects}' --storage file --dupe-window {window} --defaults")
    }
}

/// A window no shorter than this, in whole minutes.
pub fn window(horizon: Duration) -> String {
    format!("{}m", horizon.as_secs().div_ceil(60).max(2))
}

/// Can this be one token of a subject? Empty ones, white space, dots, wildcards and control characters cannot.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>'))
}

#[cfg(test)]
mod tests {
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
        let fields = Fields::from_json(&fields).expect("the test's own JSON");
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
