//! Dispatchers on one store: pauses, renewals, and a store that does not respond at the worst moment.

use crate::flaky_store::{Desk, Does, Flaky, Mood, Stub, route};
use crate::support::until;
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::event::{DeathCause, EventState};
use hookonce::decide::limits;
use hookonce::decide::source::InDoubtPolicy;
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::{Store, StoreBackend, StoreError};
use std::sync::atomic::Ordering;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn desk(does: Does, lease: u64, in_doubt: InDoubtPolicy) -> (Desk, std::sync::Arc<Stub>) {
    let (store, stub) = (Flaky::new(), Stub::new(does));
    let desk = Desk::new(&store, route(ms(lease), in_doubt, 4), stub.clone());
    desk.dispatcher.run();
    (desk, stub)
}

#[tokio::test]
async fn renewals_keep_a_long_action_alone() {
    let (one, stub) = desk(Does::Takes(ms(4000)), 3000, InDoubtPolicy::Retry);
    let two = Desk::new(&one.store, route(ms(3000), InDoubtPolicy::Retry, 4), stub.clone());
    two.dispatcher.run();
    let id = one.new_event("long").await;
    let event = one.ended(id).await;
    assert!(matches!(event.state, EventState::Done { .. }), "{event:?}");
    assert_eq!((stub.begun(), event.attempt, event.doubts), (1, 1, 0));
}

async fn a_result_outlasts_an_outage(in_doubt: InDoubtPolicy, away: Duration) {
    let (desk, stub) = desk(Does::Takes(ms(20)), 4000, in_doubt);
    let id = desk.new_event("result").await;
    until("it acts", || stub.begun() == 1).await;
    desk.store.advances.all(Mood::Down);
    tokio::time::sleep(away).await;
    desk.store.advances.all(Mood::Fine);
    let event = desk.ended(id).await;
    assert!(matches!(event.state, EventState::Done { .. }), "away for {away:?}: {event:?}");
    assert_eq!((stub.begun(), event.attempt), (1, 1), "away for {away:?}: it acted twice");
}

#[tokio::test]
async fn a_result_is_written_when_the_store_is_back_however_long_that_takes() {
    // Longer than the lease: the reaper must leave this event to its attempt.
    let outages = (0..80).map(|n| {
        let in_doubt = if n % 2 == 0 { InDoubtPolicy::Retry } else { InDoubtPolicy::Hold };
        tokio::spawn(a_result_outlasts_an_outage(in_doubt, ms(4100 + 25 * n)))
    });
    for outage in futures_util::future::join_all(outages).await {
        outage.unwrap();
    }
}

