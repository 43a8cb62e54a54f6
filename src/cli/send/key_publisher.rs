//! Publishes the public half of a sender's key while `send` runs: a key set or a certificate on the loopback, where a
//! node fetches it as it would from the sender.

use super::SendResponse;
use super::sender_key_pair::{KeyPairType, SenderKeyPair};
use crate::cli::error::CommandError;
use crate::decide::id::Digest;
use crate::decide::time::Duration;
use crate::decide::verify::PinnedHost;
use crate::key_fetch::KeyOrigin;
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::Url;
use serde_json::json;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a request for a key may take.
const RESPONSE_TIME: Duration = Duration::from_secs(5);
/// Maximum bytes of such a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// What a node answers that cannot verify yet.
const UNAVAILABLE: u16 = 503;

/// The port of `--keys-port`, unless it is given: beside those of a node.
pub(super) const KEYS_PORT: u16 = 3144;

/// How long a node that is running may take to fetch a new key: it tries once a minute.
const FETCH_TIME: Duration = Duration::from_secs(75);
/// How often a delivery is sent again meanwhile.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A key pair of a sender that publishes its keys.
pub(super) struct PublishedKeyPair {
    pair: SenderKeyPair,
    /// The id of the key in its key set, or the name of its certificate.
    pub(super) id: String,
    documents: Vec<(String, String)>,
    origin: Url,
    /// Whether it was made just now.
    pub(super) is_new: bool,
}

/// The server of a published key. It ends with this.
pub(super) struct KeyPublisher {
    /// Told of each document that was fetched.
    fetched: Arc<Notify>,
    serving: tokio::task::JoinHandle<()>,
}

impl KeyPublisher {
    /// Sends a delivery, and again for a while where the node has not fetched the key yet.
    pub(super) async fn send_until_fetched(
        &self,
        send: impl AsyncFn() -> Result<SendResponse, CommandError>,
    ) -> Result<SendResponse, CommandError> {
        let until = Instant::now() + FETCH_TIME;
        let mut told = false;
        loop {
            let answer = send().await?;
            if answer.status != UNAVAILABLE || Instant::now() >= until {
                return Ok(answer);
            }
            if !std::mem::replace(&mut told, true) {
                eprintln!("the node answers 503: waiting until it has fetched the key, for {FETCH_TIME:?} at most");
            }
            // A document that was fetched may be what it waits for.
            let _ = tokio::time::timeout(RETRY_EVERY, self.fetched.notified()).await;
        }
    }
}

impl Drop for KeyPublisher {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl PublishedKeyPair {
    /// The pair in this file, which is made if there is none, for a node that fetches keys here. Without a file, a new
    /// pair.
    pub(super) fn load_or_make(origin: &KeyOrigin, file: Option<&Path>) -> Result<Self, CommandError> {
        let (KeyOrigin::KeySet(address) | KeyOrigin::Issuer(address) | KeyOrigin::Certificates(address)) = origin;
        let cannot = |why: String| CommandError::unknown(format!("keys cannot be published at {address}: {why}"));
        let url = Url::parse(address).map_err(|error| cannot(error.to_string()))?;
        let (pair, is_new) = SenderKeyPair::load_or_make(KeyPairType::Rsa, file)?;
        // Another key has another name, so that a node which knows the last one asks for it.
        let id = hex::encode(&Digest::of(pair.public_bytes()).0[..8]);
        let set = || key_set(&pair, &id).ok_or_else(|| cannot("the key cannot be read".into()));
        let documents = match origin {
            KeyOrigin::KeySet(_) => vec![(url.path().to_owned(), set()?)],
            KeyOrigin::Issuer(issuer) => {
                let base = issuer.trim_end_matches('/');
                let path = url.path().trim_end_matches('/').to_owned();
                let configuration = json!({ "issuer": issuer, "jwks_uri": format!("{base}/keys") }).to_string();
                let of_issuer = format!("{path}/.well-known/openid-configuration");
                vec![(of_issuer, configuration), (format!("{path}/keys"), set()?)]
            }
            KeyOrigin::Certificates(_) => {
                let pem = self_signed(&pair).ok_or_else(|| cannot("the certificate cannot be signed".into()))?;
                let hosts = [PinnedHost::sns(String::new()), PinnedHost::paypal(String::new())];
                hosts.map(|host| (host.certificate_url(&id), pem.clone())).to_vec()
            }
        };
        Ok(Self { pair, id, documents, origin: url, is_new })
    }

