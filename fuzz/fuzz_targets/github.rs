//! GitHub's signature, and the form that a delivery may be in.
#![no_main]

use hookonce::decide::verify::VerificationScheme;
use hookonce_fuzz::{BODY, check_refused, secrets};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let scheme = VerificationScheme::github(secrets());
    check_refused(&scheme, &[("x-hub-signature-256", input), ("x-github-delivery", b"1")], "", BODY);
    let signature = format!("sha256={}", "0".repeat(64));
    let headers =
        [("x-hub-signature-256", signature.as_bytes()), ("content-type", b"application/x-www-form-urlencoded")];
    check_refused(&scheme, &headers, "", input);
});
