//! The sweep of an SQLite store at a node's pace, beside claims that never pause.

use crate::random_history::folder;
use crate::sqlite::node;
use hookonce::decide::claim::{ClaimResult, NewEvent};
use hookonce::decide::source::{Keep, Retention};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::store::conformance::making;
use hookonce::store::{RetentionPolicies, Store, StoreBackend};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const BATCH: usize = 64;

fn batch(source: &str, from: usize, now: Timestamp) -> Vec<Arc<NewEvent>> {
    let one = |n: usize| making().source(source).delivery(&format!("{source}-{n:012}")).named(&format!("{source} {n}"));
    (from..from + BATCH).map(|n| one(n).recorded().made(now).into()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweep_removes_all_that_has_expired_although_claims_never_pause_and_claims_go_on() {
    let old = if std::env::var_os("HOOKONCE_FULL").is_some() { 200 * BATCH } else { 30 * BATCH };
    let dir = folder();
    let store = Arc::new(node(&dir.path().join("a.db")));
    for from in (0..old).step_by(BATCH) {
        store.claim(batch("old", from, store.now())).await.unwrap();
    }
    let enough = Arc::new(AtomicBool::new(false));
    let claims = tokio::spawn({
        let (store, enough) = (store.clone(), enough.clone());
        async move {
            let mut waits = Vec::new();
            while !enough.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let answers = store.claim(batch("new", waits.len() * BATCH, store.now())).await.unwrap();
                assert!(answers.iter().all(|claim| matches!(claim, ClaimResult::New { .. })));
                waits.push(asked.elapsed());
            }
            waits
        }
    });
    let gone = Retention { keys: Keep::For(Duration::ZERO), body: Duration::ZERO };
    let keeps = Arc::new(RetentionPolicies { sources: [("old".into(), gone)].into() });
    let (pace, began, mut swept) = (store.sweep_pace(), Instant::now(), 0);
    let mut many = pace.first();
    while swept < old as u64 {
        assert!(began.elapsed() < Duration::from_mins(1), "only {swept} of {old} events were removed");
        let asked = Instant::now();
        swept += store.forget(keeps.clone(), many).await.unwrap().events;
        many = pace.next(many);
        tokio::time::sleep(pace.pause_after(asked.elapsed())).await;
    }
    let took = began.elapsed();
    enough.store(true, Ordering::Relaxed);
    let mut waits = claims.await.unwrap();
    waits.sort();
    println!(
        "{old} swept in {took:.1?}; a batch of {BATCH} claims waited {:?}, at most {:?}",
        waits[waits.len() / 2],
        waits.last()
    );
    assert!(waits.len() > 1, "claims went on");
    let again = store.claim(batch("old", 0, store.now())).await.unwrap();
    assert!(again.iter().all(|claim| matches!(claim, ClaimResult::New { .. })), "what is removed can be claimed again");
    let again = store.claim(batch("new", 0, store.now())).await.unwrap();
    assert!(again.iter().all(|claim| matches!(claim, ClaimResult::Duplicate { .. })), "what has not expired stays");
}
