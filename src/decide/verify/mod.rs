//! Verifies deliveries: every scheme, and the type that proves a delivery was verified.
//!
//! Only this module can create a [`VerifiedDelivery`], and everything after it requires one: filtering unsigned bytes
//! or making keys from them does not compile. Every rejection looks the same from outside. The content type is checked
//! last, so that a client without the secret learns nothing about what is accepted. It never decides how signed bytes
//! are read: see `content_type.rs`.

mod bearer;
mod callers;
pub(crate) mod content_type;
mod github;
mod hmac;
pub(crate) mod signature;
mod standard;

use super::delivery::DeliveryRejection;
use super::delivery::{Delivery, HeaderLookup};
use super::field::{FieldLocation, is_blank};
use super::id::Digest;
use super::json_walk::JsonScalar;
use super::limits;
use super::source::DeliveryIdLocation;
use super::time::{Duration, Timestamp};
use std::borrow::Cow;
use std::sync::Arc;

pub use callers::{CallerDirectory, PerCallerScheme};
pub use hmac::{HmacHash, HmacScheme, SignatureEncoding, SignedPiece, parse_over};
use signature::MatchedSecret;
pub use signature::SourceSecrets;
pub use standard::is_standard_header;

/// How a source's deliveries are verified.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum VerificationScheme {
    /// GitHub: HMAC-SHA256 of the body, in hex, in `X-Hub-Signature-256`.
    Github(SourceSecrets),
    /// Standard Webhooks (Svix): HMAC-SHA256 of id, time and body. Made by [`VerificationScheme::standard_webhooks`].
    StandardWebhooks {
        /// The decoded `whsec_…` secrets.
        secrets: SourceSecrets,
        /// How far the time may be off, either way.
        tolerance: Duration,
    },
    /// Any other HMAC, as described.
    Hmac(Box<HmacScheme>),
    /// A token in `Authorization: Bearer …`.
    Bearer(SourceSecrets),
    /// One of these, with a secret for each caller.
    Callers(Box<PerCallerScheme>),
    /// Nothing is verified, because the config says so explicitly.
    None,
}

/// A delivery that was verified.
#[derive(Debug)]
pub struct VerifiedDelivery<'d> {
    delivery: &'d Delivery<'d>,
    /// The JSON, where it was determined; otherwise the body is taken as JSON.
    json: Option<Cow<'d, [u8]>>,
    secret: usize,
    by: SenderCredential,
    /// The id that Standard Webhooks signs, from either of its two headers.
    id: Option<&'d str>,
}

/// The credential that a delivery was verified with: its sender, as far as that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SenderCredential {
    /// No credential.
    None,
    /// A secret of the source, by its fingerprint. Several belong to one sender that rotates them.
    Secret(Digest),
    /// A secret of this caller.
    Caller(Arc<str>),
}

impl<'d> VerifiedDelivery<'d> {
    /// The delivery.
    pub fn delivery(&self) -> &'d Delivery<'d> {
        self.delivery
    }

    /// The JSON in it: the body, or the `payload` of GitHub's form. An error where its content type says that it is not
    /// JSON: that matters only to a reader of the JSON.
    pub fn json(&self) -> Result<&[u8], DeliveryRejection> {
        match &self.json {
            Some(json) => Ok(json),
            None => content_type::any(self.delivery).map(|()| &self.delivery.body[..]),
        }
    }

    /// The index of the secret that matched.
    pub fn secret(&self) -> usize {
        self.secret
    }

    /// The credential that it was verified with.
    pub fn by(&self) -> &SenderCredential {
        &self.by
    }

    /// The sender's delivery id, if it is where the source says; an empty or blank one is none.
    pub fn delivery_id(&self, id: &DeliveryIdLocation) -> Result<Option<Arc<str>>, DeliveryRejection> {
        if let (Some(signed), true) = (self.id, standard::is_id_place(&id.at)) {
            return Ok(Some(signed).filter(|id| !is_blank(id)).map(Into::into));
        }
        let json = if let FieldLocation::Body(_) = id.at { self.json()? } else { &[] };
        Ok(match id.at.read(self.delivery, json)? {
            Some(JsonScalar::Text(text)) if !is_blank(&text) => Some(text.into()),
            Some(JsonScalar::Number(raw)) => Some(raw.into()),
            _ => None,
        })
    }
}

