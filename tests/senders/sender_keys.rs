//! The keys of senders that publish them: pairs of our own, whose public halves a source has learnt.

use super::signed_samples::SentDelivery;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::PublicKeyAlgorithm;
use hookonce::internals::key_fetch::FetchedKeys;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The private halves of a sender's keys.
struct SenderKeys {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    /// Those of senders whose public half is in the config.
    ed25519: Ed25519KeyPair,
    ec_in_der: EcdsaKeyPair,
}

/// Which of two pairs signs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignedWith {
    /// The published one.
    Published,
    /// Another one, that calls itself the published one.
    Forged,
}

const KEY_ID: &str = "key-1";
const SNS_CERTIFICATE: &str = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem";
const PAYPAL_CERTIFICATE: &str = "https://api.paypal.com/v1/notifications/certs/CERT-0123";

fn keys(which: SignedWith) -> &'static SenderKeys {
    static PAIRS: [OnceLock<SenderKeys>; 2] = [OnceLock::new(), OnceLock::new()];
    let made = || SenderKeys {
        rsa: KeyPair::generate(KeySize::Rsa2048).expect("random bytes"),
        ec: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("random bytes"),
        ed25519: Ed25519KeyPair::generate().expect("random bytes"),
        ec_in_der: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("random bytes"),
    };
    PAIRS[usize::from(which == SignedWith::Forged)].get_or_init(made)
}

/// The public keys for configs, in hex: for each algorithm that of the sender, and another one.
pub(crate) fn public_keys() -> [[&'static str; 2]; 2] {
    static KEYS: OnceLock<[[String; 2]; 2]> = OnceLock::new();
    let both = [SignedWith::Published, SignedWith::Forged].map(keys);
    let made = KEYS.get_or_init(|| {
        [
            both.map(|keys| hex::encode(keys.ed25519.public_key())),
            both.map(|keys| hex::encode(keys.ec_in_der.public_key())),
        ]
    });
    made.each_ref().map(|pair| pair.each_ref().map(String::as_str))
}

/// The signature of a message by the sender's private key for this algorithm.
pub(crate) fn signature(algorithm: PublicKeyAlgorithm, message: &[u8], with: SignedWith) -> Vec<u8> {
    match algorithm {
        PublicKeyAlgorithm::Ed25519 => keys(with).ed25519.sign(message).as_ref().to_vec(),
        PublicKeyAlgorithm::EcdsaP256 => {
            keys(with).ec_in_der.sign(&SystemRandom::new(), message).expect("a signature").as_ref().to_vec()
        }
        other => panic!("no key pair for {other:?}"),
    }
}

/// An element in DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a short certificate").to_be_bytes();
    [&[tag, 0x82], &length[..], content].concat()
}

