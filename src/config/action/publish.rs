//! NATS servers with their credentials, and `publish`.

use crate::action::plan::{
    FieldTemplate, FieldTemplatePart, NatsCredentials, NatsServer, PublishMode, PublishPlan, is_token,
};
use crate::config::external_value::UNKNOWN_URL;
use crate::config::fields::SourceFieldScope;
use crate::config::keys::{ConfigKey, ConfigValueType, SectionKeys, key};
use crate::config::raw::{ConfigNode, ConfigValue};
use crate::config::resolve::ConfigResolver;
use crate::config::section::ConfigSection;
use crate::decide::envelope::{self, EnvelopeFormat};
use crate::decide::event::RetryOwner;
use crate::decide::field::FieldLocation;
use crate::decide::retry;
use crate::decide::source::{ResponseMode, Route};
use crate::decide::time::{Duration, duration_text};
use crate::decide::verify::VerificationScheme;
use serde_json::{Value, json};
use std::path::PathBuf;

/// How a message carries a delivery.
pub(crate) const ENVELOPES: &[&str] = &["none", "patchwork"];

/// The keys of a server and its credentials.
pub(crate) static SERVER_KEYS: [ConfigKey; 8] = [
    key(
        "nats",
        ConfigValueType::Open,
        "required",
        "The server: nats://HOST:4222 or tls://…; separate several with commas.",
    ),
    key("creds", ConfigValueType::Secret, "none", "Credentials: the content of a .creds file."),
    key("nkey", ConfigValueType::Secret, "none", "Credentials: the seed of an nkey."),
    key("token", ConfigValueType::Secret, "none", "Credentials: a token."),
    key("user", ConfigValueType::Open, "none", "Credentials: a user, with `password`."),
    key("password", ConfigValueType::Secret, "none", "The user's password."),
    key("ca", ConfigValueType::Text, "the system's certificates", "File with the CA certificates to trust."),
    key("client", ConfigValueType::Texts, "none", "Files with the TLS client certificate and its key."),
];

pub(super) static PUBLISH_KEYS: SectionKeys = SectionKeys {
    name: "publish",
    title: "`publish = { … }`",
    about: "A NATS subject to publish deliveries to.",
    keys: &[
        &SERVER_KEYS,
        &[
            key("subject", ConfigValueType::Text, "required", "The subject; {field} is one token of it."),
            key("timeout", ConfigValueType::Duration, "5s", "How long to wait for the stream's acknowledgement."),
            key(
                "envelope",
                ConfigValueType::Word(ENVELOPES),
                "none",
                "The format in which the message carries the delivery.",
            ),
            key(
                "core",
                ConfigValueType::Flag,
                "false",
                "Publish without JetStream: at-most-once, lost if nobody is subscribed.",
            ),
        ],
    ],
};

const TIMEOUT: Duration = Duration::from_secs(5);

/// The envelope format of messages.
pub(crate) fn envelope(section: &ConfigSection<'_>) -> EnvelopeFormat {
    if section.text("envelope") == Some("patchwork") { EnvelopeFormat::Patchwork } else { EnvelopeFormat::Raw }
}

/// What is wrong with the URL of a server, or of several separated by commas.
fn wrong(urls: &str) -> Option<String> {
    urls.split(',').find_map(|url| match reqwest::Url::parse(url.trim()) {
        Ok(url) if !matches!(url.scheme(), "nats" | "tls") => {
            Some(format!("`{}` is neither nats nor tls", url.scheme()))
        }
        Ok(url) if url.host_str().is_none_or(str::is_empty) => Some("it names no host".into()),
        Ok(_) => None,
        Err(_) if !url.contains("://") => Some("it must begin with nats:// or tls://".into()),
        Err(error) => Some(error.to_string()),
    })
}

/// How long after the first attempt of a life the last one may be. Failed and in-doubt attempts are counted separately.
pub(super) fn horizon(route: &Route, timeout: Duration) -> Duration {
    let ours = RetryOwner::Node;
    let attempts = route.attempts(ours).saturating_add(route.doubts_max(ours));
    retry::horizon(&route.retry, attempts - 1, timeout + route.lease)
}

