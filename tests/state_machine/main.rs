//! The states of an event: each rule, case by case; and in `transitions.rs`, any sequence of steps.

use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{self, DuplicateTarget, MatchedBy, NewEvent, Payload, RepeatEffect};
use hookonce::decide::event::{
    DeathCause, DoneReason, Event, EventState, EventStep, InvalidStepError, Outcome, QueueState, Receipt, RetryOwner,
    SubjectChange, SucceededBlocks,
};
use hookonce::decide::field::{FieldValue, StoredFields};
use hookonce::decide::id::{Digest, EventId, Key, NodeId, QueueTurn, Revision};
use hookonce::decide::retry::{Jitter, RetryPolicy};
use hookonce::decide::source::{
    InDoubtPolicy, RedeliveryPolicy, ResponseMode, Retention, Route, SameChange, TimeoutAccounting, WhenBusy,
};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::transition::{QueuePositionUpdate, ReceiptUpdate};

mod notifications;
mod republish;
#[path = "../support/seed.rs"]
mod seed;
mod transitions;

const NOW: Timestamp = Timestamp(1_000_000_000);
const LEASE: Duration = Duration::from_secs(30);

fn event() -> Event {
    let mut event = Event {
        id: EventId([7; 16]),
        revision: Revision::FIRST,
        source: "ghcr".into(),
        route: "deploy".into(),
        part: 0,
        delivery_id: Some("d1".into()),
        fields: [("tag".into(), FieldValue::Text("latest".into()))].into_iter().collect(),
        received_at: NOW,
        state: EventState::Waiting { due: Some(NOW) },
        life: 1,
        attempt: 0,
        doubts: 0,
        failed_lookups: 0,
        blocks: SucceededBlocks::default(),
        queue_state: QueueState::Queued,
        retrier: RetryOwner::Sender,
        group: Some(Key([1; 32])),
        turn: QueueTurn(1),
        published_again: None,
        burst_since: None,
        resolved: None,
        origin: None,
        notifications: Vec::new(),
        change: Some(SubjectChange { subject: Key([2; 32]), value: Digest([3; 32]), order: Some(4) }),
        body_digest: Digest([5; 32]),
        digest: Digest([0; 32]),
    };
    event.digest = event.immutable_digest();
    event
}

/// An event that is parked because another one holds its group's slot.
fn parked() -> Event {
    Event { state: EventState::Waiting { due: None }, ..event() }
}

fn route(attempts: u32, in_doubt: InDoubtPolicy) -> Route {
    let retry = RetryPolicy { attempts, first: Duration::from_secs(10), longest: Duration::from_mins(1) };
    Route { name: "deploy".into(), retry, in_doubt, ..Route::default() }
}

fn start() -> EventStep {
    EventStep::Start { lasts: LEASE, by: NodeId("n1".into()), action: ActionKind::Run }
}

fn settle(outcome: Outcome) -> EventStep {
    EventStep::Settle { outcome, blocks: SucceededBlocks::default(), jitter: Jitter(u32::MAX) }
}

fn failed() -> Outcome {
    Outcome::Failed { why: "exit code 1".into(), retry_after: None, receipt: None }
}

fn unknown() -> Outcome {
    Outcome::Unknown { why: "its lease ran out".into() }
}

fn timed_out() -> Outcome {
    Outcome::TimedOut { why: "timed out after 10m".into(), answered: None }
}

fn unresolved() -> Outcome {
    Outcome::Unresolved { why: "the registry does not have it".into(), retry_after: None }
}

fn rejected() -> Outcome {
    Outcome::Rejected { why: "exit code 127".into(), receipt: None }
}

/// Starts the event once for each outcome and settles it so; every step must be allowed.
fn tried(event: Event, outcomes: impl IntoIterator<Item = Outcome>, route: &Route) -> Event {
    outcomes.into_iter().fold(event, |event, outcome| {
        let running = event.after(start(), route, NOW).expect("it waits and is due");
        running.after(settle(outcome), route, NOW).expect("it runs")
    })
}

fn check(outcomes: &[Outcome], attempts: u32, in_doubt: InDoubtPolicy, expected: &str) {
    let after = tried(event(), outcomes.iter().cloned(), &route(attempts, in_doubt));
    let state = match &after.state {
        EventState::Dead { cause, .. } => cause.word(),
        state => state.word(),
    };
    assert_eq!(state, expected, "{outcomes:?} of {attempts} {in_doubt:?}");
}

