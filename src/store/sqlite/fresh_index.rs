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
//!
//! The merges themselves are in `index_merge.rs`; the repair of a damaged index is in `index_repair.rs`.

#[cfg(test)]
mod tests;

use super::index_merge::{IndexEntry, IndexMerge, KEYS, MergeShare, MergeSizes, NAMES, OrderedEntries};
use super::index_repair;
use crate::decide::id::{EventId, Key};
use crate::store::StoreError;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Result};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;
use tracing::warn;

pub(super) use super::index_merge::IdleMerge;

/// The first half of a key, by which it is found. The whole key is in the table `keys`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct KeyPrefix(pub(super) [u8; 16]);

impl KeyPrefix {
    pub(super) fn of(key: &Key) -> Self {
        let mut prefix = [0; 16];
        prefix.copy_from_slice(&key.0[..16]);
        Self(prefix)
    }

    fn read(value: ValueRef<'_>) -> Option<Self> {
        value.as_blob().ok()?.try_into().ok().map(Self)
    }
}

/// The event id in a cell; `None` if the cell is damaged.
pub(super) fn event_id(value: ValueRef<'_>) -> Option<EventId> {
    value.as_blob().ok()?.try_into().ok().map(EventId)
}

/// The entries that are not merged yet, in memory. Shared by the writer, which changes it after each commit, and the
/// readers of its process.
#[derive(Default)]
pub(super) struct FreshMirror {
    keys: RwLock<HashMap<KeyPrefix, EventId>>,
    /// By the hash of the name: the event tells whether it has that name.
    names: RwLock<BTreeSet<(u64, EventId)>>,
}

impl FreshMirror {
    /// The events that may have these keys. A reader asks *before* it takes its snapshot: what was merged before that is
    /// in the index then.
    pub(super) fn candidates<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> HashMap<KeyPrefix, EventId> {
        let mirror = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.map(KeyPrefix::of).filter_map(|key| Some((key, *mirror.get(&key)?))).collect()
    }

    /// The newest events that may have this name, asked in the same way.
    pub(super) fn named(&self, name: &[u8], limit: usize) -> Vec<EventId> {
        let hash = name_hash(name);
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let same = names.range((hash, EventId([0; 16]))..=(hash, EventId([0xff; 16])));
        same.rev().take(limit).map(|(_, event)| *event).collect()
    }

