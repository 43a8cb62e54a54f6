//! The location of a value, as the config writes it: `body.a.0.b`, `body."a.b"`, `form.x`, `header.x`, `query.x`, `path`,
//! and `claim.x` of the token that verified the delivery.
//!
//! Where a source makes an event of each element of an array, `body` is the element, and `outer.x` is a place in the
//! document around it.

use crate::decide::delivery::DeliveryRejection;
use crate::decide::delivery::{Delivery, HeaderLookup};
use crate::decide::form::{self, FormLookup};
use crate::decide::json_walk::{JsonPathTrie, JsonScalar, PathInterest};
use crate::decide::limits;
use crate::decide::nearest_name::nearest;
use std::borrow::Cow;
use std::fmt;

/// The location of a value in a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldLocation {
    /// In the JSON body: member names, or positions in an array.
    Body(Vec<String>),
    /// In the form that the body is, under this name.
    Form(String),
    /// In a header, its name in lower case.
    Header(String),
    /// In the query.
    Query(String),
    /// The path itself.
    Path,
    /// A claim of the token that verified the delivery.
    Claim(Vec<String>),
    /// In the JSON document around an element.
    Outer(Vec<String>),
}

impl FieldLocation {
    /// Reads `body.a.0.b`, `body."a.b"`, `form.x`, `header.x`, `query.x`, `path`. An error is a sentence for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('.').map_or((text, None), |(root, rest)| (root, Some(rest))) {
            ("path", None) => Ok(Self::Path),
            ("path", Some(_)) => Err("`path` is the whole path; nothing can follow it".into()),
            ("body", Some(rest)) => parts(rest).map(Self::Body),
            ("claim", Some(rest)) => parts(rest).map(Self::Claim),
            ("header", Some(name)) if !name.is_empty() && name.bytes().all(is_token) => {
                Ok(Self::Header(name.to_ascii_lowercase()))
            }
            ("header", Some(name)) if !name.is_empty() => Err(format!("`{name}` cannot be the name of a header")),
            ("query", Some(name)) if !name.is_empty() => Ok(Self::Query(name.into())),
            ("form", Some(name)) if !name.is_empty() => Ok(Self::Form(name.into())),
            ("outer", Some(_)) => Err("`outer` is the document around an element: the source needs `each`".into()),
            (root @ ("body" | "form" | "header" | "query" | "claim" | "outer"), _) => {
                Err(format!("`{root}` needs a name after it: `{root}.name`"))
            }
            (root, _) => {
                let meant = nearest(root, ["body", "form", "header", "query", "path", "claim", "outer"]);
                let hint = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
                Err(format!("`{text}` must begin with `body.`, `form.`, `header.` or `query.`, or be `path`{hint}"))
            }
        }
    }

    /// Reads a place of a source whose events are elements: also `body`, the element itself, and `outer.a.0.b`. An error
    /// is a sentence for people.
    pub fn parse_in_element(text: &str) -> Result<Self, String> {
        match text.split_once('.') {
            None if text == "body" => Ok(Self::Body(Vec::new())),
            Some(("outer", rest)) if !rest.is_empty() => parts(rest).map(Self::Outer),
            _ => Self::parse(text),
        }
    }

    /// The value at this location. A location in the body is walked by itself here; [`super::FieldSet::read`] walks
    /// once for all.
    pub(in crate::decide) fn read<'d>(
        &self,
        delivery: &'d Delivery<'_>,
        json: &'d [u8],
    ) -> Result<Option<JsonScalar<'d>>, DeliveryRejection> {
        let text = match self {
            Self::Body(path) => {
                let mut paths = JsonPathTrie::new();
                let node = paths.add(path, PathInterest::Value);
                return Ok(paths.walk(json).map_err(DeliveryRejection::Malformed)?[node].scalar());
            }
            Self::Header(name) => header(delivery, name)?,
            Self::Form(name) => form_value(delivery.body, name, "form")?,
            Self::Query(name) => form_value(delivery.query.as_bytes(), name, "query")?,
            Self::Path => Some(Cow::Borrowed(delivery.path)),
            // Claims are read from the verified token: see `VerifiedDelivery::claim`; what is around an element is read
            // with it: see `FieldSet::elements`.
            Self::Claim(_) | Self::Outer(_) => None,
        };
        Ok(text.map(JsonScalar::Text))
    }

    /// Its path inside the body; a form is like an object without objects in it.
    pub fn body_path(&self) -> Option<&[String]> {
        match self {
            Self::Body(path) => Some(path),
            Self::Form(name) => Some(std::slice::from_ref(name)),
            Self::Header(_) | Self::Query(_) | Self::Path | Self::Claim(_) | Self::Outer(_) => None,
        }
    }

    /// Whether it is in the body.
    pub fn is_in_body(&self) -> bool {
        matches!(self, Self::Body(_) | Self::Form(_) | Self::Outer(_))
    }
}

