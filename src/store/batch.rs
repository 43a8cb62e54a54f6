//! The batcher in front of every store. It takes the queued calls, up to a limit, and makes one store call of them; the
//! next batch forms while the store is busy with the last. There is no timer.
//!
//! A committed claim is passed to its [`CommitCallback`] *before* the request that brought it is woken: a client that
//! disconnects never leaves an event that no node runs.

use super::{AdvanceResult, Store, StoreError, StoreFuture};
use crate::decide::claim::{ClaimResult, NewEvent};
use crate::decide::event::Event;
use crate::decide::id::EventId;
use crate::decide::limits;
use crate::decide::time::Duration;
use crate::decide::transition::Transition;
use crate::observe::metrics::{Metrics, StoreOp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
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

/// Batches the calls to a store. Cheap to clone.
#[derive(Clone)]
pub struct Batcher {
    claims: mpsc::Sender<ClaimJob>,
    advances: mpsc::Sender<AdvanceJob>,
    last_write: LastWriteStatus,
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

struct BatchJob<In, Out> {
    input: In,
    then: Option<CommitCallback>,
    reply: oneshot::Sender<Result<Out, StoreError>>,
}

type ClaimJob = BatchJob<Arc<NewEvent>, ClaimResult>;
type AdvanceJob = BatchJob<Transition, AdvanceResult>;

/// The queued jobs, shared by all feeders.
type BatchQueue<In, Out> = Arc<Mutex<mpsc::Receiver<BatchJob<In, Out>>>>;

/// The callback for a new event, and the sender of the claim's result.
type WaitingClaim = (Option<CommitCallback>, oneshot::Sender<Result<ClaimResult, StoreError>>);

impl Batcher {
    /// Starts batching for this store, counting the calls in these metrics. It ends when the last clone is dropped.
    pub fn start(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        let (claims, claim_jobs) = mpsc::channel(limits::CLAIMS_WAITING_MAX);
        let (advances, advance_jobs) = mpsc::channel(limits::CLAIMS_WAITING_MAX);
        let last_write = LastWriteStatus::default();
        let lost = Arc::new(Semaphore::new(LOST_BATCHES_MAX));
        if store.writes_together() {
            let jobs = (claim_jobs, advance_jobs);
            tokio::spawn(feed_together(store, jobs, metrics, last_write.clone(), lost));
            return Self { claims, advances, last_write };
        }
        let (claim_jobs, advance_jobs) = (Arc::new(Mutex::new(claim_jobs)), Arc::new(Mutex::new(advance_jobs)));
        for _ in 0..store.batches_at_once() {
            tokio::spawn(feed_claims(
                store.clone(),
                claim_jobs.clone(),
                metrics.clone(),
                last_write.clone(),
                lost.clone(),
            ));
            tokio::spawn(feed_advances(store.clone(), advance_jobs.clone(), metrics.clone(), last_write.clone()));
        }
        drop((store, metrics));
        Self { claims, advances, last_write }
    }

    /// The status of the last write.
    pub fn last_write(&self) -> LastWriteStatus {
        self.last_write.clone()
    }

    /// Claims one event. `then` is called with it if it is new, before this returns. Fails with [`StoreError::Down`] if
    /// too many claims are queued.
    pub async fn claim(&self, new: Arc<NewEvent>, then: CommitCallback) -> Result<ClaimResult, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = BatchJob { input: new, then: Some(then), reply };
        self.claims.try_send(job).map_err(|_| StoreError::Down("too many claims are waiting".into()))?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Writes one transition.
    pub async fn advance(&self, change: Transition) -> Result<AdvanceResult, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = BatchJob { input: change, then: None, reply };
        self.advances.send(job).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> StoreError {
    StoreError::Down("the node is stopping".into())
}

async fn feed_claims(
    store: Arc<dyn Store>,
    jobs: BatchQueue<Arc<NewEvent>, ClaimResult>,
    meter: Arc<Metrics>,
    last_write: LastWriteStatus,
    lost: Arc<Semaphore>,
) {
    while let Some(batch) = gather(&jobs, body_bytes).await {
        claim_batch(&store, batch, None, (&meter, &last_write, &lost)).await;
    }
}

/// Claims a batch. `first`: the answers, if the store was asked once already, and when it was.
async fn claim_batch(
    store: &Arc<dyn Store>,
    batch: Vec<ClaimJob>,
    mut first: Option<(Instant, Result<Vec<ClaimResult>, StoreError>)>,
    (meter, last_write, lost): (&Metrics, &LastWriteStatus, &Arc<Semaphore>),
) {
    let (mut inputs, mut waiting): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|BatchJob { input, then, reply }| (input, (then, reply))).unzip();
    while !inputs.is_empty() {
        let (asked, first) = first.take().map_or_else(|| (Instant::now(), None), |(at, answers)| (at, Some(answers)));
        let size = inputs.len();
        let (answers, was_lost) = ask(first, || store.claim(inputs.clone())).await;
        meter.batch(size);
        meter.store_call(StoreOp::Claim, asked.elapsed(), answers.is_ok());
        // A batch of duplicates wrote nothing, so it says nothing about writes.
        match &answers {
            Ok(claims) if claims.iter().any(|claim| matches!(claim, ClaimResult::New { .. })) => {
                last_write.record(true);
            }
            Ok(_) => {}
            Err(_) => last_write.record(false),
        }
        if answers.is_err()
            && was_lost
            && let Ok(permit) = lost.clone().try_acquire_owned()
        {
            let ids = inputs.iter().map(|new| new.event.id);
            let thens = waiting.iter_mut().map(|(then, _)| then.take());
            let claims = ids.zip(thens).filter_map(|(id, then)| Some((id, then?))).collect();
            tokio::spawn(look_up(Arc::downgrade(store), claims, permit));
        }
        (inputs, waiting) = settle(inputs, waiting, answers);
    }
}

async fn feed_advances(
    store: Arc<dyn Store>,
    jobs: BatchQueue<Transition, AdvanceResult>,
    meter: Arc<Metrics>,
    last_write: LastWriteStatus,
) {
    while let Some(batch) = gather(&jobs, change_bytes).await {
        let (inputs, replies): (Vec<_>, Vec<_>) = batch.into_iter().map(|job| (job.input, job.reply)).unzip();
        let asked = Instant::now();
        let answers = store.advance(inputs).await;
        reply_to_advances(replies, asked, answers, (&meter, &last_write));
    }
}

fn reply_to_advances(
    replies: Vec<oneshot::Sender<Result<AdvanceResult, StoreError>>>,
    asked: Instant,
    answers: Result<Vec<AdvanceResult>, StoreError>,
    (meter, last_write): (&Metrics, &LastWriteStatus),
) {
    meter.store_call(StoreOp::Advance, asked.elapsed(), answers.is_ok());
    match answers {
        Ok(answers) => {
            for (reply, answer) in replies.into_iter().zip(answers) {
                reply.send(Ok(answer)).unwrap_or_default();
            }
        }
        Err(error) => {
            // A success says nothing about claims: a full Redis can still end events.
            last_write.record(false);
            for reply in replies {
                reply.send(Err(error.clone())).unwrap_or_default();
            }
        }
    }
}

/// Feeds a store with one writer: claims and transitions that are queued at the same time are one write. With a feeder
/// for each kind, one kind would always wait for the commit of the other.
async fn feed_together(
    store: Arc<dyn Store>,
    (mut claim_jobs, mut advance_jobs): (mpsc::Receiver<ClaimJob>, mpsc::Receiver<AdvanceJob>),
    meter: Arc<Metrics>,
    last_write: LastWriteStatus,
    lost: Arc<Semaphore>,
) {
    loop {
        let (mut claims, mut advances) = (Vec::new(), Vec::new());
        tokio::select! {
            Some(first) = claim_jobs.recv() => claims.push(first),
            Some(first) = advance_jobs.recv() => advances.push(first),
            else => return,
        }
        // Let other tasks queue their jobs first.
        tokio::task::yield_now().await;
        take_queued(&mut claim_jobs, &mut claims, body_bytes);
        take_queued(&mut advance_jobs, &mut advances, change_bytes);
        let inputs = claims.iter().map(|job| job.input.clone()).collect();
        let (changes, replies): (Vec<_>, Vec<_>) = advances.into_iter().map(|job| (job.input, job.reply)).unzip();
        let asked = Instant::now();
        let (claimed, advanced) = match (claims.is_empty(), changes.is_empty()) {
            (true, _) => (None, Some(store.advance(changes).await)),
            (false, true) => (Some(store.claim(inputs).await), None),
            (false, false) => {
                let (claimed, advanced) = store.write_together(inputs, changes).await;
                (Some(claimed), Some(advanced))
            }
        };
        if let Some(advanced) = advanced {
            reply_to_advances(replies, asked, advanced, (&meter, &last_write));
        }
        if let Some(claimed) = claimed {
            claim_batch(&store, claims, Some((asked, claimed)), (&meter, &last_write, &lost)).await;
        }
    }
}

/// The bytes that a claim writes.
fn body_bytes(new: &Arc<NewEvent>) -> usize {
    new.payload.body.len()
}

/// The bytes that a transition writes.
fn change_bytes(change: &Transition) -> usize {
    let receipt = change.receipt.written().map_or(0, |receipt| receipt.body.len());
    let output = change.attempt.as_ref().map_or(0, |tried| tried.output.len());
    receipt + output + change.payload.as_ref().map_or(0, |payload| payload.body.len())
}

/// Waits for a job, then takes those that are queued, up to the limits. `None` if no more can come.
async fn gather<In, Out>(jobs: &BatchQueue<In, Out>, size: impl Fn(&In) -> usize) -> Option<Vec<BatchJob<In, Out>>> {
    let mut jobs = jobs.lock().await;
    let mut batch = vec![jobs.recv().await?];
    // Let other tasks queue their jobs first: what ends together is written together.
    tokio::task::yield_now().await;
    take_queued(&mut jobs, &mut batch, size);
    Some(batch)
}

/// Takes the jobs that are queued, until the batch is at its limits.
fn take_queued<In, Out>(
    jobs: &mut mpsc::Receiver<BatchJob<In, Out>>,
    batch: &mut Vec<BatchJob<In, Out>>,
    size: impl Fn(&In) -> usize,
) {
    let mut bytes: usize = batch.iter().map(|job| size(&job.input)).sum();
    while batch.len() < limits::BATCH_CLAIMS_MAX && bytes < limits::BATCH_BYTES_MAX {
        let Ok(job) = jobs.try_recv() else { break };
        bytes += size(&job.input);
        batch.push(job);
    }
}

/// Calls the store, and again with the same ids while it does not confirm the write: claims are idempotent by id. Also
/// returns whether a response was lost. `first`: the answer to the first call, if it was made already.
async fn ask<'a, T>(
    mut first: Option<Result<T, StoreError>>,
    call: impl Fn() -> StoreFuture<'a, T>,
) -> (Result<T, StoreError>, bool) {
    let mut lost = false;
    for _ in 1..ASKS {
        let answer = match first.take() {
            Some(answer) => answer,
            None => call().await,
        };
        match answer {
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
