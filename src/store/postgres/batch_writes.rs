//! A batch of conditional writes, checked against the actual records: which of them apply, and their combined effect.
//! Pure: the locking and writing around it is in `write.rs`.

use crate::decide::claim::Payload;
use crate::decide::event::{Event, EventState, Receipt};
use crate::decide::id::{EventId, Key};
use crate::decide::ledger::{EventRow, KeyOwner, SubjectRegister};
use crate::decide::transition::AttemptRecord;
use crate::store::optimistic::{ConditionalWrite, ExpectedVersion, RecordId, RecordVersion, RecordWrite};
use crate::store::{ChangeHint, DuplicateSighting};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The version that every record of a batch must have before the batch: as expected by the first write that names it.
pub(super) fn first_seen(swaps: &[ConditionalWrite]) -> BTreeMap<RecordId, ExpectedVersion> {
    let mut first = BTreeMap::new();
    for (cell, seen) in swaps.iter().flat_map(|swap| &swap.seen) {
        first.entry(*cell).or_insert(*seen);
    }
    first
}

/// Keys that some write claims, with the first claimant.
pub(super) fn held(swaps: &[ConditionalWrite]) -> BTreeMap<Key, &KeyOwner> {
    let mut held = BTreeMap::new();
    for op in swaps.iter().flat_map(|swap| &swap.ops) {
        if let RecordWrite::Hold(key, by) = op {
            held.entry(*key).or_insert(by);
        }
    }
    held
}

/// Does this batch only add new events with new keys? Then the unique constraints are all the locking it needs.
pub(super) fn only_adds(swaps: &[ConditionalWrite], first: &BTreeMap<RecordId, ExpectedVersion>) -> bool {
    let new = |(cell, seen): (&RecordId, &ExpectedVersion)| {
        matches!(cell, RecordId::Key(_) | RecordId::Event(_)) && *seen == ExpectedVersion::Absent
    };
    let adds = |op: &RecordWrite| matches!(op, RecordWrite::Put { .. } | RecordWrite::Hold(..));
    first.iter().all(new) && swaps.iter().flat_map(|swap| &swap.ops).all(adds)
}

/// Does every expectation of this batch follow from what it writes? Then it is written at once: the unique constraints
/// check what is new, and the update of the events checks their versions. Whatever more it expects or removes is locked
/// and compared first.
pub(super) fn checks_itself(first: &BTreeMap<RecordId, ExpectedVersion>, effect: &BatchWrites<'_>) -> bool {
    let is_checked = |(cell, seen): (&RecordId, &ExpectedVersion)| match (cell, seen) {
        (RecordId::Key(key), ExpectedVersion::Absent) => effect.keys.contains_key(key),
        (RecordId::Event(id), ExpectedVersion::Absent) => effect.events.get(id).is_some_and(|fate| fate.new),
        (RecordId::Event(_), ExpectedVersion::Version(_)) => true,
        _ => false,
    };
    let is_plain = |fate: &EventWrites<'_>| !fate.gone && !fate.bare && fate.fixed.is_none() && fate.seen.is_none();
    let writes_no_other = effect.registers.is_empty() && effect.slots.is_empty() && effect.imported.is_empty();
    writes_no_other && effect.events.values().all(is_plain) && first.iter().all(is_checked)
}

/// The existing events that a batch expects, and their versions, by id.
pub(super) fn expected_events(first: &BTreeMap<RecordId, ExpectedVersion>) -> Vec<(EventId, RecordVersion)> {
    let of = |(cell, seen): (&RecordId, &ExpectedVersion)| match (cell, seen) {
        (RecordId::Event(id), ExpectedVersion::Version(version)) => Some((*id, *version)),
        _ => None,
    };
    first.iter().filter_map(of).collect()
}

/// The change to an event's receipt.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) enum ReceiptWrite<'s> {
    /// It stays.
    #[default]
    AsItWas,
    /// It is removed.
    Gone,
    /// It is replaced by this one.
    As(&'s Receipt),
}

