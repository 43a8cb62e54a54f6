//! The merge of a fresh table into its index, in small steps.
//!
//! ```text
//! gathering ─ enough rows ─▶ ordering ─ read on a thread ─▶ merging ─▶ trimming ─▶ gathering
//!                 └───────────── it could not be read ◀─┘
//! ```
//!
//! A step is part of the transaction that appends (its share), or a transaction of its own while no one writes. Each is
//! bounded by entries and by time.

use super::fresh_index::{IndexChange, event_id, indexed_name};
use super::open;
use super::writer::{SqliteCommitStage, classify};
use crate::decide::error_message::ErrorMessage;
use crate::decide::id::EventId;
use crate::decide::time::Duration;
use crate::store::StoreError;
use rusqlite::{Connection, Result, params};
use std::path::Path;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Instant;
use tracing::warn;

/// How many rows are merged how.
pub(super) struct MergeSizes {
    /// The largest number of rows of a fresh table while it is merged as they come. A process without the mirror reads
    /// all of them to find one.
    pub(super) fresh_rows_max: u64,
    /// The least number of entries that a transaction merges: with fewer, two transactions would often share a page.
    merged_min: u64,
}

/// In debug builds, use the sizes of a release.
const AS_RELEASED: &str = "HOOKONCE_TEST_RELEASED_MERGES";

impl MergeSizes {
    /// Those of this process: few where assertions are on, so that every test merges.
    pub(super) fn current() -> &'static Self {
        const RELEASED: MergeSizes = MergeSizes { fresh_rows_max: 65_536, merged_min: 64 };
        const SMALL: MergeSizes = MergeSizes { fresh_rows_max: 64, merged_min: 4 };
        static CURRENT: OnceLock<MergeSizes> = OnceLock::new();
        CURRENT.get_or_init(|| {
            let small = cfg!(debug_assertions) && std::env::var_os(AS_RELEASED).is_none();
            if small { SMALL } else { RELEASED }
        })
    }

    /// A merge begins when a fresh table has this many rows …
    pub(super) fn merged_at(&self) -> u64 {
        self.fresh_rows_max / 2
    }

    /// … or this many, if no one writes.
    fn merged_while_idle_at(&self) -> u64 {
        self.merged_at() / 8
    }

    /// With this many rows the table is read by the writer itself: no thread or connection could be had for long.
    fn read_by_writer_at(&self) -> u64 {
        self.fresh_rows_max * 2
    }

    /// With this many rows nothing more is added.
    fn overfull_at(&self) -> u64 {
        self.fresh_rows_max * 16
    }
}

/// How many entries are merged for each row that a transaction appends: a merge is over before as many rows are fresh.
const MERGED_PER_ROW: u64 = 2;
/// How many merged rows are removed from the fresh table for each row that a transaction appends.
const TRIMMED_PER_ROW: u64 = 8;
/// Rows for which a transaction merges while no one writes.
const PACE_WHILE_IDLE: u64 = 512;
/// How long a transaction may merge: what is claimed meanwhile waits for it.
const SHARE_TIME: Duration = Duration::from_millis(4);
/// How long if merging has fallen behind.
const SHARE_TIME_BEHIND: Duration = Duration::from_millis(40);
/// How long while no one writes.
const IDLE_TIME: Duration = Duration::from_millis(2);
/// Entries between two looks at the clock.
const ENTRIES_PER_LOOK: usize = 16;

/// How much a transaction merges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MergeShare {
    /// Nothing: merging failed a moment ago.
    Nothing,
    /// As much as it appends.
    Paced,
    /// It does nothing else.
    WhileIdle,
}

/// The first half of a key, or a name, as it is in an index.
type IndexKey = Box<[u8]>;

/// A fresh table and its index.
pub(super) struct IndexTables {
    fresh: &'static str,
    append: &'static str,
    bounds: &'static str,
    ordered: &'static str,
    merge: &'static str,
    remove: &'static str,
    trim: &'static str,
    /// Whether a key of the fresh table has the right form.
    is_key: fn(&[u8]) -> bool,
    /// Whether an event still has what a row says it has lost: that row is damaged then.
    is_of_event: fn(&Connection, &[u8], EventId) -> Result<bool>,
    /// The entries of one event, where a row of it is damaged and they can be read elsewhere.
    of_event: fn(&Connection, EventId) -> Result<Vec<IndexKey>>,
}

