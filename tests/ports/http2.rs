//! HTTP/2 under the limits of a connection: what a client may make a port wait for, hold or do.

use crate::support::{House, until};
use crate::{Authority, HOOKS, SOURCE, delivery, https, request};
use bytes::Bytes;
use hookonce::internals::config::TlsFiles;
use hookonce::internals::ingress::{ConnectionLimits, PortListener, PortTls, serve};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A port with short times, in this process.
struct Port {
    address: SocketAddr,
    authority: Authority,
    drain: CancellationToken,
    served: tokio::task::JoinHandle<()>,
    running: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
}

const IDLE: Duration = Duration::from_millis(600);

impl Port {
    /// Its handler reads the body, waits if the path says so, and answers with 300,000 bytes if it says so.
    async fn open(limits: ConnectionLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path(), "first");
        authority.certify(dir.path());
        let files = TlsFiles { certificate: dir.path().join("certificate"), key: dir.path().join("key") };
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let listener = PortListener::from(socket).with_tls(Some(PortTls::new(&files).unwrap()));
        let (drain, running) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let count = running.clone();
        let handler = move |request: Request<Incoming>| {
            let running = count.clone();
            async move {
                running.fetch_add(1, Ordering::SeqCst);
                let path = request.uri().path().to_owned();
                let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
                let _ = request.into_body().collect().await;
                if path == "/wait" {
                    tokio::time::sleep(Duration::from_millis(800)).await;
                }
                let body = if path == "/big" { vec![b'x'; 300_000] } else { host.unwrap_or_default().into_bytes() };
                running.fetch_sub(1, Ordering::SeqCst);
                Response::new(Full::<Bytes>::from(body))
            }
        };
        let served = tokio::spawn(serve(listener, handler, limits, drain.clone()));
        Self { address, authority, drain, served, running, _dir: dir }
    }

    fn short() -> ConnectionLimits {
        ConnectionLimits {
            header_time: IDLE,
            idle_time: IDLE,
            drain_time: Duration::from_secs(3),
            answer_bytes_per_second: 10 << 20,
            ..Default::default()
        }
    }

    async fn connect(&self) -> Raw {
        raw(self.address, &self.authority).await
    }

    fn client(&self) -> reqwest::Client {
        self.authority.client().build().unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }
}

/// A connection whose frames the test writes itself.
struct Raw(tokio_rustls::client::TlsStream<TcpStream>);

