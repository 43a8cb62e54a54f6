//! A store in memory whose responses the test chooses, and actions whose behaviour it chooses: for what no process can
//! be made to do at the right moment.

use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{ClaimResult, NewEvent, Payload};
use hookonce::decide::event::{Event, Outcome, Receipt};
use hookonce::decide::id::{EventId, Key};
use hookonce::decide::retry::RetryPolicy;
use hookonce::decide::source::{DeduplicationPolicy, Fanout, InDoubtPolicy, Keep, RedeliveryPolicy, Route, Source};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::transition::Transition;
use hookonce::decide::verify::VerificationScheme;
use hookonce::internals::action::{Action, ActionFuture, Attempt};
use hookonce::internals::engine::{Dispatcher, Lane};
use hookonce::store::batch::Batcher;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::{TestEventBuilder, making};
use hookonce::store::inspect::QuarantinedMessage;
use hookonce::store::memory::MemoryStore;
use hookonce::store::{
    AdvanceResult, DueEvents, DueQuery, DuplicateNote, ForgetCounts, RetentionPolicies, SourceRetention,
    StartDueRequest, StartDueResult, Store, StoreBackend, StoreError, StoreFuture, StoredValue, SweepError,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// How a call is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mood {
    Fine,
    Down,
    /// It is written, and the response is lost.
    Written,
    /// It is not written, and the response is lost.
    NotWritten,
    /// Claims are undecided and must be repeated.
    Again,
    /// It responds when the mood is `Fine` again.
    Hangs,
}

/// A store whose responses are chosen by kind of call.
#[derive(Clone)]
pub(crate) struct Flaky {
    pub(crate) memory: MemoryStore,
    pub(crate) claims: Arc<Moods>,
    pub(crate) advances: Arc<Moods>,
    pub(crate) reads: Arc<Moods>,
    /// Another node is always first: nothing is advanced.
    pub(crate) held_elsewhere: Arc<AtomicBool>,
    /// How often due events of a route were queried.
    pub(crate) looks: Arc<AtomicUsize>,
}

/// The moods of one kind of call: first those in line, then the default.
pub(crate) struct Moods {
    next: Mutex<(Vec<Mood>, Mood)>,
    pub(crate) asked: AtomicUsize,
    changed: Notify,
}

impl Moods {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            next: Mutex::new((Vec::new(), Mood::Fine)),
            asked: AtomicUsize::new(0),
            changed: Notify::new(),
        })
    }

    pub(crate) fn all(&self, mood: Mood) {
        *self.next.lock().unwrap() = (Vec::new(), mood);
        self.changed.notify_waiters();
    }

    pub(crate) fn once(&self, moods: &[Mood]) {
        self.next.lock().unwrap().0 = moods.iter().rev().copied().collect();
    }

    fn take(&self) -> Mood {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut next = self.next.lock().unwrap();
        next.0.pop().unwrap_or(next.1)
    }

    async fn answer<T>(&self, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mut mood = self.take();
        while mood == Mood::Hangs {
            let changed = self.changed.notified();
            mood = self.next.lock().unwrap().1;
            if mood == Mood::Hangs {
                changed.await;
            }
        }
        match mood {
            Mood::Fine | Mood::Again | Mood::Hangs => write.await,
            Mood::Down => Err(StoreError::Down("told to be".into())),
            Mood::NotWritten => Err(StoreError::Unsure("not written".into())),
            Mood::Written => {
                write.await?;
                Err(StoreError::Unsure("written".into()))
            }
        }
    }
}

impl Flaky {
    pub(crate) fn new() -> Self {
        Self::by(StoreClock::wall(Timestamp::default()))
    }

    /// A store with this clock.
    pub(crate) fn by(clock: StoreClock) -> Self {
        let memory = MemoryStore::new(clock);
        let (claims, advances, reads) = (Moods::new(), Moods::new(), Moods::new());
        Self { memory, claims, advances, reads, held_elsewhere: Arc::default(), looks: Arc::default() }
    }
}

impl StoreBackend for Flaky {
    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        Box::pin(self.reads.answer(self.memory.payload(id)))
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        Box::pin(self.reads.answer(self.memory.receipt(id)))
    }

    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        self.memory.note_duplicates(notes)
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        self.memory.retention()
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        self.memory.set_retention(rows)
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        self.memory.quarantine(message)
    }

    fn clock(&self) -> &StoreClock {
        self.memory.clock()
    }

    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        Box::pin(starts.by_steps(self))
    }
}

impl Store for Flaky {
    fn claim(&self, new: Vec<Arc<NewEvent>>) -> StoreFuture<'_, Vec<ClaimResult>> {
        Box::pin(async move {
            if matches!(self.claims.next.lock().unwrap().0.last(), Some(Mood::Again)) {
                self.claims.take();
                return Ok(new.iter().map(|_| ClaimResult::Undecided).collect());
            }
            self.claims.answer(async { self.memory.claim(new).await }).await
        })
    }

    fn advance(&self, changes: Vec<Transition>) -> StoreFuture<'_, Vec<AdvanceResult>> {
        if self.held_elsewhere.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Ok(changes.iter().map(|_| AdvanceResult::Lost).collect())));
        }
        Box::pin(self.advances.answer(async move { self.memory.advance(changes).await }))
    }

    fn get(&self, id: EventId) -> StoreFuture<'_, Option<Event>> {
        Box::pin(self.reads.answer(self.memory.get(id)))
    }

    fn due(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        if matches!(look, DueQuery::Route(..)) {
            self.looks.fetch_add(1, Ordering::SeqCst);
        }
        self.memory.due(look, limit)
    }

    fn state(&self, key: Key) -> StoreFuture<'_, Option<Arc<str>>> {
        self.memory.state(key)
    }

    fn swap_state(&self, key: Key, was: Option<Arc<str>>, is: Option<Arc<str>>) -> StoreFuture<'_, bool> {
        self.memory.swap_state(key, was, is)
    }

    fn forget(&self, keeps: Arc<RetentionPolicies>, limit: usize) -> StoreFuture<'_, ForgetCounts, SweepError> {
        self.memory.forget(keeps, limit)
    }
}

