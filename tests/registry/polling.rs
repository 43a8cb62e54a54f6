//! `poll`: a source asks a registry what a tag points to, and each change is an event.

use crate::IMAGE;
use crate::docker_registry::{Access, Registry};
use crate::odd_answers::{Answer, Asked, OddRegistry, answer};
use crate::support::{House, PATIENCE, until};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A config that polls this registry every second, with these further keys, and writes each digest to `runs`.
pub(crate) fn polled(registry: &str, keys: &str) -> String {
    format!(
        r#"
[source.app]
poll = {{ registry = "{registry}", image = "{IMAGE}", tag = "latest", every = "1s"{keys} }}
[[source.app.route]]
name = "deploy"
run = {{ steps = ["echo $HOOKONCE_DIGEST >> runs"] }}
"#
    )
}

/// The digest of this number.
pub(crate) fn digest(n: usize) -> String {
    format!("sha256:{n:064x}")
}

/// An answer that the tag points to this.
pub(crate) fn points_to(n: usize) -> Answer {
    answer(200, &[("docker-content-digest", &digest(n))], "")
}

/// How often this result was counted on a node.
pub(crate) async fn counted(house: &House, result: &str) -> u32 {
    let line = format!("hookonce_polls_total{{source=\"app\",result=\"{result}\"}} ");
    let metrics = house.metrics().await;
    let count = metrics.lines().find_map(|of| of.strip_prefix(&line));
    count.unwrap_or_else(|| panic!("{line}\n{metrics}")).parse().unwrap()
}

/// Waits until the registry was asked this much more often.
async fn asked_again(registry: &OddRegistry, times: usize) {
    let before = registry.asked().len();
    until("more questions", || registry.asked().len() >= before + times).await;
}

