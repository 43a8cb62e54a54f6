//! Verifies RSA signatures whose certificate the delivery names: Amazon SNS, which signs some fields of the body, and
//! PayPal, which signs an id, a time and a checksum.

use super::expectation::{age_found, header_found};
use super::fetched_key::{KeyDirectory, KeyDocument, KeyRequest, PublishedKeyAlgorithm};
use super::pinned_url::PinnedHost;
use super::scheme::{PublishedProof, PublishedSigner, Scheme, SignedContent};
use super::signature::{MatchedKey, SourceSecrets};
use super::signed_text::TimestampFormat;
use super::{check_timestamp, credential};
use crate::decide::delivery::{Delivery, DeliveryRejection};
use crate::decide::field::FieldLocation;
use crate::decide::json_walk::{JsonPathTrie, JsonScalar, PathInterest};
use crate::decide::source::DeliveryIdLocation;
use crate::decide::time::{Duration, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::sync::Arc;

/// The signatures of Amazon SNS: over fields of the body, in the body.
#[derive(Clone, Debug)]
pub struct SnsScheme {
    /// The topic: anyone can have a topic of their own, which SNS signs for as well.
    pub topic: String,
    /// Where certificates come from, and where subscriptions are confirmed.
    pub host: PinnedHost,
    /// The certificates.
    pub keys: Arc<dyn KeyDirectory>,
    /// How far its time may be off.
    pub tolerance: Duration,
}

/// The signatures of PayPal: over an id, a time, the webhook's id and a CRC-32 of the body, which anyone can keep while
/// changing the body. So they prove that PayPal sent something under this id, and nothing about the body.
#[derive(Clone, Debug)]
pub struct PaypalScheme {
    /// The webhook's id: without it, a signature for any other webhook would count.
    pub webhook_id: String,
    /// Where certificates come from.
    pub host: PinnedHost,
    /// The certificates.
    pub keys: Arc<dyn KeyDirectory>,
    /// How far the signed time may be off.
    pub tolerance: Duration,
}

const BAD: DeliveryRejection = DeliveryRejection::BadSignature;
/// The members of an SNS message that are signed, in the order of their names, which is the order in the signed text.
const SNS_SIGNED: [&str; 8] =
    ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];
const SNS_PROOF: [&str; 3] = ["Signature", "SignatureVersion", "SigningCertURL"];
const CONFIRMATION: &str = "SubscriptionConfirmation";
const UNSUBSCRIBE: &str = "UnsubscribeConfirmation";
const NOTIFICATION: &str = "Notification";

