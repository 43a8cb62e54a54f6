//! What forwarding through hookonce adds to the same call through nginx, and through the smallest proxy in hyper: claim,
//! forward, receipt, each synced to disk.
//!
//! ```text
//! cargo bench --bench forward                 a minute
//! cargo bench --bench forward -- --quick      only whether it still works; `cargo test --benches` does the same
//! cargo bench --bench forward -- --rounds 40 --calls 200
//! ```
//!
//! One backend, one kind of client, the same body. Calls directly, through each proxy and through hookonce alternate, so
//! that other load on the machine affects all alike. Only ratios of one run are comparable.
#![expect(clippy::cast_precision_loss, reason = "figures are only printed")]

#[path = "measure/mod.rs"]
mod measure;
#[path = "../tests/support/nginx.rs"]
mod nginx;

use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use measure::process::ProcessTree;
use measure::rounds::Spread;
use nginx::Nginx;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "a secret of the benchmark";
/// The size of a small webhook.
const BODY_BYTES: usize = 2_000;
/// How long the backend works on a call.
const WORK: [Duration; 3] = [Duration::ZERO, Duration::from_millis(5), Duration::from_millis(20)];
/// Numbers of concurrent clients.
const CLIENTS: [usize; 2] = [1, 16];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    if let [flag, backend] = &args[..]
        && flag == "--proxy"
    {
        return runtime.block_on(serve_proxy(backend.parse().expect("an address")));
    }
    if args.iter().any(|arg| arg == "--list") {
        if !args.iter().any(|arg| arg == "--ignored") {
            println!("the_benchmark_works: test");
        }
        return;
    }
    let number = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1).and_then(|text| text.parse().ok());
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let (rounds, calls) = if quick { (1, 5) } else { (20, 50) };
    let (rounds, calls) = (number("--rounds").unwrap_or(rounds), number("--calls").unwrap_or(calls));
    // On the disk of the build: on a file system in memory every sync would be free.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    runtime.block_on(measure(dir.path(), rounds, calls));
}

async fn measure(dir: &Path, rounds: usize, calls: usize) {
    println!("{rounds} rounds of {calls} calls for each client, bodies of {BODY_BYTES} bytes; medians (least–most)\n");
    for (i, work) in WORK.into_iter().enumerate() {
        let backend = backend(work).await;
        let (hyper, nginx) = (HyperProxy::start(backend), proxy(backend));
        let hookonce = Hookonce::start(&dir.join(format!("hookonce-{i}")), backend);
        let trees = [hyper.child.id(), nginx.id(), hookonce.child.id()].map(ProcessTree);
        let places = [backend, hyper.address, nginx.address, hookonce.address];
        for clients in CLIENTS {
            let before = trees.map(ProcessTree::cpu);
            let mut waits = [const { Vec::new() }; 4];
            for round in 0..rounds {
                for (place, to) in places.into_iter().enumerate() {
                    let from = (clients * 1_000_000 + round) * 1_000;
                    let all = (0..clients).map(|client| tokio::spawn(call(to, from + client * 10_000_000, calls)));
                    let mut came = Vec::new();
                    for client in all.collect::<Vec<_>>() {
                        came.extend(client.await.expect("a client ends well"));
                    }
                    waits[place].push(median(came).as_secs_f64());
                }
            }
            let made = (rounds * calls * clients) as f64;
            let cpu = [0, 1, 2].map(|at| trees[at].cpu().saturating_sub(before[at]).as_secs_f64() * 1e6 / made);
            println!("{work:?} of work, {clients} clients");
            print(&waits, cpu);
        }
    }
}

/// One row for each way to the backend: the median of the latencies, the ratios to the ways without hookonce, and CPU.
fn print(waits: &[Vec<f64>; 4], cpu: [f64; 3]) {
    println!("  {:<10} {:>8} {:>9}  {:<20} of nginx", "", "ms", "CPU µs", "of hyper");
    let ratio = |place: usize, to: usize| {
        Spread::of(waits[place].iter().zip(&waits[to]).map(|(one, other)| one / other).collect()).text(2)
    };
    for (place, name) in ["direct", "hyper", "nginx", "hookonce"].into_iter().enumerate() {
        let middle = Spread::of(waits[place].clone()).median() * 1e3;
        let used = place.checked_sub(1).map_or(String::new(), |proxy| format!("{:.0}", cpu[proxy]));
        println!("  {name:<10} {middle:>8.2} {used:>9}  {:<20} {}", ratio(place, 1), ratio(place, 2));
    }
    println!();
}

