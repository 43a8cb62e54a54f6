//! The SQLite store: one file, one writer, and concurrent readers.
//!
//! ```text
//! claim, advance, forget, note ─▶ the writer thread ─▶ one transaction per batch, synced        writer.rs, rows.rs
//!                                 the WAL is moved into the database concurrently              checkpoint.rs
//! get, payload, due, list, …   ─▶ a few read-only connections                                  queries.rs, list.rs
//! ```
//!
//! The rules are those of [`ledger`]; this module only provides the rows. It holds the file's lock, and never replies
//! before the data is on disk.

mod build_info;
pub(crate) mod checkpoint;
pub(crate) mod columns;
mod definitions;
mod dictionaries;
pub(crate) mod duplicate_notes;
pub(crate) mod duplicates;
mod export;
mod fresh_index;
mod index_merge;
mod index_repair;
pub(crate) mod integrity;
pub(crate) mod last_write;
pub(crate) mod list;
mod lock;
mod open;
pub(crate) mod queries;
pub(crate) mod rows;
pub(crate) mod sql;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(feature = "node")]
pub(crate) use build_info::build_info;
pub use checkpoint::{VacuumReport, vacuum};
pub(super) use dictionaries::pack_all_anew;
pub use lock::DatabaseLock;
pub use open::{OpenDatabase, SqliteAccess, SqliteOpenError, open_file};

use super::body_packer::BodyPacker;
use super::clock::StoreClock;
use super::inspect::QuarantinedMessage;
use super::schema::{self, sqlite as migrations};
use super::sql::SqlPermits;
use super::status_text::those_that_wait;
use super::{
    Administer, AdvanceResult, DeclaredFields, DueEvents, DueQuery, DuplicateLookup, DuplicateNote, EventCounts,
    EventDetails, EventPage, EventQuery, ForgetCounts, ImportCounts, Inspect, KnownDuplicate, RemovalResult,
    RetentionPolicies, SourceCount, SourceRetention, SqlOutcome, SqlPermit, SqlPermitFuture, StartDueRequest,
    StartDueResult, Store, StoreBackend, StoreError, StoreFuture, StoredValue, SweepError, SweepPace, WriteProbe,
};
use crate::decide::claim::{ClaimResult, NewEvent, Payload};
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{self, RegisterEdit, SubjectRegister};
use crate::decide::limits;
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::Timestamp;
use crate::decide::transition::Transition;
use checkpoint::WalCheckpointer;
use duplicate_notes::DuplicateNotes;
use duplicates::RecentKeys;
use fresh_index::{FreshKeys, FreshMirror, IndexWriter};
use queries::ReaderPool;
use rows::SqliteLedger;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::{oneshot, watch};
use tracing::warn;
use writer::{FailureSignal, ReplyTask, SqliteWriter, WriterJob};

/// A store in a file of this machine.
pub struct SqliteStore {
    path: PathBuf,
    writer: Option<WriterHandle>,
    readers: Arc<ReaderPool>,
    clock: StoreClock,
    failed: Arc<FailureSignal>,
    commits: Arc<AtomicU64>,
    notes: DuplicateNotes,
    recent: RecentKeys,
    /// The keys that are not in the index yet; `None` where another process writes them.
    mirror: Option<Arc<FreshMirror>>,
    places: SqlPermits,
    _lock: Option<Arc<DatabaseLock>>,
}

/// The channel to the writer thread.
struct WriterHandle {
    jobs: SyncSender<WriterJob>,
    thread: JoinHandle<()>,
}

impl SqliteStore {
    /// Opens the database at this path, with the wall clock.
    pub fn open(path: &Path, access: SqliteAccess) -> Result<Self, SqliteOpenError> {
        Self::open_by(path, access, None)
    }

