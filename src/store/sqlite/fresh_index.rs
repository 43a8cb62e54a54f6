//! The index of keys and names: what a claim adds to it is appended, and merged behind.
//!
//! ```text
//! claim, forget ─▶ fresh_keys, fresh_names: rows at the end of a table ─▶ the mirror, once they are committed
//!                        └── merged in the order of the index, some with each commit ──▶ key_index, name_index
//! ```
//!
//! Keys are digests, so an entry written straight into its index would change a page of its own. In the order of the
//! index, several entries share a page.
//!
//! An entry is a key and an event. It is only a candidate: the tables `keys` and `events` say whether the event still has
//! the key or the name. So an entry that is merged twice, or outlives its event for a while, harms nothing. An entry is in
//! a fresh table, or in the index, or in both, at every commit.

#[cfg(test)]
mod tests;

use super::open;
use crate::decide::id::{EventId, Key};
use rusqlite::{Connection, OptionalExtension as _, Result, params};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

/// The largest number of rows of a fresh table while it is merged as they come. A process without the mirror reads all of
/// them to find one. Few where assertions are on, so that every test merges.
pub(super) const FRESH_ROWS_MAX: u64 = if cfg!(debug_assertions) { 64 } else { 65_536 };
/// A merge begins when a fresh table has this many rows …
const MERGED_AT: u64 = FRESH_ROWS_MAX / 2;
/// … or this many, if no one writes.
const MERGED_WHILE_IDLE_AT: u64 = MERGED_AT / 8;
/// How many entries are merged for each row that a transaction appends: a merge is over before as many rows are fresh.
const MERGED_PER_ROW: u64 = 2;
/// How many merged rows are removed from the fresh table for each row that a transaction appends.
const TRIMMED_PER_ROW: u64 = 8;
/// The least number of entries that a transaction merges: with fewer, two transactions would often share a page.
const MERGED_MIN: u64 = if cfg!(debug_assertions) { 4 } else { 64 };
/// Entries merged in one transaction while no one writes.
const MERGED_WHILE_IDLE: u64 = 1_024;

/// The first half of a key, by which it is found. The whole key is in the table `keys`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct KeyPrefix(pub(super) [u8; 16]);

impl KeyPrefix {
    pub(super) fn of(key: &Key) -> Self {
        let mut prefix = [0; 16];
        prefix.copy_from_slice(&key.0[..16]);
        Self(prefix)
    }
}

/// The events of the keys that are not merged yet, in memory. Shared by the writer, which changes it after each commit,
/// and the readers of its process.
#[derive(Default)]
pub(super) struct FreshKeyMirror(RwLock<HashMap<KeyPrefix, EventId>>);

impl FreshKeyMirror {
    /// The events that may have these keys. A reader asks *before* it takes its snapshot: what was merged before that is
    /// in the index then.
    pub(super) fn candidates<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> HashMap<KeyPrefix, EventId> {
        let mirror = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.map(KeyPrefix::of).filter_map(|key| Some((key, *mirror.get(&key)?))).collect()
    }

    fn get(&self, key: KeyPrefix) -> Option<EventId> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<KeyPrefix, EventId>)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Where a ledger finds the keys that are not merged yet.
pub(super) enum FreshKeys<'t> {
    /// The writer, who also knows what its transaction has added.
    Writer(&'t mut IndexWriter),
    /// A reader of the writer's process: the candidates from the mirror.
    Candidates(HashMap<KeyPrefix, EventId>),
    /// A process without a mirror reads the table.
    Table,
}

impl FreshKeys<'_> {
    /// The event that may have this key.
    pub(super) fn candidate(&self, db: &Connection, key: KeyPrefix) -> Result<Option<EventId>> {
        match self {
            Self::Writer(index) => Ok(index.added.get(&key).copied().or_else(|| index.mirror.get(key))),
            Self::Candidates(found) => Ok(found.get(&key).copied()),
            Self::Table => {
                let sql = "select event from fresh_keys where key = ?1 and not gone order by n desc limit 1";
                db.prepare_cached(sql)?.query_row([key.0], |row| row.get(0).map(EventId)).optional()
            }
        }
    }
}

/// Whether an entry is added, or removed because its event was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IndexChange {
    Added,
    Gone,
}

