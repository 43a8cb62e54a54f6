//! One history: one node or three, one store, one clock, and random faults.

use crate::bug::Bug;
use crate::command::Command;
use crate::node::{Node, Task};
use crate::oracle::{Broken, Oracle, broken, name};
use crate::plan::{Per, Plan, seconds};
use crate::rng::Rng;
use crate::sender::Sender;
use crate::tally::Tally;
use hookonce::decide::claim::{ClaimResult, IdentityKey, MatchedBy, NewEvent, Payload};
use hookonce::decide::event::{DoneReason, Event, EventState, QueueState};
use hookonce::decide::id::EventId;
use hookonce::decide::source::{Keep, Retention, Route, SameChange, Source, WhenBusy};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::store::clock::StoreClock;
use hookonce::store::memory::MemoryStore;
use hookonce::store::{DueEvents, DueQuery, EventQuery, Inspect, RetentionPolicies, Store, StoreFuture};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) clock: StoreClock,
    pub(crate) store: MemoryStore,
    pub(crate) oracle: Oracle,
    pub(crate) sender: Sender,
    pub(crate) nodes: Vec<Node>,
    pub(crate) commands: Vec<Command>,
    pub(crate) late: Vec<(Timestamp, crate::store_tap::Write)>,
    pub(crate) bug: Option<Bug>,
    /// Whether faults may happen.
    pub(crate) rough: bool,
    pub(crate) trace: Option<Vec<String>>,
    /// Every key that was ever in a claim, by its delivery: they are looked up at the end.
    pub(crate) claimed: HashMap<usize, Vec<IdentityKey>>,
    /// One source for each combination of existing routes.
    sources: [Source; 4],
    pub(crate) there: [bool; 2],
    pub(crate) keeps: Arc<RetentionPolicies>,
    pub(crate) restarts: u32,
    pub(crate) ids: u32,
}

/// How a history ended.
pub(crate) struct End {
    pub(crate) tally: Tally,
    pub(crate) broken: Option<Broken>,
    pub(crate) trace: Vec<String>,
    pub(crate) plan: Plan,
}

const STEPS: u64 = 600;
/// A history that has not come to rest after this many steps never will.
const REST_MAX: u32 = 4_000;

pub(crate) fn ready<T, E>(mut answer: StoreFuture<'_, T, E>) -> Result<T, E> {
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a memory store responds at once"),
    }
}

/// Runs the history of one seed to its end.
pub(crate) fn run(seed: u64, bug: Option<Bug>, traced: bool) -> End {
    let mut rng = Rng::new(seed);
    let plan = Plan::draw(&mut rng);
    let mut world = World::new(plan, rng, bug, traced);
    let broken = world.live().err();
    if let Some(broken) = &broken {
        world.say(|| format!("{} is broken: {}", broken.law, broken.how));
    }
    let tally = Tally { seeds: 1, ..world.oracle.tally };
    End { tally, broken, trace: world.trace.unwrap_or_default(), plan: world.plan }
}

