//! When a registry that is polled is asked next, and when what it said is old enough to be acted on.
//!
//! The state of a polled tag is a value, to be kept in the store, so that a restart or another node continues from it.
//! An image's own date can be forged, so that its age counts from when its digest was first seen here.

use super::image_reference::ManifestDigest;
use super::limits::{POLL_DIGESTS_MAX, POLL_WAIT_LONGEST, RETRY_AFTER_MAX};
use super::retry::Jitter;
use super::time::{Duration, Timestamp};
use serde_json::{Value, json};

/// How often a tag is asked for, and how long a new digest waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollPolicy {
    /// Minimum time between two questions.
    pub every: Duration,
    /// Minimum age of a digest before it is acted on.
    pub min_age: Duration,
}

/// The result of one question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PollResult {
    /// The tag points to this digest.
    Digest(ManifestDigest),
    /// The registry has no such tag.
    NotFound,
    /// The registry did not answer, or allows no more requests for now.
    Failed {
        /// How long it asked to wait.
        retry_after: Option<Duration>,
    },
}

/// What is known of a polled tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PollState {
    /// When it is asked for next.
    pub next_at: Timestamp,
    /// When it was last asked for.
    pub asked_at: Option<Timestamp>,
    /// Until when one node alone asks or acts. What is due then is for any node: that one may have died.
    pub held_until: Option<Timestamp>,
    /// Questions in a row that failed.
    pub failures: u32,
    /// What it points to, as last heard.
    pub current: Option<ManifestDigest>,
    /// When it was first heard that it points to that, and to nothing else since: later for each change.
    pub changed_at: Timestamp,
    /// What an event was last made for.
    pub acted_on: Option<ManifestDigest>,
    /// The digests seen last, each with the time when it was first seen; the oldest first.
    pub seen: Vec<(ManifestDigest, Timestamp)>,
}

/// What is to be done about a polled tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PollStep {
    /// Ask the registry.
    Ask,
    /// Act on this digest.
    Act(ManifestDigest),
    /// Nothing until then.
    Wait(Timestamp),
}

impl PollState {
    /// The state of a tag that was never asked for. The first question comes within a tenth of the interval, so that
    /// tags which are added together are not asked for together.
    pub fn new(policy: &PollPolicy, now: Timestamp, jitter: Jitter) -> Self {
        let next_at = now + jitter.share(policy.every / 10);
        Self {
            next_at,
            asked_at: None,
            held_until: None,
            failures: 0,
            current: None,
            changed_at: Timestamp(0),
            acted_on: None,
            seen: Vec::new(),
        }
    }

    /// The state while one node asks or acts.
    #[must_use]
    pub fn held(self, until: Timestamp) -> Self {
        Self { held_until: Some(until), ..self }
    }