fn header<'d>(delivery: &'d Delivery<'_>, name: &str) -> Result<Option<Cow<'d, str>>, DeliveryRejection> {
    match delivery.header(name) {
        HeaderLookup::Missing => Ok(None),
        HeaderLookup::One(value) => match std::str::from_utf8(value) {
            Ok(text) if !text.contains(char::is_control) => Ok(Some(Cow::Borrowed(text))),
            _ => Err(DeliveryRejection::Malformed(format!("header `{name}` is not plain text"))),
        },
        HeaderLookup::Several => Err(DeliveryRejection::Malformed(format!("header `{name}` occurs more than once"))),
    }
}

/// A value of a form or a query; `within` is which of them.
fn form_value<'d>(text: &'d [u8], name: &str, within: &str) -> Result<Option<Cow<'d, str>>, DeliveryRejection> {
    let malformed = |what: &str| Err(DeliveryRejection::Malformed(format!("`{name}` in the {within} {what}")));
    match form::entry(text, name) {
        FormLookup::Missing => Ok(None),
        FormLookup::One(value) => {
            let text = match value {
                Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
                Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
            };
            text.map_or_else(|| malformed("is not UTF-8"), |text| Ok(Some(text)))
        }
        FormLookup::Several => malformed("occurs more than once"),
        FormLookup::Broken => malformed("is not percent-encoded properly"),
    }
}

/// Parses what follows `body.`: names, with quotes around those that contain a dot.
fn parts(text: &str) -> Result<Vec<String>, String> {
    let mut parts = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let (part, after) = match text.strip_prefix('"') {
            Some(quoted) => quoted_part(quoted)?,
            None => bare_part(text)?,
        };
        parts.push(part);
        rest = after;
    }
    if parts.len() > limits::PATH_PARTS_MAX {
        return Err(format!("a place in a body may be at most {} names deep", limits::PATH_PARTS_MAX));
    }
    Ok(parts)
}

/// A name up to the next dot, and what follows that dot.
fn bare_part(text: &str) -> Result<(String, Option<&str>), String> {
    let (part, after) = text.split_once('.').map_or((text, None), |(part, after)| (part, Some(after)));
    match part {
        "" => Err("a name between two dots is empty; an empty name is written `\"\"`".into()),
        _ if part.contains('[') => {
            Err(format!("`{part}`: the first of an array is written `.0`; a name with `[` in it goes in quotes"))
        }
        _ if part.contains('"') => Err(format!("`{part}`: quotes go around the whole name")),
        _ => Ok((part.into(), after)),
    }
}

/// A name up to its closing quote, in which `\"` and `\\` are escapes for `"` and `\`, and what follows the dot after
/// it.
fn quoted_part(text: &str) -> Result<(String, Option<&str>), String> {
    let mut part = String::new();
    let mut chars = text.chars();
    loop {
        match (chars.next(), chars.as_str().chars().next()) {
            (Some('\\'), Some(escaped @ ('"' | '\\'))) => {
                part.push(escaped);
                chars.next();
            }
            (Some('"'), None) => return Ok((part, None)),
            (Some('"'), Some('.')) => return Ok((part, Some(&chars.as_str()[1..]))),
            (Some('"'), Some(_)) => return Err(format!("a dot must follow the name \"{part}\"")),
            (Some(other), _) => part.push(other),
            (None, _) => return Err(format!("the name \"{part} has no closing quote")),
        }
    }
}

