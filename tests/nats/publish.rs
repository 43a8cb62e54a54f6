//! `publish`: what reaches a stream, how often, and what is logged when nothing does.

use super::lossy_proxy::Proxy;
use super::server::{Nats, until_async};
use super::support::{House, SECRET, until};
use super::{IN, LONG, Sent, edge, push, worker};
use futures_util::StreamExt as _;
use hookonce::decide::field::FieldLocation;
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{DescribedSignature, SignedText, SourceSecrets, TimestampLocation, VerificationScheme};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_published_once_with_all_that_a_worker_needs_to_verify_it_again() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let house = House::new(&edge(&nats.url(), "", ""));
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let sent = push("d-1", 1).with("traceparent", &format!("00-{trace}-b7ad6b7169203331-01"));
    let answer = house.deliver(IN, &sent).await;
    assert_eq!((answer.status, answer.word().as_str()), (202, "accepted"));
    assert_eq!(house.deliver(IN, &sent).await.word(), "duplicate");
    house.quiet().await;
    assert_eq!(house.count("done"), 1);
    let messages = nats.messages("GITHUB").await;
    assert_eq!(messages.len(), 1);
    let message = &messages[0];
    assert_eq!(message.subject, "github.push");
    assert_eq!(message.body, sent.body);
    assert_eq!(message.header("Nats-Msg-Id"), Some(&*answer.event()));
    assert_eq!(message.header("X-Github-Delivery"), Some("d-1"));
    assert_eq!(message.header("Hookonce-Delivery"), Some("d-1"));
    assert_eq!(message.header("X-Github-Event"), Some("push"));
    assert_eq!(message.header("Hookonce-Kind"), Some("push"));
    assert_eq!(message.header("Content-Type"), Some("application/json"));
    let parent = message.header("traceparent").unwrap();
    assert!(parent.starts_with(&format!("00-{trace}-")) && !parent.contains("b7ad6b7169203331"), "{parent}");
    let signature = sent.headers.iter().find(|(name, _)| name == "x-hub-signature-256").unwrap();
    assert_eq!(message.header("X-Hub-Signature-256"), Some(&*signature.1));
    let kept = house.sql("select headers from payloads").concat();
    assert!(
        kept.contains("x-github-event") && !kept.contains("sha256="),
        "it has ended, so the signature is removed: {kept}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_published_as_another_message() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let house = House::new(&edge(&nats.url(), "", ""));
    let event = house.deliver(IN, &push("d-1", 1)).await.event();
    house.quiet().await;
    assert!(
        !house.sql("select headers from payloads").concat().contains("sha256="),
        "the signature is removed when its event ends"
    );
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    until_async("the second message", async || nats.count("GITHUB").await == 2).await;
    let messages = nats.messages("GITHUB").await;
    let ids: Vec<_> = messages.iter().map(|message| message.header("Nats-Msg-Id").unwrap()).collect();
    assert_eq!(ids, [event.clone(), format!("{event}.2")]);
    for name in ["X-Github-Event", "X-Github-Delivery", "X-Hub-Signature-256", "Content-Type"] {
        assert!(messages[0].header(name).is_some(), "{name}");
        assert_eq!(messages[0].header(name), messages[1].header(name), "{name}");
        assert_eq!(messages[1].headers.iter().filter(|(n, _)| n == name).count(), 1, "{name}");
    }
}

