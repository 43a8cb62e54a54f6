//! Runs a node for a test: the real binary, on free ports, in a temporary folder.
//!
//! Every test binary uses a part of this module.
#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The secret of every source in these tests.
pub const SECRET: &str = "It's a Secret to Everybody";
/// How long a condition may take to become true.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// A temporary folder with a node in it.
pub struct House {
    pub dir: tempfile::TempDir,
    node: Option<Running>,
    client: reqwest::Client,
}

struct Running {
    child: Child,
    ingest: String,
    admin: String,
    log: Arc<NodeLog>,
}

/// What a node writes to standard error. Whoever asks for it reads what is there: all that was written before.
struct NodeLog {
    pipe: OwnedFd,
    text: Mutex<Vec<u8>>,
}

impl NodeLog {
    /// Reads it as it comes, so that the node never waits for a reader.
    fn follow(pipe: ChildStderr) -> Arc<Self> {
        let log = Arc::new(Self { pipe: pipe.into(), text: Mutex::default() });
        rustix::io::ioctl_fionbio(&log.pipe, true).unwrap();
        let own = log.clone();
        std::thread::spawn(move || {
            while own.read() {
                poll(&mut [PollFd::new(&own.pipe, PollFlags::IN)], None).ok();
            }
        });
        log
    }

    /// Reads what is there; returns whether more may come.
    fn read(&self) -> bool {
        let (mut text, mut some) = (self.text.lock().unwrap(), [0; 8192]);
        loop {
            match rustix::io::read(&self.pipe, &mut some) {
                Ok(length @ 1..) => text.extend_from_slice(&some[..length]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Ok(0) | Err(_) => return false,
            }
        }
    }

    /// Its whole lines.
    fn text(&self) -> String {
        self.read();
        let text = self.text.lock().unwrap();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        String::from_utf8_lossy(&text[..whole]).into_owned()
    }
}

/// An HTTP response.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or(Json::Null)
    }

    /// The status word of the response.
    pub fn word(&self) -> String {
        self.json()["status"].as_str().unwrap_or("").to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }

    pub fn event(&self) -> String {
        self.json()["event"].as_str().unwrap_or("").to_owned()
    }
}

impl House {
    /// A folder with this config, whose node is running. The ports and the store are added if the config has none.
    pub fn new(config: &str) -> Self {
        let mut house = Self::empty(config);
        house.start();
        house
    }

    /// The same, without starting the node.
    pub fn empty(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let house = Self { dir, node: None, client: reqwest::Client::new() };
        house.configure(config);
        house
    }