/// A fresh table and its index.
struct IndexTables {
    append: &'static str,
    bounds: &'static str,
    ordered: &'static str,
    merge: &'static str,
    remove: &'static str,
    trim: &'static str,
}

macro_rules! index_tables {
    ($fresh:literal, $index:literal, $column:literal) => {
        IndexTables {
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
        }
    };
}

static KEYS: IndexTables = index_tables!("fresh_keys", "key_index", "key");
static NAMES: IndexTables = index_tables!("fresh_names", "name_index", "name");

/// An entry of an index, as a merge takes it from the fresh table.
struct IndexEntry {
    key: Box<[u8]>,
    event: EventId,
    change: IndexChange,
}

/// What is merged at present: the rows up to `up_to`.
enum MergePhase {
    /// Nothing, until the table has this many rows, or this many and no one writes.
    Gathering { begins_at: u64, begins_idle_at: u64 },
    /// The rows are being read in the order of the index, on a thread of its own.
    Ordering { up_to: i64, entries: JoinHandle<Result<Vec<IndexEntry>>> },
    /// The entries from `next` on are not in the index yet.
    Merging { up_to: i64, entries: Vec<IndexEntry>, next: usize },
    /// All are in the index, and are removed from the fresh table.
    Trimming { up_to: i64 },
}

impl MergePhase {
    const GATHERING: Self = Self::Gathering { begins_at: MERGED_AT, begins_idle_at: MERGED_WHILE_IDLE_AT };
}

/// What the transaction in progress does to one fresh table.
#[derive(Default)]
struct IndexStep {
    appended: u64,
    last: Option<i64>,
    merged: usize,
    trimmed_to: Option<i64>,
}

/// One fresh table, and how far it is merged.
struct IndexMerge {
    tables: &'static IndexTables,
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
    /// To look soon whether the entries are in order.
    Soon,
    /// To merge some.
    Now,
}

impl IndexMerge {
    fn load(db: &Connection, tables: &'static IndexTables) -> Result<Self> {
        let (first, last) = db.query_row(tables.bounds, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Self { tables, first, last, phase: MergePhase::GATHERING, step: IndexStep::default() })
    }

    fn rows(&self) -> u64 {
        u64::try_from(self.last - self.first + 1).unwrap_or(0)
    }

    fn append(&mut self, db: &Connection, key: &[u8], event: EventId, change: IndexChange) -> Result<()> {
        let gone = change == IndexChange::Gone;
        db.prepare_cached(self.tables.append)?.execute(params![key, event.0, gone])?;
        self.step.last = Some(db.last_insert_rowid());
        self.step.appended += 1;
        Ok(())
    }

    /// Merges or trims a little, as much as this transaction appended, or `idle` entries.
    fn advance(&mut self, db: &Connection, idle: Option<u64>) -> Result<()> {
        let Some(pace) = idle.or((self.step.appended > 0).then_some(self.step.appended)) else { return Ok(()) };
        match &self.phase {
            MergePhase::Gathering { .. } | MergePhase::Ordering { .. } => {}
            MergePhase::Merging { entries, next, .. } => {
                let room = usize::try_from((pace * MERGED_PER_ROW).max(MERGED_MIN)).unwrap_or(usize::MAX);
                let mut merged = 0;
                let (mut merge, mut remove) =
                    (db.prepare_cached(self.tables.merge)?, db.prepare_cached(self.tables.remove)?);
                for IndexEntry { key, event, change } in entries[*next..].iter().take(room) {
                    match change {
                        IndexChange::Added => merge.execute(params![key, event.0])?,
                        IndexChange::Gone => remove.execute(params![key, event.0])?,
                    };
                    merged += 1;
                }
                self.step.merged = merged;
            }
            MergePhase::Trimming { up_to } => {
                let room = i64::try_from((pace * TRIMMED_PER_ROW).max(MERGED_MIN)).unwrap_or(i64::MAX);
                let to = self.first.saturating_add(room - 1).min(*up_to);
                db.prepare_cached(self.tables.trim)?.execute([to])?;
                self.step.trimmed_to = Some(to);
            }
        }
        Ok(())
    }

