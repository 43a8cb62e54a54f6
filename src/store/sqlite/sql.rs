//! A transition and the user's statement in one transaction: first the compare-and-swap, then the statement, then the
//! commit.
//!
//! No other event shares that transaction. An interrupted statement, or one that says `or rollback`, rolls back the
//! whole transaction, and deferred constraints are only checked at the commit: neither may affect another event.

use super::fresh_index::FreshKeys;
use super::rows::SqliteLedger;
use super::writer::{SqliteCommitStage, SqliteWriter, cannot_roll_back, classify};
use crate::decide::event::Outcome;
use crate::decide::ledger;
use crate::decide::limits;
use crate::decide::sql_template::{BoundStatement, BoundValue};
use crate::decide::transition::Transition;
use crate::store::{AdvanceResult, SqlOutcome, StoreError};
use rusqlite::types::{ToSqlOutput, Value};
use rusqlite::{ErrorCode, ToSql};
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::oneshot;

/// How many SQLite steps pass between two checks of the timeout.
const STEPS: i32 = 1_000;

/// A transition, its statement, and the caller's reply channel.
pub(super) struct SqlWriteJob {
    pub(super) change: Box<Transition>,
    pub(super) statement: BoundStatement,
    pub(super) to: oneshot::Sender<Result<SqlOutcome, StoreError>>,
}

/// How far the transaction got.
enum SqlTransactionResult {
    /// To the commit.
    Ready(AdvanceResult),
    /// Up to the statement, which failed.
    Refused(Outcome),
}

impl SqliteWriter {
    /// Runs the job and sends its result.
    pub(super) fn effect(&mut self, effect: SqlWriteJob) {
        let SqlWriteJob { change, statement, to } = effect;
        let stopped = self.failed.borrow().clone();
        let came = match stopped {
            Some(why) => Err(StoreError::Broken(why)),
            None => self.write_and_run(&change, &statement),
        };
        if let Err(error) = &came {
            self.stop_by(error);
        }
        let _ = to.send(came); // the caller may be gone
        self.checkpoint();
    }

    fn write_and_run(&mut self, change: &Transition, statement: &BoundStatement) -> Result<SqlOutcome, StoreError> {
        let came = match self.up_to_commit(change, statement) {
            Err(error) => Err(classify(error, SqliteCommitStage::Before)),
            Ok(SqlTransactionResult::Refused(outcome)) => Ok(SqlOutcome::Refused(outcome)),
            Ok(SqlTransactionResult::Ready(advance)) => match self.execute("commit") {
                Ok(()) => {
                    self.mark.committed();
                    self.index.committed();
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    return Ok(SqlOutcome::Advanced(advance));
                }
                // Deferred constraints are checked only now.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                    Ok(SqlOutcome::Refused(refused(&error, statement)))
                }
                Err(error) => Err(classify(error, SqliteCommitStage::Commit)),
            },
        };
        self.mark.rolled_back();
        self.index.rolled_back();
        self.packer.clear();
        if !self.db.is_autocommit() {
            self.execute("rollback").map_err(cannot_roll_back)?;
        }
        came
    }

    fn up_to_commit(
        &mut self,
        change: &Transition,
        statement: &BoundStatement,
    ) -> Result<SqlTransactionResult, rusqlite::Error> {
        self.execute("begin immediate")?;
        let at = self.clock.moment();
        let fresh = FreshKeys::Writer(&mut self.index);
        let packer = Some(&mut self.packer);
        let mut rows = SqliteLedger { db: &self.db, at, turns: &mut self.turns, mark: &mut self.mark, fresh, packer };
        let advance = ledger::advance(&mut rows, change, at.now)?;
        if advance == AdvanceResult::Lost {
            return Ok(SqlTransactionResult::Ready(advance));
        }
        let until = Instant::now() + statement.statement.timeout;
        self.db.progress_handler(STEPS, Some(move || Instant::now() >= until))?;
        let ran = self.run_theirs(statement);
        self.db.progress_handler(0, None::<fn() -> bool>)?;
        Ok(match ran {
            Ok(()) => SqlTransactionResult::Ready(advance),
            Err(error) if is_ours(&error) => return Err(error),
            Err(error) => SqlTransactionResult::Refused(refused(&error, statement)),
        })
    }

    /// Runs the statement to its last row; the rows are not read.
    fn run_theirs(&self, bound: &BoundStatement) -> Result<(), rusqlite::Error> {
        let mut statement = self.db.prepare_cached(&bound.statement.numbered)?;
        let mut rows = statement.query(rusqlite::params_from_iter(&bound.values))?;
        while rows.next()?.is_some() {}
        Ok(())
    }
}

/// Is it an error of the disk or the file, which any statement could have met?
fn is_ours(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::DatabaseBusy
        )
    })
}

/// The outcome of the attempt for an error of the statement.
fn refused(error: &rusqlite::Error, bound: &BoundStatement) -> Outcome {
    let why: String = error.to_string().chars().take(limits::STATEMENT_SAID_MAX).collect();
    match error.sqlite_error_code() {
        // A constraint violation, or a value of the wrong type: a retry would fail the same way.
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
            Outcome::Rejected { why, receipt: None }
        }
        Some(ErrorCode::OperationInterrupted) => {
            let limit = bound.statement.timeout.as_millis();
            let why = format!("the statement took longer than {limit} ms and was interrupted");
            Outcome::Failed { why, retry_after: None, receipt: None }
        }
        _ => Outcome::Failed { why, retry_after: None, receipt: None },
    }
}

/// A body is text if it is valid UTF-8, so that SQLite's JSON functions can read it; a number too large for SQLite
/// stays as it was written.
impl ToSql for BoundValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Text(text) => ToSqlOutput::from(&**text),
            Self::Bool(flag) => ToSqlOutput::from(*flag),
            Self::Number(text) => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(whole), _) => ToSqlOutput::from(whole),
                (_, Ok(real)) if text.contains(['.', 'e', 'E']) && real.is_finite() => ToSqlOutput::from(real),
                _ => ToSqlOutput::from(&**text),
            },
            Self::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => ToSqlOutput::from(text),
                _ => ToSqlOutput::from(&**bytes),
            },
        })
    }
}
