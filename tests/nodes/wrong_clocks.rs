//! Clocks that are set wrong while events are kept: nothing is removed, and no genuine delivery is rejected.

use crate::faketime::{Dial, wrong_clock};
use crate::server_refusals::{RECORDS, on};
use crate::support::{House, PATIENCE, SECRET, Sent, until};
use crate::{postgres, redis};
use base64::Engine as _;
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::VerificationScheme;
use hookonce::store::clock::StoreClock;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// Number of events that have ended when the clock jumps.
const MANY: usize = 5;
const DAYS: f64 = 31.0 * 24.0 * 3600.0;
const SQLITE: &str = "sqlite:hookonce.db";

fn delivery(n: usize) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#))
}

/// Starts a node on this store, with a clock that is off by this.
fn start(house: &mut House, url: &str, clock: Option<&str>) {
    let mut serve = on(house, url, &["serve"]);
    if let Some(by) = clock {
        wrong_clock(&mut serve, by);
    }
    house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start: {said}"));
}

fn kept_for_a_month() -> String {
    RECORDS.replacen("per =", "keep = \"30d\"\nper =", 1)
}

async fn check_repeats(house: &House, keys: impl Iterator<Item = usize>, why: &str) {
    for n in keys {
        let answer = house.deliver("/in", &delivery(n)).await;
        assert_eq!(answer.word(), "duplicate", "k{n} {why}: {answer:?}\n{}", house.log());
    }
}