macro_rules! index_tables {
    ($fresh:literal, $index:literal, $column:literal, $is_key:expr, $is_of_event:expr, $of_event:expr) => {
        IndexTables {
            fresh: $fresh,
            append: concat!("insert into ", $fresh, " (", $column, ", event, gone) values (?1, ?2, ?3)"),
            bounds: concat!("select coalesce(min(n), 1), coalesce(max(n), 0) from ", $fresh),
            // Of an entry that was added and then removed, SQLite takes `gone` from the row with the highest `n`.
            ordered: concat!(
                "select ",
                $column,
                ", event, gone, max(n) from ",
                $fresh,
                " where n <= ?1 \
                 group by ",
                $column,
                ", event order by ",
                $column,
                ", event"
            ),
            merge: concat!("insert or ignore into ", $index, " (", $column, ", event) values (?1, ?2)"),
            remove: concat!("delete from ", $index, " where ", $column, " = ?1 and event = ?2"),
            trim: concat!("delete from ", $fresh, " where n <= ?1"),
            is_key: $is_key,
            is_of_event: $is_of_event,
            of_event: $of_event,
        }
    };
}

pub(super) static KEYS: IndexTables =
    index_tables!("fresh_keys", "key_index", "key", |key| key.len() == 16, has_key, |_, _| Ok(Vec::new()));
pub(super) static NAMES: IndexTables =
    index_tables!("fresh_names", "name_index", "name", |_| true, |_, _, _| Ok(false), names_of);

fn has_key(db: &Connection, key: &[u8], event: EventId) -> Result<bool> {
    let sql = "select exists (select 1 from keys where event = ?2 and substr(key, 1, 16) = ?1)";
    db.prepare_cached(sql)?.query_row(params![key, event.0], |row| row.get(0))
}

/// The names of an event, as they are in the index.
fn names_of(db: &Connection, id: EventId) -> Result<Vec<IndexKey>> {
    let mut rows = db.prepare_cached("select delivery_id from events where id = ?1")?;
    let mut rows = rows.query([id.0])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        names.extend(row.get_ref(0)?.as_str().ok().map(|name| indexed_name(name).into()));
    }
    Ok(names)
}

/// An entry of an index, as a merge takes it from the fresh table.
pub(super) struct IndexEntry {
    pub(super) key: IndexKey,
    pub(super) event: EventId,
    pub(super) change: IndexChange,
}

/// What was read of a fresh table, in the order of its index.
#[derive(Default)]
pub(super) struct OrderedEntries {
    pub(super) entries: Vec<IndexEntry>,
    /// How many rows could not be read.
    pub(super) damaged: usize,
}

/// What is merged at present: the rows up to `up_to`.
enum MergePhase {
    /// Nothing, until the table has enough rows.
    Gathering,
    /// The rows are being read in the order of the index, on a thread of its own.
    Ordering { up_to: i64, entries: JoinHandle<std::result::Result<OrderedEntries, StoreError>> },
    /// The entries from `next` on are not in the index yet.
    Merging { up_to: i64, entries: Vec<IndexEntry>, next: usize },
    /// All are in the index, and are removed from the fresh table.
    Trimming { up_to: i64 },
}

/// What the transaction in progress does to one fresh table.
#[derive(Default)]
struct IndexStep {
    appended: u64,
    last: Option<i64>,
    /// It merges or trims, or has tried to.
    began: bool,
    merged: usize,
    trimmed_to: Option<i64>,
}

/// One fresh table, and how far it is merged.
pub(super) struct IndexMerge {
    tables: &'static IndexTables,
    sizes: &'static MergeSizes,
    /// The first and the last row that are committed; the last is before the first if there is none.
    first: i64,
    last: i64,
    phase: MergePhase,
    step: IndexStep,
}

/// What there is to do while no one writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IdleMerge {
    /// Nothing.
    Nothing,
    /// To begin, or to look soon whether the entries are in order.
    Soon,
    /// To merge some.
    Now,
}

impl IndexMerge {
    pub(super) fn load(db: &Connection, tables: &'static IndexTables, sizes: &'static MergeSizes) -> Result<Self> {
        let (first, last) = db.query_row(tables.bounds, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Self { tables, sizes, first, last, phase: MergePhase::Gathering, step: IndexStep::default() })
    }

