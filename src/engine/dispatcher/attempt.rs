//! Runs one attempt, from its lease to its outcome: the first attempt, a retry and a replay alike.
//!
//! The lease is renewed while the action runs. If a renewal finds that another node has written the event, the action
//! is ended and its result dropped. If the store does not respond until the lease's end, minus a margin, the action is
//! ended and the outcome is unknown. A result is written again and again until the store accepts it or reports the
//! event as lost.

use super::deploy::RollbackBody;
use super::{
    AttemptPermit, Dispatcher, DispatcherState, Lane, LeasedEvent, StartEvidence, all_of, jitter, log_and_pause,
};
use crate::action::{Attempt, AttemptOutput, Lease, LeaseSignal, SharedSucceededBlocks, boottime};
use crate::decide::claim::Payload;
use crate::decide::event::{Event, EventStep, Origin, Outcome};
use crate::decide::id::{EventId, Revision};
use crate::decide::source::Route;
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::trace_context::TraceContext;
use crate::decide::transition::{AttemptRecord, TransientHeadersUpdate, Transition};
use crate::decide::{limits, response};
use crate::lease::deadline;
use crate::lease::renewal::{self, ASK_AGAIN, AtLeaseEnd, LeaseRenewal, LeaseRenewer, LeasedWorkResult};
use crate::observe::metrics::StoreOp;
use crate::observe::trace_span::TraceSpan;
use crate::store::{AdvanceResult, SqlOutcome, SqlPermit, StoreError, StoredValue};
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::Arc;

/// How long an action may take to end after its lease: a command has five seconds to stop, its guard two to report it.
const LEFT_AFTER: Duration = Duration::from_secs(10);

impl Dispatcher {
    pub(super) async fn attempt(self, held: LeasedEvent) {
        let LeasedEvent { mut event, lane, payload, sent, known, mut spot } = held;
        let part = event.part;
        let lease = Arc::new(Lease::until(deadline(sent, lane.route.lease)));
        // Two starts of one event whose responses were both lost look alike: only one of them acts.
        let Some(at_it) = RunningGuard::begin(&self, &event, known, &lease) else { return };
        if known == StartEvidence::LookedUp {
            // Another task that has started it may have ended since it was looked up.
            match renewal::look_up(&*self.0.store, event.id).await {
                Some(stands) if stands.revision == event.revision || event.was_only_accepted(&stands) => event = stands,
                Some(_) | None => return,
            }
        }
        Box::pin(self.act_and_settle(&lane, event, payload, &lease, &mut spot)).await;
        drop((at_it, spot));
        // Its queue may be another one since it began.
        if let Some(lane) = self.lane(&lane.source.name, &lane.route.name) {
            lane.queue_of(part).attempt_ended();
        }
    }

