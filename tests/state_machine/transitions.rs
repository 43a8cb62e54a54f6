//! Any sequence of steps, checked against an independent table of transitions.

use crate::{LEASE, NOW, event, failed, rejected, route, start, timed_out, unknown, unresolved};
use hookonce::decide::event::{
    DeathCause, DoneReason, Event, EventState, EventStep, InvalidStepError, Outcome, RetryOwner, SucceededBlocks,
};
use hookonce::decide::id::EventId;
use hookonce::decide::limits;
use hookonce::decide::republish::RepublishState;
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::{InDoubtPolicy, Route, TimeoutAccounting};
use hookonce::decide::time::{Duration, Timestamp};
use proptest::prelude::*;

/// The states from and to which each step may lead.
const ARROWS: [(&str, &[&str], &[&str]); 25] = [
    ("start", &["waiting"], &["running"]),
    ("renew", &["running"], &["running"]),
    ("hand back", &["running"], &["waiting"]),
    ("settle", &["running"], &["waiting", "done", "dead"]),
    ("expire", &["running"], &["waiting", "dead"]),
    ("orphan", &["running"], &["running"]),
    ("supersede", &["waiting", "running", "dead"], &["done"]),
    ("rearm", &["dead"], &["waiting"]),
    ("resume", &["dead"], &["waiting"]),
    ("accept", &["waiting", "running"], &["waiting", "running"]),
    ("publish again", &["done", "dead"], &["waiting"]),
    ("replay", &["done", "dead"], &["waiting"]),
    ("cancel", &["waiting", "running"], &["dead"]),
    ("cancel remote", &["running"], &["running"]),
    ("damage", &["waiting", "running", "dead"], &["dead"]),
    ("record", &["waiting"], &["done"]),
    ("park", &["waiting", "running"], &["waiting"]),
    ("unpark", &["waiting"], &["waiting"]),
    ("suspend", &["waiting"], &["waiting"]),
    ("unsuspend", &["waiting"], &["waiting"]),
    ("resolve", &["running"], &["running"]),
    ("deploy", &["running"], &["running"]),
    ("debounce", &["waiting"], &["waiting"]),
    ("wait for budget", &["waiting"], &["waiting"]),
    ("drop over budget", &["waiting"], &["dead"]),
];

fn word(step: &EventStep) -> &'static str {
    match step {
        EventStep::Start { .. } => "start",
        EventStep::Renew { .. } => "renew",
        EventStep::HandBack => "hand back",
        EventStep::Settle { .. } => "settle",
        EventStep::Expire { .. } => "expire",
        EventStep::Orphan => "orphan",
        EventStep::Supersede { .. } => "supersede",
        EventStep::Rearm => "rearm",
        EventStep::Resume => "resume",
        EventStep::Accept => "accept",
        EventStep::PublishAgain => "publish again",
        EventStep::Replay => "replay",
        EventStep::Cancel => "cancel",
        EventStep::CancelRemote => "cancel remote",
        EventStep::Damage => "damage",
        EventStep::Record => "record",
        EventStep::Park => "park",
        EventStep::Unpark => "unpark",
        EventStep::Suspend { .. } => "suspend",
        EventStep::Unsuspend => "unsuspend",
        EventStep::Resolve { .. } => "resolve",
        EventStep::Deploy { .. } => "deploy",
        EventStep::Debounce { .. } => "debounce",
        EventStep::WaitForBudget { .. } => "wait for budget",
        EventStep::DropOverBudget => "drop over budget",
    }
}

fn steps() -> impl Strategy<Value = EventStep> {
    let outcome = prop_oneof![
        Just(Outcome::Delivered(None)),
        Just(failed()),
        Just(failed()),
        Just(rejected()),
        Just(unresolved()),
        Just(Outcome::Unhealthy { why: "no answer".into(), receipt: None }),
        Just(unknown()),
        Just(unknown()),
        Just(timed_out()),
        Just(timed_out()),
    ];
    prop_oneof![
        6 => Just(start()),
        1 => any::<u64>().prop_map(|blocks| EventStep::Renew { lasts: LEASE, blocks: SucceededBlocks(blocks) }),
        1 => Just(EventStep::HandBack),
        4 => (outcome, any::<u32>()).prop_map(|(outcome, jitter)| EventStep::Settle {
            outcome,
            blocks: SucceededBlocks::default(),
            jitter: Jitter(jitter),
        }),
        2 => any::<u32>().prop_map(|jitter| EventStep::Expire { jitter: Jitter(jitter) }),
        1 => Just(EventStep::Orphan),
        1 => Just(EventStep::Supersede { by: EventId([9; 16]) }),
        2 => Just(EventStep::Rearm),
        1 => Just(EventStep::Resume),
        1 => Just(EventStep::Accept),
        2 => Just(EventStep::PublishAgain),
        1 => Just(EventStep::Replay),
        1 => Just(EventStep::Cancel),
        1 => Just(EventStep::CancelRemote),
        1 => Just(EventStep::Damage),
        1 => Just(EventStep::Record),
        1 => Just(EventStep::Park),
        2 => Just(EventStep::Unpark),
        1 => Just(EventStep::Suspend { lasts: LEASE }),
        2 => Just(EventStep::Unsuspend),
        1 => Just(EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: LEASE }),
        1 => Just(EventStep::Resolve { digest: "sha256:1".into(), lasts: LEASE }),
        1 => Just(EventStep::Debounce { ago: LEASE, lasts: LEASE }),
        1 => Just(EventStep::WaitForBudget { lasts: LEASE }),
        1 => Just(EventStep::DropOverBudget),
    ]
}