async fn raw(address: SocketAddr, authority: &Authority) -> Raw {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.file("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    Raw(tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a request, without a dictionary.
fn head(method: u8, path: &str) -> Vec<u8> {
    let literal = |name: u8, text: &str| [&[name, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0x80 | method, 0x87], literal(0x04, path), literal(0x01, "localhost")].concat()
}
const GET: u8 = 2;
const POST: u8 = 3;

impl Raw {
    /// Begins the protocol with these settings.
    async fn begin(&mut self, settings: &[u8]) {
        self.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        self.write(&frame(SETTINGS, 0, 0, settings)).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        // A port that has closed the connection is seen by what is read.
        let _ = self.0.write_all(bytes).await;
        let _ = self.0.flush().await;
    }

    /// The next frame: its kind, flags, stream and payload; `None`: the connection is closed.
    async fn read(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut header = [0; 9];
        tokio::time::timeout(Duration::from_secs(30), self.0.read_exact(&mut header)).await.expect("a frame").ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes(header[5..].try_into().unwrap());
        Some((header[3], header[4], stream, payload))
    }

    /// Reads to the end; returns the reason of the last GOAWAY, if there was one.
    async fn end(&mut self) -> Option<u32> {
        let mut reason = None;
        while let Some((kind, _, _, payload)) = self.read().await {
            if kind == GOAWAY {
                reason = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        reason
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_with_a_goodbye_and_pings_do_not_keep_it() {
    let port = Port::open(Port::short()).await;
    for active in [false, true] {
        let mut connection = port.connect().await;
        connection.begin(&[]).await;
        if active {
            connection.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head(GET, "/"))).await;
        }
        let start = Instant::now();
        let mut reason = None;
        for n in 0u64.. {
            connection.write(&frame(PING, 0, 0, &n.to_be_bytes())).await;
            match tokio::time::timeout(Duration::from_millis(50), connection.read()).await {
                Ok(None) => break,
                Ok(Some((GOAWAY, _, _, payload))) => reason = Some(payload[7]),
                Ok(Some(_)) | Err(_) => {}
            }
            assert!(start.elapsed() < Duration::from_secs(20), "it stays open");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(reason, Some(0), "active: {active}");
        assert!(start.elapsed() >= IDLE / 2, "active: {active} {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_response_that_the_client_accepts_nothing_of_ends_its_connection() {
    let port = Port::open(Port::short()).await;
    let mut connection = port.connect().await;
    // SETTINGS_INITIAL_WINDOW_SIZE = 0
    connection.begin(&[0, 4, 0, 0, 0, 0]).await;
    connection.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head(GET, "/big"))).await;
    let start = Instant::now();
    connection.end().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // One that is read in time is whole, however many there are at once.
    let port = Port::open(ConnectionLimits::default()).await;
    let client = port.client();
    let all = (0..100).map(|_| async {
        let answer = client.get(port.url("/big")).send().await.unwrap();
        answer.bytes().await.unwrap().len()
    });
    assert_eq!(futures_util::future::join_all(all).await, [300_000; 100]);
}

#[tokio::test]
async fn a_request_under_way_keeps_its_connection_and_a_drain_waits_for_it() {
    let port = Port::open(Port::short()).await;
    let client = port.client();
    // Longer than the idle time.
    let answer = client.get(port.url("/wait")).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, reqwest::Version::HTTP_2));
    let waiting = tokio::spawn(client.get(port.url("/wait")).send());
    until("the request to run", || port.running.load(Ordering::SeqCst) == 1).await;
    port.drain.cancel();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    tokio::time::timeout(Duration::from_secs(10), port.served).await.expect("the port closes").unwrap();
}

#[tokio::test]
async fn the_host_is_the_authority_of_the_request_whatever_its_header_says() {
    let port = Port::open(ConnectionLimits::default()).await;
    let answer = port.client().get(port.url("/")).header("host", "evil.example").send().await.unwrap();
    let (version, host) = (answer.version(), answer.text().await.unwrap());
    assert_eq!(version, reqwest::Version::HTTP_2);
    assert_ne!(host, "evil.example");
}

#[tokio::test]
async fn floods_of_resets_headers_and_pings_end_the_connection_and_no_other() {
    let port = Port::open(ConnectionLimits::default()).await;
    let good = port.client();
    assert_eq!(good.get(port.url("/")).send().await.unwrap().status(), 200);
    let resets: Vec<u8> = (0..20_000u32)
        .flat_map(|n| {
            let begun = frame(HEADERS, END_HEADERS, 2 * n + 1, &head(POST, "/wait"));
            [begun, frame(RESET, 0, 2 * n + 1, &8u32.to_be_bytes())].concat()
        })
        .collect();
    let endless = [
        frame(HEADERS, 0, 1, &head(POST, "/")),
        (0..20_000).flat_map(|_| frame(CONTINUATION, 0, 1, &[0x40, 1, b'a', 1, b'b'])).collect(),
    ]
    .concat();
    let settings: Vec<u8> = (0..200_000).flat_map(|_| frame(SETTINGS, 0, 0, &[])).collect();
    for (name, flood) in [("resets", resets), ("headers", endless)] {
        let mut connection = port.connect().await;
        connection.begin(&[]).await;
        connection.write(&flood).await;
        let reason = tokio::time::timeout(Duration::from_mins(1), connection.end()).await.expect(name);
        // ENHANCE_YOUR_CALM, or a connection that was only closed: its GOAWAY may be lost in what was not read.
        assert!(matches!(reason, None | Some(11 | 1)), "{name}: {reason:?}");
        assert_eq!(good.get(port.url("/")).send().await.unwrap().status(), 200, "{name}");
    }
    // These are answered, and cost no memory: nothing of them stays when their sender does not read the answers.
    let mut connection = port.connect().await;
    connection.begin(&[]).await;
    let _ = tokio::time::timeout(Duration::from_secs(5), connection.write(&settings)).await;
    assert_eq!(good.get(port.url("/")).send().await.unwrap().status(), 200);
    until("all requests to end", || port.running.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn bodies_headers_and_requests_have_the_limits_that_they_have_without_http2() {
    let mut house = House::empty(&format!(
        "tls = {{ certificate = \"certificate\", key = \"key\" }}\n{SOURCE}body_max = \"1KB\"\n"
    ));
    let authority = Authority::new(house.dir.path(), "first");
    authority.certify(house.dir.path());
    house.start();
    let (client, url) = (authority.client().build().unwrap(), https(&house, HOOKS));
    let mut large = delivery("large");
    large.body = vec![b' '; 2_000];
    for _ in 0..3 {
        assert_eq!(crate::status(&client, &url, &large).await, 413);
    }
    let long = request(&client, &url, &delivery("long")).header("x-long", "x".repeat(20_000)).send().await.unwrap();
    assert_eq!((long.status().as_u16(), long.version()), (431, reqwest::Version::HTTP_2));
    let many =
        (0..200).fold(request(&client, &url, &delivery("many")), |request, n| request.header(format!("x-{n}"), "1"));
    assert_eq!(many.send().await.unwrap().status(), 431);
    let got = client.get(&url).send().await.unwrap();
    assert_eq!((got.status().as_u16(), got.headers()["allow"].to_str().unwrap()), (405, "POST"));
    // A body that stalls is given up, and the connection goes on.
    let address = https(&house, "").replace("https://", "");
    let mut stalled = raw(address.trim_end_matches('/').parse().unwrap(), &authority).await;
    stalled.begin(&[]).await;
    stalled.write(&frame(HEADERS, END_HEADERS, 1, &head(POST, HOOKS))).await;
    stalled.write(&frame(DATA, 0, 1, b"{")).await;
    let mut seen = Vec::new();
    while !seen.contains(&(HEADERS, 1)) {
        let (kind, _, stream, payload) = stalled.read().await.expect("a response");
        if kind == HEADERS {
            // `:status: 408`, with or without Huffman coding.
            let text = String::from_utf8_lossy(&payload).into_owned();
            assert!(
                text.contains("408") || payload.starts_with(&[0x08]) || payload.starts_with(&[0x48]),
                "{payload:?}"
            );
        }
        seen.push((kind, stream));
    }
    stalled.write(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &head(GET, "/healthz"))).await;
    loop {
        let (kind, _, stream, payload) = stalled.read().await.expect("the connection goes on");
        if (kind, stream) == (HEADERS, 3) {
            assert_eq!(payload[0], 0x88, "200: {payload:?}");
            break;
        }
    }
    // Deliveries at once on one connection are each claimed once.
    let all = (0..200).map(|n| {
        let (client, url) = (client.clone(), url.clone());
        async move { crate::status(&client, &url, &delivery(&format!("at-once-{}", n % 20))).await }
    });
    let statuses = futures_util::future::join_all(all).await;
    assert!(statuses.iter().all(|status| matches!(status, 200 | 202)), "{statuses:?}");
    house.quiet().await;
    assert_eq!(house.count("done"), 20);
}
