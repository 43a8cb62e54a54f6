//! One attempt on one node: start, act, renew, settle, and how lost responses are handled.

use crate::bug::Bug;
use crate::command::Comes;
use crate::oracle::{Broken, Kind};
use crate::plan::{LEASE, seconds};
use crate::world::World;
use hookonce::decide::event::{Event, EventState, EventStep, SucceededBlocks};
use hookonce::decide::id::NodeId as Name;
use hookonce::decide::source::Route;
use hookonce::decide::time::Timestamp;
use hookonce::store::{AdvanceResult, StoreError};
use std::sync::Arc;

pub(crate) struct Attempt {
    pub(crate) event: Event,
    /// The route as it was when the attempt began: what runs ends by the policies that it began with.
    route: Arc<Route>,
    /// When the write that started or renewed it was first sent: the lease counts from then.
    sent: Timestamp,
    pub(crate) phase: Phase,
    /// The store did not report whether it wrote.
    unsure: bool,
    /// At some point it did not report: a late write of this attempt may still come.
    was_unsure: bool,
}

pub(crate) enum Phase {
    Start,
    Begin,
    Act {
        command: usize,
        renew_at: Timestamp,
    },
    /// Its command has succeeded, and that is to be written.
    Deploy,
    /// The health of what it deployed is checked.
    Check {
        until: Timestamp,
        renew_at: Timestamp,
    },
    HandBack,
    Settle(Comes),
}

impl Attempt {
    pub(crate) fn new(event: Event, route: Arc<Route>, sent: Timestamp, phase: Phase) -> Self {
        Self { event, route, sent, phase, unsure: false, was_unsure: false }
    }
}

impl World {
    pub(crate) fn attempt(&mut self, node: usize, mut attempt: Box<Attempt>) -> Result<Option<Box<Attempt>>, Broken> {
        let now = self.now();
        match attempt.phase {
            Phase::Start => self.start(node, attempt),
            // Before its first step nothing has happened: a node that stops, or is too late, hands it back.
            Phase::Begin if now >= attempt.sent + LEASE || (self.rough && self.rng.chance(3)) => {
                attempt.phase = Phase::HandBack;
                Ok(Some(attempt))
            }
            Phase::Begin if attempt.event.blocks.acted() && self.bug != Some(Bug::DeployedRunsAgain) => {
                attempt.phase = self.check_phase(attempt.sent);
                Ok(Some(attempt))
            }
            Phase::Begin => {
                let name = self.nodes[node].name.clone();
                let command = self.begin(name, &attempt.event, attempt.sent)?;
                attempt.phase = Phase::Act { command, renew_at: attempt.sent + LEASE / 3 };
                Ok(Some(attempt))
            }
            Phase::Act { command, renew_at } => self.act(node, attempt, command, renew_at),
            Phase::Deploy => self.deploy(node, attempt),
            Phase::Check { until, renew_at } => self.check(node, attempt, until, renew_at),
            Phase::HandBack => self.hand_back(node, attempt),
            Phase::Settle(comes) => self.settle(node, attempt, comes),
        }
    }

    fn start(&mut self, node: usize, mut attempt: Box<Attempt>) -> Result<Option<Box<Attempt>>, Broken> {
        let by = self.nodes[node].name.clone();
        let now = self.now();
        if attempt.unsure {
            return Ok(self.started_after_all(&by, attempt));
        }
        if attempt.sent == Timestamp::default() || self.bug == Some(Bug::LeaseFromAnswer) {
            attempt.sent = now;
        }
        let lasts = match self.bug {
            Some(Bug::NodeClockInLease) => {
                let skew = u64::try_from(self.nodes[node].skew.max(-25) + 30).expect("positive");
                seconds(skew)
            }
            _ => LEASE,
        };
        let step = EventStep::Start { lasts, by: by.clone(), action: self.plan.action };
        match self.advance_by(&attempt.event, step, &attempt.route, Kind::Start)? {
            Some(Ok(AdvanceResult::Written { event, .. })) if event.is_running_on(&by) => {
                attempt.event = *event;
                attempt.phase = Phase::Begin;
                Ok(Some(attempt))
            }
            Some(Err(StoreError::Unsure(_))) => {
                (attempt.unsure, attempt.was_unsure) = (true, true);
                Ok(Some(attempt))
            }
            // This may be the attempt's own start, which came late; another one would have another lease.
            Some(Ok(AdvanceResult::Lost)) if attempt.was_unsure => Ok(self.started_after_all(&by, attempt)),
            _ => Ok(None),
        }
    }

