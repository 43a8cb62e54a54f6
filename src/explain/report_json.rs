//! The report of `explain` as JSON.

use super::delivery_trace::{DeliveryTrace, FilterResult, SignatureCheck};
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
    #[schema(value_type = Vec<Object>)]
    events: Vec<Value>,
    /// What would become of it: be = refused, ignored; or events, each new, recorded, duplicate, rearmed, resumed,
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
    let fields = told.fields.as_ref().map(|slots| told.source.fields.iter().zip(slots).map(field).collect::<Vec<_>>());
    ExplainedDelivery {
        delivery: told.from.clone(),
        bytes: told.bytes,
        notes: told.notes.clone(),
        source: ChosenSource { name: told.source.name.to_string(), chosen: told.chosen.clone() },
        signature: signature(told),
        kind: told.source.kind.as_ref().zip(told.kind.as_ref()).map(|(kind, named)| {
            json!({ "header": kind.header, "was": named, "wanted": kind.is, "same": *named == kind.is })
        }),
        fields,
        require: told.require.as_ref().map(asked),
        when: told.when.as_ref().map(asked),
        routes: told.routes.iter().map(asked).collect(),
        route: told.route().map(|route| route.name.to_string()),
        events: events.iter().map(|new| event(told, new)).collect(),
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
        SignatureCheck::Old => (SignatureCheckView::Old, None),
        SignatureCheck::Wrong => (SignatureCheckView::Wrong, None),
    };
    SignatureReport { by: told.source.verify.words(), is, why }
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
    json!({ "name": &*field.name, "at": field.at.to_string(), "is": word, "value": value })
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

fn event(told: &DeliveryTrace, new: &NewEvent) -> Value {
    let keys = new.keys.iter().flat_map(|key| {
        // A delivery id that is stored with the body's key has no key of its own.
        let id = key.id_digest.map(|_| json!({ "same": MatchedBy::Delivery.word(), "key": hex::encode(key.key.0) }));
        id.into_iter().chain([json!({ "same": key.matched_by.word(), "key": hex::encode(key.key.0) })])
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

fn ends(would: &DeliveryPrediction) -> Value {
    match would {
        DeliveryPrediction::BeRefused(status, why) => json!({ "be": "refused", "status": status, "why": why }),
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
