//! `catch_up`: the hook whose deliveries are listed, at which API, and with which credentials.

use super::app_token::AppKey;
use crate::decide::catch_up::CatchUpPolicy;
use crate::decide::id::Key;
use crate::decide::identity::key::{KeyPart, key};
use crate::decide::source::Source;
use std::fmt;

/// How the missed deliveries of a source are found and asked for.
#[derive(Clone, Debug)]
pub struct CatchUpPlan {
    /// The base URL of the API, without a slash at its end.
    pub api: String,
    /// The hook.
    pub hook: SenderHook,
    /// The credentials.
    pub credentials: HookApiCredentials,
    /// When, how far back and how fast.
    pub policy: CatchUpPolicy,
}

/// A hook at a sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SenderHook {
    /// Of a repository at GitHub.
    Repository {
        /// Its owner.
        owner: String,
        /// Its name.
        name: String,
        /// The hook's id.
        hook: u64,
    },
    /// Of an organisation at GitHub.
    Organization {
        /// Its name.
        name: String,
        /// The hook's id.
        hook: u64,
    },
    /// Of a GitHub App, which has one.
    App,
    /// Of a project at GitLab.
    Project {
        /// Its id, or its path.
        project: String,
        /// The hook's id.
        hook: u64,
    },
}

/// The credentials for a sender's API.
#[derive(Clone, Debug)]
pub enum HookApiCredentials {
    /// An access token.
    Token(HookApiSecret),
    /// The key of a GitHub App.
    App(AppKey),
    /// They were not read: only to inspect a config without its secrets.
    Unknown,
}

/// An access token. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct HookApiSecret(pub String);

impl fmt::Debug for HookApiSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookApiSecret(•••)")
    }
}

impl CatchUpPlan {
    /// The key under which the store keeps how far this hook is caught up.
    pub(crate) fn state_key(&self, source: &Source) -> Key {
        key(
            &source.scope,
            "catch_up",
            &[KeyPart::text("api", &self.api), KeyPart::text("hook", &self.hook.to_string())],
        )
    }

    /// In words, for people.
    pub(crate) fn words(&self) -> String {
        let how = match &self.credentials {
            HookApiCredentials::Token(_) => "with a token".to_owned(),
            HookApiCredentials::App(key) => format!("as the App {}", key.app),
            HookApiCredentials::Unknown => "with credentials that could not be read".to_owned(),
        };
        format!("{} at {}, {how}", self.hook, self.api)
    }
}

impl SenderHook {
    /// The header in which this sender names the kind of event, in lower case.
    pub(crate) fn kind_header(&self) -> &'static str {
        match self {
            Self::Repository { .. } | Self::Organization { .. } | Self::App => crate::decide::github_kind::HEADER,
            Self::Project { .. } => "x-gitlab-event",
        }
    }

    /// The path of its attempts in the API: the parts between the slashes.
    pub(super) fn attempts_path(&self) -> Vec<String> {
        let parts: Vec<&str> = match self {
            Self::Repository { owner, name, hook } => {
                return parts(&["repos", owner, name, "hooks"], *hook, "deliveries");
            }
            Self::Organization { name, hook } => return parts(&["orgs", name, "hooks"], *hook, "deliveries"),
            Self::Project { project, hook } => return parts(&["projects", project, "hooks"], *hook, "events"),
            Self::App => vec!["app", "hook", "deliveries"],
        };
        parts.into_iter().map(str::to_owned).collect()
    }

    /// The last part of the path by which an attempt is made again.
    pub(super) fn again(&self) -> &'static str {
        match self {
            Self::Repository { .. } | Self::Organization { .. } | Self::App => "attempts",
            Self::Project { .. } => "resend",
        }
    }
}

fn parts(begin: &[&str], hook: u64, list: &str) -> Vec<String> {
    let begin = begin.iter().map(|part| (*part).to_owned());
    begin.chain([hook.to_string(), list.to_owned()]).collect()
}

impl fmt::Display for SenderHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository { owner, name, hook } => write!(f, "hook {hook} of the repository {owner}/{name}"),
            Self::Organization { name, hook } => write!(f, "hook {hook} of the organization {name}"),
            Self::App => f.write_str("the hook of the App"),
            Self::Project { project, hook } => write!(f, "hook {hook} of the project {project}"),
        }
    }
}
