//! Verifies deliveries: every scheme, and the type that proves a delivery was verified.
//!
//! Only this module can create a [`VerifiedDelivery`], and everything after it requires one: filtering unsigned bytes
//! or making keys from them does not compile. Every rejection looks the same from outside. The content type is checked
//! last, so that a client without the secret learns nothing about what is accepted. It never decides how signed bytes
//! are read: see `content_type.rs`.

mod adyen;
mod callers;
mod certificate;
mod certificate_signature;
pub(crate) mod content_type;
mod described;
mod edwards_point;
mod expectation;
mod fetched_key;
mod github;
mod jwt;
mod late_secret;
mod pinned_url;
mod public_key;
mod scheme;
mod signature;
mod signed_text;
mod standard;
mod strict_json;
mod token;
mod twilio;

use super::delivery::DeliveryRejection;
use super::delivery::{Delivery, HeaderLookup};
use super::field::{FieldLocation, is_blank};
use super::id::Digest;
use super::json_walk::{JsonPathTrie, JsonScalar, PathInterest};
use super::limits;
use super::source::DeliveryIdLocation;
use super::time::{Duration, Timestamp};
use std::borrow::Cow;
use std::sync::Arc;

pub use adyen::AdyenScheme;
pub use callers::{CallerDirectory, PerCallerScheme};
pub use certificate_signature::{PaypalScheme, SnsScheme};
pub use content_type::BodyFormat;
pub use described::{
    DEFAULT_TOLERANCE, DescribedSignature, SecretEncoding, SignatureEncoding, SignatureEntries, SignatureKeys,
    TimestampLocation,
};
pub use expectation::TimeDifference;
pub use fetched_key::{KeyDirectory, KeyDocument, KeyRequest, PublishedKey, PublishedKeyAlgorithm};
use github::GithubScheme;
pub use jwt::{JwtKeys, JwtScheme, RequiredClaim};
pub use late_secret::LateSecret;
pub use pinned_url::PinnedHost;
pub use public_key::{PublicKeyAlgorithm, PublicKeys};
use scheme::NoScheme;
pub use scheme::{PublishedProof, PublishedSigner, Scheme, SignedContent};
pub use signature::{HmacHash, MatchedKey, SourceSecrets};
pub use signed_text::{SignedPiece, SignedText, SignedUrl, TimestampFormat};
use standard::StandardWebhooksScheme;
pub use standard::is_standard_header;
use token::{TokenForm, TokenScheme};
pub use twilio::{TwilioBodies, TwilioScheme};

/// How a source's deliveries are verified: a scheme, with keys that all senders share or with keys of each caller.
#[derive(Clone, Debug)]
pub struct VerificationScheme {
    /// The scheme. With callers it has a secret that is not known anywhere: an unknown caller is verified with it, which
    /// takes as long.
    scheme: Arc<dyn Scheme>,
    callers: Option<Arc<PerCallerScheme>>,
    /// How the body is read.
    format: BodyFormat,
    /// Where the secret will be, if the sender brings it. Until then the scheme has one that is not known anywhere.
    late: Option<Arc<dyn LateSecret>>,
}

/// A delivery that was verified.
#[derive(Debug)]
pub struct VerifiedDelivery<'d> {
    delivery: &'d Delivery<'d>,
    /// The JSON, where it was determined; otherwise the body is taken as JSON.
    json: Option<Cow<'d, [u8]>>,
    secret: usize,
    by: SenderCredential,
    /// The digest of the body, where the signature check made it.
    body_digest: Option<Digest>,
    /// The id that was signed, where it may be in one of several headers.
    signed_id: Option<SignedId<'d>>,
    /// The claims of its token, as JSON.
    claims: Option<Vec<u8>>,
}

