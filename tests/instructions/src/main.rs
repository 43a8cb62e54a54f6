//! One delivery, again and again, so that valgrind can count the instructions of one: `instructions CASE WHAT TIMES`.
//! Bodies have 10 KB; those of a case that ends with `-1k` have 1 KB. With the case `steps` or `steps-10k` it counts what
//! happens to a delivery beside its bytes (`steps.rs`).
//!
//! `ours` verifies the delivery and reads its fields. `baseline` is the least that a careful handler does: an HMAC-SHA256
//! over the body, compared in constant time, and one parse of the body that borrows from it and keeps nothing
//! (`serde::de::IgnoredAny`). `ours` makes the body's digest on the way, so `digest` counts that alone.

use aws_lc_rs::hmac;
use bytes::Bytes;
use hookonce::decide::delivery::{Delivery, borrow_headers};
use hookonce::decide::field::{Field, FieldLocation, FieldSet};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::verify::{
    DescribedSignature, SignatureEntries, SignedText, SourceSecrets, TimestampFormat, TimestampLocation,
    VerificationScheme,
};
use serde::de::IgnoredAny;
use std::hint::black_box;

mod steps;

const SECRET: &[u8] = b"a secret that is long enough for anyone";
const AT: Timestamp = Timestamp(1_770_481_240_000_000);
const BODY_BYTES: usize = 10 << 10;

/// A body of about this size: the members that the fields name, between others, as senders write them.
fn body(bytes: usize) -> Bytes {
    let mut text = String::from(
        r#"{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","type":"invoice.paid","ref":"refs/heads/main","created":1770481240,"action":"opened","list":["#,
    );
    let mut n = 0;
    while text.len() + 400 < bytes {
        let comma = if n == 0 { "" } else { "," };
        text += &format!(
            r#"{comma}{{"id":{n},"node_id":"MDQ6VXNlcj{n}","url":"https://api.example.com/repos/octocat/app/{n}","private":false,"note":"line {n}\nand \"more\"","score":{n}.5}}"#
        );
        n += 1;
    }
    text += r#"],"repository":{"full_name":"octocat/app","private":true},"data":{"object":{"id":"in_1","livemode":false}},"sender":{"login":"octocat"}}"#;
    text.into()
}

fn fields() -> FieldSet {
    let field = |(name, place): (&str, &str)| Field::at(name, FieldLocation::parse(place).expect("a place"));
    let all = [
        ("type", "body.type"),
        ("action", "body.action"),
        ("repository", "body.repository.full_name"),
        ("ref", "body.ref"),
        ("object", "body.data.object.id"),
        ("actor", "body.sender.login"),
    ];
    FieldSet::new(all.map(field).into(), None)
}

fn scheme(case: &str) -> VerificationScheme {
    let secrets = || SourceSecrets::new(vec![SECRET.to_vec()]);
    let entries = |separator| Some(SignatureEntries { signature: "v1".into(), separator });
    match case {
        "github" => VerificationScheme::github(secrets()),
        "standard-webhooks" => {
            let secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_vec();
            VerificationScheme::standard_webhooks(&[secret], Duration::from_secs(300)).expect("a secret")
        }
        "stripe" => VerificationScheme::new(DescribedSignature {
            entries: entries(','),
            timestamp: Some(TimestampLocation::Entry("t".into())),
            over: SignedText::parse("{timestamp}.{body}", None).expect("a template"),
            ..DescribedSignature::hmac("stripe-signature", secrets())
        }),
        "entries" => VerificationScheme::new(DescribedSignature {
            entries: entries(';'),
            timestamp: Some(TimestampLocation::At(FieldLocation::parse("header.x-time").expect("a place"))),
            timestamp_format: Some(TimestampFormat::Seconds),
            over: SignedText::parse("{timestamp}:{body}", Some(TimestampFormat::Seconds)).expect("a template"),
            ..DescribedSignature::hmac("x-signature", secrets())
        }),
        other => panic!("there is no case {other}"),
    }
}

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [case, what, times] = args.as_slice() else { panic!("instructions CASE ours|baseline|digest TIMES") };
    let times: usize = times.parse().expect("a number");
    match &**case {
        "steps" => return steps::run(what, times, 0),
        "steps-10k" => return steps::run(what, times, BODY_BYTES),
        _ => {}
    }
    let (case, bytes) = case.strip_suffix("-1k").map_or((&**case, BODY_BYTES), |case| (case, 1 << 10));
    let (scheme, fields, body) = (scheme(case), fields(), body(bytes));
    let headers: Vec<_> =
        scheme.sign("msg_1", AT, &body).into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    let headers = borrow_headers(&headers);
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let theirs = hmac::sign(&key, &body);
    for _ in 0..times {
        if what == "digest" {
            black_box(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, black_box(&body)));
        } else if what == "ours" {
            let delivery = Delivery { path: "/in/x", query: "", headers: &headers, body: &body, at: AT, wall: AT };
            let verified = scheme.verify(black_box(&delivery)).expect("it is signed");
            black_box(fields.read(&verified).expect("it has its fields"));
        } else {
            hmac::verify(&key, black_box(&body), theirs.as_ref()).expect("it is signed");
            black_box(serde_json::from_slice::<IgnoredAny>(black_box(&body)).expect("it is JSON"));
        }
    }
}
