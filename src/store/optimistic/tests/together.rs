//! Claims and transitions in one write, and the batcher over a store that can do so.

use crate::decide::transition::Transition;
use crate::store::StoreError;
use crate::store::batch::Batcher;
use crate::store::optimistic::tests::*;

fn shared() -> Arc<MemoryBackend> {
    Arc::new(MemoryBackend::new(StoreClock::manual(START), 0))
}

async fn new_event(store: &MemoryBackend, delivery: &str) -> Event {
    match store.claim(vec![made(store, delivery)]).await.expect("it claims").remove(0) {
        ClaimResult::New { event, .. } => *event,
        other => panic!("not new: {other:?}"),
    }
}

fn made(store: &MemoryBackend, delivery: &str) -> Arc<NewEvent> {
    making().delivery(delivery).made(store.now()).into()
}

fn cancel(event: &Event) -> Transition {
    event.transition(EventStep::Cancel, &Route::default(), START).expect("it waits")
}

async fn has_ended(store: &MemoryBackend, id: EventId) -> bool {
    store.get(id).await.expect("it reads").expect("it is there").state.ended().is_some()
}

#[tokio::test]
async fn claims_and_transitions_are_one_write() {
    let store = shared();
    let first = new_event(&store, "first").await;
    let before = store.writes.load(Ordering::Relaxed);
    let (claims, advances) = store
        .claim_and_advance(vec![made(&store, "second"), made(&store, "first")], Arc::new(vec![cancel(&first)]))
        .await
        .expect("it writes");
    assert!(matches!(claims[0], ClaimResult::New { .. }));
    // The repeat finds the event as the transition of the same write leaves it.
    let ClaimResult::Duplicate { event, .. } = &claims[1] else { panic!("{claims:?}") };
    assert!(event.id == first.id && event.state.ended().is_some(), "{event:?}");
    assert!(matches!(advances[..], [Some(AdvanceResult::Written { .. })]));
    assert_eq!(store.writes.load(Ordering::Relaxed) - before, 1);
}

#[tokio::test]
async fn a_transition_that_meets_a_conflicting_write_holds_up_no_claim() {
    let store = Arc::new(MemoryBackend::new(StoreClock::manual(START), 3));
    let first = new_event(&store, "first").await;
    let both = |delivery| store.claim_and_advance(vec![made(&store, delivery)], Arc::new(vec![cancel(&first)]));
    let (one, other) = tokio::join!(both("one"), both("other"));
    let (one, other) = (one.expect("it writes"), other.expect("it writes"));
    assert!(matches!((&one.0[..], &other.0[..]), ([ClaimResult::New { .. }], [ClaimResult::New { .. }])));
    assert_eq!([&one.1, &other.1].into_iter().filter(|advances| advances[0].is_none()).count(), 1);
}

/// Claims one event and cancels another through the batcher, in one batch.
async fn through_the_batcher(
    store: &Arc<MemoryBackend>,
    first: &Event,
) -> (Result<ClaimResult, StoreError>, Result<AdvanceResult, StoreError>, bool) {
    let batch = Batcher::start(store.clone(), Arc::default());
    let (tell, told) = std::sync::mpsc::channel();
    let claim =
        batch.claim(made(store, "second"), Box::new(move |event| tell.send(event.clone()).expect("it is heard")));
    let (claim, advance) = tokio::join!(claim, batch.advance(cancel(first)));
    (claim, advance, told.try_recv().is_ok())
}

#[tokio::test]
async fn the_batcher_writes_claims_and_transitions_that_wait_in_one_write() {
    let store = shared();
    let first = new_event(&store, "first").await;
    let before = store.writes.load(Ordering::Relaxed);
    let (claim, advance, told) = through_the_batcher(&store, &first).await;
    assert!(matches!(claim, Ok(ClaimResult::New { .. })), "{claim:?}");
    assert!(matches!(advance, Ok(AdvanceResult::Written { .. })), "{advance:?}");
    assert!(told && has_ended(&store, first.id).await);
    assert_eq!(store.writes.load(Ordering::Relaxed) - before, 1);
}

#[tokio::test]
async fn what_is_refused_together_is_written_apart() {
    let store = shared();
    let first = new_event(&store, "first").await;
    store.fails_after.store(0, Ordering::Relaxed);
    let (claim, advance, told) = through_the_batcher(&store, &first).await;
    assert!(matches!(claim, Ok(ClaimResult::New { .. })) && told, "{claim:?}");
    assert!(matches!(advance, Ok(AdvanceResult::Written { .. })), "{advance:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_response_the_claim_is_made_again_and_the_transition_is_unsure() {
    let store = shared();
    let first = new_event(&store, "first").await;
    store.loses_after.store(0, Ordering::Relaxed);
    let (claim, advance, told) = through_the_batcher(&store, &first).await;
    assert!(matches!(claim, Ok(ClaimResult::New { .. })) && told, "{claim:?}");
    assert!(matches!(advance, Err(StoreError::Unsure(_))), "{advance:?}");
    assert!(has_ended(&store, first.id).await);
}

#[tokio::test]
async fn what_is_undecided_together_is_decided_apart() {
    let store = Arc::new(MemoryBackend::new(StoreClock::manual(START), 3));
    let first = new_event(&store, "first").await;
    let (ours, theirs) = tokio::join!(through_the_batcher(&store, &first), store.advance(vec![cancel(&first)]));
    let (claim, advance, told) = ours;
    assert!(matches!(claim, Ok(ClaimResult::New { .. })) && told, "{claim:?}");
    let written = [advance, theirs.map(|mut theirs| theirs.remove(0))];
    let written = written.iter().filter(|advance| matches!(advance, Ok(AdvanceResult::Written { .. }))).count();
    assert_eq!(written, 1);
}
