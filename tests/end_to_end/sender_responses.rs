//! The responses to the sender of an event, case by case.

use crate::receiver::Receiver;
use crate::support::{Answer, House, Sent, until};
use crate::{GHCR, IN, ghcr, number, numbers, touch};
use serde_json::{Value as Json, json};

const WAITS: &str = "run = { steps = [\"echo run >> runs; until test -e go; do sleep 0.01; done\"] }";

/// Checks that the response has this status, these members (others are ignored) and its event's header.
fn check(answer: &Answer, status: u16, members: &Json) {
    let said = answer.json();
    assert_eq!(answer.status, status, "{answer:?} {said}");
    for (name, value) in members.as_object().unwrap() {
        assert_eq!(said.get(name).unwrap_or(&Json::Null), value, "{name} of {said}");
    }
    assert_eq!(answer.header("hookonce-event"), said["event"].as_str(), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn a_new_event_is_accepted_and_its_duplicates_get_its_state() {
    let house = House::new(&numbers("", WAITS));
    let new = house.deliver(IN, &number("a", 1)).await;
    check(&new, 202, &json!({ "status": "accepted" }));
    assert_eq!(new.event().len(), 36, "{new:?}");
    let of = |state| json!({ "status": "duplicate", "event": new.event(), "state": state, "isDuplicate": true });
    until("it to run", || house.lines("runs").len() == 1).await;
    check(&house.deliver(IN, &number("a", 1)).await, 202, &of("running"));
    touch(&house, "go");
    house.quiet().await;
    check(&house.deliver(IN, &number("a", 1)).await, 200, &of("done"));
}

#[tokio::test]
async fn a_duplicate_of_a_dead_event_gets_its_cause() {
    for (step, cause) in [("exit 1", "failed"), ("exit 127", "rejected")] {
        let house = House::new(&numbers("", &format!("run = {{ steps = [\"{step}\"] }}")));
        let new = house.deliver(IN, &number("a", 1)).await;
        house.quiet().await;
        let dead = json!({ "status": "duplicate", "event": new.event(), "state": "dead", "cause": cause,
                           "isDuplicate": true });
        check(&house.deliver(IN, &number("a", 1)).await, 200, &dead);
    }
}

#[tokio::test]
async fn a_stale_delivery_gets_the_newer_event() {
    let house = House::new(&ghcr("run = { steps = [\"true\"] }"));
    let new = house.deliver(GHCR, &Sent::package("a", "latest", 1, 5)).await;
    let stale = house.deliver(GHCR, &Sent::package("b", "latest", 2, 4)).await;
    check(&stale, 200, &json!({ "status": "stale", "event": new.event() }));
}

#[tokio::test]
async fn a_sender_that_waits_for_a_command_gets_done_or_dead() {
    for (route, status, members) in [
        ("run = { steps = [\"true\"] }", 200, json!({ "status": "done" })),
        ("", 200, json!({ "status": "done" })),
        ("run = { steps = [\"exit 1\"] }", 502, json!({ "status": "dead", "cause": "failed" })),
        ("run = { steps = [\"exit 126\"] }", 502, json!({ "status": "dead", "cause": "rejected" })),
        (
            "in_doubt = \"hold\"\nrun = { steps = [\"sleep 60\"], timeout = \"100ms\" }",
            504,
            json!({ "status": "dead", "cause": "in_doubt" }),
        ),
    ] {
        let house = House::new(&numbers("respond = \"done\"", route));
        let answer = house.deliver(IN, &number("a", 1)).await;
        check(&answer, status, &members);
        assert_eq!(answer.event().len(), 36, "{answer:?}");
    }
}

#[tokio::test]
async fn a_sender_that_waits_for_a_receiver_gets_its_response_and_so_does_a_repeat() {
    let receiver = Receiver::open(&[(201, "made"), (200, "another")]).await;
    let house = House::new(&numbers("respond = \"done\"", &format!("forward = {{ url = \"{}\" }}", receiver.url)));
    let first = house.deliver(IN, &number("a", 1)).await;
    let again = house.deliver(IN, &number("a", 1)).await;
    for answer in [&first, &again] {
        assert_eq!((answer.status, &*answer.body), (201, &b"made"[..]), "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("text/plain"));
    }
    let event = first.header("hookonce-event").unwrap();
    assert_eq!(again.header("hookonce-event"), Some(event));
    let marks = [first.header("idempotent-replayed"), again.header("idempotent-replayed")];
    assert_eq!(marks, [None, Some("true")]);
    let calls = receiver.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].contains(&format!("idempotency-key: {event}\r\n")), "{}", calls[0]);
    assert!(calls[0].ends_with("\r\n\r\n{\"n\":1}"), "{}", calls[0]);
}

#[tokio::test]
async fn a_duplicate_of_a_done_command_gets_done() {
    let house = House::new(&numbers("respond = \"done\"", "run = { steps = [\"true\"] }"));
    let first = house.deliver(IN, &number("a", 1)).await;
    let again = house.deliver(IN, &number("a", 1)).await;
    let done = json!({ "status": "duplicate", "event": first.event(), "state": "done", "isDuplicate": true });
    check(&again, 200, &done);
}

#[tokio::test]
async fn a_sender_whose_wait_is_over_gets_202_and_retry_after() {
    let house = House::new(&numbers("respond = \"done\"\nrespond_within = \"300ms\"", WAITS));
    let new = house.deliver(IN, &number("a", 1)).await;
    check(&new, 202, &json!({ "status": "accepted", "state": "running" }));
    assert_eq!(new.header("retry-after"), Some("5"));
    let again = house.deliver(IN, &number("a", 1)).await;
    let running = json!({ "status": "duplicate", "event": new.event(), "state": "running", "isDuplicate": true });
    check(&again, 409, &running);
    assert_eq!(again.header("retry-after"), Some("5"));
    touch(&house, "go");
    house.quiet().await;
    assert_eq!(house.lines("runs").len(), 1);
}

#[tokio::test]
async fn a_duplicate_waits_together_with_the_first_delivery() {
    let house = House::new(&numbers(
        "respond = \"done\"",
        "run = { steps = [\"until test -e go; do sleep 0.01; done; exit 1\"] }",
    ));
    let (one, two) = (number("a", 1), number("a", 1));
    let (first, second, ()) = tokio::join!(house.deliver(IN, &one), house.deliver(IN, &two), async {
        until("a duplicate", || house.sql("select count(*) from duplicates") == ["1"]).await;
        touch(&house, "go");
    });
    for answer in [&first, &second] {
        check(answer, 502, &json!({ "status": "dead", "cause": "failed", "event": first.event() }));
    }
}

#[tokio::test]
async fn a_dead_events_response_is_returned_and_a_repeat_gets_an_attempt_and_response_of_its_own() {
    let receiver = Receiver::open(&[(422, "no such team"), (503, "later"), (200, "fine"), (500, "unused")]).await;
    let house = House::new(&numbers("respond = \"done\"", &format!("forward = {{ url = \"{}\" }}", receiver.url)));
    let mut events = Vec::new();
    for (status, body) in [(422, "no such team"), (503, "later"), (200, "fine"), (200, "fine")] {
        let answer = house.deliver(IN, &number("a", 1)).await;
        assert_eq!((answer.status, String::from_utf8_lossy(&answer.body)), (status, body.into()), "{answer:?}");
        events.push(answer.header("hookonce-event").unwrap().to_owned());
    }
    assert!(events.iter().all(|event| *event == events[0]), "{events:?}");
    assert_eq!(receiver.calls().len(), 3);
}

#[tokio::test]
async fn the_response_of_an_earlier_attempt_is_not_returned_for_a_later_one() {
    let receiver = Receiver::open(&[(422, "no such team")]).await;
    let config =
        numbers("respond = \"done\"", &format!("forward = {{ url = \"{}\", timeout = \"5s\" }}", receiver.url));
    let house = House::new(&config);
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 422);
    drop(receiver);
    let mut answer = house.deliver(IN, &number("a", 1)).await;
    for _ in 0..100 {
        // The kept connection may be found closed only now.
        if answer.json()["cause"] == "failed" {
            break;
        }
        answer = house.deliver(IN, &number("a", 1)).await;
    }
    check(&answer, 502, &json!({ "status": "dead", "cause": "failed" }));
}

