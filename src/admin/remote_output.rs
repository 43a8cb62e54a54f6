//! Follows one event that another node runs, for a client of the live stream: its output, as that node shares it through
//! the store, and its changes of state.
//!
//! The node that runs it shares output only while it hears that the event is watched, so this says so every few seconds.
//! In a store that only one node uses there is nothing to follow.

use super::AdminState;
use crate::action::OutputChunk;
use crate::decide::event::{Event, EventState};
use crate::decide::id::EventId;
use crate::decide::limits;
use crate::decide::shared_output::{NextOutput, OutputPosition, SharedOutput};
use crate::store::{ChangeHint, StoreError};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// News that a slow client may fall behind by; then the store is not asked.
const NEWS_MAX: usize = 8;

/// What another node did with the event.
pub(super) enum RemoteNews {
    /// Its command wrote this. `true`: all that the client has of this attempt.
    Output(OutputChunk, bool),
    /// It is in another state.
    State(Box<Event>),
}

/// Follows this event until the client is gone; never says anything where nodes share no store.
pub(super) fn follow(state: &AdminState, event: EventId) -> mpsc::Receiver<RemoteNews> {
    let (news, receiver) = mpsc::channel(NEWS_MAX);
    if state.store.hints().is_some() {
        let follower = RemoteFollower { state: state.clone(), event, news, last: None, at: None, told: None };
        tokio::spawn(follower.run());
    }
    receiver
}

struct RemoteFollower {
    state: AdminState,
    event: EventId,
    news: mpsc::Sender<RemoteNews>,
    /// The event when it was last looked at.
    last: Option<Event>,
    /// How much of the running attempt's output the client has.
    at: Option<OutputPosition>,
    /// When the other nodes were last told that the event is watched.
    told: Option<Instant>,
}

/// The client is gone, or the event is.
struct FollowEnd;

impl RemoteFollower {
    async fn run(mut self) {
        let mut look = interval(limits::OUTPUT_SHARED_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = self.news.closed() => return,
            }
            match self.look().await {
                Ok(Ok(())) | Err(_) => {} // a store that does not respond is asked again
                Ok(Err(FollowEnd)) => return,
            }
        }
    }

    /// Looks at the event, and tells what is new.
    async fn look(&mut self) -> Result<Result<(), FollowEnd>, StoreError> {
        let Some(event) = self.state.store.get(self.event).await? else { return Ok(Err(FollowEnd)) };
        let node = self.state.dispatcher.node();
        let runs_elsewhere = matches!(event.state, EventState::Running { .. }) && !event.is_running_on(node);
        if self.at.is_some_and(|at| !runs_elsewhere || !at.is_of(&event)) && self.rest().await?.is_err() {
            return Ok(Err(FollowEnd));
        }
        if self.last.as_ref().is_some_and(|last| stage(last) != stage(&event)) {
            let news = RemoteNews::State(Box::new(event.clone()));
            if self.news.send(news).await.is_err() {
                return Ok(Err(FollowEnd));
            }
        }
        if runs_elsewhere {
            let mut at = self.at.filter(|at| at.is_of(&event)).unwrap_or_else(|| OutputPosition::of(&event));
            let shared = self.state.store.state(SharedOutput::key(event.id)).await?;
            let next = shared.and_then(|state| SharedOutput::read(&state)).and_then(|shared| at.next(&shared));
            self.at = Some(at);
            if self.tell(next).await.is_err() {
                return Ok(Err(FollowEnd));
            }
            if self.told.is_none_or(|told| told.elapsed() >= limits::OUTPUT_WATCH_LASTS / 3) {
                self.state.store.send_hint(ChangeHint::Watched(event.id)).await?;
                self.told = Some(Instant::now());
            }
        }
        self.last = Some(event);
        Ok(Ok(()))
    }

    /// Tells the end of the output of the attempt that has ended, as the store keeps it.
    async fn rest(&mut self) -> Result<Result<(), FollowEnd>, StoreError> {
        let (Some(mut at), Some(last)) = (self.at, &self.last) else { return Ok(Ok(())) };
        let details = self.state.store.details(self.event).await?;
        let attempts = details.map(|details| details.attempts).unwrap_or_default();
        let ended = attempts.iter().find(|tried| (tried.life, tried.attempt) == (last.life, last.attempt));
        let rest = ended.and_then(|tried| at.rest(&tried.output));
        self.at = None;
        Ok(self.tell(rest).await)
    }

    async fn tell(&self, output: Option<NextOutput>) -> Result<(), FollowEnd> {
        let Some(NextOutput { bytes, is_first }) = output else { return Ok(()) };
        let chunk = OutputChunk { event: self.event, bytes: bytes.into() };
        self.news.send(RemoteNews::Output(chunk, is_first)).await.map_err(|_| FollowEnd)
    }
}

/// What a client is told of: not the renewals of a lease.
fn stage(event: &Event) -> (u32, u32, &'static str) {
    (event.life, event.attempt, event.state.word())
}
