//! The same for programs.

use super::stands::{Came, Would, answer};
use super::told::{Asked, Signature, Told};
use super::{Answer, stands};
use crate::decide::claim::{New, Repeat, Same, Stands};
use crate::decide::field::{Field, Slot, Value as Found};
use crate::decide::judge::Verdict;
use serde_json::{Value, json};

/// One delivery.
pub fn explained(told: &Told, would: &Would) -> Value {
    let events = match &told.verdict {
        Verdict::Events(events) => events.as_slice(),
        Verdict::Refused(_) | Verdict::Ignored(_) => &[],
    };
    let fields = told.fields.as_ref().map(|slots| told.source.fields.iter().zip(slots).map(field).collect::<Vec<_>>());
    json!({
        "delivery": told.from,
        "bytes": told.bytes,
        "notes": told.notes,
        "source": { "name": &*told.source.name, "chosen": told.chosen },
        "signature": signature(told),
        "kind": told.source.kind.as_ref().zip(told.kind.as_ref()).map(|(kind, named)| {
            json!({ "header": kind.header, "was": named, "wanted": kind.is, "same": *named == kind.is })
        }),
        "fields": fields,
        "require": told.require.as_ref().map(asked),
        "when": told.when.as_ref().map(asked),
        "routes": told.routes.iter().map(asked).collect::<Vec<_>>(),
        "route": told.route().map(|route| &*route.name),
        "events": events.iter().map(|new| event(told, new)).collect::<Vec<_>>(),
        "would": ends(would),
        "acts": match answer(would) { Answer::Acts => Some(true), Answer::ActsNot => Some(false), Answer::Unknown => None },
    })
}

fn signature(told: &Told) -> Value {
    let (word, why) = match &told.signature {
        Signature::None => ("none", None),
        Signature::Unchecked(why) => ("unchecked", Some(why)),
        Signature::Right => ("right", None),
        Signature::Old => ("old", None),
        Signature::Wrong => ("wrong", None),
    };
    json!({ "by": told.source.verify.words(), "is": word, "why": why })
}

/// Numbers stay as they were written, as text: a program may have no number that holds them.
fn field((field, slot): (&Field, &Slot)) -> Value {
    let (word, value) = match slot {
        Slot::Missing => ("missing", None),
        Slot::Present(value) => ("present", Some(value)),
        Slot::Defaulted(value) => ("default", Some(value)),
    };
    let value = value.map(|value| match value {
        Found::Text(text) | Found::Number(text) => json!(&**text),
        Found::Bool(flag) => json!(flag),
    });
    json!({ "name": &*field.name, "at": field.at.to_string(), "is": word, "value": value })
}

fn asked(asked: &Asked) -> Value {
    let terms: Vec<_> =
        asked.terms.iter().map(|term| json!({ "text": term.text, "saw": term.saw, "holds": term.holds })).collect();
    let mut all = json!({ "text": asked.text, "holds": asked.holds, "terms": terms });
    if !asked.name.is_empty() {
        all["name"] = json!(asked.name);
    }
    all
}

fn event(told: &Told, new: &New) -> Value {
    let keys = new.keys.iter().flat_map(|key| {
        // An id that is known by its body has no key of its own.
        let id = key.id_digest.map(|_| json!({ "same": Same::Delivery.word(), "key": hex::encode(key.key.0) }));
        id.into_iter().chain([json!({ "same": key.same.word(), "key": hex::encode(key.key.0) })])
    });
    let identities: Vec<_> = keys.collect();
    json!({
        "route": told.route().map(|route| &*route.name),
        "part": new.event.part,
        "delivery": new.event.delivery_id.as_deref(),
        "identities": identities,
        "register": new.event.change.map(|change| json!({
            "key": hex::encode(change.subject.0),
            "value": hex::encode(change.value.0),
            "order": change.order,
        })),
        "group": new.event.group.map(|group| hex::encode(group.0)),
    })
}

fn ends(would: &Would) -> Value {
    match would {
        Would::BeRefused(status, why) => json!({ "be": "refused", "status": status, "why": why }),
        Would::BeIgnored(why) => json!({ "be": "ignored", "why": why }),
        Would::Be(all, looked) => json!({
            "store": looked.as_ref().ok(),
            "unasked": looked.as_ref().err(),
            "events": all.iter().map(came).collect::<Vec<_>>(),
        }),
    }
}

fn came(came: &Came) -> Value {
    match came {
        Came::New => json!({ "be": "new" }),
        Came::Parked => json!({ "be": "new", "parked": true }),
        Came::Recorded => json!({ "be": "recorded" }),
        Came::Imported(same) => json!({ "be": "duplicate", "of": "imported", "same": same.word() }),
        Came::Stale(of) => json!({ "be": "stale", "of": of }),
        Came::Undecided => json!({ "be": "undecided" }),
        Came::Duplicate(event, same, stands, repeat) => json!({
            "be": match repeat {
                Repeat::PublishesAgain => "published_again",
                Repeat::Rearms => "rearmed",
                Repeat::Resumes => "resumed",
                Repeat::Hears => "duplicate",
            },
            "of": event.id,
            "same": same.word(),
            "instead": *stands == Stands::Instead,
            "state": event.state.word(),
            "stands": stands::words(event),
        }),
    }
}
