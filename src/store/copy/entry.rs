//! The entries of a store: all of its contents, in an order that every store can follow.

use super::CopyStore;
use crate::decide::claim::Payload;
use crate::decide::event::Receipt;
use crate::decide::id::{Digest, EventId, Key};
use crate::decide::identity::key;
use crate::decide::identity::key::KeyPart;
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{EventRow, KeyOwner, SubjectRegister};
use crate::decide::transition::AttemptRecord;
use crate::store::inspect::QuarantinedMessage;
use crate::store::{DuplicateSighting, SourceRetention};
use std::sync::Arc;

/// One entry of a store, with all that belongs to it.
#[derive(Clone, PartialEq, Debug)]
pub enum CopyEntry {
    /// An event.
    Event(Box<CompleteEvent>),
    /// What a subject was last changed to.
    Register(Key, SubjectRegister),
    /// The holder of a group's slot.
    Slot(Key, EventId),
    /// A key that was imported.
    Imported(Key),
    /// What a scope's identities are made of.
    Recipe(IdentityRecipe),
    /// How long a source's events are kept.
    Retention(SourceRetention),
    /// A message in quarantine.
    Quarantined(Box<QuarantinedMessage>),
}

/// An event with all that belongs to it.
#[derive(Clone, PartialEq, Debug)]
pub struct CompleteEvent {
    /// Its row.
    pub row: EventRow,
    /// Its keys, in the order of their bytes.
    pub keys: Vec<(Key, KeyOwner)>,
    /// Headers and body, while they are kept.
    pub payload: Option<Payload>,
    /// The stored response.
    pub receipt: Option<Receipt>,
    /// Attempts that ended.
    pub tried: Vec<AttemptRecord>,
    /// How many duplicates there were.
    pub duplicates: u64,
    /// The first few of them.
    pub sightings: Vec<DuplicateSighting>,
}

/// Where to continue reading: the kind of entry, and the last one of that kind that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyCursor {
    /// Events, by id.
    Events(Option<EventId>),
    /// Registers, by key.
    Registers(Option<Key>),
    /// Slots, by group.
    Slots(Option<Key>),
    /// Imported keys, by key.
    Imported(Option<Key>),
    /// Recipes, by scope: all of them at once.
    Recipes,
    /// Retention, by source: all of it at once.
    Retention,
    /// Quarantine, oldest first: all of it at once.
    Quarantine,
}

/// One page of entries.
#[derive(Clone, Debug)]
pub struct ExportPage {
    /// Sorted by kind and name.
    pub entries: Vec<CopyEntry>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<CopyCursor>,
}

impl CopyCursor {
    /// The first page.
    pub const START: Self = Self::Events(None);

    /// The beginning of the next kind.
    fn next_kind(self) -> Option<Self> {
        match self {
            Self::Events(_) => Some(Self::Registers(None)),
            Self::Registers(_) => Some(Self::Slots(None)),
            Self::Slots(_) => Some(Self::Imported(None)),
            Self::Imported(_) => Some(Self::Recipes),
            Self::Recipes => Some(Self::Retention),
            Self::Retention => Some(Self::Quarantine),
            Self::Quarantine => None,
        }
    }

    /// Encodes the position of a copy as a register; `None` means that everything is copied.
    pub(super) fn register(cursor: Option<Self>) -> SubjectRegister {
        let (kind, id, key) = match cursor {
            Some(Self::Events(id)) => (0, id, None),
            Some(Self::Registers(key)) => (1, None, key),
            Some(Self::Slots(key)) => (2, None, key),
            Some(Self::Imported(key)) => (3, None, key),
            Some(Self::Recipes) => (4, None, None),
            Some(Self::Quarantine) => (5, None, None),
            None => (6, None, None),
            Some(Self::Retention) => (7, None, None),
        };
        SubjectRegister {
            value: Digest(key.map_or([0; 32], |key| key.0)),
            order: Some(kind),
            strict: id.is_some() || key.is_some(),
            event: id.unwrap_or(EventId([0; 16])),
            note: None,
        }
    }

    /// Decodes the position of a copy. An unreadable one starts over, which is harmless.
    pub(super) fn of(register: &SubjectRegister) -> Option<Self> {
        let SubjectRegister { value, order, strict, event, .. } = *register;
        let key = strict.then_some(Key(value.0));
        match order {
            Some(1) => Some(Self::Registers(key)),
            Some(2) => Some(Self::Slots(key)),
            Some(3) => Some(Self::Imported(key)),
            Some(4) => Some(Self::Recipes),
            Some(5) => Some(Self::Quarantine),
            Some(6) => None,
            Some(7) => Some(Self::Retention),
            _ => Some(Self::Events(strict.then_some(event))),
        }
    }
}