    /// After an unsure response: state, node and attempt show whether it was written, not the revision alone. The lease
    /// ends by the store's time if that is sooner: an earlier start of this node, given up and written late, looks just
    /// like this one.
    fn started_after_all(&mut self, by: &Name, mut attempt: Box<Attempt>) -> Option<Box<Attempt>> {
        let stands = self.get(attempt.event.id)?;
        let expected = (attempt.event.life, attempt.event.attempt + 1);
        if stands.is_running_on(by) && (stands.life, stands.attempt) == expected {
            attempt.sent = match stands.state.wake_at() {
                _ if self.bug == Some(Bug::LeaseFromAnswer) => self.now(),
                Some(until) => attempt.sent.min(until - LEASE),
                None => attempt.sent,
            };
            attempt.event = stands;
            (attempt.phase, attempt.unsure) = (Phase::Begin, false);
            return Some(attempt);
        }
        let again = attempt.unsure && stands.revision == attempt.event.revision && self.rng.chance(50);
        attempt.unsure = false;
        again.then_some(attempt)
    }

    fn act(
        &mut self,
        node: usize,
        mut attempt: Box<Attempt>,
        command: usize,
        renew_at: Timestamp,
    ) -> Result<Option<Box<Attempt>>, Broken> {
        let now = self.now();
        if let Some(comes) = self.commands[command].end {
            let checks = self.plan.checks && comes == Comes::Delivered;
            attempt.phase = if checks { Phase::Deploy } else { Phase::Settle(comes) };
            return Ok(Some(attempt));
        }
        if self.bug == Some(Bug::HalfRunHandedBack) && self.rough && self.rng.chance(10) {
            self.commands[command].kill();
            attempt.phase = Phase::HandBack;
            return Ok(Some(attempt));
        }
        if now < renew_at {
            return Ok(Some(attempt));
        }
        let step = EventStep::Renew { lasts: LEASE, blocks: SucceededBlocks::default() };
        match self.advance_by(&attempt.event, step, &attempt.route, Kind::Renew)? {
            Some(Ok(AdvanceResult::Written { event, .. })) => {
                (attempt.event, attempt.sent) = (*event, now);
                self.commands[command].deadline = now + LEASE;
                attempt.phase = Phase::Act { command, renew_at: now + LEASE / 3 };
                Ok(Some(attempt))
            }
            Some(Ok(AdvanceResult::Lost) | Err(StoreError::Unsure(_))) => {
                if self.is_still_ours(node, &mut attempt) {
                    return Ok(Some(attempt));
                }
                self.commands[command].kill();
                Ok(None)
            }
            _ => Ok(Some(attempt)),
        }
    }

    /// The beginning of a check that takes a while.
    fn check_phase(&mut self, sent: Timestamp) -> Phase {
        let until = self.now() + seconds(self.rng.range(1, 45));
        Phase::Check { until, renew_at: sent + LEASE / 3 }
    }

