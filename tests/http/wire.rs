//! A port with a handler that records requests, and a client that writes raw bytes.

#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]

use bytes::Bytes;
use hookonce::decide::response::HttpResponse;
use hookonce::internals::ingress::http_response;
use hookonce::internals::ingress::{BodiesInFlight, BodyLimits, read};
use hookonce::internals::ingress::{ConnectionLimits, serve};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Far more than anything here takes, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A body of 32 MiB: more than a socket's buffers hold.
pub(crate) const BIG: usize = 32 << 20;

/// What the handler has received, and how it is delayed.
pub(crate) struct Seen {
    /// One line per request whose body arrived: method, path, length.
    pub(crate) requests: Mutex<Vec<String>>,
    /// One permit for each request to `/hold` that may continue.
    pub(crate) release: Semaphore,
    pub(crate) flight: Arc<BodiesInFlight>,
    pub(crate) body: BodyLimits,
}

/// One port.
pub(crate) struct Port {
    pub(crate) addr: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    pub(crate) drain: CancellationToken,
    served: JoinHandle<()>,
}

/// What a test changes of the defaults.
#[derive(Default)]
pub(crate) struct Setting {
    pub(crate) limits: ConnectionLimits,
    pub(crate) body: BodyLimits,
    pub(crate) in_flight: Option<usize>,
}

impl Port {
    pub(crate) async fn open(setting: Setting) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let flight = Arc::new(setting.in_flight.map_or_else(BodiesInFlight::default, BodiesInFlight::new));
        let seen =
            Arc::new(Seen { requests: Mutex::default(), release: Semaphore::new(0), flight, body: setting.body });
        let drain = CancellationToken::new();
        let handler = {
            let seen = Arc::clone(&seen);
            move |request| handle(request, Arc::clone(&seen))
        };
        let served = tokio::spawn(serve(listener, handler, setting.limits, drain.clone()));
        Self { addr, seen, drain, served }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.addr).await.unwrap(), unread: Vec::new() }
    }

    /// The first response to these bytes.
    pub(crate) async fn ask(&self, bytes: impl AsRef<[u8]>) -> Option<Answer> {
        let mut client = self.connect().await;
        client.send(bytes).await;
        client.answer().await
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Drains the port; returns how long that took.
    pub(crate) async fn close(self) -> Duration {
        let start = Instant::now();
        self.drain.cancel();
        timeout(LONG, self.served).await.expect("the port closes").expect("nothing panics");
        start.elapsed()
    }
}

async fn handle(request: Request<Incoming>, seen: Arc<Seen>) -> Response<Full<Bytes>> {
    let line = format!("{} {}", request.method(), request.uri().path());
    let body = match read(request.into_body(), seen.body, &seen.flight).await {
        Ok(body) => body,
        Err(error) => return http_response::response(http_response::no_body(error)),
    };
    seen.requests.lock().unwrap().push(format!("{line} {}", body.len()));
    if line.ends_with("/hold") {
        seen.release.acquire().await.unwrap().forget();
    }
    let answer = if line.ends_with("/big") { vec![b'x'; BIG] } else { format!("\"{line}\"").into_bytes() };
    http_response::response(HttpResponse { status: 200, headers: Vec::new(), body: answer, word: "test" })
}

/// A client that may misbehave.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Client {
    /// Writes as much as the other side accepts.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// The next response; `None` when the connection ends before it is complete.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let head_end = loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8(self.unread.drain(..head_end).collect()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        while self.unread.len() < length {
            self.more().await?;
        }
        let body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        Some(Answer { status, head, body })
    }

    async fn more(&mut self) -> Option<()> {
        let read = timeout(LONG, self.stream.read_buf(&mut self.unread)).await.expect("a response or an end");
        matches!(read, Ok(n) if n > 0).then_some(())
    }

    /// Waits until the connection has ended, discarding what arrives; returns how long that took.
    pub(crate) async fn ended(&mut self) -> Duration {
        let start = Instant::now();
        while self.more().await.is_some() {
            self.unread.clear();
        }
        start.elapsed()
    }
}

/// A complete POST with a body of this length.
pub(crate) fn post(path: &str, length: usize) -> Vec<u8> {
    let mut bytes = announce(path, length);
    bytes.resize(bytes.len() + length, b'b');
    bytes
}

/// The headers of the same request, without the body.
pub(crate) fn announce(path: &str, length: usize) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n").into_bytes()
}

/// Waits until a condition is true.
pub(crate) async fn eventually(what: &str, fact: impl Fn() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < LONG, "timed out waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
