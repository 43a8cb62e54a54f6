//! Republishing: what a repeat does to an event that was already published.

use crate::{LEASE, NOW, event, failed, rejected, route, settle, start, tried, unknown};
use hookonce::decide::event::{
    DeathCause, DoneReason, Event, EventState, EventStep, InvalidStepError, Outcome, QueueState,
};
use hookonce::decide::id::EventId;
use hookonce::decide::limits;
use hookonce::decide::source::{InDoubtPolicy, Route, WhenBusy};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::transition::QueuePositionUpdate;

const HOUR: Duration = Duration::from_hours(1);
const LATER: Timestamp = Timestamp(NOW.0 + 3_600_000_000);

fn again(event: &Event, route: &Route) -> Event {
    event.after(EventStep::PublishAgain, route, LATER).expect("it was published")
}

/// One more attempt, an hour later.
fn tried_later(event: &Event, outcome: Outcome, route: &Route) -> Event {
    let running = event.after(start(), route, LATER).expect("it is due");
    running.after(settle(outcome), route, LATER).expect("it runs")
}

#[test]
fn an_event_published_again_keeps_its_life_its_turn_and_its_first_end() {
    let route = route(5, InDoubtPolicy::Retry);
    let done = tried(event(), [Outcome::Delivered(None)], &route);
    let waiting = again(&done, &route);
    assert_eq!(waiting.state, EventState::Waiting { due: Some(LATER) });
    assert_eq!((waiting.life, waiting.turn, waiting.change), (done.life, done.turn, done.change));
    assert!(!waiting.owed_first_attempt(), "it is checked whether it was superseded");
    let second = tried_later(&waiting, Outcome::Delivered(None), &route);
    assert_eq!(second.state, EventState::Done { how: DoneReason::Acted, at: NOW }, "its end is its first end");
    assert_eq!((second.state.ended(), second.idle_since()), (Some(NOW), Some(LATER)));
}

#[test]
fn each_message_has_an_id_of_its_own_in_every_life() {
    let route = route(5, InDoubtPolicy::Retry);
    let id = event().id.to_string();
    let mut stands = tried(event(), [Outcome::Delivered(None)], &route);
    for life in ["", ".2"] {
        assert_eq!(stands.idempotency_key(), format!("{id}{life}"));
        for n in 1..=2 {
            stands = again(&stands, &route);
            assert_eq!(stands.idempotency_key(), format!("{id}{life}.r{n}"));
            let crashed = stands.after(start(), &route, LATER).expect("it is due");
            assert_eq!(crashed.idempotency_key(), format!("{id}{life}.r{n}"), "the same after a crash");
            stands = tried_later(&stands, Outcome::Delivered(None), &route);
        }
        stands = stands.after(EventStep::Replay, &route, NOW).expect("it is over");
        assert_eq!(stands.published_again, None, "each life is counted separately");
        stands = tried(stands, [Outcome::Delivered(None)], &route);
    }
}

#[test]
fn each_message_has_all_the_attempts_of_its_route() {
    let route = route(2, InDoubtPolicy::Retry);
    let mut stands = tried(event(), [unknown(), failed(), Outcome::Delivered(None)], &route);
    for _ in 0..3 {
        stands = again(&stands, &route);
        stands = tried_later(&stands, failed(), &route);
        assert_eq!(stands.state.word(), "waiting", "one of two");
        let later = stands.state.wake_at().expect("it is due some time");
        let running = stands.after(start(), &route, later).expect("it is due");
        stands = running.after(settle(failed()), &route, later).expect("it runs");
        assert_eq!(stands.state, EventState::Dead { cause: DeathCause::Failed, at: NOW }, "kept from the first end");
    }
}

