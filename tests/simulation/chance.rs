//! Random events: which task proceeds, what is sent, which faults happen, and what operators do.

use crate::bug::Bug;
use crate::node::{Node, Task};
use crate::oracle::{Broken, Kind};
use crate::plan::seconds;
use crate::store_tap::Write;
use crate::world::World;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::event::{Event, EventState, EventStep};
use hookonce::decide::source::{RedeliveryPolicy, Route};
use hookonce::decide::time::Timestamp;

impl World {
    /// One random event.
    pub(crate) fn step(&mut self) -> Result<(), Broken> {
        let now = self.now();
        match self.rng.below(100) {
            roll if roll < self.plan.blows => return self.blow(now),
            0..38 => return self.work_somewhere(now),
            38..52 => {
                if let Some(node) = self.awake() {
                    return self.look(node);
                }
            }
            52..70 => {
                let by = if self.rng.chance(5) { self.rng.range(30, 200) } else { self.rng.range(1, 7) };
                return self.pass(seconds(by));
            }
            70..78 => self.sender.acts(&mut self.rng, now),
            78..81 => self.person(),
            81..83 => return self.write(Write::Forget).map(|_| ()),
            83 => self.reload(),
            _ => return self.arrive(),
        }
        Ok(())
    }

    /// The config is changed: a route is gone, or is back.
    fn reload(&mut self) {
        let gone = self.there == [true, true] && self.rng.chance(40);
        self.there = [true, true];
        if gone {
            self.there[self.rng.index(2)] = false;
        }
        let there = self.there;
        self.say(|| format!("routes even, odd: {there:?}"));
    }

    /// A node crashes and starts again, or is paused.
    fn blow(&mut self, now: Timestamp) -> Result<(), Broken> {
        let at = self.rng.index(self.nodes.len());
        if self.rng.chance(50) {
            let until = now + seconds(self.rng.range(5, 120));
            self.nodes[at].sleeps_until = until;
            self.oracle.tally.pauses += 1;
            self.say(|| format!("node {at} sleeps until {}", until.0 / 1_000_000 - 1_000));
            return Ok(());
        }
        self.oracle.tally.crashes += 1;
        self.restarts += 1;
        let fresh = Node::new(at, self.restarts, &mut self.rng);
        let dead = std::mem::replace(&mut self.nodes[at], fresh);
        self.nodes[at].sleeps_until = now + seconds(self.rng.below(40));
        self.say(|| format!("node {} dies", dead.name));
        for task in dead.tasks {
            match task {
                Task::Receive(receive) => self.unanswered(receive.sent),
                Task::Wait(wait) => self.unanswered(wait.sent),
                Task::Attempt(_) | Task::Touch(_) => {}
            }
        }
        if self.bug != Some(Bug::NoGuard) {
            let ends = self.plan.action.ends_with_its_node();
            for command in self.commands.iter_mut().filter(|command| ends && command.node == dead.name) {
                command.kill();
            }
        }
        if self.plan.alone { self.take_over() } else { Ok(()) }
    }

    /// The only node starts: none of its predecessor's writes are still to come, and what ended with the predecessor
    /// has no lease any more.
    fn take_over(&mut self) -> Result<(), Broken> {
        self.late.clear();
        for mut event in self.rows() {
            if let (Some(Bug::EveryLeaseEndsAtStart), EventState::Running { action, .. }) = (self.bug, &mut event.state)
            {
                *action = Some(ActionKind::Run);
            }
            let Ok(change) = event.transition(EventStep::Orphan, &Route::default(), self.now()) else { continue };
            self.oracle.tally.orphans += 1;
            self.execute(Write::Advance(Box::new(change), Kind::Orphan))?;
        }
        Ok(())
    }

    fn work_somewhere(&mut self, now: Timestamp) -> Result<(), Broken> {
        let awake = self.nodes.iter().enumerate().filter(|(_, node)| node.sleeps_until <= now);
        let tasks = awake.flat_map(|(at, node)| (0..node.tasks.len()).map(move |task| (at, task)));
        let tasks: Vec<_> = tasks.collect();
        if tasks.is_empty() {
            return Ok(());
        }
        let (node, task) = self.rng.pick(&tasks);
        self.work(node, task)
    }

    /// An operator replays something that has ended, cancels something that waits, or acts too early.
    fn person(&mut self) {
        let rows = self.rows();
        let Some(node) = self.awake() else { return };
        if rows.is_empty() {
            return;
        }
        let event = self.rng.pick(&rows);
        let kind = match event.state {
            EventState::Dead { .. } if self.rng.chance(70) => {
                self.redeliver(&event);
                return;
            }
            EventState::Done { .. }
                if matches!(self.plan.redelivery, RedeliveryPolicy::Again { .. }) && self.rng.chance(80) =>
            {
                self.redeliver(&event);
                return;
            }
            EventState::Done { .. } | EventState::Dead { .. } => Kind::Replay,
            EventState::Waiting { .. } if self.rng.chance(8) => Kind::Cancel,
            // A node whose clock is ahead considers a lease over that is not.
            EventState::Running { .. } => Kind::Expire { route_gone: false },
            EventState::Waiting { .. } => return,
        };
        self.nodes[node].tasks.push(Task::Touch(Box::new((event, kind))));
    }

    /// An operator sees at the sender that it had no effect, and presses Redeliver.
    fn redeliver(&mut self, event: &Event) {
        let of = |id: u32| event.delivery_id.as_deref() == Some(&*format!("d{id}"));
        if let Some(sent) = self.sender.sent.iter().position(|sent| of(sent.id)) {
            let (now, late) = (self.now(), self.rng.below(80));
            self.sender.send(sent, now, late);
        }
    }
}
