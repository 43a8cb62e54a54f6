//! An event's place in line: in its group's queue, and behind the event that changed its subject after it.

use super::event::{DoneReason, Event, EventState, QueueState};
use super::id::EventId;
use super::time::Timestamp;

impl Event {
    /// The same event with its group's slot taken by another: it waits until the slot is handed to it.
    #[must_use]
    pub fn park(mut self) -> Self {
        if let EventState::Running { .. } = self.state {
            self.attempt -= 1;
        }
        self.state = EventState::Waiting { due: None };
        self
    }

    /// Does it need its group's slot, to run or to wait for its turn?
    pub fn wants_slot(&self) -> bool {
        self.state.ended().is_none() && self.queue_state != QueueState::Suspended
    }

    /// An event's first attempt always runs, in its turn. After that, or once passed, it must still be its
    /// subject's current one.
    pub fn owed_first_attempt(&self) -> bool {
        self.attempt == 0 && self.queue_state == QueueState::Queued
    }

    /// The event with its superseded life ended by the claim or replay of `by`: only one that waits and is owed
    /// nothing ends at once; any other finds out by itself.
    pub fn supersede(&self, by: EventId, now: Timestamp) -> Option<Self> {
        let waits = matches!(self.state, EventState::Waiting { .. });
        (waits && !self.owed_first_attempt()).then(|| {
            let mut ended = Self {
                revision: self.revision.next(),
                state: self.done_without(DoneReason::Superseded { by }, now),
                ..self.clone()
            };
            ended.restore_first_end_time(now);
            ended
        })
    }
}
