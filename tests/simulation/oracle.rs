//! The laws that must hold, checked from what was sent and written, without looking at keys, registers or slots.
//!
//! The laws, by their names in the report: I1 what was acknowledged is stored and ends · I2 every key belongs to an
//! existing event, and a rejected claim leaves none · I3 never two attempts of one event, nor two commands of one
//! group, at once · I4 under `hold` at most one effect per life, and an event in doubt is never re-armed · I5 at rest
//! the newest change is deployed · I7 no delivery is suppressed by an event that it does not repeat · I8 a burst of
//! copies causes no retry loop, and Redeliver works · I9 no event starves · I10 every duplicate is answered with an
//! event that exists · I11 only ended events are removed, and not early · I12 an event never runs another change's body
//! · I13 a delivery of an existing event is never new · I14 a group's events start in their turn · I15 a superseded
//! event does not wait for another attempt · P1 under `retry` a doubt is followed by another attempt · P2 our own
//! timeout counts against `attempts`, and the last one ends in doubt · A1 a sender that waits for the end never gets
//! 2xx for a dead event · A2 an event whose sender got 202 is tried as often as a node would · A3 a sender's own repeat
//! of an event in doubt is the same life, under the same idempotency key · A4 a published event is published again only
//! for its own delivery, at most once in `rearm_after`, and only while it is its subject's newest change; it is not
//! kept for longer, and it stays done · D1 once it is written that a command has succeeded, no command of the same life
//! begins. (I6, a rollback acts again, is in `directed.rs`.)

use crate::plan::{Changes, Per, Plan};
use crate::sender::Sent;
use crate::tally::Tally;
use hookonce::decide::claim::{ClaimResult, DuplicateTarget, RepeatEffect};
use hookonce::decide::event::{DeathCause, DoneReason, Event, EventState};
use hookonce::decide::id::{EventId, Revision};
use hookonce::decide::source::{InDoubtPolicy, Keep, RedeliveryPolicy};
use hookonce::decide::time::Timestamp;
use std::collections::{BTreeMap, HashMap};

/// A law that was broken, and how.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) law: &'static str,
    pub(crate) how: String,
}

pub(crate) fn broken<T>(law: &'static str, how: impl Into<String>) -> Result<T, Broken> {
    Err(Broken { law, how: how.into() })
}

/// An identity that two deliveries can share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Ident {
    Id(u32),
    IdAndBytes(u32, u32),
    Bytes(u32),
    Named(u8, u8),
}

/// An event as far as it can be seen from outside.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact that the laws need separately")]
pub(crate) struct Known {
    pub(crate) event: Event,
    pub(crate) subject: u8,
    pub(crate) value: u8,
    pub(super) order: Option<i64>,
    pub(super) turn: u64,
    pub(super) ended_at: Option<Timestamp>,
    /// When it first ended, if it was published again since.
    pub(super) first_ended_at: Option<Timestamp>,
    /// When it last ended, and when it was last published again after that.
    pub(super) quiet_at: Option<Timestamp>,
    pub(super) again_at: Option<Timestamp>,
    /// Whether it has acted in this life.
    pub(super) acted: bool,
    /// When it ceased to be its subject's newest change.
    pub(super) replaced_at: Option<Timestamp>,
    /// When another event of its subject became the last good one instead of it.
    pub(super) outdated_at: Option<Timestamp>,
    /// Attempts begun in this life.
    pub(super) starts: u32,
    /// Attempts of this life that failed, were rejected, or were ended by our own timeout.
    pub(super) spent: u32,
    /// Whether it is recorded that a node retries it, because its sender gets a 202.
    pub(super) accepted: bool,
    /// Whether a sender got a 202.
    pub(super) told_202: bool,
    pub(super) passed_over: bool,
    /// Whether a command of this life was begun and has not reported that it did nothing.
    pub(super) may_have_acted: bool,
}

pub(super) struct Wanted {
    pub(super) value: u8,
    pub(super) order: Option<i64>,
    pub(super) by_person: bool,
    pub(super) event: EventId,
}

/// The expected result of a claim.
#[derive(Debug)]
pub(crate) enum Expect {
    Again,
    New,
    Duplicate { of: EventId, instead: bool },
    Stale,
}

/// The intention of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Claim,
    Start,
    Renew,
    Deploy,
    HandBack,
    SettleHarmless,
    SettleTimedOut,
    Settle,
    Expire { route_gone: bool },
    Orphan,
    Rearm,
    Resume,
    Accept,
    PublishAgain,
    Replay,
    Cancel,
    SetAside,
    Rejoin,
    Forget,
}

