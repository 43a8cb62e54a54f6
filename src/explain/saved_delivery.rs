//! Parses saved deliveries: JSON lines with headers and body, a raw HTTP request, or a bare body.

use crate::decide::claim::{Payload, is_transient_header};
use crate::decide::event::Event;
use crate::decide::field::{Field, FieldLocation, FieldValue};
use crate::decide::limits;
use crate::decide::source::Source;
use crate::decide::verify::content_type;
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::io;
use std::io::Read as _;

/// Maximum bytes of a file: twice the body budget of a node, to allow for escapes.
const FILE_BYTES_MAX: u64 = 2 * limits::BODIES_IN_FLIGHT_BYTES as u64;

pub(crate) struct SavedDelivery {
    /// Its name: the file, and its position in it.
    pub from: String,
    /// The method of a request that was saved whole, with its request line.
    pub method: Option<String>,
    /// The path it was sent to, if known.
    pub path: Option<String>,
    /// The query string.
    pub query: String,
    /// Names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The bytes.
    pub body: Bytes,
    /// Its source, if known.
    pub source: Option<String>,
    /// What was not in the file and is assumed.
    pub notes: Vec<String>,
}

impl SavedDelivery {
    /// Replaces headers of the same name.
    pub(crate) fn replace(&mut self, headers: &[(String, Vec<u8>)]) {
        self.headers.retain(|(name, _)| !headers.iter().any(|(given, _)| given == name));
        self.headers.extend_from_slice(headers);
    }
}

/// Reads the deliveries in a file, or on standard input.
pub(crate) fn read(what: &str) -> Result<Vec<SavedDelivery>, String> {
    let name = if what == "-" { "standard input" } else { what };
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::IsADirectory => format!("{name} is a folder; name the file with the saved delivery"),
        io::ErrorKind::PermissionDenied => format!("{name} cannot be read: not allowed"),
        _ => format!("{name} cannot be read: {error}"),
    };
    let mut bytes = Vec::new();
    match what {
        "-" => io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes),
        path => std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)),
    }
    .map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{name} is larger than any delivery may be"));
    }
    if bytes.trim_ascii().is_empty() {
        return Err(format!("{name} is empty"));
    }
    deliveries(name, bytes)
}

/// `Name: value`, as it is given on the command line.
pub(crate) fn header(text: &str) -> Result<(String, Vec<u8>), String> {
    match text.split_once(':') {
        Some((name, value)) if is_token(name.trim()) => {
            Ok((name.trim().to_ascii_lowercase(), value.trim().as_bytes().to_vec()))
        }
        _ => Err(format!("{text:?} is not a header; write --header 'Name: value'")),
    }
}

/// The deliveries in what was saved under this name.
pub(crate) fn deliveries(name: &str, bytes: Vec<u8>) -> Result<Vec<SavedDelivery>, String> {
    if let Some(one) = line(&bytes) {
        return Ok(vec![SavedDelivery { from: name.to_owned(), ..one }]);
    }
    let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    if lines.len() > 1 && line(lines[0]).is_some() {
        let one = |(i, text): (usize, &&[u8])| {
            let saved = line(text).ok_or_else(|| {
                format!("{name}: delivery {} is not {{\"headers\": {{…}}, \"body\": \"…\"}}, as the first is", i + 1)
            })?;
            Ok(SavedDelivery { from: format!("{name}, delivery {} of {}", i + 1, lines.len()), ..saved })
        };
        return lines.iter().enumerate().map(one).collect();
    }
    if has_head(&bytes) {
        return request(name, &bytes).map(|one| vec![one]);
    }
    let media_type = content_type::guess(&bytes);
    Ok(vec![SavedDelivery {
        from: name.to_owned(),
        method: None,
        path: None,
        query: String::new(),
        headers: vec![("content-type".into(), media_type.into())],
        body: bytes.into(),
        source: None,
        notes: vec![format!("a bare body without headers; assumed {media_type}; add headers with --header")],
    }])
}

