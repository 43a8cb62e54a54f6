//! Harness: several nodes on one store, a receiver that counts, and senders that retry.

use crate::faketime::wrong_clock;
use crate::store_servers::StoreServer;
use crate::support::{House, Sent};
use hookonce::decide::event::{DoneReason, EventState};
use hookonce::store::open::StoreUrl;
use hookonce::store::open::{OpenPurpose, open_for};
use hookonce::store::{EventQuery, Inspect};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// How long a fleet may take until every event has ended.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long one delivery is retried.
const SENDING: Duration = Duration::from_mins(1);

/// Receives forwarded events, and honours `Idempotency-Key`.
pub(crate) struct Receiver {
    pub(crate) url: String,
    seen: Arc<Mutex<HashMap<String, u64>>>,
}

impl Receiver {
    /// A receiver that takes this long for each call.
    pub(crate) async fn start(takes: Duration) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/take", listener.local_addr().unwrap());
        let seen: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
        let counts = seen.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let counts = counts.clone();
                let take = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let counts = counts.clone();
                    async move {
                        let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
                        request.into_body().collect().await?;
                        tokio::time::sleep(takes).await;
                        *counts.lock().unwrap().entry(key.clone()).or_default() += 1;
                        Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(format!("took {key}")))))
                    }
                });
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), take));
            }
        });
        Self { url, seen }
    }

    /// The number of effects (one per key), and of calls.
    pub(crate) fn counted(&self) -> (usize, u64) {
        let seen = self.seen.lock().unwrap();
        (seen.len(), seen.values().sum())
    }
}

/// Nodes on one store.
pub(crate) struct Fleet {
    pub(crate) store: StoreServer,
    pub(crate) address: StoreUrl,
    pub(crate) receiver: Receiver,
    nodes: Vec<Mutex<House>>,
    urls: Arc<RwLock<Vec<Option<String>>>>,
    next: AtomicUsize,
}

/// How long the leases of a fleet's events are.
#[derive(Clone, Copy)]
pub(crate) enum Lease {
    /// What a node leaves when it dies is taken over soon. A node that a busy machine delays may lose its lease.
    Short,
    /// No lease ends during the test, unless by mistake.
    Long,
}

/// How a node of the fleet is started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Start<'a> {
    /// Additional arguments.
    pub(crate) args: &'a [&'a str],
    /// How far its machine's clock is off, in faketime's syntax.
    pub(crate) clock: Option<&'a str>,
}

impl Fleet {
    /// Three nodes that forward to a receiver.
    pub(crate) async fn of_three(store: StoreServer, respond: &str, takes: Duration) -> Self {
        Self::start(store, respond, takes, Lease::Short, &[Start::default(); 3]).await
    }

    pub(crate) async fn start(
        store: StoreServer,
        respond: &str,
        takes: Duration,
        lease: Lease,
        starts: &[Start<'_>],
    ) -> Self {
        let receiver = Receiver::start(takes).await;
        let url = store.fresh().await;
        let address = StoreUrl::parse(&url, std::path::Path::new("")).unwrap();
        let lease = match lease {
            Lease::Short => "3s",
            Lease::Long => "60s",
        };
        let config = format!(
            r#"store = "{url}"
[source.s]
path = "/in"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
respond = "{respond}"
[source.s.fields]
key = "body.key"
[source.s.once]
per = [["key"]]
[[source.s.route]]
name = "r"
lease = "{lease}"
at_once = 16
retry = {{ attempts = 50, first = "20ms", longest = "200ms" }}
forward = {{ url = "{}", timeout = "10s" }}
"#,
            receiver.url
        );
        let nodes: Vec<_> = starts.iter().map(|_| Mutex::new(House::empty(&config))).collect();
        let urls = Arc::new(RwLock::new(vec![None; starts.len()]));
        let fleet = Self { store, address, receiver, nodes, urls, next: AtomicUsize::new(0) };
        for (n, start) in starts.iter().enumerate() {
            fleet.start_node(n, *start);
        }
        fleet
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, n: usize) -> std::sync::MutexGuard<'_, House> {
        self.nodes[n].lock().unwrap()
    }

    /// Starts a node that is not running.
    pub(crate) fn start_node(&self, n: usize, start: Start<'_>) {
        let mut house = self.node(n);
        let mut command = house.command(&[&["serve"], start.args].concat());
        if let Some(clock) = start.clock {
            wrong_clock(&mut command, clock);
        }
        house.try_start_by(command).unwrap_or_else(|said| panic!("a node did not start: {said}"));
        let receives = !start.args.contains(&"work");
        self.urls.write().unwrap()[n] = receives.then(|| house.url("/in"));
    }

    /// Kills a node, as a crash would, and starts it again.
    pub(crate) fn crash(&self, n: usize) {
        self.node(n).kill();
        self.start_node(n, Start::default());
    }

    /// Stops a node as a deployment does, and starts it again. The load balancer takes it out first.
    pub(crate) fn replace(&self, n: usize) {
        let url = self.urls.write().unwrap()[n].take();
        assert!(url.is_some());
        let status = self.node(n).stop();
        assert!(status.success(), "{status}");
        self.start_node(n, Start::default());
    }

    /// The URL of one of the nodes that receive.
    fn url(&self) -> Option<String> {
        let urls = self.urls.read().unwrap();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        (0..urls.len()).find_map(|n| urls[(first + n) % urls.len()].clone())
    }

