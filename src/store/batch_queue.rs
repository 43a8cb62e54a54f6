//! The queue in front of a store's writes, and the rule for when a batch starts.
//!
//! ```text
//! job ─▶ queue ─▶ none in progress, or more wait than the last batch took ─▶ a worker takes all of it
//!                 otherwise the next batch forms
//! ```
//!
//! A batch costs about the same however many jobs it has, so several small ones at once cost more than they gain, except
//! where the store does little for a batch ([`BatchStart`]). No job waits for a timer: where nothing is in progress, it is
//! taken at once.

use crate::decide::limits;
use crate::decide::time::Duration;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A batch that takes longer no longer holds up the next one: it may wait for another node, or for a server that hangs.
const SLOW: Duration = Duration::from_millis(100);

/// When a batch starts beside others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchStart {
    /// When more jobs wait than the last batch took.
    WhenMoreWait,
    /// As soon as a worker is free.
    AtOnce,
}

/// A queued job.
pub(super) trait QueuedJob {
    /// The size of the bodies that it writes.
    fn bytes(&self) -> usize;
}

/// The queued claims and transitions, shared by those who queue them and by the workers.
pub(super) struct BatchQueue<C, A> {
    state: Mutex<BatchQueueState<C, A>>,
    changed: Notify,
}

/// The state of the batch that starts next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextBatchState {
    /// It may not start yet.
    Forming,
    /// It waits for a worker.
    Ready,
    /// A worker is about to take its jobs.
    Taken,
}

struct BatchQueueState<C, A> {
    start: BatchStart,
    claims: VecDeque<C>,
    advances: VecDeque<A>,
    /// Batches in progress, without slow ones.
    running: usize,
    /// A batch that is about to take what waits.
    next: NextBatchState,
    /// How many jobs the last batch took.
    last: usize,
    closed: bool,
}

impl<C, A> BatchQueueState<C, A> {
    fn waiting(&self) -> usize {
        self.claims.len() + self.advances.len()
    }

    /// May a batch start now?
    fn may_start(&self) -> bool {
        let waiting = self.waiting();
        let is_enough = self.running == 0 || self.start == BatchStart::AtOnce || waiting > self.last;
        self.next == NextBatchState::Forming && waiting > 0 && is_enough
    }
}

impl<C: QueuedJob, A: QueuedJob> BatchQueue<C, A> {
    /// An empty queue.
    pub(super) fn new(start: BatchStart) -> Self {
        let (claims, advances, next) = (VecDeque::new(), VecDeque::new(), NextBatchState::Forming);
        let state = BatchQueueState { start, claims, advances, running: 0, next, last: 0, closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, BatchQueueState<C, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a claim, unless too many are queued.
    pub(super) fn add_claim(&self, job: C) -> Result<(), C> {
        let mut state = self.state();
        if state.claims.len() >= limits::CLAIMS_WAITING_MAX {
            return Err(job);
        }
        state.claims.push_back(job);
        self.wake(state);
        Ok(())
    }

    /// Queues a transition. Its caller waits for the answer, so there are never more than attempts in progress.
    pub(super) fn add_advance(&self, job: A) {
        let mut state = self.state();
        state.advances.push_back(job);
        self.wake(state);
    }

    /// Wakes a worker if a batch may start.
    fn wake(&self, mut state: MutexGuard<'_, BatchQueueState<C, A>>) {
        if state.may_start() {
            state.next = NextBatchState::Ready;
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Ends the workers once the queue is empty.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_waiters();
    }

    /// The next batch, up to the limits; waits until one may start. `None` if no more can come.
    pub(super) async fn next(&self) -> Option<QueuedBatch<'_, C, A>> {
        self.begin().await?;
        // Let other tasks queue their jobs first: what ends together is written together.
        tokio::task::yield_now().await;
        let mut state = self.state();
        let (claims, advances) = (take(&mut state.claims), take(&mut state.advances));
        state.last = claims.len() + advances.len();
        state.next = NextBatchState::Forming;
        state.running += 1;
        self.wake(state);
        Some(QueuedBatch { claims, advances, turn: BatchTurn { queue: self, is_slow: false } })
    }

    /// Waits until a batch is to be started; `None` if no more can come.
    async fn begin(&self) -> Option<()> {
        loop {
            // It is listened to before the look, so that nothing is missed in between.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if state.next == NextBatchState::Ready || state.may_start() {
                    state.next = NextBatchState::Taken;
                    return Some(());
                }
                if state.closed {
                    return None; // what is left is taken by the workers that are busy
                }
            }
            changed.await;
        }
    }
}