    async fn act_and_settle(
        &self,
        lane: &Lane,
        event: Event,
        payload: Option<StoredValue<Payload>>,
        lease: &Lease,
        spot: &mut AttemptPermit,
    ) {
        let payload = match payload.filter(|_| !event.is_rollback()) {
            Some(payload) => payload,
            None => match self.fetch(&event, lease).await {
                Some(payload) => payload,
                None => return self.abandon(lane, &event, lease).await,
            },
        };
        let (payload, body) = match payload {
            StoredValue::Whole(payload) => (payload, RollbackBody::Kept),
            StoredValue::Forgotten if event.is_rollback() => (Payload::default(), RollbackBody::Forgotten),
            StoredValue::Forgotten | StoredValue::Damaged => return self.finish(lane, &event, EventStep::Damage).await,
        };
        if event.immutable_digest() != event.digest {
            return self.finish(lane, &event, EventStep::Damage).await;
        }
        if self.0.stopping.is_cancelled() || lease.term().over().is_some() {
            return self.abandon(lane, &event, lease).await;
        }
        let mut span = self.span(&event, &payload);
        let started_at = self.0.store.now();
        let writing = OutputGuard::begin(self, &event);
        let output = &*writing.output;
        let blocks = SharedSucceededBlocks::new(event.blocks);
        let (at, context) = (started_at, span.context());
        let (payload, blocks) = (&payload, &blocks);
        let attempt = Attempt { event: &event, payload, lease, blocks, output, at, span: context, digest: None };
        let Some((event, outcome)) = Box::pin(self.deploy(lane, attempt, body, spot)).await else { return };
        let outcome = response::outcome_for_waiting_sender(outcome, lane.source.respond);
        span.settled(&outcome);
        let blocks = blocks.blocks();
        let step = match lease.term().call {
            LeaseSignal::CallOff => EventStep::Cancel,
            // Only the check of its health was interrupted.
            LeaseSignal::GoOn | LeaseSignal::Stop
                if event.blocks.acted()
                    && self.0.stopping.is_cancelled()
                    && matches!(outcome, Outcome::Unknown { .. }) =>
            {
                EventStep::HandBack
            }
            LeaseSignal::GoOn | LeaseSignal::Stop => {
                EventStep::Settle { outcome: outcome.clone(), blocks, jitter: jitter() }
            }
        };
        let passed = if payload.transient_header_names().next().is_none() {
            TransientHeadersUpdate::None
        } else {
            TransientHeadersUpdate::Drop
        };
        let tried = AttemptRecord {
            life: event.life,
            attempt: event.attempt,
            started_at,
            ended_at: self.0.store.now(),
            outcome: outcome.word().into(),
            why: outcome.why().into(),
            output: output.to_bytes(),
        };
        let effect = match &step {
            EventStep::Settle { outcome: Outcome::Delivered(_), .. } => {
                lane.action.as_ref().and_then(|action| action.bound_statement(&event, payload))
            }
            _ => None,
        };
        let unhealthy = matches!(step, EventStep::Settle { outcome: Outcome::Unhealthy { .. }, .. });
        let end = AttemptEnd { step, tried, passed };
        match effect {
            Some(effect) => self.settle_with(lane, Attempt { event: &event, ..attempt }, end, effect).await,
            None => self.settle(lane, &event, end).await,
        }
        if unhealthy {
            self.report_rollback(lane, &event).await;
        }
    }

    /// The span of the attempt in its trace.
    fn span(&self, event: &Event, payload: &Payload) -> TraceSpan {
        let mut span = TraceSpan::begin("attempt", TraceContext::of(&payload.headers));
        if span.context().is_some() {
            span.tell("event", &event.id.to_string());
            span.tell("source", &event.source);
            span.tell("route", &event.route);
            span.tell("attempt", &event.attempt.to_string());
            span.tell("node", &self.0.node.0);
        }
        span
    }

