//! What the targets share: one delivery, whose header, query or body is the input.

use bytes::Bytes;
use hookonce::decide::delivery::Delivery;
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};

/// When the samples of the corpus were signed.
pub const AT: Timestamp = Timestamp(1_770_481_240_000_000);
/// A body that no input is signed for.
pub const BODY: &[u8] = br#"{"id":"evt_1","type":"a.b"}"#;

/// A secret that no input knows.
pub fn secrets() -> SourceSecrets {
    SourceSecrets::new(vec![b"a secret that no input knows".to_vec()])
}

/// Judges a delivery of these headers, query and body: it is refused, whatever is in it, and nothing panics.
pub fn check_refused(scheme: &VerificationScheme, headers: &[(&str, &[u8])], query: &str, body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    let delivery = Delivery { path: "/in/x", query, headers, body: &body, at: AT, wall: AT };
    assert!(scheme.verify(&delivery).is_err(), "a delivery that nobody signed is accepted");
    // What the operator is told of it is made of the same bytes.
    let _ = (scheme.expectation(&delivery), scheme.rejection_reason(&delivery), scheme.signed_text(&delivery));
    assert!(scheme.ignoring_age().verify(&delivery).is_err(), "a delivery that nobody signed is accepted, if old");
}
