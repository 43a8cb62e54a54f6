//! The report of `explain` as JSON.

use super::delivery_trace::{ContentTrace, DeliveryTrace, FilterResult, SignatureCheck};
use super::prediction::{DeliveryPrediction, PredictedClaim, answer};
use super::{ExplainExit, prediction};
use crate::decide::claim::{DuplicateTarget, MatchedBy, NewEvent, RepeatEffect};
use crate::decide::field::{ExtractedField, Field, FieldValue};
use crate::decide::judge::Verdict;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// What would become of a delivery.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExplainedDelivery {
    delivery: String,
    bytes: usize,
    notes: Vec<String>,
    source: ChosenSource,
    signature: SignatureReport,
    #[schema(required, value_type = Option<Object>)]
    kind: Option<Value>,
    #[schema(required, value_type = Option<Vec<Object>>)]
    fields: Option<Vec<Value>>,
    #[schema(required, value_type = Option<Object>)]
    require: Option<Value>,
    #[schema(required, value_type = Option<Object>)]
    when: Option<Value>,
    #[schema(value_type = Vec<Object>)]
    routes: Vec<Value>,
    #[schema(required)]
    route: Option<String>,
    /// Of a delivery whose elements are events: how many it has, and how the first few and the last one were evaluated.
    /// The members above are those of the first.
    #[schema(required, value_type = Option<Object>)]
    elements: Option<Value>,
    #[schema(value_type = Vec<Object>)]
    events: Vec<Value>,
    /// What would become of it: be = refused, ignored; where it is refused because its time does not count now, `in_time`
    /// is what would become of it at its time; or events, each new, recorded, duplicate, rearmed, resumed,
    /// `published_again`, stale or undecided.
    #[schema(value_type = Object)]
    would: Value,
    /// Whether it would act; null: undetermined.
    #[schema(required)]
    pub(crate) acts: Option<bool>,
}

/// The source that a delivery is for.
#[derive(Serialize, ToSchema)]
struct ChosenSource {
    name: String,
    chosen: String,
}

/// What the signature of a delivery is worth.
#[derive(Serialize, ToSchema)]
struct SignatureReport {
    by: String,
    is: SignatureCheckView,
    #[schema(required)]
    why: Option<String>,
}

/// Whether a signature is right.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum SignatureCheckView {
    None,
    Unchecked,
    Right,
    Old,
    Wrong,
}

/// The report about one delivery.
pub(crate) fn explained(told: &DeliveryTrace, would: &DeliveryPrediction) -> ExplainedDelivery {
    let events = match &told.verdict {
        Verdict::Events(events) => events.as_slice(),
        Verdict::Refused(_) | Verdict::Ignored(_) => &[],
    };
    let nothing = ContentTrace::default();
    let first = told.contents.first().unwrap_or(&nothing);
    let shown = || told.contents.iter().map(|content| element(told, content)).collect::<Vec<_>>();
    ExplainedDelivery {
        delivery: told.from.clone(),
        bytes: told.bytes,
        notes: told.notes.clone(),
        source: ChosenSource { name: told.source.name.to_string(), chosen: told.chosen.clone() },
        signature: signature(told),
        kind: told.source.kind.as_ref().zip(told.kind.as_ref()).map(|(kind, named)| {
            let wanted: Vec<_> = kind.any_of.iter().map(|kind| kind.is.as_str()).collect();
            json!({
                "header": kind.header,
                "was": named,
                "wanted": wanted.join(" or "),
                "same": kind.index_of(named).is_some(),
            })
        }),
        fields: fields(told, first),
        require: first.require.as_ref().map(asked),
        when: first.when.as_ref().map(asked),
        routes: first.routes.iter().map(asked).collect(),
        route: told.route(first).map(|route| route.name.to_string()),
        elements: told.elements.map(|count| json!({ "count": count, "shown": shown() })),
        events: events.iter().map(event).collect(),
        would: ends(would),
        acts: match answer(would) {
            ExplainExit::Acts => Some(true),
            ExplainExit::ActsNot => Some(false),
            ExplainExit::Unknown => None,
        },
    }
}

fn signature(told: &DeliveryTrace) -> SignatureReport {
    let (is, why) = match &told.signature {
        SignatureCheck::None => (SignatureCheckView::None, None),
        SignatureCheck::Unchecked(why) => (SignatureCheckView::Unchecked, Some(why.clone())),
        SignatureCheck::Right => (SignatureCheckView::Right, None),
        SignatureCheck::Untimely(why, _) => (SignatureCheckView::Old, why.clone()),
        SignatureCheck::Wrong(why) => (SignatureCheckView::Wrong, Some(why.clone())),
        SignatureCheck::NotNeeded(why) => (SignatureCheckView::None, Some(why.clone())),
    };
    SignatureReport { by: told.source.verify.words(), is, why }
}