    /// Opens it with another clock, for tests.
    pub fn open_by(path: &Path, access: SqliteAccess, clock: Option<StoreClock>) -> Result<Self, SqliteOpenError> {
        let OpenDatabase { lock, db } = open_file(path, access)?;
        // The lock is declared first, so that it is dropped last, also where this fails: see `lock.rs`.
        let (path, lock) = (&lock::real_name(path), lock.map(Arc::new));
        let mut db = db;
        if access != SqliteAccess::Read {
            open::defined(path, &db)?;
        }
        if let (SqliteAccess::Node, Some(lock)) = (access, &lock) {
            open::sound(path, &db, lock)?;
        }
        open::not_copied(path, &db, access)?;
        let wall = StoreClock::wall(Timestamp::default()).now();
        fit_schema(path, &mut db, access, clock.as_ref().map_or(wall, StoreClock::now))?;
        let (floor, turns) = writer::marks(&db).map_err(|error| SqliteOpenError::sqlite(path, error))?;
        let seen = queries::read(&db).map_err(|error| SqliteOpenError::sqlite(path, error))?;
        let clock = clock.unwrap_or_else(|| StoreClock::wall(floor));
        clock.last_seen(seen, Some(floor).filter(|floor| *floor > Timestamp::default()));
        let failed = Arc::new(watch::Sender::new(None));
        let (commits, notes) = (Arc::new(AtomicU64::new(0)), DuplicateNotes::default());
        let (mut writer, mut mirror) = (None, None);
        if let Some(lock) = &lock {
            let mark = lock.mark(path)?;
            let (jobs, received) = sync_channel(limits::CLAIMS_WAITING_MAX);
            let (failed, commits, clock) = (failed.clone(), commits.clone(), clock.clone());
            let log = WalCheckpointer::new(open::writer(path)?, failed.clone())
                .map_err(|error| SqliteOpenError::io(path, error))?;
            let notes = notes.clone();
            let index = IndexWriter::load(path, &db).map_err(|error| SqliteOpenError::sqlite(path, error))?;
            mirror = Some(index.mirror());
            let mut hand = SqliteWriter {
                path: path.to_owned(),
                db,
                clock,
                access,
                turns,
                jobs: received,
                failed,
                commits,
                notes,
                noted: Vec::new(),
                log,
                mark,
                index,
                packer: BodyPacker::default(),
                last_job: Instant::now(),
                merge_pause: None,
                is_unsure: false,
                saw: None,
            };
            if access == SqliteAccess::Node {
                recover_orphans(&mut hand).map_err(|error| SqliteOpenError::sqlite(path, error))?;
            }
            let thread = std::thread::Builder::new().name("sqlite".into()).spawn(move || hand.run());
            writer = Some(WriterHandle { jobs, thread: thread.map_err(|error| SqliteOpenError::io(path, error))? });
        }
        let readers = Arc::new(ReaderPool::new(path.to_owned(), lock.clone()));
        let (recent, places) = (RecentKeys::default(), SqlPermits::new(1)); // there is one writer
        let path = path.to_owned();
        Ok(Self { path, writer, readers, clock, failed, commits, notes, recent, mirror, places, _lock: lock })
    }

    /// How many transactions have written something since it was opened.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Runs this in the writer's next transaction; the reply comes after the commit. It runs even if the caller is
    /// gone, and runs again if a transaction that also merged was rolled back.
    fn ask<T: Send + 'static>(
        &self,
        rows: usize,
        bytes: usize,
        act: impl FnMut(&mut SqliteLedger<'_>) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let (to, answer) = oneshot::channel();
        let sent = self.send(WriterJob::Do { task: Box::new(ReplyTask::new(act, to)), rows, bytes });
        Box::pin(async move {
            sent?;
            answer.await.unwrap_or_else(|_| Err(StoreError::Unsure("the writer thread ended".into())))
        })
    }

    fn send(&self, job: WriterJob) -> Result<(), StoreError> {
        self.works()?;
        let Some(pen) = &self.writer else { return Err(StoreError::Down("the store was opened read-only".into())) };
        pen.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Down("too many writes are waiting".into()),
            TrySendError::Disconnected(_) => StoreError::Broken("the writer thread ended".into()),
        })
    }

    fn works(&self) -> Result<(), StoreError> {
        match &*self.failed.borrow() {
            Some(why) => Err(StoreError::Broken(why.clone())),
            None => Ok(()),
        }
    }

    fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            self.works()?;
            self.readers.clone().ask(look).await
        })
    }

    /// Stops the store if this read, which every attempt needs, found it broken: otherwise no event would start, and
    /// the operator would not know.
    fn stop_if_broken<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Broken(why)) = &read {
            writer::stop(&self.failed, why);
        }
        read
    }

    /// The same on this thread, if a connection is idle: for a row or two.
    fn read_inline<T: Send + 'static>(
        &self,
        look: impl Fn(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            self.works()?;
            match self.readers.at_once(&look) {
                Some(found) => found,
                None => self.readers.clone().ask(look).await,
            }
        })
    }
}

