//! The layer from outside: real sockets, with axum, with plain hyper and with tonic, on every store.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod bodies;
mod crash;
mod examples;
mod failures;
#[expect(dead_code, reason = "its actions are for another test")]
#[path = "../crash/flaky_store.rs"]
mod flaky;
mod grpc;
#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres;
#[path = "../support/redis.rs"]
mod redis;
mod request_identity;
mod run;
mod storm;
#[path = "../support/mod.rs"]
mod support;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hookonce::Once;
use hookonce::RequestAttempt;
use hookonce::store::Inspect;
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// How long a condition may take to become true.
const PATIENCE: Duration = support::PATIENCE;

/// All kinds of stores.
const STORES: &[Kind] = &[Kind::Memory, Kind::Sqlite, Kind::Postgres, Kind::Redis];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Memory,
    Sqlite,
    Postgres,
    Redis,
}

/// A store, and the folder or server it is in.
struct Place {
    store: Arc<dyn Inspect>,
    _home: Box<dyn Any + Send + Sync>,
}

impl Kind {
    async fn fresh(self) -> Place {
        let (address, home): (String, Box<dyn Any + Send + Sync>) = match self {
            Self::Memory => ("memory:".into(), Box::new(())),
            Self::Sqlite => {
                let dir = tempfile::tempdir().unwrap();
                (format!("sqlite:{}", dir.path().join("once.db").display()), Box::new(dir))
            }
            Self::Postgres => {
                let server = postgres::Server::start().await;
                (server.url(&server.database().await), Box::new(server))
            }
            Self::Redis => {
                let server = redis::Server::start();
                (server.url("once"), Box::new(server))
            }
        };
        Place { store: hookonce::store::open(&address).await.unwrap(), _home: home }
    }
}

/// A service that counts its calls, and responds as configured.
#[derive(Clone)]
struct Service {
    calls: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    entered: Arc<Notify>,
    /// Permits for calls to continue; closed while no call is to be delayed.
    gate: Arc<Semaphore>,
    held_up: Arc<Mutex<bool>>,
    answers: Arc<Mutex<Vec<u16>>>,
    attempts: Arc<Mutex<Vec<RequestAttempt>>>,
}

impl Service {
    fn new() -> Self {
        Self {
            calls: Arc::default(),
            ended: Arc::default(),
            entered: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            held_up: Arc::default(),
            answers: Arc::default(),
            attempts: Arc::default(),
        }
    }

    /// The same, but a call waits until it is released.
    fn slow() -> Self {
        let service = Self::new();
        *service.held_up.lock().unwrap() = true;
        service
    }

    fn let_go(&self) {
        *self.held_up.lock().unwrap() = false;
        self.gate.add_permits(1000);
    }

    /// The next responses have these statuses; later ones 200.
    fn will_answer(&self, statuses: &[u16]) {
        *self.answers.lock().unwrap() = statuses.iter().rev().copied().collect();
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The number of the last attempt it was called in, and the idempotency key it would pass on.
    fn last_attempt(&self) -> (u32, String) {
        let attempts = self.attempts.lock().unwrap();
        let last = attempts.last().unwrap();
        (last.number, last.idempotency_key.clone())
    }

    async fn entered(&self, calls: usize) {
        tokio::time::timeout(PATIENCE, async {
            while self.calls() < calls {
                tokio::time::timeout(Duration::from_millis(20), self.entered.notified()).await.ok();
            }
        })
        .await
        .unwrap();
    }

    fn router(&self) -> Router {
        async fn act(
            State(service): State<Service>,
            attempt: Option<Extension<RequestAttempt>>,
            headers: HeaderMap,
            body: Bytes,
        ) -> Response {
            service.attempts.lock().unwrap().extend(attempt.map(|Extension(attempt)| attempt));
            let call = service.calls.fetch_add(1, Ordering::SeqCst) + 1;
            service.entered.notify_waiters();
            if *service.held_up.lock().unwrap() {
                service.gate.acquire().await.unwrap().forget();
            }
            service.ended.fetch_add(1, Ordering::SeqCst);
            let status = service.answers.lock().unwrap().pop().unwrap_or(200);
            assert_ne!(status, 0, "told to panic");
            let caller = headers.get("authorization").map_or("nobody", |value| value.to_str().unwrap());
            let said = format!("call {call} of {caller}: {}", String::from_utf8_lossy(&body));
            let status = StatusCode::from_u16(status).unwrap();
            let headers = [("content-type", "text/x-told"), ("set-cookie", "session=secret"), ("x-mine", "1")];
            (status, headers, said).into_response()
        }
        let any = post(act).get(act).put(act);
        Router::new().route("/act", any.clone()).route("/other", any).with_state(self.clone())
    }
}

/// A client.
#[derive(Clone)]
struct Client {
    url: String,
    http: reqwest::Client,
}

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Said {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Said {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The last part of the problem's type.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], self.status);
        problem["type"].as_str().unwrap().rsplit('#').next().unwrap().to_owned()
    }
}

/// Serves this on a free port for as long as the runtime lives.
async fn serve(router: Router) -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Client { url, http: reqwest::Client::new() }
}

impl Client {
    async fn send(&self, request: reqwest::RequestBuilder) -> Said {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Said { status, headers, body: response.text().await.unwrap() }
    }

    async fn post(&self, key: &str, body: &str) -> Said {
        self.send(self.http.post(format!("{}/act", self.url)).header("idempotency-key", key).body(body.to_owned()))
            .await
    }
}

/// A service behind this layer, on a free port.
async fn behind(service: &Service, once: Once) -> Client {
    serve(service.router().layer(once)).await
}
