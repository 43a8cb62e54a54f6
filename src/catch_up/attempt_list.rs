//! The lists of attempts, as GitHub and GitLab write them.

use super::catch_up_plan::SenderHook;
use super::error::HookApiError;
use crate::decide::catch_up::ListedAttempt;
use crate::decide::field::FieldLocation;
use crate::decide::limits::CATCH_UP_TEXT_BYTES_MAX;
use crate::decide::source::Source;
use crate::decide::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The header in which GitLab repeats its id of a delivery with each attempt at it.
const GITLAB_ID: &str = "idempotency-key";

/// An attempt as GitHub lists it.
#[derive(Deserialize)]
struct GithubAttempt {
    id: u64,
    guid: String,
    delivered_at: Option<Timestamp>,
    #[serde(default)]
    redelivery: bool,
    #[serde(default)]
    status: String,
    #[serde(default)]
    status_code: i64,
    event: Option<String>,
    action: Option<String>,
}

/// An attempt as GitLab lists it. It states no time.
#[derive(Deserialize)]
struct GitlabAttempt {
    id: u64,
    #[serde(default)]
    request_headers: BTreeMap<String, Value>,
    /// A status code as text, or words.
    response_status: Value,
}

/// Reads a page of the list. Attempts of a delivery without an id are left out, because nothing could be found by it; so
/// are those with texts that no sender writes.
pub(super) fn parse(hook: &SenderHook, source: &Source, body: &[u8]) -> Result<Vec<ListedAttempt>, HookApiError> {
    let attempts = match hook {
        SenderHook::Project { .. } => {
            let list: Vec<GitlabAttempt> = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
            list.into_iter().filter_map(|one| one.listed(source, hook.kind_header())).collect()
        }
        SenderHook::Repository { .. } | SenderHook::Organization { .. } | SenderHook::App => {
            let list: Vec<GithubAttempt> = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
            list.into_iter().map(GithubAttempt::listed).collect::<Vec<_>>()
        }
    };
    let is_short = |text: &Option<String>| text.as_ref().is_none_or(|text| text.len() <= CATCH_UP_TEXT_BYTES_MAX);
    let is_usable = |one: &ListedAttempt| {
        !one.delivery.is_empty() && one.delivery.len() <= CATCH_UP_TEXT_BYTES_MAX && is_short(&one.kind)
    };
    Ok(attempts.into_iter().filter(is_usable).collect())
}

/// The error for a list that is none. Says where, not what: a list may contain bodies.
fn malformed(error: &serde_json::Error) -> HookApiError {
    HookApiError::malformed(format!("its response is not a list of deliveries (line {})", error.line()))
}

impl GithubAttempt {
    fn listed(self) -> ListedAttempt {
        ListedAttempt {
            id: self.id,
            delivery: self.guid,
            at: self.delivered_at,
            kind: self.event,
            action: self.action,
            is_redelivery: self.redelivery,
            is_accepted: self.status == "OK" || (200..300).contains(&self.status_code),
        }
    }
}

impl GitlabAttempt {
    fn listed(self, source: &Source, kind_header: &str) -> Option<ListedAttempt> {
        let header = |name: &str| {
            let mut headers = self.request_headers.iter();
            let (_, value) = headers.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
            value.as_str().map(str::to_owned)
        };
        let own = source.delivery.as_ref().and_then(|delivery| match &delivery.at {
            FieldLocation::Header(name) => header(name),
            _ => None,
        });
        let status = match &self.response_status {
            Value::String(text) => text.parse().unwrap_or(0),
            other => other.as_u64().unwrap_or(0),
        };
        Some(ListedAttempt {
            id: self.id,
            delivery: own.or_else(|| header(GITLAB_ID))?,
            at: None,
            kind: header(kind_header),
            action: None,
            // GitLab does not say: each success may be one of several attempts.
            is_redelivery: true,
            is_accepted: (200..300).contains(&status),
        })
    }
}