fn routes() -> impl Strategy<Value = Route> {
    let doubts = prop_oneof![Just(InDoubtPolicy::Retry), Just(InDoubtPolicy::Hold), Just(InDoubtPolicy::Never)];
    let counted = prop_oneof![Just(TimeoutAccounting::Attempts), Just(TimeoutAccounting::Doubts)];
    (1..5_u32, prop::option::of(1..7_u32), doubts, counted).prop_map(
        |(attempts, attempts_once_accepted, doubt, timeouts)| Route {
            timeouts,
            attempts_once_accepted,
            ..route(attempts, doubt)
        },
    )
}

/// Checks one step that was taken.
fn check_arrow(was: &Event, step: &EventStep, is: &Event, route: &Route) {
    let (name, from, to) = ARROWS.iter().find(|(name, ..)| *name == word(step)).expect("every step is in the table");
    assert!(from.contains(&was.state.word()), "{name} from {:?}", was.state);
    assert!(to.contains(&is.state.word()), "{name} to {:?}", is.state);
    assert_eq!(is.revision, was.revision.next());
    assert_eq!(is.immutable_digest(), was.digest, "{name} changed what never changes");
    assert_eq!((is.change, is.turn, is.delivery_id.clone()), (was.change, was.turn, was.delivery_id.clone()));
    assert_eq!(is.life, was.life + u32::from(*name == "replay"));
    if was.state.ended().is_some() {
        assert!(
            matches!(*name, "rearm" | "resume" | "publish again" | "replay" | "supersede" | "damage"),
            "{name} from {:?}",
            was.state
        );
    }
    if *name == "damage" && was.is_dead() {
        assert!(matches!(was.state, EventState::Dead { cause: DeathCause::Damaged, .. }), "{:?}", was.state);
    }
    if matches!(*name, "park" | "unpark") {
        let aside = was.queue_state.is_aside() && was.state.word() == "waiting";
        assert!(!aside, "it waits without its slot");
        assert_eq!((is.queue_state, is.state.wake_at().is_some()), (was.queue_state, *name == "unpark"));
    }
    let doubted = match step {
        EventStep::Expire { .. } => !was.is_called_off(),
        EventStep::Settle { outcome: Outcome::Unknown { .. }, .. } => true,
        EventStep::Settle { outcome: Outcome::TimedOut { .. }, .. } => route.timeouts == TimeoutAccounting::Doubts,
        _ => false,
    };
    let counted = match *name {
        "start" => (was.attempt + 1, was.doubts),
        "hand back" => (was.attempt - u32::from(!was.blocks.acted()), was.doubts),
        "park" => (was.attempt - u32::from(was.state.word() == "running"), was.doubts),
        "replay" => (0, 0),
        "publish again" => (was.attempt, 0),
        _ => (was.attempt, was.doubts + u32::from(doubted)),
    };
    assert_eq!((is.attempt, is.doubts), counted, "{name}");
    let unresolved = matches!(step, EventStep::Settle { outcome: Outcome::Unresolved { .. }, .. });
    let lookups = if *name == "replay" { 0 } else { was.failed_lookups + u32::from(unresolved) };
    assert_eq!(is.failed_lookups, lookups, "{name}");
    let accepted = if *name == "accept" { RetryOwner::Node } else { was.retrier };
    assert_eq!(is.retrier, accepted, "{name}");
    if *name == "accept" {
        assert_eq!((&is.state, was.retrier), (&was.state, RetryOwner::Sender));
    }
    let attempts = match was.retrier {
        RetryOwner::Sender => route.retry.attempts,
        RetryOwner::Node => route.attempts_once_accepted.unwrap_or(route.retry.attempts),
    };
    // An action that has succeeded leaves no doubt: only its health is checked again.
    let holds = route.in_doubt == InDoubtPolicy::Hold && !is.blocks.acted();
    let many = if route.in_doubt == InDoubtPolicy::Hold { 1 } else { attempts };
    let doubts_max = if holds { 1 } else { many.max(limits::DOUBTS_MIN) };
    let dead = if let EventState::Dead { cause, .. } = is.state { Some(cause) } else { None };
    let cause = if route.in_doubt == InDoubtPolicy::Never { DeathCause::Failed } else { DeathCause::InDoubt };
    let before = is.published_again.map_or(0, |again| again.attempts_before);
    if let (EventStep::Settle { outcome: Outcome::TimedOut { .. }, .. }, false) = (step, doubted) {
        let last =
            route.in_doubt == InDoubtPolicy::Hold || is.attempt - before - is.doubts - is.failed_lookups >= attempts;
        assert_eq!(dead, last.then_some(cause), "attempt {} timed out", is.attempt);
    }
    if doubted {
        assert_eq!(dead, (is.doubts >= doubts_max).then_some(cause), "{name} at {} doubts", is.doubts);
    }
    if unresolved {
        let last = is.failed_lookups >= attempts.max(limits::FAILED_LOOKUPS_MIN);
        assert_eq!(dead, last.then_some(DeathCause::Failed));
    }
    if let EventStep::Settle { outcome: Outcome::Failed { .. }, .. } = step {
        let failures = is.attempt - before - is.doubts - is.failed_lookups;
        assert_eq!(dead == Some(DeathCause::Failed), failures >= attempts);
    }
    check_first_end(was, name, is);
}

