//! Redis as a store: the conformance suite, the same history as in memory, what is refused, and how it is reached.

use crate::START;
use crate::redis_server::{self as server, Server};
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::event::{Event, EventStep, Outcome, SucceededBlocks};
use hookonce::decide::id::{EventId, NodeId};
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::{Keep, Retention, Route};
use hookonce::decide::time::Duration;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance;
use hookonce::store::conformance::{StoreUnderTest, TestEventBuilder, making};
use hookonce::store::redis::{RedisAccess, RedisOpenOptions, RedisStore};
use hookonce::store::{
    AdvanceResult, ChangeHint, DueQuery, ForgetCounts, Inspect, RetentionPolicies, Store, StoreBackend, StoreError,
    StoreOpenError,
};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) async fn open(url: &str) -> Result<RedisStore, StoreOpenError> {
    RedisStore::open(url, RedisOpenOptions { clock: StoreClock::server(), access: RedisAccess::Node }).await
}

pub(crate) async fn claim(store: &impl Store, one: TestEventBuilder) -> ClaimResult {
    let new = one.made(store.now());
    store.claim(vec![new.into()]).await.unwrap().remove(0)
}

pub(crate) async fn new(store: &impl Store, one: TestEventBuilder) -> Event {
    match claim(store, one).await {
        ClaimResult::New { event, .. } => *event,
        other => panic!("{other:?}"),
    }
}

/// Starts an event and ends it successfully.
pub(crate) async fn act(store: &impl Store, event: &Event) {
    let start = EventStep::Start { lasts: Duration::from_mins(1), by: NodeId("node".into()), action: ActionKind::Run };
    let end = EventStep::Settle { outcome: Outcome::Delivered(None), blocks: SucceededBlocks(0), jitter: Jitter(0) };
    let mut event = event.clone();
    for step in [start, end] {
        let change = event.transition(step, &Route::default(), store.now()).unwrap();
        match store.advance(vec![change]).await.unwrap().remove(0) {
            AdvanceResult::Written { event: next, .. } => event = *next,
            AdvanceResult::Lost => panic!("lost"),
        }
    }
}

