//! `replay`, `cancel` and `forget`: through a running node, or with the store's lock when there is none.

use crate::support::{House, Sent, until};
use crate::{IN, begun, delivered, numbers, on_known_ports, run, run_knowing};
use serde_json::json;
use std::path::Path;

#[tokio::test]
async fn an_event_is_replayed_by_its_node_or_when_a_node_starts() {
    let mut house = on_known_ports("");
    let event = delivered(&house, "mine", 1).await;
    let short = &event[28..];
    assert_eq!(run(&house, &["replay", short]).fine(), format!("replayed {short}, life 2\n"));
    until("the second run", || house.lines("runs").len() == 2).await;
    house.quiet().await;
    house.stop();
    let said = run(&house, &["replay", "mine"]).fine();
    assert_eq!(said, format!("replayed {short}, life 3: it runs when a node is started\n"));
    run(&house, &["replay", "mine"]).check(1, &format!("{short} was not replayed: it is waiting"));
    assert_eq!(run(&house, &["cancel", "mine"]).fine(), format!("cancelled {short}, which was waiting\n"));
    let again = run(&house, &["replay", "mine", "--json"]).json();
    assert_eq!((&again["replayed"][0]["life"], &again["refused"]), (&json!(4), &json!([])));
    house.start();
    until("the third run", || house.lines("runs").len() == 3).await;
}

#[tokio::test]
async fn several_events_are_replayed_only_with_consent_and_oldest_first() {
    let house = on_known_ports("");
    for n in 1..=3 {
        delivered(&house, &format!("id-{n}"), n).await;
    }
    run(&house, &["replay", "--state", "done"])
        .check(1, "This runs 3 events again. Add --yes to go on; nothing was done");
    run(&house, &["replay", "id-1", "nobody"]).check(1, "there is no event `nobody`");
    assert_eq!(house.lines("runs").len(), 3, "an error in one name replays none");
    run(&house, &["replay", "--state", "dead"]).check(0, "no event matches; nothing was done");
    let said = run(&house, &["replay", "--state", "done", "--source", "numbers", "--yes"]).fine();
    assert_eq!(said.lines().count(), 3);
    until("three more runs", || house.lines("runs").len() == 6).await;
    house.quiet().await;
    assert_eq!(run(&house, &["replay", "id-1", "id-1"]).fine().lines().count(), 1, "a repeated name is one event");
    run(&house, &["replay"]).check(2, "required");
    run(&house, &["replay", "mine", "--state", "dead"]).check(2, "cannot be used with");
}

#[tokio::test]
async fn an_event_whose_body_is_gone_is_not_replayed_and_the_others_are() {
    let mut house = House::new(&numbers());
    let (gone, kept) = (delivered(&house, "mine", 1).await, delivered(&house, "yours", 2).await);
    house.stop();
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    db.execute_batch("delete from payloads where event = (select id from events where delivery_id = 'mine')").unwrap();
    drop(db);
    let said = run(&house, &["replay", "mine", "yours", "--yes"]);
    said.check(1, &format!("{} was not replayed: its body is no longer kept", &gone[28..]));
    assert!(said.out.starts_with(&format!("replayed {}", &kept[28..])), "{said:?}");
    assert!(run(&house, &["show", "mine"]).fine().contains("body        no longer kept, so it cannot be replayed"));
    house.start();
    run(&house, &["replay", "mine", "--admin", &house.admin_url("")]).check(1, "its body is no longer kept");
}

#[tokio::test]
async fn a_store_in_use_is_left_alone_and_its_node_is_used() {
    let house = House::new(&numbers());
    let event = begun(&house, "w", 7).await;
    for args in [&["cancel", "w"][..], &["replay", "w"], &["forget", "w", "--yes"]] {
        let said = run(&house, args);
        said.check(2, "is locked by a running node");
        assert!(said.err.contains("--admin"), "{said:?}");
    }
    let admin = house.admin_url("");
    until("it to run", || house.count("running") == 1).await;
    let cancelled = run(&house, &["cancel", "w", "--admin", &admin, "--json"]).json();
    assert_eq!((&cancelled["event"], &cancelled["cause"]), (&json!(event), &json!("cancelled")));
    run(&house, &["cancel", "w", "--admin", &admin]).check(1, "was not cancelled: it is dead");
}

#[tokio::test]
async fn a_delivery_acts_again_after_an_operator_forgot_its_event() {
    let mut house = on_known_ports("");
    let event = delivered(&house, "mine", 1).await;
    run(&house, &["forget", "mine"]).check(1, "its next delivery will act again. Add --yes to go on");
    let said = run(&house, &["forget", "mine", "--yes"]).fine();
    assert_eq!(said, format!("forgot {}: its next delivery acts again\n", &event[28..]));
    run(&house, &["show", "mine"]).check(1, "there is no event");
    assert_ne!(delivered(&house, "mine", 1).await, event);
    assert_eq!(house.lines("runs"), ["1", "1"]);
    begun(&house, "w", 7).await;
    run(&house, &["forget", "w", "--yes"]).check(1, "only a done or dead event can be forgotten");
    std::fs::write(house.path("go"), "").unwrap();
    house.quiet().await;
    house.stop();
    let document = run(&house, &["forget", "mine", "--yes", "--json"]).json();
    assert_eq!(document["forgotten"], 1);
    house.start();
    delivered(&house, "mine", 1).await;
    assert_eq!(house.lines("runs").iter().filter(|n| *n == "1").count(), 3);
}

