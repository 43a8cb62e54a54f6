//! Stores that real nodes have filled, copied by the real command from each kind to each other.

use crate::cluster::{ends, ends_when_quiet, size};
use crate::postgres;
use crate::redis;
use crate::server_refusals::{check_refused, on};
use crate::support::{Answer, House, Sent, until};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use tokio::sync::OnceCell;

/// A config for deliveries of several kinds; once the file `go` exists, those act that failed before.
fn config() -> String {
    let source = |name: &str, keys: &str, route: &str| {
        format!(
            r#"
[source.{name}]
path = "/{name}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ key = "body.key", of = "body.of", at = {{ at = "body.at", default = "1" }} }}
{keys}
[[source.{name}.route]]
name = "r"
{route}
"#
        )
    };
    let run = |step: &str| format!("run = {{ steps = ['{step}'] }}");
    let acts = run("echo $HOOKONCE_FIELD_KEY | tee -a runs");
    let waits = run("test -e go && echo $HOOKONCE_FIELD_KEY >> runs");
    let again = "retry = { attempts = 1000, first = \"1s\", longest = \"1s\" }";
    let change = "once = { per = [\"delivery\"], change = { of = [\"of\"], to = [\"key\"], order = \"at\" } }";
    [
        "store = { env = \"STORE\" }\n".to_owned(),
        source("plain", "", ""),
        source("acts", "respond = \"done\"\nonce = { per = [[\"key\"]] }", &acts),
        source(
            "fails",
            "",
            &format!("redelivery = \"ignore\"\nretry = {{ attempts = 1 }}\n{}", run("echo no; exit 1")),
        ),
        source("waits", "once = { per = [[\"key\"]] }", &format!("group = [\"of\"]\n{again}\n{waits}")),
        source("changes", change, ""),
        source("replaced", change, &format!("{again}\n{waits}")),
    ]
    .concat()
}

/// The number of deliveries of each kind.
const PLAIN: usize = 300;
const ACTS: usize = 10;
const FAILS: usize = 5;
const WAITS: usize = 16;
const CHANGES: usize = 16;
/// Of these, the last one of each of the two subjects waits, and the others are superseded.
const REPLACED: usize = 8;

/// The path and content of each delivery.
fn deliveries() -> Vec<(&'static str, Sent)> {
    let kinds = [
        ("/plain", PLAIN, 1),
        ("/acts", ACTS, 1),
        ("/fails", FAILS, 1),
        ("/waits", WAITS, 4),
        ("/changes", CHANGES, 8),
        ("/replaced", REPLACED, 2),
    ];
    let one = |path: &'static str, n: usize, groups: usize| {
        let body = format!(r#"{{"key":"{path} {n}","of":"{}","at":{}}}"#, n % groups, n + 1);
        (path, Sent::github("push", &format!("{path} {n}"), &body))
    };
    kinds.into_iter().flat_map(|(path, many, groups)| (0..many).map(move |n| one(path, n, groups))).collect()
}

