//! Determines the type of a body from its bytes, and rejects headers that contradict it. Unsigned headers never decide
//! how signed bytes are read.

use crate::decide::delivery::DeliveryRejection;
use crate::decide::delivery::{Delivery, HeaderLookup, HeaderRef};
use crate::decide::form;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::sync::Arc;

pub(super) const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// What is wrong with a body that a sender compressed.
const COMPRESSED: &str =
    "the body is compressed, and compressed bodies are not read: turn compression off at the sender";

/// Charsets in which a JSON text has the same names and brackets.
const CHARSETS: [&str; 7] = ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252"];

/// How the body of a verified delivery is read. The config says so, never a header of the delivery.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum BodyFormat {
    /// As JSON, if anything in it is named.
    #[default]
    Json,
    /// As JSON, also under one of these media types; `*/*` is any.
    JsonAs(Arc<[String]>),
    /// As a form: `a=1&b=2`.
    Form,
}

impl BodyFormat {
    /// The media type under which a genuine sender sends these bytes.
    pub(super) fn media_type(&self, body: &[u8]) -> &str {
        match self {
            Self::Form => FORM,
            Self::JsonAs(types) => types.first().filter(|first| *first != ANY).map_or(JSON, String::as_str),
            Self::Json => type_of(body),
        }
    }
}

/// Stands for any media type.
pub(crate) const ANY: &str = "*/*";

/// The media type under which a genuine sender sends these bytes.
fn type_of(body: &[u8]) -> &'static str {
    if form::is_payload(body) { FORM } else { JSON }
}

/// The media type that a body without headers probably had: only `explain` guesses.
pub(crate) fn guess(body: &[u8]) -> &'static str {
    if !begins_as_json(body) && body.contains(&b'=') { FORM } else { JSON }
}

/// The JSON that GitHub sent: the `payload` of a form, otherwise the body itself.
pub(super) fn github<'d>(delivery: &'d Delivery<'d>) -> Result<Cow<'d, [u8]>, DeliveryRejection> {
    json_or_form(delivery).map_err(|refusal| match refusal {
        DeliveryRejection::ContentType => DeliveryRejection::NeitherJsonNorForm,
        other => other,
    })
}

fn json_or_form<'d>(delivery: &'d Delivery<'d>) -> Result<Cow<'d, [u8]>, DeliveryRejection> {
    let json = form::payload(delivery.body).map_err(|why| DeliveryRejection::Malformed(why.into()))?;
    match (media_type(delivery)?.as_deref(), &json) {
        (Some(FORM), Some(_)) | (Some(JSON), None) => {}
        (Some(FORM), None) if !begins_as_json(delivery.body) => {
            return Err(DeliveryRejection::Malformed("the form does not begin with `payload=`".into()));
        }
        _ => return Err(DeliveryRejection::ContentType),
    }
    if json.is_some() || begins_as_json(delivery.body) {
        plain(delivery)?;
    }
    Ok(json.unwrap_or(Cow::Borrowed(delivery.body)))
}

/// Rejects what its headers call something else than a form.
pub(super) fn form(delivery: &Delivery<'_>) -> Result<(), DeliveryRejection> {
    match media_type(delivery) {
        Ok(None) => {}
        Ok(Some(media_type)) if media_type == FORM => {}
        Ok(_) | Err(_) => return Err(DeliveryRejection::NoForm),
    }
    plain(delivery).map_err(|refusal| match refusal {
        DeliveryRejection::ContentType => DeliveryRejection::NoForm,
        other => other,
    })
}

/// The body as JSON, if its media type is one of these.
pub(super) fn json_as<'d>(
    delivery: &'d Delivery<'d>,
    types: &[String],
) -> Result<Option<Cow<'d, [u8]>>, DeliveryRejection> {
    let here = media_type(delivery)?.unwrap_or_default();
    if !types.iter().any(|known| *known == ANY || *known == here) {
        return Ok(None);
    }
    plain(delivery)?;
    Ok(Some(Cow::Borrowed(delivery.body)))
}

