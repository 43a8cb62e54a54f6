//! The batcher in front of every store. It makes one store call of the jobs that are queued; the next batch forms while
//! the store is busy with the last (`batch_queue` says when it starts). There is no timer. Where the store can write claims
//! and transitions in one commit, a batch has both.
//!
//! A committed claim is passed to its [`CommitCallback`] *before* the request that brought it is woken: a client that
//! disconnects never leaves an event that no node runs.

use super::batch_queue::{BatchQueue, QueuedBatch, QueuedJob};
use super::{AdvanceResult, Store, StoreError, StoreFuture};
use crate::decide::claim::{ClaimResult, NewEvent};
use crate::decide::event::Event;
use crate::decide::id::EventId;
use crate::decide::time::Duration;
use crate::decide::transition::Transition;
use crate::observe::metrics::{Metrics, StoreOp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// Called with a new event once it is committed.
pub type CommitCallback = Box<dyn FnOnce(&Event) + Send>;

/// How often a batch whose response was lost is sent.
const ASKS: usize = 3;
/// The wait before sending it again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How often claims whose responses were lost are looked up while the store is unreachable, for how long at most, and
/// how many times once it is back: by then, what the store was doing when the connection broke is written, or never
/// will be.
const LOOK_UP_EVERY: Duration = Duration::from_millis(250);
const LOOK_UP_TIME: Duration = Duration::from_mins(2);
const LOOK_UPS_ONCE_BACK: usize = 20;
/// Maximum number of batches of such claims being looked up at once.
const LOST_BATCHES_MAX: usize = 16;
/// A batch of claims and transitions that fails sooner was refused by a server that responds, perhaps because of one kind
/// of them: each kind is then written alone.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// Batches the calls to a store. Cheap to clone.
#[derive(Clone)]
pub struct Batcher {
    queues: Arc<BatchQueues>,
    last_write: LastWriteStatus,
}

/// The queues of claims and of transitions: one and the same where the store writes both in one commit.
struct BatchQueues {
    claims: Arc<JobQueue>,
    advances: Arc<JobQueue>,
}

impl Drop for BatchQueues {
    fn drop(&mut self) {
        self.claims.close();
        self.advances.close();
    }
}

/// Whether the last write failed with none succeeding since. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub struct LastWriteStatus(Arc<AtomicBool>);

impl LastWriteStatus {
    /// Did the last write fail?
    pub fn failed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Records the result of a write.
    pub fn record(&self, succeeded: bool) {
        self.0.store(!succeeded, Ordering::Relaxed);
    }
}

/// A job and where its result goes.
struct BatchJob<In, Out> {
    input: In,
    reply: Reply<Out>,
}

type Reply<Out> = oneshot::Sender<Result<Out, StoreError>>;

struct ClaimJob {
    job: BatchJob<Arc<NewEvent>, ClaimResult>,
    then: CommitCallback,
}

type AdvanceJob = BatchJob<Transition, AdvanceResult>;

/// The queued jobs, shared by all workers.
type JobQueue = BatchQueue<ClaimJob, AdvanceJob>;

impl QueuedJob for ClaimJob {
    fn bytes(&self) -> usize {
        self.job.input.payload.body.len()
    }
}

impl QueuedJob for AdvanceJob {
    fn bytes(&self) -> usize {
        let change = &self.input;
        let receipt = change.receipt.written().map_or(0, |receipt| receipt.body.len());
        let output = change.attempt.as_ref().map_or(0, |tried| tried.output.len());
        receipt + output + change.payload.as_ref().map_or(0, |payload| payload.body.len())
    }
}

/// The callback for a new event, and the sender of the claim's result.
type WaitingClaim = (Option<CommitCallback>, Reply<ClaimResult>);

impl Batcher {
    /// Starts batching for this store, counting the calls in these metrics. It ends when the last clone is dropped.
    pub fn start(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        let queue = || Arc::new(JobQueue::new(store.batch_start()));
        let claims = queue();
        let advances = if store.shares_commits() { claims.clone() } else { queue() };
        let last_write = LastWriteStatus::default();
        let lost = Arc::new(Semaphore::new(LOST_BATCHES_MAX));
        let worker = BatchWorker { store, metrics, last_write: last_write.clone(), lost };
        for _ in 0..worker.store.batches_at_once() {
            tokio::spawn(worker.clone().work(claims.clone()));
            if !Arc::ptr_eq(&claims, &advances) {
                tokio::spawn(worker.clone().work(advances.clone()));
            }
        }
        Self { queues: Arc::new(BatchQueues { claims, advances }), last_write }
    }

    /// The status of the last write.
    pub fn last_write(&self) -> LastWriteStatus {
        self.last_write.clone()
    }

    /// Claims one event. `then` is called with it if it is new, before this returns. Fails with [`StoreError::Down`] if
    /// too many claims are queued.
    pub async fn claim(&self, new: Arc<NewEvent>, then: CommitCallback) -> Result<ClaimResult, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = ClaimJob { job: BatchJob { input: new, reply }, then };
        let added = self.queues.claims.add_claim(job);
        added.map_err(|_| StoreError::Down("too many claims are waiting".into()))?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Writes one transition.
    pub async fn advance(&self, change: Transition) -> Result<AdvanceResult, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queues.advances.add_advance(BatchJob { input: change, reply });
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> StoreError {
    StoreError::Down("the node is stopping".into())
}

/// Writes the batches of a queue.
#[derive(Clone)]
struct BatchWorker {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    last_write: LastWriteStatus,
    lost: Arc<Semaphore>,
}

/// Claims and the requests that wait for them.
type ClaimBatch = (Vec<Arc<NewEvent>>, Vec<WaitingClaim>);
/// Transitions and the attempts that wait for them.
type AdvanceBatch = (Vec<Transition>, Vec<Reply<AdvanceResult>>);

impl BatchWorker {
    async fn work(self, queue: Arc<JobQueue>) {
        while let Some(QueuedBatch { claims, advances, turn }) = queue.next().await {
            let claims = claims.into_iter().map(|ClaimJob { job, then }| (job.input, (Some(then), job.reply))).unzip();
            let advances = advances.into_iter().map(|job| (job.input, job.reply)).unzip();
            turn.write(self.write(claims, advances)).await;
        }
    }

    async fn write(&self, claims: ClaimBatch, advances: AdvanceBatch) {
        match (claims.0.is_empty(), advances.0.is_empty()) {
            (false, false) => self.write_together(claims, advances).await,
            _ => self.write_apart(claims, advances).await,
        }
    }

    /// Writes the two kinds in separate calls.
    async fn write_apart(&self, claims: ClaimBatch, advances: AdvanceBatch) {
        tokio::join!(self.claim(claims, false), self.advance(advances));
    }

    /// Writes both kinds in one call. What that leaves undecided is written apart: a transition that meets conflicting
    /// writes holds up no claim.
    async fn write_together(&self, (inputs, waiting): ClaimBatch, (changes, replies): AdvanceBatch) {
        let (asked, changes) = (Instant::now(), Arc::new(changes));
        let answers = self.store.claim_and_advance(inputs.clone(), changes.clone()).await;
        self.metrics.batch(inputs.len());
        self.metrics.store_call(StoreOp::Claim, asked.elapsed(), answers.is_ok());
        self.metrics.store_call(StoreOp::Advance, asked.elapsed(), answers.is_ok());
        let changes = Arc::unwrap_or_clone(changes);
        let (claims, advances) = match answers {
            Ok((claims, advances)) => {
                self.record(Ok(&claims));
                let (mut again, mut still_waiting) = (Vec::new(), Vec::new());
                for ((change, reply), answer) in changes.into_iter().zip(replies).zip(advances) {
                    if let Some(answer) = answer {
                        reply.send(Ok(answer)).unwrap_or_default();
                    } else {
                        again.push(change);
                        still_waiting.push(reply);
                    }
                }
                (settle(inputs, waiting, Ok(claims)), (again, still_waiting))
            }
            Err(StoreError::Down(_)) if asked.elapsed() < REFUSED_WITHIN => ((inputs, waiting), (changes, replies)),
            Err(error @ StoreError::Unsure(_)) => {
                self.record(Err(&error));
                refuse(replies, &error);
                tokio::time::sleep(ASK_AGAIN).await;
                return self.claim((inputs, waiting), true).await;
            }
            Err(error) => {
                self.record(Err(&error));
                refuse(replies, &error);
                settle(inputs, waiting, Err(error));
                return;
            }
        };
        self.write_apart(claims, advances).await;
    }

    /// Claims these events until all are decided. `was_lost` says whether the response to an earlier claim of them was
    /// lost.
    async fn claim(&self, (mut inputs, mut waiting): ClaimBatch, was_lost: bool) {
        while !inputs.is_empty() {
            let (asked, size) = (Instant::now(), inputs.len());
            let (answers, was_lost) = ask(|| self.store.claim(inputs.clone()), was_lost).await;
            self.metrics.batch(size);
            self.metrics.store_call(StoreOp::Claim, asked.elapsed(), answers.is_ok());
            self.record(answers.as_deref());
            if answers.is_err()
                && was_lost
                && let Ok(permit) = self.lost.clone().try_acquire_owned()
            {
                let ids = inputs.iter().map(|new| new.event.id);
                let thens = waiting.iter_mut().map(|(then, _)| then.take());
                let claims = ids.zip(thens).filter_map(|(id, then)| Some((id, then?))).collect();
                tokio::spawn(look_up(Arc::downgrade(&self.store), claims, permit));
            }
            (inputs, waiting) = settle(inputs, waiting, answers);
        }
    }

    async fn advance(&self, (changes, replies): AdvanceBatch) {
        if changes.is_empty() {
            return;
        }
        let asked = Instant::now();
        let answers = self.store.advance(changes).await;
        self.metrics.store_call(StoreOp::Advance, asked.elapsed(), answers.is_ok());
        match answers {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    reply.send(Ok(answer)).unwrap_or_default();
                }
            }
            Err(error) => {
                // A success says nothing about claims: a full Redis can still end events.
                self.record(Err(&error));
                refuse(replies, &error);
            }
        }
    }

    /// Records whether claims could be written. A batch of duplicates wrote nothing, so it says nothing about writes.
    fn record(&self, claims: Result<&[ClaimResult], &StoreError>) {
        match claims {
            Ok(claims) if claims.iter().any(|claim| matches!(claim, ClaimResult::New { .. })) => {
                self.last_write.record(true);
            }
            Ok(_) => {}
            Err(_) => self.last_write.record(false),
        }
    }
}

