//! Which body of a source the others are packed with, and until when.
//!
//! Bodies of one source are alike, so that a body packed with an earlier one as its dictionary is a fraction of its size.
//! A dictionary is chosen by trial: a body becomes a candidate, and the next few bodies are packed with it too. It is used
//! if that made them clearly smaller, and replaced when another does so by as much.
//!
//! ```text
//!            first body           clearly smaller
//!   nothing ───────────▶ trial ───────────────────▶ in use ─── keep_body over, or replaced ──▶ retired ──▶ gone
//!      ▲                  │  ▲                        │                              once no body needs it: after twice
//!      └── no smaller ────┘  └── after many bodies ───┘                              keep_body the last are packed anew
//! ```
//!
//! A dictionary is a copy of a body. So that this copy does not outlive `keep_body` by more than another `keep_body`, its age
//! counts from the arrival of its event.
//!
//! How small a body becomes depends on the dictionary, and so on another body of the source. That tells a sender nothing:
//! no response, log line or metric contains a packed size.

use super::expiry_clock::ExpiryTime;
use super::time::{Duration, Timestamp};
use std::ops::RangeInclusive;

/// The sizes of bodies that are packed with a dictionary. A shorter one fits on a page with others anyway; of a longer one a
/// dictionary covers too little.
pub const BODY_BYTES: RangeInclusive<usize> = (1 << 10)..=(128 << 10);
/// Maximum size of a dictionary: of a longer body its beginning. Each use reads all of it, at about 1 µs for each KiB.
pub const DICTIONARY_BYTES_MAX: usize = 16 << 10;
/// Maximum number of dictionaries of a source: the one in use, and those that kept bodies still need.
pub const DICTIONARIES_OF_SOURCE_MAX: u64 = 8;
/// How many bodies a candidate is tried on.
const TRIED_ON: u32 = 8;
/// How many bodies come between two trials: at first, and after trials without a result.
const REST: RangeInclusive<u32> = 64..=65_536;
/// The same after a candidate has won.
const REST_AFTER_WIN: u32 = 1_024;

/// What to do with the next body besides packing it with the dictionary in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialStep {
    /// Nothing.
    Rest,
    /// Take it as a candidate.
    Begin,
    /// Pack it with the candidate and plainly too, and [measure](DictionaryTrials::measure).
    Measure,
}

/// The sizes of one body, packed in each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackedSizes {
    /// Without a dictionary.
    pub plain: usize,
    /// With the dictionary in use; without one as `plain`.
    pub current: usize,
    /// With the candidate.
    pub candidate: usize,
}

/// The result of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialResult {
    /// It goes on.
    Unfinished,
    /// The candidate is no better; everything stays as it is.
    Stay,
    /// The candidate becomes the dictionary.
    Replace,
    /// Neither saves anything worth it: bodies are packed without a dictionary.
    Stop,
}

/// The trials of one source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DictionaryTrials {
    state: TrialState,
    /// How many bodies come between this trial and the next, if this one changes nothing.
    rest: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum TrialState {
    Resting { bodies: u32 },
    Measuring { bodies: u32, sum: PackedSizes },
}

impl DictionaryTrials {
    /// Those of a source that has no dictionary: its next body is the first candidate.
    pub fn without_dictionary() -> Self {
        Self { state: TrialState::Resting { bodies: 0 }, rest: *REST.start() }
    }

    /// Those of a source whose dictionary was chosen before.
    pub fn with_dictionary() -> Self {
        Self { state: TrialState::Resting { bodies: REST_AFTER_WIN }, rest: REST_AFTER_WIN }
    }

    /// What to do with the next body.
    pub fn next_step(&mut self) -> TrialStep {
        match &mut self.state {
            TrialState::Measuring { .. } => TrialStep::Measure,
            TrialState::Resting { bodies: 0 } => {
                self.state = TrialState::Measuring { bodies: 0, sum: PackedSizes::default() };
                TrialStep::Begin
            }
            TrialState::Resting { bodies } => {
                *bodies -= 1;
                TrialStep::Rest
            }
        }
    }

    /// Counts the sizes of one body in the trial.
    pub fn measure(&mut self, sizes: PackedSizes) -> TrialResult {
        let TrialState::Measuring { bodies, sum } = &mut self.state else { return TrialResult::Unfinished };
        sum.plain += sizes.plain;
        sum.current += sizes.current;
        sum.candidate += sizes.candidate;
        *bodies += 1;
        if *bodies < TRIED_ON {
            return TrialResult::Unfinished;
        }
        let result = sum.result();
        if result == TrialResult::Replace {
            *self = Self::with_dictionary();
        } else {
            self.give_up();
        }
        result
    }

