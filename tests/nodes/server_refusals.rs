//! What users see when the server is unreachable, forbidden, misconfigured, or full.

use crate::cluster::ends;
use crate::disk::Disk;
use crate::postgres;
use crate::redis;
use crate::store_servers::StoreServer;
use crate::support::{Answer, House, PATIENCE, SECRET, Sent, until};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

/// A config with a source that only records, in the store that the environment names.
pub(crate) const RECORDS: &str = r#"store = { env = "STORE" }
[source.s]
path = "/in"
verify = { scheme = "github", secret = { env = "SECRET" } }
[source.s.fields]
key = "body.key"
[source.s.once]
per = [["key"]]
"#;

/// A command of the binary on this store.
pub(crate) fn on(house: &House, url: &str, args: &[&str]) -> Command {
    let mut command = house.command(args);
    command.env("STORE", url);
    command
}

/// A running node on this store.
pub(crate) fn node(config: &str, url: &str) -> House {
    let mut house = House::empty(config);
    let serve = on(&house, url, &["serve"]);
    house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start: {said}"));
    house
}

/// Checks that no node starts on this store, with these words of explanation.
pub(crate) fn check_refused(config: &str, url: &str, args: &[&str], words: &[&str]) {
    let mut house = House::empty(config);
    let serve = on(&house, url, args);
    let said = house.try_start_by(serve).expect_err("it started");
    println!("refused: {}", said.split("error: ").last().unwrap_or_default().replace('\n', " "));
    assert!(said.starts_with("exit status: 2"), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    assert!(!said.contains("hunter2") && !said.contains(SECRET), "{said}");
}

fn delivery(n: usize, more: &str) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}","more":"{more}"}}"#))
}

/// Checks for a 503 with a `Retry-After`.
fn check_come_again(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    let after = answer.header("retry-after").and_then(|after| after.parse::<u64>().ok());
    assert!(after.is_some_and(|after| after > 0), "{answer:?}");
}

