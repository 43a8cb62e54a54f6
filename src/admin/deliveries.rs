//! Deliveries that made no event of their own, of this node and, through their admin ports, of its peers. A peer is asked
//! only for its own, so nobody asks in circles; one that does not answer is named.

use super::query::{LIST_MAX, QueryParams};
use super::{AdminState, view};
use crate::config::AdminConfig;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::observe::delivery_log::{DeliveryRecord, DeliveryVerdict};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use reqwest::{Client, Url};
use serde_json::{Value, json};

/// Characters of a name that a peer tells.
const NAME_CHARS_MAX: usize = 200;

/// What was turned away, newest first.
pub(super) async fn turned_away(State(desk): State<AdminState>, asked: QueryParams) -> Result<Response, Response> {
    query_nodes(&desk, &TURNED_AWAY, asked).await
}

/// Deliveries that made no event of their own, newest first: also those that repeat one, or came too late.
pub(super) async fn deliveries(State(desk): State<AdminState>, asked: QueryParams) -> Result<Response, Response> {
    query_nodes(&desk, &DELIVERIES, asked).await
}

/// A question that each node answers for itself.
struct DeliveryLogQuery {
    path: &'static str,
    /// Under what name the answer is.
    name: &'static str,
    verdicts: &'static [DeliveryVerdict],
    shown: fn(&DeliveryRecord, &str) -> Value,
}

const TURNED_AWAY: DeliveryLogQuery = DeliveryLogQuery {
    path: "/api/turned-away",
    name: "turned_away",
    verdicts: &[DeliveryVerdict::Refused, DeliveryVerdict::Ignored],
    shown: view::turned_away,
};

const DELIVERIES: DeliveryLogQuery = DeliveryLogQuery {
    path: "/api/deliveries",
    name: "deliveries",
    verdicts: &[
        DeliveryVerdict::Duplicate,
        DeliveryVerdict::Stale,
        DeliveryVerdict::Ignored,
        DeliveryVerdict::Refused,
        DeliveryVerdict::Unavailable,
    ],
    shown: view::delivery,
};

async fn query_nodes(
    desk: &AdminState,
    question: &DeliveryLogQuery,
    mut asked: QueryParams,
) -> Result<Response, Response> {
    let (source, text) = (asked.text("source")?, asked.search_text("text")?);
    let words: Vec<_> = question.verdicts.iter().map(|verdict| verdict.word()).collect();
    let verdict = asked.word("verdict", &words)?.and_then(DeliveryVerdict::parse);
    let local = asked.flag("local")?;
    let limit = asked.limit(100, LIST_MAX)?;
    asked.finish()?;
    let small = text.as_deref().map(str::to_lowercase);
    let fits = |heard: &DeliveryRecord| {
        question.verdicts.contains(&heard.verdict)
            && verdict.is_none_or(|verdict| heard.verdict == verdict)
            && source.as_deref().is_none_or(|name| heard.source.as_deref() == Some(name))
            && small
                .as_deref()
                .is_none_or(|part| heard.delivery.as_deref().is_some_and(|id| id.to_lowercase().contains(part)))
    };
    let node = desk.dispatcher.node().to_string();
    let mut all: Vec<_> = desk.dispatcher.meter().last().into_iter().map(|heard| (heard, node.clone())).collect();
    let mut nodes = vec![json!({ "node": node, "address": null, "answered": true, "why": null })];
    if !local {
        let mut query = vec![("local", "1".to_owned()), ("limit", limit.to_string())];
        query.extend(source.clone().map(|name| ("source", name)));
        query.extend(text.clone().map(|part| ("text", part)));
        query.extend(verdict.map(|verdict| ("verdict", verdict.word().to_owned())));
        let asked = desk.admin.peers.iter().map(|peer| ask(&desk.peers, &desk.admin, peer, question, &query));
        for (peer, answer) in desk.admin.peers.iter().zip(join_all(asked).await) {
            let (name, why) = match answer {
                Ok((name, theirs)) => {
                    all.extend(theirs.into_iter().map(|heard| (heard, name.clone())));
                    (Some(name), None)
                }
                Err(why) => (None, Some(why)),
            };
            nodes.push(json!({ "node": name, "address": peer, "answered": why.is_none(), "why": why }));
        }
    }
    all.retain(|(heard, _)| fits(heard));
    all.sort_by_key(|(heard, _)| std::cmp::Reverse(heard.at));
    all.truncate(limit);
    let all: Vec<_> = all.iter().map(|(heard, node)| (question.shown)(heard, node)).collect();
    Ok(Json(json!({ question.name: all, "nodes": nodes })).into_response())
}

/// A peer's name, and its answer; or why there is none.
async fn ask(
    client: &Client,
    admin: &AdminConfig,
    peer: &str,
    question: &DeliveryLogQuery,
    query: &[(&str, String)],
) -> Result<(String, Vec<DeliveryRecord>), String> {
    let url = format!("{peer}{}", question.path);
    let mut url = Url::parse(&url).map_err(|_| "its address cannot be read".to_owned())?;
    url.query_pairs_mut().extend_pairs(query);
    let mut request = client.get(url).timeout(limits::PEER_TIME);
    if let Some(token) = &admin.peer_token {
        request = request.bearer_auth(String::from_utf8_lossy(token.expose()));
    }
    let words = |error: reqwest::Error| {
        if error.is_timeout() { "it took too long" } else { "nobody answers there, or not all of it" }.to_owned()
    };
    let mut response = request.send().await.map_err(words)?;
    if !response.status().is_success() {
        return Err(format!("it answered {}", response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(words)? {
        if body.len() + chunk.len() > limits::PEER_BYTES_MAX {
            return Err("its answer is too long".into());
        }
        body.extend_from_slice(&chunk);
    }
    answered(&body, question).ok_or_else(|| "it is no node of ours".to_owned())
}

/// What a peer says, as far as it can be what a node says.
fn answered(body: &[u8], question: &DeliveryLogQuery) -> Option<(String, Vec<DeliveryRecord>)> {
    let told: Value = serde_json::from_slice(body).ok()?;
    let name = told["nodes"][0]["node"].as_str().filter(|name| name.chars().count() <= NAME_CHARS_MAX)?;
    let theirs = told[question.name].as_array()?.iter().map(parse_record).collect::<Option<Vec<_>>>()?;
    Some((name.to_owned(), theirs))
}

/// A delivery as a peer tells of it. It is believed what it saw, and nothing about how long or of what kind that is.
fn parse_record(told: &Value) -> Option<DeliveryRecord> {
    let text = |name: &str| told[name].as_str().map(str::to_owned);
    let number = |name: &str| told[name].as_u64();
    let source = text("source").filter(|name| name.chars().count() <= NAME_CHARS_MAX);
    let heard = DeliveryRecord {
        path: text("path"),
        status: number("status")?.try_into().ok()?,
        event: told["event"].as_str().and_then(|id| id.parse().ok()),
        same: text("same"),
        reason: text("reason"),
        why: text("why"),
        delivery: text("delivery"),
        bytes: number("bytes")?.try_into().ok()?,
        ..DeliveryRecord::new(
            source.map(Into::into),
            DeliveryVerdict::parse(told["verdict"].as_str()?)?,
            Timestamp::parse(told["at"].as_str()?)?,
        )
    };
    Some(heard.truncated())
}
