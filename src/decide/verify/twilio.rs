//! Verifies deliveries of Twilio: a signature over the URL and the values of a form, or over a URL that has the digest of
//! the body.
//!
//! Names and values of the form are joined without anything between them, so a byte can move from one to the next: the
//! signature stands for the joined text, and no value of it alone is proven. The joined text is therefore an identity.

use super::described::SignatureEncoding;
use super::scheme::{Scheme, SignedContent};
use super::signature::{HmacHash, MatchedKey, SourceSecrets};
use super::{content_type, credential};
use crate::decide::delivery::{Delivery, DeliveryRejection};
use crate::decide::field::FieldLocation;
use crate::decide::form;
use crate::decide::time::Timestamp;
use aws_lc_rs::digest::{SHA256, digest};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Twilio's signature.
#[derive(Clone, Debug)]
pub struct TwilioScheme {
    /// The auth tokens.
    pub secrets: SourceSecrets,
    /// The public URL of the source, as it is set at Twilio.
    pub url: String,
}

const HEADER: &str = "x-twilio-signature";
/// The parameter of the URL with the SHA-256 of a body that is no form.
const BODY_DIGEST: &str = "bodySHA256=";

impl TwilioScheme {
    /// What was signed. The query decides how the body is read, because it is signed as well: nothing else may be in it
    /// than the configured one and the body's digest.
    fn message(&self, query: &str, body: &[u8]) -> Option<Vec<u8>> {
        let configured = self.url.split_once('?').map(|(_, query)| query);
        if query == configured.unwrap_or_default() {
            return self.with_form(body);
        }
        let separator = if configured.is_some() { "&" } else { "?" };
        let added = match configured {
            Some(configured) => query.strip_prefix(configured)?.strip_prefix('&')?,
            None => query,
        };
        let theirs = hex::decode(added.strip_prefix(BODY_DIGEST)?).ok()?;
        let fits = digest(&SHA256, body).as_ref() == theirs;
        fits.then(|| format!("{}{separator}{added}", self.url).into_bytes())
    }

    /// The URL, then each name and its values, in the order of names, each pair once.
    fn with_form(&self, body: &[u8]) -> Option<Vec<u8>> {
        let pairs: BTreeSet<_> = form::pairs(body)?.into_iter().collect();
        // A name that begins otherwise could be the end of a longer URL, which Twilio signed for another source.
        if pairs.iter().any(|(name, _)| !name.first().is_some_and(u8::is_ascii_alphabetic)) {
            return None;
        }
        let mut text = self.url.clone().into_bytes();
        for (name, value) in &pairs {
            text.extend_from_slice(name);
            text.extend_from_slice(value);
        }
        Some(text)
    }
}

impl Scheme for TwilioScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        const BAD: DeliveryRejection = DeliveryRejection::BadSignature;
        let theirs = SignatureEncoding::Base64.decode(credential(delivery, HEADER)?).ok_or(BAD)?;
        let message = self.message(delivery.query, delivery.body).ok_or(BAD)?;
        self.secrets.verify_signature(HmacHash::Sha1, &[&message], &[theirs]).map(Some)
    }

    fn proof(&self, _: &str, _: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let mac = self.with_form(body).and_then(|message| self.secrets.sign(HmacHash::Sha1, &[&message]));
        let signature = mac.map(|mac| SignatureEncoding::Base64.encode(mac.as_ref()));
        signature.map(|signature| (HEADER.to_owned(), signature)).into_iter().collect()
    }

    fn covers(&self) -> SignedContent {
        SignedContent::Form
    }

    fn signed_text(&self, delivery: &Delivery<'_>) -> Option<Vec<u8>> {
        self.message(delivery.query, delivery.body)
    }

    fn words(&self) -> String {
        format!("Twilio's signature (SHA-1) for {}", self.url)
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        vec![FieldLocation::Header(HEADER.into())]
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        Some(&self.secrets)
    }

    fn json<'d>(&self, delivery: &'d Delivery<'d>) -> Result<Option<Cow<'d, [u8]>>, DeliveryRejection> {
        content_type::agrees(delivery).map(|()| None)
    }

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Ok(Arc::new(Self { secrets: SourceSecrets::new(secrets), ..self.clone() }))
    }
}