/// `{"headers": {…}, "body": "…"}`, and if it is known `"path": "…"`.
fn line(text: &[u8]) -> Option<SavedDelivery> {
    let Value::Object(mut all) = serde_json::from_slice(text).ok()? else { return None };
    let (Value::Object(headers), Value::String(body)) = (all.remove("headers")?, all.remove("body")?) else {
        return None;
    };
    let target = all.remove("path");
    if !all.is_empty() {
        return None;
    }
    let header = |(name, value): (String, Value)| match value {
        Value::String(value) => Some((name.to_ascii_lowercase(), value.into_bytes())),
        _ => None,
    };
    let headers = headers.into_iter().map(header).collect::<Option<Vec<_>>>()?;
    let (path, query) = target.as_ref().and_then(Value::as_str).map_or((None, String::new()), |target| {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        (Some(path.to_owned()), query.to_owned())
    });
    Some(SavedDelivery {
        from: String::new(),
        method: None,
        path,
        query,
        headers,
        body: body.into(),
        source: None,
        notes: Vec::new(),
    })
}

fn is_token(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

/// Whether it begins like a request or a header. GitHub's page shows headers without a request line.
fn has_head(bytes: &[u8]) -> bool {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(first) = std::str::from_utf8(first.trim_ascii_end()) else { return false };
    let named =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == ' ');
    request_line(first).is_some() || first.split_once(": ").is_some_and(|(name, _)| named(name))
}

/// The method of `POST /path?query HTTP/1.1`, and where it is sent to.
fn request_line(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    (is_token(method) && version.starts_with("HTTP/") && words.next().is_none()).then_some((method, target))
}

/// Whether this is a request of a method that has no body, such as the handshakes of some senders.
fn has_no_body(bytes: &[u8]) -> bool {
    ["GET ", "HEAD ", "OPTIONS "].iter().any(|method| bytes.starts_with(method.as_bytes()))
}

/// A request as it went over the wire: head, blank line, body.
fn request(name: &str, bytes: &[u8]) -> Result<SavedDelivery, String> {
    let (head, body) = split(bytes)
        .or_else(|| has_no_body(bytes).then_some((bytes, &[][..])))
        .ok_or_else(|| format!("{name} has request headers, but no empty line and body after them"))?;
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines().peekable();
    let mut saved = SavedDelivery {
        from: name.to_owned(),
        method: None,
        path: None,
        query: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
        source: None,
        notes: Vec::new(),
    };
    if let Some((method, target)) = lines.peek().and_then(|line| request_line(line)) {
        saved.method = Some(method.to_owned());
        // A request to a proxy has the whole URL.
        let path =
            target.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..])).unwrap_or(target);
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        (saved.path, saved.query) = (Some(path.to_owned()), query.to_owned());
    }
    saved.headers = lines.filter_map(|line| header(line).ok()).collect();
    saved.body = whole(name, &saved.headers, body)?;
    Ok(saved)
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = |blank: &[u8]| bytes.windows(blank.len()).position(|window| window == blank).map(|at| (at, blank.len()));
    let (at, blank) = [at(b"\r\n\r\n"), at(b"\n\n")].into_iter().flatten().min()?;
    Some((&bytes[..at], &bytes[at + blank..]))
}

/// The body as announced by the headers. An editor may have added a newline; a capture may be truncated.
fn whole(name: &str, headers: &[(String, Vec<u8>)], body: &[u8]) -> Result<Bytes, String> {
    let said = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.trim_ascii());
    if said("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
        return unchunked(body).ok_or_else(|| format!("{name}: the chunks of the body are truncated"));
    }
    let length = said("content-length").and_then(|length| std::str::from_utf8(length).ok()?.parse::<usize>().ok());
    match length {
        Some(length) if length > body.len() => Err(format!(
            "{name}: the body is truncated: content-length is {length}, but there are {} bytes",
            body.len()
        )),
        Some(length) => Ok(Bytes::copy_from_slice(&body[..length])),
        None => Ok(Bytes::copy_from_slice(body)),
    }
}

