//! Verifies payments notifications of Adyen: a signature in the body, over eight of its values.
//!
//! The values are joined with colons, and Adyen escapes none in them. So that no byte can move from one value to another,
//! only the merchant's own reference may have a colon: the three values before it and the four after it have none, and
//! what is left between them is the reference. Other types of values, whose texts would be the same, are refused.

use super::described::{SecretEncoding, SignatureEncoding};
use super::scheme::{Scheme, SignedContent};
use super::signature::{HmacHash, MatchedKey, SourceSecrets};
use crate::decide::delivery::{Delivery, DeliveryRejection};
use crate::decide::field::FieldLocation;
use crate::decide::json_walk::{JsonMatch, JsonPathTrie, JsonScalar, PathInterest};
use crate::decide::limits;
use crate::decide::time::Timestamp;
use std::sync::Arc;

/// The signature of Adyen's payments notifications.
#[derive(Clone, Debug)]
pub struct AdyenScheme {
    secrets: SourceSecrets,
}

const BAD: DeliveryRejection = DeliveryRejection::BadSignature;
const ITEMS: &str = "notificationItems";
/// The signed values of a notification, in their order.
const SIGNED: [&[&str]; 8] = [
    &["pspReference"],
    &["originalReference"],
    &["merchantAccountCode"],
    MERCHANT_REFERENCE,
    AMOUNT,
    &["amount", "currency"],
    &["eventCode"],
    &["success"],
];
/// The one that may have colons.
const MERCHANT_REFERENCE: &[&str] = &["merchantReference"];
/// The one that is a number.
const AMOUNT: &[&str] = &["amount", "value"];
/// Those that need not be there; they are signed as empty.
const OPTIONAL: [&[&str]; 2] = [&["originalReference"], MERCHANT_REFERENCE];

/// The path of a value of the one notification.
fn path(of: &[&str]) -> Vec<String> {
    [ITEMS, "0", "NotificationRequestItem"].iter().chain(of).map(|part| (*part).to_owned()).collect()
}

fn signature_path() -> Vec<String> {
    path(&["additionalData", "hmacSignature"])
}

/// A notification: what is signed, the signature as it is written, and whether others follow it.
struct AdyenNotification {
    signed: String,
    signature: Option<String>,
    has_more: bool,
}

impl AdyenNotification {
    /// Reads a notification. An error says what is not as it should be.
    fn read(body: &[u8]) -> Result<Self, String> {
        let mut paths = JsonPathTrie::new();
        let nodes = SIGNED.map(|value| (value, paths.add(&path(value), PathInterest::Value)));
        let signature = paths.add(&signature_path(), PathInterest::Value);
        let second = paths.add(&[ITEMS.to_owned(), "1".to_owned()], PathInterest::Shape);
        let found = paths.walk(body).map_err(|_| "a body that is not JSON".to_owned())?;
        let mut values = Vec::new();
        for (value, node) in nodes {
            let text = match found[node].scalar() {
                Some(JsonScalar::Text(text)) if value != AMOUNT => text.into_owned(),
                Some(JsonScalar::Number(raw)) if value == AMOUNT => raw.to_owned(),
                None if OPTIONAL.contains(&value) => String::new(),
                None => return Err(format!("no {} in the notification", value.join("."))),
                Some(_) => return Err(format!("a value of another type in {}", value.join("."))),
            };
            if value != MERCHANT_REFERENCE && text.contains(':') {
                return Err(format!("a colon in {}", value.join(".")));
            }
            values.push(text);
        }
        let signature = match found[signature].scalar() {
            Some(JsonScalar::Text(text)) => Some(text.into_owned()),
            _ => None,
        };
        Ok(Self { signed: values.join(":"), signature, has_more: found[second] != JsonMatch::Nowhere })
    }
}

impl AdyenScheme {
    /// With these secrets as Adyen shows them, in hex. An error is a sentence.
    pub fn new(secrets: &[Vec<u8>]) -> Result<Self, String> {
        let decoded = secrets.iter().map(|secret| SecretEncoding::Hex.decode(secret)).collect::<Result<_, _>>()?;
        Ok(Self { secrets: SourceSecrets::new(decoded) })
    }
}

impl Scheme for AdyenScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        let notification = AdyenNotification::read(delivery.body).map_err(|_| BAD)?;
        let theirs = notification.signature.filter(|text| text.len() <= limits::SIGNATURE_BYTES_MAX).ok_or(BAD)?;
        let theirs = SignatureEncoding::Base64.decode(&theirs).ok_or(BAD)?;
        let matched = self.secrets.verify_signature(HmacHash::Sha256, &[notification.signed.as_bytes()], &[theirs])?;
        if notification.has_more {
            let why = "`notificationItems` has more than one element, and only the first was verified";
            return Err(DeliveryRejection::Malformed(why.into()));
        }
        Ok(Some(matched))
    }

    fn proof(&self, _: &str, _: Timestamp, _: &[u8]) -> Vec<(String, String)> {
        Vec::new()
    }

    fn signature_in_body(&self, body: &[u8]) -> Option<(Vec<String>, String)> {
        let notification = AdyenNotification::read(body).ok()?;
        let mac = self.secrets.sign(HmacHash::Sha256, &[notification.signed.as_bytes()])?;
        Some((signature_path(), SignatureEncoding::Base64.encode(mac.as_ref())))
    }

    fn covers(&self) -> SignedContent {
        SignedContent::Fields(SIGNED.map(|value| FieldLocation::Body(path(value))).to_vec())
    }

    fn signed_text(&self, delivery: &Delivery<'_>) -> Option<Vec<u8>> {
        AdyenNotification::read(delivery.body).ok().map(|notification| notification.signed.into_bytes())
    }

    fn words(&self) -> String {
        "Adyen's signature of a notification (SHA-256)".into()
    }

    fn expected(&self) -> Option<String> {
        let place = FieldLocation::Body(signature_path());
        let names = SIGNED.map(|value| value.join("."));
        Some(format!("{place} (base64, 44 characters) over {} of the notification", names.join(":")))
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        let notification = match AdyenNotification::read(delivery.body) {
            Ok(notification) => notification,
            Err(found) => return Some(found),
        };
        let Some(theirs) = notification.signature else { return Some("no signature there".to_owned()) };
        Some(match SignatureEncoding::Base64.decode(&theirs) {
            None => "a signature that is not base64".to_owned(),
            Some(theirs) if theirs.len() != HmacHash::Sha256.bytes() => "a signature of another length".to_owned(),
            Some(_) => "a signature of other values, or with another secret".to_owned(),
        })
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        vec![FieldLocation::Body(signature_path())]
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        Some(&self.secrets)
    }

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Ok(Arc::new(Self::new(&secrets)?))
    }
}
