//! Pushes of one image with `when_busy = "replace"`, and the node is killed at any write: the newest push that was stored
//! is deployed, and no older one after a newer one.

use crate::crash_points::{crash, crash_at_each};
use crate::promises::deserted;
use crate::rounds;
use crate::support::{House, PATIENCE, Sent, package, until};

const PUSHES: u64 = 8;

const CONFIG: &str = r#"
[source.ghcr]
preset = "github-package"
path   = "/in"
secret = { env = "SECRET" }
[[source.ghcr.route]]
name  = "deploy"
lease = "20s"
run   = { steps = ["echo $HOOKONCE_FIELD_VERSION_ID >> runs; sleep 0.05"] }
"#;

/// Sends the pushes while the node lives; returns the newest that was accepted.
async fn push(house: &mut House) -> u64 {
    let mut newest = 0;
    for version in 1..=PUSHES {
        let body = package("latest", version, u32::try_from(version).unwrap());
        let sent = Sent::github("registry_package", &format!("push-{version}"), &body);
        let answer = tokio::time::timeout(PATIENCE, house.post("/in", &sent.headers, &sent.body)).await;
        match answer.expect("a response, or a closed connection, in time") {
            Ok(answer) if answer.status < 300 => newest = version,
            Ok(answer) => panic!("{answer:?}"),
            Err(_) if house.has_ended() => break,
            Err(_) => {} // it is ending
        }
    }
    newest
}

/// The versions in the order in which their command began.
fn runs(house: &House) -> Vec<u64> {
    house.lines("runs").iter().map(|line| line.parse().unwrap()).collect()
}

/// Kills the node at the nth call, starts another, and checks. Returns whether the node died there.
async fn crash_at(call: &str, nth: usize) -> bool {
    let mut house = House::new(CONFIG);
    assert!(house.stop().success()); // its tables exist
    let (accepted, died) = crash(&mut house, call, nth, push).await;
    let accepted = accepted.unwrap_or(0);
    let stored = house.sql("select max(json_extract(fields, '$.version_id')) from events where state <> 'dead'");
    let stored: u64 = stored.first().and_then(|max| max.parse().ok()).unwrap_or(0);
    let runs = runs(&house);
    println!("{call} {nth}: {accepted} accepted, {stored} stored, runs {runs:?}"); // shown if the test fails
    assert!(stored >= accepted, "an accepted push is lost");
    assert_eq!(runs.last().copied().unwrap_or(0), stored, "the newest push is not what was deployed last");
    assert!(runs.is_sorted(), "an older push was deployed after a newer one");
    assert_eq!(house.sql("select count(*) from events where state = 'dead'"), ["0"]);
    died
}

/// Calls that bring something to the disk, a command or a sender.
const CALLS: [(&str, usize, usize); 5] =
    [("pwrite64", 36, 11), ("fdatasync", 3, 1), ("write", 6, 1), ("writev", 1, 1), ("sendto", 1, 1)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_at_any_write_the_newest_push_is_deployed_and_no_older_one_after_it() {
    crash_at_each(&CALLS, rounds(6, 120), 10, crash_at).await;
}

#[tokio::test]
async fn a_push_that_was_running_when_the_node_was_killed_gives_way_to_the_newest() {
    let mut house = House::new(CONFIG);
    let accepted = push(&mut house).await;
    assert_eq!(accepted, PUSHES);
    until("the first push to run", || !runs(&house).is_empty()).await;
    house.kill();
    deserted(&house).await;
    house.start();
    house.quiet().await;
    let runs = runs(&house);
    assert_eq!(runs.last(), Some(&PUSHES), "{runs:?}");
    assert!(runs.is_sorted(), "{runs:?}");
}
