//! Verifies GitHub's signature: HMAC-SHA256 of the body as received, in hex. The SHA-1 header beside it is never used.

use super::hmac::HmacHash;
use super::signature;
use super::signature::{MatchedSecret, SourceSecrets};
use crate::decide::delivery::Delivery;
use crate::decide::delivery::DeliveryRejection;
use crate::decide::time::Duration;

/// The header with the delivery id, which stays the same when GitHub redelivers. Not signed.
pub(super) const DELIVERY: &str = "x-github-delivery";
/// The header with the kind of event. Not signed either.
pub(super) const KIND: &str = crate::decide::github_kind::HEADER;
pub(super) const SIGNATURE: &str = "x-hub-signature-256";
/// How long a person can redeliver at GitHub, which never redelivers by itself.
pub(super) const REDELIVERY_WINDOW: Duration = Duration::from_hours(3 * 24);
const PREFIX: &str = "sha256=";

/// The secret that the body was signed with.
pub(super) fn verify(secrets: &SourceSecrets, delivery: &Delivery<'_>) -> Result<MatchedSecret, DeliveryRejection> {
    let hex = signature(delivery, SIGNATURE)?.strip_prefix(PREFIX).ok_or(DeliveryRejection::BadSignature)?;
    let theirs = hex::decode(hex).map_err(|_| DeliveryRejection::BadSignature)?;
    secrets.verify_signature(HmacHash::Sha256, &[delivery.body], &[theirs])
}

/// The headers that GitHub would set.
pub(super) fn sign(secrets: &SourceSecrets, id: &str, body: &[u8]) -> Vec<(String, String)> {
    let mut headers = vec![(DELIVERY.to_owned(), id.to_owned())];
    let mac = secrets.sign(HmacHash::Sha256, &[body]);
    headers.extend(mac.map(|mac| (SIGNATURE.to_owned(), format!("{PREFIX}{}", hex::encode(mac)))));
    headers
}