/// A delivery id that was signed, and the scheme that knows where it may be.
#[derive(Debug)]
struct SignedId<'d> {
    id: &'d str,
    scheme: Arc<dyn Scheme>,
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
        content_type::not_compressed(self.delivery)?;
        match &self.json {
            Some(json) => Ok(json),
            None => content_type::any(self.delivery).map(|()| &self.delivery.body[..]),
        }
    }

    /// A claim of the token that it was verified with.
    pub(in crate::decide) fn claim(&self, path: &[String]) -> Result<Option<JsonScalar<'_>>, DeliveryRejection> {
        let Some(claims) = &self.claims else { return Ok(None) };
        let mut paths = JsonPathTrie::new();
        let node = paths.add(path, PathInterest::Value);
        Ok(paths.walk(claims).map_err(DeliveryRejection::Malformed)?[node].scalar())
    }

    /// The index of the secret that matched.
    pub fn secret(&self) -> usize {
        self.secret
    }

    /// The credential that it was verified with.
    pub fn by(&self) -> &SenderCredential {
        &self.by
    }

    /// The digest of the body.
    pub fn body_digest(&self) -> Digest {
        self.body_digest.unwrap_or_else(|| Digest::of(self.delivery.body))
    }

    /// The sender's delivery id, if it is where the source says; an empty or blank one is none.
    pub fn delivery_id(&self, id: &DeliveryIdLocation) -> Result<Option<Arc<str>>, DeliveryRejection> {
        if let Some(signed) = self.signed_id.as_ref().filter(|signed| signed.scheme.has_id_at(&id.at)) {
            return Ok(Some(signed.id).filter(|id| !is_blank(id)).map(Into::into));
        }
        let json = if let FieldLocation::Body(_) = id.at { self.json()? } else { &[] };
        let found = match &id.at {
            FieldLocation::Claim(path) => self.claim(path)?,
            place => place.read(self.delivery, json)?,
        };
        Ok(id_text(found))
    }

    /// The sender's id of one element of the delivery; an empty or blank one is none.
    pub fn element_id(&self, id: &DeliveryIdLocation, element: &[u8]) -> Result<Option<Arc<str>>, DeliveryRejection> {
        Ok(id_text(id.at.read(self.delivery, element)?))
    }
}

impl From<DescribedSignature> for VerificationScheme {
    fn from(signature: DescribedSignature) -> Self {
        Self::new(signature)
    }
}

impl VerificationScheme {
    /// This scheme, with keys that all senders share.
    pub fn new(scheme: impl Scheme + 'static) -> Self {
        Self { scheme: Arc::new(scheme), callers: None, format: BodyFormat::Json, late: None }
    }

    /// Nothing is verified, because the config says so explicitly.
    pub fn none() -> Self {
        Self::new(NoScheme)
    }

    /// GitHub: HMAC-SHA256 of the body, in hex, in `X-Hub-Signature-256`.
    pub fn github(secrets: SourceSecrets) -> Self {
        Self::new(GithubScheme(secrets))
    }

    /// A token in `Authorization: Bearer …`.
    pub fn bearer(secrets: SourceSecrets) -> Self {
        Self::new(TokenScheme::authorization(secrets, TokenForm::Bearer))
    }

    /// A token in `Authorization: Bearer …`; without that header, in this parameter of the query.
    pub fn bearer_or_query(secrets: SourceSecrets, parameter: &str) -> Self {
        let scheme = TokenScheme::authorization(secrets, TokenForm::Bearer);
        Self::new(TokenScheme { else_at: Some(FieldLocation::Query(parameter.to_owned())), ..scheme })
    }

    /// A user and a password in `Authorization: Basic …`; each secret is `user:password`.
    pub fn basic(secrets: SourceSecrets) -> Self {
        Self::new(TokenScheme::authorization(secrets, TokenForm::Basic))
    }

    /// A token as it is, at this location.
    pub fn token(secrets: SourceSecrets, at: FieldLocation) -> Self {
        Self::new(TokenScheme { secrets, at, form: TokenForm::Plain, each: None, else_at: None })
    }

    /// A token as it is, at this location of each element of the array at a path.
    pub fn token_in_elements(secrets: SourceSecrets, at: FieldLocation, each: Vec<String>) -> Self {
        Self::new(TokenScheme { secrets, at, form: TokenForm::Plain, each: Some(each), else_at: None })
    }