    /// Takes over what the transaction did. Calls `merged` with the entries that are in the index now.
    fn committed(&mut self, path: &Path, merged: impl FnOnce(&[IndexEntry])) {
        let step = std::mem::take(&mut self.step);
        self.last = step.last.unwrap_or(self.last);
        if let Some(to) = step.trimmed_to {
            // An empty table begins anew.
            (self.first, self.last) = if to == self.last { (1, 0) } else { (to + 1, self.last) };
        }
        let phase = std::mem::replace(&mut self.phase, MergePhase::GATHERING);
        self.phase = match phase {
            MergePhase::Gathering { begins_at, .. } if self.rows() >= begins_at => self.order(path),
            MergePhase::Ordering { up_to, entries } if entries.is_finished() => match entries.join() {
                Ok(Ok(entries)) => MergePhase::Merging { up_to, entries, next: 0 },
                Ok(Err(_)) | Err(_) => self.later(), // the fresh table cannot be read now
            },
            MergePhase::Merging { up_to, entries, next } => {
                let next_after = next + step.merged;
                merged(&entries[next..next_after]);
                if next_after == entries.len() {
                    MergePhase::Trimming { up_to }
                } else {
                    MergePhase::Merging { up_to, entries, next: next_after }
                }
            }
            MergePhase::Trimming { up_to } if step.trimmed_to == Some(up_to) => MergePhase::GATHERING,
            phase => phase,
        };
    }

    fn rolled_back(&mut self) {
        self.step = IndexStep::default();
    }

    /// Tries again once there are more rows.
    fn later(&self) -> MergePhase {
        let begins_at = self.rows() + MERGED_WHILE_IDLE_AT;
        MergePhase::Gathering { begins_at, begins_idle_at: begins_at }
    }

    /// Begins to read what is fresh, in the order of the index, without holding up the writer.
    fn order(&self, path: &Path) -> MergePhase {
        let (up_to, sql, path) = (self.last, self.tables.ordered, path.to_owned());
        let read = std::thread::Builder::new().name("sqlite-merge".into()).spawn(move || in_order(&path, sql, up_to));
        read.map_or_else(|_| self.later(), |entries| MergePhase::Ordering { up_to, entries })
    }

    fn idle_merge(&self) -> IdleMerge {
        match &self.phase {
            MergePhase::Gathering { begins_idle_at, .. } if self.rows() >= *begins_idle_at => IdleMerge::Now,
            MergePhase::Gathering { .. } => IdleMerge::Nothing,
            MergePhase::Ordering { .. } => IdleMerge::Soon,
            MergePhase::Merging { .. } | MergePhase::Trimming { .. } => IdleMerge::Now,
        }
    }

    /// Waits until the connection of the thread that reads, if there is one, is closed.
    fn close_reader(&mut self) {
        if let MergePhase::Ordering { entries, .. } = std::mem::replace(&mut self.phase, MergePhase::GATHERING) {
            let _ = entries.join();
        }
    }

    /// No one writes: what there is begins to be merged.
    fn begin_while_idle(&mut self) {
        if let MergePhase::Gathering { begins_at, begins_idle_at } = &mut self.phase {
            *begins_at = *begins_idle_at;
        }
    }
}

impl Drop for IndexMerge {
    /// The file's lock is released after this.
    fn drop(&mut self) {
        self.close_reader();
    }
}

fn in_order(path: &Path, sql: &str, up_to: i64) -> Result<Vec<IndexEntry>> {
    let db = open::reader(path).map_err(|_| rusqlite::Error::InvalidPath(path.to_owned()))?;
    let mut rows = db.prepare(sql)?;
    let entry = |row: &rusqlite::Row<'_>| {
        let change = if row.get(2)? { IndexChange::Gone } else { IndexChange::Added };
        Ok(IndexEntry { key: row.get_ref(0)?.as_blob()?.into(), event: EventId(row.get(1)?), change })
    };
    rows.query_map([up_to], entry)?.collect()
}

/// The writer's side of the indexes: what it appends, and how far the merges are.
pub(super) struct IndexWriter {
    path: PathBuf,
    mirror: Arc<FreshKeyMirror>,
    /// The keys that the transaction in progress has added.
    added: HashMap<KeyPrefix, EventId>,
    keys: IndexMerge,
    names: IndexMerge,
    /// Whether there may be imported keys: this writer alone adds them.
    pub(super) has_imports: bool,
}