    pub(super) fn rows(&self) -> u64 {
        u64::try_from(self.last - self.first + 1).unwrap_or(0)
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.rows() >= self.sizes.overfull_at()
    }

    pub(super) fn append(&mut self, db: &Connection, key: &[u8], event: EventId, change: IndexChange) -> Result<()> {
        let gone = change == IndexChange::Gone;
        db.prepare_cached(self.tables.append)?.execute(params![key, event.0, gone])?;
        self.step.last = Some(db.last_insert_rowid());
        self.step.appended += 1;
        Ok(())
    }

    /// Merges or trims a little. The transaction began to merge at `began`.
    pub(super) fn advance(&mut self, db: &Connection, share: MergeShare, began: Instant) -> Result<()> {
        let (pace, time) = match share {
            MergeShare::Paced if self.step.appended > 0 => {
                let is_behind = self.rows() > self.sizes.fresh_rows_max;
                (self.step.appended, if is_behind { SHARE_TIME_BEHIND } else { SHARE_TIME })
            }
            MergeShare::WhileIdle => (PACE_WHILE_IDLE, IDLE_TIME),
            MergeShare::Nothing | MergeShare::Paced => return Ok(()),
        };
        match &self.phase {
            MergePhase::Gathering | MergePhase::Ordering { .. } => {}
            MergePhase::Merging { entries, next, .. } => {
                self.step.began = true;
                let room = usize::try_from((pace * MERGED_PER_ROW).max(self.sizes.merged_min)).unwrap_or(usize::MAX);
                let mut merged = 0;
                let (mut merge, mut remove) =
                    (db.prepare_cached(self.tables.merge)?, db.prepare_cached(self.tables.remove)?);
                for IndexEntry { key, event, change } in entries[*next..].iter().take(room) {
                    let is_gone = *change == IndexChange::Gone && !(self.tables.is_of_event)(db, key, *event)?;
                    let change = if is_gone { &mut remove } else { &mut merge };
                    change.execute(params![key, event.0])?;
                    merged += 1;
                    if merged % ENTRIES_PER_LOOK == 0 && began.elapsed() >= time {
                        break;
                    }
                }
                self.step.merged = merged;
            }
            MergePhase::Trimming { up_to } => {
                self.step.began = true;
                let room = i64::try_from((pace * TRIMMED_PER_ROW).max(self.sizes.merged_min)).unwrap_or(i64::MAX);
                let to = self.first.saturating_add(room - 1).min(*up_to);
                db.prepare_cached(self.tables.trim)?.execute([to])?;
                self.step.trimmed_to = Some(to);
            }
        }
        Ok(())
    }

    /// Takes over what the transaction did. Calls `merged` with the entries that are in the index now. Returns whether it
    /// merged or trimmed.
    pub(super) fn committed(&mut self, merged: impl FnOnce(&[IndexEntry])) -> bool {
        let step = std::mem::take(&mut self.step);
        self.last = step.last.unwrap_or(self.last);
        if let Some(to) = step.trimmed_to {
            // An empty table begins anew.
            (self.first, self.last) = if to == self.last { (1, 0) } else { (to + 1, self.last) };
        }
        let phase = std::mem::replace(&mut self.phase, MergePhase::Gathering);
        self.phase = match phase {
            MergePhase::Merging { up_to, entries, next } => {
                let next_after = next + step.merged;
                merged(&entries[next..next_after]);
                if next_after == entries.len() {
                    MergePhase::Trimming { up_to }
                } else {
                    MergePhase::Merging { up_to, entries, next: next_after }
                }
            }
            MergePhase::Trimming { up_to } if step.trimmed_to == Some(up_to) => MergePhase::Gathering,
            phase => phase,
        };
        step.began
    }

    /// Returns whether the transaction merged or trimmed, or tried to.
    pub(super) fn rolled_back(&mut self) -> bool {
        std::mem::take(&mut self.step).began
    }

