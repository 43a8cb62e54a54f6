//! What a config can be written for: a text with gaps, the questions that fill them, and where its sender wants what.

use crate::decide::suggest::nearest;

/// One kind of config.
#[derive(Debug)]
pub(super) struct InitTemplate {
    /// Its name.
    pub(super) name: &'static str,
    /// What it does.
    pub(super) about: &'static str,
    /// Where its sender is set up.
    pub(super) sender: &'static str,
    /// The path its webhooks arrive on.
    pub(super) path: &'static str,
    /// The events to choose at the sender.
    pub(super) events: &'static str,
    /// The file with the secret, beside the config; with gaps, too.
    secret: &'static str,
    /// The headers the sender has to set besides its signature; with gaps, too.
    headers: &'static str,
    /// What is asked for it.
    pub(super) questions: &'static [InitQuestion],
    /// The config, with gaps such as `@url@`.
    text: &'static str,
}

/// One question.
#[derive(Debug)]
pub(super) struct InitQuestion {
    /// The gap it fills.
    gap: &'static str,
    /// In words.
    pub(super) ask: &'static str,
    /// What an empty answer means; `{}` stands for the first answer.
    default: &'static str,
    /// What may be answered.
    pub(super) takes: fn(&str) -> Result<(), String>,
}

/// The file the secret is in, where all senders share one.
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
        about: "hand GitHub's webhooks to a service of yours",
        sender: "At GitHub: Settings, Webhooks, Add webhook",
        path: "/in/github",
        events: "those that your service is for",
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
        about: "hand results of CI runs to a service, and give its answer back",
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
        events: "those that the command is for",
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
    /// What an empty answer means, after these answers.
    pub(super) fn default(&self, before: &[String]) -> String {
        self.default.replace("{}", before.first().map_or("", String::as_str))
    }
}

impl InitTemplate {
    /// What is answered where nobody is asked.
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

/// As TOML writes it; an expression reads a text that has been through [`package`] the same way.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn package(answer: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if answer.chars().all(allowed) { Ok(()) } else { Err("letters, digits, . _ - and /".into()) }
}

/// The name of its file, too.
fn repository(answer: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let hidden = answer.starts_with('.');
    if answer.chars().all(allowed) && !hidden {
        Ok(())
    } else {
        Err("letters, digits, . _ and -, not first a dot".into())
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
