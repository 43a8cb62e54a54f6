//! `/api/deliveries`: deliveries that made no event of their own, of this node and, through their admin ports, of its
//! peers. A peer is asked for its own deliveries only, so requests do not go in circles; a peer that does not
//! respond is named.

use super::openapi::{self, BadRequest, params, query, text, word};
use super::query::{LIST_MAX, LIST_USUAL, QueryParams, TEXT_CHARS_MAX};
use super::{AdminState, view};
use crate::config::AdminConfig;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::observe::delivery_log::{DeliveryRecord, DeliveryVerdict};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use futures_util::future::join_all;
use reqwest::{Client, Url};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::schema::ArrayBuilder;

/// Maximum characters of a name in a peer's response.
const NAME_CHARS_MAX: usize = 200;

/// The verdicts of deliveries that made no event of their own.
pub(super) const WITHOUT_EVENT: [DeliveryVerdict; 5] = [
    DeliveryVerdict::Duplicate,
    DeliveryVerdict::Stale,
    DeliveryVerdict::Ignored,
    DeliveryVerdict::Refused,
    DeliveryVerdict::Unavailable,
];

/// The verdicts of deliveries without any effect.
const TURNED_AWAY: [DeliveryVerdict; 2] = [DeliveryVerdict::Refused, DeliveryVerdict::Ignored];

/// Deliveries that made no event of their own.
#[derive(Serialize, ToSchema)]
pub(super) struct DeliveryList {
    /// Newest first.
    deliveries: Vec<view::DeliveryView>,
    /// The nodes that were asked.
    nodes: Vec<AskedNode>,
}

/// The refused and ignored deliveries, in the shape of version 0.1.0.
#[derive(Serialize, ToSchema)]
pub(super) struct TurnedAwayList {
    /// Newest first.
    turned_away: Vec<view::DeliveryView>,
    /// The nodes that were asked.
    nodes: Vec<AskedNode>,
}

/// A node that was asked for its deliveries.
#[derive(Serialize, ToSchema)]
pub(super) struct AskedNode {
    #[schema(required)]
    node: Option<String>,
    /// null: the node that answers.
    #[schema(required)]
    address: Option<String>,
    /// Whether it answered within a second. The deliveries of one that did not are missing.
    answered: bool,
    /// Why it did not.
    #[schema(required)]
    why: Option<String>,
}

/// The parameters of a list of deliveries with these verdicts.
fn list_params(verdicts: &[DeliveryVerdict]) -> Vec<Parameter> {
    let words: Vec<_> = verdicts.iter().map(|verdict| verdict.word()).collect();
    let verdict = ParameterBuilder::new().name("verdict").parameter_in(ParameterIn::Query);
    let verdict = verdict.required(utoipa::openapi::Required::False).style(Some(ParameterStyle::Form));
    let verdict = verdict.explode(Some(false)).description(Some("One or more of these, separated by commas."));
    vec![
        query("source", "Of this source.", text()),
        verdict.schema(Some(ArrayBuilder::new().items(word(&words)).min_items(Some(1)).build())).build(),
        query(
            "text",
            "A part of the sender's delivery id, in any letter case.",
            text().max_length(Some(TEXT_CHARS_MAX)),
        ),
        query("local", "Ask no peers.", word(&["1"])),
        openapi::limit(LIST_USUAL, LIST_MAX),
    ]
}

params!(
    /// Which deliveries.
    DeliveryListParams,
    list_params(&WITHOUT_EVENT)
);
params!(
    /// Which refused or ignored deliveries.
    TurnedAwayParams,
    list_params(&TURNED_AWAY)
);

/// Lists deliveries that made no event of their own: duplicate, stale, ignored, refused, or not taken; of this node and
/// its peers, newest first.
#[utoipa::path(
    get,
    path = "/api/deliveries",
    operation_id = "deliveries",
    params(DeliveryListParams),
    responses(
        (status = 200, body = DeliveryList,
         description = "Of each source, each node remembers the last 64 refused, 64 ignored and 256 others, in memory.",
         example = json!({
            "deliveries": [{
                "at": "2026-02-07T15:20:40.500000Z", "node": "4f6b3fa9c01e", "source": "ghcr", "path": null,
                "verdict": "refused", "status": 401, "reason": "bad_signature",
                "why": "x-hub-signature-256: a signature of other bytes, or with another secret",
                "delivery": "f168a0a0-0440-11f1-9b3f-a185afe7eea8", "bytes": 8121, "from": "203.0.113.9",
                "event": null, "same": null,
            }],
            "nodes": [
                { "node": "4f6b3fa9c01e", "address": null, "answered": true, "why": null },
                { "node": null, "address": "http://10.0.0.2:3143", "answered": false, "why": "it took too long" },
            ],
         })),
        BadRequest
    )
)]
pub(super) async fn deliveries(
    State(state): State<AdminState>,
    params: QueryParams,
) -> Result<Json<DeliveryList>, Response> {
    query_nodes(&state, params, &WITHOUT_EVENT).await.map(Json)
}

/// Lists the refused and ignored deliveries. Use /api/deliveries?verdict=refused,ignored instead.
///
/// The path of version 0.1.0, whose nodes ask their peers for it.
#[utoipa::path(
    get,
    path = "/api/turned-away",
    operation_id = "turnedAway",
    params(TurnedAwayParams),
    responses((status = 200, description = "As /api/deliveries.", body = TurnedAwayList), BadRequest)
)]
pub(super) async fn turned_away(
    State(state): State<AdminState>,
    params: QueryParams,
) -> Result<Json<TurnedAwayList>, Response> {
    let DeliveryList { deliveries, nodes } = query_nodes(&state, params, &TURNED_AWAY).await?;
    Ok(Json(TurnedAwayList { turned_away: deliveries, nodes }))
}

