//! Verifies Standard Webhooks (originally Svix's scheme): HMAC-SHA256 of `id.timestamp.body`, in base64, as `v1`; or its
//! Ed25519 signature, as `v1a`.

use super::described::SecretEncoding;
use super::expectation::{ANOTHER_KEY, ANOTHER_SIGNATURE, age_found, header_found};
use super::public_key::{PublicKeyAlgorithm, PublicKeys};
use super::scheme::{Scheme, SignedContent};
use super::signature::{HmacHash, MatchedKey, SignedMessage, SourceSecrets, is_secret_key};
use super::{check_timestamp, credential, seconds};
use crate::decide::delivery::{Delivery, DeliveryRejection, HeaderLookup};
use crate::decide::field::FieldLocation;
use crate::decide::limits;
use crate::decide::source::DeliveryIdLocation;
use crate::decide::time::{Duration, Timestamp};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;
use std::sync::Arc;

/// Standard Webhooks.
#[derive(Clone, Debug)]
pub(super) struct StandardWebhooksScheme {
    keys: StandardKeys,
    /// How far the time may be off, either way.
    tolerance: Duration,
}

/// What signatures are verified with. A source has one kind of them, so that no sender can choose the other.
#[derive(Clone, Debug)]
enum StandardKeys {
    /// `v1`: a shared secret.
    Hmac {
        /// The decoded secrets.
        secrets: SourceSecrets,
        /// How senders hand them out; in base64 after `whsec_`, as the standard says, or in a way of their own.
        encoding: SecretEncoding,
    },
    /// `v1a`: the sender's public keys for Ed25519.
    Public(PublicKeys),
}

impl StandardKeys {
    /// What stands before a signature in the list.
    fn version(&self) -> &'static str {
        match self {
            Self::Hmac { .. } => "v1",
            Self::Public(_) => "v1a",
        }
    }

    /// The bytes of a signature.
    fn signature_bytes(&self) -> usize {
        match self {
            Self::Hmac { .. } => HmacHash::Sha256.bytes(),
            Self::Public(_) => ED25519_BYTES,
        }
    }
}

/// The length of an Ed25519 signature.
const ED25519_BYTES: usize = 64;

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
const SIGNATURES: [&str; 2] = [WEBHOOK.signature, SVIX.signature];
/// The headers that are signed with the body. Both names count, since a delivery that mixes them is refused.
const SIGNED: [&str; 4] = [WEBHOOK.id, WEBHOOK.timestamp, SVIX.id, SVIX.timestamp];

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

impl StandardWebhooksScheme {
    /// Standard Webhooks with these secrets, in the form that senders hand out. An error is a sentence.
    pub(super) fn new(secrets: &[Vec<u8>], encoding: SecretEncoding, tolerance: Duration) -> Result<Self, String> {
        let decode = |secret: &Vec<u8>| match encoding {
            SecretEncoding::Base64 => decode_secret(secret),
            SecretEncoding::Text | SecretEncoding::Base64Url | SecretEncoding::Hex => encoding.decode(secret),
        };
        let decoded = secrets.iter().map(decode).collect::<Result<_, _>>()?;
        Ok(Self { keys: StandardKeys::Hmac { secrets: SourceSecrets::new(decoded), encoding }, tolerance })
    }

    /// Standard Webhooks with these public keys, as senders show them. An error is a sentence.
    pub(super) fn with_public_keys(keys: &[Vec<u8>], tolerance: Duration) -> Result<Self, String> {
        let bare = |key: &Vec<u8>| {
            if key.starts_with(b"whsk_") || key.starts_with(b"whsec_") {
                return Err("it is a secret of the sender (`whsk_`, `whsec_`), and no public key".to_owned());
            }
            Ok(key.strip_prefix(b"whpk_").unwrap_or(key).to_vec())
        };
        let keys = keys.iter().map(bare).collect::<Result<Vec<_>, _>>()?;
        let keys = StandardKeys::Public(PublicKeys::new(PublicKeyAlgorithm::Ed25519, &keys)?);
        Ok(Self { keys, tolerance })
    }