async fn forget(house: &House, how: &str) -> Value {
    let answer = house.ask("POST", &format!("/api/forget{how}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn waiting(house: &House) -> Value {
    house.ask("GET", "/api/overview").await.json()["clock"]["waiting"].clone()
}

async fn metric(house: &House, name: &str) -> f64 {
    let page = house.metrics().await;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("hookonce_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

/// Checks that the pending jump is in the log, the metrics, the overview and the response of a sweep, which removes
/// nothing.
async fn check_it_is_said(house: &House) {
    until("the log line", || house.log().contains("would_forget=")).await;
    let log = house.log();
    let line = log.lines().find(|line| line.contains("would_forget=")).unwrap();
    for words in ["WARN expiry", "10m", "forget --now", &format!("would_forget={MANY}")] {
        assert!(line.contains(words), "no {words} in {line}");
    }
    let swept = forget(house, "").await;
    assert_eq!((&swept["forgotten"], swept["bodies"].as_u64()), (&0.into(), Some(0)), "{swept}");
    let waits = waiting(house).await;
    assert_eq!(waits["would_forget"], MANY, "{waits}");
    for jump in [&swept["waiting"]["jump"], &waits["jump"]] {
        assert!((jump.as_f64().unwrap() - DAYS).abs() < 300.0, "{swept} {waits}");
    }
    assert!((metric(house, "expiry_behind_seconds").await - DAYS).abs() < 300.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_started_once_with_a_clock_a_month_ahead_removes_nothing() {
    let mut house = House::empty(&kept_for_a_month());
    start(&mut house, SQLITE, None);
    for n in 0..MANY {
        assert_eq!(house.deliver("/in", &delivery(n)).await.word(), "accepted");
    }
    assert!(house.stop().success());

    start(&mut house, SQLITE, Some("+31d"));
    check_it_is_said(&house).await;
    check_repeats(&house, 0..MANY, "under the wrong clock").await;
    let said = house.command(&["forget", "--admin", &house.admin_url("")]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("forgot 0 events") && said.contains("hookonce forget --now"), "{said}");
    assert_eq!(house.deliver("/in", &delivery(MANY)).await.word(), "accepted");
    assert!(house.stop().success());

    start(&mut house, SQLITE, None);
    assert_eq!(waiting(&house).await, Value::Null);
    check_repeats(&house, 0..=MANY, "under the right clock again").await;
    until("the log to say that the clocks differ", || house.log().contains("WARN clock")).await;
    assert!(metric(&house, "store_clock_ahead_seconds").await > 30.0 * 24.0 * 3600.0);
    assert!(house.stop().success());

    // The event of that time has proved nothing. Only an operator's confirmation counts, and then what has expired is
    // removed.
    start(&mut house, SQLITE, Some("+31d"));
    check_repeats(&house, 0..=MANY, "under the wrong clock again").await;
    let forgets = house.command(&["forget", "--now", "--json", "--admin", &house.admin_url("")]).output().unwrap();
    let forgotten: Value = serde_json::from_slice(&forgets.stdout).unwrap();
    assert_eq!((&forgotten["forgotten"], forgotten.get("waiting")), (&MANY.into(), None), "{forgotten}");
    let said = |line: &str| line.contains("INFO forgot") && line.contains(&format!("events={MANY}"));
    until("the log to say how many it forgot", || house.log().lines().any(said)).await;
    assert_eq!(waiting(&house).await, Value::Null);
    assert_eq!(house.deliver("/in", &delivery(0)).await.word(), "accepted", "it may act again");
    check_repeats(&house, MANY..=MANY, "received at that time").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_forget_command_without_a_node_waits_too_and_can_be_confirmed() {
    let mut house = House::empty(&kept_for_a_month());
    start(&mut house, SQLITE, None);
    for n in 0..MANY {
        assert_eq!(house.deliver("/in", &delivery(n)).await.word(), "accepted");
    }
    assert!(house.stop().success());
    let forgets = |args: &[&str]| {
        let mut command: Command = on(&house, SQLITE, &[&["forget", "--json"], args].concat());
        wrong_clock(&mut command, "+31d");
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let first = forgets(&[]);
    assert_eq!(first["forgotten"], 0, "{first}");
    assert!(first["waiting"]["left"].as_u64().is_some_and(|left| left > 0), "{first}");
    assert_eq!(forgets(&["--now"])["forgotten"], MANY);
}

/// One node sees the server's clock jump, another starts under it; both wait, and both go on when it is right again.
async fn check_a_server_that_jumps(url: &str, dial: &Dial) {
    let mut first = House::empty(&kept_for_a_month());
    start(&mut first, url, None);
    for n in 0..MANY {
        assert_eq!(first.deliver("/in", &delivery(n)).await.word(), "accepted");
    }
    until_written(url).await;
    dial.set("+31d");
    check_it_is_said(&first).await;
    check_repeats(&first, 0..MANY, "on the node that saw the jump").await;
    let mut second = House::empty(&kept_for_a_month());
    start(&mut second, url, None);
    check_it_is_said(&second).await;
    check_repeats(&second, 0..MANY, "on the node that started after it").await;
    assert_eq!(second.deliver("/in", &delivery(MANY)).await.word(), "accepted");

    dial.set("+0");
    for house in [&first, &second] {
        let begun = Instant::now();
        while waiting(house).await != Value::Null {
            assert!(begun.elapsed() < PATIENCE, "it still waits: {}", house.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until("the log line that the clock is right again", || house.log().contains("no longer jumps")).await;
        check_repeats(house, 0..=MANY, "when the clock is right again").await;
        assert_eq!(forget(house, "").await["forgotten"], 0);
    }

    dial.set("+31d");
    until("it to be noticed", || first.log().matches("would_forget=").count() >= 2).await;
    check_repeats(&first, 0..=MANY, "at the second jump").await;
    assert_eq!(forget(&first, "?now=1").await["forgotten"], MANY);
    assert_eq!(first.deliver("/in", &delivery(0)).await.word(), "accepted", "it may act again");
    // An operator's confirmation on one node reaches the others.
    let begun = Instant::now();
    while waiting(&second).await != Value::Null {
        assert!(begun.elapsed() < PATIENCE, "it did not get the confirmation: {}", second.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the node has written the time that the store last saw, which it does when it first polls.
async fn until_written(url: &str) {
    let begun = Instant::now();
    let seen = || {
        let told = if let Some(port) = url.strip_prefix("redis://127.0.0.1:") {
            let port = port.split(['/', '?']).next().unwrap();
            Command::new("redis-cli").args(["-p", port, "get", "{a}:last_seen"]).output()
        } else {
            Command::new("psql").args([url, "-Atc", "select at from hookonce.last_seen"]).output()
        };
        told.is_ok_and(|told| told.stdout.iter().any(u8::is_ascii_digit))
    };
    while !seen() {
        assert!(begun.elapsed() < PATIENCE, "nothing is written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_server_whose_clock_jumps_forgets_nothing() {
    let dial = Dial::new();
    let server = postgres::Server::start_by(&dial.wrap(&postgres::program("postgres")), &[]).await;
    check_a_server_that_jumps(&server.url(&server.database().await), &dial).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_valkey_server_whose_clock_jumps_forgets_nothing() {
    // Debian's Redis cannot be misled: its allocator reads the clock before libfaketime is loaded.
    let Some(valkey) = redis::valkey() else { return };
    let dial = Dial::new();
    let server = redis::Server::with(&dial.wrap(&valkey), &[]);
    check_a_server_that_jumps(&server.url("a"), &dial).await;
}

/// A delivery that is signed with its time.
fn signed(id: &str, at: Timestamp) -> Sent {
    let secret = format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(SECRET));
    let scheme = VerificationScheme::standard_webhooks(&[secret.into_bytes()], Duration::from_mins(5)).unwrap();
    let body = format!(r#"{{"key":"{id}"}}"#);
    let headers = scheme.sign(id, at, body.as_bytes());
    Sent { headers, body: body.into_bytes() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_once_ahead_rejects_no_genuine_delivery() {
    let secret = base64::engine::general_purpose::STANDARD.encode(SECRET);
    let config = RECORDS.replace(r#"scheme = "github""#, r#"scheme = "standard-webhooks""#);
    let mut house = House::empty(&config);
    let ahead = Duration::from_hours(31 * 24);
    let begin = |house: &mut House, clock: Option<&str>| {
        let mut serve = on(house, SQLITE, &["serve"]);
        serve.env("SECRET", format!("whsec_{secret}"));
        if let Some(by) = clock {
            wrong_clock(&mut serve, by);
        }
        house.try_start_by(serve).unwrap();
    };
    begin(&mut house, Some("+31d"));
    let now = StoreClock::wall(Timestamp(0)).now();
    assert_eq!(house.deliver("/in", &signed("a", now + ahead)).await.word(), "accepted");
    assert_eq!(house.deliver("/in", &signed("b", now)).await.status, 401, "its clock is ahead");
    assert!(house.stop().success());

    begin(&mut house, None);
    let genuine = house.deliver("/in", &signed("b", StoreClock::wall(Timestamp(0)).now())).await;
    assert_eq!(genuine.word(), "accepted", "{genuine:?}");
    let captured = house.deliver("/in", &signed("c", now + ahead)).await;
    assert_eq!(captured.status, 401, "a signature of another time is rejected: {captured:?}");
    until("the log to say that the clocks differ", || {
        let log = house.log();
        log.lines().any(|line| line.contains("WARN clock") && line.contains("ahead of this machine's"))
    })
    .await;
}
