//! What forwarding through hookonce adds to the same call through a proxy that keeps nothing: claim, forward, receipt,
//! each synced to disk.
//!
//! ```text
//! cargo bench --bench forward                 a minute
//! cargo bench --bench forward -- --quick      only whether it still works; `cargo test --benches` does the same
//! cargo bench --bench forward -- --rounds 40 --calls 200 --cases 1
//! cargo bench --bench forward -- --docs       writes the figures into docs/performance.md
//! ```
//!
//! One receiver, one kind of client, the same body. Rounds of calls directly, through nginx, through a proxy in hyper and
//! through hookonce alternate, so that other load on the machine affects all alike. Only ratios of one run are
//! comparable. The CPU is that of the proxy's process, without client and receiver.
#![expect(clippy::cast_precision_loss, reason = "figures are only printed")]

#[path = "measure/mod.rs"]
mod measure;
#[path = "../tests/support/nginx.rs"]
mod nginx;

use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use hyper::body::Incoming;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use measure::document::{self, Target as Documents, table};
use measure::rounds::{Spread, machine};
use nginx::Nginx;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "a secret of the benchmark";
/// The size of a small webhook.
const BODY_BYTES: usize = 2_000;
/// How long the receiver works on a call, and the number of concurrent clients.
const CASES: [(Duration, usize); 5] = [
    (Duration::ZERO, 32),
    (Duration::ZERO, 16),
    (Duration::ZERO, 1),
    (Duration::from_millis(5), 16),
    (Duration::from_millis(20), 16),
];
/// How long the last events of a round may take to end after their responses.
const PATIENCE: Duration = Duration::from_mins(1);
/// A server that uses less CPU than this between two looks has nothing left to do.
/// It begins to merge keys when no one has written for 100 ms.
const QUIET: (Duration, Duration) = (Duration::from_millis(120), Duration::from_micros(1_200));

/// Where the calls go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// To the receiver.
    Direct,
    /// Through nginx: one process, kept connections.
    Nginx,
    /// Through a proxy of forty lines in hyper: what a proxy costs on this runtime.
    Hyper,
    /// Through hookonce, whose response comes when the event is durable.
    Accepted,
    /// Through hookonce, whose response is the receiver's.
    Done,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Direct, Self::Nginx, Self::Hyper, Self::Accepted, Self::Done];

    fn words(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Hyper => "hyper, a bare proxy",
            Self::Accepted => "hookonce, accepted",
            Self::Done => "hookonce, done",
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, receiver] = &args[..]
        && flag == "--proxy"
    {
        return runtime().block_on(serve_proxy(receiver.parse().expect("an address")));
    }
    if args.iter().any(|arg| arg == "--list") {
        if !args.iter().any(|arg| arg == "--ignored") {
            println!("the_benchmark_works: test");
        }
        return;
    }
    let number = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1).and_then(|text| text.parse().ok());
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let (rounds, calls) = if quick { (1, 5) } else { (9, 100) };
    let (rounds, calls) = (number("--rounds").unwrap_or(rounds), number("--calls").unwrap_or(calls));
    let cases = number("--cases").unwrap_or(CASES.len()).min(CASES.len());
    // On the disk of the build: on a file system in memory every sync would be free.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    // A quick check leaves the figures of the last measurement alone.
    let (folder, target) = if quick { ("forward-quick", Documents::Build) } else { ("forward", Documents::of(&args)) };
    let conditions = format!(
        "{rounds} rounds of {calls} calls of each client, bodies of {BODY_BYTES} bytes; {}, which also ran clients and \
         receiver",
        machine()
    );
    println!("{conditions}; CPU of the proxy");
    let (tables, cases) = runtime().block_on(run(dir.path(), (rounds, calls), &CASES[..cases]));
    println!("written:");
    let json = json!({"conditions": conditions, "cases": cases});
    document::write(&document::folder(folder).join("results.json"), &format!("{json:#}\n"));
    target.figures("figures of forwarding", &format!("{conditions}.\n{tables}"));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().expect("a runtime")
}

/// Something to call, and the process whose CPU counts.
struct Target {
    kind: Kind,
    address: SocketAddr,
    process: Option<Process>,
    samples: Vec<Sample>,
}

/// The process of a proxy, ended on drop.
enum Process {
    Nginx(Nginx),
    Own(Child),
}

