//! Starting due events from many nodes on one PostgreSQL, and the indexes that find them.

use crate::START;
use crate::postgres::open;
use crate::postgres_server::Server;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::event::EventStep;
use hookonce::decide::id::NodeId;
use hookonce::decide::time::Duration;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::{StartDueRequest, Store, StoreBackend};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_postgres::Client;

/// A request for this many due events of the conformance suite's route.
pub(crate) fn starts(limit: usize) -> StartDueRequest {
    let step = EventStep::Start { lasts: Duration::from_secs(30), by: NodeId("node".into()), action: ActionKind::Run };
    StartDueRequest { source: "source".into(), route: Arc::default(), part: 0, step, limit }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_events_do_not_block_the_start_of_others() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&server, &database, StoreClock::manual(START)).await;
    let made: Vec<Arc<_>> = (0..12).map(|n| making().delivery(&n.to_string()).made(store.now()).into()).collect();
    let all: Vec<_> = made.iter().map(|new| new.event.id).collect();
    store.claim(made).await.unwrap();
    let other = server.client(&database).await;
    let hold = "begin; select from hookonce.events order by wake_at, id limit 4 for update";
    other.batch_execute(hold).await.unwrap();
    // A store that waited for the four locked events would give up after ten seconds, with nothing.
    let started = tokio::time::timeout(Duration::from_secs(8), store.start_due(starts(5))).await.unwrap().unwrap();
    let ids: Vec<_> = started.events.iter().map(|event| event.id).collect();
    assert_eq!(ids, all[4..9], "the first that are not locked");
    other.batch_execute("rollback").await.unwrap();
    let rest = store.start_due(starts(100)).await.unwrap();
    let ids: BTreeSet<_> = rest.events.iter().map(|event| event.id).collect();
    assert_eq!(ids, all[..4].iter().chain(&all[9..]).copied().collect());
}

/// The plan of this query, with the settings of a node's session.
async fn plan(db: &Client, sql: &str) -> String {
    db.batch_execute("set enable_seqscan = off").await.unwrap();
    let rows = db.query(&format!("explain (costs off) {sql}"), &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_events_are_found_without_sorting_and_an_id_by_its_end_without_a_table_scan() {
    let server = Server::start_with(&["autovacuum=off"]).await;
    let database = server.database().await;
    let store = open(&server, &database, StoreClock::manual(START)).await;
    let made: Vec<Arc<_>> = (0..500).map(|n| making().delivery(&n.to_string()).made(store.now()).into()).collect();
    store.claim(made).await.unwrap();
    let db = server.client(&database).await;
    let due = "select id from hookonce.events where wake_at is not null and state = 'waiting' and source = 'source' \
               and route = '1' order by wake_at, id limit 65";
    let plan_of = plan(&db, due).await;
    assert!(plan_of.contains("events_due") && !plan_of.contains("Sort"), "{plan_of}");
    let end = "select id from hookonce.events where reverse(right(id::text, 12)) collate \"C\" >= 'abcd' \
               and reverse(right(id::text, 12)) collate \"C\" < 'abcdg'";
    let plan_of = plan(&db, end).await;
    assert!(plan_of.contains("events_id_end"), "{plan_of}");
}
