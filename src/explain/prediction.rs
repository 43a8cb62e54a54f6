//! Predicts what a node would do with a delivery, given what the store knows.

use super::ExplainExit;
use super::delivery_trace::DeliveryTrace;
use crate::decide::claim::{self, ClaimResult, DuplicateTarget, MatchedBy, NewEvent, RepeatEffect};
use crate::decide::event::{DoneReason, Event, EventState};
use crate::decide::id::EventId;
use crate::decide::judge::Verdict;
use crate::decide::republish::RepublishState;
use crate::decide::source::Fanout;
use crate::decide::time::Timestamp;
use crate::store::{Inspect, StoreError};
use std::collections::HashSet;
use std::sync::Arc;

/// The known history of events.
pub(crate) enum ExplainHistory {
    /// All of it: this store, and how it is named.
    Store(Arc<dyn Inspect>, String),
    /// Nothing, because of this; and the time.
    Nothing(String, Timestamp),
}

/// When a delivery would arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalTime {
    /// By the store's clock.
    pub at: Timestamp,
    /// By this machine's wall clock, which the age of a signature is measured by.
    pub wall: Timestamp,
}

impl ExplainHistory {
    /// The time by the store's clock and by the wall clock.
    pub(crate) fn now(&self) -> ArrivalTime {
        match self {
            Self::Store(store, _) => ArrivalTime { at: store.now(), wall: store.wall_time() },
            Self::Nothing(_, now) => ArrivalTime { at: *now, wall: *now },
        }
    }
}

