//! A server's clock that was ahead for a while: nothing waits until the clock gets there again, no lease ends early,
//! and all nodes use the same clock, also those that are started afterwards.

use crate::faketime::{Dial, wrong_clock};
use crate::server_refusals::{RECORDS, node, on};
use crate::support::{House, Sent, until};
use crate::{postgres, redis};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// A config with a command that records when it begins and ends; for the name `fails` it fails.
fn commands(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"store = {{ env = "STORE" }}
[source.s]
path = "/in"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ name = "body.name" }}
once = {{ per = ["delivery"] }}
[[source.s.route]]
name = "r"
lease = "6s"
in_doubt = "retry"
retry = {{ attempts = 1000, first = "1s", longest = "1s" }}
run = {{ steps = ["echo begins $HOOKONCE_FIELD_NAME >> {dir}/told; case $HOOKONCE_FIELD_NAME in fails) exit 1;; esac; sleep 3; echo ends $HOOKONCE_FIELD_NAME >> {dir}/told"] }}
"#
    )
}

fn begun(name: &str) -> Sent {
    Sent::github("push", name, &json!({ "name": name }).to_string())
}

/// How often this line was recorded.
fn times(dir: &Path, words: &str) -> usize {
    let told = std::fs::read_to_string(dir.join("told")).unwrap_or_default();
    told.lines().filter(|line| *line == words).count()
}

/// Sets the clock right, and waits until the node has noticed.
async fn set_right(dial: &Dial, house: &House) {
    let before = house.log().matches("no longer jumps").count();
    dial.set("+0");
    until("it to be noticed", || house.log().matches("no longer jumps").count() > before).await;
}

/// Sets the clock ahead, and waits until each of these nodes has noticed.
async fn set_ahead(dial: &Dial, nodes: &[&House]) {
    let noticed = |node: &House| node.log().matches("would_forget=").count();
    let before: Vec<_> = nodes.iter().map(|node| noticed(node)).collect();
    dial.set("+31d");
    until("it to be noticed", || nodes.iter().zip(&before).all(|(node, before)| noticed(node) > *before)).await;
}

