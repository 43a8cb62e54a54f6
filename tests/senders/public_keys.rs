//! Senders that sign with a private key: deliveries that are signed here, with a pair of the test's own.

use super::seed::{self, Random};
use super::signed_samples::{ConfiguredPreset, SentDelivery, config_with, now};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::judge::Verdict;
use hookonce::decide::time::Timestamp;
use hookonce::internals::config::presets;

const SIGNATURE: &str = "x-twilio-email-event-webhook-signature";
const TIME: &str = "x-twilio-email-event-webhook-timestamp";

/// `SendGrid`'s preset with the public half of a new pair, and the pair.
fn sendgrid() -> (ConfiguredPreset, EcdsaKeyPair) {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("random bytes");
    let key = hex::encode(pair.public_key());
    let preset = presets::find("sendgrid").expect("a preset");
    let text = format!("[source.sendgrid]\npreset = \"sendgrid\"\npublic_key = \"{key}\"\n");
    let config = config_with(&text, "").expect("a config");
    let warnings = config.warnings.iter().map(ToString::to_string).collect();
    (ConfiguredPreset { preset, source: config.sources[0].clone(), secret: "", other_secret: "", warnings }, pair)
}

fn signed(pair: &EcdsaKeyPair, sent: &SentDelivery, at: Timestamp) -> SentDelivery {
    let time = (at.0 / 1_000_000).to_string();
    let message = [time.as_bytes(), &sent.body].concat();
    let signature = pair.sign(&SystemRandom::new(), &message).expect("a signature");
    sent.with_header(TIME, time.as_str()).with_header(SIGNATURE, STANDARD.encode(signature.as_ref()))
}

fn is_refused(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Refused(DeliveryRejection::BadSignature))
}

#[test]
fn sendgrids_events_are_verified_with_its_public_key_and_forgeries_are_not() {
    let (preset, pair) = sendgrid();
    let source = &preset.source;
    let sample = preset.sample("id-1", now());
    assert!(is_refused(&sample.judge(source)), "nobody signed it");
    let genuine = signed(&pair, &sample, now());
    let event = genuine.event(source);
    assert_eq!(event.event.delivery_id.as_deref(), Some("id-1"));
    // It is signed again when it is sent again.
    let later = signed(&pair, &sample, Timestamp(now().0 + 60_000_000)).event(source);
    assert_eq!(event.keys, later.keys);
    let (_, other) = sendgrid();
    assert!(is_refused(&signed(&other, &sample, now()).judge(source)), "another key");
    assert!(is_refused(&genuine.with_header(TIME, "1770481239").judge(source)), "another time");
    let mut random = Random::new(seed::given_or(15));
    for _ in 0..2_000 {
        let mut forged = genuine.clone();
        let bytes = if random.below(2) == 0 {
            &mut forged.body
        } else {
            let name = if random.below(2) == 0 { SIGNATURE } else { TIME };
            &mut forged.headers.iter_mut().find(|(known, _)| known == name).expect("a header").1
        };
        let at = random.index(bytes.len());
        bytes[at] ^= 1 << random.index(7);
        // White space around a header's value is not part of it.
        let same = forged.headers.iter().all(|(name, value)| genuine.header(name).map(str::as_bytes) == Some(value));
        assert!((same && forged.body == genuine.body) || is_refused(&forged.judge(source)), "{:?}", forged.headers);
    }
}
