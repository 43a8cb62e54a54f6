//! Presets: built-in config for known senders, embedded as TOML.

use super::keys::{ConfigValueType, SectionKeys, key};
use super::raw::{self, ConfigEntry, ConfigNode, ConfigOrigin, ConfigTable, ConfigValue};
use super::section::ConfigSection;
use super::source::SOURCE_KEYS;
use crate::decide::time::{Duration, duration_text};
use std::fmt::Write as _;

pub(super) static SENDER_KEYS: SectionKeys = SectionKeys {
    name: "sender",
    title: "`[sender]`",
    about: "In a preset: what it knows of its sender, beside the keys of a source.",
    keys: &[&[
        key("name", ConfigValueType::Text, "none", "The sender's own name."),
        key(
            "version",
            ConfigValueType::Count,
            "1",
            "The version of the preset: a new one where what makes two deliveries the same changed.",
        ),
        key("retries", ConfigValueType::Duration, "none", "How long it sends a delivery again that failed."),
        key("retry_count", ConfigValueType::Count, "none", "How often it does so, if that is limited."),
        key("by_hand", ConfigValueType::Flag, "false", "Whether it does so only when a person asks for it."),
        key("needs", ConfigValueType::Texts, "none", "The keys that a source must have beside `preset`."),
        key(
            "order",
            ConfigValueType::Text,
            "none",
            "The field that says in which order its deliveries happened, such as a time or a number that rises; \"none\" where \
             there is none that is signed.",
        ),
        key("secret", ConfigValueType::Text, "none", "What the secret is called at the sender."),
        key("claims", ConfigValueType::Text, "none", "Claims that pin the owner of a token, as an example."),
        key(
            "kind_headers",
            ConfigValueType::Texts,
            "none",
            "The headers that say what a delivery is. `forward` passes them on by default, after a replay too.",
        ),
        key(
            "id_headers",
            ConfigValueType::Texts,
            "none",
            "The headers with the id of a delivery. `forward` passes them on by default, unless `each` divides it.",
        ),
        key("unchecked", ConfigValueType::Texts, "none", "What is taken from memory, not from the sender's documents."),
    ]],
};

/// Built-in config for one sender.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// The keys of a source, as TOML.
    pub text: &'static str,
    /// A body as the sender sends it.
    pub sample: Option<&'static str>,
}

/// What a preset knows of its sender.
#[derive(Clone, Debug, Default)]
pub struct SenderFacts {
    /// The sender's own name.
    pub name: String,
    /// The version of the preset.
    pub version: u32,
    /// How long it sends a failed delivery again.
    pub retries: Option<Duration>,
    /// How often it does so, if that is limited.
    pub retry_count: Option<u32>,
    /// Whether it does so only when a person asks for it.
    pub by_hand: bool,
    /// The keys that a source must have beside `preset`.
    pub needs: Vec<String>,
    /// The field that says in which order its deliveries happened.
    pub order: Option<String>,
    /// What the secret is called at the sender.
    pub secret: Option<String>,
    /// Claims that pin the owner of a token, as an example.
    pub claims: Option<String>,
    /// The headers that say what a delivery is, in lower case.
    pub kind_headers: Vec<String>,
    /// The headers with the id of a delivery, in lower case.
    pub id_headers: Vec<String>,
    /// What is taken from memory, not from the sender's documents.
    pub unchecked: Vec<String>,
    /// Whether the sender brings the secret by a handshake, so that it is a file that may not be there yet.
    pub brings_secret: bool,
}

/// How often and how long a sender sends a failed delivery again: "3 times within 8h", "by hand, for 3d"; empty if that is
/// not known.
pub(super) fn retries_text(sender: &SenderFacts) -> String {
    let times = sender.retry_count.map(|count| if count == 1 { "once".to_owned() } else { format!("{count} times") });
    let length = sender.retries.map(duration_text);
    match (sender.by_hand, times, length) {
        (true, _, Some(length)) => format!("by hand, for {length}"),
        (true, _, None) => "by hand".to_owned(),
        (false, Some(times), Some(length)) => format!("{times} within {length}"),
        (false, Some(times), None) => times,
        (false, None, Some(length)) => format!("for {length}"),
        (false, None, None) => String::new(),
    }
}

