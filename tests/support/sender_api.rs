//! The API of a sender, as GitHub and GitLab document theirs: it lists the attempts of a hook, and delivers again what it
//! is asked for, to a real node.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use crate::support::Sent;
use bytes::Bytes;
use hookonce::decide::time::Timestamp;
use http_body_util::Full;
use serde_json::{Value as Json, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;

/// The token that the API accepts, unless another check is set.
pub const TOKEN: &str = "canary-catch-up-token-77bb";

type Reply = http::Response<Full<Bytes>>;
type Authorize = Box<dyn Fn(&str) -> bool + Send>;

/// How the API lists attempts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Github,
    Gitlab,
}

/// A sender's API on a free port.
pub struct SenderApi {
    pub address: String,
    state: Arc<Mutex<State>>,
}

struct State {
    style: Style,
    address: String,
    /// The oldest first.
    attempts: Vec<Attempt>,
    bodies: HashMap<String, Sent>,
    target: Option<String>,
    requests: Vec<Request>,
    /// Responses to the next requests, before anything else happens.
    failures: VecDeque<(u16, Vec<(String, String)>)>,
    authorize: Authorize,
    deliver: mpsc::UnboundedSender<String>,
    /// No request gets a response once this many deliveries were asked for.
    silent_after: usize,
}

/// An attempt to deliver.
#[derive(Clone, Debug)]
struct Attempt {
    id: u64,
    delivery: String,
    at: Timestamp,
    kind: String,
    redelivery: bool,
    status: u16,
}

/// A request to the API.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub status: u16,
    /// The delivery that was asked for.
    pub delivery: Option<String>,
}

/// The time now.
pub fn now() -> Timestamp {
    Timestamp(i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap())
}

impl SenderApi {
    pub async fn start(style: Style) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (deliver, deliveries) = mpsc::unbounded_channel();
        let state = Arc::new(Mutex::new(State {
            style,
            address: address.clone(),
            attempts: Vec::new(),
            bodies: HashMap::new(),
            target: None,
            requests: Vec::new(),
            failures: VecDeque::new(),
            authorize: Box::new(|authorization| authorization == format!("Bearer {TOKEN}")),
            deliver,
            silent_after: usize::MAX,
        }));
        tokio::spawn(deliver_again(state.clone(), deliveries));
        let own = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, own.clone()));
            }
        });
        Self { address, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Sends webhooks to this URL from now on.
    pub fn send_to(&self, url: &str) {
        self.state().target = Some(url.to_owned());
    }

    /// Answers no request once this many deliveries were asked for.
    pub fn stop_answering_after(&self, asked: usize) {
        self.state().silent_after = asked;
    }

    /// Accepts requests with such an `Authorization`.
    pub fn authorize(&self, authorize: impl Fn(&str) -> bool + Send + 'static) {
        self.state().authorize = Box::new(authorize);
    }

    /// Responds to the next request with this status and these headers.
    pub fn fail_next(&self, status: u16, headers: &[(&str, &str)]) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.state().failures.push_back((status, headers));
    }

    /// Records an attempt that the receiver answered with this status; 0: not at all.
    pub fn attempted(&self, delivery: &str, kind: &str, at: Timestamp, status: u16) {
        self.state().add(delivery, kind, at, false, status);
    }

    /// The same for an attempt that somebody has asked for.
    pub fn attempted_again(&self, delivery: &str, kind: &str, at: Timestamp, status: u16) {
        self.state().add(delivery, kind, at, true, status);
    }

    /// The same with the delivery itself, so that it can be asked for.
    pub fn missed(&self, delivery: &str, kind: &str, at: Timestamp, sent: Sent) {
        self.attempted(delivery, kind, at, 0);
        self.state().bodies.insert(delivery.to_owned(), sent);
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    pub fn lists(&self) -> usize {
        self.requests().iter().filter(|request| request.method == "GET").count()
    }

    /// The deliveries that were asked for, in the order in which they were.
    pub fn asked(&self) -> Vec<String> {
        self.requests().into_iter().filter_map(|request| request.delivery).collect()
    }

    /// The statuses of the attempts that were made again.
    pub fn made_again(&self) -> Vec<u16> {
        self.state().attempts.iter().filter(|attempt| attempt.redelivery).map(|attempt| attempt.status).collect()
    }
}

/// Delivers what was asked for, one after another.
async fn deliver_again(state: Arc<Mutex<State>>, mut deliveries: mpsc::UnboundedReceiver<String>) {
    let client = reqwest::Client::new();
    while let Some(delivery) = deliveries.recv().await {
        let target = || state.lock().unwrap().target.clone();
        while target().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let Some(target) = target() else { continue };
        let sent = state.lock().unwrap().bodies[&delivery].clone();
        let mut request = client.post(target).body(sent.body);
        for (name, value) in sent.headers {
            request = request.header(name, value);
        }
        let status = request.send().await.map_or(0, |response| response.status().as_u16());
        let mut state = state.lock().unwrap();
        let kind = state.attempts.iter().find(|one| one.delivery == delivery).unwrap().kind.clone();
        state.add(&delivery, &kind, now(), true, status);
    }
}

