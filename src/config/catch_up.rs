//! `catch_up`: the sender's API, at which missed deliveries are found and asked for again.

use super::describe::{LabelledTexts, labelled};
use super::external_value::SecretRequirement;
use super::keys::{ConfigValueType, SectionKeys, key};
use super::raw::{ConfigSpan, ConfigValue};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::catch_up::{AppKey, CatchUpPlan, HookApiCredentials, HookApiSecret, SenderHook};
use crate::decide::catch_up::CatchUpPolicy;
use crate::decide::limits::{CATCH_UP_EVERY, CATCH_UP_REQUESTS_PER_HOUR};
use crate::decide::source::{DeduplicationPolicy, DeliveryIdLocation};
use crate::decide::time::{Duration, duration_text};
use serde::Serialize;
use utoipa::ToSchema;

pub(super) static CATCH_UP_KEYS: SectionKeys = SectionKeys {
    name: "catch_up",
    title: "`[source.NAME.catch_up]`",
    about: "Asks the sender again for deliveries that were missed: at the start, after an outage and on a schedule.",
    keys: &[&[
        key("repository", ConfigValueType::Text, "none", "The hook of this repository at GitHub, as \"owner/name\"."),
        key("organization", ConfigValueType::Text, "none", "The hook of this organization at GitHub."),
        key(
            "app",
            ConfigValueType::Text,
            "none",
            "The hook of this GitHub App, by its client id or number; needs `private_key` in place of `token` and `hook`.",
        ),
        key("project", ConfigValueType::Text, "none", "The hook of this project at GitLab: its number or its path."),
        key("hook", ConfigValueType::Count, "required, except for an App", "The number of the hook."),
        key(
            "token",
            ConfigValueType::Secret,
            "required, except for an App",
            "An access token that may read and redeliver the deliveries of the hook.",
        ),
        key("private_key", ConfigValueType::Secret, "none", "The private key of the App, in PEM."),
        key(
            "api",
            ConfigValueType::Text,
            "https://api.github.com, https://gitlab.com/api/v4",
            "The address of the API, such as \"https://HOST/api/v3\" of a GitHub Enterprise Server.",
        ),
        key("every", ConfigValueType::Duration, "1h", "How often, beside each start and the end of each outage."),
        key(
            "back",
            ConfigValueType::Duration,
            "3d, 7d at GitLab",
            "How far back at most: as long as the sender keeps its deliveries.",
        ),
        key("requests_per_hour", ConfigValueType::Count, "1000", "Maximum number of requests to the API in one hour."),
        key(
            "pause",
            ConfigValueType::Duration,
            "1s, 12s at GitLab",
            "The pause after each delivery that was asked for.",
        ),
        key(
            "unordered",
            ConfigValueType::Flag,
            "false",
            "Catches up although the source has `change` without `order`: a missed delivery counts as the newest when it arrives.",
        ),
    ]],
};

const GITHUB: &str = "https://api.github.com";
const GITLAB: &str = "https://gitlab.com/api/v4";
const DAY: Duration = Duration::from_hours(24);