impl VerificationScheme {
    /// Standard Webhooks with these secrets, in the form that senders hand out: `whsec_` and base64. An error is a
    /// sentence.
    pub fn standard_webhooks(secrets: &[Vec<u8>], tolerance: Duration) -> Result<Self, String> {
        let decoded = secrets.iter().map(|secret| standard::decode_secret(secret)).collect::<Result<_, _>>()?;
        Ok(Self::StandardWebhooks { secrets: SourceSecrets::new(decoded), tolerance })
    }

    /// The same scheme with these secrets, in the form that its senders get them. An error is a sentence.
    pub fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Self, String> {
        Ok(match self {
            Self::Github(_) => Self::Github(SourceSecrets::new(secrets)),
            Self::StandardWebhooks { tolerance, .. } => return Self::standard_webhooks(&secrets, *tolerance),
            Self::Hmac(hmac) => {
                Self::Hmac(Box::new(HmacScheme { secrets: SourceSecrets::new(secrets), ..(**hmac).clone() }))
            }
            Self::Bearer(_) => Self::Bearer(SourceSecrets::new(secrets)),
            Self::Callers(_) | Self::None => self.clone(),
        })
    }

    /// Verifies the delivery or rejects it.
    pub fn verify<'d>(&self, delivery: &'d Delivery<'d>) -> Result<VerifiedDelivery<'d>, DeliveryRejection> {
        let (matched, id) = match self {
            Self::Github(secrets) => {
                let MatchedSecret { secret, mark } = github::verify(secrets, delivery)?;
                let json = content_type::github(delivery)?;
                return Ok(VerifiedDelivery {
                    delivery,
                    json: Some(json),
                    secret,
                    by: SenderCredential::Secret(mark),
                    id: None,
                });
            }
            Self::StandardWebhooks { secrets, tolerance } => {
                let (matched, id) = standard::verify(secrets, *tolerance, delivery)?;
                content_type::agrees(delivery)?;
                (Some(matched), Some(id))
            }
            Self::Hmac(hmac) => {
                let matched = hmac.verify(delivery)?;
                content_type::agrees(delivery)?;
                (Some(matched), None)
            }
            Self::Bearer(secrets) => (Some(bearer::verify(secrets, delivery)?), None),
            Self::Callers(callers) => {
                let caller = callers.caller(delivery);
                let verified = callers.scheme(caller.as_deref()).verify(delivery)?;
                let by = SenderCredential::Caller(caller.ok_or(DeliveryRejection::BadSignature)?);
                return Ok(VerifiedDelivery { by, ..verified });
            }
            Self::None => (None, None),
        };
        let secret = matched.map_or(0, |matched| matched.secret);
        let by = matched.map_or(SenderCredential::None, |matched| SenderCredential::Secret(matched.mark));
        Ok(VerifiedDelivery { delivery, json: None, secret, by, id })
    }

    /// For `explain`: treats the delivery as if its signature were right, so that the rest of the walk can be shown for
    /// a delivery whose secret is not here. Nothing is verified and nothing is written. Where several secrets belong to
    /// several senders, it counts as the first one's.
    pub fn assume_verified<'d>(&self, delivery: &'d Delivery<'d>) -> Result<VerifiedDelivery<'d>, DeliveryRejection> {
        if let Self::StandardWebhooks { .. } | Self::Hmac(_) = self {
            content_type::agrees(delivery)?;
        }
        let (json, id) = match self {
            Self::Github(_) => (Some(content_type::github(delivery)?), None),
            Self::StandardWebhooks { .. } => (None, standard::id(delivery)),
            Self::Hmac(_) | Self::Bearer(_) | Self::None => (None, None),
            Self::Callers(callers) => {
                let verified = callers.decoy.assume_verified(delivery)?;
                let by = callers.caller(delivery).map_or(SenderCredential::None, SenderCredential::Caller);
                return Ok(VerifiedDelivery { by, ..verified });
            }
        };
        let by = self
            .secrets()
            .and_then(SourceSecrets::fingerprint)
            .map_or(SenderCredential::None, SenderCredential::Secret);
        Ok(VerifiedDelivery { delivery, json, secret: 0, by, id })
    }

