//! A batch of swaps against what the cells really are: which of them hold, and what all of those come to. Pure: what
//! is locked and written around it stands in `write.rs`.

use crate::decide::change::Tried;
use crate::decide::claim::Payload;
use crate::decide::event::{Event, Receipt, State};
use crate::decide::id::{EventId, Key};
use crate::store::ledger::{Held, Register, Row};
use crate::store::shared::{Cell, Op, Seen, Swap, Version};
use crate::store::{Hint, Sighting};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What every cell of a batch must be before anything of it is written: as the first that names it has seen it.
pub(super) fn first_seen(swaps: &[Swap]) -> BTreeMap<Cell, Seen> {
    let mut first = BTreeMap::new();
    for (cell, seen) in swaps.iter().flat_map(|swap| &swap.seen) {
        first.entry(*cell).or_insert(*seen);
    }
    first
}

/// Keys that some swap gives to somebody, with the first to get it.
pub(super) fn held(swaps: &[Swap]) -> BTreeMap<Key, &Held> {
    let mut held = BTreeMap::new();
    for op in swaps.iter().flat_map(|swap| &swap.ops) {
        if let Op::Hold(key, by) = op {
            held.entry(*key).or_insert(by);
        }
    }
    held
}

/// Does this batch only write new events with new keys? Then the tables' own keys are all the lock it needs.
pub(super) fn only_adds(swaps: &[Swap], first: &BTreeMap<Cell, Seen>) -> bool {
    let new = |(cell, seen): (&Cell, &Seen)| matches!(cell, Cell::Key(_) | Cell::Event(_)) && *seen == Seen::Absent;
    let adds = |op: &Op| matches!(op, Op::Put { .. } | Op::Hold(..));
    first.iter().all(new) && swaps.iter().flat_map(|swap| &swap.ops).all(adds)
}

/// What becomes of an event's answer.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) enum Kept<'s> {
    /// It stays.
    #[default]
    AsItWas,
    /// It goes.
    Gone,
    /// This one takes its place.
    As(&'s Receipt),
}

/// What becomes of one event.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and any of them may be so together")]
#[derive(Debug, Default)]
pub(super) struct Fate<'s> {
    /// What was there is removed, all of it; what is below comes after that.
    pub(super) gone: bool,
    /// Its row as it ends up.
    pub(super) row: Option<(&'s Row, Version)>,
    /// That row is a new one.
    pub(super) new: bool,
    /// A new event's body is kept.
    pub(super) payload: Option<&'s Payload>,
    /// Its body was replaced, and with it what never changes by itself.
    pub(super) fixed: Option<&'s Event>,
    /// Its body, receipt and output go.
    pub(super) bare: bool,
    /// Its answer.
    pub(super) receipt: Kept<'s>,
    /// Attempts that ended.
    pub(super) tried: Vec<&'s Tried>,
    /// Headers that were only kept to be passed on go.
    pub(super) shed: bool,
    /// How many duplicates there were, and the first few.
    pub(super) seen: Option<(u64, &'s [Sighting])>,
}

/// What a batch comes to.
#[derive(Debug, Default)]
pub(super) struct Effect<'s> {
    pub(super) events: BTreeMap<EventId, Fate<'s>>,
    pub(super) keys: BTreeMap<Key, &'s Held>,
    pub(super) registers: BTreeMap<Key, Option<(&'s Register, Version)>>,
    pub(super) slots: BTreeMap<Key, Option<(EventId, Version)>>,
    pub(super) imported: BTreeSet<Key>,
}

/// Goes through the swaps in order. Each holds if all it has seen is so, given those before it that hold.
pub(super) fn settle<'s>(swaps: &'s [Swap], actual: &mut HashMap<Cell, Seen>) -> (Vec<bool>, Effect<'s>) {
    let mut effect = Effect::default();
    let one = |swap: &'s Swap| {
        let holds = swap.seen.iter().all(|(cell, seen)| actual.get(cell) == Some(seen));
        if holds {
            swap.ops.iter().for_each(|op| effect.apply(op, actual));
        }
        holds
    };
    let written = swaps.iter().map(one).collect();
    (written, effect)
}

impl<'s> Effect<'s> {
    /// What other nodes may want to hear of it. Nobody can be waiting for the end of an event that is new.
    pub(super) fn hints(&self) -> Vec<Hint> {
        let rows = self.events.values().filter_map(|fate| fate.row.map(|(row, _)| (&row.event, fate.new)));
        let hint = |(event, new): (&Event, bool)| match event.state {
            State::Waiting { due: Some(_) } => {
                Some(Hint::Due { source: event.source.clone(), route: event.route.clone() })
            }
            State::Done { .. } | State::Dead { .. } if !new => Some(Hint::Ended(event.id)),
            _ => None,
        };
        rows.filter_map(hint).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn fate(&mut self, id: EventId) -> &mut Fate<'s> {
        self.events.entry(id).or_default()
    }

