//! Parses the `Idempotency-Key` header of an HTTP API's clients. The IETF draft writes it as a structured string, in
//! quotes (RFC 8941). Many clients leave the quotes out, so a bare key is accepted too and means the same.

use crate::decide::delivery::DeliveryRejection;
use crate::decide::delivery::{Delivery, HeaderLookup};
use crate::decide::field::is_blank;
use crate::decide::limits;
use std::sync::Arc;

/// Headers that do not identify a client of an API, or are part of its key already: `Authorization` and the key itself.
pub const ANONYMOUS: [&str; 12] = [
    "accept",
    "accept-language",
    "authorization",
    "content-encoding",
    "content-type",
    "date",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-correlation-id",
    "x-request-id",
];

/// The key in this header, without its quotes.
pub(in crate::decide) fn key(delivery: &Delivery<'_>, name: &str) -> Result<Arc<str>, DeliveryRejection> {
    match delivery.header(name) {
        HeaderLookup::Missing => Err(DeliveryRejection::KeyMissing),
        HeaderLookup::Several => Err(DeliveryRejection::KeyMalformed("it occurs more than once")),
        HeaderLookup::One(value) => read(value),
    }
}

/// Parses the value of such a header.
pub fn read(value: &[u8]) -> Result<Arc<str>, DeliveryRejection> {
    let value = value.trim_ascii();
    if !value.iter().all(|byte| (0x20..0x7f).contains(byte)) {
        return Err(DeliveryRejection::KeyMalformed("it is not visible ASCII"));
    }
    let text = std::str::from_utf8(value).map_err(|_| DeliveryRejection::KeyMalformed("it is not visible ASCII"))?;
    let key = match text.strip_prefix('"') {
        Some(quoted) => string(quoted)?,
        None => bare(text)?,
    };
    match key.len() {
        _ if is_blank(&key) => Err(DeliveryRejection::KeyMissing),
        1..=limits::IDEMPOTENCY_KEY_BYTES_MAX => Ok(key.into()),
        _ => Err(DeliveryRejection::KeyMalformed("it is longer than 255 characters")),
    }
}

/// Parses a structured string after its opening quote. Parameters after it have no meaning and are ignored.
fn string(text: &str) -> Result<String, DeliveryRejection> {
    let mut key = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next() {
            Some('"') => break,
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => {
                    return Err(DeliveryRejection::KeyMalformed(
                        "a backslash in it escapes neither a quote nor a backslash",
                    ));
                }
            },
            Some(other) => key.push(other),
            None => return Err(DeliveryRejection::KeyMalformed("its closing quote is missing")),
        }
    }
    let rest = chars.as_str().trim_start();
    if rest.is_empty() || rest.starts_with(';') {
        Ok(key)
    } else {
        Err(DeliveryRejection::KeyMalformed("something follows its closing quote"))
    }
}

/// Parses a key without quotes. Characters with a meaning in structured headers need quotes.
fn bare(text: &str) -> Result<String, DeliveryRejection> {
    if text.contains([' ', '"', ',', ';', '\\']) {
        return Err(DeliveryRejection::KeyMalformed(
            "with spaces, quotes, commas, semicolons or backslashes it needs quotes",
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::delivery::borrow_headers;
    use crate::decide::time::Timestamp;
    use bytes::Bytes;

    fn from(values: &[&str]) -> Result<Arc<str>, DeliveryRejection> {
        let headers: Vec<_> =
            values.iter().map(|value| ("idempotency-key".to_owned(), value.as_bytes().to_vec())).collect();
        let body = Bytes::new();
        let delivery = Delivery {
            path: "/",
            query: "",
            headers: &borrow_headers(&headers),
            body: &body,
            at: Timestamp(0),
            wall: Timestamp(0),
        };
        key(&delivery, "idempotency-key")
    }

    fn check(value: &str, expected: Result<&str, DeliveryRejection>) {
        assert_eq!(from(&[value]), expected.map(Into::into), "{value}");
    }

    #[test]
    fn a_key_is_read_with_and_without_quotes() {
        check("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"", Ok("8e03978e-40d5-43dd-bc93-6894a57f9324"));
        check("8e03978e-40d5-43dd-bc93-6894a57f9324", Ok("8e03978e-40d5-43dd-bc93-6894a57f9324"));
        check("  a+b/c==  ", Ok("a+b/c=="));
        check(r#""a \"b\" \\ c""#, Ok(r#"a "b" \ c"#));
        check("\"a\";v=1", Ok("a"));
        check(&"x".repeat(255), Ok(&"x".repeat(255)));
    }

    #[test]
    fn an_invalid_key_is_rejected_with_a_reason() {
        for (value, why) in [
            ("\"a", "closing quote"),
            ("\"a\" b", "follows its closing quote"),
            (r#""a\n""#, "escapes neither"),
            ("a b", "needs quotes"),
            ("a,b", "needs quotes"),
            ("ä", "visible ASCII"),
            ("a\tb", "visible ASCII"),
            (&"x".repeat(256), "longer"),
            (&format!("\"{}\"", "x".repeat(256)), "longer"),
        ] {
            let Err(DeliveryRejection::KeyMalformed(said)) = from(&[value]) else {
                panic!("{value}: {:?}", from(&[value]))
            };
            assert!(said.contains(why), "{value}: {said}");
        }
        check("", Err(DeliveryRejection::KeyMissing));
        check("\"\"", Err(DeliveryRejection::KeyMissing));
        check("\"  \"", Err(DeliveryRejection::KeyMissing));
        assert_eq!(from(&[]), Err(DeliveryRejection::KeyMissing));
        assert_eq!(from(&["a", "a"]), Err(DeliveryRejection::KeyMalformed("it occurs more than once")));
    }

    proptest::proptest! {
        #![proptest_config(crate::seed::cases(256))]

        #[test]
        fn any_text_is_a_key_within_its_limits_or_rejected(text in "[\\x00-\\xff]{0,300}") {
            if let Ok(key) = from(&[&text]) {
                proptest::prop_assert!(!key.is_empty() && key.len() <= limits::IDEMPOTENCY_KEY_BYTES_MAX);
            }
        }
    }
}
