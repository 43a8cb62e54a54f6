//! The servers: each a separate process of this same program, so that its CPU time and memory can be read.

use crate::bare_handler::bare;
use crate::measure::deck::SECRET;
use crate::measure::process::{ProcessTree, Used};
use crate::measure::source::SourceConfig;
use hookonce::decide::source::Sources;
use hookonce::internals::action::GuardProgram;
use hookonce::internals::config::ColorChoice;
use hookonce::internals::config::{self, Config, StoreAddress};
use hookonce::internals::engine::Gateway;
use hookonce::internals::engine::{Dispatcher, Lane};
use hookonce::internals::ingress::BodiesInFlight;
use hookonce::internals::ingress::ConnectionLimits;
use hookonce::internals::ingress::IngestState;
use hookonce::internals::ingress::PeerAddress;
use hookonce::internals::ingress::Readiness;
use hookonce::internals::ingress::accept;
use hookonce::internals::node::NodeHandle;
use hookonce::internals::observe::{LogFormat, Logger};
use hookonce::store::batch::Batcher;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{EventQuery, Inspect, Store};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The kinds of servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Our accept loop, and a handler that only reads the body.
    Bare,
    /// The gateway on `memory:`; bodies are not kept.
    Memory,
    /// On SQLite, with `keep_body = "0s"`.
    NoBody,
    /// On SQLite.
    Whole,
    /// The same, without a log.
    Silent,
    /// On SQLite, with the dashboard open.
    Watched,
    /// On SQLite, with a commit for each claim.
    PerRow,
    /// The filter rejects everything.
    Ignored,
    /// On `memory:`, and the sender waits for a receiver's response.
    AgainMemory,
    /// The same on SQLite.
    Again,
}

impl Kind {
    pub const ALL: [Self; 7] =
        [Self::Bare, Self::Memory, Self::NoBody, Self::Whole, Self::Silent, Self::Watched, Self::PerRow];

    /// The cost of a duplicate that is answered from its receipt, next to the cheapest case.
    pub const ANSWERS: [Self; 3] = [Self::Ignored, Self::AgainMemory, Self::Again];

    /// By its name in this file.
    pub fn named(name: &str) -> Self {
        *Self::ALL.iter().chain(&Self::ANSWERS).find(|known| format!("{known:?}") == name).expect("a kind of server")
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::Bare => "bare handler",
            Self::Memory => "gateway, memory, no body",
            Self::NoBody => "gateway, SQLite, no body",
            Self::Whole => "gateway, SQLite, body stored",
            Self::Silent => "the same, log off",
            Self::Watched => "the same, dashboard open",
            Self::PerRow => "the same, a commit per claim",
            Self::Ignored => "filtered out",
            Self::AgainMemory => "answered again, memory",
            Self::Again => "answered again, SQLite",
        }
    }

    fn config(self) -> String {
        let store =
            if matches!(self, Self::Memory | Self::AgainMemory) { "\"memory:\"" } else { "\"sqlite:hookonce.db\"" };
        let keep_body = if matches!(self, Self::Memory | Self::NoBody) { "0s" } else { "7d" };
        let tag = if self == Self::Ignored { "another" } else { "latest" };
        let (respond, does) = match self {
            Self::AgainMemory | Self::Again => ("done", "forward = { url = { env = \"RECEIVER\" } }"),
            _ => ("accepted", ""),
        };
        SourceConfig { store, keep_body, tag, respond, does }.text()
    }
}

