//! The outcome of an attempt: its result, the receiver's response, and which headers of that response are kept.

use super::time::Duration;

/// The result of an attempt. Not a `Result`: "unknown" is a result of its own.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It acted.
    Delivered(Option<Receipt>),
    /// It did not act, and may succeed later.
    Failed {
        /// The reason, as a sentence.
        why: String,
        /// How long the receiver asked to wait.
        retry_after: Option<Duration>,
        /// The receiver's response.
        receipt: Option<Receipt>,
    },
    /// It did not begin: the registry did not say what to deploy, and may say it later. Counted separately.
    Unresolved {
        /// The reason, as a sentence.
        why: String,
        /// How long the registry asked to wait.
        retry_after: Option<Duration>,
    },
    /// It did not act, and never will.
    Rejected {
        /// The reason, as a sentence.
        why: String,
        /// The receiver's response.
        receipt: Option<Receipt>,
    },
    /// It acted, and what it deployed is not healthy.
    Unhealthy {
        /// The reason, as a sentence.
        why: String,
        /// The receiver's response.
        receipt: Option<Receipt>,
    },
    /// It may have acted, and its end was lost: a crash, a lost lease, a shutdown, a connection that broke after
    /// sending. Counted as a doubt.
    Unknown {
        /// The reason, as a sentence.
        why: String,
    },
    /// It may have acted, and our own timeout ended it. The route says what it is counted as
    /// ([`TimeoutAccounting`](super::source::TimeoutAccounting)).
    TimedOut {
        /// The reason, as a sentence.
        why: String,
        /// The receiver's response said that it acted, but the rest of it did not arrive in time.
        answered: Option<Receipt>,
    },
}

impl Outcome {
    /// The outcome's name.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Delivered(_) => "delivered",
            Self::Failed { .. } | Self::Unresolved { .. } => "failed",
            Self::Rejected { .. } => "rejected",
            Self::Unhealthy { .. } => "unhealthy",
            Self::Unknown { .. } | Self::TimedOut { .. } => "unknown",
        }
    }

    /// The reason; empty where there is none.
    pub fn why(&self) -> &str {
        match self {
            Self::Delivered(_) => "",
            Self::Failed { why, .. }
            | Self::Unresolved { why, .. }
            | Self::Rejected { why, .. }
            | Self::Unhealthy { why, .. }
            | Self::Unknown { why }
            | Self::TimedOut { why, .. } => why,
        }
    }

    /// The receiver's response, if there is one.
    pub fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Delivered(receipt)
            | Self::Failed { receipt, .. }
            | Self::Rejected { receipt, .. }
            | Self::Unhealthy { receipt, .. } => receipt.as_ref(),
            Self::Unresolved { .. } | Self::Unknown { .. } | Self::TimedOut { .. } => None,
        }
    }
}

/// The receiver's response. It is stored, and returned again to duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The HTTP status.
    pub status: u16,
    /// Headers that may be returned again.
    pub headers: Vec<(String, String)>,
    /// The body, up to the limit.
    pub body: Vec<u8>,
    /// The body was longer than the limit and is incomplete.
    pub truncated: bool,
}

impl Receipt {
    /// Whether its status says that the receiver acted.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Headers that are always kept.
const KEPT_HEADERS: [&str; 13] = [
    "content-type",
    "content-encoding",
    "content-language",
    "content-disposition",
    "location",
    "etag",
    "retry-after",
    "x-request-id",
    "x-correlation-id",
    // gRPC's status, where its response has no body.
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
    "grpc-encoding",
];

/// Those of these headers that are kept: the default ones and those that `also` selects, with names in lower case. A
/// value that is not text is dropped.
pub fn kept_headers<'h>(
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    also: impl Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let kept = headers.into_iter().filter(|(name, _)| KEPT_HEADERS.contains(name) || also(name));
    kept.filter_map(|(name, value)| Some((name.to_owned(), std::str::from_utf8(value).ok()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&str, &[u8])], also: &str, expected: &[(&str, &str)]) {
        let kept = kept_headers(headers.iter().copied(), |name| name == also);
        let kept: Vec<_> = kept.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(kept, expected, "{headers:?}");
    }

    #[test]
    fn headers_for_any_client_are_kept_in_order_and_with_repetitions() {
        check(
            &[("x-request-id", b"7"), ("content-type", b"a/b")],
            "",
            &[("x-request-id", "7"), ("content-type", "a/b")],
        );
        check(&[("location", b"/a"), ("location", b"/b")], "", &[("location", "/a"), ("location", "/b")]);
        check(&[("x-upload-id", b"7")], "x-upload-id", &[("x-upload-id", "7")]);
        check(&[("location", "/é".as_bytes())], "", &[("location", "/é")]);
    }

    #[test]
    fn headers_for_one_client_or_one_connection_are_not_kept() {
        for name in ["set-cookie", "date", "connection", "transfer-encoding", "content-length", "server", "x-upload-id"]
        {
            check(&[(name, b"1")], "", &[]);
        }
        check(&[("location", b"/\xe9")], "", &[]);
    }
}
