//! A key pair of a sender that signs with a private key, made here to try its preset: the private half in a file, the
//! public half for the config.

use crate::cli::error::CommandError;
use crate::decide::verify::PublicKeyAlgorithm;
use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Maximum bytes of a key file; a longer one is probably the wrong file.
const KEY_FILE_BYTES_MAX: u64 = 16 << 10;

/// A key pair of a sender.
pub(super) enum SenderKeyPair {
    Ed25519(Ed25519KeyPair),
    EcdsaP256(EcdsaKeyPair),
    /// Of senders that publish their keys.
    Rsa(RsaKeyPair),
}

/// Of which type a key pair is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyPairType {
    Ed25519,
    EcdsaP256,
    Rsa,
}

impl From<PublicKeyAlgorithm> for KeyPairType {
    fn from(algorithm: PublicKeyAlgorithm) -> Self {
        match algorithm {
            PublicKeyAlgorithm::Ed25519 => Self::Ed25519,
            PublicKeyAlgorithm::EcdsaP256 => Self::EcdsaP256,
        }
    }
}

impl KeyPairType {
    fn words(self) -> &'static str {
        match self {
            Self::Ed25519 => "Ed25519",
            Self::EcdsaP256 => "ECDSA P-256",
            Self::Rsa => "RSA",
        }
    }

    /// A new pair, in PKCS#8; `None` if there are no random bytes.
    fn generate(self) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Ed25519 => Some(Ed25519KeyPair::generate_pkcs8(&random).ok()?.as_ref().to_vec()),
            Self::EcdsaP256 => {
                let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
                Some(made.ok()?.as_ref().to_vec())
            }
            Self::Rsa => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).ok()?;
                let der: Pkcs8V1Der<'_> = pair.as_der().ok()?;
                Some(der.as_ref().to_vec())
            }
        }
    }
}

impl SenderKeyPair {
    /// The pair in this file, which is made if there is none; without a file, a new pair. Also whether it is new.
    pub(super) fn load_or_make(kind: KeyPairType, file: Option<&Path>) -> Result<(Self, bool), CommandError> {
        if let Some(path) = file.filter(|path| path.exists()) {
            return Self::load(kind, path).map(|key| (key, false));
        }
        let made = kind
            .generate()
            .ok_or_else(|| CommandError::unknown("a key pair could not be made: there are no random bytes"))?;
        let key = Self::parse(kind, &made)
            .ok_or_else(|| CommandError::unknown("a key pair could not be made: the new key cannot be read"))?;
        if let Some(path) = file {
            let written = write_private(path, &made);
            written.map_err(|error| CommandError::unknown(format!("{} cannot be written: {error}", path.display())))?;
        }
        Ok((key, true))
    }

    fn load(kind: KeyPairType, path: &Path) -> Result<Self, CommandError> {
        let cannot = |why: String| CommandError::unknown(format!("{}: {why}", path.display()));
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| cannot(error.to_string()))?;
        file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| cannot(error.to_string()))?;
        let lines: String = text.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let key = STANDARD.decode(lines).ok().and_then(|bytes| Self::parse(kind, &bytes));
        let what = kind.words();
        key.ok_or_else(|| {
            cannot(format!("it is not a private key of {what} in PEM (PKCS#8); `send` makes one if there is no file"))
        })
    }

    fn parse(kind: KeyPairType, pkcs8: &[u8]) -> Option<Self> {
        match kind {
            KeyPairType::Ed25519 => {
                let pair =
                    Ed25519KeyPair::from_pkcs8(pkcs8).or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8));
                pair.ok().map(Self::Ed25519)
            }
            KeyPairType::EcdsaP256 => {
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8).ok().map(Self::EcdsaP256)
            }
            KeyPairType::Rsa => RsaKeyPair::from_pkcs8(pkcs8).ok().map(Self::Rsa),
        }
    }

    /// The public half: as `public_key` takes it, or an `RSAPublicKey` in DER.
    pub(super) fn public_bytes(&self) -> &[u8] {
        match self {
            Self::Ed25519(pair) => pair.public_key().as_ref(),
            Self::EcdsaP256(pair) => pair.public_key().as_ref(),
            Self::Rsa(pair) => pair.public_key().as_ref(),
        }
    }

    /// The public half as `public_key` takes it, in hex.
    pub(super) fn public_key(&self) -> String {
        hex::encode(self.public_bytes())
    }

    /// The signature of a message.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
            Self::EcdsaP256(pair) => Some(pair.sign(&SystemRandom::new(), message).ok()?.as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

/// Writes a private key that only its owner can read, never over another file.
fn write_private(path: &Path, pkcs8: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let encoded = STANDARD.encode(pkcs8);
    writeln!(file, "-----BEGIN PRIVATE KEY-----")?;
    for line in encoded.as_bytes().chunks(64) {
        file.write_all(line)?;
        file.write_all(b"\n")?;
    }
    writeln!(file, "-----END PRIVATE KEY-----")?;
    file.sync_all()
}