/// The recipes stored in the database at this path, read beside a running node; empty if it cannot be read.
pub fn remembered(path: &Path) -> Vec<IdentityRecipe> {
    open_file(path, SqliteAccess::Read).ok().and_then(|opened| queries::recipes(&opened.db).ok()).unwrap_or_default()
}

/// The waiting events, in the same way.
pub fn waiting(path: &Path) -> Vec<Event> {
    let page = |opened: OpenDatabase| list::page(&opened.db, &those_that_wait()).ok();
    open_file(path, SqliteAccess::Read).ok().and_then(page).map(|page| page.events).unwrap_or_default()
}

impl Drop for SqliteStore {
    /// Finishes the queued writes, then closes the file, then releases its lock.
    fn drop(&mut self) {
        self.readers.close();
        if let Some(WriterHandle { jobs, thread }) = self.writer.take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

/// Migrates the schema for a node, or for a new file; otherwise only checks whether it fits.
fn fit_schema(path: &Path, db: &mut Connection, access: SqliteAccess, now: Timestamp) -> Result<(), SqliteOpenError> {
    let applied = migrations::applied(db).map_err(|error| SqliteOpenError::sqlite(path, error))?;
    let fits = match access {
        SqliteAccess::Node => migrations::up(db, None, now).map(drop),
        SqliteAccess::Tool | SqliteAccess::Copy if applied.is_empty() => migrations::up(db, None, now).map(drop),
        SqliteAccess::Tool | SqliteAccess::Copy | SqliteAccess::Read => {
            schema::fits(migrations::MIGRATIONS, &applied).map_err(Into::into)
        }
    };
    fits.map_err(|problem| SqliteOpenError::schema(path, problem))
}

/// Takes over from the previous node. That was the only one, so the leases of actions that ended with it end now; the
/// others expire by the clock, because their receivers continue. A slot whose holder has ended is freed.
fn recover_orphans(writer: &mut SqliteWriter) -> Result<(), rusqlite::Error> {
    let tx = Transaction::new_unchecked(&writer.db, TransactionBehavior::Immediate)?;
    let at = writer.clock.moment();
    let fresh = FreshKeys::Writer(&mut writer.index);
    let packer = Some(&mut writer.packer);
    let mut rows = SqliteLedger { db: &tx, at, turns: &mut writer.turns, mark: &mut writer.mark, fresh, packer };
    let (ended, left) = rows.end_leases()?;
    let freed = rows.free_slots()?;
    let saw = writer.clock.to_write().map(|(_, time)| time);
    if let Some(time) = saw {
        queries::write(&tx, time)?;
    }
    tx.commit()?;
    if let Some(time) = saw {
        writer.clock.written(time);
    }
    writer.mark.committed();
    writer.index.committed();
    if ended + left + freed > 0 {
        warn!(target: "hookonce", running = ended, leased = left, slots = freed, "took over");
    }
    Ok(())
}

impl StoreBackend for SqliteStore {
    fn sweep_pace(&self) -> SweepPace {
        SweepPace::ONE_WRITER
    }

    fn sql_permit(&self) -> SqlPermitFuture<'_> {
        self.places.next()
    }

    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        Box::pin(async move { self.stop_if_broken(self.read(move |db| queries::payload(db, id)).await) })
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        self.read_inline(move |db| queries::receipt(db, id))
    }

    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        let told = self.works().and_then(|()| if self.notes.add(notes) { self.send(WriterJob::Noted) } else { Ok(()) });
        Box::pin(std::future::ready(told))
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        self.read(queries::retention)
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        self.ask(rows.len(), 0, move |ledger| queries::retain(ledger.db, &rows))
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        self.ask(1, message.head.len(), move |rows| queries::lay(rows.db, &message))
    }

    fn probe(&self, probe: WriteProbe) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.works()?;
            if probe == WriteProbe::Alive {
                return self.ask(1, 0, |_| Ok(())).await;
            }
            open::has_room(&self.path)?;
            if probe == WriteProbe::Write {
                let path = self.path.clone();
                let written = tokio::task::spawn_blocking(move || open::write_beside(&path)).await;
                written.map_err(|error| StoreError::Down(ErrorMessage::of(error)))??;
                self.ask(1, 0, |_| Ok(())).await?;
            }
            Ok(())
        })
    }

    fn failed(&self) -> watch::Receiver<Option<ErrorMessage>> {
        self.failed.subscribe()
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        Box::pin(starts.by_steps(self))
    }
}

