//! Notifiers: how a target is told about the end of an event. Each is one of the other actions, `run` or `forward`, with
//! a message made of the description that a notification carries ([`EndDescription`]).
//!
//! ```text
//! run, forward             the description itself, as JSON
//! ntfy, slack, discord     one request with a short text
//! sendmail                 one mail, on the standard input of sendmail
//! github-status            one status on a commit
//! github-deployment        a deployment of a commit, and its status
//! ```
pub(crate) mod mail;
pub(crate) mod message_text;

use super::forward::ForwardAction;
use super::plan::{CommandBlock, FieldTemplate, FieldTemplatePart, ReceiverPlan};
use super::run::RunAction;
use super::{Action, ActionBuildError, ActionEnvironment, ActionFuture, Attempt, CircuitAdmission};
use super::{LiveCheck, LiveCheckEnvironment, forward, run};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::Payload;
use crate::decide::event::{DeathCause, Event, Outcome};
use crate::decide::field::{FieldValue, StoredFields};
use crate::decide::notification::{EndDescription, NotificationKind};
use bytes::Bytes;
use mail::MailHeaders;
use message_text::{MessageText, escape_discord, escape_slack, plain};
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// How a target is told, as resolved from the config.
#[derive(Clone, PartialEq, Debug)]
pub enum NotifierPlan {
    /// Runs these blocks.
    Run(Vec<CommandBlock>),
    /// Sends the description to this receiver.
    Forward(ReceiverPlan),
    /// Publishes to this topic of an ntfy server.
    Ntfy(ReceiverPlan),
    /// Posts to this incoming webhook of Slack.
    Slack(ReceiverPlan),
    /// Posts to this webhook of Discord.
    Discord(ReceiverPlan),
    /// Sends a mail.
    Sendmail {
        /// The command that takes it.
        block: CommandBlock,
        /// From whom and to whom it is.
        headers: MailHeaders,
    },
    /// Sets the status of a commit.
    GithubStatus(Box<GithubPlan>),
    /// Creates a deployment of a commit, with its status.
    GithubDeployment(Box<GithubPlan>),
}

/// The repository and the commit that GitHub is told about.
#[derive(Clone, PartialEq, Debug)]
pub struct GithubPlan {
    /// The repository, as `owner/name`.
    pub repository: FieldTemplate,
    /// The commit.
    pub commit: FieldTemplate,
    /// The environment of deployments.
    pub environment: String,
    /// Where requests go, in their order. Their URLs are made of [`GITHUB_OWNER`] and the other names.
    pub requests: Vec<ReceiverPlan>,
}

/// The owner of the repository, in the URL of a request.
pub(crate) const GITHUB_OWNER: &str = ":owner";
/// The name of the repository.
pub(crate) const GITHUB_REPO: &str = ":repo";
/// The commit.
pub(crate) const GITHUB_COMMIT: &str = ":commit";
/// The number of the deployment that the first request created.
pub(crate) const GITHUB_DEPLOYMENT: &str = ":deployment";
/// The longest description that GitHub takes.
const GITHUB_DESCRIPTION_CHARS_MAX: usize = 140;
/// Discord's limit for a message is 2,000 characters.
const DISCORD_CHARS_MAX: usize = 1_900;

