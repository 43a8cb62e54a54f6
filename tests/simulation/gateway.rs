//! How a node handles a request: judge, claim, respond; and re-arming by a repeat.

use crate::attempt::{Attempt, Phase};
use crate::bug::Bug;
use crate::node::{Receive, Task, Wait};
use crate::oracle::{Broken, Kind, broken, name};
use crate::plan::{LEASE, WITHIN};
use crate::store_tap::{Write, Wrote};
use crate::world::World;
use hookonce::decide::claim::{self, ClaimResult, DuplicateTarget, MatchedBy, NewEvent, RepeatEffect};
use hookonce::decide::delivery::{Delivery, borrow_headers};
use hookonce::decide::event::{DeathCause, Event, EventState, EventStep, RetryOwner};
use hookonce::decide::id::{EventId, Revision};
use hookonce::decide::judge::{Verdict, judge};
use hookonce::decide::response;
use hookonce::decide::source::{ApiStyle, InDoubtPolicy, RedeliveryPolicy};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::store::{AdvanceResult, StoreError};

impl World {
    /// A request arrives: it is judged at once, and claimed when the node gets to it.
    pub(crate) fn receive(&mut self, node: usize, sent: usize) -> Result<(), Broken> {
        self.oracle.tally.deliveries += 1;
        let now = self.now();
        let clock = now.0 / 1_000 + self.nodes[node].skew * 1_000;
        let random = self.rng.next();
        self.ids += 1;
        let id = self.new_id(clock, random);
        let one = &self.sender.sent[sent];
        let delivery = Delivery {
            path: "/in",
            query: "",
            headers: &borrow_headers(&one.headers),
            body: &one.body,
            at: now,
            wall: now,
        };
        let verdict = judge(self.source(), &delivery, &mut || id);
        let mut new = match verdict {
            Verdict::Events(mut events) => events.pop().expect("one receiver"),
            Verdict::Ignored(_) => return Ok(()),
            Verdict::Refused(why) => panic!("every delivery is genuine: {why:?}"),
        };
        let name = self.nodes[node].name.clone();
        let (subject, value) = (one.subject, one.value);
        self.say(|| format!("{name} receives delivery {sent}: s{subject} becomes v{value}"));
        if self.bug == Some(Bug::FollowerAnsweredBeforeLeader) {
            let leader = self.nodes[node].tasks.iter().find_map(|task| match task {
                Task::Receive(leader) if self.sender.sent[leader.sent].bytes == self.sender.sent[sent].bytes => {
                    Some(leader.new.event.id)
                }
                _ => None,
            });
            if let Some(leader) = leader {
                return self.answer("I10", leader);
            }
        }
        let permit = self.plan.in_doubt == InDoubtPolicy::Retry && self.nodes[node].permits() > 0;
        if permit {
            new.event.start_at_claim(LEASE, name, self.plan.action);
        }
        let route = self.route(&new.event).expect("`judge` found its route");
        let receive = Receive { sent, new, route, first: None, permit, tries: 0, goes_on: None };
        self.nodes[node].tasks.push(Task::Receive(Box::new(receive)));
        Ok(())
    }

    fn new_id(&self, clock: i64, random: u64) -> EventId {
        let mut id = [0; 16];
        id[..6].copy_from_slice(&clock.to_be_bytes()[2..]);
        id[6..12].copy_from_slice(&random.to_be_bytes()[2..]);
        id[12..].copy_from_slice(&self.ids.to_be_bytes());
        EventId(id)
    }

    /// The response names this event: it must be stored.
    fn answer(&mut self, law: &'static str, id: EventId) -> Result<(), Broken> {
        match self.get(id) {
            Some(_) => Ok(()),
            None => broken(law, format!("the response names {}, which is not stored", name(id))),
        }
    }

