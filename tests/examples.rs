//! Every example: its config starts the real binary, its script sends, and the output is what its page shows.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/mod.rs"]
mod support;

use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{House, SECRET, Sent, free_port, package, until};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Runs an example as its page says; returns the output of its script, and its folder.
fn run(name: &str) -> (String, House) {
    let config = std::fs::read_to_string(examples().join(name).join("hookonce.toml")).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    // A burst whose parts come slowly on a busy machine is one all the same.
    let config = config.replace("127.0.0.1:3142", &address).replace("debounce  = \"2s\"", "debounce  = \"5s\"");
    let mut house = House::empty(&format!("listen = \"{address}\"\n\n{config}"));
    let written = std::fs::read(house.path("hookonce.toml")).unwrap();
    copy(&examples().join(name), house.dir.path());
    std::fs::write(house.path("hookonce.toml"), written).unwrap();
    house.start();
    let output = Command::new("sh").arg(house.path("send.sh")).env("HOOKONCE", house.url("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), house)
}

/// The output that its page shows.
fn shown(name: &str) -> String {
    let page = std::fs::read_to_string(examples().join(name).join("README.md")).unwrap();
    let block = page.split("$ sh send.sh\n").nth(1).unwrap().split("```").next().unwrap();
    block.to_owned()
}

/// The event named in each line, or nothing.
fn events(printed: &str) -> Vec<&str> {
    let event = |line: &'_ str| line.split("\"event\":\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::len);
    printed
        .lines()
        .map(|line| event(line).map_or("", |length| &line[line.find("\"event\":\"").unwrap() + 9..][..length]))
        .collect()
}

/// The output is what the page shows, with ids and states that differ from run to run replaced as on the page.
fn check(name: &str, printed: &str, named: &str) {
    let mut told = String::new();
    for (line, event) in printed.lines().zip(events(printed)) {
        let mut line = if event.is_empty() { line.to_owned() } else { line.replace(event, named) };
        if line.contains("\"status\":\"duplicate\"") && name == "steakpie" {
            for (state, code) in [("running", " 202"), ("waiting", " 202"), ("done", " 200")] {
                let state = format!("\"state\":\"{state}\"");
                if line.contains(&state) && line.ends_with(code) {
                    line = line.replace(&state, "\"state\":\"STATE\"").replace(code, " CODE");
                }
            }
        }
        told += &line;
        told.push('\n');
    }
    assert_eq!(told, shown(name), "{name} printed:\n{printed}");
}

#[tokio::test]
async fn steakpie() {
    let (printed, house) = run("steakpie");
    check("steakpie", &printed, "EVENT");
    let events = events(&printed);
    assert!(events[2..].iter().all(|event| *event == events[2]));
    house.quiet().await;
    assert_eq!(house.lines("deploys"), ["deploy latest 675688875"]);
}

#[tokio::test]
async fn sports_stack() {
    let (printed, house) = run("sports-stack");
    check("sports-stack", &printed, "EVENT");
    let events = events(&printed);
    assert!(events[0] == events[1] && events[1] != events[2]);
    assert_eq!(house.lines("updates"), ["update player 550e8400-e29b-41d4-a716-446655440000"; 2]);
    assert_eq!(house.sql("select hash from events order by id"), ["a1b2", "c3d4"]);
}

#[tokio::test]
async fn ci_ingestion() {
    let (printed, house) = run("ci-ingestion");
    check("ci-ingestion", &printed, "BACKEND");
    let events = events(&printed);
    assert!(events[0] == events[1] && events[1] != events[2]);
    assert_eq!(house.lines("ingested"), ["ingested"; 2]);
}

#[tokio::test]
async fn idempotency_key() {
    let (printed, house) = run("idempotency-key");
    check("idempotency-key", &printed, "BACKEND");
    let events = events(&printed);
    assert!(events[..3].iter().all(|event| *event == events[0]) && events[4] != events[0]);
    assert_eq!(house.lines("paid"), ["{\"amount\":10}", "{\"amount\":20}"]);
}

#[tokio::test]
async fn agent() {
    let (printed, mut house) = run("agent");
    check("agent", &printed, "EVENT");
    let named = events(&printed);
    assert!(named[2..7].iter().all(|event| *event == named[2]), "the copies are the third push: {named:?}");
    let bill: Vec<_> = [(7, "c0ffee3"), (8, "decaf01")]
        .map(|(pr, sha)| format!("review of octocat/hello#{pr} at {sha}: 1.50 USD"))
        .into();
    until("#9 to wait for its budget", || house.sql("select aside from events where state = 'waiting'") == ["budget"])
        .await;
    assert_eq!(house.sql("select count(*) from events where cause = 'superseded'"), ["2"]);
    // A restart neither pays again nor makes room in the budget.
    house.kill();
    house.start();
    let waiting = "select count(*) from events where state = 'waiting' and aside = 'budget'";
    assert_eq!((house.lines("bill"), house.sql(waiting)), (bill, vec!["1".to_owned()]));
}

#[tokio::test]
async fn an_agent_that_was_running_when_its_node_was_killed_is_not_paid_again() {
    let config = std::fs::read_to_string(examples().join("agent/hookonce.toml")).unwrap();
    let mut house = House::empty(&config.replace("debounce  = \"2s\"", "debounce  = \"10ms\""));
    for file in ["secret", "agent.sh"] {
        std::fs::copy(examples().join("agent").join(file), house.path(file)).unwrap();
    }
    std::fs::write(house.path("thinking"), "").unwrap();
    house.start();
    let body =
        r#"{"action":"opened","number":7,"pull_request":{"head":{"sha":"c0ffee"}},"repository":{"full_name":"o/r"}}"#;
    assert_eq!(house.deliver("/agent", &Sent::github("pull_request", "one", body)).await.status, 202);
    until("the agent to be paid", || house.lines("bill").len() == 1).await;
    house.kill();
    std::fs::remove_file(house.path("thinking")).unwrap();
    house.start();
    house.quiet().await;
    assert_eq!(house.sql("select state || ' ' || cause from events"), ["dead in_doubt"]);
    assert_eq!(house.lines("bill").len(), 1);
}

/// A push of version `n` of the image, newer than those before.
fn push(n: u32) -> Sent {
    Sent::package(&format!("push-{n}"), "latest", n.into(), n)
}

#[tokio::test]
async fn with_only_a_preset_and_a_run_the_newest_image_runs_once_or_its_failure_is_told() {
    let page = std::fs::read_to_string(examples().join("../docs/deploys.md")).unwrap();
    let config = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(config.contains("/opt/app"), "{config}");
    let mut house = House::empty(&config.replace("/opt/app", ".").replace("WEBHOOK_SECRET", "SECRET"));
    let docker =
        "echo \"$2 $HOOKONCE_FIELD_VERSION_ID\" >>docker.log; while [ -e slow ]; do sleep 0.01; done; [ ! -e fail ]";
    stand_ins(&house, &[("docker", docker)]);
    serve(&mut house);
    for sent in support::storm("storm_latest.jsonl") {
        assert!(house.deliver("/version/1", &sent).await.status < 300);
    }
    house.quiet().await;
    assert_eq!(house.lines("docker.log"), ["pull 675688875", "up 675688875"], "five deliveries are one deploy");

    std::fs::write(house.path("slow"), "").unwrap();
    for n in 51..=55 {
        assert_eq!(house.deliver("/version/1", &push(n)).await.status, 202);
    }
    until("the first of them", || house.lines("docker.log").len() == 3).await;
    std::fs::remove_file(house.path("slow")).unwrap();
    house.quiet().await;
    assert_eq!(house.lines("docker.log")[2..], ["pull 51", "up 51", "pull 55", "up 55"]);

    std::fs::write(house.path("fail"), "").unwrap();
    let failed = house.deliver("/version/1", &push(56)).await.event();
    house.quiet().await;
    assert_eq!(house.lines("docker.log")[6..], ["pull 56"], "it is not tried again by itself");
    let line = format!("ERROR dead      event={} source=ghcr attempt=1 cause=failed", &failed[28..]);
    until("the log to tell", || house.log().contains(&line)).await;
    let listed = house.command(&["list", "--state", "dead"]).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&failed), "{listed:?}");
    let dead = "hookonce_event_states_total{source=\"ghcr\",state=\"dead\"} 1";
    house.counted(&[dead]).await;
    std::fs::remove_file(house.path("fail")).unwrap();
    house.deliver("/version/1", &push(57)).await;
    house.quiet().await;
    assert_eq!(house.lines("docker.log")[7..], ["pull 57", "up 57"]);
}