    /// Ends a trial without a result: the next one comes later.
    pub fn give_up(&mut self) {
        self.state = TrialState::Resting { bodies: self.rest };
        self.rest = self.rest.saturating_mul(4).min(*REST.end());
    }
}

impl PackedSizes {
    /// A dictionary must save a quarter of what its predecessor leaves, and goes if it saves less than an eighth.
    fn result(self) -> TrialResult {
        if self.candidate < self.plain.min(self.current) / 4 * 3 {
            TrialResult::Replace
        } else if self.current > self.plain / 8 * 7 {
            TrialResult::Stop
        } else {
            TrialResult::Stay
        }
    }
}

/// How a dictionary may still be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DictionaryAge {
    /// New bodies are packed with it.
    InUse,
    /// Only bodies that are packed with it need it.
    Retired,
    /// It must go: bodies that need it are packed anew.
    Over,
}

/// The age of a dictionary whose event arrived at `arrived`.
pub fn age(arrived: Timestamp, keep_body: Duration, by: ExpiryTime) -> DictionaryAge {
    if arrived <= by.minus(keep_body.saturating_mul(2)) {
        DictionaryAge::Over
    } else if arrived <= by.minus(keep_body) {
        DictionaryAge::Retired
    } else {
        DictionaryAge::InUse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(plain: usize, current: usize, candidate: usize) -> PackedSizes {
        PackedSizes { plain, current, candidate }
    }

    /// Runs bodies of these sizes through a trial that begins at once.
    fn check(each: PackedSizes, expected: TrialResult) -> DictionaryTrials {
        let mut trials = DictionaryTrials::without_dictionary();
        assert_eq!(trials.next_step(), TrialStep::Begin);
        for n in 1..=TRIED_ON {
            assert_eq!(trials.next_step(), TrialStep::Measure);
            let result = trials.measure(each);
            assert_eq!(result, if n == TRIED_ON { expected } else { TrialResult::Unfinished }, "{each:?}");
        }
        trials
    }

    fn rest(trials: &mut DictionaryTrials) -> u32 {
        (0..=65_536).find(|_| trials.next_step() == TrialStep::Begin).expect("a trial begins")
    }

    #[test]
    fn a_dictionary_is_replaced_only_by_one_that_saves_a_quarter_and_dropped_if_it_saves_nothing() {
        check(sizes(4_000, 4_000, 400), TrialResult::Replace);
        check(sizes(4_000, 4_000, 3_100), TrialResult::Stop);
        check(sizes(4_000, 400, 320), TrialResult::Stay);
        check(sizes(4_000, 400, 200), TrialResult::Replace);
        check(sizes(4_000, 3_900, 3_900), TrialResult::Stop);
        check(sizes(4_000, 3_900, 400), TrialResult::Replace);
        check(sizes(4_000, 5_000, 3_500), TrialResult::Stop);
        check(sizes(0, 0, 0), TrialResult::Stay);
    }

    #[test]
    fn trials_without_a_result_become_rare_but_never_end() {
        let mut trials = check(sizes(4_000, 4_000, 4_000), TrialResult::Stop);
        let mut rests = Vec::new();
        for _ in 0..8 {
            rests.push(rest(&mut trials));
            for _ in 0..TRIED_ON {
                trials.measure(sizes(4_000, 4_000, 4_000));
            }
        }
        assert_eq!(rests, [64, 256, 1_024, 4_096, 16_384, 65_536, 65_536, 65_536]);
        let mut won = check(sizes(4_000, 4_000, 1), TrialResult::Replace);
        assert_eq!(rest(&mut won), REST_AFTER_WIN);
        assert_eq!(rest(&mut DictionaryTrials::with_dictionary()), REST_AFTER_WIN);
    }

    #[test]
    fn a_dictionary_retires_after_keep_body_and_is_over_after_twice_as_long() {
        let week = Duration::from_hours(7 * 24);
        let arrived = Timestamp(1_750_000_000_000_000);
        let at = |since: Duration, keep| age(arrived, keep, ExpiryTime(arrived + since));
        let just_before = |time: Duration| time.saturating_sub(Duration::from_secs(1));
        assert_eq!(at(just_before(week), week), DictionaryAge::InUse);
        assert_eq!(at(week, week), DictionaryAge::Retired);
        assert_eq!(at(just_before(week * 2), week), DictionaryAge::Retired);
        assert_eq!(at(week * 2, week), DictionaryAge::Over);
        assert_eq!(at(Duration::ZERO, Duration::ZERO), DictionaryAge::Over);
        assert_eq!(at(week, Duration::MAX), DictionaryAge::InUse);
    }
}
