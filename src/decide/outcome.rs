//! What of an answer's headers is kept with it, and given again to who repeats the request. Cookies, dates and whatever
//! else is meant for one moment, one caller or one connection is not.

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
