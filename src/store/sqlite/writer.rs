//! The writer thread, the only one that writes.
//!
//! It takes every queued job, runs them in one transaction, and replies to all after the commit. The next batch forms
//! while that commit runs; there is no timer.
//!
//! ```text
//! begin immediate ─ jobs ─ commit ─▶ reply to all ─▶ checkpoint, when the WAL is long
//!       │            │        └─ the sync failed: unsure, and nothing is written any more
//!       └────────────┴─ full, busy: rolled back, down, and the next batch is tried
//! ```
//!
//! A transaction also merges a little of the index (`index_merge.rs`). If it fails, it is tried again without that, and
//! merging pauses.

use super::checkpoint::WalCheckpointer;
use super::duplicate_notes::{DuplicateNotes, DuplicateTally, TransactionWrites};
use super::fresh_index::{FreshKeys, IdleMerge, IndexWriter};
use super::index_merge::MergeShare;
use super::last_write::LastWriteMark;
use super::open::{self, SqliteAccess};
use super::queries;
use super::rows::SqliteLedger;
use super::sql::SqlWriteJob;
use crate::decide::error_message::ErrorMessage;
use crate::decide::id::EventId;
use crate::decide::limits;
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::Transition;
use crate::store::body_packer::BodyPacker;
use crate::store::clock::StoreClock;
use crate::store::{SqlOutcome, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;
use tokio::sync::{oneshot, watch};
use tracing::{error, warn};

/// Without a job for so long, the writer is idle.
const IDLE_AFTER: Duration = Duration::from_millis(100);
/// How soon the writer looks whether what it will merge is in order.
const ORDERED_SOON: Duration = Duration::from_millis(20);
/// The first pause of merging after it failed, and the longest: each is twice the one before.
const MERGE_PAUSE_MIN: Duration = Duration::from_secs(1);
const MERGE_PAUSE_MAX: Duration = Duration::from_mins(1);

/// One job of the next transaction, with its reply.
pub(super) trait WriteTask: Send {
    /// Runs it. If its transaction was rolled back, it may run again.
    fn run(&mut self, rows: &mut SqliteLedger<'_>) -> Result<(), rusqlite::Error>;
    /// Sends the result once it is committed, or the error.
    fn tell(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A job for the writer.
pub(super) enum WriterJob {
    /// Runs this task, with `bytes` of bodies and `rows` rows.
    Do { task: Box<dyn WriteTask>, rows: usize, bytes: usize },
    /// Writes a transition and runs a statement, in a transaction of their own.
    Effect { change: Box<Transition>, statement: BoundStatement, to: oneshot::Sender<Result<SqlOutcome, StoreError>> },
    /// Checks the buffered duplicate notes: there are some.
    Noted,
}

/// A closure as a task: its result is held until the commit.
pub(super) struct ReplyTask<T, F> {
    act: F,
    answer: Option<T>,
    to: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> ReplyTask<T, F> {
    pub(super) fn new(act: F, to: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self { act, answer: None, to }
    }
}

impl<T: Send, F: FnMut(&mut SqliteLedger<'_>) -> Result<T, rusqlite::Error> + Send> WriteTask for ReplyTask<T, F> {
    fn run(&mut self, rows: &mut SqliteLedger<'_>) -> Result<(), rusqlite::Error> {
        self.answer = Some((self.act)(rows)?);
        Ok(())
    }

    fn tell(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { answer, to, .. } = *self;
        let _ = to.send(committed.map(|()| answer.expect("what is committed has run"))); // the caller may be gone
    }
}

/// Tasks for one transaction, and SQL jobs to run after it in one transaction each.
type WriterBatch = (Vec<Box<dyn WriteTask>>, Vec<SqlWriteJob>);

/// Why the store stopped, if it did. Never reset.
pub(super) type FailureSignal = watch::Sender<Option<ErrorMessage>>;

/// The state of the writer thread.
pub(super) struct SqliteWriter {
    pub(super) path: PathBuf,
    pub(super) db: Connection,
    pub(super) clock: StoreClock,
    pub(super) access: SqliteAccess,
    pub(super) turns: u64,
    pub(super) jobs: Receiver<WriterJob>,
    pub(super) failed: Arc<FailureSignal>,
    pub(super) commits: Arc<AtomicU64>,
    pub(super) notes: DuplicateNotes,
    /// The notes that this transaction writes.
    pub(super) noted: Vec<(EventId, DuplicateTally)>,
    pub(super) log: WalCheckpointer,
    pub(super) mark: LastWriteMark,
    /// What is appended to the indexes, and merged into them behind.
    pub(super) index: IndexWriter,
    /// Packs bodies with dictionaries that are in the store.
    pub(super) packer: BodyPacker,
    /// When the last job came.
    pub(super) last_job: Instant,
    /// Since merging failed.
    pub(super) merge_pause: Option<MergePause>,
    /// It is unknown whether the last commit is on the disk.
    pub(super) is_unsure: bool,
    /// The last-seen time that this transaction writes.
    pub(super) saw: Option<Timestamp>,
}

/// A pause of merging after it failed: on a full disk it would only fail again.
pub(super) struct MergePause {
    length: Duration,
    until: Instant,
}

impl SqliteWriter {
    /// Works until all senders are gone.
    pub(super) fn run(mut self) {
        let _guard = WriterPanicGuard(self.failed.clone());
        while let Some((batch, alone)) = self.next_batch() {
            self.work(batch);
            for effect in alone {
                self.effect(effect);
            }
        }
        self.notes.close();
        while self.failed.borrow().is_none() && self.notes.are_due() {
            self.work(Vec::new());
        }
        self.index.close_readers();
        self.ask_for_check_if_broken();
        leave_log(&self.db, &self.failed);
    }

    /// The queued jobs, up to the limits of a batch; waits for the first. `None` if all senders are gone.
    fn next_batch(&mut self) -> Option<WriterBatch> {
        self.poll_index(IdleState::Busy);
        let (wait, for_idle_work) = self.patience();
        let first = match wait {
            None => self.jobs.recv().ok()?,
            Some(wait) => match self.jobs.recv_timeout(wait) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    if for_idle_work {
                        self.merge_while_idle();
                    }
                    return Some(Default::default());
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            },
        };
        self.last_job = Instant::now();
        let (mut batch, mut alone) = (Vec::new(), Vec::new());
        let (mut rows, mut bytes, mut next) = (0, 0, Some(first));
        while let Some(job) = next {
            match job {
                WriterJob::Do { task, rows: more, bytes: heavier } => {
                    batch.push(task);
                    rows += more;
                    bytes += heavier;
                }
                WriterJob::Effect { change, statement, to } => {
                    alone.push(SqlWriteJob { change, statement, to });
                    rows += 1;
                }
                WriterJob::Noted => {}
            }
            let room = rows < limits::BATCH_CLAIMS_MAX && bytes < limits::BATCH_BYTES_MAX;
            next = if room { self.jobs.try_recv().ok() } else { None };
        }
        Some((batch, alone))
    }

    /// How long to wait for a job before something else is done, and whether that is to merge. `None`: as long as it takes.
    fn patience(&self) -> (Option<Duration>, bool) {
        if self.failed.borrow().is_some() {
            return (None, false); // nothing is written any more
        }
        let now = Instant::now();
        let idle_at = self.merge_pause.as_ref().map_or(self.last_job + IDLE_AFTER, |pause| {
            pause.until.max(self.last_job + IDLE_AFTER) // on a full disk the next try fails, too
        });
        let idle_in = idle_at.saturating_duration_since(now);
        let merge = match self.index.idle_merge() {
            IdleMerge::Nothing => None,
            IdleMerge::Soon if self.index.is_ordering() => Some(idle_in.max(ORDERED_SOON)),
            IdleMerge::Now | IdleMerge::Soon => Some(idle_in),
        };
        match (self.notes.due_in(), merge) {
            (None, merge) => (merge, true),
            (Some(notes), Some(merge)) if merge < notes => (Some(merge), true),
            (Some(notes), _) => (Some(notes), false),
        }
    }

    /// Begins or goes on with merging, in a transaction of its own: no one writes.
    fn merge_while_idle(&mut self) {
        self.poll_index(IdleState::Idle);
        if self.failed.borrow().is_none() && self.index.idle_merge() == IdleMerge::Now {
            if let Err(error) = self.transact(&mut [], MergeShare::WhileIdle) {
                self.merge_failed(&error);
            }
            self.checkpoint();
        }
    }

    fn poll_index(&mut self, idle: IdleState) {
        if self.failed.borrow().is_some() || self.is_pausing() {
            return;
        }
        if let Err(error) = self.index.poll(&self.db, idle == IdleState::Idle) {
            self.merge_failed(&error);
        }
    }

    /// Whether merging failed a moment ago.
    fn is_pausing(&self) -> bool {
        self.merge_pause.as_ref().is_some_and(|pause| Instant::now() < pause.until)
    }

    /// Pauses merging, or stops the store if the file is damaged: the next node that opens it makes the index again.
    fn merge_failed(&mut self, error: &StoreError) {
        match error {
            StoreError::Unsure(_) | StoreError::Broken(_) => self.stop_by(error),
            StoreError::Down(why) => {
                let length = self.merge_pause.as_ref().map_or(MERGE_PAUSE_MIN, |last| last.length * 2);
                let length = length.min(MERGE_PAUSE_MAX);
                self.merge_pause = Some(MergePause { length, until: Instant::now() + length });
                let (rows, why) = (self.index.waiting(), &**why);
                let why = format!("what is new cannot be merged into the indexes; {rows} rows wait: {why}");
                warn!(target: "hookonce", why, "index");
            }
        }
    }

    fn work(&mut self, mut batch: Vec<Box<dyn WriteTask>>) {
        let stopped = self.failed.borrow().clone();
        let committed = match stopped {
            Some(why) => Err(StoreError::Broken(why)),
            None if batch.is_empty() && !self.notes.are_due() => return,
            None if self.index.is_overfull() && self.is_pausing() => {
                Err(StoreError::Down("too much waits to be merged into the indexes".into()))
            }
            None => self.commit_batch(&mut batch),
        };
        if let Err(error) = &committed {
            self.stop_by(error);
        }
        for task in batch {
            task.tell(committed.clone());
        }
        self.checkpoint();
    }

    /// Commits a batch, if need be without its share of merging.
    fn commit_batch(&mut self, batch: &mut [Box<dyn WriteTask>]) -> Result<(), StoreError> {
        let share = if self.is_pausing() { MergeShare::Nothing } else { MergeShare::Paced };
        self.index.share_failed = false;
        match self.transact(batch, share) {
            Err(error @ (StoreError::Down(_) | StoreError::Broken(_))) if self.index.share_failed => {
                self.notes.put_back(std::mem::take(&mut self.noted));
                let committed = self.transact(batch, MergeShare::Nothing);
                self.merge_failed(&error);
                committed
            }
            committed => committed,
        }
    }

    /// Stops the store by an error after which nothing may be written. If the file is damaged, it may be an index, which
    /// the next node makes again.
    pub(super) fn stop_by(&mut self, error: &StoreError) {
        match error {
            StoreError::Down(_) => {}
            StoreError::Unsure(why) => {
                self.is_unsure = true;
                stop(&self.failed, why);
            }
            StoreError::Broken(why) => {
                stop(&self.failed, why);
                self.ask_for_check_if_broken();
            }
        }
    }

    fn ask_for_check_if_broken(&self) {
        if self.failed.borrow().is_some() && !self.is_unsure {
            open::ask_for_check(&self.path);
        }
    }

    pub(super) fn checkpoint(&self) {
        if self.failed.borrow().is_none() {
            self.log.checkpoint_if_due(&self.db);
        }
    }

    /// One transaction: all of it is durable when this returns, or nothing of it is written.
    fn transact(&mut self, batch: &mut [Box<dyn WriteTask>], share: MergeShare) -> Result<(), StoreError> {
        let wrote = match self.in_transaction(batch, share) {
            Ok(wrote) => {
                self.execute("commit").map(|()| wrote).map_err(|error| classify(error, SqliteCommitStage::Commit))
            }
            Err(error) => Err(classify(error, SqliteCommitStage::Before)),
        };
        if wrote.is_err() && !self.db.is_autocommit() {
            self.execute("rollback").map_err(cannot_roll_back)?;
        }
        let saw = self.saw.take();
        if wrote.is_ok() {
            self.mark.committed();
            self.noted.clear();
            if self.index.committed() {
                self.merge_pause = None;
            }
            if let Some(time) = saw {
                self.clock.written(time);
            }
        } else {
            self.mark.rolled_back();
            self.index.rolled_back();
            self.packer.clear();
        }
        if wrote? {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns whether anything was written.
    fn in_transaction(&mut self, batch: &mut [Box<dyn WriteTask>], share: MergeShare) -> Result<bool, rusqlite::Error> {
        self.execute("begin immediate")?;
        let before = self.db.total_changes();
        let at = self.clock.moment();
        let fresh = FreshKeys::Writer(&mut self.index);
        let packer = Some(&mut self.packer);
        let mut rows = SqliteLedger { db: &self.db, at, turns: &mut self.turns, mark: &mut self.mark, fresh, packer };
        for task in batch {
            task.run(&mut rows)?;
        }
        let besides =
            if self.db.total_changes() == before { TransactionWrites::Nothing } else { TransactionWrites::Writes };
        self.noted = self.notes.take(besides);
        for (event, seen) in &self.noted {
            rows.note(*event, seen)?;
        }
        self.index.advance(&self.db, share)?;
        // During a copy the last-seen time is that of the other store.
        if self.access != SqliteAccess::Copy
            && let Some((_, time)) = self.clock.to_write()
        {
            queries::write(&self.db, time)?;
            self.saw = Some(time);
        }
        Ok(self.db.total_changes() != before)
    }

    pub(super) fn execute(&self, sql: &str) -> Result<(), rusqlite::Error> {
        self.db.prepare_cached(sql)?.execute([]).map(drop)
    }
}

/// Whether jobs come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IdleState {
    /// They do.
    Busy,
    /// None has come for a while.
    Idle,
}

/// Stops the store: nothing is written from here on.
pub(super) fn stop(failed: &FailureSignal, why: &ErrorMessage) {
    failed.send_if_modified(|was| {
        let first = was.is_none();
        if first {
            error!(target: "hookonce", why = &**why, "broken");
            *was = Some(why.clone());
        }
        first
    });
}

/// Leaves the WAL of a stopped store to the next process that opens it: data that a disk once failed to keep must not
/// count as kept because a second try succeeded.
pub(super) fn leave_log(db: &Connection, failed: &FailureSignal) {
    if failed.borrow().is_some() {
        let _ = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }
}

/// Stops the store if the writer thread panics.
struct WriterPanicGuard(Arc<FailureSignal>);

impl Drop for WriterPanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            stop(&self.0, &"the writer thread panicked".into());
        }
    }
}

/// The stage of a transaction at which an error occurred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SqliteCommitStage {
    /// Before the commit, or while only reading: nothing is written.
    Before,
    /// In the commit itself.
    Commit,
}

/// The store error for an SQLite error.
pub(super) fn classify(error: rusqlite::Error, stage: SqliteCommitStage) -> StoreError {
    let why = || ErrorMessage::from(error.to_string());
    let meaning = match (error.sqlite_error_code(), stage) {
        // SQLite rejects a statement of ours: the schema has changed
        _ if matches!(error, rusqlite::Error::SqlInputError { .. }) => StoreError::Broken(why()),
        (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ReadOnly), _) => {
            StoreError::Broken(why())
        }
        (Some(ErrorCode::Unknown), _) => StoreError::Broken(why()),
        // After a failed sync the pages may or may not be there after a restart. Nothing may be built on them.
        (Some(ErrorCode::SystemIoFailure), SqliteCommitStage::Commit) => StoreError::Unsure(why()),
        (Some(_), _) => StoreError::Down(why()),
        // Not an SQLite error but ours: a key, register or slot is damaged.
        (None, _) => StoreError::broken(format!("a row cannot be read: {error}")),
    };
    meaning.caused_by(error)
}

