//! Every preset: genuine deliveries of its sender, forgeries, and replays.

mod configured_sources;
mod mutations;
mod replays;
#[path = "../support/seed.rs"]
mod seed;
mod signed_samples;
mod vectors;