/// What an action does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Does {
    /// Takes this long and is delivered; ends as unknown if its lease ends before.
    Takes(Duration),
    /// The same, ignoring its lease.
    Ignores(Duration),
    Panics,
}

/// An action that counts how often it was started, and how many run at once.
pub(crate) struct Stub {
    does: Mutex<Does>,
    pub(crate) begun: AtomicUsize,
    now: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
}

impl Stub {
    pub(crate) fn new(does: Does) -> Arc<Self> {
        let none = || AtomicUsize::new(0);
        Arc::new(Self { does: Mutex::new(does), begun: none(), now: none(), most_at_once: none() })
    }

    pub(crate) fn does(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

/// Counts a running action until it is dropped.
struct AtIt<'a>(&'a Stub);

impl Drop for AtIt<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Action for Stub {
    fn act<'a>(&'a self, attempt: Attempt<'a>) -> ActionFuture<'a> {
        Box::pin(async move {
            self.begun.fetch_add(1, Ordering::SeqCst);
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            let _at_it = AtIt(self);
            let does = *self.does.lock().unwrap();
            match does {
                Does::Panics => panic!("an action's own bug"),
                Does::Ignores(length) => tokio::time::sleep(length).await,
                Does::Takes(length) => tokio::select! {
                    () = tokio::time::sleep(length) => {}
                    over = attempt.lease.ended() => return Outcome::Unknown { why: over.why().into() },
                },
            }
            Outcome::Delivered(None)
        })
    }

    fn kind(&self) -> ActionKind {
        ActionKind::Run
    }
}

/// One node: its dispatcher and its batcher.
pub(crate) struct Desk {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) batch: Batcher,
    pub(crate) store: Flaky,
}

/// The route of these tests.
pub(crate) fn route(lease: Duration, in_doubt: InDoubtPolicy, at_once: usize) -> Route {
    let short = Duration::from_millis(50);
    Route {
        retry: RetryPolicy { attempts: 5, first: short, longest: short },
        in_doubt,
        redelivery: RedeliveryPolicy::Ignore,
        lease,
        max_concurrency: at_once,
        fanout: Fanout::Actions(1),
        ..Route::default()
    }
}

fn source(route: Arc<Route>) -> Source {
    Source {
        path: hookonce::decide::ingest_path::IngestPath::open("/in"),
        once: DeduplicationPolicy {
            per: Vec::new(),
            keep: Keep::Forever,
            keep_body: Duration::from_hours(1),
            ..DeduplicationPolicy::default()
        },
        body_max: 1 << 20,
        routes: vec![route],
        ..Source::new("source", VerificationScheme::none())
    }
}

impl Desk {
    /// A node on this store, whose only route has this action.
    pub(crate) fn new(store: &Flaky, route: Route, action: Arc<Stub>) -> Self {
        let shared: Arc<dyn Store> = Arc::new(store.clone());
        let batch = Batcher::start(shared.clone(), Arc::default());
        let route = Arc::new(route);
        let lane = Lane::new(Arc::new(source(route.clone())), route, Some(action));
        let dispatcher = Dispatcher::new(shared, batch.clone(), vec![lane], Arc::default());
        Self { dispatcher, batch, store: store.clone() }
    }

    /// Claims an event for this node, as the gateway does: as running if there is a permit, unless under `hold`.
    pub(crate) async fn claim(&self, one: TestEventBuilder) -> Result<ClaimResult, StoreError> {
        let lane = self.dispatcher.lane("source", "1").unwrap();
        let mut new = one.made(self.store.now());
        let permit = match lane.route.in_doubt {
            InDoubtPolicy::Retry | InDoubtPolicy::Never => self.dispatcher.free_spot(&lane, 0),
            InDoubtPolicy::Hold => None,
        };
        if permit.is_some() {
            new.event.start_at_claim(lane.route.lease, self.dispatcher.node().clone(), ActionKind::Run);
        }
        let to_run = permit.map(|permit| (lane.clone(), permit, Some(new.payload.clone())));
        let (dispatcher, sent) = (self.dispatcher.clone(), hookonce::internals::action::boottime());
        self.batch.claim(Arc::new(new), Box::new(move |event| dispatcher.adopt(event, to_run, sent))).await
    }

    /// Claims a new event and returns its id.
    pub(crate) async fn new_event(&self, delivery: &str) -> EventId {
        let one = making().delivery(delivery).carrying(delivery.to_owned());
        let id = one.id();
        let claim = self.claim(one).await.unwrap();
        assert!(matches!(claim, ClaimResult::New { .. }), "{claim:?}");
        id
    }

    /// The event as it is now, whatever the store's mood.
    pub(crate) async fn stands(&self, id: EventId) -> Event {
        self.store.memory.get(id).await.unwrap().unwrap()
    }

    /// Waits until an event has ended; returns it.
    pub(crate) async fn ended(&self, id: EventId) -> Event {
        let start = std::time::Instant::now();
        loop {
            let event = self.stands(id).await;
            if event.state.ended().is_some() {
                return event;
            }
            assert!(start.elapsed() < crate::support::PATIENCE, "it is stuck: {event:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
