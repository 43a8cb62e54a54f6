//! Explains why a delivery would or would not run. Evaluates it step by step with the code that judges and claims,
//! without secrets if need be. Accepts and writes nothing. Used by `hookonce explain` and the admin API.

pub(crate) mod assumptions;
pub(crate) mod delivery_trace;
pub(crate) mod prediction;
pub(crate) mod report_json;
pub(crate) mod report_text;
pub(crate) mod saved_delivery;

use crate::config::ExternalValue;
use crate::decide::event::Origin;
use crate::decide::nearest_name::nearest;
use crate::decide::source::Source;
use crate::store::{StoreError, StoredValue};
use delivery_trace::DeliveryTrace;
use prediction::{DeliveryPrediction, ExplainHistory};
use saved_delivery::SavedDelivery;
use std::sync::Arc;

/// The exit code of `hookonce explain`: whether the delivery would act.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum ExplainExit {
    /// It would act.
    Acts = 0,
    /// It would not.
    ActsNot = 1,
    /// Unknown.
    Unknown = 2,
}

/// Why a delivery cannot be explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExplainError {
    /// A sentence.
    pub why: String,
    /// The exit code.
    pub answer: ExplainExit,
    /// What is missing.
    pub lack: ExplainErrorKind,
}

/// The kind of an [`ExplainError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExplainErrorKind {
    /// The input is invalid or incomplete.
    Input,
    /// There are several sources, and none was named.
    Source,
    /// There is no such event.
    Unknown,
    /// Several events match.
    Several,
    /// No delivery made the event.
    NoDelivery,
    /// Its body is no longer kept.
    Forgotten,
    /// The store does not respond.
    Store,
}

impl ExplainError {
    fn of(lack: ExplainErrorKind, why: String) -> Self {
        Self { why, answer: ExplainExit::Unknown, lack }
    }
}

impl From<String> for ExplainError {
    fn from(why: String) -> Self {
        Self::of(ExplainErrorKind::Input, why)
    }
}

impl From<StoreError> for ExplainError {
    fn from(error: StoreError) -> Self {
        Self::of(ExplainErrorKind::Store, error.to_string())
    }
}

/// The trace of one delivery, and the prediction.
pub(crate) async fn walk(
    sources: &[Arc<Source>],
    elsewhere: &[ExternalValue],
    named: Option<&str>,
    delivery: &SavedDelivery,
    known: &ExplainHistory,
) -> Result<(DeliveryTrace, DeliveryPrediction), ExplainError> {
    let (source, chosen) = choose_source(sources, named, delivery)?;
    let told = DeliveryTrace::walk(&source, chosen, delivery, elsewhere, known.now());
    let would = prediction::predict(&told, known).await?;
    Ok((told, would))
}

/// Reconstructs the delivery of an event from what is kept of it.
pub(crate) async fn rebuild_delivery(
    name: &str,
    known: &ExplainHistory,
    sources: &[Arc<Source>],
) -> Result<SavedDelivery, ExplainError> {
    let (store, path) = match known {
        ExplainHistory::Store(store, path) => (store, path),
        ExplainHistory::Nothing(why, _) => {
            return Err(format!("there is no file {name}, and no event can be looked up: {why}").into());
        }
    };
    let events = store.resolve(name.to_owned(), 2).await?;
    let event = match events.as_slice() {
        [event] => event,
        [] => {
            return Err(ExplainError::of(
                ExplainErrorKind::Unknown,
                format!("there is no file {name}, and no event of that name in {path}"),
            ));
        }
        [one, other, ..] => {
            let several =
                format!("{name} matches several events, such as {} and {}; name one of them", one.id, other.id);
            return Err(ExplainError::of(ExplainErrorKind::Several, several));
        }
    };
    if let Some(what) = event.origin.map(origin_text) {
        let state = prediction::state_text(event);
        let why = format!(
            "event {} was not made by a delivery, so there is none to explain: {what}; it is {state}",
            event.id
        );
        return Err(ExplainError::of(ExplainErrorKind::NoDelivery, why));
    }
    let Some(source) = sources.iter().find(|source| source.name == event.source) else {
        return Err(
            format!("event {} belongs to the source `{}`, which is not configured", event.id, event.source).into()
        );
    };
    match store.payload(event.id).await? {
        StoredValue::Whole(payload) => Ok(saved_delivery::delivery(source, event, payload)),
        StoredValue::Forgotten => Err(ExplainError::of(
            ExplainErrorKind::Forgotten,
            format!(
                "the body of event {} is no longer kept, so it cannot be explained; the event is {}",
                event.id,
                prediction::state_text(event)
            ),
        )),
        StoredValue::Damaged => Err(format!("the body of event {} is not what was received", event.id).into()),
    }
}

/// What an event is that no delivery made.
fn origin_text(origin: Origin) -> String {
    match origin {
        Origin::Rollback { from, to } => {
            format!("it is a roll-back from {from}, which is not healthy, to {to}, the last good one")
        }
        Origin::Notification { of, kind } => format!("it is a notification about {of} ({})", kind.word()),
    }
}

/// The source of a delivery, and how it was chosen.
pub(crate) fn choose_source(
    sources: &[Arc<Source>],
    named: Option<&str>,
    delivery: &SavedDelivery,
) -> Result<(Arc<Source>, String), ExplainError> {
    let of = |source: &Arc<Source>| format!("{} ({})", source.name, source.path);
    let all: Vec<_> = sources.iter().map(of).collect();
    if let Some(name) = named.or(delivery.source.as_deref()) {
        if let Some(source) = sources.iter().find(|source| &*source.name == name) {
            return Ok((source.clone(), "named".into()));
        }
        let meant = nearest(name, sources.iter().map(|source| &*source.name));
        let hint = meant.map_or_else(|| ".".into(), |meant| format!("; did you mean `{meant}`?"));
        return Err(format!("there is no source `{name}`{hint} Sources: {}", all.join(", ")).into());
    }
    if let Some(path) = &delivery.path {
        // A path that is almost a secret one tells most of it.
        let has_secret = sources.iter().any(|source| source.path.is_secret());
        let asked = if has_secret { "the path of the request" } else { path };
        return match sources.iter().find(|source| source.path.is(path)) {
            Some(source) => Ok((source.clone(), format!("listens on {}", source.path))),
            None => Err(ExplainError {
                why: format!("no source listens on {asked}, so a node responds with 404. Sources: {}", all.join(", ")),
                answer: ExplainExit::ActsNot,
                lack: ExplainErrorKind::Input,
            }),
        };
    }
    match sources {
        [only] => Ok((only.clone(), "the only one".into())),
        _ => Err(ExplainError::of(
            ExplainErrorKind::Source,
            format!("which source is it for? One of: {}", all.join(", ")),
        )),
    }
}
