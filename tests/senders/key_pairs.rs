//! Senders that sign with a private key: deliveries signed with a pair that is made here.

use super::signed_samples::{SentDelivery, config_with, now};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::source::Source;
use hookonce::decide::time::Timestamp;
use hookonce::internals::config::presets;
use std::sync::Arc;

const SIGNATURE: &str = "x-signature-ed25519";
const TIME: &str = "x-signature-timestamp";
/// Both protocols of Discord: the signature is the same.
const PRESETS: [&str; 2] = ["discord", "discord-events"];

fn source(preset: &str, pair: &Ed25519KeyPair) -> Arc<Source> {
    let text = presets::find(preset).expect(preset).example();
    config_with(&text, &hex::encode(pair.public_key())).expect(preset).sources[0].clone()
}

/// This body, signed at this time, which is written like this.
fn signed(pair: &Ed25519KeyPair, time: &str, body: &[u8], at: Timestamp) -> SentDelivery {
    let signature = hex::encode(pair.sign(&[time.as_bytes(), body].concat()));
    let headers = [("content-type", "application/json"), (SIGNATURE, &signature), (TIME, time)];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).into();
    SentDelivery { headers, query: String::new(), body: body.to_vec(), at }
}

fn seconds(at: Timestamp) -> String {
    (at.0 / 1_000_000).to_string()
}

fn sample(preset: &str) -> &'static [u8] {
    presets::find(preset).and_then(|preset| preset.sample).expect(preset).trim().as_bytes()
}

fn check_refused(source: &Source, forged: &SentDelivery, what: &str) {
    assert_eq!(forged.verify(source), Err(DeliveryRejection::BadSignature), "{}: {what}", source.name);
}

#[test]
fn a_delivery_that_differs_in_one_bit_of_body_time_or_signature_is_refused() {
    let pair = Ed25519KeyPair::generate().expect("random bytes");
    for preset in PRESETS {
        let source = source(preset, &pair);
        let genuine = signed(&pair, &seconds(now()), sample(preset), now());
        genuine.event(&source);
        for at in 0..genuine.body.len() {
            let mut forged = genuine.clone();
            forged.body[at] ^= 1 << (at % 8);
            check_refused(&source, &forged, "another body");
        }
        for name in [SIGNATURE, TIME] {
            let value = genuine.header(name).expect("it is there").as_bytes().to_vec();
            for at in 0..value.len() {
                let mut other = value.clone();
                other[at] = if other[at] == b'7' { b'8' } else { b'7' };
                check_refused(&source, &genuine.with_header(name, other), name);
                check_refused(&source, &genuine.with_header(name, &value[..at]), "a header cut short");
            }
            let mut doubled = genuine.clone();
            doubled.headers.push((name.to_owned(), value));
            check_refused(&source, &doubled, "a header twice");
        }
        let other = Ed25519KeyPair::generate().expect("random bytes");
        check_refused(&source, &signed(&other, &seconds(now()), sample(preset), now()), "another key");
    }
}

/// Time and body stand side by side: no byte may move from one to the other.
#[test]
fn a_time_of_another_shape_is_refused_even_if_it_is_signed() {
    let pair = Ed25519KeyPair::generate().expect("random bytes");
    for preset in PRESETS {
        let source = source(preset, &pair);
        let time = seconds(now());
        let genuine = signed(&pair, &time, sample(preset), now());
        let moved = SentDelivery { body: genuine.body[1..].to_vec(), ..genuine.clone() };
        check_refused(&source, &moved.with_header(TIME, format!("{time}{{")), "a byte of the body in the time");
        let moved = SentDelivery { body: [&time.as_bytes()[9..], &genuine.body].concat(), ..genuine };
        check_refused(&source, &moved.with_header(TIME, &time.as_bytes()[..9]), "a digit of the time in the body");
        for written in [format!("{time}0"), format!("0{time}"), format!("+{time}"), format!("{time}000"), String::new()]
        {
            check_refused(&source, &signed(&pair, &written, sample(preset), now()), &written);
        }
        let old = Timestamp(now().0 - 301_000_000);
        check_refused(&source, &signed(&pair, &seconds(old), sample(preset), now()), "an old time");
    }
}

#[test]
fn a_retry_that_is_signed_again_has_the_keys_of_the_first() {
    let pair = Ed25519KeyPair::generate().expect("random bytes");
    for preset in PRESETS {
        let source = source(preset, &pair);
        let first = signed(&pair, &seconds(now()), sample(preset), now()).event(&source);
        let later = Timestamp(now().0 + 60_000_000);
        let again = signed(&pair, &seconds(later), sample(preset), later).event(&source);
        let keys = |event: &hookonce::decide::claim::NewEvent| event.keys.iter().map(|key| key.key).collect::<Vec<_>>();
        assert!(keys(&first).iter().any(|key| keys(&again).contains(key)), "{preset}");
    }
}