/// The transaction is still open, and everything that follows would be written with it.
pub(super) fn cannot_roll_back(error: rusqlite::Error) -> StoreError {
    StoreError::broken(format!("cannot roll back: {error}")).caused_by(error)
}

/// The latest time in the store, as far as what is open, its newest events and its last attempts tell, and the last turn in
/// use.
pub(super) fn marks(db: &Connection) -> Result<(Timestamp, u64), rusqlite::Error> {
    // An ended event gets a new turn when it comes back, so only the turns of the others count.
    let open = "select coalesce(max(received_at), 0), coalesce(max(turn), 0) from events where ended_at is null";
    let (mut latest, turn) =
        db.query_row(open, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
    for ended in [
        "select max(received_at, coalesce(ended_at, 0)) from events order by id desc limit 1000",
        "select ended_at from attempts order by id desc limit 1000",
    ] {
        // What is damaged says nothing, and keeps no node from starting.
        let times = db.prepare(ended).and_then(|mut rows| {
            let mut rows = rows.query([])?;
            let mut last = 0;
            while let Some(row) = rows.next()? {
                last = last.max(row.get_ref(0)?.as_i64().unwrap_or(0));
            }
            Ok(last)
        });
        match times {
            Ok(last) => latest = latest.max(last),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((Timestamp(latest), turn))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: i32, stage: SqliteCommitStage, expected: &str) {
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        let word = match classify(error, stage) {
            StoreError::Down(_) => "down",
            StoreError::Unsure(_) => "unsure",
            StoreError::Broken(_) => "broken",
        };
        assert_eq!(word, expected, "{code} {stage:?}");
    }

    #[test]
    fn a_full_disk_is_down_a_failed_sync_is_unsure_and_rot_is_broken() {
        use rusqlite::ffi;
        for stage in [SqliteCommitStage::Before, SqliteCommitStage::Commit] {
            for code in [ffi::SQLITE_FULL, ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED, ffi::SQLITE_NOMEM] {
                check(code, stage, "down");
            }
            for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_READONLY, ffi::SQLITE_ERROR] {
                check(code, stage, "broken");
            }
        }
        check(ffi::SQLITE_IOERR_FSYNC, SqliteCommitStage::Commit, "unsure");
        check(ffi::SQLITE_IOERR_READ, SqliteCommitStage::Before, "down");
    }
}
