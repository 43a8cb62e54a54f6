//! The registers of subjects in the API.

use crate::support::House;
use crate::{IN, get, number, numbers, request};
use serde_json::{Value, json};

/// Numbers that change their tag's value, in their own order.
pub(crate) fn changing(admin: &str) -> String {
    let once = "once = { per = [\"delivery\"], change = { of = [\"tag\"], to = [\"n\"], order = \"n\" } }";
    numbers(admin).replace("once   = { per = [\"delivery\", [\"n\", \"tag\"]] }", once)
}

fn keys(page: &Value) -> Vec<String> {
    let all = page["registers"].as_array().unwrap();
    all.iter().map(|one| one["register"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn registers_are_listed_page_by_page_and_found_by_their_fields() {
    let house = House::new(&changing(""));
    for n in 1..=5 {
        house.deliver(IN, &number(&format!("d{n}"), n, &format!("t{n}"))).await;
    }
    house.deliver(IN, &number("d6", 6, "t1")).await;
    house.quiet().await;
    let all = keys(&get(&house, "/api/registers").await);
    assert_eq!(all.len(), 5);
    assert!(all.is_sorted());
    let mut paged = Vec::new();
    let mut path = "/api/registers?limit=2".to_owned();
    loop {
        let page = get(&house, &path).await;
        paged.extend(keys(&page));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/registers?limit=2&after={next}");
    }
    assert_eq!(paged, all);
    let found = get(&house, "/api/registers?field.tag=t1&source=numbers").await;
    assert_eq!(keys(&found).len(), 1);
    let one = &found["registers"][0];
    assert_eq!((&one["subject"], &one["order"]), (&json!({ "tag": "t1" }), &json!(6)));
    assert_eq!((&one["current"]["value"], &one["ordered_by"]), (&json!({ "n": 6 }), &json!("n")));
    assert_eq!(keys(&get(&house, "/api/registers?source=others").await).len(), 0);
    for wrong in ["after=nothing", "limit=0", "sort=x", "field.=1"] {
        assert_eq!(house.ask("GET", &format!("/api/registers?{wrong}")).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_register_is_set_and_cleared_and_what_does_not_fit_is_refused() {
    let house = House::new(&changing(""));
    let mut events = Vec::new();
    for (n, tag) in [(1, "a"), (2, "a"), (3, "b")] {
        events.push(house.deliver(IN, &number(&format!("d{n}"), n, tag)).await.event());
        house.quiet().await;
    }
    let key = keys(&get(&house, "/api/registers?field.tag=a").await).remove(0);
    let at = |query: &str| format!("/api/registers/{key}{query}");
    let set = house.ask("POST", &at(&format!("?current={}", events[0]))).await;
    assert_eq!((set.status, &set.json()["current"]["event"]), (200, &json!(events[0])));
    assert_eq!((&set.json()["deployed"]["event"], &set.json()["strict"]), (&json!(events[1]), &json!(true)));
    let status = async |method: &str, path: &str| {
        let answer = house.ask(method, path).await;
        (answer.status, answer.json()["reason"].as_str().unwrap_or("").to_owned())
    };
    let is = |status: u16, reason: &str| (status, reason.to_owned());
    assert_eq!(status("POST", &at("")).await, is(400, "current, deployed or good is missing"));
    assert_eq!(status("POST", &at("?good=nobody")).await, is(404, "unknown_event"));
    let other = status("POST", &at(&format!("?good={}", events[2]))).await;
    assert_eq!((other.0, other.1.ends_with("belongs to another register")), (409, true), "{other:?}");
    assert_eq!(status("GET", "/api/registers/nobody").await, is(404, "unknown_register"));
    assert_eq!(status("DELETE", "/api/registers/nobody").await, is(404, "unknown_register"));
    let part = house.ask("DELETE", &at("?deployed=1")).await.json();
    assert_eq!((&part["left"]["good"], &part["left"]["current"]["event"]), (&json!(null), &json!(events[0])));
    let whole = house.ask("DELETE", &at("")).await;
    assert_eq!((whole.status, whole.json()), (200, json!({ "register": key, "left": null })));
    assert_eq!(status("GET", &at("")).await, is(404, "unknown_register"));
    assert_eq!(keys(&get(&house, "/api/registers").await).len(), 1);
}

#[tokio::test]
async fn states_and_queues_are_no_registers() {
    let route = "name = \"act\"\ngroup = [\"tag\"]\nwhen_busy = \"replace\"\nbudget = { runs = 5, within = \"1h\" }";
    let house = House::new(&numbers("").replace("name = \"act\"", route));
    let event = house.deliver(IN, &number("d1", 1, "a")).await.event();
    house.quiet().await;
    assert_eq!(house.sql("select count(*) from registers"), ["2"], "a queue, and a count of attempts");
    assert_eq!(get(&house, "/api/registers").await, json!({ "registers": [], "next": null }));
    assert_eq!(house.ask("GET", &format!("/api/registers/{event}")).await.status, 404);
    for key in house.sql("select key from registers") {
        for method in ["GET", "DELETE"] {
            assert_eq!(house.ask(method, &format!("/api/registers/{key}")).await.status, 404, "{method}");
        }
    }
    assert_eq!(house.sql("select count(*) from registers"), ["2"]);
}

#[tokio::test]
async fn a_token_that_may_only_read_sees_registers_and_changes_none() {
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"ALL_TOKEN\" }\n\
                 tokens = [{ token = { env = \"READ_TOKEN\" }, may = \"read\" }]\n";
    let mut house = House::empty(&changing(admin));
    let mut serve = house.command(&["serve"]);
    serve.env("ALL_TOKEN", "all-token-1").env("READ_TOKEN", "read-token-2");
    house.try_start_by(serve).unwrap();
    let event = house.deliver(IN, &number("d1", 1, "a")).await.event();
    house.quiet().await;
    for (token, change) in [("read-token-2", 403), ("all-token-1", 200)] {
        let bearer = [("authorization", &*format!("Bearer {token}"))];
        let path = format!("/api/registers/{event}");
        assert_eq!(request(&house, "GET", &path, &bearer, "").await.status, 200);
        assert_eq!(request(&house, "POST", &format!("{path}?good={event}"), &bearer, "").await.status, change);
        assert_eq!(request(&house, "DELETE", &path, &bearer, "").await.status, change);
    }
}
