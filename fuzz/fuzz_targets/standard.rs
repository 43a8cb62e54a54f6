//! Standard Webhooks: its three headers, each beside two that are as they should be.
#![no_main]

use hookonce::decide::time::Duration;
use hookonce::decide::verify::VerificationScheme;
use hookonce_fuzz::{BODY, check_refused};
use libfuzzer_sys::fuzz_target;

const NAMES: [[&str; 3]; 2] =
    [["webhook-id", "webhook-timestamp", "webhook-signature"], ["svix-id", "svix-timestamp", "svix-signature"]];
const USUAL: [&[u8]; 3] = [b"msg_1", b"1770481240", b"v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="];

fuzz_target!(|input: &[u8]| {
    let secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_vec();
    let scheme = VerificationScheme::standard_webhooks(&[secret], Duration::from_secs(300)).expect("a secret");
    for names in NAMES {
        for changed in 0..names.len() {
            let mut values = USUAL;
            values[changed] = input;
            let headers: Vec<_> = names.into_iter().zip(values).collect();
            check_refused(&scheme, &headers, "", BODY);
        }
    }
});
