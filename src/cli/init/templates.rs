//! Templates of starter configs: a text with placeholders, the questions that fill them, and how to set up the sender.

use crate::decide::nearest_name::nearest;

/// A template for one kind of config.
#[derive(Debug)]
pub(super) struct InitTemplate {
    pub(super) name: &'static str,
    /// What it does.
    pub(super) about: &'static str,
    /// Where to set up the sender.
    pub(super) sender: &'static str,
    /// The path its webhooks arrive on.
    pub(super) path: &'static str,
    /// The events to choose at the sender.
    pub(super) events: &'static str,
    /// The file with the secret, beside the config; may have placeholders.
    secret: &'static str,
    /// Headers that the sender must set besides its signature; may have placeholders.
    headers: &'static str,
    pub(super) questions: &'static [InitQuestion],
    /// The config, with placeholders such as `@url@`.
    text: &'static str,
}

#[derive(Debug)]
pub(super) struct InitQuestion {
    /// The placeholder it fills.
    gap: &'static str,
    /// The reason in words.
    pub(super) ask: &'static str,
    /// The default; `{}` is replaced with the first answer.
    default: &'static str,
    /// Validates the answer.
    pub(super) takes: fn(&str) -> Result<(), String>,
}

/// The secret's file, if all senders share one secret.
const SECRET: &str = "hookonce.secret";

/// Every kind.
pub(super) const KINDS: &[InitTemplate] = &[
    InitTemplate {
        name: "ghcr-deploy",
        about: "deploy a container image when it is pushed to ghcr.io",
        sender: "At GitHub: Settings, Webhooks, Add webhook",
        path: "/in/ghcr",
        events: "Registry packages (registry_package)",
        secret: SECRET,
        headers: "",
        questions: &[
            InitQuestion { gap: "when", ask: "Which package", default: "my-app", takes: package },
            InitQuestion { gap: "dir", ask: "Folder with its compose file", default: "/opt/{}", takes: folder },
        ],
        text: include_str!("ghcr-deploy.toml"),
    },
    InitTemplate {
        name: "forward",
        about: "forward GitHub's webhooks to your own service",
        sender: "At GitHub: Settings, Webhooks, Add webhook",
        path: "/in/github",
        events: "those that your service handles",
        secret: SECRET,
        headers: "",
        questions: &[InitQuestion {
            gap: "url",
            ask: "URL of the service",
            default: "http://127.0.0.1:8080/webhook",
            takes: url,
        }],
        text: include_str!("forward.toml"),
    },
    InitTemplate {
        name: "ci-ingestion",
        about: "forward CI results to a service, and return its response",
        sender: "At the sender",
        path: "/in/ci",
        events: "the end of a run, as JSON with repo_id, commit_sha, run_id and framework",
        secret: "callers/@repo@",
        headers: "Authorization: Bearer @repo@ (its repo_id), X-FR-Sig: the HMAC of the body in hex",
        questions: &[
            InitQuestion { gap: "url", ask: "URL of the service", default: "http://127.0.0.1:8080/ingest", takes: url },
            InitQuestion { gap: "repo", ask: "Id of the first repository", default: "my-repo", takes: repository },
        ],
        text: include_str!("ci-ingestion.toml"),
    },
    InitTemplate {
        name: "hmac",
        about: "run a command for any sender that signs with an HMAC",
        sender: "At the sender",
        path: "/in/hook",
        events: "those that the command handles",
        secret: SECRET,
        headers: "",
        questions: &[
            InitQuestion { gap: "header", ask: "Header with the signature", default: "x-signature", takes: header },
            InitQuestion { gap: "command", ask: "Command", default: "cat >> hook.log", takes: command },
        ],
        text: include_str!("hmac.toml"),
    },
];

/// The kind of this name, or a sentence.
pub(super) fn find(name: &str) -> Result<&'static InitTemplate, String> {
    KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let meant = nearest(name, KINDS.iter().map(|kind| kind.name));
        let hint = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        format!("there is no kind `{name}`; {hint}Kinds: {}", names())
    })
}

pub(super) fn names() -> String {
    KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

impl InitQuestion {
    /// The default, given the earlier answers.
    pub(super) fn default(&self, before: &[String]) -> String {
        self.default.replace("{}", before.first().map_or("", String::as_str))
    }
}

impl InitTemplate {
    /// The answers if no questions are asked: the defaults.
    pub(super) fn defaults(&self) -> Vec<String> {
        let mut answers = Vec::new();
        for question in self.questions {
            answers.push(question.default(&answers));
        }
        answers
    }

    /// The config with these answers.
    pub(super) fn fill(&self, answers: &[String]) -> String {
        self.filled(self.text, answers, |gap, answer| match gap {
            "when" => quoted(&format!("package == {}", quoted(answer))),
            _ => quoted(answer),
        })
    }

    /// The file with the secret.
    pub(super) fn secret(&self, answers: &[String]) -> String {
        self.filled(self.secret, answers, |_, answer| answer.to_owned())
    }

    /// The headers to set.
    pub(super) fn headers(&self, answers: &[String]) -> String {
        self.filled(self.headers, answers, |_, answer| answer.to_owned())
    }

    fn filled(&self, text: &str, answers: &[String], written: fn(&str, &str) -> String) -> String {
        self.questions.iter().zip(answers).fold(text.to_owned(), |text, (question, answer)| {
            text.replace(&format!("@{}@", question.gap), &written(question.gap, answer))
        })
    }
}

/// A TOML string; for an answer that passed [`package`], also a string of an expression.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn package(answer: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if answer.chars().all(allowed) { Ok(()) } else { Err("letters, digits, . _ - and /".into()) }
}

/// Validates a repository id, which is also a file name.
fn repository(answer: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let hidden = answer.starts_with('.');
    if answer.chars().all(allowed) && !hidden {
        Ok(())
    } else {
        Err("letters, digits, . _ and -, not starting with a dot".into())
    }
}

fn folder(answer: &str) -> Result<(), String> {
    if answer.contains(['{', '}', '\0']) { Err("a folder without braces in its name".into()) } else { Ok(()) }
}

fn url(answer: &str) -> Result<(), String> {
    match reqwest::Url::parse(answer) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.password().is_none() => Ok(()),
        _ => Err("a URL that begins with http:// or https://, without a password in it".into()),
    }
}

fn header(answer: &str) -> Result<(), String> {
    http::HeaderName::from_bytes(answer.as_bytes())
        .map(drop)
        .map_err(|_| "the name of a header, such as x-signature".into())
}

fn command(answer: &str) -> Result<(), String> {
    if answer.contains('\0') { Err("a command for the shell".into()) } else { Ok(()) }
}
