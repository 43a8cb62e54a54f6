//! Tests of verification: the providers' own vectors, and everything that must be rejected.

pub(crate) mod all_schemes;
mod described;
mod entries;
mod expectations;
mod github;
mod public_keys;
mod signature_templates;
mod standard;
mod tokens;

use super::*;
use crate::decide::delivery::borrow_headers;
use bytes::Bytes;

const GITHUB: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
const GITHUB_SECRET: &[u8] = b"It's a Secret to Everybody";
const STANDARD: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const STANDARD_SECRET: &[u8] = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const STANDARD_ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const STANDARD_BODY: &[u8] = br#"{"test": 2432232314}"#;
const AT: Timestamp = Timestamp(1_614_265_330_000_000);
const FIVE_MINUTES: Duration = Duration::from_mins(5);

type HeaderPair<'a> = (&'a str, &'a str);

/// What a verified delivery contains, in a form that outlives it.
#[derive(Debug, PartialEq)]
struct VerifiedSnapshot {
    json: Vec<u8>,
    secret: usize,
    delivery_id: Option<Arc<str>>,
}

fn verify(
    scheme: &VerificationScheme,
    headers: &[HeaderPair<'_>],
    body: &[u8],
    at: Timestamp,
) -> Result<VerifiedSnapshot, DeliveryRejection> {
    let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
    let body = Bytes::copy_from_slice(body);
    let delivery = Delivery { path: "/in/x", query: "", headers: &borrow_headers(&headers), body: &body, at, wall: at };
    let verified = scheme.verify(&delivery)?;
    assert_eq!((verified.delivery().body, verified.body_digest()), (&body, Digest::of(&body)));
    let delivery_id = scheme.delivery_id().map_or(Ok(None), |id| verified.delivery_id(&id))?;
    Ok(VerifiedSnapshot { json: verified.json()?.to_vec(), secret: verified.secret(), delivery_id })
}

/// Checks whether a delivery is verified, and with which secret.
#[expect(clippy::needless_pass_by_value, reason = "`Ok(0)` reads better than `&Ok(0)`")]
fn check(
    scheme: &VerificationScheme,
    headers: &[HeaderPair<'_>],
    body: &[u8],
    expected: Result<usize, DeliveryRejection>,
) {
    let believed = verify(scheme, headers, body, AT).map(|believed| believed.secret);
    assert_eq!(believed, expected, "{headers:?}");
}

fn secrets(secrets: &[&[u8]]) -> SourceSecrets {
    SourceSecrets::new(secrets.iter().map(|secret| secret.to_vec()).collect())
}

fn github() -> VerificationScheme {
    VerificationScheme::github(secrets(&[GITHUB_SECRET]))
}

fn standard() -> VerificationScheme {
    VerificationScheme::standard_webhooks(&[STANDARD_SECRET.to_vec()], FIVE_MINUTES).expect("a secret")
}

const JSON: HeaderPair<'_> = ("content-type", "application/json");
