//! Events listed, shown and replayed; deliveries explained; the overview.

use crate::support::{House, Sent, until};
use crate::{IN, get, number, numbers, request};
use serde_json::{Value, json};

/// The numbers of these events, in order.
fn found(page: &Value) -> Vec<u64> {
    page["events"].as_array().unwrap().iter().map(|event| event["fields"]["n"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn events_are_found_by_cause_time_field_and_text_and_paged_while_new_ones_come() {
    let house = House::new(&numbers(""));
    for n in 10..=15 {
        house.deliver(IN, &number(&format!("Delivery-{n}"), n, if n < 13 { "a" } else { "b" })).await;
    }
    house.quiet().await;
    let list = async |query: &str| found(&get(&house, &format!("/api/events?{query}")).await);
    assert_eq!(list("cause=failed").await, [13]);
    assert_eq!(list("state=dead&cause=rejected").await, Vec::<u64>::new());
    assert_eq!(list("cause=acted").await, [15, 14, 12, 11, 10]);
    assert_eq!(list("field.n=12").await, [12]);
    assert_eq!(list("field.tag=b&field.n=14").await, [14]);
    assert_eq!(list("field.tag=B").await, Vec::<u64>::new());
    assert_eq!(list("field.nothing=1").await, Vec::<u64>::new());
    assert_eq!(list("text=delivery-11").await, [11]);
    assert_eq!(list("text=DELIVERY").await.len(), 6);
    assert_eq!(list("text=%22").await, Vec::<u64>::new());
    let all = get(&house, "/api/events").await;
    let one = &all["events"][2];
    let (id, at) = (one["event"].as_str().unwrap(), one["received_at"].as_str().unwrap());
    assert_eq!(list(&format!("text={}", &id[28..])).await, [13]);
    assert_eq!(list(&format!("since={at}")).await, [15, 14, 13]);
    assert_eq!(list(&format!("until={at}")).await, [12, 11, 10]);
    assert_eq!(list("until=2001-01-01T00:00:00Z").await, Vec::<u64>::new());

    let first = get(&house, "/api/events?limit=2&source=numbers").await;
    assert_eq!(found(&first), [15, 14]);
    house.deliver(IN, &number("Delivery-16", 16, "a")).await;
    let second = get(&house, &format!("/api/events?limit=4&before={}", first["next"].as_str().unwrap())).await;
    assert_eq!((found(&second), &second["next"]), (vec![13, 12, 11, 10], &Value::Null));
    for wrong in
        ["limit=0", "limit=501", "cause=tired", "since=yesterday", "state=dead&state=done", "field.=1", "text="]
    {
        let answer = house.ask("GET", &format!("/api/events?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn an_event_is_shown_with_its_identities_its_body_as_text_and_what_it_superseded() {
    let route = "run = { steps = [\"false\"] }\nretry = { attempts = 5, first = \"1h\" }";
    let house = House::new(&format!(
        "\n[source.ghcr]\npreset = \"github-package\"\npath = \"/version/1\"\nsecret = {{ env = \"SECRET\" }}\n\
         [[source.ghcr.route]]\nname = \"deploy\"\n{route}\n"
    ));
    let first = house.deliver("/version/1", &Sent::package("a", "latest", 1, 1)).await.event();
    until("the first attempt", || house.sql("select count(*) from attempts") == ["1"]).await;
    let second = house.deliver("/version/1", &Sent::package("b", "latest", 2, 2)).await.event();
    until("the first to be superseded", || house.count("done") == 1).await;
    let story = get(&house, &format!("/api/events/{second}")).await;
    assert_eq!(story["supersedes"], json!([first]));
    let old = get(&house, &format!("/api/events/{first}")).await;
    assert_eq!((&old["how"], &old["superseded_by"]), (&json!("superseded"), &json!(second)));
    let words: Vec<_> =
        story["identities_in_words"].as_array().unwrap().iter().map(|one| one["words"].as_str().unwrap()).collect();
    assert!(words.iter().any(|words| words.starts_with("a change of package + tag to version_id + sha")), "{words:?}");
    assert!(words.iter().any(|words| words.starts_with("the delivery id (header.x-github-delivery)")), "{words:?}");

    let body = house.ask("GET", &format!("/api/events/{second}/body")).await;
    assert_eq!(body.body, Sent::package("b", "latest", 2, 2).body);
    assert_eq!(body.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(body.header("x-content-type-options"), Some("nosniff"));
    let headers = get(&house, &format!("/api/events/{second}/headers")).await;
    assert!(
        headers["headers"]
            .as_array()
            .unwrap()
            .contains(&json!({ "name": "content-type", "value": "application/json" }))
    );
    assert_eq!(house.ask("GET", "/api/events/nobody/body").await.status, 404);
}

#[tokio::test]
async fn a_bulk_replay_counts_first_and_replays_only_the_counted_set() {
    let house = House::new(&numbers(""));
    for n in 0..4 {
        house.deliver(IN, &number(&format!("d{n}"), 13, &format!("t{n}"))).await;
    }
    house.deliver(IN, &number("fine", 1, "a")).await;
    house.quiet().await;
    let post = async |query: &str| {
        let answer = house.ask("POST", &format!("/api/replay?{query}")).await;
        (answer.status, answer.json())
    };
    let (_, counted) = post("state=dead&dry=1").await;
    assert_eq!((&counted["count"], &counted["capped"]), (&json!(4), &json!(false)));
    assert_eq!(post("state=dead&dry=1&limit=3").await.1["capped"], json!(true));
    assert_eq!(post("state=dead").await.0, 400, "without a count");
    assert_eq!(post("state=waiting&dry=1").await.0, 400);
    let guard = counted["guard"].as_str().unwrap();
    house.deliver(IN, &number("d4", 13, "t4")).await;
    house.quiet().await;
    let (status, changed) = post(&format!("state=dead&guard={guard}")).await;
    assert_eq!((status, &changed["reason"]), (409, &json!("changed")));
    assert_eq!(house.sql("select max(life) from events"), ["1"]);
    let (_, counted) = post("state=dead&dry=1").await;
    let guard = counted["guard"].as_str().unwrap();
    let (status, replayed) = post(&format!("state=dead&guard={guard}")).await;
    assert_eq!((status, replayed), (200, json!({ "replayed": 5, "refused": [] })));
    house.quiet().await;
    assert_eq!(house.sql("select count(*) from events where life = 2"), ["5"]);
}

#[tokio::test]
async fn sources_are_shown_as_check_shows_them_and_without_secrets() {
    let house = House::new(&numbers(""));
    let told = get(&house, "/api/sources").await;
    let checked = house.command(&["check", "--json"]).output().unwrap();
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let mut source = told["sources"][0].clone();
    assert_eq!(source["url"], json!(house.url(IN)));
    for more in ["url", "identities_in_words"] {
        source.as_object_mut().unwrap().remove(more);
    }
    assert_eq!(source, checked["sources"][0]);
    assert_eq!(told["sources"][0]["identities_in_words"][1], json!("n + tag"));
}

#[tokio::test]
async fn a_pasted_delivery_is_explained_as_the_command_explains_it() {
    let house = House::new(&numbers(""));
    let sent = number("d1", 1, "a");
    let headers: serde_json::Map<_, _> = sent.headers.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
    let body = String::from_utf8(sent.body.clone()).unwrap();
    let explain = async |pasted: Value| {
        let json = [("content-type", "application/json")];
        let answer = request(&house, "POST", "/api/explain", &json, &pasted.to_string()).await;
        (answer.status, answer.json())
    };
    let pasted = json!({ "source": "numbers", "headers": headers, "body": body });
    let (status, told) = explain(pasted.clone()).await;
    let one = &told["deliveries"][0];
    assert_eq!((status, &one["signature"]["is"], &one["acts"]), (200, &json!("right"), &json!(true)), "{told}");
    assert!(one["text"].as_str().unwrap().contains("it would   be a new event, and act on route act"), "{told}");
    let event = house.deliver(IN, &sent).await.event();
    house.quiet().await;
    let (_, told) = explain(pasted).await;
    let would = &told["deliveries"][0]["would"]["events"][0];
    assert_eq!((&would["be"], &would["of"]), (&json!("duplicate"), &json!(event)));
    let raw = format!("POST {IN} HTTP/1.1\nx-github-event: push\ncontent-type: application/json\n\n{body}");
    // A whole request without a signature has none; of parts it is not known.
    assert_eq!(explain(json!({ "raw": raw })).await.1["deliveries"][0]["signature"]["is"], json!("wrong"));
    let part = json!({ "headers": { "x-github-event": "push" }, "body": body });
    assert_eq!(explain(part).await.1["deliveries"][0]["signature"]["is"], json!("unchecked"));
    assert_eq!(explain(json!({ "event": event })).await.0, 200);
    let base64 =
        json!({ "body_base64": "eyJuIjoxLCJ0YWciOiJubyJ9", "headers": { "content-type": "application/json" } });
    assert_eq!(explain(base64).await.1["deliveries"][0]["would"]["be"], json!("ignored"));
    for (wrong, status) in [
        (json!({}), 400),
        (json!({ "colour": "red" }), 400),
        (json!({ "source": "others", "body": "{}" }), 400),
        (json!({ "body_base64": "%" }), 400),
        (json!({ "raw": "x", "body": "y" }), 400),
        (json!({ "event": "nobody" }), 404),
        (json!([1]), 400),
    ] {
        assert_eq!(explain(wrong.clone()).await.0, status, "{wrong}");
    }
    assert_eq!(house.count("done"), 1, "nothing was written");
}

#[tokio::test]
async fn the_overview_counts_deliveries_and_outcomes_and_restores_events_after_a_restart() {
    let mut house = House::new(&numbers(""));
    house.deliver(IN, &number("d1", 1, "a")).await;
    house.deliver(IN, &number("d1", 1, "a")).await;
    house.deliver(IN, &number("d2", 1, "a")).await;
    house.deliver(IN, &number("d3", 13, "a")).await;
    house.deliver(IN, &number("d4", 1, "no")).await;
    house.deliver(IN, &number("d5", 1, "a").with("x-hub-signature-256", "sha256=00")).await;
    house.quiet().await;
    let states = ["done", "dead"];
    let ends = states.map(|state| format!(r#"hookonce_event_states_total{{source="numbers",state="{state}"}} 1"#));
    house.counted(&ends.each_ref().map(String::as_str)).await;
    for window in ["1h", "24h", "7d"] {
        let told = get(&house, &format!("/api/overview?window={window}")).await;
        let expected =
            json!({ "accepted": 2, "duplicate": 2, "stale": 0, "ignored": 1, "refused": 1, "unavailable": 0 });
        assert_eq!(told["deliveries"], expected, "{window}");
        assert_eq!(told["duplicates"], json!({ "delivery": 1, "n+tag": 1 }));
        assert_eq!(told["attempts"], json!({ "delivered": 1, "failed": 1, "rejected": 0, "unknown": 0 }));
        assert_eq!(told["ended"], json!({ "done": 1, "dead": 1 }));
        assert_eq!(told["events"], json!({ "waiting": 0, "running": 0, "done": 1, "dead": 1, "capped": false }));
        assert_eq!((&told["saved"]["window"], &told["store"]["kind"]), (&json!(2), &json!("sqlite")));
        let at = told["series"]["at"].as_array().unwrap();
        assert!(at.len() <= 120 && at.len() >= 60);
        for (name, points) in told["series"].as_object().unwrap() {
            let Some(points) = points.as_array() else { continue }; // `same` has a series for each identity
            assert_eq!(points.len(), at.len(), "{name}");
            let wanted = match name.as_str() {
                "at" => continue,
                "accepted" | "duplicate" => 2,
                "stale" | "unavailable" => 0,
                _ => 1,
            };
            assert_eq!(points.iter().map(|point| point.as_u64().unwrap()).sum::<u64>(), wanted, "{name}");
        }
    }
    assert_eq!(house.ask("GET", "/api/overview?window=2h").await.status, 400);
    house.stop();
    house.start();
    let start = std::time::Instant::now();
    loop {
        let told = get(&house, "/api/overview").await;
        if told["deliveries"]["accepted"] == json!(2) && told["ended"] == json!({ "done": 1, "dead": 1 }) {
            assert_eq!(told["deliveries"]["duplicate"], json!(0), "only events are read back");
            assert_eq!(told["saved"]["kept"], json!(2));
            break;
        }
        assert!(start.elapsed() < crate::support::PATIENCE, "{told}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_event_is_found_by_its_complete_id_even_if_a_delivery_has_the_same_id() {
    let house = House::new(&numbers(""));
    let event = house.deliver(IN, &number("a", 1, "x")).await.event();
    let other = house.deliver(IN, &number(&event, 2, "x")).await.event();
    assert_eq!(get(&house, &format!("/api/events/{event}")).await["event"], event.as_str());
    assert_eq!(get(&house, &format!("/api/events/{other}")).await["delivery"], event.as_str());
    let shown = house.command(&["show", &event, "--json"]).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["event"], event.as_str());
}