/// A running server.
pub struct Server {
    pub kind: Kind,
    pub address: SocketAddr,
    /// Its admin port, if it has one.
    pub admin: Option<SocketAddr>,
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Server {
    /// Starts one in this folder, and waits until it listens.
    pub fn start(kind: Kind, dir: &Path) -> Self {
        Self::start_before(kind, dir, None)
    }

    /// The same, with this receiver behind it.
    pub fn start_before(kind: Kind, dir: &Path, receiver: Option<&Self>) -> Self {
        std::fs::create_dir_all(dir).expect("a folder");
        std::fs::write(dir.join("hookonce.toml"), kind.config()).expect("a config");
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.args(["--server", &format!("{kind:?}")]).current_dir(dir).env("SECRET", SECRET);
        if let Some(receiver) = receiver {
            command.env("RECEIVER", format!("http://{}/", receiver.address));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut said = BufReader::new(child.stdout.take().expect("its output is ours"));
        let address = line(&mut said).parse().expect("it says where it listens");
        let admin = line(&mut said).parse().ok();
        Self { kind, address, admin, child, said }
    }

    /// How many events it has.
    pub fn events(&mut self) -> u64 {
        self.child.stdin.as_mut().expect("its input is ours").write_all(b"count\n").expect("it listens");
        line(&mut self.said).parse().expect("it says a number")
    }

    /// What it has used so far.
    pub fn used(&self) -> Used {
        ProcessTree(self.child.id()).used()
    }

    /// Its private memory, and its share of shared memory, in MiB.
    pub fn memory(&self) -> f64 {
        ProcessTree(self.child.id()).memory()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().ok();
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("the server speaks");
    line.trim().to_owned()
}

/// Serves until its input ends: the other side of [`Server`].
pub fn serve(kind: &str) {
    let kind = Kind::named(kind);
    if kind != Kind::Silent {
        Logger::start(LogFormat::Text, Box::new(File::create("log").expect("a file for the log")));
    }
    // As `hookonce serve` does.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (address, admin, store) = begin(kind).await;
        println!("{address}\n{}", admin.map(|admin| admin.to_string()).unwrap_or_default());
        let asked = tokio::task::spawn_blocking(move || {
            let handle = tokio::runtime::Handle::current();
            for _ in std::io::stdin().lock().lines() {
                let all = EventQuery { limit: usize::MAX >> 1, ..EventQuery::default() };
                let events = store.as_ref().map_or(0, |store| handle.block_on(store.list(all)).map_or(0, |e| e.len()));
                println!("{events}");
            }
        });
        asked.await.expect("the questions end");
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
}

async fn begin(kind: Kind) -> (SocketAddr, Option<SocketAddr>, Option<Arc<dyn Inspect>>) {
    let env = |name: &str| std::env::var(name).ok();
    let config = config::load(Path::new("hookonce.toml"), &env).map_err(|problems| problems.render(ColorChoice::Plain));
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    match kind {
        Kind::Bare => {
            let flight = Arc::new(BodiesInFlight::default());
            (listen(move |request, _| bare(request, flight.clone())).await, None, None)
        }
        Kind::PerRow => {
            let (address, store) = per_row(&config).await;
            (address, None, store)
        }
        Kind::Memory
        | Kind::NoBody
        | Kind::Whole
        | Kind::Silent
        | Kind::Watched
        | Kind::Ignored
        | Kind::AgainMemory
        | Kind::Again => {
            let node = NodeHandle::start(&config, GuardProgram::default()).await.expect("the node starts");
            let (address, admin, store) = (node.ingest.expect("a whole node receives"), node.admin, node.store.clone());
            std::mem::forget(node); // it ends with the process
            (address, Some(admin), Some(store))
        }
    }
}

async fn listen<F, B>(
    handler: impl Fn(http::Request<hyper::body::Incoming>, PeerAddress) -> F + Clone + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = http::Response<B>> + Send + 'static,
    B: hyper::body::Body<Data = bytes::Bytes, Error = std::convert::Infallible> + Unpin + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a port has an address");
    tokio::spawn(accept::serve_with_peers(listener, handler, ConnectionLimits::default(), CancellationToken::new()));
    address
}

/// A node assembled by hand, whose store gets one claim at a time.
async fn per_row(config: &Config) -> (SocketAddr, Option<Arc<dyn Inspect>>) {
    let StoreAddress::Sqlite(path) = &config.store else { panic!("a commit per claim is SQLite's") };
    let sqlite = Arc::new(SqliteStore::open(path, SqliteAccess::Node).expect("the store opens"));
    let store: Arc<dyn Store> = Arc::new(crate::per_row::PerRow(sqlite.clone()));
    let batch = Batcher::start(store.clone(), Arc::default());
    let routes = config.sources.iter().flat_map(|source| source.routes.iter().map(move |route| (source, route)));
    let lanes = routes.map(|(source, route)| Lane::new(source.clone(), route.clone(), None)).collect();
    let dispatcher = Dispatcher::new(store.clone(), batch.clone(), lanes, Arc::default());
    dispatcher.run();
    let ingest = Arc::new(IngestState {
        sources: Arc::new(Sources::new(config.sources.iter().cloned())),
        health: Readiness::new(CancellationToken::new(), store.clone(), &batch),
        gateway: Gateway::new(store.clone(), batch, dispatcher, Arc::default()),
        flight: Arc::new(BodiesInFlight::default()),
        clients: Arc::default(),
    });
    (listen(move |request, peer| ingest.clone().answer(request, peer)).await, Some(sqlite))
}
