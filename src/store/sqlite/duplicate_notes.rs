//! Duplicate notes, buffered in memory until another write or for up to a second, then again for a second: a burst of
//! duplicates costs the writer one row per event, not one per duplicate. They are written a few at a time, so that no
//! claim waits for many of them.

use crate::decide::id::EventId;
use crate::decide::limits::{NOTED_EVENTS_MAX, SIGHTINGS_MAX};
use crate::decide::time::Duration;
use crate::store::{DuplicateNote, DuplicateSighting};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How long a note is buffered without another write, or after others were written.
const NOTE_HELD: Duration = Duration::from_secs(1);
/// Number of events from which notes are no longer buffered, so that none has to be dropped.
const MANY: usize = NOTED_EVENTS_MAX / 2;
/// Rows of notes per transaction: about two milliseconds.
const ROWS_MAX: usize = 512;

/// The buffer, shared with the writer thread.
#[derive(Clone, Default)]
pub(super) struct DuplicateNotes(Arc<Mutex<BufferedNotes>>);

#[derive(Default)]
struct BufferedNotes {
    of: HashMap<EventId, DuplicateTally>,
    since: Option<Instant>,
    /// Those being written, the first last, and since when.
    ripe: Vec<(EventId, DuplicateTally)>,
    ripe_at: Option<Instant>,
    closing: bool,
}

/// The duplicates of one event.
#[derive(Default)]
pub(super) struct DuplicateTally {
    /// How many.
    pub(super) count: u64,
    /// The first of them.
    pub(super) first: Vec<DuplicateSighting>,
}

/// The other content of the transaction that takes notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransactionWrites {
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

    /// Adds notes; returns whether the writer must be woken. If the writer has not taken any for long, notes that would
    /// need a new row are dropped.
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

    /// How long until they must be written; `None` if there are none.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.held().due_in()
    }

    pub(super) fn are_due(&self) -> bool {
        self.due_in() == Some(Duration::ZERO)
    }

    /// The writer is closing: write the rest.
    pub(super) fn close(&self) {
        self.held().closing = true;
    }

    /// Takes the notes for this transaction, in the order of their events.
    pub(super) fn take(&self, besides: TransactionWrites) -> Vec<(EventId, DuplicateTally)> {
        let mut held = self.held();
        let due = held.due_in() == Some(Duration::ZERO);
        if held.ripe.is_empty()
            && (due || besides == TransactionWrites::Writes && held.may_go_along())
            && held.since.is_some()
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

    /// Puts back what was taken for a transaction that is run again.
    pub(super) fn put_back(&self, taken: Vec<(EventId, DuplicateTally)>) {
        self.held().ripe.extend(taken.into_iter().rev());
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
        assert!(notes.take(TransactionWrites::Writes).is_empty() && notes.due_in().is_none());
        assert!(notes.add(vec![note(1)]), "the first wakes the writer");
        assert!(notes.take(TransactionWrites::Nothing).is_empty(), "it is buffered");
        assert_eq!(notes.take(TransactionWrites::Writes).len(), 1, "it is written along");
        notes.add((0..1_000).chain(0..1_000).map(note).collect());
        assert!(notes.take(TransactionWrites::Writes).is_empty(), "others were written just now");
        notes.close();
        let mut all = Vec::new();
        while notes.are_due() {
            let taken = notes.take(TransactionWrites::Nothing);
            assert!((1..=ROWS_MAX).contains(&taken.iter().map(|(_, seen)| seen.first.len()).sum()));
            all.extend(taken.into_iter().map(|(event, seen)| (event, seen.count)));
        }
        assert_eq!(all, (0..1_000).map(|n| (note(n).event, 2)).collect::<Vec<_>>());
    }

    #[test]
    fn many_notes_wake_the_writer_and_are_not_buffered() {
        let notes = DuplicateNotes::default();
        notes.add(vec![note(0)]);
        let many = u32::try_from(MANY).unwrap();
        assert!(!notes.add((1..many - 1).map(note).collect()) && !notes.are_due());
        assert!(notes.add(vec![note(many)]) && notes.are_due());
    }
}