/// Answers transitions with this error.
fn refuse(replies: Vec<Reply<AdvanceResult>>, error: &StoreError) {
    for reply in replies {
        reply.send(Err(error.clone())).unwrap_or_default();
    }
}

/// Calls the store, and again with the same ids while it does not confirm the write: claims are idempotent by id. Also
/// returns whether a response was lost.
async fn ask<'a, T>(call: impl Fn() -> StoreFuture<'a, T>, mut lost: bool) -> (Result<T, StoreError>, bool) {
    for _ in 1..ASKS {
        match call().await {
            Err(StoreError::Unsure(_)) => tokio::time::sleep(ASK_AGAIN).await,
            answer => return (answer, lost),
        }
        lost = true;
    }
    let answer = call().await;
    lost |= matches!(answer, Err(StoreError::Unsure(_)));
    (answer, lost)
}

/// Looks up claims whose responses were lost, and runs the callbacks of those that were written after all: otherwise an
/// event would be leased to a node that does not know of it. Their senders got an error, so nothing is claimed again
/// here.
async fn look_up(store: Weak<dyn Store>, mut claims: Vec<(EventId, CommitCallback)>, _permit: OwnedSemaphorePermit) {
    let (until, mut looks) = (Instant::now() + LOOK_UP_TIME, 0);
    while !claims.is_empty() && looks < LOOK_UPS_ONCE_BACK && Instant::now() < until {
        tokio::time::sleep(LOOK_UP_EVERY).await;
        let Some(store) = store.upgrade() else { return };
        looks += 1;
        for (id, then) in std::mem::take(&mut claims) {
            match store.get(id).await {
                Ok(Some(event)) => then(&event),
                Ok(None) => claims.push((id, then)),
                Err(_) => {
                    looks = 0;
                    claims.push((id, then));
                }
            }
        }
    }
}

/// Runs the callbacks of new events, then wakes the requests. Returns the claims that must be made again.
fn settle(
    inputs: Vec<Arc<NewEvent>>,
    waiting: Vec<WaitingClaim>,
    answers: Result<Vec<ClaimResult>, StoreError>,
) -> (Vec<Arc<NewEvent>>, Vec<WaitingClaim>) {
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            for (_, reply) in waiting {
                reply.send(Err(error.clone())).unwrap_or_default();
            }
            return Default::default();
        }
    };
    let (mut again, mut still_waiting) = (Vec::new(), Vec::new());
    for ((input, (mut then, reply)), claim) in inputs.into_iter().zip(waiting).zip(answers) {
        match &claim {
            ClaimResult::Undecided => {
                again.push(input);
                still_waiting.push((then, reply));
                continue;
            }
            ClaimResult::New { event, .. } => {
                if let Some(then) = then.take() {
                    then(event);
                }
            }
            ClaimResult::Duplicate { .. } | ClaimResult::Imported { .. } | ClaimResult::Stale { .. } => {}
        }
        drop(input); // the request then holds the only reference
        // The client may be gone; its event is not.
        reply.send(Ok(claim)).unwrap_or_default();
    }
    (again, still_waiting)
}