#[tokio::test]
async fn expired_events_are_forgotten_by_the_retention_of_the_config() {
    let mut house = on_known_ports("");
    delivered(&house, "mine", 1).await;
    assert_eq!(run(&house, &["forget"]).fine(), "forgot 0 events and 0 bodies\n");
    house.stop();
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    let month = 31_i64 * 86_400 * 1_000_000;
    db.execute("update events set keep_from = keep_from - ?1, ended_at = ended_at - ?1", [month]).unwrap();
    drop(db);
    run(&house, &["forget"]).check(2, "`SECRET` is not set");
    assert_eq!(run_knowing(&house, &["forget"]).fine(), "forgot 1 event and 1 body\n");
    assert_eq!(run_knowing(&house, &["forget", "--json"]).json(), json!({ "forgotten": 0, "bodies": 0 }));
}

/// The statement of docs/operating.md for the free space in a file.
fn free_bytes(house: &House) -> u64 {
    let docs = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md")).unwrap();
    let line = docs.lines().find(|line| line.contains("freelist_count")).expect("the docs have the statement");
    house.sql(line.split('"').nth(1).expect("a statement in quotes"))[0].parse().unwrap()
}

#[tokio::test]
async fn vacuum_returns_the_space_of_forgotten_events_when_no_node_runs() {
    let mut house = House::new(&numbers());
    let mut random = 1_u64;
    for n in 20..26 {
        let mut noise = String::new();
        while noise.len() < 200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            noise.push_str(&random.to_string());
        }
        let body = format!("{{\"n\":{n},\"word\":\"w\",\"noise\":\"{noise}\"}}");
        assert_eq!(house.deliver(IN, &Sent::github("push", &format!("id-{n}"), &body)).await.word(), "accepted");
    }
    house.quiet().await;
    delivered(&house, "kept", 30).await;
    run(&house, &["vacuum"]).check(2, "is in use by another hookonce");
    house.stop();
    for n in 20..26 {
        run(&house, &["forget", &format!("id-{n}"), "--yes"]).fine();
    }
    let length = || std::fs::metadata(house.path("hookonce.db")).unwrap().len();
    let (before, free) = (length(), free_bytes(&house));
    assert!(free > 400_000, "{free}");
    let said = run(&house, &["vacuum"]).fine();
    assert!(said.starts_with("hookonce.db: ") || said.contains("/hookonce.db: "), "{said}");
    assert!(said.contains(" KB now; ") && said.ends_with(" returned to the disk\n"), "{said}");
    assert!(length() + free <= before && free_bytes(&house) == 0, "{before} and {} now: {said}", length());
    house.start();
    let kept = Sent::github("push", "kept", "{\"n\":30,\"word\":\"w30\"}");
    assert_eq!(house.deliver(IN, &kept).await.word(), "duplicate", "kept events are still known");
    house.stop();
    run(&house, &["vacuum", "--store", "nothing.db"]).check(2, "no database at nothing.db");
    house.configure(&numbers().replacen("[admin]", "store = \"memory:\"\n[admin]", 1));
    run(&house, &["vacuum"]).check(1, "there is nothing to shrink");
}

#[tokio::test]
async fn vacuum_reports_a_file_that_another_program_reads() {
    let mut house = on_known_ports("");
    delivered(&house, "kept", 1).await;
    house.stop();
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin; select count(*) from events").unwrap();
    run(&house, &["vacuum"]).check(2, "is locked by another program, such as an open `sqlite3` shell; close it");
    drop(other);
    assert!(run(&house, &["vacuum"]).fine().ends_with(" returned to the disk\n"));
}

#[tokio::test]
async fn a_source_that_no_node_has_is_ended_and_forgotten_with_consent() {
    let mut house = on_known_ports("");
    delivered(&house, "mine", 1).await;
    delivered(&house, "yours", 2).await;
    run(&house, &["forget", "--source", "numbers", "--yes"]).check(1, "a running node has this source");
    run(&house, &["forget", "--source", "nobody", "--yes"]).check(1, "the store has no event of the source `nobody`");
    run(&house, &["forget", "mine", "--source", "numbers"]).check(2, "cannot be used with");
    house.stop();
    run(&house, &["replay", "mine"]).fine();
    run(&house, &["forget", "--source", "numbers"]).check(1, "will act again. Add --yes to go on; nothing was done");
    let said = run(&house, &["forget", "--source", "numbers", "--yes"]).fine();
    assert_eq!(said, "forgot 2 events of numbers; 1 was waiting and will not act\n");
    house.start();
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "2"], "the waiting event did not act");
    delivered(&house, "mine", 1).await;
    assert_eq!(house.lines("runs"), ["1", "2", "1"], "it is new again");
    house.stop();
    let document = run(&house, &["forget", "--source", "numbers", "--yes", "--json"]).json();
    assert_eq!(document, json!({ "source": "numbers", "forgotten": 1, "ended": 0, "running": 0 }));
}
