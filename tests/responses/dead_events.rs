//! The responses to a waiting sender about dead events, and about those that have not ended.

use crate::backend::{Backend, Does};
use crate::support::{Answer, House, SECRET, Sent, until};
use crate::{IN, signed};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// A source whose senders wait, with a route to this backend.
fn config(url: &str, keys: &str, route: &str) -> String {
    format!(
        r#"
[source.s]
path    = "{IN}"
verify  = {{ scheme = "hmac", header = "x-sig", secret = {{ env = "SECRET" }} }}
respond = "done"
fields  = {{ n = "body.n" }}
{keys}
[[source.s.route]]
forward = {{ url = "{url}", timeout = "20s" }}
{route}
"#
    )
}

const PER_N: &str = "respond_within = \"20s\"\nonce = { per = [\"n\"] }";
/// Waits between attempts are short; their number is the default.
const QUICK: &str = "retry = { first = \"1ms\", longest = \"1ms\" }";

fn upload(n: u32) -> Sent {
    signed("x-sig", SECRET, &format!("{{\"n\":{n}}}"))
}

fn dies() -> Does {
    Does::Dies(200, "{\"id\":7}".into())
}

fn answers(status: u16) -> Does {
    Does::Answers(status, "{\"id\":7}".into())
}

fn keys(backend: &Backend) -> Vec<String> {
    let mut keys: Vec<_> = backend.calls().into_iter().map(|call| call.key).collect();
    keys.dedup();
    keys
}

fn is_in_doubt(answer: &Answer) {
    assert_eq!(answer.status, 504, "{answer:?}");
    let expected = json!({ "status": "dead", "event": answer.event(), "cause": "in_doubt" });
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn a_senders_repeat_of_an_event_in_doubt_is_the_next_attempt_under_the_same_key() {
    let backend = Backend::new(vec![dies(), dies(), dies(), dies(), answers(201)]).await;
    let house = House::new(&config(&backend.url, PER_N, QUICK));
    let first = house.deliver(IN, &upload(1)).await;
    is_in_doubt(&first);
    assert_eq!(backend.calls().len(), 3, "a lost response is retried up to three attempts");
    is_in_doubt(&house.deliver(IN, &upload(1)).await);
    assert_eq!(backend.calls().len(), 4, "a duplicate is one more attempt");
    let told = house.deliver(IN, &upload(1)).await;
    assert_eq!((told.status, told.header("idempotent-replayed")), (201, None), "{told:?}");
    assert_eq!(told.header("hookonce-event"), Some(&*first.event()));
    let again = house.deliver(IN, &upload(1)).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")), "{again:?}");
    assert_eq!((backend.calls().len(), keys(&backend)), (5, vec![first.event()]), "all attempts under one key");
    let shown = house.ask("GET", &format!("/api/events/{}", first.event())).await.json();
    assert_eq!((&shown["life"], &shown["doubts"], &shown["state"]), (&json!(1), &json!(4), &json!("done")), "{shown}");
    assert_eq!(shown["why"], "done: attempt 5 acted; 4 attempts in doubt were tried again");
}

#[tokio::test]
async fn an_event_in_doubt_that_is_not_retried_is_answered_with_504() {
    for (keys, route, calls) in [
        (PER_N, "in_doubt = \"hold\"", 1),
        (PER_N, "redelivery = \"ignore\"", 3),
        (PER_N, "rearm_after = \"1h\"", 3),
        ("respond_within = \"20s\"\nonce = { per = [\"n\"], keep_failures = true }", "", 3),
    ] {
        let backend = Backend::new(vec![dies()]).await;
        let house = House::new(&config(&backend.url, keys, &format!("{QUICK}\n{route}")));
        for _ in 0..3 {
            is_in_doubt(&house.deliver(IN, &upload(1)).await);
        }
        assert_eq!(backend.calls().len(), calls, "{keys} {route}");
    }
}

#[tokio::test]
async fn a_failure_that_is_not_retried_gets_the_receivers_response() {
    let backend = Backend::new(vec![answers(409)]).await;
    let house = House::new(&config(&backend.url, PER_N, "redelivery = \"ignore\""));
    for replayed in [None, Some("true"), Some("true")] {
        let answer = house.deliver(IN, &upload(1)).await;
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (409, replayed), "{answer:?}");
        assert_eq!(answer.json(), json!({ "id": 7 }));
    }
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn a_cancelled_event_is_answered_with_502_to_waiting_and_later_requests() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![answers(201)], gate).await;
    let house = House::new(&config(&backend.url, PER_N, ""));
    let cancel = async {
        until("the call", || backend.calls().len() == 1).await;
        let id = &house.sql("select id from events")[0];
        let id = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
        assert_eq!(house.ask("POST", &format!("/api/events/{id}/cancel")).await.status, 200);
    };
    let sent = upload(1);
    let (first, ()) = tokio::join!(house.deliver(IN, &sent), cancel);
    let later = house.deliver(IN, &upload(1)).await;
    for answer in [&first, &later] {
        assert_eq!((answer.status, &answer.json()["cause"]), (502, &json!("cancelled")), "{answer:?}");
    }
    assert_eq!(backend.calls().len(), 1);
}