    /// Writes another config; a running node does not read it.
    pub fn configure(&self, config: &str) {
        let mut text = String::new();
        // The `listen` of `[admin]` is another.
        let mut top_level = config.lines().take_while(|line| !line.starts_with('['));
        if !top_level.any(|line| line.starts_with("listen")) {
            text += "listen = \"127.0.0.1:0\"\n";
        }
        let (top, rest) = config.split_at(config.find("\n[").map_or(0, |at| at + 1));
        text += top;
        if !config.contains("[admin]") {
            text += "[admin]\nlisten = \"127.0.0.1:0\"\n";
        }
        text += rest;
        std::fs::write(self.path("hookonce.toml"), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command of the binary, in this folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hookonce"));
        command.args(args).current_dir(self.dir.path()).env("SECRET", SECRET).env_remove("HOOKONCE_CONFIG");
        command.env("STATE_DIRECTORY", self.path("state"));
        command
    }

    /// Starts the node and waits until it prints where it listens.
    pub fn start(&mut self) {
        if let Err(said) = self.try_start() {
            panic!("the node did not start: {said}");
        }
    }

    /// Starts the node; the error is its output, if it exited instead.
    pub fn try_start(&mut self) -> Result<(), String> {
        self.try_start_by(self.command(&["serve"]))
    }

    /// Starts the node by this command, which becomes the binary or ends with it.
    #[expect(clippy::zombie_processes, reason = "a running node is waited for on drop")]
    pub fn try_start_by(&mut self, mut command: Command) -> Result<(), String> {
        assert!(self.node.is_none(), "a node is running");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = NodeLog::follow(child.stderr.take().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let (mut greeting, mut ingest) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap() == 0 {
                let status = child.wait().unwrap();
                return Err(format!("{status}\n{greeting}{}", log.text()));
            }
            greeting += &line;
            if let Some(rest) = line.split("http://").nth(1).or_else(|| line.split("https://").nth(1)) {
                let authority: String = rest.chars().take_while(|c| !matches!(c, '/' | ',')).collect();
                if line.starts_with("dashboard ") {
                    let admin = authority.trim().to_owned();
                    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
                    // Connections to the previous node are of no use, even if this one has the same port.
                    self.client = reqwest::Client::new();
                    self.node = Some(Running { child, ingest, admin, log });
                    return Ok(());
                }
                ingest = authority;
            }
        }
    }

    /// Starts the node by this command, whose log is JSON: the log contains its ports.
    pub fn start_with_json_log(&mut self, mut command: Command) {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = NodeLog::follow(child.stderr.take().unwrap());
        let (ingest, admin) = loop {
            let (ended, text) = (child.try_wait().unwrap().is_some(), log.text());
            let json = |line| serde_json::from_str::<Json>(line).unwrap_or_else(|_| panic!("not JSON: {text}"));
            let lines: Vec<Json> = text.lines().map(json).collect();
            let last = |name: &str| lines.iter().rev().find_map(|line| line[name].as_str().map(str::to_owned));
            if let Some(admin) = last("admin") {
                break (last("ingest").unwrap_or_default(), admin);
            }
            assert!(!ended, "the node did not start: {text}");
            std::thread::sleep(Duration::from_millis(5));
        };
        self.client = reqwest::Client::new();
        self.node = Some(Running { child, ingest, admin, log });
    }

    fn running(&self) -> &Running {
        self.node.as_ref().expect("a node is running")
    }

    /// The URL of a path on the webhook port.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running().ingest)
    }

    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running().admin)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.running().child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Everything that the node has written to standard error. It writes its lines a moment after what they are about.
    pub fn log(&self) -> String {
        self.running().log.text()
    }

    /// Whether the node has exited by itself.
    pub fn has_ended(&mut self) -> bool {
        self.node.as_mut().is_none_or(|node| node.child.try_wait().unwrap().is_some())
    }

    /// Kills the node, as a crash would.
    pub fn kill(&mut self) {
        let mut node = self.node.take().expect("a node is running");
        node.child.kill().unwrap();
        node.child.wait().unwrap();
    }

    /// Kills the node, and waits until none of its commands is left.
    pub async fn kill_with_commands(&mut self) {
        self.kill();
        // A guard or a command that has just been started works here, too.
        until("the commands to be gone", || self.processes_inside() == 0).await;
    }

    /// The number of processes whose working directory is this folder.
    fn processes_inside(&self) -> usize {
        let dir = self.dir.path().canonicalize().unwrap();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir)).count()
    }

    /// Stops the node, and waits until it has exited.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait().0
    }

    /// Waits until the node has exited; returns its status and log.
    pub fn wait(&mut self) -> (ExitStatus, String) {
        let mut node = self.node.take().expect("a node is running");
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = node.child.try_wait().unwrap() {
                return (status, node.log.text());
            }
            assert!(Instant::now() < patience, "the node does not exit: {}", node.log.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a request; `Err` if there was no response.
    pub async fn post(&self, path: &str, headers: &[(String, String)], body: &[u8]) -> Result<Answer, reqwest::Error> {
        let mut request = self.client.post(self.url(path)).body(body.to_vec());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        answer(request.send().await?).await
    }

    /// The metrics, without the label `node` that every sample has.
    pub async fn metrics(&self) -> String {
        without_node(&String::from_utf8(self.ask("GET", "/metrics").await.body).unwrap())
    }

    /// Waits until the metrics have these lines: a node counts what it has written.
    pub async fn counted(&self, lines: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let told = self.metrics().await;
            let missing = lines.iter().find(|line| !told.lines().any(|found| found == **line));
            let Some(missing) = missing else { return told };
            assert!(start.elapsed() < PATIENCE, "{missing}\n{told}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a request to the admin port.
    pub async fn ask(&self, method: &str, path: &str) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        answer(self.client.request(method, self.admin_url(path)).send().await.unwrap()).await.unwrap()
    }

    /// Sends a delivery and expects a response.
    pub async fn deliver(&self, path: &str, delivery: &Sent) -> Answer {
        self.post(path, &delivery.headers, &delivery.body).await.unwrap()
    }

    /// The lines of a file that commands write, in order; empty if there is no such file.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The first column of each row, as text, read while the node runs.
    pub fn sql(&self, query: &str) -> Vec<String> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = rusqlite::Connection::open_with_flags(self.path("hookonce.db"), flags).unwrap();
        db.busy_timeout(PATIENCE).unwrap();
        let mut query = db.prepare(query).unwrap();
        let text = |row: &rusqlite::Row<'_>| {
            Ok(match row.get_ref(0)? {
                rusqlite::types::ValueRef::Null => String::new(),
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                rusqlite::types::ValueRef::Real(number) => number.to_string(),
                rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                rusqlite::types::ValueRef::Blob(bytes) => hex::encode(bytes),
            })
        };
        let rows = query.query_map([], text).unwrap();
        rows.map(|row| row.unwrap()).collect()
    }

    /// The number of events in this state.
    pub fn count(&self, state: &str) -> usize {
        self.sql(&format!("select count(*) from events where state = '{state}'"))[0].parse().unwrap()
    }

    /// Waits until every event is done or dead.
    pub async fn quiet(&self) {
        // One query: between two queries an event may go from running to waiting.
        let open = "select count(*) from events where ended_at is null";
        until("every event to end", || self.sql(open) == ["0"]).await;
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(mut node) = self.node.take() {
            if std::thread::panicking() {
                eprintln!("the node's log:\n{}", node.log.text());
            }
            node.child.kill().ok();
            node.child.wait().ok();
        }
    }
}