    /// Standard Webhooks (Svix) with these secrets, in the form that senders hand out: `whsec_` and base64. An error is
    /// a sentence.
    pub fn standard_webhooks(secrets: &[Vec<u8>], tolerance: Duration) -> Result<Self, String> {
        Self::standard_webhooks_encoded(secrets, SecretEncoding::Base64, tolerance)
    }

    /// Standard Webhooks of a sender that hands out its secrets in this way. An error is a sentence.
    pub fn standard_webhooks_encoded(
        secrets: &[Vec<u8>],
        encoding: SecretEncoding,
        tolerance: Duration,
    ) -> Result<Self, String> {
        StandardWebhooksScheme::new(secrets, encoding, tolerance).map(Self::new)
    }

    /// Standard Webhooks of a sender that signs with a private key (`v1a`), with these public keys, as senders show them:
    /// `whpk_` and base64. An error is a sentence.
    pub fn standard_webhooks_public(keys: &[Vec<u8>], tolerance: Duration) -> Result<Self, String> {
        StandardWebhooksScheme::with_public_keys(keys, tolerance).map(Self::new)
    }

    /// The same scheme, with a secret for each caller. Its own secret is then one that is not known anywhere.
    #[must_use]
    pub fn per_caller(self, callers: PerCallerScheme) -> Self {
        Self { callers: Some(Arc::new(callers)), ..self }
    }

    /// The same scheme, whose secret is not there yet. Its own secret is then one that is not known anywhere.
    #[must_use]
    pub fn awaiting(self, late: Arc<dyn LateSecret>) -> Self {
        Self { late: Some(late), ..self }
    }

    /// Why there is no secret yet, as a sentence; `None`: there is one.
    pub fn lacks_secret(&self) -> Option<String> {
        self.late.as_ref()?.scheme().err()
    }

    /// The scheme with the secret that came late, if it has come.
    fn completed(&self) -> Option<Arc<Self>> {
        self.late.as_ref()?.scheme().ok()
    }

    /// The same scheme with these secrets, in the form that its senders get them. An error is a sentence.
    pub fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Self, String> {
        Ok(Self { scheme: self.scheme.with_secrets(secrets)?, callers: None, format: self.format.clone(), late: None })
    }

    /// The same scheme for deliveries whose bodies are read in this way.
    #[must_use]
    pub fn reading(self, format: BodyFormat) -> Self {
        Self { format, ..self }
    }

    /// How bodies are read.
    pub fn format(&self) -> &BodyFormat {
        &self.format
    }

    /// The media type under which a genuine sender sends these bytes.
    pub fn media_type(&self, body: &[u8]) -> &str {
        self.format.media_type(body)
    }

    /// Does the scheme itself say how a body is read? Its senders send JSON, also inside a form.
    pub fn reads_json_forms(&self) -> bool {
        self.scheme.reads_json_forms()
    }

    /// Verifies the delivery or rejects it.
    pub fn verify<'d>(&self, delivery: &'d Delivery<'d>) -> Result<VerifiedDelivery<'d>, DeliveryRejection> {
        if let Some(late) = &self.late {
            let complete = late.scheme().map_err(|_| DeliveryRejection::SecretMissing)?;
            return self.shared_with(complete.scheme.clone()).verify(delivery);
        }
        if let Some(callers) = &self.callers {
            let caller = callers.caller(delivery);
            let verified = match callers.scheme(caller.as_deref()) {
                Some(scheme) => self.shared_with(scheme.scheme.clone()).verify(delivery)?,
                None => self.shared_with(self.scheme.clone()).verify(delivery)?,
            };
            let by = SenderCredential::Caller(caller.ok_or(DeliveryRejection::BadSignature)?);
            return Ok(VerifiedDelivery { by, ..verified });
        }
        let matched = self.scheme.matching_key(delivery)?;
        let by = matched.map_or(SenderCredential::None, |matched| SenderCredential::Secret(matched.mark));
        let verified = self.read(delivery, matched.map_or(0, |matched| matched.index), by)?;
        Ok(VerifiedDelivery { body_digest: matched.and_then(|matched| matched.body_digest), ..verified })
    }

