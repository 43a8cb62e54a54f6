//! The end of an attempt whose statement goes with the write.
//!
//! ```text
//! acted ─▶ waits for a place, renewing ─▶ the lease lasts as long as the statement may ─▶ both are written
//!             │         ▲                     ▲                                         │
//!             │         └─ no answer ─────────┴─ others got in the way ─────────────────┴─▶ refused: neither is
//!             └─▶ the lease is over: left, nothing has happened
//! ```

use super::attempt::{ASK_AGAIN, AttemptEnd, LeaseRenewal};
use super::{Dispatcher, Lane};
use crate::action::{Attempt, Lease};
use crate::decide::event::{Event, Outcome};
use crate::decide::limits;
use crate::decide::sql_template::BoundStatement;
use crate::store::{SqlOutcome, SqlPermit, StoreError};

impl Dispatcher {
    /// Writes what this attempt came to, with a statement in the same transaction. What refuses to run leaves nothing
    /// behind, and is then what the attempt came to.
    pub(super) async fn settle_with(
        &self,
        lane: &Lane,
        attempt: Attempt<'_>,
        mut end: AttemptEnd,
        effect: BoundStatement,
    ) {
        let mut event = attempt.event.clone();
        for tries in 0_u64.. {
            let waits = Box::pin(self.acquire_sql_permit(attempt.lease));
            let leased = self.leased(lane, Attempt { event: &event, ..attempt }, waits).await;
            let Some((stands, place)) = leased else { return };
            event = stands;
            let Some(place) = place.flatten() else { return self.abandon(&event, attempt.lease).await };
            let Some(effected) = self.run_statement(lane, attempt, &mut event, &mut end, &effect, place).await else {
                return;
            };
            let came = match effected {
                Ok(SqlOutcome::Advanced(advance)) => Ok(advance),
                Ok(SqlOutcome::Refused(outcome)) => return self.refused(lane, &event, end, outcome).await,
                Ok(SqlOutcome::Again(why)) => {
                    let outcome = Outcome::Failed { why, retry_after: None, receipt: None };
                    return self.refused(lane, &event, end, outcome).await;
                }
                Err(error) => Err(error),
            };
            if self.is_over(&mut event, came, tries).await {
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Writes and runs it, again at once while others get in its way. `None`: the lease did not last.
    async fn run_statement(
        &self,
        lane: &Lane,
        attempt: Attempt<'_>,
        event: &mut Event,
        end: &mut AttemptEnd,
        effect: &BoundStatement,
        place: SqlPermit,
    ) -> Option<Result<SqlOutcome, StoreError>> {
        let lease = attempt.lease;
        for tries in 1.. {
            // Whoever is at it when the lease ends is overtaken: it begins only with enough of it.
            if lease.deadline().left() <= effect.statement.timeout {
                match self.renew(lane, event, lease, attempt.blocks).await {
                    LeaseRenewal::Renewed(renewed) => *event = *renewed,
                    LeaseRenewal::Lost => {
                        self.lost(event);
                        return None;
                    }
                }
            }
            if lease.term().over().is_some() {
                drop(place);
                self.abandon(event, lease).await;
                return None;
            }
            end.tried.ended_at = self.0.store.now();
            let change = end.change(event, &lane.route)?;
            match self.advance_with_sql(change, effect.clone(), &place).await {
                Ok(SqlOutcome::Again(_)) if tries < limits::STATEMENT_TRIES => {}
                effected => return Some(effected),
            }
        }
        None
    }

    /// Writes what the statement came to instead.
    async fn refused(&self, lane: &Lane, event: &Event, end: AttemptEnd, outcome: Outcome) {
        self.settle(lane, event, end.refused(outcome, self.0.store.now())).await;
    }

    /// A place to run a statement, unless the lease is over before there is one.
    async fn acquire_sql_permit(&self, lease: &Lease) -> Option<SqlPermit> {
        tokio::select! {
            place = self.0.store.sql_permit() => Some(place),
            _ = lease.ended() => None,
        }
    }
}
