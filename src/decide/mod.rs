//! What is decided, and nothing else: no input or output, no clock, no randomness, no waiting.
//! Time, ids and jitter come in as arguments, so that every rule can be run a million times in a second and a
//! history can be repeated from its seed.
//!
//! ```text
//! Delivery ─verify─▶ Verified ─fields, filter, route, keys─▶ Verdict       judge.rs
//! Event ─after(step)─▶ Event                                               event.rs
//! Claim, Event ─▶ Reply                                                    answer.rs
//! ```
//!
//! `decide` knows nobody. It builds without the rest: `cargo check --no-default-features --lib`.

pub mod action_kind;
pub mod again;
pub mod answer;
pub mod blocks;
pub mod breaker;
pub mod budget;
pub mod change;
pub mod claim;
mod decimal;
pub mod delivery;
pub mod envelope;
pub mod event;
pub mod expiry;
pub mod fence;
pub mod field;
pub mod filter;
mod form;
pub mod id;
pub mod idempotency;
mod json;
pub mod judge;
pub mod key;
pub mod kind;
pub mod limits;
mod line;
mod mark;
pub mod message;
pub mod nearest;
pub mod problem;
pub mod receipt;
pub mod recipe;
pub mod refusal;
pub mod retry;
pub mod source;
pub mod statement;
pub mod store_clock;
pub mod throttle;
pub mod time;
pub mod trace;
pub mod verify;
