//! A scripted receiver: one script per request, byte by byte.

use super::*;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a receiver does after it has read a request.
#[derive(Clone)]
pub(crate) enum Do {
    /// Writes this.
    Write(Vec<u8>),
    /// Resets the connection.
    Reset,
    /// Closes it.
    Close,
    /// Keeps it open and does nothing.
    Hang,
    /// Writes a byte now and then, for ever.
    Drip,
}

/// Writes this text.
pub(crate) fn write(text: &str) -> Do {
    Do::Write(text.as_bytes().to_vec())
}

/// A response with this status and these additional headers.
pub(crate) fn status(line: &str, headers: &str) -> Vec<Do> {
    vec![write(&format!("HTTP/1.1 {line}\r\nContent-Length: 2\r\n{headers}\r\nok"))]
}

/// A socket and what it has received.
pub(crate) struct Fixture {
    port: u16,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Fixture {
    /// Runs the first script after the first request, and so on; the last one for all that follow.
    pub(crate) async fn serve(scripts: Vec<Vec<Do>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let seen = requests.clone();
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, scripts.clone(), seen.clone()));
            }
        });
        Self { port, requests, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/in", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(mut stream: TcpStream, scripts: Vec<Vec<Do>>, seen: Arc<Mutex<Vec<Vec<u8>>>>) {
    while let Some(request) = read(&mut stream).await {
        let script = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            scripts[(seen.len() - 1).min(scripts.len() - 1)].clone()
        };
        for step in script {
            match step {
                Do::Write(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                }
                Do::Reset => return stream.set_zero_linger().unwrap(),
                Do::Close => return,
                Do::Hang => std::future::pending().await,
                Do::Drip => {
                    while stream.write_all(b".").await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            }
        }
    }
}

/// One request with its whole body.
async fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if request.len() >= end + 4 + length.parse::<usize>().unwrap() {
                return Some(request);
            }
        }
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}
