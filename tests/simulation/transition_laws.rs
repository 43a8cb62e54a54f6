//! The laws about changes: every event that a write changed, every command, and the end.

use crate::oracle::{Broken, Kind, Oracle, Wanted, broken, name};
use crate::plan::Changes;
use hookonce::decide::event::{DeathCause, DoneReason, Event, EventState, QueueState};
use hookonce::decide::id::EventId;
use hookonce::decide::source::{InDoubtPolicy, RedeliveryPolicy};
use hookonce::decide::time::Timestamp;

impl Oracle {
    /// Takes in a write other than a claim.
    pub(crate) fn written(&mut self, id: EventId, kind: Kind, event: &Event, now: Timestamp) {
        let waits = event.state.ended().is_none();
        if kind == Kind::SettleHarmless
            && let Some(known) = self.events.get_mut(&id)
        {
            known.may_have_acted = false;
        }
        if kind == Kind::Accept
            && let Some(known) = self.events.get_mut(&id)
        {
            known.accepted = true;
        }
        if waits && matches!(kind, Kind::Rearm | Kind::Resume | Kind::Replay) {
            self.turns += 1;
            let turn = self.turns;
            let known = self.events.get_mut(&id).expect("it was written");
            known.turn = turn;
        }
        if waits && kind == Kind::Replay && self.plan.changes != Changes::No {
            let known = &self.events[&id];
            let order = self.wanted[&known.subject].order.max(known.order);
            let wanted = Wanted { value: known.value, order, by_person: true, event: id };
            self.wants(known.subject, wanted, now);
        }
    }

    /// Checks every event that has changed.
    pub(crate) fn moved(&mut self, rows: &[Event], kind: Kind, now: Timestamp) -> Result<(), Broken> {
        let mut moves = Vec::new();
        for row in rows {
            let Some(known) = self.events.get_mut(&row.id) else {
                return broken("I2", format!("{} was never claimed", name(row.id)));
            };
            if known.event.revision == row.revision {
                known.event.change = row.change;
                continue;
            }
            moves.push((std::mem::replace(&mut known.event, row.clone()), row));
        }
        for (was, is) in &moves {
            self.moves(was, is, kind, now)?;
            if let (None, EventState::Done { how: DoneReason::Acted, .. }) = (was.state.ended(), &is.state) {
                self.is_good(is.id, now);
            }
            let again = match kind {
                Kind::SettleHarmless | Kind::SettleTimedOut | Kind::Settle | Kind::Expire { .. } => {
                    matches!(was.state, EventState::Running { .. })
                }
                Kind::Rearm | Kind::Resume | Kind::PublishAgain => was.state.ended().is_some(),
                Kind::Rejoin => was.queue_state == QueueState::Suspended,
                _ => false,
            };
            if again {
                self.is_not_kept_waiting(is.id)?;
            }
        }
        if let Some(replaced) = self.just_replaced.take() {
            self.is_not_kept_waiting(replaced)?;
        }
        let begun = |(was, is): &&(Event, &Event)| {
            matches!(is.state, EventState::Running { .. }) && (was.life, was.attempt) != (is.life, is.attempt)
        };
        moves.iter().filter(begun).try_for_each(|(_, is)| self.started(is.id))
    }

    /// An event that was superseded, and is not owed its first attempt, does not wait for another one: others wait for
    /// the slot.
    fn is_not_kept_waiting(&self, id: EventId) -> Result<(), Broken> {
        let Some(known) = self.events.get(&id) else { return Ok(()) };
        let overtaken = self.wanted.get(&known.subject).is_some_and(|wanted| wanted.event != id);
        let owed = known.event.attempt == 0 && !known.passed_over;
        match known.event.state {
            EventState::Waiting { .. } if overtaken && !owed => {
                broken("I15", format!("{} waits though superseded", name(id)))
            }
            _ => Ok(()),
        }
    }

