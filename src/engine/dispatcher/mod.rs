//! Runs events: one lane per route, each with its permits, and one reaper for what belongs to no lane.
//!
//! ```text
//! claim ─hand-over─▶ attempt ◀─Start─ lane (polls for due events of its route, while it has a permit)
//! reaper: ends expired leases, suspends events without a route, removes what has expired
//! ```
//!
//! There is no leader and no schedule: every node polls, and the revision decides which node starts an event. What is
//! known here is only a hint; the store is the truth.
pub(crate) mod attempt;
pub(crate) mod deploy;
pub(crate) mod lane;
pub(crate) mod lane_table;
pub(crate) mod output_sharing;
pub(crate) mod reaper;
pub(crate) mod start_due;

pub use lane::Lane;
pub(crate) use lane_table::LaneTable;

use crate::action::{AttemptOutput, BootInstant, Lease, OutputChunk, boottime};
use crate::decide::claim::Payload;
use crate::decide::event::{Event, EventState, EventStep, QueueState};
use crate::decide::id::{EventId, NodeId, Revision};
use crate::decide::limits;
use crate::decide::retry::Jitter;
use crate::decide::source::{InDoubtPolicy, Route};
use crate::decide::sql_template::BoundStatement;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::{ReceiptUpdate, Transition};
use crate::lease::renewal;
use crate::observe::log;
use crate::observe::log::StateDetails;
use crate::observe::metrics::{Metrics, StoreOp};
use crate::store::batch::Batcher;
use crate::store::completion::{Completion, CompletionWaiter, CompletionWaiters, JOIN_LOOK};
use crate::store::{
    AdvanceResult, ChangeHint, RetentionPolicies, SqlOutcome, SqlPermit, Store, StoreError, StoredValue,
};
use lane::{AttemptPermit, ReceiverQueue};
use lane_table::QueuePermits;
use output_sharing::SharedEvents;
use start_due::{BacklogHint, HELD_ELSEWHERE, STARTS_WITHOUT_LOOK, UnconfirmedStart};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts this node's due events, within the limits of each receiver's queue, and runs their attempts. Cheap to clone.
#[derive(Clone)]
pub struct Dispatcher(Arc<DispatcherState>);

/// The leases of this node's attempts, by event and the revision at which it was started: a new attempt may start
/// before the previous task has cleaned up.
type RunningLeases = BTreeMap<(EventId, Revision), Arc<Lease>>;

