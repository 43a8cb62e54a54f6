//! `once` as it was resolved: as JSON and in words.

use super::fields::{field_names, joined_names};
use super::{Provenance, SourceProvenance};
use crate::decide::claim::MatchedBy;
use crate::decide::source::{ApiStyle, ChangeRule, Identity, Keep, Source};
use crate::decide::time::duration_text;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// What makes two deliveries the same event, and how long that is remembered.
#[derive(Serialize, ToSchema)]
pub(super) struct OnceView {
    #[schema(value_type = Vec<Object>)]
    per: Vec<Value>,
    #[schema(required, value_type = Option<Object>)]
    change: Option<Value>,
    #[schema(required)]
    new_when: Option<String>,
    keep: String,
    keep_body: String,
    keep_failures: bool,
}

/// A source's `once` as resolved.
pub(super) fn view(source: &Source, notes: Option<&SourceProvenance>) -> OnceView {
    let per: Vec<_> = source
        .once
        .per
        .iter()
        .enumerate()
        .map(|(i, identity)| {
            let whence = notes.and_then(|notes| notes.per.get(i)).copied().unwrap_or(Provenance::Written);
            json!({ "identity": identity_json(source, identity), "from": whence_word(whence) })
        })
        .collect();
    let change = source.once.change.as_ref().map(|change| {
        json!({
            "of": field_names(source, &change.of),
            "to": field_names(source, &change.to),
            "order": change.order.map(|ix| &*source.fields.get(ix).name),
            "from": notes.map(|notes| whence_word(notes.change)),
        })
    });
    OnceView {
        per,
        change,
        new_when: source.once.new_when.as_ref().map(|when| when.text().to_owned()),
        keep: match source.once.keep {
            Keep::For(length) => duration_text(length),
            Keep::Forever => "forever".into(),
        },
        keep_body: duration_text(source.once.keep_body),
        keep_failures: source.once.keep_failures,
    }
}

/// The identities of a source: the word stored for each, and a description.
pub(crate) fn identities(source: &Source) -> Vec<(String, String)> {
    let word = |identity: &Identity| match identity {
        Identity::Delivery => "delivery".to_owned(),
        Identity::Message => "message".to_owned(),
        Identity::Body => "body".to_owned(),
        Identity::Signed => MatchedBy::Signed.word().to_owned(),
        Identity::SignedText => MatchedBy::SignedText.word().to_owned(),
        Identity::Named(fields) => field_names(source, fields).join("+"),
    };
    let per = source.once.per.iter().map(|identity| (word(identity), identity_text(source, identity)));
    let change = source.once.change.as_ref().map(|change| ("change".to_owned(), change_text(source, change)));
    per.chain(change).collect()
}

fn identity_json(source: &Source, identity: &Identity) -> Value {
    match identity {
        Identity::Delivery => json!("delivery"),
        Identity::Message => json!("message"),
        Identity::Body => json!("body"),
        Identity::Signed => json!(MatchedBy::Signed.word()),
        Identity::SignedText => json!(MatchedBy::SignedText.word()),
        Identity::Named(fields) => json!(field_names(source, fields)),
    }
}

fn whence_word(whence: Provenance) -> &'static str {
    match whence {
        Provenance::Written => "written",
        Provenance::Preset => "preset",
        Provenance::Default => "default",
        Provenance::Implied | Provenance::ImpliedBySignature => "implied",
    }
}

/// The identities of a source in words, each with its provenance.
pub(super) fn texts(source: &Source, notes: Option<&SourceProvenance>) -> Vec<String> {
    let mut texts = Vec::new();
    for (i, identity) in source.once.per.iter().enumerate() {
        let whence = notes.and_then(|notes| notes.per.get(i)).copied().unwrap_or(Provenance::Written);
        texts.push(format!("{}{}", identity_text(source, identity), whence_text(whence)));
    }
    if let Some(change) = &source.once.change {
        let whence = notes.map_or(Provenance::Written, |notes| notes.change);
        texts.push(format!("{}{}", change_text(source, change), whence_text(whence)));
    }
    if let Some(when) = &source.once.new_when {
        let repeat = if source.delivery.is_some() { "only the same delivery id" } else { "nothing" };
        texts.push(format!("{repeat}, where {}", when.text()));
    }
    if texts.is_empty() {
        texts.push("nothing: each delivery is an event of its own".to_owned());
    }
    texts
}