/// The combined writes to one event.
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
#[derive(Debug, Default)]
pub(super) struct EventWrites<'s> {
    /// What was there is removed, all of it; the rest of this struct comes after that.
    pub(super) gone: bool,
    /// Its final row.
    pub(super) row: Option<(&'s EventRow, RecordVersion)>,
    /// That row is a new one.
    pub(super) new: bool,
    /// The body of a new event.
    pub(super) payload: Option<&'s Payload>,
    /// Its body was replaced, and with it the columns that are otherwise never rewritten.
    pub(super) fixed: Option<&'s Event>,
    /// Its body, receipt and output are removed.
    pub(super) bare: bool,
    /// Its answer.
    pub(super) receipt: ReceiptWrite<'s>,
    /// Attempts that ended.
    pub(super) tried: Vec<&'s AttemptRecord>,
    /// Its transient headers are removed.
    pub(super) shed: bool,
    /// How many duplicates there were, and the first few.
    pub(super) seen: Option<(u64, &'s [DuplicateSighting])>,
}

/// The combined writes of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchWrites<'s> {
    pub(super) events: BTreeMap<EventId, EventWrites<'s>>,
    pub(super) keys: BTreeMap<Key, &'s KeyOwner>,
    pub(super) registers: BTreeMap<Key, Option<(&'s SubjectRegister, RecordVersion)>>,
    pub(super) slots: BTreeMap<Key, Option<(EventId, RecordVersion)>>,
    pub(super) imported: BTreeSet<Key>,
}

/// Goes through the writes in order. Each applies if all its expectations hold after the earlier ones that apply.
pub(super) fn settle<'s>(
    swaps: &'s [ConditionalWrite],
    actual: &mut HashMap<RecordId, ExpectedVersion>,
) -> (Vec<bool>, BatchWrites<'s>) {
    let mut effect = BatchWrites::default();
    let one = |swap: &'s ConditionalWrite| {
        let holds = swap.seen.iter().all(|(cell, seen)| actual.get(cell) == Some(seen));
        if holds {
            swap.ops.iter().for_each(|op| effect.apply(op, actual));
        }
        holds
    };
    let written = swaps.iter().map(one).collect();
    (written, effect)
}

impl<'s> BatchWrites<'s> {
    /// Hints for other nodes. The end of a new event is left out: no node can be waiting for it.
    pub(super) fn hints(&self) -> Vec<ChangeHint> {
        let rows = self.events.values().filter_map(|fate| fate.row.map(|(row, _)| (&row.event, fate.new)));
        let hint = |(event, new): (&Event, bool)| match event.state {
            EventState::Waiting { due: Some(_) } => {
                Some(ChangeHint::Due { source: event.source.clone(), route: event.route.clone() })
            }
            EventState::Done { .. } | EventState::Dead { .. } if !new => Some(ChangeHint::Ended(event.id)),
            _ => None,
        };
        rows.filter_map(hint).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn fate(&mut self, id: EventId) -> &mut EventWrites<'s> {
        self.events.entry(id).or_default()
    }

