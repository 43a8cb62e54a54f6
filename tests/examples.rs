//! Every example: its config starts the real binary, its script sends, and the output is what its page shows.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::House;

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

/// A port that is free now.
fn free_port() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Runs an example as its page says; returns the output of its script, and its folder.
fn run(name: &str) -> (String, House) {
    let config = std::fs::read_to_string(examples().join(name).join("hookonce.toml")).unwrap();
    let port = free_port();
    let config = config.replace("127.0.0.1:3142", &port);
    let mut house = House::empty(&format!("listen = \"{port}\"\n\n{config}"));
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

#[test]
fn every_example_is_run() {
    let ours =
        std::fs::read_to_string(file!()).or_else(|_| std::fs::read_to_string(examples().join("../tests/examples.rs")));
    let ours = ours.unwrap();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // It has two configs and its own server: tests/nats runs it.
        if entry.path().is_dir() && name != "nats-workers" {
            assert!(ours.contains(&format!("run(\"{name}\")")), "{name} is not run");
            for file in ["hookonce.toml", "send.sh", "README.md"] {
                assert!(entry.path().join(file).is_file(), "{name} has no {file}");
            }
        }
    }
}