    fn apply(&mut self, op: &'s Op, actual: &mut HashMap<Cell, Seen>) {
        match op {
            Op::Put { was, row, version, payload } => {
                let fate = self.fate(row.event.id);
                fate.row = Some((row, *version));
                fate.new |= was.is_none();
                fate.payload = payload.as_ref().or(fate.payload);
                actual.insert(Cell::Event(row.event.id), Seen::Version(*version));
            }
            Op::Remove(id, _) => {
                *self.fate(*id) = Fate { gone: true, ..Fate::default() };
                self.keys.retain(|_, held| held.event != *id);
                actual.insert(Cell::Event(*id), Seen::Absent);
                actual.values_mut().filter(|seen| **seen == Seen::Holder(*id)).for_each(|seen| *seen = Seen::Absent);
            }
            Op::Hold(key, held) => {
                self.keys.insert(*key, held);
                actual.insert(Cell::Key(*key), Seen::Holder(held.event));
            }
            Op::SetImported(key) => {
                self.imported.insert(*key);
            }
            Op::SetRegister(key, register, version) => {
                self.registers.insert(*key, Some((register, *version)));
                actual.insert(Cell::Register(*key), Seen::Version(*version));
            }
            Op::RemoveRegister(key) => {
                self.registers.insert(*key, None);
                actual.insert(Cell::Register(*key), Seen::Absent);
            }
            Op::SetSlot(group, holder, version) => {
                self.slots.insert(*group, Some((*holder, *version)));
                actual.insert(Cell::Slot(*group), Seen::Version(*version));
            }
            Op::FreeSlot(group) => {
                self.slots.insert(*group, None);
                actual.insert(Cell::Slot(*group), Seen::Absent);
            }
            Op::SetPayload(event, payload) => {
                let fate = self.fate(event.id);
                (fate.fixed, fate.payload, fate.bare) = (Some(&**event), Some(payload), false);
            }
            Op::SetReceipt(id, receipt) => self.fate(*id).receipt = receipt.as_ref().map_or(Kept::Gone, Kept::As),
            Op::Shed(id) => self.fate(*id).shed = true,
            Op::SetTried(id, tried) => self.fate(*id).tried.push(tried),
            Op::SetSightings(id, count, seen) => self.fate(*id).seen = Some((*count, seen)),
            Op::RemoveBody(row) => {
                let fate = self.fate(row.event.id);
                (fate.bare, fate.payload, fate.receipt) = (true, None, Kept::Gone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::claim::Same;

    fn id(n: u8) -> EventId {
        EventId([n; 16])
    }

    fn key(n: u8) -> Key {
        Key([n; 32])
    }

    fn hold(n: u8, event: u8) -> Op {
        Op::Hold(key(n), Held { event: id(event), same: Same::Body, alias: false, id_digest: None })
    }

    fn swap(seen: &[(Cell, Seen)], ops: Vec<Op>) -> Swap {
        Swap { seen: seen.to_vec(), ops }
    }

    fn check(swaps: &[Swap], actual: &[(Cell, Seen)], expected: &[bool]) {
        let mut actual = actual.iter().copied().collect();
        assert_eq!(settle(swaps, &mut actual).0, expected);
    }

    #[test]
    fn a_swap_holds_only_on_what_is_so_and_on_those_before_it_that_hold() {
        let cell = Cell::Key(key(1));
        let first = swap(&[(cell, Seen::Absent)], vec![hold(1, 1)]);
        let leans = swap(&[(cell, Seen::Holder(id(1)))], vec![]);
        check(&[first.clone(), leans.clone()], &[(cell, Seen::Absent)], &[true, true]);
        check(&[first.clone(), leans.clone()], &[(cell, Seen::Holder(id(9)))], &[false, false]);
        check(&[first.clone(), leans], &[(cell, Seen::Holder(id(1)))], &[false, true]);
        check(&[first], &[], &[false]);
    }

    #[test]
    fn an_event_that_goes_frees_its_keys_for_the_next_of_the_batch() {
        let (one, two, event) = (Cell::Key(key(1)), Cell::Key(key(2)), Cell::Event(id(1)));
        let version = Seen::Version(Version(7));
        let removes = swap(&[(one, Seen::Holder(id(1))), (event, version)], vec![Op::Remove(id(1), None), hold(1, 2)]);
        let takes = swap(&[(two, Seen::Absent)], vec![hold(2, 3)]);
        let mut actual = [(one, Seen::Holder(id(1))), (two, Seen::Holder(id(1))), (event, version)].into();
        let swaps = [removes, takes];
        let (written, effect) = settle(&swaps, &mut actual);
        assert_eq!(written, [true, true]);
        assert!(effect.events[&id(1)].gone);
        let holders: Vec<_> = effect.keys.values().map(|held| held.event).collect();
        assert_eq!(holders, [id(2), id(3)]);
    }

    #[test]
    fn what_is_made_and_removed_in_one_batch_leaves_nothing() {
        let cell = Cell::Key(key(1));
        let makes = swap(&[(cell, Seen::Absent)], vec![hold(1, 1)]);
        let removes = swap(&[(cell, Seen::Holder(id(1)))], vec![Op::Remove(id(1), None)]);
        let swaps = [makes, removes];
        let (_, effect) = settle(&swaps, &mut [(cell, Seen::Absent)].into());
        assert!(effect.keys.is_empty() && effect.events[&id(1)].gone && effect.events[&id(1)].row.is_none());
    }
}