fn median(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits[waits.len() / 2]
}

/// This many calls over one connection, each a different delivery.
async fn call(to: SocketAddr, from: usize, calls: usize) -> Vec<Duration> {
    let scheme = VerificationScheme::github(SourceSecrets::new(vec![SECRET.as_bytes().to_vec()]));
    let mut stream = TcpStream::connect(to).await.expect("it takes connections");
    stream.set_nodelay(true).expect("a fresh socket");
    let mut waits = Vec::with_capacity(calls);
    for number in from..from + calls {
        let body = format!("{{\"n\":{number},\"x\":\"{}\"}}", "x".repeat(BODY_BYTES - 20));
        let mut request = "POST /in HTTP/1.1\r\nHost: a\r\n".to_owned();
        for (name, value) in scheme.sign(&format!("delivery-{number}"), Timestamp(0), body.as_bytes()) {
            // Writing to a string cannot fail.
            let _ = write!(request, "{name}: {value}\r\n");
        }
        let _ = write!(request, "Content-Length: {}\r\n\r\n{body}", body.len());
        let sent = Instant::now();
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let answer = message(&mut stream).await.expect("it answers");
        waits.push(sent.elapsed());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    waits
}

/// A server that works this long on each call, and responds with 200.
async fn backend(work: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("a fresh socket");
            tokio::spawn(async move {
                while message(&mut stream).await.is_some() {
                    if !work.is_zero() {
                        tokio::time::sleep(work).await;
                    }
                    let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    address
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
fn proxy(backend: SocketAddr) -> Nginx {
    let kept = format!(
        "keepalive_requests 1000000;\n    upstream backend {{ server {backend}; keepalive 64; keepalive_requests 1000000; }}"
    );
    let to = "location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\"; }";
    Nginx::start_beside(&kept, to)
}

/// A reverse proxy in hyper that does nothing else, in a process of its own.
struct HyperProxy {
    address: SocketAddr,
    child: Child,
}

impl HyperProxy {
    fn start(backend: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--proxy", &backend.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the proxy starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output is ours")).read_line(&mut line).expect("it says where");
        Self { address: line.trim().parse().expect("an address"), child }
    }
}

impl Drop for HyperProxy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Serves until it is killed: sends each request on over a kept connection, and its response back.
async fn serve_proxy(backend: SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("it has an address"));
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("a fresh socket");
        let client = client.clone();
        let service = hyper::service::service_fn(move |request| pass_on(client.clone(), backend, request));
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn pass_on(
    client: Client<HttpConnector, Incoming>,
    backend: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme("http").authority(backend.to_string()).path_and_query(path).build();
    *request.uri_mut() = uri.expect("the parts of a URI");
    client.request(request).await
}

/// The real binary, which responds when the event is done.
struct Hookonce {
    address: SocketAddr,
    child: Child,
}

impl Hookonce {
    fn start(dir: &Path, backend: SocketAddr) -> Self {
        std::fs::create_dir_all(dir).expect("a folder");
        let config = format!(
            r#"
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[source.s]
path    = "/in"
verify  = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
respond = "done"
[[source.s.route]]
forward = {{ url = "http://{backend}/in" }}
"#
        );
        std::fs::write(dir.join("hookonce.toml"), config).expect("a config");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hookonce"));
        command.arg("serve").current_dir(dir).env("SECRET", SECRET).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("hookonce starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output is ours")).lines();
        let url = lines.find_map(|line| line.ok()?.split("http://").nth(1).map(str::to_owned)).expect("it says where");
        std::thread::spawn(move || lines.for_each(drop));
        let authority: String = url.chars().take_while(|c| !matches!(c, '/' | ',')).collect();
        Self { address: authority.trim().parse().expect("an address"), child }
    }
}

impl Drop for Hookonce {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