struct DispatcherState {
    store: Arc<dyn Store>,
    batch: Batcher,
    metrics: Arc<Metrics>,
    node: NodeId,
    /// The lanes as they are configured now.
    lanes: RwLock<Arc<LaneTable>>,
    permits: Mutex<QueuePermits>,
    /// Whether this node starts events.
    is_running: AtomicBool,
    news: broadcast::Sender<Event>,
    ends: CompletionWaiters<Arc<WrittenEnd>>,
    output: broadcast::Sender<OutputChunk>,
    running: Mutex<RunningLeases>,
    /// Events that this node may have started: the store's response was lost, and the store is queried again.
    unsure_starts: Mutex<BTreeSet<EventId>>,
    /// The output of this node's attempts so far.
    writing: Mutex<BTreeMap<EventId, Arc<AttemptOutput>>>,
    shared: SharedEvents,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl DispatcherState {
    fn running(&self) -> MutexGuard<'_, RunningLeases> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsure_starts(&self) -> MutexGuard<'_, BTreeSet<EventId>> {
        self.unsure_starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, BTreeMap<EventId, Arc<AttemptOutput>>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event that this node may act on.
pub(crate) struct LeasedEvent {
    /// Running, by this node.
    event: Event,
    /// How it runs: as its route was configured when it started.
    lane: Arc<Lane>,
    /// Its payload, where this node still has it.
    payload: Option<StoredValue<Payload>>,
    /// When the write that started it was first sent: the lease counts from then.
    sent: BootInstant,
    /// How this node knows that it has the lease.
    known: StartEvidence,
    spot: AttemptPermit,
}

/// How a node knows that it has started an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StartEvidence {
    /// The store's response said so.
    Answered,
    /// The store did not respond, and the event was looked up. Another task of this node may have started it.
    LookedUp,
}

/// The end of an event, as this process wrote it.
#[derive(Debug)]
pub(crate) struct WrittenEnd {
    pub(crate) event: Event,
    /// What the same write did to the stored response. Where it did nothing, the store has it.
    pub(crate) receipt: ReceiptUpdate,
}

/// A wait for the end of an event, registered before the event was claimed.
pub(crate) type EndWaiter<'a> = CompletionWaiter<'a, Arc<WrittenEnd>>;

/// State changes by which a subscriber may fall behind.
const NEWS_MAX: usize = 4096;

impl Dispatcher {
    /// The number of receivers of each route whose circuit is open, by the names of the source and the route.
    pub(crate) fn open_circuits(&self) -> Vec<(Arc<str>, Arc<str>, u64)> {
        let lanes = self.lanes();
        let open = lanes.all().filter_map(|lane| {
            let open = lane.action.as_ref()?.open_circuits() as u64;
            Some((lane.source.name.clone(), lane.route.name.clone(), open))
        });
        let mut open: Vec<_> = open.collect();
        open.sort_unstable();
        open
    }

    /// A dispatcher for these lanes, with a new node name.
    pub fn new(store: Arc<dyn Store>, batch: Batcher, lanes: Vec<Lane>, metrics: Arc<Metrics>) -> Self {
        let node = NodeId(uuid::Uuid::now_v7().simple().to_string()[20..].into());
        let (mut permits, stopping) = (QueuePermits::default(), CancellationToken::new());
        let lanes = Arc::new(LaneTable::new(lanes, &mut permits, &stopping));
        Self(Arc::new(DispatcherState {
            store,
            batch,
            metrics,
            node,
            lanes: RwLock::new(lanes),
            permits: Mutex::new(permits),
            is_running: AtomicBool::new(false),
            news: broadcast::Sender::new(NEWS_MAX),
            ends: CompletionWaiters::default(),
            output: broadcast::Sender::new(limits::OUTPUT_BEHIND_MAX),
            running: Mutex::default(),
            unsure_starts: Mutex::default(),
            writing: Mutex::default(),
            shared: SharedEvents::default(),
            stopping,
            tasks: TaskTracker::new(),
        }))
    }

    /// Starts polling for work.
    pub fn run(&self) {
        self.0.is_running.store(true, Ordering::SeqCst);
        self.run_queues(&self.lanes());
        if let Some(hints) = self.0.store.hints() {
            self.0.tasks.spawn(self.clone().listen(hints));
        }
        self.0.tasks.spawn(self.clone().run_reaper());
        self.0.tasks.spawn(self.clone().sweep());
    }

    fn run_queues(&self, table: &LaneTable) {
        for lane in table.all() {
            for queue in 0..lane.queues() {
                let loops = self.clone().run_queue(lane.clone(), queue, table.retired.clone());
                self.0.tasks.spawn(table.queues.track_future(loops));
            }
        }
        table.queues.close();
    }

    /// Replaces the lanes: from now on, events start as these say. What is running goes on as it began. Returns when the
    /// queues of the former lanes start nothing more, or after a moment if the store does not respond.
    pub(crate) async fn reconfigure(&self, lanes: Vec<Lane>) {
        let former = {
            let mut permits = self.0.permits.lock().unwrap_or_else(PoisonError::into_inner);
            let table = Arc::new(LaneTable::new(lanes, &mut permits, &self.0.stopping));
            let mut lanes = self.0.lanes.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *lanes, table)
        };
        former.retired.cancel();
        if self.0.is_running.load(Ordering::SeqCst) {
            tokio::time::timeout(RETIRE_TIME, former.queues.wait()).await.unwrap_or_default();
            self.run_queues(&self.lanes());
        }
    }

    /// Starts watching the clocks: also on a node that runs no events.
    pub fn watch(&self) {
        self.0.tasks.spawn(self.clone().watch_clocks());
    }

    /// This node's name.
    pub fn node(&self) -> &NodeId {
        &self.0.node
    }

    /// The retention of its sources, as configured.
    pub fn keeps(&self) -> Arc<RetentionPolicies> {
        self.lanes().keeps.clone()
    }

    /// The lane of this route, as it is configured now.
    pub fn lane(&self, source: &str, route: &str) -> Option<Arc<Lane>> {
        self.lanes().lane(source, route).cloned()
    }

    /// The lanes, as they are configured now.
    pub(crate) fn lanes(&self) -> Arc<LaneTable> {
        self.0.lanes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wake_lanes(&self) {
        self.lanes().all().for_each(|lane| lane.wake_all());
    }

    /// State changes, as they are written.
    pub fn state_changes(&self) -> broadcast::Receiver<Event> {
        self.0.news.subscribe()
    }

    /// The output of commands, as they write it.
    pub fn output(&self) -> broadcast::Receiver<OutputChunk> {
        self.0.output.subscribe()
    }

    /// The same, with the previous output of this event's attempt, if it runs here.
    pub fn output_of(&self, event: EventId) -> (Option<Vec<u8>>, broadcast::Receiver<OutputChunk>) {
        match self.0.writing().get(&event) {
            Some(output) => {
                let (so_far, from_now) = output.subscribe();
                (Some(so_far), from_now)
            }
            None => (None, self.output()),
        }
    }

    /// A free permit on this lane for an event that is about to be claimed, if there is one, its receiver is healthy,
    /// and the node is not stopping.
    pub fn free_spot(&self, lane: &Lane, part: u16) -> Option<AttemptPermit> {
        if self.0.stopping.is_cancelled() { None } else { lane.free_spot(part) }
    }

    /// Takes over a new event that was just committed: runs it with this permit of this lane if it was claimed as
    /// running by this node and is still as it was claimed.
    pub fn adopt(&self, event: &Event, to_run: Option<(Arc<Lane>, AttemptPermit, Option<Payload>)>, sent: BootInstant) {
        self.publish_state(event, StateDetails::default());
        match to_run {
            Some((lane, spot, payload)) if event.revision.0 == 1 && event.is_running_on(&self.0.node) => {
                let payload = payload.map(StoredValue::Whole);
                let known = StartEvidence::Answered;
                self.act(LeasedEvent { event: event.clone(), lane, payload, sent, known, spot });
            }
            _ => self.wake(event),
        }
    }

    fn act(&self, held: LeasedEvent) {
        self.0.tasks.spawn(self.clone().attempt(held));
    }

    /// Writes one step of an event, by the policies of its route as configured now.
    pub async fn step(&self, event: &Event, step: EventStep) -> Result<Option<AdvanceResult>, StoreError> {
        let now = self.0.store.now();
        // While its route is gone, it is unknown whether the event may act twice: a doubt is left to an operator.
        let gone = Route { in_doubt: InDoubtPolicy::Hold, ..Route::default() };
        let lane = self.lane(&event.source, &event.route);
        let route = lane.as_ref().map_or(&gone, |lane| &lane.route);
        let why = match step {
            EventStep::Suspend { .. } => format!("route gone: {}", event.route),
            _ => String::new(),
        };
        let known = event.queue_state == QueueState::Suspended && matches!(step, EventStep::Suspend { .. });
        match event.transition(step, route, now) {
            Ok(change) if known => self.0.batch.advance(change).await.map(Some),
            Ok(change) if change.attempt.is_some() => self.write(change).await.map(Some),
            Ok(change) => self.write_because(change, why).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Writes a transition, and reports the result.
    pub async fn write(&self, change: Transition) -> Result<AdvanceResult, StoreError> {
        let why = change.attempt.as_ref().map_or_else(String::new, |tried| tried.why.clone());
        self.write_because(change, why).await
    }

    /// The same, with this reason for the log.
    pub async fn write_because(&self, change: Transition, why: String) -> Result<AdvanceResult, StoreError> {
        let took = change.attempt.as_ref().map(|tried| tried.ended_at.since(tried.started_at));
        let outcome = change.attempt.as_ref().map(|tried| tried.outcome.clone());
        let receipt = self.receipt_to_tell(&change);
        let advance = self.0.batch.advance(change).await?;
        self.report_advance(&advance, outcome.as_deref(), receipt, StateDetails { took, wait: None, why: Some(&why) });
        Ok(advance)
    }

    /// Writes a transition together with a statement, and reports the result. Not through the batcher: a slow statement
    /// must not delay other transitions.
    async fn advance_with_sql(
        &self,
        change: Transition,
        statement: BoundStatement,
        place: &SqlPermit,
    ) -> Result<SqlOutcome, StoreError> {
        let began = boottime();
        let outcome = change.attempt.as_ref().map(|tried| tried.outcome.clone());
        let receipt = self.receipt_to_tell(&change);
        let effected = self.0.store.advance_with_sql(change, statement, place).await?;
        if let SqlOutcome::Advanced(advance) = &effected {
            let took = Some(boottime().0.saturating_sub(began.0));
            self.report_advance(advance, outcome.as_deref(), receipt, StateDetails { took, ..StateDetails::default() });
        }
        Ok(effected)
    }

    /// What this transition does to the stored response, if a request waits for its event.
    fn receipt_to_tell(&self, change: &Transition) -> ReceiptUpdate {
        let is_awaited = change.event.state.ended().is_some() && self.0.ends.is_awaited(change.event.id);
        if is_awaited { change.receipt.clone() } else { ReceiptUpdate::Unchanged }
    }

    fn report_advance(
        &self,
        advance: &AdvanceResult,
        outcome: Option<&str>,
        receipt: ReceiptUpdate,
        details: StateDetails<'_>,
    ) {
        if let AdvanceResult::Written { event, now } = advance {
            if let Some(outcome) = outcome {
                self.0.metrics.attempt(event, outcome, details.took);
            }
            let wait = match event.state {
                EventState::Waiting { due: Some(due) } if due > *now => Some(due.since(*now)),
                _ => None,
            };
            let why = details.why.filter(|why| !why.is_empty());
            self.publish_end(event, receipt, StateDetails { wait, why, ..details });
            self.wake(event);
        }
    }

    fn publish_state(&self, event: &Event, details: StateDetails<'_>) {
        self.publish_end(event, ReceiptUpdate::Unchanged, details);
    }

    /// Publishes the state of an event, which may have ended; with what the write of its end did to the stored response,
    /// as far as that is known.
    fn publish_end(&self, event: &Event, receipt: ReceiptUpdate, details: StateDetails<'_>) {
        log::log_state(event, details);
        self.0.metrics.state(event);
        if event.state.ended().is_some() {
            self.0.ends.tell(event.id, || Arc::new(WrittenEnd { event: event.clone(), receipt }));
        }
        if self.0.news.receiver_count() > 0 {
            // An error means that there is no subscriber any more.
            self.0.news.send(event.clone()).unwrap_or_default();
        }
    }

    /// Wakes the queues that may have work to do: those of its notifications, if it has ended; this event's own, or, if it
    /// leaves its group's slot, all of them.
    pub fn wake(&self, event: &Event) {
        if let (Some(_), Some(lane)) = (event.state.ended(), self.lane(&event.source, &event.route)) {
            let told = lane.route.notify.iter().filter_map(|target| self.lane(&event.source, &target.route));
            told.for_each(|lane| lane.wake_all());
        }
        if event.group.is_some() && !event.wants_slot() {
            self.wake_lanes();
        } else if let (EventState::Waiting { .. }, Some(lane)) = (&event.state, self.lane(&event.source, &event.route))
        {
            lane.queue_of(event.part).wake.notify_one();
        }
    }

    /// Registers a wait for the end of an event that is about to be claimed.
    pub(crate) fn register_wait(&self, id: EventId) -> EndWaiter<'_> {
        self.0.ends.register(&*self.0.store, id)
    }

    /// Waits for an event to end, at most `within`. `known`: the event as it was written after this wait was registered.
    pub(crate) async fn wait_registered(
        waiter: EndWaiter<'_>,
        known: Option<&Event>,
        within: Duration,
    ) -> Result<Completion<Arc<WrittenEnd>>, StoreError> {
        let until = tokio::time::Instant::now() + within;
        waiter.wait(known, until, |event| event.state.ended().is_none().then_some(JOIN_LOOK)).await
    }

    /// Waits for an event to end, at most `within`; returns the event as it is then.
    pub async fn wait_for_end(&self, id: EventId, within: Duration) -> Result<Option<Event>, StoreError> {
        match Self::wait_registered(self.register_wait(id), None, within).await? {
            Completion::Told(end) => Ok(Some(end.event.clone())),
            Completion::Stored(event) => Ok(event.map(|event| *event)),
        }
    }

    /// Wakes the lanes that another node says have something to do.
    async fn listen(self, mut hints: broadcast::Receiver<ChangeHint>) {
        while let Some(hint) = self.0.stopping.run_until_cancelled(hints.recv()).await {
            match hint {
                Ok(ChangeHint::Due { source, route }) => {
                    self.lane(&source, &route).into_iter().for_each(|lane| lane.wake_all());
                }
                Ok(ChangeHint::Watched(event)) => self.share_output(event),
                Ok(ChangeHint::Ended(_)) => {}
                Ok(ChangeHint::Missed) | Err(RecvError::Lagged(_)) => self.wake_lanes(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// The loop of one queue: starts what is due while there are permits, until the lane is retired.
    async fn run_queue(self, lane: Arc<Lane>, queue: usize, retired: CancellationToken) {
        let queue = lane.queue(queue);
        let (mut more, mut sure, mut took) = (false, 0, Duration::ZERO);
        while let Some(permit) = retired.run_until_cancelled(queue.permits.clone().acquire_owned()).await {
            let Ok(permit) = permit else { return };
            if more {
                queue.wait_for_permits(took).await;
            }
            let began = tokio::time::Instant::now();
            let (next, plenty) = match sure {
                0 => Box::pin(self.start_due(&lane, queue, permit)).await,
                _ => self.start_more(&lane, queue, permit).await,
            };
            took = began.elapsed();
            sure = match (plenty, sure) {
                (BacklogHint::No, _) => 0,
                (BacklogHint::Yes, 0) => STARTS_WITHOUT_LOOK,
                (BacklogHint::Yes, sure) => sure - 1,
            };
            more = next.is_zero();
            let rest = async {
                tokio::select! {
                    () = queue.wake.notified() => {}
                    () = tokio::time::sleep(next) => {}
                }
            };
            if retired.run_until_cancelled(rest).await.is_none() {
                return;
            }
        }
    }

    /// Starts what is due in a queue, as far as permits and its receiver's health allow. Returns how long to rest.
    async fn start_due(
        &self,
        lane: &Arc<Lane>,
        queue: &ReceiverQueue,
        first: OwnedSemaphorePermit,
    ) -> (Duration, BacklogHint) {
        let limit = 1 + queue.permits.available_permits();
        queue.begin_look();
        let asked = tokio::time::Instant::now();
        let due = self.0.store.due(lane.look(queue), limit).await;
        self.0.metrics.store_call(StoreOp::Due, asked.elapsed(), due.is_ok());
        let due = match due {
            Ok(due) => due,
            Err(error) => return (log_and_pause(&error), BacklogHint::No),
        };
        let full = due.events.len() == limit;
        let mut has_all = !full;
        let mut pause = if full { Duration::ZERO } else { self.until(due.next) };
        let (now, step) = (self.0.store.now(), self.start_step(lane));
        let (mut permit, mut spots) = (Some(first), Vec::new());
        for event in due.events {
            let start = match (event.queue_state, &step) {
                (QueueState::Suspended, _) => Err(EventStep::Unsuspend),
                // Its action was removed from the config, or it was only recorded and is replayed.
                (_, None) => Err(EventStep::Record),
                (_, Some(start)) => Ok(start),
            };
            let start = match start {
                Ok(start) => start,
                Err(step) => match self.step(&event, step).await {
                    Ok(_) => continue,
                    Err(error) => return (log_and_pause(&error), BacklogHint::No),
                },
            };
            let Some(permit) = permit.take().or_else(|| queue.permits.clone().try_acquire_owned().ok()) else {
                (pause, has_all) = (Duration::ZERO, false);
                break;
            };
            // A receiver whose circuit is open is not called: its events wait as they are, and no attempt is spent.
            match lane.spot(permit, event.part) {
                Ok(spot) if event.part == queue.part && event.start_alone(start, &lane.route, now).is_some() => {
                    spots.push(spot);
                }
                Ok(spot) => drop(self.0.tasks.spawn(self.clone().start(lane.clone(), event, start.clone(), spot))),
                Err(rest) => {
                    (pause, has_all) = (rest, false);
                    break;
                }
            }
        }
        let wanted = spots.len();
        let started = match step {
            Some(step) => self.start_together(lane, queue, step, spots).await,
            None => Ok(0),
        };
        match started {
            Ok(started) if full && started == limit => (pause, BacklogHint::Yes),
            // Other nodes, or tasks of this one, have some of these events, and will release them soon.
            Ok(started) if started < wanted => (HELD_ELSEWHERE, BacklogHint::No),
            Ok(started) => {
                if has_all && started == wanted {
                    queue.caught_up();
                }
                (pause, BacklogHint::No)
            }
            Err(error) => (log_and_pause(&error), BacklogHint::No),
        }
    }

    async fn start(self, lane: Arc<Lane>, event: Event, step: EventStep, spot: AttemptPermit) {
        let sent = boottime();
        let started = self.begin(&event, step, false).await;
        if let Some((event, known)) = started.filter(|(event, _)| event.is_running_on(&self.0.node)) {
            self.attempt(LeasedEvent { event, lane, payload: None, sent, known, spot }).await;
        }
    }

    /// The event as it was started; `None` if it was not, or not by this task. A start whose response was lost may
    /// still be in progress in the store when the event is looked up. It is sent again until one of the two is known to
    /// be written: otherwise the event would be running on a node that does not know of it. `unsure`: a start has been
    /// sent already.
    async fn begin(&self, event: &Event, start: EventStep, unsure: bool) -> Option<(Event, StartEvidence)> {
        let mut unsure = unsure.then(|| UnconfirmedStart::note(self, event.id));
        loop {
            match self.step(event, start.clone()).await {
                Ok(Some(AdvanceResult::Written { event, .. })) => return Some((*event, StartEvidence::Answered)),
                Ok(Some(AdvanceResult::Lost)) if unsure.is_some() => {
                    return self.started(event).await.map(|started| (started, StartEvidence::LookedUp));
                }
                Ok(_) => return None,
                Err(error) => {
                    let pause = log_and_pause(&error);
                    match error {
                        StoreError::Unsure(_) => {
                            unsure.get_or_insert_with(|| UnconfirmedStart::note(self, event.id));
                            if let Some(started) = self.started(event).await {
                                return Some((started, StartEvidence::LookedUp));
                            }
                        }
                        StoreError::Down(_) if unsure.is_some() => {}
                        StoreError::Down(_) | StoreError::Broken(_) => {
                            // Waits while holding its permit, so that a store that accepts nothing is not asked again
                            // by the next event.
                            self.0.stopping.run_until_cancelled(tokio::time::sleep(pause)).await;
                            return None;
                        }
                    }
                }
            }
            self.0.stopping.run_until_cancelled(tokio::time::sleep(renewal::ASK_AGAIN)).await?;
        }
    }

    /// The event, if it was started by this node in this same attempt after all, although the response did not say so.
    /// Its sender may have got a 202 meanwhile.
    async fn started(&self, was: &Event) -> Option<Event> {
        let now = renewal::look_up(&*self.0.store, was.id).await?;
        let ours = now.life == was.life && now.attempt == was.attempt + 1 && now.is_running_on(&self.0.node);
        if ours {
            self.publish_state(&now, StateDetails::default());
        }
        ours.then_some(now)
    }

    /// The time until `next`, but at most the polling interval.
    fn until(&self, next: Option<Timestamp>) -> Duration {
        next.map_or(limits::LOOK_EVERY, |next| next.since(self.0.store.now()).min(limits::LOOK_EVERY))
    }

    /// Stops: nothing new is started. What is running may go on for `grace`; then it is ended and settled as unknown.
    pub async fn stop(&self, grace: Duration) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(grace, self.0.tasks.wait()).await.is_err() {
            self.end_all();
            tokio::time::timeout(END_TIME, self.0.tasks.wait()).await.unwrap_or_default();
        }
    }

    /// Ends every attempt now.
    pub fn end_all(&self) {
        self.0.running().values().for_each(|lease| lease.cancel());
    }

    /// Ends an event because an operator says so. If this node runs it, its attempt is ended first and writes the end
    /// itself. If another node does, it is cancelled remotely: no slot is handed on and no event replayed while its
    /// command runs.
    pub async fn cancel(&self, event: &Event) -> Result<Option<AdvanceResult>, StoreError> {
        if !self.is_running_here(event.id) {
            let step = event.cancelled_from_outside(|until| self.0.store.is_lease_over(until));
            return self.step(event, step).await;
        }
        self.0.running().range(all_of(event.id)).for_each(|(_, lease)| lease.cancel_event());
        let stands = self.wait_for_end(event.id, END_TIME).await?;
        let now = self.0.store.now();
        Ok(stands.map(|event| AdvanceResult::Written { event: Box::new(event), now }))
    }

    /// Whether an attempt of this node at this event is running.
    fn is_running_here(&self, id: EventId) -> bool {
        self.0.running().range(all_of(id)).next().is_some()
    }
}

/// How long the queues of replaced lanes may take to end a write to the store.
const RETIRE_TIME: Duration = Duration::from_secs(5);

/// How long ended attempts may take to be settled.
const END_TIME: Duration = Duration::from_secs(10);

/// Logs why the store did not respond; returns how long to wait.
fn log_and_pause(error: &StoreError) -> Duration {
    log::store_error(error);
    limits::LOOK_EVERY
}

fn all_of(id: EventId) -> RangeInclusive<(EventId, Revision)> {
    (id, Revision(0))..=(id, Revision(u64::MAX))
}

/// A random jitter.
pub(crate) fn jitter() -> Jitter {
    let mut bytes = [0; 4];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random bytes");
    Jitter(u32::from_be_bytes(bytes))
}