impl ConfigResolver<'_> {
    /// The catch-up of a source; `None` if it has none or it is invalid.
    pub(super) fn catch_up(
        &mut self,
        source: &ConfigSection<'_>,
        once: &DeduplicationPolicy,
        delivery: Option<&DeliveryIdLocation>,
    ) -> Option<CatchUpPlan> {
        let section = source.section("catch_up")?;
        self.can_be_caught_up(source, &section, once, delivery);
        let hook = self.sender_hook(&section);
        let (api, back, pause) = match hook {
            Some(SenderHook::Project { .. }) => (GITLAB, DAY * 7, Duration::from_secs(12)),
            _ => (GITHUB, DAY * 3, Duration::from_secs(1)),
        };
        let api = self.hook_api_address(&section, api);
        let policy = CatchUpPolicy {
            every: self.positive(&section, "every").unwrap_or(CATCH_UP_EVERY),
            back: self.positive(&section, "back").unwrap_or(back),
            requests_per_hour: section.count("requests_per_hour").unwrap_or(CATCH_UP_REQUESTS_PER_HOUR),
            pause: section.duration("pause").unwrap_or(pause),
        };
        let credentials = self.hook_api_credentials(&section);
        Some(CatchUpPlan { api: api?, hook: hook?, credentials: credentials?, policy })
    }

    /// Reports sources that cannot be caught up, or only at a risk that must be accepted.
    fn can_be_caught_up(
        &mut self,
        source: &ConfigSection<'_>,
        section: &ConfigSection<'_>,
        once: &DeduplicationPolicy,
        delivery: Option<&DeliveryIdLocation>,
    ) {
        let at = source.key_place("catch_up");
        if source.has("from") {
            self.diagnostics
                .error("`catch_up` and `from` cannot be combined")
                .at(at, "a stream keeps its messages until they are read");
        }
        if source.has("poll") {
            self.diagnostics
                .error("`catch_up` and `poll` cannot be combined")
                .at(at, "what is polled is sent by nobody, and cannot be missed");
        }
        if delivery.is_none() && !source.has("from") && !source.has("poll") {
            let header = if section.has("project") { "idempotency-key" } else { "x-github-delivery" };
            self.diagnostics
                .error("`catch_up` needs `delivery`")
                .unless(self.unread.delivery)
                .at(at, "without the sender's delivery id it is not known which deliveries the store has")
                .hint(format!("delivery = \"header.{header}\""));
        }
        let is_unordered = once.change.as_ref().is_some_and(|change| change.order.is_none());
        if is_unordered && section.flag("unordered") != Some(true) {
            self.diagnostics
                .error("`catch_up` needs `change.order`")
                .unless(self.unread.preset || self.unread.fields)
                .at(at, "a missed delivery would count as the newest when it arrives, and undo what came after it")
                .hint(
                    "name the field that orders them: change = { of = …, to = …, order = \"updated_at\" }; or accept \
                     that with unordered = true",
                );
        }
    }

    fn sender_hook(&mut self, section: &ConfigSection<'_>) -> Option<SenderHook> {
        let keys = ["repository", "organization", "app", "project"];
        let named: Vec<_> = keys.into_iter().filter(|key| section.has(key)).collect();
        let (key, text) = match named.as_slice() {
            [key] => (*key, section.text(key)?),
            [] => {
                self.diagnostics
                    .error("`catch_up` does not say whose hook it is")
                    .unless(keys.into_iter().any(|key| section.misspells(key)))
                    .at(section.at, "one of `repository`, `organization`, `app` and `project` is needed")
                    .hint("repository = \"owner/name\"");
                return None;
            }
            [_, second, ..] => {
                self.diagnostics
                    .error("`catch_up` names several hooks")
                    .at(section.key_place(second), "one of `repository`, `organization`, `app` and `project`");
                return None;
            }
        };
        let is_name = |text: &str| {
            !text.is_empty()
                && !matches!(text, "." | "..")
                && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        };
        let is_path = |text: &str| text.split('/').all(is_name);
        let (valid, expected) = match key {
            "repository" => (is_path(text) && text.split('/').count() == 2, "expected \"owner/name\""),
            "project" => (is_path(text), "expected a number, or a path such as \"group/name\""),
            "app" => (is_name(text), "expected the App's client id or number"),
            _ => (is_name(text), "expected the name of an organization"),
        };
        if !valid {
            self.diagnostics.error(format!("`{key}` cannot be read")).at(section.place(key), expected);
            return None;
        }
        if key == "app" {
            if section.has("hook") {
                self.diagnostics.error("an App has only one hook").at(section.key_place("hook"), "remove this key");
            }
            return Some(SenderHook::App);
        }
        let hook = self.hook_number(section, key, text)?;
        Some(match key {
            "repository" => {
                let (owner, name) = text.split_once('/')?;
                SenderHook::Repository { owner: owner.to_owned(), name: name.to_owned(), hook }
            }
            "organization" => SenderHook::Organization { name: text.to_owned(), hook },
            _ => SenderHook::Project { project: text.to_owned(), hook },
        })
    }

    fn hook_number(&mut self, section: &ConfigSection<'_>, key: &str, text: &str) -> Option<u64> {
        let list = match key {
            "repository" => format!("`gh api repos/{text}/hooks` lists the hooks of the repository"),
            "organization" => format!("`gh api orgs/{text}/hooks` lists the hooks of the organization"),
            _ => "GET /projects/ID/hooks lists the hooks of the project".to_owned(),
        };
        let Some(node) = section.node("hook") else {
            self.diagnostics
                .error("`catch_up` has no `hook`")
                .unless(section.misspells("hook"))
                .at(section.at, "the number of the hook is needed")
                .hint(list);
            return None;
        };
        match node.value {
            ConfigValue::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// The base URL of the API, without a slash at its end.
    fn hook_api_address(&mut self, section: &ConfigSection<'_>, default: &str) -> Option<String> {
        let Some(node) = section.node("api") else { return Some(default.to_owned()) };
        let text = node.text()?;
        let url = reqwest::Url::parse(text).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        });
        let Some(url) = url else {
            if text.contains('@') {
                self.diagnostics.conceal(node.at);
            }
            self.diagnostics
                .error("`api` is not the address of an API")
                .at(node.at, format!("expected a URL such as \"{default}\""))
                .hint("a token goes into token = { env = \"…\" }");
            return None;
        };
        self.warn_without_tls("the API is asked", &url, node.at);
        Some(text.trim_end_matches('/').to_owned())
    }

    /// Warns if a token would go to another machine in clear. `what` happens there.
    pub(super) fn warn_without_tls(&mut self, what: &str, url: &reqwest::Url, at: ConfigSpan) {
        let is_loopback = match url.host_str() {
            Some("localhost") => true,
            Some(host) => host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            None => false,
        };
        if url.scheme() == "http" && !is_loopback {
            self.diagnostics
                .warning(format!("{what} without TLS"))
                .at(at, "anyone on the way can read the token")
                .hint("use https, unless the network is trusted");
        }
    }

    /// The credentials; `None` if they are invalid.
    fn hook_api_credentials(&mut self, section: &ConfigSection<'_>) -> Option<HookApiCredentials> {
        let (wanted, other) = if section.has("app") { ("private_key", "token") } else { ("token", "private_key") };
        if section.has(other) {
            self.diagnostics.error(format!("`{other}` is not used here")).at(
                section.key_place(other),
                if other == "token" { "an App has a private key" } else { "only an App has one" },
            );
        }
        let Some(node) = section.node(wanted) else {
            self.diagnostics
                .error(format!("`catch_up` has no `{wanted}`"))
                .unless(section.misspells(wanted))
                .at(section.at, "")
                .hint(format!("{wanted} = {{ env = \"NAME\" }}, or {wanted} = {{ file = \"PATH\" }}"));
            return None;
        };
        let Some(secret) = self.credential(wanted, node) else {
            return (self.secrets == SecretRequirement::Optional).then_some(HookApiCredentials::Unknown);
        };
        if wanted == "private_key" {
            return match AppKey::parse(section.text("app").unwrap_or_default(), secret.expose()) {
                Ok(key) => Some(HookApiCredentials::App(key)),
                Err(error) => {
                    self.diagnostics
                        .error("`private_key` is not the private key of an App")
                        .at(node.at, error.to_string())
                        .hint("use the file that GitHub gives out when a private key is generated for the App");
                    None
                }
            };
        }
        match String::from_utf8(secret.expose().to_vec()) {
            Ok(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Some(HookApiCredentials::Token(HookApiSecret(token)))
            }
            _ => {
                self.diagnostics
                    .error("`token` is not a token")
                    .at(node.at, "it has characters that no header may have");
                None
            }
        }
    }
}

/// Where missed deliveries of a source are asked for.
#[derive(Serialize, ToSchema)]
pub(super) struct CatchUpView {
    api: String,
    /// In words; never a secret.
    hook: String,
    every: String,
    back: String,
    requests_per_hour: u32,
    pause: String,
}

/// A catch-up as resolved.
pub(super) fn view(plan: &CatchUpPlan) -> CatchUpView {
    CatchUpView {
        api: plan.api.clone(),
        hook: plan.hook.to_string(),
        every: duration_text(plan.policy.every),
        back: duration_text(plan.policy.back),
        requests_per_hour: plan.policy.requests_per_hour,
        pause: duration_text(plan.policy.pause),
    }
}

/// A catch-up in words.
pub(super) fn text(plan: &CatchUpPlan) -> LabelledTexts {
    let CatchUpPolicy { every, back, requests_per_hour, .. } = plan.policy;
    let when = format!("every {}, at most {} back", duration_text(every), duration_text(back));
    labelled("catches up", format!("{}; {when}, {requests_per_hour} requests an hour", plan.words()))
}