/// Rejects signed JSON under headers that call it something else. We would read it as JSON anyway; a receiver that the
/// headers are passed on to might not.
pub(super) fn agrees(delivery: &Delivery<'_>) -> Result<(), DeliveryRejection> {
    if !begins_as_json(delivery.body) {
        return Ok(());
    }
    any(delivery)?;
    // Text of another type may begin like JSON, such as CSV or one JSON text per line: as a whole it is not one JSON
    // text.
    let fits = media_type(delivery)?.is_none_or(|media_type| {
        !media_type.contains('/')
            || media_type.ends_with("+json")
            || matches!(&*media_type, JSON | "text/json" | "text/plain" | "application/octet-stream")
    });
    if !fits && serde_json::from_slice::<IgnoredAny>(delivery.body).is_ok() {
        return Err(DeliveryRejection::ContentType);
    }
    plain(delivery)
}

/// Rejects what cannot be JSON: forms, pages, images. A missing content type or `text/plain` is accepted.
pub(super) fn any(delivery: &Delivery<'_>) -> Result<(), DeliveryRejection> {
    let Some(media_type) = media_type(delivery)? else { return Ok(()) };
    let (family, kind) = media_type.split_once('/').unwrap_or((&media_type, ""));
    let other = matches!(family, "multipart" | "image" | "audio" | "video")
        || matches!(kind, "x-www-form-urlencoded" | "html" | "xml")
        || kind.ends_with("+xml");
    if other { Err(DeliveryRejection::ContentType) } else { Ok(()) }
}

/// Whether this is a JSON object, list or text, judging by its first byte. No form, page or archive begins like this.
fn begins_as_json(body: &[u8]) -> bool {
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    matches!(text.first(), Some(b'{' | b'[' | b'"'))
}

/// Rejects a charset in which these bytes would be another text, and an encoding that they do not have.
fn plain(delivery: &Delivery<'_>) -> Result<(), DeliveryRejection> {
    if let HeaderLookup::One(value) = delivery.header("content-type") {
        let text = in_lower_case(value);
        let named = |parameter: &str| parameter.trim().trim_end_matches('*').trim_end() == "charset";
        let parameters = text.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
        let mut charsets = parameters.filter(|(name, _)| named(name));
        if !charsets.all(|(_, charset)| CHARSETS.contains(&charset.trim().trim_matches('"'))) {
            return Err(DeliveryRejection::ContentType);
        }
    }
    if !is_coded(delivery) {
        return Ok(());
    }
    let what = match std::str::from_utf8(delivery.body) {
        Ok(_) => "Content-Encoding says that the body is compressed, and it is not",
        Err(_) => COMPRESSED,
    };
    Err(DeliveryRejection::Malformed(what.into()))
}

/// Rejects a compressed body where JSON is read.
pub(super) fn not_compressed(delivery: &Delivery<'_>) -> Result<(), DeliveryRejection> {
    let is_compressed =
        !begins_as_json(delivery.body) && is_coded(delivery) && std::str::from_utf8(delivery.body).is_err();
    if is_compressed { Err(DeliveryRejection::Malformed(COMPRESSED.into())) } else { Ok(()) }
}

fn is_coded(delivery: &Delivery<'_>) -> bool {
    let coded = |(name, value): &HeaderRef<'_>| {
        *name == "content-encoding" && !matches!(&*value.trim_ascii().to_ascii_lowercase(), b"" | b"identity")
    };
    delivery.headers.iter().any(coded)
}

/// `application/json` of `Application/JSON; charset=utf-8`. Two content types are rejected.
fn media_type<'d>(delivery: &Delivery<'d>) -> Result<Option<Cow<'d, str>>, DeliveryRejection> {
    match delivery.header("content-type") {
        HeaderLookup::Missing => Ok(None),
        HeaderLookup::One(value) => {
            let essence = value.split(|&byte| byte == b';').next().unwrap_or_default();
            Ok(Some(in_lower_case(essence.trim_ascii())))
        }
        HeaderLookup::Several => Err(DeliveryRejection::ContentType),
    }
}

/// This text in lower case; most senders write it so.
fn in_lower_case(text: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(text) {
        text if text.bytes().any(|byte| byte.is_ascii_uppercase()) => Cow::Owned(text.to_ascii_lowercase()),
        text => text,
    }
}
