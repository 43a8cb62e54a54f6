//! A transition with a statement: both or neither, in stores that run statements; a clear refusal in the others.

use super::{SECOND, StoreUnderTest, delivered, making, route};
use crate::decide::event::{Event, EventState, EventStep, Outcome, SucceededBlocks};
use crate::decide::retry::Jitter;
use crate::decide::sql_template::{BoundStatement, SqlTemplate};
use crate::decide::transition::Transition;
use crate::store::{AdvanceResult, SqlOutcome};
use std::sync::Arc;

impl StoreUnderTest {
    /// A statement that writes the delivery id to `scopes`, so that its effect can be read back.
    fn noting(&self, event: &Event) -> BoundStatement {
        let dialect = self.statements.unwrap_or(crate::decide::sql_template::SqlDialect::Postgres);
        let sql = "insert into scopes (scope, once) values (:delivery, 'x')";
        let statement = SqlTemplate::parse(sql, dialect, 10 * SECOND).expect("a statement");
        Arc::new(statement).bind(event, &crate::decide::claim::Payload::default())
    }

    async fn noted(&self) -> Vec<String> {
        let recipes = self.store.recipes().await.expect("it reads");
        recipes.into_iter().map(|recipe| recipe.scope).collect()
    }

    fn ends_well(&self, running: &Event) -> Transition {
        let step = EventStep::Settle { outcome: delivered(), blocks: SucceededBlocks(0), jitter: Jitter(0) };
        running.transition(step, &route(), self.store.now()).expect("it runs")
    }
}

pub(super) async fn a_statement_and_its_transition_are_both_written_or_neither(fresh: StoreUnderTest) {
    let mut running = Vec::new();
    for delivery in ["d1", "d2", "d3"] {
        let id = fresh.claimed(making().delivery(delivery)).await.id;
        running.push(fresh.start(id).await);
    }
    let effect = async |event: &Event, noting: &Event| {
        let place = fresh.store.sql_permit().await;
        let came = fresh.store.advance_with_sql(fresh.ends_well(event), fresh.noting(noting), &place).await;
        came.expect("the store answers")
    };
    if fresh.statements.is_none() {
        let SqlOutcome::Refused(Outcome::Rejected { why, .. }) = effect(&running[0], &running[0]).await else {
            panic!("a store without statements ran one");
        };
        assert!(why.contains("no statements"), "{why}");
        assert_eq!(fresh.get(running[0].id).await, running[0]);
        return;
    }
    // Both.
    let SqlOutcome::Advanced(AdvanceResult::Written { event, .. }) = effect(&running[0], &running[0]).await else {
        panic!("it was not written");
    };
    assert!(matches!(event.state, EventState::Done { .. }), "{event:?}");
    assert_eq!((fresh.get(event.id).await, fresh.noted().await), (*event, vec!["d1".to_owned()]));
    // Another write came first: neither.
    let expired = EventStep::HandBack;
    fresh.step(running[1].id, expired).await;
    assert_eq!(effect(&running[1], &running[1]).await, SqlOutcome::Advanced(AdvanceResult::Lost));
    assert_eq!(fresh.noted().await, ["d1"]);
    // A statement that fails leaves its event unchanged: the name is taken.
    let refused = effect(&running[2], &running[0]).await;
    assert!(matches!(refused, SqlOutcome::Refused(Outcome::Rejected { .. })), "{refused:?}");
    assert_eq!((fresh.get(running[2].id).await, fresh.noted().await), (running[2].clone(), vec!["d1".to_owned()]));
    // It can be retried.
    let SqlOutcome::Advanced(AdvanceResult::Written { .. }) = effect(&running[2], &running[2]).await else {
        panic!("it was not written");
    };
    assert_eq!(fresh.noted().await, ["d1", "d3"]);
}
