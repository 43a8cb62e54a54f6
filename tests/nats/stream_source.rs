//! A stream as a source: which messages are read, acknowledged and quarantined, and what is logged.

use super::server::{Nats, until_async};
use super::support::{House, Sent, until};
use super::{LONG, edge, message, push, worker};
use std::time::Duration;

/// The action of a worker that writes a line for each event it acts on.
const LINES: &str = r#"run = { steps = ["echo \"$HOOKONCE_FIELD_N\" >> lines"] }"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_verified_again_acted_on_once_and_acknowledged() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let edge = House::new(&edge(&nats.url(), "", ""));
    let worker = House::new(&worker(&nats.url(), "", LINES));
    for n in 1..=3 {
        edge.deliver(super::IN, &push(&format!("d-{n}"), n)).await;
    }
    until("three lines", || worker.lines("lines").len() == 3).await;
    worker.quiet().await;
    until_async("all to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    let mut ids = worker.sql("select delivery_id from events");
    ids.sort();
    assert_eq!(ids, ["d-1", "d-2", "d-3"], "the carried ids");
    assert_eq!(worker.sql("select count(*) from keys where identity = 'message'"), ["3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ignored_and_stale_messages_are_acknowledged_too() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let config = worker(&nats.url(), "", "").replace(
        r#"fields   = { n = "body.n" }"#,
        r#"fields   = { n = "body.n", repo = "body.repository.full_name" }
when     = 'n < 9'
once     = { per = ["delivery"], change = { of = ["repo"], to = ["n"], order = "n" } }"#,
    );
    let worker = House::new(&config);
    // New, older, the same again, and not selected by `when`.
    for (id, n, word) in [("d-1", 2, "done"), ("d-2", 1, "stale"), ("d-1", 2, "duplicate"), ("d-4", 9, "ignored")] {
        nats.put("github.push", &message(&push(id, n)), &push(id, n).body).await;
        until(word, || worker.log().contains(word)).await;
    }
    until_async("all to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    assert_eq!(worker.sql("select count(*) from events"), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_stream_or_consumer_is_logged_with_its_command_and_used_once_it_exists() {
    let nats = Nats::start();
    let worker = House::new(&worker(&nats.url(), "", LINES));
    until("the command for the stream in the log", || worker.log().contains("nats stream add GITHUB --subjects")).await;
    nats.stream("GITHUB", LONG).await;
    until("the command for the consumer in the log", || worker.log().contains("nats consumer add GITHUB hookonce"))
        .await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    nats.put("github.push", &message(&push("d-1", 1)), &push("d-1", 1).body).await;
    until("the line", || worker.lines("lines") == ["1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_makes_the_stream_and_the_consumer() {
    let nats = Nats::start();
    let worker = House::new(&worker(&nats.url(), r#", create = true, subjects = ["github.>"]"#, LINES));
    until("the stream to be read", || worker.log().contains("taking")).await;
    nats.put("github.push", &message(&push("d-1", 1)), &push("d-1", 1).body).await;
    until("the line", || worker.lines("lines") == ["1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_connection_at_start_is_logged_and_http_is_served_meanwhile() {
    let mut nats = Nats::absent("jetstream { store_dir: \"data\" }");
    let config = worker(&nats.url(), r#", create = true, subjects = ["github.>"]"#, LINES);
    let http = "[source.web]\npath = \"/web\"\nverify = { scheme = \"github\", secret = { env = \"SECRET\" } }\n";
    let worker = House::new(&format!("{config}{http}"));
    until("the reason in the log", || worker.log().contains("not connected to nats://")).await;
    assert_eq!(worker.deliver("/web", &push("w", 1)).await.status, 202);
    assert!(nats.up());
    until("the stream to be read", || worker.log().contains("taking")).await;
    nats.put("github.push", &message(&push("d-1", 1)), &push("d-1", 1).body).await;
    until("the line", || worker.lines("lines") == ["1"]).await;
}

/// Puts one message into the stream, and expects it in quarantine for this reason.
async fn check_aside(keys: &str, verify: &str, headers: &[(String, String)], body: &[u8], why: &str) {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let config = worker(&nats.url(), keys, LINES);
    let carried = r#"{ scheme = "carried", of = "github", secret = { env = "SECRET" } }"#;
    let worker = House::new(&if verify.is_empty() { config } else { config.replace(carried, verify) });
    let sequence = nats.put("github.push", headers, body).await;
    until("it in quarantine", || worker.sql("select count(*) from quarantine") == ["1"]).await;
    until_async("it to be given up", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    assert_eq!(worker.sql("select count(*) from events"), ["0"]);
    assert_eq!(worker.sql("select count(*) from keys"), ["0"]);
    let lies = worker.sql("select why from quarantine");
    assert!(lies.len() == 1 && lies[0].contains(why), "{lies:?}");
    until("the quarantine in the log", || worker.log().contains("quarantined")).await;
    let listed = worker.ask("GET", "/api/quarantine").await.json();
    let message = listed["messages"][0]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with(&format!("GITHUB:{sequence}@")), "{message}");
    let shown = worker.command(&["list", "--quarantine"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&message) && shown.contains(why), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_envelope_is_quarantined_and_acknowledged() {
    let body = br#"{"delivery_id":"d","event":"push"}"#;
    check_aside(r#", envelope = "patchwork""#, r#""none""#, &[], body, "the envelope has no payload").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_quarantined_and_acknowledged() {
    let sent = Sent::github("push", "d-1", &format!(r#"{{"n":1,"x":"{}"}}"#, "x".repeat(3000)));
    check_aside("", "", &message(&sent), &sent.body, "at most 2048 are accepted (body_max)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_delivery_id_is_refused() {
    let sent = push("", 1);
    check_aside("", "", &message(&sent), &sent.body, "missing_field: delivery").await;
    let body = br#"{"delivery_id":"","event":"push","payload":{"n":1}}"#;
    check_aside(r#", envelope = "patchwork""#, r#""none""#, &[], body, "the envelope has no delivery_id").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_delivery_suppresses_nothing() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let worker = House::new(&worker(&nats.url(), "", LINES));
    let real = push("d-1", 1);
    let bad = format!("sha256={}", "0".repeat(64));
    let forged = real.clone().with("x-hub-signature-256", &bad);
    // The same id with a bad signature, the same id without one, and an old signed body under the id of the real
    // delivery that comes later.
    nats.put("github.push", &message(&forged), &forged.body).await;
    let bare: Vec<_> = message(&real).into_iter().filter(|(name, _)| !name.contains("Signature")).collect();
    nats.put("github.push", &bare, &real.body).await;
    let old = push("old", 7);
    let replayed = old.clone().with("x-github-delivery", "d-1");
    nats.put("github.push", &message(&replayed), &replayed.body).await;
    nats.put("github.push", &message(&real), &real.body).await;
    until("both lines", || worker.lines("lines").len() == 2).await;
    let mut lines = worker.lines("lines");
    lines.sort();
    assert_eq!(lines, ["1", "7"]);
    let aside = || worker.sql("select why from quarantine");
    until("both in quarantine", || aside() == ["bad_signature", "bad_signature"]).await;
}

/// With the configs of docs/nats.md: neither the edge nor the worker configures what makes two deliveries the same.
#[tokio::test(flavor = "multi_thread")]
async fn one_signed_body_under_five_ids_is_one_event_at_the_edge_and_one_line_at_a_worker() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let edge = House::new(&edge(&nats.url(), "", ""));
    let worker = House::new(&worker(&nats.url(), "", LINES));
    let sent = |id: &str| push(id, 1);
    for id in ["a", "b", "c", "d", "e"] {
        edge.deliver(super::IN, &sent(id)).await;
        // Any client that can publish may bypass the edge.
        nats.put("github.push", &message(&sent(id)), &sent(id).body).await;
    }
    nats.put("github.push", &message(&push("last", 2)), &push("last", 2).body).await;
    until("both lines", || worker.lines("lines").len() >= 2).await;
    until("every message to be taken", || worker.log().matches("duplicate").count() >= 5).await;
    let mut lines = worker.lines("lines");
    lines.sort();
    assert_eq!(lines, ["1", "2"]);
    assert_eq!(edge.sql("select count(*) from events"), ["1"]);
    assert_eq!(worker.sql("select count(*) from events"), ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envelope_from_the_edge_is_verified_again_and_a_foreign_one_needs_verify_none() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let edge = House::new(&edge(&nats.url(), r#", envelope = "patchwork""#, ""));
    let carried = House::new(&worker(&nats.url(), r#", envelope = "patchwork""#, LINES));
    // Signed including the newline at its end.
    let line = Sent::github("push", "d-1", "{\"n\":1,\"ref\":\"r\",\"after\":\"a\",\"commits\":[]}\n");
    edge.deliver(super::IN, &line).await;
    until("the line", || carried.lines("lines") == ["1"]).await;
    // Serialised by another program: no signature matches it.
    nats.put("github.push", &[], br#"{"delivery_id":"d-2","event":"push","payload":{"n":2}}"#).await;
    until("it to be quarantined", || carried.sql("select why from quarantine") == ["bad_signature"]).await;
    drop(carried);
    let config = worker(&nats.url(), r#", envelope = "patchwork""#, LINES);
    let scheme = r#"{ scheme = "carried", of = "github", secret = { env = "SECRET" } }"#;
    let none = House::new(&config.replace(scheme, r#""none""#));
    nats.put("github.push", &[], br#"{"delivery_id":"d-3","event":"push","payload":{"n":3}}"#).await;
    nats.put("github.push", &[], br#"{"delivery_id":"d-3","event":"push","payload":{"n":3}}"#).await;
    until("the line", || none.lines("lines") == ["3"]).await;
    until("the repeat", || none.log().contains("duplicate")).await;
    none.quiet().await;
    assert_eq!(none.sql("select delivery_id from events"), ["d-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_ack_done_a_message_is_in_progress_while_its_action_runs() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(3)).await;
    let slow = r#"run = { steps = ["echo begun >> lines", "while [ ! -e go ]; do sleep 0.05; done"] }"#;
    let config = format!("store = \"memory:\"\n{}", worker(&nats.url(), r#", ack = "done""#, slow));
    let worker = House::new(&config);
    nats.put("github.push", &message(&push("d-1", 1)), &push("d-1", 1).body).await;
    until("it to begin", || worker.lines("lines").len() == 1).await;
    // Twice as long as a message may stay unacknowledged.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(nats.left("GITHUB", "hookonce").await, (1, 0), "not acknowledged yet");
    std::fs::write(worker.path("go"), "").unwrap();
    until_async("it to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    assert_eq!(worker.lines("lines"), ["begun"], "it was delivered once");
    assert!(!worker.log().contains("duplicate"), "{}", worker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_stops_pulling_finishes_running_events_and_hands_the_rest_back() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_mins(5)).await;
    let slow = "at_once = 1\nrun = { steps = [\"echo \\\"$HOOKONCE_FIELD_N\\\" >> lines; sleep 0.5\"] }";
    let config = worker(&nats.url(), r#", ack = "done""#, slow);
    let mut worker = House::new(&config);
    for n in 1..=6 {
        nats.put("github.push", &message(&push(&format!("d-{n}"), n)), &push(&format!("d-{n}"), n).body).await;
    }
    until("the first line", || !worker.lines("lines").is_empty()).await;
    assert!(worker.stop().success());
    let before = worker.lines("lines").len();
    // Far sooner than the five minutes after which an unacknowledged message is redelivered.
    worker.start();
    until("all lines", || worker.lines("lines").len() >= 6).await;
    until_async("all to be acknowledged", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    let mut lines = worker.lines("lines");
    lines.sort();
    println!("drain: N = 6, begun before: {before}");
    assert_eq!(lines, ["1", "2", "3", "4", "5", "6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_store_cannot_take_now_is_handed_back_and_taken_later() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    // Far longer than the test: a message that comes again was handed back.
    nats.consumer("GITHUB", Duration::from_mins(5)).await;
    let worker = House::new(&worker(&nats.url(), "", LINES));
    let db = rusqlite::Connection::open(worker.path("hookonce.db")).unwrap();
    db.execute_batch("begin immediate").unwrap();
    nats.put("github.push", &message(&push("d-1", 1)), &push("d-1", 1).body).await;
    nats.put("github.push", &[], b"no signature").await;
    until("the store to be out of reach", || worker.log().contains("the store is out of reach")).await;
    assert_eq!(nats.left("GITHUB", "hookonce").await, (2, 0), "neither is acknowledged");
    db.execute_batch("rollback").unwrap();
    until("the line", || worker.lines("lines") == ["1"]).await;
    until_async("both to be answered", async || nats.left("GITHUB", "hookonce").await == (0, 0)).await;
    assert_eq!(worker.sql("select why from quarantine"), ["bad_signature"]);
}