/// A preset for each of these names: the keys of a source, and a body of that sender.
macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(Preset {
            name: $name,
            text: include_str!(concat!("presets/", $name, ".toml")),
            sample: Some(include_str!(concat!("presets/", $name, ".json"))),
        }),*]
    };
}

/// Every preset: those for senders that most people know come first.
pub const PRESETS: &[Preset] = presets![
    "github",
    "github-package",
    "gitlab",
    "gitlab-signing",
    "stripe",
    "slack",
    "slack-command",
    "shopify",
    "standard-webhooks",
    "docker-hub",
    "gitea",
    "linear",
    "pagerduty",
    // Code.
    "azure-devops",
    "bitbucket",
    "bitbucket-dc",
    "forgejo",
    // Packages and images.
    "acr",
    "artifactory",
    "artifact-registry",
    "distribution",
    "ecr",
    "harbor",
    "harbor-cloudevents",
    "nexus",
    "quay",
    // Builds, deployments, settings.
    "buildkite",
    "buildkite-token",
    "circleci",
    "github-actions",
    "gitlab-ci",
    "hugging-face",
    "launchdarkly",
    "netlify",
    "render",
    "replicate",
    "tailscale",
    "terraform",
    "vercel",
    // Alerts.
    "alertmanager",
    "grafana",
    "sentry",
    // Payments and shops.
    "adyen",
    "adyen-platform",
    "airwallex",
    "coinbase",
    "gocardless",
    "lemon-squeezy",
    "mollie",
    "paddle",
    "paypal",
    "paystack",
    "polar",
    "razorpay",
    "revenuecat",
    "square",
    "woocommerce",
    // Chat, mail, media.
    "cloudflare-stream",
    "discord",
    "discord-events",
    "intercom",
    "mailgun",
    "mailgun-form",
    "line",
    "meta",
    "mux",
    "resend",
    "sendgrid",
    "telegram",
    "tiktok",
    "twilio",
    "twilio-json",
    "twitch",
    "x",
    "zoom",
    // Work tools.
    "airtable",
    "asana",
    "box",
    "calendly",
    "clickup",
    "confluence",
    "docusign",
    "dropbox",
    "figma",
    "graph",
    "hubspot",
    "jira",
    "monday",
    "notion",
    "trello",
    "typeform",
    "webflow",
    "zendesk",
    // Identity and AI.
    "clerk",
    "okta",
    "openai",
    "supabase",
    "workos",
    // Messages of clouds.
    "event-grid",
    "event-grid-jwt",
    "pubsub",
    "sns",
    // Any sender.
    "cloudevents",
    "cloudevents-binary",
    // The systems that this one was first written for.
    "sports-stack",
    "ci-ingestion",
    "idempotency-key",
];

/// What every source with `poll` begins with. It is shown beside the presets, but no source names it.
pub static POLL: Preset = Preset { name: "poll", text: include_str!("presets/poll.toml"), sample: None };

/// Every preset, and what is shown beside them.
pub fn shown() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().chain([&POLL])
}

/// The preset of this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// What it says about itself, in one line.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches('#').trim()
    }

    /// What it knows of its sender.
    pub fn sender(&self) -> SenderFacts {
        let (table, _) = raw::parse(self.text, ConfigOrigin::Preset(self.name));
        SenderFacts::of(&table)
    }

    /// What its sender signs, in one word.
    pub fn signs(&self) -> &'static str {
        super::what_is_signed(&self.example(), &[])
    }

    /// A source with this preset, as a user would write it: what it needs, and nothing else.
    pub fn example(&self) -> String {
        self.example_with(|_| None)
    }

    /// The same with these values, as TOML, of the keys that it needs.
    pub(crate) fn example_with(&self, given: impl Fn(&str) -> Option<String>) -> String {
        example(self.name, &self.sender(), given)
    }

    /// The scheme of its signature, if it has one.
    pub(crate) fn scheme(&self) -> Option<String> {
        let (table, _) = raw::parse(self.text, ConfigOrigin::Preset(self.name));
        let verify = table.get("verify")?;
        verify.text().or_else(|| verify.table()?.get("scheme")?.text()).map(str::to_owned)
    }
}