/// How one element was evaluated.
fn element(told: &DeliveryTrace, content: &ContentTrace) -> Value {
    json!({
        "at": content.place,
        "fields": fields(told, content),
        "require": content.require.as_ref().map(asked),
        "when": content.when.as_ref().map(asked),
        "routes": content.routes.iter().map(asked).collect::<Vec<_>>(),
        "route": told.route(content).map(|route| &*route.name),
    })
}

fn fields(told: &DeliveryTrace, content: &ContentTrace) -> Option<Vec<Value>> {
    content.fields.as_ref().map(|slots| told.source.fields.iter().zip(slots).map(field).collect())
}

/// A field as JSON. Numbers stay text, because JSON parsers may lose precision.
fn field((field, slot): (&Field, &ExtractedField)) -> Value {
    let (word, value) = match slot {
        ExtractedField::Missing => ("missing", None),
        ExtractedField::Present(value) => ("present", Some(value)),
        ExtractedField::Defaulted(value) => ("default", Some(value)),
    };
    let value = value.map(|value| match value {
        FieldValue::Text(text) | FieldValue::Number(text) => json!(&**text),
        FieldValue::Bool(flag) => json!(flag),
    });
    json!({ "name": &*field.name, "at": field.places_text(), "is": word, "value": value })
}

fn asked(asked: &FilterResult) -> Value {
    let terms: Vec<_> =
        asked.terms.iter().map(|term| json!({ "text": term.text, "saw": term.saw, "holds": term.holds })).collect();
    let mut all = json!({ "text": asked.text, "holds": asked.holds, "terms": terms });
    if !asked.name.is_empty() {
        all["name"] = json!(asked.name);
    }
    all
}

fn event(new: &NewEvent) -> Value {
    let keys = new.keys.iter().flat_map(|key| {
        // A delivery id that is stored with the body's key has no key of its own.
        let id = key.id_digest.map(|_| json!({ "same": MatchedBy::Delivery.word(), "key": hex::encode(key.key.0) }));
        id.into_iter().chain([json!({ "same": key.matched_by.word(), "key": hex::encode(key.key.0) })])
    });
    let identities: Vec<_> = keys.collect();
    json!({
        "route": &*new.event.route,
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

fn ends(would: &DeliveryPrediction) -> Value {
    match would {
        DeliveryPrediction::BeRefused(status, why) => json!({ "be": "refused", "status": status, "why": why }),
        DeliveryPrediction::BeUntimely(why, _, timely) => {
            json!({ "be": "refused", "status": 401, "why": why, "in_time": ends(timely) })
        }
        DeliveryPrediction::BeIgnored(why) => json!({ "be": "ignored", "why": why }),
        DeliveryPrediction::Events(all, looked) => json!({
            "store": looked.as_ref().ok(),
            "unasked": looked.as_ref().err(),
            "events": all.iter().map(came).collect::<Vec<_>>(),
        }),
    }
}

fn came(came: &PredictedClaim) -> Value {
    match came {
        PredictedClaim::New => json!({ "be": "new" }),
        PredictedClaim::Parked => json!({ "be": "new", "parked": true }),
        PredictedClaim::Recorded => json!({ "be": "recorded" }),
        PredictedClaim::DuplicateOfElement(same) => json!({ "be": "duplicate", "of": "element", "same": same.word() }),
        PredictedClaim::Imported(same) => json!({ "be": "duplicate", "of": "imported", "same": same.word() }),
        PredictedClaim::Stale(of) => json!({ "be": "stale", "of": of }),
        PredictedClaim::Undecided => json!({ "be": "undecided" }),
        PredictedClaim::Duplicate(event, same, stands, repeat) => json!({
            "be": match repeat {
                RepeatEffect::PublishesAgain => "published_again",
                RepeatEffect::Rearms => "rearmed",
                RepeatEffect::Resumes => "resumed",
                RepeatEffect::ReportOnly => "duplicate",
            },
            "of": event.id,
            "same": same.word(),
            "instead": *stands == DuplicateTarget::ViaSuccessor,
            "state": event.state.word(),
            "stands": prediction::state_text(event),
        }),
    }
}