    /// For `explain`: treats the delivery as if its signature were right, so that the rest of the walk can be shown for
    /// a delivery whose secret is not here. Nothing is verified and nothing is written. Where several secrets belong to
    /// several senders, it counts as the first one's.
    pub fn assume_verified<'d>(&self, delivery: &'d Delivery<'d>) -> Result<VerifiedDelivery<'d>, DeliveryRejection> {
        let by = match &self.callers {
            Some(callers) => callers.caller(delivery).map(SenderCredential::Caller),
            None => self.scheme.secrets().and_then(SourceSecrets::fingerprint).map(SenderCredential::Secret),
        };
        self.read(delivery, 0, by.unwrap_or(SenderCredential::None))
    }

    /// A delivery whose origin is known, with what the scheme says about its content.
    fn read<'d>(
        &self,
        delivery: &'d Delivery<'d>,
        secret: usize,
        by: SenderCredential,
    ) -> Result<VerifiedDelivery<'d>, DeliveryRejection> {
        let json = match &self.format {
            BodyFormat::Json => self.scheme.json(delivery)?,
            BodyFormat::JsonAs(types) => match content_type::json_as(delivery, types)? {
                Some(json) => Some(json),
                None => self.scheme.json(delivery)?,
            },
            BodyFormat::Form => content_type::form(delivery).map(|()| None)?,
        };
        let (signed_id, claims) = (self.signed_id(delivery), self.scheme.claims(delivery));
        Ok(VerifiedDelivery { delivery, json, secret, by, body_digest: None, signed_id, claims })
    }

    fn signed_id<'d>(&self, delivery: &Delivery<'d>) -> Option<SignedId<'d>> {
        self.scheme.signed_id(delivery).map(|id| SignedId { id, scheme: self.scheme.clone() })
    }

    /// For `explain`: the same scheme for a delivery of any age, to distinguish an old signature from a wrong one.
    #[must_use]
    pub fn ignoring_age(&self) -> Self {
        if let Some(scheme) = self.completed() {
            return scheme.ignoring_age();
        }
        let scheme = if self.callers.is_some() { None } else { self.scheme.ignoring_age() };
        let scheme = scheme.unwrap_or_else(|| self.scheme.clone());
        Self { scheme, callers: self.callers.clone(), format: self.format.clone(), late: self.late.clone() }
    }

    /// This scheme without callers; bodies are read as before.
    fn shared_with(&self, scheme: Arc<dyn Scheme>) -> Self {
        Self { scheme, callers: None, format: self.format.clone(), late: None }
    }

    /// The URL that a delivery asks to be visited, to confirm that its sender may send here; only of a verified one.
    pub fn confirmation_url(&self, delivery: &Delivery<'_>) -> Option<String> {
        self.scheme.confirmation_url(delivery)
    }

    /// Whether there is a key to verify with. A node's config is known to have one.
    pub fn has_secret(&self) -> bool {
        match &self.late {
            Some(late) => late.scheme().is_ok(),
            None => self.callers.is_some() || self.scheme.has_key(),
        }
    }

    /// Where this scheme's senders put their signature or token. This is the only list of these places: what is there is
    /// never shown, and never kept longer than its event, except with the body that it is in.
    pub fn credential_places(&self) -> Vec<FieldLocation> {
        self.scheme.credential_places()
    }

    /// Those of these places that are headers, in lower case.
    pub fn signature_headers(&self) -> Vec<String> {
        self.scheme.credential_places().into_iter().filter_map(header_name).collect()
    }

    /// The headers that make up a signature, in lower case: the signature itself, and what is signed with the body.
    pub fn proof_headers(&self) -> Vec<String> {
        let signed = self.scheme.signed_headers().into_iter().map(str::to_owned);
        self.signature_headers().into_iter().chain(signed).collect()
    }

    /// The headers that a worker behind a stream needs to verify a delivery again, in lower case. A token is not among
    /// them: with it, the worker could send as its owner.
    pub fn headers_to_forward(&self) -> Vec<String> {
        let caller = self.callers().and_then(|callers| header_name(callers.who.at.clone()));
        let shown = if self.signs_body() { self.proof_headers() } else { Vec::new() };
        let id = self.delivery_id().and_then(|id| header_name(id.at)).filter(|id| !shown.contains(id));
        let others = [id, self.kind_header().map(str::to_owned), caller];
        shown.into_iter().chain(others.into_iter().flatten()).collect()
    }

    /// The header in which this scheme's senders name the kind of event, in lower case.
    pub fn kind_header(&self) -> Option<&'static str> {
        self.scheme.kind_header()
    }

    /// Where this scheme's senders put their delivery id, if they all do, and whether it is signed.
    pub fn delivery_id(&self) -> Option<DeliveryIdLocation> {
        self.scheme.delivery_id()
    }

    /// Whether the value at this location is covered by the signature (or by the caller's token).
    pub fn covers(&self, place: &FieldLocation) -> bool {
        if self.callers().is_some_and(|callers| callers.who.at == *place) {
            return true;
        }
        match (self.scheme.covers(), place) {
            (SignedContent::Fields(signed), place) => signed.contains(place),
            (SignedContent::Nonce(nonce), place) => nonce == *place,
            // In a joined form a byte can move from one value to another: no value of it alone is proven.
            (SignedContent::Form, _) => false,
            (SignedContent::Token | SignedContent::Nothing, _)
            | (
                _,
                FieldLocation::Body(_) | FieldLocation::Form(_) | FieldLocation::Outer(_) | FieldLocation::Claim(_),
            ) => true,
            (_, FieldLocation::Header(name)) => self.scheme.signed_headers().contains(&name.as_str()),
            (_, FieldLocation::Query(_) | FieldLocation::Path) => false,
        }
    }

    /// What is signed, in one word.
    pub fn signs(&self) -> &'static str {
        self.scheme.covers().word()
    }

    /// Where the only values are that are signed, if not the whole body is.
    pub fn signed_places(&self) -> Option<Vec<FieldLocation>> {
        match self.scheme.covers() {
            SignedContent::Fields(places) => Some(places),
            SignedContent::Nonce(nonce) => Some(vec![nonce]),
            _ => None,
        }
    }

    /// Can deliveries of different bytes have the same signature? What was signed is then an identity: one captured
    /// delivery is one event.
    pub fn signs_other_than_bytes(&self) -> bool {
        matches!(self.scheme.covers(), SignedContent::Form | SignedContent::Fields(_) | SignedContent::Nonce(_))
    }

    /// Is every value of a form signed, and not its bytes?
    pub fn signs_form(&self) -> bool {
        self.scheme.covers() == SignedContent::Form
    }

    /// What was signed, where that is not the bytes of the body; equal for all deliveries that one signature fits.
    pub fn signed_text(&self, delivery: &Delivery<'_>) -> Option<Vec<u8>> {
        if let Some(text) = self.scheme.signed_text(delivery) {
            return Some(text);
        }
        let places = self.signed_places()?;
        let mut text = Vec::new();
        for place in places {
            // The length before each value: where it ends is not to be read from its bytes.
            let value = text_at(&place, delivery).ok();
            let length = value.as_ref().map_or(u64::MAX, |value| value.len() as u64);
            text.extend_from_slice(&length.to_be_bytes());
            text.extend(value.iter().flat_map(|value| value.bytes()));
        }
        Some(text)
    }

    /// Is a signature made over the body? A token is none: it comes with any body.
    pub fn signs_body(&self) -> bool {
        self.scheme.covers().has_body()
    }

    /// Is the body all that is signed? An old delivery can then be sent again under a new id at any time.
    pub fn signs_only_the_body(&self) -> bool {
        self.scheme.covers() == SignedContent::Body
    }

    /// Does the config say what is signed? With other schemes the sender has settled it.
    pub fn content_is_configured(&self) -> bool {
        self.scheme.is_described()
    }

    /// The sender that redelivers only when a person asks for it, and for how long it can.
    pub fn redelivered_by_hand(&self) -> Option<(&'static str, Duration)> {
        self.scheme.redelivered_by_hand()
    }

    /// Is nothing verified?
    pub fn is_none(&self) -> bool {
        self.scheme.covers() == SignedContent::Nothing
    }

    /// The callers, where each has a secret of its own.
    pub fn callers(&self) -> Option<&PerCallerScheme> {
        self.callers.as_deref()
    }

    /// Where in the body the sender's time is, if there, and this time as it is written.
    pub fn time_in_body(&self, at: Timestamp) -> Option<(&[String], String)> {
        self.scheme.time_in_body(at)
    }

    /// Where in the body the signature is, if there, and the signature of this body, whose other parts are all there.
    pub fn signature_in_body(&self, body: &[u8]) -> Option<(Vec<String>, String)> {
        self.scheme.signature_in_body(body)
    }

    /// Whether deliveries have a token with claims.
    pub fn has_claims(&self) -> bool {
        self.scheme.has_claims()
    }

    /// Where in the body the sender's token is, if there, and the token: a secret, for who sends in its name.
    pub fn token_in_body(&self) -> Option<(&[String], Cow<'_, str>)> {
        self.scheme.token_in_body()
    }

    /// The parameter of the query with the sender's token, if there, and the token: a secret, for who sends in its name.
    pub fn token_in_query(&self) -> Option<(&str, Cow<'_, str>)> {
        self.scheme.token_in_query()
    }

    /// The parameter of the query with the digest of this body, if the sender adds one, and the digest.
    pub fn digest_in_query(&self, body: &[u8]) -> Option<(&str, String)> {
        self.scheme.digest_in_query(body)
    }

    /// The time that the sender signed with the body, where it is outside of the body.
    pub fn signed_time<'d>(&self, delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
        self.scheme.signed_time(delivery)
    }

    /// How old a delivery may be, where a time is signed; `None`: any age.
    pub fn tolerance(&self) -> Option<Duration> {
        self.scheme.tolerance().filter(|tolerance| *tolerance != Duration::MAX)
    }

    /// Whether a time outside of the body is signed with it.
    pub fn signs_time(&self) -> bool {
        self.scheme.signs_time()
    }

    /// Whether deliveries are signed with a secret that all senders share. A public key signs nothing, and which caller
    /// asks is not known before it has signed.
    pub fn has_shared_hmac_key(&self) -> bool {
        self.signs_body() && self.callers.is_none() && self.scheme.secrets().is_some()
    }

    /// The HMAC-SHA256 of a text with the first secret, for a handshake; `None` where there is no secret.
    pub(in crate::decide) fn hmac_of(&self, text: &[u8]) -> Option<Vec<u8>> {
        if self.late.is_some() {
            return self.completed()?.hmac_of(text);
        }
        let secrets = self.scheme.secrets().filter(|secrets| secrets.any())?;
        secrets.sign(HmacHash::Sha256, &[text]).map(|mac| mac.as_ref().to_vec())
    }

    /// A description, such as "GitHub's signature (SHA-256)".
    pub fn words(&self) -> String {
        let words = self.scheme.words();
        match self.callers() {
            Some(callers) => format!("{words}, with the secret of `{}`", callers.who.name),
            None => words,
        }
    }

    /// Which part of a signature was expected where, and what a rejected delivery has instead: for `explain` and the
    /// node's own log, never for the sender, and never with the right signature.
    pub fn expectation(&self, delivery: &Delivery<'_>) -> Option<String> {
        let (expected, found) = (self.scheme.expected()?, self.scheme.found(delivery)?);
        Some(format!("expected {expected}; found: {found}"))
    }

    /// Why a delivery failed verification, for the node's own log: never for the sender, and never with the right
    /// signature.
    pub fn rejection_reason(&self, delivery: &Delivery<'_>) -> String {
        let names = self.signature_headers();
        let here: Vec<_> = names.iter().filter(|name| delivery.header(name) != HeaderLookup::Missing).collect();
        let places = match &here[..] {
            [] if self.credential_places().is_empty() => return String::new(),
            [] if names.len() == self.credential_places().len() => {
                let missing = format!("there is no {} header", names.join(" or "));
                let guess = if self.scheme.secrets().is_some() { ": is a secret set at the sender?" } else { "" };
                return format!("{missing}{guess}");
            }
            [] => {
                let others = self.credential_places().into_iter().filter(|place| header_name(place.clone()).is_none());
                others.map(|place| place.to_string()).collect::<Vec<_>>().join(" and ")
            }
            [name] if delivery.header(name) == HeaderLookup::Several => {
                return format!("there is more than one {name} header");
            }
            here => here.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" and "),
        };
        // A described signature may be in several headers.
        if here.len() > 1 && !self.content_is_configured() {
            return format!("there is more than one signature: {places}");
        }
        let Some(found) = self.scheme.found(delivery) else { return format!("what is in {places} is wrong") };
        // Only where all else is right can it be the secret.
        let guess = match &*found {
            _ if self.scheme.secrets().is_none() => "",
            "another token" => " (is the token at the sender the one here?)",
            found if found.ends_with("with another secret") => " (is the secret at the sender the one here?)",
            _ => "",
        };
        let expected = self.scheme.expected().map(|expected| format!("; expected {expected}")).unwrap_or_default();
        format!("{places}: {found}{guess}{expected}")
    }

    /// The headers with which a genuine sender would send this body, signed with the first secret.
    pub fn sign(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let mut headers = vec![("content-type".to_owned(), self.media_type(body).to_owned())];
        headers.extend(self.proof(id, at, body));
        headers
    }

    /// The same with a private key that is not here: `sign` makes the signature of a message.
    pub fn sign_by(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        sign: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Vec<(String, String)> {
        let mut headers = vec![("content-type".to_owned(), self.media_type(body).to_owned())];
        headers.extend(self.scheme.proof_by(id, at, body, sign));
        headers
    }

    /// What a sender that publishes its keys sends with this body; `None` where no published key signs.
    pub fn published_proof(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        by: &PublishedSigner<'_>,
    ) -> Option<PublishedProof> {
        self.scheme.published_proof(id, at, body, by)
    }

    /// How the sender's private key signs, if its public half is in the config.
    pub fn private_key(&self) -> Option<PublicKeyAlgorithm> {
        self.scheme.private_key()
    }

    /// Those of these headers that prove the origin of any body.
    pub fn proof(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        if let Some(scheme) = self.completed() {
            return scheme.proof(id, at, body);
        }
        let Some(callers) = &self.callers else { return self.scheme.proof(id, at, body) };
        let caller = callers.book.anyone();
        let scheme = callers.scheme(caller.as_deref());
        let mut headers = scheme.map_or_else(|| self.scheme.proof(id, at, body), |scheme| scheme.proof(id, at, body));
        headers.extend(caller.and_then(|caller| callers.header(&caller)));
        headers
    }
}