impl SenderFacts {
    /// What the table of a preset says.
    pub(super) fn of(table: &ConfigTable) -> Self {
        let unknown = Self { version: 1, ..Self::default() };
        let Some(node) = table.get("sender") else { return unknown };
        let Some(sender) = node.table() else { return unknown };
        let sender = ConfigSection::new(sender, &SENDER_KEYS, node.at);
        let text = |key: &str| sender.text(key).map(str::to_owned);
        let texts = |key: &str| sender.texts(key).into_iter().map(str::to_owned).collect();
        let headers = |key: &str| sender.texts(key).into_iter().map(str::to_ascii_lowercase).collect();
        let handshakes = table.get("handshake").and_then(ConfigNode::list).unwrap_or_default();
        let brings = |handshake: &ConfigTable| ["shows", "takes"].iter().any(|key| handshake.get(key).is_some());
        Self {
            name: text("name").unwrap_or_default(),
            version: sender.count("version").unwrap_or(1),
            retries: sender.duration("retries"),
            retry_count: sender.count("retry_count"),
            by_hand: sender.flag("by_hand").unwrap_or(false),
            needs: texts("needs"),
            order: text("order").filter(|name| name != "none"),
            secret: text("secret"),
            claims: text("claims"),
            kind_headers: headers("kind_headers"),
            id_headers: headers("id_headers"),
            unchecked: texts("unchecked"),
            brings_secret: handshakes.iter().filter_map(ConfigNode::table).any(brings),
        }
    }
}