    /// The signature of a message.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.pair.sign(message)
    }

    /// Begins to serve the public half.
    pub(super) async fn publish(&self) -> Result<KeyPublisher, CommandError> {
        let host = self.origin.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let address = (host.to_owned(), self.origin.port_or_known_default().unwrap_or(80));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let at = self.origin.origin().ascii_serialization();
            CommandError::unknown(format!(
                "the sender's keys cannot be served at {at}: {error}; with --preset, --keys-port names another port"
            ))
        })?;
        let fetched = Arc::new(Notify::new());
        let (told, documents) = (fetched.clone(), Arc::new(self.documents.clone()));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (told, documents) = (told.clone(), documents.clone());
                tokio::spawn(async move {
                    let answered = tokio::time::timeout(RESPONSE_TIME, respond(stream, &documents)).await;
                    if matches!(answered, Ok(Ok(true))) {
                        told.notify_one();
                    }
                });
            }
        });
        Ok(KeyPublisher { fetched, serving })
    }
}

/// Answers one request; whether it was for one of these documents.
async fn respond(mut stream: TcpStream, documents: &[(String, String)]) -> io::Result<bool> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < REQUEST_BYTES_MAX {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(false);
        }
    }
    let head = String::from_utf8_lossy(&head);
    let target = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let found = documents.iter().find(|(path, _)| path == target).map(|(_, document)| document.as_str());
    let (status, body) = found.map_or(("404 Not Found", ""), |document| ("200 OK", document));
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(found.is_some())
}

/// A key set (JWKS) with this RSA key.
fn key_set(pair: &SenderKeyPair, id: &str) -> Option<String> {
    let SenderKeyPair::Rsa(rsa) = pair else { return None };
    let key = rsa.public_key();
    let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let modulus = number(key.modulus().big_endian_without_leading_zero());
    let exponent = number(key.exponent().big_endian_without_leading_zero());
    let key = json!({ "kty": "RSA", "use": "sig", "alg": "RS256", "kid": id, "n": modulus, "e": exponent });
    Some(json!({ "keys": [key] }).to_string())
}

/// A certificate of this RSA key by itself, in PEM, valid from 2020 to 2049: only its key is read.
fn self_signed(pair: &SenderKeyPair) -> Option<String> {
    let sequence = |parts: &[&[u8]]| der(0x30, &parts.concat());
    let sha256_with_rsa = sequence(&[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00"]);
    let rsa = sequence(&[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00"]);
    let common_name = sequence(&[b"\x06\x03\x55\x04\x03", &der(0x0c, b"hookonce send")]);
    let name = sequence(&[&der(0x31, &common_name)]);
    let validity = sequence(&[&der(0x17, b"200101000000Z"), &der(0x17, b"491231235959Z")]);
    let info = sequence(&[&rsa, &der(0x03, &[&[0], pair.public_bytes()].concat())]);
    let version = der(0xa0, b"\x02\x01\x02");
    let serial = der(0x02, b"\x01");
    let content = sequence(&[&version, &serial, &sha256_with_rsa, &name, &validity, &name, &info]);
    let signature = pair.sign(&content)?;
    let whole = sequence(&[&content, &sha256_with_rsa, &der(0x03, &[&[0], &signature[..]].concat())]);
    let base64 = STANDARD.encode(whole);
    let lines: Vec<_> = base64.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    Some(format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n")))
}

/// An element of DER: its tag, its length in the shortest form, its content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let long = content.len().to_be_bytes();
    let long = &long[long.iter().position(|byte| *byte != 0).unwrap_or(long.len() - 1)..];
    let length = match (long, content.len()) {
        ([short], ..0x80) => vec![*short],
        // A length has few bytes.
        _ => [&[0x80 | u8::try_from(long.len()).unwrap_or(0)], long].concat(),
    };
    [&[tag], &length[..], content].concat()
}