    /// The headers of a genuine delivery, signed in this way.
    fn headers(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        sign: impl FnOnce(&[&[u8]]) -> Option<Vec<u8>>,
    ) -> Vec<(String, String)> {
        let stamp = seconds(at);
        let signature = sign(&[id.as_bytes(), b".", stamp.as_bytes(), b".", body]);
        let version = self.keys.version();
        let signature = signature.map(|signature| format!("{version},{}", STANDARD.encode(signature)));
        let mut headers = vec![(WEBHOOK.id.to_owned(), id.to_owned()), (WEBHOOK.timestamp.to_owned(), stamp)];
        headers.extend(signature.map(|signature| (WEBHOOK.signature.to_owned(), signature)));
        headers
    }
}

impl Scheme for StandardWebhooksScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        let names = names(delivery).ok_or(DeliveryRejection::BadSignature)?;
        let id = delivery.text(names.id).ok_or(DeliveryRejection::BadSignature)?;
        let stamp = delivery.text(names.timestamp).ok_or(DeliveryRejection::BadSignature)?;
        // A dot would let a byte move unnoticed from the id to the time.
        if id.contains('.') {
            return Err(DeliveryRejection::BadSignature);
        }
        check_timestamp(parse_seconds(stamp).ok_or(DeliveryRejection::BadSignature)?, delivery.wall, self.tolerance)?;
        let theirs = signatures(credential(delivery, names.signature)?, self.keys.version())?;
        let pieces: [&[u8]; 5] = [id.as_bytes(), b".", stamp.as_bytes(), b".", delivery.body];
        match &self.keys {
            StandardKeys::Hmac { secrets, .. } => {
                let message = SignedMessage { pieces: &pieces, body: Some(4) };
                secrets.verify_message(HmacHash::Sha256, message, &theirs).map(Some)
            }
            StandardKeys::Public(keys) => keys.verify_signature(&pieces, &theirs).map(Some),
        }
    }

    fn proof(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        match &self.keys {
            StandardKeys::Hmac { secrets, .. } => {
                let sign = |message: &[&[u8]]| Some(secrets.sign(HmacHash::Sha256, message)?.as_ref().to_vec());
                self.headers(id, at, body, sign)
            }
            StandardKeys::Public(_) => self.headers(id, at, body, |_| None),
        }
    }

    fn proof_by(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        sign: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Vec<(String, String)> {
        self.headers(id, at, body, |message| sign(&message.concat()))
    }

    fn private_key(&self) -> Option<PublicKeyAlgorithm> {
        match &self.keys {
            StandardKeys::Hmac { .. } => None,
            StandardKeys::Public(keys) => Some(keys.algorithm()),
        }
    }

    fn covers(&self) -> SignedContent {
        SignedContent::IdTimeAndBody
    }

    fn words(&self) -> String {
        match &self.keys {
            StandardKeys::Hmac { .. } => "a Standard Webhooks signature (SHA-256)".into(),
            StandardKeys::Public(_) => "a Standard Webhooks signature (Ed25519)".into(),
        }
    }

    fn expected(&self) -> Option<String> {
        let SignatureHeaderNames { id, timestamp, signature } = WEBHOOK;
        let (version, length) = (self.keys.version(), self.keys.signature_bytes().div_ceil(3) * 4);
        Some(format!(
            "headers {id}, {timestamp} (seconds) and {signature} ({version}, and base64, {length} characters) over \
             {{id}}.{{timestamp}}.{{body}}, or the same with svix-"
        ))
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        let Some(names) = names(delivery) else { return Some("headers of both names, or none".to_owned()) };
        if let Some((name, found)) =
            names.all().iter().find_map(|name| Some((name, header_found(delivery, name).err()?)))
        {
            return Some(format!("{found}: {name}"));
        }
        if delivery.text(names.id).is_some_and(|id| id.contains('.')) {
            return Some(format!("a dot in {}", names.id));
        }
        let Some(time) = delivery.text(names.timestamp).and_then(parse_seconds) else {
            return Some(format!("no seconds in {}", names.timestamp));
        };
        if let Some(found) = age_found(time, delivery.wall, self.tolerance) {
            return Some(found);
        }
        let version = self.keys.version();
        let list = credential(delivery, names.signature);
        let theirs = list.and_then(|list| signatures(list, version)).unwrap_or_default();
        let whole = theirs.iter().any(|signature| signature.len() == self.keys.signature_bytes());
        Some(match self.keys {
            _ if !whole => format!("no whole {version} signature"),
            StandardKeys::Hmac { .. } => ANOTHER_SIGNATURE.to_owned(),
            StandardKeys::Public(_) => ANOTHER_KEY.to_owned(),
        })
    }

    fn time(&self, delivery: &Delivery<'_>) -> Option<Timestamp> {
        parse_seconds(delivery.text(names(delivery)?.timestamp)?)
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        SIGNATURES.iter().map(|&name| FieldLocation::Header(name.into())).collect()
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        match &self.keys {
            StandardKeys::Hmac { secrets, .. } => Some(secrets),
            StandardKeys::Public(_) => None,
        }
    }

    fn has_key(&self) -> bool {
        match &self.keys {
            StandardKeys::Hmac { secrets, .. } => secrets.any(),
            StandardKeys::Public(keys) => keys.any(),
        }
    }

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Ok(Arc::new(match &self.keys {
            StandardKeys::Hmac { encoding, .. } => Self::new(&secrets, *encoding, self.tolerance)?,
            StandardKeys::Public(_) => Self::with_public_keys(&secrets, self.tolerance)?,
        }))
    }

    fn ignoring_age(&self) -> Option<Arc<dyn Scheme>> {
        Some(Arc::new(Self { tolerance: Duration::MAX, ..self.clone() }))
    }

    fn tolerance(&self) -> Option<Duration> {
        Some(self.tolerance)
    }

    fn signed_headers(&self) -> Vec<&str> {
        SIGNED.to_vec()
    }

    fn signed_time<'d>(&self, delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
        delivery.text(names(delivery)?.timestamp).map(Cow::Borrowed)
    }

    fn signs_time(&self) -> bool {
        true
    }

    fn delivery_id(&self) -> Option<DeliveryIdLocation> {
        Some(DeliveryIdLocation { at: FieldLocation::Header(WEBHOOK.id.into()), signed: true })
    }

    fn signed_id<'d>(&self, delivery: &Delivery<'d>) -> Option<&'d str> {
        delivery.text(names(delivery)?.id)
    }

    fn has_id_at(&self, place: &FieldLocation) -> bool {
        matches!(place, FieldLocation::Header(name) if [WEBHOOK.id, SVIX.id].contains(&name.as_str()))
    }
}

