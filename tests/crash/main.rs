//! Crashes: the node is killed, stopped, starved of disk and fed rot; what was accepted is neither lost, nor done
//! twice where it must not be, nor left lying.
//!
//! Every zero is printed with the number of trials behind it: over N trials it bounds the rate by 3/N (95 %).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod bit_rot;
mod client_hangups;
mod crash_points;
mod disk;
mod failed_starts;
mod flaky_store;
mod lease_renewal;
mod lost_lease;
#[path = "../support/mounted.rs"]
mod mounted;
mod promises;
mod random_kills;
mod receiver;
#[path = "../support/seed.rs"]
mod seed;
mod senders;
#[path = "../support/mod.rs"]
mod support;

/// The numbers for every day, or with `HOOKONCE_FULL` those for a release.
fn rounds(everyday: usize, full: usize) -> usize {
    if std::env::var_os("HOOKONCE_FULL").is_some() { full } else { everyday }
}
