//! Replays: what a captured delivery can do under another id, another kind, another time, for each preset.

use super::signed_samples::{ConfiguredPreset, SentDelivery, configured_presets, now};
use hookonce::decide::claim::NewEvent;
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::field::{Field, FieldLocation};
use hookonce::decide::id::Key;
use hookonce::decide::judge::Verdict;
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::verify::BodyFormat;
use hookonce::internals::config::presets::PRESETS;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

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

/// What came of a row of the matrix for one preset.
enum Row {
    Holds,
    Fails(String),
    /// It says nothing about this preset, and why.
    NotApplicable(&'static str),
}

impl Row {
    fn fails_if(wrong: bool, what: impl Into<String>) -> Self {
        if wrong { Self::Fails(what.into()) } else { Self::Holds }
    }
}

/// What senders sign, in one word each.
const WORDS: [&str; 7] = ["body", "id+body", "time+body", "id+time+body", "token", "none", "nonce"];
const ALWAYS_NEW: &str = "each delivery is new";
const NOTHING_SIGNED: &str = "whoever knows the token or path may send anything";

/// The names in a list; `@token` are all presets of senders that sign that.
fn expand(names: &str) -> BTreeSet<&str> {
    let signing = |what: &'static str| PRESETS.iter().filter(move |preset| preset.signs() == what);
    let one = |name| match WORDS.iter().find(|word| Some(**word) == str::strip_prefix(name, "@")) {
        Some(word) => signing(word).map(|preset| preset.name).collect(),
        None => vec![name],
    };
    names.split_whitespace().flat_map(one).collect()
}

const EVERY_BYTE: &str = "every byte of the body is signed";
const OF_A_FORM: &str = "signed_parts.rs has forms, whose values are joined";
const EVERY_FIELD: &str = "every field is signed";

/// Checks a row for every preset, and that it says nothing only about these, for these reasons.
fn check_all(excepted: &[(&str, &str)], mut row: impl FnMut(&ConfiguredPreset) -> Row) {
    let (mut wrong, mut not_applicable) = (Vec::new(), BTreeMap::<_, BTreeSet<_>>::new());
    for preset in configured_presets() {
        match row(&preset) {
            Row::Holds => {}
            Row::Fails(what) => wrong.push(format!("{}: {what}", preset.name())),
            Row::NotApplicable(why) => {
                not_applicable.entry(why).or_default().insert(preset.name());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut expected: BTreeMap<_, _> = excepted.iter().map(|(why, names)| (*why, expand(names))).collect();
    // The first reason counts.
    for (other, _) in excepted.iter().skip(1) {
        let first = expand(excepted[0].1);
        expected.entry(other).and_modify(|names| names.retain(|name| !first.contains(name)));
    }
    assert_eq!(not_applicable, expected);
}

#[test]
fn the_same_bytes_under_another_id_are_a_duplicate_unless_the_id_is_signed() {
    check_all(
        &[(ALWAYS_NEW, "dropbox quay"), (NOTHING_SIGNED, "cloudevents-binary gitlab hugging-face idempotency-key")],
        |preset| {
            let captured = preset.sample("id-1", now());
            let first = captured.event(&preset.source);
            if is_always_new(preset) {
                return Row::NotApplicable(ALWAYS_NEW);
            }
            let again = match id_header(preset) {
                Some((name, true))
                    if preset.source.verify.signs_body() || preset.source.verify.signs_other_than_bytes() =>
                {
                    let verdict = captured.with_header(name, "id-2").judge(&preset.source);
                    let refused = matches!(verdict, Verdict::Refused(DeliveryRejection::BadSignature));
                    return Row::fails_if(!refused, format!("another id passes: {verdict:?}"));
                }
                Some((_, true)) => return Row::NotApplicable(NOTHING_SIGNED),
                Some((name, false)) => captured.with_header(name, "id-2"),
                None => captured.with_header("x-request-id", "id-2"),
            };
            let again = again.event(&preset.source);
            Row::fails_if(!shares_key(&first, &again), "the same bytes are a new event")
        },
    );
}

#[test]
fn an_id_of_another_delivery_on_other_bytes_is_a_new_event() {
    check_all(&[], |preset| {
        let first = preset.sample("id-1", now()).event(&preset.source);
        let other = another(preset);
        let other = match id_header(preset) {
            Some((name, false)) => other.with_header(name, "id-1"),
            Some((_, true)) | None => other,
        };
        let other = other.event(&preset.source);
        Row::fails_if(shares_key(&first, &other), "other bytes are a duplicate")
    });
}

/// A captured delivery long after it was sent: where its time is signed it is too old, and elsewhere still known.
#[test]
fn a_captured_delivery_at_a_later_time_is_refused_or_a_duplicate() {
    check_all(&[(ALWAYS_NEW, "dropbox quay")], |preset| {
        let source = &preset.source;
        let captured = preset.sample("id-1", now());
        let first = captured.event(source);
        let expires = source.verify.tolerance().is_some() || source.verify.has_claims();
        let later = SentDelivery { at: now() + Duration::from_hours(24 * 365), ..captured };
        if !expires && is_always_new(preset) {
            return Row::NotApplicable(ALWAYS_NEW);
        }
        match later.judge(source) {
            Verdict::Refused(DeliveryRejection::BadSignature) => Row::fails_if(!expires, "refused, with no time in it"),
            Verdict::Events(events) if !expires => {
                Row::fails_if(!events.iter().all(|event| shares_key(&first, event)), "an old delivery is a new event")
            }
            other => Row::Fails(format!("an old delivery is {other:?}")),
        }
    });
}

/// Kinds of events that this sender has, as it names them in a header, or as others do.
fn other_kinds(preset: &ConfiguredPreset) -> Vec<String> {
    let own = preset.source.kind.iter().flat_map(|kind| kind.any_of.iter().map(|kind| kind.is.clone()));
    let known = match preset.name() {
        "github" | "github-package" => "release ping issues push package registry_package workflow_run",
        "gitea" | "forgejo" => "release push create delete package issues",
        "bitbucket" => "repo:push pullrequest:created repo:commit_status_updated",
        "shopify" | "woocommerce" => "orders/create orders/updated products/create order.created order.updated",
        "sentry" => "issue error comment event_alert installation",
        _ => "push release ping created updated deleted",
    };
    let others = known.split(' ').map(str::to_owned);
    let with_blanks = ["Push Hook", "Tag Push Hook", "Merge Request Hook", "Pipeline Hook"].map(str::to_owned);
    own.chain(others).chain(with_blanks).collect()
}

#[test]
fn headers_that_are_not_signed_make_no_new_event() {
    check_all(&[(ALWAYS_NEW, "dropbox quay"), (NOTHING_SIGNED, "@token @none")], |preset| {
        let verify = &preset.source.verify;
        if is_always_new(preset) {
            return Row::NotApplicable(ALWAYS_NEW);
        }
        if !verify.signs_body() && !verify.signs_other_than_bytes() {
            return Row::NotApplicable(NOTHING_SIGNED);
        }
        let captured = preset.sample("id-1", now());
        let first = captured.event(&preset.source);
        let proof = verify.proof_headers();
        let kinds = preset.preset.sender().kind_headers.into_iter();
        let kinds = kinds.chain(preset.source.kind.as_ref().map(|kind| kind.header.clone()));
        let kinds: BTreeSet<_> = kinds.chain(verify.kind_header().map(str::to_owned)).collect();
        let there = captured.headers.iter().map(|(name, _)| name.clone());
        let free: BTreeSet<_> = there.chain(kinds.iter().cloned()).filter(|name| !proof.contains(name)).collect();
        let is_new = |name: &str, value: &str| match captured.with_header(name, value).judge(&preset.source) {
            Verdict::Events(events) => events.iter().any(|event| !shares_key(&first, event)),
            Verdict::Refused(_) | Verdict::Ignored(_) => false,
        };
        let mut new: Vec<_> = free.iter().filter(|name| is_new(name, "forged")).cloned().collect();
        for name in kinds.iter().filter(|name| free.contains(*name)) {
            new.extend(
                other_kinds(preset).iter().filter(|kind| is_new(name, kind)).map(|kind| format!("{name}: {kind}")),
            );
        }
        Row::fails_if(!new.is_empty(), format!("a new event by another {}", new.join(", ")))
    });
}

/// Of senders that sign parts of a body: what else says of which kind the delivery is can be anything.
#[test]
fn a_forged_kind_or_other_value_that_is_not_signed_makes_no_new_event() {
    check_all(
        &[
            (NOTHING_SIGNED, "@token @none"),
            (EVERY_BYTE, "@body @id+body @time+body @id+time+body"),
            (OF_A_FORM, "mailgun-form twilio"),
            (EVERY_FIELD, "adyen sns"),
        ],
        |preset| {
            let source = &preset.source;
            if !source.verify.signs_other_than_bytes() {
                let nothing = !source.verify.signs_body();
                return Row::NotApplicable(if nothing { NOTHING_SIGNED } else { EVERY_BYTE });
            }
            if *source.verify.format() == BodyFormat::Form {
                return Row::NotApplicable(OF_A_FORM);
            }
            let captured = preset.sample("id-1", now());
            let first = captured.event(source);
            let places = source.fields.iter().flat_map(Field::places);
            let free = places.filter(|place| !source.verify.covers(place)).filter_map(FieldLocation::body_path);
            let (mut new, mut forged) = (Vec::new(), 0);
            for path in free {
                let mut body: Value = serde_json::from_slice(&captured.body).expect("JSON");
                let Some(value) = body.pointer_mut(&format!("/{}", path.join("/"))) else { continue };
                *value = json!("forged");
                forged += 1;
                let forged = SentDelivery { body: body.to_string().into_bytes(), ..captured.clone() };
                if let Verdict::Events(events) = forged.judge(source)
                    && events.iter().any(|event| !shares_key(&first, event))
                {
                    new.push(path.join("."));
                }
            }
            if forged == 0 {
                return Row::NotApplicable(EVERY_FIELD);
            }
            Row::fails_if(!new.is_empty(), format!("a new event by another {}", new.join(", ")))
        },
    );
}

#[test]
fn a_retry_that_is_signed_again_is_a_duplicate() {
    check_all(&[(ALWAYS_NEW, "dropbox quay")], |preset| {
        if is_always_new(preset) {
            return Row::NotApplicable(ALWAYS_NEW);
        }
        let sent = preset.sample("id-1", now());
        let first = sent.event(&preset.source);
        let later = now() + Duration::from_mins(1);
        let again = signed_again(preset, &sent, "id-1", sent.body.clone(), later).event(&preset.source);
        Row::fails_if(!shares_key(&first, &again), "a retry is a new event")
    });
}
