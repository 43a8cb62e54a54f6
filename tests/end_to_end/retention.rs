//! What is kept, for how long, and under which names.

use crate::support::{House, PATIENCE, Sent, until};
use crate::{GHCR, IN, ghcr, number, numbers};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const RUN: &str = "run = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }";

#[tokio::test]
async fn an_event_without_an_action_is_done_in_the_commit_that_claims_it() {
    let house = House::new(&numbers("", ""));
    let answer = house.deliver(IN, &number("a", 1)).await;
    assert_eq!((answer.status, &*answer.word()), (202, "accepted"), "{answer:?}");
    assert_eq!(house.sql("select state || ' ' || revision || ' ' || attempt from events"), ["done 1 0"]);
    let again = house.deliver(IN, &number("a", 1)).await;
    assert_eq!((again.status, again.json()["state"].as_str()), (200, Some("done")), "{again:?}");
}

#[tokio::test]
async fn a_forgotten_event_may_act_again_and_not_before() {
    let house = House::new(&numbers("once = { keep = \"6s\", keep_body = \"1s\" }", RUN));
    let begun = Instant::now();
    let first = house.deliver(IN, &number("a", 1)).await.event();
    house.quiet().await;
    until("the event to end", || !house.sql("select 1 from events where ended_at is not null").is_empty()).await;
    let mut bodies = 0;
    let mut forgotten = 0;
    while forgotten == 0 {
        assert!(begun.elapsed() < PATIENCE, "it is not removed");
        let answer = house.ask("POST", "/api/forget").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        (bodies, forgotten) =
            (bodies + answer.json()["bodies"].as_u64().unwrap(), answer.json()["forgotten"].as_u64().unwrap());
        if bodies == 1 && forgotten == 0 {
            // Its keys are still there, its body is not.
            let replay = house.ask("POST", &format!("/api/events/{first}/replay")).await;
            assert_eq!(replay.status, 410, "{replay:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(begun.elapsed() > Duration::from_secs(6), "forgotten after {:?}", begun.elapsed());
    assert_eq!((bodies, forgotten), (1, 1));
    let again = house.deliver(IN, &number("a", 1)).await;
    assert_eq!(again.word(), "accepted", "{again:?}");
    assert_ne!(again.event(), first);
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "1"]);
}

#[tokio::test]
async fn expiry_needs_no_sweep() {
    let house = House::new(&numbers("once = { keep = \"1s\" }", RUN));
    let begun = Instant::now();
    house.deliver(IN, &number("a", 1)).await;
    house.quiet().await;
    // Duplicates never extend its retention.
    while house.deliver(IN, &number("a", 1)).await.word() == "duplicate" {
        assert!(begun.elapsed() < PATIENCE, "it is not removed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() > Duration::from_secs(1), "forgotten after {:?}", begun.elapsed());
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "1"]);
}

#[tokio::test]
async fn an_event_that_waits_for_a_removed_route_is_reported_before_it_is_due() {
    let route = |name: &str| {
        let retry = "retry = { attempts = 2, first = \"1h\" }";
        numbers("", &format!("{retry}\nrun = {{ steps = [\"false\"] }}")).replace("\"act\"", &format!("\"{name}\""))
    };
    let mut house = House::new(&route("old"));
    let event = house.deliver(IN, &number("a", 1)).await.event();
    until("it to fail", || house.count("waiting") == 1).await;
    let check = |house: &House| {
        let said = house.command(&["check"]).output().unwrap();
        String::from_utf8(said.stdout).unwrap() + std::str::from_utf8(&said.stderr).unwrap()
    };
    let waits = "1 event waits for the route `old` of source `numbers`, which is not configured";
    assert!(!check(&house).contains(waits) && !house.log().contains(waits));
    assert!(house.stop().success());

    house.configure(&route("new"));
    assert!(check(&house).contains(waits), "{}", check(&house));
    house.start();
    until("a warning", || house.log().contains(waits)).await;
    let why = house.ask("GET", &format!("/api/events/{event}")).await.json()["why"].clone();
    assert_eq!(why, "waiting: no route `old` of source `numbers` is configured now");
    let show = house.command(&["show", "a", "--admin", &house.admin_url("")]).output().unwrap();
    assert!(String::from_utf8_lossy(&show.stdout).contains("no route `old` of source `numbers` is configured now"));
}

#[tokio::test]
async fn an_event_whose_route_is_gone_waits_without_its_slot_and_runs_when_the_route_is_back() {
    let retry = "retry = { attempts = 2, first = \"1ms\" }\ngroup = \"one\"";
    let route = |name: &str| numbers("", &format!("{retry}\n{RUN}")).replace("\"act\"", &format!("\"{name}\""));
    let fails = route("old").replace("steps = [\"", "steps = [\"until test -e good; do sleep 0.01; done; ");
    let mut house = House::new(&fails);
    for n in 1..=3 {
        house.deliver(IN, &number("old", n)).await;
    }
    until("one of them to run", || house.count("running") == 1).await;
    house.signal(Signal::TERM);
    until("the node to drain", || house.log().contains("draining")).await;
    assert!(house.stop().success(), "stopped by two signals");
    crate::touch(&house, "good");

    house.configure(&route("new"));
    house.start();
    let begun = Instant::now();
    house.deliver(IN, &number("new", 4)).await;
    until("another to pass them", || house.lines("runs") == ["4"]).await;
    // It would have taken this long if each of them had held the slot.
    assert!(begun.elapsed() < 3 * hookonce::decide::limits::ROUTE_GONE_LOOK, "{:?}", begun.elapsed());
    until("each of them in the log", || house.log().matches("route gone: old").count() == 3).await;
    assert_eq!(house.count("waiting"), 3);
    assert!(house.stop().success());

    house.configure(&fails);
    house.start();
    house.quiet().await;
    let mut runs = house.lines("runs");
    runs[1..].sort();
    assert_eq!(runs, ["4", "1", "2", "3"]);
    assert_eq!(house.count("done"), 4);
}

#[tokio::test]
async fn fields_are_columns_in_the_database() {
    let house = House::new(&ghcr("run = { steps = [\"true\"] }"));
    house.deliver(GHCR, &Sent::package("one", "latest", 7, 1)).await;
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    let row = db.query_row("select delivery_id, tag, version_id, sha from events", [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    let row: (String, String, i64, String) = row.unwrap();
    assert_eq!(row, ("one".into(), "latest".into(), 7, format!("sha256:{:064x}", 7)));
}