pub(crate) struct Oracle {
    pub(super) plan: Plan,
    keys: HashMap<Ident, EventId>,
    pub(crate) events: BTreeMap<EventId, Known>,
    pub(super) wanted: BTreeMap<u8, Wanted>,
    pub(super) deployed: BTreeMap<u8, u8>,
    /// The last event of each subject that has acted.
    good: BTreeMap<u8, EventId>,
    pub(super) turns: u64,
    /// The event that was its subject's newest change until the last write.
    pub(super) just_replaced: Option<EventId>,
    /// The event that had the id of the delivery last claimed, before that claim.
    had_id: Option<EventId>,
    pub(crate) tally: Tally,
}

impl Oracle {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            keys: HashMap::new(),
            events: BTreeMap::new(),
            wanted: BTreeMap::new(),
            deployed: BTreeMap::new(),
            good: BTreeMap::new(),
            turns: 0,
            just_replaced: None,
            had_id: None,
            tally: Tally::default(),
        }
    }

    fn ident(&self, per: Per, sent: &Sent) -> Ident {
        match per {
            Per::Delivery if self.plan.signed => Ident::Id(sent.id),
            Per::Delivery => Ident::IdAndBytes(sent.id, sent.bytes),
            Per::Body => Ident::Bytes(sent.bytes),
            Per::Named => Ident::Named(sent.subject, sent.value),
        }
    }

    /// The event that should hold this identity of a delivery, if any.
    pub(crate) fn holder(&self, per: Per, sent: &Sent) -> Option<EventId> {
        self.keys.get(&self.ident(per, sent)).copied()
    }

    /// The result that a claim of this delivery must have now.
    pub(crate) fn predict(&mut self, id: EventId, sent: &Sent, now: Timestamp) -> Expect {
        let by_id = self.plan.per.contains(&Per::Delivery);
        self.had_id = self.holder(Per::Delivery, sent).filter(|_| by_id);
        if self.events.contains_key(&id) {
            return Expect::Again;
        }
        let mut dead = None;
        for per in &self.plan.per {
            let Some(of) = self.holder(*per, sent) else { continue };
            let known = &self.events[&of];
            match known.event.state {
                _ if self.may_be_forgotten(known, now) => {}
                EventState::Dead { .. } => dead = dead.or(Some(of)),
                _ => {
                    let stands = self.stands_for(of);
                    return Expect::Duplicate { of: stands, instead: stands != of };
                }
            }
        }
        if let Some(of) = dead {
            return Expect::Duplicate { of, instead: false };
        }
        match self.wanted.get(&sent.subject) {
            Some(wanted) if wanted.value == sent.value => Expect::Duplicate { of: wanted.event, instead: false },
            Some(wanted) if wanted.is_newer_than(sent.order) => Expect::Stale,
            _ => Expect::New,
        }
    }

    /// The event itself, or, if it was superseded, its subject's newest.
    pub(crate) fn stands_for(&self, id: EventId) -> EventId {
        let known = &self.events[&id];
        match known.event.state {
            EventState::Done { how: DoneReason::Superseded { .. }, .. } => self.wanted[&known.subject].event,
            _ => id,
        }
    }

    /// Whether an event may be removed: it has ended, has been neither its subject's newest nor its last good one for
    /// `keep`, and its order cannot come back as an equal one.
    fn may_be_forgotten(&self, known: &Known, now: Timestamp) -> bool {
        let (Some(ended), Keep::For(keep)) = (known.ended_at, self.plan.keep) else { return false };
        let from = [known.replaced_at, known.outdated_at].into_iter().flatten().fold(ended, Timestamp::max);
        let wanted = self.wanted.get(&known.subject);
        let newest = wanted.is_some_and(|wanted| {
            wanted.event == known.event.id || (known.order.is_some() && wanted.order == known.order)
        });
        let good = self.good.get(&known.subject) == Some(&known.event.id);
        from + keep <= now && !newest && !good
    }

    /// An event has acted: it is its subject's last good one.
    pub(super) fn is_good(&mut self, id: EventId, now: Timestamp) {
        let subject = self.events[&id].subject;
        if self.plan.changes != Changes::No
            && let Some(was) = self.good.insert(subject, id).filter(|was| *was != id)
            && let Some(known) = self.events.get_mut(&was)
        {
            known.outdated_at = Some(now);
        }
    }

    /// Checks that missing events were allowed to be removed, and removes them here, too.
    pub(crate) fn vanished(&mut self, rows: &[Event], now: Timestamp) -> Result<(), Broken> {
        let gone: Vec<_> = self.events.keys().filter(|id| !rows.iter().any(|row| row.id == **id)).copied().collect();
        for id in gone {
            let known = &self.events[&id];
            if known.event.state.ended().is_none() {
                return broken("I11", format!("{} was removed while {}", name(id), known.event.state.word()));
            }
            if !self.may_be_forgotten(known, now) {
                return broken("I11", format!("{} was removed too early", name(id)));
            }
            self.events.remove(&id);
            self.keys.retain(|_, of| *of != id);
            self.tally.forgotten += 1;
        }
        Ok(())
    }

    /// Checks the result of a claim and records what it wrote.
    pub(crate) fn claimed(
        &mut self,
        sent: &Sent,
        expect: &Expect,
        claim: &ClaimResult,
        now: Timestamp,
    ) -> Result<(), Broken> {
        match (expect, claim) {
            (Expect::Again, ClaimResult::New { .. }) => Ok(()),
            (Expect::New, ClaimResult::New { event, .. }) => {
                self.is_new(sent, event, now);
                Ok(())
            }
            (Expect::Duplicate { of, instead }, ClaimResult::Duplicate { event, target: stands, .. }) => {
                self.tally.duplicates += 1;
                if !self.events.contains_key(&event.id) {
                    return broken("I10", format!("a duplicate of {}, which does not exist", name(event.id)));
                }
                if (event.id, *stands == DuplicateTarget::ViaSuccessor) != (*of, *instead) {
                    return broken("I10", format!("a duplicate of {}, not of {}", name(event.id), name(*of)));
                }
                self.is_repeat(sent, *of);
                Ok(())
            }
            (Expect::Stale, ClaimResult::Stale { of }) => {
                self.tally.stale += 1;
                if self.events.contains_key(of) {
                    Ok(())
                } else {
                    broken("I10", "stale by an event that does not exist")
                }
            }
            (Expect::Duplicate { of, .. }, ClaimResult::New { event, .. }) => {
                broken("I13", format!("{} is new, and {} has its delivery", name(event.id), name(*of)))
            }
            (Expect::New, ClaimResult::Duplicate { event, same, .. }) => {
                broken("I7", format!("suppressed by {} through {same:?}", name(event.id)))
            }
            (Expect::Duplicate { of, .. }, ClaimResult::Stale { .. }) => {
                broken("I13", format!("stale, and {} has its delivery", name(*of)))
            }
            (expect, claim) => broken("I5", format!("expected {expect:?}, got {claim:?}")),
        }
    }

    fn is_new(&mut self, sent: &Sent, event: &Event, now: Timestamp) {
        self.tally.events += 1;
        self.turns += 1;
        // As it was before the claim, so that its present state counts as a change.
        let state = EventState::Waiting { due: None };
        let event = Event { revision: Revision(0), attempt: 0, state, ..event.clone() };
        let id = event.id;
        let known = Known {
            event,
            subject: sent.subject,
            value: sent.value,
            order: sent.order,
            turn: self.turns,
            ended_at: None,
            first_ended_at: None,
            quiet_at: None,
            again_at: None,
            acted: false,
            replaced_at: None,
            outdated_at: None,
            starts: 0,
            spent: 0,
            accepted: self.plan.waits.is_none(),
            told_202: false,
            passed_over: false,
            may_have_acted: false,
        };
        self.events.insert(id, known);
        for per in self.plan.per.clone() {
            self.keys.insert(self.ident(per, sent), id);
        }
        if self.plan.changes != Changes::No {
            let wanted = Wanted { value: sent.value, order: sent.order, by_person: false, event: id };
            self.wants(sent.subject, wanted, now);
        }
    }

    pub(super) fn wants(&mut self, subject: u8, wanted: Wanted, now: Timestamp) {
        let id = wanted.event;
        if let Some(was) = self.wanted.insert(subject, wanted)
            && was.event != id
            && let Some(known) = self.events.get_mut(&was.event)
        {
            known.replaced_at = Some(now);
            self.just_replaced = Some(was.event);
        }
    }

    /// A delivery matched by its change leaves its id and bytes with the event.
    fn is_repeat(&mut self, sent: &Sent, of: EventId) {
        let through_key = self.plan.per.iter().any(|per| self.holder(*per, sent).is_some());
        if through_key || self.plan.changes == Changes::No {
            return;
        }
        for per in [Per::Delivery, Per::Body] {
            if self.plan.per.contains(&per) {
                self.keys.entry(self.ident(per, sent)).or_insert(of);
            }
        }
        let wanted = self.wanted.get_mut(&sent.subject).expect("it was matched by its subject");
        if sent.order > wanted.order {
            (wanted.order, wanted.by_person) = (sent.order, false);
            self.events.get_mut(&of).expect("it exists").order = sent.order;
        }
    }

    /// Notes that a sender got a 202 for this event, and does not retry.
    pub(crate) fn told_202(&mut self, id: EventId) {
        if let Some(known) = self.events.get_mut(&id) {
            known.told_202 = true;
        }
    }

    /// Checks what a repeat does to the event it repeats.
    pub(crate) fn repeats(
        &self,
        of: &Event,
        same_bytes: bool,
        instead: bool,
        does: RepeatEffect,
        now: Timestamp,
    ) -> Result<(), Broken> {
        if let RedeliveryPolicy::Again { published_after, .. } = self.plan.redelivery
            && self.events.get(&of.id).is_some_and(|known| known.acted)
        {
            let known = &self.events[&of.id];
            let ended = match of.state {
                EventState::Done { .. } => true,
                EventState::Dead { cause, .. } => !matches!(cause, DeathCause::Cancelled | DeathCause::Damaged),
                _ => false,
            };
            let newest = self.wanted.get(&known.subject).is_none_or(|wanted| wanted.event == of.id);
            let due = known.quiet_at.is_some_and(|quiet| quiet + published_after <= now);
            let own = self.had_id == Some(of.id) && same_bytes && !instead;
            return match (does, ended && newest && due && own) {
                (RepeatEffect::PublishesAgain, true) | (RepeatEffect::ReportOnly, false) => Ok(()),
                (RepeatEffect::ReportOnly, true) => broken("A4", "Redeliver published nothing"),
                (does, _) => broken("A4", format!("a repeat {does:?} of {}", name(of.id))),
            };
        }
        let EventState::Dead { cause, at } = of.state else {
            return if does == RepeatEffect::ReportOnly { Ok(()) } else { broken("I8", "re-armed what is not dead") };
        };
        let same_id = self.had_id == Some(of.id);
        let after = match self.plan.redelivery {
            RedeliveryPolicy::Ignore => None,
            RedeliveryPolicy::Retry { .. } | RedeliveryPolicy::Again { .. } if instead => None,
            RedeliveryPolicy::Retry { same_after, other_after }
            | RedeliveryPolicy::Again { same_after, other_after, .. } => {
                Some(if same_id { same_after } else { other_after })
            }
        };
        let may = after.is_some_and(|after| at + after <= now);
        let sender_retries = self.plan.waits.is_some() && self.plan.in_doubt == InDoubtPolicy::Retry;
        match (cause, may, does) {
            (DeathCause::InDoubt, true, RepeatEffect::Resumes) if sender_retries => Ok(()),
            (DeathCause::InDoubt, true, RepeatEffect::ReportOnly) if sender_retries => {
                broken("I8", "the sender's repeat did nothing")
            }
            (DeathCause::Failed | DeathCause::Rejected, true, RepeatEffect::ReportOnly) => {
                broken("I8", "Redeliver did nothing")
            }
            (_, _, RepeatEffect::PublishesAgain) => {
                broken("A4", "published again an event that was not published before")
            }
            (DeathCause::Failed | DeathCause::Rejected, true, RepeatEffect::Rearms)
            | (_, _, RepeatEffect::ReportOnly) => Ok(()),
            (DeathCause::Failed | DeathCause::Rejected, false, _) if instead => {
                broken("I12", "a repeat re-arms the successor")
            }
            (DeathCause::Failed | DeathCause::Rejected, false, _) => broken("I8", "re-armed too soon"),
            (cause, ..) => broken("I4", format!("re-armed from {}", cause.word())),
        }
    }
}

impl Wanted {
    fn is_newer_than(&self, order: Option<i64>) -> bool {
        match (self.order, order) {
            (Some(seen), Some(arriving)) => arriving < seen || (self.by_person && arriving == seen),
            _ => false,
        }
    }
}

pub(crate) fn name(id: EventId) -> String {
    format!("e{}", id.short().trim_start_matches('0'))
}