/// Takes jobs up to the limits of a batch.
fn take<T: QueuedJob>(jobs: &mut VecDeque<T>) -> Vec<T> {
    let (mut many, mut bytes) = (0, 0);
    for job in jobs.iter().take(limits::BATCH_CLAIMS_MAX) {
        if bytes >= limits::BATCH_BYTES_MAX {
            break;
        }
        many += 1;
        bytes += job.bytes();
    }
    jobs.drain(..many).collect()
}

/// The jobs of one batch.
pub(super) struct QueuedBatch<'q, C: QueuedJob, A: QueuedJob> {
    pub(super) claims: Vec<C>,
    pub(super) advances: Vec<A>,
    pub(super) turn: BatchTurn<'q, C, A>,
}

/// A batch in progress; over when it is dropped.
pub(super) struct BatchTurn<'q, C: QueuedJob, A: QueuedJob> {
    queue: &'q BatchQueue<C, A>,
    is_slow: bool,
}

impl<C: QueuedJob, A: QueuedJob> BatchTurn<'_, C, A> {
    /// Waits for the batch to be written. While it is slow, others may start.
    pub(super) async fn write(mut self, writing: impl Future<Output = ()>) {
        let mut writing = std::pin::pin!(writing);
        if tokio::time::timeout(SLOW, &mut writing).await.is_err() {
            self.let_others_start();
            writing.await;
        }
    }
}

impl<C: QueuedJob, A: QueuedJob> BatchTurn<'_, C, A> {
    fn let_others_start(&mut self) {
        self.is_slow = true;
        let mut state = self.queue.state();
        state.running -= 1;
        self.queue.wake(state);
    }
}

