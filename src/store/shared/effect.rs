//! A change with a statement: drafted as any other, and written by itself. The statement is the user's, so it shares a
//! transaction with nobody else's event.

use super::{Drafted, Shared, Shelf, Swapped, TRIES, back_off, cells_of, contended};
use crate::decide::change::Change;
use crate::decide::event::Outcome;
use crate::decide::limits;
use crate::decide::statement::Bound;
use crate::store::{Effected, StoreError, ledger};

impl<S: Shelf> Shared<S> {
    pub(super) async fn effect_of(&self, change: Change, statement: Bound) -> Result<Effected, StoreError> {
        let (changes, mut in_the_way) = ([change], 0);
        for tries in 0..TRIES {
            back_off(tries).await;
            let begins_with = |change: &Change| cells_of(&change.event);
            let mut drafts = self
                .draft(&changes, &[0], &begins_with, &|draft, change, now| ledger::advance(draft, change, now))
                .await?;
            let Some(Drafted { answer, swap, .. }) = drafts.pop().flatten() else { continue };
            if swap.ops.is_empty() {
                return Ok(Effected::Came(answer));
            }
            match self.0.write_with(swap, &statement).await? {
                Swapped::Written => return Ok(Effected::Came(answer)),
                Swapped::Refused(outcome) => return Ok(Effected::Refused(outcome)),
                Swapped::Changed => {}
                Swapped::Again(why) => {
                    in_the_way += 1;
                    if in_the_way == limits::STATEMENT_TRIES {
                        return Ok(Effected::Refused(Outcome::Failed { why, retry_after: None, receipt: None }));
                    }
                }
            }
        }
        Err(contended())
    }
}

/// What a shelf without SQL answers.
pub(super) fn no_statements() -> Outcome {
    Outcome::Rejected { why: "this store runs no statements".into(), receipt: None }
}
