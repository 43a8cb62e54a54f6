//! A sender, nodes that crash, and a clock: whatever happens, what was missed is asked for, and little else.

use super::*;
use crate::decide::field::{Field, FieldLocation, FieldSet};
use crate::decide::filter::Filter;
use crate::decide::source::{Route, Source};
use crate::decide::verify::VerificationScheme;
use proptest::prelude::*;
use std::sync::Arc;

const POLICY: CatchUpPolicy = CatchUpPolicy {
    every: Duration::from_hours(1),
    back: Duration::from_hours(1000),
    requests_per_hour: 40,
    pause: Duration::from_secs(1),
};
const PAGE: usize = 5;

fn at(second: u64) -> Timestamp {
    Timestamp(1_000_000_000_000) + Duration::from_secs(second)
}

/// A sender and its attempts, the oldest first.
#[derive(Default)]
struct FakeSender {
    attempts: Vec<ListedAttempt>,
    /// Each delivery that was asked for, and when.
    asked: Vec<(String, Timestamp)>,
    requests: Vec<Timestamp>,
    /// Deliveries that fail each time.
    hopeless: Vec<String>,
}

impl FakeSender {
    fn add(&mut self, delivery: &str, now: Timestamp, is_redelivery: bool, is_accepted: bool) {
        let id = self.attempts.len() as u64 + 1;
        let delivery = delivery.to_owned();
        let kind = Some(if delivery.starts_with('x') { "other" } else { "wanted" }.to_owned());
        let (at, action) = (Some(now), None);
        self.attempts.push(ListedAttempt { id, delivery, at, kind, action, is_redelivery, is_accepted });
    }

    fn perform(&mut self, step: &CatchUpStep, now: Timestamp) -> CatchUpResult {
        self.requests.push(now);
        match step {
            CatchUpStep::Wait(_) => unreachable!("nothing is performed"),
            CatchUpStep::Redeliver(missed) => {
                self.asked.push((missed.delivery.clone(), now));
                let accepted = !self.hopeless.contains(&missed.delivery);
                self.add(&missed.delivery, now, true, accepted);
                CatchUpResult::Asked
            }
            CatchUpStep::List { cursor, etag } => {
                let etag_now = self.attempts.len().to_string();
                if etag.as_ref() == Some(&etag_now) {
                    return CatchUpResult::Unchanged;
                }
                let before = cursor.as_ref().map_or(u64::MAX, |text| text.parse().unwrap());
                let rest: Vec<_> = self.attempts.iter().rev().filter(|one| one.id < before).cloned().collect();
                let attempts: Vec<_> = rest.iter().take(PAGE).cloned().collect();
                let next = (rest.len() > PAGE).then(|| attempts[PAGE - 1].id.to_string());
                CatchUpResult::Listed(ListedPage { attempts, next, etag: Some(etag_now) })
            }
        }
    }
}

fn wanted(attempt: &ListedAttempt) -> bool {
    attempt.kind.as_deref() == Some("wanted")
}

/// What happens to a node in one round.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Works,
    /// It is killed after its request, before the result is written, and starts again.
    Dies,
    /// The request fails.
    Fails,
    /// The position in the list is no longer known.
    LosesPosition,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![12 => Just(Fate::Works), 1 => Just(Fate::Dies), 1 => Just(Fate::Fails), 1 => Just(Fate::LosesPosition)]
}