fn unchunked(mut rest: &[u8]) -> Option<Bytes> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = rest[..line].split(|byte| *byte == b';').next()?.trim_ascii();
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        let chunk = rest.get(line + 2..)?;
        if size == 0 {
            return Some(body.into());
        }
        body.extend_from_slice(chunk.get(..size)?);
        rest = chunk.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

/// Rebuilds a delivery from an event. Its signature was checked on arrival; its id and kind are known.
pub(super) fn delivery(source: &Source, event: &Event, payload: Payload) -> SavedDelivery {
    // Headers that are only passed on do not affect the event and may be secret.
    let kept = payload.headers.into_iter().filter(|(name, _)| !is_transient_header(name));
    let mut headers: Vec<_> = kept.map(|(name, value)| (name, value.into_bytes())).collect();
    let mut add = |name: &str, value: &str| {
        if !headers.iter().any(|(known, _)| known == name) {
            headers.push((name.to_owned(), value.as_bytes().to_vec()));
        }
    };
    if let (Some(id), Some(FieldLocation::Header(name))) =
        (&event.delivery_id, source.delivery.as_ref().map(|id| &id.at))
    {
        add(name, id);
    }
    if let Some(kind) = &source.kind {
        add(&kind.header, kind.of_body(&payload.body).unwrap_or_else(|| kind.first()));
    }
    let query: Vec<_> = source.fields.iter().filter_map(|field| in_query(field, event)).collect();
    SavedDelivery {
        from: format!("event {}", event.id),
        method: None,
        path: Some(source.path.to_string()),
        query: query.join("&"),
        headers,
        body: match source.fields.each() {
            Some(each) => around_element(source, each, event, &payload.body),
            None => payload.body,
        },
        source: Some(source.name.to_string()),
        notes: vec!["rebuilt from what is kept of the event; its signature was checked when it arrived".into()],
    }
}

/// A document with this one element, and what is known of the values around it.
fn around_element(source: &Source, each: &[String], event: &Event, element: &[u8]) -> Bytes {
    let mut document = RebuiltDocument::Text(String::new());
    for field in source.fields.iter() {
        let (FieldLocation::Outer(path), Some(value)) = (&field.at, event.fields.get(&field.name)) else { continue };
        let after = field.after.as_deref().unwrap_or_default();
        let text = match value {
            FieldValue::Text(text) => serde_json::Value::from(format!("{after}{text}")).to_string(),
            FieldValue::Number(raw) => raw.to_string(),
            FieldValue::Bool(flag) => flag.to_string(),
        };
        document.set(path, text);
    }
    document.set(each, format!("[{}]", String::from_utf8_lossy(element)));
    document.to_string().into()
}

/// A JSON document that is put together again; a position in an array becomes a member, which the same paths find.
enum RebuiltDocument {
    Text(String),
    Members(BTreeMap<String, RebuiltDocument>),
}

impl RebuiltDocument {
    fn set(&mut self, path: &[String], text: String) {
        let [name, rest @ ..] = path else {
            *self = Self::Text(text);
            return;
        };
        if let Self::Text(_) = self {
            *self = Self::Members(BTreeMap::new());
        }
        if let Self::Members(members) = self {
            members.entry(name.clone()).or_insert_with(|| Self::Text(String::new())).set(rest, text);
        }
    }
}

impl fmt::Display for RebuiltDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = match self {
            Self::Text(text) => return f.write_str(text),
            Self::Members(members) => members,
        };
        for (i, (name, value)) in members.iter().enumerate() {
            f.write_str(if i == 0 { "{" } else { "," })?;
            write!(f, "{}:{value}", serde_json::Value::from(name.as_str()))?;
        }
        f.write_str("}")
    }
}

