//! Webhooks arrive twice. Your action should happen once.
//!
//! The words, used the same way in code, config, logs, tables and docs:
//!
//! | word | meaning |
//! |---|---|
//! | source | a sender we believe: a path, or a stream, and a way to verify |
//! | delivery | one arrival: the bytes as they came |
//! | field | a named value pointed at inside a delivery |
//! | event | what happened, and is to be acted on once |
//! | identity, key | what makes two deliveries the same event; its 32 bytes |
//! | claim | to be first to write an event, committed before anything else happens |
//! | duplicate, stale | a delivery whose event is claimed; one older than its register |
//! | register | what a subject was last changed to |
//! | route, action | where an event goes; what is done there |
//! | group, slot | events that must not overlap; the one place in a group |
//! | node, lease | one running process; the time in which it alone may act |
//! | attempt, life | one try; an event has one life, and a replay gives it the next |
//! | outcome, doubt | delivered, failed, rejected, unknown; when it is unknown |
//! | receipt | what the action answered; kept, and given again to duplicates |
//! | waiting, running, done, dead | the four states |
//! | keep, forget | how long keys are remembered; removing them |
//!
//! The direction: `decide` knows nobody; `store` and `action` know `decide`; `gateway`, `dispatcher` and `layer` know
//! these; the edges (`http`, `nats`, `cli`, `config`) know all.
//!
//! ```text
//! bytes ─▶ Delivery ─judge─▶ Verdict ─claim─▶ Claim ─act─▶ Outcome ─after─▶ State ─advance─▶ answer
//! ```
//!
//! As a library it is a layer for your own service ([`Once`]), or does each job once ([`Once::run`]):
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use axum::{Router, routing::post};
//! use hookonce::{Once, days, header};
//!
//! async fn ingest(body: String) -> String {
//!     format!("{} bytes are in\n", body.len())
//! }
//!
//! let once = Once::new(hookonce::store::open("memory:").await?).per(header("idempotency-key")).keep(days(1));
//! let app: Router = Router::new().route("/ingest", post(ingest)).layer(once);
//! # drop(app); Ok::<_, hookonce::store::StoreOpenError>(()) }).unwrap();
//! ```
//!
//! `hookonce = { version = "0.1", default-features = false, features = ["layer", "sqlite"] }` brings that and nothing else:
//! no command line, no server.

#![cfg_attr(
    not(all(feature = "node", feature = "nats", feature = "sqlite", feature = "postgres", feature = "redis")),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        unused_macros,
        reason = "the parts are written for the whole, and a library may take a few of them"
    )
)]

#[cfg(feature = "node")]
mod action;
#[cfg(feature = "node")]
mod admin;
#[cfg(feature = "node")]
mod catch_up;
#[cfg(feature = "node")]
mod cli;
#[cfg(feature = "node")]
mod config;
pub mod decide;
#[cfg(feature = "node")]
mod engine;
#[cfg(feature = "node")]
mod explain;
#[cfg(feature = "node")]
mod ingress;
#[cfg(feature = "node")]
#[doc(hidden)]
pub mod internals;
#[cfg(feature = "node")]
mod key_fetch;
#[cfg(feature = "layer")]
pub mod layer;
#[cfg(feature = "store")]
mod lease;
#[cfg(feature = "node")]
mod node;
#[cfg(feature = "store")]
mod observe;
#[cfg(feature = "node")]
mod registry;
#[cfg(test)]
#[path = "../tests/support/seed.rs"]
mod seed;
#[cfg(feature = "store")]
pub mod store;

#[cfg(feature = "layer")]
pub use layer::{
    IntoStore, Once, OnceBody, OnceError, OnceService, RequestAttempt, RequestIdentity, RunOutcome, body, days, fields,
    header, hours, json, minutes, query, seconds,
};
