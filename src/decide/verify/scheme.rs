//! What a scheme must know of itself: one trait, one file for each scheme.

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

    /// What the proof covers.
    fn covers(&self) -> SignedContent;

    /// A description, such as "GitHub's signature (SHA-256)".
    fn words(&self) -> String;

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

    /// Where this scheme's senders put their delivery id, if they all do, and whether it is signed.
    fn delivery_id(&self) -> Option<DeliveryIdLocation> {
        None
    }

    /// The delivery id that was signed, where it may be in one of several headers.
    fn signed_id<'d>(&self, _delivery: &Delivery<'d>) -> Option<&'d str> {
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

    /// The JSON in a verified delivery, where it is not the body itself. An error where headers contradict the bytes.
    fn json<'d>(&self, _delivery: &'d Delivery<'d>) -> Result<Option<Cow<'d, [u8]>>, DeliveryRejection> {
        Ok(None)
    }
}

/// What a proof covers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SignedContent {
    /// The body alone: an old delivery can be sent again under a new id at any time.
    Body,
    /// The body and an id; the same id always has the same body.
    IdAndBody,
    /// The body and a time, which may come with an id.
    TimeAndBody,
    /// Whoever knows the token is trusted with the whole request.
    Token,
    /// Nothing is verified, because the config says so explicitly.
    Nothing,
}

impl SignedContent {
    /// Is a signature made over the body? A token is none: it comes with any body.
    pub(super) fn has_body(&self) -> bool {
        match self {
            Self::Body | Self::IdAndBody | Self::TimeAndBody => true,
            Self::Token | Self::Nothing => false,
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
