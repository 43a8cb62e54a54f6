//! The guard alone, driven over its socket as a node does.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

struct Guarded {
    guard: Child,
    lifeline: UnixStream,
    reports: BufReader<UnixStream>,
}

impl Guarded {
    fn start(text: &str, dir: &Path, body: &str, lasts: Duration) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stdin = Stdio::from(OwnedFd::from(theirs));
        let guard = Command::new(GUARD).arg("guard").stdin(stdin).stdout(Stdio::null()).spawn().unwrap();
        let order = serde_json::json!({
            "argv": ["sh", "-c", text],
            "dir": dir,
            "env": { "PATH": std::env::var("PATH").unwrap() },
            "body": body.len(),
            "deadline": nanoseconds(lasts),
        });
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut guarded = Self { guard, reports: BufReader::new(ours.try_clone().unwrap()), lifeline: ours };
        guarded.say(&order.to_string());
        guarded.lifeline.write_all(body.as_bytes()).unwrap();
        guarded
    }

    fn say(&mut self, line: &str) {
        writeln!(self.lifeline, "{line}").unwrap();
    }

    fn report(&mut self) -> String {
        let mut line = String::new();
        self.reports.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn started(&mut self) -> i32 {
        let line = self.report();
        line.strip_prefix("{\"started\":").and_then(|rest| rest.strip_suffix('}')).expect(&line).parse().unwrap()
    }
}

fn nanoseconds(lasts: Duration) -> u64 {
    u64::try_from((boottime() + lasts).0.as_nanos()).unwrap()
}

/// Long enough to start on a busy machine.
const SOON: Duration = Duration::from_secs(3);
const STAYS: &str = "trap '' TERM; while :; do sleep 1000; done";

#[tokio::test]
async fn a_guard_reports_the_start_and_the_end_and_exits() {
    let bench = Bench::new();
    let mut guarded = Guarded::start("cat > copy; exit 3", bench.dir.path(), "stop\n{}", PATIENCE);
    assert!(guarded.started() > 0);
    assert_eq!(guarded.report(), r#"{"exit":3}"#);
    assert_eq!(bench.read("copy"), "stop\n{}", "a body is not a command");
    assert!(guarded.guard.wait().unwrap().success());
}

#[tokio::test]
async fn a_broken_guard_socket_kills_the_command_at_once() {
    let bench = Bench::new();
    let mut guarded = Guarded::start(STAYS, bench.dir.path(), "", PATIENCE);
    let leader = guarded.started();
    assert!(lives(leader));
    let Guarded { mut guard, lifeline, reports } = guarded;
    drop((lifeline, reports));
    assert!(guard.wait().unwrap().success());
    assert!(!lives(leader));
}

#[tokio::test]
async fn invalid_input_on_the_guard_socket_counts_as_its_end() {
    let bench = Bench::new();
    let mut guarded = Guarded::start(STAYS, bench.dir.path(), "", PATIENCE);
    let leader = guarded.started();
    guarded.say("deadlin 99999999999999999");
    assert_eq!(guarded.report(), r#"{"stopped":"deaf"}"#);
    guarded.guard.wait().unwrap();
    assert!(!lives(leader));
}

#[tokio::test]
async fn a_deadline_passes_without_a_message_from_the_node() {
    let bench = Bench::new();
    let mut guarded = Guarded::start(STAYS, bench.dir.path(), "", SOON);
    let leader = guarded.started();
    assert_eq!(guarded.report(), r#"{"stopped":"deadline"}"#);
    assert!(!lives(leader));
    guarded.guard.wait().unwrap();
}

#[tokio::test]
async fn an_extended_deadline_counts_and_a_past_one_starts_nothing() {
    let bench = Bench::new();
    let text = "until test -e go; do sleep 0.01; done";
    let mut guarded = Guarded::start(text, bench.dir.path(), "", SOON);
    let first = boottime() + SOON;
    let leader = guarded.started();
    guarded.say(&format!("deadline {}", nanoseconds(PATIENCE)));
    until("the first deadline has passed", || (first + Duration::from_millis(200)).passed()).await;
    assert!(lives(leader));
    std::fs::write(bench.path("go"), "").unwrap();
    assert_eq!(guarded.report(), r#"{"exit":0}"#);
    guarded.guard.wait().unwrap();

    let mut guarded = Guarded::start("touch begun", bench.dir.path(), "", Duration::ZERO);
    assert_eq!(guarded.report(), r#"{"stopped":"deadline"}"#);
    guarded.guard.wait().unwrap();
    assert!(!bench.path("begun").exists());
}

#[tokio::test]
async fn a_body_that_breaks_off_starts_nothing() {
    let bench = Bench::new();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let stdin = Stdio::from(OwnedFd::from(theirs));
    let mut guard = Command::new(GUARD).arg("guard").stdin(stdin).stderr(Stdio::null()).spawn().unwrap();
    let dir = bench.dir.path();
    let order = serde_json::json!({
        "argv": ["touch", "begun"], "dir": dir, "env": {}, "body": 9, "deadline": nanoseconds(PATIENCE),
    });
    write!(ours, "{order}\nhalf").unwrap();
    drop(ours);
    assert_eq!(guard.wait().unwrap().code(), Some(2));
    assert!(!bench.path("begun").exists());
}

#[tokio::test]
async fn a_guard_started_by_hand_says_that_only_a_node_starts_it() {
    let guard = Command::new(GUARD).arg("guard").stdin(Stdio::null()).output().unwrap();
    assert_eq!(guard.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&guard.stderr).contains("only hookonce itself starts a guard"));
}
