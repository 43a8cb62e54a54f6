//! Crashes: the node is killed, stopped, given a full disk or corrupt data; what was accepted is neither lost, nor done
//! twice where it must not be, nor left undone.
//!
//! Every zero is printed with its number of trials: over N trials it bounds the rate by 3/N (95 %).
#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]

mod bad_push;
mod bit_rot;
mod client_hangups;
mod crash_points;
mod disk;
mod elements;
mod failed_starts;
mod flaky_store;
mod lease_renewal;
mod lost_lease;
#[path = "../support/mounted.rs"]
mod mounted;
mod newest_push;
mod notifications;
mod promises;
mod random_kills;
mod receiver;
#[path = "../support/seed.rs"]
mod seed;
mod senders;
#[path = "../support/mod.rs"]
mod support;
mod waiting_senders;

/// The everyday number of rounds, or with `HOOKONCE_FULL` the number for a release.
fn rounds(everyday: usize, full: usize) -> usize {
    if std::env::var_os("HOOKONCE_FULL").is_some() { full } else { everyday }
}
