//! Deliveries that did not become events, of this node and, through their admin ports, of its peers. A peer is asked
//! only for its own, so nobody asks in circles; one that does not answer is named.

use super::asked::{Asked, LIST_MAX};
use super::{Desk, shown};
use crate::config::Admin;
use crate::decide::limits;
use crate::telemetry::heard::Verdict;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use reqwest::{Client, Url};
use serde_json::{Value, json};

/// What was turned away, newest first.
pub(super) async fn turned_away(State(desk): State<Desk>, mut asked: Asked) -> Result<Response, Response> {
    let source = asked.text("source")?;
    let verdict = asked.word("verdict", &[Verdict::Refused.word(), Verdict::Ignored.word()])?;
    let local = asked.flag("local")?;
    let limit = asked.limit(100, LIST_MAX)?;
    asked.end()?;
    let node = desk.dispatcher.node().to_string();
    let own = desk.dispatcher.meter().last_turned_away().into_iter();
    let own = own.filter(|heard| source.as_deref().is_none_or(|name| heard.source.as_deref() == Some(name)));
    let own = own.filter(|heard| verdict.is_none_or(|word| heard.verdict.word() == word));
    let mut all: Vec<Value> = own.map(|heard| shown::turned_away(&heard, &node)).collect();
    let mut nodes = vec![json!({ "node": node, "address": null, "answered": true, "why": null })];
    if !local {
        let mut query = vec![("local", "1".to_owned()), ("limit", limit.to_string())];
        query.extend(source.map(|name| ("source", name)));
        query.extend(verdict.map(|word| ("verdict", word.to_owned())));
        let asked = desk.admin.peers.iter().map(|peer| ask(&desk.peers, &desk.admin, peer, &query));
        for (peer, answer) in desk.admin.peers.iter().zip(join_all(asked).await) {
            let (name, why) = match answer {
                Ok((name, theirs)) => (name, (all.extend(theirs), None).1),
                Err(why) => (Value::Null, Some(why)),
            };
            nodes.push(json!({ "node": name, "address": peer, "answered": why.is_none(), "why": why }));
        }
    }
    all.sort_by(|a, b| b["at"].as_str().cmp(&a["at"].as_str()));
    all.truncate(limit);
    Ok(Json(json!({ "turned_away": all, "nodes": nodes })).into_response())
}

/// A peer's name, and what it turned away; or why it did not say.
async fn ask(
    client: &Client,
    admin: &Admin,
    peer: &str,
    query: &[(&str, String)],
) -> Result<(Value, Vec<Value>), String> {
    let url = format!("{peer}/api/turned-away");
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
    let mut told: Value = serde_json::from_slice(&body).map_err(|_| "it is no node of ours".to_owned())?;
    match (told["turned_away"].take(), told["nodes"][0]["node"].take()) {
        (Value::Array(theirs), name) => Ok((name, theirs)),
        _ => Err("it is no node of ours".into()),
    }
}
