//! A crashed process: its runtime ends in the middle, and nothing is settled.

use super::{Client, Service, behind};
use hookonce::decide::time::Timestamp;
use hookonce::store::clock::StoreClock;
use hookonce::store::memory::MemoryStore;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{EventQuery, Inspect};
use hookonce::{Once, days, seconds};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = seconds(30);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A process that dies while it runs the key `k`. Returns its attempt and idempotency key.
fn dies(store: &Arc<dyn Inspect>, live: &Runtime) -> (u32, String) {
    let (dead, service) = (runtime(), Service::slow());
    let client = dead.block_on(behind(&service, Once::new(store.clone()).lease(LEASE)));
    live.block_on(async {
        let asked = tokio::spawn(async move {
            client.http.post(format!("{}/act", client.url)).header("idempotency-key", "k").body("b").send().await
        });
        service.entered(1).await;
        dead.shutdown_background();
        assert!(asked.await.unwrap().is_err());
    });
    service.last_attempt()
}

fn check(store: &Arc<dyn Inspect>, clock: &StoreClock) {
    let live = runtime();
    let (_, first) = dies(store, &live);
    live.block_on(async {
        let service = Service::new();
        let once = Once::new(store.clone()).lease(LEASE).wait(Duration::from_millis(50));
        let client: Client = behind(&service, once).await;
        clock.advance(seconds(29));
        let early = client.post("k", "b").await;
        assert_eq!((early.status, &*early.problem(), service.calls()), (409, "running", 0));
        clock.advance(seconds(2));
        let client = behind(&service, Once::new(store.clone()).lease(LEASE).wait(super::PATIENCE)).await;
        let copies: Vec<_> = (0..20)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.post("k", "b").await })
            })
            .collect();
        for copy in copies {
            assert_eq!(copy.await.unwrap().body, "call 1 of nobody: b");
        }
        assert_eq!(service.calls(), 1, "the compare-and-swap decides which request takes it over");
        assert_eq!(service.last_attempt(), (2, first));
        let events = store.list(EventQuery { limit: 9, ..EventQuery::default() }).await.unwrap();
        assert_eq!((events.len(), events[0].attempt, events[0].doubts), (1, 2, 1));
    });
}

#[test]
fn after_a_crash_the_next_request_runs_once_the_lease_has_expired() {
    let clock = StoreClock::manual(Timestamp(1_750_000_000_000_000));
    check(&(Arc::new(MemoryStore::new(clock.clone())) as Arc<dyn Inspect>), &clock);
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open_by(&dir.path().join("once.db"), SqliteAccess::Node, Some(clock.clone())).unwrap();
    check(&(Arc::new(sqlite) as Arc<dyn Inspect>), &clock);
}

/// However often it crashes: in the layer the next request is the retry.
#[test]
fn after_many_crashes_the_next_request_still_runs() {
    let clock = StoreClock::manual(Timestamp(1_750_000_000_000_000));
    let store = Arc::new(MemoryStore::new(clock.clone())) as Arc<dyn Inspect>;
    let live = runtime();
    for _ in 0..5 {
        dies(&store, &live);
        clock.advance(LEASE + seconds(1));
    }
    live.block_on(async {
        let service = Service::new();
        let client = behind(&service, Once::new(store.clone())).await;
        assert_eq!(client.post("k", "b").await.status, 200);
    });
}

/// What a crash left behind does not stay for ever, even if it is never requested again.
#[test]
fn an_event_left_by_a_crash_is_swept_and_may_be_requested_until_then() {
    let clock = StoreClock::manual(Timestamp(1_750_000_000_000_000));
    let store = Arc::new(MemoryStore::new(clock.clone())) as Arc<dyn Inspect>;
    let live = runtime();
    let (_, first) = dies(&store, &live);
    clock.advance(LEASE + seconds(1));
    live.block_on(async {
        let once = Once::new(store.clone()).keep(days(1));
        once.forget().await.unwrap();
        let left = store.list(EventQuery { limit: 9, ..EventQuery::default() }).await.unwrap();
        assert_eq!(left[0].state.word(), "dead");
        let service = Service::new();
        let client = behind(&service, once.clone()).await;
        assert_eq!(client.post("k", "b").await.status, 200);
        assert_eq!(
            service.last_attempt(),
            (2, first),
            "services called by the dead process recognise the next attempt"
        );
        assert!(client.post("k", "b").await.replayed());
    });
    clock.advance(days(2));
    dies(&store, &live);
    clock.advance(LEASE + seconds(1));
    live.block_on(async {
        let once = Once::new(store.clone()).keep(days(1));
        once.forget().await.unwrap();
        clock.advance(days(2));
        assert_eq!(once.forget().await.unwrap().events, 1);
        assert!(store.list(EventQuery { limit: 9, ..EventQuery::default() }).await.unwrap().is_empty());
    });
}

/// SQLite belongs to one process: the next one knows at once that the previous one is gone.
#[test]
fn a_restart_on_sqlite_does_not_wait_for_the_lease() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("once.db");
    let live = runtime();
    let store = Arc::new(SqliteStore::open(&path, SqliteAccess::Node).unwrap()) as Arc<dyn Inspect>;
    dies(&store, &live);
    drop(store);
    let store = loop {
        // The runtime that was shut down may hold it for another moment.
        match SqliteStore::open(&path, SqliteAccess::Node) {
            Ok(store) => break Arc::new(store) as Arc<dyn Inspect>,
            Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
        }
    };
    live.block_on(async {
        let service = Service::new();
        let client = behind(&service, Once::new(store).wait(seconds(1))).await;
        assert_eq!(client.post("k", "b").await.status, 200);
    });
}