fn whence_text(whence: Provenance) -> &'static str {
    match whence {
        // The text of an identity implied by the signature already says so.
        Provenance::Written | Provenance::ImpliedBySignature => "",
        Provenance::Preset => "  (preset)",
        Provenance::Default => "  (default)",
        Provenance::Implied => "  (implied by change)",
    }
}

/// How long events and bodies are kept, in words.
pub(super) fn keep_text(source: &Source, notes: Option<&SourceProvenance>) -> String {
    let (keep, body) = notes.map_or((Provenance::Written, Provenance::Written), |notes| (notes.keep, notes.keep_body));
    let keys = match source.once.keep {
        Keep::For(length) => format!("events for {}", duration_text(length)),
        Keep::Forever => "events for ever".to_owned(),
    };
    let bodies = duration_text(source.once.keep_body);
    format!("{keys}{}, bodies for {bodies}{}", whence_text(keep), whence_text(body)).replace("  (", " (")
}

/// How long a captured delivery that is sent again under another id counts as a duplicate.
pub(super) fn replay_protection_text(source: &Source) -> Option<String> {
    if source.api_style != ApiStyle::Webhook || !source.has_unsigned_ids() {
        return None;
    }
    let other = match source.verify.signs() {
        "nonce" => "with another body",
        "fields" => "with anything else that is not signed",
        _ => "under another id",
    };
    if !source.dedups_by_body() {
        return Some("a delivery sent again under another id acts again: equal_bodies is \"new\"".to_owned());
    }
    Some(match (source.verify.tolerance(), source.once.keep) {
        (_, Keep::Forever) => format!("a delivery sent again {other} is a repeat for ever"),
        (Some(age), Keep::For(keep)) if age < keep => {
            let (age, keep) = (duration_text(age), duration_text(keep));
            format!("a delivery sent again {other} is a repeat, and after {age} refused; kept {keep}")
        }
        (_, Keep::For(keep)) => {
            let keep = duration_text(keep);
            format!("a delivery sent again {other} is a repeat for {keep} after its event ended")
        }
    })
}

/// An identity in words; an implied one says why.
fn identity_text(source: &Source, identity: &Identity) -> String {
    let text = written_text(source, identity);
    if source.once.implied.as_ref() == Some(identity) {
        let why = if *identity == Identity::SignedText { "bytes of the body" } else { "delivery id" };
        return format!("{text}, implied: the signature does not cover the {why}");
    }
    text
}

fn written_text(source: &Source, identity: &Identity) -> String {
    match identity {
        Identity::Delivery => match &source.delivery {
            Some(id) if id.signed => format!("the delivery id ({})", id.at),
            Some(id) => format!("the delivery id ({}) with the body's digest, since the id is not signed", id.at),
            None => "the delivery id".to_owned(),
        },
        Identity::Message => "the message: its stream, its number there, and when it was stored".to_owned(),
        Identity::Body if source.fields.each().is_some() => "the element".to_owned(),
        Identity::Body => "the body".to_owned(),
        Identity::Signed => "the signed time and the body".to_owned(),
        Identity::SignedText => match source.verify.signed_places() {
            Some(places) => {
                let all: Vec<_> = places.iter().map(ToString::to_string).collect();
                format!("what is signed: {}", all.join(", "))
            }
            None => "what is signed: the URL, and every name and value".to_owned(),
        },
        Identity::Named(fields) => joined_names(source, fields),
    }
}

/// A change in words.
pub(crate) fn change_text(source: &Source, change: &ChangeRule) -> String {
    let order = match change.order {
        Some(ix) => format!("ordered by {}", source.fields.get(ix).name),
        None => "in the order of arrival".to_owned(),
    };
    format!("a change of {} to {}, {order}", joined_names(source, &change.of), joined_names(source, &change.to))
}
