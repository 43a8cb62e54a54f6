//! Events that fail and are told about, and the node is killed at any write: each end that was written is told, by one
//! notification.

use crate::crash_points::{crash, crash_at_each};
use crate::rounds;
use crate::support::{House, PATIENCE, Sent};
use std::time::Duration;

const EVENTS: usize = 4;

const CONFIG: &str = r#"
[source.s]
path   = "/in"
verify = { scheme = "github", secret = { env = "SECRET" } }
notify = { run = { steps = ["echo $HOOKONCE_EVENT >> told"] }, retry = { first = "1ms", longest = "1ms" } }
[[source.s.route]]
name  = "act"
lease = "20s"
retry = { attempts = 1, first = "1ms", longest = "1ms" }
run   = { steps = ["exit 1"] }
"#;

/// Sends the deliveries while the node lives, and waits until all are told or the node has died.
async fn send(house: &mut House) {
    for n in 0..EVENTS {
        let sent = Sent::github("push", &format!("id-{n}"), &format!("{{\"n\":{n}}}"));
        let answer = house.post("/in", &sent.headers, &sent.body);
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("a response in time");
        if answer.is_err() && house.has_ended() {
            return;
        }
    }
    for _ in 0..500 {
        if house.has_ended() || house.lines("told").len() >= EVENTS {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Kills the node at the nth call, starts another, and checks. Returns whether the node died there.
async fn crash_at(call: &str, nth: usize) -> bool {
    let mut house = House::new(CONFIG);
    assert!(house.stop().success()); // its tables exist
    let (_, died) = crash(&mut house, call, nth, send).await;
    let dead = house.sql("select lower(hex(id)) from events where route = 'act' and state = 'dead' order by id");
    let of = "replace(json_extract(origin, '$.notification.of'), '-', '')";
    let notified = house.sql(&format!("select {of} from events where route = 'notify:run' order by 1"));
    let mut told: Vec<_> = house.lines("told").iter().map(|id| id.replace('-', "")).collect();
    told.sort();
    told.dedup();
    println!("{call} {nth}: {} dead, {} notifications, {} told", dead.len(), notified.len(), told.len()); // shown if the test fails
    assert_eq!(notified, dead, "an end has no notification, or several");
    assert_eq!(told, dead, "a notification was not sent");
    died
}

/// Calls that bring something to the disk or to a command.
const CALLS: [(&str, usize, usize); 3] = [("pwrite64", 40, 9), ("fdatasync", 3, 2), ("write", 6, 2)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_at_any_write_each_end_is_told_by_one_notification() {
    crash_at_each(&CALLS, rounds(4, 80), 5, crash_at).await;
}
