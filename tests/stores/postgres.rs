//! PostgreSQL as a store, on a real server.

use crate::START;
use crate::postgres_server::Server;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{ClaimResult, MatchedBy};
use hookonce::decide::event::{Event, EventStep, Outcome, SucceededBlocks};
use hookonce::decide::id::{EventId, NodeId};
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::Route;
use hookonce::decide::time::Duration;
use hookonce::decide::transition::AttemptRecord;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance;
use hookonce::store::conformance::{StoreUnderTest, TestEventBuilder, making};
use hookonce::store::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
use hookonce::store::{
    AdvanceResult, ChangeHint, DuplicateNote, DuplicateSighting, Inspect, Store, StoreBackend, StoreError, StoredValue,
};
use tokio::sync::broadcast::Receiver;

/// A store in this database, with this clock.
pub(crate) async fn open(server: &Server, database: &str, clock: StoreClock) -> PostgresStore {
    let options = PostgresOpenOptions { clock, schema: SchemaMode::Auto };
    PostgresStore::open(&server.url(database), options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_passes_the_conformance_suite() {
    let server = Server::start().await;
    let database = server.database().await;
    let count = std::sync::atomic::AtomicU32::new(0);
    conformance::run(async || {
        // A schema of its own for each rule: faster to create than a database.
        let schema = format!("rule{}", count.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        // The statements of the suite are a user's, which look into the store's tables.
        let url = format!("{}?schema={schema}&options=-c%20search_path%3D{schema}", server.url(&database));
        let clock = StoreClock::manual(START);
        let options = PostgresOpenOptions { clock: clock.clone(), schema: SchemaMode::Auto };
        let store = PostgresStore::open(&url, options).await.unwrap();
        let database_url = server.url(&database);
        let spoil = move |id: EventId| {
            let sql = format!("update {schema}.payloads set body = 'As it came' where event = '{id}'");
            let done = std::process::Command::new("psql").args([&database_url, "-qc", &sql]).status();
            assert!(done.unwrap().success());
        };
        let fresh = StoreUnderTest::by(store, &clock);
        fresh.running(hookonce::decide::sql_template::SqlDialect::Postgres).spoiled_by(spoil)
    })
    .await;
}

async fn new(store: &dyn Store, one: TestEventBuilder) -> Event {
    match store.claim(vec![one.made(store.now()).into()]).await.unwrap().remove(0) {
        ClaimResult::New { event, .. } => *event,
        other => panic!("{other:?}"),
    }
}

async fn step(store: &dyn Store, event: &Event, step: EventStep) -> Event {
    let change = event.transition(step, &Route::default(), store.now()).unwrap();
    match store.advance(vec![change]).await.unwrap().remove(0) {
        AdvanceResult::Written { event, .. } => *event,
        AdvanceResult::Lost => panic!("lost"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_notified_of_what_others_make_due_and_end_but_not_of_their_own() {
    let server = Server::start().await;
    let database = server.database().await;
    let (here, there) =
        (open(&server, &database, StoreClock::server()).await, open(&server, &database, StoreClock::server()).await);
    let (mut heard, mut own) = (here.hints().unwrap(), there.hints().unwrap());
    let listening = "select count(*) from pg_stat_activity where query ilike '%pg_notify%' or query like 'listen%'";
    let db = server.client(&database).await;
    while db.query_one(listening, &[]).await.unwrap().get::<_, i64>(0) < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let made = new(&there, making().source("so").route("ro").delivery("d1")).await;
    let hint = async |hints: &mut Receiver<ChangeHint>| {
        tokio::time::timeout(std::time::Duration::from_secs(30), hints.recv()).await.unwrap().unwrap()
    };
    assert_eq!(hint(&mut heard).await, ChangeHint::Due { source: "so".into(), route: "ro".into() });
    step(&there, &made, EventStep::Cancel).await;
    assert_eq!(hint(&mut heard).await, ChangeHint::Ended(made.id));
    let other = new(&here, making().source("other").delivery("d2")).await;
    assert_eq!(hint(&mut own).await, ChangeHint::Due { source: "other".into(), route: other.route.clone() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_server_counts_as_down_and_when_it_is_back_nothing_is_missing() {
    let mut server = Server::start().await;
    let database = server.database().await;
    let store = open(&server, &database, StoreClock::server()).await;
    let mut acked = Vec::new();
    for round in 0..3 {
        for n in 0..20 {
            acked.push(new(&store, making().delivery(&format!("{round} {n}")).carrying("body")).await.id);
        }
        server.crash();
        let lost = making().delivery(&format!("{round} lost")).made(store.now());
        assert!(matches!(
            store.claim(vec![lost.clone().into()]).await,
            Err(StoreError::Down(_) | StoreError::Unsure(_))
        ));
        assert!(store.get(acked[0]).await.is_err());
        assert!(server.start_again().await);
        let back = async {
            while store.claim(vec![lost.clone().into()]).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), back).await.unwrap();
        for id in &acked {
            assert!(matches!(store.payload(*id).await.unwrap(), StoredValue::Whole(_)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_claims_are_on_disk_even_with_synchronous_commit_off() {
    let mut server = Server::start_with(&["synchronous_commit=off", "wal_writer_delay=10s"]).await;
    let database = server.database().await;
    for round in 0..5 {
        let before = open(&server, &database, StoreClock::server()).await;
        let made = new(&before, making().delivery(&format!("d{round}"))).await;
        server.crash();
        assert!(server.start_again().await);
        let after = open(&server, &database, StoreClock::server()).await;
        assert!(after.get(made.id).await.unwrap().is_some(), "{round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_event_ends_dead_and_hands_its_slot_on() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let store = open(&server, &database, clock).await;
    let rotten = new(&store, making().delivery("d1").group("g")).await;
    let parked = new(&store, making().delivery("d2").group("g")).await;
    let db = server.client(&database).await;
    db.batch_execute(&format!("update events set cause = 'odd' where id = '{}'", rotten.id)).await.unwrap();
    let [due, _] = crate::due(&store, 10).await.unwrap();
    assert!(due.events.is_empty(), "{due:?}");
    let [due, _] = crate::due(&store, 10).await.unwrap();
    assert_eq!(due.events.iter().map(|event| event.id).collect::<Vec<_>>(), [parked.id]);
    let row = db.query_one(&format!("select state, cause from events where id = '{}'", rotten.id), &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("dead", "damaged"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_with_a_zero_byte_can_be_written() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&server, &database, StoreClock::manual(START)).await;
    let made = new(&store, making().delivery("d1")).await;
    let running = step(
        &store,
        &made,
        EventStep::Start { lasts: Duration::from_mins(1), by: NodeId("n".into()), action: ActionKind::Run },
    )
    .await;
    let outcome = Outcome::Rejected { why: "a\0b".into(), receipt: None };
    let settle = EventStep::Settle { outcome, blocks: SucceededBlocks(0), jitter: Jitter(0) };
    let mut change = running.transition(settle, &Route::default(), store.now()).unwrap();
    change.attempt = Some(AttemptRecord {
        life: 1,
        attempt: 1,
        started_at: START,
        ended_at: START,
        outcome: "rejected".into(),
        why: "a\0b".into(),
        output: vec![0, 1, 0],
    });
    store.advance(vec![change]).await.unwrap();
    let told = store.details(made.id).await.unwrap().unwrap();
    assert_eq!((&*told.attempts[0].why, &told.attempts[0].output[..]), ("a\u{fffd}b", &[0, 1, 0][..]));
    store
        .note_duplicates(vec![DuplicateNote {
            event: made.id,
            sighting: DuplicateSighting { at: START, delivery_id: Some("\0".into()), same: MatchedBy::Body },
        }])
        .await
        .unwrap();
    assert_eq!(store.find_by_name("\0".into(), 5).await.unwrap(), []);
}