/// A delivery id: a text or a number.
fn id_text(found: Option<JsonScalar<'_>>) -> Option<Arc<str>> {
    match found {
        Some(JsonScalar::Text(text)) if !is_blank(&text) => Some(text.into()),
        Some(JsonScalar::Number(raw)) => Some(raw.into()),
        _ => None,
    }
}

fn header_name(place: FieldLocation) -> Option<String> {
    match place {
        FieldLocation::Header(name) => Some(name),
        _ => None,
    }
}

/// The header with the signature or token: once, not empty, not too long.
fn credential<'d>(delivery: &Delivery<'d>, name: &str) -> Result<&'d str, DeliveryRejection> {
    match delivery.header(name) {
        HeaderLookup::One(value) if !value.is_empty() && value.len() <= limits::SIGNATURE_BYTES_MAX => {
            std::str::from_utf8(value).map_err(|_| DeliveryRejection::BadSignature)
        }
        _ => Err(DeliveryRejection::BadSignature),
    }
}

/// The value at this location, before anything is verified. Whatever is wrong with it, the error is the same.
fn text_at<'d>(place: &FieldLocation, delivery: &'d Delivery<'_>) -> Result<Cow<'d, str>, DeliveryRejection> {
    match place.read(delivery, delivery.body) {
        Ok(Some(JsonScalar::Text(text))) => Ok(text),
        Ok(Some(JsonScalar::Number(raw))) => Ok(Cow::Borrowed(raw)),
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
