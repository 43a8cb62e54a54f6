//! What a repeat does to the event it repeats, where `redelivery` is `again`: the whole table.

use crate::sources::{Request, github_package, now, storm};
use hookonce::decide::again::PublishedAgain;
use hookonce::decide::claim::{New, Repeat, Same, Stands, repeat};
use hookonce::decide::event::{Cause, Event, How, State};
use hookonce::decide::id::{Digest, EventId};
use hookonce::decide::limits;
use hookonce::decide::source::{Redelivery, Respond, Route};
use hookonce::decide::time::Duration;

const AFTER: Duration = Duration::from_mins(1);
const AGAIN: Redelivery =
    Redelivery::Again { same_after: limits::REDELIVERY_AFTER, other_after: AFTER, published_after: AFTER };

/// The delivery, and the event it made once that has come to this.
fn delivered(state: State) -> (New, Event) {
    let request: Request = storm("storm_latest.jsonl").pop().expect("a delivery of latest");
    let new = request.event(&github_package());
    let event = Event { id: EventId([1; 16]), state, attempt: 1, ..new.event.clone() };
    (new, event)
}

fn acted() -> State {
    State::Done { how: How::Acted, at: now() }
}

fn route(redelivery: Redelivery) -> Route {
    Route { redelivery, ..Route::default() }
}

fn check(event: &Event, new: &New, same: &Same, stands: Stands, after: Duration, expected: Repeat) {
    let does = repeat(event, new, same, stands, &route(AGAIN), Respond::Accepted, now() + after);
    assert_eq!(does, expected, "{:?} through {same:?}, {stands:?}, {after:?} later", event.state);
}

#[test]
fn only_the_same_delivery_of_a_current_event_is_published_again_and_not_too_soon() {
    let (new, done) = delivered(acted());
    let (own, itself) = (Same::Delivery, Stands::Itself);
    check(&done, &new, &own, itself, AFTER, Repeat::PublishesAgain);
    check(&done, &new, &own, itself, AFTER.saturating_sub(Duration::from_micros(1)), Repeat::Hears);
    for same in [Same::Message, Same::Body, Same::Fields("tag".into()), Same::Change] {
        check(&done, &new, &same, itself, AFTER, Repeat::Hears);
    }
    for stands in [Stands::Replaced, Stands::Instead] {
        check(&done, &new, &own, stands, AFTER, Repeat::Hears);
    }
    for redelivery in
        [Redelivery::Ignore, Redelivery::Retry { same_after: Duration::ZERO, other_after: Duration::ZERO }]
    {
        let does = repeat(&done, &new, &own, itself, &route(redelivery), Respond::Accepted, now() + AFTER);
        assert_eq!(does, Repeat::Hears);
    }
}

#[test]
fn a_delivery_that_would_be_something_new_to_the_worker_is_not_published_as_the_old_one() {
    let (new, done) = delivered(acted());
    let alias = Event { delivery_id: Some("another".into()), ..done.clone() };
    let other_bytes = Event { body_digest: Digest([9; 32]), ..done.clone() };
    let other_way = Event { route: "another".into(), ..done };
    for event in [alias, other_bytes, other_way] {
        check(&event, &new, &Same::Delivery, Stands::Itself, AFTER, Repeat::Hears);
    }
}

#[test]
fn what_never_was_published_is_re_armed_as_ever_and_what_was_counts_from_its_last_message() {
    let again = PublishedAgain { times: 3, last_at: now() + AFTER, first_ended_at: now(), attempts_before: 1 };
    for cause in Cause::ALL {
        let (new, dead) = delivered(State::Dead { cause, at: now() });
        let rearms = if cause.rearmable() { Repeat::Rearms } else { Repeat::Hears };
        check(&dead, &new, &Same::Delivery, Stands::Itself, limits::REDELIVERY_AFTER, rearms);
        check(&dead, &new, &Same::Body, Stands::Itself, AFTER, rearms);
        let published = Event { published_again: Some(again), ..dead };
        let may = cause.rearmable() || cause == Cause::InDoubt;
        let expected = if may { Repeat::PublishesAgain } else { Repeat::Hears };
        check(&published, &new, &Same::Delivery, Stands::Itself, AFTER, Repeat::Hears);
        check(&published, &new, &Same::Delivery, Stands::Itself, 2 * AFTER, expected);
        check(&published, &new, &Same::Body, Stands::Itself, 2 * AFTER, Repeat::Hears);
    }
    for state in [State::Waiting { due: None }, State::Done { how: How::Recorded, at: now() }] {
        let (new, event) = delivered(state);
        check(&event, &new, &Same::Delivery, Stands::Itself, 2 * AFTER, Repeat::Hears);
    }
}
