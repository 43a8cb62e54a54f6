//! Parses names and values as forms and queries carry them: `a=1&b=x%20y`.

use super::limits;
use std::borrow::Cow;

/// The beginning of a form that carries JSON as its `payload`. No JSON text begins like this.
const PAYLOAD: &[u8] = b"payload=";

/// The result of looking up a name in a form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FormLookup<'f> {
    /// The name does not occur.
    Missing,
    /// Its value, decoded.
    One(Cow<'f, [u8]>),
    /// The name occurs more than once.
    Several,
    /// A value that is not percent-encoded properly.
    Broken,
}

/// Whether the body is a form that carries JSON. The bytes alone decide: the Content-Type header is not signed.
pub(super) fn is_payload(body: &[u8]) -> bool {
    body.starts_with(PAYLOAD)
}

/// The JSON inside a form that holds a `payload` and nothing else; `None` if the body is no such form. An error is a
/// sentence for people.
pub(super) fn payload(body: &[u8]) -> Result<Option<Cow<'_, [u8]>>, &'static str> {
    match body.strip_prefix(PAYLOAD) {
        None => Ok(None),
        Some(value) if value.contains(&b'&') => Err("the form holds more than its `payload`"),
        Some(value) => decode(value).map(Some).ok_or("the form's `payload` is not percent-encoded properly"),
    }
}

/// Looks up a name in a form. A name that cannot be decoded matches nothing.
pub(super) fn entry<'f>(form: &'f [u8], name: &str) -> FormLookup<'f> {
    let mut found = FormLookup::Missing;
    for pair in form.split(|&byte| byte == b'&') {
        let (key, value) = split(pair);
        // An escape is three bytes of a name, so a longer one is not decoded at all.
        if pair.is_empty() || key.len() > 3 * name.len() || decode(key).as_deref() != Some(name.as_bytes()) {
            continue;
        }
        found = match found {
            FormLookup::Missing => decode(value).map_or(FormLookup::Broken, FormLookup::One),
            _ => return FormLookup::Several,
        };
    }
    found
}

/// A name and its value, decoded.
pub(crate) type FormPair<'f> = (Cow<'f, [u8]>, Cow<'f, [u8]>);

/// All names and values of a form, in its order; `None` when one is not percent-encoded properly, or when there are more
/// than [`limits::FORM_PAIRS_MAX`]: each takes many times the bytes that it is written in.
pub(crate) fn pairs(form: &[u8]) -> Option<Vec<FormPair<'_>>> {
    let pairs = || form.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
    if pairs().nth(limits::FORM_PAIRS_MAX).is_some() {
        return None;
    }
    pairs()
        .map(|pair| {
            let (name, value) = split(pair);
            Some((decode(name)?, decode(value)?))
        })
        .collect()
}

/// A form of these names and values.
pub(crate) fn encode<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
    let text = |text: &str| {
        let encoded = text.bytes().map(|byte| match byte {
            b' ' => "+".to_owned(),
            b'-' | b'.' | b'_' | b'*' => char::from(byte).to_string(),
            _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        });
        encoded.collect::<String>()
    };
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
    pairs.join("&")
}

/// The name and the value of a pair, as they are written.
fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    let middle = pair.iter().position(|&byte| byte == b'=');
    middle.map_or((pair, &pair[pair.len()..]), |at| (&pair[..at], &pair[at + 1..]))
}

/// Decodes `+` as a space and `%41` as a byte; `None` when a `%` is not followed by two hex digits.
fn decode(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => hex_digit(*bytes.next()?)? << 4 | hex_digit(*bytes.next()?)?,
            byte => byte,
        });
    }
    Some(Cow::Owned(out))
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_one_payload_gives_its_json_and_anything_beside_it_is_refused() {
        let json = |body: &'static str| payload(body.as_bytes()).map(|json| json.map(Cow::into_owned));
        assert_eq!(json("payload=%7B+%7d"), Ok(Some(b"{ }".to_vec())));
        assert_eq!(json("payload=a=b"), Ok(Some(b"a=b".to_vec())));
        assert_eq!(json("payload="), Ok(Some(Vec::new())));
        for no_form in ["", "{}", "payload", "Payload=1", " payload=1", "%70ayload=1", "a=1&payload=%7B%7D"] {
            assert_eq!(json(no_form), Ok(None), "{no_form}");
        }
        for more in ["payload=1&payload=1", "payload=1&a=1", "payload=1&", "payload=&"] {
            assert_eq!(json(more), Err("the form holds more than its `payload`"), "{more}");
        }
        assert!(json("payload=%7").is_err());
    }

    fn check(form: &str, name: &str, expected: &FormLookup<'_>) {
        assert_eq!(entry(form.as_bytes(), name), *expected, "{name} in {form}");
    }

    fn one(value: &str) -> FormLookup<'_> {
        FormLookup::One(Cow::Borrowed(value.as_bytes()))
    }

    #[test]
    fn a_name_and_its_value_are_decoded() {
        check("a=1&b=x%20y+z", "b", &one("x y z"));
        check("%61=1", "a", &one("1"));
        check("a=%C3%a4", "a", &one("ä"));
        check("a=b=c", "a", &one("b=c"));
        check("a", "a", &one(""));
        check("a=", "a", &one(""));
        check("a+b=1", "a b", &one("1"));
    }

    #[test]
    fn all_pairs_of_a_form_are_decoded_in_order() {
        let all = |form: &str| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            pairs(form.as_bytes()).map(|all| all.iter().map(|(k, v)| (text(k), text(v))).collect::<Vec<_>>())
        };
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            all("b=x%20y&&a=1&b=&c"),
            Some(vec![pair("b", "x y"), pair("a", "1"), pair("b", ""), pair("c", "")])
        );
        assert_eq!(all(""), Some(Vec::new()));
        let many = |count: usize| all(&"a&&".repeat(count)).map(|all| all.len());
        let most = limits::FORM_PAIRS_MAX;
        assert_eq!([many(most), many(most + 1)], [Some(most), None]);
        assert_eq!([all("a=%"), all("%4=1")], [None, None]);
    }

    #[test]
    fn what_is_not_there_is_missing() {
        for form in ["", "&", "&&", "b=1", "A=1", "%=1", "=1"] {
            check(form, "a", &FormLookup::Missing);
        }
    }

    #[test]
    fn a_name_that_occurs_twice_has_no_value() {
        check("a=1&a=1", "a", &FormLookup::Several);
        check("a=1&%61=2&a=3", "a", &FormLookup::Several);
        check("a=%&a=1", "a", &FormLookup::Several);
    }

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let all = [("a b", "x&y=z"), ("ä", "+%"), ("", ""), ("c[0]", "1/2")];
        let form = encode(all);
        assert_eq!(form, "a+b=x%26y%3Dz&%C3%A4=%2B%25&=&c%5B0%5D=1%2F2");
        let read = pairs(form.as_bytes()).unwrap();
        assert!(
            read.iter()
                .map(|(name, value)| (&**name, &**value))
                .eq(all.map(|(name, value)| (name.as_bytes(), value.as_bytes()))),
            "{read:?}"
        );
        for broken in ["a=%", "%zz=1"] {
            assert_eq!(pairs(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn a_broken_escape_is_reported_as_such() {
        for form in ["a=%", "a=%4", "a=%4g", "a=%%41", "a=%+1"] {
            check(form, "a", &FormLookup::Broken);
        }
    }
}
