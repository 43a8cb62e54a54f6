//! The rules of the program, as pure functions: no input or output, no clock, no randomness, no waiting. Time, ids and
//! jitter are arguments, so that a rule can run a million times a second and a history can be repeated from its seed.
//!
//! ```text
//! Delivery ─verify─▶ Verified ─fields, filter, route, keys─▶ Verdict       judge.rs
//! NewEvent ─claim─▶ Claim; Transition ─advance─▶ the rows of a store       ledger/
//! Event ─after(step)─▶ Event                                               event_step.rs
//! Claim, Event ─▶ Reply                                                    response/
//! ```
//!
//! `decide` uses no other part of the crate. It builds without the rest: `cargo check --no-default-features --lib`.

pub mod action_kind;
pub mod auth_challenge;
pub mod auth_throttle;
pub mod body_budget;
pub mod body_dictionary;
pub mod catch_up;
pub mod circuit_breaker;
pub mod claim;
pub mod data_loss;
mod decimal;
pub mod delivery;
pub mod envelope;
pub mod error_message;
pub mod event;
pub mod event_step;
pub mod expiry_clock;
pub mod field;
pub mod filter;
pub(crate) mod form;
pub mod github_kind;
pub mod handshake;
pub mod id;
pub mod identity;
pub mod image_reference;
pub mod ingest_path;
pub(crate) mod json_walk;
pub mod judge;
pub mod ledger;
pub mod limits;
pub mod nearest_name;
pub mod notification;
pub mod outcome;
pub mod poll_schedule;
pub mod refusal_limit;
pub mod registry_address;
pub mod republish;
pub mod response;
pub mod retry;
pub mod shared_output;
pub mod source;
pub mod sql_template;
pub mod store_clock;
pub mod time;
pub mod trace_context;
pub mod transition;
pub mod verify;