    pub(crate) fn claim_one(&mut self, node: usize, mut receive: Box<Receive>) -> Result<Option<Task>, Broken> {
        if let Some((event, does, now)) = receive.goes_on.take() {
            return self.go_on(node, receive, does, &event, now);
        }
        let first = *receive.first.get_or_insert(self.now());
        let write = Write::Claim(Box::new(receive.new.clone()), receive.sent);
        match self.write(write)? {
            Ok(Wrote::Claim(ClaimResult::New { event, .. })) => {
                self.answer("I1", event.id)?;
                self.let_wait(node, receive.sent, event.id);
                let ours = event.revision == Revision::FIRST && event.is_running_on(&self.nodes[node].name);
                let ours = ours || (self.bug == Some(Bug::ActsOnAnyClaim) && receive.permit);
                let sent = if self.bug == Some(Bug::LeaseFromAnswer) { self.now() } else { first };
                let route = receive.route;
                let attempt = || Box::new(Attempt::new(*event, route, sent, Phase::Begin));
                let ours = ours && receive.permit;
                Ok(ours.then(attempt).map(Task::Attempt))
            }
            Ok(Wrote::Claim(ClaimResult::Duplicate { event, same, target: stands, now })) => {
                receive.permit = false;
                let does = self.repeat(&event, &receive.new, &same, stands, now)?;
                if does == RepeatEffect::ReportOnly {
                    self.answer("I10", event.id)?;
                    // Nothing is left to do for a superseded event: its sender gets 200, whatever its successor's
                    // state.
                    if stands != DuplicateTarget::ViaSuccessor {
                        self.hears_again(receive.sent, &event, &same)?;
                    }
                    return Ok(None);
                }
                receive.goes_on = Some((*event, does, now));
                Ok(Some(Task::Receive(receive)))
            }
            Ok(Wrote::Claim(ClaimResult::Stale { of })) => self.answer("I10", of).map(|()| None),
            Ok(_) => panic!("a claim is answered with a claim"),
            Err(_) if self.bug == Some(Bug::AcknowledgedBeforeCommit) => {
                self.answer("I1", receive.new.event.id).map(|()| None)
            }
            Err(StoreError::Unsure(_)) => Ok(self.again(receive)),
            Err(_) => {
                self.unanswered(receive.sent);
                Ok(None)
            }
        }
    }

    /// Repeats the same claim, but not for ever.
    fn again(&mut self, mut receive: Box<Receive>) -> Option<Task> {
        receive.tries += 1;
        if receive.tries <= 3 {
            return Some(Task::Receive(receive));
        }
        self.unanswered(receive.sent);
        None
    }

    fn repeat(
        &mut self,
        of: &Event,
        new: &NewEvent,
        same: &MatchedBy,
        stands: DuplicateTarget,
        now: Timestamp,
    ) -> Result<RepeatEffect, Broken> {
        let zero = Duration::ZERO;
        let mut route = self.plan.route(&of.route);
        let mut event = of.clone();
        let mut place = stands;
        match (self.bug, &mut event.state) {
            (Some(Bug::RearmAfterIgnored), _) => {
                route.redelivery = match route.redelivery {
                    RedeliveryPolicy::Ignore => RedeliveryPolicy::Ignore,
                    RedeliveryPolicy::Retry { .. } => RedeliveryPolicy::Retry { same_after: zero, other_after: zero },
                    RedeliveryPolicy::Again { .. } => {
                        RedeliveryPolicy::Again { same_after: zero, other_after: zero, published_after: zero }
                    }
                }
            }
            (Some(Bug::RearmedByPredecessor), _) if stands == DuplicateTarget::ViaSuccessor => {
                place = DuplicateTarget::Direct;
            }
            (Some(Bug::PublishedAgainThoughReplaced), _) if stands == DuplicateTarget::DirectNotCurrent => {
                place = DuplicateTarget::Direct;
            }
            (Some(Bug::DoubtRearmed), EventState::Dead { cause, .. }) => *cause = DeathCause::Failed,
            _ => {}
        }
        let does = claim::repeat_effect(&event, new, same, place, &route, self.source().respond, now);
        let same_bytes = (&of.delivery_id, of.body_digest) == (&new.event.delivery_id, new.event.body_digest);
        self.oracle.repeats(of, same_bytes, stands == DuplicateTarget::ViaSuccessor, does, now)?;
        Ok(does)
    }

