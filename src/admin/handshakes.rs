//! `/api/handshakes`: what senders bring by their handshakes, for an operator who may do everything. A value is given
//! out once; the list has none.

use super::openapi::{BadRequest, HandoverRefused, NotReady, UnknownHandshake, params, query, string};
use super::query::QueryParams;
use super::view::RefusalView;
use super::{AdminState, refuse, unavailable_response};
use crate::decide::limits::HANDSHAKE_WAIT_MAX;
use crate::decide::time::Timestamp;
use crate::engine::handover::{HandedOver, HandoverStatus, WaitRefusal};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::info;
use utoipa::ToSchema;

/// The sources whose senders bring something by a handshake.
#[derive(Serialize, ToSchema)]
pub(super) struct HandoverList {
    handshakes: Vec<HandoverView>,
}

/// A source whose sender brings something by a handshake.
#[derive(Serialize, ToSchema)]
struct HandoverView {
    source: String,
    /// What becomes of it: an operator sees it (`shown`), or it is written to the file of the secret (`taken`).
    brings: &'static str,
    /// When a value arrived that nobody has seen; it is kept for ten minutes.
    #[schema(required, value_type = Option<String>)]
    arrived_at: Option<Timestamp>,
    /// Whether an operator waits for it.
    awaited: bool,
    /// Why deliveries of the source are not accepted yet; null: it has its secret.
    #[schema(required)]
    lacks_secret: Option<String>,
}

/// What a sender brought.
#[derive(Serialize, ToSchema)]
pub(super) struct HandedOverView {
    source: String,
    /// Whether something came in time.
    came: bool,
    /// The value, if it is one to be seen: it is not kept any longer.
    #[schema(required)]
    value: Option<String>,
    /// When it arrived.
    #[schema(required, value_type = Option<String>)]
    arrived_at: Option<Timestamp>,
    /// How many values it replaced that nobody had seen. Anyone can send one: if there are several, ask the sender for a
    /// new one.
    replaced: u64,
    /// The file that the secret was written to.
    #[schema(required)]
    file: Option<String>,
}

impl HandedOverView {
    fn nothing(source: String) -> Self {
        Self { source, came: false, value: None, arrived_at: None, replaced: 0, file: None }
    }
}

params!(
    /// How long to wait.
    HandshakeWaitParams,
    vec![query("wait", "How many seconds to wait, at most 600. Default: 600.", string().pattern(Some("^[0-9]{1,3}$")))]
);

/// Lists the sources whose senders bring a value or their secret by a handshake, and what has arrived at this node.
#[utoipa::path(
    get,
    path = "/api/handshakes",
    operation_id = "handshakes",
    responses(
        (status = 200, body = HandoverList, description = "Never a value.",
         example = json!({ "handshakes": [{
            "source": "notion", "brings": "shown", "arrived_at": "2026-02-07T15:20:41.000000Z", "awaited": false,
            "lacks_secret": "there is no secret in /etc/hookonce/notion.secret yet: there is no such file",
         }] }))
    )
)]
pub(super) async fn list(State(state): State<AdminState>) -> Json<HandoverList> {
    let lacks = |source: &str| state.sources.iter().find(|own| *own.name == *source)?.verify.lacks_secret();
    let view = |status: HandoverStatus| HandoverView {
        lacks_secret: lacks(&status.source),
        source: status.source.to_string(),
        brings: status.kind.word(),
        arrived_at: status.arrived_at,
        awaited: status.awaited,
    };
    Json(HandoverList { handshakes: state.handovers.statuses().into_iter().map(view).collect() })
}

/// Waits for what a source's sender brings by its handshake to this node, and gives it out, once.
///
/// A secret is taken only while such a request waits, and only if the file of the secret does not exist.
#[utoipa::path(
    post,
    path = "/api/handshakes/{source}",
    operation_id = "awaitHandshake",
    params(
        ("source" = String, Path, description = "The source's name.", min_length = 1, example = "notion"),
        HandshakeWaitParams
    ),
    responses(
        (status = 200, body = HandedOverView, description = "What came; or nothing did.",
         example = json!({
            "source": "notion", "came": true, "value": "secret_…", "arrived_at": "2026-02-07T15:20:41.000000Z",
            "replaced": 0, "file": null,
         })),
        BadRequest, UnknownHandshake, HandoverRefused, NotReady
    )
)]
pub(super) async fn wait(
    State(state): State<AdminState>,
    Path(source): Path<String>,
    mut params: QueryParams,
) -> Result<Json<HandedOverView>, Response> {
    let time = params.seconds("wait", HANDSHAKE_WAIT_MAX).map_err(IntoResponse::into_response)?;
    params.finish().map_err(IntoResponse::into_response)?;
    if !state.sources.iter().any(|own| *own.name == *source) {
        return Err(refuse(StatusCode::NOT_FOUND, "unknown_source"));
    }
    let handed = tokio::select! {
        handed = state.handovers.wait(&source, time.unwrap_or(HANDSHAKE_WAIT_MAX)) => handed.map_err(|refusal| refused(&refusal))?,
        () = state.health.draining.cancelled() => return Err(unavailable_response("the node is about to stop")),
    };
    let Some(handed) = handed else { return Ok(Json(HandedOverView::nothing(source))) };
    let came = HandedOverView { came: true, ..HandedOverView::nothing(source.clone()) };
    match handed {
        HandedOver::Shown { value, at, replaced } => {
            info!(target: "hookonce", source, why = "what it brought was shown to an operator", "handshake");
            let value = Some(value.expose().to_owned());
            Ok(Json(HandedOverView { value, arrived_at: Some(at), replaced, ..came }))
        }
        HandedOver::Taken(file) => Ok(Json(HandedOverView { file: Some(file.display().to_string()), ..came })),
        HandedOver::Failed(why) => Err(unavailable_response(&why)),
    }
}

fn refused(refusal: &WaitRefusal) -> Response {
    let (reason, hint) = match refusal {
        WaitRefusal::BringsNothing => ("brings_nothing", "no handshake of this source brings a value".to_owned()),
        WaitRefusal::NoFile => {
            ("no_secret_file", "the source's secret is not one file: secret = { file = \"…\" }".to_owned())
        }
        WaitRefusal::SecretExists(file) => {
            ("secret_exists", format!("there is a secret in {}; remove it to take another", file.display()))
        }
        WaitRefusal::Awaited => ("awaited", "somebody else waits for it already".to_owned()),
    };
    (StatusCode::CONFLICT, Json(RefusalView::new(reason).hint(&hint))).into_response()
}
