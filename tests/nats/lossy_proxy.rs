//! A TCP proxy between a node and its server that can lose acknowledgements or report another server version.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    pub(crate) url: String,
    /// Whether the next acknowledgement of a stream is lost, and the connection with it.
    lose: Arc<AtomicBool>,
    losses: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// A proxy to the server on this port.
    pub(crate) async fn to(port: u16) -> Self {
        Self::open(port, None).await
    }

    /// A proxy to the server on this port that reports this version.
    pub(crate) async fn pretending(port: u16, version: &'static str) -> Self {
        Self::open(port, Some(version)).await
    }

    async fn open(port: u16, version: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let (lose, losses) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (order, count) = (lose.clone(), losses.clone());
        let serving = tokio::spawn(async move {
            let mut wires = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                wires.spawn(wire(stream, port, version, order.clone(), count.clone()));
            }
        });
        Self { url, lose, losses, serving }
    }

    /// Loses the next acknowledgement, and the connection with it.
    pub(crate) fn lose_next(&self) {
        self.lose.store(true, Ordering::SeqCst);
    }

    /// The number of lost acknowledgements.
    pub(crate) fn lost(&self) -> usize {
        self.losses.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn wire(node: TcpStream, port: u16, version: Option<&str>, order: Arc<AtomicBool>, count: Arc<AtomicUsize>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let ((mut from_node, mut to_node), (mut from_server, mut to_server)) = (node.into_split(), server.into_split());
    let up = async { tokio::io::copy(&mut from_node, &mut to_server).await.map(drop).unwrap_or_default() };
    let down = async {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read) = from_server.read(&mut bytes).await {
            let said = &bytes[..read];
            let acknowledges = said.windows(10).any(|part| part == b"{\"stream\":");
            if read == 0 || (acknowledges && order.swap(false, Ordering::SeqCst)) {
                count.fetch_add(usize::from(read > 0), Ordering::SeqCst);
                return;
            }
            let said = match version {
                Some(version) if said.starts_with(b"INFO ") => introduced(said, version),
                _ => said.to_vec(),
            };
            if to_node.write_all(&said).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

/// The `INFO` message of the server, with this version in it.
fn introduced(said: &[u8], version: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(said);
    let (before, rest) = text.split_once("\"version\":\"").unwrap();
    let (_, after) = rest.split_once('"').unwrap();
    format!("{before}\"version\":\"{version}\"{after}").into_bytes()
}
