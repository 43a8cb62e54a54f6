//! Backups as docs/operating.md describes them, and what a node knows after one was restored.

use crate::cluster::ends;
use crate::server_refusals::{RECORDS, node, on};
use crate::support::{House, Sent};
use crate::{postgres, redis};
use std::path::Path;
use std::process::{Command, Stdio};

/// Number of deliveries before the backup, and after it.
const BEFORE: usize = 150;
const AFTER: usize = 50;

fn delivery(n: usize) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#))
}

/// Sends these deliveries and checks that each gets this status word.
async fn check_words(house: &House, numbers: std::ops::Range<usize>, word: &str) {
    for n in numbers {
        let answer = house.deliver("/in", &delivery(n)).await;
        assert_eq!(answer.word(), word, "{n}: {answer:?}");
    }
}

/// Checks that what was accepted before the backup is known, and what came after it is not.
async fn check_restored(house: &House, what: &str) {
    check_words(house, 0..BEFORE, "duplicate").await;
    check_words(house, BEFORE..BEFORE + AFTER, "accepted").await;
    println!("{what} restored: {BEFORE} redeliveries from before are duplicates, {AFTER} from after are new");
}

fn run(command: &mut Command) {
    let done = command.stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The shell commands that the document has for a file, in their order.
fn documented() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md")).unwrap();
    let part = text.split("**SQLite.** While").nth(1).and_then(|rest| rest.split("**PostgreSQL.**").next()).unwrap();
    part.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_file_is_backed_up_beside_its_node_and_restored() {
    let mut house = node(RECORDS, "sqlite:hookonce.db");
    check_words(&house, 0..BEFORE, "accepted").await;
    let lines = documented();
    let [backup, restore @ .., serve] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(serve, "hookonce serve");
    run(Command::new("sh").args(["-ec", backup]).current_dir(house.dir.path()));
    check_words(&house, BEFORE..BEFORE + AFTER, "accepted").await;
    house.kill(); // its WAL stays

    // Copying the file alone is refused with an explanation.
    std::fs::copy(house.path("copy.db"), house.path("hookonce.db")).unwrap();
    std::fs::remove_file(house.path("hookonce.db-wal")).unwrap();
    let said =
        house.try_start_by(on(&house, "sqlite:hookonce.db", &["serve"])).expect_err("the last write is not there");
    assert!(said.starts_with("exit status: 2") && said.contains("hookonce.db.lock"), "{said}");
    for line in restore {
        run(Command::new("sh").args(["-ec", line]).current_dir(house.dir.path()));
    }
    let serve = on(&house, "sqlite:hookonce.db", &["serve"]);
    house.try_start_by(serve).unwrap();
    check_restored(&house, "a file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_dumped_beside_its_nodes_and_restored_into_a_new_one() {
    let server = postgres::Server::start().await;
    let (old, new) = (server.database().await, server.database().await);
    let house = node(RECORDS, &server.url(&old));
    check_words(&house, 0..BEFORE, "accepted").await;
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    run(Command::new(postgres::program("pg_dump")).args(["-Fc", "-f"]).arg(&copy).arg(server.url(&old)));
    check_words(&house, BEFORE..BEFORE + AFTER, "accepted").await;
    drop(house);
    run(Command::new(postgres::program("pg_restore")).args(["-d", &server.url(&new)]).arg(&copy));
    let house = node(RECORDS, &server.url(&new));
    check_restored(&house, "a database").await;
    assert_eq!(ends(&server.url(&new)).await["recorded"], BEFORE + AFTER);
}

/// Copies a folder into another.
fn copy_folder(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").arg(from).arg(to));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_is_copied_while_it_is_stopped_and_restored() {
    let mut server = redis::Server::start();
    let house = node(RECORDS, &server.url("a"));
    check_words(&house, 0..BEFORE, "accepted").await;
    server.kill();
    let copy = tempfile::tempdir().unwrap();
    copy_folder(&server.dir.path().join("appendonlydir"), copy.path());
    server.run();
    crate::server_refusals::insist(&house, &delivery(BEFORE)).await;
    check_words(&house, BEFORE + 1..BEFORE + AFTER, "accepted").await;
    drop((house, server));
    let restored = redis::Server::inside(copy, &redis::redis(), &[]);
    let house = node(RECORDS, &restored.url("a"));
    check_restored(&house, "a Redis").await;
    assert_eq!(ends(&restored.url("a")).await["recorded"], BEFORE + AFTER);
}