    /// The body, or for a roll-back that of the last good event, fetched while the lease lasts and the node is not stopping; `None`: the store did not respond, and
    /// nothing has happened yet.
    async fn fetch(&self, event: &Event, lease: &Lease) -> Option<StoredValue<Payload>> {
        let holder = match event.origin {
            Some(Origin::Rollback { to, .. }) => to,
            Some(Origin::Notification { .. }) | None => event.id,
        };
        loop {
            let asked = tokio::time::Instant::now();
            let payload = self.0.store.payload(holder).await;
            self.0.metrics.store_call(StoreOp::Payload, asked.elapsed(), payload.is_ok());
            match payload {
                Ok(payload) => return Some(payload),
                Err(error) => {
                    log_and_pause(&error);
                    if lease.term().over().is_some() || self.0.stopping.is_cancelled() {
                        return None;
                    }
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    /// Acts, and renews the lease meanwhile. `None`: the lease was lost, and the result with it.
    pub(super) async fn act_leased(&self, lane: &Lane, attempt: Attempt<'_>) -> Option<(Event, Outcome)> {
        let (event, outcome) = self.leased(lane, attempt, lane.action.as_ref()?.act(attempt)).await?;
        let left = || Outcome::Unknown { why: "the action did not end with its lease, and was abandoned".into() };
        Some((event, outcome.unwrap_or_else(left)))
    }

    /// Renews the lease while `act` runs. Returns the event as it then is, and the result, unless the work did not end
    /// with the lease and was abandoned. `None`: the lease was lost.
    pub(super) async fn leased<T>(
        &self,
        lane: &Lane,
        attempt: Attempt<'_>,
        mut act: Pin<Box<dyn Future<Output = T> + Send + '_>>,
    ) -> Option<(Event, Option<T>)> {
        let mut event = attempt.event.clone();
        let renewer = self.renewer(lane, attempt.lease, attempt.blocks);
        match renewer.act(&mut event, act.as_mut(), AtLeaseEnd::Wait(LEFT_AFTER)).await {
            LeasedWorkResult::Done(outcome) => Some((event, Some(outcome))),
            LeasedWorkResult::PastLease => Some((event, None)),
            LeasedWorkResult::Lost { ended } => {
                self.lost(&event);
                attempt.lease.extend(boottime());
                attempt.lease.cancel();
                if !ended {
                    // Work that does not end is dropped, which ends what it started.
                    tokio::time::timeout(LEFT_AFTER, act).await.ok();
                }
                None
            }
        }
    }

    fn renewer<'a>(&'a self, lane: &'a Lane, lease: &'a Lease, blocks: &'a SharedSucceededBlocks) -> LeaseRenewer<'a> {
        let DispatcherState { store, batch, node, .. } = &*self.0;
        LeaseRenewer { store: &**store, batch, node, route: &lane.route, lease, blocks }
    }

    /// Abandons an attempt that has not begun, or whose statement has not run: nothing has happened.
    pub(super) async fn abandon(&self, lane: &Lane, event: &Event, lease: &Lease) {
        let step = match lease.term().call {
            LeaseSignal::CallOff => EventStep::Cancel,
            LeaseSignal::GoOn | LeaseSignal::Stop => EventStep::HandBack,
        };
        self.finish(lane, event, step).await;
    }

    /// Writes the outcome of this attempt.
    pub(super) async fn settle(&self, lane: &Lane, event: &Event, end: AttemptEnd) {
        self.write_until_taken(event, |event| end.change(event, &lane.route)).await;
    }

    /// Writes a step that ends this attempt before it began.
    pub(super) async fn finish(&self, lane: &Lane, event: &Event, step: EventStep) {
        let now = self.0.store.now();
        self.write_until_taken(event, |event| event.transition(step.clone(), &lane.route, now).ok()).await;
    }

    /// Writes the end of this attempt until the store has accepted it or another node was first.
    async fn write_until_taken(&self, event: &Event, change: impl Fn(&Event) -> Option<Transition>) {
        let mut event = event.clone();
        for tries in 0_u64.. {
            let Some(change) = change(&event) else { return };
            let came = self.write(change).await;
            if self.is_over(&mut event, came, tries).await {
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Whether this attempt is over, given the result of writing its end. It is not if nothing was written, nor if its
    /// sender got a 202 meanwhile: then its end is written again, for the event as it is now.
    pub(super) async fn is_over(&self, event: &mut Event, came: Result<AdvanceResult, StoreError>, tries: u64) -> bool {
        if let Ok(AdvanceResult::Lost) | Err(StoreError::Unsure(_)) = came
            && let Some(stands) = renewal::accepted(&*self.0.store, event).await
        {
            *event = stands;
            return false;
        }
        match came {
            Ok(AdvanceResult::Written { .. }) | Err(StoreError::Broken(_)) => true,
            Ok(AdvanceResult::Lost) => {
                self.lost(event);
                true
            }
            // If the commit did not succeed, the event is unchanged.
            Err(StoreError::Unsure(_)) => {
                let stands = renewal::current_if_ours(&*self.0.store, &self.0.node, event).await;
                let is_written = stands.is_none_or(|stands| stands.revision != event.revision);
                if is_written {
                    // What the write has made due is not known here.
                    self.wake_lanes();
                }
                is_written
            }
            Err(error @ StoreError::Down(_)) => {
                if tries == 0 {
                    log_and_pause(&error);
                }
                false
            }
        }
    }
}

impl Dispatcher {
    /// Logs and counts that another node wrote first: the outcome of this attempt is not the event's.
    pub(super) fn lost(&self, event: &Event) {
        self.0.metrics.lost(event.id);
        renewal::log_lost(event);
    }
}

/// How an attempt ends.
pub(super) struct AttemptEnd {
    step: EventStep,
    pub(super) tried: AttemptRecord,
    passed: TransientHeadersUpdate,
}

impl AttemptEnd {
    pub(super) fn change(&self, event: &Event, route: &Route) -> Option<Transition> {
        let change = event.transition(self.step.clone(), route, self.tried.ended_at).ok()?;
        Some(Transition { attempt: Some(self.tried.clone()), passed: self.passed, ..change })
    }

    /// The same attempt with the outcome of its statement instead.
    pub(super) fn refused(self, outcome: Outcome, now: Timestamp) -> Self {
        let (word, why) = (outcome.word().into(), outcome.why().into());
        let tried = AttemptRecord { outcome: word, why, ended_at: now, ..self.tried };
        let step = match self.step {
            EventStep::Settle { blocks, jitter, .. } => EventStep::Settle { outcome, blocks, jitter },
            other => other,
        };
        Self { step, tried, passed: self.passed }
    }
}

/// Records that this node is running an event, so that the reaper leaves it alone. Removed on drop, also by a panic.
struct RunningGuard<'a> {
    dispatcher: &'a Dispatcher,
    start: (EventId, Revision),
}

impl<'a> RunningGuard<'a> {
    /// `None`: the node is running it already, from the same start; or from any start, if this start was only looked
    /// up.
    fn begin(dispatcher: &'a Dispatcher, event: &Event, known: StartEvidence, lease: &Arc<Lease>) -> Option<Self> {
        let start = (event.id, event.revision);
        let mut running = dispatcher.0.running();
        if known == StartEvidence::LookedUp && running.range(all_of(event.id)).next().is_some() {
            return None;
        }
        match running.entry(start) {
            Entry::Occupied(_) => None,
            Entry::Vacant(free) => {
                free.insert(lease.clone());
                Some(Self { dispatcher, start })
            }
        }
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.dispatcher.0.running().remove(&self.start);
    }
}

/// Registers the output of this node's attempt at an event. Removed on drop, also by a panic.
struct OutputGuard<'a> {
    dispatcher: &'a Dispatcher,
    event: EventId,
    output: Arc<AttemptOutput>,
}

impl<'a> OutputGuard<'a> {
    fn begin(dispatcher: &'a Dispatcher, event: &Event) -> Self {
        let live = dispatcher.0.output.clone();
        let output = Arc::new(AttemptOutput::new(event.id, (event.life, event.attempt), live));
        dispatcher.0.writing().insert(event.id, output.clone());
        Self { dispatcher, event: event.id, output }
    }
}

impl Drop for OutputGuard<'_> {
    fn drop(&mut self) {
        let mut writing = self.dispatcher.0.writing();
        // The next attempt may have begun before this one has cleaned up.
        if writing.get(&self.event).is_some_and(|output| Arc::ptr_eq(output, &self.output)) {
            writing.remove(&self.event);
        }
    }
}

impl Dispatcher {
    /// Writes the outcome of this attempt together with a statement, in the same transaction. A statement that fails
    /// leaves nothing behind, and its failure becomes the outcome of the attempt.
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
            let Some(place) = place.flatten() else { return self.abandon(lane, &event, attempt.lease).await };
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

    /// Writes the outcome and runs the statement, again at once while others conflict with it. `None`: the lease did
    /// not last.
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
            // A statement that is running when the lease ends is lost to another node: it begins only with enough time
            // left.
            if lease.deadline().left() <= effect.statement.timeout {
                match self.renewer(lane, lease, attempt.blocks).renew(event).await {
                    LeaseRenewal::Renewed(renewed) => *event = *renewed,
                    LeaseRenewal::Lost => {
                        self.lost(event);
                        return None;
                    }
                }
            }
            if lease.term().over().is_some() {
                drop(place);
                self.abandon(lane, event, lease).await;
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

    /// Writes the outcome of the statement instead.
    async fn refused(&self, lane: &Lane, event: &Event, end: AttemptEnd, outcome: Outcome) {
        self.settle(lane, event, end.refused(outcome, self.0.store.now())).await;
    }

    /// A permit to run a statement, unless the lease ends before there is one.
    async fn acquire_sql_permit(&self, lease: &Lease) -> Option<SqlPermit> {
        tokio::select! {
            place = self.0.store.sql_permit() => Some(place),
            _ = lease.ended() => None,
        }
    }
}
