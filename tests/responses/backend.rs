//! A service behind hookonce: it honours `Idempotency-Key`, and behaves as configured.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// What the backend does with one call.
#[derive(Clone)]
pub(crate) enum Does {
    /// Responds with this status and body.
    Answers(u16, String),
    /// Does its work, sends half of the response, and disconnects.
    Dies(u16, String),
    /// Writes these bytes as they are.
    Says(Vec<u8>),
}

/// A socket, and what it has received.
pub(crate) struct Backend {
    pub(crate) url: String,
    seen: Arc<Seen>,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    calls: Mutex<Vec<Call>>,
    effects: Mutex<HashSet<String>>,
    answered: Mutex<usize>,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The `Idempotency-Key`.
    pub(crate) key: String,
    /// Everything before the body, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Backend {
    /// Does the first of these with the first call, and so on; the last with all that follow. Responds only as the gate
    /// permits.
    pub(crate) async fn gated(does: Vec<Does>, gate: Arc<Semaphore>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ingest", listener.local_addr().unwrap());
        let seen = Arc::<Seen>::default();
        let (does, kept) = (Arc::new(does), seen.clone());
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(converse(stream, does.clone(), kept.clone(), gate.clone()));
            }
        });
        Self { url, seen, serving }
    }

    pub(crate) async fn new(does: Vec<Does>) -> Self {
        Self::gated(does, Arc::new(Semaphore::new(1 << 20))).await
    }

    /// Responds to all calls alike.
    pub(crate) async fn answers(status: u16, body: &str) -> Self {
        Self::new(vec![Does::Answers(status, body.into())]).await
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.seen.calls.lock().unwrap().clone()
    }

    /// How often it acted: once for each key.
    pub(crate) fn effects(&self) -> usize {
        self.seen.effects.lock().unwrap().len()
    }

    /// How many responses were sent.
    pub(crate) fn answered(&self) -> usize {
        *self.seen.answered.lock().unwrap()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn converse(mut stream: TcpStream, does: Arc<Vec<Does>>, seen: Arc<Seen>, gate: Arc<Semaphore>) {
    while let Some(call) = read(&mut stream).await {
        seen.effects.lock().unwrap().insert(call.key.clone());
        let does = {
            let mut calls = seen.calls.lock().unwrap();
            calls.push(call);
            does[(calls.len() - 1).min(does.len() - 1)].clone()
        };
        gate.acquire().await.unwrap().forget();
        let (status, body) = match &does {
            Does::Answers(status, body) | Does::Dies(status, body) => (status, body),
            Does::Says(bytes) => {
                let _ = stream.write_all(bytes).await;
                *seen.answered.lock().unwrap() += 1;
                continue;
            }
        };
        let head =
            format!("HTTP/1.1 {status} So\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        if let Does::Dies(..) = does {
            let half = &body[..body.len() / 2];
            let _ = stream.write_all(format!("{head}{half}").as_bytes()).await;
            return;
        }
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        *seen.answered.lock().unwrap() += 1;
    }
}

async fn read(stream: &mut TcpStream) -> Option<Call> {
    let mut request = Vec::new();
    loop {
        let end = request.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let header =
                |name: &str| head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap_or("");
            let length: usize = header("content-length").parse().unwrap_or(0);
            if request.len() >= end + 4 + length {
                let body = String::from_utf8_lossy(&request[end + 4..end + 4 + length]).into_owned();
                let key = header("idempotency-key").to_owned();
                return Some(Call { key, head, body });
            }
        }
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}
