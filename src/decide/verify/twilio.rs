//! Verifies deliveries of Twilio: a signature over the URL and the values of a form, or over a URL that has the digest of
//! the body.
//!
//! Names and values of the form are joined without anything between them, so a byte can move from one to the next: the
//! signature stands for the joined text, and no value of it alone is proven. The joined text is therefore an identity.

use super::credential;
use super::described::SignatureEncoding;
use super::expectation::header_found;
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
    /// Which bodies count.
    pub bodies: TwilioBodies,
}

/// The bodies that a source takes from Twilio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TwilioBodies {
    /// Forms, whose values are signed, and others by their digest. In doubt no value of a form is proven.
    Forms,
    /// Only those whose digest is signed: the whole body is then proven.
    ByDigest,
}

const HEADER: &str = "x-twilio-signature";
const HASH: HmacHash = HmacHash::Sha1;
/// The parameter of the URL with the SHA-256 of a body that is no form.
const BODY_DIGEST: &str = "bodySHA256=";

/// How the joined form begins: with the account or the call, of which Twilio sends one with every form; its own names are
/// sorted after them. Any other beginning could be the end of a longer URL, signed for another receiver of the account.
const FIRST: [&[u8]; 2] = [b"AccountSidAC", b"CallSidCA"];

impl TwilioScheme {
    /// The same URL with the port of its scheme, or without its port: Twilio signs either, and its own libraries try both.
    fn with_other_port(&self) -> Option<String> {
        let (scheme, rest) = self.url.split_once("://")?;
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // A colon inside brackets is a part of an address.
        let bare = match host.rsplit_once(':') {
            Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(bare),
            _ => None,
        };
        let port = if scheme == "https" { 443 } else { 80 };
        Some(bare.map_or_else(|| format!("{scheme}://{host}:{port}{path}"), |bare| format!("{scheme}://{bare}{path}")))
    }

    /// The query that the sender adds for the digest of this body.
    fn digest_query(body: &[u8]) -> String {
        format!("{BODY_DIGEST}{}", hex::encode(digest(&SHA256, body)))
    }

    /// What separates the configured URL from a parameter that is added.
    fn separator(&self) -> char {
        if self.url.contains('?') { '&' } else { '?' }
    }

    /// What was signed, in pieces. The query decides how the body is read, because it is signed as well: nothing else may
    /// be in it than the configured one and the body's digest. An error says what is not as it should be.
    fn message<'m>(&'m self, query: &str, body: &'m [u8]) -> Result<Vec<Cow<'m, [u8]>>, &'static str> {
        const OTHER_QUERY: &str = "a query that is not that of the signed URL";
        let configured = self.url.split_once('?').map(|(_, query)| query);
        if query == configured.unwrap_or_default() {
            return match self.bodies {
                TwilioBodies::Forms => self.with_form(body),
                TwilioBodies::ByDigest => {
                    Err("no bodySHA256 in the query: Twilio sends one with a body that is no form")
                }
            };
        }
        let separator = self.separator();
        let added = match configured {
            Some(configured) => query.strip_prefix(configured).and_then(|rest| rest.strip_prefix('&')),
            None => Some(query),
        };
        let added = added.ok_or(OTHER_QUERY)?;
        let theirs = added.strip_prefix(BODY_DIGEST).ok_or(OTHER_QUERY)?;
        let theirs = hex::decode(theirs).map_err(|_| "no hex in bodySHA256")?;
        if digest(&SHA256, body).as_ref() != theirs {
            return Err("the digest of another body in bodySHA256");
        }
        Ok(vec![Cow::Owned(format!("{}{separator}{added}", self.url).into_bytes())])
    }

    /// The URL, then each name and its values, in the order of names, each pair once.
    fn with_form<'m>(&'m self, body: &'m [u8]) -> Result<Vec<Cow<'m, [u8]>>, &'static str> {
        let pairs: BTreeSet<_> = form::pairs(body).ok_or("a body that is no form")?.into_iter().collect();
        let mut message = vec![Cow::Borrowed(self.url.as_bytes())];
        message.extend(pairs.into_iter().flat_map(|(name, value)| [name, value]));
        let joined = || message[1..].iter().flat_map(|piece| piece.iter());
        let begins = FIRST.iter().any(|first| joined().take(first.len()).eq(first.iter()));
        if begins { Ok(message) } else { Err("a form that does not begin with AccountSid or CallSid") }
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
        let mut message = self.message(delivery.query, delivery.body).map_err(|_| BAD)?;
        let theirs = [theirs];
        let found = self.secrets.verify_signature(HASH, &slices(&message), &theirs);
        if let (Err(_), Some(other)) = (&found, self.with_other_port()) {
            let rest = message[0][self.url.len()..].to_vec();
            message[0] = Cow::Owned([other.as_bytes(), &rest].concat());
            return self.secrets.verify_signature(HASH, &slices(&message), &theirs).map(Some);
        }
        found.map(Some)
    }

    fn proof(&self, _: &str, _: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let message = match self.bodies {
            TwilioBodies::Forms => self.with_form(body).ok(),
            TwilioBodies::ByDigest => {
                let url = format!("{}{}{}", self.url, self.separator(), Self::digest_query(body));
                Some(vec![Cow::Owned(url.into_bytes())])
            }
        };
        let mac = message.and_then(|message| self.secrets.sign(HASH, &slices(&message)));
        let signature = mac.map(|mac| SignatureEncoding::Base64.encode(mac.as_ref()));
        signature.map(|signature| (HEADER.to_owned(), signature)).into_iter().collect()
    }

    fn covers(&self) -> SignedContent {
        match self.bodies {
            TwilioBodies::Forms => SignedContent::Form,
            TwilioBodies::ByDigest => SignedContent::Body,
        }
    }

    fn digest_in_query(&self, body: &[u8]) -> Option<(&str, String)> {
        let digest = Self::digest_query(body);
        (self.bodies == TwilioBodies::ByDigest).then(|| {
            let name = BODY_DIGEST.trim_end_matches('=');
            (name, digest[BODY_DIGEST.len()..].to_owned())
        })
    }

    fn signed_text(&self, delivery: &Delivery<'_>) -> Option<Vec<u8>> {
        let is_form = self.bodies == TwilioBodies::Forms;
        is_form.then(|| self.message(delivery.query, delivery.body).ok().map(|pieces| pieces.concat()))?
    }

    fn words(&self) -> String {
        format!("Twilio's signature (SHA-1) for {}", self.url)
    }

    fn expected(&self) -> Option<String> {
        let what = match self.bodies {
            TwilioBodies::Forms => "and the names and values of the form",
            TwilioBodies::ByDigest => "with bodySHA256, the digest of the body, in its query",
        };
        Some(format!("header {HEADER} (base64, 28 characters) over {} {what}", self.url))
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        let header = match header_found(delivery, HEADER) {
            Ok(header) => header,
            Err(found) => return Some(found),
        };
        let found = match SignatureEncoding::Base64.decode(header) {
            None => "a signature that is not base64",
            Some(theirs) if theirs.len() != HASH.bytes() => "a signature of another length",
            Some(_) => match self.message(delivery.query, delivery.body) {
                Ok(_) => "a signature of another URL or of other values, or with another secret",
                Err(found) => found,
            },
        };
        Some(found.to_owned())
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