/// The texts of the known members of an SNS message.
struct SnsMessage(Vec<(&'static str, Option<String>)>);

impl SnsMessage {
    /// Reads them; `None` if one is a number or a bool. It would not be signed, and could be read as a field.
    fn read(delivery: &Delivery<'_>) -> Option<Self> {
        let mut paths = JsonPathTrie::new();
        let names = SNS_SIGNED.into_iter().chain(SNS_PROOF);
        let nodes: Vec<_> = names.map(|name| (name, paths.add(&[name.to_owned()], PathInterest::Value))).collect();
        let found = paths.walk(delivery.body).ok()?;
        let text = |node: usize| match found[node].scalar() {
            Some(JsonScalar::Text(text)) => Some(Some(text.into_owned())),
            Some(JsonScalar::Number(_) | JsonScalar::Bool(_)) => None,
            None => Some(None),
        };
        let members = nodes.into_iter().map(|(name, node)| Some((name, text(node)?)));
        members.collect::<Option<_>>().map(Self)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name)?.1.as_deref()
    }

    fn set(&mut self, name: &str, text: String) {
        if let Some((_, value)) = self.0.iter_mut().find(|(known, _)| *known == name) {
            *value = Some(text);
        }
    }

    /// What is signed. No byte can move from one value to another: only `Message` may have line breaks, it is the first,
    /// and the lines after it are counted from the end.
    fn signed_text(&self) -> Option<String> {
        let kind = self.text("Type")?;
        let names: &[&str] = match kind {
            NOTIFICATION => &["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"],
            CONFIRMATION | UNSUBSCRIBE => {
                &["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
            }
            _ => return None,
        };
        // Of a confirmation the subject is not signed.
        if kind != NOTIFICATION && self.text("Subject").is_some() {
            return None;
        }
        let mut signed = String::new();
        for name in names {
            let Some(value) = self.text(name) else {
                if *name == "Subject" {
                    continue;
                }
                return None;
            };
            if *name != "Message" && value.contains(char::is_control) {
                return None;
            }
            signed.extend([name, "\n", value, "\n"]);
        }
        Some(signed)
    }
}

/// What is wrong with a signature that should be by the certificate at this URL.
fn signature_difference(directory: &dyn KeyDirectory, url: &str, signature: &str, now: Timestamp) -> String {
    if STANDARD.decode(signature).is_err() {
        return "a signature that is not base64".to_owned();
    }
    let request = KeyRequest { document: KeyDocument::Certificate(url.into()), id: None };
    let known = !directory.find(&request, now).is_empty();
    let what =
        if known { "a signature of other values, or with another key" } else { "a certificate that is not here" };
    what.to_owned()
}

/// The key of the certificate at this URL.
fn verify_with(
    directory: &dyn KeyDirectory,
    url: &str,
    (algorithm, message, signature): (PublishedKeyAlgorithm, &[u8], &str),
    now: Timestamp,
) -> Result<MatchedKey, DeliveryRejection> {
    let signature = STANDARD.decode(signature).map_err(|_| BAD)?;
    let request = KeyRequest { document: KeyDocument::Certificate(url.into()), id: None };
    let Some(key) = directory.find(&request, now).into_iter().next() else {
        return Err(DeliveryRejection::KeyUnavailable(Box::new(request)));
    };
    if key.verifies(algorithm, message, &signature) { Ok(MatchedKey::new(0, key.mark())) } else { Err(BAD) }
}

impl SnsScheme {
    /// What is not as it should be, before the signature itself.
    fn difference(&self, message: &SnsMessage, wall: Timestamp) -> Option<String> {
        if message.text("Type").is_none() {
            return Some("no Type".to_owned());
        }
        if message.signed_text().is_none() {
            return Some("an unknown Type, or not all values that are signed with it".to_owned());
        }
        if message.text("TopicArn") != Some(&self.topic) {
            return Some("another topic in TopicArn".to_owned());
        }
        let Some(time) = message.text("Timestamp").and_then(Timestamp::parse) else {
            return Some("no time in Timestamp".to_owned());
        };
        if let Some(found) = age_found(time, wall, self.tolerance) {
            return Some(found);
        }
        if !matches!(message.text("SignatureVersion"), Some("1" | "2")) {
            return Some("another SignatureVersion than 1 and 2".to_owned());
        }
        let Some(url) = message.text("SigningCertURL") else { return Some("no SigningCertURL".to_owned()) };
        if !self.host.allows_certificate(url) {
            return Some(format!("a certificate elsewhere than at {}", self.host.origin()));
        }
        message.text("Signature").is_none().then(|| "no Signature".to_owned())
    }
}

impl Scheme for SnsScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        let message = SnsMessage::read(delivery).ok_or(BAD)?;
        let text = |name: &str| message.text(name).ok_or(BAD);
        let signed = message.signed_text().ok_or(BAD)?;
        if text("TopicArn")? != self.topic {
            return Err(BAD);
        }
        check_timestamp(Timestamp::parse(text("Timestamp")?).ok_or(BAD)?, delivery.wall, self.tolerance)?;
        let algorithm = match text("SignatureVersion")? {
            "1" => PublishedKeyAlgorithm::RsaSha1,
            "2" => PublishedKeyAlgorithm::RsaSha256,
            _ => return Err(BAD),
        };
        let url = text("SigningCertURL")?;
        if !self.host.allows_certificate(url) {
            return Err(BAD);
        }
        let proof = (algorithm, signed.as_bytes(), text("Signature")?);
        verify_with(&*self.keys, url, proof, delivery.wall).map(Some)
    }

    fn proof(&self, _: &str, _: Timestamp, _: &[u8]) -> Vec<(String, String)> {
        Vec::new()
    }

    fn published_proof(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        by: &PublishedSigner<'_>,
    ) -> Option<PublishedProof> {
        let body = Bytes::copy_from_slice(body);
        let wall = Timestamp::default();
        let delivery = Delivery { path: "", query: "", headers: &[], body: &body, at: wall, wall };
        let mut message = SnsMessage::read(&delivery)?;
        for name in ["Type", "Message"] {
            if message.text(name).is_none() {
                message.set(name, if name == "Type" { NOTIFICATION } else { id }.to_owned());
            }
        }
        let signed = [
            ("MessageId", id.to_owned()),
            ("Timestamp", TimestampFormat::Rfc3339.write(at)),
            ("TopicArn", self.topic.clone()),
            ("SignatureVersion", "2".to_owned()),
            ("SigningCertURL", self.host.certificate_url(by.key)),
        ];
        for (name, text) in signed {
            message.set(name, text);
        }
        let signature = STANDARD.encode((by.sign)(message.signed_text()?.as_bytes())?);
        message.set("Signature", signature);
        let members = message.0.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
        Some(PublishedProof { headers: Vec::new(), members })
    }

    fn covers(&self) -> SignedContent {
        let signed = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"];
        SignedContent::Fields(signed.map(|name| FieldLocation::Body(vec![name.into()])).to_vec())
    }

    fn words(&self) -> String {
        format!("Amazon SNS's signature (RSA) for {}", self.topic)
    }

    fn expected(&self) -> Option<String> {
        let (topic, host) = (&self.topic, self.host.origin());
        Some(format!("body.Signature (base64, RSA) of a message of {topic}, by a certificate of {host}"))
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        let Some(message) = SnsMessage::read(delivery) else {
            return Some("a body that is not JSON, or a member of it that is no text".to_owned());
        };
        if let Some(found) = self.difference(&message, delivery.wall) {
            return Some(found);
        }
        let (url, signature) = (message.text("SigningCertURL")?, message.text("Signature")?);
        Some(signature_difference(&*self.keys, url, signature, delivery.wall))
    }

    fn time(&self, delivery: &Delivery<'_>) -> Option<Timestamp> {
        SnsMessage::read(delivery)?.text("Timestamp").and_then(Timestamp::parse)
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        vec![FieldLocation::Body(vec!["Signature".into()])]
    }

    fn has_key(&self) -> bool {
        true
    }

    fn with_secrets(&self, _: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Err("its deliveries are signed by the sender, not with a secret".into())
    }

    fn ignoring_age(&self) -> Option<Arc<dyn Scheme>> {
        Some(Arc::new(Self { tolerance: Duration::MAX, ..self.clone() }))
    }

    fn tolerance(&self) -> Option<Duration> {
        Some(self.tolerance)
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        None
    }

    fn delivery_id(&self) -> Option<DeliveryIdLocation> {
        Some(DeliveryIdLocation { at: FieldLocation::Body(vec!["MessageId".into()]), signed: true })
    }

    fn confirmation_url(&self, delivery: &Delivery<'_>) -> Option<String> {
        let message = SnsMessage::read(delivery)?;
        let url = message.text("SubscribeURL").filter(|_| message.text("Type") == Some(CONFIRMATION))?;
        self.host.allows_confirmation(url).then(|| url.to_owned())
    }
}

