//! A proxy between nodes and PostgreSQL that cuts connections at the worst moment.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Cuts a connection instead of passing on the response to a commit: it is committed, and the client does not learn it.
pub struct Cutter {
    pub port: u16,
    pub armed: Arc<AtomicBool>,
    pub cuts: Arc<AtomicU64>,
}

impl Cutter {
    /// A proxy for the server on this port. When armed, it cuts the next response to a commit.
    pub async fn before(server: u16) -> Self {
        let armed = Arc::new(AtomicBool::new(false));
        let arm = armed.clone();
        Self { armed, ..Self::cutting(server, move || arm.swap(false, Ordering::SeqCst)).await }
    }

    /// The same, which cuts one of every `so_many` responses.
    pub async fn of_every(server: u16, so_many: u64) -> Self {
        let commits = AtomicU64::new(0);
        let is_it = move || commits.fetch_add(1, Ordering::SeqCst) % so_many == so_many - 1;
        Self::cutting(server, is_it).await
    }

    async fn cutting(server: u16, is_it: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_it, cuts) = (Arc::new(is_it), Arc::new(AtomicU64::new(0)));
        let cut = cuts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, is_it.clone(), cut.clone()));
            }
        });
        Self { port, armed: Arc::default(), cuts }
    }
}

async fn pass(client: TcpStream, server: u16, is_it: Arc<impl Fn() -> bool>, cuts: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return }; // the server is gone: the test is over
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut bytes = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
        let said = &bytes[..length];
        if said.windows(7).any(|word| word == b"COMMIT\0") && is_it() {
            cuts.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if to_client.write_all(said).await.is_err() {
            break;
        }
    }
    up.abort();
}
