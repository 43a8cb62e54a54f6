//! Verifies deliveries of Twilio: a signature over the URL and the values of a form, or over a URL that has the digest of
//! the body.
//!
//! Names and values of the form are joined without anything between them, so a byte can move from one to the next: the
//! signature stands for the joined text, and no value of it alone is proven. The joined text is therefore an identity.

use super::credential;
use super::described::SignatureEncoding;
use super::scheme::{Scheme, SignedContent};
use super::signature::{HmacHash, MatchedKey, SourceSecrets};
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
const HASH: HmacHash = HmacHash::Sha1;
/// The parameter of the URL with the SHA-256 of a body that is no form.
const BODY_DIGEST: &str = "bodySHA256=";

/// How the joined form begins: with the account or the call, of which Twilio sends one with every form; its own names are
/// sorted after them. Any other beginning could be the end of a longer URL, signed for another receiver of the account.
const FIRST: [&[u8]; 2] = [b"AccountSidAC", b"CallSidCA"];

impl TwilioScheme {
    /// What was signed, in pieces. The query decides how the body is read, because it is signed as well: nothing else may
    /// be in it than the configured one and the body's digest.
    fn message<'m>(&'m self, query: &str, body: &'m [u8]) -> Option<Vec<Cow<'m, [u8]>>> {
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
        fits.then(|| vec![Cow::Owned(format!("{}{separator}{added}", self.url).into_bytes())])
    }

    /// The URL, then each name and its values, in the order of names, each pair once.
    fn with_form<'m>(&'m self, body: &'m [u8]) -> Option<Vec<Cow<'m, [u8]>>> {
        let pairs: BTreeSet<_> = form::pairs(body)?.into_iter().collect();
        let mut message = vec![Cow::Borrowed(self.url.as_bytes())];
        message.extend(pairs.into_iter().flat_map(|(name, value)| [name, value]));
        let joined = || message[1..].iter().flat_map(|piece| piece.iter());
        let begins = FIRST.iter().any(|first| joined().take(first.len()).eq(first.iter()));
        begins.then_some(message)
    }
}

fn slices<'m>(message: &'m [Cow<'_, [u8]>]) -> Vec<&'m [u8]> {
    message.iter().map(|piece| &**piece).collect()
}

impl Scheme for TwilioScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        const BAD: DeliveryRejection = DeliveryRejection::BadSignature;
        let theirs = SignatureEncoding::Base64.decode(credential(delivery, HEADER)?);
        // The form is not read for what cannot be a signature.
        let theirs = theirs.filter(|theirs| theirs.len() == HASH.bytes()).ok_or(BAD)?;
        let message = self.message(delivery.query, delivery.body).ok_or(BAD)?;
        self.secrets.verify_signature(HASH, &slices(&message), &[theirs]).map(Some)
    }

    fn proof(&self, _: &str, _: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let mac = self.with_form(body).and_then(|message| self.secrets.sign(HASH, &slices(&message)));
        let signature = mac.map(|mac| SignatureEncoding::Base64.encode(mac.as_ref()));
        signature.map(|signature| (HEADER.to_owned(), signature)).into_iter().collect()
    }

    fn covers(&self) -> SignedContent {
        SignedContent::Form
    }

    fn signed_text(&self, delivery: &Delivery<'_>) -> Option<Vec<u8>> {
        self.message(delivery.query, delivery.body).map(|pieces| pieces.concat())
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

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Ok(Arc::new(Self { secrets: SourceSecrets::new(secrets), ..self.clone() }))
    }
}
