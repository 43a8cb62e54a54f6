//! Commands, and the guard that ends them with their lease or with their node.

use crate::bug::Bug;
use crate::oracle::{Broken, broken, name};
use crate::plan::{LEASE, seconds};
use crate::world::World;
use hookonce::decide::event::{Event, Outcome};
use hookonce::decide::id::{EventId, Key, NodeId};
use hookonce::decide::source::InDoubtPolicy;
use hookonce::decide::time::Timestamp;

pub(crate) struct Command {
    pub(crate) node: NodeId,
    event: EventId,
    group: Option<Key>,
    subject: u8,
    value: u8,
    /// When it has its effect; `None`: it has none, or has had it.
    acts_at: Option<Timestamp>,
    ends_at: Timestamp,
    /// When the guard kills it.
    pub(crate) deadline: Timestamp,
    comes_to: Comes,
    /// Its result, once it has ended.
    pub(crate) end: Option<Comes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comes {
    Delivered,
    Failed,
    Rejected,
    Unknown,
    TimedOut,
}

impl Comes {
    pub(crate) fn outcome(self) -> Outcome {
        let why = String::new();
        match self {
            Self::Delivered => Outcome::Delivered(None),
            Self::Failed => Outcome::Failed { why, retry_after: None, receipt: None },
            Self::Rejected => Outcome::Rejected { why, receipt: None },
            Self::Unknown => Outcome::Unknown { why },
            Self::TimedOut => Outcome::TimedOut { why, answered: None },
        }
    }
}

impl Command {
    pub(crate) fn kill(&mut self) {
        self.end.get_or_insert(Comes::Unknown);
    }
}

impl World {
    /// Starts a command for an event that this node holds. `sent`: when the write that started it was first sent.
    pub(crate) fn begin(&mut self, node: NodeId, event: &Event, sent: Timestamp) -> Result<usize, Broken> {
        let body = self.stored_body(event)?;
        let hold = self.plan.in_doubt == InDoubtPolicy::Hold;
        self.oracle.begins(event, body, hold)?;
        for other in self.commands.iter().filter(|command| command.end.is_none()) {
            if other.event == event.id {
                return broken("I3", format!("{} runs twice at once", name(event.id)));
            }
            if other.group.is_some() && other.group == event.group {
                return broken("I3", format!("{} and {} run at once", name(event.id), name(other.event)));
            }
        }
        self.oracle.tally.commands += 1;
        let now = self.now();
        let longest = if self.rng.chance(60) { 8 } else { 45 };
        let length = self.rng.range(1, longest);
        let ends_at = now + seconds(length);
        let acts_at = now + seconds(self.rng.range(1, length));
        let roll = self.rng.below(100);
        let (unknown, timeouts) = if self.rough { (self.plan.unknown, self.plan.timeouts) } else { (0, 0) };
        let comes_to = match (self.plan.fails, self.plan.fails + self.plan.rejects) {
            (fails, _) if roll < fails => Comes::Failed,
            (_, rejects) if roll < rejects => Comes::Rejected,
            (_, rejects) if roll < rejects + unknown => Comes::Unknown,
            (_, rejects) if roll < rejects + unknown + timeouts => Comes::TimedOut,
            _ => Comes::Delivered,
        };
        let may_act = matches!(comes_to, Comes::Unknown | Comes::TimedOut);
        let acts = comes_to == Comes::Delivered || (may_act && self.rng.chance(50));
        let (event_id, group) = (event.id, event.group);
        self.say(|| format!("{node} runs {} until {comes_to:?} in {length} s", name(event_id)));
        self.commands.push(Command {
            node,
            event: event_id,
            group,
            subject: body.0,
            value: body.1,
            acts_at: acts.then_some(acts_at),
            ends_at,
            deadline: sent + LEASE,
            comes_to,
            end: None,
        });
        Ok(self.commands.len() - 1)
    }

    /// Runs the commands until this time.
    pub(crate) fn run_commands(&mut self, until: Timestamp) {
        let guarded = self.bug != Some(Bug::NoGuard);
        let mut acts: Vec<(Timestamp, usize)> = Vec::new();
        for (at, command) in self.commands.iter_mut().enumerate().filter(|(_, command)| command.end.is_none()) {
            let deadline = if guarded { command.deadline } else { Timestamp(i64::MAX) };
            let over = command.ends_at.min(deadline);
            if let Some(acts_at) = command.acts_at.filter(|acts_at| *acts_at <= until && *acts_at < deadline) {
                command.acts_at = None;
                acts.push((acts_at, at));
            }
            if over <= until {
                command.end = Some(if command.ends_at < deadline { command.comes_to } else { Comes::Unknown });
            }
        }
        acts.sort_unstable();
        for (_, at) in acts {
            let (event, subject, value) = (self.commands[at].event, self.commands[at].subject, self.commands[at].value);
            self.oracle.deploys(subject, value);
            self.say(|| format!("{} deploys v{value} to s{subject}", name(event)));
        }
    }
}
