//! One image push, as GitHub delivers it: five deliveries, one or three of them with the tag `latest`. One deploy.

use crate::seed::{self, Random};
use crate::support::{House, PATIENCE, Sent, package, storm, until};
use crate::{GHCR, at_once, ghcr};
use std::time::{Duration, Instant};

/// Sends each burst in this way, to a command that succeeds and to one that fails: it runs once.
async fn check(way: impl AsyncFn(&mut House, Vec<Sent>)) {
    for name in ["storm_tags.jsonl", "storm_latest.jsonl"] {
        for (code, state) in [(0, "done"), (1, "dead")] {
            let step = format!("echo $HOOKONCE_FIELD_TAG $HOOKONCE_FIELD_VERSION_ID >> runs; exit {code}");
            let mut house = House::new(&ghcr(&format!("run = {{ steps = [\"{step}\"] }}")));
            way(&mut house, storm(name)).await;
            house.quiet().await;
            assert_eq!(house.lines("runs"), ["latest 675688875"], "{name}, exit {code}");
            assert_eq!(house.sql("select state from events"), [state], "{name}, exit {code}");
        }
    }
}

async fn in_turn(house: &House, storm: &[Sent]) {
    for sent in storm {
        let answer = house.deliver(GHCR, sent).await;
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    }
}

#[tokio::test]
async fn a_storm_is_one_deploy_in_order_and_again() {
    check(async |house, storm| {
        in_turn(house, &storm).await;
        house.quiet().await;
        in_turn(house, &storm).await;
    })
    .await;
}

#[tokio::test]
async fn a_storm_is_one_deploy_in_any_order() {
    for seed in seed::given_or_all(1..=4) {
        println!("{}", seed::repeat(seed));
        check(async |house, storm| {
            let mut all = [storm.clone(), storm].concat();
            Random::new(seed).shuffle(&mut all);
            in_turn(house, &all).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_storm_is_one_deploy_at_once_and_twice() {
    check(async |house, storm| {
        let all = [storm.clone(), storm].concat();
        for answer in at_once(house, GHCR, &all).await {
            assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_storm_is_one_deploy_across_a_restart() {
    check(async |house, storm| {
        for cut in [2, 4] {
            in_turn(house, &storm[..cut]).await;
            assert!(house.stop().success());
            house.start();
            in_turn(house, &storm[cut..]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_storm_is_one_deploy_across_a_crash() {
    check(async |house, storm| {
        for cut in [2, 4] {
            in_turn(house, &storm[..cut]).await;
            house.quiet().await;
            house.kill();
            house.start();
            in_turn(house, &storm[cut..]).await;
            house.quiet().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_delivery_that_is_not_a_tagged_latest_is_ignored_with_a_reason_and_leaves_no_row() {
    let house = House::new(&ghcr("run = { steps = [\"echo run >> runs\"] }"));
    let untagged = package("x", 1, 1).replace(r#""name":"x""#, r#""name":null"#);
    let elsewhere = package("latest", 1, 1);
    for (kind, body, reason) in [
        ("registry_package", package("main", 1, 1), r#"tag was "main", wanted tag == "latest""#),
        ("registry_package", package("", 1, 1), r#"tag was "", wanted tag == "latest""#),
        ("registry_package", untagged, r#"tag was missing, wanted tag == "latest""#),
        (
            "ping",
            r#"{"zen":"Keep it logically awesome."}"#.into(),
            r#"was "ping", wanted "registry_package" or "package""#,
        ),
        ("push", elsewhere, r#"was "push", wanted "registry_package" or "package""#),
    ] {
        let answer = house.deliver(GHCR, &Sent::github(kind, "an-id", &body)).await;
        let said = answer.json()["reason"].as_str().unwrap_or_default().to_owned();
        assert_eq!((answer.status, &*answer.word()), (200, "ignored"), "{answer:?}");
        assert!(said.ends_with(reason), "{said:?} should end with {reason:?}");
        assert_eq!(answer.header("hookonce-event"), None);
    }
    for table in ["events", "keys", "registers", "payloads", "sightings"] {
        assert_eq!(house.sql(&format!("select count(*) from {table}")), ["0"], "{table}");
    }
    let said = |line: &str| line.contains("INFO ignored   source=ghcr delivery=an-id why='");
    until("five lines", || house.log().lines().filter(|line| said(line)).count() == 5).await;
}

#[tokio::test]
async fn the_same_delivery_again_repairs_a_failed_deploy_and_its_siblings_do_not() {
    let step = "echo $HOOKONCE_ATTEMPT >> runs; test -e good";
    let house = House::new(&ghcr(&format!("run = {{ steps = [\"{step}\"] }}")));
    let first = Sent::package("first", "latest", 1, 1);
    let begun = Instant::now();
    let event = house.deliver(GHCR, &first).await.event();
    house.quiet().await;
    crate::touch(&house, "good");
    // Other deliveries of it never re-arm it, and the delivery itself not at once: both get `dead`.
    let mut answer = house.deliver(GHCR, &first).await;
    let mut second = 1;
    while answer.word() == "duplicate" {
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        second += 1;
        let sibling = house.deliver(GHCR, &Sent::package(&format!("sibling {second}"), "latest", 1, second)).await;
        for said in [&answer, &sibling] {
            let json = said.json();
            assert_eq!((said.status, json["state"].as_str()), (200, Some("dead")), "{said:?}");
            assert_eq!((json["cause"].as_str(), said.event()), (Some("failed"), event.clone()), "{said:?}");
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
        answer = house.deliver(GHCR, &first).await;
    }
    assert_eq!((answer.status, &*answer.word(), answer.event()), (202, "accepted", event.clone()), "{answer:?}");
    assert!(begun.elapsed() > Duration::from_secs(5), "re-armed after {:?}", begun.elapsed());
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "2"], "the count of attempts continues");
    // What is done stays done.
    let answer = house.deliver(GHCR, &first).await;
    assert_eq!((answer.status, answer.json()["state"].as_str()), (200, Some("done")), "{answer:?}");
    assert_eq!((house.lines("runs").len(), house.count("done")), (2, 1));
}

#[tokio::test]
async fn another_delivery_repairs_a_failed_deploy_only_after_rearm_after() {
    let route = "rearm_after = \"1s\"\nrun = { steps = [\"echo run >> runs; exit 1\"] }";
    let house = House::new(&ghcr(route));
    let begun = Instant::now();
    house.deliver(GHCR, &Sent::package("first", "latest", 1, 1)).await;
    house.quiet().await;
    let mut second = 1;
    loop {
        second += 1;
        let answer = house.deliver(GHCR, &Sent::package(&format!("sibling {second}"), "latest", 1, second)).await;
        if answer.word() == "accepted" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() > Duration::from_secs(1), "re-armed after {:?}", begun.elapsed());
    until("the second run", || house.lines("runs").len() == 2).await;
}
