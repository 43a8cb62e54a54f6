//! A file that a node has filled is moved into a store that nodes share, with the real command.

use crate::fleet::{ends, ends_when_quiet};
use crate::house::{House, Sent, until};
use crate::servers::StoreServer;
use crate::wrong::{check_refused, node, on};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

/// What a node does with deliveries of several kinds; the file `go` lets those act that failed before.
fn config() -> String {
    let source = |name: &str, keys: &str, route: &str| {
        format!(
            r#"
[source.{name}]
path = "/{name}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ key = "body.key", of = "body.of" }}
{keys}
[[source.{name}.route]]
name = "r"
{route}
"#
        )
    };
    let run = |step: &str| format!("run = {{ steps = ['{step}'] }}");
    let acts = run("echo $HOOKONCE_FIELD_KEY >> runs");
    let waits = run("test -e go && echo $HOOKONCE_FIELD_KEY >> runs");
    let again = "retry = { attempts = 100, first = \"1s\", longest = \"1s\" }";
    [
        "store = { env = \"STORE\" }\n".to_owned(),
        source("plain", "", ""),
        source("acts", "once = { per = [[\"key\"]] }", &acts),
        source(
            "fails",
            "",
            &format!("redelivery = \"ignore\"\nretry = {{ attempts = 1 }}\n{}", run("echo no; exit 1")),
        ),
        source("waits", "once = { per = [[\"key\"]] }", &format!("group = [\"of\"]\n{again}\n{waits}")),
        source("changes", "once = { per = [\"delivery\"], change = { of = [\"of\"], to = [\"key\"] } }", ""),
    ]
    .concat()
}

/// How many of each.
const PLAIN: usize = 500;
const ACTS: usize = 40;
const FAILS: usize = 30;
const WAITS: usize = 40;
const CHANGES: usize = 60;
/// Turns that were given before these.
const TURNS_BEFORE: u32 = 1_000_000;

/// Where each goes, and what it is.
fn deliveries() -> Vec<(&'static str, Sent)> {
    let kinds = [("/plain", PLAIN), ("/acts", ACTS), ("/fails", FAILS), ("/waits", WAITS), ("/changes", CHANGES)];
    let one = |path: &'static str, n: usize| {
        let body = format!(r#"{{"key":"{path} {n}","of":"{}"}}"#, n % 8);
        (path, Sent::github("push", &format!("{path} {n}"), &body))
    };
    kinds.into_iter().flat_map(|(path, many)| (0..many).map(move |n| one(path, n))).collect()
}

/// A file that a node has filled; the node is gone.
async fn filled() -> House {
    let mut house = node(&config(), "sqlite:hookonce.db");
    for (path, sent) in deliveries() {
        assert_eq!(house.deliver(path, &sent).await.word(), "accepted");
    }
    until("what acts to have acted", || house.lines("runs").len() == ACTS).await;
    until("what fails to have failed", || house.count("dead") == FAILS).await;
    // A running node keeps the file for itself.
    let busy = copy(&house, "postgres://127.0.0.1:1/x").await;
    assert_eq!(busy.status.code(), Some(2), "{busy:?}");
    assert!(String::from_utf8_lossy(&busy.stderr).contains("in use"), "{busy:?}");
    assert!(house.stop().success());
    // It has gone through many more than it still holds.
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    assert_eq!(db.execute("update events set turn = turn + ?1", [TURNS_BEFORE]).unwrap(), deliveries().len());
    house
}

async fn copy(house: &House, url: &str) -> Output {
    let mut command = house.command(&["migrate", "copy", "--from", "sqlite:hookonce.db", "--to", "env:TARGET"]);
    command.env("TARGET", url);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn counted() -> BTreeMap<String, usize> {
    let counted = [("recorded", PLAIN + CHANGES), ("acted", ACTS), ("dead", FAILS), ("waiting", WAITS)];
    counted.map(|(end, many)| (end.to_owned(), many)).into()
}

/// Begins a copy, and kills it when it has said for the first time how far it is.
fn kill_a_copy(house: &House, url: &str) -> String {
    let mut command = house.command(&["migrate", "copy", "--from", "sqlite:hookonce.db", "--to", "env:TARGET"]);
    let mut child = command.env("TARGET", url).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "it was done before it was killed");
    line
}