    /// Writes that the command has succeeded, until it is written or another node has written.
    fn deploy(&mut self, node: usize, mut attempt: Box<Attempt>) -> Result<Option<Box<Attempt>>, Broken> {
        let now = self.now();
        let step = EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: LEASE };
        match self.advance_by(&attempt.event, step, &attempt.route, Kind::Deploy)? {
            Some(Ok(AdvanceResult::Written { event, .. })) => {
                (attempt.event, attempt.sent) = (*event, now);
                attempt.phase = self.check_phase(now);
                Ok(Some(attempt))
            }
            None => Ok(None),
            _ => Ok(self.is_still_ours(node, &mut attempt).then_some(attempt)),
        }
    }

    /// Renews the lease while the health is checked; a node that stops hands the event back.
    fn check(
        &mut self,
        node: usize,
        mut attempt: Box<Attempt>,
        until: Timestamp,
        renew_at: Timestamp,
    ) -> Result<Option<Box<Attempt>>, Broken> {
        let now = self.now();
        if now >= until || now >= attempt.sent + LEASE || (self.rough && self.rng.chance(2)) {
            attempt.phase = if now >= until { Phase::Settle(Comes::Delivered) } else { Phase::HandBack };
            return Ok(Some(attempt));
        }
        if now < renew_at {
            return Ok(Some(attempt));
        }
        let step = EventStep::Renew { lasts: LEASE, blocks: attempt.event.blocks };
        match self.advance_by(&attempt.event, step, &attempt.route, Kind::Renew)? {
            Some(Ok(AdvanceResult::Written { event, .. })) => {
                (attempt.event, attempt.sent) = (*event, now);
                attempt.phase = Phase::Check { until, renew_at: now + LEASE / 3 };
                Ok(Some(attempt))
            }
            None => Ok(None),
            _ => Ok(self.is_still_ours(node, &mut attempt).then_some(attempt)),
        }
    }

    /// Whether the event is still this node's, in this attempt. If so, the attempt takes its current state.
    fn is_still_ours(&mut self, node: usize, attempt: &mut Attempt) -> bool {
        let Some(stands) = self.get(attempt.event.id) else { return false };
        let same = (stands.life, stands.attempt) == (attempt.event.life, attempt.event.attempt);
        let ours = same && stands.is_running_on(&self.nodes[node].name);
        if ours {
            attempt.event = stands;
        }
        ours
    }

    fn hand_back(&mut self, node: usize, mut attempt: Box<Attempt>) -> Result<Option<Box<Attempt>>, Broken> {
        match self.advance_by(&attempt.event, EventStep::HandBack, &attempt.route, Kind::HandBack)? {
            Some(Ok(AdvanceResult::Written { .. })) | None => Ok(None),
            _ => Ok(self.is_still_ours(node, &mut attempt).then_some(attempt)),
        }
    }

    /// Writes the outcome of an attempt, until it is written or another node has written.
    fn settle(&mut self, node: usize, mut attempt: Box<Attempt>, comes: Comes) -> Result<Option<Box<Attempt>>, Broken> {
        let jitter = self.jitter();
        let outcome = match (self.bug, comes) {
            (Some(Bug::TimeoutCountedAsDoubt), Comes::TimedOut) => Comes::Unknown.outcome(),
            _ => comes.outcome(),
        };
        let step = EventStep::Settle { outcome, blocks: attempt.event.blocks, jitter };
        let kind = match comes {
            Comes::Failed | Comes::Rejected => Kind::SettleHarmless,
            Comes::TimedOut => Kind::SettleTimedOut,
            Comes::Delivered | Comes::Unknown => Kind::Settle,
        };
        match self.advance_by(&attempt.event, step, &attempt.route, kind)? {
            Some(Ok(AdvanceResult::Written { event, .. })) => {
                if let (Some(Bug::SlotFreedOnRetry), EventState::Waiting { due: Some(due) }) = (self.bug, &event.state)
                {
                    let step = EventStep::Suspend { lasts: due.since(self.now()) };
                    self.advance_by(&event, step, &attempt.route, kind)?;
                }
                Ok(None)
            }
            None => Ok(None),
            _ => Ok(self.is_still_ours(node, &mut attempt).then_some(attempt)),
        }
    }
}