/// Whether a page may be followed by more entries of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageContinuation {
    /// There may be some.
    Maybe,
    /// That was the last one.
    No,
}

impl ExportPage {
    /// The page that begins at this cursor.
    pub fn page(from: CopyCursor, entries: Vec<CopyEntry>, more: PageContinuation) -> Self {
        let last = entries.last().filter(|_| more == PageContinuation::Maybe);
        let next = match last {
            Some(CopyEntry::Event(whole)) => Some(CopyCursor::Events(Some(whole.row.event.id))),
            Some(CopyEntry::Register(key, _)) => Some(CopyCursor::Registers(Some(*key))),
            Some(CopyEntry::Slot(group, _)) => Some(CopyCursor::Slots(Some(*group))),
            Some(CopyEntry::Imported(key)) => Some(CopyCursor::Imported(Some(*key))),
            Some(CopyEntry::Recipe(_) | CopyEntry::Retention(_) | CopyEntry::Quarantined(_)) | None => from.next_kind(),
        };
        Self { entries, next }
    }
}

impl CompleteEvent {
    /// The size of its large parts.
    pub fn bytes(&self) -> usize {
        let (body, answer) = (self.payload.as_ref().map(|p| p.body.len()), self.receipt.as_ref().map(|r| r.body.len()));
        let outputs: usize = self.tried.iter().map(|tried| tried.output.len()).sum();
        body.unwrap_or(0) + answer.unwrap_or(0) + outputs
    }
}

impl CopyEntry {
    /// Converts texts that are only for display into a form that the target can hold.
    pub(super) fn fit(&mut self, to: &dyn CopyStore) {
        let fit = |own: &mut String| *own = to.text(own).into_owned();
        let fit_shared = |own: &mut Option<Arc<str>>| *own = own.as_deref().map(|own| to.text(own).into());
        match self {
            Self::Event(whole) => {
                fit_shared(&mut whole.row.event.delivery_id);
                for DuplicateSighting { at: _, delivery_id, same: _ } in &mut whole.sightings {
                    fit_shared(delivery_id);
                }
                for tried in &mut whole.tried {
                    let AttemptRecord { life: _, attempt: _, started_at: _, ended_at: _, outcome, why, output: _ } =
                        tried;
                    [outcome, why].into_iter().for_each(fit);
                }
            }
            Self::Quarantined(one) => {
                let QuarantinedMessage { source, message, subject, at: _, why, bytes: _, head: _ } = &mut **one;
                *source = to.text(source).into();
                [message, subject, why].into_iter().for_each(fit);
            }
            Self::Recipe(IdentityRecipe { scope, once, since: _ }) => [scope, once].into_iter().for_each(fit),
            Self::Retention(SourceRetention { source, kept: _, seen_at: _ }) => *source = to.text(source).into(),
            Self::Register(..) | Self::Slot(..) | Self::Imported(_) => {}
        }
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        match self {
            Self::Event(whole) => format!("event {}", whole.row.event.id),
            Self::Register(key, _) => format!("register {key:?}"),
            Self::Slot(group, _) => format!("slot {group:?}"),
            Self::Imported(key) => format!("imported key {key:?}"),
            Self::Recipe(recipe) => format!("the recipe of scope {}", recipe.scope),
            Self::Retention(row) => format!("the retention of source {}", row.source),
            Self::Quarantined(one) => format!("the quarantined message {} of source {}", one.message, one.source),
        }
    }

    /// The digest of everything up to this entry.
    pub(super) fn digest_after(&self, before: Digest) -> Digest {
        let payload = match self {
            Self::Event(whole) => whole.payload.as_ref(),
            Self::Register(..)
            | Self::Slot(..)
            | Self::Imported(_)
            | Self::Recipe(_)
            | Self::Retention(_)
            | Self::Quarantined(_) => None,
        };
        // The `Debug` output of an entry leaves out its payload.
        let (own, headers) = (format!("{self:?}"), format!("{:?}", payload.map(|payload| &payload.headers)));
        let body = payload.map(|payload| Digest::of(&payload.body));
        key::value(&[
            KeyPart::bytes("before", &before.0),
            KeyPart::text("own", &own),
            KeyPart::text("headers", &headers),
            KeyPart::bytes("body", body.as_ref().map_or(&[], |digest| &digest.0)),
        ])
    }
}