#[test]
fn an_event_that_fails_ends_when_its_attempts_are_used_up() {
    for attempts in 1..=5 {
        let failures = vec![failed(); attempts as usize];
        check(&failures, attempts, InDoubtPolicy::Retry, "failed");
        check(&failures[1..], attempts, InDoubtPolicy::Retry, "waiting");
        check(&failures, attempts, InDoubtPolicy::Hold, "failed");
    }
}

#[test]
fn a_rejected_event_ends_at_once() {
    for attempts in 1..=5 {
        check(&[rejected()], attempts, InDoubtPolicy::Retry, "rejected");
    }
    check(&[failed(), rejected()], 5, InDoubtPolicy::Hold, "rejected");
}

#[test]
fn hold_ends_at_the_first_doubt() {
    for attempts in 1..=5 {
        check(&[unknown()], attempts, InDoubtPolicy::Hold, "in_doubt");
    }
    check(&[failed(), unknown()], 5, InDoubtPolicy::Hold, "in_doubt");
    check(&[timed_out()], 5, InDoubtPolicy::Hold, "in_doubt");
    check(&[failed(), timed_out()], 5, InDoubtPolicy::Hold, "in_doubt");
}

#[test]
fn our_own_timeout_counts_against_attempts_and_the_last_one_ends_in_doubt() {
    for attempts in 1..=5 {
        let ended = vec![timed_out(); attempts as usize];
        check(&ended, attempts, InDoubtPolicy::Retry, "in_doubt");
        check(&ended[1..], attempts, InDoubtPolicy::Retry, "waiting");
        assert_eq!(tried(event(), ended, &route(attempts, InDoubtPolicy::Retry)).doubts, 0, "a timeout is no doubt");
    }
    check(&[failed(), timed_out()], 2, InDoubtPolicy::Retry, "in_doubt");
    check(&[timed_out(), failed()], 2, InDoubtPolicy::Retry, "failed");
    check(&[unknown(), unknown(), timed_out()], 2, InDoubtPolicy::Retry, "waiting");
    check(&[unknown(), unknown(), timed_out(), timed_out()], 2, InDoubtPolicy::Retry, "in_doubt");
    check(&[timed_out()], 1, InDoubtPolicy::Never, "failed");
}

#[test]
fn where_a_second_copy_is_harmless_a_timeout_is_counted_as_a_doubt() {
    for attempts in 1..=4_u32 {
        let route = Route { timeouts: TimeoutAccounting::Doubts, ..route(attempts, InDoubtPolicy::Retry) };
        let limit = attempts.max(3) as usize;
        let ended = tried(event(), vec![timed_out(); limit], &route);
        assert_eq!(ended.state, EventState::Dead { cause: DeathCause::InDoubt, at: NOW });
        assert_eq!(tried(event(), vec![timed_out(); limit - 1], &route).state.word(), "waiting");
    }
}

#[test]
fn retry_ends_at_three_doubts_or_as_many_as_there_are_attempts() {
    for attempts in 1..=6_u32 {
        let doubts = vec![unknown(); attempts.max(3) as usize];
        check(&doubts, attempts, InDoubtPolicy::Retry, "in_doubt");
        check(&doubts[1..], attempts, InDoubtPolicy::Retry, "waiting");
    }
}

#[test]
fn an_event_that_is_never_in_doubt_is_retried_as_often_and_then_fails() {
    for attempts in 1..=6_u32 {
        let left = vec![unknown(); attempts.max(3) as usize];
        check(&left, attempts, InDoubtPolicy::Never, "failed");
        check(&left[1..], attempts, InDoubtPolicy::Never, "waiting");
        let failures = vec![failed(); attempts as usize];
        check(&[&left[1..], &failures].concat(), attempts, InDoubtPolicy::Never, "failed");
        check(&[&left[1..], &failures[1..]].concat(), attempts, InDoubtPolicy::Never, "waiting");
    }
}

#[test]
fn a_crash_is_followed_by_another_attempt_even_with_one() {
    let route = route(1, InDoubtPolicy::Retry);
    let running = event().after(start(), &route, NOW).expect("it is due");
    let ended = running.after(EventStep::Expire { jitter: Jitter(0) }, &route, NOW + LEASE).expect("its lease ended");
    let again = ended.after(start(), &route, NOW + LEASE).expect("it is tried again");
    assert_eq!((again.attempt, again.doubts), (2, 1));
}

