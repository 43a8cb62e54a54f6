//! `once.run`: code with no HTTP at all.

use super::flaky::{Flaky, Mood};
use super::{Kind, PATIENCE, STORES};
use hookonce::{Once, seconds};
use hookonce::{OnceError, RunOutcome};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_runs_once_and_its_value_is_returned_again() {
    for kind in STORES {
        let place = kind.fresh().await;
        let once = Once::new(place.store.clone()).scope("work");
        let calls = AtomicUsize::new(0);
        let work = async || {
            calls.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(vec![("a".to_owned(), 1.5)])
        };
        let value = vec![("a".to_owned(), 1.5)];
        assert_eq!(once.run("k", work()).await.unwrap(), RunOutcome::Now(value.clone()), "{kind:?}");
        assert_eq!(once.run("k", work()).await.unwrap(), RunOutcome::Before(value.clone()), "{kind:?}");
        assert_eq!(once.clone().scope("other").run("k", work()).await.unwrap(), RunOutcome::Now(value), "{kind:?}");
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        assert!(matches!(once.run::<u8, Infallible, _>("k", async { Ok(1) }).await, Err(OnceError::NotKept)));
        let bytes = async || once.run_bytes::<Infallible, _>("b", async { Ok(vec![0, 255].into()) }).await.unwrap();
        assert!(!bytes().await.is_before());
        assert_eq!(bytes().await, RunOutcome::Before(vec![0, 255].into()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_not_kept_and_work_with_a_too_large_value_does_not_run_again() {
    for kind in STORES {
        let place = kind.fresh().await;
        let once = Once::new(place.store.clone());
        for _ in 0..3 {
            let failed = once.run::<(), _, _>("k", async { Err(std::io::Error::other("no")) }).await;
            assert!(matches!(&failed, Err(OnceError::Work(error)) if error.to_string() == "no"), "{failed:?}");
        }
        assert_eq!(once.run("k", async { Ok::<_, Infallible>(7) }).await.unwrap(), RunOutcome::Now(7));
        let large = async || once.run("l", async { Ok::<_, Infallible>("x".repeat(2 << 20)) }).await;
        assert_eq!(large().await.unwrap().into_inner().len(), 2 << 20);
        assert!(matches!(large().await, Err(OnceError::NotKept)), "{kind:?}");
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_serialized_is_returned_once_and_its_work_does_not_run_again() {
    let place = Kind::Memory.fresh().await;
    let once = Once::new(place.store.clone());
    let calls = AtomicUsize::new(0);
    // JSON has only text keys.
    let value = HashMap::from([((1, 2), 3)]);
    let work = async || {
        calls.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(value.clone())
    };
    assert_eq!(once.run("k", work()).await.unwrap(), RunOutcome::Now(value.clone()));
    assert!(matches!(once.run("k", work()).await, Err(OnceError::NotKept)));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_concurrent_calls_one_runs_and_if_it_fails_the_next_does() {
    for kind in STORES {
        let place = kind.fresh().await;
        let once = Once::new(place.store.clone()).wait(PATIENCE);
        let calls = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..100)
            .map(|_| {
                let (once, calls) = (once.clone(), calls.clone());
                tokio::spawn(async move {
                    let work = async {
                        let call = calls.fetch_add(1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        if call == 0 { Err("the first one fails") } else { Ok(call) }
                    };
                    once.run("k", work).await
                })
            })
            .collect();
        let mut failed = 0;
        for one in all {
            match one.await.unwrap() {
                Ok(ran) => assert_eq!(ran.into_inner(), 1),
                Err(OnceError::Work(_)) => failed += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!((calls.load(Ordering::SeqCst), failed), (2, 1), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_future_ends_the_work_and_the_next_call_runs_at_once() {
    for kind in STORES {
        let place = kind.fresh().await;
        let once = Once::new(place.store.clone()).wait(PATIENCE);
        let begun = Arc::new(Notify::new());
        let stops = tokio::spawn({
            let (once, begun) = (once.clone(), begun.clone());
            async move {
                let work = async {
                    begun.notify_one();
                    std::future::pending::<Result<u8, Infallible>>().await
                };
                once.run("k", work).await.is_ok()
            }
        });
        begun.notified().await;
        stops.abort();
        assert!(stops.await.is_err());
        let next = tokio::time::timeout(seconds(10), once.run("k", async { Ok::<_, Infallible>(2) }));
        assert_eq!(next.await.unwrap().unwrap().into_inner(), 2, "{kind:?}");
    }
}

#[tokio::test]
async fn nothing_runs_while_the_store_is_down() {
    let store = Flaky::new();
    store.claims.all(Mood::Down);
    let once = Once::new(store).wait(Duration::from_millis(50));
    let ran = once.run::<(), Infallible, _>("k", async { panic!("begun without a claim") }).await;
    assert!(matches!(&ran, Err(OnceError::Store(_))), "{ran:?}");
    assert!(ran.unwrap_err().to_string().contains("told to be"));
}

#[tokio::test]
async fn two_nodes_share_a_key_through_their_store() {
    let place = Kind::Memory.fresh().await;
    let (one, two) = (Once::new(place.store.clone()), Once::new(place.store.clone()));
    assert_eq!(one.run("k", async { Ok::<_, Infallible>(1) }).await.unwrap(), RunOutcome::Now(1));
    assert_eq!(two.run("k", async { Ok::<_, Infallible>(2) }).await.unwrap(), RunOutcome::Before(1));
}
