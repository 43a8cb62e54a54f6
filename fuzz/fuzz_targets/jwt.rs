//! Tokens, of an issuer whose key is published and of one with a shared secret.
#![no_main]

use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::verify::{
    JwtKeys, JwtScheme, KeyDirectory, KeyDocument, KeyRequest, PublishedKey, VerificationScheme,
};
use hookonce_fuzz::{BODY, check_refused, secrets};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// The key of an example of RFC 7517.
const KEY_SET: &[u8] = br#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a",
    "x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

#[derive(Debug)]
struct OneKeySet(Vec<Arc<PublishedKey>>);

impl KeyDirectory for OneKeySet {
    fn find(&self, _: &KeyRequest, _: Timestamp) -> Vec<Arc<PublishedKey>> {
        self.0.clone()
    }

    fn may_have_changed(&self) -> bool {
        false
    }

    fn address(&self, _: &KeyDocument) -> String {
        String::new()
    }
}

fn scheme(keys: JwtKeys, body_digest: Option<String>) -> VerificationScheme {
    VerificationScheme::new(JwtScheme {
        keys,
        header: "authorization".into(),
        prefix: "Bearer ".into(),
        issuer: None,
        audience: None,
        claims: Vec::new(),
        without_expiry: true,
        body_digest,
        tolerance: Duration::MAX,
    })
}

fuzz_target!(|input: &[u8]| {
    let set = PublishedKey::of_key_set(KEY_SET).expect("a key set").into_iter().map(Arc::new).collect();
    let published = scheme(JwtKeys::Published(Arc::new(OneKeySet(set))), None);
    let shared = scheme(JwtKeys::Shared(secrets()), None);
    let of_body = scheme(JwtKeys::Shared(secrets()), Some("sha256".into()));
    let value = [b"Bearer ", input].concat();
    for scheme in [published, shared, of_body] {
        for value in [input, &value] {
            check_refused(&scheme, &[("authorization", value)], "", BODY);
        }
    }
    let _ = PublishedKey::of_key_set(input);
});