#[test]
fn a_registry_that_does_not_answer_is_asked_twelve_times_or_as_often_as_there_are_attempts() {
    for attempts in [1, 5, 20_u32] {
        let lookups = vec![unresolved(); attempts.max(12) as usize];
        check(&lookups, attempts, InDoubtPolicy::Hold, "failed");
        check(&lookups[1..], attempts, InDoubtPolicy::Hold, "waiting");
        let failures = vec![failed(); attempts as usize];
        check(&[&lookups[1..], &failures].concat(), attempts, InDoubtPolicy::Retry, "failed");
        check(&[&lookups[1..], &failures[1..]].concat(), attempts, InDoubtPolicy::Retry, "waiting");
        check(&[&failures[1..], &lookups].concat(), attempts, InDoubtPolicy::Retry, "failed");
    }
    let again = Outcome::Unresolved { why: "429".into(), retry_after: Some(Duration::from_mins(5)) };
    let after = tried(event(), [again], &route(1, InDoubtPolicy::Retry));
    assert_eq!(after.state, EventState::Waiting { due: Some(NOW + Duration::from_mins(5)) }, "it asked to wait");
    let replayed = tried(event(), vec![unresolved(); 12], &route(1, InDoubtPolicy::Retry))
        .after(EventStep::Replay, &route(1, InDoubtPolicy::Retry), NOW)
        .expect("it is dead");
    assert_eq!(replayed.failed_lookups, 0);
}

#[test]
fn what_succeeded_with_another_digest_does_not_count() {
    let route = route(5, InDoubtPolicy::Retry);
    let resolve = |digest: &str| EventStep::Resolve { digest: digest.into(), lasts: LEASE };
    let blocks = SucceededBlocks::default().with(0);
    let running = event().after(start(), &route, NOW).expect("it is due");
    let one = running.after(resolve("sha256:1"), &route, NOW).expect("it runs");
    let one = one.after(EventStep::Renew { lasts: LEASE, blocks }, &route, NOW).expect("it runs");
    assert_eq!(one.after(resolve("sha256:1"), &route, NOW).expect("it runs").blocks, blocks);
    let other = one.after(resolve("sha256:2"), &route, NOW).expect("it runs");
    assert_eq!((other.blocks, other.resolved.as_deref()), (SucceededBlocks::default(), Some("sha256:2")));
}

#[test]
fn the_repeated_check_of_a_deploy_costs_no_budget_and_is_no_doubt() {
    let per = hookonce::decide::source::BudgetScope::Route;
    let exceeded = hookonce::decide::source::BudgetExceeded::Drop;
    let budget = Some(hookonce::decide::source::AttemptBudget { runs: 1, within: LEASE, exceeded, per });
    let route = Route { budget, ..route(1, InDoubtPolicy::Hold) };
    let begins = |event: &Event| event.transition(start(), &route, NOW + LEASE).expect("it is due").budget.is_some();
    assert!(begins(&event()));
    let deploy = EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: LEASE };
    let deployed = event().after(start(), &route, NOW).and_then(|event| event.after(deploy, &route, NOW));
    let deployed = deployed.expect("it runs");
    let handed_back = deployed.after(EventStep::HandBack, &route, NOW).expect("it runs");
    assert_eq!((handed_back.attempt, handed_back.blocks.acted()), (1, true), "it is not forgotten that it acted");
    let expired =
        deployed.after(EventStep::Expire { jitter: Jitter(0) }, &route, NOW + LEASE).expect("its lease ended");
    assert!(!begins(&handed_back) && !begins(&expired));
    let tried =
        deployed.transition(EventStep::Expire { jitter: Jitter(0) }, &route, NOW + LEASE).expect("its lease ended");
    let why = tried.attempt.map(|tried| tried.why);
    assert_eq!(why.as_deref(), Some("its lease ran out while the health of what it deployed was checked"));
}

#[test]
fn doubts_use_up_no_attempts_and_failures_no_doubts() {
    check(&[unknown(), unknown(), failed()], 2, InDoubtPolicy::Retry, "waiting");
    check(&[unknown(), unknown(), failed(), failed()], 2, InDoubtPolicy::Retry, "failed");
    check(&[failed(), unknown(), unknown()], 2, InDoubtPolicy::Retry, "waiting");
    check(&[failed(), unknown(), unknown(), unknown()], 2, InDoubtPolicy::Retry, "in_doubt");
}

