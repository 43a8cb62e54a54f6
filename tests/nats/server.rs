//! A real nats-server with JetStream, on a free port, in a temporary folder.

use super::support::{PATIENCE, free_port};
use async_nats::jetstream::{self, consumer::pull, stream};
use std::io::Read as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Nats {
    dir: tempfile::TempDir,
    child: Option<Child>,
    port: u16,
    /// Its config, apart from the address.
    config: String,
}

/// A message as it is stored in its stream.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) subject: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Stored {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }
}

/// The program of the server: the one that `./test` has installed, else the one on the PATH.
pub(crate) fn program() -> PathBuf {
    let named = std::env::var_os("HOOKONCE_NATS_SERVER").map(PathBuf::from);
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/nats/bin/nats-server");
    let own = Some(tools).filter(|path| path.exists());
    named.or(own).unwrap_or_else(|| "nats-server".into())
}

/// The major and minor version of that program.
pub(crate) fn version() -> (u32, u32) {
    let said = Command::new(program()).arg("--version").output().expect("nats-server is installed: ./test does that");
    let text = String::from_utf8(said.stdout).unwrap();
    let numbers = text.trim().rsplit(['v', ' ']).next().unwrap();
    let mut parts = numbers.split('.').map(|part| part.parse().expect("nats-server prints its version"));
    (parts.next().unwrap(), parts.next().unwrap())
}

impl Nats {
    /// Starts a server with JetStream.
    pub(crate) fn start() -> Self {
        Self::with("jetstream { store_dir: \"data\" }")
    }

    /// Starts a server with JetStream that acknowledges only what is on disk. One older than 2.10 has no such setting:
    /// it loses nothing acknowledged when it is killed, only when the machine goes down.
    pub(crate) fn synced() -> Self {
        let always = if version() < (2, 10) { "" } else { ", sync_interval: always" };
        Self::with(&format!("jetstream {{ store_dir: \"data\"{always} }}"))
    }

    /// Starts a server with this config, apart from its address.
    pub(crate) fn with(config: &str) -> Self {
        let mut nats = Self::absent(config);
        for _ in 0..5 {
            if nats.up() {
                return nats;
            }
            // Another process took the port in between.
            nats.port = free_port();
        }
        let log = std::fs::read_to_string(nats.dir.path().join("nats.log")).unwrap_or_default();
        let said = std::fs::read_to_string(nats.dir.path().join("nats.out")).unwrap_or_default();
        panic!("{} does not start; ./test installs one that does: {said}{log}", program().display())
    }

