//! What a scheme must know of itself: one trait, one file for each scheme.

use super::content_type;
use super::jwt::RequiredClaim;
use super::public_key::PublicKeyAlgorithm;
use super::signature::{MatchedKey, SourceSecrets};
use crate::decide::delivery::{Delivery, DeliveryRejection};
use crate::decide::field::FieldLocation;
use crate::decide::source::DeliveryIdLocation;
use crate::decide::time::{Duration, Timestamp};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A way in which senders prove that a delivery is theirs.
///
/// Only what differs between senders is asked here; what follows from the answers is in
/// [`VerificationScheme`](super::VerificationScheme).
pub trait Scheme: fmt::Debug + Send + Sync {
    /// The key that the delivery was signed with; `None` where nothing is verified.
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection>;

    /// The headers with which a genuine sender would send this body, signed with the first key. None where the key that
    /// signs is not here.
    fn proof(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)>;

    /// The same headers, signed with a private key that is not here: `sign` makes the signature of a message. None where
    /// no single private key signs.
    fn proof_by(
        &self,
        _id: &str,
        _at: Timestamp,
        _body: &[u8],
        _sign: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Vec<(String, String)> {
        Vec::new()
    }

    /// How the private key signs whose public half this scheme verifies with, if that is in the config.
    fn private_key(&self) -> Option<PublicKeyAlgorithm> {
        None
    }

    /// What a sender that publishes its keys sends with this body, to which the delivery id is already added where it
    /// belongs there; `None` where no published key signs.
    fn published_proof(
        &self,
        _id: &str,
        _at: Timestamp,
        _body: &[u8],
        _by: &PublishedSigner<'_>,
    ) -> Option<PublishedProof> {
        None
    }

    /// What the proof covers.
    fn covers(&self) -> SignedContent;

    /// A description, such as "GitHub's signature (SHA-256)".
    fn words(&self) -> String;

    /// What a genuine delivery has, and where: "header `x-signature` (hex, 64 digits) over {body}".
    fn expected(&self) -> Option<String> {
        None
    }

    /// What a delivery that was rejected has instead: "no entry v1". It names no value of the delivery, and nothing of
    /// the right signature; where all is in its place, it is "a signature of other bytes, or with another secret".
    fn found(&self, _delivery: &Delivery<'_>) -> Option<String> {
        None
    }

    /// The time that a delivery says, where its age matters.
    fn time(&self, _delivery: &Delivery<'_>) -> Option<Timestamp> {
        None
    }

    /// Where the signature or token is: it is never shown, and never kept longer than its event.
    fn credential_places(&self) -> Vec<FieldLocation>;

    /// The secrets, unless it verifies without one.
    fn secrets(&self) -> Option<&SourceSecrets> {
        None
    }

    /// Whether there is a key to verify with.
    fn has_key(&self) -> bool {
        self.secrets().is_some_and(SourceSecrets::any)
    }

    /// The same scheme with these secrets, in the form that its senders get them. An error is a sentence.
    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String>;

    /// The same scheme for a delivery of any age; `None` where age does not matter.
    fn ignoring_age(&self) -> Option<Arc<dyn Scheme>> {
        None
    }

    /// How old a delivery may be; `None`: any age.
    fn tolerance(&self) -> Option<Duration> {
        None
    }

    /// The headers that are signed together with the body, in lower case.
    fn signed_headers(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The time that was signed with the body, as it was written outside of the body.
    fn signed_time<'d>(&self, _delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
        None
    }

    /// Whether a time outside of the body is signed with it.
    fn signs_time(&self) -> bool {
        false
    }

    /// Where in the body the sender's time is, if there, and this time as it is written.
    fn time_in_body(&self, _at: Timestamp) -> Option<(&[String], String)> {
        None
    }

    /// Where in the body the sender's token is, if there, and the token.
    fn token_in_body(&self) -> Option<(&[String], Cow<'_, str>)> {
        None
    }

    /// Where in the body the signature is, if there, and the signature of this body, whose other parts are all there.
    fn signature_in_body(&self, _body: &[u8]) -> Option<(Vec<String>, String)> {
        None
    }

    /// The parameter of the query with the sender's token, if there, and the token.
    fn token_in_query(&self) -> Option<(&str, Cow<'_, str>)> {
        None
    }

    /// The parameter of the query with the digest of this body, if the sender adds one, and the digest.
    fn digest_in_query(&self, _body: &[u8]) -> Option<(&str, String)> {
        None
    }

    /// Where this scheme's senders put their delivery id, if they all do, and whether it is signed.
    fn delivery_id(&self) -> Option<DeliveryIdLocation> {
        None
    }

    /// What was signed, where that is not the bytes of the body, and where equal values of [`SignedContent::Fields`] do
    /// not say it all.
    fn signed_text(&self, _delivery: &Delivery<'_>) -> Option<Vec<u8>> {
        None
    }

    /// The delivery id that was signed, where it may be in one of several headers.
    fn signed_id<'d>(&self, _delivery: &Delivery<'d>) -> Option<&'d str> {
        None
    }

    /// Whether [`Scheme::claims`] has any.
    fn has_claims(&self) -> bool {
        false
    }

    /// The claims of a verified delivery's token, as JSON.
    fn claims(&self, _delivery: &Delivery<'_>) -> Option<Vec<u8>> {
        None
    }

    /// The URL that a delivery asks to be visited, to confirm that its sender may send here. The caller verifies the
    /// delivery first.
    fn confirmation_url(&self, _delivery: &Delivery<'_>) -> Option<String> {
        None
    }

    /// Whether [`Scheme::signed_id`] is the id at this location.
    fn has_id_at(&self, _place: &FieldLocation) -> bool {
        false
    }

    /// The header in which this scheme's senders name the kind of event, in lower case.
    fn kind_header(&self) -> Option<&'static str> {
        None
    }

    /// The sender that redelivers only when a person asks for it, and for how long it can.
    fn redelivered_by_hand(&self) -> Option<(&'static str, Duration)> {
        None
    }

    /// Does the config say what is signed? With other schemes the sender has settled it.
    fn is_described(&self) -> bool {
        false
    }

    /// Do its senders send JSON also inside a form, as its `payload`?
    fn reads_json_forms(&self) -> bool {
        false
    }

    /// The JSON in a verified delivery, where it is not the body itself. An error where headers contradict signed bytes;
    /// whoever knows a token is trusted with the headers as well.
    fn json<'d>(&self, delivery: &'d Delivery<'d>) -> Result<Option<Cow<'d, [u8]>>, DeliveryRejection> {
        match self.covers() {
            SignedContent::Token | SignedContent::Nothing => Ok(None),
            _ => content_type::agrees(delivery).map(|()| None),
        }
    }
}