    fn get(&self, key: KeyPrefix) -> Option<EventId> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }

    fn change_keys(&self, change: impl FnOnce(&mut HashMap<KeyPrefix, EventId>)) {
        change(&mut self.keys.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn change_names(&self, change: impl FnOnce(&mut BTreeSet<(u64, EventId)>)) {
        change(&mut self.names.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds the keys that only the mirror still knows, if the table has a row that it does not know: that row is damaged.
    fn complete(&self, ordered: &mut OrderedEntries) {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let is_known = |entry: &IndexEntry| {
            let prefix = (*entry.key).try_into().map(KeyPrefix);
            entry.change == IndexChange::Gone || prefix.is_ok_and(|prefix| keys.get(&prefix) == Some(&entry.event))
        };
        if ordered.damaged == 0 && ordered.entries.iter().all(is_known) {
            return;
        }
        let read: BTreeSet<_> = ordered.entries.iter().map(|entry| (entry.key.clone(), entry.event)).collect();
        let mirrored = keys.iter().map(|(key, event)| (Box::<[u8]>::from(key.0), *event));
        let missing = mirrored.filter(|entry| !read.contains(entry));
        ordered.entries.extend(missing.map(|(key, event)| IndexEntry { key, event, change: IndexChange::Added }));
        ordered.entries.sort_by(|a, b| (&a.key, a.event).cmp(&(&b.key, b.event)));
    }
}

fn name_hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
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
                let found = db.prepare_cached(sql)?.query_row([key.0], |row| Ok(event_id(row.get_ref(0)?))).optional();
                Ok(found?.flatten())
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

/// How many keys are remembered as free: more than one delivery has.
const FREE_KEYS: usize = 32;

/// The writer's side of the indexes: what it appends, and how far the merges are.
pub(super) struct IndexWriter {
    path: PathBuf,
    mirror: Arc<FreshMirror>,
    /// The keys that the transaction in progress has added.
    added: HashMap<KeyPrefix, EventId>,
    /// The names that it has added.
    added_names: Vec<(u64, EventId)>,
    /// Keys that the transaction in progress looked up and found without an owner, and has not given one since.
    free: Vec<Key>,
    keys: IndexMerge,
    names: IndexMerge,
    /// Whether there may be imported keys: this writer alone adds them.
    pub(super) has_imports: bool,
    /// Whether the transaction that was rolled back last also merged.
    pub(super) share_failed: bool,
}

impl IndexWriter {
    /// Reads back what is fresh. Where a row of it is damaged, the indexes are made again from what they are of.
    pub(super) fn load(path: &Path, db: &Connection) -> Result<Self> {
        let mirror = if let Some(mirror) = read_mirror(db)? {
            mirror
        } else {
            index_repair::rebuild(db)?;
            warn!(target: "hookonce", why = "a row of fresh_keys or fresh_names could not be read", "mended");
            read_mirror(db)?.unwrap_or_default()
        };
        let sizes = MergeSizes::current();
        Ok(Self {
            path: path.to_owned(),
            mirror: Arc::new(mirror),
            added: HashMap::new(),
            added_names: Vec::new(),
            free: Vec::new(),
            keys: IndexMerge::load(db, &KEYS, sizes)?,
            names: IndexMerge::load(db, &NAMES, sizes)?,
            has_imports: db.query_row("select exists (select 1 from imported)", [], |row| row.get(0))?,
            share_failed: false,
        })
    }

    pub(super) fn mirror(&self) -> Arc<FreshMirror> {
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
    pub(super) fn name(&mut self, db: &Connection, name: &[u8], event: EventId, change: IndexChange) -> Result<()> {
        if change == IndexChange::Added {
            self.added_names.push((name_hash(name), event));
        }
        self.names.append(db, name, event, change)
    }

    /// Remembers that this key has no owner. Only [`take_free`](Self::take_free) precedes giving it one.
    pub(super) fn found_free(&mut self, key: &Key) {
        if self.free.len() < FREE_KEYS {
            self.free.push(*key);
        }
    }

    /// Whether this key is known to have no owner; it is about to get one.
    pub(super) fn take_free(&mut self, key: &Key) -> bool {
        let known = self.free.len();
        self.free.retain(|free| free != key);
        self.free.len() < known
    }

    /// The next event is claimed.
    pub(super) fn forget_free(&mut self) {
        self.free.clear();
    }

    /// Merges a little in the transaction in progress.
    pub(super) fn advance(&mut self, db: &Connection, share: MergeShare) -> Result<()> {
        let began = Instant::now();
        self.keys.advance(db, share, began)?;
        self.names.advance(db, share, began)
    }

    /// The transaction is committed: only now do others see what it added. Returns whether it merged anything.
    pub(super) fn committed(&mut self) -> bool {
        self.free.clear();
        if !self.added.is_empty() {
            self.mirror.change_keys(|mirror| mirror.extend(self.added.drain()));
        }
        if !self.added_names.is_empty() {
            self.mirror.change_names(|mirror| mirror.extend(self.added_names.drain(..)));
        }
        let mirror = &self.mirror;
        let keys = self.keys.committed(|merged| {
            mirror.change_keys(|mirror| {
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
        let names = self.names.committed(|merged| {
            mirror.change_names(|mirror| {
                for IndexEntry { key, event, .. } in merged {
                    mirror.remove(&(name_hash(key), *event));
                }
            });
        });
        keys || names
    }

    /// The transaction is rolled back.
    pub(super) fn rolled_back(&mut self) {
        self.added.clear();
        self.added_names.clear();
        self.free.clear();
        let (keys, names) = (self.keys.rolled_back(), self.names.rolled_back());
        self.share_failed = keys || names;
    }

    /// Begins what is due, and takes over what was put in order meanwhile. `while_idle`: no one writes, so that a merge
    /// begins earlier.
    pub(super) fn poll(&mut self, db: &Connection, while_idle: bool) -> std::result::Result<(), StoreError> {
        let mirror = self.mirror.clone();
        self.keys.poll(db, &self.path, while_idle, move |ordered| mirror.complete(ordered))?;
        self.names.poll(db, &self.path, while_idle, |_| {})
    }

    /// How many rows wait to be merged.
    pub(super) fn waiting(&self) -> u64 {
        self.keys.rows() + self.names.rows()
    }

    /// Whether so much waits that no more may be added.
    pub(super) fn is_overfull(&self) -> bool {
        self.keys.is_overfull() || self.names.is_overfull()
    }

    /// Whether the rows are being read for a merge.
    pub(super) fn is_ordering(&self) -> bool {
        self.keys.is_ordering() || self.names.is_ordering()
    }

    /// Closes the connections that read for a merge. SQLite moves the WAL into the database when its last connection is
    /// closed, and only one that writes can do so.
    pub(super) fn close_readers(&mut self) {
        self.keys.close_reader();
        self.names.close_reader();
    }

    pub(super) fn idle_merge(&self) -> IdleMerge {
        match (self.keys.idle_merge(), self.names.idle_merge()) {
            (IdleMerge::Now, _) | (_, IdleMerge::Now) => IdleMerge::Now,
            (IdleMerge::Soon, _) | (_, IdleMerge::Soon) => IdleMerge::Soon,
            (IdleMerge::Nothing, IdleMerge::Nothing) => IdleMerge::Nothing,
        }
    }
}

/// The fresh rows; `None` if one of them is damaged.
fn read_mirror(db: &Connection) -> Result<Option<FreshMirror>> {
    let (mut keys, mut names) = (HashMap::new(), BTreeSet::new());
    let mut rows = db.prepare("select key, event, gone from fresh_keys order by n")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let entry = (KeyPrefix::read(row.get_ref(0)?), event_id(row.get_ref(1)?), row.get_ref(2)?.as_i64());
        let (Some(key), Some(event), Ok(gone)) = entry else { return Ok(None) };
        if gone == 0 {
            keys.insert(key, event);
        }
    }
    let mut rows = db.prepare("select name, event, gone from fresh_names order by n")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let entry = (row.get_ref(0)?.as_blob(), event_id(row.get_ref(1)?), row.get_ref(2)?.as_i64());
        let (Ok(name), Some(event), Ok(gone)) = entry else { return Ok(None) };
        if gone == 0 {
            names.insert((name_hash(name), event));
        }
    }
    Ok(Some(FreshMirror { keys: RwLock::new(keys), names: RwLock::new(names) }))
}

/// How many characters of a delivery id are in the index: its last ones, which differ where the first ones do not. Ids
/// that end alike are told apart by their events.
const NAME_CHARS: usize = 16;

/// The part of a delivery id that is in the index, as SQLite's `substr(delivery_id, -16)` takes it.
pub(super) fn indexed_name(name: &str) -> &[u8] {
    let name = name.split('\0').next().unwrap_or_default();
    let from = name.char_indices().rev().nth(NAME_CHARS - 1).map_or(0, |(at, _)| at);
    &name.as_bytes()[from..]
}