/// Lets a node work for some days, and another one each time it dies; returns the time, and how often one died.
fn work(sender: &mut FakeSender, state: &mut String, fates: &[Fate], mut now: Timestamp) -> (Timestamp, usize) {
    let (mut fates, mut deaths, mut rounds) = (fates.iter().cycle(), 0, 0);
    let end = now + Duration::from_hours(80);
    while now < end {
        rounds += 1;
        assert!(rounds < 100_000, "it never ends: {state}");
        let node = if deaths % 2 == 0 { "a" } else { "b" };
        let kept = CatchUpState::read(Some(state));
        assert_eq!(kept.text(), *state, "a state is read as it was written");
        let step = kept.next_step(&POLICY, node, now);
        if let CatchUpStep::Wait(until) = step {
            assert!(until > now, "it never waits for what is past");
            now = until;
            continue;
        }
        if !kept.is_held_by(node, now) {
            *state = kept.taken_by(node, now).text();
            continue;
        }
        let fate = *fates.next().unwrap_or(&Fate::Works);
        let result = match (fate, &step) {
            (Fate::Fails, _) => {
                sender.requests.push(now);
                CatchUpResult::Failed { retry_after: None }
            }
            (Fate::LosesPosition, CatchUpStep::List { cursor: Some(_), .. }) => {
                sender.requests.push(now);
                CatchUpResult::PositionLost
            }
            _ => sender.perform(&step, now),
        };
        now = now + Duration::from_millis(100);
        if fate == Fate::Dies {
            deaths += 1;
            *state = kept.requested(now).text();
            continue;
        }
        *state = kept.after(&POLICY, result, wanted, now, Jitter(0)).text();
    }
    (now, deaths)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_fails_or_dies_each_missed_delivery_is_asked_for_and_nothing_else_and_never_too_often(
        // For each delivery: does a route want it, was it accepted, is it hopeless?
        deliveries in proptest::collection::vec((any::<bool>(), any::<bool>(), proptest::bool::weighted(0.1)), 0..60),
        later in proptest::collection::vec((any::<bool>(), any::<bool>()), 0..20),
        fates in proptest::collection::vec(fate(), 1..30),
    ) {
        let fates: Vec<_> = fates.into_iter().chain([Fate::Works; 3]).collect();
        let (mut sender, mut state) = (FakeSender::default(), CatchUpState::default().requested(at(0)).text());
        let (mut missed, mut hopeless) = (Vec::new(), Vec::new());
        for (n, (is_wanted, accepted, fails)) in deliveries.into_iter().enumerate() {
            let name = format!("{}{n:03}", if is_wanted { "w" } else { "x" });
            sender.add(&name, at(0) - Duration::from_hours(50) + Duration::from_mins(n as u64), false, accepted);
            if is_wanted && !accepted {
                if fails { &mut hopeless } else { &mut missed }.push(name);
            }
        }
        sender.hopeless = hopeless.clone();
        let (now, deaths) = work(&mut sender, &mut state, &fates, at(0));
        for (n, (is_wanted, accepted)) in later.into_iter().enumerate() {
            let name = format!("{}l{n:03}", if is_wanted { "w" } else { "x" });
            sender.add(&name, now + Duration::from_secs(n as u64), false, accepted);
            if is_wanted && !accepted {
                missed.push(name);
            }
        }
        let now = now + Duration::from_mins(1);
        state = CatchUpState::read(Some(&state)).requested(now).text();
        let (_, more) = work(&mut sender, &mut state, &[Fate::Works], now);
        let deaths = deaths + more;
        let times = |name: &String| sender.asked.iter().filter(|(asked, _)| asked == name).count();
        prop_assert!(missed.iter().all(|name| times(name) >= 1), "{:?} {:?}", missed, sender.asked);
        let bound = CATCH_UP_ASKS_MAX as usize;
        prop_assert!(hopeless.iter().all(|name| (1..=bound + deaths).contains(&times(name))), "{:?}", sender.asked);
        prop_assert!(sender.asked.iter().all(|(name, _)| missed.contains(name) || hopeless.contains(name)));
        prop_assert!(missed.iter().map(times).sum::<usize>() <= missed.len() + deaths);
        for (n, first) in sender.requests.iter().enumerate() {
            let last = sender.requests.get(n + 2 * (POLICY.requests_per_hour as usize + deaths));
            prop_assert!(last.is_none_or(|last| last.since(*first) >= HOUR), "too many requests in an hour");
        }
    }
}

#[test]
fn deliveries_are_asked_for_oldest_first_with_pauses() {
    let (mut sender, mut state) = (FakeSender::default(), CatchUpState::default().requested(at(0)).text());
    for n in 0..23 {
        sender.add(&format!("w{n:02}"), at(0) - Duration::from_hours(2) + Duration::from_secs(n), false, false);
    }
    work(&mut sender, &mut state, &[Fate::Works], at(0));
    let names: Vec<_> = sender.asked.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, (0..23).map(|n| format!("w{n:02}")).collect::<Vec<_>>());
    assert!(sender.asked.windows(2).all(|two| two[1].1.since(two[0].1) >= POLICY.pause));
}

