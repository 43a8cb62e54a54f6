//! `/api/reload`: an operator has the config read again. The node's own loop does it, one reload at a time.

use super::openapi::NotReady;
use super::{AdminState, unavailable_response};
use crate::config::diagnostic::{ColorChoice, ConfigDiagnostic, ConfigError, DiagnosticSeverity};
use crate::decide::error_message::ErrorMessage;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::fmt;
use tokio::sync::{mpsc, oneshot};
use utoipa::ToSchema;

/// The path, at which a request is answered although the reload may have removed its token.
pub(super) const PATH: &str = "/api/reload";
/// Reloads that may wait for another one.
const WAITING_MAX: usize = 16;

/// A request to read the config again.
pub(crate) struct ReloadRequest(oneshot::Sender<ReloadResult>);

/// Where requests to read the config again go. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReloadRequests(mpsc::Sender<ReloadRequest>);

/// What became of a reload.
pub(crate) type ReloadResult = Result<ReloadSummary, ReloadError>;

/// The config after a reload.
#[derive(Clone, Debug)]
pub(crate) struct ReloadSummary {
    /// How many sources it has.
    pub(crate) sources: usize,
    /// How many routes.
    pub(crate) routes: usize,
    /// What works, but probably not as intended.
    pub(crate) warnings: Vec<ConfigDiagnostic>,
}

/// Why the config in use stays.
#[derive(Clone, Debug)]
pub(crate) enum ReloadError {
    /// The config has errors.
    Config(ConfigError),
    /// These keys have changed, and need a restart.
    NeedsRestart(Vec<&'static str>),
    /// This machine or the store cannot do what the config says.
    Cannot(ErrorMessage),
}

impl ReloadError {
    /// What follows from it.
    pub(crate) const STAYS: &str = "the config in use stays";

    fn word(&self) -> &'static str {
        match self {
            Self::Config(_) => "config",
            Self::NeedsRestart(_) => "needs_restart",
            Self::Cannot(_) => "cannot",
        }
    }
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(problems) => f.write_str(problems.render_for(ColorChoice::Plain, Self::STAYS).trim_end()),
            Self::NeedsRestart(keys) => {
                let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
                let verb = if keys.len() == 1 { "needs" } else { "need" };
                let hint = "restart the node, or set the old value again";
                write!(f, "{} {verb} a restart; nothing was changed, {}\nhint: {hint}", keys.join(" and "), Self::STAYS)
            }
            Self::Cannot(why) => write!(f, "{why}; {}", Self::STAYS),
        }
    }
}

impl std::error::Error for ReloadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(problems) => Some(problems),
            Self::NeedsRestart(_) => None,
            Self::Cannot(why) => why.source(),
        }
    }
}

impl ReloadRequests {
    /// A queue of requests, and its end.
    pub(crate) fn channel() -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// Has the config read again. `None`: the node is about to stop.
    async fn reload(&self) -> Option<ReloadResult> {
        let (answer, result) = oneshot::channel();
        self.0.send(ReloadRequest(answer)).await.ok()?;
        result.await.ok()
    }
}

impl ReloadRequest {
    /// Answers the request. Its client may have gone.
    pub(crate) fn answer(self, result: ReloadResult) {
        self.0.send(result).map_or_else(drop, drop);
    }
}

/// What a reload did.
#[derive(Serialize, ToSchema)]
pub(super) struct ReloadedView {
    /// `reloaded`.
    status: &'static str,
    /// How many sources the node has now.
    sources: usize,
    /// How many routes.
    routes: usize,
    /// What works, but probably not as intended.
    warnings: Vec<ConfigProblemView>,
}

/// Why the config in use stays.
#[derive(Serialize, ToSchema)]
pub(super) struct ReloadRefusedView {
    /// `refused`.
    status: &'static str,
    /// `config`: it has errors. `needs_restart`: keys have changed that are read only at the start. `cannot`: this machine
    /// or the store cannot do what the config says.
    reason: &'static str,
    /// The same as text, with all places.
    why: String,
    /// The problems of the config.
    problems: Vec<ConfigProblemView>,
    /// The keys that need a restart.
    keys: Vec<&'static str>,
}

/// A problem of the config.
#[derive(Serialize, ToSchema)]
struct ConfigProblemView {
    /// `error` or `warning`.
    level: &'static str,
    why: String,
    #[schema(required)]
    file: Option<String>,
    #[schema(required)]
    line: Option<usize>,
    /// What is wrong at that place.
    #[schema(required)]
    label: Option<String>,
    /// What to do.
    #[schema(required)]
    hint: Option<String>,
}

impl ConfigProblemView {
    fn new(problem: &ConfigDiagnostic) -> Self {
        let ConfigDiagnostic { level, title, place, hint } = problem;
        Self {
            level: if *level == DiagnosticSeverity::Error { "error" } else { "warning" },
            why: title.clone(),
            file: place.as_ref().map(|place| place.file.clone()),
            line: place.as_ref().map(|place| place.line),
            label: place.as_ref().map(|place| place.label.clone()),
            hint: hint.clone(),
        }
    }
}

/// Reads the config again, with its secrets: all of it takes effect, or nothing does.
///
/// The answer comes when the config is in use. `listen`, `store`, `admin.listen`, `migrate`, `state` and `log` need a
/// restart.
#[utoipa::path(
    post,
    path = "/api/reload",
    operation_id = "reload",
    responses(
        (status = 200, body = ReloadedView, description = "It is in use.",
         example = json!({ "status": "reloaded", "sources": 2, "routes": 3, "warnings": [] })),
        (status = 409, body = ReloadRefusedView, description = "It needs a restart, or cannot be used on this machine.",
         example = json!({
            "status": "refused", "reason": "needs_restart", "why": "`listen` needs a restart; …", "problems": [],
            "keys": ["listen"],
         })),
        (status = 422, body = ReloadRefusedView, description = "It has errors.",
         example = json!({
            "status": "refused", "reason": "config", "why": "error: …", "keys": [],
            "problems": [{
                "level": "error", "why": "unknown key `pathh`", "file": "hookonce.toml", "line": 3, "label": "",
                "hint": "did you mean `path`?",
            }],
         })),
        NotReady
    )
)]
pub(super) async fn reload(State(state): State<AdminState>) -> Response {
    let Some(requests) = &state.reloads else {
        return unavailable_response("this node was not started with a config file");
    };
    match requests.reload().await {
        Some(Ok(ReloadSummary { sources, routes, warnings })) => {
            let warnings = warnings.iter().map(ConfigProblemView::new).collect();
            Json(ReloadedView { status: "reloaded", sources, routes, warnings }).into_response()
        }
        Some(Err(error)) => refused(&error),
        None => unavailable_response("the node is about to stop"),
    }
}

fn refused(error: &ReloadError) -> Response {
    let (status, problems, keys) = match error {
        ReloadError::Config(problems) => (StatusCode::UNPROCESSABLE_ENTITY, &*problems.list, &[][..]),
        ReloadError::NeedsRestart(keys) => (StatusCode::CONFLICT, &[][..], &**keys),
        ReloadError::Cannot(_) => (StatusCode::CONFLICT, &[][..], &[][..]),
    };
    let view = ReloadRefusedView {
        status: "refused",
        reason: error.word(),
        why: error.to_string(),
        problems: problems.iter().map(ConfigProblemView::new).collect(),
        keys: keys.to_vec(),
    };
    (status, Json(view)).into_response()
}