#[test]
fn an_attempt_that_is_handed_back_does_not_count() {
    let route = route(1, InDoubtPolicy::Hold);
    let mut event = event();
    for _ in 0..5 {
        event = event
            .after(start(), &route, NOW)
            .expect("it is due")
            .after(EventStep::HandBack, &route, NOW)
            .expect("it runs");
        assert_eq!((event.attempt, event.doubts), (0, 0));
        assert!(event.owed_first_attempt());
    }
    assert_eq!(
        tried(event, [Outcome::Delivered(None)], &route).state,
        EventState::Done { how: DoneReason::Acted, at: NOW }
    );
}

#[test]
fn a_lease_that_has_not_ended_does_not_expire() {
    let route = route(1, InDoubtPolicy::Retry);
    let running = event().after(start(), &route, NOW).expect("it is due");
    let early = NOW + LEASE - Duration::from_micros(1);
    assert_eq!(running.after(EventStep::Expire { jitter: Jitter(0) }, &route, early), Err(InvalidStepError));
    assert!(running.after(EventStep::Expire { jitter: Jitter(0) }, &route, NOW + LEASE).is_ok());
}

#[test]
fn a_rearm_after_the_last_attempt_gives_one_more_and_a_replay_gives_all() {
    let route = route(2, InDoubtPolicy::Retry);
    let dead = tried(event(), [failed(), failed()], &route);
    let armed = dead.after(EventStep::Rearm, &route, NOW).expect("it is dead of failed");
    assert_eq!((armed.attempt, armed.life), (2, 1));
    assert_eq!(tried(armed, [failed()], &route).state, EventState::Dead { cause: DeathCause::Failed, at: NOW });
    let replayed = dead.after(EventStep::Replay, &route, NOW).expect("it is over");
    assert_eq!((replayed.attempt, replayed.life), (0, 2));
    assert_eq!(tried(replayed, [failed()], &route).state.word(), "waiting");
}

#[test]
fn only_failed_and_rejected_events_are_rearmed() {
    for cause in
        [DeathCause::Failed, DeathCause::Rejected, DeathCause::InDoubt, DeathCause::Damaged, DeathCause::Cancelled]
    {
        let dead = Event { state: EventState::Dead { cause, at: NOW }, ..event() };
        let rearmed = dead.after(EventStep::Rearm, &route(1, InDoubtPolicy::Retry), NOW).is_ok();
        assert_eq!(rearmed, matches!(cause, DeathCause::Failed | DeathCause::Rejected), "{cause:?}");
    }
}

#[test]
fn a_resumed_event_continues_the_same_life_whatever_it_died_of() {
    let route = route(1, InDoubtPolicy::Hold);
    let left = tried(event(), [unknown()], &route);
    for cause in DeathCause::ALL {
        let dead = Event { state: EventState::Dead { cause, at: NOW }, ..left.clone() };
        let next = dead.after(EventStep::Resume, &route, NOW).expect("it is dead");
        let next = next.after(start(), &route, NOW).expect("it is due");
        assert_eq!((next.attempt, next.doubts, next.idempotency_key()), (2, 1, left.idempotency_key()), "{cause:?}");
    }
    let done = tried(event(), [Outcome::Delivered(None)], &route);
    assert_eq!(done.after(EventStep::Resume, &route, NOW), Err(InvalidStepError));
}

