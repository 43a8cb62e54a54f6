//! What came of one delivery, for people: told to who listens, and remembered for a while if it became no event.

use crate::decide::id::EventId;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// What came of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is a new event, or gives a dead one another attempt.
    Accepted,
    /// Its event is claimed.
    Duplicate,
    /// Its subject was changed by something newer.
    Stale,
    /// It is believed, and not for us.
    Ignored,
    /// It is not believed, or cannot be read.
    Refused,
    /// The store or the node could not take it.
    Unavailable,
}

impl Verdict {
    /// Each of them, in the order in which they are counted.
    pub const ALL: [Self; 6] =
        [Self::Accepted, Self::Duplicate, Self::Stale, Self::Ignored, Self::Refused, Self::Unavailable];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

/// One delivery and what came of it. Its body, its signature and its other headers are not here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heard {
    /// When it arrived, by the store's clock.
    pub at: Timestamp,
    /// The source it was for; `None`: nobody listens on its path.
    pub source: Option<Arc<str>>,
    /// Its path, where nobody listens on it.
    pub path: Option<String>,
    /// What came of it.
    pub verdict: Verdict,
    /// What the sender was answered.
    pub status: u16,
    /// The event it made or repeated.
    pub event: Option<EventId>,
    /// The identity by which it is a duplicate.
    pub same: Option<String>,
    /// The word for why it was turned away.
    pub reason: Option<String>,
    /// Why, in a sentence.
    pub why: Option<String>,
    /// The sender's id of it.
    pub delivery: Option<String>,
    /// Bytes of its body.
    pub bytes: usize,
}

impl Heard {
    /// Of a delivery to this source, without more.
    pub fn new(source: Option<Arc<str>>, verdict: Verdict, at: Timestamp) -> Self {
        let (path, event, same, reason, why, delivery) = (None, None, None, None, None, None);
        Self { at, source, path, verdict, status: 0, event, same, reason, why, delivery, bytes: 0 }
    }

    /// The same with long texts cut: senders choose them.
    #[must_use]
    pub(super) fn cut(mut self) -> Self {
        for text in [&mut self.path, &mut self.reason, &mut self.why, &mut self.delivery].into_iter().flatten() {
            if let Some((end, _)) = text.char_indices().nth(limits::TURNED_AWAY_CHARS_MAX) {
                text.truncate(end);
                text.push('…');
            }
        }
        self
    }
}

/// The last few deliveries that did not become events.
#[derive(Debug, Default)]
pub(super) struct TurnedAway(Mutex<VecDeque<Heard>>);

impl TurnedAway {
    pub(super) fn push(&self, heard: Heard) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.len() == limits::TURNED_AWAY_MAX {
            ring.pop_front();
        }
        ring.push_back(heard);
    }

    pub(super) fn all(&self) -> Vec<Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_few_are_remembered_and_long_texts_are_cut() {
        let ring = TurnedAway::default();
        for n in 0..200 {
            let why = Some("é".repeat(n * 100));
            let heard = Heard { why, ..Heard::new(None, Verdict::Refused, Timestamp(n.try_into().unwrap())) };
            ring.push(heard.cut());
        }
        let all = ring.all();
        assert_eq!((all.len(), all[0].at), (limits::TURNED_AWAY_MAX, Timestamp(200 - 64)));
        let longest = all.iter().filter_map(|heard| heard.why.as_ref()).map(|why| why.chars().count()).max();
        assert_eq!(longest, Some(limits::TURNED_AWAY_CHARS_MAX + 1));
    }
}
