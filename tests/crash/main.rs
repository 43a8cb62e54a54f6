//! Crashes: the node is killed, stopped, starved of disk and fed rot; what was accepted is neither lost, nor done
//! twice where it must not be, nor left lying.
//!
//! Every zero is printed with the number of trials behind it: over N trials it bounds the rate by 3/N (95 %).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod disk;
mod flaky;
mod hangups;
#[path = "../house/mod.rs"]
mod house;
mod kills;
mod lanes;
mod load;
mod pause;
mod points;
mod receiver;
mod rot;
mod starts;
mod world;

use std::time::{SystemTime, UNIX_EPOCH};

/// The numbers for every day, or with `HOOKONCE_FULL` those for a release.
fn rounds(everyday: usize, full: usize) -> usize {
    if std::env::var_os("HOOKONCE_FULL").is_some() { full } else { everyday }
}

/// A small generator: the seed is printed, and `HOOKONCE_SEED` repeats a run.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    #[expect(clippy::disallowed_methods, reason = "any number will do for a seed")]
    fn seeded(what: &str) -> Self {
        let given = std::env::var("HOOKONCE_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let seed = given.unwrap_or(u64::try_from(now % 1_000_000_007).unwrap());
        println!("{what}: seed {seed} (HOOKONCE_SEED={seed} repeats it)");
        Self(seed)
    }

    /// Another generator, independent of this one from here on.
    fn split(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn millis(&mut self, from: u64, to: u64) -> std::time::Duration {
        std::time::Duration::from_millis(from + self.below(to - from + 1))
    }
}
