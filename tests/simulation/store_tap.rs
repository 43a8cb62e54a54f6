//! A layer between the nodes and the store: lost responses, late writes, and an oracle that sees every write.

use crate::bug::Bug;
use crate::oracle::{Broken, Kind, broken, name};
use crate::plan::seconds;
use crate::world::{World, ready};
use hookonce::decide::claim::{ClaimResult, DuplicateTarget, MatchedBy, NewEvent};
use hookonce::decide::event::Event;
use hookonce::decide::id::EventId;
use hookonce::decide::source::{Keep, WhenBusy};
use hookonce::decide::transition::{ReceiptUpdate, TransientHeadersUpdate, Transition};
use hookonce::store::{
    AdvanceResult, DuplicateLookup, KnownDuplicate, RetentionPolicies, StartDueRequest, Store, StoreBackend,
    StoreError, StoredValue,
};
use std::sync::Arc;

/// A write on its way to the store.
#[derive(Clone)]
pub(crate) enum Write {
    /// An event, and the delivery it came with.
    Claim(Box<NewEvent>, usize),
    Advance(Box<Transition>, Kind),
    Forget,
}

/// The response of the store.
pub(crate) enum Wrote {
    Claim(ClaimResult),
    Advance(AdvanceResult),
    Forgot,
}

impl Write {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Claim(new, sent) => format!("claim {} of delivery {sent}", name(new.event.id)),
            Self::Advance(change, kind) => format!("{kind:?} {} r{}", name(change.event.id), change.event.revision.0),
            Self::Forget => "sweep".into(),
        }
    }
}

impl World {
    /// Sends a write. The outer error is a broken law, the inner one is what a node gets.
    pub(crate) fn write(&mut self, write: Write) -> Result<Result<Wrote, StoreError>, Broken> {
        let bad = self.rough && self.rng.chance(self.plan.faults);
        let fault = if bad { Some(self.rng.below(4)) } else { None };
        if let Some(fault) = fault {
            self.oracle.tally.lost_answers += 1;
            let how = ["down", "lost before", "lost after", "late"][usize::try_from(fault).expect("small")];
            self.say(|| format!("{how}: {}", write.words()));
        }
        match fault {
            None => self.execute(write).map(Ok),
            Some(0) => Ok(Err(StoreError::Down("".into()))),
            Some(fault) => {
                if fault == 2 {
                    self.execute(write)?;
                } else if fault == 3 {
                    self.oracle.tally.late_writes += 1;
                    let at = self.now() + seconds(self.rng.range(1, 40));
                    self.late.push((at, write));
                }
                Ok(Err(StoreError::Unsure("".into())))
            }
        }
    }

    /// Executes the write.
    pub(crate) fn execute(&mut self, write: Write) -> Result<Wrote, Broken> {
        let words = write.words();
        let now = self.now();
        let (answer, kind) = match write {
            Write::Claim(new, sent) => {
                self.claimed.entry(sent).or_insert_with(|| new.keys.clone());
                let sent = self.sender.sent[sent].clone();
                let expect = self.oracle.predict(new.event.id, &sent, now);
                let claim = self.claim(*new);
                self.say(|| format!("{words}: {}", claim_words(&claim)));
                let rows = self.rows();
                self.oracle.vanished(&rows, now)?;
                self.oracle.claimed(&sent, &expect, &claim, now)?;
                (Wrote::Claim(claim), Kind::Claim)
            }
            Write::Advance(change, kind) => {
                let id = change.event.id;
                let advance = self.advance(*change);
                self.say(|| format!("{words}: {}", advance_words(&advance)));
                if let AdvanceResult::Written { event, .. } = &advance {
                    self.oracle.written(id, kind, event, now);
                }
                (Wrote::Advance(advance), kind)
            }
            Write::Forget => {
                self.forget();
                (Wrote::Forgot, Kind::Forget)
            }
        };
        let rows = self.rows();
        self.oracle.vanished(&rows, now)?;
        self.oracle.moved(&rows, kind, now)?;
        Ok(answer)
    }

    /// Starts what is due in one write; returns what was started.
    pub(crate) fn start_due(&mut self, starts: StartDueRequest) -> Result<Vec<Event>, Broken> {
        let now = self.now();
        let events = ready(self.store.start_due(starts)).expect("a memory store starts events").events;
        for event in &events {
            self.say(|| format!("start together {} r{}", name(event.id), event.revision.0));
            self.oracle.written(event.id, Kind::Start, event, now);
        }
        let rows = self.rows();
        self.oracle.vanished(&rows, now)?;
        self.oracle.moved(&rows, Kind::Start, now)?;
        Ok(events)
    }

