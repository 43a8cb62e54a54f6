//! The seeds of random tests: printed with the command that repeats the run, and taken from `HOOKONCE_SEED`.
//!
//! A test prints its seed before it begins. The output of a failing test is always shown, and the seed with it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The variable that gives the seed.
pub const VARIABLE: &str = "HOOKONCE_SEED";

/// The seed in `HOOKONCE_SEED`, if it is set.
pub fn given() -> Option<u64> {
    std::env::var(VARIABLE).ok().map(|text| text.trim().parse().expect("HOOKONCE_SEED is a whole number"))
}

/// The given seed, otherwise one from the clock. It is printed.
#[expect(clippy::disallowed_methods, reason = "any number can be a seed")]
pub fn any() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_nanos();
    given_or(u64::try_from(now % 1_000_000_007).expect("it is small"))
}

/// The given seed, otherwise this one: for tests that do the same each time. It is printed.
pub fn given_or(usual: u64) -> u64 {
    let seed = given().unwrap_or(usual);
    println!("{}", repeat(seed));
    seed
}

/// The given seed alone, otherwise all of these: for tests that go through many. Each is to be printed when it begins.
pub fn given_or_all(usual: std::ops::RangeInclusive<u64>) -> std::ops::RangeInclusive<u64> {
    given().map_or(usual, |seed| seed..=seed)
}

/// A seed, and the command that repeats this test with it.
pub fn repeat(seed: u64) -> String {
    format!("seed {seed}; to repeat: {VARIABLE}={seed} {}", command())
}

/// The command that runs this test alone.
fn command() -> String {
    let program = std::env::current_exe().ok();
    let stem = program.as_deref().and_then(std::path::Path::file_stem).and_then(std::ffi::OsStr::to_str);
    // cargo appends a hash to the name of a test's program.
    let name = stem.map_or("", |stem| stem.rsplit_once('-').map_or(stem, |(name, _)| name));
    let target = if name == "hookonce" { "--lib".to_owned() } else { format!("--test {name}") };
    // Each test runs in a thread of the same name.
    match std::thread::current().name() {
        Some(test) if test != "main" => format!("cargo test {target} -- --exact {test}"),
        _ => format!("cargo test {target}"),
    }
}

/// This many cases of a property, from a seed that is printed.
pub fn cases(cases: u32) -> proptest::test_runner::Config {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(any());
    proptest::test_runner::Config { cases, rng_seed, failure_persistence: None, ..Default::default() }
}

/// A small random number generator (splitmix64): the same numbers from the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, independent of this one from here on.
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below this one.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// An index below this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("it is below a length")
    }

    /// One of these.
    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }

    /// A time between these, in milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }

    /// Shuffles these.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.index(last + 1));
        }
    }
}
