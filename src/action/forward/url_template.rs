//! URLs with an event's fields in them. A field may be one label of the host, or part of a path segment or of a query
//! value; never the scheme, port or user, or more than one of these.

use crate::action::plan::{FieldTemplate, FieldTemplateError, FieldTemplatePart};
use crate::decide::field::StoredFields;
use reqwest::Url;
use std::fmt::Write as _;
use std::sync::Arc;

/// Maximum length of a host label (RFC 1035).
const LABEL_MAX: usize = 63;

/// The part of a URL that follows a prefix of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UrlComponent {
    /// A label of the host.
    Host,
    /// The path.
    Path,
    /// A value of the query.
    Query,
    /// The scheme, a user, a port, an address in brackets, a name in the query, or a fragment.
    Other,
}

impl UrlComponent {
    /// The part that follows this prefix.
    pub(crate) fn after(beginning: &str) -> Self {
        let Some((_, rest)) = beginning.split_once("://") else { return Self::Other };
        if rest.contains('#') {
            return Self::Other;
        }
        if let Some((_, query)) = rest.split_once('?') {
            let pair = query.rsplit('&').next().unwrap_or(query);
            return if pair.contains('=') { Self::Query } else { Self::Other };
        }
        if rest.contains('/') {
            return Self::Path;
        }
        let whole_label = rest.is_empty() || rest.ends_with('.');
        if whole_label && !rest.contains(['@', ':', '[']) { Self::Host } else { Self::Other }
    }
}

/// Fills the template with these fields. Does not check the address.
pub(super) fn fill(template: &FieldTemplate, fields: &StoredFields) -> Result<Url, FieldTemplateError> {
    let mut url = String::new();
    for (i, piece) in template.0.iter().enumerate() {
        let text = piece.text(fields)?;
        let FieldTemplatePart::Field(name) = piece else {
            url += &text;
            continue;
        };
        let next = match template.0.get(i + 1) {
            Some(FieldTemplatePart::Text(text)) => text.chars().next(),
            Some(FieldTemplatePart::Field(_)) => Some('{'),
            None => None,
        };
        let unfit = || FieldTemplateError::NotInUrl(name.clone());
        match UrlComponent::after(&url) {
            UrlComponent::Host if ends_label(next) && is_label(&text) => url += &text.to_ascii_lowercase(),
            UrlComponent::Path | UrlComponent::Query if !text.is_empty() => encode(&text, &mut url),
            _ => return Err(unfit()),
        }
    }
    // `.` and `..` would leave the path that the config names.
    let path = url.split_once("://").map_or("", |(_, rest)| rest.split(['?', '#']).next().unwrap_or(rest));
    let named = || template.0.iter().find_map(|piece| piece.field().cloned()).unwrap_or_else(|| Arc::from(""));
    if path.split(['/', '\\']).skip(1).any(is_dots) {
        return Err(FieldTemplateError::NotInUrl(named()));
    }
    Url::parse(&url).map_err(|_| FieldTemplateError::NotInUrl(named()))
}

/// Whether a field chooses the host or a part of it.
pub(crate) fn names_host(template: &FieldTemplate) -> bool {
    let mut beginning = String::new();
    template.0.iter().any(|piece| {
        let names = piece.field().is_some() && UrlComponent::after(&beginning) == UrlComponent::Host;
        beginning += &piece.to_string();
        names
    })
}

/// Whether this may follow a label.
pub(crate) fn ends_label(next: Option<char>) -> bool {
    matches!(next, None | Some('.' | '/' | ':' | '?' | '#'))
}

fn is_label(text: &str) -> bool {
    let letters = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    letters && (1..=LABEL_MAX).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether a segment is `.` or `..`, however it is escaped.
fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

fn encode(text: &str, url: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            url.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> FieldTemplate {
        let mut pieces = Vec::new();
        for (i, part) in text.split(['{', '}']).enumerate().filter(|(_, part)| !part.is_empty()) {
            pieces.push(if i % 2 == 1 {
                FieldTemplatePart::Field(part.into())
            } else {
                FieldTemplatePart::Text(part.into())
            });
        }
        FieldTemplate(pieces)
    }

    fn check(url: &str, value: &str, expected: Option<&str>) {
        let fields = StoredFields::from_json(&serde_json::json!({ "f": value, "g": "." }).to_string()).unwrap();
        let filled = fill(&template(url), &fields).ok().map(String::from);
        assert_eq!(filled.as_deref(), expected, "{url} with {value:?}");
    }

    #[test]
    fn a_field_is_one_label_one_piece_of_a_segment_or_of_a_value() {
        check("https://{f}.example.com/in", "Tenant-7", Some("https://tenant-7.example.com/in"));
        check("https://a.{f}/in", "example", Some("https://a.example/in"));
        check("http://{f}:8080/", "host", Some("http://host:8080/"));
        check("http://a/hooks/{f}", "octo/cat", Some("http://a/hooks/octo%2Fcat"));
        check("http://a/v{f}/x", "1?x#y&z=%2e é", Some("http://a/v1%3Fx%23y%26z%3D%252e%20%C3%A9/x"));
        check("http://a/?repo={f}&b=1", "a&b=2#c", Some("http://a/?repo=a%26b%3D2%23c&b=1"));
        check("http://a/in?x={f}", "..", Some("http://a/in?x=.."));
        check("http://a/{f}.json", "..", Some("http://a/...json"));
    }

    #[test]
    fn a_field_never_leads_anywhere_else() {
        for bad in ["", "a.b", "a/b", "a:80", "a@b", "-a", "a-", "é", "a%2eb", "[::1]", "a b", &"a".repeat(64), "a\0"]
        {
            check("https://{f}.example.com/in", bad, None);
        }
        for (url, value) in [
            ("http://a/{f}", ""),
            ("http://a/{f}", "."),
            ("http://a/x/{f}/y", ".."),
            ("http://a/{f}{g}", "."),
            ("http://a/%2e{f}", "."),
            ("http://a/%2E{f}", "%2e"),
            ("{f}://a/", "http"),
            ("http://a:{f}/", "80"),
            ("http://{f}@a/", "u"),
            ("http://u:{f}@a/", "p"),
            ("http://[{f}]/", "1"),
            ("http://a{f}/", "b"),
            ("http://{f}a/", "b"),
            ("http://{f}{g}/", "b"),
            ("http://a/?{f}=1", "x"),
            ("http://a/#{f}", "x"),
        ] {
            if (url, value) == ("http://a/%2E{f}", "%2e") {
                check(url, value, Some("http://a/%2E%252e"));
            } else {
                check(url, value, None);
            }
        }
        check("http://a/{missing}", "x", None);
    }

    #[test]
    fn labels_that_together_are_an_address_are_seen_as_one() {
        check("http://{f}.0.0.1/", "127", Some("http://127.0.0.1/"));
        check("http://{f}/", "2130706433", Some("http://127.0.0.1/"));
        check("http://{f}/", "0x7f000001", Some("http://127.0.0.1/"));
        check("http://{f}.1/", "017700000000", None);
    }
}
