//! Notes of duplicates, held back in memory until something else is written or a second is over: a storm of repeats
//! costs the writing thread one row for each event, not one for each repeat.

use crate::decide::id::EventId;
use crate::decide::limits::{NOTED_EVENTS_MAX, SIGHTINGS_MAX};
use crate::decide::time::Duration;
use crate::store::{Note, Sighting};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How long a note is held back for want of another write.
const NOTE_HELD: Duration = Duration::from_secs(1);

/// What is held back, shared by who notes and the one who writes.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    of: HashMap<EventId, Seen>,
    since: Option<Instant>,
    closing: bool,
}

/// What was seen of one event's duplicates.
#[derive(Default)]
pub(super) struct Seen {
    /// How many.
    pub(super) count: u64,
    /// The first of them.
    pub(super) first: Vec<Sighting>,
}

impl Notes {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds these; says whether the writing thread must hear of them. When it has not come by for long, what would be a
    /// new row is left out: a note is not worth more.
    pub(super) fn add(&self, notes: Vec<Note>) -> bool {
        let mut held = self.held();
        for Note { event, sighting } in notes {
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
        first
    }

    /// How long until they must be written; `None`: there are none.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.held().since.map(|since| NOTE_HELD.saturating_sub(since.elapsed()))
    }

    pub(super) fn are_due(&self) -> bool {
        let held = self.held();
        held.since.is_some_and(|since| held.closing || since.elapsed() >= NOTE_HELD)
    }

    /// Nobody will come by any more.
    pub(super) fn close(&self) {
        self.held().closing = true;
    }

    pub(super) fn take(&self) -> HashMap<EventId, Seen> {
        let mut held = self.held();
        held.since = None;
        std::mem::take(&mut held.of)
    }
}
