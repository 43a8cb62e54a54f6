//! Upgrades from the first release: today's node continues with its stores, and nothing that was done is done again.
//!
//! `tests/fixtures/first-release` has one store of each kind, and the deliveries that filled them, byte by byte. If
//! `HOOKONCE_FIRST_RELEASE` names the first release's binary, as under `./test --full`, that binary also fills new
//! stores, and is started again on those that today's node has used, after `migrate down`.
#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]

#[path = "../responses/backend.rs"]
#[allow(dead_code, reason = "tests/responses uses the rest of it")]
mod backend;
#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/mod.rs"]
mod support;

mod deliveries;
mod downgrade;
mod fill;
mod fixtures;
mod mixed_versions;
mod node;
mod schema_move;
mod server;

use deliveries::Kept;
use fill::fill;
use node::UpgradedNode;
use server::StoreServer;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The schema version of the first release, in SQLite and in PostgreSQL.
const FIRST_SCHEMA: &str = "7";
/// The actions of the events that waited, or ran when their node was killed: each must run once.
const OWED: [&str; 4] = ["runs 1", "waits 1", "waits 2", "waits 3"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/first-release")
}

/// The first release's binary, if given.
fn first_release() -> Option<PathBuf> {
    std::env::var_os("HOOKONCE_FIRST_RELEASE").map(PathBuf::from)
}

/// Sends everything again: each delivery is answered as a repeat of its event, and nothing acts.
async fn nothing_acts_again(node: &UpgradedNode, all: &[Kept]) {
    let before = (node.acts(), node.called(), node.states());
    for kept in all {
        let answer = node.house.deliver(&kept.path, &kept.sent()).await;
        kept.is_repeated_by(&answer);
    }
    assert_eq!((node.acts(), node.called()), (before.0, before.1), "something acted again");
    let states: BTreeMap<_, _> = node.states();
    assert_eq!(states.keys().collect::<Vec<_>>(), before.2.keys().collect::<Vec<_>>(), "there is a new event");
}

/// Checks that each waiting event runs once, and that everything else stays as it was.
async fn what_is_owed_runs_once(node: &UpgradedNode) {
    let before = node.states();
    let open = |state: &str| state == "waiting" || state == "running";
    assert_eq!(before.values().filter(|state| open(state)).count(), OWED.len(), "{before:?}");
    node.let_go();
    node.quiet().await;
    let mut acts = node.acts();
    acts.sort();
    assert_eq!(acts, OWED);
    for (event, state) in node.states() {
        let was = &before[&event];
        assert_eq!(state, if open(was) { "done" } else { was }, "{event}");
    }
}

/// Runs today's node on a store of the first release, then takes its schema down to the first release's and up again.
async fn a_store_of_the_first_release_goes_on(server: StoreServer, all: Vec<Kept>) {
    let mut node = UpgradedNode::new(server).await;
    node.start();
    let log = node.house.log();
    assert!(!log.contains("may act again"), "a recipe that only grew needs no warning: {log}");
    nothing_acts_again(&node, &all).await;
    what_is_owed_runs_once(&node).await;
    nothing_acts_again(&node, &all).await;
    assert!(node.house.stop().success());
    if node.has_schema() {
        let said = node.run(&["migrate", "down", "--to", FIRST_SCHEMA, "--yes"]);
        assert!(said.lines().all(|line| line == "nothing to do" || line.ends_with("reverted")), "{said}");
        let said = node.run(&["migrate", "status"]);
        let of = |line: &str| line.split(' ').next().unwrap().parse::<u32>().unwrap() <= FIRST_SCHEMA.parse().unwrap();
        assert!(said.lines().all(|line| line.contains(" applied ") == of(line)), "{said}");
    }
    if let Some(first) = first_release() {
        node.start_by(&first);
        nothing_acts_again(&node, &all).await;
        assert!(node.house.stop().success());
    }
    node.start();
    nothing_acts_again(&node, &all).await;
    a_captured_delivery_acts_once(&mut node).await;
    nothing_acts_again(&node, &all).await;
    assert!(node.house.stop().success());
}

/// Checks that new deliveries are recognised by their bytes, too, also after a restart.
async fn a_captured_delivery_acts_once(node: &mut UpgradedNode) {
    let sent = |id: &str| support::Sent::github("push", id, "{\"n\":99}");
    assert_eq!(node.house.deliver("/github", &sent("new-1")).await.word(), "accepted");
    for id in ["new-1", "new-2", "new-3"] {
        assert_eq!(node.house.deliver("/github", &sent(id)).await.word(), "duplicate", "{id}");
    }
    assert!(node.house.stop().success());
    node.start();
    assert_eq!(node.house.deliver("/github", &sent("new-4")).await.word(), "duplicate");
    let log = node.house.log();
    assert!(!log.contains("may act again"), "{log}");
    node.quiet().await;
}

async fn a_store_that_the_first_release_writes_now_goes_on(server: StoreServer) {
    let Some(first) = first_release() else {
        println!("skipped: HOOKONCE_FIRST_RELEASE is not set; ./test --full builds that binary");
        return;
    };
    let (server, all) = fill(server, &first).await;
    a_store_of_the_first_release_goes_on(server, all).await;
}

macro_rules! on_each {
    ($($module:ident: $start:expr;)+) => { $(
        mod $module {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn nothing_that_the_first_release_kept_acts_again_and_what_it_owed_runs_once() {
                let server = $start;
                fixtures::load(&server).await;
                a_store_of_the_first_release_goes_on(server, deliveries::kept()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn nothing_acts_again_after_an_upgrade_from_a_store_filled_now() {
                a_store_that_the_first_release_writes_now_goes_on($start).await;
            }
        }
    )+ };
}

on_each! {
    on_sqlite: StoreServer::sqlite();
    on_postgres: StoreServer::postgres().await;
    on_redis: StoreServer::redis(&redis::redis());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_the_first_release_kept_in_redis_acts_again_on_valkey() {
    let Some(valkey) = redis::valkey() else {
        println!("skipped: there is no Valkey");
        return;
    };
    let server = StoreServer::redis(&valkey);
    fixtures::load(&server).await;
    a_store_of_the_first_release_goes_on(server, deliveries::kept()).await;
}

/// Not a test: `tests/fixtures/first-release/make` runs it to create the fixtures anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "creates the fixtures anew"]
async fn make_the_stores() {
    let first = first_release().expect("HOOKONCE_FIRST_RELEASE names the binary that writes them");
    let mut written = Vec::new();
    for server in [StoreServer::sqlite(), StoreServer::postgres().await, StoreServer::redis(&redis::redis())] {
        let (server, all) = fill(server, &first).await;
        fixtures::dump(&server).await;
        written.push(all);
    }
    assert!(written.iter().all(|all| *all == written[0]), "the responses differ between the stores: {written:?}");
    deliveries::keep(&written[0]);
}