    /// For `explain`: the same scheme for a delivery of any age, to distinguish an old signature from a wrong one.
    #[must_use]
    pub fn ignoring_age(&self) -> Self {
        let mut scheme = self.clone();
        match &mut scheme {
            Self::StandardWebhooks { tolerance, .. } => *tolerance = Duration::MAX,
            Self::Hmac(hmac) => hmac.tolerance = Duration::MAX,
            Self::Github(_) | Self::Bearer(_) | Self::Callers(_) | Self::None => {}
        }
        scheme
    }

    /// The scheme that all callers share; a scheme without callers is that itself.
    pub fn shared_scheme(&self) -> &Self {
        match self {
            Self::Callers(callers) => &callers.decoy,
            other => other,
        }
    }

    /// Whether there is a secret to verify with. A node's config is known to have one.
    pub fn has_secret(&self) -> bool {
        matches!(self, Self::Callers(_)) || self.secrets().is_some_and(SourceSecrets::any)
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        match self {
            Self::Github(secrets) | Self::StandardWebhooks { secrets, .. } | Self::Bearer(secrets) => Some(secrets),
            Self::Hmac(hmac) => Some(&hmac.secrets),
            Self::Callers(_) | Self::None => None,
        }
    }

    /// The headers in which this scheme's senders put their signature or token, in lower case. This is the only list of
    /// them: they are never shown, and never kept longer than their event.
    pub fn signature_headers(&self) -> Vec<&str> {
        match self {
            Self::Github(_) => vec![github::SIGNATURE],
            Self::StandardWebhooks { .. } => standard::SIGNATURES.to_vec(),
            Self::Hmac(hmac) => vec![&hmac.header],
            Self::Bearer(_) => vec![bearer::HEADER],
            Self::Callers(_) => self.shared_scheme().signature_headers(),
            Self::None => Vec::new(),
        }
    }

    /// The headers that are signed together with the body, in lower case.
    fn signed_headers(&self) -> Vec<&str> {
        match self {
            Self::StandardWebhooks { .. } => standard::SIGNED.to_vec(),
            Self::Hmac(hmac) => hmac.signed_headers(),
            Self::Callers(_) => self.shared_scheme().signed_headers(),
            Self::Github(_) | Self::Bearer(_) | Self::None => Vec::new(),
        }
    }

    /// The headers that make up a signature, in lower case: the signature itself, and what is signed with the body.
    pub fn proof_headers(&self) -> Vec<&str> {
        [self.signature_headers(), self.signed_headers()].concat()
    }

    /// The headers that a worker behind a stream needs to verify a delivery again, in lower case. A token is not among
    /// them: with it, the worker could send as its owner.
    pub fn headers_to_forward(&self) -> Vec<String> {
        let of = |place: FieldLocation| match place {
            FieldLocation::Header(name) => Some(name),
            _ => None,
        };
        let common = self.shared_scheme();
        let caller = self.callers().and_then(|callers| of(callers.who.at.clone()));
        let shown = if common.signs_body() { common.proof_headers() } else { Vec::new() };
        let id = common.delivery_id().and_then(|id| of(id.at)).filter(|id| !shown.contains(&id.as_str()));
        let others = [id, common.kind_header().map(str::to_owned), caller];
        shown.iter().map(|&name| name.to_owned()).chain(others.into_iter().flatten()).collect()
    }