/// Whether this byte may be in a header's name (RFC 9110).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl fmt::Display for FieldLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(path) | Self::Claim(path) | Self::Outer(path) => {
                f.write_str(match self {
                    Self::Body(_) => "body",
                    Self::Outer(_) => "outer",
                    _ => "claim",
                })?;
                path.iter().try_for_each(|part| {
                    let bare = !part.is_empty() && !part.contains(['.', '"', '[']);
                    if bare {
                        write!(f, ".{part}")
                    } else {
                        write!(f, ".\"{}\"", part.replace('\\', "\\\\").replace('"', "\\\""))
                    }
                })
            }
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Form(name) => write!(f, "form.{name}"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::Path => f.write_str("path"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &FieldLocation) {
        assert_eq!(FieldLocation::parse(text).as_ref(), Ok(expected), "{text}");
        assert_eq!(FieldLocation::parse(&expected.to_string()).as_ref(), Ok(expected), "{text}");
    }

    fn check_wrong(text: &str, expected: &str) {
        let error = FieldLocation::parse(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }

    fn body(parts: &[&str]) -> FieldLocation {
        FieldLocation::Body(parts.iter().map(|&part| part.to_owned()).collect())
    }

    #[test]
    fn every_kind_of_location_is_parsed() {
        check("body.a.0.b", &body(&["a", "0", "b"]));
        check("body.\"a.b\".c", &body(&["a.b", "c"]));
        check(r#"body."a\"\\".c"#, &body(&["a\"\\", "c"]));
        check("body.a-b.ä b", &body(&["a-b", "ä b"]));
        check("body.\"\"", &body(&[""]));
        check("header.X-GitHub-Event", &FieldLocation::Header("x-github-event".into()));
        check("query.a.b", &FieldLocation::Query("a.b".into()));
        check("form.a.b", &FieldLocation::Form("a.b".into()));
        check("form.Message[0]", &FieldLocation::Form("Message[0]".into()));
        check("path", &FieldLocation::Path);
        check("claim.a.b", &FieldLocation::Claim(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn an_element_and_what_is_around_it_are_places_only_where_there_are_elements() {
        for (text, expected) in [
            ("body", body(&[])),
            ("body.a", body(&["a"])),
            ("outer.a.0", FieldLocation::Outer(vec!["a".into(), "0".into()])),
        ] {
            assert_eq!(FieldLocation::parse_in_element(text).as_ref(), Ok(&expected), "{text}");
            assert_eq!(expected.to_string(), text);
        }
        check_wrong("outer.a", "the source needs `each`");
        check_wrong("outer", "`outer.name`");
        for wrong in ["outer", "outer.", "outer..a", "body."] {
            FieldLocation::parse_in_element(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn an_invalid_location_is_rejected_with_a_reason() {
        check_wrong("", "must begin with `body.`");
        check_wrong("bdy.tag", "did you mean `body`?");
        check_wrong("headers.x", "did you mean `header`?");
        check_wrong("$.tag", "must begin with");
        check_wrong("body", "`body.name`");
        check_wrong("header", "`header.name`");
        check_wrong("header.", "`header.name`");
        check_wrong("header.a b", "cannot be the name of a header");
        check_wrong("query.", "`query.name`");
        check_wrong("form", "`form.name`");
        check_wrong("forms.x", "did you mean `form`?");
        check_wrong("path.x", "nothing can follow it");
        check_wrong("body.", "is empty");
        check_wrong("body.a..b", "is empty");
        check_wrong("body.a.", "is empty");
        check_wrong("body.a[0]", "is written `.0`");
        check_wrong("body.a\"b\"", "around the whole name");
        check_wrong("body.\"a", "no closing quote");
        check_wrong("body.\"a\\\"", "no closing quote");
        check_wrong("body.\"a\"b", "a dot must follow");
        check_wrong(&format!("body{}", ".a".repeat(65)), "at most 64 names deep");
    }

    proptest::proptest! {
        #![proptest_config(crate::seed::cases(256))]

        #[test]
        fn a_location_is_displayed_as_it_is_parsed(path in proptest::collection::vec("[a\"\\\\.\\[ä0]{0,4}", 1..5)) {
            let place = FieldLocation::Body(path);
            proptest::prop_assert_eq!(FieldLocation::parse(&place.to_string()), Ok(place));
        }

        #[test]
        fn any_text_is_parsed_or_rejected_without_panic(text in "(body|form|header|query|path)?\\PC*") {
            drop(FieldLocation::parse(&text));
        }
    }
}
