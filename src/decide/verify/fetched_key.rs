//! Keys that a sender publishes: what is asked for, and how the published documents are read. Nothing is fetched here:
//! a scheme asks the [`KeyDirectory`] it was given, and a key that is not there is a reason to judge again later.

use super::certificate;
use super::public_key::has_small_order;
use crate::decide::id::Digest;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value as Json;
use std::fmt;
use std::sync::Arc;

/// A key that a scheme needs: the document that it is in, and its id there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyRequest {
    /// What it is looked up in.
    pub document: KeyDocument,
    /// Its id, where the document has several keys.
    pub id: Option<String>,
}

impl KeyRequest {
    /// What is needed, in words.
    pub fn words(&self) -> String {
        match (&self.document, &self.id) {
            (KeyDocument::Certificate(url), _) => format!("a node would fetch the certificate at {url}"),
            (KeyDocument::KeySet, Some(id)) => format!("a node would fetch the issuer's key {id:?}"),
            (KeyDocument::KeySet, None) => "a node would fetch the issuer's key".to_owned(),
        }
    }
}

/// A document with keys.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeyDocument {
    /// The key set of the source's issuer. Where it is, the config says.
    KeySet,
    /// The X.509 certificate at this URL, which the delivery names; its host is pinned.
    Certificate(Arc<str>),
}

/// Finds published keys that are at hand. It never waits.
pub trait KeyDirectory: Send + Sync + fmt::Debug {
    /// The keys at hand that may be used now and may be the one that is asked for: without an id, all of the document.
    fn find(&self, request: &KeyRequest, now: Timestamp) -> Vec<Arc<PublishedKey>>;

    /// Whether the key set was fetched so long ago that its issuer may have replaced a key in it.
    fn may_have_changed(&self) -> bool;

    /// The address of this document, for people.
    fn address(&self, document: &KeyDocument) -> String;
}

/// A public key that a sender publishes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedKey {
    /// Its id in its document.
    pub id: Option<String>,
    material: KeyMaterial,
    /// When it may be used.
    valid: Option<(Timestamp, Timestamp)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum KeyMaterial {
    /// Modulus and exponent, without leading zeros.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// How a signature is made with a published key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishedKeyAlgorithm {
    /// RSA with PKCS #1 padding and SHA-1, which the first version of SNS signatures uses.
    RsaSha1,
    /// RSA with PKCS #1 padding and SHA-256.
    RsaSha256,
    /// ECDSA over P-256 with SHA-256; two numbers of 32 bytes.
    EcdsaP256,
    /// Ed25519.
    Ed25519,
}

impl PublishedKeyAlgorithm {
    /// The algorithm of this name in a JWT. An HMAC is none of them: its key would be public.
    pub(super) fn of_jwt(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::RsaSha256),
            "ES256" => Some(Self::EcdsaP256),
            "EdDSA" => Some(Self::Ed25519),
            _ => None,
        }
    }
}

impl PublishedKey {
    /// Whether it is of the type that this algorithm needs.
    pub(super) fn fits(&self, algorithm: PublishedKeyAlgorithm) -> bool {
        match self.material {
            KeyMaterial::Rsa { .. } => {
                matches!(algorithm, PublishedKeyAlgorithm::RsaSha1 | PublishedKeyAlgorithm::RsaSha256)
            }
            KeyMaterial::P256(_) => algorithm == PublishedKeyAlgorithm::EcdsaP256,
            KeyMaterial::Ed25519(_) => algorithm == PublishedKeyAlgorithm::Ed25519,
        }
    }

    /// Whether this signature was made over the message with the private half. The algorithm must be the key's own.
    pub(super) fn verifies(&self, algorithm: PublishedKeyAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let rsa = |n: &[u8], e: &[u8], parameters: &'static RsaParameters| {
            RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
        };
        match (&self.material, algorithm) {
            (KeyMaterial::Rsa { n, e }, PublishedKeyAlgorithm::RsaSha256) => rsa(n, e, &RSA_PKCS1_2048_8192_SHA256),
            (KeyMaterial::Rsa { n, e }, PublishedKeyAlgorithm::RsaSha1) => {
                rsa(n, e, &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY)
            }
            (KeyMaterial::P256(point), PublishedKeyAlgorithm::EcdsaP256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
            (KeyMaterial::Ed25519(key), PublishedKeyAlgorithm::Ed25519) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
            }
            _ => false,
        }
    }

    /// Its fingerprint.
    pub(super) fn mark(&self) -> Digest {
        match &self.material {
            KeyMaterial::Rsa { n, .. } => Digest::of(n),
            KeyMaterial::P256(key) | KeyMaterial::Ed25519(key) => Digest::of(key),
        }
    }

    /// Whether it may be used at this time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.valid.is_none_or(|(from, until)| from <= now && now <= until)
    }

    /// The key of a certificate in PEM. An error is a sentence.
    pub fn of_certificate(pem: &[u8]) -> Result<Self, String> {
        let found = certificate::parse(pem)?;
        let material = KeyMaterial::Rsa { n: found.modulus, e: found.exponent };
        Ok(Self { id: None, material, valid: Some(found.valid) })
    }

    /// The keys of a JSON Web Key Set that verify signatures in a way known here; others are skipped. An error is a
    /// sentence.
    pub fn of_key_set(text: &[u8]) -> Result<Vec<Self>, String> {
        let set: Json = serde_json::from_slice(text).map_err(|_| "it is not JSON".to_owned())?;
        let keys = set.get("keys").and_then(Json::as_array).ok_or("it has no list of keys")?;
        if keys.len() > limits::PUBLISHED_KEYS_MAX {
            return Err(format!("it has {} keys; at most {} are read", keys.len(), limits::PUBLISHED_KEYS_MAX));
        }
        let keys: Vec<_> = keys.iter().filter_map(Self::of_jwk).collect();
        if keys.is_empty() { Err("it has no key that can be used".to_owned()) } else { Ok(keys) }
    }

    fn of_jwk(jwk: &Json) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Json::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|used_for| used_for != "sig") {
            return None;
        }
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => KeyMaterial::Rsa { n: trimmed(bytes("n")?), e: trimmed(bytes("e")?) },
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                (x.len() == 32 && y.len() == 32).then(|| KeyMaterial::P256([&[4], &*x, &*y].concat()))?
            }
            ("OKP", Some("Ed25519")) => {
                KeyMaterial::Ed25519(bytes("x").filter(|key| key.len() == 32 && !has_small_order(key))?)
            }
            _ => return None,
        };
        let id = text("kid").filter(|id| id.len() <= limits::KEY_ID_BYTES_MAX).map(str::to_owned);
        let key = Self { id, material, valid: None };
        // A key that its issuer uses with another algorithm, or not to verify, is not used here.
        let meant = text("alg").is_none_or(|name| PublishedKeyAlgorithm::of_jwt(name).is_some_and(|alg| key.fits(alg)));
        let operations = jwk.get("key_ops").and_then(Json::as_array);
        let verifies = operations.is_none_or(|all| all.iter().any(|one| one.as_str() == Some("verify")));
        (meant && verifies).then_some(key)
    }
}

/// A number without leading zeros, as RSA components are given to the library.
pub(super) fn trimmed(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}