#[tokio::test]
async fn an_attempt_that_cannot_renew_its_lease_ends_unknown() {
    for (in_doubt, begun) in [(InDoubtPolicy::Retry, 2), (InDoubtPolicy::Hold, 1)] {
        let (desk, stub) = desk(Does::Takes(ms(60_000)), 1500, in_doubt);
        let id = desk.new_event("unknown").await;
        until("it acts", || stub.begun() == 1).await;
        desk.store.advances.all(Mood::Down);
        tokio::time::sleep(ms(2000)).await; // longer than the lease
        stub.does(Does::Takes(ms(1)));
        desk.store.advances.all(Mood::Fine);
        let event = desk.ended(id).await;
        match in_doubt {
            InDoubtPolicy::Retry | InDoubtPolicy::Never => {
                assert!(matches!(event.state, EventState::Done { .. }), "{event:?}");
            }
            InDoubtPolicy::Hold => {
                assert!(matches!(event.state, EventState::Dead { cause: DeathCause::InDoubt, .. }), "{event:?}");
            }
        }
        assert_eq!((stub.begun(), event.doubts), (begun, 1));
        assert_eq!(stub.most_at_once.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_store_that_is_away_for_less_than_the_lease_is_not_noticed() {
    let (desk, stub) = desk(Does::Takes(ms(6000)), 3000, InDoubtPolicy::Hold);
    let id = desk.new_event("short").await;
    until("it acts", || stub.begun() == 1).await;
    for _ in 0..2 {
        desk.store.advances.all(Mood::Down);
        let asked = desk.store.advances.asked.load(Ordering::SeqCst);
        until("a renewal to fail", || desk.store.advances.asked.load(Ordering::SeqCst) > asked).await;
        tokio::time::sleep(ms(300)).await; // the next one fails, too
        let revision = desk.stands(id).await.revision;
        desk.store.advances.all(Mood::Fine);
        let start = std::time::Instant::now();
        while desk.stands(id).await.revision == revision {
            assert!(start.elapsed() < crate::support::PATIENCE, "it is not renewed");
            tokio::time::sleep(ms(5)).await;
        }
    }
    let event = desk.ended(id).await;
    assert!(matches!(event.state, EventState::Done { .. }), "{event:?}");
    assert_eq!((stub.begun(), event.doubts), (1, 0));
}

#[tokio::test]
async fn an_unsure_response_to_any_write_of_an_attempt_causes_no_loss_no_doubt_and_no_double_run() {
    let trial = async |in_doubt, mood, nth| {
        let (desk, stub) = desk(Does::Takes(ms(2500)), 3000, in_doubt);
        let mut moods = vec![Mood::Fine; nth];
        moods.push(mood);
        desk.store.advances.once(&moods);
        let id = desk.new_event("unsure").await;
        let event = desk.ended(id).await;
        let what = format!("{in_doubt:?} {mood:?} at write {nth}: {event:?}");
        assert!(matches!(event.state, EventState::Done { .. }), "{what}");
        assert_eq!((stub.begun(), event.doubts), (1, 0), "{what}");
    };
    let mut trials = Vec::new();
    for in_doubt in [InDoubtPolicy::Retry, InDoubtPolicy::Hold] {
        for mood in [Mood::Written, Mood::NotWritten] {
            // The writes: start (under hold), two renewals, settle.
            trials.extend((0..4).map(|nth| trial(in_doubt, mood, nth)));
        }
    }
    let trials = futures_util::future::join_all(trials).await.len();
    println!("N = {trials} unsure responses to a start, a renewal or a result: doubled 0, doubted 0, lost 0");
}

#[tokio::test]
async fn a_clock_set_an_hour_ahead_does_not_end_an_attempt_of_this_node() {
    let clock = StoreClock::manual(Timestamp(1_700_000_000_000_000));
    let (store, stub) = (Flaky::by(clock.clone()), Stub::new(Does::Takes(ms(2800))));
    let desk = Desk::new(&store, route(ms(3000), InDoubtPolicy::Hold, 4), stub.clone());
    desk.dispatcher.run();
    let id = desk.new_event("clock").await;
    until("it acts", || stub.begun() == 1).await;
    // The store's clock follows the wall clock, and by it the lease is over; by the node's own clock it is not.
    clock.advance(Duration::from_hours(1));
    let event = desk.ended(id).await;
    assert!(matches!(event.state, EventState::Done { .. }), "{event:?}");
    assert_eq!((stub.begun(), event.doubts), (1, 0));
}

#[tokio::test]
async fn an_unsure_response_to_a_claim_causes_no_loss_and_no_double_run() {
    for in_doubt in [InDoubtPolicy::Retry, InDoubtPolicy::Hold] {
        for moods in [
            &[Mood::Written][..],
            &[Mood::NotWritten],
            &[Mood::Written, Mood::Written],
            &[Mood::NotWritten, Mood::NotWritten],
            &[Mood::Again, Mood::Again, Mood::Written],
            &[Mood::Written, Mood::NotWritten, Mood::NotWritten],
            &[Mood::NotWritten, Mood::NotWritten, Mood::NotWritten],
        ] {
            let (desk, stub) = desk(Does::Takes(ms(1)), 1_500, in_doubt);
            desk.store.claims.once(moods);
            let one = making().delivery("claim");
            let (id, what) = (one.id(), format!("{in_doubt:?} {moods:?}"));
            match desk.claim(one).await {
                Ok(ClaimResult::New { event, .. }) => assert_eq!(event.id, id, "{what}"),
                Err(StoreError::Unsure(_)) => assert_eq!(moods.len(), 3, "{what}"),
                other => panic!("{what}: {other:?}"),
            }
            if moods != [Mood::NotWritten; 3] {
                let event = desk.ended(id).await;
                assert!(matches!(event.state, EventState::Done { .. }), "{what}: {event:?}");
                assert_eq!(stub.begun(), 1, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn an_action_that_panics_releases_its_permit_and_counts_as_a_doubt() {
    for (in_doubt, begun) in [(InDoubtPolicy::Retry, 2), (InDoubtPolicy::Hold, 1)] {
        let (store, stub) = (Flaky::new(), Stub::new(Does::Panics));
        let desk = Desk::new(&store, route(ms(2000), in_doubt, 1), stub.clone());
        desk.dispatcher.run();
        let id = desk.new_event("panics").await;
        until("it panicked", || stub.begun() == 1).await;
        stub.does(Does::Takes(ms(1)));
        let next = desk.new_event("next").await;
        desk.ended(next).await;
        let event = desk.ended(id).await;
        match in_doubt {
            InDoubtPolicy::Retry | InDoubtPolicy::Never => {
                assert!(matches!(event.state, EventState::Done { .. }), "{event:?}");
            }
            InDoubtPolicy::Hold => {
                assert!(matches!(event.state, EventState::Dead { cause: DeathCause::InDoubt, .. }), "{event:?}");
            }
        }
        assert_eq!((stub.begun(), event.doubts), (begun + 1, 1));
    }
}

#[tokio::test]
async fn an_action_that_does_not_end_with_its_lease_does_not_keep_its_event() {
    let (store, stub) = (Flaky::new(), Stub::new(Does::Ignores(ms(3_600_000))));
    let desk = Desk::new(&store, route(ms(300), InDoubtPolicy::Hold, 1), stub.clone());
    desk.dispatcher.run();
    let id = desk.new_event("wedged").await;
    until("it acts", || stub.begun() == 1).await;
    desk.dispatcher.end_all();
    let event = desk.ended(id).await;
    assert!(matches!(event.state, EventState::Dead { cause: DeathCause::InDoubt, .. }), "{event:?}");
    stub.does(Does::Takes(ms(1)));
    let next = desk.new_event("next").await;
    desk.ended(next).await;
}

#[tokio::test]
async fn a_stopping_node_hands_back_what_it_has_not_begun_even_if_the_store_is_down_for_a_moment() {
    let (store, stub) = (Flaky::new(), Stub::new(Does::Takes(ms(1))));
    let desk = Desk::new(&store, route(ms(600), InDoubtPolicy::Hold, 1), stub.clone());
    desk.dispatcher.run();
    // The body cannot be read until the node stops: the attempt has not begun.
    store.reads.all(Mood::Down);
    let id = desk.new_event("back").await;
    while !matches!(desk.stands(id).await.state, EventState::Running { .. }) {
        tokio::time::sleep(ms(5)).await;
    }
    store.advances.all(Mood::Down);
    let ((), ()) = tokio::join!(desk.dispatcher.stop(ms(5_000)), async {
        tokio::time::sleep(ms(100)).await;
        store.reads.all(Mood::Fine);
        tokio::time::sleep(ms(500)).await;
        store.advances.all(Mood::Fine);
    });
    let event = desk.stands(id).await;
    assert!(matches!(event.state, EventState::Waiting { .. }), "{event:?}");
    assert_eq!((event.attempt, event.doubts, stub.begun()), (0, 0, 0));
}

#[tokio::test]
async fn an_event_cancelled_while_its_body_is_fetched_does_not_run() {
    let (store, stub) = (Flaky::new(), Stub::new(Does::Takes(ms(1))));
    let desk = Desk::new(&store, route(ms(5_000), InDoubtPolicy::Hold, 1), stub.clone());
    desk.dispatcher.run();
    store.reads.all(Mood::Hangs);
    let id = desk.new_event("called off").await;
    while !matches!(desk.stands(id).await.state, EventState::Running { .. })
        || store.reads.asked.load(Ordering::SeqCst) == 0
    {
        tokio::time::sleep(ms(5)).await;
    }
    let running = desk.stands(id).await;
    let (cancelled, ()) = tokio::join!(desk.dispatcher.cancel(&running), async {
        tokio::time::sleep(ms(50)).await;
        store.reads.all(Mood::Fine);
    });
    cancelled.unwrap();
    let event = desk.ended(id).await;
    assert!(matches!(event.state, EventState::Dead { cause: DeathCause::Cancelled, .. }), "{event:?}");
    assert_eq!(stub.begun(), 0);
}

#[tokio::test]
async fn a_store_that_accepts_no_writes_is_not_asked_continuously() {
    let (desk, stub) = desk(Does::Takes(ms(1)), 300, InDoubtPolicy::Hold);
    desk.store.advances.all(Mood::Down);
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(desk.new_event(&format!("d{n}")).await);
    }
    tokio::time::sleep(ms(1000)).await;
    let asked = desk.store.advances.asked.load(Ordering::SeqCst);
    assert!(asked < 60, "asked {asked} times in a second");
    desk.store.advances.all(Mood::Fine);
    for id in ids {
        desk.ended(id).await;
    }
    assert_eq!(stub.begun(), 20);
}

#[tokio::test]
async fn claims_beyond_the_limit_are_rejected_and_the_others_run_without_their_clients() {
    let (store, stub) = (Flaky::new(), Stub::new(Does::Takes(ms(1))));
    let desk = std::sync::Arc::new(Desk::new(&store, route(ms(5_000), InDoubtPolicy::Hold, 64), stub.clone()));
    store.claims.all(Mood::Hangs);
    let mut clients = tokio::task::JoinSet::new();
    let crowd = limits::CLAIMS_WAITING_MAX + limits::BATCH_CLAIMS_MAX + 50;
    for n in 0..crowd {
        let desk = desk.clone();
        clients.spawn(async move { desk.claim(making().delivery(&format!("crowd {n}"))).await });
    }
    let mut turned_away = 0;
    while turned_away < 40 {
        match clients.join_next().await.unwrap().unwrap() {
            Err(StoreError::Down(_)) => turned_away += 1,
            other => panic!("{other:?}"),
        }
    }
    // All clients disconnect; then the store responds.
    clients.shutdown().await;
    desk.dispatcher.run();
    store.claims.all(Mood::Fine);
    until("all that waited are done", || stub.begun() >= limits::CLAIMS_WAITING_MAX).await;
    desk.dispatcher.stop(ms(10_000)).await;
    println!("N = {crowd} claims at once: {} done without their clients, the others rejected", stub.begun());
}

#[tokio::test]
async fn claims_of_one_key_in_one_batch_have_one_winner() {
    let (desk, stub) = desk(Does::Takes(ms(1)), 5_000, InDoubtPolicy::Retry);
    desk.store.claims.once(&[Mood::Hangs, Mood::Again]);
    desk.store.claims.all(Mood::Hangs);
    let claims = (0..200).map(|_| desk.claim(making().delivery("one")));
    let (answers, ()) = tokio::join!(futures_util::future::join_all(claims), async {
        tokio::time::sleep(ms(50)).await;
        desk.store.claims.all(Mood::Fine);
    });
    let new = answers.iter().filter(|answer| matches!(answer, Ok(ClaimResult::New { .. }))).count();
    let same = answers.iter().filter(|answer| matches!(answer, Ok(ClaimResult::Duplicate { .. }))).count();
    assert_eq!((new, same), (1, 199));
    until("it acts", || stub.begun() == 1).await;
}

#[tokio::test]
async fn a_claim_whose_response_was_lost_runs_without_a_doubt_when_the_store_was_down_meanwhile() {
    let (desk, stub) = desk(Does::Takes(ms(1)), 20_000, InDoubtPolicy::Retry);
    desk.store.claims.all(Mood::Down);
    desk.store.claims.once(&[Mood::Written]);
    desk.store.reads.all(Mood::Down);
    let one = making().delivery("lost").carrying("lost".to_owned());
    let id = one.id();
    let claim = desk.claim(one).await;
    assert!(matches!(claim, Err(StoreError::Down(_))), "{claim:?}");
    assert_eq!(stub.begun(), 0);
    desk.store.claims.all(Mood::Fine);
    desk.store.reads.all(Mood::Fine);
    let event = desk.ended(id).await;
    assert!(matches!(event.state, EventState::Done { .. }), "{event:?}");
    assert_eq!((stub.begun(), event.attempt, event.doubts), (1, 1, 0), "{event:?}");
}

#[tokio::test]
async fn a_claim_that_was_not_written_is_not_claimed_by_looking_for_it() {
    let (desk, stub) = desk(Does::Takes(ms(1)), 20_000, InDoubtPolicy::Retry);
    desk.store.claims.all(Mood::NotWritten);
    let one = making().delivery("not written").carrying("lost".to_owned());
    let id = one.id();
    assert!(matches!(desk.claim(one).await, Err(StoreError::Unsure(_))));
    let before = desk.store.reads.asked.load(Ordering::SeqCst);
    until("it is looked up", || desk.store.reads.asked.load(Ordering::SeqCst) > before).await;
    assert_eq!((desk.store.memory.get(id).await.unwrap(), stub.begun()), (None, 0));
}

#[tokio::test]
async fn a_start_whose_response_was_lost_is_never_in_doubt_however_long_the_store_is_down() {
    let (desk, stub) = desk(Does::Takes(ms(1)), 300, InDoubtPolicy::Hold);
    desk.store.reads.all(Mood::Down);
    desk.store.advances.once(&[Mood::Written]);
    let id = desk.new_event("start").await;
    let start = std::time::Instant::now();
    while !matches!(desk.stands(id).await.state, EventState::Running { until, .. } if until < desk.store.now()) {
        assert!(start.elapsed() < crate::support::PATIENCE, "it is not started: {:?}", desk.stands(id).await);
        tokio::time::sleep(ms(5)).await;
    }
    // The lease is over, and the node still does not know that it has started the event. Its reaper looks every second.
    tokio::time::sleep(limits::LOOK_EVERY * 2).await;
    assert_eq!(desk.stands(id).await.state.word(), "running");
    desk.store.reads.all(Mood::Fine);
    let event = desk.ended(id).await;
    assert!(matches!(event.state, EventState::Done { .. }), "{event:?}");
    assert_eq!((stub.begun(), event.doubts), (1, 0), "{event:?}");
}

#[tokio::test]
async fn a_queue_whose_due_events_are_locked_by_another_node_pauses_between_queries() {
    let (desk, stub) = desk(Does::Takes(ms(1)), 20_000, InDoubtPolicy::Hold);
    desk.store.held_elsewhere.store(true, Ordering::SeqCst);
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(desk.new_event(&n.to_string()).await); // more than one query returns
    }
    let before = desk.store.looks.load(Ordering::SeqCst);
    tokio::time::sleep(ms(1000)).await;
    let looks = desk.store.looks.load(Ordering::SeqCst) - before;
    assert!((1..100).contains(&looks), "{looks} queries in a second");
    desk.store.held_elsewhere.store(false, Ordering::SeqCst);
    for id in ids {
        assert!(matches!(desk.ended(id).await.state, EventState::Done { .. }));
    }
    assert_eq!(stub.begun(), 8);
}
