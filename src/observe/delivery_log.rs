//! Records of recent deliveries and their verdicts: sent to listeners, and remembered for a while if they made no
//! event.

use crate::decide::id::EventId;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The verdict about a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeliveryVerdict {
    /// It made a new event, or gives a dead one another attempt.
    Accepted,
    /// Its event was claimed before.
    Duplicate,
    /// Its subject was changed by something newer.
    Stale,
    /// It is verified, but no route wants it.
    Ignored,
    /// It failed verification, or cannot be read.
    Refused,
    /// The store or the node could not accept it.
    Unavailable,
}

impl DeliveryVerdict {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 6] =
        [Self::Accepted, Self::Duplicate, Self::Stale, Self::Ignored, Self::Refused, Self::Unavailable];

    /// Its name.
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

    /// The verdict with this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.word() == word)
    }
}

/// One delivery and its verdict. Its body, signature and other headers are not included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryRecord {
    /// When it arrived, by the store's clock.
    pub at: Timestamp,
    /// The source it was for; `None` if no source has its path.
    pub source: Option<Arc<str>>,
    /// Its path, if no source has it.
    pub path: Option<String>,
    /// The verdict.
    pub verdict: DeliveryVerdict,
    /// The status of the response.
    pub status: u16,
    /// The event it made or repeated.
    pub event: Option<EventId>,
    /// The identity by which it is a duplicate.
    pub same: Option<String>,
    /// The code of the reason for a rejection.
    pub reason: Option<String>,
    /// Why, in a sentence.
    pub why: Option<String>,
    /// The sender's id of it.
    pub delivery: Option<String>,
    /// Bytes of its body.
    pub bytes: usize,
    /// The address of its client.
    pub from: Option<IpAddr>,
}

impl DeliveryRecord {
    /// A delivery to this source, without details.
    pub fn new(source: Option<Arc<str>>, verdict: DeliveryVerdict, at: Timestamp) -> Self {
        let (path, event, same, reason, why, delivery) = (None, None, None, None, None, None);
        Self { at, source, path, verdict, status: 0, event, same, reason, why, delivery, bytes: 0, from: None }
    }

    /// The same with long texts truncated: senders choose them.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        let Self { path, same, reason, why, delivery, .. } = &mut self;
        for text in [path, same, reason, why, delivery].into_iter().flatten() {
            if text.len() > limits::TURNED_AWAY_CHARS_MAX
                && let Some((end, _)) = text.char_indices().nth(limits::TURNED_AWAY_CHARS_MAX)
            {
                text.truncate(end);
                text.push('…');
            }
        }
        self
    }
}

/// The last few deliveries that made no event. Each kind has its own limit: forged signatures must not evict ignored
/// deliveries.
#[derive(Debug, Default)]
pub(super) struct RecentDeliveries(Mutex<DeliveryRings>);

#[derive(Debug, Default)]
struct DeliveryRings {
    refused: VecDeque<DeliveryRecord>,
    ignored: VecDeque<DeliveryRecord>,
    others: VecDeque<DeliveryRecord>,
}

impl RecentDeliveries {
    fn rings(&self) -> MutexGuard<'_, DeliveryRings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, heard: DeliveryRecord) {
        let mut rings = self.rings();
        let (ring, most) = match heard.verdict {
            DeliveryVerdict::Refused => (&mut rings.refused, limits::TURNED_AWAY_MAX),
            DeliveryVerdict::Ignored => (&mut rings.ignored, limits::TURNED_AWAY_MAX),
            DeliveryVerdict::Accepted
            | DeliveryVerdict::Duplicate
            | DeliveryVerdict::Stale
            | DeliveryVerdict::Unavailable => (&mut rings.others, limits::REPEATS_REMEMBERED),
        };
        if ring.len() == most {
            ring.pop_front();
        }
        ring.push_back(heard);
    }

    pub(super) fn all(&self) -> Vec<DeliveryRecord> {
        let rings = self.rings();
        rings.refused.iter().chain(&rings.ignored).chain(&rings.others).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_few_are_remembered_and_long_texts_are_truncated() {
        let ring = RecentDeliveries::default();
        for n in 0..200 {
            let why = Some("é".repeat(n * 100));
            let heard = DeliveryRecord {
                why,
                ..DeliveryRecord::new(None, DeliveryVerdict::Refused, Timestamp(n.try_into().unwrap()))
            };
            ring.push(heard.truncated());
        }
        let all = ring.all();
        assert_eq!((all.len(), all[0].at), (limits::TURNED_AWAY_MAX, Timestamp(200 - 64)));
        let longest = all.iter().filter_map(|heard| heard.why.as_ref()).map(|why| why.chars().count()).max();
        assert_eq!(longest, Some(limits::TURNED_AWAY_CHARS_MAX + 1));
    }

    #[test]
    fn refused_deliveries_do_not_evict_ignored_or_duplicate_ones() {
        let ring = RecentDeliveries::default();
        for verdict in [DeliveryVerdict::Ignored, DeliveryVerdict::Duplicate, DeliveryVerdict::Stale] {
            ring.push(DeliveryRecord::new(None, verdict, Timestamp(1)));
        }
        for n in 0..1000 {
            ring.push(DeliveryRecord::new(None, DeliveryVerdict::Refused, Timestamp(n)));
        }
        let of = |verdict| ring.all().iter().filter(|heard| heard.verdict == verdict).count();
        assert_eq!(DeliveryVerdict::ALL.map(of), [0, 1, 1, 1, limits::TURNED_AWAY_MAX, 0]);
    }
}