async fn keeps_the_contract(program: &Path) {
    let server = Arc::new(Server::with(program, &[]));
    let count = AtomicU32::new(0);
    conformance::run(async || {
        let prefix = format!("rule{}", count.fetch_add(1, Ordering::Relaxed));
        let clock = StoreClock::manual(START);
        let options = RedisOpenOptions { clock: clock.clone(), access: RedisAccess::Node };
        let store = RedisStore::open(&server.url(&prefix), options).await.unwrap();
        let server = server.clone();
        let spoil = move |id: EventId| {
            let name = [format!("{{{prefix}}}b").as_bytes(), &id.0].concat();
            let mut client = server.client();
            let length: usize = ::redis::cmd("STRLEN").arg(&name).query(&mut client).unwrap();
            ::redis::cmd("SETRANGE").arg(name).arg(length - 1).arg("\u{1}").exec(&mut client).unwrap();
        };
        StoreUnderTest::by(store, &clock).spoiled_by(spoil).counting_by_state_only()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_passes_the_conformance_suite() {
    keeps_the_contract(&server::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_passes_the_conformance_suite() {
    match server::valkey() {
        Some(program) => keeps_the_contract(&program).await,
        None => println!("skipped: there is no valkey-server here, and HOOKONCE_VALKEY names none"),
    }
}

/// Fewer than for SQLite, unless all of them are asked for.
#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_history_gives_the_same_results_in_redis() {
    let server = Server::start();
    let count = AtomicU32::new(0);
    let seeds = if std::env::var_os("HOOKONCE_FULL").is_some() { crate::random_history::SEEDS } else { 12 };
    let answers = crate::random_history::live_all(1..=seeds, async |clock| {
        let url = server.url(&format!("history{}", count.fetch_add(1, Ordering::Relaxed)));
        let store = RedisStore::open(&url, RedisOpenOptions { clock, access: RedisAccess::Node }).await.unwrap();
        let store: Box<dyn Inspect> = Box::new(store);
        vec![store]
    })
    .await;
    let words = ["new", "duplicate", "instead", "stale", "ended", "lost", "forgotten"];
    assert!(crate::seed::given().is_some() || words.iter().all(|word| answers.contains_key(word)), "{answers:?}");
}

async fn refused(url: &str) -> String {
    match open(url).await {
        Err(StoreOpenError::Permanent(why)) => {
            assert!(!why.contains("hidden"), "{why}");
            why.to_string()
        }
        Err(other) => panic!("not a permanent error: {other}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[tokio::test]
async fn a_server_that_may_lose_data_is_refused_unless_the_url_permits_it() {
    let evicts = Server::with(&server::redis(), &["--maxmemory-policy", "allkeys-lru"]);
    let why = refused(&evicts.url("a")).await;
    assert!(why.contains("`maxmemory-policy allkeys-lru`") && why.contains("evicts=yes"), "{why}");
    new(&open(&(evicts.url("a") + "&evicts=yes")).await.unwrap(), making().delivery("d1")).await;

    let forgets = Server::with(&server::redis(), &["--appendonly", "no"]);
    let why = refused(&forgets.url("a")).await;
    assert!(why.contains("`appendonly no`") && why.contains("durable=no"), "{why}");
    new(&open(&(forgets.url("a") + "&durable=no")).await.unwrap(), making().delivery("d1")).await;

    let late = Server::with(&server::redis(), &["--appendfsync", "everysec"]);
    new(&open(&late.url("a")).await.unwrap(), making().delivery("d1")).await; // it only warns
}

#[tokio::test]
async fn a_replica_a_wrong_password_and_an_unreachable_server_have_different_errors() {
    let primary = Server::start();
    let replica = Server::with(&server::redis(), &["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    let why = refused(&replica.url("a")).await;
    assert!(why.contains("is a replica") && why.contains("primary"), "{why}");

    primary.order(&["CONFIG", "SET", "requirepass", "right"]);
    let why = refused(&format!("redis://:hidden@127.0.0.1:{}", primary.port)).await;
    assert!(why.contains("refuses the user or password"), "{why}");
    let why = refused(&primary.url("a")).await;
    assert!(why.contains("asks for a password"), "{why}");
    new(&open(&format!("redis://:right@127.0.0.1:{}", primary.port)).await.unwrap(), making().delivery("d1")).await;

    let url = replica.url("a");
    drop(replica);
    match open(&url).await {
        Err(StoreOpenError::Temporary(why)) => assert!(why.contains("cannot be reached"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_user_may_not_query_must_be_stated_in_the_url() {
    let server = Server::start();
    let user = |name: &str, rights: &[&str]| {
        server.order(&[&["ACL", "SETUSER", name, "on", ">hidden", "~{hookonce}*", "&*", "+@all"], rights].concat());
        format!("redis://{name}:hidden@127.0.0.1:{}/?", server.port)
    };
    // INFO shows the policy where CONFIG is not permitted; only `appendfsync` is unknown, and that is a warning.
    let url = user("noconfig", &["-config"]);
    new(&open(&url).await.unwrap(), making().delivery("d1")).await;
    let url = user("noinfo", &["-config", "-info"]);
    let why = refused(&url).await;
    assert!(why.contains("evicts=yes"), "{why}");
    let why = refused(&(url.clone() + "evicts=yes")).await;
    assert!(why.contains("durable=no"), "{why}");
    open(&(url + "evicts=yes&durable=no")).await.unwrap();
    for (name, right) in [("noscript", "-@scripting"), ("nozadd", "-zadd"), ("nowrite", "-@write")] {
        let why = refused(&user(name, &[right])).await;
        assert!(why.contains("+@scripting"), "{why}");
    }
    let why = refused(&(user("other", &[]) + "prefix=another")).await;
    assert!(why.contains("~{another}*"), "{why}");
    // A user that may not publish can still write.
    let quiet = open(&user("quiet", &["resetchannels"])).await.unwrap();
    new(&quiet, making().delivery("d2")).await;
}

#[tokio::test]
async fn a_reader_creates_no_store_and_writes_nothing() {
    let server = Server::start();
    let read = || RedisStore::open("", RedisOpenOptions { clock: StoreClock::server(), access: RedisAccess::Read });
    assert!(read().await.is_err());
    let url = server.url("a");
    let read = async || {
        RedisStore::open(&url, RedisOpenOptions { clock: StoreClock::server(), access: RedisAccess::Read }).await
    };
    let why = read().await.unwrap_err().to_string();
    assert!(why.contains("holds no store under the prefix `a`"), "{why}");
    let store = open(&url).await.unwrap();
    let event = new(&store, making().delivery("d1")).await;
    let reader = read().await.unwrap();
    assert_eq!(reader.get(event.id).await.unwrap(), Some(event));
    let claimed = reader.claim(vec![making().delivery("d2").made(store.now()).into()]).await;
    assert!(matches!(claimed, Err(StoreError::Down(_))), "{claimed:?}");
    assert!(matches!(claim(&reader, making().delivery("d1")).await, ClaimResult::Duplicate { .. }));
}

#[tokio::test]
async fn a_cluster_node_can_be_a_store_and_the_right_one_is_found() {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let ports = [free(), free()];
    let node = |bus: &str| Server::with(&server::redis(), &["--cluster-enabled", "yes", "--cluster-port", bus]);
    let (first, second) = (node(&ports[0]), node(&ports[1]));
    first.order(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]);
    second.order(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]);
    first.order(&["CLUSTER", "MEET", "127.0.0.1", &second.port.to_string(), &ports[1]]);
    let up = |server: &Server| format!("{:?}", server.order(&["CLUSTER", "INFO"])).contains("cluster_state:ok");
    let begun = std::time::Instant::now();
    while !(up(&first) && up(&second)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the cluster does not come up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut there = 0;
    for prefix in ["a", "b", "c", "d", "e", "f"] {
        let store = open(&first.url(prefix)).await.unwrap();
        let event = new(&store, making().delivery("d1").group("g").change("s", "v", None)).await;
        act(&store, &event).await;
        assert!(matches!(claim(&store, making().delivery("d1")).await, ClaimResult::Duplicate { .. }));
        let keys = format!("{:?}", second.order(&["KEYS", &format!("{{{prefix}}}:all")]));
        there += usize::from(keys.contains(":all"));
    }
    assert!((1..6).contains(&there), "they are not on both nodes: {there}");
}

#[tokio::test]
async fn tls_is_used_with_a_trusted_certificate_only() {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = |name: &str| dir.path().join(name).display().to_string();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (cert, key) = (file("cert.pem"), file("key.pem"));
    let words = ["--tls-port", &port.to_string(), "--tls-cert-file", &cert, "--tls-key-file", &key];
    let _server = Server::with(&server::redis(), &[&words[..], &["--tls-auth-clients", "no"]].concat());
    let url = format!("rediss://localhost:{port}");
    let why = refused(&url).await;
    assert!(why.contains("certificate is not trusted") && why.contains("roots="), "{why}");
    new(&open(&format!("{url}?roots={cert}")).await.unwrap(), making().delivery("d1")).await;
}

#[tokio::test]
async fn a_unix_socket_works() {
    let server = Server::with(&server::redis(), &["--unixsocket", "socket"]);
    let path = server.dir.path().join("socket");
    new(&open(&format!("redis+unix://{}?prefix=x", path.display())).await.unwrap(), making().delivery("d1")).await;
}

#[tokio::test]
async fn nodes_notify_each_other_of_due_and_ended_events() {
    let server = Server::start();
    let (here, there) = (open(&server.url("a")).await.unwrap(), open(&server.url("a")).await.unwrap());
    let mut heard = there.hints().unwrap();
    // The start of listening is reported as `Missed`, perhaps before this subscription.
    let mut comes = async |wanted: ChangeHint, patience: Duration| {
        let wait = async { while heard.recv().await.unwrap() != wanted {} };
        tokio::time::timeout(patience, wait).await.is_ok()
    };
    let due = ChangeHint::Due { source: "s".into(), route: "r".into() };
    let mut event = None;
    for n in 0..100 {
        event = Some(new(&here, making().source("s").route("r").delivery(&n.to_string())).await);
        if comes(due.clone(), Duration::from_millis(200)).await {
            break;
        }
        assert!(n < 99, "there is no hint that something is due");
    }
    let event = event.unwrap();
    act(&here, &event).await;
    assert!(comes(ChangeHint::Ended(event.id), Duration::from_secs(20)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_removed_sources_and_routes_are_dropped_and_come_back_with_their_events() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    let set = |name: &str| -> usize {
        ::redis::cmd("SCARD").arg(format!("{{a}}:{name}")).query(&mut server.client()).unwrap()
    };
    let kept = Retention { keys: Keep::For(Duration::ZERO), body: Duration::ZERO };
    let keeps = Arc::new(RetentionPolicies { sources: (0..50).map(|n| (format!("s{n}").into(), kept)).collect() });
    let strays = || DueQuery::Orphans(Arc::new([]));
    for n in 0..50 {
        let event = new(&store, making().source(&format!("s{n}")).route(&format!("r{n}")).kept(kept)).await;
        act(&store, &event).await;
    }
    // A running event is in no queue, and is queued again when it is handed back.
    let runs = new(&store, making().source("runs").route("r")).await;
    let step = async |event: &Event, step: EventStep| {
        let change = event.transition(step, &Route::default(), store.now()).unwrap();
        match store.advance(vec![change]).await.unwrap().remove(0) {
            AdvanceResult::Written { event, .. } => *event,
            AdvanceResult::Lost => panic!("lost"),
        }
    };
    let running = step(
        &runs,
        EventStep::Start { lasts: Duration::from_mins(1), by: NodeId("node".into()), action: ActionKind::Run },
    )
    .await;
    assert_eq!((set("routes"), set("sources")), (51, 50));
    while store.forget(keeps.clone(), 500).await.unwrap() != ForgetCounts::default() {}
    store.due(strays(), 10).await.unwrap();
    store.other_sources([].into()).await.unwrap();
    assert_eq!((set("routes"), set("sources")), (0, 0));
    step(&running, EventStep::HandBack).await;
    let due = store.due(strays(), 10).await.unwrap().events;
    assert_eq!(due.iter().map(|event| event.id).collect::<Vec<_>>(), [runs.id]);
    assert_eq!((set("routes"), set("sources")), (1, 0));
}
