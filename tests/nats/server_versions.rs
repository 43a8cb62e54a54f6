//! Server versions: what works with the oldest, and what needs a newer one and reports that.

use super::lossy_proxy::Proxy;
use super::server::{Nats, until_async, version};
use super::support::{House, until};
use super::{IN, LONG, edge, message, push, worker};

/// The action of a worker that writes a line for each event it acts on.
const LINES: &str = r#"run = { steps = ["echo \"$HOOKONCE_FIELD_N\" >> lines"] }"#;
/// Two of the subjects of a stream.
const TWO: &str = r#", create = true, subjects = ["github.push", "github.issues"]"#;
const TOO_OLD: &str = "a consumer for several of a stream's subjects needs 2.10";

#[track_caller]
fn check_live(config: &str, well: bool, words: &str) {
    let said = House::empty(config).command(&["check", "--live"]).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() == well && text.contains(words), "expected {words:?}:\n{text}");
}

/// A server before 2.10 ignores a filter of several subjects and would deliver all messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_several_subjects_gets_only_those_and_is_not_created_on_an_old_server() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let old = Proxy::pretending(nats.port(), "2.9.10").await;
    let config = worker(&old.url, TWO, LINES);
    check_live(&config, false, TOO_OLD);
    let house = House::new(&config);
    until("the reason in the log", || house.log().contains(TOO_OLD)).await;
    assert!(nats.jetstream().await.get_stream("GITHUB").await.unwrap().consumer_info("hookonce").await.is_err());
    drop(house);

    let config = worker(&nats.url(), TWO, LINES);
    if version() < (2, 10) {
        check_live(&config, false, TOO_OLD);
        return;
    }
    let house = House::new(&config);
    for (n, kind) in [(1, "push"), (2, "star"), (3, "issues")] {
        let sent = push(&format!("d-{n}"), n);
        nats.put(&format!("github.{kind}"), &message(&sent), &sent.body).await;
    }
    until("both lines", || house.lines("lines").len() == 2).await;
    until_async("both to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    let mut lines = house.lines("lines");
    lines.sort();
    assert_eq!(lines, ["1", "3"]);
}

/// A consumer of all subjects of its stream needs no filter.
#[tokio::test(flavor = "multi_thread")]
async fn create_makes_a_stream_of_several_subjects_even_on_an_old_server() {
    let nats = Nats::start();
    let old = Proxy::pretending(nats.port(), "2.9.10").await;
    let house = House::new(&worker(&old.url, TWO, LINES));
    until("the stream to be read", || house.log().contains("taking")).await;
    for (n, kind) in [(1, "push"), (2, "issues")] {
        let sent = push(&format!("d-{n}"), n);
        nats.put(&format!("github.{kind}"), &message(&sent), &sent.body).await;
    }
    until("both lines", || house.lines("lines").len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_too_old_is_reported_at_start_and_by_check() {
    const NEEDED: &str = "the server is nats-server 2.8.4, but 2.9 or newer is required";
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", LONG).await;
    let old = Proxy::pretending(nats.port(), "2.8.4").await;
    for config in [edge(&old.url, "", ""), worker(&old.url, "", LINES)] {
        check_live(&config, true, NEEDED);
        let house = House::new(&config);
        until("the warning in the log", || house.log().contains(NEEDED)).await;
    }
    let debians = Proxy::pretending(nats.port(), "2.9.10").await;
    let house = House::new(&edge(&debians.url, "", ""));
    until("the missing feature in the log", || house.log().contains("with nats-server 2.10 or newer; it is 2.9.10"))
        .await;
    house.deliver(IN, &push("d-1", 1)).await;
    until("it to be published", || house.count("done") == 1).await;
    assert!(!house.log().contains("is required"), "{}", house.log());
}