#[test]
fn only_a_published_event_is_published_again() {
    let route = route(1, InDoubtPolicy::Hold);
    let done = tried(event(), [Outcome::Delivered(None)], &route);
    let once_more = again(&done, &route);
    let over = |state: EventState, was: &Event| Event { state, ..was.clone() };
    for cause in DeathCause::ALL {
        let dead = EventState::Dead { cause, at: NOW };
        let never = over(dead.clone(), &event()).after(EventStep::PublishAgain, &route, LATER);
        assert_eq!(never, Err(InvalidStepError), "{cause:?}, without anything published");
        let may = over(dead, &once_more).after(EventStep::PublishAgain, &route, LATER).is_ok();
        assert_eq!(may, matches!(cause, DeathCause::Failed | DeathCause::Rejected | DeathCause::InDoubt), "{cause:?}");
    }
    for how in [DoneReason::Recorded, DoneReason::Superseded { by: EventId([9; 16]) }] {
        let state = EventState::Done { how, at: NOW };
        assert_eq!(over(state, &done).after(EventStep::PublishAgain, &route, LATER), Err(InvalidStepError), "{how:?}");
    }
    assert_eq!(once_more.after(EventStep::PublishAgain, &route, LATER), Err(InvalidStepError), "it is being published");
}

#[test]
fn an_event_is_published_again_at_most_a_hundred_times_in_a_life() {
    let route = route(1, InDoubtPolicy::Retry);
    let mut stands = tried(event(), [Outcome::Delivered(None)], &route);
    for _ in 0..limits::PUBLISHED_AGAIN_MAX {
        stands = tried_later(&again(&stands, &route), Outcome::Delivered(None), &route);
    }
    assert_eq!(stands.after(EventStep::PublishAgain, &route, LATER), Err(InvalidStepError));
    let next =
        tried(stands.after(EventStep::Replay, &route, NOW).expect("it is over"), [Outcome::Delivered(None)], &route);
    assert_eq!(again(&next, &route).published_again.map(|again| again.times), Some(1));
}

#[test]
fn an_event_superseded_before_it_is_published_again_stays_done() {
    let route = route(3, InDoubtPolicy::Retry);
    let by = EventId([9; 16]);
    let done = tried(event(), [Outcome::Delivered(None)], &route);
    let acted = EventState::Done { how: DoneReason::Acted, at: NOW };
    let waiting = again(&done, &route);
    let other = Event { id: by, ..event() };
    assert_eq!(waiting.supersede(&other, WhenBusy::Queue, LATER).expect("it waits").state, acted);
    let start = waiting.transition(start(), &route, LATER).expect("it is due");
    assert_eq!(start.resolve(Some(by), LATER + HOUR).state, acted);
    let running = start.resolve(Some(waiting.id), LATER);
    let settled = running.transition(settle(rejected()), &route, LATER).expect("it runs");
    assert_eq!(settled.resolve(Some(by), LATER + HOUR).state, acted);
    assert_eq!(
        settled.resolve(Some(waiting.id), LATER).state,
        EventState::Dead { cause: DeathCause::Rejected, at: NOW }
    );
}

#[test]
fn it_must_be_current_and_keeps_its_queue_position() {
    let route = route(1, InDoubtPolicy::Retry);
    let done = Event { queue_state: QueueState::Requeued, ..tried(event(), [Outcome::Delivered(None)], &route) };
    let change = done.transition(EventStep::PublishAgain, &route, LATER).expect("it was published");
    assert_eq!((change.place, change.if_superseded.is_some()), (QueuePositionUpdate::RequireCurrent, false));
    assert_eq!(change.event.queue_state, QueueState::Queued);
    // The first end stays as the store wrote it, however far a node's clock is off.
    let theirs = LATER + LEASE;
    let running = change.resolve(None, theirs).after(start(), &route, LATER).expect("it is due");
    let settled = running.transition(settle(Outcome::Delivered(None)), &route, LATER).expect("it runs");
    let ended = settled.resolve(None, theirs);
    assert_eq!((ended.state.ended(), ended.idle_since()), (Some(NOW), Some(theirs)));
}