async fn query_nodes(
    state: &AdminState,
    mut params: QueryParams,
    verdicts: &[DeliveryVerdict],
) -> Result<DeliveryList, Response> {
    let (source, text) = (params.text("source")?, params.search_text("text")?);
    let words: Vec<_> = verdicts.iter().map(|verdict| verdict.word()).collect();
    let wanted = params.words("verdict", &words)?.unwrap_or(words);
    let local = params.flag("local")?;
    let limit = params.limit(LIST_USUAL, LIST_MAX)?;
    params.finish()?;
    let lower = text.as_deref().map(str::to_lowercase);
    let matches = |record: &DeliveryRecord| {
        wanted.contains(&record.verdict.word())
            && source.as_deref().is_none_or(|name| record.source.as_deref() == Some(name))
            && lower
                .as_deref()
                .is_none_or(|part| record.delivery.as_deref().is_some_and(|id| id.to_lowercase().contains(part)))
    };
    let node = state.dispatcher.node().to_string();
    let own = state.metrics.last().into_iter();
    let mut all: Vec<_> = own.map(|record| (record, node.clone())).collect();
    let mut nodes = vec![AskedNode { node: Some(node), address: None, answered: true, why: None }];
    if !local {
        let mut query = vec![("local", "1".to_owned()), ("limit", limit.to_string())];
        query.extend(source.clone().map(|name| ("source", name)));
        query.extend(text.clone().map(|part| ("text", part)));
        // Nodes of 0.1.0 take one verdict, and have a path of its own for these two.
        let is_turned_away = wanted.len() == 2 && TURNED_AWAY.iter().all(|verdict| wanted.contains(&verdict.word()));
        let path = if is_turned_away { "turned-away" } else { "deliveries" };
        let is_part = !is_turned_away && wanted.len() < WITHOUT_EVENT.len();
        query.extend(is_part.then(|| ("verdict", wanted.join(","))));
        let asked = state.admin.peers.iter().map(|peer| ask(&state.peers, &state.admin, peer, path, &query));
        for (peer, answer) in state.admin.peers.iter().zip(join_all(asked).await) {
            let (node, why) = match answer {
                Ok((name, theirs)) => {
                    all.extend(theirs.into_iter().map(|record| (record, name.clone())));
                    (Some(name), None)
                }
                Err(why) => (None, Some(why)),
            };
            nodes.push(AskedNode { node, address: Some(peer.clone()), answered: why.is_none(), why });
        }
    }
    all.retain(|(record, _)| matches(record));
    all.sort_by_key(|(record, _)| std::cmp::Reverse(record.at));
    all.truncate(limit);
    Ok(DeliveryList { deliveries: all.iter().map(|(record, node)| view::delivery(record, node)).collect(), nodes })
}

/// A peer's name and its deliveries, or why there are none.
async fn ask(
    client: &Client,
    admin: &AdminConfig,
    peer: &str,
    path: &str,
    query: &[(&str, String)],
) -> Result<(String, Vec<DeliveryRecord>), String> {
    let mut url = Url::parse(&format!("{peer}/api/{path}")).map_err(|_| "its address cannot be read".to_owned())?;
    url.query_pairs_mut().extend_pairs(query);
    let mut request = client.get(url).timeout(limits::PEER_TIME);
    if let Some(token) = &admin.peer_token {
        request = request.bearer_auth(String::from_utf8_lossy(token.expose()));
    }
    let words = |error: reqwest::Error| {
        if error.is_timeout() { "it took too long" } else { "it cannot be reached, or its response broke off" }
            .to_owned()
    };
    let mut response = request.send().await.map_err(words)?;
    if !response.status().is_success() {
        return Err(format!("it responded with {}", response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(words)? {
        if body.len() + chunk.len() > limits::PEER_BYTES_MAX {
            return Err("its response is too long".into());
        }
        body.extend_from_slice(&chunk);
    }
    parse_answer(&body).ok_or_else(|| "its response is not that of a hookonce node".to_owned())
}

/// Parses a peer's response, if it has the right shape.
fn parse_answer(body: &[u8]) -> Option<(String, Vec<DeliveryRecord>)> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let name = answer["nodes"][0]["node"].as_str().filter(|name| name.chars().count() <= NAME_CHARS_MAX)?;
    let records = answer.get("deliveries").or_else(|| answer.get("turned_away"))?;
    let records = records.as_array()?.iter().map(parse_record).collect::<Option<Vec<_>>>()?;
    Some((name.to_owned(), records))
}

/// Parses a delivery reported by a peer. The peer is trusted about what it saw, not about the type and length of a
/// value.
fn parse_record(shown: &Value) -> Option<DeliveryRecord> {
    let text = |name: &str| shown[name].as_str().map(str::to_owned);
    let number = |name: &str| shown[name].as_u64();
    let source = text("source").filter(|name| name.chars().count() <= NAME_CHARS_MAX);
    let record = DeliveryRecord {
        path: text("path"),
        status: number("status")?.try_into().ok()?,
        event: shown["event"].as_str().and_then(|id| id.parse().ok()),
        same: text("same"),
        reason: text("reason"),
        why: text("why"),
        delivery: text("delivery"),
        bytes: number("bytes")?.try_into().ok()?,
        from: shown["from"].as_str().and_then(|from| from.parse().ok()),
        ..DeliveryRecord::new(
            source.map(Into::into),
            DeliveryVerdict::parse(shown["verdict"].as_str()?)?,
            Timestamp::parse(shown["at"].as_str()?)?,
        )
    };
    Some(record.truncated())
}