/// What all nodes know of the tag.
fn state(house: &House) -> serde_json::Value {
    let notes = house.sql("select note from registers where note like '{\"%next_at%'");
    assert_eq!(notes.len(), 1, "{notes:?}");
    serde_json::from_str(&notes[0]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_a_tag_is_deployed_once_and_so_is_its_roll_back() {
    let registry = Registry::start(&Access::Open);
    let first = registry.push(IMAGE, "latest", "first").await;
    let mut house = House::new(&polled(&registry.address(), ""));
    until("the first digest", || house.lines("runs") == [first.as_str()]).await;
    let second = registry.push(IMAGE, "latest", "second").await;
    until("the second", || house.lines("runs") == [first.as_str(), &second]).await;
    assert_eq!(registry.push(IMAGE, "latest", "first").await, first);
    until("the roll-back", || house.lines("runs") == [first.as_str(), &second, &first]).await;
    house.quiet().await;
    assert_eq!(house.sql("select resolved from events order by received_at"), [&*first, &second, &first]);

    // What was pushed while the node was off is deployed, and nothing else.
    assert!(house.stop().success());
    let third = registry.push(IMAGE, "latest", "third").await;
    house.start();
    until("the third", || house.lines("runs").last() == Some(&third)).await;
    house.quiet().await;
    house.kill();
    house.start();
    let begun = Instant::now();
    while counted(&house, "same").await == 0 {
        assert!(begun.elapsed() < PATIENCE, "it is not asked again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(house.lines("runs"), [&*first, &second, &first, &third]);
    assert_eq!(house.count("done"), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_has_the_fields_of_the_tag_and_passes_filters_and_lookups() {
    let registry = OddRegistry::start(None, |_| points_to(7)).await;
    let config = polled(&registry.address, "").replace(
        "run = {",
        &format!(
            "when = 'tag == \"latest\" && digest.startsWith(\"sha256:\")'\nlookup = {{ registry = \"{}\", image = \"{{image}}\", tag = \"{{tag}}\" }}\nrun = {{",
            registry.address
        ),
    );
    let house = House::new(&config.replace("$HOOKONCE_DIGEST", "$HOOKONCE_DIGEST $HOOKONCE_FIELD_DIGEST"));
    until("a run", || house.lines("runs") == [format!("{0} {0}", digest(7))]).await;
    assert!(registry.asked().iter().all(|asked| asked.method == "HEAD"), "{:?}", registry.asked());
    house.quiet().await;
    let fields = house.sql("select fields from events").pop().unwrap();
    let fields: serde_json::Value = serde_json::from_str(&fields).unwrap();
    assert_eq!((&fields["registry"], &fields["image"]), (&registry.address.as_str().into(), &IMAGE.into()));
    assert_eq!((&fields["tag"], &fields["digest"]), (&"latest".into(), &digest(7).into()));
    assert!(fields["seen_at"].as_str().unwrap().ends_with('Z'), "{fields}");

    // It is explained and replayed like any other event.
    let event = house.sql("select id from events").pop().unwrap();
    let explained = String::from_utf8(house.command(&["explain", &event]).output().unwrap().stdout).unwrap();
    assert!(explained.contains("duplicate") && explained.contains(&digest(7)), "{explained}");
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    until("the replay", || house.lines("runs").len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_filter_does_not_want_is_not_asked_about_twice() {
    let registry = OddRegistry::start(None, |_| points_to(1)).await;
    let config = polled(&registry.address, "").replace("run = {", "when = 'tag == \"stable\"'\nrun = {");
    let house = House::new(&config);
    until("it is ignored", || house.log().contains("INFO ignored")).await;
    asked_again(&registry, 2).await;
    assert_eq!(house.log().matches("INFO ignored").count(), 1, "{}", house.log());
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_the_claim_neither_acts_twice_nor_loses_what_comes_next() {
    let now = Arc::new(AtomicUsize::new(1));
    let points = now.clone();
    let registry = OddRegistry::start(None, move |_: &Asked| points_to(points.load(Ordering::Relaxed))).await;
    let mut house = House::new(&polled(&registry.address, ""));
    until("the first run", || house.lines("runs") == [digest(1)]).await;
    house.quiet().await;
    until("it is written", || state(&house)["acted_on"] == digest(1)).await;
    house.kill();
    // As it was between the claim and that write.
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    let set = "update registers set note = json_set(note, '$.acted_on', null) where note like '{\"%next_at%'";
    assert_eq!(db.execute(set, []).unwrap(), 1);
    drop(db);
    house.start();
    until("it is a duplicate", || house.log().contains("INFO duplicate")).await;
    now.store(2, Ordering::Relaxed);
    until("the second run", || house.lines("runs") == [digest(1), digest(2)]).await;
    house.quiet().await;
    assert_eq!(house.sql("select count(*) from events"), ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_while_it_asks_is_replaced() {
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", registry.local_addr().unwrap());
    let mut house = House::new(&polled(&address, ", timeout = \"1s\""));
    let accept = move || registry.accept().map(|(stream, _)| (stream, registry)).unwrap();
    let (unanswered, registry) = tokio::task::spawn_blocking(accept).await.unwrap();
    house.kill();
    drop(unanswered);
    house.start();
    let answering = std::thread::spawn(move || {
        while let Ok((stream, _)) = registry.accept() {
            respond(stream);
        }
    });
    until("a run", || house.lines("runs") == [digest(3)]).await;
    drop(answering);
}

/// Answers one question on this connection.
fn respond(mut stream: TcpStream) {
    let mut request = [0; 4096];
    let read = stream.read(&mut request).unwrap_or_default();
    let text = format!(
        "HTTP/1.1 200 OK\r\ndocker-content-digest: {}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        digest(3)
    );
    if read > 0 {
        stream.write_all(text.as_bytes()).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_does_not_wait_for_the_registry() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let mut house = House::new(&polled(&address, ", timeout = \"1m\""));
    let accept = move || silent.accept().map(|(stream, _)| (stream, silent)).unwrap();
    let held = tokio::task::spawn_blocking(accept).await.unwrap();
    let begun = Instant::now();
    assert!(house.stop().success());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(held);
    assert_eq!(state(&house)["held_until"], serde_json::Value::Null, "another node may ask at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_down_is_asked_less_often_and_believed_when_it_is_back() {
    let mut registry = Registry::stopped(&Access::Open);
    let house = House::new(&polled(&registry.address(), ""));
    let why =
        format!("the registry {} did not say what {IMAGE}:latest is: it cannot be connected to", registry.address());
    until("two failures", || {
        house.log().contains("WARN poll") && house.log().contains(&why) && state(&house)["failures"].as_u64() >= Some(2)
    })
    .await;
    let known = state(&house);
    let wait = known["next_at"].as_i64().unwrap() - known["asked_at"].as_i64().unwrap();
    let usual = 1_000_000 << (known["failures"].as_i64().unwrap() - 1);
    assert!((usual..=usual + usual / 10).contains(&wait), "{known}");
    assert_eq!(house.log().matches("WARN poll").count(), 1, "the same failure is logged once: {}", house.log());
    registry.run();
    let pushed = registry.push(IMAGE, "latest", "x").await;
    until("a run", || house.lines("runs") == [pushed.as_str()]).await;
    assert!(counted(&house, "failed").await >= 2 && counted(&house, "new").await == 1);
    let line = format!("digest={pushed}");
    until("its log", || house.log().lines().any(|l| l.contains("INFO polled") && l.contains(&line))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_is_missing_is_reported_and_found_later() {
    let registry = Registry::start(&Access::Open);
    let house = House::new(&polled(&registry.address(), ""));
    let why = format!("the registry {} has no {IMAGE}:latest", registry.address());
    until("a warning", || house.log().contains(&why)).await;
    let pushed = registry.push(IMAGE, "latest", "x").await;
    until("a run", || house.lines("runs") == [pushed.as_str()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_that_a_registry_asks_to_wait_is_waited_by_all_who_poll_it() {
    let registry = OddRegistry::start(None, |_| answer(429, &[("retry-after", "3600")], "")).await;
    let mut house = House::new(&polled(&registry.address, ""));
    until("the answer", || house.log().contains("it responded with 429")).await;
    until("the state", || state(&house)["failures"] == 1).await;
    let known = state(&house);
    let wait = known["next_at"].as_i64().unwrap() - known["asked_at"].as_i64().unwrap();
    assert!((3_600_000_000..=3_960_000_000).contains(&wait), "{known}");
    house.kill();
    house.start();
    assert_eq!(state(&house)["next_at"], known["next_at"], "a restart does not ask sooner");
    assert_eq!(registry.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_fresh_waits_counted_from_when_it_was_first_seen() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = times.clone();
    let registry = OddRegistry::start(None, move |_| {
        noted.lock().unwrap().push(Instant::now());
        points_to(noted.lock().unwrap().len().min(2))
    })
    .await;
    let house = House::new(&polled(&registry.address, ", min_age = \"3s\""));
    until("a run", || !house.lines("runs").is_empty()).await;
    assert_eq!(house.lines("runs"), [digest(2)], "the first was replaced before it was old enough");
    let seen = times.lock().unwrap()[1];
    assert!(seen.elapsed() >= Duration::from_secs(3), "{:?}", seen.elapsed());
    until("its log", || house.log().lines().any(|l| l.contains("INFO polled") && l.contains("wait="))).await;
}