impl Process {
    fn id(&self) -> u32 {
        match self {
            Self::Nginx(nginx) => nginx.process(),
            Self::Own(child) => child.id(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Self::Own(child) = self {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// One round of one target.
struct Sample {
    per_second: f64,
    half: f64,
    late: f64,
    cpu: f64,
    switches: f64,
}

/// What a process has used so far: CPU time, and how often it was switched away from because it waited.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu: Duration,
    switches: u64,
}

impl Target {
    fn start(kind: Kind, dir: &Path, receiver: SocketAddr) -> Self {
        let (address, process) = match kind {
            Kind::Direct => (receiver, None),
            Kind::Nginx => {
                let nginx = nginx_to(receiver);
                (nginx.address, Some(Process::Nginx(nginx)))
            }
            Kind::Hyper => {
                let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
                command.arg("--proxy").arg(receiver.to_string());
                started(&mut command)
            }
            Kind::Accepted => hookonce(&dir.join("accepted"), receiver, "accepted"),
            Kind::Done => hookonce(&dir.join("done"), receiver, "done"),
        };
        Self { kind, address, process, samples: Vec::new() }
    }

    fn used(&self) -> Used {
        let Some(process) = &self.process else { return Used::default() };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs");
        tasks.flatten().fold(Used::default(), |sum, task| {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let nanos = read("schedstat").split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
            let status = read("status");
            let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let switches: u64 = switches.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            Used { cpu: sum.cpu + Duration::from_nanos(nanos), switches: sum.switches + switches }
        })
    }

    /// The same, once it has nothing left to do.
    async fn used_when_quiet(&self) -> Used {
        let mut used = self.used();
        loop {
            tokio::time::sleep(QUIET.0).await;
            let now = self.used();
            if now.cpu.saturating_sub(used.cpu) < QUIET.1 {
                return now;
            }
            used = now;
        }
    }

    async fn round(&mut self, receiver: &Receiver, clients: usize, calls: usize) {
        let (calls_in_all, answered) = ((clients * calls) as u64, receiver.answered());
        let (before, begun) = (self.used(), Instant::now());
        let all = (0..clients).map(|_| tokio::spawn(call(self.address, self.kind, calls)));
        let mut waits = Vec::with_capacity(clients * calls);
        for client in all.collect::<Vec<_>>() {
            waits.extend(client.await.expect("a client ends well"));
        }
        let took = begun.elapsed();
        while receiver.answered() < answered + calls_in_all {
            assert!(begun.elapsed() < took + PATIENCE, "{:?}: not every call reached the receiver", self.kind);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let used = self.used_when_quiet().await;
        assert_eq!(receiver.answered(), answered + calls_in_all, "{:?}: each call reaches it once", self.kind);
        waits.sort_unstable();
        let wait = |of_100: usize| waits[(waits.len() * of_100 / 100).min(waits.len() - 1)].as_secs_f64() * 1e3;
        let calls = calls_in_all as f64;
        self.samples.push(Sample {
            per_second: calls / took.as_secs_f64(),
            half: wait(50),
            late: wait(99),
            cpu: used.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / calls,
            switches: used.switches.saturating_sub(before.switches) as f64 / calls,
        });
    }

    fn of(&self, what: fn(&Sample) -> f64) -> Spread {
        Spread::of(self.samples.iter().map(what).collect())
    }

    /// The ratio of its CPU to that of another, round by round.
    fn cpu_against(&self, other: &Self) -> Spread {
        Spread::of(self.samples.iter().zip(&other.samples).map(|(one, other)| one.cpu / other.cpu).collect())
    }

    fn json(&self) -> Json {
        json!({"name": format!("{:?}", self.kind), "cpu_us": self.of(|s| s.cpu).range(),
               "per_second": self.of(|s| s.per_second).range(), "p50_ms": self.of(|s| s.half).range(),
               "p99_ms": self.of(|s| s.late).range()})
    }
}

/// All cases; returns their tables for the docs, and the same as JSON.
async fn run(dir: &Path, (rounds, calls): (usize, usize), cases: &[(Duration, usize)]) -> (String, Vec<Json>) {
    let (mut tables, mut all) = (String::new(), Vec::new());
    for (number, (work, clients)) in cases.iter().copied().enumerate() {
        let receiver = Receiver::start(work).await;
        let dir = dir.join(number.to_string());
        let mut targets = Kind::ALL.map(|kind| Target::start(kind, &dir, receiver.address));
        for _ in 0..rounds {
            for target in &mut targets {
                target.round(&receiver, clients, calls).await;
            }
        }
        let name = format!("{clients} clients, the receiver works for {work:?}");
        let table = rows(&targets);
        println!("\n{name}\n\n{table}");
        tables = format!("{tables}\n{name}:\n\n{table}");
        let json: Vec<_> = targets.iter().map(Target::json).collect();
        all.push(json!({"clients": clients, "works_for_ms": work.as_secs_f64() * 1e3, "through": json}));
    }
    (tables, all)
}

/// The figures of one case as a table.
fn rows(targets: &[Target]) -> String {
    let header = [
        "Through",
        "Per second",
        "p50 · p99 ms",
        "CPU µs per call",
        "Switches",
        "CPU, of nginx's",
        "CPU, of the bare proxy's",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for target in targets {
        let ratio = |kind: Kind| {
            let proxy = targets.iter().find(|one| one.kind == kind && target.kind != Kind::Direct);
            proxy.map_or_else(String::new, |proxy| target.cpu_against(proxy).text(1))
        };
        let median = |what: fn(&Sample) -> f64| target.of(what).median();
        rows.push(vec![
            target.kind.words().to_owned(),
            format!("{:.0}", median(|s| s.per_second)),
            format!("{:.2} · {:.2}", median(|s| s.half), median(|s| s.late)),
            target.of(|s| s.cpu).text(0),
            format!("{:.1}", median(|s| s.switches)),
            ratio(Kind::Nginx),
            ratio(Kind::Hyper),
        ]);
    }
    table(&rows)
}

/// This many calls over one connection, each a different delivery.
async fn call(to: SocketAddr, kind: Kind, calls: usize) -> Vec<Duration> {
    let scheme = VerificationScheme::github(SourceSecrets::new(vec![SECRET.as_bytes().to_vec()]));
    let mut stream = TcpStream::connect(to).await.expect("it takes connections");
    stream.set_nodelay(true).expect("a fresh socket");
    let expected = if kind == Kind::Accepted { "HTTP/1.1 202 " } else { "HTTP/1.1 200 " };
    let mut waits = Vec::with_capacity(calls);
    for _ in 0..calls {
        let id = random_id();
        let body = format!("{{\"id\":\"{id}\",\"x\":\"{}\"}}", "x".repeat(BODY_BYTES - 60));
        let mut request = "POST /in HTTP/1.1\r\nHost: a\r\n".to_owned();
        for (name, value) in scheme.sign(&id, Timestamp(0), body.as_bytes()) {
            // Writing to a string cannot fail.
            let _ = write!(request, "{name}: {value}\r\n");
        }
        let _ = write!(request, "Content-Length: {}\r\n\r\n{body}", body.len());
        let sent = Instant::now();
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let answer = message(&mut stream).await.expect("it answers");
        waits.push(sent.elapsed());
        assert!(answer.starts_with(expected), "{kind:?}: {answer}");
    }
    waits
}

/// A delivery id as senders make them: random, so that its key is nowhere near that of the delivery before.
fn random_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // The keys of a hash map are random for each process.
    let start = || RandomState::new().build_hasher().finish() | 1;
    NEXT.compare_exchange(0, start(), Ordering::Relaxed, Ordering::Relaxed).ok();
    // SplitMix64.
    let half = || {
        let mut mixed = NEXT.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    uuid::Uuid::from_u64_pair(half(), half()).to_string()
}

/// A server that works on each call for a time, and responds with 200.
struct Receiver {
    address: SocketAddr,
    answered: Arc<AtomicU64>,
}

impl Receiver {
    async fn start(work: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has an address");
        let answered = Arc::new(AtomicU64::new(0));
        let counter = answered.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("a fresh socket");
                let counter = counter.clone();
                tokio::spawn(async move {
                    while message(&mut stream).await.is_some() {
                        if !work.is_zero() {
                            tokio::time::sleep(work).await;
                        }
                        counter.fetch_add(1, Ordering::Relaxed);
                        let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                });
            }
        });
        Self { address, answered }
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

/// Reads one whole message; returns its head.
async fn message(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::with_capacity(4096);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let lower = head.to_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if bytes.len() >= end + 4 + length.trim().parse::<usize>().expect("a length") {
                return Some(head);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// A plain reverse proxy with kept connections.
fn nginx_to(receiver: SocketAddr) -> Nginx {
    let kept = format!(
        "keepalive_requests 1000000;\n    upstream backend {{ server {receiver}; keepalive 64; keepalive_requests 1000000; }}"
    );
    let to = "location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\"; }";
    Nginx::start_beside(&kept, to)
}

/// The bare proxy, in a process of its own: one server connection per client, a pool of connections to the receiver,
/// the body passed on as it comes.
async fn serve_proxy(receiver: SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("http://{}/", listener.local_addr().expect("it has an address"));
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build_http();
    let to: Uri = format!("http://{receiver}/in").parse().expect("a URL");
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("a fresh socket");
        let (client, to) = (client.clone(), to.clone());
        let pass_on = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.headers_mut().remove(hyper::header::HOST);
            *request.uri_mut() = to.clone();
            client.request(request)
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), pass_on));
    }
}

/// The real binary, with a log.
fn hookonce(dir: &Path, receiver: SocketAddr, respond: &str) -> (SocketAddr, Option<Process>) {
    std::fs::create_dir_all(dir).expect("a folder");
    let config = format!(
        r#"
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[source.s]
path    = "/in"
verify  = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
respond = "{respond}"
[[source.s.route]]
forward = {{ url = "http://{receiver}/in" }}
"#
    );
    std::fs::write(dir.join("hookonce.toml"), config).expect("a config");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookonce"));
    command.arg("serve").current_dir(dir).env("SECRET", SECRET).stderr(Stdio::null());
    started(&mut command)
}

/// Starts a server that says on its first lines where it listens.
fn started(command: &mut Command) -> (SocketAddr, Option<Process>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is ours")).lines();
    let url = lines.find_map(|line| line.ok()?.split("http://").nth(1).map(str::to_owned)).expect("it says where");
    std::thread::spawn(move || lines.for_each(drop));
    let authority: String = url.chars().take_while(|c| !matches!(c, '/' | ',')).collect();
    (authority.trim().parse().expect("an address"), Some(Process::Own(child)))
}
