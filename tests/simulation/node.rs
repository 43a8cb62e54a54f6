//! A node: what the gateway and the dispatcher do, one store call at a time, so that anything may happen in between.

use crate::attempt::{Attempt, Phase};
use crate::bug::Bug;
use crate::oracle::{Broken, Kind};
use crate::plan::{LEASE, Plan};
use crate::rng::Rng;
use crate::store_tap::{Write, Wrote};
use crate::world::{World, ready};
use hookonce::decide::claim::{NewEvent, RepeatEffect};
use hookonce::decide::event::{Event, EventState, EventStep, QueueState};
use hookonce::decide::id::{EventId, NodeId as Name};
use hookonce::decide::limits;
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::Route;
use hookonce::decide::time::Timestamp;
use hookonce::store::{AdvanceResult, StartDueRequest, Store as _, StoreError};
use std::sync::Arc;

pub(crate) struct Node {
    pub(crate) name: Name,
    pub(crate) sleeps_until: Timestamp,
    /// How far its clock is off, in seconds. It affects only ids.
    pub(crate) skew: i64,
    pub(crate) tasks: Vec<Task>,
}

/// A task of a node.
pub(crate) enum Task {
    Receive(Box<Receive>),
    Attempt(Box<Attempt>),
    /// One step for an event that this node does not run.
    Touch(Box<(Event, Kind)>),
    /// A request whose sender waits for the end.
    Wait(Wait),
}

#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) sent: usize,
    pub(crate) event: EventId,
    pub(crate) until: Timestamp,
}

pub(crate) struct Receive {
    pub(crate) sent: usize,
    pub(crate) new: NewEvent,
    pub(crate) route: Arc<Route>,
    /// When its claim was first sent.
    pub(crate) first: Option<Timestamp>,
    pub(crate) permit: bool,
    pub(crate) tries: u32,
    /// An ended event that is to be re-armed or published again, as it was then.
    pub(crate) goes_on: Option<(Event, RepeatEffect, Timestamp)>,
}

impl Node {
    pub(crate) fn new(at: usize, restart: u32, rng: &mut Rng) -> Self {
        let skew = i64::try_from(rng.below(121)).expect("small") - 60;
        let name = Name(format!("n{at}.{restart}").into());
        Self { name, sleeps_until: Timestamp::default(), skew, tasks: Vec::new() }
    }

    pub(crate) fn permits(&self) -> usize {
        let taken = self.tasks.iter().filter(|task| match task {
            Task::Receive(receive) => receive.permit,
            Task::Attempt(_) => true,
            Task::Touch(_) | Task::Wait(_) => false,
        });
        2_usize.saturating_sub(taken.count())
    }
}

impl Task {
    /// Whether this task moves this event on.
    fn is_at(&self, event: EventId) -> bool {
        match self {
            Self::Receive(receive) => receive.new.event.id == event,
            Self::Attempt(attempt) => attempt.event.id == event,
            Self::Touch(touch) => touch.0.id == event,
            Self::Wait(_) => false,
        }
    }

    /// Whether it has something to do before time passes.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Attempt(attempt) => !matches!(attempt.phase, Phase::Act { .. } | Phase::Check { .. }),
            Self::Wait(_) => false,
            Self::Receive(_) | Self::Touch(_) => true,
        }
    }
}

impl World {
    /// Takes one task of a node one step further.
    pub(crate) fn work(&mut self, node: usize, task: usize) -> Result<(), Broken> {
        let task = self.nodes[node].tasks.swap_remove(task);
        let next = match task {
            Task::Receive(receive) => self.claim_one(node, receive)?,
            Task::Attempt(attempt) => self.attempt(node, attempt)?.map(Task::Attempt),
            Task::Touch(touch) => {
                self.touch(&touch.0, touch.1)?;
                None
            }
            Task::Wait(wait) => self.wait(wait)?.map(Task::Wait),
        };
        self.nodes[node].tasks.extend(next);
        Ok(())
    }

