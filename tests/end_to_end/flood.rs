//! Floods: what unauthenticated clients may do to the webhook port without blocking signed deliveries.

use crate::support::{House, Sent, until};
use crate::{IN, numbers};
use hookonce::internals::ingress::raise_file_limit;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const KIB: usize = 1 << 10;

fn is_full() -> bool {
    std::env::var_os("HOOKONCE_FULL").is_some()
}

/// The address of the webhook port.
fn address(house: &House) -> String {
    house.url("").trim_start_matches("http://").to_owned()
}

/// A part of a request that is begun and not finished.
#[derive(Clone, Copy)]
enum Unfinished {
    /// A body: the header that frames it, and the bytes that are sent at once. 1.1 KB/s follow.
    Body(&'static str, usize),
    /// Request line and headers: the number of bytes that are sent.
    Head(usize),
}

/// Requests that are begun and never finished, and begun again whenever they are cut off.
struct Tricklers {
    tasks: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
}

impl Tricklers {
    fn start(address: &str, count: usize, what: Unfinished) -> Self {
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..count).map(|_| {
            let (address, stop, begun) = (address.to_owned(), stop.clone(), begun.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let ended = match what {
                        Unfinished::Body(head, first) => trickle(&address, head, first, &begun).await,
                        Unfinished::Head(bytes) => begin_head(&address, bytes, &begun).await,
                    };
                    ended.unwrap_or_default();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
        });
        Self { tasks: tasks.collect(), stop, begun }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn trickle(address: &str, head: &str, first: usize, begun: &AtomicUsize) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("POST {IN} HTTP/1.1\r\nhost: test\r\n{head}\r\n\r\n").as_bytes()).await?;
    let chunked = head.starts_with("transfer");
    let piece = |length: usize| {
        let data = "b".repeat(length);
        if chunked { format!("{length:x}\r\n{data}\r\n") } else { data }
    };
    for sent in (0..first).step_by(64 * KIB) {
        stream.write_all(piece((first - sent).min(64 * KIB)).as_bytes()).await?;
    }
    begun.fetch_add(1, Ordering::Relaxed);
    let (mut answer, mut out) = stream.into_split();
    let trickle = async {
        loop {
            out.write_all(piece(110).as_bytes()).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let mut scrap = Vec::new();
    // Any response ends it.
    tokio::select! { ended = trickle => ended, read = answer.read_buf(&mut scrap) => read.map(drop) }
}

async fn begin_head(address: &str, bytes: usize, begun: &AtomicUsize) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("POST {IN} HTTP/1.1\r\nx-a: {}", "b".repeat(bytes)).as_bytes()).await?;
    begun.fetch_add(1, Ordering::Relaxed);
    stream.read(&mut [0]).await.map(drop)
}

/// A signed delivery of this many bytes.
fn delivery(n: usize, bytes: usize) -> Sent {
    Sent::github("push", &format!("genuine-{n}"), &format!("{{\"n\":{n},\"pad\":\"{}\"}}", "p".repeat(bytes)))
}

/// Sends 200 signed deliveries of 12 to 25 KB; returns how many were accepted.
async fn genuine(house: &House, from: usize) -> usize {
    let mut taken = 0;
    for n in 0..200 {
        let sent = delivery(from + n, 12_000 + n * 65);
        let answer = timeout(Duration::from_secs(10), house.post(IN, &sent.headers, &sent.body)).await;
        taken += usize::from(matches!(answer, Ok(Ok(answer)) if (200..300).contains(&answer.status)));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_unauthenticated_uploads_do_not_block_signed_deliveries() {
    let house = House::new(&numbers("", "run = { steps = [\"true\"] }"));
    let chunked = "transfer-encoding: chunked";
    for (round, (count, head, first)) in [
        // The node's whole memory budget for bodies, minus 11 KiB: the smallest signed delivery has 12.
        (3, chunked, (64 * KIB * KIB - 11 * KIB) / 3),
        (50, chunked, 22 * 64 * KIB),
        (300, chunked, 65 * KIB),
        (300, chunked, 60 * KIB),
        (50, "content-length: 26000000", 0),
    ]
    .into_iter()
    .enumerate()
    {
        let attack = Tricklers::start(&address(&house), count, Unfinished::Body(head, first));
        until("the attack has begun", || attack.begun.load(Ordering::Relaxed) >= count.min(3)).await;
        let taken = genuine(&house, round * 1000).await;
        let begun = attack.begun.load(Ordering::Relaxed);
        attack.stop();
        println!("{count} slow uploads after {first} bytes ({begun} begun): {taken} of 200 accepted");
        assert!(taken >= 198, "{count} slow uploads after {first} bytes: only {taken} of 200 were accepted");
    }
}

/// A connection that has got its response, and is kept open.
async fn kept(address: &str) -> Option<TcpStream> {
    let mut stream = timeout(Duration::from_secs(5), TcpStream::connect(address)).await.ok()?.ok()?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").await.ok()?;
    let mut scrap = [0; 1024];
    timeout(Duration::from_secs(5), stream.read(&mut scrap)).await.ok()?.ok()?;
    Some(stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_alive_connections_beyond_the_limit_do_not_block_the_port() {
    // A node that may open few files accepts few connections: the same rule, with less to open here.
    let (files, flood) = if is_full() { (20_000, 10_500) } else { (1_024, 1_100) };
    let allowed = raise_file_limit(flood).expect("a limit of open files");
    assert!(allowed > flood as u64 + 100, "this system allows a process only {allowed} open files");
    let mut house = House::empty(&numbers("", "run = { steps = [\"true\"] }"));
    let mut command = Command::new("sh");
    let limited = format!("ulimit -n {files}; exec \"$0\" serve");
    command.args(["-c", &limited]).arg(env!("CARGO_BIN_EXE_hookonce")).current_dir(house.dir.path());
    command.env("SECRET", crate::support::SECRET).env_remove("HOOKONCE_CONFIG");
    house.try_start_by(command).unwrap();
    let address = address(&house);
    let mut held = Vec::new();
    for _ in 0..flood {
        held.push(kept(&address).await);
    }
    for n in 0..4 {
        let sent = delivery(n, 100);
        let answer = timeout(Duration::from_secs(20), house.post(IN, &sent.headers, &sent.body)).await;
        assert_eq!(answer.expect("a response in time").unwrap().status, 202);
    }
    house.quiet().await; // the store and commands need files, too
    assert_eq!(house.count("done"), 4);
    drop(held);
}

/// The node's resident memory in kilobytes.
fn resident(house: &House) -> usize {
    memory(house, "VmRSS:")
}

/// The most that it was.
fn most_resident(house: &House) -> usize {
    memory(house, "VmHWM:")
}

fn memory(house: &House, what: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", house.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_flood_of_bodies_and_connections_a_node_has_at_most_256_mb() {
    let wanted = if is_full() { 9_500 } else { 4_000 };
    let allowed = raise_file_limit(wanted).expect("a limit of open files");
    let connections = wanted.min(usize::try_from(allowed).unwrap() - 500);
    let house = House::new(&numbers("", "run = { steps = [\"true\"] }"));
    let (address, before) = (address(&house), resident(&house));
    let mut held = Vec::new();
    for _ in 0..connections {
        held.push(kept(&address).await);
    }
    let connected = resident(&house);
    drop(held);
    let heads = Tricklers::start(&address, connections - 1000, Unfinished::Head(7 * KIB));
    until("the heads have begun", || heads.begun.load(Ordering::Relaxed) >= connections - 1000).await;
    let begun = resident(&house);
    // As many bodies as fit, of all sizes, from many connections at once.
    let mut most = 0;
    for (count, first) in [(3, 22 * KIB * KIB), (64, 900 * KIB), (400, 120 * KIB), (1000, 60 * KIB)] {
        let attack = Tricklers::start(&address, count, Unfinished::Body("transfer-encoding: chunked", first));
        let ends = Instant::now() + Duration::from_secs(4);
        while Instant::now() < ends {
            most = most.max(resident(&house));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        attack.stop();
    }
    heads.stop();
    let sent = delivery(1, 100);
    until("all bodies are gone", || house.log().contains("too_slow") || house.log().contains("malformed")).await;
    assert_eq!(house.post(IN, &sent.headers, &sent.body).await.unwrap().status, 202);
    let after = resident(&house);
    println!(
        "{connections} connections: {} MB at the start, {} MB with them idle, {} MB with unfinished heads, \
         {} MB at most with bodies too, {} MB after",
        before >> 10,
        connected >> 10,
        begun >> 10,
        most >> 10,
        after >> 10
    );
    assert!(most <= 256 << 10, "{} MB", most >> 10);
    assert!(after <= 256 << 10, "{} MB", after >> 10);
}

/// A form takes many times its bytes when it is split, and anyone can send one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsigned_form_of_millions_of_values_costs_little_more_than_its_bytes() {
    let mut house = House::empty(
        "[source.twilio]\npreset = \"twilio\"\nsecret = { file = \"secret\" }\nurl = \"https://h/in/twilio\"\n\
         [[source.twilio.route]]\nrun = { steps = [\"true\"] }\n",
    );
    std::fs::write(house.path("secret"), "a secret of twenty-four b").unwrap();
    house.start();
    let before = most_resident(&house);
    for signature in ["AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAA="] {
        let headers = [
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
            ("x-twilio-signature".to_owned(), signature.to_owned()),
        ];
        let answer = house.post("/in/twilio", &headers, "a&".repeat(12 << 20).as_bytes()).await.unwrap();
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    let more = most_resident(&house) - before;
    assert!(more < 150_000, "{more} kB for 24 MB");
}

/// Sends the same request many times over one connection, and waits for that many responses of this status.
async fn flood(house: &House, request: &str, count: usize, status: u16) {
    let (mut answers, mut requests) = TcpStream::connect(address(house)).await.unwrap().into_split();
    let write = async { requests.write_all(request.repeat(count).as_bytes()).await.unwrap() };
    let read = async {
        let begin = format!("HTTP/1.1 {status}");
        let (mut answered, mut text) = (0, String::new());
        while answered < count {
            let mut bytes = vec![0; 64 * KIB];
            let read = answers.read(&mut bytes).await.unwrap();
            assert!(read > 0, "the connection was closed after {answered}");
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
            answered += text.matches(&begin).count();
            // The beginning of a response may be in the next piece.
            let rest = text.rfind(&begin).map_or(0, |at| at + begin.len()).max(text.len().saturating_sub(begin.len()));
            text.drain(..rest);
        }
    };
    tokio::join!(write, read);
}

/// A request to the webhook port that keeps its connection.
fn request(method: &str, target: &str, body: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Floods the node with a request, and checks that the log has some lines of this word for the source, and in their
/// `unlogged` the number of the others.
async fn check_log_of_flood(house: &House, source: &str, word: &str, (request, status): (String, u16)) {
    const REQUESTS: usize = 5_000;
    let lines = |log: &str| -> Vec<String> {
        let of = log.lines().filter(|line| line.contains(&format!(" {word} ")) && line.contains(source));
        of.map(str::to_owned).collect()
    };
    let begun = Instant::now();
    flood(house, &request, REQUESTS, status).await;
    // The next line comes as soon as there is room for it, and has the number of those before it.
    until("a line that counts", || {
        let logged = lines(&house.log());
        let counts =
            logged.iter().filter_map(|line| line.split("unlogged=").nth(1)?.split(' ').next()?.parse::<usize>().ok());
        let unlogged: usize = counts.sum();
        let mut another = std::net::TcpStream::connect(address(house)).unwrap();
        another.write_all(request.as_bytes()).unwrap();
        another.read_exact(&mut [0]).unwrap();
        logged.len() + unlogged >= REQUESTS
    })
    .await;
    let most = 1_000 + 100 * (usize::try_from(begun.elapsed().as_secs()).unwrap() + 1);
    let logged = lines(&house.log()).len();
    assert!(logged <= most && logged < REQUESTS / 2, "{logged} lines `{word}` in {:?}", begun.elapsed());
}

/// The log is written by strangers here: it must not fill the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_forged_deliveries_the_log_has_some_and_the_number_of_the_others() {
    let house = House::new(&numbers("", "run = { steps = [\"true\"] }"));
    check_log_of_flood(&house, "numbers", "refused", (request("POST", IN, "{}"), 401)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_handshakes_and_deliveries_that_no_secret_proves_the_log_has_some_too() {
    let source = |name: &str, keys: &str| {
        format!("[source.{name}]\n{keys}\n[[source.{name}.route]]\nrun = {{ steps = [\"true\"] }}\n")
    };
    let mut house = House::empty(
        &[
            source("notion", "preset = \"notion\"\nsecret = { file = \"secret\" }"),
            source("asana", "preset = \"asana\"\nsecret = { file = \"later\" }"),
            source("open", "path = \"/in/open\"\nverify = \"none\"\nfields = { n = \"body.n\" }\nwhen = 'n == 1'"),
        ]
        .concat(),
    );
    std::fs::write(house.path("secret"), "a secret of twenty-four b").unwrap();
    house.start();
    let post = |target: &str, body: &str| request("POST", target, body);
    let token = r#"{"verification_token":"secret_x"}"#;
    check_log_of_flood(&house, "notion", "handshake", (post("/in/notion", token), 200)).await;
    check_log_of_flood(&house, "open", "ignored", (post("/in/open", r#"{"n":2}"#), 200)).await;
    check_log_of_flood(&house, "asana", "unavailable", (post("/in/asana", "{}"), 503)).await;
    assert_eq!(house.post("/in/open", &[], br#"{"n":1}"#).await.unwrap().status, 202);
    house.quiet().await;
    check_log_of_flood(&house, "same=body", "duplicate", (post("/in/open", r#"{"n":1}"#), 200)).await;
}