pub(crate) async fn a_file_that_a_node_filled_is_moved_whole(store: StoreServer) {
    let (mut house, url) = (filled().await, store.fresh().await);
    let many = deliveries().len();

    let line = kill_a_copy(&house, &url);
    assert!(line.starts_with("copying ") && line.contains(&format!(" of {}", many + 16)), "{line}");
    check_refused(&config(), &url, &["serve"], &["unfinished copy", "hookonce migrate copy"]);

    let done = copy(&house, &url).await;
    let (said, progress) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}{progress}");
    assert!(said.contains(&format!("moved {many} events")) && said.contains("sha256 "), "{said}");
    assert!(said.contains("were there already"), "{said}");
    assert!(progress.contains("copying") && progress.contains("comparing"), "{progress}");
    assert_eq!(ends(&url).await, counted());

    let again = copy(&house, &url).await;
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stderr).contains("already holds events"), "{again:?}");
    assert_eq!(ends(&url).await, counted());

    // A node on the target knows all of it, and goes on with what waited.
    let serve = on(&house, &url, &["serve"]);
    house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start: {said}"));
    for (path, sent) in deliveries() {
        let answer = house.deliver(path, &sent).await;
        assert_eq!(answer.word(), "duplicate", "{path}: {answer:?}");
    }
    assert_eq!(house.lines("runs").len(), ACTS);
    let last = Sent::github("push", "last", r#"{"key":"last","of":"0"}"#);
    assert_eq!(house.deliver("/waits", &last).await.word(), "accepted");
    std::fs::write(house.path("go"), "").unwrap();
    let ends = ends_when_quiet(&url).await;
    println!("{many} events moved, interrupted once; {many} redeliveries are duplicates; in the end {ends:?}");
    let mut expected = counted();
    expected.remove("waiting");
    expected.insert("acted".into(), ACTS + WAITS + 1);
    assert_eq!(ends, expected);
    let mut runs = house.lines("runs");
    let of_its_group = |run: &&String| run.strip_prefix("/waits ").is_some_and(|n| n.parse::<u32>().unwrap() % 8 == 0);
    let before = runs.iter().take_while(|run| *run != "last").filter(of_its_group).count();
    assert_eq!(before, WAITS / 8, "what comes later has a later turn: {runs:?}");
    runs.retain(|run| run != "last");
    runs.sort();
    let mut expected: Vec<_> = (0..ACTS).map(|n| format!("/acts {n}")).collect();
    expected.extend((0..WAITS).map(|n| format!("/waits {n}")));
    expected.sort();
    assert_eq!(runs, expected, "each acted once");
}

#[tokio::test]
async fn what_cannot_be_moved_is_told() {
    let house = House::empty(&config());
    let check = |from: &str, to: &str, words: &str| {
        let said = house.command(&["migrate", "copy", "--from", from, "--to", to]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{text}");
        assert!(text.contains(words) && !text.contains("hunter2"), "{text}");
    };
    check("sqlite:nothing.db", "postgres://127.0.0.1:1/x", "nothing.db");
    check("sqlite:a.db", "env:NOWHERE", "`NOWHERE` is not set");
    check("memory:", "redis://127.0.0.1:1", "expected sqlite:PATH");
    check("redis://127.0.0.1:1", "sqlite:a.db", "expected sqlite:PATH");
    check("sqlite:a.db", "oracle://u:hunter2@h", "cannot be the target");
    assert!(!house.path("nothing.db").exists(), "what is not there is not made");
}