const SHORT: &str = "respond_within = \"300ms\"\nonce = { per = [\"n\"] }";

fn is_accepted(answer: &Answer) {
    assert_eq!((answer.status, answer.header("retry-after")), (202, Some("5")), "{answer:?}");
    assert_eq!((answer.word(), &answer.json()["state"]), ("accepted".into(), &json!("running")));
}

#[tokio::test]
async fn after_a_202_the_node_makes_five_attempts_even_through_a_crash() {
    let gate = Arc::new(Semaphore::new(0));
    let does = vec![answers(500), answers(500), answers(500), answers(500), answers(201)];
    let backend = Backend::gated(does, gate.clone()).await;
    // The attempt in progress when the node died is retried when its lease has expired.
    let mut house = House::new(&config(&backend.url, SHORT, &format!("lease = \"5s\"\n{QUICK}")));
    is_accepted(&house.deliver(IN, &upload(1)).await);
    until("the call", || backend.calls().len() == 1).await;
    house.kill();
    gate.add_permits(1 << 10);
    house.start();
    house.quiet().await;
    assert_eq!(
        house.sql("select state || ' ' || attempt || ' ' || doubts from events"),
        ["done 5 1"],
        "{}",
        house.log()
    );
    assert_eq!((backend.calls().len(), keys(&backend).len()), (5, 1));
    let later = house.deliver(IN, &upload(1)).await;
    assert_eq!((later.status, later.header("idempotent-replayed")), (201, Some("true")), "{later:?}");
}

#[tokio::test]
async fn a_configured_number_of_attempts_holds_after_a_202() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![answers(500)], gate.clone()).await;
    let retry = "retry = { attempts = 2, first = \"1ms\", longest = \"1ms\" }";
    let house = House::new(&config(&backend.url, SHORT, retry));
    is_accepted(&house.deliver(IN, &upload(1)).await);
    gate.add_permits(1 << 10);
    house.quiet().await;
    assert_eq!((backend.calls().len(), house.sql("select cause from events")), (2, vec!["failed".to_owned()]));
}

#[tokio::test]
async fn an_attempt_continues_after_a_202_and_its_response_is_kept() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![answers(201)], gate.clone()).await;
    let house = House::new(&config(&backend.url, SHORT, "lease = \"5s\""));
    is_accepted(&house.deliver(IN, &upload(1)).await);
    // It is also renewed before it ends.
    let revision = || house.sql("select revision from events")[0].parse::<u64>().unwrap();
    let told = revision();
    until("a renewal", || revision() > told).await;
    gate.add_permits(1);
    house.quiet().await;
    assert_eq!(
        house.sql("select state || ' ' || attempt || ' ' || doubts from events"),
        ["done 1 0"],
        "{}",
        house.log()
    );
    let later = house.deliver(IN, &upload(1)).await;
    assert_eq!((later.status, later.header("idempotent-replayed")), (201, Some("true")), "{later:?}");
    assert_eq!(backend.calls().len(), 1);
    assert!(!house.log().contains(" lost "), "{}", house.log());
}

#[tokio::test]
async fn no_202_is_sent_before_the_retrier_is_stored() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![answers(201)], gate.clone()).await;
    let keys = SHORT.replace("300ms", "5s");
    let house = House::new(&config(&backend.url, &keys, ""));
    let locked = async {
        until("the call", || backend.calls().len() == 1).await;
        let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
        other.execute_batch("begin exclusive").unwrap();
        other
    };
    let sent = upload(1);
    let (answer, other) = tokio::join!(house.deliver(IN, &sent), locked);
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{answer:?}");
    other.execute_batch("rollback").unwrap();
    drop(other);
    gate.add_permits(1 << 10);
    house.quiet().await;
    assert_eq!(house.deliver(IN, &upload(1)).await.status, 201);
    assert_eq!(backend.effects(), 1);
}