/// A field from the query, as it was sent.
fn in_query(field: &Field, event: &Event) -> Option<String> {
    let FieldLocation::Query(name) = &field.at else { return None };
    let value = match event.fields.get(&field.name)? {
        FieldValue::Text(text) | FieldValue::Number(text) => text.to_string(),
        FieldValue::Bool(flag) => flag.to_string(),
    };
    let after = field.after.as_deref().unwrap_or_default();
    Some(format!("{}={}", escaped(name), escaped(&format!("{after}{value}"))))
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &[u8], path: Option<&str>, headers: &[(&str, &str)], body: &[u8]) {
        let all = deliveries("f", file.to_vec()).unwrap();
        let [one] = all.as_slice() else { panic!("{} deliveries", all.len()) };
        assert_eq!(one.path.as_deref(), path);
        let wanted: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
        assert_eq!(one.headers, wanted);
        assert_eq!(&one.body[..], body);
    }

    const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

    #[test]
    fn a_bare_body_stays_as_it_is_byte_by_byte() {
        check(b"{\"a\": 1}\n", None, JSON, b"{\"a\": 1}\n");
        check(b"\x00\xff\x00", None, JSON, b"\x00\xff\x00");
        check(b"{\"headers\": 1, \"body\": \"x\"}", None, JSON, b"{\"headers\": 1, \"body\": \"x\"}");
    }

    #[test]
    fn a_line_has_headers_and_the_exact_body() {
        let file = br#"{"headers": {"X-A": "1"}, "body": "{\"a\": 1}", "path": "/p?q=1"}"#;
        check(file, Some("/p"), &[("x-a", "1")], b"{\"a\": 1}");
    }

    #[test]
    fn a_request_is_read_with_either_kind_of_newline() {
        check(b"POST /p?q=1 HTTP/1.1\r\nX-A: 1\r\n\r\n{}", Some("/p"), &[("x-a", "1")], b"{}");
        check(b"POST http://h/p HTTP/1.1\nX-A: 1\n\n{}", Some("/p"), &[("x-a", "1")], b"{}");
        check(b"Request URL: https://h/p\nX-A: 1\n\n{\"a\":\n\n1}", None, &[("x-a", "1")], b"{\"a\":\n\n1}");
    }

    #[test]
    fn the_method_is_that_of_the_request_line() {
        for (text, method) in [
            ("POST /p HTTP/1.1\nA: b\n\n{}", Some("POST")),
            ("GET /p?challenge=1 HTTP/1.1\r\nHost: h\r\n\r\n", Some("GET")),
            ("HEAD /p HTTP/1.1\nHost: h\n", Some("HEAD")),
            ("OPTIONS /p HTTP/1.1", Some("OPTIONS")),
            ("X-A: 1\n\n{}", None),
            ("{}", None),
        ] {
            let all = deliveries("f", text.into()).unwrap();
            assert_eq!(all[0].method.as_deref(), method, "{text}");
        }
    }

    #[test]
    fn the_length_in_the_head_counts() {
        check(b"POST / HTTP/1.1\nContent-Length: 2\n\n{}\n", Some("/"), &[("content-length", "2")], b"{}");
        let short = deliveries("f", b"POST / HTTP/1.1\nContent-Length: 9\n\n{}".to_vec()).err().unwrap();
        assert_eq!(short, "f: the body is truncated: content-length is 9, but there are 2 bytes");
        let chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n";
        check(chunked, Some("/"), &[("transfer-encoding", "chunked")], b"{}");
        for cut in [&chunked[..50], &chunked[..60], &chunked[..63]] {
            deliveries("f", cut.to_vec()).err().unwrap();
        }
    }

    #[test]
    fn what_cannot_be_a_delivery_is_told() {
        deliveries("f", b"POST / HTTP/1.1\nA: b".to_vec()).err().unwrap();
        let mixed = deliveries("f", b"{\"headers\":{},\"body\":\"\"}\n{\"x\":1}\n".to_vec()).err().unwrap();
        assert!(mixed.starts_with("f: delivery 2 is not"), "{mixed}");
        for bad in ["", "x", ": y", "a b: c"] {
            header(bad).unwrap_err();
        }
    }
}
