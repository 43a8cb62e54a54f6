//! Deliveries that made no event are visible on every node.

use crate::support::{House, PATIENCE};
use crate::{IN, get, http, number, numbers, parrot, request};
use serde_json::{Value, json};
use std::time::Instant;

fn reasons(told: &Value) -> Vec<(String, String)> {
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or("").to_owned();
    let all = told["deliveries"].as_array().unwrap();
    all.iter().map(|one| (text(one, "verdict"), text(one, "reason"))).collect()
}

/// What this node says about the refused and ignored deliveries of all, once this many of its peers have responded: a
/// busy machine may take longer than a node waits.
async fn told_by(house: &House, headers: &[(&str, &str)], peers: usize) -> Value {
    let start = Instant::now();
    loop {
        let told = request(house, "GET", "/api/deliveries?verdict=refused,ignored", headers, "").await.json();
        let nodes = told["nodes"].as_array().unwrap();
        if nodes.iter().filter(|node| node["answered"] == json!(true)).count() > peers {
            return told;
        }
        assert!(start.elapsed() < PATIENCE, "{told:#}");
    }
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
    let told = get(&house, "/api/deliveries?verdict=refused,ignored").await;
    let expected = [pair("refused", "unknown_path"), pair("refused", "bad_signature"), pair("ignored", "filtered")];
    assert_eq!(reasons(&told), expected);
    let all = &told["deliveries"];
    assert_eq!((&all[0]["path"], &all[0]["source"], &all[0]["status"]), (&json!("/wrong"), &Value::Null, &json!(404)));
    assert_eq!((&all[1]["delivery"], &all[1]["status"]), (&json!("d2"), &json!(401)));
    assert_eq!(all[2]["why"], json!("tag was \"no\", wanted tag != \"no\""));
    assert!(!told.to_string().contains("hidden"));
    assert_eq!(reasons(&get(&house, "/api/deliveries?verdict=ignored").await), [pair("ignored", "filtered")]);
    assert_eq!(
        get(&house, "/api/deliveries?verdict=refused,ignored&source=numbers&limit=1").await["deliveries"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    for _ in 0..100 {
        house.deliver(IN, &number("d1", 1, "no")).await;
    }
    let left = |verdict: &'static str| {
        let path = format!("/api/deliveries?source=numbers&verdict={verdict}");
        let house = &house;
        async move { get(house, &path).await["deliveries"].as_array().unwrap().len() }
    };
    assert_eq!((left("ignored").await, left("refused").await), (64, 1), "each kind has its own limit");
    for wrong in ["", "refused,", "refused,accepted", "refused ignored"] {
        assert_eq!(house.ask("GET", &format!("/api/deliveries?verdict={wrong}")).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn the_path_of_the_first_release_lists_the_refused_and_ignored_deliveries_alone() {
    let house = House::new(&numbers(""));
    house.deliver(IN, &number("d1", 1, "a")).await;
    house.deliver(IN, &number("d1", 1, "a")).await;
    house.deliver(IN, &number("d2", 1, "no")).await;
    house.quiet().await;
    let told = get(&house, "/api/turned-away").await;
    assert_eq!(told["turned_away"], get(&house, "/api/deliveries?verdict=ignored,refused").await["deliveries"]);
    assert_eq!(told["turned_away"].as_array().unwrap().len(), 1);
    assert_eq!(told["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(house.ask("GET", "/api/turned-away?verdict=duplicate").await.status, 400);
}

#[tokio::test]
async fn any_node_shows_the_others_rejected_deliveries_and_names_peers_that_did_not_respond() {
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
    let told = told_by(&house, &bearer, 1).await;
    assert_eq!(reasons(&told), [pair("ignored", "filtered"), pair("refused", "bad_signature")]);
    let nodes = told["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    assert_eq!(nodes.iter().map(|node| node["answered"] == json!(true)).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(nodes[1]["node"], told["deliveries"][1]["node"]);
    assert_eq!(nodes[2]["address"], json!(gone));
    let own = request(&house, "GET", "/api/deliveries?local=1", &bearer, "").await.json();
    assert_eq!((reasons(&own).len(), own["nodes"].as_array().unwrap().len()), (1, 1));
    let stranger = start(&peers("WRONG"));
    let start = Instant::now();
    loop {
        let told = told_by(&stranger, &bearer, 0).await;
        if told["nodes"][1]["why"] == json!("it responded with 401") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{told:#}");
    }
}

#[tokio::test]
async fn the_verdict_on_a_delivery_is_found_by_its_id() {
    let config = numbers("").replace("once   =", "# once =");
    let once =
        "[source.numbers.once]\nper = [\"delivery\"]\nchange = { of = [\"tag\"], to = [\"n\"], order = \"n\" }\n";
    let house = House::new(&config.replace("[[source.numbers.route]]", &format!("{once}[[source.numbers.route]]")));
    let event = house.deliver(IN, &number("first-1", 5, "a")).await.event();
    for (id, n, tag) in [("twin-1", 5, "a"), ("late-1", 3, "a"), ("other-1", 1, "no")] {
        house.deliver(IN, &number(id, n, tag)).await;
    }
    house.deliver(IN, &number("forged-1", 9, "a").with("x-hub-signature-256", "sha256=00")).await;
    house.deliver("/wrong", &number("astray-1", 9, "a")).await;
    house.quiet().await;
    let (event, none) = (json!(event), Value::Null);
    for (id, verdict, reason, leads) in [
        ("TWIN", "duplicate", "", &event),
        ("late-1", "stale", "", &event),
        ("other-1", "ignored", "filtered", &none),
        ("forged-1", "refused", "bad_signature", &none),
        ("astray-1", "refused", "unknown_path", &none),
    ] {
        let told = get(&house, &format!("/api/deliveries?text={id}")).await;
        let all = told["deliveries"].as_array().unwrap();
        assert_eq!(all.len(), 1, "{id}: {told}");
        assert_eq!((&all[0]["verdict"], &all[0]["reason"]), (&json!(verdict), &json!(reason)), "{id}");
        assert_eq!(&all[0]["event"], leads, "{id}");
    }
    assert_eq!(get(&house, "/api/deliveries").await["deliveries"].as_array().unwrap().len(), 5);
    assert_eq!(get(&house, "/api/deliveries?verdict=stale").await["deliveries"].as_array().unwrap().len(), 1);
    for _ in 0..100 {
        house.deliver(IN, &number("forged-2", 9, "a").with("x-hub-signature-256", "sha256=00")).await;
    }
    let left = get(&house, "/api/deliveries?verdict=refused,ignored&text=other").await;
    assert_eq!(reasons(&left), [pair("ignored", "filtered")], "forged deliveries evict only forged ones");
}

#[tokio::test]
async fn a_peer_that_sends_lies_garbage_or_an_endless_response_is_named_and_changes_nothing() {
    let row = json!({
        "at": "2026-01-01T00:00:00Z", "node": { "x": 1 }, "source": ["<b>"], "path": null, "verdict": "refused",
        "status": 401, "reason": { "deep": [] }, "why": "w".repeat(5000), "delivery": 7, "bytes": 3, "more": "than asked",
    });
    let told = |rows: Value| http(&json!({ "deliveries": rows, "nodes": [{ "node": "liar" }] }).to_string());
    let with = |name: &str, value: Value| {
        let mut row = row.clone();
        row[name] = value;
        told(json!([row]))
    };
    let garbage = [
        http("<html>"),
        http("[]"),
        http("{\"deliveries\": {}}"),
        told(json!(["text"])),
        with("verdict", json!("accepted by nobody")),
        with("status", json!(-1)),
        with("at", json!("yesterday")),
        "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{".into(),
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".into(),
        "\0\0\0".into(),
        http(&"[".repeat(100_000)),
    ];
    let mut peers = vec![parrot(&told(json!([row]))).await];
    for answer in &garbage {
        peers.push(parrot(answer).await);
    }
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    peers.push(format!("http://{}", mute.local_addr().unwrap()));
    let house = House::new(&numbers(&format!("[admin]\nlisten = \"127.0.0.1:0\"\npeers = {}\n", json!(peers))));
    house.deliver(IN, &number("d2", 1, "no")).await;
    let begun = Instant::now();
    get(&house, "/api/deliveries?verdict=refused,ignored").await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(30));
    let told = told_by(&house, &[], 1).await;
    let nodes = told["nodes"].as_array().unwrap();
    let answered: Vec<_> = nodes.iter().map(|node| node["answered"] == json!(true)).collect();
    assert_eq!(answered[..2], [true, true]);
    assert!(answered[2..].iter().all(|answered| !answered), "{nodes:#?}");
    let all = told["deliveries"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    // Its values are truncated to the types and lengths of a node's response.
    assert_eq!((&all[1]["source"], &all[1]["delivery"], &all[1]["node"]), (&Value::Null, &Value::Null, &json!("liar")));
    assert_eq!((&all[1]["reason"], all[1]["why"].as_str().unwrap().chars().count()), (&json!(""), 401));
    assert!(all[1].get("more").is_none());
}