/// The same change under another id: it leaves its keys as aliases of the event.
fn alias() -> Sent {
    let n = CHANGES - 1;
    let body = format!(r#"{{"key":"/changes {n}","of":"{}","at":{},"new":true}}"#, n % 8, n + 1);
    Sent::github("push", "alias", &body)
}

fn counted() -> BTreeMap<String, usize> {
    let counted = [
        ("recorded", PLAIN + CHANGES),
        ("acted", ACTS),
        ("dead", FAILS),
        ("waiting", WAITS + 2),
        ("superseded", REPLACED - 2),
    ];
    counted.map(|(end, many)| (end.to_owned(), many)).into()
}

/// The kinds of stores, with servers that are started when they are first needed.
struct Stores {
    postgres: OnceCell<postgres::Server>,
    redis: OnceCell<redis::Server>,
    dir: tempfile::TempDir,
}

const KINDS: [&str; 3] = ["sqlite", "postgres", "redis"];

impl Stores {
    fn new() -> Self {
        Self { postgres: OnceCell::new(), redis: OnceCell::new(), dir: tempfile::tempdir().unwrap() }
    }

    /// The address of an empty store of this kind.
    async fn fresh(&self, kind: &str, name: &str) -> String {
        match kind {
            "sqlite" => format!("sqlite:{}", self.dir.path().join(name).display()),
            "postgres" => {
                let server = self.postgres.get_or_init(postgres::Server::start).await;
                server.url(&server.database().await)
            }
            _ => self.redis.get_or_init(async || redis::Server::start()).await.url(name),
        }
    }
}

/// Starts a node on this store.
fn start(house: &mut House, url: &str) {
    let serve = on(house, url, &["serve"]);
    house.try_start_by(serve).unwrap_or_else(|said| panic!("a node did not start on {url}: {said}"));
}

fn migrate(house: &House, args: &[&str], from: &str, to: &str) -> Command {
    let mut command = on(house, from, &["migrate"]);
    command.args(args).env("SOURCE", from).env("TARGET", to);
    command
}

async fn copy(house: &House, from: &str, to: &str) -> Output {
    let mut command = migrate(house, &["copy", "--from", "env:SOURCE", "--to", "env:TARGET"], from, to);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Checks that a copy ends with this code and these words.
async fn check_copy(house: &House, from: &str, to: &str, code: i32, words: &[&str]) -> String {
    let done = copy(house, from, to).await;
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{from} to {to}: {said}");
    assert!(words.iter().all(|word| said.contains(word)), "{from} to {to}: {words:?} in {said}");
    said
}

/// Starts a copy, and kills it at its first progress line. `None`: it was done before that.
fn kill_a_copy(house: &House, from: &str, to: &str) -> Option<String> {
    let mut command = migrate(house, &["copy", "--from", "env:SOURCE", "--to", "env:TARGET"], from, to);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    (!child.wait().unwrap().success()).then_some(line)
}

/// The response to each delivery. Those that are independent are sent concurrently, the others one after another.
async fn deliver_all(house: &House) -> Vec<Answer> {
    let (at_once, in_order): (Vec<_>, Vec<_>) = deliveries().into_iter().partition(|(path, _)| *path == "/plain");
    let sent: Vec<_> = at_once.iter().map(|(path, sent)| house.deliver(path, sent)).collect();
    let mut answers = futures_util::future::join_all(sent).await;
    for (path, sent) in in_order {
        answers.push(house.deliver(path, &sent).await);
    }
    answers.push(house.deliver("/changes", &alias()).await);
    answers
}

/// The responses without what varies: waiting events run now and then.
fn told(answers: &[Answer]) -> Vec<(u16, String)> {
    let text = |answer: &Answer| String::from_utf8_lossy(&answer.body).replace("running", "waiting");
    answers.iter().map(|answer| (answer.status, text(answer))).collect()
}

/// Fills a store with events in every state, by a node that is then gone. Returns the responses to repeats.
async fn filled(house: &mut House, url: &str) -> Vec<Answer> {
    start(house, url);
    let answers = deliver_all(house).await;
    assert_eq!(answers.iter().filter(|answer| answer.word() == "duplicate").count(), 1, "the alias alone");
    assert!(answers.iter().all(|answer| answer.status < 300), "{answers:?}");
    until("what acts to have acted", || house.lines("runs").len() == ACTS).await;
    let over = counted();
    while ends(url).await != over {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    deliver_all(house).await
}

/// From one store of each kind, through every pair of kinds, and back to what a sender gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_each_kind_is_copied_completely_into_one_of_each_kind() {
    let stores = Stores::new();
    let mut house = House::empty(&config());
    let first = stores.fresh("sqlite", "first").await;
    let answers = filled(&mut house, &first).await;
    check_copy(&house, &first, &stores.fresh("redis", "busy").await, 2, &["in use"]).await;
    assert!(house.stop().success());

    // sqlite → sqlite → postgres → postgres → redis → redis → sqlite → redis → postgres → sqlite: every pair once.
    let path = ["sqlite", "postgres", "postgres", "redis", "redis", "sqlite", "redis", "postgres", "sqlite"];
    let mut pairs = std::collections::BTreeSet::new();
    let (mut from, mut before, mut digest) = (first.clone(), "sqlite", None);
    for (n, kind) in path.into_iter().enumerate() {
        let to = stores.fresh(kind, &format!("copy{n}")).await;
        let said = check_copy(&house, &from, &to, 0, &["copied 355 events", "imported keys"]).await;
        let digests: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("sha256 of the ")).collect();
        let [source, target] = digests[..] else { panic!("{said}") };
        let [source, target] = [source, target].map(|line| line.split(' ').next_back().unwrap().to_owned());
        assert_eq!(source, target, "{said}");
        assert_eq!(*digest.get_or_insert_with(|| source.clone()), source, "{before} to {kind}");
        pairs.insert((before, kind));
        if before == kind {
            check_refused(&config(), &from, &["serve"], &["was copied into another store", "migrate reopen"]);
            check_copy(&house, &from, &to, 1, &["was copied into another store"]).await;
            check_copy(&house, &to, &first, 1, &["the target was copied into another store"]).await;
        }
        (from, before) = (to, kind);
    }
    assert_eq!(pairs.len(), KINDS.len() * KINDS.len(), "{pairs:?}");
    assert_eq!(ends(&from).await, counted());

    // A node on the last copy knows all events, responds the same, and continues what waited.
    start(&mut house, &from);
    assert_eq!(told(&deliver_all(&house).await), told(&answers));
    check_what_waited_acts_once(&house, &from).await;
    println!("355 events copied through {pairs:?}: {} repeats get the same response", answers.len());
}

async fn check_what_waited_acts_once(house: &House, url: &str) {
    assert_eq!(house.lines("runs").len(), ACTS, "repeats do not act");
    let last = Sent::github("push", "last", r#"{"key":"last","of":"0"}"#);
    assert_eq!(house.deliver("/waits", &last).await.word(), "accepted");
    let stale = Sent::github("push", "stale", r#"{"key":"stale","of":"7","at":1}"#);
    assert_eq!(house.deliver("/changes", &stale).await.word(), "stale", "registers kept their order");
    std::fs::write(house.path("go"), "").unwrap();
    let mut expected = counted();
    expected.remove("waiting");
    expected.insert("acted".into(), ACTS + WAITS + 2 + 1);
    assert_eq!(ends_when_quiet(url).await, expected);
    let mut runs = house.lines("runs");
    let of_its_group = |run: &&String| run.strip_prefix("/waits ").is_some_and(|n| n.parse::<u32>().unwrap() % 4 == 0);
    let before = runs.iter().take_while(|run| *run != "last").filter(of_its_group).count();
    assert_eq!(before, WAITS / 4, "a later event has a later turn: {runs:?}");
    runs.retain(|run| run != "last");
    runs.sort();
    let mut expected: Vec<_> = (0..ACTS).map(|n| format!("/acts {n}")).collect();
    expected.extend((0..WAITS).map(|n| format!("/waits {n}")));
    expected.extend((REPLACED - 2..REPLACED).map(|n| format!("/replaced {n}")));
    expected.sort();
    assert_eq!(runs, expected, "each acted once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_copy_leaves_no_store_that_a_node_would_use_and_can_be_continued() {
    let stores = Stores::new();
    let pairs = [("sqlite", "postgres"), ("redis", "sqlite"), ("postgres", "redis")];
    for (from, to) in pairs.into_iter().take(usize::try_from(size(3, 2)).unwrap()) {
        let mut house = House::empty(&config());
        let (kind, from) = (to, stores.fresh(from, "source").await);
        let answers = filled(&mut house, &from).await;
        assert!(house.stop().success());
        let mut tries = 0..100;
        let (to, line) = loop {
            let to = stores.fresh(kind, &format!("target{}", tries.next().unwrap())).await;
            match kill_a_copy(&house, &from, &to) {
                Some(line) => break (to, line),
                None => assert!(migrate(&house, &["reopen", "--yes"], &from, &to).status().unwrap().success()),
            }
        };
        assert!(line.starts_with("copying 256 of "), "{line}");
        check_refused(&config(), &to, &["serve"], &["unfinished copy", "hookonce migrate copy"]);
        check_refused(&config(), &from, &["serve"], &["is being copied", "hookonce migrate reopen"]);
        let other = stores.fresh("sqlite", &format!("other for {kind}")).await;
        check_copy(&house, &to, &other, 1, &["the source holds an unfinished copy"]).await;

        let said = check_copy(&house, &from, &to, 0, &["copied 355 events", "finishing an earlier copy"]).await;
        assert!(said.contains("comparing"), "{said}");
        assert_eq!(ends(&to).await, counted());
        start(&mut house, &to);
        assert_eq!(told(&deliver_all(&house).await), told(&answers));
        check_what_waited_acts_once(&house, &to).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_a_node_uses_is_not_copied_and_not_filled() {
    let stores = Stores::new();
    for (kind, word) in [("sqlite", "in use by another"), ("postgres", "is in use: "), ("redis", "is in use: ")] {
        let (used, free) =
            (stores.fresh(kind, "used").await, stores.fresh("sqlite", &format!("free for {kind}")).await);
        let mut house = House::empty(&config());
        start(&mut house, &used);
        let (path, sent) = &deliveries()[0];
        assert_eq!(house.deliver(path, sent).await.word(), "accepted");
        check_copy(&house, &used, &free, 2, &[word]).await;
        let mut other = House::empty(&config());
        let source = stores.fresh("sqlite", &format!("source for {kind}")).await;
        start(&mut other, &source);
        assert_eq!(other.deliver(path, sent).await.word(), "accepted");
        assert!(other.stop().success());
        check_copy(&other, &source, &used, 2, &[word]).await;
        // Both continue as before.
        assert_eq!(house.deliver(path, sent).await.word(), "duplicate");
        start(&mut other, &source);
        assert_eq!(other.deliver(path, sent).await.word(), "duplicate");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_copied_away_is_used_again_only_when_an_operator_says_so() {
    let stores = Stores::new();
    for kind in ["sqlite", "redis"] {
        let mut house = House::empty(&config());
        let from = stores.fresh(kind, "reopened").await;
        let to = stores.fresh("sqlite", &format!("from {kind}")).await;
        start(&mut house, &from);
        let (path, sent) = &deliveries()[0];
        assert_eq!(house.deliver(path, sent).await.word(), "accepted");
        assert!(house.stop().success());
        check_copy(&house, &from, &to, 0, &["copied 1 events"]).await;
        let list = on(&house, &from, &["list"]).output().unwrap();
        assert!(list.status.success(), "it may be read: {list:?}");
        let asked = migrate(&house, &["reopen"], &from, &to).stdin(Stdio::null()).output().unwrap();
        assert_eq!(asked.status.code(), Some(1), "{asked:?}");
        assert!(String::from_utf8_lossy(&asked.stderr).contains("will be done again"), "{asked:?}");
        check_refused(&config(), &from, &["serve"], &["was copied into another store"]);
        let told = migrate(&house, &["reopen", "--yes"], &from, &to).output().unwrap();
        assert!(told.status.success(), "{told:?}");
        start(&mut house, &from);
        assert_eq!(house.deliver(path, sent).await.word(), "duplicate");
    }
}

#[tokio::test]
async fn a_copy_that_is_impossible_is_explained() {
    let house = House::empty(&config());
    let check = |from: &str, to: &str, words: &str| {
        let said = house.command(&["migrate", "copy", "--from", from, "--to", to]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{text}");
        assert!(text.contains(words) && !text.contains("hunter2"), "{text}");
    };
    check("sqlite:nothing.db", "postgres://127.0.0.1:1/x", "no database at nothing.db");
    check("sqlite:a.db", "env:NOWHERE", "`NOWHERE` is not set");
    check("memory:", "redis://127.0.0.1:1", "in memory cannot be the source");
    check("sqlite:a.db", "sqlite:a.db", "the same store");
    check("a.db", "redis://127.0.0.1:1", "cannot be the source: expected sqlite:PATH");
    check("sqlite:a.db", "oracle://u:hunter2@h", "cannot be the target");
    assert!(
        !house.path("nothing.db").exists() && !house.path("nothing.db.lock").exists(),
        "a missing database is not created"
    );
}