impl<C: QueuedJob, A: QueuedJob> Drop for BatchTurn<'_, C, A> {
    fn drop(&mut self) {
        // The worker itself looks for the next batch.
        self.queue.state().running -= usize::from(!self.is_slow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    struct SizedJob(usize);

    impl QueuedJob for SizedJob {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    type TestQueue = Arc<BatchQueue<SizedJob, SizedJob>>;

    /// Workers of a queue that report the size of each batch and end it when they are told to.
    struct QueueWorkers {
        queue: TestQueue,
        begun: tokio::sync::mpsc::UnboundedReceiver<((usize, usize), oneshot::Sender<()>)>,
        tasks: Vec<JoinHandle<()>>,
    }

    impl QueueWorkers {
        fn start(many: usize) -> Self {
            Self::start_by(BatchStart::WhenMoreWait, many)
        }

        fn start_by(start: BatchStart, many: usize) -> Self {
            let queue = TestQueue::new(BatchQueue::new(start));
            let (tell, begun) = tokio::sync::mpsc::unbounded_channel();
            let work = |queue: TestQueue, tell: tokio::sync::mpsc::UnboundedSender<_>| async move {
                while let Some(QueuedBatch { claims, advances, turn }) = queue.next().await {
                    let (end, ended) = oneshot::channel();
                    tell.send(((claims.len(), advances.len()), end)).unwrap();
                    turn.write(async { ended.await.unwrap() }).await;
                }
            };
            let tasks = (0..many).map(|_| tokio::spawn(work(queue.clone(), tell.clone()))).collect();
            Self { queue, begun, tasks }
        }

        fn claim(&self, many: usize) {
            for _ in 0..many {
                assert!(self.queue.add_claim(SizedJob(0)).is_ok());
            }
        }

        /// The batch that has started, if one has.
        async fn next(&mut self) -> Option<((usize, usize), oneshot::Sender<()>)> {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            self.begun.try_recv().ok()
        }

        async fn started(&mut self, expected: (usize, usize)) -> oneshot::Sender<()> {
            let (many, end) = self.next().await.expect("a batch has started");
            assert_eq!(many, expected);
            end
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_job_is_taken_without_a_wait() {
        let mut workers = QueueWorkers::start(4);
        for _ in 0..3 {
            workers.claim(1);
            workers.started((1, 0)).await.send(()).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_batch_starts_only_when_more_wait_than_the_last_one_took() {
        let mut workers = QueueWorkers::start(4);
        workers.claim(3);
        let first = workers.started((3, 0)).await;
        workers.claim(3);
        assert!(workers.next().await.is_none(), "as many wait as the last batch took");
        workers.claim(1);
        let second = workers.started((4, 0)).await;
        workers.claim(4);
        assert!(workers.next().await.is_none());
        first.send(()).unwrap();
        assert!(workers.next().await.is_none(), "another is still in progress");
        second.send(()).unwrap();
        workers.started((4, 0)).await.send(()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn where_a_batch_costs_little_each_free_worker_starts_one() {
        let mut workers = QueueWorkers::start_by(BatchStart::AtOnce, 2);
        workers.claim(3);
        let first = workers.started((3, 0)).await;
        workers.claim(1);
        let _second = workers.started((1, 0)).await;
        workers.claim(1);
        assert!(workers.next().await.is_none(), "both workers are busy");
        first.send(()).unwrap();
        workers.started((1, 0)).await.send(()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn claims_and_transitions_that_wait_together_are_one_batch() {
        let mut workers = QueueWorkers::start(4);
        workers.claim(1);
        let first = workers.started((1, 0)).await;
        workers.claim(1);
        first.send(()).unwrap();
        workers.queue.add_advance(SizedJob(0));
        workers.started((1, 1)).await.send(()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_batch_holds_up_no_other_and_there_are_never_more_than_workers() {
        let mut workers = QueueWorkers::start(2);
        workers.claim(1);
        let _slow = workers.started((1, 0)).await;
        workers.claim(1);
        assert!(workers.next().await.is_none());
        tokio::time::advance(SLOW * 2).await;
        let second = workers.started((1, 0)).await;
        tokio::time::advance(SLOW * 2).await;
        workers.claim(9);
        assert!(workers.next().await.is_none(), "both workers are busy");
        second.send(()).unwrap();
        workers.started((9, 0)).await.send(()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_limited_in_number_and_bytes_and_the_rest_starts_beside_it() {
        let mut workers = QueueWorkers::start(4);
        workers.claim(limits::BATCH_CLAIMS_MAX * 2 + 1);
        let _first = workers.started((limits::BATCH_CLAIMS_MAX, 0)).await;
        let second = workers.started((limits::BATCH_CLAIMS_MAX, 0)).await;
        assert!(workers.next().await.is_none());
        second.send(()).unwrap();
        drop(workers);
        let mut workers = QueueWorkers::start(1);
        for _ in 0..3 {
            workers.queue.add_advance(SizedJob(limits::BATCH_BYTES_MAX - 1));
        }
        workers.started((0, 2)).await.send(()).unwrap();
        workers.started((0, 1)).await.send(()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_queued_is_written_before_the_workers_end() {
        let mut workers = QueueWorkers::start(3);
        workers.claim(2);
        let first = workers.started((2, 0)).await;
        workers.claim(2);
        workers.queue.close();
        first.send(()).unwrap();
        workers.started((2, 0)).await.send(()).unwrap();
        for task in std::mem::take(&mut workers.tasks) {
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn too_many_claims_are_refused_and_transitions_are_not() {
        let queue = TestQueue::new(BatchQueue::new(BatchStart::WhenMoreWait));
        for _ in 0..limits::CLAIMS_WAITING_MAX {
            assert!(queue.add_claim(SizedJob(0)).is_ok());
            queue.add_advance(SizedJob(0));
        }
        assert!(queue.add_claim(SizedJob(0)).is_err());
        queue.add_advance(SizedJob(0));
    }
}
