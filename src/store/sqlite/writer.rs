//! The one thread that writes.
//!
//! It takes every job that is there, does them in one transaction, and answers all after the commit. The next batch
//! forms while that commit runs: no timer.
//!
//! ```text
//! begin immediate ─ jobs ─ commit ─▶ answer all ─▶ move the log, when it is long
//!       │            │        └─ the disk did not say: unsure, and nothing is written any more
//!       └────────────┴─ full, busy: rolled back, down, and the next batch is tried
//! ```

use super::checkpoint::WalCheckpointer;
use super::duplicate_notes::{DuplicateNotes, TxnContent};
use super::last_write::LastWriteMark;
use super::open::SqliteAccess;
use super::queries;
use super::rows::SqliteLedger;
use super::sql::SqlWriteJob;
use crate::decide::limits;
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::Timestamp;
use crate::decide::transition::Transition;
use crate::store::clock::StoreClock;
use crate::store::{SqlOutcome, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use tokio::sync::{oneshot, watch};
use tracing::error;

/// One thing to do in the next transaction, for somebody who waits.
pub(super) trait WriteTask: Send {
    /// Does it.
    fn run(&mut self, rows: &mut SqliteLedger<'_>) -> Result<(), rusqlite::Error>;
    /// Says what came of it, once it is committed, or why it was not.
    fn tell(self: Box<Self>, committed: Result<(), StoreError>);
}

/// What the writer is asked.
pub(super) enum WriterJob {
    /// To do this. `bytes` of bodies and `rows` come with it.
    Do { task: Box<dyn WriteTask>, rows: usize, bytes: usize },
    /// To write a change and run a statement, in a transaction of their own.
    Effect { change: Box<Transition>, statement: BoundStatement, to: oneshot::Sender<Result<SqlOutcome, StoreError>> },
    /// To look at the notes: there are some.
    Noted,
}

/// A question as a task: the answer is kept until the commit.
pub(super) struct ReplyTask<T, F> {
    act: Option<F>,
    answer: Option<T>,
    to: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> ReplyTask<T, F> {
    pub(super) fn new(act: F, to: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self { act: Some(act), answer: None, to }
    }
}

impl<T: Send, F: FnOnce(&mut SqliteLedger<'_>) -> Result<T, rusqlite::Error> + Send> WriteTask for ReplyTask<T, F> {
    fn run(&mut self, rows: &mut SqliteLedger<'_>) -> Result<(), rusqlite::Error> {
        let act = self.act.take().expect("a task runs once");
        self.answer = Some(act(rows)?);
        Ok(())
    }

    fn tell(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { answer, to, .. } = *self;
        let _ = to.send(committed.map(|()| answer.expect("what is committed has run"))); // who no longer waits need not hear it
    }
}

/// What is done in one transaction, and what in one of its own each, after it.
type WriterBatch = (Vec<Box<dyn WriteTask>>, Vec<SqlWriteJob>);

/// Why the store stopped, if it did. Once set it stays.
pub(super) type FailureSignal = watch::Sender<Option<String>>;

/// The thread's own.
pub(super) struct SqliteWriter {
    pub(super) db: Connection,
    pub(super) clock: StoreClock,
    pub(super) access: SqliteAccess,
    pub(super) turns: u64,
    pub(super) jobs: Receiver<WriterJob>,
    pub(super) failed: Arc<FailureSignal>,
    pub(super) commits: Arc<AtomicU64>,
    pub(super) notes: DuplicateNotes,
    pub(super) log: WalCheckpointer,
    pub(super) mark: LastWriteMark,
    /// The time that this transaction writes down as last seen.
    pub(super) saw: Option<Timestamp>,
}

impl SqliteWriter {
    /// Works until nobody can ask any more.
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
        leave_log(&self.db, &self.failed);
    }

    /// What is there, up to the limits of a batch; waits for the first. `None`: nobody can ask any more.
    fn next_batch(&mut self) -> Option<WriterBatch> {
        let first = match self.notes.due_in() {
            None => self.jobs.recv().ok()?,
            Some(wait) => match self.jobs.recv_timeout(wait) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => return Some(Default::default()),
                Err(RecvTimeoutError::Disconnected) => return None,
            },
        };
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

    fn work(&mut self, mut batch: Vec<Box<dyn WriteTask>>) {
        let stopped = self.failed.borrow().clone();
        let committed = match stopped {
            Some(why) => Err(StoreError::Broken(why)),
            None if batch.is_empty() && !self.notes.are_due() => return,
            None => self.transact(&mut batch),
        };
        if let Err(StoreError::Unsure(why) | StoreError::Broken(why)) = &committed {
            stop(&self.failed, why);
        }
        for task in batch {
            task.tell(committed.clone());
        }
        if self.failed.borrow().is_none() {
            self.log.checkpoint_if_due(&self.db);
        }
    }

    /// One transaction: all of it is durable when this returns, or nothing of it is there.
    fn transact(&mut self, batch: &mut [Box<dyn WriteTask>]) -> Result<(), StoreError> {
        let wrote = match self.in_transaction(batch) {
            Ok(wrote) => {
                self.execute("commit").map(|()| wrote).map_err(|error| classify(&error, SqliteCommitStage::Commit))
            }
            Err(error) => Err(classify(&error, SqliteCommitStage::Before)),
        };
        if wrote.is_err() && !self.db.is_autocommit() {
            self.execute("rollback").map_err(|error| StoreError::Broken(format!("cannot roll back: {error}")))?;
        }
        let saw = self.saw.take();
        match &wrote {
            Ok(_) => {
                self.mark.committed();
                if let Some(time) = saw {
                    self.clock.written(time);
                }
            }
            Err(_) => self.mark.rolled_back(),
        }
        if wrote? {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Says whether anything was written.
    fn in_transaction(&mut self, batch: &mut [Box<dyn WriteTask>]) -> Result<bool, rusqlite::Error> {
        self.execute("begin immediate")?;
        let before = self.db.total_changes();
        let at = self.clock.moment();
        let mut rows = SqliteLedger { db: &self.db, at, turns: &mut self.turns, mark: &mut self.mark };
        for task in batch {
            task.run(&mut rows)?;
        }
        let besides = if self.db.total_changes() == before { TxnContent::Nothing } else { TxnContent::Writes };
        for (event, seen) in self.notes.take(besides) {
            rows.note(event, &seen)?;
        }
        // A copy brings the time that the other store has seen.
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

/// Writes nothing any more from here on.
pub(super) fn stop(failed: &FailureSignal, why: &str) {
    failed.send_if_modified(|was| {
        let first = was.is_none();
        if first {
            error!(target: "hookonce", why, "broken");
            *was = Some(why.to_owned());
        }
        first
    });
}

/// A store that has stopped leaves its log to the next one who opens it: what a disk failed to keep once must not be
/// taken for kept because a second try went well.
pub(super) fn leave_log(db: &Connection, failed: &FailureSignal) {
    if failed.borrow().is_some() {
        let _ = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }
}

/// Tells when the thread dies of our own bug.
struct WriterPanicGuard(Arc<FailureSignal>);

impl Drop for WriterPanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            stop(&self.0, "the writing thread panicked");
        }
    }
}

/// Where in a transaction it went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SqliteCommitStage {
    /// Before the commit, or while only reading: nothing is written.
    Before,
    /// In the commit itself.
    Commit,
}

/// What an error means for whoever asked.
pub(super) fn classify(error: &rusqlite::Error, stage: SqliteCommitStage) -> StoreError {
    let why = error.to_string();
    if matches!(error, rusqlite::Error::SqlInputError { .. }) {
        return StoreError::Broken(why); // a statement of ours that SQLite does not understand: the schema is not what it was
    }
    match (error.sqlite_error_code(), stage) {
        (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ReadOnly), _) => {
            StoreError::Broken(why)
        }
        (Some(ErrorCode::Unknown), _) => StoreError::Broken(why),
        // After a failed sync the pages may be there after a restart, or not. Nothing may be built on them.
        (Some(ErrorCode::SystemIoFailure), SqliteCommitStage::Commit) => StoreError::Unsure(why),
        (Some(_), _) => StoreError::Down(why),
        // Not SQLite's word but ours: a key, register or slot is not what was written.
        (None, _) => StoreError::Broken(format!("a row cannot be read: {why}")),
    }
}

/// The latest time these rows hold and the last turn that still counts.
pub(super) fn marks(db: &Connection) -> Result<(Timestamp, u64), rusqlite::Error> {
    // An event that is over gets a new turn when it comes back, so only the turns of the others count.
    let sql = "select max((select coalesce(max(ended_at), 0) from events), coalesce(max(received_at), 0)), \
               coalesce(max(turn), 0) from events where ended_at is null";
    db.query_row(sql, [], |row| Ok((Timestamp(row.get(0)?), row.get::<_, i64>(1)?.unsigned_abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: i32, stage: SqliteCommitStage, expected: &str) {
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        let word = match classify(&error, stage) {
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