#[test]
fn after_a_202_a_node_tries_an_event_as_often_as_its_route_allows() {
    let one = route(1, InDoubtPolicy::Retry);
    let route = Route { attempts_once_accepted: Some(5), ..one.clone() };
    let running = event().after(start(), &route, NOW).expect("it is due");
    for (state, accepted) in [
        ("running", running.after(EventStep::Accept, &route, NOW)),
        ("waiting", parked().after(EventStep::Accept, &route, NOW)),
    ] {
        let accepted = accepted.expect("it is not over");
        assert_eq!((accepted.state.word(), accepted.retrier), (state, RetryOwner::Node));
        assert_eq!(accepted.after(EventStep::Accept, &route, NOW), Err(InvalidStepError), "once is enough");
    }
    let accepted = running.after(EventStep::Accept, &route, NOW).expect("it runs");
    assert!(running.was_only_accepted(&accepted));
    assert!(!running.was_only_accepted(&running));
    let renewed = accepted.after(EventStep::Renew { lasts: LEASE, blocks: SucceededBlocks::default() }, &route, NOW);
    assert!(!running.was_only_accepted(&renewed.expect("it runs")), "there was another write");
    for (outcome, cause) in
        [(failed(), DeathCause::Failed), (timed_out(), DeathCause::InDoubt), (unknown(), DeathCause::InDoubt)]
    {
        let first = accepted.after(settle(outcome.clone()), &route, NOW).expect("it runs");
        let fourth = tried(first, vec![outcome.clone(); 3], &route);
        assert_eq!(fourth.state.word(), "waiting", "{outcome:?}");
        assert_eq!(tried(fourth, [outcome], &route).state, EventState::Dead { cause, at: NOW });
    }
    let died = tried(event(), [failed()], &route);
    assert_eq!(
        died.state,
        EventState::Dead { cause: DeathCause::Failed, at: NOW },
        "while the sender waits, it is the retrier"
    );
    assert_eq!(
        died.after(EventStep::Accept, &route, NOW),
        Err(InvalidStepError),
        "it has ended: the response is its end"
    );
    let written = Event { retrier: RetryOwner::Node, ..event() };
    assert_eq!(tried(written, [failed()], &one).state, died.state, "a configured `attempts` holds after a 202, too");
}

#[test]
fn a_repeat_resumes_an_event_in_doubt_only_if_its_sender_waits_and_the_route_retries() {
    let done = ResponseMode::WhenDone { within: LEASE };
    let soon = RedeliveryPolicy::Retry { same_after: Duration::ZERO, other_after: Duration::ZERO };
    let late = RedeliveryPolicy::Retry { same_after: LEASE, other_after: LEASE };
    let arriving = NewEvent {
        event: event(),
        keys: Vec::new(),
        former_keys: Vec::new(),
        imported: Vec::new(),
        payload: Payload::default(),
        kept: Retention::default(),
        when_busy: WhenBusy::Queue,
        same_change: SameChange::Duplicate,
    };
    for (respond, in_doubt, redelivery, instead, expected) in [
        (done, InDoubtPolicy::Retry, soon, false, RepeatEffect::Resumes),
        (done, InDoubtPolicy::Hold, soon, false, RepeatEffect::ReportOnly),
        (ResponseMode::Accepted, InDoubtPolicy::Retry, soon, false, RepeatEffect::ReportOnly),
        (done, InDoubtPolicy::Retry, RedeliveryPolicy::Ignore, false, RepeatEffect::ReportOnly),
        (done, InDoubtPolicy::Retry, late, false, RepeatEffect::ReportOnly),
        (done, InDoubtPolicy::Retry, soon, true, RepeatEffect::ReportOnly),
    ] {
        let route = Route { redelivery, ..route(1, in_doubt) };
        for cause in DeathCause::ALL {
            let dead = Event { state: EventState::Dead { cause, at: NOW }, ..event() };
            let stands = if instead { DuplicateTarget::ViaSuccessor } else { DuplicateTarget::Direct };
            let does = claim::repeat_effect(&dead, &arriving, &MatchedBy::Body, stands, &route, respond, NOW);
            let expected = match cause {
                DeathCause::InDoubt => expected,
                DeathCause::Failed | DeathCause::Rejected if redelivery == soon && !instead => RepeatEffect::Rearms,
                _ => RepeatEffect::ReportOnly,
            };
            assert_eq!(does, expected, "{cause:?} {respond:?} {in_doubt:?} {redelivery:?} {instead}");
        }
    }
}

#[test]
fn a_parked_or_suspended_event_does_not_start() {
    let route = route(1, InDoubtPolicy::Retry);
    assert_eq!(parked().after(start(), &route, NOW), Err(InvalidStepError));
    let aside = event().after(EventStep::Suspend { lasts: LEASE }, &route, NOW).expect("it waits");
    assert_eq!((aside.queue_state, aside.wants_slot()), (QueueState::Suspended, false));
    assert_eq!(aside.after(start(), &route, NOW), Err(InvalidStepError));
    let back = aside.after(EventStep::Unsuspend, &route, NOW).expect("it is suspended");
    assert!(back.wants_slot() && !back.owed_first_attempt());
    assert!(back.after(start(), &route, NOW).is_ok());
}

