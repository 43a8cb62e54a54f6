//! Assumptions about a saved delivery without its headers. A node accepts nothing without a signature, so a saved
//! delivery without one has lost its headers; missing headers are assumed, not treated as absent.

use crate::decide::delivery::{Delivery, HeaderLookup};
use crate::decide::field::{ExtractedFields, FieldLocation, FieldValue};
use crate::decide::source::Source;
use crate::decide::{envelope, github_kind};

/// A delivery id that no sender uses.
const NEW_ID: &str = "an-id-that-explain-made-up";

#[derive(Default)]
pub(super) struct AssumedHeaders {
    /// The assumed values of missing headers.
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// A sentence for each assumption.
    pub(super) notes: Vec<String>,
}

/// The headers that the sender of this source would have sent. Fields are extracted without verification.
pub(super) fn assume_missing_headers(
    source: &Source,
    delivery: &Delivery<'_>,
    find: impl Fn(&Delivery<'_>) -> Option<ExtractedFields>,
) -> AssumedHeaders {
    let mut all = AssumedHeaders::default();
    if !lacks_headers(source, delivery) {
        return all;
    }
    let lacks = |name: &str| delivery.header(name) == HeaderLookup::Missing;
    let mut take = |name: &str, value: &str, note: String| {
        if lacks(name) {
            all.headers.push((name.to_owned(), value.as_bytes().to_vec()));
            all.notes.push(format!("no {name} was saved: {note}"));
        }
    };
    let media_type = source.verify.media_type(delivery.body);
    take("content-type", media_type, format!("assumed {media_type}"));
    if let Some(kind) = &source.kind {
        let named = kind.of_body(delivery.body).unwrap_or_else(|| kind.first());
        take(&kind.header, named, format!("assumed {named:?}"));
    }
    let kind = source.fields.kind_use().and_then(|_| github_kind::of_body(&envelope::inside(delivery.body).ok()?));
    if let Some(kind) = kind {
        take(github_kind::HEADER, &kind, format!("assumed {kind:?}, because the body has its shape"));
    }
    if let Some(FieldLocation::Header(name)) = source.delivery.as_ref().map(|id| &id.at) {
        take(name, NEW_ID, "assumed a new id".into());
    }
    if let Some((name, caller, value)) = caller(source, delivery, find) {
        take(name, &value, format!("assumed that of {caller:?}, which the body names"));
    }
    for field in source.fields.iter() {
        let FieldLocation::Header(name) = &field.at else { continue };
        if lacks(name) && !all.headers.iter().any(|(taken, _)| taken == name) {
            all.notes.push(format!(
                "no {name} was saved, so the field {} is missing; add it with --header '{name}: …'",
                field.name
            ));
        }
    }
    all
}

/// The caller that must have sent it, if `require` accepts only the caller that the body names: the header, the caller,
/// and the header's value.
fn caller<'s>(
    source: &'s Source,
    delivery: &Delivery<'_>,
    find: impl Fn(&Delivery<'_>) -> Option<ExtractedFields>,
) -> Option<(&'s str, String, String)> {
    let (Some(callers), Some(require)) = (source.verify.callers(), &source.require) else { return None };
    let FieldLocation::Header(name) = &callers.who.at else { return None };
    let read = |value: Option<&str>| {
        let said = value.map(|value| (name.as_str(), value.as_bytes()));
        let headers: Vec<_> = delivery.headers.iter().copied().chain(said).collect();
        find(&Delivery { headers: &headers, ..*delivery })
    };
    let found = read(None)?;
    let named = source.fields.iter().filter_map(|field| match found.value(source.fields.ix(&field.name)?)? {
        FieldValue::Text(text) => Some(text.to_string()),
        FieldValue::Number(_) | FieldValue::Bool(_) => None,
    });
    let said = named.map(|caller| {
        let value = format!("{}{caller}", callers.who.after.as_deref().unwrap_or_default());
        (&**name, caller, value)
    });
    let mut said = said.filter(|(.., value)| read(Some(value)).is_some_and(|found| require.matches(&found)));
    said.next()
}

/// Whether the headers were not saved: there is no signature, or the source needs none and there is only a body.
fn lacks_headers(source: &Source, delivery: &Delivery<'_>) -> bool {
    let signatures = source.verify.signature_headers();
    match &signatures[..] {
        [] => delivery.headers.iter().all(|(name, _)| *name == "content-type"),
        some => some.iter().all(|name| delivery.header(name) == HeaderLookup::Missing),
    }
}
