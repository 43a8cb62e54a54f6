//! Detects that a store has lost data: compares what a node knows of its store with what the store has.
//!
//! Redis and PostgreSQL can lose confirmed writes: a restart from an older file, a failover to a replica that was
//! behind, a restored backup. A node that went on would do again what was done. So it compares at each start and each
//! connection, and stops until an operator has accepted the loss.

use super::id::{EventId, Revision};
use super::limits;
use std::fmt;
use std::str::FromStr;

/// How far a store's history goes, in the store's own counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreCounter {
    /// A counter that every write increments.
    Writes(u64),
    /// A position in PostgreSQL's write-ahead log.
    Wal {
        /// The timeline: a new one begins with each failover.
        timeline: u32,
        /// The position (LSN).
        lsn: u64,
    },
}

impl StoreCounter {
    /// Whether this is before the other; `None` where the two are counted differently.
    fn is_before(self, other: Self) -> Option<bool> {
        match (self, other) {
            (Self::Writes(this), Self::Writes(other)) => Some(this < other),
            (Self::Wal { timeline, lsn }, Self::Wal { timeline: other_timeline, lsn: other_lsn }) => {
                Some(timeline < other_timeline || lsn < other_lsn)
            }
            _ => None,
        }
    }
}

impl fmt::Display for StoreCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writes(count) => write!(f, "{count}"),
            Self::Wal { timeline, lsn } => write!(f, "{timeline}-{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff),
        }
    }
}

impl FromStr for StoreCounter {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let Some((timeline, position)) = text.split_once('-') else {
            return text.parse().map(Self::Writes).map_err(drop);
        };
        Ok(Self::Wal { timeline: timeline.parse().map_err(drop)?, lsn: lsn(position).ok_or(())? })
    }
}

/// Reads a position of a write-ahead log as PostgreSQL writes it: `16/B374D848`.
pub fn lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let part = |text| u32::from_str_radix(text, 16).ok().map(u64::from);
    Some(part(high)? << 32 | part(low)?)
}

/// A point in the history of one store, displayed as `EPOCH:COUNTER`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreMark {
    /// The identifier that the store got when it was created: the epoch of Redis, the system identifier of PostgreSQL.
    /// `None` where the server does not report it.
    pub epoch: Option<String>,
    /// How far its history goes.
    pub counter: StoreCounter,
}

impl StoreMark {
    fn is_of(&self, other: &Self) -> bool {
        self.epoch.is_none() || other.epoch.is_none() || self.epoch == other.epoch
    }
}

impl fmt::Display for StoreMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch.as_deref().unwrap_or(UNKNOWN), self.counter)
    }
}

/// Displayed in place of an epoch that the server does not report.
const UNKNOWN: &str = "unknown";

impl FromStr for StoreMark {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (epoch, counter) = text.split_once(':').ok_or(())?;
        let epoch = (epoch != UNKNOWN).then(|| epoch.to_owned());
        Ok(Self { epoch, counter: counter.parse()? })
    }
}

/// A mark that one process left in the store with a write, or after its writes. No other process changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriterMark {
    /// The process: a random name, chosen when it opened the store.
    pub name: [u8; 16],
    /// A number that grows with each mark.
    pub wrote: u64,
}

/// A write of an event that was confirmed after the last mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnmarkedWrite {
    /// The event.
    pub event: EventId,
    /// Its revision, as it was written.
    pub revision: Revision,
    /// The process that wrote it.
    pub by: [u8; 16],
}

/// A node's knowledge of its store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastKnownStore {
    /// How far the store's history went.
    pub mark: StoreMark,
    /// The marks that processes of this machine left in it.
    pub writers: Vec<WriterMark>,
    /// The last writes that no mark covers yet.
    pub unmarked: Vec<UnmarkedWrite>,
}

impl LastKnownStore {
    /// A store of which only the mark is known.
    pub fn at(mark: StoreMark) -> Self {
        Self { mark, writers: Vec::new(), unmarked: Vec::new() }
    }

    /// The same knowledge for a server that has all of it and is on this timeline. The position stays: what was written
    /// after it may be from others.
    #[must_use]
    pub fn on_timeline(self, newer: Option<u32>) -> Self {
        let counter = match (self.mark.counter, newer) {
            (StoreCounter::Wal { lsn, .. }, Some(timeline)) => StoreCounter::Wal { timeline, lsn },
            (counter, _) => counter,
        };
        Self { mark: StoreMark { counter, ..self.mark }, unmarked: Vec::new(), ..self }
    }

