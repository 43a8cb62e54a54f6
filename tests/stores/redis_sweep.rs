//! The sweep beside claims at full speed: it must remove at least as many events as are claimed.

use crate::redis::open;
use crate::redis_server::Server;
use hookonce::decide::claim::{ClaimResult, NewEvent};
use hookonce::decide::limits;
use hookonce::decide::source::{Keep, Retention};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::store::conformance::making;
use hookonce::store::redis::RedisStore;
use hookonce::store::{EventQuery, Inspect, RetentionPolicies, Store, StoreBackend};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

const TASKS: usize = 4;
const BATCH: usize = 64;

/// Recorded events with two keys each and without a body, as in the store's benchmark.
fn batch(source: &str, from: usize, now: Timestamp) -> Vec<Arc<NewEvent>> {
    let none = Retention { body: Duration::ZERO, ..Retention::default() };
    let one = |n: usize| making().source(source).delivery(&format!("{source}-{n:012}")).named(&format!("{source} {n}"));
    (from..from + BATCH).map(|n| one(n).recorded().kept(none).made(now).into()).collect()
}

/// Claims until told to stop; returns how many.
async fn claims(
    store: Arc<RedisStore>,
    source: &'static str,
    next: Arc<AtomicUsize>,
    enough: Arc<AtomicBool>,
) -> usize {
    let mut claimed = 0;
    while !enough.load(Ordering::Relaxed) {
        let answers = store.claim(batch(source, next.fetch_add(BATCH, Ordering::Relaxed), store.now())).await.unwrap();
        claimed += answers.iter().filter(|claim| matches!(claim, ClaimResult::New { .. })).count();
    }
    claimed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweep_removes_as_many_events_as_can_be_claimed_meanwhile() {
    let full = std::env::var_os("HOOKONCE_FULL").is_some();
    let (old, seconds) = if full { (60_000, 10) } else { (8_000, 2) };
    let server = Server::start();
    let store = Arc::new(open(&server.url("a")).await.unwrap());
    for from in (0..old).step_by(BATCH) {
        store.claim(batch("old", from, store.now())).await.unwrap();
    }
    let gone = Retention { keys: Keep::For(Duration::ZERO), body: Duration::ZERO };
    let keeps = Arc::new(RetentionPolicies { sources: [("old".into(), gone)].into() });
    let (next, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> =
        (0..TASKS).map(|_| tokio::spawn(claims(store.clone(), "new", next.clone(), enough.clone()))).collect();
    let (pace, mut many) = (store.sweep_pace(), limits::FORGET_BATCH);
    let (begun, mut swept, mut left) = (Instant::now(), 0, true);
    while left && begun.elapsed() < Duration::from_secs(seconds) {
        let freed = store.forget(keeps.clone(), many).await.unwrap();
        (swept, left, many) = (swept + freed.events, freed.fills(many), pace.next(many));
        tokio::time::sleep(pace.pause_after(Duration::ZERO)).await;
    }
    let took = begun.elapsed().as_secs_f64();
    enough.store(true, Ordering::Relaxed);
    let mut claimed = 0;
    for task in tasks {
        claimed += task.await.unwrap();
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let [claimed_rate, swept_rate] = [claimed as f64 / took, swept as f64 / took];
    println!("in one run of {took:.1} s: {claimed_rate:.0} claimed/s, {swept_rate:.0} swept/s");
    let kept = store.page(EventQuery { source: Some("new".into()), limit: 1, ..EventQuery::default() }).await.unwrap();
    assert_eq!(kept.events.len(), 1, "what has not expired stays");
    if full {
        assert!(swept_rate >= claimed_rate, "{claimed_rate:.0} claimed/s, but only {swept_rate:.0} swept/s");
    }
}