    /// A server that is not started yet.
    pub(crate) fn absent(config: &str) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), child: None, port: free_port(), config: config.to_owned() }
    }

    /// Starts it; later, again, on the same port with the same data. `false`: it did not start.
    pub(crate) fn up(&mut self) -> bool {
        assert!(self.child.is_none(), "it already runs");
        let text = format!("listen: \"127.0.0.1:{}\"\n{}\n", self.port, self.config);
        std::fs::write(self.dir.path().join("nats.conf"), text).unwrap();
        let mut command = Command::new(program());
        command.args(["-c", "nats.conf", "-l", "nats.log"]).current_dir(self.dir.path());
        let said = std::fs::File::create(self.dir.path().join("nats.out")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn();
        let mut child = child.expect("nats-server is installed: ./test does that");
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            // It sends `INFO` to every client that connects.
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                if stream.read(&mut [0; 5]).is_ok_and(|read| read > 0) {
                    self.child = Some(child);
                    return true;
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().ok();
        child.wait().ok();
        false
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Creates the stream, as the user `admin`.
    pub(crate) async fn as_admin(&self) {
        let options = async_nats::ConnectOptions::new().user_and_password("admin".into(), "admin".into());
        make(options.connect(self.url()).await.unwrap(), "GITHUB", super::LONG).await;
    }

    /// Creates the stream, with this token.
    pub(crate) async fn with_token(&self, token: &str) {
        let options = async_nats::ConnectOptions::new().token(token.into());
        make(options.connect(self.url()).await.unwrap(), "GITHUB", super::LONG).await;
    }

    /// Creates the stream, with this content of a `.creds` file.
    pub(crate) async fn with_creds(&self, creds: &str) {
        let options = async_nats::ConnectOptions::new().credentials(creds).unwrap();
        make(options.connect(self.url()).await.unwrap(), "GITHUB", super::LONG).await;
    }

    /// Creates the stream, over TLS.
    pub(crate) async fn over_tls(&self, ca: &str) {
        let options = async_nats::ConnectOptions::new().add_root_certificates(ca.into()).require_tls(true);
        make(options.connect(self.url()).await.unwrap(), "GITHUB", super::LONG).await;
    }

    /// A client that is independent of the node, such as the `nats` command.
    pub(crate) async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.url()).await.unwrap()
    }

    pub(crate) async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(self.client().await)
    }

    /// Creates a stream for `github.>`.
    pub(crate) async fn stream(&self, name: &str, window: Duration) -> stream::Stream {
        make(self.client().await, name, window).await
    }

    /// All messages of a stream, oldest first.
    pub(crate) async fn messages(&self, name: &str) -> Vec<Stored> {
        let context = self.jetstream().await;
        let mut stream = context.get_stream(name).await.unwrap();
        let state = stream.info().await.unwrap().state.clone();
        let mut all = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let Ok(message) = stream.get_raw_message(sequence).await else { continue };
            let headers = message.headers.iter();
            let headers = headers.flat_map(|(name, values)| {
                values.iter().map(move |value| (name.to_string(), value.as_str().to_owned()))
            });
            let (subject, body) = (message.subject.to_string(), message.payload.to_vec());
            all.push(Stored { subject, headers: headers.collect(), body });
        }
        all
    }

    /// The number of messages in a stream.
    pub(crate) async fn count(&self, name: &str) -> u64 {
        let context = self.jetstream().await;
        let mut stream = context.get_stream(name).await.unwrap();
        stream.info().await.unwrap().state.messages
    }

    /// The number of messages that a consumer has not acknowledged, and of those that it has not got yet.
    pub(crate) async fn left(&self, stream: &str, consumer: &str) -> (usize, u64) {
        let context = self.jetstream().await;
        let stream = context.get_stream(stream).await.unwrap();
        let info = stream.consumer_info(consumer).await.unwrap();
        (info.num_ack_pending, info.num_pending)
    }

    /// Publishes a message to a stream, as any publisher would, and returns its sequence number.
    pub(crate) async fn put(&self, subject: &str, headers: &[(String, String)], body: &[u8]) -> u64 {
        let mut map = async_nats::HeaderMap::new();
        for (name, value) in headers {
            map.append(name.as_str(), value.as_str());
        }
        let context = self.jetstream().await;
        let ack = context.publish_with_headers(subject.to_owned(), map, body.to_vec().into()).await.unwrap();
        ack.await.unwrap().sequence
    }

    /// Creates the consumer as an operator would.
    pub(crate) async fn consumer(&self, stream: &str, ack_wait: Duration) {
        self.named_consumer(stream, "hookonce", ack_wait).await;
    }

    /// Creates a consumer under this name.
    pub(crate) async fn named_consumer(&self, stream: &str, name: &str, ack_wait: Duration) {
        let config = pull::Config { durable_name: Some(name.into()), ack_wait, ..Default::default() };
        let context = self.jetstream().await;
        context.get_stream(stream).await.unwrap().create_consumer(config).await.unwrap();
    }

    /// Subscribes to a subject and returns the first message.
    pub(crate) async fn subscribe(&self, subject: &str) -> async_nats::Subscriber {
        let client = self.client().await;
        let subscriber = client.subscribe(subject.to_owned()).await.unwrap();
        client.flush().await.unwrap();
        subscriber
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Waits until the condition holds.
pub(crate) async fn until_async<F: Future<Output = bool>>(what: &str, fact: impl Fn() -> F) {
    let start = Instant::now();
    while !fact().await {
        assert!(start.elapsed() < PATIENCE, "timed out waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Creates a stream for `github.>`.
async fn make(client: async_nats::Client, name: &str, window: Duration) -> stream::Stream {
    let config = stream::Config {
        name: name.into(),
        subjects: vec!["github.>".into()],
        duplicate_window: window,
        ..Default::default()
    };
    let context = jetstream::new(client);
    context.create_stream(config).await.unwrap();
    context.get_stream(name).await.unwrap()
}