#[test]
fn a_parked_event_counts_no_attempt_and_is_due_once_it_gets_the_slot() {
    let route = route(1, InDoubtPolicy::Hold);
    let running = event().after(start(), &route, NOW).expect("it is due");
    let renew = EventStep::Renew { lasts: LEASE, blocks: SucceededBlocks(1) };
    for event in [event(), parked(), running.clone(), running.after(renew, &route, NOW).expect("it runs")] {
        let parked = event.after(EventStep::Park, &route, NOW).expect("it wants its slot");
        assert_eq!((&parked.state, parked.attempt), (&EventState::Waiting { due: None }, 0));
        assert!(parked.owed_first_attempt() && parked.has_consistent_counts());
        let later = NOW + LEASE;
        let due = parked.after(EventStep::Unpark, &route, later).expect("it is parked");
        assert_eq!(due.state, EventState::Waiting { due: Some(later) });
        assert_eq!(due.after(EventStep::Unpark, &route, later), Err(InvalidStepError), "it has the slot");
    }
    assert_eq!(running.after(EventStep::Unpark, &route, NOW), Err(InvalidStepError));
    let aside = event().after(EventStep::Suspend { lasts: LEASE }, &route, NOW).expect("it waits");
    assert_eq!(aside.after(EventStep::Park, &route, NOW), Err(InvalidStepError), "it waits without its slot");
    let done = tried(event(), [Outcome::Delivered(None)], &route);
    assert_eq!(done.after(EventStep::Park, &route, NOW), Err(InvalidStepError));
}

#[test]
fn an_event_started_by_its_claim_equals_one_started_right_after() {
    let route = route(1, InDoubtPolicy::Retry);
    let mut at_once = event();
    at_once.start_at_claim(LEASE, NodeId("n1".into()), ActionKind::Run);
    let started = event().after(start(), &route, NOW).expect("it is due");
    assert_eq!(at_once, Event { revision: Revision::FIRST, ..started });
    let recorded = Event { state: EventState::Done { how: DoneReason::Recorded, at: NOW }, ..event() };
    let mut still = recorded.clone();
    still.start_at_claim(LEASE, NodeId("n1".into()), ActionKind::Run);
    assert_eq!(still, recorded);
}

#[test]
fn an_unreadable_event_ends_as_damaged_and_one_that_ended_otherwise_stays_as_it_is() {
    let route = route(1, InDoubtPolicy::Retry);
    let damaged = |at| EventState::Dead { cause: DeathCause::Damaged, at };
    let on_sight = Event { state: damaged(NOW), ..event() };
    let ended =
        on_sight.after(EventStep::Damage, &route, NOW + LEASE).expect("it counts as dead, and that is not written yet");
    assert_eq!((ended.state, ended.revision), (damaged(NOW + LEASE), Revision::FIRST.next()));
    for cause in DeathCause::ALL {
        let dead = Event { state: EventState::Dead { cause, at: NOW }, ..event() };
        assert_eq!(dead.after(EventStep::Damage, &route, NOW).is_ok(), cause == DeathCause::Damaged, "{cause:?}");
    }
    let done = tried(event(), [Outcome::Delivered(None)], &route);
    assert_eq!(done.after(EventStep::Damage, &route, NOW), Err(InvalidStepError));
}

#[test]
fn the_next_attempt_honours_retry_after_up_to_a_day() {
    let asked = |seconds| Outcome::Failed {
        why: String::new(),
        retry_after: Some(Duration::from_secs(seconds)),
        receipt: None,
    };
    for (seconds, expected) in [(500, 500), (1, 10), (10_000_000, 86_400)] {
        let waiting = tried(event(), [asked(seconds)], &route(2, InDoubtPolicy::Retry));
        let wait = waiting.state.wake_at().expect("it is due some time").since(NOW);
        assert!(wait.abs_diff(Duration::from_secs(expected)) < Duration::from_millis(1), "{seconds}: {wait:?}");
    }
}