/// A source with the preset of this name, as a user would write it, with these values, as TOML, of the keys that it
/// needs.
pub(super) fn example(name: &str, sender: &SenderFacts, given: impl Fn(&str) -> Option<String>) -> String {
    let mut out = format!("[source.{name}]\npreset = \"{name}\"\n");
    let variable = format!("{}_SECRET", name.to_ascii_uppercase().replace('-', "_"));
    for key in sender.needs.iter().filter(|key| *key != "preset") {
        let value = match key.as_str() {
            key if let Some(value) = given(key) => value,
            "secret" if sender.brings_secret => format!("{{ file = \"{name}.secret\" }}"),
            "public_key" => format!("{{ env = \"{}\" }}", variable.replace("_SECRET", "_PUBLIC_KEY")),
            "secret" => format!("{{ env = \"{variable}\" }}"),
            "verify_token" => "{ env = \"VERIFY_TOKEN\" }".to_owned(),
            "url" => format!("\"https://hooks.example.com/in/{name}\""),
            "path" => format!("{{ env = \"{}\" }}", variable.replace("_SECRET", "_PATH")),
            "verify" => "\"bearer\"".to_owned(),
            "issuer" => "\"https://login.microsoftonline.com/TENANT/v2.0\"".to_owned(),
            "audience" => "\"https://hooks.example.com\"".to_owned(),
            "claims" if let Some(claims) = sender.claims.clone().filter(|claims| is_table(claims)) => claims,
            "topic" => "\"arn:aws:sns:eu-west-1:123456789012:name\"".to_owned(),
            key => SOURCE_KEYS.find(key).map_or_else(|| "\"…\"".to_owned(), |key| key.takes.placeholder()),
        };
        let note = match key.as_str() {
            "secret" | "public_key" => sender.secret.as_deref(),
            "path" => Some("the only secret: /in/… with a long random word"),
            "issuer" => Some("who signs the tokens"),
            "audience" => Some("what the token is asked for with"),
            "claims" => Some("the issuer signs for everyone: say who may send"),
            "webhook_id" => Some("as PayPal shows it"),
            _ => None,
        };
        let note = note.map(|note| format!("   # {note}")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{key} = {value}{note}");
    }
    out
}

/// Whether this is the text of a table.
fn is_table(text: &str) -> bool {
    let (table, errors) = raw::parse(&format!("table = {text}"), ConfigOrigin::Config);
    errors.is_empty() && table.entries.len() == 1 && table.get("table").is_some_and(|node| node.table().is_some())
}

/// Merges a preset into a source: a key of the source replaces the preset's key completely; fields are added, and the
/// preset's `route` has the defaults of each route of the source.
pub(super) fn merge_preset(preset: &'static Preset, user: &ConfigTable) -> ConfigTable {
    let (known, _) = raw::parse(preset.text, ConfigOrigin::Preset(preset.name));
    merge(known, user)
}

/// Merges the keys of a preset into a source.
pub(super) fn merge(mut known: ConfigTable, user: &ConfigTable) -> ConfigTable {
    let defaults = known.entries.extract_if(.., |entry| entry.key == "route").next();
    let fields = known.get("fields").and_then(ConfigNode::table).cloned().unwrap_or_default();
    let mut out = over(known, user);
    if let Some(ConfigNode { value: ConfigValue::Table(added), .. }) = user.get("fields") {
        let all = over(fields, added);
        for entry in out.entries.iter_mut().filter(|entry| entry.key == "fields") {
            entry.node.value = ConfigValue::Table(all.clone());
        }
    }
    if let Some(defaults) = defaults.as_ref().and_then(|entry| entry.node.table()) {
        for entry in out.entries.iter_mut().filter(|entry| entry.key == "route") {
            each_table(&mut entry.node, |route| *route = over(defaults.clone(), route));
        }
    }
    out
}

/// Applies this to a table, or to each table of a list.
fn each_table(node: &mut ConfigNode, mut apply: impl FnMut(&mut ConfigTable)) {
    match &mut node.value {
        ConfigValue::Table(table) => apply(table),
        ConfigValue::List(list) => {
            for item in list {
                if let ConfigValue::Table(table) = &mut item.value {
                    apply(table);
                }
            }
        }
        _ => {}
    }
}

/// Entries of `above` replace entries of `below` with the same key; the others are appended.
fn over(below: ConfigTable, above: &ConfigTable) -> ConfigTable {
    let mut entries: Vec<ConfigEntry> =
        below.entries.into_iter().map(|entry| above.entry(&entry.key).cloned().unwrap_or(entry)).collect();
    let added = above.entries.iter().filter(|entry| !entries.iter().any(|e| e.key == entry.key)).cloned();
    let added: Vec<_> = added.collect();
    entries.extend(added);
    ConfigTable { entries }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::DiagnosticCollector;
    use crate::config::validate;

    #[test]
    fn every_preset_is_toml_and_has_only_known_keys() {
        for preset in shown() {
            let (table, errors) = raw::parse(preset.text, ConfigOrigin::Preset(preset.name));
            assert_eq!(errors, []);
            let mut found = DiagnosticCollector::default();
            validate::check(&table, &SOURCE_KEYS, "preset", &mut found);
            assert!(!found.has_errors(), "{found:?}");
        }
    }

    /// What a preset of the user's own needs may be any key.
    #[test]
    fn an_example_is_toml_in_which_every_key_has_a_value_of_its_type() {
        for key in SOURCE_KEYS.writable().filter(|key| key.name != "preset") {
            for claims in [None, Some("{ sub = \"me\" }"), Some("no table"), Some("{} }\nx = { y = 1")] {
                let claims = claims.map(str::to_owned);
                let sender = SenderFacts { needs: vec![key.name.to_owned()], claims, ..SenderFacts::default() };
                let text = example("acme", &sender, |_| None);
                let (root, errors) = raw::parse(&text, ConfigOrigin::Config);
                assert_eq!(errors, [], "{text}");
                let sources = root.get("source").and_then(ConfigNode::table).expect("sources");
                let source = sources.get("acme").and_then(ConfigNode::table).expect("a source");
                assert_eq!(source.entries.len(), 2, "{text}");
                let mut found = DiagnosticCollector::default();
                validate::check(source, &SOURCE_KEYS, "source", &mut found);
                assert!(!found.has_errors(), "{text}: {found:?}");
            }
        }
    }

    #[test]
    fn a_key_beside_a_preset_replaces_that_key_whole_and_fields_add() {
        let (user, _) = raw::parse(
            "when = 'true'\nonce = { keep = '1d' }\nfields = { tag = 'body.t', extra = 'body.e' }",
            ConfigOrigin::Config,
        );
        let merged = merge_preset(find("github-package").unwrap(), &user);
        assert_eq!(merged.get("when").unwrap().text(), Some("true"));
        assert!(merged.get("once").unwrap().table().unwrap().get("per").is_none());
        let fields = merged.get("fields").unwrap().table().unwrap();
        let names: Vec<_> = fields.entries.iter().map(|e| e.key.as_str()).collect();
        assert_eq!(
            names,
            ["package", "tag", "version_id", "sha", "updated_at", "namespace", "repository", "commit", "extra"]
        );
        assert_eq!(fields.get("tag").unwrap().text(), Some("body.t"));
    }
}
