//! `notify`: who is told about the ends of events. The nearest level counts: a route's own `notify`, else its source's,
//! else the config's.

use super::Config;
use super::action::{block_keys, forward_keys};
use super::describe::LabelledTexts;
use super::fields::SourceFieldScope;
use super::keys::{ConfigValueType, SectionKeys, key, one_of};
use super::raw::ConfigNode;
use super::resolve::ConfigResolver;
use super::route::RETRY_KEYS;
use super::section::ConfigSection;
use super::{SecretRequirement, diagnostic};
use crate::action::notifier::mail::MailHeaders;
use crate::action::notifier::{
    GITHUB_COMMIT, GITHUB_DEPLOYMENT, GithubPlan, NTFY_HEADERS, NotifierPlan, owner_and_name,
};
use crate::action::plan::{
    CommandBlock, CommandLine, FieldTemplate, FieldTemplatePart, OutputDestination, ReceiverHeaderValue, ReceiverPlan,
    UNKNOWN_URL, WorkingDir,
};
use crate::decide::identity::key::notification_target;
use crate::decide::limits;
use crate::decide::notification::{NOTIFY_ROUTE, NotificationKind, NotificationTarget};
use crate::decide::source::{Fanout, ResponseMode, Route, Source};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The ready-made notifiers.
const NOTIFIERS: [&str; 6] = ["ntfy", "slack", "discord", "sendmail", "github-status", "github-deployment"];
/// What can be told.
const KINDS: [NotificationKind; 3] = [NotificationKind::Dead, NotificationKind::Rollback, NotificationKind::Done];
/// What is told by default.
const DEFAULT_KINDS: [NotificationKind; 2] = [NotificationKind::Dead, NotificationKind::Rollback];
const SENDMAIL: &str = "/usr/sbin/sendmail";
const GITHUB_API: &str = "https://api.github.com";
const ENVIRONMENT: &str = "production";

pub(super) static NOTIFY_KEYS: SectionKeys = SectionKeys {
    name: "notify",
    title: "`notify = [{ … }]`",
    about: "Who is told about the ends of events, on the top level, in a source or in a route. The nearest `notify` counts, and an empty list means nobody. Each message is an event of its own, with its own retries; at most 20 an hour are sent to a target, then one that says how many more there were.",
    keys: &[&[
        key(
            "on",
            ConfigValueType::Texts,
            "[\"dead\", \"rollback\"]",
            "What is told: `dead`, an event ended without success, whatever the cause; `rollback`, the last good deploy was put back, or could not be; `done`, an action succeeded.",
        ),
        key("as", ConfigValueType::Word(&NOTIFIERS), "none", "A ready-made message; else `run` or `forward`."),
        key(
            "name",
            ConfigValueType::Text,
            "the word of `as`, else run or forward",
            "The target's name: lower-case letters, digits, `_` and `-`. It must differ from the others in the list.",
        ),
        key(
            "url",
            ConfigValueType::Open,
            "required for ntfy, slack, discord",
            "The topic of ntfy; the incoming webhook of Slack or Discord, which is a secret.",
        ),
        key("token", ConfigValueType::Secret, "none; required for github-*", "The access token for ntfy or GitHub."),
        key("to", ConfigValueType::Texts, "required for sendmail", "The addresses that get the mail."),
        key("from", ConfigValueType::Text, "the system's default", "The sender of the mail."),
        key("sendmail", ConfigValueType::Text, SENDMAIL, "The program that takes the mail, called with -t -i."),
        key(
            "repository",
            ConfigValueType::Text,
            "{repository}",
            "github-*: the repository, as \"owner/name\"; {field} is allowed.",
        ),
        key("commit", ConfigValueType::Text, "{commit}", "github-*: the commit; {field} is allowed."),
        key("environment", ConfigValueType::Text, ENVIRONMENT, "github-deployment: the environment."),
        key("api", ConfigValueType::Text, GITHUB_API, "github-*: the address of GitHub's interface."),
        key("timeout", ConfigValueType::Duration, "10s", "How long a ready-made message may take."),
        key("retry", ConfigValueType::Table(&RETRY_KEYS), "5 attempts", "When a message that failed is sent again."),
        key("env", ConfigValueType::Env, "nothing more", "Environment of every block of `run`."),
        key(
            "run",
            ConfigValueType::Tables(block_keys()),
            "none",
            "Commands to run; they get the description of the end as JSON on standard input.",
        ),
        key(
            "forward",
            ConfigValueType::Tables(forward_keys()),
            "none",
            "A receiver of the description of the end, as JSON.",
        ),
    ]],
};

