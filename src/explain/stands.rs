//! What would come of a walked delivery: what the store knows of it, and what a node would do.

use super::Answer;
use super::told::Told;
use crate::decide::again::PublishedAgain;
use crate::decide::claim::{self, Claim, New, Repeat, Same, Stands};
use crate::decide::event::{Event, How, State};
use crate::decide::id::EventId;
use crate::decide::judge::Verdict;
use crate::decide::source::Makes;
use crate::decide::time::Timestamp;
use crate::store::{Store, StoreError};
use std::sync::Arc;

/// What is known of the past.
pub enum Known {
    /// All of it: this store, and how it is named.
    Store(Arc<dyn Store>, String),
    /// Nothing, because of this; and the time.
    Nothing(String, Timestamp),
}

/// When a delivery would arrive.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// By the store's clock.
    pub at: Timestamp,
    /// By this machine's clock on the wall: the age of a signature is measured by it.
    pub wall: Timestamp,
}

impl Known {
    /// The store's clock and the wall's, or ours.
    pub fn now(&self) -> Now {
        match self {
            Self::Store(store, _) => Now { at: store.now(), wall: store.wall_time() },
            Self::Nothing(_, now) => Now { at: *now, wall: *now },
        }
    }
}

/// What would come of a delivery.
pub enum Would {
    /// It is refused: the status, and why.
    BeRefused(u16, String),
    /// It is not for us, because of this.
    BeIgnored(String),
    /// Each of its events, one for each receiver; looked up in this store, or not looked up because of this.
    Be(Vec<Came>, Result<String, String>),
}

/// What would come of one event.
pub enum Came {
    /// It is new, and runs.
    New,
    /// It is new, and waits for its group's slot.
    Parked,
    /// It is new, and there is nothing to do.
    Recorded,
    /// It is a repeat of this event, by this identity; in place of one that was superseded, or not.
    Duplicate(Box<Event>, Same, Stands, Repeat),
    /// It was done before this store was there.
    Imported(Same),
    /// This event changed its subject later.
    Stale(EventId),
    /// The store has to be asked again, which only a claim can.
    Undecided,
}

/// What would come of this delivery.
pub async fn would(told: &Told, known: &Known) -> Result<Would, StoreError> {
    if let Some((status, why)) = told.refused() {
        return Ok(Would::BeRefused(status, why));
    }
    let (events, route) = match (&told.verdict, told.route()) {
        (Verdict::Ignored(why), _) => return Ok(Would::BeIgnored(why.clone())),
        (Verdict::Events(events), Some(route)) => (events, route),
        _ => return Ok(Would::BeIgnored("no route".into())),
    };
    let new = if route.makes == Makes::Record { || Came::Recorded } else { || Came::New };
    match known {
        Known::Nothing(why, _) => Ok(Would::Be(events.iter().map(|_| new()).collect(), Err(why.clone()))),
        Known::Store(store, path) => {
            let came = |(claim, arriving): (Claim, &New)| match claim {
                Claim::New { event, .. } if event.state == (State::Waiting { due: None }) => Came::Parked,
                Claim::New { .. } => new(),
                Claim::Duplicate { event, same, stands, now } => {
                    // What the event is to do is its own route's to say, as the gateway has it.
                    let own = told.source.routes.iter().find(|own| own.name == event.route).unwrap_or(route);
                    let repeat = claim::repeat(&event, arriving, &same, stands, own, told.source.respond, now);
                    Came::Duplicate(event, same, stands, repeat)
                }
                Claim::Imported { same } => Came::Imported(same),
                Claim::Stale { of } => Came::Stale(of),
                Claim::Again => Came::Undecided,
            };
            let claims = store.foresee(events.clone()).await?;
            let reused = |(claim, new): (&Claim, &New)| match claim {
                Claim::Duplicate { event, .. } => claim::reused(&told.source, event, new),
                _ => false,
            };
            if claims.iter().zip(events).any(reused) {
                return Ok(Would::BeRefused(422, "its Idempotency-Key was used with another body".into()));
            }
            Ok(Would::Be(claims.into_iter().zip(events).map(came).collect(), Ok(path.clone())))
        }
    }
}

/// Would anything be done?
pub fn answer(would: &Would) -> Answer {
    let Would::Be(all, _) = would else { return Answer::ActsNot };
    let one = |came: &Came| match came {
        Came::New
        | Came::Parked
        | Came::Duplicate(_, _, _, Repeat::Rearms | Repeat::Resumes | Repeat::PublishesAgain) => Answer::Acts,
        Came::Recorded | Came::Duplicate(..) | Came::Imported(_) | Came::Stale(_) => Answer::ActsNot,
        Came::Undecided => Answer::Unknown,
    };
    all.iter().map(one).min().unwrap_or(Answer::ActsNot)
}

/// How an event stands, in words.
pub fn words(event: &Event) -> String {
    let stands = match &event.state {
        State::Waiting { due: Some(due) } => format!("waiting, due {due}"),
        State::Waiting { due: None } => "waiting for its group's slot".into(),
        State::Running { until, by, .. } => format!("running on node {by}, with a lease until {until}"),
        State::Done { how: How::Superseded { by }, at } => format!("done (superseded by {by}) since {at}"),
        State::Done { how, at } => format!("done ({}) since {at}", how.word()),
        State::Dead { cause, at } => format!("dead ({}) since {at}", cause.word()),
    };
    match event.published_again {
        Some(again) => format!("{stands}, {}", published_again(&again)),
        None => stands,
    }
}

/// How often an event was published again, in words.
fn published_again(again: &PublishedAgain) -> String {
    let times = if again.times == 1 { "once".to_owned() } else { format!("{} times", again.times) };
    format!("published again {times}")
}