/// The number of entries of each kind, and the digest of all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyTotals {
    /// Events.
    pub events: u64,
    /// Their keys.
    pub keys: u64,
    /// Their bodies.
    pub bodies: u64,
    /// Their stored responses.
    pub receipts: u64,
    /// Their attempts.
    pub attempts: u64,
    /// Their duplicates.
    pub duplicates: u64,
    /// Registers.
    pub registers: u64,
    /// Slots.
    pub slots: u64,
    /// Imported keys.
    pub imported: u64,
    /// Recipes.
    pub recipes: u64,
    /// Sources with a known retention.
    pub retention: u64,
    /// Messages in quarantine.
    pub quarantined: u64,
    /// The digest of everything.
    pub digest: Digest,
}

impl Default for CopyTotals {
    fn default() -> Self {
        Self {
            events: 0,
            keys: 0,
            bodies: 0,
            receipts: 0,
            attempts: 0,
            duplicates: 0,
            registers: 0,
            slots: 0,
            imported: 0,
            recipes: 0,
            retention: 0,
            quarantined: 0,
            digest: Digest::of(b""),
        }
    }
}

impl CopyTotals {
    /// Adds the next entry.
    pub(super) fn add(&mut self, entry: &CopyEntry) {
        self.digest = entry.digest_after(self.digest);
        match entry {
            CopyEntry::Event(whole) => {
                let CompleteEvent { row: _, keys, payload, receipt, tried, duplicates, sightings: _ } = &**whole;
                self.events += 1;
                self.keys += keys.len() as u64;
                self.bodies += u64::from(payload.is_some());
                self.receipts += u64::from(receipt.is_some());
                self.attempts += tried.len() as u64;
                self.duplicates += duplicates;
            }
            CopyEntry::Register(..) => self.registers += 1,
            CopyEntry::Slot(..) => self.slots += 1,
            CopyEntry::Imported(_) => self.imported += 1,
            CopyEntry::Recipe(_) => self.recipes += 1,
            CopyEntry::Retention(_) => self.retention += 1,
            CopyEntry::Quarantined(_) => self.quarantined += 1,
        }
    }

    /// Entries of all kinds.
    pub fn entries(&self) -> u64 {
        self.events + self.registers + self.slots + self.imported + self.recipes + self.retention + self.quarantined
    }

    /// Each number with its name, in reading order.
    pub fn lines(&self) -> [(&'static str, u64); 12] {
        let Self {
            events,
            keys,
            bodies,
            receipts,
            attempts,
            duplicates,
            registers,
            slots,
            imported,
            recipes,
            retention,
            quarantined,
            digest: _,
        } = *self;
        [
            ("events", events),
            ("keys", keys),
            ("bodies", bodies),
            ("receipts", receipts),
            ("attempts", attempts),
            ("duplicates", duplicates),
            ("registers", registers),
            ("slots", slots),
            ("imported keys", imported),
            ("recipes", recipes),
            ("sources' retention", retention),
            ("quarantined", quarantined),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cursor_survives_its_register() {
        let (id, key) = (EventId([7; 16]), Key([9; 32]));
        for cursor in [
            Some(CopyCursor::START),
            Some(CopyCursor::Events(Some(id))),
            Some(CopyCursor::Registers(None)),
            Some(CopyCursor::Registers(Some(key))),
            Some(CopyCursor::Slots(None)),
            Some(CopyCursor::Slots(Some(key))),
            Some(CopyCursor::Imported(None)),
            Some(CopyCursor::Imported(Some(key))),
            Some(CopyCursor::Recipes),
            Some(CopyCursor::Retention),
            Some(CopyCursor::Quarantine),
            None,
        ] {
            assert_eq!(CopyCursor::of(&CopyCursor::register(cursor)), cursor);
        }
    }

    #[test]
    fn a_page_leads_to_the_next_of_its_kind_then_to_the_next_kind_and_in_the_end_to_nothing() {
        let mut cursor = Some(CopyCursor::START);
        let mut kinds = 0;
        while let Some(at) = cursor {
            kinds += 1;
            cursor = ExportPage::page(at, Vec::new(), PageContinuation::Maybe).next;
        }
        assert_eq!(kinds, 7);
        let key = Key([3; 32]);
        let page = |more| ExportPage::page(CopyCursor::Imported(None), vec![CopyEntry::Imported(key)], more).next;
        assert_eq!(page(PageContinuation::Maybe), Some(CopyCursor::Imported(Some(key))));
        assert_eq!(page(PageContinuation::No), Some(CopyCursor::Recipes));
    }
}