/// A certificate with this RSA key (a `RSAPublicKey` in DER), valid for twenty years. Its own signature is empty.
fn certificate(key: &[u8]) -> String {
    let sequence = |parts: &[Vec<u8>]| der(0x30, &parts.concat());
    let sha256_with_rsa = sequence(&[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00".to_vec()]);
    let rsa = sequence(&[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00".to_vec()]);
    let validity = sequence(&[der(0x17, b"200101000000Z"), der(0x17, b"400101000000Z")]);
    let info = sequence(&[rsa, der(0x03, &[&[0], key].concat())]);
    let name = || sequence(&[]);
    let version = der(0xa0, b"\x02\x01\x02");
    let tbs = sequence(&[version, der(0x02, b"\x01"), sha256_with_rsa.clone(), name(), validity, name(), info]);
    let whole = sequence(&[tbs, sha256_with_rsa, der(0x03, b"\0")]);
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(whole))
}

/// Gives a source the public halves.
pub(crate) fn publish(to: &FetchedKeys) {
    let keys = keys(SignedWith::Published);
    let point = keys.ec.public_key().as_ref();
    let (x, y) = point[1..].split_at(32);
    let coordinate = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let key = json!({ "kty": "EC", "crv": "P-256", "kid": KEY_ID, "use": "sig", "alg": "ES256",
        "x": coordinate(x), "y": coordinate(y) });
    to.learn_key_set(json!({ "keys": [key] }).to_string().as_bytes()).expect("a key set");
    let pem = certificate(keys.rsa.public_key().as_ref());
    for url in [SNS_CERTIFICATE, PAYPAL_CERTIFICATE] {
        to.learn_certificate(url, pem.as_bytes()).expect("a certificate");
    }
}

fn rsa_signature(message: &str, with: SignedWith) -> String {
    let key = &keys(with).rsa;
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature).expect("a signature");
    STANDARD.encode(signature)
}

/// A token with these claims.
pub(crate) fn token(claims: &Value, with: SignedWith) -> String {
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let message = format!("{}.{}", part(&json!({ "alg": "ES256", "kid": KEY_ID, "typ": "JWT" })), part(claims));
    let signature = keys(with).ec.sign(&SystemRandom::new(), message.as_bytes()).expect("a signature");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The issuer of a preset's tokens, and the claims that its example pins; with what such an issuer adds.
fn claims_of(preset: &str) -> Option<(&'static str, Value)> {
    let google = || json!({ "email": "push@PROJECT.iam.gserviceaccount.com", "email_verified": true });
    Some(match preset {
        "github-actions" => (
            "https://token.actions.githubusercontent.com",
            json!({ "repository": "owner/name", "ref": "refs/heads/main", "sha": "0d1a26e6", "run_id": "1",
                "run_attempt": "1", "workflow": "deploy", "actor": "octocat", "environment": "production" }),
        ),
        "gitlab-ci" => (
            "https://gitlab.com",
            json!({ "project_path": "group/name", "ref": "main", "sha": "0d1a26e6", "pipeline_id": "1", "job_id": "2",
                "user_login": "ann", "environment": "production" }),
        ),
        "event-grid-jwt" => (
            "https://login.microsoftonline.com/TENANT/v2.0",
            json!({ "azp": "4962773b-9cdb-44cf-a8bf-237846a00ab7", "tid": "TENANT", "ver": "2.0" }),
        ),
        "pubsub" | "artifact-registry" => ("https://accounts.google.com", google()),
        _ => return None,
    })
}

/// The delivery as the sender would sign it, if this preset's sender publishes its keys.
pub(crate) fn sign(
    preset: &str,
    sent: &SentDelivery,
    id: &str,
    at: Timestamp,
    with: SignedWith,
) -> Option<SentDelivery> {
    if let Some((issuer, mut claims)) = claims_of(preset) {
        let now = at.0 / 1_000_000;
        for (name, value) in [("iss", json!(issuer)), ("aud", json!(["another", "https://hooks.example.com"]))] {
            claims[name] = value;
        }
        for (name, value) in [("jti", json!(id)), ("iat", json!(now)), ("nbf", json!(now)), ("exp", json!(now + 300))] {
            claims[name] = value;
        }
        return Some(sent.with_header("authorization", format!("Bearer {}", token(&claims, with))));
    }
    match preset {
        "sns" => Some(sns(sent, id, at, with)),
        "paypal" => {
            let mut crc = 0xffff_ffff_u32;
            for byte in &sent.body {
                crc ^= u32::from(*byte);
                (0..8).for_each(|_| crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()));
            }
            let message = format!("{id}|{at}|…|{}", !crc);
            let headers = [
                ("paypal-transmission-id", id.to_owned()),
                ("paypal-transmission-time", at.to_string()),
                ("paypal-transmission-sig", rsa_signature(&message, with)),
                ("paypal-cert-url", PAYPAL_CERTIFICATE.to_owned()),
                ("paypal-auth-algo", "SHA256withRSA".to_owned()),
            ];
            Some(headers.into_iter().fold(sent.clone(), |sent, (name, value)| sent.with_header(name, value)))
        }
        _ => None,
    }
}

fn sns(sent: &SentDelivery, id: &str, at: Timestamp, with: SignedWith) -> SentDelivery {
    let mut body: Value = serde_json::from_slice(&sent.body).expect("JSON");
    body["MessageId"] = json!(id);
    body["Timestamp"] = json!(at.to_string());
    body["SigningCertURL"] = json!(SNS_CERTIFICATE);
    let names = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"];
    let lines = names.map(|name| format!("{name}\n{}\n", body[name].as_str().expect("a text")));
    let message = lines.concat();
    body["Signature"] = json!(rsa_signature(&message, with));
    SentDelivery { body: body.to_string().into_bytes(), ..sent.clone() }
}