async fn check_nothing_waits_and_no_lease_ends_early(url: &str, dial: &Dial) {
    let dir = tempfile::tempdir().unwrap();
    let config = commands(dir.path());
    let (first, mut second) = (node(&config, url), node(&config, url));
    let times = |words: &str| times(dir.path(), words);
    let tried_again = async |why: &str| {
        let before = times("begins fails");
        until(&format!("what failed to be tried again {why}"), || times("begins fails") > before + 1).await;
    };
    assert_eq!(first.deliver("/in", &begun("fails")).await.word(), "accepted");
    tried_again("by a clock that is right").await;

    // The clock jumps forward while a command runs.
    assert_eq!(first.deliver("/in", &begun("one")).await.word(), "accepted");
    until("it to begin", || times("begins one") == 1).await;
    set_ahead(dial, &[&first]).await;
    tried_again("by a clock that is ahead").await;
    until("it to end", || times("ends one") == 1).await;
    assert_eq!(times("begins one"), 1, "its lease was ended early: {}", first.log());

    // The clock is set right, and then a node is started.
    set_right(dial, &first).await;
    tried_again("by a clock that is right again").await;
    assert!(second.stop().success());
    let serve = on(&second, url, &["serve"]);
    second.try_start_by(serve).unwrap();
    assert_eq!(second.deliver("/in", &begun("two")).await.word(), "accepted");
    until("it to end", || times("ends two") == 1).await;
    assert_eq!(times("begins two"), 1, "the lease of a node that started later was ended early: {}", first.log());

    // A node that dies leaves a lease that ends in time, however the clock was set meanwhile.
    set_ahead(dial, &[&first, &second]).await;
    assert_eq!(second.deliver("/in", &begun("three")).await.word(), "accepted");
    until("it to begin", || times("begins three") == 1).await;
    second.kill();
    set_right(dial, &first).await;
    until("the other node to run it", || times("ends three") == 1).await;

    // A node that is started when none runs continues from the store's clock.
    set_ahead(dial, &[&first]).await;
    tried_again("by a clock that is ahead again").await;
    assert!({ first }.stop().success());
    dial.set("+0");
    let last = node(&config, url);
    tried_again("by a node that has never seen the clock ahead").await;
    assert_eq!(last.deliver("/in", &begun("four")).await.word(), "accepted");
    until("it to end", || times("ends four") == 1).await;
    assert_eq!(times("begins four"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_server_whose_clock_was_ahead_leaves_nothing_waiting_and_ends_no_lease_early() {
    let dial = Dial::new();
    let server = postgres::Server::start_by(&dial.wrap(&postgres::program("postgres")), &[]).await;
    check_nothing_waits_and_no_lease_ends_early(&server.url(&server.database().await), &dial).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_valkey_server_whose_clock_was_ahead_leaves_nothing_waiting_and_ends_no_lease_early() {
    let Some(valkey) = redis::valkey() else { return };
    let dial = Dial::new();
    let server = redis::Server::with(&dial.wrap(&valkey), &[]);
    check_nothing_waits_and_no_lease_ends_early(&server.url("a"), &dial).await;
}

const OTHER: &str = r#"
[source.other]
path = "/other"
verify = { scheme = "github", secret = { env = "SECRET" } }
"#;

/// A node that only receives notices a jump, another one, and an operator's confirmation on a worker; and a node that
/// has seen the clock ahead accepts what another node writes about its sources.
async fn check_every_node_looks_at_the_clock(url: &str, dial: &Dial) {
    let config = RECORDS.replacen("per =", "keep = \"30d\"\nper =", 1);
    let start = |house: &mut House, args: &[&str]| {
        let serve = on(house, url, args);
        house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start: {said}"));
    };
    let (mut ingest, mut worker) = (House::empty(&config), House::empty(&format!("{config}{OTHER}")));
    start(&mut ingest, &["serve", "--only", "ingest"]);
    start(&mut worker, &["serve"]);
    let delivery = Sent::github("push", "d", r#"{"key":"k"}"#);
    assert_eq!(ingest.deliver("/in", &delivery).await.word(), "accepted");
    assert_eq!(worker.deliver("/other", &delivery).await.word(), "accepted");

    set_ahead(dial, &[&ingest]).await;
    assert_eq!(ingest.deliver("/in", &delivery).await.word(), "duplicate");
    dial.set("+62d");
    until("another jump to be logged", || ingest.log().matches("would_forget=").count() >= 2).await;

    set_right(dial, &ingest).await;
    assert!(worker.stop().success());
    start(&mut worker, &["serve"]);
    let had = ingest.ask("DELETE", "/api/sources/other/events").await;
    assert_eq!(had.status, 409, "a running node has it: {had:?}");

    set_ahead(dial, &[&ingest]).await;
    let forgets = worker.ask("POST", "/api/forget?now=1").await;
    assert_eq!(forgets.status, 200, "{forgets:?}");
    until("the confirmation to arrive", || ingest.log().matches("no longer jumps").count() >= 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_only_receives_watches_the_clock_of_postgres() {
    let dial = Dial::new();
    let server = postgres::Server::start_by(&dial.wrap(&postgres::program("postgres")), &[]).await;
    check_every_node_looks_at_the_clock(&server.url(&server.database().await), &dial).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_only_receives_watches_the_clock_of_valkey() {
    let Some(valkey) = redis::valkey() else { return };
    let dial = Dial::new();
    let server = redis::Server::with(&dial.wrap(&valkey), &[]);
    check_every_node_looks_at_the_clock(&server.url("a"), &dial).await;
}

/// Removes what a store of the first release lacks: the time that it last saw.
fn as_the_first_release_left_it(house: &House, url: &str) {
    if url.starts_with("sqlite:") {
        let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
        assert_eq!(db.execute("delete from last_seen", []).unwrap(), 1);
        return;
    }
    let said = if let Some(port) = url.strip_prefix("redis://127.0.0.1:") {
        let port = port.split(['/', '?']).next().unwrap();
        Command::new("redis-cli").args(["-p", port, "del", "{a}:last_seen", "{a}:store_clock"]).output()
    } else {
        let deletes = "delete from hookonce.last_seen; delete from hookonce.store_clock";
        Command::new("psql").args([url, "-Atc", deletes]).output()
    };
    assert!(said.as_ref().unwrap().status.success(), "{said:?}");
}

/// The first start after the first release is under a wrong clock, and so is the next: an event that was received in
/// between proves nothing about the time.
async fn check_an_upgrade_under_a_wrong_clock(url: &str, ahead: impl Fn(&mut Command)) {
    let config = RECORDS.replacen("per =", "keep = \"30d\"\nper =", 1);
    let delivery = |n: usize| Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#));
    let mut house = node(&config, url);
    for n in 0..3 {
        assert_eq!(house.deliver("/in", &delivery(n)).await.word(), "accepted");
    }
    assert!(house.stop().success());
    as_the_first_release_left_it(&house, url);
    for n in 3..5 {
        let mut serve = on(&house, url, &["serve"]);
        ahead(&mut serve);
        house.try_start_by(serve).unwrap();
        assert_eq!(house.deliver("/in", &delivery(n)).await.word(), "accepted");
        assert_eq!(house.ask("POST", "/api/forget").await.json()["forgotten"], 0, "{}", house.log());
        for n in 0..=n {
            assert_eq!(house.deliver("/in", &delivery(n)).await.word(), "duplicate", "k{n}: {}", house.log());
        }
        house.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_under_a_wrong_clock_forgets_nothing_on_sqlite() {
    check_an_upgrade_under_a_wrong_clock("sqlite:hookonce.db", |serve| wrong_clock(serve, "+31d")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_under_a_wrong_clock_forgets_nothing_on_postgres() {
    let dial = Dial::new();
    let server = postgres::Server::start_by(&dial.wrap(&postgres::program("postgres")), &[]).await;
    let url = server.url(&server.database().await);
    check_an_upgrade_under_a_wrong_clock(&url, |_| dial.set("+31d")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_under_a_wrong_clock_forgets_nothing_on_valkey() {
    let Some(valkey) = redis::valkey() else { return };
    let dial = Dial::new();
    let server = redis::Server::with(&dial.wrap(&valkey), &[]);
    check_an_upgrade_under_a_wrong_clock(&server.url("a"), |_| dial.set("+31d")).await;
}