/// The private half of a key that is published, for who sends in its owner's name.
pub struct PublishedSigner<'s> {
    /// The id of the key in its key set, or the name of its certificate at the host that has it.
    pub key: &'s str,
    /// Claims of tokens, beside those that a scheme requires.
    pub claims: &'s [RequiredClaim],
    /// Makes the signature of a message: RSA with PKCS #1 padding and SHA-256.
    pub sign: &'s dyn Fn(&[u8]) -> Option<Vec<u8>>,
}

/// What is sent with a body that is signed with a published key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PublishedProof {
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Members of the body, which is a JSON object.
    pub members: Vec<(&'static str, String)>,
}

/// What a proof covers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SignedContent {
    /// The body alone: an old delivery can be sent again under a new id at any time.
    Body,
    /// The body and an id; the same id always has the same body.
    IdAndBody,
    /// The body and a time.
    TimeAndBody,
    /// The body, a time and an id.
    IdTimeAndBody,
    /// Every name and value of the form that the body is, joined: not its bytes, and not where a value ends.
    Form,
    /// Only the values at these locations: anything else in a captured delivery can be replaced.
    Fields(Vec<FieldLocation>),
    /// A value that is used once, and nothing of what was sent: it admits one delivery, whatever that says.
    Nonce(FieldLocation),
    /// Whoever knows the token is trusted with the whole request.
    Token,
    /// Nothing is verified, because the config says so explicitly.
    Nothing,
}

impl SignedContent {
    /// Is a signature made over the body? A token is none: it comes with any body.
    pub(super) fn has_body(&self) -> bool {
        match self {
            Self::Body | Self::IdAndBody | Self::TimeAndBody | Self::IdTimeAndBody | Self::Form => true,
            Self::Fields(_) | Self::Nonce(_) | Self::Token | Self::Nothing => false,
        }
    }

    /// What is signed, in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::IdAndBody => "id+body",
            Self::TimeAndBody => "time+body",
            Self::IdTimeAndBody => "id+time+body",
            Self::Form | Self::Fields(_) => "fields",
            Self::Nonce(_) => "nonce",
            Self::Token => "token",
            Self::Nothing => "none",
        }
    }
}

/// Nothing is verified.
#[derive(Debug)]
pub(super) struct NoScheme;

impl Scheme for NoScheme {
    fn matching_key(&self, _: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        Ok(None)
    }

    fn proof(&self, _: &str, _: Timestamp, _: &[u8]) -> Vec<(String, String)> {
        Vec::new()
    }

    fn covers(&self) -> SignedContent {
        SignedContent::Nothing
    }

    fn words(&self) -> String {
        "nothing".into()
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        Vec::new()
    }

    fn with_secrets(&self, _: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Ok(Arc::new(Self))
    }
}
