//! A transition with a SQL statement: prepared as any other, but written alone. The statement is the user's, so it
//! shares a transaction with no other event.

use super::{BACK_OFF, BACK_OFF_MAX, OptimisticRunner, PreparedWrite, TRIES, VersionedBackend, contended, txn};
use crate::decide::event::Outcome;
use crate::decide::ledger;
use crate::decide::sql_template::BoundStatement;
use crate::decide::transition::Transition;
use crate::store::{SqlOutcome, StoreError};

/// The result of a conditional write with a statement.
#[derive(Clone, PartialEq, Debug)]
pub enum SqlWriteOutcome {
    /// Both are written.
    Written,
    /// A record has changed since it was read: neither is written.
    Changed,
    /// The statement conflicted with other transactions, for this reason; an immediate retry may succeed. Neither is
    /// written.
    Again(String),
    /// The statement could not run: neither is written.
    Refused(Outcome),
}

impl<B: VersionedBackend> OptimisticRunner<'_, B> {
    pub(super) async fn advance_with_sql(
        &self,
        change: Transition,
        statement: BoundStatement,
    ) -> Result<SqlOutcome, StoreError> {
        let changes = [change];
        for tries in 0..TRIES {
            back_off(tries).await;
            let mut drafts = self
                .draft(&changes, &[0], &super::cells_to_advance, &|draft, change, now| {
                    ledger::advance(draft, change, now)
                })
                .await?;
            let Some(PreparedWrite { answer, swap, .. }) = drafts.pop().flatten() else { continue };
            if swap.ops.is_empty() {
                return Ok(SqlOutcome::Advanced(answer));
            }
            match self.0.write_with(swap, &statement).await? {
                SqlWriteOutcome::Written => return Ok(SqlOutcome::Advanced(answer)),
                SqlWriteOutcome::Refused(outcome) => return Ok(SqlOutcome::Refused(outcome)),
                SqlWriteOutcome::Changed => {}
                SqlWriteOutcome::Again(why) => return Ok(SqlOutcome::Again(why)),
            }
        }
        Err(contended())
    }
}

/// The wait before preparing a write again, from the third try on.
pub(super) async fn back_off(tries: u32) {
    if tries > 2 {
        tokio::time::sleep((BACK_OFF * 2_u32.pow(tries - 3)).min(BACK_OFF_MAX).mul_f64(txn::chance())).await;
    }
}

/// The outcome in a backend without SQL.
pub(super) fn no_statements() -> Outcome {
    Outcome::Rejected { why: "this store runs no statements".into(), receipt: None }
}
