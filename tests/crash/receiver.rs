//! A receiver for tests: it honours `Idempotency-Key`, and counts calls and effects separately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An HTTP server that receives forwarded events.
pub(crate) struct Receiver {
    pub(crate) port: u16,
    took: Arc<Mutex<Took>>,
    serving: tokio::task::JoinHandle<()>,
}

/// What it received.
#[derive(Default, Clone)]
pub(crate) struct Took {
    /// Every call.
    pub(crate) calls: usize,
    /// By key, the body that came first: one effect each.
    pub(crate) effects: HashMap<String, Vec<u8>>,
    /// Calls whose body was not the one their key first came with.
    pub(crate) mixed_up: usize,
    /// What it is working on, by the group in the body: it goes on when its caller is gone.
    working: HashMap<String, String>,
    /// Bodies that came while it worked on another of their group, with those others.
    pub(crate) overlaps: Vec<String>,
}

/// How long it works on each request.
const WORK: Duration = Duration::from_millis(100);

impl Receiver {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let took = Arc::<Mutex<Took>>::default();
        let book = took.clone();
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, book.clone()));
            }
        });
        Self { port, took, serving }
    }

    pub(crate) fn took(&self) -> Took {
        self.took.lock().unwrap().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn group(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    body["g"].as_str().map(str::to_owned)
}

/// A request counts when it has arrived completely; its sender may be gone by then.
async fn serve(mut stream: TcpStream, took: Arc<Mutex<Took>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            (stream.read_buf(&mut buffer).await.ok()? > 0).then_some(())?;
        };
        let text = String::from_utf8_lossy(&buffer[..head]).into_owned();
        let header = |name: &str| {
            let line = text.lines().find(|line| line.to_ascii_lowercase().starts_with(name))?;
            Some(line[name.len()..].trim().to_owned())
        };
        let length: usize = header("content-length:").and_then(|length| length.parse().ok()).unwrap_or(0);
        while buffer.len() < head + length {
            (stream.read_buf(&mut buffer).await.ok()? > 0).then_some(())?;
        }
        let body: Vec<u8> = buffer.drain(..head + length).skip(head).collect();
        let group = group(&body);
        {
            let mut took = took.lock().unwrap();
            took.calls += 1;
            let first = took.effects.entry(header("idempotency-key:")?).or_insert_with(|| body.clone()).clone();
            took.mixed_up += usize::from(first != body);
            if let Some(group) = &group {
                let text = String::from_utf8_lossy(&body).into_owned();
                if let Some(other) = took.working.insert(group.clone(), text.clone()) {
                    took.overlaps.push(format!("{text} while {other}"));
                }
            }
        }
        if let Some(group) = group {
            tokio::time::sleep(WORK).await;
            took.lock().unwrap().working.remove(&group);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.ok()?;
    }
}