/// Puts these scripts in place of programs.
fn stand_ins(house: &House, programs: &[(&str, &str)]) {
    std::fs::create_dir(house.path("bin")).unwrap();
    for (name, script) in programs {
        std::fs::write(house.path("bin").join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(house.path("bin").join(name), executable).unwrap();
    }
}

/// A folder with the recipe for a node that restarts itself, and this in place of `systemd-run`.
fn restarting(systemd_run: &str) -> House {
    let config = std::fs::read_to_string(examples().join("recipes/self-systemd.toml")).unwrap();
    let config = config.replace("WEBHOOK_SECRET", "SECRET");
    let mut house = House::empty(&config.replace("name = \"self\"", "name = \"self\"\nretry = { first = \"10ms\" }"));
    // As the real one does, it returns when the node has ended. What starts the node again is the test.
    let systemctl = "echo \"$*\" >>restarts; kill -TERM $(cat pid); while kill -0 $(cat pid); do sleep 0.01; done";
    stand_ins(&house, &[("systemd-run", systemd_run), ("systemctl", systemctl)]);
    serve(&mut house);
    house
}

/// Starts the node with the stand-ins on its `PATH`. Its process id is in a file before it runs anything.
fn serve(house: &mut House) {
    let path = format!("{}:{}", house.path("bin").display(), std::env::var("PATH").unwrap());
    let mut serve = Command::new("sh");
    serve.args(["-c", "echo $$ >pid; exec \"$0\" serve", env!("CARGO_BIN_EXE_hookonce")]);
    serve.current_dir(house.dir.path()).env("SECRET", SECRET).env_remove("HOOKONCE_CONFIG").env("PATH", path);
    serve.env("STATE_DIRECTORY", house.path("state"));
    house.try_start_by(serve).unwrap();
}

/// A push of the node's own image.
async fn push_itself(house: &House) {
    let body = package("latest", 1, 1).replace(r#""name":"jamiec_ts""#, r#""name":"hookonce""#);
    let sent = Sent::github("registry_package", "one", &body);
    assert_eq!(house.deliver("/version/1", &sent).await.status, 202);
}

/// What follows the options is run apart from the caller, as systemd does.
const DETACHES: &str = "while case $1 in --*) true;; *) false;; esac; do shift; done; setsid \"$@\" >/dev/null 2>&1 & \
     until test -e restarts; do sleep 0.01; done";

#[tokio::test]
async fn a_restart_that_is_handed_over_ends_its_event_and_happens_once() {
    let mut house = restarting(DETACHES);
    push_itself(&house).await;
    let (status, log) = house.wait();
    assert!(status.success(), "{log}");
    assert_eq!(house.sql("select state from events"), ["done"], "before the node has ended: {log}");
    serve(&mut house);
    // The new node acts on what comes next, and not again on what was done.
    let body = package("latest", 2, 2).replace(r#""name":"jamiec_ts""#, r#""name":"other""#);
    let sent = Sent::github("registry_package", "two", &body);
    assert_eq!(house.deliver("/version/1", &sent).await.word(), "ignored");
    house.quiet().await;
    assert_eq!(house.lines("restarts"), ["restart hookonce"]);
    assert_eq!(house.sql("select count(*) from attempts"), ["1"]);
}

#[tokio::test]
async fn a_restart_that_is_not_handed_over_waits_for_itself_and_is_run_again() {
    let mut house = restarting("while case $1 in --*) true;; *) false;; esac; do shift; done; exec \"$@\"");
    push_itself(&house).await;
    until("the restart", || house.lines("restarts").len() == 1).await;
    until("the node to stop", || house.log().contains("draining")).await;
    assert!(!house.has_ended(), "the node waits for the command, and the command for the node");
    house.signal(Signal::TERM); // an operator does not wait for the 20 seconds
    house.wait();
    assert_eq!(house.sql("select outcome from attempts"), ["unknown"]);
    serve(&mut house);
    until("the second restart", || house.lines("restarts").len() == 2).await;
}

#[test]
fn every_example_is_run() {
    let ours =
        std::fs::read_to_string(file!()).or_else(|_| std::fs::read_to_string(examples().join("../tests/examples.rs")));
    let ours = ours.unwrap();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // Those with servers of their own: tests/nats and tests/registry run them.
        if entry.path().is_dir() && !["nats-workers", "ghcr-compose", "recipes"].contains(&&*name) {
            assert!(ours.contains(&format!("run(\"{name}\")")), "{name} is not run");
            for file in ["hookonce.toml", "send.sh", "README.md"] {
                assert!(entry.path().join(file).is_file(), "{name} has no {file}");
            }
        }
    }
}
