//! The secrets of a source, and the only places where a signature or token is compared with them.

use crate::decide::delivery::DeliveryRejection;
use crate::decide::id::Digest;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use aws_lc_rs::hmac::{Context, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256, HMAC_SHA512, Key, Tag, sign};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// The secrets of a source: one, or several while rotating. Never printed.
#[derive(Clone)]
pub struct SourceSecrets(Vec<SourceSecret>);

#[derive(Clone)]
struct SourceSecret {
    bytes: Vec<u8>,
    /// Created once, because nearly every sender uses it.
    sha256: Key,
    /// A fingerprint: identifies the secret without revealing anything about it.
    mark: Digest,
}

/// The secret or public key that matched.
#[derive(Clone, Copy, Debug)]
pub struct MatchedKey {
    /// Its index.
    pub(super) index: usize,
    /// Its fingerprint.
    pub(super) mark: Digest,
    /// The digest of the body, if it was made together with the signature.
    pub(super) body_digest: Option<Digest>,
}

impl MatchedKey {
    /// A key that matched, without the body's digest.
    pub(super) fn new(index: usize, mark: Digest) -> Self {
        Self { index, mark, body_digest: None }
    }
}

/// What is signed, in pieces of which one may be the body.
#[derive(Clone, Copy)]
pub(super) struct SignedMessage<'m> {
    /// The pieces, in their order.
    pub(super) pieces: &'m [&'m [u8]],
    /// Which of them is the whole body. Its digest is made in the same pass.
    pub(super) body: Option<usize>,
}

/// How many bytes one digest takes before it is the other's turn: two blocks. Each round of a digest waits for the one
/// before, but not for those of the other digest: close together, a processor overlaps both. A body of 10 KB takes 7.4
/// instead of 10.0 µs so.
const ALTERNATION_BYTES: usize = 128;

/// A hash for HMAC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HmacHash {
    /// SHA-1, which some senders still use.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl HmacHash {
    /// The length of a signature, in bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Its display name.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
        }
    }
}

impl SourceSecrets {
    /// These secrets. The config has rejected those that are empty or consist of NUL bytes, which are the same key to
    /// HMAC; should one slip through, nothing matches it.
    pub fn new(secrets: Vec<Vec<u8>>) -> Self {
        let made = secrets.into_iter().map(|bytes| {
            let sha256 = Key::new(HMAC_SHA256, &bytes);
            let mark = Digest::of(sign(&sha256, b"hookonce: the mark of this secret").as_ref());
            SourceSecret { bytes, sha256, mark }
        });
        Self(made.collect())
    }

    /// Whether there is a secret at all.
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(SourceSecret::is_secret)
    }

    /// The fingerprint of the first secret.
    pub(super) fn fingerprint(&self) -> Option<Digest> {
        self.0.first().map(|secret| secret.mark)
    }

    /// The secret with which one of these signatures was made, over these parts of a message.
    pub(super) fn verify_signature(
        &self,
        hash: HmacHash,
        pieces: &[&[u8]],
        signatures: &[impl AsRef<[u8]>],
    ) -> Result<MatchedKey, DeliveryRejection> {
        self.verify_message(hash, SignedMessage { pieces, body: None }, signatures)
    }

    /// The same, for a message of which one piece may be the body.
    pub(super) fn verify_message(
        &self,
        hash: HmacHash,
        message: SignedMessage<'_>,
        signatures: &[impl AsRef<[u8]>],
    ) -> Result<MatchedKey, DeliveryRejection> {
        let whole = || signatures.iter().map(AsRef::as_ref).filter(|signature| signature.len() == hash.bytes());
        if whole().next().is_none() {
            return Err(DeliveryRejection::BadSignature);
        }
        let body_digest = Cell::new(None);
        let matched = self.first(|secret| {
            let mac = match (hash, message.body) {
                // Another secret need not make the digest again.
                (HmacHash::Sha256, Some(body)) if body_digest.get().is_none() => {
                    let (mac, digest) = secret.mac_and_digest(message.pieces, body);
                    body_digest.set(Some(digest));
                    mac
                }
                _ => secret.mac(hash, message.pieces),
            };
            whole().any(|signature| verify_slices_are_equal(mac.as_ref(), signature).is_ok())
        })?;
        Ok(MatchedKey { body_digest: body_digest.get(), ..matched })
    }

    /// The secret that equals this token. Digests are compared, so that not even the length shows.
    pub(super) fn verify_token(&self, token: &[u8]) -> Result<MatchedKey, DeliveryRejection> {
        let theirs = Digest::of(token);
        self.first(|secret| verify_slices_are_equal(&Digest::of(&secret.bytes).0, &theirs.0).is_ok())
    }

    /// Whether one of the secrets equals this token.
    pub(in crate::decide) fn matches_token(&self, token: &[u8]) -> bool {
        self.verify_token(token).is_ok()
    }

    fn first(&self, matches: impl Fn(&SourceSecret) -> bool) -> Result<MatchedKey, DeliveryRejection> {
        let mut all = self.0.iter().enumerate();
        let found = all.find(|(_, secret)| secret.is_secret() && matches(secret));
        found.map(|(at, secret)| MatchedKey::new(at, secret.mark)).ok_or(DeliveryRejection::BadSignature)
    }

    /// The signature of these parts with the first secret.
    pub(super) fn sign(&self, hash: HmacHash, message: &[&[u8]]) -> Option<Tag> {
        self.0.first().map(|secret| secret.mac(hash, message))
    }

    /// The first secret as a token.
    pub(super) fn token(&self) -> Option<Cow<'_, str>> {
        self.0.first().map(|secret| String::from_utf8_lossy(&secret.bytes))
    }
}

impl SourceSecret {
    fn is_secret(&self) -> bool {
        is_secret_key(&self.bytes)
    }

    fn mac(&self, hash: HmacHash, message: &[&[u8]]) -> Tag {
        let mut context = match hash {
            HmacHash::Sha1 => Context::with_key(&Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.bytes)),
            HmacHash::Sha256 => Context::with_key(&self.sha256),
            HmacHash::Sha512 => Context::with_key(&Key::new(HMAC_SHA512, &self.bytes)),
        };
        for piece in message {
            context.update(piece);
        }
        context.sign()
    }

    /// The HMAC-SHA256 of these pieces, and the digest of the one at this index.
    fn mac_and_digest(&self, pieces: &[&[u8]], digested: usize) -> (Tag, Digest) {
        let (mut mac, mut body) = (Context::with_key(&self.sha256), digest::Context::new(&digest::SHA256));
        for (index, piece) in pieces.iter().enumerate() {
            if index != digested {
                mac.update(piece);
                continue;
            }
            for bytes in piece.chunks(ALTERNATION_BYTES) {
                mac.update(bytes);
                body.update(bytes);
            }
        }
        (mac.sign(), Digest::from(body.finish()))
    }
}

/// Whether a key has a byte that is not NUL: HMAC takes all others for the empty key, which everyone has.
pub(super) fn is_secret_key(key: &[u8]) -> bool {
    key.iter().any(|byte| *byte != 0)
}

impl fmt::Debug for SourceSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets(•••, {})", self.0.len())
    }
}