impl ConfigResolver<'_> {
    pub(crate) fn nats_server(&mut self, section: &ConfigSection<'_>) -> Option<NatsServer> {
        let who = self.who(section);
        let ca = section.node("ca").and_then(|node| self.existing("ca", node));
        let certificate = self.certificate(section);
        let Some(node) = section.node("nats") else {
            self.diagnostics
                .error("no NATS server is configured")
                .unless(section.misspells("nats"))
                .at(section.at, "`nats` is missing")
                .hint("nats = \"nats://127.0.0.1:4222\"");
            return None;
        };
        let open = self.text_or_external("nats", node)?;
        let stands_here = open.shown.is_none();
        if stands_here && open.text.contains('@') {
            self.diagnostics.conceal(node.at);
            self.diagnostics
                .error("`nats` has credentials and is written in the config file")
                .at(node.at, "a secret must not be in the config file")
                .hint("put the URL in an environment variable and write nats = { env = \"NATS_URL\" }, or use `user` and `password`");
            return None;
        }
        if let Some(wrong) = wrong(&open.text).filter(|_| open.text != UNKNOWN_URL) {
            self.diagnostics
                .error("`nats` is not the URL of a NATS server")
                .at(open.at, wrong)
                .hint("nats = \"nats://127.0.0.1:4222\"");
            return None;
        }
        let shown = open.shown.unwrap_or_else(|| open.text.clone());
        Some(NatsServer { url: open.text, shown, who: who?, ca, certificate })
    }

    /// The credentials; `None` if they are invalid.
    fn who(&mut self, section: &ConfigSection<'_>) -> Option<NatsCredentials> {
        let ways: Vec<_> = ["creds", "nkey", "token", "user"].into_iter().filter(|key| section.has(key)).collect();
        if let [first, second, ..] = ways.as_slice() {
            self.diagnostics
                .error(format!("`{first}` and `{second}` are both credentials"))
                .at(section.key_place(second), "one of them, not both");
            return None;
        }
        if section.has("user") != section.has("password") {
            self.diagnostics
                .error("`user` and `password` belong together")
                .unless(section.misspells("user") || section.misspells("password"))
                .at(section.key_place(if section.has("user") { "user" } else { "password" }), "the other is missing");
            return None;
        }
        let Some(way) = ways.first() else { return Some(NatsCredentials::Anybody) };
        let mut secret = |key: &str| {
            let node = section.node(key)?;
            let bytes = self.secret(key, node)?.expose().to_vec();
            let text = String::from_utf8(bytes).ok();
            if text.is_none() {
                self.diagnostics.error(format!("`{key}` is not text")).at(node.at, "it is not UTF-8");
            }
            text
        };
        let who = match *way {
            "creds" => secret("creds").map(NatsCredentials::Creds),
            "nkey" => secret("nkey").map(|seed| NatsCredentials::Nkey(seed.trim().to_owned())),
            "token" => secret("token").map(NatsCredentials::Token),
            _ => {
                let password = secret("password");
                let user = section.node("user").and_then(|node| self.text_or_external("user", node));
                user.zip(password).map(|(user, password)| NatsCredentials::User(user.text, password))
            }
        };
        if let Some(NatsCredentials::Nkey(seed)) = &who
            && !(seed.len() == 58 && seed.starts_with("SU"))
        {
            self.diagnostics
                .error("`nkey` is not the seed of a user")
                .at(section.place("nkey"), "a seed has 58 letters and digits and begins with SU");
            return None;
        }
        // Without secrets nothing connects.
        who.or_else(|| (self.secrets == crate::config::SecretRequirement::Optional).then_some(NatsCredentials::Anybody))
    }

    /// The client certificate and its key; `None` if there is none or it is invalid.
    fn certificate(&mut self, section: &ConfigSection<'_>) -> Option<(PathBuf, PathBuf)> {
        let node = section.node("client")?;
        match &node.value {
            ConfigValue::List(list) if list.len() == 2 => {
                let files = (self.existing("client", &list[0]), self.existing("client", &list[1]));
                if let Some(key) = &files.1 {
                    self.warn_if_world_readable(key, list[1].at);
                }
                files.0.zip(files.1)
            }
            _ => {
                self.diagnostics
                    .error("`client` needs two files")
                    .at(node.at, "the certificate and its key")
                    .hint("client = [\"client.pem\", \"client.key\"]");
                None
            }
        }
    }

    fn existing(&mut self, key: &str, node: &ConfigNode) -> Option<PathBuf> {
        let path = self.base.join(node.text()?);
        if path.is_file() {
            return Some(path);
        }
        self.diagnostics
            .error(format!("the file of `{key}` does not exist"))
            .at(node.at, format!("there is no {}", path.display()));
        None
    }

    pub(crate) fn publish(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        respond: ResponseMode,
    ) -> Option<PublishPlan> {
        let server = self.nats_server(section);
        let subject = self.subject(section, names);
        let kind = kind_header(names);
        let envelope = envelope(section);
        if envelope == EnvelopeFormat::Patchwork {
            let no_id = names.delivery.is_none() && !self.unread.delivery;
            let lacks = [(no_id, "delivery id"), (kind.is_none() && !self.unread.fields, "kind of event")];
            for (_, what) in lacks.iter().filter(|(lacks, _)| *lacks && names.scheme.is_some()) {
                self.diagnostics
                    .error(format!("the envelope needs the {what}, but this source has none"))
                    .at(section.place("envelope"), "")
                    .hint("remove `envelope`, or set it: `delivery`, or a field named `kind` from a header");
            }
        }
        // A signature over a delivery does not fit one of its elements.
        let scheme = names.scheme.filter(|_| names.fields.each().is_none());
        let mut carries = scheme.map_or_else(Vec::new, VerificationScheme::headers_to_forward);
        let id = names.delivery.and_then(|delivery| match &delivery.at {
            FieldLocation::Header(name) => Some(name.clone()),
            _ => None,
        });
        carries.extend(id.into_iter().chain(kind.clone()));
        carries.sort();
        carries.dedup();
        Some(PublishPlan {
            server: server?,
            subject: subject?,
            timeout: self.timeout(section, respond).unwrap_or(TIMEOUT),
            envelope,
            keeper: if section.flag("core") == Some(true) { PublishMode::Core } else { PublishMode::Stream },
            kind,
            carries,
            // With a secret per caller, the caller is no longer known afterwards.
            signs: scheme.filter(|scheme| scheme.callers().is_none()).cloned(),
            retry_horizon: Duration::ZERO,
        })
    }

    fn subject(&mut self, section: &ConfigSection<'_>, names: &SourceFieldScope<'_>) -> Option<FieldTemplate> {
        let Some(node) = section.node("subject") else {
            self.diagnostics
                .error("`publish` has no `subject`")
                .unless(section.misspells("subject"))
                .at(section.at, "")
                .hint("subject = \"github.{kind}\"");
            return None;
        };
        let pieces = self.pieces(node, names);
        let plain = |piece: &FieldTemplatePart| match piece {
            FieldTemplatePart::Text(text) => text.clone(),
            FieldTemplatePart::Field(_) => "x".to_owned(),
        };
        let whole: String = pieces.iter().map(plain).collect();
        if whole.starts_with('$') || !whole.split('.').all(is_token) {
            self.diagnostics
                .error("`subject` cannot be published to")
                .at(node.at, "tokens separated by dots: no spaces, no wildcards, no leading $")
                .hint("subject = \"github.{kind}\"");
            return None;
        }
        Some(FieldTemplate(pieces))
    }
}