impl IndexWriter {
    /// Reads back what is fresh.
    pub(super) fn load(path: &Path, db: &Connection) -> Result<Self> {
        let mut mirror = HashMap::new();
        let mut rows = db.prepare("select key, event from fresh_keys where not gone order by n")?;
        for row in rows.query_map([], |row| Ok((KeyPrefix(row.get(0)?), EventId(row.get(1)?))))? {
            let (key, event) = row?;
            mirror.insert(key, event);
        }
        Ok(Self {
            path: path.to_owned(),
            mirror: Arc::new(FreshKeyMirror(RwLock::new(mirror))),
            added: HashMap::new(),
            keys: IndexMerge::load(db, &KEYS)?,
            names: IndexMerge::load(db, &NAMES)?,
            has_imports: db.query_row("select exists (select 1 from imported)", [], |row| row.get(0))?,
        })
    }

    pub(super) fn mirror(&self) -> Arc<FreshKeyMirror> {
        self.mirror.clone()
    }

    /// Adds the entry of a key, or removes it with its event.
    pub(super) fn key(&mut self, db: &Connection, key: &Key, event: EventId, change: IndexChange) -> Result<()> {
        let prefix = KeyPrefix::of(key);
        if change == IndexChange::Added {
            self.added.insert(prefix, event);
        }
        self.keys.append(db, &prefix.0, event, change)
    }

    /// Adds the entry of a name, or removes it with its event.
    pub(super) fn name(&mut self, db: &Connection, name: &str, event: EventId, change: IndexChange) -> Result<()> {
        self.names.append(db, indexed_name(name).as_bytes(), event, change)
    }

    /// Merges a little in the transaction in progress.
    pub(super) fn advance(&mut self, db: &Connection, is_idle: bool) -> Result<()> {
        let idle = is_idle.then_some(MERGED_WHILE_IDLE / MERGED_PER_ROW);
        self.keys.advance(db, idle)?;
        self.names.advance(db, idle)
    }

    /// The transaction is committed: only now do others see what it added.
    pub(super) fn committed(&mut self) {
        if !self.added.is_empty() {
            self.mirror.change(|mirror| mirror.extend(self.added.drain()));
        }
        let mirror = &self.mirror;
        self.keys.committed(&self.path, |merged| {
            mirror.change(|mirror| {
                for IndexEntry { key, event, .. } in merged {
                    let prefix = (**key).try_into().map(KeyPrefix);
                    if let Ok(prefix) = prefix
                        && mirror.get(&prefix) == Some(event)
                    {
                        mirror.remove(&prefix);
                    }
                }
            });
        });
        self.names.committed(&self.path, |_| {});
    }

    /// The transaction is rolled back.
    pub(super) fn rolled_back(&mut self) {
        self.added.clear();
        self.keys.rolled_back();
        self.names.rolled_back();
    }

    pub(super) fn idle_merge(&self) -> IdleMerge {
        match (self.keys.idle_merge(), self.names.idle_merge()) {
            (IdleMerge::Now, _) | (_, IdleMerge::Now) => IdleMerge::Now,
            (IdleMerge::Soon, _) | (_, IdleMerge::Soon) => IdleMerge::Soon,
            (IdleMerge::Nothing, IdleMerge::Nothing) => IdleMerge::Nothing,
        }
    }

    /// Closes the connections that read for a merge. SQLite moves the WAL into the database when its last connection is
    /// closed, and only one that writes can do so.
    pub(super) fn close_readers(&mut self) {
        self.keys.close_reader();
        self.names.close_reader();
    }

    pub(super) fn begin_while_idle(&mut self) {
        self.keys.begin_while_idle();
        self.names.begin_while_idle();
    }
}

/// How many characters of a name are in the index. Names that begin alike are told apart by their events.
const NAME_CHARS: usize = 64;

/// The part of a name that is in the index.
pub(super) fn indexed_name(name: &str) -> &str {
    name.char_indices().nth(NAME_CHARS).map_or(name, |(end, _)| &name[..end])
}
