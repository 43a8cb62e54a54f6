//! A receiver whose responses, and their time, are chosen by the test.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The requests, and when they came.
type Calls = Arc<Mutex<Vec<(Instant, String)>>>;

/// A server, and the requests that it has received.
pub(crate) struct Receiver {
    pub(crate) url: String,
    calls: Calls,
    gate: Arc<Semaphore>,
    serving: tokio::task::JoinHandle<()>,
}

impl Receiver {
    /// Answers the first request with the first of these statuses and bodies, and so on; the last one is for all that
    /// follow. No response is sent before the gate is opened.
    pub(crate) async fn new(answers: &[(u16, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/receive", listener.local_addr().unwrap());
        let (calls, gate) = (Calls::default(), Arc::new(Semaphore::new(0)));
        let answers: Arc<[_]> = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        let (seen, held) = (calls.clone(), gate.clone());
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(converse(stream, answers.clone(), seen.clone(), held.clone()));
            }
        });
        Self { url, calls, gate, serving }
    }

    /// Works on each request until the gate is opened, whether or not a client waits for the response. It notes `begin`
    /// and `end` of each with its body.
    pub(crate) async fn working() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/receive", listener.local_addr().unwrap());
        let (calls, gate) = (Calls::default(), Arc::new(Semaphore::new(0)));
        let (seen, held) = (calls.clone(), gate.clone());
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(work(stream, seen.clone(), held.clone()));
            }
        });
        Self { url, calls, gate, serving }
    }

    /// The same as `new`, with its gate open.
    pub(crate) async fn open(answers: &[(u16, &str)]) -> Self {
        let receiver = Self::new(answers).await;
        receiver.let_go();
        receiver
    }

    pub(crate) fn let_go(&self) {
        self.gate.add_permits(1 << 20);
    }

    /// All requests so far: head and body, names in lower case.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|(_, call)| call.clone()).collect()
    }

    /// How long after this request the next one came.
    pub(crate) fn pause_after(&self, call: usize) -> Duration {
        let calls = self.calls.lock().unwrap();
        calls[call].0 - calls[call - 1].0
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn converse(mut stream: TcpStream, answers: Arc<[(u16, String)]>, calls: Calls, gate: Arc<Semaphore>) {
    while let Some(request) = read(&mut stream).await {
        let (status, body) = {
            let mut calls = calls.lock().unwrap();
            calls.push((Instant::now(), request));
            answers[(calls.len() - 1).min(answers.len() - 1)].clone()
        };
        gate.acquire().await.unwrap().forget();
        let head =
            format!("HTTP/1.1 {status} So\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
}

async fn work(mut stream: TcpStream, calls: Calls, gate: Arc<Semaphore>) {
    while let Some(request) = read(&mut stream).await {
        let body = request.split_once("\r\n\r\n").unwrap().1.to_owned();
        let note = |word: &str| calls.lock().unwrap().push((Instant::now(), format!("{word} {body}")));
        note("begin");
        gate.acquire().await.unwrap().forget();
        note("end");
        let _ = stream.write_all(b"HTTP/1.1 200 So\r\ncontent-length: 0\r\n\r\n").await;
    }
}

/// One request with its complete body.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse().unwrap() {
                return Some(text);
            }
        }
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}
