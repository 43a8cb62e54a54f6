//! `when_busy`, `debounce` and `budget`: which of the events that wait run, and when.

use crate::support::{House, Sent, package, until};
use crate::{GHCR, IN, at_once, ghcr, number, numbers, touch};
use std::time::{Duration, Instant};

/// Says which event runs, and runs until the file `go` exists.
const STEP: &str = "echo $HOOKONCE_FIELD_VERSION_ID >> runs; until test -e go; do sleep 0.01; done";

/// Pushes of the image, each newer than the one before.
fn pushes(versions: std::ops::RangeInclusive<u64>) -> Vec<Sent> {
    let push = |version: u64| {
        let time = format!("2026-01-01T00:{:02}:{:02}Z", version / 60, version % 60);
        let body = package("latest", version, 0).replace("2026-02-07T16:20:00Z", &time);
        Sent::github("registry_package", &format!("push-{version}"), &body)
    };
    versions.map(push).collect()
}

#[tokio::test]
async fn of_ten_pushes_the_first_and_the_tenth_are_deployed() {
    for many in [10, 100] {
        let house = House::new(&ghcr(&format!("run = {{ steps = [\"{STEP}\"] }}")));
        let pushes = pushes(1..=many);
        for sent in &pushes {
            assert_eq!(house.deliver(GHCR, sent).await.status, 202);
        }
        until("the first to run", || house.lines("runs") == ["1"]).await;
        assert_eq!((house.count("running"), house.count("waiting")), (1, 1));
        touch(&house, "go");
        house.quiet().await;
        assert_eq!(house.lines("runs"), ["1", &*many.to_string()]);
        let ends = house.sql("select cause || ' ' || count(*) from events group by cause order by cause");
        assert_eq!(ends, ["acted 2".to_owned(), format!("superseded {}", many - 2)]);
        // A repeat of a push that was superseded is answered with the one that was deployed instead.
        let answer = house.deliver(GHCR, &pushes[4]).await;
        assert_eq!((answer.status, answer.word().as_str()), (200, "duplicate"));
        assert_eq!(house.lines("runs").len(), 2);
    }
}

#[tokio::test]
async fn a_thousand_pushes_at_once_are_two_deploys_and_the_last_is_the_newest() {
    let house = House::new(&ghcr(&format!("run = {{ steps = [\"{STEP}\"] }}")));
    let pushes = pushes(1..=1000);
    for some in pushes.chunks(100) {
        for answer in at_once(&house, GHCR, some).await {
            assert!(matches!(answer.status, 200 | 202), "{answer:?}"); // one that comes late is stale
        }
    }
    until("one to run", || house.lines("runs").len() == 1).await;
    touch(&house, "go");
    house.quiet().await;
    let runs = house.lines("runs");
    assert_eq!((runs.len(), &*runs[1]), (2, "1000"), "{runs:?}");
}