#[test]
fn a_request_that_fails_is_made_again_later_and_later_or_as_the_sender_asks() {
    let failed = |retry_after| CatchUpResult::Failed { retry_after };
    let mut state = CatchUpState::default().taken_by("a", at(0));
    let mut waits = Vec::new();
    for _ in 0..10 {
        let CatchUpStep::Wait(until) =
            state.clone().after(&POLICY, failed(None), wanted, at(0), Jitter(0)).next_step(&POLICY, "a", at(0))
        else {
            panic!("it does not wait")
        };
        waits.push(until.since(at(0)).as_secs());
        state = state.after(&POLICY, failed(None), wanted, at(0), Jitter(0));
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600]);
    let asked = state.after(&POLICY, failed(Some(Duration::from_secs(7))), wanted, at(0), Jitter(0));
    assert_eq!(asked.next_step(&POLICY, "a", at(0)), CatchUpStep::Wait(at(7)));
}

#[test]
fn after_an_outage_the_list_is_read_twice_and_then_on_schedule() {
    let (mut sender, mut state) = (FakeSender::default(), CatchUpState::default().requested(at(0)).text());
    work(&mut sender, &mut state, &[Fate::Works], at(0));
    let times: Vec<_> = sender.requests.iter().map(|time| time.since(at(0)).as_secs()).take(4).collect();
    assert_eq!(times, [0, 120, 120 + 3600, 120 + 7200]);
}

#[test]
fn what_cannot_be_read_begins_anew() {
    for text in [None, Some(""), Some("{"), Some("[]"), Some("{\"run\":7}")] {
        assert_eq!(CatchUpState::read(text), CatchUpState::default());
    }
}

#[test]
fn only_kinds_and_actions_that_some_route_could_want_matter() {
    let field = Field::at;
    let fields = FieldSet::new(
        vec![
            field("kind", FieldLocation::Header("x-github-event".into())),
            field("action", FieldLocation::Body(vec!["action".into()])),
            field("tag", FieldLocation::Body(vec!["tag".into()])),
        ],
        None,
    );
    let check = |when: &str, routes: &[&str], kind: &str, action: Option<&str>, expected: bool| {
        let filter = |text: &str| Filter::parse(text, &fields).unwrap();
        let route = |text: &&str| Arc::new(Route { when: Some(filter(text)), ..Route::default() });
        let mut source = Source { fields: fields.clone(), ..Source::new("s", VerificationScheme::none()) };
        source.when = (!when.is_empty()).then(|| filter(when));
        if !routes.is_empty() {
            source.routes = routes.iter().map(route).collect();
        }
        let mut sender = FakeSender::default();
        sender.add("d", at(0), false, false);
        let attempt =
            ListedAttempt { kind: Some(kind.into()), action: action.map(str::to_owned), ..sender.attempts.remove(0) };
        let got = attempt.may_matter(&source, "x-github-event");
        assert_eq!(got, expected, "{when} {routes:?} {kind} {action:?}");
    };
    check("", &[], "push", None, true);
    check("kind == \"push\"", &[], "push", None, true);
    check("kind == \"push\"", &[], "issues", None, false);
    check("kind in [\"push\", \"release\"] && tag == \"v1\"", &[], "release", None, true);
    check("kind in [\"push\", \"release\"] && tag == \"v1\"", &[], "issues", None, false);
    check("kind != \"push\" || tag == \"v1\"", &[], "push", None, true);
    check("!(kind == \"push\" || tag == \"v1\")", &[], "push", None, false);
    check(
        "",
        &["kind == \"push\"", "kind == \"release\" && action == \"published\""],
        "release",
        Some("created"),
        false,
    );
    check(
        "",
        &["kind == \"push\"", "kind == \"release\" && action == \"published\""],
        "release",
        Some("published"),
        true,
    );
    check("", &["kind == \"push\"", "kind == \"release\" && action == \"published\""], "release", None, true);
}