    /// Both combined, `newer` being what one process knows now; `None` where they are of different stores.
    #[must_use]
    pub fn merged(&self, newer: &Self) -> Option<Self> {
        if !self.mark.is_of(&newer.mark) {
            return None;
        }
        let is_behind = newer.mark.counter.is_before(self.mark.counter) == Some(true);
        let mark = if is_behind { self.mark.clone() } else { newer.mark.clone() };
        let mut writers = newer.writers.clone();
        for writer in &self.writers {
            match writers.iter_mut().find(|other| other.name == writer.name) {
                Some(other) => other.wrote = other.wrote.max(writer.wrote),
                None => writers.push(*writer),
            }
        }
        writers.sort_by_key(|writer| std::cmp::Reverse(writer.wrote));
        writers.truncate(limits::KNOWN_WRITERS_MAX);
        // The newer side knows its own unmarked writes best; those of other processes stay until they are found.
        let mut unmarked = newer.unmarked.clone();
        let is_newer = |by: [u8; 16]| {
            newer.writers.iter().any(|writer| writer.name == by) || newer.unmarked.iter().any(|write| write.by == by)
        };
        unmarked.extend(self.unmarked.iter().filter(|write| !is_newer(write.by)));
        unmarked.truncate(2 * limits::UNMARKED_WRITES_MAX);
        Some(Self { mark, writers, unmarked })
    }
}

/// The state of a store, as far as it is compared with a node's knowledge of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedStore {
    /// How far its history goes; `None` where there is no store at all.
    pub mark: Option<StoreMark>,
    /// The mark of each known writer, in their order; `None` where there is none.
    pub writers: Vec<Option<u64>>,
    /// Whether the store may have dropped marks because there were many.
    pub drops_writers: bool,
    /// Marks below this number may have been removed together with their table; 0 where that does not happen.
    pub marks_since: u64,
    /// How many of the unmarked writes are missing.
    pub missing: usize,
}

impl ObservedStore {
    /// No store at all.
    pub fn gone() -> Self {
        Self { mark: None, writers: Vec::new(), drops_writers: false, marks_since: 0, missing: 0 }
    }
}

/// A loss of data in a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreLoss {
    /// In which way.
    pub kind: LossKind,
    /// What the node knew. This names the loss.
    pub known: StoreMark,
    /// What the store has.
    pub found: Option<StoreMark>,
}

/// In which way a store differs from what a node knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// There is no store any more.
    Gone,
    /// It is another store.
    OtherStore,
    /// It is another PostgreSQL cluster: restored, upgraded or simply another. Whether anything is lost is not known.
    OtherSystem,
    /// Its history does not go as far.
    Behind,
    /// Its history goes as far, but without what this machine wrote.
    Overtaken,
    /// The marks of this machine are gone with their table, which was created again later. Whether anything else is
    /// lost is not known.
    MarksRemoved,
}

/// Compares a store with a node's knowledge of it, and returns the loss, if any.
pub fn loss(known: &LastKnownStore, found: &ObservedStore) -> Option<StoreLoss> {
    let lost = |kind| Some(StoreLoss { kind, known: known.mark.clone(), found: found.mark.clone() });
    let Some(mark) = &found.mark else { return lost(LossKind::Gone) };
    if !known.mark.is_of(mark) {
        return lost(match known.mark.counter {
            StoreCounter::Writes(_) => LossKind::OtherStore,
            StoreCounter::Wal { .. } => LossKind::OtherSystem,
        });
    }
    let is_removed = |wrote: u64| wrote < found.marks_since;
    let behind = mark.counter.is_before(known.mark.counter) == Some(true);
    // Where the marks themselves are the counter, it starts again with their table.
    let restarted = matches!(known.mark.counter, StoreCounter::Writes(wrote) if is_removed(wrote));
    if behind && !restarted {
        return lost(LossKind::Behind);
    }
    let mut removed = behind;
    let mut overtaken = found.missing > 0;
    for (writer, there) in known.writers.iter().zip(&found.writers) {
        match there {
            Some(wrote) => overtaken |= *wrote < writer.wrote,
            None if is_removed(writer.wrote) => removed = true,
            None => overtaken |= !found.drops_writers,
        }
    }
    match (overtaken, removed) {
        (true, _) => lost(LossKind::Overtaken),
        (false, true) => lost(LossKind::MarksRemoved),
        (false, false) => None,
    }
}