/// Parses `v1,… v1,…`: other versions than this one are skipped, and so is what is not base64.
fn signatures(list: &str, version: &str) -> Result<Vec<Vec<u8>>, DeliveryRejection> {
    if list.split(' ').count() > limits::SIGNATURES_MAX {
        return Err(DeliveryRejection::BadSignature);
    }
    let ours = list.split(' ').filter_map(|entry| entry.strip_prefix(version)?.strip_prefix(','));
    Ok(ours.filter_map(|base64| STANDARD.decode(base64).ok()).collect())
}

fn parse_seconds(text: &str) -> Option<Timestamp> {
    // `parse` would also take a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)?;
    digits.parse::<i64>().ok()?.checked_mul(1_000_000).map(Timestamp)
}

/// Decodes the key of a `whsec_…`. An error is a sentence, and never shows the secret.
fn decode_secret(secret: &[u8]) -> Result<Vec<u8>, String> {
    if secret.starts_with(b"whpk_") {
        return Err("it is a public key, for `v1a` signatures: write it as `public_key`, instead of `secret`".into());
    }
    if secret.starts_with(b"whsk_") {
        return Err(
            "it is the sender's private key, for `v1a` signatures: write its public key (`whpk_…`) as `public_key`"
                .into(),
        );
    }
    // Supabase shows the version in front of it.
    let versionless = secret.strip_prefix(b"v1,").unwrap_or(secret);
    let base64 = versionless.strip_prefix(b"whsec_").unwrap_or(versionless);
    match SECRET.decode(base64) {
        Ok(key) if is_secret_key(&key) => Ok(key),
        Ok(_) => Err("the secret is not a key: it is empty, or of NUL bytes, which everyone has".into()),
        _ => Err("the secret is not `whsec_` followed by base64".into()),
    }
}
