//! The outcome of an attempt: what it came to, the receiver's answer, and which headers of that answer are kept.

use super::time::Duration;

/// What an attempt came to. Not a `Result`: an unknown is an answer.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It acted.
    Delivered(Option<Receipt>),
    /// It did not act, and may later.
    Failed {
        /// In a sentence.
        why: String,
        /// The receiver asked for this much time.
        retry_after: Option<Duration>,
        /// What the receiver answered.
        receipt: Option<Receipt>,
    },
    /// It never will.
    Rejected {
        /// In a sentence.
        why: String,
        /// What the receiver answered.
        receipt: Option<Receipt>,
    },
    /// It may have acted, and its end was lost: a crash, a lost lease, a drain, a connection that broke after sending.
    /// Counted as a doubt.
    Unknown {
        /// In a sentence.
        why: String,
    },
    /// It may have acted, and our own timeout ended it. Counted against `attempts`.
    TimedOut {
        /// In a sentence.
        why: String,
        /// The receiver said that it acted, but the rest of its answer did not come in time.
        answered: Option<Receipt>,
    },
}

impl Outcome {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Delivered(_) => "delivered",
            Self::Failed { .. } => "failed",
            Self::Rejected { .. } => "rejected",
            Self::Unknown { .. } | Self::TimedOut { .. } => "unknown",
        }
    }

    /// The sentence behind it, where there is one.
    pub fn why(&self) -> &str {
        match self {
            Self::Delivered(_) => "",
            Self::Failed { why, .. }
            | Self::Rejected { why, .. }
            | Self::Unknown { why }
            | Self::TimedOut { why, .. } => why,
        }
    }

    /// What was answered, if anything was.
    pub fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Delivered(receipt) | Self::Failed { receipt, .. } | Self::Rejected { receipt, .. } => {
                receipt.as_ref()
            }
            Self::Unknown { .. } | Self::TimedOut { .. } => None,
        }
    }
}

/// What the action answered; kept, and given again to duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The HTTP status.
    pub status: u16,
    /// Headers that may be given again.
    pub headers: Vec<(String, String)>,
    /// The body, up to the limit.
    pub body: Vec<u8>,
    /// The body was longer than the limit and is not whole.
    pub truncated: bool,
}

impl Receipt {
    /// Does it say that the receiver acted?
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Kept without being named.
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
    // What gRPC says where its answer has no body.
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
    "grpc-encoding",
];

/// What is kept of these headers, names in lower case, with others that are named. A value that is no text is left
/// behind.
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
    fn what_is_for_everybody_is_kept_in_its_order_and_as_often_as_it_came() {
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
    fn what_is_for_one_caller_or_one_connection_is_not_kept() {
        for name in ["set-cookie", "date", "connection", "transfer-encoding", "content-length", "server", "x-upload-id"]
        {
            check(&[(name, b"1")], "", &[]);
        }
        check(&[("location", b"/\xe9")], "", &[]);
    }
}
