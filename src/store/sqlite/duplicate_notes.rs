//! Notes of duplicates, held back in memory until something else is written or a second is over, and then for a second
//! again: a storm of repeats costs the writing thread one row for each event, not one for each repeat. They are written
//! a few at a time, so that no claim waits for many of them.

use crate::decide::id::EventId;
use crate::decide::limits::{NOTED_EVENTS_MAX, SIGHTINGS_MAX};
use crate::decide::time::Duration;
use crate::store::{DuplicateNote, DuplicateSighting};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How long a note is held back for want of another write, or after others were written.
const NOTE_HELD: Duration = Duration::from_secs(1);
/// Events whose notes are not held back any longer, so that none has to be left out.
const MANY: usize = NOTED_EVENTS_MAX / 2;
/// Rows of one transaction that are notes: about two milliseconds.
const ROWS_MAX: usize = 512;

/// What is held back, shared by who notes and the one who writes.
#[derive(Clone, Default)]
pub(super) struct DuplicateNotes(Arc<Mutex<BufferedNotes>>);

#[derive(Default)]
struct BufferedNotes {
    of: HashMap<EventId, DuplicateTally>,
    since: Option<Instant>,
    /// Those that are being written, the first last, and since when.
    ripe: Vec<(EventId, DuplicateTally)>,
    ripe_at: Option<Instant>,
    closing: bool,
}

/// What was seen of one event's duplicates.
#[derive(Default)]
pub(super) struct DuplicateTally {
    /// How many.
    pub(super) count: u64,
    /// The first of them.
    pub(super) first: Vec<DuplicateSighting>,
}

/// What the transaction that asks for notes does besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TxnContent {
    /// It writes.
    Writes,
    /// Nothing that would be written.
    Nothing,
}

impl BufferedNotes {
    fn due_in(&self) -> Option<Duration> {
        let at_once = self.closing || self.of.len() >= MANY;
        match self.since {
            _ if !self.ripe.is_empty() => Some(Duration::ZERO),
            Some(_) if at_once => Some(Duration::ZERO),
            since => since.map(|since| NOTE_HELD.saturating_sub(since.elapsed())),
        }
    }

    fn may_go_along(&self) -> bool {
        self.ripe_at.is_none_or(|at| at.elapsed() >= NOTE_HELD)
    }
}

impl DuplicateNotes {
    fn held(&self) -> MutexGuard<'_, BufferedNotes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds these; says whether the writing thread must hear of them. When it has not come by for long, what would be a
    /// new row is left out: a note is not worth more.
    pub(super) fn add(&self, notes: Vec<DuplicateNote>) -> bool {
        let mut held = self.held();
        let before = held.of.len();
        for DuplicateNote { event, sighting } in notes {
            let full = held.of.len() >= NOTED_EVENTS_MAX;
            let seen = match held.of.entry(event) {
                Entry::Vacant(_) if full => continue,
                entry => entry.or_default(),
            };
            seen.count += 1;
            if seen.first.len() < SIGHTINGS_MAX {
                seen.first.push(sighting);
            }
        }
        let first = held.since.is_none();
        held.since.get_or_insert_with(Instant::now);
        first || before < MANY && held.of.len() >= MANY
    }

    /// How long until they must be written; `None`: there are none.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.held().due_in()
    }

    pub(super) fn are_due(&self) -> bool {
        self.due_in() == Some(Duration::ZERO)
    }

    /// Nobody will come by any more.
    pub(super) fn close(&self) {
        self.held().closing = true;
    }

    /// Those that go into this transaction, in the order of their events.
    pub(super) fn take(&self, besides: TxnContent) -> Vec<(EventId, DuplicateTally)> {
        let mut held = self.held();
        let due = held.due_in() == Some(Duration::ZERO);
        if held.ripe.is_empty() && (due || besides == TxnContent::Writes && held.may_go_along()) && held.since.is_some()
        {
            (held.since, held.ripe_at) = (None, Some(Instant::now()));
            held.ripe = held.of.drain().collect();
            held.ripe.sort_unstable_by_key(|(event, _)| std::cmp::Reverse(*event));
        }
        let (mut taken, mut rows) = (Vec::new(), 0);
        while let Some((event, seen)) = held.ripe.pop_if(|_| rows < ROWS_MAX) {
            rows += 1 + seen.first.len();
            taken.push((event, seen));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::claim::MatchedBy;
    use crate::decide::time::Timestamp;

    fn note(n: u32) -> DuplicateNote {
        let event = EventId(u128::from(n).to_be_bytes());
        DuplicateNote {
            event,
            sighting: DuplicateSighting { at: Timestamp(0), delivery_id: None, same: MatchedBy::Body },
        }
    }

    #[test]
    fn notes_go_along_with_a_write_once_a_second_a_few_at_a_time_and_none_is_lost() {
        let notes = DuplicateNotes::default();
        assert!(notes.take(TxnContent::Writes).is_empty() && notes.due_in().is_none());
        assert!(notes.add(vec![note(1)]), "the first is told");
        assert!(notes.take(TxnContent::Nothing).is_empty(), "it is held back");
        assert_eq!(notes.take(TxnContent::Writes).len(), 1, "it goes along");
        notes.add((0..1_000).chain(0..1_000).map(note).collect());
        assert!(notes.take(TxnContent::Writes).is_empty(), "others were written just now");
        notes.close();
        let mut all = Vec::new();
        while notes.are_due() {
            let taken = notes.take(TxnContent::Nothing);
            assert!((1..=ROWS_MAX).contains(&taken.iter().map(|(_, seen)| seen.first.len()).sum()));
            all.extend(taken.into_iter().map(|(event, seen)| (event, seen.count)));
        }
        assert_eq!(all, (0..1_000).map(|n| (note(n).event, 2)).collect::<Vec<_>>());
    }

    #[test]
    fn many_notes_are_told_and_not_held_back() {
        let notes = DuplicateNotes::default();
        notes.add(vec![note(0)]);
        let many = u32::try_from(MANY).unwrap();
        assert!(!notes.add((1..many - 1).map(note).collect()) && !notes.are_due());
        assert!(notes.add(vec![note(many)]) && notes.are_due());
    }
}
