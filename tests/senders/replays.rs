//! Replays: what a captured delivery can do under another id, another kind, another time, for each preset.

use super::signed_samples::{ConfiguredPreset, SentDelivery, configured_presets, now};
use hookonce::decide::claim::NewEvent;
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::field::{Field, FieldLocation};
use hookonce::decide::id::Key;
use hookonce::decide::judge::Verdict;
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::verify::BodyFormat;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Whether the second one would be a duplicate of the first by one of its keys.
pub(crate) fn shares_key(first: &NewEvent, second: &NewEvent) -> bool {
    let claimed: Vec<Key> = first.keys.iter().map(|key| key.key).collect();
    second.keys.iter().any(|key| claimed.contains(&key.key))
}

/// Whether each delivery is an event of its own: nothing of it tells a repeat from another change.
fn is_always_new(preset: &ConfiguredPreset) -> bool {
    let new = preset.source.once.per.is_empty() && preset.source.once.change.is_none();
    assert!(!new || ["dropbox", "quay"].contains(&preset.name()), "{} recognises no repeat", preset.name());
    new
}

/// The header with the delivery id, and whether the sender is trusted with it.
fn id_header(preset: &ConfiguredPreset) -> Option<(&str, bool)> {
    match preset.source.delivery.as_ref() {
        Some(id) => match &id.at {
            FieldLocation::Header(name) => Some((name, id.signed)),
            _ => None,
        },
        None => None,
    }
}

/// Another delivery of the same sender, with other bytes.
fn another(preset: &ConfiguredPreset) -> SentDelivery {
    let at = now() + Duration::from_secs(7);
    let made = preset.sample("id-2", at);
    let body = if *preset.source.verify.format() == BodyFormat::Form {
        [&made.body[..], b"&another=true"].concat()
    } else {
        let mut body: Value = serde_json::from_slice(&made.body).expect("a sample is JSON");
        // Where elements are events, it has another element.
        let mut event = &mut body;
        if let Some(path) = preset.source.fields.each() {
            event = path.iter().fold(event, |at, name| &mut at[name.as_str()]);
            event = &mut event[0];
        }
        match event {
            Value::Object(members) => drop(members.insert("another".to_owned(), json!(true))),
            scalar => *scalar = json!("another"),
        }
        body.to_string().into_bytes()
    };
    signed_again(preset, &made, "id-2", body, at)
}

/// The same delivery with this body, signed at this time.
fn signed_again(
    preset: &ConfiguredPreset,
    sent: &SentDelivery,
    id: &str,
    body: Vec<u8>,
    at: Timestamp,
) -> SentDelivery {
    preset.sign(&SentDelivery { body, at, ..sent.clone() }, id)
}

/// Checks this of every preset; it returns what is wrong, in a few words.
fn check_all(mut wrong: impl FnMut(&ConfiguredPreset) -> Option<String>) {
    let wrong: Vec<_> = configured_presets()
        .iter()
        .filter_map(|preset| wrong(preset).map(|what| format!("{}: {what}", preset.name())))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_same_bytes_under_another_id_are_a_duplicate_unless_the_id_is_signed() {
    check_all(|preset| {
        let captured = preset.sample("id-1", now());
        let first = captured.event(&preset.source);
        if is_always_new(preset) {
            return None;
        }
        let again = match id_header(preset) {
            Some((name, true)) if preset.source.verify.signs_body() => {
                let verdict = captured.with_header(name, "id-2").judge(&preset.source);
                let refused = matches!(verdict, Verdict::Refused(DeliveryRejection::BadSignature));
                return (!refused).then(|| format!("another id passes: {verdict:?}"));
            }
            // A sender that knows the token may send anything.
            Some((_, true)) => return None,
            Some((name, false)) => captured.with_header(name, "id-2"),
            None => captured.with_header("x-request-id", "id-2"),
        };
        let again = again.event(&preset.source);
        (!shares_key(&first, &again)).then(|| "the same bytes are a new event".to_owned())
    });
}

#[test]
fn an_id_of_another_delivery_on_other_bytes_is_a_new_event() {
    check_all(|preset| {
        let first = preset.sample("id-1", now()).event(&preset.source);
        let other = another(preset);
        let other = match id_header(preset) {
            Some((name, false)) => other.with_header(name, "id-1"),
            Some((_, true)) | None => other,
        };
        let other = other.event(&preset.source);
        shares_key(&first, &other).then(|| "other bytes are a duplicate".to_owned())
    });
}

#[test]
fn headers_that_are_not_signed_make_no_new_event() {
    check_all(|preset| {
        let verify = &preset.source.verify;
        if !verify.signs_body() && !verify.signs_other_than_bytes() || is_always_new(preset) {
            return None;
        }
        let captured = preset.sample("id-1", now());
        let first = captured.event(&preset.source);
        let proof = verify.proof_headers();
        let kinds = preset.preset.sender().kind_headers.into_iter();
        let kinds = kinds.chain(preset.source.kind.as_ref().map(|kind| kind.header.clone()));
        let there = captured.headers.iter().map(|(name, _)| name.clone());
        let free: BTreeSet<_> = there.chain(kinds).filter(|name| !proof.contains(name)).collect();
        let new = free.iter().filter(|name| match captured.with_header(name, "forged").judge(&preset.source) {
            Verdict::Events(events) => events.iter().any(|event| !shares_key(&first, event)),
            Verdict::Refused(_) | Verdict::Ignored(_) => false,
        });
        let new: Vec<_> = new.map(String::as_str).collect();
        (!new.is_empty()).then(|| format!("a new event by another {}", new.join(", ")))
    });
}

/// Of senders that sign parts of a body: what else says of which kind the delivery is can be anything.
#[test]
fn a_forged_kind_or_other_value_that_is_not_signed_makes_no_new_event() {
    let mut checked = Vec::new();
    check_all(|preset| {
        let source = &preset.source;
        if !source.verify.signs_other_than_bytes() || *source.verify.format() == BodyFormat::Form {
            return None;
        }
        let captured = preset.sample("id-1", now());
        let first = captured.event(source);
        let places = source.fields.iter().flat_map(Field::places);
        let free = places.filter(|place| !source.verify.covers(place)).filter_map(FieldLocation::body_path);
        let mut new = Vec::new();
        for path in free {
            let mut body: Value = serde_json::from_slice(&captured.body).expect("JSON");
            let Some(value) = body.pointer_mut(&format!("/{}", path.join("/"))) else { continue };
            *value = json!("forged");
            checked.push(preset.name());
            let forged = SentDelivery { body: body.to_string().into_bytes(), ..captured.clone() };
            if let Verdict::Events(events) = forged.judge(source)
                && events.iter().any(|event| !shares_key(&first, event))
            {
                new.push(path.join("."));
            }
        }
        (!new.is_empty()).then(|| format!("a new event by another {}", new.join(", ")))
    });
    assert!(["mailgun", "paypal"].iter().all(|name| checked.contains(name)), "{checked:?}");
}

#[test]
fn a_retry_that_is_signed_again_is_a_duplicate() {
    check_all(|preset| {
        if is_always_new(preset) {
            return None;
        }
        let sent = preset.sample("id-1", now());
        let first = sent.event(&preset.source);
        let later = now() + Duration::from_mins(1);
        let again = signed_again(preset, &sent, "id-1", sent.body.clone(), later).event(&preset.source);
        (!shares_key(&first, &again)).then(|| "a retry is a new event".to_owned())
    });
}
