//! Verifies Standard Webhooks (originally Svix's scheme): HMAC-SHA256 of `id.timestamp.body`, in base64.

use super::hmac::HmacHash;
use super::signature::{MatchedSecret, SourceSecrets};
use super::{check_timestamp, seconds, signature};
use crate::decide::delivery::DeliveryRejection;
use crate::decide::delivery::{Delivery, HeaderLookup};
use crate::decide::field::FieldLocation;
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The names of the three headers: the standard's or Svix's.
struct SignatureHeaderNames {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const WEBHOOK: SignatureHeaderNames =
    SignatureHeaderNames { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
const SVIX: SignatureHeaderNames =
    SignatureHeaderNames { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

/// The header with the signature, under either name.
pub(super) const SIGNATURES: [&str; 2] = [WEBHOOK.signature, SVIX.signature];
/// The headers that are signed with the body. Both names count, since a delivery that mixes them is refused.
pub(super) const SIGNED: [&str; 4] = [WEBHOOK.id, WEBHOOK.timestamp, SVIX.id, SVIX.timestamp];

/// The decoder of secrets. People who copy them lose the `=` at the end, so padding is optional.
const SECRET: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl SignatureHeaderNames {
    fn all(&self) -> [&str; 3] {
        [self.id, self.timestamp, self.signature]
    }

    fn are_in(&self, delivery: &Delivery<'_>) -> bool {
        self.all().iter().any(|name| delivery.header(name) != HeaderLookup::Missing)
    }
}

/// The location of the id, by the standard's name.
pub(super) fn id_place() -> FieldLocation {
    FieldLocation::Header(WEBHOOK.id.into())
}

/// Whether this is the location of the id, under either name.
pub(super) fn is_id_place(place: &FieldLocation) -> bool {
    matches!(place, FieldLocation::Header(name) if [WEBHOOK.id, SVIX.id].contains(&name.as_str()))
}

/// Whether this header is part of a Standard Webhooks signature, under either name.
pub fn is_standard_header(name: &str) -> bool {
    SIGNATURES.contains(&name) || SIGNED.contains(&name)
}

/// The names that this delivery uses; `None` for one that mixes them.
fn names(delivery: &Delivery<'_>) -> Option<SignatureHeaderNames> {
    match (WEBHOOK.are_in(delivery), SVIX.are_in(delivery)) {
        (true, false) => Some(WEBHOOK),
        (false, true) => Some(SVIX),
        _ => None,
    }
}

/// The id in this delivery, under either name.
pub(super) fn id<'d>(delivery: &Delivery<'d>) -> Option<&'d str> {
    delivery.text(names(delivery)?.id)
}

/// The time in this delivery, under either name.
pub(super) fn timestamp<'d>(delivery: &Delivery<'d>) -> Option<&'d str> {
    delivery.text(names(delivery)?.timestamp)
}

/// The secret with which id, time and body were signed, and the id.
pub(super) fn verify<'d>(
    secrets: &SourceSecrets,
    tolerance: Duration,
    delivery: &Delivery<'d>,
) -> Result<(MatchedSecret, &'d str), DeliveryRejection> {
    let names = names(delivery).ok_or(DeliveryRejection::BadSignature)?;
    let id = delivery.text(names.id).ok_or(DeliveryRejection::BadSignature)?;
    let stamp = delivery.text(names.timestamp).ok_or(DeliveryRejection::BadSignature)?;
    // A dot would let a byte move unnoticed from the id to the time.
    if id.contains('.') {
        return Err(DeliveryRejection::BadSignature);
    }
    check_timestamp(parse_seconds(stamp).ok_or(DeliveryRejection::BadSignature)?, delivery.wall, tolerance)?;
    let theirs = signatures(signature(delivery, names.signature)?)?;
    let message: [&[u8]; 5] = [id.as_bytes(), b".", stamp.as_bytes(), b".", delivery.body];
    Ok((secrets.verify_signature(HmacHash::Sha256, &message, &theirs)?, id))
}

/// Parses `v1,… v1,…`: other versions are skipped, and so is what is not base64.
fn signatures(list: &str) -> Result<Vec<Vec<u8>>, DeliveryRejection> {
    if list.split(' ').count() > limits::SIGNATURES_MAX {
        return Err(DeliveryRejection::BadSignature);
    }
    let ours = list.split(' ').filter_map(|entry| entry.strip_prefix("v1,"));
    Ok(ours.filter_map(|base64| STANDARD.decode(base64).ok()).collect())
}

fn parse_seconds(text: &str) -> Option<Timestamp> {
    // `parse` would also take a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)?;
    digits.parse::<i64>().ok()?.checked_mul(1_000_000).map(Timestamp)
}

/// Decodes the key of a `whsec_…`. An error is a sentence, and never shows the secret.
pub(super) fn decode_secret(secret: &[u8]) -> Result<Vec<u8>, String> {
    if secret.starts_with(b"whsk_") || secret.starts_with(b"whpk_") {
        return Err(
            "the secret is a key for `v1a` signatures (`whsk_`, `whpk_`); only `whsec_` secrets are known".into()
        );
    }
    let base64 = secret.strip_prefix(b"whsec_").unwrap_or(secret);
    match SECRET.decode(base64) {
        Ok(key) if !key.is_empty() => Ok(key),
        _ => Err("the secret is not `whsec_` followed by base64".into()),
    }
}

/// The headers that a sender would set.
pub(super) fn sign(secrets: &SourceSecrets, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
    let stamp = seconds(at);
    let mac = secrets.sign(HmacHash::Sha256, &[id.as_bytes(), b".", stamp.as_bytes(), b".", body]);
    let mut headers = vec![(WEBHOOK.id.to_owned(), id.to_owned()), (WEBHOOK.timestamp.to_owned(), stamp)];
    headers.extend(mac.map(|mac| (WEBHOOK.signature.to_owned(), format!("v1,{}", STANDARD.encode(mac)))));
    headers
}
