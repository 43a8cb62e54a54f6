//! What a node prints when it cannot start: a sentence on standard error, exit code 2, and nothing changed.

use crate::disk::Disk;
use crate::mounted::Mounted;
use crate::support::{House, PATIENCE};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const NOTED: &str = "store = \"sqlite:hookonce.db\"\n[source.noted]\npath = \"/noted\"\nverify = \"none\"\n\
                     delivery = \"header.x-id\"\n";

async fn send(house: &House, id: &str) {
    let headers = [("x-id".to_owned(), id.to_owned()), ("content-type".to_owned(), "application/json".to_owned())];
    assert_eq!(house.post("/noted", &headers, b"{}").await.unwrap().status, 202);
}

/// A folder with a few events in its store, whose node was killed: the WAL is not moved into the database.
async fn killed() -> House {
    let mut house = House::new(NOTED);
    for n in 0..10 {
        send(&house, &format!("d{n}")).await;
    }
    house.kill();
    house
}

/// A folder with a few events in its store, whose node was stopped.
async fn stopped() -> House {
    let mut house = killed().await;
    house.start();
    house.stop();
    house
}

fn run(mut command: Command) -> Output {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE / 3 {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().ok(); // if it started after all
    child.wait_with_output().unwrap()
}

/// Checks that this command is refused with these words.
fn check_by(command: Command, words: &[&str]) {
    let output = run(command);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{out}{err}");
    assert!(err.contains("error: ") && !err.contains("panicked"), "{out}{err}");
    for word in words {
        assert!(err.contains(word), "wanted {word:?}: {err}");
    }
}

fn check(house: &House, words: &[&str]) {
    check_by(house.command(&["serve"]), words);
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// Damages the file, checks that the start is refused, and restores it: all events are still there.
fn check_spoilt(mut house: House, file: &str, spoil: impl FnOnce(Vec<u8>) -> Vec<u8>, words: &[&str]) {
    let path = house.path(file);
    let whole = read(&path);
    let spoilt = spoil(whole.clone());
    std::fs::write(&path, &spoilt).unwrap();
    check(&house, words);
    assert!(read(&path) == spoilt, "{file} was changed");
    std::fs::write(&path, &whole).unwrap();
    house.start();
    assert_eq!(house.sql("select count(*) from events"), ["10"]);
}

#[tokio::test]
async fn a_file_that_is_no_database_or_is_corrupt_or_truncated_is_refused_and_left_as_it_is() {
    let garbage = |whole: Vec<u8>| (0..whole.len()).map(|n| (n * 7 + n / 256).to_be_bytes()[7]).collect();
    check_spoilt(stopped().await, "hookonce.db", garbage, &["hookonce.db", "not an SQLite database"]);
    let text = |_| b"these are my notes, and no database\n".repeat(100);
    check_spoilt(stopped().await, "hookonce.db", text, &["hookonce.db", "not an SQLite database"]);
    let cut = |whole: Vec<u8>| whole[..8192].to_vec();
    check_spoilt(stopped().await, "hookonce.db", cut, &["hookonce.db", "corrupt", "backup"]);
    let holes = |mut whole: Vec<u8>| {
        let pages = whole.len() / 4096;
        whole[4096..(pages / 2) * 4096].fill(0xA5);
        whole
    };
    check_spoilt(stopped().await, "hookonce.db", holes, &["hookonce.db", "corrupt"]);
}

#[tokio::test]
async fn a_wal_that_was_truncated_or_removed_is_noticed() {
    for share in [0, 1, 3, 7, 9] {
        let cut = move |whole: Vec<u8>| whole[..whole.len() * share / 10].to_vec();
        check_spoilt(killed().await, "hookonce.db-wal", cut, &["hookonce.db", "older", "hookonce.db-wal"]);
    }
    let house = killed().await;
    std::fs::remove_file(house.path("hookonce.db-wal")).unwrap();
    check(&house, &["hookonce.db", "older", "hookonce.db-wal"]);
}

#[tokio::test]
async fn a_store_in_use_is_refused_and_its_node_goes_on() {
    let house = House::new(NOTED);
    send(&house, "before").await;
    check(&house, &["in use by another hookonce"]);
    send(&house, "after").await;
    assert_eq!(house.sql("select count(*) from events"), ["2"]);
}

#[tokio::test]
async fn a_store_in_use_under_another_name_is_refused_and_its_node_goes_on() {
    let house = House::new(NOTED);
    send(&house, "before").await;
    std::os::unix::fs::symlink(house.path("hookonce.db"), house.path("link.db")).unwrap();
    house.configure(&NOTED.replace("hookonce.db", "link.db"));
    check(&house, &["in use by another hookonce"]);
    std::fs::hard_link(house.path("hookonce.db"), house.path("hard.db")).unwrap();
    house.configure(&NOTED.replace("hookonce.db", "hard.db"));
    check(&house, &["hard.db is one of 2 hard links", "keep one name"]);
    std::fs::remove_file(house.path("hard.db")).unwrap();
    house.configure(NOTED);
    send(&house, "after").await;
    assert_eq!(house.sql("select count(*) from events"), ["2"]);
    let list = house.command(&["list", "--store", "sqlite:link.db"]).output().unwrap();
    let said = String::from_utf8_lossy(&[list.stdout, list.stderr].concat()).into_owned();
    assert!(list.status.success() && said.contains("noted"), "a reader needs no lock: {said}");
}

#[tokio::test]
async fn events_only_in_the_wal_of_a_killed_node_are_not_lost_when_the_file_itself_is_mounted() {
    let mut house = killed().await;
    let Some(mounted) = Mounted::at(house.path("mounted.db"), &house.path("hookonce.db")) else { return };
    house.configure(&NOTED.replace("hookonce.db", "mounted.db"));
    let log = read(&house.path("hookonce.db-wal"));
    check(&house, &["mounted.db is itself a mount point", "mount the folder"]);
    check_by(house.command(&["list", "--store", "sqlite:mounted.db"]), &["is itself a mount point"]);
    assert!(!log.is_empty() && read(&house.path("hookonce.db-wal")) == log, "the WAL was changed");
    assert!(!house.path("mounted.db-wal").exists() && !house.path("mounted.db.lock").exists());
    drop(mounted);
    house.configure(NOTED);
    house.start();
    let headers = [("x-id".to_owned(), "d9".to_owned()), ("content-type".to_owned(), "application/json".to_owned())];
    assert_eq!(house.post("/noted", &headers, b"{}").await.unwrap().word(), "duplicate");
}

#[tokio::test]
async fn a_lock_and_a_port_that_a_dying_process_releases_in_a_moment_are_waited_for() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut house = House::empty(&format!("listen = \"{}\"\n{NOTED}", taken.local_addr().unwrap()));
    let lock = std::fs::File::create(house.path("hookonce.db.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop((taken, lock));
    });
    house.start();
    holder.join().unwrap();
}

#[tokio::test]
async fn a_port_in_use_a_missing_secret_and_a_missing_folder_are_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let house = House::empty(&format!("listen = \"{}\"\n{NOTED}", taken.local_addr().unwrap()));
    check(&house, &["cannot listen on", "hint: "]);
    house.configure("[source.a]\npath = \"/a\"\nverify = { scheme = \"github\", secret = { env = \"NOT_SET\" } }\n");
    check(&house, &["NOT_SET"]);
    house.configure("store = \"sqlite:nowhere/hookonce.db\"\n[source.a]\nverify = \"none\"\n");
    check(&house, &["nowhere", "does not exist"]);
}

#[tokio::test]
async fn a_read_only_disk_is_refused_and_nothing_is_lost() {
    let mut house = House::empty(NOTED);
    let Some(disk) = Disk::over(&house, NOTED, "16m") else { return };
    house.start();
    send(&house, "before").await;
    house.kill();
    disk.remount("ro");
    check(&house, &["hookonce.db", "read-only"]);
    disk.remount("rw");
    house.start();
    assert_eq!(house.sql("select count(*) from events"), ["1"]);
    house.stop();
}

#[tokio::test]
async fn a_store_of_another_user_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let house = stopped().await;
    std::fs::set_permissions(house.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(house.path("hookonce.toml"), std::fs::Permissions::from_mode(0o644)).unwrap();
    // A binary that another user may run, wherever the original is.
    let program = house.path("program");
    std::fs::copy(env!("CARGO_BIN_EXE_hookonce"), &program).unwrap();
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).arg("serve");
    nobody.current_dir(house.dir.path());
    if !Command::new("setpriv").args(["--reuid=65534", "true"]).status().is_ok_and(|status| status.success()) {
        println!("skipped: only root may become another user");
        return;
    }
    check_by(nobody, &["no permission to open", "hookonce.db"]);
}
