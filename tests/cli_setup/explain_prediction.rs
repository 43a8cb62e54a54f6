//! `hookonce explain` beside a running node: its prediction is what then happens.

use super::support::{House, Sent, until};
use super::{ghcr, run};
use serde_json::{Value, json};

/// Saves a delivery in the format of the test payloads.
fn save(house: &House, sent: &Sent) {
    let headers: serde_json::Map<_, _> = sent.headers.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
    let line = json!({ "headers": headers, "body": String::from_utf8_lossy(&sent.body) });
    std::fs::write(house.path("saved.json"), line.to_string()).unwrap();
}

/// The predicted verdict, and the exit code.
fn foretold(house: &House, sent: &Sent) -> (Value, i32) {
    save(house, sent);
    let told = run(house, &["explain", "saved.json", "--json"]);
    let would = told.json()["would"].clone();
    let would = would["events"].get(0).cloned().unwrap_or(would);
    (would, told.code)
}

#[tokio::test]
async fn the_prediction_is_what_the_node_then_answers() {
    let house = House::new(&ghcr("run = { steps = ['true'] }"));
    let forged = Sent::package("7", "latest", 3, 30).with("x-hub-signature-256", "sha256=00");
    // Each delivery, its predicted verdict, the node's status, and the exit code.
    let days = [
        (Sent::package("1", "latest", 1, 10), "new", "accepted", 0),
        (Sent::package("1", "latest", 1, 10), "duplicate", "duplicate", 1),
        (Sent::package("2", "latest", 1, 20), "duplicate", "duplicate", 1),
        (Sent::package("3", "main", 9, 20), "ignored", "ignored", 1),
        (Sent::package("4", "latest", 2, 15), "stale", "stale", 1),
        (Sent::package("5", "latest", 2, 25), "new", "accepted", 0),
        (Sent::github("push", "6", "{}"), "ignored", "ignored", 1),
        (forged, "refused", "refused", 1),
        (Sent::github("registry_package", "8", "{}"), "refused", "refused", 1),
        (Sent::package("2", "latest", 1, 20), "duplicate", "duplicate", 1),
    ];
    for (sent, expected, answered, code) in days {
        let before = house.sql("select count(*) || ':' || (select count(*) from keys) from events");
        let (would, said) = foretold(&house, &sent);
        assert_eq!((would["be"].as_str(), said), (Some(expected), code), "{would}");
        assert_eq!(house.sql("select count(*) || ':' || (select count(*) from keys) from events"), before);
        let answer = house.deliver("/version/1", &sent).await;
        assert_eq!(answer.word(), answered);
        if expected == "duplicate" {
            assert_eq!((&would["of"], &would["same"]), (&answer.json()["event"], &answer.json()["same"]), "{would}");
        }
        house.quiet().await;
    }
}

#[tokio::test]
async fn an_event_is_explained_by_its_id_a_suffix_of_it_and_its_delivery_id() {
    let house = House::new(&ghcr("run = { steps = ['true'] }"));
    let sent = Sent::package("a-delivery", "latest", 1, 10);
    let event = house.deliver("/version/1", &sent).await.event();
    house.quiet().await;
    for name in [&event, &event[28..], "a-delivery"] {
        run(&house, &["explain", name]).has(
            1,
            &[
                &format!("delivery   event {event}"),
                "its signature was checked when it arrived",
                "id         a-delivery",
                &format!("be a duplicate by its delivery, of event {event}"),
                "which is done (acted) since",
            ],
        );
    }
    run(&house, &["explain", "00000000"]).has(2, &["and no event of that name in"]);
    run(&house, &["explain", &event, "--source", "none"]).has(2, &["there is no source `none`"]);
}

#[tokio::test]
async fn the_revival_of_a_dead_event_is_predicted_exactly_when_it_happens() {
    let numbers = |route: &str, keys: &str| {
        format!(
            "[source.n]\npath = '/n'\nverify = {{ scheme = 'github', secret = {{ env = 'SECRET' }} }}\n\
             fields = {{ n = 'body.n' }}\n{keys}\n[[source.n.route]]\nname = 'act'\n{route}\n"
        )
    };
    let sent = Sent::github("push", "1", "{\"n\":1}");
    let house = House::new(&numbers("run = { steps = ['false'] }\nredelivery = 'ignore'", ""));
    house.deliver("/n", &sent).await;
    until("the event to die", || house.count("dead") == 1).await;
    let (would, code) = foretold(&house, &sent);
    assert_eq!((&would["be"], &would["state"], code), (&"duplicate".into(), &"dead".into(), 1));
    run(&house, &["explain", "saved.json"]).has(1, &["which is dead (failed) since", "and not revive it (ignore)"]);

    let house = House::new(&numbers("run = { steps = ['false'] }", "respond = 'done'"));
    house.deliver("/n", &sent).await;
    until("the event to die", || house.count("dead") == 1).await;
    assert_eq!(foretold(&house, &sent).0["be"], "rearmed");
    run(&house, &["explain", "saved.json"]).has(0, &["and give it another attempt"]);
}

#[tokio::test]
async fn an_event_that_must_wait_for_its_group_is_predicted_to_wait() {
    let config = "[source.n]\npath = '/n'\nverify = 'none'\nonce = { per = ['body'] }\n\
                  [[source.n.route]]\nname = 'act'\ngroup = 'one'\n\
                  run = { steps = ['until test -e go; do sleep 0.01; done'] }\n";
    let house = House::new(config);
    let sent = |n: u32| Sent { headers: Vec::new(), body: format!("{{\"n\":{n}}}").into_bytes() };
    house.deliver("/n", &sent(1)).await;
    let (would, code) = foretold(&house, &sent(2));
    assert_eq!((&would["be"], &would["parked"], code), (&"new".into(), &true.into(), 0));
    std::fs::write(house.path("go"), "").unwrap();
    house.quiet().await;
    assert_eq!(foretold(&house, &sent(2)).0["parked"], Value::Null);
}
