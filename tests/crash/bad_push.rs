//! A push that is not healthy, and the node is killed at any commit: at rest the last good one is deployed, once more and
//! not twice.

use crate::crash_points::{crash, crash_at_each};
use crate::rounds;
use crate::support::{House, PATIENCE, Sent, package};
use std::time::{Duration, Instant};

const CONFIG: &str = r#"
[source.ghcr]
preset = "github-package"
path   = "/in"
secret = { env = "SECRET" }
[[source.ghcr.route]]
name  = "deploy"
lease = "20s"
retry = { first = "10ms" }
run   = { steps = ["echo $HOOKONCE_FIELD_VERSION_ID > live; echo $HOOKONCE_FIELD_VERSION_ID$HOOKONCE_ROLLBACK >> runs"] }
health_check = { run = ["grep", "-qx", "1", "live"], within = "500ms", every = "100ms" }
on_unhealthy = "rollback"
"#;

async fn push(house: &House, version: u64) -> bool {
    let sent = Sent::github("registry_package", &format!("push-{version}"), &package("latest", version, 1));
    house.post("/in", &sent.headers, &sent.body).await.is_ok_and(|answer| answer.status == 202)
}

/// Deploys a bad push, until it is rolled back or the node has died. Returns whether the push was accepted.
async fn push_bad(house: &mut House) -> bool {
    let accepted = push(house, 2).await;
    let begun = Instant::now();
    while !house.has_ended() && house.sql("select 1 from events where origin like '%' and ended_at > 0").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{}", house.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    accepted
}

/// Kills the node at the nth call, starts another, and checks. Returns whether the node died there.
async fn crash_at(call: &str, nth: usize) -> bool {
    let mut house = House::new(CONFIG);
    assert!(push(&house, 1).await);
    house.quiet().await;
    assert!(house.stop().success());
    let (accepted, died) = crash(&mut house, call, nth, push_bad).await;
    let accepted = accepted.unwrap_or(false);
    let runs = house.lines("runs");
    let ends = house.sql("select cause from events order by received_at, origin is not null");
    println!("{call} {nth}: accepted {accepted}, runs {runs:?}, {ends:?}"); // shown if the test fails
    assert_eq!(house.lines("live"), ["1"], "the last good one is not what runs");
    if ends.len() == 1 {
        assert!(!accepted, "an accepted push is lost");
        assert_eq!(runs, ["1"]);
        return died;
    }
    assert_eq!(ends, ["acted", "unhealthy", "acted"]);
    // A command may run again if its node dies before its success is written: at most once for each kill.
    let count = |run: &str| runs.iter().filter(|line| *line == run).count();
    assert!(matches!((count("2"), count("11")), (1, 1 | 2) | (2, 1)), "{runs:?}");
    died
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_at_any_commit_a_bad_push_is_rolled_back() {
    crash_at_each(&[("fdatasync", 2, 1)], rounds(9, 30), 4, crash_at).await;
}
