//! The token by which a GitHub App authenticates itself: a JWT, signed with the App's private key.

use crate::decide::time::{Duration, Timestamp};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// How long a token lasts; GitHub accepts at most ten minutes.
const TOKEN_TIME: Duration = Duration::from_mins(9);
/// How far the begin of a token lies in the past, because clocks differ.
const CLOCKS_APART: Duration = Duration::from_mins(1);

/// A GitHub App and its private key. The key is never printed.
#[derive(Clone)]
pub struct AppKey {
    /// The App's client id, or its number.
    pub app: String,
    key: Arc<RsaKeyPair>,
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppKey({}, •••)", self.app)
    }
}

/// Why a text is not the private key of an App, as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AppKeyError(&'static str);

impl fmt::Display for AppKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for AppKeyError {}

impl AppKey {
    /// Reads a key in PEM, as GitHub gives it out (PKCS #1), or as PKCS #8.
    pub(crate) fn parse(app: &str, pem: &[u8]) -> Result<Self, AppKeyError> {
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| AppKeyError("it is not a private key in PEM"))?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            _ => return Err(AppKeyError("it is not an RSA key")),
        };
        let key = key.map_err(|_| AppKeyError("it is not an RSA key of at least 2048 bits"))?;
        Ok(Self { app: app.to_owned(), key: Arc::new(key) })
    }

    /// A token for requests that are made now.
    pub(super) fn token(&self, now: Timestamp) -> Option<String> {
        let second = |at: Timestamp| at.0.div_euclid(1_000_000);
        let claims = serde_json::json!({
            "iat": second(now - CLOCKS_APART),
            "exp": second(now + TOKEN_TIME),
            "iss": self.app,
        });
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(r#"{"alg":"RS256","typ":"JWT"}"#), encode(&claims.to_string()));
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
