//! A Redis behind sentinels: a primary, a replica and three sentinels.

use crate::data_loss::{ACTS, act, delivery, goes_on_when_told, start};
use crate::redis::{self, Server};
use crate::server_refusals::{insist, on};
use crate::support::{self, House, PATIENCE};
use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

/// A primary and its replica, watched by sentinels.
struct Watched {
    primary: Server,
    replica: Server,
    sentinels: Vec<Server>,
}

/// A value of a server's replication info; empty if it does not respond: sentinels cut the connections of a server
/// whose role they change.
fn info(server: &Server, name: &str) -> String {
    let client = ::redis::Client::open(server.url("a")).and_then(|client| client.get_connection());
    let info = client.and_then(|mut client| ::redis::cmd("INFO").arg("replication").query::<String>(&mut client));
    let info = info.unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    line.trim().to_owned()
}

fn until(what: &str, fact: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !fact() {
        assert!(Instant::now() < patience, "timed out waiting for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Watched {
    /// The replica connects as a user of its own, which can be disabled.
    fn start(sentinels: usize) -> Self {
        let primary = Server::start();
        primary.order(&["ACL", "SETUSER", "copier", "on", ">pass", "~*", "&*", "+@all"]);
        let of = ["--replicaof", "127.0.0.1", &primary.port.to_string(), "--masteruser", "copier"].map(str::to_owned);
        let words: Vec<&str> = of.iter().map(String::as_str).chain(["--masterauth", "pass"]).collect();
        let replica = Server::with(&redis::redis(), &words);
        until("the replica to copy", || info(&replica, "master_link_status") == "up");
        let sentinels: Vec<_> = (0..sentinels).map(|_| Server::sentinel_of(&primary)).collect();
        for sentinel in &sentinels {
            let knows = |field: &str, many: i64| {
                let master = sentinel.order(&["SENTINEL", "MASTER", "main"]);
                let fields: std::collections::HashMap<String, String> = ::redis::from_redis_value(master).unwrap();
                fields.get(field).and_then(|found| found.parse().ok()) == Some(many)
            };
            until("the sentinels to know each other", || knows("num-slaves", 1) && knows("num-other-sentinels", 2));
        }
        Self { primary, replica, sentinels }
    }

    fn url(&self, more: &str) -> String {
        let at: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/main?prefix=a{more}", at.join(","))
    }

    /// Waits until the replica has everything.
    fn caught_up(&self) {
        let offset = |server: &Server, name| info(server, name).parse::<u64>().unwrap_or_default();
        until("the replica to have everything", || {
            offset(&self.replica, "slave_repl_offset") >= offset(&self.primary, "master_repl_offset")
        });
    }

    /// Cuts the replica off from the primary.
    fn cut_off(&self) {
        self.primary.order(&["ACL", "SETUSER", "copier", "off"]);
        self.primary.order(&["CLIENT", "KILL", "TYPE", "replica"]);
        until("the replica to be cut off", || info(&self.replica, "master_link_status") == "down");
    }

    /// The primary dies, and the sentinels promote the replica.
    fn fail_over(&mut self) {
        self.primary.kill();
        until("the sentinels to act", || info(&self.replica, "role") == "master");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_sentinels_is_followed_and_a_done_event_does_not_act_again() {
    let mut watched = Watched::start(3);
    let url = watched.url("");
    let mut house = House::empty(ACTS);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "once").await;
    watched.caught_up();
    watched.fail_over();
    assert_eq!(insist(&house, &delivery("once")).await, "duplicate");
    assert_eq!(insist(&house, &delivery("twice")).await, "accepted");
    support::until("the command to run", || house.lines("acted") == ["once", "twice"]).await;
    assert!(house.stop().success());
    start(&mut house, &url, &[]).unwrap();
    assert_eq!(house.deliver("/in", &delivery("twice")).await.word(), "duplicate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_behind_and_became_the_primary_is_noticed_by_the_node_and_its_successor() {
    let mut watched = Watched::start(3);
    let url = watched.url("");
    let mut house = House::empty(ACTS);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "before").await;
    watched.caught_up();
    watched.cut_off();
    act(&house, "lost").await;
    watched.fail_over();
    let (status, said) = house.wait();
    assert!(status.code() == Some(2) && said.contains("--accept-loss"), "{status}: {said}");
    goes_on_when_told(&mut house, &url, &["forgotten writes"], "lost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_wait_no_2xx_is_sent_before_a_replica_has_it() {
    let watched = Watched::start(0);
    let url = format!("{}&wait=1", watched.primary.url("a"));
    // An unconfirmed write belongs to the node until its lease is over.
    let mut house = House::empty(&ACTS.replace("name = \"r\"", "name = \"r\"\nlease = \"3s\""));
    start(&mut house, &url, &[]).unwrap();
    act(&house, "before").await;
    watched.cut_off();
    for key in ["new", "before"] {
        let answer = house.deliver("/in", &delivery(key)).await;
        // An event that was confirmed before may be answered; nothing that was written since.
        assert!(answer.status == 503 || key == "before", "{key}: {answer:?}");
    }
    assert!(!house.lines("acted").contains(&"new".to_owned()), "it acted on a write that may be lost");
    support::until("the missing replica to be logged", || house.log().contains("0 of 1 replicas")).await;
    watched.primary.order(&["ACL", "SETUSER", "copier", "on"]);
    insist(&house, &delivery("new")).await;
    support::until("the command to run", || house.lines("acted") == ["before", "new"]).await;
    watched.caught_up();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_no_longer_permits_wait_is_reported_and_nothing_acts_meanwhile() {
    let watched = Watched::start(0);
    let primary = &watched.primary;
    primary.order(&["ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all"]);
    let url = primary.url("a").replace("://", "://app:hunter2@") + "&wait=1";
    // An unconfirmed write belongs to the node until its lease is over.
    let mut house = House::empty(&ACTS.replace("name = \"r\"", "name = \"r\"\nlease = \"3s\""));
    start(&mut house, &url, &[]).unwrap();
    act(&house, "before").await;
    primary.order(&["ACL", "SETUSER", "app", "-wait"]);
    let answer = house.deliver("/in", &delivery("new")).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    support::until("the missing right to be logged", || {
        house.log().lines().any(|line| line.contains("NOPERM") && line.contains("+wait"))
    })
    .await;
    let log = house.log();
    assert!(!log.contains("of 1 replicas") && !log.contains("hunter2"), "{log}");
    assert_eq!(house.lines("acted"), ["before"], "it acted on a write that may be lost");
    primary.order(&["ACL", "SETUSER", "app", "+wait"]);
    insist(&house, &delivery("new")).await;
    support::until("the command to run", || house.lines("acted") == ["before", "new"]).await;
}

/// Starts a node and returns the log line about what it waits for; if it starts after all, the line with its address.
fn waits(url: &str) -> String {
    let house = House::empty(ACTS);
    let (said, says) = std::io::pipe().unwrap();
    let mut serve = on(&house, url, &["serve"]);
    let mut child = serve.stdout(says.try_clone().unwrap()).stderr(says).spawn().unwrap();
    let mut lines = BufReader::new(said).lines().map(Result::unwrap);
    let said = lines.find(|line| line.contains("again_in=") || line.starts_with("dashboard "));
    child.kill().unwrap();
    child.wait().unwrap();
    said.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_only_a_minority_of_the_sentinels_names_is_not_written_to() {
    let (mut named, other) = (Server::start(), Server::start());
    let sentinels = [&named, &named, &other].map(Server::sentinel_of);
    let ports: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
    let url = format!("redis+sentinel://{}/main?prefix=a", ports.join(","));
    let mut house = House::empty(ACTS);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "before").await;
    named.kill();
    let untouched = || assert_eq!(other.order(&["DBSIZE"]), ::redis::Value::Int(0), "the other server was written to");
    for _ in 0..10 {
        let answer = house.deliver("/in", &delivery("new")).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        untouched();
    }
    // A node that starts meanwhile waits for the same server.
    let said = waits(&url);
    assert!(said.contains("cannot be reached") && said.contains(&named.port.to_string()), "{said}");
    untouched();
    named.run();
    assert_eq!(insist(&house, &delivery("before")).await, "duplicate");
    assert_eq!(insist(&house, &delivery("new")).await, "accepted");
    untouched();
}

#[test]
fn sentinels_that_do_not_agree_on_the_primary_are_waited_for() {
    let servers = [Server::start(), Server::start()];
    let sentinels = [&servers[0], &servers[1]].map(Server::sentinel_of);
    let ports: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
    let url = format!("redis+sentinel://{}/main?prefix=a", ports.join(","));
    let said = waits(&url);
    assert!(said.contains("more than half must name it"), "{said}");
    for server in servers {
        assert_eq!(server.order(&["DBSIZE"]), ::redis::Value::Int(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_wait_a_failover_that_loses_only_what_no_replica_confirmed_is_followed() {
    let mut watched = Watched::start(3);
    // It copies from the replica, so that this has a replica of its own once it is the primary.
    let next = Server::with(&redis::redis(), &["--replicaof", "127.0.0.1", &watched.replica.port.to_string()]);
    until("the next replica to copy", || info(&next, "master_link_status") == "up");
    let url = watched.url("&wait=1");
    let mut house = House::empty(&ACTS.replace("name = \"r\"", "name = \"r\"\nlease = \"3s\""));
    start(&mut house, &url, &[]).unwrap();
    act(&house, "before").await;
    watched.caught_up();
    watched.cut_off();
    for _ in 0..2 {
        let answer = house.deliver("/in", &delivery("new")).await;
        assert_eq!(answer.status, 503, "{answer:?}");
    }
    support::until("the missing replica to be logged", || house.log().contains("0 of 1 replicas")).await;
    watched.fail_over();
    insist(&house, &delivery("new")).await;
    support::until("the command to run", || house.lines("acted") == ["before", "new"]).await;
    assert_eq!(insist(&house, &delivery("before")).await, "duplicate");
    assert!(house.stop().success());
    start(&mut house, &url, &[]).unwrap();
    assert_eq!(house.deliver("/in", &delivery("new")).await.word(), "duplicate");
    assert_eq!(house.lines("acted"), ["before", "new"]);
}

#[test]
fn sentinels_that_do_not_know_the_name_are_reported() {
    let watched = Watched::start(3);
    let url = watched.url("").replace("/main?", "/other?");
    crate::server_refusals::check_refused(ACTS, &url, &["serve"], &["none of the sentinels knows", "`other`"]);
}