async fn serve(stream: tokio::net::TcpStream, state: Arc<Mutex<State>>) {
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let state = state.clone();
        async move {
            loop {
                if let Some(reply) = state.lock().unwrap().answer_if_open(&request) {
                    return Ok::<_, std::convert::Infallible>(reply);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let io = hyper_util::rt::TokioIo::new(stream);
    hyper::server::conn::http1::Builder::new().serve_connection(io, service).await.ok();
}

impl State {
    fn add(&mut self, delivery: &str, kind: &str, at: Timestamp, redelivery: bool, status: u16) {
        let id = self.attempts.last().map_or(1_000_000, |last| last.id + 3);
        let (delivery, kind) = (delivery.to_owned(), kind.to_owned());
        self.attempts.push(Attempt { id, delivery, at, kind, redelivery, status });
    }

    fn answer_if_open(&mut self, request: &http::Request<hyper::body::Incoming>) -> Option<Reply> {
        let asked = self.requests.iter().filter(|request| request.delivery.is_some()).count();
        (asked < self.silent_after).then(|| self.answer(request))
    }

    fn answer(&mut self, request: &http::Request<hyper::body::Incoming>) -> Reply {
        let (method, path) = (request.method().to_string(), request.uri().to_string());
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (mut delivery, authorization) = (None, header("authorization").unwrap_or_default());
        let reply = if let Some((status, headers)) = self.failures.pop_front() {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, value.clone())).collect();
            reply(status, &headers, &json!({ "message": "no" }))
        } else if !(self.authorize)(&authorization) {
            reply(401, &[], &json!({ "message": "Bad credentials" }))
        } else if method == "POST" {
            let id = request.uri().path().split('/').nth_back(1).and_then(|id| id.parse::<u64>().ok());
            let attempt = self.attempts.iter().find(|attempt| Some(attempt.id) == id);
            delivery = attempt.map(|attempt| attempt.delivery.clone());
            match &delivery {
                Some(delivery) if self.bodies.contains_key(delivery) => {
                    self.deliver.send(delivery.clone()).unwrap();
                    reply(202, &[], &json!({}))
                }
                _ => reply(404, &[], &json!({ "message": "Not Found" })),
            }
        } else {
            self.list(request.uri(), header("if-none-match").as_deref())
        };
        self.requests.push(Request { method, path, status: reply.status().as_u16(), delivery });
        reply
    }

    fn list(&self, uri: &http::Uri, known: Option<&str>) -> Reply {
        let url = reqwest::Url::parse(&format!("{}{uri}", self.address)).unwrap();
        let parameter =
            |name: &str| url.query_pairs().find(|(own, _)| own == name).map(|(_, value)| value.into_owned());
        let per_page = parameter("per_page").map_or(30, |text| text.parse::<usize>().unwrap()).min(100);
        let position = if self.style == Style::Github { "cursor" } else { "page" };
        let from = match (self.style, parameter(position)) {
            (_, None) => 0,
            (Style::Github, Some(cursor)) => {
                let before: u64 = cursor.trim_start_matches("v1_").parse().unwrap();
                self.attempts.iter().rev().position(|attempt| attempt.id < before).unwrap_or(self.attempts.len())
            }
            (Style::Gitlab, Some(page)) => (page.parse::<usize>().unwrap() - 1) * per_page,
        };
        let page: Vec<_> = self.attempts.iter().rev().skip(from).take(per_page).collect();
        let etag = format!("W/\"{}-{from}\"", self.attempts.last().map_or(0, |attempt| attempt.id));
        if known == Some(&*etag) {
            return reply(304, &[("etag", etag)], &Json::Null);
        }
        let mut headers = vec![("etag", etag)];
        if from + page.len() < self.attempts.len() {
            let next = match self.style {
                Style::Github => format!("v1_{}", page.last().unwrap().id),
                Style::Gitlab => (from / per_page + 2).to_string(),
            };
            let path = url.path();
            let link = format!("<{}{path}?per_page={per_page}&{position}={next}>; rel=\"next\"", self.address);
            headers.push(("link", link));
        }
        let list: Vec<_> = page.into_iter().map(|attempt| attempt.listed(self.style)).collect();
        reply(200, &headers, &Json::Array(list))
    }
}

impl Attempt {
    fn listed(&self, style: Style) -> Json {
        let status = match self.status {
            0 => "failed to connect to host",
            200..=299 => "OK",
            _ => "Invalid HTTP Response",
        };
        match style {
            Style::Github => json!({
                "id": self.id, "guid": self.delivery, "delivered_at": self.at, "redelivery": self.redelivery,
                "duration": 0.3, "status": status, "status_code": self.status, "event": self.kind, "action": null,
                "installation_id": null, "repository_id": 1, "throttled_at": null,
            }),
            Style::Gitlab => json!({
                "id": self.id, "url": "https://example.net/", "trigger": "push_hooks",
                "request_headers": {
                    "Content-Type": "application/json", "Idempotency-Key": self.delivery,
                    "X-Gitlab-Event": self.kind, "X-Gitlab-Token": "[REDACTED]",
                },
                "request_data": { "object_kind": "push" }, "response_headers": {}, "response_body": "",
                "execution_duration": 1.09,
                "response_status": if self.status == 0 { "internal error".to_owned() } else { self.status.to_string() },
            }),
        }
    }
}

fn reply(status: u16, headers: &[(&str, String)], body: &Json) -> Reply {
    let mut builder = http::Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, value);
    }
    let body = if status == 304 { Bytes::new() } else { Bytes::from(body.to_string()) };
    builder.body(Full::new(body)).unwrap()
}