impl NotifierPlan {
    /// Its name in a config.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Forward(_) => "forward",
            Self::Ntfy(_) => "ntfy",
            Self::Slack(_) => "slack",
            Self::Discord(_) => "discord",
            Self::Sendmail { .. } => "sendmail",
            Self::GithubStatus(_) => "github-status",
            Self::GithubDeployment(_) => "github-deployment",
        }
    }

    /// The fields without which there is nothing to tell.
    pub fn fields(&self) -> Vec<Arc<str>> {
        match self {
            Self::Run(blocks) => blocks.iter().flat_map(CommandBlock::fields).collect(),
            Self::Forward(to) | Self::Ntfy(to) | Self::Slack(to) | Self::Discord(to) => to.fields(),
            Self::Sendmail { .. } => Vec::new(),
            Self::GithubStatus(plan) | Self::GithubDeployment(plan) => {
                plan.repository.fields().chain(plan.commit.fields()).cloned().collect()
            }
        }
    }

    /// Whether it is about a commit, and each notification replaces the last one about that commit.
    pub fn is_about_a_commit(&self) -> bool {
        matches!(self, Self::GithubStatus(_) | Self::GithubDeployment(_))
    }

    /// Where it goes, in words; never a secret.
    pub fn destination(&self) -> String {
        match self {
            Self::Run(blocks) => {
                let steps = blocks.iter().flat_map(|block| &block.steps).map(ToString::to_string);
                steps.collect::<Vec<_>>().join("; ")
            }
            Self::Forward(to) | Self::Ntfy(to) | Self::Slack(to) | Self::Discord(to) => to.display.clone(),
            Self::Sendmail { headers, .. } => headers.to.join(", "),
            Self::GithubStatus(plan) => format!("{} at {}", plan.repository, plan.commit),
            Self::GithubDeployment(plan) => {
                format!("{} at {}, environment {}", plan.repository, plan.commit, plan.environment)
            }
        }
    }

    /// Checks that what it needs is there. Sends nothing.
    pub(crate) async fn check_live(&self, environment: &LiveCheckEnvironment<'_>) -> Vec<LiveCheck> {
        match self {
            Self::Run(blocks) => run::check_live(blocks, environment.variable),
            Self::Sendmail { block, .. } => run::check_live(std::slice::from_ref(block), environment.variable),
            Self::Forward(to) | Self::Ntfy(to) | Self::Slack(to) | Self::Discord(to) => {
                forward::check_live(std::slice::from_ref(to)).await
            }
            Self::GithubStatus(_) | Self::GithubDeployment(_) => Vec::new(),
        }
    }
}

/// Creates the action of a notifier.
pub(crate) fn build_notifier(
    plan: NotifierPlan,
    environment: &ActionEnvironment,
) -> Result<Arc<dyn Action>, ActionBuildError> {
    let forward = |receivers| Ok::<_, ActionBuildError>(Arc::new(ForwardAction::new(receivers, environment)?));
    let (form, inner): (MessageForm, Arc<dyn Action>) = match plan {
        NotifierPlan::Run(blocks) => return Ok(Arc::new(RunAction::new(blocks, environment.clone()))),
        NotifierPlan::Forward(to) => return Ok(forward(vec![to])?),
        NotifierPlan::Ntfy(to) => (MessageForm::Ntfy, forward(vec![to])?),
        NotifierPlan::Slack(to) => (MessageForm::Slack, forward(vec![to])?),
        NotifierPlan::Discord(to) => (MessageForm::Discord, forward(vec![to])?),
        NotifierPlan::Sendmail { block, headers } => {
            (MessageForm::Mail(headers), Arc::new(RunAction::new(vec![block], environment.clone())))
        }
        NotifierPlan::GithubStatus(plan) => {
            let inner = forward(plan.requests.clone())?;
            (MessageForm::GithubStatus(plan), inner)
        }
        NotifierPlan::GithubDeployment(plan) => {
            let inner = forward(plan.requests.clone())?;
            (MessageForm::GithubDeployment(plan), inner)
        }
    };
    Ok(Arc::new(NotifierAction { form, inner }))
}

/// The form of a message.
enum MessageForm {
    Ntfy,
    Slack,
    Discord,
    Mail(MailHeaders),
    GithubStatus(Box<GithubPlan>),
    GithubDeployment(Box<GithubPlan>),
}

/// Makes the message of each notification, and has another action send it.
struct NotifierAction {
    form: MessageForm,
    inner: Arc<dyn Action>,
}