impl fmt::Display for StoreLoss {
    /// Writes what happened, both marks, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = &self.known;
        f.write_str(match self.kind {
            LossKind::Gone => "the store is gone from it (emptied, or restarted without its data)",
            LossKind::OtherStore => "it holds another store than the one that this node knew",
            LossKind::OtherSystem => {
                "it is another PostgreSQL system than the one that this node knew: a restored backup, an upgraded \
                 cluster, or the wrong server"
            }
            LossKind::Behind => "it has forgotten writes",
            LossKind::Overtaken => "it has forgotten what this node wrote, and others have written since",
            LossKind::MarksRemoved => {
                "the marks that this node left in it were removed: by `hookonce migrate down`, or because the store was \
                 restored from an older backup or made again"
            }
        })?;
        match &self.found {
            Some(found) => write!(f, ". This node knew {known}, the store has {found}. ")?,
            None => write!(f, ". This node knew {known}, the store has nothing. ")?,
        }
        match self.kind {
            LossKind::MarksRemoved => write!(
                f,
                "After `hookonce migrate down` nothing else is lost. Otherwise check that it holds everything that was \
                 done: what it lacks would be done again. To go on with it, start once with \
                 `hookonce serve --accept-loss {known}`"
            ),
            LossKind::OtherSystem => write!(
                f,
                "Check that it is the right one and holds everything that was done: what it lacks would be done \
                 again. To go on with it, start once with `hookonce serve --accept-loss {known}`"
            ),
            _ => write!(
                f,
                "Nothing more is done, because what was done would be done again: restore its data; or, to go on with \
                 what is there, start once with `hookonce serve --accept-loss {known}`"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(mark: &str) -> LastKnownStore {
        LastKnownStore::at(mark.parse().expect("a mark"))
    }

    fn found(mark: &str) -> ObservedStore {
        ObservedStore { mark: Some(mark.parse().expect("a mark")), ..ObservedStore::gone() }
    }

    fn check(was: &str, is: &str, expected: Option<LossKind>) {
        assert_eq!(loss(&known(was), &found(is)).map(|loss| loss.kind), expected, "{was} {is}");
    }

    #[test]
    fn a_mark_reads_as_it_is_written() {
        for text in ["abc:0", "abc:18446744073709551615", "7301:1-0/15A3B80", "unknown:3-FFFFFFFF/FFFFFFFF"] {
            assert_eq!(text.parse::<StoreMark>().expect(text).to_string(), text);
        }
        for text in ["", "abc", "abc:", "abc:-", "abc:1-", "abc:x", "abc:1-0/x", "abc:1-0/100000000"] {
            assert_eq!(text.parse::<StoreMark>(), Err(()), "{text}");
        }
    }

    #[test]
    fn what_is_behind_or_another_is_a_loss_and_what_went_on_is_not() {
        check("a:5", "a:5", None);
        check("a:5", "a:6", None);
        check("a:5", "a:4", Some(LossKind::Behind));
        check("a:5", "b:9", Some(LossKind::OtherStore));
        check("7:1-0/5", "7:1-0/5", None);
        check("7:1-0/5", "7:2-0/5", None);
        check("7:1-0/5", "7:2-0/4", Some(LossKind::Behind));
        check("7:2-0/5", "7:1-0/9", Some(LossKind::Behind));
        check("7:1-0/5", "8:1-0/9", Some(LossKind::OtherSystem));
        check("7:1-0/5", "unknown:9", None);
        check("unknown:9", "7:1-0/5", None);
        assert_eq!(loss(&known("a:5"), &ObservedStore::gone()).map(|loss| loss.kind), Some(LossKind::Gone));
    }

    #[test]
    fn a_writer_whose_mark_went_back_has_lost_writes_whatever_others_wrote() {
        let mine = WriterMark { name: [1; 16], wrote: 5 };
        let known = LastKnownStore { writers: vec![mine], ..known("a:5") };
        let check = |wrote, drops_writers, expected: bool| {
            let found = ObservedStore { writers: vec![wrote], drops_writers, ..found("a:100") };
            let lost = loss(&known, &found).is_some_and(|loss| loss.kind == LossKind::Overtaken);
            assert_eq!(lost, expected, "{wrote:?} {drops_writers}");
        };
        check(Some(5), false, false);
        check(Some(4), false, true);
        check(Some(4), true, true);
        check(None, false, true);
        check(None, true, false);
        let found = ObservedStore { missing: 1, ..found("a:100") };
        assert!(loss(&known, &found).is_some_and(|loss| loss.kind == LossKind::Overtaken));
    }

    #[test]
    fn a_mark_removed_with_its_table_is_reported_as_such_unless_writes_are_missing_too() {
        let mine = |mark| LastKnownStore { writers: vec![WriterMark { name: [1; 16], wrote: 5 }], ..known(mark) };
        let check = |was, is, wrote, marks_since, missing, expected| {
            let found = ObservedStore { writers: vec![wrote], marks_since, missing, ..found(is) };
            assert_eq!(loss(&mine(was), &found).map(|loss| loss.kind), expected, "{was} {is} {wrote:?} {marks_since}");
        };
        let (removed, overtaken, behind) =
            (Some(LossKind::MarksRemoved), Some(LossKind::Overtaken), Some(LossKind::Behind));
        check("7:1-0/5", "7:1-0/9", None, 6, 0, removed);
        check("7:1-0/5", "7:1-0/9", None, 5, 0, overtaken);
        check("7:1-0/5", "7:1-0/9", None, 6, 1, overtaken);
        check("7:1-0/5", "7:1-0/4", None, 6, 0, behind);
        check("7:1-0/5", "7:1-0/9", Some(5), 6, 0, None);
        // The counter is the newest mark: there is none, or others have written since.
        check("unknown:5", "unknown:0", None, 6, 0, removed);
        check("unknown:5", "unknown:9", None, 6, 0, removed);
        check("unknown:5", "unknown:0", None, 0, 0, behind);
    }

    #[test]
    fn after_a_failover_an_older_server_is_behind_and_one_that_has_the_last_mark_is_not() {
        let known = known("7:1-0/5").on_timeline(Some(2));
        let kind = |is| loss(&known, &found(is)).map(|loss| loss.kind);
        assert_eq!(kind("7:1-0/9"), Some(LossKind::Behind));
        assert_eq!(kind("7:2-0/5"), None);
        assert_eq!(kind("7:3-0/5"), None);
        assert_eq!(kind("7:3-0/4"), Some(LossKind::Behind));
    }

    #[test]
    fn merged_knowledge_keeps_the_greater_of_both_sides() {
        let writer = |name, wrote| WriterMark { name: [name; 16], wrote };
        let one = LastKnownStore { writers: vec![writer(1, 3), writer(2, 2)], ..known("a:5") };
        let other = LastKnownStore { writers: vec![writer(2, 7)], ..known("a:4") };
        for both in [one.merged(&other), other.merged(&one)] {
            let both = both.expect("one store");
            assert_eq!(both, LastKnownStore { writers: vec![writer(2, 7), writer(1, 3)], ..known("a:5") });
        }
        assert_eq!(one.merged(&known("b:1")), None);
        let write = |by| UnmarkedWrite { event: EventId([by; 16]), revision: Revision::FIRST, by: [by; 16] };
        let was = LastKnownStore { unmarked: vec![write(1), write(2)], ..known("a:5") };
        assert_eq!(
            was.merged(&other).expect("one store").unmarked,
            [write(1)],
            "process 2 has marked its own writes since"
        );
    }

    #[test]
    fn the_sentence_names_both_sides_and_what_to_do() {
        for (was, is) in [("a:5", "a:4"), ("a:5", "b:4"), ("7:1-0/5", "7:2-0/4"), ("7:1-0/5", "8:1-0/9")] {
            let said = loss(&known(was), &found(is)).expect("a loss").to_string();
            assert!(said.contains(&format!("knew {was}, the store has {is}")), "{said}");
            assert!(said.contains(&format!("--accept-loss {was}`")), "{said}");
        }
    }
}