    fn apply(&mut self, op: &'s RecordWrite, actual: &mut HashMap<RecordId, ExpectedVersion>) {
        match op {
            RecordWrite::Put { was, row, version, payload } => {
                let fate = self.fate(row.event.id);
                fate.row = Some((row, *version));
                fate.new |= was.is_none();
                fate.payload = payload.as_ref().or(fate.payload);
                actual.insert(RecordId::Event(row.event.id), ExpectedVersion::Version(*version));
            }
            RecordWrite::Remove(id, _) => {
                *self.fate(*id) = EventWrites { gone: true, ..EventWrites::default() };
                self.keys.retain(|_, held| held.event != *id);
                actual.insert(RecordId::Event(*id), ExpectedVersion::Absent);
                actual
                    .values_mut()
                    .filter(|seen| **seen == ExpectedVersion::Holder(*id))
                    .for_each(|seen| *seen = ExpectedVersion::Absent);
            }
            RecordWrite::Hold(key, held) => {
                self.keys.insert(*key, held);
                actual.insert(RecordId::Key(*key), ExpectedVersion::Holder(held.event));
            }
            RecordWrite::SetImported(key) => {
                self.imported.insert(*key);
            }
            RecordWrite::SetRegister(key, register, version) => {
                self.registers.insert(*key, Some((register, *version)));
                actual.insert(RecordId::Register(*key), ExpectedVersion::Version(*version));
            }
            RecordWrite::RemoveRegister(key) => {
                self.registers.insert(*key, None);
                actual.insert(RecordId::Register(*key), ExpectedVersion::Absent);
            }
            RecordWrite::SetSlot(group, holder, version) => {
                self.slots.insert(*group, Some((*holder, *version)));
                actual.insert(RecordId::Slot(*group), ExpectedVersion::Version(*version));
            }
            RecordWrite::FreeSlot(group) => {
                self.slots.insert(*group, None);
                actual.insert(RecordId::Slot(*group), ExpectedVersion::Absent);
            }
            RecordWrite::SetPayload(event, payload) => {
                let fate = self.fate(event.id);
                (fate.fixed, fate.payload, fate.bare) = (Some(&**event), Some(payload), false);
            }
            RecordWrite::SetReceipt(id, receipt) => {
                self.fate(*id).receipt = receipt.as_ref().map_or(ReceiptWrite::Gone, ReceiptWrite::As);
            }
            RecordWrite::Shed(id) => self.fate(*id).shed = true,
            RecordWrite::SetTried(id, tried) => self.fate(*id).tried.push(tried),
            RecordWrite::SetSightings(id, count, seen) => self.fate(*id).seen = Some((*count, seen)),
            RecordWrite::RemoveBody(row) => {
                let fate = self.fate(row.event.id);
                (fate.bare, fate.payload, fate.receipt) = (true, None, ReceiptWrite::Gone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::claim::MatchedBy;

    fn id(n: u8) -> EventId {
        EventId([n; 16])
    }

    fn key(n: u8) -> Key {
        Key([n; 32])
    }

    fn hold(n: u8, event: u8) -> RecordWrite {
        RecordWrite::Hold(key(n), KeyOwner { event: id(event), same: MatchedBy::Body, alias: false, id_digest: None })
    }

    fn swap(seen: &[(RecordId, ExpectedVersion)], ops: Vec<RecordWrite>) -> ConditionalWrite {
        ConditionalWrite { seen: seen.to_vec(), ops }
    }

    fn check(swaps: &[ConditionalWrite], actual: &[(RecordId, ExpectedVersion)], expected: &[bool]) {
        let mut actual = actual.iter().copied().collect();
        assert_eq!(settle(swaps, &mut actual).0, expected);
    }

    #[test]
    fn a_write_applies_only_if_its_expectations_hold_after_the_writes_before_it() {
        let cell = RecordId::Key(key(1));
        let first = swap(&[(cell, ExpectedVersion::Absent)], vec![hold(1, 1)]);
        let leans = swap(&[(cell, ExpectedVersion::Holder(id(1)))], vec![]);
        check(&[first.clone(), leans.clone()], &[(cell, ExpectedVersion::Absent)], &[true, true]);
        check(&[first.clone(), leans.clone()], &[(cell, ExpectedVersion::Holder(id(9)))], &[false, false]);
        check(&[first.clone(), leans], &[(cell, ExpectedVersion::Holder(id(1)))], &[false, true]);
        check(&[first], &[], &[false]);
    }

    #[test]
    fn a_removed_event_frees_its_keys_for_the_next_write_of_the_batch() {
        let (one, two, event) = (RecordId::Key(key(1)), RecordId::Key(key(2)), RecordId::Event(id(1)));
        let version = ExpectedVersion::Version(RecordVersion(7));
        let removes = swap(
            &[(one, ExpectedVersion::Holder(id(1))), (event, version)],
            vec![RecordWrite::Remove(id(1), None), hold(1, 2)],
        );
        let takes = swap(&[(two, ExpectedVersion::Absent)], vec![hold(2, 3)]);
        let mut actual =
            [(one, ExpectedVersion::Holder(id(1))), (two, ExpectedVersion::Holder(id(1))), (event, version)].into();
        let swaps = [removes, takes];
        let (written, effect) = settle(&swaps, &mut actual);
        assert_eq!(written, [true, true]);
        assert!(effect.events[&id(1)].gone);
        let holders: Vec<_> = effect.keys.values().map(|held| held.event).collect();
        assert_eq!(holders, [id(2), id(3)]);
    }

    #[test]
    fn an_event_added_and_removed_in_one_batch_leaves_nothing() {
        let cell = RecordId::Key(key(1));
        let makes = swap(&[(cell, ExpectedVersion::Absent)], vec![hold(1, 1)]);
        let removes = swap(&[(cell, ExpectedVersion::Holder(id(1)))], vec![RecordWrite::Remove(id(1), None)]);
        let swaps = [makes, removes];
        let (_, effect) = settle(&swaps, &mut [(cell, ExpectedVersion::Absent)].into());
        assert!(effect.keys.is_empty() && effect.events[&id(1)].gone && effect.events[&id(1)].row.is_none());
    }
}
