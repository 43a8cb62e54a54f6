//! Why a sender's API could not be used.

use crate::decide::time::Duration;
use std::fmt;

/// Why a request to a sender's API failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HookApiError {
    /// The kind of failure.
    pub(crate) kind: HookApiFailure,
    /// The reason, as a sentence. Never contains a credential.
    pub(crate) why: String,
}

/// The kinds of failures of a request to a sender's API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HookApiFailure {
    /// It cannot be reached, did not answer in time, failed, or allows no more requests for now.
    Unavailable {
        /// How long it asked to wait.
        retry_after: Option<Duration>,
    },
    /// It refused the credentials, or knows no such hook.
    Denied,
    /// It refused this request: the position in the list, or the delivery.
    Refused,
    /// The answer cannot be used.
    Malformed,
}

impl HookApiError {
    pub(super) fn new(kind: HookApiFailure, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    pub(super) fn malformed(why: impl Into<String>) -> Self {
        Self::new(HookApiFailure::Malformed, why)
    }
}

impl fmt::Display for HookApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for HookApiError {}
