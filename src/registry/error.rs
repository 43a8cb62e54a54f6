//! Why a registry did not say what a tag points to, and what that means for the attempt.

use crate::decide::event::Outcome;
use crate::decide::time::Duration;
use std::fmt;

/// Why the digest of a tag is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LookupError {
    /// The kind of failure.
    pub(crate) kind: LookupFailure,
    /// The reason, as a sentence. Never contains a credential.
    pub(crate) why: String,
}

/// The kinds of failures of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LookupFailure {
    /// The registry or its token server cannot be reached, did not answer in time, or failed.
    Unavailable {
        /// How long it asked to wait.
        retry_after: Option<Duration>,
    },
    /// Too many requests.
    RateLimited {
        /// How long it asked to wait.
        retry_after: Option<Duration>,
    },
    /// The registry does not know the image or the tag. It may lag behind its own webhook.
    NotFound,
    /// The registry or its token server refused the credentials, or wants some.
    Denied,
    /// The answer cannot be used.
    Malformed,
    /// The credentials cannot be read.
    Credentials,
    /// The event's fields make no name or no tag.
    Reference,
}

impl LookupError {
    pub(super) fn new(kind: LookupFailure, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    /// The outcome of an attempt whose action has not begun.
    pub(crate) fn outcome(self) -> Outcome {
        let Self { kind, why } = self;
        match kind {
            LookupFailure::Unavailable { retry_after } | LookupFailure::RateLimited { retry_after } => {
                Outcome::Unresolved { why, retry_after }
            }
            LookupFailure::NotFound | LookupFailure::Malformed | LookupFailure::Credentials => {
                Outcome::Unresolved { why, retry_after: None }
            }
            // A retry would ask the same again.
            LookupFailure::Denied | LookupFailure::Reference => Outcome::Rejected { why, receipt: None },
        }
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for LookupError {}
