//! Events of one group do not overlap; others do.

use crate::support::{House, Sent, package, until};
use crate::{GHCR, IN, at_once, ghcr, number, numbers, touch};

/// A push of this package.
fn push(id: &str, of: &str, version: u64) -> Sent {
    let body = package("latest", version, 1).replace("\"jamiec_ts\"", &format!("\"{of}\""));
    Sent::github("registry_package", id, &body)
}

/// Checks that lines `begin x` and `end x` come in pairs; returns the names, in order.
fn check(lines: &[String]) -> Vec<String> {
    let pair = |pair: &[String]| {
        let (begin, end) = (pair[0].strip_prefix("begin "), pair.get(1).and_then(|line| line.strip_prefix("end ")));
        assert!(begin.is_some() && begin == end, "{pair:?} in {lines:?}");
        begin.unwrap().to_owned()
    };
    lines.chunks(2).map(pair).collect()
}

#[tokio::test]
async fn one_fixed_group_never_overlaps_across_packages_retries_and_sources() {
    let step = |who: &str| {
        format!(
            "run = {{ steps = [\"echo begin {who} >> log; sleep 0.05; echo end {who} >> log; \
             test $HOOKONCE_ATTEMPT = 2\"] }}\n\
             group = \"backend\"\nretry = {{ attempts = 2, first = \"50ms\" }}\n"
        )
    };
    let house = House::new(&(ghcr(&step("$HOOKONCE_FIELD_PACKAGE")) + &numbers("", &step("number$HOOKONCE_FIELD_N"))));
    let packages = ["a", "b", "c"].map(|name| push(name, name, 1));
    let others = [1, 2].map(|n| number("n", n));
    let (one, two) = tokio::join!(at_once(&house, GHCR, &packages), at_once(&house, IN, &others));
    assert!(one.iter().chain(&two).all(|answer| answer.status == 202), "{one:?} {two:?}");
    house.quiet().await;
    let runs = check(&house.lines("log"));
    assert_eq!(runs.len(), 10, "{runs:?}");
    for retried in runs.chunks(2) {
        assert_eq!(retried[0], retried[1], "the slot is held across retries: {runs:?}");
    }
    assert_eq!(house.count("done"), 5);
}

#[tokio::test]
async fn parked_events_run_in_the_order_they_came() {
    let step =
        "echo begin $HOOKONCE_FIELD_N >> log; until test -e go; do sleep 0.01; done; echo end $HOOKONCE_FIELD_N >> log";
    let house = House::new(&numbers("", &format!("group = \"one\"\nrun = {{ steps = [\"{step}\"] }}")));
    for n in 1..=8 {
        assert_eq!(house.deliver(IN, &number("n", n)).await.status, 202);
    }
    until("the first to run", || house.lines("log").len() == 1).await;
    assert_eq!((house.count("running"), house.count("waiting")), (1, 7));
    touch(&house, "go");
    house.quiet().await;
    assert_eq!(check(&house.lines("log")), ["1", "2", "3", "4", "5", "6", "7", "8"]);
}

#[tokio::test]
async fn parked_events_of_a_node_that_stopped_run_in_the_same_order() {
    let step = "echo $$ > pid; echo begin $HOOKONCE_FIELD_N >> log; until test -e go; do sleep 0.01; done; \
                echo end $HOOKONCE_FIELD_N >> log";
    let retry = "retry = { attempts = 1, first = \"1ms\" }";
    let mut house = House::new(&numbers("", &format!("{retry}\ngroup = \"one\"\nrun = {{ steps = [\"{step}\"] }}")));
    for n in 1..=4 {
        house.deliver(IN, &number("n", n)).await;
    }
    until("the first to run", || house.lines("log").len() == 1).await;
    let environ = format!("/proc/{}/environ", house.lines("pid")[0]); // empty as soon as the process has ended
    house.kill();
    until("the guard to kill the command", || std::fs::read(&environ).map_or(true, |env| env.is_empty())).await;
    std::fs::remove_file(house.path("log")).unwrap();
    touch(&house, "go");
    house.start();
    house.quiet().await;
    assert_eq!(check(&house.lines("log")), ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn different_groups_overlap() {
    // Each command ends only when the other has begun.
    let step = "touch $HOOKONCE_FIELD_PACKAGE; until test -e a && test -e b; do sleep 0.01; done";
    let house = House::new(&ghcr(&format!("run = {{ steps = [\"{step}\"], timeout = \"20s\" }}\nin_doubt = \"hold\"")));
    for name in ["a", "b"] {
        house.deliver(GHCR, &push(name, name, 1)).await;
    }
    house.quiet().await;
    assert_eq!(house.count("done"), 2);
}

#[tokio::test]
async fn one_at_once_means_one_at_a_time() {
    let step = "echo begin $HOOKONCE_FIELD_N >> log; sleep 0.03; echo end $HOOKONCE_FIELD_N >> log";
    let house = House::new(&numbers("", &format!("at_once = 1\nrun = {{ steps = [\"{step}\"] }}")));
    let all: Vec<_> = (1..=8).map(|n| number("n", n)).collect();
    at_once(&house, IN, &all).await;
    house.quiet().await;
    let mut runs = check(&house.lines("log"));
    runs.sort();
    assert_eq!(runs, ["1", "2", "3", "4", "5", "6", "7", "8"]);
}
