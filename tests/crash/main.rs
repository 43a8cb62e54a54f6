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
#[path = "../house/mounted.rs"]
mod mounted;
mod pause;
mod points;
mod receiver;
mod rot;
#[path = "../house/seed.rs"]
mod seed;
mod starts;
mod world;

/// The numbers for every day, or with `HOOKONCE_FULL` those for a release.
fn rounds(everyday: usize, full: usize) -> usize {
    if std::env::var_os("HOOKONCE_FULL").is_some() { full } else { everyday }
}
