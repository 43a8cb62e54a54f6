//! The delivery that made an event, put together again from what is kept of it.

use super::saved_delivery::SavedDelivery;
use crate::decide::claim::{Payload, is_transient_header};
use crate::decide::event::Event;
use crate::decide::field::{Field, FieldLocation, FieldValue};
use crate::decide::source::Source;
use std::fmt::Write as _;

/// What is kept has no signature, no id and no kind: the first was checked when it arrived, the others are known.
pub(super) fn delivery(source: &Source, event: &Event, payload: Payload) -> SavedDelivery {
    // What is only passed on says nothing about the event, and is nobody's to see.
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
        add(&kind.header, &kind.is);
    }
    let query: Vec<_> = source.fields.iter().filter_map(|field| in_query(field, event)).collect();
    SavedDelivery {
        from: format!("event {}", event.id),
        path: Some(source.path.to_string()),
        query: query.join("&"),
        headers,
        body: payload.body,
        source: Some(source.name.to_string()),
        notes: vec!["put together from what is kept of the event; its signature was checked when it arrived".into()],
    }
}

/// A field that came in the query, as it stood there.
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