    /// Starts what is due on one route, as far as there are permits, in one write.
    fn start_together(&mut self, node: usize) -> Result<(), Broken> {
        let (limit, by, now) = (self.nodes[node].permits(), self.nodes[node].name.clone(), self.now());
        let (source, routes) = (self.source().name.clone(), self.source().routes.clone());
        if limit == 0 || routes.is_empty() || self.bug.is_some() || !self.rng.chance(50) {
            return Ok(());
        }
        let route = routes[usize::try_from(self.rng.below(routes.len() as u64)).expect("small")].clone();
        let step = EventStep::Start { lasts: LEASE, by, action: self.plan.action };
        let starts = StartDueRequest { source, route: route.clone(), part: 0, step, limit };
        // A node does not start again what one of its own tasks may just have started.
        let due = ready(self.store.due(starts.look(), limit)).expect("a memory store responds").events;
        if due.iter().any(|event| self.nodes[node].tasks.iter().any(|task| task.is_at(event.id))) {
            return Ok(());
        }
        for event in self.start_due(starts)? {
            let attempt = Attempt::new(event, route.clone(), now, Phase::Begin);
            self.nodes[node].tasks.push(Task::Attempt(Box::new(attempt)));
        }
        Ok(())
    }

    /// Polls for what is due, and takes what it has a permit for.
    pub(crate) fn look(&mut self, node: usize) -> Result<(), Broken> {
        self.start_together(node)?;
        for event in self.due().events {
            if self.nodes[node].tasks.iter().any(|task| task.is_at(event.id)) {
                continue;
            }
            let route = self.route(&event);
            let kind = match (&event.state, event.queue_state, route) {
                (EventState::Running { .. }, _, route) => Kind::Expire { route_gone: route.is_none() },
                (_, QueueState::Suspended, Some(_)) => Kind::Rejoin,
                (_, _, None) => Kind::SetAside,
                (_, _, Some(route)) => {
                    if self.nodes[node].permits() > 0 {
                        let attempt = Box::new(Attempt::new(event, route, Timestamp::default(), Phase::Start));
                        self.nodes[node].tasks.push(Task::Attempt(attempt));
                    }
                    continue;
                }
            };
            self.nodes[node].tasks.push(Task::Touch(Box::new((event, kind))));
        }
        Ok(())
    }

    pub(crate) fn jitter(&mut self) -> Jitter {
        Jitter(u32::try_from(self.rng.next() >> 32).expect("half of it"))
    }

    fn touch(&mut self, event: &Event, kind: Kind) -> Result<(), Broken> {
        let jitter = self.jitter();
        let route = self.route(event);
        let step = match kind {
            Kind::Expire { .. } => EventStep::Expire { jitter },
            Kind::SetAside => EventStep::Suspend { lasts: limits::ROUTE_GONE_LOOK },
            Kind::Rejoin => EventStep::Unsuspend,
            Kind::Replay => EventStep::Replay,
            Kind::Cancel => EventStep::Cancel,
            _ => panic!("{kind:?} needs a lease"),
        };
        let kind = if let Kind::Expire { .. } = kind { Kind::Expire { route_gone: route.is_none() } } else { kind };
        if kind == Kind::SetAside {
            self.oracle.tally.set_aside += 1;
        }
        let gone = if self.bug == Some(Bug::DoubtRetriedWithoutRoute) { Route::default() } else { Plan::gone() };
        self.advance_by(event, step, route.as_deref().unwrap_or(&gone), kind).map(|_| ())
    }

    /// Writes one step of an event. `None`: its state does not allow it.
    pub(crate) fn advance_by(
        &mut self,
        event: &Event,
        step: EventStep,
        route: &Route,
        kind: Kind,
    ) -> Result<Option<Result<AdvanceResult, StoreError>>, Broken> {
        let now = self.now();
        let Ok(change) = event.transition(step, route, now) else { return Ok(None) };
        Ok(Some(match self.write(Write::Advance(Box::new(change), kind))? {
            Ok(Wrote::Advance(advance)) => Ok(advance),
            Ok(_) => panic!("a change is answered with an advance"),
            Err(error) => Err(error),
        }))
    }
}
