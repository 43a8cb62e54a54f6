//! Adyen's notifications, which have their signature between the values that it signs.
#![no_main]

use hookonce::decide::verify::{AdyenScheme, VerificationScheme};
use hookonce_fuzz::check_refused;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let key = b"4478000000AAAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056".to_vec();
    let scheme = VerificationScheme::new(AdyenScheme::new(&[key]).expect("a key"));
    check_refused(&scheme, &[("content-type", b"application/json")], "", input);
});