/// The header with the event kind.
fn kind_header(names: &SourceFieldScope<'_>) -> Option<String> {
    let field = names.fields.ix("kind").and_then(|ix| match &names.fields.get(ix).at {
        FieldLocation::Header(name) => Some(name.clone()),
        _ => None,
    });
    let wrapped = names.stream.filter(|stream| stream.envelope == EnvelopeFormat::Patchwork);
    let known = names.kind.map(|kind| kind.header.clone());
    let of_scheme = || names.scheme.and_then(VerificationScheme::kind_header).map(str::to_owned);
    known.or_else(of_scheme).or(field).or_else(|| wrapped.map(|_| envelope::KIND_HEADER.to_owned()))
}

/// A plan as JSON.
pub(super) fn view(plan: &PublishPlan) -> Value {
    json!({
        "nats": plan.server.shown,
        "subject": plan.subject.to_string(),
        "timeout": duration_text(plan.timeout),
        "envelope": (plan.envelope == EnvelopeFormat::Patchwork).then_some("patchwork"),
        "core": plan.keeper == PublishMode::Core,
    })
}

/// A plan in words.
pub(super) fn text(plan: &PublishPlan) -> String {
    let keeper = match plan.keeper {
        PublishMode::Stream => format!("a stream acknowledges within {}", duration_text(plan.timeout)),
        PublishMode::Core => "core NATS: at most once, lost if there is no subscriber".to_owned(),
    };
    format!("{} at {}, {keeper}", plan.subject, plan.server.shown)
}
