//! A group's queue when an event leaves it between the two reads of the write that hands the slot on.

use crate::decide::action_kind::ActionKind;
use crate::decide::event::DeathCause;
use crate::store::Administer;
use crate::store::RemovalResult;
use crate::store::optimistic::tests::*;

/// How an event leaves the queue.
#[derive(Clone, Copy, PartialEq, Debug)]
enum QueueExit {
    Cancelled,
    Forgotten,
}

async fn claimed(store: &MemoryBackend) -> Event {
    let new = making().group("g").made(store.now());
    match store.claim(vec![new.into()]).await.expect("it claims").remove(0) {
        ClaimResult::New { event, .. } => *event,
        other => panic!("not new: {other:?}"),
    }
}

async fn write(store: &MemoryBackend, event: &Event, step: EventStep) -> Option<Event> {
    let change = event.transition(step, &Route::default(), store.now()).expect("it is possible");
    match store.advance(vec![change]).await.expect("it writes").remove(0) {
        AdvanceResult::Written { event, .. } => Some(*event),
        AdvanceResult::Lost => None,
    }
}

async fn pass(moments: usize) {
    for _ in 0..moments {
        tokio::task::yield_now().await;
    }
}

/// Ends the first of three events while the second leaves `moments` scheduler turns after the start; returns whether it
/// left while it was parked.
async fn ends_while_one_leaves(left: QueueExit, moments: usize) -> bool {
    let store = MemoryBackend::new(StoreClock::manual(START), 10);
    let (first, second, third) = (claimed(&store).await, claimed(&store).await, claimed(&store).await);
    let start = EventStep::Start { lasts: Duration::from_secs(30), by: NodeId("n".into()), action: ActionKind::Run };
    let first = write(&store, &first, start).await.expect("it starts");
    let settle = EventStep::Settle { outcome: Outcome::Delivered(None), blocks: SucceededBlocks(0), jitter: Jitter(0) };
    let ends = async {
        pass(10).await;
        write(&store, &first, settle).await
    };
    let leaves = async {
        pass(moments).await;
        store.dawdles.store(0, Ordering::Relaxed); // it finishes while the other still waits for a read
        let gone = write(&store, &second, EventStep::Cancel).await.is_some();
        if gone && left == QueueExit::Forgotten {
            assert_eq!(store.remove(second.id).await.expect("it writes"), RemovalResult::Removed);
        }
        gone
    };
    let (ended, gone) = tokio::join!(ends, leaves);
    assert!(ended.is_some(), "{left:?} after {moments}: the first must end: nothing else moves it");
    if gone {
        let now = store.get(second.id).await.expect("it reads").map(|event| event.state);
        let is_so = match left {
            QueueExit::Cancelled => matches!(now, Some(EventState::Dead { cause: DeathCause::Cancelled, .. })),
            QueueExit::Forgotten => now.is_none(),
        };
        assert!(is_so, "{left:?} after {moments}: the second is {now:?}");
        let third = store.get(third.id).await.expect("it reads").map(|event| event.state);
        assert!(
            matches!(third, Some(EventState::Waiting { due: Some(_) })),
            "{left:?} after {moments}: the third is {third:?}"
        );
    }
    gone
}

#[tokio::test]
async fn an_event_that_leaves_the_queue_at_any_moment_does_not_get_the_slot_and_the_next_does() {
    for left in [QueueExit::Forgotten, QueueExit::Cancelled] {
        let mut gone = 0;
        for moments in 0..40 {
            gone += u32::from(ends_while_one_leaves(left, moments).await);
        }
        assert!((10..40).contains(&gone), "{gone} of 40 left in time");
    }
}