    /// Sends a delivery to the nodes in turn until one accepts it; returns status, body, and how often it was sent.
    pub(crate) async fn send(&self, client: &reqwest::Client, delivery: &Sent) -> (u16, String, u64) {
        let until = Instant::now() + SENDING;
        let mut sent = 0;
        loop {
            assert!(Instant::now() < until, "no node accepted it for a minute");
            let Some(url) = self.url() else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let mut request = client.post(url).body(delivery.body.clone());
            for (name, value) in &delivery.headers {
                request = request.header(name, value);
            }
            sent += 1;
            match request.timeout(Duration::from_secs(20)).send().await {
                Ok(answer) if answer.status().is_success() => {
                    let status = answer.status().as_u16();
                    if let Ok(text) = answer.text().await {
                        return (status, text, sent);
                    }
                }
                Ok(answer) => {
                    let status = answer.status().as_u16();
                    assert!(matches!(status, 409 | 503), "{status}: {:?}", answer.text().await);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Sends `deliveries` deliveries of `keys` keys, in random order, to random nodes, from `senders` senders. Returns
    /// how often each status word was answered.
    pub(crate) async fn flood(self: &Arc<Self>, deliveries: u64, keys: u64, senders: u64) -> BTreeMap<String, u64> {
        let next = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..senders)
            .map(|_| {
                let (fleet, next) = (self.clone(), next.clone());
                tokio::spawn(async move {
                    let client = reqwest::Client::new();
                    let mut words: BTreeMap<String, u64> = BTreeMap::new();
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= deliveries {
                            return words;
                        }
                        // A step that shares no divisor with the number visits each position once, in a scattered
                        // order.
                        let place = (n * 611_953 + 7) % deliveries;
                        let body = format!(r#"{{"key":"k{}","n":{n}}}"#, place % keys);
                        let (_, text, _) = fleet.send(&client, &Sent::github("push", &format!("d{n}"), &body)).await;
                        let answer: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
                        *words.entry(answer["status"].as_str().unwrap_or("receipt").to_owned()).or_default() += 1;
                    }
                })
            })
            .collect();
        let mut all = BTreeMap::new();
        for task in tasks {
            for (word, count) in task.await.unwrap() {
                *all.entry(word).or_default() += count;
            }
        }
        all
    }

    /// Waits until every event has ended; returns how many there are, by how they ended.
    pub(crate) async fn quiet(&self) -> BTreeMap<String, usize> {
        let store = open_for(&self.address, OpenPurpose::Look).await.unwrap();
        over(&*store).await;
        count(&*store).await
    }

    /// Checks that every key has one event and one effect: nothing lost, doubled or stuck.
    pub(crate) async fn settled(&self, what: &str, deliveries: u64, keys: u64, words: &BTreeMap<String, u64>) {
        let ends = self.quiet().await;
        let (effects, calls) = self.receiver.counted();
        println!(
            "{what}: {deliveries} deliveries of {keys} keys: {words:?}; events {ends:?}; {effects} effects in {calls} calls"
        );
        assert_eq!(ends, BTreeMap::from([("acted".to_owned(), usize::try_from(keys).unwrap())]), "{what}");
        assert_eq!(effects as u64, keys, "{what}");
        assert_eq!(words.values().sum::<u64>(), deliveries, "{what}");
    }
}

/// The number of events in the store at this address, by state.
pub(crate) async fn ends(url: &str) -> BTreeMap<String, usize> {
    count(&*look(url).await).await
}

/// The same, when every event has ended.
pub(crate) async fn ends_when_quiet(url: &str) -> BTreeMap<String, usize> {
    let store = look(url).await;
    over(&*store).await;
    count(&*store).await
}

/// Opens the store at this address for reading, beside the nodes.
async fn look(url: &str) -> Arc<dyn Inspect> {
    open_for(&StoreUrl::parse(url, std::path::Path::new("")).unwrap(), OpenPurpose::Look).await.unwrap()
}

/// Waits until every event has ended.
async fn over(store: &dyn Inspect) {
    let until = Instant::now() + PATIENCE;
    // An event may go from one state to the other between two queries, so the first state is queried again.
    let open = ["running", "waiting", "running"];
    let mut clear = 0;
    while clear < open.len() {
        let listing = EventQuery { state: Some(open[clear].into()), limit: 1, ..EventQuery::default() };
        if store.list(listing).await.unwrap().is_empty() {
            clear += 1;
        } else {
            assert!(Instant::now() < until, "some events are still {}", open[clear]);
            clear = 0;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn count(store: &dyn Inspect) -> BTreeMap<String, usize> {
    let mut ends = BTreeMap::new();
    let mut before = None;
    loop {
        let page = store.list(EventQuery { before, limit: 500, ..EventQuery::default() }).await.unwrap();
        for event in &page {
            let end = match &event.state {
                EventState::Done { how: DoneReason::Acted, .. } => "acted".to_owned(),
                EventState::Done { how: DoneReason::Recorded, .. } => "recorded".to_owned(),
                EventState::Done { how: DoneReason::Superseded { .. }, .. } => "superseded".to_owned(),
                EventState::Done { how, .. } => format!("{how:?}"),
                EventState::Waiting { .. } => "waiting".to_owned(),
                EventState::Dead { .. } => "dead".to_owned(),
                EventState::Running { .. } => "running".to_owned(),
            };
            *ends.entry(end).or_default() += 1;
        }
        before = page.last().map(|event| event.id);
        if page.len() < 500 {
            return ends;
        }
    }
}

/// The size of a test: `full` with `HOOKONCE_FULL`, otherwise `small`.
pub(crate) fn size(full: u64, small: u64) -> u64 {
    if std::env::var_os("HOOKONCE_FULL").is_some() { full } else { small }
}