impl Store for SqliteStore {
    fn claim(&self, batch: Vec<Arc<NewEvent>>) -> StoreFuture<'_, Vec<ClaimResult>> {
        for new in &batch {
            self.recent.put(&new.keys);
        }
        let bytes = batch.iter().map(|new| new.payload.body.len()).sum();
        self.ask(batch.len(), bytes, move |rows| {
            let at = rows.at;
            batch.iter().map(|new| ledger::claim(rows, new, at)).collect()
        })
    }

    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>> {
        self.ask(changes.len(), 0, move |rows| {
            let now = rows.at.now;
            changes.iter().map(|one| ledger::advance(rows, one, now)).collect()
        })
    }

    fn shares_commits(&self) -> bool {
        true
    }

    fn claim_and_advance(
        &self,
        claims: Vec<Arc<NewEvent>>,
        changes: Arc<Vec<Transition>>,
    ) -> StoreFuture<'_, (Vec<ClaimResult>, Vec<Option<AdvanceResult>>)> {
        for new in &claims {
            self.recent.put(&new.keys);
        }
        let bytes = claims.iter().map(|new| new.payload.body.len()).sum();
        self.ask(claims.len() + changes.len(), bytes, move |rows| {
            let at = rows.at;
            let claims = claims.iter().map(|new| ledger::claim(rows, new, at)).collect::<Result<_, _>>()?;
            let changes = changes.iter().map(|one| ledger::advance(rows, one, at.now).map(Some));
            Ok((claims, changes.collect::<Result<_, _>>()?))
        })
    }

    fn state(&self, key: Key) -> StoreFuture<'_, Option<Arc<str>>> {
        self.ask(1, 0, move |rows| ledger::state_of(rows, &key))
    }

    fn swap_state(&self, key: Key, was: Option<Arc<str>>, is: Option<Arc<str>>) -> StoreFuture<'_, bool> {
        self.ask(1, 0, move |rows| ledger::swap_state(rows, &key, was.as_deref(), is.as_deref()))
    }

    fn advance_with_sql<'a>(
        &'a self,
        change: Transition,
        statement: BoundStatement,
        _: &'a SqlPermit,
    ) -> StoreFuture<'a, SqlOutcome> {
        let (to, answer) = oneshot::channel();
        let sent = self.send(WriterJob::Effect { change: Box::new(change), statement, to });
        Box::pin(async move {
            sent?;
            answer.await.unwrap_or_else(|_| Err(StoreError::Unsure("the writer thread ended".into())))
        })
    }

    fn get(&self, id: EventId) -> StoreFuture<'_, Option<Event>> {
        self.read_inline(move |db| queries::get(db, id))
    }

    fn find_duplicate(&self, new: &NewEvent, needs: DuplicateLookup) -> StoreFuture<'_, Option<KnownDuplicate>> {
        let recall = |db: &Connection| duplicates::recall(db, new, needs, self.mirror.as_deref(), self.clock.moment());
        let ask = || self.recent.has_any(&new.keys).then(|| self.readers.at_once(recall)).flatten();
        let found = self.works().and_then(|()| ask().unwrap_or(Ok(None)));
        Box::pin(std::future::ready(found))
    }

    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        let now = self.clock.now();
        Box::pin(async move {
            let looked = self.stop_if_broken(self.read(move |db| queries::due(db, &look, limit, now)).await)?;
            if !looked.damaged.is_empty() {
                self.bury(looked.damaged).await?;
            }
            Ok(looked.due)
        })
    }

    /// In one transaction: if it fails, nothing is deleted. Dictionaries are looked at once nothing else is left.
    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError> {
        let policies = keeps.clone();
        let forgotten = self.ask(limit, 0, move |rows| {
            let by = rows.at.expiry;
            ledger::forget(rows, &keeps, limit, by)
        });
        Box::pin(async move {
            let freed = forgotten.await?;
            if !freed.fills(limit) {
                self.sweep_dictionaries(policies).await.map_err(|error| SweepError { freed, error })?;
            }
            Ok(freed)
        })
    }

    fn would_forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, u64> {
        let by = self.clock.jumped();
        self.ask(1, 0, move |rows| ledger::would_forget(rows, &keeps, limit, by))
    }
}