/// An event that was published again keeps its first end; only a replay starts again.
fn check_first_end(was: &Event, name: &str, is: &Event) {
    match (was.published_again, is.published_again) {
        (None, None) => {}
        (Some(_), None) => assert_eq!(name, "replay"),
        (None, Some(first)) => {
            assert_eq!((name, first.times, Some(first.first_ended_at)), ("publish again", 1, was.state.ended()));
        }
        (Some(before), Some(after)) => {
            assert_eq!(after.times, before.times + u32::from(name == "publish again"));
            assert_eq!(after.first_ended_at, before.first_ended_at, "{name}");
        }
    }
    if let (Some(again), Some(ended)) = (is.published_again, is.state.ended()) {
        assert_eq!(ended, again.first_ended_at, "{name}");
        assert!(
            !matches!(is.state, EventState::Done { how: DoneReason::Superseded { .. } | DoneReason::Recorded, .. }),
            "{name}"
        );
    }
}

/// The same event on a clock that shows `theirs` when ours shows `ours`.
fn shifted(event: &Event, ours: Timestamp, theirs: Timestamp) -> Event {
    let again = event.published_again.map(|again| RepublishState {
        last_at: again.last_at.shifted(ours, theirs),
        first_ended_at: again.first_ended_at.shifted(ours, theirs),
        ..again
    });
    let burst_since = event.burst_since.map(|since| since.shifted(ours, theirs));
    Event { state: event.state.clone().shifted(ours, theirs), published_again: again, burst_since, ..event.clone() }
}

proptest! {
    #![proptest_config(crate::seed::cases(4_000))]

    #[test]
    fn no_sequence_of_steps_leaves_the_table(route in routes(), steps in prop::collection::vec((steps(), 0..45_u64), 1..60)) {
        let (mut event, mut now) = (event(), NOW);
        for (step, seconds) in steps {
            now = now + Duration::from_secs(seconds);
            let before = event.clone();
            if let Ok(next) = event.after(step.clone(), &route, now) {
                check_arrow(&event, &step, &next, &route);
                prop_assert!(next.has_consistent_counts(), "{next:?}");
                event = next;
            } else {
                prop_assert_eq!(&event, &before);
                prop_assert!(event.transition(step, &route, now).is_err(), "an invalid step is not written");
            }
        }
    }

    #[test]
    fn a_step_that_the_table_does_not_allow_is_invalid(route in routes(), steps in prop::collection::vec(steps(), 1..40), last in steps()) {
        let event = steps.into_iter().fold(event(), |event, step| event.after(step, &route, NOW + LEASE).unwrap_or(event));
        let (_, from, _) = ARROWS.iter().find(|(name, ..)| *name == word(&last)).expect("every step is in the table");
        if !from.contains(&event.state.word()) {
            prop_assert_eq!(event.after(last, &route, NOW + LEASE), Err(InvalidStepError));
        }
    }

    #[test]
    fn a_history_does_not_depend_on_when_it_happens(
        route in routes(),
        steps in prop::collection::vec((steps(), 0..45_u64), 1..40),
        later in 0..1_000_000_000_i64,
    ) {
        let (mut now, mut then) = (NOW, Timestamp(NOW.0 + later));
        let mut first = event();
        let mut second = Event { state: first.state.clone().shifted(now, then), ..event() };
        for (step, seconds) in steps {
            let by = Duration::from_secs(seconds);
            (now, then) = (now + by, then + by);
            match (first.after(step.clone(), &route, now), second.after(step, &route, then)) {
                (Ok(a), Ok(b)) => {
                    prop_assert_eq!(shifted(&a, now, then), b.clone());
                    (first, second) = (a, b);
                }
                (a, b) => prop_assert!(a.is_err() && b.is_err()),
            }
        }
    }
}