impl NotifierAction {
    async fn notify(&self, attempt: Attempt<'_>) -> Outcome {
        let Some(described) = EndDescription::read(attempt.event, &attempt.payload.body) else {
            return rejected("the notification cannot be read".into());
        };
        let payload = match &self.form {
            MessageForm::Ntfy => ntfy(&described),
            MessageForm::Slack => slack(&described),
            MessageForm::Discord => discord(&described),
            MessageForm::Mail(headers) => {
                let body = headers.message(&described, &attempt.event.idempotency_key());
                Payload { headers: Vec::new(), body: Bytes::from(body) }
            }
            MessageForm::GithubStatus(plan) => return self.status(plan, &described, attempt).await,
            MessageForm::GithubDeployment(plan) => return self.deployment(plan, &described, attempt).await,
        };
        self.inner.act(Attempt { payload: &payload, ..attempt }).await
    }

    async fn status(&self, plan: &GithubPlan, described: &EndDescription, attempt: Attempt<'_>) -> Outcome {
        let fields = match plan.fields(attempt.event) {
            Ok(fields) => fields,
            Err(why) => return rejected(why),
        };
        let status = json!({
            "state": github_state(described),
            "context": format!("hookonce/{}", described.route),
            "description": github_description(described),
        });
        self.ask_github(0, fields, &status, attempt).await
    }

    /// Creates the deployment and its status. A crash between the two leaves a deployment without a status, and the next
    /// attempt creates another: GitHub's interface cannot do both at once.
    async fn deployment(&self, plan: &GithubPlan, described: &EndDescription, attempt: Attempt<'_>) -> Outcome {
        let mut fields = match plan.fields(attempt.event) {
            Ok(fields) => fields,
            Err(why) => return rejected(why),
        };
        let description = github_description(described);
        let commit = fields.iter().find(|(name, _)| &**name == GITHUB_COMMIT).map_or("", |(_, commit)| commit);
        let created = json!({
            "ref": commit,
            "environment": plan.environment,
            "description": description,
            "auto_merge": false,
            "required_contexts": [],
            "payload": { "event": described.event.to_string() },
        });
        let outcome = self.ask_github(0, fields.clone(), &created, attempt).await;
        let Outcome::Delivered(receipt) = &outcome else { return outcome };
        let id = receipt.as_ref().and_then(|receipt| serde_json::from_slice::<Json>(&receipt.body).ok());
        let Some(id) = id.as_ref().and_then(|answer| answer["id"].as_u64()) else {
            let why = "GitHub's answer does not say which deployment was created".to_owned();
            return Outcome::Failed { why, retry_after: None, receipt: None };
        };
        fields.push((GITHUB_DEPLOYMENT.into(), id.to_string()));
        let status = json!({
            "state": github_state(described),
            "environment": plan.environment,
            "description": description,
        });
        self.ask_github(1, fields, &status, attempt).await
    }

    /// Sends one request to GitHub. A refusal because of its rate limit is a failure that passes.
    async fn ask_github(&self, part: u16, fields: GithubFields, body: &Json, attempt: Attempt<'_>) -> Outcome {
        let fields: StoredFields =
            fields.into_iter().map(|(name, value)| (name, FieldValue::Text(value.into()))).collect();
        let event = Event { part, fields, ..attempt.event.clone() };
        let payload = json_payload(body);
        let outcome = self.inner.act(Attempt { event: &event, payload: &payload, ..attempt }).await;
        match outcome {
            Outcome::Rejected { why, receipt: Some(receipt) }
                if receipt.status == 403 && receipt.body.windows(10).any(|some| some == b"rate limit") =>
            {
                Outcome::Failed { why, retry_after: None, receipt: Some(receipt) }
            }
            outcome => outcome,
        }
    }
}

impl Action for NotifierAction {
    fn act<'a>(&'a self, attempt: Attempt<'a>) -> ActionFuture<'a> {
        Box::pin(self.notify(attempt))
    }

    fn kind(&self) -> ActionKind {
        self.inner.kind()
    }

    fn ready(&self, part: u16) -> CircuitAdmission {
        self.inner.ready(part)
    }

    fn open_circuits(&self) -> usize {
        self.inner.open_circuits()
    }

    fn release_probe(&self, part: u16) {
        self.inner.release_probe(part);
    }

    fn is_healthy(&self, part: u16) -> bool {
        self.inner.is_healthy(part)
    }
}

