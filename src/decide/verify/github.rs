//! Verifies GitHub's signature: HMAC-SHA256 of the body as received, in hex. The SHA-1 header beside it is never used.

use super::content_type;
use super::credential;
use super::expectation::{ANOTHER_SIGNATURE, header_found};
use super::scheme::{Scheme, SignedContent};
use super::signature::{HmacHash, MatchedKey, SignedMessage, SourceSecrets};
use crate::decide::delivery::{Delivery, DeliveryRejection};
use crate::decide::field::FieldLocation;
use crate::decide::source::DeliveryIdLocation;
use crate::decide::time::{Duration, Timestamp};
use std::borrow::Cow;
use std::sync::Arc;

/// The header with the delivery id, which stays the same when GitHub redelivers. Not signed.
const DELIVERY: &str = "x-github-delivery";
/// The header with the kind of event. Not signed either.
const KIND: &str = crate::decide::github_kind::HEADER;
const SIGNATURE: &str = "x-hub-signature-256";
/// How long a person can redeliver at GitHub, which never redelivers by itself.
const REDELIVERY_WINDOW: Duration = Duration::from_hours(3 * 24);
const PREFIX: &str = "sha256=";

/// GitHub's signature.
#[derive(Clone, Debug)]
pub(super) struct GithubScheme(pub(super) SourceSecrets);

impl Scheme for GithubScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        let hex = credential(delivery, SIGNATURE)?.strip_prefix(PREFIX).ok_or(DeliveryRejection::BadSignature)?;
        let mut theirs = [0; 32];
        hex::decode_to_slice(hex, &mut theirs).map_err(|_| DeliveryRejection::BadSignature)?;
        let message = SignedMessage { pieces: &[delivery.body], body: Some(0) };
        self.0.verify_message(HmacHash::Sha256, message, &[theirs]).map(Some)
    }

    fn proof(&self, id: &str, _: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let mut headers = vec![(DELIVERY.to_owned(), id.to_owned())];
        let mac = self.0.sign(HmacHash::Sha256, &[body]);
        headers.extend(mac.map(|mac| (SIGNATURE.to_owned(), format!("{PREFIX}{}", hex::encode(mac)))));
        headers
    }

    fn covers(&self) -> SignedContent {
        SignedContent::Body
    }

    fn words(&self) -> String {
        "GitHub's signature (SHA-256)".into()
    }

    fn expected(&self) -> Option<String> {
        Some(format!("header {SIGNATURE} with {PREFIX} and 64 hex digits over {{body}}"))
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        let header = match header_found(delivery, SIGNATURE) {
            Ok(header) => header,
            Err(found) => return Some(found),
        };
        let Some(digits) = header.strip_prefix(PREFIX) else { return Some(format!("no {PREFIX} at its beginning")) };
        Some(match hex::decode(digits) {
            Err(_) => "digits that are not hex".to_owned(),
            Ok(bytes) if bytes.len() != HmacHash::Sha256.bytes() => format!("{} digits", digits.len()),
            Ok(_) => ANOTHER_SIGNATURE.to_owned(),
        })
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        vec![FieldLocation::Header(SIGNATURE.into())]
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        Some(&self.0)
    }

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Ok(Arc::new(Self(SourceSecrets::new(secrets))))
    }

    fn delivery_id(&self) -> Option<DeliveryIdLocation> {
        Some(DeliveryIdLocation { at: FieldLocation::Header(DELIVERY.into()), signed: false })
    }

    fn kind_header(&self) -> Option<&'static str> {
        Some(KIND)
    }

    fn redelivered_by_hand(&self) -> Option<(&'static str, Duration)> {
        Some(("GitHub", REDELIVERY_WINDOW))
    }

    fn reads_json_forms(&self) -> bool {
        true
    }

    fn json<'d>(&self, delivery: &'d Delivery<'d>) -> Result<Option<Cow<'d, [u8]>>, DeliveryRejection> {
        content_type::github(delivery).map(Some)
    }
}
