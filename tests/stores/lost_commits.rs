//! PostgreSQL behind a pooler whose server fails in the middle of a commit.

use crate::START;
use crate::failing_pooler::{FAULTS, FailingPooler, Fails, Fault};
use crate::postgres_server::Server;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::event::{Event, EventStep};
use hookonce::decide::id::NodeId;
use hookonce::decide::source::Route;
use hookonce::decide::time::Duration;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
use hookonce::store::{AdvanceResult, Store, StoreBackend, StoreError};
use std::sync::{Arc, Mutex};

fn start(event: &Event, store: &dyn Store) -> hookonce::decide::transition::Transition {
    let step = EventStep::Start { lasts: Duration::from_mins(1), by: NodeId("n".into()), action: ActionKind::Run };
    event.transition(step, &Route::default(), store.now()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_a_pooler_answers_with_an_error_is_unsure_and_repeating_it_tells() {
    let server = Server::start().await;
    let database = server.database().await;
    let next: Arc<Mutex<Option<Fails>>> = Arc::default();
    let arm = next.clone();
    let pooler = FailingPooler::before(server.port, move || next.lock().unwrap().take()).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", pooler.port);
    let options = PostgresOpenOptions { clock: StoreClock::manual(START), schema: SchemaMode::Auto };
    let store = PostgresStore::open(&url, options).await.unwrap();
    let arm = |fails: Fails| *arm.lock().unwrap() = Some(fails);
    let mut events = 0;
    for (fails, locks) in FAULTS.into_iter().flat_map(|fails| [(fails, false), (fails, true)]) {
        events += 1;
        let mut made = making().delivery(&format!("d{events}")).body(format!("b{events}"));
        if locks {
            made = made.change(&format!("s{events}"), "A", None).group("g");
        }
        let new = made.made(store.now());
        arm(fails);
        let unsure = store.claim(vec![new.clone().into()]).await;
        assert!(matches!(unsure, Err(StoreError::Unsure(_))), "{fails:?} {unsure:?}");
        let there = store.get(new.event.id).await.unwrap().is_some();
        assert_eq!(there, fails.0 == Fault::After, "{fails:?}");
        let again = store.claim(vec![new.clone().into()]).await.unwrap().remove(0);
        let ClaimResult::New { event, .. } = again else { panic!("{again:?}") };
        assert_eq!(event.id, new.event.id);
        if locks {
            continue; // parked, waiting for the first of its group
        }
        arm(fails);
        let unsure = store.advance(vec![start(&event, &store)]).await;
        assert!(matches!(unsure, Err(StoreError::Unsure(_))), "{fails:?} {unsure:?}");
        let stands = store.get(event.id).await.unwrap().unwrap();
        assert_eq!(stands.state.word(), if fails.0 == Fault::After { "running" } else { "waiting" }, "{fails:?}");
        let again = store.advance(vec![start(&event, &store)]).await.unwrap().remove(0);
        assert_eq!(again == AdvanceResult::Lost, fails.0 == Fault::After, "{fails:?} {again:?}");
    }
    let db = server.client(&database).await;
    let row = db.query_one("select (select count(*) from events), (select count(*) from keys)", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (events, 2 * events));
    assert_eq!(pooler.spoilt.load(std::sync::atomic::Ordering::SeqCst), 24);
}