/// The keys that belong to each way to tell, besides those of all.
fn own_keys(word: &str) -> &'static [&'static str] {
    match word {
        "run" => &["run", "env"],
        "forward" => &["forward"],
        "ntfy" => &["url", "token", "timeout"],
        "slack" | "discord" => &["url", "timeout"],
        "sendmail" => &["to", "from", "sendmail", "timeout"],
        "github-status" => &["token", "repository", "commit", "api", "timeout"],
        _ => &["token", "repository", "commit", "api", "environment", "timeout"],
    }
}

/// A target as resolved.
#[derive(Debug)]
pub struct ConfiguredNotifier {
    /// Its name.
    pub name: String,
    /// What it is told, and where that is counted.
    pub target: NotificationTarget,
    /// How it is told.
    pub plan: NotifierPlan,
    /// The route of its notifications.
    pub route: Arc<Route>,
}

/// The level of the config that a list of targets is on.
#[derive(Clone, Copy)]
pub(super) struct NotifyLevel<'a> {
    /// The source; empty: the whole config.
    pub(super) source: &'a str,
    /// The route; empty: the whole source.
    pub(super) route: &'a str,
}

impl ConfigResolver<'_> {
    /// The targets of a section's own `notify`; `None` if it has none.
    pub(super) fn notify(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        level: NotifyLevel<'_>,
    ) -> Option<Vec<Arc<ConfiguredNotifier>>> {
        section.node("notify")?;
        let sections = section.sections("notify");
        if sections.len() > limits::NOTIFICATION_TARGETS_MAX {
            let label = format!("at most {} are allowed", limits::NOTIFICATION_TARGETS_MAX);
            self.diagnostics
                .error(format!("`notify` has {} entries", sections.len()))
                .at(section.key_place("notify"), label);
        }
        let mut all: Vec<Arc<ConfiguredNotifier>> = Vec::new();
        for inner in sections {
            let Some(notifier) = self.notifier(&inner, names, level) else { continue };
            if all.iter().any(|other| other.name == notifier.name) {
                self.diagnostics
                    .error(format!("two targets of `notify` are called `{}`", notifier.name))
                    .at(if inner.has("name") { inner.place("name") } else { inner.at }, "")
                    .hint("give each its own `name`");
                continue;
            }
            all.push(Arc::new(notifier));
        }
        Some(all)
    }

    fn notifier(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        level: NotifyLevel<'_>,
    ) -> Option<ConfiguredNotifier> {
        let word = self.notifier_word(section)?;
        let name = self.target_name(section, word);
        let on = self.notified_kinds(section);
        let plan = self.notifier_plan(section, word, names)?;
        let route = match level.route {
            "" => format!("{NOTIFY_ROUTE}{name}"),
            of => format!("{NOTIFY_ROUTE}{of}/{name}"),
        };
        let is_about_a_commit = plan.is_about_a_commit();
        let target = NotificationTarget {
            route: route.into(),
            on,
            needs: plan.fields(),
            counted_at: notification_target(level.source, level.route, &name),
            per_hour: if is_about_a_commit { limits::COMMIT_STATUSES_PER_HOUR } else { limits::NOTIFICATIONS_PER_HOUR },
            summary: !is_about_a_commit,
        };
        let route = Route {
            name: target.route.clone(),
            retry: self.retry(section, limits::NOTIFICATION_ATTEMPTS),
            max_concurrency: limits::NOTIFICATIONS_AT_ONCE,
            fanout: Fanout::Actions(1),
            notify: Arc::new([target.clone()]),
            ..Route::default()
        };
        Some(ConfiguredNotifier { name, target, plan, route: Arc::new(route) })
    }

    /// The way in which this target is told.
    fn notifier_word(&mut self, section: &ConfigSection<'_>) -> Option<&'static str> {
        let ways = [("run", section.has("run")), ("forward", section.has("forward")), ("as", section.has("as"))];
        let written: Vec<_> = ways.into_iter().filter(|(_, has)| *has).map(|(way, _)| way).collect();
        let word = match written[..] {
            ["as"] => NOTIFIERS.into_iter().find(|word| section.text("as") == Some(word))?,
            [one] => one,
            [] => {
                self.diagnostics
                    .error("an entry of `notify` does not say how to tell")
                    .unless(["run", "forward", "as"].into_iter().any(|key| section.misspells(key)))
                    .at(section.at, format!("`run`, `forward`, or `as` with {}", one_of(&NOTIFIERS)));
                return None;
            }
            [first, .., last] => {
                self.diagnostics
                    .error(format!("an entry of `notify` has `{first}` and `{last}`"))
                    .at(section.key_place(last), "one of them, not both")
                    .hint("make two entries");
                return None;
            }
        };
        let of_all = ["on", "as", "name", "retry"];
        for key in NOTIFY_KEYS.names() {
            if section.has(key) && !of_all.contains(&key) && !own_keys(word).contains(&key) {
                self.diagnostics
                    .error(format!("`{key}` does not belong to \"{word}\""))
                    .at(section.key_place(key), format!("keys of \"{word}\": {}", own_keys(word).join(", ")));
            }
        }
        Some(word)
    }

    fn target_name(&mut self, section: &ConfigSection<'_>, word: &str) -> String {
        let name = section.text("name").unwrap_or(word);
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(allowed) {
            self.diagnostics
                .error(format!("`{name}` cannot be the name of a target"))
                .at(section.place("name"), "lower-case letters, digits, _ and -");
        }
        name.to_owned()
    }

    fn notified_kinds(&mut self, section: &ConfigSection<'_>) -> Vec<NotificationKind> {
        let Some(list) = section.node("on").and_then(ConfigNode::list) else { return DEFAULT_KINDS.to_vec() };
        if list.is_empty() {
            self.diagnostics.error("`on` is empty").at(section.place("on"), "nothing would ever be told");
        }
        let mut kinds = Vec::new();
        for item in list {
            let word = item.text().unwrap_or_default();
            match KINDS.into_iter().find(|kind| kind.word() == word) {
                Some(kind) if kinds.contains(&kind) => self.report_repeated_field("on", item),
                Some(kind) => kinds.push(kind),
                None => {
                    self.diagnostics
                        .error(format!("`{word}` is nothing that can be told"))
                        .at(item.at, one_of(&KINDS.map(NotificationKind::word)))
                        .hint_if(diagnostic::did_you_mean(word, KINDS.map(NotificationKind::word)));
                }
            }
        }
        kinds
    }

    fn notifier_plan(
        &mut self,
        section: &ConfigSection<'_>,
        word: &str,
        names: &SourceFieldScope<'_>,
    ) -> Option<NotifierPlan> {
        match word {
            "run" => self.run(section, names, ResponseMode::Accepted).map(NotifierPlan::Run),
            "forward" => {
                let mut receivers = self.forward(section, names, ResponseMode::Accepted)?;
                if receivers.len() > 1 {
                    self.diagnostics
                        .error("`forward` of a notification has several receivers")
                        .at(section.key_place("forward"), "")
                        .hint("make an entry of `notify` for each");
                }
                receivers.pop().map(NotifierPlan::Forward)
            }
            "ntfy" => {
                let set = self.bearer_token(section, false)?;
                let to = self.webhook(section, names)?;
                self.check_topic(section, &to.url, !set.is_empty());
                let pass = NTFY_HEADERS.map(str::to_owned).to_vec();
                Some(NotifierPlan::Ntfy(ReceiverPlan { pass, set, ..to }))
            }
            "slack" => self.secret_webhook(section, names).map(NotifierPlan::Slack),
            "discord" => self.secret_webhook(section, names).map(NotifierPlan::Discord),
            "sendmail" => Some(self.sendmail(section)),
            _ => self.github(section, word, names),
        }
    }

    fn webhook(&mut self, section: &ConfigSection<'_>, names: &SourceFieldScope<'_>) -> Option<ReceiverPlan> {
        let timeout = self.timeout(section, ResponseMode::Accepted).unwrap_or(limits::NOTIFICATION_TIME);
        let Some(node) = section.node("url") else {
            self.diagnostics.error("`notify` has no `url`").unless(section.misspells("url")).at(section.at, "");
            return None;
        };
        let (url, display) = self.url(node, &[], names)?;
        Some(ReceiverPlan { display, ..ReceiverPlan::new(url, timeout) })
    }

    /// Checks that the URL of ntfy names a topic, and that its token stays secret.
    fn check_topic(&mut self, section: &ConfigSection<'_>, url: &FieldTemplate, has_token: bool) {
        let part = |part: &FieldTemplatePart| match part {
            FieldTemplatePart::Text(text) => text.clone(),
            FieldTemplatePart::Field(_) => "x".to_owned(),
        };
        let text: String = url.0.iter().map(part).collect();
        let Some(url) = reqwest::Url::parse(&text).ok().filter(|_| text != UNKNOWN_URL) else { return };
        if url.path().trim_matches('/').is_empty() {
            self.diagnostics
                .error("`url` names no topic of ntfy")
                .at(section.place("url"), "the topic is the last part of the path")
                .hint("url = \"https://ntfy.sh/my-deploys\"");
        }
        if has_token {
            self.warn_without_tls("the topic is written to", &url, section.place("url"));
        }
    }

    /// A webhook whose URL is a secret: whoever knows it can post there.
    fn secret_webhook(&mut self, section: &ConfigSection<'_>, names: &SourceFieldScope<'_>) -> Option<ReceiverPlan> {
        if let Some(node) = section.node("url").filter(|node| node.text().is_some()) {
            self.diagnostics.conceal(node.at);
            self.credential("url", node);
            return None;
        }
        self.webhook(section, names)
    }

    /// The header with the token; none if there is no token, unless it is required.
    fn bearer_token(
        &mut self,
        section: &ConfigSection<'_>,
        required: bool,
    ) -> Option<Vec<(String, ReceiverHeaderValue)>> {
        let Some(node) = section.node("token") else {
            if required {
                self.diagnostics
                    .error("`notify` has no `token`")
                    .unless(section.misspells("token"))
                    .at(section.at, "GitHub needs one that may write statuses or deployments")
                    .hint("token = { env = \"GITHUB_TOKEN\" }");
            }
            return (!required).then(Vec::new);
        };
        let token = match self.credential("token", node) {
            Some(secret) => String::from_utf8(secret.expose().to_vec()).ok(),
            None => (self.secrets == SecretRequirement::Optional).then(String::new),
        };
        let token = token.filter(|token| !token.chars().any(char::is_control))?;
        Some(vec![("authorization".to_owned(), ReceiverHeaderValue::Secret(format!("Bearer {token}")))])
    }

    fn sendmail(&mut self, section: &ConfigSection<'_>) -> NotifierPlan {
        let to = section.node("to").and_then(ConfigNode::list).unwrap_or(&[]);
        if to.is_empty() {
            self.diagnostics
                .error("`notify` has no `to`")
                .unless(section.misspells("to"))
                .at(section.at, "the addresses that get the mail")
                .hint("to = [\"ops@example.org\"]");
        }
        for node in to.iter().chain(section.node("from")) {
            let address = node.text().unwrap_or_default();
            let is_one_line = address.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if !is_one_line || address.contains(',') || !is_mailbox(address) {
                self.diagnostics.error("this cannot be an address of a mail").at(
                    node.at,
                    "one address, in printable ASCII, such as \"ops@example.org\", or a user such as \"root\"",
                );
            }
        }
        let timeout = self.timeout(section, ResponseMode::Accepted).unwrap_or(limits::NOTIFICATION_TIME);
        let program = section.text("sendmail").unwrap_or(SENDMAIL);
        let block = CommandBlock {
            dir: WorkingDir::Fixed(self.base.to_owned()),
            steps: vec![CommandLine::Argv([program, "-t", "-i"].map(FieldTemplate::from).to_vec())],
            timeout,
            env: Vec::new(),
            output: OutputDestination::Store,
        };
        let to = to.iter().filter_map(ConfigNode::text).map(str::to_owned).collect();
        let headers = MailHeaders { from: section.text("from").map(str::to_owned), to };
        NotifierPlan::Sendmail { block, headers }
    }

    fn github(
        &mut self,
        section: &ConfigSection<'_>,
        word: &str,
        names: &SourceFieldScope<'_>,
    ) -> Option<NotifierPlan> {
        let repository = self.template_or_field(section, "repository", names);
        let commit = self.template_or_field(section, "commit", names);
        if let Some([FieldTemplatePart::Text(fixed)]) = repository.as_ref().map(|template| &template.0[..])
            && owner_and_name(fixed).is_none()
        {
            self.diagnostics
                .error(format!("`{fixed}` is not a repository of GitHub"))
                .at(section.place("repository"), "expected \"owner/name\"");
        }
        let mut set = self.bearer_token(section, true)?;
        let template = |text: &str| ReceiverHeaderValue::Template(text.into());
        set.push(("accept".to_owned(), template("application/vnd.github+json")));
        set.push(("x-github-api-version".to_owned(), template("2022-11-28")));
        let api = section.text("api").unwrap_or(GITHUB_API);
        match reqwest::Url::parse(api).ok().filter(|url| matches!(url.scheme(), "http" | "https")) {
            Some(url) => self.warn_without_tls("the API is asked", &url, section.place("api")),
            None => {
                self.diagnostics
                    .error("`api` is not a valid URL")
                    .at(section.place("api"), format!("such as {GITHUB_API}"));
            }
        }
        let timeout = self.timeout(section, ResponseMode::Accepted).unwrap_or(limits::NOTIFICATION_TIME);
        // The config names the host, and fields are single segments of the path: no address is out of bounds.
        let allow: Vec<_> = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|range| range.parse().ok()).collect();
        let request = |path: &[&str]| ReceiverPlan {
            display: api.to_owned(),
            set: set.clone(),
            allow: allow.clone(),
            ..ReceiverPlan::new(GithubPlan::url(api, path), timeout)
        };
        let is_status = word == "github-status";
        let requests = if is_status {
            vec![request(&["statuses/", GITHUB_COMMIT])]
        } else {
            vec![request(&["deployments"]), request(&["deployments/", GITHUB_DEPLOYMENT, "/statuses"])]
        };
        let environment = section.text("environment").unwrap_or(ENVIRONMENT).to_owned();
        let plan = Box::new(GithubPlan { repository: repository?, commit: commit?, environment, requests });
        Some(if is_status { NotifierPlan::GithubStatus(plan) } else { NotifierPlan::GithubDeployment(plan) })
    }

    /// A text with fields in it; without it, the field of the key's own name.
    fn template_or_field(
        &mut self,
        section: &ConfigSection<'_>,
        key: &str,
        names: &SourceFieldScope<'_>,
    ) -> Option<FieldTemplate> {
        if let Some(node) = section.node(key) {
            return Some(FieldTemplate(self.pieces(node, names)));
        }
        if names.fields.ix(key).is_none() {
            self.diagnostics
                .error(format!("`notify` has no `{key}`, and there is no field of that name"))
                .unless(section.misspells(key) || self.unread.fields)
                .at(section.at, names.label());
            return None;
        }
        Some(FieldTemplate(vec![FieldTemplatePart::Field(key.into())]))
    }
}