impl World {
    pub(crate) fn new(plan: Plan, mut rng: Rng, bug: Option<Bug>, traced: bool) -> Self {
        let clock = StoreClock::manual(Timestamp(1_000_000_000));
        let mut built = plan.clone();
        if bug == Some(Bug::BodyOutOfPer) && built.per.len() > 1 {
            built.per.retain(|per| *per != Per::Body);
        }
        let source = |there| {
            let mut source = built.source(there);
            if let (Some(Bug::DeliveryKeyWithoutBody), Some(id)) = (bug, &mut source.delivery) {
                id.signed = true;
            }
            source
        };
        let sources = [source([false, false]), source([true, false]), source([false, true]), source([true, true])];
        let name = sources[0].name.clone();
        let nodes = (0..if plan.alone { 1 } else { 3 }).map(|at| Node::new(at, 0, &mut rng)).collect();
        Self {
            oracle: Oracle::new(plan.clone()),
            sender: Sender::new(&plan),
            store: MemoryStore::new(clock.clone()),
            keeps: Arc::new(RetentionPolicies { sources: [(name, sources[0].once.kept())].into() }),
            plan,
            rng,
            clock,
            nodes,
            commands: Vec::new(),
            late: Vec::new(),
            bug,
            rough: true,
            trace: traced.then(Vec::new),
            claimed: HashMap::new(),
            sources,
            there: [true, true],
            restarts: 0,
            ids: 0,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        let at = self.clock.now();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>5} {}", at.0 / 1_000_000 - 1_000, line()));
        }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.sources[usize::from(self.there[0]) + 2 * usize::from(self.there[1])]
    }

    /// The route of an event, as configured now.
    pub(crate) fn route(&self, event: &Event) -> Option<Arc<Route>> {
        self.source().routes.iter().find(|route| route.name == event.route).cloned()
    }

    pub(crate) fn rows(&self) -> Vec<Event> {
        ready(self.store.list(EventQuery { limit: usize::MAX, ..EventQuery::default() })).expect("a memory store lists")
    }

    /// Everything that a node polls for: expired leases, events without a route, and what is due on each route.
    pub(crate) fn due(&self) -> DueEvents {
        let source = self.source();
        let known: Arc<[_]> = source.routes.iter().map(|route| (source.name.clone(), route.name.clone())).collect();
        let routes = known.iter().map(|(source, route)| DueQuery::Route(source.clone(), route.clone()));
        let mut all = DueEvents::default();
        for look in [DueQuery::Leases, DueQuery::Orphans(known.clone())].into_iter().chain(routes) {
            let due = ready(self.store.due(look, 8)).expect("a memory store responds");
            all.events.extend(due.events);
            all.next = all.next.into_iter().chain(due.next).min();
        }
        all
    }

    fn live(&mut self) -> Result<(), Broken> {
        for _ in 0..STEPS {
            self.oracle.tally.steps += 1;
            self.step()?;
        }
        self.come_to_rest()?;
        let there = self.there;
        self.oracle.at_rest(|event| there[usize::from(&*event.route == "odd")])?;
        self.look_up_keys()
    }

    /// The sender got no response, or a 503: it may retry.
    pub(crate) fn unanswered(&mut self, sent: usize) {
        if self.rng.chance(70) {
            let (now, late) = (self.now(), self.rng.range(1, 60));
            self.sender.send(sent, now, late);
        }
    }

    /// Lets time pass: commands act, end, and are killed; late writes are written.
    pub(crate) fn pass(&mut self, by: Duration) -> Result<(), Broken> {
        let end = self.now() + by;
        self.oracle.tally.seconds += by.as_secs();
        loop {
            let next = self.late.iter().map(|(at, _)| *at).min().unwrap_or(end).clamp(self.now(), end);
            self.run_commands(next);
            self.clock.advance(next.since(self.now()));
            while let Some(at) = self.late.iter().position(|(at, _)| *at <= next) {
                let (_, write) = self.late.remove(at);
                self.say(|| format!("late: {}", write.words()));
                self.execute(write).map(|_| ())?;
            }
            if next == end {
                return Ok(());
            }
        }
    }

    pub(crate) fn awake(&mut self) -> Option<usize> {
        let at = self.rng.index(self.nodes.len());
        (self.nodes[at].sleeps_until <= self.now()).then_some(at)
    }

    /// One of the requests on their way arrives, not necessarily the first.
    pub(crate) fn arrive(&mut self) -> Result<(), Broken> {
        let now = self.now();
        let there = self.sender.on_their_way.iter().enumerate().filter(|(_, one)| one.not_before <= now);
        let there: Vec<_> = there.map(|(at, _)| at).collect();
        let (Some(node), false) = (self.awake(), there.is_empty()) else { return Ok(()) };
        let at = self.rng.pick(&there);
        let sent = self.sender.on_their_way.swap_remove(at).sent;
        self.receive(node, sent)
    }

    /// No more faults: what was begun is finished.
    fn come_to_rest(&mut self) -> Result<(), Broken> {
        self.rough = false;
        self.there = if self.plan.route_stays_gone { [true, false] } else { [true, true] };
        let now = self.now();
        self.nodes.iter_mut().for_each(|node| node.sleeps_until = now);
        self.sender.on_their_way.iter_mut().for_each(|one| one.not_before = now);
        self.say(|| "no more faults".into());
        self.finish()
    }

    /// All nodes work until nothing is left.
    pub(crate) fn finish(&mut self) -> Result<(), Broken> {
        for _ in 0..REST_MAX {
            self.arrive()?;
            for node in 0..self.nodes.len() {
                for task in (0..self.nodes[node].tasks.len()).rev() {
                    self.work(node, task)?;
                }
                self.look(node)?;
            }
            if self.at_rest() {
                return Ok(());
            }
            let now = self.now();
            let busy = self.nodes.iter().any(|node| node.tasks.iter().any(Task::is_busy));
            let next = self.due().next.map_or(seconds(5), |next| next.since(now));
            self.pass(if busy { Duration::ZERO } else { next.clamp(seconds(1), seconds(5)) })?;
        }
        Ok(())
    }

    fn at_rest(&self) -> bool {
        let stuck = |event: &Event| event.queue_state == QueueState::Suspended && self.route(event).is_none();
        self.sender.on_their_way.is_empty()
            && self.late.is_empty()
            && self.nodes.iter().all(|node| node.tasks.is_empty())
            && self.rows().iter().all(|event| event.state.ended().is_some() || stuck(event))
    }

    /// Looks up every key that was ever claimed, by claiming it once more, alone.
    fn look_up_keys(&mut self) -> Result<(), Broken> {
        let mut claimed: Vec<_> = std::mem::take(&mut self.claimed).into_iter().collect();
        claimed.sort_by_key(|(sent, _)| *sent);
        let Some(event) = self.rows().pop() else { return Ok(()) };
        let mut taken = Vec::new();
        for (sent, keys) in claimed {
            for key in keys {
                let per = match key.matched_by {
                    MatchedBy::Delivery => Per::Delivery,
                    MatchedBy::Body => Per::Body,
                    _ => Per::Named,
                };
                let should = self.oracle.holder(per, &self.sender.sent[sent]).map(|id| self.oracle.stands_for(id));
                let holder = self.holder(&event, &key, &mut taken);
                if holder != should {
                    let (key, [holder, should]) = (key.matched_by.word(), [holder, should].map(|id| id.map(name)));
                    return broken("I2", format!("a {key} key is held by {holder:?}, not by {should:?}"));
                }
            }
        }
        Ok(())
    }

    fn holder(&mut self, like: &Event, key: &IdentityKey, taken: &mut Vec<EventId>) -> Option<EventId> {
        let state = EventState::Done { how: DoneReason::Recorded, at: self.now() };
        let mut event = Event { change: None, group: None, state, ..like.clone() };
        self.ids += 1;
        event.id.0[..8].copy_from_slice(&[0xff; 8]);
        event.id.0[12..].copy_from_slice(&self.ids.to_be_bytes());
        let id = event.id;
        let kept = Retention { keys: Keep::Forever, body: Duration::ZERO };
        let keys = vec![IdentityKey::new(MatchedBy::Body, key.key)];
        let new = NewEvent {
            event,
            keys,
            former_keys: Vec::new(),
            imported: Vec::new(),
            payload: Payload::default(),
            kept,
            when_busy: WhenBusy::Queue,
            same_change: SameChange::Duplicate,
        };
        let mut claims = ready(self.store.claim(vec![new.into()])).expect("a memory store claims");
        match claims.pop() {
            Some(ClaimResult::Duplicate { event, .. }) if !taken.contains(&event.id) => Some(event.id),
            _ => {
                taken.push(id);
                None
            }
        }
    }
}
