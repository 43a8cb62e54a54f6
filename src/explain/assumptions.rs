//! What a delivery would have come with, where its head was not saved: a node believes none without its signature, so
//! one that has no signature has lost more than that. What is unknown is not answered as if nobody had sent it.

use crate::decide::delivery::{Delivery, HeaderLookup};
use crate::decide::envelope;
use crate::decide::field::{ExtractedFields, FieldLocation, FieldValue};
use crate::decide::github_kind;
use crate::decide::source::Source;
use crate::decide::verify::VerificationScheme;

/// An id that nobody sends.
const NEW_ID: &str = "an-id-that-explain-made-up";

/// What is taken for granted.
#[derive(Default)]
pub(super) struct AssumedHeaders {
    /// In place of those that are not there.
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// Each of them, in a sentence.
    pub(super) notes: Vec<String>,
}

/// What this source's sender would have sent beside what is here. Fields are found by whoever may take a delivery on
/// trust.
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
            all.notes.push(format!("there is no {name} here: {note}"));
        }
    };
    take("content-type", "application/json", "taken as application/json".into());
    if let Some(kind) = &source.kind {
        take(&kind.header, &kind.is, format!("taken as {:?}", kind.is));
    }
    let kind = source.fields.kind_use().and_then(|_| github_kind::of_body(&envelope::inside(delivery.body).ok()?));
    if let Some(kind) = kind {
        take(github_kind::HEADER, &kind, format!("taken as {kind:?}, whose shape the body has"));
    }
    if let Some(FieldLocation::Header(name)) = source.delivery.as_ref().map(|id| &id.at) {
        take(name, NEW_ID, "taken as an id that never came before".into());
    }
    if let Some((name, caller, value)) = caller(source, delivery, find) {
        take(name, &value, format!("taken as that of {caller:?}, whom the body names"));
    }
    for field in source.fields.iter() {
        let FieldLocation::Header(name) = &field.at else { continue };
        if lacks(name) && !all.headers.iter().any(|(taken, _)| taken == name) {
            all.notes.push(format!(
                "there is no {name} here, so the field {} is missing; --header '{name}: …' gives it",
                field.name
            ));
        }
    }
    all
}

/// Who must have sent it, where a source has many senders and `require` lets only one of those the body names through:
/// the header that says so, the caller, and what the header says.
fn caller<'s>(
    source: &'s Source,
    delivery: &Delivery<'_>,
    find: impl Fn(&Delivery<'_>) -> Option<ExtractedFields>,
) -> Option<(&'s str, String, String)> {
    let (VerificationScheme::Callers(callers), Some(require)) = (&source.verify, &source.require) else { return None };
    let FieldLocation::Header(name) = &callers.who.at else { return None };
    let read = |value: Option<&str>| {
        let said = value.map(|value| (name.clone(), value.as_bytes().to_vec()));
        let headers: Vec<_> = delivery.headers.iter().cloned().chain(said).collect();
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

/// Without a signature, or where none is asked for, with nothing but a body.
fn lacks_headers(source: &Source, delivery: &Delivery<'_>) -> bool {
    let signatures = source.verify.signature_headers();
    match signatures.as_slice() {
        [] => delivery.headers.iter().all(|(name, _)| name == "content-type"),
        some => some.iter().all(|name| delivery.header(name) == HeaderLookup::Missing),
    }
}