/// The parts of a URL of GitHub's interface, by their names.
type GithubFields = Vec<(Arc<str>, String)>;

impl GithubPlan {
    /// A receiver's URL under this address of the interface: the repository, and then this path.
    pub(crate) fn url(api: &str, path: &[&str]) -> FieldTemplate {
        let part = |part: &&str| match part.strip_prefix(':') {
            Some(_) => FieldTemplatePart::Field((*part).into()),
            None => FieldTemplatePart::Text((*part).to_owned()),
        };
        let base = format!("{}/repos/", api.trim_end_matches('/'));
        let begins = [&*base, GITHUB_OWNER, "/", GITHUB_REPO, "/"];
        FieldTemplate(begins.iter().chain(path).map(part).collect())
    }

    fn fields(&self, event: &Event) -> Result<GithubFields, String> {
        let fill = |template: &FieldTemplate| template.fill(&event.fields).map_err(|missing| missing.to_string());
        let (repository, commit) = (fill(&self.repository)?, fill(&self.commit)?);
        let (owner, repo) = owner_and_name(&repository).ok_or("the repository is not written as `owner/name`")?;
        let field = |name: &str, value: &str| (name.into(), value.to_owned());
        Ok(vec![field(GITHUB_OWNER, owner), field(GITHUB_REPO, repo), field(GITHUB_COMMIT, &commit)])
    }
}

/// The two parts of a repository's name at GitHub.
pub(crate) fn owner_and_name(repository: &str) -> Option<(&str, &str)> {
    let is_part = |part: &str| !part.is_empty() && !part.contains(|c: char| c == '/' || c.is_whitespace());
    repository.split_once('/').filter(|(owner, name)| is_part(owner) && is_part(name))
}

fn rejected(why: String) -> Outcome {
    Outcome::Rejected { why, receipt: None }
}

fn json_payload(body: &Json) -> Payload {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Payload { headers, body: Bytes::from(body.to_string()) }
}

/// The headers of ntfy, besides the text.
pub(crate) const NTFY_HEADERS: [&str; 3] = ["title", "tags", "priority"];

fn ntfy(described: &EndDescription) -> Payload {
    let text = MessageText::of(described, plain);
    let (tags, priority) = match described.kind {
        NotificationKind::Dead => ("rotating_light", "high"),
        NotificationKind::Rollback => ("rewind", "high"),
        NotificationKind::Done => ("white_check_mark", "default"),
        NotificationKind::Summary => ("hash", "default"),
    };
    let [title_name, tags_name, priority_name] = NTFY_HEADERS.map(str::to_owned);
    let headers = vec![
        ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
        (title_name, mail::encoded_words(&text.title).join(" ")),
        (tags_name, tags.to_owned()),
        (priority_name, priority.to_owned()),
    ];
    Payload { headers, body: Bytes::from(text.lines.join("\n")) }
}

/// Slack's markup is off, except for what is in angle brackets: that is escaped.
fn slack(described: &EndDescription) -> Payload {
    let text = MessageText::of(described, escape_slack).to_string();
    json_payload(&json!({ "text": text, "mrkdwn": false, "unfurl_links": false, "unfurl_media": false }))
}

/// Nobody is mentioned, whatever a field contains.
fn discord(described: &EndDescription) -> Payload {
    let text: String = MessageText::of(described, escape_discord).to_string().chars().take(DISCORD_CHARS_MAX).collect();
    json_payload(&json!({ "content": text, "allowed_mentions": { "parse": [] } }))
}

/// GitHub's word for how it ended.
fn github_state(described: &EndDescription) -> &'static str {
    match described.death_cause() {
        None if described.is_good() => "success",
        Some(DeathCause::Failed | DeathCause::Rejected | DeathCause::Unhealthy) => "failure",
        None | Some(_) => "error",
    }
}

fn github_description(described: &EndDescription) -> String {
    message_text::reason(described, plain).chars().take(GITHUB_DESCRIPTION_CHARS_MAX).collect()
}
