//! The public keys of a sender. Signatures made with the private half prove the sender, but nobody here can make them.

use super::edwards_point;
use super::signature::MatchedKey;
use crate::decide::delivery::DeliveryRejection;
use crate::decide::id::Digest;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, ParsedPublicKey, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// How a sender signs with its private key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PublicKeyAlgorithm {
    /// Ed25519.
    Ed25519,
    /// ECDSA over P-256 with SHA-256; signatures are DER.
    EcdsaP256,
}

/// The public keys of a sender: one, or several while they are exchanged.
#[derive(Clone, Debug)]
pub struct PublicKeys {
    algorithm: PublicKeyAlgorithm,
    keys: Vec<Vec<u8>>,
}

/// The y coordinates of the points of small order on the curve of Ed25519, in little endian, also those that are not
/// reduced modulo the prime. A signature by the key of such a point can be made without a private key.
pub(super) const SMALL_ORDER: [[u8; 32]; 7] = [
    [0; 32],
    with_ends(1, 0, 0),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    with_ends(0xec, 0xff, 0x7f),
    with_ends(0xed, 0xff, 0x7f),
    with_ends(0xee, 0xff, 0x7f),
];

/// 32 bytes of which all but the first and the last are equal.
const fn with_ends(first: u8, between: u8, last: u8) -> [u8; 32] {
    let mut bytes = [between; 32];
    (bytes[0], bytes[31]) = (first, last);
    bytes
}

/// Whether anyone can sign for this public key of Ed25519, because its point has a small order.
pub(super) fn has_small_order(key: &[u8]) -> bool {
    let Ok(mut y) = <[u8; 32]>::try_from(key) else { return false };
    y[31] &= 0x7f; // the sign of x
    SMALL_ORDER.contains(&y)
}

impl PublicKeyAlgorithm {
    /// Its display name.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Ed25519 => "Ed25519",
            Self::EcdsaP256 => "ECDSA P-256",
        }
    }

    /// The length of a bare key.
    fn key_bytes(self) -> usize {
        match self {
            Self::Ed25519 => 32,
            Self::EcdsaP256 => 65,
        }
    }

    /// What stands before the bare key in a `SubjectPublicKeyInfo` of this algorithm. It is always the same.
    fn spki_prefix(self) -> &'static [u8] {
        match self {
            Self::Ed25519 => b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00",
            Self::EcdsaP256 => {
                b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00"
            }
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Ed25519 => &ED25519,
            Self::EcdsaP256 => &ECDSA_P256_SHA256_ASN1,
        }
    }

    /// Whether a bare key is a point of the curve. Without this, nothing could be verified with it.
    fn has_point(self, key: &[u8]) -> bool {
        match self {
            Self::Ed25519 => <[u8; 32]>::try_from(key).is_ok_and(|key| edwards_point::exists(&key)),
            Self::EcdsaP256 => ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).is_ok(),
        }
    }

    /// Decodes a key as senders show it: in hex, or in base64 or PEM with or without what names its algorithm. An error
    /// is a sentence.
    fn decode_key(self, text: &str) -> Result<Vec<u8>, String> {
        let text: String = text.lines().filter(|line| !line.starts_with("-----")).flat_map(str::chars).collect();
        let text = text.trim();
        let decoded = hex::decode(text).ok().or_else(|| STANDARD.decode(text).ok());
        let decoded = decoded.ok_or_else(|| "the public key is neither hex nor base64".to_owned())?;
        let key = decoded.strip_prefix(self.spki_prefix()).unwrap_or(&decoded);
        let fits = key.len() == self.key_bytes() && (self == Self::Ed25519 || key.first() == Some(&4));
        if !fits {
            return Err(format!("it is not a public key of {}", self.words()));
        }
        if self == Self::Ed25519 && has_small_order(key) {
            return Err("anyone can sign for this key: its point has a small order".to_owned());
        }
        if !self.has_point(key) {
            return Err(format!("it is not a public key of {}: there is no such point on its curve", self.words()));
        }
        Ok(key.to_vec())
    }
}

impl PublicKeys {
    /// These keys, as senders show them. An error is a sentence.
    pub fn new(algorithm: PublicKeyAlgorithm, keys: &[Vec<u8>]) -> Result<Self, String> {
        let decode = |key: &Vec<u8>| {
            let text = std::str::from_utf8(key).map_err(|_| "the public key is not a text".to_owned())?;
            algorithm.decode_key(text)
        };
        Ok(Self { algorithm, keys: keys.iter().map(decode).collect::<Result<_, _>>()? })
    }

    pub(super) fn algorithm(&self) -> PublicKeyAlgorithm {
        self.algorithm
    }

    pub(super) fn any(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The key with whose private half one of these signatures was made, over these parts of a message.
    pub(super) fn verify_signature(
        &self,
        message: &[&[u8]],
        signatures: &[Vec<u8>],
    ) -> Result<MatchedKey, DeliveryRejection> {
        let message = message.concat();
        let made = |key: &Vec<u8>| {
            let key = UnparsedPublicKey::new(self.algorithm.verification(), key);
            signatures.iter().any(|signature| key.verify(&message, signature).is_ok())
        };
        let found = self.keys.iter().enumerate().find(|(_, key)| made(key));
        let found = found.map(|(index, key)| MatchedKey::new(index, Digest::of(key)));
        found.ok_or(DeliveryRejection::BadSignature)
    }
}
