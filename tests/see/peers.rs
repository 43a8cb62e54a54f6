//! What did not become an event is visible, on whichever node it arrived.

use crate::house::House;
use crate::{IN, get, number, numbers, request};
use serde_json::{Value, json};

fn reasons(told: &Value) -> Vec<(String, String)> {
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or("").to_owned();
    let all = told["turned_away"].as_array().unwrap();
    all.iter().map(|one| (text(one, "verdict"), text(one, "reason"))).collect()
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.into(), b.into())
}

#[tokio::test]
async fn refused_and_ignored_deliveries_are_shown_with_the_reason_and_without_the_body() {
    let house = House::new(&numbers(""));
    house.deliver(IN, &number("d1", 1, "no")).await;
    house.deliver(IN, &number("d2", 1, "a").with("x-hub-signature-256", "sha256=00")).await;
    house.deliver("/wrong?token=hidden", &number("d3", 1, "a")).await;
    house.deliver(IN, &number("d4", 1, "a")).await;
    house.quiet().await;
    let told = get(&house, "/api/turned-away").await;
    let expected = [pair("refused", "unknown_path"), pair("refused", "bad_signature"), pair("ignored", "filtered")];
    assert_eq!(reasons(&told), expected);
    let all = &told["turned_away"];
    assert_eq!((&all[0]["path"], &all[0]["source"], &all[0]["status"]), (&json!("/wrong"), &Value::Null, &json!(404)));
    assert_eq!((&all[1]["delivery"], &all[1]["status"]), (&json!("d2"), &json!(401)));
    assert_eq!(all[2]["why"], json!("tag was \"no\", wanted tag != \"no\""));
    assert!(!told.to_string().contains("hidden"));
    assert_eq!(reasons(&get(&house, "/api/turned-away?verdict=ignored").await), [pair("ignored", "filtered")]);
    assert_eq!(
        get(&house, "/api/turned-away?source=numbers&limit=1").await["turned_away"].as_array().unwrap().len(),
        1
    );
    for _ in 0..100 {
        house.deliver(IN, &number("d1", 1, "no")).await;
    }
    assert_eq!(get(&house, "/api/turned-away?source=numbers").await["turned_away"].as_array().unwrap().len(), 64);
}

#[tokio::test]
async fn any_node_shows_what_the_others_turned_away_and_names_who_did_not_answer() {
    let tokens = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"ALL_TOKEN\" }\n";
    let start = |admin: &str| {
        let mut house = House::empty(&numbers(admin));
        let mut serve = house.command(&["serve"]);
        serve.env("ALL_TOKEN", "all-token-1").env("PEER_TOKEN", "all-token-1").env("WRONG", "wrong");
        house.try_start_by(serve).unwrap();
        house
    };
    let other = start(tokens);
    let gone = { House::new(&numbers("")).admin_url("") };
    let peers = |more: &str| {
        format!("{tokens}peers = [\"{}\", \"{gone}/\"]\npeer_token = {{ env = \"{more}\" }}\n", other.admin_url(""))
    };
    let house = start(&peers("PEER_TOKEN"));
    other.deliver(IN, &number("d1", 1, "a").with("x-hub-signature-256", "sha256=00")).await;
    house.deliver(IN, &number("d2", 1, "no")).await;
    let bearer = [("authorization", "Bearer all-token-1")];
    let told = request(&house, "GET", "/api/turned-away", &bearer, "").await.json();
    assert_eq!(reasons(&told), [pair("ignored", "filtered"), pair("refused", "bad_signature")]);
    let nodes = told["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    assert_eq!(nodes.iter().map(|node| node["answered"] == json!(true)).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(nodes[1]["node"], told["turned_away"][1]["node"]);
    assert_eq!(nodes[2]["address"], json!(gone));
    let own = request(&house, "GET", "/api/turned-away?local=1", &bearer, "").await.json();
    assert_eq!((reasons(&own).len(), own["nodes"].as_array().unwrap().len()), (1, 1));
    let stranger = start(&peers("WRONG"));
    let told = request(&stranger, "GET", "/api/turned-away", &bearer, "").await.json();
    assert_eq!(told["nodes"][1]["why"], json!("it answered 401"));
}