    /// The state after a question.
    #[must_use]
    pub fn after(mut self, policy: &PollPolicy, result: PollResult, now: Timestamp, jitter: Jitter) -> Self {
        let mut wait = policy.every;
        match result {
            PollResult::Digest(digest) => {
                self.failures = 0;
                self.see(&digest, now);
                if self.current.as_ref() != Some(&digest) {
                    self.changed_at = now.max(self.changed_at + Duration::from_micros(1));
                }
                self.current = Some(digest);
            }
            PollResult::NotFound => {
                self.failures = 0;
                self.current = None;
            }
            PollResult::Failed { retry_after } => {
                self.failures = self.failures.saturating_add(1);
                let doubled = policy.every.saturating_mul(2_u32.saturating_pow(self.failures - 1));
                wait = doubled.min(POLL_WAIT_LONGEST.max(policy.every));
                wait = wait.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX));
            }
        }
        self.next_at = now + wait + jitter.share(wait / 10);
        (self.asked_at, self.held_until) = (Some(now), None);
        self
    }

    /// Remembers when a digest was first seen. The oldest of too many is forgotten, but never what was acted on.
    fn see(&mut self, digest: &ManifestDigest, now: Timestamp) {
        if self.seen.iter().any(|(known, _)| known == digest) {
            return;
        }
        if self.seen.len() >= POLL_DIGESTS_MAX {
            let oldest = self.seen.iter().position(|(known, _)| Some(known) != self.acted_on.as_ref());
            self.seen.remove(oldest.unwrap_or_default());
        }
        self.seen.push((digest.clone(), now));
    }

    /// The digest that is to be acted on, and when it is old enough; `None` if there is nothing new.
    pub fn pending(&self, policy: &PollPolicy) -> Option<(&ManifestDigest, Timestamp)> {
        let current = self.current.as_ref().filter(|current| Some(*current) != self.acted_on.as_ref())?;
        let (digest, first_seen) = self.seen.iter().find(|(known, _)| known == current)?;
        Some((digest, *first_seen + policy.min_age))
    }

    /// The state once an event was made for this digest.
    #[must_use]
    pub fn acted(self, digest: ManifestDigest) -> Self {
        Self { acted_on: Some(digest), held_until: None, ..self }
    }

    /// What is to be done now. A digest is acted on only if the last question confirmed it, and no question is due: a
    /// node that was off asks first.
    pub fn next_step(&self, policy: &PollPolicy, now: Timestamp) -> PollStep {
        if let Some(until) = self.held_until.filter(|until| *until > now) {
            return PollStep::Wait(until);
        }
        let due = self.due(policy);
        if due <= now {
            return PollStep::Ask;
        }
        match self.pending(policy).filter(|_| self.failures == 0) {
            Some((digest, old_enough)) if old_enough <= now => PollStep::Act(digest.clone()),
            Some((_, old_enough)) => PollStep::Wait(old_enough.min(due)),
            None => PollStep::Wait(due),
        }
    }

    /// When it is asked for next: sooner than planned, if it is now to be asked for more often.
    fn due(&self, policy: &PollPolicy) -> Timestamp {
        match self.asked_at.filter(|_| self.failures == 0) {
            Some(asked_at) => self.next_at.min(asked_at + policy.every + policy.every / 10),
            None => self.next_at,
        }
    }

    /// As JSON, for the store.
    pub fn to_json(&self) -> String {
        let seen: Vec<_> = self.seen.iter().map(|(digest, at)| json!([digest.as_str(), at.0])).collect();
        json!({
            "next_at": self.next_at.0,
            "asked_at": self.asked_at.map(|at| at.0),
            "held_until": self.held_until.map(|at| at.0),
            "failures": self.failures,
            "current": self.current.as_ref().map(ManifestDigest::as_str),
            "changed_at": self.changed_at.0,
            "acted_on": self.acted_on.as_ref().map(ManifestDigest::as_str),
            "seen": seen,
        })
        .to_string()
    }

    /// Reads [`PollState::to_json`]; `None` if it is not one.
    pub fn from_json(text: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(text).ok()?;
        let time = |value: &Value| value.as_i64().map(Timestamp);
        let digest = |value: &Value| ManifestDigest::parse(value.as_str()?).ok();
        let seen = all["seen"].as_array()?.iter().map(|one| Some((digest(&one[0])?, time(&one[1])?)));
        Some(Self {
            next_at: time(&all["next_at"])?,
            asked_at: time(&all["asked_at"]),
            held_until: time(&all["held_until"]),
            failures: u32::try_from(all["failures"].as_u64()?).ok()?,
            current: digest(&all["current"]),
            changed_at: time(&all["changed_at"])?,
            acted_on: digest(&all["acted_on"]),
            seen: seen.collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn digest(n: u8) -> ManifestDigest {
        ManifestDigest::of(&[n])
    }

    fn policy(every: u64, min_age: u64) -> PollPolicy {
        PollPolicy { every: Duration::from_secs(every), min_age: Duration::from_secs(min_age) }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp(0) + Duration::from_secs(second)
    }

    /// Asks each time it is due, as `answer` says for the second; returns what was acted on, and when.
    fn run(policy: &PollPolicy, seconds: u64, answer: impl Fn(u64) -> PollResult) -> Vec<(u64, ManifestDigest)> {
        let mut state = PollState::new(policy, at(0), Jitter(0));
        let (mut now, mut acted) = (0, Vec::new());
        while now <= seconds {
            match state.next_step(policy, at(now)) {
                PollStep::Ask => state = state.after(policy, answer(now), at(now), Jitter(0)),
                PollStep::Act(digest) => {
                    acted.push((now, digest.clone()));
                    state = state.acted(digest);
                }
                PollStep::Wait(until) => {
                    assert!(until > at(now), "it never waits for what is due");
                    now += 1;
                }
            }
        }
        acted
    }

    #[test]
    fn each_new_digest_is_acted_on_once_when_it_is_old_enough() {
        let answer = |second| PollResult::Digest(digest(u8::from(second >= 100)));
        assert_eq!(run(&policy(10, 0), 200, answer), [(0, digest(0)), (100, digest(1))]);
        assert_eq!(run(&policy(10, 25), 200, answer), [(25, digest(0)), (125, digest(1))]);
    }

    #[test]
    fn a_digest_that_is_replaced_before_it_is_old_enough_is_never_acted_on() {
        // 1 for twenty seconds, in the middle of 0.
        let answer = |second| PollResult::Digest(digest(u8::from((100..120).contains(&second))));
        assert_eq!(run(&policy(10, 60), 500, answer), [(60, digest(0))]);
    }

    #[test]
    fn a_roll_back_to_what_was_seen_long_ago_does_not_wait() {
        let answer = |second| PollResult::Digest(digest(u8::from((100..300).contains(&second))));
        assert_eq!(run(&policy(10, 60), 500, answer), [(60, digest(0)), (160, digest(1)), (300, digest(0))]);
    }

    #[test]
    fn a_tag_that_is_gone_for_a_while_is_not_new_when_it_is_back() {
        let answer = |second| match second {
            100..=200 => PollResult::NotFound,
            _ => PollResult::Digest(digest(0)),
        };
        assert_eq!(run(&policy(10, 0), 500, answer), [(0, digest(0))]);
    }

    #[test]
    fn nothing_is_acted_on_while_the_registry_does_not_confirm_it() {
        let answer = |second| match second {
            0 => PollResult::Digest(digest(0)),
            1..200 => PollResult::Failed { retry_after: None },
            _ => PollResult::Digest(digest(1)),
        };
        let acted = run(&policy(10, 60), 1000, answer);
        assert!(acted.len() == 1 && acted[0].1 == digest(1) && acted[0].0 >= 260, "{acted:?}");
    }

    #[test]
    fn a_registry_that_fails_is_asked_less_and_less_often_and_as_it_asks() {
        let policy = policy(60, 0);
        let mut state = PollState::new(&policy, at(0), Jitter(0));
        let mut waits = Vec::new();
        for _ in 0..9 {
            let now = state.next_at;
            state = state.after(&policy, PollResult::Failed { retry_after: None }, now, Jitter(0));
            waits.push(state.next_at.since(now).as_secs() / 60);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let wait = |retry_after: Duration| {
            let result = PollResult::Failed { retry_after: Some(retry_after) };
            let state = PollState::new(&policy, at(0), Jitter(0)).after(&policy, result, at(0), Jitter(0));
            state.next_at.since(at(0))
        };
        assert_eq!(wait(Duration::from_secs(1)), MINUTE, "never sooner than usual");
        assert_eq!(wait(MINUTE * 30), MINUTE * 30);
        assert_eq!(wait(Duration::MAX), RETRY_AFTER_MAX);
    }

    #[test]
    fn what_one_node_holds_is_left_to_it_until_it_may_have_died() {
        let policy = policy(60, 0);
        let state = PollState::new(&policy, at(0), Jitter(0));
        let held = state.clone().held(at(13));
        assert_eq!(held.next_step(&policy, at(12)), PollStep::Wait(at(13)));
        assert_eq!(held.next_step(&policy, at(13)), PollStep::Ask, "nothing was written: it is asked again");
        let heard = held.after(&policy, PollResult::Digest(digest(1)), at(1), Jitter(0));
        assert_eq!(heard.next_step(&policy, at(1)), PollStep::Act(digest(1)));
        let held = heard.held(at(14));
        assert_eq!(held.next_step(&policy, at(2)), PollStep::Wait(at(14)));
        assert_eq!(held.next_step(&policy, at(14)), PollStep::Act(digest(1)), "it is not lost");
        assert_eq!(held.acted(digest(1)).next_step(&policy, at(14)), PollStep::Wait(at(61)));
    }

    #[test]
    fn each_change_is_later_than_the_one_before_even_if_the_clock_is_not() {
        let policy = policy(10, 0);
        let mut state = PollState::new(&policy, at(100), Jitter(0));
        let mut changes = Vec::new();
        for (n, second) in [(0, 100), (0, 110), (1, 120), (0, 90), (1, 90)] {
            state = state.after(&policy, PollResult::Digest(digest(n)), at(second), Jitter(0));
            changes.push(state.changed_at.0 - at(0).0);
        }
        assert_eq!(changes, [100_000_000, 100_000_000, 120_000_000, 120_000_001, 120_000_002]);
    }

    #[test]
    fn a_shorter_interval_counts_at_once() {
        let state = PollState::new(&policy(86_400, 0), at(0), Jitter(0));
        let state = state.after(&policy(86_400, 0), PollResult::NotFound, at(0), Jitter(0));
        assert_eq!(state.next_step(&policy(86_400, 0), at(70)), PollStep::Wait(at(86_400)));
        assert_eq!(state.next_step(&policy(60, 0), at(70)), PollStep::Ask);
    }

    #[test]
    fn what_is_not_a_state_is_none() {
        for text in ["", "{}", "[]", r#"{"next_at":1,"failures":0,"changed_at":0,"seen":[["x",1]]}"#] {
            assert_eq!(PollState::from_json(text), None, "{text}");
        }
    }

    fn results() -> impl Strategy<Value = Vec<(PollResult, u32, u64)>> {
        let result = prop_oneof![
            3 => (0_u8..40).prop_map(|n| PollResult::Digest(digest(n))),
            1 => Just(PollResult::NotFound),
            1 => proptest::option::of(0_u64..u64::MAX).prop_map(|wait| {
                PollResult::Failed { retry_after: wait.map(Duration::from_secs) }
            }),
        ];
        proptest::collection::vec((result, any::<u32>(), 0_u64..1000), 1..100)
    }

    proptest! {
        #[test]
        fn no_history_asks_too_often_waits_for_ever_acts_too_early_or_remembers_too_much(
            results in results(), every in 1_u64..5000, min_age in 0_u64..5000,
        ) {
            let policy = policy(every, min_age);
            let mut state = PollState::new(&policy, at(0), Jitter(0));
            let mut first_seen = std::collections::HashMap::new();
            for (result, jitter, late) in results {
                let now = state.next_at + Duration::from_secs(late);
                if let PollResult::Digest(digest) = &result {
                    first_seen.entry(digest.clone()).or_insert(now);
                }
                state = state.after(&policy, result, now, Jitter(jitter));
                let kept = PollState::from_json(&state.to_json());
                prop_assert_eq!(kept.as_ref(), Some(&state));
                let wait = state.next_at.since(now);
                let longest = policy.every.max(RETRY_AFTER_MAX);
                prop_assert!(wait >= policy.every && wait <= longest + longest / 10, "{wait:?}");
                prop_assert!(state.seen.len() <= POLL_DIGESTS_MAX);
                if let PollStep::Act(digest) = state.next_step(&policy, now) {
                    prop_assert!(now.since(first_seen[&digest]) >= policy.min_age);
                    prop_assert!(state.acted_on.as_ref() != Some(&digest));
                    state = state.acted(digest);
                    prop_assert!(!matches!(state.next_step(&policy, now), PollStep::Act(_)), "it is done");
                }
            }
        }
    }
}
