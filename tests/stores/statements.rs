//! How many statements, and commits, PostgreSQL is sent for a batch.

use crate::START;
use crate::postgres::open;
use crate::postgres_server::Server;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{ClaimResult, NewEvent};
use hookonce::decide::event::{Event, EventStep, Outcome, SucceededBlocks};
use hookonce::decide::id::NodeId;
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::{Retention, Route};
use hookonce::decide::time::Duration;
use hookonce::decide::transition::Transition;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::{TestEventBuilder, making};
use hookonce::store::{AdvanceResult, Store};
use std::sync::Arc;

/// The statements on events that the server has logged, without those that a node sends by itself.
fn statements(server: &Server) -> Vec<String> {
    let log = server.log();
    let sent = log.lines().filter_map(|line| line.split_once("execute s").map(|(_, sent)| sent.to_owned()));
    let parts = [": begin", ": commit", ".events", ".keys", ".payloads", ".registers"];
    sent.filter(|sent| parts.iter().any(|part| sent.contains(part))).collect()
}

fn claims(from: usize, make: impl Fn(TestEventBuilder) -> TestEventBuilder) -> Vec<Arc<NewEvent>> {
    let one = |n: usize| make(making().delivery(&format!("d{n}")).named(&format!("n{n}")));
    (from..from + 3).map(|n| one(n).made(START).into()).collect()
}

fn new(claims: Vec<ClaimResult>) -> Vec<Event> {
    let event = |claim| match claim {
        ClaimResult::New { event, .. } => *event,
        other => panic!("{other:?}"),
    };
    claims.into_iter().map(event).collect()
}

fn step(event: &Event, step: EventStep) -> Transition {
    event.transition(step, &Route::default(), START).unwrap()
}

fn written(advance: AdvanceResult) -> Event {
    match advance {
        AdvanceResult::Written { event, .. } => *event,
        AdvanceResult::Lost => panic!("lost"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_few_statements_and_one_commit() {
    let server = Server::start_with(&["log_statement=all"]).await;
    let database = server.database().await;
    let store = open(&server, &database, StoreClock::manual(START)).await;
    let mut seen = statements(&server).len();
    let mut check = |what: &str, expected: usize| {
        let all = statements(&server).split_off(seen);
        seen += all.len();
        assert_eq!(all.len(), expected, "{what}: {all:#?}");
        assert_eq!(all.iter().filter(|sent| sent.ends_with(": commit")).count(), 1, "{what}: {all:#?}");
    };
    let bare = Retention { body: Duration::ZERO, ..Retention::default() };
    let bodiless = |one: TestEventBuilder| one.recorded().kept(bare);
    new(store.claim(claims(10, bodiless)).await.unwrap());
    check("claims without bodies", 4);
    let waiting = new(store.claim(claims(20, |one| one)).await.unwrap());
    check("claims with bodies", 5);
    let start = EventStep::Start { lasts: Duration::from_mins(1), by: NodeId("n".into()), action: ActionKind::Run };
    let starts = waiting.iter().map(|event| step(event, start.clone())).collect();
    let running: Vec<_> = store.advance(starts).await.unwrap().into_iter().map(written).collect();
    check("starts", 4);
    let settle = EventStep::Settle { outcome: Outcome::Delivered(None), blocks: SucceededBlocks(0), jitter: Jitter(0) };
    let settles: Vec<_> = running.iter().map(|event| step(event, settle.clone())).collect();
    let (claimed, settled) = store.claim_and_advance(claims(30, bodiless), Arc::new(settles)).await.unwrap();
    let settled: Vec<_> = settled.into_iter().map(|one| written(one.unwrap())).collect();
    assert_eq!((new(claimed).len(), settled.len()), (3, 3));
    // One more removes the headers that were kept for the attempts only.
    check("claims and transitions", 6);
}
