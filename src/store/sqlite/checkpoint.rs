//! WAL checkpoints. Commits go to the WAL first, and are moved into the database by a thread of its own, so that no
//! commit waits for it. Only when the WAL has become long does the writer itself move the rest; then the WAL starts
//! over.
//!
//! A disk that loses written data is noticed here. SQLite's own checkpoint would not report it, and would drop the WAL
//! with the next one that seems to succeed.

use super::open::{SqliteOpenError, SqliteOpenErrorKind};
use super::writer::{FailureSignal, leave_log, stop};
use crate::decide::error_message::ErrorMessage;
use rusqlite::{Connection, ErrorCode};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use tracing::warn;

/// Pages per checkpoint outside the writer: 4 MiB.
const MOVED_PAGES: i64 = 1_024;
/// Pages after which the WAL starts over: 64 MiB.
const LOG_PAGES: i64 = 16_384;

/// The thread that moves the WAL into the database.
pub(super) struct WalCheckpointer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<FailureSignal>,
}

impl WalCheckpointer {
    /// Starts it on a connection of its own.
    pub(super) fn new(db: Connection, failed: Arc<FailureSignal>) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let told = failed.clone();
        let thread = std::thread::Builder::new().name("sqlite-log".into()).spawn(move || run(&db, &woken, &told))?;
        Ok(Self { wake: Some(wake), thread: Some(thread), failed })
    }

    /// Checks the length of the WAL after a transaction.
    pub(super) fn checkpoint_if_due(&self, db: &Connection) {
        let pages =
            |sql| db.prepare_cached(sql)?.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
        let looked = match pages("pragma wal_checkpoint(noop)") {
            Ok((long, _)) if long >= LOG_PAGES => pages("pragma wal_checkpoint(passive)").map(drop),
            Ok((long, moved)) if long - moved >= MOVED_PAGES => {
                // A thread that is already awake sees these pages too, or is woken by the next transaction.
                let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
                Ok(())
            }
            looked => looked.map(drop),
        };
        hear(looked, &self.failed);
    }
}

impl Drop for WalCheckpointer {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(db: &Connection, woken: &Receiver<()>, failed: &FailureSignal) {
    while woken.recv().is_ok() && failed.borrow().is_none() {
        hear(db.query_row("pragma wal_checkpoint(passive)", [], |_| Ok(())), failed);
    }
    leave_log(db, failed);
}

fn hear(moved: Result<(), rusqlite::Error>, failed: &FailureSignal) {
    let Err(error) = moved else { return };
    let rotten = [ErrorCode::SystemIoFailure, ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase];
    if error.sqlite_error_code().is_some_and(|code| rotten.contains(&code)) {
        let why = ErrorMessage::from(format!("the WAL checkpoint failed: {error}"));
        stop(failed, &why.caused_by(error));
    } else {
        warn!(target: "hookonce", why = format!("the WAL checkpoint failed; the WAL keeps growing: {error}"), "log");
    }
}

/// The size of the file before and after, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VacuumReport {
    /// Before.
    pub before: u64,
    /// Now.
    pub after: u64,
}

/// Rewrites the database without its free pages, in one transaction: an interruption leaves the file unchanged. The
/// caller holds the file's lock. The disk needs space for a second copy of the file, and so does the folder for
/// temporary files.
pub fn vacuum(path: &Path, db: &Connection) -> Result<VacuumReport, SqliteOpenError> {
    let length = || std::fs::metadata(path).map(|file| file.len()).map_err(|error| SqliteOpenError::io(path, error));
    empty_log(path, db)?;
    let before = length()?;
    db.execute_batch("vacuum").map_err(|error| SqliteOpenError::sqlite(path, error))?;
    empty_log(path, db)?;
    Ok(VacuumReport { before, after: length()? })
}

/// Moves the WAL into the database. That fails while another program reads the file, and the file keeps its size.
fn empty_log(path: &Path, db: &Connection) -> Result<(), SqliteOpenError> {
    let busy = db.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0));
    match busy.map_err(|error| SqliteOpenError::sqlite(path, error))? {
        0 => Ok(()),
        _ => Err(SqliteOpenError::new(path, SqliteOpenErrorKind::Busy)),
    }
}
