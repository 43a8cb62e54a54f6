//! What a repeat does to the event it repeats, where `redelivery` is `again`: the whole table.

use crate::sources::{Request, github_package, now, storm};
use hookonce::decide::claim::{DuplicateTarget, MatchedBy, NewEvent, RepeatEffect, repeat_effect};
use hookonce::decide::event::{DeathCause, DoneReason, Event, EventState};
use hookonce::decide::id::{Digest, EventId};
use hookonce::decide::limits;
use hookonce::decide::republish::RepublishState;
use hookonce::decide::source::{RedeliveryPolicy, ResponseMode, Route};
use hookonce::decide::time::Duration;

const AFTER: Duration = Duration::from_mins(1);
const AGAIN: RedeliveryPolicy =
    RedeliveryPolicy::Again { same_after: limits::REDELIVERY_AFTER, other_after: AFTER, published_after: AFTER };

/// A delivery, and its event in this state.
fn delivered(state: EventState) -> (NewEvent, Event) {
    let request: Request = storm("storm_latest.jsonl").pop().expect("a delivery of latest");
    let new = request.event(&github_package());
    let event = Event { id: EventId([1; 16]), state, attempt: 1, ..new.event.clone() };
    (new, event)
}

fn acted() -> EventState {
    EventState::Done { how: DoneReason::Acted, at: now() }
}

fn route(redelivery: RedeliveryPolicy) -> Route {
    Route { redelivery, ..Route::default() }
}

fn check(
    event: &Event,
    new: &NewEvent,
    same: &MatchedBy,
    stands: DuplicateTarget,
    after: Duration,
    expected: RepeatEffect,
) {
    let does = repeat_effect(event, new, same, stands, &route(AGAIN), ResponseMode::Accepted, now() + after);
    assert_eq!(does, expected, "{:?} through {same:?}, {stands:?}, {after:?} later", event.state);
}

#[test]
fn only_the_same_delivery_of_a_current_event_is_published_again_and_not_too_soon() {
    let (new, done) = delivered(acted());
    let (own, itself) = (MatchedBy::Delivery, DuplicateTarget::Direct);
    check(&done, &new, &own, itself, AFTER, RepeatEffect::PublishesAgain);
    check(&done, &new, &own, itself, AFTER.saturating_sub(Duration::from_micros(1)), RepeatEffect::ReportOnly);
    for same in [MatchedBy::Message, MatchedBy::Body, MatchedBy::Fields("tag".into()), MatchedBy::Change] {
        check(&done, &new, &same, itself, AFTER, RepeatEffect::ReportOnly);
    }
    for stands in [DuplicateTarget::DirectNotCurrent, DuplicateTarget::ViaSuccessor] {
        check(&done, &new, &own, stands, AFTER, RepeatEffect::ReportOnly);
    }
    for redelivery in
        [RedeliveryPolicy::Ignore, RedeliveryPolicy::Retry { same_after: Duration::ZERO, other_after: Duration::ZERO }]
    {
        let does = repeat_effect(&done, &new, &own, itself, &route(redelivery), ResponseMode::Accepted, now() + AFTER);
        assert_eq!(does, RepeatEffect::ReportOnly);
    }
}

#[test]
fn a_delivery_that_would_be_new_to_the_worker_is_not_published_as_the_old_one() {
    let (new, done) = delivered(acted());
    let alias = Event { delivery_id: Some("another".into()), ..done.clone() };
    let other_bytes = Event { body_digest: Digest([9; 32]), ..done.clone() };
    let other_way = Event { route: "another".into(), ..done };
    for event in [alias, other_bytes, other_way] {
        check(&event, &new, &MatchedBy::Delivery, DuplicateTarget::Direct, AFTER, RepeatEffect::ReportOnly);
    }
}

#[test]
fn an_unpublished_event_is_rearmed_as_usual_and_a_published_one_counts_from_its_last_message() {
    let again = RepublishState { times: 3, last_at: now() + AFTER, first_ended_at: now(), attempts_before: 1 };
    for cause in DeathCause::ALL {
        let (new, dead) = delivered(EventState::Dead { cause, at: now() });
        let rearms = if cause.rearmable() { RepeatEffect::Rearms } else { RepeatEffect::ReportOnly };
        check(&dead, &new, &MatchedBy::Delivery, DuplicateTarget::Direct, limits::REDELIVERY_AFTER, rearms);
        check(&dead, &new, &MatchedBy::Body, DuplicateTarget::Direct, AFTER, rearms);
        let published = Event { published_again: Some(again), ..dead };
        let may = cause.rearmable() || cause == DeathCause::InDoubt;
        let expected = if may { RepeatEffect::PublishesAgain } else { RepeatEffect::ReportOnly };
        check(&published, &new, &MatchedBy::Delivery, DuplicateTarget::Direct, AFTER, RepeatEffect::ReportOnly);
        check(&published, &new, &MatchedBy::Delivery, DuplicateTarget::Direct, 2 * AFTER, expected);
        check(&published, &new, &MatchedBy::Body, DuplicateTarget::Direct, 2 * AFTER, RepeatEffect::ReportOnly);
    }
    for state in [EventState::Waiting { due: None }, EventState::Done { how: DoneReason::Recorded, at: now() }] {
        let (new, event) = delivered(state);
        check(&event, &new, &MatchedBy::Delivery, DuplicateTarget::Direct, 2 * AFTER, RepeatEffect::ReportOnly);
    }
}