async fn answer(response: reqwest::Response) -> Result<Answer, reqwest::Error> {
    let status = response.status().as_u16();
    let named = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap_or("").to_owned())
    };
    let headers = response.headers().iter().map(named).collect();
    Ok(Answer { status, headers, body: response.bytes().await?.to_vec() })
}

/// A page of metrics without the label `node` that every sample has.
pub fn without_node(page: &str) -> String {
    let node = page.split("node=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(node.contains(':') && !node.starts_with(':'), "{node}");
    page.replace(&format!("{{node=\"{node}\"}}"), "").replace(&format!("node=\"{node}\","), "")
}

/// Waits until a condition is true.
pub async fn until(what: &str, fact: impl Fn() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < PATIENCE, "timed out waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A delivery as a sender sends it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Sent {
    /// A delivery of this kind, signed as GitHub does, with this id.
    pub fn github(kind: &str, id: &str, body: &str) -> Self {
        let scheme = VerificationScheme::github(SourceSecrets::new(vec![SECRET.as_bytes().to_vec()]));
        let mut headers = scheme.sign(id, Timestamp(0), body.as_bytes());
        headers.push(("x-github-event".into(), kind.into()));
        Self { headers, body: body.as_bytes().to_vec() }
    }

    /// A push of this image, changed to this version at this second.
    pub fn package(id: &str, tag: &str, version: u64, second: u32) -> Self {
        Self::github("registry_package", id, &package(tag, version, second))
    }

    /// The same with this header replaced.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| n != name);
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// The body of a push: a real one, with these values.
pub fn package(tag: &str, version: u64, second: u32) -> String {
    let mut body: Json = serde_json::from_str(&payload("ghcr_latest.json")).unwrap();
    let package = &mut body["registry_package"];
    package["updated_at"] = format!("2026-02-07T16:20:{second:02}Z").into();
    let of = &mut package["package_version"];
    of["id"] = version.into();
    of["version"] = format!("sha256:{version:064x}").into();
    of["container_metadata"]["tag"]["name"] = tag.into();
    body.to_string()
}

/// A port that is free. If possible one that the system gives to no connection, and to no server that takes any port.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    let bind = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port));
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let given: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    if given < 2 * FIRST {
        return bind(0).unwrap().local_addr().unwrap().port();
    }
    let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ());
    let any = || FIRST + u16::try_from(random() % u64::from(given - FIRST)).unwrap();
    std::iter::repeat_with(any).find(|port| bind(*port).is_ok()).unwrap()
}

pub fn payload(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/payloads").join(name)).unwrap()
}

/// The deliveries of one image push, as GitHub sends them.
pub fn storm(name: &str) -> Vec<Sent> {
    let one = |line: &str| {
        let saved: Json = serde_json::from_str(line).unwrap();
        let text = |at: &str| saved["headers"][at].as_str().unwrap().to_owned();
        Sent::github(&text("X-GitHub-Event"), &text("X-GitHub-Delivery"), saved["body"].as_str().unwrap())
    };
    payload(name).lines().map(one).collect()
}
