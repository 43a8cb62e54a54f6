//! A pooler between nodes and PostgreSQL whose server fails in the middle of a commit. It answers the commit with an
//! error of its own, whether the server has committed or not.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// What happens to a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It does not reach the server, which rolls back.
    Before,
    /// The server commits, and its response is lost.
    After,
}

/// A fault, and the error that the client gets: severity and code.
pub type Fails = (Fault, &'static str, &'static str);

/// Every kind of fault, with the errors of poolers and servers.
pub const FAULTS: [Fails; 8] = [
    (Fault::Before, "ERROR", "08006"),
    (Fault::After, "ERROR", "08006"),
    (Fault::Before, "ERROR", "58000"),
    (Fault::After, "ERROR", "58000"),
    (Fault::Before, "FATAL", "08P01"),
    (Fault::After, "FATAL", "08P01"),
    (Fault::Before, "FATAL", "57P01"),
    (Fault::After, "FATAL", "57P01"),
];

/// The pooler.
pub struct FailingPooler {
    pub port: u16,
    /// The number of commits that it has made fail.
    pub spoilt: Arc<AtomicU64>,
}

impl FailingPooler {
    /// A pooler for the server on this port; `decide` is asked about each commit.
    pub async fn before(server: u16, decide: impl Fn() -> Option<Fails> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (decide, spoilt) = (Arc::new(decide), Arc::new(AtomicU64::new(0)));
        let count = spoilt.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, decide.clone(), count.clone()));
            }
        });
        Self { port, spoilt }
    }

    /// The same, which makes one of every `so_many` commits fail, with one fault after another.
    pub async fn of_every(server: u16, so_many: u64) -> Self {
        let commits = AtomicU64::new(0);
        let decide = move || {
            let commit = commits.fetch_add(1, Ordering::SeqCst);
            let fault = usize::try_from(commit / so_many).unwrap() % FAULTS.len();
            (commit % so_many == so_many - 1).then_some(FAULTS[fault])
        };
        Self::before(server, decide).await
    }
}

/// The state that both directions of a connection share.
struct Shared {
    to_client: Mutex<OwnedWriteHalf>,
    /// How often the server was ready since the session began.
    ready: AtomicU64,
    /// The number of the server's response that is to be replaced; `u64::MAX`: none yet.
    replaced: AtomicU64,
}

async fn pass<D: Fn() -> Option<Fails>>(
    mut client: TcpStream,
    server: u16,
    decide: Arc<D>,
    spoilt: Arc<AtomicU64>,
) -> Option<()> {
    let startup = startup(&mut client).await?;
    let mut server = TcpStream::connect(("127.0.0.1", server)).await.ok()?;
    server.write_all(&startup).await.ok()?;
    let ((mut from_client, to_client), (from_server, mut to_server)) = (client.into_split(), server.into_split());
    let never = AtomicU64::new(u64::MAX);
    let shared = Arc::new(Shared { to_client: Mutex::new(to_client), ready: AtomicU64::new(0), replaced: never });
    let down = tokio::spawn(answers(from_server, shared.clone()));
    let (mut commits, mut asked) = (HashSet::new(), 1_u64); // the server is ready once before any request
    let mut end = None;
    while let Some((kind, body)) = message(&mut from_client).await {
        let mut texts = body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        let is_commit = match kind {
            b'P' if second.eq_ignore_ascii_case("commit") => !commits.insert(first),
            b'B' => commits.contains(&second),
            b'Q' => first.eq_ignore_ascii_case("commit"),
            _ => false,
        };
        let fault = if is_commit && end.is_none() { decide() } else { None };
        if let Some((fault, severity, code)) = fault {
            spoilt.fetch_add(1, Ordering::SeqCst);
            end = Some((severity, code));
            if fault == Fault::Before {
                break;
            }
            shared.replaced.store(asked + 1, Ordering::SeqCst);
        }
        to_server.write_all(&encoded(kind, &body)).await.ok()?;
        if matches!(kind, b'S' | b'Q') {
            asked += 1;
            if end.is_some() {
                break;
            }
        }
    }
    if let Some((severity, code)) = end {
        // Requests before the commit get the server's own responses; then comes the error.
        while shared.ready.load(Ordering::SeqCst) < asked && !down.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut to_client = shared.to_client.lock().await;
        to_client.write_all(&error(severity, code)).await.ok()?;
    }
    down.abort();
    None
}

/// Passes on the server's messages, except for the response that is to be replaced.
async fn answers(mut from_server: OwnedReadHalf, shared: Arc<Shared>) -> Option<()> {
    while let Some((kind, body)) = message(&mut from_server).await {
        let ready = shared.ready.load(Ordering::SeqCst);
        if ready + 1 != shared.replaced.load(Ordering::SeqCst) {
            shared.to_client.lock().await.write_all(&encoded(kind, &body)).await.ok()?;
        }
        if kind == b'Z' {
            shared.ready.fetch_add(1, Ordering::SeqCst);
        }
    }
    None
}

/// The first message of a session, after a request for TLS was rejected.
async fn startup(client: &mut TcpStream) -> Option<Vec<u8>> {
    const TLS: u32 = 80_877_103;
    loop {
        let mut head = [0; 8];
        client.read_exact(&mut head).await.ok()?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut all = head.to_vec();
        all.resize(word(0) as usize, 0);
        client.read_exact(&mut all[8..]).await.ok()?;
        if word(4) != TLS {
            return Some(all);
        }
        client.write_all(b"N").await.ok()?;
    }
}

/// One message: its type and its content.
async fn message(from: &mut OwnedReadHalf) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
    let mut body = vec![0; length - 4];
    from.read_exact(&mut body).await.ok()?;
    Some((head[0], body))
}

fn encoded(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// An error message; followed by "ready" if it does not end the session.
fn error(severity: &str, code: &str) -> Vec<u8> {
    let body = format!("S{severity}\0V{severity}\0C{code}\0Mserver conn crashed?\0\0");
    let mut all = encoded(b'E', body.as_bytes());
    if severity == "ERROR" {
        all.extend(encoded(b'Z', b"I"));
    }
    all
}