/// Sends it until it is accepted.
pub(crate) async fn insist(house: &House, delivery: &Sent) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = house.deliver("/in", delivery).await;
        if answer.status < 300 {
            return answer.word();
        }
        check_come_again(&answer);
        assert!(Instant::now() < until, "it was not accepted: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Checks that there are this many recorded events.
async fn check_events(url: &str, many: usize) {
    assert_eq!(ends(url).await, BTreeMap::from([("recorded".to_owned(), many)]));
}

pub(crate) async fn an_unreachable_store_is_waited_for_at_start(mut store: StoreServer) {
    let url = store.fresh().await;
    store.end();
    let ports = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [listen, admin] = ports.map(|port| format!("127.0.0.1:{}", port.local_addr().unwrap().port()));
    let config = RECORDS.replacen('\n', &format!("\nlisten = \"{listen}\"\n[admin]\nlisten = \"{admin}\"\n"), 1);
    let starting = tokio::task::spawn_blocking(move || node(&config, &url));
    let client = reqwest::Client::new();
    let status = async |at: &str, path: &str| match client.get(format!("http://{at}{path}")).send().await {
        Ok(answer) => Some((answer.status().as_u16(), answer.headers().contains_key("retry-after"))),
        Err(_) => None,
    };
    let begun = Instant::now();
    while status(&listen, "/healthz").await != Some((200, false)) {
        assert!(begun.elapsed() < PATIENCE, "it does not report that it is alive");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for at in [&listen, &admin] {
        assert_eq!(status(at, "/readyz").await, Some((503, true)), "{at}");
        assert_eq!(status(at, "/healthz").await, Some((200, false)), "{at}");
    }
    let one = delivery(1, "");
    for _ in 0..20 {
        let mut request = client.post(format!("http://{listen}/in")).body(one.body.clone());
        for (name, value) in &one.headers {
            request = request.header(name, value);
        }
        let answer = request.send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    }
    assert!(!starting.is_finished());
    store.start_again().await;
    let back = Instant::now();
    let house = starting.await.unwrap();
    let took = back.elapsed();
    assert_eq!(house.ask("GET", "/readyz").await.status, 200);
    assert_eq!(house.deliver("/in", &one).await.word(), "accepted", "nothing was accepted before");
    until("the log to say it", || house.log().contains("again_in=") && house.log().contains("127.0.0.1")).await;
    println!(
        "20 deliveries answered 503; started {took:?} after the server, with {} log lines",
        house.log().matches("again_in=").count()
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_misconfigured_postgres_is_refused_with_a_sentence() {
    let server = postgres::Server::start().await;
    let (database, db) = (server.database().await, server.client("postgres").await);
    let roles = "create role locked login password 'right'; create role poor login; create role tlsonly login";
    db.batch_execute(roles).await.unwrap();
    let inside = server.client(&database).await;
    let refused = |url: &str, words: &[&str]| check_refused(RECORDS, url, &["serve"], words);

    refused(&server.url_of("locked:hunter2", &database), &["password", "locked"]);
    refused(&server.url_of("poor", &database), &["permission denied", "create schema \"hookonce\" authorization"]);
    refused(&server.url("nowhere"), &["nowhere", "createdb"]);
    refused(&server.url_of("tlsonly", &database), &["TLS", "sslmode=require"]);

    // Where the config says so, an old schema is changed only by an operator.
    let manual = RECORDS.replacen('\n', "\nmigrate = \"manual\"\n", 1);
    let url = server.url(&database);
    let house = House::empty(&manual);
    let migrate = |args: &[&str]| on(&house, &url, &[&["migrate"], args].concat()).output().unwrap();
    assert!(migrate(&["up", "--to", "3"]).status.success());
    check_refused(&manual, &url, &["serve"], &["version 3", "hookonce migrate up"]);
    let up = migrate(&["up"]);
    let said = String::from_utf8_lossy(&up.stdout);
    assert!(up.status.success() && said.contains("index events_field_key: built"), "{up:?}");
    drop(node(&manual, &url));

    // One version ahead is a deployment in progress; two are too many.
    let latest = i32::try_from(hookonce::store::schema::postgres::MIGRATIONS.len()).unwrap();
    let newer = "insert into schema_migrations values ($1, 'newer', 'x', 0)";
    inside.execute(newer, &[&(latest + 1)]).await.unwrap();
    let house = node(RECORDS, &url);
    assert_eq!(house.deliver("/in", &delivery(1, "")).await.word(), "accepted");
    drop(house);
    inside.execute(newer, &[&(latest + 2)]).await.unwrap();
    refused(&url, &["newer hookonce"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_misconfigured_redis_is_refused_with_a_sentence() {
    let server = redis::Server::start();
    server.order(&["ACL", "SETUSER", "poor", "on", ">hunter2", "~*", "&*", "+@connection", "+info", "+config|get"]);
    let url = |who: &str| format!("redis://{who}127.0.0.1:{}/", server.port);
    let refused = |url: &str, words: &[&str]| check_refused(RECORDS, url, &["serve"], words);
    refused(&url("poor:hunter2@"), &["ACL SETUSER"]);
    server.order(&["ACL", "SETUSER", "hasty", "on", ">hunter2", "~*", "&*", "+@all", "-wait"]);
    refused(&format!("{}?wait=1", url("hasty:hunter2@")), &["NOPERM", "ACL SETUSER", "+wait"]);
    drop(node(RECORDS, &url("hasty:hunter2@")));
    refused(&format!("{}99", url("")), &["no database of that number"]);
    server.order(&["CONFIG", "SET", "requirepass", "right"]);
    refused(&url(":hunter2@"), &["password"]);
    refused(&url(""), &["password"]);
    let evicts = redis::Server::with(&redis::redis(), &["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"]);
    refused(&evicts.url("a"), &["maxmemory-policy noeviction"]);
    let forgets = redis::Server::with(&redis::redis(), &["--appendonly", "no"]);
    refused(&forgets.url("a"), &["appendonly yes"]);
}

#[test]
fn a_node_role_on_a_file_is_refused() {
    for only in ["ingest", "work"] {
        check_refused(RECORDS, "sqlite:a.db", &["serve", "--only", only], &["cannot be shared", "--only"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_connection_to_spare_is_waited_for() {
    const MANY: usize = 20;
    let server = postgres::Server::start_with(&["max_connections=20", "superuser_reserved_connections=3"]).await;
    let (database, db) = (server.database().await, server.client("postgres").await);
    db.batch_execute(&format!("create role app login; alter database {database} owner to app")).await.unwrap();
    server.client(&database).await.batch_execute("grant all on schema public to app").await.unwrap();
    let url = server.url_of("app", &database);
    let house = node(RECORDS, &url);
    let all: Vec<_> = (0..MANY).map(|n| delivery(n, "")).collect();
    for answer in futures_util::future::join_all(all.iter().map(|one| house.deliver("/in", one))).await {
        assert_eq!(answer.word(), "accepted", "{answer:?}");
    }
    let ours = "select count(*) from pg_stat_activity where application_name = 'hookonce'";
    let most: i64 = db.query_one(ours, &[]).await.unwrap().get(0);

    // The node's connections are ended and others take their place, until it has none. A session that ends, or one that
    // is refused, still has a place for a moment, which is free after that: only if none was free for a while, all are
    // taken.
    let mut others = Vec::new();
    let (begun, mut none_since) = (Instant::now(), None);
    while none_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(500)) {
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'hookonce'";
        let mut free: i64 = db.query_one(end, &[]).await.unwrap().get(0);
        while let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await {
            tokio::spawn(connection);
            others.push(client);
            free += 1;
        }
        none_since = if free == 0 { none_since.or_else(|| Some(Instant::now())) } else { None };
        assert!(begun.elapsed() < PATIENCE, "the node keeps a connection");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for n in MANY..2 * MANY {
        check_come_again(&house.deliver("/in", &delivery(n, "")).await);
    }
    assert_eq!(house.ask("GET", "/readyz").await.status, 503);
    assert_eq!(house.ask("GET", "/healthz").await.status, 200);
    drop(others);
    let back = Instant::now();
    for n in 0..2 * MANY {
        assert_eq!(insist(&house, &delivery(n, "")).await, if n < MANY { "duplicate" } else { "accepted" }, "{n}");
    }
    println!("{MANY} deliveries answered 503, all accepted {:?} after; {most} connections before", back.elapsed());
    let full = ["too many clients", "remaining connection slots"];
    until("the log to say why", || full.iter().any(|words| house.log().contains(words))).await;
    check_events(&url, 2 * MANY).await;
}

/// Text that compresses badly.
fn noise(seed: usize) -> String {
    (0..300_usize)
        .map(|n| hookonce::decide::id::Digest::of(format!("{seed} {n}").as_bytes()))
        .map(|d| hex::encode(d.0))
        .collect()
}

/// Fills the disk with deliveries, frees space, and sends all of them again.
async fn fill(house: &House, disk: &Disk, mut mend: impl AsyncFnMut()) -> (usize, usize) {
    const MANY: usize = 400;
    disk.fill_but(512 << 10);
    let (mut taken, mut refused) = (Vec::new(), 0);
    for n in 0..MANY {
        let answer = house.deliver("/in", &delivery(n, &noise(n))).await;
        if answer.status == 202 {
            taken.push(n);
        } else {
            check_come_again(&answer);
            refused += 1;
            if refused == 20 {
                break;
            }
        }
    }
    assert!(!taken.is_empty() && refused > 0, "{} accepted, {refused} refused", taken.len());
    assert_eq!(house.ask("GET", "/readyz").await.status, 503);
    disk.make_room();
    mend().await;
    // No delivery has arrived yet: a load balancer waits for this before it sends any.
    let patience = Instant::now() + PATIENCE;
    while house.ask("GET", "/readyz").await.status != 200 {
        assert!(Instant::now() < patience, "it does not become ready again: {}", house.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let all = taken.len() + refused;
    for n in 0..all {
        let word = insist(house, &delivery(n, &noise(n))).await;
        assert!(word == "duplicate" || !taken.contains(&n), "{n} was accepted, and is {word} now");
    }
    (all, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_whose_disk_is_full_is_waited_for() {
    let Some(disk) = Disk::mount("size=24m,mode=0777") else { return };
    let server = postgres::Server::start().await;
    let place = disk.0.path().join("tables");
    server.make_folder(&place);
    let db = server.client("postgres").await;
    db.batch_execute(&format!("create tablespace small location '{}'", place.display())).await.unwrap();
    db.batch_execute("create database small tablespace small").await.unwrap();
    let url = server.url("small");
    let house = node(RECORDS, &url);
    let (all, refused) = fill(&house, &disk, async || ()).await;
    until("the log to say why", || house.log().contains("No space left")).await;
    println!("PostgreSQL's disk full: {refused} of {all} answered 503, {all} accepted in the end");
    check_events(&url, all).await;
    drop((house, server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_whose_disk_is_full_is_waited_for() {
    let Some(disk) = Disk::mount("size=8m,mode=0777") else { return };
    let folder = tempfile::tempdir_in(disk.0.path()).unwrap();
    let mut server = redis::Server::inside(folder, &redis::redis(), &[]);
    let url = server.url("a");
    let house = node(RECORDS, &url);
    // With `appendfsync always` it exits when it cannot write: its operator starts it again.
    let (all, refused) = fill(&house, &disk, async || {
        server.kill();
        server.run();
    })
    .await;
    println!("Redis's disk full: {refused} of {all} answered 503, {all} accepted in the end");
    check_events(&url, all).await;
    drop((house, server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_live_says_what_a_node_will_create_in_an_empty_store() {
    let (postgres, redis) = (postgres::Server::start().await, redis::Server::start());
    let check = |config: &str, url: &str, code: i32, words: &str| {
        let house = House::empty(config);
        let output = on(&house, url, &["check", "--live"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), said.contains(words)), (Some(code), true), "{words}: {said}");
    };
    let empty = postgres.url(&postgres.database().await);
    let manual = RECORDS.replacen('\n', "\nmigrate = \"manual\"\n", 1);
    check(RECORDS, &empty, 0, "responds; it is empty, and the first node creates its schema");
    check(&manual, &empty, 1, "migrate = \"manual\"; run `hookonce migrate up`");
    check(RECORDS, &redis.url("empty"), 0, "responds; it is empty, and the first node creates a store in it");
    drop((node(RECORDS, &empty), node(RECORDS, &redis.url("empty"))));
    check(RECORDS, &empty, 0, ": responds\n");
    check(&manual, &empty, 0, ": responds\n");
    check(RECORDS, &redis.url("empty"), 0, ": responds\n");
}
