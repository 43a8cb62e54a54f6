//! The mark of a copy that is under way, as nodes heed it: in the transaction that writes, in no round trip of its own.

use super::error::PgCommitStage;
use super::pool::{PgConn, PgError, PgQuery, ask};
use super::rows::{PgBytes32, counter};
use super::write::{COMMIT, ROLLBACK};
use super::{quarantine, queries, retention};
use crate::store::StoreError;
use crate::store::copy::{self, CopyLockCheck, CopySideData, MARK};
use crate::store::optimistic::RecordVersion;
use tokio_postgres::error::SqlState;

/// Fails where this store is part of a copy: where it divides by zero. Asked last, when our locks are held:
/// whoever marks the store waits for those who hold them, and then sees what they wrote.
const HEED: &str = "select 1 / (case when exists (select from {schema}.registers where key = $1) then 0 else 1 end)";
/// Fails where the mark of a copy is not of this version any more, and else keeps it so until the transaction ends.
const HOLD: &str = "select 1 / count(*) from (select from {schema}.registers where key = $1 and version = $2 \
     for no key update) held";
/// Nobody who writes an event gets past this, and it gets past nobody who does.
const WAIT_FOR_WRITERS: &str = "lock table {schema}.events in share row exclusive mode";

/// The end of a transaction that heeds the mark, or does not.
pub(super) fn commit(asks: &mut Vec<PgQuery<'_>>, heeds: CopyLockCheck) {
    match heeds {
        CopyLockCheck::Mark => asks.push(heed()),
        CopyLockCheck::Nothing => {}
    }
    asks.push(ask!(COMMIT));
}

/// The same in a transaction that goes on with a statement of the user's.
pub(super) fn heed<'a>() -> PgQuery<'a> {
    ask!(HEED, PgBytes32(MARK.0))
}

/// Why a write that was sent with its commit was not written, or may not have been.
pub(super) fn not_committed(failed: &PgError) -> StoreError {
    refused(failed).unwrap_or_else(|| failed.classify(PgCommitStage::Commit))
}

/// What is said where the mark was heeded.
pub(super) fn refused(failed: &PgError) -> Option<StoreError> {
    let heeded = matches!(failed, PgError::Said(error) if error.code() == Some(&SqlState::DIVISION_BY_ZERO));
    heeded.then(copy::under_way)
}

/// Writes what is no cell, where the mark still is of this version. Says whether it was.
pub(super) async fn fill_beside(
    link: &mut PgConn,
    beside: &CopySideData,
    mark: RecordVersion,
) -> Result<bool, PgError> {
    let mut asks = vec![ask!("begin"), ask!(HOLD, PgBytes32(MARK.0), counter(mark.0))];
    if let Some(recipes) = &beside.recipes {
        asks.extend(queries::to_remember(recipes));
    }
    if let Some(rows) = &beside.retention {
        asks.extend([retention::clear(), retention::to_retain(rows)]);
    }
    if !beside.quarantined.is_empty() {
        asks.extend(quarantine::to_lay(&beside.quarantined));
    }
    asks.push(ask!(COMMIT));
    match link.query_all(&asks).await {
        Ok(_) => Ok(true),
        Err(failed) if refused(&failed).is_some() => {
            link.query_all(&[ask!(ROLLBACK)]).await?;
            Ok(false)
        }
        Err(failed) => Err(failed),
    }
}

/// Waits for every write that is under way.
pub(super) async fn settled(link: &mut PgConn) -> Result<(), PgError> {
    link.query_all(&[ask!("begin"), ask!(WAIT_FOR_WRITERS), ask!(COMMIT)]).await.map(drop)
}