#[test]
fn receivers_get_another_idempotency_key_for_each_life() {
    let route = route(1, InDoubtPolicy::Retry);
    let done = tried(event(), [Outcome::Delivered(None)], &route);
    let second = done.after(EventStep::Replay, &route, NOW).expect("it is done");
    let third = tried(second.clone(), [failed()], &route).after(EventStep::Replay, &route, NOW).expect("it is dead");
    let id = event().id.to_string();
    assert_eq!(event().idempotency_key(), id);
    assert_eq!(second.idempotency_key(), format!("{id}.2"));
    assert_eq!(third.idempotency_key(), format!("{id}.3"));
}

#[test]
fn the_digest_covers_what_never_changes_and_nothing_else() {
    let other = SubjectChange { subject: Key([9; 32]), ..event().change.expect("it is a change") };
    let another = SubjectChange { value: Digest([9; 32]), ..other };
    let fields: StoredFields = [("tag".into(), FieldValue::Text("main".into()))].into_iter().collect();
    let typed: StoredFields = [("tag".into(), FieldValue::Number("1".into()))].into_iter().collect();
    let texted: StoredFields = [("tag".into(), FieldValue::Text("1".into()))].into_iter().collect();
    let sealed = [
        Event { id: EventId([8; 16]), ..event() },
        Event { source: "other".into(), ..event() },
        Event { route: "other".into(), ..event() },
        Event { part: 1, ..event() },
        Event { fields, ..event() },
        Event { fields: typed, ..event() },
        Event { fields: texted, ..event() },
        Event { fields: StoredFields::default(), ..event() },
        Event { received_at: NOW + LEASE, ..event() },
        Event { group: Some(Key([9; 32])), ..event() },
        Event { group: None, ..event() },
        Event { change: Some(other), ..event() },
        Event { change: Some(another), ..event() },
        Event { change: None, ..event() },
        Event { body_digest: Digest([9; 32]), ..event() },
    ];
    let mut seals: Vec<_> = sealed.iter().map(Event::immutable_digest).collect();
    seals.push(event().immutable_digest());
    seals.sort();
    seals.dedup();
    assert_eq!(seals.len(), sealed.len() + 1, "each of these has a digest of its own");
    let moved_forward = SubjectChange { order: Some(99), ..event().change.expect("it is a change") };
    let free = [
        Event { revision: Revision(9), ..event() },
        Event { state: EventState::Dead { cause: DeathCause::Failed, at: NOW }, ..event() },
        Event { life: 9, attempt: 9, doubts: 9, blocks: SucceededBlocks(9), ..event() },
        Event { queue_state: QueueState::Requeued, turn: QueueTurn(9), retrier: RetryOwner::Node, ..event() },
        Event { change: Some(moved_forward), ..event() },
    ];
    assert!(free.iter().all(|event| event.immutable_digest() == event.digest));
}

#[test]
fn supersession_is_checked_once_the_first_attempt_is_no_longer_owed() {
    let route = route(3, InDoubtPolicy::Retry);
    let asks = |event: &Event, step: EventStep, now| {
        event.transition(step, &route, now).expect("it is possible").if_superseded.is_some()
    };
    let fresh = event();
    let running = fresh.after(start(), &route, NOW).expect("it is due");
    let waiting = running.after(settle(failed()), &route, NOW).expect("it runs");
    let dead = tried(fresh.clone(), [rejected()], &route);
    let aside = fresh.after(EventStep::Suspend { lasts: LEASE }, &route, NOW).expect("it waits");
    assert!(!asks(&fresh, start(), NOW), "the first attempt always runs");
    assert!(!asks(&running, settle(Outcome::Delivered(None)), NOW), "an event that acted stays done");
    assert!(!asks(&dead, EventStep::Replay, NOW), "a replay makes it the newest");
    assert!(asks(&waiting, start(), NOW));
    assert!(asks(&running, settle(failed()), NOW));
    assert!(asks(&running, settle(unknown()), NOW));
    assert!(asks(&running, EventStep::Expire { jitter: Jitter(0) }, NOW + LEASE));
    assert!(asks(&dead, EventStep::Rearm, NOW) && asks(&dead, EventStep::Resume, NOW));
    assert!(asks(&aside, EventStep::Unsuspend, NOW));
    let plain = Event { change: None, ..waiting };
    assert!(!asks(&plain, start(), NOW), "it is no change of a subject");
}

