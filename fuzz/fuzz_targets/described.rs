//! Signatures that the config describes: entries with a time, prefixes, plain ones, and times in a header.
#![no_main]

use hookonce::decide::field::FieldLocation;
use hookonce::decide::verify::{
    DescribedSignature, SignatureEncoding, SignatureEntries, SignedText, TimestampFormat, TimestampLocation,
    VerificationScheme,
};
use hookonce_fuzz::{BODY, check_refused, secrets};
use libfuzzer_sys::fuzz_target;

const HEADER: &str = "x-signature";

fn schemes() -> Vec<VerificationScheme> {
    let plain = || DescribedSignature::hmac(HEADER, secrets());
    let over = |text: &str, time| SignedText::parse(text, time).expect("a template");
    let place = |text: &str| FieldLocation::parse(text).expect("a place");
    let entries = |name: &str, separator| Some(SignatureEntries { signature: name.into(), separator });
    let all = [
        plain(),
        DescribedSignature { prefix: "sha256=".into(), ..plain() },
        DescribedSignature { prefix: "sha256=".into(), several: false, ..plain() },
        DescribedSignature { encoding: SignatureEncoding::Base64, ..plain() },
        DescribedSignature {
            entries: entries("v1", ','),
            timestamp: Some(TimestampLocation::Entry("t".into())),
            over: over("{timestamp}.{body}", None),
            ..plain()
        },
        DescribedSignature {
            entries: entries("h1", ';'),
            timestamp: Some(TimestampLocation::Entry("ts".into())),
            over: over("{timestamp}:{body}", None),
            ..plain()
        },
        DescribedSignature {
            timestamp: Some(TimestampLocation::At(place("header.x-time"))),
            timestamp_format: Some(TimestampFormat::Rfc3339),
            id: Some(place("header.x-id")),
            over: over("{id}{timestamp}{body}", Some(TimestampFormat::Rfc3339)),
            ..plain()
        },
    ];
    all.map(VerificationScheme::new).into()
}

fuzz_target!(|input: &[u8]| {
    thread_local!(static SCHEMES: Vec<VerificationScheme> = schemes());
    SCHEMES.with(|schemes| {
        for scheme in schemes {
            check_refused(scheme, &[(HEADER, input)], "", BODY);
            // The same beside a signature of the right form, so that the parsers of the time and the id are reached.
            let signature: &[u8] = &[b'0'; 64];
            let time: &[u8] = b"2026-02-07T16:20:40Z";
            check_refused(scheme, &[(HEADER, signature), ("x-time", input), ("x-id", b"a")], "", BODY);
            check_refused(scheme, &[(HEADER, signature), ("x-time", time), ("x-id", input)], "", BODY);
        }
    });
});