/// The predicted result of a delivery.
pub(crate) enum DeliveryPrediction {
    /// Refused: the status, and why.
    BeRefused(u16, String),
    /// Refused now because of its time, and why; which time would count, and what would become of it then.
    BeUntimely(String, &'static str, Box<DeliveryPrediction>),
    /// Ignored, and why.
    BeIgnored(String),
    /// Its events, one per receiver; looked up in this store, or why not.
    Events(Vec<PredictedClaim>, Result<String, String>),
}

/// The predicted result of claiming one event.
pub(crate) enum PredictedClaim {
    /// New: it runs.
    New,
    /// New: it waits for its group's slot.
    Parked,
    /// New: it is only recorded.
    Recorded,
    /// A duplicate of this event, by this identity, directly or via its successor.
    Duplicate(Box<Event>, MatchedBy, DuplicateTarget, RepeatEffect),
    /// A duplicate, by this identity, of an element before it in the same delivery.
    DuplicateOfElement(MatchedBy),
    /// A duplicate of an imported event.
    Imported(MatchedBy),
    /// Stale: this event changed its subject later.
    Stale(EventId),
    /// The store could not decide without claiming.
    Undecided,
}

/// Predicts the result of a delivery.
pub(crate) async fn predict(told: &DeliveryTrace, known: &ExplainHistory) -> Result<DeliveryPrediction, StoreError> {
    let timely = predict_timely(told, known).await?;
    Ok(match told.untimely() {
        Some((why, when)) => DeliveryPrediction::BeUntimely(why, when, Box::new(timely)),
        None => timely,
    })
}

/// Predicts the result of a delivery whose time counts.
async fn predict_timely(told: &DeliveryTrace, known: &ExplainHistory) -> Result<DeliveryPrediction, StoreError> {
    if let Some((status, why)) = told.refused() {
        return Ok(DeliveryPrediction::BeRefused(status, why));
    }
    let events = match &told.verdict {
        Verdict::Ignored(why) => return Ok(DeliveryPrediction::BeIgnored(why.clone())),
        Verdict::Events(events) if events.iter().all(|new| told.route_of(new).is_some()) => events,
        Verdict::Events(_) | Verdict::Refused(_) => return Ok(DeliveryPrediction::BeIgnored("no route".into())),
    };
    let new = |new: &NewEvent| match told.route_of(new) {
        Some(route) if route.fanout != Fanout::Record => PredictedClaim::New,
        _ => PredictedClaim::Recorded,
    };
    match known {
        ExplainHistory::Nothing(why, _) => {
            Ok(DeliveryPrediction::Events(in_order(events, events.iter().map(new)), Err(why.clone())))
        }
        ExplainHistory::Store(store, path) => {
            let came = |(claim, arriving): (ClaimResult, &NewEvent)| match claim {
                ClaimResult::New { event, .. } if event.state == (EventState::Waiting { due: None }) => {
                    PredictedClaim::Parked
                }
                ClaimResult::New { .. } => new(arriving),
                ClaimResult::Duplicate { event, same, target: stands, now } => {
                    // The event's own route decides, as in the gateway.
                    let own = told.source.routes.iter().find(|own| own.name == event.route);
                    let Some(own) = own.or_else(|| told.route_of(arriving)) else { return PredictedClaim::Undecided };
                    let repeat = claim::repeat_effect(&event, arriving, &same, stands, own, told.source.respond, now);
                    PredictedClaim::Duplicate(event, same, stands, repeat)
                }
                ClaimResult::Imported { same } => PredictedClaim::Imported(same),
                ClaimResult::Stale { of } => PredictedClaim::Stale(of),
                ClaimResult::Undecided => PredictedClaim::Undecided,
            };
            let claims = store.preview_claim(events.clone()).await?;
            let reused = |(claim, new): (&ClaimResult, &NewEvent)| match claim {
                ClaimResult::Duplicate { event, .. } => claim::is_key_reuse(&told.source, event, new),
                _ => false,
            };
            if claims.iter().zip(events).any(reused) {
                return Ok(DeliveryPrediction::BeRefused(422, "its Idempotency-Key was used with another body".into()));
            }
            let claimed = in_order(events, claims.into_iter().zip(events).map(came));
            Ok(DeliveryPrediction::Events(claimed, Ok(path.clone())))
        }
    }
}

/// The same predictions, each made as if it were alone, once the events before it are claimed, too.
fn in_order(events: &[NewEvent], alone: impl Iterator<Item = PredictedClaim>) -> Vec<PredictedClaim> {
    let mut claimed = HashSet::new();
    let mut all = Vec::with_capacity(events.len());
    for (new, predicted) in events.iter().zip(alone) {
        let is_new = matches!(predicted, PredictedClaim::New | PredictedClaim::Parked | PredictedClaim::Recorded);
        let repeated = new.keys.iter().find(|identity| claimed.contains(&identity.key));
        all.push(match repeated {
            Some(identity) if is_new => PredictedClaim::DuplicateOfElement(identity.matched_by.clone()),
            _ => {
                claimed.extend(new.keys.iter().map(|identity| identity.key).filter(|_| is_new));
                predicted
            }
        });
    }
    all
}

/// Whether an action would run.
pub(crate) fn answer(predicted: &DeliveryPrediction) -> ExplainExit {
    let DeliveryPrediction::Events(all, _) = predicted else { return ExplainExit::ActsNot };
    let one = |came: &PredictedClaim| match came {
        PredictedClaim::New
        | PredictedClaim::Parked
        | PredictedClaim::Duplicate(
            _,
            _,
            _,
            RepeatEffect::Rearms | RepeatEffect::Resumes | RepeatEffect::PublishesAgain,
        ) => ExplainExit::Acts,
        PredictedClaim::Recorded
        | PredictedClaim::Duplicate(..)
        | PredictedClaim::DuplicateOfElement(_)
        | PredictedClaim::Imported(_)
        | PredictedClaim::Stale(_) => ExplainExit::ActsNot,
        PredictedClaim::Undecided => ExplainExit::Unknown,
    };
    all.iter().map(one).min().unwrap_or(ExplainExit::ActsNot)
}

/// The state of an event in words.
pub(crate) fn state_text(event: &Event) -> String {
    let stands = match &event.state {
        EventState::Waiting { due: Some(due) } => format!("waiting, due {due}"),
        EventState::Waiting { due: None } => "waiting for its group's slot".into(),
        EventState::Running { until, by, .. } => format!("running on node {by}, with a lease until {until}"),
        EventState::Done { how: DoneReason::Superseded { by }, at } => format!("done (superseded by {by}) since {at}"),
        EventState::Done { how, at } => format!("done ({}) since {at}", how.word()),
        EventState::Dead { cause, at } => format!("dead ({}) since {at}", cause.word()),
    };
    match event.published_again {
        Some(again) => format!("{stands}, {}", published_again(&again)),
        None => stands,
    }
}

/// How often an event was published again, in words.
fn published_again(again: &RepublishState) -> String {
    let times = if again.times == 1 { "once".to_owned() } else { format!("{} times", again.times) };
    format!("published again {times}")
}