    fn go_on(
        &mut self,
        node: usize,
        receive: Box<Receive>,
        does: RepeatEffect,
        event: &Event,
        now: Timestamp,
    ) -> Result<Option<Task>, Broken> {
        let (change, kind) = match does {
            RepeatEffect::PublishesAgain => {
                (event.publish_again(&receive.new, &receive.route, now), Kind::PublishAgain)
            }
            RepeatEffect::Resumes if self.bug == Some(Bug::ResumedUnderAnotherKey) => {
                (event.transition(EventStep::Replay, &receive.route, now), Kind::Resume)
            }
            RepeatEffect::Resumes => (event.resume(&receive.new, &receive.route, now), Kind::Resume),
            RepeatEffect::Rearms | RepeatEffect::ReportOnly => {
                (event.rearm(&receive.new, &receive.route, now), Kind::Rearm)
            }
        };
        let Ok(mut change) = change else { return Ok(self.again(receive)) };
        if let (Some(Bug::OvertakenTakesDigest), Some(overtaken)) = (self.bug, &mut change.if_superseded) {
            overtaken.fields = change.event.fields.clone();
            (overtaken.body_digest, overtaken.digest) = (change.event.body_digest, change.event.digest);
        }
        match self.write(Write::Advance(Box::new(change), kind))? {
            Ok(Wrote::Advance(AdvanceResult::Written { event, .. })) if event.state.ended().is_none() => {
                self.answer("I1", event.id)?;
                self.let_wait(node, receive.sent, event.id);
                Ok(None)
            }
            Ok(_) | Err(StoreError::Unsure(_)) => Ok(self.again(receive)),
            Err(_) => {
                self.unanswered(receive.sent);
                Ok(None)
            }
        }
    }

    /// The sender of this delivery waits for the end, if it is one that does.
    fn let_wait(&mut self, node: usize, sent: usize, event: EventId) {
        if self.plan.waits.is_some() {
            let until = self.now() + WITHIN;
            self.nodes[node].tasks.push(Task::Wait(Wait { sent, event, until }));
        }
    }

    /// Responds with the end, or with 202 when the sender has waited long enough: then it does not retry.
    pub(crate) fn wait(&mut self, wait: Wait) -> Result<Option<Wait>, Broken> {
        let Some(event) = self.get(wait.event) else { return Ok(None) };
        if event.state.ended().is_some() {
            let status = response::ended(ApiStyle::Webhook, &event, None).status;
            self.hears(wait.sent, &event, status)?;
            return Ok(None);
        }
        if self.now() < wait.until {
            return Ok(Some(wait));
        }
        let unwritten = self.bug == Some(Bug::AcceptedAndNotWritten);
        if event.retrier == RetryOwner::Sender && !unwritten {
            let route = self.plan.route(&event.route);
            match self.advance_by(&event, EventStep::Accept, &route, Kind::Accept)? {
                Some(Ok(AdvanceResult::Written { .. })) => {}
                Some(Ok(AdvanceResult::Lost)) | None => return Ok(Some(wait)),
                Some(Err(_)) => {
                    self.unanswered(wait.sent);
                    return Ok(None);
                }
            }
        }
        self.say(|| format!("the sender of {} gets 202", name(event.id)));
        self.oracle.tally.accepted += 1;
        self.oracle.told_202(event.id);
        Ok(None)
    }

    /// A repeat gets the state of its event.
    fn hears_again(&mut self, sent: usize, event: &Event, same: &MatchedBy) -> Result<(), Broken> {
        if self.plan.waits.is_none() {
            return Ok(());
        }
        let (after, now) = (response::RepeatTiming::AfterEnd, self.now());
        let status = match self.bug {
            Some(Bug::DeadAnsweredWithSuccess) => response::duplicate(event, same).status,
            _ => response::repeat_response(self.source(), event, None, same, after, now).status,
        };
        self.hears(sent, event, status)
    }

    /// A sender that waits for the end takes 2xx for success, and retries otherwise.
    fn hears(&mut self, sent: usize, event: &Event, status: u16) -> Result<(), Broken> {
        let success = (200..300).contains(&status);
        if success && matches!(event.state, EventState::Dead { .. }) {
            return broken("A1", format!("the sender got {status} for {}, which is dead", name(event.id)));
        }
        if !success && self.rng.chance(30) {
            self.unanswered(sent);
        }
        Ok(())
    }
}