#[tokio::test]
async fn a_closed_port_is_a_bad_gateway_and_a_hanging_receiver_a_gateway_timeout() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = format!("http://{}/", nobody.local_addr().unwrap());
    let hangs = Receiver::new(&[(200, "never")]).await;
    drop(nobody);
    for (url, status, cause) in [(&refused, 502, "failed"), (&hangs.url, 504, "in_doubt")] {
        let route = format!("in_doubt = \"hold\"\nforward = {{ url = \"{url}\", timeout = \"3s\" }}");
        let house = House::new(&numbers("respond = \"done\"", &route));
        check(&house.deliver(IN, &number("a", 1)).await, status, &json!({ "status": "dead", "cause": cause }));
    }
}

#[tokio::test]
async fn a_sender_that_waits_for_a_superseded_event_does_not_get_its_failure() {
    let receiver = Receiver::open(&[(500, "failed"), (200, "fine")]).await;
    let config = r#"
[source.numbers]
path    = "/in"
verify  = { scheme = "github", secret = { env = "SECRET" } }
respond = "done"
respond_within = "20s"
fields  = { n = "body.n", of = "body.of" }
once    = { change = { of = ["of"], to = ["n"], order = "n" } }
[[source.numbers.route]]
retry   = { attempts = 2, first = "1h" }
"#;
    let house = House::new(&format!("{config}forward = {{ url = \"{}\" }}", receiver.url));
    let sent = |n: u64| Sent::github("push", "a", &format!("{{\"n\":{n},\"of\":\"x\"}}"));
    let (one, two) = (sent(1), sent(2));
    let (first, second) = tokio::join!(house.deliver(IN, &one), async {
        until("its retry to wait", || house.count("waiting") == 1).await;
        house.deliver(IN, &two).await
    });
    assert_eq!((second.status, &*second.body), (200, &b"fine"[..]), "{second:?}");
    check(&first, 200, &json!({ "status": "done", "how": "superseded" }));
}

