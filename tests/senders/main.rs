//! Every preset: genuine deliveries of its sender, forgeries, and replays.

mod configured_sources;
mod differences;
mod event_kinds;
mod forms;
mod key_pairs;
mod mutations;
mod new_when;
mod parser_fuzz;
mod public_keys;
mod published_keys;
mod replays;
#[path = "../support/seed.rs"]
mod seed;
mod sender_keys;
mod signed_parts;
mod signed_samples;
mod vectors;