    fn claim(&mut self, mut new: NewEvent) -> ClaimResult {
        let stands = self.get(new.event.id);
        if let (Some(Bug::RepeatedClaimWritesAnew), Some(stands)) = (self.bug, &stands) {
            let event = Event { revision: stands.revision.next(), turn: stands.turn, ..new.event };
            let mut change = event_as_it_is(event);
            change.now = change.event.received_at;
            return match self.advance(change) {
                AdvanceResult::Written { event, now } => ClaimResult::New { event, now },
                AdvanceResult::Lost => panic!("there is no other writer"),
            };
        }
        if self.bug == Some(Bug::NoAlias) {
            for key in &mut new.keys {
                key.matched_by = MatchedBy::Fields(key.matched_by.word().into());
            }
        }
        let recalled =
            ready(self.store.find_duplicate(&new, DuplicateLookup::Standing)).expect("a memory store responds");
        let mut claims = ready(self.store.claim(vec![new.into()])).expect("a memory store claims");
        let claim = claims.pop().expect("one result per claim");
        if let Some(KnownDuplicate { event, same, target: stands, now, .. }) = recalled {
            assert_eq!(
                claim,
                ClaimResult::Duplicate { event, same, target: stands, now },
                "the lookup and the claim agree"
            );
        }
        match claim {
            ClaimResult::Duplicate { event, same, target: stands, now } => {
                ClaimResult::Duplicate { event, same: MatchedBy::parse(same.word()), target: stands, now }
            }
            claim => claim,
        }
    }

    fn advance(&mut self, mut change: Transition) -> AdvanceResult {
        match self.bug {
            Some(Bug::NoSwap) => {
                if let Some(stands) = self.get(change.event.id) {
                    change.event.revision = stands.revision.next();
                    change.if_superseded.iter_mut().for_each(|event| event.revision = stands.revision.next());
                }
            }
            Some(Bug::NoRegisterCheck) => change.if_superseded = None,
            Some(Bug::KeptFromLastMessage) => {
                let now = change.now;
                if let (Some(again), Some(_)) = (&mut change.event.published_again, change.event.state.ended()) {
                    again.first_ended_at = now;
                }
            }
            Some(Bug::SupersededKeepsSlot) => {
                if let Some(event) = &mut change.if_superseded {
                    event.group = None;
                    event.digest = event.immutable_digest();
                }
            }
            _ => {}
        }
        let mut advances = ready(self.store.advance(vec![change])).expect("a memory store advances");
        advances.pop().expect("one result per transition")
    }

    fn forget(&mut self) {
        let mut keeps = self.keeps.clone();
        if self.bug == Some(Bug::SweepByNodeClock) {
            let mut wrong = RetentionPolicies::clone(&keeps);
            for kept in wrong.sources.values_mut() {
                if let Keep::For(keep) = &mut kept.keys {
                    *keep = keep.saturating_sub(seconds(60));
                }
            }
            keeps = Arc::new(wrong);
        }
        ready(self.store.forget(keeps, 8)).expect("a memory store sweeps");
    }

    pub(crate) fn get(&self, id: EventId) -> Option<Event> {
        ready(self.store.get(id)).expect("a memory store responds")
    }

    /// Subject and value of the body that an event would run with.
    pub(crate) fn stored_body(&self, event: &Event) -> Result<(u8, u8), Broken> {
        let StoredValue::Whole(payload) = ready(self.store.payload(event.id)).expect("a memory store responds") else {
            return broken("I12", format!("{} has no body, or not its own", name(event.id)));
        };
        if event.immutable_digest() != event.digest {
            return broken("I12", format!("{} does not match its digest", name(event.id)));
        }
        let sent = self.sender.sent.iter().find(|sent| sent.body == payload.body);
        let sent = sent.expect("every body was sent");
        Ok((sent.subject, sent.value))
    }
}

fn event_as_it_is(event: Event) -> Transition {
    let now = event.received_at;
    let place = hookonce::decide::transition::QueuePositionUpdate::Unchanged;
    Transition {
        event,
        now,
        if_superseded: None,
        place,
        attempt: None,
        receipt: ReceiptUpdate::Unchanged,
        payload: None,
        passed: TransientHeadersUpdate::Drop,
        when_busy: WhenBusy::Queue,
        budget: None,
        refund: None,
        if_deployed: None,
        if_unmoved: None,
        on_unhealthy: hookonce::decide::source::OnUnhealthy::Hold,
        notify: std::sync::Arc::default(),
    }
}

fn claim_words(claim: &ClaimResult) -> String {
    match claim {
        ClaimResult::New { event, .. } => format!("new, r{} {:?}", event.revision.0, event.state.word()),
        ClaimResult::Duplicate { event, same, target: stands, .. } => {
            let stand_in = if *stands == DuplicateTarget::ViaSuccessor { " instead" } else { "" };
            format!("duplicate of {} ({}){stand_in}, through {}", name(event.id), event.state.word(), same.word())
        }
        ClaimResult::Imported { same } => format!("imported, through {}", same.word()),
        ClaimResult::Stale { of } => format!("stale by {}", name(*of)),
        ClaimResult::Undecided => "again".into(),
    }
}

fn advance_words(advance: &AdvanceResult) -> String {
    match advance {
        AdvanceResult::Written { event, .. } => format!("r{} {:?}", event.revision.0, event.state),
        AdvanceResult::Lost => "lost".into(),
    }
}