#[tokio::test]
async fn with_queue_every_push_is_deployed() {
    let house =
        House::new(&ghcr("when_busy = \"queue\"\nrun = { steps = [\"echo $HOOKONCE_FIELD_VERSION_ID >> runs\"] }"));
    for sent in pushes(1..=5) {
        assert_eq!(house.deliver(GHCR, &sent).await.status, 202);
    }
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn a_push_that_failed_gives_way_to_the_next_and_a_change_of_the_config_thins_the_backlog() {
    let step = "echo $HOOKONCE_FIELD_VERSION_ID >> runs; until test -e go; do sleep 0.01; done; test $HOOKONCE_FIELD_VERSION_ID != 1";
    let route = |busy: &str| {
        ghcr(&format!(
            "when_busy = \"{busy}\"\nretry = {{ attempts = 5, first = \"1h\" }}\nrun = {{ steps = [\"{step}\"] }}"
        ))
    };
    let mut house = House::new(&route("queue"));
    for sent in pushes(1..=6) {
        assert_eq!(house.deliver(GHCR, &sent).await.status, 202);
    }
    until("the first to run", || house.lines("runs") == ["1"]).await;
    assert_eq!(house.count("waiting"), 5);
    house.configure(&route("replace"));
    house.kill();
    touch(&house, "go");
    house.start();
    house.quiet().await;
    let runs = house.lines("runs");
    assert_eq!(runs.last().unwrap(), "6", "{runs:?}");
    assert!(!runs.iter().any(|run| ["2", "3", "4", "5"].contains(&&**run)), "{runs:?}");
}

#[tokio::test]
async fn without_a_subject_the_groups_fields_say_what_replaces_what() {
    let step = "echo $HOOKONCE_FIELD_PR $HOOKONCE_FIELD_N >> runs; until test -e go; do sleep 0.01; done";
    let config = numbers("", &format!("group = [\"pr\"]\nwhen_busy = \"replace\"\nrun = {{ steps = [\"{step}\"] }}"));
    let house = House::new(&config.replace("n = \"body.n\"", "n = \"body.n\", pr = \"body.pr\""));
    let comment = |pr: u32, n: u32| Sent::github("push", &format!("{pr}-{n}"), &format!("{{\"n\":{n},\"pr\":{pr}}}"));
    for n in 1..=5 {
        for pr in [7, 8] {
            assert_eq!(house.deliver(IN, &comment(pr, n)).await.status, 202);
        }
    }
    until("one of each to run", || house.lines("runs").len() == 2).await;
    touch(&house, "go");
    house.quiet().await;
    let mut runs = house.lines("runs");
    runs.sort();
    assert_eq!(runs, ["7 1", "7 5", "8 1", "8 5"]);
    assert_eq!(house.sql("select count(*) from events where cause = 'superseded'"), ["6"]);
}

#[tokio::test]
async fn a_burst_is_one_run_of_its_last_event_and_a_restart_does_not_begin_it_again() {
    let route =
        "debounce = \"5s\"\ndebounce_max = \"60s\"\nrun = { steps = [\"echo $HOOKONCE_FIELD_VERSION_ID >> runs\"] }";
    let mut house = House::new(&ghcr(route));
    let began = Instant::now();
    for sent in pushes(1..=5) {
        assert_eq!(house.deliver(GHCR, &sent).await.status, 202);
    }
    assert_eq!(house.sql("select aside from events where state = 'waiting'"), ["debounce"]);
    assert_eq!(house.sql("select count(*) from slots"), ["0"], "it holds no slot");
    house.kill();
    house.start();
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["5"]);
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_burst_that_does_not_end_is_acted_on_after_the_longest_wait() {
    let route =
        "debounce = \"1h\"\ndebounce_max = \"1h\"\nrun = { steps = [\"echo $HOOKONCE_FIELD_VERSION_ID >> runs\"] }";
    let mut house = House::new(&ghcr(route));
    let pushes = pushes(1..=2);
    house.deliver(GHCR, &pushes[0]).await;
    house.configure(&ghcr(&route.replace("1h", "1s")));
    assert!(house.stop().success());
    house.start();
    let age = "(julianday('now') - 2440587.5) * 86400 - burst_since / 1000000.0";
    until("the burst to last longer than it may", || house.sql(&format!("select {age} > 1 from events")) == ["1"])
        .await;
    house.deliver(GHCR, &pushes[1]).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["2"], "the second event begins at once: the burst began with the first");
    assert_eq!(house.sql("select count(distinct burst_since) from events"), ["1"]);
}

#[tokio::test]
async fn attempts_beyond_the_budget_wait_and_are_shown_to_wait() {
    let route = "budget = { runs = 2, within = \"1h\" }\nretry = { attempts = 2, first = \"10ms\" }\n\
                 run = { steps = [\"echo $HOOKONCE_FIELD_N >> runs; test $HOOKONCE_FIELD_N = 2\"] }";
    let house = House::new(&numbers("", route));
    house.deliver(IN, &number("one", 1)).await; // fails twice: retries cost, too
    until("both attempts", || house.count("dead") == 1).await;
    house.deliver(IN, &number("two", 2)).await;
    until("it to wait for its budget", || house.sql("select aside from events where state = 'waiting'") == ["budget"])
        .await;
    assert_eq!(house.lines("runs"), ["1", "1"]);
    let list = house.command(&["list", "--state", "waiting"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let id = house.sql("select lower(hex(substr(id, 13))) from events where state = 'waiting'").remove(0);
    assert!(list.contains(&id), "{list}");
    let shown = String::from_utf8(house.command(&["show", &id]).output().unwrap().stdout).unwrap();
    assert!(shown.contains("its route's budget is used up"), "{shown}");
}

#[tokio::test]
async fn beyond_the_budget_an_event_may_be_dropped_and_a_person_may_run_it_all_the_same() {
    let route = "budget = { runs = 1, within = \"1h\", exceeded = \"drop\" }\n\
                 run = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }";
    let house = House::new(&numbers("", route));
    for n in 1..=3 {
        house.deliver(IN, &number("n", n)).await;
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), ["1"]);
    assert_eq!(house.sql("select cause from events where state = 'dead'"), ["over_budget", "over_budget"]);
    // A redelivery does not run it: only a person does.
    assert_eq!(house.deliver(IN, &number("n", 2)).await.word(), "duplicate");
    let id =
        house.sql("select lower(hex(substr(id, 13))) from events where cause = 'over_budget' order by id").remove(0);
    let admin = house.admin_url("");
    let replayed = house.command(&["replay", &id, "--admin", &admin]).output().unwrap();
    assert!(replayed.status.success(), "{replayed:?}");
    until("the replay", || house.lines("runs") == ["1", "2"]).await;
    house.quiet().await;
}
