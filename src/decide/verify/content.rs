//! Of which type a body may be, looked at once its signature is right.

use crate::decide::delivery::{Delivery, Header};
use crate::decide::form::{self, Entry};
use crate::decide::refusal::Refusal;
use std::borrow::Cow;

/// The JSON that GitHub sent: the body itself, or what a form carries as `payload`.
pub(super) fn github<'d>(delivery: &'d Delivery<'d>) -> Result<Cow<'d, [u8]>, Refusal> {
    match media_type(delivery)?.as_deref() {
        Some("application/json") => Ok(Cow::Borrowed(delivery.body)),
        Some("application/x-www-form-urlencoded") => match form::entry(delivery.body, "payload") {
            Entry::One(json) => Ok(json),
            Entry::Missing => Err(Refusal::Malformed("the form has no `payload`".into())),
            Entry::Several => Err(Refusal::Malformed("the form has more than one `payload`".into())),
            Entry::Broken => Err(Refusal::Malformed("the form's `payload` is not percent-encoded properly".into())),
        },
        _ => Err(Refusal::ContentType),
    }
}

/// Refuses what cannot be JSON: forms, pages, pictures. Senders that say nothing, or `text/plain`, are heard.
pub(super) fn any(delivery: &Delivery<'_>) -> Result<(), Refusal> {
    let Some(media_type) = media_type(delivery)? else { return Ok(()) };
    let (family, kind) = media_type.split_once('/').unwrap_or((&media_type, ""));
    let other = matches!(family, "multipart" | "image" | "audio" | "video")
        || matches!(kind, "x-www-form-urlencoded" | "html" | "xml")
        || kind.ends_with("+xml");
    if other { Err(Refusal::ContentType) } else { Ok(()) }
}

/// `application/json` of `Application/JSON; charset=utf-8`. Two content types are none that we take.
fn media_type(delivery: &Delivery<'_>) -> Result<Option<String>, Refusal> {
    match delivery.header("content-type") {
        Header::Missing => Ok(None),
        Header::One(value) => {
            let essence = value.split(|&byte| byte == b';').next().unwrap_or_default();
            Ok(Some(String::from_utf8_lossy(essence.trim_ascii()).to_ascii_lowercase()))
        }
        Header::Several => Err(Refusal::ContentType),
    }
}