    /// The header in which this scheme's senders name the kind of event, in lower case.
    pub fn kind_header(&self) -> Option<&'static str> {
        matches!(self.shared_scheme(), Self::Github(_)).then_some(github::KIND)
    }

    /// Where this scheme's senders put their delivery id, if they all do, and whether it is signed.
    pub fn delivery_id(&self) -> Option<DeliveryIdLocation> {
        match self {
            Self::Github(_) => {
                Some(DeliveryIdLocation { at: FieldLocation::Header(github::DELIVERY.into()), signed: false })
            }
            Self::StandardWebhooks { .. } => Some(DeliveryIdLocation { at: standard::id_place(), signed: true }),
            Self::Callers(_) => self.shared_scheme().delivery_id(),
            Self::Hmac(_) | Self::Bearer(_) | Self::None => None,
        }
    }

    /// Whether the value at this location is covered by the signature (or by the caller's token).
    pub fn covers(&self, place: &FieldLocation) -> bool {
        match (self, place) {
            (Self::Bearer(_) | Self::None, _) | (_, FieldLocation::Body(_)) => true,
            (Self::StandardWebhooks { .. } | Self::Hmac(_), FieldLocation::Header(name)) => {
                self.signed_headers().contains(&name.as_str())
            }
            (Self::Callers(callers), _) => callers.who.at == *place || callers.decoy.covers(place),
            (_, FieldLocation::Header(_) | FieldLocation::Query(_) | FieldLocation::Path) => false,
        }
    }

    /// Is a signature made over the body? A token is none: it comes with any body.
    pub fn signs_body(&self) -> bool {
        match self.shared_scheme() {
            Self::Github(_) | Self::StandardWebhooks { .. } | Self::Hmac(_) => true,
            Self::Bearer(_) | Self::Callers(_) | Self::None => false,
        }
    }

    /// Is the body all that is signed? An old delivery can then be sent again under a new id at any time.
    pub fn signs_only_the_body(&self) -> bool {
        match self.shared_scheme() {
            Self::Github(_) => true,
            Self::Hmac(hmac) => hmac.signs_only_the_body(),
            Self::StandardWebhooks { .. } | Self::Bearer(_) | Self::Callers(_) | Self::None => false,
        }
    }

    /// Does the config say what is signed? With other schemes the sender has settled it.
    pub fn content_is_configured(&self) -> bool {
        matches!(self.shared_scheme(), Self::Hmac(_))
    }

    /// The sender that redelivers only when a person asks for it, and for how long it can.
    pub fn redelivered_by_hand(&self) -> Option<(&'static str, Duration)> {
        match self.shared_scheme() {
            Self::Github(_) => Some(("GitHub", github::REDELIVERY_WINDOW)),
            Self::StandardWebhooks { .. } | Self::Hmac(_) | Self::Bearer(_) | Self::Callers(_) | Self::None => None,
        }
    }

    /// Is nothing verified?
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The callers, where each has a secret of its own.
    pub fn callers(&self) -> Option<&PerCallerScheme> {
        match self {
            Self::Callers(callers) => Some(callers),
            _ => None,
        }
    }

    /// Where in the body the sender's time is, if there.
    pub fn time_in_body(&self) -> Option<&[String]> {
        match self.shared_scheme() {
            Self::Hmac(hmac) => hmac.time_in_body(),
            Self::Github(_) | Self::StandardWebhooks { .. } | Self::Bearer(_) | Self::Callers(_) | Self::None => None,
        }
    }

    /// The time that the sender signed with the body, where it is outside of the body.
    pub fn signed_time<'d>(&self, delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
        match self.shared_scheme() {
            Self::Hmac(hmac) => hmac.signed_time(delivery),
            Self::StandardWebhooks { .. } => standard::timestamp(delivery).map(Cow::Borrowed),
            Self::Github(_) | Self::Bearer(_) | Self::Callers(_) | Self::None => None,
        }
    }

    /// How old a delivery may be, where a time is signed; `None`: any age.
    pub fn tolerance(&self) -> Option<Duration> {
        let tolerance = match self.shared_scheme() {
            Self::StandardWebhooks { tolerance, .. } => *tolerance,
            Self::Hmac(hmac) if hmac.timestamp.is_some() => hmac.tolerance,
            Self::Hmac(_) | Self::Github(_) | Self::Bearer(_) | Self::Callers(_) | Self::None => return None,
        };
        (tolerance != Duration::MAX).then_some(tolerance)
    }

    /// Whether a time outside of the body is signed with it.
    pub fn signs_time(&self) -> bool {
        match self.shared_scheme() {
            Self::Hmac(hmac) => hmac.signs_time(),
            Self::StandardWebhooks { .. } => true,
            Self::Github(_) | Self::Bearer(_) | Self::Callers(_) | Self::None => false,
        }
    }

    /// A description, such as "GitHub's signature (SHA-256)".
    pub fn words(&self) -> String {
        match self {
            Self::Github(_) => "GitHub's signature (SHA-256)".into(),
            Self::StandardWebhooks { .. } => "a Standard Webhooks signature (SHA-256)".into(),
            Self::Hmac(hmac) => format!("an HMAC signature ({}) in `{}`", hmac.hash.words(), hmac.header),
            Self::Bearer(_) => "a bearer token".into(),
            Self::Callers(callers) => {
                format!("{}, with the secret of `{}`", callers.decoy.words(), callers.who.name)
            }
            Self::None => "nothing".into(),
        }
    }

    /// Why a delivery failed verification, for the node's own log: never for the sender, and never with the right
    /// signature.
    pub fn rejection_reason(&self, delivery: &Delivery<'_>) -> String {
        let names = self.signature_headers();
        let here: Vec<_> =
            names.iter().filter(|name| delivery.header(name) != HeaderLookup::Missing).copied().collect();
        match here[..] {
            [] if names.is_empty() => String::new(),
            [] => format!("there is no {} header: is a secret set at the sender?", names.join(" or ")),
            [name] if delivery.header(name) == HeaderLookup::Several => format!("there is more than one {name} header"),
            [name] => {
                format!("{name} does not fit these bytes, or is too old: is the secret at the sender the one here?")
            }
            _ => format!("there is more than one signature: {}", here.join(" and ")),
        }
    }

    /// The headers with which a genuine sender would send this body, signed with the first secret.
    pub fn sign(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let mut headers = vec![("content-type".to_owned(), content_type::type_of(body).to_owned())];
        headers.extend(self.proof(id, at, body));
        headers
    }

    /// Those of these headers that prove the origin of any body.
    pub fn proof(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        match self {
            Self::Github(secrets) => github::sign(secrets, id, body),
            Self::StandardWebhooks { secrets, .. } => standard::sign(secrets, id, at, body),
            Self::Hmac(hmac) => hmac.sign(id, at, body),
            Self::Bearer(secrets) => bearer::sign(secrets),
            Self::Callers(callers) => callers.sign(id, at, body),
            Self::None => Vec::new(),
        }
    }
}

/// The header with the signature or token: once, not empty, not too long.
fn signature<'d>(delivery: &Delivery<'d>, name: &str) -> Result<&'d str, DeliveryRejection> {
    match delivery.header(name) {
        HeaderLookup::One(value) if !value.is_empty() && value.len() <= limits::SIGNATURE_BYTES_MAX => {
            std::str::from_utf8(value).map_err(|_| DeliveryRejection::BadSignature)
        }
        _ => Err(DeliveryRejection::BadSignature),
    }
}

/// Rejects a time that is further off than `tolerance`.
fn check_timestamp(stamp: Timestamp, at: Timestamp, tolerance: Duration) -> Result<(), DeliveryRejection> {
    let off = stamp.since(at).max(at.since(stamp));
    if off <= tolerance { Ok(()) } else { Err(DeliveryRejection::BadSignature) }
}

/// Whole seconds since 1970, as senders write them.
fn seconds(at: Timestamp) -> String {
    at.0.div_euclid(1_000_000).to_string()
}

#[cfg(test)]
mod tests;