const ID: &str = "paypal-transmission-id";
const TIME: &str = "paypal-transmission-time";
const SIGNATURE: &str = "paypal-transmission-sig";
const CERTIFICATE: &str = "paypal-cert-url";
const ALGORITHM: &str = "paypal-auth-algo";

impl PaypalScheme {
    /// What is signed.
    fn message(&self, id: &str, time: &str, body: &[u8]) -> String {
        format!("{id}|{time}|{}|{}", self.webhook_id, crc32(body))
    }

    /// What is not as it should be, before the signature itself.
    fn difference(&self, delivery: &Delivery<'_>) -> Option<String> {
        if let Some(name) = [ID, TIME, ALGORITHM, CERTIFICATE].iter().find(|name| delivery.text(name).is_none()) {
            return Some(format!("no header {name}, or more than one"));
        }
        if delivery.text(ID).is_some_and(|id| id.contains('|')) {
            return Some(format!("a bar in {ID}"));
        }
        if delivery.text(ALGORITHM) != Some("SHA256withRSA") {
            return Some(format!("another way to sign in {ALGORITHM} than SHA256withRSA"));
        }
        let Some(time) = delivery.text(TIME).and_then(|time| TimestampFormat::Rfc3339.parse(time)) else {
            return Some(format!("no time in {TIME}"));
        };
        if let Some(found) = age_found(time, delivery.wall, self.tolerance) {
            return Some(found);
        }
        let allowed = delivery.text(CERTIFICATE).is_some_and(|url| self.host.allows_certificate(url));
        (!allowed).then(|| format!("a certificate elsewhere than at {}", self.host.origin()))
    }
}

