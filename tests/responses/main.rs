//! The same response twice: receipts, API clients, CI uploads and sports data, from outside and against the real
//! binary.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod api_clients;
mod backend;
mod ci_uploads;
mod concurrent_copies;
mod dead_events;
mod lost_responses;
#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres;
mod receipts;
#[path = "../support/redis.rs"]
mod redis;
mod sports_data;
#[path = "../support/mod.rs"]
mod support;

use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{DescribedSignature, SourceSecrets, VerificationScheme};
use support::Sent;

/// Where everything arrives.
const IN: &str = "/in";

/// A delivery whose body is signed in hex in this header, as most senders do.
fn signed(header: &str, secret: &str, body: &str) -> Sent {
    let hmac = DescribedSignature::hmac(header, SourceSecrets::new(vec![secret.as_bytes().to_vec()]));
    let headers = VerificationScheme::new(hmac).sign("", Timestamp(0), body.as_bytes());
    Sent { headers, body: body.into() }
}
