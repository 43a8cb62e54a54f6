//! The admin port, for operators and their tools.

use crate::support::{Answer, House, SECRET, until};
use crate::{IN, number, numbers, touch};
use serde_json::json;

const RUN: &str = "run = { steps = [\"echo out of $HOOKONCE_FIELD_N; echo $HOOKONCE_FIELD_N >> runs\"] }";

/// Checks for this status, and this reason where there is one.
fn check(answer: &Answer, status: u16, reason: &str) {
    assert_eq!(answer.status, status, "{answer:?} {}", answer.json());
    assert_eq!(answer.json()["reason"].as_str().unwrap_or(""), reason, "{}", answer.json());
}

#[tokio::test]
async fn events_are_listed_newest_first_and_by_state() {
    let house = House::new(&numbers("", "run = { steps = [\"test $HOOKONCE_FIELD_N != 2\"] }"));
    for n in 1..=3 {
        house.deliver(IN, &number(&format!("id-{n}"), n)).await;
    }
    house.quiet().await;
    let list = async |query: &str| {
        let answer = house.ask("GET", &format!("/api/events{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let events = answer.json()["events"].as_array().unwrap().clone();
        events.iter().map(|event| event["fields"]["n"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, ["3", "2", "1"]);
    assert_eq!(list("?state=dead").await, ["2"]);
    assert_eq!(list("?state=done&limit=1").await, ["3"]);
    assert_eq!(list("?source=numbers&route=act").await.len(), 3);
    assert_eq!(list("?source=others").await.len(), 0);
    let page = house.ask("GET", "/api/events?limit=2").await.json();
    assert_eq!(list(&format!("?before={}", page["next"].as_str().unwrap())).await, ["1"]);
    for query in ["?state=tired", "?limit=many", "?colour=red", "?before=yesterday"] {
        assert_eq!(house.ask("GET", &format!("/api/events{query}")).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn an_event_is_shown_with_its_deliveries_and_attempts() {
    let house = House::new(&numbers("once = { per = [\"delivery\", \"body\"] }", RUN));
    let id = house.deliver(IN, &number("first", 1)).await.event();
    house.quiet().await;
    for again in ["first", "second"] {
        house.deliver(IN, &number(again, 1)).await;
    }
    until("sightings", || house.sql("select count(*) from sightings") == ["2"]).await;
    let shown = house.ask("GET", &format!("/api/events/{id}")).await.json();
    assert_eq!(
        (&shown["state"], &shown["how"], &shown["delivery"]),
        (&json!("done"), &json!("acted"), &json!("first"))
    );
    let seen: Vec<_> = shown["deliveries"].as_array().unwrap().iter().map(|d| [&d["delivery"], &d["same"]]).collect();
    assert_eq!(seen, [[&json!("first"), &json!("delivery")], [&json!("second"), &json!("body")]], "{shown}");
    assert_eq!((&shown["duplicates"], &shown["has_body"]), (&json!(2), &json!(true)), "{shown}");
    let tried = &shown["attempts"][0];
    assert_eq!((&tried["outcome"], &tried["output"]), (&json!("delivered"), &json!("out of 1\n")), "{shown}");
    assert_eq!(shown["identities"], json!(["delivery", "body"]));
    assert!(!shown.to_string().contains("sha256="), "{shown}");
}

#[tokio::test]
async fn an_event_is_named_by_its_id_its_end_or_a_delivery() {
    let house = House::new(&numbers("", RUN));
    let id = house.deliver(IN, &number("one-delivery", 1)).await.event();
    house.deliver(IN, &number("one-delivery", 2)).await;
    house.deliver(IN, &number("another", 3)).await;
    house.quiet().await;
    let show = async |name: &str| house.ask("GET", &format!("/api/events/{name}")).await;
    for name in [&*id, &id[28..], &id.to_uppercase()] {
        assert_eq!(show(name).await.json()["event"], json!(id), "{name}");
    }
    assert_eq!(show("another").await.json()["fields"]["n"], 3);
    let several = show("one-delivery").await;
    check(&several, 409, "several_events");
    assert_eq!(several.json()["events"].as_array().map(Vec::len), Some(2));
    for nobody in ["nobody", "00000000-0000-7000-8000-000000000000", "%25", "_"] {
        check(&show(nobody).await, 404, "unknown_event");
        check(&house.ask("POST", &format!("/api/events/{nobody}/replay")).await, 404, "unknown_event");
        check(&house.ask("POST", &format!("/api/events/{nobody}/cancel")).await, 404, "unknown_event");
    }
}

#[tokio::test]
async fn an_event_that_an_operator_forgets_acts_again() {
    let house = House::new(&numbers("", RUN));
    let id = house.deliver(IN, &number("a", 1)).await.event();
    house.quiet().await;
    assert_eq!(house.deliver(IN, &number("a", 1)).await.event(), id);
    let forgotten = house.ask("DELETE", "/api/events/a").await;
    assert_eq!((forgotten.status, forgotten.json()), (200, json!({ "forgotten": 1, "event": id })));
    check(&house.ask("DELETE", "/api/events/a").await, 404, "unknown_event");
    assert_ne!(house.deliver(IN, &number("a", 1)).await.event(), id);
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "1"]);
}

#[tokio::test]
async fn a_command_that_is_cancelled_is_killed_and_stays_dead() {
    let step = "echo $$ >> pid; sleep 60; echo end >> runs";
    let house = House::new(&numbers("", &format!("run = {{ steps = [\"{step}\"] }}")));
    let id = house.deliver(IN, &number("a", 1)).await.event();
    until("the command", || !house.lines("pid").is_empty()).await;
    check(&house.ask("POST", &format!("/api/events/{id}/replay")).await, 409, "it is running");
    let cancelled = house.ask("POST", &format!("/api/events/{id}/cancel")).await;
    assert_eq!((cancelled.status, &cancelled.json()["cause"]), (200, &json!("cancelled")), "{cancelled:?}");
    let process = format!("/proc/{}", house.lines("pid")[0]);
    assert!(!std::path::Path::new(&process).exists(), "the event ended before its command");
    assert_eq!(house.sql("select outcome from attempts"), ["unknown"], "its outcome is not known");
    check(&house.ask("POST", &format!("/api/events/{id}/cancel")).await, 409, "it is dead");
    assert_eq!(house.deliver(IN, &number("a", 1)).await.json()["cause"], "cancelled");
    assert_eq!((house.lines("runs").len(), house.count("dead")), (0, 1));
}

#[tokio::test]
async fn tail_shows_what_happens_while_it_happens() {
    let step = "echo hello from $HOOKONCE_FIELD_N; until test -e go; do sleep 0.01; done";
    let house = House::new(&numbers("", &format!("run = {{ steps = [\"{step}\"] }}")));
    let mut tail = reqwest::get(house.admin_url("/api/tail")).await.unwrap();
    assert_eq!(tail.headers()["content-type"], "text/event-stream");
    let id = house.deliver(IN, &number("a", 1)).await.event();
    let mut heard = String::new();
    for part in ["\"running\"", "hello from 1", "\"done\""] {
        while !heard.contains(part) {
            let chunk =
                tokio::time::timeout(crate::support::PATIENCE, tail.chunk()).await.expect(part).unwrap().unwrap();
            heard += &String::from_utf8_lossy(&chunk);
        }
        touch(&house, if part.starts_with("hello") { "go" } else { "not yet" });
    }
    assert!(heard.matches(&id).count() >= 3, "{heard}");
    assert!(heard.starts_with("event: state\n"), "{heard}");
}

#[tokio::test]
async fn both_ports_report_that_they_are_alive_and_ready() {
    let house = House::new(&numbers("", RUN));
    for url in [house.url("/healthz"), house.url("/readyz"), house.admin_url("/healthz"), house.admin_url("/readyz")] {
        let answer = reqwest::get(&url).await.unwrap();
        assert_eq!((answer.status().as_u16(), &*answer.text().await.unwrap()), (200, "{\"status\":\"ok\"}"), "{url}");
    }
    check(&house.ask("GET", "/nowhere").await, 404, "unknown_path");
}

#[tokio::test]
async fn on_loopback_only_this_machine_has_access_and_no_web_page() {
    let house = House::new(&numbers("", RUN));
    let own = house.admin_url("");
    for (name, value, status) in [
        ("host", "evil.example", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", &*own, 200),
    ] {
        for path in ["/api/events", "/api/live"] {
            let request = reqwest::Client::new().get(house.admin_url(path)).header(name, value);
            assert_eq!(request.send().await.unwrap().status().as_u16(), status, "{name}: {value}, {path}");
        }
        let request = reqwest::Client::new().post(house.admin_url("/api/forget")).header(name, value);
        assert_eq!(request.send().await.unwrap().status().as_u16(), status, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_token_has_only_its_own_permissions() {
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"SECRET\" }\n\
                 tokens = [{ token = { file = \"reads\" }, may = \"read\" }, { token = { file = \"cron\" }, may = \"forget\" }]\n";
    let mut house = House::empty(&format!("\n{admin}{}", numbers("", RUN)));
    for name in ["reads", "cron"] {
        std::fs::write(house.path(name), format!("a long token that {name}\n")).unwrap();
    }
    house.start();
    house.deliver(IN, &number("a", 1)).await;
    house.quiet().await;
    let asks = [
        ("GET", "/api/events"),
        ("GET", "/api/events/a"),
        ("POST", "/api/forget"),
        ("POST", "/api/events/a/replay"),
        ("DELETE", "/api/events/nobody"),
    ];
    for (token, expected) in [
        ("", [401; 5]),
        ("Bearer wrong", [401; 5]),
        (&*format!("Basic {SECRET}"), [401; 5]),
        ("Bearer a long token that reads", [200, 200, 403, 403, 403]),
        ("Bearer a long token that cron", [403, 403, 200, 403, 403]),
        (&*format!("Bearer {SECRET}"), [200, 200, 200, 200, 404]),
    ] {
        for ((method, path), status) in asks.into_iter().zip(expected) {
            let request = reqwest::Client::new().request(method.parse().unwrap(), house.admin_url(path));
            let answer = request.header("authorization", token).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{token:?} {method} {path}");
        }
    }
    assert_eq!(house.ask("GET", "/readyz").await.status, 200, "no token is needed for a health check");
}

#[tokio::test]
async fn a_parked_event_can_be_cancelled_and_those_behind_it_run() {
    let step = "until test -e go; do sleep 0.01; done; echo $HOOKONCE_FIELD_N >> runs";
    let house = House::new(&numbers("", &format!("group = \"one\"\nrun = {{ steps = [\"{step}\"] }}")));
    for n in 1..=3 {
        house.deliver(IN, &number(&format!("id-{n}"), n)).await;
    }
    assert_eq!(house.ask("POST", "/api/events/id-2/cancel").await.json()["state"], "dead");
    touch(&house, "go");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "3"]);
}