impl Scheme for PaypalScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        let text = |name: &str| delivery.text(name).ok_or(BAD);
        let (id, time) = (text(ID)?, text(TIME)?);
        // A bar would let a byte move unnoticed from one value to the next; a time has none.
        if id.contains('|') || text(ALGORITHM)? != "SHA256withRSA" {
            return Err(BAD);
        }
        // The body is not signed, so what was captured must not count for longer than its id is remembered.
        check_timestamp(TimestampFormat::Rfc3339.parse(time).ok_or(BAD)?, delivery.wall, self.tolerance)?;
        let url = text(CERTIFICATE)?;
        if !self.host.allows_certificate(url) {
            return Err(BAD);
        }
        let message = self.message(id, time, delivery.body);
        let proof = (PublishedKeyAlgorithm::RsaSha256, message.as_bytes(), credential(delivery, SIGNATURE)?);
        verify_with(&*self.keys, url, proof, delivery.wall).map(Some)
    }

    fn proof(&self, _: &str, _: Timestamp, _: &[u8]) -> Vec<(String, String)> {
        Vec::new()
    }

    fn published_proof(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        by: &PublishedSigner<'_>,
    ) -> Option<PublishedProof> {
        let time = TimestampFormat::Rfc3339.write(at);
        let signature = (by.sign)(self.message(id, &time, body).as_bytes())?;
        let headers = [
            (ID, id.to_owned()),
            (TIME, time),
            (SIGNATURE, STANDARD.encode(signature)),
            (CERTIFICATE, self.host.certificate_url(by.key)),
            (ALGORITHM, "SHA256withRSA".to_owned()),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Some(PublishedProof { headers, members: Vec::new() })
    }

    fn covers(&self) -> SignedContent {
        SignedContent::Nonce(FieldLocation::Header(ID.into()))
    }

    fn words(&self) -> String {
        "PayPal's signature (RSA)".into()
    }

    fn expected(&self) -> Option<String> {
        let (webhook, host) = (&self.webhook_id, self.host.origin());
        Some(format!(
            "header {SIGNATURE} (base64, RSA) over {{id}}|{{time}}|{webhook}|{{checksum}}, by a certificate of {host}"
        ))
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        let signature = match header_found(delivery, SIGNATURE) {
            Ok(signature) => signature,
            Err(found) => return Some(found),
        };
        let found = self.difference(delivery);
        found.or_else(|| Some(signature_difference(&*self.keys, delivery.text(CERTIFICATE)?, signature, delivery.wall)))
    }

    fn time(&self, delivery: &Delivery<'_>) -> Option<Timestamp> {
        TimestampFormat::Rfc3339.parse(delivery.text(TIME)?)
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        vec![FieldLocation::Header(SIGNATURE.into())]
    }

    fn has_key(&self) -> bool {
        true
    }

    fn with_secrets(&self, _: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Err("its deliveries are signed by the sender, not with a secret".into())
    }

    fn ignoring_age(&self) -> Option<Arc<dyn Scheme>> {
        Some(Arc::new(Self { tolerance: Duration::MAX, ..self.clone() }))
    }

    fn tolerance(&self) -> Option<Duration> {
        Some(self.tolerance)
    }

    fn signed_headers(&self) -> Vec<&str> {
        vec![ID, TIME]
    }

    fn delivery_id(&self) -> Option<DeliveryIdLocation> {
        Some(DeliveryIdLocation { at: FieldLocation::Header(ID.into()), signed: true })
    }
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// The CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| CRC_TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_ieee() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