#[test]
fn a_transition_is_written_by_the_stores_clock_and_names_the_successor() {
    let route = route(3, InDoubtPolicy::Retry);
    let waiting = tried(event(), [failed()], &route);
    let change = waiting.transition(start(), &route, NOW).expect("it is due");
    let theirs = NOW + Duration::from_hours(1);
    let by = EventId([9; 16]);
    let current = change.resolve(Some(waiting.id), theirs);
    assert_eq!(
        current.state,
        EventState::Running { until: theirs + LEASE, by: NodeId("n1".into()), action: Some(ActionKind::Run) }
    );
    assert_eq!(change.resolve(None, theirs), current);
    let overtaken = change.resolve(Some(by), theirs);
    assert_eq!(overtaken.state, EventState::Done { how: DoneReason::Superseded { by }, at: theirs });
    assert_eq!((overtaken.revision, overtaken.attempt), (current.revision, waiting.attempt));
}

#[test]
fn only_steps_that_bring_an_event_back_change_its_queue_position() {
    let route = route(1, InDoubtPolicy::Retry);
    let dead = tried(event(), [failed()], &route);
    let place = |event: &Event, step| event.transition(step, &route, NOW).expect("it is possible").place;
    assert_eq!(place(&dead, EventStep::Rearm), QueuePositionUpdate::MoveToEnd);
    assert_eq!(place(&dead, EventStep::Resume), QueuePositionUpdate::MoveToEnd);
    assert_eq!(place(&dead, EventStep::Replay), QueuePositionUpdate::BecomeCurrent);
    assert_eq!(place(&event(), start()), QueuePositionUpdate::Unchanged);
    assert_eq!(place(&event(), EventStep::Cancel), QueuePositionUpdate::Unchanged);
    assert_eq!(place(&event(), EventStep::Accept), QueuePositionUpdate::Unchanged);
}

#[test]
fn a_response_is_kept_whatever_its_status() {
    let receipt = Receipt { status: 410, headers: Vec::new(), body: b"gone".to_vec(), truncated: false };
    let route = route(1, InDoubtPolicy::Retry);
    let running = event().after(start(), &route, NOW).expect("it is due");
    for outcome in [
        Outcome::Delivered(Some(receipt.clone())),
        Outcome::Failed { why: String::new(), retry_after: None, receipt: Some(receipt.clone()) },
        Outcome::Rejected { why: String::new(), receipt: Some(receipt.clone()) },
    ] {
        let change = running.transition(settle(outcome), &route, NOW).expect("it runs");
        assert_eq!(change.receipt, ReceiptUpdate::Replace(Some(receipt.clone())));
    }
    let half = Outcome::TimedOut { why: String::new(), answered: Some(receipt) };
    for unknown in [unknown(), timed_out(), half] {
        assert_eq!(
            running.transition(settle(unknown), &route, NOW).expect("it runs").receipt,
            ReceiptUpdate::Replace(None)
        );
    }
}

#[test]
fn the_lease_of_an_orphan_ends_at_once_only_if_its_action_ended_with_its_node() {
    let route = route(3, InDoubtPolicy::Retry);
    let later = NOW + LEASE / 3;
    for action in ActionKind::ALL {
        let begin = EventStep::Start { lasts: LEASE, by: NodeId("n1".into()), action };
        let running = event().after(begin, &route, NOW).expect("it is due");
        let orphan = running.after(EventStep::Orphan, &route, later);
        if !action.ends_with_its_node() {
            assert_eq!(orphan, Err(InvalidStepError), "{action:?}");
            continue;
        }
        let orphan = orphan.expect("it ended with its node");
        let state = EventState::Running { until: later, by: NodeId("n1".into()), action: Some(action) };
        assert_eq!((&orphan.state, orphan.attempt, orphan.doubts), (&state, 1, 0));
        assert_eq!(orphan.after(EventStep::Orphan, &route, later), Err(InvalidStepError), "its lease is over");
        let expired = orphan.after(EventStep::Expire { jitter: Jitter(0) }, &route, later).expect("its lease is over");
        assert_eq!((expired.state.word(), expired.doubts), ("waiting", 1));
    }
    let mut old = event().after(start(), &route, NOW).expect("it is due");
    old.state = EventState::Running { until: NOW + LEASE, by: NodeId("n1".into()), action: None };
    assert_eq!(
        old.after(EventStep::Orphan, &route, later),
        Err(InvalidStepError),
        "the first release did not record the kind of action"
    );
}