    fn moves(&mut self, was: &Event, is: &Event, kind: Kind, now: Timestamp) -> Result<(), Broken> {
        let known = self.events.get_mut(&is.id).expect("it moved");
        known.passed_over |= kind == Kind::SetAside && is.queue_state == QueueState::Suspended;
        if is.life != was.life {
            (known.starts, known.spent, known.may_have_acted, known.passed_over) = (0, 0, false, false);
            (known.acted, known.first_ended_at) = (false, None);
            self.tally.replays += 1;
        }
        match (was.state.ended(), is.state.ended()) {
            (Some(_), None) => {
                let ended = std::mem::take(&mut known.ended_at);
                known.passed_over = false;
                match (kind, &was.state) {
                    (Kind::Replay, _) => {}
                    (Kind::PublishAgain, _) => {
                        known.first_ended_at = known.first_ended_at.or(ended);
                        known.again_at = Some(now);
                        (known.may_have_acted, known.spent) = (false, 0);
                        self.tally.published_again += 1;
                        let RedeliveryPolicy::Again { published_after, .. } = self.plan.redelivery else {
                            return broken("A4", "published again although the policy forbids it");
                        };
                        if known.quiet_at.is_none_or(|quiet| quiet + published_after > now) || !known.acted {
                            return broken("A4", format!("{} was published again too soon", name(is.id)));
                        }
                    }
                    (Kind::Rearm, EventState::Dead { cause: DeathCause::Failed | DeathCause::Rejected, .. }) => {
                        self.tally.rearms += 1;
                    }
                    (Kind::Resume, EventState::Dead { cause: DeathCause::InDoubt, .. }) => {
                        self.tally.resumed += 1;
                        if is.idempotency_key() != was.idempotency_key() {
                            return broken("A3", format!("{} is resumed under another key", name(is.id)));
                        }
                    }
                    (Kind::Rearm | Kind::Resume, _) => {
                        return broken("I4", format!("{} was re-armed from {:?}", name(is.id), was.state));
                    }
                    _ => return broken("I13", format!("{} had ended, and {kind:?} brought it back", name(is.id))),
                }
            }
            (None, Some(_)) => {
                known.acted |= matches!(is.state, EventState::Done { how: DoneReason::Acted, .. });
                known.quiet_at = Some(now);
                // If it was superseded while a message was published again, it is kept from the end of that.
                let replaced = known.replaced_at.is_some_and(|at| Some(at) >= known.again_at);
                known.ended_at = known.first_ended_at.filter(|_| !replaced).or(Some(now));
            }
            _ => {}
        }
        if let (EventState::Running { until, .. }, Kind::Expire { .. }, true) =
            (&was.state, kind, !matches!(is.state, EventState::Running { .. }))
            && *until > now
        {
            return broken("I3", format!("{} was taken from its node before its lease ended", name(is.id)));
        }
        if let (EventState::Dead { .. }, None) = (&is.state, was.state.ended()) {
            self.tally.died += 1;
        }
        if let (EventState::Running { .. }, Kind::SettleHarmless | Kind::SettleTimedOut) = (&was.state, kind) {
            known.spent += 1;
        }
        let (attempts, _) = self.plan.limits(known.accepted);
        if let EventState::Dead { cause: DeathCause::Failed, .. } = is.state {
            let (spent, owed) = (known.spent, self.plan.limits(true).0);
            if known.told_202 && kind == Kind::SettleHarmless && spent < owed {
                return broken("A2", format!("{} got 202 and was given up after {spent} attempts", name(is.id)));
            }
        }
        let overtaken = matches!(is.state, EventState::Done { .. });
        if kind == Kind::SettleTimedOut && matches!(was.state, EventState::Running { .. }) && !overtaken {
            let last = self.plan.in_doubt == InDoubtPolicy::Hold || known.spent >= attempts;
            if matches!(is.state, EventState::Dead { cause: DeathCause::InDoubt, .. }) != last {
                let (spent, state) = (known.spent, is.state.word());
                return broken("P2", format!("{} is {state} after {spent} attempts, the last timed out", name(is.id)));
            }
        }
        self.ended_rightly(is, kind)
    }