/// An expression may compare with a secret: who is not verified must not read it, nor what it was compared with.
#[tokio::test]
async fn an_unverified_sender_learns_nothing_about_the_filter_that_the_log_names() {
    const OPEN: &str = r#"
[source.open]
path   = "/open"
verify = "none"
once   = { per = ["body"] }
fields = { k = { at = "query.k", default = "" }, kind = "body.kind" }
SOURCE
[[source.open.route]]
name = "record"
ROUTE
"#;
    let json = [("content-type".to_owned(), "application/json".to_owned())];
    let secret = r#"k == "s3cr3t" && kind == "deploy""#;
    for (source, route) in
        [(format!("when = '{secret}'"), String::new()), (String::new(), format!("when = '{secret}'"))]
    {
        let house = House::new(&OPEN.replace("SOURCE", &source).replace("ROUTE", &route));
        for (query, body) in [("", "{}"), ("?k=wrong", r#"{"kind":"other"}"#), ("?k=s3cr3t", "{}")] {
            let answer = house.post(&format!("/open{query}"), &json, body.as_bytes()).await.unwrap();
            assert_eq!(answer.status, 200);
            assert_eq!(String::from_utf8_lossy(&answer.body), r#"{"status":"ignored","reason":"filtered"}"#);
        }
        until("the log to name them", || house.log().matches("wanted k == \"s3cr3t\"").count() == 2).await;
        let listed = house.ask("GET", "/api/deliveries?verdict=ignored").await.json();
        assert!(listed.to_string().contains("wanted"), "{listed}");
        let wanted = house.post("/open?k=s3cr3t", &json, br#"{"kind":"deploy"}"#).await.unwrap();
        assert_eq!((wanted.status, wanted.word()), (202, "accepted".to_owned()));
    }
}
