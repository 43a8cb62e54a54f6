//! Presets: built-in config for known senders, embedded as TOML.

use super::keys::{ConfigValueType, SectionKeys, in_preset};
use super::raw::{self, ConfigEntry, ConfigNode, ConfigOrigin, ConfigTable, ConfigValue};
use super::section::ConfigSection;
use crate::decide::time::Duration;
use std::fmt::Write as _;

pub(super) static SENDER_KEYS: SectionKeys = SectionKeys {
    name: "sender",
    title: "`[sender]`",
    about: "What a preset knows of its sender, beside the keys of a source.",
    keys: &[&[
        in_preset("name", ConfigValueType::Text, "The sender's own name."),
        in_preset("retries", ConfigValueType::Duration, "How long it sends a delivery again that failed."),
        in_preset("by_hand", ConfigValueType::Flag, "Whether it does so only when a person asks for it."),
        in_preset("needs", ConfigValueType::Texts, "The keys that a source must have beside `preset`."),
        in_preset("secret", ConfigValueType::Text, "What the secret is called at the sender."),
        in_preset("unchecked", ConfigValueType::Texts, "What is taken from memory, not from the sender's documents."),
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
    /// How long it sends a failed delivery again.
    pub retries: Option<Duration>,
    /// Whether it does so only when a person asks for it.
    pub by_hand: bool,
    /// The keys that a source must have beside `preset`.
    pub needs: Vec<String>,
    /// What the secret is called at the sender.
    pub secret: Option<String>,
    /// What is taken from memory, not from the sender's documents.
    pub unchecked: Vec<String>,
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
    "ecr",
    "harbor",
    "nexus",
    // Builds, deployments, settings.
    "buildkite",
    "buildkite-token",
    "circleci",
    "hugging-face",
    "launchdarkly",
    "render",
    "replicate",
    "terraform",
    "vercel",
    // Alerts.
    "alertmanager",
    "grafana",
    "sentry",
    // Payments and shops.
    "adyen-platform",
    "airwallex",
    "coinbase",
    "lemon-squeezy",
    "mollie",
    "paddle",
    "paystack",
    "polar",
    "razorpay",
    "revenuecat",
    "square",
    "woocommerce",
    // Chat, mail, media.
    "cloudflare-stream",
    "intercom",
    "meta",
    "mux",
    "resend",
    "telegram",
    "tiktok",
    "twitch",
    "x",
    "zoom",
    // Work tools.
    "airtable",
    "box",
    "calendly",
    "clickup",
    "confluence",
    "docusign",
    "figma",
    "jira",
    "trello",
    "typeform",
    "webflow",
    "zendesk",
    // Identity and AI.
    "clerk",
    "openai",
    "supabase",
    "workos",
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
        let Some(node) = table.get("sender") else { return SenderFacts::default() };
        let Some(sender) = node.table() else { return SenderFacts::default() };
        let sender = ConfigSection::new(sender, &SENDER_KEYS, node.at);
        let text = |key: &str| sender.text(key).map(str::to_owned);
        let texts = |key: &str| sender.texts(key).into_iter().map(str::to_owned).collect();
        SenderFacts {
            name: text("name").unwrap_or_default(),
            retries: sender.duration("retries"),
            by_hand: sender.flag("by_hand").unwrap_or(false),
            needs: texts("needs"),
            secret: text("secret"),
            unchecked: texts("unchecked"),
        }
    }

    /// A source with this preset, as a user would write it: what it needs, and nothing else.
    pub fn example(&self) -> String {
        let sender = self.sender();
        let mut out = format!("[source.{0}]\npreset = \"{0}\"\n", self.name);
        let variable = format!("{}_SECRET", self.name.to_ascii_uppercase().replace('-', "_"));
        for key in &sender.needs {
            let value = match key.as_str() {
                "secret" => format!("{{ env = \"{variable}\" }}"),
                "verify_token" => "{ env = \"VERIFY_TOKEN\" }".to_owned(),
                "url" => format!("\"https://hooks.example.com/in/{}\"", self.name),
                "path" => format!("\"/in/{}/a-long-random-word\"", self.name),
                "verify" => "\"bearer\"".to_owned(),
                _ => "\"…\"".to_owned(),
            };
            let note = match key.as_str() {
                "secret" => sender.secret.as_deref(),
                "path" => Some("change it: it is the only secret"),
                _ => None,
            };
            let note = note.map(|note| format!("   # {note}")).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{key} = {value}{note}");
        }
        out
    }
}

/// Merges a preset into a source: a key of the source replaces the preset's key completely; fields are added, and the
/// preset's `route` has the defaults of each route of the source.
pub(super) fn merge_preset(preset: &'static Preset, user: &ConfigTable) -> ConfigTable {
    let (mut known, _) = raw::parse(preset.text, ConfigOrigin::Preset(preset.name));
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
    use crate::config::source::SOURCE_KEYS;
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
