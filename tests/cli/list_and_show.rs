//! `list` and `show`: beside a node, without one, by file, by URL; as text and as JSON.

use crate::support::{House, SECRET};
use crate::{begun, delivered, numbers, on_known_ports, run};
use serde_json::json;

#[tokio::test]
async fn events_are_listed_alike_with_and_without_a_node() {
    let mut house = House::new(&numbers());
    for (id, n) in [("mine", 1), ("yours", 13), ("theirs", 3)] {
        delivered(&house, id, n).await;
    }
    let admin = house.admin_url("");
    let ways: [&[&str]; 5] = [
        &[],
        &["--store", "hookonce.db"],
        &["--store", "sqlite:hookonce.db"],
        &["--admin", &admin],
        &["-c", "hookonce.toml"],
    ];
    let list = |house: &House, way: &[&str], more: &[&str]| run(house, &[&["list"], way, more].concat());
    let first = list(&house, &[], &["--json"]).json();
    let numbers: Vec<_> = first["events"].as_array().unwrap().iter().map(|e| e["fields"]["n"].clone()).collect();
    assert_eq!((numbers, &first["next"]), (vec![json!(3), json!(13), json!(1)], &json!(null)));
    for way in ways {
        assert_eq!(list(&house, way, &["--json"]).json(), first, "{way:?}");
        let dead = list(&house, way, &["--state", "dead"]).fine();
        let cells: Vec<_> = dead.trim_end().split('\t').collect();
        assert_eq!((cells[1], cells[2], cells[7]), ("dead", "failed", "yours"), "{way:?}");
        assert_eq!(cells[8], r#"{"n":13,"word":"w13"}"#);
        assert_eq!(list(&house, way, &["--limit", "2"]).fine().lines().count(), 2);
        let older = list(&house, way, &["--before", "yours", "--source", "numbers", "--route", "act"]).fine();
        assert!(older.lines().count() == 1 && older.contains("\"n\":1,"), "{older}");
        assert_eq!(list(&house, way, &["--source", "nobody"]).fine(), "");
    }
    house.stop();
    assert_eq!(list(&house, &[], &["--json"]).json(), first);
    assert_eq!(list(&house, &["--store", "hookonce.db"], &["--json"]).json(), first);
    list(&house, &["--admin", &admin], &[]).check(2, "no node responds at http://127.0.0.1:");
}

#[tokio::test]
async fn an_event_is_shown_with_the_reason_for_its_state() {
    let house = House::new(&numbers());
    let dead = delivered(&house, "yours", 13).await;
    house.deliver(crate::IN, &crate::Sent::github("push", "other", r#"{"n":13,"word":"w13"}"#)).await;
    crate::support::until("the sighting", || house.sql("select count(*) from sightings") == ["1"]).await;
    let shown = run(&house, &["show", &dead[28..]]).fine();
    for part in [
        &*format!("event       {dead}\n"),
        "state       dead: it failed because step 1 of block 1 exited with 3: echo acting on",
        "source      numbers, route act\n",
        "fields      n     13\n            word  w13\n",
        "once per    the delivery id · the body\n",
        "deliveries  yours\n            other  duplicate, ",
        ": the body\n",
        "body        kept\n",
        "attempts    attempt 1 failed after ",
        "              acting on 13\n",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
    let running = begun(&house, "w", 7).await;
    assert!(run(&house, &["show", &running]).fine().contains("state       running: attempt 1, by node "));
    let document = run(&house, &["show", "yours", "--json"]).json();
    assert_eq!((&document["event"], &document["duplicates"]), (&json!(dead), &json!(1)));
    let by_port = run(&house, &["show", "yours", "--json", "--admin", &house.admin_url("")]).json();
    assert_eq!(by_port, document);
}

#[tokio::test]
async fn an_ambiguous_name_lists_its_events_and_an_unknown_one_is_reported() {
    let house = House::new(&numbers());
    let mut events = Vec::new();
    for n in [1, 2] {
        events.push(delivered(&house, "same", n).await);
    }
    let admin = house.admin_url("");
    for way in [&["--store", "hookonce.db"], &["--admin", &*admin]] {
        let said = run(&house, &[&["show", "same"], &way[..]].concat());
        said.check(1, "`same` matches several events; give more of the id:");
        assert!(events.iter().all(|event| said.err.contains(event)), "{said:?}");
        run(&house, &[&["show", "zz/../%20?"], &way[..]].concat()).check(1, "there is no event `zz/../%20?`");
        run(&house, &[&["list", "--before", "nobody"], &way[..]].concat()).check(1, "there is no event `nobody`");
    }
    run(&house, &["show", ""]).check(2, "a value is required");
}

#[tokio::test]
async fn the_config_leads_to_its_node_and_without_its_token_to_its_store() {
    let house = on_known_ports("token = { env = \"SECRET\" }");
    let event = delivered(&house, "mine", 1).await;
    let admin = house.admin_url("");
    // Without a token, the command reads the store instead.
    assert!(run(&house, &["list"]).fine().starts_with(&event));
    run(&house, &["list", "--admin", &admin]).check(2, "requires a token");
    run(&house, &["list", "--admin", &admin, "--token-env", "NOWHERE"]).check(2, "`NOWHERE` is not set");
    let mut command = house.command(&["list", "--admin", &admin]);
    command.env("HOOKONCE_ADMIN_TOKEN", SECRET);
    assert!(crate::end(command).fine().starts_with(&event));
    let mut command = house.command(&["show", "mine", "--admin", &admin, "--token-env", "MINE"]);
    command.env("MINE", SECRET);
    assert!(crate::end(command).fine().contains(&event));
    let mut command = house.command(&["show", "mine", "--admin", &admin]);
    command.env("HOOKONCE_ADMIN_TOKEN", "another");
    crate::end(command).check(2, "requires a token");
}