/// Lets a delivery die at the edge because there is no stream; then creates the stream, replays the event, and checks
/// that a worker verifies and runs it.
async fn replayed(scheme: &str, keys: &str, sent: &Sent) {
    let nats = Nats::start();
    let verify = |begin: &str| format!("{begin} = \"{scheme}\", secret = {{ env = \"SECRET\" }}{keys} }}");
    let github = r#"{ scheme = "github", secret = { env = "SECRET" } }"#;
    let carried = r#"{ scheme = "carried", of = "github", secret = { env = "SECRET" } }"#;
    let config = edge(&nats.url(), "", "retry = { attempts = 1 }").replace("github.{kind}", "github.all");
    let config = config.replace(github, &verify("{ scheme"));
    let house = House::new(&config.replace("fields = { kind = \"header.x-github-event\" }", ""));
    let event = house.deliver(IN, sent).await.event();
    until("it to be dead", || house.count("dead") == 1).await;
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let acts = r#"run = { steps = ["echo \"$HOOKONCE_FIELD_N\" >> lines"] }"#;
    let worker = House::new(&worker(&nats.url(), "", acts).replace(carried, &verify("{ scheme = \"carried\", of")));
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    until("the worker's line", || worker.lines("lines") == ["1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_died_at_the_edge_is_replayed_and_verified_by_a_worker() {
    let sent = push("d-1", 1);
    replayed("github", "", &sent).await;
    let secrets = SourceSecrets::new(vec![SECRET.as_bytes().to_vec()]);
    let hmac = VerificationScheme::new(DescribedSignature {
        over: SignedText::parse("{timestamp}.{body}", None).unwrap(),
        timestamp: Some(TimestampLocation::At(FieldLocation::Header("x-time".into()))),
        ..DescribedSignature::hmac("x-signature", secrets)
    });
    let keys = r#", header = "x-signature", timestamp = "header.x-time", over = "{timestamp}.{body}""#;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    let headers = hmac.sign("", Timestamp(i64::try_from(now).unwrap()), &sent.body);
    replayed("hmac", keys, &Sent { headers, ..sent }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_has_the_event_type_even_if_no_field_reads_it() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let config = edge(&nats.url(), r#", envelope = "patchwork""#, "").replace("github.{kind}", "github.all");
    let house = House::new(&config.replace(r#"fields = { kind = "header.x-github-event" }"#, ""));
    let event = house.deliver(IN, &push("d-1", 1)).await.event();
    house.quiet().await;
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    until_async("the second message", async || nats.count("GITHUB").await == 2).await;
    let messages = nats.messages("GITHUB").await;
    assert_eq!(messages[0].body, messages[1].body);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_envelope_is_the_one_that_patchworks_workers_parse() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let house = House::new(&edge(&nats.url(), r#", envelope = "patchwork""#, ""));
    house.deliver(IN, &push("d-1", 7)).await;
    house.quiet().await;
    let body = String::from_utf8(nats.messages("GITHUB").await[0].body.clone()).unwrap();
    assert_eq!(
        body,
        r#"{"delivery_id":"d-1","event":"push","action":"pushed","repo_full_name":"octocat/x","payload":{"n":7,"ref":"refs/heads/main","after":"6dcb09b","commits":[],"action":"pushed","repository":{"full_name":"octocat/x"}}}"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_pub_ack_is_in_doubt_and_retried_as_the_same_message() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let proxy = Proxy::to(nats.port()).await;
    let house = House::new(&edge(&proxy.url, r#", timeout = "2s""#, r#"retry = { first = "50ms" }"#));
    house.deliver(IN, &push("warm", 0)).await;
    house.quiet().await;
    let rounds = 5;
    for n in 1..=rounds {
        proxy.lose_next();
        house.deliver(IN, &push(&format!("d-{n}"), n)).await;
        house.quiet().await;
        assert_eq!(proxy.lost() as u64, n, "an acknowledgement was lost");
    }
    for said in ["not acknowledged within 2s", "published before"] {
        until(said, || house.log().contains(said)).await;
    }
    assert_eq!(house.count("done") as u64, rounds + 1);
    let messages = nats.count("GITHUB").await;
    println!("PubAck lost: N = {rounds}, messages beyond one each: {}", messages - (rounds + 1));
    assert_eq!(messages, rounds + 1);
    assert_eq!(house.sql("select max(doubts) from events"), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_stream_it_fails_with_the_command_that_creates_one_and_succeeds_once_it_exists() {
    let nats = Nats::start();
    let house = House::new(&edge(&nats.url(), "", r#"retry = { attempts = 50, first = "100ms", longest = "200ms" }"#));
    house.deliver(IN, &push("d-1", 1)).await;
    until("the reason in the log", || house.log().contains("no stream has the subject `github.push`")).await;
    until("the command in the log", || house.log().contains("nats stream add GITHUB --subjects 'github.*'")).await;
    nats.stream("GITHUB", LONG).await;
    house.quiet().await;
    assert_eq!((house.count("done"), nats.count("GITHUB").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn core_nats_is_used_only_if_the_config_says_so() {
    let nats = Nats::with("");
    let house = House::new(&edge(&nats.url(), "", r#"retry = { attempts = 2, first = "50ms" }"#));
    house.deliver(IN, &push("d-1", 1)).await;
    house.quiet().await;
    assert_eq!(house.count("dead"), 1);
    until("the reason in the log", || house.log().contains("no stream has the subject")).await;

    let house = House::new(&edge(&nats.url(), ", core = true", ""));
    let mut subscriber = nats.subscribe("github.push").await;
    until("the warning in the log", || house.log().contains("at most once")).await;
    house.deliver(IN, &push("d-2", 2)).await;
    house.quiet().await;
    assert_eq!(subscriber.next().await.unwrap().payload, push("d-2", 2).body);
    assert_eq!(house.count("done"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_window_shorter_than_the_retries_is_logged_at_start_with_the_command() {
    let nats = Nats::start();
    nats.stream("GITHUB", Duration::from_mins(2)).await;
    let house = House::new(&edge(&nats.url(), "", ""));
    until("the window in the log", || house.log().contains("has a duplicate window of 2m")).await;
    until("the command in the log", || house.log().contains("nats stream edit GITHUB --dupe-window")).await;
    until("the sync interval in the log", || house.log().contains("sync_interval: always")).await;

    let house = House::new(&edge(&nats.url(), "", r#"retry = { attempts = 1, first = "1s" }"#));
    until("the sync interval in the log", || house.log().contains("sync_interval: always")).await;
    let (log, horizon) = (house.log(), "has a duplicate window");
    // One attempt, and two more in doubt, each with a lease of 30 s and 5 s to respond.
    assert!(!log.contains(horizon), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_one_subject_token_is_rejected_with_the_reason() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let config = edge(&nats.url(), "", "").replace("header.x-github-event", "body.kind");
    let house = House::new(&config);
    for (n, kind) in ["a.b", "*", "a b", ">"].iter().enumerate() {
        house
            .deliver(
                IN,
                &Sent::github(
                    "push",
                    &format!("d-{n}"),
                    &format!(r#"{{"kind":{kind:?},"ref":1,"after":1,"commits":1}}"#),
                ),
            )
            .await;
    }
    house.quiet().await;
    assert_eq!((house.count("dead"), nats.count("GITHUB").await), (4, 0));
    until("the reason in the log", || house.log().contains("the field `kind` is not one token of a subject")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_larger_than_the_servers_max_payload_is_rejected() {
    let nats = Nats::with("max_payload: 4096\njetstream { store_dir: \"data\" }");
    nats.stream("GITHUB", LONG).await;
    let house = House::new(&edge(&nats.url(), "", ""));
    house
        .deliver(
            IN,
            &Sent::github("push", "d-1", &format!(r#"{{"x":"{}","ref":1,"after":1,"commits":1}}"#, "x".repeat(5000))),
        )
        .await;
    house.quiet().await;
    assert_eq!(house.count("dead"), 1);
    until("the reason in the log", || house.log().contains("too large for the server")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_waited_for() {
    let mut nats = Nats::absent("jetstream { store_dir: \"data\" }");
    let house = House::new(&edge(
        &nats.url(),
        r#", timeout = "3s""#,
        r#"retry = { attempts = 100, first = "100ms", longest = "200ms" }"#,
    ));
    assert_eq!(house.deliver(IN, &push("d-1", 1)).await.status, 202);
    until("the reason in the log", || house.log().contains("not connected to nats://")).await;
    assert!(nats.up());
    nats.stream("GITHUB", LONG).await;
    house.quiet().await;
    assert_eq!((house.count("done"), nats.count("GITHUB").await), (1, 1));
    assert_eq!(house.sql("select max(doubts) from events"), ["0"], "nothing was sent before there was a connection");
}
