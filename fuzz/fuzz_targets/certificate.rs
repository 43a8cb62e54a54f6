//! Certificates and key sets, as a pinned host may serve them.
#![no_main]

use hookonce::decide::verify::PublishedKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = PublishedKey::of_certificate(input);
    let _ = PublishedKey::of_key_set(input);
});