/// Whether mail can be sent to this: an address, or a user of this machine.
fn is_mailbox(address: &str) -> bool {
    let in_user = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    match address.trim().rsplit_once('@') {
        Some((user, host)) => !user.is_empty() && !host.is_empty(),
        None => !address.is_empty() && address.chars().all(in_user),
    }
}

/// A target of notifications.
#[derive(Serialize, ToSchema)]
pub(super) struct NotifierView {
    name: String,
    /// `run`, `forward`, or the word of `as`.
    r#as: &'static str,
    /// What it is told.
    on: Vec<&'static str>,
    /// Where it goes, in words; never a secret.
    to: String,
    /// How many attempts may fail or time out.
    attempts: u32,
    /// The route of its notifications.
    route: String,
}

/// The targets of a route.
fn notifiers<'c>(
    config: &'c Config,
    source: &Source,
    route: &'c Route,
) -> impl Iterator<Item = &'c ConfiguredNotifier> {
    let all = config.notifiers.get(&source.name).map_or(&[][..], Vec::as_slice);
    all.iter()
        .map(Arc::as_ref)
        .filter(|notifier| route.notify.iter().any(|target| target.route == notifier.target.route))
}

fn kind_words(notifier: &ConfiguredNotifier) -> Vec<&'static str> {
    notifier.target.on.iter().map(|kind| kind.word()).collect()
}

/// The targets of a route as resolved.
pub(super) fn views(config: &Config, source: &Source, route: &Route) -> Vec<NotifierView> {
    let view = |notifier: &ConfiguredNotifier| NotifierView {
        name: notifier.name.clone(),
        r#as: notifier.plan.word(),
        on: kind_words(notifier),
        to: notifier.plan.destination(),
        attempts: notifier.route.retry.attempts,
        route: notifier.target.route.to_string(),
    };
    notifiers(config, source, route).map(view).collect()
}

/// The targets of a route in words.
pub(super) fn texts(config: &Config, source: &Source, route: &Route) -> Option<LabelledTexts> {
    let text = |notifier: &ConfiguredNotifier| {
        let (word, to, on) = (notifier.plan.word(), notifier.plan.destination(), kind_words(notifier).join(", "));
        let attempts = notifier.route.retry.attempts;
        let named = if notifier.name == word { String::new() } else { format!(" ({})", notifier.name) };
        format!("{word}{named} on {on}: {to}, at most {attempts} attempts")
    };
    let texts: Vec<_> = notifiers(config, source, route).map(text).collect();
    (!texts.is_empty()).then_some(("notifies", texts))
}
