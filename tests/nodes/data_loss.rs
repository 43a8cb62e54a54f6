//! A store that has lost data, and the nodes that are started on it again: by a service manager, by an operator, and by
//! an operator who has read what was lost.

use crate::server_refusals::on;
use crate::support::{self, House, Sent, until};
use crate::{postgres, redis};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// A config whose events append their keys to a file.
pub(crate) const ACTS: &str = r#"store = { env = "STORE" }
[source.s]
path = "/in"
verify = { scheme = "github", secret = { env = "SECRET" } }
[source.s.fields]
key = "body.key"
[source.s.once]
per = [["key"]]
[[source.s.route]]
name = "r"
run = { steps = ["echo $HOOKONCE_FIELD_KEY >> acted"] }
"#;

pub(crate) fn delivery(key: &str) -> Sent {
    Sent::github("push", &format!("d-{key}"), &format!(r#"{{"key":"{key}"}}"#))
}

pub(crate) fn start(house: &mut House, url: &str, args: &[&str]) -> Result<(), String> {
    let serve = on(house, url, &[&["serve"], args].concat());
    house.try_start_by(serve)
}

/// Delivers it, and waits until its command has run and its end is written.
pub(crate) async fn act(house: &House, key: &str) {
    let answer = house.deliver("/in", &delivery(key)).await;
    assert_eq!(answer.word(), "accepted", "{key}");
    until("the command to run", || house.lines("acted").iter().any(|line| line == key)).await;
    let done = format!(" done      event={} ", &answer.event()[28..]);
    until("its end to be written", || house.log().contains(&done)).await;
}

/// Checks that the node does not start and prints these words; returns the loss that it names.
pub(crate) fn refused(house: &mut House, url: &str, args: &[&str], words: &[&str]) -> String {
    let said = start(house, url, args).expect_err("it started");
    assert!(said.starts_with("exit status: 2"), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    assert!(!said.contains(support::SECRET), "{said}");
    let named = said.split("--accept-loss ").nth(1).and_then(|rest| rest.split('`').next());
    named.unwrap_or_else(|| panic!("no loss is named: {said}")).to_owned()
}

fn live(house: &House, url: &str) -> (i32, String) {
    let output = on(house, url, &["check", "--live"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find(|line| line.contains(" state ")).unwrap_or_else(|| panic!("no state: {said}"));
    (output.status.code().unwrap(), line.to_owned())
}

/// The state files of this house.
fn states(house: &House) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(house.path("state")).into_iter().flatten().flatten();
    files.map(|file| file.path()).collect()
}

/// Refused twice, as a service with `Restart=always` would be; also with the name of another loss; then accepted once.
pub(crate) async fn goes_on_when_told(house: &mut House, url: &str, words: &[&str], done: &str) {
    let lost = refused(house, url, &[], words);
    assert_eq!(refused(house, url, &[], words), lost, "the loss has the same name");
    assert_eq!(house.lines("acted").iter().filter(|line| *line == done).count(), 1, "it acted again");
    let (code, line) = live(house, url);
    assert!(code == 1 && line.starts_with("wrong") && line.contains(&lost), "{line}");
    refused(house, url, &["--accept-loss", "ab:1"], &["is a different loss"]);
    start(house, url, &["--accept-loss", &lost]).unwrap();
    let accepted = format!("known={lost}");
    until("the accepted loss to be logged", || {
        house.log().lines().any(|line| line.contains("accept_loss") && line.contains(&accepted))
    })
    .await;
    act(house, done).await; // it acts again: that is what was accepted
    act(house, "after").await;
    assert!(house.stop().success());
    start(house, url, &["--accept-loss", &lost]).unwrap();
    until("the log line that there is no loss", || house.log().contains("there is no loss")).await;
    assert_eq!(house.deliver("/in", &delivery("after")).await.word(), "duplicate");
    assert_eq!(live(house, url).0, 0);
}

fn copied(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// A Redis that comes back as it was before the last event.
async fn set_back(program: &Path) {
    let mut server = redis::Server::with(program, &[]);
    let url = server.url("a");
    let (data, copy) = (server.dir.path().join("appendonlydir"), server.dir.path().join("copy"));
    let mut house = House::empty(ACTS);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "before").await;
    copied(&data, &copy);
    act(&house, "lost").await;
    server.kill();
    copied(&copy, &data);
    server.run();
    // The running node notices it by itself, or was ended before.
    let (status, said) = house.wait();
    assert!(status.code() == Some(2) && said.contains("--accept-loss"), "{status}: {said}");
    goes_on_when_told(&mut house, &url, &["forgotten writes", "This node knew", "the store has"], "lost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_restarted_on_a_redis_that_was_set_back_waits_for_an_operator() {
    set_back(&redis::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_restarted_on_a_valkey_that_was_set_back_waits_for_an_operator() {
    let Some(valkey) = redis::valkey() else { return };
    set_back(&valkey).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lost_its_data_while_no_node_ran_is_noticed_and_nothing_is_created_in_it() {
    let server = redis::Server::start();
    let url = server.url("a");
    let mut house = House::empty(ACTS);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "lost").await;
    assert!(house.stop().success());
    server.order(&["FLUSHALL"]);
    refused(&mut house, &url, &[], &["the store is gone", "the store has nothing"]);
    assert_eq!(server.order(&["DBSIZE"]), ::redis::Value::Int(0), "something was created in it");
    goes_on_when_told(&mut house, &url, &["the store is gone", "the store has nothing"], "lost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_a_redis_lost_are_noticed_after_a_restart_although_others_have_written_more_since() {
    let mut server = redis::Server::start();
    let url = server.url("a");
    let (data, copy) = (server.dir.path().join("appendonlydir"), server.dir.path().join("copy"));
    let (mut house, mut other) = (House::empty(ACTS), House::empty(ACTS));
    start(&mut house, &url, &[]).unwrap();
    copied(&data, &copy);
    act(&house, "lost").await;
    assert!(house.stop().success());
    server.kill();
    copied(&copy, &data);
    server.run();
    start(&mut other, &url, &[]).unwrap(); // on another machine, which has no state file
    for n in 0..10 {
        act(&other, &format!("other{n}")).await;
    }
    goes_on_when_told(&mut house, &url, &["forgotten what this node wrote"], "lost").await;
    assert!(!other.has_ended(), "it has lost nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_of_one_machine_share_what_they_know() {
    let mut server = redis::Server::start();
    let url = server.url("a");
    let (data, copy) = (server.dir.path().join("appendonlydir"), server.dir.path().join("copy"));
    let (mut one, mut two) = (House::empty(ACTS), House::empty(ACTS));
    let state = one.path("state");
    let serve = |house: &House| {
        let mut serve = on(house, &url, &["serve"]);
        serve.env("STATE_DIRECTORY", &state);
        serve
    };
    one.try_start_by(serve(&one)).unwrap();
    two.try_start_by(serve(&two)).unwrap();
    copied(&data, &copy);
    act(&two, "lost").await;
    assert!(one.stop().success() && two.stop().success());
    assert_eq!(states(&one).len(), 1, "{:?}", states(&one));
    server.kill();
    copied(&copy, &data);
    server.run();
    // The other node wrote it; both know.
    for house in [&mut one, &mut two] {
        let said = house.try_start_by(serve(house)).expect_err("it started");
        assert!(said.starts_with("exit status: 2") && said.contains("forgotten writes"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_state_file_is_reported_and_is_no_loss() {
    let server = redis::Server::start();
    let url = server.url("a");
    let mut house = House::empty(ACTS);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "once").await;
    assert!(house.stop().success());
    let [file] = &states(&house)[..] else { panic!("{:?}", states(&house)) };
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("mark ") && !text.contains("hunter2"), "{text}");
    std::fs::write(file, &text[..text.len() / 2]).unwrap();
    let (code, line) = live(&house, &url);
    assert!(code == 1 && line.contains("is damaged"), "{line}");
    start(&mut house, &url, &[]).unwrap();
    until("the damaged file to be reported", || house.log().contains("is damaged")).await;
    assert_eq!(house.deliver("/in", &delivery("once")).await.word(), "duplicate");
    until("it to be written again", || std::fs::read_to_string(file).is_ok_and(|text| text.contains("digest"))).await;
    assert!(house.stop().success());
    start(&mut house, &url, &[]).unwrap();
    assert!(!house.log().contains("is damaged"), "{}", house.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_file_that_cannot_be_read_keeps_a_node_from_starting() {
    let server = redis::Server::start();
    let url = server.url("a");
    let mut house = House::empty(ACTS);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "once").await;
    assert!(house.stop().success());
    let [file] = &states(&house)[..] else { panic!("{:?}", states(&house)) };
    let aside = house.path("aside");
    std::fs::rename(file, &aside).unwrap();
    std::fs::create_dir(file).unwrap(); // a folder cannot be read as a file, whatever the permissions
    for _ in 0..2 {
        let said = start(&mut house, &url, &[]).expect_err("it started");
        assert!(said.starts_with("exit status: 2") && said.contains("cannot be read"), "{said}");
        assert!(said.contains(&*file.to_string_lossy()) && said.contains("remove it"), "{said}");
    }
    let (code, line) = live(&house, &url);
    assert!(code == 1 && line.starts_with("wrong") && line.contains("cannot be read"), "{line}");
    assert!(file.is_dir(), "it was replaced");
    std::fs::remove_dir(file).unwrap();
    std::fs::rename(&aside, file).unwrap();
    start(&mut house, &url, &[]).unwrap();
    assert_eq!(house.deliver("/in", &delivery("once")).await.word(), "duplicate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_state_folder_reports_that_at_each_start() {
    let server = redis::Server::start();
    let mut house = House::empty(&ACTS.replacen('\n', "\nstate = \"hookonce.toml/state\"\n", 1));
    for _ in 0..2 {
        start(&mut house, &server.url("a"), &[]).unwrap();
        until("the missing folder to be reported", || {
            house.log().contains("cannot be created") && house.log().contains(" state ")
        })
        .await;
        house.kill();
    }
    let (code, line) = live(&house, &server.url("a"));
    assert!(code == 0 && line.contains("only while a node runs"), "{line}");
}

/// A primary and a standby that can be cut off from it, in one URL.
struct Pair {
    primary: postgres::Server,
    standby: postgres::Server,
    url: String,
    database: String,
}

impl Pair {
    async fn start() -> Self {
        let primary = postgres::Server::start().await;
        let database = primary.database().await;
        let standby = primary.replica().await;
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, standby.port);
        let url = format!("postgres://postgres@{hosts}/{database}?target_session_attrs=read-write");
        Self { primary, standby, url, database }
    }

    /// Waits until the standby has everything that the primary has written.
    async fn caught_up(&self) {
        let db = self.primary.client("postgres").await;
        let until = std::time::Instant::now() + support::PATIENCE;
        loop {
            let behind =
                "select coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false) from pg_stat_replication";
            if db.query_one(behind, &[]).await.unwrap().get(0) {
                return;
            }
            assert!(std::time::Instant::now() < until, "the standby never catches up");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Cuts the standby off from the primary.
    async fn cut_off(&self) {
        let db = self.standby.client("postgres").await;
        db.batch_execute("alter system set primary_conninfo = ''").await.unwrap();
        db.batch_execute("select pg_reload_conf()").await.unwrap();
        let until = std::time::Instant::now() + support::PATIENCE;
        let hears = "select count(*) from pg_stat_wal_receiver";
        while db.query_one(hears, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            assert!(std::time::Instant::now() < until, "the standby is still connected");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// A node that did `before`, which the standby has, and then `lost`, which it does not have.
    async fn node_with_a_write_that_the_standby_lacks(&self) -> House {
        let mut house = House::empty(ACTS);
        start(&mut house, &self.url, &[]).unwrap();
        act(&house, "before").await;
        self.caught_up().await;
        self.cut_off().await;
        act(&house, "lost").await;
        house
    }

    async fn fail_over(&mut self) {
        self.primary.crash();
        let db = self.standby.client("postgres").await;
        let promoted: bool = db.query_one("select pg_promote()", &[]).await.unwrap().get(0);
        assert!(promoted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_standby_that_was_behind_is_noticed_by_the_node_and_by_its_successor() {
    let mut pair = Pair::start().await;
    let url = pair.url.clone();
    let mut house = pair.node_with_a_write_that_the_standby_lacks().await;
    pair.fail_over().await;
    // The new primary writes on, past the position of the old one.
    let db = pair.standby.client(&pair.database).await;
    db.batch_execute("create table others as select n from generate_series(1, 20000) n; drop table others")
        .await
        .unwrap();
    // The running node is asked; whatever it does, it does not act again.
    while !house.has_ended() {
        let _ = house.post("/in", &delivery("lost").headers, &delivery("lost").body).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (status, said) = house.wait();
    assert!(status.code() == Some(2) && said.contains("--accept-loss"), "{status}: {said}");
    goes_on_when_told(&mut house, &url, &["forgotten what this node wrote"], "lost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_lost_the_previous_nodes_writes_is_noticed_by_its_idle_successor() {
    let mut pair = Pair::start().await;
    let url = pair.url.clone();
    let mut house = pair.node_with_a_write_that_the_standby_lacks().await;
    assert!(house.stop().success());
    start(&mut house, &url, &[]).unwrap(); // it has written nothing yet
    pair.fail_over().await;
    let patience = std::time::Instant::now() + support::PATIENCE;
    while !house.has_ended() {
        let _ = house.post("/in", &delivery("lost").headers, &delivery("lost").body).await;
        assert_eq!(house.lines("acted"), ["before", "lost"], "it acted again");
        assert!(std::time::Instant::now() < patience, "it does not stop");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (status, said) = house.wait();
    assert!(status.code() == Some(2) && said.contains("--accept-loss"), "{status}: {said}");
    refused(&mut house, &url, &[], &["forgotten"]);
}

/// A config without a state folder, whose events are kept for this long.
fn without_state(keep: &str) -> String {
    let config = ACTS.replacen('\n', "\nstate = \"hookonce.toml/state\"\n", 1);
    config.replacen("per =", &format!("keep = \"{keep}\"\nkeep_body = \"0s\"\nper ="), 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_another_node_removed_as_expired_are_no_loss_after_a_failover_without_a_state_folder() {
    let mut pair = Pair::start().await;
    let url = pair.url.clone();
    let config = without_state("3s");
    // Only the second one acts and sweeps.
    let (mut house, mut other) = (House::empty(&config), House::empty(&config));
    start(&mut house, &url, &["--only", "ingest"]).unwrap();
    start(&mut other, &url, &[]).unwrap();
    assert_eq!(house.deliver("/in", &delivery("old")).await.word(), "accepted");
    until("the command to run", || other.lines("acted") == ["old"]).await;
    let patience = std::time::Instant::now() + support::PATIENCE;
    while !other.ask("GET", "/api/events").await.json()["events"].as_array().unwrap().is_empty() {
        assert!(std::time::Instant::now() < patience, "it is not removed");
        other.ask("POST", "/api/forget").await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    pair.caught_up().await;
    pair.fail_over().await;
    assert_eq!(crate::server_refusals::insist(&house, &delivery("new")).await, "accepted");
    until("the command to run", || other.lines("acted") == ["old", "new"]).await;
    assert!(!house.has_ended() && !other.has_ended());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_standby_that_was_behind_is_noticed_also_by_a_node_with_a_new_url() {
    let mut pair = Pair::start().await;
    let mut house = House::empty(ACTS);
    start(&mut house, &pair.primary.url(&pair.database), &[]).unwrap();
    act(&house, "before").await;
    pair.caught_up().await;
    pair.cut_off().await;
    act(&house, "lost").await;
    assert!(house.stop().success());
    pair.fail_over().await;
    let url = pair.standby.url(&pair.database); // a URL that was not used before
    let lost = refused(&mut house, &url, &[], &["forgotten"]);
    let (code, line) = live(&house, &url);
    assert!(code == 1 && line.starts_with("wrong") && line.contains(&lost), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_standby_that_has_everything_is_followed_silently() {
    let mut pair = Pair::start().await;
    let mut house = House::empty(ACTS);
    start(&mut house, &pair.url.clone(), &[]).unwrap();
    act(&house, "once").await;
    pair.caught_up().await;
    pair.fail_over().await;
    assert_eq!(crate::server_refusals::insist(&house, &delivery("once")).await, "duplicate");
    assert_eq!(crate::server_refusals::insist(&house, &delivery("twice")).await, "accepted");
    until("the command to run", || house.lines("acted") == ["once", "twice"]).await;
    house.signal(Signal::TERM);
    assert!(house.wait().0.success());
    start(&mut house, &pair.url.clone(), &[]).unwrap();
    assert_eq!(house.deliver("/in", &delivery("twice")).await.word(), "duplicate");
    let (code, line) = live(&house, &pair.url);
    assert!(code == 0 && line.contains("this machine knows") && line.contains(":2-0/"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_postgres_system_needs_one_confirmation_and_is_not_called_a_loss() {
    let (mut old, new) = (postgres::Server::start().await, postgres::Server::start().await);
    let database = old.database().await;
    new.client("postgres").await.batch_execute(&format!("create database {database}")).await.unwrap();
    let mut house = House::empty(ACTS);
    // One URL with both addresses, as after the name of a server has moved.
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{database}", old.port, new.port);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "once").await;
    assert!(house.stop().success());
    let mut dump = Command::new(postgres::program("pg_dump"));
    let dumped = dump.arg("--dbname").arg(old.url(&database)).output().unwrap();
    assert!(dumped.status.success(), "{dumped:?}");
    let copy = house.path("dump.sql");
    std::fs::write(&copy, dumped.stdout).unwrap();
    let mut psql = Command::new(postgres::program("psql"));
    assert!(psql.args(["-q", "-d", &new.url(&database), "-f"]).arg(&copy).output().unwrap().status.success());
    old.crash();
    let named = refused(&mut house, &url, &[], &["another PostgreSQL system", "Check that it is the right one"]);
    start(&mut house, &url, &["--accept-loss", &named]).unwrap();
    assert_eq!(house.deliver("/in", &delivery("once")).await.word(), "duplicate");
    act(&house, "after").await;
    assert!(house.stop().success());
    start(&mut house, &url, &[]).unwrap();
    assert_eq!(house.lines("acted"), ["once", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_does_not_report_its_position_is_checked_by_its_marks() {
    let server = postgres::Server::start().await;
    let database = server.database().await;
    let admin = server.client(&database).await;
    let refuse = "create role app login; \
                  revoke execute on function pg_control_system() from public; \
                  revoke execute on function pg_current_wal_insert_lsn() from public; \
                  grant all on schema public to app";
    admin.batch_execute(refuse).await.unwrap();
    admin.batch_execute(&format!("alter database {database} owner to app")).await.unwrap();
    let url = server.url_of("app", &database);
    let mut house = House::empty(ACTS);
    start(&mut house, &url, &[]).unwrap();
    act(&house, "before").await;
    assert!(house.stop().success());
    let dumped = Command::new(postgres::program("pg_dump")).arg("--clean").arg(server.url(&database)).output().unwrap();
    let copy = house.path("dump.sql");
    std::fs::write(&copy, dumped.stdout).unwrap();
    start(&mut house, &url, &[]).unwrap();
    act(&house, "lost").await;
    assert!(house.stop().success());
    let (code, line) = live(&house, &url);
    assert!(code == 0 && line.contains("does not reveal its system identifier"), "{line}");
    let mut psql = Command::new(postgres::program("psql"));
    assert!(psql.args(["-q", "-d", &server.url(&database), "-f"]).arg(&copy).output().unwrap().status.success());
    goes_on_when_told(&mut house, &url, &["forgotten"], "lost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_removed_by_migrate_down_need_one_confirmation_and_are_not_called_a_loss() {
    let server = postgres::Server::start().await;
    let database = server.database().await;
    let url = server.url(&database);
    let (mut house, mut other) = (House::empty(ACTS), House::empty(ACTS));
    for (house, key) in [(&mut house, "one"), (&mut other, "two")] {
        start(house, &url, &[]).unwrap();
        act(house, key).await;
        assert!(house.stop().success());
    }
    for args in [&["migrate", "down", "--to", "7", "--yes"][..], &["migrate", "up"]] {
        let done = on(&house, &url, args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    // The second machine finds marks again: those of the first.
    for (house, key) in [(&mut house, "one"), (&mut other, "two")] {
        let named = refused(house, &url, &[], &["were removed", "migrate down", "nothing else is lost"]);
        let (code, line) = live(house, &url);
        assert!(code == 1 && line.contains("were removed"), "{line}");
        start(house, &url, &["--accept-loss", &named]).unwrap();
        assert_eq!(house.deliver("/in", &delivery(key)).await.word(), "duplicate");
        act(house, &format!("{key}-again")).await;
        assert!(house.stop().success());
        start(house, &url, &[]).unwrap();
        assert!(house.stop().success());
    }
}

#[test]
fn the_documented_unit_does_not_restart_after_exit_code_2_and_has_a_state_folder() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/hookonce.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    for line in ["Restart=on-failure", "RestartPreventExitStatus=2", "StateDirectory=hookonce"] {
        assert!(unit.lines().any(|found| found == line), "{line}: {unit}");
    }
}
