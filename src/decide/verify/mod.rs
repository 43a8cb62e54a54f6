//! Believing a delivery: every scheme, and the proof that it was believed.
//!
//! Only this module can make a [`Verified`], and everything after it asks for one: filtering or keying unsigned bytes
//! does not compile. Every refusal looks the same from outside.

use super::delivery::Delivery;
use super::field::Place;
use super::refusal::Refusal;
use super::source::DeliveryId;
use super::time::Duration;
use std::borrow::Cow;
use std::fmt;

/// How a source's deliveries are verified.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// GitHub: HMAC-SHA256 of the body, in hex, in `X-Hub-Signature-256`.
    Github(Secrets),
    /// Standard Webhooks (Svix): HMAC-SHA256 of id, time and body.
    StandardWebhooks {
        /// Each `whsec_…`.
        secrets: Secrets,
        /// How old or new the time may be.
        tolerance: Duration,
    },
    /// Any other HMAC, as described.
    Hmac(Box<Hmac>),
    /// A token in `Authorization: Bearer …`.
    Bearer(Secrets),
    /// Nothing is verified, because the config says so in so many words.
    None,
}

/// An HMAC as described in the config.
#[derive(Clone, Debug)]
pub struct Hmac {
    /// The keys.
    pub secrets: Secrets,
    /// The header with the signature, in lower case.
    pub header: String,
    /// What stands before it.
    pub prefix: String,
    /// The hash.
    pub hash: Hash,
    /// How it is written.
    pub encoding: Encoding,
    /// What is signed.
    pub over: Vec<Piece>,
    /// Where `{timestamp}` is.
    pub timestamp: Option<Place>,
    /// Where `{id}` is.
    pub id: Option<Place>,
    /// How old or new the timestamp may be.
    pub tolerance: Duration,
}

/// A hash for HMAC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    /// SHA-1: still sent by some.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// How a signature is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// Hexadecimal, either case.
    Hex,
    /// Base64, with padding.
    Base64,
}

/// A piece of what is signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// These bytes.
    Literal(String),
    /// The sender's delivery id.
    Id,
    /// The sender's time.
    Timestamp,
    /// The body.
    Body,
}

/// The secrets of a source: one, or several while rotating. Never printed.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    /// These secrets; the config has refused empty ones.
    pub fn new(secrets: Vec<Vec<u8>>) -> Self {
        Self(secrets)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets(•••, {})", self.0.len())
    }
}

/// A delivery that was believed.
#[derive(Debug)]
pub struct Verified<'d> {
    delivery: &'d Delivery<'d>,
    json: Cow<'d, [u8]>,
    secret: usize,
}

impl<'d> Verified<'d> {
    /// The delivery.
    pub fn delivery(&self) -> &'d Delivery<'d> {
        self.delivery
    }

    /// The JSON in it: the body, or what a form carries as `payload`.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Which secret matched, counted from 0.
    pub fn secret(&self) -> usize {
        self.secret
    }
}

impl Scheme {
    /// Believes the delivery or refuses it.
    pub fn verify<'d>(&self, delivery: &'d Delivery<'d>) -> Result<Verified<'d>, Refusal> {
        todo!("{delivery:?}")
    }

    /// Where this scheme's senders put their delivery id, if they all do, and whether it is signed.
    pub fn delivery_id(&self) -> Option<DeliveryId> {
        todo!()
    }

    /// Is what stands at this place covered by the signature (or by the caller's token)?
    pub fn covers(&self, place: &Place) -> bool {
        todo!("{place:?}")
    }

    /// In words, for people: "GitHub's signature (SHA-256)".
    pub fn words(&self) -> String {
        todo!()
    }
}
