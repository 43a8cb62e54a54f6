//! Redeliver through NATS: the edge publishes the delivery again, and the worker decides whether to act.

use super::lossy_proxy::Proxy;
use super::server::Nats;
use super::support::{Answer, House, until};
use super::{IN, LONG, Sent, edge, message, push, worker};
use std::time::Duration;

/// So long that nothing is published again unless the test lets time pass.
const LATER: &str = r#"rearm_after = "30m""#;
/// A worker's action that fails until the file `go` exists.
const FAILS: &str = r#"run = { steps = ["echo tried >> lines; test -e go"] }"#;

/// Stops the node, moves the times of ended events in its store back by an hour, and starts it again.
fn an_hour_passes(house: &mut House) {
    house.stop();
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    db.execute_batch(
        "update events set ended_at = ended_at - 3600000000, keep_from = keep_from - 3600000000;
         update events set published_again = json_set(published_again,
             '$.last_at', json_extract(published_again, '$.last_at') - 3600000000,
             '$.first_ended_at', json_extract(published_again, '$.first_ended_at') - 3600000000)
         where published_again is not null",
    )
    .unwrap();
    drop(db);
    house.start();
}

async fn stream() -> Nats {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    nats
}

/// An edge that published its first message an hour ago, and the id of that event.
async fn published(nats: &Nats, keys: &str, sent: &Sent) -> (House, String) {
    let mut house = House::new(&edge(&nats.url(), keys, LATER));
    let first = house.deliver(IN, sent).await;
    assert_eq!((first.status, first.word().as_str()), (202, "accepted"));
    house.quiet().await;
    an_hour_passes(&mut house);
    (house, first.event())
}

async fn message_ids(nats: &Nats) -> Vec<String> {
    let messages = nats.messages("GITHUB").await;
    messages.iter().map(|message| message.header("Nats-Msg-Id").unwrap().to_owned()).collect()
}