    /// Begins to read the rows if there are enough, and takes them over once they are in order. `complete` adds what a
    /// damaged table of keys has lost.
    pub(super) fn poll(
        &mut self,
        db: &Connection,
        path: &Path,
        while_idle: bool,
        complete: impl FnOnce(&mut OrderedEntries) + Send + 'static,
    ) -> std::result::Result<(), StoreError> {
        let begins_at = if while_idle { self.sizes.merged_while_idle_at() } else { self.sizes.merged_at() };
        let (up_to, ordered) = match std::mem::replace(&mut self.phase, MergePhase::Gathering) {
            MergePhase::Gathering if self.rows() >= self.sizes.read_by_writer_at() => {
                let mut ordered = in_order(db, self.tables, self.last).map_err(unread)?;
                complete(&mut ordered);
                (self.last, ordered)
            }
            MergePhase::Gathering if self.rows() >= begins_at => {
                return self.order(path, complete);
            }
            MergePhase::Ordering { up_to, entries } if entries.is_finished() => (
                up_to,
                entries.join().unwrap_or_else(|_| Err(StoreError::down("the thread that reads them panicked")))?,
            ),
            phase => {
                self.phase = phase;
                return Ok(());
            }
        };
        if ordered.damaged > 0 {
            let why = format!("{} rows of {} were damaged", ordered.damaged, self.tables.fresh);
            warn!(target: "hookonce", why, "mended");
        }
        self.phase = if ordered.entries.is_empty() {
            MergePhase::Trimming { up_to }
        } else {
            MergePhase::Merging { up_to, entries: ordered.entries, next: 0 }
        };
        Ok(())
    }

    /// Begins to read what is fresh, in the order of the index, without holding up the writer.
    fn order(
        &mut self,
        path: &Path,
        complete: impl FnOnce(&mut OrderedEntries) + Send + 'static,
    ) -> std::result::Result<(), StoreError> {
        let (up_to, tables, path) = (self.last, self.tables, path.to_owned());
        let read = move || {
            let db = open::reader(&path).map_err(|error| StoreError::Down(ErrorMessage::of(error)))?;
            let mut ordered = in_order(&db, tables, up_to).map_err(unread)?;
            complete(&mut ordered);
            Ok(ordered)
        };
        let reads = std::thread::Builder::new().name("sqlite-merge".into()).spawn(read);
        let entries = reads.map_err(|error| StoreError::down(format!("no thread: {error}")).caused_by(error))?;
        self.phase = MergePhase::Ordering { up_to, entries };
        Ok(())
    }

    pub(super) fn is_ordering(&self) -> bool {
        matches!(self.phase, MergePhase::Ordering { .. })
    }

    /// Waits until the connection of the thread that reads, if there is one, is closed.
    pub(super) fn close_reader(&mut self) {
        if let MergePhase::Ordering { entries, .. } = std::mem::replace(&mut self.phase, MergePhase::Gathering) {
            let _ = entries.join();
        }
    }

    pub(super) fn idle_merge(&self) -> IdleMerge {
        match &self.phase {
            MergePhase::Gathering if self.rows() >= self.sizes.merged_while_idle_at() => IdleMerge::Soon,
            MergePhase::Gathering => IdleMerge::Nothing,
            MergePhase::Ordering { .. } => IdleMerge::Soon,
            MergePhase::Merging { .. } | MergePhase::Trimming { .. } => IdleMerge::Now,
        }
    }
}

impl Drop for IndexMerge {
    /// The file's lock is released after this.
    fn drop(&mut self) {
        self.close_reader();
    }
}

fn unread(error: rusqlite::Error) -> StoreError {
    classify(error, SqliteCommitStage::Before)
}

/// The rows up to `up_to`. Of a damaged one, its event's entries are taken instead, where they can be read.
fn in_order(db: &Connection, tables: &IndexTables, up_to: i64) -> Result<OrderedEntries> {
    let mut ordered = OrderedEntries::default();
    let mut statement = db.prepare(tables.ordered)?;
    let mut rows = statement.query([up_to])?;
    while let Some(row) = rows.next()? {
        let event = event_id(row.get_ref(1)?);
        let (key, gone) = (row.get_ref(0)?.as_blob().ok(), row.get_ref(2)?.as_i64().ok());
        match (key, event, gone) {
            (Some(key), Some(event), Some(gone)) if (tables.is_key)(key) => {
                let change = if gone == 0 { IndexChange::Added } else { IndexChange::Gone };
                ordered.entries.push(IndexEntry { key: key.into(), event, change });
            }
            (_, event, _) => {
                ordered.damaged += 1;
                let Some(event) = event else { continue };
                let keys = (tables.of_event)(db, event)?;
                let entries = keys.into_iter().map(|key| IndexEntry { key, event, change: IndexChange::Added });
                ordered.entries.extend(entries);
            }
        }
    }
    Ok(ordered)
}