    fn ended_rightly(&mut self, is: &Event, kind: Kind) -> Result<(), Broken> {
        let known = &self.events[&is.id];
        let doubts_max = self.plan.limits(known.accepted).1;
        match &is.state {
            EventState::Dead { cause: DeathCause::InDoubt, .. } if kind == Kind::SettleTimedOut => {}
            EventState::Dead { cause: DeathCause::InDoubt, .. } if kind != (Kind::Expire { route_gone: true }) => {
                let starts = known.starts;
                if is.doubts < doubts_max || starts < doubts_max {
                    return broken("P1", format!("{} was given up after {starts} attempts", name(is.id)));
                }
            }
            EventState::Dead { cause: DeathCause::Damaged, .. } => {
                return broken("I12", "the stored body is not the one received");
            }
            EventState::Done { how: DoneReason::Superseded { by }, .. } => {
                self.tally.superseded += 1;
                if known.acted {
                    return broken("A4", format!("{} was published, and is superseded", name(is.id)));
                }
                let owed = known.starts == 0 && !known.passed_over;
                let current = self.wanted.get(&known.subject).map(|wanted| wanted.event);
                if owed {
                    return broken("I9", format!("{} never had its first attempt", name(is.id)));
                }
                if current != Some(*by) || *by == is.id {
                    return broken("I5", format!("{} was superseded by {}", name(is.id), name(*by)));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An attempt begins: no other of its group runs, and none that came earlier still waits.
    fn started(&mut self, id: EventId) -> Result<(), Broken> {
        self.tally.attempts += 1;
        let known = self.events.get_mut(&id).expect("it started");
        known.starts += 1;
        let (group, turn) = (known.event.group, known.turn);
        let Some(group) = group else { return Ok(()) };
        for other in self.events.values().filter(|other| other.event.group == Some(group) && other.event.id != id) {
            // An event that is published again keeps its turn, and waits for the slot's holder.
            let again = other.first_ended_at.is_some();
            let waits = other.event.state.ended().is_none() && !other.passed_over && !again;
            if matches!(other.event.state, EventState::Running { .. }) {
                return broken("I14", format!("{} started while {} ran", name(id), name(other.event.id)));
            }
            if waits && other.turn < turn {
                return broken("I14", format!("{} started before {}", name(id), name(other.event.id)));
            }
        }
        Ok(())
    }

    /// A command begins, with this body.
    pub(crate) fn begins(&mut self, event: &Event, body: (u8, u8), hold: bool) -> Result<(), Broken> {
        let Some(known) = self.events.get_mut(&event.id) else {
            return broken("I1", "a command runs for an event that does not exist");
        };
        if (known.subject, known.value) != body {
            return broken("I12", format!("{} runs the body of another change", name(event.id)));
        }
        if event.blocks.acted() {
            return broken("D1", format!("{} acts again though it has succeeded", name(event.id)));
        }
        if hold && known.may_have_acted {
            return broken("I4", format!("{} acts a second time under hold", name(event.id)));
        }
        known.may_have_acted = true;
        Ok(())
    }

    pub(crate) fn deploys(&mut self, subject: u8, value: u8) {
        self.tally.effects += 1;
        self.deployed.insert(subject, value);
    }

    /// At rest, everything has ended, and the newest change is deployed.
    pub(crate) fn at_rest(&self, route_is_there: impl Fn(&Event) -> bool) -> Result<(), Broken> {
        for (id, known) in &self.events {
            if known.event.state.ended().is_none() && route_is_there(&known.event) {
                return broken("I9", format!("{} is {:?} for ever", name(*id), known.event.state));
            }
        }
        for (subject, wanted) in &self.wanted {
            let Some(known) = self.events.get(&wanted.event) else {
                return broken("I11", format!("the newest change of s{subject} was removed"));
            };
            let acted = matches!(known.event.state, EventState::Done { how: DoneReason::Acted, .. });
            let deployed = self.deployed.get(subject);
            if acted && deployed != Some(&wanted.value) {
                return broken("I5", format!("s{subject} is {deployed:?}, and should be {}", wanted.value));
            }
            if let EventState::Done { how: DoneReason::Superseded { .. }, .. } = known.event.state {
                return broken("I5", format!("the newest change of s{subject} is superseded"));
            }
        }
        Ok(())
    }
}