fn heard(answer: &Answer) -> (u16, String, String) {
    (answer.status, answer.word(), answer.event())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_failed_at_a_worker_is_redelivered_from_github_and_acts_once() {
    let nats = stream().await;
    let sent = push("d-1", 1);
    let mut worker = House::new(&worker(&nats.url(), "", FAILS));
    let (mut house, event) = published(&nats, "", &sent).await;
    until("it to be dead at the worker", || worker.count("dead") == 1).await;
    an_hour_passes(&mut worker);
    std::fs::write(worker.path("go"), "").unwrap();
    let kept = house.sql("select ended_at || ' ' || keep_from from events");

    assert_eq!(
        heard(&house.deliver(IN, &sent).await),
        (202, "accepted".into(), event.clone()),
        "the response of a re-armed event"
    );
    until("it to be done at the worker", || worker.count("done") == 1).await;
    assert_eq!(worker.lines("lines"), ["tried", "tried"]);
    assert_eq!(worker.sql("select count(*) from events"), ["1"], "the same event there");
    house.quiet().await;
    assert_eq!(house.deliver(IN, &sent).await.word(), "duplicate", "it was published just now");

    an_hour_passes(&mut house);
    assert_eq!(house.deliver(IN, &sent).await.word(), "accepted");
    until("the worker to recognise it", || worker.log().contains("of=done")).await;
    house.quiet().await;
    assert_eq!(worker.lines("lines"), ["tried", "tried"], "done there: a duplicate");
    assert_eq!(message_ids(&nats).await, [event.clone(), format!("{event}.r1"), format!("{event}.r2")]);
    let messages = nats.messages("GITHUB").await;
    for name in ["X-Github-Event", "X-Github-Delivery", "X-Hub-Signature-256", "Content-Type", "Hookonce-Delivery"] {
        assert!(
            messages.iter().all(|m| m.header(name).is_some() && m.header(name) == messages[0].header(name)),
            "{name}"
        );
    }
    assert!(messages.iter().all(|message| message.body == sent.body));
    assert_eq!(house.sql("select life || ' ' || state from events"), ["1 done"]);
    let back = "select (ended_at + 3600000000) || ' ' || (keep_from + 3600000000) from events";
    assert_eq!(house.sql(back), kept, "kept from its first end");
    assert!(!house.sql("select headers from payloads").concat().contains("sha256="), "the signature is removed again");
    told(&house, &event).await;
}

/// Checks that the API, the metrics, `show`, `check` and the log all report it.
async fn told(house: &House, event: &str) {
    let shown = house.ask("GET", &format!("/api/events/{event}")).await.json();
    let again = &shown["published_again"];
    assert_eq!((again["times"].as_u64(), again["message"].as_str()), (Some(2), Some(&*format!("{event}.r2"))));
    assert!(shown["why"].as_str().unwrap().contains("published again 2 times"), "{shown}");
    let listed = house.ask("GET", "/api/events").await.json();
    assert_eq!(listed["events"][0]["published_again"]["times"], 2, "{listed}");
    let metrics = house.metrics().await;
    assert!(metrics.contains("hookonce_events_republished_total{source=\"github\"} 1"), "by this node: {metrics}");
    let count =
        metrics.lines().find(|line| line.starts_with("hookonce_event_duration_seconds_count{source=\"github\""));
    assert!(count.is_none_or(|line| line.ends_with(" 0")), "it first ended before this node started: {count:?}");
    let show = house.command(&["show", event]).output().unwrap();
    let show = String::from_utf8(show.stdout).unwrap();
    assert!(show.contains("published   again 2 times") && show.contains(&format!("{event}.r2")), "{show}");
    let check = house.command(&["check"]).output().unwrap();
    let check = String::from_utf8(check.stdout).unwrap();
    assert!(check.contains("publish it again: the same delivery after 30m"), "{check}");
    assert!(house.log().contains("publishing again"), "{}", house.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_redeliveries_at_once_publish_one_more_message() {
    let nats = stream().await;
    let sent = push("d-1", 1);
    let (house, event) = published(&nats, "", &sent).await;
    let copies = futures_util::future::join_all((0..200).map(|_| house.deliver(IN, &sent))).await;
    assert!(copies.iter().all(|copy| copy.status < 300 && copy.event() == event));
    assert_eq!(copies.iter().filter(|copy| copy.word() == "accepted").count(), 1);
    house.quiet().await;
    assert_eq!(message_ids(&nats).await, [event.clone(), format!("{event}.r1")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_killed_before_it_publishes_again_does_so_under_the_same_message_id() {
    let mut nats = stream().await;
    let sent = push("d-1", 1);
    let (mut house, event) = published(&nats, r#", timeout = "1s""#, &sent).await;
    // Recorded, but not published: there is no server.
    nats.kill();
    assert_eq!(house.deliver(IN, &sent).await.word(), "accepted");
    house.kill();
    assert_eq!(house.sql("select json_extract(published_again, '$.times') from events where ended_at is null"), ["1"]);
    assert!(nats.up());
    let nodes = house.sql("select count(*) from events where state = 'running'");
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    db.execute_batch("update events set wake_at = 0 where state = 'running'").unwrap();
    drop(db);
    house.start();
    house.quiet().await;
    println!("killed while it ran: {nodes:?}");
    assert_eq!(message_ids(&nats).await, [event.clone(), format!("{event}.r1")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_lost_while_publishing_again_is_one_more_message() {
    let nats = stream().await;
    let proxy = Proxy::to(nats.port()).await;
    let sent = push("d-1", 1);
    let keys = r#"rearm_after = "30m"
retry = { first = "50ms" }"#;
    let mut house = House::new(&edge(&proxy.url, r#", timeout = "1s""#, keys));
    let event = house.deliver(IN, &sent).await.event();
    house.quiet().await;
    an_hour_passes(&mut house);
    house.deliver(IN, &push("warm", 0)).await;
    house.quiet().await;
    proxy.lose_next();
    assert_eq!(house.deliver(IN, &sent).await.word(), "accepted");
    house.quiet().await;
    assert_eq!(proxy.lost(), 1);
    let ids = message_ids(&nats).await;
    assert_eq!(ids.iter().filter(|id| **id == format!("{event}.r1")).count(), 1, "{ids:?}");
    assert_eq!(ids.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cannot_be_published_again_is_dead_until_the_next_redelivery() {
    let nats = stream().await;
    let sent = push("d-1", 1);
    let mut house = House::new(&edge(&nats.url(), "", "rearm_after = \"30m\"\nretry = { attempts = 1 }"));
    let event = house.deliver(IN, &sent).await.event();
    house.quiet().await;
    an_hour_passes(&mut house);
    nats.jetstream().await.delete_stream("GITHUB").await.unwrap();
    let ended = house.sql("select ended_at from events");
    assert_eq!(house.deliver(IN, &sent).await.word(), "accepted");
    house.quiet().await;
    assert_eq!(house.sql("select state || ' ' || cause from events"), ["dead failed"]);
    assert_eq!(house.sql("select ended_at from events"), ended, "kept from its first end");
    nats.stream("GITHUB", LONG).await;
    an_hour_passes(&mut house);
    assert_eq!(heard(&house.deliver(IN, &sent).await), (202, "accepted".into(), event.clone()));
    house.quiet().await;
    assert_eq!(house.count("done"), 1);
    assert_eq!(message_ids(&nats).await, [format!("{event}.r2")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_replay_an_event_without_its_body_is_published_again_with_the_arriving_one() {
    let nats = stream().await;
    let sent = push("d-1", 1);
    let (mut house, event) = published(&nats, "", &sent).await;
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    house.quiet().await;
    house.stop();
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    db.execute_batch("delete from payloads; update events set body = 0").unwrap();
    drop(db);
    house.start();
    an_hour_passes(&mut house);
    assert_eq!(house.deliver(IN, &sent).await.word(), "accepted");
    house.quiet().await;
    assert_eq!(message_ids(&nats).await, [event.clone(), format!("{event}.2"), format!("{event}.2.r1")]);
    assert_eq!(nats.messages("GITHUB").await[2].body, sent.body);
}

/// The response to a redelivery an hour later, with these keys, and the number of messages after it.
async fn redelivered(publish: &str, route: &str) -> (String, u64) {
    let nats = stream().await;
    let sent = push("d-1", 1);
    let mut house = House::new(&edge(&nats.url(), publish, route));
    house.deliver(IN, &sent).await;
    house.quiet().await;
    an_hour_passes(&mut house);
    let word = house.deliver(IN, &sent).await.word();
    house.quiet().await;
    (word, nats.count("GITHUB").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_is_published_again_by_default_for_github_only_and_only_to_a_stream() {
    assert_eq!(redelivered("", "").await, ("accepted".into(), 2));
    assert_eq!(redelivered("", r#"redelivery = "ignore""#).await, ("duplicate".into(), 1));
    assert_eq!(redelivered("", r#"redelivery = "retry""#).await, ("duplicate".into(), 1));
    // A stream stores messages of core NATS, too, but does not confirm that.
    assert_eq!(redelivered(", core = true", "").await, ("duplicate".into(), 1));
    assert_eq!(redelivered(", core = true", r#"redelivery = "again""#).await, ("accepted".into(), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_no_longer_its_subjects_newest_is_not_published_again() {
    let nats = stream().await;
    let config = edge(&nats.url(), "", LATER).replace(
        r#"fields = { kind = "header.x-github-event" }"#,
        r#"fields = { kind = "header.x-github-event", n = "body.n", repo = "body.repository.full_name" }
once   = { per = ["delivery"], change = { of = ["repo"], to = ["n"], order = "n" } }"#,
    );
    let mut house = House::new(&config);
    let first = house.deliver(IN, &push("d-1", 1)).await.event();
    house.quiet().await;
    let second = house.deliver(IN, &push("d-2", 2)).await.event();
    house.quiet().await;
    an_hour_passes(&mut house);
    let answer = house.deliver(IN, &push("d-1", 1)).await;
    assert_eq!(heard(&answer), (200, "duplicate".into(), first), "as the duplicate it is");
    assert_eq!(house.deliver(IN, &push("d-2", 2)).await.word(), "accepted");
    house.quiet().await;
    assert_eq!(message_ids(&nats).await.last(), Some(&format!("{second}.r1")));
    assert_eq!(house.sql("select count(distinct turn) from events"), ["2"]);
    assert_eq!(house.count("done"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_published_again_where_only_the_newest_that_waits_in_a_group_is_kept() {
    let nats = stream().await;
    let mut house =
        House::new(&edge(&nats.url(), "", &format!("{LATER}\nwhen_busy = \"replace\"\ngroup = [\"kind\"]")));
    let mut ids = Vec::new();
    for n in 1..=2 {
        ids.push(house.deliver(IN, &push(&format!("d-{n}"), n)).await.event());
        house.quiet().await;
    }
    an_hour_passes(&mut house);
    for n in 1..=2 {
        assert_eq!(house.deliver(IN, &push(&format!("d-{n}"), n)).await.word(), "accepted", "d-{n}");
        house.quiet().await;
    }
    ids.extend([format!("{}.r1", ids[0]), format!("{}.r1", ids[1])]);
    assert_eq!(message_ids(&nats).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_equal_body_under_another_id_publishes_nothing_again() {
    let nats = stream().await;
    let sent = push("d-1", 1);
    let config =
        edge(&nats.url(), "", LATER).replace("[[source", "once = { per = [\"delivery\", \"body\"] }\n[[source");
    let mut house = House::new(&config);
    house.deliver(IN, &sent).await;
    house.quiet().await;
    an_hour_passes(&mut house);
    let sibling = house.deliver(IN, &push("d-2", 1)).await;
    assert_eq!((sibling.status, sibling.word().as_str()), (200, "duplicate"), "the same bytes under another id");
    assert_eq!(house.deliver(IN, &sent).await.word(), "accepted");
    house.quiet().await;
    assert_eq!(nats.count("GITHUB").await, 2);
    assert_eq!(message(&sent).len(), sent.headers.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_says_that_a_redelivery_would_be_published_again() {
    let nats = stream().await;
    let sent = push("d-1", 1);
    let (house, event) = published(&nats, "", &sent).await;
    std::fs::write(house.path("body.json"), &sent.body).unwrap();
    let mut args = vec!["explain".to_owned(), "body.json".into(), "--source".into(), "github".into()];
    for (name, value) in &sent.headers {
        args.extend(["--header".into(), format!("{name}: {value}")]);
    }
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let said = house.command(&args).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(text.contains(&event) && text.contains("publish it again; the worker decides"), "{text}");
    let said = house.command(&[&args[..], &["--json"]].concat()).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(told["would"]["events"][0]["be"], "published_again", "{told}");
}