impl Administer for SqliteStore {
    fn remove_all(&self, ids: Vec<EventId>) -> StoreFuture<'_, Vec<RemovalResult>> {
        Box::pin(self.without_dictionaries_of(ids, |rows, ids| {
            let now = rows.at.now;
            ids.iter().map(|id| ledger::remove(rows, *id, now)).collect()
        }))
    }

    fn remove_dictionaries(&self, source: String) -> StoreFuture<'_, ()> {
        Box::pin(self.remove_dictionaries_of(source))
    }

    fn import(&self, keys: Vec<Key>) -> StoreFuture<'_, ImportCounts> {
        self.ask(keys.len(), 0, move |rows| ledger::import(rows, &keys))
    }

    fn preview_claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<ClaimResult>> {
        let at = self.clock.moment();
        let mirror = self.mirror.clone();
        self.read(move |db| duplicates::foresee(db, &new, mirror.as_deref(), at))
    }

    fn edit_register(&self, subject: Key, edit: RegisterEdit) -> StoreFuture<'_, super::RegisterEditResult> {
        self.ask(1, 0, move |rows| {
            let now = rows.at.now;
            ledger::edit_register(rows, &subject, &edit, now)
        })
    }

    fn confirm_time(&self) -> StoreFuture<'_, ()> {
        self.clock.confirm();
        self.ask(1, 0, |_| Ok(())) // the next transaction, which is this one, writes it
    }
}

impl Inspect for SqliteStore {
    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>> {
        self.read(move |db| list::list(db, &listing))
    }

    fn page(&self, listing: EventQuery) -> StoreFuture<'_, EventPage> {
        self.read(move |db| list::page(db, &listing))
    }

    fn counts(&self) -> StoreFuture<'_, EventCounts> {
        self.read(list::census)
    }

    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>> {
        self.read(move |db| queries::story(db, id))
    }

    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        let mirror = self.mirror.clone();
        self.read(move |db| queries::named(db, &name, mirror.as_deref(), limit))
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>> {
        self.read(move |db| queries::other_sources(db, &known))
    }

    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>> {
        self.read(queries::recipes)
    }

    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()> {
        self.ask(recipes.len(), 0, move |rows| export::remember(rows, &recipes))
    }

    fn registers(&self, after: Option<Key>, limit: usize) -> StoreFuture<'_, Vec<(Key, SubjectRegister)>> {
        Box::pin(super::copy::registers(self, after, limit))
    }

    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>> {
        self.read(move |db| queries::newest(db, limit))
    }

    /// Fields of the same name share a column; a field used by an identity of any source has an index.
    fn declare(&self, declared: Vec<DeclaredFields>) -> StoreFuture<'_, Vec<String>> {
        let mut columns: Vec<(String, bool)> = Vec::new();
        for (name, identifies) in declared.into_iter().flat_map(|source| source.fields) {
            match columns.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 |= identifies,
                None => columns.push((name, identifies)),
            }
        }
        self.ask(columns.len(), 0, move |rows| columns::declare(rows.db, &columns))
    }
}

impl SqliteStore {
    /// Ends due events that cannot be read, so that they do not come up again.
    fn bury(&self, ids: Vec<EventId>) -> StoreFuture<'_, ()> {
        use ledger::Ledger;
        self.ask(ids.len(), 0, move |rows| ids.iter().try_for_each(|id| rows.row(*id).map(drop)))
    }
}
